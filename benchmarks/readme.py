"""`python -m benchmarks.readme`: rewrite the generated tables of the documents.

README.md, benchmarks/RESULTS.md and csrc/ops/*/NOTES.md have their tables between
`<!-- begin:NAME -->` and `<!-- end:NAME -->`.  Order: the names, the tables of README, of
RESULTS, of NOTES, the rewriting.  Names:

    operators     every room, its operators and the number of their rungs, from the registry
    headlines     each operator's first workload on a GPU beside the best peer
    ladders       the rungs of every operator on one workload
    results       every operator's workloads beside the best peer
    slower        those where a peer is faster
    sweeps        random calls beside the best peer, with their heading; nothing without sweeps
    layouts       pictures of them by layout
    layers, short_filters, states, lengths, fixed_cost
                  what the benchmark of that name found, with its heading; nothing without it
    <op>-goals    one operator's times divided by its must and goal, benchmarks/targets.tsv

Tables of times come from results/*.json and name the device and the commit.  --check changes
nothing and exits with 1 if a table is stale.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpuopt
from gpuopt import _core
from gpuopt._table import Table
from gpuopt.benchmarks import fixed_cost, layers, lengths, pictures, short_filters, states
from gpuopt.lab import published, sweep, workloads
from gpuopt.lab.published import Run

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DOCUMENTS = [
    ROOT / "README.md",
    HERE / "RESULTS.md",
    *sorted((ROOT / "csrc" / "ops").glob("*/NOTES.md")),
]
FEW = 3  # operators of a room that the table of operators names

BLOCK = re.compile(
    r"(?P<begin><!-- begin:(?P<name>[\w-]+) -->\n).*?(?P<end><!-- end:(?P=name) -->)", re.DOTALL
)

NONE = "Nothing measured yet."


# ---- README ----


def operators() -> str:
    """List every room: its operators, what the first does, and how many rungs there are."""
    rooms: dict[str, list[str]] = {}
    for op in gpuopt.ops():
        rooms.setdefault(_core.describe(op)["room"], []).append(op)
    rows = []
    for room, ops in rooms.items():
        counts = [len(rungs(ladder)) for ladder in ladders_of(ops)]
        names = ("" if room in ops else f"{room}: ") + ", ".join(f"`{op}`" for op in ops[:FEW])
        rows.append(
            {
                "operator": names + (f" and {len(ops) - FEW} more" if len(ops) > FEW else ""),
                "what it does": summary(room) if room in ops else "One result per element.",
                "rungs": " + ".join(map(str, counts)),
            }
        )
    return Table(rows).markdown()


def ladders_of(ops: Sequence[str]) -> list[str]:
    """Return the ladders that operators have, each once."""
    return list(dict.fromkeys(_core.describe(op)["ladder"] for op in ops))


def rungs(ladder: str) -> list[str]:
    """Return the CUDA rungs of a ladder."""
    names = [row["name"] for row in _core.variants(ladder)]
    return [name for name in dict.fromkeys(names) if re.fullmatch(r"v\d+", name)]


def summary(op: str) -> str:
    """Return the first sentence of an operator's documentation, up to a formula."""
    lines = (getattr(gpuopt, op).__doc__ or "").strip().splitlines()
    first = next((line for line in lines if line), "")
    words, formula, _ = first.partition(":")
    return f"{words}." if formula and len(words.split()) > FEW else first


def headlines(runs: list[Run]) -> str:
    """Show each operator's first workload on a GPU, and count those where a peer is faster."""
    first: dict[str, tuple[Run, dict[str, Any]]] = {}
    for run, row in gpu_choices(runs):
        work = published.FIRST.get(row["op"], (row["workload"], row["dtype"]))
        if (row["workload"], row["dtype"]) == work:
            first.setdefault(row["op"], (run, row))
    rows = []
    for op in ladders_of(gpuopt.ops()):
        if op in first and not op.endswith("_backward"):
            row = first[op][1]
            peer, ms = best_peer(row)
            rows.append(
                {
                    "operator": f"`{op}`",
                    "workload": f"{row['workload']} {row['dtype']}",
                    "ms": short(row["ms"]),
                    "best peer": f"{short(ms)} {peer}" if peer else "",
                    "times as fast": times(row),
                }
            )
    if not rows:
        return NONE
    return Table(rows).markdown() + "\n\n" + counted(runs)


def counted(runs: list[Run]) -> str:
    """Return a sentence on how many workloads a peer is faster, and by how much."""
    ratios = [ratio for _, row in gpu_choices(runs) if (ratio := speedup(row))]
    slower = [ratio for ratio in ratios if ratio < 1]
    devices = ", ".join(dict.fromkeys(run["device"] for run, _ in gpu_choices(runs)))
    if not slower:
        return f"On none of {len(ratios)} workloads on the {devices} is a peer faster."
    return (
        f"On {len(slower)} of {len(ratios)} workloads on the {devices} a peer is faster, "
        f"by up to {100 * (1 / min(slower) - 1):.0f} %; "
        "[RESULTS.md](benchmarks/RESULTS.md#where-a-peer-is-faster) names them."
    )


def gpu_choices(runs: list[Run]) -> list[tuple[Run, dict[str, Any]]]:
    """Return the rows of the automatic choice that were timed on a GPU."""
    return [(run, row) for run, row in published.choices(runs) if run["backend"] == "cuda"]


def best_peer(row: dict[str, Any]) -> tuple[str, float | None]:
    """Return the name and time of the fastest peer; ('', None) if there is none."""
    peers = sorted(row["peers"].items(), key=lambda item: item[1])
    return peers[0] if peers else ("", None)


def speedup(row: dict[str, Any]) -> float | None:
    """Return the best peer's time divided by ours."""
    ms = best_peer(row)[1]
    return ms / row["ms"] if ms and row["ms"] else None


def times(row: dict[str, Any]) -> str:
    """Format the speed-up with two or three digits; 1.00 is never a rounded-up value."""
    ratio = speedup(row)
    if ratio is None:
        return ""
    return f"{ratio:.{3 if 0.995 <= ratio < 1 else 2 if ratio < 10 else 0}f}"


def short(ms: float | None) -> str:
    """Format a time with three digits."""
    return "" if ms is None else f"{ms:.3g}"


# ---- RESULTS ----


def caption(run: Run, what: str) -> str:
    """Return where a table was measured, with a link relative to its document."""
    return f"{what} on {run['device']}, commit `{run['commit']}` ([data]({run['file']})):"


def ladder(op: str, runs: list[Run]) -> str:
    """Show one operator's rungs in order, once per run that timed them."""
    tables = []
    for found in published.ladders(op, runs):
        cpu = found.run["backend"] == "cpu"
        ideas = {
            row["name"]: row["idea"]
            for row in _core.variants(op)
            if (row["backend"] == "cpu") == cpu
        }
        table = Table(
            {
                "variant": f"`{row['variant']}`",
                "idea": ideas.get(row["variant"], ""),
                "ms": row["ms"],
                "GB/s": round(row["gbs"]),
                "% of floor": whole(row.get("percent_of_floor")),
            }
            for row in found.rows
        )
        peers = ", ".join(f"{name} {ms:.4g} ms" for name, ms in found.rows[0]["peers"].items())
        text = caption(found.run, f"`{op}` {found.workload} {found.dtype}")
        text += "\n\n" + table.markdown()
        tables.append(text + (f"\n\nIn the same run: {peers}." if peers else ""))
    return "\n\n".join(tables)


def results(op: str, runs: list[Run]) -> str:
    """Show one operator's automatic choice beside the best peer."""
    chosen = list(published.choices(runs))
    tables = []
    for run in runs:
        rows = [row for where, row in chosen if where is run and row["op"] == op]
        if rows:
            table = Table(map(result_row, rows)).markdown()
            tables.append(caption(run, f"`{op}`") + "\n\n" + table)
    return "\n\n".join(tables)


def result_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return one line of a results table."""
    peer, ms = best_peer(row)
    return {
        "workload": f"{row['workload']} {row['dtype']}",
        "ms": row["ms"],
        "variant": f"`{row['chosen']}`" if row["chosen"] else "",
        "best peer ms": f"{ms:.4g} ({peer})" if peer else "",
        "times as fast": times(row),
        "% of floor": whole(row.get("percent_of_floor")),
    }


def slower(runs: list[Run]) -> str:
    """Show the rows where a peer is faster, on any device."""
    rows = [
        {"operator": f"`{row['op']}`", **result_row(row), "device": run["device"]}
        for run, row in published.choices(runs)
        if (speedup(row) or 1) < 1
    ]
    return Table(rows).markdown() if rows else "Nowhere."


def whole(value: float | None) -> int | None:
    """Return a percentage without decimals."""
    return None if value is None else round(value)


# ---- the sweeps in RESULTS ----

RANDOM = """\
## Random calls
`make sweep` draws calls with sizes, dtypes and layouts as users have them, from seeds that are
made of the commit, checks them, and times them beside every installed library, in turns.

- **{good} or better** is the share of cases in which the best peer takes at least {good} times
  as long as ours; a difference within 3 % or 0.5 us is a tie and counts too, a wrong or failed
  case does not.
- **worst** and **mean** are the best peer's time divided by ours; the mean is geometric, and a
  case counts at most {most}.
- **peerless** cases have no peer that takes them and is right; they are in no share.
- An index is the same in every turn: gpuopt waits for its check in the first call alone."""


def sweeps(runs: list[Run]) -> str:
    """Show what the sweeps of each machine found; nothing if there are none."""
    if not runs:
        return ""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(sweep.machine(run), []).append(run)
    parts = [RANDOM.format(good=sweep.GOOD, most=f"{sweep.MOST:g}")]
    parts += [one_machine(name, found) for name, found in groups.items()]
    return "\n\n".join(parts)


def one_machine(name: str, runs: list[Run]) -> str:
    """Show the sweeps of one machine: pooled, drawn, and what is under 0.95."""
    rows = [row for run in runs for row in run["rows"]]
    device = runs[0]["device"]
    if runs[0]["mode"] == "host":
        device += ": NumPy arrays, beside the backends `cpu` and `cuda`"
    data = ", ".join(f"{run['seed']} ([data]({run['file']}))" for run in runs)
    commits = ", ".join(dict.fromkeys(f"`{run['commit']}`" for run in runs))
    table = Table(sweep.table(rows), sweep.COLUMNS).markdown()
    under = sweep.under(rows)
    parts = [
        f"### {device}",
        f"Commit {commits}, seed {data}:",
        table,
        f"![Time per byte over size, ours and the best peer](../docs/sweep-{name}.svg)",
    ]
    if under:
        parts.append(f"<details><summary>{len(under)} cases under {sweep.GOOD}</summary>")
        parts += [Table(under).markdown(), "</details>"]
    return "\n\n".join(parts)


LAYOUTS = """\
## By layout
The calls of the sweeps whose arrays are on the device of the call, by how the elements lie in
memory: contiguous, transposed, every second element, or an operand repeated for each row or
column (broadcast); of a scan, whether the sums run along the axis of neighbours."""


def layouts() -> str:
    """Show the pictures by layout; nothing without sweeps."""
    drawn = [
        f"![{op}: time per byte over size, by layout](../docs/layouts-{op}.svg)"
        for op in pictures.by_layout()
    ]
    return "\n\n".join([LAYOUTS, *drawn]) if drawn else ""


#: The benchmarks of named rows, by the names of their blocks.
NAMED = {
    module.__name__.rpartition(".")[2]: module.section
    for module in (layers, short_filters, states, lengths, fixed_cost)
}


# ---- NOTES ----


def goals(op: str, runs: list[Run]) -> str:
    """Show one operator's times relative to must and goal."""
    targets = {(row["op"], row["workload"], row["dtype"]): row for row in workloads.targets()}
    chosen = list(published.choices(runs))
    tables = []
    for run in runs:
        if "H200" not in run["device"]:
            continue  # the targets are times on an H200
        rows = []
        for where, row in chosen:
            target = targets.get((row["op"], row["workload"], row["dtype"]))
            if where is run and target and row["op"] == op:
                rows.append(
                    {
                        "workload": f"{row['workload']} {row['dtype']}",
                        "ms": row["ms"],
                        "must ms": target["must_ms"],
                        "goal ms": target["goal_ms"],
                        "time / must": over(row["ms"], target["must_ms"]),
                        "time / goal": over(row["ms"], target["goal_ms"]),
                    }
                )
        if rows:
            tables.append(caption(run, f"`{op}`") + "\n\n" + Table(rows).markdown())
    return "\n\n".join(tables) or NONE


def over(ms: float, limit: float | None) -> str:
    """Format a time divided by a limit; a value above 1 is never rounded down to 1.00."""
    if limit is None:
        return ""
    ratio = ms / limit
    return f"{max(ratio, 1.01) if ratio > 1 else ratio:.2f}"


# ---- the rewriting ----


def every(table: Any, runs: list[Run]) -> str:
    """Return a table for each operator that has been measured, under a heading."""
    names = dict.fromkeys(row["op"] for run in runs for row in run["rows"])
    found = [(op, table(op, runs)) for op in names]
    return "\n\n".join(f"### {op}\n{text}" for op, text in found if text) or NONE


def block(name: str, runs: list[Run]) -> str:
    """Return the text of a block; ValueError if there is no block of that name."""
    if name == "operators":
        return operators()
    if name == "headlines":
        return headlines(runs)
    if name == "ladders":
        return every(ladder, runs)
    if name == "results":
        return every(results, runs)
    if name == "slower":
        return slower(runs)
    if name == "sweeps":
        return sweeps(published.sweeps(HERE / "results"))
    if name == "layouts":
        return layouts()
    if name in NAMED:
        return NAMED[name]()
    op, _, kind = name.rpartition("-")
    if op in workloads.rooms() and kind == "goals":
        return goals(op, runs)
    raise ValueError(f"no generated block is called {name!r}")


def rewrite(text: str, runs: list[Run], folder: Path = ROOT) -> str:
    """Return the text of a document in that folder with every block regenerated."""
    to_root = os.path.relpath(ROOT, folder)

    def made(found: re.Match[str]) -> str:
        new = block(found["name"], runs)
        if to_root != ".":
            new = new.replace("](benchmarks/", f"]({to_root}/benchmarks/")
        return (
            f"{found['begin']}\n{new}\n\n{found['end']}"
            if new
            else found["begin"] + found["end"]
        )

    return BLOCK.sub(made, text)


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the documents, or print which ones are stale."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme")
    parser.add_argument("--check", action="store_true", help="exit 1 if stale, change nothing")
    parser.add_argument("documents", nargs="*", type=Path, help="default: all that have tables")
    args = parser.parse_args(arguments)
    runs = published.load(HERE / "results")
    stale = []
    for path in args.documents or DOCUMENTS:
        old = path.read_text(encoding="utf-8")
        new = rewrite(old, runs, path.resolve().parent)
        if old != new:
            stale.append(str(path))
            if not args.check:
                path.write_text(new, encoding="utf-8")
    if args.check and stale:
        print(f"stale: {', '.join(stale)}; run `make readme`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
