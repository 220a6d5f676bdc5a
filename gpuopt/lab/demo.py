"""The demonstration: every ladder, rung by rung, on whatever this machine has.

Order: what is walked, the CPU and GPU part (timed), the simulator part (checked), the
pictures in text.  Every result is checked; `ok` is False if any is wrong.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._table import Table
from gpuopt.benchmarks import peers
from gpuopt.lab import ceilings as ceilings_
from gpuopt.lab import workloads
from gpuopt.lab.bench import Call, CpuClock, device_clock, measure_together
from gpuopt.lab.progress import track
from gpuopt.lab.run import device_name, to_host, verdict

__all__ = ["Demo", "demo"]

SECONDS = 20.0  # for all timed rungs together, so that two cores stay under a minute
LONGEST = 3.0  # seconds for one ladder
BAR = 32  # characters
WORK = ("op", "workload", "dtype", "backend")


@dataclass
class Demo:
    """What the demonstration saw."""

    device: str
    ceilings: dict[str, ceilings_.Ceilings] = field(default_factory=dict)  # by backend
    timed: list[dict[str, Any]] = field(default_factory=list)
    simulated: list[dict[str, Any]] = field(default_factory=list)
    simulator: str | None = None

    @property
    def ok(self) -> bool:
        """True if every result was right."""
        return not any(row["wrong"] for row in self.timed + self.simulated)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a dict that JSON takes."""
        found = {backend: best.to_dict() for backend, best in self.ceilings.items()}
        return {**vars(self), "ceilings": found, "ok": self.ok}

    def add_ceilings(self, backend: str, found: ceilings_.Ceilings) -> None:
        """Keep the better of what was measured before and what was measured now."""
        known = self.ceilings.get(backend)
        self.ceilings[backend] = known.best(found) if known else found

    def set_percents(self) -> None:
        """Relate every rate to the read ceiling of its backend."""
        for row in self.timed:
            known = self.ceilings.get(row["backend"])
            read = known.read_gbs if known else None
            row["percent_of_read"] = 100 * row["gbs"] / read if row["gbs"] and read else None

    def __str__(self) -> str:
        lines = [self.device]
        for backend, found in self.ceilings.items():
            if found.read_gbs:
                lines.append(f"{backend} reads {found.read_gbs:.1f} GB/s at best")
        lines.append("")
        works = dict.fromkeys(tuple(row[key] for key in WORK) for row in self.timed)
        for work in works:
            rows = [r for r in self.timed if tuple(r[key] for key in WORK) == work]
            lines += [repr(bars(rows, " ".join(work))), ""]
            lines += [f"not timed: {r['untimed']}" for r in rows[:1] if r["untimed"]]
        if self.simulated:
            title = "the CUDA rungs, run thread by thread in the simulator"
            shown = ("op", "variant", "workload", "result", "idea")
            rows = [{**row, "result": word(row)} for row in self.simulated]
            lines += [repr(Table(rows, shown, title)), ""]
        elif self.simulator:
            lines += [f"The simulator cannot run: {self.simulator}", ""]
        count = len(self.timed) + len(self.simulated)
        wrong = sum(bool(row["wrong"]) for row in self.timed + self.simulated)
        lines.append(f"{count} results checked against NumPy, {wrong} wrong")
        return "\n".join(lines)


def demo(progress: bool | None = None) -> Demo:
    """Walk the ladders; progress goes to stderr if that is a terminal."""
    ops = workloads.rooms()
    usable = [name for name, reason in _core.backends().items() if reason is None]
    seen = Demo(device_name("cpu"), simulator=_core.backends()["sim"])
    seen.add_ceilings("cpu", ceilings_.cpu_ceilings())
    if "cuda" in usable:
        seen.device += f" and {device_name('cuda')}"

    steps: list[tuple[str, str, str, str]] = []
    for op in ops:
        name, dtype = workloads.room(op).DEMO
        steps += [(b, op, name, dtype) for b in ("cpu", "cuda") if b in usable]
        if "sim" in usable:
            steps += [("sim", op, *tiny) for tiny in workloads.named(op, "sim")]
    seconds = min(LONGEST, SECONDS / max(1, len(ops)))
    for backend, op, name, dtype in track(steps, len(steps), "demo", progress):
        if backend == "sim":
            seen.simulated += simulate(op, name, dtype)
        else:
            seen.timed += walk(op, name, dtype, backend, seconds, seen)
    # A neighbour may slow a ceiling down, never speed it up: the better of two stands.
    seen.add_ceilings("cpu", ceilings_.cpu_ceilings())
    seen.set_percents()
    return seen


def rungs(op: str, backend: str, dtype: str) -> list[dict[str, Any]]:
    """Return the variants of an operator that can run there."""
    return [
        row
        for row in _core.variants(op)
        if row["backend"] == backend and row["available"] and dtype in row["dtypes"]
    ]


# ---- timed ----


def walk(
    op: str,
    name: str,
    dtype: str,
    backend: str,
    seconds: float,
    seen: Demo,
) -> list[dict[str, Any]]:
    """Check and time every rung of a ladder, and NumPy where the data is on the host."""
    problem = workloads.room(op).problem(name, dtype, np.random.default_rng(0))
    arrays = problem.args
    clock: Any = CpuClock()
    untimed = None
    if backend == "cuda":
        try:
            clock = device_clock()
        except RuntimeError as error:
            untimed = str(error)
        else:
            upload = clock.upload
            arrays = tuple(upload(x) if isinstance(x, np.ndarray) else x for x in arrays)
            seen.add_ceilings("cuda", ceilings_.device_ceilings(clock))
    function = problem.call
    calls: dict[str, Call] = {}
    ideas = {}
    for row in rungs(op, backend, dtype):
        ideas[row["name"]] = row["idea"]
        where = {"variant": row["name"], "backend": backend}
        calls[row["name"]] = functools.partial(function, *arrays, **problem.options, **where)
    wrong = {variant: verdict(call, to_host, problem) for variant, call in calls.items()}
    if backend == "cpu":
        peer = peers.peer("numpy").call(problem, "cpu", arrays, lambda x: x)
        if peer is not None:
            calls["numpy"], ideas["numpy"] = peer, "the same call in NumPy"
            wrong["numpy"] = verdict(peer, to_host, problem)
    right = {} if untimed else {v: call for v, call in calls.items() if not wrong[v]}
    device = "cuda" if backend == "cuda" else "cpu"
    times = measure_together(right, device=device, clock=clock, max_time=seconds)
    plan = _core.plan(problem.function or op, *problem.args, **problem.options, backend=backend)
    moved = plan["read_bytes"] + plan["written_bytes"]
    rows = []
    for variant in calls:
        timing = times.get(variant)
        rows.append(
            {
                "op": op,
                "workload": name,
                "dtype": dtype,
                "backend": backend,
                "variant": variant,
                "idea": ideas[variant],
                "ms": timing.median if timing else None,
                "gbs": moved / 1e6 / timing.median if timing else None,
                "untimed": untimed,
                "wrong": wrong[variant],
            }
        )
    return rows


# ---- simulated ----


def simulate(op: str, name: str, dtype: str) -> list[dict[str, Any]]:
    """Check every CUDA rung in the simulator, where time means nothing."""
    problem = workloads.room(op).problem(name, dtype, np.random.default_rng(0))
    rows = []
    for row in rungs(op, "sim", dtype):
        where = {"variant": row["name"], "backend": "sim"}
        call = functools.partial(problem.call, *problem.args, **problem.options, **where)
        rows.append(
            {
                "op": op,
                "workload": name,
                "dtype": dtype,
                "backend": "sim",
                "variant": row["name"],
                "idea": row["idea"],
                "wrong": verdict(call, to_host, problem),
            }
        )
    return rows


# ---- in text ----


def word(row: dict[str, Any]) -> str:
    """Return 'right', or what is wrong."""
    return f"WRONG: {row['wrong']}" if row["wrong"] else "right"


def bars(rows: list[dict[str, Any]], title: str) -> Table:
    """Return the rungs with a bar each; the longest bar is the fastest rung."""
    fastest = max((row["gbs"] or 0.0 for row in rows), default=0.0)
    lines = []
    for row in rows:
        length = round(BAR * row["gbs"] / fastest) if row["gbs"] and fastest else 0
        lines.append(
            {
                "variant": row["variant"],
                "ms": row["ms"],
                "GB/s": row["gbs"],
                "% of read": row["percent_of_read"],
                "bar": "#" * length,
                "result": word(row),
                "idea": row["idea"],
            }
        )
    return Table(lines, title=title)
