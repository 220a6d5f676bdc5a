"""Workloads of causal_conv1d: 'B<batches> C<channels> T<steps>', then ' K<taps>' unless K = T.

A last word ' fast' or ' half' is the requested precision.  Order: the lists, the problems,
inputs, the check of a result.  causal_conv1d_backward.py imports from this file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of

READS_ONLY = False

SMALL = (
    ("B4 C96 T768", "float32"),
    ("B4 C96 T768", "float64"),
    ("B2 C32 T2048", "float32"),
    ("B8 C256 T1024 K4", "float32"),
)

DEMO = ("B4 C96 T768", "float32")

TINY = (("B2 C2 T40", "float32"), ("B1 C1 T33 K4", "float64"))

SMOKE_SIZES = (
    *((1, 1, 1, 1), (2, 3, 5, 3), (33, 2, 17, 17), (3, 2, 129, 40), (1, 3, 7, 12)),
    *((2, 64, 257, 4), (9, 2, 300, 300), (1, 1, 1025, 8), (8, 3, 64, 64), (4, 5, 96, 33)),
)

#: The largest relative error of a row in the 2-norm, by requested precision.
CLASSES = {"fp32": 2e-6, "fast": 1e-5, "half": 1e-3}

JUDGED = 12  # channels of a large result


def parsed(name: str) -> tuple[int, int, int, int, str]:
    """Return B, C, T, K and the precision of a workload."""
    found = re.fullmatch(r"B(\d+) C(\d+) T(\d+)(?: K(\d+))?(?: (fast|half))?", name)
    if not found:
        raise ValueError(f"not a workload of causal_conv1d: {name!r}")
    b, c, t, k, precision = found.groups()
    return int(b), int(c), int(t), int(k or t), precision or "fp32"


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    b, c, t, k, precision = parsed(name)
    x, w = normal((b, c, t), dtype, rng), normal((c, k), dtype, rng)
    options = {} if precision == "fp32" else {"precision": precision}
    chosen = picked(c)

    def expected() -> tuple[Array, ...]:
        return (convolved(x[:, chosen], w[chosen]),)

    check = judge(expected, [(slice(None), chosen)], [(b, c, t)], dtype, precision)
    return Problem("causal_conv1d", name, dtype, (x, w), options, check)


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and options."""
    from gpuopt import ref

    for turn, (x, w, options) in enumerate(smoke_inputs(rng)):
        want = ref.causal_conv1d(x.astype(np.float64), w.astype(np.float64), **options)
        yield Problem(
            "causal_conv1d",
            f"{turn}",
            x.dtype.name,
            (x, w),
            options,
            judge(
                partial(tuple, [want]), [...], [x.shape], x.dtype.name, "fp32", time(options)
            ),
        )


# ---- inputs ----


def time(options: dict[str, Any]) -> int:
    """Return the axis of T."""
    return 1 if options.get("layout") == "BTC" else 2


def normal(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return normally distributed numbers."""
    if dtype == "float64":
        return rng.standard_normal(shape)
    return rng.standard_normal(shape, np.float32).astype(dtype_of(dtype), copy=False)


def smoke_inputs(rng: np.random.Generator) -> Iterator[tuple[Array, Array, dict[str, Any]]]:
    """Yield x, w and options."""
    for dtype in ("float16", "float32", "float64"):
        for b, c, t, k in SMOKE_SIZES:
            for options in ({}, {"layout": "BTC", "eps": 0.5}):
                rows = (b, t, c) if options else (b, c, t)
                yield normal(rows, dtype, rng), normal((c, k), dtype, rng), options


def picked(channels: int) -> Array:
    """Return the channels that are checked: all, or some including the first and last."""
    if channels <= JUDGED:
        return np.arange(channels)
    return np.unique(np.linspace(0, channels - 1, JUDGED).astype(int))


# ---- the check of a result ----


def convolved(x: Array, w: Array) -> Array:
    """Return the result by FFT in float64: exact to 1e-14 of a row's norm."""
    taps, steps = min(w.shape[1], x.shape[2]), x.shape[2]
    n = steps + taps
    lags = w[:, : -taps - 1 : -1].astype(np.float64)
    product = np.fft.rfft(x.astype(np.float64), n) * np.fft.rfft(lags, n)
    return np.asarray(np.fft.irfft(product, n)[:, :, :steps])


def judge(
    expected: Callable[[], tuple[Array, ...]],
    chosen: list[Any],
    shapes: list[tuple[int, ...]],
    dtype: str,
    precision: str,
    axis: int = 2,
) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    The error of a row, in the 2-norm and relative to the row, is limited by the precision
    of the call, besides the rounding of each element to a 16-bit dtype.  Rows of
    three-dimensional results run along `axis`.
    """
    limit = CLASSES[precision] if dtype != "float64" else 1e-13
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 0.0) * 1.01
    known: list[tuple[Array, ...]] = []

    def check(result: Any) -> str:
        known[:] = known or [expected()]
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(shapes):
            return f"{len(results)} results, expected {len(shapes)}"
        for got, want, at, shape in zip(results, known[0], chosen, shapes, strict=True):
            got = np.asarray(got)
            if got.shape != shape:
                return f"shape {got.shape}, expected {shape}"
            along = axis if want.ndim == 3 else 1
            off = np.abs(got[at].astype(np.float64) - want) - rounding * np.abs(want)
            off -= 2.0**-25 if rounding else 0.0  # half the smallest float16
            error = np.linalg.norm(np.maximum(off, 0), axis=along)
            size = np.linalg.norm(want, axis=along)
            bad = int(np.count_nonzero(~(error <= limit * size)))
            if bad:
                worst = float(np.max(error / np.maximum(size, 1e-300)))
                return f"{bad} of {error.size} rows off by up to {worst:.3g} of their size"
        return ""

    return check
