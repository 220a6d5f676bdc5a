"""Workloads of max_pool3d: '(N,C,T,H,W) k<kernel> s<stride>'.

Order: the lists, the 25 cases, inputs, windows in NumPy, the check of a result, the problems.
The report that the ladder follows has 25 cases but does not list them: those here are ours,
with the kernels, strides and sizes that its text names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape

READS_ONLY = False

SMALL = (
    ("(4,8,32,32,32) k2 s1", "float32"),
    ("(4,8,32,32,32) k8 s1", "float32"),
    ("(4,8,32,32,32) k2 s2", "float32"),
    ("(4,8,32,32,32) k3 s1", "float32"),
    ("(4,8,32,32,32) k3 s2", "float16"),
    ("(16,64,8,8,8) k8 s1", "float32"),
    ("(1,4,64,64,64) k8 s8", "float32"),
)

DEMO = ("(1,8,24,24,24) k3 s1", "float32")

TINY = (("(1,2,8,8,8) k8 s1", "float32"), ("(1,2,6,9,10) k2 s2", "float16"))

# ---- the 25 cases: T = H = W in 8 and 32, 64 channels and more ----

_WINDOWS: dict[int, tuple[tuple[int, int], ...]] = {8: ((2, 1), (2, 2), (3, 1), (3, 2), (8, 1))}
_WINDOWS[32] = (*_WINDOWS[8], (8, 2), (8, 8))
CASES = (
    *(
        f"(16,{channels},{side},{side},{side}) k{kernel} s{stride}"
        for channels, side in itertools.product((64, 128), (8, 32))
        for kernel, stride in _WINDOWS[side]
    ),
    "(128,512,8,8,8) k2 s2",
)

SMOKE_WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": (2, 3, 4), "stride": (1, 2, 1), "ceil_mode": True},
    {"kernel_size": 2, "stride": 1, "dilation": (1, 2, 3)},
    {"kernel_size": 8, "stride": 1, "padding": 4},
)
SMOKE_SHAPES = ((2, 3, 4, 6, 8), (1, 1, 9, 5, 35), (3, 2, 8, 8, 8), (1, 2, 5, 4, 70))

# ---- inputs ----


def read(name: str) -> tuple[tuple[int, ...], int, int]:
    """Return the shape, the kernel and the stride that a name says."""
    found = re.fullmatch(r"(\([\d,]+\)) k(\d+) s(\d+)", name)
    shape = parse_shape(found[1]) if found else ()
    if not found or len(shape) != 5:
        raise ValueError(f"not a workload of max_pool3d: {name!r}")
    return shape, int(found[2]), int(found[3])


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return numbers in [0, 1), or integers from a tenth of the dtype's range."""
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        return rng.integers(0, int(np.iinfo(kind).max) // 10, shape).astype(kind)
    return rng.random(shape, np.float32).astype(kind, copy=False)


# ---- windows in NumPy ----


def pooled(x: Array, kernel: int, stride: int) -> Array:
    """Return the maxima, one axis at a time, each window from two of half the size."""
    for axis in (2, 3, 4):
        y, made = np.moveaxis(x, axis, 0), 1
        while made < kernel:
            more = min(made, kernel - made)
            y = np.maximum(y[:-more], y[more:])
            made += more
        x = np.moveaxis(y[::stride], 0, axis)
    return x


def positions(x: Array, kernel: int, stride: int) -> Array:
    """Return the index of the first maximum of each window, for x in [0, 1)."""
    plane = np.arange(np.prod(x.shape[2:]), dtype=np.int64).reshape(x.shape[2:])
    keys = x.astype(np.float32).view(np.int32).astype(np.int64) << 32
    best = pooled(keys | (2**32 - 1 - plane), kernel, stride)
    return np.ascontiguousarray(2**32 - 1 - (best & (2**32 - 1)))


# ---- the check of a result ----


def judge(want: Array) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing."""

    def check(result: Any) -> str:
        got = np.asarray(result[0] if isinstance(result, tuple) else result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        wrong = int(np.count_nonzero(~(got == want)))
        return f"{wrong} of {got.size} values wrong" if wrong else ""

    return check


def judge_both(want: tuple[Array, Array]) -> Callable[[Any], str]:
    """Return the check of (y, indices)."""
    of_y, of_indices = judge(want[0]), judge(want[1])
    return lambda result: of_y(result[0]) or of_indices(result[1])


# ---- the problems ----


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    shape, kernel, stride = read(name)
    x = random(shape, dtype, rng)
    options = {"kernel_size": kernel, "stride": stride}
    ordered = x.astype(np.float32) if dtype in ("float16", "bfloat16") else x
    want = pooled(ordered, kernel, stride).astype(x.dtype)
    return Problem("max_pool3d", name, dtype, (x,), options, judge(want))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, shapes and windows, with and without indices."""
    from gpuopt import ref

    dtypes = ("float16", "float32", "float64", "int8", "uint16", "int32", "int64")
    for dtype, shape in itertools.product(dtypes, SMOKE_SHAPES):
        for turn, windows in enumerate(SMOKE_WINDOWS):
            x = random(shape, dtype, rng)
            options = dict(windows)
            try:
                want = ref.max_pool3d(x, **options, return_indices=True)
            except ValueError:  # no window
                continue
            check = judge(want[0])
            if turn % 2:
                options["return_indices"] = True
                check = judge_both(want)
            yield Problem("max_pool3d", f"{shape} {windows}", dtype, (x,), options, check)
