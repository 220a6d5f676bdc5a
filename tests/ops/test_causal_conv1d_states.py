"""causal_conv1d with a state before its rows and with segments, and its update.

Order: states, segments, the update.  See test_contract.py for sizes, layouts and dtypes.
"""

from __future__ import annotations

import itertools
import sys
import types
from typing import Any

import foreign
import numpy as np
import pytest
from cases import dtype_of, unit
from cases.causal_conv1d import BY_ROW, expect, roundings, state_samples

import gpuopt
from gpuopt import _core, causal_conv1d, causal_conv1d_update, ref

Array = np.ndarray[Any, Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")
SUMS = ("scalar", "simd", "threads")  # of whole numbers they make whole ones
CPU = (*SUMS, "spectra")


def whole(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Array:
    """Small whole numbers: their sums are exact in float32 and in any order."""
    return np.random.default_rng((seed, *shape)).integers(-3, 4, shape).astype(dtype_of(dtype))


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def turned(a: Array) -> Array:
    return np.ascontiguousarray(a.swapaxes(1, 2))


def assert_equal(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


# ---- states ----

SIZES = ((2, 3, 1, 4), (1, 20, 3, 4), (2, 17, 40, 1), (1, 2, 1100, 16), (2, 18, 40, 33))


@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_state_is_the_steps_before(size: Any, variant: str) -> None:
    """Against the reference on the joined row, in both layouts; K above 32, too."""
    b, c, t, k = size
    how: dict[str, Any] = {"backend": "cpu", "variant": variant, "return_state": True}
    for dtype in FLOATS:
        x, state = whole((b, c, t), dtype, 1), whole((b, c, k - 1), dtype, 2)
        w, bias = whole((c, k), dtype, 3), whole((c,), dtype, 4)
        row = np.concatenate([state, x], 2)
        want = ref.causal_conv1d(row, w, bias)[:, :, k - 1 :]
        y, last = causal_conv1d(x, w, bias, initial_state=state, **how)
        assert_equal(y, want)
        assert_equal(last, row[:, :, t:])
        y, last = causal_conv1d(
            turned(x), w, bias, initial_state=turned(state), layout="BTC", **how
        )
        assert_equal(y, want.swapaxes(1, 2))
        assert_equal(last, row[:, :, t:].swapaxes(1, 2))


@pytest.mark.parametrize("variant", CPU)
@pytest.mark.parametrize("taps", [4, 40])
def test_a_row_in_parts_is_the_row(variant: str, taps: int) -> None:
    """Each part behind the state of the one before; bit for bit but for transforms."""
    x, w, bias = normal(2, 17, 300), normal(17, taps, seed=1), normal(17, seed=2)
    how: dict[str, Any] = {"backend": "cpu", "variant": variant, "activation": "silu"}
    whole_row = causal_conv1d(x, w, bias, **how)
    state, parts = None, []
    for from_, to in itertools.pairwise((0, 1, 3, 50, 51, 300)):
        y, state = causal_conv1d(
            x[:, :, from_:to], w, bias, initial_state=state, return_state=True, **how
        )
        parts.append(y)
    joined = np.concatenate(parts, 2)
    if taps <= 32 and variant != "spectra":
        np.testing.assert_array_equal(joined, whole_row)
    else:
        np.testing.assert_allclose(joined, whole_row, rtol=1e-4, atol=1e-4)


def test_without_a_state_zeros_are_before_the_row() -> None:
    x, w = whole((2, 3, 2)), whole((3, 5))
    y, state = causal_conv1d(x, w, return_state=True, backend="cpu")
    assert_equal(y, ref.causal_conv1d(x, w))
    assert_equal(state, np.concatenate([np.zeros((2, 3, 2)), x], 2))
    y, state = causal_conv1d(x, whole((3, 1)), return_state=True, backend="cpu")
    assert state.shape == (2, 3, 0)


def test_a_nan_of_the_state_reaches_what_depends_on_it() -> None:
    x, w, state = whole((1, 20, 40)), np.ones((20, 4), np.float32), whole((1, 20, 3))
    state[..., 1] = np.nan
    for variant, given in itertools.product(SUMS, (x, turned(x))):
        layout = "BCT" if given is x else "BTC"
        before = state if given is x else turned(state)
        y = causal_conv1d(given, w, initial_state=before, layout=layout, variant=variant)
        y = y if given is x else y.swapaxes(1, 2)
        assert np.isnan(y[..., :2]).all(), variant
        assert np.isfinite(y[..., 2:]).all(), variant


def test_results_of_a_state_go_into_out() -> None:
    x, w, state = whole((1, 20, 9)), whole((20, 4)), whole((1, 20, 3))
    out = np.zeros((20, 9, 1), np.float32).transpose(2, 0, 1), np.zeros_like(state)
    y, last = causal_conv1d(
        x, w, initial_state=state, return_state=True, out=out, backend="cpu"
    )
    assert y is out[0]
    assert last is out[1]
    assert_equal(y, ref.causal_conv1d(x, w, initial_state=state))
    with pytest.raises(ValueError, match=r"overlap|shares? memory"):
        causal_conv1d(
            x, w, initial_state=state, return_state=True, out=(None, state), backend="cpu"
        )


# Of any row; test_causal_conv1d_large.py tests states before rows of many steps, and
# few_outputs and few_taps take none; persistent_tensor_cores, for rows of whole packs, is
# tested below.
AVAILABLE = [
    row
    for row in _core.variants("causal_conv1d")
    if row["available"]
    and _core.backends()[row["backend"]] is None
    and row["name"] not in ("large_transforms", "few_outputs", "few_taps", "contiguous_rows")
    and row["name"] != "persistent_tensor_cores"
]
ROWS = [
    (row["backend"], row["name"], dtype)
    for row in AVAILABLE
    for dtype in FLOATS
    if dtype in row["dtypes"]
]


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_state_before_rows_of_whole_packs(dtype: str) -> None:
    """persistent_tensor_cores sees the state as rows before the row: small whole numbers."""
    for taps in (2, 5, 40):
        x, w = whole((2, 3, 24), dtype, 1), whole((3, taps), dtype, 2)
        state = whole((2, 3, taps - 1), dtype, 3)
        y = causal_conv1d(
            x, w, initial_state=state, backend="sim", variant="persistent_tensor_cores"
        )
        row = np.concatenate([state, x], 2)
        want = ref.causal_conv1d(row, w)[:, :, taps - 1 :]
        assert_equal(y, want)


@pytest.mark.parametrize(("backend", "variant", "dtype"), ROWS)
def test_every_variant_and_layout_behind_a_state(
    backend: str, variant: str, dtype: str
) -> None:
    """Within the bound of the joined row; the last state is exact."""
    done = 0
    for s in state_samples(dtype, backend != "cpu"):
        *arrays, state = (spec.build() for spec in s.arrays)
        if variant.startswith("short_filters") and arrays[1].shape[1] > 16:
            continue
        options = {**dict(s.options), "backend": backend, "variant": variant}
        got = causal_conv1d(*arrays, initial_state=state, **options)
        rung = variant if variant in BY_ROW else ""
        assert expect(False, rung, s).compare(got) is None, str(s)
        done += 1
    assert done >= 8


# ---- segments ----


def forms(borders: list[int], batches: int, dtype: str) -> list[Array]:
    """Both forms of the same segments; cumulative lengths only for one batch."""
    steps = borders[-1]
    ids = np.searchsorted(borders, np.arange(steps), side="right").astype(dtype)
    both = [np.broadcast_to(ids, (batches, steps))]
    return [*both, np.array(borders, dtype)] if batches == 1 else both


BORDERS = (
    [0, 7],
    [0, 1, 2, 3, 7],
    [0, 3, 3, 40],
    [0, 16, 17, 300, 600],
    [0, 1023, 1024, 1030, 2100],
)


# Elsewhere than on a CPU some shape kernels have segments, and rungs are of whole rows.
CUT = [
    (row["backend"], row["name"])
    for row in AVAILABLE
    if row["backend"] == "cpu" or "whole rows" not in (row["shape"] or "whole rows")
]
each_cut = pytest.mark.parametrize(("backend", "variant"), CUT)
BACKWARD = {row["name"] for row in gpuopt.variants("causal_conv1d_backward")}


def causal_conv1d_backward(*arrays: Any, variant: str = "auto", **options: Any) -> Any:
    """By the variant whose forward pass has another kernel, if there is none of this name."""
    own = variant if variant == "auto" or variant in BACKWARD else variant[:-2]
    return gpuopt.causal_conv1d_backward(*arrays, variant=own, **options)


def takes(variant: str, taps: int, steps: int) -> bool:
    return not variant.startswith("short_filters") or min(taps, steps) <= 16


@each_cut
@pytest.mark.parametrize("borders", BORDERS, ids=str)
def test_segments_are_rows_of_their_own(borders: list[int], backend: str, variant: str) -> None:
    for batches, channels, taps in (
        (1, 2, 4), (2, 17, 4), (1, 18, 9), (1, 1, 40), (3, 8, 16), (2, 16, 1)
    ):  # fmt: skip
        if not takes(variant, taps, borders[-1]):
            continue
        how: dict[str, Any] = {"backend": backend, "variant": variant}
        x, dy = (whole((batches, channels, borders[-1]), seed=k) for k in (1, 2))
        w, bias = whole((channels, taps), seed=3), whole((channels,), seed=4)
        cuts = [slice(*pair) for pair in itertools.pairwise(borders) if pair[0] < pair[1]]
        want = np.concatenate([ref.causal_conv1d(x[:, :, at], w, bias) for at in cuts], 2)
        parts = [ref.causal_conv1d_backward(dy[:, :, at], x[:, :, at], w) for at in cuts]
        dx = np.concatenate([part[0] for part in parts], 2)
        dw = np.sum([part[1] for part in parts], 0)
        for segments in (f for d in ("int32", "int64") for f in forms(borders, batches, d)):
            assert_equal(causal_conv1d(x, w, bias, segments=segments, **how), want)
            assert_equal(ref.causal_conv1d(x, w, bias, segments=segments), want)
            by_time = {**how, "layout": "BTC", "segments": segments}
            assert_equal(causal_conv1d(turned(x), w, bias, **by_time), turned(want))
            got = causal_conv1d_backward(dy, x, w, bias, segments=segments, **how)
            other = causal_conv1d_backward(turned(dy), turned(x), w, bias, **by_time)
            for a, b, right in zip(got, other, (dx, dw, dy.sum((0, 2))), strict=True):
                assert_equal(a, right)
                assert_equal(b if b.ndim < 3 else turned(b), right)


SIZES_CUT = ((2, 5, 70, 4), (1, 16, 150, 7), (2, 3, 90, 16), (1, 2, 1100, 3))


def cut_at_random(batches: int, steps: int, seed: int) -> Array:
    """Numbers of segments of 1 to 40 steps, other ones in each batch, of any order."""
    rng = np.random.default_rng((seed, batches, steps))
    ids = np.empty((batches, 3 * steps), np.int64)[:, ::3]  # neither axis is dense
    for row in ids:
        lengths = rng.integers(1, 41, steps)
        begin = np.repeat(np.arange(steps), lengths)[:steps]
        row[:] = rng.permutation(steps)[begin]
    return ids


@each_cut
@pytest.mark.parametrize("dtype", FLOATS)
def test_packed_sequences_are_the_loop_over_them(
    dtype: str, backend: str, variant: str
) -> None:
    """Bit for bit in y and dx on a GPU, whose sums have one order; dw within its bound.

    g of a sequence has the same bits in both, so dw differs by the order of its sums alone.
    """
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    for turn, (b, c, t, k) in enumerate(SIZES_CUT):
        ids, options = cut_at_random(b, t, turn), {"eps": 0.5, "activation": "silu"}
        x, dy = (normal(b, c, t, seed=s).astype(dtype_of(dtype)) for s in (1, 2))
        w, bias = (normal(*s, seed=3).astype(dtype_of(dtype)) for s in ((c, k), (c,)))
        for layout, turn_ in (("BCT", lambda a: a), ("BTC", turned)):
            given = {**how, **options, "layout": layout}
            y = turn_(causal_conv1d(turn_(x), w, bias, segments=ids, **given))
            dx, dw, dbias = causal_conv1d_backward(
                turn_(dy), turn_(x), w, bias, segments=ids, **given
            )
            dx = turn_(dx)
            sums: Array = np.zeros((c, k))
            rounded: Array = np.abs(dw.astype(np.float64))
            for row in range(b):
                border = np.flatnonzero(np.diff(ids[row])) + 1
                for at in np.split(np.arange(t), border):
                    one = slice(row, row + 1), slice(None), slice(at[0], at[-1] + 1)
                    part = [turn_(np.ascontiguousarray(a[one])) for a in (dy, x)]
                    want = turn_(causal_conv1d(part[1], w, bias, **given))
                    parts = causal_conv1d_backward(*part, w, bias, **given)
                    for got, right in ((y[one], want), (dx[one], turn_(parts[0]))):
                        if backend == "cpu":
                            near = 40 * unit(np.dtype(dtype_of(dtype)))
                            right = right.astype(np.float64)
                            np.testing.assert_allclose(
                                got.astype(np.float64), right, rtol=near, atol=20 * near
                            )
                        else:
                            assert got.tobytes() == np.ascontiguousarray(right).tobytes()
                    sums += parts[1].astype(np.float64)
                    rounded += np.abs(parts[1].astype(np.float64))
            wide = [np.abs(a.astype(np.float64)) for a in (dy, x, w)]  # |silu'| is below 1.1
            most = 1.1 * ref.causal_conv1d_backward(*wide, segments=ids)[1]
            u = unit(np.dtype("f8" if dtype == "float64" else "f4"))
            bound = 2 * roundings(b * t, 40 + b + t) * u * most
            bound = bound + unit(np.dtype(dtype_of(dtype))) * rounded
            assert (np.abs(dw.astype(np.float64) - sums) <= bound).all(), (layout, k)
            assert np.isfinite(dbias.astype(np.float64)).all()


@each_cut
def test_nothing_crosses_a_border(backend: str, variant: str) -> None:
    """With SiLU; what is no number stays in its segment, in both directions."""
    x, dy, w = normal(1, 17, 30), normal(1, 17, 30, seed=1), normal(17, 4, seed=2)
    for layout, turn in (("BCT", lambda a: a.copy()), ("BTC", turned)):
        how: dict[str, Any] = {"activation": "silu", "layout": layout}
        how |= {"segments": np.array([0, 10, 20, 30], np.int32)}
        how |= {"backend": backend, "variant": variant}
        given, axis = turn(x), slice(10, 20)
        y = causal_conv1d(given, w, **how)
        dx = causal_conv1d_backward(turn(dy), given, w, **how)[0]
        (given if layout == "BTC" else given.swapaxes(1, 2))[:, axis] = np.nan
        bad = causal_conv1d_backward(turn(dy), given, w, **how)
        for got, want in ((causal_conv1d(given, w, **how), y), (bad[0], dx)):
            got, want = (a if layout == "BTC" else turned(a) for a in (got, want))
            for at in (slice(0, 10), slice(20, 30)):
                np.testing.assert_array_equal(got[:, at], want[:, at])
            assert np.isnan(got[:, axis]).all()


@each_cut
def test_a_number_that_returns_begins_a_new_segment(backend: str, variant: str) -> None:
    x, w = whole((1, 2, 6)), whole((2, 4))
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    ids = np.array([[5, 5, 0, 0, 5, 5]], np.int64)
    want = causal_conv1d(x, w, segments=np.array([0, 2, 4, 6]), **how)
    assert_equal(causal_conv1d(x, w, segments=ids, **how), want)


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([1, 5], r"^segments must begin with 0, not 1$"),
        ([-1, 5], r"^segments must begin with 0, not -1$"),
        (
            [0, 4, 3, 5],
            r"^segments must not decrease, but segments\[2\] after 4 is 3, which is less$",
        ),
        ([0, 4], r"^segments must end with T = 5, the steps of x, not 4$"),
        ([0, 6], r"^segments must end with T = 5, the steps of x, not 6$"),
        (
            [0, 7, 5],
            r"^segments must not decrease, but segments\[2\] after 7 is 5, which is less$",
        ),
        ([[0, 0, -1, 0, 0]], r"^segments must not be negative, but segments\[0, 2\] is -1$"),
    ],
)
@each_cut
def test_bad_segments_are_found_before_anything_is_written(
    backend: str, variant: str, segments: Any, message: str
) -> None:
    for dtype, strided in itertools.product((np.int32, np.int64), (False, True)):
        given = np.array(segments, dtype)
        given = np.repeat(given, 2, axis=-1)[..., ::2] if strided else given
        x, w, out = whole((1, 2, 5)), whole((2, 3)), np.full((1, 2, 5), 7, np.float32)
        how: dict[str, Any] = {"segments": given, "variant": variant, "backend": backend}
        with pytest.raises(ValueError, match=message):
            causal_conv1d(x, w, out=out, **how)
        outs = (out, np.full((2, 3), 7, np.float32))
        with pytest.raises(ValueError, match=message):
            causal_conv1d_backward(x, x, w, out=outs, **how)
        assert (out == 7).all()
        assert (outs[1] == 7).all()
        none = np.zeros((1, 0, 5), np.float32), np.zeros((0, 3), np.float32)
        with pytest.raises(ValueError, match=message):
            causal_conv1d(*none, **how)
        with pytest.raises(ValueError, match=message):
            causal_conv1d_backward(none[0], *none, **how)


def test_the_last_of_many_numbers_may_be_bad() -> None:
    """In the last of several batches, far from the first word of marks."""
    x, w = whole((3, 1, 3000)), whole((1, 3))
    ids = np.zeros((3, 3000), np.int32)
    ids[2, 2999] = -5
    for backend in {backend for backend, _ in CUT}:
        with pytest.raises(ValueError, match=r"segments\[2, 2999\] is -5$"):
            causal_conv1d(x, w, segments=ids, backend=backend)


def test_rungs_are_of_whole_rows() -> None:
    x, w, segments = whole((1, 2, 5)), whole((2, 3)), np.array([0, 5])
    for row in AVAILABLE:
        if (row["backend"], row["name"]) in CUT:
            continue
        how: dict[str, Any] = {"backend": row["backend"], "variant": row["name"]}
        message = rf"segments=.* got variant '{row['name']}', a rung of whole rows"
        if row["shape"]:
            message = rf"variant='{row['name']}'\) takes whole rows"
        with pytest.raises(gpuopt.VariantError, match=message):
            causal_conv1d(x, w, segments=segments, **how)
        with pytest.raises(gpuopt.VariantError, match=message):
            causal_conv1d_backward(x, x, w, segments=segments, **how)


def test_auto_takes_a_variant_with_segments() -> None:
    if _core.backends()["sim"] is not None:
        pytest.skip("no simulator here")
    segments = np.array([0, 500, 1000])
    for taps, wanted in ((4, "short_filters"), (17, "segments"), (1000, "segments")):
        plan = _core.plan(
            "causal_conv1d", whole((1, 2, 1000)), whole((2, taps)),
            segments=segments, backend="sim",
        )  # fmt: skip
        assert plan["variant"] == wanted


# ---- the update ----


@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_thousand_steps_are_the_whole_bit_for_bit(dtype: str, variant: str) -> None:
    for channels, taps in ((20, 4), (3, 2), (17, 32)):
        x = normal(2, channels, 1000).astype(dtype_of(dtype))
        w = normal(channels, taps, seed=1).astype(dtype_of(dtype))
        bias = normal(channels, seed=2).astype(dtype_of(dtype))
        how: dict[str, Any] = {"activation": "silu", "backend": "cpu", "variant": variant}
        want = causal_conv1d(x, w, bias, eps=0.25, **how)
        state = np.zeros((2, channels, taps - 1), x.dtype)
        for t in range(1000):
            step = x[:, :, t]
            y, same = causal_conv1d_update(
                state, step, w, bias, eps=0.25, out=(None, state), **how
            )
            assert same is state
            assert y.tobytes() == np.ascontiguousarray(want[:, :, t]).tobytes(), (taps, t)
        assert_equal(state, x[:, :, 1000 - taps + 1 :])


def test_several_steps_after_a_prompt() -> None:
    x, w = normal(2, 18, 60), normal(18, 4, seed=1)
    want = causal_conv1d(x, w, backend="cpu", variant="simd")
    _, state = causal_conv1d(x[..., :10], w, return_state=True, backend="cpu")
    for from_, to in itertools.pairwise((10, 12, 13, 40, 60)):
        before = state.copy()
        y, after = causal_conv1d_update(state, x[..., from_:to], w, backend="cpu")
        np.testing.assert_array_equal(y, want[..., from_:to])
        np.testing.assert_array_equal(state, before)  # an input: unchanged
        state = after
    np.testing.assert_array_equal(state, x[..., 57:])


@pytest.mark.parametrize("variant", SUMS)
@pytest.mark.parametrize("in_place", [False, True])
def test_an_index_names_the_rows(variant: str, in_place: bool) -> None:
    """Of a pool of longer states; the other rows stay as they were."""
    for index_dtype, steps in itertools.product(("int32", "int64"), (1, 3, 9)):
        pool, x = whole((6, 20, 5)), whole((3, 20, steps), seed=1)
        w, index = whole((20, 4), seed=2), np.array([4, 0, 5], index_dtype)
        want_y, want = ref.causal_conv1d_update(pool, x, w, state_index=index)
        out = (None, pool) if in_place else None
        y, after = causal_conv1d_update(pool, x, w, state_index=index, variant=variant, out=out)
        assert (after is pool) == in_place
        assert_equal(y, want_y)
        assert_equal(after, want)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0, 6], IndexError, r"^index 6 is out of bounds for axis 0 with size 6$"),
        ([-1, 0], IndexError, r"^index -1 is out of bounds for axis 0 with size 6$"),
        ([2, 2], ValueError, r"^state_index must name each row once, but has 2 twice$"),
    ],
)
def test_a_bad_index_writes_nothing(index: list[int], error: Any, message: str) -> None:
    pool, x, w = whole((6, 20, 3)), whole((2, 20), seed=1), whole((20, 4), seed=2)
    before, y = pool.copy(), np.full((2, 20), 7, np.float32)
    with pytest.raises(error, match=message):
        causal_conv1d_update(
            pool, x, w, state_index=np.array(index), out=(y, pool), backend="cpu"
        )
    np.testing.assert_array_equal(pool, before)
    assert (y == 7).all()


def test_states_of_any_strides() -> None:
    x, w = whole((2, 20, 2), seed=1), whole((20, 4), seed=2)
    plain = whole((2, 20, 5))
    want_y, want = ref.causal_conv1d_update(plain, x, w)
    for order in itertools.permutations(range(3)):
        memory = np.empty([plain.shape[k] for k in order], np.float32)
        state = memory.transpose(np.argsort(order))
        state[...] = plain
        y, _ = causal_conv1d_update(state, x[:, :, ::-1][:, :, ::-1], w, out=(None, state))
        assert_equal(y, want_y)
        assert_equal(state, want)


def test_an_index_in_the_simulator() -> None:
    """In place and not, of either dtype and any stride; bad ones write nothing."""
    if _core.backends()["sim"] is not None:
        pytest.skip("no simulator here")
    pool, x, w = whole((6, 20, 5)), whole((3, 20, 2), seed=1), whole((20, 4), seed=2)
    for index in (np.array([4, 0, 5], np.int32), np.array([5, 9, 0, 9, 4, 9])[-2::-2]):
        want_y, want = ref.causal_conv1d_update(pool, x, w, state_index=index)
        state = pool.copy()
        for out in (None, (None, state)):
            y, after = causal_conv1d_update(
                state, x, w, state_index=index, out=out, backend="sim"
            )
            assert_equal(y, want_y)
            assert_equal(after, want)
    for bad, error in (([0, 1, 6], IndexError), ([1, 2, 1], ValueError)):
        state, y = pool.copy(), np.full(x.shape, 7, np.float32)
        with pytest.raises(error):
            causal_conv1d_update(
                state, x, w, state_index=np.array(bad), out=(y, state), backend="sim"
            )
        assert_equal(state, pool)
        assert (y == 7).all()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("variant", ["v0", "few_steps"])
def test_a_known_index_is_not_checked_first(
    variant: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for a torch tensor, whose _version counts writes: see known.c."""
    if _core.backends()["sim"] is not None:
        pytest.skip("no simulator here")
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    tensor = foreign.tensor(foreign.Exchanged, _version=0, _base=None)
    pool, x, w = whole((6, 20, 3)), whole((3, 20), seed=1), whole((20, 4), seed=2)
    given, index = (tensor(a) for a in (pool, np.array([4, 0, 5], dtype)))

    def call() -> tuple[Array, Array]:
        y, after = causal_conv1d_update(
            given, tensor(x), tensor(w), state_index=index, backend="sim", variant=variant
        )
        return y.array, after.array

    for _ in range(3):
        want = ref.causal_conv1d_update(pool, x, w, state_index=index.array)
        for got, right in zip(call(), want, strict=True):
            assert_equal(got, right)
    for bad in (6, -1):
        index.array[1] = bad  # a write that torch does not count
        with pytest.raises(IndexError, match=f"^index {bad} is out of bounds for axis 0 with"):
            call()
    index.array[1] = 4  # the same, and each row is there
    call()
    tensor._version = 1
    with pytest.raises(ValueError, match="each row once, but has 4 twice"):
        call()


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_few_steps_in_chunks_and_not(taps: int, dtype: str) -> None:
    """Aligned rows and others, states of K - 1 steps and more, in place and not.

    Rows without gaps of 5 to 16 steps, and their states, go through shared memory.
    """
    rng = np.random.default_rng(taps)
    bias = np.arange(140).astype(dtype) / 64
    w = rng.standard_normal((140, taps)).astype(dtype)
    bound = 32 * float(np.finfo(dtype).eps)
    for steps in (1, 2, 3, 4, 7, 8, 9, 13, 16):
        for more in (0, 2, 7, 40):
            state = rng.standard_normal((2, 140, taps - 1 + more)).astype(dtype)
            memory = rng.standard_normal(280 * steps + 1).astype(dtype)
            aligned, shifted = (a.reshape(2, 140, steps) for a in (memory[:-1], memory[1:]))
            last = np.ascontiguousarray(aligned.swapaxes(1, 2)).swapaxes(1, 2)
            options = {"activation": "silu", "backend": "sim", "variant": "few_steps"}
            for x in (aligned, shifted, last):
                want_y, want = ref.causal_conv1d_update(state, x, w, bias, activation="silu")
                kept = state.copy()
                for out in (None, (None, kept)):
                    y, after = causal_conv1d_update(kept, x, w, bias, out=out, **options)
                    gap = abs(y.astype(float) - want_y.astype(float))
                    assert (gap <= bound * (1 + abs(want_y.astype(float)))).all()
                    assert_equal(after, want)


def test_auto_takes_few_steps() -> None:
    """Not for many steps or many taps."""
    for steps, taps, kept, variant in (
        (1, 4, 3, "few_steps"), (1, 4, 4, "few_steps"), (2, 4, 3, "few_steps"),
        (16, 16, 15, "few_steps"), (17, 4, 3, "v0"), (4, 17, 16, "v0"),
    ):  # fmt: skip
        state, x, w = whole((2, 5, kept)), whole((2, 5, steps)), whole((5, taps))
        plan = _core.plan("causal_conv1d_update", state, x, w, backend="sim")
        assert plan["variant"] == variant, (steps, taps, kept)
