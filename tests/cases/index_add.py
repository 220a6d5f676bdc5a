"""Cases of index_add: sizes, axes, layouts of all three arrays, modes, factors; errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from cases import (
    BIG,
    LAYOUTS_1D,
    LAYOUTS_ND,
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

INDEX_DTYPES = ("int64", "int32", "int64", "int32", "uint8", "int16")

# Shape of x, axis, length of the index: rows around packs, warps, chunks and tiles, and more
# than 128 for one destination.
_SHAPES: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((3, 8), 0, 440),
    ((5, 8), 0, 33),
    ((31, 16), 0, 9),
    ((3, 33), 0, 20),
    ((17, 1), 0, 70),
    ((7, 5), 1, 31),
    ((4, 13), -1, 40),
    ((2, 3, 8), 1, 17),
    ((3, 2, 5), 0, 21),
    ((2, 3, 4), 2, 19),
    ((1, 64), 0, 8),
    ((64, 2), -2, 65),
    ((9, 3), 0, 0),
    ((4, 0), 0, 6),
    ((0, 4), 1, 6),
    ((0, 4), 0, 0),
    ((2, 130), 0, 6),
    ((6, 7), 0, 50),
    ((2, 4, 9), 1, 37),
)

# Fewer rows than destinations.
_SPARSE: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((230,), 0, 40),
    ((90, 3), 0, 33),
    ((2, 70, 5), 1, 20),
    ((3, 150), -1, 64),
    ((40, 33), 0, 9),
)

# Few destinations of one element each.
_NARROW: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((33, 1), 0, 66),
    ((600,), 0, 900),
    ((1500,), 0, 257),
    ((12,), 0, 1025),
)

_FILLS = ("normal", "whole", "normal", "special")


def alphas(dtype: str) -> tuple[Any, ...]:
    if kind_of(dtype_of(dtype)) in "biu":
        return (1, 3, 1, -2, 0)
    return (1, 0.1, 1, -2, 1)


def _pick(options: tuple[Any, ...], turn: int) -> Any:
    return options[turn % len(options)]


def index_add_samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    full = extent == "full"

    def sample(shape: tuple[int, ...], axis: int, n: int, layouts: tuple[str, ...]) -> Sample:
        nonlocal turn
        turn += 1
        length = shape[axis]
        mode = _pick(("raise", "raise", "wrap", "clip"), turn // 3)
        reach = length
        if mode != "raise" and length and length < 40:
            reach = 3 * length
        if turn % 13 == 0 and n and length < 100:
            reach, mode = length + 1, "raise"  # perhaps out of range
        index_dtype = _pick(INDEX_DTYPES, turn)
        if length > 100 and index_dtype == "uint8":
            index_dtype = "int64"
        source = list(shape)
        source[axis] = n
        fill = _pick(_FILLS, turn)
        options: list[tuple[str, Any]] = []
        if axis != 0:
            options.append(("axis", axis))
        alpha = _pick(alphas(dtype), turn // 2)
        if alpha != 1:
            options.append(("alpha", alpha))
        if mode != "raise":
            options.append(("mode", mode))
        arrays = (
            Spec(shape, dtype, layouts[0], "special" if turn % 9 == 0 else "normal"),
            Spec((n,), index_dtype, layouts[1], f"index {reach}"),
            Spec(tuple(source), dtype, layouts[2], fill),
        )
        return Sample(arrays, tuple(options))

    for n in SIZES:
        if n == BIG:
            continue
        for k in range(4 if full else 1):
            length = _pick((7, 1, 300, 1009) if full else (7, 200, 1), turn + k)
            layouts = (
                _pick(LAYOUTS_1D, turn),
                _pick(LAYOUTS_1D, turn // 3 + k),
                _pick(LAYOUTS_1D, turn // 2 + k),
            )
            yield sample((length,), 0, n, layouts)
    for shape, axis, n in (*_SHAPES, *_SPARSE, *_NARROW):
        for k in range(5 if full else 3):
            layouts = (
                _pick(LAYOUTS_ND, turn + k),
                _pick(LAYOUTS_1D, turn // 2),
                _pick(LAYOUTS_ND, turn // 3 + 2 * k),
            )
            yield sample(shape, axis, n, layouts)


def index_add_large(dtype: str) -> Iterator[Sample]:
    """The first for the simulator as well: three tiles of the sort, five of the sums."""
    for length, n in ((700, 9001), (1000, BIG), (2**16 + 3, 2**17 + 1)):
        arrays = (
            Spec((length,), dtype),
            Spec((n,), "int64", "C", f"index {length}"),
            Spec((n,), dtype, "C", "whole"),
        )
        yield Sample(arrays)
    arrays = (
        Spec((50, 64), dtype),
        Spec((4000,), "int32", "C", "index 50"),
        Spec((4000, 64), dtype, "C", "whole"),
    )
    yield Sample(arrays)
    arrays = (
        Spec((65, 301), dtype),
        Spec((700,), "int64", "C", "index 301"),
        Spec((65, 700), dtype, "C", "normal"),
    )
    yield Sample(arrays, (("axis", 1),))


def index_add_bound(
    x: np.ndarray[Any, Any],
    index: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    u: float,
    **options: Any,
) -> np.ndarray[Any, Any]:
    """The error bound of float results: (2 n + 4) u (|x| + sum |alpha source|).

    n values are added to an element: one rounding for alpha, one for its product, one per
    addition; as many again if sums of parts are added (v2's tables, v4's chunks).
    """
    options = {k: v for k, v in options.items() if k in ("axis", "mode", "alpha")}
    acc = ref.wide(x.dtype)
    real = np.zeros(0, acc).real.dtype
    alpha = options.pop("alpha", 1)
    parts = []
    ones = np.zeros(x.shape, np.int64)
    terms = ref.index_add(ones, index, np.ones(source.shape, np.int64), **options)
    for take in (np.real, np.imag) if acc.kind == "c" else (np.asarray,):
        total = ref.index_add(
            np.abs(np.ascontiguousarray(take(x.astype(acc)))).astype(real),
            index,
            np.abs(np.ascontiguousarray(take(source.astype(x.dtype).astype(acc)))).astype(real)
            * abs(alpha),
            **options,
        )
        parts.append(total * ((2 * terms + 4) * u))
    return _paired(parts)


def _paired(parts: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """One part, or complex numbers from two parts; a nan stays in its part."""
    if len(parts) == 1:
        return parts[0]
    both = np.empty(parts[0].shape, np.result_type(parts[0].dtype, np.complex64))
    both.real, both.imag = parts
    return both


def index_add_expect(
    x: np.ndarray[Any, Any],
    index: np.ndarray[Any, Any],
    source: np.ndarray[Any, Any],
    **options: Any,
) -> Expected:
    """What gpuopt.index_add must return for logical values."""
    try:
        narrow = np.asarray(ref.index_add(x, index, source, **options))
    except (IndexError, TypeError, ValueError) as error:
        return Expected(np.dtype(bool), np.zeros(()), None, type(error), str(error))
    if kind_of(x.dtype) not in "fc":
        return Expected(x.dtype, narrow)
    acc = ref.wide(x.dtype)
    with np.errstate(all="ignore"):
        exact = ref.index_add(
            x.astype(acc), index, source.astype(x.dtype).astype(acc), **options
        )
        bound = index_add_bound(x, index, source, unit(x.dtype), **options)
        parts = [exact.real, exact.imag] if acc.kind == "c" else [exact]
        rounding = [unit(x.dtype) * np.abs(part) + smallest(x.dtype) for part in parts]
        bound = bound + _paired(rounding)
    return Expected(x.dtype, exact, bound)


@functools.lru_cache(maxsize=16384)
def _expect_values(specs: tuple[Spec, ...], options: tuple[tuple[str, Any], ...]) -> Expected:
    return index_add_expect(*(spec.values() for spec in specs), **dict(options))


def index_add_expect_sample(sample: Sample) -> Expected:
    plain = tuple(
        Spec(s.shape, s.dtype, "stride0" if s.layout == "stride0" else "C", s.fill)
        for s in sample.arrays
    )
    return _expect_values(plain, sample.options)


def index_add_floats() -> Iterator[Sample]:
    shapes: tuple[tuple[tuple[int, ...], int], ...]
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        shapes = (((50,), 1900), ((50,), 3000), ((20, 33), 90))
        if dtype in ("float16", "float32"):
            shapes = (*shapes, ((1000,), 100003), ((300, 40), 2000))
        for shape, n in shapes:
            arrays = (
                Spec(shape, dtype),
                Spec((n,), "int64", "C", f"index {shape[0]}"),
                Spec((n, *shape[1:]), dtype),
            )
            yield Sample(arrays, (("alpha", 0.1),))


def _x() -> np.ndarray[Any, Any]:
    return np.arange(10, dtype=np.float32).reshape(5, 2)


def _error(name: str, raises: Any, match: str, *changed: Any, **options: Any) -> Error:
    """The valid call with some arrays replaced; None keeps one."""

    def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
        arrays = [_x(), np.array([0, 4, 2]), np.ones((3, 2), np.float32)]
        for i, array in enumerate(changed):
            if array is not None:
                arrays[i] = array.copy() if isinstance(array, np.ndarray) else array
        found = {k: v() if callable(v) else v for k, v in options.items()}
        return tuple(arrays), found

    return Error(name, make, raises, match)


def _in_place(change: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    y = _x()
    return (y, np.array([0, 4, 9]), np.ones((3, 2), np.float32)), {"out": change(y)}


def index_add_run_errors() -> list[Error]:
    """Errors found only when a call runs: values of the index, a variant that cannot run."""
    error = _error
    return [
        error("index too large", IndexError,
              r"^index 7 at position 1 is out of bounds for axis 0 with size 5$",
              None, np.array([0, 7, 9])),
        error("index too small", IndexError,
              r"^index -6 at position 2 is out of bounds for axis 0 with size 5$",
              None, np.array([0, -5, -6])),
        error("int32 index too large", IndexError,
              r"^index 5 at position 0 is out of bounds for axis 0 with size 5$",
              None, np.array([5, 0, 6], np.int32)),
        error("index too large on axis 1", IndexError,
              r"^index 2 at position 0 is out of bounds for axis 1 with size 2$",
              None, np.array([2]), np.ones((5, 1), np.float32), axis=-1),
        Error("bad index with out a copy", lambda: _in_place(np.copy), IndexError,
              r"^index 9 at position 2 "),
        Error("bad index in place", lambda: _in_place(lambda y: y), IndexError,
              r"^index 9 at position 2 "),
        error("an atomic variant, deterministic", ValueError,
              r"variant 'v1' adds by atomics in any order; deterministic=True takes 'v4'",
              variant="v1", backend="sim", deterministic=True),
    ]  # fmt: skip


def index_add_errors() -> list[Error]:
    error = _error
    axis_error = np.exceptions.AxisError
    ints = np.zeros((5, 2), np.int32)
    return [
        error("index into nothing", IndexError,
              r"^cannot do a non-empty take from an empty axes.$",
              np.zeros((0, 2), np.float32)),
        error("index wraps in nothing", IndexError, r"empty axes",
              np.zeros((0, 2), np.float32), mode="wrap"),
        error("index of bools", TypeError, r"integer dtype, not 'bool'",
              None, np.array([True, False, True])),
        error("index of floats", TypeError, r"integer dtype, not 'float64'",
              None, np.array([0.0, 4.0, 2.0])),
        error("index of two dimensions", ValueError,
              r"^index must be 1-dimensional, not 2-dimensional$",
              None, np.array([[0, 4, 2]])),
        error("index a number", ValueError, r"1-dimensional, not 0", None, 3),
        error("source too short", ValueError,
              r"^source has shape \(2, 2\), expected \(3, 2\)$",
              None, None, np.ones((2, 2), np.float32)),
        error("source too wide", ValueError, r"\(3, 3\), expected \(3, 2\)",
              None, None, np.ones((3, 3), np.float32)),
        error("source of one dimension", ValueError, r"\(3,\), expected \(3, 2\)",
              None, None, np.ones(3, np.float32)),
        error("source a number", ValueError, r"\(\), expected \(3, 2\)", None, None, 1.0),
        error("source complex", TypeError,
              r"^Cannot cast array data from dtype\('complex64'\) to dtype\('float32'\) "
              r"according to the rule 'same_kind'$",
              None, None, np.ones((3, 2), np.complex64)),
        error("source of floats into integers", TypeError, r"'float32'\) to dtype\('int32'\)",
              ints),
        error("source signed into unsigned", TypeError, r"'int64'\) to dtype\('uint8'\)",
              np.zeros((5, 2), np.uint8), None, np.ones((3, 2), np.int64)),
        error("alpha a float for integers", TypeError,
              r"^Cannot cast alpha from dtype\('float64'\) to dtype\('int32'\)",
              ints, None, np.ones((3, 2), np.int32), alpha=2.5),
        error("alpha a string", TypeError, r"real number", alpha="2"),
        error("alpha past float64", ValueError, r"^alpha is an int too large for a float$",
              alpha=10**400),
        error("axis too large", axis_error,
              r"^axis 2 is out of bounds for array of dimension 2$", axis=2),
        error("axis too small", axis_error,
              r"^axis -3 is out of bounds for array of dimension 2$", axis=-3),
        error("axis a tuple", TypeError, r"integer", axis=(0,)),
        error("x a number", axis_error,
              r"^axis 0 is out of bounds for array of dimension 0$", 1.0),
        error("no such mode", ValueError, r"one of 'raise', .*'rise'", mode="rise"),
        error("x an object", TypeError, r"dtype 'object'", np.array([None, 1])),
        error("source of strings", TypeError, r"dtype '<U1'", None, None,
              np.full((3, 2), "a")),
        error("out of the wrong shape", ValueError, r"\(5, 3\).*\(5, 2\)|\(5, 2\).*\(5, 3\)",
              out=lambda: np.zeros((5, 3), np.float32)),
        error("out of the wrong dtype", TypeError, r"float64.*float32|float32.*float64",
              out=lambda: np.zeros((5, 2))),
        error("out read-only", ValueError, r"read-only",
              out=lambda: readonly((5, 2), np.float32)),
        error("out not an array", TypeError, r"out", out=lambda: [0.0]),
        Error("out a reversed x", lambda: _in_place(lambda y: y[::-1]), ValueError,
              r"shares memory with x"),
        error("no such variant", ValueError, r"simdd.*simd", variant="simdd"),
        error("no such backend", ValueError, r"one of 'cpu', 'cuda', 'sim'.*'gpu'",
              backend="gpu"),
    ]  # fmt: skip


def index_add_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    source = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    want = np.array([[0, 1], [8, 11], [7, 9]], np.float32)
    return (x, np.array([1, -1, 1]), source), {"axis": 0}, want


ENTRIES = {
    "index_add": Entry(
        samples=index_add_samples,
        large=index_add_large,
        expect=index_add_expect_sample,
        errors=index_add_errors,
        valid=index_add_valid,
        floats=index_add_floats,
    ),
}
