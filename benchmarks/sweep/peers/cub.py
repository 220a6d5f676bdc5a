"""The peer CUB, on a GPU, for the calls that benchmarks/peers compiles it for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpuopt.benchmarks.peers import cub
from gpuopt.lab.arrays import library_for

DEVICES = cub.DEVICES

Call = Callable[[], Any]

available = cub.available
version = cub.version
host = cub.host


def ready(device: str) -> None:
    """Do nothing: what a case needs is compiled when it is drawn."""


def take(x: Any) -> Any:
    """Return the array: CUB is called with its address."""
    return x


def upload(x: np.ndarray[Any, Any]) -> Any:
    """Return an array of host memory on the GPU."""
    return library_for("cuda", [0]).take(x)


def contiguous(x: Any) -> bool:
    """Tell whether the elements are in C order."""
    if hasattr(x, "is_contiguous"):
        return bool(x.is_contiguous())
    return bool(x.flags.c_contiguous)


def dtype(x: Any) -> str:
    """Return the name of a dtype."""
    return str(x.dtype).removeprefix("torch.")


def reduce(x: Any, op: str, axis: Any) -> Call | None:
    """Call DeviceReduce or DeviceSegmentedReduce, on contiguous arrays."""
    if dtype(x) not in cub.SUFFIX or not contiguous(x):
        return None
    if isinstance(axis, tuple):
        axis = None if len(axis) == x.ndim else axis[0] if len(axis) == 1 else -x.ndim
    if axis is not None and (x.ndim != 2 or axis != 1):
        return None
    return cub.reduce(x, dtype(x), upload, op=op, axis=axis)


def scan(x: Any, op: str, axis: int, reverse: bool) -> Call | None:
    """Call DeviceScan on a vector; its sums of int32 are int32, which is wrong if they wrap."""
    if reverse or dtype(x) not in cub.SUFFIX:
        return None
    return cub.scan(x, dtype(x), upload, op=op, axis=axis)


def dot(x: Any, y: Any) -> Call | None:
    """Call DeviceReduce on the products."""
    return cub.dot(x, y, dtype(x), upload) if dtype(x) in cub.SUFFIX else None


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "reduce": reduce,
    "scan": scan,
    "dot": dot,
}
