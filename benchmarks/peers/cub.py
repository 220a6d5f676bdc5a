"""The peer CUB: cub_<op>.cu, compiled by nvcc when needed and called with raw addresses.

Temporary memory and outputs are allocated once per workload, outside the timed call,
as a C++ user of CUB would.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt.lab import nvcc
from gpuopt.lab.timer import current_stream
from gpuopt.lab.workloads import Array, Problem

DEVICES = ("cuda",)
COMPILED = True

SUFFIX = {"float16": "f16", "float32": "f32", "float64": "f64", "int32": "i32"}
SUM_DTYPE = {"float16": "float32", "int32": "int64"}
PAIR = np.dtype([("key", np.int32), ("value", np.float32)])


class Result:
    """The result of a CUB call in device memory, and how to read it on the host."""

    def __init__(self, memory: Any, read: Callable[[Array], Array]) -> None:
        self.memory = memory
        self.read = read


def available() -> str | None:
    """Return None if nvcc is found; the run itself checks for a GPU."""
    return nvcc.unavailable()


def version() -> str:
    """Return the CUDA release whose CUB is compiled."""
    return f"CUDA {nvcc.version()}"


def bind(
    op: str, name: str, data: Any, out: Any, rows: int, cols: int, upload: Callable[..., Any]
) -> Callable[[], None] | None:
    """Return a call of one function of cub_<op>.cu with its temporary memory.

    None if the file has no such function.
    """
    library = nvcc.build(Path(__file__).with_name(f"cub_{op}.cu"))
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    size = ctypes.c_size_t(0)
    function.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    function.argtypes += [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p]
    source, target = nvcc.address(data), nvcc.address(out)
    nvcc.check(function(None, ctypes.byref(size), source, target, rows, cols, None))
    temporary = upload(np.zeros(max(size.value, 1), np.uint8))
    at, bytes_ = nvcc.address(temporary), ctypes.byref(size)

    def run() -> None:
        nvcc.check(function(at, bytes_, source, target, rows, cols, current_stream()))

    # The closure uses only addresses; keep the arrays that own the memory alive.
    run.owners = (temporary, data, out)  # type: ignore[attr-defined]
    return run


def reduce(
    x: Any, dtype: str, upload: Callable[..., Any], op: str = "sum", axis: int | None = None
) -> Callable[[], Result] | None:
    """Call DeviceReduce or, along a last axis, DeviceSegmentedReduce."""
    shape = tuple(x.shape)
    if axis is not None and (axis % len(shape) != len(shape) - 1 or len(shape) != 2):
        return None  # CUB reduces contiguous segments alone
    rows, cols = (1, int(np.prod(shape))) if axis is None else shape
    kept: tuple[int, ...] = () if axis is None else (rows,)
    name = f"{'device' if axis is None else 'segmented'}_{op}_{SUFFIX.get(dtype)}"
    if op == "argmax":
        out = upload(np.zeros(rows * PAIR.itemsize, np.uint8))

        def read(memory: Array) -> Array:
            return memory.view(PAIR)["key"].reshape(kept)

    else:
        out = upload(np.zeros(rows, SUM_DTYPE.get(dtype, dtype)))

        def read(memory: Array) -> Array:
            return memory.reshape(kept)

    run = bind("reduce", name, x, out, rows, cols, upload)
    return with_result(run, out, read)


def scan(
    x: Any, dtype: str, upload: Callable[..., Any], op: str = "sum", axis: int = -1
) -> Callable[[], Result] | None:
    """Call DeviceScan on a one-dimensional array."""
    if len(x.shape) != 1:
        return None
    out = upload(np.zeros(tuple(x.shape), dtype))
    name = f"device_{op}_{SUFFIX.get(dtype)}"
    run = bind("scan", name, x, out, 1, int(x.shape[0]), upload)
    return with_result(run, out, lambda memory: memory)


def dot(x: Any, y: Any, dtype: str, upload: Callable[..., Any]) -> Callable[[], Result] | None:
    """Call DeviceReduce on the products; y's address is passed as the argument rows."""
    out = upload(np.zeros(1, "float32" if dtype == "float16" else dtype))
    name = f"device_sum_{SUFFIX.get(dtype)}"
    run = bind("dot", name, x, out, nvcc.address(y), int(x.shape[0]), upload)
    if run is not None:
        run.owners += (y,)  # type: ignore[attr-defined]
    return with_result(run, out, lambda memory: memory.reshape(()))


def with_result(
    run: Callable[[], None] | None, out: Any, read: Callable[[Array], Array]
) -> Callable[[], Result] | None:
    """Return a call that runs the function and returns its output."""
    if run is None:
        return None
    result = Result(out, read)

    def call_and_name() -> Result:
        run()
        return result

    return call_and_name


CALLS: dict[str, Callable[..., Any]] = {
    "reduce": reduce,
    "scan": scan,
    "dot": dot,
}


def call(
    problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
) -> Callable[[], Any] | None:
    """Return the call that computes the problem."""
    make = CALLS.get(problem.op)
    if make is None or problem.dtype not in SUFFIX:
        return None
    return make(*arrays, problem.dtype, upload, **problem.options)


def host(result: Result) -> Any:
    """Return the result as a NumPy array."""
    memory = result.memory
    return result.read(memory.get() if hasattr(memory, "get") else memory.cpu().numpy())
