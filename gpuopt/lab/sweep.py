"""A sweep: random calls of every operator, each checked and timed beside the peers.

Order: judging, one case, the summary, the result, the run.  A case within 3 % or 0.5 us of the
best peer is a tie; only calls that have just returned a right result are timed.  The cases are
in benchmarks/sweep, the dice in drawing.py, the clock in turns.py.
"""

from __future__ import annotations

import contextlib
import json
import math
import platform
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gpuopt
from gpuopt import _core
from gpuopt._table import Table
from gpuopt.lab import run as runs
from gpuopt.lab.arrays import Arrays, library_for
from gpuopt.lab.drawing import Case, Dice
from gpuopt.lab.progress import track
from gpuopt.lab.timer import Call
from gpuopt.lab.turns import Turns

__all__ = ["DEVICES", "GOOD", "Sweep", "draw", "machine", "run", "summary"]

DEVICES = ("cuda", "cpu", "host")
COMPARED = ("cpu", "cuda")  # the backends beside the default call, for arrays of the host
VARIANTS = "variants"  # the peer that is our other variants

#: The largest error of a right result, relative to a sum's magnitudes or to the largest
#: element: for float16 and bfloat16 four units of the last place, for the others what sums
#: of 2^28 terms and products of spectra may lose.  Integers must agree.
TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 1e-5,
    "float64": 1e-11,
    "complex64": 1e-5,
}
PEER_SLACK = 4  # a peer may be wrong by so many tolerances
NOT_A_NUMBER = 1e300  # the error of a result that is not finite

TIE = 0.03
TIE_MS = 5e-4
GOOD = 0.95  # times as fast as the best peer
MOST = 10.0  # a case counts no more in the mean
LEAST = 1e-3
CASES = 40  # of each room
TRIES = 4  # draws for one case
TRIM = 8  # cases between two cleanings of a GPU's memory

Row = dict[str, Any]
#: What a case is compared with: by name a call, and what makes its result look like ours.
Rivals = Callable[[Case, Arrays, Row], dict[str, tuple[Call, Callable[[Any], Any]]]]


# ---- judging ----


def error(lib: Arrays, got: Any, want: Any, scale: float | None = None) -> float | str:
    """Return the largest error, relative to `scale` or to the largest result.

    For integers it is the number of elements that differ; a string says that shapes differ.
    """
    if isinstance(want, tuple):
        parts = [error(lib, g, w, scale) for g, w in zip(got, want, strict=False)]
        said = [part for part in parts if isinstance(part, str)]
        return said[0] if said else max(part for part in parts if isinstance(part, float))
    g, w = lib.take(got), lib.take(want)
    if tuple(g.shape) != tuple(w.shape):
        return f"shape {tuple(g.shape)} instead of {tuple(w.shape)}"
    if math.prod(w.shape) == 0:
        return 0.0
    if lib.kind(w) in "biu":
        exact = lib.kind(g) in "biu"
        g, w = (lib.astype(x, "int64" if exact else "float64") for x in (g, w))
        return float((g != w).sum())
    g, w = lib.wide(g), lib.wide(w)
    off = abs(g - w).max()
    top = float(abs(w).max()) if scale is None else scale
    found = float(off) / max(top, 1e-30)
    return found if math.isfinite(found) else NOT_A_NUMBER


def is_right(found: float | str, tolerance: float) -> bool:
    """Tell whether an error is none."""
    return isinstance(found, float) and found <= tolerance


def seen(lib: Arrays, result: Any, axes: Sequence[int] | None) -> Any:
    """Return a peer's result, or the first of several, in the layout of ours."""
    if axes is None:
        return result
    if isinstance(result, tuple):
        return (lib.permute(lib.take(result[0]), axes), *result[1:])
    return lib.permute(lib.take(result), axes)


# ---- one case ----


def libraries(names: Sequence[str]) -> Rivals:
    """Return the function that gives a case's calls of the peers."""
    from gpuopt.benchmarks.sweep import peers

    def rivals(case: Case, lib: Arrays, row: Row) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            peer = peers.peer(name)

            def read(result: Any, host: Callable[[Any], Any] = peer.host) -> Any:
                return seen(lib, host(result), case.axes)

            try:
                calls = peers.calls(name, case.peer, case.given)
            except Exception as refusal:  # a peer that cannot take a case is noted
                row["peers_failed"][name] = sentence(refusal)
            else:
                found.update({way: (call, read) for way, call in calls.items()})
        return found

    return rivals


def as_it_is(result: Any) -> Any:
    """Return a result of ours, which needs no reading."""
    return result


def backends(case: Case, lib: Arrays, row: Row) -> dict[str, Any]:
    """Return our calls with a backend by name: the peers of the default call."""
    return {name: (case.ours(lib, backend=name), as_it_is) for name in COMPARED}


def variants(case: Case, lib: Arrays, row: Row) -> dict[str, Any]:
    """Return our calls by variant: what the default call could have chosen."""
    return {
        listed["name"]: (case.ours(lib, variant=listed["name"]), as_it_is)
        for listed in _core.variants(case.function)
        if listed["backend"] == row["backend"] and listed["available"]
    }


def sentence(refusal: BaseException) -> str:
    """Return an exception as one line."""
    return f"{type(refusal).__name__}: {' '.join(str(refusal).split())}"[:160]


def measure(op: str, case: Case, lib: Arrays, rivals: Rivals, clock: Turns) -> Row:
    """Check and time one case; return its row."""
    row: Row = {
        "op": op,
        "function": case.function,
        "case": case.name,
        "dtype": case.dtype,
        "bytes": case.nbytes,
        "tie": False,
        "peers": {},
        "peers_wrong": {},
        "peers_failed": {},
    }
    try:
        check_and_time(row, case, lib, rivals, clock)
    except Exception as refusal:  # whatever a call raises is counted, and the sweep goes on
        row["failed"] = sentence(refusal)
    return row


def check_and_time(row: Row, case: Case, lib: Arrays, rivals: Rivals, clock: Turns) -> None:
    """Fill the row of a case."""
    tolerance = TOLERANCE.get(case.dtype, 0.0)
    ours = case.ours(lib)
    want, got = case.reference(), ours()
    called = _core.last_call() or {}
    row["variant"], row["backend"] = called.get("variant"), called.get("backend")
    row["err"] = error(lib, got, want, case.scale)
    row["wrong"] = not is_right(row["err"], tolerance)
    right: dict[str, Call] = {}
    for name, (call, read) in rivals(case, lib, row).items():
        try:
            off = error(lib, read(call()), want, case.scale)
        except Exception as refusal:  # each library has its own classes
            row["peers_failed"][name] = sentence(refusal)
            continue
        if is_right(off, PEER_SLACK * tolerance):
            right[name] = call
        else:
            row["peers_wrong"][name] = off
    del got, want
    calls = right if row["wrong"] else {"gpuopt": ours, **right}
    times = clock.run(calls, case.nbytes) if calls else {}
    row["ms"] = times.pop("gpuopt", None)
    row["peers"] = times
    if row["ms"] is not None and times:
        row.update(compared(row["ms"], times))


def compared(ms: float, times: Mapping[str, float]) -> Row:
    """Return the best peer, how many times as fast ours is, and whether that is a tie."""
    best = min(times, key=lambda name: times[name])
    gap = abs(times[best] - ms)
    return {
        "best": best,
        "times": times[best] / ms,
        "tie": gap <= max(TIE * ms, TIE_MS),
    }


# ---- the summary ----


def is_good(row: Row) -> bool:
    """Tell whether a case is at 0.95 or better: a tie is, a wrong or failed one is not."""
    if "failed" in row or row.get("wrong"):
        return False
    return bool(row.get("times", 0.0) >= GOOD or row.get("tie"))


def is_judged(row: Row) -> bool:
    """Tell whether a case counts: it was compared, or ours is at fault that it was not."""
    return "times" in row or "failed" in row or bool(row.get("wrong"))


def summary(rows: Sequence[Row]) -> Row:
    """Return what a sweep found, of one operator or of all.

    `worst` and `mean` are times as fast as the best peer; the mean is geometric, and a case
    counts MOST at most.  A wrong or failed case counts 0 in the one and LEAST in the other.
    """
    judged = [row for row in rows if is_judged(row)]
    times = [0.0 if not row.get("times") else row["times"] for row in judged]
    logs = [math.log(min(MOST, max(t, LEAST))) for t in times]
    return {
        "cases": len(rows),
        "share": sum(map(is_good, judged)) / len(judged) if judged else None,
        "worst": min(times, default=None),
        "mean": math.exp(sum(logs) / len(logs)) if logs else None,
        "wrong": sum(bool(row.get("wrong")) for row in rows),
        "failed": sum("failed" in row for row in rows),
        "peerless": len(rows) - len(judged),
    }


def percent(share: float | None) -> str:
    """Format a share; 100 % is never rounded up."""
    return "" if share is None else f"{math.floor(100 * share)} %"


def by_operator(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each operator, and if there are several, of all."""
    ops = list(dict.fromkeys(row["op"] for row in rows))
    groups = {op: [row for row in rows if row["op"] == op] for op in ops}
    return {**groups, "all": list(rows)} if len(ops) > 1 else groups


def table(rows: Sequence[Row]) -> list[Row]:
    """Return a line per operator, and one for all."""
    lines = []
    for op, group in by_operator(rows).items():
        found = summary(group)
        lines.append({"operator": op, **found, f"{GOOD} or better": percent(found["share"])})
    return lines


COLUMNS = (
    "operator",
    "cases",
    f"{GOOD} or better",
    "worst",
    "mean",
    "wrong",
    "failed",
    "peerless",
)


# ---- the result ----


class Sweep(Table):
    """The summary of a sweep, a line per operator; `rows` has its cases, `about` the rest."""

    def __init__(self, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
        where = f"{about['device']}, commit {about['commit']}, seed {about['seed']}"
        where += ", interrupted" if about["interrupted"] else ""
        super().__init__(table(rows), COLUMNS, title=where)
        self.rows = list(rows)
        self.about = dict(about)

    @property
    def errors(self) -> list[str]:
        """What of ours is wrong or failed, one sentence each."""
        found = []
        for row in self.rows:
            where = f"{row['function']} {row['case']} {row['dtype']}"
            if "failed" in row:
                found.append(f"{where}: {row['failed']}")
            elif row.get("wrong"):
                found.append(f"{where}: wrong by {row['err']}")
        return found

    def below(self) -> Table:
        """Return the cases under 0.95, the worst first."""
        return Table(under(self.rows), title=f"under {GOOD}")

    def plot(self, ax: Any = None) -> Any:
        """Draw the time per byte of each case and of its best peer; returns the Axes."""
        from gpuopt.lab.plots import per_byte

        return per_byte(self.rows, ax=ax)

    def to_json(self, indent: int | None = 1) -> str:
        """Return the sweep as one JSON object: where, the summary, the cases."""
        groups = by_operator(self.rows).items()
        lines = [{"operator": op, **summary(group)} for op, group in groups]
        found = {**self.about, "summary": lines, "rows": self.rows}
        return json.dumps(found, indent=indent, default=str)


def under(rows: Sequence[Row]) -> list[Row]:
    """Return a line for each case under 0.95 that was compared, the worst first."""
    found = [row for row in rows if "times" in row and not is_good(row)]
    return [
        {
            "operator": row["function"],
            "case": row["case"],
            "dtype": row["dtype"],
            "variant": row["variant"],
            "ms": row["ms"],
            "best peer": row["best"],
            "peer ms": row["peers"][row["best"]],
            "times as fast": f"{row['times']:.2f}",
        }
        for row in sorted(found, key=lambda row: float(row["times"]))
    ]


def machine(about: Mapping[str, Any]) -> str:
    """Return a short name for files: 'h200', 'xeon', 'host-h200'."""
    noise = r"\((r|tm)\)|nvidia|intel|amd|cpu|processor|geforce|\d+gb|hbm\d|@.*|\d+-core.*"
    words = re.sub(noise, " ", str(about["device"]).lower())
    name = "-".join(re.findall(r"[a-z0-9]+", words)) or about["mode"]
    return f"host-{name}" if about["mode"] == "host" else name


# ---- the run ----


def draw(op: str, lib: Arrays, seed: int) -> Iterator[Case | Exception | None]:
    """Yield the cases of an operator without end.

    None is a call that does not exist, an exception one that this machine could not make.
    The stream depends on seed and operator alone.
    """
    from gpuopt.benchmarks import sweep

    family = sweep.family(op)
    dice = Dice(np.random.default_rng([seed, *op.encode()]), lib)
    while True:
        try:
            yield family.draw(dice)
        except (RuntimeError, MemoryError) as refusal:  # too little memory, mostly
            yield refusal


def drawn(
    ops: Sequence[str], device: str, seed: int, cases: int, undrawn: list[str]
) -> Iterator[tuple[str, Case, Arrays]]:
    """Yield the cases of a run."""
    place = "cuda" if device == "cuda" else "cpu"
    for op in ops:
        lib = library_for(place, [seed, *op.encode(), 1])
        done = 0
        for _, case in zip(range(TRIES * cases), draw(op, lib, seed), strict=False):
            if isinstance(case, Exception):
                undrawn.append(f"{op}: {sentence(case)}")
            elif case is not None:
                yield op, case, lib
                done += 1
                if done % TRIM == 0:
                    lib.trim()
            if done == cases:
                break


def check(device: str, seed: int, cases: int) -> None:
    """Raise ValueError for an invalid argument, RuntimeError for what cannot run here."""
    if device not in DEVICES:
        raise ValueError(f"no device {device!r}; there are: {', '.join(DEVICES)}")
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    if cases < 1:
        raise ValueError(f"cases must be at least 1, got {cases}")
    reason = _core.backends()["cuda"]
    if device == "cuda" and reason:
        raise RuntimeError(f"backend 'cuda' cannot run: {reason}")
    if device == "host" and reason:
        raise RuntimeError(
            f"device 'host' compares a GPU with the CPU, and there is none: {reason}"
        )


def rooms(ops: Sequence[str] | None) -> list[str]:
    """Return the families of some operators, all by default.

    Raises
    ------
    ValueError
        There is no such operator.
    """
    from gpuopt.benchmarks import sweep

    if ops is None:
        return list(sweep.families())
    known = {op: _core.describe(op)["room"] for op in _core.ops()}
    unknown = [op for op in ops if op not in known and op not in sweep.families()]
    if unknown:
        raise ValueError(
            f"no operator {unknown[0]!r}; there are: {', '.join(sweep.families())}"
        )
    return list(dict.fromkeys(known.get(op, op) for op in ops))


def opponents(device: str, against: Sequence[str] | None) -> tuple[Rivals, tuple[str, ...]]:
    """Return what a run compares with, set up, and the names of the libraries.

    Raises
    ------
    RuntimeError
        No library is installed that runs on the device.
    """
    from gpuopt.benchmarks.sweep import peers

    if device == "host":
        if against is not None:
            raise ValueError("device 'host' has backends as peers, no libraries")
        return backends, ()
    if against is not None and VARIANTS in against:
        if len(set(against)) > 1:
            raise ValueError(f"peer {VARIANTS!r} is compared alone, without libraries")
        return variants, ()
    names = peers.installed(device) if against is None else peers.named(device, against)
    if not names:
        raise RuntimeError(f"no peer is installed for device {device!r}")
    for name in names:
        peers.peer(name).ready(device)
    return libraries(names), names


@contextlib.contextmanager
def quiet(device: str) -> Iterator[None]:
    """Compute on the run's backend, without the libraries' warnings."""
    before = _core.default_backend()
    if device != "host":
        gpuopt.use(device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gpuopt.use(before)


def describe(device: str, seed: int, cases: int, names: Sequence[str]) -> dict[str, Any]:
    """Return the device, versions, commit and seed of a run."""
    from gpuopt.benchmarks.sweep import peers

    backend = "cpu" if device == "cpu" else "cuda"
    driver = None
    if backend == "cuda":
        try:
            driver = runs.query_gpu("driver_version")
        except (OSError, subprocess.SubprocessError):
            driver = "unknown"
    versions = {"gpuopt": gpuopt.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    versions.update({name: peers.peer(name).version() for name in names})
    return {
        "device": runs.device_name(backend),
        "mode": device,
        "driver": driver,
        "cpu": {
            "name": runs.device_name("cpu"),
            "isa": _core.cpu_isa(),
            "threads": _core.get_num_threads(),
        },
        "build": _core.build_info(),
        "versions": versions,
        "commit": runs.commit(),
        "seed": seed,
        "cases": cases,
        "interrupted": False,
        "undrawn": [],
    }


def write(path: Path | None, sweep: Sweep) -> None:
    """Write a sweep to its file, if it has one.

    Raises
    ------
    ValueError
        The file cannot be written.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sweep.to_json() + "\n", encoding="utf-8")
    except OSError as refusal:
        raise ValueError(f"cannot write {path}: {refusal.strerror}") from None


def run(
    ops: Sequence[str] | None = None,
    *,
    device: str = "cpu",
    seed: int = 1,
    cases: int = CASES,
    out: Path | None = None,
    against: Sequence[str] | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Draw, check and time random calls.

    Parameters
    ----------
    ops : sequence of str, optional
        Operators; the cases of one are those of all that share its room.
    device : {'cuda', 'cpu', 'host'}
        Where the arrays are.  'host' compares the default call on NumPy arrays with
        backend="cpu" and backend="cuda".
    seed : int
        The same seed gives the same cases.
    cases : int
        How many of each room.
    out : Path, optional
        A JSON file, written after each case.
    against : sequence of str, optional
        Peers by name; the default is every installed one.  'variants' compares with our own
        variants instead: what the default call loses where it chooses another one.
    progress : bool, optional
        Show progress; the default does so on a terminal.

    Returns
    -------
    Sweep
        After Ctrl-C, what was measured until then.
    """
    check(device, seed, cases)
    wanted = rooms(ops)
    rivals, names = opponents(device, against)
    about = describe(device, seed, cases, names)
    rows: list[Row] = []
    write(out, Sweep(rows, about))  # a file that cannot be written is an error at once
    try:
        with quiet(device):
            clock = Turns(device)
            work = drawn(wanted, device, seed, cases, about["undrawn"])
            for op, case, lib in track(work, cases * len(wanted), "sweep", progress):
                rows.append(measure(op, case, lib, rivals, clock))
                write(out, Sweep(rows, about))
    except KeyboardInterrupt:
        about["interrupted"] = True
    sweep = Sweep(rows, about)
    write(out, sweep)
    return sweep
