"""The committed result files: what was measured, on which device, at which commit.

Order: reading the files, a ladder's rungs, the automatic choice of each workload.
Sweeps (gpuopt/lab/sweep.py) are files of their own.  An installed package may lack some or all
of the files; the results are then fewer or none.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Ladder", "choices", "ladders", "load", "sweeps"]

Run = dict[str, Any]

FIRST = {"reduce": ("sum 2^25", "float32")}  # the ladder's workload; default: the first


class Ladder(NamedTuple):
    """The rungs of one operator, timed on one workload in one run."""

    run: Run
    workload: str
    dtype: str
    rows: list[dict[str, Any]]


def load(folder: Path | None = None) -> list[Run]:
    """Return every run in the folder, by file name; None is benchmarks/results."""
    return [run for run in read(folder) if "ceilings" in run]


def sweeps(folder: Path | None = None) -> list[Run]:
    """Return every sweep in the folder that was not interrupted, by file name."""
    return [run for run in read(folder) if "seed" in run and not run["interrupted"]]


def read(folder: Path | None) -> Iterator[Run]:
    """Yield the files of the folder that have rows."""
    if folder is None:
        package = importlib.import_module("gpuopt.benchmarks")
        folder = Path(package.__path__[0]) / "results"
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(run, dict) and "rows" in run:
            yield {**run, "file": f"benchmarks/results/{path.name}"}


def ladders(op: str, runs: Sequence[Run]) -> list[Ladder]:
    """Return the ladder of an operator, on one workload, from each run that has it."""
    found = []
    for run in runs:
        rows = [r for r in run["rows"] if r["op"] == op and r["variant"] != "auto" and r["ms"]]
        works = list(dict.fromkeys((row["workload"], row["dtype"]) for row in rows))
        if works:
            work = FIRST[op] if FIRST.get(op) in works else works[0]
            rows = [row for row in rows if (row["workload"], row["dtype"]) == work]
            found.append(Ladder(run, work[0], work[1], rows))
    return found


def choices(runs: Sequence[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Yield each timed row of the automatic choice; once, if several runs of a device have it.

    The choice alone for every workload (-named.json) takes precedence over an operator's own
    run, in which it stands beside the rungs, and that over the run of a ladder (-ladder.json).
    """
    own = [run for run in runs if not run["file"].endswith("-ladder.json")]
    newer = {key(run, row) for run in own if is_named(run) for row in run["rows"]}
    for run in own:
        for row in run["rows"]:
            is_newest = is_named(run) or key(run, row) not in newer
            if row["variant"] == "auto" and row["ms"] and is_newest:
                yield run, row


def is_named(run: Run) -> bool:
    """Return whether the file has the choice alone, of every workload."""
    return run["file"].endswith("-named.json")


def key(run: Run, row: dict[str, Any]) -> tuple[str, ...]:
    """Return the device, operator, workload and dtype of a row."""
    return run["device"], row["op"], row["workload"], row["dtype"]
