"""The peer NumPy: what everybody has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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
    return make(*arrays, **problem.options) if make else None


def host(result: Any) -> Any:
    """Return the result: it is on the host already."""
    return result
