"""`python -m benchmarks`: measure on this machine and write JSON.

Exit code 1 if one of our results is wrong, 2 if a peer's is or if an argument is invalid.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuopt.lab import run, workloads


def main(arguments: list[str] | None = None) -> int:
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--ops", nargs="+", help="operators; default: all with workloads")
    parser.add_argument("--backend", choices=("cpu", "cuda"), help="default: gpuopt's own")
    parser.add_argument("--workloads", nargs="+", help="only these, by name")
    parser.add_argument("--dtype", help="only this dtype")
    parser.add_argument("--variants", nargs="+", default=["all"], help="all, auto or names")
    parser.add_argument("--peers", nargs="*", help="default: every installed one")
    parser.add_argument("--max-time", type=float, default=2.0, help="seconds per workload")
    parser.add_argument("--quick", action="store_true", help="5 repetitions each")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    args = parser.parse_args(arguments)

    ops = args.ops or workloads.rooms()
    variants = args.variants[0] if len(args.variants) == 1 else args.variants
    try:
        result = run.run(
            ops,
            backend=args.backend,
            names=args.workloads,
            dtype=args.dtype,
            variants=variants,
            against=args.peers,
            max_time=args.max_time,
            repeats=5 if args.quick else None,
        )
    except (ValueError, RuntimeError) as refusal:
        parser.error(str(refusal))
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(result.to_json() + "\n", encoding="utf-8")
    print(result.to_json() if args.json else result)
    for error in result.errors:
        print(error, file=sys.stderr)
    if any(row["error"] for row in result):
        return 1
    return 2 if result.errors else 0


if __name__ == "__main__":
    sys.exit(main())
