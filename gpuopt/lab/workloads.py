"""The problems that are timed and checked, by operator and name.

Order: a problem, finding the rooms, the table of targets.  Each operator's problems are in
benchmarks/workloads/<op>.py; this file depends on no operator.
"""

from __future__ import annotations

import csv
import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

import gpuopt

__all__ = [
    "Problem",
    "Room",
    "dtype_of",
    "parse_shape",
    "picked",
    "room",
    "rooms",
    "targets",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """One call with its inputs on the host, and the check of its result."""

    op: str
    name: str
    dtype: str
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Says what is wrong with a result (a tuple if the operator has several), '' if
    #: nothing is.
    check: Callable[[Any], str] = lambda result: ""
    #: The public function, where several share the ladder `op`.
    function: str = ""

    @property
    def call(self) -> Callable[..., Any]:
        """The function of gpuopt that computes the problem."""
        return cast(Callable[..., Any], getattr(gpuopt, self.function or self.op))


class Room(Protocol):
    """What benchmarks/workloads/<op>.py defines."""

    #: True if the operator only reads: its floor uses the read ceiling.
    READS_ONLY: bool
    #: (workload, dtype) for a machine without a GPU; the GPU's are in targets.tsv.
    SMALL: tuple[tuple[str, str], ...]
    #: The (workload, dtype) that the demonstration times.
    DEMO: tuple[str, str]
    #: (workload, dtype) small enough for the simulator.
    TINY: tuple[tuple[str, str], ...]

    def problem(self, name: str, dtype: str, rng: np.random.Generator) -> Problem:
        """Build a workload by its name; ValueError if the name is invalid."""

    def smoke(self, rng: np.random.Generator) -> Iterator[Problem]:
        """Yield small problems over dtypes, sizes and options, checked by gpuopt.ref."""


def rooms() -> tuple[str, ...]:
    """Return the operators that have workloads, by name."""
    package = importlib.import_module("gpuopt.benchmarks.workloads")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__)))


def room(op: str) -> Room:
    """Return the workloads of an operator.

    Raises
    ------
    ValueError
        There are none.
    """
    if op not in rooms():
        raise ValueError(f"no workloads for {op!r}; there are: {', '.join(rooms())}")
    return cast(Room, importlib.import_module(f"gpuopt.benchmarks.workloads.{op}"))


@functools.cache
def targets() -> tuple[dict[str, Any], ...]:
    """Return the rows of benchmarks/targets.tsv; numbers as floats, empty as None."""
    package = importlib.import_module("gpuopt.benchmarks")
    path = Path(package.__path__[0]) / "targets.tsv"
    with path.open(encoding="utf-8", newline="") as lines:
        return tuple(
            {
                key: (float(value) if value else None) if key.endswith("_ms") else value
                for key, value in row.items()
            }
            for row in csv.DictReader(lines, delimiter="\t")
        )


def named(op: str, backend: str) -> tuple[tuple[str, str], ...]:
    """Return the (workload, dtype) pairs of an operator on a backend."""
    if backend == "cuda":
        return tuple((row["workload"], row["dtype"]) for row in targets() if row["op"] == op)
    return room(op).TINY if backend == "sim" else room(op).SMALL


def parse_shape(text: str) -> tuple[int, ...]:
    """Read '2^20', '2^27-1', '1000' or '(8,16,512)' as a shape.

    Raises
    ------
    ValueError
        The text is none of those.
    """
    found = re.fullmatch(r"(\d+)(?:\^(\d+))?(?:-(\d+))?", text)
    if found:
        base, power, less = found.groups()
        return (int(base) ** int(power or 1) - int(less or 0),)
    if re.fullmatch(r"\(\d+(,\d+)*,?\)", text):
        return tuple(int(length) for length in text.strip("(),").split(","))
    raise ValueError(f"not a shape: {text!r}")


def picked(result: Array) -> Array:
    """Return the elements of a result that are checked, in one dimension.

    All of them up to 2^22.  Of more, every 61st and the last 4,096: a wrong lane, tile, row
    or tail is still found, and a benchmark does not spend minutes on comparisons.
    """
    flat = result.reshape(-1)
    if flat.size <= 1 << 22:
        return flat
    return np.concatenate([flat[::61], flat[-4096:]])


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of that name; bfloat16 comes from ml_dtypes."""
    if name == "bfloat16":
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    return np.dtype(name)
