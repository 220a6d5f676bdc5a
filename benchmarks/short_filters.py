"""`python -m benchmarks.short_filters`: causal_conv1d as language models run it, beside peers.

Filters of 2, 3, 4 and 8 taps on a GPU, both layouts, bfloat16 and float32, forward with a bias
and SiLU, backward, and one step of decoding: each case is checked and timed beside the package
causal-conv1d, torch's conv1d and, with --compile, torch.compile of shifted products.  The file
is read as a sweep is; a row has `floor_ms`, the time of its bytes at the bandwidth of a copy.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuopt._table import Table
from gpuopt.benchmarks import beside
from gpuopt.benchmarks.sweep import causal_conv1d, peers
from gpuopt.lab import ceilings, sweep
from gpuopt.lab.arrays import Arrays, library_for
from gpuopt.lab.drawing import Case
from gpuopt.lab.progress import track
from gpuopt.lab.timer import device_clock
from gpuopt.lab.turns import Turns

DTYPES = ("bfloat16", "float32")
TAPS = (2, 3, 4, 8)
#: Batches, channels, steps: a layer in training, the size of the first models, one long prompt,
#: an odd number of steps, many short sequences.
SHAPES = ((8, 4096, 4096), (32, 768, 768), (1, 2048, 8192), (4, 64, 1021), (256, 1536, 64))
PEERS = ("causal-conv1d", "torch")
NAME = "short-filters"


def cases(lib: Arrays) -> Iterator[Case]:
    """Yield every case; arrays are made when their case comes."""
    for dtype in DTYPES:
        for taps in TAPS:
            for shape in SHAPES:
                yield from of_shape(lib, dtype, taps, *shape)


def of_shape(
    lib: Arrays, dtype: str, taps: int, batch: int, channels: int, steps: int
) -> Iterator[Case]:
    """Yield the cases of one shape and filter."""
    w = lib.astype(lib.normal((channels, taps), "float32") / math.sqrt(taps), dtype)
    bias = lib.normal((channels,), dtype)
    for by_time in (False, True):
        x, dy = (lib.normal((batch, channels, steps), dtype) for _ in range(2))
        if by_time:
            axes = causal_conv1d.TIME_LAST
            x, dy = (lib.permute(lib.contiguous(lib.permute(a, axes)), axes) for a in (x, dy))
        layout = "BTC" if by_time else "BCT"
        tag = f"B{batch} C{channels} T{steps} K{taps} {layout}"
        yield causal_conv1d.forward(lib, tag, x, w, bias, by_time)
        yield causal_conv1d.backward(lib, tag, dy, x, w, by_time)
    state, x = (
        lib.normal((batch, channels, taps - 1), dtype),
        lib.normal((batch, channels), dtype),
    )
    yield causal_conv1d.update(lib, f"B{batch} C{channels} K{taps}", state, x, w, bias)


# ---- the tables ----

HEADING = """\
## Short filters
causal_conv1d with 2, 3, 4 and 8 taps, forward with a bias and SiLU, as
`python -m benchmarks.short_filters` times it beside the package causal-conv1d, which takes
up to 4 taps, and the faster of torch's ways. Floor: the call's bytes at the bandwidth
of a copy."""


def section() -> str:
    """Return the table of every whole run; nothing before one is committed."""
    return beside.section(HEADING, beside.kept(NAME, beside.RESULTS), parts)


def parts(run: beside.Run) -> Iterator[str]:
    """Yield a line per direction, layout and dtype, then all rows."""
    rows = [{**row, "call": kind(row)} for row in run["rows"]]
    calls = beside.grouped(rows, "call").items()
    yield Table({"call": call, **beside.totals("rows", of)} for call, of in calls).markdown()
    yield from beside.folded(f"{len(rows)} rows", Table(map(line, rows)))


def kind(row: beside.Row) -> str:
    """Return direction, layout if there are steps, and dtype."""
    words = row["case"].split()
    layout = [word for word in words if word in ("BCT", "BTC")]
    return " ".join([words[0], *layout, row["dtype"]])


def line(row: beside.Row) -> dict[str, Any]:
    """Return a row of the table."""
    package = row["peers"].get("causal-conv1d")
    rest = {name: ms for name, ms in row["peers"].items() if name != "causal-conv1d"}
    return {
        "call": f"{row['case']} {row['dtype']}",
        "floor ms": row["floor_ms"],
        "ours ms": row.get("ms"),
        "causal-conv1d ms": package,
        "torch ms": min(rest.values(), default=None),
        "times as fast": beside.ratio(row),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure every case and write the file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_filters")
    parser.add_argument("out", type=Path, help="the JSON file")
    parser.add_argument("--compile", action="store_true", help="beside torch.compile, too")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args(arguments)
    names = peers.installed(args.device)
    names = tuple(name for name in PEERS if name in names)
    if args.compile:
        names += ("torch-compile",)
    for name in names:
        peers.peer(name).ready(args.device)
    rivals, clock = sweep.libraries(names), Turns(args.device)
    lib = library_for(args.device, [0])
    rows: list[dict[str, Any]] = []
    about = {"benchmark": NAME, **sweep.describe(args.device, 0, 0, names)}
    on_device = args.device == "cuda"
    limits = ceilings.device_ceilings(device_clock()) if on_device else ceilings.cpu_ceilings()
    count = len(DTYPES) * len(TAPS) * len(SHAPES) * 5
    with sweep.quiet(args.device):
        for case in track(cases(lib), count, "short filters", None):
            row = sweep.measure("causal_conv1d", case, lib, rivals, clock)
            least = ceilings.floor(case.nbytes, False, limits, about["device"])
            row["floor_ms"] = least.ms
            rows.append(row)
            lib.trim()
            sweep.write(args.out, sweep.Sweep(rows, about))
    found = sweep.Sweep(rows, about)
    print(found)
    for error in found.errors:
        print(error, file=sys.stderr)
    return 1 if found.errors else 0


if __name__ == "__main__":
    sys.exit(main())
