"""The peer NumPy: what everybody has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
    """Call np.bincount with weights, or np.add.at where it would not be exact."""
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
    """Multiply with the transposed means."""
    return lambda: matrix @ x.mean(2).T


def elementwise(x: Any, y: Any | None = None) -> Callable[[], Any]:
    """Call np.multiply, or np.exp of one array; a buffer of two rows is misaligned."""
    arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in (x, y) if a is not None]
    if len(arrays) == 1:
        return lambda: np.exp(arrays[0])
    return lambda: np.multiply(*arrays)


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
    """Call np.bincount with weights on places in all planes."""
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
    return make(*arrays, **problem.options) if make else None


def host(result: Any) -> Any:
    """Return the result: it is on the host already."""
    return result
