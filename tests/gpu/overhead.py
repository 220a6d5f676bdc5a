"""What a call costs the host: microseconds of small calls that a stream takes without waiting.

Every array library that is installed, gpuopt beside the library's own function; with torch
also the registered operators.  Prints one JSON object {array: {call: microseconds}}.
Usage: overhead.py [DEVICE]   ("cuda" without one; "cpu" times NumPy and torch on the CPU)
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gpuopt

CALLS, ROUNDS = 500, 21

Calls = dict[str, Callable[[], Any]]


def plain(device: str) -> dict[str, Calls]:
    """gpuopt's own arrays, or NumPy's."""
    host = np.ones(1024, np.float32)
    x = host if device == "cpu" else gpuopt.asdevice(host, backend=device)
    out = gpuopt.add(x, x)
    calls: Calls = {
        "gpuopt.reduce": lambda: gpuopt.reduce(x),
        "gpuopt.add": lambda: gpuopt.add(x, x),
        "gpuopt.add out=": lambda: gpuopt.add(x, x, out=out),
    }
    if device == "cpu":
        calls |= {"numpy.sum": lambda: np.sum(x), "numpy.add": lambda: np.add(x, x)}
    return {"numpy.ndarray" if device == "cpu" else "DeviceArray": calls}


def of_torch(device: str) -> dict[str, Calls]:
    import torch

    import gpuopt.torch as gt

    x = torch.ones(1024, device=device)
    out = torch.empty_like(x)
    return {
        "torch.Tensor": {
            "gpuopt.reduce": lambda: gpuopt.reduce(x),
            "gpuopt.add": lambda: gpuopt.add(x, x),
            "gpuopt.add out=": lambda: gpuopt.add(x, x, out=out),
            "torch.ops.gpuopt.add": lambda: torch.ops.gpuopt.add(x, x),
            "gpuopt.torch.add": lambda: gt.add(x, x),
            "gpuopt.torch.sum": lambda: gt.sum(x),
            "torch.sum": lambda: torch.sum(x),
            "torch.add": lambda: torch.add(x, x),
        }
    }


def of_cupy() -> dict[str, Calls]:
    import cupy

    x = cupy.ones(1024, np.float32)
    return {
        "cupy.ndarray": {
            "gpuopt.reduce": lambda: gpuopt.reduce(x),
            "gpuopt.add": lambda: gpuopt.add(x, x),
            "cupy.sum": lambda: x.sum(),
            "cupy.add": lambda: cupy.add(x, x),
        }
    }


def microseconds(calls: Calls, settle: Callable[[], Any]) -> dict[str, float]:
    """The median of rounds in which the calls take turns; queues are empty before each."""
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            settle()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            seen[name].append(1e6 * (time.perf_counter() - begin) / CALLS)
    return {name: round(statistics.median(times), 2) for name, times in seen.items()}


def main() -> None:
    device = (*sys.argv[1:], "cuda")[0]
    groups = plain(device)
    if importlib.util.find_spec("torch"):
        groups |= of_torch(device)
    if device != "cpu" and importlib.util.find_spec("cupy"):
        groups |= of_cupy()
    settle = gpuopt.synchronize if device != "cpu" else lambda: None
    print(json.dumps({kind: microseconds(calls, settle) for kind, calls in groups.items()},
                     indent=1))  # fmt: skip


if __name__ == "__main__":
    main()
