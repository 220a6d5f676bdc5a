"""Drawn cases of index_add: numbers and rows, uniform, skewed, sorted and unique indices."""

from __future__ import annotations

from typing import Any

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

DTYPES = ("float32", "float32", "float32", "float16", "bfloat16", "float64")
KINDS = ("uniform", "uniform", "zipf", "sorted", "perm")


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    width = dice.one(1, 1, dice.log(2, 1024))
    n = dice.log(16, max(32, (1 << dice.bits(21, 27)) // width))
    rows = dice.log(4, min(1 << 24, (1 << dice.bits(20, 27)) // width))
    dtype = dice.one(*DTYPES)
    kind = dice.one(*KINDS)
    index_dtype = dice.one("int64", "int32")
    fixed, in_place = dice.chance(0.35), dice.chance(0.25)
    lib = dice.lib
    index = dice.index(n, rows, kind, index_dtype)
    tail = () if width == 1 else (width,)
    x = lib.zeros((rows, *tail), dtype)
    source = dice.array((n, *tail), dtype)
    how = f"{' det' if fixed else ''}{' in place' if in_place else ''}"
    return Case(
        name=f"{n} -> {rows} width {width} {kind} {index_dtype}{how}",
        dtype=dtype,
        function="index_add",
        args=(x, index, source),
        options={"deterministic": fixed},
        peer="index_add",
        given={
            "x": x,
            "index": index,
            "source": source,
            "deterministic": fixed,
            "in_place": in_place,
        },
        reference=lambda: sums(lib, index, source, rows, width),
        nbytes=source.nbytes + index.nbytes + 2 * x.nbytes,
        in_place=in_place,
    )


def sums(lib: Arrays, index: Any, source: Any, rows: int, width: int) -> Any:
    """Return the right sums in float64, counted per element."""
    wide = lib.wide(source)
    if width == 1:
        return lib.xp.bincount(lib.wide(index), wide, rows)
    places = lib.wide(index)[:, None] * width + lib.arange(width)
    found = lib.xp.bincount(places.reshape(-1), wide.reshape(-1), rows * width)
    return found.reshape(rows, width)
