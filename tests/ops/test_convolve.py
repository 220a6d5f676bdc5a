"""convolve beyond the matrix: NumPy's meaning, special values, published bugs.

Order: what it means, dtypes, out=, special values, accuracy, Fourier transforms, the bound
of a sum, pinned bugs, tiles and parts, large strides, the simulator's counts and faults.
See test_contract.py for sizes, layouts and dtypes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import causality
import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.convolve import BY_SPECTRA, MODES, expect_values
from conftest import Child, Figure, run_child

import gpuopt
from gpuopt import _core, convolve, ref
from gpuopt.lab.profile import profile

RUNGS = ("v0", "v1", "v2", "v3")


def variants(dtype: str = "float32") -> list[tuple[str, str]]:
    """(backend, variant) of every rung that can run here and takes the dtype."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("convolve")
        if row["available"]
        and usable[row["backend"]] is None
        and not row["shape"]
        and dtype in row["dtypes"]
    ]


def spectral(taps: int) -> str:
    """v3, or the variant that replaces it for filters of many blocks."""
    return "v3" if taps <= 4096 else "long_filters"


def each_of(*dtypes: str) -> Any:
    """Every variant with each of its dtypes."""
    rows = [(b, v, dtype) for dtype in dtypes for b, v in variants(dtype)]
    return pytest.mark.parametrize(("backend", "variant", "dtype"), rows)


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
each_integer = pytest.mark.parametrize(("backend", "variant"), variants("int64"))
FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def whole(shape: Any, dtype: Any = np.float32, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


def check(got: Any, a: Any, v: Any, mode: str = "full", variant: str = "") -> None:
    """Exactly np.convolve of the rows, or within the bound for spectra."""
    if variant in BY_SPECTRA:
        assert expect_values(a, v, mode, variant).compare(got) is None
    else:
        rows = [np.convolve(row, v, mode) for row in np.atleast_2d(a)]
        np.testing.assert_array_equal(got, rows[0] if a.ndim == 1 else np.stack(rows))


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure; restores the settings afterwards."""
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
            check(got, a, v, mode, variant)
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
                check(got[row], left, right, mode, variant)


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


@each_integer
def test_bool_is_logical(backend: str, variant: str) -> None:
    """300 true products are true, and any nonzero byte is true."""
    a = np.ones(300, np.uint8)
    a[::2] = 2
    got = convolve(a.view(bool), np.ones(300, bool), backend=backend, variant=variant)
    assert got.dtype == bool
    np.testing.assert_array_equal(got.view(np.uint8), np.ones(599, np.uint8))


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    a, v = whole((4, 20)), whole(6, seed=1)
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
        check(np.asarray(out, np.float32), a, v, variant=variant)
    base[1:8:2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"


# ---- special values ----


@each_of(*FLOATS)
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


@each_of("float32", "float64", "complex64")
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


@each_of("float32", "float64")
def test_denormals_are_not_flushed(backend: str, variant: str, dtype: str) -> None:
    a = (whole(40, np.float64) * {"float32": 2.0**-149, "float64": 2.0**-1074}[dtype]).astype(
        dtype
    )
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


@each_of("float32", "float64")
def test_adversarial_rows(backend: str, variant: str, dtype: str) -> None:
    rng = np.random.default_rng(12)
    scale = 1e8 if dtype == "float32" else 1e16
    for n, m in ((40, 9), (600, 300)):
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        for a in (np.resize([scale, 1, -scale], n), grow, np.sort(grow)):
            x, v = a.astype(dtype), rng.standard_normal(m).astype(dtype)
            got = convolve(x, v, backend=backend, variant=variant)
            assert expect_values(x, v, variant=variant).compare(got) is None, (n, m)


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
    sums = got[5000 : 5000 + FILTER] / 1e308
    assert (np.abs(sums - 1) <= np.sqrt(FILTER) * 2**-52).all()
    assert np.count_nonzero(got) == FILTER


def as_spectra(a: Any, v: Any) -> Any:
    """The convolution by transforms in longdouble."""
    n = a.shape[-1] + v.shape[-1] - 1
    kind = np.clongdouble if a.dtype.kind == "c" else np.longdouble
    there, back = np.fft.rfft, np.fft.irfft
    if a.dtype.kind == "c":
        there, back = np.fft.fft, np.fft.ifft
    length = 1 << (n - 1).bit_length()
    product = there(a.astype(kind), length) * there(v.astype(kind), length)
    return back(product, length)[..., :n]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_every_length_of_a_block(dtype: str) -> None:
    """One block from the shortest on, and the least that several threads share."""
    rng = np.random.default_rng(4)
    lengths = [1 << k for k in range(8, 15)] + [1 << 17]
    for length in lengths:
        n, m = length - length // 2 + 1, length // 2
        a, v = as_dtype(rng.standard_normal((2, n)), dtype), rng.standard_normal(m)
        v = as_dtype(v, dtype)
        got, want = convolve(a, v, backend="cpu", variant="threads"), as_spectra(a, v)
        size = np.sqrt((np.abs(a) ** 2).sum(-1, keepdims=True) * (np.abs(v) ** 2).sum())
        room = 0.75 * np.log2(length) * 2.0**-53 * size + 2.0**-52 * np.abs(want)
        assert (np.abs(got - want) <= room).all(), length
        plan = _core.plan("convolve", a[0], v, backend="cpu")
        assert "Fourier" in plan["why"] or length <= 1024


# Blocks side by side, one that threads share, filters of few rows and of many, wide blocks.
SHARES = """
import gpuopt, hashlib, numpy as np
rng = np.random.default_rng(6)
def rows(*shape):
    return rng.standard_normal(shape)
cases = [(rows(50000), rows(700)), (rows(90000), rows(80000)), (rows(3, 9000), rows(3, 900))]
cases += [(rows(40, 3000), rows(40, 600))]
for n, m in ((40000, 9000), (90000, 80000)):
    cases.append((rows(n) * 2.0 ** np.linspace(0, 600, n), rows(m)))
cases += [(a + 1j * a[..., ::-1], v + 0.5j) for a, v in cases[:2]]
cases += [(a.astype(np.float32), v.astype(np.float32)) for a, v in cases[:3]]
for threads in THREADS:
    gpuopt.set_num_threads(threads)
    got = [gpuopt.convolve(a, v, backend="cpu", variant="threads") for a, v in cases]
    print(hashlib.sha256(b"".join(x.tobytes() for x in got)).hexdigest())
"""


@pytest.mark.parametrize("isa", [None, "baseline", "v3"])
def test_transforms_have_the_same_bits(isa: str | None) -> None:
    """Whatever the number of threads, and on every instruction set."""
    here = run_child("-c", SHARES.replace("THREADS", "(1, 2, 7)"))
    assert here.returncode == 0, here.stderr
    assert len(set(here.stdout.split())) == 1
    if isa:
        env = {"GPUOPT_CPU": isa}
        there = run_child("-c", SHARES.replace("THREADS", "(2,)"), env=env)
        if "is beyond this machine" in there.stderr:
            pytest.skip("this machine has no such instructions")
        assert there.stdout.split() == here.stdout.split()[:1], there.stderr


def test_a_transform_without_memory(child: Child) -> None:
    """An error, whichever part there is no memory for, and the next call is right."""
    done = child(
        """
import resource
import numpy as np
import gpuopt
a, v, out = np.ones(1 << 21), np.ones(1 << 20), np.empty((1 << 21) + (1 << 20) - 1)
gpuopt.convolve(a[:20000], v[:3000])
with open("/proc/self/statm") as f:
    mapped = int(f.read().split()[0]) * resource.getpagesize()
errors = 0
for more in (8, 40, 100, 180):
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (more << 20), resource.RLIM_INFINITY))
    try:
        gpuopt.convolve(a, v, out=out, backend="cpu")
    except MemoryError:
        errors += 1
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(errors > 0, round(gpuopt.convolve(a, v, out=out, backend="cpu").max()))
"""
    )
    assert done.stdout.split() == ["True", str(1 << 20)]


def test_a_signal_during_a_transform(child: Child) -> None:
    """As in every operator: its handler runs when the call is done."""
    done = child(
        """
import signal, threading
import numpy as np
import gpuopt
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
a, v, out = np.ones(1 << 20), np.ones(1 << 19), np.zeros((1 << 20) + (1 << 19) - 1)
main, ready = threading.main_thread().ident, threading.Event()
threading.Thread(
    target=lambda: (ready.wait(), signal.pthread_kill(main, signal.SIGINT))
).start()
try:
    ready.set()  # the thread gets the GIL when the first transform releases it
    while True:
        gpuopt.convolve(a, v, out=out, backend="cpu")
except KeyboardInterrupt:
    print("interrupted")
print(round(gpuopt.convolve(a, v, out=out, backend="cpu").max()))
"""
    )
    assert done.stdout.split() == ["interrupted", str(1 << 19)]


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


# ---- the bound of a sum depends only on its own inputs ----


def hard_rows(n: int, dtype: str) -> dict[str, Any]:
    """Rows by name whose sums differ in size, or that have inf and nan."""
    rng = np.random.default_rng(n)
    i, noise = np.arange(n), [rng.standard_normal(n) for _ in range(20)]
    top = {"float16": 3e4, "float32": 3e37, "bfloat16": 3e37, "complex64": 1e37}.get(
        dtype, 1e300
    )
    reach = {"float16": 10, "float64": 300, "complex128": 300}.get(dtype, 50)
    ramp = np.linspace(-reach, reach, n)
    third = (i > n // 3) & (i < 2 * n // 3)
    return {
        "normal": noise[0],
        "uniform": rng.random(n),
        "one large": np.where(i == n // 2, min(1e15, top), noise[1]),
        "last large": np.where(i == n - 1, top, 1),
        "first large": np.where(i == 0, -top, noise[2]),
        "silence": np.where(third, 0, noise[3]),
        "quiet": np.where(third, 2.0 ** (-reach / 2), 1) * noise[4],
        "loud": np.where(third, 2.0 ** (reach / 2), 1) * noise[5],
        "zero": np.zeros(n),
        "one alone": np.where(i == n // 2, top, 0),
        "growth": noise[6] * 2.0**ramp,
        "hill": noise[7] * 2.0 ** -np.abs(ramp),
        "sizes": noise[8] * 2.0 ** rng.uniform(-reach, reach, n),
        "huge": noise[9] * top / 100,
        "tiny": noise[10] / top,
        "nan": np.where(i == n // 2, np.nan, noise[11]),
        "inf and one large": np.where(i == n // 3, -np.inf, np.where(i == 5, top, noise[12])),
        "many nan": np.where(third & (i % 3 == 0), np.nan, noise[13]),
    }


def as_dtype(rows: Any, dtype: str) -> Any:
    """Complex numbers: turned by 0.3; whole axes of inf and nan."""
    kind = dtype_of(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if kind.kind == "c":
            turned = np.where(np.isfinite(rows), rows, 0) * np.exp(0.3j)
            return np.where(np.isfinite(rows), turned, rows).astype(kind)
        return np.asarray(rows).astype(kind)


def sums_of_neighbours(x: Any, m: int) -> Any:
    """The sums of m neighbours, of sums of 1, 2, 4, ... of them: nothing is subtracted."""
    length, total, done = x.shape[-1] - m + 1, 0, 0
    for bit in range(m.bit_length()):
        if m >> bit & 1:
            total = total + x[..., done : done + length]
            done += 1 << bit
        x = x[..., : -(1 << bit)] + x[..., 1 << bit :]
    return total


def sums_of_products(x: Any, y: Any) -> Any:
    """np.convolve; with complex inf or nan term by term, which decides between inf and nan."""
    if x.dtype.kind != "c" or np.isfinite(x).all():
        return np.convolve(x, y)
    want = np.zeros(x.size + y.size - 1, x.dtype)
    for k in range(y.size):
        want[k : k + x.size] += y[k] * x
    return want


def window_sums(a: Any, v: Any, mode: str) -> tuple[Any, Any]:
    """The sums, and sqrt(M) eps norm(v) norm(a over the terms of n) for each of them."""
    double = a.real.dtype.itemsize == 8
    real: Any = np.longdouble if double else np.float64
    kind = np.result_type(real, np.complex64) if a.dtype.kind == "c" else np.dtype(real)
    x, y = a.astype(kind), v.astype(kind)
    n, m = x.shape[-1], y.shape[-1]
    square = np.abs(np.where(np.isfinite(x), x, 0)) ** 2
    energy = sums_of_neighbours(np.pad(square, [(0, 0)] * (x.ndim - 1) + [(m - 1, m - 1)]), m)
    rows = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    xs, ys = (np.broadcast_to(z, (*rows, z.shape[-1])).reshape(-1, z.shape[-1]) for z in (x, y))
    with np.errstate(invalid="ignore"):
        want = np.stack([sums_of_products(*row) for row in zip(xs, ys, strict=True)])
    want = want.reshape(*rows, n + m - 1)
    size = np.sqrt((np.abs(y) ** 2).sum(-1))[..., None]
    bound = np.sqrt(real(m)) * (2.0**-52 if double else 2.0**-23) * size * np.sqrt(energy)
    bound += m * real(np.finfo(np.float64 if double else np.float32).smallest_subnormal)
    lower = {"full": 0, "same": (m - 1) // 2, "valid": m - 1}[mode]
    kept = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    return want[..., lower : lower + kept], bound[..., lower : lower + kept]


def compare_sums(got: Any, want: Any, bound: Any, what: str) -> None:
    causality.compare(got.real, want.real, bound, what)
    if got.dtype.kind == "c":
        causality.compare(got.imag, want.imag, bound, what)


def check_window_bound(a: Any, v: Any, mode: str, got: Any) -> None:
    compare_sums(got, *window_sums(a, v, mode), mode)


@functools.lru_cache(maxsize=8)
def window_case(dtype: str, n: int, m: int, falling: bool, mode: str) -> tuple[Any, ...]:
    a = as_dtype(np.stack(list(hard_rows(n, dtype).values())), dtype)
    rng = np.random.default_rng(m)
    fall = 2.0 ** np.linspace(0, -30 if dtype in ("float64", "complex128") else -8, m)
    y = rng.random(m) * fall if falling else rng.standard_normal(m)
    v = as_dtype(y / np.sqrt(m), dtype)
    return a, v, *window_sums(a, v[None], mode)


# (N, M, whether the filter falls): each block length of v3 and of filters of many blocks.
WINDOW_SIZES = ((1300, 300, False), (2500, 700, False), (1025, 1025, True), (5000, 513, False))
SPECTRAL_WINDOWS = (
    (700, 192, False),
    (2300, 1024, True),
    (3100, 2049, False),
    (5000, 4096, False),
    (5000, 4500, True),
    (9000, 8300, False),
)


def check_windows(backend: str, variant: str, dtype: str, mode: str, size: Any) -> None:
    a, v, want, bound = window_case(dtype, *size, mode)
    got = convolve(a, v, mode, backend=backend, variant=variant)
    for name, *row in zip(hard_rows(4, dtype), got, want, bound, strict=True):
        compare_sums(row[0], row[1], row[2], f"{name} {size} {mode}")


@each_of(*FLOATS)
def test_sums_err_by_their_own_terms(backend: str, variant: str, dtype: str) -> None:
    simulated = backend == "sim" and variant != "v3"
    every = dtype in ("float64", "float32") and not simulated
    for k in range(len(WINDOW_SIZES)) if every else (2,) if simulated else (1, 2):
        check_windows(backend, variant, dtype, MODES[k % 3], WINDOW_SIZES[k])


@pytest.mark.parametrize("size", SPECTRAL_WINDOWS)
@pytest.mark.parametrize(("backend", "variant"), [r for r in variants() if r[1] == "v3"])
def test_spectra_err_by_the_terms_of_a_sum(backend: str, variant: str, size: Any) -> None:
    k = SPECTRAL_WINDOWS.index(size)
    variant = spectral(size[1])
    check_windows(backend, variant, "float32", MODES[k % 3], size)
    check_windows(backend, variant, "float16" if k % 2 else "bfloat16", "full", size)


@pytest.mark.parametrize(
    "size", [(500, 192), (700, 300), (2300, 511), (1900, 700), (3000, 1500)]
)
@pytest.mark.parametrize("backend", [b for b, v in variants() if v == "v3"])
def test_long_filters_take_those_of_one_block(backend: str, size: tuple[int, int]) -> None:
    """As on a GPU whose shared memory is too small for the spectrum of a filter."""
    for mode in MODES:
        check_windows(backend, "long_filters", "float32", mode, (*size, False))


def far_apart(n: int) -> dict[str, Any]:
    """Rows whose small parts are negligible beside the large ones, even squared."""
    rng = np.random.default_rng((n, 1))
    i, noise = np.arange(n), rng.standard_normal((8, n))
    third = (i >= n // 3) & (i < 2 * n // 3)
    return {
        "loud and quiet": noise[0] * np.where(third, 2.0**120, 2.0**-90),
        "quiet and loud": noise[1] * np.where(third, 2.0**-130, 2.0**100),
        "loud once": np.where(i == n // 2, 3e38, noise[2] * 2.0**-140),
        "silence and loud": np.where(i < n // 2, 0, noise[3] * 2.0**120),
        "subnormal": noise[4] * 2.0**-145,
        "here and there": np.where(i % 701 == 0, noise[5] * 2.0**100, 0),
        "two of the largest": np.where((i == 7) | (i == n - 7), 3.4e38, noise[6]),
        "steps": noise[7] * 2.0 ** (-40.0 * (i * 7 // n)),
    }


@pytest.mark.parametrize(
    ("n", "m"), [(3000, 200), (6000, 900), (9000, 4000), (17_000, 4300), (15_000, 6000)]
)
@pytest.mark.parametrize(("backend", "variant"), [r for r in variants() if r[1] == "v3"])
def test_rows_whose_parts_are_far_apart(backend: str, variant: str, n: int, m: int) -> None:
    """Each row with its own filter, also with very different magnitudes."""
    a = np.stack(list(far_apart(n).values())).astype(np.float32)
    rng = np.random.default_rng((m, 2))
    fall = np.linspace(-60, 0, m) * np.arange(len(a))[:, None] / len(a)
    v = (rng.standard_normal((len(a), m)) * 2.0**fall / m).astype(np.float32)
    for filters in (v, v[:1]):
        got = convolve(a, filters, backend=backend, variant=spectral(m))
        want, bound = window_sums(a, filters, "full")
        for name, *row in zip(far_apart(9), got, want, bound, strict=True):
            compare_sums(row[0], row[1], row[2], f"{name} {filters.shape}")


@pytest.mark.parametrize(("backend", "variant"), [r for r in variants() if r[1] == "v3"])
def test_more_blocks_than_have_marks(backend: str, variant: str) -> None:
    """A block of threads of v3 remembers 64 blocks of results; every tenth row is wide."""
    rng = np.random.default_rng(9)
    a, v = (rng.standard_normal(s).astype(np.float32) for s in ((4200, 200), (1, 192)))
    a[::10, 100] = 1e20
    check_window_bound(a, v, "same", convolve(a, v, "same", backend=backend, variant=variant))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_of_wide_rows(mode: str) -> None:
    """Rows of one block, where the shorter operand is nearly as long, and filters of rows."""
    rng = np.random.default_rng(8)
    for n, m in ((700, 690), (3000, 2999), (5000, 1200)):
        rows = hard_rows(n, "float64")
        a = np.stack([rows[k] for k in ("normal", "growth", "sizes", "silence", "last large")])
        v = rng.standard_normal((len(a), m)) * 2.0 ** np.linspace(-60, 60, m)
        check_window_bound(a, v, mode, convolve(a, v, mode, backend="cpu", variant="threads"))
        swapped = convolve(v, a, mode, backend="cpu", variant="threads")
        check_window_bound(a, v, mode, swapped)


def test_filters_of_any_scale() -> None:
    rng = np.random.default_rng(8)
    for up, down in ((-1060, 1000), (1000, -1060), (500, 500), (-530, -530)):
        a = rng.standard_normal((2, 4000)) * 2.0**up
        a[1, 3000] *= 2.0**20
        v = rng.standard_normal((1, 800)) * 2.0**down
        check_window_bound(a, v, "full", convolve(a, v, backend="cpu", variant="threads"))


def test_a_large_element_is_no_reason_for_every_product() -> None:
    """2^17 by 2^17, made of transforms of blocks: sums far from it stay as they are."""
    n = 1 << 17
    rng = np.random.default_rng(2)
    a, v = rng.standard_normal(n), rng.standard_normal(n)
    plain = convolve(a, v, backend="cpu", variant="threads")
    a[n // 2] = 1e15
    got = convolve(a, v, backend="cpu", variant="threads")
    far = n // 2 - 1
    room = 2 * np.sqrt(n) * 2**-52 * np.linalg.norm(v) * np.sqrt(np.arange(1, far + 1))
    assert (np.abs(got - plain)[:far] <= room * 1.1).all()
    assert (np.abs(got - plain)[n + far + 1 :] <= room[::-1][: n - far] * 1.1 + 1e-8).all()


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
        check(out, a, v, variant=variant)
        assert (memory[:128] == 99).all()
        assert (memory[128 + n + m - 1 :] == 99).all()


@each_integer
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


@each_integer
def test_pinned_the_filter_may_be_any_length(backend: str, variant: str) -> None:
    """The published constant symbol holds as many taps as its declaration says."""
    for m in (511, 512, 513, 1025, 1030):
        v = whole(m, np.int64, seed=m)
        a = whole(9, np.int64)
        got = convolve(a, v, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.convolve(a, v))


def test_pinned_filters_in_constant_memory_are_the_launchs_own(simulator: Any) -> None:
    """A single symbol for the module would hold the filter that was written last."""
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


@each_of("uint8", "float16", "float32", "complex128")
def test_tiles_and_parts(backend: str, variant: str, dtype: str) -> None:
    """More than one tile of a row, more than one part of its terms, some of them empty."""
    a, v = whole(5000, dtype), whole(600, dtype, seed=1)
    for n, m in ((5000, 600), (4700, 520), (1300, 600)):
        for mode in MODES:
            got = convolve(a[:n], v[:m], mode, backend=backend, variant=variant)
            want = expect_values(a[:n], v[:m], mode, variant)
            assert want.compare(got) is None, (n, m, mode)


# ---- v3: spectra ----

SPECTRA = [(b, v) for b, v in variants() if v == "v3"]
each_spectral = pytest.mark.parametrize(("backend", "variant"), SPECTRA)

# One block of a filter and one tap less or more; rows of a block, of several, of a few
# numbers beyond them; more blocks than are resident at once.  Then filters of many blocks,
# of each length that `plan_blocks` finds cheapest on the simulator: 512, 1024, 2048, 4096
# and 8192 values.
SPECTRAL_SIZES = (
    ((512,), (512,)),
    ((513,), (513,)),
    ((3000,), (511,)),
    ((40_000,), (20,)),
    ((9000,), (1500,)),
    ((6000,), (2049,)),
    ((30_000,), (4096,)),
    ((5, 2000), (5, 513)),
    ((70, 1200), (300,)),
    ((4200,), (4097,)),
    ((30_000,), (4500,)),
    ((2, 1, 4500), (3, 4200)),
    ((6, 12_000), (12_000,)),
    ((20_000,), (20_000,)),
    ((60_000,), (60_000,)),
    ((300_000,), (290_000,)),
)


def exact_rows(a: Any, v: Any, mode: str) -> Any:
    """In float64, by transforms: direct sums of so many terms take seconds."""
    n, m = max(a.shape[-1], v.shape[-1]), min(a.shape[-1], v.shape[-1])
    spectra = [np.fft.rfft(x.astype(np.float64), n + m) for x in (a, v)]
    full = np.fft.irfft(spectra[0] * spectra[1], n + m)[..., : n + m - 1]
    first, count = {
        "full": (0, n + m - 1),
        "same": ((m - 1) // 2, n),
        "valid": (m - 1, n - m + 1),
    }[mode]
    return full[..., first : first + count]


def error_of_rows(got: Any, want: Any) -> float:
    rows = np.linalg.norm(got.astype(np.float64) - want, axis=-1)
    return float(np.max(rows / np.linalg.norm(want, axis=-1)))


@each_spectral
@pytest.mark.parametrize(("x", "y"), SPECTRAL_SIZES)
def test_blocks_of_rows_and_filters(backend: str, variant: str, x: Any, y: Any) -> None:
    rng, variant = np.random.default_rng(21), spectral(min(x[-1], y[-1]))
    for draw in (rng.standard_normal, rng.random):
        a, v = draw(x).astype(np.float32), draw(y).astype(np.float32)
        for mode in ("full", "same"):
            got = convolve(a, v, mode, backend=backend, variant=variant)
            assert error_of_rows(got, exact_rows(a, v, mode)) <= 1e-6, mode
        got = convolve(a, v, "valid", backend=backend, variant=variant)
        near = np.abs(got - exact_rows(a, v, "valid"))
        assert not np.any(
            near > 2e-6 * np.linalg.norm(a, axis=-1).max() * np.linalg.norm(v, axis=-1).max()
        )


@each_spectral
@pytest.mark.parametrize(
    ("x", "y"), [((600_000,), (4200,)), ((80, 5000), (4200,)), ((80, 4300), (80, 4200))]
)
def test_passes(backend: str, variant: str, x: Any, y: Any) -> None:
    """More blocks than the simulator's four processors have workspace for."""
    rng, variant = np.random.default_rng(26), spectral(y[-1])
    a, v = (rng.standard_normal(s).astype(np.float32) for s in (x, y))
    got, want = convolve(a, v, backend=backend, variant=variant), exact_rows(a, v, "full")
    assert error_of_rows(got, want) <= 1e-6
    at = x[-1] - 70
    a[..., at] = 1e20
    got = convolve(a, v, backend=backend, variant=variant)
    assert error_of_rows(got[..., :at], want[..., :at]) <= 1e-6
    assert error_of_rows(got[..., at + y[-1] :], want[..., at + y[-1] :]) <= 1e-6


@each_spectral
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_spectra_of_strided_rows(backend: str, variant: str, dtype: str) -> None:
    rng = np.random.default_rng(22)
    memory = rng.standard_normal((3, 2 * 5000)).astype(np.float32)
    for x, y in (((3, 1100), 130), ((3, 4700), 4300)):
        variant = spectral(y)
        a = memory[:, ::2][:, : x[1]].astype(dtype_of(dtype))
        v = memory[0, :y].astype(dtype_of(dtype))
        wide = np.repeat(a, 2, axis=-1)
        turned = np.ascontiguousarray(a[:, ::-1])
        want = convolve(a, v, "same", backend=backend, variant=variant)
        unit = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 1e-6}[dtype]
        exact = exact_rows(a.astype(np.float32), v.astype(np.float32), "same")
        assert error_of_rows(want.astype(np.float32), exact) <= unit
        for same in (wide[:, ::2], turned[:, ::-1], np.asfortranarray(a)):
            got = convolve(same, v, "same", backend=backend, variant=variant)
            np.testing.assert_array_equal(got, want)
        back = np.ascontiguousarray(v[::-1])[::-1]
        got = convolve(a, back, "same", backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want)


@each_spectral
@pytest.mark.parametrize(("n", "m"), [(2600, 300), (4600, 4200)])
def test_pinned_a_nan_stays_in_the_sums_it_belongs_to(
    backend: str, variant: str, n: int, m: int
) -> None:
    """A transform spreads it over two blocks, and a filter's over all of them."""
    rng, variant = np.random.default_rng(23), spectral(m)
    for special in (np.nan, np.inf):
        for where in ("a", "v"):
            a, v = (rng.standard_normal(k).astype(np.float32) for k in (n, m))
            reach = np.zeros(n + m - 1, bool)
            if where == "a":
                a[n - 40] = special
                reach[n - 40 : n - 40 + m] = True
            else:
                v[m - 9] = special
                reach[m - 9 : m - 9 + n] = True
            got = convolve(a, v, backend=backend, variant=variant)
            np.testing.assert_array_equal(~np.isfinite(got), reach)
            finite = [np.where(np.isfinite(x), x, 0) for x in (a, v)]
            want = exact_rows(finite[0], finite[1], "full")
            assert error_of_rows(got[~reach], want[~reach]) <= 1e-6


@each_spectral
@pytest.mark.parametrize(("n", "m"), [(2600, 300), (4600, 4200)])
def test_spectra_of_any_scale(backend: str, variant: str, n: int, m: int) -> None:
    """Rows and filters of 2**-60 to 2**60, with a large half, subnormal, near the largest."""
    rng, variant = np.random.default_rng(24), spectral(m)
    a, v = (rng.standard_normal(k).astype(np.float32) for k in (n, m))
    half = np.where(np.arange(n) < n // 2, np.float32(2.0**60), np.float32(2.0**-60))
    one = np.float32(1)
    scales: tuple[tuple[Any, Any], ...] = (
        (one * 2.0**60, one * 2.0**60),
        (one * 2.0**-60, one * 2.0**-60),
        (one * 2.0**60, one * 2.0**-60),
        (half, one),
        (one * 2.0**125, one * 2.0**-30),
        (one * 2.0**-140, one * 2.0**20),
    )
    for of_a, of_v in scales:
        x, y = (a * of_a).astype(np.float32), (v * of_v).astype(np.float32)
        got = convolve(x, y, backend=backend, variant=variant)
        assert error_of_rows(got, exact_rows(x, y, "full")) <= 1e-6
    zero = convolve(0 * a, v, backend=backend, variant=variant)
    np.testing.assert_array_equal(zero, np.zeros(n + m - 1, np.float32))


@each_spectral
def test_pinned_a_quiet_half_keeps_its_own_accuracy(backend: str, variant: str) -> None:
    """Blocks have a scale of their own where the filter is one block."""
    rng = np.random.default_rng(25)
    a, v = (rng.standard_normal(k).astype(np.float32) for k in (6000, 200))
    a[3000:] *= np.float32(2.0**-70)
    got = convolve(a, v, backend=backend, variant=variant)
    want = exact_rows(a[3000:] * np.float32(2.0**70), v, "full") * 2.0**-70
    assert error_of_rows(got[4096:], want[1096:]) <= 1e-6


def test_spectra_are_chosen_where_they_pay(simulator: Any) -> None:
    del simulator
    for n, m, dtype, rung in (
        (2**20, 1024, np.float32, "v3"),
        (2**20, 2**20, np.float32, "large_transforms"),
        (2**20, 1024, np.float16, "v3"),
        (2**20, 1024, np.float64, "large_transforms"),
        (800_000, 1197, np.float64, "large_transforms"),
        (2**20, 767, np.float64, "v2"),
        (2**20, 1000, np.complex64, "large_transforms"),
        (2**20, 2**14, np.float64, "large_transforms"),
        (2**17, 2**16, np.complex64, "large_transforms"),
        (2**20, 5000, np.complex128, "large_transforms"),
        (2**20, 5000, np.int32, "v2"),
        (2**20, 1024, np.int32, "v2"),
        (2**20, 400, np.complex64, "v2"),
        (10_000, 31, np.float32, "short_filters"),
        (500, 300, np.float32, "short_filters"),
    ):
        a, v = np.broadcast_to(dtype(1), n), np.broadcast_to(dtype(1), m)
        plan = _core.plan("convolve", a, v, backend="sim")
        assert plan["variant"] == rung, (n, m, dtype)
        assert ("spectra" in plan["why"]) == (rung not in ("v2", "short_filters"))


# ---- large strides ----


@each_variant
def test_offsets_past_32_bits(backend: str, variant: str) -> None:
    """Two rows 2**31 + 8 elements apart, with the memory between them never touched."""
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
# thread: N = 300, M = 41, of v3 N = 1300, M = 241, float32, all kernels of the rung.
GOLDEN = {
    "v0": (0, 0, 853, 0),
    "v1": (510, 510, 24, 6),
    "v2": (94, 211, 23, 4),
    "v3": (1536, 2941, 191, 16),
}


def counts(rung: str) -> tuple[int, int, int, int]:
    n, m = (1300, 241) if rung == "v3" else (300, 41)
    kernels = profile("convolve", whole(n), whole(m), variant=rung)[rung]
    return (
        sum(k.shared_requests for k in kernels),
        sum(k.shared_wavefronts for k in kernels),
        sum(k.global_requests for k in kernels),
        sum(k.barriers for k in kernels),
    )


def test_golden_counts() -> None:
    """For v3 to 1 %: a compiler may join two loads of neighbouring words."""
    for rung in RUNGS:
        wanted = pytest.approx(GOLDEN[rung], rel=0.01) if rung == "v3" else GOLDEN[rung]
        assert counts(rung) == wanted, rung


@pytest.mark.parametrize("rung", [*RUNGS, "long_filters", "large_transforms"])
def test_every_failure_leaves_nothing_behind(rung: str, simulator: Any) -> None:
    # In pieces, and with workspace.
    n = {"long_filters": 5000, "large_transforms": 1100}.get(rung, 300)
    a, v = whole((2, n)), whole((2, n - 40), seed=1)
    want = convolve(a, v, variant=rung, backend="sim")
    for got, x, y in zip(want, a, v, strict=True):
        check(got, x, y, variant=rung)
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
