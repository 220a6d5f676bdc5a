"""One page about gpuopt on this machine: `python -m gpuopt report out.html`.

The page is one file without scripts that loads nothing: pictures are SVG inside it.  What
this machine can run is measured here, with 95 % intervals; what needs a GPU comes from the
committed results, which name their device and commit, where there is none.
Order: measuring, counting, the roofline, the parts of the page, the page.
"""

from __future__ import annotations

import html
import importlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpuopt
from gpuopt import _core
from gpuopt._introspect import LACKS, lacks_kernels
from gpuopt._table import Table
from gpuopt.lab import ceilings, demo, published, run, workloads
from gpuopt.lab.growth import clock_of
from gpuopt.lab.progress import track
from gpuopt.lab.screen import COUNTS, Demo
from gpuopt.lab.timer import EventClock, check_seconds

__all__ = ["page", "write"]

MAX_TIME = 25.0  # seconds; with imports and counts the page takes less than 30
SHARE = 0.6  # of its part of the time is a ladder's; some take longer to set up than that
REPEATS = 3  # of the CPU's ceilings, whose buffers are large

STYLE = """
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Arial, sans-serif; color: #1f2328;
  background: #ffffff; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.7rem } h2 { font-size: 1.25rem; margin-top: 2.5rem }
table { border-collapse: collapse; font-size: 13px; margin: 0.7rem 0 }
caption { text-align: left; padding: 0.3rem 0 }
th, td { padding: 0.15rem 0.6rem; border-bottom: 1px solid #d0d7de; vertical-align: top }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto } summary { cursor: pointer }
@media (prefers-color-scheme: dark) {
body { color: #f0f6fc; background: #0d1117 } th, td { border-color: #3d444d }
}
""".strip()


# ---- measuring ----


def measured(ops: Sequence[str], max_time: float, progress: bool | None) -> run.Result:
    """Check and time one workload of each ladder on this machine's default backend.

    The ladders share `max_time` seconds: each may use most of its part of what the ones
    before it left.  One whose turn comes too late is named in `about["skipped"]`; the first
    is never late.
    """
    end = time.monotonic() + max_time
    peers = importlib.import_module("gpuopt.benchmarks.peers")
    backend = _core.default_backend()
    backend = "cpu" if backend == "sim" else backend
    clock = clock_of(backend)
    device = "cuda" if backend == "cuda" else "cpu"
    against = [n for n in peers.names() if device in peers.peer(n).DEVICES]
    against = [name for name in against if peers.peer(name).available() is None]
    left_out = [name for name in against if peers.compiled(name)]
    against = [name for name in against if name not in left_out]
    best = ceilings.Ceilings(None, None, "not measured: neither torch nor CuPy is there")
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    for turn, op in enumerate(track(["", *ops], len(ops) + 1, "report", progress)):
        left = end - time.monotonic()
        if op == "":
            if backend == "cpu":
                best = ceilings.cpu_ceilings(REPEATS)
            elif not isinstance(clock, EventClock):  # it has no arrays to copy
                best = ceilings.device_ceilings(clock)
        elif left <= 0 and turn > 1:
            skipped.append(op)
        else:
            share = max(0.0, SHARE * left / (len(ops) + 1 - turn))
            rows += run.time_workload(
                op, *workloads.room(op).DEMO, backend=backend, clock=clock, variants="all",
                against=against, max_time=share, repeats=None, until=end - left + share,
            )  # fmt: skip
    for row in rows:
        run.set_floor(row, best, run.device_name(backend))
    found = run.about(backend, best, against)
    return run.Result(rows, {**found, "skipped": skipped, "left_out": left_out})


# ---- counting ----


def counts(op: str) -> Table:
    """Count each rung of a ladder in the simulator."""
    seen = Demo(op, "", None, None, None, 1)
    demo.count(seen)
    fields = [(head, field, style) for head, field, style, _ in COUNTS]
    return Table(
        {
            "rung": row["variant"],
            "idea": row["idea"],
            **{head: format(row[field], style) for head, field, style in fields},
        }
        for row in seen.counted
    )


# ---- the roofline ----


def roofline(device: str, best: Any, rows: Sequence[dict[str, Any]]) -> str:
    """Draw the rows under the ceilings as SVG; labels are a column, joined by lines."""
    pictures = importlib.import_module("gpuopt.benchmarks.pictures")
    kept = [row for row in rows if row["ms"] and row.get("flops") and row.get("bytes")]
    if not kept:
        return ""
    points = [
        (row["flops"] / row["bytes"], row["flops"] / row["ms"] / 1e6, row) for row in kept
    ]
    left, top, width, height, line = 64, 70, 330, max(300, 15 * len(points)), 15
    x0 = math.floor(math.log10(min(x for x, _, _ in points)))
    x1 = max(math.ceil(math.log10(max(x for x, _, _ in points))), x0 + 1)
    gbs = {name: best[f"{name}_gbs"] for name in ("read", "copy")}
    ends = [rate * 10.0**x for rate in gbs.values() if rate for x in (x0, x1)]
    heights = [*ends, *(y for _, y, _ in points)]
    y0 = math.floor(math.log10(min(heights)))
    y1 = max(math.ceil(math.log10(max(heights))), y0 + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        across = left + width * (math.log10(x) - x0) / (x1 - x0)
        return across, top + height * (y1 - math.log10(y)) / (y1 - y0)

    parts = [
        pictures.text(20, 30, "Roofline: the rate over the operations per byte", "title"),
        pictures.text(20, 50, f"{device}; automatic choices"),
        f'<rect class="empty" x="{left}" y="{top}" width="{width}" height="{height}"/>',
    ]
    for name, rate in gbs.items():
        if rate:
            (ax, ay), (bx, by) = at(10**x0, rate * 10**x0), at(10**x1, rate * 10**x1)
            dash = "" if name == "read" else ' stroke-dasharray="4 3"'
            path = f"M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"
            parts.append(f'<path d="{path}" stroke="#8c959f" fill="none"{dash}/>')
    known = ", ".join(f"{n} {g:.0f} GB/s" for n, g in gbs.items() if g)
    parts.append(pictures.text(left, top - 6, f"lines: {known}", "small"))
    for power in range(x0, x1 + 1):
        x, _ = at(10**power, 10**y0)
        parts.append(pictures.text(round(x, 1), top + height + 15, f"{10.0**power:g}",
                                   "small middle"))  # fmt: skip
    for power in range(y0, y1 + 1):
        _, y = at(10**x0, 10**power)
        parts.append(pictures.text(left - 6, round(y + 4, 1), f"{10.0**power:g}",
                                   "small right"))  # fmt: skip
    words = "operations per byte that must move, and Gop/s"
    parts.append(pictures.text(left, top + height + 32, words, "small"))
    low: float = top
    for intensity, rate, row in sorted(points, key=lambda p: -p[1]):
        x, y = at(intensity, rate)
        low = max(low + line, min(y, top + height - 1))
        parts.append(
            f'<path d="M{x:.1f} {y:.1f}L{left + width + 12} {low - 4:.1f}" '
            'stroke="#8c959f" stroke-width="0.5" fill="none"/>'
        )
        parts.append(f'<circle class="good" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        name = f"{row['op']} {row['workload']} {row['dtype']}"
        parts.append(pictures.text(left + width + 16, round(low, 1), name, "small"))
    bottom = max(low, top + height + 32) + 16
    return str(pictures.svg(round(bottom), "Roofline", parts))


# ---- the parts of the page ----


def section(title: str, *parts: str) -> str:
    """Return one part of the page."""
    return f"<h2>{html.escape(title)}</h2>\n" + "\n".join(part for part in parts if part)


def paragraph(words: str) -> str:
    """Return text as a paragraph."""
    return f"<p>{html.escape(words)}</p>"


def table(rows: Table) -> str:
    """Return a table that may be wider than the page."""
    return f'<div class="wide">{rows._repr_html_()}</div>'


def folded(title: str, body: str, unfolded: bool = False) -> str:
    """Return a part that opens on a click, without a script."""
    state = " open" if unfolded else ""
    return f"<details{state}><summary>{html.escape(title)}</summary>{body}</details>"


def ladders(ops: Sequence[str], here: run.Result, committed: Sequence[Any]) -> str:
    """Draw each ladder on a GPU: this one, or that of the committed results."""
    pictures = importlib.import_module("gpuopt.benchmarks.pictures")
    runs = [{**here.about, "rows": list(here)}] if here.about["backend"] == "cuda" else []
    runs = runs or [found for found in committed if found["backend"] == "cuda"]
    parts: list[str] = []
    for op in ops:
        found = published.ladders(op, runs)
        found = [f for f in found if any(row["variant"] == "v0" for row in f.rows)]
        if found:
            most = max(found, key=lambda f: len(f.rows))
            words = "least time for the bytes"
            drawn = pictures.ladder_of(op, most, f"The ladder of {op}", words)
            parts.append(folded(op, drawn, unfolded=len(parts) == 0))
    if not parts:
        return section("Ladders", paragraph("There are no results of a GPU."))
    where = ", ".join(dict.fromkeys(f"{r['device']}" for r in runs))
    words = f"Measured on {where}: each rung adds one idea to the one above."
    return section("Ladders", paragraph(words), *parts)


def peers_table(ops: Sequence[str], runs: Sequence[Any]) -> Table:
    """List the automatic choices of some runs beside the best peer."""
    rows = []
    for where, row in published.choices(runs):
        if row["op"] in ops:
            name, ms = min(row["peers"].items(), key=lambda p: p[1], default=("", None))
            rows.append(
                {
                    "operator": row["op"],
                    "workload": f"{row['workload']} {row['dtype']}",
                    "ms": row["ms"],
                    "p20 to p80": f"{row['p20']:.4g} to {row['p80']:.4g}",
                    "n": row["n"],
                    "best peer": name,
                    "its ms": ms,
                    "times as fast": f"{ms / row['ms']:.2f}" if ms else "",
                    "device": where["device"],
                    "commit": where["commit"],
                }
            )
    return Table(rows)


def committed_parts(ops: Sequence[str], runs: Sequence[Any]) -> str:
    """Show the committed results of GPUs: a roofline and the peers."""
    gpu = [found for found in runs if found["backend"] == "cuda"]
    if not gpu:
        return ""
    device = gpu[0]["device"]
    first: dict[str, dict[str, Any]] = {}
    for where, row in published.choices(gpu):
        work = published.FIRST.get(row["op"], (row["workload"], row["dtype"]))
        wanted = row["op"] in ops and work == (row["workload"], row["dtype"])
        if wanted and where["device"] == device:
            first.setdefault(row["op"], row)
    drawn = roofline(device, gpu[0]["ceilings"], list(first.values()))
    listed = table(peers_table(ops, gpu))
    return section(
        "Committed results of a GPU",
        paragraph("Medians with a cold L2, of the files in benchmarks/results."),
        drawn,
        folded("every workload beside the best peer", listed, unfolded=True),
    )


def here_part(here: run.Result) -> str:
    """Show what was measured on this machine."""
    about = here.about
    first = [row for row in here if row["variant"] == "auto"]
    words = (
        f"{about['device']}, backend {about['backend']}, {about['cpu']['threads']} threads. "
        "Times are medians with cold caches in ms, with the 95 % interval; one that is not "
        "known to 5 % is 'unsettled' (--max-time gives more)."
    )
    if about["skipped"]:
        words += f" The time was over before: {', '.join(about['skipped'])}."
    if about["left_out"]:
        words += f" Not compared, because it is compiled first: {', '.join(about['left_out'])}."
    shown = Table([run.shown(row) for row in here], here.columns)
    return section(
        "Measured on this machine",
        paragraph(words),
        roofline(
            about["device"],
            about["ceilings"],
            [row for row in first if run.shown(row)["ms"] != run.UNSETTLED],
        ),
        table(shown),
        *map(paragraph, here.errors),
    )


def counts_part(ops: Sequence[str], progress: bool | None) -> str:
    """Show the simulator's counts of every ladder."""
    if reason := _core.backends()["sim"]:
        return section("Counts", paragraph(f"The simulator is off: {reason}."))
    parts: list[str] = []
    for op in track(list(ops), len(ops), "counts", progress):
        if lacks_kernels(op):
            parts.append(paragraph(f"{op}: {LACKS}."))
            continue
        name, dtype = workloads.room(op).TINY[0]
        parts.append(folded(f"{op} {name} {dtype}", table(counts(op)), len(parts) == 0))
    meaning = "; ".join(f"{head}: {words}" for head, *_, words in COUNTS)
    return section("Counts of the simulator", paragraph(meaning + "."), *parts)


def environment() -> str:
    """Show what gpuopt.info() knows."""
    cli = importlib.import_module("gpuopt.__main__")
    found = cli.flat({k: v for k, v in gpuopt.info().items() if k != "executable"})
    rows = Table([found], vertical=True)
    return section("Environment", table(rows), paragraph(cli.gpu_line()))


# ---- the page ----


def page(
    ops: Sequence[str] | None = None, max_time: float = MAX_TIME, progress: bool | None = None
) -> str:
    """Return the page as HTML.

    Parameters
    ----------
    ops : sequence of str, optional
        Ladders; all of them by default.
    max_time : float
        Seconds for all measurements together; what was begun is finished.
    progress : bool, optional
        Show progress; the default does so on a terminal.
    """
    check_seconds("max_time", max_time)
    names = list(ops or workloads.rooms())
    for op in names:
        workloads.room(op)  # there is one
    committed = published.load()
    here = measured(names, max_time, progress)
    title = f"gpuopt {gpuopt.__version__} on {here.about['device']}"
    gpu = here.about["backend"] == "cuda"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        paragraph(f"Commit {here.about['commit']}. The page loads nothing from elsewhere."),
        ladders(names, here, committed),
        here_part(here),
        "" if gpu else committed_parts(names, committed),
        counts_part(names, progress),
        environment(),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,"><title>{html.escape(title)}</title>'
        f"<style>\n{STYLE}\n</style>"
    )
    lines = ["<!DOCTYPE html>", f'<html lang="en"><head>{head}</head>', "<body>"]
    return "\n".join([*lines, *(part for part in parts if part), "</body></html>", ""])


def write(path: Path, **options: Any) -> int:
    """Write the page; return its size in bytes.  The options are those of `page`."""
    if not path.parent.is_dir():
        raise ValueError(f"no folder {path.parent} for the report")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file for the report")
    data = page(**options).encode()
    path.write_bytes(data)
    return len(data)
