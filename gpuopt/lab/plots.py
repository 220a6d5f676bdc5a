"""Plots of results: a roofline, bars of the times, a sweep's points.  Needs matplotlib.

All take `ax=` and return the Axes; none shows anything by itself.  What was not measured
well is drawn hollow, without a number, and no colour tells apart what the 95 % intervals do
not.  Order: colours and axes, labels that do not overprint, the roofline, the
bars, sweeps.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from gpuopt.lab.timer import is_settled

__all__ = ["bars", "per_byte", "roofline"]

# Can be told apart with every kind of colour blindness, and in grey.
BLUE, ORANGE, GREY = "#0072b2", "#b84a00", "#8c959f"
SHADES = (BLUE, "#e69f00", "#009e73", "#cc79a7", "#56b4e9", ORANGE, "#000000")
MARKS = "osD^vPX"  # one of each shade
LABEL_SIZE = 8


def new_axes(ax: Any, size: tuple[float, float] = (7, 4.5)) -> Any:
    """Return `ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install gpuopt[lab]") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def row_is_settled(row: Any) -> bool:
    """Tell whether the time of a row is known well enough to be shown as a number."""
    return is_settled(row["ms"], row.get("low"), row.get("high"))


# ---- labels ----


def label(ax: Any, points: Sequence[tuple[float, float, str]]) -> list[Any]:
    """Write a label beside each point, moved up or down until it covers no other label.

    A label that had to move is joined to its point by a thin line.  Called last, when the
    limits of the axes are final.
    """
    figure = ax.figure
    figure.draw_without_rendering()  # a constrained layout moves the axes first
    renderer = figure.canvas.get_renderer()
    taken: list[Any] = []
    texts = []
    for x, y, words in sorted(points, key=lambda p: -p[1]):
        trial = ax.annotate(words, (x, y), (0, 0), textcoords="offset points", va="center",
                            fontsize=LABEL_SIZE)  # fmt: skip
        at, box = free_place(ax, trial.get_window_extent(renderer), taken)
        trial.remove()
        taken.append(box)
        line = {"arrowstyle": "-", "linewidth": 0.4, "color": GREY, "shrinkB": 2}
        texts.append(
            ax.annotate(
                words,
                (x, y),
                at,
                textcoords="offset points",
                va="center",
                fontsize=LABEL_SIZE,
                arrowprops=line,
            )
        )
    return texts


def free_place(ax: Any, box: Any, taken: Sequence[Any]) -> tuple[tuple[int, int], Any]:
    """Return the first place for a label, in points from its point, that no other takes."""
    scale = ax.figure.dpi / 72
    for right in (8, 60, 112, 164, -50, -102):
        for step in range(0, 180, 3):
            for up in (step, -step):
                moved = box.translated(right * scale, up * scale)
                inside = (
                    ax.bbox.y0 < moved.y0
                    and moved.y1 < ax.bbox.y1
                    and ax.bbox.x0 < moved.x0
                    and moved.x1 < ax.bbox.x1
                )
                if inside and not any(moved.overlaps(other) for other in taken):
                    return (right, up), moved
    return (8, 0), box  # the plot is full


# ---- the roofline ----


def roofline(result: Any, ax: Any = None) -> Any:
    """Draw each row's arithmetic rate over its intensity, under the measured ceilings.

    Parameters
    ----------
    result : Result
        Of `gpuopt.lab.bench.compare`.
    ax : matplotlib Axes, optional
        Where to draw; the default makes a figure.

    Returns
    -------
    Axes

    Notes
    -----
    Intensity counts the fewest bytes any algorithm must move, so a point above a roof is a
    measurement error: a warm cache or a wrong byte count.  A point with a time that is not
    known to 5 % is hollow.
    """
    ax = new_axes(ax, (7.5, 5))
    rows = [row for row in result if row["ms"] and row.get("flops") and row.get("bytes")]
    intensities = [row["flops"] / row["bytes"] for row in rows] or [0.25]
    low, high = min(intensities) / 4, max(intensities) * 16
    ceilings = result.about["ceilings"]
    for name, style in (("read", "-"), ("copy", "--")):
        gbs = ceilings[f"{name}_gbs"]
        if gbs:
            ax.plot([low, high], [low * gbs, high * gbs], style, color="black",
                    label=f"{name} {gbs:.0f} GB/s")  # fmt: skip
    works = dict.fromkeys((row["op"], row["workload"], row["dtype"]) for row in rows)
    names = []
    for i, (op, workload, dtype) in enumerate(works):
        points = [
            r for r in rows if (r["op"], r["workload"], r["dtype"]) == (op, workload, dtype)
        ]
        shade, mark = SHADES[i % len(SHADES)], MARKS[i % len(MARKS)]
        ax.plot([], [], mark, color=shade, label=f"{op} {workload} {dtype}")
        for row in points:
            x, y = row["flops"] / row["bytes"], row["flops"] / row["ms"] / 1e6
            filled = shade if row_is_settled(row) else "none"
            ax.plot([x], [y], mark, color=shade, markerfacecolor=filled)
            names.append((x, y, row["variant"] + ("" if row_is_settled(row) else "?")))
    ax.set(xscale="log", yscale="log", xlim=(low, high),
           xlabel="operations per byte that must move; hollow, ?: unsettled",
           ylabel="Gop/s", title=result.title)  # fmt: skip
    ax.legend(fontsize="small", loc="lower right")
    label(ax, names)
    return ax


# ---- bars ----


def bars(result: Any, ax: Any = None) -> Any:
    """Draw the time of every variant and peer of the result's first workload.

    The fastest and all whose 95 % interval meets its own are blue, others pale; peers are
    hatched.  A bar is a number only if it is known to 5 %: the others are hollow and say
    "unsettled".  The dashed line is the floor.
    """
    ax = new_axes(ax)
    if not result:
        return ax
    first = (result[0]["op"], result[0]["workload"], result[0]["dtype"])
    rows = [r for r in result if (r["op"], r["workload"], r["dtype"]) == first and r["ms"]]
    times = {r["variant"]: (r["ms"], r.get("low"), r.get("high")) for r in rows}
    peers, spans = result[0]["peers"], result[0].get("peer_spans") or {}
    times |= {name: (ms, *spans.get(name, (None, None))) for name, ms in peers.items()}
    settled = {name: time for name, time in times.items() if is_settled(*time)}
    best = min(settled.values(), default=None)
    for i, (name, (ms, low, high)) in enumerate(times.items()):
        if name in settled:
            assert best is not None
            ties = low <= best[2]
            color, edge = (BLUE, BLUE) if ties else ("#a6cee3", "#a6cee3")
            words = f" {ms:.4g}"
        else:
            color, edge, words = "none", GREY, " unsettled"
        hatch = "//" if name in peers else None
        ax.barh(i, ms, color=color, edgecolor="white" if hatch and name in settled else edge,
                hatch=hatch)  # fmt: skip
        if low is not None and high is not None:
            ax.plot([low, high], [i, i], color="black", linewidth=1.2)
        ax.text(max(ms, high or 0), i, words, va="center", fontsize=8)
    ax.set_yticks(range(len(times)), list(times))
    ax.invert_yaxis()
    ax.margins(x=0.18)
    if result[0].get("floor_ms"):
        ax.axvline(result[0]["floor_ms"], color="black", linestyle="--", label="floor")
        ax.legend(fontsize="small")
    ax.set(xlabel="ms, with the 95 % interval", title=" ".join(first))
    return ax


# ---- sweeps ----


def per_byte(rows: Any, ax: Any = None) -> Any:
    """Draw nanoseconds per byte over the bytes of each case, ours and the best peer's.

    rows : the `rows` of a Sweep; a case that failed or was not timed is left out.
    """
    ax = new_axes(ax)
    timed = [row for row in rows if row.get("ms") and row.get("bytes")]
    beside = [row for row in timed if row.get("best")]
    xs = [row["bytes"] for row in beside]
    ys = [1e6 * row["peers"][row["best"]] / row["bytes"] for row in beside]
    ax.plot(xs, ys, "s", color=ORANGE, markerfacecolor="none", label="best peer")
    ours = [1e6 * row["ms"] / row["bytes"] for row in timed]
    ax.plot([row["bytes"] for row in timed], ours, ".", color=BLUE, label="gpuopt")
    ax.set(xscale="log", yscale="log", xlabel="bytes", ylabel="ns per byte")
    ax.legend(fontsize="small")
    return ax
