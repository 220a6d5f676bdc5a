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


def elementwise(x: Any, y: Any | None = None) -> Callable[[], Any]:
    """Call np.multiply, or np.exp of one array; a buffer of two rows is misaligned."""
    arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in (x, y) if a is not None]
    if len(arrays) == 1:
        return lambda: np.exp(arrays[0])
    return lambda: np.multiply(*arrays)


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
    return make(*arrays, **problem.options) if make else None


def host(result: Any) -> Any:
    """Return the result: it is on the host already."""
    return result
