"""The timer: how long a call takes with cold caches, beside others, and how sure that is.

Order: a measurement, the clocks (CPU, then the GPU's), the loop that interleaves the
candidates.  See bench.py for compare(), ceilings.py for ceilings, workloads.py for what
is timed.

Every repetition starts with cold caches: users seldom call an operator on data they have
just touched, and a warm last-level cache hides memory traffic.  Candidates take turns
inside each repetition, so that a drift of the clock rate, or load from other programs,
affects all of them equally.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import gpuopt

__all__ = [
    "Clock",
    "EventClock",
    "Timing",
    "current_stream",
    "device_clock",
    "measure",
    "measure_together",
]

Call = Callable[[], Any]

WARM_UPS = 3  # calls before the first timed one: module load, pools, page faults
SHARE = 20  # a call that takes more than max_time / SHARE is timed in one round only...
SLOW = 10  # ...if it is that many times slower than the fastest, not for one bad sample
FEWEST = 7  # no median of fewer repetitions counts as stable
STABLE = 0.01  # half-width of the median's 95 % interval, relative to the median
SETTLED = 0.05  # beyond this half-width no number is shown
FEWEST_OF_INTERVAL = 6  # the whole range of fewer samples holds the median less surely
LARGEST_FLUSH = 1 << 28  # bytes; bounds a repetition on hosts with huge caches
DEVICE_FLUSH = 1 << 28  # bytes, at least; about 75 us on an H200, which hides launches
HEAD_START = 4  # extra flushes before a round: the first launches after a wait are slow
GRAPH_CALLS = 20  # calls in one replayed graph
REST = 12e-3  # seconds between two readings of the CPU time: more than a tick
IDLE = 0.2  # share of a core that an idle process uses, at most
LONGEST_REST = 0.5  # seconds; a process with other busy threads is never idle


@dataclass(frozen=True)
class Timing:
    """Times of one call in milliseconds: median, spread, and method.

    low, high : the 95 % interval of the median; None if there are too few samples
    """

    median: float
    p20: float
    p80: float
    min: float
    n: int
    method: str
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, samples: Sequence[float], method: str) -> Timing:
        """Summarise samples in milliseconds."""
        ordered = sorted(samples)
        low, high = interval(ordered) or (None, None)
        return cls(
            median=statistics.median(ordered),
            p20=quantile(ordered, 0.2),
            p80=quantile(ordered, 0.8),
            min=ordered[0],
            n=len(ordered),
            method=method,
            low=low,
            high=high,
        )

    @property
    def settled(self) -> bool:
        """Whether the median is known to 5 %."""
        return is_settled(self.median, self.low, self.high)

    def __repr__(self) -> str:
        shown = f"{self.median:.4g} ms" if self.settled else "unsettled"
        return f"<{shown}, {in_words(self.low, self.high, self.n)}, n={self.n}, {self.method}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict that JSON takes."""
        return asdict(self)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the q-quantile of sorted samples, linear between neighbours."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def interval(ordered: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median of sorted samples, by order statistics."""
    n = len(ordered)
    if n < FEWEST_OF_INTERVAL:
        return None
    reach = 0.98 * math.sqrt(n)  # 1.96 standard deviations of a binomial(n, 1/2)
    low = ordered[max(0, math.floor(n / 2 - reach))]
    return low, ordered[min(n - 1, math.ceil(n / 2 + reach))]


def is_stable(samples: Sequence[float]) -> bool:
    """Tell whether the median is known to STABLE."""
    found = interval(sorted(samples))
    if found is None or len(samples) < FEWEST:
        return False
    return found[1] - found[0] <= 2 * STABLE * statistics.median(samples)


def is_settled(median: float, low: float | None, high: float | None) -> bool:
    """Tell whether a median is known well enough to be shown as a number."""
    return low is not None and high is not None and high - low <= 2 * SETTLED * median


def in_words(low: float | None, high: float | None, n: int) -> str:
    """Return an interval in ms as text."""
    if low is None or high is None:
        return "too few" if n else ""
    return f"{low:.4g} to {high:.4g}"


# ---- clocks ----


class Clock(Protocol):
    """Times one call on one kind of device."""

    method: str

    def round(self, calls: Sequence[Call], cold: bool) -> list[float]:
        """Run every call once, in order; return their times in milliseconds."""

    def wait(self) -> None:
        """Block until all queued work is done."""


class CpuClock:
    """time.perf_counter_ns around the call."""

    method = "cpu"

    def __init__(self) -> None:
        self._flush: np.ndarray[Any, Any] | None = None

    def _prepare(self) -> np.ndarray[Any, Any]:
        """Make the buffer that flush() reads, and a thread on each core to read it."""
        cores = sorted(os.sched_getaffinity(0))
        free = iter(cores)
        self._readers = ThreadPoolExecutor(
            len(cores), initializer=lambda: os.sched_setaffinity(0, {next(free)})
        )
        self._all_there = threading.Barrier(len(cores))
        self._flush = np.ones(min(2 * last_level_cache(), LARGEST_FLUSH) // 8, np.int64)
        return self._flush

    def flush(self) -> None:
        """Evict the data of the next call from every core's caches.

        Each core reads a buffer twice the size of the last-level cache.  The buffer is
        written once, so that it has pages of its own; later passes only read it, because
        dirty lines would be written back during the timed call.
        """
        buffer = self._prepare() if self._flush is None else self._flush

        def read() -> None:
            self._all_there.wait()  # no thread runs twice
            buffer.max()

        turns = [self._readers.submit(read) for _ in range(self._all_there.parties)]
        for turn in turns:
            turn.result()

    def rest(self) -> None:
        """Wait until no other thread of this process runs.

        A library's threads spin after their work, waiting for more: those of NumPy's
        OpenBLAS for 0.15 s, in which they would occupy a core that the next call needs.
        This thread spins as well, because after a sleep it would run more slowly.
        """
        give_up = time.perf_counter() + LONGEST_REST
        while (start := time.perf_counter()) < give_up:
            used = used_by_others()
            while time.perf_counter() - start < REST:
                pass
            if used_by_others() - used < IDLE * REST:
                break

    def round(self, calls: Sequence[Call], cold: bool) -> list[float]:
        """Run every call once, in order; return their times in milliseconds.

        Each runs once more before the flush: the data is cold, but the threads that
        share the work are awake, as in a program that computes continuously.
        """
        times = []
        for call in calls:
            self.rest()
            call()
            if cold:
                self.flush()
            start = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - start) * 1e-6)
        return times

    def wait(self) -> None:
        """Do nothing: a CPU call has finished when it returns."""


def used_by_others() -> float:
    """Return the CPU seconds used by the other threads of this process."""
    return time.process_time() - time.thread_time()


def last_level_cache() -> int:
    """Return the size of this CPU's largest cache in bytes; 64 MiB where unknown."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        if digits.isdigit():
            sizes.append(int(digits) * unit)
    return max(sizes, default=64 << 20)


class DeviceClock:
    """CUDA events and the L2 flush through the library of a subclass."""

    method = "events"

    def event(self) -> Any:
        """Return an event that records a time."""
        raise NotImplementedError

    def elapsed(self, start: Any, stop: Any) -> float:
        """Return the milliseconds between two events."""
        raise NotImplementedError

    def flush(self) -> None:
        """Queue work that evicts all lines from L2."""
        raise NotImplementedError

    def wait(self) -> None:
        """Block until all queued work is done."""
        raise NotImplementedError

    def round(self, calls: Sequence[Call], cold: bool) -> list[float]:
        """Run every call once, in order; return their times in milliseconds."""
        pairs = [(self.event(), self.event()) for _ in calls]
        for _ in range(HEAD_START if cold else 0):
            self.flush()
        for call, (start, stop) in zip(calls, pairs, strict=True):
            if cold:
                self.flush()
            start.record()
            call()
            stop.record()
        self.wait()
        return [self.elapsed(start, stop) for start, stop in pairs]


class TorchClock(DeviceClock):
    """Events, flush and graph replay through torch."""

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        size = device_flush_bytes(self.torch.cuda.get_device_properties(0).L2_cache_size)
        self._flush = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")
        self._clean = self.torch.empty(size, dtype=self.torch.uint8, device="cuda")

    def upload(self, x: np.ndarray[Any, Any]) -> Any:
        """Return a device copy of a host array, as an array of this clock's library."""
        if x.dtype.name == "bfloat16":
            bits = self.torch.from_numpy(x.view(np.int16)).cuda()
            return bits.view(self.torch.bfloat16)
        return self.torch.from_numpy(x).cuda()

    def event(self) -> Any:
        return self.torch.cuda.Event(enable_timing=True)

    def elapsed(self, start: Any, stop: Any) -> float:
        return float(start.elapsed_time(stop))

    def flush(self) -> None:
        self._flush.zero_()
        self._clean.max()  # the lines just written are written back here

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def replay(self, call: Call, repeats: int = 20) -> Timing:
        """Time one call inside a replayed graph: no launch gaps, warm L2.

        Raises
        ------
        RuntimeError
            The call cannot be captured.
        """
        torch = self.torch
        stream = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream), _use_stream(stream.cuda_stream):
            for _ in range(WARM_UPS):
                call()
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(GRAPH_CALLS):
                    call()
        samples = []
        for _ in range(WARM_UPS):
            graph.replay()
        for _ in range(repeats):
            times = self.round([graph.replay], cold=False)
            samples.append(times[0] / GRAPH_CALLS)
        return Timing.of(samples, "graph")


class CupyClock(DeviceClock):
    """Events and flush through CuPy."""

    def __init__(self) -> None:
        self.cupy = importlib.import_module("cupy")
        attributes = self.cupy.cuda.Device().attributes
        size = device_flush_bytes(attributes.get("L2CacheSize", 0))
        self._flush = self.cupy.empty(size, self.cupy.uint8)
        self._clean = self.cupy.empty(size, self.cupy.uint8)

    def upload(self, x: np.ndarray[Any, Any]) -> Any:
        """Return a device copy of a host array, as an array of this clock's library."""
        return self.cupy.asarray(x)

    def event(self) -> Any:
        return self.cupy.cuda.Event()

    def elapsed(self, start: Any, stop: Any) -> float:
        return float(self.cupy.cuda.get_elapsed_time(start, stop))

    def flush(self) -> None:
        self._flush.data.memset_async(0, self._flush.nbytes)
        self._clean.max()  # the lines just written are written back here

    def wait(self) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()


class EventClock(DeviceClock):
    """Events and flush through gpuopt alone: no other library is needed.

    It does not know the size of the L2 and flushes with DEVICE_FLUSH bytes.  Backend "sim"
    is for tests of the clock: the simulator's times mean nothing.
    """

    def __init__(self, backend: str = "cuda") -> None:
        self._backend = backend
        zeros = np.zeros(DEVICE_FLUSH // 4, np.float32)
        self._flush = self.upload(zeros)
        self._clean = self.upload(zeros)

    def upload(self, x: np.ndarray[Any, Any]) -> Any:
        """Return a device copy of a host array."""
        return gpuopt.asdevice(x, backend=self._backend)

    def event(self) -> Any:
        return gpuopt.Event(backend=self._backend)

    def elapsed(self, start: Any, stop: Any) -> float:
        return float(start.elapsed(stop))

    def flush(self) -> None:
        gpuopt.maximum(self._flush, 0, out=self._flush)
        gpuopt.reduce(self._clean, op="max")  # the lines just written are written back here

    def wait(self) -> None:
        gpuopt.synchronize(backend=self._backend)


def device_flush_bytes(l2: int) -> int:
    """Return how many bytes to write, then to read, before every cold call.

    Writing evicts the caller's data from the L2, but leaves it full of dirty lines that would
    be written back during the timed call; reading as many bytes again evicts those.
    """
    return max(2 * l2 + (1 << 20), DEVICE_FLUSH)


_stream = 0


def current_stream() -> int:
    """Return the raw CUDA stream that a peer called with raw handles must use now."""
    return _stream


@contextlib.contextmanager
def _use_stream(handle: int) -> Iterator[None]:
    """Make `handle` the stream of peers that do not follow torch's current stream."""
    global _stream
    before, _stream = _stream, handle
    with contextlib.ExitStack() as stack:
        if importlib.util.find_spec("cupy"):
            cupy = importlib.import_module("cupy")
            stack.enter_context(cupy.cuda.ExternalStream(handle))
        try:
            yield
        finally:
            _stream = before


def device_clock() -> TorchClock | CupyClock:
    """Return a clock for the GPU: torch's if it is there, else CuPy's.

    Raises
    ------
    RuntimeError
        Neither library is installed with a working GPU; the message says why.
    """
    reasons = []
    for name, clock in (("torch", TorchClock), ("cupy", CupyClock)):
        if not importlib.util.find_spec(name):
            reasons.append(f"{name} is not installed")
            continue
        try:
            return clock()
        except Exception as error:  # each library has its own classes for "no GPU"
            reasons.append(f"{name}: {error}")
    raise RuntimeError(f"no clock for the GPU ({'; '.join(reasons)})")


# ---- the loop ----


def measure(
    call: Call,
    *,
    device: str = "cpu",
    cold: bool = True,
    min_time: float = 0.1,
    max_time: float = 2.0,
    repeats: int | None = None,
    clock: Clock | None = None,
) -> Timing:
    """Time one call.

    Parameters
    ----------
    call : callable
        Takes nothing; what it returns is dropped.
    device : {'cpu', 'cuda'}
        Where it runs; picks the clock.
    cold : bool
        Flush the last-level cache (L2 on a GPU) before every repetition.
    min_time, max_time : float
        Seconds: at least the first, then until the median is known to 1 %, at most the
        second.
    repeats : int, optional
        Repeat exactly this many times instead.
    clock : Clock, optional
        An existing clock to use; the default creates one.

    Returns
    -------
    Timing
    """
    return measure_together(
        {"": call},
        device=device,
        cold=cold,
        min_time=min_time,
        max_time=max_time,
        repeats=repeats,
        clock=clock,
    )[""]


def check_seconds(name: str, value: float) -> None:
    """Raise ValueError unless the value is a duration."""
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds, 0 or more, got {value}")


def slow_start(samples: Sequence[Sequence[float]]) -> float:
    """Return the seconds of the first round: its slow calls are left out later."""
    return 1e-3 * sum(kept[0] for kept in samples)


def measure_together(
    calls: Mapping[str, Call],
    *,
    device: str = "cpu",
    cold: bool = True,
    min_time: float = 0.1,
    max_time: float = 2.0,
    repeats: int | None = None,
    clock: Clock | None = None,
) -> dict[str, Timing]:
    """Time several calls side by side; they take turns in every repetition.

    The parameters are those of `measure`; min_time and max_time are for all calls together.
    A call so slow that a few repetitions would fill the time is timed once only.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cpu' or 'cuda', got {device!r}")
    if repeats is not None and repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    check_seconds("min_time", min_time)
    check_seconds("max_time", max_time)
    if not calls:
        return {}
    if clock is None:
        clock = CpuClock() if device == "cpu" else device_clock()
    todo = list(calls.values())
    for _ in range(WARM_UPS):
        for call in todo:
            call()
    clock.wait()
    samples: list[list[float]] = [[] for _ in todo]
    active = list(range(len(todo)))
    start = time.monotonic()
    done = 0
    while repeats is None or done < repeats:
        times = clock.round([todo[i] for i in active], cold)
        for i, took in zip(active, times, strict=True):
            samples[i].append(took)
        done += 1
        if repeats is None:
            most = max(1e3 * max_time / SHARE, SLOW * min(times))
            active = [i for i in active if samples[i][-1] <= most]
            spent = time.monotonic() - start
            stable = all(is_stable(samples[i]) for i in active)
            if spent >= max_time + slow_start(samples) or (spent >= min_time and stable):
                break
    return {
        name: Timing.of(kept, clock.method) for name, kept in zip(calls, samples, strict=True)
    }
