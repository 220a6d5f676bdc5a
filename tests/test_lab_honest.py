"""What the lab says of times and rungs: no number without an interval, no colour for noise.

Order: intervals, tables, plots, two rungs, one rung in words, sizes.
"""

import math

import numpy as np
import pytest

import gpuopt
from gpuopt import lab
from gpuopt.lab import growth, plots, run, rungs, timer
from gpuopt.lab.profile import Kernel, Line, Profile, profile

ABOUT = {
    "device": "a device",
    "commit": "0",
    "ceilings": {"read_gbs": 10.0, "copy_gbs": 5.0},
}


def row(variant, ms, low, high, workload="sum 2^20", **more):
    return {
        "op": "reduce", "workload": workload, "dtype": "float32", "variant": variant, "ms": ms,
        "low": low, "high": high, "n": 20, "peers": {}, "flops": 100.0, "bytes": 400.0,
        "gbs": 4e-4 / ms, "floor_ms": 0.5, "percent_of_floor": 50 / ms, "error": None,
        "chosen": None, **more,
    }  # fmt: skip


# ---- intervals ----


@pytest.mark.parametrize("n", [6, 7, 12, 20, 45, 101])
def test_the_interval_holds_the_median_as_often_as_it_says(n):
    low, high = timer.interval(range(n))
    chance = sum(math.comb(n, k) for k in range(low + 1, high + 1)) / 2**n
    assert chance >= 0.94  # the normal approximation of a binomial
    assert low + high == pytest.approx(n - 1, abs=1)


def test_few_samples_have_no_interval():
    for n in range(1, timer.FEWEST_OF_INTERVAL):
        timing = timer.Timing.of([1.0] * n, "cpu")
        assert (timing.low, timing.high, timing.settled) == (None, None, False)
        assert repr(timing) == f"<unsettled, too few, n={n}, cpu>"


def test_wide_intervals_are_unsettled():
    narrow = timer.Timing.of([1.0] * 10, "cpu")
    assert narrow.settled
    assert repr(narrow) == "<1 ms, 1 to 1, n=10, cpu>"
    wide = timer.Timing.of([1.0] * 5 + [1.2] * 5, "cpu")
    assert not wide.settled
    assert repr(wide) == "<unsettled, 1 to 1.2, n=10, cpu>"
    assert timer.is_settled(1.0, 0.951, 1.05)
    assert not timer.is_settled(1.0, 0.94, 1.05)
    assert not timer.is_settled(math.nan, 1.0, 1.0)
    assert not timer.is_settled(1.0, math.nan, 1.0)


# ---- tables ----


def test_a_result_shows_no_number_that_is_not_known():
    rows = [
        row("auto", 1.0, 0.99, 1.01, peers={"numpy": 2.0, "torch": 3.0},
            peer_spans={"numpy": (1.99, 2.01), "torch": (2.0, 4.0)}),
        row("v0", 7.654, 5.0, 9.0),
        row("v1", 1.5, None, None, n=2),
    ]  # fmt: skip
    text = repr(run.Result(rows, ABOUT))
    assert "0.99 to 1.01" in text
    assert "5 to 9" in text
    assert "numpy 2, torch unsettled" in text
    assert "7.654" not in text
    assert "1.5" not in text
    assert text.count("unsettled") == 3
    assert "too few" in text
    assert run.Result(rows, ABOUT)[1]["ms"] == 7.654  # the rows have it
    assert "7.654" not in run.Result(rows, ABOUT)._repr_html_()


def test_a_run_keeps_the_intervals():
    timing = timer.Timing.of([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6], "cpu")
    fields = run.fields(timing)
    assert (fields["low"], fields["high"]) == (1.0, 1.6)
    assert run.fields(None)["low"] is None


# ---- plots ----


def test_bars_colour_nothing_within_noise(pyplot):
    rows = [
        row("auto", 1.0, 0.99, 1.01, peers={"numpy": 1.5}, peer_spans={"numpy": (1.49, 1.51)}),
        row("v0", 1.015, 1.005, 1.03),  # meets the fastest's interval
        row("v1", 1.2, 1.19, 1.21),
        row("v2", 0.5, 0.1, 3.0),  # not the fastest: nobody knows
    ]  # fmt: skip
    axes = run.Result(rows, ABOUT).plot()
    colors = [patch.get_facecolor() for patch in axes.patches]
    assert colors[0] == colors[1]
    assert colors[2] == colors[4] != colors[0]
    assert colors[3][3] == 0  # hollow
    words = [text.get_text().strip() for text in axes.texts]
    assert words == ["1", "1.015", "1.2", "unsettled", "1.5"]


def test_labels_of_a_roofline_do_not_overprint(pyplot):
    rows = [
        row(f"v{k}", 1 + 0.003 * k, 0.99, 1.04, workload=f"sum {w}")
        for k in range(10)
        for w in (1, 2)
    ]
    axes = lab.roofline(run.Result(rows, ABOUT))
    renderer = axes.figure.canvas.get_renderer()
    axes.figure.draw_without_rendering()
    text_type = type(axes.title)  # an Annotation's own extent has its line, too
    boxes = [text_type.get_window_extent(text, renderer) for text in axes.texts]
    assert len(boxes) == len(rows)
    for i, box in enumerate(boxes):
        assert axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_a_roofline_marks_what_is_unsettled(pyplot):
    rows = [row("v0", 1.0, 0.99, 1.01), row("v1", 1.0, 0.5, 2.0)]
    axes = plots.roofline(run.Result(rows, ABOUT))
    assert sorted(text.get_text() for text in axes.texts) == ["v0", "v1?"]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert len(hollow) == 1


# ---- two rungs ----


def test_diff_shows_both_stories_and_counts():
    x = np.ones(4096, np.float32)
    found = lab.diff("reduce", "v2", "v3", x)
    text = repr(found)
    for words in ("v2", "v3", "Was", "Now", "Cost", "Left", "half the blocks",
                  "reduce_v3_add_on_load"):  # fmt: skip
        assert words in text
    assert found.stories[0]["Now"].startswith("the upper half is added to the lower half;")
    assert all(len(line) <= 110 for line in text.partition("variant ")[0].splitlines())
    page = found._repr_html_()
    assert page.count("<th") >= 6
    assert "&lt;typename Op&gt;" in page
    assert any(line.startswith("+") for line in found.code)
    assert repr(lab.diff("reduce", "v2", "v2")).endswith("0 lines of code differ: see .code")


def every_rung():
    for op in gpuopt.ops():
        if gpuopt._core.describe(op)["ladder"] == op:
            for found in gpuopt._core.variants(op):
                if found["backend"] == "sim" and not found["shape"]:
                    yield op, found["name"]


def test_every_rung_has_a_story():
    told = [(op, name, rungs.story(op, name)) for op, name in every_rung()]
    assert len(told) > 40
    for op, name, parts in told:
        assert {"Was", "Now", "Cost", "Left"} <= set(parts) or name == "v0", (op, name)
        assert not any("*" in part[:2] for part in parts.values()), (op, name)


def test_diff_refuses_what_has_no_story():
    with pytest.raises(ValueError, match="reduce short_rows is no rung"):
        lab.diff("reduce", "v2", "short_rows")
    with pytest.raises(gpuopt.VariantError, match="v99"):
        lab.diff("reduce", "v2", "v99")


# ---- one rung in words ----


def test_explain_says_what_the_counts_say():
    x = np.ones(16384, np.float32)
    text = " ".join(lab.explain("reduce", x, variant="v1").sentences)
    counted = profile("reduce", x, variant="v1")
    passes = sum(k.shared_wavefronts for k in counted)
    assert f"take {passes:,} passes, 3.33 times the fewest, because of bank conflicts" in text
    assert "v1_strided.cuh" in text
    assert "1.04 times the 65,540 that must move" in text
    assert "Left, by the rung's own comment: bank conflicts -> v2." in text
    text = " ".join(lab.explain("reduce", x, variant="v2").sentences)
    assert "3.33" not in text


def test_explain_takes_a_profile_and_names_the_worst_line():
    lines = (
        Line(file="a/b.cu", line=3, global_requests=1, global_sectors=9, global_ideal=4),
        Line(file="a/b.cu", line=5, global_requests=1, global_sectors=32, global_ideal=4),
    )
    kernel = Kernel(
        variant="own", kernel="k", launches=1, blocks=2, threads=64, lines=lines,
        global_requests=2, global_sectors=41, global_ideal=8, atomic_requests=2,
        atomic_serialised=64, races=1,
    )  # fmt: skip
    found = lab.explain(Profile("k", [kernel]))
    assert found.sentences == (
        "Kernels: k with 2 blocks of 32 threads.",
        "Global memory: 2 requests ask for 41 sectors, 1,312 bytes; only 20% of them are used, "
        "most of all at b.cu:5.",
        "Atomics: 2 requests, each taking 32.0 turns.",
        "Races: 1: the result is not defined.",
    )
    assert repr(found).startswith("k\n- Kernels: ")
    assert found._repr_html_().count("<li>") == 4


def test_explain_refuses():
    with pytest.raises(TypeError, match="name the rung of 'reduce' to explain: variant='v1'"):
        lab.explain("reduce", np.ones(3))
    with pytest.raises(ValueError, match="no operator 'nope'"):
        lab.explain("nope", np.ones(3), variant="v1")


# ---- sizes ----


class Doubling:
    """Reports 1 ms, 2 ms... in calling order, always the same."""

    method = "fixed"

    def round(self, calls, cold):
        for call in calls:
            call()
        return [1.0 + i for i in range(len(calls))]

    def wait(self):
        pass


def test_scaling_times_variants_in_turns(pyplot):
    inputs = [1000, (np.ones((4, 8), np.float32),), np.ones(3, np.float32)]
    found = lab.scaling("reduce", inputs, variants=("auto", "scalar"), backend="cpu",
                        repeats=8, clock=Doubling())  # fmt: skip
    assert isinstance(found, growth.Scaling)
    assert found.column("variant") == ["auto", "scalar"] * 3
    assert found.column("shape") == [(1000,)] * 2 + [(4, 8)] * 2 + [(3,)] * 2
    assert found[0]["bytes"] == 4004
    assert found.column("ms") == [1.0, 2.0] * 3
    assert "unsettled" not in repr(found)
    axes = found.plot()
    assert axes.lines[0].get_label() == "auto"
    few = lab.scaling("reduce", [10], backend="cpu", repeats=2, clock=Doubling())
    assert "unsettled" in repr(few)
    few.plot()


def test_scaling_passes_options_on():
    x = np.ones((4, 8), np.float32)
    found = lab.scaling("reduce", [x], axis=1, backend="cpu", repeats=1, clock=Doubling())
    assert found[0]["bytes"] == 4 * (32 + 4)


def test_a_gpu_without_torch_and_cupy_has_a_clock(monkeypatch):
    def none():
        raise RuntimeError("no clock for the GPU")

    monkeypatch.setattr(growth, "device_clock", none)
    monkeypatch.setattr(growth, "EventClock", lambda: "events")
    assert growth.clock_of("cuda") == "events"
    assert isinstance(growth.clock_of("cpu"), timer.CpuClock)


def test_a_sweep_draws_ours_and_the_best_peer(pyplot):
    rows = [
        {"op": "reduce", "bytes": 1000, "ms": 0.001, "peers": {"a": 0.002, "b": 0.004},
         "best": "a", "times": 2.0},
        {"op": "scan", "bytes": 2000, "ms": 0.001, "peers": {}, "best": None},
        {"op": "scan", "failed": "why"},
    ]  # fmt: skip
    axes = plots.per_byte(rows)
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axes.lines}
    assert points["best peer"] == [(1000, pytest.approx(2.0))]
    assert points["gpuopt"] == [(1000, pytest.approx(1.0)), (2000, pytest.approx(0.5))]


def test_scaling_refuses_nonsense():
    with pytest.raises(ValueError, match="no operator 'nope'"):
        lab.scaling("nope", [1])
    with pytest.raises(ValueError, match="the simulator is not timed"):
        lab.scaling("reduce", [1], backend="sim")
    with pytest.raises(RuntimeError, match="no such backend"):
        lab.scaling("reduce", [1], backend="tpu")
    with pytest.raises(gpuopt.VariantError, match="v99"):
        lab.scaling("reduce", [8], variants="v99", backend="cpu", clock=Doubling())
