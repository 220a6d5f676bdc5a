"""The benchmarks of named rows: layers, states, lengths, fixed_cost, and what they share.

Order: the short form on a CPU, the rows of a GPU, the file, the command, tables and pictures.
No test looks at a time: the clock is one that says what it is told.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest

import gpuopt
from gpuopt.benchmarks import beside, fixed_cost, layers, lengths, pictures, readme, states
from gpuopt.lab import arrays, drawing, published, sweep

MODULES = (layers, states, lengths, fixed_cost)
HAS_TORCH = importlib.util.find_spec("torch") is not None

each_module = pytest.mark.parametrize("module", MODULES, ids=lambda m: m.BENCH.name)


class Told:
    """A clock that knows the times before: ours takes 1 ms, every other call 2."""

    def __init__(self, device="cpu"):
        self.from_python = {}

    def run(self, calls, nbytes):
        times = {name: 1.0 if name == "gpuopt" else 2.0 for name in calls}
        self.from_python = {name: 3 * took for name, took in times.items()}
        return times


class Gpu(arrays.Arrays):
    """Stands for a GPU's arrays where only the rows are listed."""

    device = "cuda"
    has_bfloat16 = True


def of_gpu(module):
    """The rows of a benchmark on a GPU; no array is made."""
    return list(module.BENCH.items(drawing.Dice(np.random.default_rng(0), Gpu([0]))))


def told(module):
    """The benchmark with times that are told."""
    return dataclasses.replace(module.BENCH, clock=Told)


# ---- the short form on a CPU ----


@each_module
def test_the_short_form_has_what_the_table_needs(module, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUOPT_COMMIT", "be3b6c5ba2")
    path = tmp_path / f"xeon-{module.BENCH.name}.json"
    before = gpuopt.default_backend()
    run = beside.run(told(module), "cpu", path)
    assert gpuopt.default_backend() == before
    assert not run["interrupted"]
    assert len(run["rows"]) > 4
    for row in run["rows"]:
        assert not beside.is_bad(row), row
        assert row["backend"] == "cpu"
        assert row["ms"] == 1.0
        assert row["peers_wrong"] == {}
        assert row["peers_failed"] == {}
        if HAS_TORCH:
            assert row["times"] == 2.0
            assert beside.best_of(row, "torch") == 2.0
    assert {module.BENCH.key(row) for row in run["rows"]} == {
        module.BENCH.key(item.labels)
        for item in module.BENCH.items(
            drawing.Dice(np.random.default_rng(0), arrays.Arrays([0]))
        )
    }
    (kept,) = beside.kept(module.BENCH.name, tmp_path)
    assert kept["rows"] == json.loads(json.dumps(run["rows"]))
    assert kept["commit"] == "be3b6c5ba2"
    assert published.load(tmp_path) == published.sweeps(tmp_path) == []  # read by no other
    text = beside.section(module.HEADING, [kept], module.parts)
    assert text.startswith("## ")
    assert f"commit `be3b6c5ba2` ([data]({kept['file']}))" in text
    for row in run["rows"]:
        words = [f"{row[label]:,}" if label == "elements" else str(row[label])
                 for label in {"call", "layer", "shape", "elements"} & set(row)]  # fmt: skip
        assert any(all(f"| {word} |" in line for word in words) for line in text.splitlines())


def test_a_small_call_is_timed_from_python_too(monkeypatch):
    monkeypatch.setattr(fixed_cost, "ROUNDS", 2)
    seen = []
    clock = fixed_cost.TwoClocks("cpu")
    found = clock.run({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, 8)
    assert set(found) == set(clock.from_python) == {"a", "b"}
    assert seen[-4:] == ["a", "b", "b", "a"]  # in turns


def test_device_arrays_are_no_peer(on_cpu):
    def rivals(case, lib, row):
        result = case.ours(lib)
        return {name: (result, lambda r: r) for name in (fixed_cost.DEVICE_ARRAY, "torch")}

    lib = arrays.Arrays([0])
    case = fixed_cost.summing(drawing.Dice(np.random.default_rng(0), lib), 1000)
    row = fixed_cost.measure(case, lib, rivals, Told())
    assert row["peers"] == {"torch": 2.0}
    assert row["best"] == "torch"
    assert row["device_array_ms"] == 2.0
    line = fixed_cost.line(
        {"call": "reduce", "elements": 1000, **row}, fixed_cost.between_events(row)
    )
    assert line == {"call": "reduce", "elements": "1,000", "ours": 1000.0, "torch": 2000.0,
                    "ours, DeviceArray": 2000.0, "CuPy": None}  # fmt: skip
    assert (
        fixed_cost.line({"call": "reduce", "elements": 1000}, row["from_python"])["ours"]
        == 3000
    )


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
@each_module
def test_torchs_tensors_are_checked_and_timed_as_on_a_gpu(module, on_cpu):
    lib = arrays.TorchArrays([0], "cpu")
    rivals = module.BENCH.rivals(["torch"])
    for item in module.BENCH.items(drawing.Dice(np.random.default_rng(0), lib)):
        row = beside.row_of(module.BENCH, item, lib, rivals, Told())
        assert not beside.is_bad(row), row
        assert row["times"] == 2.0
        assert row["peers_wrong"] == row["peers_failed"] == {}


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_states_are_right_in_bfloat16(on_cpu):
    lib = arrays.TorchArrays([0], "cpu")
    dice = drawing.Dice(np.random.default_rng(0), lib)
    cases = [states.behind(dice, 2, 8, 64, layout, "bfloat16") for layout in ("BCT", "BTC")]
    cases += [states.decode(dice, 4, 16, steps, indexed, "bfloat16")
              for steps in (1, 4) for indexed in (False, True)]  # fmt: skip
    cases += [states.pack(dice, 5, 8, 200, layout, "bfloat16", back)
              for layout in ("BCT", "BTC") for back in (False, True)]  # fmt: skip
    for case in cases:
        row = beside.checked(case, lib, states.rivals(["torch"]), Told())
        assert not beside.is_bad(row), row
        assert row["peers_wrong"] == row["peers_failed"] == {}
        assert row["times"] == 2.0


def test_a_wrong_packed_result_is_seen():
    """The reference knows the ends of the sequences: without them results differ."""
    lib = arrays.Arrays([0])
    case = states.pack(
        drawing.Dice(np.random.default_rng(0), lib), 5, 8, 200, "BCT", "float32", 0
    )
    want = case.reference()
    options = {**case.options, "backend": "cpu"}
    got = gpuopt.causal_conv1d(*case.args, **options)
    assert sweep.is_right(sweep.error(lib, got, want), 1e-5)
    wrong = gpuopt.causal_conv1d(*case.args, **{**options, "segments": np.array([0, 200])})
    assert not sweep.is_right(sweep.error(lib, wrong, want), 1e-2)


# ---- the rows of a GPU ----


@each_module
def test_no_two_rows_have_the_same_name(module):
    items = of_gpu(module)
    assert all(set(item.labels) == set(module.BENCH.labels) for item in items)
    keys = [module.BENCH.key(item.labels) for item in items]
    assert len(set(keys)) == len(keys)


def outputs(network):
    """The lengths of the last axis that each layer of a network makes."""
    return [
        layer.does * layer.shape[-1]
        if isinstance(layer.does, int)
        else layer.does.outputs(layer.shape[-1])
        for layer in layers.NETWORKS[network].layers
    ]


def test_layers_have_the_published_shapes():
    assert outputs("ResNet-50") == [56]
    assert outputs("VGG-16") == [112, 56, 28, 14, 7]
    assert outputs("Inception-v3") == [73, 35, 17, 8, 8]
    assert outputs("U-Net 2-D") == [284, 140, 68, 32, 56, 104, 200, 392]
    assert outputs("U-Net 3-D") == [64, 30, 13, 18, 28, 48]
    assert outputs("YOLOv3-SPP") == [19, 19, 19]


def test_layers_are_timed_in_every_form():
    rows = [dict(item.labels) for item in of_gpu(layers)]
    names = [(name, layer.title) for name, n in layers.NETWORKS.items() for layer in n.layers]
    assert list(dict.fromkeys((row["network"], row["layer"]) for row in rows)) == names
    for network, layer in names:
        forms = {
            (row["dtype"], row["layout"], row["way"])
            for row in rows
            if (row["network"], row["layer"]) == (network, layer)
        }
        assert forms == set(
            itertools.product(layers.DTYPES, layers.LAYOUTS, ("forward", "backward"))
        )
    last = rows[-1]
    assert last["shape"] == "(16, 512, 19, 19)"
    assert last["layer"] == "SPP 13 k13 s1 p6"


def test_channels_last_has_any_number_of_axes():
    dice = drawing.Dice(np.random.default_rng(0), arrays.Arrays([0]))
    for shape in ((2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 6)):
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        found = dice.channels_last(x)
        assert (found == x).all()
        assert np.moveaxis(found, 1, -1).flags.c_contiguous


def test_lengths_have_as_many_elements_in_every_row():
    rows = [dict(item.labels) for item in of_gpu(lengths)]
    assert [row["steps"] for row in rows] == [1 << k for k in range(6, 21)] * 2
    for row in rows:
        batch, channels, steps = (int(word[1:]) for word in row["shape"].split())
        assert batch * channels * steps == 1 << 24
        assert steps == row["steps"]
        assert row["taps"] == (steps if row["filter"] == "K = T" else 4)


# ---- the file ----


def counting(rows, stop=None):
    """A benchmark of some rows that notes which are measured; Ctrl-C comes at one of them."""
    measured = []

    def items(dice):
        return [beside.Item({"row": k}, lambda k=k: k) for k in range(rows)]

    def measure(case, lib, rivals, clock):
        if case == stop:
            raise KeyboardInterrupt
        measured.append(case)
        return {"ms": 1.0, "peers": {}, "wrong": False}

    bench = beside.Benchmark("some", ("row",), items, (), measure=measure, clock=Told)
    return bench, measured


def test_ctrl_c_keeps_the_rows_and_the_same_command_continues(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUOPT_COMMIT", "be3b6c5ba2")
    path = tmp_path / "xeon-some.json"
    arguments = ["--device", "cpu", "--out", str(path)]
    bench, measured = counting(5, stop=2)
    assert beside.main(bench, "", arguments) == 130
    assert measured == [0, 1]
    assert [row["row"] for row in json.loads(path.read_text())["rows"]] == [0, 1]
    assert beside.kept("some", tmp_path) == []  # is not shown
    bench, measured = counting(5)
    assert beside.main(bench, "", arguments) == 0
    assert measured == [2, 3, 4]
    (run,) = beside.kept("some", tmp_path)
    assert [row["row"] for row in run["rows"]] == [0, 1, 2, 3, 4]
    assert list(tmp_path.iterdir()) == [path]
    bench, measured = counting(5)
    assert beside.main(bench, "", arguments) == 0
    assert measured == [0, 1, 2, 3, 4]  # a whole file is measured anew
    capsys.readouterr()


def test_a_run_of_another_commit_is_not_continued(tmp_path, monkeypatch, capsys):
    path = tmp_path / "xeon-some.json"
    arguments = ["--device", "cpu", "--out", str(path)]
    for commit in ("be3b6c5ba2", "be3b6c5ba3"):
        monkeypatch.setenv("GPUOPT_COMMIT", commit)
        bench, measured = counting(5, stop=2)
        assert beside.main(bench, "", arguments) == 130
        assert measured == [0, 1]
    capsys.readouterr()


def test_seconds_end_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUOPT_COMMIT", "be3b6c5ba2")
    path = tmp_path / "xeon-some.json"
    bench, measured = counting(3)
    arguments = ["--device", "cpu", "--out", str(path)]
    assert beside.main(bench, "", [*arguments, "--seconds", "0"]) == beside.UNFINISHED
    assert measured == []
    assert "more to come" in capsys.readouterr().out
    assert beside.kept("some", tmp_path) == []
    assert beside.main(bench, "", arguments) == 0
    capsys.readouterr()


def test_wrong_and_failed_rows_are_told_and_measured_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GPUOPT_COMMIT", "be3b6c5ba2")
    path = tmp_path / "xeon-some.json"
    measured = []

    def make(k):
        if k == 0:
            raise MemoryError("too large")
        return k

    def items(dice):
        return [beside.Item({"row": k}, lambda k=k: make(k)) for k in range(4)]

    def measure(case, lib, rivals, clock):
        measured.append(case)
        if case == 3 and len(measured) < 4:
            raise KeyboardInterrupt
        return {"ms": 1.0, "peers": {}, "wrong": case == 1, "err": 0.5}

    bench = beside.Benchmark("some", ("row",), items, (), measure=measure, clock=Told)
    arguments = ["--device", "cpu", "--out", str(path)]
    assert beside.main(bench, "", arguments) == 130
    assert measured == [1, 2, 3]
    assert beside.main(bench, "", arguments) == 1
    assert measured == [1, 2, 3, 1, 3]
    rows = json.loads(path.read_text())["rows"]
    assert [row["row"] for row in rows] == [0, 1, 2, 3]
    errors = capsys.readouterr().err
    assert "0: MemoryError: too large" in errors
    assert "1: wrong by 0.5" in errors


def test_a_file_that_cannot_be_written_is_an_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    bench, measured = counting(2)
    with pytest.raises(SystemExit, match="2"):
        beside.main(bench, "", ["--device", "cpu", "--out", str(tmp_path / "file" / "x.json")])
    assert measured == []
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.skipif(gpuopt.backends()["cuda"] is None, reason="there is a GPU")
@each_module
def test_without_a_gpu_the_command_says_so(module, capsys):
    with pytest.raises(SystemExit, match="2"):
        module.main([])
    assert "backend 'cuda' cannot run" in capsys.readouterr().err


# ---- tables and pictures ----


def a_row(**more):
    """A row of lengths, made by hand."""
    return {"filter": "K = T", "steps": 64, "taps": 64, "shape": "B8 C1 T64", "variant": "v7",
            "bytes": 8, "ms": 0.5, "peers": {"torch-fft": 1.0}, "best": "torch-fft",
            "times": 2.0, "tie": False, **more}  # fmt: skip


def a_run(*rows):
    """A run of lengths as it is read from a file."""
    return {"benchmark": "lengths", "device": "NVIDIA H200", "mode": "cuda",
            "commit": "be3b6c5ba2", "interrupted": False, "rows": list(rows),
            "file": "benchmarks/results/h200-lengths.json"}  # fmt: skip


@each_module
def test_results_show_a_benchmark_only_if_there_is_a_file(module, monkeypatch):
    monkeypatch.setattr(beside, "kept", lambda name: [])
    name = module.BENCH.name
    empty = f"<!-- begin:{name} -->\n<!-- end:{name} -->"
    assert readme.rewrite(empty, []) == empty
    text = (beside.RESULTS.parent / "RESULTS.md").read_text(encoding="utf-8")
    assert f"<!-- begin:{name} -->" in text


def test_short_filters_are_shown_once_they_are_whole(tmp_path, monkeypatch):
    row = {"case": "backward B8 C4 T8 K2 BTC", "dtype": "float32", "ms": 0.5, "floor_ms": 0.4,
           "peers": {"causal-conv1d": 1.0, "torch-fft": 3.0, "torch-conv1d": 2.0},
           "times": 2.0, "tie": False, "op": "causal_conv1d"}  # fmt: skip
    monkeypatch.setattr(beside, "RESULTS", tmp_path)
    empty = "<!-- begin:short_filters -->\n<!-- end:short_filters -->"
    run = {"benchmark": "short-filters", "device": "NVIDIA H200", "commit": "be3b6c5ba2",
           "rows": [row], "interrupted": True}  # fmt: skip
    for run["interrupted"] in (True, False):
        (tmp_path / "h200-short-filters.json").write_text(json.dumps(run))
        text = readme.rewrite(empty, [])
        assert (text == empty) == run["interrupted"]
    assert "| backward BTC float32 | 1 | 100 % | 2 | 2 |" in text
    assert "| backward B8 C4 T8 K2 BTC float32 | 0.4 | 0.5 | 1 | 2 | 2.00 |" in text


def test_ways_of_a_library_are_one_column():
    row = a_row(peers={"torch-fft": 3.0, "torch-conv1d": 2.0, "torchx": 1.0})
    assert beside.best_of(row, "torch") == 2.0
    assert beside.best_of(row, "torch-fft") == 3.0
    assert beside.best_of(row, "cupy") is None
    assert [beside.ratio(a_row(times=t)) for t in (0.5, 0.998, 1.0, 12.3)] == [
        "0.50",
        "0.998",
        "1.00",
        "12",
    ]


def test_lengths_are_drawn(monkeypatch):
    run = a_run(
        a_row(),
        a_row(steps=1024, peers={"torch-fft": 1.0, "torch-conv1d": 9.0}),
        a_row(filter="K = 4", taps=4),
        a_row(filter="K = 4", taps=4, steps=1 << 20, ms=4.0, peers={}),
    )
    drawn = pictures.over_steps(run)
    tree = ElementTree.fromstring(drawn)
    name = "{http://www.w3.org/2000/svg}"
    words = [found.text for found in tree.iter(f"{name}text")]
    assert {"gpuopt", "torch-fft", "torch-conv1d", "K = T", "K = 4", "0.1 ms", "10 ms"} <= set(
        words
    )
    series = [found.get("d") for found in tree.iter(f"{name}path")][3:]
    assert [line.count("M") for line in series] == [2, 2, 1, 2, 1, 0]
    width, height = int(tree.get("width")), float(tree.get("height"))
    for point in "".join(series).split("M")[1:]:
        x, y = point.split("m")[0].split()
        assert 0 < float(x) < width
        assert 0 < float(y) < height
    monkeypatch.setattr(beside, "kept", lambda name: [run])
    assert pictures.pictures()["lengths-h200.svg"]() == drawn
    assert "(../docs/lengths-h200.svg)" in readme.rewrite(
        "<!-- begin:lengths -->\n<!-- end:lengths -->", []
    )


@pytest.mark.parametrize(
    "op, case, wanted",
    [
        ("reduce", "sum (8, 4) C axis=None", "contiguous"),
        ("reduce", "sum (8, 4) T axis=(0, 1)", "transposed"),
        ("reduce", "sum (8,) T axis=0", "contiguous"),
        ("reduce", "any (8,) step axis=0", "every second one"),
        ("scan", "sum (8, 4) axis=1", "along the last axis"),
        ("scan", "max (8, 4) axis=0 reverse", "along another axis"),
        ("scan", "sum (8,) axis=0", "along the last axis"),
        ("elementwise", "add (8, 4) same", "contiguous"),
        ("elementwise", "add (8, 4) row", "broadcast"),
        ("elementwise", "add (8,) row", "contiguous"),
        ("elementwise", "add (8,) column", "broadcast"),
        ("elementwise", "cast (8, 4) to float16", "contiguous"),
        ("dot", "800", "vectors"),
    ],
)
def test_a_drawn_case_has_a_layout(op, case, wanted):
    assert pictures.layout({"op": op, "case": case}) == wanted


def test_every_drawn_case_has_a_layout():
    """The names that the dice give are read right, for the layouts they draw."""
    lib = arrays.Arrays([3])
    seen = {}
    for op in ("reduce", "scan", "elementwise"):
        drawn = (case for case in sweep.draw(op, lib, 3) if isinstance(case, drawing.Case))
        for case in itertools.islice(drawn, 60):
            found = pictures.layout({"op": op, "case": case.name})
            seen.setdefault(op, set()).add(found)
            if op == "reduce":
                x = case.args[0]
                if found == "contiguous" and x.size > 1:
                    assert x.flags.c_contiguous
                if found == "every second one" and x.shape[-1] > 1:
                    assert not x.flags.c_contiguous
    assert seen == {
        "reduce": {"contiguous", "transposed", "every second one"},
        "scan": set(pictures.ALONG.values()),
        "elementwise": {"contiguous", "broadcast", "every second one", "transposed"},
    }


def test_a_picture_of_an_operator_has_a_panel_for_each_layout(monkeypatch):
    def row(op, case):
        return {"op": op, "case": case, "bytes": 8000, "ms": 1e-3, "best": "torch",
                "peers": {"torch": 2e-3}, "times": 2.0}  # fmt: skip

    rows = [row("scan", "sum (8, 4) axis=0"), row("scan", "sum (8, 4) axis=1"),
            row("scan", "max (8,) axis=0"), row("dot", "80"), row("convolve", "x")]  # fmt: skip
    run = {"device": "NVIDIA H200", "mode": "cuda", "rows": rows}
    monkeypatch.setattr(published, "sweeps", lambda folder: [run, {**run, "mode": "host"}])
    found = pictures.by_layout()
    assert {op: {name: len(kept) for name, kept in of.items()} for op, of in found.items()} == {
        "scan": {"h200: along another axis": 1, "h200: along the last axis": 2},
        "dot": {"h200: vectors": 1},
    }
    assert {"layouts-scan.svg", "layouts-dot.svg"} <= set(pictures.pictures())
    tree = ElementTree.fromstring(pictures.of_layouts("scan"))
    words = [found.text for found in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"h200: along another axis", "h200: along the last axis"} <= set(words)
    empty = "<!-- begin:layouts -->\n<!-- end:layouts -->"
    text = readme.rewrite(empty, [])
    assert text.count("(../docs/layouts-") == 2
    monkeypatch.setattr(published, "sweeps", lambda folder: [])
    assert readme.rewrite(text, []) == empty
