"""`python -m benchmarks.sweep`: sweeps with seeds made of the commit, kept in results/.

Nobody chooses the seeds, so nobody can choose the cases.  Each sweep is a file
results/sweep-<machine>-<seed>.json; `make readme` shows them.  Exit code 1 if one of our
results is wrong, 2 if an argument is invalid, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from gpuopt import _core
from gpuopt.lab import run, sweep

RESULTS = Path(__file__).resolve().parents[1] / "results"
LARGEST = 100_000  # a seed that a person can type


def seeds(commit: str, count: int) -> list[int]:
    """Return seeds made of the first ten digits of a commit's hash."""
    text = commit.rstrip("+")[:10]
    digests = (hashlib.sha256(f"{text} {k}".encode()).digest() for k in range(count))
    return [int.from_bytes(digest[:8], "big") % LARGEST for digest in digests]


def main(arguments: list[str] | None = None) -> int:
    """Run the sweeps of this commit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("ops", nargs="*", help="operators; default: all")
    parser.add_argument("--device", help="cuda, cpu or host; default: the GPU if there is one")
    parser.add_argument("--seeds", type=int, default=3, help="how many sweeps")
    parser.add_argument("--cases", type=int, default=sweep.CASES, help="of each room")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="default: results/")
    args = parser.parse_args(arguments)
    device = args.device or ("cpu" if _core.backends()["cuda"] else "cuda")
    device_name = run.device_name("cpu" if device == "cpu" else "cuda")
    name = sweep.machine({"device": device_name, "mode": device})
    code = 0
    for seed in seeds(run.commit(), args.seeds):
        path = args.folder / f"sweep-{name}-{seed}.json"
        try:
            found = sweep.run(
                args.ops or None, device=device, seed=seed, cases=args.cases, out=path
            )
        except (ValueError, RuntimeError) as refusal:
            parser.error(str(refusal))
        print(f"{found}\n{path}\n", flush=True)
        for error in found.errors:
            print(error, file=sys.stderr)
            code = 1
        if found.about["interrupted"]:
            return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
