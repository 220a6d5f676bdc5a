"""causal_conv1d and its backward beyond the matrix: meaning, gradients, pinned bugs.

Order: what the source says, dtypes and options, special values, gradients, accuracy,
causality, pinned bugs, short filters, large strides, the simulator's counts and faults.  See
test_contract.py for sizes, layouts and dtypes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import causality
import mutants_causal_conv1d
import numpy as np
import pytest
from cases import BFLOAT16, ENTRIES, dtype_of
from cases.causal_conv1d import EDGES, expect, sample
from conftest import Figure, run_child

import gpuopt
from gpuopt import _core, causal_conv1d, causal_conv1d_backward, ref
from gpuopt.lab.profile import profile

RUNGS = ("v0", "v1", "v2", "v3", "v4", "v5")
FLOATS = ("float16", "bfloat16", "float32", "float64")

Array = np.ndarray[Any, Any]


def variants(dtype: str = "float32") -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes any call.

    Both ladders have the same; test_causal_conv1d_short.py and its neighbours have tests of
    the shape kernels.
    """
    return [row for row in listed(dtype) if not row[1].startswith("short_filters")]


def listed(dtype: str) -> list[tuple[str, str]]:
    """The same with the kernels of short filters, but not of middle ones or long rows."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("causal_conv1d")
        if row["available"]
        and usable[row["backend"]] is None
        and dtype in row["dtypes"]
        and row["name"] not in ("middle_filters", "large_transforms", "few_outputs", "few_taps")
        and row["name"] != "contiguous_rows"
        and row["name"] != "persistent_tensor_cores"
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
each_exact_variant = pytest.mark.parametrize(("backend", "variant"), variants("float64"))
each_dtype = pytest.mark.parametrize(
    ("backend", "variant", "dtype"),
    [(*row, dtype) for dtype in FLOATS for row in variants(dtype)],
)


TRANSFORMS = ("v7", "spectra")  # of small whole numbers they make no whole ones


def assert_right(got: Array, want: Array, variant: str) -> None:
    """Equal, for sums of small integers; for transforms within a bound of the row."""
    if variant in TRANSFORMS:
        got, want = (np.asarray(a, np.float32) for a in (got, want))
        np.testing.assert_allclose(
            got, want, rtol=2**-7, atol=1e-5 * np.abs(want).max(initial=1)
        )
    else:
        np.testing.assert_array_equal(got, want)


def whole(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng(len(shape)).integers(-8, 9, shape).astype(dtype)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure; restores the settings afterwards."""
    if _core.backends()["sim"] is not None:
        pytest.fail("the simulator is part of every build")
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- what the source says ----


@each_variant
def test_it_is_the_sources_loop(backend: str, variant: str) -> None:
    """out[b][c][t] = eps + sum_u w[c][(T-1)-(t-u)] * k[b][c][u], u from 0 to t."""
    x, w, eps = whole((2, 3, 7)), whole((3, 7)), 0.5
    want = np.empty_like(x)
    for b, c, t in np.ndindex(x.shape):
        s = eps
        for u in range(t + 1):
            s += w[c][6 - (t - u)] * x[b][c][u]
        want[b, c, t] = s
    got = causal_conv1d(x, w, eps=eps, backend=backend, variant=variant)
    assert_right(got, want, variant)
    assert_right(ref.causal_conv1d(x, w, eps=eps), want, variant)


@each_variant
@pytest.mark.parametrize(("steps", "taps"), [(13, 4), (13, 13), (13, 20), (40, 9), (1, 1)])
def test_it_is_the_beginning_of_numpys_convolution(
    backend: str, variant: str, steps: int, taps: int
) -> None:
    x, w = whole((3, 2, steps)), whole((2, taps))
    got = causal_conv1d(x, w, backend=backend, variant=variant)
    for b, c in np.ndindex(3, 2):
        want = np.convolve(x[b, c], w[c, ::-1])[:steps]
        assert_right(got[b, c], want, variant)


# ---- dtypes and options ----


@each_variant
def test_layouts_and_options_change_nothing_else(backend: str, variant: str) -> None:
    x, w, bias, dy = whole((2, 3, 21)), whole((3, 5)), whole((3,)), whole((2, 3, 21))[::-1]
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    plain = causal_conv1d(x, w, **how)
    by_time = causal_conv1d(x.swapaxes(1, 2), w, bias, 2.0, layout="BTC", **how)
    assert by_time.flags.c_contiguous
    assert_right(by_time.swapaxes(1, 2), plain + bias[:, None] + 2, variant)
    dx, dw = causal_conv1d_backward(dy, x, w, **how)
    turned = causal_conv1d_backward(
        dy.swapaxes(1, 2), x.swapaxes(1, 2), w, bias, layout="BTC", **how
    )
    assert_right(turned[0].swapaxes(1, 2), dx, variant)
    assert_right(turned[1], dw, variant)
    assert_right(turned[2], dy.sum((0, 2)), variant)


@each_exact_variant
def test_exact_rungs_give_the_best_class_of_accuracy(backend: str, variant: str) -> None:
    x, w = normal(3, 2, 40).astype(np.float32), normal(2, 40).astype(np.float32)
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    want = causal_conv1d(x, w, precision="fp32", **how).tobytes()
    for precision in ("fast", "half"):
        assert causal_conv1d(x, w, precision=precision, **how).tobytes() == want


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    x, w = whole((2, 3, 9)), whole((3, 4))
    want = ref.causal_conv1d(x, w)
    base = np.full((5, 7, 19), 99, np.float32)
    for out in (
        np.full((2, 3, 9), np.nan, np.float32),
        np.empty((9, 3, 2), np.float32).T,
        np.empty((2, 3, 9), np.float32)[::-1, :, ::-1],
        np.empty((2, 3, 9), ">f4"),
        base[1::2, 1::2, 1::2],
    ):
        got = causal_conv1d(x, w, out=out, backend=backend, variant=variant)
        assert got is out
        assert_right(out, want, variant)
    base[1::2, 1::2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"


@each_variant
def test_no_batches(backend: str, variant: str) -> None:
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    x, w, bias = (np.ones(shape, np.float32) for shape in ((0, 2, 5), (2, 3), (2,)))
    assert causal_conv1d(x, w, **how).shape == (0, 2, 5)
    dx, dw, dbias = causal_conv1d_backward(x, x, w, bias, activation="silu", **how)
    assert dx.shape == (0, 2, 5)
    np.testing.assert_array_equal(dw, np.zeros((2, 3)))
    np.testing.assert_array_equal(dbias, np.zeros(2))


@each_variant
def test_16_bit_sums_pass_the_largest_number_on_the_way(backend: str, variant: str) -> None:
    x = np.full((1, 1, 40), 6000, np.float16)
    w = np.tile(np.array([[-8, 8]], np.float16), 20)
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    want = np.full((1, 1, 40), 0, np.float16)
    want[..., ::2] = 48_000
    assert_right(causal_conv1d(x, w, **how), want, variant)
    dy = np.ones((2, 1, 40), np.float16)
    dy[1] = -1
    _, dw = causal_conv1d_backward(dy, np.tile(x, (2, 1, 1)), w, **how)
    off = 0.1 if variant in TRANSFORMS else 0  # of terms up to 240,000
    assert (np.abs(dw) <= off).all()


# ---- special values ----


@each_dtype
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """T = 1..70: row k has its nan at step k, and it reaches steps k to k + K - 1 alone."""
    slow = backend == "sim"
    lengths = (2, 33, 70) if dtype != "float32" else range(1, 71, 3 if slow else 1)
    for n in lengths:
        for taps in {3, 11, n}:
            x = np.ones((n, 1, n), dtype_of(dtype))
            k = np.arange(n)
            x[k, 0, k] = np.nan
            w = np.ones((1, taps), dtype_of(dtype))
            got = causal_conv1d(x, w, backend=backend, variant=variant).astype(np.float32)
            lag = k[None, :] - k[:, None]
            np.testing.assert_array_equal(
                np.isnan(got[:, 0]), (lag >= 0) & (lag < taps), f"{n}, {taps}"
            )


@each_variant
@pytest.mark.parametrize("taps", [5, 12, 150])
def test_infinity_reaches_what_depends_on_it(backend: str, variant: str, taps: int) -> None:
    """In x, w and dy; tiles across an edge skip products, instead of adding zeros."""
    steps, s = 150, min(taps, 150) - 2
    x, w, dy = (np.ones(n, np.float32) for n in ((3, 1, steps), (1, taps), (3, 1, steps)))
    w[0, taps - 1 - s] = np.inf
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    got = causal_conv1d(x, w, **how)
    np.testing.assert_array_equal(np.isinf(got[1, 0]), np.arange(steps) >= s)
    assert not np.isnan(got).any()
    dx, _ = causal_conv1d_backward(dy, x, w, **how)
    np.testing.assert_array_equal(np.isinf(dx[2, 0]), np.arange(steps) < steps - s)
    w[:] = 1
    x[1, 0, 100] = np.inf
    _, dw = causal_conv1d_backward(dy, x, w, **how)
    lags = taps - 1 - np.arange(taps)
    np.testing.assert_array_equal(np.isinf(dw[0]), lags < steps - 100)
    assert not np.isnan(dw).any()
    x[1, 0, 100] = 1
    dy[0, 0, 9] = -np.inf
    dx, dw = causal_conv1d_backward(dy, x, w, **how)
    np.testing.assert_array_equal(np.isinf(dw[0]), lags <= 9)
    np.testing.assert_array_equal(
        np.isinf(dx[0, 0]), (np.arange(steps) <= 9) & (np.arange(steps) > 9 - taps)
    )
    assert not np.isnan(dx).any()
    assert not np.isnan(dw).any()


@each_variant
def test_silu_at_its_ends(backend: str, variant: str) -> None:
    how: dict[str, Any] = {"backend": backend, "variant": variant, "activation": "silu"}
    x = np.array([[[-200, -90, -1, 0, 1, 90, 200, np.inf, -np.inf, np.nan]]], np.float32)
    w = np.ones((1, 1), np.float32)
    got = causal_conv1d(x, w, **how)
    want = ref.causal_conv1d(x.astype(np.float64), w.astype(np.float64), activation="silu")
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=2e-43)
    dx, _ = causal_conv1d_backward(np.ones_like(x[..., :7]), x[..., :7], w, **how)
    np.testing.assert_allclose(
        dx[0, 0], [0, 0, 0.0723295, 0.5, 0.9276705, 1, 1], rtol=1e-5, atol=1e-30
    )


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074)):
        if (backend, variant) not in variants(dtype):
            continue
        k = np.random.default_rng(5).integers(-99, 99, (1, 2, 40))
        x, w = (k * tiny).astype(dtype), np.ones((2, 9), dtype)
        want = ref.causal_conv1d(k.astype(np.float64), w.astype(np.float64)) * tiny
        got = causal_conv1d(x, w, backend=backend, variant=variant)
        if variant == "spectra":  # rounds in each pass to the smallest number
            np.testing.assert_allclose(got, want, rtol=0, atol=4 * tiny)
        else:
            np.testing.assert_array_equal(got, want.astype(dtype))


# ---- gradients ----


@each_exact_variant
@pytest.mark.parametrize("activation", [None, "silu"])
@pytest.mark.parametrize(("steps", "taps"), [(9, 3), (10, 10), (6, 9), (21, 12)])
def test_gradients_are_central_differences(
    backend: str, variant: str, activation: str | None, steps: int, taps: int
) -> None:
    how: dict[str, Any] = {"backend": backend, "variant": variant, "activation": activation}
    x, w, bias, dy = (
        normal(2, 2, steps),
        normal(2, taps),
        normal(2),
        normal(2, 2, steps, seed=1),
    )
    got = causal_conv1d_backward(dy, x, w, bias, 0.25, **how)
    step = 1e-6
    for which, gradient in enumerate(got):
        arrays = [x, w, bias]
        for at in np.ndindex(gradient.shape):
            if sum(at) % 3 == 2:  # two thirds are enough
                continue
            values = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][at] += sign * step
                y = ref.causal_conv1d(*moved, 0.25, activation)
                values.append(np.sum(y.astype(np.longdouble) * dy))
            want = float((values[0] - values[1]) / (2 * step))
            assert abs(gradient[at] - want) <= 1e-5 + 1e-3 * abs(want), (which, at)


@each_exact_variant
@pytest.mark.parametrize("taps", [1, 4, 8, 9, 33, 70, 100])
def test_backward_is_the_adjoint(backend: str, variant: str, taps: int) -> None:
    """<dy, A x> = <A' dy, x>, for the linear maps of x and of w."""
    x, w, dy = normal(5, 2, 70), normal(2, taps), normal(5, 2, 70, seed=1)
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    y = causal_conv1d(x, w, **how)
    dx, dw = causal_conv1d_backward(dy, x, w, **how)
    left = float((dy * y).sum())
    scale = float((np.abs(dy) * ref.causal_conv1d(np.abs(x), np.abs(w))).sum())
    assert abs(left - float((dx * x).sum())) <= 1e-14 * scale
    assert abs(left - float((dw * w).sum())) <= 1e-14 * scale


@each_variant
def test_taps_that_meet_nothing_have_no_gradient(backend: str, variant: str) -> None:
    arrays = normal(3, 2, 11), normal(3, 2, 11, seed=1), normal(2, 30)
    x, dy, w = (a.astype(np.float32) for a in arrays)
    out = np.full((3, 2, 11), np.nan, np.float32), np.full((2, 30), np.nan, np.float32)
    dx, dw = causal_conv1d_backward(dy, x, w, out=out, backend=backend, variant=variant)
    assert dx is out[0]
    assert dw is out[1]
    np.testing.assert_array_equal(dw[:, :19], 0)
    assert (dw[:, 19:] != 0).all()


@each_variant
def test_a_bias_brings_its_gradient(backend: str, variant: str) -> None:
    x, w, bias = whole((9, 3, 50)), whole((3, 4)), whole((3,))
    dy = whole((9, 3, 50))[:, ::-1]
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    assert len(causal_conv1d_backward(dy, x, w, **how)) == 2
    dx, dw, dbias = causal_conv1d_backward(dy, x, w, bias, **how)
    assert_right(dbias, dy.sum((0, 2)), variant)
    assert_right(dw, ref.causal_conv1d_backward(dy, x, w)[1], variant)
    assert_right(dx, ref.causal_conv1d_backward(dy, x, w)[0], variant)


# ---- accuracy ----


def row_error(got: Array, want: Array) -> float:
    """The largest error of a row in the 2-norm, relative to the row."""
    size = np.linalg.norm(want, axis=-1)
    return float((np.linalg.norm(got.astype(np.float64) - want, axis=-1) / size).max())


@each_variant
def test_float32_rows_err_by_a_millionth(backend: str, variant: str, figure: Figure) -> None:
    """Normal and uniform data, and channels scaled from 2**-60 to 2**60."""
    steps = 300 if backend == "sim" else 768
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    worst = 0.0
    rng = np.random.default_rng(9)
    scale = 2.0 ** np.linspace(-60, 60, 2)[:, None]
    for draw in (rng.standard_normal, rng.random):
        x, dy = draw((3, 2, steps)) * scale, draw((3, 2, steps)) / scale
        w = draw((2, steps)) / scale
        x, dy, w = (a.astype(np.float32) for a in (x, dy, w))
        wide = [a.astype(np.float64) for a in (dy, x, w)]
        got = causal_conv1d(x, w, **how)
        worst = max(worst, row_error(got, ref.causal_conv1d(wide[1], wide[2])))
        dx, dw = causal_conv1d_backward(dy, x, w, **how)
        want_dx, want_dw = ref.causal_conv1d_backward(wide[0], wide[1], wide[2])
        worst = max(worst, row_error(dx, want_dx), row_error(dw, want_dw))
    assert worst <= 1e-6
    figure(f"causal_conv1d {backend} {variant} float32, T = {steps}: worst row", f"{worst:.1e}")


@each_variant
@pytest.mark.parametrize(("precision", "limit"), [("fast", 4e-6), ("half", 1e-3)])
def test_rows_err_by_their_class(
    backend: str, variant: str, precision: str, limit: float
) -> None:
    rng = np.random.default_rng(9)
    how: dict[str, Any] = {"backend": backend, "variant": variant, "precision": precision}
    for draw in (rng.standard_normal, rng.random):
        x, dy, w = (draw(n).astype(np.float32) for n in ((3, 2, 300), (3, 2, 300), (2, 300)))
        wide = [a.astype(np.float64) for a in (dy, x, w)]
        got = causal_conv1d(x, w, **how), *causal_conv1d_backward(dy, x, w, **how)
        want = ref.causal_conv1d(*wide[1:]), *ref.causal_conv1d_backward(*wide)
        assert max(map(row_error, got, want)) <= limit


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads", "spectra"])
def test_long_rows_err_no_more(variant: str) -> None:
    rng = np.random.default_rng(9)
    x, w = (rng.random(shape, np.float32) for shape in ((1, 1, 12_000), (1, 12_000)))
    got = causal_conv1d(x, w, backend="cpu", variant=variant)
    n = 24_000
    product = np.fft.rfft(x.astype(np.float64), n) * np.fft.rfft(w[:, ::-1], n)
    assert row_error(got, np.fft.irfft(product, n)[:, :, :12_000]) <= 1e-6


# ---- causality: the bound at t depends on the inputs up to t, see tests/causality.py ----


def causal_variants(dtype: str = "float32") -> list[tuple[str, str]]:
    """Variants that declare how later inputs affect earlier results; on a CPU all do."""
    said = {
        (row["backend"], row["name"])
        for row in _core.variants("causal_conv1d")
        if row["backend"] == "cpu" or row.get("causal")
    }
    return [row for row in variants(dtype) if row in said]


def is_exact(backend: str, variant: str) -> bool:
    """Whether later inputs change no bit of earlier results."""
    for row in _core.variants("causal_conv1d"):
        if (row["backend"], row["name"]) == (backend, variant):
            return (
                row.get("causal", "to rounding" if variant == "spectra" else "exact") == "exact"
            )
    raise ValueError(variant)


each_causal_variant = pytest.mark.parametrize(("backend", "variant"), causal_variants())
each_causal_dtype = pytest.mark.parametrize(
    ("backend", "variant", "dtype"),
    [(*row, dtype) for dtype in FLOATS for row in causal_variants(dtype)],
)

# (channels, steps, taps): around the head of 128 steps, the blocks of transforms and their
# halves; filters of one block, of many, and longer than the row.
CAUSAL_SIZES = (
    (1, 127, 127), (3, 128, 128), (2, 129, 129), (1, 130, 40), (17, 257, 257), (7, 300, 20),
    (2, 511, 600), (1, 512, 512), (9, 513, 129), (3, 769, 768), (2, 1023, 200), (1, 1030, 1030),
)  # fmt: skip
FINITE = [name for name, row in causality.rows(300).items() if np.isfinite(row).all()]
ALL_ROWS = list(causality.rows(300))
MILD = ["normal", "uniform", "constant", "last 1e8", "left zero", "steps", "any size", "zero"]


@functools.lru_cache(maxsize=12)
def causal_case(size: tuple[int, int, int], dtype: str) -> tuple[Array, Array, Array]:
    channels, steps, taps = size
    kind = dtype_of(dtype)
    x = causality.stack(ALL_ROWS, channels, steps, kind)
    w = causality.filters(channels, taps, kind)
    return x, w, causality.sums(x, w)


def small(backend: str, size: tuple[int, int, int]) -> bool:
    """Whether the steps are few enough for the simulator."""
    return backend == "cpu" or size[1] <= 300


@each_causal_dtype
def test_the_past_knows_no_future(backend: str, variant: str, dtype: str) -> None:
    sizes = CAUSAL_SIZES if dtype == "float32" else CAUSAL_SIZES[::2]
    for size in sizes:
        if small(backend, size):
            x, w, want = causal_case(size, dtype)
            y = causal_conv1d(x, w, backend=backend, variant=variant)
            causality.check_causal_bound(x, w, y, want)


GRADIENT_ROWS = (FINITE, MILD, [*MILD, "last nan"], ["an inf"], ["many nan"])
GRADIENT_SIZES = ((1, 129, 129), (17, 300, 300), (3, 520, 150), (2, 769, 800))


@functools.lru_cache(maxsize=60)
def gradient_case(
    size: tuple[int, int, int], rows: int, turn: bool, dtype: str, few: bool
) -> Any:
    """dy, x, w and the expected result; `turn`: x has the difficult rows.

    `few`: every sixth batch of many; their channels have all the rows.
    """
    channels, steps, taps = size
    kind, names = dtype_of(dtype), GRADIENT_ROWS[rows]
    w = causality.filters(channels, taps, kind)
    hard = causality.stack(names, channels, steps, kind)
    like = causality.stack(["normal"], channels, steps, kind, 5)
    if few and channels >= len(MILD):
        hard = hard[::6]
        shown = {(6 * b + c) % len(names) for b in range(len(hard)) for c in range(channels)}
        assert shown == set(range(len(names)))
    like = np.repeat(like, len(hard), 0) * (2.0**-60 if rows == 0 else 1)
    dy, x = (like.astype(kind), hard) if turn else (hard[..., ::-1], like.astype(kind))
    return dy, x, w, causality.gradients(dy, x, w)


@each_causal_dtype
def test_gradients_know_no_past(backend: str, variant: str, dtype: str) -> None:
    """dx in reversed time; dw within the norms of its rows; inf and nan do not spread."""
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    for size in GRADIENT_SIZES:
        for rows in range(len(GRADIENT_ROWS)):
            for turn in (False, True):
                if small(backend, size):
                    dy, x, w, want = gradient_case(size, rows, turn, dtype, backend == "sim")
                    dx, dw = causal_conv1d_backward(dy, x, w, **how)
                    causality.check_gradients(dy, x, w, dx, dw, want)


FUTURES = (0.0, np.nan, np.inf, -1e30, 1e4)


@each_causal_variant
@pytest.mark.parametrize("future", FUTURES)
def test_another_future_changes_no_past(backend: str, variant: str, future: float) -> None:
    """By at most the bounds of both results; if `causal` is exact, not in any bit."""
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    for size in ((9, 300, 300), (3, 900, 900), (2, 1100, 300)):
        if not small(backend, size):
            continue
        channels, steps, taps = size
        # nine channels have all four kinds of rows in each batch
        names = ["normal", "uniform", "left zero", "steps"]
        x = causality.stack(names, channels, steps, "f4")[: 2 if backend == "sim" else 4]
        w = causality.filters(channels, taps, np.float32)
        y = causal_conv1d(x, w, **how)
        dx, _ = causal_conv1d_backward(x[..., ::-1], x, w, **how)
        room = 2 * causality.causal_bound(x, w, x.dtype)
        starts = (1, 128, 129, 257, steps // 2 + 1, steps - 1)
        if backend == "sim":  # half of them, the other half with the next future
            starts = starts[FUTURES.index(future) % 2 :: 2]
        for t in starts:
            other = x.copy()
            other[..., t:] = future
            past = causal_conv1d(other, w, **how)[..., :t]
            mirrored, _ = causal_conv1d_backward(other[..., ::-1], x, w, **how)
            for a, b in (
                (y[..., :t], past),
                (dx[..., ::-1][..., :t], mirrored[..., ::-1][..., :t]),
            ):
                if is_exact(backend, variant):
                    assert a.tobytes() == b.tobytes()
                assert (np.abs(a - b.astype(np.longdouble)) <= room[..., :t]).all()


@pytest.mark.parametrize("variant", ["simd", "spectra"])
def test_the_head_is_summed_directly(variant: str) -> None:
    """The first 128 results from the first input that is not 0 are those of `threads`."""
    x = causality.stack(FINITE, 5, 700, np.float32)
    w = causality.filters(5, 700, np.float32)
    first = np.argmax(x != 0, -1)[..., None]
    t = np.arange(700)
    head = (t >= first) & (t < first + causality.HEAD)
    y = causal_conv1d(x, w, backend="cpu", variant=variant)
    want = causal_conv1d(x, w, backend="cpu", variant="threads")
    assert y[head].tobytes() == want[head].tobytes()


@pytest.mark.parametrize("op", ["causal_conv1d", "causal_conv1d_backward"])
def test_exact_causality_takes_exact_variants_alone(op: str) -> None:
    """The faster ones are not chosen, and are refused by name, on every backend."""
    x, w = np.ones((1, 2, 2048), np.float32), np.ones((2, 2048), np.float32)
    arrays = (x, w) if op == "causal_conv1d" else (x, x, w)
    for backend in ("cpu", "sim"):
        how: dict[str, Any] = {"backend": backend, "causality": "exact"}
        rows = {r["name"]: r for r in _core.variants(op) if r["backend"] == backend}
        assert {r["causal"] for r in rows.values()} == {"exact", "to rounding"}
        assert rows[_core.plan(op, *arrays, **how)["variant"]]["causal"] == "exact"
        assert rows[_core.plan(op, *arrays, backend=backend)["variant"]]["causal"] != "exact"
        for name, row in rows.items():
            if row["causal"] == "to rounding" and row["available"]:
                inputs = [a[..., :512].astype(row["dtypes"][0]) for a in arrays]
                with pytest.raises(
                    gpuopt.VariantError, match=r"causality='exact'.*to rounding"
                ):
                    getattr(gpuopt, op)(*inputs, variant=name, **how)


@each_causal_variant
@pytest.mark.parametrize(("up", "down"), [(-140, 110), (100, -130), (-60, -60), (50, 50)])
def test_any_scale_of_rows_and_filters(backend: str, variant: str, up: int, down: int) -> None:
    """Subnormal rows under huge filters, and the other way round: nothing is flushed."""
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    steps = 200 if backend != "cpu" else 700
    names = ["normal", "left zero", "growth" if up < 0 else "steps"]
    x = causality.stack(names, 2, steps, np.float64) * 2.0**up
    x = np.clip(x, -(2.0**126), 2.0**126).astype(np.float32)
    w = (causality.filters(2, steps, np.float64) * 2.0**down).astype(np.float32)
    causality.check_causal_bound(x, w, causal_conv1d(x, w, **how), causality.sums(x, w))
    other = np.repeat(w[None], len(x), 0)
    dx, dw = causal_conv1d_backward(x[..., ::-1], other, w, **how)
    want = causality.gradients(x[..., ::-1], other, w)
    causality.check_gradients(x[..., ::-1], other, w, dx, dw, want)


@each_causal_variant
def test_bias_eps_and_silu_of_wide_rows(backend: str, variant: str) -> None:
    """Terms added later, and the value before SiLU in its gradient, use the same sums."""
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    steps = 260 if backend != "cpu" else 600
    names = ["normal", "left zero", "last 1e3", "zero", "steps"]
    x = causality.stack(names, 3, steps, np.float32)
    w, bias = causality.filters(3, steps, np.float32), whole((3,))
    wide = [a.astype(np.float64) for a in (x, w, bias)]
    v = causality.convolution(wide[0], wide[1]) + bias[:, None] + 0.5
    room = 2 * causality.causal_bound(wide[0], wide[1], x.dtype).astype(np.float64)
    share = 1 / (1 + np.exp(-np.clip(v, -700, 700)))
    got = causal_conv1d(x, w, bias, 0.5, activation="silu", **how)
    causality.compare(got, v * share, room + 1e-6 * np.abs(v), "silu")
    dy = causality.stack(["normal"], 3, steps, np.float32, 3)
    dy = np.repeat(dy, len(names), 0)
    dx, _, _ = causal_conv1d_backward(dy, x, w, bias, 0.5, activation="silu", **how)
    g = dy * (share * (1 + v * (1 - share)))
    off = np.abs(dy) * (room + 1e-6 * (1 + np.abs(v)))
    size = causality.convolution(off[..., ::-1], np.abs(wide[1]))[..., ::-1]
    bound = causality.causal_bound(g[..., ::-1], wide[1], x.dtype)[..., ::-1]
    want = causality.convolution(g[..., ::-1], wide[1])[..., ::-1]
    causality.compare(dx, want, (bound + size).astype(np.float64), "dx")


def test_long_wide_rows_are_not_summed_product_by_product() -> None:
    """Blocks of many levels and a history: 2^16 steps beside a transform in float64."""
    rng = np.random.default_rng(3)
    steps = 1 << 16
    for taps in (steps, 5000):
        w = (rng.standard_normal((2, taps)) / np.sqrt(taps)).astype(np.float32)
        x = rng.standard_normal((1, 2, steps)).astype(np.float32)
        x[0, 0, -1], x[0, 1, -1] = 1e30, np.nan
        y = causal_conv1d(x, w, backend="cpu", variant="spectra")
        cut = x.astype(np.float64)
        cut[..., -1] = 0
        n = 2 * steps
        product = np.fft.rfft(cut, n) * np.fft.rfft(w[:, ::-1].astype(np.float64), n)
        want = np.fft.irfft(product, n)[..., :steps]
        assert np.isnan(y[0, 1, -1])
        room = causality.causal_bound(cut, w.astype(np.float64), x.dtype)
        off = np.abs(y - want)[..., :-1]
        assert (off <= room[..., :-1].astype(np.float64) + 1e-7 * np.abs(want[..., :-1])).all()


@pytest.mark.parametrize("isa", ["baseline", "v3"])
def test_wide_rows_have_the_same_bits_on_every_instruction_set(isa: str) -> None:
    code = (
        "import hashlib, causality, gpuopt, numpy as np\n"
        "for dtype in ('float32', 'float64'):\n"
        "    x = causality.stack(list(causality.rows(300)), 17, 700, dtype)\n"
        "    w = causality.filters(17, 700, dtype)\n"
        "    how = {'backend': 'cpu', 'variant': 'spectra'}\n"
        "    y = gpuopt.causal_conv1d(x, w, **how)\n"
        "    d = gpuopt.causal_conv1d_backward(y[..., ::-1], x, w, **how)\n"
        "    whole = [np.where(np.isnan(a), np.nan, a) for a in (y, *d)]\n"
        "    print(*(hashlib.sha256(a.tobytes()).hexdigest() for a in whole))\n"
    )
    here, there = run_child("-c", code), run_child("-c", code, env={"GPUOPT_CPU": isa})
    assert here.returncode == 0, here.stderr
    if "is beyond this machine" in there.stderr:
        pytest.skip("this machine has no such instructions")
    assert there.stdout == here.stdout, there.stderr


# ---- pinned bugs ----


@each_variant
@pytest.mark.parametrize("steps", [1, 2, 3, 5, 6, 7, 9, 30, 31, 33])
def test_pinned_steps_that_are_no_multiple_of_four(
    backend: str, variant: str, steps: int
) -> None:
    """The published third kernel has T / 4 threads and reads float4 from any row."""
    x, w, dy = whole((2, 3, steps)), whole((3, steps)), whole((2, 3, steps))[::-1]
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    assert_right(causal_conv1d(x, w, **how), ref.causal_conv1d(x, w), variant)
    for got, want in zip(
        causal_conv1d_backward(dy, x, w, **how),
        ref.causal_conv1d_backward(dy, x, w),
        strict=True,
    ):
        assert_right(got, want, variant)


@each_variant
def test_pinned_rows_longer_than_shared_memory_was_made_for(backend: str, variant: str) -> None:
    """The published kernels hold 1024 steps, in an array whose size is compiled in."""
    x, w = whole((1, 1, 1030)), whole((1, 1030))
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    assert_right(causal_conv1d(x, w, **how), ref.causal_conv1d(x, w), variant)
    dx, dw = causal_conv1d_backward(x[..., ::-1], x, w, **how)
    want_dx, want_dw = ref.causal_conv1d_backward(x[..., ::-1], x, w)
    assert_right(dx, want_dx, variant)
    assert_right(dw, want_dw, variant)


@each_variant
@pytest.mark.parametrize("batches", [1, 3, 7, 9, 13, 33])
def test_pinned_batches_that_are_no_multiple_of_eight(
    backend: str, variant: str, batches: int
) -> None:
    """The published fourth kernel drops the rest; its rows then use another channel's w."""
    x, w, dy = whole((batches, 3, 12)), whole((3, 12)), whole((batches, 3, 12))[::-1]
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    assert_right(causal_conv1d(x, w, **how), ref.causal_conv1d(x, w), variant)
    for got, want in zip(
        causal_conv1d_backward(dy, x, w, **how),
        ref.causal_conv1d_backward(dy, x, w),
        strict=True,
    ):
        assert_right(got, want, variant)


@each_variant
def test_pinned_rows_start_anywhere(backend: str, variant: str) -> None:
    """The published float4 loads need rows on 16-byte boundaries."""
    memory = whole((2 * 3 * 20 + 7,))
    w = whole((3 * 20 + 1,))[1:].reshape(3, 20)
    for offset in range(5):
        x = memory[offset : offset + 120].reshape(2, 3, 20)
        got = causal_conv1d(x, w, backend=backend, variant=variant)
        assert_right(got, ref.causal_conv1d(x, w), variant)


@each_dtype
def test_pinned_every_dtype_has_its_own_packs(backend: str, variant: str, dtype: str) -> None:
    """The published kernels read any type F as float4."""
    x, w = whole((2, 2, 24), dtype_of(dtype)), whole((2, 24), dtype_of(dtype))
    got = causal_conv1d(x, w, backend=backend, variant=variant)
    assert_right(got, ref.causal_conv1d(x, w), variant)


@pytest.mark.parametrize(
    ("backend", "variant"), [("cpu", "simd"), ("sim", "v0"), ("sim", "v3"), ("sim", "v5")]
)
def test_pinned_more_rows_than_grid_y_has(backend: str, variant: str) -> None:
    """The published grids are (1, B * C)."""
    x, w = whole((33_000, 2, 2)), whole((2, 2))
    got = causal_conv1d(x, w, backend=backend, variant=variant)
    assert_right(got, ref.causal_conv1d(x, w), variant)


def test_the_sources_limits_would_show() -> None:
    """The third kernel as published, in Python: right for T % 4 == 0, wrong for T = 6."""

    def published(x: Array, w: Array) -> Array:
        steps = x.size
        out = np.zeros(steps)
        for quad in range(steps >> 2):
            t = quad << 2
            for i in range(4):
                out[t + i] = sum(w[steps - 1 - (t + i - u)] * x[u] for u in range(t + i + 1))
        return out

    for steps, right in ((8, True), (6, False)):
        x, w = np.ones(steps), np.ones(steps)
        want = ref.causal_conv1d(x[None, None], w[None])[0, 0]
        assert np.array_equal(published(x, w), want) is right


# ---- lengths ----


@each_dtype
def test_lengths_around_every_tile_edge(backend: str, variant: str, dtype: str) -> None:
    """On a GPU all of them, elsewhere the short ones."""
    longest = 4097 if backend == "cuda" else 200
    for turn, size in enumerate(EDGES):
        if size[2] > longest or (backend == "sim" and variant not in ("v5", "v7")):
            continue
        if dtype == "float16" and size[0] * size[2] > 60_000:
            continue  # a sum of so many squares is infinite
        for op in ("causal_conv1d", "causal_conv1d_backward"):
            s = sample(op != "causal_conv1d", size, dtype, bias=turn % 2 == 0)
            expected = ENTRIES[op].expected(s, variant)
            arrays = [spec.build() for spec in s.arrays]
            got = getattr(gpuopt, op)(*arrays, backend=backend, variant=variant)
            assert expected.compare(got) is None, (op, size)


# ---- transforms on a CPU ----


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("batches", "channels", "steps", "taps"),
    [
        (1, 1, 1024, 1024),
        (2, 9, 1025, 1025),
        (3, 17, 1023, 512),
        (1, 3, 20_000, 129),  # many blocks of a row, the last one short
        (2, 2, 700, 3000),  # a filter longer than the row
        (5, 2, 5000, 33),
        (200, 1, 100, 100),  # more spectra than are added in a row
    ],
)
def test_blocks_of_long_rows(
    batches: int, channels: int, steps: int, taps: int, dtype: str
) -> None:
    """Against convolutions by transforms of float64, within the documented bound."""
    x, dy = (normal(batches, channels, steps, seed=k).astype(dtype) for k in (1, 2))
    w = normal(channels, taps).astype(dtype)
    n = 2 * steps + taps

    def spectrum(a: Array) -> Array:
        return np.fft.rfft(a.astype(np.float64), n)

    back = spectrum(w[:, ::-1])
    want = np.fft.irfft(spectrum(x) * back, n)[..., :steps]
    want_dx = np.fft.irfft(spectrum(dy) * back.conj(), n)[..., :steps]
    lags = np.fft.irfft((spectrum(dy) * spectrum(x).conj()).sum(0), n)[:, : min(steps, taps)]
    want_dw = np.zeros((channels, taps))
    want_dw[:, taps - lags.shape[1] :] = lags[:, ::-1]

    how = {"backend": "cpu", "variant": "spectra"}
    got = causal_conv1d(x, w, **how)
    dx, dw = causal_conv1d_backward(dy, x, w, **how)
    u = 4 * np.finfo(dtype).eps * np.log2(2 * steps)
    if dtype == "float64":
        u *= 2  # of the reference, too

    def norm(a: Array) -> Array:
        return np.linalg.norm(a.astype(np.float64), axis=-1, keepdims=True)

    assert (np.abs(got - want) <= u * norm(x) * norm(w)).all()
    assert (np.abs(dx - want_dx) <= u * norm(dy) * norm(w)).all()
    assert (np.abs(dw - want_dw) <= u * (norm(dy) * norm(x)).sum(0)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_what_is_no_number_stays_in_its_row(value: float) -> None:
    """The other rows keep their bits; of its own row, the steps before keep their values."""
    how = {"backend": "cpu", "variant": "spectra"}
    x, w, dy = (normal(*n).astype(np.float32) for n in ((2, 9, 400), (9, 100), (2, 9, 400)))
    clean = causal_conv1d(x, w, **how), *causal_conv1d_backward(dy, x, w, **how)
    x[1, 3, 200] = value
    with np.errstate(over="ignore"):
        got = causal_conv1d(x, w, **how), *causal_conv1d_backward(dy, x, w, **how)
        plain = causal_conv1d(x, w, backend="cpu", variant="simd")
        _, plain_dw = causal_conv1d_backward(dy, x, w, backend="cpu", variant="simd")
    others = np.ones((2, 9), bool)
    others[1, 3] = False
    np.testing.assert_array_equal(got[0][others], clean[0][others])
    np.testing.assert_array_equal(got[1], clean[1])
    np.testing.assert_array_equal(got[2][np.arange(9) != 3], clean[2][np.arange(9) != 3])
    sure = slice(None) if not np.isfinite(value) else slice(200)  # 3e38 widens bounds
    for own, want in ((got[0][1, 3, sure], plain[1, 3, sure]), (got[2][3], plain_dw[3])):
        finite = np.isfinite(want)
        np.testing.assert_array_equal(np.isfinite(own), finite)
        most = np.abs(want[finite]).max(initial=0)
        np.testing.assert_allclose(own[finite], want[finite], rtol=0, atol=1e-5 * most)


def test_the_cpu_transforms_where_that_costs_less() -> None:
    """By the sizes alone, from about 512 lags; never for a short filter."""

    def chosen(batches: int, channels: int, steps: int, taps: int) -> tuple[str, str]:
        x, w = np.ones((batches, channels, steps), np.float32), np.ones((channels, taps))
        plan = _core.plan("causal_conv1d", x, w.astype(np.float32), backend="cpu")
        return plan["variant"], plan["why"]

    assert chosen(4, 96, 1024, 1024) == (
        "spectra",
        "Fourier transforms cost less than as many products",
    )
    assert chosen(2, 32, 100_000, 4)[0] == "threads"
    assert chosen(4, 96, 100, 100)[0] == "threads"
    assert chosen(1, 1, 200, 200)[0] == "simd"
    gpuopt.set_num_threads(1)
    assert chosen(4, 96, 1024, 1024)[0] == "spectra"


# ---- short filters ----


@pytest.mark.parametrize(
    ("backend", "variant", "dtype"),
    [(*row, dtype) for dtype in FLOATS for row in listed(dtype)],
)
def test_short_filters_in_every_layout(backend: str, variant: str, dtype: str) -> None:
    """K = 1..17 around short_filters' limit of 16; whole packs, odd rows, channels last."""
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    for taps in (1, 2, 4, 8, 9, 16, 17):
        if variant.startswith("short_filters") and taps == 17:
            continue
        w = whole((3, taps), dtype_of(dtype))
        for steps in (3, 16, 37, 64):
            x, dy = (whole((2, 3, steps), dtype_of(dtype))[::k] for k in (1, -1))
            want = ref.causal_conv1d(x, w)
            assert_right(causal_conv1d(x, w, **how), want, variant)
            turned = np.ascontiguousarray(x.swapaxes(1, 2))
            got = causal_conv1d(turned, w, layout="BTC", **how)
            assert_right(got.swapaxes(1, 2), want, variant)
            got = causal_conv1d_backward(dy, x, w, **how)
            for a, b in zip(got, ref.causal_conv1d_backward(dy, x, w), strict=True):
                assert_right(a, b, variant)


def test_source_shows_the_files_of_a_rung() -> None:
    for variant, idea in (
        ("v3", "v3_batches_together"),
        ("v5", "v5_register_tile"),
        ("v6", "v6_toeplitz"),
        ("v7", "v7_spectra"),
    ):
        shown = gpuopt.source("causal_conv1d", variant)
        assert f"causal_conv1d_{idea}" in shown
        assert f"causal_conv1d_backward_{idea}" in shown
        assert idea not in gpuopt.source("causal_conv1d", "v4").replace(f"{idea}.cuh", "")


def test_source_shows_a_file_for_each_operator_of_a_shape_kernel() -> None:
    for variant in ("short_filters", "short_filters_channels_last"):
        shown = gpuopt.source("causal_conv1d", variant)
        assert f"    causal_conv1d_{variant}(" in shown
        assert "causal_conv1d_backward_" not in shown
        shown = gpuopt.source("causal_conv1d_backward", variant)
        assert f"    causal_conv1d_backward_{variant}(" in shown


def test_source_shows_the_loops_of_a_cpu_variant() -> None:
    for op in ("causal_conv1d", "causal_conv1d_backward"):
        for row in gpuopt.variants(op):
            if row["backend"] == "cpu":
                own = "spectra.inc" if row["name"] == "spectra" else "loops.inc"
                assert row["source"] == f"csrc/ops/causal_conv1d/{own}"
                shown = gpuopt.source(op, row["name"])
                assert shown.startswith(f"/*\n * {own}  ")
                part = "transforms.inc" if row["name"] == "spectra" else "tile.inc"
                assert f" * {part}  " in shown  # what those files include


def test_the_choice_says_why() -> None:
    middle, direct = "is the fastest variant, by an estimate", "middle_filters"
    for batches, steps, taps, dtype, rungs, word in (
        (2500, 128, 4, "float32", ("few_taps", "few_taps"), ""),
        (2500, 128, 5, "float32", ("few_taps", "few_taps"), ""),
        (800, 400, 5, "float32", ("short_filters", "few_taps"), ""),
        (800, 399, 4, "float32", ("contiguous_rows", "few_taps"), ""),
        (800, 399, 5, "float32", ("short_filters", "short_filters"), ""),
        (400, 400, 9, "float32", ("short_filters", "short_filters"), ""),
        (400, 400, 4, "float64", ("short_filters", "short_filters"), ""),
        (2, 40, 4, "float32", ("few_outputs", "one_block"), ""),
        (31, 256, 4, "float32", ("few_outputs", "one_cluster"), ""),
        (9000, 40, 40, "float32", (direct, direct), f"40 lags, 40 steps: {direct} {middle}"),
        (2, 100000, 40, "float32", (direct, direct), middle),
        (2, 100000, 100, "float32", ("v5", "v5"), middle),
        (2, 100, 40, "float32", ("v1", "one_block"), middle),
        (9, 200, 40, "float16", ("v0", "v6"), middle),
        (6400, 20, 19, "float16", ("v0", direct), middle),
        (24, 4096, 20, "float32", ("v0", "v7"), middle),
        (3, 4096, 20, "float32", ("v0", direct), middle),
        (64, 2000, 100, "bfloat16", ("v6", "v6"), middle),
        (2, 90000, 40, "bfloat16", ("v6", direct), middle),
        (400, 304, 304, "float16", ("v6", "v6"), "tensor cores"),
        (9, 304, 304, "float16", ("v6", "v6"), "tensor cores"),
        (9000, 304, 304, "float16", ("persistent_tensor_cores",) * 2, "tensor cores"),
        (9000, 303, 303, "float16", ("v6", "v6"), "tensor cores"),
        (9000, 304, 128, "bfloat16", ("persistent_tensor_cores",) * 2, middle),
        (90, 900, 200, "float32", ("v7", "v7"), "900 steps and 200 taps"),
        (2, 9000, 2000, "float64", ("v5", "v5"), "128 products"),
        (1, 800, 800, "float64", ("v2", "v2"), "fewer than 8 rows"),
    ):
        x, w = np.ones((batches, 2, steps), dtype), np.ones((2, taps), dtype)
        calls = (("causal_conv1d", (x, w)), ("causal_conv1d_backward", (x, x, w)))
        for (op, arrays), rung in zip(calls, rungs, strict=True):
            plan = _core.plan(op, *arrays, backend="sim")
            assert plan["variant"] == rung
            assert word in plan["why"]


def test_few_products_take_the_shortest_code() -> None:
    x, w = np.ones((3, 6, 303), np.float16), np.ones((6, 16), np.float16)
    plan = _core.plan("causal_conv1d", x, w, backend="sim")
    assert plan["variant"] == "v0"
    assert "little code" in plan["why"]
    for steps, dtype in ((300, "float32"), (200, "float64")):
        x, w = np.ones((2, 2, steps), dtype), np.ones((2, steps), dtype)
        plan = _core.plan("causal_conv1d", x, w, backend="sim")
        assert plan["variant"] == "v1"
        assert "few products" in plan["why"]


def test_two_channels_are_no_packs() -> None:
    """One channel in 16 bytes left most threads of the channels-last kernel without work."""
    for channels, last in ((2, False), (64, True)):
        x = np.ones((40, 600, channels), np.float32).transpose(0, 2, 1)
        plan = _core.plan("causal_conv1d", x, np.ones((channels, 4), np.float32), backend="sim")
        assert plan["variant"].endswith("channels_last") is last


@pytest.mark.parametrize("causality", [None, "exact"])
def test_filters_with_exact_causality_take_products(causality: Any) -> None:
    x, w = np.ones((64, 8, 2000), np.float16), np.ones((8, 100), np.float16)
    plan = _core.plan("causal_conv1d", x, w, causality=causality, backend="sim")
    assert plan["variant"] == ("v5" if causality else "v6")


@pytest.mark.parametrize("op", ["causal_conv1d", "causal_conv1d_backward"])
def test_the_simulator_has_tensor_cores(op: str) -> None:
    x, w = np.ones((40, 64, 700), np.float32), np.ones((64, 700), np.float32)
    arrays = (x, w) if op == "causal_conv1d" else (x, x, w)
    rows = {(r["backend"], r["name"]): r for r in _core.variants(op)}
    assert rows["sim", "v6"]["needs"] == "sm_90a"
    for backend in ("sim", "cuda"):
        if rows[backend, "v6"]["available"]:
            assert _core.plan(op, *arrays, backend=backend)["variant"] == "v6"
    assert rows["sim", "v6"]["available"]


TENSOR_SIZES = ((2, 2, 37, 37), (9, 1, 200, 67), (17, 1, 800, 130))
STAGE_SIZES = ((1, 68, 8, 8), (9, 1, 200, 67), (17, 1, 768, 130))  # more items than stages


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [
        *(("v6", dtype) for dtype in ("float16", "bfloat16", "float32")),
        *(("persistent_tensor_cores", dtype) for dtype in ("float16", "bfloat16")),
    ],
)
def test_tensor_cores_in_every_schedule(variant: str, dtype: str, simulator: Any) -> None:
    """The same bits, and no fault, whatever the order; copies arrive as late as they may."""
    orders = [{"schedule": s} for s in ("ascending", "descending", "lockstep")]
    orders += [{"schedule": s, "seed": seed} for s in ("shuffle", "preempt") for seed in (1, 2)]
    for size in TENSOR_SIZES if variant == "v6" else STAGE_SIZES:
        x, dy = (normal(*size[:3], seed=s).astype(dtype_of(dtype)) for s in (0, 1))
        w = normal(size[1], size[3]).astype(dtype_of(dtype))
        seen = set()
        few = orders[:3] if size[2] > 700 else orders[1::2] if size[1] > 9 else orders
        for order in few:
            simulator(checks=True, **order)
            how: dict[str, Any] = {"backend": "sim", "variant": variant}
            arrays = (causal_conv1d(x, w, **how),)
            if size[1] < 9:
                arrays += causal_conv1d_backward(dy, x, w, **how)[:2]
            seen.add(b"".join(a.tobytes() for a in arrays))
        assert len(seen) == 1


@pytest.mark.parametrize("variant", ["v6", "v7"])
def test_rows_that_tell_mutants(variant: str, simulator: Any) -> None:
    """Rows for which other tests pass with a guard less, see mutants_causal_conv1d.py."""
    simulator(checks=True)
    mutants_causal_conv1d.check_causality(variant)
    spectra = sample(True, (2, 1, 12_400, 4), "float32")  # more blocks than sums of lags
    arrays = [spec.build() for spec in spectra.arrays]
    got = causal_conv1d_backward(*arrays, backend="sim", variant=variant)
    assert not expect(True, variant, spectra).compare(tuple(got[:2]))


# ---- large strides ----


@each_variant
def test_offsets_past_32_bits(backend: str, variant: str) -> None:
    """Two batches 2**31 + 8 elements apart, with the memory between them never touched."""
    far = 2**31 + 8
    memory = np.zeros(far + 64, np.float16)
    memory[:40] = 1
    memory[far : far + 40] = 2
    step = memory.itemsize
    x = np.lib.stride_tricks.as_strided(memory, (2, 2, 20), (far * step, 20 * step, step))
    how: dict[str, Any] = {"backend": backend, "variant": variant}
    for taps in (3, 20):
        w = np.ones((2, taps), np.float16)
        want = np.minimum(np.arange(20) + 1, taps) * np.array([1, 2])[:, None, None]
        assert_right(causal_conv1d(x, w, **how), np.tile(want, (1, 2, 1)), variant)
        _, dw = causal_conv1d_backward(x, x, w, **how)
        assert_right(dw[1], 5 * np.arange(21 - taps, 21), variant)


# ---- the simulator: counts and faults ----

# Requests to shared memory, their wavefronts, requests to global memory, barriers of a
# thread: B = 3, C = 2, T = K = 44, float32, all kernels of the rung, forward and backward.
GOLDEN = {
    "v0": (0, 0, 753, 0),
    "v1": (2088, 2088, 42, 12),
    "v2": (1350, 2910, 48, 12),
    "v3": (1906, 5786, 40, 4),
    "v4": (1564, 1564, 80, 8),
    "v5": (3548, 3872, 56, 12),
}
GOLDEN_BACKWARD = {
    "v0": (0, 0, 1428, 0),
    "v1": (2880, 2880, 70, 24),
    "v2": (2052, 3708, 80, 24),
    "v3": (2778, 6998, 72, 12),
    "v4": (2924, 3172, 144, 24),
    "v5": (4706, 5676, 154, 18),
}


def counts(op: str, rung: str, *arrays: Array) -> tuple[int, int, int, int]:
    kernels = profile(op, *arrays, variant=rung)[rung]
    return (
        sum(k.shared_requests for k in kernels),
        sum(k.shared_wavefronts for k in kernels),
        sum(k.global_requests for k in kernels),
        sum(k.barriers for k in kernels),
    )


def test_golden_counts() -> None:
    x, w = whole((3, 2, 44)), whole((2, 44))
    assert {rung: counts("causal_conv1d", rung, x, w) for rung in RUNGS} == GOLDEN


def test_golden_counts_backward() -> None:
    x, w = whole((3, 2, 44)), whole((2, 44))
    got = {rung: counts("causal_conv1d_backward", rung, x, x, w) for rung in RUNGS}
    assert got == GOLDEN_BACKWARD


def test_inner_loop_has_no_bank_conflicts(figure: Figure) -> None:
    """v5's 16-byte reads of 32 rows: a quarter warp uses each bank once."""
    x, w = whole((32, 1, 128)), whole((1, 128))
    requests, wavefronts, _, _ = counts("causal_conv1d", "v5", x, w)
    figure("causal_conv1d v5: wavefronts per shared request", f"{wavefronts / requests:.2f}")
    assert wavefronts <= 4 * requests


@pytest.mark.parametrize("rung", RUNGS)
def test_every_failure_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    x, w, bias, dy = whole((3, 1, 9)), whole((1, 12)), whole((1,)), whole((3, 1, 9))[::-1]
    options: dict[str, Any] = {"activation": "silu", "variant": rung, "backend": "sim"}
    want = causal_conv1d_backward(dy, x, w, bias, **options)
    before = None
    for step in range(80):
        simulator(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = causal_conv1d_backward(dy, x, w, bias, **options)
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            simulator(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            again = causal_conv1d_backward(dy, x, w, bias, **options)
            for a, b in zip(again, want, strict=True):
                np.testing.assert_array_equal(a, b)
            continue
        break
    assert 5 <= step < 79
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bfloat16_needs_bfloat16() -> None:
    x, w = np.ones((1, 1, 4), BFLOAT16), np.ones((1, 2), np.float32)
    with pytest.raises(TypeError, match="w has dtype 'float32', x has 'bfloat16'"):
        causal_conv1d(x, w)
