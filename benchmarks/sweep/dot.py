"""Drawn cases of dot: two vectors of any length."""

from __future__ import annotations

from gpuopt.lab.drawing import Case, Dice


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    lib = dice.lib
    n = dice.log(16, 1 << dice.bits(23, 28))
    dtype = dice.one("float32", "float64", "float16")
    x, y = dice.array((n,), dtype), dice.array((n,), dtype)
    return Case(
        name=f"{n}",
        dtype=dtype,
        function="dot",
        args=(x, y),
        options={},
        peer="dot",
        given={"x": x, "y": y},
        reference=lambda: (lib.wide(x) * lib.wide(y)).sum(),
        nbytes=x.nbytes + y.nbytes,
        scale=float(abs(lib.wide(x) * lib.wide(y)).sum()),
    )
