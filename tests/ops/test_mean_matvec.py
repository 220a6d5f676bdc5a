"""mean_matvec beyond the matrix: NumPy's formula, special values, published bugs.

Order: what NumPy says, dtypes, out=, special values, accuracy, pinned bugs, large strides,
the simulator's counts and faults.  See test_contract.py for sizes, layouts and dtypes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import BFLOAT16, dtype_of
from cases.mean_matvec import expect_values
from conftest import Figure

import gpuopt
from gpuopt import _core, mean_matvec, ref
from gpuopt.lab.profile import profile

ROOT = Path(__file__).resolve().parents[2]
RUNGS = ("v0", "v1", "v2", "v3", "v4", "v5")


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here."""
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("mean_matvec")
        if row["available"] and usable[row["backend"]] is None
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
# Rows that a variant takes; own_means where all fits in shared memory.
LONGEST = {"short_rows": 320, "many_batches": 128, "own_means": 320}
ANY_ROWS = [at for at in variants() if at[1] not in LONGEST]
each_of_any_rows = pytest.mark.parametrize(("backend", "variant"), ANY_ROWS)


def longest(variant: str) -> int:
    """The longest rows that a variant takes."""
    return LONGEST.get(variant, 1 << 40)


FLOATS = ("float16", "bfloat16", "float32", "float64")


def whole(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).integers(-8, 9, shape).astype(dtype)


@pytest.fixture
def simulator() -> Iterator[Any]:
    """_core._sim_configure; restores the settings afterwards."""
    if _core.backends()["sim"] is not None:
        pytest.fail("the simulator is part of every build")
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


# ---- what NumPy says ----


@each_variant
def test_it_is_numpys_formula(backend: str, variant: str) -> None:
    """Whole numbers and a power of two of columns: exact in any order."""
    for n, rows, cols, outputs in ((3, 5, 8, 4), (33, 17, 16, 2), (2, 40, 64, 66)):
        x, matrix = whole((n, rows, cols)), whole((outputs, rows))
        want = matrix @ x.mean(2).T
        got = mean_matvec(x, matrix, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want)
        got = mean_matvec(x, matrix, "NL", backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want.T)
        assert got.flags.c_contiguous


def test_the_reference_means_what_numpy_means() -> None:
    rng = np.random.default_rng(5)
    x, matrix = rng.standard_normal((4, 5, 6)), rng.standard_normal((3, 5))
    want = matrix @ x.mean(2).T
    np.testing.assert_allclose(ref.mean_matvec(x, matrix), want, rtol=1e-13)
    np.testing.assert_allclose(ref.mean_matvec(x, matrix, "NL"), want.T, rtol=1e-13)
    out = np.empty((3, 4))
    assert ref.mean_matvec(x, matrix, out=out) is out
    np.testing.assert_allclose(out, want, rtol=1e-13)
    with pytest.raises(ValueError, match="layout"):
        ref.mean_matvec(x, matrix, "LL")
    with pytest.raises(ValueError, match="fit"):
        ref.mean_matvec(x, matrix.T)


# ---- dtypes ----


def test_the_result_has_numpys_dtype() -> None:
    names = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    for a in (*names, "float16", "float32", "float64"):
        for b in (*names, "float16", "float32", "float64"):
            x, matrix = np.ones((2, 3, 4), a), np.ones((2, 3), b)
            mean = x.mean(2)
            got = mean_matvec(x, matrix)
            assert got.dtype == np.result_type(mean, matrix), (a, b)
            np.testing.assert_array_equal(got, np.full((2, 2), 3.0))


def test_bfloat16_with_what_numpy_has_no_common_dtype_for() -> None:
    x = np.ones((2, 3, 4), BFLOAT16)
    for other, result in (("float16", "float32"), ("int16", "float32"), ("int64", "float64")):
        assert mean_matvec(x, np.ones((2, 3), other)).dtype == result
        if other == "float16":
            swapped = mean_matvec(np.ones((2, 3, 4), other), np.ones((2, 3), BFLOAT16))
            assert swapped.dtype == result
    assert mean_matvec(x, np.ones((2, 3), np.int8)).dtype == BFLOAT16


def test_integers_are_added_as_float64() -> None:
    x = np.full((1, 1, 1000), 2**62, np.int64)
    assert mean_matvec(x, np.ones((1, 1), np.int64))[0, 0] == 2.0**62


# ---- out= ----


@each_variant
def test_out_in_every_layout(backend: str, variant: str) -> None:
    x, matrix = whole((5, 3, 8)), whole((4, 3))
    want = matrix @ x.mean(2).T
    base = np.full((9, 11), 99, np.float32)
    for out in (
        np.empty((4, 5), np.float32),
        np.empty((5, 4), np.float32).T,
        np.empty((4, 5), np.float32)[::-1, ::-1],
        np.empty((4, 5), ">f4"),
        base[1::2, 1::2],
    ):
        got = mean_matvec(x, matrix, out=out, backend=backend, variant=variant)
        assert got is out
        np.testing.assert_array_equal(out, want)
    base[1::2, 1::2] = 99
    assert (base == 99).all(), "wrote beside out"


# ---- on a CPU: ends of rows, of products and of tiles ----


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_length_around_the_lanes_of_a_cpu(variant: str, dtype: str) -> None:
    """Whole numbers: exact in any order, so no element is lost, counted twice or masked."""
    rng = np.random.default_rng(16)
    sizes = [(2, 3, cols, 5) for cols in (*range(1, 72), 255, 256, 257, 290, 513)]
    sizes += [
        (n, rows, 4, 9) for n in (1, 3, 8, 9, 16, 17, 33) for rows in (1, 15, 16, 17, 129)
    ]
    sizes += [(40, 128, 2, outputs) for outputs in (1, 4, 7, 8, 9, 65)]
    sizes += [(n, 512, 2, 70) for n in (37, 41, 129, 300)]  # several tiles per task
    sizes += [(37, 2, 2, 1030), (130, 70, 2, 300)]
    for n, rows, cols, outputs in sizes:
        x = rng.integers(-8, 9, (n, rows, cols)).astype(dtype) * cols
        matrix = rng.integers(-8, 9, (outputs, rows)).astype(dtype)
        want = matrix @ (x.sum(2) / cols).T
        got = mean_matvec(x, matrix, backend="cpu", variant=variant)
        np.testing.assert_array_equal(got, want, err_msg=str((n, rows, cols, outputs)))


# ---- special values ----


@pytest.mark.parametrize("variant", ["simd", "threads"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_batches_of_few_rows_have_the_same_bits_in_any_number(dtype: str, variant: str) -> None:
    """A CPU multiplies the means of many such batches while they are in its cache."""
    rng = np.random.default_rng(4)
    for n, rows, cols, outputs in [(700, 8, 8, 16), (1030, 33, 3, 9), (300, 64, 11, 64)]:
        x = rng.standard_normal((n, rows, cols)).astype(dtype)
        matrix = rng.standard_normal((outputs, rows)).astype(dtype)
        y = mean_matvec(x, matrix, backend="cpu", variant=variant)
        want = matrix.astype(float) @ x.astype(float).mean(2).T
        np.testing.assert_allclose(
            y.astype(float), want, atol=0.02 if dtype == "float16" else 1e-5
        )
        for first in range(0, n, 100):
            some = x[first : first + 100]
            part = mean_matvec(some, matrix, backend="cpu", variant=variant)
            assert np.array_equal(part, y[:, first : first + 100])
    assert mean_matvec(x[:, :0], matrix[:, :0], backend="cpu", variant=variant).max() == 0


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """M = 1..70: batch k has its nan at column k of row k % 2, and none elsewhere."""
    slow = backend == "sim"
    lengths = (1, 2, 33, 70) if slow and dtype != "float32" else range(1, 71)
    matrix = np.ones((1, 2), dtype_of(dtype))
    for n in lengths:
        if n > longest(variant):
            continue
        x = np.ones((n + 1, 2, n), dtype_of(dtype))
        k = np.arange(n)
        x[k, k % 2, k] = np.nan
        got = mean_matvec(x, matrix, backend=backend, variant=variant).astype(np.float32)
        assert np.isnan(got[0, :n]).all(), n
        assert got[0, n] == 2, n


@each_variant
def test_a_nan_stays_in_its_batch(backend: str, variant: str) -> None:
    """The zero padding of tiles is not multiplied by infinities of the matrix."""
    x, matrix = np.ones((35, 3, 5), np.float32), np.ones((66, 3), np.float32)
    x[7, 1, 4] = np.nan
    matrix[5, 2] = np.inf
    got = mean_matvec(x, matrix, backend=backend, variant=variant)
    assert np.isnan(got[:, 7]).all()
    others = np.delete(got, 7, axis=1)
    assert np.isposinf(others[5]).all()
    assert (np.delete(others, 5, axis=0) == 3).all()


@each_of_any_rows
def test_means_of_nothing_are_nan_without_a_warning(backend: str, variant: str) -> None:
    options: dict[str, Any] = {"backend": backend, "variant": variant}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = mean_matvec(np.empty((2, 3, 0)), np.ones((4, 3)), **options)
        assert got.shape == (4, 2)
        assert np.isnan(got).all()
        for cols in (5, 1):  # tiles by name ended the process: means of one element
            got = mean_matvec(np.empty((2, 0, cols)), np.empty((4, 0)), **options)
            assert (got == np.zeros((4, 2))).all()
        assert mean_matvec(np.empty((0, 3, 5)), np.ones((4, 3)), **options).shape == (4, 0)
        assert mean_matvec(np.ones((2, 3, 5)), np.empty((0, 3)), **options).shape == (0, 2)


@each_variant
def test_16_bit_means_pass_the_largest_number_on_the_way(backend: str, variant: str) -> None:
    x = np.full((1, 2, min(300, longest(variant))), 60000, np.float16)
    matrix = np.array([[1, -1], [0.5, 0.5]], np.float16)
    got = mean_matvec(x, matrix, backend=backend, variant=variant)
    np.testing.assert_array_equal(got[:, 0], np.array([0, 60000], np.float16))


@each_variant
def test_denormals_are_not_flushed(backend: str, variant: str) -> None:
    for dtype, tiny in (("float32", 2.0**-149), ("float64", 2.0**-1074)):
        k = np.random.default_rng(5).integers(-999, 999, (2, 3, 64)) * 64
        x = (k * tiny).astype(dtype)
        got = mean_matvec(x, np.eye(3, dtype=dtype), "NL", backend=backend, variant=variant)
        np.testing.assert_array_equal(got, (k.sum(2) // 64 * tiny).astype(dtype))


# ---- accuracy ----


@each_variant
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adversarial_rows(backend: str, variant: str, dtype: str, figure: Figure) -> None:
    rng = np.random.default_rng(11)
    scale = 1e8 if dtype == "float32" else 1e16
    worst = 0.0
    for n in (3, 33, 39, 256, 700 if backend == "sim" else 100_003):
        if n > longest(variant):
            continue
        drift = np.full(n, 0.1)
        drift[0] = scale
        grow = np.exp(rng.uniform(-40, 40, n)) * rng.choice([-1, 1], n)
        rows = [np.resize([scale, 1, -scale], n), drift, grow, np.sort(grow)]
        x = np.stack(rows).astype(dtype)[None]
        matrix = rng.standard_normal((5, len(rows))).astype(dtype)
        expected = expect_values(x, matrix)
        got = mean_matvec(x, matrix, backend=backend, variant=variant)
        assert expected.compare(got) is None, n
        error = np.abs(got.astype(expected.value.dtype) - expected.value)
        assert expected.tolerance is not None
        worst = max(worst, float((error / expected.tolerance).max()))
    figure(f"mean_matvec {backend} {variant} {dtype}: worst row", f"{worst:.0%} of the bound")


# ---- pinned bugs ----


@each_variant
def test_pinned_rows_do_not_race(backend: str, variant: str, simulator: Any) -> None:
    """The published first version has no barrier between one output's sum and the next."""
    x, matrix = whole((2, 130, 4)), whole((9, 130))
    want = matrix @ x.mean(2).T
    for schedule, seed in (("descending", 0), ("shuffle", 1), ("preempt", 2)):
        if backend == "sim":
            simulator(schedule=schedule, seed=seed, checks=True)
        got = mean_matvec(x, matrix, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, want)


@each_variant
def test_pinned_the_matrix_is_not_transposed(backend: str, variant: str) -> None:
    """The published first version reads matrix[l, i]; a symmetric matrix hides it."""
    x = np.ones((1, 3, 4), np.float32) * np.array([[1], [2], [4]], np.float32)
    matrix = np.triu(np.arange(1, 10, dtype=np.float32).reshape(3, 3))
    got = mean_matvec(x, matrix, backend=backend, variant=variant)
    np.testing.assert_array_equal(got[:, 0], matrix @ np.array([1, 2, 4], np.float32))


@each_variant
def test_pinned_the_result_starts_at_zero(backend: str, variant: str) -> None:
    """The published CPU reference adds to uninitialised memory."""
    x, matrix = whole((3, 5, 8)), whole((4, 5))
    out = np.full((4, 3), np.nan, np.float32)
    mean_matvec(x, matrix, out=out, backend=backend, variant=variant)
    np.testing.assert_array_equal(out, matrix @ x.mean(2).T)


@each_variant
def test_pinned_rows_that_are_no_power_of_two(backend: str, variant: str) -> None:
    """The published halving of L threads drops elements: L = 3 loses the last one."""
    for rows in (3, 5, 6, 7, 31, 33, 127, 129, 257):
        x = np.zeros((1, rows, 1), np.float32)
        x[0, -1] = 5
        matrix = np.ones((2, rows), np.float32)
        got = mean_matvec(x, matrix, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, [[5], [5]])


# ---- large strides ----


@each_of_any_rows
def test_offsets_past_32_bits(backend: str, variant: str) -> None:
    """Two batches 2**31 + 8 elements apart, with the memory between them never touched."""
    far = 2**31 + 8
    memory = np.zeros(far + 64, np.float16)
    memory[:12] = 1
    memory[far : far + 12] = 2
    step = memory.itemsize
    x = np.lib.stride_tricks.as_strided(memory, (2, 3, 4), (far * step, 4 * step, step))
    matrix = np.ones((2, 3), np.float16)
    got = mean_matvec(x, matrix, backend=backend, variant=variant)
    np.testing.assert_array_equal(got, [[3, 6], [3, 6]])


# ---- the simulator: counts and faults ----

# Requests to shared memory, their wavefronts, requests to global memory, barriers of a
# thread: N = 2, L = 33, M = 40, L2 = 5, float32, all kernels of the rung.
GOLDEN = {
    "v0": (290, 290, 214, 80),
    "v1": (290, 290, 214, 80),
    "v2": (290, 290, 248, 82),
    "v3": (50, 50, 248, 14),
    "v4": (1109, 3269, 61, 5),
    "v5": (1151, 3311, 61, 11),
}


def counts(rung: str) -> tuple[int, int, int, int]:
    kernels = profile("mean_matvec", whole((2, 33, 40)), whole((5, 33)), variant=rung)[rung]
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
    x, matrix = whole((3, 5, 8)), whole((4, 5))
    want = matrix @ x.mean(2).T
    before = None
    for step in range(50):
        simulator(fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = mean_matvec(x, matrix, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            simulator(fail_after=-1)
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            again = mean_matvec(x, matrix, variant=rung, backend="sim")
            np.testing.assert_array_equal(again, want)
            continue
        break
    assert 3 <= step < 49
    np.testing.assert_array_equal(got, want)


# ---- shapes ----


def test_few_batches_have_a_kernel_of_their_own() -> None:
    """Small products are few_batches; those that fill the GPU are tiles or v5."""
    for n, rows, cols, outputs, variant in (
        (1, 512, 4, 20, "few_batches"),
        (4, 1209, 40, 50, "few_batches"),
        (512, 64, 512, 64, "few_tiles"),
        (16384, 256, 128, 256, "v5"),
    ):
        x = np.broadcast_to(np.float64(1), (n, rows, cols))
        matrix = np.broadcast_to(np.float64(1), (outputs, rows))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert plan["variant"] == variant, (n, rows, cols, outputs)


@pytest.mark.parametrize("dtype", FLOATS[:1] + FLOATS[2:])
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs"),
    [
        (1, 512, 4, 20),  # means in the product's launch, of one batch of four
        (5, 70, 32, 9),  # the last outputs and batches are fewer than four
        (5, 70, 33, 9),  # a block has up to eight batches
        (8, 1040, 33, 6),  # the same, in packs
        (3, 5, 2048, 6),  # a block per row
        (6, 300, 64, 7),  # means by v4's stream
        (3, 5, 315, 4),  # the ends of rows beside their packs
        (3, 5, 601, 4),  # the same after two chunks of packs
        (40, 302, 33, 70),  # a block has fewer warps than its depth could use
        (4097, 3, 2, 5),  # many tiles
    ],
)
def test_few_batches_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, dtype: str
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    rng = np.random.default_rng(n + rows + cols + outputs)
    x = np.repeat(rng.integers(-3, 4, (n, rows, 1)), cols, 2).astype(dtype)
    matrix = rng.integers(-1, 2, (outputs, rows)).astype(dtype)
    got = mean_matvec(x, matrix, backend="sim", variant="few_batches")
    want = ref.mean_matvec(x, matrix)
    np.testing.assert_array_equal(got, want)


def exact_call(
    n: int, rows: int, cols: int, outputs: int, past: int, dtype: str
) -> tuple[Any, Any, Any]:
    """x, `past` elements into its memory, a matrix and the result, exact in any order."""
    rng = np.random.default_rng(n + rows + cols + outputs)
    memory = np.empty(n * rows * cols + past, dtype_of(dtype))
    x = memory[past:].reshape(n, rows, cols)
    x[...] = np.repeat(rng.integers(-3, 4, (n, rows, 1)), cols, 2)
    matrix = (rng.integers(-1, 2, (outputs, rows)) * (rng.random(rows) < 0.2)).astype(
        dtype_of(dtype)
    )
    want = matrix.astype("f8") @ x.astype("f8").mean(2).T
    return x, matrix, want


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs", "past"),
    [
        (70, 265, 5, 23, 0),  # the matrix is copied, its rows padded
        (70, 265, 5, 23, 1),  # x does not begin on 16 bytes
        (3, 64, 40, 7, 3),  # no copy of the matrix; four lanes share a row
        (5, 29, 131, 4, 0),
        (3, 9, 320, 2, 1),  # the longest rows: six of float64 in a chunk
        (2, 7, 1, 3, 0),
        (900, 12, 4, 5, 0),
        (1, 3000, 11, 70, 1),  # chunks end within a batch
        (300, 1, 10, 2, 1),
    ],
)
def test_short_rows_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, past: int, dtype: str, simulator: Any
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    simulator(schedule="shuffle", checks=True)
    x, matrix, want = exact_call(n, rows, cols, outputs, past, dtype)
    for variant in ("short_rows", "few_batches"):
        got = mean_matvec(x, matrix, backend="sim", variant=variant)
        np.testing.assert_array_equal(got.astype("f8"), want, variant)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs", "past"),
    [
        (1, 1, 1, 1, 0),
        (64, 39, 11, 130, 0),  # tiles of 16 batches; the last has two outputs
        (64, 39, 11, 130, 1),  # x does not begin on 16 bytes
        (70, 33, 7, 65, 3),  # tiles of 16 and of 32, the last with six batches
        (140, 16, 4, 316, 0),
        (600, 64, 4, 64, 0),  # whole packs
        (3, 200, 9, 5, 1),  # seven stages
        (1, 157, 59, 29, 0),  # lanes share a row
        (5, 7, 320, 3, 2),
        (2, 130, 3, 70, 0),
    ],
)
def test_own_means_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, past: int, dtype: str, simulator: Any
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    x, matrix, want = exact_call(n, rows, cols, outputs, past, dtype)
    for schedule, layout in (("ascending", "LN"), ("shuffle", "NL"), ("descending", "LN")):
        simulator(schedule=schedule, checks=True)
        got = mean_matvec(x, matrix, layout, backend="sim", variant="own_means")
        np.testing.assert_array_equal(got.astype("f8"), want if layout == "LN" else want.T)
    got = mean_matvec(x, matrix[:, ::-1], backend="sim", variant="own_means")
    want = mean_matvec(x, matrix[:, ::-1], backend="sim", variant="v4")
    np.testing.assert_array_equal(got, want)


def test_own_means_are_chosen_for_small_calls() -> None:
    for n, rows, cols, outputs, is_chosen in (
        (16, 64, 5, 200, True),
        (128, 48, 12, 128, False),  # several tiles of an SM
        (16, 64, 50, 200, False),  # x would be read from L2 for long
    ):
        x, matrix = np.zeros((n, rows, cols)), np.zeros((outputs, rows))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert (plan["variant"] == "own_means") == is_chosen, plan["variant"]


def test_own_means_refuse_what_does_not_fit() -> None:
    def zeros(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.float32)

    for x, matrix in (
        (zeros(4, 6, 10)[..., :5], zeros(3, 6)),  # rows apart
        (zeros(4, 6, 321), zeros(3, 6)),
        (zeros(2, 513, 3), zeros(3, 513)),
        (zeros(16, 400, 30), zeros(30, 400)),
    ):
        with pytest.raises(gpuopt.VariantError, match="own_means"):
            mean_matvec(x, matrix, backend="sim", variant="own_means")


def test_short_rows_are_chosen_by_their_bytes() -> None:
    """Rows of no whole packs, or that lanes would not fill."""
    for cols, is_short in (
        (5, True),
        (8, True),
        (16, True),  # 4 packs, 8 lanes
        (20, False),
        (36, True),  # 9 packs, 16 loads of 8 lanes
        (41, True),
        (64, False),
        (321, False),
    ):
        x = np.broadcast_to(np.float32(1), (20_000, 256, cols))
        x = np.lib.stride_tricks.as_strided(x, strides=(256 * cols * 4, cols * 4, 4))
        matrix = np.ones((13, 256), np.float32)  # rows of whole packs
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert ("copied whole" in plan["why"]) == is_short, cols


def test_long_rows_of_no_whole_packs_are_streamed() -> None:
    """A group of lanes has one row at once: its ends are loaded beside its packs."""
    for cols, dtype, is_short in (
        (177, "float32", False),
        (150, "float32", False),
        (129, "float32", True),  # lanes would load half of what they can
        (127, "float32", False),  # lanes load most of what they can
        (87, "float32", True),
        (103, "float64", False),
        (63, "float64", True),
    ):
        x = np.broadcast_to(np.dtype(dtype).type(1), (20_000, 64, cols))
        strides = (64 * cols * x.itemsize, cols * x.itemsize, x.itemsize)
        x = np.lib.stride_tricks.as_strided(x, strides=strides)
        matrix = np.broadcast_to(np.dtype(dtype).type(1), (64, 64))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert ("copied whole" in plan["why"]) == is_short, cols
        assert plan["variant"] != "v5", cols


def test_rows_that_do_not_exist_are_not_read() -> None:
    """Of a tile of 64 outputs with 3, a stage reads 3 rows of the matrix, not 64."""
    x = np.ones((64, 64, 128), np.float32)

    def requests(outputs: int) -> int:
        matrix = np.ones((outputs, 64), np.float32)
        kernels = profile("mean_matvec", x, matrix, variant="v4")["v4"]
        return next(k.global_requests for k in kernels if "product" in k.kernel)

    assert requests(3) < 0.65 * requests(64)


def test_short_rows_refuse_rows_apart() -> None:
    x, matrix = np.zeros((4, 6, 10), np.float32)[..., :5], np.zeros((3, 6), np.float32)
    with pytest.raises(gpuopt.VariantError, match="short_rows"):
        mean_matvec(x, matrix, backend="sim", variant="short_rows")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs"),
    [
        (40, 405, 10, 70),  # blocks share the depth of two tiles; the last has fewer terms
        (70, 400, 3, 9),
        (3, 333, 50, 4),  # rows that are not short, of a matrix that is not aligned
        (2, 20, 16, 5),  # one block
        (17, 300, 8, 130),  # the last tile has one batch, or the last outputs
        (256, 40, 2, 512),  # tiles of 128 by 128, of float64 of 128 by 64
        (150, 37, 2, 500),  # the last of these tiles have 22 batches, or 116 outputs
        (5, 66, 3, 11),  # most rows of a tile do not exist; a part of a stage has terms
        (65, 33, 2, 100),  # rows of neither factor are whole packs
        (1, 64, 4, 1),
    ],
)
def test_few_tiles_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, dtype: str, simulator: Any
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    rng = np.random.default_rng(n + rows + cols + outputs)
    x = np.repeat(rng.integers(-3, 4, (n, rows, 1)), cols, 2).astype(dtype_of(dtype))
    matrix = (rng.integers(-1, 2, (outputs, rows)) * (rng.random(rows) < 0.2)).astype(
        dtype_of(dtype)
    )
    want = matrix.astype("f8") @ x.astype("f8").mean(2).T
    for schedule in ("ascending", "descending", "shuffle"):
        simulator(schedule=schedule, checks=True)
        got = mean_matvec(x, matrix, backend="sim", variant="few_tiles")
        np.testing.assert_array_equal(got.astype("f8"), want)


@pytest.mark.parametrize(
    ("variant", "dtype", "n", "rows", "outputs", "last", "blocks"),
    [
        ("few_tiles", "float32", 16, 256, 60, "cluster_tiles_product", 8),
        ("few_tiles", "float32", 16, 2000, 60, "few_tiles_sum", 4),  # in a second launch
        ("few_tiles", "float16", 16, 256, 60, "few_tiles_sum", 4),
        ("warpgroup_tiles", "float32", 60, 128, 70, "warpgroup_tiles_product", 2),
    ],
)
def test_a_cluster_adds_the_sums_of_a_tile(
    variant: str,
    dtype: str,
    n: int,
    rows: int,
    outputs: int,
    last: str,
    blocks: int,
    simulator: Any,
) -> None:
    x, matrix, want = exact_call(n, rows, 8, outputs, 0, dtype)
    for schedule, layout in (("ascending", "LN"), ("shuffle", "NL"), ("descending", "LN")):
        simulator(schedule=schedule, checks=True)
        got = mean_matvec(x, matrix, layout, backend="sim", variant=variant)
        np.testing.assert_array_equal(got.astype("f8"), want if layout == "LN" else want.T)
    kernel = profile("mean_matvec", x, matrix, variant=variant)[variant][-1]
    assert (last in kernel.kernel, kernel.blocks) == (True, blocks)


@pytest.mark.parametrize("layout", ["LN", "NL"])
def test_a_block_of_a_cluster_makes_its_tile_again(layout: str) -> None:
    """Tensor cores cannot make the sums of the first half of the depth, of one batch."""
    x, matrix, _ = exact_call(60, 128, 8, 70, 0, "float32")
    x[3, 5] = np.inf
    with np.errstate(invalid="ignore"):
        want = expect_values(x, matrix, layout).value
    got = mean_matvec(x, matrix, layout, backend="sim", variant="warpgroup_tiles")
    np.testing.assert_array_equal(got, want)


TENSOR_CORES = ("tensor_tiles", "warpgroup_tiles")


@pytest.mark.parametrize("variant", TENSOR_CORES)
@pytest.mark.parametrize("dtype", [d for d in FLOATS if d != "float64"])
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs"),
    [
        (5, 7, 3, 3),  # one tile of 64 by 64, mostly padding, one stage
        (65, 33, 2, 100),  # rows of neither factor are whole packs
        (2, 600, 16, 5),  # blocks share the depth
        (140, 288, 2, 9),  # more stages than the ring has
        (316, 40, 2, 272),  # tiles of 128 by 128
        (129, 64, 4, 257),  # the last tiles have one batch, one output
    ],
)
def test_tensor_tiles_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, dtype: str, variant: str, simulator: Any
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    x, matrix, want = exact_call(n, rows, cols, outputs, 1, dtype)
    for schedule, layout in (("ascending", "LN"), ("shuffle", "NL")):
        simulator(schedule=schedule, checks=True)
        got = mean_matvec(x, matrix, layout, backend="sim", variant=variant)
        np.testing.assert_array_equal(got.astype("f8"), want if layout == "LN" else want.T)


@pytest.mark.parametrize("variant", TENSOR_CORES)
@pytest.mark.parametrize("fill", ["positive", "scaled", "special", "tiny"])
def test_tensor_tiles_have_the_error_of_float32(fill: str, variant: str) -> None:
    """Sums that tensor cores cut; tiles that they cannot make are made by others."""
    rng = np.random.default_rng(8)
    x = rng.random((70, 300, 2), np.float32)
    matrix = rng.random((66, 300), np.float32)
    if fill != "positive":
        x, matrix = x - np.float32(0.5), matrix - np.float32(0.5)
    if fill == "scaled":
        matrix *= np.exp2(rng.integers(-60, 60, (66, 1))).astype("f4")
    elif fill == "special":
        x[3, 5], x[69, 299] = -np.inf, 1e38
        matrix[1, 2], matrix[65, 7] = np.nan, np.inf
    elif fill == "tiny":
        x *= np.float32(1e20)
        matrix[::7] *= np.float32(1e-38)
    with np.errstate(all="ignore"):
        want = expect_values(x, matrix)
    assert want.tolerance is not None
    got = mean_matvec(x, matrix, backend="sim", variant=variant).astype("f8")
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want.value))
    infinite = np.isinf(want.value)
    np.testing.assert_array_equal(got[infinite], want.value[infinite])
    finite = np.isfinite(want.value)
    error = np.abs(got[finite] - want.value[finite])
    assert (error <= want.tolerance[finite] / 8).all()


def test_warpgroup_tiles_have_no_bank_conflicts() -> None:
    for layout, n in (("LN", 40), ("NL", 40), ("LN", 400), ("NL", 400)):
        for rows in (64, 35):  # rows of whole packs, and others
            x, matrix = np.ones((n, rows, 8), np.float32), np.ones((130, rows), np.float32)
            kernels = profile("mean_matvec", x, matrix, layout, variant="warpgroup_tiles")
            product = kernels["warpgroup_tiles"][-1]
            assert "warpgroup_tiles" in product.kernel
            assert product.shared_wavefronts == product.shared_ideal, (layout, rows)


def test_tensor_cores_are_chosen_for_long_products_of_float32() -> None:
    for n, rows, outputs, dtype, is_chosen in (
        (2000, 1000, 1000, "float32", True),
        (2000, 1000, 1000, "float64", False),
        (2000, 1000, 1000, "float16", False),
        (10_000, 196, 196, "float32", True),
        (10_000, 64, 512, "float32", False),  # few terms
        (200_000, 40, 1000, "float32", False),
        (50, 64, 1000, "float32", False),  # few products
    ):
        x = np.broadcast_to(np.zeros(1, dtype), (n, rows, 64))
        matrix = np.zeros((outputs, rows), dtype)
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert (plan["variant"] in TENSOR_CORES) == is_chosen, (n, dtype, plan["variant"])


def test_every_size_of_tile_is_planned() -> None:
    """About as many batches as a tile has, of a matrix of many rows."""
    for n, dtype, size in (
        (16, "float64", "64 outputs by 16"),
        (32, "float16", "64 outputs by 32"),
        (256, "float16", "128 outputs by 128"),
        (1024, "float64", "128 outputs by 64"),
    ):
        x = np.broadcast_to(np.dtype(dtype).type(1), (n, 4000, 512))
        matrix = np.broadcast_to(np.ones(4000, dtype), (4096, 4000))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert plan["variant"] == "few_tiles", n
        assert plan["why"].startswith(f"tiles of {size} batches"), plan["why"]


def test_the_batches_of_the_last_wave_are_a_product_of_their_own() -> None:
    """Of some numbers of batches, in two launches; the results lie beside each other."""
    matrix = np.zeros((400, 200))
    for n in range(100, 1100, 20):
        x = np.broadcast_to(np.zeros(1), (n, 200, 512))
        if "batches apart" in _core.plan("mean_matvec", x, matrix, backend="sim")["why"]:
            break
    else:
        pytest.fail("never planned")
    x, matrix, want = exact_call(n, 200, 2, 400, 0, "float64")
    for layout in ("LN", "NL"):
        got = mean_matvec(x, matrix, layout, backend="sim", variant="few_tiles")
        np.testing.assert_array_equal(got, want if layout == "LN" else want.T)


def test_few_tiles_are_chosen_for_long_sums() -> None:
    """64 batches and 64 outputs are one tile of v4, whatever the depth."""
    for n, rows, variant in ((64, 100_000, "few_tiles"), (4, 16, "few_batches")):
        x = np.broadcast_to(np.float64(1), (n, rows, 256))
        matrix = np.broadcast_to(np.float64(1), (64, rows))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert plan["variant"] == variant, rows


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("n", "rows", "cols", "outputs", "past"),
    [
        (1, 1, 1, 1, 0),  # one word, not a whole one
        (3000, 3, 10, 19, 1),  # blocks take several pieces; x does not begin on 16 bytes
        (700, 65, 5, 73, 0),  # a thread has 8 by 4 results; stages end within a batch
        (600, 9, 2, 14, 3),  # the same, the last group of outputs has 6
        (40, 60, 33, 5, 3),  # lanes have 9 of the elements of a row, the last one 6
        (129, 12, 128, 3, 1),  # the longest rows
        (50, 30, 16, 31, 0),  # parts of rows would begin in two banks
        (5000, 1, 3, 2, 0),  # the most batches at a time
        (90, 200, 4, 20, 0),  # an SM has two blocks, of float64 one
        (40, 400, 2, 11, 1),  # one block
        (2047, 7, 2, 187, 1),  # wide: a block has 256 batches, the last one 255
        (2000, 3, 1, 192, 0),  # the same, 250; whole groups of outputs
        (1700, 1, 3, 64, 2),  # one term: nothing is loaded ahead
        (520, 100, 3, 150, 0),  # the same, one block per SM
        (4400, 5, 4, 60, 0),  # three pieces, of float64 five; the last one is short
    ],
)
def test_many_batches_are_numpys_formula(
    n: int, rows: int, cols: int, outputs: int, past: int, dtype: str, simulator: Any
) -> None:
    """Whole numbers, the same ones along a row: exact in any order."""
    x, matrix, want = exact_call(n, rows, cols, outputs, past, dtype)
    for schedule, layout in (("ascending", "LN"), ("shuffle", "NL"), ("descending", "LN")):
        simulator(schedule=schedule, checks=True)
        got = mean_matvec(x, matrix, layout, backend="sim", variant="many_batches")
        np.testing.assert_array_equal(got.astype("f8"), want if layout == "LN" else want.T)


@pytest.mark.parametrize("variant", ["many_batches", "short_rows"])
def test_rows_are_added_without_bank_conflicts(variant: str) -> None:
    """Lanes read rows of any length, beside each other, from different banks."""
    path = ROOT / "csrc/ops/mean_matvec/row_words.cuh"
    code = path.read_text(encoding="utf-8").splitlines()
    for dtype, lengths in (
        ("float32", (4, 5, 8, 10, 12, 16, 32, 64)),
        ("float64", (3, 4, 6, 8, 16, 64)),
        ("float16", (4, 8, 16, 32, 64)),
    ):
        for cols in lengths:
            x, matrix = np.ones((70, 6, cols), dtype), np.ones((3, 6), dtype)
            wavefronts, ideal = 0, 0
            for kernel in profile("mean_matvec", x, matrix, variant=variant)[variant]:
                for line in kernel.lines:
                    if line.file.endswith(path.name) and "word = (u" in code[line.line - 1]:
                        wavefronts += line.shared_wavefronts
                        ideal += line.shared_ideal
            assert 0 < wavefronts == ideal, (dtype, cols)


def test_many_batches_refuse_what_does_not_fit() -> None:
    def zeros(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, np.float32)

    for x, matrix in (
        (zeros(4, 6, 10)[..., :5], zeros(3, 6)),  # rows apart
        (zeros(4, 6, 129), zeros(3, 6)),
        (zeros(2, 300, 3), zeros(300, 300)),
        (zeros(2, 3, 0), zeros(3, 3)),
    ):
        with pytest.raises(gpuopt.VariantError, match="many_batches"):
            mean_matvec(x, matrix, backend="sim", variant="many_batches")


def test_many_batches_are_chosen_by_their_sizes() -> None:
    for n, rows, cols, outputs, is_chosen in (
        (170_822, 19, 10, 19, True),
        (1_000_000, 8, 6, 8, True),
        (265_383, 20, 6, 512, True),  # wide
        (16_384, 256, 64, 256, False),  # the matrix does not fit
    ):
        x = np.broadcast_to(np.float32(1), (n, rows, cols))
        x = np.lib.stride_tricks.as_strided(x, strides=(rows * cols * 4, cols * 4, 4))
        matrix = np.broadcast_to(np.float32(1), (outputs, rows))
        plan = _core.plan("mean_matvec", x, matrix, backend="sim")
        assert (plan["variant"] == "many_batches") == is_chosen, (n, plan["variant"])
