"""The peer NumPy, which is always installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpuopt.benchmarks.workloads.elementwise import BINARY, UNARY
from gpuopt.benchmarks.workloads.partition_reduce import merged_runs
from gpuopt.lab.workloads import Problem

DEVICES = ("cpu",)

SCANS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def available() -> str | None:
    """Return None: gpuopt needs NumPy itself."""
    return None


def version() -> str:
    """Return NumPy's version."""
    return np.__version__


def reduce(x: Any, op: str = "sum", axis: Any = None) -> Callable[[], Any]:
    """Call np.sum, np.argmax and so on."""
    function = getattr(np, op)
    return lambda: function(x, axis=axis)


def scan(x: Any, op: str = "sum", axis: int = -1) -> Callable[[], Any]:
    """Call np.add.accumulate and so on."""
    accumulate = SCANS[op].accumulate
    return lambda: accumulate(x, axis=axis)


def scatter_add(values: Any, index: Any, size: int, mode: str) -> Callable[[], Any]:
    """Call np.bincount with weights, or np.add.at if that would not be exact."""
    if values.dtype.kind != "f":
        dtype = values.dtype if values.dtype.kind == "c" else np.dtype(np.int64)

        def add_at() -> Any:
            total = np.zeros(size, dtype)
            np.add.at(total, index, values)
            return total

        return add_at
    return lambda: np.bincount(index, values, size)


def dot(x: Any, y: Any) -> Callable[[], Any]:
    """Call np.dot."""
    return lambda: np.dot(x, y)


def partition_reduce(
    x: Any, bits: tuple[int, ...], op: str = "sum", square: bool = False
) -> Callable[[], Any]:
    """Call np.sum on a view with an axis per run of bits, then transpose.

    Axis by axis from the first: np.sum over many axes at once takes ten times as long.
    """
    shape, axes, order = merged_runs(x.size.bit_length() - 1, bits)

    def call() -> Any:
        view = x
        if square:
            view = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
        view = view.reshape(shape)
        for gone, axis in enumerate(axes):
            view = view.sum(axis=axis - gone)
        return view.transpose(order).reshape(-1)

    return call


def index_add(
    x: Any, index: Any, source: Any, deterministic: bool = False
) -> Callable[[], Any]:
    """Copy, then call np.add.at; it adds in order."""

    def run() -> Any:
        result = x.copy()
        np.add.at(result, index, source)
        return result

    return run


def mean_matvec(x: Any, matrix: Any) -> Callable[[], Any]:
    """Multiply the matrix by the transposed means."""
    return lambda: matrix @ x.mean(2).T


def elementwise(name: str) -> Callable[..., Any]:
    """Call np.<name>, if there is one; a buffer of two rows is misaligned."""

    def make(*operands: Any) -> Callable[[], Any] | None:
        function = getattr(np, name, None)
        arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in operands]
        return (lambda: function(*arrays)) if function else None

    return make


def upsample_nearest(x: Any, scale: float) -> Callable[[], Any] | None:
    """Repeat columns, then rows, for integer scales."""
    if scale != int(scale):
        return None
    times = int(scale)
    return lambda: x.repeat(times, -1).repeat(times, -2)


def upsample_nearest_backward(
    dy: Any, input_shape: tuple[int, ...], scale: float
) -> Callable[[], Any] | None:
    """Add up the views of dy that hold one copy of each element, in float32 at least."""
    if scale != int(scale):
        return None
    times, kind = int(scale), np.result_type(dy.dtype, np.float32)
    views = [dy[..., i::times, k::times] for i in range(times) for k in range(times)]

    def run() -> Any:
        total = views[0].astype(kind)
        for view in views[1:]:
            total += view
        return total.astype(dy.dtype, copy=False)

    return run


def convolve(a: Any, v: Any, mode: Any) -> Callable[[], Any]:
    """Call np.convolve."""
    return lambda: np.convolve(a, v, mode)


def causal_conv1d(x: Any, w: Any, precision: str = "fp32") -> Callable[[], Any]:
    """Multiply spectra of twice the length; for a short filter, add shifted products."""
    steps, taps = x.shape[2], w.shape[1]

    def by_fft() -> Any:
        n = steps + min(steps, taps)
        product = np.fft.rfft(x, n) * np.fft.rfft(w[:, ::-1][:, :steps], n)
        return np.fft.irfft(product, n)[:, :, :steps].astype(x.dtype)

    def by_shifts() -> Any:
        total = x * w[:, -1:]
        for s in range(1, min(taps, steps)):
            total[:, :, s:] += x[:, :, :-s] * w[:, taps - 1 - s, None]
        return total

    return by_shifts if taps <= 16 else by_fft


def causal_conv1d_backward(
    dy: Any, x: Any, w: Any, precision: str = "fp32"
) -> Callable[[], Any]:
    """Multiply spectra; those of x and of the filters are conjugated."""
    steps, taps = x.shape[2], w.shape[1]
    lags = min(steps, taps)

    def call() -> Any:
        n = steps + lags
        g = np.fft.rfft(dy, n)
        dx = np.fft.irfft(g * np.fft.rfft(w[:, ::-1][:, :steps], n).conj(), n)[:, :, :steps]
        product = (g * np.fft.rfft(x, n).conj()).sum(0)
        dw = np.zeros_like(w)
        dw[:, taps - lags :] = np.fft.irfft(product, n)[:, :lags][:, ::-1]
        return dx.astype(x.dtype), dw

    return call


def max_pool3d(x: Any, kernel_size: int, stride: int) -> Callable[[], Any]:
    """Call np.maximum on slices, one axis at a time."""

    def call() -> Any:
        y = x
        for axis in (2, 3, 4):
            y = np.moveaxis(y, axis, 0)
            last = y.shape[0] - kernel_size
            best = y[: last + 1 : stride].copy()
            for k in range(1, kernel_size):
                np.maximum(best, y[k : k + last + 1 : stride], out=best)
            y = np.moveaxis(best, 0, axis)
        return y

    return call


def max_pool3d_backward(
    dy: Any, indices: Any, input_shape: Any, kernel_size: int, stride: int
) -> Callable[[], Any]:
    """Call np.bincount with weights, once for all planes."""
    planes, size = input_shape[0] * input_shape[1], int(np.prod(input_shape[2:]))

    def call() -> Any:
        places = indices.reshape(planes, -1) + np.arange(planes)[:, None] * size
        total = np.bincount(places.reshape(-1), dy.reshape(-1), planes * size)
        return total.astype(dy.dtype).reshape(input_shape)

    return call


CALLS: dict[str, Callable[..., Any]] = {
    "max_pool3d": max_pool3d,
    "max_pool3d_backward": max_pool3d_backward,
    "mean_matvec": mean_matvec,
    **{name: elementwise(name) for name in (*BINARY, *UNARY)},
    "reduce": reduce,
    "scan": scan,
    "dot": dot,
    "partition_reduce": partition_reduce,
    "scatter_add": scatter_add,
    "index_add": index_add,
    "upsample_nearest": upsample_nearest,
    "upsample_nearest_backward": upsample_nearest_backward,
    "convolve": convolve,
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
}


def call(
    problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
) -> Callable[[], Any] | None:
    """Return the call that computes the problem."""
    make = CALLS.get(problem.function or problem.op)
    return make(*arrays, **problem.options) if make else None


def host(result: Any) -> Any:
    """Return the result, which is already on the host."""
    return result
