"""Cases of upsample_nearest and its backward: scales, ranks, layouts, both rules.

A sample of one operator, read in reverse, is a sample of the other.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cases import (
    BFLOAT16,
    LAYOUTS_ND,
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

Bits = tuple[tuple[str, Any], ...]
Shape = tuple[int, ...]

# Spatial axes and their options: integer scales and others, up and down, rows that are and
# are not whole packs of 16 bytes, lengths around a warp, and scales that keep the length.
SMALL: tuple[tuple[Shape, Bits], ...] = (
    ((1,), (("scale", 2.0),)),
    ((33,), (("scale", 2.0),)),
    ((31,), (("size", 50),)),
    ((255,), (("scale", 2),)),
    ((257,), (("scale", 1.5),)),
    ((64,), (("size", (17,)),)),
    ((1, 1), (("size", (3, 5)),)),
    ((4, 8), (("scale", 2.0),)),
    ((8, 16), (("size", (16, 32)),)),
    ((5, 7), (("scale", 3.0),)),
    ((6, 33), (("scale", 2.0),)),
    ((7, 9), (("scale", (2.0, 1.0)),)),
    ((7, 9), (("scale", (1.0, 2.0)),)),
    ((6, 10), (("size", (9, 13)),)),
    ((9, 31), (("scale", 0.5),)),
    ((4, 4), (("size", 16),)),
    ((3, 3), (("scale", 1.2),)),
    ((13, 17), (("scale", 0.7),)),
    ((2, 32), (("size", 1),)),
    ((12, 5), (("scale", (2.5, 3.3)),)),
    ((2, 16), (("scale", (3, 1)),)),
    ((2, 3, 4), (("scale", 2.0),)),
    ((3, 2, 8), (("scale", 2.0),)),
    ((3, 5, 4), (("size", (5, 5, 9)),)),
    ((2, 3, 8), (("scale", (1.0, 2.0, 2.0)),)),
    ((2, 2, 3), (("scale", 1.7),)),
)

FULL: tuple[tuple[Shape, Bits], ...] = (
    ((1023,), (("scale", 2.0),)),
    ((1025,), (("size", 1009),)),
    ((31, 33), (("scale", 2.0),)),
    ((32, 32), (("scale", (2.0, 4.0)),)),
    ((33, 31), (("size", (100, 64)),)),
    ((17, 24), (("scale", 1.0 / 3.0),)),
    ((7, 8, 9), (("scale", 2.0),)),
    ((5, 9, 16), (("scale", (0.6, 2.0, 1.9)),)),
)

# Rows of whole packs of 16 bytes on both sides, in every dtype, always with 16 channels.
PACKED: tuple[tuple[Shape, Bits], ...] = (
    ((16,), (("scale", 2.0),)),
    ((48,), (("scale", 1.0),)),
    ((3, 16), (("scale", (3.0, 1.0)),)),
    ((2, 16), (("scale", (1.0, 2.0)),)),
    ((4, 32), (("scale", 2.0),)),
    ((5, 16), (("scale", (1.5, 1.0)),)),
    ((7, 16), (("size", (10, 16)),)),
    ((2, 16), (("scale", (4.0, 2.0)),)),
    ((2, 3, 16), (("scale", (2.0, 1.5, 1.0)),)),
    ((2, 2, 16), (("scale", (1.0, 3.0, 2.0)),)),
)

# Fewer elements than before, whose gradient is mostly zeros.
SHRUNK: tuple[tuple[Shape, Bits], ...] = (
    ((40,), (("scale", 0.5),)),
    ((61,), (("scale", 0.25),)),
    ((11,), (("scale", 0.9),)),
    ((9, 12), (("scale", 0.5),)),
    ((7, 10), (("scale", (0.5, 0.8)),)),
    ((6, 4), (("size", (3, 2)),)),
    ((4, 5, 6), (("scale", 0.5),)),
)

# One axis, with no, few and many outputs of an element, around the threads of a block.
LINES: tuple[tuple[Shape, Bits], ...] = (
    ((256,), (("scale", 1.5),)),
    ((300,), (("scale", 1.3),)),
    ((255,), (("size", 700),)),
    ((100,), (("scale", 5.4),)),
    ((30,), (("size", 999),)),
    ((513,), (("size", 400),)),
)

LARGE: tuple[tuple[Shape, Bits], ...] = (
    ((40, 56), (("scale", 2.0),)),
    ((65, 129), (("scale", 2.0),)),
    ((64, 64), (("size", (200, 131)),)),
    ((20_001,), (("scale", 2.0),)),
    ((50_003,), (("size", 40_000),)),
    ((12, 20, 28), (("scale", (1.0, 2.0, 3.0)),)),
)

# (N, C): C adjacent channels that do or do not fill packs.
CHANNELS = ((1, 1), (2, 3), (1, 4), (2, 1), (1, 16), (1, 5), (0, 2))
FILLS = ("normal", "whole", "special")


def sample_of(
    spatial: Shape,
    asked: Bits,
    dtype: str,
    channels: tuple[int, int],
    turn: int = 0,
    fill: str = "normal",
    last: bool = False,
    exact: bool = False,
) -> Sample:
    """A sample of upsample_nearest; `turn` picks the layout of its memory."""
    n, c = channels
    shape = (n, *spatial, c) if last else (n, c, *spatial)
    options = list(asked)
    if exact:
        options.append(("exact", True))
    if last:
        options.append(("layout", "NHWC"))
    spec = Spec(shape, dtype, LAYOUTS_ND[turn % len(LAYOUTS_ND)], fill)
    return Sample((spec,), tuple(options))


def samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    few = extent == "small"
    seen = set()
    for spatial, asked in SMALL if few else SMALL + FULL:
        for k in range(2 if few else 6):
            pair = CHANNELS[(turn // 2) % len(CHANNELS)]
            if few and np.prod(spatial) * pair[1] > 320:
                pair = (1, 2)
            found = sample_of(
                spatial,
                asked,
                dtype,
                pair,
                turn,
                FILLS[turn % 3],
                last=k % 2 == 1,
                exact=turn // 2 % 3 == 1,
            )
            turn += 1 if k % 2 == 0 else 2
            if found not in seen:
                seen.add(found)
                yield found
    packed = ((1, 2), False), ((1, 16), True)
    shrunk = ((2, 3), False), ((1, 4), True)
    lines = ((1, 1), False), ((2, 3), False)
    for group, ways in ((PACKED, packed), (SHRUNK, shrunk), (LINES, lines)):
        for (spatial, asked), (channels, last) in itertools.product(group, ways):
            found = sample_of(spatial, asked, dtype, channels, last=last)
            if found not in seen:
                seen.add(found)
                yield found


def large(dtype: str) -> Iterator[Sample]:
    for turn, (spatial, asked) in enumerate(LARGE):
        yield sample_of(spatial, asked, dtype, (2, 3), exact=turn % 2 == 1)
        yield sample_of(spatial, asked, dtype, (1, 4), turn, last=True)


def floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64"):
        for spatial, asked in (SMALL[7], SMALL[9], SMALL[13], SMALL[21], LARGE[2]):
            yield sample_of(spatial, asked, dtype, (2, 3))
            yield sample_of(spatial, asked, dtype, (1, 4), last=True)
        yield sample_of((300,), (("scale", 1.3),), dtype, (2, 3))
        yield sample_of((130, 134), (("scale", 2.0),), dtype, (2, 3))
        yield sample_of((13, 34), (("scale", 0.7),), dtype, (2, 3))


# ---- backward: the same samples in reverse ----


def output_shape(shape: Shape, options: Bits) -> Shape:
    """The shape of the enlarged array, from the reference's own rule."""
    empty = np.broadcast_to(np.int8(0), shape)
    return tuple(np.shape(ref.upsample_nearest(empty, **dict(options))))


def reversed_sample(found: Sample) -> Sample:
    x = found.arrays[0]
    dy = replace(x, shape=output_shape(x.shape, found.options))
    return Sample((dy,), (("input_shape", x.shape), *found.options))


def backward_samples(dtype: str, extent: str) -> Iterator[Sample]:
    yield from map(reversed_sample, samples(dtype, extent))


def backward_large(dtype: str) -> Iterator[Sample]:
    yield from map(reversed_sample, large(dtype))


def backward_floats() -> Iterator[Sample]:
    yield from map(reversed_sample, floats())


# ---- expectations ----


def plain(found: Sample) -> Sample:
    """Only the layout stride0 changes the result, so the others share it."""
    x = found.arrays[0]
    layout = "stride0" if x.layout == "stride0" else "C"
    return Sample((replace(x, layout=layout),), found.options)


@functools.lru_cache(maxsize=65536)
def _expect(found: Sample) -> Expected:
    x = found.arrays[0].values()
    got = np.asarray(ref.upsample_nearest(x, **dict(found.options)))
    value = got.astype(np.float32) if got.dtype == BFLOAT16 else got
    tolerance = np.zeros(value.shape, value.dtype) if value.dtype.kind == "c" else None
    return Expected(got.dtype, value, tolerance)


def expect(found: Sample) -> Expected:
    return _expect(plain(found))


def expect_backward_values(dy: np.ndarray[Any, Any], **options: Any) -> Expected:
    """k terms added in order: (k - 1) u sum |dy|, then the rounding to the dtype.

    u is that of the accumulator: float32 for 16-bit floats.  Twice u covers the products of
    roundings, and the last term what is lost below the smallest number.
    """
    dtype = dy.dtype.newbyteorder("=")
    narrow = np.asarray(ref.upsample_nearest_backward(dy, **options))
    if kind_of(dtype) in "iu":
        return Expected(dtype, narrow)
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        exact = np.asarray(ref.upsample_nearest_backward(dy.astype(acc), **options)).astype(acc)
        if kind_of(dtype) == "c":
            size = ref.upsample_nearest_backward(np.abs(dy.astype(acc)), **options)
        else:
            size = ref.upsample_nearest_backward(np.abs(dy.astype(acc)), **options)
            over = np.isinf(narrow.astype(acc))
            exact = np.where(over, narrow.astype(acc), exact)
        size = np.asarray(size)
        count = np.asarray(ref.upsample_nearest_backward(np.ones(dy.shape), **options))
        inner = unit(dtype) if dtype.itemsize > 2 else 2.0**-24
        bound = 2 * inner * count * size + unit(dtype) * size + smallest(dtype)
        bound = np.asarray(bound)
        if kind_of(dtype) == "c":
            bound = bound * (1 + 1j)
    return Expected(dtype, np.asarray(exact), np.broadcast_to(bound, exact.shape))


@functools.lru_cache(maxsize=65536)
def _expect_backward(found: Sample) -> Expected:
    return expect_backward_values(found.arrays[0].values(), **dict(found.options))


def expect_backward(found: Sample) -> Expected:
    return _expect_backward(plain(found))


# ---- error inputs ----


def image(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def common_errors(backward: bool) -> list[Error]:
    """Errors of both: `call` passes the array and the shape as the right arguments."""

    def call(shape: Shape, *wide: int, **options: Any) -> Callable[[], Any]:
        def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
            if backward:
                return (image(*(wide or (1, 1, 4, 6))), shape), options
            return (image(*shape),), options

        return make

    small = (1, 1, 2, 3)
    return [
        Error("neither size nor scale", call(small), ValueError,
              r"^upsample_nearest(_backward)?\(\) needs exactly one of size and scale, "
              r"got neither$"),
        Error("both size and scale", call(small, size=(4, 6), scale=2), ValueError,
              r"exactly one of size and scale, got both"),
        Error("too many sizes", call(small, size=(2, 4, 6)), ValueError,
              r"^size has 3 values, but there are 2 spatial axes$"),
        Error("too few scales", call(small, scale=(2.0,)), ValueError,
              r"^scale has 1 values, but there are 2 spatial axes$"),
        Error("no sizes", call(small, size=()), ValueError, r"^size has 0 values"),
        Error("size of 0", call(small, size=(4, 0)), ValueError,
              r"^input and output sizes must be greater than 0, but axis 3 has 3 and 0$"),
        Error("negative size", call(small, size=-1), ValueError,
              r"greater than 0, but axis 2 has 2 and -1"),
        Error("scale of 0", call(small, scale=0.0), ValueError,
              r"^scale must be positive and finite, got 0$"),
        Error("negative scale", call(small, scale=(1.0, -2.0)), ValueError,
              r"^scale must be positive and finite, got -2$"),
        Error("nan scale", call(small, scale=float("nan")), ValueError, r"finite, got -?nan"),
        Error("infinite scale", call(small, scale=float("inf")), ValueError, r"got inf$"),
        Error("huge scale", call(small, scale=1e300), ValueError, r"^array is too big"),
        Error("scale that leaves nothing", call(small, scale=0.25), ValueError,
              r"greater than 0, but axis 2 has 2 and 0"),
        Error("size not whole", call(small, size=2.0), TypeError, r"float"),
        Error("scale a string", call(small, scale="2"), TypeError, r"real number"),
        Error("no such layout", call(small, scale=2, layout="NC"), ValueError,
              r"one of 'NCHW', 'NHWC'.*'NC'"),
        Error("no such variant", call(small, scale=2, variant="v99"), ValueError, r"v99"),
        Error("unknown keyword", call(small, scale=2, axis=2), TypeError, r"axis"),
    ]  # fmt: skip


def errors() -> list[Error]:
    def f(x: Any, **options: Any) -> Callable[[], Any]:
        return lambda: ((x,), options)

    def overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = np.zeros(40, np.float32)
        return (memory[:6].reshape(1, 1, 2, 3),), {
            "scale": 2, "out": memory[4:28].reshape(1, 1, 4, 6),
        }  # fmt: skip

    def out(array: Any) -> Callable[[], Any]:
        return lambda: ((image(1, 1, 2, 3),), {"scale": 2, "out": array})

    return [
        *common_errors(False),
        Error("two dimensions", f(image(2, 3), scale=2), ValueError,
              r"^x must have 3, 4 or 5 dimensions: .* but it has 2$"),
        Error("six dimensions", f(image(1, 1, 1, 1, 2, 3), scale=2), ValueError,
              r"^x must have .* but it has 6$"),
        Error("a number", f(1.0, scale=2), ValueError, r"^x must have .* but it has 0$"),
        Error("no channels", f(image(2, 0, 3), scale=2), ValueError,
              r"^x has no channels: axis 1 has 0 elements$"),
        Error("no channels, last", f(image(2, 3, 0), scale=2, layout="NHWC"), ValueError,
              r"^x has no channels: axis 2 has 0 elements$"),
        Error("an empty axis", f(image(2, 3, 0, 4), scale=2), ValueError,
              r"greater than 0, but axis 2 has 0 and 0"),
        Error("object array", f(np.empty((1, 1, 3), object), scale=2), TypeError,
              r"dtype 'object'"),
        Error("strings", f(np.full((1, 1, 3), "a"), scale=2), TypeError, r"dtype '<U1'"),
        Error("a ragged list", f([[[1, 2], [3]]], scale=2), ValueError, r"inhomogeneous"),
        Error("out of the wrong shape", out(np.zeros((1, 1, 6, 4), np.float32)), ValueError,
              r"\(1, 1, 6, 4\).*\(1, 1, 4, 6\)"),
        Error("out of the wrong dtype", out(np.zeros((1, 1, 4, 6))), TypeError,
              r"float64.*float32"),
        Error("out read-only", out(readonly((1, 1, 4, 6), np.float32)), ValueError,
              r"read-only"),
        Error("out overlaps", overlap, ValueError, r"overlap|shares? memory"),
        Error("out not an array", out([0.0]), TypeError, r"out"),
        Error("result too large",
              f(np.broadcast_to(np.float32(0), (2**20, 2**20, 2**20)), scale=16.0),
              (ValueError, MemoryError), r"too big|allocate"),
    ]  # fmt: skip


def backward_errors() -> list[Error]:
    def f(dy: Any, shape: Any, **options: Any) -> Callable[[], Any]:
        return lambda: ((dy, shape), options)

    def overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = np.zeros(40, np.float32)
        return (memory[:24].reshape(1, 1, 4, 6), (1, 1, 2, 3)), {
            "scale": 2, "out": memory[20:26].reshape(1, 1, 2, 3),
        }  # fmt: skip

    def out(array: Any) -> Callable[[], Any]:
        return lambda: ((image(1, 1, 4, 6), (1, 1, 2, 3)), {"scale": 2, "out": array})

    return [
        *common_errors(True),
        Error("two dimensions", f(image(2, 3), (2, 3), scale=2), ValueError,
              r"^dy must have 3, 4 or 5 dimensions: .* but it has 2$"),
        Error("bool", f(np.ones((1, 1, 4), bool), (1, 1, 2), scale=2), TypeError,
              r"^upsample_nearest_backward\(.*\) does not support dtype 'bool'"),
        Error("dy of another width", f(image(1, 1, 4, 5), (1, 1, 2, 3), scale=2), ValueError,
              r"^dy has shape \(1, 1, 4, 5\), but an input of shape \(1, 1, 2, 3\) gives "
              r"\(1, 1, 4, 6\)$"),
        Error("dy of other channels", f(image(1, 2, 4, 6), (1, 1, 2, 3), scale=2), ValueError,
              r"^dy has shape \(1, 2, 4, 6\), but"),
        Error("dy of another batch", f(image(2, 1, 4, 6), (1, 1, 2, 3), scale=2), ValueError,
              r"^dy has shape \(2, 1, 4, 6\), but"),
        Error("input_shape too short", f(image(1, 1, 4, 6), (1, 2, 3), scale=2), ValueError,
              r"^input_shape has 3 values, but dy has 4 dimensions$"),
        Error("input_shape negative", f(image(1, 1, 4, 6), (1, 1, -2, 3), scale=2), ValueError,
              r"^negative dimensions are not allowed: input_shape\[2\] is -2$"),
        Error("input_shape empty", f(image(1, 1, 4, 6), (1, 1, 0, 3), scale=2), ValueError,
              r"greater than 0, but axis 2 has 0 and 0"),
        Error("no channels", f(image(1, 0, 4, 6), (1, 0, 2, 3), scale=2), ValueError,
              r"^input_shape has no channels: axis 1 has 0 elements$"),
        Error("no input_shape", lambda: ((image(1, 1, 4, 6),), {"scale": 2}), TypeError,
              r"missing.*'input_shape'"),
        Error("input_shape a string", f(image(1, 1, 4, 6), "a", scale=2), TypeError, r"str"),
        Error("input_shape too large",
              f(image(1, 1, 4, 6), (1, 1, 2**40, 2**40), size=(4, 6)),
              (ValueError, MemoryError), r"too big|allocate"),
        Error("out of the wrong shape", out(np.zeros((1, 1, 3, 2), np.float32)), ValueError,
              r"\(1, 1, 3, 2\).*\(1, 1, 2, 3\)"),
        Error("out of the wrong dtype", out(np.zeros((1, 1, 2, 3))), TypeError,
              r"float64.*float32"),
        Error("out read-only", out(readonly((1, 1, 2, 3), np.float32)), ValueError,
              r"read-only"),
        Error("out overlaps", overlap, ValueError, r"overlap|shares? memory"),
    ]  # fmt: skip


def valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.array([[[[1, 2], [3, 4]]]], np.float32)
    rows = [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]
    return (x,), {"scale": 2.0}, np.array([[rows]], np.float32)


def backward_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    dy = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    return (dy, (1, 1, 2, 2)), {"scale": 2.0}, np.array([[[[10, 18], [42, 50]]]], np.float32)


def backward_heavy() -> tuple[Any, ...]:
    return np.ones((1, 64, 64, 64), np.float32), (1, 64, 32, 32)


ENTRIES = {
    "upsample_nearest": Entry(
        samples=samples,
        large=large,
        expect=expect,
        errors=errors,
        valid=valid,
        floats=floats,
    ),
    "upsample_nearest_backward": Entry(
        samples=backward_samples,
        large=backward_large,
        expect=expect_backward,
        errors=backward_errors,
        valid=backward_valid,
        heavy=backward_heavy,
        floats=backward_floats,
    ),
}
