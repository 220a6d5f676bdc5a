"""Workloads of upsample_nearest: '(N,C,H,W) x<scale>'.

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape, picked

READS_ONLY = False

SMALL = (
    ("(1,16,64,64) x2", "float32"),
    ("(2,16,128,128) x2", "float32"),
    ("(2,16,128,128) x2", "float16"),
    ("(2,16,128,128) x3", "float32"),
    ("(2,16,128,128) x1.5", "float32"),
    ("(8,16,256,256) x2", "float32"),
)

DEMO = ("(2,16,128,128) x2", "float32")

TINY = (
    ("(1,2,6,16) x2", "float32"),
    ("(1,2,6,16) x2", "float16"),
    ("(1,2,5,7) x1.5", "float32"),
)

SMOKE_SHAPES = (
    *((1, 1, 1, 1), (2, 3, 4, 8), (1, 2, 5, 7), (2, 1, 31, 33), (0, 2, 3, 4)),
    *((1, 16, 8, 8), (3, 2, 1, 257), (1, 1, 64, 2), (1, 4, 6, 10)),
)

SMOKE_OPTIONS: tuple[dict[str, Any], ...] = (
    {"scale": 2.0},
    {"scale": 2.0, "layout": "NHWC"},
    {"size": (7, 9), "exact": True},
    {"scale": (1.0, 3.0)},
)


def parse(name: str, op: str) -> tuple[tuple[int, ...], float]:
    """Read '(8,16,512,512) x2' as a shape and a scale."""
    found = re.fullmatch(r"(\([\d,]+\)) x(\d+(?:\.\d+)?)", name)
    if not found:
        raise ValueError(f"not a workload of {op}: {name!r}")
    shape = parse_shape(found[1])
    if len(shape) != 4:
        raise ValueError(f"not a workload of {op}: {name!r}")
    return shape, float(found[2])


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    shape, scale = parse(name, "upsample_nearest")
    x = numbers(shape, dtype, rng)
    return Problem("upsample_nearest", name, dtype, (x,), {"scale": scale}, judge(x, scale))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, shapes and options."""
    from gpuopt import ref

    for dtype in ("uint8", "float16", "float32", "complex128"):
        for shape in SMOKE_SHAPES:
            for options in SMOKE_OPTIONS:
                x = numbers(shape, dtype, rng)
                want = ref.upsample_nearest(x, **options)
                name = f"{shape} {options}"
                yield Problem("upsample_nearest", name, dtype, (x,), options, equal(want))


def numbers(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return whole numbers up to 8, whose sums are exact in any dtype and any order."""
    return rng.integers(0, 9, shape, dtype=np.uint8).astype(dtype_of(dtype))


def equal(want: Array) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing."""

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        wrong = int(np.count_nonzero(~(picked(got) == picked(want))))
        return f"{wrong} of the judged values are wrong" if wrong else ""

    return check


def judge(x: Array, scale: float) -> Callable[[Any], str]:
    """Check the elements of an enlarged x that `picked` selects against their sources."""
    from gpuopt import ref

    h, w = (ref.upsample_sources(n, None, scale) for n in x.shape[2:])
    shape = (*x.shape[:2], h.size, w.size)
    size = x.shape[0] * x.shape[1] * h.size * w.size
    at = np.arange(size) if size <= 1 << 22 else np.arange(0, size, 61)
    if size > 1 << 22:
        at = np.concatenate([at, np.arange(size - 4096, size)])

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != shape:
            return f"shape {got.shape}, expected {shape}"
        n, c, row, column = np.unravel_index(at, shape)
        wrong = int(np.count_nonzero(~(picked(got) == x[n, c, h[row], w[column]])))
        return f"{wrong} of {at.size} judged values are wrong" if wrong else ""

    return check
