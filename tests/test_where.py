"""reduce(where=): the elements that a mask selects, as NumPy combines them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gpuopt

SHAPE = (3, 5, 4)
MASKS = ((3, 5, 4), (5, 4), (4,), (5, 1), (3, 1, 1), (1, 5, 4), ())
NUMPY: dict[str, Any] = {
    op: getattr(np, op) for op in ("sum", "prod", "min", "max", "mean", "any", "all")
}
DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64")
BACKENDS = [None, "cpu", "sim", *(["cuda"] if gpuopt.backends()["cuda"] is None else [])]
BOUND = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14, "complex64": 1e-6}
WHOLE = ("bool", "int8", "uint16", "int64")


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype in WHOLE:
        return rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)
    x = rng.uniform(0.5, 1.5, shape)
    return (x + 1j * rng.uniform(-1, 1, shape) if dtype == "complex64" else x).astype(dtype)


def mask_of(shape: tuple[int, ...], seed: int = 1) -> Any:
    return np.asarray(np.random.default_rng(seed).random(shape) < 0.6)


def check(got: Any, want: Any, dtype: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    bound = max(BOUND.get(dtype, 0.0), BOUND.get(str(want.dtype), 0.0))
    np.testing.assert_allclose(got, want, rtol=bound * 60, atol=0)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("op", NUMPY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_as_numpy_has_it(op: str, dtype: str, backend: str | None) -> None:
    if dtype == "complex64" and op in ("min", "max", "any", "all"):
        return
    x = drawn(SHAPE, dtype)
    options: dict[str, Any] = {"initial": x.dtype.type(1)} if op in ("min", "max") else {}
    for shape in MASKS if backend != "sim" else MASKS[:4]:
        mask = mask_of(shape)
        for axis in (None, 1, (0, 2), -1):
            with np.errstate(all="ignore"):
                want = NUMPY[op](x, axis=axis, where=mask, **options)
            ours: dict[str, Any] = {"initial": 1} if options else {}
            got = gpuopt.reduce(x, op, axis, where=mask, backend=backend, **ours)
            check(np.asarray(got), np.asarray(want), dtype)


def test_a_number_is_of_numpys_type() -> None:
    x = drawn((9,), "float32")
    assert isinstance(gpuopt.reduce(x, where=x > 1), np.float32)
    assert isinstance(gpuopt.reduce(x, "mean", where=x > 1), np.float32)
    assert isinstance(gpuopt.reduce([1, 2, 3], "mean", where=[True, False, True]), np.float64)
    assert gpuopt.reduce([1, 2, 3], where=True) == 6


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_keepdims_dtype_and_out(op: str) -> None:
    x, mask = drawn(SHAPE, "int8"), mask_of((5, 1))
    got = gpuopt.reduce(x, op, 1, True, "float64", where=mask)
    np.testing.assert_allclose(got, NUMPY[op](x, axis=1, keepdims=True, dtype="f8", where=mask))
    assert got.shape == (3, 1, 4)
    out = np.empty((3, 4), np.float64)
    assert gpuopt.reduce(x, op, 1, out=out, where=mask) is out
    np.testing.assert_allclose(out, NUMPY[op](x, axis=1, dtype="f8", where=mask))


@pytest.mark.parametrize("axis", [np.int64(1), np.array(1), np.array([1]), [1], (-2,)])
def test_a_mean_takes_an_axis_as_without_a_mask(axis: Any) -> None:
    x, mask = drawn(SHAPE, "float64"), mask_of((5, 1))
    got = gpuopt.reduce(x, "mean", axis, where=mask)
    np.testing.assert_allclose(got, np.mean(x, axis=1, where=mask))
    with pytest.raises(np.exceptions.AxisError):
        gpuopt.reduce(x, "mean", np.int64(3), where=mask)


@pytest.mark.parametrize("dtype", ["float64", ">f4", "complex128"])
def test_a_mean_into_another_dtype(dtype: str) -> None:
    """Combined in the dtype that x and out promote to: 1e38 has no sum in float32."""
    x = np.full(1000, 1e38, np.float32)
    out = np.zeros((), dtype)
    assert gpuopt.reduce(x, "mean", where=x > 0, out=(out,)) is out
    if dtype != ">f4":
        np.testing.assert_allclose(out, np.mean(x, dtype=dtype))
        assert gpuopt.reduce(x, "mean", out=np.zeros((), dtype)) == out
    gpuopt.reduce(np.arange(4), "mean", where=[True, False, True, True], out=out)
    np.testing.assert_allclose(out, 5 / 3, rtol=1e-6)
    assert gpuopt.reduce(x[:1], "mean", where=True, out=(None,)) == x[0]


def test_what_is_left_out_is_not_read_as_a_number() -> None:
    x = np.array([[1, np.nan], [np.inf, 4]], np.float32)
    mask = np.array([[True, False], [False, True]])
    assert gpuopt.reduce(x, where=mask) == 5
    assert gpuopt.reduce(x, "max", initial=0, where=mask) == 4
    assert gpuopt.reduce(x, "mean", where=mask) == 2.5


def test_no_element_selected() -> None:
    x, none = np.ones((2, 3), np.float32), np.zeros(3, bool)
    np.testing.assert_array_equal(gpuopt.reduce(x, axis=1, where=none), [0, 0])
    assert np.isnan(gpuopt.reduce(x, "mean", axis=1, where=none)).all()
    assert gpuopt.reduce(x, "min", initial=7, where=none) == 7


def test_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(8).astype(ml_dtypes.bfloat16)
    got = gpuopt.reduce(x, "mean", where=np.arange(8) % 2 == 1)
    assert got.dtype == x.dtype and float(got) == 4


def test_arrays_on_a_device() -> None:
    x, mask = drawn(SHAPE, "float32"), mask_of((5, 1))
    d, m = gpuopt.asdevice(x, backend="sim"), gpuopt.asdevice(mask, backend="sim")
    for op in ("sum", "mean"):
        got = gpuopt.reduce(d, op, axis=1, where=m)
        assert isinstance(got, gpuopt.DeviceArray)
        check(got.numpy(), NUMPY[op](x, axis=1, where=mask), "float32")
    assert float(gpuopt.reduce(d, where=m)) == pytest.approx(float(np.sum(x, where=mask)))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"where": np.ones(3)}, TypeError, "where= of dtype 'bool', not 'float64'"),
        ({"where": np.ones(4, bool)}, ValueError, "cannot be broadcast to the shape of x"),
        ({"where": np.ones((1, 1, 3), bool)}, ValueError, "where= of 3 dimensions"),
        ({"where": True, "op": "argmax"}, TypeError, "op='argmax' takes no where="),
        ({"where": True, "op": "max"}, ValueError, "'maximum' does not have an identity"),
    ],
)
def test_errors(options: dict[str, Any], error: type[Exception], words: str) -> None:
    out = np.full((), 7.0, np.float32)
    with pytest.raises(error, match=re.escape(words)):
        gpuopt.reduce(np.ones((2, 3), np.float32), out=out, **options)
    assert out == 7
    assert gpuopt.reduce(np.ones((2, 3), np.float32)) == 6
