"""partition_reduce beyond the matrix: its meaning, difficult values, and published bugs.

Order: what it means, special values, accuracy, pinned bugs, large indices, counts.
See test_contract.py for values on all sizes, layouts and dtypes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import determinism, dtype_of, flushes
from conftest import Figure

import gpuopt
from gpuopt import _core, partition_reduce, ref
from gpuopt.lab.profile import profile


def variants() -> list[tuple[str, str]]:
    """(backend, variant) of every row that can run here and takes any call.

    v3 falls back to short_loops, so tests of v3 run both.
    """
    usable = _core.backends()
    return [
        (row["backend"], row["name"])
        for row in _core.variants("partition_reduce")
        if row["available"] and not row["shape"] and usable[row["backend"]] is None
    ]


each_variant = pytest.mark.parametrize(("backend", "variant"), variants())
CPU = [name for backend, name in variants() if backend == "cpu"]
FLOATS = ("float16", "bfloat16", "float32", "float64")
ATOMIC = ("v0", "v1", "v2")

needs_sim = pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")


def by_hand(x: np.ndarray[Any, Any], bits: tuple[int, ...]) -> list[Any]:
    """The definition, one element at a time, in Python's own integers."""
    out = [x.dtype.type(0).item()] * (1 << len(bits))
    for i, value in enumerate(x.tolist()):
        out[sum((i >> bit & 1) << b for b, bit in enumerate(bits))] += value
    return out


# ---- what it means ----


@each_variant
def test_every_ordered_set_of_bits(backend: str, variant: str) -> None:
    """All 65 ordered subsets of four bits, on 16 distinct powers of two."""
    x = np.left_shift(1, np.arange(16), dtype=np.int64)
    for k in range(5):
        for bits in itertools.permutations(range(4), k):
            got = partition_reduce(x, bits, backend=backend, variant=variant)
            assert got.tolist() == by_hand(x, bits), bits


def test_the_reference_means_what_the_definition_says() -> None:
    rng = np.random.default_rng(3)
    for n in range(8):
        for _ in range(10):
            bits = tuple(int(b) for b in rng.permutation(n)[: rng.integers(0, n + 1)])
            x = rng.integers(-1000, 1000, 1 << n)
            assert ref.partition_reduce(x, bits).tolist() == by_hand(x, bits)
    out = np.empty(2, np.float32)
    assert ref.partition_reduce(np.ones(4, np.float32), 1, out=out) is out
    assert (out == 2).all()
    for wrong in (
        {"x": np.ones(3), "bits": 0},
        {"x": np.ones((2, 2)), "bits": 0},
        {"x": np.ones(4), "bits": 2},
        {"x": np.ones(4), "bits": (1, 1)},
        {"x": np.ones(4), "bits": 0, "op": "max"},
        {"x": np.ones(4), "bits": 0, "out": out},
    ):
        with pytest.raises(ValueError):
            ref.partition_reduce(**wrong)


@each_variant
def test_all_bits_kept_is_a_permutation(backend: str, variant: str) -> None:
    """Reversed bits: the order of a fast Fourier transform, twice the identity."""
    for n in (0, 1, 5, 6, 9):
        x = np.arange(1 << n, dtype=np.float32)
        bits = tuple(range(n))[::-1]
        where = {"backend": backend, "variant": variant}
        once = partition_reduce(x, bits, **where)
        assert sorted(once.tolist()) == x.tolist()
        np.testing.assert_array_equal(partition_reduce(once, bits, **where), x)


@each_variant
def test_probabilities_of_a_state(backend: str, variant: str) -> None:
    """Qubits that are measured apart: the probabilities of each, and of both."""
    a = np.array([0.6, 0.8j])
    b = np.array([1, 1j]) / math.sqrt(2)
    state = np.kron(np.kron(b, np.array([1, 0])), a)  # qubit 0 is a, qubit 2 is b
    where = {"backend": backend, "variant": variant, "square": True}
    for dtype, real in ((np.complex64, np.float32), (np.complex128, np.float64)):
        x = state.astype(dtype)
        got = partition_reduce(x, 0, **where)
        assert got.dtype == real
        np.testing.assert_allclose(got, [0.36, 0.64], rtol=1e-6)
        np.testing.assert_allclose(
            partition_reduce(x, (2, 0), **where), [0.18, 0.18, 0.32, 0.32], rtol=1e-6
        )
        np.testing.assert_allclose(partition_reduce(x, (), **where), [1], rtol=1e-6)


def test_bits_as_anything_whole() -> None:
    x = np.arange(8)
    for bits in (1, np.int8(1), (1,), (np.uint64(1),)):
        np.testing.assert_array_equal(partition_reduce(x, bits), [10, 18])
    assert partition_reduce(x, ()).tolist() == [28]
    assert partition_reduce(np.ones(1), ()).tolist() == [1]


@each_variant
def test_integers_wrap_as_numpys(backend: str, variant: str) -> None:
    where = {"backend": backend, "variant": variant}
    x = np.array([2**63 - 1, 5, 1, 7], np.int64)
    assert partition_reduce(x, 0, **where).tolist() == [-(2**63), 12]
    small = np.full(4, -(2**31), np.int32)
    assert partition_reduce(small, 0, **where).tolist() == [-(2**32)] * 2
    squares = partition_reduce(small, 0, square=True, **where)
    assert squares.dtype == np.int64
    assert squares.tolist() == [-(2**63)] * 2  # 2**62 twice


# ---- special values ----


@each_variant
@pytest.mark.parametrize("dtype", [*FLOATS, "complex64", "complex128"])
def test_nan_at_every_position(backend: str, variant: str, dtype: str) -> None:
    """Lengths 1 to 64: nan reaches its own output and no other."""
    slow = backend == "sim" and dtype != "float32"
    for n in (0, 2, 5, 6) if slow else range(7):
        for bits in ((), tuple(range(0, n, 2)), tuple(range(n - 1, -1, -2))):
            x = np.ones(1 << n, dtype_of(dtype))
            for at in range(0, 1 << n, 3 if backend == "sim" else 1):
                x[at] = np.nan
                got = partition_reduce(x, bits, backend=backend, variant=variant)
                where = sum((at >> bit & 1) << b for b, bit in enumerate(bits))
                seen = np.isnan(got.astype(np.complex128))
                assert seen.tolist() == [o == where for o in range(got.size)], (n, bits, at)
                x[at] = 1


@each_variant
@pytest.mark.parametrize("dtype", FLOATS)
def test_infinities_and_denormals(backend: str, variant: str, dtype: str) -> None:
    where = {"backend": backend, "variant": variant}
    for n in (1, 6, 10):
        x = np.ones(1 << n, dtype_of(dtype))
        x[0] = np.inf
        got = partition_reduce(x, 0, **where).astype(np.float64)
        assert got[0] == np.inf and got[1] == (1 << n - 1)
        x[-2] = -np.inf if n > 1 else np.nan
        assert np.isnan(float(partition_reduce(x, 0, **where)[0]))
    tiny = {"float32": 2.0**-149, "float64": 2.0**-1074, "float16": 2.0**-24}.get(dtype)
    if tiny:
        x = np.full(64, tiny, dtype)
        got = partition_reduce(x, 3, **where).astype(np.float64)
        assert (got == 32 * tiny).all() or (
            flushes(backend, determinism("partition_reduce", backend, variant), dtype)
            and (got == 0).all()
        )


@each_variant
def test_pinned_half_accumulators_overflow(backend: str, variant: str) -> None:
    """Partial float16 sums exceed 65504, the final sums do not."""
    x = np.full(4096, 64, np.float16)
    x[2048:] = -64
    got = partition_reduce(x, 0, backend=backend, variant=variant)
    assert got.tolist() == [0, 0]


# ---- accuracy ----


@each_variant
@pytest.mark.parametrize(("dtype", "eps"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_error_is_that_of_pairwise_sums(
    backend: str, variant: str, dtype: str, eps: float, figure: Figure
) -> None:
    """(ceil(log2 m) + 12) eps sum |x| of the variants that are not atomic."""
    if variant in ATOMIC or variant == "scalar":
        return
    rng = np.random.default_rng(11)
    scale = 1e8 if dtype == "float32" else 1e16
    worst = 0.0
    for n in (5, 10, 13) if backend == "sim" else (5, 10, 16, 17):
        size = 1 << n
        cancel = np.resize([scale, 1, -scale], size)
        drift = np.full(size, 0.1)
        drift[0] = scale
        grow = np.exp(rng.uniform(-40, 40, size)) * rng.choice([-1, 1], size)
        for x in (cancel, drift, grow, np.sort(grow), rng.random(size)):
            x = x.astype(dtype)
            for bits in ((), (n - 1,), (0, 2)):
                got = partition_reduce(x, bits, backend=backend, variant=variant)
                for o in range(got.size):
                    i = np.arange(size)
                    of = sum((i >> bit & 1) << b for b, bit in enumerate(bits)) == o
                    part = x[of].astype(np.float64) if bits else x.astype(np.float64)
                    log = (part.size - 1).bit_length()
                    bound = (log + 12) * eps * math.fsum(np.abs(part))
                    error = abs(float(got[o]) - math.fsum(part))
                    assert error <= bound, (n, bits, o)
                    worst = max(worst, error / bound)
    figure(f"partition_reduce {backend} {variant} {dtype}", f"{worst:.0%} of the bound")


@pytest.mark.parametrize("variant", CPU)
def test_a_long_float32_sum_does_not_stagnate(variant: str) -> None:
    """2**25 ones an output: one float32 accumulator stops at 2**24."""
    x = np.broadcast_to(np.float32(1), (1 << 26,))
    got = partition_reduce(x, 25, backend="cpu", variant=variant)
    assert got.tolist() == [1 << 25, 1 << 25]


# ---- pinned bugs ----


@each_variant
def test_pinned_bits_of_the_high_end(backend: str, variant: str) -> None:
    """The source's second closed form: bits n .. N-1 as i * 2**n / len.

    The output is i >> n; that product is i >> (N - n), right where n = N / 2 alone.
    """
    big, n = 10, 3
    x = np.arange(1 << big, dtype=np.int32)
    got = partition_reduce(x, tuple(range(n, big)), backend=backend, variant=variant)
    np.testing.assert_array_equal(got, x.reshape(-1, 1 << n).sum(1))
    published = np.zeros(1 << (big - n), np.int64)
    np.add.at(published, (x.astype(np.int64) << n) // x.size, x)
    assert (published != got).any()


@each_variant
def test_pinned_private_copies_are_used(backend: str, variant: str) -> None:
    """Method A computes a private index and adds at the shared one.

    Then all copies but the first stay 0, and the first is a sum of racing blocks: with
    distinct values in every block the result shows it.  It also clears one output where
    it needs to clear the copies, so that a second call sees the first one's sums.
    """
    x = np.arange(1 << 12, dtype=np.int64) ** 2
    for bits in ((0, 1, 2, 3, 4), (11, 10), ()):
        want = ref.partition_reduce(x, bits)
        for _ in range(3):
            got = partition_reduce(x, bits, backend=backend, variant=variant)
            np.testing.assert_array_equal(got, want)


@each_variant
def test_pinned_more_outputs_than_shared_memory_holds(backend: str, variant: str) -> None:
    """Method C stops at 4096 outputs; v1 then takes windows of them."""
    x = np.arange(1 << 13, dtype=np.float32)
    for bits in (tuple(range(13)), tuple(range(13))[::-1], (*range(3, 13), 1, 0, 2)):
        got = partition_reduce(x, bits, backend=backend, variant=variant)
        np.testing.assert_array_equal(got, ref.partition_reduce(x, bits))


@each_variant
def test_pinned_more_threads_than_outputs_and_fewer(backend: str, variant: str) -> None:
    """Blocks of more and of fewer threads than outputs: no output may be left out."""
    for n, k in ((9, 8), (9, 9), (10, 9), (8, 0), (3, 2)):
        x = np.ones(1 << n, np.float64)
        got = partition_reduce(x, tuple(range(k)), backend=backend, variant=variant)
        np.testing.assert_array_equal(got, np.full(1 << k, 1 << (n - k)))


@each_variant
def test_views_that_packs_cannot_read(backend: str, variant: str) -> None:
    """Starts off 16 bytes, gaps, negative and zero strides, at lengths that use packs."""
    base = np.arange(1 << 11, dtype=np.float64)
    for dtype in (np.float32, np.float64, np.complex64):
        memory = base.astype(dtype)
        for x in (memory[1 : 1 + 512], memory[::2][:512], memory[::-1][3 : 3 + 512]):
            for bits in ((0, 8), (5, 6, 7), tuple(range(9))):
                got = partition_reduce(x, bits, backend=backend, variant=variant)
                np.testing.assert_array_equal(got, ref.partition_reduce(x, bits))


# ---- large indices ----


@pytest.fixture
def last_blocks() -> Iterator[Any]:
    """Runs the blocks of a simulated grid from the given one to the end."""
    old = _core._sim_configure()

    def set_first(block: int) -> None:
        _core._sim_configure(first_block=block)

    yield set_first
    _core._sim_configure(**old)


@needs_sim
@pytest.mark.parametrize("n", [31, 32, 33])
def test_index_beyond_32_bits_in_v0(last_blocks: Any, n: int) -> None:
    """The index in the source document is a 32-bit product, widened too late."""
    x = np.broadcast_to(np.float32(1), (1 << n,))
    last_blocks((1 << n) // 256 - 2)
    got = partition_reduce(x, (n - 1, n - 2, 0), backend="sim", variant="v0")
    assert got.tolist() == [0, 0, 0, 256, 0, 0, 0, 256]


@needs_sim
@pytest.mark.parametrize("n", [32, 33])
def test_index_beyond_32_bits_in_v3(last_blocks: Any, n: int) -> None:
    """2**13 elements a tile; the last two blocks are 16 tiles."""
    x = np.broadcast_to(np.float32(1), (1 << n,))
    tiles = 1 << (n - 13)
    last_blocks(tiles // 8 - 2)
    got = partition_reduce(x, tuple(range(13, n)), backend="sim", variant="v3")
    assert got.size == tiles
    assert (got[-16:] == 8192).all()


def test_2_to_the_31_elements() -> None:
    x = np.broadcast_to(np.int32(3), (1 << 31,))
    got = partition_reduce(x, (30, 0), backend="cpu")
    assert got.tolist() == [3 << 29] * 4


# ---- counts ----

# f32, 2^12 elements, 32 outputs of 128 elements; of the kernel that reads x:
# shared requests and wavefronts; global requests and sectors; atomic requests
GOLDEN = {
    "v0": (0, 0, 128, 512, 128),
    "v1": (2, 2, 128, 512, 129),
    "v2": (0, 0, 128, 512, 128),
    "v3": (56, 112, 36, 528, 0),
}


@needs_sim
def test_profile_of_the_ladder() -> None:
    x = np.random.default_rng(5).integers(-9, 9, 4096).astype(np.float32)
    table = profile("partition_reduce", x, (0, 1, 2, 3, 4))
    for rung, wanted in GOLDEN.items():
        kernel = next(k for k in table[rung] if f"_{rung}_" in k.kernel)
        got = (
            *(kernel.shared_requests, kernel.shared_wavefronts),
            *(kernel.global_requests, kernel.global_sectors, kernel.atomic_requests),
        )
        assert got == wanted, rung
    assert all(k.races == 0 for k in table)
    assert profile("partition_reduce", x, (0, 1, 2, 3, 4)).to_json() == table.to_json()


@needs_sim
def test_lanes_of_one_output_queue_at_its_address() -> None:
    """The high bits kept: a warp's 32 atomics go to one address, and v3 has none."""
    x = np.ones(4096, np.float32)
    table = profile("partition_reduce", x, (10, 11))
    reading = {k.variant: k for k in table if f"_{k.variant}_" in k.kernel}
    spread = profile("partition_reduce", x, (0, 1, 2, 3, 4))
    for rung in ("v0", "v2"):
        there = next(k for k in spread[rung] if f"_{rung}_" in k.kernel)
        assert reading[rung].atomic_serialised > there.atomic_serialised
    assert reading["v3"].atomic_requests == 0


@needs_sim
def test_short_loops_take_sums_of_few_elements() -> None:
    """2^17 float32: a warp's load spans 7 bits of an index, 10 are above."""
    x = np.ones(1 << 17, np.float32)
    many = tuple(range(7, 15))
    for kept, variant in (((7, 8), "v3"), (many, "short_loops")):
        row = gpuopt.explain("partition_reduce", x, kept, backend="sim")[0]
        assert row["variant"] == variant
        with_v3 = profile("partition_reduce", x, kept, variant="v3")
        assert any(f"partition_reduce_{variant}" in k.kernel for k in with_v3)
    with pytest.raises(gpuopt.VariantError, match="short_loops"):
        partition_reduce(x, (7, 8), backend="sim", variant="short_loops")
    got = partition_reduce(x, many, backend="sim", variant="short_loops")
    assert got.tolist() == [512] * 256


@needs_sim
def test_few_sums_takes_sums_of_many_elements() -> None:
    x = np.ones(1 << 16, np.float32)
    for kept, variant in (((7, 2, 1, 0), "few_sums"), (range(9), "few_sums"),
                          (range(10), "v3"), ((3, 4, 5), "v3")):  # fmt: skip
        row = gpuopt.explain("partition_reduce", x, tuple(kept), backend="sim")[0]
        assert row["variant"] == variant, kept
    for kept in (range(10), (3, 4, 5)):
        with pytest.raises(gpuopt.VariantError, match="few_sums"):
            partition_reduce(x, tuple(kept), backend="sim", variant="few_sums")


@needs_sim
@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64", "c8", "c16"])
def test_few_sums_of_one_to_many_elements(dtype: str) -> None:
    """Sums of 1 to 4096 elements, kept bits in any order; x off 16 bytes or with gaps."""
    rng = np.random.default_rng(9)
    for n, kept in ((0, ()), (4, (1, 3, 0, 2)), (8, ()), (9, (8,)), (10, (2, 3)), (12, (11,)),
                    (12, ()), (13, (5, 0)), (14, (13, 1, 7, 4, 0, 2))):  # fmt: skip
        memory = rng.integers(0, 3, 2 << n).astype(dtype_of(dtype))
        for x in (memory[: 1 << n], memory[1 : 1 + (1 << n)], memory[::-2][: 1 << n]):
            for square in (False, True):
                options = {"bits": kept, "square": square}
                wanted = ref.partition_reduce(x.astype("f4") if dtype == "float16" else x,
                                              **options)  # fmt: skip
                got = partition_reduce(x, **options, backend="sim", variant="few_sums")
                np.testing.assert_array_equal(got, wanted.astype(got.dtype))


@needs_sim
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_short_loops_of_few_tiles_and_of_many(dtype: str) -> None:
    """One tile for a warp with all its loads, or several tiles; outputs in any order."""
    rng = np.random.default_rng(7)
    for order in (8, 12, 15, 18):
        x = rng.integers(0, 2, (1 << order) + 1).astype(dtype_of(dtype))
        for summed in ((), (order - 1,), (1, order - 3, order - 1), (2, 3, 4, 5)):
            kept = [b for b in range(order) if b not in summed]
            for bits in (kept, kept[::-1], [int(b) for b in rng.permutation(kept)]):
                for start in (0, 1):
                    part = x[start : start + (1 << order)]
                    got = partition_reduce(part, bits, backend="sim", variant="short_loops")
                    np.testing.assert_array_equal(got, ref.partition_reduce(part, bits))


@needs_sim
@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64", "c8", "c16"])
def test_any_order_of_few_tiles_and_of_many(dtype: str) -> None:
    """One tile for a warp with all its loads, or several; sums in any order of the result."""
    rng = np.random.default_rng(17)
    for order in (13, 15, 18):
        x = rng.integers(0, 2, 1 << order).astype(dtype_of(dtype))
        for summed in ((), (order - 1,), (1, order - 3, order - 1), (0, 2, 3, 4), (0, 1, 5)):
            kept = [b for b in range(order) if b not in summed]
            for bits in (kept, kept[::-1], [int(b) for b in rng.permutation(kept)]):
                for square in (False, True):
                    options = {"bits": bits, "square": square}
                    wanted = ref.partition_reduce(x, **options)
                    got = partition_reduce(x, **options, backend="sim", variant="any_order")
                    np.testing.assert_array_equal(got, wanted)


@needs_sim
def test_any_order_writes_whole_sectors() -> None:
    """Sums whose order is that of high bits: runs of at least eight, 32 bytes of float32."""
    x = np.ones(1 << 18, np.float32)
    bits = (*range(17, 6, -1), *range(1, 7))
    (counts,) = profile("partition_reduce", x, bits, variant="any_order")
    assert counts.global_sectors == ((1 << 18) + (1 << 17)) // 8
    (others,) = profile("partition_reduce", x, bits, variant="short_loops")
    assert others.global_sectors >= counts.global_sectors


@needs_sim
def test_any_order_takes_packs_of_many_tiles() -> None:
    for x, kept in (
        (np.ones((1 << 14) + 1, np.float32)[1:], range(1, 14)),  # off 16 bytes
        (np.ones(1 << 14, np.float32), range(7, 9)),  # no short loops
        (np.ones(1 << 9, np.float32), range(1, 9)),  # four tiles
    ):
        with pytest.raises(gpuopt.VariantError, match="any_order"):
            partition_reduce(x, tuple(kept), backend="sim", variant="any_order")


@needs_sim
@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64", "c8", "c16"])
def test_few_bits_with_packs_and_without(dtype: str) -> None:
    """Bits within a pack, a sector and above, up to four; x and out off 16 bytes, too."""
    rng = np.random.default_rng(8)
    for n, summed in ((1, (0,)), (9, (8,)), (11, (0, 3, 4, 9)), (13, (4, 5, 12)), (15, (6,))):
        memory = rng.integers(0, 3, 3 << n).astype(dtype_of(dtype))
        bits = tuple(b for b in range(n) if b not in summed)
        for x in (memory[: 1 << n], memory[1 : 1 + (1 << n)], memory[::-2][: 1 << n]):
            for square in (False, True):
                options = {"bits": bits, "square": square}
                wanted = ref.partition_reduce(x, **options)
                out = np.empty(wanted.size + 1, wanted.dtype)[1:]
                where = {"backend": "sim", "variant": "few_bits"}
                np.testing.assert_array_equal(partition_reduce(x, **options, **where), wanted)
                partition_reduce(x, **options, out=out, **where)
                np.testing.assert_array_equal(out, wanted)


@needs_sim
def test_few_bits_takes_ascending_sums_of_few_elements() -> None:
    x = np.ones(1 << 12, np.float32)
    for summed, variant in (((3,), "few_bits"), ((1, 4, 8, 11), "few_bits")):
        kept = [b for b in range(12) if b not in summed]
        row = gpuopt.explain("partition_reduce", x, kept, backend="sim")[0]
        assert row["variant"] == variant
    for kept in ([*range(12)], [*range(7)], [1, 0, *range(2, 10)]):
        row = gpuopt.explain("partition_reduce", x, kept, backend="sim")[0]
        assert row["variant"] != "few_bits"
        with pytest.raises(gpuopt.VariantError, match="few_bits"):
            partition_reduce(x, kept, backend="sim", variant="few_bits")


@needs_sim
def test_any_order_is_chosen_for_large_sums_of_eight_bytes() -> None:
    """Sums in ascending order are few_bits' of any size."""
    bits = (*range(20, 10, -1), *range(1, 11))
    for dtype, kept, variant in (
        ("float64", bits, "any_order"),
        ("float32", bits, "short_loops"),
        ("float64", range(1, 21), "few_bits"),
        ("float32", range(4, 21), "few_bits"),
    ):
        x = np.zeros(1 << 21, dtype)
        row = gpuopt.explain("partition_reduce", x, tuple(kept), backend="sim")[0]
        assert row["variant"] == variant, (dtype, kept)


@needs_sim
def test_index_beyond_32_bits_in_few_bits(last_blocks: Any) -> None:
    x = np.broadcast_to(np.float32(1), (1 << 33,))
    last_blocks((1 << 29) // 256 - 2)
    kept = tuple(b for b in range(33) if b not in (0, 14, 20, 31))
    got = partition_reduce(x, kept, backend="sim", variant="few_bits")
    assert (got[-512:] == 16).all()


@needs_sim
def test_the_right_call_after_an_error() -> None:
    x = np.ones(64, np.float32)
    with pytest.raises(ValueError, match="out of range"):
        partition_reduce(x, 6, backend="sim")
    with pytest.raises(gpuopt.VariantError):
        partition_reduce(x, 5, backend="sim", variant="v4")
    assert partition_reduce(x, 5, backend="sim").tolist() == [32, 32]
