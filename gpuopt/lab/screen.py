"""What the demonstration saw, and its text: one screen that teaches, lists behind --verbose.

Order: what was seen, what a terminal can show, the screen, its parts, the lists.  Nothing is
coloured; bars are made of '#' where the encoding has no block character.
"""

from __future__ import annotations

import itertools
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass, field
from typing import Any, TextIO

from gpuopt._table import Table

__all__ = ["Demo", "put", "screen"]

Row = dict[str, Any]

NARROWEST, WIDEST = 40, 100  # characters
BLOCK = "\N{FULL BLOCK}"
INDENT = 2
KEPT = 3  # counts, where ideas and bars are short of room
GOOD_IDEA, GOOD_BAR = 36, 12
SHORTEST_IDEA, SHORTEST_BAR = 20, 6
MANY = 5  # wrong results on the screen

# The counts: column head, field of Counts, format, meaning.  A ladder shows the first FEW
# that differ between its rungs.
FEW = 4
COUNTS = (
    ("ways", "conflict_ways", ".1f",
     "passes of one access to shared memory; 1.0 is without bank conflicts"),
    ("global", "global_requests", "d",
     "a warp's loads and stores of the GPU's memory"),
    ("waits", "barriers", "d",
     "barriers that a warp comes to"),
    ("atomics", "atomic_serialised", "d",
     "atomic additions that wait for another of their warp"),
    ("split", "divergence", ".0%",
     "code that only some lanes of a warp run"),
    ("launches", "launches", "d",
     "kernels one after the other"),
    ("shared", "shared_wavefronts", "d",
     "passes through shared memory"),
)  # fmt: skip


# ---- what was seen ----


@dataclass
class Demo:
    """What the demonstration saw."""

    op: str  # the ladder on the screen
    cpu: str
    gpu: str | None
    gpu_off: str | None
    simulator_off: str | None
    threads: int
    verbose: bool = False
    checked: list[Row] = field(default_factory=list)
    timed: list[Row] = field(default_factory=list)
    counted: list[Row] = field(default_factory=list)  # the ladder's rungs, simulated
    published: list[Row] = field(default_factory=list)  # their times on another machine
    published_on: str = ""
    uncompiled: str = ""  # what the build lacks, in a sentence

    @property
    def ok(self) -> bool:
        """True if every result was right."""
        return not self.wrong

    @property
    def wrong(self) -> list[Row]:
        """The rows with wrong results."""
        return [row for row in self.checked + self.timed if row["wrong"]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a dict that JSON takes."""
        return {**vars(self), "ok": self.ok}

    def __str__(self) -> str:
        return screen(self)


# ---- the terminal ----


def encodes(stream: TextIO, text: str) -> bool:
    """Tell whether a stream's encoding has these characters."""
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def put(seen: Demo, stream: TextIO | None = None) -> None:
    """Print the screen as wide as the terminal, in characters that it has."""
    stream = stream or sys.stdout
    bar = BLOCK if encodes(stream, BLOCK) else "#"
    text = screen(seen, shutil.get_terminal_size((80, 24)).columns, bar)
    if not encodes(stream, text):  # because of the CPU's name
        text = text.encode("ascii", "replace").decode()
    stream.write(text + "\n")


# ---- the screen ----


def screen(seen: Demo, width: int = 80, bar: str = "#") -> str:
    """Return all lines; `bar` is the character of the bars."""
    width = min(max(width, NARROWEST), WIDEST)
    lines = [
        f"{seen.cpu}, {seen.threads} thread{'s' if seen.threads != 1 else ''}",
        f"The GPU is off: {seen.gpu_off}." if seen.gpu_off else f"GPU: {seen.gpu}",
        "",
        *rungs(seen, width, bar),
        "",
        *here(seen, width, bar),
        "",
        *checks(seen),
        "",
        *more(seen),
        *(["", seen.uncompiled] if seen.uncompiled else []),
    ]
    # No line is wider than the terminal, except for words that are longer.
    fitted = [part for line in lines for part in fit(line, width)]
    return "\n".join(fitted + (lists(seen, bar) if seen.verbose else []))


def fit(line: str, width: int) -> list[str]:
    """Break a line of text that is too long; tables are made to fit."""
    if len(line) <= width:
        return [line.rstrip()]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def rungs(seen: Demo, width: int, bar: str) -> list[str]:
    """Show the CUDA rungs: ideas, counts, times."""
    times = [row for row in seen.timed if row["backend"] == "cuda" and row["op"] == seen.op]
    where = f"just now on this {seen.gpu}"
    if not times:
        times, where = seen.published, f"recorded on an {seen.published_on}"
    known = {row["variant"]: row for row in [*seen.counted, *times]}
    if not known:
        return [f"The simulator cannot run: {seen.simulator_off}"]
    names = sorted(known, key=lambda name: int(name.removeprefix("v")))
    counts = {row["variant"]: row for row in seen.counted}
    ms = {row["variant"]: row["ms"] for row in times}
    shown = telling(seen.counted)

    lines = [f"{seen.op}: {len(names)} CUDA kernels for one task, each with one idea more"]
    if seen.counted:
        lines.append(f"  counts: {work(seen.counted[0])}, just now in the simulator")
    elif seen.simulator_off:
        lines.append(f"  counts: none, {seen.simulator_off}")
    if times:
        lines.append(f"  times:  {work(times[0])}, {where}")
    cells = [
        [written(counts.get(name), field, style) for _, field, style, _ in shown]
        for name in names
    ]
    ideas = [(name, known[name]["idea"]) for name in names]
    lines += [
        "",
        *table(ideas, [s[0] for s in shown], cells, [ms.get(n) for n in names], width, bar),
    ]
    heads = lines[-len(names) - 1].split()
    told = [f"  {head:8}{what}" for head, _, _, what in shown if head in heads]
    lines += ["", *told] if told else []
    return [*lines, *lesson(names, known, counts, ms, shown)]


def here(seen: Demo, width: int, bar: str) -> list[str]:
    """Show the CPU variants, timed on this machine."""
    rows = [row for row in seen.timed if row["backend"] == "cpu" and row["op"] == seen.op]
    if not rows:
        return []
    ideas = [(row["variant"], row["idea"]) for row in rows]
    times = [row["ms"] for row in rows]
    title = f"On this CPU: {work(rows[0])}"
    return [title, *table(ideas, [], [[] for _ in rows], times, width, bar)]


def telling(counted: list[Row]) -> list[tuple[str, str, str, str]]:
    """Return the counts that differ between rungs."""
    found = [
        count
        for count in COUNTS
        if len({written(row, count[1], count[2]) for row in counted}) > 1
    ]
    return found[:FEW]


def written(row: Row | None, field: str, style: str) -> str:
    """Format one count; empty if a rung was not counted."""
    return "" if row is None else format(row[field], style)


def table(
    ideas: list[tuple[str, str]],
    heads: list[str],
    cells: list[list[str]],
    times: list[float | None],
    width: int,
    bar: str,
) -> list[str]:
    """Lay out name, idea, counts, time and bar; the longest bar is the slowest.

    In a narrow terminal the last counts are dropped first, then the bar, then all counts.
    """
    slowest = max((ms for ms in times if ms), default=0.0)
    unit, scale = ("ms", 1.0) if slowest >= 1 else ("us", 1e3)
    columns = [list(column) for column in zip(heads, *cells, strict=True)] if heads else []
    clock = [unit, *(f"{scale * ms:.3g}" if ms else "" for ms in times)] if slowest else []
    name = max(len(name) for name, _ in ideas)
    longest = max(len(idea) for _, idea in ideas)

    def left() -> int:
        """Return the width left for idea and bar."""
        taken = [max(map(len, column)) + 1 for column in [*columns, clock] if column]
        return width - INDENT - name - 1 - sum(taken)

    wanted = min(longest, GOOD_IDEA if columns else max(GOOD_IDEA, 2 * left() // 3))
    while len(columns) > KEPT and left() < wanted + 1 + GOOD_BAR:
        columns.pop()
    while columns and left() < min(longest, SHORTEST_IDEA):
        columns.pop()
    length = left() - 1 - wanted if slowest else 0
    if length < GOOD_BAR:
        length = max(min(GOOD_BAR, left() - 1 - min(longest, SHORTEST_IDEA)), 0)
    if length < SHORTEST_BAR:
        length = 0
    idea_width = min(longest, left() - (length + 1 if length else 0))
    length = left() - idea_width - 1 if length else 0
    columns += [clock] if clock else []
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for k, (variant, idea) in enumerate([("", ""), *ideas]):
        text = idea if len(idea) <= idea_width else idea[: idea_width - 3] + "..."
        row = "".join(f" {column[k]:>{w}}" for column, w in zip(columns, widths, strict=True))
        ms = times[k - 1] if k else None
        blocks = bar * max(1, round(length * ms / slowest)) if ms and length else ""
        lines.append(f"{'':{INDENT}}{variant:<{name}} {text:<{idea_width}}{row} {blocks}")
    return [line.rstrip() for line in lines if line.strip()]


def lesson(
    names: list[str],
    known: dict[str, Row],
    counts: dict[str, Row],
    ms: dict[str, Any],
    shown: list[tuple[str, str, str, str]],
) -> list[str]:
    """Name the rung that gains most, and the count that it reduces most."""
    steps = [
        (ms[old] / ms[new], old, new)
        for old, new in itertools.pairwise(names)
        if ms.get(old) and ms.get(new)
    ]
    if not steps:
        return []
    gain, old, new = max(steps)
    text = f"Largest step: {new}, {known[new]['idea']}, {gain:.1f} times as fast as {old}"
    falls = [
        (counts[old][field] / max(counts[new][field], 1), head, field, style)
        for head, field, style, _ in shown
        if old in counts and new in counts
    ]
    # A count taken on another workload does not explain a time.
    alike = len(
        {re.sub(r"[\d^]+", "#", work(row)) for row in (counts.get(new), known[new]) if row}
    )
    if falls and max(falls)[0] > 1.2 and alike == 1:
        _, head, field, style = max(falls)
        text += f"; {head} {counts[old][field]:{style}} -> {counts[new][field]:{style}}"
    return ["", text + "."]


def checks(seen: Demo) -> list[str]:
    """Return one line on what was checked, and a line for each wrong result."""
    rows = seen.checked + seen.timed
    places = {"sim": "simulated", "cpu": "CPU", "cuda": "GPU"}
    parts = [
        f"{n} {place}"
        for backend, place in places.items()
        if (n := sum(row["backend"] == backend for row in rows))
    ]
    line = f"{len(rows)} results checked against NumPy ({', '.join(parts)}), "
    if seen.ok:
        return [line + "0 wrong"]
    listed = [
        f"  WRONG: {row['op']} {row['variant']} {row['backend']}, {work(row)}: {row['wrong']}"
        for row in seen.wrong[:MANY]
    ]
    left = len(seen.wrong) - len(listed)
    return [
        f"{line}{len(seen.wrong)} WRONG",
        *listed,
        *([f"  and {left} more"] if left else []),
    ]


def more(seen: Demo) -> list[str]:
    """Suggest what to try next."""
    other = "scan" if seen.op != "scan" else "reduce"
    rung = seen.counted[min(1, len(seen.counted) - 1)]["variant"] if seen.counted else "v1"
    function = seen.op if seen.op != "elementwise" else "multiply"
    lines = [
        "Next:",
        f"  python -m gpuopt demo {other}  # another ladder; -h lists them",
        "  python -m gpuopt demo --verbose  # every result, and the times of every ladder",
    ]
    if seen.simulator_off:
        return lines
    return [
        *lines,
        f'  gpuopt.source("{function}", "{rung}")  # the code of a rung, and what it leaves',
        f'  gpuopt.profile("{function}", x, variant="{rung}")  # its counts, line by line',
    ]


def work(row: Row) -> str:
    """Name a workload."""
    return f"{row['workload']} {row['dtype']}"


# ---- the lists ----


def lists(seen: Demo, bar: str) -> list[str]:
    """Show the times of the other ladders and every result."""
    lines = []
    for op, backend in dict.fromkeys((row["op"], row["backend"]) for row in seen.timed):
        if op != seen.op:
            rows = [r for r in seen.timed if (r["op"], r["backend"]) == (op, backend)]
            ideas = [(row["variant"], row["idea"]) for row in rows]
            lines += ["", f"{op} on {backend}: {work(rows[0])}"]
            lines += table(ideas, [], [[] for _ in rows], [r["ms"] for r in rows], WIDEST, bar)
    shown = ("op", "backend", "variant", "workload", "dtype", "result", "idea")
    rows = [{**row, "result": row["wrong"] or "right"} for row in seen.checked + seen.timed]
    return [*lines, "", repr(Table(rows, shown, "every result"))]
