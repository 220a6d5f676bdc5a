"""The sweep: dice, cases, judging, the summary, the command, what is published of it.

No test looks at a time: where times matter, the clock is one that says what it is told.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest

import gpuopt
from gpuopt import __main__ as cli
from gpuopt.benchmarks import beside, pictures, readme
from gpuopt.benchmarks.sweep import __main__ as kept
from gpuopt.benchmarks.sweep import families, family, peers
from gpuopt.benchmarks.sweep.upsample_nearest import sources
from gpuopt.lab import arrays, drawing, published, sweep, turns

LIBRARIES = {"numpy": arrays.Arrays}
if importlib.util.find_spec("torch"):
    LIBRARIES["torch"] = lambda seed: arrays.TorchArrays(seed, "cpu")


class Told:
    """A clock that knows the times before: ours takes 1 ms, every other call 2."""

    def __init__(self, device="cpu"):
        self.seen = []

    def run(self, calls, nbytes):
        self.seen.append(list(calls))
        return {name: 1.0 if name == "gpuopt" else 2.0 for name in calls}


@pytest.fixture
def small(monkeypatch):
    """Cases of at most some thousand elements, and times that are told."""
    monkeypatch.setattr(drawing, "SMALL_BITS", (4, 11))
    monkeypatch.setattr(drawing.Dice, "bits", lambda self, cpu, gpu: min(cpu, 12))
    monkeypatch.setattr(sweep, "Turns", Told)


def first(room, count, seed=1, library="numpy"):
    """The first cases of a room."""
    lib = LIBRARIES[library]([seed])
    drawn = sweep.draw(room, lib, seed)
    return lib, list(itertools.islice((case for case in drawn if case is not None), count))


def nothing(case, lib, row):
    """No peers at all."""
    return {}


# ---- dice ----


def test_sizes_are_in_bounds_and_half_of_them_round():
    dice = drawing.Dice(np.random.default_rng(1), arrays.Arrays([1]))
    sizes = [dice.log(16, 1 << 20) for _ in range(2000)]
    assert min(sizes) >= 16
    assert max(sizes) <= 1 << 20
    powers = sum(n & (n - 1) == 0 for n in sizes)
    tens = sum(n == round(n, -(len(str(n)) - 1)) for n in sizes)
    assert 500 < powers < 800  # 0.3 of them, and the ends
    assert 300 < tens < 700
    assert 600 < sum(n < 1 << 12 for n in sizes) < 1400  # a half: the logarithm is uniform


def test_shapes_have_the_elements_that_were_drawn():
    dice = drawing.Dice(np.random.default_rng(2), arrays.Arrays([1]))
    low, high = drawing.SMALL_BITS
    for ndim in (1, 2, 3, 4):
        sizes = [np.prod(dice.shape(ndim)) for _ in range(200)]
        assert all(n >= 1 for n in sizes)
        assert np.median(sizes) < 1 << high
        assert np.median(sizes) > 1 << (low - ndim)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", ["uniform", "zipf", "sorted", "perm"])
def test_indices_are_what_their_kind_says(kind, library):
    lib = LIBRARIES[library]([5])
    dice = drawing.Dice(np.random.default_rng(5), lib)
    found = np.asarray(dice.index(500, 1000, kind, "int32"))
    assert found.dtype == np.int32
    assert found.shape == (500,)
    assert found.min() >= 0
    assert found.max() < 1000
    assert (np.diff(found) >= 0).all() == (kind == "sorted")
    assert (np.unique(found).size == 500) == (kind == "perm")
    most = np.bincount(found).max()
    assert (most > 40) == (kind == "zipf")  # the most frequent one has about 0.2 of all


class StandIn(arrays.CupyArrays):
    """CuPy's arrays with NumPy in the place of CuPy, which has the same names."""

    device = "cpu"
    xp = np


def test_cupys_arrays_are_drawn_like_numpys(small, on_cpu):
    for room in families():
        names = []
        for lib in (StandIn([1]), arrays.Arrays([1])):
            found = (case for case in sweep.draw(room, lib, 1) if case is not None)
            names.append([case.name for case in itertools.islice(found, 6)])
        assert names[0] == names[1]
    lib = StandIn([1])
    assert sorted(lib.permutation(100)) == list(range(100))
    assert lib.normal((3, 4), "float16").dtype == np.float16
    assert lib.normal((3,), "complex64").dtype == np.complex64


def test_cupys_calls_are_numpys(small, on_cpu, monkeypatch):
    monkeypatch.setattr(peers.peer("cupy"), "library", lambda: np)
    rivals = sweep.libraries(["cupy"])
    timed = set()
    for room in families():
        lib, cases = first(room, 8, seed=2)
        for case in cases:
            found = sweep.measure(room, case, lib, rivals, Told())
            assert found["peers_wrong"] == {}
            timed |= {room} if found["peers"] else set()
    assert timed == set(families()) - {"causal_conv1d", "max_pool3d"}


def test_bfloat16_is_drawn_where_there_is_one():
    class Gpu(arrays.Arrays):
        device = "cuda"
        has_bfloat16 = True

    found = {
        lib: drawing.Dice(np.random.default_rng(1), kind([1])).one("bfloat16")
        for lib, kind in (("numpy", arrays.Arrays), ("gpu", Gpu))
    }
    assert found == {"numpy": "float32", "gpu": "bfloat16"}


# ---- cases ----


def test_each_room_has_cases():
    rooms = {gpuopt.describe(op)["room"] for op in gpuopt.ops()}
    assert set(families()) == rooms
    with pytest.raises(ValueError, match="no cases of 'sort'; there are: causal_conv1d"):
        family("sort")


@pytest.mark.parametrize("room", families())
def test_a_seed_is_a_list_of_cases(small, on_cpu, room):
    def told(case):
        return case.name, case.dtype, case.function, case.nbytes, case.scale

    def inputs(case):
        return [a.tobytes() for a in case.args if isinstance(a, np.ndarray)]

    (_, one), (_, two), (_, other) = (first(room, 6, seed) for seed in (7, 7, 8))
    assert list(map(told, one)) == list(map(told, two))
    assert list(map(inputs, one)) == list(map(inputs, two))
    assert [case.name for case in one] != [case.name for case in other]


@pytest.mark.parametrize("room", families())
def test_the_library_of_the_arrays_does_not_decide_the_cases(small, on_cpu, room):
    names = [[case.name for case in first(room, 6, library=lib)[1]] for lib in LIBRARIES]
    assert all(found == names[0] for found in names)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("room", families())
def test_every_case_is_judged_right(small, on_cpu, room, library):
    """By the installed libraries, of which NumPy is one; none of their calls raises."""
    names = [name for name in peers.installed("cpu") if library == "numpy" or name == "torch"]
    rivals, _ = sweep.opponents("cpu", names)
    lib, cases = first(room, 8, seed=3, library=library)
    rows = [sweep.measure(room, case, lib, rivals, Told()) for case in cases]
    for row in rows:
        assert "failed" not in row, row
        assert row["wrong"] is False, row
        assert row["peers_failed"] == {}, row
        assert row["variant"] in {found["name"] for found in gpuopt.variants(row["function"])}
        assert row["backend"] == "cpu"
        assert row["ms"] == 1.0
    if room not in ("causal_conv1d", "max_pool3d") or "torch" in names:
        assert any(row["peers"] for row in rows)


def test_upsampling_follows_pytorchs_rule():
    assert sources(4, 10, 2.5).tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert sources(5, 2, 0.5).tolist() == [0, 2]


def test_calls_in_place_have_an_array_each(on_cpu):
    drawn = (case for seed in range(40) for case in first("index_add", 1, seed)[1])
    case = next(c for c in drawn if c.in_place and c.dtype == "float64" and c.nbytes < 1 << 22)
    lib = arrays.Arrays([1])
    want = case.reference()
    assert want.any()
    for call in (
        case.ours(lib),
        case.ours(lib),
        *peers.calls("numpy", case.peer, case.given).values(),
    ):
        np.testing.assert_allclose(call(), want, rtol=1e-9, atol=1e-9)
        assert not np.allclose(call(), want)  # it was added again
    assert not case.args[0].any()


# ---- judging ----


def test_errors_are_relative_and_nan_is_one():
    lib = arrays.Arrays([1])
    want = np.array([1.0, -4.0])
    assert sweep.error(lib, np.array([1.0, -4.0], np.float32), want) == 0.0
    assert sweep.error(lib, np.array([1.0, -3.0]), want) == 0.25
    assert sweep.error(lib, np.array([1.0, -3.0]), want, scale=100.0) == 0.01
    for bad in (np.nan, np.inf):
        assert sweep.error(lib, np.array([1.0, bad]), want) == sweep.NOT_A_NUMBER
    assert not sweep.is_right(sweep.NOT_A_NUMBER, 1.0)
    assert sweep.error(lib, np.float64(1), want) == "shape () instead of (2,)"
    assert not sweep.is_right("shape () instead of (2,)", 1.0)
    assert sweep.error(lib, np.zeros(0), np.zeros(0)) == 0.0
    whole = np.array([1, 2, 3])
    assert sweep.error(lib, np.array([1, 2, 3], np.uint64), whole) == 0.0
    assert sweep.error(lib, np.array([1, 0, 0], np.int32), whole) == 2.0
    assert sweep.error(lib, np.array([1, 2, 3.5]), whole) == 1.0
    assert sweep.error(lib, (want, whole, "unused"), (want, whole)) == 0.0
    assert sweep.error(lib, (want, whole + 1), (want, whole)) == 3.0
    assert sweep.error(lib, (want, want[:1]), (want, whole)) == "shape (1,) instead of (3,)"


def test_a_wrong_peer_is_none(small, on_cpu, monkeypatch):
    table = {"dot": lambda x, y: {"": lambda: np.dot(x, y), "off": lambda: np.dot(x, y) + 1e3}}
    monkeypatch.setattr(peers.peer("numpy"), "CALLS", table)
    lib, cases = first("dot", 1)
    clock = Told()
    row = sweep.measure("dot", cases[0], lib, sweep.libraries(["numpy"]), clock)
    assert clock.seen == [["gpuopt", "numpy"]]  # only right calls are timed
    assert row["peers"] == {"numpy": 2.0}
    assert row["peers_wrong"]["numpy-off"] > 1e-3
    assert row["times"] == 2.0


def test_a_peer_that_raises_is_noted(small, on_cpu, monkeypatch):
    def refuses(**given):
        raise NotImplementedError("not\nhere")

    lib, cases = first("dot", 1)
    for table in ({"dot": refuses}, {"dot": lambda **given: refuses}):
        monkeypatch.setattr(peers.peer("numpy"), "CALLS", table)
        row = sweep.measure("dot", cases[0], lib, sweep.libraries(["numpy"]), Told())
        assert row["peers_failed"] == {"numpy": "NotImplementedError: not here"}
        assert "times" not in row
        assert row["wrong"] is False


def test_a_wrong_result_is_counted_and_not_timed(small, monkeypatch, capsys):
    monkeypatch.setattr(gpuopt, "dot", lambda x, y: np.float64(np.nan))
    assert cli.main(["bench", "dot", "--sweep", "--device", "cpu", "--cases", "2"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("wrong by 1e+300\n") == 2
    assert "\ndot " in captured.out
    found = sweep.run(["dot"], device="cpu", cases=2)
    assert found.column("wrong") == [2]
    assert found.column("share") == [0.0]
    assert found.column("worst") == [0.0]
    assert all(row["ms"] is None and row["peers"]["numpy"] == 2.0 for row in found.rows)


def test_a_call_that_raises_is_counted(small, monkeypatch, capsys):
    def raises(x, y):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(gpuopt, "dot", raises)
    arguments = ["bench", "dot", "--sweep", "--device", "cpu", "--cases", "2", "--json"]
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.count("RuntimeError: no such thing\n") == 2
    assert json.loads(captured.out)["summary"][0]["failed"] == 2


def test_a_case_that_cannot_be_made_is_noted(small, monkeypatch):
    def too_large(self, shape, dtype):
        raise MemoryError("too large")

    monkeypatch.setattr(drawing.Dice, "array", too_large)
    found = sweep.run(["dot"], device="cpu", cases=1)
    assert found.rows == []
    assert found.about["undrawn"] == ["dot: MemoryError: too large"] * sweep.TRIES


def test_ties_are_within_three_percent_or_half_a_microsecond():
    def tie(ours, theirs):
        return sweep.compared(ours, {"slow": 99.0, "peer": theirs})

    assert tie(1.0, 0.9) == {"best": "peer", "times": 0.9, "tie": False}
    assert tie(1.0, 0.975)["tie"]
    assert tie(1.0, 1.025)["tie"]
    assert not tie(1.0, 1.035)["tie"]
    assert tie(0.0010, 0.0006)["tie"]
    assert not tie(0.0020, 0.0014)["tie"]


def row(times=None, **more):
    """A row of a case, made by hand."""
    found = {"op": "dot", "function": "dot", "case": "8", "dtype": "float32", "variant": "v1",
             "bytes": 64, "wrong": False, "ms": 1.0, "peers": {}, **more}  # fmt: skip
    if times is not None:
        found |= {"times": times, "best": "torch", "peers": {"torch": times}, "tie": False}
        found |= more
    return found


def test_the_summary_counts():
    rows = [row(2.0), row(0.5), row(0.9, tie=True), row(1000.0), row()]
    found = sweep.summary(rows)
    assert found == {
        "cases": 5,
        "share": 0.75,  # of four that have a peer
        "worst": 0.5,
        "mean": pytest.approx((2.0 * 0.5 * 0.9 * 10) ** 0.25),
        "wrong": 0,
        "failed": 0,
        "peerless": 1,
    }
    bad = [row(2.0), row(failed="no"), row(wrong=True, ms=None)]
    assert sweep.summary(bad) == {
        "cases": 3,
        "share": pytest.approx(1 / 3),
        "worst": 0.0,
        "mean": pytest.approx((2.0 * 1e-6) ** (1 / 3)),
        "wrong": 1,
        "failed": 1,
        "peerless": 0,
    }
    assert sweep.summary([row()])["share"] is None
    assert sweep.summary([])["mean"] is None


def test_the_limit_is_good():
    assert sweep.is_good(row(0.95))
    assert not sweep.is_good(row(0.9499))
    assert not sweep.is_good(row(2.0, wrong=True))
    assert sweep.percent(0.999) == "99 %"
    assert sweep.percent(1.0) == "100 %"
    assert sweep.percent(None) == ""


def test_a_table_has_a_line_for_all():
    lines = sweep.table([row(2.0), row(0.5, op="scan")])
    assert [line["operator"] for line in lines] == ["dot", "scan", "all"]
    assert [line["0.95 or better"] for line in lines] == ["100 %", "0 %", "50 %"]
    assert [line["operator"] for line in sweep.table([row(2.0)])] == ["dot"]
    assert [case["times as fast"] for case in sweep.under([row(0.8), row(2.0), row(0.5)])] == [
        "0.50",
        "0.80",
    ]


# ---- the clock ----


class Rounds:
    """A clock that notes what is asked of it."""

    def __init__(self):
        self.order = []

    def round(self, calls, cold):
        assert cold
        self.order.append([call() for call in calls])
        return [1.0] * len(calls)

    def wait(self):
        pass


def test_calls_take_turns(monkeypatch):
    monkeypatch.setattr(turns, "BUDGET", 0.0)
    clock = turns.Turns("cpu")
    clock.clock = Rounds()
    found = clock.run({name: lambda name=name: name for name in "abc"}, 1 << 30)
    assert found == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert clock.clock.order == [
        list("abc"),
        list("bca"),
        list("cab"),
        list("abc"),
        list("bca"),
    ]


def test_slow_calls_are_timed_twice(monkeypatch):
    monkeypatch.setattr(turns, "BUDGET", 0.0)
    monkeypatch.setattr(turns.Turns, "_first", lambda self, call: 0.9 if call() == "b" else 0.0)
    clock = turns.Turns("cpu")
    clock.clock = Rounds()
    clock.run({"a": lambda: "a", "b": lambda: "b"}, 1 << 30)
    assert clock.clock.order == [["a", "b"], ["b", "a"], ["a"], ["a"], ["a"]]


def test_endless_calls_are_timed_once(monkeypatch):
    monkeypatch.setattr(turns, "BUDGET", 0.0)
    monkeypatch.setattr(turns.Turns, "_first", lambda self, call: 9.0 if call() == "b" else 0.0)
    clock = turns.Turns("cpu")
    clock.clock = Rounds()
    found = clock.run({"a": lambda: "a", "b": lambda: "b"}, 1 << 30)
    assert clock.clock.order == [["a"]] * 5
    assert found == {"a": 1.0, "b": 9000.0}
    assert clock.run({"b": lambda: "b"}, 1 << 30) == {"b": 9000.0}


def test_small_work_on_a_cpu_is_timed_in_loops(monkeypatch):
    done = {"a": 0, "b": 0}

    def call(name):
        done[name] += 1

    clock = turns.Turns("cpu")
    clock.clock = Rounds()
    found = clock.run({name: lambda name=name: call(name) for name in done}, 1000)
    assert clock.clock.order == []
    assert set(found) == {"a", "b"}
    least = 1 + turns.WARM_ROUNDS
    assert all(
        least <= count <= 1 + turns.WARM_ROUNDS * turns.WARM_CALLS for count in done.values()
    )


def test_a_cold_call_follows_itself_and_a_pause():
    clock = turns.PausingClock()
    seen = []
    times = clock.round([lambda: seen.append(1), lambda: seen.append(2)], True)
    assert seen == [1, 1, 2, 2]
    assert len(times) == 2 and all(took > 0 for took in times)
    assert clock.round([lambda: seen.append(3)], False) and seen[4:] == [3]


# ---- the command ----


def test_the_command_prints_a_table_or_json(small, tmp_path, capsys):
    out = tmp_path / "deep" / "sweep.json"
    arguments = ["bench", "add", "--sweep", "--device", "cpu", "--seed", "4", "--cases", "3"]
    assert cli.main([*arguments, "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "seed 4\noperator " in captured.out
    assert "\nelementwise " in captured.out
    assert cli.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == json.loads(out.read_text())["rows"]
    assert found["summary"][0]["cases"] == len(found["rows"]) == 3
    assert found["seed"] == 4
    assert found["interrupted"] is False
    assert found["cpu"]["name"]
    assert found["device"]
    assert {"op", "case", "dtype", "variant", "ms", "peers", "err", "bytes"} <= set(
        found["rows"][0]
    )


def test_all_rooms_are_swept(small):
    found = sweep.run(device="cpu", cases=1)
    assert found.column("operator") == [*families(), "all"]
    assert found.errors == []


def test_ctrl_c_leaves_what_is_measured(small, tmp_path, monkeypatch, capsys):
    class Stopped(Told):
        def run(self, calls, nbytes):
            if len(self.seen) == 2:
                raise KeyboardInterrupt
            return super().run(calls, nbytes)

    monkeypatch.setattr(sweep, "Turns", Stopped)
    out = tmp_path / "sweep.json"
    before = gpuopt.default_backend()
    assert cli.main(["bench", "dot", "--sweep", "--device", "cpu", "--out", str(out)]) == 130
    assert gpuopt.default_backend() == before
    assert "interrupted" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["interrupted"] is True
    assert len(found["rows"]) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "-1"], "seed must be 0 or more, got -1"),
        (["--cases", "0"], "cases must be at least 1, got 0"),
        (["--device", "gpu"], "no device 'gpu'; there are: cuda, cpu, host"),
        (["--dtype", "float32"], "--dtype is no option of --sweep"),
        (["--max-time", "2"], "--max-time is no option of --sweep"),
        (["--device", "cpu", "--peers", "nope"], "no peer 'nope'; there are: causal-conv1d, "),
        (["--device", "cpu", "--peers", "cupy"], "peer 'cupy' does not run on device 'cpu'"),
        (["--out", "/proc/no/file"], "cannot write /proc/no/file: "),
    ],
)
def test_a_bad_argument_is_one_sentence(small, arguments, words, capsys):
    assert cli.main(["bench", "dot", "--sweep", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"gpuopt bench: {words}")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_option_of_the_sweep_alone_is_refused(capsys):
    assert cli.main(["bench", "dot", "--seed", "3"]) == 2
    assert capsys.readouterr().err == "gpuopt bench: --seed is an option of --sweep\n"


def test_an_unknown_operator_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "sort", "--sweep"])
    assert "invalid choice: 'sort'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no operator 'sort'; there are: causal_conv1d, "):
        sweep.run(["sort"])
    with pytest.raises(SystemExit, match="2"):
        kept.main(["sort"])
    assert "error: no operator 'sort'; there are" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cuda", "host"])
def test_a_machine_without_a_gpu_says_so(device, monkeypatch, capsys):
    monkeypatch.setattr(sweep._core, "backends", lambda: {"cpu": None, "cuda": "none there"})
    assert cli.main(["bench", "dot", "--sweep", "--device", device]) == 2
    captured = capsys.readouterr()
    assert "none there" in captured.err
    assert captured.err.count("\n") == 1


def test_a_gpu_without_a_library_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = "no arrays on the GPU .torch is not installed; cupy is not installed."
    with pytest.raises(RuntimeError, match=words):
        arrays.library_for("cuda", [1])


def test_a_machine_without_peers_says_so(monkeypatch, capsys):
    monkeypatch.setattr(peers, "installed", lambda device: ())
    assert cli.main(["bench", "dot", "--sweep", "--device", "cpu"]) == 2
    assert capsys.readouterr().err == "gpuopt bench: no peer is installed for device 'cpu'\n"
    with pytest.raises(ValueError, match="no peer 'nope'; there are: causal-conv1d, cub, "):
        peers.peer("nope")


def test_peers_take_part_if_they_are_installed_or_named(small, monkeypatch):
    found = peers.installed("cpu")
    assert "numpy" in found
    assert "torch-compile" not in found
    assert "cupy" not in found
    assert peers.named("cpu", ["numpy", "numpy"]) == ("numpy",)
    monkeypatch.setattr(peers.peer("jax"), "available", lambda: "not installed")
    assert "jax" not in peers.installed("cpu")
    with pytest.raises(RuntimeError, match="peer 'jax' cannot be called: not installed"):
        sweep.run(["dot"], device="cpu", against=["jax"])
    assert {*sweep.run(["dot"], device="cpu", cases=1, against=["numpy"]).rows[0]["peers"]} == {
        "numpy"
    }


@pytest.mark.parametrize("name", peers.names())
def test_peers_keep_the_contract(name):
    peer = peers.peer(name)
    assert set(peer.DEVICES) <= {"cpu", "cuda"}
    assert peer.available() is None or isinstance(peer.available(), str)
    for operator, make in peer.CALLS.items():
        assert callable(make), operator
    if peer.available() is None:
        assert isinstance(peer.version(), str)


@pytest.mark.skipif(gpuopt.backends()["sim"] is not None, reason="needs the simulator")
def test_arrays_of_the_host_are_compared_with_each_backend(small, on_cpu, monkeypatch):
    """The simulator stands for the GPU: calls with backend= are the peers, and are checked."""
    monkeypatch.setattr(sweep, "COMPARED", ("cpu", "sim"))
    for room in ("dot", "upsample_nearest", "index_add"):
        lib, cases = first(room, 3, seed=2)
        for case in cases:
            found = sweep.measure(room, case, lib, sweep.backends, Told())
            assert found["peers"] == {"cpu": 2.0, "sim": 2.0}
            assert found["backend"] == "cpu"  # the default's
            assert found["best"] == "cpu"


def on_the_simulator(self, lib, **where):
    return functools.partial(
        getattr(gpuopt, self.function), *self.args, **self.options, **{"backend": "sim"} | where
    )


@pytest.mark.skipif(gpuopt.backends()["sim"] is not None, reason="needs the simulator")
def test_variants_are_compared_with_the_default_call(small, monkeypatch):
    """The simulator stands for the GPU: its variants are checked, refused, or timed."""
    rivals, names = sweep.opponents("cuda", ["variants"])
    assert names == ()
    monkeypatch.setattr(drawing.Case, "ours", on_the_simulator)
    lib, cases = first("reduce", 3, seed=2)
    for case in cases:
        row = sweep.measure("reduce", case, lib, rivals, Told())
        listed = {r["name"] for r in gpuopt.variants("reduce") if r["backend"] == "sim"}
        assert row["backend"] == "sim" and not row["peers_wrong"]
        assert row["variant"] in row["peers"]
        assert set(row["peers"]) | set(row["peers_failed"]) == listed
        assert all("takes" in why for why in row["peers_failed"].values())
    with pytest.raises(ValueError, match="peer 'variants' is compared alone"):
        sweep.opponents("cpu", ["numpy", "variants"])


# ---- what is kept and published ----


def test_seeds_come_from_the_commit():
    seeds = kept.seeds("be3b6c5ba2", 3)
    assert len(set(seeds)) == 3
    assert seeds == kept.seeds("be3b6c5ba2+", 3)
    assert seeds[:1] == kept.seeds("be3b6c5ba2aa09d2a", 1)
    assert seeds != kept.seeds("be3b6c5ba3", 3)


def test_sweeps_are_kept_by_machine_and_seed(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUOPT_COMMIT", "be3b6c5ba2")
    arguments = ["dot", "--device", "cpu", "--cases", "1", "--folder", str(tmp_path)]
    assert kept.main(arguments) == 0
    capsys.readouterr()
    found = published.sweeps(tmp_path)
    assert sorted(run["seed"] for run in found) == sorted(kept.seeds("be3b6c5ba2", 3))
    for run in found:
        path = tmp_path / f"sweep-{sweep.machine(run)}-{run['seed']}.json"
        assert path.is_file()
        assert run["commit"] == "be3b6c5ba2"
    assert published.load(tmp_path) == []  # a sweep is no run of benchmarks


def test_machines_have_short_names():
    def name(device, mode="cuda"):
        return sweep.machine({"device": device, "mode": mode})

    assert name("NVIDIA H200") == "h200"
    assert name("NVIDIA H100 80GB HBM3") == "h100"
    assert name("NVIDIA H200", "host") == "host-h200"
    assert name("Intel(R) Xeon(R) Processor", "cpu") == "xeon"
    assert name("AMD EPYC 7763 64-Core Processor", "cpu") == "epyc-7763"
    assert name("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "cpu") == "core-i7-8700"
    assert name("CPU", "cpu") == "cpu"


def one_sweep(**more):
    """A sweep as it is read from a file."""
    return {"device": "NVIDIA H200", "mode": "cuda", "commit": "be3b6c5ba2", "seed": 5,
            "interrupted": False, "file": "benchmarks/results/sweep-h200-5.json",
            "rows": [row(2.0), row(0.5, op="scan", case="sum (8,) axis=0"), row()],
            **more}  # fmt: skip


def test_results_show_sweeps_only_if_there_are_some(monkeypatch):
    monkeypatch.setattr(published, "sweeps", lambda folder: [])
    empty = "<!-- begin:sweeps -->\n<!-- end:sweeps -->"
    assert readme.rewrite(empty, []) == empty
    runs = [one_sweep(), one_sweep(seed=6), one_sweep(mode="host")]
    monkeypatch.setattr(published, "sweeps", lambda folder: runs)
    text = readme.rewrite(empty, [])
    assert text.count("## Random calls\n") == 1
    assert "### NVIDIA H200\n\nCommit `be3b6c5ba2`, seed 5 ([data]" in text
    assert ", 6 ([data]" in text
    assert "### NVIDIA H200: NumPy arrays" in text
    assert "| all | 6 | 50 % | 0.5 | 1 | 0 | 0 | 2 |" in text
    assert "2 cases under 0.95" in text
    assert "sweep-h200.svg" in text
    assert "sweep-host-h200.svg" in text
    assert readme.rewrite(text, []) == text


def test_interrupted_sweeps_are_not_published(tmp_path):
    for k, stopped in enumerate((False, True)):
        path = tmp_path / f"sweep-h200-{k}.json"
        path.write_text(json.dumps(one_sweep(interrupted=stopped)))
    assert [run["interrupted"] for run in published.sweeps(tmp_path)] == [False]


def test_a_picture_has_a_panel_for_each_operator(monkeypatch, tmp_path):
    rows = [row(t, op=op, bytes=10**k, ms=10.0 ** (k - 9), case="sum (8,) axis=0")
            for op in ("dot", "scan", "reduce", "convolve")
            for k, t in ((3, 0.5), (6, 1.0), (9, 2.0))]  # fmt: skip
    drawn = pictures.panels("NVIDIA H200", rows)
    tree = ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    words = [found.text for found in tree.iter(f"{name}text")]
    assert {"dot", "scan", "reduce", "convolve", "1 kB", "1 MB", "1 GB"} <= set(words)
    series = [found.get("d") for found in tree.iter(f"{name}path")][2:]
    assert [line.count("M") for line in series] == [3] * 8
    width, height = int(tree.get("width")), float(tree.get("height"))
    for line in series:
        for point in line.split("M")[1:]:
            x, y = point.split("m")[0].split()
            assert 0 < float(x) < width
            assert 0 < float(y) < height
    monkeypatch.setattr(beside, "kept", lambda name: [])
    monkeypatch.setattr(published, "sweeps", lambda folder: [one_sweep(rows=rows)])
    layouts = {f"layouts-{op}.svg" for op in ("dot", "scan", "reduce")}
    assert set(pictures.pictures()) == {*pictures.PICTURES, "sweep-h200.svg", *layouts}
    assert pictures.pictures()["sweep-h200.svg"]() == drawn
    monkeypatch.setattr(published, "sweeps", lambda folder: [])
    assert pictures.pictures() == pictures.PICTURES
