"""Drawn cases of partition_reduce: any bits of the index are kept, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    lib = dice.lib
    order = int(dice.rng.integers(10, dice.bits(22, 28)))
    count = int(dice.rng.integers(1, order))
    bits = [int(bit) for bit in dice.rng.permutation(order)[:count]]
    bits = sorted(bits) if dice.chance(0.5) else bits
    square = dice.chance(0.25)
    dtype = "complex64" if square else dice.one("float32", "float64")
    x = dice.array((1 << order,), dtype)
    scale = None if square else float(abs(lib.wide(x)).sum()) / (1 << count)
    return Case(
        name=f"2^{order} bits {bits}{' square' if square else ''}",
        dtype=dtype,
        function="partition_reduce",
        args=(x, bits),
        options={"square": square},
        peer="partition_reduce",
        given={"x": x, "bits": bits, "square": square},
        reference=lambda: sums(lib, lib.wide(x), bits, square),
        nbytes=x.nbytes,
        scale=scale,
    )


def sums(lib: Arrays, x: Any, bits: Sequence[int], square: bool) -> Any:
    """Return the sums over all bits that are not kept, by way of an axis per run of bits."""
    if square:
        x = x.real * x.real + x.imag * x.imag
    shape, kept = runs(x.shape[0].bit_length() - 1, bits)
    summed = tuple(axis for axis, keep in enumerate(kept) if not keep)
    x = x.reshape(shape)
    x = lib.xp.sum(x, summed) if summed else x
    stored = sorted(bits, reverse=True)
    wanted = [stored.index(bit) for bit in reversed(bits)]
    return lib.permute(x.reshape([2] * len(bits)), wanted).reshape(-1)


def runs(order: int, bits: Sequence[int]) -> tuple[list[int], list[bool]]:
    """Return the lengths of axes, one per run of bits alike, and which runs are kept."""
    shape: list[int] = []
    kept: list[bool] = []
    for bit in reversed(range(order)):
        if kept and kept[-1] == (bit in bits):
            shape[-1] *= 2
        else:
            shape.append(2)
            kept.append(bit in bits)
    return shape, kept
