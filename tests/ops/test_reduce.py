"""reduce beyond the matrix: NumPy's conventions, difficult values, and published bugs.

Order: what NumPy says, what comes in, axes, dtype=, out=, special values, accuracy, pinned
bugs, large indices.  See test_contract.py for values on all sizes, layouts and dtypes.
"""

from __future__ import annotations

import array
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of, fewer_rows
from cases.reduce import REDUCE_OPS, reduce_expect, reduce_samples
from conftest import Figure

from gpuopt import VariantError, _core, explain, reduce, ref
from gpuopt.lab.profile import profile

# They take certain calls alone, and have tests of their own.
SPECIAL = (
    "transposed",
    "few_down",
    "one_block",
    "one_cluster",
    "one_wave",
    "stepped_rows",
    "narrow_rows",
    "flat_columns",
)


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes most calls."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("reduce")
        if row["available"] and usable[row["backend"]] is None and row["name"] not in SPECIAL
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
CPU = [name for backend, name in variants() if backend == "cpu"]
RUNGS = [name for backend, name in variants() if backend == "sim" and name[1:].isdigit()]
each_cpu = pytest.mark.parametrize("variant", CPU)

NUMPY: dict[str, Callable[..., Any]] = {op: getattr(np, op) for op in REDUCE_OPS}

FLOATS = ("float16", "bfloat16", "float32", "float64")


@pytest.fixture
def simulator() -> Iterator[Callable[..., Any]]:
    """Configures the simulator for one test."""
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


def supports(backend: str, variant: str, dtype: str) -> bool:
    for row in _core.variants("reduce"):
        if (row["backend"], row["name"]) == (backend, variant):
            return dtype in row["dtypes"]
    raise LookupError(variant)


# ---- what NumPy says ----


@pytest.mark.parametrize(
    ("x", "op", "options"),
    [
        (np.ones((2, 3)), "sum", {"axis": 2}),
        (np.ones((2, 3)), "max", {"axis": -3}),
        (np.ones((2, 3)), "sum", {"axis": (0, 7)}),
        (np.ones((2, 3)), "argmax", {"axis": 2}),
        (np.float64(1), "sum", {"axis": 1}),
        (np.ones((2, 3)), "sum", {"axis": (0, 0)}),
        (np.ones((2, 3)), "any", {"axis": (1, -1)}),
        (np.ones((2, 3)), "prod", {"axis": 1.0}),
        (np.ones((2, 3)), "prod", {"axis": "0"}),
        (np.ones((2, 3)), "min", {"axis": (0, 1.0)}),
        (np.empty((0, 3)), "max", {}),
        (np.empty((0, 3)), "min", {"axis": 0}),
        (np.empty((0, 3)), "argmax", {}),
        (np.empty((0, 3)), "argmin", {"axis": 0}),
        (np.empty((0, 0)), "min", {"axis": 0}),
        (np.empty((0, 2, 0)), "argmax", {"axis": 0}),
        ([[1, 2], [3]], "sum", {}),
        (np.ones(3), "sum", {"dtype": "nope"}),
        (np.ones(3), "sum", {"dtype": "f99"}),
    ],
)
def test_errors_are_numpys(x: Any, op: str, options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as theirs:
        NUMPY[op](x, **options)
    with pytest.raises(type(theirs.value), match=f"(^|: ){re.escape(str(theirs.value))}$"):
        reduce(x, op, **options)


@pytest.mark.parametrize("op", REDUCE_OPS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64"])
def test_result_is_of_numpys_type(op: str, dtype: str) -> None:
    x = np.array([[1, 0, 1], [1, 1, 1]], dtype)
    for options in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"keepdims": True}):
        want, got = NUMPY[op](x, **options), reduce(x, op, **options)
        assert type(got) is type(want)
        assert got.dtype == want.dtype
        assert np.shape(got) == np.shape(want)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", REDUCE_OPS)
def test_the_reference_means_what_numpy_means(op: str) -> None:
    rng = np.random.default_rng(7)
    for dtype in ("bool", "int16", "uint32", "float64"):
        x = (rng.standard_normal((5, 6, 7)) * 3).astype(dtype)
        for axis in (None, 0, -1, 2):
            for keepdims in (False, True):
                want = NUMPY[op](x, axis=axis, keepdims=keepdims)
                got = ref.reduce(x, op, axis, keepdims)
                assert got.dtype == want.dtype
                assert np.shape(got) == np.shape(want)
                np.testing.assert_allclose(
                    np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-12
                )
    out = np.empty(3, np.float32)
    assert ref.reduce(np.ones((2, 3)), out=out, axis=0) is out
    assert (out == 2).all()
    with pytest.raises(ValueError, match=r"out must have shape \(2,\)"):
        ref.reduce(np.ones((2, 3)), out=out, axis=1)
    with pytest.raises(ValueError, match="median"):
        ref.reduce(np.ones(3), "median")
    with pytest.raises(TypeError, match="floating"):
        ref.reduce(np.ones(3), "mean", dtype=np.int8)


# ---- what comes in ----


class HasArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.arange(5, dtype=np.float32)


class HasInterface:
    kept = np.arange(5, dtype=np.int16)
    __array_interface__ = kept.__array_interface__


class Subclass(np.ndarray[Any, Any]):
    pass


@pytest.mark.parametrize(
    "x",
    [
        *(3, 2.5, True, 1 - 2j, -7, 2**62, 2**63),
        *([], [1, 2, 3], [1.5, 2], [True, False], [[1, 2], [3, 4]], (1, (2)), range(10)),
        *(np.float32(2.5), np.int8(-3), np.bool_(True), np.complex64(1 + 1j)),
        *(np.array(4), np.array(2.5, np.float16), np.ones((1, 1, 1)), np.ones(())),
        *(memoryview(b"abc"), bytearray(b"xyz"), array.array("d", [1.5, 2.5])),
        *(HasArray(), HasInterface(), np.eye(2).view(Subclass), [np.float32(1), 2]),
        *(np.arange(6).reshape(2, 3).view(np.recarray), memoryview(np.eye(3)[::2])),
        *(np.broadcast_to(np.int64(3), (4, 5)), np.lib.stride_tricks.as_strided(np.ones(3))),
    ],
    ids=lambda x: type(x).__name__,  # the same in every worker
)
def test_anything_numpy_takes(x: Any) -> None:
    plain = np.asarray(x)
    for op in ("sum", "prod", "mean", "max", "argmin", "all"):
        if plain.dtype.kind == "c" and op in ("max", "argmin", "all"):
            continue
        if plain.size == 0 and op in ("max", "argmin"):
            continue
        expected = reduce_expect(plain, op=op)
        got = reduce(x, op)
        assert expected.compare(got) is None, op


def test_a_memory_mapped_file(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    np.arange(1000, dtype=np.float64).tofile(path)
    mapped = np.memmap(path, np.float64, "r")
    assert reduce(mapped) == 499_500
    assert type(reduce(mapped)) is np.float64
    out = np.memmap(tmp_path / "out.bin", np.float64, "w+", shape=(10,))
    assert reduce(mapped.reshape(10, 100), axis=1, out=out) is out
    np.testing.assert_array_equal(out, np.arange(1000.0).reshape(10, 100).sum(1))


def test_an_integer_too_large_for_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError, match=f"^Python integer {2**70} out of bounds for"):
        reduce(2**70)
    with pytest.raises(TypeError, match="dtype 'object'"):
        reduce([2**70])


def test_64_dimensions() -> None:
    x = np.ones((1,) * 60 + (2, 3, 1, 2), np.int32)
    assert reduce(x) == 12
    assert reduce(x, axis=-1).shape == x.shape[:-1]
    assert reduce(x, axis=tuple(range(64)), keepdims=True).shape == (1,) * 64
    every_other = tuple(range(0, 64, 2))
    np.testing.assert_array_equal(reduce(x, axis=every_other), x.sum(every_other))


# ---- axes ----


@each_cpu
def test_every_set_of_axes(variant: str) -> None:
    """All subsets of four axes, in every order of strides a transpose makes."""
    import itertools

    base = np.random.default_rng(3).integers(-50, 50, (3, 4, 5, 2)).astype(np.int32)
    for order in itertools.permutations(range(4)):
        x = base.transpose(order)
        for k in range(5):
            for axis in itertools.combinations(range(4), k):
                for op in ("sum", "max"):
                    got = reduce(x, op, axis, backend="cpu", variant=variant)
                    np.testing.assert_array_equal(got, NUMPY[op](x, axis))
        for axis in (*range(-4, 4), None):
            got = reduce(x, "argmin", axis, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, x.argmin(axis))


def test_axis_given_as_a_numpy_integer() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for kind in (np.int8, np.uint64, np.intp):
        np.testing.assert_array_equal(reduce(x, axis=kind(1)), x.sum(1))
        np.testing.assert_array_equal(reduce(x, axis=(kind(0), kind(1))), x.sum())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4), (0, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in ("int32", "float16", "float64", "complex64", "bool"):
            x = np.empty(shape, dtype)
            for op in ("sum", "prod", "mean", "any", "all"):
                if dtype == "complex64" and op in ("any", "all"):
                    continue
                for axis in (None, *range(len(shape)), (), tuple(range(len(shape)))):
                    expected = reduce_expect(x, op=op, axis=axis)
                    assert expected.compare(reduce(x, op, axis)) is None, (op, axis)
    assert reduce(np.empty(shape)) == 0
    assert reduce(np.empty(shape), "prod") == 1
    assert math.isnan(reduce(np.empty(shape), "mean"))
    assert not reduce(np.empty(shape), "any")
    assert reduce(np.empty(shape), "all")


@pytest.mark.parametrize("op", ["min", "max", "argmin", "argmax"])
def test_an_empty_result_needs_no_identity(op: str) -> None:
    """NumPy raises only if a result would have no elements to reduce."""
    x = np.empty((0, 3), np.float32)
    got = reduce(x, op, 1)
    assert (got.shape, got.dtype) == ((0,), NUMPY[op](x, axis=1).dtype)
    with pytest.raises(ValueError):
        reduce(x, op, 0)


# ---- dtype= ----


def test_dtype_converts_each_element_first() -> None:
    x = np.array([1.75, 2.75, -1.75])
    assert reduce(x, dtype=np.int64) == 2
    assert reduce(np.array([300, 300], np.int32), dtype=np.uint8) == 88
    assert reduce(np.array([1, 2, 3]), dtype=bool) is np.True_
    assert reduce(np.array([0, 2, 3]), "prod", dtype="?") is np.False_
    got = reduce(np.full(3, 1e10), dtype="f4")
    assert got == np.float32(1e10) * 3
    assert type(got) is np.float32
    assert type(reduce(x, dtype=BFLOAT16)) is BFLOAT16.type
    assert type(reduce([1, 2], "mean", dtype="f2")) is np.float16
    assert type(reduce([1.5, 2], dtype="c8")) is np.complex64
    assert type(reduce([1, 2], dtype=int)) is np.int64


def test_integers_wrap_as_numpys() -> None:
    x = np.array([2**63 - 1, 1], np.int64)
    for variant in CPU:
        options = {"backend": "cpu", "variant": variant}
        assert reduce(x, **options) == -(2**63)
        assert reduce(np.array([2**64 - 1, 2], np.uint64), **options) == 1
        assert reduce(np.full(64, 3, np.int64), "prod", **options) == pow(3, 64, 2**64) - (
            2**64 if pow(3, 64, 2**64) >= 2**63 else 0
        )
        assert reduce(np.full(300, 127, np.int8), **options) == 38_100
        assert reduce(np.full(300, 255, np.uint8), **options) == 76_500
        assert reduce(np.full(300, 127, np.int8), dtype="i1", **options) == np.int8(-44)
        assert type(reduce(np.full(3, 1, np.uint8), **options)) is np.uint64


def test_mean_of_large_integers_does_not_wrap() -> None:
    x = np.full(1000, 2**62, np.int64)
    for variant in CPU:
        assert reduce(x, "mean", backend="cpu", variant=variant) == 2.0**62


# ---- out= ----


def outs(shape: tuple[int, ...], dtype: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of one shape in many layouts, filled with a value that no result has."""
    big = np.full(tuple(2 * n + 1 for n in shape), 99, dtype)
    raw = np.zeros(int(np.prod(shape)) * big.itemsize + 1, np.uint8)
    return {
        "C": np.full(shape, 99, dtype),
        "F": np.asfortranarray(np.full(shape, 99, dtype)),
        "strided": big[tuple(slice(1, None, 2) for _ in shape)],
        "negative": np.full(shape, 99, dtype)[tuple(slice(None, None, -1) for _ in shape)],
        "unaligned": raw[1:].view(dtype).reshape(shape),
        "swapped": np.full(shape, 99, np.dtype(dtype).newbyteorder()),
    }


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    for name, out in outs((3, 5), np.float32).items():
        got = reduce(x, axis=1, out=out, backend=backend, variant=variant)
        assert got is out
        np.testing.assert_array_equal(out, x.sum(1), err_msg=name)
    base = np.full((7, 11), 99, np.float32)
    reduce(x, axis=1, out=base[1::2, 1::2], backend=backend, variant=variant)
    base[1::2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"


def test_out_gives_the_dtype_of_the_sum() -> None:
    """As np.add.reduce: out determines the dtype that the elements are converted to."""
    x = np.array([1e8, 1, -1e8], np.float32)
    out = np.empty((), np.float64)
    assert reduce(x, out=out) is out
    assert out == 1.0
    small = np.empty((), np.int8)
    reduce(np.array([100, 100]), out=small)
    assert small == -56
    reduce([1, 2], "mean", None, False, None, out)
    assert out == 1.5
    assert reduce([1, 2], out=(out,)) is out


@pytest.mark.parametrize("op", ["min", "max", "argmin", "argmax", "any", "all"])
def test_out_of_another_dtype_is_refused_where_the_dtype_is_fixed(op: str) -> None:
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    wrong = np.full(3, 7, np.float64)
    with pytest.raises(TypeError, match="float64"):
        reduce(x, op, 0, out=wrong)
    assert (wrong == 7).all()


@pytest.mark.parametrize(
    "overlap",
    [
        lambda x: (x, x[0]),
        lambda x: (x, x[::-1][0]),
        lambda x: (x[1:], x[1]),
        lambda x: (x[:, ::2], x[0, ::2]),
        lambda x: (memoryview(x), x[0]),
        lambda x: (x.view(x.dtype.newbyteorder()), x[0]),
        lambda x: (np.broadcast_to(x[0], (5, 4)), x[0]),
    ],
)
def test_out_that_shares_memory_with_x_is_refused(overlap: Any) -> None:
    memory = np.arange(16, dtype=np.float32).reshape(4, 4)
    x, out = overlap(memory)
    with pytest.raises(ValueError, match=r"overlap|shares memory"):
        reduce(x, axis=0, out=out)
    np.testing.assert_array_equal(memory, np.arange(16).reshape(4, 4))


def test_out_that_lies_between_the_elements_of_x_is_fine() -> None:
    memory = np.arange(20, dtype=np.float32).reshape(5, 4)
    x, out = memory[:, ::2], memory[0, 1::2]
    want = x.sum(0)
    assert reduce(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out, want)


def test_a_refused_out_is_not_written() -> None:
    out = np.full(3, 7, np.float32)
    for options in ({"axis": 1}, {"axis": 5}, {"axis": 0, "variant": "none"}, {"op": "argmax"}):
        with pytest.raises((ValueError, TypeError)):
            reduce(np.ones((2, 3), np.float32), **options, out=out)
        assert (out == 7).all()


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """n = 1..70: vector bodies and tails.  Row r of an identity matrix has nan at r."""
    if not supports(backend, variant, dtype):
        return
    options: dict[str, Any] = {"axis": 1, "backend": backend, "variant": variant}
    # The simulator takes 0.1 ms a row: every length in float32, four in the others.
    slow = backend == "sim"
    lengths = (1, 2, 33, 70) if slow and dtype != "float32" else range(1, 71)
    for n in lengths:
        for fill in (1.0,) if slow else (1.0, -np.inf):
            x = np.full((n, n), fill).astype(dtype_of(dtype))
            np.fill_diagonal(x, np.nan)
            for op in ("sum", "max") if slow else ("sum", "prod", "min", "max", "mean"):
                got = reduce(x, op, **options).astype(np.float32)
                assert np.isnan(got).all(), (n, op)
            for op in ("argmax",) if slow else ("argmin", "argmax"):
                np.testing.assert_array_equal(reduce(x, op, **options), np.arange(n))
            assert slow or reduce(x, "any", **options).all()
        if backend == "cpu":  # one row at a time: the whole-array path
            x = np.zeros(n, dtype_of(dtype))
            for k in range(n):
                x[k] = np.nan
                for op in ("sum", "min", "max"):
                    got = reduce(x, op, backend=backend, variant=variant)
                    assert np.isnan(np.float32(got)), (n, k, op)
                assert reduce(x, "argmax", backend=backend, variant=variant) == k
                assert reduce(x, "any", backend=backend, variant=variant)
                x[k] = 0


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_windows_of_nan_and_infinity(backend: str, variant: str, dtype: str) -> None:
    if not supports(backend, variant, dtype):
        return
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in (1, 2, 31, 33, 70, 257, 1025):
        nan = np.full(n, np.nan).astype(dtype_of(dtype))
        low = np.full(n, -np.inf).astype(dtype_of(dtype))
        for op in ("sum", "prod", "min", "max", "mean"):
            assert np.isnan(np.float32(reduce(nan, op, **options)))
        for op in ("argmin", "argmax"):
            assert reduce(nan, op, **options) == 0
            assert reduce(low, op, **options) == 0
            assert reduce(-low, op, **options) == 0
        for op in ("sum", "min", "max", "mean"):
            assert np.float32(reduce(low, op, **options)) == -np.inf, op
            assert np.float32(reduce(-low, op, **options)) == np.inf, op
        if n > 1:
            both = low.copy()
            both[n // 2] = np.inf
            assert np.isnan(np.float32(reduce(both, **options)))
            assert np.float32(reduce(both, "max", **options)) == np.inf
            assert reduce(both, "argmax", **options) == n // 2


@each_variant
def test_first_of_equal_extremes(backend: str, variant: str) -> None:
    for dtype in ("int32", "float32", "bool"):
        if not supports(backend, variant, dtype):
            continue
        for n in (2, 33, 256, 257, 1025):
            x = np.zeros(n, dtype)
            for at in {0, 1, n // 2, n - 1}:
                x[:] = 0
                x[at:] = 1
                got = reduce(x, "argmax", backend=backend, variant=variant)
                assert got == at
                got = reduce(1 - x.astype("i4"), "argmin", backend=backend, variant=variant)
                assert got == at


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_of_rows_of_every_length(variant: str, dtype: str) -> None:
    """Parts of blocks that overlap; ties, zeros of both signs, infinities and nans."""
    rng = np.random.default_rng(6)
    where: dict[str, Any] = {"backend": "cpu", "variant": variant}
    for n in (*range(1, 140), 191, 192, 193, 255, 256, 257, 1023, 1025):
        rows = rng.standard_normal((6, n)).astype(dtype)
        rows[1] = rows[1].round()
        rows[2] = np.where(rows[2] < 0, np.float32(-0.0), np.float32(0))
        rows[3] *= np.inf
        rows[4, rng.integers(n)] = np.nan
        rows[5, rng.random(n) < 0.1] = np.nan
        for op in ("min", "max", "argmin", "argmax"):
            want = getattr(rows, op)(axis=1)
            np.testing.assert_array_equal(reduce(rows, op, axis=1, **where), want, f"{n}")
            one = [reduce(row, op, **where) for row in rows]
            np.testing.assert_array_equal(one, want, f"{n}")


@each_variant
def test_zeros_of_both_signs_are_equal(backend: str, variant: str) -> None:
    x = np.array([0.0, -0.0, 0.0, -0.0], np.float32)
    assert reduce(x, "argmin", backend=backend, variant=variant) == 0
    assert reduce(-x, "argmax", backend=backend, variant=variant) == 0
    assert not reduce(x, "any", backend=backend, variant=variant)


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074)):
        if not supports(backend, variant, dtype):
            continue
        rng = np.random.default_rng(5)
        for n in (1, 33, 257, 1025):
            k = rng.integers(-1000, 1000, n)
            x = (k * tiny).astype(dtype)
            got = reduce(x, backend=backend, variant=variant)
            assert float(got) == int(k.sum()) * tiny
            assert reduce(x, "max", backend=backend, variant=variant) == x.max()
            assert reduce(x, "any", backend=backend, variant=variant) == bool(k.any())


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "int64"])
def test_any_and_all_of_short_rows(variant: str, dtype: str) -> None:
    """The element that decides at every position; -0 is zero, nan is not."""
    for n in (1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 64, 65, 130):
        few = np.zeros((n + 1, n + 2), dtype)[:, :n]
        few[range(n), range(n)] = 1
        most = 1 - few.astype(np.int8)
        if dtype.startswith("float"):
            few[range(n), range(n)] = np.nan
            few[few == 0] = -0.0
        want = np.arange(n + 1) < n
        got = reduce(few, "any", axis=1, backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, want, f"any {n}")
        got = reduce(most.astype(dtype), "all", axis=1, backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, ~want, f"all {n}")
        if np.dtype(dtype).kind in "if":
            got = reduce(-most.astype(dtype), "all", axis=1, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, ~want, f"all {n}, negative")


@each_cpu
@pytest.mark.parametrize("op", ["sum", "prod", "min", "mean", "any", "all"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "float64"])
def test_few_neighbouring_columns(variant: str, dtype: str, op: str) -> None:
    """Rows of groups, whose lanes are kept apart: short ones, long ones, several chunks."""
    rng = np.random.default_rng(12)
    for width in (2, 3, 4, 5, 7, 8, 13, 16, 31):
        for cols in (2, 3, 7, 16, 31, 64, 129, 700, 70000 // width):
            for outer in (1, 3):
                x = rng.integers(0, 3, (outer, cols, width)).astype(dtype)
                if op == "prod":
                    x = np.where(rng.random(x.shape) < 8 / cols, 2, 1).astype(dtype)
                if op == "all":
                    x[:, rng.integers(cols), rng.integers(width)] = 0
                apart = np.repeat(x, 2, axis=2)[..., ::2]
                views = [(x, 1), (x.transpose(2, 1, 0), 1), (x[0].T, 1), (x[0], 0), (apart, 1)]
                if cols < 129:  # neighbours of other rows lie between those of a row
                    many = np.repeat(x[:1], 40, axis=0) if outer == 3 else x
                    views.append((many.transpose(1, 2, 0).copy().transpose(2, 0, 1), 1))
                for view, axis in views:
                    got = reduce(view, op, axis=axis, backend="cpu", variant=variant)
                    wide = view.astype("f8") if got.dtype.kind == "f" else view
                    want = getattr(np, op)(wide, axis=axis)
                    with np.errstate(over="ignore"):
                        want = want.astype(got.dtype)
                    np.testing.assert_allclose(got, want, 1e-6, err_msg=f"{view.shape}")


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float32", "float64"])
def test_truths_of_one_element_and_of_few_rows(variant: str, dtype: str) -> None:
    """nan is true, and -0.0 is not; in place, apart and backwards."""
    rng = np.random.default_rng(14)
    for rows in (1, 2, 7):
        x = rng.integers(0, 2, (rows, 1031)).astype(dtype)
        if np.dtype(dtype).kind == "f":
            x[:, ::3], x[:, 1::3] = -0.0, np.where(x[:, 1::3] > 0, np.nan, -1)
            x[0, ::6] = 0.0
        for view in (x, np.repeat(x, 2, axis=1)[:, ::2], x[:, ::-1]):
            for op in ("any", "all"):
                got = reduce(view, op, axis=0, backend="cpu", variant=variant)
                np.testing.assert_array_equal(got, getattr(np, op)(view, axis=0))


SHORT = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float32", "float64"]


@each_cpu
@pytest.mark.parametrize("dtype", [*SHORT, "complex128"])
def test_short_middle_axes(variant: str, dtype: str) -> None:
    """Rows of groups of any width, in place and apart, of which the last ends the memory."""
    rng = np.random.default_rng(22)
    ordered = ("min", "max", "any", "all") if dtype != "complex128" else ()
    for inner, n in itertools.product((1, 2, 5, 8, 9, 17, 64), (2, 7, 18, 64)):
        numbers = rng.integers(0, 2, (19, n, inner + 1)) + (
            rng.random((19, n, inner + 1)) < 0.05
        )
        base = numbers.astype(dtype_of(dtype))
        packed = np.ascontiguousarray(base[..., 1:])
        apart = np.repeat(packed, 2, axis=2)[..., 1::2]
        views = [(packed, 1), (apart, 1), (base[..., 1:], 1), (packed.transpose(2, 1, 0), 1)]
        views += [(packed[::-1], 1), (np.stack([packed, packed + packed]), (0, 2))]
        views += [(packed, 2), (np.stack([apart, packed]), (0, 3))]
        for x, axis in views:
            for op in ("sum", "prod", "mean", *ordered):
                if dtype == "bool" and op == "mean":
                    continue
                got = reduce(x, op, axis=axis, backend="cpu", variant=variant)
                wide = x.astype(
                    "c16" if dtype == "complex128" else "f8" if got.dtype.kind in "fV" else "i8"
                )
                want = getattr(np, op)(wide, axis=axis)
                np.testing.assert_allclose(
                    got.astype(want.dtype),
                    want,
                    4e-3 if "float16" in dtype else 1e-6,
                    err_msg=f"{op} {x.shape} {x.strides} {axis}",
                )


@each_cpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_extremes_of_short_rows_with_nan(variant: str, dtype: str) -> None:
    """A nan is the result, wherever it is; else infinities and both zeros are numbers."""
    rng = np.random.default_rng(23)
    for inner, n in itertools.product((1, 3, 6, 16, 40), (2, 5, 17, 50)):
        x = rng.normal(size=(70, n, inner))
        x[rng.random(x.shape) < 0.05] = np.inf
        x[rng.random(x.shape) < 0.05] = -np.inf
        x[rng.random(x.shape) < 0.1] = -0.0
        x[rng.random(x.shape) < 0.5 / n] = np.nan
        x = x.astype(dtype_of(dtype))
        for view in (x, np.repeat(x, 2, axis=2)[..., ::2], np.moveaxis(x, 2, 0)):
            for op in ("min", "max"):
                axis = 2 if view.shape[0] == inner else 1
                got = reduce(view, op, axis=axis, backend="cpu", variant=variant)
                want = getattr(np, op)(view.astype("f8"), axis=axis)
                np.testing.assert_array_equal(got.astype("f8"), want)


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int64"])
def test_places_of_runs_and_of_tiles(variant: str, dtype: str) -> None:
    """Results in the order of memory: runs of them are neighbours in both, or none are."""
    rng = np.random.default_rng(24)
    for shape in ((70, 2, 66, 4), (33, 2, 150, 1), (64, 2, 64, 2), (5, 3, 7, 40)):
        x = rng.integers(0, 2, shape).astype(dtype)
        for order in ((2, 1, 0, 3), (3, 2, 1, 0), (0, 2, 3, 1), (2, 3, 1, 0)):
            view = x.transpose(order)
            axis = order.index(1)
            got = reduce(view, "max", axis=axis, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, view.max(axis=axis))


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "float64", "int64"])
def test_short_rows_of_scattered_elements(variant: str, dtype: str) -> None:
    """A few elements, a few runs and packed rows: more rows than are folded at once."""
    rng = np.random.default_rng(21)
    base = rng.integers(0, 2 if dtype == "bool" else 7, (2, 5, 61, 2, 46)).astype(dtype)
    views = (
        (base[..., ::2], (0, 1, (0, 1), (0, 3), (1, 3))),  # elements, across rows of results
        (base[:, :, :, 0, :21], (0, (0, 1), (0, 3), (1, 3))),  # runs of 21
        (base[:, :, :7, :, 1:9], ((1, 4), (3, 4), (0, 1, 3), (0, 3, 4))),  # of 8
        (base[:, :, ::2, :, 3:14:5], ((1, 4), (3, 4), (1, 3, 4), (0, 1, 4))),  # packed
    )
    for x, each in views:
        for axis in each:
            for op in ("sum", "max", "any", "all", "argmax", "argmin"):
                if (dtype == "bool" and op == "sum") or ("arg" in op and np.ndim(axis)):
                    continue
                got = reduce(x, op, axis=axis, backend="cpu", variant=variant)
                want = getattr(np, op)(x.astype("i8") if op == "sum" else x, axis)
                np.testing.assert_array_equal(got, want, err_msg=f"{op} {x.shape} {axis}")


@each_cpu
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod"])
def test_rows_of_one_16_bit_float(variant: str, dtype: str, op: str) -> None:
    """Every bit pattern: copies have the bits of what the scalar loop computes."""
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype)).reshape(1, -1)
    for view in (x, np.repeat(x, 2, axis=1)[:, ::2]):
        got = reduce(view, op, axis=0, backend="cpu", variant=variant)
        want = reduce(view, op, axis=0, backend="cpu", variant="scalar")
        assert got.tobytes() == want.tobytes()


@each_cpu
@pytest.mark.parametrize("op", ["sum", "max", "argmin", "any", "mean"])
def test_axes_in_every_order_of_memory(variant: str, op: str) -> None:
    """Results that are computed in the order of memory get to their places."""
    rng = np.random.default_rng(11)
    for shape in (
        (3, 40, 70),
        (70, 3, 40),
        (300, 2, 5, 9),
        (2, 3, 3000),
        (40, 1100),
        (5, 4, 3, 90),
    ):
        for order in itertools.permutations(range(len(shape))):
            x = rng.integers(0, 100, shape).astype("float32").transpose(order)
            x = x[..., ::-1, :] if x.shape[-1] % 2 else x
            for axis in range(x.ndim):
                got = reduce(x, op, axis=axis, backend="cpu", variant=variant)
                want = getattr(np, op)(x.astype("f8"), axis=axis)
                np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=f"{x.shape} {axis}")


# ---- accuracy ----


def sum_bound(x: np.ndarray[Any, Any], eps: float) -> float:
    log = max(0, x.size - 1).bit_length()
    return (log + 12) * eps * math.fsum(np.abs(x.astype(np.float64)))


@each_variant
def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Few different numbers, so that extremes are equal; zeros of both signs."""
    x = np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)
    return np.where(x == 0, -x, x) if x.dtype.kind == "f" else x


@each_cpu
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
def test_places_of_extremes(variant: str, dtype: str) -> None:
    """The first of equal extremes and of nans: along rows, down columns, of rows that are
    turned, and where elements or columns are two apart or in descending order."""
    for n, w in ((2, 40), (3, 300), (8, 17), (11, 65), (16, 33), (67, 5), (200, 31), (1100, 9)):
        for seed in range(3):
            x = numbers((n, 2 * w), dtype, seed)
            if x.dtype.kind == "f" and seed:
                x[n // 2, ::3] = np.nan if seed == 1 else np.inf
                x[-1, ::2] = np.nan
            for view in (x, x[:, ::2], x[::-1, 1::2], x[:, ::-1], x.T, x[:, ::2].T):
                for op, axis in itertools.product(("argmin", "argmax"), (0, 1, None)):
                    want = NUMPY[op](view, axis)
                    got = reduce(view, op, axis=axis, backend="cpu", variant=variant)
                    np.testing.assert_array_equal(got, want, f"{view.strides} {op} {axis}")


@each_cpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extremes_of_long_rows(variant: str, dtype: str) -> None:
    """A nan and an extreme at each end of blocks, of whole rows and of their rests."""
    for n in (63, 64, 127, 128, 129, 255, 300, 2047, 2113):
        x = numbers((n,), dtype, n)
        for at in {0, 1, n // 2, n - 1, n - n % 64, n - n % 32 - 1} & set(range(n)):
            for value in (9, -9, np.inf, -np.inf, np.nan):
                y = x.copy()
                y[at] = value
                for op in ("min", "max", "argmin", "argmax"):
                    got = reduce(y, op, backend="cpu", variant=variant)
                    np.testing.assert_array_equal(got, NUMPY[op](y), f"{n} {at} {value} {op}")


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", "complex128"])
def test_results_in_another_order_than_memory(variant: str, dtype: str) -> None:
    """They are turned in tiles: whole ones, rests, and axes of a few elements."""
    for shape in ((16, 3, 2, 700), (37, 64, 3, 17), (5, 33, 1, 257), (64, 4, 2, 64)):
        x = numbers(shape, dtype, len(shape))
        for order in ((3, 2, 1, 0), (1, 0, 3, 2), (3, 0, 2, 1), (2, 3, 0, 1)):
            view = x.transpose(order)
            for axis in range(4):
                ops = ("any",) if dtype == "bool" else ("sum", "max", "argmax")
                for op in ops[:1] if dtype == "complex128" else ops:
                    got = reduce(view, op, axis=axis, backend="cpu", variant=variant)
                    np.testing.assert_array_equal(got, NUMPY[op](view, axis))


@each_cpu
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "complex64"])
def test_what_lies_between_elements_is_left_out(variant: str, dtype: str) -> None:
    """Elements two apart are read with those between them, which are nan or 1000 here."""
    between = 1000 if dtype == "int32" else np.nan
    for shape in ((100_001,), (3, 700), (40, 50, 17), (700, 40), (9, 31, 2), (5000, 3)):
        x = np.full((*shape[:-1], 2 * shape[-1]), between, dtype)
        x[..., ::2] = numbers(shape, dtype, len(shape))
        view = x[..., ::2]
        axes = [None, *range(len(shape)), tuple(range(len(shape) - 1))]
        for op, axis in itertools.product(("sum", "prod", "mean"), axes):
            if op == "prod" and dtype != "int32":
                continue
            got = reduce(view, op, axis=axis, backend="cpu", variant=variant)
            want = NUMPY[op](view.astype("complex128" if dtype == "complex64" else dtype), axis)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@each_cpu
@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "float64"])
def test_one_element_decides(variant: str, dtype: str) -> None:
    """Wherever it lies: in the first block, between blocks, in the rest; -0 decides nothing."""
    for n in (7, 130, 257, 5000):
        for at in sorted({0, 1, 63, 64, 127, 128, n // 2, n - 1} & set(range(n))):
            x = np.zeros((2, n), dtype)
            x = -x if x.dtype.kind == "f" else x
            x[1, at] = 1
            double = np.repeat(x, 2, axis=1)
            for view in (x, x[:, ::-1], double[:, ::2], x.T.copy().T):
                for axis in (1, None):
                    options = {"axis": axis, "backend": "cpu", "variant": variant}
                    np.testing.assert_array_equal(
                        reduce(view, "any", **options), view.any(axis)
                    )
                    np.testing.assert_array_equal(
                        reduce(view == 0, "all", **options), (view == 0).all(axis)
                    )


@each_variant
@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_adversarial_sums(
    backend: str, variant: str, dtype: str, eps: float, figure: Figure
) -> None:
    if not supports(backend, variant, dtype):
        return
    rng = np.random.default_rng(11)
    top = 1025 if backend == "sim" else 1_000_003
    scale = 1e8 if dtype == "float32" else 1e16
    worst = 0.0
    for n in (3, 33, 256, 1025, top):
        cancel = np.resize([scale, 1, -scale], n)
        drift = np.full(n, 0.1)
        drift[0] = scale
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        one = np.ones(n)
        one[0] = 2.0**24 if dtype == "float32" else 2.0**53
        for x in (cancel, drift, grow, np.sort(grow), one, rng.permutation(cancel)):
            x = x.astype(dtype)
            exact = math.fsum(x.astype(np.float64))
            got = float(reduce(x, backend=backend, variant=variant))
            error, bound = abs(got - exact), sum_bound(x, eps)
            assert error <= bound, (n, error, bound)
            worst = max(worst, error / bound)
    figure(f"{backend} {variant} {dtype}: worst adversarial sum", f"{worst:.0%} of the bound")


@each_cpu
def test_a_long_float32_sum_does_not_stagnate(variant: str) -> None:
    """2**25 ones: one float32 accumulator stops at 2**24."""
    x = np.broadcast_to(np.float32(1), (1 << 25,))
    assert reduce(x, backend="cpu", variant=variant) == 1 << 25
    x = np.broadcast_to(np.float32(1), (1 << 25, 1))
    assert reduce(x, axis=0, backend="cpu", variant=variant)[0] == 1 << 25


# ---- pinned bugs ----


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pinned_half_accumulators_overflow(backend: str, variant: str, dtype: str) -> None:
    """Partial 16-bit sums exceed 65504, or the 8 bits of bfloat16; the final ones do not."""
    if not supports(backend, variant, dtype):
        return
    n = 4096 if backend == "sim" else 1 << 20
    kind = dtype_of(dtype)
    x = np.full(n, 64, kind)
    x[n // 2 :] = -64
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    assert float(reduce(x, **options)) == 0
    x[:] = 64
    assert float(reduce(x, "mean", **options)) == 64
    with np.errstate(over="ignore"):
        want = np.float64(64 * n).astype(kind)
    assert reduce(x, **options) == want  # inf in float16, 64 n in bfloat16
    x = np.full(n, 0.01, kind)
    exact = float(x[0]) * n
    tolerance = abs(float(np.float64(exact).astype(kind)) - exact) * 1.01 + exact * 2e-6
    assert abs(float(reduce(x, **options)) - exact) <= tolerance


@each_variant
def test_pinned_distinct_values(backend: str, variant: str) -> None:
    """v1 as published adds at the wrong index; constant input hides it."""
    for n in (2, 64, 255, 256, 257, 511, 512, 513, 1024, 2047, 2048, 2049, 4097):
        x = np.arange(n, dtype=np.float32) % 509
        want = int(x.astype(np.int64).sum())
        assert reduce(x, backend=backend, variant=variant) == want, n


@each_variant
def test_pinned_tails(backend: str, variant: str) -> None:
    """Grids of n / 256 and rungs for whole blocks drop the tail: its last element."""
    step = 37 if backend == "sim" else 1
    for n in [*range(1, 1100, step), 4095, 4096, 4097]:
        x = np.zeros(n, np.int32)
        x[-1] = 5
        assert reduce(x, backend=backend, variant=variant) == 5, n
        assert reduce(x, "argmax", backend=backend, variant=variant) == n - 1, n
        if n > 1:
            x = np.ones(n, np.float32)
            x[-1] = 0
            assert not reduce(x, "all", backend=backend, variant=variant), n


@each_variant
def test_pinned_misaligned_starts(backend: str, variant: str) -> None:
    """16-byte loads from addresses that are not multiples of 16."""
    base = np.arange(1100, dtype=np.float32)
    for start in range(9):
        for n in (0, 1, 3, 5, 31, 64, 257, 1025):
            x = base[start : start + n]
            got = reduce(x, backend=backend, variant=variant)
            assert got == int(x.astype(np.int64).sum()), (start, n)


@each_variant
@pytest.mark.parametrize(
    "shape", [(3, 2, 24, 32), (3, 2, 9, 121), (2, 2, 1, 8199), (2, 1, 2, 8192)]
)
def test_rows_of_several_runs(backend: str, variant: str, shape: tuple[int, ...]) -> None:
    """Sums over the images of a batch: runs of whole packs, of others, of many tiles."""
    n, axis = int(np.prod(shape)), (0, 2, 3)
    x = (np.arange(n) * 37 % 101).astype(np.float32).reshape(shape)
    got = reduce(x, axis=axis, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, x.sum(axis, np.int64))
    for k in (0, n // shape[1] // 2, n // shape[1] - 1):
        y = x.copy()
        image = y[:, 0]  # one channel's, with gaps between them
        image[np.unravel_index(k, image.shape)] = 1000
        assert reduce(image, "argmax", backend=backend, variant=variant) == k


@each_variant
def test_views_with_steps(backend: str, variant: str) -> None:
    """Neighbouring results are apart in memory, or rows too short for a block have gaps."""
    # A rung gives each of some 2,000 rows a block of its own in the simulator: fewer there.
    shape = (3, 2, 5, 14) if variant in RUNGS and backend == "sim" else (9, 2, 12, 30)
    base = (np.arange(np.prod(shape)) * 37 % 101).astype(np.float32).reshape(shape)
    views = (base[..., ::2], base[..., ::-3], base[:, :, ::2, 1:], base.transpose(3, 1, 0, 2))
    for x in views:
        for axis in (0, 1, 2, 3, (0, 2), (1, 3)):
            got = reduce(x, axis=axis, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, x.sum(axis, np.int64))
        for axis in (0, 1, 3):
            got = reduce(x, "argmax", axis=axis, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, x.argmax(axis))


def check_columns(x: np.ndarray[Any, Any], axis: int | tuple[int, ...]) -> None:
    """Compare reductions by columns with the reference; whole numbers are exact."""
    for op in ("sum", "argmax", "any") if isinstance(axis, int) else ("sum", "max"):
        got = reduce(x, op, axis=axis, backend="sim", variant="columns")
        np.testing.assert_array_equal(got, ref.reduce(x, op, axis=axis))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_columns_in_packs(dtype: str) -> None:
    """Columns of more elements than a thread of its own takes for each; other widths."""
    rng = np.random.default_rng(5)
    for shape in ((200, 64), (1000, 16), (3, 250, 48), (201, 33)):
        x = rng.integers(0, 9, shape).astype(dtype)
        check_columns(x, len(shape) - 2)
        check_columns(x[..., ::-1, :], len(shape) - 2)


def test_deep_columns() -> None:
    """Columns of float64 that fill the device, with twice the loads in flight."""
    x = np.random.default_rng(8).integers(0, 9, (131, 8194)).astype(np.float64)
    for op in ("mean", "argmax"):
        for part in (x, x[::-1]):
            got = reduce(part, op, axis=0, backend="sim", variant="columns")
            np.testing.assert_allclose(got, ref.reduce(part, op, axis=0), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_columns_in_the_order_of_memory(dtype: str) -> None:
    """Results in another order than their elements, a thread for each short row."""
    x = np.random.default_rng(6).integers(0, 9, (21, 70, 16)).astype(dtype)
    for view in (x.transpose(2, 1, 0), x.transpose(1, 2, 0), x[:, ::-1].transpose(2, 0, 1)):
        for axis in (0, 1, 2, (0, 2)):
            check_columns(view, axis)
    check_columns(x[:, :, :7], 2)
    x = np.random.default_rng(8).integers(0, 9, (5, 200, 48)).astype(dtype)
    check_columns(x.transpose(2, 1, 0), 1)  # packs, whose results are apart


def test_columns_along_several_axes() -> None:
    """Two axes are walked by additions, more by divisions; gaps keep them apart."""
    x = np.random.default_rng(7).integers(0, 9, (6, 10, 14, 12, 5)).astype("float32")
    for view in (x[:, ::2], x[:, ::2, ::2], x[::2, ::3, ::2, ::5], x[:, ::2, :, :, ::2]):
        for axis in ((0, 1), (0, 2), (1, 3), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 4)):
            check_columns(view, axis)


@pytest.mark.parametrize("dtype", ["bool", "float16", "int64", "float64", "complex128"])
def test_transposed_tiles(dtype: str) -> None:
    """Sides of a tile and one more or less, one axis between and outer ones, both ways."""
    rng = np.random.default_rng(10)
    ops = ("sum", "mean") if dtype == "complex128" else ("sum", "mean", "min", "argmax", "all")
    for shape in ((33, 1, 32), (65, 2, 63), (3, 1, 129), (2, 31, 5, 3), (3, 64, 4, 2)):
        x = rng.integers(0, 9, shape).astype(dtype)
        for view in (x.T, x.T[::-1], x.T[..., ::-1], x.swapaxes(0, -1)[:, :1]):
            for op in ops:
                for axis in range(1, view.ndim - 1):
                    got = reduce(view, op, axis=axis, backend="sim", variant="transposed")
                    np.testing.assert_allclose(
                        got, ref.reduce(view, op, axis=axis), rtol=1e-3, err_msg=f"{shape} {op}"
                    )


def test_transposed_is_for_results_in_another_order() -> None:
    x = np.ones((40, 3, 50), "float32")
    with pytest.raises(VariantError, match="transposed"):
        reduce(x, axis=1, backend="sim", variant="transposed")
    for rows, variant in ((1024, "transposed"), (1023, "few_down")):
        many = np.broadcast_to(np.ones((1024, 1, rows), "float16"), (1024, 3, rows)).T
        assert explain("reduce", many, axis=1, backend="sim")[0]["variant"] == variant


@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "float64"])
def test_special_kernels_on_every_place(dtype: str) -> None:
    """An element that decides, nan or large, at each place; zeros of both signs."""
    ops = [op for op in REDUCE_OPS if op != "prod"]
    for view, axis, variant in (
        (np.zeros(131), None, "one_block"),
        (np.zeros(131), None, "one_cluster"),
        (np.zeros((3, 1, 4, 8)), 3, "few_down"),
        (np.zeros((5, 2, 7)), 1, "few_down"),
        (np.zeros((2, 3, 2, 5))[..., ::2], (0, 2), "few_down"),
        (np.zeros((7, 3, 33)).T, 1, "transposed"),
        (np.zeros(263)[::2], None, "one_wave"),
        (np.zeros((7, 3, 5)), 1, "one_wave"),
        (np.zeros((3, 2, 9, 6))[..., ::2], (0, 2), "one_wave"),
        (np.zeros(263)[::2], None, "stepped_rows"),
    ):
        x = view.astype(dtype, order="K")
        if dtype.startswith("float"):
            x.flat[::2] = -0.0
        for k in range(0, x.size, 1 + x.size // 131):
            for value in (1, np.nan) if dtype.startswith("float") else (1,):
                y = x.copy(order="K")
                y[np.unravel_index(k, y.shape)] = value
                if variant == "stepped_rows":
                    y = np.repeat(y, 2)[::2]
                for op in ops[k % 2 :: 2]:
                    if isinstance(axis, tuple) and op.startswith("arg"):
                        continue
                    got = reduce(y, op, axis=axis, backend="sim", variant=variant)
                    want = ref.reduce(y, op, axis=axis)
                    np.testing.assert_allclose(got, want, rtol=1e-3, err_msg=f"{variant} {op}")


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize(("variant", "most"), [("one_block", 2**16), ("one_cluster", 2**19)])
def test_one_block_of_any_length(variant: str, most: int, dtype: str) -> None:
    """Whole packs and some elements more, all that threads load, starts between packs.

    From 24,576 elements on they are the cluster's, and more than 2**18 v9's, of single bytes.
    """
    most //= np.dtype(dtype).itemsize
    base = np.random.default_rng(12).integers(0, 3, most + 1).astype(dtype)
    longer = (most // 4 + 1, most // 2, most // 2 + 1, most - 1, most)
    for n in longer if variant == "one_cluster" else (1, 3, 16, 17, 511, most // 8, *longer):
        for x in (base[:n], base[1 : n + 1]) if n % 2 else (base[:n],):
            chosen = "v9" if n > 2**18 else "one_cluster" if n >= 24 << 10 else variant
            assert explain("reduce", x, backend="sim")[0]["variant"] == chosen
            for op in ("sum", "mean") if dtype == "complex128" else ("sum", "argmax", "all"):
                got = reduce(x, op, backend="sim", variant=variant)
                np.testing.assert_allclose(got, ref.reduce(x, op), rtol=1e-3)
    with pytest.raises(VariantError, match=variant):
        reduce(base, backend="sim", variant=variant)


@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "complex128"])
def test_one_block_for_each_row(dtype: str) -> None:
    """Rows that start 16 bytes apart, of a block of each size; other starts are v9's."""
    size = np.dtype(dtype).itemsize
    for rows, cols, variant in (
        (16, 32768 // size, "one_block"),
        (17, 32768 // size, "one_block"),
        (8, 65536 // size, "one_block"),
        (9, 65536 // size, "one_block"),
        (2, 65536 // size + 1, "short_rows" if size == 16 else "v9"),
        (3, 4096 // size + 1, "one_block" if size == 16 else "one_wave"),
        (33, 8192 // size, "one_block"),
        (33, 4096 // size + 16, "one_block"),
    ):
        x = np.random.default_rng(rows).integers(0, 3, (rows, cols)).astype(dtype)
        assert explain("reduce", x, axis=1, backend="sim")[0]["variant"] == variant
        for op in ("sum",) if dtype == "complex128" else ("sum", "max", "argmax", "all"):
            for part in (x, x[::-1], x[:, 1:], x[::2, : cols - 3]):
                got = reduce(part, op, axis=1, backend="sim", variant="auto")
                np.testing.assert_array_equal(got, ref.reduce(part, op, axis=1))


WAVES: list[tuple[tuple[int, ...], Callable[[Any], Any], Any]] = [
    ((1,), lambda a: a, 0),
    ((9, 32, 1, 12), lambda a: a, 0),
    ((26, 185), lambda a: a, 0),
    ((512, 61), lambda a: a, 1),
    ((4, 40, 32, 1), lambda a: a.T, (1, 3)),
    ((32, 76), lambda a: a[:, ::2], 0),
    ((131, 5), lambda a: a[::-1, ::2], 0),
    ((301, 3), lambda a: a, 0),
    ((2, 700), lambda a: a[:, ::2], 1),
    ((2, 3, 9, 14), lambda a: a[..., ::2], (0, 2)),
    ((3, 5, 4, 10), lambda a: a.transpose(2, 0, 3, 1), (1, 2)),
    ((5, 4, 3, 8), lambda a: a[..., ::2].transpose(1, 2, 3, 0), 3),
    ((8300,), lambda a: a[1:], 0),
    ((30000,), lambda a: a[::-1], 0),
    ((100000,), lambda a: a[::2], 0),  # blocks share a result
    ((300, 200), lambda a: a[:, ::2], None),
    ((3, 50000), lambda a: a[:, ::2], 1),
    ((7000, 10), lambda a: a, 0),
    ((7000, 2, 10), lambda a: a[..., ::2].transpose(2, 1, 0), 2),
]


@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "complex128"])
@pytest.mark.parametrize("case", WAVES, ids=lambda case: str(case[0]))
def test_one_wave_of_any_view(case: Any, dtype: str) -> None:
    """Threads of a result beside each other and apart, one to several blocks of one."""
    shape, view, axis = case
    x = view(np.random.default_rng(6).integers(0, 3, shape).astype(dtype))
    for op in ("sum", "mean") if dtype == "complex128" else ("sum", "mean", "argmax", "all"):
        if isinstance(axis, tuple) and op == "argmax":
            continue
        got = reduce(x, op, axis=axis, backend="sim", variant="one_wave")
        np.testing.assert_allclose(got, ref.reduce(x, op, axis=axis), rtol=1e-3, err_msg=op)


def test_one_wave_is_for_what_runs_at_once() -> None:
    x = np.ones((512, 64), "float32")
    for part, axis, variant in (
        (x[:, :61], 1, "one_wave"),
        (x[:, ::2], 0, "one_wave"),
        (np.ones(8192, "float32")[::2], 0, "one_wave"),
        (np.ones(70000, "float32")[::2], 0, "stepped_rows"),
        (np.zeros((5000, 6000), "int32")[:, ::2], 1, "short_rows"),  # below two tiles
        (np.zeros((90, 6000), "int32")[:, ::2], 1, "stepped_rows"),
        (np.zeros((900, 6000))[:, ::2], 1, "short_rows"),
        (np.zeros((900, 600))[:, ::2], 1, "one_wave"),
        (np.zeros((9000, 400), "float32")[:, ::2], 1, "one_wave"),
        (np.zeros((9000, 600), "float32")[:, ::2], 1, "short_rows"),
        (np.zeros((5000, 4000), "float16")[:, ::2], 1, "short_rows"),
        (np.zeros((4, 900, 2000), "float32")[..., ::2], (0, 2), "columns"),  # short runs
        (np.zeros((20000, 3, 2, 90), "float32"), (1, 3), "one_wave"),  # rows of runs
        (x[:, :63], 0, "one_wave"),
        (np.ones((4097, 9), "float32"), 1, "few_down"),
        (np.ones((4097, 33), "float32"), 1, "one_wave"),
        (np.ones((2, 8193), "float32"), 1, "v9"),
    ):
        got = explain("reduce", part, axis=axis, backend="sim")[0]["variant"]
        assert got == variant, part.shape


@pytest.mark.parametrize("dtype", ["bool", "int16", "float16", "float32", "float64"])
def test_places_in_another_order_than_memory(dtype: str) -> None:
    """Ties, also of all elements, and nan: the first in the order of the axes."""
    rng = np.random.default_rng(13)
    for shape in ((3, 5), (33, 31), (5, 3, 70), (90, 2, 70, 3), (2, 3, 4, 5)):
        for top in (2, 100):
            x = rng.integers(0, top, shape).astype(dtype)
            for view in (x.T, x.swapaxes(0, 1), np.moveaxis(x, -1, 0)):
                for op in ("argmin", "argmax"):
                    got = reduce(view, op, backend="sim", variant="columns")
                    assert got == ref.reduce(view, op), (shape, op)
            if dtype[0] == "f":
                x[..., -1] = np.nan
                got = reduce(x.T, "argmax", backend="sim", variant="columns")
                assert got == ref.reduce(x.T, "argmax")
    x = np.zeros((40, 50, 60), dtype)
    assert explain("reduce", x.T, "argmax", backend="sim")[0]["variant"] == "columns"
    assert reduce(x.T, "argmax", backend="sim") == 0
    for part in (x.T[::-1], x.T[1:]):  # not a run of memory
        assert reduce(part, "argmax", backend="sim", variant="columns") == 0


def test_copies_along_an_axis_of_one() -> None:
    """Results of one element each, packs of four loads, and what is left of a pack."""
    for n in (40001, 65536):
        for dtype in ("bool", "float16", "int32", "float64"):
            x = np.random.default_rng(n).integers(0, 9, (n, 1)).astype(dtype)
            for op in ("sum", "prod", "max", "mean", "any"):
                got = reduce(x, op, axis=1, backend="sim", variant="few_down")
                np.testing.assert_array_equal(got, ref.reduce(x, op, axis=1))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((64, 2, 110), 1),
        ((3, 7000), 0),
        ((17, 4, 401), 1),
        ((6200, 1, 2, 3), 2),
        ((331, 3, 19), 1),
    ],
)
def test_results_that_share_no_loads_are_several_of_a_thread(shape: Any, axis: int) -> None:
    """Parts of the outermost axis, whose last one may be shorter; few_down names both."""
    rng = np.random.default_rng(5)
    for dtype in ("float32", "float16", "int8", "int64", "float64"):
        x = rng.integers(-9, 9, shape).astype(dtype)
        for part, along in ((x, axis), (x.T, x.ndim - 1 - axis), (x[::-1], axis)):
            for op in ("sum", "max", "argmin", "mean", "any"):
                got = reduce(part, op, axis=along, backend="sim", variant="few_down")
                want = ref.reduce(part, op, axis=along)
                np.testing.assert_allclose(got, want, rtol=1e-3 if op == "mean" else 0)


def test_few_down_is_for_short_rows() -> None:
    """So many results per SM, rows of up to 8 elements, more where neighbours share loads."""
    x = np.ones((9, 65536), "float32")
    for rows, cols, variant in ((65536, 8, "few_down"), (65536, 9, "columns")):
        row = explain("reduce", x[:cols, :rows], axis=0, backend="sim")[0]
        assert row["variant"] == variant
    for shape, variant in (
        ((8, 65537), "few_down"),  # neighbours share no loads, nor would they in columns
        ((8, 65540), "few_down"),
        ((9, 5000), "few_down"),
        ((33, 5000), "columns"),
        ((9, 4000), "columns"),
        ((65537, 1), "few_down"),
    ):
        row = explain("reduce", np.ones(shape, "float32"), axis=shape[1] == 1, backend="sim")[0]
        assert row["variant"] == variant, shape
    for dtype, cols, variant in (  # contiguous rows
        ("uint8", 19, "few_down"),  # 1.2 MB
        ("uint8", 32, "short_rows"),
        ("uint8", 65, "narrow_rows"),
        ("float32", 31, "narrow_rows"),
        ("float32", 32, "short_rows"),
        ("float32", 129, "one_wave"),  # in a round of a thread, between packs
        ("float32", 257, "short_rows"),
        ("float64", 19, "narrow_rows"),
        ("float64", 129, "one_wave"),
        ("float64", 130, "one_wave"),
        ("float64", 600, "short_rows"),  # whole packs
    ):
        row = explain("reduce", np.ones((65536, cols), dtype), axis=1, backend="sim")[0]
        assert row["variant"] == variant, (dtype, cols)
    sparse = np.arange(24000.0).reshape(2, 10, 3, 400).swapaxes(0, -1)[::100, :1]
    for variant in ("few_down", "transposed"):
        got = reduce(sparse, axis=1, backend="sim", variant=variant)
        np.testing.assert_array_equal(got, sparse[:, 0])


NEIGHBOURS: list[tuple[tuple[int, ...], Callable[[Any], Any], int]] = [
    ((12805, 1), lambda a: a, 1),  # the last thread has fewer
    ((20, 4224), lambda a: a[:, :4203], 0),  # fewer results, several rounds of loads
    ((12, 8448), lambda a: a[:, 1:8432:2], 0),
    ((3, 2, 8, 1024), lambda a: a[:2], 1),
    ((5, 8192), lambda a: a[:4, :6400], 0),
    ((20, 1304, 5), lambda a: a.T, 2),  # one run in memory, results apart
    ((12, 7, 2048), lambda a: a[:, :, ::2], 0),  # two apart
    ((12, 7, 2048), lambda a: a[:, ::-1, ::2], 0),
    ((12, 7, 2047), lambda a: a[:, :, ::2], 0),
    ((1, 15000), lambda a: a[:, ::2], 0),
    ((2, 15000), lambda a: a[:, 1::2], 0),
    ((64, 3, 200), lambda a: a.T, 1),
    ((31, 6500), lambda a: a, 0),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "int32", "float64", "complex64"])
@pytest.mark.parametrize("case", NEIGHBOURS, ids=lambda case: str(case[0]))
def test_few_down_takes_neighbours(case: Any, dtype: str) -> None:
    """Threads of several results each: every operation, in packs and apart, also into out=."""
    shape, view, axis = case
    x = np.random.default_rng(5).integers(0, 3, shape).astype(dtype)
    part = view(x)
    ops = ("sum", "mean") if dtype == "complex64" else [op for op in REDUCE_OPS if op != "prod"]
    for op in ops:
        want = ref.reduce(part, op, axis=axis)
        got = reduce(part, op, axis=axis, backend="sim", variant="few_down")
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, err_msg=op)
        out = np.zeros(want.size + 1, want.dtype)[1:].reshape(want.shape)
        reduce(part, op, axis=axis, backend="sim", variant="few_down", out=out)
        np.testing.assert_array_equal(out, got, err_msg=op)


NARROW: list[tuple[tuple[int, ...], Callable[[Any], Any], Any]] = [
    ((5000, 19), lambda a: a, 1),  # several stretches of a block
    ((5001, 19), lambda a: a[1:], 1),  # x begins between boundaries, as does what follows
    ((700, 33), lambda a: a[:, 2:], 1),  # rows apart
    ((700, 33), lambda a: a[:, 2::2], 1),
    ((700, 30), lambda a: a[:, ::3], 1),
    ((700, 61), lambda a: a[3:, 1:60], 1),
    ((90, 5, 6), lambda a: a, (1, 2)),
    ((40, 30, 7), lambda a: a, 2),
    ((25, 300), lambda a: a.T, 0),
    ((3, 90, 21), lambda a: a.T, 0),  # results in another order
    ((5, 700, 9), lambda a: a.T, 0),  # whose planes are chunks and a part each
    ((3, 9, 5, 21), lambda a: a.transpose(1, 3, 0, 2), 1),
    ((65, 2), lambda a: a, 1),
    ((129, 32), lambda a: a, 1),  # whole words
    ((1500, 250), lambda a: a, 1),  # of bytes, four lanes of a row
    ((70, 512), lambda a: a[:, :131], 1),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("case", NARROW, ids=lambda case: str(case[0]))
def test_narrow_rows_begin_anywhere(case: Any, dtype: str, simulator: Any) -> None:
    """Stretches of rows in shared memory; whole numbers are exact."""
    shape, view, axis = case
    width = math.prod(shape[1:] if axis == (1, 2) else shape[-1:]) * np.dtype(dtype).itemsize
    x = np.random.default_rng(8).integers(0, 3, shape).astype(dtype)
    part = view(x)
    simulator(schedule="shuffle", checks=True)
    for op in ("sum", "mean", "min", "argmax", "all"):
        if isinstance(axis, tuple) and op == "argmax":
            continue
        if width > 512:
            with pytest.raises(VariantError, match="narrow_rows"):
                reduce(part, op, axis=axis, backend="sim", variant="narrow_rows")
            continue
        got = reduce(part, op, axis=axis, backend="sim", variant="narrow_rows")
        want = ref.reduce(part, op, axis=axis)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, err_msg=op)


def test_narrow_rows_refuse_others() -> None:
    x = np.zeros((40, 6, 10), "float32")
    for part, axis in ((x[::-1], 2), (x, 1), (x[:, :5], 2), (np.zeros((9, 129)), 1)):
        with pytest.raises(VariantError, match="narrow_rows"):
            reduce(part, axis=axis, backend="sim", variant="narrow_rows")


FLAT = [(4000, 3), (9999, 2), (1111, 5), (6000, 12), (701, 16), (2500, 25), (70, 32)]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [*FLAT, (2, 3), (7, 7), (200_000, 3)], ids=str)
def test_flat_columns(shape: tuple[int, int], dtype: str, simulator: Any) -> None:
    """Whole rows of a block's packs, what is left of a pack, several blocks."""
    x = np.random.default_rng(9).integers(-2, 3, shape).astype(dtype)
    for schedule, part in (("shuffle", x), ("descending", x[1:])):
        if len(part) == 1:
            continue
        simulator(schedule=schedule, checks=shape[0] < 100_000)
        for op in ("sum", "mean", "max", "all"):
            got = reduce(part, op, axis=0, backend="sim", variant="flat_columns")
            want = ref.reduce(part, op, axis=0)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3, err_msg=op)


def test_flat_columns_refuse_others() -> None:
    x = np.zeros((40, 8), "float32")
    for part, op in ((x[:, :7], "sum"), (x, "argmax"), (x[::2], "sum")):
        with pytest.raises(VariantError, match="flat_columns"):
            reduce(part, op, axis=0, backend="sim", variant="flat_columns")


@pytest.mark.parametrize("shape", [(1,), (7, 1), (3000, 1), (2, 1, 50), (2, 3, 4, 5, 1, 2)])
def test_the_place_of_one_element_is_zero(shape: tuple[int, ...]) -> None:
    """argmin and argmax along an axis of one, of any layout, nan or not; nothing is read."""
    axis = shape.index(1)
    for x in (np.full(shape, np.nan), np.full((*shape, 2), 1, "int16")[..., ::2].squeeze(-1)):
        for op in ("argmin", "argmax"):
            row = explain("reduce", x, op, axis=axis, backend="sim")[0]
            assert row["variant"] == "few_down"
            got = reduce(x, op, axis=axis, backend="sim")
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, np.zeros(np.delete(shape, axis), np.int64))


SPANS: list[tuple[tuple[int, ...], Callable[[Any], Any], Any]] = [
    ((203, 8, 16, 6), lambda a: a[..., ::2], 0),  # columns two apart
    ((203, 8, 2, 5), lambda a: a[..., ::2], 0),  # pairs of axes with gaps
    ((1203, 4, 2, 10), lambda a: a[..., ::2, ::3], 0),
    ((203, 16, 3), lambda a: a[:, ::2], 0),  # short runs
    ((203, 64), lambda a: a[:, :61], 0),
    ((203, 64), lambda a: a[:, ::3], 0),
    ((203, 64), lambda a: a[:, ::4], 0),
    ((203, 64), lambda a: a[:, 1::2], 0),  # no span: the first is not aligned
    ((203, 64), lambda a: a[::-1, ::2], 0),
    ((203, 61), lambda a: a[:, ::2], 0),  # rows begin anywhere, from here on
    ((203, 61), lambda a: a, 0),
    ((40, 131), lambda a: a[:, ::2], 0),
    ((40, 131), lambda a: a[::-1], 0),
    ((7, 90, 51), lambda a: a, (0, 1)),
    ((3, 90, 171), lambda a: a[:, :, :170], 1),
    ((3, 90, 171), lambda a: a[:, ::3, 16:], 1),
    ((3, 90, 17), lambda a: a, 1),  # near rows: two packs of bytes reach a third one
    ((5003, 33), lambda a: a, 0),
    ((3, 203, 32), lambda a: a[:, :, ::2], 1),  # columns of several tiles
    ((3, 203, 32, 2), lambda a: a[:, :, :29], (1, 3)),
    ((9, 3, 40, 16), lambda a: a[:, :, ::2, ::2], (0, 2)),
    ((203, 8, 4, 6), lambda a: a[..., ::2].transpose(3, 0, 2, 1), 1),
    ((9003, 16), lambda a: a[:, ::2], 0),  # blocks share a column
    ((250, 4, 2000), lambda a: a[..., ::2], 0),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16"])
@pytest.mark.parametrize("case", SPANS, ids=lambda case: str(case[0]))
def test_narrow_columns_with_gaps(case: Any, dtype: str) -> None:
    """Packs of columns with what lies between them, the last of which ends behind x."""
    shape, view, axis = case
    x = view(np.random.default_rng(11).integers(0, 3, shape).astype(dtype))
    for op in ("sum", "mean", "max", "argmin", "all"):
        if isinstance(axis, tuple) and op == "argmin":
            continue
        got = reduce(x, op, axis=axis, backend="sim", variant="columns")
        np.testing.assert_allclose(got, ref.reduce(x, op, axis=axis), rtol=1e-3, err_msg=op)


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "float64"],
)
@pytest.mark.parametrize("shape", [(2,), (3, 31), (2, 4100), (1, 70000), (3, 5, 1501), (2, 17)])
def test_rows_of_every_second_element(shape: tuple[int, ...], dtype: str) -> None:
    """Runs that begin at any byte of a pack, whose elements are the first of two or not."""
    rng = np.random.default_rng(17)
    whole = rng.integers(0, 9, (*shape[:-1], 2 * shape[-1] + 3)).astype(dtype_of(dtype))
    for first in range(3):
        x = whole[..., first : first + 2 * shape[-1] : 2]
        for axis in {-1, tuple(range(1, x.ndim)) or 0}:
            for op in ("sum", "mean", "min", "argmax", "all"):
                if isinstance(axis, tuple) and op == "argmax":
                    continue
                got = reduce(x, op, axis=axis, backend="sim", variant="stepped_rows")
                want = ref.reduce(x, op, axis=axis)
                np.testing.assert_allclose(
                    np.asarray(got, "f8"), np.asarray(want, "f8"), rtol=1e-2, err_msg=op
                )


@pytest.mark.parametrize("dtype", ["bool", "float16", "float64", "complex128"])
def test_long_columns_with_few_neighbours(dtype: str) -> None:
    """Lanes without a column, packs of columns, one block and several of a column."""
    for shape in ((3, 4096, 5), (3, 4095, 5), (1, 5000, 7), (2, 4100, 24), (20, 4096, 3)):
        x = np.random.default_rng(6).integers(0, 3, shape).astype(dtype)
        for op in ("sum",) if dtype == "complex128" else ("sum", "max", "argmin", "all"):
            got = reduce(x, op, axis=1, backend="sim", variant="columns")
            np.testing.assert_allclose(got, ref.reduce(x, op, axis=1), rtol=1e-3)


# Rows of one and of several loads of a lane, that end in a pack or beside one.
@pytest.mark.parametrize(
    ("rows", "cols"),
    [(69, 1024), (74, 1001), (2, 1), (3, 33), (5, 4096), (300, 130), (1100, 257), (40, 271)],
)
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "float16", "float32", "float64", "complex128"]
)
def test_few_rows_take_several_warps_each(rows: int, cols: int, dtype: str) -> None:
    """Groups of 1 to 256 lanes, by the number of rows; whole numbers are exact."""
    x = np.random.default_rng(rows).integers(-9, 9, (rows, cols)).astype(dtype)
    for op in ("sum",) if dtype == "complex128" else ("sum", "max", "argmax", "any"):
        for part in (x, x[:, cols > 1 :], x[::-1]):
            got = reduce(part, op, axis=1, backend="sim", variant="short_rows")
            np.testing.assert_array_equal(got, ref.reduce(part, op, axis=1))


@pytest.mark.parametrize("n", [1, 15, 2047, 9_000, 65_536, 40_001, 150_788])
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64", "complex128"])
def test_the_last_tile_of_a_row(n: int, dtype: str) -> None:
    """v9 loads the packs and the elements beside them at once, for any start and end."""
    x = np.random.default_rng(n).integers(-1, 2, n).astype(dtype)
    for op in ("sum",) if dtype == "complex128" else ("sum", "min", "argmin", "all"):
        for part in (x, x[1:], x[: n - n // 7], x[3:]):
            if part.size:
                got = reduce(part, op, backend="sim", variant="v9")
                np.testing.assert_array_equal(got, ref.reduce(part, op))


# ---- fewer rows, for the simulator ----


@pytest.mark.parametrize("variant", RUNGS)
def test_fewer_rows_take_the_same_path(variant: str) -> None:
    """The samples that cases.fewer_rows shortens: the same lines, blocks for each row."""

    def path(sample: Any) -> Any:
        x, options = sample.arrays[0].build(), dict(sample.options)
        rows = np.size(reduce(x, **options, backend="cpu"))
        kernels = profile("reduce", x, variant=variant, **options).kernels
        lines = [[(line.file, line.line) for line in kernel.lines] for kernel in kernels]
        return [(k.kernel, k.launches, k.blocks / rows) for k in kernels], lines

    found = 0
    for sample in reduce_samples("float32", "small"):
        fewer = fewer_rows(sample)
        if (
            fewer != sample
            and sample.elements <= 3341
            and "sum" in dict(sample.options).values()
        ):
            rows = np.size(ref.reduce(sample.arrays[0].build(), **dict(sample.options)))
            if rows > (1023 if dict(sample.options)["axis"] == () else 400):
                continue  # a simulated row takes the time of a block or two
            found += 1
            assert path(fewer) == path(sample), str(sample)
    assert found >= 5


# ---- large indices ----


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 300, 2**32 + 300])
def test_more_elements_than_32_bits_count(n: int) -> None:
    """A broadcast row stands for gigabytes: (n // 1024) rows of 1024 and a remainder."""
    x = np.broadcast_to(np.int8(1), (n,))
    assert reduce(x, backend="cpu") == n
    row = np.arange(1024, dtype=np.int8)
    x = np.broadcast_to(row, (n // 1024, 1024))
    assert reduce(x, backend="cpu") == int(row.sum(dtype=np.int64)) * (n // 1024)


def test_a_position_past_32_bits() -> None:
    """Windows over one short buffer: only the last of 2**32 + 2**16 elements is 1."""
    rows, cols = 2**16 + 1, 2**16
    base = np.zeros(rows + cols - 1, np.int8)
    base[-1] = 1
    x = np.lib.stride_tricks.sliding_window_view(base, cols)
    assert x.shape == (rows, cols)
    assert reduce(x, "argmax", backend="cpu") == rows * cols - 1
    assert reduce(x, "any", backend="cpu")
    assert reduce(x, backend="cpu") == 1
