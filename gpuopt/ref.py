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
    "scan",
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


def scan(
    x: Any,
    op: str = "sum",
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    out: np.ndarray[Any, Any] | None = None,
) -> Any:
    """Combine each element of `x` with those before it; the meaning of `gpuopt.scan`.

    Sums and products of bool and integers are int64 or uint64.  An exclusive scan begins
    with the identity, the largest or lowest value of the dtype for 'min' and 'max'.
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
    # longdouble and float16 hold infinity too, so the end of the order is one of these
    first: Any = {"sum": 0, "prod": 1}.get(op)
    if first is None and dtype.kind == "b":
        first = op == "min"
    elif first is None and dtype.kind in "iu":
        first = getattr(np.iinfo(dtype), "max" if op == "min" else "min")
    elif first is None:
        first = np.inf if op == "min" else -np.inf
    elements = np.flip(elements, axis) if reverse else elements
    if exclusive and x.shape[axis]:
        head = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), first, acc)
        elements = np.concatenate([head, np.delete(elements, -1, axis)], axis)
    with np.errstate(all="ignore"):
        result = combine[op].accumulate(elements, axis=axis, dtype=acc).astype(dtype)
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
