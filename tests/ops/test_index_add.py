"""index_add beyond the matrix: NumPy's meaning, the index, out=, published bugs.

Order: what it means, the index, deterministic=, out=, special values, accuracy, pinned
bugs, hot destinations and the steps of v4, large indices, counts, failures.  See
test_contract.py for values on all sizes, layouts and dtypes.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, Error, dtype_of, smallest, unit
from cases.index_add import (
    index_add_bound,
    index_add_expect,
    index_add_run_errors,
    index_add_valid,
)
from conftest import ROOT, Figure

import gpuopt
from gpuopt import _core, index_add, ref
from gpuopt.lab.profile import profile


def variants(dtype: str = "float32", shapes: bool = False) -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and knows the dtype.

    Without the shape kernels, which do not take every call, or these alone.
    """
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("index_add")
        if row["available"]
        and usable[row["backend"]] is None
        and dtype in row["dtypes"]
        and bool(row["shape"]) == shapes
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
each_of_integers = pytest.mark.parametrize(("backend", "variant"), variants("int32"))
RUNGS = [name for backend, name in variants() if backend == "sim"]
each_rung = pytest.mark.parametrize("rung", RUNGS)
each_shape = pytest.mark.parametrize(("backend", "variant"), variants(shapes=True))
# The error of their sums is at most that of the default.
BOUNDED = (
    "v4",
    "v5",
    "unpacked_rows",
    "one_element",
    "few_destinations",
    "few_rows",
    "one_launch",
)


@pytest.fixture
def configure() -> Iterator[Callable[..., Any]]:
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


def added(x: Any, index: Any, source: Any) -> np.ndarray[Any, Any]:
    want = np.array(x)
    np.add.at(want, index, source)
    return want


# ---- what it means ----


@each_variant
def test_it_is_add_at_on_a_copy(backend: str, variant: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(-9, 9, (6, 4)).astype(np.float32)
    index = rng.integers(-6, 6, 40)
    source = rng.integers(-9, 9, (40, 4)).astype(np.float32)
    before = x.copy()
    got = index_add(x, index, source, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, added(x, index, source))
    np.testing.assert_array_equal(x, before)
    assert got is not x


@each_variant
def test_nothing_to_add_is_a_copy(backend: str, variant: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    none = np.empty(0, np.int64)
    for axis in (0, 1):
        source = np.empty((0, 2) if axis == 0 else (3, 0), np.float32)
        got = index_add(x, none, source, axis=axis, backend=backend, variant=variant)
        assert not np.shares_memory(got, x)
        np.testing.assert_array_equal(got, x)


def test_a_list_is_an_index_and_a_source() -> None:
    got = index_add([0.0, 0.0], [1, 1], [2, 3])
    assert got.tolist() == [0.0, 5.0]


def test_the_source_takes_the_dtype_of_x() -> None:
    x = np.zeros(2, np.float32)
    assert index_add(x, [0], np.array([1.5])).dtype == np.float32
    assert index_add(x, [0], np.array([3], np.int8)).tolist() == [3, 0]
    assert index_add(np.zeros(2, np.int64), [1], np.array([True])).tolist() == [0, 1]


# ---- the index ----


@each_of_integers
@pytest.mark.parametrize("mode", ["wrap", "clip"])
def test_modes_are_those_of_take(backend: str, variant: str, mode: str) -> None:
    x = np.zeros(5, np.int32)
    index = np.array([-11, -6, -5, -1, 0, 4, 5, 6, 12, 10**4, -(10**4)])
    where = np.take(np.arange(5), index, mode=mode)
    source = np.arange(1, 12, dtype=np.int32)
    got = index_add(x, index, source, mode=mode, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, added(x, where, source))


@each_variant
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_first_bad_index_is_named(backend: str, variant: str, dtype: Any) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    n = 1300
    for shape in ((7,), (7, 3), (7, 0)):
        source = np.ones((n, *shape[1:]), np.float32)
        for places in ((0,), (5, 3), (1299, 700), (512,)):
            index = np.arange(n).astype(dtype) % 7
            for place in places:
                index[place] = 7 + place
            first = min(places)
            words = f"index {7 + first} at position {first} is out of bounds for axis 0"
            with pytest.raises(IndexError, match=words):
                index_add(np.zeros(shape, np.float32), index, source, **options)
    index = np.full(n, -8, dtype)
    with pytest.raises(IndexError, match=r"index -8 at position 0 .* size 7$"):
        index_add(np.zeros(7, np.float32), index, np.ones(n, np.float32), **options)
    assert index_add(np.zeros(1, np.float32), index[:1] * 0, [1.0], **options) == 1


@pytest.mark.parametrize("error", index_add_run_errors(), ids=lambda error: error.name)
@pytest.mark.parametrize("backend", ["cpu", "sim"])
def test_what_a_run_finds(error: Error, backend: str) -> None:
    """A plan does not read values; the inputs are unchanged and the next call is correct."""
    args, options = error.make()
    options.setdefault("backend", backend)
    before = [np.array(array) for array in args]
    for _ in range(20):
        with pytest.raises(error.raises, match=error.match):
            index_add(*args, **options)
    for array, old in zip(args, before, strict=True):
        np.testing.assert_array_equal(array, old)
    valid, keywords, want = index_add_valid()
    np.testing.assert_array_equal(index_add(*valid, **keywords, backend=backend), want)


def test_the_smallest_integer_is_out_of_range() -> None:
    for backend in ("cpu", "sim"):
        for value in (-(2**63), 2**63 - 1):
            with pytest.raises(IndexError, match=f"index {value} at position 0"):
                index_add(np.zeros(3), np.array([value]), [1.0], backend=backend)


# ---- deterministic= ----


def test_deterministic_takes_a_sort() -> None:
    def chosen(dtype: str, n: int, width: int = 1, **options: Any) -> str:
        x = np.broadcast_to(np.zeros((), dtype), (n, width))
        index = np.broadcast_to(np.int64(0), (n,))
        return str(_core.plan("index_add", x, index, x, backend="sim", **options)["variant"])

    assert chosen("float32", 50, deterministic=True) == "one_launch"
    assert chosen("float64", 50) == chosen("float64", 4096, 256) == "one_launch"
    assert chosen("float32", 4097, deterministic=True) == "one_element"
    assert chosen("float32", 4097, 2, deterministic=True) == "v4"
    assert chosen("float64", 4097) == "one_by_one"
    assert chosen("int8", 4097) == "one_element"
    assert chosen("int32", 4097, deterministic=True) == "one_by_one"
    assert chosen("float64", 4096, 257) != "one_launch"
    # Without a wait:
    assert (
        chosen("float32", 1000, mode="clip")
        == chosen("float64", 4000, mode="clip")
        == "one_by_one"
    )
    assert chosen("float16", 256, mode="clip") == "one_launch"
    assert chosen("float16", 2048, mode="clip") == "v5"  # by the estimate of its turns
    assert chosen("float16", 2049, mode="clip", deterministic=True) == "one_launch"
    assert chosen("int8", 4096, mode="clip") == "one_launch"
    assert chosen("float32", 1000, 100, mode="clip") == "one_by_one"
    assert (
        chosen("float32", 256, mode="clip") == chosen("float64", 9, mode="clip") == "one_launch"
    )
    assert chosen("float32", 257, mode="clip") == "one_by_one"
    x, index, source = np.zeros(50, np.float32), np.arange(50), np.ones(50, np.float32)
    for rung in (*RUNGS[:4], "short_rows"):
        with pytest.raises(gpuopt.VariantError, match="deterministic=True takes 'v4'"):
            index_add(x, index, source, deterministic=True, backend="sim", variant=rung)
    for name in ("v4", "one_element", "one_launch"):
        got = index_add(x, index, source, deterministic=True, backend="sim", variant=name)
        assert got.sum() == 50
    for name in ("scalar", "simd", "threads"):
        got = index_add(x, index, source, deterministic=True, backend="cpu", variant=name)
        assert got.sum() == 50


# ---- out= ----


@each_variant
def test_in_place(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    want = added(x, [3, 0, 3], np.ones((3, 3), np.float32))
    got = index_add(x, [3, 0, 3], np.ones((3, 3), np.float32), out=x, **options)
    assert got is x
    np.testing.assert_array_equal(x, want)
    half = np.zeros((4, 6), np.float16)[:, ::2]  # a view that is not contiguous
    got = index_add(half, [1], np.ones((1, 3), np.float16), out=half, **options)
    assert got is half
    assert half.sum() == 3


@each_variant
def test_nothing_is_written_before_an_error(backend: str, variant: str) -> None:
    x = np.zeros(5, np.float32)
    index = np.arange(600) % 5
    index[599] = 5
    for out in (x, np.full(5, 3, np.float32)):
        before = out.copy()
        with pytest.raises(IndexError, match="position 599"):
            index_add(x, index, np.ones(600, np.float32), out=out, backend=backend,
                      variant=variant)  # fmt: skip
        np.testing.assert_array_equal(out, before)


# ---- special values ----


@each_variant
def test_nan_at_every_position(backend: str, variant: str) -> None:
    for n in range(1, 71, 1 if backend == "cpu" else 9):
        for at in {0, n // 2, n - 1}:
            source = np.ones(n, np.float32)
            source[at] = np.nan
            index = np.arange(n) % 3
            got = index_add(np.zeros(3, np.float32), index, source, backend=backend,
                            variant=variant)  # fmt: skip
            assert np.isnan(got).tolist() == [k == at % 3 for k in range(3)], (n, at)


@each_variant
def test_infinities(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    source = np.array([np.inf, 1, -np.inf, np.inf], np.float32)
    got = index_add(np.zeros(2, np.float32), [0, 1, 0, 1], source, **options)
    assert np.isnan(got[0]) and got[1] == np.inf


@each_of_integers
def test_integers_wrap(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    x = np.array([2**31 - 1, 0], np.int32)
    got = index_add(x, [0, 1], np.array([1, -3], np.int32), alpha=2**31 + 1, **options)
    assert got.tolist() == [0, 2**31 - 3]
    x64 = np.array([2**63 - 1])
    assert index_add(x64, [0], np.array([1]), **options).tolist() == [-(2**63)]


# ---- accuracy ----


# How the positions of n rows in `length` places may be distributed.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "one place": lambda rng, length, n: np.full(n, length - 1),
    "zipf": lambda rng, length, n: np.minimum(rng.zipf(1.3, n), length) - 1,
    "sorted": lambda rng, length, n: np.sort(rng.integers(0, length, n)),
    "uniform": lambda rng, length, n: rng.integers(0, length, n),
}

# Length, rows and width: few rows, just under and over 1,024, many; short and long rows.
SHAPES = {
    "sim": [(3, 900, 2), (2, 1024, 4), (1, 1025, 1), (50, 3000, 1), (9000, 1500, 1),
            (3, 2500, 3), (40, 1200, 16), (7, 1100, 33), (2, 1030, 300)],
    "cpu": [(3, 900, 2), (2, 1024, 4), (1, 1025, 1), (50, 100_000, 1),
            (9000, 70_000, 1), (5, 40_000, 3), (40, 9000, 16), (300, 5000, 33),
            (2, 3000, 300)],
}  # fmt: skip
SHAPES["cuda"] = [*SHAPES["cpu"], (1000, 2**22, 1), (1000, 2**16, 128)]

NARROW = ("float16", "bfloat16", "float32", "complex64")
HALVES_ONLY = ("own_rows", "sorted_rows")


def bounded(backend: str, dtype: str) -> list[str]:
    """The default, and the rungs that keep its bound for any number of rows."""
    named = [name for b, name in variants(dtype) if b == backend]
    return ["auto", *(n for n in named if backend == "cpu" or n in BOUNDED)]


def parts_of(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [x.real, x.imag] if x.dtype.kind == "c" else [x]


def exact_sums(
    x: np.ndarray[Any, Any], index: Any, source: np.ndarray[Any, Any]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """x + the rows of each place by math.fsum, and the sums of absolute values."""
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(len(x) + 1))
    count, ordered = np.diff(ends), source[order].astype(np.float64)
    exact, total = np.array(x, np.float64), np.abs(np.array(x, np.float64))
    alone = ordered[ends[:-1][count == 1]]
    exact[count == 1] += alone  # rounded once, as by math.fsum
    total[count == 1] += np.abs(alone)
    for k in np.flatnonzero(count > 1):
        rows = ordered[ends[k] : ends[k + 1]]
        total[k] += np.abs(rows).sum(0)
        exact[k] = [math.fsum(v) for v in np.concatenate([exact[k, None], rows]).T.tolist()]
    return exact, total


def small_after_large(
    rng: np.random.Generator, dtype: np.dtype[Any], shape: Any
) -> np.ndarray[Any, Any]:
    """Addends of less than half a unit of 1: a running sum that starts at 1 ignores them."""
    u = unit(dtype)
    small = rng.uniform(0.6, 0.9, shape) * u
    return (small + 1j * small if dtype.kind == "c" else small).astype(dtype)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [*NARROW, "float64", "complex128"])
@pytest.mark.parametrize("backend", [b for b, why in _core.backends().items() if why is None])
def test_the_default_keeps_the_stated_bound(
    backend: str, dtype: str, distribution: str, figure: Figure
) -> None:
    """n values, including x, are added to an element; S is the sum of their magnitudes.

    |error| <= u |y| + (min(n, 1024) + 4) 2^-24 S + n 2^-53 S below float64, else
    (n + 4) 2^-53 S: for every distribution of the positions.
    """
    kind = dtype_of(dtype)
    worst = 0.0
    for turn, (length, n, width) in enumerate(SHAPES[backend]):
        rng = np.random.default_rng([turn, *dtype.encode()])
        index = DISTRIBUTIONS[distribution](rng, length, n)
        met = np.bincount(index, minlength=length)[:, None] + 1.0
        for fill in ("small after large", "normal", "positive"):
            if fill == "small after large":
                x = np.ones((length, width), kind)
                source = small_after_large(rng, kind, (n, width))
            else:
                x = np.zeros((length, width), kind)
                values = rng.standard_normal((n, width))
                values = np.abs(values) * 0.01 if fill == "positive" else values
                both = values + 1j * values[::-1] if kind.kind == "c" else values
                source = both.astype(kind)
            got = {
                name: parts_of(index_add(x, index, source, backend=backend, variant=name))
                for name in bounded(backend, dtype)
            }
            for part, (a, b) in enumerate(zip(parts_of(x), parts_of(source), strict=True)):
                exact, total = exact_sums(a, index, b)
                bound = (met + 4) * 2.0**-53 * total
                if dtype in NARROW:
                    bound = (np.minimum(met, 1024) + 4) * 2.0**-24 * total
                    bound += met * 2.0**-53 * total + unit(kind) * np.abs(exact)
                bound += smallest(kind)
                for name, y in got.items():
                    error = np.abs(y[part].astype(np.float64) - exact)
                    assert np.all(error <= bound), (name, length, n, width, fill)
                    worst = max(worst, float((error / bound).max()))
    figure(f"index_add {backend} {dtype} {distribution}", f"{worst:.0%} of the bound")


@pytest.mark.parametrize("dtype", NARROW)
def test_the_default_adds_many_rows_in_no_narrow_sum(dtype: str) -> None:
    """By the sizes alone: the choice does not depend on the positions."""
    for length in (1, 7, 1000, 10**5, 10**7):
        for n in (1, 1024, 1025, 10**5, 10**7):
            for width in (1, 2, 15, 16, 100, 300):
                if max(length, n) * width > 10**8:
                    continue
                x = np.broadcast_to(dtype_of(dtype).type(0), (length, width))
                source = np.broadcast_to(dtype_of(dtype).type(0), (n, width))
                index = np.broadcast_to(np.int64(0), (n,))
                row = _core.plan("index_add", x, index, source, backend="sim")
                if n > 1024 or dtype in ("float16", "bfloat16"):
                    tables = n >= 16 * length and n * width <= 2**19 and dtype != "float16"
                    allowed = (*BOUNDED, "v2") if tables and dtype != "bfloat16" else BOUNDED
                    assert row["variant"] in allowed, (length, n, width)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_the_default_has_one_order_of_additions(dtype: str, threads: int) -> None:
    """One thread and several use different variants, which return the same bits."""
    rng = np.random.default_rng(12)
    kind = dtype_of(dtype)
    for shape, n in (((1000,), 100_000), ((1000, 3), 30_000), ((100, 64), 3000),
                     ((3, 700), 300), ((90, 333), 2000), ((10, 5, 2), 20_000)):  # fmt: skip
        x = rng.standard_normal(shape).astype(kind)
        index = rng.integers(0, shape[-2] if len(shape) == 3 else shape[0], n)
        axis = 1 if len(shape) == 3 else 0
        source = rng.standard_normal((*shape[:axis], n, *shape[axis + 1 :])).astype(kind)
        found = []
        for team in (1, threads):
            gpuopt.set_num_threads(team)
            for deterministic in (False, True):
                y = index_add(x, index, source, axis=axis, backend="cpu",
                              deterministic=deterministic)  # fmt: skip
                found.append(y.tobytes())
        assert len(set(found)) == 1, (shape, n)


def test_running_sums_in_the_dtype_do_not_keep_the_bound() -> None:
    """The check of the bound rejects wrong results."""
    rng = np.random.default_rng(3)
    for dtype in ("float16", "float32"):
        kind = dtype_of(dtype)
        x, source = np.ones((1, 1), kind), small_after_large(rng, kind, (3000, 1))
        running = x.copy()
        for row in source:
            running[0] += row
        exact, total = exact_sums(x, np.zeros(3000, np.int64), source)
        bound = 1028 * 2.0**-24 * total + unit(kind) * np.abs(exact)
        assert np.all(np.abs(running.astype(np.float64) - exact) > bound)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("backend", "variant"),
    [(b, v) for b, v in variants() if b == "cpu" or v in BOUNDED],
)
def test_wide_sums_round_once(backend: str, variant: str, dtype: str, figure: Figure) -> None:
    """16-bit floats: float32 sums, within (n + 2) u S and one rounding of the result."""
    kind = dtype_of(dtype)
    rng = np.random.default_rng(4)
    worst = 0.0
    for shape, n in (((3,), 2500), ((4, 24), 300)):
        x = rng.standard_normal(shape).astype(kind)
        index = rng.integers(0, shape[0], n)
        source = rng.standard_normal((n, *shape[1:])).astype(kind)
        got = index_add(x, index, source, backend=backend, variant=variant)
        exact = ref.index_add(x.astype(np.float64), index, source.astype(np.float64))
        bound = index_add_bound(x.astype(np.float32), index, source, 2.0**-24)
        bound = bound + (unit(kind) * np.abs(exact) if dtype != "float32" else 0)
        error = np.abs(got.astype(np.float64) - exact)
        assert np.all(error <= bound)
        worst = max(worst, float((error / bound).max()))
    figure(f"index_add {backend} {variant} {dtype}", f"{worst:.0%} of the bound")


def test_the_table_of_bounds() -> None:
    """`python -m benchmarks.bounds` prints errors and times; on a CPU every bound holds."""
    command = [sys.executable, "-m", "benchmarks.bounds", "--quick", "--backend", "cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == ["auto", "scalar", "simd", "threads"] * 3
    for row in rows:
        assert float(row[-1]) <= 1, row


# ---- pinned bugs ----


@each_variant
def test_pinned_worked_example(backend: str, variant: str) -> None:
    """The source's comment says that element 8 belongs to index[0] and to output[9].

    i = 8 has dim_index 8 % 9 / 3 = 2, index[2] = 2: 1 + 9 goes to row 2, column 2.
    """
    x = np.ones((5, 3), np.float32)
    source = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    got = index_add(x, [0, 4, 2], source, backend=backend, variant=variant)
    want = [[2, 3, 4], [1, 1, 1], [8, 9, 10], [1, 1, 1], [5, 6, 7]]
    assert got.tolist() == want


@each_of_integers
def test_pinned_tails(backend: str, variant: str) -> None:
    """Grids of n / 256 drop the last elements."""
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in (1, 31, 255, 257, 511, 1023, 1025, 2047, 2049, 4095, 4097):
        source = np.zeros(n, np.int32)
        source[-1] = 5
        got = index_add(np.zeros(3, np.int32), np.full(n, 2), source, **options)
        assert got.tolist() == [0, 0, 5], n
    for rows, width in ((1, 5), (3, 33), (9, 129), (65, 4)):
        wide = np.zeros((rows, width), np.float32)
        wide[-1, -1] = 5
        got = index_add(np.zeros((2, width), np.float32), np.ones(rows, int), wide, **options)
        assert got[1, -1] == 5 and got.sum() == 5, (rows, width)


@each_variant
def test_pinned_axes_behind_the_first(backend: str, variant: str) -> None:
    """The source's index arithmetic: slices before the axis, rows of another count."""
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    x = np.arange(2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    for n in (1, 4, 9):
        source = np.arange(2 * n * 3, dtype=np.float32).reshape(2, n, 3)
        index = np.arange(n) * 3 % 5
        want = ref.index_add(x, index, source, axis=1)
        got = index_add(x, index, source, axis=1, **options)
        np.testing.assert_array_equal(got, want)


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_pinned_half_atomics_stay_in_the_array(
    backend: str, variant: str, dtype: str, configure: Callable[..., Any]
) -> None:
    """The packed atomic given the source's length writes past a one-element output."""
    configure(checks=True)
    for length in (1, 2, 3):
        x = np.zeros(length + 2, dtype_of(dtype))[1:-1]
        source = np.ones(40, dtype_of(dtype))
        got = index_add(x, np.arange(40) % length, source, backend=backend, variant=variant)
        assert got.astype(np.float32).sum() == 40


# ---- hot destinations, the steps of v4 ----


@each_rung
@pytest.mark.parametrize(
    ("length", "count", "width"),
    [
        (1, 700, 1),  # 32 copies of one sum
        (3, 300, 40),  # a table of 32 and of 8 columns
        (900, 950, 1),  # too few for a table: v2 goes as v1
        (40, 45, 5),
        (100, 30, 33),
        (2, 2300, 1),  # v4: hot runs over many chunks
        (3, 400, 2),  # v4: hot runs over several chunks
        (9, 1200, 33),  # v4: runs of 128 rows, hot and not
        (30000, 60000 // 64, 1),
    ],
)
def test_hot_and_cold_destinations(rung: str, length: int, count: int, width: int) -> None:
    rng = np.random.default_rng(length)
    x = rng.integers(-3, 4, (length, width)).astype(np.float32)
    source = rng.integers(-3, 4, (count, width)).astype(np.float32)
    for index in (rng.integers(0, length, count), np.full(count, length - 1)):
        got = index_add(x, index, source, backend="sim", variant=rung)
        np.testing.assert_array_equal(got, added(x, index, source))


@each_shape
@pytest.mark.parametrize(
    ("length", "count", "width"),
    [
        (1, 700, 1),  # 32 copies of one sum; one run over a tile
        (2, 2300, 1),  # runs over several tiles
        (2, 5000, 1),
        (900, 950, 1),
        (30000, 60000 // 64, 1),
        (40, 45, 5),
        (3, 300, 16),
        (3, 300, 40),  # a table of 32 and of 8 columns
        (7, 900, 129),
    ],
)
def test_shape_kernels(
    backend: str, variant: str, length: int, count: int, width: int,
    configure: Callable[..., Any],
) -> None:  # fmt: skip
    """Shape kernels take calls of their shape and refuse others."""
    takes = {
        "short_rows": width <= 16,
        "one_element": width == 1,
        "few_destinations": count >= 2 * length and length * min(width, 32) < 29_000,
        "few_rows": count < length,
        "one_launch": count <= 4096,
        "own_places": count <= 4096 or width == 1,
        "joined_sums": width <= 16,
        "one_by_one": True,
        "own_rows": count <= 4096,
        "sorted_rows": True,
        "one_writer": width == 1 and length <= 1536,
        "gathered_rows": True,
        "unpacked_rows": width > 1 and width % 4 != 0,
    }[variant]
    if backend == "sim":
        configure(checks=True, schedule="shuffle")
    rng = np.random.default_rng(length)
    kind = np.float16 if variant in HALVES_ONLY else np.float32
    x = rng.integers(-3, 4, (length, width)).astype(kind)
    source = rng.integers(-3, 4, (count, width)).astype(kind)
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for index in (rng.integers(0, length, count), np.full(count, length - 1)):
        if not takes:
            with pytest.raises(gpuopt.VariantError, match=f"'{variant}'.* takes "):
                index_add(x, index, source, **options)
            continue
        got = index_add(x, index, source, **options)
        np.testing.assert_array_equal(got, added(x, index, source))
        y = x.copy()
        assert index_add(y, index, source, out=y, **options) is y
        np.testing.assert_array_equal(y, got)
        index[count // 2] = length
        with pytest.raises(IndexError, match=f"position {count // 2}"):
            index_add(x, index, source, **options)


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [
        ((4097,), 0, 4000),  # a sum more than a block owns
        ((3, 5000), 1, 700),
        ((5, 300, 3), 1, 4096),
        ((30, 600), 0, 500),  # columns of two blocks
        ((2, 40, 1030), 1, 60),
        ((9000, 7), 0, 3),
        ((2, 32), 0, 900),  # columns are shared, as blocks would be few
        ((300,), 0, 4000),  # a copy of the sums for each warp
        ((40_000,), 0, 3000),  # for some warps
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_own_places(
    shape: tuple[int, ...], axis: int, count: int, dtype: str, configure: Callable[..., Any]
) -> None:
    configure(checks=True, schedule="preempt" if dtype == "float16" else "shuffle")
    rng = np.random.default_rng(count)
    length = shape[axis]
    index = rng.integers(-length, length, count).astype(np.int32 if axis else np.int64)
    x = rng.integers(-3, 4, shape).astype(dtype_of(dtype))
    x[x == 0] = -0.0
    source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :]))
    want = np.array(x, np.complex128)
    np.add.at(want, (*(slice(None),) * axis, index), source * 2)
    source = source.astype(dtype_of(dtype))
    options: dict[str, Any] = {"axis": axis, "alpha": 2, "backend": "sim",
                               "variant": "own_places"}  # fmt: skip
    for given in (x, np.asfortranarray(x), np.copy(x)[..., ::-1][..., ::-1]):
        got = index_add(given, index, source, **options)
        np.testing.assert_array_equal(got.astype(np.complex128), want)
    at_rest = np.setdiff1d(np.arange(length), index % length)[:5]
    assert np.array_equal(np.signbit(np.moveaxis(got, axis, 0)[at_rest].real),
                          np.signbit(np.moveaxis(x, axis, 0)[at_rest].real))  # fmt: skip
    bad = np.append(index[1:], length).astype(index.dtype)
    y = x.copy()
    with pytest.raises(IndexError, match=f"position {count - 1}"):
        index_add(y, bad, source, out=y, **options)
    np.testing.assert_array_equal(y, x)
    assert index_add(y, index, source, out=y, **options) is y
    np.testing.assert_array_equal(y.astype(np.complex128), want)


@pytest.mark.parametrize(
    ("shape", "axis", "count"),
    [
        ((4097,), 0, 4000),
        ((40,), 0, 4096),  # many rows of each destination
        ((1,), 0, 2049),  # one block ranks all rows
        ((3, 5000), 1, 700),
        ((5, 300, 3), 1, 4096),
        ((30, 600), 0, 500),  # more packs than shared memory takes
        ((3000, 34), 0, 1000),  # pairs of 16-bit floats
        ((2, 40, 1030), 1, 60),
        ((4, 5001), 0, 9),  # columns of more than eight blocks
        ((9000, 7), 0, 3),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("variant", HALVES_ONLY)
def test_rows_summed_in_registers(
    shape: tuple[int, ...], axis: int, count: int, dtype: str, variant: str,
    configure: Callable[..., Any],
) -> None:  # fmt: skip
    configure(checks=True, schedule="preempt" if dtype == "float16" else "shuffle")
    rng = np.random.default_rng(count)
    length = shape[axis]
    index = rng.integers(-length, length, count).astype(np.int32 if axis else np.int64)
    index[: count // 3] = index[0]
    x = rng.integers(-3, 4, shape).astype(dtype_of(dtype))
    source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :]))
    options: dict[str, Any] = {"axis": axis, "alpha": 2, "backend": "sim",
                               "variant": variant}  # fmt: skip
    if variant == "sorted_rows" and math.prod(shape[:axis]) > 1:
        with pytest.raises(gpuopt.VariantError, match="one slice"):
            index_add(x, index, source.astype(dtype_of(dtype)), **options)
        return
    has_layouts = len(shape) > 1 and dtype == "float16"
    for turn, order in enumerate((index, np.sort(index % length).astype(index.dtype))):
        want = np.array(x, np.complex128)
        np.add.at(want, (*(slice(None),) * axis, order), source * 2)
        values = source.astype(dtype_of(dtype))
        got = index_add(x, order, values, **options)
        np.testing.assert_array_equal(got.astype(np.complex128), want)
        if has_layouts:
            got = index_add(np.asfortranarray(x), order, values, **options)
            np.testing.assert_array_equal(got.astype(np.complex128), want)
            got = index_add(x, order, np.asfortranarray(values), **options)
            np.testing.assert_array_equal(got.astype(np.complex128), want)
        if turn and variant == "own_rows":
            continue  # it reads the index as it is; sorted_rows looks at its order
        bad = np.append(order[1:], length).astype(order.dtype)
        y = x.copy()
        with pytest.raises(IndexError, match=f"position {count - 1}"):
            index_add(y, bad, values, out=y, **options)
        np.testing.assert_array_equal(y, x)
        assert index_add(y, order, values, out=y, **options) is y
        np.testing.assert_array_equal(y.astype(np.complex128), want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 3, 4, 8])
@pytest.mark.parametrize("variant", HALVES_ONLY)
def test_sums_in_registers_are_rounded_once(variant: str, dtype: str, width: int) -> None:
    kind = dtype_of(dtype)
    rng = np.random.default_rng(width)
    x = np.ones((50, width), kind)
    source = small_after_large(rng, kind, (900, width))
    index = np.sort(rng.integers(0, 50, 900))
    got = index_add(x, index, source, backend="sim", variant=variant)
    exact, total = exact_sums(x, index, source)
    met = np.bincount(index, minlength=50)[:, None] + 1.0
    bound = (met + 4) * 2.0**-24 * total + unit(kind) * np.abs(exact)
    assert np.all(np.abs(got.astype(np.float64) - exact) <= bound)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_own_rows_has_one_order_of_additions(dtype: str, configure: Callable[..., Any]) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(40, 6)).astype(dtype_of(dtype))
    index, source = rng.integers(0, 40, 2000), rng.normal(size=(2000, 6)).astype(x.dtype)
    results = []
    for schedule in ("ascending", "descending", "shuffle", "preempt"):
        configure(checks=True, schedule=schedule)
        got = index_add(x, index, source, deterministic=True, backend="sim", variant="own_rows")
        results.append(got)
    assert all(np.array_equal(got, results[0]) for got in results)


@pytest.mark.parametrize("count", [1000, 3000])
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("variant", ["own_places", "joined_sums"])
def test_sums_of_few_rows_are_of_float32(variant: str, dtype: str, count: int) -> None:
    """All rows in one place keep the bound of `auto`; more than 1,024 take float64."""
    kind = dtype_of(dtype)
    rng = np.random.default_rng(count)
    x = np.ones((50, 1), kind)
    source = small_after_large(rng, kind, (count, 1))
    index = np.full(count, 7)
    got = index_add(x, index, source, backend="sim", variant=variant)
    for a, b, y in zip(parts_of(x), parts_of(source), parts_of(got), strict=True):
        exact, total = exact_sums(a, index, b)
        met = np.bincount(index, minlength=50)[:, None] + 1.0
        bound = (np.minimum(met, 1024) + 4) * 2.0**-24 * total
        bound += met * 2.0**-53 * total + unit(kind) * np.abs(exact)
        assert np.all(np.abs(y.astype(np.float64) - exact) <= bound)


@pytest.mark.parametrize(
    "shape", [(300_001,), (3, 61_000), (9000, 40), (17_001, 17), (9000, 42), (7, 8)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("count", [1000, 2300])
def test_joined_sums(
    shape: tuple[int, ...], dtype: str, count: int, configure: Callable[..., Any]
) -> None:
    """Packs and single elements, joined lanes, ranges: L2 has 1 MiB on the simulator."""
    configure(checks=True, schedule="shuffle")
    rng = np.random.default_rng(count)
    axis = 1 if shape[0] == 3 else 0
    length = shape[axis]
    width = shape[1] if len(shape) > 1 and axis == 0 else 1
    if width > 16 and dtype in ("float32", "complex64"):
        return
    index = rng.integers(-length, length, count)
    index[: count // 2] = np.sort(rng.integers(0, 20, count // 2)) % length
    index[-2:] = length - 1, 0
    x = rng.integers(-3, 4, shape).astype(dtype_of(dtype))
    source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :]))
    want = np.array(x, np.complex128)
    np.add.at(want, (*(slice(None),) * axis, index), source)
    source = source.astype(dtype_of(dtype))
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "joined_sums"}
    got = index_add(x, index, source, **options)
    np.testing.assert_array_equal(got.astype(np.complex128), want)
    y = x.copy()
    with pytest.raises(IndexError, match=f"position {count - 1}"):
        index_add(y, np.append(index[1:], length), source, out=y, **options)
    np.testing.assert_array_equal(y, x)
    index_add(y, index, source, out=y, **options)
    np.testing.assert_array_equal(y.astype(np.complex128), want)


@pytest.mark.parametrize("variant", ["v4", "unpacked_rows"])
@pytest.mark.parametrize("width", [17, 33, 87, 129, 257, 354])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bool"])
def test_rows_that_are_no_whole_packs(
    width: int, dtype: str, variant: str, configure: Callable[..., Any]
) -> None:
    """Some destinations are hot, some have one row or none."""
    if variant == "unpacked_rows" and width * np.dtype(dtype).itemsize % 16 == 0:
        width -= 1
    configure(checks=True, schedule="shuffle")
    rng = np.random.default_rng(width)
    for length, count in ((700, 900), (2000, 600)):
        index = rng.integers(0, length, count)
        index[:131] = 5
        x = rng.integers(-2, 3, (length, width)).astype(dtype)
        source = rng.integers(-1, 2, (count, width)).astype(dtype)
        want = np.array(x)
        np.logical_or.at(want, index, source) if dtype == "bool" else np.add.at(
            want, index, source
        )
        got = index_add(x, index, source, backend="sim", variant=variant)
        np.testing.assert_array_equal(got, want)
        index_add(x, index, source, out=x, backend="sim", variant=variant)
        np.testing.assert_array_equal(x, want)


def test_v4_keeps_the_order_of_the_source() -> None:
    """Float sums of one destination are those of a loop over its rows, chunk by chunk."""
    rng = np.random.default_rng(7)
    source = rng.standard_normal((60, 4)).astype(np.float32)
    index = rng.integers(0, 3, 60)
    sums = np.zeros((3, 4), np.float32)
    for k, row in zip(index, source, strict=True):
        sums[k] += row
    x = rng.standard_normal((3, 4)).astype(np.float32)
    got = index_add(x, index, source, backend="sim", variant="v4")
    np.testing.assert_array_equal(got, x + sums)
    for name in ("scalar", "simd", "threads"):
        got = index_add(
            np.zeros((3, 4), np.float32), index, source, backend="cpu", variant=name
        )
        np.testing.assert_array_equal(got, sums)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "bool"])
@pytest.mark.parametrize(("length", "width"), [(1200, 3), (5000, 8), (1200, 40)])
def test_v4_where_rows_are_fewer_than_destinations(
    length: int, width: int, dtype: str, configure: Callable[..., Any]
) -> None:
    """Runs around the length from which a destination is hot, and their borders."""
    configure(checks=True, schedule="shuffle")
    rng = np.random.default_rng(width)
    hot = ((3, 128), (4, 129), (700, 300), (701, 1), (length - 1, 63), (length - 2, 1))
    alone = [k for k, rows in hot for _ in range(rows)]
    for index in (
        np.array(alone),
        np.array([*alone, *rng.integers(0, length, 500)]),
        [length - 1],
    ):
        index = rng.permutation(index)
        x = rng.integers(-2, 3, (2, length, width)).astype(dtype)
        source = rng.integers(-1, 2, (2, len(index), width)).astype(dtype)
        want = np.array(x)
        np.logical_or.at(want, np.s_[:, index], source) if dtype == "bool" else np.add.at(
            want, np.s_[:, index], source
        )
        options: dict[str, Any] = {"axis": 1, "backend": "sim", "variant": "v4"}
        np.testing.assert_array_equal(index_add(x, index, source, **options), want)
        bad = np.append(index[1:], length)
        with pytest.raises(IndexError, match=f"position {len(index) - 1}"):
            index_add(x, bad, source, out=x, **options)
        np.testing.assert_array_equal(index_add(x, index, source, out=x, **options), want)


@pytest.mark.parametrize("shape", [(210_001,), (3, 41_000), (2, 40_000, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_v5_in_ranges(shape: tuple[int, ...], dtype: str) -> None:
    """More sums than the L2 of the simulated device holds, 1 MiB."""
    rng = np.random.default_rng(len(shape))
    axis = min(1, len(shape) - 1)
    length, count = shape[axis], 700
    index = np.concatenate([rng.integers(0, length, count - 3), [0, length - 1, length - 1]])
    x = rng.integers(-3, 4, shape).astype(dtype)
    source = rng.integers(-3, 4, (*shape[:axis], count, *shape[axis + 1 :])).astype(dtype)
    want = np.array(x)
    np.add.at(want, (*(slice(None),) * axis, index), source)
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "v5"}
    np.testing.assert_array_equal(index_add(x, index, source, **options), want)
    bad = np.append(index[1:], length)
    with pytest.raises(IndexError, match=f"position {count - 1}"):
        index_add(x, bad, source, out=x, **options)
    np.testing.assert_array_equal(index_add(x, index, source, out=x, **options), want)


@pytest.mark.parametrize(
    "shape", [(70_001,), (3, 9_001), (5, 2_000, 3), (1_500, 8), (601,), (605, 45)]
)
@pytest.mark.parametrize(
    ("dtype", "schedule"),
    [
        ("float32", "shuffle"),
        ("float16", "preempt"),
        ("bfloat16", "descending"),
        ("complex64", "ascending"),
    ],
)
def test_few_rows_of_many_destinations(
    shape: tuple[int, ...], dtype: str, schedule: str, configure: Callable[..., Any]
) -> None:
    """Only the sums of destinations that have rows are made; others keep their bits."""
    configure(checks=True, schedule=schedule)
    rng = np.random.default_rng(len(shape))
    axis = 1 if len(shape) == 3 or shape[0] == 3 else 0
    length = shape[axis]
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "few_rows"}
    for count in (0, 1, length // 4, 600 if length > 601 else 300):
        hot = np.full(count // 2, length - 1)
        index = rng.permutation([*hot, *rng.integers(0, length, count - len(hot))])
        index = index.astype(np.int32)
        x = rng.integers(-3, 4, shape).astype(dtype_of(dtype))
        source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :]))
        want = np.array(x, np.complex128)
        np.add.at(want, (*(slice(None),) * axis, index), source)
        at_rest = np.setdiff1d(np.arange(length), index)[:5]
        np.moveaxis(x, axis, 0)[at_rest] = -0.0
        source = source.astype(dtype_of(dtype))
        for given in (x, np.asfortranarray(x), np.copy(x)[..., ::-1][..., ::-1]):
            got = index_add(given, index, source, **options)
            rest = np.moveaxis(got, axis, 0)[at_rest]
            assert np.all(np.signbit(rest.real))
            np.moveaxis(want, axis, 0)[at_rest] = 0
            np.testing.assert_array_equal(got.astype(np.complex128), want)
        other = np.zeros_like(x)
        for out in (other, np.array(x)):
            before = out.copy()
            if count:
                bad = np.append(index[1:], length)
                with pytest.raises(IndexError, match=f"position {count - 1}"):
                    index_add(out if out is not other else x, bad, source, out=out, **options)
                np.testing.assert_array_equal(out, before)
            got = index_add(out if out is not other else x, index, source, out=out, **options)
            np.testing.assert_array_equal(got.astype(np.complex128), want)


@pytest.mark.parametrize("fill", ["nan", "inf", "zero", "large"])
def test_special_sums_of_few_rows(fill: str) -> None:
    x = np.full(5000, -0.0, np.float16)
    values = {"nan": np.nan, "inf": np.inf, "zero": 0, "large": 60_000}
    source = np.full(300, values[fill], np.float16)
    index = np.repeat(np.arange(100) * 7, 3)
    got = index_add(x, index, source, backend="sim", variant="few_rows")
    want = index_add(x, index, source, backend="sim", variant="v5")
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_few_rows_are_summed_in_float64() -> None:
    """3,000 rows of one destination, each below half a unit of x."""
    x = np.ones(20_000, np.float32)
    source = np.full(3000, 2.0**-25, np.float32)
    index = np.full(3000, 777)
    got = index_add(x, index, source, backend="sim", variant="few_rows")
    assert got[777] == np.float32(1 + 3000 * 2.0**-25)
    assert index_add(x, index, source, backend="sim", variant="v0")[777] == 1


def test_few_rows_are_chosen_where_most_destinations_have_none() -> None:
    def chosen(dtype: str, length: int, n: int, width: int = 1, **options: Any) -> str:
        x = np.broadcast_to(dtype_of(dtype).type(0), (length, width))
        source = np.broadcast_to(dtype_of(dtype).type(0), (n, width))
        index = np.broadcast_to(np.int64(0), (n,))
        return str(
            _core.plan("index_add", x, index, source, backend="sim", **options)["variant"]
        )

    assert chosen("float16", 4_000_000, 65_536) == "few_rows"
    assert chosen("float32", 4_000_000, 65_536) == "few_rows"
    assert chosen("bfloat16", 1_000_000, 20_000) == "v5"
    assert chosen("bfloat16", 524_288, 260_448) == "v5"
    assert chosen("bfloat16", 524_288, 100_000) == "v5"
    assert chosen("float16", 400_000, 20_000, 8) == "few_rows"
    assert chosen("float16", 100_000, 25_000, 8, deterministic=True) == "v4"
    assert chosen("float16", 100_000, 25_000, 87, deterministic=True) == "unpacked_rows"
    assert chosen("float16", 100_000, 25_000, 88, deterministic=True) == "v4"
    assert chosen("float64", 2_210_331, 65_536) == "one_by_one"
    assert chosen("float16", 2_210_331, 4096) == "one_launch"
    assert chosen("float16", 2**30, 2**19) == "few_rows"
    assert chosen("float16", 2**31 - 1, 2**19) == "few_rows"
    assert chosen("float16", 2**31, 2**19) != "few_rows"


@pytest.mark.parametrize("count", [2, 256, 257, 512, 513, 1024, 1025, 4096])
@pytest.mark.parametrize("length", [3, 200, 70_000])
def test_one_launch_sorts_any_rows(count: int, length: int) -> None:
    """Entries that are ranked, sorted in one pass or several, or in order already."""
    rng = np.random.default_rng(count)
    index = rng.integers(0, length, count)
    for width in (1, 7) if length > 200 else (1, 40):
        x = rng.integers(-3, 4, (length, width)).astype(np.float32)
        source = rng.integers(-3, 4, (count, width)).astype(np.float32)
        for given in (index, np.sort(index), np.sort(index)[::-1]):
            options: dict[str, Any] = {"backend": "sim", "variant": "one_launch"}
            want = added(x, given, source)
            np.testing.assert_array_equal(index_add(x, given, source, **options), want)
            y = x.copy()
            index_add(y, given, source, out=y, **options)
            np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize(
    ("shape", "count"),
    [
        ((1,), 9000),
        ((10,), 5000),
        ((255,), 3000),
        ((256,), 6000),
        ((257,), 6000),
        ((6, 40), 1500),
        ((3, 7, 5), 2500),
        ((2, 60, 3), 1100),
    ],
)
@pytest.mark.parametrize("schedule", ["shuffle", "preempt", "descending"])
def test_the_last_block_of_few_destinations(
    shape: tuple[int, ...], count: int, dtype: str, schedule: str,
    configure: Callable[..., Any],
) -> None:  # fmt: skip
    """Tables of up to 256 sums in one launch, others in three."""
    configure(checks=True, schedule=schedule)
    rng = np.random.default_rng([count, *shape])
    axis = 1 if len(shape) == 3 else 0
    length = shape[axis]
    x = rng.integers(-3, 4, shape).astype(dtype)
    source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :])).astype(dtype)
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "few_destinations"}
    for index in (
        rng.integers(0, length, count),
        np.full(count, length - 1),
        np.minimum(rng.zipf(1.3, count), length) - 1,
    ):
        want = np.array(x)
        np.add.at(want, (*(slice(None),) * axis, index), source)
        np.testing.assert_array_equal(index_add(x, index, source, **options), want)
        y = np.array(x)
        bad = np.append(index[1:], length)
        with pytest.raises(IndexError, match=f"position {count - 1}"):
            index_add(y, bad, source, out=y, **options)
        np.testing.assert_array_equal(y, x)
        index_add(y, index, source, out=y, **options)
        np.testing.assert_array_equal(y, want)
    zeros = np.full(shape, -0.0, dtype)
    got = index_add(zeros, index, np.zeros_like(source), **options)
    assert np.all(np.signbit(got.real))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((1024, 2), 0), ((1100, 4), 0), ((8192, 4), 0), ((2, 1030, 6), 1)]
)
def test_tables_of_two_columns_to_a_thread(
    shape: tuple[int, ...], axis: int, dtype: str, configure: Callable[..., Any]
) -> None:
    """All columns of short rows, or half of them; pairs in memory, and not; a bad index."""
    configure(checks=False, schedule="shuffle")
    length = shape[axis]
    rng = np.random.default_rng(shape)
    x = rng.integers(-3, 4, shape).astype(dtype)
    count = 33 * length + 11  # the simulator has 4 SMs
    source = rng.integers(-1, 2, (*shape[:axis], count, *shape[axis + 1 :])).astype(dtype)
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "few_destinations"}
    index = rng.integers(0, length, count)
    for part in (source, source[..., ::-1]):
        want = np.array(x)
        np.add.at(want, (*(slice(None),) * axis, index), part)
        np.testing.assert_array_equal(index_add(x, index, part, **options), want)
    y = np.array(x)
    index[-1] = length
    with pytest.raises(IndexError, match=f"position {count - 1}"):
        index_add(y, index, source, out=y, **options)
    np.testing.assert_array_equal(y, x)
    index_add(y, index, source, out=y, mode="clip", **options)
    index[-1] = length - 1
    want = np.array(x)
    np.add.at(want, (*(slice(None),) * axis, index), source)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex128", "bool"])
@pytest.mark.parametrize("count", [1, 5, 31, 86, 129, 256, 257])
@pytest.mark.parametrize(
    "shape", [(3,), (9000,), (40, 3), (30, 255), (2, 50, 7), (300, 300), (2**16 + 1, 2)]
)
def test_one_launch_compares_few_rows(
    shape: tuple[int, ...], count: int, dtype: str, configure: Callable[..., Any]
) -> None:
    """Blocks of whole rows and of a part, of all destinations and of a range."""
    configure(checks=count < 100, schedule="shuffle")
    rng = np.random.default_rng([count, *shape])
    axis = 1 if len(shape) == 3 else 0
    length = shape[axis]
    x = rng.integers(0, 4, shape).astype(dtype)
    source = rng.integers(0, 3, (*shape[:axis], count, *shape[axis + 1 :])).astype(dtype)
    options: dict[str, Any] = {"axis": axis, "backend": "sim", "variant": "one_launch"}
    for turn, index in enumerate(
        (
            rng.integers(-length, length, count),
            np.full(count, length - 1),
            np.minimum(rng.zipf(1.5, count), length) - 1,
        )
    ):
        want = np.array(x)
        at = (*(slice(None),) * axis, index)
        np.logical_or.at(want, at, source) if dtype == "bool" else np.add.at(want, at, source)
        np.testing.assert_array_equal(index_add(x, index, source, **options), want)
        if turn:
            continue  # out and what is refused are the same for any index
        y = np.array(x)
        index_add(y, index, source, out=y, **options)
        np.testing.assert_array_equal(y, want)
        bad = np.append(index[1:], length)
        with pytest.raises(IndexError, match=f"position {count - 1}"):
            index_add(y, bad, source, out=y, **options)
        np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("variant", ["v4", "one_element"])
def test_a_sort_of_long_indices(variant: str, configure: Callable[..., Any]) -> None:
    """Two tiles and three digits: bounds around a digit's range."""
    rng = np.random.default_rng(8)
    for length in (2, 511, 513, 1023, 1024, 1025, 2**18 + 1, 2**20 - 1, 2**20 + 1):
        index = rng.integers(0, length, 5000)
        x = np.zeros(length, np.int16)
        source = rng.integers(-99, 99, 5000).astype(np.int16)
        got = index_add(x, index, source, backend="sim", variant=variant)
        np.testing.assert_array_equal(got, added(x, index, source))


# ---- large indices ----


def test_more_rows_than_32_bits_count() -> None:
    """An index and a source of one broadcast element stand for gigabytes."""
    n = 2**31 + 300
    index = np.broadcast_to(np.int64(1), (n,))
    source = np.broadcast_to(np.int8(1), (n,))
    got = index_add(np.zeros(3, np.int8), index, source, backend="cpu", mode="wrap")
    assert got.tolist() == [0, n % 256 - 256 * (n % 256 > 127), 0]


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 300, 2**32 + 300])
@pytest.mark.parametrize(("rung", "per_block"), [("v0", 256), ("v1", 1024), ("v3", 32)])
def test_pinned_grid_strides_of_32_bits(
    rung: str, per_block: int, n: int, configure: Callable[..., Any]
) -> None:
    """The last two blocks add the last rows; the others are left out."""
    index = np.broadcast_to(np.int32(1), (n,))
    source = np.broadcast_to(np.int32(1), (n,))
    first = (n + per_block - 1) // per_block - 2
    configure(first_block=first)
    x = np.zeros(3, np.int32)
    got = index_add(x, index, source, mode="wrap", backend="sim", variant=rung)
    assert got.tolist() == [0, n - first * per_block, 0]


# ---- counts ----

PROFILES = {
    # requests of atomics and of other global accesses: 512 rows of 16 into 16, float32;
    # v1 and v3 add four floats by four atomics here, by one on sm_90
    "v0": (256, 512), "v1": (256, 128), "v2": (288, 512), "v3": (2048, 1024),
}  # fmt: skip


def test_profile_of_the_ladder() -> None:
    rng = np.random.default_rng(3)
    x = np.zeros((16, 16), np.float32)
    index = rng.integers(0, 16, 512)
    table = profile("index_add", x, index, np.ones((512, 16), np.float32))
    counts = {}
    for rung in PROFILES:
        kernel = next(k for k in table[rung] if k.kernel.startswith(f"index_add_{rung}"))
        counts[rung] = (kernel.atomic_requests, kernel.global_requests)
    assert counts == PROFILES
    assert all(k.races == 0 for k in table)
    assert all(k.atomic_requests == 0 for k in table["v4"] if "v4" in k.kernel)


# ---- one_writer: deterministic, few destinations ----


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("length", [1, 7, 1536])
def test_one_writer_adds_in_one_order(
    dtype: str, length: int, configure: Callable[..., Any]
) -> None:
    """The same bits in any order of blocks and warps, and for any place of hot rows."""
    rng = np.random.default_rng(length)
    kind = dtype_of(dtype)
    x = rng.standard_normal(length).astype(kind)
    for n in (1, 31, 5000):
        source = (rng.standard_normal(n) * 2.0 ** rng.integers(-9, 3, n)).astype(kind)
        for index in (
            rng.integers(0, length, n),
            np.full(n, length - 1),
            np.arange(n) % length,
        ):
            seen = set()
            for schedule in ("ascending", "descending", "shuffle", "preempt"):
                configure(checks=True, schedule=schedule)
                got = index_add(
                    x, index, source, alpha=0.5, deterministic=True, backend="sim",
                    variant="one_writer",
                )  # fmt: skip
                seen.add(got.tobytes())
            assert len(seen) == 1
            want = np.zeros(length) + x.astype(np.float64)
            np.add.at(want, index, 0.5 * source.astype(np.float64))
            bound = unit(kind) * np.abs(want) + 1e-12 * n + smallest(kind)
            assert np.all(np.abs(got.astype(np.float64) - want) <= bound)


def test_one_writer_is_chosen_for_many_rows() -> None:
    for n, length, chosen in (
        (1 << 16, 1000, "one_writer"),
        (4097, 1000, "one_writer"),
        (4096, 1000, "one_launch"),
        (1 << 16, 1537, "one_element"),
    ):
        x = np.zeros(length, np.float32)
        index, source = np.zeros(n, np.int64), np.zeros(n, np.float32)
        plan = _core.plan("index_add", x, index, source, deterministic=True, backend="sim")
        assert plan["variant"] == chosen
        plan = _core.plan("index_add", x, index, source, backend="sim")
        assert plan["variant"] != "one_writer"


# ---- failures ----


@pytest.mark.parametrize("rung", [*RUNGS, *(n for b, n in variants(shapes=True) if b == "sim")])
def test_every_step_of_a_call_fails_in_turn(rung: str, configure: Callable[..., Any]) -> None:
    width = {"one_element": 1, "one_writer": 1, "unpacked_rows": 9}.get(rung, 8)
    n = 4000 if rung in ("one_launch", "own_places", "own_rows") else 4400
    kind = np.float16 if rung in HALVES_ONLY else np.float32
    x = np.zeros((5000 if rung == "few_rows" else 9, width), kind)
    index, source = np.arange(n) % 9, np.ones((n, width), kind)
    before = None
    for step in range(200):
        configure(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = index_add(x, index, source, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            configure(fail_after=-1)
            continue
        break
    assert (2 if rung == "one_launch" else 3) <= step < 199
    np.testing.assert_array_equal(got, added(x, index, source))
    assert _core._sim_state()["allocations"] == before


@each_rung
@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
def test_rung_passes_every_check(
    rung: str, schedule: str, configure: Callable[..., Any]
) -> None:
    configure(checks=True, schedule=schedule)
    rng = np.random.default_rng(9)
    for shape, n in (((5,), 1100), ((40, 9), 70), ((6, 32), 130), ((3, 8), 33)):
        for dtype in ("int32", "float32", "float16"):
            if ("sim", rung) not in variants(dtype):
                continue
            x = rng.integers(0, 3, shape).astype(dtype)
            index = rng.integers(-shape[0], shape[0], n)
            source = rng.integers(0, 2, (n, *shape[1:])).astype(dtype)
            got = index_add(x, index, source, backend="sim", variant=rung)
            np.testing.assert_array_equal(got, added(x, index, source))


def test_bfloat16_is_a_dtype_of_every_variant() -> None:
    x = np.zeros(4, BFLOAT16)
    source = np.ones(9, BFLOAT16)
    want = index_add_expect(x, np.arange(9) % 4, source)
    for backend, variant in variants():
        got = index_add(x, np.arange(9) % 4, source, backend=backend, variant=variant)
        assert want.compare(got) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_few_rows_of_many_destinations_on_a_cpu(dtype: str, variant: str) -> None:
    """Only the destinations of rows are converted: the others keep their bits."""
    rng = np.random.default_rng(14)
    for shape, n in (((30_000,), 2000), ((30_000,), 40), ((900, 5), 300), ((700, 33), 20)):
        x = rng.integers(-9, 9, shape).astype(dtype_of(dtype))
        x.reshape(-1)[::7] = np.nan
        source = rng.integers(-9, 9, (n, *shape[1:])).astype(x.dtype)
        for index in (rng.integers(-shape[0], shape[0], n), np.full(n, 3)):
            want = x.astype(np.float64)
            np.add.at(want, index, source.astype(np.float64))
            untouched = np.ones(shape[0], bool)
            untouched[index] = False
            for out in (None, x.copy()):
                start = x if out is None else out
                got = index_add(start, index, source, out=out, backend="cpu", variant=variant)
                np.testing.assert_array_equal(
                    got.astype(np.float64), want.astype(x.dtype).astype(np.float64)
                )
                assert (got[untouched].tobytes()) == x[untouched].tobytes()
        with pytest.raises(IndexError, match="30001"):
            index_add(x, np.full(n, 30_001), source, backend="cpu", variant=variant)


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_destinations_that_end_with_the_same_bits_on_a_cpu(variant: str) -> None:
    """Counted together they are too many; in place an error comes before the first sum."""
    x = np.ones(16_384, np.float32)
    for index in (np.tile(np.arange(16) * 1024, 200), np.full(3200, 5)):
        source = np.full(index.size, 2.0**-25, np.float32)
        want = x.astype(np.float64)
        np.add.at(want, index, source.astype(np.float64))
        got = index_add(x, index, source, out=x.copy(), backend="cpu", variant=variant)
        assert np.all(np.abs(got - want) <= (1024 + 4) * 2.0**-25)  # rows lost beside a 1.0
        rest = np.delete(np.arange(x.size), index)
        np.testing.assert_array_equal(got[rest], x[rest])
        out, bad = x.copy(), np.append(index[1:], x.size)
        with pytest.raises(IndexError, match=f"position {index.size - 1}"):
            index_add(out, bad, source, out=out, backend="cpu", variant=variant)
        np.testing.assert_array_equal(out, x)
    wide = np.zeros((40, 600), np.float64)
    index = np.append(np.arange(500) % 40, 40)
    with pytest.raises(IndexError, match="position 500"):
        index_add(wide, index, np.ones((501, 600)), backend="cpu", variant=variant)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int16"])
@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_runs_of_one_destination_on_a_cpu(dtype: str, variant: str) -> None:
    """Four rows of one element for one destination are added in a register, in order."""
    rng = np.random.default_rng(15)
    for run in (1, 2, 3, 4, 5, 8, 40):
        index = np.repeat(np.arange(-7, 50), run)
        rows = rng.standard_normal(2 * index.size) * 2.0 ** rng.integers(-9, 9, 2 * index.size)
        for source in (
            rows[: index.size].astype(dtype_of(dtype)),
            rows.astype(dtype_of(dtype))[::2],
        ):
            x = rng.integers(-9, 9, 57).astype(source.dtype)
            got = index_add(x, index, source, backend="cpu", variant=variant)
            want = index_add(x, index, source, backend="cpu", variant="scalar")
            assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_sums_of_every_half_on_a_cpu(variant: str) -> None:
    """Widened and narrowed by vectors: every bit pattern as x and as a row, and rests."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    zeros = np.zeros_like(every)
    for n in (every.size, 4099, 37):
        for x, source in ((every, zeros), (zeros, every)):
            rows = np.concatenate([source[:n], np.zeros(19 * n, np.float16)])
            places = np.tile(np.arange(n), 20)
            got = index_add(x[:n], places, rows, backend="cpu", variant=variant)
            want = index_add(x[:n], places, rows, backend="cpu", variant="scalar")
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(got, every[:n])


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_ascending_index_keeps_the_order_of_rows_on_a_cpu(dtype: str, threads: int) -> None:
    """The parts of the index change no bit; one step down, or a bad entry, is found."""
    rng = np.random.default_rng(18)
    length = 40_000
    gpuopt.set_num_threads(threads)
    for n in (2048, 20_000, 100_000):
        index = np.sort(rng.integers(0, length, n))
        fallen = index.copy()
        fallen[[n // 3, n // 3 + 1]] = index[-1], index[0]
        x = rng.standard_normal(length).astype(dtype)
        x[::7] = -0.0
        source = (rng.standard_normal(n) * 2.0 ** rng.integers(-9, 9, n)).astype(dtype)
        for places in (index, fallen):
            want = x.astype(np.float64)
            np.add.at(want, places, 0.5 * source.astype(np.float64))
            for kind, variant in itertools.product((np.int32, np.int64), ("simd", "threads")):
                for out in (None, x.copy()):
                    start = x if out is None else out
                    got = index_add(start, places.astype(kind), source, alpha=0.5, out=out,
                                    backend="cpu", variant=variant)  # fmt: skip
                    if places is index or dtype == "float64":
                        assert got.tobytes() == want.astype(dtype).tobytes()
                    else:
                        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
        out, bad = x.copy(), np.append(index[:-1], length)
        with pytest.raises(IndexError, match=f"position {n - 1} "):
            index_add(out, bad, source, out=out, backend="cpu")
        assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_a_few_destinations_with_many_rows_on_a_cpu(variant: str) -> None:
    """Sums of float32 are moved to float64 before a bucket has many; others keep their bits."""
    rng = np.random.default_rng(19)
    length, n = 100_000, 30_000
    x = np.ones(length, np.float32)
    x[::7] = -0.0
    x[3::7] = np.nan
    hot = rng.choice(length, 5, replace=False) // 7 * 7 + 1
    index = np.where(rng.random(n) < 0.6, rng.choice(hot, n), rng.integers(0, length, n))
    source = small_after_large(rng, np.dtype(np.float32), n)
    exact, total = exact_sums(x[:, None], index, source[:, None])
    met = np.bincount(index, minlength=length) + 1.0
    untouched = np.bincount(index, minlength=length) == 0
    for step in (1, 2):
        rows = np.repeat(source, step)[::step]
        for out in (None, x.copy()):
            start = x if out is None else out
            got = index_add(start, index, rows, out=out, backend="cpu", variant=variant)
            assert got[untouched].tobytes() == x[untouched].tobytes()
            bound = (np.minimum(met, 1024) + 4) * 2.0**-24 * total[:, 0]
            bound += met * 2.0**-53 * total[:, 0] + 2.0**-24 * np.abs(exact[:, 0])
            error = np.abs(got.astype(np.float64) - exact[:, 0])
            assert np.all((error <= bound) | np.isnan(x))
            assert np.all(np.isnan(got) == np.isnan(x))
    out, bad = x.copy(), np.append(index[:-1], length)
    with pytest.raises(IndexError, match=f"position {n - 1} "):
        index_add(out, bad, source, out=out, backend="cpu", variant=variant)
    assert out.tobytes() == x.tobytes()


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
@pytest.mark.parametrize("width", [1, 2, 7, 15])
@pytest.mark.parametrize("dtype", NARROW[:3])
def test_short_rows_counted_by_buckets_on_a_cpu(dtype: str, width: int, mode: str) -> None:
    """Full buckets are moved more than once; entries and rows with strides; inf and nan."""
    rng = np.random.default_rng([width, *dtype.encode()])
    kind, length, n = dtype_of(dtype), 9_000 // width + 100, 3_000
    x = np.ones((length, width), kind)
    x[::7], x[3::7], x[5::7] = -0.0, np.nan, np.inf
    hot = 7 * rng.integers(0, length // 7, 2) + 1
    index = np.where(rng.random(n) < 0.8, rng.choice(hot, n), rng.integers(0, length, n))
    index = index // 7 * 7 + np.minimum(index % 7, 2)  # ones and zeros
    index[100:102] = 3, 5
    source = small_after_large(rng, kind, (n, width))
    given = index.copy()
    if mode != "clip":  # where a negative entry is 0
        given[::3] -= length
    if mode == "wrap":
        given[1::3] += 5 * length
    finite = np.isfinite(x.astype(np.float64))
    exact, total = exact_sums(np.where(finite, x.astype(np.float64), 1), index, source)
    met = np.bincount(index, minlength=length)[:, None] + 1.0
    bound = (np.minimum(met, 1024) + 4) * 2.0**-24 * total
    bound += met * 2.0**-53 * total + unit(kind) * np.abs(exact) + smallest(kind)
    untouched = met[:, 0] == 1
    found: dict[int, set[bytes]] = {1: set(), 2: set()}
    for step, place, variant in itertools.product(
        (1, 2), (np.int32, np.int64), ("simd", "threads", "scalar")
    ):
        rows = np.repeat(source, step, axis=0)[::step]
        places = np.repeat(given.astype(place), step)[::step]
        for out in (None, x.copy()):
            start = x if out is None else out
            got = index_add(
                start, places, rows, mode=mode, out=out, backend="cpu", variant=variant
            )
            assert got[untouched].tobytes() == x[untouched].tobytes()
            assert np.all(np.isnan(got[3].astype(np.float64)))
            assert np.all(np.isinf(got[5].astype(np.float64)))
            error = np.abs(np.where(finite, got.astype(np.float64), exact) - exact)
            assert np.all(error <= bound)
            if variant != "scalar":
                found[step].add(got.tobytes())
    assert len(found[1]) == len(found[2]) == 1


@pytest.mark.parametrize("variant", ["simd", "threads"])
def test_rows_of_float16_of_every_width_on_a_cpu(variant: str) -> None:
    """Whole vectors and rests, in float32 and in float64."""
    rng = np.random.default_rng(20)
    for width in (*range(2, 35), 64, 127):
        for length, n in ((3, 40), (2, 2100), (900, 1200)):
            x = rng.integers(-9, 9, (length, width)).astype(np.float16)
            index = rng.integers(0, length, n)
            source = rng.integers(-2, 3, (n, width)).astype(np.float16)
            want = x.astype(np.float64)
            np.add.at(want, index, source.astype(np.float64))
            got = index_add(x, index, source, backend="cpu", variant=variant)
            np.testing.assert_array_equal(got, want.astype(np.float16))
