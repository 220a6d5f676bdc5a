"""max_pool3d beyond the matrix: PyTorch's rules, special values, the gradient, bugs pinned.

Order: output sizes, which element is the maximum, windows of all kinds, out=, pinned bugs,
cost independent of the kernel's size, the CPU's own cases, the gradient: indices, windows,
gradcheck; large
indices, the simulator: checks, counts, failures.  See test_contract.py for values on all
sizes, layouts and dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.max_pool3d import gradient_bound
from conftest import Figure, run_child

import gpuopt
from gpuopt import (
    _core,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_pool3d_backward,
    ref,
)
from gpuopt.lab.profile import profile


def variants(op: str) -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes the calls below.

    v6 falls back to wide_windows, so tests of v6 run both.
    """
    usable, any_windows = _core.backends(), op == "max_pool3d"
    return [
        (row["backend"], row["name"])
        for row in _core.variants(op)
        if row["available"] and usable[row["backend"]] is None
        if not row["shape"] or (any_windows and row["name"] == "any_windows")
    ]


POOL, GRADIENT = variants("max_pool3d"), variants("max_pool3d_backward")
each_variant = pytest.mark.parametrize(("backend", "variant"), POOL)
# any_windows counts in 31 bits.
WITHOUT_LIMITS = [at for at in POOL if at[1] != "any_windows"]
each_without_limits = pytest.mark.parametrize(("backend", "variant"), WITHOUT_LIMITS)
each_gradient = pytest.mark.parametrize(("backend", "variant"), GRADIENT)
RUNGS = [name for backend, name in POOL if backend == "sim"]
GRADIENT_RUNGS = [name for backend, name in GRADIENT if backend == "sim"]
FLOATS = ("float16", "bfloat16", "float32", "float64")


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure; restores the settings afterwards."""
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


def whole(shape: tuple[int, ...], seed: int = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-99, 100, shape).astype(np.float32)


# ---- output sizes ----

# Length, kernel, stride, padding, dilation: windows, and with ceil_mode; worked out from
# the rule in PyTorch's Pool.h.
SIZES = (
    (8, 2, 2, 0, 1, 4, 4),
    (7, 2, 2, 0, 1, 3, 4),
    (8, 3, 2, 0, 1, 3, 4),
    (8, 3, 2, 1, 1, 4, 5),
    (9, 3, 2, 1, 1, 5, 5),
    (5, 3, 3, 1, 1, 2, 2),
    (4, 2, 3, 1, 1, 2, 2),
    (3, 2, 3, 1, 1, 2, 2),
    (6, 1, 3, 0, 1, 2, 2),
    (7, 1, 4, 0, 1, 2, 2),
    (10, 3, 2, 0, 2, 3, 4),
    (8, 8, 1, 0, 1, 1, 1),
    (2, 4, 1, 2, 1, 3, 3),
    (1, 3, 5, 1, 1, 1, 1),
)


@pytest.mark.parametrize(("n", "k", "s", "p", "d", "down", "up"), SIZES)
def test_the_number_of_windows(
    n: int, k: int, s: int, p: int, d: int, down: int, up: int
) -> None:
    x = np.arange(n, dtype=np.float32)[None]
    for ceil_mode, want in ((False, down), (True, up)):
        y = max_pool1d(x, k, s, p, d, ceil_mode)
        assert y.shape == (1, want), ceil_mode


def test_the_stride_is_the_kernel_unless_given() -> None:
    x = whole((1, 6, 8, 10))
    np.testing.assert_array_equal(max_pool3d(x, (2, 4, 5)), max_pool3d(x, (2, 4, 5), (2, 4, 5)))


def test_views_of_lower_rank() -> None:
    x = whole((2, 3, 9, 11))
    y, index = max_pool2d(x, 3, 2, 1, return_indices=True)
    y3, index3 = max_pool3d(x[:, :, None], (1, 3, 3), (1, 2, 2), (0, 1, 1), return_indices=True)
    np.testing.assert_array_equal(y, y3[:, :, 0])
    np.testing.assert_array_equal(index, index3[:, :, 0])
    y, index = max_pool1d(x[0], 4, 3, 2, return_indices=True)
    y3, index3 = max_pool2d(x[0][:, :, None], (1, 4), (1, 3), (0, 2), return_indices=True)
    np.testing.assert_array_equal(y, y3[:, :, 0])
    np.testing.assert_array_equal(index, index3[:, :, 0])


def test_every_integer_dtype_is_exact() -> None:
    for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        info = np.iinfo(name)
        x = np.array([[info.min, info.max, info.min, info.min, info.max - 1, 0]], name)
        for backend, variant in POOL:
            row = [r for r in _core.variants("max_pool3d") if r["name"] == variant]
            if name not in row[0]["dtypes"]:
                continue
            where: dict[str, Any] = {"backend": backend, "variant": variant}
            y, index = max_pool1d(x, 3, 1, return_indices=True, **where)
            assert y.dtype == name
            assert y.tolist() == [[info.max, info.max, info.max - 1, info.max - 1]]
            assert index.tolist() == [[1, 1, 4, 4]]


# ---- which element is the maximum ----


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """Windows of n = 1..70: row k has its nan at k, the last row none."""
    lengths = (1, 2, 8, 31, 33, 70) if backend == "sim" else range(1, 71)
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in lengths:
        x = np.tile(np.arange(n), (n + 1, 1)).astype(dtype_of(dtype))
        x[np.arange(n), np.arange(n)] = np.nan
        y, index = max_pool1d(x, n, return_indices=True, **options)
        assert np.isnan(y[:n, 0].astype(np.float32)).all(), n
        assert float(y[n, 0]) == n - 1
        assert index[:, 0].tolist() == [*range(n), n - 1]
        y = max_pool1d(x, n, **options)
        assert np.isnan(y[:n, 0].astype(np.float32)).all(), n
        assert float(y[n, 0]) == n - 1


@each_variant
def test_nan_at_every_position_of_a_cube(backend: str, variant: str) -> None:
    for side in (2, 3) if backend == "sim" else (2, 3, 4):
        n = side**3
        x = np.zeros((n, side, side, side), np.float32)
        x.reshape(n, n)[np.arange(n), np.arange(n)] = np.nan
        x[:, 0, 0, 0] = np.where(np.arange(n) == 0, np.nan, np.inf)
        y, index = max_pool3d(x, side, return_indices=True, backend=backend, variant=variant)
        assert np.isnan(y).all()
        assert index.ravel().tolist() == list(range(n))


@each_variant
def test_the_last_nan_and_the_first_maximum(backend: str, variant: str) -> None:
    """PyTorch's `val > max || isnan(val)`, over rows, slices and both zeros."""
    options: dict[str, Any] = {
        "return_indices": True,
        "backend": backend,
        "variant": variant,
    }
    nan, inf = np.nan, np.inf
    x = np.zeros((6, 2, 2, 2), np.float32).reshape(6, 8)
    x[0] = [1, nan, 5, nan, 2, nan, 9, 9]
    x[1] = nan
    x[2] = -inf
    x[3] = [3, 7, 7, 1, 7, 2, 2, 7]
    x[4] = [-0.0, 0.0, -0.0, 0.0, -1, -1, -1, -1]
    x[5] = [-inf, -inf, 5, -inf, inf, inf, 1, 1]
    y, index = max_pool3d(x.reshape(6, 2, 2, 2), 2, **options)
    assert index.ravel().tolist() == [5, 7, 0, 1, 0, 4]
    np.testing.assert_array_equal(y.ravel(), [nan, nan, -inf, 7, 0, inf])
    wide = np.tile(x[:, :4], (1, 3))  # overlapping windows along one axis
    y, index = max_pool1d(wide, 5, 1, **options)
    want = ref.max_pool1d(wide, 5, 1, return_indices=True)
    np.testing.assert_array_equal(y, want[0])
    np.testing.assert_array_equal(index, want[1])


@each_variant
def test_a_window_outside_of_x(backend: str, variant: str) -> None:
    """Dilation steps over a short axis: no element, so -inf and -1."""
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for dtype, least in (("float32", -np.inf), ("float16", -np.inf), ("int32", -(2**31))):
        x = np.ones((2, 3), dtype)
        y, index = max_pool1d(x, 2, 1, 1, 4, return_indices=True, **options)
        assert y.tolist() == [[least]] * 2
        assert index.tolist() == [[-1]] * 2
        assert max_pool1d(x, 2, 1, 1, 4, **options).tolist() == [[least]] * 2


# ---- windows of all kinds ----


@each_variant
def test_random_windows(backend: str, variant: str) -> None:
    rng = np.random.default_rng(7)
    count = 12 if backend == "sim" else 150
    for _ in range(count):
        shape = tuple(int(n) for n in rng.integers(1, 10, 3))
        kernel = tuple(int(n) for n in rng.integers(1, 7, 3))
        options = {
            "kernel_size": kernel,
            "stride": tuple(int(n) for n in rng.integers(1, 4, 3)),
            "padding": tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel),
            "dilation": tuple(int(n) for n in rng.integers(1, 4, 3)),
            "ceil_mode": bool(rng.integers(2)),
            "return_indices": True,
        }
        x = rng.integers(-3, 4, (2, *shape)).astype(np.float32)
        x[rng.random(x.shape) < 0.05] = np.nan
        try:
            want = ref.max_pool3d(x, **options)
        except ValueError:
            with pytest.raises(ValueError, match="too small"):
                max_pool3d(x, **options, backend=backend, variant=variant)
            continue
        got = max_pool3d(x, **options, backend=backend, variant=variant)
        np.testing.assert_array_equal(got[0], want[0], err_msg=str((shape, options)))
        np.testing.assert_array_equal(got[1], want[1], err_msg=str((shape, options)))


@each_variant
def test_kernels_larger_than_x(backend: str, variant: str) -> None:
    x = whole((2, 3, 4, 5))
    for kernel, padding in (((6, 8, 10), (3, 4, 5)), ((5, 4, 9), (2, 0, 2))):
        want = ref.max_pool3d(x, kernel, 1, padding, return_indices=True)
        got = max_pool3d(
            x, kernel, 1, padding, return_indices=True, backend=backend, variant=variant
        )
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    x = whole((2, 4, 4, 6))
    want = ref.max_pool3d(x, 2, return_indices=True)
    shape = want[0].shape
    base = np.full((5, 5, 5, 7), 99, np.float32)
    places = (slice(1, 5, 2), slice(1, 5, 2), slice(1, 5, 2), slice(1, 7, 2))
    for y, index in (
        (np.empty(shape, np.float32), np.empty(shape, np.int64)),
        (np.empty(shape[::-1], np.float32).T, np.empty(shape, ">i8")),
        (base[places], np.empty(shape, np.int64)[..., ::-1]),
    ):
        got = max_pool3d(
            x, 2, return_indices=True, out=(y, index), backend=backend, variant=variant
        )
        assert got[0] is y
        assert got[1] is index
        np.testing.assert_array_equal(y, want[0])
        np.testing.assert_array_equal(index, want[1])
    base[places] = 99
    assert (base == 99).all(), "wrote beside out"


# ---- pinned bugs ----


@each_variant
def test_pinned_planes_beyond_a_grid(backend: str, variant: str) -> None:
    """The published rung puts N * C into grid z: (128, 512, ...) passes 65,535."""
    x = np.zeros((65_600, 1, 1, 2), np.float32)
    x[-1, 0, 0, 1] = 5
    got = max_pool3d(x, (1, 1, 2), backend=backend, variant=variant)
    assert got.shape == (65_600, 1, 1, 1)
    assert got[-1, 0, 0, 0] == 5
    assert not got[:-1].any()


@each_variant
def test_pinned_widths_beyond_a_block(backend: str, variant: str) -> None:
    """The published rung has 1,024 threads along w and no loop: it drops the rest."""
    x = np.arange(2100, dtype=np.float32).reshape(1, 1, 1, 2100)
    got = max_pool3d(x, (1, 1, 2), 1, backend=backend, variant=variant)
    np.testing.assert_array_equal(got[0, 0, 0], np.arange(1, 2100))
    tall = x.reshape(1, 1, 2100, 1)
    got = max_pool3d(tall, (1, 2, 1), 1, backend=backend, variant=variant)
    np.testing.assert_array_equal(got[0, 0, :, 0], np.arange(1, 2100))


@each_variant
def test_pinned_threads_along_z(backend: str, variant: str) -> None:
    """The published rung asks for as many as 1,024 threads along z; 64 is the most."""
    x = np.arange(600, dtype=np.float32).reshape(2, 300, 1, 1)
    got = max_pool3d(x, (2, 1, 1), 1, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, x[:, 1:])


@each_variant
def test_pinned_a_nan_is_not_dropped(backend: str, variant: str) -> None:
    """Pooling that starts from the lowest float and takes `max` loses the nan."""
    for where in range(8):
        x = np.full((1, 2, 2, 2), -1, np.float32)
        x.reshape(-1)[where] = np.nan
        got = max_pool3d(x, 2, backend=backend, variant=variant)
        assert np.isnan(got).all(), where


# ---- cost independent of the kernel's size ----


def test_a_window_of_half_a_million_elements() -> None:
    """2^38 comparisons one by one; 19 passes by doubling."""
    n = 2**20
    x = np.random.default_rng(3).standard_normal((1, n)).astype(np.float32)
    x[0, n // 2] = 9
    y, index = max_pool1d(x, n // 2, 1, return_indices=True, backend="cpu", variant="simd")
    assert (y[0, 1:] == 9).all()
    assert (index[0, 1:] == n // 2).all()
    assert y[0, 0] == x[0, : n // 2].max()


def test_v6_loads_each_element_once_whatever_the_kernel() -> None:
    x = whole((1, 20, 20, 32))
    requests = {}
    for kernel in (2, 3, 8):
        (counts,) = profile("max_pool3d", x, kernel, 1, variant="v6")["v6"]
        out = (21 - kernel) ** 2  # rows of the result, one store each
        requests[kernel] = counts.global_requests - out
    assert len(set(requests.values())) == 1, requests


# Kernel and stride of the windows v7 is compiled for, along every axis.
MARCHES = ((2, 1), (2, 2), (3, 1), (3, 2), (8, 1), (8, 8))


@pytest.mark.parametrize(("kernel", "stride"), MARCHES)
def test_v7_marches_through_tiles_of_every_shape(kernel: int, stride: int) -> None:
    """Several tiles along each axis, planes that share a warp, padding, float16."""
    shapes = ((1, 20, 70, 40), (5, 17, 33, 35), (2, 3, 8, 8, 8), (7, 9, 8, 11))
    for seed, shape in enumerate(shapes):
        x = np.random.default_rng(seed).standard_normal(shape)
        x[x > 2.5] = np.nan
        for dtype in ("float32", "float16"):
            for padding in (0, kernel // 2):
                args = (x.astype(dtype), kernel, stride, padding)
                got = max_pool3d(*args, variant="v7", backend="sim")
                np.testing.assert_array_equal(got, ref.max_pool3d(*args))


def test_v7_loads_each_row_once_whatever_the_kernel() -> None:
    x = whole((2, 24, 32, 32))
    for kernel, stride in MARCHES:
        (counts,) = profile("max_pool3d", x, kernel, stride, variant="v7")["v7"]
        slices, rows = (24 - kernel) // stride + 1, (32 - kernel) // stride + 1
        loaded = 2 * ((slices - 1) * stride + kernel) * ((rows - 1) * stride + kernel)
        assert counts.global_requests == loaded + 2 * slices * rows, (kernel, stride)


HUGE = """
import pathlib, resource, sys
import numpy as np
import gpuopt

backend, variant = sys.argv[1:]
x = np.random.default_rng(3).integers(-99, 100, (2, 3, 4, 5)).astype(np.float32)
gpuopt.max_pool2d(x, 3, padding=1, stride=1, variant=variant, backend=backend)
# What the process has mapped by now, and 256 MiB.
mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (256 << 20), resource.RLIM_INFINITY))

for k in (63, 2**20 + 1, 2**27 + 1, 2**31 - 1):
    column = np.broadcast_to(x.max(2, keepdims=True), x.shape)
    all_of_it = np.broadcast_to(x.max((2, 3), keepdims=True), x.shape)
    for kernel, padding, want in (
        ((k, 1), (k // 2, 0), column), ((k, k), (k // 2, k // 2), all_of_it),
    ):
        for indices in (False, True):
            got = gpuopt.max_pool2d(
                x, kernel, padding=padding, stride=1, return_indices=indices,
                variant=variant, backend=backend,
            )
            if indices:
                got, at = got
                plane = x.reshape(2, 3, -1)
                assert (np.take_along_axis(plane, at.reshape(2, 3, -1), 2)
                        .reshape(x.shape) == want).all()
            assert (got == want).all(), (k, kernel)
    # one window that steps far outside of x, beside one that is in it
    got = gpuopt.max_pool1d(
        x[0], k, stride=k - 5, padding=k // 2, ceil_mode=True, variant=variant, backend=backend,
    )
    assert (got[..., 0] == x[0].max(-1)).all()
    # and one of few elements that are far apart
    far = gpuopt.max_pool1d(
        np.ones((1, 3), np.float32), 2, stride=k, dilation=2, padding=1, ceil_mode=True,
        variant=variant, backend=backend,
    )
    assert far.tolist() == [[1.0]]
"""


@each_without_limits
def test_no_memory_by_the_size_of_a_window(backend: str, variant: str) -> None:
    """Windows that extend far beyond x cost only their elements in x: memory and loops."""
    done = run_child("-W", "error", "-c", HUGE, backend, variant)
    assert (done.returncode, done.stderr) == (0, "")


@each_gradient
def test_no_memory_by_the_size_of_a_window_of_the_gradient(backend: str, variant: str) -> None:
    x = whole((2, 3, 1, 4, 5))
    for k in (63, 2**27 + 1, 2**31 - 1):
        windows: dict[str, Any] = {"kernel_size": (1, k, k), "padding": (0, k // 2, k // 2)}
        _, at = max_pool3d(x, **windows, stride=1, return_indices=True, backend="cpu")
        dy = whole(x.shape, 2)
        want = ref.max_pool3d_backward(dy, at, x.shape)
        for more in ({}, {**windows, "stride": 1}):
            got = max_pool3d_backward(dy, at, x.shape, **more, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, want)


@each_variant
def test_windows_that_reach_out_on_every_side(backend: str, variant: str) -> None:
    """Many small planes, with every option: what is trimmed is in no window."""
    rng = np.random.default_rng(21)
    tried = 0
    for _ in range(200 if backend == "sim" else 400):
        shape = (2, *rng.integers(1, 7, 3))
        x = whole(tuple(int(n) for n in shape), int(rng.integers(99)))
        kernel = rng.integers(1, 16, 3)
        options: dict[str, Any] = {
            "kernel_size": tuple(kernel.tolist()),
            "stride": tuple(rng.integers(1, 9, 3).tolist()),
            "padding": tuple((kernel // 2 - rng.integers(0, 2, 3)).clip(0).tolist()),
            "dilation": tuple(rng.integers(1, 4, 3).tolist()),
            "ceil_mode": bool(rng.integers(2)),
            "return_indices": True,
        }
        try:
            want = ref.max_pool3d(x, **options)
        except ValueError:
            continue
        tried += 1
        got = max_pool3d(x, **options, backend=backend, variant=variant)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(options))
    assert tried > 20


# ---- on a CPU: channels last, folded planes, blocks of gradients ----

CPU = ("simd", "threads")


@pytest.mark.parametrize("variant", CPU)
def test_channels_last_on_a_cpu(variant: str) -> None:
    """Contiguous channels become an axis of their own, in every dtype and with padding."""
    for dtype in ("int8", "float16", "float32", "float64"):
        for n, c, h, w in ((1, 4, 9, 9), (2, 5, 7, 30), (3, 130, 6, 11), (1, 3, 8, 8)):
            x = np.moveaxis(whole((n, h, w, c)).astype(dtype), 3, 1)
            for k, stride, padding in ((2, 2, 1), (3, 1, 1), ((1, 4), 3, 0)):
                want = ref.max_pool2d(x, k, stride, padding)
                got = max_pool2d(x, k, stride, padding, backend="cpu", variant=variant)
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("variant", CPU)
def test_windows_that_share_few_rows_on_a_cpu(variant: str) -> None:
    """Their rows are joined straight from x: one to nine, some or all outside of x."""
    for dtype in ("uint8", "float16", "float32", "int64", "float64"):
        x = whole((2, 17, 23, 70)).astype(dtype)
        if dtype.startswith("float"):
            x.reshape(-1)[::7] = np.nan
        for given in (x, np.moveaxis(np.moveaxis(x, 1, 3).copy(), 3, 1)):
            for k, stride, padding, dilation in (
                ((2, 1), (2, 1), 0, 1), (2, 2, 1, 1), (3, 2, 1, 1), ((3, 4), 3, 1, (5, 1)),
                (5, (4, 5), 2, 1), ((1, 2), 3, 0, 1), ((2, 3), 4, (1, 0), (23, 30)),
            ):  # fmt: skip
                options = {"stride": stride, "padding": padding, "dilation": dilation}
                want = ref.max_pool2d(given, k, **options)
                got = max_pool2d(given, k, **options, backend="cpu", variant=variant)
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("variant", CPU)
def test_rows_of_many_planes_on_a_cpu(variant: str) -> None:
    """Planes of one row become one plane: positions still count from their own row."""
    for shape in ((7, 300, 9), (2, 3, 9000), (700, 40)):
        x = whole(shape)
        for k, stride, padding in ((3, 3, 0), (2, 1, 1), (9, 2, 4), (5, 4, 0)):
            options: dict[str, Any] = {"return_indices": True}
            want = ref.max_pool1d(x, k, stride, padding, **options)
            options |= {"backend": "cpu", "variant": variant}
            for a, b in zip(max_pool1d(x, k, stride, padding, **options), want, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_float_is_its_own_maximum(dtype: str) -> None:
    """Keys are integers: each comes back, a nan as a nan, and -0 lies below 0."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype))
    for variant in CPU:
        y = max_pool1d(x[None], 1, backend="cpu", variant=variant)[0]
        numbers = ~np.isnan(x.astype(np.float32))
        same = y.view(np.uint16) == x.view(np.uint16)
        np.testing.assert_array_equal(same | ~numbers, np.ones(1 << 16, bool))
        np.testing.assert_array_equal(np.isnan(y.astype(np.float32)), ~numbers)


@pytest.mark.parametrize("variant", CPU)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_across_blocks_on_a_cpu(variant: str, dtype: str) -> None:
    """Blocks that end within rows, slices and groups of planes; some indices are bad."""
    rng = np.random.default_rng(12)
    cases: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
        ((300, 1, 1, 5), {"kernel_size": (1, 1, 2), "stride": 1}),
        ((2, 1, 1, 999), {"kernel_size": (1, 1, 3), "stride": 2}),
        ((3, 1, 40, 33), {"kernel_size": (1, 3, 3), "stride": (1, 2, 1)}),
        ((2, 9, 11, 13), {"kernel_size": 3, "stride": 1, "padding": 1}),
        ((2, 12, 12, 12), {"kernel_size": 2, "stride": 1, "dilation": (3, 1, 2)}),
        ((5, 8, 30, 31), {"kernel_size": 2, "stride": 2}),
        # slices whose windows are found once: of planes, of a plane, of single rows
        (
            (64, 1, 40, 33),
            {"kernel_size": (1, 3, 3), "stride": (1, 2, 2), "padding": (0, 1, 1)},
        ),
        ((40, 6, 17, 19), {"kernel_size": 3, "stride": 2, "padding": 1}),
        # several slices are one block, the last one of fewer
        ((12, 43, 12, 6), {"kernel_size": 5, "stride": 2, "padding": 2}),
        ((12, 31, 9, 7), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
        ((1, 60, 17, 18), {"kernel_size": 2, "stride": 1, "padding": 1}),
        ((40, 1, 1, 700), {"kernel_size": (1, 1, 5), "stride": 2, "padding": (0, 0, 2)}),
        ((4, 1, 5, 5), {"kernel_size": (1, 2, 2), "padding": (0, 1, 1), "dilation": (1, 5, 5)}),
        ((3, 7, 9, 8), {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    )
    for shape, windows in cases:
        _, good = ref.max_pool3d(whole(shape), **windows, return_indices=True)
        dy = rng.integers(-9, 9, good.shape).astype(dtype)
        bad = rng.random(good.shape) < 0.05
        mixed = np.where(bad, rng.integers(-3, 9999, good.shape), good)
        inside = _in_windows(mixed, shape[1:], windows)
        for indices, kept in ((good, good), (mixed, np.where(inside, mixed, -1))):
            want = ref.max_pool3d_backward(dy, kept, shape)
            got = max_pool3d_backward(
                dy, indices, shape, **windows, backend="cpu", variant=variant
            )
            np.testing.assert_array_equal(got, want)


def test_a_zero_gradient_is_positive_on_a_cpu() -> None:
    """A sum of one is 0 + dy, also where windows do not overlap."""
    for dtype in ("float16", "float32", "float64"):
        dy, at = np.full((1, 1, 1, 300), -0.0, dtype), np.arange(300)[None, None, None] * 2
        got = max_pool3d_backward(dy, at, (1, 1, 1, 600), (1, 1, 2), backend="cpu")
        assert not np.signbit(got).any()


def test_sums_of_one_keep_numbers_and_nans_on_a_cpu() -> None:
    """Every float16, alone in its window: as the formula gives it, bit for bit."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    dy, at = (
        bits.view(np.float16).reshape(1, 1, 1, -1),
        2 * np.arange(1 << 16).reshape(1, 1, 1, -1),
    )
    found = [
        max_pool3d_backward(dy, at, (1, 1, 1, 1 << 17), (1, 1, 2), variant=v, backend="cpu")
        for v in CPU
    ]
    assert len({dx.tobytes() for dx in found}) == 1


# ---- the gradient: indices ----


@each_gradient
def test_the_first_bad_index_is_named(backend: str, variant: str) -> None:
    dy = np.ones((2, 3, 3, 3), np.float32)
    out = np.full((2, 4, 4, 4), 7, np.float32)
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for places, value in (((5,), 64), ((30, 40), -2), ((53,), 10**12), ((0, 1), -(2**63))):
        indices = np.zeros(dy.shape, np.int64)
        for place in places:
            indices.reshape(-1)[place] = value
        for kwargs in ({}, {"out": out}):
            with pytest.raises(
                IndexError,
                match=rf"^index {value} at element {places[0]} of indices is out of bounds "
                r"for a plane of 64 elements$",
            ):
                max_pool3d_backward(dy, indices, out.shape, **kwargs, **options)
        assert (out == 7).all()
    got = max_pool3d_backward(dy, np.zeros(dy.shape, np.int64), out.shape, **options)
    assert got.sum() == 54


@each_gradient
def test_minus_one_is_no_element(backend: str, variant: str) -> None:
    dy, indices = np.ones((2, 1, 1, 3), np.float32), np.full((2, 1, 1, 3), -1)
    indices[1, 0, 0, 2] = 4
    shape = (2, 1, 1, 6)
    for windows in ({}, {"kernel_size": (1, 1, 2)}):
        got = max_pool3d_backward(
            dy, indices, shape, **windows, backend=backend, variant=variant
        )
        want = np.zeros(shape, np.float32)
        want[1, 0, 0, 4] = 1
        np.testing.assert_array_equal(got, want)


@each_gradient
def test_an_index_outside_of_its_window_adds_nothing(backend: str, variant: str) -> None:
    rng = np.random.default_rng(4)
    x = whole((2, 6, 7, 8))
    windows: dict[str, Any] = {"kernel_size": (2, 3, 3), "stride": (2, 1, 2)}
    windows |= {"padding": (1, 1, 0), "dilation": (1, 2, 1)}
    for case in (windows, {"kernel_size": 2, "stride": (2, 3, 2)}):
        _, good = ref.max_pool3d(x, **case, return_indices=True)
        dy = rng.integers(-9, 9, good.shape).astype(np.float32)
        bad = rng.random(good.shape) < 0.4
        indices = np.where(bad, rng.integers(-5, 400, good.shape), good)
        inside = _in_windows(indices, x.shape[1:], case)
        want = ref.max_pool3d_backward(dy, np.where(inside, indices, -1), x.shape)
        got = max_pool3d_backward(
            dy, indices, x.shape, **case, backend=backend, variant=variant
        )
        np.testing.assert_array_equal(got, want)


def _in_windows(
    indices: np.ndarray[Any, Any], shape: tuple[int, ...], windows: dict[str, Any]
) -> np.ndarray[Any, Any]:
    """Which indices refer to an element of their window."""
    plane = int(np.prod(shape))
    inside = (indices >= 0) & (indices < plane)
    places = np.unravel_index(np.where(inside, indices, 0), shape)
    for axis, place in enumerate(places):

        def of(name: str, preset: Any, axis: int = axis) -> int:
            return int(np.broadcast_to(windows.get(name, preset), 3)[axis])

        kernel = of("kernel_size", 1)
        start = np.arange(indices.shape[axis + 1]) * of("stride", windows["kernel_size"])
        start = (start - of("padding", 0)).reshape((-1,) + (1,) * (2 - axis))
        past, step = place - start, of("dilation", 1)
        inside &= (past >= 0) & (past < kernel * step) & (past % step == 0)
    return np.asarray(inside)


@each_gradient
def test_any_elements_of_the_windows(backend: str, variant: str) -> None:
    """Indices that no pooling returns: lines of windows refer to different elements."""
    rng = np.random.default_rng(6)
    for kernel, stride in ((3, 1), ((2, 3, 4), (1, 2, 1)), (4, 3)):
        shape = (3, 7, 8, 9)
        found = [
            ref.max_pool3d(
                rng.standard_normal(shape).astype(np.float32),
                kernel,
                stride,
                return_indices=True,
            )[1]
            for _ in range(3)
        ]
        pick = rng.integers(0, 3, found[0].shape)
        indices = np.choose(pick, found)
        indices[2] = found[0][2]  # a plane that agrees
        dy = rng.integers(-9, 9, indices.shape).astype(np.float32)
        want = ref.max_pool3d_backward(dy, indices, shape)
        for windows in ({}, {"kernel_size": kernel, "stride": stride}):
            got = max_pool3d_backward(
                dy, indices, shape, **windows, backend=backend, variant=variant
            )
            np.testing.assert_array_equal(got, want)


@each_gradient
def test_all_gradients_meet_in_one_element(backend: str, variant: str) -> None:
    dy = np.full((1, 4, 4, 4), 0.5, np.float16)
    indices = np.full(dy.shape, 21)
    got = max_pool3d_backward(dy, indices, (1, 5, 5, 5), backend=backend, variant=variant)
    assert got.reshape(-1)[21] == 32
    assert np.count_nonzero(got) == 1


@each_gradient
def test_nan_gradients_stay_in_their_place(backend: str, variant: str) -> None:
    n = 20 if backend == "sim" else 70
    dy = np.ones((n, 1, 1, n), np.float32)
    dy[np.arange(n), 0, 0, np.arange(n)] = np.nan
    indices = np.broadcast_to(np.arange(n) * 2 + 1, dy.shape)
    for windows in ({}, {"kernel_size": (1, 1, 2)}):
        got = max_pool3d_backward(
            dy, indices, (n, 1, 1, 2 * n), **windows, backend=backend, variant=variant
        )
        want = np.zeros((n, 2 * n), np.float32)
        want[:, 1::2] = dy[:, 0, 0]
        np.testing.assert_array_equal(got[:, 0, 0], want)


@each_gradient
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sums_within_their_bound(
    backend: str, variant: str, dtype: str, figure: Figure
) -> None:
    rng = np.random.default_rng(8)
    shape = (2, 9, 9, 9)
    x = rng.standard_normal(shape)
    _, indices = ref.max_pool3d(x, 5, 1, return_indices=True)
    signs = rng.choice([-1, 1], indices.shape)
    dy = (np.exp(rng.uniform(-6, 6, indices.shape)) * signs).astype(dtype)
    exact = ref.max_pool3d_backward(dy.astype(ref.wide(dy.dtype)), indices, shape)
    bound = gradient_bound(3, dy, indices, shape)
    last = np.abs(exact) * np.finfo(dtype).eps / 2 + np.finfo(dtype).smallest_subnormal
    got = max_pool3d_backward(
        dy, indices, shape, kernel_size=5, stride=1, backend=backend, variant=variant
    )
    error = np.abs(got.astype(exact.dtype) - exact)
    assert (error <= bound + last).all()
    worst = float((error / (bound + last)).max())
    figure(f"max_pool3d_backward {backend} {variant} {dtype}", f"{worst:.0%} of the bound")


# ---- the gradient: gradcheck ----


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_gradcheck(backend: str) -> None:
    """Central differences in float64 of sum(dy * y), for distinct elements."""
    rng = np.random.default_rng(9)
    shape = (1, 4, 4, 5)
    x = rng.permutation(80).reshape(shape).astype(np.float64)
    for windows in (
        {"kernel_size": 2},
        {"kernel_size": 3, "stride": 1, "padding": 1},
        {"kernel_size": (2, 3, 2), "stride": (1, 2, 2), "dilation": (2, 1, 2)},
    ):
        y, indices = max_pool3d(x, **windows, return_indices=True, backend=backend)
        dy = rng.standard_normal(y.shape)
        got = max_pool3d_backward(dy, indices, shape, **windows, backend=backend)
        step = 1e-6
        for at in np.ndindex(shape):
            ends = []
            for sign in (1, -1):
                moved = x.copy()
                moved[at] += sign * step
                ends.append((dy * max_pool3d(moved, **windows)).sum())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert abs(slope - got[at]) <= 1e-5 + 1e-3 * abs(slope), at


@each_gradient
def test_the_adjoint_identity(backend: str, variant: str) -> None:
    """Under fixed indices pooling is linear: <dy, A v> = <A^T dy, v>."""
    rng = np.random.default_rng(10)
    shape = (2, 5, 6, 7)
    _, indices = ref.max_pool3d(rng.standard_normal(shape), 3, 2, 1, return_indices=True)
    v, dy = rng.standard_normal(shape), rng.standard_normal(indices.shape)
    pooled = np.take_along_axis(v.reshape(2, -1), indices.reshape(2, -1), 1)
    back = max_pool3d_backward(dy, indices, shape, 3, 2, 1, backend=backend, variant=variant)
    left, right = (dy.reshape(2, -1) * pooled).sum(), (back * v).sum()
    assert abs(left - right) <= 1e-12 * np.abs(dy).sum()


def test_bfloat16_gradients_round_once() -> None:
    dy = np.array([[1, 2.0**-8, 2.0**-8]], BFLOAT16)
    for backend, variant in GRADIENT:
        got = gpuopt.max_pool1d_backward(
            dy, np.zeros((1, 3), np.int64), (1, 4), backend=backend, variant=variant
        )
        assert float(got[0, 0]) == 1 + 2.0**-7


# ---- large indices ----


@each_without_limits
def test_positions_past_32_bits(backend: str, variant: str) -> None:
    """One broadcast element stands for a row of 2 GiB; of equal elements the first wins."""
    if variant == "scalar":
        n, step = 2**32 + 300, 2**30
    else:
        n, step = 2**31 + 300, 2**29
    x = np.broadcast_to(np.float16(1), (1, n))
    y, index = max_pool1d(x, 4, step, return_indices=True, backend=backend, variant=variant)
    count = (n - 4) // step + 1
    assert y.tolist() == [[1.0] * count]
    assert index[0].tolist() == [o * step for o in range(count)]
    assert index[0, -1] == 4 * step


# ---- the simulator: checks, counts, failures ----


@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
@pytest.mark.parametrize("rung", RUNGS)
def test_rung_passes_every_check(rung: str, schedule: str, simulator: Any) -> None:
    simulator(schedule=schedule, checks=True)
    for shape, windows in (
        ((3, 4, 5, 6), {"kernel_size": 2}),
        ((1, 6, 9, 35), {"kernel_size": 3, "stride": 1, "padding": 1}),
        ((2, 8, 8, 8), {"kernel_size": 8, "stride": 1}),
        ((1, 2, 3, 40), {"kernel_size": (1, 2, 34), "stride": 1}),
    ):
        x = whole(shape)
        want = ref.max_pool3d(x, **windows, return_indices=True)
        got = max_pool3d(x, **windows, return_indices=True, backend="sim", variant=rung)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])
        y = max_pool3d(x, **windows, backend="sim", variant=rung)
        np.testing.assert_array_equal(y, want[0])


@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
@pytest.mark.parametrize("rung", GRADIENT_RUNGS)
def test_gradient_rung_passes_every_check(rung: str, schedule: str, simulator: Any) -> None:
    simulator(schedule=schedule, checks=True)
    for shape, windows in (
        ((3, 4, 6, 6), {"kernel_size": 2}),
        ((1, 6, 9, 35), {"kernel_size": 3, "stride": 1}),
        ((2, 9, 8, 8), {"kernel_size": (3, 8, 8), "stride": (2, 1, 1)}),
    ):
        found = [
            ref.max_pool3d(whole(shape, k), **windows, return_indices=True)[1] for k in (1, 2)
        ]
        mixed = np.where(np.arange(found[0].size).reshape(found[0].shape) % 3, *found)
        for indices in (found[0], mixed):
            dy = whole(indices.shape, 3)
            want = ref.max_pool3d_backward(dy, indices, shape)
            for kwargs in ({}, windows):
                got = max_pool3d_backward(
                    dy, indices, shape, **kwargs, backend="sim", variant=rung
                )
                np.testing.assert_array_equal(got, want)


# Requests to global and to shared memory, wavefronts of the latter, barriers of a thread:
# (2, 9, 10, 12), kernel 3, stride 1, float32.
GOLDEN = {
    "v0": (980, 0, 0, 0),
    "v1": (980, 0, 0, 0),
    "v2": (980, 0, 0, 0),
    "v3": (164, 1664, 2420, 16),
    "v4": (980, 0, 0, 0),
    "v5": (1008, 0, 0, 0),
    "v6": (146, 511, 892, 3),
    "v7": (146, 42, 42, 7),
    "any_windows": (1120, 0, 0, 0),
}

# (2, 9, 10, 12), kernel 3, stride 1, with windows.
GOLDEN_GRADIENT = {
    "v0": (140, 208, 274, 0),
    "v1": (2063, 0, 0, 0),
    "v2": (2063, 0, 0, 0),
    "v3": (288, 2604, 2816, 58),
    "v4": (1092, 360, 438, 28),
}


def counts(op: str, rung: str, *args: Any, **windows: Any) -> tuple[int, int, int, int]:
    kernels = profile(op, *args, **windows, variant=rung)[rung]
    assert all(k.races == 0 for k in kernels)
    return (
        sum(k.global_requests for k in kernels),
        sum(k.shared_requests for k in kernels),
        sum(k.shared_wavefronts for k in kernels),
        sum(k.barriers for k in kernels),
    )


def test_golden_counts() -> None:
    x = whole((2, 9, 10, 12))
    found = {rung: counts("max_pool3d", rung, x, 3, 1) for rung in RUNGS}
    assert found == GOLDEN


def test_golden_counts_of_the_gradient() -> None:
    shape = (2, 9, 10, 12)
    _, indices = ref.max_pool3d(whole(shape), 3, 1, return_indices=True)
    args = (whole(indices.shape), indices, shape)
    found = {
        rung: counts("max_pool3d_backward", rung, *args, kernel_size=3, stride=1)
        for rung in GRADIENT_RUNGS
    }
    assert found == GOLDEN_GRADIENT


def _every_step_fails(call: Any, want: Any, simulator: Any) -> None:
    before = None
    for step in range(80):
        simulator(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = call()
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            simulator(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            np.testing.assert_array_equal(call(), want)
            continue
        break
    assert 3 <= step < 79
    np.testing.assert_array_equal(got, want)
    assert _core._sim_state()["allocations"] == before


@pytest.mark.parametrize("rung", RUNGS)
def test_every_failure_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    x = whole((2, 3, 4, 40))
    for kernel in (2, (1, 2, 33)):
        want = ref.max_pool3d(x, kernel, 1)
        _every_step_fails(
            lambda k=kernel: max_pool3d(x, k, 1, variant=rung, backend="sim"), want, simulator
        )


@pytest.mark.parametrize("rung", GRADIENT_RUNGS)
def test_every_failure_of_the_gradient_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    shape = (2, 3, 4, 5)
    _, indices = ref.max_pool3d(whole(shape), 2, 1, return_indices=True)
    dy = whole(indices.shape)
    want = ref.max_pool3d_backward(dy, indices, shape)
    for windows in ({}, {"kernel_size": 2, "stride": 1}):
        _every_step_fails(
            lambda w=windows: max_pool3d_backward(
                dy, indices, shape, **w, variant=rung, backend="sim"
            ),
            want,
            simulator,
        )


# ---- choose ----


def test_the_choice_follows_the_windows() -> None:
    def chosen(shape: tuple[int, ...], kernel: int, stride: int, dtype: str) -> Any:
        x = np.zeros(shape, dtype)
        return _core.plan("max_pool3d", x, kernel, stride, backend="sim")

    large = (4, 16, 32, 32, 32)
    for kernel, stride in MARCHES:
        assert chosen(large, kernel, stride, "float16")["variant"] == "v7"
        assert chosen((1, 1, 8, 8, 8), kernel, stride, "float16")["variant"] == "any_windows"
    for dtype in ("float64", "uint8"):
        assert chosen(large, 2, 2, dtype)["variant"] == "any_windows"
    assert chosen(large, 8, 1, "uint8")["variant"] == "v6"
    assert chosen(large, 5, 1, "float64")["variant"] == "overlapping_windows"
    assert chosen((64, 64, 1, 19, 19), 1, 1, "float32")["variant"] == "any_windows"
    last = np.moveaxis(np.zeros((8, 2, 40, 40, 64), np.float32), -1, 1)
    assert _core.plan("max_pool3d", last, 2, backend="sim")["variant"] == "channels_last"
    small = np.zeros((16, 64, 19, 19), np.float16)
    plan = _core.plan("max_pool2d", small, 13, 1, 6, backend="sim")
    assert plan["variant"] == "overlapping_windows"
    assert chosen(large, 4, 1, "float32")["variant"] == "v6"
    assert chosen((1, 1, 40, 40, 40), 33, 1, "float32")["variant"] == "wide_windows"
    assert chosen((9, 9, 33, 33, 33), 33, 1, "float32")["variant"] == "any_windows"
    assert "the report's rule" in chosen((1, 1, 9, 9, 9), 8, 1, "float32")["why"]
    assert chosen((1, 1, 9, 9, 9), 8, 1, "float32")["why"].endswith("takes v4")
    assert chosen((1, 1, 9, 9, 9), 3, 1, "float32")["why"].endswith("takes v5")


def test_the_choice_of_the_gradient_follows_the_windows() -> None:
    def chosen(side: int, kernel: int, step: int, planes: int = 1, **windows: Any) -> str:
        gap = windows.get("dilation", 1)
        out = (planes, *((side - gap * (kernel - 1) - 1) // step + 1,) * 3)
        zeros = np.zeros(out, np.float32), np.zeros(out, np.int64)
        shape = (planes, side, side, side)
        plan = _core.plan("max_pool3d_backward", *zeros, shape, **windows, backend="sim")
        return str(plan["variant"])

    assert chosen(8, 2, 2) == "v0"
    assert chosen(8, 2, 2, kernel_size=2) == "v2"
    assert chosen(8, 4, 4, kernel_size=4) == "separate_windows"
    assert chosen(40, 7, 7, 64, kernel_size=7, stride=7, dilation=2) == "separate_windows"
    assert chosen(8, 3, 1, kernel_size=3, stride=1) == "dense_windows"
    assert chosen(8, 5, 2, 4096, kernel_size=5, stride=2) == "dense_windows"
    assert chosen(16, 3, 2, 1024, kernel_size=3, stride=2) == "marching_windows"
    assert chosen(8, 3, 2, kernel_size=3, stride=2) == "paired_windows"
    assert chosen(9, 2, 2, 8, kernel_size=2, dilation=2, stride=2) == "marching_windows"
    assert chosen(9, 2, 2, kernel_size=2, stride=2) == "separate_windows"
    assert chosen(8, 2, 1, 8, kernel_size=2, stride=1) == "paired_windows"
    assert chosen(32, 13, 2, kernel_size=13, stride=2) == "dense_windows"
    assert chosen(24, 3, 1, 128, kernel_size=3, stride=1, dilation=2) == "dense_windows"
    assert chosen(32, 3, 1, 64, kernel_size=3, stride=1) == "v4"
    dy = np.broadcast_to(np.float32(0), (16, 16, 13, 83, 93))
    shape = (16, 16, 20, 90, 100)
    plan = _core.plan(
        "max_pool3d_backward", dy, np.broadcast_to(np.int64(0), dy.shape), shape, 8, 1,
        backend="sim",
    )  # fmt: skip
    assert plan["variant"] == "deep_windows"


@pytest.mark.parametrize(
    ("shape", "kernel", "variant"),
    [
        ((2, 2, 64, 64), 2, "v2"),  # pairs
        ((2, 2, 33, 33), 2, "v2"),  # few bytes
        ((8, 64, 65, 65), 2, "marching_windows"),
        ((64, 64, 65, 65), 2, "separate_windows"),
        ((2, 3, 1001), 2, "v2"),
        ((16, 64, 1001), 2, "marching_windows"),
        ((64, 256, 4001), 2, "separate_windows"),
        ((2, 2, 9, 9), 9, "separate_windows"),  # one window, though the stride is 2
    ],
)
def test_the_choice_of_the_gradient_of_windows_apart(
    shape: tuple[int, ...], kernel: int, variant: str
) -> None:
    out = (*shape[:2], *((side - kernel) // 2 + 1 for side in shape[2:]))
    dy, at = np.broadcast_to(np.float32(0), out), np.broadcast_to(np.int64(0), out)
    op = f"max_pool{len(shape) - 2}d_backward"
    plan = _core.plan(op, dy, at, shape, kernel, 2, backend="sim")
    assert plan["variant"] == variant


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((2, 300, 258), (5, 4, 2)),  # four or two elements of a thread, in words
        ((2, 300, 257), (3, 2, 1)),  # the last run of a row is shorter
        ((1, 20, 33), (4, 1, 2)),  # lanes share the windows of an element
        ((1, 20, 33), (3, 2, 1, 2)),
        ((1, 9, 300, 300), (2, 3, 0)),  # elements in no window
        ((1, 13, 9, 16), (8, 1, 4)),
    ],
)
def test_any_windows_adds_what_the_reference_does(
    shape: tuple[int, ...], windows: tuple[int, ...], dtype: str
) -> None:
    """Gradients are whole numbers, so that their sums are exact."""
    rank = len(shape) - 1
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(len(shape) + sum(windows))
    x = rng.integers(-9, 9, shape).astype(dtype)
    y, indices = getattr(ref, op)(x, *windows, return_indices=True)
    dy = rng.integers(-3, 4, y.shape).astype(dtype)
    want = getattr(ref, f"{op}_backward")(dy, indices, shape)
    where: dict[str, Any] = {"backend": "sim", "variant": "any_windows"}
    got = getattr(gpuopt, f"{op}_backward")(dy, indices, shape, *windows, **where)
    np.testing.assert_array_equal(got, want)


BOXES = ("overlapping_windows", "dense_windows")


@pytest.mark.parametrize("variant", BOXES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((2, 300, 258), (5, 4, 2)),  # planes are cut into rows
        ((40, 20, 33), (3, 2, 1)),  # a block has several planes, the last one fewer
        ((3, 4001), (9, 3, 4)),  # a row is cut, and does not begin on 16 bytes
        ((2, 9, 60, 60), (2, 1, 0)),
        ((1, 3, 300, 300), (3, 2, 0)),  # slices are cut
        ((1, 30, 29, 16), (13, 2, 0)),  # many windows name one element: lanes share it
        ((1, 9000), (90, 1, 3)),  # the same along one axis
        ((2, 20, 33, 21), (3, 2, 1, 2)),
        ((1, 29, 17, 20), (7, 1, 3, 2)),
        ((2, 50, 61), (4, 6, 0, 4)),  # windows meet at every second step, with gaps between
        ((5, 7, 10, 32, 17), (3, 2, 1)),
    ],
)
def test_overlapping_windows_add_what_the_reference_does(
    shape: tuple[int, ...],
    windows: tuple[int, ...],
    dtype: str,
    variant: str,
    simulator: Any,
) -> None:
    """Gradients are whole numbers; some indices are of other elements, some of none."""
    simulator(schedule="shuffle", checks=True)
    if variant == "dense_windows" and windows[0] > 32:
        windows = (31, *windows[1:])
    rank = 1 if len(shape) == 2 else min(len(shape) - 1, 3)
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(len(shape) + sum(windows))
    x = rng.integers(-9, 9, shape).astype(np.float32)
    y, indices = getattr(gpuopt, op)(x, *windows, return_indices=True, backend="cpu")
    dy = rng.integers(-3, 4, y.shape).astype(dtype_of(dtype))
    backward = getattr(gpuopt, f"{op}_backward")
    want = getattr(ref, f"{op}_backward")(dy, indices, shape)
    how: dict[str, Any] = {"backend": "sim", "variant": variant}
    got = backward(dy, indices, shape, *windows, **how)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    plane = int(np.prod(shape[-rank:]))
    any_at_all = rng.integers(-2, plane + 2, y.shape)
    indices = np.where(rng.random(y.shape) < 0.5, indices, any_at_all)
    want = backward(dy, indices, shape, *windows, backend="cpu", variant="scalar")
    got = backward(dy, indices, shape, *windows, **how)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def ramp(shape: tuple[int, ...], equal: int = 1) -> Any:
    """Rising numbers, so many of them equal: a window's first largest one is near its end."""
    return (np.arange(np.prod(shape)) // equal).astype(np.float32).reshape(shape)


@pytest.mark.parametrize("equal", [1, 2, 7, 10**6])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "windows", [(5, 1, 0), (8, 1, 3), (4, 1, 2, 2), (3, 1, 0), (8, 2, 1), (9, 3, 4)]
)
def test_overlapping_windows_that_name_many_elements(
    windows: tuple[int, ...], dtype: str, equal: int, simulator: Any
) -> None:
    """More of them than a block's list holds: with few windows each, which become chains."""
    simulator(schedule="shuffle", checks=True)
    shape = (2, 13, 14, 15)
    _, indices = ref.max_pool3d(ramp(shape, equal), *windows, return_indices=True)
    dy = np.random.default_rng(8).integers(-3, 4, indices.shape).astype(dtype_of(dtype))
    want = ref.max_pool3d_backward(dy, indices, shape)
    how: dict[str, Any] = {"backend": "sim", "variant": "overlapping_windows"}
    got = max_pool3d_backward(dy, indices, shape, *windows, **how)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_chains_of_windows_keep_what_is_no_number(dtype: str) -> None:
    """In chains of one, two and more; and minus zero becomes zero, as in any sum."""
    inf, nan = np.inf, np.nan
    shape, windows = (8, 12, 13, 14), (8, 1, 3)
    _, indices = ref.max_pool3d(ramp(shape), *windows, return_indices=True)
    rng = np.random.default_rng(4)
    dy = rng.choice(
        [1, 2, -0.0, -0.0, inf, -inf, nan], indices.shape, p=[0.3, 0.3] + 5 * [0.08]
    )
    want = np.zeros(shape)
    with np.errstate(invalid="ignore"):
        at = indices.reshape(8, -1) + 12 * 13 * 14 * np.arange(8)[:, None]
        np.add.at(want.reshape(-1), at, dy.reshape(8, -1))
    how: dict[str, Any] = {"backend": "sim", "variant": "overlapping_windows"}
    got = max_pool3d_backward(dy.astype(dtype_of(dtype)), indices, shape, *windows, **how)
    np.testing.assert_array_equal(got.astype("f8"), want)
    assert not np.signbit(got.astype("f8")[want == 0]).any()


@pytest.mark.parametrize("names_many", [False, True])
@pytest.mark.parametrize("variant", BOXES)
def test_overlapping_windows_give_the_same_bits_in_any_order(
    variant: str, names_many: bool, simulator: Any
) -> None:
    """Elements are listed, windows added and chained, in any order; no sum depends on it."""
    shape, windows = (2, 12, 19, 23), (4, 1)
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    if names_many:
        shape, windows = (8, 12, 13, 14), (8, 1, 3)
        x = ramp(shape)
    _, indices = ref.max_pool3d(x, *windows, return_indices=True)
    dy = np.random.default_rng(6).standard_normal(indices.shape).astype(np.float32)
    found = []
    for schedule, seed in (("ascending", 0), ("descending", 0), ("shuffle", 1), ("preempt", 2)):
        simulator(schedule=schedule, seed=seed, checks=True)
        found.append(
            max_pool3d_backward(dy, indices, shape, *windows, backend="sim", variant=variant)
        )
    for other in found[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), found[0].view(np.uint32))


@pytest.mark.parametrize("variant", BOXES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_windows_of_boxes_add_numbers_of_any_size(
    dtype: str, variant: str, simulator: Any
) -> None:
    """Terms from the least subnormal number to the largest one that 40 of them allow."""
    simulator(schedule="shuffle", checks=True)
    rng = np.random.default_rng(3)
    least, most, bits = {
        "float16": (-24, 9, 11),
        "bfloat16": (-133, 120, 8),
        "float32": (-149, 120, 24),
        "float64": (-1074, 1016, 53),
    }[dtype]
    planes, n = 16, 14 * 12 * 16
    begin = np.indices((planes, 7, 5, 9))[1:]  # each window names an element at even places
    at = (begin + 1) // 2 * 2 + 2 * rng.integers(0, 4, begin.shape)
    indices = (at[0] * 12 + at[1]) * 16 + at[2]
    for narrow in (3, most - least):
        middle = rng.integers(least, most - narrow + 1)
        powers = rng.integers(middle, middle + narrow + 1, indices.shape)
        dy = np.ldexp(rng.uniform(-1, 1, indices.shape), powers).astype(dtype_of(dtype))
        wide = dy.astype(np.longdouble)
        want, size = np.zeros((2, planes, n), np.longdouble)
        for plane in range(planes):
            at = indices[plane].ravel()
            np.add.at(want[plane], at, wide[plane].ravel())
            np.maximum.at(size[plane], at, np.abs(wide[plane]).ravel())
        got = max_pool3d_backward(
            dy, indices, (planes, 14, 12, 16), 8, 1, backend="sim", variant=variant
        )
        off = np.abs(got.reshape(planes, n).astype(np.longdouble) - want)
        bound = np.abs(want) * 2.0**-bits + 40 * size * 2.0 ** -(62 if bits > 24 else 41)
        bound += np.abs(want) * 2.0**-24 * (bits < 24) + np.ldexp(np.longdouble(1), least)
        assert (off <= bound).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_dense_windows_keep_what_is_no_number(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    indices = np.array([[1, 1, 3, 3, 4]])
    for terms, want in (
        ([inf, 1, -inf, 2, 3], [0, inf, 0, -inf, 3, 0, 0]),
        ([inf, -inf, nan, 2, -0.0], [0, nan, 0, nan, 0, 0, 0]),
        ([-inf, -inf, 5, inf, nan], [0, -inf, 0, inf, nan, 0, 0]),
    ):
        dy = np.array([terms], dtype_of(dtype))
        got = gpuopt.max_pool1d_backward(
            dy, indices, (1, 7), 3, 1, backend="sim", variant="dense_windows"
        )
        np.testing.assert_array_equal(got[0].astype("f8"), want)


def test_dense_windows_refuse_what_they_do_not_take() -> None:
    where: dict[str, Any] = {"backend": "sim", "variant": "dense_windows"}
    for shape, windows in (  # apart, too long, dilated too far, too many terms
        ((1, 1, 1, 8), ((1, 1, 2), 2)),
        ((1, 1, 1, 80), ((1, 1, 33), 1)),
        ((1, 1, 1, 80), ((1, 1, 9), 1, 0, 4)),
        ((1, 12, 12, 12), (11, 1, 5)),
    ):
        y, indices = max_pool3d(np.ones(shape, "f4"), *windows, return_indices=True)
        with pytest.raises(gpuopt.VariantError, match="dense_windows"):
            max_pool3d_backward(y, indices, shape, *windows, **where)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((3, 2, 20, 17, 30), (8, 1)),
        ((2, 1, 9, 12, 11), (3, 1, 1)),
        ((1, 2, 12, 30, 9), (4, 2, 2)),
        ((2, 7, 33, 130), (5, 1, 2)),  # rows of more than 32 words of places
        ((1, 2, 8, 11, 261), (6, (2, 3, 1), (0, 1, 0))),  # 256 windows
        ((1, 9, 8, 26), ((1, 2, 3), (1, 5, 1))),  # rows of dx between windows
        ((2, 40, 3, 5), (3, (5, 1, 1), 1)),  # slices between windows
        ((1, 3, 250), (70, 1, 30)),
    ],
)
def test_deep_windows_add_what_the_reference_does(
    shape: tuple[int, ...], windows: tuple[Any, ...], dtype: str, simulator: Any
) -> None:
    """As above; half of the indices at random give cells two elements, or none."""
    simulator(schedule="shuffle", checks=True)
    rank = 1 if len(shape) == 3 else 2 if len(shape) == 4 else 3
    if any(isinstance(n, tuple) for n in windows):
        rank = 3
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(len(shape) + shape[-1])
    x = rng.integers(-9, 9, shape).astype(np.float32)
    y, indices = getattr(gpuopt, op)(x, *windows, return_indices=True, backend="cpu")
    dy = rng.integers(-3, 4, y.shape).astype(dtype_of(dtype))
    backward = getattr(gpuopt, f"{op}_backward")
    plane = int(np.prod(shape[-rank:]))
    at_all = rng.integers(-2, plane + 2, y.shape)
    at_all.flat[0] = 2**40
    for some in (0.0, 0.01, 0.5):
        found = np.where(rng.random(y.shape) < some, at_all, indices)
        got = backward(dy, found, shape, *windows, backend="sim", variant="deep_windows")
        want = backward(dy, found, shape, *windows, backend="cpu", variant="scalar")
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def test_deep_windows_give_the_same_bits_in_any_order(simulator: Any) -> None:
    """Warps take lines as they come; no sum depends on that."""
    x = np.random.default_rng(7).standard_normal((2, 12, 19, 23)).astype(np.float32)
    _, indices = ref.max_pool3d(x, 4, 1, return_indices=True)
    dy = np.random.default_rng(8).standard_normal(indices.shape).astype(np.float32)
    where: dict[str, Any] = {"backend": "sim", "variant": "deep_windows"}
    found = []
    for schedule, seed in (("ascending", 0), ("descending", 0), ("shuffle", 1), ("preempt", 2)):
        simulator(schedule=schedule, seed=seed, checks=True)
        found.append(max_pool3d_backward(dy, indices, x.shape, 4, 1, **where))
    for other in found[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), found[0].view(np.uint32))


def test_deep_windows_refuse_what_they_do_not_take() -> None:
    """Windows apart, dilated ones, rows of more than 256 windows."""
    where: dict[str, Any] = {"backend": "sim", "variant": "deep_windows"}
    refused: tuple[tuple[int, dict[str, Any]], ...] = (
        (8, {"kernel_size": 2}),
        (9, {"kernel_size": 3, "stride": 1, "dilation": 2}),
        (259, {"kernel_size": 3, "stride": 1}),
    )
    for width, options in refused:
        _, indices = gpuopt.max_pool1d(
            np.zeros((1, width), np.float32), **options, return_indices=True, backend="cpu"
        )
        dy = np.zeros(indices.shape, np.float32)
        with pytest.raises(gpuopt.VariantError, match="deep_windows"):
            gpuopt.max_pool1d_backward(dy, indices, (1, width), **options, **where)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((2, 5, 7, 9), (2, 1)),
        ((2, 5, 7, 9), (2, 1, 1)),
        ((3, 11, 6, 8), (3, 2, 1)),
        ((1, 3, 9, 8, 7), (3, 2)),
        ((2, 9, 10, 12), (4, 2, 2)),
        ((2, 9, 10, 11), ((1, 3, 5), (1, 2, 3), (0, 1, 2))),
        ((4, 6, 40, 40, 40), (3, 2, 1)),  # enough elements for two of a thread
        ((3, 70_001), (3, 2, 1)),
        ((40, 81, 44), (3, 2, 1)),
        ((9, 1, 1, 1), (2, 1, 1)),
    ],
)
def test_paired_windows_add_what_the_reference_does(
    shape: tuple[int, ...], windows: tuple[Any, ...], dtype: str
) -> None:
    """Runs cut off by the end of a row; indices of other elements and of none."""
    rank = 1 if len(shape) == 2 else min(len(shape) - 1, 3)
    rank = 2 if shape == (40, 81, 44) else rank
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-9, 9, shape).astype(np.float32)
    y, indices = getattr(gpuopt, op)(x, *windows, return_indices=True, backend="cpu")
    dy = rng.integers(-3, 4, y.shape).astype(dtype_of(dtype))
    where: dict[str, Any] = {"backend": "sim", "variant": "paired_windows"}
    backward = getattr(gpuopt, f"{op}_backward")
    want = getattr(ref, f"{op}_backward")(dy, indices, shape)
    got = backward(dy, indices, shape, *windows, **where)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    plane = int(np.prod(shape[-rank:]))
    any_at_all = rng.integers(-2, plane + 2, y.shape)
    indices = np.where(rng.random(y.shape) < 0.5, indices, any_at_all)
    got = backward(dy, indices, shape, *windows, **where)
    want = backward(dy, indices, shape, *windows, backend="cpu", variant="scalar")
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def test_paired_windows_refuse_a_third_window() -> None:
    for kernel, stride, dilation in ((3, 1, 1), (5, 2, 1), (2, 2, 1), (2, 2, 2)):
        x = np.zeros((1, 2, 12), np.float32)
        options = {"kernel_size": kernel, "stride": stride, "dilation": dilation}
        dy, indices = gpuopt.max_pool1d(x, **options, return_indices=True)
        with pytest.raises(gpuopt.VariantError, match="paired_windows"):
            gpuopt.max_pool1d_backward(
                dy, indices, x.shape, **options, backend="sim", variant="paired_windows"
            )


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    "windows",
    [  # kernel, stride, padding, dilation
        (2, 2, 0, 1), (2, 2, 1, 1), (3, 4, 1, 1), (2, 5, 1, 1), (4, 4, 1, 2),  # apart
        (2, 1, 1, 1), (3, 2, 1, 1), (4, 2, 2, 1), (5, 3, 1, 1), (4, 3, 0, 1),
        (3, 1, 1, 1), (5, 2, 2, 1),  # three windows: one or two axes
        (2, 1, 0, 2), (2, 2, 1, 2), (2, 3, 1, 2), (3, 2, 1, 3), (3, 4, 1, 6), (3, 2, 1, 4),
    ],
)  # fmt: skip
def test_marching_windows_add_what_the_reference_does(
    windows: tuple[int, int, int, int], rank: int, dtype: str
) -> None:
    """Marches over T, H and planes; dilated windows; indices of other elements and of none."""
    kernel, stride, padding, dilation = windows
    turns = stride // np.gcd(stride, dilation)
    most = {1: 3, 2: 3 if turns == stride else 2, 3: 2}[rank]
    is_taken = -(-kernel // turns) <= most
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(kernel)
    where: dict[str, Any] = {"backend": "sim", "variant": "marching_windows"}
    backward = getattr(gpuopt, f"{op}_backward")
    for shape in ((3, 14, 9, 15)[-rank - 1 :], (2, 3, 15, 13, 17)[: 2 + rank]):
        if min(shape[-rank:]) + 2 * padding <= dilation * (kernel - 1):
            continue
        x = rng.integers(-9, 9, shape).astype(np.float32)
        pool = getattr(gpuopt, op)
        y, indices = pool(x, *windows, return_indices=True, backend="cpu")
        dy = rng.integers(-3, 4, y.shape).astype(dtype_of(dtype))
        if not is_taken:
            with pytest.raises(gpuopt.VariantError, match="marching_windows"):
                backward(dy, indices, shape, *windows, **where)
            continue
        want = getattr(ref, f"{op}_backward")(dy, indices, shape)
        got = backward(dy, indices, shape, *windows, **where)
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
        any_at_all = rng.integers(-2, int(np.prod(shape[-rank:])) + 2, y.shape)
        indices = np.where(rng.random(y.shape) < 0.5, indices, any_at_all)
        got = backward(dy, indices, shape, *windows, **where)
        want = backward(dy, indices, shape, *windows, backend="cpu", variant="scalar")
        np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def test_overlapping_windows_refuse_windows_apart() -> None:
    dy, indices = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int64)
    with pytest.raises(gpuopt.VariantError, match="overlapping_windows"):
        gpuopt.max_pool1d_backward(
            dy, indices, (1, 8), 2, backend="sim", variant="overlapping_windows"
        )


def test_the_source_of_both_ladders() -> None:
    for op, opening in (
        ("max_pool3d", "Threads over"),
        ("max_pool2d_backward", "Axis by axis"),
    ):
        variant = "v4" if op == "max_pool3d" else "v3"
        assert gpuopt.source(op, variant).startswith(f"/*\n * {variant}  {opening}")


def test_wide_windows_have_a_kernel_of_their_own() -> None:
    """A tile of v6 has 32 elements along an axis: 16 with indices, 8 in small planes."""
    x = whole((1, 40, 40, 40))
    for kernel, indices, takes in (
        ((32, 1, 32), False, False),
        ((33, 1, 1), False, True),
        ((1, 1, 33), False, True),
        ((17, 1, 1), False, False),
        ((17, 1, 1), True, True),
    ):
        options: dict[str, Any] = {"return_indices": indices, "backend": "sim"}
        options["variant"] = "wide_windows"
        if takes:
            _core.plan("max_pool3d", x, kernel, 1, **options)
            continue
        with pytest.raises(gpuopt.VariantError, match="wide_windows"):
            max_pool3d(x, kernel, 1, **options)
    small = whole((1, 3, 3, 40))
    got = max_pool3d(small, (1, 1, 35), 1, backend="sim", variant="wide_windows")
    np.testing.assert_array_equal(got, ref.max_pool3d(small, (1, 1, 35), 1))


def _any_pool(rng: np.random.Generator, rank: int, most: int, dilated: bool) -> dict[str, Any]:
    kernel = tuple(int(n) for n in rng.integers(1, most, rank))
    return {
        "kernel_size": kernel,
        "stride": tuple(int(n) for n in rng.integers(1, 4, rank)),
        "padding": tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel),
        "dilation": tuple(int(n) for n in rng.integers(1, 4, rank)) if dilated else 1,
        "ceil_mode": bool(rng.integers(2)),
    }


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint32", "int64", "uint64", *FLOATS])
def test_any_windows_takes_any_window(dtype: str, rank: int, indices: bool) -> None:
    """Runs of 2, 3 and 4, rows of several, dilation, lanes that share, x strided."""
    rng = np.random.default_rng(rank)
    function, checked = f"max_pool{rank}d", 0
    for case in range(24):
        options = _any_pool(rng, rank, (4, 8, 15)[case % 3], case % 2 > 0)
        shape = tuple(int(n) for n in rng.integers(1, 20 if rank < 3 else 12, rank))
        x = rng.integers(-3, 4, (2, 3, *shape)).astype(dtype_of(dtype))
        if dtype in FLOATS:
            x[rng.random(x.shape) < 0.05] = np.nan
            x[rng.random(x.shape) < 0.1] = -np.inf
        x = (x, x[..., ::-1], np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1))[case % 3]
        try:
            want = getattr(ref, function)(x, **options, return_indices=True)
        except ValueError:
            continue
        got = getattr(gpuopt, function)(
            x, **options, return_indices=indices, backend="sim", variant="any_windows"
        )
        y = got[0] if indices else got
        np.testing.assert_array_equal(y.astype("f8"), want[0].astype("f8"), str(options))
        if indices:
            np.testing.assert_array_equal(got[1], want[1], str(options))
        checked += 1
    assert checked > 8


def _channels_last(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_channels_last_takes_any_window(dtype: str, rank: int, indices: bool) -> None:
    """Packs of 16 and 4 bytes and of one element, several tiles, runs that end early."""
    rng = np.random.default_rng(rank)
    function, checked = f"max_pool{rank}d", 0
    for case in range(24):
        options = _any_pool(rng, rank, (4, 8)[case % 2], case % 3 > 1)
        shape = tuple(int(n) for n in rng.integers(1, (300, 20, 8)[rank - 1], rank))
        channels = (2, 3, 8, 20, 33, 64, 72, 130)[case % 8]
        x = rng.integers(-3, 4, (2, channels, *shape)).astype(dtype_of(dtype))
        x[rng.random(x.shape) < 0.05] = np.nan
        x[rng.random(x.shape) < 0.1] = -np.inf
        x = _channels_last(x)
        x = (x, x[:, :, ::-1], x[:, 1:])[case % 3]  # the last not at a multiple of 16 bytes
        if x.shape[1] < 2:
            continue
        try:
            want = getattr(ref, function)(x, **options, return_indices=True)
        except ValueError:
            continue
        got = getattr(gpuopt, function)(
            x, **options, return_indices=indices, backend="sim", variant="channels_last"
        )
        y = got[0] if indices else got
        np.testing.assert_array_equal(y.astype("f8"), want[0].astype("f8"), str(options))
        if indices:
            np.testing.assert_array_equal(got[1], want[1], str(options))
        checked += 1
    assert checked > 8


def test_channels_last_refuses_planes() -> None:
    x = whole((2, 3, 4, 5))
    with pytest.raises(gpuopt.VariantError, match="channels_last"):
        max_pool2d(x, 2, backend="sim", variant="channels_last")


@pytest.mark.parametrize("indices", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "uint32", "int64", "uint64", *FLOATS])
def test_overlapping_windows_take_any_window(dtype: str, rank: int, indices: bool) -> None:
    """Several planes of a box, planes cut into boxes, dilation, x strided."""
    rng = np.random.default_rng(rank)
    function, checked = f"max_pool{rank}d", 0
    for case in range(40):
        options = _any_pool(rng, rank, (4, 8, 15)[case % 3], case % 2 > 0)
        most = ((9000, 130, 30) if case % 4 == 0 else (60, 20, 12))[rank - 1]
        shape = tuple(int(n) for n in rng.integers(1, most, rank))
        planes = (600, 2) if case % 8 == 7 else (2, 3)
        if planes[0] > 2:
            shape = tuple(min(n, 4) for n in shape)
        x = rng.integers(-3, 4, (*planes, *shape)).astype(dtype_of(dtype))
        if dtype in FLOATS:
            x[rng.random(x.shape) < 0.05] = np.nan
            x[rng.random(x.shape) < 0.1] = -np.inf
        x = (x, x[..., ::-1], _channels_last(x))[case % 3]
        where: dict[str, Any] = {"backend": "sim", "variant": "overlapping_windows"}
        try:
            _core.plan(function, x, **options, **where)
        except ValueError:  # no window, or none that overlap
            continue
        want = getattr(gpuopt, function)(x, **options, return_indices=True, backend="cpu")
        got = getattr(gpuopt, function)(x, **options, return_indices=indices, **where)
        y = got[0] if indices else got
        np.testing.assert_array_equal(y.astype("f8"), want[0].astype("f8"), str(options))
        if indices:
            np.testing.assert_array_equal(got[1], want[1], str(options))
        checked += 1
    assert checked > 8


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((2, 300, 258), (5, 5, 2)),  # a plane is cut into rows
        ((700, 20, 33), (3, 4, 1)),  # a block has several planes, the last one fewer
        ((3, 9001), (9, 12, 4)),  # rows are cut, and do not begin on 16 bytes
        ((1, 3, 200, 200), (2, 3, 0)),  # slices are cut; elements in no window
        ((5, 12, 8, 10), (13, 13, 6)),
        ((2, 40, 33, 21), (3, 5, 1, 2)),
        ((3, 30, 33, 50), (7, 7, 0, 2)),  # windows reach into each other's gaps
        ((2, 41, 70), (3, 3, 1, 4)),
        ((2, 90), (3, 5, 1, 3)),
        ((1, 60), (50, 60, 0)),  # one window
    ],
)
def test_separate_windows_store_what_the_reference_does(
    shape: tuple[int, ...], windows: tuple[int, ...], dtype: str, simulator: Any
) -> None:
    """Some indices are of other elements, some of none."""
    simulator(schedule="shuffle", checks=True)
    rank = len(shape) - 1
    op = f"max_pool{rank}d"
    rng = np.random.default_rng(len(shape) + sum(windows))
    x = rng.integers(-9, 9, shape).astype(np.float32)
    y, indices = getattr(gpuopt, op)(x, *windows, return_indices=True, backend="cpu")
    dy = rng.integers(-3, 4, y.shape).astype(dtype_of(dtype))
    where: dict[str, Any] = {"backend": "sim", "variant": "separate_windows"}
    backward = getattr(gpuopt, f"{op}_backward")
    want = getattr(ref, f"{op}_backward")(dy, indices, shape)
    got = backward(dy, indices, shape, *windows, **where)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    any_at_all = rng.integers(-2, int(np.prod(shape[1:])) + 2, y.shape)
    indices = np.where(rng.random(y.shape) < 0.5, indices, any_at_all)
    got = backward(dy, indices, shape, *windows, **where)
    want = backward(dy, indices, shape, *windows, backend="cpu", variant="scalar")
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def test_separate_windows_refuse_windows_that_overlap() -> None:
    dy, indices = np.zeros((1, 7), np.float32), np.zeros((1, 7), np.int64)
    with pytest.raises(gpuopt.VariantError, match="separate_windows"):
        gpuopt.max_pool1d_backward(
            dy, indices, (1, 8), 2, 1, backend="sim", variant="separate_windows"
        )
