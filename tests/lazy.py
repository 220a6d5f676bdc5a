"""Drawn calls of gpuopt.dask: the samples of the contract, cut into drawn chunks.

test_dask.py runs some of them, and dask_workers.py (`make beyond`) five hundred of them with
worker processes of which some are killed.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from cases import ENTRIES, Expected, Sample, Several, dtype_of

import gpuopt
import gpuopt.dask as gd
from gpuopt import chunks

DTYPES = (
    *("bool", "int8", "int32", "int64", "uint8", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
MOST = 40_000  # elements of a sample
SPATIAL = {"max_pool1d": 1, "max_pool2d": 2, "max_pool3d": 3}
MEMORY = ("segments", "return_state", "return_indices", "ceil_mode")  # not for Dask arrays


class Drawn(NamedTuple):
    """One call, and what it must return."""

    op: str
    sample: Sample
    lazy: Callable[[], Any]
    expected: Expected | Several

    def __str__(self) -> str:
        return f"{self.op}: {self.sample}"


def cut(length: int, random: Any, step: int = 1, empty: bool = True) -> tuple[int, ...]:
    """Drawn chunks of an axis, at most five, some of them empty; edges at multiples of step."""
    places = [int(p) * step for p in random.integers(0, length // step + 1, random.integers(5))]
    edges = [0, *sorted(places), length]
    if not empty:
        edges = sorted(set(edges)) if length else [0, 0]
    return tuple(b - a for a, b in itertools.pairwise(edges))


def in_chunks(
    x: Any, random: Any, sizes: dict[int, tuple[int, ...]] | None = None, empty: bool = True
) -> Any:
    """x as a Dask array; the axes in `sizes` have those chunks, others drawn ones."""
    sizes = sizes or {}
    grid = tuple(sizes.get(a) or cut(n, random, empty=empty) for a, n in enumerate(x.shape))
    return da.from_array(x, chunks=grid)


def whole(x: Any, *axes: int) -> dict[int, tuple[int, ...]]:
    return {a % x.ndim: (x.shape[a],) for a in axes}


# ---- the arguments of an operator ----


def paired(random: Any, x: Any, y: Any, *more: Any) -> list[Any]:
    x = in_chunks(x, random)
    y = y if random.integers(3) == 0 else da.from_array(y, chunks=x.chunks)
    return [x, y, *more]


def some(random: Any, *arrays: Any) -> list[Any]:
    """At least one Dask array among the arrays; Dask makes no chunks alike of empty ones."""
    places = [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray)]
    sure = random.choice(places)
    return [
        in_chunks(a, random, empty=False)
        if i == sure or (i in places and random.integers(2))
        else a
        for i, a in enumerate(arrays)
    ]


def of_index_add(random: Any, options: dict[str, Any], x: Any, index: Any, source: Any) -> Any:
    axis = options.get("axis", 0) % x.ndim
    source = in_chunks(source, random)
    others = {a: c for a, c in enumerate(source.chunks) if a != axis}
    if random.integers(2):
        x = in_chunks(x, random, {**others, **whole(x, axis)})
    if random.integers(2):
        index = da.from_array(np.asarray(index), chunks=(source.chunks[axis],))
    return [x, index, source]


def of_causal(random: Any, options: dict[str, Any], x: Any, w: Any, *bias: Any) -> Any:
    x = in_chunks(x, random)
    channels = x.chunks[2 if options.get("layout") == "BTC" else 1]
    if random.integers(2):
        w = da.from_array(w, chunks=(channels, (w.shape[1],)))
        bias = tuple(da.from_array(b, chunks=(channels,)) for b in bias)
    return [x, w, *bias]


def of_pool(rank: int, random: Any, options: dict[str, Any], x: Any) -> Any:
    kernel = options["kernel_size"]
    stride = options.get("stride") or kernel
    sizes = {}
    for k in range(rank):
        step = stride if isinstance(stride, int) else stride[k]
        axis = x.ndim - rank + k
        sizes[axis] = cut(x.shape[axis], random, step)
    return [in_chunks(x, random, sizes)]


def of_upsample(random: Any, options: dict[str, Any], x: Any) -> Any:
    first = 1 if options.get("layout") == "NHWC" else 2
    sizes = {}
    for k in range(x.ndim - 2):
        axis = first + k
        try:
            how = {n: options.get(n) for n in ("scale", "size", "exact")}
            chunks.halo("upsample_nearest", **how, axis=k, length=x.shape[axis])
        except ValueError:
            sizes |= whole(x, axis)
    return [in_chunks(x, random, sizes)]


def arguments(op: str, random: Any, options: dict[str, Any], arrays: list[Any]) -> list[Any]:
    if op in ("dot", "scatter_add"):
        return paired(random, *arrays)
    if op == "index_add":
        return of_index_add(random, options, *arrays)
    if op == "causal_conv1d":
        return of_causal(random, options, *arrays)
    if op in SPATIAL:
        return of_pool(SPATIAL[op], random, options, *arrays)
    if op == "upsample_nearest":
        return of_upsample(random, options, *arrays)
    if op == "mean_matvec":
        x, matrix = arrays
        return [in_chunks(x, random, whole(x, 1, 2)), matrix]
    if op == "convolve":
        a, v = arrays
        a = in_chunks(a, random, whole(a, -1), empty=False) if a.ndim else da.from_array(a)
        lazy = v.ndim and random.integers(2)
        return [a, in_chunks(v, random, whole(v, -1), empty=False) if lazy else v]
    if op in ("reduce", "scan", "partition_reduce"):
        return [in_chunks(arrays[0], random)]
    return some(random, *arrays)


# ---- workers that die ----


def _dies(block: Any, marker: str) -> Any:
    """Kills the process that computes it, the first time that any does."""
    with contextlib.suppress(FileExistsError), open(marker, "x"):
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def dying(marker: Path) -> Callable[[Any], Any]:
    """What makes of a Dask array one whose first block to be computed kills its worker."""
    return lambda x: x.map_blocks(_dies, str(marker), dtype=x.dtype, meta=x._meta)


# ---- drawn calls ----


@functools.cache
def samples(op: str, dtype: str) -> list[Sample]:
    """The samples of the contract that gpuopt.dask takes."""
    try:
        found = [s for s in ENTRIES[op].samples(dtype, "full") if s.elements <= MOST]
    except (KeyError, StopIteration):  # of an operator that has no samples of the dtype
        return []
    found = [s for s in found if not any(v for k, v in s.options if k in MEMORY)]
    return [s for s in found if is_taken(op, s)]


def is_taken(op: str, sample: Sample) -> bool:
    """Whether the operator has the dtypes of a sample."""
    try:
        gpuopt.plan(op, *(spec.build() for spec in sample.arrays), **keywords(sample))
    except TypeError:
        return False
    except (ValueError, IndexError):
        return True  # which the case expects
    return True


def drawn(seed: int, wrap: Callable[[Any], Any] = lambda x: x) -> Drawn:
    """Every operator in turn; dtype, sample and chunks are drawn.

    `wrap` makes the Dask arrays that the operator is given of the drawn ones.
    """
    random = np.random.default_rng(seed)
    op = gd.__all__[seed % len(gd.__all__)]
    choices: list[Sample] = []
    while not choices:
        choices = samples(op, str(random.choice(DTYPES)))
    sample = choices[random.integers(len(choices))]
    options = keywords(sample)
    arrays = arguments(op, random, options, [spec.build() for spec in sample.arrays])
    arrays = [wrap(a) if isinstance(a, da.Array) else a for a in arrays]

    def lazy() -> Any:
        return getattr(gd, op)(*arrays, **options)

    return Drawn(op, sample, lazy, ENTRIES[op].expect(sample))


def keywords(sample: Sample) -> dict[str, Any]:
    options = dict(sample.options)
    if "dtype" in options:
        options["dtype"] = dtype_of(options["dtype"])
    return options


def problem(case: Drawn, compute: Callable[[Any], Any]) -> str | None:
    """None if the call returns or raises what the operator in memory does."""
    wanted = case.expected.error
    try:
        y = case.lazy()
        got = compute(y)
    except Exception as error:
        if wanted is not None and isinstance(error, wanted):
            return None
        return f"raised {type(error).__name__}: {error}"
    if wanted is not None:
        return f"returned instead of raising {wanted.__name__}"
    if (y.dtype, y.shape) != (got.dtype, got.shape):
        return f"said {y.dtype} {y.shape}, is {got.dtype} {got.shape}"
    if y._meta.dtype != y.dtype or not isinstance(y._meta, np.ndarray):
        return f"has the meta {y._meta!r}"
    return case.expected.compare(np.asarray(got)[()])
