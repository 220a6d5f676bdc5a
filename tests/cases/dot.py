"""Cases of dot: sizes, pairs of layouts, special values, promoted dtypes; errors.

The rungs v0 to v2 add 16-bit floats in their own precision, so the results in float16 and
bfloat16 must be exact (products of -1 and 1, whose sums have few bits) or within the bound
of such sums in any order; test_dot.py checks the other variants against the bound of float32
sums.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    BFLOAT16,
    BIG,
    LAYOUTS_1D,
    SIZES,
    Entry,
    Error,
    Expected,
    Sample,
    Spec,
    dtype_of,
    kind_of,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

HALVES = ("float16", "bfloat16")

# The dtype of the other array in calls with promotion; NumPy has a common dtype for each.
OTHERS = {
    "bool": ("int8", "float32"),
    "int8": ("uint8", "float16", "bfloat16"),
    "uint8": ("int16", "complex64"),
    "int16": ("uint16", "float16"),
    "uint16": ("int8", "float32"),
    "int32": ("uint32", "float32"),
    "uint32": ("int8", "complex64"),
    "int64": ("uint64", "bool"),
    "uint64": ("int64", "uint8"),
    "float16": ("int8", "uint8", "bool"),  # not to float32: v1 and v2 take only halves
    "bfloat16": ("int8", "uint8", "bool"),
    "float32": ("float16", "bfloat16", "int64"),
    "float64": ("float32", "complex64"),
    "complex64": ("float16", "float64"),
    "complex128": ("bfloat16", "int64"),
}


# Two arrays with the same fill would have the same values: "normal" by another name, and
# whole numbers in [-2, 2).
OTHER_NORMAL, SMALL_WHOLE = "normal y", "index 2"


def dot_fills(dtype: str, turn: int) -> tuple[str, str]:
    if kind_of(dtype_of(dtype)) == "b":
        return (("normal", OTHER_NORMAL), ("rare", "common"), ("rare", "rare"))[turn % 3]
    if turn % 7 == 6 and kind_of(dtype_of(dtype)) in "fc":
        return "special", OTHER_NORMAL
    if turn % 2:
        return "signs", SMALL_WHOLE
    return "normal", OTHER_NORMAL


def dot_samples(dtype: str, extent: str) -> Iterator[Sample]:
    """Every size with every layout of x; y has another one each time."""
    turn = 0
    for n in SIZES:
        if n == BIG:
            continue
        for layout in LAYOUTS_1D:
            other = LAYOUTS_1D[(turn * 3 + 1) % len(LAYOUTS_1D)]
            fills = dot_fills(dtype, turn)
            turn += 1
            yield Sample(
                (Spec((n,), dtype, layout, fills[0]), Spec((n,), dtype, other, fills[1]))
            )
    tile = (16 << 10) // dtype_of(dtype).itemsize  # of v3: several loads, then a rest
    for n, x, y in ((tile + 33, "C", "C"), (tile + 33, "offset", "C"),
                    (tile // 2 + 65, "C", "offset"), (2003, "step2", "negative")):  # fmt: skip
        yield Sample((Spec((n,), dtype, x), Spec((n,), dtype, y, OTHER_NORMAL)))
    for other in OTHERS[dtype]:  # converted first
        for n in (33, 257):
            for x, y, layout in ((dtype, other, "C"), (other, dtype, "step2")):
                fills = Spec((n,), x, layout, "signs"), Spec((n,), y, "C", SMALL_WHOLE)
                yield Sample(fills)


def dot_large(dtype: str) -> Iterator[Sample]:
    for x, y in (("C", "C"), ("offset", "C"), ("C", "offset"), ("step2", "negative")):
        yield Sample((Spec((BIG,), dtype, x), Spec((BIG,), dtype, y, OTHER_NORMAL)))


def dot_bound(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], dtype: np.dtype[Any], halves: bool
) -> Any:
    """The error bound of a result; a and b in the wide type.

    (ceil(log2 n) + 14) u S with S = sum|x y| and u of the accumulator, float32 for 16
    bits; then the result is rounded to its own dtype.  The error of a product below the
    smallest normal number is at most the smallest number.
    `halves`: 16-bit floats added in their own precision, in any order.  Every product and
    every addition rounds to u of partial sums of at most S: (n + 1) u S, and once more
    in the last addition.
    """
    n = a.size
    u = 2.0**-53 if dtype.name in ("float64", "complex128") else 2.0**-24
    steps = max(0, n - 1).bit_length() + 14
    if halves and dtype.name in HALVES:
        u, steps = unit(dtype), n + 2
    if dtype.kind == "c":
        real = np.sum(np.abs(a.real * b.real) + np.abs(a.imag * b.imag))
        imag = np.sum(np.abs(a.real * b.imag) + np.abs(a.imag * b.real))
        out = np.sum(a * b)
        part = steps * u * real + unit(dtype) * abs(out.real) + (n + 1) * smallest(dtype)
        other = steps * u * imag + unit(dtype) * abs(out.imag) + (n + 1) * smallest(dtype)
        return np.asarray(part + 1j * other)
    size = np.sum(np.abs(a * b))
    rounding = unit(dtype) * abs(np.sum(a * b))
    return np.asarray(steps * u * size + rounding + (n + 1) * smallest(dtype))


def dot_expect(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], halves: bool) -> Expected:
    """What gpuopt.dot must return; `halves`: from a variant that may add in 16 bits."""
    narrow = np.asarray(ref.dot(x, y))
    dtype = narrow.dtype
    if kind_of(dtype) not in "fc":
        return Expected(dtype, narrow)
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        a, b = x.astype(dtype).astype(acc), y.astype(dtype).astype(acc)
        exact = np.asarray(np.sum(a * b))
        # Whole numbers up to 1 / u are added exactly in any order.
        u = unit(dtype) if halves or dtype.name not in HALVES else 2.0**-24
        whole = dtype.kind != "c" and all(np.all(v == np.rint(v)) for v in (a, b))
        if whole and np.sum(np.abs(a * b)) <= 1 / u:
            return Expected(dtype, narrow.astype(acc), np.zeros((), acc))
        return Expected(dtype, exact, dot_bound(a, b, dtype, halves))


@functools.lru_cache(maxsize=65536)
def _expect_values(x: Spec, y: Spec) -> Expected:
    return dot_expect(x.values(), y.values(), halves=True)


def dot_expect_sample(sample: Sample) -> Expected:
    plain = [
        Spec(s.shape, s.dtype, "stride0" if s.layout == "stride0" else "C", s.fill)
        for s in sample.arrays
    ]
    return _expect_values(*plain)


def dot_floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for n in (33, 1025, 1999, 100003):
            for x, y in (("C", "C"), ("offset", "C"), ("step2", "C")):
                yield Sample((Spec((n,), dtype, x), Spec((n,), dtype, y, OTHER_NORMAL)))


def dot_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def v(n: int = 3, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        return np.arange(n).astype(dtype)

    def with_overlap(k: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        x = v(4)
        return (x, v(4)) if k == 0 else (v(4), x), {"out": x[2:3].reshape(())}

    return [
        Error("lengths differ", lambda: ((v(3), v(4)), {}), ValueError,
              r"^shapes \(3,\) and \(4,\) not aligned: 3 \(dim 0\) != 4 \(dim 0\)$"),
        Error("one empty", lambda: ((v(0), v(1)), {}), ValueError,
              r"^shapes \(0,\) and \(1,\) not aligned: 0 \(dim 0\) != 1 \(dim 0\)$"),
        Error("x of rank 2", lambda: ((v(4).reshape(2, 2), v(2)), {}), ValueError,
              r"dimension 1, x has dimension 2"),
        Error("y of rank 2", lambda: ((v(2), v(4).reshape(2, 2)), {}), ValueError,
              r"dimension 1, y has dimension 2"),
        Error("x a number", f(2.0, [1.0]), ValueError, r"dimension 1, x has dimension 0"),
        Error("y a 0-d array", f([1.0], np.array(1.0)), ValueError,
              r"dimension 1, y has dimension 0"),
        Error("bfloat16 with float16", lambda: ((v(3, BFLOAT16), v(3, np.float16)), {}),
              TypeError, r"no common dtype of 'bfloat16' and 'float16'"),
        Error("int32 with bfloat16", lambda: ((v(3, np.int32), v(3, BFLOAT16)), {}),
              TypeError, r"no common dtype of 'int32' and 'bfloat16'"),
        Error("object array", f(np.array([None, 1]), [1, 2]), TypeError, r"dtype 'object'"),
        Error("string array", f([1, 2], np.array(["a", "b"])), TypeError, r"dtype '<U1'"),
        Error("longdouble array", f([1.0], np.zeros(1, np.longdouble)), TypeError,
              f"dtype '{np.dtype(np.longdouble)}'"),
        Error("None", f(None, [1]), TypeError, r"dtype 'object'"),
        Error("a ragged list", f([[1, 2], [3]], [1, 2]), ValueError, r"inhomogeneous"),
        Error("out of the wrong shape",
              lambda: ((v(), v()), {"out": np.zeros(1, np.float32)}), ValueError,
              r"shape \(1,\).*\(\)|\(\).*\(1,\)"),
        Error("out of the wrong dtype",
              lambda: ((v(), v()), {"out": np.zeros((), np.float64)}), TypeError,
              r"float32.*float64|float64.*float32"),
        Error("out read-only", lambda: ((v(), v()), {"out": readonly((), np.float32)}),
              ValueError, r"read-only"),
        Error("out overlaps x", lambda: with_overlap(0), ValueError,
              r"overlap|shares? memory"),
        Error("out overlaps y", lambda: with_overlap(1), ValueError,
              r"overlap|shares? memory"),
        Error("out not an array", lambda: ((v(), v()), {"out": [0.0]}), TypeError, r"out"),
        Error("no such variant", lambda: ((v(), v()), {"variant": "v9"}), ValueError, r"v9"),
        Error("a half's rung for float32",
              lambda: ((v(), v()), {"variant": "v1", "backend": "sim"}), TypeError,
              r"float32"),
        Error("no y", lambda: ((v(),), {}), TypeError, r"missing.*'y'"),
        Error("unknown keyword", lambda: ((v(), v()), {"axis": 0}), TypeError, r"axis"),
    ]  # fmt: skip


def dot_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(5, dtype=np.float16)  # a dtype that every variant takes
    return (x, x), {}, np.float16(30)


ENTRIES = {
    "dot": Entry(
        samples=dot_samples,
        large=dot_large,
        expect=dot_expect_sample,
        errors=dot_errors,
        valid=dot_valid,
        floats=dot_floats,
    ),
}
