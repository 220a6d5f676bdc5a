"""Drawing random calls: sizes, dtypes, layouts and indices as users have them.

Order: a case, the dice.  Sizes are log-uniform, half of them round; a table of shapes cannot
be tuned to such cases.  What a case is made of comes from one stream of NumPy's generator,
the elements of its arrays from another: the same seed gives the same cases on every machine,
whichever library makes the arrays.  The cases of an operator are in benchmarks/sweep/<room>.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab.arrays import Arrays

__all__ = ["Case", "Dice", "dtype_bytes"]

SMALL_BITS = (10, 23)  # log2 of an array's elements: a CPU's
LARGE_BITS = (10, 28)  # a GPU's


@dataclass(frozen=True)
class Case:
    """One drawn call: ours, what the peers are given, and the right result."""

    name: str
    dtype: str
    #: The public function of gpuopt and its arguments.
    function: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    #: The function of the peers' tables, and its arguments by name.
    peer: str
    given: Mapping[str, Any]
    #: Computes the right result in float64; integers exactly.
    reference: Callable[[], Any]
    #: The bytes that any implementation reads and writes.
    nbytes: int
    #: What errors are relative to; the default is the largest element of the result.
    scale: float | None = None
    #: The order of axes that brings a peer's (first) result into the layout of ours.
    axes: Sequence[int] | None = None
    #: The result is written into (a copy of) the first argument.
    in_place: bool = field(default=False, kw_only=True)

    def ours(self, lib: Arrays, **where: str) -> Callable[[], Any]:
        """Return our call, with nothing left to parse from Python; `where` names a backend."""
        function = getattr(gpuopt, self.function)
        if not self.in_place:
            return functools.partial(function, *self.args, **self.options, **where)
        target = lib.copy(self.args[0])
        rest = self.args[1:]
        return functools.partial(function, target, *rest, **self.options, out=target, **where)


class Dice:
    """The distributions that cases are drawn from.

    Parameters
    ----------
    rng : numpy.random.Generator
        Decides what a case is.
    lib : Arrays
        Makes its arrays, from a stream of its own.
    """

    def __init__(self, rng: np.random.Generator, lib: Arrays) -> None:
        self.rng = rng
        self.lib = lib
        self.small = lib.device == "cpu"

    def one(self, *choices: Any) -> Any:
        """Return one of the choices; float32 for bfloat16 where the library lacks it."""
        found = choices[int(self.rng.integers(len(choices)))]
        lacks = found == "bfloat16" and (self.small or not self.lib.has_bfloat16)
        return "float32" if lacks else found

    def chance(self, p: float) -> bool:
        """Return True with probability p."""
        return bool(self.rng.random() < p)

    def bits(self, cpu: int, gpu: int) -> int:
        """Return the larger of two sizes on a GPU."""
        return cpu if self.small else gpu

    def log(self, low: int, high: int) -> int:
        """Return a log-uniform integer; half of them are next to a round number."""
        value = round(math.exp(self.rng.uniform(math.log(low), math.log(high))))
        if value > 8 and self.chance(0.5):
            if self.chance(0.6):
                value = 2 ** round(math.log2(value))
            else:
                value = round(value, -(len(str(value)) - 1))
        return max(low, min(high, value))

    def shape(self, ndim: int) -> list[int]:
        """Return a shape: a log-uniform number of elements, divided at random."""
        bits = self.rng.uniform(*(SMALL_BITS if self.small else LARGE_BITS))
        cuts = np.sort(self.rng.uniform(0, bits, ndim - 1))
        parts = np.diff(np.concatenate([[0], cuts, [bits]]))
        lengths = [max(1, int(2**part)) for part in parts]
        return [2 ** round(math.log2(n)) if self.chance(0.4) else n for n in lengths]

    def array(self, shape: Sequence[int], dtype: str) -> Any:
        """Return an array: normal floats, integers of one digit, seldom true booleans."""
        if dtype == "bool":
            return self.lib.uniform(math.prod(shape)).reshape(tuple(shape)) < 0.001
        if dtype.startswith(("float", "bfloat", "complex")):
            return self.lib.normal(shape, dtype)
        return self.lib.integers(0 if dtype.startswith("u") else -9, 9, shape, dtype)

    def index(self, n: int, size: int, kind: str, dtype: str = "int64") -> Any:
        """Return n indices below size: uniform, zipf, sorted, or a permutation's."""
        lib = self.lib
        if kind == "zipf":  # the k-th most frequent one has a share of about k^-1.2
            powers = (1 - lib.uniform(n) * (1 - size**-0.2)) ** -5
            ranks = lib.astype(powers, "int64").clip(1, size) - 1
            found = lib.permutation(size)[ranks]
        elif kind == "perm" and n <= size:
            found = lib.permutation(size)[:n]
        else:
            found = lib.integers(0, size, (n,), "int64")
            found = lib.sort(found) if kind == "sorted" else found
        return lib.astype(found, dtype)

    def channels_last(self, x: Any) -> Any:
        """Return N, C, H, W whose elements are stored as N, H, W, C; with any axes for H, W."""
        stored = self.lib.contiguous(self.lib.permute(x, (0, *range(2, x.ndim), 1)))
        return self.lib.permute(stored, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def dtype_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
