"""The peer CuPy, on the arrays of the run through DLPack."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

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


CALLS: dict[str, Callable[..., Any]] = {
    "reduce": reduce,
    "scan": scan,
    "scatter_add": scatter_add,
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
