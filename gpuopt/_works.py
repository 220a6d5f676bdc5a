"""What gpuopt.stream computes from a block: the state of it, or a part of the result.

Order: the works, which arguments are cut and where, the work of a call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuopt import _core, chunks
from gpuopt._sources import Blocks, Source

__all__ = ["ELEMENTWISE", "OPS", "Cut", "Uncut", "Work", "make_work"]

ELEMENTWISE = tuple(op for op in _core.ops() if _core.describe(op)["room"] == "elementwise")
BATCHED = ("upsample_nearest", "max_pool1d", "max_pool2d", "max_pool3d")
OPS = (*chunks.OPS, "causal_conv1d", *BATCHED, *ELEMENTWISE)
"""The operators that gpuopt.stream takes."""

Shape = tuple[int, ...]


class Uncut(ValueError):
    """The operator takes such a call, but not in blocks."""


@dataclass
class Cut:
    """An argument that comes in blocks, and the axis of it that is cut."""

    source: Source | Blocks
    along: int


class Work:
    """A part of the result from each block alone."""

    parts = True
    """Whether blocks give parts of the result, rather than a state of all of it."""
    backwards = False
    """Whether the last block comes first."""

    def __init__(self, op: str, args: list[Any], options: dict[str, Any]) -> None:
        self.op, self.args, self.options = op, args, options
        self.out_along = next(arg.along for arg in args if isinstance(arg, Cut))

    def arguments(self, blocks: list[Any]) -> list[Any]:
        """The arguments of a call on blocks: those that are cut replaced, in order."""
        left = iter(blocks)
        return [next(left) if isinstance(arg, Cut) else arg for arg in self.args]

    def block(self, begin: int, blocks: list[Any], into: Any) -> Any:
        """What a block gives, in `into` unless that is None; called with blocks in order."""
        del begin
        return getattr(_core, self.op)(*self.arguments(blocks), out=into, **self.options)

    def finish(self) -> Any:
        """The result, of a work without parts."""

    def result(self) -> tuple[Shape, np.dtype[Any]]:
        """Shape and dtype of the whole result, or the operator's error; nothing is read."""
        nothing = [
            np.broadcast_to(np.zeros((), arg.source.dtype), arg.source.shape)
            for arg in self.args
            if isinstance(arg, Cut) and not isinstance(arg.source, Blocks)
        ]
        options = {k: v for k, v in self.options.items() if k != "variant"}
        plan = _core.plan(self.op, *self.arguments(nothing), **{**options, "backend": "cpu"})
        shape, dtype = plan["outputs"][0]
        return tuple(shape), np.dtype(dtype)


class Totals(Work):
    """The states of blocks, combined in their order."""

    parts = False

    def __init__(
        self, op: str, args: list[Any], options: dict[str, Any], x: Any = None
    ) -> None:
        super().__init__(op, args, options)
        self.state: chunks.State | None = None
        self.x = x

    def block(self, begin: int, blocks: list[Any], into: Any) -> Any:
        options = dict(self.options)
        place: int | Shape = begin
        if self.op == "reduce" and options.get("axis") is None:
            if self.out_along == 0:
                place = begin * math.prod(blocks[0].shape[1:])
            elif options.get("op") in ("argmin", "argmax"):
                place = tuple(
                    begin if a == self.out_along else 0 for a in range(blocks[0].ndim)
                )
                options["shape"] = self.args[0].source.shape
        elif self.op == "scatter_add":
            place = begin * math.prod(blocks[0].shape[1:])
        state = chunks.partial(self.op, *blocks, offset=place, **options)
        self.state = state if self.state is None else chunks.combine(self.state, state)

    def finish(self) -> Any:
        assert self.state is not None
        return chunks.finish(self.state, self.x)

    def result(self) -> tuple[Shape, np.dtype[Any]]:
        raise NotImplementedError


class Scan(Work):
    """A scan that each block continues."""

    def __init__(self, op: str, args: list[Any], options: dict[str, Any]) -> None:
        super().__init__(op, args, options)
        self.backwards = bool(options.get("reverse"))
        self.state: chunks.State | None = None

    def block(self, begin: int, blocks: list[Any], into: Any) -> Any:
        y = chunks.scan(blocks[0], self.state, out=into, **self.options)
        state = chunks.partial("scan", blocks[0], **self.options)
        self.state = state if self.state is None else chunks.combine(self.state, state)
        return y


class Convolution(Work):
    """A causal convolution along time: the last K - 1 steps go on to the next block."""

    def __init__(self, op: str, args: list[Any], options: dict[str, Any]) -> None:
        super().__init__(op, args, options)
        self.options = {k: v for k, v in options.items() if k != "initial_state"}
        self.state = options.get("initial_state")

    def block(self, begin: int, blocks: list[Any], into: Any) -> Any:
        before = {} if self.state is None else {"initial_state": self.state}
        if into is not None:
            before["out"] = (into, None)
        convolve: Any = _core.causal_conv1d
        y, self.state = convolve(
            *self.arguments(blocks), return_state=True, **before, **self.options
        )
        return y


# ---- which arguments are cut, and where ----


def _axes(op: str, options: dict[str, Any], shape: Shape) -> list[int]:
    """The axes of the first argument that may be cut, the best first."""
    if op in ("reduce", "scan", *ELEMENTWISE):
        return list(range(len(shape)))
    if op == "causal_conv1d" and len(shape) == 3:
        return [0, 1 if options.get("layout") == "BTC" else 2]
    return [0]


def _choose(axes: list[int], shape: Shape, itemsize: int, along: int | None, block: int) -> int:
    """The axis to cut: the one asked for, or the first of which a step fits into a block."""
    if not shape:
        raise ValueError("a source has one dimension or more")
    if along is not None:
        along = int(np.lib.array_utils.normalize_axis_index(along, len(shape)))
        if along not in axes:
            allowed = " or ".join(str(a) for a in axes)
            raise ValueError(f"blocks can be cut along axis {allowed}, not {along}")
        axes = [along]
    size = math.prod(shape) * itemsize
    steps = [size // shape[a] if shape[a] else 0 for a in axes]
    for axis, step in zip(axes, steps, strict=True):
        if step <= block:
            return axis
    raise Uncut(
        f"one step along axis {axes[-1]} has {steps[-1]} bytes, more than a block of {block}: "
        f"give a larger block=" + ("" if along is None else ", or another along=")
    )


def _elementwise(
    op: str, sources: list[Any], options: dict[str, Any], along: int | None, block: int
) -> Work:
    """Sources of the full length are cut, those that are broadcast stay whole."""
    opened = [s for s in sources if hasattr(s, "read")]
    if not opened:
        raise TypeError(f"{op} over blocks takes an array")
    lead = max(opened, key=lambda s: (isinstance(s, Blocks), math.prod(s.shape)))
    if isinstance(lead, Blocks):
        whole = lead.shape
        axis = _choose(_axes(op, {}, whole), whole, 0, along, block)
    else:
        whole = np.broadcast_shapes(*(s.shape for s in opened))
        axis = _choose(_axes(op, {}, whole), whole, lead.dtype.itemsize, along, block)
    args: list[Any] = []
    for source in sources:
        own = axis - (len(whole) - len(source.shape)) if hasattr(source, "read") else -1
        one = own >= 0 and source.shape[own] == 1 != whole[axis]
        if own < 0 or (one and not isinstance(source, Blocks)):
            args.append(_all(source))
        else:
            args.append(Cut(source, own))
    work = Work(op, args, options)
    work.out_along = axis
    return work


def _all(source: Any) -> Any:
    """All of a source that is not cut."""
    if isinstance(source, Blocks):
        raise TypeError("an iterator of blocks cannot stand for a whole array")
    if not hasattr(source, "read"):
        return source
    if not source.shape:
        if not source.buffered:
            return source.x
        source.shape = (1,)  # a file of one number is read as a row of one
        return source.read(0, 0, 1, np.empty(1, source.dtype)).reshape(())
    buffer = np.empty(source.shape, source.dtype) if source.buffered else None
    return source.read(0, 0, source.shape[0], buffer)


def make_work(
    op: str, sources: list[Any], options: dict[str, Any], along: int | None, block: int
) -> Work:
    """The work of a call, whose sources are opened, numbers, or None."""
    for name in ("return_indices", "return_state", "segments"):
        if options.get(name) not in (None, False):
            raise Uncut(f"stream() of {op} takes no {name}=")
    if op in ELEMENTWISE:
        return _elementwise(op, sources, options, along, block)
    first = sources[1] if op == "index_add" else sources[0]
    if not hasattr(first, "read"):
        raise TypeError(f"{op} over blocks takes an array, not {first!r}")
    itemsize = 0 if isinstance(first, Blocks) else first.dtype.itemsize
    axis = _choose(_axes(op, options, first.shape), first.shape, itemsize, along, block)
    if op == "index_add":
        return _index_add(sources, options)
    if op in ("dot", "scatter_add"):
        return Totals(op, [Cut(source, axis) for source in sources], options)
    args = [Cut(first, axis), *(_all(source) for source in sources[1:])]
    if op == "reduce":
        return _reduction(args, axis, options)
    if op == "scan" and axis == _normal(options.get("axis", -1), len(first.shape)):
        return Scan(op, args, options)
    if op == "partition_reduce":
        return Totals(op, args, options)
    if op == "causal_conv1d" and axis > 0:
        return Convolution(op, args, options)
    if options.get("initial_state") is not None:
        raise Uncut("initial_state= goes with blocks along time, not along the batch")
    return Work(op, args, options)


def _normal(axis: int, ndim: int) -> int:
    return int(np.lib.array_utils.normalize_axis_index(axis, ndim))


def _index_add(sources: list[Any], options: dict[str, Any]) -> Work:
    """x is whole, in memory; the index and the slices of the source come in blocks."""
    x, index, source = _all(sources[0]), sources[1], sources[2]
    x = np.asarray(x)
    axis = _normal(options.get("axis", 0), x.ndim)
    options = {**options, "axis": axis, "size": x.shape[axis], "dtype": x.dtype}
    return Totals("index_add", [Cut(index, 0), Cut(source, axis)], options, x)


def _reduction(args: list[Any], axis: int, options: dict[str, Any]) -> Work:
    """A total along the axis that is cut; else a part of the result from each block."""
    axes, source = options.get("axis"), args[0].source
    if axes is None:
        if isinstance(source, Blocks) and axis and options.get("op") in ("argmin", "argmax"):
            raise ValueError("argmin and argmax of blocks along another axis than 0 need axis=")
        return Totals("reduce", args, options)
    reduced = np.lib.array_utils.normalize_axis_tuple(axes, len(source.shape))
    if axis in reduced or not reduced:
        return Totals("reduce", args, options)
    work = Work("reduce", args, options)
    if not options.get("keepdims"):
        work.out_along = axis - sum(a < axis for a in reduced)
    return work
