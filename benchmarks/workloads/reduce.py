"""Workloads of reduce: '<reduction> <shape> [axis<k>]'.

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape

READS_ONLY = True

SMALL = (
    ("sum 2^13", "float32"),
    ("sum 2^20", "float32"),
    ("sum 2^25", "float32"),
    ("sum 2^25", "float64"),
    ("sum 2^25", "int32"),
    ("sum (262144,64) axis1", "float32"),
    ("sum (64,262144) axis0", "float32"),
    ("argmax (1024,16384) axis1", "float32"),
)

DEMO = ("sum 2^25", "float32")

TINY = (("sum 2^13", "float32"), ("sum 4097", "float32"), ("sum (33,129) axis1", "float32"))

SMOKE_SIZES = (0, 1, 31, 33, 257, 1025)
SMOKE_SHAPE = (7, 5, 33)
SMOKE_COLUMNS = (211, 3)
SMOKE_TRANSPOSED = (35, 3, 67)
ARGS = ("argmin", "argmax")
WHOLE = "biu"  # NumPy's kinds of dtypes whose results are exact

# Terms of an error bound (ceil(log2 n) + SLACK) * eps * sum|x|: pairwise summation of
# runs of up to 2^SLACK elements each.
SLACK = 12


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    parts = name.split()
    axis = None
    if len(parts) == 3 and parts[2].startswith("axis"):
        axis = int(parts.pop().removeprefix("axis"))
    if len(parts) != 2:
        raise ValueError(f"not a workload of reduce: {name!r}")
    op, shape = parts[0], parse_shape(parts[1])
    x = random(shape, dtype, rng)
    options: dict[str, Any] = {"op": op}
    if axis is not None:
        options["axis"] = axis
    return Problem(
        "reduce", name, dtype, (x,), options, judge(x, op, axis, expected(x, op, axis))
    )


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes, axes and reductions."""
    from gpuopt import ref

    names = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
    for dtype in [*names, "complex64"]:
        ops = ["sum", "prod", "mean"]
        if dtype != "complex64":
            ops += ["min", "max", "argmin", "argmax", "any", "all"]
        shapes: list[tuple[tuple[int, ...], int | None]]
        shapes = [((size,), None) for size in SMOKE_SIZES]
        shapes += [(SMOKE_SHAPE, axis) for axis in range(3)]
        shapes += [(SMOKE_COLUMNS, 0)]
        for op in ops:
            for shape, axis in shapes:
                if op in ("min", "max", "mean", *ARGS) and 0 in shape:
                    continue
                x = random(shape, dtype, rng)
                if op == "prod" and x.dtype.kind not in WHOLE:
                    x = near_one(x)
                want = ref.reduce(x, op=op, axis=axis)
                label = f"{op} {shape} axis={axis}".replace(" axis=None", "")
                yield Problem(
                    "reduce",
                    label,
                    dtype,
                    (x,),
                    {"op": op, "axis": axis},
                    judge(x, op, axis, want),
                )
            x = random(SMOKE_TRANSPOSED, dtype, rng)
            x = near_one(x) if op == "prod" and x.dtype.kind not in WHOLE else x
            for name, part in (("transposed", x.T), ("every second of", x[0, :, ::2])):
                label = f"{op} {name} {SMOKE_TRANSPOSED} axis=1"
                check = judge(part, op, 1, ref.reduce(part, op=op, axis=1))
                yield Problem("reduce", label, dtype, (part,), {"op": op, "axis": 1}, check)


# ---- inputs ----


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return new data whose sums neither cancel nor overflow.

    float16 is centred on 0: 2^28 positive ones would exceed 65504.
    """
    kind = dtype_of(dtype)
    if kind.kind == "b":
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -100
        return rng.integers(low, 100, shape, dtype=kind, endpoint=True)
    if kind.kind == "c":
        return (rng.random(shape) + 1j * rng.random(shape)).astype(kind)
    if kind == np.float64:
        return rng.random(shape)
    x = rng.random(shape, np.float32)
    if kind == np.float32:
        return x
    x -= np.float32(0.5)
    return x.astype(kind)


def near_one(x: Array) -> Array:
    """Return factors whose product over a thousand elements stays near 1."""
    return (1 + (x - x.dtype.type(0.5)) / x.dtype.type(64)).astype(x.dtype)


# ---- the check of a result ----


def expected(x: Array, op: str, axis: int | None) -> Any:
    """Return NumPy's result, computed in a wider type than any variant uses."""
    wide = x.dtype.kind not in WHOLE and op in ("sum", "prod", "mean")
    if not wide:
        return getattr(np, op)(x, axis=axis)
    return getattr(np, op)(x, axis=axis, dtype=np.complex128 if x.dtype.kind == "c" else float)


def judge(x: Array, op: str, axis: int | None, want: Any) -> Any:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    An index is correct if its element equals the extreme: libraries differ in which of
    several equal elements they return.
    """
    want = np.asarray(want)
    if op in ARGS:
        extreme = np.asarray((np.min if op == "argmin" else np.max)(x, axis=axis))

        def check_index(result: Any) -> str:
            got = np.asarray(result)
            if got.shape != want.shape:
                return f"shape {got.shape}, expected {want.shape}"
            if axis is None:
                found = x.reshape(-1)[got]
            else:
                found = np.take_along_axis(x, np.expand_dims(got, axis), axis).squeeze(axis)
            wrong = int(np.count_nonzero(found != extreme))
            return f"{wrong} of {got.size} indices wrong" if wrong else ""

        return check_index

    size = functools.cache(lambda: magnitude(x, op, axis))

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        if got.size == 0:
            return ""
        if want.dtype.kind in WHOLE or op in ("min", "max"):
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {got.size} values wrong" if wrong else ""
        wide = complex if want.dtype.kind == "c" else float
        error = np.abs(got.astype(wide) - want.astype(wide))
        bound = tolerance(x, op, axis, want, got.dtype, size())
        wrong = int(np.count_nonzero(~(error <= bound)))
        if not wrong:
            return ""
        return f"{wrong} of {got.size} values off by up to {np.max(error):.3g}"

    return check


def magnitude(x: Array, op: str, axis: int | None) -> Any:
    """Return the magnitude that the error of each result is relative to."""
    if op == "prod":
        return np.abs(np.prod(x, axis=axis, dtype=complex if x.dtype.kind == "c" else float))
    size = np.sum(np.abs(x), axis=axis, dtype=np.float64)
    return size / max(terms(x, axis), 1) if op == "mean" else size


def terms(x: Array, axis: int | None) -> int:
    """Return how many elements are combined into one result."""
    return x.size if axis is None else x.shape[axis]


def tolerance(
    x: Array, op: str, axis: int | None, want: Array, dtype: np.dtype[Any], size: Any
) -> Any:
    """Return the largest error of a correct result, element by element.

    Sums: pairwise addition's bound.  Products: one rounding per factor.
    """
    count = terms(x, axis)
    steps = count if op == "prod" else math.ceil(math.log2(max(count, 2))) + SLACK
    inner = min(precision(x.dtype), precision(np.dtype(np.float32)))
    return 2 * precision(dtype) * np.abs(want) + steps * inner * size


def precision(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating dtype; 2^-8 for bfloat16."""
    if dtype.kind not in "fc":
        return 2.0**-8 if dtype.name == "bfloat16" else 2.0**-53
    return float(np.finfo(dtype).eps) / 2
