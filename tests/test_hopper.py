"""What only sm_90a has, in the simulator: mbarriers, bulk copies, tensor maps and wgmma.

Order: right kernels against NumPy, then faults, each planted in a kernel of
tests/fixtures at the line with the comment `fault`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from simulator_library import ESIM, OK, Library, compiled, shared_folder

FIXTURES = Path(__file__).parent / "fixtures"
FILES = ("bulk", "wgmma", "cluster", "tensor_maps")
ORDERS = [
    {"schedule": "ascending"},
    {"schedule": "descending"},
    {"schedule": "shuffle", "seed": 2},
    {"schedule": "preempt", "seed": 3},
    {"schedule": "preempt", "seed": 4},
]
LOCKSTEP = {"schedule": "lockstep"}

Of = Callable[[str], Library]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Library]:
    return compiled(shared_folder(tmp_path_factory, "hopper"), FILES)


@pytest.fixture(params=["plain", "profile"])
def of(request: pytest.FixtureRequest, libraries: dict) -> Callable[[str], Library]:
    """The library of a fixture file, in both builds."""
    return lambda file: libraries[file, request.param]


# ---- right kernels ----


def in_every_order(
    library: Library, name: str, x: np.ndarray, shape: tuple, n: int = 0
) -> np.ndarray:
    """The result, the same in every order, with checks where the library has them."""
    instrumented = library.entry.instrumented
    results = []
    for order in [*ORDERS, *([LOCKSTEP] if instrumented else [])]:
        status, out, message = library.run(
            name, x, np.zeros(shape, np.float32), n, checks=instrumented, **order
        )
        assert status == OK, message
        results.append(out)
    assert all(np.array_equal(r, results[0]) for r in results)
    return results[0]


def whole(dtype: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-8, 9, shape).astype(dtype)


@pytest.mark.parametrize("half", ["f16", "bf16"])
@pytest.mark.parametrize("n", [32, 48, 64])
def test_products_with_a_in_registers(of: Of, n: int, half: str) -> None:
    """Sums of whole numbers are exact."""
    x = whole(np.float16 if half == "f16" else ml_dtypes.bfloat16, 64 + n, 64)
    got = in_every_order(of("wgmma"), f"rs_{n}_{half}", x, (64, n))
    a, b = x[:64].astype(np.float32), x[64:].astype(np.float32)
    np.testing.assert_array_equal(got, a @ b.T)


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_products_in_shared_memory(of: Of, half: str) -> None:
    x = whole(np.float16 if half == "f16" else ml_dtypes.bfloat16, 128, 64)
    got = in_every_order(of("wgmma"), f"ss_64_{half}", x, (64, 64))
    a, b = x[:64].astype(np.float32), x[64:].astype(np.float32)
    np.testing.assert_array_equal(got, a.T @ b)


def test_products_of_floats(of: Of) -> None:
    """Of each float the first 11 bits count."""
    x = whole(np.float32, 64 + 128, 32)
    ignored = x * np.float32(1 + 2**-11)
    for values in (x, ignored):
        got = in_every_order(of("wgmma"), "rs_128_floats", values, (64, 128))
        np.testing.assert_array_equal(got, x[:64] @ x[64:].T)


def test_sums_are_cut_toward_zero(of: Of) -> None:
    """The tensor cores cut: 1 + 2^-24 + 2^-24 + ... stays below the nearest float."""
    x = np.zeros((128, 64), np.float16)
    x[:64, 0] = x[64:, 0] = 1  # a b^T: 1, then 3 / 4 of the last bit of 1
    x[:64, 1], x[64:, 1] = 2**-12, 0.75 * 2**-11
    got = in_every_order(of("wgmma"), "rs_64_f16", x, (64, 64))
    np.testing.assert_array_equal(got, np.float32(1))
    x[:64, 0] = -1
    x[:64, 1] = -(2**-12)
    got = in_every_order(of("wgmma"), "rs_64_f16", x, (64, 64))
    np.testing.assert_array_equal(got, np.float32(-1))


def test_bulk_copies(of: Of) -> None:
    x = whole(np.float32, 3 * 512)
    got = in_every_order(of("bulk"), "bulk_rounds_run", x, x.shape)
    np.testing.assert_array_equal(got, x + 1)


def test_copies_of_16_bytes(of: Of) -> None:
    x = whole(np.float32, 128, 4)
    got = in_every_order(of("bulk"), "copies_of_16_run", x, x.shape)
    x[96:] = 0
    np.testing.assert_array_equal(got, x[::-1])


def test_a_pipeline_of_two_buffers(of: Of) -> None:
    """mbarriers of one and of three arrivals, named barriers, warps with different work."""
    x = whole(np.float32, 5, 96)
    got = in_every_order(of("cluster"), "pipeline_run", x, x.shape)
    np.testing.assert_array_equal(got, np.roll(x, 1, 1) + 1)


def test_an_mbarrier_of_96_arrivals_that_is_polled(of: Of) -> None:
    x = whole(np.float32, 128)
    got = in_every_order(of("cluster"), "polls_run", x, x.shape)
    np.testing.assert_array_equal(got, np.concatenate([x[:96][::-1], x[64:96]]))


@pytest.mark.parametrize("rows", [1, 7])
def test_sums_of_bulk_copies(of: Of, rows: int) -> None:
    x = whole(np.float32, rows, 512)
    got = in_every_order(of("cluster"), "adds_run", x, (512,), rows)
    np.testing.assert_array_equal(got, x.sum(0))


# Of the fixtures in tensor_maps.cu, slowest dimension first: sizes of the array and of the
# box, elements between rows (0: none are left out), where the box is loaded and stored.
BOXES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple]] = {
    "box_of_1": ((40,), (16,), 0, (-4,), (36,)),
    "box_of_2": ((7, 12), (5, 8), 4, (-2, 4), (4, 8)),
    "box_of_2_halves": ((6, 24), (4, 16), 0, (1, 16), (4, 16)),
    "box_of_3": ((4, 5, 8), (2, 3, 8), 0, (-1, 3, 4), (3, 3, 4)),
    "box_of_4": ((3, 5, 3, 4), (2, 3, 2, 4), 0, (2, -1, 2, 0), (2, 3, 2, 0)),
    "box_of_5": ((4, 3, 2, 3, 4), (3, 2, 2, 2, 4), 0, (2, 2, 1, -1, 0), (2, 0, 1, 2, 0)),
    "box_swizzled_halves": ((20, 3, 72), (16, 1, 64), 0, (7, 1, 16), (0, 2, 8)),
}


@pytest.mark.parametrize("name", BOXES)
def test_boxes_of_tensor_maps(of: Of, name: str) -> None:
    """A box is filled with zeros out of bounds, and stored only within them."""
    sizes, box, gap, load, store = BOXES[name]
    x = whole(np.float16 if name.endswith("halves") else np.float32, *sizes)
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, gap)], constant_values=-1)
    padded = np.pad(x, [(b, b) for b in box])
    at = [slice(b + i, b + i + b) for b, i in zip(box, load, strict=True)]
    loaded = padded[tuple(at)]
    stored = np.pad(np.zeros_like(x), [(b, b) for b in box])
    at = [slice(b + i, b + i + b) for b, i in zip(box, store, strict=True)]
    stored[tuple(at)] = loaded + 1
    inner = stored[tuple(slice(b, b + n) for b, n in zip(box, sizes, strict=True))]
    inner = np.pad(inner, [(0, 0)] * (x.ndim - 1) + [(0, gap)])
    if "swizzled" in name:
        packs, row = loaded.reshape(-1, 8, 8), np.arange(len(loaded))[:, None] % 8
        loaded = np.take_along_axis(packs, (np.arange(8) ^ row)[..., None], 1)
    want = np.concatenate([loaded.ravel(), inner.ravel()])
    library = of("tensor_maps")
    for order in ORDERS:
        status, got, message = library.run(
            name, wide, np.zeros_like(want), checks=library.entry.instrumented, **order
        )
        assert status == OK, message
        np.testing.assert_array_equal(got, want)


def test_a_store_at_the_end_of_short_rows(of: Of) -> None:
    x, out = np.zeros((4, 16), np.float32), np.zeros(32 + 64, np.float32)
    status, _, message = of("tensor_maps").run("box_beyond_short_rows", x, out)
    assert status == ESIM and "the rows of 60 bytes are not a multiple of 16" in message


@pytest.mark.parametrize("blocks", [4, 12])
def test_blocks_of_a_cluster_exchange_words(of: Of, blocks: int) -> None:
    x = whole(np.float32, blocks, 128)
    got = in_every_order(of("cluster"), "exchanges_run", x, x.shape, blocks)
    own = x.reshape(-1, 4, 128)
    # block r writes the words of block r + 1 there, and so finds its own beside them
    np.testing.assert_array_equal(got, (own + own).reshape(x.shape))


def test_a_grid_is_a_number_of_clusters(of: Of) -> None:
    x = whole(np.float32, 6, 128)
    status, _, message = of("cluster").run("clusters_with_a_rest", x, np.zeros_like(x))
    assert status == ESIM and "invalid launch: clusters of 4 blocks in a grid of 6" in message


# Requests to global memory, sectors that they touch, and the fewest possible.
COUNTS = {
    # 3 rounds of two copies of 1 KB in and one of 2 KB out
    "bulk_rounds_run": ((3, 512), np.float32, (3 * 3, 3 * 128, 3 * 128)),
    # 16 bytes of each lane of 3 warps; each of 4 stores has every 4th word of a warp's 512
    # bytes, in 4 warps
    "copies_of_16_run": ((128, 4), np.float32, (3 + 16, 3 * 16 + 16 * 16, 3 * 16 + 16 * 4)),
}


@pytest.mark.parametrize("name", COUNTS)
def test_copies_count_as_sectors(libraries: dict, name: str) -> None:
    shape, dtype, counts = COUNTS[name]
    library = libraries["bulk", "profile"]
    library.entry.reset()
    status, _, message = library.run(name, whole(dtype, *shape), np.zeros(shape, dtype),
                                     profile=True)  # fmt: skip
    assert status == OK, message
    totals = library.totals()
    found = tuple(totals["global_" + what] for what in ("requests", "sectors", "ideal"))
    assert found == counts


def test_boxes_count_as_sectors_by_line(libraries: dict) -> None:
    """Of 5 rows of 8 floats 3 rows of 8 are in bounds, then 3 rows of 4, 64 bytes apart."""
    library = libraries["tensor_maps", "profile"]
    library.entry.reset()
    _, _, message = library.run("box_of_2", np.zeros((7, 16), np.float32),
                                np.zeros(40 + 112, np.float32), profile=True)  # fmt: skip
    assert not message
    text = (FIXTURES / "tensor_maps.cu").read_text(encoding="utf-8").splitlines()
    found = {"load": (0, 0), "store": (0, 0)}
    for row in library.report():
        line = text[row["line"] - 1] if row["line"] else ""
        if match := re.search(r"tensor_(load|store)\(", line):
            requests, sectors = found[match[1]]
            requests += row["global_requests"]
            found[match[1]] = (requests, sectors + row["global_sectors"])
    # in: bytes 16 to 47, 80 to 111 and 144 to 175; out, behind a box of 160 bytes: 448 to 463,
    # 512 to 527, 576 to 591
    assert found == {"load": (1, 2 + 2 + 2), "store": (1, 1 + 1 + 1)}


# ---- faults ----

EVERYWHERE = {
    "stale_parity": r"waits a second time for the phase of parity 0 \(number 0",
    "more_bytes_than_expected": r"the 16 bytes of this bulk copy are more than the mbarrier's",
    "fewer_bytes_than_expected": r"deadlock: phase 0 .*: 16 bytes that it expects never come",
    "too_few_arrivals": r"deadlock: phase 0 of the mbarrier .*: 1 of 1 arrivals never come",
    "too_many_arrivals": r"more arrivals than the 1 of the mbarrier's phase, whose bytes",
    "barrier_again": r"initialises the mbarrier of line \d+ again, which is in use",
    "no_barrier_there": r"there is no mbarrier at \d+",
    "unaligned_source": r"unaligned bulk copy: global address 4, shared address 0 and size 0",
    "unaligned_place": r"unaligned bulk copy: global address 0, shared address 8 and size 0",
    "unaligned_size": r"unaligned bulk copy: global address 0, shared address 0 and size 8",
    "source_out_of_bounds": r"out-of-bounds bulk copy of 1024 bytes, 0 bytes after the end of",
    "place_out_of_bounds": r"bulk copy of 32 bytes at \d+: not inside a shared array",
    "ends_in_flight": r"the block ends while this bulk copy into its shared memory is in",
    "ends_in_a_phase": r"the block ends while a phase of this mbarrier lacks 1024 bytes",
    "store_not_awaited": r"the block ends while this bulk store may still read its shared",
    "settled_too_early": r"uses the accumulator of the wgmma at line \d+ before wgmma_wait",
    "not_committed": r"uses the accumulator of the wgmma at line \d+ before wgmma_wait",
    "no_wgmma_fence": r"wgmma without a wgmma_fence before it",
    "operands_differ": r"lane \d+ takes part in another wgmma, or with other operands",
    "operand_not_aligned": r"operand b begins in row 1 of eight",
    "operand_out_of_bounds": r"operand b reads 16 bytes at \d+: not inside a shared array",
    "stopped_in_a_phase": r"ends an mbarrier in the middle of a phase",
    "half_the_arrivals": r"deadlock: phase 0 of the mbarrier .*: 64 of 128 arrivals never come",
    "named_for_others": r"barrier 3 for \d+ threads, but for \d+ at line \d+",
    "named_and_missing": r"deadlock: 32 of the 96 threads of barrier 3 never come",
    "named_zero": r"barrier 0 for 128 threads; barriers 1 to 15 for whole warps are possible",
    "peer_out_of_bounds": r"write of 4 bytes at \d+ of block \d: not a word of a shared array",
    "no_such_rank": r"rank \d of a cluster of 2 blocks",
    "waits_for_a_peers_barrier": r"waits for an mbarrier of another block",
    "a_block_does_not_come": r"deadlock: some threads of the cluster never come to its barrier",
    "a_warp_is_missing": r"warp 3 has started 0 wgmma, warp 0 of its warpgroup 1",
}
EVERYWHERE |= {
    "map_base_unaligned": r"the array begins at 4 modulo 16, which must be 0",
    "map_stride_unaligned": r"a stride of 60 bytes along dimension 1; multiples of 16 belo",
    "map_beyond_the_array": r"out of bounds: an array of 1088 bytes, 0 bytes after the end",
    "map_of_host_memory": r"out of bounds: an array of 1024 bytes, ",
    "map_of_narrow_boxes": r"a box of 24 bytes along dimension 0: not a multiple of 16",
    "map_of_wide_boxes": r"a box of 260 along dimension 0; 1 to 256 are possible",
    "map_of_short_swizzled_rows": r"a swizzled box of 32 bytes along dimension 0: not 128",
    "map_without_rows": r"0 elements along dimension 1; 1 to 2\^32 are possible",
    "map_of_no_dimension": r"0 dimensions; 1 to 5 are possible",
    "box_beyond_the_rows": r"the box at 16 to 19 of dimension 1 lies wholly outside of its 16",
    "box_before_the_columns": r"the box at -8 to -1 of dimension 0 lies wholly outside of",
    "box_of_other_rank": r"bulk copy at 3 coordinates by a tensor map of 2 dimensions",
    "box_begins_unaligned": r"the box begins 8 bytes along dimension 0, not a multiple of 16",
    "box_stored_before_the_columns": r"bulk store: it begins at -4 of dimension 0, below 0",
    "box_stored_before_the_rows": r"bulk store: it begins at -1 of dimension 1, below 0",
    "box_place_unaligned": r"unaligned bulk copy: shared address 64 modulo 128 must be 0",
    "box_place_out_of_bounds": r"bulk store of 128 bytes at \d+: not inside a shared array",
    "box_of_more_bytes": r"deadlock: phase 0 .*: 64 bytes more than it expects have come",
    "box_not_awaited": r"the block ends while this bulk store may still read its shared",
    "map_of_nobody": r"bulk store by a tensor map that nobody has made",
    "map_of_freed_memory": r"bulk copy by a tensor map whose array has been freed",
}
CHECKED = {
    "reads_before_the_phase": r"reads shared memory that an asynchronous copy .* writes, with",
    "only_one_warp_waits": r"reads shared memory that an asynchronous copy .* writes, with",
    "copies_over_what_others_wrote": r"race in shared memory: writes what thread \d+ wrote",
    "barrier_without_fence": r"the mbarrier of line \d+ has been initialised without a fence",
    "barrier_not_ordered": r"race in shared memory: writes what thread 0 wrote|no mbarrier at",
    "barrier_is_read": r"a plain access of the mbarrier of line \d+",
    "reads_copy_of_16": r"reads shared memory that an asynchronous copy .* writes, without",
    "store_without_fence": r"that thread \d+ wrote at .*, without fence.proxy.async in between",
    "store_fenced_too_early": r"that thread \d+ wrote at .*, without fence.proxy.async in betw",
    "store_overwritten": r"writes shared memory that the bulk store of bulk.cu:\d+ still reads",
    "result_read_too_early": r"reads global memory that an asynchronous copy .* writes, with",
    "operand_without_fence": r"that thread \d+ wrote at .*, without fence.proxy.async in betw",
    "sum_before_the_wait": r"uses the accumulator of the wgmma at line \d+ before wgmma_wait",
    "registers_overwritten": r"changes the registers of operand a of the wgmma at line \d+ ",
    "operand_overwritten": r"writes shared memory that the wgmma of wgmma.cu:\d+ still reads",
}
CHECKED |= {
    "box_read_too_early": r"reads shared memory that an asynchronous copy .* writes, with",
    "box_without_fence": r"that thread 0 wrote at .*, without fence.proxy.async in betw",
    "box_overwritten": r"writes shared memory that the bulk store of tensor_maps.cu:\d+ stil",
    "box_result_read_too_early": r"reads global memory that an asynchronous copy .* writes",
    "buffer_not_returned": r"race in shared memory: writes what thread \d+ (wrote|read)",
    "named_does_not_order": r"race in shared memory: reads what thread \d+ wrote|not written",
    "peer_may_have_left": r"shared memory of block 1 of the cluster, which (may have|has) end",
    "peer_is_not_ready": r"race in shared memory: reads what block \d wrote|has written",
}
NO_PLACE = ("a_warp_is_missing",)  # a fault of the whole block


def fault_lines() -> dict[str, tuple[str, int]]:
    """The file of each kernel and its line marked `fault`, 0 if there is none."""
    lines, marked = {}, {}
    for file in FILES:
        name = ""
        text = (FIXTURES / f"{file}.cu").read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if match := re.match(r"FAULTY(?:_[A-Z]+)?\((?!name\))(\w+)[,)]", line):
                name = match[1]
                lines[name] = (file, 0)
            if match := re.search(r"/\* fault(?:: (\w+))? \*/", line):
                marked[match[1] or name] = (file, number)
    return lines | marked


PLACES = fault_lines()


def provoke(library: Library, name: str, **settings: object) -> str:
    x, out = np.zeros(256, np.float32), np.zeros(256, np.float32)
    status, _, message = library.run("fault_" + name, x, out, **settings)
    assert status == ESIM, (status, message)
    assert library.state().allocations == 0
    return message


def is_told(message: str, name: str, pattern: str) -> None:
    assert re.search(pattern, message), message
    if name in NO_PLACE:
        assert message.startswith(f"{name}: block (0, 0, 0): ")
        return
    file, line = PLACES[name]
    if message.startswith("tensor map"):  # made by the host
        assert message.startswith(f"tensor map, {file}.cu:{line}: "), (line, message)
        return
    place = rf"{name}, block \([01], 0, 0\), thread \(\d+, 0, 0\), {file}\.cu:{line}: "
    assert re.match(place, message), (line, message)


def test_every_planted_fault_has_a_test() -> None:
    assert sorted(PLACES) == sorted([*EVERYWHERE, *CHECKED])


@pytest.mark.parametrize("name", EVERYWHERE)
def test_fault_found_by_both_builds(of: Of, name: str) -> None:
    library = of(PLACES[name][0])
    for order in ORDERS:
        message = provoke(library, name, checks=library.entry.instrumented, **order)
        is_told(message, name, EVERYWHERE[name])


@pytest.mark.parametrize("name", CHECKED)
def test_fault_found_by_instrumentation(libraries: dict, name: str) -> None:
    # with `preempt` the thread that lags behind may be another one
    for order in ORDERS[:3] if name == "buffer_not_returned" else ORDERS:
        message = provoke(libraries[PLACES[name][0], "profile"], name, checks=True, **order)
        is_told(message, name, CHECKED[name])


def test_the_right_kernel_after_a_fault(of: Of) -> None:
    """Nothing is left over: mbarriers, copies and products of the launch that failed."""
    x = whole(np.float32, 3 * 512)
    library = of("bulk")
    for name in ("ends_in_flight", "too_few_arrivals", "store_not_awaited"):
        provoke(library, name)
        _, got, message = library.run("bulk_rounds_run", x, np.zeros_like(x))
        assert not message
        np.testing.assert_array_equal(got, x + 1)


@pytest.mark.parametrize("name", ["reads_before_the_phase", "sum_before_the_wait"])
def test_what_has_not_arrived_is_nan(libraries: dict, name: str) -> None:
    """Also where nothing is checked, a missing wait shows in the result."""
    x, out = np.ones(256, np.float32), np.zeros(256, np.float32)
    status, out, message = libraries[PLACES[name][0], "plain"].run("fault_" + name, x, out)
    assert status == OK, message
    assert np.isnan(out[:128]).all()
