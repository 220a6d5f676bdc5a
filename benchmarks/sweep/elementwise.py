"""Drawn cases of the elementwise operators: unary, binary with broadcasting, where, casts.

Order: the right results, the dice, one function per kind of case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice, dtype_bytes

KINDS = ("unary", "unary", "binary", "binary", "binary", "where", "clip", "cast")
DTYPES = ("float32", "float32", "float16", "bfloat16", "float64")
PATTERNS = ("same", "same", "row", "column", "scalar", "T")

#: One operand in float64 -> the right result.
UNARY: dict[str, Callable[[Arrays, Any], Any]] = {
    "negative": lambda lib, x: -x,
    "abs": lambda lib, x: abs(x),
    "exp": lambda lib, x: lib.xp.exp(x),
    "log": lambda lib, x: lib.xp.log(x),
    "sqrt": lambda lib, x: lib.xp.sqrt(x),
    "tanh": lambda lib, x: lib.xp.tanh(x),
    "sigmoid": lambda lib, x: 1 / (1 + lib.xp.exp(-x)),
    "relu": lambda lib, x: lib.xp.maximum(x, 0 * x),
    "gelu": lambda lib, x: 0.5 * x * (1 + lib.erf(x * 0.5**0.5)),
    "silu": lambda lib, x: x / (1 + lib.xp.exp(-x)),
}
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
SCALAR = 1.5


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    kind = dice.one(*KINDS)
    ndim = dice.one(1, 2, 3)
    shape = dice.shape(ndim)
    dtype = dice.one(*DTYPES)
    x = dice.array(shape, dtype)
    kinds = {"unary": unary, "binary": binary, "where": where, "clip": clip, "cast": cast}
    return kinds[kind](dice, x, dtype)


def case(
    title: str,
    dtype: str,
    name: str,
    operands: tuple[Any, ...],
    reference: Callable[[], Any],
    nbytes: int,
) -> Case:
    """Return a case whose peers get the operands of ours."""
    given = {"name": name, "operands": operands}
    return Case(title, dtype, name, operands, {}, "elementwise", given, reference, nbytes)


def unary(dice: Dice, x: Any, dtype: str) -> Case:
    """Draw a function of one array, which may be every second element of another."""
    name = dice.one(*UNARY)
    x = abs(x) + 0.5 if name in ("log", "sqrt") else x
    layout = dice.one("C", "C", "step")
    x = x[..., ::2] if layout == "step" else x
    lib = dice.lib
    return case(
        f"{name} {tuple(x.shape)} {layout}",
        dtype,
        name,
        (x,),
        lambda: UNARY[name](lib, lib.wide(x)),
        2 * x.nbytes,
    )


def binary(dice: Dice, x: Any, dtype: str) -> Case:
    """Draw a function of two arrays, or of an array and a number."""
    lib, ndim = dice.lib, x.ndim
    name = dice.one(*BINARY)
    pattern = dice.one(*PATTERNS)
    y = dice.array(x.shape, dtype)
    if name == "divide":
        y = y + 3 * lib.xp.sign(y) + (y == 0)
    if pattern == "row":
        y = y[(0,) * (ndim - 1)]
    if pattern == "column":
        y = y[..., :1]
    if pattern == "T" and ndim > 1:
        back = range(ndim)[::-1]
        y = lib.permute(lib.contiguous(lib.permute(y, back)), back)
    title, nbytes = f"{name} {tuple(x.shape)} {pattern}", 2 * x.nbytes + y.nbytes
    if pattern == "scalar":
        y, nbytes = SCALAR, 2 * x.nbytes

    def reference() -> Any:
        wide = lib.wide(x)
        return getattr(lib.xp, name)(wide, 0 * wide + y if pattern == "scalar" else lib.wide(y))

    return case(title, dtype, name, (x, y), reference, nbytes)


def where(dice: Dice, x: Any, dtype: str) -> Case:
    """Draw a choice between two arrays."""
    lib = dice.lib
    y = dice.array(x.shape, dtype)
    mask = dice.array(x.shape, "float32") > 0
    return case(
        f"where {tuple(x.shape)}",
        dtype,
        "where",
        (mask, x, y),
        lambda: lib.xp.where(mask, x, y),
        3 * x.nbytes + mask.nbytes,
    )


def clip(dice: Dice, x: Any, dtype: str) -> Case:
    """Draw a clip to [-1, 1]."""
    return case(
        f"clip {tuple(x.shape)}",
        dtype,
        "clip",
        (x, -1.0, 1.0),
        lambda: dice.lib.xp.clip(x, -1, 1),
        2 * x.nbytes,
    )


def cast(dice: Dice, x: Any, dtype: str) -> Case:
    """Draw a conversion to another floating dtype, or a copy."""
    to = dice.one("float16", "float32", "float64")
    elements = x.nbytes // dtype_bytes(dtype)
    return case(
        f"cast {tuple(x.shape)} to {to}",
        dtype,
        "cast",
        (x, np.dtype(to)),
        lambda: dice.lib.astype(x, to),
        x.nbytes + elements * dtype_bytes(to),
    )
