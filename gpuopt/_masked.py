"""reduce() with where=, by other operators: csrc/bind/detour.c calls it with checked arguments.

An element that the mask leaves out is replaced by one that changes no result, which costs a
copy of x; a mean divides the sum by the number of selected elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpuopt import _core

__all__ = ["call"]

POSITIONAL = ("x", "op", "axis", "keepdims", "dtype", "out")
NEUTRAL = {"sum": 0, "mean": 0, "prod": 1, "any": 0, "all": 1}


def call(_op: str, args: tuple[Any, ...], kwargs: dict[str, Any], _device: int) -> Any:
    """Return what gpuopt.reduce(*args, **kwargs), a call with where=, is to return."""
    options = dict(zip(POSITIONAL, args, strict=False)) | kwargs
    x, where = (as_array(options.pop(name)) for name in ("x", "where"))
    op = options.get("op", "sum")
    place: dict[str, Any] = {k: options[k] for k in ("backend", "stream") if k in options}
    neutral = NEUTRAL[op] if op in NEUTRAL else options["initial"]
    if is_bool(x):
        neutral = bool(neutral)
    selected = _core.where(where, x, neutral, **place)
    if op == "mean":
        return mean(selected, where, options, place)
    return _core.reduce(selected, **options)


def as_array(x: Any) -> Any:
    """Return an array, of whatever library, as it is, and anything else as NumPy's."""
    return x if hasattr(x, "shape") else np.asarray(x)


def is_bool(x: Any) -> bool:
    return str(x.dtype).endswith("bool")


def mean(selected: Any, where: Any, options: dict[str, Any], place: dict[str, Any]) -> Any:
    """Return the sums of the selected elements by how many there are."""
    out, keepdims = options.pop("out", None), options.pop("keepdims", False)
    out = out[0] if isinstance(out, tuple) else out
    axis, variant = options.get("axis"), options.get("variant", "auto")
    axes = reduced(axis, selected.ndim)
    wanted = result_dtype(selected, options.get("dtype"), out)
    wide = "float32" if wanted in ("float16", "bfloat16") else wanted
    total = _core.reduce(
        selected, "sum", axis, True, wide, variant=variant, **place
    )  # fmt: skip
    mask = where.reshape((1,) * (selected.ndim - where.ndim) + tuple(where.shape))
    repeats = math.prod(selected.shape[d] for d in axes if mask.shape[d] == 1)
    count = _core.reduce(mask, "sum", axis, True, **place)
    count = _core.cast(_core.multiply(count, repeats, **place), wide, **place)
    quotient = _core.divide(total, count, **place)
    kept = [n for d, n in enumerate(selected.shape) if d not in axes]
    shape = [1 if d in axes else n for d, n in enumerate(selected.shape)] if keepdims else kept
    quotient = quotient.reshape(tuple(shape))
    if out is not None:
        return _core.cast(quotient, str_of(out.dtype), out=out, **place)
    result = quotient if wide == wanted else _core.cast(quotient, wanted, **place)
    return result[()] if isinstance(result, np.ndarray) else result


def reduced(axis: Any, ndim: int) -> set[int]:
    """Return the axes that are combined, from 0 on."""
    if axis is None:
        return set(range(ndim))
    return {int(d) % ndim for d in np.atleast_1d(np.asarray(axis, dtype=np.int64))}


def result_dtype(x: Any, dtype: Any, out: Any) -> str:
    """Return the name of the dtype to combine in, as csrc/ops/reduce/op.c has it."""
    if dtype is not None:
        return str_of(dtype)
    name = str_of(x.dtype)
    name = name if name.startswith(("float", "bfloat", "complex")) else "float64"
    return name if out is None else wider(name, str_of(out.dtype))


def wider(a: str, b: str) -> str:
    """Return the dtype that two dtypes of floats promote to."""
    if a == b:
        return a
    wide = {"float64", "complex128"} & {a, b}
    if "complex" in a + b:
        return "complex128" if wide else "complex64"
    return "float64" if wide else "float32"


def str_of(dtype: Any) -> str:
    """Return the name of a dtype of any library: torch's is 'torch.float32'."""
    if isinstance(dtype, (type, str)):
        dtype = np.dtype(dtype)
    return dtype.name if isinstance(dtype, np.dtype) else str(dtype).rpartition(".")[2]
