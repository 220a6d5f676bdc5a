"""Operators on windows and on rows of Dask arrays: functions of gpuopt.dask.

Order: causal_conv1d, poolings, upsample_nearest, mean_matvec, convolve.
"""

from __future__ import annotations

import functools
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
    lazy,
    plan,
    put_together,
    rechunk,
    settled,
    spec_of,
    starts,
    together,
    window,
)
from gpuopt._states import foreign, like

__all__ = [
    "causal_conv1d",
    "convolve",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mean_matvec",
    "upsample_nearest",
]

Ints = int | Sequence[int]


def _beside(a: Any, x: Any) -> Any:
    """An array that is in memory, where x is."""
    return like(a, x) if foreign(x) and not foreign(a) else a


def _in_memory(a: Any) -> Any:
    return a if a is None or isinstance(a, da.Array) or foreign(a) else np.asarray(a)


def _constant(a: Any) -> Any:
    return a


def _is_whole(op: str, name: str, x: Any, axes: Sequence[int], why: str) -> None:
    cut = [a for a in axes if x.numblocks[a] > 1]
    if cut:
        raise ValueError(
            f"{op} needs {name} in one chunk along axis {cut[0]}, {why}; "
            f"{rechunk(name, dict.fromkeys(cut, -1))}"
        )


# ---- causal_conv1d ----


def _filters(graph: Graph, name: str, a: Any, sizes: tuple[int, ...]) -> Any:
    """Keys of the filters or biases of each block of channels, and what is known of them."""
    if a is None:
        return [()] * len(sizes)
    if not isinstance(a, da.Array):
        return [
            (graph.add(graph.step(name, i), functools.partial(_constant, a[at : at + n])),)
            for i, (at, n) in enumerate(zip(starts(sizes), sizes, strict=True))
        ]
    if a.chunks[0] != sizes or (a.ndim > 1 and a.numblocks[1] > 1):
        wanted = {0: sizes, **({1: -1} if a.ndim > 1 else {})}
        raise ValueError(
            f"{name} must have the chunks of the channels of x; {rechunk(name, wanted)}"
        )
    return [((a.name, i, *[0] * (a.ndim - 1)),) for i in range(len(sizes))]


def _convolved(options: dict[str, Any], axis: int, taps: int, parts: Any, *filters: Any) -> Any:
    """One block, behind the steps before it, which are the other parts."""
    *before, x = parts
    filters = tuple(_beside(f, x) for f in filters)
    if not before:
        return _core.causal_conv1d(x, *filters, **options)
    counts = (1,) * axis + (len(before),) + (1,) * (2 - axis)
    state = put_together(counts, before)
    if state.shape[axis] == taps - 1:
        return _core.causal_conv1d(x, *filters, initial_state=state, **options)
    counts = (1,) * axis + (2,) + (1,) * (2 - axis)
    y = _core.causal_conv1d(put_together(counts, [state, x]), *filters, **options)
    kept = (slice(None),) * axis + (slice(state.shape[axis], None),)
    return y[kept].copy()


def causal_conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    eps: float = 0.0,
    activation: str | None = None,
    layout: str = "BCT",
    precision: str = "fp32",
    causality: str | None = None,
    *,
    initial_state: Any = None,
    segments: Any = None,
    return_state: bool = False,
    **options: Any,
) -> Any:
    """gpuopt.causal_conv1d: each block gets the K - 1 steps before it from its neighbours.

    w and bias are in memory, or Dask arrays with the chunks of the channels of x.  Chunks
    along time may have any length; those shorter than K - 1 read several neighbours, and
    filters as long as the row are best computed with x in one chunk along time.
    """
    x, w, bias = lazy("causal_conv1d", "x", x), _in_memory(w), _in_memory(bias)
    state = {"initial_state": initial_state, "segments": segments}
    for name in [n for n, value in state.items() if value is not None] or (
        ["return_state"] if return_state else []
    ):
        raise ValueError(
            f"{name} is not for Dask arrays: blocks of steps have their own states"
        )
    options = settled("causal_conv1d", options, x)
    how = {"eps": eps, "activation": activation, "layout": layout}
    how |= {"precision": precision, "causality": causality}
    ((_, dtype),) = plan("causal_conv1d", x, w, bias, **how)
    axis, channels = (1, 2) if layout == "BTC" else (2, 1)
    kept, _ = chunks.halo("causal_conv1d", kernel_size=w.shape[1])
    graph = Graph("causal_conv1d", [x, w, bias], how, options)
    filters = _filters(graph, "w", w, x.chunks[channels])
    biases = _filters(graph, "bias", bias, x.chunks[channels])
    task = functools.partial(_convolved, {**how, **options}, axis, w.shape[1])
    begins = [starts(sizes) for sizes in x.chunks]
    for at in blocks_of(x.chunks):
        box = [(b[i], b[i] + c[i]) for b, c, i in zip(begins, x.chunks, at, strict=True)]
        low, high = box[axis]
        size = tuple(b - a for a, b in box)
        if 0 in size:
            graph.add((graph.name, *at), functools.partial(empty, graph.home, size, dtype))
            continue
        parts: list[Any] = []
        if low and kept:
            box[axis] = max(low - kept, 0), low
            parts, _ = window(graph, "x", x, box, at)
        box[axis] = low, high
        own = functools.partial(checked, spec=spec_of("x", x, at))
        parts.append(graph.add(graph.step("own", *at), own, (x.name, *at)))
        more = (*filters[at[channels]], *biases[at[channels]])
        graph.add((graph.name, *at), task, parts, *more)
    return graph.array(x.chunks, dtype)


# ---- poolings ----


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * rank


def _pooled(
    op: str, options: dict[str, Any], kept: tuple[slice, ...], counts: Any, parts: Any
) -> Any:
    x = put_together(counts, parts)
    y = getattr(_core, op)(x, **options)
    inside = y[(..., *kept)]
    return inside if inside.shape == y.shape else inside.copy()


def _pool_axis(
    op: str, x: Any, axis: int, total: int, windows: dict[str, Any], spatial: int
) -> list[tuple[int, int, slice, int]]:
    """Of each block along an axis: the elements read, the results kept, and their number.

    A block begins at a multiple of the stride; what it reads begins at one, too, at least the
    padding before it, so that its first window is one of those computed.
    """
    n = x.shape[axis]
    if x.numblocks[axis] == 1:
        return [(0, n, slice(None), total)]
    size, stride, padding, dilation = (
        windows[k][spatial] for k in ("kernel_size", "stride", "padding", "dilation")
    )
    step = chunks.aligned(op, **windows, axis=spatial)
    begins = starts(x.chunks[axis])
    if any(b % step for b in begins):
        wanted = max(round(max(x.chunks[axis]) / step), 1) * step
        raise ValueError(
            f"chunks of x along axis {axis} must begin at multiples of the stride, {step}; "
            f"{rechunk('x', {axis: wanted})}"
        )
    before, _ = chunks.halo(op, **windows, axis=spatial)
    found = []
    for i, begin in enumerate(begins):
        first = min(begin // stride, total)
        last = min(begins[i + 1] // stride, total) if i + 1 < len(begins) else total
        low = max(begin - -(-before // stride) * stride, 0)
        high = min((last - 1) * stride - padding + dilation * (size - 1) + 1, n)
        skip = first - low // stride
        found.append((low, high, slice(skip, skip + last - first), last - first))
    return found


def _max_pool(rank: int) -> Callable[..., Any]:
    op = f"max_pool{rank}d"

    def pool(
        x: Any,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
        **options: Any,
    ) -> Any:
        x = lazy(op, "x", x)
        options = settled(op, options, x)
        if return_indices:
            raise ValueError(
                "return_indices is not for Dask arrays: blocks count from their own"
            )
        given = [kernel_size, kernel_size if stride is None else stride, padding, dilation]
        names = ("kernel_size", "stride", "padding", "dilation")
        ((shape, dtype),) = plan(op, x, *given, ceil_mode=ceil_mode)
        windows = {k: _each(v, rank) for k, v in zip(names, given, strict=True)}
        axes = range(x.ndim - rank, x.ndim)
        if ceil_mode:
            _is_whole(op, "x", x, axes, "with ceil_mode")
        graph = Graph(op, [x], windows, ceil_mode, options)
        how = {**windows, "ceil_mode": ceil_mode, **options}
        plans = [_pool_axis(op, x, a, shape[a], windows, k) for k, a in enumerate(axes)]
        begins = [starts(c) for c in x.chunks[: x.ndim - rank]]
        for at in blocks_of(x.chunks):
            lead = [(b[i], b[i] + c[i]) for b, c, i in zip(begins, x.chunks, at, strict=False)]
            inner = [p[i] for p, i in zip(plans, at[x.ndim - rank :], strict=True)]
            size = (*(b - a for a, b in lead), *(c for *_, c in inner))
            if 0 in size:
                graph.add((graph.name, *at), functools.partial(empty, graph.home, size, dtype))
                continue
            box = lead + [(low, high) for low, high, _, _ in inner]
            parts, pieces = window(graph, "x", x, box, at)
            kept = tuple(k for _, _, k, _ in inner)
            task = functools.partial(_pooled, op, how, kept, pieces)
            graph.add((graph.name, *at), task, parts)
        sizes = [*x.chunks[: x.ndim - rank], *([c for *_, c in p] for p in plans)]
        return graph.array(sizes, dtype)

    pool.__name__ = pool.__qualname__ = op
    pool.__doc__ = (
        f"gpuopt.{op}: blocks read what their windows need of their neighbours.\n\n"
        "    Chunks along the pooled axes begin at multiples of the stride.\n    "
    )
    return pool


max_pool1d, max_pool2d, max_pool3d = _max_pool(1), _max_pool(2), _max_pool(3)

# ---- upsample_nearest ----


def _enlarged(spec: Spec, options: dict[str, Any], block: Any) -> Any:
    return _core.upsample_nearest(checked(block, spec), **options)


def upsample_nearest(
    x: Any,
    size: Ints | None = None,
    scale: float | Sequence[float] | None = None,
    exact: bool = False,
    layout: str = "NCHW",
    **options: Any,
) -> Any:
    """gpuopt.upsample_nearest: along axes with several chunks a scale is a whole number."""
    x = lazy("upsample_nearest", "x", x)
    options = settled("upsample_nearest", options, x)
    how = {"size": size, "scale": scale, "exact": bool(exact), "layout": layout}
    how = {k: tuple(v) if isinstance(v, list) else v for k, v in how.items()}
    ((shape, dtype),) = plan("upsample_nearest", x, **how)
    axes = range(1, x.ndim - 1) if layout == "NHWC" else range(2, x.ndim)
    sizes: list[Any] = list(x.chunks)
    for k, axis in enumerate(axes):
        if x.numblocks[axis] == 1:
            sizes[axis] = (shape[axis],)
            continue
        more = {"scale": scale, "size": size, "exact": exact, "length": x.shape[axis]}
        try:
            chunks.halo("upsample_nearest", axis=k, **more)
        except ValueError as error:
            raise ValueError(f"{error}; or {rechunk('x', {axis: -1})}") from None
        factor = int(_factor(scale, k))
        sizes[axis] = tuple(n * factor for n in x.chunks[axis])
    graph = Graph("upsample_nearest", [x], how, options)
    for at in blocks_of(x.chunks):
        extent = tuple(c[i] for c, i in zip(sizes, at, strict=True))
        if 0 in extent:
            graph.add((graph.name, *at), functools.partial(empty, graph.home, extent, dtype))
            continue
        task = functools.partial(_enlarged, spec_of("x", x, at), {**how, **options})
        graph.add((graph.name, *at), task, (x.name, *at))
    return graph.array(sizes, dtype)


def _factor(scale: Any, k: int) -> float:
    return float(scale[k] if isinstance(scale, tuple | list) else scale)


# ---- mean_matvec ----


def _multiplied(spec: Spec, options: dict[str, Any], block: Any, matrix: Any) -> Any:
    block = checked(block, spec)
    return _core.mean_matvec(block, _beside(matrix, block), **options)


def mean_matvec(x: Any, matrix: Any, layout: str = "LN", **options: Any) -> Any:
    """gpuopt.mean_matvec, batch by batch: x has one chunk along its axes 1 and 2."""
    x, matrix = lazy("mean_matvec", "x", x), _in_memory(matrix)
    options = settled("mean_matvec", options, x)
    ((shape, dtype),) = plan("mean_matvec", x, matrix, layout=layout)
    _is_whole("mean_matvec", "x", x, (1, 2), "which it combines")
    graph = Graph("mean_matvec", [x, matrix], layout, options)
    if isinstance(matrix, da.Array):
        matrix = lazy("mean_matvec", "matrix", matrix)
        _is_whole("mean_matvec", "matrix", matrix, (0, 1), "which every batch needs")
        key: tuple[Any, ...] = (matrix.name, 0, 0)
    else:
        key = graph.add(graph.step("matrix"), functools.partial(_constant, matrix))
    for i in range(x.numblocks[0]):
        how = {"layout": layout, **options}
        task = functools.partial(_multiplied, spec_of("x", x, (i, 0, 0)), how)
        at = (0, i) if layout == "LN" else (i, 0)
        graph.add((graph.name, *at), task, (x.name, i, 0, 0), key)
    sizes = [(shape[0],), x.chunks[0]] if layout == "LN" else [x.chunks[0], (shape[1],)]
    return graph.array(sizes, dtype)


# ---- convolve ----


def _rows_convolved(dtypes: tuple[Any, ...], options: dict[str, Any], a: Any, v: Any) -> Any:
    pair = [
        checked(block, Spec(name, None, None, dtype))
        for block, name, dtype in zip((a, v), "av", dtypes, strict=True)
    ]
    return _core.convolve(*together(pair), **options)


def convolve(a: Any, v: Any, mode: str = "full", **options: Any) -> Any:
    """gpuopt.convolve: rows are one chunk, the leading axes broadcast and are in blocks."""
    if not isinstance(a, da.Array) and not isinstance(v, da.Array):
        lazy("convolve", "a", a)  # raises
    arrays = []
    for name, x in (("a", a), ("v", v)):
        if not isinstance(x, da.Array):
            x = x if foreign(x) else np.atleast_1d(np.asarray(x))
            x = da.from_array(x, chunks=-1, asarray=False)
        x = lazy("convolve", name, x)
        arrays.append(x if x.ndim else x.reshape(1))
    options = settled("convolve", options, *arrays)
    ((shape, dtype),) = plan("convolve", *arrays, mode=mode)
    for name, x in zip("av", arrays, strict=True):
        _is_whole("convolve", name, x, (x.ndim - 1,), "its rows")
    lead = len(shape) - 1
    graph = Graph("convolve", arrays, mode, options)  # for its name
    pairs: list[Any] = []
    for k, x in enumerate(arrays):
        pairs += [x, (*range(lead - x.ndim + 1, lead), lead + 1 + k)]
    dtypes = tuple(x.dtype.newbyteorder("=") for x in arrays)
    return da.blockwise(
        functools.partial(_rows_convolved, dtypes, {"mode": mode, **options}),
        tuple(range(lead + 1)),
        *pairs,
        new_axes={lead: shape[-1]},
        concatenate=True,
        name=graph.name,
        meta=empty(graph.home, (0,) * len(shape), dtype),
    )
