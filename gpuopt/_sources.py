"""Where the blocks of gpuopt.stream come from: files, memmaps, datasets, arrays, iterators.

A source has a dtype, a shape if its length is known, and `read`, which reader threads call
side by side and which fills a buffer or returns a block that it owns.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from gpuopt._states import array, foreign

__all__ = ["Blocks", "Dataset", "InMemory", "Source", "cut", "open_source"]

Array = np.ndarray[Any, Any]


class Source(Protocol):
    """An array of which blocks can be read in any order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffered: bool
    """Whether `read` fills a buffer: other sources have their blocks in memory."""

    def read(self, along: int, begin: int, end: int, buffer: Array | None) -> Array:
        """Elements begin to end of an axis; into `buffer`, of their shape, if buffered."""

    def close(self) -> None: ...


def cut(along: int, begin: int, end: int) -> tuple[slice, ...]:
    """The index of elements begin to end of an axis."""
    return (slice(None),) * along + (slice(begin, end),)


class InMemory:
    """A NumPy array: its blocks are views."""

    buffered = False

    def __init__(self, x: Array) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def read(self, along: int, begin: int, end: int, buffer: Array | None) -> Array:
        del buffer
        return self.x[cut(along, begin, end)]

    def close(self) -> None:
        pass


class Dataset:
    """Anything with shape, dtype and __getitem__: h5py, Zarr, TensorStore, Dask."""

    buffered = False
    lock: AbstractContextManager[Any] = contextlib.nullcontext()

    def __init__(self, x: Any) -> None:
        self.x, self.shape = x, tuple(int(n) for n in x.shape)
        try:
            self.dtype = np.dtype(x.dtype)
        except TypeError:
            raise TypeError(
                f"the source has dtype {x.dtype}, which NumPy does not know"
            ) from None
        self.chunks = getattr(x, "chunks", None)  # of h5py and Zarr

    def read(self, along: int, begin: int, end: int, buffer: Array | None) -> Array:
        del buffer
        with self.lock:
            block = np.asarray(array(self.x[cut(along, begin, end)]))
        wanted = (*self.shape[:along], end - begin, *self.shape[along + 1 :])
        if block.shape != wanted or block.dtype != self.dtype.newbyteorder("="):
            raise ValueError(
                f"the source gave a block of shape {block.shape} and dtype {block.dtype} for "
                f"{begin}:{end} of axis {along}, not {wanted} and {self.dtype}: it changed "
                f"while it was read"
            )
        return block

    def close(self) -> None:
        pass


class File:
    """Elements in C order in a file, read past the page tables: a block costs its buffer.

    A file of more than half of the machine's memory passes through the page cache without
    staying there: it would not fit, and would drive out what others have there.
    """

    buffered = True

    def __init__(
        self, path: Any, dtype: Any, shape: tuple[int, ...] | None = None, offset: int = 0
    ) -> None:
        self.path, self.dtype, self.offset = os.fspath(path), np.dtype(dtype), offset
        if self.dtype.hasobject or not self.dtype.itemsize:
            raise TypeError(f"a file cannot hold elements of dtype {self.dtype}")
        self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self.fd).st_size
            self.shape = self._shape(shape)
            self.passing = self.size > _memory() // 2
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        except BaseException:
            os.close(self.fd)
            raise

    def _shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...]:
        each = self.dtype.itemsize
        if shape is None:
            if self.size % each:
                raise ValueError(
                    f"{self.path} has {self.size} bytes, which are no whole elements of "
                    f"{each} bytes ({self.dtype})"
                )
            return (self.size // each,)
        needed = self.offset + math.prod(shape) * each
        if needed > self.size:
            raise ValueError(
                f"{self.path} has {self.size} bytes, but shape {shape} and dtype {self.dtype} "
                f"need {needed}"
            )
        return tuple(int(n) for n in shape)

    def read(self, along: int, begin: int, end: int, buffer: Array | None) -> Array:
        assert buffer is not None
        inner = math.prod(self.shape[along + 1 :]) * self.dtype.itemsize
        flat: Any = buffer.reshape(-1).view(np.uint8)
        into = memoryview(flat)
        each = (end - begin) * inner
        for k in range(len(into) // each if each else 0):
            at = self.offset + (k * self.shape[along] + begin) * inner
            self._fill(into[k * each : (k + 1) * each], at)
        return buffer

    def _fill(self, into: memoryview, at: int) -> None:
        done = 0
        while done < len(into):
            got = os.preadv(self.fd, [into[done:]], at + done)
            if got and self.passing:
                os.posix_fadvise(self.fd, at + done, got, os.POSIX_FADV_DONTNEED)
            if not got:
                raise ValueError(
                    f"{self.path} shrank while it was read: from {self.size} bytes to "
                    f"{os.fstat(self.fd).st_size}"
                )
            done += got

    def close(self) -> None:
        os.close(self.fd)


def _memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Blocks:
    """An iterator of blocks: the length is known when it ends.  Takes the first at once."""

    def __init__(self, blocks: Iterator[Any]) -> None:
        self.blocks, self.count = blocks, 0
        first = self._next()
        if first is None:
            raise ValueError("the iterator gave no block")
        self.first: Array | None = first
        self.shape, self.dtype = first.shape, first.dtype

    def _next(self) -> Array | None:
        try:
            block = np.asarray(array(next(self.blocks)))
        except StopIteration:
            return None
        self.count += 1
        return block

    def read(self, along: int) -> Array | None:
        """The next block, or None at the end; all are of one dtype and differ in one axis."""
        block, self.first = self.first, None
        block = self._next() if block is None else block
        if block is None:
            return None
        if block.dtype != self.dtype:
            raise TypeError(
                f"block {self.count - 1} has dtype {block.dtype}, those before {self.dtype}"
            )
        mine, first = list(block.shape), list(self.shape)
        if len(mine) == len(first):
            mine[along] = first[along]
        if mine != first:
            raise ValueError(
                f"block {self.count - 1} has shape {block.shape}, which does not continue "
                f"{self.shape} along axis {along}"
            )
        return block

    def close(self) -> None:
        close = getattr(self.blocks, "close", None)  # of a generator
        if close is not None:
            close()


def mapped(x: Any) -> tuple[str, int] | None:
    """Path and place of a memmap that is contiguous in a file, and the same there."""
    if not isinstance(x, np.memmap) or not x.flags.c_contiguous or x.mode == "c":
        return None
    memory: Any = getattr(x, "_mmap", None)
    if x.filename is None or not isinstance(memory, mmap.mmap):
        return None
    begin = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    start = x.offset - x.offset % mmap.ALLOCATIONGRANULARITY  # where the map begins
    return str(x.filename), start + x.__array_interface__["data"][0] - begin


def open_source(x: Any) -> Source | Blocks:
    """The source that an argument of stream() names."""
    path = isinstance(x, str | os.PathLike)
    if isinstance(x, tuple) and 2 <= len(x) <= 3 and isinstance(x[0], str | os.PathLike):
        return File(*x)
    if path and os.fspath(x).endswith(".npy"):
        x = np.load(x, mmap_mode="r", allow_pickle=False)
    elif path:
        raise TypeError(f"{os.fspath(x)} is not an .npy file: give (path, dtype)")
    if foreign(x):
        raise TypeError("a source on a device is there already: call the operator on it")
    place = mapped(x)
    if place is not None:
        return File(place[0], x.dtype, x.shape, place[1])
    if isinstance(x, np.ndarray | list | tuple):
        return InMemory(array(x) if not isinstance(x, np.memmap) else x)
    if all(hasattr(x, name) for name in ("shape", "dtype", "__getitem__")):
        return Dataset(x)
    if hasattr(x, "__next__"):
        return Blocks(x)
    raise TypeError(
        f"a source is an array, a memmap, an .npy file, (path, dtype), a dataset with shape, "
        f"dtype and __getitem__, or an iterator of blocks, not {type(x).__name__}"
    )
