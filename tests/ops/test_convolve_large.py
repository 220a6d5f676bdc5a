"""convolve's large_transforms: transforms that go through memory in two steps.

Order: every size of a matrix, passes, the bound of a sum, special values, layouts, what is
refused, the simulator's counts.  See test_convolve.py for the other variants, and
test_contract.py for the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases.convolve import LARGE_TYPES, MODES
from test_convolve import (
    as_dtype,
    as_spectra,
    check_window_bound,
    compare_sums,
    far_apart,
    hard_rows,
    window_sums,
)

import gpuopt
from gpuopt import _core, convolve
from gpuopt.lab.profile import profile

BACKENDS = [
    row["backend"]
    for row in _core.variants("convolve")
    if row["name"] == "large_transforms"
    and row["available"]
    and _core.backends()[row["backend"]] is None
]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_type = pytest.mark.parametrize("dtype", LARGE_TYPES)


def run(a: Any, v: Any, mode: str, backend: str) -> Any:
    return convolve(a, v, mode, backend=backend, variant="large_transforms")


def is_double(dtype: str) -> bool:
    return dtype in ("float64", "complex128")


def kinds(n: int, dtype: str) -> dict[str, Any]:
    """Rows by name for which the rounding errors of a transform may add up."""
    i = np.arange(n)
    rng = np.random.default_rng(n)
    return {
        "noise": as_dtype(rng.standard_normal(n), dtype),
        "ones": as_dtype(np.ones(n), dtype),
        "signs": as_dtype(1.0 - 2 * (i % 2), dtype),
        "cosine": as_dtype(np.cos(i * (2 * np.pi * 37 / n)), dtype),
    }


# ---- every size of a matrix ----


@each_backend
@each_type
@pytest.mark.parametrize("log", [12, 13, 14, 15, 16, 17])
def test_one_block_that_is_just_filled(backend: str, dtype: str, log: int) -> None:
    """All rows and columns, from 64 to 512 numbers; 2**log points have so many sums."""
    sums = (1 if dtype.startswith("complex") else 2) << log
    m = sums // 3
    names = ("noise",) if log > 14 else tuple(kinds(4, dtype))
    left, right = kinds(sums - m + 1, dtype), kinds(m, dtype)
    unit = 2.0**-53 if is_double(dtype) else 2.0**-24
    for name in names:
        a, v = left[name], right[name if log % 2 else "noise"]
        got = run(a, v, "full", backend)
        want = as_spectra(*(x.astype(np.complex128 if x.dtype.kind == "c" else float)
                            for x in (a, v)))  # fmt: skip
        size = float(np.linalg.norm(a) * np.linalg.norm(v))
        room = 0.9 * (log + 1) * unit * size
        worst = float(np.abs(got - want).max())
        assert worst <= room, (name, worst / room)


LARGEST = [
    (backend, log, dtype)
    for backend in BACKENDS
    for log in range(18, 25)
    for dtype in LARGE_TYPES
    if backend != "sim" or (log, dtype) in ((18, "complex64"), (20, "float32"), (21, "float64"))
]


@pytest.mark.parametrize(("backend", "log", "dtype"), LARGEST)
def test_the_largest_blocks(backend: str, log: int, dtype: str) -> None:
    sums = (1 if dtype.startswith("complex") else 2) << log
    rng = np.random.default_rng(log)
    a, v = (as_dtype(rng.standard_normal(k), dtype) for k in (sums // 2 + 1, sums // 2))
    got = run(a, v, "full", backend)
    kind = np.complex128 if dtype.startswith("complex") else np.float64
    at = rng.integers(0, sums, 300)
    want = [
        np.dot(a[max(0, i - v.size + 1) : i + 1].astype(kind),
               v[max(0, i - a.size + 1) : i + 1][::-1].astype(kind))
        for i in at
    ]  # fmt: skip
    unit = 2.0**-53 if is_double(dtype) else 2.0**-24
    room = 2 * (log + 1) * unit * float(np.linalg.norm(a) * np.linalg.norm(v))
    assert (np.abs(got[at] - want) <= room).all()


# ---- passes ----

# Rows and filters of several blocks, in more passes than one; one filter, one per row.
PASSES = (
    ((90_000,), (1100,)),
    ((30, 6000), (1500,)),
    ((9, 9000), (9, 2000)),
    ((3, 1, 1400), (4, 1300)),
)


@each_backend
@each_type
@pytest.mark.parametrize(("x", "y"), PASSES)
def test_passes(backend: str, dtype: str, x: Any, y: Any) -> None:
    rng = np.random.default_rng(5)
    a, v = (as_dtype(rng.standard_normal(s), dtype) for s in (x, y))
    kind = np.complex128 if dtype.startswith("complex") else np.float64
    wide = as_spectra(a.astype(kind), v.astype(kind))
    n, m = x[-1], y[-1]
    unit = 2.0**-53 if is_double(dtype) else 2.0**-24
    room = 40 * unit * np.linalg.norm(a, axis=-1).max() * np.linalg.norm(v, axis=-1).max()
    for mode, first, count in (("full", 0, n + m - 1), ("same", (m - 1) // 2, n),
                               ("valid", m - 1, n - m + 1)):  # fmt: skip
        got = run(a, v, mode, backend)
        want = wide[..., first : first + count]
        assert got.shape == want.shape
        assert (np.abs(got - want) <= room).all(), mode


# ---- the bound of a sum depends only on its own inputs ----

WINDOWS = ((1300, 1024), (2900, 1500), (9500, 2300))


@each_backend
@each_type
@pytest.mark.parametrize(("n", "m"), WINDOWS)
def test_sums_err_by_their_own_terms(backend: str, dtype: str, n: int, m: int) -> None:
    rng = np.random.default_rng(m)
    rows = hard_rows(n, dtype)
    if n > 2000:
        rows = {
            k: rows[k] for k in ("normal", "one large", "silence", "growth", "quiet", "nan")
        }
    a = as_dtype(np.stack(list(rows.values())), dtype)
    v = as_dtype(rng.standard_normal((1, m)) / np.sqrt(m), dtype)
    mode = MODES[WINDOWS.index((n, m))]
    check_window_bound(a, v, mode, run(a, v, mode, backend))


@each_backend
@each_type
def test_rows_and_filters_of_any_scale(backend: str, dtype: str) -> None:
    """Also where the squares, or sums within a transform, are beyond the largest number."""
    rng = np.random.default_rng(8)
    reach = 1000 if is_double(dtype) else 120
    scales = ((-reach - 20, reach - 40), (reach - 20, -reach - 20),
              (reach // 2 - 5, reach // 2 - 5), (-reach // 2, -reach // 2))  # fmt: skip
    up = np.array([s[0] for s in scales])[:, None]
    down = np.array([s[1] for s in scales])[:, None]
    a = as_dtype(rng.standard_normal((4, 2000)) * 2.0**up, dtype)
    a[:, 1500] *= 2.0**10
    a[3, 1500:1503] = np.finfo(a.real.dtype).max  # its exponent has no reciprocal
    v = as_dtype(rng.standard_normal((4, 1030)) * 2.0**down, dtype)
    check_window_bound(a, v, "full", run(a, v, "full", backend))


@each_backend
def test_a_wide_chunk_costs_no_other(backend: str) -> None:
    """Sums far from a large element have the bits that they have without it."""
    rng = np.random.default_rng(3)
    a, v = rng.standard_normal(40_000), rng.standard_normal(1100)
    plain = run(a, v, "full", backend)
    a[20_000] = 1e18
    got = run(a, v, "full", backend)
    np.testing.assert_array_equal(got[:8000], plain[:8000])
    np.testing.assert_array_equal(got[-8000:], plain[-8000:])
    check_window_bound(a[None], v[None], "full", got[None])


@each_backend
def test_sums_of_inputs_far_below_their_block(backend: str) -> None:
    """Energies that are 0 beside the block's are no silence; silence gives zeros."""
    rng = np.random.default_rng(6)
    i, noise = np.arange(9000), rng.standard_normal((4, 9000))
    a = np.stack([
        noise[0] * np.where(i < 5000, 2.0**-900, 2.0**100),
        noise[1] * np.where(i > 5000, 2.0**-900, 2.0**100),
        np.where(i < 5000, 0, noise[2]),
        np.where((i > 1000) & (i < 7000), 0, noise[3]),
    ])  # fmt: skip
    v = rng.standard_normal((1, 1100))
    got = run(a, v, "full", backend)
    check_window_bound(a, v, "full", got)
    assert (got[0, :5000] != 0).all()
    assert not got[2, :5000].any()
    assert not got[3, 2100:7000].any()


@each_backend
@pytest.mark.parametrize(("n", "m"), [(17_000, 4300), (9000, 2049), (6000, 6000)])
@pytest.mark.parametrize("mode", MODES)
def test_float32_sums_of_many_terms_are_left_to_smaller_transforms(
    backend: str, n: int, m: int, mode: str
) -> None:
    """Each row with its own filter, and all with one."""
    rows = {
        **far_apart(n),
        **{k: hard_rows(n, "float32")[k] for k in ("one large", "many nan")},
    }
    a = np.stack(list(rows.values())).astype(np.float32)
    rng = np.random.default_rng((m, 2))
    fall = np.linspace(-60, 0, m) * np.arange(len(a))[:, None] / len(a)
    v = (rng.standard_normal((len(a), m)) * 2.0**fall / m).astype(np.float32)
    for filters in (v, v[:1]) if mode == "full" else (v[:1],):
        got = run(a, filters, mode, backend)
        want, bound = window_sums(a, filters, mode)
        for name, *row in zip(rows, got, want, bound, strict=True):
            compare_sums(row[0], row[1], row[2], f"{name} {filters.shape}")


# ---- special values ----


@each_backend
@each_type
@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_pinned_a_nan_stays_in_the_sums_it_belongs_to(
    backend: str, dtype: str, special: float
) -> None:
    n, m = 3000, 1100
    rng = np.random.default_rng(23)
    for where in ("a", "v"):
        a, v = (as_dtype(rng.standard_normal(k), dtype) for k in (n, m))
        reach = np.zeros(n + m - 1, bool)
        if where == "a":
            a[n - 40] = special
            reach[n - 40 : n - 40 + m] = True
        else:
            v[m - 9] = special
            reach[m - 9 : m - 9 + n] = True
        got = run(a, v, "full", backend)
        np.testing.assert_array_equal(~np.isfinite(got), reach)
        finite = [np.where(np.isfinite(x), x, 0)[None] for x in (a, v)]
        want, bound = (x[0, ~reach] for x in window_sums(*finite, "full"))
        compare_sums(got[~reach], want, bound, where)


@each_backend
@each_type
def test_zeros_give_zeros(backend: str, dtype: str) -> None:
    got = run(np.zeros((2, 3000), dtype), np.ones(1100, dtype), "full", backend)
    np.testing.assert_array_equal(got, np.zeros((2, 4099), dtype))
    got = run(np.ones((2, 3000), dtype), np.zeros((2, 1100), dtype), "same", backend)
    np.testing.assert_array_equal(got, np.zeros((2, 3000), dtype))


# ---- layouts ----


@each_backend
@each_type
def test_strided_rows_give_the_same_bits(backend: str, dtype: str) -> None:
    rng = np.random.default_rng(22)
    a, v = (as_dtype(rng.standard_normal(s), dtype) for s in ((3, 4700), (1300,)))
    want = run(a, v, "same", backend)
    wide = np.repeat(a, 2, axis=-1)
    turned = np.ascontiguousarray(a[:, ::-1])
    for same in (wide[:, ::2], turned[:, ::-1], np.asfortranarray(a)):
        np.testing.assert_array_equal(run(same, v, "same", backend), want)
    back = np.ascontiguousarray(v[::-1])[::-1]
    np.testing.assert_array_equal(run(a, back, "same", backend), want)
    exact, bound = window_sums(a[:1], v[None], "same")
    compare_sums(want[0], exact[0], bound[0], "same")


# ---- what is refused ----


@each_backend
def test_calls_without_a_transform_are_refused(backend: str) -> None:
    one = np.float64(1)
    for n, m in ((5000, 767), (2**27, 2**25 - 1)):
        a, v = np.broadcast_to(one, n), np.broadcast_to(one, m)
        with pytest.raises(gpuopt.VariantError, match="512 taps to about 2\\^24"):
            _core.plan("convolve", a, v, backend=backend, variant="large_transforms")
        assert _core.plan("convolve", a, v, backend=backend)["variant"] == "v2"


@each_backend
@each_type
def test_workspace_is_bounded(backend: str, dtype: str) -> None:
    """At most twice the operands and the result, and 4 MiB."""
    for x, y in (((2**21,), (2**21,)), ((2**20,), (2**16,)), ((64, 2**15), (64, 2**14)),
                 ((70_000, 1100), (1100,)), ((3, 2**20), (1024,))):  # fmt: skip
        a, v = (np.broadcast_to(np.ones((), dtype), s) for s in (x, y))
        for mode in MODES:
            plan = _core.plan("convolve", a, v, mode, backend=backend)
            assert plan["variant"] in ("large_transforms", "v2", "v3", "long_filters")


# ---- the simulator's counts ----


@pytest.mark.parametrize(
    ("n", "m", "dtype"),
    [(800_000, 1197, "float64"), (2**19, 768, "float64"), (2**18, 1000, "complex64"),
     (2**18, 600, "complex64")],
)  # fmt: skip
def test_noise_passes_the_guard(n: int, m: int, dtype: str) -> None:
    """Only chunks at the ends of a row are added up, whichever length the plan takes."""
    rng = np.random.default_rng(m)
    v = as_dtype(rng.standard_normal(m), dtype)

    def requests(length: int) -> int:
        a = as_dtype(rng.standard_normal(length), dtype)
        kernels = profile("convolve", a, v, variant="large_transforms")["large_transforms"]
        return next(k for k in kernels if "mend" in k.kernel).shared_requests

    assert requests(n) <= 3 * requests(20_000)  # of 13 to 41 times as many chunks


@pytest.mark.parametrize("dtype", LARGE_TYPES)
def test_no_bank_conflicts_between_passes(dtype: str) -> None:
    """Half or a quarter of a warp takes a wavefront, and loads of whole sectors none more."""
    n = 100_000 if dtype.startswith("float") else 50_000  # 256 rows and columns
    a = np.ones(n, dtype)
    kernels = profile("convolve", a, a[: n // 4], variant="large_transforms")[
        "large_transforms"
    ]
    rows = next(k for k in kernels if "rows" in k.kernel)
    assert rows.shared_wavefronts <= rows.shared_requests * (4 if is_double(dtype) else 2)
    assert rows.global_sectors == rows.global_requests * (16 if is_double(dtype) else 8)
    columns = next(k for k in kernels if "columns" in k.kernel)
    assert columns.shared_wavefronts <= columns.shared_requests * (4 if is_double(dtype) else 2)
    assert not any(k.races for k in kernels)
