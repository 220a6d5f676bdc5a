"""What every operator means, in plain NumPy: one function per operator.

The functions are slow and exact: floats are combined in a wider type and rounded once,
so an optimised variant is judged by its distance to them.  `tests/` uses them as the
oracle; use them yourself to check a kernel of your own.  Speed does not belong here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "index_add",
    "reduce",
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


def reduce(
    x: Any,
    op: str = "sum",
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    dtype: Any = None,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Combine the elements of `x` along `axis`; the meaning of `gpuopt.reduce`.

    'sum', 'prod' and 'mean' convert every element to `dtype` first; the default is the
    dtype of `out`, else NumPy's.  Errors are NumPy's own; a scalar has no axis 0.
    """
    x = np.asarray(x)
    x = x.astype(x.dtype.newbyteorder("="), copy=False)
    result: Any
    if x.ndim == 0 and axis is not None and axis != ():
        # NumPy lets axis 0 and -1 of a scalar pass, for old code; there is no such axis.
        raise np.exceptions.AxisError(np.ravel(axis)[0], 0)
    if op in ("argmin", "argmax", "min", "max", "any", "all"):
        # ml_dtypes' own loops are not asked: float32 holds every bfloat16.
        ordered = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
        result = np.asarray(getattr(np, op)(ordered, axis=axis, keepdims=keepdims))
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
