"""elementwise beyond the matrix: NumPy's results, difficult values, published bugs.

Order: NumPy's dtypes and errors, numbers, out=, special values, accuracy, misalignment,
strides, counts in the simulator, the shape kernel any_strides.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.elementwise import BINARY, DTYPES, FUNCTORS, UNARY, arguments, takes
from conftest import Figure

import gpuopt
from gpuopt import _core, ref
from gpuopt.lab.profile import profile

NUMPY = (*BINARY, "negative", "abs", "exp", "log", "sqrt", "tanh")


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes every call."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("elementwise")
        if row["available"] and usable[row["backend"]] is None and not row["shape"]
    ]


needs_sim = pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")

each_variant = pytest.mark.parametrize(("backend", "variant"), variants())


def call(op: str, *args: Any, **options: Any) -> Any:
    return getattr(gpuopt, op)(*args, **options)


# ---- what NumPy says ----


@pytest.mark.parametrize("op", NUMPY)
def test_result_dtypes_are_numpys(op: str) -> None:
    """Every pair of dtypes that NumPy promotes; bfloat16 as ml_dtypes' own ufuncs."""
    pairs = [(d,) for d in DTYPES] if op in UNARY else itertools.product(DTYPES, repeat=2)
    for names in pairs:
        arrays = [np.ones(2, dtype_of(name)) for name in names]
        if not takes(op, np.result_type(*[a.dtype for a in arrays if a.dtype != BFLOAT16]
                                        or [np.float32]).name):  # fmt: skip
            continue
        try:
            want = getattr(np, op)(*arrays)
        except TypeError:
            with pytest.raises(TypeError):
                call(op, *arrays)
            continue
        got = call(op, *arrays)
        assert got.dtype == want.dtype, names
        np.testing.assert_allclose(got.astype("c16"), want.astype("c16"), rtol=1e-2)


@pytest.mark.parametrize("op", ["clip", "fma"])
def test_three_dtypes_promote_as_numpys(op: str) -> None:
    """Each integer is promoted with the float: int16, uint16 and float32 give float32."""
    real = [name for name in DTYPES if takes(op, name) and name != "bfloat16"]
    for names in itertools.product(real, repeat=3):
        arrays = [np.ones(2, dtype_of(name)) for name in names]
        want = np.result_type(*arrays)
        if takes(op, want.name):
            assert call(op, *arrays).dtype == want, names


@pytest.mark.parametrize("number", [3, -3, 2.5, 1j, True, 0])
def test_python_numbers_give_way(number: Any) -> None:
    for name in DTYPES:
        x = np.ones(3, dtype_of(name))
        if name == "bfloat16":  # NEP 50's rule; ml_dtypes knows it for integers alone
            want = np.dtype(np.complex64) if number == 1j else BFLOAT16
        else:
            try:
                want = np.multiply(x, number).dtype
            except OverflowError as error:
                with pytest.raises(OverflowError, match=f"^{error}$"):
                    gpuopt.multiply(x, number)
                continue
        assert gpuopt.multiply(x, number).dtype == want, name
        assert gpuopt.multiply(number, x).dtype == want, name
    assert gpuopt.add(2, 3) == 5
    assert type(gpuopt.add(2, 3)) is np.int64
    assert type(gpuopt.divide(1, 2)) is np.float64
    assert type(gpuopt.add(1, 2.5)) is np.float64


def test_integers_beyond_the_range_are_refused_in_numpys_words() -> None:
    for dtype, number in (("i1", 128), ("i1", -129), ("u1", -1), ("u8", -1), ("i4", 2**31)):
        with pytest.raises(OverflowError) as theirs:
            np.add(np.ones(2, dtype), number)
        with pytest.raises(OverflowError, match=f"^{theirs.value}$"):
            gpuopt.add(np.ones(2, dtype), number)
    np.testing.assert_array_equal(gpuopt.add(np.zeros(2, "i1"), -128), [-128, -128])


@pytest.mark.parametrize("op", ["subtract", "negative"])
def test_bool_errors_are_numpys(op: str) -> None:
    x = np.ones(2, bool)
    with pytest.raises(TypeError) as theirs:
        getattr(np, op)(*arguments(op, x))
    with pytest.raises(TypeError) as ours:
        call(op, *arguments(op, x))
    assert str(ours.value) == str(theirs.value)


def test_shapes_that_do_not_broadcast_are_listed_as_numpys() -> None:
    for shapes in (((3,), (4,)), ((2, 3), (4,)), ((5, 1), (2, 6))):
        x, y = (np.ones(shape) for shape in shapes)
        with pytest.raises(ValueError) as theirs:
            np.add(x, y)
        with pytest.raises(ValueError) as ours:
            gpuopt.add(x, y)
        assert str(ours.value) == str(theirs.value)


def test_clip_bounds_are_numpys() -> None:
    x = np.array([-5, 3, 120], np.int8)
    for bounds in ((0, 300), (-300, 5), (-300, 300), (None, 5), (0, None), (2.5, None)):
        want = np.clip(x, *bounds)
        got = gpuopt.clip(x, *bounds)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(gpuopt.clip(x), x)
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        gpuopt.clip(x, 300, None)


def test_where_takes_any_condition() -> None:
    x, y = np.arange(4.0), -np.arange(4.0)
    for condition in ([0, 2, 0, -1], [0.0, np.nan, 0.0, 1e-40], ["", "a"], [0, 1j, 0, 1]):
        if isinstance(condition[0], str):
            with pytest.raises(TypeError):
                gpuopt.where(condition, x[:2], y[:2])
            continue
        np.testing.assert_array_equal(
            gpuopt.where(condition, x, y), np.where(np.asarray(condition) != 0, x, y)
        )


def test_64_dimensions_and_more_axes_than_a_launch_takes() -> None:
    x = np.ones((1,) * 60 + (2, 3, 1, 2), np.int32)
    np.testing.assert_array_equal(gpuopt.add(x, x), x + x)
    y = np.arange(2**10, dtype=np.int16).reshape((2,) * 10).transpose()
    for backend, variant in variants():
        got = gpuopt.subtract(y, y[::-1, :, ::-1], backend=backend, variant=variant)
        np.testing.assert_array_equal(got, y - y[::-1, :, ::-1])


# ---- out= ----


@each_variant
@pytest.mark.parametrize("op", FUNCTORS)
def test_out_may_be_an_input(op: str, backend: str, variant: str) -> None:
    base = np.random.default_rng(3).uniform(0.5, 2, 1030).astype(np.float32)
    for start in (0, 1):
        x = base[start : start + 1027].copy() if start == 0 else base.copy()[1:1028]
        args = (x > 1, x, x) if op == "where" else arguments(op, x)
        want = call(op, *args)
        assert call(op, *args, out=x, backend=backend, variant=variant) is x
        np.testing.assert_allclose(x, want, rtol=1e-6)


def test_out_of_the_other_operand() -> None:
    x, y = np.arange(5.0), np.full(5, 2.0)
    assert gpuopt.subtract(x, y, out=y) is y
    np.testing.assert_array_equal(y, np.arange(5.0) - 2)
    with pytest.raises(ValueError, match="shares memory with x"):
        gpuopt.add(x[1:], x[:-1], out=x[:-1][::-1])


# ---- special values ----


@each_variant
def test_nan_at_every_position(backend: str, variant: str) -> None:
    """n = 1..70: packs and tails.  Row r of an identity matrix has nan at r."""
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in (1, 2, 33, 70) if backend == "sim" else range(1, 71):
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            x = np.eye(n).astype(dtype_of(dtype))
            x[np.eye(n) == 1] = np.nan
            one = np.ones(n, x.dtype)
            hole = np.eye(n) == 1
            for got in (
                gpuopt.maximum(x, one, **where), gpuopt.maximum(one, x, **where),
                gpuopt.minimum(x, one, **where), gpuopt.minimum(one, x, **where),
                gpuopt.clip(x, 0.0, 1.0, **where), gpuopt.relu(x, **where),
                gpuopt.exp(x, **where), gpuopt.sigmoid(x, **where), gpuopt.abs(x, **where),
                gpuopt.fma(x, one, one, **where), gpuopt.silu(x, **where),
            ):  # fmt: skip
                np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), hole)


@each_variant
def test_limits_of_the_smooth_functions(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    for dtype in ("float16", "float32", "float64"):
        x = np.array([-np.inf, -0.0, 0.0, np.inf], dtype)
        with np.errstate(all="ignore"):
            for op in ("exp", "log", "sqrt", "tanh"):
                np.testing.assert_array_equal(call(op, x, **where), getattr(np, op)(x))
        np.testing.assert_array_equal(gpuopt.sigmoid(x, **where), [0, 0.5, 0.5, 1])
        np.testing.assert_array_equal(gpuopt.relu(x, **where), [0, 0, 0, np.inf])
        np.testing.assert_array_equal(gpuopt.gelu(x, **where), [np.nan, 0, 0, np.inf])
        np.testing.assert_array_equal(gpuopt.silu(x, **where), [np.nan, 0, 0, np.inf])
        tiny = np.array([np.finfo(dtype).smallest_subnormal], dtype)
        assert gpuopt.tanh(tiny, **where) == tiny
        assert gpuopt.multiply(tiny, tiny.dtype.type(3), **where) == tiny * 3


@each_variant
def test_sqrt_is_exact(backend: str, variant: str) -> None:
    """Of float32 also where x or its differences from a square are subnormal."""
    ends = [0, 1, 2**23 - 1, 2**23, 2**23 + 1, 27 << 23, (28 << 23) - 1, (127 << 23) - 1]
    bits = np.r_[ends, np.arange(0, 255 << 23, 9_999_991), (255 << 23) - 1, 255 << 23]
    x = bits.astype(np.uint32).view(np.float32)
    got = gpuopt.sqrt(x, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, np.sqrt(x))


@each_variant
def test_integers_wrap(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint64"):
        info = np.iinfo(dtype)
        x = np.array([info.min, info.max, info.max, 3], dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(gpuopt.add(x, x, **where), x + x)
            np.testing.assert_array_equal(gpuopt.multiply(x, x, **where), x * x)
            np.testing.assert_array_equal(gpuopt.negative(x, **where), -x)
            np.testing.assert_array_equal(gpuopt.abs(x, **where), np.abs(x))
            np.testing.assert_array_equal(gpuopt.fma(x, x, x, **where), x * x + x)


@each_variant
def test_any_byte_but_zero_is_true(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    x = np.array([0, 1, 2, 255] * 9, np.uint8).view(bool)
    y = x[::-1].copy()
    for op in ("add", "multiply", "maximum", "minimum"):
        got = call(op, x, y, **where).view(np.uint8)
        np.testing.assert_array_equal(got, getattr(np, op)(x != 0, y != 0).view(np.uint8))
    np.testing.assert_array_equal(
        gpuopt.cast(x, "i4", **where), (x.view(np.uint8) != 0).astype("i4")
    )


# ---- accuracy ----


@each_variant
def test_fma_rounds_once(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    e = np.finfo(np.float32).eps
    x = np.full(33, 1 + e, np.float32)
    np.testing.assert_array_equal(
        gpuopt.fma(x, x, -1 - 2 * e * np.ones_like(x), **where), e * e
    )
    h = np.full(33, 1 + 2.0**-10, np.float16)
    got = gpuopt.fma(h, h, np.float16(-1 - 2.0**-9), **where)
    np.testing.assert_array_equal(got, np.float16(2.0**-20))
    b = np.full(33, 1 + 2.0**-7, BFLOAT16)  # 2^-40 decides a tie of the 16-bit product
    c = np.full(33, 2.0**-40, BFLOAT16)
    exact = (1 + 2.0**-7) ** 2 + 2.0**-40
    got = gpuopt.fma(b, b, c, **where).astype(np.float64)
    assert (np.abs(got - exact) <= 2.0**-8).all()


@each_variant
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_of_the_smooth_functions(
    backend: str, variant: str, dtype: str, figure: Figure
) -> None:
    """The bounds of the documentation, over the whole range, in units of eps."""
    bounds = {"exp": 4, "log": 4, "tanh": 6, "sigmoid": 6, "silu": 8}
    n = 1025 if backend == "sim" else 100_001
    top = 87.0 if dtype == "float32" else 708.0
    eps = float(np.finfo(dtype).eps) / 2
    rng = np.random.default_rng(5)
    for op, bound in bounds.items():
        wide = rng.uniform(-top, top, n // 2)
        near = rng.standard_normal(n - n // 2) * np.exp(rng.uniform(-20, 1, n - n // 2))
        x = np.concatenate([wide, near]).astype(dtype)
        x = np.abs(x) + np.finfo(dtype).tiny if op == "log" else x
        x = x.astype(dtype)
        exact, _ = ref.elementwise_wide(op, x)
        got = call(op, x, backend=backend, variant=variant).astype(exact.dtype)
        least = float(np.finfo(dtype).tiny)
        error = np.abs(got - exact) / (np.abs(exact) * eps + least * eps * (1 + np.abs(x)))
        assert (error <= bound).all(), (op, x[error.argmax()], error.max())
        if variant in ("simd", "v2"):
            figure(f"{op} {dtype} {backend} {variant}", f"{float(error.max()):.2f} eps")


def gelu_tail(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """x times the normal distribution up to x, for x below -12: the asymptotic series."""
    term = total = np.ones_like(x)
    for k in range(1, 40):
        term = -term * (2 * k - 1) / x**2
        total = total + term
    return -np.exp(-x * x / 2) * total / np.sqrt(2 * np.longdouble(np.pi))


def exactly(op: str, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The function in long double, whose range is far wider than float64's."""
    if op == "gelu":
        return gelu_tail(x)
    if op in ("exp", "log", "tanh"):
        return np.asarray(getattr(np, op)(x))
    return (x if op == "silu" else 1) / (1 + np.exp(-x))


SMOOTH = {"exp": 4, "log": 4, "tanh": 6, "sigmoid": 6, "silu": 8, "gelu": 16}


@each_variant
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_smooth_functions_where_results_are_small(
    backend: str, variant: str, dtype: str
) -> None:
    """The bounds where exp(x) or the result is subnormal, and of subnormal arguments."""
    n = 1025 if backend == "sim" else 200_001
    info = np.finfo(dtype)
    eps, step = np.longdouble(info.eps) / 2, np.longdouble(info.smallest_subnormal)
    low, split, bell = (-112, 64, -14.8) if dtype == "float32" else (-756, 512, -38.9)
    tiny = np.geomspace(float(info.tiny) * 1e-3, 1e-3, n // 8)
    for op, bound in SMOOTH.items():
        if op == "gelu":
            x = np.linspace(bell, -12.5, n)
        elif op == "log":
            least, most = info.minexp - info.nmant, info.maxexp - 1
            x = np.concatenate([2.0 ** np.linspace(least, most, n), tiny])
        else:
            near = -split + np.linspace(-1, 1, n // 4)
            x = np.concatenate([np.linspace(low, -split, n), near, tiny, -tiny])
        x = x.astype(dtype)
        exact = exactly(op, x.astype(np.longdouble))
        steps = np.abs(x) if op == "gelu" else 1
        bounds = bound + 2 * x.astype(np.longdouble) ** 2 if op == "gelu" else bound
        allowed = bounds * eps * np.abs(exact)
        allowed = allowed + np.where(np.abs(exact) < info.tiny, steps * step, 0)
        got = call(op, x, backend=backend, variant=variant)
        right = np.abs(got - exact) <= allowed
        assert right.all(), (op, x[~right][:3], got[~right][:3], exact[~right][:3])


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_smooth_functions_of_every_16_bit_float(backend: str, variant: str, dtype: str) -> None:
    """Half a step of the dtype, and the error of float32, or of the short forms on a GPU."""
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype_of(dtype))
    x = every[:: 63 if backend == "sim" else 1]
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    digits, least, most = (11, -24, 65504.0) if dtype == "float16" else (8, -133, 2.0**128)
    for op, bound in SMOOTH.items():
        if op == "gelu":
            continue
        with np.errstate(all="ignore"):
            exact = exactly(op, wide.astype(np.longdouble)).astype(np.float64)
        fits = np.isfinite(wide) & np.isfinite(exact)
        fits &= np.abs(np.where(fits, exact, 0)) < most * (1 - 2.0**-digits)
        exponent = np.frexp(np.where(fits, exact, 1))[1]
        step = np.ldexp(1.0, np.maximum(exponent - digits, least))
        result = call(op, x, backend=backend, variant=variant)
        with np.errstate(invalid="ignore"):
            got = result.astype(np.float64)
            error = np.where(fits, np.abs(got - exact), 0)
        exact = np.where(fits, exact, 0)
        short = backend != "cpu" and op in ("exp", "log", "sigmoid", "silu", "tanh")
        most_off = 2.0**-16 if short else bound * 2.0**-24
        wrong = ~(error <= 0.5 * step + most_off * np.abs(exact))
        assert not wrong.any(), (op, wide[wrong][:3], got[wrong][:3], exact[wrong][:3])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "log"])
def test_rare_arguments_do_not_change_their_neighbours(name: str, dtype: str) -> None:
    """A block with a rare argument has the bits of one without, wherever it is."""
    rng = np.random.default_rng(6)
    x = np.abs(rng.standard_normal(3000)).astype(dtype_of(dtype))
    edges = [
        0.0,
        -0.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        87.0,
        -87.0,
        88.8,
        -104,
        708,
        -708,
        1e-310,
    ]
    function = getattr(gpuopt, name)
    usual = function(x, backend="cpu").tobytes()
    with np.errstate(over="ignore"):
        rare = np.array(edges).astype(x.dtype)
    alone = [
        function(rare[k : k + 1], backend="cpu", variant="scalar") for k in range(rare.size)
    ]
    for at in (0, 511, 1024, 2999):
        for value, result in zip(rare, alone, strict=True):
            y = x.copy()
            y[at] = value
            got = function(y, backend="cpu")
            assert got[at : at + 1].tobytes() == result.tobytes(), value
            got[at] = function(x[at : at + 1], backend="cpu")[0]
            assert got.tobytes() == usual
            assert function(y, out=y, backend="cpu") is y
            y[at] = got[at]
            assert y.tobytes() == usual


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_large_operands_are_prefetched_to_their_ends(variant: str, dtype: str) -> None:
    """Steps of several operands from any address, of every width, in place as well."""
    n = (1 << 20) // np.dtype(dtype).itemsize + 77
    base = (np.arange(n + 8) * 37 % 101).astype(dtype)
    mask = np.arange(n) % 3 > 0
    for start in (0, 1, 7):
        x = base[start : start + n]
        where: dict[str, Any] = {"backend": "cpu", "variant": variant}
        np.testing.assert_array_equal(
            gpuopt.where(mask, x, base[:n], **where), np.where(mask, x, base[:n])
        )
        np.testing.assert_array_equal(gpuopt.add(x, base[:n], **where), x + base[:n])
        y = x.copy()
        gpuopt.multiply(y, y, out=y, **where)
        np.testing.assert_array_equal(y, x * x)


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "float16", "float32", "float64", "complex64", "complex128"]
)
def test_every_second_element(variant: str, dtype: str) -> None:
    """Packed by vectors of every width, with rests of any length, up to the last element."""
    where: dict[str, Any] = {"backend": "cpu", "variant": variant}
    base = (np.arange(3000) * 37 % 101).astype(dtype)
    for n in (*range(1, 40), 511, 512, 513, 1100):
        for start in (0, 1):
            x = base[start : start + 2 * n - 1].copy()[::2]
            np.testing.assert_array_equal(gpuopt.negative(x, **where) if dtype != "uint8"
                                          else gpuopt.relu(x, **where),
                                          -x if dtype != "uint8" else x)  # fmt: skip
            np.testing.assert_array_equal(gpuopt.add(x, x[::-1], **where), x + x[::-1])
    rows = base[:2970].reshape(3, 990)[:, ::2]
    np.testing.assert_array_equal(gpuopt.add(rows, rows[:1], **where), rows + rows[:1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "gelu", "silu"])
def test_small_calls_fill_a_table(name: str, dtype: str) -> None:
    """Calls of few elements compute, until a table of the same values replaces the loop."""
    x = np.random.default_rng(3).standard_normal(5000).astype(dtype_of(dtype))
    function = getattr(gpuopt, name)
    first = function(x, backend="cpu", variant="scalar").tobytes()
    for _ in range(30):
        assert function(x, backend="cpu", variant="simd").tobytes() == first


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "clip"])
def test_scalars_beside_an_array_at_any_address(name: str, variant: str) -> None:
    """Heads before a cache line, rows of a view, and scalars that are arrays."""
    rng = np.random.default_rng(4)
    more = (0.5, 1.5) if name == "clip" else (1.5,)
    for dtype in ("float16", "float32", "float64"):
        base = rng.standard_normal(40_011).astype(dtype)
        scalars = [np.full((1,), value, dtype) for value in more]
        for x in (
            base,
            base[1:],
            base[7:20_000],
            base[11 : 11 + 80 * 99].reshape(99, 80)[:, 3:],
        ):
            out = np.empty(x.size + 5, dtype)[5:].reshape(x.shape)
            function = getattr(gpuopt, name)
            want = function(x, *more, backend="cpu", variant="scalar")
            for operands in (more, scalars):
                got = function(x, *operands, out=out, backend="cpu", variant=variant)
                assert got.tobytes() == want.tobytes(), (dtype, x.shape)


@each_variant
def test_silu_at_its_ends(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    for dtype, digits in (("float32", 9), ("float64", 17)):
        x = np.array([0.0, -0.0, -1e30, np.inf, 1e30, -np.inf, np.nan], dtype)
        got = call("silu", x, **where)
        assert [f"{v:.{digits}g}" for v in got[:4]] == ["0", "-0", "-0", "inf"]
        assert got[4] == x[4] and np.isnan(got[5:]).all()


# ---- pinned: packs, tails, misalignment ----


@each_variant
def test_pinned_one_misaligned_pointer(backend: str, variant: str) -> None:
    """The source drops to one element per thread for one unaligned pointer; v2 does not."""
    base = np.arange(1200)
    for dtype in ("uint8", "float16", "float32", "float64", "complex128"):
        x = base.astype(dtype)
        for a, b in ((0, 0), (1, 1), (1, 0), (0, 3), (7, 2)):
            for n in (0, 1, 7, 17, 33, 129, 1025):
                p, q = x[a : a + n], x[b : b + n]
                got = gpuopt.add(p, q, backend=backend, variant=variant)
                np.testing.assert_array_equal(got, p + q, err_msg=f"{dtype} {a} {b} {n}")


@each_variant
def test_pinned_mixed_types_share_a_pack_size(backend: str, variant: str) -> None:
    """uint8 to float64 and back: the pack is the smaller one of both types."""
    for n in (1, 15, 16, 17, 255, 1025):
        for start in range(3):
            x = (np.arange(n + start) % 200).astype(np.uint8)[start:]
            for target in ("float64", "float16", "complex128", "uint16", "bool"):
                got = gpuopt.cast(x, target, backend=backend, variant=variant)
                np.testing.assert_array_equal(got, x.astype(target))
            y = x.astype(np.float64)
            back = gpuopt.cast(y, "u1", backend=backend, variant=variant)
            np.testing.assert_array_equal(back, x)


@each_variant
def test_rows_columns_and_outer_products(backend: str, variant: str) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": variant}
    row = np.arange(1031, dtype=np.float32)
    column = np.arange(5, dtype=np.float32)[:, None]
    matrix = np.arange(5 * 1031, dtype=np.float32).reshape(5, 1031)
    for x, y in (
        *((row, column), (matrix, row), (column, matrix), (matrix[:, ::-1], row)),
        *((matrix.T, column.T), (matrix[::2], row), (matrix[:, :1], row)),
        *((matrix[:, 3:], row[1:-2]), (np.asfortranarray(matrix), matrix)),
    ):
        np.testing.assert_array_equal(gpuopt.subtract(x, y, **where), x - y)


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_tiles_of_transposed_operands(variant: str, dtype: str) -> None:
    """Sizes around those of tiles, several inner axes, short ones, one or two operands."""
    where: dict[str, Any] = {"backend": "cpu", "variant": variant}
    rng = np.random.default_rng(5)
    for shape in ((8, 20001), (7, 30011), (65, 2063), (1025, 257), (300, 64), (33, 41, 53),
                  (5, 130, 150), (130, 5, 150), (3, 9, 5, 1001),
                  (19, 700, 2), (66, 131, 3), (20, 3, 41, 15)):  # fmt: skip
        for order in itertools.permutations(range(len(shape))):
            length = [shape[axis] for axis in order]
            x = rng.integers(0, 9, length).astype(dtype).transpose(np.argsort(order))
            y = rng.integers(0, 9, shape).astype(dtype)
            np.testing.assert_array_equal(gpuopt.add(x, y, **where), x + y)
        x = x.T[::-1].T
        np.testing.assert_array_equal(
            gpuopt.multiply(x, x[..., ::-1], **where), x * x[..., ::-1]
        )
        np.testing.assert_array_equal(gpuopt.multiply(x, y[..., :1], **where), x * y[..., :1])
        np.testing.assert_array_equal(gpuopt.where(x > 3, x, y, **where), np.where(x > 3, x, y))
        np.testing.assert_array_equal(gpuopt.cast(x, "int16", **where), x.real.astype("int16"))


# ---- counts in the simulator: memory requests of a rung ----

GOLDEN = {
    # float16, 4096 products: requests and sectors of 32 bytes
    "aligned": {"v0": (384, 768), "v1": (48, 768), "v2": (48, 768)},
    "misaligned": {"v0": (384, 1024), "v1": (384, 1024), "v2": (83, 1331)},
    "scalar": {"v0": (384, 640), "v1": (48, 528), "v2": (40, 520)},
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_counts(case: str) -> None:
    if _core.backends()["sim"] is not None:
        pytest.skip("no simulator in this build")
    x = np.ones(4097, np.float16)
    args = {
        "aligned": (x[:-1], x[:-1].copy()),
        "misaligned": (x[1:], np.ones(4097, np.float16)[1:]),
        "scalar": (x[:-1], np.float16(2)),
    }[case]
    found = {
        row.variant: (row.global_requests, row.global_sectors)
        for row in profile("multiply", *args)
    }
    assert found == GOLDEN[case]


# ---- the table ----


def test_every_functor_has_the_ladder() -> None:
    for op in FUNCTORS:
        assert _core.describe(op)["ladder"] == "elementwise"
        assert _core.variants(op) == _core.variants("elementwise")
        assert getattr(gpuopt, op).__doc__


# ---- rows shorter than a vector ----


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64", "complex128"])
def test_short_rows_of_broadcast_operands(variant: str, dtype: str) -> None:
    """Whole rows are packed at once, from any place in a row on; 2, 3 and 4 have own loops."""
    for length in (2, 3, 4, 5, 31, 63, 64, 65):
        x = (np.arange(700 * length) % 97).reshape(-1, 7, length).astype(dtype)
        row, column, plane = x[0, 0], x[:, :, :1], x[0]
        turned = np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)
        for y in (row, column, plane, turned, x[:, :1, ::-1]):
            got = gpuopt.add(x, y, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, x + y, err_msg=f"{length} {y.strides}")


@needs_sim
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex128"])
def test_blocks_of_v2_are_as_wide_as_a_row(dtype: str) -> None:
    """Rows of 1 KiB up to more than a block loads, at every offset from a pack."""
    size = dtype_of(dtype).itemsize
    for length in (
        1024 // size,
        1024 // size + 1,
        3156 // size,
        8192 // size + 3,
        20000 // size,
    ):
        x = (np.arange(5 * length + 1) % 97).astype(dtype)[1:].reshape(5, length)
        for y in (x[0], x[:, :1], x[:1] + x[:1], x[::-1]):
            for a, b in ((x, y), (y, x)):
                got = gpuopt.add(a, b, backend="sim", variant="v2")
                np.testing.assert_array_equal(got, a + b, err_msg=f"{length} {y.strides}")


@needs_sim
def test_more_rows_than_the_second_axis_of_a_grid_has() -> None:
    x = np.broadcast_to(np.arange(1024, dtype=np.uint8), (65537, 1024))
    y = (np.arange(65537) % 7).astype(np.uint8)[:, None]
    got = gpuopt.add(x, y, backend="sim", variant="v2")
    np.testing.assert_array_equal(got, x + y)


@pytest.mark.parametrize("variant", ["scalar", "simd", "threads"])
def test_order_of_every_16_bit_float(variant: str) -> None:
    """Integer keys order halves as NumPy does; zeros keep the first operand, nan wins."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    y = np.roll(x[::-1], 777)
    for op in ("maximum", "minimum"):
        got = call(op, x, y, backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, getattr(np, op)(x, y))
    got = gpuopt.clip(x, -1.5, 2.5, backend="cpu", variant=variant)
    np.testing.assert_array_equal(got, np.clip(x, np.float16(-1.5), np.float16(2.5)))
    got = gpuopt.relu(x, backend="cpu", variant=variant)
    np.testing.assert_array_equal(got, np.where(x < 0, np.float16(0), x))


# ---- numbers beside arrays on a device ----

each_device_variant = pytest.mark.parametrize(
    ("backend", "variant"), [row for row in variants() if row[0] != "cpu"]
)


@each_device_variant
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "complex128"])
def test_numbers_are_arguments_of_kernels(backend: str, variant: str, dtype: str) -> None:
    """First, second or third; the array in one piece, shifted, with steps; of one element."""
    host = (np.arange(37 * 129) % 101).reshape(37, 129).astype(dtype)
    whole = gpuopt.asdevice(host, backend=backend)
    for part in (slice(None), slice(1, None), (slice(None), slice(None, None, 2)), 5, (5, 7)):
        x, want = whole[part], host[part]
        for number in (3, np.array(3, dtype)):
            got = gpuopt.add(x, number, variant=variant).numpy()
            np.testing.assert_array_equal(got, want + want.dtype.type(3))
            got = gpuopt.multiply(2, x, variant=variant).numpy()
            np.testing.assert_array_equal(got, want * want.dtype.type(2))
            got = gpuopt.where(gpuopt.cast(x, bool), number, x, variant=variant).numpy()
            np.testing.assert_array_equal(got, np.where(want != 0, want.dtype.type(3), want))
            if dtype != "complex128":
                got = gpuopt.clip(x, number, 20, variant=variant).numpy()
                np.testing.assert_array_equal(got, np.clip(want, 3, 20))
                got = gpuopt.clip(x, None, number, variant=variant).numpy()
                np.testing.assert_array_equal(got, np.minimum(want, want.dtype.type(3)))


@each_device_variant
def test_order_of_every_pair_of_halves(backend: str, variant: str) -> None:
    """Two at a time where there are instructions for that: nan if either is."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    y = np.roll(x[::-1], 777)
    for op in ("maximum", "minimum"):
        got = call(op, x, y, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, getattr(np, op)(x, y))
    a = gpuopt.asdevice(x, backend=backend)
    for low, high in ((-1.5, 2.5), (np.nan, 1), (0, np.nan), (3, -3)):
        got = gpuopt.clip(a, low, high, variant=variant).numpy()
        want = np.clip(x, np.float16(low), np.float16(high))
        np.testing.assert_array_equal(got, want)


# ---- any_strides: packs of results, in any rows ----

PACKED = ("bool", "int8", "uint16", "float16", "bfloat16", "int32", "float32", "float64")

any_strides = pytest.mark.parametrize(
    "backend",
    [
        row["backend"]
        for row in _core.variants("elementwise")
        if row["name"] == "any_strides" and _core.backends()[row["backend"]] is None
    ],
)


@pytest.fixture
def checked() -> Iterator[None]:
    """The simulator checks every access."""
    if _core.backends()["sim"] is not None:
        yield
        return
    old = _core._sim_configure(checks=True)
    yield
    _core._sim_configure(**old)


def numbered(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)) % 97).reshape(shape).astype(dtype_of(dtype))


def test_single_packs_are_for_much_memory() -> None:
    """And for divisions and columns; two packs of a thread for clip and narrower results."""
    large, middle, small = (np.empty(2**k, np.float32) for k in (27, 24, 22))
    wide, column = np.empty((128, 75839)), np.empty((128, 1))
    for op, args, variant in (
        ("add", (large, np.float32(2)), "any_strides"),
        ("add", (middle, np.float32(2)), "v1"),
        ("add", (large[1:], large[1:]), "v2"),  # no aligned packs
        ("where", (np.empty(2**27, bool), large, large), "v2"),
        ("divide", (middle, np.float32(2)), "any_strides"),
        ("divide", (small, np.float32(2)), "v1"),
        ("divide", (middle, middle), "v1"),
        ("minimum", (wide, column), "any_strides"),
        ("minimum", (np.empty((128, 75839), "f2"), np.empty((128, 1), "f2")), "v2"),
        ("clip", (middle, 0, 1), "v2"),
        ("clip", (small, 0, 1), "v1"),
        ("cast", (middle, "float16"), "v2"),
        ("cast", (middle, "float64"), "v1"),
        ("log", (np.empty(2**27),), "v1"),
        ("relu", (np.empty(2**27),), "v2"),
    ):
        row = gpuopt.explain(op, *args, backend="sim")[0]
        assert row["variant"] == variant, (op, [np.shape(arg) for arg in args])


@any_strides
@pytest.mark.parametrize("dtype", PACKED)
def test_any_strides_of_one_axis(backend: str, dtype: str, checked: None) -> None:
    """Steps of 1 and 2 from every offset to a pack, up to the last element of the array."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    for n in (1, 2, 7, 8, 9, 15, 16, 17, 33, 1025):
        for start in range(18 if n < 20 else 3):
            for step in (1, 2, 3, -1, -2):
                x = numbered(dtype, start + (n - 1) * abs(step) + 1)[start:][::step]
                assert len(x) == n
                np.testing.assert_array_equal(gpuopt.cast(x, "f4", **where), x.astype("f4"))
                got = gpuopt.maximum(x, x[::-1], **where)
                np.testing.assert_array_equal(got, np.maximum(x, x[::-1]))


@any_strides
@pytest.mark.parametrize("dtype", PACKED)
def test_any_strides_of_rows(backend: str, dtype: str, checked: None) -> None:
    """Packs in one row and across rows of 1 to 40; what repeats, steps, turns, runs back."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    for length in (1, 2, 3, 5, 6, 7, 8, 9, 16, 31, 40):
        m = numbered(dtype, 23, 2 * length + length % 3)
        for x in (m[:, :length], m[:, ::2][:, :length], m[:, 1::2][:, : length - 1]):
            turned = np.ascontiguousarray(x.T).T
            for y in (x[0], x[:, :1], x[::-1, ::-1], turned, x[5:6, :1], x.copy()):
                for a, b in ((x, y), (y, x)):
                    got = gpuopt.minimum(a, b, **where)
                    np.testing.assert_array_equal(got, np.minimum(a, b))


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_any_strides_is_for_many_transposed_operands() -> None:
    """A block has whole sectors of each column; few results are v0's."""
    for dtype, shape, variant in (
        ("float32", (140_000, 4), "any_strides"),
        ("float32", (20_000, 4), "v0"),
        ("float32", (20_000, 128), "any_strides"),
        ("float32", (20_000, 129), "any_strides"),  # tiles of rows that share lines
        ("float32", (4_000, 129), "v0"),
        ("float32", (500, 40, 130), "any_strides"),  # rows that share lines lie apart
        ("float64", (20_000, 129), "any_strides"),
        ("float64", (140_000, 4), "any_strides"),
        ("complex64", (20_000, 129), "v0"),
    ):
        x = np.zeros(shape, dtype)
        turned = np.zeros(shape[::-1], dtype).T
        row = gpuopt.explain("add", x, turned, backend="sim")[0]
        assert row["variant"] == variant, (dtype, shape)


@any_strides
@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize(
    "shape",
    [(70, 300), (8, 2, 1001), (33, 129), (5, 7, 3, 261), (200, 135)]
    + [(70, 9, 140), (33, 2, 70), (5, 40, 3, 130)],  # rows that share lines lie apart
)
def test_any_strides_turns_tiles(
    backend: str, dtype: str, shape: tuple[int, ...], checked: None
) -> None:
    """Rows that share lines of a transposed operand, all or some of them, at any length."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    x = numbered(dtype, *shape)
    turned = np.ascontiguousarray((x[..., ::-1] + x).T.astype(x.dtype)).T
    wide = [a.astype("float32") if dtype == "bfloat16" else a for a in (x, turned)]
    for part in (np.s_[:], np.s_[::-1], np.s_[..., ::-1]):
        y, z = turned[part], wide[1][part]
        want = np.maximum(wide[0], z)
        got = gpuopt.maximum(x, y, **where)
        np.testing.assert_array_equal(got.astype(want.dtype), want)
        got = gpuopt.maximum(y, y, **where)
        np.testing.assert_array_equal(got.astype(want.dtype), z)


@any_strides
def test_any_strides_of_eight_axes(backend: str, checked: None) -> None:
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    x = np.arange(2**8 * 3, dtype=np.int16).reshape((2, 2, 2, 3, 2, 2, 2, 4))
    for y in (x.transpose(), np.moveaxis(x, 3, 0), x[::-1, :, ::-1, :, ::-1]):
        z = np.arange(y.shape[-1], dtype=np.int16)[::-1]
        w = y[:1, :, :1, :, :, :, :, :1]
        want = np.asarray(y * z + w)
        np.testing.assert_array_equal(gpuopt.fma(y, z, w, **where), want)
        got = gpuopt.where(y % 3 == 0, z, w, **where)
        np.testing.assert_array_equal(got, np.where(y % 3 == 0, z, w))
    nine = np.ones((2,) * 9, np.int16).transpose()
    with pytest.raises(gpuopt.VariantError, match="8 axes"):
        gpuopt.negative(nine, **where)


@any_strides
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_any_strides_into_out(backend: str, dtype: str, checked: None) -> None:
    """out= from every offset to a pack, an operand in place, or the other one."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    row = numbered(dtype, 6)
    for start in range(17):
        memory = numbered(dtype, 6 * 37 + start)
        x = memory[start:].reshape(37, 6)
        want = x + row
        out = gpuopt.add(x, row, out=x, **where)
        assert out is x
        np.testing.assert_array_equal(x, want)
        np.testing.assert_array_equal(memory[:start], numbered(dtype, 6 * 37)[:start])
        y = numbered(dtype, 37, 12)[:, ::2]
        want = y * x
        np.testing.assert_array_equal(gpuopt.multiply(y, x, out=x, **where), want)


@any_strides
def test_any_strides_of_mixed_widths(backend: str, checked: None) -> None:
    """The result's pack has 8 or 4 elements; an operand's has the same number."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    for start, step in itertools.product(range(9), (1, 2, -1)):
        x = numbered("uint8", 19, 64)[:, start:][:, ::step][:, :21]
        for target in ("float32", "float16", "int16", "bool", "int8", "bfloat16"):
            got = gpuopt.cast(x, target, **where)
            np.testing.assert_array_equal(got, x.astype(dtype_of(target)))
            back = x.astype(dtype_of(target))[:, ::2]
            np.testing.assert_array_equal(gpuopt.cast(back, "u1", **where), back.astype("u1"))
        condition = x % 2 == 0
        for dtype in ("int8", "float16", "float32"):
            y = numbered(dtype, 19, 60)[:, start:][:, ::2][:, :21]
            got = gpuopt.where(condition[:, : y.shape[1]], y, 3, **where)
            np.testing.assert_array_equal(
                got, np.where(condition[:, : y.shape[1]], y, y.dtype.type(3))
            )


@any_strides
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_any_strides_moves_nan(backend: str, dtype: str) -> None:
    """Each result is nan where its own element is, and nowhere else."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    hole = np.eye(19, dtype=bool)
    for step in (1, 2, 3):
        x = np.zeros((19, 19 * step), dtype_of(dtype))[:, ::step]
        x[hole] = np.nan
        for got in (
            *(gpuopt.relu(x, **where), gpuopt.exp(x, **where), gpuopt.clip(x, 0, 1, **where)),
            *(gpuopt.maximum(x, 0.0, **where), gpuopt.minimum(x[0], x, **where)[:, 1:]),
        ):
            np.testing.assert_array_equal(
                np.isnan(got.astype(np.float32)), hole[:, 19 - got.shape[1] :]
            )


@any_strides
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_any_strides_with_numbers(backend: str, dtype: str) -> None:
    host = numbered(dtype, 37, 130)
    whole = gpuopt.asdevice(host, backend=backend)
    for part in (slice(1, None), (slice(None), slice(1, None, 2)), 5, (5, 7)):
        x, want = whole[part], host[part]
        for number in (3, np.array(3, dtype)):
            got = gpuopt.add(x, number, variant="any_strides").numpy()
            np.testing.assert_array_equal(got, want + want.dtype.type(3))
            got = gpuopt.clip(x, number, 20, variant="any_strides").numpy()
            np.testing.assert_array_equal(got, np.clip(want, 3, 20))


def test_what_any_strides_takes() -> None:
    """31 bits for offsets in a launch; auto takes it for many results."""
    if _core.backends()["sim"] is not None:
        pytest.skip("no simulator")

    def variant(*arrays: Any, op: str = "add", **options: Any) -> str:
        return str(_core.plan(op, *arrays, backend="sim", **options)["variant"])

    row = np.ones(6, np.float16)
    assert variant(np.ones((1 << 14, 6), np.float16), row) == "any_strides"
    assert variant(np.ones((1 << 13, 6), np.float16), row) == "v0"
    assert variant(np.ones((1 << 14, 6)), row) == "any_strides"
    assert variant(np.ones((1 << 14, 6), np.complex64), row) == "v0"
    assert variant(np.ones((64, 1024), np.float32), np.ones((64, 1), np.float32)) == "v0"
    assert variant(np.ones((129, 1024), np.float32), np.ones((129, 1), np.float32)) == "v2"
    assert variant(np.ones(1 << 18, np.int8)[::2], np.int8(3)) == "any_strides"
    assert variant(np.ones(1 << 18, np.int8)[::2], op="cast", dtype="i8") == "v0"
    many, short = np.broadcast_to(np.int8(3), (1 << 26, 36)), np.ones(36, np.int8)
    assert variant(many, short) == "any_strides"
    base = np.zeros((1 << 31) + 1000, np.int8)  # no page of which is touched
    far = np.lib.stride_tricks.as_strided(base, (2, 3, 70), (1, 1 << 30, 2))
    with pytest.raises(gpuopt.VariantError, match="span less than 2\\^31"):
        variant(far, np.int8(3), variant="any_strides")
    assert variant(far[:, :2], np.int8(3), variant="any_strides") == "any_strides"
    assert variant(far[0], np.int8(3), variant="any_strides") == "any_strides"


@any_strides
def test_any_strides_in_several_launches(backend: str) -> None:
    """Rows far apart, one to nine per launch; the memory between them is never touched."""
    where: dict[str, Any] = {"backend": backend, "variant": "any_strides"}
    for rows, far in ((3, 1 << 31), (5, 1 << 30), (19, 1 << 28)):
        memory = np.zeros(far * (rows - 1) + 64, np.int8)
        x = np.lib.stride_tricks.as_strided(memory, (rows, 21), (far, 2))
        x[...] = np.arange(rows * 21).reshape(rows, 21) % 97
        for y in (x, x[::-1], x[:, ::-1]):
            np.testing.assert_array_equal(gpuopt.negative(y, **where), -y)
            got = gpuopt.add(y, x[0, :1], **where)
            np.testing.assert_array_equal(got, y + x[0, :1])


@needs_sim
def test_golden_counts_of_any_strides() -> None:
    """A wide load per pack, two where every second element is taken; 8 across rows of 6."""
    x = np.ones((2048, 16), np.float16)
    found = {}
    for name, args in {
        "row": (x[:, :6].copy(), x[0, :6]),
        "second": (x.reshape(-1)[:8192:2], x.reshape(-1)[:4096]),
        "aligned rows": (x[:, :8], x[0, :8]),
    }.items():
        (counts,) = profile("multiply", *args, variant="any_strides")
        found[name] = counts.global_requests
    assert found == {"row": 480, "second": 72, "aligned rows": 192}
