"""Filters of at most 128 lags on CUDA: middle_filters.

Order: drawn calls, special values, rows that are cut, the simulator's counts, what it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, LAYOUTS_ND, Sample, dtype_of
from cases.causal_conv1d import sample

import gpuopt
from gpuopt import _core, causal_conv1d, causal_conv1d_backward, ref
from gpuopt.lab.profile import profile

NAME = "middle_filters"
HOW: dict[str, Any] = {"backend": "sim", "variant": NAME}
SCHEDULES = ("ascending", "descending", "shuffle", "preempt")
each_dtype = pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])

# Around a thread's 8 steps, the 128 of a block, and segments of 32 to 128 steps.
STEPS = (1, 2, 7, 8, 9, 31, 32, 33, 71, 127, 128, 129, 130, 256, 257, 500)
TAPS = (1, 3, 4, 5, 8, 17, 20, 27, 32, 33, 63, 64, 65, 100, 127, 128)

Array = np.ndarray[Any, Any]


def whole(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    draw = np.random.default_rng((seed, *shape)).integers(-4, 5, shape)
    return draw.astype(dtype_of(dtype))


@pytest.fixture
def checked() -> Iterator[Any]:
    """_core._sim_configure with checks on; restores the settings afterwards."""
    old = _core._sim_configure(checks=True)
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- drawn calls ----


def drawn(seed: int, dtype: str) -> Sample:
    """One call of either operator within the bounds of the contract."""
    rng = np.random.default_rng((seed, len(dtype)))
    steps, taps = int(rng.choice(STEPS)), int(rng.choice(TAPS))
    few = steps * taps > 2000
    batches = int(rng.integers(1, 3 if few else 5))
    channels = int(rng.choice((1, 2, 3) if few else (1, 5, 17, 31, 32, 33)))
    layouts = tuple(str(name) for name in rng.choice(LAYOUTS_ND, 4))
    options = {
        "layout": "BTC" if rng.integers(2) else "BCT",
        "eps": float(rng.integers(-2, 3)),
    } | ({"activation": "silu"} if rng.integers(2) else {})
    return sample(
        bool(rng.integers(2)),
        (batches, channels, steps, taps),
        dtype,
        ("C",) if rng.random() < 0.3 else layouts,
        "normal",
        bool(rng.integers(2)),
        tuple(options.items()),
    )


@each_dtype
def test_drawn_calls(dtype: str, checked: Any) -> None:
    for seed in range(30):
        case = drawn(seed, dtype)
        arrays = [spec.build() for spec in case.arrays]
        op = "causal_conv1d" + "_backward" * (arrays[0].shape == arrays[1].shape)
        checked(schedule=SCHEDULES[seed % 4], seed=seed)
        got = getattr(gpuopt, op)(*arrays, **dict(case.options), **HOW)
        problem = ENTRIES[op].expected(case, NAME).compare(got)
        assert problem is None, (seed, op, case, problem)


# ---- special values ----


@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_special_values_reach_what_depends_on_them(layout: str) -> None:
    """As term by term in v0: products outside the filter and the row are left out."""
    for steps, taps in ((40, 40), (71, 27), (300, 30), (9, 128)):
        x, w = whole((2, 3, steps)), whole((3, taps), seed=1)
        x[0, 1, steps // 2], x[1, 2, -1], x[1, 0, 0] = np.inf, np.nan, -np.inf
        w[0, 0], w[1, -1], w[2, taps // 2] = np.nan, np.inf, -np.inf
        rows = x if layout == "BCT" else np.ascontiguousarray(x.swapaxes(1, 2))
        with np.errstate(all="ignore"):
            want = causal_conv1d(rows, w, layout=layout, backend="sim", variant="v0")
        np.testing.assert_array_equal(causal_conv1d(rows, w, layout=layout, **HOW), want)


# ---- rows that are cut ----


def test_a_cut_row_has_the_bits_of_a_whole_one() -> None:
    """Every sum adds its terms in order, whatever the segment of its step."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 3, 700)).astype(np.float32)
    w = rng.standard_normal((3, 50)).astype(np.float32)
    want = causal_conv1d(x, w, **HOW)
    for steps in (1, 50, 128):  # one segment
        got = causal_conv1d(np.ascontiguousarray(x[:, :, :steps]), w, **HOW)
        np.testing.assert_array_equal(got, want[:, :, :steps])


def test_a_state_is_the_steps_before() -> None:
    row, w = whole((2, 5, 90)), whole((5, 30), seed=1)
    want = ref.causal_conv1d(row, w)
    state, x = row[:, :, :29], np.ascontiguousarray(row[:, :, 29:])
    got = causal_conv1d(x, w, initial_state=state, **HOW)
    np.testing.assert_array_equal(got, want[:, :, 29:])


# ---- counts, refusals ----


@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_x_and_the_result_are_moved_once(layout: str) -> None:
    """But for sectors where a warp goes on in the next row; and a filter for each row."""
    x, w = whole((2, 64, 64)), whole((64, 32))
    rows = x if layout == "BCT" else np.ascontiguousarray(x.swapaxes(1, 2))
    (kernel,) = profile("causal_conv1d", rows, w, layout=layout, variant=NAME)[NAME]
    least = 2 * (x.nbytes + w.nbytes) // 32
    assert least <= kernel.global_sectors <= 1.2 * least


def test_only_filters_of_128_lags_are_taken() -> None:
    x, w = whole((1, 2, 200)), whole((2, 129))
    message = r"takes whole rows and filters of at most 128 lags"
    with pytest.raises(gpuopt.VariantError, match=message):
        causal_conv1d(x, w, **HOW)
    with pytest.raises(gpuopt.VariantError, match=message):
        causal_conv1d_backward(x, x, w, **HOW)
    short = np.ascontiguousarray(x[..., :128])  # 128 lags occur
    np.testing.assert_array_equal(causal_conv1d(short, w, **HOW), ref.causal_conv1d(short, w))
