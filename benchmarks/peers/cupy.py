"""The peer CuPy, on the arrays of the run through DLPack."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

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
    """Multiply with the transposed means."""
    return lambda: matrix @ x.mean(2).T


def elementwise(x: Any, y: Any = None) -> Callable[[], Any]:
    """Call cupy.multiply, or cupy.exp of one array; a buffer of two rows is misaligned."""
    arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in (x, y) if a is not None]
    function = library().exp if len(arrays) == 1 else library().multiply
    return lambda: function(*arrays)


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
    """Call cupy.bincount with weights on places in all planes."""
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
    "elementwise": elementwise,
    "reduce": reduce,
    "scan": scan,
    "dot": dot,
    "partition_reduce": partition_reduce,
    "scatter_add": scatter_add,
    "index_add": index_add,
}


def call(
    problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
) -> Callable[[], Any] | None:
    """Return the call that answers the problem."""
    make = CALLS.get(problem.op)
    if make is None or problem.dtype == "bfloat16":
        return None
    return make(*map(library().from_dlpack, arrays), **problem.options)


def host(result: Any) -> Any:
    """Return the result as a NumPy array."""
    return result.get()
