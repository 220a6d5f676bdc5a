"""The peer PyTorch with FFTs: causal convolutions as products of Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuopt.benchmarks.peers import torch
from gpuopt.lab.workloads import Problem

DEVICES = torch.DEVICES

available = torch.available
version = torch.version
host = torch.host


def wide(x: Any) -> Any:
    """Convert 16-bit floats to float32, which has a Fourier transform."""
    return x.float() if x.itemsize == 2 else x


def causal_conv1d(x: Any, w: Any, precision: str = "fp32") -> Callable[[], Any]:
    """Multiply spectra of rows and filters, zeros appended."""
    fft = torch.library().fft
    steps = x.shape[2]
    n = steps + min(steps, w.shape[1])

    def call() -> Any:
        filters = fft.rfft(wide(w).flip(1)[:, :steps], n)
        result = fft.irfft(fft.rfft(wide(x), n) * filters, n)
        return result[:, :, :steps].to(x.dtype)

    return call


def causal_conv1d_backward(
    dy: Any, x: Any, w: Any, precision: str = "fp32"
) -> Callable[[], Any]:
    """Multiply spectra; those of x and of the filters are conjugated."""
    library = torch.library()
    fft = library.fft
    steps, taps = x.shape[2], w.shape[1]
    lags = min(steps, taps)
    n = steps + lags

    def call() -> Any:
        g = fft.rfft(wide(dy), n)
        filters = fft.rfft(wide(w).flip(1)[:, :steps], n)
        dx = fft.irfft(g * filters.conj(), n)[:, :, :steps]
        product = (g * fft.rfft(wide(x), n).conj()).sum(0)
        dw = library.zeros_like(w)
        dw[:, taps - lags :] = fft.irfft(product, n)[:, :lags].flip(1)
        return dx.to(x.dtype), dw

    return call


CALLS: dict[str, Callable[..., Any]] = {
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
}


def call(
    problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
) -> Callable[[], Any] | None:
    """Return the call that computes the problem."""
    make = CALLS.get(problem.op)
    if make is None or (device == "cpu" and problem.dtype == "bfloat16"):
        return None
    from_array = torch.library().from_numpy if device == "cpu" else torch.library().from_dlpack
    return make(*map(from_array, arrays), **problem.options)
