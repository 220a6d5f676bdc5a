"""Workloads of scan: '<operation> <shape> [axis<k>]'.

Order: the lists, the problems, inputs, the check of a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape, picked

READS_ONLY = False

SMALL = (
    ("sum 2^16", "float32"),
    ("sum 2^20", "float32"),
    ("sum 2^25", "float32"),
    ("sum 2^24", "float64"),
    ("sum 2^24", "int32"),
    ("max 2^24", "float32"),
    ("sum (4096,4096) axis1", "float32"),
    ("sum (4096,4096) axis0", "float32"),
)

DEMO = ("sum 2^22", "float32")

TINY = (("sum 4097", "float32"), ("sum (129,33) axis0", "float32"))

SMOKE_SIZES = (0, 1, 31, 33, 257, 1025)
SMOKE_SHAPE = (7, 5, 33)

# Terms of an error bound (ceil(log2 k) + SLACK) * eps * sum|x|; the peers' plain sequential
# sums of float64 need the larger one.
SLACK = 48


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    parts = name.split()
    axis = -1
    if len(parts) == 3 and parts[2].startswith("axis"):
        axis = int(parts.pop().removeprefix("axis"))
    if len(parts) != 2:
        raise ValueError(f"not a workload of scan: {name!r}")
    op, shape = parts[0], parse_shape(parts[1])
    x = (
        whole(shape, dtype, rng)
        if dtype in ("float32", "float64")
        else random(shape, dtype, rng)
    )
    return Problem("scan", name, dtype, (x,), {"op": op, "axis": axis}, judge(x, op, axis))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes, axes, directions and operations."""
    names = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]
    turn = 0
    for dtype in [*names, "complex64"]:
        ops = ["sum", "prod"] + (["min", "max"] if dtype != "complex64" else [])
        shapes: list[tuple[tuple[int, ...], int]]
        shapes = [((size,), 0) for size in SMOKE_SIZES]
        shapes += [(SMOKE_SHAPE, axis) for axis in range(3)]
        for op in ops:
            for shape, axis in shapes:
                turn += 1
                x = random(shape, dtype, rng)
                if op == "prod" and x.dtype.kind in "fc":
                    x = (1 + (x - x.dtype.type(0.5)) / x.dtype.type(64)).astype(x.dtype)
                # A wrong infinity, the identity of a float's min, would look right.
                exclusive = turn % 4 > 1 and (op in ("sum", "prod") or x.dtype.kind in "iu")
                options = {"op": op, "axis": axis, "exclusive": exclusive}
                options["reverse"] = turn % 2 > 0
                check = judge(x, op, axis, exclusive, turn % 2 > 0)
                yield Problem("scan", f"{op} {shape} axis={axis}", dtype, (x,), options, check)


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
    if kind != np.float32:
        x -= np.float32(0.5)
    return x.astype(kind, copy=False)


def whole(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return small whole numbers around 0.

    A partial sum of 2^28 of them is exact in any order, so that a library that adds
    sequentially passes, too.
    """
    return rng.integers(-2, 2, shape, np.int8, endpoint=True).astype(dtype)


# ---- the check of a result ----


def accumulated(x: Array, op: str, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return NumPy's scan in float64 or complex128, int64, or the elements' own type."""
    from gpuopt import ref

    if exclusive or reverse:
        return np.asarray(ref.scan(widened(x, op), op, axis, exclusive, reverse))
    combine: dict[str, Any] = {
        "sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
    }  # fmt: skip
    result: Array = combine[op].accumulate(widened(x, op), axis=axis)
    return result


def widened(x: Array, op: str) -> Array:
    """Return the elements in a type whose sums and products are exact enough."""
    if op in ("min", "max"):
        return x
    if x.dtype.kind in "biu":
        return x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def judge(x: Array, op: str, axis: int, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    The error of a prefix is relative to the sum of its magnitudes, or of all elements at a
    workload's size: sums of positive numbers differ from it by less than their error.
    """
    judged: list[Array] = []  # what is right, and what its error is relative to

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != x.shape:
            return f"shape {got.shape}, expected {x.shape}"
        if got.size == 0:
            return ""
        if not judged:
            judged.append(picked(accumulated(x, op, axis, exclusive, reverse)))
            size = np.abs(judged[0])
            if op == "sum" and (x.dtype.itemsize == 2 or exclusive or reverse):
                total = np.sum(np.abs(x), axis=axis, keepdims=True, dtype=np.float64)
                size = picked(np.broadcast_to(total, x.shape))
            judged.append(size)
        want, size = judged
        got = picked(got)
        if op in ("min", "max") or x.dtype.kind in "biu":
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {got.size} values wrong" if wrong else ""
        steps = x.shape[axis] if op == "prod" else np.log2(x.shape[axis] + 1.0) + SLACK
        inner = min(precision(x.dtype), 2.0**-24)
        error = np.abs(got.astype(want.dtype) - want)
        bound = 2 * precision(got.dtype) * np.abs(want) + steps * inner * size + 1e-300
        wrong = int(np.count_nonzero(~(error <= bound)))
        if not wrong:
            return ""
        return f"{wrong} of {got.size} values off by up to {np.max(error):.3g}"

    return check


def precision(dtype: np.dtype[Any]) -> float:
    """Return the unit roundoff of a floating dtype; 2^-8 for bfloat16."""
    if dtype.kind not in "fc":
        return 2.0**-8 if dtype.name == "bfloat16" else 2.0**-53
    return float(np.finfo(dtype).eps) / 2
