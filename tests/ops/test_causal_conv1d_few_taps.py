"""causal_conv1d_backward in one launch: few_taps, its twin, one_block and one_cluster.

Order: drawn calls, special values, segments, sums of many blocks, calls that are refused.
few_taps takes whole packs and, up to 4 taps without SiLU and segments, any rows that begin
alike; channels last takes whole chunks of channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, dtype_of
from cases.causal_conv1d import sample

from gpuopt import VariantError, _core, causal_conv1d_backward, ref

Array = np.ndarray[Any, Any]

COLUMNS = "few_taps_channels_last"
FLOATS = ("float16", "bfloat16", "float32")
SCHEDULES = ("ascending", "descending", "shuffle", "preempt")

each_variant = pytest.mark.parametrize(
    "variant", ["few_taps", COLUMNS, "one_block", "one_cluster"]
)


def layout_of(variant: str) -> str:
    return "BTC" if variant == COLUMNS else "BCT"


def turned(a: Array, variant: str) -> Array:
    return np.ascontiguousarray(a.swapaxes(1, 2)) if variant == COLUMNS else a


def drawn(rng: Any, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


# ---- drawn calls ----


@pytest.mark.parametrize("dtype", FLOATS)
@each_variant
def test_drawn_calls(variant: str, dtype: str) -> None:
    """Stretches, turns and items of every length, with and without SiLU, a bias and taps."""
    rng = np.random.default_rng((len(variant), FLOATS.index(dtype)))
    old = _core._sim_configure(checks=True)
    try:
        for turn in range(40):
            steps = int(rng.choice((8, 16, 24, 40, 64, 72, 256, 264, 520, 1040)))
            if variant == COLUMNS:
                steps = int(rng.choice((2, 3, 4, 5, 9, 17, 33, 64, 67, 130, 300, 520)))
            elif turn % 4 == 0:  # without SiLU rows need no whole packs, up to 4 taps
                steps = int(rng.choice((3, 5, 11, 21, 37, 63, 129, 261, 523, 1037, 2053)))
            batches = int(rng.integers(1, 6)) if steps < 300 else int(rng.integers(1, 3))
            channels = int(rng.choice((1, 2, 3, 5, 9))) if steps < 300 else 3
            if variant == COLUMNS:
                channels = int(rng.choice((4, 8, 12, 36, 132) if steps < 300 else (4, 8)))
            taps = int(rng.integers(2, 9)) if turn % 7 or steps > 8 else 6 + steps
            if variant == "few_taps" and steps % 8:
                taps = 2 + turn // 4 % 3
            options: list[tuple[str, Any]] = [("layout", layout_of(variant))]
            options += [("activation", "silu")] if turn % 2 else []
            size = (batches, channels, steps, taps)
            case = sample(True, size, dtype, ("C",), "normal", bool(turn % 3), tuple(options))
            arrays = [spec.build() for spec in case.arrays]
            _core._sim_configure(checks=True, schedule=SCHEDULES[turn % 4], seed=turn)
            got = causal_conv1d_backward(
                *arrays, **dict(case.options), backend="sim", variant=variant
            )
            problem = ENTRIES["causal_conv1d_backward"].expected(case, variant).compare(got)
            assert problem is None, (turn, case, problem)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("dtype", [*FLOATS, "float64"])
def test_one_block_takes_up_to_128_lags(dtype: str) -> None:
    rng = np.random.default_rng(9)
    old = _core._sim_configure(checks=True)
    try:
        for turn, (size, taps) in enumerate(
            (((32, 3, 20), 20), ((3, 2, 200), 17), ((1, 2, 300), 128), ((5, 1, 127), 300),
             ((2, 3, 128), 129), ((40, 2, 33), 32), ((1, 1, 2500), 70))
        ):  # fmt: skip
            layouts = (("C",), ("C", "step2"), ("transposed", "C"))[turn % 3]
            options = (("activation", "silu"),) if turn % 2 else (("layout", "BTC"),)
            bias = bool(rng.integers(2))
            case = sample(True, (*size, taps), dtype, layouts, "normal", bias, options)
            arrays = [spec.build() for spec in case.arrays]
            _core._sim_configure(checks=True, schedule=SCHEDULES[turn % 4], seed=turn)
            got = causal_conv1d_backward(
                *arrays, **dict(case.options), backend="sim", variant="one_block"
            )
            problem = ENTRIES["causal_conv1d_backward"].expected(case, "one_block").compare(got)
            assert problem is None, (turn, case, problem)
    finally:
        _core._sim_configure(**old)
    x, w = np.ones((2, 1, 129), dtype), np.ones((1, 129), dtype)
    with pytest.raises(VariantError, match="128 lags"):
        causal_conv1d_backward(x, x, w, backend="sim", variant="one_block")


# ---- special values ----


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@each_variant
@pytest.mark.parametrize("steps", [72, 75])
def test_special_values_reach_what_depends_on_them(
    variant: str, bad: float, steps: int
) -> None:
    """In x, w and dy: no product with steps beside the row."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "layout": layout_of(variant)}
    is_even = variant != "few_taps" or steps % 4 == 0
    for taps in (2, 3, 4, 5, 8) if variant.startswith("one") else (2, 3, 4, 5, 6, 7, 8):
        if taps > 4 and not is_even:
            break
        lag = np.arange(steps)[:, None] - np.arange(steps)  # of step t to step u
        reach = (lag >= 0) & (lag < taps)
        w = np.ones((8, taps), np.float32)
        for where in (0, 1, 2, 3, 5, 31, 32, steps - 3, steps - 2, steps - 1):
            for bad_x in (False, True):
                x, dy = (np.ones((3, 8, steps), np.float32) for _ in range(2))
                (x if bad_x else dy)[1, 2, where] = bad
                dx, dw = causal_conv1d_backward(
                    turned(dy, variant), turned(x, variant), w, **how
                )
                s = taps - 1 - np.arange(taps)  # g[u + s] meets x[u]
                meets = where + s < steps if bad_x else where - s >= 0
                np.testing.assert_array_equal(~np.isfinite(dw[2]), meets)
                assert np.isfinite(np.delete(dw, 2, 0)).all()
                hit = np.zeros(steps, bool) if bad_x else reach[where]
                np.testing.assert_array_equal(~np.isfinite(turned(dx, variant)[1, 2]), hit)
        x, dy = (np.ones((3, 8, steps), np.float32) for _ in range(2))
        w[4, 0] = bad  # the oldest lag
        for silu in (None, "silu") if is_even else (None,):
            dx, _ = causal_conv1d_backward(
                turned(dy, variant), turned(x, variant), w, activation=silu, **how
            )
            got = ~np.isfinite(turned(dx, variant)[2, 4])
            if silu is None:
                np.testing.assert_array_equal(got, np.arange(steps) < steps - (taps - 1))
            elif not np.isnan(bad):
                continue
            else:
                assert got.all() == (taps <= steps)
            assert np.isfinite(np.delete(turned(dx, variant), 4, 1)).all()


# ---- segments ----


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("variant", ["few_taps", COLUMNS])
def test_segments_are_rows_of_their_own(variant: str, dtype: str) -> None:
    rng = np.random.default_rng(7)
    for turn, steps in enumerate((8, 64, 120, 256, 544, 1040)):
        channels, taps, batches = 8, (4, 8, 3, 5, 2, 7)[turn], 1 + turn % 2
        x, dy = (drawn(rng, (batches, channels, steps)).astype(dtype_of(dtype)) for _ in "ab")
        w = drawn(rng, (channels, taps)).astype(dtype_of(dtype))
        bias = drawn(rng, (channels,)).astype(dtype_of(dtype))
        ids = np.cumsum(rng.random((batches, steps)) < (0.02, 0.3)[turn % 2], 1).astype(
            np.int32
        )
        for silu in (None, "silu"):
            how: dict[str, Any] = {"activation": silu, "segments": ids}
            wide = [a.astype(np.float64) for a in (dy, x, w, bias)]
            want = ref.causal_conv1d_backward(*wide, **how)
            got = causal_conv1d_backward(
                turned(dy, variant),
                turned(x, variant),
                w,
                bias,
                layout=layout_of(variant),
                variant=variant,
                backend="sim",
                **how,
            )
            close = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
            for a, b in zip((turned(got[0], variant), *got[1:]), want, strict=True):
                size = float(np.abs(b).max())
                np.testing.assert_allclose(
                    a.astype(np.float64), b, rtol=close, atol=close * max(size, 1)
                )


# ---- sums of many blocks ----


@pytest.mark.parametrize("taps", [4, 7, 8])
@pytest.mark.parametrize(
    ("variant", "shape"),
    [
        ("few_taps", (600, 1, 8)),  # parts that a second kernel adds
        ("few_taps", (70, 3, 256)),
        ("few_taps_channels_last", (1, 4, 40000)),
        ("few_taps", (1, 3, 24000)),  # stretches in several blocks
        ("few_taps", (3, 5, 2048)),  # stretches of one block
        ("few_taps_channels_last", (70, 132, 64)),
        ("one_block", (500, 3, 8)),
        ("one_cluster", (500, 3, 8)),
        ("one_cluster", (2, 2, 4000)),
    ],
)
def test_sums_are_exact_and_the_same_in_any_order(
    variant: str, shape: tuple[int, int, int], taps: int
) -> None:
    """Whole numbers: every order of blocks gives the sums that numpy gives."""
    rng = np.random.default_rng(3)
    x, dy = (rng.integers(-3, 4, shape).astype(np.float32) for _ in range(2))
    w = rng.integers(-3, 4, (shape[1], taps)).astype(np.float32)
    bias = np.zeros(shape[1], np.float32)
    want = ref.causal_conv1d_backward(dy, x, w, bias)
    old = _core._sim_configure(checks=False)
    try:
        for seed, schedule in enumerate(SCHEDULES):
            _core._sim_configure(schedule=schedule, seed=seed)
            got = causal_conv1d_backward(
                turned(dy, variant),
                turned(x, variant),
                w,
                bias,
                layout=layout_of(variant),
                variant=variant,
                backend="sim",
            )
            np.testing.assert_array_equal(turned(got[0], variant), want[0])
            for a, b in zip(got[1:], want[1:], strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [(4, 768, 192), (2, 256, 512), (1, 132, 1024), (16, 768, 8)])
@pytest.mark.parametrize("taps", [3, 8])
def test_groups_of_channels_of_each_width(
    size: tuple[int, int, int], dtype: str, taps: int
) -> None:
    """Wide groups for 16-bit types in long stretches, narrow ones elsewhere."""
    rng = np.random.default_rng(5)
    x, dy = (rng.integers(-2, 3, size).astype(dtype) for _ in range(2))
    w = rng.integers(-2, 3, (size[1], taps)).astype(dtype)
    dx, dw = causal_conv1d_backward(
        turned(dy, COLUMNS), turned(x, COLUMNS), w, layout="BTC", variant=COLUMNS, backend="sim"
    )
    want = ref.causal_conv1d_backward(*(a.astype(np.float64) for a in (dy, x, w)))
    np.testing.assert_array_equal(turned(dx, COLUMNS), want[0])
    np.testing.assert_array_equal(dw, want[1])


def test_many_channels_go_to_no_clusters() -> None:
    """A cluster for each of them costs more than the blocks of few_taps."""
    for size, taps in (((16, 1024, 64), 2), ((8, 1024, 64), 4)):
        x, w = np.ones(size, np.float32), np.ones((size[1], taps), np.float32)
        plan = _core.plan("causal_conv1d_backward", x, x, w, backend="sim")
        assert plan["variant"] == "few_taps"


# ---- calls that are refused ----


def test_calls_it_cannot_take_are_refused() -> None:
    """Not handed on under its name: other taps, rows and channels, and arrays not aligned."""
    w = np.ones((8, 4), np.float32)
    x = np.ones((2, 8, 16), np.float32)
    odd, late = np.ones((2, 8, 15), np.float32), np.ones((2, 8, 20), np.float32)[..., 1:17]
    silu = {"activation": "silu"}
    borders = {"segments": np.array([0, 7, 15])}
    one = odd[:1]
    with pytest.raises(VariantError, match="of 2 to 4 without"):
        wide = np.ones((8, 5), np.float32)
        causal_conv1d_backward(odd, odd, wide, variant="few_taps", backend="sim")
    for bad, how in ((odd, silu), (one, borders), (late, {}), (x.swapaxes(0, 2), {})):
        with pytest.raises(VariantError, match="2 to 8 lags"):
            causal_conv1d_backward(bad, bad, w, variant="few_taps", backend="sim", **how)
        chosen = _core.plan("causal_conv1d_backward", bad, bad, w, backend="sim", **how)
        assert chosen["variant"] != "few_taps"
    assert causal_conv1d_backward(odd, odd, w, variant="few_taps", backend="sim")
    for taps in (1, 9):
        with pytest.raises(VariantError, match="2 to 8 lags"):
            causal_conv1d_backward(
                x, x, np.ones((8, taps), np.float32), variant="few_taps", backend="sim"
            )
    thin = np.ones((2, 16, 6), np.float32)
    with pytest.raises(VariantError, match="fours of channels"):
        causal_conv1d_backward(thin, thin, w[:6], layout="BTC", variant=COLUMNS, backend="sim")
    assert causal_conv1d_backward(x, x, w, backend="sim", variant="few_taps")
