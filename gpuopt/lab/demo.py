"""The demonstration: one ladder counted and timed, every ladder checked.

Order: the walk, checking, timing, counting.  See screen.py for the result and its text.
Every rung that can run here is checked against NumPy on small arrays; `ok` is False if any
result is wrong.  It needs no compiler, no other library and less than 1 GB of memory.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

import gpuopt
from gpuopt import _core
from gpuopt._introspect import LACKS, lacks_kernels
from gpuopt.benchmarks import peers
from gpuopt.lab import nvcc, published, workloads
from gpuopt.lab.profile import Counts, profile
from gpuopt.lab.progress import track
from gpuopt.lab.run import device_name, to_host, verdict
from gpuopt.lab.screen import Demo, Row
from gpuopt.lab.timer import Call, CpuClock, EventClock, measure_together

__all__ = ["Demo", "demo"]

SECONDS = 1.5  # for all timed variants of a ladder together
# CPU time of the compilers beyond what `make demo` compiles: python _build/times.py.
SIMULATED, COMPILED = 500, 1200


def demo(op: str = "reduce", verbose: bool = False, progress: bool | None = None) -> Demo:
    """Walk the ladders; progress goes to stderr if that is a terminal.

    Parameters
    ----------
    op : str
        The ladder that is counted and timed; all are checked.
    verbose : bool
        Time every ladder, and list every result.
    progress : bool, optional
        Show progress; the default does so on a terminal.
    """
    workloads.room(op)  # there is one
    states = _core.backends()
    usable = [name for name, reason in states.items() if reason is None]
    gpu = device_name("cuda") if "cuda" in usable else None
    seen = Demo(
        op, device_name("cpu"), gpu, states["cuda"],
        LACKS if lacks_kernels(op) else states["sim"], _core.get_num_threads(), verbose,
    )  # fmt: skip
    rooms = workloads.rooms()
    seen.uncompiled = uncompiled(rooms)
    steps: list[Call] = [
        functools.partial(check, seen, room, backend, *tiny)
        for room in rooms
        for backend in usable
        for tiny in workloads.named(room, "sim")
    ]
    clocks: dict[str, Any] = {"cpu": CpuClock()}
    if gpu:
        clocks["cuda"] = EventClock()
    for room in rooms if verbose else [op]:
        steps += [functools.partial(time, seen, room, b, clock) for b, clock in clocks.items()]
    if "sim" in usable:
        steps.append(functools.partial(count, seen))
    for step in track(steps, len(steps), "demo", progress):
        step()
    if not gpu:
        recall(seen)
    return seen


def uncompiled(rooms: Sequence[str]) -> str:
    """Say what a build for the demo alone lacks; empty after `make build`."""
    without = [op for op in rooms if lacks_kernels(op)]
    if not without:
        return ""
    seconds, what = SIMULATED, f"{len(without)} ladders for the simulator"
    if _core.build_info()["cuda"] is None and nvcc.find():
        seconds, what = seconds + COMPILED, f"{what}, all for GPUs"
    minutes = math.ceil(seconds / 60 / len(os.sched_getaffinity(0)))
    return f"Not compiled: {what}; `make build` adds them, about {minutes} min."


def variants(op: str, backend: str, dtype: str) -> list[Row]:
    """Return the rungs of an operator that can run there."""
    return [
        row
        for row in _core.variants(op)
        if row["backend"] == backend
        and row["available"]
        and not row["shape"]
        and dtype in row["dtypes"]
    ]


def row_of(op: str, name: str, dtype: str, backend: str, variant: Row, wrong: str) -> Row:
    """Return the columns that every row has."""
    return {
        "op": op,
        "workload": name,
        "dtype": dtype,
        "backend": backend,
        "variant": variant["name"],
        "idea": variant["idea"],
        "wrong": wrong,
    }


# ---- checked ----


def check(seen: Demo, op: str, backend: str, name: str, dtype: str) -> None:
    """Check every variant of a ladder on a small array."""
    problem = workloads.room(op).problem(name, dtype, np.random.default_rng(0))
    for variant in variants(op, backend, dtype):
        where = {"variant": variant["name"], "backend": backend}
        call = functools.partial(problem.call, *problem.args, **problem.options, **where)
        wrong = verdict(call, to_host, problem)
        if not wrong.startswith("VariantError"):  # the variant does not take this call
            seen.checked.append(row_of(op, name, dtype, backend, variant, wrong))


# ---- timed ----


def time(seen: Demo, op: str, backend: str, clock: Any) -> None:
    """Check and time every variant of a ladder, and NumPy if the data is on the host."""
    name, dtype = workloads.room(op).DEMO
    problem = workloads.room(op).problem(name, dtype, np.random.default_rng(0))
    arrays = problem.args
    if backend != "cpu":
        arrays = tuple(clock.upload(x) if isinstance(x, np.ndarray) else x for x in arrays)
    calls: dict[str, Call] = {}
    rows: dict[str, Row] = {}

    def add(variant: Row, call: Call) -> None:
        wrong = verdict(call, to_host, problem)
        if not wrong.startswith("VariantError"):
            calls[variant["name"]] = call
            rows[variant["name"]] = row_of(op, name, dtype, backend, variant, wrong)

    for variant in variants(op, backend, dtype):
        where = {"variant": variant["name"], "backend": backend}
        add(variant, functools.partial(problem.call, *arrays, **problem.options, **where))
    if backend == "cpu":
        peer = peers.peer("numpy").call(problem, "cpu", arrays, lambda x: x)
        if peer is not None:
            add({"name": "numpy", "idea": "the same call in NumPy"}, peer)
    right = {key: call for key, call in calls.items() if not rows[key]["wrong"]}
    device = "cpu" if backend == "cpu" else "cuda"
    times = measure_together(right, device=device, clock=clock, max_time=SECONDS)
    for key, row in rows.items():
        row["ms"] = times[key].median if key in times else None
        seen.timed.append(row)


# ---- counted ----


def count(seen: Demo) -> None:
    """Count each rung's memory requests, barriers and divergence in the simulator."""
    name, dtype = workloads.room(seen.op).TINY[0]
    problem = workloads.room(seen.op).problem(name, dtype, np.random.default_rng(0))
    for variant in variants(seen.op, "sim", dtype):
        total = Counts()
        try:
            kernels = profile(
                problem.function or seen.op,
                *problem.args,
                variant=variant["name"],
                **problem.options,
            )
        except gpuopt.VariantError:  # the variant does not take this call
            continue
        for kernel in kernels:
            total.add(kernel)
        seen.counted.append(
            {
                **row_of(seen.op, name, dtype, "sim", variant, ""),
                **vars(total),
                "launches": sum(kernel.launches for kernel in kernels),
                "conflict_ways": total.conflict_ways,
                "divergence": total.divergence,
            }
        )


def recall(seen: Demo) -> None:
    """Take the rungs' times from a committed result file, since there is no GPU."""
    found = [
        f for f in published.ladders(seen.op, published.load()) if f.run["backend"] != "cpu"
    ]
    if found:
        ladder = found[0]
        seen.published_on = ladder.run["device"]
        ideas = {row["name"]: row for row in _core.variants(seen.op) if row["backend"] != "cpu"}
        seen.published = [
            {
                **row_of(
                    seen.op,
                    ladder.workload,
                    ladder.dtype,
                    "cuda",
                    ideas.get(row["variant"], {"name": row["variant"], "idea": ""}),
                    "",
                ),
                "ms": row["ms"],
            }
            for row in ladder.rows
        ]
