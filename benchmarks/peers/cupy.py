"""The peer CuPy, on the run's arrays, shared through DLPack."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from gpuopt.benchmarks.workloads.elementwise import BINARY, UNARY
from gpuopt.benchmarks.workloads.partition_reduce import merged_runs
from gpuopt.lab.workloads import Problem

DEVICES = ("cuda",)


def library() -> Any:
    """Return the module cupy."""
    return importlib.import_module("cupy")


def available() -> str | None:
    """Return None if CuPy is installed and sees a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return "not installed"
    try:
        library().cuda.runtime.getDeviceCount()
    except Exception as error:  # a class of CuPy's own
        return str(error)
    return None


def version() -> str:
    """Return CuPy's version."""
    return str(library().__version__)


def reduce(x: Any, op: str = "sum", axis: Any = None) -> Callable[[], Any]:
    """Call cupy.sum, cupy.argmax and so on."""
    function = getattr(library(), op)
    return lambda: function(x, axis=axis)


def scan(x: Any, op: str = "sum", axis: int = -1) -> Callable[[], Any] | None:
    """Call cupy.cumsum or cupy.cumprod."""
    name = {"sum": "cumsum", "prod": "cumprod"}.get(op)
    if name is None:
        return None
    function = getattr(library(), name)
    return lambda: function(x, axis=axis)


def scatter_add(values: Any, index: Any, size: int, mode: str) -> Callable[[], Any]:
    """Call cupy.bincount with weights, or cupyx.scatter_add for 64-bit floats."""
    cupy = library()
    if values.dtype == cupy.float64:
        scatter = importlib.import_module("cupyx").scatter_add

        def call() -> Any:
            total = cupy.zeros(size, values.dtype)
            scatter(total, index, values)
            return total

        return call
    return lambda: cupy.bincount(index, values, size)


def dot(x: Any, y: Any) -> Callable[[], Any]:
    """Call cupy.dot."""
    function = library().dot
    return lambda: function(x, y)


def partition_reduce(
    x: Any, bits: tuple[int, ...], op: str = "sum", square: bool = False
) -> Callable[[], Any]:
    """Call cupy.sum on a view with an axis per run of bits, then transpose."""
    shape, axes, order = merged_runs(int(x.size).bit_length() - 1, bits)

    def call() -> Any:
        view = x
        if square:
            view = x.real**2 + x.imag**2 if x.dtype.kind == "c" else x * x
        return view.reshape(shape).sum(axis=tuple(axes)).transpose(order).reshape(-1)

    return call


def index_add(
    x: Any, index: Any, source: Any, deterministic: bool = False
) -> Callable[[], Any] | None:
    """Copy, then call cupy.add.at, or cupy.bincount for rows of one element."""
    cupy = library()
    if deterministic:
        return None
    if x.ndim == 1 and str(x.dtype) in ("float32", "float64"):
        return lambda: x + cupy.bincount(index, source, x.shape[0]).astype(x.dtype)

    def run() -> Any:
        result = x.copy()
        cupy.add.at(result, index, source)
        return result

    return run


def mean_matvec(x: Any, matrix: Any) -> Callable[[], Any]:
    """Multiply the matrix by the transposed means."""
    return lambda: matrix @ x.mean(2).T


def elementwise(name: str) -> Callable[..., Any]:
    """Call cupy.<name>, if there is one; a buffer of two rows is misaligned."""

    def make(*operands: Any) -> Callable[[], Any] | None:
        function = getattr(library(), name, None)
        arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in operands]
        return (lambda: function(*arrays)) if function else None

    return make


def upsample_nearest(x: Any, scale: float) -> Callable[[], Any] | None:
    """Repeat rows and columns, for integer scales."""
    times = int(scale)
    if scale != times:
        return None
    return lambda: x.repeat(times, -1).repeat(times, -2)


def upsample_nearest_backward(
    dy: Any, input_shape: tuple[int, ...], scale: float
) -> Callable[[], Any] | None:
    """Sum over the copies of each element, as axes of their own."""
    times, cupy = int(scale), library()
    if scale != times:
        return None
    n, c, h, w = input_shape
    tiles = dy.reshape(n, c, h, times, w, times)
    kind = cupy.result_type(dy.dtype, cupy.float32)
    return lambda: tiles.sum(axis=(3, 5), dtype=kind).astype(dy.dtype, copy=False)


def convolve(a: Any, v: Any, mode: str) -> Callable[[], Any]:
    """Call cupy.convolve, which picks its method itself."""
    function = library().convolve
    return lambda: function(a, v, mode)


def causal_conv1d(x: Any, w: Any, precision: str = "fp32") -> Callable[[], Any]:
    """Multiply spectra of twice the length; for a short filter, add shifted products."""
    fft = library().fft
    steps, taps = x.shape[2], w.shape[1]

    def by_fft() -> Any:
        n = steps + min(steps, taps)
        product = fft.rfft(x, n) * fft.rfft(w[:, ::-1][:, :steps], n)
        return fft.irfft(product, n)[:, :, :steps].astype(x.dtype)

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
    cupy = library()
    fft = cupy.fft
    steps, taps = x.shape[2], w.shape[1]
    lags = min(steps, taps)

    def call() -> Any:
        n = steps + lags
        g = fft.rfft(dy, n)
        dx = fft.irfft(g * fft.rfft(w[:, ::-1][:, :steps], n).conj(), n)[:, :, :steps]
        product = (g * fft.rfft(x, n).conj()).sum(0)
        dw = cupy.zeros_like(w)
        dw[:, taps - lags :] = fft.irfft(product, n)[:, :lags][:, ::-1]
        return dx.astype(x.dtype), dw

    return call


def max_pool3d(x: Any, kernel_size: int, stride: int) -> Callable[[], Any]:
    """Call cupy.maximum on slices, one axis at a time."""
    maximum = library().maximum

    def call() -> Any:
        y = x
        for axis in (2, 3, 4):
            last = y.shape[axis] - kernel_size
            parts = []
            for k in range(kernel_size):
                at = [slice(None)] * 5
                at[axis] = slice(k, k + last + 1, stride)
                parts.append(y[tuple(at)])
            y = parts[0].copy()
            for part in parts[1:]:
                maximum(y, part, out=y)
        return y

    return call


def max_pool3d_backward(
    dy: Any, indices: Any, input_shape: Any, kernel_size: int, stride: int
) -> Callable[[], Any]:
    """Call cupy.bincount with weights, once for all planes."""
    cupy = library()
    planes = input_shape[0] * input_shape[1]
    size = input_shape[2] * input_shape[3] * input_shape[4]

    def call() -> Any:
        places = indices.reshape(planes, -1) + cupy.arange(planes)[:, None] * size
        total = cupy.bincount(places.reshape(-1), dy.reshape(-1), planes * size)
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
    if make is None or problem.dtype == "bfloat16":
        return None
    return make(*map(library().from_dlpack, arrays), **problem.options)


def host(result: Any) -> Any:
    """Return the result as a NumPy array, or a tuple of them."""
    return tuple(map(host, result)) if isinstance(result, tuple) else result.get()
