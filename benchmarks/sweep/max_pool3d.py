"""Drawn cases of the poolings and their gradients: 1 to 3 axes, windows of 2 to 13.

Order: the dice, a case each way, the right results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

LONGEST = {1: 16384, 2: 512, 3: 128}  # a spatial axis, by their number


@dataclass(frozen=True)
class Window:
    """The windows of a pooling, the same along each spatial axis."""

    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """The arguments of a call, in their order."""
        return self.kernel, self.stride, self.padding, self.dilation

    def outputs(self, n: int) -> int:
        """Return how many windows an axis of n elements has."""
        reach = self.dilation * (self.kernel - 1) + 1
        return (n + 2 * self.padding - reach) // self.stride + 1


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    ndim = dice.one(1, 2, 2, 3, 3)
    shape = [
        dice.log(1, 32),
        dice.log(1, 256),
        *(dice.log(6, LONGEST[ndim]) for _ in range(ndim)),
    ]
    while math.prod(shape) > 1 << (dice.bits(22, 27) - 1):
        many = math.prod(shape[:2]) > 4
        at = int(np.argmax(shape[:2])) if many else 2 + int(np.argmax(shape[2:]))
        shape[at] //= 2
    kernel = dice.one(2, 2, 3, 3, 3, 4, 5, 7, 8, 13)
    stride = dice.one(1, 2, 2, kernel)
    padding = dice.one(0, 0, kernel // 2, min(1, kernel // 2))
    window = Window(kernel, stride, padding, 2 if dice.chance(0.08) else 1)
    dtype = dice.one("float32", "float32", "float32", "float16", "float64")
    if min(map(window.outputs, shape[2:])) < 1:
        return None
    last = ndim == 2 and dice.chance(0.2)
    x = dice.array(shape, dtype)
    x = dice.channels_last(x) if last else x
    far = " d2" if window.dilation > 1 else ""
    far += " channels last" if last else ""
    tag = f"{tuple(shape)} k{kernel} s{stride} p{padding}{far}"
    return (
        forward(dice, tag, x, window)
        if dice.chance(0.5)
        else backward(dice, tag, x, window, last)
    )


def forward(dice: Dice, tag: str, x: Any, window: Window) -> Case:
    """Return a case of max_pool<n>d."""
    lib, ndim = dice.lib, x.ndim - 2
    results = math.prod(x.shape[:2]) * math.prod(map(window.outputs, x.shape[2:]))
    return Case(
        name=f"{ndim}d forward {tag}",
        dtype=lib.dtype(x),
        function=f"max_pool{ndim}d",
        args=(x, *window.numbers),
        options={},
        peer="max_pool",
        given={"x": x, "window": window.numbers},
        reference=lambda: pooled(lib, x, window)[0],
        nbytes=x.nbytes + x.nbytes // math.prod(x.shape) * results,
    )


def backward(dice: Dice, tag: str, x: Any, window: Window, last: bool) -> Case:
    """Return a case of max_pool<n>d_backward, with the indices of our own forward call."""
    lib, ndim = dice.lib, x.ndim - 2
    shape = tuple(x.shape)
    name = f"max_pool{ndim}d"
    indices = getattr(gpuopt, name)(x, *window.numbers, return_indices=True)[1]
    dy = dice.array((*shape[:2], *map(window.outputs, shape[2:])), lib.dtype(x))
    dy = dice.channels_last(dy) if last else dy
    return Case(
        name=f"{ndim}d backward {tag}",
        dtype=lib.dtype(x),
        function=f"{name}_backward",
        args=(dy, indices, shape, *window.numbers),
        options={},
        peer="max_pool_backward",
        given={"x": x, "dy": dy, "window": window.numbers},
        reference=lambda: gradient(lib, x, dy, window),
        nbytes=x.nbytes + dy.nbytes + indices.nbytes,
    )


def pooled(lib: Arrays, x: Any, window: Window) -> tuple[Any, Any]:
    """Return the maxima and their places in a plane, one axis at a time, the last first.

    Of equal elements the first counts: the place is the smallest of those in the window.
    """
    xp = lib.xp
    lengths = tuple(x.shape[2:])
    value = lib.wide(x)
    place = lib.arange(math.prod(lengths)).reshape((1, 1, *lengths)) + xp.zeros_like(
        lib.astype(value, "int64")
    )
    for axis in range(x.ndim - 1, 1, -1):
        value, place = along(lib, value, place, axis, window)
    return value, place


def along(lib: Arrays, value: Any, place: Any, axis: int, window: Window) -> tuple[Any, Any]:
    """Return maxima and places over the windows of one axis."""
    n = value.shape[axis]
    padded = list(value.shape)
    padded[axis] = n + 2 * window.padding
    inside = slices(value.ndim, axis, slice(window.padding, window.padding + n))
    low = lib.zeros(padded, "float64") - math.inf
    low[inside] = value
    where = lib.zeros(padded, "int64")
    where[inside] = place
    reach = (window.outputs(n) - 1) * window.stride + 1
    best, at = None, None
    for tap in range(window.kernel):
        start = tap * window.dilation
        piece = slices(value.ndim, axis, slice(start, start + reach, window.stride))
        if best is None:
            best, at = low[piece], where[piece]
        else:
            at = lib.xp.where(low[piece] > best, where[piece], at)
            best = lib.xp.maximum(low[piece], best)
    return best, at


def slices(ndim: int, axis: int, piece: slice) -> tuple[slice, ...]:
    """Return slices that take a piece of one axis, and all of the others."""
    return tuple(piece if k == axis else slice(None) for k in range(ndim))


def gradient(lib: Arrays, x: Any, dy: Any, window: Window) -> Any:
    """Return the right gradient: each element of dy, added at the place of its maximum."""
    shape = tuple(x.shape)
    planes, size = math.prod(shape[:2]), math.prod(shape[2:])
    place = pooled(lib, x, window)[1].reshape(planes, -1)
    place = place + lib.arange(planes).reshape(-1, 1) * size
    weights = lib.wide(dy).reshape(-1)
    return lib.xp.bincount(place.reshape(-1), weights, planes * size).reshape(shape)
