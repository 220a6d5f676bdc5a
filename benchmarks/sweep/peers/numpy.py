"""The peer NumPy on a CPU; CuPy's file calls the same functions of its own module.

Order: how arrays are taken, the operators.  What NumPy has no function for is not here.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuopt.benchmarks.workloads.partition_reduce import merged_runs

DEVICES = ("cpu",)

Call = Callable[[], Any]


def available() -> str | None:
    """Return None: gpuopt itself needs NumPy."""
    return None


def version() -> str:
    """Return NumPy's version."""
    return np.__version__


def ready(device: str) -> None:
    """Do nothing: NumPy needs no setting."""


def take(x: Any) -> Any:
    """Return the array."""
    return np.asarray(x)


def host(result: Any) -> Any:
    """Return the result."""
    return result


def reduce(xp: Any, x: Any, op: str, axis: Any) -> Call:
    """Call the array's method."""
    method = getattr(x, op)
    return lambda: method(axis=axis)


def scan(xp: Any, x: Any, op: str, axis: int, reverse: bool) -> Call | None:
    """Call cumsum or maximum.accumulate."""
    if reverse or (op == "max" and xp is not np):
        return None
    if op == "sum":
        return lambda: xp.cumsum(x, axis=axis)
    return lambda: xp.maximum.accumulate(x, axis=axis)


def elementwise(xp: Any, name: str, operands: tuple[Any, ...]) -> Call | None:
    """Call the function of that name; relu is maximum, a cast is astype."""
    if name == "cast":
        x, to = operands
        return lambda: x.astype(to)
    if name == "relu":
        x, zero = operands[0], operands[0].dtype.type(0)
        return lambda: xp.maximum(x, zero)
    function = getattr(xp, name, None)
    return (lambda: function(*operands)) if function else None


def index_add(
    xp: Any, x: Any, index: Any, source: Any, deterministic: bool, in_place: bool
) -> Call | Mapping[str, Call] | None:
    """Call add.at, or bincount where rows are single numbers."""
    if deterministic and xp is not np:  # CuPy's use atomics
        return None

    def at(y: Any) -> Any:
        xp.add.at(y, index, source)
        return y

    def bincount(y: Any) -> Any:
        total = xp.bincount(index, source, y.shape[0])
        return xp.add(y, total.astype(y.dtype, copy=False), out=y)

    def written(way: Callable[[Any], Any]) -> Call:
        """Return a call that writes into a copy of its own, or into a new one each time."""
        own = x.copy()
        return (lambda: way(own)) if in_place else (lambda: way(x.copy()))

    if x.ndim > 1 or x.dtype.itemsize == 2:
        return written(at)
    return {"": written(at), "bincount": written(bincount)}


def scatter_add(
    xp: Any, values: Any, index: Any, size: int, deterministic: bool
) -> Call | None:
    """Call bincount; for integers, whose sums it rounds, add.at."""
    if deterministic and xp is not np:
        return None
    if values.dtype.kind == "f":
        return lambda: xp.bincount(index, values, size).astype(values.dtype, copy=False)

    def at() -> Any:
        total = xp.zeros(size, xp.int64)
        xp.add.at(total, index, values)
        return total

    return at


def partition_reduce(xp: Any, x: Any, bits: Sequence[int], square: bool) -> Call:
    """Call sum on a view with an axis per run of bits, then transpose."""
    shape, axes, order = merged_runs(x.size.bit_length() - 1, tuple(bits))

    def call() -> Any:
        view = x.real**2 + x.imag**2 if square else x
        return view.reshape(shape).sum(axis=tuple(axes)).transpose(order).reshape(-1)

    return call


def mean_matvec(xp: Any, x: Any, matrix: Any) -> Call:
    """Multiply the matrix by the transposed means."""
    return lambda: matrix @ x.mean(2).T


def dot(xp: Any, x: Any, y: Any) -> Call:
    """Call dot."""
    return lambda: xp.dot(x, y)


def upsample_nearest(xp: Any, x: Any, scale: float) -> Call | None:
    """Repeat the elements of each spatial axis, for integer scales."""
    times = int(scale)
    if times != scale:
        return None

    def call() -> Any:
        y = x
        for axis in range(2, x.ndim):
            y = y.repeat(times, axis)
        return y

    return call


def upsample_nearest_backward(xp: Any, x: Any, dy: Any, scale: float) -> Call | None:
    """Sum over the copies of each element, as axes of their own."""
    times = int(scale)
    if times != scale:
        return None
    tiles = list(x.shape[:2])
    for n in x.shape[2:]:
        tiles += [n, times]
    copies = tuple(range(3, len(tiles), 2))
    return lambda: dy.reshape(tiles).sum(axis=copies)


def convolve(xp: Any, a: Any, v: Any, mode: str) -> Call | None:
    """Call convolve; NumPy's takes time in proportion to both lengths."""
    if xp is np and a.size * v.size >= 1 << 31:
        return None
    return lambda: xp.convolve(a, v, mode)


OPERATORS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "reduce": reduce,
    "scan": scan,
    "elementwise": elementwise,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "partition_reduce": partition_reduce,
    "mean_matvec": mean_matvec,
    "dot": dot,
    "upsample_nearest": upsample_nearest,
    "upsample_nearest_backward": upsample_nearest_backward,
    "convolve": convolve,
}


def table(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the table of a library with NumPy's names."""
    return {name: functools.partial(make, module) for name, make in OPERATORS.items()}


CALLS = table(np)
