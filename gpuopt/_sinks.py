"""Where the results of gpuopt.stream go: files, memmaps, datasets, arrays.

A file is written under another name beside its own and renamed at the end, so that its own
name never stands for a part of a result.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import secrets
import shutil
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gpuopt._sources import cut, mapped

__all__ = ["Given", "Sink", "open_sink"]

Array = np.ndarray[Any, Any]


def _npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """NumPy leaves room for a longer first axis, so that the length does not change."""
    text = io.BytesIO()
    fields = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(text, fields)
    return text.getvalue()


class Sink:
    """Results block by block, in any order; `close` with what was asked for, or `drop`."""

    def begin(self, shape: tuple[int, ...], dtype: np.dtype[Any], known: bool) -> None:
        """The shape of the whole, before the first block; its axis may grow if not known."""
        raise NotImplementedError

    def view(self, along: int, begin: int, end: int) -> Array | None:
        """Elements begin to end of an axis of a result in memory, to compute them there."""

    def write(self, along: int, begin: int, block: Array) -> None:
        raise NotImplementedError

    def close(self, along: int, length: int) -> Any:
        raise NotImplementedError

    def drop(self) -> None:
        """After an error: leaves nothing behind that was not there."""


class NewArray(Sink):
    """A new NumPy array; the blocks themselves while the length is not known."""

    def begin(self, shape: tuple[int, ...], dtype: np.dtype[Any], known: bool) -> None:
        self.whole = np.empty(shape, dtype) if known else None
        self.blocks: list[Array] = []

    def view(self, along: int, begin: int, end: int) -> Array | None:
        return None if self.whole is None else self.whole[cut(along, begin, end)]

    def write(self, along: int, begin: int, block: Array) -> None:
        if self.whole is None:
            self.blocks.append(block)
        else:
            self.whole[cut(along, begin, begin + block.shape[along])] = block

    def close(self, along: int, length: int) -> Any:
        return np.concatenate(self.blocks, along) if self.whole is None else self.whole


class Given(Sink):
    """An array or dataset: written as it goes, so that an error leaves a part of it."""

    lock: AbstractContextManager[Any] = contextlib.nullcontext()

    def __init__(self, out: Any) -> None:
        self.out = out
        for name in ("shape", "dtype", "__setitem__"):
            if not hasattr(out, name):
                raise TypeError(
                    f"out is an array, a path, or a dataset with shape, dtype and "
                    f"__setitem__, not {type(out).__name__}"
                )
        if isinstance(out, np.ndarray) and not out.flags.writeable:
            raise ValueError("out is read-only")

    def begin(self, shape: tuple[int, ...], dtype: np.dtype[Any], known: bool) -> None:
        self.known, self.shape = known, tuple(self.out.shape)
        fits = (known and self.shape == shape) or (not known and len(self.shape) == len(shape))
        if not fits or np.dtype(self.out.dtype) != dtype:
            raise ValueError(
                f"out must have shape {shape} and dtype {dtype}, not {self.shape} and "
                f"{self.out.dtype}"
            )

    def view(self, along: int, begin: int, end: int) -> Array | None:
        plain = self.known and type(self.out) is np.ndarray
        return self.out[cut(along, begin, end)] if plain else None

    def write(self, along: int, begin: int, block: Array) -> None:
        end = begin + (block.shape[along] if block.ndim else 0)
        if block.ndim and end > self.shape[along]:
            raise ValueError(f"out has length {self.shape[along]}, the result at least {end}")
        with self.lock:
            self.out[cut(along, begin, end) if block.ndim else ()] = block

    def close(self, along: int, length: int) -> Any:
        if self.shape and self.shape[along] != length:
            raise ValueError(f"out has length {self.shape[along]}, the result {length}")
        return self.out


class Pieces:
    """Blocks of an array in C order, written into an open file."""

    def __init__(self, fd: int, path: str, offset: int) -> None:
        self.fd, self.path, self.offset = fd, path, offset

    def close(self) -> None:
        """Once; the number may soon be another file's."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def write(self, shape: tuple[int, ...], along: int, begin: int, block: Array) -> None:
        block = np.ascontiguousarray(block).reshape(block.shape)  # which makes a scalar 1-D
        inner = math.prod(shape[along + 1 :]) * block.itemsize
        flat: Any = block.reshape(-1).view(np.uint8)
        data = memoryview(flat)
        each = (block.shape[along] if block.ndim else 1) * inner
        for k in range(len(data) // each if each else 0):
            whole = shape[along] if block.ndim else 1
            at = self.offset + (k * whole + begin) * inner
            self._fill(data[k * each : (k + 1) * each], at)

    def _fill(self, data: memoryview, at: int) -> None:
        done = 0
        while done < len(data):
            try:
                done += os.pwritev(self.fd, [data[done:]], at + done)
            except OSError as error:
                raise OSError(error.errno, error.strerror, self.path) from None


class Mapped(Given):
    """A memmap, through its file: pages of the map would count as this process's memory."""

    def __init__(self, out: Any, path: str, offset: int) -> None:
        super().__init__(out)
        self.pieces = Pieces(os.open(path, os.O_WRONLY | os.O_CLOEXEC), path, offset)

    def write(self, along: int, begin: int, block: Array) -> None:
        if block.ndim and begin + block.shape[along] > self.shape[along]:
            super().write(along, begin, block)  # raises
        self.pieces.write(self.shape, along, begin, block)

    def close(self, along: int, length: int) -> Any:
        self.pieces.close()
        return super().close(along, length)

    def drop(self) -> None:
        self.pieces.close()


class NewFile(Sink):
    """A file of raw elements, or an .npy file: whole under its own name, or not there."""

    def __init__(self, path: Any) -> None:
        self.given, self.path = path, os.path.realpath(path)
        self.npy = self.path.endswith(".npy")
        if os.path.isdir(self.path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        folder, name = os.path.split(self.path)
        self.temporary = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.pieces = Pieces(os.open(self.temporary, flags, 0o666), self.temporary, 0)

    def begin(self, shape: tuple[int, ...], dtype: np.dtype[Any], known: bool) -> None:
        self.shape, self.dtype, self.known = shape, dtype, known
        if self.npy and dtype.kind == "V":
            raise TypeError(f"an .npy file has no name for {dtype}: give out= another ending")
        header = _npy_header(shape, dtype) if self.npy else b""
        self.pieces.offset = len(header)
        needed = math.prod(shape) * dtype.itemsize if known else 0
        free = shutil.disk_usage(os.path.dirname(self.temporary)).free
        if needed > free:
            text = f"the result has {needed} bytes, the disk {free} free"
            raise OSError(errno.ENOSPC, text, self.path)
        os.pwrite(self.pieces.fd, header, 0)

    def write(self, along: int, begin: int, block: Array) -> None:
        if not self.known and along:
            raise ValueError("blocks of unknown number go to a file along axis 0 alone")
        self.pieces.write(self.shape, along, begin, block)

    def close(self, along: int, length: int) -> Any:
        if self.npy and not self.known:
            self.shape = (length, *self.shape[1:])
            os.pwrite(self.pieces.fd, _npy_header(self.shape, self.dtype), 0)
        os.fsync(self.pieces.fd)
        self.pieces.close()
        os.replace(self.temporary, self.path)
        return self.given

    def drop(self) -> None:
        self.pieces.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.temporary)


def open_sink(out: Any) -> Sink:
    """The sink that `out=` names."""
    if out is None:
        return NewArray()
    if isinstance(out, str | os.PathLike):
        return NewFile(out)
    place = mapped(out)
    if place is not None and out.mode in ("r+", "w+"):
        return Mapped(out, *place)
    return Given(out)
