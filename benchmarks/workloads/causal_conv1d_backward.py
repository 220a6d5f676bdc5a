"""Workloads of causal_conv1d_backward, with the names of causal_conv1d's: dx and dw."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gpuopt.benchmarks.workloads.causal_conv1d import (
    convolved,
    judge,
    normal,
    parsed,
    picked,
    smoke_inputs,
    time,
)
from gpuopt.lab.workloads import Array, Problem

READS_ONLY = False

SMALL = (
    ("B4 C96 T768", "float32"),
    ("B4 C96 T768", "float64"),
    ("B2 C32 T2048", "float32"),
    ("B8 C256 T1024 K4", "float32"),
)

DEMO = ("B4 C64 T512", "float32")

TINY = (("B2 C2 T40", "float32"), ("B1 C1 T33 K4", "float64"))


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    b, c, t, k, precision = parsed(name)
    x, dy = normal((b, c, t), dtype, rng), normal((b, c, t), dtype, rng)
    w = normal((c, k), dtype, rng)
    options = {} if precision == "fp32" else {"precision": precision}
    chosen = picked(c)

    def expected() -> tuple[Array, Array]:
        return gradients(dy[:, chosen], x[:, chosen], w[chosen])

    check = judge(
        expected, [(slice(None), chosen), chosen], [(b, c, t), (c, k)], dtype, precision
    )
    return Problem("causal_conv1d_backward", name, dtype, (dy, x, w), options, check)


def gradients(dy: Array, x: Array, w: Array) -> tuple[Array, Array]:
    """Return dx and dw by FFT in float64."""
    steps, taps = x.shape[2], w.shape[1]
    back = dy[:, :, ::-1]
    dx = convolved(back, w)[:, :, ::-1]
    n, lags = 2 * steps, min(steps, taps)
    product = (
        np.fft.rfft(dy.astype(np.float64), n) * np.fft.rfft(x.astype(np.float64), n).conj()
    )
    dw = np.zeros((w.shape[0], taps))
    dw[:, taps - lags :] = np.fft.irfft(product.sum(0), n)[:, lags - 1 :: -1][:, :lags]
    return dx, dw


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and options."""
    from gpuopt import ref

    for turn, (x, w, options) in enumerate(smoke_inputs(rng)):
        dy = normal(x.shape, x.dtype.name, rng)
        wide = [a.astype(np.float64) for a in (dy, x, w)]
        want = ref.causal_conv1d_backward(wide[0], wide[1], wide[2], **options)
        yield Problem(
            "causal_conv1d_backward",
            f"{turn}",
            x.dtype.name,
            (dy, x, w),
            options,
            judge(
                partial(tuple, want),
                [..., ...],
                [x.shape, w.shape],
                x.dtype.name,
                "fp32",
                time(options),
            ),
        )
