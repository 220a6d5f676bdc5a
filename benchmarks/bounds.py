"""Errors and times of index_add and scatter_add with many values per place, by variant.

    python -m benchmarks.bounds [--backend cuda] [--quick]

`error` is the largest abs(error) / sum(abs) over the places; `bound` is the largest error
relative to the default's error bound (more than 1 for rungs without that bound).
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt.lab import workloads
from gpuopt.lab.run import to_host
from gpuopt.lab.timer import CpuClock, device_clock, measure_together

CASES = (
    ("index_add", "2^20 rows into 1e3, width 64, zipf", "float16"),
    ("index_add", "1e5 rows into 1e5, width 256, zipf", "float16"),
    ("index_add", "1e6 rows into 1e5, width 128", "float16"),
    ("index_add", "1e6 rows into 1e5, width 128, zipf", "float32"),
    ("index_add", "1e5 rows into 1e4, width 128", "float32"),
    ("index_add", "2^22 rows into 1e5, width 4", "float32"),
    ("index_add", "2^25 into 1e6, width 1", "float32"),
    ("index_add", "2^25 into 1e3, width 1", "float32"),
    ("index_add", "2^24 into 1e5, width 1, zipf", "float32"),
    ("index_add", "2^24 into 1e5, width 1, one", "float32"),
    ("scatter_add", "2^25 random into 1024", "float32"),
    ("scatter_add", "2^25 random into 1000000", "float32"),
    ("scatter_add", "2^26 zipf into 100000", "float32"),
    ("scatter_add", "2^24 sorted into 100000", "float16"),
    ("scatter_add", "2^20 random into 10000000", "float32"),
)
QUICK = (
    ("index_add", "1e5 rows into 1e3, width 16, zipf", "float16"),
    ("index_add", "2^20 into 1e3, width 1, zipf", "float32"),
    ("scatter_add", "2^20 zipf into 1000", "float32"),
)
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def judge(problem: workloads.Problem) -> Callable[[Any], tuple[float, float]]:
    """Return the largest error, relative to the sums of magnitudes and to the bound."""
    if problem.op == "index_add":
        x, index, source = problem.args
        kept, rows = x.reshape(len(x), -1)[:, :4], source.reshape(len(source), -1)[:, :4]
    else:
        values, index = problem.args
        kept, rows = np.zeros((problem.options["size"], 1), values.dtype), values[:, None]
    size = len(kept)
    columns = rows.shape[1]
    wide = rows.astype(np.longdouble if sys.platform == "linux" else np.float64)
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(size))
    met = np.bincount(index, minlength=size)[:, None]

    def sums(v: Any) -> Any:
        padded = np.concatenate([v[order], np.zeros((1, columns), v.dtype)])
        return np.where(met > 0, np.add.reduceat(padded, ends, axis=0), 0)

    exact = sums(wide) + kept
    total = (sums(np.abs(wide)) + np.abs(kept)).astype(np.float64)
    n = met + 1.0
    bound = n * 2.0**-53 * total + UNIT[problem.dtype] * np.abs(exact).astype(np.float64)
    if problem.op == "index_add" and problem.dtype != "float64":
        bound = bound + (np.minimum(n, 1024) + 4) * 2.0**-24 * total

    def check(result: Any) -> tuple[float, float]:
        got = np.asarray(to_host(result)).reshape(size, -1)[:, :columns]
        error = np.abs(got.astype(wide.dtype) - exact).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = [np.where(by > 0, error / by, error) for by in (total, bound)]
        return float(np.max(shares[0])), float(np.max(shares[1]))

    return check


def lines(backend: str, quick: bool) -> Iterator[str]:
    """Measure the cases; yield one line per variant."""
    clock: Any = device_clock() if backend == "cuda" else CpuClock()
    upload: Callable[..., Any] = getattr(clock, "upload", lambda x: x)
    for op, name, dtype in QUICK if quick else CASES:
        problem = workloads.room(op).problem(name, dtype, np.random.default_rng(20240229))
        arrays = tuple(upload(x) for x in problem.args)
        options = {**problem.options, "backend": backend}
        taken = _core.plan(op, *arrays, **options)["variant"]
        check = judge(problem)
        named = [
            row["name"]
            for row in _core.variants(op)
            if row["backend"] == backend and row["available"] and dtype in row["dtypes"]
        ]
        calls = {
            variant: functools.partial(problem.call, *arrays, **options, variant=variant)
            for variant in ["auto", *named]
        }
        errors = {variant: check(call()) for variant, call in calls.items()}
        times = measure_together(
            calls, device="cuda" if backend == "cuda" else "cpu", clock=clock, max_time=1.0
        )
        yield f"{op} {name} {dtype}: auto takes {taken}"
        for variant, (error, share) in errors.items():
            ms = times[variant].median
            yield f"  {variant:8} {ms:9.4f} ms  error {error:.1e}  bound {share:8.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default=_core.default_backend())
    parser.add_argument("--quick", action="store_true", help="three small cases")
    args = parser.parse_args(arguments)
    for line in lines(args.backend, args.quick):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
