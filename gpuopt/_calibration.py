"""The costs of this machine, by which csrc/bind/choose.c places calls on NumPy arrays.

Where nobody names a backend and there is a GPU, such a call runs where it is estimated to be
done first.  The first call that needs the costs calls load(), which reads them from a file or
measures them, in a fraction of a second, and writes the file.  csrc/bind/weigh.c says what they
mean.  Order: one call of each operator, measuring, the machine, the file, load.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core

FORMAT = 1  # of the file
ELEMENTS = 1 << 20  # of a probe: 4 MiB of float32, a size at which the choice matters
BUS_ELEMENTS = 1 << 22
PASSES = 3
SCALARS = (
    *("cpu_call_s", "cpu_gb_per_s", "cpu_gflop_per_s"),
    *("device_call_s", "device_gb_per_s", "device_gflop_per_s"),
    *("up_gb_per_s", "down_gb_per_s"),
)

Call = tuple[tuple[Any, ...], dict[str, Any]]

# ---- one call of each operator ----


def _ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def _scattered(n: int, below: int) -> np.ndarray[Any, Any]:
    """n indices in an order without a pattern that a cache could use (Knuth's hash)."""
    return np.arange(n, dtype=np.int64) * 2654435761 % below


def _grid(n: int, axes: int) -> tuple[int, ...]:
    """A shape (4, channels, ...) of about n elements with `axes` equal axes of power of two."""
    side = 1 << max(1, (max(n // 16, 1).bit_length() - 1) // axes)
    return (4, max(n // (4 * side**axes), 1), *[side] * axes)


def _pool_backward(axes: int) -> Callable[[int], Call]:
    def call(n: int) -> Call:
        x = _ones(*_grid(n, axes))
        pool = getattr(_core, f"max_pool{axes}d")
        y, indices = pool(x, 2, return_indices=True, backend="cpu")
        return (np.ones_like(y), indices, x.shape), {"kernel_size": 2}

    return call


def _upsampled(n: int) -> Call:
    shape = _grid(n // 4, 2)
    large = (*shape[:2], 2 * shape[2], 2 * shape[3])
    return (_ones(*large), shape), {"scale": 2.0}


# Sizes of convolutions are such that they take milliseconds on one CPU thread, too.
PROBES: dict[str, Callable[[int], Call]] = {
    "partition_reduce": lambda n: ((_ones(n), (0, 3)), {}),
    "mean_matvec": lambda n: ((_ones(max(n // 8192, 1), 64, 128), _ones(64, 64)), {}),
    "scatter_add": lambda n: ((_ones(n), _scattered(n, 1024), 1024), {}),
    "index_add": lambda n: (
        (_ones(n // 64, 64), _scattered(n // 64, n // 64), _ones(n // 64, 64)),
        {},
    ),
    "upsample_nearest": lambda n: ((_ones(*_grid(n // 4, 2)),), {"scale": 2.0}),
    "upsample_nearest_backward": _upsampled,
    "convolve": lambda n: ((_ones(n // 4), _ones(31)), {}),
    "causal_conv1d": lambda n: ((_ones(1, n // 2048, 512), _ones(n // 2048, 64)), {}),
    "causal_conv1d_backward": lambda n: (
        (_ones(1, n // 2048, 512), _ones(1, n // 2048, 512), _ones(n // 2048, 64)),
        {},
    ),
    "causal_conv1d_update": lambda n: (
        (_ones(n // 4, 1, 3), _ones(n // 4, 1), _ones(1, 4)),
        {},
    ),
    **{
        f"max_pool{axes}d": lambda n, axes=axes: ((_ones(*_grid(n, axes)), 2), {})  # type: ignore[misc]
        for axes in (1, 2, 3)
    },
    **{f"max_pool{axes}d_backward": _pool_backward(axes) for axes in (1, 2, 3)},
}


def probe(op: str, n: int) -> Call:
    """Arguments of a typical call with about n elements, n a power of two from 4096 on.

    An operator that is not in PROBES takes arrays of one shape, and other required
    arguments that are dtypes.
    """
    if op in PROBES:
        return PROBES[op](n)
    required = [arg for arg in _core.describe(op)["args"] if arg["preset"] is None]
    return tuple(_ones(n) if arg["kind"] == "array" else "float64" for arg in required), {}


# ---- measuring ----


def _best(call: Callable[[], Any], passes: int) -> float:
    """The least of some times in seconds, after a call that warms up."""
    times = []
    for _ in range(1 + passes):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return max(min(times[1:]), 1e-9)


def _best_parts(call: Callable[[], Any], passes: int) -> dict[str, float]:
    """The least times of the parts of a call by copies, in seconds."""
    parts = dict.fromkeys(("upload_ms", "kernel_ms", "download_ms"), np.inf)
    for _ in range(1 + passes):
        call()
        last = _core.last_call() or {}
        parts = {key: min(value, last[key]) for key, value in parts.items()}
    return {key: max(1e-3 * float(value), 1e-9) for key, value in parts.items()}


def _side(
    times: dict[str, float], work: dict[str, tuple[float, float]]
) -> tuple[float, float, dict[str, float]]:
    """The highest rates of any operator, and how many times as long each one takes."""
    gb = max(work[op][0] / seconds for op, seconds in times.items())
    gflop = max(work[op][1] / seconds for op, seconds in times.items())
    factors = {
        op: seconds / max(work[op][0] / gb, work[op][1] / gflop)
        for op, seconds in times.items()
    }
    return gb * 1e-9, gflop * 1e-9, factors


def measure(
    backend: str = "cuda",
    elements: int = ELEMENTS,
    bus_elements: int = BUS_ELEMENTS,
    passes: int = PASSES,
) -> dict[str, Any]:
    """Measure the costs of the CPU and of a device; see csrc/bind/weigh.h."""
    before = _core.measure_calls(True)
    try:
        one, large = _ones(1), _ones(bus_elements)
        cpu_call = _best(lambda: _core.negative(one, backend="cpu"), passes)
        device_call = _best(lambda: _core.negative(one, backend=backend), passes)
        wall = _best(lambda: _core.negative(large, backend=backend), passes)
        parts = _best_parts(lambda: _core.negative(large, backend=backend), passes)
        copies = parts["upload_ms"] + parts["download_ms"]
        # What the host spends on a copy, too, such as touching new pages of the result.
        bus = max(wall - device_call - parts["kernel_ms"], copies)
        cpu: dict[str, float] = {}
        device: dict[str, float] = {}
        work: dict[str, tuple[float, float]] = {}
        for op in _core.ops():
            call = getattr(_core, op)
            args, kwargs = probe(op, elements)
            row = _core.plan(op, *args, backend="cpu", **kwargs)
            work[op] = (row["read_bytes"] + row["written_bytes"], row["flops"])
            # ruff: noqa: B023 -- each lambda is called before the loop goes on
            whole = _best(lambda: call(*args, backend="cpu", **kwargs), passes)
            cpu[op] = max(whole - cpu_call, whole / 10)
            parts_of = _best_parts(lambda: call(*args, backend=backend, **kwargs), passes)
            device[op] = parts_of["kernel_ms"]
    finally:
        _core.measure_calls(before)
    cpu_gb, cpu_gflop, cpu_factors = _side(cpu, work)
    device_gb, device_gflop, device_factors = _side(device, work)
    return {
        "backend": backend,
        "cpu_call_s": cpu_call,
        "cpu_gb_per_s": cpu_gb,
        "cpu_gflop_per_s": cpu_gflop,
        "device_call_s": device_call,
        "device_gb_per_s": device_gb,
        "device_gflop_per_s": device_gflop,
        "up_gb_per_s": 1e-9 * large.nbytes * copies / (bus * parts["upload_ms"]),
        "down_gb_per_s": 1e-9 * large.nbytes * copies / (bus * parts["download_ms"]),
        "cpu_factors": cpu_factors,
        "device_factors": device_factors,
    }


# ---- the machine ----


def _line(path: str, key: str) -> str:
    """The first line of a file that begins with `key`, or ""."""
    with (
        contextlib.suppress(OSError),
        Path(path).open(encoding="utf-8", errors="replace") as file,
    ):
        for line in file:
            if line.startswith(key):
                return line.strip()
    return ""


def machine(backend: str = "cuda") -> dict[str, Any]:
    """What the costs depend on; costs of another machine are not used."""
    return {
        "gpuopt": _core.build_info()["version"],
        "device": _core._device_name(backend),
        "driver": _line("/proc/driver/nvidia/version", "NVRM"),
        "cpu": _line("/proc/cpuinfo", "model name"),
        "threads": _core.get_num_threads(),
        "instructions": _core.cpu_isa(),
    }


# ---- the file ----


def file_for(described: dict[str, Any]) -> Path | None:
    """GPUOPT_CALIBRATION, else a file of this machine in the cache directory; None: no home."""
    if setting := os.environ.get("GPUOPT_CALIBRATION"):
        return Path(setting)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    text = json.dumps(described, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return folder / "gpuopt" / f"calibration-{key}.json"


def read(path: Path, described: dict[str, Any]) -> dict[str, Any] | None:
    """The costs in a file; None if there are none, or those of another machine."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    rates = found.get("rates")
    return rates if found.get("machine") == described and isinstance(rates, dict) else None


def write(path: Path, described: dict[str, Any], rates: dict[str, Any]) -> None:
    """Write the file, at once or not at all; a directory that is read-only is no error."""
    text = json.dumps({"format": FORMAT, "machine": described, "rates": rates}, indent=1)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise


# ---- load ----


def _use(rates: dict[str, Any] | None, backend: str) -> bool:
    """Whether these are costs of the backend, which are then in use."""
    if rates is None or rates.get("backend") != backend:
        return False
    try:
        _core._set_rates(rates)
    except (TypeError, ValueError):  # the file is broken
        return False
    return True


def load(backend: str = "cuda", **sizes: int) -> None:
    """Make the costs known: from the file, else by measure(backend, **sizes)."""
    if os.environ.get("GPUOPT_CALIBRATION") == "off":
        _core._set_rates("off")
        return
    described = machine(backend)
    path = file_for(described)
    if path is not None and _use(read(path, described), backend):
        return
    try:
        rates = measure(backend, **sizes)
    except Exception as error:  # whatever it is, the call itself can go on
        _core._set_rates("off")
        warnings.warn(
            "the costs of this machine could not be measured, so NumPy arrays run on the GPU: "
            f"{error}",
            _core.PerformanceWarning,
            stacklevel=2,
        )
        return
    _core._set_rates(rates)
    if path is not None:
        write(path, described, rates)


def state() -> dict[str, Any]:
    """For gpuopt.info(): the file and the costs in use, without the factors."""
    reason = _core.cuda_unavailable_reason()
    rates = _core._rates()
    if rates is None and reason is not None:
        return {"rates": f"not needed: {reason}"}
    shown = {key: rates[key] for key in SCALARS} if isinstance(rates, dict) else rates
    path = file_for(machine()) if reason is None and rates != "off" else None
    return {
        "file": str(path) if path else None,
        "rates": "measured by the first call that needs them" if shown is None else shown,
    }
