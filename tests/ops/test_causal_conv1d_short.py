"""Filters of at most 16 taps on CUDA: short_filters and short_filters_channels_last.

Order: drawn calls, special values, states, splits and sums, the choice, the simulator's
counts and faults.  Both kernels take any layout, so each test runs both on both layouts.  See
test_causal_conv1d.py for what all variants have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, LAYOUTS_ND, Sample, dtype_of
from cases.causal_conv1d import sample

import gpuopt
from gpuopt import _core, causal_conv1d, causal_conv1d_backward, ref
from gpuopt.lab.profile import profile

VARIANTS = ("short_filters", "short_filters_channels_last")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SCHEDULES = ("ascending", "descending", "shuffle", "preempt")

# Steps around packs of 2 to 8 elements, the lanes of a row, an item, a turn of four items,
# the window and the stretch of channels last.
STEPS = (
    1,
    2,
    3,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    255,
    256,
    257,
    513,
    1030,
)

Array = np.ndarray[Any, Any]

each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_dtype = pytest.mark.parametrize("dtype", FLOATS)


@pytest.fixture
def checked() -> Iterator[Any]:
    """_core._sim_configure with checks on; restores the settings afterwards."""
    old = _core._sim_configure(checks=True)
    yield _core._sim_configure
    _core._sim_configure(**old)


def whole(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    draw = np.random.default_rng((seed, *shape)).integers(-8, 9, shape)
    return draw.astype(dtype_of(dtype))


# ---- drawn calls ----


def drawn(seed: int, dtype: str) -> Sample:
    """One call of either operator within the bounds of the contract."""
    rng = np.random.default_rng((seed, len(dtype), FLOATS.index(dtype)))
    steps = int(rng.choice(STEPS))
    batches = int(rng.integers(1, 4)) if steps < 300 else 1
    channels = int(rng.choice((1, 2, 3, 5, 8, 16, 17, 24, 40))) if steps < 300 else 3
    taps = int(rng.integers(1, 17)) if rng.random() < 0.9 or steps > 16 else steps + 5
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
@each_variant
def test_drawn_calls(variant: str, dtype: str, checked: Any) -> None:
    for seed in range(40):
        case = drawn(seed, dtype)
        arrays = [spec.build() for spec in case.arrays]
        op = "causal_conv1d" + "_backward" * (arrays[0].shape == arrays[1].shape)
        checked(schedule=SCHEDULES[seed % 4], seed=seed)
        how: dict[str, Any] = {"backend": "sim", "variant": variant}
        got = getattr(gpuopt, op)(*arrays, **dict(case.options), **how)
        problem = ENTRIES[op].expected(case, variant).compare(got)
        assert problem is None, (seed, op, case, problem)


@each_dtype
@each_variant
def test_every_number_of_taps(variant: str, dtype: str) -> None:
    """K = 1..16 and more than there are steps; sums of small whole numbers are exact."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant}
    for taps in range(1, 19):
        steps = 40 + taps if taps <= 16 else 16
        x, dy = (whole((2, 3, steps), dtype, seed) for seed in (1, 2))
        w = whole((3, taps), dtype)
        np.testing.assert_array_equal(causal_conv1d(x, w, **how), ref.causal_conv1d(x, w))
        got = causal_conv1d_backward(dy, x, w, **how)
        for a, b in zip(got, ref.causal_conv1d_backward(dy, x, w), strict=True):
            np.testing.assert_array_equal(a, b)


@each_variant
def test_rows_at_every_offset(variant: str) -> None:
    """x, dy and the results begin at different places between two 16-byte boundaries."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant}
    for dtype, steps in (("float16", 70), ("float32", 64)):
        memory, w = whole((2 * 2 * steps + 16,), dtype), whole((2, 4), dtype)
        room = np.empty(2 * 2 * steps + 16, dtype)
        for k in range(8):
            x, dy = (
                memory[at : at + 4 * steps].reshape(2, 2, steps) for at in (k, (3 * k) % 8)
            )
            at = (5 * k + 2) % 8
            room[:] = 99
            out = room[at : at + 4 * steps].reshape(2, 2, steps)
            causal_conv1d(x, w, out=out, **how)
            np.testing.assert_array_equal(out, ref.causal_conv1d(x, w))
            dx, dw = causal_conv1d_backward(dy, x, w, out=(out, np.empty_like(w)), **how)
            want_dx, want_dw = ref.causal_conv1d_backward(dy, x, w)
            np.testing.assert_array_equal(dx, want_dx)
            np.testing.assert_array_equal(dw, want_dw)
            assert (room[:at] == 99).all()
            assert (room[at + 4 * steps :] == 99).all()


# ---- special values ----


@pytest.mark.parametrize("layout", ["BCT", "BTC"])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@each_variant
def test_special_values_reach_what_depends_on_them(
    variant: str, bad: float, layout: str
) -> None:
    """In x, w and dy: no product with padding, with a tap beyond K, or with later steps."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "layout": layout}
    turn = (lambda a: a.swapaxes(1, 2)) if layout == "BTC" else (lambda a: a)
    steps = 70
    for taps in (1, 2, 3, 4, 7, 8, 13, 16):
        lag = np.arange(steps)[:, None] - np.arange(steps)  # of step t to step u
        reach = (lag >= 0) & (lag < taps)
        x, dy = (np.ones((steps, 8, steps), np.float32) for _ in range(2))
        x[np.arange(steps), :, np.arange(steps)] = bad  # row b has it at step b
        w = np.ones((8, taps), np.float32)
        got = turn(causal_conv1d(np.ascontiguousarray(turn(x)), w, **how))
        np.testing.assert_array_equal(~np.isfinite(got[:, 3]), reach.T)
        dx, _ = causal_conv1d_backward(
            *(np.ascontiguousarray(turn(a)) for a in (x, dy)), w, **how
        )
        np.testing.assert_array_equal(~np.isfinite(turn(dx)[:, 3]), reach)
        for where in (0, 5, steps - 1):
            for one, other in ((x, dy), (dy, x)):
                one[:], other[:] = 1, 1
                one[1, 2, where] = bad
                arrays = [np.ascontiguousarray(turn(a)) for a in (dy, x)]
                dx, dw = causal_conv1d_backward(*arrays, w, **how)
                s = taps - 1 - np.arange(taps)  # g[u + s] meets x[u]
                meets = where + s < steps if one is x else where - s >= 0
                np.testing.assert_array_equal(~np.isfinite(dw[2]), meets)
                assert np.isfinite(np.delete(dw, 2, 0)).all()
                hit = reach[where] if one is dy else np.zeros(steps, bool)
                np.testing.assert_array_equal(~np.isfinite(turn(dx)[1, 2]), hit)
        x[:], dy[:] = 1, 1
        w[4, 0] = bad  # the oldest lag
        got = turn(causal_conv1d(turn(x), w, **how))
        np.testing.assert_array_equal(~np.isfinite(got[2, 4]), np.arange(steps) >= taps - 1)
        dx = turn(causal_conv1d_backward(turn(dy), turn(x), w, **how)[0])
        np.testing.assert_array_equal(
            ~np.isfinite(dx[2, 4]), np.arange(steps) < steps - (taps - 1)
        )


@each_variant
def test_silu_takes_any_value(variant: str) -> None:
    """As the formula says in float64, down to subnormal results; nan at -inf."""
    v = np.array(
        [
            -np.inf,
            -200,
            -104,
            -95,
            -88,
            -80,
            -30,
            -5,
            -1e-9,
            0,
            1e-9,
            5,
            90,
            3e38,
            np.inf,
            np.nan,
        ]
    )
    x, w = v.astype(np.float32).reshape(1, 1, -1), np.ones((1, 1), np.float32)
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "activation": "silu"}
    wide = [a.astype(np.float64) for a in (x, w)]
    with np.errstate(all="ignore"):
        want = ref.causal_conv1d(*wide, activation="silu")
        slope = ref.causal_conv1d_backward(np.ones_like(wide[0]), *wide, activation="silu")[0]
    got = causal_conv1d(x, w, **how)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-43)
    got = causal_conv1d_backward(np.ones_like(x), x, w, **how)[0]
    finite = np.abs(v) < 1e30
    np.testing.assert_allclose(got[..., finite], slope[..., finite], rtol=2e-5, atol=2e-43)


@each_variant
def test_another_future_changes_no_bit(variant: str) -> None:
    how: dict[str, Any] = {"backend": "sim", "variant": variant}
    rng = np.random.default_rng(4)
    x, dy, w = (rng.standard_normal(n).astype("f4") for n in ((2, 3, 150), (2, 3, 150), (3, 6)))
    y = causal_conv1d(x, w, activation="silu", **how)
    dx = causal_conv1d_backward(dy, x, w, **how)[0]
    for t in (1, 5, 33, 128, 149):
        later, earlier = x.copy(), dy.copy()
        later[..., t:], earlier[..., :t] = np.nan, np.inf
        got = causal_conv1d(later, w, activation="silu", **how)
        assert got[..., :t].tobytes() == y[..., :t].tobytes()
        got = causal_conv1d_backward(earlier, x, w, **how)[0]
        assert got[..., t:].tobytes() == dx[..., t:].tobytes()


# ---- states ----


@each_dtype
@each_variant
def test_a_state_is_read_where_it_is(variant: str, dtype: str, checked: Any) -> None:
    """Every number of taps, rows shorter than the state, at every offset, in both layouts."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "return_state": True}
    for turn, taps in enumerate((2, 3, 4, 5, 8, 9, 16)):
        for channels, steps in ((1, 1), (5, 2), (16, 9), (3, 70), (8, 33), (2, 1030)):
            checked(schedule=SCHEDULES[(turn + steps) % 4], seed=steps)
            if steps == 1030 and (dtype == "float64" or turn % 3):
                continue
            row = whole((2, channels, steps + taps + 12), dtype, turn)
            cut = turn + channels % 5  # the rows begin at any offset to 16 bytes
            state = row[:, :, cut : cut + taps - 1]
            x = row[:, :, cut + taps - 1 : cut + taps - 1 + steps]
            w, bias = whole((channels, taps), dtype, 3), whole((channels,), dtype, 4)
            joined = np.concatenate([state, x], 2)
            want = ref.causal_conv1d(joined, w, bias)[:, :, taps - 1 :]
            got, last = causal_conv1d(x, w, bias, initial_state=state, **how)
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(last, joined[:, :, steps:])
            for lay in (lambda a: a.swapaxes(1, 2), lambda a: a.swapaxes(1, 2).copy()):
                got, last = causal_conv1d(
                    lay(x), w, bias, initial_state=lay(state), layout="BTC", **how
                )
                np.testing.assert_array_equal(got.swapaxes(1, 2), want)
                np.testing.assert_array_equal(last.swapaxes(1, 2), joined[:, :, steps:])


@each_variant
@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_a_row_in_parts_has_the_bits_of_the_row(variant: str, layout: str) -> None:
    rng, cuts = np.random.default_rng(1), (0, 1, 3, 50, 51, 300)
    turn = (lambda a: a.swapaxes(1, 2).copy()) if layout == "BTC" else (lambda a: a)
    for channels, taps in ((5, 4), (16, 7), (8, 16)):
        x, w = (
            rng.standard_normal(s).astype("f4") for s in ((2, channels, 300), (channels, taps))
        )
        how: dict[str, Any] = {"activation": "silu", "variant": variant, "layout": layout}
        want = causal_conv1d(turn(x), w, backend="sim", **how)
        state, parts = turn(np.zeros((2, channels, taps - 1), np.float32)), []
        for from_, to in itertools.pairwise(cuts):
            y, state = causal_conv1d(
                turn(x[:, :, from_:to]), w, initial_state=state, return_state=True,
                backend="sim", **how,
            )  # fmt: skip
            parts.append(y)
        joined = np.concatenate(parts, 1 if layout == "BTC" else 2)
        assert joined.tobytes() == want.tobytes()


@each_variant
def test_a_bad_state_reaches_what_depends_on_it(variant: str) -> None:
    x, w = np.ones((2, 8, 40), np.float32), np.ones((8, 5), np.float32)
    for where in range(4):
        state = np.ones((2, 8, 4), np.float32)
        state[1, 3, where] = np.nan
        y = causal_conv1d(x, w, initial_state=state, backend="sim", variant=variant)
        bad = np.zeros(y.shape, bool)
        bad[1, 3, : where + 1] = True
        np.testing.assert_array_equal(np.isnan(y), bad)


# ---- splits and sums ----


@each_variant
@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_splits_of_every_kind(variant: str, layout: str) -> None:
    """One part of a channel and several, of rows and of their stretches; no batches."""
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "layout": layout}
    for batches, channels, steps, taps in (
        (1, 1, 5000, 4), (70, 1, 9, 3), (1, 200, 40, 4), (3, 2, 3000, 2),
        (0, 3, 5, 2), (2, 1, 4, 9),
    ):  # fmt: skip
        shape = (batches, steps, channels) if layout == "BTC" else (batches, channels, steps)
        x, dy = (np.sign(whole(shape, "float32", seed)) for seed in (1, 2))
        w, bias = whole((channels, taps)), whole((channels,))
        got = causal_conv1d_backward(dy, x, w, bias, **how)
        rows = [a.swapaxes(1, 2) if layout == "BTC" else a for a in (dy, x)]
        want_dx, want_dw = ref.causal_conv1d_backward(*rows, w)
        np.testing.assert_array_equal(
            got[0], want_dx.swapaxes(1, 2) if layout == "BTC" else want_dx
        )
        np.testing.assert_array_equal(got[1], want_dw)
        np.testing.assert_array_equal(got[2], rows[0].sum((0, 2)))


@each_variant
def test_sums_of_uniform_numbers_stay_exact(variant: str) -> None:
    """dw of 40,000 terms: blocks keep the error below that of a single running sum."""
    rng = np.random.default_rng(2)
    x, dy = (rng.random((2, 1, 20_000), np.float32) for _ in range(2))
    w = np.ones((1, 2), np.float32)
    _, dw = causal_conv1d_backward(dy, x, w, backend="sim", variant=variant)
    _, want = ref.causal_conv1d_backward(*(a.astype(np.float64) for a in (dy, x, w)))
    terms = 40_000
    bound = (256 + terms / 64 + 2 + 40) * 2.0**-24
    assert (np.abs(dw - want) <= bound * want).all()
    assert (np.abs(dw - want) <= 2e-6 * want).all()  # seen: 2e-7


@each_variant
def test_long_filters_are_refused(variant: str) -> None:
    x, w = whole((2, 3, 40)), whole((3, 17))
    how: dict[str, Any] = {"backend": "sim", "variant": variant}
    message = r"takes filters of at most 16 lags"
    with pytest.raises(gpuopt.VariantError, match=message):
        causal_conv1d(x, w, **how)
    with pytest.raises(gpuopt.VariantError, match=message):
        causal_conv1d_backward(x, x, w, **how)
    short = x[..., :16]  # 16 lags occur
    np.testing.assert_array_equal(causal_conv1d(short, w, **how), ref.causal_conv1d(short, w))


# ---- the choice ----


def test_auto_follows_the_strides() -> None:
    def chosen(x: Array, **options: Any) -> str:
        w = np.ones((x.shape[2 if options else 1], 16), np.float32)
        plans = [
            _core.plan(op, *arrays, backend="sim", **options)["variant"]
            for op, arrays in (("causal_conv1d", (x, w)), ("causal_conv1d_backward", (x, x, w)))
        ]
        assert plans[0] == plans[1]
        return str(plans[0])

    rows, columns = np.ones((64, 64, 400), np.float32), np.ones((64, 400, 64), np.float32)
    assert chosen(rows) == "short_filters"
    assert chosen(columns, layout="BTC") == "short_filters_channels_last"
    assert chosen(columns.swapaxes(1, 2)) == "short_filters_channels_last"
    assert chosen(np.ones((1600, 400, 1), np.float32), layout="BTC") == "short_filters"


# ---- the simulator: counts and faults ----


@each_variant
def test_a_state_costs_its_own_sectors(variant: str) -> None:
    """One launch, and about the sectors of a call without a state."""
    layout = "BTC" if variant.endswith("last") else "BCT"
    shape, before = (
        ((1, 256, 1024), (1, 3, 1024)) if layout == "BTC" else ((1, 4, 8192), (1, 4, 3))
    )
    x, state = whole(shape), whole(before)
    w = whole((shape[2] if layout == "BTC" else 4, 4))
    options: dict[str, Any] = {"variant": variant, "layout": layout}
    plain = profile("causal_conv1d", x, w, **options)[variant]
    kernels = profile("causal_conv1d", x, w, initial_state=state, **options)[variant]
    assert len(kernels) == len(plain) == 1
    more = kernels[0].global_sectors - plain[0].global_sectors
    assert 0 < more <= state.nbytes // 32 + 16


def sectors(op: str, variant: str, *arrays: Array, **options: Any) -> tuple[int, int]:
    """Sectors of 32 bytes that the kernels move, and those of the arrays of x's shape."""
    kernels = profile(op, *arrays, variant=variant, **options)[variant]
    moved = len(arrays) * arrays[0].nbytes  # with one result, of the size of x, for w
    return sum(k.global_sectors for k in kernels), moved // 32


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("op", "layout", "most"),
    [
        ("causal_conv1d", "BCT", 1.10),
        ("causal_conv1d", "BTC", 1.55),
        ("causal_conv1d_backward", "BCT", 1.10),
        ("causal_conv1d_backward", "BTC", 1.40),
    ],
)
def test_every_sector_is_moved_once(op: str, layout: str, most: float, dtype: str) -> None:
    """But for taps, the ends of stretches and partial sums; SiLU needs nothing more.

    Channels last, each tile of 64 steps reads three more, and taps for each 16 of its steps:
    requests for half as many sectors as x and y have in 16 bits, most of them the same.
    Backward has stretches of 32 steps and more: three or six more are read of x, three of
    dy, and five sums are written and read for each channel.
    """
    shape = (1, 4, 8192) if layout == "BCT" else (1, 2048, 256)
    variant = VARIANTS[layout == "BTC"]
    x = whole(shape, dtype)
    w = whole((shape[1 if layout == "BCT" else 2], 4), dtype)
    arrays = (x, w) if op == "causal_conv1d" else (x, x, w)
    for options in ({}, {"activation": "silu"}):
        moved, least = sectors(op, variant, *arrays, layout=layout, **options)
        assert least <= moved <= most * least, (moved, least)


@each_variant
def test_every_failure_leaves_nothing_behind(variant: str, checked: Any) -> None:
    x, w, bias, dy = whole((3, 1, 9)), whole((1, 12)), whole((1,)), whole((3, 1, 9))[::-1]
    options: dict[str, Any] = {"activation": "silu", "variant": variant, "backend": "sim"}
    want = causal_conv1d_backward(dy, x, w, bias, **options)
    before = None
    for step in range(40):
        checked(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = causal_conv1d_backward(dy, x, w, bias, **options)
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            checked(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            continue
        break
    checked(fail_after=-1)
    assert 4 <= step < 39
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


# ---- tiles ----

TILES: dict[str, Any] = {
    "backend": "sim", "variant": "short_filters_channels_last", "layout": "BTC"
}  # fmt: skip


@each_dtype
def test_tiles_of_every_length(dtype: str, checked: Any) -> None:
    """Rows of parts of tiles and several, channels that fill a tile or not, with states."""
    how = TILES
    sizes = [(16, 1), (8, 3), (16, 17), (72, 33), (136, 64), (24, 65), (8, 130), (16, 700)]
    chunks = ((12, 33), (20, 70), (6, 9), (2, 130), (7, 40))  # not of 16 bytes
    for turn, taps in enumerate((1, 2, 3, 4, 5, 8, 9, 16)):
        for channels, steps in (sizes[turn], sizes[turn - 3], chunks[turn % 5]):
            checked(schedule=SCHEDULES[(turn + steps) % 4], seed=steps)
            w, bias = whole((channels, taps), dtype, 3), whole((channels,), dtype, 4)
            x = whole((2, steps, channels), dtype, turn)
            rows = x.swapaxes(1, 2)
            want = ref.causal_conv1d(rows, w, bias).swapaxes(1, 2)
            np.testing.assert_array_equal(causal_conv1d(x, w, bias, **how), want)
            got, last = causal_conv1d(x, w, bias, return_state=True, **how)
            np.testing.assert_array_equal(got, want)
            before = whole((2, taps - 1, channels), dtype, 5)
            for state in (np.zeros_like(before), before, before.copy("F")):
                joined = np.concatenate([state, x], 1)
                got, last = causal_conv1d(
                    x, w, bias, initial_state=state, return_state=True, **how
                )
                want = ref.causal_conv1d(joined.swapaxes(1, 2), w, bias).swapaxes(1, 2)
                np.testing.assert_array_equal(got, want[:, taps - 1 :])
                np.testing.assert_array_equal(last, joined[:, steps:])
            borders = np.unique([0, steps // 3, steps // 2, max(steps - 2, 0), steps])
            parts = itertools.pairwise(borders.tolist())
            want = np.concatenate(
                [ref.causal_conv1d(rows[:1, :, a:b], w, bias) for a, b in parts], 2
            )
            got = causal_conv1d(x[:1], w, bias, segments=borders, **how)
            np.testing.assert_array_equal(got, want.swapaxes(1, 2))


def test_tiles_make_no_product_with_padding() -> None:
    for taps in (2, 4, 7, 8, 16):
        x, w = np.ones((1, 200, 8), np.float32), np.ones((8, taps), np.float32)
        w[3, 0] = np.inf  # the oldest lag
        got = causal_conv1d(x, w, **TILES)
        np.testing.assert_array_equal(np.isfinite(got[0, :, 3]), np.arange(200) < taps - 1)
        w[3, 0], x[0, 70, 5] = 1, np.nan
        got = np.isnan(causal_conv1d(x, w, activation="silu", **TILES)[0])
        reached = np.zeros((200, 8), bool)
        reached[70 : 70 + taps, 5] = True
        np.testing.assert_array_equal(got, reached)


@each_dtype
def test_a_warp_for_each_item(dtype: str, checked: Any) -> None:
    """Small calls of short_filters: rows at every offset, in both layouts, with states."""
    how: dict[str, Any] = {"backend": "sim", "variant": "short_filters"}
    for turn, taps in enumerate((1, 2, 3, 4, 5, 8, 9, 16)):
        for channels, steps in ((5, 2), (3, 9), (2, 70), (1, 257), (3, 515), (2, 1021)):
            checked(schedule=SCHEDULES[(turn + steps) % 4], seed=steps)
            row = whole((2, channels, steps + taps + 12), dtype, turn)
            cut = turn + channels % 5
            state = row[:, :, cut : cut + taps - 1]
            x = row[:, :, cut + taps - 1 : cut + taps - 1 + steps]
            w, bias = whole((channels, taps), dtype, 3), whole((channels,), dtype, 4)
            want = ref.causal_conv1d(x, w, bias)
            np.testing.assert_array_equal(causal_conv1d(x, w, bias, **how), want)
            last = np.ascontiguousarray(x.swapaxes(1, 2))
            got = causal_conv1d(last, w, bias, layout="BTC", **how).swapaxes(1, 2)
            np.testing.assert_array_equal(got, want)
            joined = np.concatenate([state, x], 2)
            want = ref.causal_conv1d(joined, w, bias)[:, :, taps - 1 :]
            got = causal_conv1d(x, w, bias, initial_state=state, **how)
            np.testing.assert_array_equal(got, want)
            borders = np.unique([0, steps // 3, steps // 2, steps])
            want = np.concatenate(
                [
                    ref.causal_conv1d(x[:1, :, a:b], w, bias)
                    for a, b in itertools.pairwise(borders.tolist())
                ],
                2,
            )
            got = causal_conv1d(x[:1], w, bias, segments=borders, **how)
            np.testing.assert_array_equal(got, want)
