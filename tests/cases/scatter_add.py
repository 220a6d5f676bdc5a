"""Cases of scatter_add: sizes, layouts, index dtypes and modes; sums of few and of many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    BFLOAT16,
    BIG,
    LAYOUTS_1D,
    LAYOUTS_ND,
    SIZES,
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

INDEX_DTYPES = (
    "int64",
    "int32",
    "int64",
    "uint64",
    "int8",
    "uint32",
    "int16",
    "uint8",
    "uint16",
)

# Lengths of the result: less than a tile, a table edge, more than one tile of v3.
_PLACES = (1, 2, 31, 33, 100, 127, 1000, 1537)

_SHAPES: tuple[tuple[int, ...], ...] = ((3, 5), (33, 31), (1, 257), (7, 11, 13), (4, 0, 3), ())


def _sample(
    shape: tuple[int, ...], dtype: str, turn: int, layout: str, other: str, places: int
) -> Sample:
    """Values and an index in two layouts; the mode, dtype and range go by `turn`."""
    mode = ("raise", "wrap", "raise", "clip")[turn % 4]
    index_dtype = INDEX_DTYPES[turn % len(INDEX_DTYPES)]
    reach = places if mode == "raise" else 2 * places + 3
    reach = min(reach, np.iinfo(index_dtype).max)
    fill = ("whole", "normal", "special", "normal")[(turn // 4) % 4]
    options: tuple[tuple[str, Any], ...] = (("size", places),)
    if mode != "raise":
        options += (("mode", mode),)
    arrays = (
        Spec(shape, dtype, layout, fill),
        Spec(shape, index_dtype, other, f"index {reach}"),
    )
    return Sample(arrays, options)


def scatter_add_samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = len(dtype)
    for n in SIZES:
        if n == BIG:
            continue
        for k in range(2 if extent == "small" else len(LAYOUTS_1D)):
            turn += 1
            layout = LAYOUTS_1D[turn % len(LAYOUTS_1D)]
            other = LAYOUTS_1D[(turn // 3 + k) % len(LAYOUTS_1D)]
            yield _sample((n,), dtype, turn, layout, other, _PLACES[turn % len(_PLACES)])
    for shape in _SHAPES:
        for k in range(5 if extent == "small" else len(LAYOUTS_ND)):
            turn += 1
            layout = LAYOUTS_ND[turn % len(LAYOUTS_ND)] if shape else "C"
            other = LAYOUTS_ND[(turn // 2 + k) % len(LAYOUTS_ND)] if shape else "readonly"
            places = _PLACES[(turn // 5) % len(_PLACES)]
            yield _sample(shape, dtype, turn, layout, other, places + k)


def scatter_add_large(dtype: str) -> Iterator[Sample]:
    """Many elements into few places, into about as many, and in two layouts."""
    for places, index_dtype, layout in (
        (1000, "int64", "C"),
        (7, "int32", "C"),
        (70_001, "int64", "offset"),
        (2**20 + 1, "int32", "step2"),
    ):
        index = Spec((BIG,), index_dtype, "C", f"index {places}")
        arrays = (Spec((BIG,), dtype, layout, "normal"), index)
        yield Sample(arrays, (("size", places),))


def scatter_add_expect(values: np.ndarray[Any, Any], index: Any, **options: Any) -> Expected:
    """What gpuopt.scatter_add must return for logical values.

    Adding k numbers in any order makes k - 1 roundings, each of at most u of a sum that is at
    most sum|x|: the bound is k 2^-53 sum|x| per place, since every variant adds in float64,
    and one rounding at the end, for bfloat16 through float32.  The expected sums are also in
    float64 and have the same bound.
    """
    narrow = np.asarray(ref.scatter_add(values, index, **options))
    dtype = narrow.dtype
    if kind_of(dtype) in "iu":
        return Expected(dtype, narrow)
    acc = ref.wide(dtype)
    wide = values.astype(acc)
    exact = ref.scatter_add(wide, index, **options)
    ones = np.ones(np.shape(index), np.int64)
    count = ref.scatter_add(ones, index, **options)
    last = unit(dtype) + (2.0**-24 if dtype == BFLOAT16 else 0)

    def bound(part: Any, result: Any) -> Any:
        with np.errstate(all="ignore"):
            total = ref.scatter_add(np.abs(part), index, **options)
            rounding = last * np.abs(result) * 1.01 + smallest(dtype)
            return np.nan_to_num(count * 2.0**-52 * total + rounding, nan=0.0)

    if kind_of(dtype) == "c":
        tolerance = bound(wide.real, exact.real) + 1j * bound(wide.imag, exact.imag)
        return Expected(dtype, exact, tolerance)
    if dtype in (BFLOAT16, np.dtype(np.float16)):
        # Above the largest number the result is infinite: the dtype determines where.
        finite = np.isfinite(narrow.astype(acc))
        exact = np.where(finite, exact, narrow.astype(acc))
    return Expected(dtype, exact, bound(wide, exact))


@functools.lru_cache(maxsize=4096)
def _expect(values: Spec, index: Spec, options: tuple[tuple[str, Any], ...]) -> Expected:
    return scatter_add_expect(values.values(), index.values(), **dict(options))


def scatter_add_expect_sample(sample: Sample) -> Expected:
    values, index = (
        Spec(s.shape, s.dtype, "stride0" if s.layout == "stride0" else "C", s.fill)
        for s in sample.arrays
    )
    return _expect(values, index, sample.options)


def scatter_add_floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for n, places in ((33, 5), (1025, 3), (1025, 100), (100_003, 17), (100_003, 5000)):
            arrays = (
                Spec((n,), dtype, "C", "normal"),
                Spec((n,), "int64", "C", f"index {places}"),
            )
            yield Sample(arrays, (("size", places),))


def scatter_add_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def v(n: int = 4) -> np.ndarray[Any, Any]:
        return np.arange(n, dtype=np.float32)

    def i(*values: int) -> np.ndarray[Any, Any]:
        return np.array(values, np.int64)

    def overlap() -> Any:
        memory = v(8)
        return (memory[:4], i(0, 1, 2, 3), 4), {"out": memory[2:6]}

    def overlap_index() -> Any:
        memory = np.zeros(8, np.int64)
        return (memory[:4].copy(), memory[:4], 4), {"out": memory[4 - 1 : 8 - 1]}

    return [
        Error("wrap into nothing", lambda: ((v(1), i(0), 0, "wrap"), {}), IndexError,
              r"non-empty.*empty axis"),
        Error("lengths differ", lambda: ((v(4), i(0, 1, 2), 4), {}), ValueError,
              r"same shape, but axis 0 of values has length 4 and that of index 3"),
        Error("ranks differ", lambda: ((v(4).reshape(2, 2), i(0, 1, 2, 3), 4), {}),
              ValueError, r"same shape, but values has 2 dimensions and index has 1"),
        Error("index of floats", lambda: ((v(), v(), 4), {}), TypeError,
              r"takes integers for index, not dtype 'float32'"),
        Error("index of bools", lambda: ((v(), v() > 2, 4), {}), TypeError,
              r"takes integers for index, not dtype 'bool'"),
        Error("index of objects", f([1.0], [None], 4), TypeError, r"dtype 'object'"),
        Error("values of strings", lambda: ((np.array(["a"]), i(0), 4), {}), TypeError,
              r"dtype '<U1'"),
        Error("values not an array", f(object(), [0], 4), TypeError, r"dtype 'object'"),
        Error("negative size", lambda: ((v(), i(0, 1, 2, 3), -1), {}), ValueError,
              r"^negative dimensions are not allowed$"),
        Error("size a float", lambda: ((v(), i(0, 1, 2, 3), 4.0), {}), TypeError,
              r"'float' object cannot be interpreted as an integer"),
        Error("size an array", lambda: ((v(), i(0, 1, 2, 3), i(4, 4)), {}), TypeError,
              r"integer"),
        Error("size past memory", lambda: ((v(), i(0, 1, 2, 3), 2**62), {}),
              (ValueError, MemoryError), r"too big|allocate|memory"),
        Error("no such mode", lambda: ((v(), i(0, 1, 2, 3), 4, "nearest"), {}), ValueError,
              r"one of 'raise', .*'nearest'"),
        Error("mode not a string", lambda: ((v(), i(0, 1, 2, 3), 4, 1), {}), TypeError,
              r"mode"),
        Error("out of the wrong length",
              lambda: ((v(), i(0, 1, 2, 3), 4), {"out": np.zeros(5, np.float32)}),
              ValueError, r"\(5,\).*\(4,\)|\(4,\).*\(5,\)"),
        Error("out of the wrong dtype",
              lambda: ((v(), i(0, 1, 2, 3), 4), {"out": np.zeros(4)}),
              TypeError, r"float64.*float32|float32.*float64"),
        Error("out read-only",
              lambda: ((v(), i(0, 1, 2, 3), 4), {"out": readonly(4, np.float32)}),
              ValueError, r"read-only"),
        Error("out overlaps values", overlap, ValueError, r"overlap|shares? memory"),
        Error("out overlaps index", overlap_index, ValueError, r"overlap|shares? memory"),
        Error("no size", lambda: ((v(), i(0, 1, 2, 3)), {}), TypeError, r"missing.*'size'"),
        Error("unknown keyword", lambda: ((v(), i(0, 1, 2, 3), 4), {"axis": 0}), TypeError,
              r"axis"),
    ]  # fmt: skip


def scatter_add_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    values = np.array([1, 2, 4, 8], np.float32)
    index = np.array([2, 0, -1, 2], np.int64)
    return (values, index), {"size": 3}, np.array([2, 0, 13], np.float32)


ENTRIES = {
    "scatter_add": Entry(
        samples=scatter_add_samples,
        large=scatter_add_large,
        expect=scatter_add_expect_sample,
        errors=scatter_add_errors,
        valid=scatter_add_valid,
        floats=scatter_add_floats,
    ),
}
