"""Cases of mean_matvec: sizes around warps, tiles and packs, layouts, pairs of dtypes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    LAYOUTS_ND,
    Entry,
    Error,
    Expected,
    Sample,
    Spec,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

# (N, L, M, L2): around a pack, 8 and 32 lanes, a tile of 64 batches by 64 outputs, a stage
# of 16 or 32 rows; and each length 0.  FULL ends with rows that fill their lanes, eight,
# four, two and one at a time, and in several chunks.
SMALL: tuple[tuple[int, int, int, int], ...] = (
    (1, 1, 1, 1),
    (2, 3, 5, 4),
    (1, 7, 33, 2),
    (3, 5, 8, 3),
    (1, 33, 4, 3),
    (2, 17, 31, 2),
    (1, 3, 255, 3),
    (1, 2, 257, 5),
    (5, 4, 16, 2),
    (1, 64, 2, 2),
    (33, 2, 3, 1),
    (1, 3, 1, 65),
    (1, 1, 1025, 1),
    (2, 31, 9, 1),
    (0, 3, 4, 2),
    (2, 0, 4, 3),
    (2, 3, 0, 2),
    (2, 3, 4, 0),
    (1, 129, 1, 2),
    (3, 9, 12, 3),
)

FULL: tuple[tuple[int, int, int, int], ...] = (
    (31, 33, 17, 65),
    (33, 16, 64, 63),
    (64, 65, 7, 33),
    (3, 255, 9, 5),
    (2, 1023, 1, 3),
    (1, 4, 1009, 4),
    (7, 32, 32, 64),
    (256, 3, 2, 5),
    (5, 513, 3, 7),
    (9, 33, 32, 5),
    (65, 5, 64, 66),
    (13, 6, 128, 3),
    (3, 7, 256, 2),
    (1, 9, 4096, 2),
)

LARGE: tuple[tuple[int, int, int, int], ...] = (
    (37, 41, 67, 43),
    (67, 130, 65, 97),
    (3, 517, 513, 259),
    (1, 5, 100_003, 3),
    (260, 9, 31, 130),
)

FILLS = ("normal", "whole")

Bits = tuple[tuple[str, Any], ...]


def sample(
    size: tuple[int, int, int, int],
    dtype: str,
    layouts: tuple[str, str],
    fill: str,
    options: Bits = (),
    matrix: str = "",
) -> Sample:
    n, rows, cols, outputs = size
    return Sample(
        (
            Spec((n, rows, cols), dtype, layouts[0], fill),
            Spec((outputs, rows), matrix or dtype, layouts[1], fill),
        ),
        options,
    )


def samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    layouts = len(LAYOUTS_ND)
    for size in SMALL if extent == "small" else SMALL + FULL:
        for _ in range(3 if extent == "small" else 10):
            # Layouts of x and of the matrix cycle with different periods.
            pair = (LAYOUTS_ND[turn % layouts], LAYOUTS_ND[(turn // 3 + turn) % layouts])
            options: Bits = (("layout", "NL"),) if turn % 3 == 1 else ()
            yield sample(size, dtype, pair, FILLS[turn % 2], options)
            turn += 1
    for size in ((2, 3, 5, 4), (3, 9, 12, 3)):
        yield sample(size, dtype, ("C", "C"), "special")
        for other in others(dtype):
            yield sample(size, dtype, ("C", "C"), "whole", matrix=other)


def others(dtype: str) -> tuple[str, ...]:
    """Dtypes of the matrix with which the result has the dtype of x."""
    return {
        "float16": ("bool", "int8"),
        "bfloat16": ("bool", "int8"),
        "float32": ("float16", "bfloat16", "int16", "uint8"),
        "float64": ("float16", "float32", "int32", "uint64", "bool"),
    }[dtype]


def large(dtype: str) -> Iterator[Sample]:
    yield sample(LARGE[0], dtype, ("C", "C"), "normal")
    for turn, size in enumerate(LARGE[1:]):
        pair = (("C", "C"), ("offset", "transposed"), ("C", "offset"), ("F", "C"))[turn]
        options: Bits = (("layout", "NL"),) if turn % 2 else ()
        yield sample(size, dtype, pair, "normal", options)


def bound(
    x: np.ndarray[Any, Any], matrix: np.ndarray[Any, Any], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """The error bound of a result (L2, N); x and matrix in the wide type.

    (L + 18) u |matrix| @ mean|x|.T, u of the accumulator: 16 u for a mean, L for the terms of
    the product in any order, 2 for the products of both errors; then the rounding to the
    result's own dtype, and what may be lost below the smallest number.
    """
    acc = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    rows = x.shape[1]
    size = np.abs(matrix) @ np.abs(x).mean(2).T
    inner = (rows + 18) * unit(acc) * size + (rows + 2) * smallest(acc)
    return np.asarray(inner + unit(dtype) * (size + inner) + smallest(dtype))


def expect_values(
    x: np.ndarray[Any, Any], matrix: np.ndarray[Any, Any], layout: str = "LN"
) -> Expected:
    narrow = ref.mean_matvec(x, matrix, layout)
    dtype = narrow.dtype
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        wide_x, wide_matrix = (a.astype(dtype).astype(acc) for a in (x, matrix))
        exact = ref.mean_matvec(wide_x, wide_matrix, layout)
        limit = bound(wide_x, wide_matrix, dtype) if x.shape[2] else np.zeros(exact.T.shape)
    if layout == "NL" and x.shape[2]:
        limit = limit.T
    limit = limit.reshape(exact.shape)
    return Expected(dtype, np.asarray(exact), np.asarray(limit, acc))


@functools.lru_cache(maxsize=65536)
def _expect(x: Spec, matrix: Spec, options: Bits) -> Expected:
    return expect_values(x.values(), matrix.values(), **dict(options))


def expect(s: Sample) -> Expected:
    x, matrix = (
        Spec(a.shape, a.dtype, "stride0" if a.layout == "stride0" else "C", a.fill)
        for a in s.arrays
    )
    return _expect(x, matrix, s.options)


def floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for size in ((2, 17, 31, 5), (3, 33, 13, 7), (1, 3, 700, 9), (35, 20, 3, 2)):
            yield sample(size, dtype, ("C", "C"), "normal")
        yield sample((40, 71, 43, 70), dtype, ("C", "C"), "normal")
        yield sample((3, 9, 4100, 130), dtype, ("C", "C"), "normal")


def errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def x(n: int = 2, rows: int = 3, cols: int = 4) -> np.ndarray[Any, Any]:
        return np.arange(n * rows * cols, dtype=np.float32).reshape(n, rows, cols)

    def a(outputs: int = 5, rows: int = 3) -> np.ndarray[Any, Any]:
        return np.ones((outputs, rows), np.float32)

    def overlap_x() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = x(3, 3, 4)
        return (memory, a(4)), {"layout": "NL", "out": memory[0]}

    def overlap_matrix() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = a(3, 3)
        return (x(3), memory), {"out": memory}

    return [
        Error("x of two dimensions", lambda: ((x()[0], a()), {}), ValueError,
              r"^x must have 3 dimensions \(N, L, M\), but it has 2$"),
        Error("x of four dimensions", lambda: ((x()[None], a()), {}), ValueError,
              r"^x must have 3 dimensions \(N, L, M\), but it has 4$"),
        Error("x a number", lambda: ((1.0, a()), {}), ValueError, r"x must have 3 .* has 0$"),
        Error("matrix of one dimension", lambda: ((x(), a()[0]), {}), ValueError,
              r"^matrix must have 2 dimensions \(L2, L\), but it has 1$"),
        Error("matrix of three dimensions", lambda: ((x(), x()), {}), ValueError,
              r"^matrix must have 2 dimensions \(L2, L\), but it has 3$"),
        Error("matrix the wrong way round", lambda: ((x(), a().T), {}), ValueError,
              r"^matrix has 5 columns, but x has 3 rows in each batch$"),
        Error("matrix too narrow", lambda: ((x(), a(3, 2)), {}), ValueError,
              r"^matrix has 2 columns, but x has 3 rows in each batch$"),
        Error("complex x", lambda: ((x().astype("c8"), a()), {}), TypeError,
              r"mean_matvec\(\) does not support dtype 'complex64'"),
        Error("complex matrix", lambda: ((x(), a().astype("c16")), {}), TypeError,
              r"mean_matvec\(\) does not support dtype 'complex128'"),
        Error("object x", f(np.empty((2, 3, 4), object), np.ones((5, 3))), TypeError,
              r"dtype 'object'"),
        Error("string matrix", lambda: ((x(), np.full((5, 3), "a")), {}), TypeError,
              r"dtype '<U1'"),
        Error("longdouble x", lambda: ((x().astype("g"), a()), {}), TypeError,
              f"dtype '{np.dtype(np.longdouble)}'"),
        Error("None", lambda: ((None, a()), {}), TypeError, r"dtype 'object'"),
        Error("a ragged list", f([[[1, 2], [3]]], [[1.0, 2.0]]), ValueError,
              r"inhomogeneous"),
        Error("no such layout", lambda: ((x(), a(), "NN"), {}), ValueError,
              r"one of 'LN', 'NL'.*'NN'"),
        Error("layout not a string", lambda: ((x(), a(), 1), {}), TypeError, r"layout"),
        Error("out of the wrong shape",
              lambda: ((x(), a()), {"out": np.zeros((2, 5), np.float32)}), ValueError,
              r"\(2, 5\).*\(5, 2\)|\(5, 2\).*\(2, 5\)"),
        Error("out of the wrong dtype",
              lambda: ((x(), a()), {"out": np.zeros((5, 2))}), TypeError,
              r"float32.*float64|float64.*float32"),
        Error("out read-only",
              lambda: ((x(), a()), {"out": readonly((5, 2), np.float32)}), ValueError,
              r"read-only"),
        Error("out overlaps x", overlap_x, ValueError, r"overlap|shares? memory"),
        Error("out overlaps matrix", overlap_matrix, ValueError, r"overlap|shares? memory"),
        Error("out not an array", lambda: ((x(), a()), {"out": [0.0]}), TypeError, r"out"),
        Error("no such variant", lambda: ((x(), a()), {"variant": "v99"}), ValueError, r"v99"),
        Error("no matrix", lambda: ((x(),), {}), TypeError, r"missing.*'matrix'"),
        Error("unknown keyword", lambda: ((x(), a()), {"axis": 2}), TypeError, r"axis"),
        Error("result too large",
              f(np.broadcast_to(np.float32(0), (2**40, 1, 1)),
                np.broadcast_to(np.float32(0), (2**40, 1))),
              (ValueError, MemoryError), r"too big|allocate"),
    ]  # fmt: skip


def valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.array([[[1, 3], [5, 7]], [[2, 2], [0, 4]]], np.float32)
    matrix = np.array([[1, 10], [1, -1], [0, 2]], np.float32)
    return (x, matrix), {}, np.array([[62, 22], [-4, 0], [12, 4]], np.float32)


def heavy() -> tuple[Any, ...]:
    return np.ones((16_384, 2, 2), np.float32), np.ones((32, 2), np.float32)


ENTRIES = {
    "mean_matvec": Entry(
        samples=samples,
        large=large,
        expect=expect,
        errors=errors,
        valid=valid,
        heavy=heavy,
        floats=floats,
    ),
}
