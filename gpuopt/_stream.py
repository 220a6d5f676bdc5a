"""gpuopt.stream: an operator over arrays larger than memory, block by block.

Order: the reading ahead, the writing behind, the call.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._report import STAGES, Report, Stage
from gpuopt._sinks import Given, Sink, open_sink
from gpuopt._sources import Blocks, Dataset, InMemory, open_source
from gpuopt._states import array
from gpuopt._works import ELEMENTWISE, OPS, Cut, Uncut, Work, make_work

__all__ = ["in_blocks", "stream"]

MIB = 1 << 20
# Bytes of a block.  On a CPU what was read is still in the cache when it is computed: a file
# in the page cache is summed twice as fast as in blocks of 32 MiB.  A bus needs longer ones.
BLOCK = {"cpu": 8 * MIB, "sim": 8 * MIB, "cuda": 32 * MIB}
SHARE = 0.4  # of a GPU's free memory: a larger NumPy array comes in blocks by itself


# ---- reading ahead ----


@dataclass
class Loaded:
    """A block of each source, on the device that computes."""

    begin: int
    end: int
    blocks: list[Any]
    slot: Slot


@dataclass
class Slot:
    """The buffers of a block that is on its way, and its stream on the device."""

    buffers: list[Any]
    stream: Any


def _piece(c: Cut, begin: int, end: int, buffer: Any) -> Any:
    """Elements begin to end of a source that is no iterator, in a buffer of bytes if given."""
    source = c.source
    assert not isinstance(source, Blocks)
    if not source.buffered:
        return source.read(c.along, begin, end, None)
    shape = (*source.shape[: c.along], end - begin, *source.shape[c.along + 1 :])
    size = math.prod(shape) * source.dtype.itemsize
    bytes_ = np.empty(size, np.uint8) if buffer is None else buffer[:size]
    return source.read(c.along, begin, end, bytes_.view(source.dtype).reshape(shape))


class Feed:
    """Blocks in order, `readers` of them being read while others are computed."""

    def __init__(
        self, work: Work, step: int, backend: str, device: int, readers: int, stages: Any
    ) -> None:
        self.cuts = [arg for arg in work.args if isinstance(arg, Cut)]
        self.step, self.backend, self.device, self.stages = step, backend, device, stages
        self.iterators = [
            (c.source, c.along) for c in self.cuts if isinstance(c.source, Blocks)
        ]
        lengths = {
            c.source.shape[c.along] for c in self.cuts if not isinstance(c.source, Blocks)
        }
        if len(lengths) > 1:
            raise ValueError(
                f"the sources have different lengths along the axis that is cut: "
                f"{', '.join(str(n) for n in sorted(lengths))}"
            )
        self.length = lengths.pop() if lengths else None
        self.known = not self.iterators
        if self.iterators and work.backwards:
            raise ValueError("a scan with reverse=True begins at the end, an iterator does not")
        self.readers = readers if self.known else 1
        self.backwards = work.backwards
        self.at = 0

    def slots(self) -> list[Slot]:
        """As many as are read at a time, and one computed, and one ready."""
        return [
            Slot([self._buffer(c) for c in self.cuts], self._stream())
            for _ in range(self.readers + 2)
        ]

    def _buffer(self, c: Cut) -> Any:
        if isinstance(c.source, Blocks) or not c.source.buffered:
            return None
        shape = c.source.shape
        step = min(self.step, shape[c.along])
        size = math.prod(shape[: c.along] + shape[c.along + 1 :]) * step
        make = _core.empty_pinned if self.backend == "cuda" else np.empty
        return make(size * c.source.dtype.itemsize, np.uint8)

    def _stream(self) -> Any:
        return (
            None if self.backend == "cpu" else _core.Stream(self.device, backend=self.backend)
        )

    def spans(self) -> list[tuple[int, int]]:
        assert self.length is not None
        begins = range(0, max(self.length, 1), self.step)
        spans = [(begin, min(begin + self.step, self.length)) for begin in begins]
        return spans[::-1] if self.backwards else spans

    def _read(self, slot: Slot, span: tuple[int, int]) -> Loaded:
        begin, end = span
        pairs = zip(self.cuts, slot.buffers, strict=True)
        blocks = [_piece(c, begin, end, buffer) for c, buffer in pairs]
        return Loaded(begin, end, blocks, slot)

    def _next(self, slot: Slot) -> Loaded | None:
        """The next block of the iterators, and what belongs to it of the other sources."""
        begin = self.at
        found = [source.read(along) for source, along in self.iterators]
        ended = [block is None for block in found]
        lengths = {
            block.shape[along]
            for block, (_, along) in zip(found, self.iterators, strict=True)
            if block is not None
        }
        if all(ended):
            if self.length not in (None, begin):
                raise ValueError(f"the iterator ended after {begin} of {self.length} elements")
            return None
        if any(ended) or len(lengths) > 1:
            raise ValueError("the iterators give blocks of different lengths")
        end = begin + lengths.pop()
        if self.length is not None and end > self.length:
            raise ValueError(
                f"the iterator gives more than the {self.length} elements of the other source"
            )
        self.at = end
        left, blocks = iter(found), []
        for c in self.cuts:
            if isinstance(c.source, Blocks):
                blocks.append(next(left))
            else:
                blocks.append(_piece(c, begin, end, None))
        return Loaded(begin, end, blocks, slot)

    def load(self, slot: Slot, span: tuple[int, int] | None) -> Loaded | None:
        """In a reader thread: a block read and brought to the device."""
        with self.stages["read"] as stage:
            loaded = self._next(slot) if span is None else self._read(slot, span)
            if loaded is None:
                return None
            loaded.blocks = [array(block) for block in loaded.blocks]
            stage.moved(sum(block.nbytes for block in loaded.blocks))
        if self.backend != "cpu":
            with self.stages["bus"] as stage:
                stage.moved(sum(block.nbytes for block in loaded.blocks))
                where = {"backend": self.backend, "device": self.device, "stream": slot.stream}
                loaded.blocks = [_core.asdevice(block, **where) for block in loaded.blocks]
        return loaded

    def __iter__(self) -> Generator[Loaded, None, None]:
        todo: Iterator[Any] = iter(self.spans()) if self.known else itertools.repeat(None)
        pending: deque[Future[Loaded | None]] = deque()
        pool = ThreadPoolExecutor(self.readers, "gpuopt-read")
        try:
            for slot, span in zip(self.slots(), todo, strict=False):
                pending.append(pool.submit(self.load, slot, span))
            while pending:
                loaded = pending.popleft().result()
                if loaded is None:
                    return
                yield loaded
                loaded.blocks = []
                for span in itertools.islice(todo, 1):
                    pending.append(pool.submit(self.load, loaded.slot, span))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# ---- writing behind ----


class Writer:
    """Parts of the result, written by a thread of its own, at most two behind.

    A part is computed, or copied from the device, where it belongs if the result is in memory,
    and else into one of three buffers: new memory for each part would cost more than many
    operators.  As many threads copy from the device into memory as read: one alone is slower
    than the bus.
    """

    def __init__(self, sink: Sink, work: Work, feed: Feed, apart: bool, stages: Any) -> None:
        self.sink, self.along, self.stages = sink, work.out_along, stages
        self.pending: deque[Future[None]] = deque()
        self.begun = feed.known
        self.end = 0
        self.host = feed.backend == "cpu"
        self.targets = feed.known and (not self.host or work.op != "reduce")
        self.make = _core.empty_pinned if feed.backend == "cuda" else np.empty
        self.buffers: list[Any] = []
        self.turn = 0
        if self.begun:
            self.shape, self.dtype = work.result()
            self.sink.begin(self.shape, self.dtype, known=True)
        self.direct = self.targets and not apart and sink.view(self.along, 0, 0) is not None
        threads = feed.readers if self.direct and not self.host else 1
        self.behind = threads + 1
        self.pool = ThreadPoolExecutor(threads, "gpuopt-write")

    def target(self, begin: int, end: int) -> Any:
        """Where the part of a block goes on the host; None for new memory."""
        if not self.targets:
            return None
        if self.direct:
            return self.sink.view(self.along, begin, end)
        shape = (*self.shape[: self.along], end - begin, *self.shape[self.along + 1 :])
        size = math.prod(shape) * self.dtype.itemsize
        if len(self.buffers) < 3:
            self.buffers.append(self.make(size, np.uint8))
        elif self.buffers[self.turn].size < size:  # backwards, the first block is the shortest
            self.buffers[self.turn] = self.make(size, np.uint8)
        buffer = self.buffers[self.turn]  # `put` left two parts behind: the third is free
        self.turn = (self.turn + 1) % 3
        return buffer[:size].view(self.dtype).reshape(shape)

    def put(self, begin: int, part: Any, target: Any) -> None:
        if not self.begun:
            self.sink.begin(tuple(part.shape), part.dtype, known=False)
            self.begun = True
        self.end = max(self.end, begin + part.shape[self.along])
        if self.direct and self.host:
            return
        while len(self.pending) >= self.behind:
            self.pending.popleft().result()
        self.pending.append(self.pool.submit(self._write, begin, part, target))

    def _write(self, begin: int, part: Any, target: Any) -> None:
        if not self.host:
            with self.stages["bus"] as stage:
                stage.moved(part.nbytes)
                if target is None:
                    part = part.numpy()
                else:
                    part.copy_to(target)
                    part = target
            if self.direct:
                return
        with self.stages["write"] as stage:
            self.sink.write(self.along, begin, part)
            stage.moved(part.nbytes)

    def close(self) -> Any:
        while self.pending:
            self.pending.popleft().result()
        with self.stages["write"]:
            return self.sink.close(self.along, self.end)

    def stop(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)


# ---- the call ----


def _arguments(op: str, sources: tuple[Any, ...], options: dict[str, Any]) -> list[Any]:
    """The operator's arrays in its order, opened; numbers as they are."""
    if op not in OPS:
        raise ValueError(f"stream() does not take '{op}'; it takes {', '.join(OPS)}")
    described = _core.describe(op)["args"]
    names = [a["name"] for a in described if a["kind"] == "array" and not a["named"]]
    given = dict(zip(names, sources, strict=False))
    if len(sources) > len(names):
        raise TypeError(
            f"stream() of {op} takes {len(names)} arrays ({', '.join(names)}), "
            f"not {len(sources)}; options go by keyword"
        )
    for name in names:
        if name in options:
            if name in given:
                raise TypeError(f"stream() of {op} got multiple values for '{name}'")
            given[name] = options.pop(name)
    presets = {a["name"]: a["preset"] for a in described}
    for name in names:
        if name not in given and presets[name] is None:
            raise TypeError(f"stream() of {op} is missing the array '{name}'")
    last = max((k for k, name in enumerate(names) if name in given), default=-1)
    values = [given.get(name) for name in names[: last + 1]]
    opened: list[Any] = []
    try:
        for value in values:
            number = value is None or isinstance(value, int | float | complex | np.generic)
            opened.append(value if number else open_source(value))
    except BaseException:
        _close(opened)
        raise
    return opened


def _close(opened: list[Any]) -> None:
    for source in opened:
        if hasattr(source, "close"):
            source.close()


def _step(work: Work, known: bool, block: int, out: Any) -> int:
    """How many elements along the cut axes a block has: whole chunks, if they fit."""
    if not known:
        return 0
    cuts = [arg for arg in work.args if isinstance(arg, Cut)]
    lengths, sizes = [], []
    for c in cuts:
        lengths.append(c.source.shape[c.along])
        sizes.append(math.prod(c.source.shape) * c.source.dtype.itemsize)
    if work.parts:
        shape, dtype = work.result()
        sizes.append(math.prod(shape) * dtype.itemsize)
    each = max(
        -(-size // max(length, 1)) for size, length in zip(sizes, itertools.cycle(lengths))
    )
    step = max(block // max(each, 1), 1)
    if work.op == "partition_reduce":
        return 1 << (step.bit_length() - 1)  # whole blocks, without pieces
    whole = 1
    for chunk in _chunks(work, cuts, out):
        both = math.lcm(whole, chunk)
        whole = both if both <= step else whole
    return step // whole * whole


def _chunks(work: Work, cuts: list[Cut], out: Any) -> list[int]:
    """Lengths, along the cut, of the chunks in which datasets are stored."""
    named = [(getattr(c.source, "chunks", None), c.along) for c in cuts]
    if work.parts:
        named.append((getattr(out, "chunks", None), work.out_along))
    found = [chunks[a] for chunks, a in named if isinstance(chunks, tuple) and a < len(chunks)]
    return [c for c in found if isinstance(c, int) and c > 0]


def stream(
    op: str,
    /,
    *sources: Any,
    out: Any = None,
    along: int | None = None,
    block: int | None = None,
    readers: int | None = None,
    backend: str | None = None,
    device: int = 0,
    progress: bool | None = None,
    report: Callable[[Report], Any] | None = None,
    **options: Any,
) -> Any:
    """Compute an operator over arrays that do not fit into memory, block by block.

    Parameters
    ----------
    op : str
        reduce, scan, dot, partition_reduce, scatter_add, index_add, causal_conv1d,
        upsample_nearest, max_pool1d to 3d, and the elementwise operators.
    *sources : arrays, as the operator takes them
        Each is an array, a memmap, the path of an .npy file, (path, dtype) or (path, dtype,
        shape) of a file of raw elements, a dataset of h5py, Zarr or another library (anything
        with shape, dtype and __getitem__), or an iterator of blocks.  Arrays that are
        broadcast, the filters of causal_conv1d and the x of index_add stay in memory.
    out : path, array or dataset, optional
        Where the result goes.  A path that ends with .npy gets an .npy file, any other raw
        elements; the file appears under its name when it is whole, and not at all after an
        error.  An array, memmap or dataset must have the shape and dtype of the result; an
        error leaves a part of the result in it.  Default: a new array, in memory.
    along : int, optional
        The axis that is cut: any axis of elementwise operators, reduce and scan; for
        causal_conv1d the batch or time; else 0.  Default: the first of them of which one
        step fits into a block.  For an iterator the axis along which its blocks follow.
    block : int, optional
        Bytes of the longest block of a source, or of the part of the result that it gives.
        Default: 8 MiB on a CPU, 32 MiB on a GPU.  An iterator's blocks are taken as they
        come; of a dataset with `chunks` whole ones are, if they fit.
    readers : int, optional
        Threads that read.  Default: 2, or 4 on a machine of 8 or more CPUs; for a GPU half
        of the CPUs, at least 2 and at most 8, but 2 for arrays.  An iterator has one, and
        datasets are read and written by one thread at a time, since their libraries need not
        be thread-safe, unless you name a number.
    backend, device : optional
        Where to compute: 'cpu', 'cuda' or 'sim'.  Default: gpuopt.default_backend().
    progress : bool, optional
        Show progress on stderr; the default does so on a terminal, where tqdm draws the bar
        if installed.  Iterators, whose length is not known, have none.
    report : callable, optional
        Called with a Report at the end: `report=print` shows how long reading, the bus,
        computing and writing took, and which of them bounds the call.
    **options
        The operator's own options, by keyword.

    Returns
    -------
    scalar or array, or `out` if it was given

    Raises
    ------
    ValueError, TypeError
        As the operator; a source shrank or changed while it was read; an iterator's blocks
        do not follow each other; one step along the axis has more bytes than a block.
    OSError
        A file cannot be read or written; the disk is full, which is noticed before the
        first block if the length is known.

    Notes
    -----
    Memory: `readers` + 2 blocks of each source that is read from a file or dataset, and
    three of the result.  scatter_add and index_add take two blocks more in float64, and
    twice their result; a source in memory, a result in memory, and what an iterator or a
    dataset itself keeps come on top.

    Accuracy: that of gpuopt.chunks for totals.  A scan's carry and the last steps of a
    convolution along time go from block to block, so that results are those of one call,
    within its bound.

    Determinism: the same blocks give the same bits, whatever the number of readers.

    Examples
    --------
    >>> gpuopt.stream("reduce", np.arange(10.0), op="mean", block=32)
    np.float64(4.5)
    >>> gpuopt.stream("scan", (np.full(4, k) for k in range(3)))
    array([ 0,  0,  0,  0,  1,  2,  3,  4,  6,  8, 10, 12])
    """
    options = dict(options)
    if "stream" in options:
        raise TypeError("stream() makes streams of its own")
    backend = backend or _core.default_backend()
    if backend not in BLOCK:
        raise ValueError(f"backend must be one of 'cpu', 'cuda', 'sim', not {backend!r}")
    block = BLOCK[backend] if block is None else int(block)
    if block < 1 or (readers is not None and readers < 1):
        raise ValueError("block and readers must be positive")
    lock: Any = contextlib.nullcontext() if readers else threading.Lock()
    same = [_is_out(op, value, out) for value in (*sources, *options.values())]
    apart = op == "scan" and any(same)  # a scan must not write where it reads
    opened = _arguments(op, sources, options)
    try:
        for source in opened:
            if isinstance(source, Dataset):
                source.lock = lock
        readers = readers or _readers(backend, opened)
        work = make_work(op, opened, options, along, block)
        stages = {name: Stage() for name in STAGES}
        known = not any(isinstance(source, Blocks) for source in opened)
        step = _step(work, known, block, out)
        feed = Feed(work, step, backend, device, readers, stages)
        return _run(work, feed, out, apart, lock, progress, report)
    finally:
        _close(opened)


def in_blocks(
    op: str, args: tuple[Any, ...], kwargs: dict[str, Any], device: int, backend: str = "cuda"
) -> Any:
    """The result of a call with a NumPy array of more than SHARE of the device's free memory.

    NotImplemented if there is none, or if the call cannot be cut.  The core asks this for
    arrays of 256 MiB and more.
    """
    memory = _core.memory_info(device, backend=backend)
    most = SHARE * (memory["free"] + memory["pool"])
    given = [value for value in (*args, *kwargs.values()) if isinstance(value, np.ndarray)]
    if all(x.nbytes <= most for x in given) or op not in OPS or "stream" in kwargs:
        return NotImplemented
    names = [a["name"] for a in _core.describe(op)["args"] if not a["named"]]
    options = {**dict(zip(names, args, strict=False)), **kwargs}
    options.update(backend=backend, device=device, progress=False)
    try:
        return stream(op, **options)
    except Uncut:
        return NotImplemented


def _readers(backend: str, opened: list[Any]) -> int:
    """By default; what is in memory needs no reading, and all CPUs copy it to a GPU."""
    cores = os.cpu_count() or 1
    if backend == "cuda" and not all(
        isinstance(x, InMemory) for x in opened if hasattr(x, "read")
    ):
        return max(2, min(cores // 2, 8))
    return 4 if cores >= 8 and backend != "cuda" else 2


def _place(work: Work, backend: str, device: int) -> None:
    """Tell the work where it computes: arrays that stay whole go to the device."""
    if backend == "cpu":
        work.options = {**work.options, "backend": "cpu"}
        return

    def put(value: Any) -> Any:
        whole = isinstance(value, np.ndarray | np.generic)
        return _core.asdevice(value, backend=backend, device=device) if whole else value

    work.args = [put(arg) for arg in work.args]
    if getattr(work, "state", None) is not None:
        work.state = put(np.asarray(work.state))  # type: ignore[attr-defined]


def _is_out(op: str, source: Any, out: Any) -> bool:
    """Whether a source is out: a block may be written where it was read, and nowhere else."""
    if isinstance(source, np.ndarray) and isinstance(out, np.ndarray):
        layouts = [
            (a.__array_interface__["data"][0], a.shape, a.strides, a.dtype)
            for a in (source, out)
        ]
        in_place = op in ELEMENTWISE or op == "scan"
        if np.may_share_memory(source, out):
            if not (in_place and layouts[0] == layouts[1]):
                raise ValueError("out shares memory with a source")
            return True
    return False


def _run(
    work: Work, feed: Feed, out: Any, apart: bool, lock: Any, progress: bool | None, report: Any
) -> Any:
    begun = time.perf_counter()
    marks: list[tuple[float, int]] = []
    stages, sink = feed.stages, open_sink(out) if work.parts or out is not None else None
    writer = None
    if isinstance(sink, Given) and not isinstance(out, np.ndarray):
        sink.lock = lock
    try:
        if sink is not None and work.parts:
            writer = Writer(sink, work, feed, apart, stages)
        _place(work, feed.backend, feed.device)
        with contextlib.closing(iter(feed)) as blocks:
            for loaded in _shown(blocks, feed, work.op, progress):
                target = writer.target(loaded.begin, loaded.end) if writer else None
                with stages["compute"] as stage:
                    stage.moved(sum(x.nbytes for x in loaded.blocks))
                    into = target if feed.backend == "cpu" else None
                    part = work.block(loaded.begin, loaded.blocks, into)
                    if loaded.slot.stream is not None:
                        loaded.slot.stream.synchronize()
                if writer is not None:
                    writer.put(loaded.begin, part, target)
                marks.append((time.perf_counter() - begun, stages["read"].bytes))
        if writer is not None:
            result = writer.close()
        else:
            result = work.finish()
            if sink is not None:
                value = np.asarray(result)
                sink.begin(value.shape, value.dtype, known=True)
                sink.write(0, 0, value)
                result = sink.close(0, value.shape[0] if value.ndim else 0)
    except BaseException:
        if writer is not None:
            writer.stop()
        if sink is not None:
            sink.drop()
        raise
    if writer is not None:
        writer.stop()
    if report is not None:
        report(_report(work, feed, time.perf_counter() - begun, marks))
    return result


def _shown(blocks: Iterator[Loaded], feed: Feed, op: str, progress: bool | None) -> Any:
    if not feed.known or progress is False:
        return blocks
    from gpuopt.lab.progress import track  # `import gpuopt` imports nothing of the lab

    return track(blocks, len(feed.spans()), op, progress)


def _report(work: Work, feed: Feed, elapsed: float, marks: list[tuple[float, int]]) -> Report:
    longest = 0
    for c in feed.cuts:
        if not isinstance(c.source, Blocks):
            length = max(c.source.shape[c.along], 1)
            size = math.prod(c.source.shape) * c.source.dtype.itemsize
            longest = max(longest, size // length * min(feed.step, length))
    return Report(
        op=work.op,
        backend=feed.backend,
        elapsed=elapsed,
        blocks=len(marks),
        block_bytes=longest,
        seconds={name: stage.seconds for name, stage in feed.stages.items()},
        bytes={name: stage.bytes for name, stage in feed.stages.items()},
        marks=tuple(marks),
    )
