"""Drawn cases of scatter_add: values summed at uniform, skewed or sorted places."""

from __future__ import annotations

from typing import Any

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    n = dice.log(64, 1 << dice.bits(22, 27))
    size = dice.log(1, min(1 << 24, 4 * n))
    dtype = dice.one("float32", "float32", "float64", "int32")
    kind = dice.one("uniform", "zipf", "sorted") if size > 1 else "uniform"
    fixed = dice.chance(0.35)
    index, values = dice.index(n, size, kind), dice.array((n,), dtype)
    given = {"values": values, "index": index, "size": size, "deterministic": fixed}
    return Case(
        name=f"{n} -> {size} {kind}{' det' if fixed else ''}",
        dtype=dtype,
        function="scatter_add",
        args=(values, index, size),
        options={"deterministic": fixed},
        peer="scatter_add",
        given=given,
        reference=lambda: sums(dice.lib, values, index, size),
        nbytes=values.nbytes + index.nbytes + size * (values.nbytes // n),
    )


def sums(lib: Arrays, values: Any, index: Any, size: int) -> Any:
    """Return the right sums; those of integers are below 2^53, exact in float64."""
    found = lib.xp.bincount(index, lib.astype(values, "float64"), size)
    return found if lib.kind(values) == "f" else lib.astype(found, "int64")
