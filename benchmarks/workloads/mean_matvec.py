"""Workloads of mean_matvec: 'N<batches> L<rows> M<cols>', the matrix (L, L).

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of

READS_ONLY = True

SMALL = (
    ("N16 L64 M64", "float32"),
    ("N64 L128 M128", "float32"),
    ("N64 L256 M256", "float32"),
    ("N64 L256 M256", "float64"),
    ("N1024 L128 M32", "float32"),
)

DEMO = ("N64 L256 M256", "float32")

TINY = (("N2 L33 M40", "float32"), ("N3 L16 M17", "float64"))

SMOKE_SIZES = (
    *((1, 1, 1, 1), (3, 5, 7, 4), (33, 17, 64, 65), (2, 64, 513, 3), (2, 0, 3, 2)),
    *((1, 31, 32, 33), (64, 3, 5, 2), (1, 2, 1025, 5), (5, 255, 2, 7), (2, 33, 40, 5)),
    (32, 16, 8, 64),
)


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    found = re.fullmatch(r"N(\d+) L(\d+) M(\d+)", name)
    if not found:
        raise ValueError(f"not a workload of mean_matvec: {name!r}")
    batches, rows, cols = map(int, found.groups())
    x = random((batches, rows, cols), dtype, rng)
    matrix = random((rows, rows), dtype, rng)
    return Problem("mean_matvec", name, dtype, (x, matrix), {}, judge(x, matrix))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and layouts."""
    from gpuopt import ref

    for dtype in ("float16", "float32", "float64"):
        for batches, rows, cols, outputs in SMOKE_SIZES:
            for layout in ("LN", "NL"):
                x = random((batches, rows, cols), dtype, rng)
                matrix = random((outputs, rows), dtype, rng)
                want = ref.mean_matvec(x, matrix, layout)
                yield Problem(
                    "mean_matvec",
                    f"{batches} {rows} {cols} {outputs} {layout}",
                    dtype,
                    (x, matrix),
                    {"layout": layout},
                    judge(x, matrix, want),
                )


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return numbers in [0, 1); drawn in the dtype itself where NumPy can."""
    kind = dtype_of(dtype)
    if kind == np.float64:
        return rng.random(shape)
    return rng.random(shape, np.float32).astype(kind, copy=False)


def judge(x: Array, matrix: Array, want: Array | None = None) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    No factor is negative, so the error bound is relative to the result itself: L + 18
    roundings in the accumulator's type, and one of the result.
    """
    wide = np.float64 if x.dtype != np.float64 else np.longdouble
    rows = x.shape[1]
    if want is None:
        means = x.mean(2, dtype=np.float64)
        want = matrix.astype(np.float64) @ means.T
        slack = 2.0 * (rows + 18)  # the float64 reference has errors, too
    else:
        slack = rows + 18.0
    inner = 2.0**-53 if x.dtype == np.float64 else 2.0**-24
    steps = slack * inner + float(np.finfo(x.dtype).eps)
    expected = np.asarray(want)

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != expected.shape:
            return f"shape {got.shape}, expected {expected.shape}"
        if got.size == 0:
            return ""
        error = np.abs(got.astype(wide) - expected.astype(wide))
        wrong = int(np.count_nonzero(~(error <= steps * np.abs(expected))))
        if not wrong:
            return ""
        return f"{wrong} of {got.size} values off by up to {float(np.max(error)):.3g}"

    return check
