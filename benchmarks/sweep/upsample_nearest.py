"""Drawn cases of upsample_nearest and its gradient: 1 to 3 spatial axes, any scale.

Order: the dice, a case each way, the right results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

LONGEST = {1: 8192, 2: 512, 3: 96}  # a spatial axis, by their number
SCALES = (2, 2, 2, 3, 4, 1.5, 0.5, 2.7)


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    ndim = dice.one(1, 2, 2, 2, 3)
    shape = [
        dice.log(1, 16),
        dice.log(1, 128),
        *(dice.log(4, LONGEST[ndim]) for _ in range(ndim)),
    ]
    while math.prod(shape) > 1 << (dice.bits(22, 27) - 2):
        shape[int(np.argmax(shape))] //= 2
    scale = dice.one(*SCALES)
    dtype = dice.one("float32", "float32", "float16", "float64")
    last = ndim == 2 and dice.chance(0.25)
    out = [math.floor(n * scale) for n in shape[2:]]
    if min(out) < 1:
        return None
    tag = f"{tuple(shape)} x{scale}{' channels last' if last else ''}"
    way = forward if dice.chance(0.5) else backward
    return way(dice, tag, dtype, shape, [*shape[:2], *out], scale, last)


def forward(
    dice: Dice,
    tag: str,
    dtype: str,
    shape: Sequence[int],
    out: Sequence[int],
    scale: float,
    last: bool,
) -> Case:
    """Return a case of upsample_nearest."""
    x = dice.array(shape, dtype)
    x = dice.channels_last(x) if last else x
    places = [sources(n, m, scale) for n, m in zip(shape[2:], out[2:], strict=True)]
    return Case(
        name=f"forward {tag}",
        dtype=dtype,
        function="upsample_nearest",
        args=(seen(dice.lib, x, last),),
        options={"scale": scale, "layout": "NHWC" if last else "NCHW"},
        peer="upsample_nearest",
        given={"x": x, "scale": scale},
        reference=lambda: seen(dice.lib, copies(dice.lib, x, places), last),
        nbytes=x.nbytes + x.nbytes // math.prod(shape) * math.prod(out),
        axes=channels_last(len(shape)) if last else None,
    )


def backward(
    dice: Dice,
    tag: str,
    dtype: str,
    shape: Sequence[int],
    out: Sequence[int],
    scale: float,
    last: bool,
) -> Case:
    """Return a case of upsample_nearest_backward."""
    x, dy = dice.array(shape, dtype), dice.array(out, dtype)
    if last:
        x, dy = dice.channels_last(x), dice.channels_last(dy)
    places = [sources(n, m, scale) for n, m in zip(shape[2:], out[2:], strict=True)]
    lib = dice.lib
    return Case(
        name=f"backward {tag}",
        dtype=dtype,
        function="upsample_nearest_backward",
        args=(seen(lib, dy, last), tuple(seen(lib, x, last).shape)),
        options={"scale": scale, "layout": "NHWC" if last else "NCHW"},
        peer="upsample_nearest_backward",
        given={"x": x, "dy": dy, "scale": scale},
        reference=lambda: seen(lib, sums(lib, lib.wide(dy), shape, places), last),
        nbytes=x.nbytes + dy.nbytes,
        axes=channels_last(len(shape)) if last else None,
    )


def seen(lib: Arrays, x: Any, last: bool) -> Any:
    """Return N, C, H, W as our call sees it."""
    return lib.permute(x, channels_last(x.ndim)) if last else x


def channels_last(ndim: int) -> tuple[int, ...]:
    """Return the axes of N, C, H, W in the order N, H, W, C."""
    return (0, *range(2, ndim), 1)


def sources(n: int, out: int, scale: float) -> np.ndarray[Any, Any]:
    """Return the element that each result copies: PyTorch's rule, in float32."""
    places = np.floor(np.arange(out, dtype=np.float32) * np.float32(1 / scale))
    return np.minimum(places, n - 1).astype(np.int64)


def copies(lib: Arrays, x: Any, places: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Return the result, one axis at a time."""
    for axis, place in enumerate(places, 2):
        x = lib.select(x, lib.take(place), axis)
    return x


def sums(
    lib: Arrays, dy: Any, shape: Sequence[int], places: Sequence[np.ndarray[Any, Any]]
) -> Any:
    """Return the gradient, one axis at a time: the k-th copy of every element, for each k."""
    for axis, place in enumerate(places, 2):
        first = np.searchsorted(place, np.arange(shape[axis]))
        count = np.searchsorted(place, np.arange(shape[axis]), side="right") - first
        ones = [1] * len(shape)
        ones[axis] = -1
        total = 0 * lib.select(dy, lib.take(np.minimum(first, len(place) - 1)), axis)
        for k in range(int(count.max())):
            there = lib.take(k < count).reshape(ones)
            at = lib.take(np.minimum(first + k, len(place) - 1))
            total = total + lib.select(dy, at, axis) * there
        dy = total
    return dy
