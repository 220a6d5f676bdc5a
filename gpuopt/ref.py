"""What every operator means, in plain NumPy: one function per operator.

The functions are slow and exact: floats are combined in a wider type and rounded once,
so an optimised variant is judged by its distance to them.  `tests/` uses them as the
oracle; use them yourself to check a kernel of your own.  Speed does not belong here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "reduce",
    "scatter_add",
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


def scatter_add(
    values: Any,
    index: Any,
    size: int,
    mode: str = "raise",
    deterministic: bool = False,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """out[index[i]] += values[i] into zeros; the meaning of `gpuopt.scatter_add`.

    Whole numbers are added in 64 bits, as np.sum does; `deterministic` changes nothing
    here, where one element follows the other.
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
