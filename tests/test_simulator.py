"""The simulator: its intrinsics against their definitions, its schedules, checks and counts.

Fixture kernels (tests/fixtures/*.cu) are compiled once per run, with the flags of the
build; without a C++ compiler these tests fail and are not skipped.
"""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import gpuopt
from gpuopt import _core
from gpuopt.lab.profile import profile

sys.path.insert(0, str(Path(__file__).parent))
from simulator_library import ECUDA, EDEVMEMORY, ESIM, OK, Library, compiled, shared_folder

FIXTURES = Path(__file__).parent / "fixtures"
ORDERS = [
    {"schedule": "ascending"},
    {"schedule": "descending"},
    *({"schedule": "shuffle", "seed": seed} for seed in range(1, 4)),
    *({"schedule": "preempt", "seed": seed} for seed in range(1, 4)),
]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Library]:
    return compiled(shared_folder(tmp_path_factory, "simulator"), ["faults", "ladder", "words"])


@pytest.fixture(scope="session")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """The ladder with ucontext, used on machines without an assembly switch."""
    return compiled(
        shared_folder(tmp_path_factory, "portable"),
        ["ladder"],
        ["profile"],
        ["-DGPO_SIM_UCONTEXT"],
    )["ladder", "profile"]


@pytest.fixture
def configure() -> Iterator[Callable[..., dict]]:
    """gpuopt's own simulator, its settings restored afterwards."""
    old = _core._sim_configure()
    yield _core._sim_configure
    _core._sim_configure(**old)


RUNGS = [
    row["name"]
    for row in _core.variants("reduce")
    if row["backend"] == "sim" and not row["shape"]
]


def whole_numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(-9, 9, n).astype(np.float32)


@pytest.fixture(params=["plain", "profile"])
def words(request: pytest.FixtureRequest, libraries: dict) -> Library:
    return libraries["words", request.param]


@pytest.fixture
def checked(libraries: dict) -> Library:
    return libraries["faults", "profile"]


# ---- intrinsics ----

LANES = np.arange(32)
VALUES = np.array(
    [(7919 * i * i + 104729 * i + 3) * (-1) ** (i % 3) for i in range(32)], np.int32
)


def gather(source: Callable[[np.ndarray], np.ndarray], width: int) -> np.ndarray:
    """VALUES[source] if the source lane is in the lane's group, else the lane's value."""
    base = LANES // width * width
    lanes = source(LANES)
    inside = (lanes >= base) & (lanes < base + width)
    return VALUES[np.where(inside, lanes, LANES)]


def xor_gather(arg: int, width: int) -> np.ndarray:
    """A shuffle by xor may read lower groups, but not higher ones."""
    lanes = LANES ^ arg
    inside = lanes < LANES // width * width + width
    return VALUES[np.where(inside, lanes, LANES)]


def bits(flags: np.ndarray) -> int:
    return sum(1 << int(i) for i in np.nonzero(flags)[0])


def by_half(function: Callable[[np.ndarray], int]) -> np.ndarray:
    return np.repeat([function(VALUES[:16]), function(VALUES[16:])], 16)


def perm(v: int) -> int:
    both = (0x89ABCDEF << 32 | v & 0xFFFFFFFF).to_bytes(8, "little")
    return int.from_bytes(bytes(both[s] for s in (0, 1, 4, 7)), "little")


U = VALUES.astype(np.int64) & 0xFFFFFFFF
ODD = VALUES & 1
SHUFFLES = {
    "shfl": lambda a: VALUES[np.full(32, a % 32)],
    "shfl_8": lambda a: VALUES[LANES // 8 * 8 + a % 8],
    "shfl_up": lambda a: gather(lambda i: i - a, 32),
    "shfl_up_8": lambda a: gather(lambda i: i - a, 8),
    "shfl_down": lambda a: gather(lambda i: i + a, 32),
    "shfl_down_8": lambda a: gather(lambda i: i + a, 8),
    "shfl_xor": lambda a: xor_gather(a, 32),
    "shfl_xor_8": lambda a: xor_gather(a, 8),
    "shfl_double": lambda a: gather(lambda i: i + a, 32),
    "shfl_f16": lambda a: np.where(
        LANES + a < 32, np.fmod(VALUES, 1000)[np.minimum(LANES + a, 31)], np.fmod(VALUES, 1000)
    ),
}
FUNCTIONS = {
    "ballot": np.full(32, bits(ODD)),
    "ballot_half": np.repeat([bits(ODD) & 0xFFFF, bits(ODD) & 0xFFFF0000], 16),
    "any": by_half(lambda v: int(VALUES[5] in v)),
    "all": by_half(lambda v: int(VALUES[5] not in v)),
    "match_any": np.array([bits(np.fmod(VALUES, 3) == np.fmod(v, 3)) for v in VALUES]),
    "reduce_add": np.full(32, VALUES.sum(dtype=np.int64)),
    "reduce_min": by_half(np.min),
    "reduce_max": by_half(np.max),
    "reduce_umax": np.full(32, U.max()),
    "reduce_and": np.full(32, np.bitwise_and.reduce(VALUES)),
    "reduce_or": np.full(32, np.bitwise_or.reduce(VALUES)),
    "reduce_xor": np.full(32, np.bitwise_xor.reduce(VALUES)),
    "activemask": np.ones(32, int),
    "popc": np.array([int(u).bit_count() for u in U]),
    "ffs": np.array([(int(u) & -int(u)).bit_length() for u in U]),
    "clz": np.array([32 - int(u).bit_length() for u in U]),
    "brev": np.array([int(f"{u:032b}"[::-1], 2) for u in U]),
    "umulhi": np.array([int(u) * 0x9E3779B9 >> 32 for u in U]),
    "byte_perm": np.array([perm(int(u)) for u in U]),
    "sync_or": np.ones(32, int),
    "sync_and": np.zeros(32, int),
    "sync_count": np.full(32, ODD.sum()),
}


def as_int32(x: np.ndarray) -> np.ndarray:
    return (np.asarray(x).astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def run_words(library: Library, name: str, arg: int, **settings: object) -> np.ndarray:
    status, out, message = library.run(
        "word_" + name, VALUES, np.zeros(32, np.int32), arg, **settings
    )
    assert status == OK, message
    return out


@pytest.mark.parametrize("name", SHUFFLES)
def test_shuffle(words: Library, name: str) -> None:
    for arg in (0, 1, 3, 7, 8, 16, 31):
        if name == "shfl_f16" and arg > 31:
            continue
        expected = as_int32(SHUFFLES[name](arg))
        for order in ORDERS[:3]:
            np.testing.assert_array_equal(run_words(words, name, arg, **order), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_warp_or_block(words: Library, name: str) -> None:
    for order in ORDERS:
        out = run_words(words, name, int(VALUES[5]), **order)
        np.testing.assert_array_equal(out, as_int32(FUNCTIONS[name]))


def test_shuffle_of_half_warp(words: Library) -> None:
    np.testing.assert_array_equal(run_words(words, "shfl_half", 5), VALUES[LANES ^ 5])


def test_where_a_thread_is(words: Library) -> None:
    status, out, message = words.run("word_where", None, np.zeros(360, np.int32))
    assert status == OK, message
    z, y, x = np.mgrid[0:2, 0:3, 0:5]
    thread = (x * 100 + y * 10 + z).ravel()
    expected = (np.arange(12)[:, None] * 10000 + thread).ravel()
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_atomics(words: Library, order: dict) -> None:
    x = np.random.default_rng(0).integers(1, 1000, 256, np.int32)
    status, out, message = words.run("word_atomics", x, np.zeros(17, np.int32), **order)
    assert status == OK, message
    assert out[0] == x.sum() and out[1] == -x.sum()
    assert out[2] == 0 and out[3] == x.max()
    assert out[4] == 0 and out[5] == np.bitwise_or.reduce(x)
    assert out[6] == np.bitwise_xor.reduce(x)
    assert out[7] == 256 % 100
    assert out[8] == 44  # from 0 up to 99, then down: 256 steps
    assert out[9:10].view(np.float32)[0] == (x % 16).sum()
    assert out[10:12].view(np.uint64)[0] == x.sum()
    assert out[12:14].view(np.float64)[0] == x.sum()
    assert out[14] == x.max()
    np.testing.assert_array_equal(out[15:16].view(np.float16), [256, 512])
    assert out[16] == 7


# ---- half and bfloat16 ----


def same(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    number = ~np.isnan(a)
    word = np.dtype(f"u{a.itemsize}")
    np.testing.assert_array_equal(a[number].view(word), b[number].view(word))


def test_every_half_and_bfloat16_widens(words: Library) -> None:
    x = np.arange(65536).astype(np.uint16)
    status, out, message = words.run("word_widen", x, np.zeros(2 * x.size, np.float32), x.size)
    assert status == OK, message
    same(out[: x.size], x.view(np.float16).astype(np.float32))
    same(out[x.size :], x.view(ml_dtypes.bfloat16).astype(np.float32))


def floats_to_narrow() -> np.ndarray:
    """Every half and bfloat16, the midpoints beside them, and their neighbours."""
    x = np.arange(65536).astype(np.uint16)
    halves = x.view(np.float16).astype(np.float32)
    brains = x.view(ml_dtypes.bfloat16).astype(np.float32)
    half_middles = (halves.view(np.uint32) + 0x1000).view(np.float32)
    brain_middles = (brains.view(np.uint32) + 0x8000).view(np.float32)
    values = np.concatenate([halves, brains, half_middles, brain_middles])
    words = values.view(np.uint32)
    around = np.concatenate([words - 1, words, words + 1]).view(np.float32)
    random = np.random.default_rng(1).integers(0, 2**32, 50000, np.uint32).view(np.float32)
    tiny = np.linspace(0, 2**-13, 4097, dtype=np.float32)
    return np.concatenate([around, random, tiny, -tiny])


def test_float_narrows_to_half_and_bfloat16(libraries: dict) -> None:
    x = floats_to_narrow()
    status, out, message = libraries["words", "plain"].run(
        "word_narrow", x, np.zeros(3 * x.size, np.uint16), x.size
    )
    assert status == OK, message
    nearest, brain, to_zero = out.reshape(3, -1)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        expected = x.astype(np.float16)
        same(nearest.view(np.float16), expected)
        same(brain.view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
        larger = np.abs(expected.astype(np.float64)) > np.abs(x.astype(np.float64))
        cut = np.where(larger, (expected.view(np.uint16) - 1).view(np.float16), expected)
        same(to_zero.view(np.float16), cut.astype(np.float16))


def test_half_arithmetic_rounds_once(libraries: dict) -> None:
    n = 60000
    words16 = np.random.default_rng(2).integers(0, 65536, 2 * n).astype(np.uint16)
    x = words16.view(np.float16)
    status, out, message = libraries["words", "plain"].run(
        "word_half_math", x, np.zeros(4 * n, np.float16), n
    )
    assert status == OK, message
    a, b = x[:n], x[n:]
    total, product, fused, quotient = out.reshape(4, n)
    with np.errstate(all="ignore"):
        same(total, a + b)
        same(product, a * b)
        same(quotient, a / b)
    for i in np.nonzero(np.isfinite(a) & np.isfinite(b) & np.isfinite(fused))[0][:5000]:
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(a[i]))
        error = abs(exact - Fraction(float(fused[i])))
        for direction in (-np.inf, np.inf):
            other = float(np.nextafter(fused[i], np.float16(direction)))
            assert math.isinf(other) or error <= abs(exact - Fraction(other))


# ---- schedules ----


def ladder_input(n: int = 16384) -> np.ndarray:
    return (np.arange(n) * 7919 % 17 - 8).astype(np.float32)


LADDER = {
    "v0": 256, "v1": 256, "v2": 256, "v3": 512, "v4": 512, "v5": 512, "v8": 256,
}  # fmt: skip


def ladder_sum(library: Library, name: str, **settings: object) -> float:
    x = ladder_input()
    blocks = 64 if name == "v8" else x.size // LADDER.get(name, 512 if "4" in name else 256)
    status, out, message = library.run(
        name, x, np.zeros(blocks, np.float32), x.size, **settings
    )
    assert status == OK, message
    return float(out.sum())


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", LADDER)
def test_right_kernels_are_right_in_every_order(
    libraries: dict, name: str, order: dict
) -> None:
    wanted = float(ladder_input().sum())
    assert ladder_sum(libraries["ladder", "plain"], name, **order) == wanted
    assert ladder_sum(libraries["ladder", "profile"], name, checks=True, **order) == wanted


@pytest.mark.parametrize("name", ["v1_bug", "v4_bug"])
def test_published_bugs_give_wrong_sums(libraries: dict, name: str) -> None:
    wanted = float(ladder_input().sum())
    for order in ORDERS[:5]:
        assert ladder_sum(libraries["ladder", "plain"], name, **order) != wanted


def test_lockstep_shows_why_the_volatile_tail_worked(libraries: dict) -> None:
    library = libraries["ladder", "profile"]
    wanted = float(ladder_input().sum())
    assert ladder_sum(library, "v4_bug", schedule="lockstep", checks=True) == wanted


def test_a_shuffle_is_repeated_by_its_seed(libraries: dict) -> None:
    library = libraries["ladder", "plain"]
    sums = [ladder_sum(library, "v1_bug", schedule="shuffle", seed=s) for s in (5, 5, 6)]
    assert sums[0] == sums[1] != sums[2]


@pytest.mark.parametrize("build", ["plain", "profile"])
@pytest.mark.parametrize("schedule", ["ascending", "shuffle", "preempt"])
def test_blocks_that_wait_for_each_other(libraries: dict, build: str, schedule: str) -> None:
    wanted = [1]
    while len(wanted) < 8:
        wanted.append(wanted[-1] * 3 % 1009)
    status, out, message = libraries["words", build].run(
        "word_chain", None, np.zeros(8, np.int32), 8,
        schedule=schedule, resident=8, checks=build == "profile",
    )  # fmt: skip
    assert status == OK, message
    assert out.tolist() == wanted


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("name", ["word_last_block", "word_last_block_all"])
def test_a_finish_by_the_last_block_is_no_race(words: Library, name: str, order: dict) -> None:
    x = np.arange(64 * 20, dtype=np.int32)
    status, out, message = words.run(
        name, x, np.zeros(64 if name.endswith("all") else 1, np.int32), x.size,
        checks=words.entry.instrumented, **order,
    )  # fmt: skip
    assert status == OK, message
    assert out.sum() == x.sum()


@pytest.mark.parametrize("checks", [False, True])
def test_threads_may_call_at_once(checks: bool, configure: Callable[..., dict]) -> None:
    configure(checks=checks)
    x = whole_numbers(5000)
    wanted = float(x.sum())
    wrong: list[object] = []

    def work() -> None:
        for rung in RUNGS * 2:
            try:
                total = gpuopt.reduce(x, variant=rung, backend="sim")
            except gpuopt.SimulatorError as error:
                wrong.append(error)
            else:
                if total != wanted:
                    wrong.append((rung, total))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["v0", "v5", "v8"])
def test_portable_switch(portable: Library, name: str) -> None:
    for order in ORDERS[:4]:
        assert ladder_sum(portable, name, **order) == float(ladder_input().sum())
    status, _, message = portable.run(
        "v1_bug", ladder_input(), np.zeros(64, np.float32), 16384, checks=True
    )
    assert status == ESIM and "race" in message
    assert ladder_sum(portable, "v1", checks=True) == float(ladder_input().sum())


# ---- checks ----

EVERYWHERE = {
    "divergent_barrier": r"barrier divergence: .* waits at line \d+",
    "missing_lanes": r"deadlock: the lanes 0xffff0000 of mask 0xffffffff never come",
    "not_in_mask": r"lane 16 is not in its own mask 0x0000ffff",
    "absent_source": r"shuffle reads lane 20, which takes no part",
    "waits_for_ever": r"livelock",
    "much_static_shared": r"invalid launch: 49156 bytes of static shared memory",
    "leaves_a_ticket": r"left ticket 0 at 32, not 0",
}
GUARDED = {
    "neighbour_trick": (r"wrote 0 bytes after the end of a device allocation of 2 bytes",
                        r"out-of-bounds write of 4 bytes, 0 bytes after the end"),
    "no_bounds": (r"wrote 0 bytes after the end of a device allocation of 1200 bytes",
                  r"out-of-bounds write of 4 bytes, 0 bytes after the end"),
    "shared_overrun": (r"wrote 0 bytes after a shared array of 1024 bytes",
                       r"out-of-bounds write of 4 bytes at byte 1024 of a shared array"),
}  # fmt: skip
INSTRUMENTED = {
    "reads_behind": r"out-of-bounds read of 4 bytes, 0 bytes after the end of a device",
    "shared_reads_behind": r"out-of-bounds read of 4 bytes at byte 1024 of a shared array",
    "misaligned": r"misaligned read of 16 bytes: the address is 4 modulo 16",
    "reads_unwritten": r"read of 4 bytes of device memory that nothing has written",
    "shared_unwritten": r"read of shared memory that this block has not written",
    "shared_race": r"race in shared memory: reads what thread|race in shared memory: writes",
    "block_race": r"race in global memory: writes what block \d+ wrote",
    "no_fence": r"race in global memory: reads what block \d+ wrote",
    "half_synchronised": r"race in shared memory",
    "byte_of_a_word": r"race in shared memory",
    "byte_that_all_read": r"race in shared memory",
}
LINES = {}
_section: list[str] = []
for _number, _text in enumerate((FIXTURES / "faults.cu").read_text().splitlines(), 1):
    if _match := re.match(r"(\w+)\(.*\)?,?$", _text):
        _section = [_match[1], str(_number)]
    if _text == "}" and _section:
        LINES[_section[0]] = (int(_section[1]), _number)


def provoke(library: Library, name: str, **settings: object) -> str:
    n = {"no_bounds": 300, "neighbour_trick": 1000}.get(name, 0)
    bytes_out = {"no_bounds": 1200, "neighbour_trick": 2}.get(name, 1024)
    x = np.zeros(256, np.int32)
    status, _, message = library.run(
        "fault_" + name, x, np.zeros(bytes_out, np.uint8), n, **settings
    )
    assert status == ESIM, (status, message)
    assert library.state().allocations == 0
    return message


def names_its_place(name: str, message: str) -> None:
    match = re.match(rf"{name}, block \(\d+, 0, 0\), thread \(\d+, 0, 0\), ([\w.]+):(\d+): ",
                     message)  # fmt: skip
    assert match, message
    assert match[1] == "faults.cu"
    first, last = LINES[name]
    assert first <= int(match[2]) <= last


@pytest.mark.parametrize("build", ["plain", "profile"])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_fault_found_by_both_builds(libraries: dict, build: str, name: str) -> None:
    library = libraries["faults", build]
    for schedule in ("ascending", "descending"):
        message = provoke(library, name, schedule=schedule, checks=build == "profile")
        if schedule == "ascending":
            assert re.search(EVERYWHERE[name], message), message
    if name not in ("leaves_a_ticket",):
        names_its_place(name, message)


@pytest.mark.parametrize("name", GUARDED)
def test_fault_found_in_a_guard_zone(libraries: dict, name: str) -> None:
    by_guard, by_access = GUARDED[name]
    message = provoke(libraries["faults", "plain"], name)
    assert re.search(by_guard, message), message
    message = provoke(libraries["faults", "profile"], name, checks=True)
    assert re.search(by_access, message), message
    names_its_place(name, message)


@pytest.mark.parametrize("name", INSTRUMENTED)
def test_fault_found_by_instrumentation(checked: Library, name: str) -> None:
    for order in ORDERS[:4]:
        message = provoke(checked, name, checks=True, **order)
        assert re.search(INSTRUMENTED[name], message), message
        names_its_place(name, message)


def test_output_that_nobody_wrote(checked: Library) -> None:
    message = provoke(checked, "leaves_output", checks=True)
    assert "byte 400 of a result of 1024 bytes was never written" in message


@pytest.mark.parametrize("build", ["plain", "profile"])
def test_invalid_launches_are_refused(libraries: dict, build: str) -> None:
    library = libraries["faults", build]
    for which in range(6):
        status, _, message = library.run(
            "fault_configuration", None, np.zeros(4, np.int32), which
        )
        assert status == ESIM and "nothing: invalid launch: " in message


def test_memset_of_the_pointer_itself(libraries: dict) -> None:
    status, _, _ = libraries["faults", "plain"].run(
        "memset_of_pointer", None, np.zeros(4, np.int32)
    )
    assert status == ECUDA


@pytest.mark.parametrize("name", ["v1_bug", "v4_bug"])
def test_published_races_are_found(libraries: dict, name: str) -> None:
    x = ladder_input()
    status, _, message = libraries["ladder", "profile"].run(
        name, x, np.zeros(64, np.float32), x.size, checks=True
    )
    assert status == ESIM and "race in shared memory" in message


@pytest.mark.parametrize("name", ["v0", "v2", "v3", "v5"])
def test_a_length_that_does_not_divide_leaves_a_tail(libraries: dict, name: str) -> None:
    """Grids of n / block, as published: the last elements are missing from the sum."""
    x = np.ones(16384 + 100, np.float32)
    out = np.zeros(x.size // LADDER[name], np.float32)
    status, out, _ = libraries["ladder", "plain"].run(name, x, out, x.size)
    assert status == OK and out.sum() == 16384 < x.sum()


def test_the_right_call_after_a_fault(libraries: dict) -> None:
    library = libraries["ladder", "profile"]
    with pytest.raises(AssertionError):
        ladder_sum(library, "v1_bug", checks=True)
    assert ladder_sum(library, "v1", checks=True) == float(ladder_input().sum())


# ---- large sizes ----

LARGE = [2**31 - 1, 2**31, 2**31 + 300, 2**32 + 300]


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@pytest.mark.parametrize("checks", [False, True])
def test_a_launch_leaves_nothing_behind(checks: bool, configure: Callable[..., dict]) -> None:
    """Each launch kept a copy of its kernel's name, and with checks counts: 7 KB and more."""
    configure(checks=checks)
    x = whole_numbers(20)
    for turn in range(1500):
        if turn == 500:
            before = resident()
        gpuopt.cast(x, "f4", backend="sim", variant="v0")
    assert resident() - before < 2e6


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("build", ["plain", "profile"])
def test_index_beyond_32_bits(libraries: dict, build: str, n: int) -> None:
    status, out, message = libraries["faults", build].run(
        "large_64", None, np.zeros(2, np.int32), n,
        first_block=(n + 255) // 256 - 2, checks=build == "profile",
    )  # fmt: skip
    assert status == OK, message
    assert out.tolist() == [1, 0]  # the last element, and a block that was skipped


def test_32_bit_index_is_caught(checked: Library) -> None:
    n = 2**31 + 300
    status, _, message = checked.run(
        "large_32", None, np.zeros(2, np.int32), n,
        first_block=(n + 255) // 256 - 2, checks=True,
    )  # fmt: skip
    assert status == ESIM and "out-of-bounds" in message


def test_a_size_that_takes_minutes_is_refused(libraries: dict) -> None:
    status, _, message = libraries["faults", "plain"].run(
        "large_64", None, np.zeros(2, np.int32), 2**32
    )
    assert status == ESIM and "would take minutes" in message and "first_block=" in message


# ---- injected failures ----


@pytest.mark.parametrize("build", ["plain", "profile"])
def test_every_step_fails_in_turn(libraries: dict, build: str) -> None:
    library = libraries["faults", build]
    x = np.arange(32, dtype=np.int32)
    seen = []
    for step in range(100):
        status, out, message = library.run(
            "many_steps", x, np.zeros(32, np.int32), 0, fail_after=step
        )
        assert library.state().allocations == 0, f"leak at step {step}"
        if status == OK:
            break
        seen.append(status)
        assert message
    # two arrays, upload, two workspaces, tickets, launch, download
    assert seen == [EDEVMEMORY, EDEVMEMORY, ECUDA, *[EDEVMEMORY] * 3, ECUDA, ECUDA]
    np.testing.assert_array_equal(out, x)


# ---- counts ----

GOLDEN = {
    # shared requests, wavefronts; global requests, sectors; races
    "v0": (9600, 9600, 576, 2112, 0),
    "v1_bug": (2880, 2880, 576, 2112, 14400),
    "v1": (2880, 9600, 576, 2112, 0),
    "v2": (2880, 2880, 576, 2112, 0),
    "v3": (1440, 1440, 544, 2080, 0),
    "v4_bug": (1440, 1440, 544, 2080, 992),
    "v4": (1280, 1280, 544, 2080, 0),
    "v5": (1280, 1280, 544, 2080, 0),
    "v8": (576, 576, 192, 2112, 0),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_counts(libraries: dict, name: str) -> None:
    library = libraries["ladder", "profile"]
    seen = []
    for order in ({}, {}, {"schedule": "descending"}, {"schedule": "shuffle"}):
        library.entry.reset()
        ladder_sum(library, name, profile=True, **order)
        seen.append(library.totals())
    got = seen[0]
    assert (
        got["shared_requests"], got["shared_wavefronts"], got["global_requests"],
        got["global_sectors"], got["races"],
    ) == GOLDEN[name]  # fmt: skip
    assert seen[0] == seen[1]
    if GOLDEN[name][4] == 0:
        assert all(other == got for other in seen)


def test_counts_name_their_source_line(libraries: dict) -> None:
    library = libraries["ladder", "profile"]
    library.entry.reset()
    ladder_sum(library, "v1", profile=True)
    source = (FIXTURES / "ladder.cu").read_text().splitlines()
    wide = [r for r in library.report() if r["shared_wavefronts"] > r["shared_ideal"]]
    assert wide and all(r["kernel"] == b"v1_strided" for r in wide)
    assert {source[r["line"] - 1].strip() for r in wide} == {"s[i] += s[i + d];"}


def test_divergence_tells_v0_from_v1(libraries: dict) -> None:
    library = libraries["ladder", "profile"]
    share = {}
    for name in ("v0", "v1"):
        library.entry.reset()
        ladder_sum(library, name, profile=True)
        totals = library.totals()
        share[name] = totals["code_divergent"] / totals["code_blocks"]
    assert share["v0"] > 3 * share["v1"]


# ---- through gpuopt ----


def test_settings_that_do_not_exist_are_refused(configure: Callable[..., dict]) -> None:
    with pytest.raises(ValueError, match=r"schedule must be one of 'ascending'.*not 'rand'"):
        configure(schedule="rand")
    for bad in ({"seed": -1}, {"first_block": -1}, {"fail_after": -2}, {"resident": 9}):
        with pytest.raises(ValueError):
            configure(**bad)
    with pytest.raises(TypeError):
        configure(speed=1)
    assert configure() == configure()


def test_checks_select_the_instrumented_library(configure: Callable[..., dict]) -> None:
    configure(checks=False, profile=False, schedule="ascending")
    assert not _core._sim_state()["instrumented"]
    for settings in ({"checks": True}, {"checks": False, "schedule": "lockstep"}):
        configure(**settings)
        assert _core._sim_state()["instrumented"]


@pytest.mark.parametrize("rung", RUNGS)
def test_rung_gives_the_same_bits_in_ten_schedules(
    rung: str, configure: Callable[..., dict]
) -> None:
    x = np.random.default_rng(3).standard_normal(5001).astype(np.float32)
    orders = [{"schedule": "ascending"}, {"schedule": "descending"}]
    orders += [{"schedule": "shuffle", "seed": s} for s in range(4)]
    orders += [{"schedule": "preempt", "seed": s} for s in range(4)]
    bits = set()
    for order in orders:
        configure(**order)
        bits.add(gpuopt.reduce(x, variant=rung, backend="sim").tobytes())
    assert len(bits) == 1


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
def test_rung_passes_every_check(
    rung: str, schedule: str, configure: Callable[..., dict]
) -> None:
    configure(checks=True, schedule=schedule)
    for n in (0, 1, 33, 1025, 4097):
        x = whole_numbers(n)
        assert gpuopt.reduce(x, variant=rung, backend="sim") == x.sum()
        if n:
            assert gpuopt.reduce(x, "argmax", variant=rung, backend="sim") == x.argmax()
    x = whole_numbers(40 * 37).reshape(40, 37)
    for axis in (0, 1):
        got = gpuopt.reduce(x, axis=axis, variant=rung, backend="sim")
        np.testing.assert_array_equal(got, x.sum(axis))


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("checks", [False, True])
def test_every_step_of_a_call_fails_in_turn(
    rung: str, checks: bool, configure: Callable[..., dict]
) -> None:
    x = whole_numbers(20000)
    before = None
    for step in range(200):
        configure(checks=checks, fail_after=step)
        before = before or _core._sim_state()["allocations"]
        try:
            got = gpuopt.reduce(x, variant=rung, backend="sim")
        except (gpuopt.OutOfMemoryError, gpuopt.CudaError):
            assert _core._sim_state()["allocations"] == before, f"leak at step {step}"
            configure(fail_after=-1)
            assert gpuopt.reduce(x, variant=rung, backend="sim") == x.sum()
            continue
        break
    assert 3 <= step < 199 and got == x.sum()
    assert _core._sim_state()["allocations"] == before


@pytest.mark.parametrize("n", LARGE)
@pytest.mark.parametrize("rung", ["v0", "v3", "v5"])
def test_rung_beyond_32_bits(rung: str, n: int, configure: Callable[..., dict]) -> None:
    """The last blocks read the last elements; parts that no block wrote are -1."""
    per_block = 256 if rung == "v0" else 512
    first = (n + per_block - 1) // per_block - 2
    x = np.zeros(n, np.int8)
    x[-200:] = 1
    configure(first_block=first)
    assert gpuopt.reduce(x, variant=rung, backend="sim") == 200 - first


def test_a_call_that_would_take_minutes_says_so(configure: Callable[..., dict]) -> None:
    configure(max_threads=10000)
    with pytest.raises(gpuopt.SimulatorError, match=r"would take minutes.*smaller input"):
        gpuopt.reduce(np.ones(20000, np.float32), variant="v0", backend="sim")


PROFILES = {
    # shared requests and wavefronts of the first kernel: f32, 16,384 elements
    "v0": (9600, 9600), "v1": (2880, 9600), "v2": (2880, 2880), "v3": (1440, 1440),
    "v4": (1280, 1280), "v5": (1280, 1280),
}  # fmt: skip


def test_profile_of_the_ladder() -> None:
    x = whole_numbers(16384)
    table = profile("reduce", x)
    assert [k.variant for k in table if k.kernel.startswith("reduce_v")] == RUNGS
    for rung, wanted in PROFILES.items():
        first = table[rung][0]
        assert (first.shared_requests, first.shared_wavefronts) == wanted, rung
    assert all(k.races == 0 for k in table)
    assert table["v0"][0].divergence > table["v1"][0].divergence
    assert table["v1"][0].conflict_ways > 3 > 1.01 > table["v2"][0].conflict_ways
    assert table["v8"][0].global_requests * 3 < table["v7"][0].global_requests
    assert profile("reduce", x).to_json() == table.to_json()


def test_profile_of_one_rung_names_lines() -> None:
    table = profile("reduce", whole_numbers(4096), variant="v1")
    kernel = table["v1"][0]
    worst = max(kernel.lines, key=lambda line: line.shared_wavefronts - line.shared_ideal)
    assert worst.file == "ops/reduce/ladder/v1_strided.cuh"
    assert str(worst.line) in repr(table) and "v1_strided.cuh" in table._repr_html_()
    assert json.loads(table.to_json())["kernels"][0]["variant"] == "v1"
    with pytest.raises(KeyError):
        table["v2"]


def test_profile_leaves_the_settings_alone(configure: Callable[..., dict]) -> None:
    configure(schedule="shuffle", seed=9)
    before = configure()
    with pytest.raises(gpuopt.VariantError):
        profile("reduce", whole_numbers(10), variant="v99")
    with pytest.raises(ValueError, match="no operator 'sort'"):
        profile("sort", whole_numbers(10))
    assert configure() == before


def test_an_unknown_environment_says_so(child: Callable[..., object]) -> None:
    code = """if True:
        import gpuopt
        reason = gpuopt.backends()["sim"]
        assert reason == "GPUOPT_SIM must be 'plain' or 'check', not 'fast'", reason
    """
    child(code, env={"GPUOPT_SIM": "fast"})
    code = """if True:
        import numpy
        import gpuopt
        assert gpuopt.reduce(numpy.ones(9, "f4"), variant="v9", backend="sim") == 9
        assert gpuopt._core._sim_state()["instrumented"]
    """
    child(code, env={"GPUOPT_SIM": "check"})


@pytest.mark.parametrize("room", ["reduce", "causal_conv1d"])
def test_mutants_are_killed(room: str) -> None:
    """`make mutants` writes this file; CI reruns the first 8 of each room."""
    result = json.loads((Path(__file__).parent / "mutants.json").read_text())[room]
    assert result["mutants"] >= 90 and result["killed"] >= 0.9 * result["mutants"]
