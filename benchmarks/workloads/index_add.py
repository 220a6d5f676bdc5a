"""Workloads of index_add: '<count> [rows] into <length>, width <columns>[, deterministic]'.

A suffix ', zipf', ', sorted' or ', one' is the distribution of the positions: a few get most of
the rows, sorted, all the same one.  Without one they are uniform.
Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of

READS_ONLY = False

SMALL = (
    ("2^20 into 1e5, width 1", "float32"),
    ("2^22 into 1e6, width 1", "float32"),
    ("2^24 into 1e3, width 1", "float32"),
    ("1e5 rows into 1e4, width 128", "float32"),
    ("1e5 rows into 1e4, width 128", "float16"),
    ("1e5 rows into 1e4, width 128, deterministic", "float32"),
)

DEMO = ("1e5 rows into 1e4, width 64", "float32")

TINY = (
    ("1025 into 100, width 1", "float32"),
    ("129 rows into 33, width 16", "float32"),
)

SMOKE_COUNTS = (0, 1, 33, 257, 1025)


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    found = re.fullmatch(
        r"(\S+)(?: rows)? into (\S+), width (\d+)(, deterministic)?(?:, (zipf|sorted|one))?",
        name,
    )
    if not found:
        raise ValueError(f"not a workload of index_add: {name!r}")
    count, length, width = number(found[1]), number(found[2]), int(found[3])
    shape = (width,) if width > 1 else ()
    x = random((length, *shape), dtype, rng)
    index = positions(found[5], length, count, rng)
    source = random((count, *shape), dtype, rng)
    options: dict[str, Any] = {"deterministic": True} if found[4] else {}
    return Problem(
        "index_add", name, dtype, (x, index, source), options, judge(x, index, source)
    )


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes, axes and modes."""
    from gpuopt import ref

    for dtype in ("bool", "int8", "int32", "int64", "float16", "float32", "float64"):
        for count in SMOKE_COUNTS:
            for shape, axis in (((20,), 0), ((7, 16), 0), ((5, 9), 1)):
                for options in ({}, {"mode": "wrap"}):
                    reach = shape[axis] * (3 if "mode" in options else 1)
                    rows = tuple(count if d == axis else n for d, n in enumerate(shape))
                    x, source = positive(shape, dtype, rng), positive(rows, dtype, rng)
                    index = rng.integers(-reach, reach, count, np.int64)
                    given: dict[str, Any] = {"axis": axis, **options}
                    want = ref.index_add(x, index, source, **given)
                    yield Problem(
                        "index_add",
                        f"{count} into {shape} axis {axis} {options}",
                        dtype,
                        (x, index, source),
                        given,
                        near(want, x, index, source, given),
                    )


def number(text: str) -> int:
    """Read '1e6', '2^25' or '1000'."""
    base, _, power = text.partition("^")
    return int(base) ** int(power) if power else int(float(text))


# ---- inputs ----


def positions(pattern: str | None, length: int, count: int, rng: np.random.Generator) -> Array:
    """Return `count` int64 positions in [0, length)."""
    if pattern == "one":
        return np.full(count, length // 2, np.int64)
    if pattern == "zipf":
        return np.minimum(rng.zipf(1.3, count), length) - 1
    index = rng.integers(0, length, count, np.int64)
    if pattern == "sorted":
        index.sort()
    return index


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return new data: whole numbers, or floats around 0 whose sums stay small."""
    kind = dtype_of(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        return rng.integers(0, 100, shape, kind)
    x = rng.random(shape, np.float32)
    x -= np.float32(0.5)
    return x.astype(kind, copy=False)


def positive(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return the same without negative floats: half a sum then exceeds the error bound."""
    x = random(shape, dtype, rng)
    return np.abs(x) if x.dtype.kind == "f" else x


# ---- the check of a result ----


def judge(x: Array, index: Array, source: Array) -> Any:
    """Return the check of a result on a few columns, in float64."""
    wide = source.reshape(len(source), -1)
    columns = np.unique(np.linspace(0, wide.shape[1] - 1, 4).astype(int))
    kept = x.reshape(len(x), -1)
    sums, sizes = [], []
    for c in columns:
        part = wide[:, c].astype(np.float64)
        sums.append(np.bincount(index, part, len(x)) + kept[:, c])
        sizes.append(np.bincount(index, np.abs(part), len(x)) + np.abs(kept[:, c]))
    want, size = np.stack(sums, 1), np.stack(sizes, 1)
    terms = np.bincount(index, minlength=len(x))[:, None]

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != x.shape:
            return f"shape {got.shape}, expected {x.shape}"
        error = np.abs(got.reshape(len(x), -1)[:, columns].astype(np.float64) - want)
        bound = (2 * terms + 4) * precision(x.dtype) * size
        wrong = int(np.count_nonzero(~(error <= bound)))
        return f"{wrong} of {error.size} values off by up to {error.max():.3g}" if wrong else ""

    return check


def near(want: Array, x: Array, index: Array, source: Array, given: dict[str, Any]) -> Any:
    """Return the check against a small result: equal, or each element within its bound."""
    from gpuopt import ref

    wide = np.float64 if x.dtype.kind == "f" else np.int64
    size = ref.index_add(np.abs(x.astype(wide)), index, np.abs(source.astype(wide)), **given)
    ones = np.ones(source.shape, np.int64)
    terms = ref.index_add(np.zeros(x.shape, np.int64), index, ones, **given)

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        if x.dtype.kind in "biu":
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {got.size} values wrong" if wrong else ""
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        bound = (2 * terms + 4) * precision(x.dtype) * size
        wrong = int(np.count_nonzero(~(error <= bound)))
        return f"{wrong} of {got.size} values off by up to {error.max():.3g}" if wrong else ""

    return check


def precision(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating dtype; 2^-8 for bfloat16."""
    return 2.0**-8 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps) / 2
