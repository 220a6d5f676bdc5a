"""The peer SciPy on a CPU: convolutions by Fourier transforms on every core."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

DEVICES = ("cpu",)

Call = Callable[[], Any]


def available() -> str | None:
    """Return None if SciPy is installed."""
    return None if importlib.util.find_spec("scipy") else "not installed"


def version() -> str:
    """Return SciPy's version."""
    return str(importlib.import_module("scipy").__version__)


def ready(device: str) -> None:
    """Do nothing: transforms are told to use every core."""


def take(x: Any) -> Any:
    """Return the array."""
    return np.asarray(x)


def host(result: Any) -> Any:
    """Return the result."""
    return result


def convolve(a: Any, v: Any, mode: str) -> Mapping[str, Call] | None:
    """Call fftconvolve and oaconvolve, for floats."""
    if a.dtype.kind == "i":
        return None
    signal = importlib.import_module("scipy.signal")
    return {
        "fft": lambda: signal.fftconvolve(a, v, mode),
        "oa": lambda: signal.oaconvolve(a, v, mode),
    }


def transform() -> tuple[Callable[..., Any], Callable[..., Any], Callable[[int], int]]:
    """Return the transforms of rows, on every core, and the fast lengths."""
    fft = importlib.import_module("scipy.fft")

    def forward(x: Any, n: int) -> Any:
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
        return fft.rfft(wide, n, workers=-1)

    def back(x: Any, n: int) -> Any:
        return fft.irfft(x, n, workers=-1)

    return forward, back, lambda n: int(fft.next_fast_len(n, real=True))


def causal_conv1d(x: Any, w: Any, bias: Any) -> Mapping[str, Call] | None:
    """Multiply spectra; a bias with silu is not here."""
    if bias is not None:
        return None
    forward, back, fast = transform()
    steps = x.shape[2]
    n = fast(steps + min(w.shape[1], steps))

    def call() -> Any:
        product = forward(x, n) * forward(w[:, ::-1][:, :steps], n)
        return back(product, n)[..., :steps].astype(x.dtype, copy=False)

    return {"fft": call}


def causal_conv1d_backward(dy: Any, x: Any, w: Any) -> Mapping[str, Call]:
    """Multiply spectra; those of x and of the filters are conjugated."""
    forward, back, fast = transform()
    steps, taps = x.shape[2], w.shape[1]
    lags = min(taps, steps)
    n = fast(steps + lags)

    def call() -> Any:
        g = forward(dy, n)
        dx = back(g * forward(w[:, ::-1][:, :steps], n).conj(), n)[..., :steps]
        product = (g * forward(x, n).conj()).sum(0)
        dw = np.zeros_like(w)
        dw[:, taps - lags :] = back(product, n)[:, :lags][:, ::-1]
        return dx.astype(x.dtype, copy=False), dw

    return {"fft": call}


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "convolve": convolve,
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
}
