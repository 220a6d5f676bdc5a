"""Workloads of upsample_nearest_backward: '(N,C,H,W) x<scale>', the shape that was enlarged.

Order: the lists, the problems, the check of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.benchmarks.workloads.upsample_nearest import (
    DEMO,
    READS_ONLY,
    SMALL,
    SMOKE_OPTIONS,
    SMOKE_SHAPES,
    TINY,
    equal,
    numbers,
    parse,
)
from gpuopt.lab.workloads import Array, Problem

__all__ = ["DEMO", "READS_ONLY", "SMALL", "TINY", "problem", "smoke"]


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    shape, scale = parse(name, "upsample_nearest_backward")
    enlarged = tuple(int(n * scale) for n in shape[2:])
    dy = numbers((*shape[:2], *enlarged), dtype, rng)
    options = {"input_shape": shape, "scale": scale}
    check = judge(dy, shape, scale)
    return Problem("upsample_nearest_backward", name, dtype, (dy,), options, check)


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, shapes and options."""
    from gpuopt import ref

    for dtype in ("uint8", "float16", "float32", "complex128"):
        for shape in SMOKE_SHAPES:
            for options in SMOKE_OPTIONS:
                made = ref.upsample_nearest(np.zeros(shape, np.int8), **options)
                dy = numbers(made.shape, dtype, rng)
                given = {"input_shape": shape, **options}
                want = ref.upsample_nearest_backward(dy, **given)
                name = f"{shape} {options}"
                yield Problem(
                    "upsample_nearest_backward", name, dtype, (dy,), given, equal(want)
                )


def rows_of(plane: int, height: int) -> set[int]:
    """Return 8 rows that differ from plane to plane, and the last one."""
    return {(37 * plane + height * j // 8) % height for j in range(8)} | {height - 1}


def judge(dy: Array, shape: tuple[int, ...], scale: float) -> Callable[[Any], str]:
    """Check sums of whole numbers, which are exact: the last row and 8 more of each plane."""
    from gpuopt import ref

    _, _, height, width = shape
    h, w = (ref.upsample_sources(n, None, scale) for n in shape[2:])
    first = np.searchsorted(h, np.arange(height + 1))
    planes = dy.reshape(-1, *dy.shape[2:])

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != shape:
            return f"shape {got.shape}, expected {shape}"
        wrong = judged = 0
        for k, mine in enumerate(got.reshape(-1, height, width)):
            for row in {(37 * k + 8 * height * j // 64) % height for j in range(8)} | {
                height - 1
            }:
                terms = planes[k, first[row] : first[row + 1]].sum(0, dtype=np.float64)
                want = np.bincount(w, terms, width)
                wrong += int(np.count_nonzero(~(mine[row] == want)))
                judged += width
        return f"{wrong} of {judged} judged values are wrong" if wrong else ""

    return check
