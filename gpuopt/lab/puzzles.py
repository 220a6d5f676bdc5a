"""Twelve puzzles, from "add one" to a scan in a single pass.

`puzzles[0]` shows a task and the signature of its kernel; `puzzles[0].check(kernel)` runs an
answer in the simulator, in four orders of the threads, and says that it is right, or what is
wrong with it: a fault with its line, a result that differs, or a cost that is too high.
`solution()` shows an answer.
Order: verdicts, a puzzle, what a kernel may cost, the puzzles.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt.lab.cuda_source import CompileError, functions, mask
from gpuopt.lab.own import Kernel, KernelFault, Program, empty
from gpuopt.lab.profile import Counts

__all__ = ["Case", "Puzzle", "Verdict", "puzzles"]

SCHEDULES = ("ascending", "shuffle", "descending", "preempt")


# ---- verdicts ----


@dataclass(frozen=True)
class Verdict:
    """What a check says; true if the answer is right.

    kind : "right", "wrong result", "cost", "signature", "compile error", or that of a fault
    """

    kind: str
    sentence: str
    fault: KernelFault | CompileError | None = None

    def __bool__(self) -> bool:
        return self.kind == "right"

    def __repr__(self) -> str:
        return self.sentence if self else f"{self.kind}: {self.sentence}"


# ---- a puzzle ----


@dataclass(frozen=True)
class Case:
    """One launch: its arguments, and for some of them the values they must have after it."""

    what: str
    grid: Any
    block: Any
    arguments: tuple[Any, ...]
    expected: dict[int, np.ndarray]
    shared_bytes: int = 0

    def fresh(self) -> list[Any]:
        """The arguments, copied; what was empty is empty again."""
        copies = []
        for a in self.arguments:
            if getattr(a, "fresh", False):
                copies.append(empty(a.shape, a.dtype))
            else:
                copies.append(a.copy() if isinstance(a, np.ndarray) else a)
        return copies


@dataclass(frozen=True)
class Puzzle:
    """A task: `text`, the `signature` of the kernel, `check(kernel)`, `solution()`."""

    title: str
    text: str
    signature: str
    cases: Callable[[], list[Case]] = field(repr=False)
    too_costly: Callable[[Counts], str | None] = field(repr=False, default=lambda counts: None)

    @property
    def name(self) -> str:
        found = re.search(r"(\w+)\(", self.signature)
        assert found
        return found[1]

    def __repr__(self) -> str:
        return f"{self.title}\n\n{textwrap.fill(self.text, 88)}\n\n{self.signature}"

    def check(self, kernel: str | Program | Kernel) -> Verdict:
        """Run an answer, a source or a compiled kernel, and say whether it is right."""
        try:
            answer = self._kernel(kernel)
        except CompileError as error:
            return Verdict("compile error", str(error), error)
        try:
            for case in self.cases():
                wrong = self._run(answer, case)
                if wrong is not None:
                    return wrong
        except KernelFault as fault:
            return Verdict(fault.kind, str(fault), fault)
        except TypeError as error:
            return Verdict("signature", f"{error}; wanted: {self.signature}")
        return Verdict("right", "right")

    def _kernel(self, kernel: str | Program | Kernel) -> Kernel:
        program = Program(kernel) if isinstance(kernel, str) else kernel
        if isinstance(program, Kernel):
            return program
        return program.kernels.get(self.name) or program._only

    def _run(self, kernel: Kernel, case: Case) -> Verdict | None:
        grid, block, shared_bytes = case.grid, case.block, case.shared_bytes
        for schedule in SCHEDULES:
            arguments = case.fresh()
            kernel.launch(
                grid, block, *arguments, shared_bytes=shared_bytes, schedules=(schedule,)
            )
            for i, expected in case.expected.items():
                wrong = np.flatnonzero(arguments[i] != expected)
                if wrong.size:
                    at = int(wrong[0])
                    name = kernel._written.names[i] or f"argument {i + 1}"
                    return Verdict(
                        "wrong result",
                        f"{case.what}: {name}[{at}] is {arguments[i].flat[at]}, should be "
                        f"{expected.flat[at]} ({wrong.size} of {expected.size} differ)",
                    )
        counts = kernel.profile(grid, block, *case.fresh(), shared_bytes=shared_bytes)
        costly = self.too_costly(counts.kernels[0])
        return Verdict("cost", f"{case.what}: {costly}") if costly else None

    def solution(self) -> str:
        """An answer that is right."""
        return _solutions()[self.name]


@functools.cache
def _solutions() -> dict[str, str]:
    text = (Path(__file__).parent / "puzzle_solutions.cu").read_text(encoding="utf-8")
    found = {}
    for f in functions(mask(text)):
        source = text[f.head : f.close + 1]
        source = source[source.index("__global__") :] + "\n"
        name = re.search(r"(\w+)\(", source)
        assert name
        found[name[1]] = source
    return found


# ---- what a kernel may cost ----


def _coalesced(counts: Counts) -> str | None:
    if counts.efficiency < 0.99:
        return (
            f"{counts.global_sectors} sectors of global memory are moved, "
            f"{counts.global_ideal} would do: let neighbouring threads take neighbouring "
            "elements"
        )
    return None


def _without_conflicts(counts: Counts) -> str | None:
    if counts.shared_wavefronts > counts.shared_ideal:
        return (
            f"{counts.shared_wavefronts} wavefronts of shared memory, {counts.shared_ideal} "
            "would do: lanes of a warp address the same bank"
        )
    return _coalesced(counts)


def _few_atomics(counts: Counts) -> str | None:
    if counts.atomic_serialised > 64:
        return (
            f"{counts.atomic_serialised} atomic operations one after another: add up each "
            "block's elements first, then one atomic for the block"
        )
    return None


def _no_shared(counts: Counts) -> str | None:
    return "use shuffles instead of shared memory" if counts.shared_requests else None


# ---- the puzzles: values are small integers, so that any order of adding is exact ----


def _numbers(n: int, dtype: Any = np.float32, low: int = -9, high: int = 10) -> np.ndarray:
    return np.random.default_rng(n).integers(low, high, n).astype(dtype)


def _add_one() -> list[Case]:
    cases = []
    for n, grid in ((64, 1), (100, 2), (1, 1)):
        x = _numbers(n)
        cases.append(Case(f"n = {n}", grid, 64, (x, empty(n), n), {1: x + 1}))
    return cases


def _saxpy() -> list[Case]:
    cases = []
    for n in (50, 128, 1000):
        x, y = _numbers(n), _numbers(n + 1)[1:].copy()
        cases.append(Case(f"n = {n}", 2, 64, (3.0, x, y, empty(n), n), {3: 3 * x + y}))
    return cases


def _add_rows() -> list[Case]:
    cases = []
    for rows, cols in ((8, 16), (5, 33), (20, 7)):
        x, row = _numbers(rows * cols).reshape(rows, cols), _numbers(cols)
        grid = (-(-cols // 16), -(-rows // 8))
        arguments = (x, row, empty((rows, cols)), rows, cols)
        cases.append(Case(f"{rows} x {cols}", grid, (16, 8), arguments, {2: x + row}))
    return cases


def _reverse() -> list[Case]:
    x = _numbers(256)
    expected = x.reshape(4, 64)[:, ::-1].reshape(-1)
    return [Case("4 blocks", 4, 64, (x,), {0: expected})]


def _neighbours() -> list[Case]:
    cases = []
    for n in (64, 100, 200):
        x = _numbers(n)
        padded = np.concatenate([[0], x, [0]]).astype(np.float32)
        expected = padded[:-2] + padded[1:-1] + padded[2:]
        cases.append(Case(f"n = {n}", -(-n // 64), 64, (x, empty(n), n), {1: expected}))
    return cases


def _reads_once(counts: Counts) -> str | None:
    if counts.shared_requests == 0:
        return "every element is read from global memory three times: share it"
    return None


def _histogram() -> list[Case]:
    cases = []
    for n in (64, 300):
        x = _numbers(n, np.int32, 0, 8)
        expected = np.bincount(x, minlength=8).astype(np.int32)
        arguments = (x, np.zeros(8, np.int32), n)
        cases.append(Case(f"n = {n}", -(-n // 64), 64, arguments, {1: expected}))
    return cases


def _block_sums() -> list[Case]:
    x = _numbers(1024)
    expected = x.reshape(8, 128).sum(1)
    return [Case("8 blocks", 8, 128, (x, empty(8)), {1: expected})]


def _warp_sums() -> list[Case]:
    x = _numbers(256)
    expected = x.reshape(8, 32).sum(1)
    return [Case("8 warps", 2, 128, (x, empty(8)), {1: expected})]


def _transposed() -> list[Case]:
    x = _numbers(64 * 96).reshape(64, 96)
    return [Case("64 x 96", (3, 2), (32, 32), (x, empty((96, 64)), 64, 96), {1: x.T.copy()})]


def _max_of_rows() -> list[Case]:
    cases = []
    for cols in (32, 104):  # rows begin at sectors of 32 bytes
        x = _numbers(6 * cols, np.int32).reshape(6, cols)
        arguments = (x, empty(6, np.int32), cols)
        cases.append(Case(f"6 x {cols}", 6, 32, arguments, {1: x.max(1)}))
    return cases


def _total() -> list[Case]:
    cases = []
    for n in (128, 1000, 4000):
        x = _numbers(n, np.int32)
        grid = min(-(-n // 128), 16)
        expected = np.array([x.sum()], np.int32)
        arguments = (x, np.zeros(1, np.int32), n)
        cases.append(Case(f"n = {n}", grid, 128, arguments, {1: expected}))
    return cases


def _scan() -> list[Case]:
    cases = []
    for blocks in (1, 2, 9):
        n = 64 * blocks
        x = _numbers(n, np.int32)
        arguments = (x, empty(n, np.int32), np.zeros(1 + 2 * blocks, np.int32))
        expected = x.cumsum(dtype=np.int32)
        cases.append(Case(f"{blocks} blocks", blocks, 64, arguments, {1: expected}))
    return cases


puzzles = (
    Puzzle(
        "1. Add one",
        "y[i] = x[i] + 1 for all i < n, with a thread for each element. Blocks have 64 "
        "threads; the last one has more of them than elements are left.",
        "__global__ void add_one(const float *x, float *y, int n)",
        _add_one,
        _coalesced,
    ),
    Puzzle(
        "2. More elements than threads",
        "z[i] = a * x[i] + y[i] for all i < n. The grid has 2 blocks of 64 threads, "
        "whatever n is.",
        "__global__ void saxpy(float a, const float *x, const float *y, float *z, int n)",
        _saxpy,
        _coalesced,
    ),
    Puzzle(
        "3. Two dimensions",
        "y[r][c] = x[r][c] + row[c] for a matrix of rows x cols. Blocks have 16 x 8 "
        "threads, x along the columns.",
        "__global__ void add_rows(const float *x, const float *row, float *y, int rows, "
        "int cols)",
        _add_rows,
    ),
    Puzzle(
        "4. Through shared memory",
        "Each block of 64 threads reverses its own 64 elements of x, in place.",
        "__global__ void reverse(float *x)",
        _reverse,
        _coalesced,
    ),
    Puzzle(
        "5. A halo",
        "y[i] = x[i - 1] + x[i] + x[i + 1], where what lies outside of x is 0. A block of "
        "64 threads stores what its elements need in shared memory, and reads it there.",
        "__global__ void neighbours(const float *x, float *y, int n)",
        _neighbours,
        _reads_once,
    ),
    Puzzle(
        "6. A histogram",
        "count[k] is the number of elements of x that are k; it begins as 0. Elements are "
        "below 8.",
        "__global__ void histogram(const int *x, int *count, int n)",
        _histogram,
    ),
    Puzzle(
        "7. A sum in each block",
        "sums[b] is the sum of the 128 elements of block b, made in shared memory by half "
        "of the threads, then a quarter, and so on. No two lanes of a warp may address "
        "the same bank.",
        "__global__ void block_sums(const float *x, float *sums)",
        _block_sums,
        _without_conflicts,
    ),
    Puzzle(
        "8. A sum in each warp",
        "sums[w] is the sum of the 32 elements of warp w of the grid, without shared "
        "memory: lanes hand over their values by __shfl_down_sync. Blocks have 128 "
        "threads.",
        "__global__ void warp_sums(const float *x, float *sums)",
        _warp_sums,
        _no_shared,
    ),
    Puzzle(
        "9. A warp for each row",
        "largest[r] is the largest element of row r of x, which has cols columns. Each "
        "block is one warp and has one row.",
        "__global__ void max_of_rows(const int *x, int *largest, int cols)",
        _max_of_rows,
        _coalesced,
    ),
    Puzzle(
        "10. Transposed",
        "y[c][r] = x[r][c] for a matrix of rows x cols, multiples of 32, in blocks of 32 "
        "x 32 threads. Neighbouring threads read and write neighbouring elements, and no "
        "two lanes of a warp address the same bank.",
        "__global__ void transposed(const float *x, float *y, int rows, int cols)",
        _transposed,
        _without_conflicts,
    ),
    Puzzle(
        "11. One sum of all",
        "total[0], which begins as 0, is the sum of x. There are at most 16 blocks of 128 "
        "threads, and one atomic operation for each block or warp.",
        "__global__ void total(const int *x, int *total, int n)",
        _total,
        _few_atomics,
    ),
    Puzzle(
        "12. A scan in a single pass",
        "y[i] = x[0] + ... + x[i], in one launch of blocks of 64 threads with one element "
        "each. A block needs the sum of all before it, and blocks begin in any order: a "
        "block that waits for one that has not begun waits for ever. state has 1 + 2 * "
        "gridDim.x elements and begins as 0: take a number from state[0], hand your sum "
        "on in the others.",
        "__global__ void scan(const int *x, int *y, int *state)",
        _scan,
    ),
)
