"""The reference: one plain NumPy function per operator, which defines its result.

The functions are slow and exact: floats are combined in a wider type and rounded once, so
the error of an optimised variant is its distance from them.  `tests/` uses them as the
oracle; you can use them to check a kernel of your own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "abs",
    "add",
    "cast",
    "causal_conv1d",
    "causal_conv1d_backward",
    "causal_conv1d_update",
    "clip",
    "convolve",
    "divide",
    "dot",
    "exp",
    "fma",
    "gelu",
    "index_add",
    "log",
    "max_pool1d",
    "max_pool1d_backward",
    "max_pool2d",
    "max_pool2d_backward",
    "max_pool3d",
    "max_pool3d_backward",
    "maximum",
    "mean_matvec",
    "minimum",
    "multiply",
    "negative",
    "partition_reduce",
    "reduce",
    "relu",
    "scan",
    "scatter_add",
    "sigmoid",
    "silu",
    "sqrt",
    "subtract",
    "tanh",
    "upsample_nearest",
    "upsample_nearest_backward",
    "where",
]


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype the reference combines `dtype` in; `dtype` itself for whole numbers."""
    name = dtype.name
    if name in ("bfloat16", "float16", "float32"):
        return np.dtype(np.float64)
    if name == "complex64":
        return np.dtype(np.complex128)
    if name == "float64":
        return np.dtype(np.longdouble)
    if name == "complex128":
        return np.dtype(np.clongdouble)
    return dtype


def initial_value(initial: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An `initial=` in the dtype of the result: a real number, an int for integers."""
    number = np.asarray(initial)
    if dtype.kind in "biu" and number.dtype.kind not in "biu":
        raise TypeError(f"Cannot cast initial from {number.dtype!r} to {dtype!r}")
    with np.errstate(all="ignore"):
        return np.array(initial, dtype)


def reduce(
    x: Any,
    op: str = "sum",
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    initial: Any = None,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Combine the elements of `x` along `axis`; the meaning of `gpuopt.reduce`.

    'sum', 'prod' and 'mean' convert every element to `dtype` first; the default is the
    dtype of `out`, else NumPy's.  `initial`, in the dtype of the result, is one element
    more of each result.  Errors are NumPy's own; a scalar has no axis 0.
    """
    x = np.asarray(x)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    result: Any
    if x.ndim == 0 and axis is not None and axis != ():
        # NumPy accepts axis 0 and -1 of a scalar for compatibility; there is no such axis.
        raise np.exceptions.AxisError(np.ravel(axis)[0], 0)
    if initial is not None and op not in ("sum", "prod", "min", "max"):
        raise TypeError(f"{op} takes no initial value")
    if op in ("argmin", "argmax", "min", "max", "any", "all"):
        # Not with ml_dtypes' own loops: float32 holds every bfloat16.
        ordered = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
        options = {}
        if initial is not None:
            options["initial"] = initial_value(initial, x.dtype).astype(ordered.dtype)
        result = getattr(np, op)(ordered, axis=axis, keepdims=keepdims, **options)
        result = np.asarray(result)
        if op in ("min", "max"):
            result = result.astype(x.dtype)
    elif op in ("sum", "prod", "mean"):
        if dtype is None and out is not None:
            dtype = out.dtype
        if dtype is None:
            dtype = x.dtype
            if x.dtype.kind in "biu":
                whole = np.uint64 if x.dtype.kind == "u" else np.int64
                dtype = np.float64 if op == "mean" else whole
        dtype = np.dtype(dtype).newbyteorder("=")
        if op == "mean" and dtype.kind in "biu":
            raise TypeError(f"mean takes a floating dtype, not '{dtype}'")
        acc = wide(dtype)
        with np.errstate(all="ignore"):
            elements = x.astype(dtype).astype(acc)
            combine: Any = np.multiply if op == "prod" else np.add
            result = combine.reduce(elements, axis=axis, keepdims=keepdims, dtype=acc)
            if initial is not None:
                result = combine(result, initial_value(initial, dtype).astype(acc))
            if op == "mean":
                total = np.asarray(result)
                parts = total.reshape(-1).view(acc.type(0).real.dtype)
                parts = parts / (x.size // total.size if total.size else 1)
                result = parts.view(acc).reshape(total.shape)
            result = np.asarray(result).astype(dtype)
    else:
        raise ValueError(f"op must be a reduction, not {op!r}")
    result = np.asarray(result)
    if out is not None:
        if out.shape != result.shape or out.dtype != result.dtype:
            raise ValueError(
                f"out must have shape {result.shape} and dtype {result.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        out[...] = result
        return out
    return result[()]


def dot(x: Any, y: Any, out: np.ndarray[Any, Any] | None = None) -> Any:
    """Add the products of the elements of `x` and `y`; the meaning of `gpuopt.dot`.

    The dtypes are promoted as by np.result_type; integers wrap, bool is logical, complex
    numbers are not conjugated.
    """
    vectors = []
    for name, value in (("x", x), ("y", y)):
        vector = np.asarray(value)
        if vector.ndim != 1:
            raise ValueError(
                f"dot() takes arrays of dimension 1, {name} has dimension {vector.ndim}"
            )
        vectors.append(vector)
    a, b = vectors
    if a.size != b.size:
        raise ValueError(
            f"shapes ({a.size},) and ({b.size},) not aligned: "
            f"{a.size} (dim 0) != {b.size} (dim 0)"
        )
    dtype = np.result_type(a.dtype, b.dtype).newbyteorder("=")
    acc = wide(dtype)
    a, b = a.astype(dtype).astype(acc), b.astype(dtype).astype(acc)
    with np.errstate(all="ignore"):
        if dtype.kind == "b":
            result = np.asarray(np.any(a & b))
        else:
            result = np.asarray(np.add.reduce(a * b, dtype=acc)).astype(dtype)
    if out is not None:
        if out.shape != () or out.dtype != dtype:
            raise ValueError(
                f"out must have shape () and dtype {dtype}, not {out.shape} and {out.dtype}"
            )
        out[...] = result
        return out
    return result[()]


def partition_reduce(
    x: Any,
    bits: int | tuple[int, ...],
    op: str = "sum",
    square: bool = False,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Sum the elements whose indices agree in `bits`; `gpuopt.partition_reduce`.

    Element i is added to element ``sum(((i >> bits[b]) & 1) << b)`` of the result.
    """
    x = np.asarray(x)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    if op != "sum":
        raise ValueError(f"op must be 'sum', not {op!r}")
    if x.ndim != 1:
        raise ValueError(f"partition_reduce() takes an array of 1 dimension, x has {x.ndim}")
    n = x.size.bit_length() - 1
    if x.size != 1 << max(n, 0):
        raise ValueError(f"x has {x.size} elements, which is not a power of two")
    bits = tuple(bits) if np.ndim(bits) else (int(bits),)  # type: ignore[arg-type]
    for place, bit in enumerate(bits):
        if not 0 <= bit < n:
            raise ValueError(f"bit {bit} is out of range for 2^{n} elements")
        if bit in bits[:place]:
            raise ValueError(f"bit {bit} is repeated in 'bits'")
    dtype = np.dtype(np.int64) if x.dtype.kind == "i" else x.dtype
    with np.errstate(all="ignore"):
        elements = x.astype(wide(dtype))
        if square and x.dtype.kind == "c":
            elements = elements.real**2 + elements.imag**2
            dtype = dtype.type(0).real.dtype
        elif square:
            elements = elements * elements
        axes = tuple(n - 1 - bit for bit in range(n) if bit not in bits)
        total = np.add.reduce(elements.reshape((2,) * n), axis=axes)
        kept = sorted(bits, reverse=True)  # the axes that are left, outermost first
        total = np.asarray(total).transpose([kept.index(bit) for bit in reversed(bits)])
        result = total.reshape(1 << len(bits)).astype(dtype)
    if out is not None:
        if out.shape != result.shape or out.dtype != result.dtype:
            raise ValueError(
                f"out must have shape {result.shape} and dtype {result.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        out[...] = result
        return out
    return result


def mean_matvec(
    x: Any,
    matrix: Any,
    layout: str = "LN",
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Multiply `matrix` with the means of the rows of `x`; as `gpuopt.mean_matvec`.

    `matrix @ x.mean(2).T`, or its transpose for layout 'NL', in NumPy's result type.
    """
    x, matrix = (np.asarray(a) for a in (x, matrix))
    if layout not in ("LN", "NL"):
        raise ValueError(f"layout must be one of 'LN', 'NL', not {layout!r}")
    if x.ndim != 3 or matrix.ndim != 2 or matrix.shape[1] != x.shape[1]:
        raise ValueError(f"x and matrix do not fit: {x.shape} and {matrix.shape}")
    dtype = x.dtype if x.dtype.kind not in "biu" else np.dtype(np.float64)
    dtype = np.result_type(dtype, matrix.dtype).newbyteorder("=")
    acc = wide(dtype)
    with np.errstate(all="ignore"):
        total = np.add.reduce(x.astype(dtype).astype(acc), axis=2)
        means = total / acc.type(x.shape[2])
        result = np.asarray(matrix.astype(dtype).astype(acc) @ means.T).astype(dtype)
    result = np.ascontiguousarray(result if layout == "LN" else result.T)
    if out is not None:
        out[...] = result
        return out
    return result


def _causal_sum(x: Any, w: Any) -> Any:
    """Add w[c, K-1-s] x[b, c, t-s] over the lags s, for arrays of shape (B, C, T)."""
    total = np.zeros_like(x)
    for s in range(min(w.shape[1], x.shape[2])):
        total[:, :, s:] += w[:, w.shape[1] - 1 - s, None] * x[:, :, : x.shape[2] - s]
    return total


def _causal_arrays(
    x: Any, w: Any, bias: Any, eps: float, activation: str | None, layout: str, precision: str
) -> tuple[Any, Any, Any]:
    """x as (B, C, T), w, and eps + bias as (C, 1), in the wide type."""
    x, w = np.asarray(x), np.asarray(w)
    if activation not in (None, "silu"):
        raise ValueError(f"activation must be None or 'silu', not {activation!r}")
    if layout not in ("BCT", "BTC"):
        raise ValueError(f"layout must be 'BCT' or 'BTC', not {layout!r}")
    if precision not in ("fp32", "fast", "half"):
        raise ValueError(f"precision must be 'fp32', 'fast' or 'half', not {precision!r}")
    if x.dtype != w.dtype or (bias is not None and np.asarray(bias).dtype != x.dtype):
        raise TypeError("x, w and bias must be of one dtype")
    if layout == "BTC":
        x = x.swapaxes(1, 2)
    if w.shape[0] != x.shape[1]:
        raise ValueError(f"w has {w.shape[0]} channels, x has {x.shape[1]}")
    acc = wide(x.dtype)
    add = np.full((x.shape[1], 1), eps, acc)
    if bias is not None:
        add = add + np.asarray(bias).astype(acc)[:, None]
    return x.astype(acc), w.astype(acc), add


def _segment_ids(segments: Any, batches: int, steps: int) -> Any:
    """The number of the segment of each step, (B, T), for either form of `segments`."""
    segments = np.asarray(segments)
    if segments.ndim == 1:
        return np.searchsorted(segments, np.arange(steps), side="right")[None]
    new = np.ones((batches, steps), bool)
    new[:, 1:] = segments[:, 1:] != segments[:, :-1]
    return new.cumsum(1)


def _cut(x: Any, segments: Any, s: int) -> Any:
    """Whether the steps t - s and t, t >= s, are of one segment, as 0 or 1."""
    ids = _segment_ids(segments, x.shape[0], x.shape[2])
    return (ids[:, s:] == ids[:, : x.shape[2] - s])[:, None]


def _segmented_sum(x: Any, w: Any, segments: Any) -> Any:
    """As _causal_sum, without the products that cross a border."""
    total = np.zeros_like(x)
    for s in range(min(w.shape[1], x.shape[2])):
        products = w[:, w.shape[1] - 1 - s, None] * x[:, :, : x.shape[2] - s]
        total[:, :, s:] += np.where(_cut(x, segments, s), products, 0)
    return total


def causal_conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    eps: float = 0.0,
    activation: str | None = None,
    layout: str = "BCT",
    precision: str = "fp32",
    out: np.ndarray[Any, Any] | None = None,
    *,
    initial_state: Any = None,
    segments: Any = None,
    return_state: bool = False,
) -> Any:
    """Convolve each channel with its filter, back in time; as `gpuopt.causal_conv1d`.

    `eps + bias[c] + sum(w[c, K-1-s] * x[b, c, t-s] for s in range(min(t + 1, K)))`; with
    `initial_state` its K - 1 steps come before x[b, c, 0], with `segments` no product is
    of two segments.
    """
    dtype = np.asarray(x).dtype.newbyteorder("=")
    with np.errstate(all="ignore"):
        x, w, add = _causal_arrays(x, w, bias, eps, activation, layout, precision)
        steps, kept = x.shape[2], w.shape[1] - 1
        before = np.zeros((*x.shape[:2], kept), x.dtype)
        if initial_state is not None:
            before = np.asarray(initial_state).astype(x.dtype)
            before = before.swapaxes(1, 2) if layout == "BTC" else before
        row = np.concatenate([before, x], 2)
        if segments is not None:
            result = _segmented_sum(x, w, segments) + add
        elif initial_state is not None:
            result = _causal_sum(row, w)[:, :, kept:] + add
        else:
            result = _causal_sum(x, w) + add
        if activation:
            result = result / (1 + np.exp(-result))
        results = [result, row[:, :, steps:]]
        if layout == "BTC":
            results = [r.swapaxes(1, 2) for r in results]
        y, state = (np.ascontiguousarray(r.astype(dtype)) for r in results)
        return (y, state) if return_state else _into(y, out)


def causal_conv1d_update(
    state: Any,
    x: Any,
    w: Any,
    bias: Any = None,
    out: tuple[Any, Any] | None = None,
    *,
    state_index: Any = None,
    eps: float = 0.0,
    activation: str | None = None,
) -> tuple[Any, Any]:
    """y and the new state; as `gpuopt.causal_conv1d_update`.

    The steps of row b of x follow those of row `state_index[b]` of the state.
    """
    state, x = np.asarray(state), np.asarray(x)
    index = np.arange(len(x)) if state_index is None else np.asarray(state_index)
    steps = x if x.ndim == 3 else x[:, :, None]
    row = np.concatenate([state[index], steps], 2)
    y = causal_conv1d(row, w, bias, eps=eps, activation=activation)
    y = y[:, :, state.shape[2] :].reshape(x.shape)
    new_state = np.array(state)
    new_state[index] = row[:, :, steps.shape[2] :]
    pair = out or (None, None)
    return _into(y, pair[0]), _into(new_state, pair[1])


def causal_conv1d_backward(
    dy: Any,
    x: Any,
    w: Any,
    bias: Any = None,
    eps: float = 0.0,
    activation: str | None = None,
    layout: str = "BCT",
    precision: str = "fp32",
    *,
    segments: Any = None,
) -> tuple[Any, ...]:
    """Gradients of x, w and the bias, if there is one; `gpuopt.causal_conv1d_backward`."""
    dtype = np.asarray(x).dtype.newbyteorder("=")
    steps = slice(None, None, -1)
    with np.errstate(all="ignore"):
        x, w, add = _causal_arrays(x, w, bias, eps, activation, layout, precision)
        g = np.asarray(dy).astype(wide(dtype))
        g = g.swapaxes(1, 2) if layout == "BTC" else g
        ids = np.zeros((x.shape[0], x.shape[2]), np.int64) if segments is None else segments
        if activation:
            v = _segmented_sum(x, w, ids) + add
            share = 1 / (1 + np.exp(-v))
            g = g * (share * (1 + v * (1 - share)))
        back = _segment_ids(ids, x.shape[0], x.shape[2])[:, steps]
        dx = _segmented_sum(g[:, :, steps], w, back)[:, :, steps]
        dw = np.zeros_like(w)
        for s in range(min(w.shape[1], x.shape[2])):
            products = g[:, :, s:] * x[:, :, : x.shape[2] - s]
            dw[:, w.shape[1] - 1 - s] = np.where(_cut(x, ids, s), products, 0).sum((0, 2))
        dx = dx.swapaxes(1, 2) if layout == "BTC" else dx
        results = (dx, dw) if bias is None else (dx, dw, g.sum((0, 2)))
        return tuple(np.ascontiguousarray(r.astype(dtype)) for r in results)


def scatter_add(
    values: Any,
    index: Any,
    size: int,
    mode: str = "raise",
    deterministic: bool = False,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """out[index[i]] += values[i] into zeros; the meaning of `gpuopt.scatter_add`.

    Integers are added in 64 bits, as in np.sum; `deterministic` changes nothing here, since
    the elements are added in order.
    """
    values, index = np.asarray(values), np.asarray(index)
    if values.shape != index.shape:
        raise ValueError(f"values has shape {values.shape}, index has {index.shape}")
    if index.dtype.kind not in "iu":
        raise TypeError(f"index must be of integers, not {index.dtype}")
    if size < 0:
        raise ValueError("negative dimensions are not allowed")
    places = index.ravel().astype("u8" if index.dtype.kind == "u" else "i8")
    if mode == "raise":
        low = 0 if index.dtype.kind == "u" else -size
        bad = np.flatnonzero((places < low) | (places >= size))
        if bad.size:
            raise IndexError(
                f"index {places[bad[0]]} at position {bad[0]} is out of bounds for axis 0 "
                f"with size {size}"
            )
        places = np.where(places < 0, places + places.dtype.type(size), places)
    elif mode not in ("wrap", "clip"):
        raise ValueError(f"mode must be 'raise', 'wrap' or 'clip', not {mode!r}")
    elif size == 0 and places.size:
        raise IndexError("cannot do a non-empty scatter_add into an empty axis")
    elif places.size:
        last = places.dtype.type(size - 1)
        places = places % places.dtype.type(size) if mode == "wrap" else places.clip(0, last)
    dtype = values.dtype.newbyteorder("=")
    if dtype.kind in "biu":
        dtype = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    total = np.zeros(size, wide(dtype))
    with np.errstate(all="ignore"):
        np.add.at(total, places.astype(np.intp), values.ravel().astype(total.dtype))
        result = total.astype(dtype)
    if out is not None:
        if out.shape != result.shape or out.dtype != result.dtype:
            raise ValueError(
                f"out must have shape {result.shape} and dtype {result.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        out[...] = result
        return out
    return result


def scan(
    x: Any,
    op: str = "sum",
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Combine each element of `x` with those before it; the meaning of `gpuopt.scan`.

    Sums and products of bool and integers are int64 or uint64.  A scan begins with `initial`
    in the dtype of the result, by default the identity: the largest or lowest value of the
    dtype for 'min' and 'max'.
    """
    combine = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    if op not in combine:
        raise ValueError(f"op must be one of 'sum', 'prod', 'min', 'max', not {op!r}")
    x = np.asarray(x)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    axis = int(np.lib.array_utils.normalize_axis_index(axis, x.ndim))
    total = op in ("sum", "prod")
    if not total and x.dtype.kind == "c":
        raise TypeError(f"{op} takes no complex numbers, which have no order")
    dtype = x.dtype
    if total and dtype.kind in "biu":
        dtype = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    acc = wide(dtype)
    elements = x.astype(acc)
    # longdouble and float16 have infinities too, so the extreme value is one of them
    first: Any = {"sum": 0, "prod": 1}.get(op)
    if first is None and dtype.kind == "b":
        first = op == "min"
    elif first is None and dtype.kind in "iu":
        first = getattr(np.iinfo(dtype), "max" if op == "min" else "min")
    elif first is None:
        first = np.inf if op == "min" else -np.inf
    if initial is not None:
        first = initial_value(initial, dtype).astype(acc)
    elements = np.flip(elements, axis) if reverse else elements
    begins = x.shape[axis] > 0 and (exclusive or initial is not None)
    if begins:
        head = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), first, acc)
        elements = np.concatenate([head, elements], axis)
    with np.errstate(all="ignore"):
        result = combine[op].accumulate(elements, axis=axis, dtype=acc).astype(dtype)
    if begins:
        result = np.delete(result, -1 if exclusive else 0, axis)
    result = np.flip(result, axis) if reverse else result
    if out is not None:
        if out.shape != result.shape or out.dtype != result.dtype:
            raise ValueError(
                f"out must have shape {result.shape} and dtype {result.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        out[...] = result
        return out
    return result


def index_add(
    x: Any,
    index: Any,
    source: Any,
    axis: int = 0,
    alpha: Any = 1,
    mode: str = "raise",
    deterministic: bool = False,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Add the slices of `source` to those of `x` that `index` names; `gpuopt.index_add`.

    Floats are added in a wider type and rounded once; alpha times an element of a
    complex source scales both parts.
    """
    x, index, source = np.asarray(x), np.asarray(index), np.asarray(source)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    axis = np.lib.array_utils.normalize_axis_index(axis, x.ndim)
    if index.dtype.kind not in "iu":
        raise TypeError(f"index must have an integer dtype, not '{index.dtype}'")
    if x.dtype.kind in "biu" and not isinstance(alpha, int | np.integer):
        raise TypeError(f"alpha must be a whole number for '{x.dtype}'")
    length = x.shape[axis]
    k = index.astype(np.int64)
    if length == 0 and k.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    if mode == "wrap":
        k = k % max(length, 1)
    elif mode == "clip":
        k = np.clip(k, 0, length - 1)
    bad = np.flatnonzero((k < -length) | (k >= length))
    if bad.size:
        at = int(bad[0])
        raise IndexError(
            f"index {k[at]} at position {at} is out of bounds for axis {axis} "
            f"with size {length}"
        )
    acc = wide(x.dtype)
    result = np.moveaxis(x.astype(acc), axis, 0).copy()
    rows = np.moveaxis(source.astype(x.dtype).astype(acc), axis, 0)
    with np.errstate(all="ignore"):
        if acc.kind == "b":
            rows = rows & (alpha != 0)
        elif acc.kind in "iu":
            bits = 8 * acc.itemsize
            factor = np.uint64(int(alpha) % (1 << bits)).astype(acc)
            rows = rows * factor
        elif acc.kind == "c":
            rows = rows.copy()
            rows.real *= alpha
            rows.imag *= alpha
        else:
            rows = rows * acc.type(alpha)
        np.add.at(result, k, rows)
    narrow = np.moveaxis(result, 0, axis).astype(x.dtype)
    narrow = np.ascontiguousarray(narrow)
    if out is not None:
        if out.shape != narrow.shape or out.dtype != narrow.dtype:
            raise ValueError(
                f"out must have shape {narrow.shape} and dtype {narrow.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        out[...] = narrow
        return out
    return narrow


# ---- elementwise: one code path for all functors ----

_BOOL_ERRORS = {
    "subtract": "numpy boolean subtract, the `-` operator, is not supported, use the "
    "bitwise_xor, the `^` operator, or the logical_xor function instead.",
    "negative": "The numpy boolean negative, the `-` operator, is not supported, use the "
    "`~` operator or the logical_not function instead.",
}
_NO_COMPLEX = ("maximum", "minimum", "clip", "fma", "relu") + (
    "exp",
    "log",
    "sqrt",
    "tanh",
    "sigmoid",
    "gelu",
    "silu",
)


def _kind(dtype: np.dtype[Any]) -> str:
    """NumPy's kind letter; ml_dtypes registers bfloat16 as 'V'."""
    return "f" if dtype.name == "bfloat16" else dtype.kind


def _float_beside(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The floating dtype that integers of `dtype` are converted to; a float stays."""
    if _kind(dtype) in "fc":
        return dtype
    return np.dtype({1: np.float16, 2: np.float32}.get(dtype.itemsize, np.float64))


def _promote(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    """np.result_type, with bfloat16 promoted as in ml_dtypes' ufuncs."""
    if "bfloat16" not in (a.name, b.name) or a == b:
        return np.result_type(a, b)
    short, other = (a, b) if a.name == "bfloat16" else (b, a)
    if _kind(other) in "biu" and other.itemsize == 1:
        return short
    return np.result_type(np.float32, other)


def common_dtype(arrays: list[Any]) -> np.dtype[Any]:
    """The common dtype of the operands: NEP 50, arrays take precedence over Python numbers."""
    strong = [np.asarray(a).dtype for a in arrays if type(a) not in (int, float, complex)]
    weak = [a for a in arrays if type(a) in (int, float, complex)]
    if not strong:
        return np.result_type(*[np.asarray(a).dtype for a in weak])
    strong.sort(key=lambda dtype: _kind(dtype) in "biu")  # floats first, as np.result_type
    dtype = strong[0].newbyteorder("=") if strong[0].name != "bfloat16" else strong[0]
    for other in strong[1:]:
        dtype = _promote(dtype, other)
    for number in weak:
        if dtype.name == "bfloat16":
            dtype = np.dtype(np.complex64) if isinstance(number, complex) else dtype
        else:
            dtype = np.result_type(dtype, number)
    return np.dtype(dtype)


def _erfc(x: np.ndarray[Any, Any]) -> Any:
    """The complementary error function in float64; NumPy has none."""
    import math

    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def _functor(name: str, v: list[Any]) -> Any:
    """The value of a functor on operands in the dtype they are combined in."""
    with np.errstate(all="ignore"):
        if name == "fma":
            return v[0] * v[1] + v[2]
        if name == "where":
            return np.where(v[0], v[1], v[2])
        if name == "relu":
            return np.where(v[0] < 0, v[0].dtype.type(0), v[0])
        if name in ("sigmoid", "silu"):
            e = np.exp(-np.abs(v[0]))
            share = np.where(v[0] >= 0, 1, e) / (1 + e)
            return v[0] * share if name == "silu" else share
        if name == "gelu":
            return 0.5 * v[0] * _erfc(-v[0].astype(np.float64) * 0.5**0.5)
        return getattr(np, name)(*v)


def elementwise(name: str, *arrays: Any, out: Any = None) -> Any:
    """Compute `name` of the arrays, element by element; the meaning of gpuopt.<name>."""
    result, dtype = elementwise_wide(name, *arrays)
    with np.errstate(all="ignore"):
        return _into(result.astype(dtype), out)


def elementwise_wide(name: str, *arrays: Any) -> tuple[np.ndarray[Any, Any], np.dtype[Any]]:
    """Return the result before it is rounded, and the dtype to round it to.

    Operands are converted to one dtype (`common_dtype`), integers to floats if the function
    requires it, and floats are computed in a wider type.
    """
    first = 1 if name == "where" else 0
    dtype = common_dtype(list(arrays[first:]))
    if _kind(dtype) == "b" and name in _BOOL_ERRORS:
        raise TypeError(_BOOL_ERRORS[name])
    if name == "divide" and _kind(dtype) in "biu":
        dtype = np.dtype(np.float64)
    if name in ("exp", "log", "sqrt", "tanh", "sigmoid", "gelu", "silu"):
        dtype = _float_beside(dtype)
    if (_kind(dtype) == "c" and name in _NO_COMPLEX) or (_kind(dtype) == "b" and name == "fma"):
        raise TypeError(f"{name}() does not support dtype '{dtype.name}'")
    for number in arrays[first:]:
        if type(number) is int and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            if not limits.min <= number <= limits.max:
                raise ValueError(f"Python integer {number} out of bounds for {dtype.name}")
    acc = wide(dtype)
    values = [np.asarray(a).astype(dtype).astype(acc) for a in arrays[first:]]
    if first:
        values.insert(0, np.asarray(arrays[0]) != 0)
    result = np.asarray(_functor(name, values))
    narrow = dtype
    if name == "abs" and dtype.kind == "c":
        narrow = np.dtype(np.float32 if dtype.name == "complex64" else np.float64)
    return result, narrow


def _into(result: np.ndarray[Any, Any], out: Any) -> Any:
    """Return `result`, or write it into `out`."""
    if out is None:
        return result[()]
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(
            f"out must have shape {result.shape} and dtype {result.dtype}, "
            f"not {out.shape} and {out.dtype}"
        )
    out[...] = result
    return out


def abs(x: Any, out: Any = None) -> Any:
    """Np.abs, element by element."""
    return elementwise("abs", x, out=out)


def add(x: Any, y: Any, out: Any = None) -> Any:
    """Np.add, element by element."""
    return elementwise("add", x, y, out=out)


def divide(x: Any, y: Any, out: Any = None) -> Any:
    """Np.divide, element by element."""
    return elementwise("divide", x, y, out=out)


def exp(x: Any, out: Any = None) -> Any:
    """Np.exp, element by element."""
    return elementwise("exp", x, out=out)


def fma(x: Any, y: Any, z: Any, out: Any = None) -> Any:
    """X * y + z, rounded once, element by element."""
    return elementwise("fma", x, y, z, out=out)


def gelu(x: Any, out: Any = None) -> Any:
    """X times the distribution function of the normal distribution, element by element."""
    return elementwise("gelu", x, out=out)


def log(x: Any, out: Any = None) -> Any:
    """Np.log, element by element."""
    return elementwise("log", x, out=out)


def maximum(x: Any, y: Any, out: Any = None) -> Any:
    """Np.maximum, element by element."""
    return elementwise("maximum", x, y, out=out)


def minimum(x: Any, y: Any, out: Any = None) -> Any:
    """Np.minimum, element by element."""
    return elementwise("minimum", x, y, out=out)


def multiply(x: Any, y: Any, out: Any = None) -> Any:
    """Np.multiply, element by element."""
    return elementwise("multiply", x, y, out=out)


def negative(x: Any, out: Any = None) -> Any:
    """Np.negative, element by element."""
    return elementwise("negative", x, out=out)


def relu(x: Any, out: Any = None) -> Any:
    """X where it is positive or nan, else 0, element by element."""
    return elementwise("relu", x, out=out)


def sigmoid(x: Any, out: Any = None) -> Any:
    """1 / (1 + exp(-x)), element by element."""
    return elementwise("sigmoid", x, out=out)


def silu(x: Any, out: Any = None) -> Any:
    """X * sigmoid(x), element by element."""
    return elementwise("silu", x, out=out)


def sqrt(x: Any, out: Any = None) -> Any:
    """Np.sqrt, element by element."""
    return elementwise("sqrt", x, out=out)


def subtract(x: Any, y: Any, out: Any = None) -> Any:
    """Np.subtract, element by element."""
    return elementwise("subtract", x, y, out=out)


def tanh(x: Any, out: Any = None) -> Any:
    """Np.tanh, element by element."""
    return elementwise("tanh", x, out=out)


def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """X where condition is not zero, else y, element by element."""
    return elementwise("where", condition, x, y, out=out)


def clip(x: Any, min: Any = None, max: Any = None, out: Any = None) -> Any:
    """minimum(maximum(x, min), max); None means no bound on that side."""
    dtype = common_dtype([a for a in (x, min, max) if a is not None])
    if dtype.kind in "iu":  # a Python integer beyond the range is no bound
        limits = np.iinfo(dtype)
        min = None if type(min) is int and min < limits.min else min
        max = None if type(max) is int and max > limits.max else max
    if _kind(dtype) == "c":
        raise TypeError(f"clip() does not support dtype '{dtype.name}'")
    result = np.asarray(x).astype(dtype)
    if min is not None:
        result = elementwise("maximum", result, min)
    if max is not None:
        result = elementwise("minimum", result, max)
    return _into(np.asarray(result).astype(dtype), out)


def cast(x: Any, dtype: Any, out: Any = None) -> Any:
    """x.astype(dtype), without a warning."""
    x = np.asarray(x)
    if x.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
        x = x.real
    with np.errstate(all="ignore"):
        return _into(x.astype(np.dtype(dtype).newbyteorder("=")), out)


def upsample_sources(
    length: int, size: int | None, scale: float | None, exact: bool = False
) -> np.ndarray[Any, Any]:
    """The source of each element of an enlarged axis: PyTorch's rule, in float32."""
    one = np.float32
    if scale is None:
        assert size is not None
        ratio = one(length) / one(size)
    else:
        size = int(float(length) * scale)
        ratio = one(1.0 / scale)
    at = (np.arange(size).astype(one) + one(0.5 if exact else 0)) * ratio
    return np.minimum(np.floor(at).astype(np.int64), length - 1)


def _upsample_axes(
    shape: tuple[int, ...], size: Any, scale: Any, exact: bool, layout: str
) -> list[tuple[int, np.ndarray[Any, Any]]]:
    """Return each spatial axis with its sources, after checking the arguments."""
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be 'NCHW' or 'NHWC', not {layout!r}")
    if not 3 <= len(shape) <= 5:
        raise ValueError(f"3, 4 or 5 dimensions are needed, not {len(shape)}")
    if (size is None) == (scale is None):
        raise ValueError("exactly one of size and scale is needed")
    spatial = range(2, len(shape)) if layout == "NCHW" else range(1, len(shape) - 1)

    def each(value: Any) -> list[Any]:
        many = isinstance(value, (tuple, list))
        values = list(value) if many else [value] * len(spatial)
        if len(values) != len(spatial):
            raise ValueError(f"{len(values)} values for {len(spatial)} spatial axes")
        return values

    if any(not (s > 0 and s < np.inf) for s in each(scale) if s is not None):
        raise ValueError("scale must be positive and finite")
    if any(s <= 0 for s in each(size) if s is not None) or 0 in shape[1:]:
        raise ValueError("sizes must be greater than 0")
    axes = [
        (axis, upsample_sources(shape[axis], n, s, exact))
        for axis, n, s in zip(spatial, each(size), each(scale), strict=True)
    ]
    if any(sources.size == 0 for _, sources in axes):
        raise ValueError("sizes must be greater than 0")
    return axes


def upsample_nearest(
    x: Any,
    size: Any = None,
    scale: Any = None,
    exact: bool = False,
    layout: str = "NCHW",
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Take the sources of each spatial axis; the meaning of `gpuopt.upsample_nearest`."""
    result = np.asarray(x)
    for axis, sources in _upsample_axes(result.shape, size, scale, exact, layout):
        result = np.take(result, sources, axis)
    return _into(result.astype(result.dtype.newbyteorder("=")), out)


def upsample_nearest_backward(
    dy: Any,
    input_shape: tuple[int, ...],
    size: Any = None,
    scale: Any = None,
    exact: bool = False,
    layout: str = "NCHW",
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Add each element of dy to its source, in a wider type; integers wrap around."""
    dy = np.asarray(dy)
    if dy.dtype == bool:
        raise TypeError("upsample_nearest_backward() does not support dtype 'bool'")
    dtype = dy.dtype.newbyteorder("=")
    axes = _upsample_axes(tuple(input_shape), size, scale, exact, layout)
    wanted = list(input_shape)
    for axis, sources in axes:
        wanted[axis] = sources.size
    if list(dy.shape) != wanted:
        raise ValueError(f"dy has shape {dy.shape}, not {tuple(wanted)}")
    total = dy.astype(wide(dtype))
    with np.errstate(all="ignore"):
        for axis, sources in axes:
            first = np.moveaxis(total, axis, 0)
            sums = np.zeros((input_shape[axis], *first.shape[1:]), total.dtype)
            np.add.at(sums, sources, first)
            total = np.moveaxis(sums, 0, axis)
        return _into(np.ascontiguousarray(total).astype(dtype), out)


def convolve_dtype(a: Any, v: Any) -> np.dtype[Any]:
    """The dtype of `convolve`'s result: NumPy's common one, bfloat16 as elsewhere."""
    a, v = np.asarray(a).dtype, np.asarray(v).dtype
    return (
        _promote(a, v).newbyteorder("=")
        if "bfloat16" not in (a.name, v.name)
        else _promote(a, v)
    )


def convolve(a: Any, v: Any, mode: str = "full", out: Any = None) -> Any:
    """Convolve rows; the meaning of `gpuopt.convolve`.  Leading axes broadcast."""
    a, v = np.atleast_1d(a), np.atleast_1d(v)
    dtype = convolve_dtype(a, v)
    acc = wide(dtype)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'full', 'same', 'valid', not {mode!r}")
    for name, operand in (("a", a), ("v", v)):
        if operand.shape[-1] == 0:
            raise ValueError(f"{name} cannot be empty")
    if v.shape[-1] > a.shape[-1]:
        a, v = v, a
    lead = np.broadcast_shapes(a.shape[:-1], v.shape[:-1])
    n, m = a.shape[-1], v.shape[-1]
    length = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    result = np.empty((*lead, length), dtype)
    a = np.broadcast_to(a, (*lead, n))
    v = np.broadcast_to(v, (*lead, m))
    one_row: Any = np.convolve
    with np.errstate(all="ignore"):
        for row in np.ndindex(lead):
            x, y = (r[row].astype(dtype).astype(acc) for r in (a, v))
            result[row] = one_row(x, y, mode).astype(dtype)
    return _into(result, out)


def _per_axis(option: Any, rank: int) -> tuple[int, ...]:
    values = tuple(int(v) for v in np.ravel(option))
    if len(values) not in (1, rank):
        raise ValueError(f"not an int or {rank} ints: {option}")
    return values * rank if len(values) == 1 else values


def _max_pool(
    rank: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    """The maxima over the last `rank` axes, looping over the positions in a window."""
    x = np.asarray(x)
    kernel = _per_axis(kernel_size, rank)
    stride = kernel if stride is None else _per_axis(stride, rank)
    pad, step = _per_axis(padding, rank), _per_axis(dilation, rank)
    sizes = x.shape[-rank:]
    if x.ndim not in (rank + 1, rank + 2) or 0 in x.shape[x.ndim - rank - 1 :]:
        raise ValueError(f"x has shape {x.shape}")
    if min(*kernel, *stride, *step) < 1 or min(pad) < 0:
        raise ValueError("a window of no elements, a stride of 0, a negative padding")
    if any(2 * p > k for p, k in zip(pad, kernel, strict=True)):
        raise ValueError("padding must be at most half of the kernel size")
    out = []
    for n, k, s, p, d in zip(sizes, kernel, stride, pad, step, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = (room + (s - 1 if ceil_mode else 0)) // s + 1
        if ceil_mode and (count - 1) * s >= n + p:
            count -= 1
        if count < 1:
            raise ValueError("the output is too small")
        out.append(count)
    whole = x.dtype.kind in "iu"
    ordered = x if whole or x.dtype == np.float64 else x.astype(np.float32)
    least = np.iinfo(x.dtype).min if whole else -np.inf
    best = np.full((*x.shape[:-rank], *out), least, ordered.dtype)
    index = np.full(best.shape, -1, np.int64)
    flat = np.arange(int(np.prod(sizes))).reshape(sizes)
    for place in np.ndindex(*kernel):  # in C order: the first of equal ones stays
        from_x, to_y = [], []
        for j, n, s, p, d, count in zip(place, sizes, stride, pad, step, out, strict=True):
            first = j * d - p
            lo = max(0, -(first // s))  # windows whose element j lies in x
            hi = min(count, (n - 1 - first) // s + 1)
            to_y.append(slice(lo, max(lo, hi)))
            from_x.append(slice(first + lo * s, max(first + hi * s, first + lo * s), s))
        inside: Any = (..., *from_x)
        at: Any = (..., *to_y)
        value = ordered[inside]
        better = (value > best[at]) | (value != value) | (index[at] < 0)
        best[at] = np.where(better, value, best[at])
        index[at] = np.where(better, flat[tuple(from_x)], index[at])
    y = best.astype(x.dtype.newbyteorder("="))
    return (y, index) if return_indices else y


def _max_pool_backward(rank: int, dy: Any, indices: Any, input_shape: Any) -> Any:
    """The gradient of `_max_pool`, added in a wider type."""
    dy, indices = np.asarray(dy), np.asarray(indices)
    shape = tuple(int(n) for n in input_shape)
    kept = len(shape) - rank
    if dy.ndim != len(shape) or dy.shape[:kept] != shape[:kept]:
        raise ValueError(f"dy has shape {dy.shape}, which is no pooling of {shape}")
    if indices.shape != dy.shape:
        raise ValueError(f"indices has shape {indices.shape}, but dy has {dy.shape}")
    planes, size = int(np.prod(shape[:kept])), int(np.prod(shape[kept:]))
    if ((indices < -1) | (indices >= size)).any():
        raise IndexError(f"an index is out of bounds for a plane of {size} elements")
    total = np.zeros((planes, size), wide(dy.dtype))
    rows = np.broadcast_to(np.arange(planes)[:, None], (planes, dy[0:].size // max(planes, 1)))
    rows, at = rows.reshape(-1), indices.reshape(-1)
    with np.errstate(all="ignore"):
        values = dy.astype(total.dtype).reshape(-1)
        np.add.at(total, (rows[at >= 0], at[at >= 0]), values[at >= 0])
        return total.reshape(shape).astype(dy.dtype.newbyteorder("="))


def max_pool3d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the maximum of each window of the last three axes; `gpuopt.max_pool3d`."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the maximum of each window of the last two axes; `gpuopt.max_pool2d`."""
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d(
    x: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the maximum of each window of the last axis; `gpuopt.max_pool1d`."""
    return _max_pool(1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d_backward(dy: Any, indices: Any, input_shape: Any, **windows: Any) -> Any:
    """Add each gradient to the element its index names; `gpuopt.max_pool3d_backward`.

    The windows (kernel_size, stride, padding, dilation) are not needed here.
    """
    return _max_pool_backward(3, dy, indices, input_shape)


def max_pool2d_backward(dy: Any, indices: Any, input_shape: Any, **windows: Any) -> Any:
    """Add each gradient to the element its index names; `gpuopt.max_pool2d_backward`."""
    return _max_pool_backward(2, dy, indices, input_shape)


def max_pool1d_backward(dy: Any, indices: Any, input_shape: Any, **windows: Any) -> Any:
    """Add each gradient to the element its index names; `gpuopt.max_pool1d_backward`."""
    return _max_pool_backward(1, dy, indices, input_shape)
