"""Workloads of max_pool3d_backward: those of max_pool3d, with int64 indices.

Order: the lists, the check of a result, the problems.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.benchmarks.workloads.max_pool3d import (
    SMOKE_SHAPES,
    SMOKE_WINDOWS,
    positions,
    random,
    read,
)
from gpuopt.lab.workloads import Array, Problem

READS_ONLY = False

SMALL = (
    ("(4,8,32,32,32) k2 s2", "float32"),
    ("(4,8,32,32,32) k3 s1", "float32"),
    ("(4,8,32,32,32) k8 s1", "float32"),
    ("(4,8,32,32,32) k2 s2", "float64"),
)

DEMO = ("(1,8,24,24,24) k3 s1", "float32")

TINY = (("(1,2,8,8,8) k3 s1", "float32"), ("(1,2,6,8,10) k2 s2", "float64"))


def judge(dy: Array, indices: Array, shape: tuple[int, ...]) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    No gradient is negative, so the error bound of n additions is relative to the sum.
    """
    planes, size = shape[0] * shape[1], int(np.prod(shape[2:]))
    places = indices.reshape(planes, -1) + np.arange(planes)[:, None] * size
    places, values = places.reshape(-1), dy.reshape(-1).astype(np.float64)
    want = np.bincount(places, values, planes * size).reshape(shape)
    most = int(np.bincount(places, minlength=1).max(initial=1))
    inner = 2.0**-53 if dy.dtype == np.float64 else 2.0**-24
    steps = 2 * most * inner + float(np.finfo(dy.dtype).eps)

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        error = np.abs(got.astype(np.float64) - want)
        wrong = int(np.count_nonzero(~(error <= steps * want)))
        return f"{wrong} of {got.size} values wrong" if wrong else ""

    return check


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    shape, kernel, stride = read(name)
    indices = positions(random(shape, "float32", rng), kernel, stride)
    dy = random(indices.shape, dtype, rng)
    options = {"input_shape": shape, "kernel_size": kernel, "stride": stride}
    check = judge(dy, indices, shape)
    return Problem("max_pool3d_backward", name, dtype, (dy, indices), options, check)


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, shapes and windows, with and without their options."""
    from gpuopt import ref

    dtypes = ("float16", "float32", "float64")
    for dtype, shape in itertools.product(dtypes, SMOKE_SHAPES):
        for windows, given in itertools.product(SMOKE_WINDOWS, (True, False)):
            x = random(shape, "float32", rng)
            try:
                _, indices = ref.max_pool3d(x, **windows, return_indices=True)
            except ValueError:  # no window
                continue
            if indices.min() < 0:
                continue
            dy = random(indices.shape, dtype, rng)
            options: dict[str, Any] = {"input_shape": shape}
            if given:
                options |= {k: v for k, v in windows.items() if k != "ceil_mode"}
            yield Problem(
                "max_pool3d_backward",
                f"{shape} {windows}" + ("" if given else " alone"),
                dtype,
                (dy, indices),
                options,
                judge(dy, indices, shape),
            )
