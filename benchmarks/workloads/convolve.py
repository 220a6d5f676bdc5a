"""Workloads of convolve: '<mode> <N> x <M>', lengths as 2^20 or 1000.

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape

READS_ONLY = False

SMALL = (
    ("full 2^14 x 7", "float32"),
    ("full 2^20 x 31", "float32"),
    ("full 2^16 x 255", "float32"),
    ("full 2^20 x 1024", "float32"),
    ("full 2^16 x 4096", "float32"),
    ("full 2^16 x 255", "float64"),
    ("full 2^16 x 1024", "float64"),
    ("full 2^16 x 255", "int64"),
    ("full 2^14 x 1024", "complex64"),
)

DEMO = ("full 2^16 x 255", "float32")

TINY = (("full 600 x 31", "float32"), ("same 200 x 9", "float64"))

SMOKE_SIZES = ((1, 1), (31, 32), (129, 17), (300, 257), (1000, 3), (1025, 600))


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    found = re.fullmatch(r"(full|same|valid) (\S+) x (\S+)", name)
    if not found:
        raise ValueError(f"not a workload of convolve: {name!r}")
    mode = found[1]
    a = random(parse_shape(found[2])[0], dtype, rng)
    v = random(parse_shape(found[3])[0], dtype, rng)
    return Problem("convolve", name, dtype, (a, v), {"mode": mode}, judge(a, v, mode))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and modes."""
    for dtype in ("uint8", "int64", "float16", "float32", "float64", "complex64"):
        for n, m in SMOKE_SIZES:
            for mode in ("full", "same", "valid"):
                a, v = random(n, dtype, rng), random(m, dtype, rng)
                name = f"{mode} {n} x {m}"
                yield Problem(
                    "convolve", name, dtype, (a, v), {"mode": mode}, judge(a, v, mode)
                )


def random(n: int, dtype: str, rng: np.random.Generator) -> Array:
    """Return numbers in [0, 1), complex ones in the unit square, or any integers."""
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, n, kind, endpoint=True)
    if kind.kind == "c":
        return (rng.random(n) + 1j * rng.random(n)).astype(kind)
    return rng.random(n).astype(kind)


def exact(a: Array, v: Array, mode: Any) -> Array:
    """Return the convolution in a wider type, for long rows by a float64 transform."""
    if a.dtype.kind in "iu":
        return np.convolve(a, v, mode)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), v.astype(wide)
    n, m = max(x.size, y.size), min(x.size, y.size)
    if n * m < 1 << 26 or a.dtype.kind == "c":
        return np.convolve(x, y, mode)
    length = 1 << (n + m - 2).bit_length()
    product = np.fft.rfft(x, length) * np.fft.rfft(y, length)
    full = np.fft.irfft(product, length)[: n + m - 1]
    first, count = {"full": (0, n + m - 1), "same": ((m - 1) // 2, n)}.get(
        mode, (m - 1, n - m + 1)
    )
    return full[first : first + count]


def judge(a: Array, v: Array, mode: str) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    No part of a factor is negative, so the bound of an element is relative to the
    convolution of the magnitudes: sums of 512 terms in order, twice that for complex, the
    sums of those, and the rounding of the result.  The error of a transform is relative to
    the norms of the rows.  A float32 row must also be within 1e-6 of its norm.
    """
    expected: list[tuple[Array, Array]] = []

    def bound(want: Array) -> Array:
        wide = a.dtype.name in ("float64", "complex128")
        m = min(a.size, v.size)
        steps = (2 * min(m, 512) + m / 512 + 8) * 2.0 ** (-53 if wide else -24)
        size = exact(np.abs(a), np.abs(v), mode) if a.dtype.kind == "c" else want
        norms = np.linalg.norm(a.astype(want.dtype)) * np.linalg.norm(v.astype(want.dtype))
        transform = 24 * (2.0**-47 if wide else 2.0**-24) * norms  # the reference's, too
        return np.asarray((steps + np.finfo(a.dtype).eps) * np.abs(size) + transform)

    def check(result: Any) -> str:
        if not expected:  # once, where a result is judged at all
            want = exact(a, v, mode)
            expected.append((want, want if want.dtype.kind in "iu" else bound(want)))
        got, (want, limit) = np.asarray(result), expected[0]
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        if want.dtype.kind in "iu":
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {got.size} values differ" if wrong else ""
        error = np.abs(got.astype(want.dtype) - want)
        wrong = int(np.count_nonzero(~(error <= limit)))
        if wrong:
            return f"{wrong} of {got.size} values off by up to {float(np.max(error)):.3g}"
        share = float(np.linalg.norm(error) / np.linalg.norm(want))
        if a.dtype == np.float32 and not share <= 1e-6:
            return f"the row is off by {share:.3g} of its norm"
        return ""

    return check
