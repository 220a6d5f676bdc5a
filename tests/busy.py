"""Runs the tests of threads, forks and clocks ten times beside a program that keeps every
core busy.  `make busy` runs this file; conftest.py selects the tests, and arguments for
pytest replace that selection.

Exit code 0: all of them passed every time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 10
WORKERS = 3  # of pytest per core: the tests compete with each other, too
TESTS = Path(__file__).resolve().parent


def rounds(arguments: list[str]) -> int:
    """Return the number of rounds in which a test failed."""
    workers = WORKERS * len(os.sched_getaffinity(0))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"-n{workers}"]
    failed = 0
    for turn in range(1, ROUNDS + 1):
        code = subprocess.run([*pytest, *arguments], check=False).returncode
        print(f"round {turn}: {'passed' if code == 0 else f'exit code {code}'}", flush=True)
        failed += code != 0
    return failed


def main(arguments: list[str]) -> int:
    spin = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        failed = rounds(arguments or [str(TESTS), "-m", "concurrent"])
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    print(f"{ROUNDS} rounds, {failed} with failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
