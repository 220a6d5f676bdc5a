"""Drawn cases of mean_matvec: a matrix times the means of the last axis."""

from __future__ import annotations

from gpuopt.lab.drawing import Case, Dice


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    lib = dice.lib
    m, length = dice.log(4, 4096), dice.log(8, 4096)
    n = dice.log(1, max(1, (1 << dice.bits(22, 28)) // (m * length)))
    dtype = dice.one("float32", "float32", "float64")
    rows = dice.one(length, dice.log(8, 2048))
    x, matrix = dice.array((n, length, m), dtype), dice.array((rows, length), dtype)
    return Case(
        name=f"N{n} L{length} M{m} rows {rows}",
        dtype=dtype,
        function="mean_matvec",
        args=(x, matrix),
        options={},
        peer="mean_matvec",
        given={"x": x, "matrix": matrix},
        reference=lambda: lib.wide(matrix) @ lib.permute(lib.wide(x).mean(2), (1, 0)),
        nbytes=x.nbytes + matrix.nbytes,
    )
