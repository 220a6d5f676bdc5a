"""What a user waits for first: the import, the device, and each operator's first call.

Every operator runs in fresh processes; prints one JSON object with the medians in ms.
Usage: first_calls.py [BACKEND]   ("cuda" without one)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 5
PARTS = ("numpy_import", "import", "device", "first", "second")

# In the child: an operator's valid call of tests/cases, small enough that a launch is all.
CHILD = """
import json, sys, time
sys.path.insert(0, "tests")
op, backend = sys.argv[1:]
clock = time.perf_counter
times = [clock()]
import numpy
times.append(clock())
import gpuopt
times.append(clock())
gpuopt.use(backend)
if backend != "cpu":
    gpuopt.memory_info()
times.append(clock())
import cases
args, kwargs, _ = cases.ENTRIES[op].valid()
gap = clock() - times[-1]
for _ in range(2):
    getattr(gpuopt, op)(*args, **kwargs)
    times.append(clock() - gap)
print(json.dumps([1e3 * (b - a) for a, b in zip(times, times[1:])]))
"""


def parts_of(op: str, backend: str) -> dict[str, float]:
    """The median ms of each part, over fresh processes."""
    runs = []
    for _ in range(REPEATS):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, op, backend],
            capture_output=True, text=True, check=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        runs.append(json.loads(done.stdout))
    medians = map(statistics.median, zip(*runs, strict=True))
    return dict(zip(PARTS, (round(ms, 3) for ms in medians), strict=True))


def main() -> None:
    import gpuopt

    backend = (*sys.argv[1:], "cuda")[0]
    ladders = [op for op in gpuopt.ops() if op != "elementwise"]
    print(json.dumps({op: parts_of(op, backend) for op in ladders}, indent=1))


if __name__ == "__main__":
    main()
