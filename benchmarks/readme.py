"""`python -m benchmarks.readme`: rewrite the generated tables of the README.

A table stands between `<!-- begin:NAME -->` and `<!-- end:NAME -->`.  Order: the names,
the tables, the rewriting.  Names:

    operators        every ladder, its operators and variants, from the registry
    <op>-ladder      one operator's rungs on one workload, from results/*.json
    <op>-results     one operator's workloads beside must, goal and the best peer
    results          the same for every operator that has been measured

Each table from a result file names the device and the commit it was measured on.
--check changes nothing and exits with 1 if a table is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import gpuopt
from gpuopt import _core
from gpuopt._table import Table
from gpuopt.lab import workloads

HERE = Path(__file__).resolve().parent
README = HERE.parent / "README.md"
RESULTS = HERE / "results"
LADDER = ("sum 2^25", "float32")  # the workload of reduce's published ladder

BLOCK = re.compile(
    r"(?P<begin><!-- begin:(?P<name>[\w-]+) -->\n).*?(?P<end><!-- end:(?P=name) -->)", re.DOTALL
)

Run = dict[str, Any]


def load(folder: Path = RESULTS) -> list[Run]:
    """Return every run in the folder, by file name."""
    runs = []
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(run, dict) and "rows" in run and "ceilings" in run:
            runs.append({**run, "file": f"benchmarks/results/{path.name}"})
    return runs


# ---- the tables ----


def operators(runs: list[Run]) -> str:
    """List every operator with its variants; operators of one ladder share a line."""
    ladders: dict[str, list[str]] = {}
    for op in gpuopt.ops():
        ladders.setdefault(_core.describe(op)["ladder"], []).append(op)
    rows = []
    for ladder, ops in ladders.items():
        listed = _core.variants(ladder)
        rungs = [row["name"] for row in listed if re.fullmatch(r"v\d+", row["name"])]
        rungs = list(dict.fromkeys(rungs))
        names = ", ".join(f"`{op}`" for op in ops)
        rows.append(
            {
                "operator": names if ladder in ops else f"{ladder}: {names}",
                "what": summary(ladder) if ladder in ops else "One result per element.",
                "CPU": [row["name"] for row in listed if row["backend"] == "cpu"],
                "CUDA": f"{rungs[0]} to {rungs[-1]}" if len(rungs) > 2 else rungs,
                "% of floor": span([percent for percent, _ in measured(ladder, runs)]),
                "times the best peer": span([ratio for _, ratio in measured(ladder, runs)]),
            }
        )
    return Table(rows).markdown()


def measured(op: str, runs: list[Run]) -> list[tuple[float | None, float | None]]:
    """Return percent of floor and speed over the best peer of each row on a GPU."""
    return [
        (
            row.get("percent_of_floor"),
            min(row["peers"].values()) / row["ms"] if row["peers"] else None,
        )
        for run in runs
        for row in run["rows"]
        if run["backend"] == "cuda"
        and row["op"] == op
        and row["variant"] == "auto"
        and row["ms"]
    ]


def span(values: list[float | None]) -> str:
    """Write the least and the greatest, two digits each."""
    known = sorted(value for value in values if value is not None)
    ends = [f"{value:.2g}" if value < 10 else f"{value:.0f}" for value in known]
    return "" if not ends else ends[0] if ends[0] == ends[-1] else f"{ends[0]} to {ends[-1]}"


def summary(op: str) -> str:
    """Return the first sentence of an operator's documentation."""
    lines = (getattr(gpuopt, op).__doc__ or "").strip().splitlines()
    return next((line for line in lines if line), "")


def caption(run: Run, what: str) -> str:
    """Say where a table was measured."""
    return f"{what} on {run['device']}, commit `{run['commit']}` ([data]({run['file']})):"


def ladder(op: str, runs: list[Run]) -> str:
    """Show one operator's rungs, slowest idea first, once per device."""
    tables = []
    for run in runs:
        rows = [r for r in run["rows"] if r["op"] == op and r["variant"] != "auto" and r["ms"]]
        works = dict.fromkeys((r["workload"], r["dtype"]) for r in rows)
        if not works:
            continue
        work = LADDER if LADDER in works else next(iter(works))
        rows = [r for r in rows if (r["workload"], r["dtype"]) == work]
        ideas = {
            row["name"]: row["idea"]
            for row in _core.variants(op)
            if (row["backend"] == "cpu") == (run["backend"] == "cpu")
        }
        table = Table(
            {
                "variant": f"`{row['variant']}`",
                "idea": ideas.get(row["variant"], ""),
                "ms": row["ms"],
                "GB/s": round(row["gbs"]),
                "% of floor": whole(row.get("percent_of_floor")),
            }
            for row in rows
        )
        peers = ", ".join(f"{name} {ms:.4g} ms" for name, ms in rows[0]["peers"].items())
        text = caption(run, f"`{op}` {work[0]} {work[1]}") + "\n\n" + table.markdown()
        tables.append(text + (f"\n\nIn the same run: {peers}." if peers else ""))
    return "\n\n".join(tables) or f"No result file has `{op}` yet."


def results(op: str, runs: list[Run]) -> str:
    """Show one operator's automatic choice beside must, goal and best peer."""
    targets = {(row["op"], row["workload"], row["dtype"]): row for row in workloads.targets()}
    tables = []
    for run in runs:
        rows = [r for r in run["rows"] if r["op"] == op and r["variant"] == "auto"]
        if not rows:
            continue
        table = Table(result_row(run, row, targets) for row in rows)
        tables.append(caption(run, f"`{op}`") + "\n\n" + table.markdown())
    return "\n\n".join(tables) or f"No result file has `{op}` yet."


def result_row(run: Run, row: dict[str, Any], targets: dict[Any, Any]) -> dict[str, Any]:
    """Return one line of a results table."""
    target = targets.get((row["op"], row["workload"], row["dtype"]), {})
    if "H200" not in run["device"]:
        target = {}  # the targets are times on an H200
    peers = sorted(row["peers"].items(), key=lambda item: item[1])
    best = f"{peers[0][1]:.4g} ({peers[0][0]})" if peers else ""
    line: dict[str, Any] = {"workload": f"{row['workload']} {row['dtype']}"}
    line["ms"] = row["ms"] or f"error: {row['error']}"
    line["variant"] = f"`{row['chosen']}`" if row["chosen"] else ""
    line["best peer ms"] = best
    for key in ("must", "goal"):
        limit = target.get(f"{key}_ms")
        if limit is None:
            line[key] = ""
        else:
            met = row["ms"] is not None and row["ms"] <= limit
            line[key] = f"{limit:.4g} {'met' if met else 'missed'}"
    line["% of floor"] = whole(row.get("percent_of_floor"))
    return line


def whole(value: float | None) -> int | None:
    """Return a percentage without decimals."""
    return None if value is None else round(value)


# ---- the rewriting ----


def block(name: str, runs: list[Run]) -> str:
    """Return the text of a block; ValueError if nobody makes one of that name."""
    if name == "operators":
        return operators(runs)
    if name == "results":
        names = dict.fromkeys(row["op"] for run in runs for row in run["rows"])
        return "\n\n".join(results(op, runs) for op in names) or "Nothing measured yet."
    op, _, kind = name.rpartition("-")
    if op in workloads.rooms() and kind == "ladder":
        return ladder(op, runs)
    if op in workloads.rooms() and kind == "results":
        return results(op, runs)
    raise ValueError(f"no generated block is called {name!r}")


def rewrite(text: str, runs: list[Run]) -> str:
    """Return the text with every block made anew."""

    def made(found: re.Match[str]) -> str:
        return f"{found['begin']}\n{block(found['name'], runs)}\n\n{found['end']}"

    return BLOCK.sub(made, text)


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the README, or say that it is stale."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme")
    parser.add_argument("--check", action="store_true", help="exit 1 if stale, change nothing")
    parser.add_argument("--readme", type=Path, default=README)
    args = parser.parse_args(arguments)
    old = args.readme.read_text(encoding="utf-8")
    new = rewrite(old, load())
    if args.check:
        if old != new:
            print(f"{args.readme.name} is stale: run `make readme`", file=sys.stderr)
            return 1
        return 0
    if old != new:
        args.readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
