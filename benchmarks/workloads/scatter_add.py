"""Workloads of scatter_add: '<n> <pattern> into <size> [raise]'.

`random` draws the places uniformly, `sorted` sorts them, `zipf` gives a few places most of the
values, `one` uses only one place, `low` takes the low bits of the position: the partition by
bits 0..k-1 of the source document.  Calls use mode="clip", which does not wait, like the peers;
with `raise` they use the default, which waits for the check of the indices.
Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape

READS_ONLY = True

SMALL = (
    ("2^16 random into 1024", "float64"),
    ("2^20 random into 1024", "float64"),
    ("2^22 random into 1024", "float32"),
    ("2^22 random into 1024 raise", "float64"),
    ("2^22 sorted into 1024", "float64"),
    ("2^22 random into 100000", "float64"),
    ("2^22 random into 7", "int32"),
)

DEMO = ("2^22 random into 1024", "float32")

TINY = (("4097 random into 100", "float32"), ("1025 low into 32", "float64"))

PATTERNS = ("random", "sorted", "zipf", "one", "low")

SMOKE_SIZES = (0, 1, 31, 33, 257, 1025)
SMOKE_PLACES = (1, 32, 1000)


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    parts = name.split()
    mode = "clip"
    if parts[-1:] == ["raise"]:
        mode = parts.pop()
    if len(parts) != 4 or parts[2] != "into" or parts[1] not in PATTERNS:
        raise ValueError(f"not a workload of scatter_add: {name!r}")
    (n,) = parse_shape(parts[0])
    (size,) = parse_shape(parts[3])
    values, index = random(n, dtype, rng), places(n, parts[1], size, rng)
    options: dict[str, Any] = {"size": size, "mode": mode}
    return Problem(
        "scatter_add", name, dtype, (values, index), options, judge(values, index, size)
    )


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and modes."""
    names = ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"]
    for dtype in [*names, "complex64"]:
        for n in SMOKE_SIZES:
            for size in SMOKE_PLACES:
                values = random(n, dtype, rng)
                index = rng.integers(-size, size, n)
                for mode in ("raise", "wrap"):
                    yield Problem(
                        "scatter_add",
                        f"{n} into {size} {mode}",
                        dtype,
                        (values, index),
                        {"size": size, "mode": mode},
                        judge(values, index % size, size),
                    )


# ---- inputs ----


def random(n: int, dtype: str, rng: np.random.Generator) -> Array:
    """Return values of which a sum of some thousand stays in the range of float16."""
    kind = dtype_of(dtype)
    if kind.kind == "b":
        return rng.random(n) < 0.5
    if kind.kind in "iu":
        return rng.integers(0 if kind.kind == "u" else -100, 100, n).astype(kind)
    if kind.kind == "c":
        return (rng.random(n) + 1j * rng.random(n)).astype(kind)
    return (rng.random(n, np.float32) - np.float32(0.5)).astype(kind)


def places(n: int, pattern: str, size: int, rng: np.random.Generator) -> Array:
    """Return n int64 places in [0, size)."""
    if pattern == "low":
        return np.arange(n, dtype=np.int64) % size
    if pattern == "one":
        return np.full(n, size // 2, np.int64)
    if pattern == "zipf":
        return np.minimum(rng.zipf(1.3, n), size) - 1
    index = rng.integers(0, size, n, dtype=np.int64)
    if pattern == "sorted":
        index.sort()
    return index


# ---- the check of a result ----


def judge(values: Array, index: Array, size: int) -> Any:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    The error of a sum of k terms in any order is at most k eps sum|x|, with eps of float32, or
    of float64 for 64-bit dtypes, and one rounding to the result's own dtype.
    """

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != (size,):
            return f"shape {got.shape}, expected {(size,)}"
        if values.dtype.kind in "biu":
            want = np.zeros(size, np.int64)
            np.add.at(want, index, values.astype(np.int64))
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {size} sums wrong" if wrong else ""
        count = np.bincount(index, minlength=size)
        total = np.bincount(index, np.abs(values).astype(np.float64), size)
        want = np.bincount(index, values.real.astype(np.float64), size)
        error = np.abs(got.real.astype(np.float64) - want)
        if values.dtype.kind == "c":
            imaginary = np.bincount(index, values.imag.astype(np.float64), size)
            error = np.hypot(error, np.abs(got.imag.astype(np.float64) - imaginary))
        double = values.dtype in (np.float64, np.complex128)
        u = 2.0**-53 if double else 2.0**-24
        unit = {2: 2.0**-8, 4: 2.0**-24}.get(got.real.dtype.itemsize, 2.0**-53)
        bound = (2 * count * u + 2 * unit) * total
        with np.errstate(invalid="ignore"):  # a nan is wrong
            wrong = int(np.count_nonzero(~(error <= bound)))
        if not wrong:
            return ""
        return f"{wrong} of {size} sums off by up to {np.max(error):.3g}"

    return check
