"""Cases of partition_reduce: every size, sets of bits low, high, mixed and reordered."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    LAYOUTS_1D,
    Entry,
    Error,
    Expected,
    Sample,
    Spec,
    kind_of,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

DTYPES = (
    *("int32", "int64", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128"),
)

_FILLS = ("whole", "normal", "whole", "special")


def bit_sets(n: int) -> list[tuple[int, ...]]:
    """None, all, low, high, every second, mixed, in ascending and other orders."""
    low, high = tuple(range(n // 2)), tuple(range(n // 2, n))
    mixed = tuple(b for b in (1, 4, 7, 9, 13, 17) if b < n)
    turned = tuple((b + 3) % n for b in range(n - 1)) if n else ()
    return list(
        dict.fromkeys(
            [
                *((), low, high, tuple(range(0, n, 2)), mixed, tuple(range(1, n, 2))[::-1]),
                *(turned, tuple(range(n)), tuple(range(n))[::-1], high[::-1] + low[:1]),
            ]
        )
    )


def partition_reduce_samples(dtype: str, extent: str) -> Iterator[Sample]:
    small = extent == "small"
    turn = 0
    for n in range(0, 11 if small else 14):
        for bits in bit_sets(n):
            turn += 1
            layout = LAYOUTS_1D[turn * 5 % len(LAYOUTS_1D)] if turn % 2 else "C"
            fill = _FILLS[turn % len(_FILLS)]
            options: list[tuple[str, Any]] = [("bits", bits)]
            if turn % 3 == 0:
                options.append(("square", True))
            yield Sample((Spec((1 << n,), dtype, layout, fill),), tuple(options))
    for layout in LAYOUTS_1D if not small else ():
        for n in (5, 12):
            for square in (False, True):
                yield Sample(
                    (Spec((1 << n,), dtype, layout, "whole"),),
                    (("bits", (2, 0, 4)), ("square", square)),
                )
    # High bits kept, low ones summed or in another order, beyond packs of 16-bit floats.
    for n in (11, 12):
        for low in (range(3), range(0, 8, 2), range(4, 7), (6, 0), (7, 1, 5), (), range(8)):
            bits = (*range(n - 3, n), *low) if n == 11 else (*low, *range(n - 1, 8, -1))
            options = [("bits", bits)]
            if n == 12 and bits[0] < 2:
                options.append(("square", True))
            yield Sample((Spec((1 << n,), dtype, "C", "normal"),), tuple(options))
    # Lengths that are no power of two: an error in every variant.
    for size in (0, 31, 33, 255, 257, 1009, 1023, 1025):
        yield Sample((Spec((size,), dtype, "C", "whole"),), (("bits", ()),))


def partition_reduce_large(dtype: str) -> Iterator[Sample]:
    """First 2^15 elements, for which v3 splits a tile over blocks; one of 2^20."""
    yield Sample((Spec((1 << 15,), dtype, "C", "whole"),), (("bits", (0, 14, 3)),))
    for bits in ((0, 1, 2, 3, 4), tuple(range(10, 18)), (1, 4, 7, 9, 13, 15, 16)):
        yield Sample((Spec((1 << 18,), dtype, "C", "whole"),), (("bits", bits),))
    for bits in (tuple(range(5, 17)), tuple(range(0, 17, 2)), (16, 0, 7)):
        options = (("bits", bits), ("square", True))
        yield Sample((Spec((1 << 17,), dtype, "offset", "normal"),), (("bits", bits[:3]),))
        yield Sample((Spec((1 << 17,), dtype, "C", "normal"),), options)
    yield Sample((Spec((1 << 20,), dtype, "C", "normal"),), (("bits", (19, 3, 8)),))


def partition_reduce_bound(
    x: np.ndarray[Any, Any], m: int, dtype: np.dtype[Any], **options: Any
) -> np.ndarray[Any, Any]:
    """The error bound of a result of m elements, in any order of the additions.

    m + 2 roundings of a running sum (a square is one or two more) that is at most the
    sum of the magnitudes, in the accumulator's unit (float32 for 16 bits); then one of
    the result, and the smallest number.
    """
    acc = 2.0**-53 if dtype.name in ("float64", "complex128") else 2.0**-24
    real = x.dtype.type(0).real.dtype  # complex multiplication would turn inf into nan
    part = np.abs(np.ascontiguousarray(x).view(real)).view(x.dtype)
    size = ref.partition_reduce(part, **options)
    bound = size.view(real) * ((m + 2) * acc + 1.01 * unit(dtype)) + smallest(dtype)
    return np.asarray(bound.view(size.dtype))


def _is_exact(x: np.ndarray[Any, Any], square: bool) -> bool:
    """True if every partial sum in any order is a whole number below 2**24."""
    total = 0.0
    for part in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
        if not np.all(part == np.rint(part)):
            return False
        total += float(np.sum(part * part if square else np.abs(part)))
    return total < 2**24


@functools.lru_cache(maxsize=4096)
def _expect(spec: Spec, options: tuple[tuple[str, Any], ...]) -> Expected:
    x = spec.values()
    keywords = dict(options)
    try:
        narrow = ref.partition_reduce(x, **keywords)
    except ValueError as error:
        return Expected(np.dtype(bool), np.zeros(()), None, type(error), str(error))
    dtype = narrow.dtype
    if kind_of(dtype) not in "fc":
        return Expected(dtype, narrow)
    with np.errstate(all="ignore"):
        wide = x.astype(ref.wide(x.dtype))
        if _is_exact(wide, keywords.get("square", False)):
            once = narrow.astype(ref.wide(dtype))
            return Expected(dtype, once, np.zeros(once.shape, once.dtype))
        exact = ref.partition_reduce(wide, **keywords)
        if dtype.name == "float16":  # a sum beyond its range
            exact = np.where(np.isinf(narrow), narrow, exact)
        m = x.size // exact.size
        return Expected(dtype, exact, partition_reduce_bound(wide, m, dtype, **keywords))


def partition_reduce_expect(sample: Sample) -> Expected:
    spec = sample.arrays[0]
    layout = "stride0" if spec.layout == "stride0" else "C"
    return _expect(Spec(spec.shape, spec.dtype, layout, spec.fill), sample.options)


def partition_reduce_floats() -> Iterator[Sample]:
    for dtype in DTYPES[2:]:
        sets = ((6, (1,)), (12, (0, 5)), (12, (11, 3)), (16, (2, 9, 14)), (17, ()))
        for n, bits in (*sets, (10, (0, 1, 3, 4, 5, 7, 9)), (12, (*range(2, 8), 9, 10, 11))):
            for layout in ("C", "offset") if n == 12 else ("C",):
                options: tuple[tuple[str, Any], ...] = (("bits", bits),)
                if layout == "offset":
                    options = (*options, ("square", True))
                yield Sample((Spec((1 << n,), dtype, layout, "normal"),), options)


def _overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = np.arange(16, dtype=np.float32)
    return (x, (0, 1)), {"out": x[4:8]}


def partition_reduce_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def x() -> np.ndarray[Any, Any]:
        return np.arange(16, dtype=np.float32)

    return [
        Error("12 elements", f(np.ones(12), 0), ValueError,
              r"^x has 12 elements, which is not a power of two$"),
        Error("no elements", f(np.ones(0), ()), ValueError,
              r"^x has 0 elements, which is not a power of two$"),
        Error("two dimensions", f(np.ones((4, 4)), 0), ValueError,
              r"^partition_reduce\(\) takes an array of 1 dimension, x has 2$"),
        Error("a scalar", f(np.float64(1), ()), ValueError, r"1 dimension, x has 0$"),
        Error("bit too large", lambda: ((x(), 4), {}), ValueError,
              r"^bit 4 is out of range for 2\^4 elements$"),
        Error("bit far too large", lambda: ((x(), (0, 64)), {}), ValueError,
              r"^bit 64 is out of range for 2\^4 elements$"),
        Error("bit of one element", f(np.ones(1), 0), ValueError,
              r"^bit 0 is out of range for 2\^0 elements$"),
        Error("bit negative", lambda: ((x(), (1, -1)), {}), ValueError,
              r"^bit -1 is out of range for 2\^4 elements$"),
        Error("bit twice", lambda: ((x(), (3, 1, 3)), {}), ValueError,
              r"^bit 3 is repeated in 'bits'$"),
        Error("bit a float", lambda: ((x(), 1.5), {}), TypeError,
              r"'float' object cannot be interpreted as an integer"),
        Error("bit a string", lambda: ((x(), ("0",)), {}), TypeError,
              r"'str' object cannot be interpreted as an integer"),
        Error("bits None", lambda: ((x(), None), {}), TypeError,
              r"'NoneType' object cannot be interpreted as an integer"),
        Error("no bits", lambda: ((x(),), {}), TypeError, r"missing.*'bits'"),
        Error("bit past int64", lambda: ((x(), 2**70), {}), (OverflowError, ValueError),
              r"int"),
        Error("65 bits", lambda: ((x(), tuple(range(65))), {}), ValueError, r"bits"),
        Error("no such op", lambda: ((x(), 0, "max"), {}), ValueError, r"'sum'.*'max'"),
        Error("dtype uint8", f(np.ones(4, np.uint8), 0), TypeError, r"'uint8'"),
        Error("dtype bool", f(np.ones(4, bool), 0), TypeError, r"'bool'"),
        Error("object array", f(np.array([None, 1]), 0), TypeError, r"dtype 'object'"),
        Error("a ragged list", f([[1, 2], [3]], 0), ValueError, r"inhomogeneous"),
        Error("out of the wrong shape",
              lambda: ((x(), (0, 1)), {"out": np.zeros(2, np.float32)}), ValueError,
              r"shape \(2,\).*\(4,\)|\(4,\).*\(2,\)"),
        Error("out of the wrong dtype",
              lambda: ((x(), (0, 1)), {"out": np.zeros(4, np.float64)}), TypeError,
              r"float32.*float64|float64.*float32"),
        Error("out complex for squares",
              lambda: ((x().astype("c8"), 0), {"square": True, "out": np.zeros(2, "c8")}),
              TypeError, r"float32.*complex64|complex64.*float32"),
        Error("out read-only", lambda: ((x(), 0), {"out": readonly(2, np.float32)}),
              ValueError, r"read-only"),
        Error("out overlaps x", _overlap, ValueError, r"overlap|shares? memory"),
        Error("no such variant", lambda: ((x(), 0), {"variant": "simdd"}), ValueError,
              r"simdd.*simd"),
    ]  # fmt: skip


def partition_reduce_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(8, dtype=np.float32)
    return (x, (2, 0)), {}, np.array([2, 10, 4, 12], np.float32)


ENTRIES = {
    "partition_reduce": Entry(
        samples=partition_reduce_samples,
        large=partition_reduce_large,
        expect=partition_reduce_expect,
        errors=partition_reduce_errors,
        valid=partition_reduce_valid,
        floats=partition_reduce_floats,
    ),
}
