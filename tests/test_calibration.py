"""Where a call on NumPy arrays runs when nobody names a backend: costs, decisions, the file.

Costs are made by hand, and the simulator stands in for a GPU, so nothing here depends on how
fast the machine is.  Order: the estimate, the decision, costs that are refused, probes and
measuring, the file, load.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, assert_same
from conftest import Child

import gpuopt
from gpuopt import _calibration, _core

OPS = _core.ops()
each_op = pytest.mark.parametrize("op", OPS)

# A CPU of a few cores, a bus of 50 GB/s, a GPU.
HAND: dict[str, Any] = {
    "backend": "sim",
    "cpu_call_s": 1e-6,
    "cpu_gb_per_s": 100.0,
    "cpu_gflop_per_s": 50.0,
    "device_call_s": 30e-6,
    "device_gb_per_s": 4000.0,
    "device_gflop_per_s": 20000.0,
    "up_gb_per_s": 50.0,
    "down_gb_per_s": 40.0,
    "cpu_factors": {"tanh": 12.0, "scatter_add": 30.0},
    "device_factors": {"scatter_add": 3.0},
}
FREE = {  # a device that costs nothing beside the CPU
    **HAND,
    **{"cpu_call_s": 1.0, "device_call_s": 1e-9, "up_gb_per_s": 1e9, "down_gb_per_s": 1e9},
}
DEAR = {**HAND, "device_call_s": 1e9}
SIZES = [2**k for k in range(40)]

REASON = _core.cuda_unavailable_reason()
without_a_gpu = pytest.mark.parametrize("reason", [REASON] if REASON else [])


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = _core._rates()
    yield
    _core._set_rates(before)


def weigh(
    op: str, n: int, flops_each: float, rates: dict[str, Any] = HAND
) -> tuple[float, float]:
    """Of n float32 in and out."""
    cpu, gpu = _core._weigh(rates, op, 4.0 * n, 4.0 * n, 8.0 * n, flops_each * n)
    return cpu, gpu


# ---- the estimate ----


def test_the_estimate_is_the_roofline_and_the_bus() -> None:
    cpu, gpu = _core._weigh(HAND, "add", 5e9, 4e9, 12e9, 7e9)
    assert math.isclose(cpu, 1e3 * (1e-6 + 0.14), rel_tol=1e-12)  # 7e9 flops at 50e9
    assert math.isclose(gpu, 1e3 * (30e-6 + 0.1 + 0.1 + 0.003), rel_tol=1e-12)
    cpu, gpu = _core._weigh(HAND, "scatter_add", 0, 0, 12e9, 0)
    assert math.isclose(cpu, 1e3 * (1e-6 + 30 * 0.12), rel_tol=1e-12)
    assert math.isclose(gpu, 1e3 * (30e-6 + 3 * 0.003), rel_tol=1e-12)


@each_op
@pytest.mark.parametrize("flops_each", [0, 1, 64, 4096])
def test_from_one_size_on_the_device_is_faster_or_from_none(op: str, flops_each: int) -> None:
    rng = np.random.default_rng(len(op) + flops_each)
    for _ in range(20):  # machines of all kinds
        scale = dict(zip(_calibration.SCALARS, 10.0 ** rng.uniform(-2, 2, 8), strict=True))
        rates = {**HAND, **{key: HAND[key] * by for key, by in scale.items()}}
        rates["cpu_factors"] = {op: 10 ** rng.uniform(0, 2)}
        times = [weigh(op, n, flops_each, rates) for n in SIZES]
        faster = [gpu < cpu for cpu, gpu in times]
        if rates["device_call_s"] > rates["cpu_call_s"]:
            assert faster == sorted(faster)
        for (cpu, gpu), (more_cpu, more_gpu) in itertools.pairwise(times):
            assert cpu <= more_cpu and gpu <= more_gpu


@each_op
def test_little_work_stays_on_the_cpu_and_heavy_work_leaves_it(op: str) -> None:
    small, heavy = weigh(op, 8, 1), weigh(op, 2**24, 4096)
    assert small[0] < small[1]
    assert heavy[1] < heavy[0]


def test_what_the_bus_delays_stays_on_the_cpu_at_any_size() -> None:
    assert all(cpu < gpu for cpu, gpu in (weigh("add", n, 1) for n in SIZES))
    assert weigh("tanh", 2**24, 1)[1] < weigh("tanh", 2**24, 1)[0]  # its factor is 12


# ---- the decision ----


def chosen(op: str, *args: Any, **kwargs: Any) -> str:
    return str(_core.plan(op, *args, **kwargs)["backend"])


def test_small_calls_run_on_the_cpu_and_heavy_ones_on_the_device() -> None:
    _core._set_rates(HAND)
    assert chosen("reduce", np.ones(8, np.float32)) == "cpu"
    assert chosen("reduce", np.ones(1 << 20, np.float32)) == "cpu"  # the bus is slower
    x, w = np.ones((1, 64, 4096), np.float32), np.ones((64, 4096), np.float32)
    plan = _core.plan("causal_conv1d", x, w)
    assert plan["backend"] == "sim" and plan["gpu_ms"] < plan["cpu_ms"]
    small = _core.plan("causal_conv1d", x[:, :1, :8], w[:1, :4])
    assert small["backend"] == "cpu" and small["cpu_ms"] < small["gpu_ms"]


@each_op
def test_every_operator_moves_with_the_costs(op: str) -> None:
    args, kwargs, want = ENTRIES[op].valid()
    for rates, backend in ((FREE, "sim"), (DEAR, "cpu")):
        _core._set_rates(rates)
        assert_same(getattr(gpuopt, op)(*args, **kwargs), want)
        last = gpuopt.last_call()
        assert last is not None and last["backend"] == backend
        assert chosen(op, *args, **kwargs) == backend


def test_whoever_names_a_backend_or_a_variant_gets_it() -> None:
    x = np.ones(8, np.float32)
    _core._set_rates(FREE)
    assert chosen("reduce", x) == "sim"
    assert chosen("reduce", x, backend="cpu") == "cpu"
    assert chosen("reduce", x, variant="simd") == "cpu"
    with gpuopt.use("cpu"):
        assert chosen("reduce", x) == "cpu"
    _core._set_rates(DEAR)
    assert chosen("reduce", x, backend="sim") == "sim"
    with gpuopt.use("sim"):
        assert chosen("reduce", x) == "sim"
        assert chosen("reduce", x, variant="v3") == "sim"
    assert chosen("reduce", gpuopt.asdevice(x, backend="sim")) == "sim"


def test_the_environment_names_a_backend(child: Child) -> None:
    code = f"""
import gpuopt
from gpuopt import _core
_core._set_rates({FREE!r})
print(_core.plan("reduce", [1.0])["backend"])
"""
    assert child(code, env={"GPUOPT_BACKEND": "cpu"}).stdout == "cpu\n"
    assert child(code, env={"GPUOPT_BACKEND": ""}).stdout == "sim\n"


@without_a_gpu
def test_no_call_goes_to_a_gpu_that_is_not_there(reason: str) -> None:
    assert reason
    _core._set_rates({**FREE, "backend": "cuda"})
    for op in OPS:
        args, kwargs, _ = ENTRIES[op].valid()
        assert chosen(op, *args, **kwargs) == "cpu"


def test_an_estimate_is_shown_for_host_arrays_on_a_calibrated_machine() -> None:
    x = np.ones(1 << 10, np.float32)
    _core._set_rates(HAND)
    row = gpuopt.explain("add", x, x)[0]
    cpu, gpu = _core._weigh(HAND, "add", 2.0 * x.nbytes, x.nbytes, 3.0 * x.nbytes, x.size)
    assert (row["cpu_ms"], row["gpu_ms"]) == (cpu, gpu)
    on_device = _core.plan("reduce", gpuopt.asdevice(x, backend="sim"))
    assert on_device["cpu_ms"] is None and on_device["gpu_ms"] is None
    _core._set_rates("off")
    assert not {"cpu_ms", "gpu_ms"} & set(gpuopt.explain("add", x, x)[0])


# ---- costs that are refused ----


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in HAND.items() if name != key}


BROKEN: dict[str, tuple[Any, type[Exception]]] = {
    **{f"no {key}": (without(key), ValueError) for key in HAND},
    **{f"{key} 0": ({**HAND, key: 0}, ValueError) for key in _calibration.SCALARS},
    **{
        f"{key} {value}": ({**HAND, key: float(value)}, ValueError)
        for key in ("cpu_call_s", "up_gb_per_s")
        for value in ("nan", "inf", "-1")
    },
    "a string": ({**HAND, "cpu_call_s": "fast"}, TypeError),
    "factors a list": ({**HAND, "cpu_factors": [1.0]}, ValueError),
    "a factor negative": ({**HAND, "device_factors": {"add": -1}}, ValueError),
    "backend cpu": ({**HAND, "backend": "cpu"}, ValueError),
    "backend unknown": ({**HAND, "backend": "tpu"}, ValueError),
    "backend a number": ({**HAND, "backend": 3}, TypeError),
    "a list": ([], TypeError),
    "a word": ("on", TypeError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_costs_that_cannot_be_are_refused_and_change_nothing(name: str) -> None:
    rates, error = BROKEN[name]
    _core._set_rates(FREE)
    with pytest.raises(error):
        _core._set_rates(rates)
    assert _core._rates() == FREE
    assert chosen("reduce", [1.0]) == "sim"


def test_costs_can_be_off_and_unknown() -> None:
    for value in (HAND, "off", None):
        _core._set_rates(value)
        assert _core._rates() == value
    given = dict(HAND)
    _core._set_rates(given)
    given["backend"] = "cpu"  # a copy was taken
    assert _core._rates() == HAND


# ---- probes and measuring ----


@each_op
@pytest.mark.parametrize("n", [4096, _calibration.ELEMENTS], ids=["small", "full"])
def test_every_operator_has_a_probe(op: str, n: int) -> None:
    """An operator whose required arguments are not arrays of one shape needs its own."""
    args, kwargs = _calibration.probe(op, n)
    plan = _core.plan(op, *args, backend="cpu", **kwargs)
    moved = plan["read_bytes"] + plan["written_bytes"]
    assert n / 8 < moved < 32 * n
    if n == 4096:
        getattr(gpuopt, op)(*args, backend="sim", **kwargs)


def test_the_costs_of_a_device_are_measured() -> None:
    """The simulator takes the place of a GPU: the same code measures one."""
    assert not _core.measure_calls(False)
    rates = _calibration.measure("sim", elements=4096, bus_elements=8192, passes=1)
    assert not _core.measure_calls(False)  # restored
    assert set(rates) == set(HAND) and rates["backend"] == "sim"
    for key in _calibration.SCALARS:
        assert 0 < rates[key] < math.inf, key
    for key in ("cpu_factors", "device_factors"):
        assert set(rates[key]) == set(OPS)
        assert all(1 - 1e-9 <= factor < math.inf for factor in rates[key].values())
    _core._set_rates(rates)  # they are in the form in which they are used
    assert chosen("reduce", np.ones(8, np.float32)) == "cpu"  # a launch is thousands of adds


def test_rates_are_the_highest_and_factors_relative_to_them() -> None:
    times = {"a": 1.0, "b": 2.0, "c": 4.0}
    work = {"a": (8e9, 1e9), "b": (4e9, 100e9), "c": (4e9, 0.0)}
    gb, gflop, factors = _calibration._side(times, work)
    assert (gb, gflop) == (8.0, 50.0)
    assert factors == {"a": 1.0, "b": 1.0, "c": 8.0}


# ---- the file ----

MACHINE = {"gpuopt": "1", "device": "a GPU", "driver": "580", "cpu": "a CPU", "threads": 2}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GPUOPT_CALIBRATION", raising=False)
    return tmp_path / "gpuopt"


def test_a_file_is_read_as_it_was_written(cache: Path) -> None:
    path = _calibration.file_for(MACHINE)
    assert path is not None and path.parent == cache and not cache.exists()
    _calibration.write(path, MACHINE, HAND)
    assert _calibration.read(path, MACHINE) == HAND
    assert [entry.name for entry in cache.iterdir()] == [path.name]  # nothing temporary
    for key in MACHINE:
        other = {**MACHINE, key: "another"}
        assert _calibration.file_for(other) != path
        assert _calibration.read(path, other) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '{"format": 1}', b"\xff\xfe", '{"format": 0, "rates": {}}'],
    ids=repr,
)
def test_a_broken_file_is_ignored(text: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert _calibration.read(path, MACHINE) is None
    assert _calibration.read(tmp_path / "none.json", MACHINE) is None
    assert _calibration.read(tmp_path, MACHINE) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    _calibration.write(tmp_path / "file" / "below.json", MACHINE, HAND)
    (tmp_path / "folder" / "taken").mkdir(parents=True)
    _calibration.write(tmp_path / "folder" / "taken", MACHINE, HAND)
    assert [entry.name for entry in (tmp_path / "folder").iterdir()] == ["taken"]


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GPUOPT_CALIBRATION", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for cache in (None, "", "relative"):
        if cache is None:
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", cache)
        path = _calibration.file_for(MACHINE)
        assert path is not None and path.parent == tmp_path / ".cache" / "gpuopt"
    monkeypatch.setattr(Path, "home", no_home)
    assert _calibration.file_for(MACHINE) is None
    monkeypatch.setenv("GPUOPT_CALIBRATION", "here.json")
    assert _calibration.file_for(MACHINE) == Path("here.json")


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


# ---- load ----


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often measure() was called; it returns costs made by hand."""
    calls: list[str] = []

    def measure(backend: str) -> dict[str, Any]:
        calls.append(backend)
        return HAND

    monkeypatch.setattr(_calibration, "measure", measure)
    return calls


def test_costs_are_measured_once_per_machine(cache: Path, measured: list[str]) -> None:
    for _ in range(3):
        _core._set_rates(None)
        _calibration.load("sim")
        assert _core._rates() == HAND
    assert measured == ["sim"]
    (path,) = cache.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["machine"] == _calibration.machine("sim")
    assert found["machine"]["gpuopt"] == gpuopt.__version__
    assert found["machine"]["device"] == "simulator 0"
    gpuopt.set_num_threads(gpuopt.get_num_threads() + 1)  # another machine, so to speak
    try:
        _calibration.load("sim")
    finally:
        gpuopt.set_num_threads(0)
    assert measured == ["sim", "sim"] and len(list(cache.iterdir())) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["rates"].update(cpu_call_s=-1),
        lambda found: found["rates"].pop("up_gb_per_s"),
        lambda found: found["rates"].update(backend="cuda"),
        lambda found: found["machine"].update(gpuopt="0.0"),
        lambda found: found["machine"].update(cpu="another"),
        lambda found: found.update(format=2),
        lambda found: found.update(rates=[]),
        lambda found: found.clear(),
    ],
)
def test_a_file_that_does_not_fit_is_measured_anew(
    change: Callable[[Any], Any], cache: Path, measured: list[str]
) -> None:
    _calibration.load("sim")
    (path,) = cache.iterdir()
    good = path.read_text(encoding="utf-8")
    found = json.loads(good)
    change(found)
    path.write_text(json.dumps(found), encoding="utf-8")
    _core._set_rates(None)
    _calibration.load("sim")
    assert measured == ["sim", "sim"]
    assert _core._rates() == HAND
    assert path.read_text(encoding="utf-8") == good


def test_the_environment_names_the_file_or_turns_it_off(
    cache: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUOPT_CALIBRATION", str(tmp_path / "new" / "own.json"))
    _calibration.load("sim")
    assert (tmp_path / "new" / "own.json").is_file() and not cache.exists()
    monkeypatch.setenv("GPUOPT_CALIBRATION", "off")
    _calibration.load("sim")
    assert _core._rates() == "off" and measured == ["sim"]
    monkeypatch.setenv(
        "GPUOPT_CALIBRATION", str(tmp_path)
    )  # a folder: neither read nor written
    _calibration.load("sim")
    assert _core._rates() == HAND and measured == ["sim", "sim"]


def test_without_a_place_for_the_file_costs_are_measured_again(
    cache: Path, measured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", no_home)
    for _ in range(2):
        _calibration.load("sim")
    assert measured == ["sim", "sim"] and not cache.exists()


def test_a_machine_that_cannot_be_measured_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(backend: str) -> dict[str, Any]:
        raise gpuopt.SimulatorError("no such luck")

    monkeypatch.setattr(_calibration, "measure", fails)
    with pytest.warns(gpuopt.PerformanceWarning, match="could not be measured.*no such luck"):
        _calibration.load("sim")
    assert _core._rates() == "off" and not cache.exists()


def test_the_first_call_loads_the_costs_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpuopt.reduce([1.0, 2.0], backend="cpu")
    last = gpuopt.last_call()
    seen: list[Any] = []

    def load() -> None:
        seen.append(_core._rates())
        gpuopt.scan([1.0])  # finds them unknown, and does not load them again
        _core._set_rates(HAND)

    monkeypatch.setattr(_calibration, "load", load)
    _core._set_rates(None)
    _core._load_rates()
    assert seen == [None] and _core._rates() == HAND
    assert gpuopt.last_call() == last


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_on_the_way_reaches_the_caller(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load() -> None:
        raise error

    monkeypatch.setattr(_calibration, "load", load)
    _core._set_rates(None)
    with pytest.raises(error):
        _core._load_rates()
    assert _core._rates() is None  # the next call tries again


@without_a_gpu
def test_without_a_gpu_nothing_is_measured(reason: str, child: Child, tmp_path: Path) -> None:
    code = """
import sys, gpuopt
gpuopt.reduce([1.0, 2.0])
gpuopt.explain("reduce", [1.0])
print("gpuopt._calibration" in sys.modules, gpuopt.info()["calibration"])
"""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "GPUOPT_CALIBRATION": ""}
    assert child(code, env=environment).stdout == f"False {{'rates': 'not needed: {reason}'}}\n"
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("backend", [] if REASON else ["cuda"])
def test_a_gpu_is_measured_once(backend: str, child: Child, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    code = """
import gpuopt, numpy as np
small = gpuopt.explain("reduce", np.ones(8, np.float32))[0]
print(small["backend"], small["cpu_ms"] < small["gpu_ms"])
"""
    environment = {"GPUOPT_CALIBRATION": str(path), "GPUOPT_BACKEND": ""}
    assert child(code, env=environment).stdout == "cpu True\n"
    text = path.read_text(encoding="utf-8")
    assert json.loads(text)["rates"]["backend"] == backend
    assert child(code, env=environment).stdout == "cpu True\n"
    assert path.read_text(encoding="utf-8") == text
