"""gpuopt's operators on Dask arrays: lazy in, lazy out.

>>> import dask.array, gpuopt.dask
>>> x = dask.array.arange(10, chunks=4)
>>> gpuopt.dask.scan(gpuopt.dask.multiply(x, x))[-1].compute()
np.int64(285)

Each function has the name, the arguments and the errors of gpuopt's own, takes Dask arrays of
NumPy or CuPy blocks, and returns Dask arrays of the same kind of blocks, whose dtype, shape
and chunks are known without computing anything.

Order: elementwise, reductions, scans, index operators; operators on windows and on rows are
in gpuopt/_lazy_windows.py.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np

from gpuopt import _core, chunks
from gpuopt._lazy import (
    Graph,
    Spec,
    blocks_of,
    checked,
    empty,
    finished,
    in_blocks,
    joined,
    lazy,
    plan,
    rechunk,
    settled,
    spec_of,
    starts,
    together,
)
from gpuopt._lazy_windows import (
    causal_conv1d,
    convolve,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    mean_matvec,
    upsample_nearest,
)
from gpuopt._states import foreign

ELEMENTWISE = tuple(op for op in _core.ops() if _core.describe(op)["room"] == "elementwise")

__all__ = [
    *ELEMENTWISE,
    "causal_conv1d",
    "convolve",
    "dot",
    "index_add",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mean_matvec",
    "partition_reduce",
    "reduce",
    "scan",
    "scatter_add",
    "upsample_nearest",
]

# ---- elementwise ----


def _is_array(x: Any) -> bool:
    return foreign(x) or isinstance(x, da.Array | np.ndarray | list | tuple)


def _apply(
    op: str, given: dict[int, Any], dtypes: tuple[Any, ...], options: Any, *blocks: Any
) -> Any:
    """The operator on blocks, with the arguments that are no arrays at their places."""
    names = [a["name"] for a in _core.describe(op)["args"]]
    free = [i for i in range(len(names)) if i not in given]
    found = []
    for i, block, dtype in zip(free, blocks, dtypes, strict=True):
        found.append(checked(block, Spec(names[i], None, None, dtype)))
    args = dict(given) | dict(zip(free, together(found), strict=True))
    return getattr(_core, op)(*(args[i] for i in range(len(args))), **options)


def _elementwise(op: str) -> Callable[..., Any]:
    """gpuopt.<op> on Dask arrays, arrays in memory and numbers, which broadcast."""
    told = _core.describe(op)["args"]
    names = [a["name"] for a in told]
    needed = [i for i, a in enumerate(told) if (a["preset"] is None and op != "clip") or i == 0]

    def call(*args: Any, **options: Any) -> Any:
        if len(args) > len(names):
            settled(op, {"out": args[len(names)]})  # raises
        given = dict(enumerate(args))
        for i, name in enumerate(names):
            if name in options:
                if i in given:
                    raise TypeError(f"{op}() got multiple values for argument '{name}'")
                given[i] = options.pop(name)
        for i in needed:
            if i not in given:
                raise TypeError(f"{op}() missing required argument '{names[i]}'")
        given = {i: given.get(i) for i in range(len(names))}
        given = {
            i: np.asarray(a) if isinstance(a, list | tuple) else a for i, a in given.items()
        }
        arrays = {i: a for i, a in given.items() if _is_array(a)}
        if not any(isinstance(a, da.Array) for a in arrays.values()):
            lazy(op, names[0], given[0])  # raises
        for i, a in arrays.items():
            if isinstance(a, da.Array):
                lazy(op, names[i], a)
            else:
                arrays[i] = da.from_array(a, chunks=-1, asarray=False)
        fixed = {i: np.dtype(a) if names[i] == "dtype" else a for i, a in given.items()}
        fixed = {i: a for i, a in fixed.items() if i not in arrays}
        options = settled(op, options, *arrays.values())
        ((shape, dtype),) = plan(op, *(arrays.get(i, fixed.get(i)) for i in given))
        dtypes = tuple(a.dtype.newbyteorder("=") for a in arrays.values())
        pairs = [p for a in arrays.values() for p in (a, tuple(range(a.ndim))[::-1])]
        graph = Graph(op, list(arrays.values()), fixed, options)  # for its name
        return da.blockwise(
            functools.partial(_apply, op, fixed, dtypes, options),
            tuple(range(len(shape)))[::-1],
            *pairs,
            name=graph.name,
            meta=empty(graph.home, (0,) * len(shape), dtype),
        )

    kinds = inspect.Parameter
    shown = [
        kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=kinds.empty if i in needed else None)
        for i, n in enumerate(names)
    ]
    shown.append(kinds("options", kinds.VAR_KEYWORD))
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = op
    call.__doc__ = (
        f"gpuopt.{op} on Dask arrays, arrays in memory and numbers; chunks are made alike.\n\n"
        f"    Arguments: {', '.join(names)}, and backend= or variant=.\n    "
    )
    return call


for _op in ELEMENTWISE:
    globals()[_op] = _elementwise(_op)

# ---- reductions ----


def reduce(
    x: Any,
    op: str = "sum",
    axis: int | Sequence[int] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    *,
    initial: float | None = None,
    **options: Any,
) -> Any:
    """gpuopt.reduce: the states of all blocks, combined in a tree in the order of blocks.

    Float sums are carried in two float64 numbers between blocks: see gpuopt.chunks for the
    accuracy.  A result is one chunk along the combined axes.
    """
    x = lazy("reduce", "x", x)
    options = settled("reduce", options, x)
    axis = axis if axis is None or isinstance(axis, int | np.integer) else tuple(axis)
    how: dict[str, Any] = {"op": op, "axis": axis, "keepdims": bool(keepdims)}
    how |= {} if dtype is None else {"dtype": np.dtype(dtype)}
    how |= {} if initial is None else {"initial": initial}
    ((_, result),) = plan("reduce", x, **how)
    along = (
        tuple(range(x.ndim))
        if axis is None
        else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    )
    graph = Graph("reduce", [x], how, options)
    if not along:
        task = functools.partial(_core.reduce, **how, **options)
        for at in blocks_of(x.chunks):
            one = functools.partial(in_blocks, task, (spec_of("x", x, at),))
            graph.add((graph.name, *at), one, (x.name, *at))
        return graph.array(x.chunks, result)
    placed = op in ("argmin", "argmax")
    more = {**how, **options} | ({"shape": x.shape} if placed and axis is None else {})
    begins = [starts(sizes) for sizes in x.chunks]
    kept = [a for a in range(x.ndim) if a not in along]
    for lane in itertools.product(*(range(x.numblocks[a]) for a in kept)):
        states = []
        for at in blocks_of([x.chunks[a] for a in sorted(along)]):
            place = dict(zip(kept, lane, strict=True)) | dict(
                zip(sorted(along), at, strict=True)
            )
            block = tuple(place[a] for a in range(x.ndim))
            offset = tuple(b[i] for b, i in zip(begins, block, strict=True)) if placed else 0
            state = functools.partial(chunks.partial, "reduce", offset=offset, **more)
            task = functools.partial(in_blocks, state, (spec_of("x", x, block),))
            states.append(graph.add(graph.step("partial", *block), task, (x.name, *block)))
        place = dict(zip(kept, lane, strict=True))
        out = [place.get(a, 0) for a in range(x.ndim)] if keepdims else lane
        total = graph.total(states, *lane)
        graph.add((graph.name, *out), functools.partial(finished, graph.home), total)
    sizes = [
        (1,) if a in along else x.chunks[a] for a in range(x.ndim) if keepdims or a in kept
    ]
    return graph.array(sizes, result)


def dot(x: Any, y: Any, **options: Any) -> Any:
    """gpuopt.dot of two Dask arrays with the same chunks."""
    x, y = _paired("dot", ("x", x), ("y", y))
    options = settled("dot", options, x, y)
    ((_, dtype),) = plan("dot", x, y)
    graph = Graph("dot", [x, y], options)
    state = functools.partial(chunks.partial, "dot", **options)
    return _summed(graph, state, ("x", x), ("y", y), (), dtype)


def partition_reduce(
    x: Any, bits: int | Sequence[int], op: str = "sum", square: bool = False, **options: Any
) -> Any:
    """gpuopt.partition_reduce: chunks may have any length.  The result is one chunk."""
    x = lazy("partition_reduce", "x", x)
    options = settled("partition_reduce", options, x)
    how: dict[str, Any] = {"bits": bits, "op": op, "square": bool(square)}
    how["bits"] = tuple(bits) if isinstance(bits, tuple | list) else bits
    (((size,), dtype),) = plan("partition_reduce", x, **how)
    graph = Graph("partition_reduce", [x], how, options)
    state = functools.partial(chunks.partial, "partition_reduce", **how, **options)
    return _summed(graph, state, ("x", x), None, ((size,),), dtype, offset=True)


def _paired(op: str, *named: tuple[str, Any]) -> Any:
    """Two arrays of the same chunks; one of them may be in memory."""
    (x_name, x), (y_name, y) = named
    if not isinstance(x, da.Array) and not isinstance(y, da.Array):
        lazy(op, x_name, x)  # raises
    if not isinstance(x, da.Array):
        y = lazy(op, y_name, y)
        x = _cut_as(x, y)
    elif not isinstance(y, da.Array):
        x = lazy(op, x_name, x)
        y = _cut_as(y, x)
    x, y = lazy(op, x_name, x), lazy(op, y_name, y)
    plan(op, x, y, *((1,) if op == "scatter_add" else ()))  # raises if the shapes differ
    if x.chunks != y.chunks:
        raise ValueError(
            f"{x_name} has chunks {x.chunks}, {y_name} has {y.chunks}; "
            f"call {y_name}.rechunk({x_name}.chunks)"
        )
    return x, y


def _cut_as(a: Any, like_x: Any) -> Any:
    a = a if foreign(a) else np.asarray(a)
    return da.from_array(
        a, chunks=like_x.chunks if a.shape == like_x.shape else -1, asarray=False
    )


def _summed(
    graph: Graph,
    state: Any,
    first: tuple[str, Any],
    second: tuple[str, Any] | None,
    sizes: Any,
    dtype: np.dtype[Any],
    offset: bool = False,
) -> Any:
    """The state of each block or pair of blocks, in C order, and the result of all."""
    inputs = [first] if second is None else [first, second]
    x, states = first[1], []
    for at in blocks_of(x.chunks):
        where = {"offset": starts(x.chunks[0])[at[0]]} if offset else {}
        specs = tuple(spec_of(name, a, at) for name, a in inputs)
        task = functools.partial(in_blocks, functools.partial(state, **where), specs)
        keys = [(a.name, *at) for _, a in inputs]
        states.append(graph.add(graph.step("partial", *at), task, *keys))
    task = functools.partial(finished, graph.home)
    graph.add((graph.name, *[0] * len(sizes)), task, graph.total(states))
    return graph.array(sizes, dtype)


# ---- scans ----


def _scanned(options: dict[str, Any], x: Any, before: Any = None) -> Any:
    return chunks.scan(x, before, **options)


def scan(
    x: Any,
    op: str = "sum",
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    *,
    initial: float | None = None,
    **options: Any,
) -> Any:
    """gpuopt.scan: the totals of blocks are combined one after the other, and each block
    is scanned behind the total of those before it.

    A block is used twice, for its total and for its scan: Dask keeps or makes it again.  The
    result has the chunks of x.
    """
    x = lazy("scan", "x", x)
    options = settled("scan", options, x)
    how: dict[str, Any] = {"op": op, "axis": axis}
    how |= {"exclusive": bool(exclusive), "reverse": bool(reverse)}
    how |= {} if initial is None else {"initial": initial}
    ((_, dtype),) = plan("scan", x, **how)
    along = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    graph = Graph("scan", [x], how, options)
    more = {**how, **options}
    state = functools.partial(chunks.partial, "scan", **more)
    along_blocks = range(x.numblocks[along])
    order = tuple(reversed(along_blocks)) if reverse else tuple(along_blocks)
    lanes = [range(n) if a != along else (0,) for a, n in enumerate(x.numblocks)]
    for lane in itertools.product(*lanes):
        before: list[Any] = []
        for i in order:
            at = (*lane[:along], i, *lane[along + 1 :])
            block, spec = (x.name, *at), (spec_of("x", x, at),)
            task = functools.partial(in_blocks, functools.partial(_scanned, more), spec)
            graph.add((graph.name, *at), task, block, *before)
            if i == order[-1]:
                break
            total = functools.partial(in_blocks, state, spec)
            key = graph.add(graph.step("partial", *at), total, block)
            if before:
                key = graph.add(graph.step("before", *at), joined, [before[0], key])
            before = [key]
    return graph.array(x.chunks, dtype)


# ---- index operators ----


def scatter_add(
    values: Any,
    index: Any,
    size: int,
    mode: str = "raise",
    deterministic: bool = True,
    **options: Any,
) -> Any:
    """gpuopt.scatter_add of values and index with the same chunks.

    One of them may be in memory.  Each block makes an array of `size` elements, and so does
    the result, of one chunk.  Unlike gpuopt.scatter_add it is deterministic unless told
    otherwise.
    """
    values, index = _paired("scatter_add", ("values", values), ("index", index))
    options = settled("scatter_add", options, values, index)
    how: dict[str, Any] = {"size": size, "mode": mode, "deterministic": bool(deterministic)}
    ((_, dtype),) = plan("scatter_add", values, index, **how)
    graph = Graph("scatter_add", [values, index], how, options)
    state = functools.partial(chunks.partial, "scatter_add", **how, **options)
    pair = ("values", values), ("index", index)
    return _summed(graph, state, *pair, ((int(size),),), dtype, offset=values.ndim == 1)


def index_add(
    x: Any,
    index: Any,
    source: Any,
    axis: int = 0,
    alpha: float = 1,
    mode: str = "raise",
    deterministic: bool = True,
    **options: Any,
) -> Any:
    """gpuopt.index_add of a source in blocks.

    x is one chunk along the axis, and has the chunks of the source along the others; index
    has those of the source along the axis.  x and index may be in memory.  Unlike
    gpuopt.index_add it is deterministic unless told otherwise.
    """
    source = lazy("index_add", "source", source)
    how = {"axis": axis, "alpha": alpha, "mode": mode, "deterministic": bool(deterministic)}
    x = x if isinstance(x, da.Array) or foreign(x) else np.asarray(x)
    index = index if isinstance(index, da.Array) or foreign(index) else np.asarray(index)
    ((_, dtype),) = plan("index_add", x, index, source, **how)
    along = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    others = {a: c for a, c in enumerate(source.chunks) if a != along}
    if not isinstance(x, da.Array):
        x = da.from_array(x, chunks={**others, along: -1}, asarray=False)
    if not isinstance(index, da.Array):
        index = da.from_array(index, chunks=(source.chunks[along],), asarray=False)
    x, index = lazy("index_add", "x", x), lazy("index_add", "index", index)
    if index.chunks[0] != source.chunks[along]:
        sizes = {0: source.chunks[along]}
        raise ValueError(
            f"index has chunks {index.chunks[0]}, source has {source.chunks[along]} along axis "
            f"{along}; {rechunk('index', sizes)}"
        )
    if x.numblocks[along] > 1 or any(x.chunks[a] != c for a, c in others.items()):
        raise ValueError(
            f"x must be one chunk along axis {along} and have the chunks of source along the "
            f"others; {rechunk('x', {along: -1, **others})}"
        )
    options = settled("index_add", options, x, index, source)
    graph = Graph("index_add", [x, index, source], how, options)
    more = {**how, "axis": along, "size": x.shape[along], "dtype": dtype, **options}
    begins = starts(index.chunks[0])
    for lane in blocks_of(x.chunks):
        states = []
        for i, offset in enumerate(begins):
            at = (*lane[:along], i, *lane[along + 1 :])
            state = functools.partial(chunks.partial, "index_add", offset=offset, **more)
            specs = (spec_of("index", index, (i,)), spec_of("source", source, at))
            task = functools.partial(in_blocks, state, specs)
            keys = (index.name, i), (source.name, *at)
            states.append(graph.add(graph.step("partial", *at), task, *keys))
        total = graph.total(states, *lane)
        task = functools.partial(_added, spec_of("x", x, lane), graph.home)
        graph.add((graph.name, *lane), task, total, (x.name, *lane))
    return graph.array(x.chunks, dtype)


def _added(spec: Spec, meta: Any, state: Any, x: Any) -> Any:
    return finished(meta, state, checked(x, spec))


# ---- what this module does not do ----


def __getattr__(name: str) -> Any:
    if name in _core.ops():
        raise AttributeError(f"gpuopt.dask has no {name}: gpuopt.{name} takes arrays in memory")
    raise AttributeError(f"module 'gpuopt.dask' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
