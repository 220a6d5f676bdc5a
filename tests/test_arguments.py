"""Unusual arguments: the result is correct or they are refused, for every operator.

Order: arrays that change while the others are read, memory shared between arrays, Python
integers of any size, dtypes, sums into another dtype, sequences and strings, depth and stack.
Tests of all operators read the registry and cases/.
"""

from __future__ import annotations

import array
import itertools
import re
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import foreign
import numpy as np
import pytest
from cases import ENTRIES, assert_same, dtype_of
from conftest import Child, run_child

import gpuopt
from gpuopt import _core

OPS = _core.ops()
each_op = pytest.mark.parametrize("op", OPS)
INT_OPS = ("add", "subtract", "multiply", "maximum", "minimum", "divide")


def array_arguments(op: str) -> list[str]:
    return [a["name"] for a in _core.describe(op)["args"] if a["kind"] == "array"]


def given(op: str) -> tuple[dict[str, Any], Any]:
    """The valid call of an operator by keyword, and its result."""
    args, kwargs, want = ENTRIES[op].valid()
    names = [a["name"] for a in _core.describe(op)["args"]]
    return {**dict(zip(names, args, strict=False)), **kwargs}, want


def outcome(call: Callable[[], Any]) -> Any:
    """The result, or the class of what was raised."""
    try:
        return call()
    except Exception as error:
        return type(error)


# ---- arrays that change while the others are read ----


def later_arguments() -> list[tuple[str, str]]:
    """Each operator with each argument that may run code after its first array is taken."""
    found = []
    for op in OPS:
        arrays = array_arguments(op)[1:]
        whole = [a["name"] for a in _core.describe(op)["args"] if a["kind"] in ("int", "ints")]
        found += [(op, name) for name in (*arrays, *whole, "out")]
    return found


@pytest.mark.parametrize(("op", "last"), later_arguments())
def test_a_later_argument_may_resize_an_earlier_one(op: str, last: str) -> None:
    """Shapes are read after all arguments have been converted; freed memory is not read."""
    keywords, want = given(op)
    names = [n for n in array_arguments(op) if isinstance(keywords.get(n), np.ndarray)]
    victim = np.ones((2048, *keywords[names[0]].shape[1:]), keywords[names[0]].dtype)

    class Resizes:
        """An argument whose conversion shrinks the first one to nothing."""

        def __init__(self, value: Any) -> None:
            self.value = value

        def shrink(self) -> Any:
            victim.resize(0, refcheck=False)
            return self.value

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            return np.asarray(self.shrink())

        def __index__(self) -> int:
            return int(self.shrink())

        def __dlpack_device__(self) -> tuple[int, int]:
            self.shrink()
            return 1, 0

        def __dlpack__(self, **kwargs: Any) -> Any:
            return np.ones(3).__dlpack__()

    value = keywords.get(last)
    resizes = Resizes(value if isinstance(value, np.ndarray | int) else 0)
    call = {**keywords, names[0]: victim, last: resizes}
    got = outcome(lambda: getattr(gpuopt, op)(**call))
    if isinstance(got, type):
        assert issubclass(got, ValueError | TypeError | IndexError)
    else:  # from the rest of the first array, which is empty
        assert not np.any(got[0] if isinstance(got, tuple) else got)
    assert victim.size == 0
    assert_same(getattr(gpuopt, op)(**keywords), want)


def test_an_input_is_read_at_the_size_it_has_at_the_end() -> None:
    x = np.arange(10000.0)

    class Resizes:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            x.resize(3, refcheck=False)
            return np.ones(3)

    np.testing.assert_array_equal(gpuopt.add(x, Resizes()), [1.0, 2.0, 3.0])


def test_an_output_is_written_at_the_size_it_has_at_the_end() -> None:
    out = np.zeros(100000)

    class Resizes:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            out.resize(3, refcheck=False)
            return np.ones(3)

    assert gpuopt.add(Resizes(), np.ones(3), out=out) is out
    np.testing.assert_array_equal(out, [2.0, 2.0, 2.0])


def test_tensors_that_are_viewed_in_place_are_viewed_last() -> None:
    x = foreign.Exchanged(np.arange(4, dtype=np.float32))

    class Moves:
        """A number whose conversion gives x new memory and another shape."""

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            x.array = np.full(2, 5, np.float32)
            return np.asarray(np.float32(1))

    np.testing.assert_array_equal(gpuopt.add(x, Moves()).array, [6.0, 6.0])


def test_a_device_array_freed_by_a_later_argument_is_refused() -> None:
    x = gpuopt.asdevice(np.ones(100000, np.float32), backend="sim")

    class Frees:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            x.free()
            return np.asarray(np.float32(1))

    with pytest.raises(ValueError, match="the array was freed"):
        gpuopt.add(x, Frees())


def test_buffers_that_are_read_cannot_be_resized() -> None:
    data, numbers = bytearray(4096), array.array("d", [1.0] * 4096)

    class Resizes:
        def __init__(self, victim: Any) -> None:
            self.victim = victim

        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            del self.victim[:]
            return np.ones(1)

    for victim in (data, numbers):
        with pytest.raises(BufferError):
            gpuopt.add(victim, Resizes(victim))
        assert len(victim) == 4096


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_no_other_thread_resizes_what_a_call_reads(backend: str) -> None:
    """NumPy refuses to resize, and so to free, arrays that the call holds."""
    x = np.ones(3_000_000 if backend == "cpu" else 3000)
    done = threading.Event()
    refused: list[str] = []

    def resize() -> None:
        while not done.is_set():
            try:
                x.resize(x.size + 1, refcheck=False)
                x.resize(x.size - 1, refcheck=False)
            except ValueError as error:
                refused.append(str(error))

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        for _ in range(30):
            total = gpuopt.reduce(x[::3], backend=backend)
            assert total in (x.size // 3, x.size // 3 + 1)
    finally:
        done.set()
        thread.join()
    assert all("cannot resize" in words for words in refused)


def test_a_subclass_with_code_of_its_own_is_refused_without_running_it() -> None:
    calls: list[str] = []

    class Watches(np.ndarray[Any, Any]):
        def __array_finalize__(self, other: Any) -> None:
            calls.append("finalize")

        def __array_function__(self, *args: Any) -> Any:
            calls.append("function")
            return NotImplemented

    y = np.arange(6.0).view(Watches)
    for call in (lambda: gpuopt.add(y, 1), lambda: gpuopt.add(np.ones(6), 1, out=y)):
        calls.clear()
        with pytest.raises(TypeError, match=r"Watches.*np\.asarray\(\)"):
            call()
        assert calls == []


def test_a_subclass_without_code_of_its_own_is_taken() -> None:
    class Plain(np.ndarray[Any, Any]):
        pass

    x = np.arange(12.0).astype(">f8")[::2].view(Plain)
    y = np.arange(6.0).view(Plain)
    np.testing.assert_array_equal(gpuopt.add(x, 1), np.arange(0.0, 12.0, 2) + 1)
    np.testing.assert_array_equal(gpuopt.add(y[::2], y[1::2]), [1.0, 5.0, 9.0])
    with pytest.raises(ValueError, match="out shares memory with x"):
        gpuopt.add(y[:4], 1, out=y[2:])


# ---- memory shared between arrays ----


def layouts() -> dict[str, Callable[[], np.ndarray[Any, Any]]]:
    """Views of 12 float64 in the same memory; each call returns a new object."""
    raw = np.zeros(8 * 24 + 1, np.uint8)
    record = np.zeros(12, dtype=[("a", "u1"), ("b", "f8")])
    swapped = np.zeros(12, ">f8")
    plain = np.zeros(24)
    return {
        "plain": lambda: plain[:12],
        "strided": lambda: plain[::2],
        "backwards": lambda: plain[11::-1],
        "turned": lambda: plain[:12].reshape(3, 4).T,
        "unaligned": lambda: raw[1:97].view(np.float64),
        "record field": lambda: record["b"],
        "byte-swapped": lambda: swapped[:],
        "one long axis": lambda: plain[:12].reshape(12, 1),
    }


IN_PLACE = [op for op in OPS if _core.describe(op)["ladder"] == "elementwise"]


@pytest.mark.parametrize("layout", list(layouts()))
def test_out_may_be_another_view_of_an_input(layout: str) -> None:
    view = layouts()[layout]
    for op, numpys in (("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum)):
        view()[...] = np.arange(12.0).reshape(view().shape)
        want = numpys(view(), 2.5)
        assert view() is not view()
        out = view()
        assert getattr(gpuopt, op)(view(), 2.5, out=out) is out
        np.testing.assert_array_equal(view(), want)
    view()[...] = np.arange(12.0).reshape(view().shape)
    want = view() + view()
    gpuopt.add(view(), view(), out=view())
    np.testing.assert_array_equal(view(), want)


def test_out_in_another_byte_order_or_place_is_no_view_of_the_input() -> None:
    x = np.arange(12.0)
    for out in (x.view(">f8"), x[::-1], x.reshape(3, 4).T.reshape(12)[:0], x[1:]):
        before = x.copy()
        if out.size == 0:
            continue
        with pytest.raises(ValueError, match="out shares memory with x"):
            gpuopt.add(x[: out.size], 1, out=out)
        np.testing.assert_array_equal(x, before)


def test_out_may_be_another_view_on_a_device() -> None:
    x = gpuopt.asdevice(np.arange(12.0), backend="sim")
    gpuopt.add(x[:], 1, out=x[:])
    np.testing.assert_array_equal(x.numpy(), np.arange(12.0) + 1)
    with pytest.raises(ValueError, match="out shares memory with x"):
        gpuopt.add(x[1:], 1, out=x[:-1])


def several_outputs() -> list[str]:
    found = []
    for op in OPS:
        keywords, _ = given(op)
        if len(_core.plan(op, **keywords)["outputs"]) > 1:
            found.append(op)
    assert found
    return found


@pytest.mark.parametrize("op", several_outputs())
def test_outputs_that_share_memory_are_refused(op: str) -> None:
    """All pairs are refused, and nothing is written."""
    keywords, want = given(op)
    plan = [(shape, dtype_of(dtype)) for shape, dtype in _core.plan(op, **keywords)["outputs"]]
    for i, k in itertools.combinations(range(len(plan)), 2):
        memory = np.full(1 << 16, 1, np.uint8)
        outs = [np.empty(shape, dtype) for shape, dtype in plan]
        for n in (i, k):
            outs[n] = memory[: outs[n].nbytes].view(outs[n].dtype).reshape(outs[n].shape)
        with pytest.raises(ValueError, match="the arrays of out share memory with each other"):
            getattr(gpuopt, op)(**keywords, out=tuple(outs))
        assert (memory == 1).all()
    outs = [np.empty(shape, dtype) for shape, dtype in plan]
    assert_same(getattr(gpuopt, op)(**keywords, out=tuple(outs)), want)


@pytest.mark.parametrize("op", several_outputs())
def test_outputs_that_share_memory_are_refused_on_a_device(op: str) -> None:
    keywords, _ = given(op)
    if len({dtype for _, dtype in _core.plan(op, **keywords)["outputs"]}) > 1:
        for name, value in keywords.items():  # views of one memory are of one dtype
            if isinstance(value, np.ndarray):
                keywords[name] = value.astype(np.int64)
    plan = _core.plan(op, **keywords)["outputs"]
    assert len({dtype for _, dtype in plan}) == 1
    call = {
        name: gpuopt.asdevice(value, backend="sim") if isinstance(value, np.ndarray) else value
        for name, value in keywords.items()
    }
    size = max(int(np.prod(shape)) for shape, _ in plan)
    for i, k in itertools.combinations(range(len(plan)), 2):
        memory = gpuopt.asdevice(np.ones(2 * size, dtype_of(plan[0][1])), backend="sim")
        outs = [gpuopt.asdevice(np.zeros(*row), backend="sim") for row in plan]
        for n in (i, k):
            outs[n] = memory[: int(np.prod(plan[n][0]))].reshape(plan[n][0])
        with pytest.raises(ValueError, match="the arrays of out share memory with each other"):
            getattr(gpuopt, op)(**call, out=tuple(outs))
        assert (memory.numpy() == 1).all()
        outs[k] = memory[size : size + int(np.prod(plan[k][0]))].reshape(plan[k][0])
        getattr(gpuopt, op)(**call, out=tuple(outs))


def test_neighbours_in_one_array_are_no_shared_memory() -> None:
    x = np.random.default_rng(3).standard_normal((1, 2, 8)).astype(np.float32)
    memory = np.zeros((2, 1, 1, 4, 2), np.float32)  # the outputs interleave
    want = gpuopt.max_pool1d(x[:, :1], 2, return_indices=True)
    indices = np.zeros(want[1].shape, want[1].dtype)
    got = gpuopt.max_pool1d(x[:, :1], 2, return_indices=True, out=(memory[0, ..., 0], indices))
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


# ---- Python integers of any size ----

HUGE = [
    2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 3, 2**70, 10**20,
    10**50, 10**400, 300, 128, 127, -128, -129, -1, 0, 1,
]  # fmt: skip
HUGE += [-value for value in HUGE]
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64"])
def test_python_integers_are_numpys(dtype: str) -> None:
    """The value, the dtype or the class of the error, for every size."""
    x = np.arange(3).astype(dtype)
    for name, value in itertools.product(INT_OPS, HUGE):
        if dtype == "complex64" and name in ("maximum", "minimum"):
            continue
        if name == "divide" and value == 0:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            want = outcome(lambda n=name, v=value: getattr(np, n)(x, v))
            got = outcome(lambda n=name, v=value: getattr(gpuopt, n)(x, v))
        words = f"{name}({dtype}, {value})"
        if isinstance(want, type):
            assert got is want, words
            continue
        if name == "divide" and np.dtype(dtype).itemsize == 1:
            want = want.astype(np.float64)  # gpuopt divides all integers in float64
            got = got.astype(want.dtype)
            np.testing.assert_allclose(got, want, rtol=2**-9, err_msg=words)
            continue
        assert got.dtype == want.dtype, words
        if dtype == "complex64":
            np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=words)
        else:
            np.testing.assert_array_equal(got, want, err_msg=words)


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_clip_takes_bounds_of_any_size(dtype: str) -> None:
    info: Any = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.finfo(np.float64)
    x = np.array([0, 1, 100, 127], dtype)
    for low, high in itertools.product([None, *HUGE], [None, *HUGE]):
        if low is None and high is None:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            want = outcome(lambda a=low, b=high: np.clip(x, a, b))
            got = outcome(lambda a=low, b=high: gpuopt.clip(x, a, b))
        words = f"clip({dtype}, {low}, {high})"
        if isinstance(want, type):
            assert got is want, words
            if np.dtype(dtype).kind in "iu":
                assert (low or 0) > info.max or (high or 0) < info.min, words
            continue
        assert got.dtype == want.dtype, words
        np.testing.assert_array_equal(got, want, err_msg=words)


def test_integers_that_no_dtype_holds_say_so() -> None:
    x = np.arange(3)
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(
            OverflowError, match=f"^Python integer {value} out of bounds for int64"
        ):
            gpuopt.add(x, value)
    with pytest.raises(OverflowError, match="out of bounds for int64"):
        gpuopt.add(x, 10**5000)  # more digits than Python prints
    with pytest.raises(OverflowError, match="too large to convert to float"):
        gpuopt.add(x.astype(float), 10**5000)
    for call in (lambda: gpuopt.add(2**64, 1), lambda: gpuopt.reduce(2**64)):
        with pytest.raises(OverflowError, match="out of bounds"):
            call()
    assert gpuopt.where(2**64, 1.0, 2.0) == 1.0


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_alpha_of_any_size(backend: str) -> None:
    source = [1, 3, 250]
    for alpha in (2**64 + 1, 2**64 + 3, -(2**64) - 5, 2**70, 10**400, -(2**63) - 1, 2**63):
        for dtype in ("int8", "uint8", "int32", "uint64", "int64"):
            x = np.arange(3).astype(dtype)
            s = np.array(source).astype(dtype)
            bits = 8 * x.dtype.itemsize
            want = [(int(a) + alpha * int(b)) % 2**bits for a, b in zip(x, s, strict=True)]
            got = gpuopt.index_add(x, [0, 1, 2], s, alpha=alpha, backend=backend)
            np.testing.assert_array_equal(got.view(f"u{bits // 8}"), want)
        b = np.array([False, True, False])
        got = gpuopt.index_add(b, [0, 1, 2], [True, True, False], alpha=alpha, backend=backend)
        np.testing.assert_array_equal(got, [True, True, False])
        f = np.ones(3)
        if abs(alpha) < 10**300:
            got = gpuopt.index_add(f, [0, 1, 2], [1.0, 3.0, 0.0], alpha=alpha, backend=backend)
            np.testing.assert_array_equal(got, 1 + float(alpha) * np.array([1.0, 3.0, 0.0]))
        else:
            with pytest.raises(ValueError, match="alpha is an int too large for a float"):
                gpuopt.index_add(f, [0, 1, 2], f, alpha=alpha, backend=backend)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64"])
def test_a_whole_number_may_be_an_array_without_axes(dtype: str) -> None:
    three = np.array(3, dtype)
    got = gpuopt.index_add(np.zeros(2, np.int64), [1], np.ones(1, np.int64), alpha=three)
    np.testing.assert_array_equal(got, [0, 3])
    assert gpuopt.reduce([1, 2], initial=three) == 6
    assert gpuopt.scan([1, 2], initial=three).tolist() == [4, 6]
    with pytest.raises(TypeError, match="Cannot cast alpha"):
        gpuopt.index_add([0, 0], [1], [1], alpha=np.array(3.0))


# ---- dtypes ----


@pytest.mark.parametrize("dtype", [">f8", ">i2", ">c8"])
def test_a_dtype_in_another_byte_order_is_refused(dtype: str) -> None:
    """Results are in native order: '>f8' would be promised and not kept."""
    x = np.ones(3)
    for call in (
        lambda: gpuopt.cast(x, dtype),
        lambda: gpuopt.reduce(x, dtype=dtype),
        lambda: gpuopt.reduce(x, "mean", dtype=np.dtype(dtype), where=x > 0),
        lambda: gpuopt.asdevice(x, dtype=dtype, backend="sim"),
    ):
        with pytest.raises(TypeError, match=f"does not support dtype '{dtype}'"):
            call()
    assert gpuopt.cast(x, np.dtype(dtype).newbyteorder("=")).dtype.isnative
    out = np.zeros(3, dtype)
    gpuopt.cast(x, np.dtype(dtype).newbyteorder("="), out=out)
    np.testing.assert_array_equal(out, 1)


# ---- sums into another dtype ----

ALL = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("x_dtype", ALL)
@pytest.mark.parametrize("axis", [None, 0])
def test_a_sum_is_made_before_it_is_cast(x_dtype: str, axis: int | None) -> None:
    """Values whose sums are exact: every pair of dtypes gives NumPy's bits."""
    x = np.array([[1.75, 2.5, 3.25], [4.75, 0.5, 1.0]]).astype(x_dtype)
    for op, numpys in (("sum", np.sum), ("prod", np.prod)):
        for out_dtype in ALL:
            shape = () if axis is None else (3,)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
                want = numpys(x, axis=axis, out=np.zeros(shape, out_dtype))
                out = np.zeros(shape, out_dtype)
                assert gpuopt.reduce(x, op, axis=axis, out=out) is out
            assert _core.plan("reduce", x, op, axis=axis, out=out)["outputs"][0][1] == out_dtype
            np.testing.assert_array_equal(out, want, err_msg=f"{op} {x_dtype} {out_dtype}")


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_sums_into_integers_and_narrow_floats(backend: str) -> None:
    x = np.array([1.7, 1.7, 1.7])
    for op, want in (("sum", 5), ("prod", 4)):
        assert gpuopt.reduce(x, op, out=np.zeros((), int), backend=backend) == want
    big = np.array([1e300, 1e300, -1e300])
    with np.errstate(all="ignore"):
        assert gpuopt.reduce(big, out=np.zeros((), "f4"), backend=backend) == np.inf
    tiny = np.full(1000, 1e-5)
    for dtype, eps in (("f2", 2**-11), ("f4", 2**-24)):
        total = gpuopt.reduce(tiny, out=np.zeros((), dtype), backend=backend)
        assert abs(float(total) - 0.01) <= 0.01 * eps
        mean = gpuopt.reduce(tiny, "mean", out=np.zeros((), "f4"), backend=backend)
        assert abs(float(mean) - 1e-5) <= 1e-5 * 2**-24
    many = np.array([2**53 + 1, 1], np.uint64)
    assert gpuopt.reduce(many, out=np.zeros((), "i8"), backend=backend) == 2**53 + 2
    ints = np.array([2**24 + 1, 2**24 + 1], np.int64)
    mean = gpuopt.reduce(ints, "mean", out=np.zeros((), "f4"), backend=backend)
    assert mean == np.float32(2**24 + 1)


def test_sums_into_another_dtype_on_a_device() -> None:
    x = gpuopt.asdevice(np.array([[1.7, 1.7], [1.7, 1.7], [1.7, 1.7]]), backend="sim")
    out = gpuopt.asdevice(np.zeros(2, np.int32), backend="sim")
    assert gpuopt.reduce(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out.numpy(), [5, 5])


def test_a_dtype_beside_out_and_other_operations_still_ask_for_theirs() -> None:
    x = np.ones(3)
    with pytest.raises(TypeError, match="out has dtype 'int64', expected 'float32'"):
        gpuopt.reduce(x, dtype=np.float32, out=np.zeros((), int))
    with pytest.raises(TypeError, match="out has dtype 'int64', expected 'float64'"):
        gpuopt.reduce(x, "max", out=np.zeros((), int))
    with pytest.raises(TypeError, match="takes a floating dtype, not 'int64'"):
        gpuopt.reduce(x, "mean", out=np.zeros((), int))


# ---- sequences and strings ----


class Row:
    """A sequence that is neither a tuple nor a list nor an array."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int) -> Any:
        return self.items[k]


def number_arguments() -> list[tuple[str, str, str]]:
    return [
        (op, a["name"], a["kind"])
        for op in OPS
        for a in _core.describe(op)["args"]
        if a["kind"] in ("int", "ints", "float", "floats")
    ]


@pytest.mark.parametrize(("op", "name", "kind"), number_arguments())
def test_numbers_name_the_argument_and_what_came(op: str, name: str, kind: str) -> None:
    keywords, _ = given(op)
    wanted = {
        "int": "an int",
        "ints": "an int or a sequence of ints",
        "float": "a real number",
        "floats": "a real number or a sequence of real numbers",
    }[kind]
    wrong: list[Any] = ["2", b"2", bytearray(b"22"), 2j, {}, object(), np.ones((2, 2))]
    if kind in ("int", "ints"):
        wrong += [2.0, np.float64(2), np.array(2.0)]
    if kind in ("ints", "floats"):
        wrong += [("2",), ["2"], ([2],), [None]]
    if kind == "ints":
        wrong += [[2.0], np.array([2.0, 2.0])]
    for value in wrong:
        start = re.escape(f"{op}() argument '{name}' must be {wanted}")
        with pytest.raises(TypeError, match="^" + start) as caught:
            getattr(gpuopt, op)(**{**keywords, name: value})
        assert re.search(r"'\w+'( object cannot be \w+ as an integer)?$", str(caught.value))


def test_a_sequence_of_ints_is_any_sequence() -> None:
    x = np.random.default_rng(5).standard_normal((1, 1, 4, 6)).astype(np.float32)
    want = gpuopt.max_pool2d(x, (2, 3))
    kernels: list[Any] = [[2, 3], np.array([2, 3]), np.array([2, 3], np.uint8), Row(2, 3)]
    kernels += [Row(np.int8(2), np.array(3)), array.array("i", [2, 3]), range(2, 4)]
    for kernel in kernels:
        np.testing.assert_array_equal(gpuopt.max_pool2d(x, kernel), want)
    y = np.arange(16.0)
    want = gpuopt.partition_reduce(y, (0, 3))
    np.testing.assert_array_equal(gpuopt.partition_reduce(y, np.array([0, 3])), want)
    np.testing.assert_array_equal(
        gpuopt.reduce(x, axis=np.array([2, 3])), gpuopt.reduce(x, axis=(2, 3))
    )
    want = gpuopt.upsample_nearest(x, scale=(2.0, 1.5))
    for scale in ([2, 1.5], np.array([2, 1.5]), Row(2, 1.5)):
        np.testing.assert_array_equal(gpuopt.upsample_nearest(x, scale=scale), want)


def test_an_empty_list_is_one_of_integers() -> None:
    """Accepted as by np.add.at; an empty array keeps its dtype, and so do sums with it."""
    np.testing.assert_array_equal(gpuopt.index_add(np.ones(3), [], []), np.ones(3))
    np.testing.assert_array_equal(gpuopt.index_add(np.ones(3), (), np.ones(0)), np.ones(3))
    np.testing.assert_array_equal(gpuopt.scatter_add([], [], 3), np.zeros(3))
    with pytest.raises(TypeError, match="integer"):
        gpuopt.index_add(np.ones(3), np.array([]), [])
    with pytest.raises(TypeError, match="integer"):
        gpuopt.scatter_add([], np.array([]), 3)
    for x in (np.ones(0, np.float32), np.ones(0, np.int8)):
        assert gpuopt.add(x, []).dtype == np.add(x, []).dtype


def test_names_are_shown_as_they_came() -> None:
    x = np.ones(3)
    for variant in ("v1\0", "scalar\0", "\ud800", "v99", "\n"):
        with pytest.raises(gpuopt.VariantError) as caught:
            gpuopt.reduce(x, variant=variant)
        assert str(caught.value).startswith(f"reduce() has no variant {variant!r} here; ")
    for backend in ("cpu\0", "gpu", "\ud800"):
        with pytest.raises(ValueError, match="backend must be one of") as error:
            gpuopt.reduce(x, backend=backend)
        assert str(error.value).endswith(f"(got {backend!r})")
    for name in ("variant", "backend"):
        with pytest.raises(TypeError, match=f"{name}.* must be a str, not 'int'"):
            gpuopt.reduce(x, **{name: 1})


def test_devices_are_named_as_they_came() -> None:
    calls: list[Callable[..., Any]] = [
        lambda **k: gpuopt.asdevice(np.ones(3), **k),
        lambda **k: gpuopt.Stream(**k),
        lambda **k: gpuopt.synchronize(**k),
    ]
    for call in calls:
        for device in (-1, 1, 2**20, 2**40, -(2**40)):
            with pytest.raises(ValueError, match=f"device {device} is out of range"):
                call(device=device, backend="sim")
        with pytest.raises(TypeError, match="argument 'device' must be an int: 'float' object"):
            call(device=2.0, backend="sim")
        with pytest.raises(OverflowError, match="argument 'device'"):
            call(device=2**70, backend="sim")
    x = gpuopt.asdevice(np.ones(3), backend="sim")
    with pytest.raises(ValueError, match="device -1 is out of range; backend 'sim'"):
        gpuopt.asdevice(x, device=-1)


# ---- depth ----


@each_op
def test_a_call_within_a_call_within_a_call_is_a_recursion_error(op: str, child: Child) -> None:
    """An array argument that calls the operator on itself raises as in NumPy."""
    code = f"""
import sys, numpy as np, gpuopt
from cases import ENTRIES
args, kwargs, want = ENTRIES[{op!r}].valid()
f = gpuopt.{op}
class Again:
    def __array__(self, *a, **k):
        return np.asarray(f(self, *args[1:], **kwargs))
for _ in range(3):
    try:
        f(Again(), *args[1:], **kwargs)
    except RecursionError:
        print("RecursionError")
f(*args, **kwargs)
"""
    assert child(code).stdout.split() == ["RecursionError"] * 3
    assert sys.getrecursionlimit() > 100


# ---- stack ----

STACK = 64 << 10
"""The most a call needs, including Python's own share: see docs/guide.md."""

SMALL_STACK = """
import ctypes, sys, threading, warnings
import numpy as np, gpuopt
from cases import ENTRIES, assert_same, dtype_of
from gpuopt import _core
op, stack = sys.argv[1], int(sys.argv[2])
warnings.simplefilter("ignore")
libc = ctypes.CDLL(None)
if hasattr(libc, "pthread_setattr_default_np"):  # the team's own threads get as little
    attributes = (ctypes.c_char * 256)()
    assert libc.pthread_attr_init(attributes) == 0
    assert libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(stack)) == 0
    assert libc.pthread_setattr_default_np(attributes) == 0
gpuopt.set_num_threads(3)
entry, made, finished = ENTRIES[op], [], []
def strided(x):
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        return x
    every_other = np.empty((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    every_other[...] = x
    return every_other
def both(args, kwargs):
    return [(args, kwargs), ([strided(x) for x in args], kwargs)]
def calls_of(samples):
    for sample in samples:
        options = dict(sample.options)
        if "dtype" in options:
            options["dtype"] = dtype_of(options["dtype"])
        yield from both([spec.build() for spec in sample.arrays], options)
def small_and_large(dtype):
    small = list(entry.samples(dtype, "small"))
    small = small[:: max(1, len(small) // 8)]
    return list(calls_of(small)), list(calls_of(entry.large(dtype)))
rows = [row for row in _core.variants(op) if row["backend"] == "cpu"]
def calls_with(dtype):
    # each variant's, which share the inputs; those of one dtype may take 300 MB
    small, large = small_and_large(dtype)
    for row in rows:
        if dtype in row["dtypes"]:
            one_loop = row["name"] == "scalar"  # for any size, and minutes for large ones
            yield row["name"], small if one_loop else small + large
def run(calls):
    for variant, inputs in calls:
        for args, kwargs in inputs:
            made.append(variant)
            try:
                getattr(gpuopt, op)(*args, **kwargs, backend="cpu", variant=variant)
                finished.append(True)
            except (TypeError, ValueError, IndexError):
                pass  # a sample that must be refused
    finished.append("all")
def in_a_thread(calls):
    thread = threading.Thread(target=run, args=(calls,))
    thread.start()
    thread.join()
    assert finished[-1:] == ["all"]
threading.stack_size(stack)
for dtype in dict.fromkeys(dtype for row in rows for dtype in row["dtypes"]):
    in_a_thread(list(calls_with(dtype)))
if entry.heavy:
    heavy = both(entry.heavy(), entry.valid()[1])
    in_a_thread([(row["name"], heavy) for row in rows if row["name"] != "scalar"])
assert finished.count(True) > len(made) / 2
args, kwargs, want = entry.valid()
assert_same(getattr(gpuopt, op)(*args, **kwargs), want)
print(len(made), "calls")
"""


@each_op
def test_every_cpu_variant_runs_in_a_small_stack(op: str) -> None:
    """A thread of the program with 64 KiB, and the threads of the team with as much."""
    done = run_child("-c", SMALL_STACK, op, str(STACK))
    assert done.returncode == 0, f"{op}: {done.returncode} {done.stderr[-2000:]}"
    assert done.stdout.endswith(" calls\n")
