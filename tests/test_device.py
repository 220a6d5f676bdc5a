"""Arrays that stay on a device, and arrays of other libraries.

The device is the simulator: a call takes the same path as on a GPU, except for the copies.
Order: attributes, one element as a number, views, copies, operators in place, conversions,
numbers, errors, memory, streams and events, DLPack out, other libraries in and out, processes.
"""

from __future__ import annotations

import gc
import itertools
import operator
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import foreign
import ml_dtypes
import numpy as np
import pytest
from conftest import Child

import gpuopt
from gpuopt import _core

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
RUNGS = [row["name"] for row in _core.variants("reduce") if row["backend"] == "sim"]
SHAPES = {row["name"] for row in _core.variants("reduce") if row["shape"] is not None}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def some(shape: int | tuple[int, ...], dtype: str = "float32", seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype_of(dtype))


def on_sim(x: Any, **keywords: Any) -> gpuopt.DeviceArray:
    return gpuopt.asdevice(x, backend="sim", **keywords)


def alive() -> tuple[int, int]:
    gc.collect()
    state = _core._sim_state()
    return state["allocations"], state["bytes"]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Every test frees the device memory it allocates."""
    before = alive()
    yield
    assert alive() == before


# ---- attributes ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_attributes_and_round_trip(dtype: str) -> None:
    x = some((3, 5), dtype)
    d = on_sim(x)
    assert (d.shape, d.strides, d.ndim, d.size) == (x.shape, x.strides, 2, 15)
    assert (d.dtype, d.itemsize, d.nbytes) == (x.dtype, x.itemsize, x.nbytes)
    assert (d.backend, d.device, d.stream, d.freed, len(d)) == ("sim", 0, 0, False, 3)
    np.testing.assert_array_equal(d.numpy(), x)
    assert repr(d) == f"<gpuopt.DeviceArray shape=(3, 5) dtype={dtype} on sim:0>"
    assert "<table>" in d._repr_html_() and dtype in d._repr_html_()


@pytest.mark.parametrize(
    "x",
    [
        np.float32(3),
        np.empty((0, 4)),
        np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(10)[::-2],
        np.broadcast_to(np.float32(1), (3, 3)),
        np.arange(4, dtype=">f8"),
        [[1, 2], [3, 4]],
        5,
    ],
    ids=lambda x: type(x).__name__,
)
def test_asdevice_takes_what_numpy_takes(x: Any) -> None:
    got = on_sim(x).numpy()
    np.testing.assert_array_equal(got, np.asarray(x))
    assert got.dtype == np.asarray(x).dtype.newbyteorder("=")


def test_asdevice_converts_on_the_host() -> None:
    assert on_sim([1, 2, 3], dtype="float16").dtype == np.float16
    d = on_sim(some(4))
    assert gpuopt.asdevice(d) is d
    assert gpuopt.asdevice(d, backend="sim", device=0) is d
    with pytest.raises(TypeError, match="dtype= converts host arrays; x is on sim:0"):
        gpuopt.asdevice(d, dtype="float64")
    with pytest.raises(ValueError, match="x is on sim:0, not on cuda; copy it by way"):
        gpuopt.asdevice(d, backend="cuda")


def test_it_is_no_array_library() -> None:
    d = on_sim(some(4))
    with pytest.raises(TypeError, match=r"Implicit conversion.*`\.numpy\(\)`"):
        np.asarray(d)
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.add(d, 1)
    with pytest.raises(TypeError):
        d + 1  # type: ignore[operator]
    with pytest.raises(TypeError, match="cannot create"):
        gpuopt.DeviceArray()
    with pytest.raises(TypeError, match="unsized"):
        len(on_sim(1.0))
    with pytest.raises(TypeError):
        __import__("pickle").dumps(d)


# ---- one element as a number ----

NUMBERS = {
    "float": float,
    "int": int,
    "complex": complex,
    "index": operator.index,
    "bool": bool,
}


def outcome(call: Callable[[], Any]) -> Any:
    """The type and value of a result, or the class and words of an exception."""
    try:
        value = call()
    except (TypeError, OverflowError, ValueError) as error:
        return type(error), str(error)
    return type(value), repr(value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NUMBERS)
def test_one_element_converts_as_numpy_converts_a_scalar_array(name: str, dtype: str) -> None:
    kind = dtype_of(dtype).kind
    values = [0, 1] if kind == "b" else [0, 3, 100]
    values += [-7] * (kind == "i")
    values += [2.5, np.inf, np.nan, -0.0] if dtype[:2] in ("fl", "bf", "co") else []
    values += [1 - 2j] * (kind == "c")
    for value in values:
        x = np.array(value, dtype_of(dtype))
        want = outcome(lambda x=x: NUMBERS[name](x))
        for shape in ((), (1,), (1, 1, 1)):
            d = on_sim(x.reshape(shape))
            assert outcome(lambda d=d: NUMBERS[name](d)) == want
        strided = on_sim(np.array([0, value, 0, 1], dtype_of(dtype)))[1::2][:1]
        assert outcome(lambda d=strided: NUMBERS[name](d)) == want


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_is_a_python_number(dtype: str) -> None:
    x = np.array([[1]], dtype_of(dtype))
    got = on_sim(x).item()
    assert type(got) is (float if dtype == "bfloat16" else type(x.item()))
    assert got == 1


def test_a_result_converts_once_the_kernels_before_it_are_done() -> None:
    d = on_sim(some(1000))
    total = gpuopt.reduce(d)
    assert float(total) == total.item() == some(1000).sum()
    assert range(10)[gpuopt.reduce(on_sim([3, 9, 4]), op="argmax")] == 1
    assert f"{float(total):.1f}" == f"{some(1000).sum():.1f}"
    assert d[gpuopt.reduce(on_sim([3, 1]))].item() == some(1000)[4]


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 3)], ids=str)
def test_other_numbers_of_elements_do_not_convert(shape: tuple[int, ...]) -> None:
    d = on_sim(np.zeros(shape, np.int32))
    for name in ("float", "int", "complex"):
        words = "only length-1 arrays can be converted to Python scalars"
        assert outcome(lambda: NUMBERS[name](d)) == (TypeError, words)  # noqa: B023
    with pytest.raises(TypeError, match="only integer scalar arrays can be converted"):
        operator.index(d)
    with pytest.raises(ValueError, match="can only convert an array of size 1"):
        d.item()
    many = "truth value of an array with more than one element is ambiguous"
    with pytest.raises(ValueError, match=many if d.size else "truth value of an empty array"):
        bool(d)


@pytest.mark.parametrize("name", [*NUMBERS, "item"])
def test_a_freed_array_does_not_convert(name: str) -> None:
    d = on_sim(np.array([3]))
    d.free()
    with pytest.raises(ValueError, match=rf"{name}\(\): the array was freed"):
        NUMBERS[name](d) if name in NUMBERS else d.item()


# ---- views ----

INDICES = [
    *(0, -1, np.int64(2), slice(None), slice(1, 3), slice(None, None, -1), slice(5, 1)),
    *(slice(-2, None, 2), ..., None, (), (1, 2), (0, ..., -1), (..., None), (None, 1, None)),
    *((slice(None), slice(None, None, -2)), (slice(None, None, -1), 1, slice(1, None))),
    *((slice(2, 2), ...), (0, 1, 2)),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_a_basic_index_is_a_view(index: Any) -> None:
    x = some((4, 3, 5))
    d = on_sim(x)
    view = d[index]
    want = x[index]
    assert view.shape == np.shape(want)
    np.testing.assert_array_equal(view.numpy(), want)
    if view.size > 1:
        assert view.strides == want.strides
    if view.size:
        d.copy_from(-x)
        np.testing.assert_array_equal(view.numpy(), -want)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (4, "index 4 is out of bounds for axis 0 with size 4"),
        (-5, "index -5 is out of bounds"),
        ((0, 3), "axis 1 with size 3"),
        ((0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ([0], "integers, slices"),
        (True, "integers, slices"),
        (1.0, "integers, slices"),
    ],
    ids=repr,
)
def test_other_indices_are_errors(index: Any, error: str) -> None:
    with pytest.raises(IndexError, match=error):
        on_sim(some((4, 3)))[index]


def test_iteration_transpose_and_reshape() -> None:
    x = some((4, 3))
    d = on_sim(x)
    for got, want in zip(d, x, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
    np.testing.assert_array_equal(d.T.numpy(), x.T)
    np.testing.assert_array_equal(d.reshape(2, -1).numpy(), x.reshape(2, -1))
    np.testing.assert_array_equal(d.reshape((12,)).numpy(), x.reshape(12))
    assert on_sim(np.empty((0, 3))).reshape(0).shape == (0,)
    for shape in ((5,), (-1, -1), (-1, 5), (-2, 6), (2**62, 4)):
        with pytest.raises(ValueError, match="cannot reshape"):
            d.reshape(*shape)
    with pytest.raises(ValueError, match="C-contiguous"):
        d.T.reshape(12)


def test_a_view_keeps_the_memory() -> None:
    x = some(1000)
    before = alive()
    view = on_sim(x)[10:20]
    assert alive()[0] == before[0] + 1
    np.testing.assert_array_equal(view.numpy(), x[10:20])
    del view
    assert alive() == before


# ---- copies ----


def test_copy_from_fills_any_layout() -> None:
    x = some((6, 4))
    d = on_sim(np.zeros((6, 4), np.float32))
    d[::2, ::-1].copy_from(x[::2])
    want = np.zeros_like(x)
    want[::2, ::-1] = x[::2]
    np.testing.assert_array_equal(d.numpy(), want)
    d.copy_from(np.asfortranarray(x))
    np.testing.assert_array_equal(d.numpy(), x)
    with pytest.raises(ValueError, match=r"host has shape \(3,\), expected \(6, 4\)"):
        d.copy_from(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="host has dtype 'float64', expected 'float32'"):
        d.copy_from(np.zeros((6, 4)))


@pytest.mark.parametrize("dtype", ["bool", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(70, 131), (8, 9, 65), (3, 70, 1, 9), (2, 33, 7, 64)])
def test_axes_change_places_in_tiles(dtype: str, shape: tuple[int, ...]) -> None:
    x = some(shape).astype(dtype)
    d = on_sim(np.ascontiguousarray(x.T)).T
    np.testing.assert_array_equal(d.numpy(), x)
    np.testing.assert_array_equal(d[1:, ::2].numpy(), x[1:, ::2])
    d[:, 1:].copy_from(x[:, :-1])
    want = x.copy()
    want[:, 1:] = x[:, :-1]
    np.testing.assert_array_equal(d.numpy(), want)


def test_copy_to_fills_any_layout() -> None:
    x = some((6, 4))
    d = on_sim(x)
    for host in (
        np.zeros((6, 4), np.float32),
        np.zeros((6, 4), np.float32, order="F"),
        np.zeros((12, 8), np.float32)[::2, ::-2],
    ):
        assert d.copy_to(host) is None
        np.testing.assert_array_equal(host, x)
        host[...] = 0
        d[::-1].copy_to(host)
        np.testing.assert_array_equal(host, x[::-1])
    empty = np.zeros((0, 4), np.float32)
    d[:0].copy_to(empty)
    scalar = np.zeros((), np.float32)
    d[1, 2].copy_to(scalar)
    assert scalar == x[1, 2]


def test_copy_to_refuses_what_it_cannot_fill() -> None:
    d, host = on_sim(some((6, 4))), np.zeros((6, 4), np.float32)
    with pytest.raises(ValueError, match=r"host has shape \(3,\), expected \(6, 4\)"):
        d.copy_to(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="host has dtype 'float64', expected 'float32'"):
        d.copy_to(np.zeros((6, 4)))
    with pytest.raises(TypeError, match=r"host must be a numpy\.ndarray, not builtins\.list"):
        d.copy_to([1.0])
    with pytest.raises(TypeError, match="mask"):
        d.copy_to(np.ma.array(host))
    unaligned = np.zeros(97, np.uint8)[1:].view(np.float32).reshape(6, 4)
    for other in (host.astype(">f4"), unaligned):
        with pytest.raises(ValueError, match="aligned and in native byte order"):
            d.copy_to(other)
    host.flags.writeable = False
    with pytest.raises(ValueError, match="host is read-only"):
        d.copy_to(host)
    assert not host.any()


# ---- operators in place ----


@pytest.mark.parametrize("variant", RUNGS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_device_results_have_the_bits_of_host_results(variant: str, dtype: str) -> None:
    x = some((7, 70), dtype)
    taken = 0
    for view, axis in (
        (np.s_[:], None),
        (np.s_[:, :], 1),
        (np.s_[:, ::2], 0),
        (np.s_[::-1, 3:], 1),
    ):
        d = on_sim(x)[view]
        try:
            gpuopt.plan("reduce", d, axis=axis, variant=variant)
        except gpuopt.VariantError:
            assert variant in SHAPES
            continue
        taken += 1
        want = gpuopt.reduce(x[view], axis=axis, backend="sim", variant=variant)
        got = gpuopt.reduce(d, axis=axis, variant=variant)
        assert type(got) is gpuopt.DeviceArray
        assert got.shape == np.shape(want)
        assert got.dtype == want.dtype
        assert got.numpy().tobytes() == want.tobytes()
        last = gpuopt.last_call()
        assert last is not None
        assert (last["backend"], last["variant"], last["packed"]) == ("sim", variant, False)
    assert taken == 4 or variant in SHAPES


def test_the_input_stays_as_it_was() -> None:
    x = some((9, 9))
    d = on_sim(x)
    gpuopt.reduce(d, axis=0)
    gpuopt.reduce(d, dtype="float64")
    np.testing.assert_array_equal(d.numpy(), x)


def test_a_result_feeds_the_next_call() -> None:
    x = some((8, 8))
    total = gpuopt.reduce(gpuopt.reduce(on_sim(x), axis=1))
    assert total.shape == ()
    assert total.numpy() == x.sum()


@pytest.mark.parametrize("step", [1, 2, -1])
def test_out_is_written_and_given(step: int) -> None:
    x = some((5, 6))
    backing = on_sim(np.full(12, -1, np.float32))
    out = backing[::step][:5]
    assert gpuopt.reduce(on_sim(x), axis=1, out=out) is out
    np.testing.assert_array_equal(out.numpy(), x.sum(1))
    assert (backing.numpy() == -1).sum() == 7
    tuple_out = gpuopt.reduce(on_sim(x), axis=1, out=(out,))
    assert tuple_out is out


def test_empty_arrays() -> None:
    assert gpuopt.reduce(on_sim(np.zeros((0, 3))), axis=1).shape == (0,)
    np.testing.assert_array_equal(
        gpuopt.reduce(on_sim(np.zeros((0, 3))), axis=0).numpy(), np.zeros(3)
    )
    with pytest.raises(ValueError, match="zero-size array"):
        gpuopt.reduce(on_sim(np.zeros(0)), "max")


def test_plan_says_where_it_would_run() -> None:
    plan = _core.plan("reduce", on_sim(some((5, 6))), axis=1, variant="v3")
    assert (plan["backend"], plan["variant"]) == ("sim", "v3")
    assert plan["outputs"] == [((5,), "float32")]


def test_measured_calls_have_times() -> None:
    d, x = on_sim(some(1000)), some(1000)
    before = gpuopt.measure_calls(True)
    try:
        gpuopt.reduce(d)
        on_device = gpuopt.last_call()
        gpuopt.reduce(x, backend="sim")
        staged = gpuopt.last_call()
        gpuopt.reduce(x, backend="cpu")
        on_cpu = gpuopt.last_call()
    finally:
        gpuopt.measure_calls(before)
    assert before is False
    gpuopt.reduce(x, backend="cpu")
    plain = gpuopt.last_call()
    assert on_device and staged and on_cpu and plain
    for key in ("upload_ms", "kernel_ms", "download_ms"):
        assert on_device[key] >= 0
        assert staged[key] >= 0
        assert plain[key] is None
    assert on_cpu["kernel_ms"] >= 0
    assert on_cpu["upload_ms"] is None


def test_threads_share_an_array() -> None:
    x = some((50, 20))
    d = on_sim(x)
    wrong = []

    def work() -> None:
        for axis in (0, 1) * 5:
            if not np.array_equal(gpuopt.reduce(d, axis=axis).numpy(), x.sum(axis)):
                wrong.append(axis)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert wrong == []


# ---- conversions ----


@pytest.mark.parametrize(("source", "target"), list(itertools.product(DTYPES, DTYPES)))
def test_conversion_is_numpys(source: str, target: str) -> None:
    """A sum of one element in another dtype is that element, converted."""
    x = some((40, 1), source)
    if dtype_of(source).kind in "fcV":
        x[:6, 0] = [0.1, 1 / 3, 2.0**-14 + 2.0**-25, 6.1e-5, 60.5, 1e-7]
    want: Any
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the imaginary part is dropped
        try:
            want = gpuopt.reduce(x, axis=1, dtype=dtype_of(target), backend="sim")
        except TypeError as error:
            want = error
    if isinstance(want, TypeError):
        with pytest.raises(TypeError):
            gpuopt.reduce(on_sim(x), axis=1, dtype=dtype_of(target))
        return
    got = gpuopt.reduce(on_sim(x), axis=1, dtype=dtype_of(target))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want)


def test_float64_rounds_to_float16_once() -> None:
    """Through float32 these would be rounded twice, to the wrong value."""
    halves = np.arange(0, 0x7C00, 7, dtype=np.uint16).view(np.float16).astype(np.float64)
    steps = np.spacing(halves.astype(np.float16)).astype(np.float64)
    x = np.concatenate([halves + steps / 2 * (1 + e) for e in (-1e-12, 0, 1e-12)])
    x = np.concatenate([x, -x])[:, None]
    got = gpuopt.reduce(on_sim(x), axis=1, dtype="float16").numpy()
    with np.errstate(over="ignore"):
        want = x[:, 0].astype(np.float16)
    np.testing.assert_array_equal(got, want)


def test_a_strided_conversion() -> None:
    x = some((9, 10), "int16")
    got = gpuopt.reduce(on_sim(x)[::-2, 1::3], axis=0, dtype="float64")
    np.testing.assert_array_equal(got.numpy(), x[::-2, 1::3].sum(0, dtype="float64"))
    last = gpuopt.last_call()
    assert last is not None and last["packed"]


# ---- numbers beside arrays, results into an input ----


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "complex128"])
def test_a_number_takes_the_dtype_of_the_array(dtype: str) -> None:
    x = some((5, 7), dtype)
    got = gpuopt.multiply(on_sim(x), 3)
    assert (got.dtype, got.backend) == (x.dtype, "sim")
    np.testing.assert_array_equal(got.numpy(), gpuopt.multiply(x, 3, backend="cpu"))


def test_a_number_may_come_first_and_be_numpys() -> None:
    x = some(9)
    np.testing.assert_array_equal(gpuopt.subtract(10, on_sim(x)).numpy(), 10 - x)
    got = gpuopt.add(on_sim(x), np.float64(0.5))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got.numpy(), x + np.float64(0.5))


def test_a_host_array_beside_a_device_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"different libraries: .*move them first"):
        gpuopt.add(on_sim(some(3)), some(3))


def test_out_may_be_the_input_itself() -> None:
    x = some((4, 6))
    d = on_sim(x)
    assert gpuopt.add(d, 1, out=d) is d
    np.testing.assert_array_equal(d.numpy(), x + 1)
    assert gpuopt.multiply(d[:, ::2], 2, out=d[:, ::2]).shape == (4, 3)
    want = x + 1
    want[:, ::2] *= 2
    np.testing.assert_array_equal(d.numpy(), want)
    with pytest.raises(ValueError, match="out shares memory with x"):
        gpuopt.add(d[:, 1:], 1, out=d[:, :-1])
    np.testing.assert_array_equal(d.numpy(), want)


def test_an_index_error_leaves_the_next_call_right() -> None:
    x, index = on_sim(some(5)), on_sim(np.array([1, 7, 9]))
    source = on_sim(np.ones(3, np.float32))
    with pytest.raises(IndexError, match=r"index 7 at position 1 is out of bounds .* size 5"):
        gpuopt.index_add(x, index, source)
    np.testing.assert_array_equal(x.numpy(), some(5))
    with pytest.raises(IndexError, match=r"index 7 at position 1"):
        gpuopt.index_add(x, index, source, out=x)
    np.testing.assert_array_equal(x.numpy(), some(5))
    got = gpuopt.index_add(x, index, source, mode="clip").numpy()
    want = some(5)
    np.add.at(want, [1, 4, 4], np.float32(1))
    np.testing.assert_array_equal(got, want)


# ---- errors ----


def freed() -> gpuopt.DeviceArray:
    d = on_sim(some(4))
    d.free()
    return d


ERRORS: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    (
        "host and device",
        lambda: gpuopt.reduce(np.ones(3, np.float32), out=on_sim(np.float32(0))),
        TypeError,
        "out is on sim:0, the inputs are host arrays",
    ),
    (
        "device and host out",
        lambda: gpuopt.reduce(on_sim(some(3)), out=np.zeros((), np.float32)),
        TypeError,
        "out is a host array, the inputs are on sim:0",
    ),
    ("freed", lambda: gpuopt.reduce(freed()), ValueError, "reduce.*the array was freed"),
    ("freed numpy", lambda: freed().numpy(), ValueError, "the array was freed"),
    ("freed copy", lambda: freed().copy_from(some(4)), ValueError, "the array was freed"),
    ("freed target", lambda: freed().copy_to(some(4)), ValueError, "the array was freed"),
    ("freed view", lambda: freed()[1:].numpy(), ValueError, "the array was freed"),
    (
        "freed out",
        lambda: gpuopt.reduce(on_sim(some((4, 2))), axis=1, out=freed()),
        ValueError,
        "the array was freed",
    ),
    (
        "device index",
        lambda: gpuopt.asdevice([1], backend="sim", device=1),
        ValueError,
        "device 1 is out of range; backend 'sim' has 1 device$",
    ),
    ("negative device", lambda: on_sim([1], device=-1), ValueError, "out of range"),
    ("backend cpu", lambda: gpuopt.asdevice([1], backend="cpu"), ValueError, "'cuda' or"),
    ("no backend", lambda: gpuopt.asdevice([1], backend="gpu"), ValueError, "must be one of"),
    (
        "other backend",
        lambda: gpuopt.reduce(on_sim([1.0]), backend="cpu"),
        ValueError,
        "backend='cpu' for arrays on sim:0",
    ),
    (
        "cpu variant",
        lambda: gpuopt.reduce(on_sim([1.0]), variant="simd"),
        gpuopt.VariantError,
        "runs on the CPU and the arrays are on a device",
    ),
    (
        "out shape",
        lambda: gpuopt.reduce(on_sim(some((2, 3))), axis=1, out=on_sim(some(3))),
        ValueError,
        r"out has shape \(3,\), expected \(2,\)",
    ),
    (
        "out dtype",
        lambda: gpuopt.reduce(on_sim(some(3)), "argmax", out=on_sim(np.float32(0))),
        TypeError,
        "out has dtype 'float32', expected 'int64'",
    ),
    ("dtype", lambda: on_sim(np.array(["a"])), TypeError, "gpuopt does not support"),
    ("stream", lambda: gpuopt.reduce(on_sim([1.0]), stream="x"), TypeError, "int or a stream"),
    ("bool stream", lambda: gpuopt.reduce(on_sim([1.0]), stream=True), TypeError, "int or a"),
    ("stream of host", lambda: gpuopt.reduce([1.0], stream=1), ValueError, "host arrays"),
    (
        "no gpu",
        lambda: gpuopt.asdevice([1], device=10**6),
        (gpuopt.CudaError, ValueError),  # type: ignore[list-item]
        "not available|out of range",
    ),
]


@pytest.mark.parametrize(("name", "call", "error", "words"), ERRORS, ids=[e[0] for e in ERRORS])
def test_error(name: str, call: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
    assert gpuopt.reduce(on_sim(some(9))).numpy() == some(9).sum()


def test_out_must_not_share_memory() -> None:
    d = on_sim(some((4, 4)))
    with pytest.raises(ValueError, match="out shares memory with x"):
        gpuopt.reduce(d, axis=1, out=d[:, 0])


def test_arrays_follow_the_library_they_were_made_in() -> None:
    """Checks select another simulator library, which does not share its memory."""
    d = on_sim(some(4))
    old = _core._sim_configure(checks=not _core._sim_state()["instrumented"])
    try:
        with pytest.raises(ValueError, match="settings changed after the array was made"):
            gpuopt.reduce(d)
        assert gpuopt.reduce(on_sim([1.0, 2.0])).numpy() == 3
    finally:
        _core._sim_configure(**old)
    assert gpuopt.reduce(d).numpy() == some(4).sum()


# ---- memory ----


def test_free_and_with() -> None:
    before = alive()
    d = on_sim(some(100))
    view = d[3:]
    d.free()
    assert alive() == before
    assert d.freed and view.freed
    assert repr(d).endswith("sim:0, freed>")
    d.free()
    with on_sim(some(100)) as inside:
        assert gpuopt.reduce(inside).numpy() == some(100).sum()
    assert inside.freed


def test_every_device_failure_is_recovered() -> None:
    """As in SQLite's tests: the n-th device operation fails, for each n in turn."""
    x = some((6, 50))
    before = alive()

    def use() -> list[Any]:
        d = on_sim(x)
        out = on_sim(np.zeros((6, 2), np.float32))
        gpuopt.reduce(d, axis=1, out=out[:, 1])
        total = gpuopt.reduce(d[::2, ::-1], dtype="float64", variant="v3")
        return [out.numpy(), total.numpy(), d.T.numpy()]

    want = [a.tobytes() for a in use()]
    for n in range(1000):
        old = _core._sim_configure(fail_after=n)
        try:
            got = [a.tobytes() for a in use()]
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError) as error:
            assert str(error)
            got = None
        finally:
            _core._sim_configure(**{**old, "fail_after": -1})
        assert alive() == before
        assert [a.tobytes() for a in use()] == want
        if got is not None:
            assert got == want
            break
    assert n > 8


def test_out_of_memory_says_what_was_wanted() -> None:
    info = gpuopt.memory_info(backend="sim")
    assert 0 < info["free"] <= info["total"]
    huge = np.broadcast_to(np.uint8(0), (info["total"] + 1,))
    with pytest.raises((gpuopt.OutOfMemoryError, MemoryError)):
        on_sim(huge)
    old = _core._sim_configure(fail_after=0)
    try:
        with pytest.raises(gpuopt.OutOfMemoryError) as caught:
            on_sim(some(100))
    finally:
        _core._sim_configure(**{**old, "fail_after": -1})
    assert isinstance(caught.value, MemoryError)
    assert caught.value.requested == 400  # type: ignore[attr-defined]
    gpuopt.empty_cache(backend="sim")


def test_thousands_of_calls_leave_nothing() -> None:
    d = on_sim(some((4, 8)))
    before = alive()
    references = sys.getrefcount(d)
    for _ in range(2000):
        gpuopt.reduce(d, axis=1)
        assert d[1:3].T.shape == (8, 2)
        with pytest.raises(ValueError):
            gpuopt.reduce(d, axis=1, out=d[:, 0])
    assert alive() == before
    assert sys.getrefcount(d) == references


# ---- streams and events ----


def test_stream_of_a_call() -> None:
    d = on_sim(some(8))
    s = gpuopt.Stream(backend="sim", priority=-1)
    assert (s.backend, s.device, s.priority) == ("sim", 0, -1)
    assert gpuopt.reduce(d, stream=s).stream == s.handle
    assert gpuopt.reduce(d, stream=s.handle).stream == s.handle
    assert gpuopt.reduce(d, stream=1).stream == 0
    assert gpuopt.reduce(d, stream=None).stream == 0
    assert on_sim(some(8), stream=s).stream == s.handle
    assert gpuopt.reduce(on_sim(some(8), stream=s)).stream == s.handle
    s.synchronize()
    gpuopt.synchronize(backend="sim")


def test_streams_of_other_libraries() -> None:
    d = on_sim(some(8))
    method = type("M", (), {"__cuda_stream__": lambda self: (0, 7)})()
    held = types.SimpleNamespace(__cuda_stream__=(0, 8))
    torch_like = types.SimpleNamespace(cuda_stream=9)
    cupy_like = types.SimpleNamespace(ptr=10)
    for stream, handle in ((method, 7), (held, 8), (torch_like, 9), (cupy_like, 10)):
        assert gpuopt.reduce(d, stream=stream).stream == handle
    for wrong in (
        types.SimpleNamespace(__cuda_stream__=3),
        types.SimpleNamespace(ptr="x"),
        types.SimpleNamespace(),
    ):
        with pytest.raises(TypeError):
            gpuopt.reduce(d, stream=wrong)
    with pytest.raises(TypeError, match="the simulator's, not CUDA's"):
        gpuopt.Stream(backend="sim").__cuda_stream__()


def test_an_entered_stream_is_the_default_of_its_thread() -> None:
    d = on_sim(some(8))
    outer, inner = gpuopt.Stream(backend="sim"), gpuopt.Stream(backend="sim")
    seen = []
    with outer:
        assert gpuopt.reduce(d).stream == outer.handle
        with inner as entered:
            assert entered is inner
            assert gpuopt.reduce(d).stream == inner.handle
            assert on_sim(some(2)).stream == inner.handle
            assert gpuopt.reduce(d, stream=outer).stream == outer.handle
            worker = threading.Thread(target=lambda: seen.append(gpuopt.reduce(d).stream))
            worker.start()
            worker.join()
            with pytest.raises(RuntimeError, match="entered last"):
                outer.__exit__(None, None, None)
        assert gpuopt.reduce(d).stream == outer.handle
    assert gpuopt.reduce(d).stream == 0
    assert seen == [0]


def test_a_stream_lives_as_long_as_its_arrays() -> None:
    s = gpuopt.Stream(backend="sim")
    count = sys.getrefcount(s)
    a = on_sim(some(8), stream=s)
    b = gpuopt.reduce(a)
    assert sys.getrefcount(s) == count + 2
    del a, b
    assert sys.getrefcount(s) == count


def test_events() -> None:
    s = gpuopt.Stream(backend="sim")
    with gpuopt.Event(backend="sim") as first, gpuopt.Event(backend="sim") as last:
        with pytest.raises(ValueError, match="not recorded"):
            first.synchronize()
        first.record(s)
        gpuopt.reduce(on_sim(some(2000)), stream=s)
        last.record()
        s.wait(last)
        last.synchronize()
        assert last.done is True
        assert first.elapsed(last) > 0
        assert last.elapsed(first) < 0
    with pytest.raises(ValueError, match="freed"):
        first.record()
    for wrong in (3, s):
        with pytest.raises(TypeError, match="takes an Event"):
            gpuopt.Event(backend="sim").elapsed(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an Event"):
        s.wait(s)  # type: ignore[arg-type]


def test_wrong_streams_and_events() -> None:
    for make in (gpuopt.Stream, gpuopt.Event):
        with pytest.raises(ValueError, match="out of range"):
            make(1, backend="sim")
        with pytest.raises(ValueError, match="'cuda' or 'sim'"):
            make(backend="cpu")
    with pytest.raises(ValueError, match="priority must be between"):
        gpuopt.Stream(backend="sim", priority=1)


def test_devices_are_counted() -> None:
    assert gpuopt.device_count("sim") == 1
    assert gpuopt.device_count("cpu") == 1
    assert (gpuopt.device_count() > 0) == (gpuopt.cuda_unavailable_reason() is None)


# ---- DLPack out ----


def test_simulated_memory_is_not_exported_as_cuda() -> None:
    d = on_sim(some(4))
    for call in (
        d.__dlpack_device__,
        d.__dlpack__,
        lambda: d.__cuda_array_interface__,
        lambda: np.from_dlpack(d),
        lambda: d.__dlpack__(dl_device=(2, 0)),
    ):
        with pytest.raises(BufferError, match="simulator's memory"):
            call()


def test_a_host_copy_on_request() -> None:
    x = some((3, 4))
    d = on_sim(x)
    got = np.from_dlpack(d.T, device="cpu")
    np.testing.assert_array_equal(got, x.T)
    with pytest.raises(BufferError, match="only a copy can be"):
        d.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(ValueError, match="stream must be None"):
        d.__dlpack__(dl_device=(1, 0), stream=1)
    for keywords in ({"dl_device": 3}, {"max_version": "1"}, {"unknown": 1}):
        with pytest.raises(TypeError):
            d.__dlpack__(**keywords)


# ---- other libraries ----


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[foreign.Protocol]]:
    """Adds a loaded module of that name with a from_dlpack; returns its array type."""

    def load(name: str, base: type[foreign.Protocol] = foreign.Protocol) -> Any:
        cls = foreign.of_library("jaxlib" if name == "jax" else name, base)
        module = types.ModuleType(name)
        module.from_dlpack = cls.from_dlpack  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "jax.dlpack" if name == "jax" else name, module)
        return cls

    return load


@pytest.mark.parametrize("base", [foreign.Protocol, foreign.OldProtocol])
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_cpu_arrays_come_back_as_their_own_type(
    name: str, base: type[foreign.Protocol], library: Callable[..., type[foreign.Protocol]]
) -> None:
    cls = library(name, base)
    x = some((4, 6))
    for view in (x, x[:, ::2], x.T, x[1:1]):
        for axis in (None, 1):
            got = gpuopt.reduce(cls(view), axis=axis)
            assert type(got) is cls
            np.testing.assert_array_equal(got.array, view.sum(axis))
    assert gpuopt.reduce(cls(x), "argmax", axis=1).array.dtype == np.int64
    assert gpuopt.reduce(cls(x), axis=0, backend="sim").array.tobytes() == x.sum(0).tobytes()
    last = gpuopt.last_call()
    assert last is not None and last["backend"] == "sim"


def test_the_newest_dlpack_is_asked_for_first(
    library: Callable[..., type[foreign.Protocol]],
) -> None:
    x = library("torch")(some(4))
    gpuopt.reduce(x)
    assert x.asked == [{"max_version": (1, 3)}]


def test_the_memory_of_a_foreign_array_is_used_as_it_is(
    library: Callable[..., type[foreign.Protocol]],
) -> None:
    cls = library("torch")
    out = cls(np.zeros(4, np.float32))
    x = some((4, 3))
    assert gpuopt.reduce(cls(x), axis=1, out=out) is out
    np.testing.assert_array_equal(out.array, x.sum(1))
    assert gpuopt.reduce(x, axis=1, out=out) is out
    host = np.zeros(4, np.float32)
    assert gpuopt.reduce(cls(x), axis=1, out=host) is host
    np.testing.assert_array_equal(host, x.sum(1))
    with pytest.raises(ValueError, match="out shares memory with x"):
        gpuopt.reduce(cls(x), axis=1, out=cls(x[:, 0]))


def test_jax_arrays_are_immutable(library: Callable[..., type[foreign.Protocol]]) -> None:
    cls = library("jax")
    with pytest.raises(ValueError, match="read-only"):
        gpuopt.reduce(cls(some((4, 3))), axis=1, out=cls(np.zeros(4, np.float32)))


def test_a_tracer_is_refused_by_name() -> None:
    tracer = type("Tracer", (), {"__module__": "jax.core", "__dlpack__": None})()
    with pytest.raises(TypeError, match=r"x is a JAX tracer .*Tracer.* outside of jax\.jit"):
        gpuopt.reduce(tracer)


def test_other_cpu_arrays_are_numpys() -> None:
    class Strict(foreign.Protocol):
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return self.array

    got = gpuopt.reduce(Strict(some(5)))
    assert type(got) is np.float32
    assert got == some(5).sum()


@pytest.mark.parametrize(
    "cls", [foreign.Exchanged, foreign.ExchangedByCopy, foreign.ExchangedNewer]
)
def test_the_c_exchange_table(cls: type[foreign.Exchanged]) -> None:
    x = some((4, 6))
    before = len(foreign.live)
    for view, axis in ((x, None), (x, 0), (x[::-1, ::2], 1), (x > 3, 1)):
        op = "any" if view.dtype == bool else "sum"
        got = gpuopt.reduce(cls(view), op, axis=axis)
        assert type(got) is foreign.Exchanged
        np.testing.assert_array_equal(got.array, gpuopt.reduce(view, op, axis=axis))
    out = cls(np.zeros((6, 2), np.float32)[:, 1])
    assert gpuopt.reduce(cls(x), axis=0, out=out) is out
    np.testing.assert_array_equal(out.array, x.sum(0))
    with pytest.raises(ValueError, match=r"out has shape \(6,\), expected \(4,\)"):
        gpuopt.reduce(cls(x), axis=1, out=out)
    assert len(foreign.live) == before


def test_the_library_may_have_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign.Exchanged, "refuse", True)
    with pytest.raises(MemoryError):
        gpuopt.reduce(foreign.Exchanged(some(4)))
    assert foreign.live == {}


def test_a_table_of_a_future_version_alone_is_no_table() -> None:
    future = foreign.table(major=9)
    cls = type(
        "Future", (foreign.Protocol,), {"__dlpack_c_exchange_api__": foreign.capsule(future)}
    )
    cls.__array__ = lambda self, dtype=None, copy=None: self.array  # type: ignore[attr-defined]
    assert gpuopt.reduce(cls(some(4))) == some(4).sum()


def interface(x: Any, **changes: Any) -> Any:
    described = {
        "shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None,
        "version": 3, "stream": None, **changes,
    }  # fmt: skip
    return type("Cai", (), {"__cuda_array_interface__": described})()


def test_arrays_of_a_gpu_need_a_gpu() -> None:
    on_gpu = type("Gpu", (foreign.Protocol,), {"__dlpack_device__": lambda self: (2, 10**6)})
    for x in (on_gpu(some(4)), interface(0)):
        with pytest.raises((gpuopt.CudaError, ValueError, TypeError)):
            gpuopt.reduce(x)
    with pytest.raises((gpuopt.CudaError, ValueError, TypeError)):
        gpuopt.reduce(some(4), out=interface(0))


def test_broken_producers() -> None:
    class NoPair(foreign.of_library("torch")):  # type: ignore[misc]
        def __dlpack_device__(self) -> Any:
            return 1

    class NoCapsule(foreign.of_library("torch")):  # type: ignore[misc]
        __module__ = "torch"

        def __dlpack__(self, **keywords: Any) -> Any:
            return 5

    class Raises(foreign.of_library("torch")):  # type: ignore[misc]
        __module__ = "torch"

        def __dlpack__(self, **keywords: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(TypeError, match="pair of ints"):
        gpuopt.reduce(NoPair(some(4)))
    with pytest.raises(BufferError, match="no DLPack capsule"):
        gpuopt.reduce(NoCapsule(some(4)))
    with pytest.raises(KeyError, match="mine"):
        gpuopt.reduce(Raises(some(4)))
    not_loaded = foreign.of_library("torch")
    if "torch" not in sys.modules:
        with pytest.raises(RuntimeError, match="module 'torch' is not loaded"):
            gpuopt.reduce(not_loaded(some(4)))


def test_no_library_is_imported(child: Child) -> None:
    code = """
import sys
import numpy as np
import gpuopt
d = gpuopt.asdevice(np.ones(10, np.float32), backend="sim")
gpuopt.reduce(d)
assert not {"torch", "cupy", "jax", "numba"} & set(sys.modules)
"""
    child(code)


# ---- processes ----


def test_exit_with_live_arrays(child: Child) -> None:
    code = """
import sys
import numpy as np
import gpuopt
kept = [gpuopt.asdevice(np.ones(10, np.float32), backend="sim") for _ in range(3)]
stream, event = gpuopt.Stream(backend="sim"), gpuopt.Event(backend="sim")
stream.__enter__()
sys.modules["mine"] = kept
cycle = [kept]
cycle.append(cycle)
gpuopt.reduce(kept[0])
"""
    child(code)


def test_empty_pinned_without_a_gpu_says_so() -> None:
    with pytest.raises(ValueError, match="negative dimensions"):
        gpuopt.empty_pinned(-1)
    with pytest.raises(TypeError):
        gpuopt.empty_pinned("x")
    if gpuopt.cuda_unavailable_reason() is not None:
        with pytest.raises(gpuopt.CudaError, match="backend 'cuda' is not available"):
            gpuopt.empty_pinned((3, 4), "float32")
