"""How an operator on Dask arrays becomes a graph: what the operators of gpuopt.dask share.

Order: what a call is given, blocks, graphs, trees of states, windows of several blocks.

A task is a tuple of a functools.partial, which has everything that is known now, and the keys
of blocks.  Names are made of the operator, its options and the names of its inputs, so that
the same call makes the same keys.  What an operator refuses, and the dtype and shape of its
result, is what gpuopt.plan says of arrays of the same dtypes and shapes.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from gpuopt import _core
from gpuopt._states import array, combine, finish, foreign, like

__all__ = [
    "Graph",
    "Spec",
    "blocks_of",
    "checked",
    "empty",
    "finished",
    "in_blocks",
    "joined",
    "lazy",
    "plan",
    "put_together",
    "rechunk",
    "settled",
    "spec_of",
    "starts",
    "together",
    "window",
]

Key = tuple[Any, ...]
Task = tuple[Any, ...]
PLAIN = importlib.import_module("dask.array.core").Array
FAN_IN = 8  # states that one task combines: a tree of 4 levels for 4096 blocks


# ---- what a call is given ----


def lazy(op: str, name: str, x: Any) -> Any:
    """x, if it is a Dask array of known chunks whose blocks gpuopt takes."""
    if da.Array is not PLAIN:
        raise RuntimeError(
            "gpuopt.dask makes graphs, not expressions: set 'array.query-planning' to False in "
            "dask.config before dask.array is imported"
        )
    if not isinstance(x, da.Array):
        raise TypeError(
            f"gpuopt.dask.{op}() takes a Dask array as {name}, not {type(x).__name__}; "
            f"gpuopt.{op}() takes arrays in memory"
        )
    if any(math.isnan(n) for axis in x.chunks for n in axis):
        raise ValueError(
            f"{name} has chunks of unknown size; call {name}.compute_chunk_sizes() first"
        )
    array(x._meta)  # refuses masks, units, sparse arrays ...
    return x


def settled(op: str, options: dict[str, Any], *arrays: Any) -> dict[str, Any]:
    """variant= and backend=; NumPy blocks run on a CPU unless a backend is named.

    Without a name a NumPy block may run on a CPU or a GPU, whichever is faster on a worker:
    its bits would depend on the worker.
    """
    for name in options:
        if name == "out":
            raise TypeError(
                f"gpuopt.dask.{op}() has no out=: its result is computed later; write it with "
                "the result's store(), to_zarr() or compute()"
            )
        if name == "stream":
            raise TypeError(
                f"gpuopt.dask.{op}() has no stream=: a block is computed on the current stream "
                "of its library, in the worker that has it"
            )
        if name not in ("variant", "backend"):
            raise TypeError(f"{op}() got an unexpected keyword argument '{name}'")
    options = {k: v for k, v in options.items() if v is not None}
    if not options and not any(foreign(x._meta) for x in arrays if isinstance(x, da.Array)):
        options["backend"] = "cpu"
    return options


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")


def fake(x: Any) -> Any:
    """An array with the dtype and shape of x and one element of memory."""
    if not isinstance(x, da.Array | np.ndarray) and not foreign(x):
        return x
    return np.broadcast_to(np.zeros((), native(x.dtype)), x.shape)


def plan(
    op: str, /, *args: Any, **options: Any
) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
    """The shape and dtype of each result; raises what the operator would."""
    options = {k: v for k, v in options.items() if k not in ("backend", "variant")}
    given = [fake(a) for a in args]
    found = _core.plan(op, *given, backend="cpu", **options)["outputs"]
    known = {a.dtype.name: a.dtype for a in given if isinstance(a, np.ndarray)}
    return tuple(
        (tuple(shape), known[name] if name in known else np.dtype(name))
        for shape, name in found
    )


def rechunk(name: str, sizes: dict[int, Any]) -> str:
    """The call that makes chunks of these sizes, for the end of a sentence."""
    inside = ", ".join(f"{axis}: {sizes[axis]}" for axis in sorted(sizes))
    return f"call {name}.rechunk({{{inside}}})"


# ---- blocks ----


@dataclass(frozen=True)
class Spec:
    """What a Dask array says of one of its blocks."""

    name: str
    at: tuple[int, ...] | None  # where it is not known which block, its shape is not checked
    shape: tuple[int, ...] | None
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return (
            f"a block of {self.name}" if self.at is None else f"block {self.at} of {self.name}"
        )


def spec_of(name: str, x: Any, at: tuple[int, ...]) -> Spec:
    shape = tuple(axis[i] for axis, i in zip(x.chunks, at, strict=True))
    return Spec(name, at, shape, native(x.dtype))


def checked(block: Any, spec: Spec) -> Any:
    """The block, if it is what the Dask array says of it."""
    block = array(block)
    if block.dtype != spec.dtype:
        raise TypeError(
            f"{spec} has dtype {block.dtype}, but the Dask array has "
            f"{spec.dtype}; give its dtype= or meta= where the array is made, or convert the "
            "blocks with astype() there"
        )
    if spec.shape is not None and block.shape != spec.shape:
        raise ValueError(
            f"{spec} has shape {block.shape}, but the Dask array has "
            f"{spec.shape}; give its chunks= where the array is made"
        )
    return block


def together(blocks: Sequence[Any]) -> list[Any]:
    """The blocks, those of NumPy moved to where a block of CuPy is if there is one."""
    home = next((b for b in blocks if foreign(b)), None)
    return [b if home is None or foreign(b) else like(b, home) for b in blocks]


def in_blocks(function: Callable[..., Any], specs: tuple[Spec, ...], *blocks: Any) -> Any:
    """function(*blocks), each block checked; an IndexError names the block."""
    found = together([checked(b, s) for b, s in zip(blocks, specs, strict=False)])
    try:
        return function(*found, *blocks[len(specs) :])
    except IndexError as error:
        raise IndexError(f"{error}, in {specs[0]}") from None


def empty(meta: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A new array of the kind that `meta` is, for what has no elements."""
    return like(np.empty(shape, dtype), meta) if foreign(meta) else np.empty(shape, dtype)


def starts(sizes: Sequence[int]) -> list[int]:
    """Where each chunk of an axis begins."""
    return [0, *itertools.accumulate(sizes)][:-1]


# ---- graphs ----


class Graph:
    """The tasks of one call."""

    def __init__(self, op: str, inputs: Sequence[Any], *what: Any) -> None:
        self.inputs = [x for x in inputs if isinstance(x, da.Array)]
        names = [x.name if isinstance(x, da.Array) else x for x in inputs]
        self.name = f"gpuopt-{op}-{tokenize(_core.build_info()['version'], op, names, what)}"
        self.tasks: dict[Key, Task] = {}
        metas = [x._meta for x in self.inputs]
        self.home = next((m for m in metas if foreign(m)), metas[0])

    def add(self, key: Key, function: Any, *keys: Any) -> Key:
        self.tasks[key] = (function, *keys)
        return key

    def step(self, label: str, *at: Any) -> Key:
        """The key of a task whose value is not a block of the result."""
        return (f"{self.name}-{label}", *at)

    def total(self, states: list[Key], *at: int) -> Key:
        """The key of all states combined, eight neighbours at a time."""
        level = 0
        while len(states) > 1:
            level += 1
            states = [
                self.add(self.step(f"combine{level}", *at, i // FAN_IN), joined, group)
                for i in range(0, len(states), FAN_IN)
                for group in (states[i : i + FAN_IN],)
            ]
        return states[0]

    def array(self, chunks: Sequence[Sequence[int]], dtype: np.dtype[Any]) -> Any:
        """The result, of CuPy's blocks if an input has them."""
        graph = HighLevelGraph.from_collections(self.name, self.tasks, dependencies=self.inputs)
        chunks = tuple(tuple(int(n) for n in axis) for axis in chunks)
        meta = empty(self.home, (0,) * len(chunks), dtype)
        return da.Array(graph, self.name, chunks, meta=meta)


def joined(states: list[Any]) -> Any:
    """The states combined in their order."""
    return functools.reduce(combine, states)


def finished(meta: Any, state: Any, *more: Any) -> Any:
    """The result of a state, in the library of the blocks."""
    result = finish(state, *more)
    return like(np.asarray(result), meta) if foreign(meta) else result


# ---- windows of several blocks ----


def spans(sizes: Sequence[int], low: int, high: int) -> list[tuple[int, slice]]:
    """The parts of an axis that make up [low, high): each chunk's number, and a slice of it."""
    found = []
    for i, (begin, n) in enumerate(zip(starts(sizes), sizes, strict=True)):
        a, b = max(low, begin), min(high, begin + n)
        if a < b:
            found.append((i, slice(a - begin, b - begin)))
    return found


def part(spec: Spec, place: tuple[slice, ...], block: Any) -> Any:
    """A copy of a part of a block, so that the block itself is neither sent nor kept."""
    block = checked(block, spec)
    inside = block[place]
    return block if inside.shape == block.shape else inside.copy()


def put_together(counts: tuple[int, ...], parts: list[Any]) -> Any:
    """The parts, given in C order, as one array."""
    if len(parts) == 1:
        return parts[0]
    name = type(parts[0]).__module__.partition(".")[0] if foreign(parts[0]) else "numpy"
    library = importlib.import_module(name)
    for axis in reversed(range(len(counts))):
        n = counts[axis]
        if n > 1:
            parts = [
                library.concatenate(parts[i : i + n], axis) for i in range(0, len(parts), n)
            ]
    return parts[0]


def window(graph: Graph, name: str, x: Any, ranges: Sequence[tuple[int, int]], at: Any) -> Any:
    """Keys of the parts of x that make up a box, and how many there are along each axis."""
    axes = [spans(c, low, high) for c, (low, high) in zip(x.chunks, ranges, strict=True)]
    keys = []
    for k, places in enumerate(itertools.product(*axes)):
        block = tuple(i for i, _ in places)
        place = tuple(s for _, s in places)
        task = functools.partial(part, spec_of(name, x, block), place)
        keys.append(graph.add(graph.step("part", *at, k), task, (x.name, *block)))
    return keys, tuple(len(axis) for axis in axes)


def blocks_of(chunks: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(axis)) for axis in chunks))
