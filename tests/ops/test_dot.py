"""dot beyond the matrix: NumPy's conventions, difficult values, and published bugs.

Order: what NumPy says, dtypes, out=, special values, accuracy, layouts, pinned bugs, large
indices, the rungs in the simulator, device/atomic.cuh.  See test_contract.py for values on
all sizes, layouts and dtypes.
"""

from __future__ import annotations

import array
import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import LAYOUTS_1D, Spec, determinism, dtype_of, flushes
from cases.dot import HALVES, OTHER_NORMAL, dot_expect
from conftest import Figure
from simulator_library import ESIM, OK, Library, compiled, shared_folder

import gpuopt
from gpuopt import _core, dot, ref
from gpuopt.lab.profile import profile

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)


def variants(shapes: bool = False) -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here; the shape kernels' by request."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("dot")
        if row["available"] and usable[row["backend"]] is None and bool(row["shape"]) == shapes
    ]


def shape_kernels(name: str) -> list[tuple[str, str]]:
    """(backend, name) of a shape kernel wherever it can run here."""
    return [row for row in variants(shapes=True) if row[1] == name]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
CPU = [name for backend, name in variants() if backend == "cpu"]
each_cpu = pytest.mark.parametrize("variant", CPU)
IN_HALF = ("v0", "v1", "v2")  # 16-bit floats are added in their own precision
each_wide = pytest.mark.parametrize(
    ("backend", "variant"), [row for row in variants() if row[1] not in IN_HALF]
)
each_in_half = pytest.mark.parametrize("variant", IN_HALF)
RUNGS = ("v0", "v1", "v2", "v3")


def supports(backend: str, variant: str, dtype: str) -> bool:
    for row in _core.variants("dot"):
        if (row["backend"], row["name"]) == (backend, variant):
            return dtype in row["dtypes"]
    raise LookupError(variant)


@pytest.fixture
def configure() -> Iterator[Callable[..., dict[str, Any]]]:
    """Change the simulator's settings; the old ones come back."""
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- what NumPy says ----


def test_errors_are_numpys() -> None:
    for n, m in ((3, 4), (0, 1), (1, 1000), (7, 0)):
        x, y = np.ones(n), np.ones(m)
        with pytest.raises(ValueError) as theirs:
            np.dot(x, y)
        with pytest.raises(ValueError, match=f"^{re.escape(str(theirs.value))}$"):
            dot(x, y)
        with pytest.raises(ValueError, match=f"^{re.escape(str(theirs.value))}$"):
            ref.dot(x, y)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(DTYPES, DTYPES)))
def test_every_pair_of_dtypes_is_promoted_as_by_numpy(a: str, b: str) -> None:
    x = np.array([1, 0, 1]).astype(dtype_of(a))
    y = np.array([1, 1, 0]).astype(dtype_of(b))
    try:
        want = np.result_type(x, y)
    except TypeError:
        with pytest.raises(TypeError, match="no common dtype"):
            dot(x, y)
        return
    got = dot(x, y)
    assert got.dtype == want
    assert type(got) is want.type
    assert got == 1


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_the_reference_means_what_numpy_means(dtype: str) -> None:
    for n in (0, 1, 2, 33, 1000):
        x = Spec((n,), dtype).values()
        y = Spec((n,), dtype, fill=OTHER_NORMAL).values()
        want = np.dot(x, y)
        for got in (ref.dot(x, y), dot(x, y)):
            assert type(got) is type(want)
            if want.dtype.kind in "biu":
                assert got == want
            else:
                assert dot_expect(x, y, halves=False).compare(got) is None
    out = np.empty((), np.float32)
    assert ref.dot(np.ones(3, "f4"), np.ones(3, "f4"), out) is out
    assert out == 3
    with pytest.raises(ValueError, match=r"out must have shape \(\)"):
        ref.dot([1.0], [1.0], np.empty(1))
    with pytest.raises(ValueError, match="y has dimension 0"):
        ref.dot([1.0], 2.0)


def test_complex_numbers_are_not_conjugated() -> None:
    x = np.array([1 + 2j, 3 - 1j], np.complex64)
    y = np.array([2 - 1j, 1j], np.complex64)
    for backend, variant in variants():
        if supports(backend, variant, "complex64"):
            assert dot(x, y, backend=backend, variant=variant) == np.dot(x, y)


@pytest.mark.parametrize(
    "x",
    [
        *([], [1, 2, 3], [1.5, 2], [True, False], (1, 2), range(10), [1 - 2j]),
        *(memoryview(b"abc"), bytearray(b"xyz"), array.array("d", [1.5, 2.5])),
        np.array([1, 2], ">i4"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_anything_numpy_takes(x: Any) -> None:
    got, want = dot(x, x), np.dot(x, x)
    assert got == want
    assert got.dtype == want.dtype
    assert got.dtype.isnative


# ---- dtypes ----


@each_variant
def test_integers_wrap_as_numpys(backend: str, variant: str) -> None:
    for dtype in DTYPES[1:9]:
        if not supports(backend, variant, dtype):
            continue
        info = np.iinfo(dtype)
        for n in (1, 2, 33, 1025):
            for a, b in ((info.max, info.max), (info.min, info.max), (info.min, info.min)):
                x, y = np.full(n, a, dtype), np.full(n, b, dtype)
                got = dot(x, y, backend=backend, variant=variant)
                assert got == np.dot(x, y)
                assert type(got) is np.dtype(dtype).type


@each_wide
def test_bool_is_any_of_both(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    assert dot([], [], **options).dtype == np.float64
    for n in (1, 2, 33, 70, 256, 257, 1025):
        x = np.zeros(n, bool)
        y = np.ones(n, bool)
        assert dot(x, y, **options) is np.False_
        for k in (0, n // 2, n - 1):
            x[k] = True
            assert dot(x, y, **options) is np.True_
            assert dot(x, ~x, **options) is np.False_
            x[k] = False
    raw = np.array([2, 0, 128, 4], np.uint8).view(bool)  # any nonzero byte is true
    assert dot(raw, np.array([1, 1, 0, 0], np.uint8).view(bool), **options) is np.True_
    assert dot(raw, np.array([0, 8, 0, 0], np.uint8).view(bool), **options) is np.False_
    assert dot(raw[2:], np.array([1, 0], np.uint8).view(bool), **options) is np.True_


def test_a_decided_bool_looks_no_further() -> None:
    """2**40 elements take minutes to read: the first chunk decides."""
    x = np.broadcast_to(np.True_, (1 << 24,))
    for variant in CPU:
        assert dot(x, x, backend="cpu", variant=variant) is np.True_
    x = np.zeros(1 << 21, bool)
    x[-1] = True
    for variant in CPU:
        assert dot(x, x, backend="cpu", variant=variant) is np.True_


# ---- out= ----


@each_variant
def test_out_is_written_and_nothing_beside_it(backend: str, variant: str) -> None:
    """Also the neighbour of a half: the other half of the word belongs to other data."""
    for dtype in ("float16", "bfloat16", "float32", "int32"):
        if not supports(backend, variant, dtype):
            continue
        kind = dtype_of(dtype)
        x = np.arange(9).astype(kind)
        for k in range(5):
            memory = np.full(7, 7, kind)
            out = memory[k : k + 1].reshape(())
            assert dot(x, x, out=out, backend=backend, variant=variant) is out
            assert out == 204
            memory[k] = 7
            assert (memory == 7).all(), "wrote beside out"
    swapped = np.zeros((), ">f2")
    x = np.arange(9, dtype=np.float16)
    assert dot(x, x, out=swapped, backend=backend, variant=variant) is swapped
    assert swapped == 204


@each_variant
def test_pinned_a_result_starts_from_zero(backend: str, variant: str) -> None:
    """The source clears the pointer, cudaMemset(&pointer, ...), and adds to old memory."""
    x = np.arange(100, dtype=np.float16) % 5
    out = np.full((), 1000, np.float16)
    for _ in range(3):
        dot(x, x, out=out, backend=backend, variant=variant)
        assert out == 600
    assert dot(x[:0], x[:0], backend=backend, variant=variant) == 0
    dot(x[:0], x[:0], out=out, backend=backend, variant=variant)
    assert out == 0
    assert not np.signbit(out)


def test_out_of_another_dtype_is_refused() -> None:
    x, out = np.ones(3, np.float32), np.full((), 7, np.float64)
    with pytest.raises(TypeError, match="float64"):
        dot(x, x, out=out)
    assert out == 7


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """n = 1..70: vector bodies and tails; the nan in x, then in y."""
    if not supports(backend, variant, dtype):
        return
    slow = backend == "sim" and variant != "v3"
    for n in (1, 2, 33, 70) if slow else range(1, 71):
        step = 1 if backend == "cpu" else max(1, n // 3)
        for k in range(0, n, step):
            x = np.ones(n, dtype_of(dtype))
            x[k] = np.nan
            for a, b in ((x, np.ones_like(x)), (np.zeros_like(x), x)):
                got = dot(a, b, backend=backend, variant=variant)
                assert np.isnan(complex(got)), (n, k)


@each_variant
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_infinities(backend: str, variant: str, dtype: str) -> None:
    if not supports(backend, variant, dtype):
        return
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in (1, 2, 31, 70, 257, 1025):
        x = np.ones(n, dtype_of(dtype))
        y = np.ones(n, dtype_of(dtype))
        x[n // 2] = np.inf
        assert float(dot(x, y, **options)) == np.inf
        assert float(dot(x, -y, **options)) == -np.inf
        y[n // 2] = 0
        assert np.isnan(float(dot(x, y, **options)))
        if n > 1:
            y[n // 2], x[0] = 1, -np.inf
            assert np.isnan(float(dot(x, y, **options)))
            assert float(dot(x, x, **options)) == np.inf


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float16", 2.0**-24), ("float32", 2.0**-149), ("float64", 2.0**-1074)):
        if not supports(backend, variant, dtype):
            continue
        for n in (1, 33, 257, 1025):
            x = np.arange(n) % 3
            got = dot((x * tiny).astype(dtype), np.ones(n, dtype), backend=backend,
                      variant=variant)  # fmt: skip
            exact = int(x.sum()) * tiny
            assert float(got) == exact or (
                flushes(backend, determinism("dot", backend, variant), dtype) and got == 0
            )


@each_wide
def test_a_sum_of_negative_zeros_is_zero(backend: str, variant: str) -> None:
    x = np.full(5, -0.0, np.float32)
    got = dot(x, np.ones(5, np.float32), backend=backend, variant=variant)
    assert got == 0
    assert not np.signbit(got)


# ---- accuracy ----


@each_wide
@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_added_in_float(backend: str, variant: str, dtype: str) -> None:
    """The bound that v0 to v2 do not keep: float32 sums, rounded once."""
    turn = 0
    for n in (1, 2, 31, 33, 255, 257, 1009, 1025, 8193):
        for layout in LAYOUTS_1D:
            other = LAYOUTS_1D[(turn := turn + 3) % len(LAYOUTS_1D)]
            x, y = Spec((n,), dtype, layout), Spec((n,), dtype, other, OTHER_NORMAL)
            got = dot(x.build(), y.build(), backend=backend, variant=variant)
            want = dot_expect(x.values(), y.values(), halves=False)
            assert want.compare(got) is None, (n, layout, other)


@each_wide
@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_adversarial_sums(
    backend: str, variant: str, dtype: str, eps: float, figure: Figure
) -> None:
    rng = np.random.default_rng(11)
    scale = 1e4 if dtype == "float32" else 1e8
    worst = 0.0
    for n in (3, 33, 256, 1025, 1025 if backend == "sim" else 100_003):
        cancel = np.resize([scale, 1, -scale], n)
        drift = np.full(n, 0.1)
        drift[0] = scale
        grow = np.exp(rng.uniform(-30, 30, n)) * rng.choice([-1, 1], n)
        for x in (cancel, drift, grow, np.sort(grow), rng.permutation(cancel)):
            for y in (np.abs(x), np.ones(n), rng.uniform(0.5, 1.5, n)):
                a, b = x.astype(dtype), y.astype(dtype)
                products = a.astype(np.longdouble) * b.astype(np.longdouble)
                low = products - products.astype(np.float64)
                exact = math.fsum([*products.astype(float), *low.astype(float)])
                size = math.fsum(np.abs(products.astype(float)))
                got = float(dot(a, b, backend=backend, variant=variant))
                bound = ((n - 1).bit_length() + 14) * eps * size + eps * abs(exact)
                error = abs(got - exact)
                assert error <= bound, (n, error, bound)
                worst = max(worst, error / bound)
    figure(f"dot {backend} {variant} {dtype}: worst sum", f"{worst:.0%} of the bound")


@each_cpu
def test_a_long_float32_sum_does_not_stagnate(variant: str) -> None:
    """2**25 ones: one float32 accumulator stops at 2**24."""
    x = np.broadcast_to(np.float32(1), (1 << 25,))
    assert dot(x, x, backend="cpu", variant=variant) == 1 << 25


# ---- layouts ----


@each_variant
@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "float64"])
def test_arrays_that_start_anywhere(backend: str, variant: str, dtype: str) -> None:
    """16-byte loads of two arrays with different offsets from 16-byte boundaries."""
    if not supports(backend, variant, dtype):
        return
    kind = dtype_of(dtype)
    most = 16 // kind.itemsize
    starts = sorted({0, 1, most // 2, most - 1, most})
    base = (np.arange(700) % 3).astype(kind)
    other = (np.arange(700) % 2).astype(kind)
    for a, b in itertools.product(starts, starts):
        for n in (1, 2, most, 31, 64, 257) if backend == "sim" else (*range(70), 500):
            x, y = base[a : a + n], other[b : b + n]
            want = np.dot(x.astype(np.int64), y.astype(np.int64))
            got = dot(x, y, backend=backend, variant=variant)
            assert int(got) == int(want.astype(np.int8) if dtype == "int8" else want), (a, b, n)


@each_wide
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_between_two_multiples_of_their_size(
    backend: str, variant: str, dtype: str
) -> None:
    real = np.float32 if dtype == "complex64" else np.float64
    for a, b in itertools.product(range(5), range(5)):
        for n in (0, 1, 2, 3, 5, 33, 70):
            x = (np.arange(2 * n + a) % 5).astype(real)[a:].view(dtype)
            y = (np.arange(2 * n + b) % 7 - 3).astype(real)[b:].view(dtype)
            assert dot(x, y, backend=backend, variant=variant) == np.sum(x * y), (a, b, n)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_v3_over_several_tiles_and_blocks(
    dtype: str, shift: int, configure: Callable[..., dict[str, Any]]
) -> None:
    """Tiles of 32 KiB, or 16 KiB where y is cut out of two packs; every block has one."""
    if _core.backends()["sim"] is not None:
        return
    configure(checks=True)
    kind = dtype_of(dtype)
    n = 70_000 // kind.itemsize + 5
    a, b = np.arange(n) % 3, np.arange(n + shift) % 2
    x, y = a.astype(kind), b.astype(kind)[shift:]
    got = dot(x, y, backend="sim", variant="v3")
    assert got == np.dot(a, b[shift:]).astype(kind)


@each_variant
def test_strides_of_either_sign(backend: str, variant: str) -> None:
    base = np.arange(-20, 20)
    views = [slice(None), slice(None, None, -1), slice(1, 31, 2), slice(30, 0, -2), slice(0, 0)]
    for dtype in ("int32", "float16"):
        if not supports(backend, variant, dtype):
            continue
        for a, b in itertools.product(views, views):
            x, y = base.astype(dtype)[a], base.astype(dtype)[b]
            n = min(x.size, y.size)
            got = dot(x[:n], y[:n], backend=backend, variant=variant)
            want = int(np.dot(base[a][:n], base[b][:n]))
            assert abs(int(got) - want) <= (64 if variant in IN_HALF[:3] else 2), (a, b)


@pytest.mark.parametrize(("backend", "variant"), shape_kernels("strided"))
def test_strided_takes_arrays_with_gaps(
    backend: str, variant: str, configure: Callable[..., dict[str, Any]]
) -> None:
    """Also over several blocks; v3 falls back to it, with the same bits."""
    if backend == "sim":
        configure(checks=True)
    for dtype in ("bool", "int8", "float16", "float32", "complex64"):
        base = (np.arange(40_000) % 3).astype(dtype_of(dtype))
        for x, y in (
            (base[::2], base[:20_000]),
            (base[:700], base[700::-1][:700]),
            (np.broadcast_to(base[1], (33,)), base[:33]),
        ):
            assert _core.plan("dot", x, y, backend=backend)["variant"] == variant
            got = dot(x, y, backend=backend, variant=variant)
            assert got == dot(x, y, backend=backend, variant="v3")
            assert got == ref.dot(x, y)
        for x, y in ((base, base), (base[::-1], base[::-1])):
            assert _core.plan("dot", x, y, backend=backend)["variant"] == "v3"
            with pytest.raises(gpuopt.VariantError, match="gaps"):
                dot(x, y, backend=backend, variant=variant)


@pytest.mark.parametrize(("backend", "variant"), shape_kernels("one_block"))
@pytest.mark.parametrize("dtype", ["uint16", "float16", "float32", "complex128"])
def test_one_block_takes_short_arrays(
    backend: str, variant: str, dtype: str, configure: Callable[..., dict[str, Any]]
) -> None:
    """At any offset of x and of y; more packs than its threads, and more than v3's tile."""
    if backend == "sim":
        configure(checks=True)
    most = (64 << 10) // dtype_of(dtype).itemsize
    x = (np.arange(most + 8) % 3).astype(dtype_of(dtype))
    y = (np.arange(most + 8) % 2).astype(dtype_of(dtype))
    for n in (0, 1, most // 4 + 1, most // 2 - 5, most):
        for i, j in ((0, 0), (1, 1), (0, 1), (3, 0)):
            a, b = x[i : i + n], y[j : j + n]
            got = dot(a, b, backend=backend, variant=variant)
            assert got == dot(a, b, backend=backend, variant="v3") == ref.dot(a, b), (n, i, j)
    chosen = [
        _core.plan("dot", x[:n], y[:n], backend=backend)["variant"]
        for n in (most // 4, min(most, 16384), most + 1)
    ]
    assert chosen == ["v3", "one_block" if most // 4 < 16384 else "v3", "v3"]
    with pytest.raises(gpuopt.VariantError, match="64 KiB"):
        dot(x[: most + 1], y[: most + 1], backend=backend, variant=variant)


@each_variant
def test_an_array_with_itself(backend: str, variant: str) -> None:
    x = (np.arange(257) % 4).astype(np.float16)
    assert dot(x, x, backend=backend, variant=variant) == 896
    assert dot(x, x[::-1], backend=backend, variant=variant) == np.dot(x, x[::-1])
    column = np.broadcast_to(np.float16(2), (100,))
    assert dot(column, column, backend=backend, variant=variant) == 400


# ---- pinned bugs ----


@each_in_half
@pytest.mark.parametrize("dtype", HALVES)
def test_pinned_half_accumulators_lose_small_products(variant: str, dtype: str) -> None:
    """A known property of v0 to v2: a sum of ones stops at 2048 (bfloat16: 256)."""
    if _core.backends()["sim"] is not None:
        return
    x = np.ones(5000, dtype_of(dtype))
    stays = 2048 if dtype == "float16" else 256
    at = stays if variant == "v0" else 2 * stays  # two sums of ones, or a sum of twos
    assert dot(x, x, backend="sim", variant=variant) == at


@each_in_half
def test_pinned_half_accumulators_overflow(variant: str) -> None:
    """A partial sum above 65504 stays inf."""
    if _core.backends()["sim"] is not None:
        return
    x = np.full(2048, 16, np.float16)
    x[1024:] = -16
    y = np.full(2048, 16, np.float16)
    assert not np.isfinite(dot(x, y, backend="sim", variant=variant))


@each_wide
def test_pinned_sums_past_65504_come_back(backend: str, variant: str) -> None:
    n = 2048 if backend == "sim" else 1 << 20
    x, y = np.full(n, 16, np.float16), np.full(n, 16, np.float16)
    x[n // 2 :] = -16
    assert dot(x, y, backend=backend, variant=variant) == 0
    assert dot(y, y, backend=backend, variant=variant) == np.inf  # the result itself
    ones = np.ones(5000, np.float16)
    assert dot(ones, ones, backend=backend, variant=variant) == 5000


@each_cpu
def test_pinned_32_mi_times_a_hundredth(variant: str) -> None:
    """The source's own input, 0.1 * 0.1 added 2**25 times, is beyond 65504."""
    for dtype in HALVES:
        kind = dtype_of(dtype)
        x = np.broadcast_to(np.array(0.1, kind), (1 << 25,))
        exact = float(x[0]) ** 2 * (1 << 25)
        assert exact > 65504
        got = dot(x, x, backend="cpu", variant=variant)
        with np.errstate(over="ignore"):
            assert float(got) == float(np.float64(exact).astype(kind))


@each_variant
def test_pinned_one_sum_in_each_half_of_a_pair(backend: str, variant: str) -> None:
    """The source's packed dot adds one sum to both halves: twice the result."""
    for n in (1, 2, 3, 64, 255, 256, 257, 1023):
        y = np.ones(n, np.float16)
        for first in (0, 1):
            x = np.zeros(n, np.float16)
            x[first::2] = 1
            got = dot(x, y, backend=backend, variant=variant)
            assert got == len(range(first, n, 2)), (n, first)


@pytest.mark.parametrize("dtype", HALVES)
def test_pinned_the_neighbour_trick_writes_nothing_past_the_result(
    dtype: str, configure: Callable[..., dict[str, Any]]
) -> None:
    """The source passes the input's length for a result of one element."""
    if _core.backends()["sim"] is not None:
        return
    configure(checks=True)
    for n in (1, 2, 33, 257):
        x = np.ones(n, dtype_of(dtype))
        out = np.zeros((), dtype_of(dtype))
        dot(x, x, out=out, backend="sim", variant="v2")
        assert abs(float(out) - n) <= 1


@each_variant
def test_pinned_tails(backend: str, variant: str) -> None:
    """Grids of n / 256 and loops over whole packs drop the last elements."""
    for n in [*range(1, 1100, 37 if backend == "sim" else 1), 4095, 4096, 4097]:
        x, y = np.zeros(n, np.float16), np.ones(n, np.float16)
        x[-1] = 5
        assert dot(x, y, backend=backend, variant=variant) == 5, n


# ---- large indices ----


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**31 + 300, 2**32 + 300])
def test_more_elements_than_32_bits_count(n: int) -> None:
    """A broadcast element stands for gigabytes; the sum is taken modulo 2**8."""
    x = np.broadcast_to(np.int8(3), (n,))
    y = np.broadcast_to(np.int8(5), (n,))
    want = np.int64(15 * n).astype(np.int8)
    assert dot(x, y, backend="cpu", variant="simd") == want


def test_an_offset_past_32_bits() -> None:
    """Elements 2**25 apart; most of the memory between them is never touched."""
    memory = np.zeros((2**32 + 2**26,), np.int8)
    x = memory[:: 2**25]
    x[...] = np.arange(x.size) % 5
    want = np.dot(x.astype(np.int64), x.astype(np.int64)).astype(np.int8)
    for variant in CPU:
        assert dot(x, x, backend="cpu", variant=variant) == want
        assert dot(x, x[::-1], backend="cpu", variant=variant) == np.dot(x, x[::-1])


# ---- the rungs in the simulator ----


def halves(n: int, dtype: str = "float16") -> tuple[Any, Any, int]:
    """Two arrays whose sums of products are exact in any order, and the result."""
    x = (np.arange(n) % 2).astype(dtype_of(dtype))
    y = (np.arange(n) % 4 == 1).astype(dtype_of(dtype))
    return x, y, len(range(1, n, 4))


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
def test_rung_passes_every_check(
    rung: str, schedule: str, configure: Callable[..., dict[str, Any]]
) -> None:
    if _core.backends()["sim"] is not None:
        return
    configure(checks=True, schedule=schedule)
    for n in (0, 1, 33, 1025):
        for dtype in ("float16", "bfloat16"):
            if n > 1000 and dtype == "bfloat16":
                continue
            x, y, want = halves(n, dtype)
            assert dot(x, y, backend="sim", variant=rung) == want
            if n:
                got = dot(x[1:], y[:-1], backend="sim", variant=rung)
                assert got == int(np.sum(x[1:].astype(int) * y[:-1].astype(int)))
            assert dot(x[::2], y[::2], backend="sim", variant=rung) == 0
    if rung == "v3":  # several tiles: the blocks meet in a ticket
        x, y, want = halves(33_000)
        with np.errstate(over="ignore"):
            assert dot(x, y, backend="sim", variant=rung) == np.float64(want).astype("f2")
            got = dot(x[1:], y[1:], backend="sim", variant=rung)
            assert got == np.float64(want).astype("f2")


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("checks", [False, True])
def test_every_step_of_a_call_fails_in_turn(
    rung: str, checks: bool, configure: Callable[..., dict[str, Any]]
) -> None:
    if _core.backends()["sim"] is not None:
        return
    x, y, want = halves(33_000 if rung == "v3" else 600)
    want = int(np.float64(want).astype(np.float16))
    before, step = None, 0
    for step in range(100):
        configure(checks=checks, fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = dot(x, y, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            configure(fail_after=-1)
            assert dot(x, y, variant=rung, backend="sim") == want
            continue
        assert got == want
        break
    assert 3 <= step < 99
    assert _core._sim_state()["allocations"] == before


# Requests and sectors of global memory, then atomic requests, of each rung's own kernel:
# 16,384 pairs of float16.
PROFILES = {
    "v0": (1024, 2048, 256),
    "v1": (512, 2048, 256),
    "v2": (512, 2048, 256),
    "v3": (132, 2052, 2),
}


def test_profile_of_the_ladder() -> None:
    if _core.backends()["sim"] is not None:
        return
    x, y, _ = halves(16384)
    table = profile("dot", x, y)
    found = {}
    for kernel in table:
        if kernel.kernel.startswith(f"dot_{kernel.variant}_") and "finish" not in kernel.kernel:
            found[kernel.variant] = (
                kernel.global_requests, kernel.global_sectors, kernel.atomic_requests
            )  # fmt: skip
            assert kernel.races == 0
    assert found == PROFILES


# ---- device/atomic.cuh ----


@pytest.fixture(scope="module")
def atomics(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return compiled(shared_folder(tmp_path_factory, "atomics"), ["atomics"], ["profile"])[
        "atomics", "profile"
    ]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("way", ["plain", "fast"])
def test_additions_to_every_element_of_an_array(atomics: Library, way: str, dtype: str) -> None:
    """At either half of a word; the memory beside the array keeps its bits."""
    kind = dtype_of(dtype)
    name = f"atomics_{way}_{'f16' if dtype == 'float16' else 'bf16'}"
    for schedule, length in itertools.product(("ascending", "shuffle", "preempt"), range(1, 7)):
        for first in (1, 2):  # elements before the array
            value = (np.arange(length) * 2 - 3).astype(kind)
            before = np.arange(10, 11 + first + length).astype(kind)
            before[first + length // 2] = value[length // 2] = -0.0  # it stays -0.0
            out = np.zeros_like(before)
            status, out, message = atomics.run(
                name, np.concatenate([value, before]), out,
                length if first == 1 else -length, schedule=schedule, checks=True,
            )  # fmt: skip
            assert status == OK, message
            want = before.copy()
            want[first : first + length] += (3 * value.astype(np.float32)).astype(kind)
            assert out.tobytes() == want.tobytes(), (schedule, length, first)


def test_pinned_a_wrong_length_is_found_by_the_simulator(atomics: Library) -> None:
    """A packed atomic on a single element also writes its neighbour."""
    out = np.zeros(1, np.float16)
    status, _, message = atomics.run("atomics_past_the_end", None, out, 1000, checks=True)
    assert status == ESIM
    assert "out-of-bounds write of 4 bytes" in message
