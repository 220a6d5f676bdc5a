"""Drawn cases of causal_conv1d and its gradients: short filters, long ones, as long as x.

Order: the dice, a case each way, a step of decoding (which short_filters.py times), the right
results by Fourier transforms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import gpuopt
from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice

DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")
TIME_LAST = (0, 2, 1)


def draw(dice: Dice) -> Case | None:
    """Draw one case."""
    steps, channels, batch = dice.log(16, 1 << 16), dice.log(1, 4096), dice.log(1, 64)
    while batch * channels * steps > 1 << dice.bits(21, 26):
        if channels > 1:
            channels = max(1, channels // 2)
        elif batch > 1:
            batch //= 2
        else:
            steps //= 2
    some, many = dice.log(2, 64), dice.log(min(16, steps), steps)
    taps = dice.one(4, 4, some, many, steps, steps)
    dtype = dice.one(*DTYPES)
    lib = dice.lib
    x, dy = (dice.array((batch, channels, steps), dtype) for _ in range(2))
    w = lib.astype(dice.array((channels, taps), "float32") / math.sqrt(taps), dtype)
    by_time = taps <= 64 and dice.chance(0.3)
    if by_time:  # B, T, C in memory
        x, dy = (
            lib.permute(lib.contiguous(lib.permute(a, TIME_LAST)), TIME_LAST) for a in (x, dy)
        )
    tag = f"B{batch} C{channels} T{steps} K{taps} {'BTC' if by_time else 'BCT'}"
    if dice.chance(0.5):
        active = taps <= 8 and dice.chance(0.5)
        bias = dice.array((channels,), dtype) if active else None
        return forward(lib, tag, x, w, bias, by_time)
    return backward(lib, tag, dy, x, w, by_time)


def forward(lib: Arrays, tag: str, x: Any, w: Any, bias: Any, by_time: bool) -> Case:
    """Return a case of causal_conv1d, with a bias and silu or with neither."""
    active = None if bias is None else "silu"
    return Case(
        name=f"forward {tag}{' bias silu' if active else ''}",
        dtype=lib.dtype(x),
        function="causal_conv1d",
        args=(seen(lib, x, by_time), w, bias),
        options={"activation": active, "layout": "BTC" if by_time else "BCT"},
        peer="causal_conv1d",
        given={"x": x, "w": w, "bias": bias},
        reference=lambda: seen(lib, result(lib, x, w, bias), by_time),
        nbytes=2 * x.nbytes + w.nbytes,
        axes=TIME_LAST if by_time else None,
    )


def backward(lib: Arrays, tag: str, dy: Any, x: Any, w: Any, by_time: bool) -> Case:
    """Return a case of causal_conv1d_backward; the gradients of x and w are compared."""

    def reference() -> tuple[Any, Any]:
        dx, dw = gradients(lib, lib.wide(dy), lib.wide(x), lib.wide(w))
        return seen(lib, dx, by_time), dw

    return Case(
        name=f"backward {tag}",
        dtype=lib.dtype(x),
        function="causal_conv1d_backward",
        args=(seen(lib, dy, by_time), seen(lib, x, by_time), w),
        options={"layout": "BTC" if by_time else "BCT"},
        peer="causal_conv1d_backward",
        given={"dy": dy, "x": x, "w": w},
        reference=reference,
        nbytes=3 * x.nbytes + 2 * w.nbytes,
        axes=TIME_LAST if by_time else None,
    )


class Update(Case):
    """A step of decoding; the state of each call is moved on in place."""

    def ours(self, lib: Arrays, **where: str) -> Callable[[], Any]:
        """Return our call on a state of its own."""
        state = lib.copy(self.args[0])
        rest = {**self.options, **where, "out": (None, state)}
        return functools.partial(gpuopt.causal_conv1d_update, state, *self.args[1:], **rest)


def update(lib: Arrays, tag: str, state: Any, x: Any, w: Any, bias: Any) -> Case:
    """Return a case of causal_conv1d_update: one step, with a bias and silu."""

    def reference() -> tuple[Any]:
        steps = lib.xp.concatenate((lib.wide(state), lib.wide(x)[..., None]), -1)
        y = (steps * lib.wide(w)).sum(-1) + lib.wide(bias)
        return (y / (1 + lib.xp.exp(-y)),)

    return Update(
        name=f"update {tag} bias silu",
        dtype=lib.dtype(x),
        function="causal_conv1d_update",
        args=(state, x, w, bias),
        options={"activation": "silu"},
        peer="causal_conv1d_update",
        given={"state": state, "x": x, "w": w, "bias": bias},
        reference=reference,
        nbytes=2 * (x.nbytes + state.nbytes) + w.nbytes,
    )


def seen(lib: Arrays, x: Any, by_time: bool) -> Any:
    """Return B, C, T as our call sees it."""
    return lib.permute(x, TIME_LAST) if by_time else x


def fast_length(n: int) -> int:
    """Return the least length from n on that has no prime factor above 7."""
    while True:
        rest = n
        for prime in (2, 3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1


def result(lib: Arrays, x: Any, w: Any, bias: Any) -> Any:
    """Return the right result."""
    y = filtered(lib, lib.wide(x), lib.wide(w))
    if bias is not None:
        y = y + lib.wide(bias)[:, None]
        y = y / (1 + lib.xp.exp(-y))
    return y


def filtered(lib: Arrays, x: Any, w: Any) -> Any:
    """Return the convolution of rows with filters, the last tap first."""
    fft, steps = lib.xp.fft, x.shape[2]
    n = fast_length(steps + min(w.shape[1], steps))
    filters = lib.xp.flip(w, (1,))[:, :steps]
    return fft.irfft(fft.rfft(x, n) * fft.rfft(filters, n), n)[..., :steps]


def gradients(lib: Arrays, dy: Any, x: Any, w: Any) -> tuple[Any, Any]:
    """Return the gradients of x and w."""
    fft, flip, steps, taps = lib.xp.fft, lib.xp.flip, x.shape[2], w.shape[1]
    lags = min(taps, steps)
    n = fast_length(steps + lags)
    spectrum = fft.rfft(dy, n)
    filters = fft.rfft(flip(w, (1,))[:, :steps], n)
    dx = fft.irfft(spectrum * filters.conj(), n)[..., :steps]
    product = (spectrum * fft.rfft(x, n).conj()).sum(0)
    dw = lib.xp.zeros_like(w)
    dw[:, taps - lags :] = flip(fft.irfft(product, n)[:, :lags], (1,))
    return dx, dw
