"""gpuopt.chunks: whatever the cuts, the states give the operator's result.

Order: reduce, the sums by place, scan, states, what is refused, overlapping blocks.  Whole
numbers and extremes are compared exactly; a float sum may err by the bound that the module
states, from the reference in a wider dtype.
"""

from __future__ import annotations

import functools
import itertools
import math
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuopt
from gpuopt import chunks, ref

DTYPES = [
    *("bool", "int8", "int32", "int64", "uint8", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
]
Array = np.ndarray[Any, Any]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def numbers(shape: Any, name: str, seed: int = 0) -> Array:
    draw = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if dtype.kind in "biu":
        return draw.integers(0, 2 if dtype.kind == "b" else 100, shape).astype(dtype)
    values = draw.standard_normal(shape)
    return (values + 1j * draw.standard_normal(shape) if dtype.kind == "c" else values).astype(
        dtype
    )


def cuts(length: int, seed: int) -> list[tuple[int, int]]:
    """Begin and end of drawn blocks, some of them empty."""
    edges = np.sort(np.random.default_rng(seed).integers(0, length + 1, 4)).tolist()
    return list(itertools.pairwise([0, *edges, length]))


def unit(dtype: np.dtype[Any]) -> float:
    return {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(
        dtype.name, 2.0**-53 if dtype.name == "complex128" else 2.0**-24
    )


def within(found: Any, exact: Any, size: Any, terms: int, more: int = 14) -> None:
    """The error is at most that of a block of `terms` elements, plus one rounding.

    `size` is the sum of absolute values.  Blocks of 16-bit floats are added in float32.
    """
    found, exact = np.asarray(found), np.asarray(exact)
    assert found.shape == exact.shape
    if found.dtype.kind not in "fcV":
        assert (found == exact).all()
        return
    inner = 2.0**-53 if found.dtype.name in ("float64", "complex128") else 2.0**-24
    steps = math.ceil(math.log2(max(terms, 2))) + more
    wide = np.clongdouble if exact.dtype.kind == "c" else np.longdouble
    error = abs(found.astype(wide) - exact.astype(wide))
    bound = steps * inner * np.asarray(size) + unit(found.dtype) * abs(exact.astype(wide))
    assert (error <= bound + 2.0**-140).all(), (error, bound)


def wide_sum(x: Array, axis: Any) -> Array:
    kind = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    return np.sum(x.astype(kind), axis=axis)


def reduced(x: Array, axis: Any, cut: int, seed: int, **options: Any) -> Any:
    states = []
    for begin, end in cuts(x.shape[cut], seed):
        block = np.moveaxis(np.moveaxis(x, cut, 0)[begin:end], 0, cut)
        offset = begin * (x[0].size if axis is None else 1)
        states.append(chunks.partial("reduce", block, axis=axis, offset=offset, **options))
    return chunks.finish(functools.reduce(chunks.combine, states))


# ---- reduce ----


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("op", ["sum", "mean"])
def test_sums_of_blocks(name: str, op: str) -> None:
    for seed, (axis, cut) in enumerate([(None, 0), (0, 0), (1, 1), (-1, 1), ((0, 1), 1)]):
        x = numbers((67, 41), name, seed)
        found = reduced(x, axis, cut, seed, op=op)
        assert np.asarray(found).dtype == np.asarray(gpuopt.reduce(x, op, axis)).dtype
        count = x.size // np.asarray(found).size if op == "mean" else 1
        size = np.sum(abs(x.astype(np.clongdouble)), axis=axis) / count
        within(
            found, wide_sum(x, axis) / count if op == "mean" else wide_sum(x, axis), size, 2747
        )


@pytest.mark.parametrize("name", DTYPES)
def test_products_of_blocks(name: str) -> None:
    x = numbers((5, 30), name)
    for axis, cut in ((0, 0), (1, 1), (None, 0)):
        found = reduced(x, axis, cut, 3, op="prod")
        exact = ref.reduce(x, "prod", axis)
        assert np.asarray(found).dtype == exact.dtype
        if exact.dtype.kind in "iu":
            assert (found == exact).all()
        else:
            wide = np.clongdouble if exact.dtype.kind == "c" else np.longdouble
            exact = np.prod(x.astype(wide), axis=axis)
            error = abs(np.asarray(found).astype(wide) - exact)
            rounding = (2 * unit(dtype_of(name)) + 3 * x.size * 2.0**-53) * abs(exact)
            least = np.float32(2.0**-24 if name == "float16" else 2.0**-133)
            assert (error <= rounding + least).all()


@pytest.mark.parametrize("name", DTYPES[:10])
@pytest.mark.parametrize("op", ["min", "max", "argmin", "argmax", "any", "all"])
def test_extremes_of_blocks(name: str, op: str) -> None:
    for seed, (axis, cut) in enumerate([(None, 0), (0, 0), (1, 1)] * 3):
        x = numbers((9, 13), name, seed)
        if x.dtype.kind not in "biu" and seed % 3:
            x[seed % 9, seed] = x[seed % 7, 12 - seed] = np.nan
        for keepdims in (False, True):
            found = reduced(x, axis, cut, seed, op=op, keepdims=keepdims)
            exact = ref.reduce(x, op, axis, keepdims)
            assert found.dtype == exact.dtype
            np.testing.assert_array_equal(np.float64(found), np.float64(exact))


def test_the_first_of_equal_elements_is_found_in_any_order() -> None:
    x = np.array([3, 7, 1, 7, 1, 7], np.float32)
    for nan in (None, 2, 4):
        y = x.copy()
        if nan:
            y[[nan, 5]] = np.nan
        for op in ("argmin", "argmax"):
            states = [chunks.partial("reduce", y[k : k + 1], op=op, offset=k) for k in range(6)]
            for order in itertools.permutations(states, 6):
                found = chunks.finish(functools.reduce(chunks.combine, order))
                assert found == ref.reduce(y, op)


def test_blocks_cut_along_two_axes_count_elements_in_c_order() -> None:
    x = numbers((12, 10), "int32")
    for op in ("argmin", "argmax"):
        states = [
            chunks.partial(
                "reduce", x[i : i + 5, j : j + 3], op=op, offset=(i, j), shape=x.shape
            )
            for i in range(0, 12, 5)
            for j in range(0, 10, 3)
        ]
        assert chunks.finish(functools.reduce(chunks.combine, states)) == ref.reduce(x, op)
    with pytest.raises(ValueError, match="needs shape=, that of the whole array"):
        chunks.partial("reduce", x, op="argmax", offset=(0, 0))
    found = chunks.partial("reduce", x, op="argmax", axis=1, offset=(4, 30))
    assert (chunks.finish(found) == ref.reduce(x, "argmax", 1) + 30).all()


def test_initial_counts_once() -> None:
    x = np.arange(1, 7)
    for op, initial in (("sum", 100), ("prod", 2), ("min", -3), ("max", 99)):
        found = reduced(x, 0, 0, 1, op=op, initial=initial)
        assert found == ref.reduce(x, op, initial=initial)
        empty = chunks.partial("reduce", x[:0], op=op, initial=initial)
        assert chunks.finish(empty) == ref.reduce(x[:0], op, initial=initial)
        rows = x.reshape(3, 2).astype(np.float32)
        for axis, keepdims in ((0, False), (1, True)):
            options = {"keepdims": keepdims, "initial": initial}
            found = reduced(rows, axis, axis, 1, op=op, **options)
            np.testing.assert_array_equal(found, ref.reduce(rows, op, axis, **options))
    with pytest.raises(TypeError):
        chunks.partial("reduce", x, op="sum", initial=0.5)


def test_blocks_without_elements() -> None:
    for op in ("min", "max", "argmin", "argmax"):
        empty = chunks.partial("reduce", np.zeros((0, 3)), op=op, axis=0)
        with pytest.raises(ValueError, match=r"zero-size|empty"):
            chunks.finish(chunks.combine(empty, empty))
    assert np.isnan(chunks.finish(chunks.partial("reduce", np.zeros(0), op="mean")))
    assert chunks.finish(chunks.partial("reduce", np.zeros(0))) == 0


def test_a_dtype_holds_for_every_block() -> None:
    x = np.full(4096, 40.0, np.float16)
    assert reduced(x, None, 0, 1, dtype=np.float32) == 4096 * 40
    assert reduced(x, None, 0, 1) == np.inf  # the result is float16
    assert reduced(x, None, 0, 1, op="mean") == 40  # but sums on the way are not
    y = np.full(4096, 2**31 - 1, np.int32)
    assert reduced(y, None, 0, 1, op="mean") == 2**31 - 1
    assert reduced(y, None, 0, 1, op="mean", dtype=np.float16) == np.inf
    large = np.full(4096, 2**62)
    assert reduced(large, None, 0, 1, op="mean") == 2.0**62
    small = np.full(600, 0.25, np.float32)
    assert reduced(np.append(small, 1 / small), None, 0, 5, op="prod") == 1


def test_large_terms_that_cancel_leave_the_small_ones() -> None:
    x = np.array([1e30, 1.0, -1e30, 2.0**-20, 1e30, 3.0, -1e30])
    states = [chunks.partial("reduce", x[k : k + 1]) for k in range(7)]
    assert chunks.finish(functools.reduce(chunks.combine, states[:4])) == 1 + 2.0**-20
    huge = np.array([np.inf, 1.0, -np.inf, np.nan])
    for begin, end, exact in ((0, 2, np.inf), (1, 3, -np.inf), (0, 3, np.nan), (1, 4, np.nan)):
        parts = [chunks.partial("reduce", huge[k : k + 1]) for k in range(begin, end)]
        found = chunks.finish(functools.reduce(chunks.combine, parts))
        np.testing.assert_equal(found, exact)


# ---- dot and the sums by place ----


@pytest.mark.parametrize("name", DTYPES)
def test_dot_of_blocks(name: str) -> None:
    x, y = numbers(1013, name), numbers(1013, name, 1)
    states = [chunks.partial("dot", x[a:b], y[a:b], offset=a) for a, b in cuts(1013, 2)]
    found = chunks.finish(functools.reduce(chunks.combine, states))
    assert found.dtype == gpuopt.dot(x, y).dtype
    if x.dtype.kind in "biu":
        assert found == ref.dot(x, y)
        return
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    a, b = x.astype(wide), y.astype(wide)
    within(found, np.sum(a * b), 2 * np.sum(abs(a * b)), 1013)


def test_dot_of_short_floats_does_not_overflow_within_a_block() -> None:
    x = np.full(40, 200.0, np.float16)
    a, b = chunks.partial("dot", x, x), chunks.partial("dot", x, -x + 1)
    assert chunks.finish(chunks.combine(a, b)) == 40 * 200


@pytest.mark.parametrize("name", ["int32", "int64", *DTYPES[6:]])
@pytest.mark.parametrize("square", [False, True])
def test_partitions_of_blocks_of_any_length(name: str, square: bool) -> None:
    x = numbers(256, name)
    for seed, bits in enumerate([(), (0,), (7,), (3, 0, 6), (7, 6, 5, 4, 3, 2, 1, 0), 5]):
        states = [
            chunks.partial("partition_reduce", x[a:b], bits=bits, square=square, offset=a)
            for a, b in cuts(256, seed)
        ]
        found = chunks.finish(functools.reduce(chunks.combine, states))
        exact = ref.partition_reduce(x, bits, square=square)
        assert found.dtype == exact.dtype
        wide = x.astype(np.clongdouble) if x.dtype.kind == "c" else x.astype(np.longdouble)
        wide = wide.real**2 + wide.imag**2 if square else wide
        kept = (bits,) if isinstance(bits, int) else bits
        index = sum(
            ((np.arange(256) >> b) & 1) << p for p, b in enumerate(kept)
        ) + 0 * np.arange(256)
        sums, sizes = np.zeros(found.size, wide.dtype), np.zeros(found.size, np.longdouble)
        np.add.at(sums, index, wide)
        np.add.at(sizes, index, abs(wide))
        within(found, sums if found.dtype.kind != "i" else exact, sizes, 256)


def test_a_partition_is_checked_when_it_ends() -> None:
    part = chunks.partial("partition_reduce", np.ones(6), bits=1)
    with pytest.raises(ValueError, match="x has 6 elements, which is not a power of two"):
        chunks.finish(part)
    part = chunks.partial("partition_reduce", np.ones(8), bits=(0, 3))
    with pytest.raises(ValueError, match=r"bit 3 is out of range for 2\^3 elements"):
        chunks.finish(part)
    for bits in ((1, 1), -1):
        with pytest.raises(ValueError, match="bits must be distinct and not negative"):
            chunks.partial("partition_reduce", np.ones(8), bits=bits)


@pytest.mark.parametrize("name", DTYPES)
def test_scatter_add_of_blocks(name: str) -> None:
    values, index = numbers(500, name), np.random.default_rng(1).integers(-7, 7, 500)
    states = [
        chunks.partial("scatter_add", values[a:b], index[a:b], size=7, offset=a)
        for a, b in cuts(500, 4)
    ]
    found = chunks.finish(functools.reduce(chunks.combine, states))
    exact = ref.scatter_add(values, index, 7)
    assert found.dtype == exact.dtype
    if exact.dtype.kind in "iu":
        assert (found == exact).all()
        return
    kind = np.clongdouble if values.dtype.kind == "c" else np.longdouble
    sums, sizes = np.zeros(7, kind), np.zeros(7, np.longdouble)
    np.add.at(sums, index % 7, values.astype(kind))
    np.add.at(sizes, index % 7, abs(values.astype(kind)))
    error = abs(found.astype(kind) - sums)
    assert (error <= 500 * 2.0**-53 * sizes + 1.01 * unit(found.dtype) * abs(sums)).all()


@pytest.mark.parametrize("name", DTYPES)
def test_index_add_of_blocks(name: str) -> None:
    for axis in (0, 1, -1):
        x = numbers((6, 5), name)
        shape = (40, 5) if axis == 0 else (6, 40)
        source, index = numbers(shape, name, 1), np.random.default_rng(2).integers(0, 5, 40)
        alpha = 3 if x.dtype.kind in "biu" else 0.5
        states = []
        for a, b in cuts(40, 5):
            block = source[a:b] if axis == 0 else source[:, a:b]
            states.append(
                chunks.partial(
                    *("index_add", index[a:b], block),
                    **{"size": x.shape[axis], "dtype": x.dtype, "axis": axis, "alpha": alpha},
                )
            )
        found = chunks.finish(functools.reduce(chunks.combine, states), x)
        exact = ref.index_add(x, index, source, axis, alpha)
        assert found.dtype == exact.dtype
        assert found.shape == x.shape
        if x.dtype.kind in "biu":
            assert (found == exact).all()
        else:
            error = abs(found.astype(np.clongdouble) - exact.astype(np.clongdouble))
            size = 45 * 4  # 41 terms of at most 4
            bound = 45 * 2.0**-53 * size + 2.02 * unit(x.dtype) * abs(
                exact.astype(np.clongdouble)
            )
            assert (error <= bound).all()


def test_an_index_out_of_range_is_named_by_its_place_in_the_whole() -> None:
    with pytest.raises(IndexError, match="index 9 at position 101 is out of bounds"):
        chunks.partial("scatter_add", [1.0, 2.0], [0, 9], size=3, offset=100)
    with pytest.raises(IndexError, match="index -4 at position 50 is out of bounds"):
        chunks.partial("index_add", [-4], [1.0], size=3, offset=50)


# ---- scan ----


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_continues(name: str, op: str, reverse: bool) -> None:
    if op in ("min", "max") and name.startswith("complex"):
        with pytest.raises(TypeError):
            chunks.scan(numbers(3, name), op=op)
        return
    for axis, exclusive, initial in itertools.product((0, 1), (False, True), (None, 1)):
        for shape in ((23, 4), (1, 23) if axis else (23, 1)):
            x = numbers(shape, name)
            options = {"op": op, "axis": axis, "exclusive": exclusive, "initial": initial}
            options = {k: v for k, v in options.items() if v is not None}
            state, parts = None, []
            blocks = cuts(x.shape[axis], 6)
            for a, b in reversed(blocks) if reverse else blocks:
                block = x[a:b] if axis == 0 else x[:, a:b]
                parts.append(chunks.scan(block, state, reverse=reverse, **options))
                part = chunks.partial("scan", block, reverse=reverse, **options)
                state = part if state is None else chunks.combine(state, part)
            found = np.concatenate(parts[::-1] if reverse else parts, axis)
            exact = ref.scan(x, reverse=reverse, **options)
            assert found.dtype == exact.dtype
            if exact.dtype.kind in "biu" or op in ("min", "max"):
                assert (found == exact).all()
                continue
            kind = np.clongdouble if x.dtype.kind == "c" else np.longdouble
            size = ref.scan(abs(x.astype(kind)).astype(np.float64), reverse=reverse, **options)
            terms = 23 + 5 if op == "prod" else math.ceil(math.log2(23)) + 48 + 3
            inner = max(unit(x.dtype) if op == "prod" else 0, 2.0**-53)
            inner = inner if x.dtype.name in ("float64", "complex128") else max(inner, 2.0**-24)
            error = abs(found.astype(kind) - exact.astype(kind))
            bound = 2 * terms * inner * size + 2.02 * unit(x.dtype) * abs(exact.astype(kind))
            assert (error <= bound + 2.0**-24).all()


def test_what_a_scan_carries_is_not_rounded_block_by_block() -> None:
    x = np.full(3000, 0.1, np.float32)
    state, last = None, np.float32(0)
    for k in range(3000):
        last = chunks.scan(x[k : k + 1], state)[0]
        part = chunks.partial("scan", x[k : k + 1])
        state = part if state is None else chunks.combine(state, part)
    assert abs(last - 3000 * np.float64(np.float32(0.1))) <= 3 * 2.0**-24 * 300
    assert state is not None
    assert chunks.finish(state)[0] == np.float32(3000 * np.float64(np.float32(0.1)))


# ---- states ----


def test_combine_is_associative() -> None:
    x = numbers(64, "float64")
    s = [chunks.partial("reduce", x[k : k + 8]) for k in range(0, 64, 8)]
    one_by_one = chunks.finish(functools.reduce(chunks.combine, s))
    pairs = s
    while len(pairs) > 1:
        pairs = [chunks.combine(pairs[k], pairs[k + 1]) for k in range(0, len(pairs), 2)]
    exact = math.fsum(float(chunks.finish(part)) for part in s)
    for found in (one_by_one, chunks.finish(pairs[0])):
        assert abs(found - exact) <= 2.0**-53 * abs(exact) + 8 * 2.0**-104 * np.sum(abs(x))


def test_states_travel_between_processes() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for state in (
        chunks.partial("reduce", x, op="mean", axis=0),
        chunks.partial("reduce", x, op="argmax", axis=1, offset=5),
        chunks.partial("partition_reduce", x.ravel()[:8], bits=(0, 1)),
        chunks.partial("reduce", gpuopt.asdevice(x, backend="sim")),
    ):
        back = pickle.loads(pickle.dumps(state))
        assert isinstance(back.value, np.ndarray)
        np.testing.assert_array_equal(chunks.finish(back), chunks.finish(state))
        found = chunks.finish(chunks.combine(back, state))
        np.testing.assert_array_equal(found, chunks.finish(chunks.combine(state, state)))


def test_blocks_on_a_device_stay_there() -> None:
    """Here in the simulator's memory: the state's value is brought to the host by combine."""
    x, index = numbers(40, "float32"), np.random.default_rng(3).integers(0, 4, 40)
    put = functools.partial(gpuopt.asdevice, backend="sim")
    d, i = put(x), put(index)
    halves = (slice(0, 15), slice(15, 40))
    for op in ("sum", "mean", "prod", "max", "argmin", "argmax"):
        a, b = (chunks.partial("reduce", d[s], op=op, offset=s.start) for s in halves)
        assert isinstance(a.value, gpuopt.DeviceArray)
        c, e = (chunks.partial("reduce", x[s], op=op, offset=s.start) for s in halves)
        found, host = (chunks.finish(chunks.combine(*p)) for p in ((a, b), (c, e)))
        np.testing.assert_allclose(found, host, rtol=1e-5, atol=0)
    for blocks, options in (
        ((d, d), {"operator": "dot"}),
        ((d, i), {"operator": "scatter_add", "size": 4}),
        ((i, d), {"operator": "index_add", "size": 4}),
    ):
        name = str(options.pop("operator"))
        a, b = (chunks.partial(name, *(k[s] for k in blocks), **options) for s in halves)
        more = {"x": np.zeros(4, np.float32)} if name == "index_add" else {}
        found = chunks.finish(chunks.combine(a, b), **more)
        exact = ref.dot(x, x) if name == "dot" else ref.scatter_add(x, index, 4)
        np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    state = chunks.partial("scan", d[:15])
    y = chunks.scan(d[15:], state)
    assert isinstance(y, gpuopt.DeviceArray)
    np.testing.assert_allclose(y.numpy(), ref.scan(x)[15:], rtol=1e-5, atol=1e-5)
    rows = d.reshape(4, 10)
    y = chunks.scan(rows[2:], chunks.partial("scan", rows[:2], axis=0), axis=0)
    np.testing.assert_allclose(
        y.numpy(), ref.scan(x.reshape(4, 10), axis=0)[2:], rtol=1e-5, atol=1e-5
    )


# ---- what is refused ----


def test_states_of_different_calls_are_refused() -> None:
    part = functools.partial(chunks.partial, "reduce")
    with pytest.raises(ValueError, match="states of different calls: reduce sum, reduce max"):
        chunks.combine(part([1.0]), part([1.0], op="max"))
    with pytest.raises(TypeError, match="different dtypes, float64 and int64"):
        chunks.combine(part([1.0]), part([1]))
    with pytest.raises(TypeError, match="blocks have different dtypes, float64 and int64"):
        chunks.combine(part([1.0], op="argmax"), part([1], op="argmax"))
    with pytest.raises(ValueError, match=r"states of shapes \(3,\) and \(2,\) do not combine"):
        chunks.combine(part(np.ones((2, 3)), axis=0), part(np.ones((2, 2)), axis=0))
    with pytest.raises(ValueError, match="not of this scan but of reduce sum"):
        chunks.scan([1.0], part([1.0]))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: chunks.partial("exp", [1.0]), ValueError, "no state of 'exp'"),
        (lambda: chunks.partial("causal_conv1d", [1.0]), ValueError, "overlap by chunks.halo"),
        (lambda: chunks.partial("reduce", [1.0], axis=()), ValueError, "combines nothing"),
        (
            lambda: chunks.partial("reduce", [1.0], where=1),
            TypeError,
            "'where' is not an option",
        ),
        (lambda: chunks.partial("reduce", [1.0], out=1), TypeError, "a block has no out="),
        (lambda: chunks.partial("dot", [1.0]), TypeError, "dot takes 2 blocks"),
        (lambda: chunks.partial("reduce", [1.0], op="median"), ValueError, "median"),
        (lambda: chunks.partial("reduce", ["a"]), TypeError, "does not support"),
        (lambda: chunks.partial("reduce", np.ma.array([1.0])), TypeError, "mask"),
        (lambda: chunks.partial("scatter_add", [1.0], [0]), TypeError, "'size'"),
        (lambda: chunks.partial("index_add", [0], [1.0]), TypeError, "'size'"),
        (lambda: chunks.partial("partition_reduce", [0]), TypeError, "'bits'"),
        (
            lambda: chunks.finish(chunks.partial("index_add", [0], [1.0], size=2)),
            TypeError,
            "needs x",
        ),
        (
            lambda: chunks.finish(chunks.partial("index_add", [0], [1.0], size=2), np.ones(3)),
            ValueError,
            r"x must have shape \(2,\)",
        ),
        (lambda: chunks.halo("reduce"), ValueError, "do not overlap"),
        (lambda: chunks.halo("causal_conv1d"), TypeError, "kernel_size"),
        (lambda: chunks.halo("causal_conv1d", kernel_size=0), ValueError, "positive"),
        (
            lambda: chunks.halo("causal_conv1d", kernel_size=2, segments=[0, 1]),
            ValueError,
            "cut between the segments",
        ),
        (lambda: chunks.halo("max_pool1d"), TypeError, "kernel_size"),
        (lambda: chunks.halo("max_pool1d", kernel_size=0), ValueError, "positive"),
        (lambda: chunks.halo("max_pool1d", kernel_size=2, ceil_mode=True), ValueError, "ceil"),
        (lambda: chunks.halo("max_pool1d", kernel_size=2, pad=1), TypeError, "'pad'"),
        (lambda: chunks.aligned("upsample_nearest", size=4), ValueError, "scale="),
        (lambda: chunks.aligned("upsample_nearest", scale=1.5, length=4), ValueError, "1.5"),
        (lambda: chunks.aligned("upsample_nearest", scale=2), TypeError, "length"),
        (
            lambda: chunks.aligned("upsample_nearest", scale=41, length=3),
            ValueError,
            "float32 rounds some places",
        ),
    ],
)
def test_what_blocks_cannot_do_is_refused(
    call: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()


# ---- overlapping blocks ----


@pytest.mark.parametrize("taps", [1, 2, 5, 40])
def test_blocks_of_a_causal_convolution_overlap_by_its_halo(taps: int) -> None:
    x, w = numbers((2, 3, 60), "float64"), numbers((3, taps), "float64", 1)
    dy = numbers((2, 3, 60), "float64", 2)
    before, after = chunks.halo("causal_conv1d", kernel_size=taps)
    assert (before, after) == (taps - 1, 0)
    assert chunks.aligned("causal_conv1d", kernel_size=taps) == 1
    for a, b in cuts(60, 7):
        first = max(a - before, 0)
        if b > a:
            y = gpuopt.causal_conv1d(x[:, :, first:b], w, activation="silu")[:, :, a - first :]
            np.testing.assert_allclose(
                y, ref.causal_conv1d(x, w, activation="silu")[:, :, a:b], atol=1e-12
            )
    before, after = chunks.halo("causal_conv1d_backward", kernel_size=taps)
    whole = ref.causal_conv1d_backward(dy, x, w, activation="silu")[0]
    for a, b in cuts(60, 8):
        first, last = max(a - before, 0), min(b + after, 60)
        if b > a:
            part = slice(first, last)
            dx = gpuopt.causal_conv1d_backward(
                dy[:, :, part], x[:, :, part], w, activation="silu", variant="simd"
            )[0]
            np.testing.assert_allclose(
                dx[:, :, a - first : b - first], whole[:, :, a:b], atol=1e-12
            )


@pytest.mark.parametrize(
    ("size", "stride", "padding", "dilation"),
    [(2, None, 0, 1), (3, 1, 1, 1), (3, 2, 0, 2), (2, 4, 1, 1), (5, 3, 2, 1)],
)
def test_blocks_of_a_pooling_overlap_by_its_halo(
    size: int, stride: int | None, padding: int, dilation: int
) -> None:
    x = numbers((1, 2, 240), "float32")
    options = {"kernel_size": size, "stride": stride, "padding": padding, "dilation": dilation}
    before, after = chunks.halo("max_pool1d", **options)
    step = chunks.aligned("max_pool1d", **options)
    assert step == (stride or size)
    whole = ref.max_pool1d(x, **options)
    assert chunks.halo("max_pool3d", axis=1, **{**options, "kernel_size": (9, size, 9)})[1] == (
        after if stride else chunks.halo("max_pool1d", **options)[1]
    )
    padded = np.full((1, 2, 240 + 2 * padding + 60), -np.inf, np.float32)
    padded[:, :, padding : padding + 240] = x
    for a in range(0, 240, 12 * step):
        b = min(a + 12 * step, 240)
        block = padded[:, :, a + padding - before : b + padding + after]
        y = ref.max_pool1d(block, size, stride, 0, dilation)
        exact = whole[:, :, a // step : b // step]
        count = min(exact.shape[2], y.shape[2])
        assert count == exact.shape[2]
        np.testing.assert_array_equal(y[:, :, :count], exact)


@pytest.mark.parametrize("exact", [False, True])
def test_blocks_of_an_upsampling_need_no_halo(exact: bool) -> None:
    x = numbers((1, 2, 37), "float32")
    for scale in (1, 2, 3, 8):
        options = {"scale": scale, "exact": exact, "length": 37}
        assert chunks.halo("upsample_nearest", **options) == (0, 0)
        assert chunks.aligned("upsample_nearest", **options) == 1
        whole = gpuopt.upsample_nearest(x, scale=scale, exact=exact)
        parts = [
            gpuopt.upsample_nearest(x[:, :, a:b], scale=scale, exact=exact)
            for a, b in cuts(37, 9)
            if b > a
        ]
        np.testing.assert_array_equal(np.concatenate(parts, 2), whole)
