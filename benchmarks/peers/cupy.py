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


def elementwise(x: Any, y: Any = None) -> Callable[[], Any]:
    """Call cupy.multiply, or cupy.exp of one array; a buffer of two rows is misaligned."""
    arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in (x, y) if a is not None]
    function = library().exp if len(arrays) == 1 else library().multiply
    return lambda: function(*arrays)


CALLS: dict[str, Callable[..., Any]] = {
    "elementwise": elementwise,
    "reduce": reduce,
    "scan": scan,
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
