"""Drawn cases of scan: running sums and maxima along any axis, a few from the end."""

from __future__ import annotations

from typing import Any

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

DTYPES = ("float32", "float32", "float32", "float16", "float64", "int64", "int32")


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    lib = dice.lib
    op = dice.one("sum", "sum", "sum", "max")
    ndim = dice.one(1, 2, 2, 3)
    x = dice.array(dice.shape(ndim), dice.one(*DTYPES))
    axis = int(dice.rng.integers(ndim))
    reverse = dice.chance(0.15)
    scale = None
    if op == "sum" and lib.kind(x) == "f":
        scale = float(abs(lib.wide(x)).mean()) * x.shape[axis]
    return Case(
        name=f"{op} {tuple(x.shape)} axis={axis}{' reverse' if reverse else ''}",
        dtype=lib.dtype(x),
        function="scan",
        args=(x,),
        options={"op": op, "axis": axis, "reverse": reverse},
        peer="scan",
        given={"x": x, "op": op, "axis": axis, "reverse": reverse},
        reference=lambda: run(lib, op, x, axis, reverse),
        nbytes=2 * x.nbytes,
        scale=scale,
    )


def run(lib: Arrays, op: str, x: Any, axis: int, reverse: bool) -> Any:
    """Return the right result, sums in float64 or int64."""
    flip = lib.xp.flip
    x = flip(x, (axis,)) if reverse else x
    found = lib.xp.cumsum(lib.wide(x), axis) if op == "sum" else lib.cummax(x, axis)
    return flip(found, (axis,)) if reverse else found
