"""Plots of a result: a roofline, and bars of the times.  Needs matplotlib.

Both take `ax=` and return the Axes; neither shows anything by itself.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["bars", "roofline"]


# Can be told apart with every kind of colour blindness, and in grey.
BLUE, ORANGE, GREY = "#0072b2", "#b84a00", "#8c959f"


def new_axes(ax: Any, size: tuple[float, float] = (7, 4.5)) -> Any:
    """Return `ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install gpuopt[lab]") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


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
    measurement error: a warm cache or a wrong byte count.
    """
    ax = new_axes(ax)
    rows = [row for row in result if row["ms"] and row["flops"] and row["bytes"]]
    intensities = [row["flops"] / row["bytes"] for row in rows] or [0.25]
    low, high = min(intensities) / 4, max(intensities) * 4
    ceilings = result.about["ceilings"]
    for name, style in (("read", "-"), ("copy", "--")):
        gbs = ceilings[f"{name}_gbs"]
        if gbs:
            ax.plot(
                [low, high],
                [low * gbs, high * gbs],
                style,
                color="black",
                label=f"{name} {gbs:.0f} GB/s",
            )
    works = dict.fromkeys((row["op"], row["workload"], row["dtype"]) for row in rows)
    for op, workload, dtype in works:
        points = [
            r for r in rows if (r["op"], r["workload"], r["dtype"]) == (op, workload, dtype)
        ]
        xs = [row["flops"] / row["bytes"] for row in points]
        ys = [row["flops"] / row["ms"] / 1e6 for row in points]
        ax.plot(xs, ys, "o", label=f"{op} {workload} {dtype}")
        for row, x, y in zip(points, xs, ys, strict=True):
            ax.annotate(row["variant"], (x, y), xytext=(5, 0), textcoords="offset points")
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="operations per byte that must move",
        ylabel="Gop/s",
        title=result.title,
    )
    ax.legend(fontsize="small")
    return ax


def bars(result: Any, ax: Any = None) -> Any:
    """Draw the time of every variant and peer of the result's first workload.

    Parameters and result are those of `roofline`; the dashed line is the floor.
    """
    ax = new_axes(ax)
    if not result:
        return ax
    first = (result[0]["op"], result[0]["workload"], result[0]["dtype"])
    rows = [r for r in result if (r["op"], r["workload"], r["dtype"]) == first and r["ms"]]
    times = {row["variant"]: row["ms"] for row in rows}
    times.update(result[0]["peers"])
    colors = ["tab:gray" if name in result[0]["peers"] else "tab:blue" for name in times]
    ax.barh(list(times), list(times.values()), color=colors)
    ax.invert_yaxis()
    if result[0]["floor_ms"]:
        ax.axvline(result[0]["floor_ms"], color="black", linestyle="--", label="floor")
        ax.legend(fontsize="small")
    ax.set(xlabel="ms", title=" ".join(first))
    return ax
