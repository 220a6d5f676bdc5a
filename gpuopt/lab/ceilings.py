"""What the machine can do at best: read and copy bandwidth, measured in the same run.

Order: the ceilings, the CPU's, the GPU's, the floor of a call.  The GPU's read kernel is in
read.cu and compiled when it is needed; without nvcc the read ceiling is unknown.
"""

from __future__ import annotations

import ctypes
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt.lab import nvcc
from gpuopt.lab.timer import CupyClock, TorchClock, last_level_cache, measure

__all__ = ["Ceilings", "Floor", "cpu_ceilings", "device_ceilings", "floor"]

GIGA = 1e9

# An H200's ceilings in GB/s, from large runs on an otherwise idle GPU; floors use them, so
# that they are comparable between result files (copy counts bytes read + written).
H200 = {"copy": 4300.0, "read": 4500.0}

# At most, per buffer: a virtual machine may report the whole cache of a large host (such as
# 480 MiB), of which it has only a share; eight times that would be 12 GB in three buffers.
CPU_BYTES = 1 << 30

DEVICE_BYTES = 1 << 30  # per buffer: 16 times the L2 of an H200


@dataclass(frozen=True)
class Ceilings:
    """Bandwidth in GB/s: reading alone, and copying (bytes read plus bytes written)."""

    read_gbs: float | None
    copy_gbs: float | None
    how: str

    def best(self, other: Ceilings) -> Ceilings:
        """Return the higher of each of two measurements."""

        def higher(a: float | None, b: float | None) -> float | None:
            known = [gbs for gbs in (a, b) if gbs is not None]
            return max(known, default=None)

        return Ceilings(
            higher(self.read_gbs, other.read_gbs),
            higher(self.copy_gbs, other.copy_gbs),
            f"{self.how}, before and after",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON takes."""
        return asdict(self)


@dataclass(frozen=True)
class Floor:
    """The least time a call can take, in ms, and the ceiling it was computed from."""

    ms: float | None
    source: str


def cpu_ceilings(repeats: int = 7) -> Ceilings:
    """Measure this machine's memory with as many threads as gpuopt uses."""
    size = min(max(8 * last_level_cache(), 1 << 28), CPU_BYTES)
    threads = _core.get_num_threads()
    source = np.ones(size // 8, np.int64)
    target = np.zeros_like(source)
    bounds = np.linspace(0, source.size, threads + 1).astype(int)
    parts = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:

        def copy() -> None:
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))

        fastest = measure(copy, cold=False, repeats=repeats).min
    target = source[:0]  # the copy's memory is free again
    reads = min(repeats, 5)
    read = max(_core.read_bandwidth(size) for _ in range(reads))
    return Ceilings(
        read_gbs=read,
        copy_gbs=2 * size / GIGA / (fastest * 1e-3),
        how=f"{threads} threads over {size >> 20} MiB, best of {reads} reads "
        f"and {repeats} copies",
    )


def device_ceilings(clock: TorchClock | CupyClock) -> Ceilings:
    """Measure the GPU's memory with a copy by `clock`'s library and our read kernel."""
    host = np.random.default_rng(0).integers(0, 1 << 62, DEVICE_BYTES // 8, np.int64)
    source = clock.upload(host)
    target = clock.upload(np.zeros_like(host))

    def copy() -> None:
        target[:] = source

    copied = measure(copy, device="cuda", cold=False, repeats=15, clock=clock).median
    how = f"{DEVICE_BYTES >> 20} MiB, median of 15"
    read_gbs = None
    try:
        library = nvcc.build(Path(__file__).with_name("read.cu"))
    except RuntimeError as error:
        how += f"; no read ceiling: {error}"
    else:
        read_kernel = library.gpo_lab_read
        read_kernel.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        out = clock.upload(np.zeros(1, np.int64))
        pointer, sink = nvcc.address(source), nvcc.address(out)

        def read() -> None:
            nvcc.check(read_kernel(pointer, DEVICE_BYTES, sink))

        took = measure(read, device="cuda", cold=False, repeats=15, clock=clock).median
        read_gbs = DEVICE_BYTES / GIGA / (took * 1e-3)
    return Ceilings(read_gbs, 2 * DEVICE_BYTES / GIGA / (copied * 1e-3), how)


def floor(bytes_moved: float, reads_only: bool, ceilings: Ceilings, device: str) -> Floor:
    """Return the least time for so many bytes on the named device."""
    kind = "read" if reads_only else "copy"
    if "H200" in device:
        gbs: float | None = H200[kind]
        source = f"{kind} {gbs:.0f} GB/s (H200)"
    else:
        gbs = ceilings.read_gbs if reads_only else ceilings.copy_gbs
        source = f"{kind} {gbs:.1f} GB/s (measured)" if gbs else f"{kind} ceiling unknown"
    return Floor(bytes_moved / (gbs * GIGA) * 1e3 if gbs else None, source)
