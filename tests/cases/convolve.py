"""Cases of convolve: lengths around vectors, tiles and chunks, modes, batches, layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    LAYOUTS_1D,
    LAYOUTS_ND,
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

MODES = ("full", "same", "valid")

# (N, M): around a vector, a thread's 4 to 16 sums, 8 lanes of them, 128 and 256 terms;
# the longer row first and second.
SMALL: tuple[tuple[int, int], ...] = (
    (1, 1),
    (2, 1),
    (3, 3),
    (2, 5),
    (31, 4),
    (32, 33),
    (33, 32),
    (64, 15),
    (127, 17),
    (128, 16),
    (31, 129),
    (255, 3),
    (256, 65),
    (257, 33),
    (1009, 2),
    (1023, 7),
    (300, 290),
    (600, 261),
    (1, 1000),
    (130, 520),
)

FULL: tuple[tuple[int, int], ...] = (
    (1024, 1025),
    (1025, 256),
    (2047, 9),
    (600, 513),
    (5000, 70),
    (1100, 1030),
    (8193, 1),
)

# Shapes that broadcast.
BATCHES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 40), (7,)),
    ((2, 3, 20), (3, 9)),
    ((33,), (4, 5)),
    ((4, 1, 17), (5, 3)),
    ((2, 1, 9), (1, 3, 70)),
    ((35, 2), (35, 3)),
    ((0, 5), (3,)),
    ((2, 150), (2, 140)),
)

LARGE: tuple[tuple[int, int], ...] = (
    (4200, 33),
    (2**20 + 3, 5),
    (9001, 1201),
    (2001, 1999),
)

# The dtype of the other operand in calls with promotion.
OTHERS = {
    "bool": ("int8", "float32"),
    "int8": ("uint8", "float16", "bfloat16"),
    "uint8": ("int16", "complex64"),
    "int16": ("uint16", "bfloat16"),
    "uint16": ("int8", "float32"),
    "int32": ("uint32", "float32"),
    "uint32": ("int8", "complex64"),
    "int64": ("uint64", "bool"),
    "uint64": ("int64", "uint8"),
    "float16": ("int8", "bfloat16", "float32"),
    "bfloat16": ("float16", "uint8", "bool"),
    "float32": ("float16", "bfloat16", "int64"),
    "float64": ("float32", "complex64"),
    "complex64": ("float16", "float64"),
    "complex128": ("bfloat16", "int64"),
}

# The variants that transform, and what they take, by the common dtype; in float32 but for
# float64 and complex128.
SPECTRAL = ("float16", "bfloat16", "float32")
LARGE_TYPES = ("float32", "float64", "complex64", "complex128")
BY_SPECTRA = {"v3": SPECTRAL, "long_filters": SPECTRAL, "large_transforms": LARGE_TYPES}

# (N, M) of spectra, around blocks of 512; of transforms through memory, chunks of 256.
LONG = ((300, 192), (400, 230), (520, 500), (700, 512))
LARGE_FULL = ((1024, 1024), (1100, 1030), (1025, 1200), (1300, 770))
LARGE_VALID = (1024, 1025, 1026, 1031, 1056, 1100, 1279, 1280, 1281, 1290, 1536, 1600)

# Two arrays with the same fill would have the same values if their shapes are equal.
OTHER_NORMAL = "normal v"

Bits = tuple[tuple[str, Any], ...]


def sample(a: Spec, v: Spec, mode: str = "full") -> Sample:
    return Sample((a, v), () if mode == "full" else (("mode", mode),))


def samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    for n, m in SMALL if extent == "small" else SMALL + FULL:
        for mode in MODES:
            for _ in range(1 if extent == "small" else 3):
                layouts = (
                    LAYOUTS_1D[turn % len(LAYOUTS_1D)],
                    LAYOUTS_1D[(turn // 3 + turn) % len(LAYOUTS_1D)],
                )
                fill = ("normal", "whole")[turn % 2]
                turn += 1
                other = OTHER_NORMAL if fill == "normal" else fill
                yield sample(
                    Spec((n,), dtype, layouts[0], fill),
                    Spec((m,), dtype, layouts[1], other),
                    mode,
                )
    for a, v in BATCHES:
        for _ in range(2 if extent == "small" else 6):
            yield sample(
                Spec(a, dtype, layout_for(a, turn)),
                Spec(v, dtype, layout_for(v, turn // 2 + 3 * turn), OTHER_NORMAL),
                MODES[turn % 3],
            )
            turn += 1
    for n, m in ((33, 9), (9, 33), (200, 31), (600, 300)):
        if kind_of(dtype_of(dtype)) in "fc":
            yield sample(
                Spec((n,), dtype, "C", "special"), Spec((m,), dtype, "C", OTHER_NORMAL), "same"
            )
            yield sample(
                Spec((n,), dtype, "C", OTHER_NORMAL), Spec((m,), dtype, "C", "special")
            )
    for n, m in LONG if dtype in SPECTRAL else ():
        for mode in MODES:
            yield sample(Spec((n,), dtype), Spec((m,), dtype, "C", OTHER_NORMAL), mode)
    for n, m in LARGE_FULL if dtype in LARGE_TYPES else ():
        for mode in MODES:
            yield sample(Spec((n,), dtype), Spec((m,), dtype, "step2", OTHER_NORMAL), mode)
    for m in LARGE_VALID if dtype in LARGE_TYPES else ():
        yield sample(Spec((m + m % 9 + 20,), dtype), Spec((m,), dtype, "C", OTHER_NORMAL),
                     "valid")  # fmt: skip
    for other in OTHERS[dtype]:
        yield sample(Spec((33,), dtype, "C", "whole"), Spec((5,), other, "C", "whole"))
        yield sample(Spec((3,), other, "C", "whole"), Spec((33,), dtype, "step2", "whole"))
    yield sample(Spec((), dtype), Spec((3,), dtype, "C", OTHER_NORMAL))
    yield sample(Spec((2, 3), dtype), Spec((), dtype, "C", OTHER_NORMAL), "valid")


def layout_for(shape: tuple[int, ...], turn: int) -> str:
    layouts = LAYOUTS_1D if len(shape) < 2 else LAYOUTS_ND
    return layouts[turn % len(layouts)]


def large(dtype: str) -> Iterator[Sample]:
    for turn, (n, m) in enumerate(LARGE):
        layout = ("C", "offset", "C", "step2")[turn]
        yield sample(
            Spec((n,), dtype, layout), Spec((m,), dtype, "C", OTHER_NORMAL), MODES[turn % 2]
        )
    yield sample(Spec((5, 2000), dtype), Spec((5, 700), dtype, "F", OTHER_NORMAL))


def magnitudes(a: np.ndarray[Any, Any], v: np.ndarray[Any, Any], mode: str) -> Any:
    """The convolution of the operands' magnitudes, for the bound; complex by parts."""
    a, v = a.astype(np.complex128), v.astype(np.complex128)
    if not (a.imag.any() or v.imag.any()):
        return ref.convolve(np.abs(a.real), np.abs(v.real), mode)
    re, im, x, y = np.abs(a.real), np.abs(a.imag), np.abs(v.real), np.abs(v.imag)
    real = ref.convolve(re, x, mode) + ref.convolve(im, y, mode)
    imag = ref.convolve(re, y, mode) + ref.convolve(im, x, mode)
    return real + 1j * imag


def bound(
    a: np.ndarray[Any, Any],
    v: np.ndarray[Any, Any],
    mode: str,
    dtype: np.dtype[Any],
    exact: np.ndarray[Any, Any],
    variant: str = "",
) -> np.ndarray[Any, Any]:
    """The error bound of a result; a and v in the wide type.

    (2 min(M, 512) + M / 512 + 8) u conv(|a|, |v|): one rounding for a product and one for an
    addition, two for a complex product; up to 512 terms are added in order, and the total of
    those sums is compensated, except for the pieces of v1.  Then the rounding to the result's
    own dtype, and products below the smallest number.  The error of a Fourier transform is at
    most 32 log2(length) 2**-53 |a| |v|, with the norms of the rows; for CUDA's variants that
    transform in float32, 4 log2(length) 2**-24 |a| |v|.
    """
    n, m = max(a.shape[-1:], v.shape[-1:])[0], min(a.shape[-1:], v.shape[-1:])[0]
    wide = dtype.name in ("float64", "complex128")
    u = 2.0**-53 if wide else 2.0**-24
    small = smallest(np.dtype(np.float64 if wide else np.float32))
    with np.errstate(all="ignore"):
        size = magnitudes(a, v, mode)
        inner = (2 * min(m, 512) + m / 512 + 8) * u * size
        squares = [np.sum(np.where(np.isfinite(x), np.abs(x), 0) ** 2, -1) for x in (a, v)]
        norms = np.sqrt(squares[0] * squares[1])
        share = 4 * 2.0**-24 if variant in BY_SPECTRA and not wide else 32 * 2.0**-53
        transform = ((n + m).bit_length() + 2) * share * norms[..., None]
        rounding = unit(dtype) * (np.abs(exact.real) + 1j * np.abs(exact.imag))
        extra = transform + (m + 2) * small + smallest(dtype)
        limit = inner + rounding + extra * (1 + 1j)
    return np.asarray(limit if dtype.kind == "c" else limit.real)


def expect_values(
    a: np.ndarray[Any, Any], v: np.ndarray[Any, Any], mode: str = "full", variant: str = ""
) -> Expected:
    """What a variant of gpuopt.convolve must return for these values."""
    dtype = ref.convolve_dtype(a, v)
    takes = BY_SPECTRA.get(variant, (dtype.name,))
    if dtype.name not in takes:
        message = f"convolve(variant={variant}) does not support dtype '{dtype.name}'; "
        message += "supported: " + ", ".join(takes)
        return Expected(dtype, np.zeros(0, dtype), error=TypeError, message=message)
    if kind_of(dtype) not in "fc":
        return Expected(dtype, np.asarray(ref.convolve(a, v, mode)))
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        a, v = (np.atleast_1d(x).astype(dtype).astype(acc) for x in (a, v))
        exact = np.asarray(ref.convolve(a, v, mode))
        limit = bound(a, v, mode, dtype, exact, variant)
    finite = np.isfinite(exact)
    limit = np.where(finite, np.broadcast_to(limit, exact.shape), 0)
    return Expected(dtype, exact, limit.astype(acc))


@functools.lru_cache(maxsize=65536)
def _expect(a: Spec, v: Spec, options: Bits, variant: str) -> Expected:
    return expect_values(a.values(), v.values(), variant=variant, **dict(options))


def expect(s: Sample, variant: str = "") -> Expected:
    a, v = (
        Spec(x.shape, x.dtype, "stride0" if x.layout == "stride0" else "C", x.fill)
        for x in s.arrays
    )
    return _expect(a, v, s.options, variant)


def floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for a, v in (
            ((300,), (290,)),
            ((1000,), (31,)),
            ((2, 3, 40), (3, 17)),
            ((700,), (13,)),
        ):
            yield sample(Spec(a, dtype), Spec(v, dtype, "C", OTHER_NORMAL))
        yield sample(Spec((2100,), dtype), Spec((1100,), dtype, "C", OTHER_NORMAL))
        yield sample(Spec((60_000,), dtype), Spec((37,), dtype, "C", OTHER_NORMAL), "same")


def errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def a(n: int = 6) -> np.ndarray[Any, Any]:
        return np.arange(n, dtype=np.float32)

    def v(m: int = 3) -> np.ndarray[Any, Any]:
        return np.ones(m, np.float32)

    def overlap(which: int) -> Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]:
        def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
            memory = a(6)
            if which:
                return (v(6), memory[:3]), {"mode": "same", "out": memory}
            return (memory, v()), {"mode": "same", "out": memory}

        return make

    return [
        Error("both empty", lambda: ((a(0), v(0)), {}), ValueError, r"^a cannot be empty$"),
        Error("v empty", lambda: ((a(), v(0)), {}), ValueError, r"^v cannot be empty$"),
        Error("a empty", lambda: ((a(0), v()), {}), ValueError, r"^a cannot be empty$"),
        Error("empty rows", lambda: ((np.zeros((2, 0), "f4"), v()), {}), ValueError,
              r"^a cannot be empty$"),
        Error("rows that do not broadcast",
              lambda: ((np.zeros((2, 5)), np.zeros((3, 4))), {}), ValueError,
              r"^leading axes could not be broadcast together with shapes \(2,5\) \(3,4\)$"),
        Error("leading axes that do not broadcast",
              lambda: ((np.zeros((4, 1, 5)), np.zeros((3, 2, 4))), {}), ValueError,
              r"broadcast together with shapes \(4,1,5\) \(3,2,4\)$"),
        Error("no such mode", lambda: ((a(), v(), "fill"), {}), ValueError,
              r"one of 'full', 'same', 'valid'.*'fill'"),
        Error("mode not a string", lambda: ((a(), v(), 2), {}), TypeError, r"mode"),
        Error("object a", f(np.array([None, 1]), [1.0]), TypeError, r"dtype 'object'"),
        Error("string v", lambda: ((a(), np.array(["a"])), {}), TypeError, r"dtype '<U1'"),
        Error("longdouble a", lambda: ((a().astype("g"), v()), {}), TypeError,
              f"dtype '{np.dtype(np.longdouble)}'"),
        Error("a ragged list", f([[1.0, 2.0], [3.0]], [1.0]), ValueError, r"inhomogeneous"),
        Error("None", lambda: ((a(), None), {}), TypeError, r"dtype 'object'"),
        Error("out of the wrong shape",
              lambda: ((a(), v()), {"out": np.zeros(6, np.float32)}), ValueError,
              r"\(6,\).*\(8,\)"),
        Error("out of the wrong dtype", lambda: ((a(), v()), {"out": np.zeros(8)}), TypeError,
              r"float64.*float32"),
        Error("out read-only",
              lambda: ((a(), v()), {"out": readonly((8,), np.float32)}), ValueError,
              r"read-only"),
        Error("out is a", overlap(0), ValueError, r"shares memory with a"),
        Error("out overlaps v", overlap(1), ValueError, r"shares memory with v"),
        Error("out not an array", lambda: ((a(), v()), {"out": [0.0]}), TypeError, r"out"),
        Error("no such variant", lambda: ((a(), v()), {"variant": "v99"}), ValueError, r"v99"),
        Error("no v", lambda: ((a(),), {}), TypeError, r"missing.*'v'"),
        Error("unknown keyword", lambda: ((a(), v()), {"axis": 0}), TypeError, r"axis"),
        Error("row too long",
              f(np.broadcast_to(np.True_, (2**63 - 1,)), [True, False]), ValueError,
              r"^array is too big; its size overflows$"),
        Error("result too large",
              f(np.broadcast_to(np.float32(0), (2**40, 1, 1)),
                np.broadcast_to(np.float32(0), (2**40, 1))),
              (ValueError, MemoryError), r"too big|allocate"),
    ]  # fmt: skip


def valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    a = np.array([1, 2, 3], np.float32)
    return (a, np.array([0, 1, 0.5], np.float32)), {}, np.array([0, 1, 2.5, 4, 1.5], np.float32)


def heavy() -> tuple[Any, ...]:
    return np.ones(70_000, np.float32), np.ones(65_536, np.float32)


ENTRIES = {
    "convolve": Entry(
        samples=samples,
        large=large,
        expect=expect,
        bounds={name: functools.partial(expect, variant=name) for name in BY_SPECTRA},
        errors=errors,
        valid=valid,
        heavy=heavy,
        floats=floats,
    ),
}
