"""What every operator means, in plain NumPy: one function per operator.

The functions are slow and exact: floats are combined in a wider type and rounded once,
so an optimised variant is judged by its distance to them.  `tests/` uses them as the
oracle; use them yourself to check a kernel of your own.  Speed does not belong here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "mean_matvec",
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
