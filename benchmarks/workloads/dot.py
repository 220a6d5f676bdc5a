"""Workloads of dot: '2^25', the length of both vectors.

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape

READS_ONLY = True

SMALL = (
    ("2^16", "float32"),
    ("2^20", "float32"),
    ("2^25", "float32"),
    ("2^25", "float64"),
    ("2^25", "float16"),
    ("2^25", "int32"),
)

DEMO = ("2^24", "float16")

TINY = (("4097", "float16"), ("1025", "float16"))

SMOKE_SIZES = (0, 1, 31, 33, 257, 1025)

# 128 products of at most 2: no partial sum exceeds 256, up to which bfloat16 has all integers.
NONZERO = 128

# An error bound (ceil(log2 n) + SLACK) * eps * sum|x y|; see gpuopt.dot.
SLACK = 14


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    shape = parse_shape(name)
    if len(shape) != 1:
        raise ValueError(f"not a workload of dot: {name!r}")
    x, y = pair(shape[0], dtype, rng)
    return Problem("dot", name, dtype, (x, y), {}, judge(x, y))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes and sizes."""
    names = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
    for dtype in [*names, "complex64", "complex128"]:
        for size in SMOKE_SIZES:
            x, y = pair(size, dtype, rng)
            yield Problem("dot", str(size), dtype, (x, y), {}, judge(x, y))


# ---- inputs ----


def pair(n: int, dtype: str, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return two vectors.

    16-bit floats are whole numbers and x is 0 except for NONZERO elements: the rungs that
    add in 16 bits are then exact in any order, so the check is exact for all.
    """
    kind = dtype_of(dtype)
    if kind.itemsize != 2 or kind.kind in "iu":
        return random(n, dtype, rng), random(n, dtype, rng)
    x, y = np.zeros(n, kind), rng.integers(0, 2, n, np.int8, endpoint=True).astype(kind)
    if n:
        x[rng.integers(0, n, NONZERO)] = 1
    return x, y


def random(n: int, dtype: str, rng: np.random.Generator) -> Array:
    """Return new data: floats centred on 0, integers whose sums may wrap."""
    kind = dtype_of(dtype)
    if kind.kind == "b":
        return rng.random(n) < 0.5
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -100
        return rng.integers(low, 100, n, dtype=kind, endpoint=True)
    if kind.kind == "c":
        return (rng.random(n) + 1j * rng.random(n) - (0.5 + 0.5j)).astype(kind)
    x = rng.random(n, np.float32 if kind == np.float32 else np.float64)
    x -= kind.type(0.5)
    return x


# ---- the check of a result ----


def judge(x: Array, y: Array) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing."""
    if x.dtype.kind in "biu":
        want = np.dot(x, y)

        def check_whole(result: Any) -> str:
            got = np.asarray(result)
            if got.shape != ():
                return f"shape {got.shape}, expected ()"
            return "" if got == want else f"{got}, expected {want}"

        return check_whole

    exact, size = sums(x, y)
    unit = precision(x.dtype)
    inner = min(unit, precision(np.dtype(np.float32)))
    steps = math.ceil(math.log2(max(x.size, 2))) + SLACK
    bound = 2 * steps * inner * size + 2 * unit * abs(exact)

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != ():
            return f"shape {got.shape}, expected ()"
        error = abs(complex(got) - complex(exact))
        return "" if error <= bound else f"off by {error:.3g}"

    return check


def sums(x: Array, y: Array) -> tuple[Any, float]:
    """Return the sum of products and that of their magnitudes, in double, by pieces."""
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    total, size = wide(0), 0.0
    piece = 1 << 22
    for k in range(0, x.size, piece):
        products = x[k : k + piece].astype(wide) * y[k : k + piece].astype(wide)
        total += products.sum()
        size += float(np.abs(products).sum())
    return total, size


def precision(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating dtype; 2^-8 for bfloat16."""
    return 2.0**-8 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps) / 2
