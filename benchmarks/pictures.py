"""`python -m benchmarks.pictures`: draw the pictures of the README from results/.

    docs/ladder.svg          reduce's rungs on a GPU, h200-reduce-ladder.json
    docs/bank_conflicts.svg  the banks that lanes use in v1 and v2, by the simulator's trace,
                             and the passes, h200-reduce-counters.csv
    docs/stream_rate.svg     the rate of gpuopt.stream over a file, cpu-stream-200gb.json
    docs/sweep-<name>.svg    time per byte over size in a machine's sweeps, if there are any
    docs/layouts-<op>.svg    the same of one operator, a panel for each layout and machine
    docs/lengths-<name>.svg  causal_conv1d over the number of steps, <name>-lengths.json

Order: the pictures, SVG, the command line.  The SVG is written as text, without a
library, so the same data gives the same bytes.  The background is light or dark, following
the reader's system; the colours can be told apart with every kind of colour blindness, and no
information is in colour alone.  --check changes nothing and exits with 1 if a picture is
stale.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt.benchmarks import beside, lengths
from gpuopt.lab import published, sweep
from gpuopt.lab.trace import BANK_BYTES, BANKS, LANES, trace

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"

WIDTH = 720
IDEA = 40  # characters of an idea beside its bar

STYLE = """
.ground { fill: #ffffff; stroke: #d0d7de }
text { fill: #1f2328; font: 13px system-ui, -apple-system, "Segoe UI", Arial, sans-serif }
.small { font-size: 11px }
.title { font-size: 15px; font-weight: 600 }
.right { text-anchor: end }
.middle { text-anchor: middle }
.good { fill: #0072b2 }
.bad { fill: #b84a00 }
.peer { fill: #8c959f }
.empty { fill: none; stroke: #d0d7de }
.inside { fill: #ffffff; font-size: 10px }
.line { stroke: #1f2328; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; stroke: #3d444d }
text { fill: #f0f6fc }
.good { fill: #56b4e9 }
.bad { fill: #e69f00 }
.peer { fill: #6e7681 }
.empty { stroke: #3d444d }
.inside { fill: #0d1117 }
.line { stroke: #f0f6fc }
}
""".strip()


# ---- the ladder ----


def ladder() -> str:
    """Draw the time of every rung of reduce, of its peers, and of reading at the ceiling."""
    found = published.ladders("reduce", published.load(HERE / "results"))[0]
    title = f"One sum, {len(found.rows)} kernels: the ladder of reduce"
    return ladder_of("reduce", found, title, "every byte read once, at the card's speed")


def ladder_of(op: str, found: published.Ladder, title: str, floor_words: str) -> str:
    """Draw the time of every rung of an operator, of its peers, and its floor."""
    ideas = {r["name"]: r["idea"] for r in _core.variants(op) if r["backend"] != "cpu"}
    rungs = [row for row in found.rows if re.fullmatch(r"v\d+", row["variant"])]
    bars = [(r["variant"], ideas.get(r["variant"], ""), r["ms"]) for r in rungs]
    peers = sorted(found.rows[0]["peers"].items(), key=lambda peer: -peer[1])
    floor = found.rows[0]["floor_ms"]

    left, step, top = 310, 24, 84
    longest = max([ms for _, _, ms in bars] + [ms for _, ms in peers])
    scale = (WIDTH - left - 150) / longest
    low = top + step * (len(bars) + len(peers)) + 8
    device = found.run["device"]
    parts = [
        text(20, 30, title, "title"),
        text(20, 50, f"{found.workload} {found.dtype} on an {device}, ms; less is better"),
    ]
    y = top
    above = bars[0]
    for name, idea, ms in bars:
        slower = ms > 1.01 * above[2]
        note = f"slower than {above[0]}" if slower else ""
        parts += bar(left, y, ms, scale, "bad" if slower else "good", note)
        words = idea if len(idea) <= IDEA else idea[: IDEA - 3] + "..."
        parts += [text(20, y + 14, name), text(48, y + 14, words)]
        above = (name, idea, ms)
        y += step
    y += 8
    for name, ms in peers:
        parts += bar(left, y, ms, scale, "peer")
        parts += [text(20, y + 14, f"{name}, in the same run")]
        y += step
    if floor:
        at = left + floor * scale
        parts.append(f'<path class="line" d="M{at:.1f} {top - 6}V{low}"/>')
        parts.append(text(at, top - 12, f"{floor_words}: {floor:.3f}", "small"))
    return svg(low + 14, f"Times of the rungs of {op}", parts)


def bar(left: float, y: float, ms: float, scale: float, kind: str, note: str = "") -> list[str]:
    """Draw one bar with its value and a note."""
    return [
        f'<rect class="{kind}" x="{left}" y="{y}" width="{ms * scale:.1f}" height="18"/>',
        text(round(left + ms * scale + 6, 1), y + 14, f"{ms:.3f}"),
        *([text(round(left + ms * scale + 48, 1), y + 14, note, "small")] if note else []),
    ]


# ---- bank conflicts ----


def passes() -> dict[str, int]:
    """Return each rung's shared-memory wavefronts, loads and stores, by the counters."""
    found: dict[str, int] = {}
    columns = [
        f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{way}.sum" for way in ("ld", "st")
    ]
    with (HERE / "results" / "h200-reduce-counters.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["kernel"] != "reduce_finish":
                rung = row["kernel"].split("_")[1]
                found[rung] = sum(int(row[column]) for column in columns)
    return found


def bank_conflicts() -> str:
    """Draw the bank that each lane of a warp uses, in one step of v1 and of v2."""
    counted = passes()
    strided, side_by_side = stored("v1"), stored("v2")
    assert strided == [8 * lane for lane in range(LANES)], "as the text says"
    parts = [text(20, 30, "The same sums in shared memory, in another order", "title")]
    y: float = 62
    parts.append(text(20, y, "v1, third step: lane k adds word 8 k + 4 to word 8 k."))
    y, most = grid(parts, y + 12, strided, "bad")
    met = len({word % BANKS for word in strided})
    parts.append(text(20, y, f"{LANES} lanes meet in {met} of {BANKS} banks: {most} passes."))
    y += 40
    parts.append(text(20, y, "v2, every step: lane k adds word k + d to word k."))
    y, most = grid(parts, y + 12, side_by_side, "good")
    parts.append(text(20, y, f"Each lane has a bank of its own: {most} pass."))
    y += 40
    parts.append(text(20, y, "All steps over 16,384 float32, passes counted on an H200:"))
    y += 12
    for rung, kind in (("v1", "bad"), ("v2", "good")):
        width = counted[rung] / counted["v1"] * 540
        parts.append(text(20, y + 14, rung))
        parts.append(f'<rect class="{kind}" x="48" y="{y}" width="{width:.1f}" height="18"/>')
        parts.append(text(round(54 + width, 1), y + 14, f"{counted[rung]:,}"))
        y += 24
    return svg(y + 14, "Bank conflicts of reduce v1, and v2 without them", parts)


def stored(rung: str) -> list[int]:
    """Return the word of each lane in the store of a rung with the most bank conflicts."""
    seen = trace("reduce", np.ones(256, np.float32), variant=rung)
    return [a // BANK_BYTES for a in seen.worst("shared", write=True).address]


def grid(parts: list[str], y: float, words: Iterable[int], kind: str) -> tuple[float, int]:
    """Stack the lanes on the banks of their words; return the bottom and the height."""
    cell, high = 21, 16
    stacks: list[list[int]] = [[] for _ in range(BANKS)]
    for lane, word in enumerate(words):
        stacks[word % BANKS].append(lane)
    most = max(map(len, stacks))
    for bank, lanes in enumerate(stacks):
        x = 24 + cell * bank
        size = f'width="{cell - 2}" height="{high * most - 2}"'
        parts.append(f'<rect class="empty" x="{x}" y="{y}" {size}/>')
        for level, lane in enumerate(lanes):
            top = y + high * (most - 1 - level)
            size = f'width="{cell - 2}" height="{high - 2}"'
            parts.append(f'<rect class="{kind}" x="{x}" y="{top}" {size}/>')
            parts.append(text(x + 9.5, top + 11, str(lane), "inside middle"))
        if bank % 4 == 0:
            parts.append(text(x + 9.5, y + high * most + 12, f"{bank}", "small middle"))
    parts.append(text(WIDTH - 24, y - 14, "lane numbers, above banks 0 to 31", "small right"))
    return y + high * most + 34, most


# ---- sweeps ----

COLUMNS = 3  # panels side by side
PANEL_WIDTH, PANEL_HEIGHT = 180, 130
PANEL_LEFT, PANEL_TOP = 52, 84  # of the first one
STEP_X, STEP_Y = 224, 178
DOT = "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0"
SQUARE = "m-2.5-2.5h5v5h-5z"
SIZES = {3: "kB", 6: "MB", 9: "GB"}
TIMES = {-6: "fs", -3: "ps", 0: "ns", 3: "us"}


def swept(name: str) -> str:
    """Draw a panel per operator: nanoseconds per byte over bytes, ours and the best peer's."""
    runs = [run for run in published.sweeps(HERE / "results") if sweep.machine(run) == name]
    rows = [row for run in runs for row in run["rows"] if "times" in row]
    return panels(runs[0]["device"], rows)


def panels(device: str, rows: Sequence[dict[str, Any]]) -> str:
    """Draw a panel for each operator of some rows, all with the same axes."""
    ops = dict.fromkeys(row["op"] for row in rows)
    groups = {op: [row for row in rows if row["op"] == op] for op in ops}
    title = "Random calls: time per byte over the bytes of a call"
    return in_panels(title, f"{device}; less is better", groups)


def in_panels(title: str, words: str, groups: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Draw a panel for each group of rows, all with the same axes."""
    rows = [row for group in groups.values() for row in group]
    ours = {id(row): per_byte(row, row["ms"]) for row in rows}
    best = {id(row): per_byte(row, row["peers"][row["best"]]) for row in rows}
    x = limits([math.log10(row["bytes"]) for row in rows])
    y = limits([*ours.values(), *best.values()])
    parts = [
        text(20, 30, title, "title"),
        text(20, 50, words),
        f'<path class="good" d="M460 46{DOT}"/>',
        text(468, 50, "gpuopt"),
        f'<path class="peer" d="M540 46{SQUARE}"/>',
        text(548, 50, "best peer"),
    ]
    for k, (name, kept) in enumerate(groups.items()):
        left = PANEL_LEFT + STEP_X * (k % COLUMNS)
        top = PANEL_TOP + STEP_Y * (k // COLUMNS)
        parts += frame(left, top, name, x, y)
        for kind, mark, values in (("peer", SQUARE, best), ("good", DOT, ours)):
            points = [(math.log10(row["bytes"]), values[id(row)]) for row in kept]
            parts.append(marks(kind, mark, points, left, top, x, y))
    height = PANEL_TOP + STEP_Y * -(-len(groups) // COLUMNS) - 10
    return svg(height, "Time per byte over size, ours and the best peer", parts)


def per_byte(row: dict[str, Any], ms: float) -> float:
    """Return the logarithm of nanoseconds per byte."""
    return math.log10(1e6 * ms / row["bytes"])


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Return the whole decades around some values."""
    low, high = math.floor(min(values)), math.ceil(max(values))
    return low, max(high, low + 1)


def frame(
    left: float, top: float, title: str, x: tuple[float, float], y: tuple[float, float]
) -> list[str]:
    """Draw a panel's title, border and the names of its round values."""
    size = f'width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}"'
    parts = [
        text(left, top - 8, title),
        f'<rect class="empty" x="{left}" y="{top}" {size}/>',
    ]
    for power, unit in SIZES.items():
        if x[0] <= power <= x[1]:
            at = left + PANEL_WIDTH * (power - x[0]) / (x[1] - x[0])
            parts.append(
                text(round(at, 1), top + PANEL_HEIGHT + 14, f"1 {unit}", "small middle")
            )
    for power, unit in TIMES.items():
        if y[0] <= power <= y[1]:
            at = top + PANEL_HEIGHT * (y[1] - power) / (y[1] - y[0])
            parts.append(text(left - 6, round(at + 4, 1), f"1 {unit}", "small right"))
    return parts


def marks(
    kind: str,
    mark: str,
    points: Sequence[tuple[float, float]],
    left: float,
    top: float,
    x: tuple[float, float],
    y: tuple[float, float],
) -> str:
    """Draw one series of a panel as one path."""
    path = []
    for across, up in points:
        at = left + PANEL_WIDTH * (across - x[0]) / (x[1] - x[0])
        down = top + PANEL_HEIGHT * (y[1] - up) / (y[1] - y[0])
        path.append(f"M{at:.1f} {down:.1f}{mark}")
    return f'<path class="{kind}" d="{"".join(path)}"/>'


# ---- layouts ----

BY_LAYOUT = ("reduce", "scan", "elementwise", "dot")
#: By the word of a drawn case; the others are contiguous.
LAYOUTS = {
    "T": "transposed",
    "step": "every second one",
    "row": "broadcast",
    "column": "broadcast",
}
ALONG = {True: "along the last axis", False: "along another axis"}


def layout(row: dict[str, Any]) -> str:
    """Return the layout of a drawn case: of a scan, where its axis is."""
    if row["op"] == "dot":
        return "vectors"
    shape, words = row["case"].partition("(")[2].split(")", 1)
    lengths_ = [length for length in shape.split(",") if length.strip()]
    if row["op"] == "scan":
        axis = int(words.split()[0].removeprefix("axis="))
        return ALONG[axis == len(lengths_) - 1]
    word = next((word for word in words.split() if word in LAYOUTS), "")
    if len(lengths_) == 1 and word in ("T", "row"):  # a vector is what it was
        word = ""
    return LAYOUTS.get(word, "contiguous")


def by_layout() -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the compared rows of all sweeps by operator, then by machine and layout."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for run in published.sweeps(HERE / "results"):
        for row in run["rows"]:
            if row["op"] in BY_LAYOUT and "times" in row and run["mode"] != "host":
                panel = f"{sweep.machine(run)}: {layout(row)}"
                found.setdefault(row["op"], {}).setdefault(panel, []).append(row)
    return {op: dict(sorted(found[op].items())) for op in BY_LAYOUT if op in found}


def of_layouts(op: str) -> str:
    """Draw an operator's panels."""
    title = f"{op}: time per byte over the bytes of a call, by layout"
    return in_panels(title, "Random calls; less is better", by_layout()[op])


# ---- lengths ----

OVER = {"left": 66, "top": 104, "width": 280, "height": 220}  # of the first panel
NEXT = 344  # pixels between the panels
TRIANGLE = "m0-3l3 5h-6z"
STEPS_SHOWN = (64, 1024, 16384, 262144)


def over_steps(run: dict[str, Any]) -> str:
    """Draw the times of causal_conv1d over the number of steps, a panel for each filter."""
    series = {
        "gpuopt": ("good", DOT),
        **dict(zip(lengths.PEERS, (("peer", SQUARE), ("bad", TRIANGLE)), strict=True)),
    }
    timed = [{"gpuopt": row["ms"], **row["peers"], "at": row} for row in run["rows"]]
    times = [row[name] for row in timed for name in series if row.get(name)]
    x = (math.log10(lengths.STEPS[0]), math.log10(lengths.STEPS[-1]))
    y = limits([math.log10(ms) for ms in times])
    title = "causal_conv1d forward, float32: time over the number of steps"
    parts = [
        text(20, 30, title, "title"),
        text(20, 50, f"{run['device']}; as many elements at every number; less is better"),
    ]
    for k, (name, (kind, mark)) in enumerate(series.items()):
        parts += [
            f'<path class="{kind}" d="M{26 + 130 * k} 70{mark}"/>',
            text(36 + 130 * k, 74, name),
        ]
    left, top, width, height = OVER.values()
    for k, name in enumerate(lengths.FILTERS):
        at = left + NEXT * k
        size = f'width="{width}" height="{height}"'
        parts += [
            text(at, top - 8, name),
            f'<rect class="empty" x="{at}" y="{top}" {size}/>',
        ]
        for steps in STEPS_SHOWN:
            across = at + width * (math.log10(steps) - x[0]) / (x[1] - x[0])
            parts.append(
                text(round(across, 1), top + height + 16, f"{steps:,}", "small middle")
            )
        for power in range(round(y[0]), round(y[1]) + 1):
            down = top + height * (y[1] - power) / (y[1] - y[0])
            parts.append(text(at - 6, round(down + 4, 1), f"{10.0**power:g} ms", "small right"))
        for way, (kind, mark) in series.items():
            path = []
            for row in timed:
                if row["at"]["filter"] == name and row.get(way):
                    across = (math.log10(row["at"]["steps"]) - x[0]) / (x[1] - x[0])
                    down = (y[1] - math.log10(row[way])) / (y[1] - y[0])
                    path.append(f"M{at + width * across:.1f} {top + height * down:.1f}{mark}")
            parts.append(f'<path class="{kind}" d="{"".join(path)}"/>')
    return svg(top + height + 32, "Time of causal_conv1d over the number of steps", parts)


# ---- the rate of a stream ----

RATE = {"left": 60, "top": 96, "width": 620, "height": 200}


def stream_rate() -> str:
    """Draw GB/s over the place in the file, for each call on it."""
    run = json.loads((HERE / "results" / "cpu-stream-200gb.json").read_text(encoding="utf-8"))
    rates = {call["name"]: rates_of(call["by_time"]) for call in run["calls"]}
    size = math.ceil(max(place for points in rates.values() for place, _ in points))
    most = math.ceil(max(rate for points in rates.values() for _, rate in points))
    parts = [
        text(20, 30, "gpuopt.stream over a sparse file of 200 GB: rate by place", "title"),
        text(20, 50, f"{run['device']}, {run['cpu']['count']} CPUs; GB/s over GB read"),
    ]
    kinds = (("good", DOT), ("bad", TRIANGLE), ("peer", SQUARE))
    for k, ((name, points), (kind, mark)) in enumerate(zip(rates.items(), kinds, strict=True)):
        parts.append(f'<path class="{kind}" d="M{26 + 200 * k} 70{mark}"/>')
        parts.append(text(36 + 200 * k, 74, name))
        dots = [f"M{at_rate(place / size, rate / most)}{mark}" for place, rate in points]
        parts.append(f'<path class="{kind}" d="{"".join(dots)}"/>')
    left, top, width, height = RATE.values()
    parts.append(
        f'<rect class="empty" x="{left}" y="{top}" width="{width}" height="{height}"/>'
    )
    for place in range(0, size + 1, 50):
        at = round(left + width * place / size, 1)
        parts.append(text(at, top + height + 16, str(place), "small middle"))
    for rate in range(0, most + 1, 2):
        at = round(top + height * (1 - rate / most) + 4, 1)
        parts.append(text(left - 6, at, str(rate), "small right"))
    return svg(top + height + 32, "Rate of gpuopt.stream over a file of 200 GB", parts)


def rates_of(marks_: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return GB read and GB/s between marks of (seconds, GB)."""
    pairs = itertools.pairwise(marks_)
    return [(gb, (gb - before) / (end - begin)) for (begin, before), (end, gb) in pairs]


def at_rate(across: float, up: float) -> str:
    """Return the coordinates of a point, given as parts of the axes."""
    x = RATE["left"] + RATE["width"] * across
    return f"{x:.1f} {RATE['top'] + RATE['height'] * (1 - up):.1f}"


# ---- SVG ----


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Return one line of text."""
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}">{escape(words)}</text>'


def svg(height: float, title: str, parts: Iterable[str]) -> str:
    """Return a picture: title (for screen readers), style, background, parts."""
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    ground = f'x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="6"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{STYLE}\n</style>",
        f'<rect class="ground" {ground}/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# ---- the command line ----

PICTURES: dict[str, Callable[[], str]] = {
    "ladder.svg": ladder,
    "bank_conflicts.svg": bank_conflicts,
    "stream_rate.svg": stream_rate,
}


def pictures() -> dict[str, Callable[[], str]]:
    """Return every picture's file and the function that draws it."""
    names = dict.fromkeys(map(sweep.machine, published.sweeps(HERE / "results")))
    more = {f"sweep-{name}.svg": functools.partial(swept, name) for name in names}
    more |= {f"layouts-{op}.svg": functools.partial(of_layouts, op) for op in by_layout()}
    for run in beside.kept(lengths.BENCH.name):
        more[lengths.picture_name(run)] = functools.partial(over_steps, run)
    return PICTURES | more


def main(arguments: list[str] | None = None) -> int:
    """Draw the pictures, or print which ones are stale."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures")
    parser.add_argument("--check", action="store_true", help="exit 1 if stale, change nothing")
    parser.add_argument("--folder", type=Path, default=DOCS)
    args = parser.parse_args(arguments)
    stale = []
    for name, draw in pictures().items():
        path = args.folder / name
        new = draw()
        if path.is_file() and path.read_text(encoding="utf-8") == new:
            continue
        stale.append(name)
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8")
    if args.check and stale:
        print(f"stale: {', '.join(stale)}; run `make readme`", file=sys.stderr)
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
