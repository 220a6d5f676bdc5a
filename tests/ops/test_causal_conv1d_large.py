"""causal_conv1d's large_transforms: transforms that go through memory in two steps.

Order: every size of a matrix, passes and blocks, the causal bound, options and layouts,
what is refused, the choice, the simulator's counts.  See test_causal_conv1d.py for rungs,
causality.py for the rows and the bound, and test_contract.py for the matrix.
"""

from __future__ import annotations

from typing import Any

import causality
import numpy as np
import pytest
from cases import dtype_of

import gpuopt
from gpuopt import _core, causal_conv1d, causal_conv1d_backward, ref
from gpuopt.lab.profile import profile

Array = np.ndarray[Any, Any]
NAME = "large_transforms"
TYPES = ("float32", "float16", "bfloat16")

BACKENDS = [
    row["backend"]
    for row in _core.variants("causal_conv1d")
    if row["name"] == NAME and row["available"] and _core.backends()[row["backend"]] is None
]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_type = pytest.mark.parametrize("dtype", TYPES)


def normal(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype_of(dtype))


def spectra(a: Array, b: Array, n: int, conjugate: bool = False) -> Array:
    """The first n sums of the convolution or correlation of rows, by float64 transforms."""
    size = a.shape[-1] + b.shape[-1]
    f, g = (np.fft.rfft(x.astype(np.float64), size) for x in (a, b))
    return np.fft.irfft(f * (g.conj() if conjugate else g), size)[..., :n]


def norm(a: Array) -> Array:
    return np.asarray(np.linalg.norm(a.astype(np.float64), axis=-1))


def room(x: Array, w: Array, levels: int = 0) -> Array:
    """Of a transform's error on each result of a row: 0.9 u for each level."""
    return 0.9 * (levels or 16) * 2.0**-24 * norm(x) * norm(w)


def check_all(x: Array, dy: Array, w: Array, backend: str, levels: int = 0) -> None:
    """The result and all gradients against float64 transforms."""
    how: dict[str, Any] = {"backend": backend, "variant": NAME}
    steps, lags = x.shape[-1], min(x.shape[-1], w.shape[-1])
    taps = w[:, ::-1][:, :lags]
    y = causal_conv1d(x, w, **how)
    dx, dw = causal_conv1d_backward(dy, x, w, **how)
    for got, row in ((y, x), (dx[..., ::-1], dy[..., ::-1])):
        error = np.abs(got - spectra(row, taps[None], steps))
        assert (error <= room(row, taps, levels)[..., None]).all()
    want = spectra(dy, x, lags, True).sum(0)[:, ::-1]
    error = np.abs(dw[:, w.shape[-1] - lags :] - want)
    assert (error <= 2 * room(x, dy, levels).sum(0)[:, None]).all()
    assert not dw[:, : w.shape[-1] - lags].any()


# ---- every size of a matrix ----


@each_backend
@pytest.mark.parametrize("log", [12, 13, 14, 15, 16, 17])
def test_one_block_that_is_just_filled(backend: str, log: int) -> None:
    """2**log points have 2**(log + 1) steps and lags, less one: all results are right."""
    if backend == "sim" and log > 16:
        pytest.skip("minutes in the simulator")
    steps = (1 << log) + (1 << log) // 3
    taps = 2 * (1 << log) + 1 - steps
    x, dy = normal(1, 1, steps), normal(1, 1, steps, seed=1)
    check_all(x, dy, normal(1, taps, seed=2), backend, log + 1)


@pytest.mark.parametrize("backend", [b for b in BACKENDS if b != "sim"])
@pytest.mark.parametrize("log", [18, 19, 20, 21, 22, 23])
def test_the_largest_blocks(backend: str, log: int) -> None:
    steps = 1 << log
    x, dy = normal(1, 1, steps), normal(1, 1, steps, seed=1)
    check_all(x, dy, normal(1, steps, seed=2), backend, log + 1)


# ---- passes and blocks ----

# (B, C, T, K): several channels in a pass and several passes; blocks of one channel in
# several passes; rows of several blocks, with sums of lags side by side; longer filters.
PASSES = (
    (2, 13, 300, 200),
    (35, 2, 150, 90),
    (1, 1, 50_000, 1000),
    (3, 2, 17_000, 300),
    (1, 3, 70, 200),
)


@each_backend
@pytest.mark.parametrize("size", PASSES, ids=str)
def test_passes(backend: str, size: tuple[int, int, int, int]) -> None:
    batches, channels, steps, taps = size
    x, dy = (normal(batches, channels, steps, seed=k) for k in (0, 1))
    check_all(x, dy, normal(channels, taps, seed=2), backend)


@each_backend
def test_without_batches_the_gradient_is_0(backend: str) -> None:
    x = np.ones((0, 2, 100), np.float32)
    w = np.ones((2, 80), np.float32)
    _, dw = causal_conv1d_backward(x, x, w, backend=backend, variant=NAME)
    assert dw.shape == (2, 80)
    assert not dw.any()


@each_backend
def test_the_same_bits_every_time(backend: str) -> None:
    x, dy, w = normal(3, 2, 9000), normal(3, 2, 9000, seed=1), normal(2, 700)
    how: dict[str, Any] = {"backend": backend, "variant": NAME}
    seen = set()
    for _ in range(3):
        arrays = causal_conv1d(x, w, **how), *causal_conv1d_backward(dy, x, w, **how)
        seen.add(b"".join(a.tobytes() for a in arrays))
    assert len(seen) == 1


# ---- the causal bound ----

ROWS = list(causality.rows(300))
FINITE = [name for name, row in causality.rows(300).items() if np.isfinite(row).all()]
# (T, K): one block; the head and a little more; several blocks.
SIZES = ((300, 300), (700, 130), (140, 64), (19_000, 130))


@each_backend
@each_type
@pytest.mark.parametrize(("steps", "taps"), SIZES)
def test_the_past_knows_no_future(backend: str, dtype: str, steps: int, taps: int) -> None:
    if dtype != "float32" and steps > 300:
        pytest.skip("the rows of other dtypes are the same after the loads")
    x = causality.stack(ROWS, 2 if steps < 1000 else 1, steps, dtype_of(dtype))
    w = causality.filters(x.shape[1], taps, dtype_of(dtype))
    y = causal_conv1d(x, w, backend=backend, variant=NAME)
    causality.check_causal_bound(x, w, y, causality.sums(x, w))


@each_backend
@pytest.mark.parametrize("names", [FINITE, ["an inf"], ["normal", "last nan", "zero"]])
@pytest.mark.parametrize("turn", [False, True])
def test_gradients_know_no_past(backend: str, names: list[str], turn: bool) -> None:
    w = causality.filters(2, 300, np.float32)
    hard = causality.stack(names, 2, 500, np.float32)
    like = causality.stack(["normal"], 2, 500, np.float32, 5)
    like = np.repeat(like, len(names), 0) * np.float32(2.0**-60 if names is FINITE else 1)
    dy, x = (like, hard) if turn else (hard[..., ::-1], like)
    dx, dw = causal_conv1d_backward(dy, x, w, backend=backend, variant=NAME)
    causality.check_gradients(dy, x, w, dx, dw, causality.gradients(dy, x, w))


@each_backend
@pytest.mark.parametrize("future", [0.0, np.nan, np.inf, -1e30, 1e4])
def test_another_future_changes_no_past(backend: str, future: float) -> None:
    """By at most the bounds of both results."""
    how: dict[str, Any] = {"backend": backend, "variant": NAME}
    x = causality.stack(["normal", "left zero", "steps"], 1, 900, np.float32)
    w = causality.filters(1, 400, np.float32)
    y = causal_conv1d(x, w, **how)
    bound = 2 * causality.causal_bound(x, w, x.dtype)
    for t in (1, 129, 257, 513, 899):
        other = x.copy()
        other[..., t:] = future
        past = causal_conv1d(other, w, **how)[..., :t]
        assert (np.abs(y[..., :t] - past.astype(np.longdouble)) <= bound[..., :t]).all()


# Steps of silence, of a quiet beginning, and where the rest is louder: each within a piece
# of 256 steps, at its edges, in the second block of a row.
BEGINNINGS = (1, 127, 128, 255, 256, 257, 511, 512, 513, 5000, 8064, 8100, 16_500)


@each_backend
@pytest.mark.parametrize("quiet", [0.0, 1e-4, 1e-20])
def test_rows_that_begin_quietly(backend: str, quiet: float) -> None:
    """Only up to where they are loud their results are left to smaller blocks."""
    steps, t = 19_000, np.arange(19_000)
    x = np.stack([np.where(t < n, quiet, 1) for n in BEGINNINGS])[:, None]
    x = (x * normal(*x.shape)).astype(np.float32)
    w = causality.filters(1, 120, np.float32)
    y = causal_conv1d(x, w, backend=backend, variant=NAME)
    causality.check_causal_bound(x, w, y, causality.sums(x, w))
    dx, _ = causal_conv1d_backward(x[..., ::-1], x, w, backend=backend, variant=NAME)
    causality.check_causal_bound(x, w, dx[..., ::-1], causality.sums(x, w))
    assert y.shape[-1] == steps


def test_a_quiet_beginning_costs_its_own_steps() -> None:
    """A louder row after it is computed by transforms, unlike a row that grows throughout."""
    t = np.arange(6000)
    w = normal(1, 1500)

    def loads(scale: Array) -> int:
        x = (normal(1, 1, 6000) * scale).astype(np.float32)
        found = profile("causal_conv1d", x, w, variant=NAME)[NAME]
        return int(next(k for k in found if "early_steps" in k.kernel).global_requests)

    plain = loads(np.ones(6000))
    quiet = loads(np.where(t < 600, 1e-9, 1))
    growing = loads(2.0 ** np.linspace(-60, 60, 6000))
    assert plain < quiet < growing / 3


# ---- options and layouts ----


@each_backend
@each_type
@pytest.mark.parametrize("silu", [False, True])
def test_bias_and_silu_in_every_layout(backend: str, dtype: str, silu: bool) -> None:
    how: dict[str, Any] = {"backend": backend, "variant": NAME, "eps": 0.25}
    how["activation"] = "silu" if silu else None
    x, dy = (normal(2, 3, 400, seed=k, dtype=dtype) for k in (0, 1))
    w, bias = normal(3, 170, seed=2, dtype=dtype) / 8, normal(3, seed=3, dtype=dtype)
    w = w.astype(x.dtype)
    wide = [a.astype(np.float64) for a in (x, w, bias)]
    want = ref.causal_conv1d(*wide, eps=0.25, activation=how["activation"])
    y = causal_conv1d(x, w, bias, **how)
    digits = {"float32": 18, "float16": 10, "bfloat16": 7}[dtype]
    near = {"rtol": 2.0**-digits, "atol": 2.0 ** -(digits - 2)}
    np.testing.assert_allclose(y.astype(np.float64), want, **near)
    grads = causal_conv1d_backward(dy, x, w, bias, **how)
    wants = ref.causal_conv1d_backward(
        dy.astype(np.float64), *wide, eps=0.25, activation=how["activation"]
    )
    for got, right in zip(grads, wants, strict=True):
        scale = float(np.abs(right).max())
        np.testing.assert_allclose(
            got.astype(np.float64), right, rtol=near["rtol"], atol=scale * near["rtol"] * 2
        )

    def turned(a: Array) -> Array:
        return np.ascontiguousarray(a.swapaxes(1, 2))

    by_time = causal_conv1d(turned(x), w, bias, layout="BTC", **how)
    np.testing.assert_array_equal(turned(by_time), y)
    back = causal_conv1d_backward(turned(dy), turned(x), w, bias, layout="BTC", **how)
    np.testing.assert_array_equal(turned(back[0]), grads[0])
    np.testing.assert_array_equal(back[1], grads[1])
    stepped = np.repeat(x, 2, axis=-1)[..., ::2]
    np.testing.assert_array_equal(causal_conv1d(stepped, w, bias, **how), y)


@each_backend
def test_rows_behind_a_state(backend: str) -> None:
    """Two halves are one row."""
    how: dict[str, Any] = {"backend": backend, "variant": NAME}
    x, w = normal(2, 2, 1000), normal(2, 200)
    whole = causal_conv1d(x, w, **how)
    first, state = causal_conv1d(x[..., :500], w, return_state=True, **how)
    second = causal_conv1d(x[..., 500:], w, initial_state=state, **how)
    both = np.concatenate([first, second], -1)
    limit = 2 * causality.causal_bound(x, w, x.dtype)
    assert (np.abs(both - whole.astype(np.longdouble)) <= limit).all()


@each_backend
def test_rows_of_any_scale(backend: str) -> None:
    up, down = np.array([-120, 100, 0, -60]), np.array([100, -120, 0, 60])
    x = (normal(1, 4, 600) * 2.0 ** up[:, None]).astype(np.float32)
    w = (normal(4, 300) * 2.0 ** down[:, None]).astype(np.float32)
    y = causal_conv1d(x, w, backend=backend, variant=NAME)
    causality.check_causal_bound(x, w, y, causality.sums(x, w))
    dx, dw = causal_conv1d_backward(x[:, ::-1], x, w, backend=backend, variant=NAME)
    want = causality.gradients(x[:, ::-1], x, w)
    causality.check_gradients(x[:, ::-1], x, w, dx, dw, want)


# ---- what is refused ----


@each_backend
def test_calls_without_transforms_are_refused(backend: str) -> None:
    x, w = np.ones((1, 2, 63), np.float32), np.ones((2, 40), np.float32)
    long = np.broadcast_to(np.float32(1), (1, 2, 2**25))
    for given, taps, options in (
        (x, w, {}),
        (long, np.broadcast_to(np.float32(1), (2, 2**24 + 1)), {}),
        (np.ones((1, 2, 90), np.float32), w, {"segments": np.array([0, 90], np.int32)}),
    ):
        with pytest.raises(gpuopt.VariantError, match=r"takes whole rows of 64 to 2\*\*30"):
            _core.plan("causal_conv1d", given, taps, backend=backend, variant=NAME, **options)
    with pytest.raises(gpuopt.VariantError, match="causality='exact'"):
        causal_conv1d(
            np.ones((1, 2, 90), np.float32), w, causality="exact", backend=backend, variant=NAME
        )


# ---- the choice ----


@each_backend
def test_the_choice_is_by_estimated_times(backend: str) -> None:
    """Long filters on long rows; v7 where its blocks are few."""
    one = np.float32(1)
    for batches, channels, steps, taps, wanted in (
        (1, 64, 2**18, 2**18, NAME),
        (8, 8, 2**20, 2**16, NAME),
        (2, 2, 200_000, 100_000, NAME),
        (8, 64, 16_384, 16_384, "v7"),
        (64, 64, 20_000, 200, "v7"),
    ):
        x = np.broadcast_to(one, (batches, channels, steps))
        w = np.broadcast_to(one, (channels, taps))
        for op, arrays in (("causal_conv1d", (x, w)), ("causal_conv1d_backward", (x, x, w))):
            plan = _core.plan(op, *arrays, backend=backend)
            assert plan["variant"] == wanted, (op, x.shape, taps, plan["why"])
            assert wanted != NAME or "estimate" in plan["why"]
            exact = _core.plan(op, *arrays, backend=backend, causality="exact")
            assert exact["variant"] not in ("v7", NAME)


# ---- the simulator's counts ----


def test_no_bank_conflicts_between_passes() -> None:
    """Half a warp takes a wavefront, and loads of whole sectors none more."""
    x, w = normal(1, 1, 40_000), normal(1, 40_000)  # 256 rows and columns
    for op, arrays in (("causal_conv1d", (x, w)), ("causal_conv1d_backward", (x, x, w))):
        kernels = profile(op, *arrays, variant=NAME)[NAME]
        assert not any(k.races for k in kernels)
        for kernel in kernels:
            if "transforms_rows" in kernel.kernel:
                assert kernel.shared_wavefronts <= 2 * kernel.shared_requests
            if "transforms_columns" in kernel.kernel:
                assert kernel.shared_wavefronts <= 2 * kernel.shared_requests
