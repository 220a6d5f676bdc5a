"""initial= of reduce and scan, in every variant: values that are exact, so results are equal.

Order: every variant and dtype, several tiles, what NumPy says, rounding, no elements.  The
matrix of test_contract.py has initial values, too.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cases import dtype_of
from cases.scan import scan_takes

import gpuopt
from gpuopt import _core, ref

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
OPS = ("sum", "prod", "min", "max")
ROWS = [
    (op, row["backend"], row["name"], row["shape"])
    for op in ("reduce", "scan")
    for row in _core.variants(op)
    if row["backend"] != "cuda" and row["available"]
]
each_variant = pytest.mark.parametrize(
    ("op", "backend", "variant", "shape"), ROWS, ids=["-".join(row[:3]) for row in ROWS]
)


def elements(shape: tuple[int, ...], dtype: str, what: str, seed: int) -> np.ndarray[Any, Any]:
    """Whole numbers whose sums, products and extremes every dtype holds exactly."""
    rng = np.random.default_rng(seed)
    if what == "prod":
        values = np.where(rng.random(shape) < 0.9, 1, 2 if dtype[0] in "bu" else -1)
        values.reshape(-1)[4:] = np.abs(np.sign(values.reshape(-1)[4:]))
        return values.astype(dtype_of(dtype))
    low = 0 if dtype.startswith(("u", "bool")) else -3
    return rng.integers(low, 4, shape).astype(dtype_of(dtype))


def initial_for(dtype: str, what: str, turn: int) -> Any:
    """Values below, amid and above the elements."""
    if dtype == "bool":
        return bool(turn % 2)
    whole = [2, 100, 0 if dtype.startswith("u") else -100][turn % 3]
    return float(whole) if turn % 2 and dtype[:3] in ("flo", "bfl", "com") else whole


def check(op: str, x: Any, what: str, **options: Any) -> None:
    reference = {k: v for k, v in options.items() if k not in ("variant", "backend")}
    want = np.asarray(getattr(ref, op)(x, what, **reference))
    got = np.asarray(getattr(gpuopt, op)(x, what, **options))
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got.astype(want.dtype), want)


def takes(op: str, shape: str | None, x: Any, what: str, options: dict[str, Any]) -> bool:
    """A shape kernel takes some calls; VariantError says that it does not take this one."""
    if shape is None:
        return True
    try:
        _core.plan(op, x, what, **options)
    except gpuopt.VariantError:
        return False
    return True


@each_variant
def test_every_variant_and_dtype(
    op: str, backend: str, variant: str, shape: str | None
) -> None:
    turn = taken = 0
    rung = backend == "sim" and shape is None  # a block of threads for each result
    forms: list[dict[str, Any]] = [{"keepdims": False}, {"keepdims": True}]
    if op == "scan":
        flags = itertools.product((False, True), (False, True))
        forms = [{"exclusive": e, "reverse": r} for e, r in flags]
    for dtype, what in itertools.product(DTYPES, OPS):
        if not scan_takes(what, dtype):
            continue
        shapes = [((70,), 0), ((3, 41), 1), ((19, 6), 0), ((2, 5, 9), 1)]
        for dims, axis in [*shapes, ((3, 1, 9), 1)] if op == "scan" else shapes:
            turn += 1
            x = elements(dims, dtype, what, turn)
            options = {"axis": axis, "backend": backend, "variant": variant}
            options |= forms[turn % len(forms)]
            options |= {"initial": initial_for(dtype, what, turn // 4)}
            if takes(op, shape, x, what, options):
                taken += 1
                check(op, x, what, **options)
        whole = elements((2 if rung else 21, 3, 19), dtype, what, turn)
        # transposed, with few elements of each result; every second element
        for x in (whole.T, whole[0, :, ::2]) if op == "reduce" else ():
            options = {"axis": 1, "backend": backend, "variant": variant}
            options |= {"initial": initial_for(dtype, what, turn // 4)}
            if takes(op, shape, x, what, options):
                taken += 1
                check(op, x, what, **options)
    assert taken > 20


@each_variant
def test_rows_and_columns_of_many_tiles(
    op: str, backend: str, variant: str, shape: str | None
) -> None:
    taken = 0
    arrays = [((2, 20011), 1), ((2503, 9), 0), ((37, 301), 1)]
    if variant == "stepped_rows":
        arrays = [((2, 40021), 1), ((37, 302), 1)]
    elif variant == "narrow_rows":
        arrays = [((2503, 9), 1), ((401, 37), 1)]
    elif op == "scan" and shape:
        arrays += [((1, 5003), 0)]
    elif op == "reduce":
        rung = backend == "sim" and shape is None  # a block of threads for each result
        arrays += [((8001,), 0), ((7, 2503), 0), ((37, 3, 19) if rung else (137, 3, 301), 1)]
    for dims, axis in arrays:
        for what in ("sum", "max"):
            for form in ({"exclusive": True}, {"reverse": True}) if op == "scan" else ({},):
                x = elements(dims, "float32", what, axis)
                x = x.T if len(dims) == 3 else x[:, ::2] if variant == "stepped_rows" else x
                options = {"axis": axis, "backend": backend, "variant": variant, **form}
                options |= {"initial": 1000 if what == "sum" else 2}
                if takes(op, shape, x, what, options):
                    taken += 1
                    check(op, x, what, **options)
    assert taken


# ---- what NumPy says ----


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_reduce_is_numpys(backend: str) -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3) - 2
    for what, ufunc in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum),
                        ("max", np.maximum)):  # fmt: skip
        for axis in (None, 0, 1, (0, 1), ()):
            want = ufunc.reduce(x, axis=axis, initial=2)
            got = gpuopt.reduce(x, what, axis, initial=2, backend=backend)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    assert gpuopt.reduce(x, "sum", dtype="int8", initial=127, backend=backend) == np.add.reduce(
        x, axis=None, dtype=np.int8, initial=127
    )
    assert gpuopt.reduce([1j, 2], initial=3, backend=backend) == 5 + 1j
    out = np.zeros(3, np.float64)
    assert gpuopt.reduce(x, axis=0, initial=0.5, out=out, backend=backend) is out
    np.testing.assert_array_equal(out, np.add.reduce(x, axis=0, dtype=np.float64, initial=0.5))


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_scan_begins_with_it(backend: str) -> None:
    """As std::inclusive_scan and std::exclusive_scan; np.add.accumulate of [initial, *x]."""
    x = np.array([3, 1, 2], np.int32)
    for what, ufunc in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum),
                        ("max", np.maximum)):  # fmt: skip
        begun = ufunc.accumulate([2, *x])
        np.testing.assert_array_equal(
            gpuopt.scan(x, what, initial=2, backend=backend), begun[1:]
        )
        exclusive = gpuopt.scan(x, what, exclusive=True, initial=2, backend=backend)
        np.testing.assert_array_equal(exclusive, begun[:-1])
    pieces = [[3.0, 1.0], [2.0], [5.0, 7.0]]  # one piece after the other
    total, results = 0.0, []
    for piece in pieces:
        results.append(gpuopt.scan(piece, initial=total, backend=backend))
        total = results[-1][-1]
    np.testing.assert_array_equal(np.concatenate(results), np.cumsum(np.concatenate(pieces)))


@pytest.mark.parametrize("op", ["reduce", "scan"])
@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_limits_of_every_integer_dtype(op: str, backend: str) -> None:
    for dtype in DTYPES[1:9]:
        info = np.iinfo(dtype)
        x = np.full(3, 1, dtype)
        for what, value in (("max", info.max), ("min", info.min), ("max", info.min)):
            options = {"initial": int(value), "backend": backend}
            check(op, x, what, **options)
        for value in (int(info.max) + 1, int(info.min) - 1, 2**70, -(2**70)):
            with pytest.raises(ValueError, match=f"out of bounds for {dtype}"):
                getattr(gpuopt, op)(x, "max", initial=value, backend=backend)


@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_nan_and_infinity(backend: str) -> None:
    x = np.array([1, 2], np.float32)
    for what in ("min", "max", "sum", "prod"):
        assert np.isnan(gpuopt.reduce(x, what, initial=np.nan, backend=backend))
        assert np.isnan(gpuopt.scan(x, what, initial=np.nan, backend=backend)).all()
    assert gpuopt.reduce(x, "max", initial=np.inf, backend=backend) == np.inf
    assert gpuopt.reduce(x, "min", initial=np.inf, backend=backend) == 1
    assert gpuopt.reduce(x.astype("f2"), initial=1e9, backend=backend) == np.inf  # as NumPy


# ---- rounding ----


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_a_result_of_16_bits_is_rounded_once(backend: str, dtype: str) -> None:
    """The sum alone is beyond float16, and 0.1 has been rounded to the dtype."""
    big = 60000
    x = np.array([big, big], dtype_of(dtype))
    assert float(gpuopt.reduce(x, initial=-big, backend=backend)) == float(x[0])
    assert float(gpuopt.scan(x, initial=-big, backend=backend)[-1]) == float(x[0])
    tenth = float(np.array(0.1, dtype_of(dtype)))
    zeros = np.zeros(2, dtype_of(dtype))
    assert float(gpuopt.reduce(zeros, initial=0.1, backend=backend)) == tenth
    assert float(gpuopt.scan(zeros, initial=0.1, backend=backend)[1]) == tenth


# ---- no elements ----

REDUCTIONS = [(backend, variant) for op, backend, variant, _ in ROWS if op == "reduce"]


@pytest.mark.parametrize(
    ("backend", "variant", "shape"), [row[1:] for row in ROWS if row[0] == "reduce"]
)
def test_a_reduction_of_no_elements_is_the_initial_value(
    backend: str, variant: str, shape: str | None
) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    asked = {"axis": 1, "initial": 1, **options}
    if not takes("reduce", shape, np.zeros((3, 0)), "sum", asked):
        with pytest.raises(gpuopt.VariantError):
            gpuopt.reduce(np.zeros((3, 0)), "sum", 1, initial=1, **options)
        return
    for dtype in DTYPES:
        x = np.zeros((3, 0), dtype_of(dtype))
        for what in OPS:
            if scan_takes(what, dtype):
                got = gpuopt.reduce(x, what, 1, initial=1, **options)
                assert got.shape == (3,)
                np.testing.assert_array_equal(got.astype(complex), np.ones(3))
    words = "zero-size array to reduction operation maximum which has no identity"
    with pytest.raises(ValueError, match=words):
        gpuopt.reduce([], "max", **options)
    assert gpuopt.scan([], initial=3, backend=backend).shape == (0,)
