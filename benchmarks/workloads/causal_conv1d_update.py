"""Workloads of causal_conv1d_update: 'B<sequences> C<channels> K<taps>', one step of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from gpuopt.benchmarks.workloads.causal_conv1d import normal
from gpuopt.lab.workloads import Array, Problem

READS_ONLY = False

SMALL = (("B64 C4096 K4", "float32"), ("B64 C4096 K4", "bfloat16"), ("B1 C2048 K4", "float32"))

DEMO = ("B64 C1024 K4", "float32")

TINY = (("B2 C3 K4", "float32"), ("B1 C20 K3", "float64"))


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    found = re.fullmatch(r"B(\d+) C(\d+) K(\d+)", name)
    if not found:
        raise ValueError(f"not a workload of causal_conv1d_update: {name!r}")
    b, c, k = map(int, found.groups())
    return update(name, dtype, (b, c, k, 1, k - 1), rng)


def update(name: str, dtype: str, size: tuple[int, ...], rng: np.random.Generator) -> Problem:
    """Build L steps of B sequences behind S steps of state; size is (B, C, K, L, S)."""
    b, c, k, steps, kept = size
    state, w = normal((b, c, kept), dtype, rng), normal((c, k), dtype, rng)
    x = normal((b, c) if steps == 1 else (b, c, steps), dtype, rng)
    return Problem(
        "causal_conv1d_update", name, dtype, (state, x, w), {}, partial(check, state, x, w)
    )


def check(state: Array, x: Array, w: Array, result: tuple[Array, Array]) -> str:
    """Return what is wrong, '' if nothing: y to a few roundings of its terms, the state."""
    if len(result) != 2:
        return f"{len(result)} results, expected 2"
    steps = x.reshape(*x.shape[:2], -1).astype(np.float64)
    row = np.concatenate([state.astype(np.float64), steps], 2)
    taps, n = w.shape[1], steps.shape[2]
    past = np.lib.stride_tricks.sliding_window_view(row, taps, 2)[:, :, -n:]
    terms = past * w[:, None].astype(np.float64)
    units = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
    limit = units.get(x.dtype.name, 2.0**-24) * (taps + 2) * np.abs(terms).sum(3)
    limit += 2.0**-25 * (x.dtype.itemsize == 2)  # half the smallest float16
    y, after = (np.asarray(a).astype(np.float64) for a in result)
    if y.shape != x.shape or after.shape != state.shape:
        return f"shapes {y.shape} and {after.shape}"
    bad = int(np.count_nonzero(~(np.abs(y.reshape(steps.shape) - terms.sum(3)) <= limit)))
    moved = row[:, :, n:]
    other = int(np.count_nonzero(~(after == moved)))
    return f"{bad} results and {other} steps of the state are wrong" if bad or other else ""


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes and sizes."""
    sizes = (
        *((1, 1, 1, 1, 1), (2, 3, 4, 1, 3), (3, 17, 4, 1, 5), (2, 40, 3, 6, 4)),
        *((5, 16, 2, 2, 1), (1, 300, 4, 1, 3), (4, 5, 9, 3, 8), (1, 33, 40, 2, 39)),
        *((2, 2, 4, 9, 3), (7, 18, 3, 1, 2)),
    )
    for turn, size in enumerate(sizes):
        for dtype in ("float16", "float32", "float64"):
            yield update(f"{turn}", dtype, size, rng)
