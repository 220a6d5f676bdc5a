"""One benchmark run: problems, our variants, the peers, checked and then timed together.

Order: the result, where it was measured, checking, one workload, the run.  Only calls that
have just returned a correct result on the same buffers are timed.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpuopt
from gpuopt import _core
from gpuopt._table import Table
from gpuopt.lab import ceilings as ceilings_
from gpuopt.lab import workloads
from gpuopt.lab.progress import track
from gpuopt.lab.timer import (
    Call,
    Clock,
    CpuClock,
    Timing,
    check_seconds,
    device_clock,
    in_words,
    is_settled,
    measure_together,
)

__all__ = ["Result", "device_name", "run"]

LAUNCH_BOUND = 0.03  # ms; below it a replayed graph is timed as well
SEED = 20240229
UNSETTLED = "unsettled"

COLUMNS = (
    "op",
    "workload",
    "dtype",
    "variant",
    "chosen",
    "ms",
    "95 %",
    "n",
    "graph_ms",
    "gbs",
    "floor_ms",
    "percent_of_floor",
    "peers",
    "error",
)


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as the table shows it: no number whose interval is wide."""
    words = in_words(row.get("low"), row.get("high"), row.get("n") or 0)
    cells = {**row, "95 %": words or None}
    if row.get("ms") is not None and not is_settled(row["ms"], row.get("low"), row.get("high")):
        cells.update(ms=UNSETTLED, gbs=None, percent_of_floor=None)
    spans = row.get("peer_spans") or {}
    cells["peers"] = {
        name: ms if is_settled(ms, *spans.get(name, (None, None))) else UNSETTLED
        for name, ms in (row.get("peers") or {}).items()
    }
    return cells


class Result(Table):
    """Rows of a run, with where and against which ceilings they were measured.

    A time is shown only if its median is known to 5 %; the rows have all of them, with the
    95 % intervals `low` and `high`.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        there = [{**row, "95 %": row.get("n")} for row in rows]
        used = [name for name in COLUMNS if any(row.get(name) is not None for row in there)]
        super().__init__(rows, used, title=f"{about['device']}, commit {about['commit']}")
        self.about = dict(about)

    def _laid_out(self) -> tuple[list[str], list[list[str]], list[bool]]:
        head, lines, right = Table(map(shown, self), self.columns)._laid_out()
        return head, lines, [r or name == "ms" for name, r in zip(head, right, strict=True)]

    @property
    def errors(self) -> list[str]:
        """What went wrong, one sentence each: ours and the peers'."""
        found = []
        for row in self:
            where = f"{row['op']} {row['workload']} {row['dtype']}"
            if row.get("error"):
                found.append(f"{where}, {row['variant']}: {row['error']}")
            if row["variant"] == "auto":
                found += [f"{where}, {k}: {v}" for k, v in row["peer_errors"].items()]
        return found

    def to_json(self, indent: int | None = 1) -> str:
        """Return the run as one JSON object: where, ceilings, rows."""
        return json.dumps({**self.about, "rows": list(self)}, indent=indent, default=str)

    def plot(self, ax: Any = None) -> Any:
        """Draw the times as bars, one per variant and peer; returns the Axes."""
        from gpuopt.lab.plots import bars

        return bars(self, ax=ax)

    def roofline(self, ax: Any = None) -> Any:
        """Draw the rows under this run's ceilings; returns the Axes."""
        from gpuopt.lab.plots import roofline

        return roofline(self, ax=ax)


# ---- where ----


def device_name(backend: str) -> str:
    """Return the name of the device a backend runs on."""
    if backend == "cuda":
        try:
            return query_gpu("name")
        except (OSError, subprocess.SubprocessError):
            return "a CUDA GPU"
    for line in read_lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def query_gpu(what: str) -> str:
    """Ask nvidia-smi for one property of the first GPU."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader", "--id=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


def read_lines(path: str) -> list[str]:
    """Return the lines of a text file; none if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def commit() -> str:
    """Return the commit of the checkout, '+' if it has changes; GPUOPT_COMMIT wins."""
    given = os.environ.get("GPUOPT_COMMIT")
    if given:
        return given
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    try:
        if Path(git("rev-parse", "--show-toplevel").strip()).resolve() != root:
            return f"version {gpuopt.__version__}"
        dirty = git("status", "--porcelain", "--untracked-files=no").strip()
        return git("rev-parse", "--short=10", "HEAD").strip() + ("+" if dirty else "")
    except (OSError, subprocess.SubprocessError):
        return f"version {gpuopt.__version__}"


def about(backend: str, ceilings: ceilings_.Ceilings, against: Sequence[str]) -> dict[str, Any]:
    """Return the device, versions, commit and ceilings that the rows were measured with."""
    from gpuopt.benchmarks import peers

    driver = None
    if backend == "cuda":
        try:
            driver = query_gpu("driver_version")
        except (OSError, subprocess.SubprocessError):
            driver = "unknown"
    versions = {"gpuopt": gpuopt.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    versions.update({name: peers.peer(name).version() for name in against})
    return {
        "device": device_name(backend),
        "driver": driver,
        "backend": backend,
        "cpu": {
            "name": device_name("cpu"),
            "isa": _core.cpu_isa(),
            "threads": _core.get_num_threads(),
        },
        "build": _core.build_info(),
        "versions": versions,
        "commit": commit(),
        "ceilings": ceilings.to_dict(),
    }


# ---- right or wrong ----


def to_host(result: Any) -> Any:
    """Return a result of gpuopt as NumPy, whatever library its array is from."""
    if isinstance(result, tuple):
        return tuple(to_host(part) for part in result)
    if isinstance(result, (np.ndarray, np.generic)):
        return result
    if hasattr(result, "get"):
        return result.get()
    if hasattr(result, "cpu"):
        narrow = str(result.dtype) == "torch.bfloat16"  # has no NumPy equivalent in torch
        return (result.float() if narrow else result).cpu().numpy()
    if hasattr(result, "numpy"):
        return result.numpy()
    return np.asarray(result)


def verdict(call: Call, host: Callable[[Any], Any], problem: workloads.Problem) -> str:
    """Run a call once; return what is wrong with it, '' if nothing is."""
    try:
        return problem.check(host(call()))
    except Exception as error:  # whatever a variant or a peer raises becomes a row
        return f"{type(error).__name__}: {error}"


# ---- one workload ----


def wanted_variants(
    op: str, backend: str, dtype: str, variants: str | Sequence[str]
) -> list[str]:
    """Return the rungs to time beside 'auto'."""
    if variants == "auto":
        return []
    rows = [row for row in _core.variants(op) if row["backend"] == backend]
    names = [row["name"] for row in rows]
    if variants != "all":
        asked = [variants] if isinstance(variants, str) else list(variants)
        unknown = [name for name in asked if name not in names and name != "auto"]
        if unknown:
            raise gpuopt.VariantError(
                f"{op}() has no variant {unknown[0]!r} on {backend}; "
                f"there are: {', '.join(names)}"
            )
        rows = [row for row in rows if row["name"] in asked]
    return [row["name"] for row in rows if row["available"] and dtype in row["dtypes"]]


def time_workload(
    op: str,
    name: str,
    dtype: str,
    *,
    backend: str,
    clock: Clock,
    variants: str | Sequence[str],
    against: Sequence[str],
    max_time: float,
    repeats: int | None,
    until: float = math.inf,
) -> list[dict[str, Any]]:
    """Check and time one workload; return one row per variant, 'auto' first.

    After the moment `until` of time.monotonic() no peer is tried and nothing is repeated.
    """
    from gpuopt.benchmarks import peers

    problem = workloads.room(op).problem(name, dtype, np.random.default_rng(SEED))
    device = "cuda" if backend == "cuda" else "cpu"
    upload: Callable[..., Any] = getattr(clock, "upload", lambda x: x)
    arrays = tuple(upload(x) if isinstance(x, np.ndarray) else x for x in problem.args)
    function = problem.call

    def ours(variant: str) -> Call:
        asked = {} if variant == "auto" else {"variant": variant}
        if backend != _core.default_backend():
            asked["backend"] = backend
        return functools.partial(function, *arrays, **problem.options, **asked)

    names = ["auto", *wanted_variants(op, backend, dtype, variants)]
    calls: dict[str, Call] = {variant: ours(variant) for variant in names}
    wrong = {variant: verdict(call, to_host, problem) for variant, call in calls.items()}
    for variant in names[1:]:
        if wrong[variant].startswith("VariantError"):  # it does not take this call
            del calls[variant], wrong[variant]
    names = list(calls)

    peer_errors = {}
    for peer_name in against:
        peer = peers.peer(peer_name)
        if device not in peer.DEVICES:
            continue
        if time.monotonic() >= until:
            peer_errors[peer_name] = "not tried: the time was over"
            continue
        try:
            call = peer.call(problem, device, arrays, upload)
        except Exception as error:  # a peer that cannot run this problem is noted
            peer_errors[peer_name] = f"{type(error).__name__}: {error}"
            continue
        if call is None:
            continue
        found = verdict(call, peer.host, problem)
        if found:
            peer_errors[peer_name] = found
        else:
            calls[f"peer {peer_name}"] = call

    right = {key: call for key, call in calls.items() if not wrong.get(key)}
    times = measure_together(
        right,
        device=device,
        clock=clock,
        max_time=max(0.0, min(max_time, until - time.monotonic())),
        repeats=repeats,
    )
    common = {
        "op": op,
        "workload": name,
        "dtype": dtype,
        "backend": backend,
        "peers": {
            key.removeprefix("peer "): rounded(timing.median)
            for key, timing in times.items()
            if key.startswith("peer ")
        },
        "peer_spans": {
            key.removeprefix("peer "): span(timing)
            for key, timing in times.items()
            if key.startswith("peer ")
        },
        "peer_errors": peer_errors,
    }
    chosen = None
    if not wrong["auto"]:
        plan = _core.plan(problem.function or op, *arrays, **problem.options, backend=backend)
        chosen = plan["variant"]
        common["bytes"] = plan["read_bytes"] + plan["written_bytes"]
        common["flops"] = plan["flops"]
    rows = []
    for variant in names:
        timing = times.get(variant)
        row = {**common, "variant": variant, "error": wrong[variant] or None}
        row["chosen"] = chosen if variant == "auto" else None
        row.update(fields(timing))
        rows.append(row)
    fastest = min((timing.median for timing in times.values()), default=math.inf)
    in_time = time.monotonic() < until
    if fastest < LAUNCH_BOUND and in_time and hasattr(clock, "replay"):
        add_replays(rows, right, clock)
    return rows


def fields(timing: Timing | None) -> dict[str, Any]:
    """Return a timing as columns of a row; all None where nothing was timed."""
    if timing is None:
        return dict.fromkeys(("ms", "low", "high", "p20", "p80", "min_ms", "n", "method"))
    low, high = span(timing)
    return {
        "ms": rounded(timing.median),
        "low": low,
        "high": high,
        "p20": rounded(timing.p20),
        "p80": rounded(timing.p80),
        "min_ms": rounded(timing.min),
        "n": timing.n,
        "method": timing.method,
    }


def span(timing: Timing) -> tuple[float | None, float | None]:
    """Return the interval of a timing's median, as numbers of a row."""
    if timing.low is None or timing.high is None:
        return None, None
    return rounded(timing.low), rounded(timing.high)


def rounded(value: float) -> float:
    """Return a value with five significant digits: no clock here is more precise."""
    return float(f"{value:.5g}")


def set_floor(row: dict[str, Any], ceilings: ceilings_.Ceilings, device: str) -> None:
    """Add rate, floor and percent of the floor to a row that knows its bytes."""
    if "bytes" not in row:
        return
    least = ceilings_.floor(
        row["bytes"], workloads.room(row["op"]).READS_ONLY, ceilings, device
    )
    row["floor_source"] = least.source
    row["floor_ms"] = rounded(least.ms) if least.ms else None
    if row["ms"]:
        row["gbs"] = rounded(row["bytes"] / 1e6 / row["ms"])
        row["percent_of_floor"] = rounded(100 * least.ms / row["ms"]) if least.ms else None


def add_replays(rows: list[dict[str, Any]], calls: Mapping[str, Call], clock: Any) -> None:
    """Time a launch-bound workload's calls in replayed graphs as well, peers too.

    If a call cannot be captured, its row says so.
    """
    peers: dict[str, float] = {}
    failures: dict[str, str] = {}
    ours: dict[str, float] = {}
    for key, call in calls.items():
        try:
            took = rounded(clock.replay(call).median)
        except Exception as error:  # the class depends on whose call refused the capture
            failures[key] = f"{type(error).__name__}: {error}"
            continue
        if key.startswith("peer "):
            peers[key.removeprefix("peer ")] = took
        else:
            ours[key] = took
    for row in rows:
        row["graph_ms"] = ours.get(row["variant"])
        row["graph_peers"] = peers
        row["graph_error"] = failures.get(row["variant"])


# ---- the run ----


def run(
    ops: Sequence[str],
    *,
    backend: str | None = None,
    names: Sequence[str] | None = None,
    dtype: str | None = None,
    variants: str | Sequence[str] = "all",
    against: Sequence[str] | None = None,
    max_time: float = 2.0,
    repeats: int | None = None,
    progress: bool | None = None,
) -> Result:
    """Check and time the workloads of some operators; the parameters are `compare`'s.

    Raises
    ------
    ValueError
        An operator has no workloads, a workload's name is invalid, or the backend is the
        simulator, whose times mean nothing.
    """
    from gpuopt.benchmarks import peers

    check_seconds("max_time", max_time)
    backend = backend or _core.default_backend()
    if backend == "sim":
        raise ValueError("the simulator is not timed; use backend 'cpu' or 'cuda'")
    reasons = _core.backends()
    if backend not in reasons:
        raise ValueError(f"no backend {backend!r}; there are: {', '.join(reasons)}")
    if reasons[backend]:
        raise RuntimeError(f"backend {backend!r} cannot run: {reasons[backend]}")
    for op in ops:
        workloads.room(op)  # there is one
    if dtype is not None:
        check_dtype(ops, dtype)
    work = [(op, *item) for op in ops for item in chosen(op, backend, names, dtype)]
    if not work:
        listed = {kind for op in ops for _, kind in workloads.named(op, backend)}
        raise ValueError(
            f"no workload on {backend} has dtype {dtype!r}; there are: "
            f"{', '.join(sorted(listed))}"
        )
    clock: Any = device_clock() if backend == "cuda" else CpuClock()
    device = "cuda" if backend == "cuda" else "cpu"
    if against is None:
        against = [n for n in peers.names() if device in peers.peer(n).DEVICES]
    against = [name for name in against if peers.peer(name).available() is None]
    before = ceilings(backend, clock)
    rows: list[dict[str, Any]] = []
    for op, name, kind in track(work, len(work), "bench", progress):
        rows += time_workload(
            op,
            name,
            kind,
            backend=backend,
            clock=clock,
            variants=variants,
            against=against,
            max_time=max_time,
            repeats=repeats,
        )
    # Other load can only lower a measured bandwidth: the higher of two measurements counts.
    found = before.best(ceilings(backend, clock))
    for row in rows:
        set_floor(row, found, device_name(backend))
    return Result(rows, about(backend, found, against))


def ceilings(backend: str, clock: Any) -> ceilings_.Ceilings:
    """Measure the ceilings of a backend's device."""
    if backend == "cuda":
        return ceilings_.device_ceilings(clock)
    return ceilings_.cpu_ceilings()


def check_dtype(ops: Sequence[str], dtype: str) -> None:
    """Raise ValueError if no variant of the operators takes that dtype."""
    rows = (row for op in ops for row in _core.variants(op))
    known = sorted({name for row in rows for name in row["dtypes"]})
    if dtype not in known:
        raise ValueError(f"no dtype {dtype!r}; there are: {', '.join(known)}")


def chosen(
    op: str, backend: str, names: Sequence[str] | None, dtype: str | None
) -> list[tuple[str, str]]:
    """Return the workloads to run: the operator's own, or those requested."""
    listed = workloads.named(op, backend)
    if names is None:
        return [item for item in listed if dtype in (None, item[1])]
    found = []
    for name in names:
        kinds = [kind for listed_name, kind in listed if listed_name == name]
        if dtype is not None:
            kinds = [dtype]
        found += [(name, kind) for kind in kinds or ["float32"]]
    return found
