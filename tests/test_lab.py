"""The lab: the timer, workloads, peers, runs, tables.

No test depends on real time; where times matter, a fake clock returns known times.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from conftest import HANG_SECONDS

import gpuopt
from gpuopt import _core, ref
from gpuopt._table import Table
from gpuopt.benchmarks import peers, pictures, readme
from gpuopt.lab import (
    bench,
    ceilings,
    demo,
    nvcc,
    progress,
    published,
    run,
    screen,
    smoke,
    timer,
    workloads,
)

ROOT = Path(__file__).resolve().parents[1]
CEILINGS = ceilings.Ceilings(read_gbs=10.0, copy_gbs=5.0, how="given")


class FixedClock:
    """Runs every call and reports 2 ms, 4 ms, 6 ms and so on, in calling order."""

    method = "fixed"

    def __init__(self):
        self.rounds = 0
        self.now = 0.0  # in seconds; only the reported times advance it

    def round(self, calls, cold):
        self.rounds += 1
        for call in calls:
            call()
        times = [2.0 * (i + 1) for i in range(len(calls))]
        self.now += 1e-3 * sum(times)
        return times

    def monotonic(self):
        return self.now

    def wait(self):
        pass


@pytest.fixture
def fixed(monkeypatch):
    """A run whose clock and ceilings are known."""
    clock = FixedClock()
    monkeypatch.setattr(run, "CpuClock", lambda: clock)
    monkeypatch.setattr(ceilings, "cpu_ceilings", lambda: CEILINGS)
    return clock


# ---- the timer ----


def test_measure_summarises_the_samples():
    timing = timer.Timing.of([5.0, 1.0, 2.0, 4.0, 3.0], "fixed")
    assert timing == timer.Timing(3.0, 1.8, 4.2, 1.0, 5, "fixed")
    assert json.loads(json.dumps(timing.to_dict()))["median"] == 3.0


def test_measure_repeats_exactly_as_told():
    seen = []
    timing = timer.measure(lambda: seen.append(1), repeats=4, cold=False)
    assert timing.n == 4
    assert len(seen) == timer.WARM_UPS + 2 * 4  # one that wakes, one that is timed
    assert timing.method == "cpu"


def test_candidates_take_turns():
    seen = []
    calls = {"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}
    times = timer.measure_together(calls, repeats=3, clock=FixedClock())
    assert "".join(seen[2 * timer.WARM_UPS :]) == "ababab"
    assert (times["a"].median, times["b"].median) == (2.0, 4.0)


def test_a_call_that_would_fill_the_time_sits_out(monkeypatch):
    clock = FixedClock()
    monkeypatch.setattr(timer, "SLOW", 1.5)
    monkeypatch.setattr(timer, "time", clock)
    times = timer.measure_together(
        {"quick": lambda: None, "slow": lambda: None}, max_time=0.06, clock=clock
    )
    assert times["slow"].n == 1  # 4 ms: a twentieth of 60 ms, 1.5 times 2 ms, and more
    assert times["quick"].n >= timer.FEWEST


def test_measure_goes_on_until_the_median_is_stable():
    clock = FixedClock()
    timer.measure(lambda: None, clock=clock, min_time=0.0, max_time=1e9)
    assert clock.rounds == timer.FEWEST


def test_stability_is_about_the_median_not_the_tail():
    assert not timer.is_stable([1.0] * (timer.FEWEST - 1))
    assert timer.is_stable([1.0] * 50 + [9.0] * 3)
    assert not timer.is_stable([1.0, 2.0] * 10)


def test_a_call_wakes_its_threads_then_finds_the_caches_cold(monkeypatch):
    clock = timer.CpuClock()
    seen = []
    monkeypatch.setattr(clock, "flush", lambda: seen.append("flush"))
    clock.round([lambda: seen.append("a"), lambda: seen.append("b")], cold=True)
    clock.round([lambda: seen.append("c")], cold=False)
    assert seen == ["a", "flush", "a", "b", "flush", "b", "c", "c"]


@pytest.mark.parametrize("spins", [0, 0.1, 100])
def test_a_call_waits_until_other_threads_sleep(monkeypatch, spins):
    """Those of a BLAS spin for a while and would occupy a core that the next call needs."""
    now = 0.0

    def tick():
        nonlocal now
        now += 1e-3
        return now

    fake = types.SimpleNamespace(
        perf_counter=tick, process_time=lambda: now + min(now, spins), thread_time=lambda: now
    )
    monkeypatch.setattr(timer, "time", fake)
    timer.CpuClock().rest()
    rested = min(spins, timer.LONGEST_REST)
    assert rested < now <= rested + 3 * timer.REST


def test_the_flush_covers_the_last_level_cache():
    clock = timer.CpuClock()
    clock.flush()
    want = min(2 * timer.last_level_cache(), timer.LARGEST_FLUSH)
    assert clock._flush.nbytes == want
    assert timer.device_flush_bytes(60 << 20) > 2 * (60 << 20)


def test_the_flush_reads_on_every_core_once():
    cores = []
    clock = timer.CpuClock()
    clock._prepare()
    clock._flush = types.SimpleNamespace(max=lambda: cores.append(os.sched_getaffinity(0)))
    clock.flush()
    assert sorted(map(sorted, cores)) == [[k] for k in sorted(os.sched_getaffinity(0))]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"device": "tpu"}, "device"),
        ({"repeats": 0}, "repeats"),
        ({"max_time": float("nan")}, "max_time must be a number of seconds"),
        ({"max_time": float("inf")}, "max_time must be a number of seconds"),
        ({"min_time": -1.0}, "min_time must be a number of seconds"),
    ],
)
def test_measure_refuses_nonsense(kwargs, words):
    with pytest.raises(ValueError, match=words):
        timer.measure(lambda: None, **kwargs)


def test_no_clock_without_a_gpu_library(monkeypatch):
    monkeypatch.setattr(timer.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="torch is not installed; cupy is not installed"):
        timer.device_clock()


class FakeEvent:
    """An event of either library, which logs that it was recorded."""

    def __init__(self, log):
        self.log = log

    def record(self):
        self.log.append("event")

    def elapsed_time(self, stop):
        return 0.25


@pytest.fixture(params=["torch", "cupy"])
def fake_gpu(request, monkeypatch):
    """A library that only logs what a clock calls; returns (clock, log)."""
    log = []
    flush = types.SimpleNamespace(
        zero_=lambda: log.append("flush"),
        data=types.SimpleNamespace(memset_async=lambda value, size: log.append("flush")),
        max=lambda: log.append("clean"),
        nbytes=1,
    )
    sizes = []

    def empty(size, *args, **kwargs):
        sizes.append(size)
        return flush

    cuda = types.SimpleNamespace(
        Event=lambda **kwargs: FakeEvent(log),
        synchronize=lambda: log.append("wait"),
        get_device_properties=lambda i: types.SimpleNamespace(L2_cache_size=500 << 20),
        Device=lambda: types.SimpleNamespace(attributes={"L2CacheSize": 500 << 20}),
        get_elapsed_time=lambda start, stop: 0.25,
        runtime=types.SimpleNamespace(deviceSynchronize=lambda: log.append("wait")),
    )
    module = types.SimpleNamespace(cuda=cuda, empty=empty, uint8="uint8")
    monkeypatch.setitem(sys.modules, request.param, module)
    clock = timer.TorchClock() if request.param == "torch" else timer.CupyClock()
    assert sizes[0] > 2 * (500 << 20)
    return clock, log


def test_a_gpu_clock_flushes_outside_the_events(fake_gpu):
    clock, log = fake_gpu
    times = clock.round([lambda: log.append("a"), lambda: log.append("b")], cold=True)
    assert times == [0.25, 0.25]
    a = ["flush", "clean", "event", "a", "event"]
    b = ["flush", "clean", "event", "b", "event"]
    ahead = ["flush", "clean"] * timer.HEAD_START  # the host gets ahead of the GPU
    assert log == [*ahead, *a, *b, "wait"]
    log.clear()
    clock.round([lambda: log.append("a")], cold=False)
    assert log == ["event", "a", "event", "wait"]


# ---- ceilings and floors ----


def test_the_floor_names_its_ceiling():
    here = ceilings.floor(1e9, True, CEILINGS, "some CPU")
    assert here == ceilings.Floor(100.0, "read 10.0 GB/s (measured)")
    assert ceilings.floor(1e9, False, CEILINGS, "some CPU").ms == 200.0
    unknown = ceilings.Ceilings(None, 5.0, "")
    assert ceilings.floor(1e9, True, unknown, "some GPU").ms is None


def test_the_floors_of_an_h200_are_the_targets():
    for row in workloads.targets():
        if row["op"] != "reduce" or row["floor_ms"] is None:
            continue
        shape = workloads.parse_shape(row["workload"].split()[1])
        moved = math.prod(shape) * np.dtype(row["dtype"]).itemsize
        got = ceilings.floor(moved, True, CEILINGS, "NVIDIA H200").ms
        assert got == pytest.approx(row["floor_ms"], abs=6e-4)


def test_the_better_of_two_ceilings_stands():
    other = ceilings.Ceilings(None, 7.0, "")
    best = CEILINGS.best(other)
    assert (best.read_gbs, best.copy_gbs) == (10.0, 7.0)


def test_cpu_ceilings_are_numbers(monkeypatch):
    monkeypatch.setattr(ceilings, "CPU_BYTES", 1 << 27)
    found = ceilings.cpu_ceilings(repeats=2)
    assert found.read_gbs > 0
    assert found.copy_gbs > 0


# ---- workloads ----


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("2^13", (8192,)),
        ("2^27-1", ((1 << 27) - 1,)),
        ("4097", (4097,)),
        ("(8,16,512)", (8, 16, 512)),
    ],
)
def test_shapes_are_read(text, shape):
    assert workloads.parse_shape(text) == shape


@pytest.mark.parametrize("text", ["", "2^", "(8,x)", "many"])
def test_other_words_are_no_shapes(text):
    with pytest.raises(ValueError, match="not a shape"):
        workloads.parse_shape(text)


def test_every_operator_has_workloads():
    ladders = {_core.describe(op)["ladder"] for op in gpuopt.ops()}
    assert ladders <= set(workloads.rooms())


def test_targets_are_complete():
    rows = workloads.targets()
    assert len(rows) > 70
    assert all(row["goal_ms"] <= row["must_ms"] for row in rows)
    names = [(row["op"], row["workload"], row["dtype"]) for row in rows]
    assert len(set(names)) == len(names)


def test_every_target_of_an_operator_can_be_built(monkeypatch):
    """Names are valid and dtypes exist; the arrays themselves would take gigabytes."""
    from gpuopt.benchmarks.workloads import reduce

    def tiny(shape, dtype, rng):
        return np.ones([min(length, 3) for length in shape], workloads.dtype_of(dtype))

    monkeypatch.setattr(reduce, "random", tiny)
    for name, dtype in workloads.named("reduce", "cuda"):
        problem = reduce.problem(name, dtype, np.random.default_rng(0))
        assert problem.args[0].dtype == dtype
        right = getattr(ref, problem.op)(*problem.args, **problem.options)
        assert problem.check(right) == ""


def exchanged(result, k, array):
    """The result with its k-th array replaced; `array` itself if it has but one."""
    return (*result[:k], array, *result[k + 1 :]) if isinstance(result, tuple) else array


@pytest.mark.parametrize("op", workloads.rooms())
def test_the_judge_catches_wrong_results(op):
    """The check of every small problem accepts the reference and rejects a changed result."""
    caught = 0
    for problem in workloads.room(op).smoke(np.random.default_rng(3)):
        function = getattr(ref, problem.function or problem.op)
        right = function(*problem.args, **problem.options)
        assert problem.check(right) == "", problem.name
        if problem.options.get("op") in ("any", "all", "argmin", "argmax"):
            continue
        for k, part in enumerate(right if isinstance(right, tuple) else (right,)):
            got = np.array(part)
            if got.size == 0:
                continue
            wrong = exchanged(right, k, got.reshape(got.shape + (1,)))
            assert problem.check(wrong) != ""
            changed = got.astype(complex if got.dtype.kind == "c" else float)
            changed.flat[0] = changed.flat[0] * 1.5 + 1
            assert problem.check(exchanged(right, k, changed)) != "", problem.name
            changed.flat[0] = np.nan
            assert problem.check(exchanged(right, k, changed)) != "", problem.name
            caught += 1
    assert caught > 50


def test_the_judge_of_an_index_takes_any_of_equal_elements():
    from gpuopt.benchmarks.workloads import reduce

    x = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], np.float32)
    check = reduce.judge(x, "argmax", 1, np.array([1, 0]))
    assert check(np.array([2, 0])) == ""
    assert check(np.array([0, 0])) == "1 of 2 indices wrong"
    assert "shape" in check(np.array([2]))


def test_unknown_rooms_and_names():
    with pytest.raises(ValueError, match="no workloads for 'nope'"):
        workloads.room("nope")
    with pytest.raises(ValueError, match="not a workload of reduce"):
        workloads.room("reduce").problem("sum", "float32", np.random.default_rng(0))


# ---- peers ----


@pytest.mark.parametrize("name", peers.names())
def test_peers_keep_the_contract(name):
    peer = peers.peer(name)
    reason = peer.available()
    assert reason is None or reason
    if reason is None:
        assert peer.version()
    assert set(peer.DEVICES) <= {"cpu", "cuda"}
    assert set(peer.CALLS) <= {*gpuopt.ops(), *workloads.rooms()}


def test_an_unknown_peer():
    with pytest.raises(ValueError, match="no peer 'nope'"):
        peers.peer("nope")


# Those that are installed; NumPy always is.
CPU_PEERS = [
    name
    for name in peers.names()
    if "cpu" in peers.peer(name).DEVICES and not peers.peer(name).available()
]


@pytest.mark.parametrize("name", CPU_PEERS)
def test_cpu_peers_answer_right(name):
    peer = peers.peer(name)
    room = workloads.room("reduce")
    for workload, dtype in room.TINY:
        problem = room.problem(workload, dtype, np.random.default_rng(0))
        call = peer.call(problem, "cpu", problem.args, lambda x: x)
        assert run.verdict(call, peer.host, problem) == ""


@pytest.mark.parametrize("name", CPU_PEERS)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_cpu_peers_scan(name, op):
    peer = peers.peer(name)
    x = np.array([[3.0, 1.0, 2.0], [0.5, 4.0, 4.0]], np.float32)
    running = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    problem = workloads.Problem("scan", "", "float32", (x,), {"op": op, "axis": 1})
    result = peer.host(peer.call(problem, "cpu", problem.args, lambda a: a)())
    assert np.array_equal(result, running.accumulate(x, axis=1))


# A stand-in for device memory: a host array with the interface of a tensor.
class Memory:
    def __init__(self, x):
        self.x = np.ascontiguousarray(x)
        self.shape = self.x.shape

    def data_ptr(self):
        return self.x.ctypes.data

    def cpu(self):
        return self

    def numpy(self):
        return self.x


HOST_CUB = r"""
#include <stddef.h>
#include <stdint.h>
int device_sum_f32(char *t, size_t *bytes, const float *x, float *out, int64_t rows,
                   int64_t cols, void *stream)
{
    if (!t) { *bytes = 8; return 0; }
    if (rows != 1 || stream) { return 1; }
    t[7] = 1;
    *out = 0;
    for (int64_t i = 0; i < cols; i++) { *out += x[i]; }
    return 0;
}
int segmented_argmax_f32(char *t, size_t *bytes, const float *x, void *out, int64_t rows,
                         int64_t cols, void *stream)
{
    struct { int32_t key; float value; } *pair = out;
    if (!t) { *bytes = 0; return 0; }
    for (int64_t r = 0; r < rows; r++) {
        pair[r].key = 0;
        for (int64_t i = 1; i < cols; i++) {
            if (x[r * cols + i] > x[r * cols + pair[r].key]) { pair[r].key = (int32_t)i; }
        }
    }
    return 0;
}
int segmented_sum_f32(char *t, size_t *bytes, const float *x, float *out, int64_t rows,
                      int64_t cols, void *stream)
{
    return 77;
}
"""


@pytest.fixture(scope="module")
def host_cub(tmp_path_factory):
    """A library with the interface of the CUB peer, computed on the CPU."""
    compiler = shutil.which("gcc")
    assert compiler, "the tests need gcc"
    folder = tmp_path_factory.mktemp("cub")
    (folder / "cub.c").write_text(HOST_CUB)
    library = folder / "cub.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "cub.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def test_cub_is_called_with_its_own_memory(host_cub, monkeypatch):
    monkeypatch.setattr(nvcc, "build", lambda source: host_cub)
    cub = peers.peer("cub")
    room = workloads.room("reduce")
    for name in ("sum 4097", "argmax (33,129) axis1"):
        problem = room.problem(name, "float32", np.random.default_rng(0))
        call = cub.call(problem, "cuda", tuple(map(Memory, problem.args)), Memory)
        assert run.verdict(call, cub.host, problem) == ""


def test_cub_leaves_out_what_it_has_not_and_names_errors(host_cub, monkeypatch):
    monkeypatch.setattr(nvcc, "build", lambda source: host_cub)
    cub = peers.peer("cub")
    room = workloads.room("reduce")
    for name, dtype in (("sum (33,129) axis0", "float32"), ("sum 9", "float64")):
        problem = room.problem(name, dtype, np.random.default_rng(0))
        assert cub.call(problem, "cuda", tuple(map(Memory, problem.args)), Memory) is None
    problem = room.problem("sum (33,129) axis1", "float32", np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="CUDA error 77"):
        cub.call(problem, "cuda", tuple(map(Memory, problem.args)), Memory)


# Programs for a GPU are compiled if nvcc is found; otherwise there are no cases.
each_arch = pytest.mark.parametrize("arch", ["sm_90"] if nvcc.unavailable() is None else [])


@each_arch
@pytest.mark.parametrize(
    "source",
    ["gpuopt/lab/read.cu", "benchmarks/peers/cub_reduce.cu", "benchmarks/peers/cub_scan.cu"],
)
def test_programs_for_the_gpu_compile(source, arch):
    library = nvcc.compile_library(ROOT / source, arch)
    assert library.is_file()


@each_arch
def test_a_refused_program_says_why(tmp_path, arch):
    wrong = tmp_path / "wrong.cu"
    wrong.write_text("int f( { }\n")
    with pytest.raises(RuntimeError, match=r"wrong\.cu"):
        nvcc.compile_library(wrong, arch)
    assert shutil.which("nvcc") is None or nvcc.version().count(".") == 1


# ---- a run ----


def test_a_run_has_what_the_readme_needs(fixed):
    result = run.run(["reduce"], backend="cpu", names=["sum 2^13"], repeats=3)
    auto, *rungs = result
    available = [row for row in _core.variants("reduce") if row["backend"] == "cpu"]
    assert auto["variant"] == "auto"
    assert auto["chosen"] in [row["name"] for row in available]
    assert [row["variant"] for row in rungs] == [row["name"] for row in available]
    assert auto["error"] is None
    assert auto["ms"] == 2.0
    assert auto["n"] == 3
    assert auto["floor_ms"] == pytest.approx((8192 * 4 + 4) / 10e9 * 1e3, rel=1e-4)
    assert auto["percent_of_floor"] == pytest.approx(50 * auto["floor_ms"], rel=1e-4)
    assert "numpy" in auto["peers"]
    document = json.loads(result.to_json())
    assert {"device", "driver", "versions", "commit", "ceilings", "rows"} <= set(document)
    assert result.errors == []
    assert "auto" in repr(result)


def test_a_wrong_result_is_an_error_row_and_is_not_timed(fixed, monkeypatch):
    right = gpuopt.reduce

    def wrong(x, variant="auto", **options):
        result = right(x, variant=variant, **options)
        return result * 2 if variant == "scalar" else result

    monkeypatch.setattr(gpuopt, "reduce", wrong)
    result = run.run(["reduce"], backend="cpu", names=["sum 2^13"], repeats=1)
    rows = {row["variant"]: row for row in result}
    assert "off by up to" in rows["scalar"]["error"]
    assert rows["scalar"]["ms"] is None
    assert rows["auto"]["ms"] is not None
    assert any("scalar" in error for error in result.errors)


def test_a_raising_variant_is_an_error_row(fixed, monkeypatch):
    def broken(x, **options):
        raise gpuopt.CudaError("no")

    monkeypatch.setattr(gpuopt, "reduce", broken)
    result = run.run(["reduce"], backend="cpu", names=["sum 2^13"], repeats=1)
    assert all(row["error"].startswith("CudaError") for row in result)
    assert all(row["ms"] is None for row in result)


def test_a_wrong_peer_is_named_and_not_timed(fixed, monkeypatch):
    monkeypatch.setitem(peers.peer("numpy").CALLS, "reduce", lambda x, **o: lambda: x.max())
    result = run.run(
        ["reduce"], backend="cpu", names=["sum 2^13"], repeats=1, against=["numpy"]
    )
    assert result[0]["peers"] == {}
    assert "off by" in result[0]["peer_errors"]["numpy"]
    assert any("numpy" in error for error in result.errors)


def test_a_run_takes_other_workloads_variants_and_dtypes(fixed):
    result = run.run(
        ["reduce"],
        backend="cpu",
        names=["max (33,7) axis0"],
        dtype="int32",
        variants=["scalar"],
        against=[],
        repeats=1,
    )
    assert [row["variant"] for row in result] == ["auto", "scalar"]
    assert {row["dtype"] for row in result} == {"int32"}
    assert result.errors == []


@pytest.mark.parametrize(
    ("kwargs", "error", "words"),
    [
        ({"backend": "sim"}, ValueError, "not timed"),
        ({"backend": "tpu"}, ValueError, "no backend 'tpu'"),
        ({"backend": "cpu", "variants": ["v99"]}, gpuopt.VariantError, "v99"),
        ({"backend": "cpu", "names": ["nope"]}, ValueError, "not a workload"),
        ({"backend": "cpu", "dtype": "flaot32"}, ValueError, "no dtype 'flaot32'; there are"),
        ({"backend": "cpu", "dtype": "uint8"}, ValueError, "no workload on cpu has dtype"),
        (
            {"backend": "cpu", "names": ["sum 2^13"], "dtype": "flaot32"},
            ValueError,
            "no dtype 'flaot32'",
        ),
    ],
)
def test_a_run_refuses_nonsense(fixed, kwargs, error, words):
    with pytest.raises(error, match=words):
        run.run(["reduce"], **kwargs)


def test_compare_is_a_run(fixed):
    result = bench.compare("reduce", ["sum 2^13"], backend="cpu", max_time=0.0)
    assert isinstance(result, run.Result)
    assert result._repr_html_().count("<tr>") == len(result) + 1


def test_pictures_return_their_axes(fixed):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    result = run.run(["reduce"], backend="cpu", names=["sum 2^13"], repeats=1)
    axes = result.plot()
    assert len(axes.patches) == len(result) + len(result[0]["peers"])
    _figure, mine = pyplot.subplots()
    assert result.roofline(ax=mine) is mine
    assert {line.get_label() for line in mine.lines} >= {"read 10 GB/s", "copy 5 GB/s"}
    assert len(mine.texts) == len(result)  # a label for each point
    pyplot.close("all")


def test_launch_bound_calls_are_replayed_in_graphs_too():
    class Replaying:
        def replay(self, call):
            call()
            return timer.Timing(0.004, 0.004, 0.004, 0.004, 20, "graph")

    def refused():
        raise RuntimeError("not permitted under capture")

    rows = [{"variant": "auto"}, {"variant": "v0"}]
    calls = {"auto": lambda: None, "v0": refused, "peer torch": lambda: None}
    run.add_replays(rows, calls, Replaying())
    assert [row["graph_ms"] for row in rows] == [0.004, None]
    assert rows[0]["graph_peers"] == {"torch": 0.004}
    assert "capture" in rows[1]["graph_error"]
    assert rows[0]["graph_error"] is None


# ---- smoke and demo ----


def test_smoke_checks_every_available_variant(monkeypatch):
    monkeypatch.setattr(smoke, "SIMULATED", 10)
    table = smoke.smoke(progress=False)
    available = [
        (row["backend"], row["name"]) for row in _core.variants("reduce") if row["available"]
    ]
    rows = [row for row in table if row["op"] == "reduce"]
    assert [(row["backend"], row["variant"]) for row in rows] == available
    assert all(row["checked"] >= 10 for row in rows)
    assert [row["first_failure"] for row in rows if row["failed"]] == []


def test_smoke_reports_what_is_wrong(monkeypatch):
    right = gpuopt.reduce
    monkeypatch.setattr(gpuopt, "reduce", lambda x, **o: right(x, **o) + 1)
    monkeypatch.setattr(smoke, "SIMULATED", 4)
    table = smoke.smoke(["reduce"], progress=False)
    assert all(row["failed"] for row in table)


def test_the_demo_sees_a_wrong_result(monkeypatch):
    from gpuopt.benchmarks.workloads import reduce

    monkeypatch.setattr(reduce, "DEMO", ("sum 2^13", "float32"))
    monkeypatch.setattr(demo, "CpuClock", FixedClock)
    monkeypatch.setattr(demo, "SECONDS", 0.0)
    good = demo.demo(progress=False)
    assert good.ok
    assert ", 0 wrong" in str(good)
    right = gpuopt.reduce
    monkeypatch.setattr(gpuopt, "reduce", lambda x, **o: right(x, **o) * 2)
    bad = demo.demo(progress=False)
    assert not bad.ok
    assert "WRONG" in str(bad)
    assert bad.to_dict()["ok"] is False


def test_the_longest_bar_is_the_slowest():
    ideas = [("scalar", "one after the other"), ("threads", "all at once"), ("numpy", "same")]
    head, slow, fast, untimed = screen.table(ideas, [], [[]] * 3, [4.0, 1.0, None], 80, "#")
    assert head.split() == ["ms"]
    assert fast.count("#") == round(slow.count("#") / 4) > 0
    assert untimed.split() == ["numpy", "same"]
    assert max(map(len, (slow, fast))) == 80


def test_a_table_gives_up_counts_before_ideas():
    heads = ["ways", "global", "waits", "split"]
    cells = [["1.0", "290", "289", "18%"], ["3.3", "290", "289", "3%"]]
    ideas = [("v0", "interleaved addressing, divergent"), ("v1", "strided index")]

    def shown(width):
        lines = screen.table(ideas, heads, cells, [0.2, 0.1], width, "#")
        assert max(map(len, lines)) <= width
        return lines[0].split()

    assert shown(100) == [*heads, "us"]
    assert shown(72) == [*heads[:3], "us"]
    assert shown(40) == [*heads[:1], "us"]


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_the_demo_times_a_ladder_with_gpuopts_own_events(monkeypatch):
    """As on a GPU, but in the simulator: arrays stay on the device, events record the times."""
    from gpuopt.benchmarks.workloads import reduce

    monkeypatch.setattr(reduce, "DEMO", ("sum 4097", "float32"))
    monkeypatch.setattr(demo, "SECONDS", 0.0)
    monkeypatch.setattr(timer, "DEVICE_FLUSH", 1 << 12)
    seen = demo.Demo("reduce", "a CPU", "a GPU", None, None, 1)
    demo.time(seen, "reduce", "sim", timer.EventClock("sim"))
    assert [row["variant"] for row in seen.timed] == [f"v{k}" for k in range(10)]
    assert seen.ok
    assert all(row["ms"] >= 0 for row in seen.timed)


VS = ("v0", "v1", "v2")


def test_the_lesson_is_the_largest_step():
    task = {"workload": "sum 2^25", "dtype": "float32"}
    known = {name: {**task, "idea": idea} for name, idea in zip(VS, "abc", strict=True)}
    small = {"workload": "sum 100", "dtype": "float32"}
    counts = {name: {**small, "barriers": n} for name, n in zip(VS, (9, 9, 3), strict=True)}
    shown = [("waits", "barriers", "d", "")]
    ms = {"v0": 4.0, "v1": 3.0, "v2": 1.0}
    assert screen.lesson(list(known), known, counts, ms, shown)[1] == (
        "Largest step: v2, c, 3.0 times as fast as v1; waits 9 -> 3."
    )
    counts["v2"]["workload"] = "max 100"  # counted on another task
    assert screen.lesson(list(known), known, counts, ms, shown)[1].endswith("as v1.")
    assert screen.lesson(list(known), known, counts, {}, shown) == []


def test_a_profile_takes_options_of_any_name():
    """op= is an option of reduce."""
    x = np.arange(8, dtype=np.float32)
    assert gpuopt.explain("reduce", x, op="max")[0]["backend"]
    if _core.backends()["sim"] is None:
        assert len(gpuopt.profile("reduce", x, op="max", variant="v9")) == 1


# ---- notebooks ----


NOTEBOOKS = [p.name for p in sorted((ROOT / "examples").glob("*.ipynb"))]


# Stories carry outputs: test_lab_stories.py compares them.
@pytest.mark.parametrize("name", [n for n in NOTEBOOKS if not n.startswith("story_")])
def test_the_examples_run_and_carry_no_output(name, tmp_path):
    """nbmake runs each notebook in a kernel that imports the gpuopt under test.

    The kernel starts with small buffers for the ceilings, which take 20 seconds where the
    machine reports a large cache.
    """
    for module in ("nbmake", "ipykernel"):
        pytest.importorskip(module)
    path = ROOT / "examples" / name
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    package = str(Path(gpuopt.__file__).resolve().parents[1])
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--nbmake", str(path)]
    command.append(f"--nbmake-timeout={HANG_SECONDS}")
    startup = tmp_path / "profile_default" / "startup" / "ceilings.py"
    startup.parent.mkdir(parents=True)
    startup.write_text("from gpuopt.lab import ceilings; ceilings.CPU_BYTES = 1 << 26\n")
    environment = {**os.environ, "PYTHONPATH": package, "MPLBACKEND": "Agg",
                   "IPYTHONDIR": str(tmp_path)}  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout


# ---- progress ----


def test_progress_is_silent_in_a_pipe(capsys):
    assert list(progress.track([1, 2], 2, "x")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_progress_without_tqdm(capsys, monkeypatch):
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    assert list(progress.track("ab", 2, "walk", show=True)) == ["a", "b"]
    assert "walk 2/2" in capsys.readouterr().err


# ---- tables ----


def test_a_table_is_its_rows():
    table = Table([{"name": "v0", "ms": 1.5, "note": None}, {"name": "v1", "ms": 12345.6}])
    assert table[1]["ms"] == 12345.6
    assert table.column("ms") == [1.5, 12345.6]
    assert table.column("note") == [None, None]
    assert json.loads(table.to_json())[0] == {"name": "v0", "ms": 1.5, "note": None}
    assert repr(table).splitlines() == [
        "name     ms  note",
        "----  -----  ----",
        "v0      1.5",
        "v1    12346",
    ]
    with pytest.raises(KeyError, match="no column 'nope'"):
        table.column("nope")


def test_a_table_shows_what_it_is_told_and_escapes_it():
    table = Table([{"a": "<b>|", "hidden": True}], shown=["a"], title="t")
    assert repr(table).splitlines() == ["t", "a", "----", "<b>|"]
    assert "&lt;b&gt;" in table._repr_html_()
    assert "hidden" not in table._repr_html_()
    assert table.markdown().splitlines()[2] == "| <b>\\| |"
    assert table.column("hidden") == [True]


def test_a_vertical_table_and_an_empty_one():
    table = Table([{"backend": "cpu", "why": "no GPU", "yes": True}], vertical=True)
    assert repr(table).splitlines() == ["backend  cpu", "why      no GPU", "yes      yes"]
    assert repr(Table()) == "(no rows)"
    assert repr(Table(title="none")) == "none"


# ---- the documents ----


def one_run(device="NVIDIA H200", **row):
    base = {
        "op": "reduce", "workload": "sum 2^25", "dtype": "float32", "variant": "auto",
        "chosen": "v9", "ms": 0.04, "gbs": 3355.0, "percent_of_floor": 75.0,
        "peers": {"cub": 0.0451, "torch": 0.06}, "error": None,
    }  # fmt: skip
    rows = [{**base, **row}, {**base, "variant": "v0", "chosen": None, "ms": 0.9}]
    return {
        "device": device, "commit": "abc1234", "backend": "cuda", "file": "f.json",
        "rows": rows, "ceilings": {},
    }  # fmt: skip


def test_goals_stand_in_the_notes_as_ratios():
    text = readme.goals("reduce", [one_run()])
    assert "NVIDIA H200, commit `abc1234`" in text
    cells = [cell.strip() for cell in text.splitlines()[-1].split("|")[1:-1]]
    assert cells == ["sum 2^25 float32", "0.04", "0.045", "0.038", "0.89", "1.05"]


def test_a_limit_is_reached_at_1_00_and_less():
    assert readme.over(1.0, 1.0) == "1.00"
    assert readme.over(1.001, 1.0) == "1.01"
    assert readme.over(1.0, None) == ""


def test_goals_are_for_the_card_they_were_set_on():
    assert readme.goals("reduce", [one_run(device="some GPU")]) == readme.NONE


def test_results_stand_beside_the_best_peer():
    line = readme.results("reduce", [one_run()]).splitlines()[-1]
    assert "0.0451 (cub)" in line
    assert "| 1.13 |" in line
    assert readme.results("scan", [one_run()]) == ""


def test_where_a_peer_is_faster_is_told():
    assert readme.slower([one_run()]) == "Nowhere."
    slow = one_run(ms=0.05)
    assert "0.0451 (cub)" in readme.slower([slow])
    assert "On 1 of 1 workloads" in readme.counted([slow])
    assert "by up to 11 %" in readme.counted([slow])
    assert "On none of 1 workloads" in readme.counted([one_run()])


def test_a_tie_does_not_read_as_one():
    """1.00 is never shown if the peer is faster."""
    assert readme.times({"ms": 1.0, "peers": {"cub": 0.998}}) == "0.998"
    assert readme.times({"ms": 1.0, "peers": {"cub": 1.001}}) == "1.00"
    assert readme.times({"ms": 1.0, "peers": {}}) == ""


def test_headlines_are_each_operators_first_workload():
    text = readme.headlines([one_run(), one_run(workload="sum 2^28")])
    assert "sum 2^25" in text
    assert "sum 2^28" not in text
    assert readme.headlines([]) == readme.NONE


def test_the_ladder_lists_rungs_and_peers():
    text = readme.ladder("reduce", [one_run()])
    assert "`v0`" in text
    assert "auto" not in text
    assert "In the same run: cub 0.0451 ms, torch 0.06 ms." in text
    assert readme.ladder("reduce", []) == ""


def test_a_document_is_rewritten_and_then_fresh(tmp_path, capsys):
    path = tmp_path / "README.md"
    path.write_text("a\n<!-- begin:operators -->\nold\n<!-- end:operators -->\nz\n")
    assert readme.main(["--check", str(path)]) == 1
    assert "stale" in capsys.readouterr().err
    assert readme.main([str(path)]) == 0
    assert "`reduce`" in path.read_text()
    assert path.read_text().startswith("a\n")
    assert path.read_text().endswith("\nz\n")
    assert readme.main(["--check", str(path)]) == 0


def test_every_operator_is_in_the_table():
    text = readme.operators()
    named = text.count("`") // 2 + sum(map(int, re.findall(r"and (\d+) more", text)))
    assert named == len(gpuopt.ops())


def test_an_unknown_block_is_an_error():
    with pytest.raises(ValueError, match="no generated block"):
        readme.rewrite("<!-- begin:nope -->\n<!-- end:nope -->", [])


def test_pictures_are_drawn_and_then_fresh(tmp_path, capsys):
    folder = ["--folder", str(tmp_path / "new")]
    assert pictures.main(["--check", *folder]) == 1
    assert "ladder.svg" in capsys.readouterr().err
    assert pictures.main(folder) == 0
    assert pictures.main(["--check", *folder]) == 0


def test_a_workload_of_several_runs_counts_once():
    def run(name, *works):
        row = {"op": "dot", "dtype": "float16", "ms": 1.0}
        rows = [{**row, "workload": w, "variant": v} for w in works for v in ("v0", "auto")]
        return {"file": f"benchmarks/results/{name}.json", "device": name[:4], "rows": rows}

    own, named = run("h200-dot", "2^25", "2^26"), run("h200-named", "2^25")
    other, ladder = run("h100-dot", "2^25"), run("h200-dot-ladder", "2^27")
    found = published.choices([own, named, other, ladder])
    assert [(where["file"][19:], row["workload"], row["variant"]) for where, row in found] == [
        ("h200-dot.json", "2^26", "auto"),
        ("h200-named.json", "2^25", "auto"),
        ("h100-dot.json", "2^25", "auto"),
    ]


def test_pictures_show_the_committed_numbers():
    run = next(r for r in published.load() if r["file"].endswith("h200-reduce-ladder.json"))
    times = [r["ms"] for r in run["rows"]
             if r["workload"] == "sum 2^25" and r["dtype"] == "float32"
             and r["variant"] != "auto"]  # fmt: skip
    drawn = pictures.ladder()
    ElementTree.fromstring(drawn)
    assert len(times) == 10
    assert all(f">{ms:.3f}</text>" in drawn for ms in times)
    counted = pictures.passes()
    assert list(counted) == [f"v{k}" for k in range(10)]
    drawn = pictures.bank_conflicts()
    ElementTree.fromstring(drawn)
    assert all(f">{counted[rung]:,}</text>" in drawn for rung in ("v1", "v2"))
    assert "32 lanes meet in 4 of 32 banks: 8 passes." in drawn
    assert "1 pass." in drawn
