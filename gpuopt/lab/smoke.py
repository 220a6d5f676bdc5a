"""A packaged check that this installation computes correct results.

Every operator and variant that can run here runs on small arrays, compared with gpuopt.ref.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpuopt import VariantError, _core
from gpuopt._table import Table
from gpuopt.lab import workloads
from gpuopt.lab.progress import track
from gpuopt.lab.run import to_host, verdict

__all__ = ["smoke"]

#: Problems per variant in the simulator, spread over the list: the simulator is slow, since
#: it runs every thread of a kernel on the host.
SIMULATED = 40


def smoke(ops: Sequence[str] | None = None, progress: bool | None = None) -> Table:
    """Check every variant that can run here; return one row each, with its failures."""
    work = list(plan(ops or workloads.rooms()))
    rows = [check(op, row) for op, row in track(work, len(work), "test", progress)]
    shown = ("op", "backend", "variant", "checked", "failed", "first_failure")
    return Table(rows, shown, title="every variant against gpuopt.ref, small arrays")


def plan(ops: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the operator and row of every variant that can run here."""
    for op in ops:
        for row in _core.variants(op):
            if row["available"]:
                yield op, row


@functools.lru_cache(maxsize=1)
def problems_of(op: str) -> tuple[workloads.Problem, ...]:
    """Return the room's small problems, created once for all variants of an operator."""
    return tuple(workloads.room(op).smoke(np.random.default_rng(1)))


def takes(row: dict[str, Any], problem: workloads.Problem) -> bool:
    """Return whether a shape kernel takes a problem."""
    where = {"variant": row["name"], "backend": row["backend"]}
    try:
        _core.plan(problem.function or problem.op, *problem.args, **problem.options, **where)
    except VariantError:
        return False
    except (ValueError, TypeError):
        return True  # the call itself shows what is wrong
    return True


def check(op: str, row: dict[str, Any]) -> dict[str, Any]:
    """Run a variant on the room's small problems."""
    problems = [p for p in problems_of(op) if p.dtype in row["dtypes"]]
    if row["shape"]:
        problems = [p for p in problems if takes(row, p)]
    if row["backend"] == "sim":
        problems = problems[:: max(1, len(problems) // SIMULATED)]
    checked, failures = 0, []
    for problem in problems:

        def call(problem: workloads.Problem = problem) -> Any:
            where = {"variant": row["name"], "backend": row["backend"]}
            return problem.call(*problem.args, **problem.options, **where)

        wrong = verdict(call, to_host, problem)
        checked += 1
        if wrong:
            failures.append(f"{problem.name} {problem.dtype}: {wrong}")
    return {
        "op": op,
        "backend": row["backend"],
        "variant": row["name"],
        "checked": checked,
        "failed": len(failures),
        "first_failure": next(iter(failures), None),
        "failures": list(itertools.islice(failures, 20)),
    }
