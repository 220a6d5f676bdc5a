"""The simulator's counts beside those of Nsight Compute, of the same launches.

For each operator ncu profiles one process, which runs some of its rungs once each on small
arrays; the simulator runs the same calls.  Kernels are compared by name, and only if both
launch them with the same grid.  The result, rewritten after each operator, is one JSON
object; docs/why_is_it_fast.md has the table.  Order: the calls, the metrics, the
simulator's counts, ncu's, both side by side, the document.
Usage: counts.py --out RESULT.json [OP...]    needs ncu, its permissions and a GPU;
       counts.py --write                      renews the document.  Exit 3 if ncu may not.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import gpuopt
from gpuopt.lab import run
from gpuopt.lab.profile import profile

sys.path.insert(0, str(Path(__file__).resolve().parent))
from programs import command, find

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "why_is_it_fast.md"
RESULTS = ROOT / "benchmarks" / "results" / "h200-counts.json"
SECONDS = 140  # of everything; an operator that has not begun by then is left out
LIMIT = 60  # of one operator

# ---- the calls ----


class Call(NamedTuple):
    op: str
    what: str
    variants: tuple[str, ...]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    options: dict[str, Any] = {}  # noqa: RUF012


def rungs(last: int) -> tuple[str, ...]:
    return tuple(f"v{k}" for k in range(last + 1))


def f32(generator: np.random.Generator, *shape: int) -> np.ndarray:
    return generator.standard_normal(shape).astype(np.float32)


def index_add_arguments(r: np.random.Generator) -> tuple[Any, ...]:
    return np.zeros((64, 32), np.float32), r.integers(0, 64, 256), f32(r, 256, 32)


CALLS = [
    Call("reduce", "16,384", rungs(9), lambda r: (f32(r, 16384),)),
    Call("scan", "16,384", rungs(3), lambda r: (f32(r, 16384),)),
    Call(
        "mean_matvec", "1 x 64 x 128, 64 x 64", rungs(3),
        lambda r: (f32(r, 1, 64, 128), f32(r, 64, 64)),
    ),
    Call("index_add", "256 rows of 32 to 64", rungs(2), index_add_arguments),
    Call(
        "upsample_nearest", "1 x 8 x 32 x 32, twice", rungs(2),
        lambda r: (f32(r, 1, 8, 32, 32),), {"scale": 2},
    ),
    Call("convolve", "4,096 with 31", rungs(2), lambda r: (f32(r, 4096), f32(r, 31))),
    Call(
        "causal_conv1d", "1 x 32 x 512 with 4", rungs(4),
        lambda r: (f32(r, 1, 32, 512), f32(r, 32, 4)),
    ),
    Call(
        "max_pool3d", "1 x 4 x 16^3, windows of 2", ("v0", "v1", "v2", "v3", "v4", "v7"),
        lambda r: (f32(r, 1, 4, 16, 16, 16), 2),
    ),
    Call("partition_reduce", "4,096, 4 bits", ("v0", "v1", "v3"), lambda r: (f32(r, 4096), 4)),
]  # fmt: skip


def arguments(call: Call) -> tuple[Any, ...]:
    """The same values in every process."""
    return call.arguments(np.random.default_rng(0))


# ---- the metrics ----

LD_ST = ("ld", "st")
# Those of tests/gpu/counters.sh, which ncu knows; each count is the sum of its metrics.
METRICS = {
    "shared_requests": [f"smsp__inst_executed_op_shared_{op}.sum" for op in LD_ST],
    "shared_wavefronts": [
        f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in LD_ST
    ],
    "global_requests": [f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in LD_ST],
    "global_sectors": [f"l1tex__t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in LD_ST],
}
# Asked for only if ncu lists all of them for this GPU.
MORE = {
    "atomic_requests": [
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
        "smsp__inst_executed_op_shared_atom.sum",
    ],
    "bank_conflicts": [
        f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in LD_ST
    ],
}
COUNTS = (*METRICS, *MORE)


def asked(listed: str) -> dict[str, list[str]]:
    """The metrics to ask for, given what `ncu --query-metrics` prints."""
    known = set(re.findall(r"^\s*(\w+)", listed, re.M))
    more = {
        name: metrics
        for name, metrics in MORE.items()
        if all(metric.removesuffix(".sum") in known for metric in metrics)
    }
    return METRICS | more


# ---- the simulator's counts ----


def bare(kernel: str) -> str:
    """A kernel's name without its template arguments and parameters."""
    return re.split(r"[<(]", kernel.removeprefix("void "))[0].rpartition("::")[2]


def is_rung(op: str, kernel: str) -> bool:
    """Kernels that several rungs launch are left out."""
    return re.match(rf"{op}_v\d+_", kernel) is not None


def simulated(call: Call) -> dict[str, dict[str, Any]]:
    """The counts of the rungs' kernels by name; only kernels that one rung launches."""
    found: dict[str, dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for variant in call.variants:
        for kernel in profile(call.op, *arguments(call), variant=variant, **call.options):
            name = bare(kernel.kernel)
            if not is_rung(call.op, name):
                continue
            seen[name] += 1
            counts = asdict(kernel)
            counts["bank_conflicts"] = kernel.shared_wavefronts - kernel.shared_ideal
            found[name] = {
                "variant": variant,
                "blocks": kernel.blocks,
                **{count: counts[count] for count in COUNTS},
            }
    return {name: row for name, row in found.items() if seen[name] == 1}


# ---- ncu's ----


def launch(op: str) -> None:
    """What ncu profiles: each rung once."""
    call = next(c for c in CALLS if c.op == op)
    values = arguments(call)
    for variant in call.variants:
        try:
            getattr(gpuopt, op)(*values, variant=variant, backend="cuda", **call.options)
        except Exception as error:  # the other rungs go on
            print(f"{op} {variant}: {error}", file=sys.stderr)


def read_launches(text: str) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Kernel, blocks and metrics of each launch in ncu's CSV, raw (a row each) or long."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return
    rows = csv.DictReader(line for line in lines[start:] if line.startswith('"'))
    long: dict[str, tuple[str, int, dict[str, float]]] = {}
    for row in rows:
        if not row["ID"]:  # the units
            continue
        blocks = int(np.prod([int(n) for n in re.findall(r"\d+", row["Grid Size"])]))
        name = bare(row["Kernel Name"])
        if "Metric Name" in row:
            entry = long.setdefault(row["ID"], (name, blocks, {}))
            entry[2][row["Metric Name"]] = number(row["Metric Value"])
        else:
            yield name, blocks, {k: number(v) for k, v in row.items() if k.endswith(".sum")}
    yield from long.values()


def number(text: str) -> float:
    """A metric's value; nan if ncu has none."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def counted(text: str, metrics: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Blocks and counts by kernel, of all its launches; a count that ncu lacks is None."""
    found: dict[str, dict[str, Any]] = {}
    for name, blocks, values in read_launches(text):
        row = found.setdefault(name, {"blocks": 0, **dict.fromkeys(metrics, 0)})
        row["blocks"] += blocks
        for count, parts in metrics.items():
            total = sum(values.get(part, math.nan) for part in parts)
            known = row[count] is not None and not math.isnan(total)
            row[count] = row[count] + int(total) if known else None
    return found


class Refused(Exception):
    """ncu may not read the GPU's counters."""


def measured(ncu: str, call: Call, metrics: dict[str, list[str]], seconds: float) -> str:
    """ncu's output for one operator."""
    names = ",".join(metric for parts in metrics.values() for metric in parts)
    words = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    words += ["--print-kernel-base", "function"]
    words += ["--kernel-name", f"regex:^{call.op}_v[0-9]+_", "--metrics", names]
    words += [sys.executable, str(Path(__file__).resolve()), "--launch", call.op]
    status, said = command(words, seconds)
    if "ERR_NVGPUCTRPERM" in said or "permission to access NVIDIA GPU" in said:
        raise Refused
    if status != 0:
        print(f"{call.op}: ncu ends with {status}:\n{said[-2000:]}", file=sys.stderr)
    return said


# ---- both side by side ----


def compared(
    call: Call, ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """One row per kernel of the simulator: both counts, and ncu's divided by ours."""
    rows = []
    for name, sim in ours.items():
        gpu = theirs.get(name)
        if gpu is None:
            note = "ncu has no launch of it"
        elif gpu["blocks"] != sim["blocks"]:
            note = f"another grid: {gpu['blocks']} blocks"
        else:
            note = ""
        ratio = {}
        if gpu and not note:
            for count in COUNTS:
                value = gpu.get(count)
                known = value is not None and sim[count]
                ratio[count] = round(value / sim[count], 4) if known else None
        rows.append(
            {
                "op": call.op, "variant": sim["variant"], "kernel": name, "dtype": "float32",
                "call": call.what, "note": note, "simulator": sim, "gpu": gpu, "ratio": ratio,
            }
        )  # fmt: skip
    return rows


def write(out: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    part = out.with_suffix(".part")
    text = json.dumps({**about, "kernels": rows}, indent=1)
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(out)


def measure(out: Path, calls: list[Call]) -> int:
    ncu = find("ncu")
    if ncu is None:
        print("not found: ncu", file=sys.stderr)
        return 3
    began = time.monotonic()
    ours = {call.op: simulated(call) for call in calls}
    _, version = command([ncu, "--version"], 30)
    _, listed = command([ncu, "--query-metrics"], 30)
    metrics = asked(listed)
    about: dict[str, Any] = {
        "device": run.device_name("cuda"), "driver": run.query_gpu("driver_version"),
        "ncu": (re.findall(r"Version (\S+)", version) or ["unknown"])[0],
        "commit": run.commit(), "metrics": metrics,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    out.parent.mkdir(parents=True, exist_ok=True)
    for call in calls:
        left = SECONDS - (time.monotonic() - began)
        if left < 10:
            print(f"{call.op}: no time left", file=sys.stderr)
            continue
        try:
            text = measured(ncu, call, metrics, min(LIMIT, left))
        except Refused:
            print("ncu may not read this GPU's counters (ERR_NVGPUCTRPERM)", file=sys.stderr)
            return 3
        rows += compared(call, ours[call.op], counted(text, metrics))
        about["seconds"] = round(time.monotonic() - began, 1)
        write(out, about, rows)
    print(table(json.loads(out.read_text(encoding="utf-8")) if rows else None))
    return 0 if any(row["gpu"] for row in rows) else 1


# ---- the document ----

HEADS = {
    "shared_wavefronts": "wavefronts", "global_requests": "requests",
    "global_sectors": "sectors", "atomic_requests": "atomics",
}  # fmt: skip


def cell(row: dict[str, Any], count: str) -> str:
    """One number if both agree, else the simulator's and the GPU's."""
    ours = row["simulator"][count]
    theirs = row["gpu"].get(count)
    if theirs is None:
        return f"{ours} / ?"
    return str(ours) if ours == theirs else f"**{ours} / {theirs}**"


def table(results: dict[str, Any] | None) -> str:
    """The table and the sentence below it."""
    if results is None:
        return "Not yet run on a GPU.\n"
    rows = [row for row in results["kernels"] if row["gpu"] and not row["note"]]
    lines = [
        f"| kernel | call, float32 | {' | '.join(HEADS.values())} |",
        f"|---|---|{'---|' * len(HEADS)}",
    ]
    for row in rows:
        cells = " | ".join(cell(row, count) for count in HEADS)
        lines.append(f"| `{row['kernel']}` | {row['call']} | {cells} |")
    pairs = [
        (row["simulator"][count], row["gpu"][count])
        for row in rows
        for count in HEADS
        if row["gpu"].get(count) is not None
    ]
    equal = sum(ours == theirs for ours, theirs in pairs)
    left_out = [row for row in results["kernels"] if row not in rows]
    text = (
        f"Of {len(pairs)} counts of {len(rows)} kernels of {len({r['op'] for r in rows})} "
        f"operators {equal} are equal; the others are shown as simulator / {results['device']} "
        f"(ncu {results['ncu']}, commit `{results['commit']}`, "
        f"[data](../benchmarks/results/{RESULTS.name}))."
    )
    if left_out:
        names = ", ".join(f"`{row['kernel']}` ({row['note']})" for row in left_out)
        text += f" Not compared: {names}."
    return "\n".join([*lines, "", text]) + "\n"


def renewed(document: str) -> str:
    """The document with the table as it is now, between its two comments."""
    begin, end = "<!-- counts beside ncu -->\n", "<!-- end of counts beside ncu -->"
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None
    head, found, rest = document.partition(begin)
    if not found:
        raise ValueError(f"the document has no line {begin!r}")
    return f"{head}{begin}{table(results)}{end}{rest.partition(end)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--launch", metavar="OP", help="what ncu profiles")
    parser.add_argument("--write", action="store_true", help="renew the document")
    parser.add_argument("ops", nargs="*", help="the operators; all without one")
    args = parser.parse_args()
    unknown = {args.launch or "reduce", *args.ops} - {call.op for call in CALLS}
    if unknown:
        parser.error(f"no call of {', '.join(sorted(unknown))}")
    if args.launch:
        launch(args.launch)
        return 0
    if args.write:
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(renewed(text), encoding="utf-8")
        return 0
    if args.out is None:
        parser.error("--out or --write is needed")
    return measure(args.out, [c for c in CALLS if not args.ops or c.op in args.ops])


if __name__ == "__main__":
    sys.exit(main())
