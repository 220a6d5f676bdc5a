"""Drawn cases of convolve: a long array and a filter of any length, all three modes."""

from __future__ import annotations

import math
from typing import Any

from gpuopt.benchmarks.sweep.causal_conv1d import fast_length
from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

FEW = 100  # results


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    long = dice.log(64, 1 << dice.bits(20, 24))
    short = dice.log(2, min(long, 1 << 16))
    dtype = dice.one("float32", "float32", "float32", "float64", "complex64", "int32")
    mode = dice.one("full", "same", "valid")
    a, v = dice.array((long,), dtype), dice.array((short,), dtype)
    # Few sums of noise may all be near 0: an error is then relative to their usual size.
    few = mode == "valid" and long - short < FEW and dtype != "int32"
    return Case(
        name=f"{mode} {long} x {short}",
        dtype=dtype,
        function="convolve",
        args=(a, v),
        options={"mode": mode},
        peer="convolve",
        given={"a": a, "v": v, "mode": mode},
        reference=lambda: result(dice.lib, a, v, mode),
        nbytes=2 * a.nbytes,
        scale=math.sqrt(short) if few else None,
    )


def result(lib: Arrays, a: Any, v: Any, mode: str) -> Any:
    """Return the right result, by transforms in complex128; integers are rounded."""
    fft, long, short = lib.xp.fft, a.shape[0], v.shape[0]
    n = long + short - 1
    length = fast_length(n)
    spectra = (fft.fft(lib.astype(x, "complex128"), length) for x in (a, v))
    y = fft.ifft(next(spectra) * next(spectra))[:n]
    if lib.kind(a) != "c":
        y = y.real
    if lib.kind(a) == "i":
        y = lib.astype(lib.xp.round(y), "int64")
    first = {"full": 0, "same": (short - 1) // 2, "valid": short - 1}[mode]
    return y[first : first + {"full": n, "same": long, "valid": long - short + 1}[mode]]
