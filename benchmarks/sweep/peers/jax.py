"""The peer JAX on a CPU: compiled functions, waited for.

On a GPU it runs on a stream of its own, which the clock's events do not see.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

DEVICES = ("cpu",)

Call = Callable[[], Any]


def library() -> Any:
    """Return the module jax."""
    return importlib.import_module("jax")


def available() -> str | None:
    """Return None if JAX is installed."""
    return None if importlib.util.find_spec("jax") else "not installed"


def version() -> str:
    """Return JAX's version."""
    return str(library().__version__)


def ready(device: str) -> None:
    """Ask for 64-bit dtypes, which JAX otherwise narrows."""
    library().config.update("jax_enable_x64", True)


def take(x: Any) -> Any:
    """Return a copy in JAX's own memory."""
    return library().numpy.array(x)


def host(result: Any) -> Any:
    """Return the result."""
    return result


def compiled(function: Callable[..., Any], *arrays: Any) -> Call:
    """Return a call of the compiled function that waits for its result."""
    fast = library().jit(function)
    return lambda: fast(*arrays).block_until_ready()


def reduce(x: Any, op: str, axis: Any) -> Call:
    """Call jax.numpy.sum and so on."""
    function = getattr(library().numpy, op)
    return compiled(lambda x: function(x, axis=axis), x)


def scan(x: Any, op: str, axis: int, reverse: bool) -> Call:
    """Call the scans of jax.lax; sums of integers are widened as in NumPy."""
    jax = library()
    function = jax.lax.cumsum if op == "sum" else jax.lax.cummax
    wide = op == "sum" and x.dtype.kind == "i"
    return compiled(
        lambda x: function(x.astype("int64") if wide else x, axis=axis, reverse=reverse), x
    )


def elementwise(name: str, operands: tuple[Any, ...]) -> Call:
    """Call jax.numpy's function, or jax.nn's."""
    jax = library()
    if name == "cast":
        x, to = operands
        return compiled(lambda x: x.astype(to), x)
    if name == "gelu":
        return compiled(lambda x: jax.nn.gelu(x, approximate=False), *operands)
    function = getattr(jax.numpy, name, None) or getattr(jax.nn, name)
    return compiled(function, *operands)


def index_add(
    x: Any, index: Any, source: Any, deterministic: bool, in_place: bool
) -> Call | None:
    """Call x.at[index].add; JAX's arrays cannot be written in place."""
    if in_place:
        return None
    return compiled(lambda x, i, s: x.at[i].add(s), x, index, source)


def scatter_add(values: Any, index: Any, size: int, deterministic: bool) -> Call:
    """Add to zeros; integers as int64."""
    dtype = values.dtype if values.dtype.kind == "f" else "int64"
    zeros = library().numpy.zeros
    return compiled(lambda v, i: zeros(size, dtype).at[i].add(v.astype(dtype)), values, index)


def mean_matvec(x: Any, matrix: Any) -> Call:
    """Multiply the matrix by the transposed means."""
    return compiled(lambda x, m: m @ x.mean(2).T, x, matrix)


def dot(x: Any, y: Any) -> Call:
    """Call jax.numpy.dot."""
    return compiled(library().numpy.dot, x, y)


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "reduce": reduce,
    "scan": scan,
    "elementwise": elementwise,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "mean_matvec": mean_matvec,
    "dot": dot,
}
