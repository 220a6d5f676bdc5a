"""The command line: python -m gpuopt info | demo | variants | bench | test | report.

Each takes --json, which prints one JSON document to standard output and nothing else.
Exit code 1: a result was wrong; 2: an argument or an environment variable is invalid, or
what it requests cannot run here.  The work of each command is in gpuopt.lab.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpuopt
from gpuopt import _core
from gpuopt._introspect import lacks_kernels
from gpuopt._table import Table


def gpu_line() -> str:
    """Return one sentence on whether the GPU is used, and if not, why."""
    from gpuopt.lab.run import device_name

    reason = _core.backends()["cuda"]
    return f"The GPU is off: {reason}." if reason else f"The GPU is on: {device_name('cuda')}."


def run_info(args: argparse.Namespace) -> int:
    """Describe versions, build, CPU, simulator and GPU."""
    from gpuopt.lab.run import device_name

    found = gpuopt.info()
    reason = _core.backends()["cuda"]
    found["cpu"] = {"name": device_name("cpu"), **found["cpu"]}
    found["gpu"] = {
        "name": None if reason else device_name("cuda"),
        "off_because": reason,
    }
    if args.json:
        print(json.dumps(found, indent=1, default=str))
        return 0
    print(Table([flat(found)], vertical=True))
    print(gpu_line())
    return 0


def flat(found: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested dicts as one, 'cpu threads' for found['cpu']['threads']."""
    lines: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            lines.update(flat(value, f"{above}{key} "))
        else:
            lines[above + key] = value
    return lines


def run_demo(args: argparse.Namespace) -> int:
    """Show one ladder, counted and timed, and check all of them, in seconds."""
    from gpuopt.lab.demo import demo
    from gpuopt.lab.screen import put

    seen = demo(args.op, args.verbose)
    if args.json:
        print(json.dumps(seen.to_dict(), indent=1))
    else:
        put(seen)
    return 0 if seen.ok else 1


def run_variants(args: argparse.Namespace) -> int:
    """List the variants of one operator or of all."""
    tables = [gpuopt.variants(op) for op in wanted(args.op)]
    if args.json:
        rows = [
            {"op": op, **row}
            for op, table in zip(wanted(args.op), tables, strict=True)
            for row in table
        ]
        print(json.dumps(rows, indent=1))
        return 0
    print("\n\n".join(map(repr, tables)))
    return 0


def run_bench(args: argparse.Namespace) -> int:
    """Time rungs beside the floor and the installed peers, or random calls."""
    from gpuopt.lab import run, workloads

    if args.sweep:
        return run_sweep(args)
    refuse(args, OF_SWEEP, "is an option of --sweep")
    ops = [args.op] if args.op else list(workloads.rooms())
    result = run.run(
        ops,
        backend=args.backend,
        names=args.workloads,
        dtype=args.dtype,
        variants=args.variants[0] if len(args.variants) == 1 else args.variants,
        max_time=args.max_time,
    )
    print(result.to_json() if args.json else result)
    for error in result.errors:
        print(error, file=sys.stderr)
    return 1 if result.errors else 0


# The options of one of the two ways of `bench`, with their defaults.
OF_SWEEP: dict[str, Any] = dict.fromkeys(("device", "seed", "cases", "out", "peers"))
OF_RUNGS: dict[str, Any] = {
    "backend": None,
    "workloads": None,
    "dtype": None,
    "variants": ["all"],
    "max_time": 1.0,
}
INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


def refuse(args: argparse.Namespace, options: dict[str, Any], why: str) -> None:
    """Raise ValueError if an option is given that the command would ignore."""
    for name, default in options.items():
        if getattr(args, name) != default:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def run_sweep(args: argparse.Namespace) -> int:
    """Check and time random calls beside the best of the installed libraries."""
    from gpuopt.lab import sweep

    refuse(args, OF_RUNGS, "is no option of --sweep")
    gpu = _core.backends()["cuda"] is None
    found = sweep.run(
        [args.op] if args.op else None,
        device=args.device or ("cuda" if gpu else "cpu"),
        seed=1 if args.seed is None else args.seed,
        cases=sweep.CASES if args.cases is None else args.cases,
        out=args.out,
        against=args.peers,
    )
    if args.json:
        print(found.to_json())
    else:
        print(found)
        if below := found.below():
            print(f"\n{below}")
    for error in found.errors:
        print(error, file=sys.stderr)
    return 1 if found.errors else INTERRUPTED if found.about["interrupted"] else 0


def run_test(args: argparse.Namespace) -> int:
    """Check every variant that can run here against gpuopt.ref, on small arrays."""
    from gpuopt.lab import workloads
    from gpuopt.lab.smoke import smoke

    ops = [args.op] if args.op else list(workloads.rooms())
    table = smoke(ops)
    failed = sum(table.column("failed")) if table else 0
    if args.json:
        print(table.to_json())
    else:
        print(table)
        checked = sum(table.column("checked")) if table else 0
        print(f"{checked} results checked, {failed} wrong")
        if unchecked := [op for op in ops if lacks_kernels(op)]:
            print(
                f"Not checked in the simulator until `make build` adds their kernels: "
                f"{', '.join(unchecked)}"
            )
        print(gpu_line())
    return 1 if failed else 0


def run_report(args: argparse.Namespace) -> int:
    """Write one HTML page: ladders, roofline, peers, counts, environment."""
    from gpuopt.lab import report

    size = report.write(args.file, ops=args.ops, max_time=args.max_time)
    if args.json:
        print(json.dumps({"file": str(args.file), "bytes": size}))
    else:
        print(f"{args.file}: {size >> 10} KiB")
    return 0


def wanted(op: str | None) -> list[str]:
    """Return the operators a command is about."""
    return [op] if op else list(gpuopt.ops())


def dtypes() -> tuple[str, ...]:
    """Return every dtype that a variant of any operator takes."""
    rows = (row for op in gpuopt.ops() for row in _core.variants(op))
    return tuple(sorted({dtype for row in rows for dtype in row["dtypes"]}))


def seconds(text: str) -> float:
    """Parse a duration; argparse's message shows this function's name."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def check_environment() -> None:
    """Raise ValueError if an environment variable has an invalid value."""
    _core.default_backend()
    for reason in _core.backends().values():
        if reason and reason.startswith("GPUOPT_"):
            raise ValueError(reason)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with argparse's message if it is invalid."""
    from gpuopt.lab import workloads

    parser = argparse.ArgumentParser(prog="python -m gpuopt", description=gpuopt.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], int]) -> Any:
        text = run.__doc__ or ""
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="JSON on standard output")
        sub.set_defaults(run=run)
        return sub

    command("info", run_info)
    sub = command("demo", run_demo)
    rooms = workloads.rooms()
    sub.add_argument("op", nargs="?", choices=rooms, default="reduce", metavar="ladder",
                     help=f"one of {', '.join(rooms)}")  # fmt: skip
    sub.add_argument(
        "--verbose", action="store_true", help="every result, every ladder's times"
    )
    for name, run in (("variants", run_variants), ("bench", run_bench), ("test", run_test)):
        sub = command(name, run)
        known = dict.fromkeys((*gpuopt.ops(), *(rooms if name == "bench" else ())))
        sub.add_argument("op", nargs="?", choices=tuple(known), help="default: all")
        if name == "bench":
            sub.add_argument("--backend", choices=("cpu", "cuda"))
            sub.add_argument("--workloads", nargs="+", help="by name, such as 'sum 2^20'")
            sub.add_argument("--dtype", choices=dtypes(), metavar="dtype", help="only this")
            sub.add_argument("--variants", nargs="+", default=["all"], help="all, auto, names")
            sub.add_argument("--max-time", type=seconds, default=1.0, help="seconds each")
            sub.add_argument("--sweep", action="store_true", help="random calls instead")
            sub.add_argument("--device", help="sweep: cuda, cpu or host (NumPy arrays, a GPU)")
            sub.add_argument("--seed", type=int, help="sweep: which calls; 1")
            sub.add_argument("--cases", type=int, help="sweep: how many of each room; 40")
            sub.add_argument("--peers", nargs="+", help="sweep: libraries, or 'variants'")
            sub.add_argument("--out", type=Path, help="sweep: a JSON file, kept up to date")
    sub = command("report", run_report)
    sub.add_argument("file", type=Path, help="the page, such as out.html")
    sub.add_argument("ops", nargs="*", metavar="ladder",
                     help=f"some of {', '.join(rooms)}; default: all")  # fmt: skip
    sub.add_argument("--max-time", type=seconds, default=25.0,
                     help="seconds for all measurements together; 25")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    args = parse(arguments)
    try:
        check_environment()
        return int(args.run(args))
    except (ValueError, RuntimeError, MemoryError) as error:
        print(f"gpuopt {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    # A reader that closes the pipe, such as head, ends this program as it ends other tools.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
