"""scan beyond the matrix: NumPy's conventions, edges of tiles and groups, bugs pinned.

Order: what NumPy says, forms, out=, special values, accuracy, blocks and waves of the CPU,
edges of tiles, waiting tiles, the simulator's checks and counts.  See test_contract.py for
values on all sizes, layouts and dtypes.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import Sample, dtype_of, fewer_rows
from cases.scan import SCAN_OPS, scan_expect, scan_samples
from conftest import Figure

import gpuopt
from gpuopt import _core, ref, scan
from gpuopt.lab.profile import profile

RUNGS = [
    row["name"]
    for row in _core.variants("scan")
    if row["backend"] == "sim" and not row["shape"]
]
ACCUMULATE: dict[str, Callable[..., Any]] = {
    "sum": np.add.accumulate,
    "prod": np.multiply.accumulate,
    "min": np.minimum.accumulate,
    "max": np.maximum.accumulate,
}


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here; shape kernels as auto picks them."""
    usable = _core.backends()
    rows = [
        (row["backend"], "auto" if row["shape"] else row["name"])
        for row in _core.variants("scan")
        if row["available"] and usable[row["backend"]] is None
    ]
    return list(dict.fromkeys(rows))


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
each_rung = pytest.mark.parametrize("rung", RUNGS)


@pytest.fixture
def configure() -> Iterator[Callable[..., dict[str, Any]]]:
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


def whole(n: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).integers(-8, 9, n).astype(dtype)


# ---- what NumPy says ----


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (np.ones((2, 3)), {"axis": 2}),
        (np.ones((2, 3)), {"axis": -3}),
        (np.ones((2, 3)), {"axis": 1.0}),
        (np.ones((2, 3)), {"axis": "0"}),
        ([[1, 2], [3]], {}),
    ],
)
def test_errors_are_numpys(x: Any, options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as theirs:
        np.cumsum(x, **options)
    with pytest.raises(type(theirs.value), match=f"{re.escape(str(theirs.value))}$"):
        scan(x, **options)


@pytest.mark.parametrize("op", SCAN_OPS)
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"]
)
def test_the_result_is_numpys(op: str, dtype: str) -> None:
    x = (np.random.default_rng(5).standard_normal((5, 6, 7)) * 3).astype(dtype)
    numpy = {"sum": np.cumsum, "prod": np.cumprod}.get(op, ACCUMULATE[op])
    for axis in (0, 1, -1):
        want = numpy(x, axis=axis)
        for got in (scan(x, op, axis), ref.scan(x, op, axis)):
            assert type(got) is np.ndarray
            assert got.dtype == want.dtype
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(got, want)


def test_the_reference_takes_out_and_refuses() -> None:
    out = np.empty(3)
    assert ref.scan(np.ones(3), out=out) is out
    np.testing.assert_array_equal(out, [1, 2, 3])
    with pytest.raises(ValueError, match=r"out must have shape \(2,\)"):
        ref.scan(np.ones(2), out=out)
    with pytest.raises(ValueError, match="median"):
        ref.scan(np.ones(3), "median")
    with pytest.raises(TypeError, match="complex"):
        ref.scan(np.ones(3, complex), "max")


@pytest.mark.parametrize(
    "x", [[1, 2, 3], [[True, False]], range(5), (1.5, 2), memoryview(b"abc")]
)
def test_anything_numpy_takes(x: Any) -> None:
    plain = np.asarray(x)
    for op in SCAN_OPS:
        assert scan_expect(plain, op=op).compare(scan(x, op)) is None


# ---- forms ----


@each_variant
@pytest.mark.parametrize("op", SCAN_OPS)
def test_exclusive_and_reverse(backend: str, variant: str, op: str) -> None:
    """Spelled out: the scan of the reversed array, shifted by one after the identity."""
    first = {"sum": 0, "prod": 1, "min": 2**31 - 1, "max": -(2**31)}[op]
    rng = np.random.default_rng(9)
    for shape, axis in (((300,), 0), ((3, 70), 1), ((70, 3), 0), ((40, 40), 0), ((9, 3, 5), 1)):
        x = rng.integers(-3, 4, shape).astype(np.int32)
        for exclusive, reverse in itertools.product((False, True), repeat=2):
            turned = np.flip(x, axis) if reverse else x
            want = ACCUMULATE[op](turned, axis, np.int64 if op in ("sum", "prod") else None)
            if exclusive:
                want = np.roll(want, 1, axis)
                want[(slice(None),) * axis + (0,)] = first
            want = np.flip(want, axis) if reverse else want
            got = scan(x, op, axis, exclusive, reverse, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, want, f"{shape} {exclusive} {reverse}")


@each_variant
def test_identity_of_every_dtype(backend: str, variant: str) -> None:
    names = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
    for dtype in [*names, "float16", "bfloat16", "float32", "float64"]:
        x = np.ones(2, dtype_of(dtype))
        for op in SCAN_OPS:
            got = scan(x, op, exclusive=True, backend=backend, variant=variant)
            want = ref.scan(x, op, exclusive=True)
            assert got.dtype == want.dtype
            assert got.tobytes() == want.tobytes(), (dtype, op)


@each_variant
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (1,), (1, 1)])
def test_empty_and_single(backend: str, variant: str, shape: tuple[int, ...]) -> None:
    for dtype in ("int32", "float16", "float64"):
        x = np.ones(shape, dtype)
        for op, axis in itertools.product(SCAN_OPS, range(len(shape))):
            for exclusive in (False, True):
                options: dict[str, Any] = {"op": op, "axis": axis, "exclusive": exclusive}
                got = scan(x, **options, backend=backend, variant=variant)
                assert scan_expect(x, **options).compare(got) is None


@each_variant
def test_many_dimensions_in_every_order(backend: str, variant: str) -> None:
    """More axes than a kernel's arguments hold, and none of them can be merged."""
    base = np.arange(2**6 * 3, dtype=np.int32).reshape(2, 2, 2, 2, 2, 2, 3)
    for order in ((0, 2, 4, 6, 1, 3, 5), (6, 5, 4, 3, 2, 1, 0), (3, 6, 0, 5, 1, 4, 2)):
        x = base.transpose(order)
        for axis in (0, 3, 6):
            got = scan(x, axis=axis, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, np.cumsum(x, axis))


def test_64_dimensions() -> None:
    x = np.ones((1,) * 60 + (2, 3, 1, 2), np.int32)
    for axis in (0, 60, 61, 62, 63):
        np.testing.assert_array_equal(scan(x, axis=axis), np.cumsum(x, axis))


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    big = np.full((7, 9, 11), 99, np.float32)
    for axis in range(3):
        want = np.cumsum(x, axis)
        outs = [np.empty_like(x), np.empty((5, 4, 3), np.float32).T, big[1::2, 1::2, 1::2]]
        outs += [np.empty(61, np.float32)[1:].reshape(3, 4, 5), np.empty_like(x)[::-1]]
        for out in outs:
            assert scan(x, axis=axis, out=out, backend=backend, variant=variant) is out
            np.testing.assert_array_equal(out, want)
    big[1::2, 1::2, 1::2] = 99
    assert (big == 99).all(), "wrote beside out"


def test_a_refused_out_is_not_written() -> None:
    out = np.full((2, 3), 7, np.float32)
    for options in ({"axis": 5}, {"variant": "none"}, {"op": "mean"}):
        with pytest.raises((ValueError, TypeError)):
            scan(np.ones((2, 3), np.float32), **options, out=out)
        assert (out == 7).all()


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """Row r of an identity matrix has nan at r: so has its scan from r on, and only there."""
    slow = backend == "sim"
    lengths = (1, 2, 33, 70) if slow and dtype != "float32" else range(1, 71)
    for n in lengths[:: 3 if slow and len(lengths) > 4 else 1]:
        x = np.ones((n, n)).astype(dtype_of(dtype))
        np.fill_diagonal(x, np.nan)
        want = np.triu(np.ones((n, n), bool))
        for op in ("sum", "max") if slow else SCAN_OPS:
            got = scan(x, op, 1, backend=backend, variant=variant).astype(np.float32)
            np.testing.assert_array_equal(np.isnan(got), want, f"{n} {op}")
            got = scan(x, op, 0, reverse=True, backend=backend, variant=variant)
            np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), want, f"{n} {op}")


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_windows_of_nan_and_infinity(backend: str, variant: str, dtype: str) -> None:
    for n in (1, 33, 257, 1025):
        low = np.full(n, -np.inf).astype(dtype_of(dtype))
        for op, x in (("max", low), ("min", -low), ("sum", low), ("sum", -low)):
            got = scan(x, op, backend=backend, variant=variant)
            assert (got == x).all(), (n, op)
        both = low.copy()
        both[n // 2] = np.inf
        got = scan(both, backend=backend, variant=variant).astype(np.float32)
        assert (got[: n // 2] == -np.inf).all()
        assert np.isnan(got[n // 2 :]).all() or n == 1


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pinned_half_accumulators_stagnate(backend: str, variant: str, dtype: str) -> None:
    """A sum of ones in float16 stops at 2048, in bfloat16 at 256."""
    n = 4100 if backend == "sim" else 10_000
    x = np.ones(n, dtype_of(dtype))
    want = np.arange(1, n + 1, dtype=np.float64).astype(x.dtype)
    got = scan(x, backend=backend, variant=variant)
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))
    got = scan(x.reshape(-1, 2), axis=0, backend=backend, variant=variant)
    np.testing.assert_array_equal(got[:, 1].astype("f8"), want[: n // 2].astype("f8"))


def test_integers_wrap_as_numpys() -> None:
    x = np.array([2**63 - 1, 1, 5], np.int64)
    for backend, variant in variants():
        got = scan(x, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.cumsum(x))
        x8 = np.full(300, 127, np.int8)
        assert scan(x8, backend=backend, variant=variant)[-1] == 38_100
        got = scan(x8, "prod", backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.cumprod(x8))


# ---- accuracy ----


@each_variant
@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_adversarial_sums(
    backend: str, variant: str, dtype: str, eps: float, figure: Figure
) -> None:
    """The bound that the documentation states, at sampled prefixes."""
    rng = np.random.default_rng(11)
    top = 9001 if backend == "sim" else 300_007
    scale = 1e8 if dtype == "float32" else 1e16
    c = 32 if backend != "cpu" else 12 if dtype == "float32" else 48
    chain = 2.0**-10 if backend != "cpu" and dtype == "float64" else 0
    worst = 0.0
    for n in (3, 33, 1025, top):
        cancel = np.resize([scale, 1, -scale], n)
        drift = np.full(n, 0.1)
        drift[0] = scale
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        for values in (cancel, drift, grow, np.sort(grow)):
            x = values.astype(dtype)
            got = scan(x, backend=backend, variant=variant)
            for k in {1, 2, n // 3 + 1, n // 2 + 1, n - 1, n}:
                exact = math.fsum(x[:k].astype("f8"))
                size = math.fsum(np.abs(x[:k].astype("f8")))
                steps = math.ceil(math.log2(k)) + c + k * chain
                error, bound = abs(float(got[k - 1]) - exact), steps * eps * size
                assert error <= bound, (n, k)
                worst = max(worst, error / bound)
    figure(f"scan {backend} {variant} {dtype}: worst prefix", f"{worst:.0%} of the bound")


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
def test_a_long_float32_scan_does_not_stagnate(variant: str) -> None:
    n = (1 << 24) + 1000
    x = np.broadcast_to(np.float32(1), (n,))
    got = scan(x, backend="cpu", variant=variant)
    assert got[-1] == n
    assert got[n // 2] == n // 2 + 1


# ---- blocks and waves of the CPU ----

BLOCK = 2048  # elements that are looked at together for a minimum or maximum
CHUNK_OF_ROW = 1 << 15  # elements; a wave is 8 of them for each thread


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    old = gpuopt.get_num_threads()
    yield gpuopt.set_num_threads
    gpuopt.set_num_threads(old)


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "float16", "float64"])
def test_a_block_that_moves_the_maximum_once(dtype: str, variant: str) -> None:
    """A record at each end of a block and between, ties, and blocks without any."""
    for at in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 511, 3 * BLOCK - 1, 5 * BLOCK):
        x = np.zeros(5 * BLOCK + 3, dtype)
        x[at] = 1
        x[at + 2 :: BLOCK] = 1
        got = scan(x, "max", backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, np.maximum.accumulate(x), f"{at}")
        got = scan(~x if dtype == "bool" else 1 - x, "min", backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, 1 - np.maximum.accumulate(x).astype("int8"))


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_few_columns_and_short_rows(dtype: str, variant: str) -> None:
    """Sums that every dtype holds exactly, around the edges of pieces and chunks."""
    rng = np.random.default_rng(7)
    options: dict[str, Any] = {"backend": "cpu", "variant": variant}
    shapes = [(n, w) for w in (1, 2, 3, 4, 5, 8, 15, 16) for n in (1, 9, 64, 129, 1031)]
    shapes += [(70001, 3), (40000, 8), (9, 15), (5, 200, 3), (30000, 2)]
    for shape in shapes:
        x = rng.integers(-1, 2, shape).astype(dtype)
        last = x.ndim - 1
        for axis in (last - 1, last):
            want = np.cumsum(x.astype(np.int64), axis)
            got = scan(x, axis=axis, **options)
            np.testing.assert_array_equal(got, want, f"{shape} {axis}")
            got = scan(x, axis=axis, initial=3, exclusive=True, **options)
            np.testing.assert_array_equal(got, want - x + 3, f"{shape} {axis}")
            back = np.flip(x, axis)
            got = np.flip(scan(back, axis=axis, reverse=True, **options), axis)
            np.testing.assert_array_equal(got, want, f"{shape} {axis} reverse")


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_products_and_extremes_of_halves(variant: str) -> None:
    """They are converted in pieces: rows and columns around their lengths."""
    rng = np.random.default_rng(8)
    for n in (1, 7, 15, 16, 17, 31, 127, 128, 129, 511, 513, 2100):
        x = rng.integers(-40, 40, (6, n)).astype(np.float16)
        x[3, n // 2], x[4, n // 3] = np.nan, -np.inf
        y = np.exp2(rng.integers(-1, 2, (6, n))).astype(np.float16)
        for axis, flip in ((1, False), (0, False), (1, True)):
            options: dict[str, Any] = {"axis": axis, "reverse": flip, "variant": variant}
            for op, array in (("max", x), ("min", x), ("prod", y)):
                got = scan(array, op, backend="cpu", **options)
                turned = np.flip(array, axis) if flip else array
                with np.errstate(over="ignore"):
                    want = ACCUMULATE[op](turned.astype(np.float64), axis).astype(np.float16)
                want = np.flip(want, axis) if flip else want
                np.testing.assert_array_equal(got, want, f"{op} {n} {axis} {flip}")


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_blocks_with_nan_and_zeros_of_both_signs(dtype: str, variant: str) -> None:
    n = 4 * BLOCK
    for at in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 700, n - 1):
        for op in ("min", "max"):
            x = np.where(np.arange(n) < at, 0.0, -0.0).astype(dtype)
            got = scan(x, op, backend="cpu", variant=variant)
            assert (np.signbit(got) == (at == 0)).all(), "of equal ones the first"
            x[at] = np.nan
            got = scan(x, op, backend="cpu", variant=variant)
            np.testing.assert_array_equal(np.isnan(got), np.arange(n) >= at)


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["int16", "int64", "float16", "float32", "float64"])
def test_short_rows_and_few_columns(dtype: str, op: str, variant: str) -> None:
    """Short rows are turned, so that each is a column; from four columns on they are strips."""
    rng = np.random.default_rng(3)
    for n, rows in itertools.product((2, 3, 8, 9, 16, 17, 40), (1, 7, 8, 63, 65, 130)):
        x = rng.integers(-2, 3, (rows, n)).astype(dtype)
        if x.dtype.kind == "f":
            x[rows // 2, n // 2] = np.nan
            x[-1, -1] = -np.inf
        for axis, reverse in itertools.product((0, 1), (False, True)):
            with np.errstate(invalid="ignore"):
                got = scan(x, op, axis=axis, reverse=reverse, backend="cpu", variant=variant)
                want = ref.scan(x, op, axis=axis, reverse=reverse)
            np.testing.assert_array_equal(got, want, f"{n} {rows} {axis} {reverse}")


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float16", "float32", "float64"])
def test_small_matrices_and_few_columns(dtype: str, variant: str) -> None:
    """Sums by windows of eight: every width below 16, whole eights and what is left over."""
    rng = np.random.default_rng(12)
    options: dict[str, Any] = {"axis": 1, "backend": "cpu", "variant": variant}
    for n, w in itertools.product((2, 3, 5, 8, 16, 17, 31, 33), (*range(1, 17), 20)):
        for matrices in (2, 9, 70):
            x = rng.integers(-9, 9, (matrices, n, w)).astype(dtype)
            for reverse in (False, True):
                got = scan(x, reverse=reverse, **options)
                want = ref.scan(x, axis=1, reverse=reverse)
                np.testing.assert_array_equal(got, want, f"{x.shape} {reverse}")
    for n, w in itertools.product((127, 128, 130, 1300, 40_000), range(1, 17)):
        x = rng.integers(-1, 2, (n, w)).astype(dtype)
        for reverse in (False, True):
            got = scan(x, axis=0, reverse=reverse, backend="cpu", variant=variant)
            turned = x[::-1] if reverse else x
            want = np.cumsum(turned.astype(np.float64), 0)
            want = (want[::-1] if reverse else want).astype(got.dtype)
            np.testing.assert_array_equal(got, want, f"{x.shape} {reverse}")


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("w", [1, 2, 3, 5, 8, 12])
def test_adversarial_sums_of_few_columns(w: int, variant: str) -> None:
    """The documented bound where float64 is added in groups: rows, columns, matrices."""
    rng = np.random.default_rng(13)
    for n in (7, 31, 129, 256, 20_011):
        cancel = np.resize([1e16, 1, -1e16], n)
        drift = np.r_[1e16, np.full(n - 1, 0.1)]
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        for values in (cancel, drift, grow, np.sort(grow)):
            x = np.stack([np.roll(values, c) for c in range(w)], 1)
            calls = [(x, 0)] if w > 1 else [(x[:, 0], 0)]
            if n < 300:
                calls.append((np.stack([x, x]), 1))
            for array, axis in calls:
                got = scan(array, axis=axis, backend="cpu", variant=variant)
                got = got.reshape(-1, n, w)[-1]
                for k in {1, 2, 3, n // 2 + 1, n - 1, n}:
                    for c in {0, w - 1}:
                        exact, size = math.fsum(x[:k, c]), math.fsum(np.abs(x[:k, c]))
                        bound = (math.ceil(math.log2(k)) + 48) * 2.0**-53 * size
                        assert abs(float(got[k - 1, c]) - exact) <= bound, (n, w, k)


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("dtype", ["int16", "int32", "int64", "float16", "float32", "float64"])
def test_extremes_that_settle_and_change(dtype: str, op: str, variant: str) -> None:
    """Random and rising rows, and few columns, with nan and zeros of both signs."""
    rng = np.random.default_rng(14)
    for n, w in itertools.product((9, 300, 1449, 2048, 9000), (1, 2, 3, 5, 8, 15)):
        x = rng.integers(-3000, 3000, (n, w)).astype(dtype)
        rising = np.sort(x, 0) if op == "max" else -np.sort(x, 0)
        zeros = np.where(rng.integers(0, 2, (n, w)) > 0, 0.0, -0.0).astype(dtype)
        arrays = [x, rising, zeros]
        if x.dtype.kind == "f":
            arrays.append(x.copy())
            arrays[-1][2 * n // 3, w // 2] = np.nan
        for array, reverse in itertools.product(arrays, (False, True)):
            for turned, axis in ((array, 0), (np.ascontiguousarray(array.T), 1)):
                got = scan(turned, op, axis, reverse=reverse, backend="cpu", variant=variant)
                flip = np.flip(turned, axis) if reverse else turned
                want = ACCUMULATE[op](flip, axis)
                want = np.flip(want, axis) if reverse else want
                np.testing.assert_array_equal(got, want, f"{n} {w} {axis} {reverse}")
                if array is zeros and x.dtype.kind == "f" and (w > 1 > axis or not reverse):
                    first = np.flip(flip.take([0], axis), axis)
                    assert (np.signbit(got) == np.signbit(first)).all(), (
                        "the first of equal ones"
                    )


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float64", "complex64"])
def test_an_axis_of_one_element_gives_the_elements(dtype: str, variant: str) -> None:
    """Also of views and with an initial value."""
    x = np.random.default_rng(4).integers(0, 5, (40_000, 1, 3)).astype(dtype)
    for view, initial in itertools.product((x, x[::-1], x[:, :, :2]), (None, 2)):
        got = scan(view, axis=1, initial=initial, backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, view + np.asarray(initial or 0, got.dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_waves_of_long_rows(threads: Callable[[int], None], dtype: str) -> None:
    """Rows that end within a wave, and the same bits on any number of threads."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((3, 11 * CHUNK_OF_ROW + 77)) * 100).astype(dtype)
    for op, exclusive in (("sum", False), ("sum", True), ("max", False)):
        want = scan(x, op, 1, exclusive=exclusive, backend="cpu", variant="scalar")
        bits = set()
        for n in (1, 2, 5):
            threads(n)
            got = scan(x, op, 1, exclusive=exclusive, backend="cpu", variant="threads")
            bits.add(got.tobytes())
            if op == "max" or dtype == "int32":
                np.testing.assert_array_equal(got, want)
            else:  # both sum in float64 and round once
                terms = x.shape[1] * 2.0**-53 * np.abs(x, dtype=np.float64).sum(1)
                once = np.finfo(dtype).eps / 2 * np.abs(want, dtype=np.float64)
                off = np.abs(np.subtract(got, want, dtype=np.float64))
                assert (off <= 2 * (terms[:, None] + once)).all()
        assert len(bits) == 1


# ---- edges of tiles ----


@each_rung
def test_pinned_tails(rung: str) -> None:
    """Lengths that divide nothing: the last element counts, the next is not written."""
    step = 131
    for n in [*range(1, 1100, step), 127, 128, 129, 255, 256, 257, 511, 512, 513, 4095, 4097]:
        x = whole(n, "int32")
        memory = np.full(n + 8, -1, np.int64)
        scan(x, out=memory[4 : n + 4], backend="sim", variant=rung)
        np.testing.assert_array_equal(memory[4 : n + 4], np.cumsum(x))
        assert (memory[:4] == -1).all() and (memory[n + 4 :] == -1).all()


@each_rung
def test_pinned_misaligned_starts(rung: str) -> None:
    """16-byte packs of arrays whose addresses are multiples of 4 or 2 alone."""
    base, memory = whole(1100), np.empty(1100, np.float32)
    half = base.astype(np.float16)
    for start, shift in ((0, 1), (1, 1), (1, 0), (2, 3), (3, 3)):
        for n in (1, 5, 31, 257):
            x, out = base[start : start + n], memory[shift : shift + n]
            scan(x, out=out, backend="sim", variant=rung)
            np.testing.assert_array_equal(out, np.cumsum(x))
            scan(x[::-1], reverse=True, out=out, backend="sim", variant=rung)
            np.testing.assert_array_equal(out, np.cumsum(x)[::-1])
            got = scan(half[start : start + n], "max", backend="sim", variant=rung)
            np.testing.assert_array_equal(got, np.maximum.accumulate(half[start : start + n]))


SMALLEST = {"v3": 1024, "v4": 2048, "v5": 2048}  # elements of a tile: complex128
CHUNK = 64  # of a strip of columns 32 lanes wide; 2048 elements where there is one lane
each_single_pass = pytest.mark.parametrize("rung", SMALLEST)


@each_single_pass
@pytest.mark.parametrize("tiles", [1, 2, 31, 32, 33, 64, 65])
@pytest.mark.parametrize("schedule", ["ascending", "shuffle", "preempt"])
def test_edges_of_groups(
    tiles: int, schedule: str, rung: str, configure: Callable[..., Any]
) -> None:
    """A tile short of a group, a group, a tile more; n on and beside the tile's edge.

    What n does at a tile's edge is the same in any order of the blocks.
    """
    configure(schedule=schedule, resident=8, seed=tiles)
    whole_tiles = tiles * SMALLEST[rung]
    for n in (whole_tiles - 1, whole_tiles, whole_tiles + 1):
        if n == whole_tiles or schedule == "ascending":
            x = whole(n, "complex128")
            got = scan(x, backend="sim", variant=rung)
            np.testing.assert_array_equal(got, np.cumsum(x))
    if schedule == "ascending":
        return  # blocks one after the other: test_long_rows_begin_anywhere
    x = whole(2 * (whole_tiles + 3), "complex128").reshape(2, -1)
    got = scan(x, axis=1, reverse=True, exclusive=True, backend="sim", variant=rung)
    np.testing.assert_array_equal(got, ref.scan(x, "sum", 1, True, True))


@each_single_pass
def test_edge_of_a_supergroup(rung: str) -> None:
    """1,024 tiles and two more: what comes before a supergroup is a chain."""
    x = whole(1026 * SMALLEST[rung], "complex128")
    got = scan(x, backend="sim", variant=rung)
    np.testing.assert_array_equal(got, np.cumsum(x))


@each_single_pass
@pytest.mark.parametrize("cols", [4097, 8192, 8193, 20001])
@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "int8"])
def test_long_rows_begin_anywhere(dtype: str, cols: int, rung: str) -> None:
    """Tiles whose ends are no whole packs, in both directions, x beside out."""
    x = whole(3 * (cols + 1), dtype).reshape(3, cols + 1)
    for part in (x[:, :-1], x[:, 1:], x[:, :0:-1]):
        for options in ({}, {"reverse": True, "exclusive": True}):
            got = scan(part, axis=1, **options, backend="sim", variant=rung)
            np.testing.assert_array_equal(got, ref.scan(part, axis=1, **options))
        if dtype != "complex64":
            got = scan(part, "max", axis=1, backend="sim", variant=rung)
            np.testing.assert_array_equal(got, np.maximum.accumulate(part, 1))


@pytest.mark.parametrize("width", [1, 2, 3, 32, 33, 40])
@pytest.mark.parametrize("chunks", [1, 7, 8, 9])
def test_edges_of_groups_of_columns(
    width: int, chunks: int, configure: Callable[..., Any]
) -> None:
    configure(schedule="shuffle", resident=8, seed=width)
    lanes = 1 << min(5, (width - 1).bit_length())
    chunk = CHUNK * 32 // lanes if width > 1 else SMALLEST["v3"]
    rung = "columns" if width > 1 else "v3"
    for rows in (chunks * chunk, chunks * chunk + 1):
        if rows * width > 200_000:
            continue
        x = whole(rows * width, "complex128").reshape(rows, width)
        got = scan(x, axis=0, backend="sim", variant=rung)
        np.testing.assert_array_equal(got, np.cumsum(x, 0))


def test_edge_of_a_supergroup_of_columns(configure: Callable[..., Any]) -> None:
    """64 chunks and one more in one strip; a strip among many has supergroups of one group."""
    configure(schedule="shuffle", resident=8, seed=3)
    x = whole(65 * CHUNK * 17, "complex128").reshape(-1, 17)
    for options in ({}, {"reverse": True}, {"exclusive": True}):
        got = scan(x, axis=0, **options, backend="sim", variant="columns")
        np.testing.assert_array_equal(got, ref.scan(x, axis=0, **options))
    x = whole(17 * CHUNK * 32 * 16, "complex128").reshape(-1, 32 * 16)
    got = scan(x, axis=0, backend="sim", variant="columns")
    np.testing.assert_array_equal(got, np.cumsum(x, 0))


@pytest.mark.parametrize("width", [2, 3, 4, 9, 520])
@pytest.mark.parametrize("rows", [2, 3, 7, 8, 9, 16, 17, 33])
def test_walked_columns(rows: int, width: int) -> None:
    """Steps of 8 rows, packs that are cut off, columns in groups and against their order."""
    for dtype in ("float32", "float64", "complex128", "int8", "float16"):
        x = whole(3 * rows * width, dtype).reshape(3, rows, width)
        for part in (x, x[:, ::-1], x[:, :, 1:] if width > 2 else x, x[0]):
            axis = part.ndim - 2
            for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
                got = scan(part, axis=axis, **options, backend="sim", variant="walked_columns")
                np.testing.assert_array_equal(got, ref.scan(part, axis=axis, **options))
    for shape in ((2, 1 << 20), (16, 1 << 20), (5, 300_000)):
        assert gpuopt.plan("scan", np.ones(shape, bool), axis=0, backend="sim")["variant"] == (
            "walked_columns"
        )


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64"])
def test_walked_packs(dtype: str) -> None:
    """So many columns that a thread takes a pack of them, where these are aligned."""
    for rows, width in ((9, 8200), (9, 8202), (4, 8200), (3, 8203)):
        x = whole(rows * width, dtype).reshape(rows, width)
        for options in ({}, {"reverse": True}, {"exclusive": True, "initial": 3}):
            got = scan(x, axis=0, **options, backend="sim", variant="walked_columns")
            np.testing.assert_array_equal(got, ref.scan(x, axis=0, **options))


@pytest.mark.parametrize("dtype", ["bool", "float16", "int64", "complex128"])
def test_short_columns_of_many_runs(dtype: str, configure: Callable[..., Any]) -> None:
    """Threads of four columns of up to four elements, which are of different runs."""
    configure(checks=True)
    for shape in ((140, 4, 35), (2, 11, 2, 205)):
        x = whole(int(np.prod(shape)) * 2, "int64").reshape(*shape, 2).astype(dtype)
        for part in (x[..., 0].copy(), x[:, ::-1, :, 0].copy(), x[..., 1:, 0]):
            axis = part.ndim - 2
            for options in ({}, {"reverse": True, "exclusive": True}):
                got = scan(part, axis=axis, **options, backend="sim", variant="walked_columns")
                np.testing.assert_array_equal(got, ref.scan(part, axis=axis, **options))


@pytest.mark.parametrize("variant", ["cluster_rows", "one_wave"])
@pytest.mark.parametrize("n", [1, 255, 256, 257, 4_100, 9_001])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "complex128"])
def test_rows_cut_into_blocks(n: int, dtype: str, variant: str) -> None:
    """A row cut into blocks, from one warp of each on; ends that are not aligned."""
    x = whole(3 * n + 2, dtype) % 3 if dtype != "complex128" else whole(3 * n + 2, dtype)
    for part in (x[2:].reshape(3, n), x[1 : n + 1], x[: 2 * n].reshape(1, 2 * n)[:, ::2]):
        for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
            got = scan(part, axis=-1, **options, backend="sim", variant=variant)
            np.testing.assert_array_equal(got, ref.scan(part, axis=-1, **options))


@pytest.mark.parametrize("variant", ["cluster_rows", "one_wave"])
def test_rows_cut_into_blocks_of_several_packs(variant: str) -> None:
    """Threads have two packs from 8,192 packs on, of which the last block has few."""
    for n in (2 * 8192, 2 * 8192 + 1, 35_000):
        x = whole(n, "int64")
        for options in ({}, {"reverse": True}, {"op": "max", "exclusive": True}):
            got = scan(x, **options, backend="sim", variant=variant)
            np.testing.assert_array_equal(got, ref.scan(x, **options))


def test_one_wave_in_any_order(configure: Callable[..., Any]) -> None:
    """Blocks in shuffled order, launches of other sizes between: each finds words cleared."""
    configure(schedule="shuffle", checks=True)
    options: dict[str, Any] = {"backend": "sim", "variant": "one_wave"}
    for rows, n in [(1, 40_000), (3, 3_000), (1, 9), (7, 2_500), (1, 40_000)]:
        x = whole(rows * n, "int64").reshape(rows, n)
        np.testing.assert_array_equal(scan(x, axis=1, **options), ref.scan(x, axis=1))


def test_few_long_rows_are_chosen_by_their_bytes() -> None:
    def chosen(*shape: int, axis: int = -1) -> str:
        x = np.ones(shape, np.float32)
        return str(gpuopt.plan("scan", x, axis=axis, backend="sim")["variant"])

    assert chosen(9_000) == chosen(1, 24_000) == "cluster_rows"
    assert chosen(25_000) == chosen(2, 24_000) == chosen((1 << 22) - 4) == "one_wave"
    assert chosen(6_000_000) == "v4" and chosen(7_000_000) == "v5"
    assert chosen(9, 301) == chosen(300, 301) == "short_rows"
    assert chosen(30_000, 301) == chosen(1_400, 180) == "warp_rows"
    assert chosen(300) == chosen(3_900) == "cluster_rows" and chosen(5, 301) == "one_wave"
    assert chosen(30, 200_000, axis=0) == "walked_columns"
    assert chosen(30, 2_000, axis=0) == chosen(96, 512, axis=0) == "warp_rows"
    assert chosen(300_000, 4, axis=0) == "columns"  # half sectors
    assert chosen(1_000, 1_500, axis=0) == "columns"
    assert chosen(3, 50_000, 5, axis=1) == "v2" and chosen(3, 2_000, 5, axis=1) == "columns"
    assert chosen(8, 301) == "one_wave"
    assert chosen(3, 1, 50_000, axis=1) == chosen(1, 150_000, axis=0) == "one_element"


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_an_axis_of_one_element_is_copied(backend: str) -> None:
    """Whatever is beside it: elements side by side, with gaps, in another order."""
    for dtype in ("float32", "int16", "complex64"):
        x = whole(5 * 6 * 70, dtype).reshape(5, 6, 70)
        for part in (x[:, None], x[:, None, ::2], x.T[:, None], x[:, :1], x[::-1, :, :1]):
            axis = part.shape.index(1)
            for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
                got = scan(part, axis=axis, **options, backend=backend)
                np.testing.assert_array_equal(got, ref.scan(part, axis=axis, **options))


@pytest.mark.parametrize("n", [1, 2, 255, 1024, 2047, 2048, 2049, 8193])
def test_one_element(n: int) -> None:
    """Whole tiles and what is left, aligned or not, every form of a scan."""
    for dtype in ("float32", "complex128", "int8", "bool", "float16", "int64"):
        x = whole(n + 1, dtype)
        for part in (x[:n], x[1:]):
            for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
                for shape in ((1, n), (n, 1), (1, n, 1)):
                    one, axis = part.reshape(shape), shape.index(1)
                    if axis < len(shape) - 1 and n == 1:
                        axis = len(shape) - 1
                    got = scan(one, axis=axis, **options, backend="sim", variant="one_element")
                    np.testing.assert_array_equal(got, ref.scan(one, axis=axis, **options))
        if dtype != "complex128":
            got = scan(x[None], "min", axis=0, backend="sim", variant="one_element")
            np.testing.assert_array_equal(got, x[None])
    with pytest.raises(ValueError, match="one_element"):
        scan(np.ones((2, 1, 4))[:, :, ::2], axis=1, backend="sim", variant="one_element")


@pytest.mark.parametrize("cols", [1, 2, 3, 16, 17, 31, 32, 33, 64, 65, 128, 129, 385, 1024])
def test_warp_rows(cols: int) -> None:
    """Lanes beside a row, rows beside a warp, turns of 32, any strides, both directions."""
    for dtype in ("float32", "complex128", "int8", "float16"):
        x = whole(7 * cols * 2, dtype).reshape(7, 2 * cols)
        for part in (x[:, :cols], x[:, ::2], x[::2, ::-2]):
            for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
                got = scan(part, axis=1, **options, backend="sim", variant="warp_rows")
                np.testing.assert_array_equal(got, ref.scan(part, axis=1, **options))
        if dtype != "complex128":
            part = x[:, :cols]
            got = scan(part, "max", axis=1, backend="sim", variant="warp_rows")
            np.testing.assert_array_equal(got, np.maximum.accumulate(part, 1))


@pytest.mark.parametrize("rows", [1, 2, 14, 33, 64])
def test_few_elements_in_columns(rows: int) -> None:
    """A part of a warp for each column, elements and columns in any order."""
    for dtype in ("float64", "int8", "float16"):
        x = whole(3 * rows * 18, dtype).reshape(3, rows, 18)
        for part in (x, x[:, ::-1], x[:, :, ::2], x[0], x.transpose(2, 1, 0)):
            axis = part.ndim - 2
            for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
                got = scan(part, axis=axis, **options, backend="sim", variant="warp_rows")
                np.testing.assert_array_equal(got, ref.scan(part, axis=axis, **options))
    plan = gpuopt.plan("scan", np.ones((rows, 128)), axis=0, backend="sim")
    assert plan["variant"] == ("warp_rows" if rows > 1 else "one_element")


@pytest.mark.parametrize("n", [8193, 11_167, 16_369, 16_384])
def test_rows_of_one_parked_tile(n: int) -> None:
    """v4 takes no ticket for them; a tile of v3 has 8,192 halves."""
    x = whole(3 * n, "float16").reshape(3, n) % 3
    for part in (x, x[0], x[:, 1:]):
        for options in ({}, {"reverse": True}, {"exclusive": True}, {"initial": 3}):
            got = scan(part, axis=-1, **options, backend="sim", variant="v4")
            np.testing.assert_array_equal(got, ref.scan(part, axis=-1, **options))
    assert gpuopt.plan("scan", x[0], backend="sim")["variant"] == "cluster_rows"


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
)
@pytest.mark.parametrize("variant", ["v4", "v5", "one_wave", "cluster_rows"])
def test_sums_of_short_integers_wait_as_they_are_read(variant: str, dtype: str) -> None:
    """A pack of x is two to eight packs of results; rows and results may begin anywhere."""
    rng = np.random.default_rng(7)
    info = np.iinfo(np.uint8 if dtype == "bool" else dtype)
    x = rng.integers(info.min, info.max, (3, 40_003), endpoint=True).astype(dtype)
    where = {"backend": "sim", "variant": variant}
    for part in (x, x[0], x[:, 5:33_010], x[:, ::-1], x[1:2, 3:]):
        for options in ({}, {"reverse": True}, {"exclusive": True, "initial": -3}):
            if dtype.startswith(("u", "b")) and "initial" in options:
                options = {"exclusive": True, "initial": 3}
            want = ref.scan(part, axis=-1, **options)
            np.testing.assert_array_equal(scan(part, axis=-1, **options, **where), want)
    base = np.empty(40_003 + 3, want.dtype)
    for begin in (1, 2, 3):  # results between boundaries of their packs
        scan(x[0], out=base[begin:][:40_003], **where)
        np.testing.assert_array_equal(base[begin:][:40_003], ref.scan(x[0]))


def test_products_of_short_integers_are_not_parked() -> None:
    x = np.ones(1 << 20, np.int32)
    for op, variant in (("sum", "one_wave"), ("max", "one_wave"), ("prod", "v3")):
        assert gpuopt.plan("scan", x, op, backend="sim")["variant"] == variant
    with pytest.raises(gpuopt.VariantError, match="not products of short integers"):
        scan(x, "prod", backend="sim", variant="one_wave")


@pytest.mark.parametrize("rung", ["v3", "v4"])
def test_a_status_is_left_cleared(rung: str) -> None:
    """Scans of one stream share its status words, which the last block clears."""
    for n in (20_000, 5_000, 70_000, 20_000):
        x = whole(n, "float32")
        got = scan(x, backend="sim", variant=rung)
        np.testing.assert_array_equal(got, np.cumsum(x))
        columns = whole(n, "float32").reshape(-1, 5)
        got = scan(columns, axis=0, backend="sim", variant="columns")
        np.testing.assert_array_equal(got, np.cumsum(columns, 0))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_long_walks_lose_nothing(dtype: str) -> None:
    """Ones too small to change a large first element, one at a time or eight together."""
    n, small = 20_000, 2.0**-57
    x = np.full((n, 2), small * (1 + (1j if dtype == "complex128" else 0)))
    x[0] = x[0] / small
    got = scan(x, axis=0, backend="sim", variant="walked_columns")[-1, 0]
    wanted, bound = 1 + (n - 1) * small, (math.log2(n) + 32) * 2.0**-53
    for part in (got.real, got.imag) if dtype == "complex128" else (got,):
        assert abs(part - wanted) <= bound


@pytest.mark.parametrize("cols", [1, 2, 3, 5, 7, 8, 31, 32, 100, 511, 513, 2047, 2049])
def test_short_rows_share_a_tile(cols: int) -> None:
    """Rows that begin anywhere in a pack, in every direction."""
    rows = min(300, 6000 // cols + 2)
    for dtype in ("float32", "int8", "float16"):
        x = whole(rows * cols, dtype).reshape(rows, cols)
        for options in ({}, {"reverse": True}, {"exclusive": True}):
            got = scan(x, axis=1, **options, backend="sim", variant="auto")
            np.testing.assert_array_equal(got, ref.scan(x, axis=1, **options))
        got = scan(x[:, ::-1], "max", axis=1, backend="sim", variant="auto")
        np.testing.assert_array_equal(got, np.maximum.accumulate(x[:, ::-1], 1))
        got = scan(x.T, "min", axis=0, backend="sim", variant="auto")
        np.testing.assert_array_equal(got, np.minimum.accumulate(x.T, 0))


# ---- waiting tiles ----


@each_single_pass
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pinned_look_back_by_timing(
    dtype: str, rung: str, configure: Callable[..., Any]
) -> None:
    """Ordinary look-back groups a prefix by the tiles that are ready, so bits may change."""
    rng = np.random.default_rng(2)
    row = rng.standard_normal(34 * 8192).astype(dtype)
    columns = rng.standard_normal((20 * 256, 8)).astype(dtype)
    orders = [{"schedule": "ascending", "resident": 1}, {"schedule": "descending"}]
    orders += [{"schedule": "shuffle", "resident": 8, "seed": s} for s in range(4)]
    orders += [{"schedule": "preempt", "resident": 8, "seed": s} for s in range(2)]
    for x, variant in ((row, rung), (columns, "columns")):
        bits = set()
        for order in orders:
            configure(**order)
            bits.add(scan(x, axis=0, backend="sim", variant=variant).tobytes())
        assert len(bits) == 1


@each_single_pass
def test_blocks_one_after_the_other_do_not_wait_forever(
    rung: str, configure: Callable[..., Any]
) -> None:
    """A tile waits only for tiles of lower tickets: one resident block is enough."""
    x = whole(40 * 8192)
    for schedule in ("ascending", "descending", "shuffle"):
        configure(schedule=schedule, resident=1, seed=7)
        np.testing.assert_array_equal(scan(x, backend="sim", variant=rung), np.cumsum(x))


# ---- the simulator's checks and counts ----


@pytest.mark.parametrize("rung", [*RUNGS, "auto"])
@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
def test_rung_passes_every_check(
    rung: str, schedule: str, configure: Callable[..., Any]
) -> None:
    configure(checks=True, schedule=schedule)
    for n in (1, 33, 1025, 8195):
        x = whole(n)
        np.testing.assert_array_equal(scan(x, backend="sim", variant=rung), np.cumsum(x))
    x = whole(300 * 5).reshape(300, 5)
    for axis in (0, 1):
        got = scan(x, "max", axis, True, True, backend="sim", variant=rung)
        np.testing.assert_array_equal(got, ref.scan(x, "max", axis, True, True))
    x = whole(2100 * 9, "complex128").reshape(2100, 9)
    got = scan(x, axis=0, backend="sim", variant=rung)
    np.testing.assert_array_equal(got, np.cumsum(x, 0))


@each_rung
@pytest.mark.parametrize("checks", [False, True])
def test_every_step_of_a_call_fails_in_turn(
    rung: str, checks: bool, configure: Callable[..., Any]
) -> None:
    x = whole(10_000)
    before = None
    for step in range(200):
        configure(checks=checks, fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = scan(x, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            configure(fail_after=-1)
            np.testing.assert_array_equal(scan(x, variant=rung, backend="sim"), np.cumsum(x))
            continue
        break
    assert 3 <= step < 199
    np.testing.assert_array_equal(got, np.cumsum(x))
    assert _core._sim_state()["allocations"] == before


PROFILES = {
    # shared requests, wavefronts; global requests, sectors; of every kernel
    "v0": [(5760, 5760, 576, 2112), (91, 181, 4, 32), (0, 0, 768, 2304)],
    "v1": [(3264, 3264, 544, 2080), (90, 179, 2, 16), (0, 0, 768, 2304)],
    "v2": [(208, 208, 272, 1040), (90, 178, 2, 8), (160, 160, 576, 2112)],
    "v3": [(180, 180, 128, 2048)],
    "v4": [(200, 584, 65, 2048)],
    "v5": [(0, 0, 1, 2), (243, 627, 129, 3072)],
}  # fmt: skip


@each_rung
def test_fewer_rows_take_the_same_path(rung: str) -> None:
    """The samples that cases.fewer_rows shortens: the same lines, blocks for each row."""

    def path(sample: Sample) -> Any:
        x, options = sample.arrays[0].build(), dict(sample.options)
        rows = x.size / x.shape[options["axis"]]
        kernels = profile("scan", x, variant=rung, **options).kernels
        lines = [[(line.file, line.line) for line in kernel.lines] for kernel in kernels]
        return [(k.kernel, k.launches, k.blocks / rows) for k in kernels], lines

    found = 0
    for sample in scan_samples("float32", "small"):
        fewer = fewer_rows(sample)
        if fewer != sample and dict(sample.options)["op"] == "sum":
            found += 1
            assert path(fewer) == path(sample), str(sample)
    assert found >= 5


def test_profile_of_the_ladder() -> None:
    """Golden counts of 8,192 float32: two tiles of v3, one of v4 and v5; v5 reads it twice.

    The status of so few tiles is clear already in v3 and v4; v5 clears its own.
    v4 and v5 load by bulk copies, as on sm_90a: a copy is one request, whatever its size.
    """
    x = whole(8192)
    table = profile("scan", x)
    assert all(kernel.races == 0 for kernel in table)
    seen = {
        rung: [
            (k.shared_requests, k.shared_wavefronts, k.global_requests, k.global_sectors)
            for k in table[rung]
        ]
        for rung in RUNGS
    }
    assert seen == PROFILES
    assert table["v1"][0].conflict_ways == 1, "the padding keeps lanes apart"
