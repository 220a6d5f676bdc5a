"""What layers, states, lengths and fixed_cost share: named rows beside peers, kept in a file.

Order: what a benchmark is, its file, the run, the command line, the tables.  A row is checked
and timed as a case of a sweep is: the same arrays for all, cold L2, in turns.  The file is
written after each row.  A run that Ctrl-C or --seconds stopped is continued by the same
command while commit, device and versions are the same; RESULTS.md shows a file once it has all
its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt._table import Table
from gpuopt.benchmarks.sweep import peers
from gpuopt.lab import run as runs
from gpuopt.lab import sweep
from gpuopt.lab.arrays import Arrays, library_for
from gpuopt.lab.drawing import Case, Dice
from gpuopt.lab.progress import track
from gpuopt.lab.turns import Turns

RESULTS = Path(__file__).resolve().parent / "results"
TRIM = 8  # rows between two cleanings of a GPU's memory
SAME = ("benchmark", "device", "mode", "driver", "commit", "versions")  # to continue a run
DRAWN = ("seed", "cases", "undrawn")  # what only a sweep has
INTERRUPTED, UNFINISHED = 130, 3  # exit codes

Row = dict[str, Any]
Run = dict[str, Any]


# ---- what a benchmark is ----


@dataclass(frozen=True)
class Item:
    """A row to come: what the table calls it, and what makes the arrays of its case."""

    labels: Mapping[str, str | int]
    make: Callable[[], Case]


def checked(case: Case, lib: Arrays, rivals: sweep.Rivals, clock: Turns) -> Row:
    """Check and time a case as a sweep does."""
    return sweep.measure(case.function, case, lib, rivals, clock)


@dataclass(frozen=True)
class Benchmark:
    """A table of named rows: `python -m benchmarks.<name>`."""

    name: str
    #: The columns that name a row; no two rows have the same.
    labels: tuple[str, ...]
    #: Yields the rows; few and small ones if `dice.small`, which is so on a CPU.
    items: Callable[[Dice], Iterable[Item]]
    #: Files of benchmarks/sweep/peers; those that are installed take part.
    peers: tuple[str, ...] = ("torch",)
    #: Names of peers -> what gives their calls for a case.
    rivals: Callable[[Sequence[str]], sweep.Rivals] = sweep.libraries
    measure: Callable[[Case, Arrays, sweep.Rivals, Any], Row] = checked
    clock: Callable[[str], Any] = Turns

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what tells a row from all others."""
        return tuple(row[label] for label in self.labels)


# ---- its file ----


def describe(bench: Benchmark, device: str, names: Sequence[str]) -> Run:
    """Return where a run is: device, driver, versions, commit."""
    about = sweep.describe(device, 0, 0, names)
    listed = {key: value for key, value in about.items() if key not in DRAWN}
    return {"benchmark": bench.name, **listed, "interrupted": True}


def earlier(path: Path | None, about: Run) -> list[Row]:
    """Return the good rows of an interrupted run of the same commit, device and versions."""
    if path is None or not path.is_file():
        return []
    run = json.loads(path.read_text(encoding="utf-8"))
    goes_on = run.get("interrupted") and all(run.get(key) == about[key] for key in SAME)
    return [row for row in run["rows"] if not is_bad(row)] if goes_on else []


def write(path: Path | None, run: Run) -> None:
    """Write the file, if there is one, all of it or nothing.

    Raises
    ------
    ValueError
        It cannot be written.
    """
    if path is None:
        return
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(run, indent=1, default=str) + "\n", encoding="utf-8")
        os.replace(part, path)
    except OSError as refusal:
        raise ValueError(f"cannot write {path}: {refusal.strerror}") from None


def kept(name: str, folder: Path = RESULTS) -> list[Run]:
    """Return every run of a benchmark that has all its rows, by file name."""
    found = []
    for path in sorted(folder.glob(f"*-{name}.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if run.get("benchmark") == name and not run["interrupted"]:
            found.append({**run, "file": f"benchmarks/results/{path.name}"})
    return found


# ---- the run ----


def is_bad(row: Row) -> bool:
    """Tell whether our result is wrong, or our call has failed."""
    return "failed" in row or bool(row.get("wrong"))


def run(
    bench: Benchmark, device: str, out: Path | None = None, seconds: float | None = None
) -> Run:
    """Measure the rows that the file lacks, and return the run as the file has it.

    After so many seconds it stops before the next row.  `interrupted` is true while there are
    rows missing, after Ctrl-C as well, which the caller gets to see.
    """
    names = tuple(name for name in bench.peers if name in peers.installed(device))
    for name in names:
        peers.peer(name).ready(device)
    found = describe(bench, device, names)
    found["rows"] = earlier(out, found)
    write(out, found)  # a file that cannot be written is an error at once
    try:
        with sweep.quiet(device):
            measure(bench, device, names, found, out, seconds)
    finally:
        write(out, found)
    return found


def measure(
    bench: Benchmark,
    device: str,
    names: Sequence[str],
    found: Run,
    out: Path | None,
    seconds: float | None,
) -> None:
    """Add the missing rows to a run, and tell in it whether all are there."""
    start = time.monotonic()
    lib = library_for(device, [0])
    rivals, clock = bench.rivals(names), bench.clock(device)
    items = list(bench.items(Dice(np.random.default_rng(0), lib)))
    order = {bench.key(item.labels): place for place, item in enumerate(items)}
    rows = found["rows"]
    there = {bench.key(row) for row in rows}
    todo = [item for item in items if bench.key(item.labels) not in there]
    for done, item in enumerate(track(todo, len(todo), bench.name), 1):
        if seconds is not None and time.monotonic() - start > seconds:
            return
        rows.append(row_of(bench, item, lib, rivals, clock))
        rows.sort(key=lambda row: order[bench.key(row)])
        write(out, found)
        if done % TRIM == 0:
            lib.trim()
    found["interrupted"] = False


def row_of(bench: Benchmark, item: Item, lib: Arrays, rivals: sweep.Rivals, clock: Any) -> Row:
    """Return the row of an item; one whose arrays cannot be made has failed."""
    try:
        case = item.make()
    except Exception as refusal:  # too little memory, mostly
        return {**item.labels, "failed": sweep.sentence(refusal), "peers": {}}
    row = bench.measure(case, lib, rivals, clock)
    return {**item.labels, **{k: v for k, v in row.items() if k not in item.labels}}


# ---- the command line ----


def main(bench: Benchmark, what: str | None, arguments: Sequence[str] | None = None) -> int:
    """Measure, write the file and print the rows.

    Exit code 1 if one of our results is wrong or a row failed, 2 for an invalid argument, 3 if
    rows are missing when the seconds are over, 130 after Ctrl-C.
    """
    name = f"python -m benchmarks.{bench.name}"
    parser = argparse.ArgumentParser(prog=name, description=what)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: few rows, of small arrays, without a file")  # fmt: skip
    parser.add_argument("--out", type=Path, help="the file; default: in benchmarks/results")
    parser.add_argument("--seconds", type=float, help="stop after so many; the same command "
                        "continues")  # fmt: skip
    args = parser.parse_args(arguments)
    try:
        sweep.check(args.device, 0, 1)
        out = args.out or place(bench, args.device)
        found = run(bench, args.device, out, args.seconds)
    except (ValueError, RuntimeError) as refusal:
        parser.error(str(refusal))
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    print(Table(found["rows"], (*bench.labels, "ms", "best", "times")))
    more = ", more to come" if found["interrupted"] else ""
    print(f"{found['device']}, commit {found['commit']}: {len(found['rows'])} rows{more}")
    bad = [row for row in found["rows"] if is_bad(row)]
    for row in bad:
        fault = row.get("failed") or f"wrong by {row['err']}"
        print(f"{', '.join(map(str, bench.key(row)))}: {fault}", file=sys.stderr)
    if bad:
        return 1
    return UNFINISHED if found["interrupted"] else 0


def place(bench: Benchmark, device: str) -> Path | None:
    """Return the file for a GPU's rows; those of a CPU are kept only where --out says."""
    if device == "cpu":
        return None
    about = {"device": runs.device_name("cuda"), "mode": "cuda"}
    return RESULTS / f"{sweep.machine(about)}-{bench.name}.json"


# ---- the tables in RESULTS.md ----


def section(heading: str, found: Sequence[Run], parts: Callable[[Run], Iterable[str]]) -> str:
    """Return a heading and what there is to show of each run; nothing without runs."""
    if not found:
        return ""
    texts = [heading]
    for run in found:
        texts.append(f"{run['device']}, commit `{run['commit']}` ([data]({run['file']})):")
        texts += parts(run)
    return "\n\n".join(texts)


def grouped(rows: Iterable[Row], label: str) -> dict[str, list[Row]]:
    """Return the rows of each value of a label, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[label], []).append(row)
    return groups


def folded(title: str, table: Table) -> list[str]:
    """Return a table that is shown on a click."""
    return [f"<details><summary>{title}</summary>", table.markdown(), "</details>"]


def totals(name: str, rows: Sequence[Row]) -> Row:
    """Return a line that says how some rows compare with their best peers."""
    found = sweep.summary(rows)
    return {
        name: len(rows),
        f"{sweep.GOOD} or better": sweep.percent(found["share"]),
        "worst": found["worst"],
        "mean": found["mean"],
    }


def ratio(row: Row) -> str:
    """Format the best peer's time divided by ours; 1.00 is never a rounded-up value."""
    times = row.get("times")
    if times is None:
        return ""
    return f"{times:.{3 if 0.995 <= times < 1 else 2 if times < 10 else 0}f}"


def best_of(row: Row, library: str) -> float | None:
    """Return the least time of the ways in which a library was called."""
    ways = [took for name, took in row["peers"].items() if f"{name}-".startswith(f"{library}-")]
    return min(ways, default=None)
