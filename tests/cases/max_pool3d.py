"""Cases of max_pool3d, its views of lower rank and their gradients.

Order: windows by rank, samples of pooling, its expectation, indices of a pooling as an
array, samples of the gradient, its expectation, error inputs, the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cases import (
    BIG,
    LAYOUTS_ND,
    SIZES,
    Entry,
    Error,
    Expected,
    Sample,
    Several,
    Spec,
    dtype_of,
    kind_of,
    lay_out,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

# ---- windows by rank: shape of x, options of the windows ----

Case = tuple[tuple[int, ...], dict[str, Any]]

THREE: tuple[Case, ...] = (
    ((2, 3, 4, 6, 8), {"kernel_size": 2}),
    ((3, 4, 5, 7), {"kernel_size": 3, "stride": 1}),
    ((1, 2, 5, 5, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((2, 8, 8, 8), {"kernel_size": 8, "stride": 1}),
    ((1, 1, 3, 9, 9), {"kernel_size": (2, 8, 8), "stride": 1}),
    ((1, 2, 4, 5, 6), {"kernel_size": (1, 2, 3), "stride": (2, 1, 2), "ceil_mode": True}),
    ((2, 3, 3, 35), {"kernel_size": (2, 3, 4), "stride": (1, 1, 2), "padding": (1, 1, 2)}),
    ((1, 1, 7, 7, 7), {"kernel_size": 3, "dilation": 2, "padding": 1, "stride": 1}),
    ((2, 1, 2, 2, 2), {"kernel_size": 4, "padding": 2, "stride": 1}),
    ((1, 3, 3, 3), {"kernel_size": 2, "dilation": 4, "padding": 1, "stride": 3}),
    ((0, 2, 3, 3, 3), {"kernel_size": 2}),
    ((1, 1, 1, 1, 1), {"kernel_size": 1}),
    ((1, 2, 9, 4, 4), {"kernel_size": (9, 3, 2), "stride": (1, 2, 1)}),
    ((1, 10, 5, 4), {"kernel_size": (7, 5, 4), "padding": (3, 2, 2), "stride": (2, 1, 3)}),
    ((2, 2, 5, 4, 3), {"kernel_size": 2, "stride": 3, "ceil_mode": True}),
    ((1, 2, 17, 3), {"kernel_size": (1, 3, 1), "stride": 1, "dilation": (1, 5, 1)}),
    ((1, 1, 2, 18, 18), {"kernel_size": (2, 17, 17), "stride": 1, "padding": (0, 8, 8)}),
)

TWO: tuple[Case, ...] = (
    ((2, 3, 8, 8), {"kernel_size": 2}),
    ((3, 9, 11), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((1, 2, 9, 40), {"kernel_size": (3, 5), "stride": (2, 1), "padding": (1, 2)}),
    ((2, 33, 5), {"kernel_size": (8, 2), "stride": 1}),
    ((1, 1, 16, 16), {"kernel_size": 8, "stride": 8}),
    ((1, 2, 13, 7), {"kernel_size": 3, "dilation": (3, 2), "stride": 1}),
    ((2, 2, 7, 6), {"kernel_size": 2, "stride": 3, "ceil_mode": True}),
    ((1, 34, 3), {"kernel_size": (34, 2), "stride": 1}),
    ((0, 1, 3, 3), {"kernel_size": 3}),
    ((1, 1, 1, 7), {"kernel_size": (1, 2), "stride": (5, 1)}),
    ((2, 1, 3, 3), {"kernel_size": 6, "padding": 3, "stride": 2}),
    ((1, 5, 5), {"kernel_size": 2, "dilation": 5, "padding": 1, "stride": 1}),
    ((4, 1, 10, 6), {"kernel_size": (5, 3), "stride": (3, 2), "ceil_mode": True}),
    ((1, 31, 17), {"kernel_size": 4, "stride": 4, "padding": 2}),
    ((65, 2, 3, 2), {"kernel_size": (2, 1), "stride": 1}),
    ((1, 2, 20, 12), {"kernel_size": (7, 6), "stride": (4, 5), "padding": 3}),
    ((2, 1, 6, 33), {"kernel_size": (2, 32), "stride": 1}),
)

ONE: tuple[Case, ...] = (
    ((2, 3, 45), {"kernel_size": 5, "stride": 2, "padding": 2}),
    ((3, 50), {"kernel_size": 7, "stride": 3}),
    ((2, 2, 61), {"kernel_size": 6, "stride": 4, "padding": 1}),
    ((1, 3, 38), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    ((4, 29), {"kernel_size": 9, "stride": 2, "padding": 4}),
    ((2, 77), {"kernel_size": 8, "stride": 5}),
    ((3, 2, 24), {"kernel_size": 4, "stride": 3, "padding": 2}),
    *(((1, n), {"kernel_size": 3, "stride": 1, "padding": 1}) for n in SIZES if 0 < n < 1100),
    ((2, 3, 40), {"kernel_size": 8, "stride": 1}),
    ((2, 70), {"kernel_size": 33, "stride": 1, "padding": 16}),
    ((1, 2, 65), {"kernel_size": 5, "stride": 2, "dilation": 3, "ceil_mode": True}),
    ((3, 1, 9), {"kernel_size": 2, "stride": 4, "padding": 1}),
    ((0, 3, 5), {"kernel_size": 2}),
    ((1, 100), {"kernel_size": 100}),
    ((2, 1, 3), {"kernel_size": 2, "dilation": 4, "padding": 1}),
    ((5, 7), {"kernel_size": 1, "stride": 3}),
)

# Windows that span more than a tile of v6 on CUDA: 8 to 32 elements of an axis.
WIDE: dict[int, tuple[Case, ...]] = {
    3: (
        ((1, 1, 3, 4, 36), {"kernel_size": (2, 2, 34), "stride": 1}),
        ((2, 2, 3, 40), {"kernel_size": (1, 2, 33), "stride": (1, 1, 2), "padding": (0, 1, 3)}),
        ((1, 34, 3, 4), {"kernel_size": (33, 2, 2), "stride": 1}),
        ((1, 1, 2, 35, 3), {"kernel_size": (2, 33, 1), "stride": 1}),
        ((1, 2, 3, 70), {"kernel_size": (2, 3, 9), "stride": 3, "dilation": (1, 1, 5)}),
        ((2, 1, 1, 3, 50), {"kernel_size": (1, 1, 40), "stride": 7, "padding": (0, 0, 20)}),
        ((2, 1, 2, 34), {"kernel_size": (1, 1, 33), "stride": 1, "ceil_mode": True}),
    ),
    2: (
        ((1, 36, 3), {"kernel_size": (33, 2), "stride": 1}),
        ((2, 3, 40), {"kernel_size": (2, 35), "stride": 1}),
        ((1, 2, 5, 50), {"kernel_size": (3, 34), "stride": (2, 3), "padding": (1, 17)}),
        ((2, 40, 4), {"kernel_size": (36, 3), "stride": (3, 1)}),
        ((1, 4, 70), {"kernel_size": (2, 9), "stride": 1, "dilation": (1, 5)}),
        ((3, 3, 64), {"kernel_size": (3, 64)}),
    ),
    1: (
        ((2, 80), {"kernel_size": 40, "stride": 2}),
        ((1, 3, 66), {"kernel_size": 33}),
        ((2, 50), {"kernel_size": 49, "stride": 5, "padding": 24}),
        ((1, 90), {"kernel_size": 12, "stride": 1, "dilation": 4}),
        ((4, 35), {"kernel_size": 34, "stride": 1}),
        ((1, 200), {"kernel_size": 150, "stride": 10}),
    ),
}

# Batches of channels that lie beside each other: packs of 16 and 4 bytes and of one
# element, several tiles of channels and runs of outputs.
CHANNELS: dict[int, tuple[Case, ...]] = {
    3: (
        ((2, 8, 3, 5, 6), {"kernel_size": 2}),
        ((1, 24, 3, 4, 5), {"kernel_size": 3, "stride": 1, "padding": 1}),
        ((2, 6, 3, 6, 7), {"kernel_size": (2, 3, 2), "stride": (1, 2, 3), "ceil_mode": True}),
        ((1, 5, 4, 4, 6), {"kernel_size": 2, "stride": 1, "dilation": (3, 1, 2)}),
        ((1, 72, 2, 2, 3), {"kernel_size": 2, "stride": 1, "padding": 1}),
        ((3, 2, 2, 9, 8), {"kernel_size": (2, 5, 4), "stride": 1}),
        ((0, 8, 3, 3, 3), {"kernel_size": 2}),
    ),
    2: (
        ((2, 16, 9, 10), {"kernel_size": 2}),
        ((1, 40, 7, 8), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((3, 6, 5, 17), {"kernel_size": (5, 3), "stride": (1, 2)}),
        ((1, 67, 4, 3), {"kernel_size": 2, "stride": 1}),
        ((1, 3, 18, 19), {"kernel_size": 3, "stride": 1, "padding": 1, "dilation": (2, 1)}),
        ((2, 8, 5, 4), {"kernel_size": (5, 4)}),
        ((1, 4, 3, 3), {"kernel_size": 2, "dilation": 4, "padding": 1, "stride": 3}),
    ),
    1: (
        ((2, 8, 40), {"kernel_size": 2}),
        ((1, 24, 70), {"kernel_size": 3, "stride": 1, "padding": 1}),
        ((2, 5, 33), {"kernel_size": 9, "stride": 2, "dilation": 2, "ceil_mode": True}),
        ((1, 66, 12), {"kernel_size": 4, "stride": 3}),
        ((4, 2, 150), {"kernel_size": 5, "stride": 1}),
        ((1, 16, 9), {"kernel_size": 9}),
        ((3, 10, 20), {"kernel_size": 6, "stride": 4, "padding": 3}),
    ),
}

# Windows that do not overlap, for the gradient; some leave elements out.
APART: dict[int, tuple[Case, ...]] = {
    3: (
        ((2, 3, 6, 7, 9), {"kernel_size": 3}),
        ((1, 2, 5, 8, 6), {"kernel_size": 2, "stride": (3, 2, 4), "padding": 1}),
        ((3, 5, 9, 4), {"kernel_size": (5, 4, 2), "padding": (2, 1, 0), "ceil_mode": True}),
        ((2, 4, 7, 11), {"kernel_size": 2, "stride": 5, "dilation": (1, 3, 4)}),
    ),
    2: (
        ((2, 3, 12, 15), {"kernel_size": 3}),
        ((1, 2, 13, 10), {"kernel_size": 4, "padding": 2, "ceil_mode": True}),
        ((3, 17, 9), {"kernel_size": (2, 3), "stride": (5, 4)}),
        ((2, 14, 21), {"kernel_size": 3, "stride": 7, "dilation": 2, "padding": 1}),
        ((1, 2, 9, 9), {"kernel_size": 9, "padding": 4}),
        ((4, 3, 5, 6), {"kernel_size": (5, 2), "padding": (2, 1)}),
        ((1, 1, 8, 30), {"kernel_size": (1, 4), "stride": (2, 5)}),
    ),
    1: (
        ((2, 3, 47), {"kernel_size": 9}),
        ((3, 61), {"kernel_size": 4, "stride": 11, "padding": 2}),
        ((2, 80), {"kernel_size": 3, "stride": 10, "dilation": 4, "ceil_mode": True}),
        ((1, 2, 35), {"kernel_size": 13, "padding": 6}),
        ((5, 26), {"kernel_size": 5, "ceil_mode": True}),
    ),
}

# Windows that overlap, not dilated, for the gradient.
OVERLAPPING: dict[int, tuple[Case, ...]] = {
    3: (
        ((2, 2, 7, 9, 10), {"kernel_size": 4, "stride": 1, "padding": 1}),
        ((3, 8, 5, 35), {"kernel_size": (5, 3, 6), "stride": (1, 2, 1)}),
        ((1, 1, 4, 3, 9), {"kernel_size": (3, 1, 2), "stride": (1, 2, 1)}),
    ),
    2: (
        ((2, 1, 12, 15), {"kernel_size": 5, "stride": 1, "padding": 2}),
        ((2, 9, 150), {"kernel_size": (2, 7), "stride": (1, 1)}),
        ((3, 8, 21), {"kernel_size": (1, 4), "stride": (3, 2), "padding": (0, 2)}),
    ),
    1: (
        ((2, 2, 39), {"kernel_size": 10, "stride": 1, "padding": 5}),
        ((3, 260), {"kernel_size": 6, "stride": 2}),
        ((1, 4, 17), {"kernel_size": 3, "stride": 1}),
    ),
}

# One or two windows of each axis have an element, for the kernel of these alone.
PAIRED: dict[int, tuple[Case, ...]] = {
    rank: tuple(
        ((2, *(6, 9, length)[3 - rank :]), {"kernel_size": kernel, "stride": stride,
                                            "padding": padding})
        for kernel, stride, padding in ((2, 1, 0), (2, 1, 1), (3, 2, 0), (3, 2, 1), (4, 2, 2),
                                        (5, 3, 1))
        for length in (7, 12, 33)
    )
    for rank in (1, 2, 3)
}  # fmt: skip

CASES = {3: THREE + WIDE[3], 2: TWO + WIDE[2], 1: ONE + WIDE[1]}

LARGE: dict[int, tuple[Case, ...]] = {
    3: (
        ((2, 3, 9, 10, 11), {"kernel_size": 3, "stride": 1, "padding": 1}),
        ((3, 5, 17, 18, 19), {"kernel_size": 2}),
        ((2, 2, 20, 33, 35), {"kernel_size": 8, "stride": 1}),
        ((1, 3, 12, 40, 130), {"kernel_size": (3, 5, 9), "stride": (2, 1, 4), "padding": 1}),
    ),
    2: (
        ((2, 3, 30, 31), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((2, 5, 100, 130), {"kernel_size": 8, "stride": 1}),
        ((1, 1, 300, 301), {"kernel_size": (40, 50), "stride": (7, 1), "padding": 20}),
    ),
    1: (
        ((2, 2, 1200), {"kernel_size": 8, "stride": 1, "padding": 4}),
        ((1, 1, BIG), {"kernel_size": 7, "stride": 3, "padding": 2}),
        ((3, 5000), {"kernel_size": 300, "stride": 1}),
    ),
}

FILLS = ("whole", "special", "normal", "whole")

# ---- samples of pooling ----


def _bits(options: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


def pool_samples(rank: int, dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    for repeat in range(2 if extent == "full" else 1):
        for shape, windows in CASES[rank]:
            turn += 1
            layout = LAYOUTS_ND[(turn + repeat * 3) % len(LAYOUTS_ND)]
            fill = FILLS[(turn + repeat) % len(FILLS)]
            options = dict(windows)
            if (turn + repeat) % 2:
                options["return_indices"] = True
            yield Sample((Spec(shape, dtype, layout, fill),), _bits(options))

    for turn, (shape, windows) in enumerate(CHANNELS[rank]):
        options = dict(windows)
        if turn % 2:
            options["return_indices"] = True
        fill = FILLS[turn % len(FILLS)]
        yield Sample((Spec(shape, dtype, "channels_last", fill),), _bits(options))


def pool_large(rank: int, dtype: str) -> Iterator[Sample]:
    for turn, (shape, windows) in enumerate(LARGE[rank]):
        options = dict(windows)
        if turn % 2 == 0:
            options["return_indices"] = True
        yield Sample((Spec(shape, dtype, "C", "whole"),), _bits(options))


MIDDLE: dict[int, Case] = {
    3: ((2, 3, 20, 22, 24), {"kernel_size": 3, "stride": 2, "padding": 1}),
    2: ((2, 2, 120, 130), {"kernel_size": 5, "stride": 2}),
    1: ((2, 3, 11_000), {"kernel_size": 6, "stride": 2, "padding": 3}),
}


def pool_floats(rank: int) -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for shape, windows in CASES[rank][:8] + WIDE[rank][:1]:
            options = {**windows, "return_indices": True}
            yield Sample((Spec(shape, dtype, "C", "normal"),), _bits(options))
        shape, windows = CHANNELS[rank][1]
        yield Sample((Spec(shape, dtype, "channels_last", "normal"),), _bits(windows))
    shape, windows = MIDDLE[rank]
    yield Sample((Spec(shape, "float32", "C", "normal"),), _bits(windows))


# ---- the expectation of pooling: exact ----


@functools.lru_cache(maxsize=4096)
def _pooled(rank: int, spec: Spec, options: tuple[tuple[str, Any], ...]) -> Any:
    function = getattr(ref, f"max_pool{rank}d")
    return function(spec.values(), **dict(options))


def pool_expect(rank: int, sample: Sample) -> Expected | Several:
    spec = sample.arrays[0]
    layout = "stride0" if spec.layout == "stride0" else "C"
    plain = Spec(spec.shape, spec.dtype, layout, spec.fill)
    found = _pooled(rank, plain, sample.options)
    y = found[0] if isinstance(found, tuple) else found
    value = y.astype(ref.wide(y.dtype)) if kind_of(y.dtype) == "f" else y
    first = Expected(y.dtype, value)
    if not isinstance(found, tuple):
        return first
    return Several((first, Expected(found[1].dtype, found[1])))


# ---- indices of a pooling as an array ----


@dataclass(frozen=True)
class Pooled(Spec):
    """The indices that pooling an array of small whole numbers gives."""

    rank: int = 3
    input_shape: tuple[int, ...] = ()
    windows: tuple[tuple[str, Any], ...] = ()

    def values(self) -> np.ndarray[Any, Any]:
        x = Spec(self.input_shape, "float32", "C", "normal")
        options = (*self.windows, ("return_indices", True))
        index = _pooled(self.rank, x, options)[1].astype(self.dtype)
        return np.asarray(index)

    def build(self) -> np.ndarray[Any, Any]:
        return lay_out(self.layout, self.values())


# ---- samples of the gradient ----


def _gradient(
    rank: int,
    shape: tuple[int, ...],
    windows: dict[str, Any],
    dtype: str,
    layouts: tuple[str, str],
    kind: str,
    fill: str = "whole",
) -> Sample:
    """`kind`: 'windows' are given, 'pooled' indices alone, or 'any' indices at all."""
    pooled = Pooled((), "int64", "C", "normal", rank, shape, _bits(windows))
    out = pooled.values().shape
    index_layout = "C" if layouts[1] == "stride0" else layouts[1]
    indices: Spec = Pooled(out, "int64", index_layout, "normal", rank, shape, _bits(windows))
    options: dict[str, Any] = {"input_shape": shape}
    if kind == "windows":
        options |= {k: v for k, v in windows.items() if k != "ceil_mode"}
    if kind == "any":
        plane = int(np.prod(shape[len(shape) - rank :]))
        indices = Spec(out, "uint32", layouts[1], f"index {plane}")
    return Sample((Spec(out, dtype, layouts[0], fill), indices), _bits(options))


KINDS = ("windows", "pooled", "windows", "any")


def gradient_samples(rank: int, dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    for repeat in range(4 if extent == "full" else 1):
        for shape, windows in CASES[rank]:
            turn += 1
            layouts = (
                LAYOUTS_ND[(turn + repeat) % len(LAYOUTS_ND)],
                LAYOUTS_ND[(turn // 2 + repeat) % len(LAYOUTS_ND)],
            )
            kind = KINDS[(turn + repeat) % len(KINDS)]
            fill = ("whole", "normal")[(turn // 2) % 2]
            yield _gradient(rank, shape, windows, dtype, layouts, kind, fill)
    for shape, windows in APART[rank] + OVERLAPPING[rank] + PAIRED[rank]:
        yield _gradient(rank, shape, windows, dtype, ("C", "C"), "windows")


def gradient_large(rank: int, dtype: str) -> Iterator[Sample]:
    dtype = dtype if kind_of(dtype_of(dtype)) == "f" else "float32"
    for turn, (shape, windows) in enumerate(LARGE[rank]):
        kind = "windows" if turn == 0 else KINDS[turn % len(KINDS)]
        yield _gradient(rank, shape, windows, dtype, ("C", "C"), kind)


def gradient_floats(rank: int) -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for shape, windows in CASES[rank][1:4]:
            for kind in ("windows", "any"):
                yield _gradient(rank, shape, windows, dtype, ("C", "C"), kind, "normal")
        few = {"kernel_size": 3, "stride": 2}  # fewer windows than elements
        yield _gradient(rank, (2, *(7,) * rank), few, dtype, ("C", "C"), "windows", "normal")
        shape, windows = APART[rank][0]
        yield _gradient(rank, shape, windows, dtype, ("C", "C"), "windows", "normal")
    shape, windows = MIDDLE[rank]
    windows = {**windows, "stride": 1}
    yield _gradient(rank, shape, windows, "float32", ("C", "C"), "windows", "normal")


# ---- the expectation of the gradient ----


def gradient_bound(
    rank: int, dy: np.ndarray[Any, Any], indices: Any, shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """n u sum |dy| for an element to which n gradients are added.

    One rounding per addition, in float32 for 16-bit floats; in any order.
    """
    acc = ref.wide(dy.dtype)
    backward = getattr(ref, f"max_pool{rank}d_backward")
    u = 2.0**-53 if dy.dtype == np.float64 else 2.0**-24
    size = backward(np.abs(dy.astype(acc)), indices, shape)
    terms = backward(np.ones(dy.shape, acc), indices, shape)
    return np.asarray(terms * u * size)


@functools.lru_cache(maxsize=8192)
def _gradient_expect(rank: int, specs: tuple[Spec, ...], shape: tuple[int, ...]) -> Expected:
    dy, indices = (spec.values() for spec in specs)
    indices = indices.astype(np.int64)
    backward = getattr(ref, f"max_pool{rank}d_backward")
    exact = backward(dy.astype(ref.wide(dy.dtype)), indices, shape)
    bound = gradient_bound(rank, dy, indices, shape)
    tolerance = bound + unit(dy.dtype) * np.abs(exact) + smallest(dy.dtype)
    return Expected(dy.dtype, exact, tolerance)


def gradient_expect(rank: int, sample: Sample) -> Expected:
    dy, indices = sample.arrays
    layout = "stride0" if dy.layout == "stride0" else "C"
    specs = (Spec(dy.shape, dy.dtype, layout, dy.fill), indices)
    return _gradient_expect(rank, specs, dict(sample.options)["input_shape"])


# ---- error inputs ----


def _x(rank: int) -> np.ndarray[Any, Any]:
    return np.arange(2 * 4**rank, dtype=np.float32).reshape(2, *(4,) * rank)


def pool_errors(rank: int) -> list[Error]:
    name = f"max_pool{rank}d"

    def error(
        name: str, raises: Any, match: str, x: Any = None, kernel: Any = 2, **options: Any
    ) -> Error:
        def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
            found = {k: v() if callable(v) else v for k, v in options.items()}
            array = _x(rank) if x is None else x
            return (array.copy() if isinstance(array, np.ndarray) else array, kernel), found

        return Error(name, make, raises, match)

    zeros = np.zeros
    low = zeros((4,) * rank)
    return [
        error("x of bools", TypeError, rf"{name}\(\) does not support dtype 'bool'",
              zeros((1,) + (4,) * rank, bool)),
        error("x complex", TypeError, r"dtype 'complex64'",
              zeros((1,) + (4,) * rank, np.complex64)),
        error("x of strings", TypeError, r"dtype '<U1'",
              np.full((1,) + (4,) * rank, "a")),
        error("too few dimensions", ValueError,
              rf"^x must have {rank + 1} or {rank + 2} dimensions, .* but it has {rank}$",
              low),
        error("too many dimensions", ValueError, rf"but it has {rank + 3}$",
              zeros((1, 1, 1) + (4,) * rank)),
        error("an empty axis", ValueError,
              r"^x must have positive lengths but for the batch, but its shape is ",
              zeros((1, 1) + (4,) * (rank - 1) + (0,))),
        error("no channel", ValueError, r"positive lengths", zeros((2, 0) + (4,) * rank)),
        error("kernel of 0", ValueError,
              r"^kernel_size must be positive and at most 2147483647, but it is 0$",
              kernel=0),
        error("kernel negative", ValueError, r"but it is -1$", kernel=(-1,) * rank),
        error("kernel too large", ValueError, r"at most 2147483647", kernel=2**31),
        error("kernel of another rank", ValueError,
              rf"^kernel_size must be an int or a tuple of {rank} ints, but it has 4$",
              kernel=(2, 2, 2, 2)),
        error("kernel a float", TypeError, r"int", kernel=2.5),
        error("stride of 0", ValueError, r"^stride must be positive", stride=0),
        error("stride of another rank", ValueError, r"^stride must be an int or a tuple",
              stride=(1, 1, 1, 1)),
        error("padding negative", ValueError, r"^padding must be non-negative", padding=-1),
        error("padding beyond half", ValueError,
              r"^padding must be at most half of the kernel size, but it is 2 for a kernel "
              r"size of 3$", kernel=3, padding=2),
        error("dilation of 0", ValueError, r"^dilation must be positive", dilation=0),
        error("no window", ValueError,
              r"^the output is too small: an input of size \(4,.*\) gives an output of size "
              r"\(0,", kernel=5),
        error("no window with dilation", ValueError, r"output is too small", kernel=2,
              dilation=4),
        error("out of the wrong shape", ValueError, r"\(2, 2",
              out=lambda: zeros((2, *(3,) * rank), np.float32)),
        error("out of the wrong dtype", TypeError, r"float64.*float32|float32.*float64",
              out=lambda: zeros((2, *(2,) * rank))),
        error("out read-only", ValueError, r"read-only",
              out=lambda: readonly((2, *(2,) * rank), np.float32)),
        error("one out for two", (TypeError, ValueError), r"out", return_indices=True,
              out=lambda: zeros((2, *(2,) * rank), np.float32)),
        error("no such variant", ValueError, r"simdd.*simd", variant="simdd"),
        error("no such backend", ValueError, r"one of 'cpu', 'cuda', 'sim'.*'gpu'",
              backend="gpu"),
    ]  # fmt: skip


def pool_valid(rank: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.float32)
    x = x.reshape(2, *(1,) * (rank - 1), 4)
    y = np.array([[3, 4], [9, 6]], np.float32).reshape(2, *(1,) * (rank - 1), 2)
    index = np.array([[0, 2], [1, 3]]).reshape(y.shape)
    kernel = (1,) * (rank - 1) + (2,)
    return (x, kernel), {"return_indices": True}, (y, index)


def gradient_errors(rank: int) -> list[Error]:
    def error(name: str, raises: Any, match: str, *changed: Any, **options: Any) -> Error:
        def make() -> tuple[tuple[Any, ...], dict[str, Any]]:
            shape = (2, *(2,) * rank)
            arrays: list[Any] = [np.ones(shape, np.float32), np.zeros(shape, np.int64)]
            arrays.append((2, *(4,) * rank))
            for i, value in enumerate(changed):
                if value is not None:
                    arrays[i] = value.copy() if isinstance(value, np.ndarray) else value
            return tuple(arrays), {k: v() if callable(v) else v for k, v in options.items()}

        return Error(name, make, raises, match)

    zeros = np.zeros
    small, shape = (2,) * rank, (2, *(2,) * rank)
    full = (2, *(4,) * rank)
    return [
        error("dy of integers", TypeError, r"does not support dtype 'int64'",
              zeros(shape, np.int64)),
        error("dy complex", TypeError, r"dtype 'complex64'", zeros(shape, np.complex64)),
        error("indices of floats", TypeError, r"indices of an integer dtype, not 'float64'",
              None, zeros(shape)),
        error("indices of bools", TypeError, r"not 'bool'", None, zeros(shape, bool)),
        error("indices unlike dy", ValueError,
              r"^indices has shape \(2, 3.*\), but dy has \(2, 2", None,
              zeros((2, *(3,) * rank), np.int64)),
        error("indices of fewer dimensions", ValueError, r"but dy has \(2, 2",
              None, zeros(small, np.int64)),
        error("shape of too few lengths", ValueError,
              rf"^input_shape must have {rank + 1} or {rank + 2} dimensions", None, None,
              (4,) * rank),
        error("shape with a length of 0", ValueError, r"^input_shape must have positive",
              None, None, (2, *(4,) * (rank - 1), 0)),
        error("shape negative", ValueError, r"^input_shape must have positive",
              None, None, (2, *(4,) * (rank - 1), -4)),
        error("shape of other channels", ValueError,
              r"^dy has shape \(2, .*\), which is no pooling of input_shape \(3, ", None,
              None, (3, *(4,) * rank)),
        error("shape of another rank", ValueError, r"no pooling of input_shape",
              None, None, (1, *full)),
        error("shape with a float", TypeError, r"int", None, None, (2.0, *(4,) * rank)),
        error("windows of another count", ValueError,
              r"^dy has 2 elements along axis 1, but windows of this kind give 3", None,
              None, None, kernel_size=2, stride=1),
        error("stride without a kernel", ValueError,
              r"^stride is given, but kernel_size is not$", stride=2),
        error("padding without a kernel", ValueError, r"^padding is given", padding=0),
        error("padding beyond half", ValueError, r"^padding must be at most half",
              kernel_size=2, padding=2),
        error("kernel of 0", ValueError, r"^kernel_size must be positive", kernel_size=0),
        error("out of the wrong shape", ValueError, r"shape",
              out=lambda: zeros(shape, np.float32)),
        error("out of the wrong dtype", TypeError, r"float64.*float32|float32.*float64",
              out=lambda: zeros(full)),
        error("out read-only", ValueError, r"read-only",
              out=lambda: readonly(full, np.float32)),
        error("no such variant", ValueError, r"simdd.*simd", variant="simdd"),
        error("no such backend", ValueError, r"one of 'cpu', 'cuda', 'sim'.*'gpu'",
              backend="gpu"),
    ]  # fmt: skip


def gradient_valid(rank: int) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    ones = (1,) * (rank - 1)
    dy = np.array([[1, 2, 3], [4, 5, 6]], np.float32).reshape(2, *ones, 3)
    index = np.array([[0, 2, 2], [1, 1, 3]]).reshape(dy.shape)
    want = np.array([[1, 0, 5, 0], [0, 9, 0, 6]], np.float32).reshape(2, *ones, 4)
    return (dy, index, want.shape), {}, want


def gradient_heavy(rank: int) -> tuple[Any, ...]:
    """Only longer rows: input_shape has a fixed number of channels."""
    shape = (2, *(1,) * (rank - 1), 65_536)
    return np.ones(shape, np.float32), np.zeros(shape, np.int64), shape


# ---- the table ----

ENTRIES: dict[str, Entry] = {}


def _bind(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    return functools.partial(function, rank)


for _rank in (3, 2, 1):
    ENTRIES[f"max_pool{_rank}d"] = Entry(
        samples=_bind(pool_samples, _rank),
        large=_bind(pool_large, _rank),
        expect=_bind(pool_expect, _rank),
        errors=_bind(pool_errors, _rank),
        valid=_bind(pool_valid, _rank),
        floats=_bind(pool_floats, _rank),
    )
    ENTRIES[f"max_pool{_rank}d_backward"] = Entry(
        samples=_bind(gradient_samples, _rank),
        large=_bind(gradient_large, _rank),
        expect=_bind(gradient_expect, _rank),
        errors=_bind(gradient_errors, _rank),
        valid=_bind(gradient_valid, _rank),
        heavy=_bind(gradient_heavy, _rank),
        floats=_bind(gradient_floats, _rank),
    )
