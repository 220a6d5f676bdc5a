"""Drawn cases of reduce: operations, dtypes, layouts, any axes."""

from __future__ import annotations

import math
from typing import Any

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

OPS = ("sum", "sum", "sum", "max", "min", "mean", "argmax", "prod", "any")
DTYPES = ("float32", "float32", "float32", "float16", "bfloat16", "float64", "int32", "uint8")
ONE_AXIS = ("argmax", "prod", "any")


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    op = dice.one(*OPS)
    if op == "any":
        dtype = "bool"
    elif op in ("sum", "max", "min"):
        dtype = dice.one(*DTYPES)
    else:
        dtype = dice.one("float32", "float32", "float16", "float64")
    ndim = dice.one(1, 2, 2, 3, 4)
    x = dice.array(dice.shape(ndim), dtype)
    layout = dice.one("C", "C", "C", "T", "step")
    if op == "prod":
        x = 1 + x / 1024
    if layout == "T" and ndim > 1:
        x = dice.lib.permute(x, range(ndim)[::-1])
    if layout == "step":
        x = x[..., ::2]
    axis = axes(dice, ndim)
    if axis is not None and op in ONE_AXIS:
        axis = axis[0]
    return Case(
        name=f"{op} {tuple(x.shape)} {layout} axis={axis}",
        dtype=dtype,
        function="reduce",
        args=(x,),
        options={"op": op, "axis": axis},
        peer="reduce",
        given={"x": x, "op": op, "axis": axis},
        reference=lambda: combine(dice.lib, op, x, axis),
        nbytes=x.nbytes,
        scale=scale(dice.lib, op, x, axis),
    )


def axes(dice: Dice, ndim: int) -> Any:
    """Return some of the axes in order; None, which means all, for none."""
    count = int(dice.rng.integers(0, ndim + 1))
    if not count:
        return None
    return tuple(sorted(int(v) for v in dice.rng.choice(ndim, count, replace=False)))


def combine(lib: Arrays, op: str, x: Any, axis: Any) -> Any:
    """Return the right result, computed in float64 or int64."""
    function = getattr(lib.xp, {"max": "amax", "min": "amin"}.get(op, op))
    x = x if op in ("argmax", "any") else lib.wide(x)
    return function(x) if axis is None else function(x, axis)


def scale(lib: Arrays, op: str, x: Any, axis: Any) -> float | None:
    """Return what an error is relative to: sums of magnitudes, longer products."""
    if lib.kind(x) != "f" or op not in ("sum", "mean", "prod"):
        return None
    shared = (axis,) if isinstance(axis, int) else axis
    length = math.prod(x.shape[a] for a in (range(x.ndim) if axis is None else shared))
    if op == "prod":  # the error of a product grows with its length
        return float(abs(combine(lib, op, x, axis)).max()) * max(1, length // 64)
    mean = float(abs(lib.wide(x)).mean())
    return mean * length if op == "sum" else mean
