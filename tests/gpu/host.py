"""Host arrays at bus speed: the sum of 1 GiB float32 from a plain NumPy array.

Prints one JSON object: GB/s of the whole call, and copy and kernel time apart.
"""

from __future__ import annotations

import json
import statistics
import time

import numpy as np

import gpuopt

REPEATS = 9


def main() -> None:
    x = np.random.default_rng(0).standard_normal(1 << 28, dtype=np.float32)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = gpuopt.reduce(x, backend="cuda")
        times.append(time.perf_counter() - start)
    gpuopt.measure_calls(True)
    gpuopt.reduce(x, backend="cuda")
    wanted = float(x.sum(dtype=np.float64))
    assert abs(float(result) - wanted) <= 2.0**-22 * float(np.abs(x).sum(dtype=np.float64))
    row = {
        "workload": "sum of 1 GiB float32, NumPy array",
        "gb_per_second": x.nbytes / statistics.median(times) / 1e9,
        "best_gb_per_second": x.nbytes / min(times) / 1e9,
        "last_call": gpuopt.last_call(),
    }
    print(json.dumps(row, default=str))


if __name__ == "__main__":
    main()
