"""`python -m benchmarks.methods`: the source document's table of three methods, and ours.

The document times methods A (private copies per block), B (one global atomic per element)
and C (shared memory first) on a Quadro P6000, for an operator that adds element i of 2^n to
the place given by some bits of i.  Here these are the bits 0 to k-1, so the place is i mod 2^k,
passed to scatter_add as an index array: 8 more bytes to read per element than the document's
kernels, which compute the place.  On a GPU A, B and C are v2, v0 and v1; without one the
CPU variants are shown beside the published times.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab import timer
from gpuopt.lab.workloads import parse_shape

PUBLISHED = Path(__file__).with_name("methods_published.tsv")
SOURCE = "Quadro P6000"
METHODS = {"A": "v2", "B": "v0", "C": "v1"}


def published() -> list[dict[str, Any]]:
    """Return the document's rows; times in milliseconds, None for N/A."""
    with PUBLISHED.open(encoding="utf-8", newline="") as lines:
        return [
            {
                "in": int(row["in"]),
                "out": int(row["out"]),
                "published_ms": {
                    method: round(float(row[f"{method}_s"]) * 1e3, 6)
                    if row[f"{method}_s"]
                    else None
                    for method in METHODS
                },
            }
            for row in csv.DictReader(lines, delimiter="\t")
        ]


def columns(backend: str) -> dict[str, str]:
    """Return our columns: the variant that is timed, by the column's name."""
    if backend == "cuda":
        return dict(METHODS)
    rows = gpuopt.variants("scatter_add")
    return {row["name"]: row["name"] for row in rows if row["backend"] == backend}


def measure(n: int, size: int, backend: str, max_time: float, clock: Any) -> dict[str, float]:
    """Return the median milliseconds of each column; ValueError for a wrong sum."""
    values: Any = np.ones(n)
    index: Any = np.arange(n, dtype=np.int64) & (size - 1)
    if backend == "cuda":
        values, index = clock.upload(values), clock.upload(index)

    def call(variant: str) -> Any:
        return lambda: gpuopt.scatter_add(
            values, index, size, "clip", variant=variant, backend=backend
        )

    calls = {name: call(variant) for name, variant in columns(backend).items()}
    for name, run in calls.items():
        total = run()
        if not all(float(total[k]) == n // size for k in (0, size - 1)):
            raise ValueError(f"{name}: a sum of {n} into {size} is wrong")
    timings = timer.measure_together(calls, device=backend, max_time=max_time, clock=clock)
    return {name: timing.median for name, timing in timings.items()}


def table(rows: list[dict[str, Any]], backend: str) -> str:
    """Return the rows as text."""
    ours = list(columns(backend))
    head = ["in", "out", *(f"{m} published" for m in METHODS), *(f"{m} here" for m in ours)]
    body = [
        [
            str(row["in"]),
            str(row["out"]),
            *("N/A" if ms is None else f"{ms:.3f}" for ms in row["published_ms"].values()),
            *(f"{row['ours_ms'][name]:.4f}" for name in ours),
        ]
        for row in rows
    ]
    widths = [max(len(line[c]) for line in [head, *body]) for c in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in [head, *body]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table."""
    usable = gpuopt.backends()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods")
    parser.add_argument("--backend", choices=("cpu", "cuda"), help="default: cuda if there")
    parser.add_argument("--max-time", type=float, default=1.0, help="seconds per row")
    parser.add_argument("--largest", default="2^25", help="rows of at most so many elements")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    args = parser.parse_args(arguments)
    backend = args.backend or ("cpu" if usable["cuda"] else "cuda")
    (largest,) = parse_shape(args.largest)
    clock = timer.device_clock() if backend == "cuda" else timer.CpuClock()
    rows = [row for row in published() if row["in"] <= largest]
    for row in rows:
        row["ours_ms"] = measure(row["in"], row["out"], backend, args.max_time, clock)
    if args.json:
        result = {"source": SOURCE, "backend": backend, "columns": columns(backend)}
        print(json.dumps({**result, "rows": rows}, indent=1))
        return 0
    print(f"float64, ms; published: {SOURCE}; here: {backend}, cold caches, median")
    print(table(rows, backend))
    return 0


if __name__ == "__main__":
    sys.exit(main())
