"""The clock of drawn cases: a few seconds for each is too much, so a fraction has to do.

Order: the CPU's clock, the turns.  The calls of a case take turns, another one is first in
every round, and caches are cold; small work on a CPU is timed in a loop of calls.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuopt.lab.timer import Call, Clock, device_clock

__all__ = ["PausingClock", "Turns"]

PAUSE = 2e-3  # seconds, in which threads of the call before stop spinning (not OpenBLAS: 25 ms)
FLUSH = 1 << 27  # bytes
SMALL = 1 << 20  # bytes; a CPU's caches hold less, and users call it on data they just made
SLOW = 60e-3  # seconds; a call that takes longer at first is timed in two rounds only...
ENDLESS = 1.0  # ... and one that takes so long is not called again
BUDGET = 0.2  # seconds for all rounds of a case
FEWEST, MOST = 5, 40  # rounds of a case
WARM_ROUNDS = 15
WARM_CALLS = 30  # in a row, at most, and...
WARM_SECONDS = 4e-3  # ...for so long


class PausingClock:
    """time.perf_counter_ns around a call, after a pause and a read of other memory.

    A call is made once more before that, so that what it follows is always itself: the
    threads, and the pages its result is written to, are left by the call before.
    """

    method = "cpu"

    def __init__(self) -> None:
        self._flush = np.ones(FLUSH // 4, np.float32)

    def round(self, calls: Sequence[Call], cold: bool) -> list[float]:
        """Run every call once, in order; return their times in milliseconds."""
        times = []
        for call in calls:
            if cold:
                call()
                time.sleep(PAUSE)
                self._flush.max()
            start = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - start) * 1e-6)
        return times

    def wait(self) -> None:
        """Do nothing: a CPU call has finished when it returns."""


class Turns:
    """Times the calls of a case side by side.

    Parameters
    ----------
    device : {'cpu', 'cuda', 'host'}
        'cuda' counts events on the GPU, the others the wall's seconds.
    """

    def __init__(self, device: str) -> None:
        self.on_device = device == "cuda"
        self.clock: Clock = device_clock() if self.on_device else PausingClock()

    def run(self, calls: Mapping[str, Call], nbytes: int) -> dict[str, float]:
        """Return the median milliseconds of every call."""
        first = {name: self._first(call) for name, call in calls.items()}
        times = {name: 1e3 * took for name, took in first.items() if took > ENDLESS}
        calls = {name: call for name, call in calls.items() if name not in times}
        slow = {name: took > SLOW for name, took in first.items()}
        if not calls:
            return times
        warm = not self.on_device and nbytes < SMALL
        return {**times, **medians(self._warm(calls) if warm else self._cold(calls, slow))}

    def _first(self, call: Call) -> float:
        """Return the seconds of a first call."""
        start = time.perf_counter()
        call()
        self.clock.wait()
        return time.perf_counter() - start

    def _cold(self, calls: Mapping[str, Call], slow: Mapping[str, bool]) -> dict[str, Any]:
        """Return samples of calls with cold caches, in rounds."""
        samples: dict[str, list[float]] = {name: [] for name in calls}
        start, done = time.perf_counter(), 0
        while done < MOST and (done < FEWEST or time.perf_counter() - start < BUDGET):
            names = [n for n in rotated(list(calls), done) if done < 2 or not slow[n]]
            times = self.clock.round([calls[name] for name in names], True)
            for name, took in zip(names, times, strict=True):
                samples[name].append(took)
            done += 1
        return samples

    def _warm(self, calls: Mapping[str, Call]) -> dict[str, list[float]]:
        """Return samples of what a call takes in a loop of calls."""
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for done in range(WARM_ROUNDS):
            for name in rotated(list(calls), done):
                samples[name].append(in_a_loop(calls[name]))
        return samples


def in_a_loop(call: Callable[[], Any]) -> float:
    """Return the milliseconds of a call among many."""
    start, done = time.perf_counter(), 0
    while done < WARM_CALLS and (done == 0 or time.perf_counter() - start < WARM_SECONDS):
        call()
        done += 1
    return 1e3 * (time.perf_counter() - start) / done


def rotated(names: list[str], by: int) -> list[str]:
    """Return the names with another one first."""
    first = by % len(names)
    return names[first:] + names[:first]


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each."""
    return {name: statistics.median(kept) for name, kept in samples.items()}
