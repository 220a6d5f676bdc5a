"""`python -m benchmarks.lengths`: causal_conv1d over the number of steps, 64 to 2^20.

Order: the rows, the table; the picture is in pictures.py.  The elements of x are the same in
every row, so that the time of their bytes is; filters have 4 taps, or as many as there are
steps.  Forward, float32, without a bias, beside torch's Fourier transforms and its conv1d,
which is timed for filters of up to 1,024 taps.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator
from typing import Any

from gpuopt._table import Table
from gpuopt.benchmarks import beside
from gpuopt.benchmarks.sweep import causal_conv1d
from gpuopt.lab.drawing import Case, Dice

LABELS = ("filter", "steps", "taps", "shape")
FILTERS = ("K = T", "K = 4")
BATCH = 8
ELEMENTS, FEW = 1 << 24, 1 << 13  # of x; on a CPU
STEPS = tuple(1 << k for k in range(6, 21))
PEERS = ("torch-fft", "torch-conv1d")


# ---- the rows ----


def items(dice: Dice) -> Iterator[beside.Item]:
    """Yield a row for each number of steps and taps."""
    elements = FEW if dice.small else ELEMENTS
    for name in FILTERS:
        for steps in STEPS:
            channels = elements // (BATCH * steps)
            if channels:
                taps = steps if name == FILTERS[0] else 4
                values = (name, steps, taps, f"B{BATCH} C{channels} T{steps}")
                yield beside.Item(
                    dict(zip(LABELS, values, strict=True)),
                    functools.partial(case, dice, channels, steps, taps),
                )


def case(dice: Dice, channels: int, steps: int, taps: int) -> Case:
    """Return the case of a row."""
    lib = dice.lib
    x = lib.normal((BATCH, channels, steps), "float32")
    w = lib.normal((channels, taps), "float32") / math.sqrt(taps)
    tag = f"B{BATCH} C{channels} T{steps} K{taps} BCT"
    return causal_conv1d.forward(lib, tag, x, w, None, False)


BENCH = beside.Benchmark("lengths", LABELS, items)


# ---- the table ----

HEADING = """\
## causal_conv1d over the number of steps
Forward, float32, as many elements in every row, as `python -m benchmarks.lengths` times it
beside torch: products of Fourier transforms, and conv1d, which is timed for up to 1,024
taps."""


def section() -> str:
    """Return the picture and the table; nothing before a whole run is committed."""
    return beside.section(HEADING, beside.kept(BENCH.name), parts)


def parts(run: beside.Run) -> Iterator[str]:
    """Yield the picture, then the rows."""
    yield f"![Time over the number of steps](../docs/{picture_name(run)})"
    yield from beside.folded(f"{len(run['rows'])} rows", Table(map(line, run["rows"])))


def picture_name(run: beside.Run) -> str:
    """Return the file of a run's picture in docs/."""
    return f"lengths-{beside.sweep.machine(run)}.svg"


def line(row: beside.Row) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        "filter": row["filter"],
        "shape": row["shape"],
        "variant": f"`{row['variant']}`" if row.get("variant") else "",
        "ours ms": row.get("ms"),
        **{f"{name} ms": row["peers"].get(name) for name in PEERS},
        "times as fast": beside.ratio(row),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure every row."""
    return beside.main(BENCH, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
