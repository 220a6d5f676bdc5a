"""upsample_nearest beyond the matrix: the rule, its inverse, gradients, published bugs.

Order: the rule, arguments, the inverse, gradients, layouts, out=, special values, accuracy,
pinned bugs, large strides, shapes, the simulator's counts and faults.  See
test_contract.py for sizes, memory layouts and dtypes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.upsample_nearest import expect_backward_values, output_shape
from conftest import Figure

import gpuopt
from gpuopt import _core, ref, upsample_nearest, upsample_nearest_backward
from gpuopt.lab.profile import profile

RUNGS = ("v0", "v1", "v2")


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes any call.

    Both operators have the same.  v2 falls back to the shape kernels, so tests of v2 run
    them, too.
    """
    usable = _core.backends()
    rows = [
        [
            (row["backend"], row["name"])
            for row in _core.variants(op)
            if row["available"] and not row["shape"] and usable[row["backend"]] is None
        ]
        for op in ("upsample_nearest", "upsample_nearest_backward")
    ]
    assert rows[0] == rows[1]
    return rows[0]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())


def whole(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-8, 9, shape).astype(dtype)


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure; restores the settings afterwards."""
    if _core.backends()["sim"] is not None:
        pytest.fail("the simulator is part of every build")
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- the rule ----


def f32(x: float) -> float:
    """The nearest float32 number: the product of two of them is exact before it."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def sources(n: int, size: int, scale: float | None, exact: bool) -> list[int]:
    """PyTorch's rule, spelled without NumPy."""
    ratio = f32(1.0 / scale) if scale is not None else f32(f32(n) / f32(size))
    shift = 0.5 if exact else 0.0
    return [min(int(f32(f32(i + shift) * ratio)), n - 1) for i in range(size)]


def places(n: int, **options: Any) -> list[int]:
    got = upsample_nearest(np.arange(n, dtype=np.int32)[None, None], **options)
    return [int(i) for i in got[0, 0]]


def test_the_rule_by_hand() -> None:
    assert places(2, size=3, backend="cpu") == [0, 0, 1]
    assert places(2, size=3, exact=True, backend="cpu") == [0, 1, 1]
    assert places(5, size=3, backend="cpu") == [0, 1, 3]
    assert places(5, size=3, exact=True, backend="cpu") == [0, 2, 4]
    assert places(3, scale=2.5, backend="cpu") == [0, 0, 0, 1, 1, 2, 2]
    assert places(4, scale=0.5, backend="cpu") == [0, 2]
    assert places(4, scale=0.5, exact=True, backend="cpu") == [1, 3]


@each_variant
def test_the_rule_is_pytorchs(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    lengths = (1, 2, 3, 7, 26, 31) if backend == "sim" else range(1, 45)
    for n in lengths:
        for exact in (False, True):
            for size in (1, 2, n, n + 1, 2 * n, 41 * n, 3 * n - 1 or 1):
                want = sources(n, size, None, exact)
                assert places(n, size=size, exact=exact, **where) == want, (n, size)
            for scale in (1.0, 1.2, 1.5, 1 / 3, 2.0, 3.0, 7.0, 1 + 1e-9):
                size = int(n * scale)
                if size:
                    want = sources(n, size, scale, exact)
                    assert places(n, scale=scale, exact=exact, **where) == want, (n, scale)


@each_variant
def test_the_rule_rounds_in_float32(backend: str, variant: str) -> None:
    """2 elements made 82: 41 times float32(2 / 82) is below 1, the quotient is not."""
    got = places(2, size=82, backend=backend, variant=variant)
    assert got == [0] * 42 + [1] * 40


def test_a_scale_that_changes_no_length_still_moves() -> None:
    """3 elements times 1.2 are 3; only PyTorch's 2-D GPU kernel would copy them."""
    assert places(3, scale=1.2, backend="cpu") == [0, 0, 1]
    assert places(3, size=3, backend="cpu") == [0, 1, 2]


def test_the_reference_means_repeat() -> None:
    x = whole((2, 3, 4, 5))
    want = x.repeat(3, 2).repeat(2, 3)
    np.testing.assert_array_equal(ref.upsample_nearest(x, scale=(3, 2)), want)
    np.testing.assert_array_equal(ref.upsample_nearest(x, size=(12, 10)), want)
    last = np.moveaxis(x, 1, -1)
    got = ref.upsample_nearest(last, scale=(3, 2), layout="NHWC")
    np.testing.assert_array_equal(np.moveaxis(got, -1, 1), want)
    out = np.empty_like(want)
    assert ref.upsample_nearest(x, scale=(3, 2), out=out) is out
    np.testing.assert_array_equal(out, want)
    back = ref.upsample_nearest_backward(want, x.shape, scale=(3, 2))
    np.testing.assert_array_equal(back, 6 * x)
    for wrong in (
        {},
        {"size": 3, "scale": 2},
        {"size": (1, 2, 3)},
        {"size": 0},
        {"scale": -1.0},
        {"scale": 0.1},
        {"scale": 2, "layout": "NN"},
    ):
        with pytest.raises(ValueError, match=r"\w"):
            ref.upsample_nearest(x, **wrong)
    with pytest.raises(ValueError, match="dimensions"):
        ref.upsample_nearest(x[0, 0], scale=2)
    with pytest.raises(ValueError, match="dy has shape"):
        ref.upsample_nearest_backward(want, x.shape, scale=2)
    with pytest.raises(TypeError, match="bool"):
        ref.upsample_nearest_backward(want > 0, x.shape, scale=(3, 2))


# ---- arguments ----


def test_size_and_scale_as_users_write_them() -> None:
    x = whole((1, 2, 3, 4))
    want = x.repeat(2, 2).repeat(2, 3)
    for scale in (
        2,
        2.0,
        (2, 2.0),
        [2.0, 2],
        np.float32(2),
        np.int8(2),
        (np.float64(2), True + 1),
    ):
        np.testing.assert_array_equal(upsample_nearest(x, scale=scale), want)
        back = upsample_nearest_backward(want, x.shape, scale=scale)
        np.testing.assert_array_equal(back, 4 * x)
    for size in ((6, 8), [6, 8], np.array([6, 8]).tolist(), (np.int64(6), np.uint8(8))):
        np.testing.assert_array_equal(upsample_nearest(x, size), want)
        np.testing.assert_array_equal(upsample_nearest(x, size, None, False, "NCHW"), want)
    assert upsample_nearest(x, 5).shape == (1, 2, 5, 5)
    assert upsample_nearest_backward(want, list(x.shape), (6, 8)).shape == x.shape
    with pytest.raises(ValueError, match="more than 64 values"):
        upsample_nearest(x, scale=(2.0,) * 65)
    for wrong in (None, "2"):
        with pytest.raises(TypeError, match="real number"):
            upsample_nearest(x, scale=(2.0, wrong))
    with pytest.raises(TypeError, match="real number"):
        upsample_nearest(x, scale=2j)


def test_the_rank_is_told_from_the_array() -> None:
    for ndim in (3, 4, 5):
        x = whole((2, 3, 4, 5, 6)[:ndim])
        want = x
        for axis in range(2, ndim):
            want = want.repeat(2, axis)
        np.testing.assert_array_equal(upsample_nearest(x, scale=2), want)
        last = np.moveaxis(x, 1, -1)
        got = upsample_nearest(last, scale=2, layout="NHWC")
        np.testing.assert_array_equal(np.moveaxis(got, -1, 1), want)


# ---- the inverse ----


@each_variant
def test_every_dy_is_added_to_its_source_once(backend: str, variant: str) -> None:
    """Powers of two distinguish up to 52 elements."""
    where = {"backend": backend, "variant": variant}
    few = backend == "sim"
    for n in (1, 2, 3, 5, 26, 50) if few else range(1, 60):
        for size in (1, 2, n, n + 1, 2 * n, 50) if few else range(1, 53):
            if size > 52:
                continue
            for exact in (False, True):
                dy = 2.0 ** np.arange(size)[None, None]
                got = upsample_nearest_backward(dy, (1, 1, n), size=size, exact=exact, **where)
                want = np.zeros(n)
                np.add.at(want, sources(n, size, None, exact), dy[0, 0])
                np.testing.assert_array_equal(got[0, 0], want, err_msg=f"{n} {size} {exact}")


def test_the_ranges_tile_every_length() -> None:
    """Counts of outputs, by a gradient of ones, for scales that do not divide."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        n, scale = int(rng.integers(1, 3000)), float(rng.uniform(0.3, 5))
        size = int(n * scale)
        if size == 0:
            continue
        exact = bool(rng.integers(2))
        dy = np.ones((1, 1, size), np.int32)
        got = upsample_nearest_backward(dy, (1, 1, n), scale=scale, exact=exact, backend="cpu")
        want = np.bincount(ref.upsample_sources(n, None, scale, exact), minlength=n)
        np.testing.assert_array_equal(got[0, 0], want)
        assert got.sum() == size


def test_the_inverse_past_the_whole_numbers_of_float32() -> None:
    """Beyond 2**24 several outputs have the same float32 number: ranges still tile."""
    n, size = 3, 2**25 + 7
    for exact in (False, True):
        dy = np.broadcast_to(np.int32(1), (1, 1, size))
        got = upsample_nearest_backward(dy, (1, 1, n), size=size, exact=exact, backend="cpu")
        x = np.arange(n, dtype=np.int8)[None, None]
        made = upsample_nearest(x, size=size, exact=exact, backend="cpu")
        np.testing.assert_array_equal(got[0, 0], np.bincount(made[0, 0], minlength=n))


# ---- gradients ----

GRADIENTS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 7), {"scale": 2.0}),
    ((2, 3, 4, 5), {"scale": 2.0}),
    ((1, 2, 5, 4), {"size": (7, 9)}),
    ((1, 2, 8, 9), {"scale": 0.6, "exact": True}),
    ((2, 3, 2, 4), {"scale": (1.5, 3.0), "layout": "NHWC"}),
    ((1, 2, 2, 3, 4), {"scale": (1.0, 2.0, 2.0)}),
    ((1, 2, 3, 2, 4), {"size": (3, 5, 3), "layout": "NHWC", "exact": True}),
)


@each_variant
def test_gradcheck_by_central_differences(backend: str, variant: str) -> None:
    """float64, eps 1e-6, atol 1e-5, rtol 1e-3, every element of x."""
    where = {"backend": backend, "variant": variant}
    rng = np.random.default_rng(3)
    eps = 1e-6
    for shape, options in GRADIENTS:
        x = rng.standard_normal(shape)
        dy = rng.standard_normal(upsample_nearest(x, **options).shape)
        got = upsample_nearest_backward(dy, shape, **options, **where)
        want = np.empty(shape)
        forward = where if backend != "sim" else {"backend": "cpu"}
        for at in np.ndindex(*shape):
            step = np.zeros(shape)
            step[at] = eps
            change = upsample_nearest(x + step, **options, **forward)
            change = change - upsample_nearest(x - step, **options, **forward)
            want[at] = (change * dy).sum() / (2 * eps)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)


@each_variant
def test_adjoint_identity(backend: str, variant: str) -> None:
    """<dy, A x> = <A^T dy, x>, exactly, in whole numbers."""
    where = {"backend": backend, "variant": variant}
    for shape, options in GRADIENTS:
        x = whole(shape, np.int64)
        made = upsample_nearest(x, **options, **where)
        dy = whole(made.shape, np.int64)[..., ::-1].copy()
        back = upsample_nearest_backward(dy, shape, **options, **where)
        assert (dy * made).sum() == (back * x).sum(), (shape, options)


# ---- layouts ----


@each_variant
def test_channels_last_is_channels_first_moved(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    for dtype in (np.uint8, np.float32, np.complex128):
        for channels in (1, 3, 4, 16):
            x = whole((2, channels, 3, 5), dtype)
            for options in ({"scale": 2.0}, {"size": (5, 8)}, {"scale": (1.0, 2.0)}):
                first = upsample_nearest(x, **options, **where)
                last = upsample_nearest(
                    np.moveaxis(x, 1, -1).copy(), **options, layout="NHWC", **where
                )
                np.testing.assert_array_equal(np.moveaxis(last, -1, 1), first)
                assert last.flags.c_contiguous
                moved = (2, 3, 5, channels)
                back = upsample_nearest_backward(last, moved, **options, layout="NHWC", **where)
                want = upsample_nearest_backward(first, x.shape, **options, **where)
                np.testing.assert_array_equal(np.moveaxis(back, -1, 1), want)


@each_variant
def test_rows_at_every_offset_and_width(backend: str, variant: str) -> None:
    """Rows of the result begin anywhere within 16 bytes; so do those of the input."""
    where = {"backend": backend, "variant": variant}
    widths = (1, 2, 3, 7, 8, 9) if backend == "sim" else range(1, 20)
    for dtype in (np.uint8, np.uint16, np.float32, np.float64):
        for width in widths:
            memory = whole((2 * 3 * (width + 3) + 1,), dtype)
            for offset in (0, 1):
                wide = memory[offset : offset + 6 * (width + 3)].reshape(1, 2, 3, width + 3)
                x = wide[..., :width]
                got = upsample_nearest(x, scale=2.0, **where)
                np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
                back = upsample_nearest_backward(got, x.shape, scale=2.0, **where)
                np.testing.assert_array_equal(back, (4 * x.astype(dtype)).astype(dtype))


@each_variant
def test_planes_and_rows_in_any_order(backend: str, variant: str) -> None:
    """Contiguous rows, evenly spaced or not: backwards, every other one, axes swapped."""
    where = {"backend": backend, "variant": variant}
    for dtype in (np.uint8, np.float16, np.float32, np.float64, np.complex64):
        base = whole((2, 4, 6, 16), dtype)
        views = (
            base[:, :, ::-1],
            base[:, ::-1, ::-1],
            base[::-1, ::-1, ::-1],
            base[:, :, ::2],
            base[:, ::2],
            base[:, 1:3, 1:5],
            base.transpose(1, 0, 2, 3),
            base.transpose(0, 2, 1, 3),
            np.broadcast_to(base[:, :1], base.shape),
            np.broadcast_to(base[:, :, :1], base.shape),
        )
        for x in views:
            got = upsample_nearest(x, scale=2.0, **where)
            np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
            if x.shape[2] % 2 == 0:
                shape = (*x.shape[:2], x.shape[2] // 2, 8)
                back = upsample_nearest_backward(x, shape, scale=2.0, **where)
                want = x[..., ::2] + x[..., 1::2]
                want = want[:, :, ::2] + want[:, :, 1::2]
                np.testing.assert_array_equal(back, want)


@pytest.mark.parametrize("variant", ["v0", "v2"])
def test_more_rows_than_a_grid_is_high(variant: str) -> None:
    """70,000 planes and 70,000 rows: the kernels do not use the y or z of a grid."""
    for shape in ((1, 70_000, 1, 2), (1, 1, 70_000, 2)):
        x = np.arange(140_000, dtype=np.int32).reshape(shape)
        got = upsample_nearest(x, scale=(1.0, 2.0), backend="sim", variant=variant)
        np.testing.assert_array_equal(got, x.repeat(2, 3))


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    x = whole((1, 2, 3, 5))
    want = x.repeat(2, 2).repeat(2, 3)
    base = np.full((1, 2, 13, 21), 99, np.float32)
    for out in (
        np.empty_like(want),
        np.empty((1, 2, 10, 6), np.float32).transpose(0, 1, 3, 2),
        np.empty_like(want)[..., ::-1, ::-1],
        np.empty(want.shape, ">f4"),
        np.empty(want.size + 1, np.float32)[1:].reshape(want.shape),
        base[..., 1::2, 1::2],
    ):
        got = upsample_nearest(x, scale=2.0, out=out, **where)
        assert got is out
        np.testing.assert_array_equal(out, want)
    base[..., 1::2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"
    dx = np.full((1, 2, 5, 9), 99, np.float32)
    out = dx[..., 1:4, 2:7]
    assert upsample_nearest_backward(want, x.shape, scale=2.0, out=out, **where) is out
    np.testing.assert_array_equal(out, 4 * x)
    out[...] = 99
    assert (dx == 99).all(), "wrote beside out"


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """n = 1..70: channel k has its nan at position k, forward and backward."""
    where = {"backend": backend, "variant": variant}
    slow = backend == "sim"
    lengths = (1, 2, 7, 33) if slow and dtype != "float32" else range(1, 71, 3 if slow else 1)
    for n in lengths:
        x = np.ones((1, n + 1, n), dtype_of(dtype))
        k = np.arange(n)
        x[0, k, k] = np.nan
        got = upsample_nearest(x, scale=2.0, **where).astype(np.float32)[0]
        want = x.astype(np.float32)[0].repeat(2, 1)
        np.testing.assert_array_equal(got, want)
        odd = upsample_nearest_backward(x, (1, n + 1, n), scale=1.0, **where)
        np.testing.assert_array_equal(odd.astype(np.float32), x.astype(np.float32))
        dy = np.ones((1, n + 1, 2 * n), dtype_of(dtype))
        dy[0, k, 2 * k + k % 2] = np.nan
        back = upsample_nearest_backward(dy, (1, n + 1, n), scale=2.0, **where)
        np.testing.assert_array_equal(back.astype(np.float32), 2 * x.astype(np.float32))


@each_variant
def test_bits_are_moved_as_they_are(backend: str, variant: str) -> None:
    """Signalling nan, negative zero, denormals: a copy keeps their bits."""
    where = {"backend": backend, "variant": variant}
    for bits, dtype in (
        (np.uint16, BFLOAT16),
        (np.uint16, np.float16),
        (np.uint32, np.float32),
    ):
        top = 8 * np.dtype(bits).itemsize - 1
        odd = [1, 1 << top, (1 << top) + 1, (0x7F << (top - 7)) | 0x81]
        x = np.array(odd * 4, bits).view(dtype).reshape(1, 2, 8)
        got = upsample_nearest(x, scale=2.0, **where)
        np.testing.assert_array_equal(got.view(bits), x.view(bits).repeat(2, 2))


@each_variant
def test_sums_of_whole_numbers_wrap_around(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64):
        dy = np.full((1, 1, 2, 16), np.iinfo(dtype).max, dtype)
        got = upsample_nearest_backward(dy, (1, 1, 1, 8), scale=2.0, **where)
        with np.errstate(over="ignore"):
            want = dy.reshape(2, 8, 2).sum((0, 2), dtype=dtype)
        np.testing.assert_array_equal(got[0, 0, 0], want)


@each_variant
def test_what_nothing_comes_from_is_zero(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    out = np.full((1, 1, 4, 8), np.nan, np.float32)
    dy = np.ones((1, 1, 2, 4), np.float32)
    got = upsample_nearest_backward(dy, out.shape, scale=0.5, out=out, **where)
    want = np.zeros((4, 8), np.float32)
    want[::2, ::2] = 1
    np.testing.assert_array_equal(got[0, 0], want)


@each_variant
def test_an_empty_batch(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    x = np.empty((0, 2, 3, 4), np.float32)
    got = upsample_nearest(x, scale=2.0, **where)
    assert got.shape == (0, 2, 6, 8)
    assert upsample_nearest_backward(got, x.shape, scale=2.0, **where).shape == x.shape


# ---- accuracy ----


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_adversarial_sums(backend: str, variant: str, dtype: str, figure: Figure) -> None:
    """Large terms that cancel, in sums of 4, 9, 49 and more terms."""
    rng = np.random.default_rng(11)
    big = {"float16": 3e4, "bfloat16": 1e30, "float32": 1e8, "float64": 1e16}[dtype]
    worst = 0.0
    for scale in (2.0, 3.0, 7.0, 2.5):
        n = int(8 * scale)
        dy = rng.standard_normal((1, 2, n, n))
        dy[..., ::2] += big * rng.choice([-1, 1], dy[..., ::2].shape)
        narrow = dy.astype(dtype_of(dtype))
        expected = expect_backward_values(narrow, input_shape=(1, 2, 8, 8), scale=scale)
        got = upsample_nearest_backward(
            narrow, (1, 2, 8, 8), scale=scale, backend=backend, variant=variant
        )
        assert expected.compare(got) is None, scale
        finite = np.isfinite(expected.value)
        error = np.abs(got.astype(expected.value.dtype)[finite] - expected.value[finite])
        assert expected.tolerance is not None
        worst = max(worst, float((error / expected.tolerance[finite]).max()))
    figure(
        f"upsample_nearest_backward {backend} {variant} {dtype}", f"{worst:.0%} of the bound"
    )


def test_runs_of_a_cpu_end_anywhere() -> None:
    """Every width, runs of one length, of two in turns and of any, and packed pixels."""
    rng = np.random.default_rng(6)
    sizes = [(width, 1, scale) for width in range(1, 70) for scale in (0.5, 1.5, 2.0, 2.7, 3.0)]
    sizes += [(width, 1, scale) for width in (511, 513, 700) for scale in (0.5, 1.5, 3.0, 4.0)]
    sizes += [(9, c, scale) for c in (2, 3, 7, 20, 511, 513) for scale in (1.5, 2.0, 5.0)]
    sizes += [(1, 1, 5000.0), (3, 20, 300.0)]
    for at, (width, channels, scale) in enumerate(sizes):
        out = int(width * scale)
        if out == 0:
            continue
        dtype = ("float16", "float32", "float64", "int16", "complex64")[at % 5]
        dy = (50 * rng.standard_normal((1, 3, out, channels))).astype(dtype)
        found = {
            upsample_nearest_backward(
                dy,
                (1, 3, width, channels),
                scale=(1.0, scale),
                layout="NHWC",
                backend="cpu",
                variant=variant,
            ).tobytes()
            for variant in ("scalar", "simd", "threads")
        }
        assert len(found) == 1, (width, channels, scale, dtype)


def test_short_rows_of_a_cpu_are_added_together() -> None:
    """Rows of one plane, of planes of one row and of one image, of any runs."""
    rng = np.random.default_rng(8)
    shapes = [
        (5, 7, 9),
        (70, 1, 8),
        (2, 3, 11, 6),
        (3, 2, 40, 1),
        (2, 2, 3, 5, 7),
        (1, 2, 2, 300),
    ]
    scales = (2.0, 1.5, 2.7, 0.5, 4.0)
    for at, (shape, first, last) in enumerate(itertools.product(shapes, scales, scales)):
        scale = (first,) * (len(shape) - 3) + (last,)
        out = [int(n * by) for n, by in zip(shape[2:], scale, strict=True)]
        if min(out) == 0:
            continue
        dtype = ("float16", "float32", "float64", "int16", "complex64")[at % 5]
        dy = (50 * rng.standard_normal((*shape[:2], *out))).astype(dtype)
        for view in (dy, np.repeat(dy, 2, axis=1)[:, ::2]):
            found = {
                upsample_nearest_backward(
                    view, shape, scale=scale, backend="cpu", variant=variant
                ).tobytes()
                for variant in ("scalar", "simd", "threads")
            }
            assert len(found) == 1, (shape, scale, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_elements_that_a_cpu_copies_are_sums(dtype: str) -> None:
    """0 + -0 is 0, and a signalling nan becomes a quiet one, with each layout of dy."""
    quiet = {2: 0xFD01, 4: 0xFFA00001, 8: 0xFFF4000000000001}
    rng = np.random.default_rng(9)
    for shape, scale in [
        ((2, 3, 21, 9), 0.5),
        ((2, 3, 8, 10), (0.5, 1.0)),
        ((3, 2, 700), 0.8),
        ((1, 2, 5, 6, 7), 0.4),
        ((2, 40, 9, 7), 0.5),
    ]:
        by = scale if isinstance(scale, tuple) else (scale,) * (len(shape) - 2)
        size = (*shape[:2], *(int(n * k) for n, k in zip(shape[2:], by, strict=True)))
        dy = rng.standard_normal(size).astype(dtype_of(dtype))
        parts = dy.view(np.float32) if dtype == "complex64" else dy
        parts[rng.random(parts.shape) < 0.2] = -0.0
        nans = rng.random(parts.shape) < 0.1
        parts.view(f"u{parts.itemsize}")[nans] = quiet[parts.itemsize]
        last = len(shape) == 4
        given = np.ascontiguousarray(np.moveaxis(dy, 1, -1)) if last else dy
        wide = np.repeat(given, 2, axis=-1)[..., ::2]
        whole_shape = (shape[0], *shape[2:], shape[1]) if last else shape
        layout = "NHWC" if last else "NCHW"
        for view in (given, wide):
            found = {
                upsample_nearest_backward(
                    view, whole_shape, scale=scale, layout=layout, backend="cpu", variant=name
                ).tobytes()
                for name in ("scalar", "simd", "threads")
            }
            assert len(found) == 1, (shape, scale)


def test_all_variants_give_the_same_bits() -> None:
    rng = np.random.default_rng(5)
    for dtype in ("float16", "float32", "complex64"):
        for scale in (2.0, 1.7):
            n = int(9 * scale)
            dy = rng.standard_normal((2, 3, n, n)).astype(dtype)
            found = {
                upsample_nearest_backward(
                    dy, (2, 3, 9, 9), scale=scale, backend=backend, variant=variant
                ).tobytes()
                for backend, variant in variants()
            }
            assert len(found) == 1, (dtype, scale)


# ---- pinned bugs ----


@each_variant
def test_pinned_half_sums_do_not_overflow_on_the_way(backend: str, variant: str) -> None:
    """The published backward adds in the dtype: 60000 + 60000 is infinite in float16."""
    dy = np.array([[60000, 60000] * 8, [-60000, -60000] * 8], np.float16)[None, None]
    got = upsample_nearest_backward(
        dy, (1, 1, 1, 8), scale=2.0, backend=backend, variant=variant
    )
    np.testing.assert_array_equal(got, np.zeros((1, 1, 1, 8), np.float16))


@each_variant
def test_pinned_half_sums_round_once(backend: str, variant: str) -> None:
    """In float16 2048 + 1 is 2048 again, three times over."""
    dy = np.ones((1, 1, 2, 16), np.float16)
    dy[..., 0, ::2] = 2048
    got = upsample_nearest_backward(
        dy, (1, 1, 1, 8), scale=2.0, backend=backend, variant=variant
    )
    np.testing.assert_array_equal(got, np.full((1, 1, 1, 8), 2052, np.float16))


@each_variant
def test_pinned_the_tail_is_not_dropped(backend: str, variant: str) -> None:
    """The published grid is N / block: sizes below and beside a block's."""
    for n in (1, 255, 257, 511):
        x = np.arange(1, n + 1, dtype=np.int32)[None, None]
        got = upsample_nearest(x, scale=2.0, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, x.repeat(2, 2))
        back = upsample_nearest_backward(
            got, x.shape, scale=2.0, backend=backend, variant=variant
        )
        np.testing.assert_array_equal(back, 2 * x)


@each_variant
def test_pinned_the_planes_are_those_of_the_array(backend: str, variant: str) -> None:
    """The published main gives 1024 x 1024 for whatever N it has: many small planes."""
    x = whole((5, 7, 2, 3))
    got = upsample_nearest(x, scale=2.0, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))


# ---- large strides ----


@each_variant
def test_offsets_past_32_bits(backend: str, variant: str) -> None:
    """Two images 2**31 + 8 elements apart, with the memory between them never touched."""
    far = 2**31 + 8
    memory = np.zeros(far + 64, np.float16)
    memory[:24] = np.arange(24)
    memory[far : far + 24] = np.arange(24) + 100
    step = memory.itemsize
    where = {"backend": backend, "variant": variant}
    x = np.lib.stride_tricks.as_strided(
        memory, (2, 1, 3, 8), (far * step, far * step, 8 * step, step)
    )
    got = upsample_nearest(x, scale=2.0, **where)
    np.testing.assert_array_equal(got, x.repeat(2, 2).repeat(2, 3))
    back = upsample_nearest_backward(x, (2, 1, 3, 4), scale=(1.0, 2.0), **where)
    np.testing.assert_array_equal(back, x[..., ::2] + x[..., 1::2])


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
def test_a_row_that_reaches_past_32_bits(variant: str) -> None:
    """Elements of one row 2**30 apart: offsets in a row do not fit 32 bits."""
    far = 2**30
    memory = np.zeros(3 * far + 1, np.int8)
    memory[::far] = (1, 2, 3, 4)
    x = np.lib.stride_tricks.as_strided(memory, (1, 1, 4), (1, 1, far))
    got = upsample_nearest(x, scale=3.0, backend="cpu", variant=variant)
    np.testing.assert_array_equal(got[0, 0], np.repeat([1, 2, 3, 4], 3))
    back = upsample_nearest_backward(x, (1, 1, 2), size=4, backend="cpu", variant=variant)
    np.testing.assert_array_equal(back[0, 0], [3, 7])


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
def test_an_axis_past_32_bits(variant: str) -> None:
    """2**16 + 1 by 2**16 elements, windows over one short buffer, made 5 by 7."""
    rows, cols = 2**16 + 1, 2**16
    base = np.arange(rows + cols, dtype=np.uint32)
    x = np.lib.stride_tricks.sliding_window_view(base[:-1], cols)[None, None]
    got = upsample_nearest(x, size=(5, 7), backend="cpu", variant=variant)
    want = np.add.outer(sources(rows, 5, None, False), sources(cols, 7, None, False))
    np.testing.assert_array_equal(got[0, 0], want)


@pytest.mark.parametrize("variant", RUNGS)
def test_more_elements_than_a_grid_has_threads(variant: str) -> None:
    """A broadcast of 2**40 elements made 2 by 3; and 2**31 + 8 of them in one row."""
    where = {"backend": "sim", "variant": variant}
    x = np.broadcast_to(np.float32(7), (1, 1, 2**20, 2**20))
    got = upsample_nearest(x, size=(2, 3), **where)
    np.testing.assert_array_equal(got, np.full((1, 1, 2, 3), 7, np.float32))
    if variant != "v1":  # which has a thread for each of them
        x = np.broadcast_to(np.int8([[[1]], [[2]]]), (2, 1, 2**31 + 8))
        got = upsample_nearest(x, size=3, **where)
        np.testing.assert_array_equal(got[:, 0], [[1] * 3, [2] * 3])


# ---- shapes ----


def test_shapes_have_kernels_of_their_own() -> None:
    """Twice as high and wide is v2; rows of 16 bytes; whatever is left, and small results."""
    small = gpuopt.explain("upsample_nearest", whole((1, 2, 6, 16)), scale=3.0, backend="sim")
    assert small[0]["variant"] == "one_each"
    for shape, scale, forward, backward in (
        ((1, 2, 6, 16), 2.0, "v2", "v2"),
        ((1, 2, 6, 16), 3.0, "one_each", "whole_scales"),
        ((40, 20, 6, 16), 3.0, "aligned_rows", "whole_scales"),
        ((1, 2, 6, 16), (1.0, 2.0), "one_each", "aligned_rows"),
        ((1, 2, 16), 2.0, "one_each", "aligned_rows"),
        ((1, 2, 15), 2.0, "one_each", "long_rows"),
        ((40, 40, 6, 16), (1.0, 2.0), "aligned_rows", "aligned_rows"),
        ((1, 2, 6, 5), 3.0, "one_each", "whole_scales"),
        ((1, 2, 6, 5), 1.5, "one_each", "few_elements"),
        ((1, 2, 190), 1.5, "one_each", "long_rows"),
        ((1, 2, 190), 0.5, "one_each", "long_rows"),
        ((1, 2, 194), 1.5, "one_each", "long_rows"),
        ((1, 2, 6, 16), 0.5, "one_each", "small_scales"),
        ((1, 2, 6, 7), 3.3, "one_each", "contiguous_rows"),
        ((50, 100, 25, 30), 1.1, "any_rows", "contiguous_rows"),
        ((1, 2, 6, 16), (0.5, 1.5), "one_each", "few_elements"),
    ):
        x = whole(shape).astype(np.float16)
        y = upsample_nearest(x, scale=scale)
        row = gpuopt.explain("upsample_nearest", x, scale=scale, backend="sim")[0]
        assert row["variant"] == forward, (shape, scale)
        back = {"scale": scale, "backend": "sim"}
        row = gpuopt.explain("upsample_nearest_backward", y, shape, **back)[0]
        assert row["variant"] == backward, (shape, scale)
    for shape, variant in (((1, 2, 6, 5), "one_each"), ((40, 40, 60, 5), "any_rows")):
        row = gpuopt.explain("upsample_nearest", whole(shape), scale=1.1, backend="sim")[0]
        assert row["variant"] == variant
    for scale in (3, 4):  # an element each of few pixels
        small, large = np.zeros((1, 8, 8, 16), "f4"), np.zeros((1, 80, 80, 64), "f4")
        for dx, variant in ((small, "whole_scales"), (large, "aligned_rows")):
            dy = np.zeros((1, dx.shape[1] * scale, dx.shape[2] * scale, dx.shape[3]), "f4")
            how: dict[str, Any] = {"scale": scale, "layout": "NHWC", "backend": "sim"}
            row = gpuopt.explain("upsample_nearest_backward", dy, dx.shape, **how)[0]
            assert row["variant"] == variant
    shape = (1, 2, 6, 16)
    with pytest.raises(gpuopt.VariantError, match="small_scales"):
        options: dict[str, Any] = {"backend": "sim", "variant": "small_scales"}
        upsample_nearest_backward(y, shape, scale=(0.5, 1.5), **options)
    y = upsample_nearest(x, scale=0.5)
    with pytest.raises(gpuopt.VariantError, match="aligned_rows"):
        upsample_nearest(x, scale=0.5, backend="sim", variant="aligned_rows")
    with pytest.raises(gpuopt.VariantError, match="whole_scales"):
        options["variant"] = "whole_scales"
        upsample_nearest_backward(y, shape, scale=0.5, **options)
    wide = whole((1, 2, 9, 14))[..., ::2]  # columns that are not beside each other
    for dy, shape, variant in (
        (wide, (1, 2, 6, 5), "few_elements"),
        (np.zeros((50, 100, 27, 66), np.int8)[..., ::2], (50, 100, 25, 30), "any_rows"),
    ):
        scale = 1.5 if dy is wide else 1.1
        row = gpuopt.explain("upsample_nearest_backward", dy, shape, scale=scale, backend="sim")
        assert row[0]["variant"] == variant
    with pytest.raises(gpuopt.VariantError, match="contiguous_rows"):
        options["variant"] = "contiguous_rows"
        upsample_nearest_backward(wide, (1, 2, 6, 5), scale=1.5, **options)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("scale", range(1, 64))
def test_a_whole_scale_is_a_box_only_if_the_rule_agrees(scale: int, exact: bool) -> None:
    """1 / scale, rounded down, moves the first output of an element to the one before."""
    count = 97
    dy = np.arange(count * scale, dtype=np.float64).reshape(1, 1, -1)
    options: dict[str, Any] = {"scale": scale, "exact": exact}
    want = ref.upsample_nearest_backward(dy, (1, 1, count), **options)
    options["backend"] = "sim"
    got = upsample_nearest_backward(dy, (1, 1, count), **options)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_small_scales_give_each_element_one_output_or_none(dtype: str, exact: bool) -> None:
    """Of 1 to 3 axes, channels first and last, with sizes and with scales."""
    rng = np.random.default_rng(12)
    checked = 0
    for case in range(60):
        rank = case % 3 + 1
        shape = tuple(int(n) for n in rng.integers(1, (300, 40, 14)[rank - 1], rank))
        options: dict[str, Any] = {"exact": exact}
        if case % 2:
            options["scale"] = tuple(float(n) for n in rng.uniform(0.3, 1, rank))
        else:
            options["size"] = tuple(int(rng.integers(1, n + 1)) for n in shape)
        full = (2, 3, *shape)
        if case % 4 > 1 and rank == 2:
            full, options["layout"] = (2, *shape, 3), "NHWC"
        try:
            out = ref.upsample_nearest(np.zeros(full, np.int8), **options).shape
        except ValueError:
            continue  # a length of 0
        dy = rng.integers(1, 99, out).astype(dtype_of(dtype))
        want = ref.upsample_nearest_backward(dy, full, **options)
        options |= {"backend": "sim", "variant": "small_scales"}
        got = upsample_nearest_backward(dy, full, **options)
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"), str(options))
        checked += 1
    assert checked > 40


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_small_scales_that_are_powers_of_two(dtype: str, exact: bool) -> None:
    """x 0.5, 0.25 and 1 on each axis, rows shorter and longer than a pack; not 1 / 3."""
    rng = np.random.default_rng(13)
    for scale in ((0.5, 0.5), (1.0, 0.25), (0.25, 0.5), (0.5, 1 / 3)):
        for shape in ((3, 5, 7, 6), (2, 3, 4, 3), (1, 2, 9, 40), (2, 1, 33, 61)):
            for layout in ("NCHW", "NHWC"):
                full = shape if layout == "NCHW" else (shape[0], *shape[2:], shape[1])
                options: dict[str, Any] = {"exact": exact, "scale": scale, "layout": layout}
                try:
                    out = ref.upsample_nearest(np.zeros(full, np.int8), **options).shape
                except ValueError:
                    continue  # a length of 0
                dy = rng.integers(1, 99, out).astype(dtype_of(dtype))
                want = ref.upsample_nearest_backward(dy, full, **options)
                given = np.empty(want.size + 1, want.dtype)[1:].reshape(want.shape)
                where = {"backend": "sim", "variant": "small_scales"}
                got = upsample_nearest_backward(dy, full, **options, **where)
                np.testing.assert_array_equal(got, want, str(options))
                upsample_nearest_backward(dy, full, **options, **where, out=given)
                np.testing.assert_array_equal(given, want, str(options))
    for size in (2, 4, 7):
        dy = rng.integers(1, 99, (1, 1, size)).astype(dtype_of(dtype))
        want = ref.upsample_nearest_backward(dy, (1, 1, 4 * size), size=size, exact=exact)
        got = upsample_nearest_backward(
            dy, (1, 1, 4 * size), size=size, exact=exact, backend="sim", variant="small_scales"
        )
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_few_elements_of_any_scale(dtype: str, exact: bool) -> None:
    """Scales below and above 1 on 1 to 3 axes, both layouts, gaps in dy."""
    rng = np.random.default_rng(14)
    where: dict[str, Any] = {"backend": "sim", "variant": "few_elements"}
    for case in range(40):
        rank = case % 3 + 1
        shape = tuple(int(n) for n in rng.integers(1, (90, 20, 8)[rank - 1], rank))
        options: dict[str, Any] = {"exact": exact}
        if case % 2:
            options["scale"] = tuple(float(n) for n in rng.uniform(0.4, 3.5, rank))
        else:
            options["size"] = tuple(int(rng.integers(1, 3 * n + 1)) for n in shape)
        full = (2, 3, *shape)
        if case % 4 > 1 and rank == 2:
            full, options["layout"] = (2, *shape, 3), "NHWC"
        try:
            out = ref.upsample_nearest(np.zeros(full, np.int8), **options).shape
        except ValueError:
            continue  # a length of 0
        dy = rng.integers(1, 4, (*out[:-1], 2 * out[-1])).astype(dtype_of(dtype))
        for part in (dy[..., ::2], dy[..., ::2].copy()):
            want = ref.upsample_nearest_backward(part, full, **options)
            got = upsample_nearest_backward(part, full, **options, **where)
            np.testing.assert_array_equal(got, want, str(options))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_one_each_of_small_results(dtype: str) -> None:
    """1 to 3 axes, both layouts, gaps in x, an `out` off 16 bytes."""
    where: dict[str, Any] = {"backend": "sim", "variant": "one_each"}
    for shape, scale in (((2, 3, 23, 17), 0.5), ((1, 2, 7, 9), (1.5, 2.7)), ((3, 5, 11), 2.0),
                         ((2, 3, 4, 5, 6), (0.5, 2.0, 1.3))):  # fmt: skip
        x = whole(shape, dtype)
        for part in (x, x[:, ::2], x[..., ::-1]):
            want = ref.upsample_nearest(part, scale=scale)
            np.testing.assert_array_equal(upsample_nearest(part, scale=scale, **where), want)
            out = np.empty(want.size + 1, want.dtype)[1:].reshape(want.shape)
            upsample_nearest(part, scale=scale, out=out, **where)
            np.testing.assert_array_equal(out, want)
    x = whole((2, 5, 7, 3), dtype)
    options: dict[str, Any] = {"size": (3, 9), "layout": "NHWC"}
    want = ref.upsample_nearest(x, **options)
    np.testing.assert_array_equal(upsample_nearest(x, **options, **where), want)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize(
    ("shape", "scale"),
    [((2, 6, 40, 70), 3.0), ((4, 7, 40, 70), (2.5, 1.5)), ((1, 2, 9, 15, 41), 3.0)],
)
def test_long_rows_are_copies_of_a_row(dtype: str, shape: Any, scale: Any) -> None:
    """A warp stores an element to each of them: views, and results that begin anywhere."""
    x = whole(shape, dtype)
    for part in (x, x[:, ::-1], x.swapaxes(-1, -2).copy().swapaxes(-1, -2)):
        want = ref.upsample_nearest(part, scale=scale)
        assert want.size >= 2**18
        out = np.empty(want.size + 1, want.dtype)[1:].reshape(want.shape)
        upsample_nearest(part, scale=scale, out=out, backend="sim", variant="any_rows")
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("scale", [(4.0, 4.0), (2.0, 2.0), (3.0, 1.5)])
@pytest.mark.parametrize("width", [5, 6, 10])
def test_units_of_short_rows_follow_on_end(width: int, scale: tuple[float, float]) -> None:
    """Few rows, of which a thread has one, and so many that it has several far apart."""
    for planes in (3, 2000):
        x = whole((2, planes, 11, width))
        want = ref.upsample_nearest(x, scale=scale)
        np.testing.assert_array_equal(upsample_nearest(x, scale=scale, backend="sim"), want)
        back = ref.upsample_nearest_backward(want, x.shape, scale=scale)
        for variant in ("auto", "any_rows"):
            got = upsample_nearest_backward(
                want, x.shape, scale=scale, backend="sim", variant=variant
            )
            np.testing.assert_array_equal(got, back)


def views_of(dy: np.ndarray[Any, Any], channel: int) -> Iterator[np.ndarray[Any, Any]]:
    """dy where it begins at any byte, rows and planes lie apart, backwards, or are one."""
    memory = np.empty(dy.size + 1, dy.dtype)
    memory[1:] = dy.ravel()
    yield memory[1:].reshape(dy.shape)
    for grown in (2, dy.ndim - 2):
        wide = np.empty([n + (k == grown) for k, n in enumerate(dy.shape)], dy.dtype)
        wide = wide[tuple(slice(n) for n in dy.shape)]
        wide[...] = dy
        yield wide
    yield dy[::-1]
    yield np.flip(dy, 1)
    swapped = np.empty((dy.shape[1], dy.shape[0], *dy.shape[2:]), dy.dtype).swapaxes(0, 1)
    swapped[...] = dy
    yield swapped
    axis = 1 if channel > 1 else 2
    yield np.broadcast_to(np.take(dy, [0], axis), dy.shape)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_contiguous_rows_give_the_bits_of_the_scalar_loop(dtype: str) -> None:
    """Tiles of planes, slices, rows and columns, at any scale, of dy as it lies."""
    rng = np.random.default_rng(21)
    shapes: tuple[tuple[tuple[int, ...], Any], ...] = (
        ((3, 2, 9000), 1.5),  # columns
        ((2, 3, 61, 170), (1.5, 2.7)),  # rows
        ((2, 3, 9, 20, 33), (1.5, 2.7, 1.2)),  # rows of slices
        ((2, 2, 20, 5, 6), (1.5, 2.0, 9.1)),  # slices
        ((20, 30, 4, 3), (1.3, 2.7)),  # planes
        ((2, 3, 40, 7), (0.4, 1.5)),
        ((2, 3, 7, 40), (1.5, 0.4)),
        ((1, 2, 3000, 1), (1.7, 1.0)),
        ((2, 3, 5, 4), (33.3, 7.1)),
    )
    for turn, (shape, scale) in enumerate(shapes):
        for channels in (None, 3, 40)[: 2 + turn % 2]:
            full = shape if channels is None else (shape[0], *shape[2:], channels)
            options: dict[str, Any] = {"scale": scale, "exact": turn % 2 == 0}
            if channels is not None:
                options["layout"] = "NHWC"
            out = output_shape(full, tuple(options.items()))
            if np.prod(out) > 400_000 or (channels and scale == (33.3, 7.1)):
                continue
            dy = (rng.standard_normal(out) * 9).astype(dtype)
            for view in [dy, *(views_of(dy, 1 if channels is None else len(out) - 1))]:
                want = upsample_nearest_backward(
                    view, full, backend="cpu", variant="scalar", **options
                )
                options |= {"backend": "sim", "variant": "contiguous_rows"}
                try:
                    got = upsample_nearest_backward(view, full, **options)
                except gpuopt.VariantError:
                    assert view is not dy, (full, options)
                    continue
                finally:
                    del options["backend"], options["variant"]
                assert got.tobytes() == want.tobytes(), (full, options, view.strides)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_long_rows_give_the_bits_of_the_scalar_loop(dtype: str) -> None:
    """Columns and rows around those of a block, at any scale, of dy as it lies."""
    rng = np.random.default_rng(23)
    where: dict[str, Any] = {"backend": "sim", "variant": "long_rows"}
    for turn, (shape, scale) in enumerate(
        (((3, 7, 257), 1.5), ((1, 1, 700), 2.7), ((5, 41, 40), 7.3), ((2, 3, 512), 0.6))
    ):
        options: dict[str, Any] = {"scale": scale, "exact": turn % 2 == 0}
        out = output_shape(shape, tuple(options.items()))
        dy = (rng.standard_normal(out) * 9).astype(dtype_of(dtype))
        for view in (dy, dy[:1], dy[:1, ::-1], np.broadcast_to(dy[:1, :1], dy.shape)):
            full = (*view.shape[:2], shape[2])
            want = upsample_nearest_backward(
                view, full, backend="cpu", variant="scalar", **options
            )
            got = upsample_nearest_backward(view, full, **options, **where)
            assert got.tobytes() == want.tobytes(), (full, options, view.strides)
    other: tuple[int, ...]
    for other in ((2, 3, 4, 9), (2, 3, 4, 5, 9)):
        with pytest.raises(gpuopt.VariantError, match="long_rows"):
            upsample_nearest_backward(np.ones(other, "f"), other, scale=1.0, **where)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int8", "int64", "complex64"]
)
def test_pairs_on_end_give_the_bits_of_the_scalar_loop(dtype: str) -> None:
    """Rows of any length, of which only the whole is in words of 16 bytes; views with gaps."""
    rng = np.random.default_rng(3)
    where: dict[str, Any] = {"scale": 2.0, "backend": "sim", "variant": "aligned_rows"}
    for shape in ((2, 8, 10), (4, 4, 51), (2, 4, 1024), (1, 1, 8192), (16, 2, 3001)):
        wide = (*shape[:-1], 2 * shape[-1])
        dy = rng.integers(-5, 6, (2 * shape[0], *wide[1:])).astype(dtype)
        for part in (dy[: shape[0]], dy[::2]):
            want = upsample_nearest_backward(
                part, shape, scale=2.0, backend="cpu", variant="scalar"
            )
            try:
                got = upsample_nearest_backward(part, shape, **where)
            except gpuopt.VariantError:  # rows that are in no words of 16 bytes
                continue
            np.testing.assert_array_equal(got, want)
    shape = (3, 1, 4096)
    dy = rng.integers(-5, 6, (3, 1, 8192)).astype(dtype)
    out = np.zeros(shape[0] * 4096 + 1, dtype)[1:].reshape(shape)
    upsample_nearest_backward(dy, shape, scale=2.0, backend="sim", out=out)
    want = upsample_nearest_backward(dy, shape, scale=2.0, backend="cpu", variant="scalar")
    np.testing.assert_array_equal(out, want)


def test_first_outputs_by_three_steps() -> None:
    """A gradient of ones counts the outputs of each element, near 2^20 of them, too."""
    rng = np.random.default_rng(22)
    lengths = [
        (2**20 - 1, 2**19 + 3),
        (2**20 - 2, 700_001),
        (1_000_003, 30_011),
        (999_999, 999_998),
    ]
    lengths += [(int(n), int(m)) for n, m in rng.integers(1, 3000, (60, 2))]
    for size, n in lengths:
        for exact in (False, True):
            options: dict[str, Any] = {"size": size, "exact": exact, "backend": "sim"}
            want = np.bincount(ref.upsample_sources(n, size, None, exact), minlength=n)
            for variant, dt in (("contiguous_rows", "int32"), ("long_rows", "float64")):
                dy = np.ones((1, 1, size), dt)
                got = upsample_nearest_backward(dy, (1, 1, n), variant=variant, **options)
                np.testing.assert_array_equal(got[0, 0], want, err_msg=str((n, size, exact)))
    with pytest.raises(gpuopt.VariantError, match="contiguous_rows"):
        options |= {"size": 2**20, "variant": "contiguous_rows"}
        upsample_nearest_backward(np.ones((1, 1, 2**20), np.int32), (1, 1, 5), **options)


# ---- the simulator: counts and faults ----

# Kernels, their requests to global memory and the sectors of those: (1, 2, 6, 16) made
# twice as high and wide in float32, and back.
GOLDEN: dict[str, dict[str, tuple[int, int, int]]] = {
    "upsample_nearest": {"v0": (1, 48, 144), "v1": (1, 18, 120), "v2": (1, 9, 120)},
    "upsample_nearest_backward": {"v0": (1, 30, 216), "v1": (1, 18, 120), "v2": (1, 9, 120)},
}


def counts(op: str, rung: str) -> tuple[int, int, int]:
    x = whole((1, 2, 6, 16))
    args: tuple[Any, ...] = (x,)
    if op == "upsample_nearest_backward":
        args = (whole((1, 2, 12, 32)), x.shape)
    kernels = profile(op, *args, scale=2.0, variant=rung)[rung]
    return (
        len(kernels),
        sum(k.global_requests for k in kernels),
        sum(k.global_sectors for k in kernels),
    )


@pytest.mark.parametrize("op", ["upsample_nearest", "upsample_nearest_backward"])
def test_golden_counts(op: str) -> None:
    assert {rung: counts(op, rung) for rung in RUNGS} == GOLDEN[op]


@pytest.mark.parametrize("rung", RUNGS)
def test_every_failure_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    x = whole((1, 2, 3, 5))
    want = x.repeat(2, 2).repeat(2, 3)
    before = None
    for step in range(50):
        simulator(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = upsample_nearest(x, scale=2.0, variant=rung, backend="sim")
            back = upsample_nearest_backward(
                want, x.shape, scale=2.0, variant=rung, backend="sim"
            )
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            simulator(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            again = upsample_nearest(x, scale=2.0, variant=rung, backend="sim")
            np.testing.assert_array_equal(again, want)
            continue
        break
    assert 3 <= step < 49
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(back, 4 * x)
