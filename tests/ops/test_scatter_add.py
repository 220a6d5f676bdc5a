"""scatter_add beyond the matrix: the meaning of an index, difficult values, published bugs.

Order: what NumPy says, indices out of bounds, modes, out=, deterministic=, special values,
accuracy, pinned bugs, counts, faults, large indices, the table of the source document.
See test_contract.py for values on all sizes, layouts and dtypes.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, determinism, dtype_of, flushes, smallest, unit
from cases.scatter_add import scatter_add_expect
from conftest import ROOT, Figure

import gpuopt
from gpuopt import _core, ref, scatter_add


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("scatter_add")
        if row["available"] and usable[row["backend"]] is None
    ]


# Tests of every variant call with any dtype, and with out=, which these do not take.
SPLITS = ("ascending", "buckets", "ordered_buckets")
each_variant = pytest.mark.parametrize(
    ("backend", "variant"), [(b, name) for b, name in variants() if name not in SPLITS]
)
each_row = pytest.mark.parametrize(("backend", "variant"), variants())
RUNGS = [name for backend, name in variants() if backend == "sim"]
each_rung = pytest.mark.parametrize("rung", RUNGS)

FLOATS = ("float16", "bfloat16", "float32", "float64")


@pytest.fixture
def configure() -> Iterator[Callable[..., dict[str, Any]]]:
    """Settings of the simulator for one test."""
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


def takes(backend: str, variant: str, dtype: str) -> bool:
    """Whether a row takes values of a dtype."""
    return any(
        dtype in row["dtypes"]
        for row in _core.variants("scatter_add")
        if (row["backend"], row["name"]) == (backend, variant)
    )


# ---- what NumPy says ----


def most(variant: str, n: int) -> int:
    """n, or as many elements as the variant takes."""
    return min(n, 4096) if variant in ("one_launch", "one_table") else n


@each_variant
def test_bincount_with_weights(backend: str, variant: str) -> None:
    rng = np.random.default_rng(1)
    for n, size in ((0, 3), (1, 1), (1000, 7), (1000, 900)):
        index, weights = rng.integers(0, size, n), rng.integers(-9, 9, n).astype(float)
        got = scatter_add(weights, index, size, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.bincount(index, weights, size))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "complex64"])
def test_result_dtype_is_that_of_a_sum(dtype: str) -> None:
    values = np.array([1, 0, 1], dtype)
    got = scatter_add(values, [0, 1, 0], 2)
    assert got.dtype == np.sum(values).dtype
    np.testing.assert_array_equal(got, [2, 0])


def test_the_reference_means_what_numpy_means() -> None:
    rng = np.random.default_rng(2)
    values, index = rng.integers(-9, 9, 50), rng.integers(-4, 4, 50)
    want = np.zeros(4, np.int64)
    np.add.at(want, index, values)
    np.testing.assert_array_equal(ref.scatter_add(values, index, 4), want)
    for mode in ("wrap", "clip"):
        far = index * 3
        want = np.zeros(4, np.int64)
        np.add.at(want, np.take(np.arange(4), far, mode=mode), values)
        np.testing.assert_array_equal(ref.scatter_add(values, far, 4, mode), want)
    out = np.empty(4, np.int64)
    assert ref.scatter_add(values, index, 4, out=out) is out
    for arguments, error in (
        (([1], [0, 1], 2), ValueError),
        (([1], [0.0], 2), TypeError),
        (([1], [0], -2), ValueError),
        (([1], [2], 2), IndexError),
        (([1], [0], 0, "wrap"), IndexError),
        (([1], [0], 2, "near"), ValueError),
        (([1], [0], 2, "raise", False, np.zeros(3)), ValueError),
    ):
        with pytest.raises(error):
            ref.scatter_add(*arguments)


# ---- indices out of bounds ----


BAD: tuple[tuple[Any, str, int, str], ...] = (
    ([0, 1, 4, 7], "int64", 4, "index 4 at position 2 is out of bounds for axis 0 with size 4"),
    ([0, -5, 9], "int32", 4, "index -5 at position 1 is out of bounds for axis 0 with size 4"),
    (
        [-(2**63)],
        "int64",
        4,
        f"index {-(2**63)} at position 0 is out of bounds for axis 0 with",
    ),
    ([2**64 - 1], "uint64", 4, f"index {2**64 - 1} at position 0 is out of bounds for axis 0"),
    ([3, 200], "uint8", 9, "index 200 at position 1 is out of bounds for axis 0 with size 9"),
    ([0], "int64", 0, "index 0 at position 0 is out of bounds for axis 0 with size 0"),
)


@each_row
@pytest.mark.parametrize(("index", "dtype", "size", "words"), BAD)
def test_an_index_out_of_bounds(
    backend: str, variant: str, index: Any, dtype: str, size: int, words: str
) -> None:
    """The error names the first one; the next valid call is right."""
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    values = np.ones(len(index), np.float32)
    with pytest.raises(IndexError, match=f"^{words}"):
        scatter_add(values, np.array(index, dtype), size, **options)
    np.testing.assert_array_equal(scatter_add(values[:1], [-1], 2, **options), [0, 1])


@each_variant
def test_the_first_of_many_bad_indices(backend: str, variant: str) -> None:
    rng = np.random.default_rng(3)
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    n = most(variant, 1100 if backend == "sim" else 300_000)
    for first in (0, 7, n // 2 + 1, n - 1):
        index = rng.integers(-50, 50, n)
        index[first] = 50
        index[first + 1 :: 3] = 77
        for values, places in (
            (np.ones(n, np.float32), index),
            (np.ones((2, n // 2)), index.reshape(n // 2, 2).T.copy().T.reshape(2, n // 2)),
            (np.ones(n, np.int8), np.repeat(index, 2)[::2].astype(np.int32)),
            (np.ones((n // 2, 2)).T, np.asfortranarray(index.reshape(2, n // 2))),
        ):
            with pytest.raises(IndexError, match=f"^index 50 at position {first} is out"):
                scatter_add(values, places, 50, **options)


@each_variant
def test_out_is_not_written_before_the_indices_are_known(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for dtype in ("float16", "float32", "float64", "int64", "complex64"):
        out = np.full(4, 7, dtype)
        with pytest.raises(IndexError):
            scatter_add(np.ones(5, dtype), [0, 1, 2, 3, 4], 4, out=out, **options)
        assert (out == 7).all(), dtype
        got = scatter_add(np.ones(5, dtype), [0, 1, 2, 3, -1], 4, out=out, **options)
        assert got is out
        np.testing.assert_array_equal(out, [1, 1, 1, 2])


# ---- modes ----


@each_variant
def test_modes_are_those_of_take(backend: str, variant: str) -> None:
    near = [0, 4, 5, 11, -1, -5, -6]
    far = [*near, 2**40, -(2**40), 2**63 - 1, -(2**63)]
    for mode in ("wrap", "clip"):  # np.take wraps by subtracting: the far ones take ages
        places = [k % 5 if mode == "wrap" else min(max(k, 0), 4) for k in far]
        taken = np.take(np.arange(5), near, mode=mode)
        np.testing.assert_array_equal(taken, places[: len(near)])
        values = np.array([1 << k for k in range(len(far))], np.int64)
        want = np.zeros(5, np.int64)
        np.add.at(want, places, values)
        got = scatter_add(values, far, 5, mode, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want, err_msg=mode)
        huge = [2**64 - 1, 2**63, 4]
        want = np.zeros(5, np.int64)
        np.add.at(want, [k % 5 if mode == "wrap" else 4 for k in huge], [1, 2, 4])
        index = np.array(huge, np.uint64)
        got = scatter_add([1, 2, 4], index, 5, mode, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want, err_msg=mode)


# ---- out= ----


@each_variant
def test_out_of_any_stride(backend: str, variant: str) -> None:
    base = np.full(9, 9.0)
    out = base[1:8:2]
    got = scatter_add([1.0, 2.0, 4.0], [3, 0, 3], 4, out=out, backend=backend, variant=variant)
    assert got is out
    np.testing.assert_array_equal(base, [9, 2, 9, 0, 9, 0, 9, 5, 9])


# ---- deterministic= ----


@each_row
def test_deterministic_refuses_atomics(backend: str, variant: str) -> None:
    row = next(
        r
        for r in _core.variants("scatter_add")
        if (r["backend"], r["name"]) == (backend, variant)
    )
    one = np.ones(1, np.float32)
    call = {"deterministic": True, "backend": backend, "variant": variant}
    if row["determinism"] == "no":
        with pytest.raises(gpuopt.VariantError, match=rf"deterministic=True.*'{variant}'"):
            scatter_add(one, [0], 1, **call)
    else:
        assert scatter_add(one, [0], 1, **call) == 1


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_deterministic_picks_a_rung_that_is() -> None:
    def chosen(size: int, n: int, dtype: str = "float32", **options: Any) -> str:
        values, index = np.zeros(n, dtype), np.zeros(n, np.int64)
        return str(
            _core.plan("scatter_add", values, index, size, backend="sim", **options)["variant"]
        )

    assert chosen(1000, 100_000, deterministic=True) == "v3"
    assert chosen(100_000, 100_000, deterministic=True) == "ordered_buckets"
    assert chosen(3072, 100_000, deterministic=True) == "v3"
    assert chosen(3073, 100_000, deterministic=True) == "ordered_buckets"
    assert chosen(3073, 100_000, "complex64", deterministic=True) == "v3"
    assert chosen(100_000, 100_000, "complex64", deterministic=True) == "v4"
    assert chosen((1 << 22) + 1, 10_000, deterministic=True) == "v4"
    assert chosen(90_000, 100_000, "int32", deterministic=True) == "long_result"
    assert chosen(1000, 200_000) == "v1"
    assert chosen(1000, 100_000) == "long_result"
    assert chosen(10_000, 4097) == chosen(512 * 8192 + 1, 1, "float64") == "long_result"
    assert chosen(1000, 4096, deterministic=True) == "one_launch"
    assert chosen(1000, 4096, "int32", deterministic=True) == "one_table"
    assert chosen(1000, 4096) == chosen(512 * 8192, 1) == "one_table"
    assert chosen(100_000, 1_000_000) == "long_result"


# ---- special values ----


@pytest.mark.parametrize(
    ("backend", "variant", "dtype"),
    [(*row, dtype) for row in variants() for dtype in FLOATS if takes(*row, dtype)],
)
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """n = 1..70: packs, heads and tails; the nan reaches its place and no other."""
    kind = dtype_of(dtype)
    lengths = range(1, 71) if dtype == "float32" or backend == "cpu" else (1, 2, 33, 70)
    for n in lengths:
        values = np.ones(n, kind)
        index = np.arange(n) % 3
        for k in range(n) if backend == "cpu" else {0, n // 2, n - 1}:
            values[k] = np.nan
            got = scatter_add(values, index, 4, backend=backend, variant=variant)
            np.testing.assert_array_equal(
                np.isnan(got.astype(np.float32)), np.arange(4) == k % 3, err_msg=f"{n} {k}"
            )
            values[k] = 1


@each_variant
def test_infinities_meet_as_nan(backend: str, variant: str) -> None:
    values = np.array([np.inf, -np.inf, np.inf, np.inf, 1], np.float64)
    got = scatter_add(values, [0, 0, 1, 1, 2], 4, backend=backend, variant=variant)
    assert math.isnan(got[0])
    np.testing.assert_array_equal(got[1:], [np.inf, 1, 0])


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074)):
        values = np.full(40, tiny).astype(dtype)
        got = scatter_add(values, np.zeros(40, np.int64), 1, backend=backend, variant=variant)
        assert float(got[0]) == 40 * tiny or (
            flushes(backend, determinism("scatter_add", backend, variant), dtype)
            and got[0] == 0
        )


@each_variant
def test_integers_wrap_as_numpys(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    got = scatter_add(np.array([2**63 - 1, 1], np.int64), [0, 0], 1, **options)
    assert got[0] == -(2**63)
    assert scatter_add(np.array([2**64 - 1, 2], np.uint64), [0, 0], 1, **options)[0] == 1
    got = scatter_add(np.full(300, -128, np.int8), np.zeros(300, np.int8), 1, **options)
    assert (got.dtype, got[0]) == (np.int64, -38_400)
    got = scatter_add(np.full(300, 255, np.uint8), np.zeros(300, np.int8), 1, **options)
    assert (got.dtype, got[0]) == (np.uint64, 76_500)
    raw = np.array([0, 1, 2, 255], np.uint8).view(bool)  # any nonzero byte is true
    assert scatter_add(raw, [0, 0, 0, 0], 1, **options)[0] == 3


# ---- accuracy ----


@each_row
def test_halves_are_added_in_float64(backend: str, variant: str) -> None:
    """A float16 accumulator stops at 2048 ones."""
    n = 4090
    for dtype in (np.dtype(np.float16), BFLOAT16):
        got = scatter_add(
            np.ones(n, dtype), np.zeros(n, np.int32), 1, backend=backend, variant=variant
        )
        assert got[0] == np.float32(n).astype(dtype)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "one place": lambda rng, size, n: np.full(n, size - 1),
    "zipf": lambda rng, size, n: np.minimum(rng.zipf(1.3, n), size) - 1,
    "sorted": lambda rng, size, n: np.sort(rng.integers(0, size, n)),
    "uniform": lambda rng, size, n: rng.integers(0, size, n),
}


def exact_sums(values: Any, index: Any, size: int) -> tuple[Any, Any, Any]:
    """Sums by math.fsum, sums of absolute values and counts of each place."""
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(size + 1))
    count, ordered = np.diff(ends), values[order]
    exact = np.zeros(size)
    for n in (1, 2):  # the sum of two numbers is rounded once, as by math.fsum
        exact[count == n] = sum(ordered[ends[:-1][count == n] + i] for i in range(n))
    listed = ordered.tolist()
    for k in np.flatnonzero(count > 2):
        exact[k] = math.fsum(listed[ends[k] : ends[k + 1]])
    total = np.bincount(index, np.abs(values), minlength=size)
    return exact, total, count


@each_row
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_every_variant_keeps_the_stated_bound(
    backend: str, variant: str, distribution: str
) -> None:
    """|error| <= u |result| + n 2^-53 sum|x|, n values in a place, for every dtype.

    Addends of less than half a unit of 1 come after a 1: a running float32 sum, or one of
    16 bits, never takes one of them.  bfloat16 is rounded by way of float32.
    """
    shapes = ((1, 3000), (7, 3000), (1000, 2000), (9000, 3000))
    if backend != "sim":
        shapes = ((1, 66_000), (7, 70_000), (1000, 20_000), (9000, 5000))
    for turn, (size, given) in enumerate(shapes):
        n = most(variant, given)
        for dtype in (*FLOATS, "complex64", "complex128"):
            if not takes(backend, variant, dtype):
                continue
            kind = dtype_of(dtype)
            u = unit(kind)
            rng = np.random.default_rng([turn, *dtype.encode()])
            index = DISTRIBUTIONS[distribution](rng, size, n)
            small = rng.uniform(0.6, 0.9, n) * u
            small[np.unique(index, return_index=True)[1]] = 1
            for parts in (small, rng.standard_normal(n), rng.uniform(0, 1, n)):
                values = (parts + 1j * parts[::-1] if kind.kind == "c" else parts).astype(kind)
                got = scatter_add(values, index, size, backend=backend, variant=variant)
                both = [(got.real, values.real), (got.imag, values.imag)]
                for y, x in both if kind.kind == "c" else [(got, values)]:
                    exact, total, count = exact_sums(x.astype(np.float64), index, size)
                    bound = u * np.abs(exact) * 1.01 + count * 2.0**-53 * total
                    error = np.abs(y.astype(np.float64) - exact)
                    assert np.all(error <= bound + smallest(kind)), (dtype, size, n)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_default_has_one_order_of_additions(dtype: str, threads: int) -> None:
    """One thread and several use different variants, which return the same bits."""
    rng = np.random.default_rng(13)
    for n, size in ((300_000, 7), (300_000, 1000), (500_000, 30_000), (100_000, 24_999)):
        values, index = rng.standard_normal(n).astype(dtype), rng.integers(0, size, n)
        found = []
        for team in (1, threads):
            gpuopt.set_num_threads(team)
            for deterministic in (False, True):
                got = scatter_add(
                    values, index, size, deterministic=deterministic, backend="cpu"
                )
                found.append(got.tobytes())
        assert len(set(found)) == 1, (n, size)


def test_error_bound_is_printed(figure: Figure) -> None:
    """The largest error of float32 sums as a share of the bound, mostly one rounding."""
    worst, where = 0.0, ""
    for backend, variant in variants():
        n = most(variant, 4097 if backend == "sim" else 2**18 + 3)
        rng = np.random.default_rng(n)
        values = rng.uniform(0.5, 1.5, n).astype(np.float32)
        index = rng.integers(0, 5, n)
        got = scatter_add(values, index, 5, backend=backend, variant=variant)
        exact = np.bincount(index, values.astype(np.float64), 5)
        bound = np.bincount(index) * 2.0**-52 * exact + 2.0**-24 * exact
        share = float(np.max(np.abs(got - exact) / bound))
        assert share <= 1, (backend, variant)
        if not share <= worst:
            worst, where = share, f"{backend} {variant}, n = {n}"
    figure("largest float32 scatter_add error", f"{worst:.1%} of the bound ({where})")


# ---- pinned bugs of the source document ----


@each_variant
def test_pinned_the_private_place_is_used(backend: str, variant: str) -> None:
    """Method A as published computes blockOutInd and adds at outInd: one copy gets all."""
    n, size = most(variant, 5000), 3
    values = np.arange(n) % 13
    got = scatter_add(values, np.arange(n) % size, size, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, np.bincount(np.arange(n) % size, values, size))


@each_variant
def test_pinned_no_tail_is_dropped(backend: str, variant: str) -> None:
    """Grids of n / 256 drop the last elements."""
    for n in [*range(1, 300, 37), 511, 512, 513, 1023, 1025, 2047, 2049, 4095, 4097]:
        n = most(variant, n)
        values = np.zeros(n, np.int32)
        values[-1] = 5
        for stride in (1, 2):
            index = np.full(stride * n, 2, np.int64)[::stride]
            got = scatter_add(values, index, 4, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, [0, 0, 5, 0], err_msg=str(n))


@each_variant
def test_pinned_memory_is_cleared_each_time(backend: str, variant: str) -> None:
    """cudaMemset(&pointer, ...) clears the pointer; shared memory is never cleared."""
    for _ in range(3):
        for size in (5, 2000):
            got = scatter_add([1.0, 1.0], [1, 1], size, backend=backend, variant=variant)
            assert got[1] == 2
            assert np.count_nonzero(got) == 1


@each_row
def test_pinned_misaligned_starts(backend: str, variant: str) -> None:
    """16-byte loads of indices and values whose starts differ."""
    base = np.arange(700, dtype=np.float32)
    places = np.arange(700) % 9
    for dtype in (np.int32, np.int64):
        index = places.astype(dtype)
        for a in range(5):
            for b in range(4):
                for n in (0, 1, 5, 64, 600):
                    v, i = base[a : a + n], index[b : b + n]
                    got = scatter_add(v, i, 9, backend=backend, variant=variant)
                    want = np.bincount(i, v, 9)
                    np.testing.assert_array_equal(got, want, err_msg=f"{dtype} {a} {b} {n}")


@each_variant
def test_a_result_longer_than_any_table(backend: str, variant: str) -> None:
    """v1's shared table ends at 227 KB, v3 takes tiles of 12 KB."""
    size = 40_000
    index = np.array([0, 1535, 1536, 29_055, 29_056, 29_057, size - 1, -1])
    values = np.arange(1.0, 9.0)
    got = scatter_add(values, index, size, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, ref.scatter_add(values, index, size))


@each_variant
def test_one_place_gets_everything(backend: str, variant: str) -> None:
    n = most(variant, 5000)
    values = np.arange(n, dtype=np.float64)
    for place in (0, 699):
        got = scatter_add(values, np.full(n, place), 700, backend=backend, variant=variant)
        assert got[place] == n * (n - 1) / 2
        assert np.count_nonzero(got) == 1
        index = np.sort(np.arange(n) * 7 % 700)
        got = scatter_add(values, index, 700, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.bincount(index, values, 700))


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex64"])
@pytest.mark.parametrize("size", [98_304, 98_305, 250_001])
def test_long_result_in_ranges(size: int, dtype: str) -> None:
    """Sums of 768 KB and more, of which the simulated L2 holds three quarters of 1 MiB."""
    rng = np.random.default_rng(size)
    n = 3000
    index = np.concatenate([rng.integers(-size, size, n - 4), [0, size - 1, -1, -size]])
    values = rng.integers(-9, 10, n).astype(dtype)
    options: dict[str, Any] = {"backend": "sim", "variant": "long_result"}
    want = ref.scatter_add(values, index, size)
    np.testing.assert_array_equal(scatter_add(values, index, size, **options), want)
    index[7] = size
    out = np.full(size, 5, want.dtype)
    with pytest.raises(IndexError, match="position 7 "):
        scatter_add(values, index, size, out=out, **options)
    assert (out == 5).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64", "complex128"])
@pytest.mark.parametrize("variant", ["long_result", "one_table"])
def test_lanes_of_one_place_anywhere(variant: str, dtype: str) -> None:
    """Places that 1 to 32 lanes share, side by side and apart, also with lanes of no place."""
    rng = np.random.default_rng(5)
    options: dict[str, Any] = {"backend": "sim", "variant": variant}
    for places in (1, 2, 5, 9, 40, 3000):
        for n in (1, 31, 97, 1500):
            index = rng.integers(0, places, n)
            index[rng.integers(0, n, n // 2)] = rng.integers(places)
            for order in (index, np.sort(index), index.astype(np.int32)[::-1]):
                values = rng.integers(-9, 10, n).astype(dtype)
                got = scatter_add(values, order, 3000, **options)
                np.testing.assert_array_equal(got, ref.scatter_add(values, order, 3000))
    size = 98_305  # of two ranges, with few elements of the second
    index = np.repeat(rng.integers(0, 99, 800), 4)
    index[::50] = size - 1
    values = rng.integers(-9, 10, 3200).astype(dtype)
    np.testing.assert_array_equal(
        scatter_add(values, index, size, **options), ref.scatter_add(values, index, size)
    )


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "complex128"])
def test_long_result_joins_the_hot_places_of_a_block(dtype: str) -> None:
    """A third of the elements want one place, others may share its slot; also in ranges."""
    from gpuopt.lab.profile import profile

    rng = np.random.default_rng(6)
    for n, size, hot in ((511, 5000, 4999), (5000, 5000, 0), (5000, 98_305, 98_304)):
        index = rng.integers(0, size, n)
        index[rng.random(n) < 0.3] = hot
        values = rng.integers(-9, 10, n).astype(dtype)
        options: dict[str, Any] = {"backend": "sim", "variant": "long_result"}
        want = ref.scatter_add(values, index, size)
        np.testing.assert_array_equal(scatter_add(values, index, size, **options), want)
    x = np.ones(n, np.float32)
    index[index != hot] %= 5000
    table = profile("scatter_add", x, index, 98_304 + 1, variant="long_result")
    assert all(k.races == 0 for k in table)


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "uint32"])
def test_ascending_sums_runs_and_leaves_other_indices(dtype: str) -> None:
    """Runs of 32 and 33, in order and not; an index that is negative or out of bounds."""
    rng = np.random.default_rng(9)
    options: dict[str, Any] = {"backend": "sim", "variant": "ascending"}
    for n, size in ((1, 1), (2, 31), (700, 1001), (3000, 5000), (3000, 98_306), (900, 20)):
        ordered = np.sort(rng.integers(0, size, n))
        runs = np.sort(np.repeat(rng.permutation(size), 33)[: n - n % 33 or n])
        turned = ordered.copy()
        turned[[0, -1]] = turned[[-1, 0]]
        ends = ordered.copy()
        ends[0] = -size
        for index in (ordered, runs, runs[np.arange(len(runs)) % 33 > 0], turned, ends):
            for index_dtype in (np.int64, np.int32):
                values = rng.integers(-9, 10, len(index)) * (5**13 if "int" in dtype else 1)
                values = values.astype(dtype_of(dtype))
                want = ref.scatter_add(values, index, size)
                memory = np.repeat(index.astype(index_dtype), 2)
                got = scatter_add(values, memory[::2], size, **options)
                np.testing.assert_array_equal(got, want)
    out = np.full(size + 1, 5, want.dtype)[1:]
    scatter_add(values, index, size, "clip", out=out, **options)
    np.testing.assert_array_equal(out, ref.scatter_add(values, index, size, "clip"))
    with pytest.raises(gpuopt.VariantError, match="ascending"):
        scatter_add(values, index, size, out=out, **options)
    index[-1] = size
    with pytest.raises(IndexError, match=f"position {len(index) - 1} "):
        scatter_add(values, index, size, **options)
    index[-1] = 0
    np.testing.assert_array_equal(
        scatter_add(values, index, size, **options), ref.scatter_add(values, index, size)
    )


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_ascending_rounds_once() -> None:
    """A run of 1 and 31 addends below half of its unit, which float32 sums would lose."""
    values = np.tile(np.array([1, *[2.0**-25] * 31], np.float32), 40)
    index = np.repeat(np.arange(40) * 3, 32)
    got = scatter_add(values, index, 200, backend="sim", variant="ascending")
    assert (got[: 40 * 3 : 3] == np.float32(1 + 31 * 2.0**-25)).all()
    assert np.count_nonzero(got) == 40


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_many_places_are_split_into_buckets() -> None:
    """Floats below 64 bits and int32 may ascend; others have fewer places in long_result."""

    def chosen(n: int, size: int, dtype: str = "float32", **options: Any) -> str:
        values, index = np.zeros(n, dtype), np.zeros(n, np.int64)
        plan = _core.plan("scatter_add", values, index, size, backend="sim", **options)
        return str(plan["variant"])

    assert chosen(1 << 20, 1 << 22) == chosen(5000, 1 << 23, "float16") == "ascending"
    assert chosen(600_000, 1 << 20) == chosen(1 << 20, 1 << 22, "float64") == "long_result"
    assert chosen(1 << 20, 1 << 23, "float64") == "buckets"
    assert chosen(2_388_776, 6_097_453, "int32") == "ascending"
    assert chosen(2_388_776, 6_097_453, "int64") == "buckets"
    assert chosen(2_388_776, 6_097_453, "int8") == "long_result"
    assert chosen(1 << 20, 1 << 23, "complex64") == "long_result"
    assert chosen(1 << 20, (1 << 25) + 1) == "long_result"
    out = np.zeros(1 << 22, np.float32)
    assert chosen(1 << 20, 1 << 22, out=out) == "long_result"
    assert chosen(1 << 20, 1 << 22, out=out, mode="clip") == "ascending"


def draws(rng: np.random.Generator, n: int, size: int) -> list[Any]:
    """Indices: of both signs, sorted, one with nine tenths of all elements."""
    uniform = rng.integers(-size, size, n)
    hot = np.where(rng.random(n) < 0.9, size // 2, uniform)
    return [uniform, np.sort(rng.integers(0, size, n)), hot]


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
@pytest.mark.parametrize("variant", SPLITS)
def test_buckets_of_places(
    variant: str, schedule: str, configure: Callable[..., dict[str, Any]]
) -> None:
    """No element, one bucket and several, one that several blocks share, tiles not full."""
    configure(schedule=schedule)
    rng = np.random.default_rng(17)
    options: dict[str, Any] = {"backend": "sim", "variant": variant}
    shapes = ((0, 5), (1, 1), (1000, 7), (5000, 3000), (9000, 20_000), (30_000, 4100))
    for dtype in ("float32", "float16", "float64", "int32", "uint64"):
        if not takes("sim", variant, dtype):
            continue
        for n, size in shapes:
            values = rng.integers(0, 10, n)
            values = (values if dtype != "float16" else values > 8).astype(dtype)
            for turn, index in enumerate(draws(rng, n, size)):
                places = np.repeat(index.astype((np.int32, np.int64)[turn % 2]), 2)[::2]
                got = scatter_add(values, places, size, **options)
                np.testing.assert_array_equal(got, ref.scatter_add(values, index, size))


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("variant", SPLITS)
def test_buckets_of_modes_and_bad_indices(variant: str) -> None:
    rng = np.random.default_rng(18)
    options: dict[str, Any] = {"backend": "sim", "variant": variant}
    n, size = 9001, 5000
    values = rng.integers(-9, 10, n).astype(np.float32)
    for mode in ("wrap", "clip"):
        index = rng.integers(-3 * size, 3 * size, n)
        want = ref.scatter_add(values, index, size, mode)
        np.testing.assert_array_equal(scatter_add(values, index, size, mode, **options), want)
        out = np.full(size + 1, 5, np.float32)[1:]
        scatter_add(values, index, size, mode, out=out, **options)
        np.testing.assert_array_equal(out, want)
    index = rng.integers(-size, size, n)
    with pytest.raises(gpuopt.VariantError, match=variant):
        scatter_add(values, index, size, out=out, **options)
    for first in (0, 4095, 4096, n - 1):
        bad = index.copy()
        bad[first] = size
        bad[first + 1 :: 2] = -size - 1
        with pytest.raises(IndexError, match=f"^index {size} at position {first} is out"):
            scatter_add(values, bad, size, **options)
    want = ref.scatter_add(values, index, size)
    np.testing.assert_array_equal(scatter_add(values, index, size, **options), want)


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
def test_ordered_buckets_have_one_order(configure: Callable[..., dict[str, Any]]) -> None:
    """The same bits, however the blocks and warps of the simulator take turns."""
    rng = np.random.default_rng(19)
    for n, size in ((20_000, 300), (20_000, 9000)):
        for index in draws(rng, n, size):
            for dtype in FLOATS:
                values = rng.standard_normal(n).astype(dtype_of(dtype))
                found = set()
                for schedule in ("ascending", "descending", "shuffle", "preempt"):
                    configure(schedule=schedule)
                    got = scatter_add(
                        values, index, size, deterministic=True, backend="sim",
                        variant="ordered_buckets",
                    )  # fmt: skip
                    found.add(got.tobytes())
                assert len(found) == 1, (n, size, dtype)


@pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")
@pytest.mark.parametrize("kind", ["sorted", "one", "zipf"])
def test_ordered_buckets_divide_a_bucket_by_its_elements(kind: str) -> None:
    """Of a sorted index they are in few tiles, in part of the first and last of them."""
    rng = np.random.default_rng(23)
    for n, size in ((30_000, 900), (50_000, 3000)):
        index = np.sort(rng.integers(0, size, n))
        if kind == "one":
            index = np.full(n, size - 1)
        if kind == "zipf":
            index = np.minimum(rng.zipf(1.2, n) - 1, size - 1)
        values = rng.integers(-9, 10, n).astype(np.float32)
        got = scatter_add(
            values, index, size, deterministic=True, backend="sim", variant="ordered_buckets"
        )
        np.testing.assert_array_equal(got, ref.scatter_add(values, index, size))


@pytest.mark.parametrize("dtype", ["float64", "int32", "complex64", "complex128"])
def test_v1_adds_neighbours_of_one_place_before(dtype: str) -> None:
    """Runs that end in a pack, in a lane, in a warp; some of an index out of bounds."""
    rng = np.random.default_rng(3)
    for index_dtype in (np.int32, np.int64):
        for longest in (2, 5, 40, 300):
            lengths = rng.integers(1, longest, 20_000)
            index = np.repeat(rng.integers(0, 50, len(lengths)), lengths)[:9001]
            index = index.astype(index_dtype)
            values = rng.integers(-9, 10, len(index)).astype(dtype)
            options: dict[str, Any] = {"backend": "sim", "variant": "v1"}
            want = ref.scatter_add(values, index, 50)
            np.testing.assert_array_equal(scatter_add(values, index, 50, **options), want)
            index[4000:4100] = 50
            with pytest.raises(IndexError, match="position 4000 "):
                scatter_add(values, index, 50, **options)


# ---- counts ----


GOLDEN: dict[str, tuple[int, ...]] = {
    "v0": (0, 0, 256, 1536, 128, 128),
    "v1": (228, 424, 192, 2560, 136, 136),
    "v2": (0, 0, 256, 1536, 128, 128),
    "v3": (384, 1412, 272, 1636, 0, 0),
    "v4": (0, 0, 256, 1536, 0, 0),
    "long_result": (0, 0, 256, 1536, 128, 128),
    "ascending": (26, 26, 19, 131, 7, 7),
    "buckets": (851, 851, 449, 2305, 128, 128),
    "ordered_buckets": (1268, 1268, 449, 2305, 1, 1),
    "one_launch": (2931, 4879, 317, 5196, 0, 0),
    "one_table": (41, 79, 261, 1550, 128, 128),
}


@each_rung
def test_golden_counts(rung: str) -> None:
    """Shared requests and wavefronts, global requests and sectors, atomic requests and
    how many lanes met at one address, of the rung's first own kernel: 4,096 float32."""
    from gpuopt.lab.profile import profile

    values = np.ones(4096, np.float32)
    index = (np.arange(4096) * 37) % 100
    table = profile("scatter_add", values, index, 100, variant=rung)
    name = f"scatter_add_{rung.removeprefix('ordered_')}"
    kernel = next(k for k in table[rung] if k.kernel.startswith(name))
    assert (
        kernel.shared_requests, kernel.shared_wavefronts, kernel.global_requests,
        kernel.global_sectors, kernel.atomic_requests, kernel.atomic_serialised,
    ) == GOLDEN[rung]  # fmt: skip
    assert all(k.races == 0 for k in table)


# ---- faults ----


@each_rung
@pytest.mark.parametrize("checks", [False, True])
def test_every_step_of_a_call_fails_in_turn(
    rung: str, checks: bool, configure: Callable[..., dict[str, Any]]
) -> None:
    values = np.ones((20, 30), np.float32)[::2, ::3]
    index = np.arange(600).reshape(20, 30)[::2, ::3] % 7
    want = np.bincount(index.ravel(), minlength=7)
    before = None
    for step in range(200):
        configure(checks=checks, fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = scatter_add(values, index, 7, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            configure(fail_after=-1)
            got = scatter_add(values, index, 7, variant=rung, backend="sim")
            np.testing.assert_array_equal(got, want)
            continue
        break
    assert 6 <= step < 199
    np.testing.assert_array_equal(got, want)
    assert _core._sim_state()["allocations"] == before


# ---- large indices ----


def test_a_position_past_32_bits() -> None:
    """Windows over one short buffer: only the last of 2**31 + 2**15 indices is 2."""
    rows, cols = 2**16 + 1, 2**15
    base = np.zeros(rows + cols - 1, np.int32)
    base[-1] = 2
    index = np.lib.stride_tricks.sliding_window_view(base, cols)
    values = np.broadcast_to(np.int8(1), index.shape)
    got = scatter_add(values, index, 3, backend="cpu")
    np.testing.assert_array_equal(got, [index.size - 1, 0, 1])


@pytest.mark.skipif("v0" not in RUNGS, reason="no simulator")
def test_rung_beyond_32_bits(configure: Callable[..., dict[str, Any]]) -> None:
    """v0's last two blocks of 256 read the last elements, which are past 2**31."""
    n = 2**31 + 300
    configure(first_block=(n + 255) // 256 - 2)
    values, index = np.zeros(n, np.int8), np.zeros(n, np.int32)
    values[-200:] = 1
    index[-200:] = 2
    got = scatter_add(values, index, 3, "clip", variant="v0", backend="sim")
    np.testing.assert_array_equal(got, [0, 0, 200])


# ---- the table of the source document ----


def test_the_table_of_methods() -> None:
    """`python -m benchmarks.methods` prints the published times and ours beside them."""
    command = [sys.executable, "-m", "benchmarks.methods", "--max-time", "0.01"]
    command += ["--largest", "2^10", "--backend", "cpu"]
    done = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout)
    assert [(row["in"], row["out"]) for row in result["rows"]] == [
        (32, 32), (1024, 32), (1024, 1024),
    ]  # fmt: skip
    for row in result["rows"]:
        assert set(row["published_ms"]) == {"A", "B", "C"}
        assert all(ms > 0 for ms in row["ours_ms"].values())
    assert result["rows"][0]["published_ms"]["C"] == 0.039
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Quadro P6000" in done.stdout


def test_expectations_fail_on_a_wrong_sum() -> None:
    """The check of the matrix rejects wrong results."""
    values, index = np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0])
    expected = scatter_add_expect(values, index, size=2)
    assert expected.compare(np.array([5.0, 2.0])) is None
    assert expected.compare(np.array([5.0, 2.1])) is not None
    assert expected.compare(np.array([5.0, np.nan])) is not None


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_a_sorted_index_on_a_cpu(variant: str) -> None:
    """Pieces whose neighbours share places are added in quarters; a bad index is found."""
    rng = np.random.default_rng(15)
    for n, size in ((2000, 300), (70_000, 900), (256, 260)):
        index = np.sort(rng.integers(0, size, n))
        for dtype in ("float32", "float64", "int32"):
            values = rng.integers(-9, 9, n).astype(dtype)
            want = np.bincount(index, values, size)
            for kind in (np.int32, np.int64):
                got = scatter_add(
                    values, index.astype(kind), size, backend="cpu", variant=variant
                )
                np.testing.assert_array_equal(got, want)
            signed = np.where(rng.random(n) < 0.5, index, index - size)
            got = scatter_add(values, signed, size, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, want)
            index[n // 2] += size
            with pytest.raises(IndexError, match=rf"at element {n // 2} |position {n // 2}"):
                scatter_add(values, index, size, backend="cpu", variant=variant)
            wrapped = scatter_add(
                values, index, size, mode="wrap", backend="cpu", variant=variant
            )
            np.testing.assert_array_equal(wrapped, want)
            index[n // 2] -= size


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_runs_of_a_long_ascending_index_on_a_cpu(dtype: str, variant: str) -> None:
    """Each part owns its places; one step down, or a bad index, is found by the checks."""
    rng = np.random.default_rng(16)
    size = 40_000
    for n in (2048, 2500, 20_000, 70_001):
        index = np.sort(rng.integers(0, size, n))
        values = rng.integers(-9, 9, n).astype(dtype)
        fallen = index.copy()
        fallen[[n // 3, n // 3 + 1]] = index[-1], index[0]
        spaced = np.sort(np.minimum(rng.random(n) ** 4 * size, size - 1).astype(np.int64))
        for places in (index, fallen, spaced, index - size):
            want = np.bincount(places % size, values, size)
            for kind in (np.int32, np.int64):
                got = scatter_add(
                    values, places.astype(kind), size, backend="cpu", variant=variant
                )
                np.testing.assert_array_equal(got, want)
        bad = np.append(index[:-1], size)
        out = np.full(size, 7, np.int64 if "int" in dtype else dtype)
        for given in (None, out):
            with pytest.raises(IndexError, match=f"position {n - 1} "):
                scatter_add(values, bad, size, out=given, backend="cpu", variant=variant)
        assert np.all(out == 7)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_an_ascending_index_keeps_the_order_of_elements_on_a_cpu(threads: int) -> None:
    """The parts of the index change no bit: the sums are those of one loop in order."""
    rng = np.random.default_rng(17)
    index = np.sort(rng.integers(0, 40_000, 100_000))
    values = rng.standard_normal(index.size) * 2.0 ** rng.integers(-9, 9, index.size)
    want = np.zeros(40_000)
    np.add.at(want, index, values)
    gpuopt.set_num_threads(threads)
    for variant in ("simd", "threads"):
        got = scatter_add(values, index, 40_000, backend="cpu", variant=variant)
        assert got.tobytes() == want.tobytes()
