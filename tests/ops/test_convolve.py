"""convolve beyond the matrix: NumPy's meaning, special values, bugs pinned for good.

Order: what it means, dtypes, out=, special values, accuracy, Fourier transforms, pinned
bugs, tiles and parts, large strides, the simulator's counts and faults.  Sizes, layouts and
dtypes are test_contract.py's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.convolve import MODES, expect_values
from conftest import Child, Figure

import gpuopt
from gpuopt import _core, convolve, ref
from gpuopt.lab.profile import profile

RUNGS = ("v0", "v1", "v2")


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("convolve")
        if row["available"] and usable[row["backend"]] is None
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def whole(shape: Any, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure, its settings restored afterwards."""
    if _core.backends()["sim"] is not None:
        pytest.fail("the simulator is part of every build")
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- what it means ----


@each_variant
def test_it_is_numpys_convolve(backend: str, variant: str) -> None:
    for n, m in ((1, 1), (7, 3), (3, 7), (40, 40), (129, 17), (4, 300)):
        a, v = whole(n), whole(m, seed=1)
        for mode in MODES:
            got = convolve(a, v, mode, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, np.convolve(a, v, mode))
            assert got.dtype == np.float32


def test_what_numpy_takes() -> None:
    """Lists, numbers, and two numbers: an array of one element."""
    for a, v in (([1, 2, 3], [0, 1, 0.5]), (3, [1, 2]), (2.0, 4), ([True], [False, True])):
        want, got = np.convolve(a, v), convolve(a, v)
        np.testing.assert_array_equal(got, want)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)


@each_variant
def test_leading_axes_broadcast(backend: str, variant: str) -> None:
    shapes: tuple[tuple[Any, Any], ...] = (
        ((3, 20), (5,)),
        ((20,), (3, 5)),
        ((2, 1, 20), (3, 5)),
        ((2, 3, 4), (2, 1, 9)),
        ((2, 2), (2, 2)),
    )
    for x, y in shapes:
        a, v = whole(x), whole(y, seed=1)
        for mode in MODES:
            got = convolve(a, v, mode, backend=backend, variant=variant)
            rows = np.broadcast_shapes(x[:-1], y[:-1])
            assert got.shape[:-1] == rows
            for row in np.ndindex(rows):
                left = np.broadcast_to(a, (*rows, x[-1]))[row]
                right = np.broadcast_to(v, (*rows, y[-1]))[row]
                np.testing.assert_array_equal(got[row], np.convolve(left, right, mode))


def test_the_reference_means_what_numpy_means() -> None:
    rng = np.random.default_rng(5)
    a, v = rng.standard_normal(30), rng.standard_normal(7)
    for mode in MODES:
        np.testing.assert_allclose(ref.convolve(a, v, mode), np.convolve(a, v, mode))
    out = np.empty(36)
    assert ref.convolve(a, v, out=out) is out
    with pytest.raises(ValueError, match="mode"):
        ref.convolve(a, v, "fill")
    for x, y, name in ((a, [], "v"), ([], v, "a"), ([], [], "a")):
        with pytest.raises(ValueError, match=f"^{name} cannot be empty$"):
            ref.convolve(x, y)
        with pytest.raises(ValueError, match=f"^{name} cannot be empty$"):
            np.convolve(x, y)


# ---- dtypes ----


def test_the_result_has_numpys_dtype() -> None:
    names = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    names += ("float16", "float32", "float64", "complex64", "complex128")
    for a in names:
        for b in names:
            x, y = np.ones(3, a), np.ones(2, b)
            want, got = np.convolve(x, y), convolve(x, y)
            assert got.dtype == want.dtype, (a, b)
            np.testing.assert_array_equal(got, want)


def test_bfloat16_with_what_numpy_has_no_common_dtype_for() -> None:
    x = np.ones(3, BFLOAT16)
    for other, result in (("float16", "float32"), ("int16", "float32"), ("int64", "float64")):
        assert convolve(x, np.ones(2, other)).dtype == result
        assert convolve(np.ones(4, other), x).dtype == result
    assert convolve(x, np.ones(2, np.int8)).dtype == BFLOAT16


@each_variant
def test_bool_is_logical(backend: str, variant: str) -> None:
    """300 true products are true, and any byte but 0 is."""
    a = np.ones(300, np.uint8)
    a[::2] = 2
    got = convolve(a.view(bool), np.ones(300, bool), backend=backend, variant=variant)
    assert got.dtype == bool
    np.testing.assert_array_equal(got.view(np.uint8), np.ones(599, np.uint8))


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    a, v = whole((4, 20)), whole(6, seed=1)
    want = np.stack([np.convolve(row, v) for row in a])
    base = np.full((9, 51), 99, np.float32)
    for out in (
        np.empty((4, 25), np.float32),
        np.empty((25, 4), np.float32).T,
        np.empty((4, 25), np.float32)[::-1, ::-1],
        np.empty((4, 25), ">f4"),
        base[1:8:2, 1::2],
    ):
        got = convolve(a, v, out=out, backend=backend, variant=variant)
        assert got is out
        np.testing.assert_array_equal(out, want)
    base[1:8:2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """N = 1..70: row k has its nan at k, the last row none; then the filters have."""
    slow = backend == "sim"
    lengths = (1, 2, 33, 70) if slow and dtype != "float32" else range(1, 71)
    v = np.ones(3, dtype_of(dtype))
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    for n in lengths:
        x = np.ones((n + 1, n), dtype_of(dtype))
        x[np.arange(n), np.arange(n)] = np.nan
        got = np.isnan(convolve(x, v, **options).astype(np.complex128))
        i, k = np.arange(n + 2), np.arange(n + 1)[:, None]
        np.testing.assert_array_equal(got, (k < n) & (i >= k) & (i < k + 3))
        if n % 10 == 3:
            got = np.isnan(convolve(v, x, **options).astype(np.complex128))
            np.testing.assert_array_equal(got, (k < n) & (i >= k) & (i < k + 3))


@each_variant
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_what_is_beyond_the_ends_is_no_zero(backend: str, variant: str, dtype: str) -> None:
    """A tile is filled up with zeros, and 0 times inf is a nan: none may come out."""
    for n, m in ((40, 9), (9, 9), (200, 33)):
        for special in (np.inf, np.nan):
            a, v = np.ones(n, dtype), np.ones(m, dtype)
            v[m // 2] = special
            for mode in MODES:
                with np.errstate(invalid="ignore"):
                    want = np.convolve(a, v, mode)
                got = convolve(a, v, mode, backend=backend, variant=variant)
                np.testing.assert_array_equal(got, want)
            a[0], v[m // 2] = special, 1
            with np.errstate(invalid="ignore"):
                want = np.convolve(a, v)
            np.testing.assert_array_equal(
                convolve(a, v, backend=backend, variant=variant), want
            )


@each_variant
def test_16_bit_sums_pass_the_largest_number_on_the_way(backend: str, variant: str) -> None:
    a = np.array([60000, 60000, 60000, -60000, -60000], np.float16)
    got = convolve(a, np.ones(5, np.float16), "valid", backend=backend, variant=variant)
    np.testing.assert_array_equal(got, np.array([60000], np.float16))


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074)):
        a = (whole(40, np.float64) * tiny).astype(dtype)
        got = convolve(a, np.array([1, -1, 1], dtype), backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.convolve(a, np.array([1, -1, 1], dtype)))
        assert np.any(got != 0)


# ---- accuracy ----


@each_variant
def test_relative_error_of_a_row(backend: str, variant: str, figure: Figure) -> None:
    """float32: below 1e-6 against float64, on normal and on uniform numbers."""
    rng = np.random.default_rng(11)
    worst = 0.0
    sizes = ((300, 31), (1500, 600)) if backend == "sim" else ((1000, 31), (9000, 4000))
    for n, m in sizes:
        for draw in (rng.standard_normal, rng.random):
            a, v = draw(n).astype(np.float32), draw(m).astype(np.float32)
            want = np.convolve(a.astype(np.float64), v.astype(np.float64))
            got = convolve(a, v, backend=backend, variant=variant)
            error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
            assert error <= 1e-6, (n, m)
            worst = max(worst, error)
    figure(f"convolve {backend} {variant}: relative error of a row", f"{worst:.1e}")


@each_variant
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adversarial_rows(backend: str, variant: str, dtype: str) -> None:
    rng = np.random.default_rng(12)
    scale = 1e8 if dtype == "float32" else 1e16
    for n, m in ((40, 9), (600, 300)):
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        for a in (np.resize([scale, 1, -scale], n), grow, np.sort(grow)):
            x, v = a.astype(dtype), rng.standard_normal(m).astype(dtype)
            got = convolve(x, v, backend=backend, variant=variant)
            assert expect_values(x, v).compare(got) is None, (n, m)


# ---- Fourier transforms ----

LONG, FILTER = 20_000, 3_000


def by_transform(dtype: Any) -> bool:
    a, v = np.ones(LONG, dtype), np.ones(FILTER, dtype)
    plan = _core.plan("convolve", a, v, backend="cpu")
    return "Fourier" in plan["why"]


def test_long_floating_filters_alone_go_through_a_transform() -> None:
    for dtype in FLOATS:
        assert by_transform(dtype_of(dtype)), dtype
    for name in ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"):
        assert not by_transform(name), name
    short = _core.plan("convolve", np.ones(LONG), np.ones(9), backend="cpu")
    assert "Fourier" not in short["why"]


def test_the_choice_says_why() -> None:
    a, v = np.ones(70_000, np.int32), np.ones(70, np.int32)
    for threads, variant, why in ((1, "simd", "one thread"), (3, "threads", "several")):
        gpuopt.set_num_threads(threads)
        plan = _core.plan("convolve", a, v, backend="cpu")
        assert (plan["variant"], why in plan["why"]) == (variant, True)
    plan = _core.plan("convolve", a[:9], v, backend="cpu")
    assert (plan["variant"], "costs more" in plan["why"]) == ("simd", True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_transforms_of_batches(dtype: str) -> None:
    """Filters shared, one per row, and shared by some rows; all blocks of a row, or one."""
    rng = np.random.default_rng(3)
    for x, y in (((3, 9000), (1200,)), ((2, 4000), (2, 3500)), ((2, 2, 5000), (2, 1, 2000))):
        a, v = (rng.standard_normal(s).astype(dtype_of(dtype)) for s in (x, y))
        for mode in MODES:
            plan = _core.plan("convolve", a, v, mode, backend="cpu")
            got = convolve(a, v, mode, backend="cpu", variant="threads")
            assert "Fourier" in plan["why"] or mode == "valid"
            assert expect_values(a, v, mode).compare(got) is None, (x, y, mode)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_nan_and_inf_stay_in_their_sums(dtype: str) -> None:
    a, v = np.ones(LONG, dtype), np.ones(FILTER, dtype)
    a[777], a[15_000] = np.nan, np.inf
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        got = convolve(a, v, backend="cpu")
    bad = ~np.isfinite(got)
    want = np.zeros(got.size, bool)
    want[777 : 777 + FILTER] = want[15_000 : 15_000 + FILTER] = True
    np.testing.assert_array_equal(bad, want)
    assert np.isposinf(got.real[15_001])


def test_a_spectrum_beyond_the_largest_number() -> None:
    a, v = np.zeros(LONG), np.ones(FILTER)
    a[5000] = 1e308
    with np.errstate(all="raise"):
        got = convolve(a, v, backend="cpu")
    assert (got[5000 : 5000 + FILTER] == 1e308).all()
    assert np.isfinite(got).all()


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_an_exception_of_the_transform_comes_out(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, v = np.ones(LONG), np.ones(FILTER)
    for name in ("rfft", "irfft"):
        with monkeypatch.context() as patch:

            def fail(*args: Any, **kwargs: Any) -> Any:
                raise error("from the transform")

            patch.setattr(np.fft, name, fail)
            with pytest.raises(error, match="from the transform"):
                convolve(a, v, backend="cpu")
    assert convolve(a, v, backend="cpu").max() == pytest.approx(FILTER)


def test_a_signal_during_the_transform(child: Child) -> None:
    done = child(
        """
import os, signal
import numpy as np
import gpuopt
rfft = np.fft.rfft
def interrupted(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    return rfft(*args, **kwargs)
for handled in (False, True):
    if handled:  # a handler that makes calls of its own
        signal.signal(signal.SIGINT, lambda *_: gpuopt.convolve(np.ones(20000), np.ones(3000)))
    np.fft.rfft = interrupted
    try:
        gpuopt.convolve(np.ones(20000), np.ones(3000), backend="cpu")
        print("done")
    except KeyboardInterrupt:
        print("interrupted")
    np.fft.rfft = rfft
print(round(gpuopt.convolve(np.ones(20000), np.ones(3000), backend="cpu").max()))
""".replace("lambda *_: gpuopt", "lambda *_: np.fft.__setattr__('rfft', rfft) or gpuopt")
    )
    assert done.stdout.split() == ["interrupted", "done", "3000"]


def test_transforms_in_threads_and_forks(child: Child) -> None:
    done = child(
        """
import os, threading
import numpy as np
import gpuopt
a, v = np.random.default_rng(0).standard_normal((2, 20000))
v = v[:3000]
want = gpuopt.convolve(a, v, backend="cpu")
def work():
    for _ in range(10):
        assert np.array_equal(gpuopt.convolve(a, v, backend="cpu"), want)
        good.append(1)
good = []
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(not np.array_equal(gpuopt.convolve(a, v, backend="cpu"), want))
    assert os.waitpid(pid, 0)[1] == 0
print(len(good))
"""
    )
    assert done.stdout.strip() == "40"


# ---- pinned bugs ----


@each_variant
def test_pinned_no_power_of_two_length_is_written(backend: str, variant: str) -> None:
    """The published program computes L, the power of two from N + M - 1 on, and one of its
    calls passes it for the length of a result that has N + M - 1 elements."""
    for n, m in ((20, 14), (129, 1), (100, 29), (33, 33)):
        memory = np.full(1024, 99, np.float32)
        out = memory[128 : 128 + n + m - 1]
        a, v = whole(n), whole(m, seed=1)
        convolve(a, v, out=out, backend=backend, variant=variant)
        np.testing.assert_array_equal(out, np.convolve(a, v))
        assert (memory[:128] == 99).all()
        assert (memory[128 + n + m - 1 :] == 99).all()


@each_variant
def test_pinned_integers_are_not_rounded_through_a_float(backend: str, variant: str) -> None:
    """A convolution by float Fourier transforms rounds what passes 2**53, or wraps wrong."""
    rng = np.random.default_rng(7)
    n, m = (300, 200) if backend == "sim" else (5000, 3000)
    for dtype in (np.int64, np.uint64, np.int32, np.uint8):
        info = np.iinfo(dtype)
        a = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        v = rng.integers(info.min, info.max, m, dtype, endpoint=True)
        got = convolve(a, v, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.convolve(a, v))
    a, v = np.full(n, 2**38 + 1), np.full(m, 2**12 + 1)
    want = (2**38 + 1) * (2**12 + 1) * m
    assert convolve(a, v, "valid", backend=backend, variant=variant)[0] == want


@each_variant
def test_pinned_the_filter_may_be_any_length(backend: str, variant: str) -> None:
    """The published constant symbol holds as many taps as its declaration says."""
    for m in (511, 512, 513, 1025, 1030):
        v = whole(m, np.int64, seed=m)
        a = whole(9, np.int64)
        got = convolve(a, v, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.convolve(a, v))


def test_pinned_filters_in_constant_memory_are_the_launchs_own(simulator: Any) -> None:
    """One symbol for the module would hold the filter of whoever wrote last."""
    a = gpuopt.asdevice(whole(200), backend="sim")
    filters = [whole(600, seed=s) for s in range(4)]
    streams = [gpuopt.Stream(backend="sim") for _ in filters]
    results = [
        convolve(a, gpuopt.asdevice(v, backend="sim"), variant="v1", stream=s)
        for v, s in zip(filters, streams, strict=True)
    ]
    for v, result in zip(filters, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), np.convolve(whole(200), v))


# ---- several tiles whose terms are split ----


@each_variant
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex128"])
def test_tiles_and_parts(backend: str, variant: str, dtype: str) -> None:
    """More than one tile of a row, more than one part of its terms, some of them empty."""
    a, v = whole(5000, dtype), whole(600, dtype, seed=1)
    for n, m in ((5000, 600), (4700, 520), (1300, 600)):
        for mode in MODES:
            got = convolve(a[:n], v[:m], mode, backend=backend, variant=variant)
            assert expect_values(a[:n], v[:m], mode).compare(got) is None, (n, m, mode)


# ---- large strides ----


@each_variant
def test_offsets_past_32_bits(backend: str, variant: str) -> None:
    """Two rows 2**31 + 8 elements apart, all else between them never touched."""
    far = 2**31 + 8
    memory = np.zeros(far + 64, np.float16)
    memory[:12] = 1
    memory[far : far + 12] = 2
    step = memory.itemsize
    a = np.lib.stride_tricks.as_strided(memory, (2, 12), (far * step, step))
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    got = convolve(a, np.ones(3, np.float16), "valid", **options)
    np.testing.assert_array_equal(got, np.repeat([[3], [6]], 10, axis=1))
    v = np.lib.stride_tricks.as_strided(memory, (2, 2), (step, far * step))
    got = convolve(np.ones(2, np.float16), v, "valid", **options)
    np.testing.assert_array_equal(got, [[3], [3]])


# ---- the simulator: counts and faults ----

# Requests to shared memory, their wavefronts, requests to global memory, barriers of a
# thread: N = 300, M = 41, float32, all kernels of the rung.
GOLDEN = {
    "v0": (0, 0, 853, 0),
    "v1": (510, 510, 24, 6),
    "v2": (94, 211, 23, 4),
}


def counts(rung: str) -> tuple[int, int, int, int]:
    kernels = profile("convolve", whole(300), whole(41), variant=rung)[rung]
    return (
        sum(k.shared_requests for k in kernels),
        sum(k.shared_wavefronts for k in kernels),
        sum(k.global_requests for k in kernels),
        sum(k.barriers for k in kernels),
    )


def test_golden_counts() -> None:
    assert {rung: counts(rung) for rung in RUNGS} == GOLDEN


@pytest.mark.parametrize("rung", RUNGS)
def test_every_failure_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    a, v = whole((2, 300)), whole((2, 260), seed=1)
    want = np.stack([np.convolve(x, y) for x, y in zip(a, v, strict=True)])
    before = None
    for step in range(50):
        simulator(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = convolve(a, v, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            simulator(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            again = convolve(a, v, variant=rung, backend="sim")
            np.testing.assert_array_equal(again, want)
            continue
        break
    assert 3 <= step < 49
    np.testing.assert_array_equal(got, want)
