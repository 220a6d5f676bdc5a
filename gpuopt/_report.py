"""What a call of gpuopt.stream did: how long each stage was under way, and what it moved."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

__all__ = ["STAGES", "Report", "Stage"]

STAGES = ("read", "bus", "compute", "write")


class Stage:
    """How long one kind of work was under way, in any thread, and how much it moved."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.active, self.since, self.seconds, self.bytes = 0, 0.0, 0.0, 0

    def __enter__(self) -> Stage:
        with self.lock:
            if not self.active:
                self.since = time.perf_counter()
            self.active += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.active -= 1
            if not self.active:
                self.seconds += time.perf_counter() - self.since

    def moved(self, count: int) -> None:
        with self.lock:
            self.bytes += count


@dataclass(frozen=True)
class Report:
    """What a call of gpuopt.stream did, and which stage bounds it.

    For each stage - 'read' from the sources, 'bus' to and from the device, 'compute',
    'write' of results - `seconds` says how long it was under way in any thread, and `bytes`
    what it moved.  Stages overlap: the one that was under way longest bounds the call.
    """

    op: str
    backend: str
    elapsed: float
    """Seconds of the whole call."""
    blocks: int
    block_bytes: int
    """The longest block of one source."""
    seconds: dict[str, float]
    bytes: dict[str, int]
    marks: tuple[tuple[float, int], ...] = field(repr=False)
    """Seconds since the beginning and bytes read, whenever a block was computed."""

    def rate(self, stage: str) -> float:
        """Bytes per second of 'read', 'bus', 'compute' or 'write' while it was under way."""
        return self.bytes[stage] / self.seconds[stage] if self.seconds[stage] else 0.0

    @property
    def bound(self) -> str:
        """The stage that was under way longest."""
        return max(STAGES, key=lambda stage: self.seconds[stage])

    def __repr__(self) -> str:
        total = self.bytes["read"]
        speed = total / self.elapsed / 1e9 if self.elapsed else 0
        lines = [
            f"stream('{self.op}') on {self.backend}: {total / 1e9:.3g} GB in "
            f"{self.elapsed:.3g} s, {speed:.3g} GB/s, bound by '{self.bound}'"
        ]
        for stage in STAGES:
            size, seconds = self.bytes[stage] / 1e9, self.seconds[stage]
            if size:
                speed = self.rate(stage) / 1e9
                lines.append(f"  {stage:8}{size:10.3g} GB{seconds:10.3g} s{speed:10.3g} GB/s")
        return "\n".join(lines)
