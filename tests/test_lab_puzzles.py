"""The puzzles of the lab: every solution is right, typical wrong answers get their fault.

Order: the wrong answers, all in one source; the tests.  `// <-` marks the line of a fault.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_faults import FAULTS

from gpuopt import lab
from gpuopt.lab import nvcc
from gpuopt.lab import puzzles as puzzles_module
from gpuopt.lab.own import Program
from gpuopt.lab.puzzles import Puzzle, puzzles

# Puzzle, kind of the verdict, kernel.
WRONG = [
    ("add_one", "out of bounds", """\
__global__ void add_one_unguarded(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] + 1.0f; // <-
}
"""),
    ("add_one", "wrong result", """\
__global__ void add_one_twice(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 2.0f;
}
"""),
    ("add_one", "race", """\
__global__ void add_one_in_every_block(const float *x, float *y, int n)
{
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        y[i] = x[i] + 1.0f; // <-
    }
}
"""),
    ("saxpy", "unwritten", """\
__global__ void saxpy_once(float a, const float *x, const float *y, float *z, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
"""),
    ("saxpy", "cost", """\
__global__ void saxpy_by_parts(float a, const float *x, const float *y, float *z, int n)
{
    int all = gridDim.x * blockDim.x, each = (n + all - 1) / all;
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * each;
    for (int i = first; i < first + each && i < n; i++) z[i] = a * x[i] + y[i];
}
"""),
    ("add_rows", "out of bounds", """\
__global__ void add_rows_exchanged(const float *x, const float *row, float *y,
                                   int rows, int cols)
{
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    int c = blockIdx.y * blockDim.y + threadIdx.y;
    y[r * cols + c] = x[r * cols + c] + row[c]; // <-
}
"""),
    ("reverse", "race", """\
__global__ void reverse_directly(float *x)
{
    int first = blockIdx.x * 64, t = threadIdx.x;
    x[first + t] = x[first + 63 - t]; // <-
}
"""),
    ("reverse", "uninitialised", """\
__global__ void reverse_unsynchronised(float *x)
{
    __shared__ float tile[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = x[i];
    x[i] = tile[63 - threadIdx.x]; // <-
}
"""),
    ("neighbours", "divergent barrier", """\
__global__ void neighbours_divergent(const float *x, float *y, int n)
{
    __shared__ float tile[66];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i < n) {
        tile[t + 1] = x[i];
        if (t == 0) tile[0] = i > 0 ? x[i - 1] : 0.0f;
        if (t == 63 || i == n - 1) tile[t + 2] = i + 1 < n ? x[i + 1] : 0.0f;
        __syncthreads(); // <-
        y[i] = tile[t] + tile[t + 1] + tile[t + 2];
    }
}
"""),
    ("neighbours", "out of bounds", """\
__global__ void neighbours_at_the_edge(const float *x, float *y, int n)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = x[i - 1] + x[i] + x[i + 1]; // <-
}
"""),
    ("neighbours", "cost", """\
__global__ void neighbours_from_global(const float *x, float *y, int n)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i < n) y[i] = (i > 0 ? x[i - 1] : 0) + x[i] + (i + 1 < n ? x[i + 1] : 0);
}
"""),
    ("histogram", "race", """\
__global__ void histogram_plain(const int *x, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) count[x[i]]++; // <-
}
"""),
    ("block_sums", "race", """\
__global__ void block_sums_unsynchronised(const float *x, float *sums)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half]; // <-
    }
    if (t == 0) sums[blockIdx.x] = s[0];
}
"""),
    ("block_sums", "cost", """\
__global__ void block_sums_strided(const float *x, float *sums)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int k = 1; k < 128; k *= 2) {
        if (2 * k * t < 128) s[2 * k * t] += s[2 * k * t + k];
        __syncthreads();
    }
    if (t == 0) sums[blockIdx.x] = s[0];
}
"""),
    ("warp_sums", "deadlock", """\
__global__ void warp_sums_in_a_branch(const float *x, float *sums)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = i % 32;
    float sum = x[i];
    for (int step = 16; step > 0; step /= 2) {
        if (lane < step) {
            sum += __shfl_down_sync(0xffffffffu, sum, step); // <-
        }
        __syncwarp();
    }
    if (lane == 0) sums[i / 32] = sum;
}
"""),
    ("warp_sums", "wrong result", """\
__global__ void warp_sums_upwards(const float *x, float *sums)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = x[i];
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_up_sync(0xffffffffu, sum, step);
    }
    if (i % 32 == 0) sums[i / 32] = sum;
}
"""),
    ("max_of_rows", "race", """\
__global__ void max_of_rows_plain(const int *x, int *largest, int cols)
{
    largest[blockIdx.x] = x[blockIdx.x * cols];
    for (int c = threadIdx.x; c < cols; c += 32) {
        int v = x[blockIdx.x * cols + c];
        if (v > largest[blockIdx.x]) largest[blockIdx.x] = v;
    }
}
"""),
    ("max_of_rows", "uninitialised", """\
__global__ void max_of_rows_atomic(const int *x, int *largest, int cols)
{
    for (int c = threadIdx.x; c < cols; c += 32) {
        atomicMax(&largest[blockIdx.x], x[blockIdx.x * cols + c]); // <-
    }
}
"""),
    ("transposed", "cost", """\
__global__ void transposed_directly(const float *x, float *y, int rows, int cols)
{
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    y[c * rows + r] = x[r * cols + c];
}
"""),
    ("transposed", "cost", """\
__global__ void transposed_in_one_bank(const float *x, float *y, int rows, int cols)
{
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32, row = blockIdx.y * 32;
    tile[threadIdx.y][threadIdx.x] = x[(row + threadIdx.y) * cols + column + threadIdx.x];
    __syncthreads();
    y[(column + threadIdx.y) * rows + row + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""),
    ("total", "race", """\
__global__ void total_plain(const int *x, int *sum, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum[0] += x[i]; // <-
    }
}
"""),
    ("total", "cost", """\
__global__ void total_all_atomic(const int *x, int *sum, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(sum, x[i]);
    }
}
"""),
    ("scan", "endless loop", """\
__global__ void scan_in_order(const int *x, int *y, int *state)
{
    int b = blockIdx.x, i = b * 64 + threadIdx.x;
    int *sums = state + 1, *ready = state + 1 + gridDim.x;
    if (threadIdx.x == 0) {
        int sum = 0;
        if (b > 0) {
            while (atomicAdd(&ready[b - 1], 0) == 0) { // <-
            }
            __threadfence();
            sum = sums[b - 1];
        }
        for (int k = 0; k < 64; k++) y[i + k] = sum += x[i + k];
        sums[b] = sum;
        __threadfence();
        atomicExch(&ready[b], 1);
    }
}
"""),
    ("scan", "race", """\
__global__ void scan_without_fence(const int *x, int *y, int *state)
{
    int *sums = state + 1, *ready = state + 1 + gridDim.x;
    if (threadIdx.x == 0) {
        int sum = 0, b = atomicAdd(state, 1);
        if (b > 0) {
            while (atomicAdd(&ready[b - 1], 0) == 0) {
            }
            sum = sums[b - 1]; // <-
        }
        for (int k = b * 64; k < b * 64 + 64; k++) y[k] = sum += x[k];
        sums[b] = sum;
        atomicExch(&ready[b], 1);
    }
}
"""),
]  # fmt: skip


def name_of(source: str) -> str:
    found = re.search(r"(\w+)\(", source)
    assert found
    return found[1]


def puzzle(name: str) -> Puzzle:
    return next(p for p in puzzles if p.name == name)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def wrong() -> Program:
    return lab.kernel("".join(source for _, _, source in WRONG))


@pytest.fixture(scope="module")
def solutions() -> Program:
    file = Path(puzzles_module.__file__).with_name("puzzle_solutions.cu")
    return lab.kernel(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("p", puzzles, ids=lambda p: p.name)
def test_a_solution_is_right_and_has_the_signature(p: Puzzle, solutions: Program) -> None:
    assert p.check(solutions.kernels[p.name]), p.check(solutions.kernels[p.name])
    assert " ".join(p.solution().partition("{")[0].split()) == p.signature
    assert p.solution().count("__global__") == 1


@pytest.mark.parametrize(("name", "kind", "source"), WRONG, ids=[name_of(s) for *_, s in WRONG])
def test_a_wrong_answer_gets_its_fault(
    name: str, kind: str, source: str, wrong: Program
) -> None:
    verdict = puzzle(name).check(wrong.kernels[name_of(source)])
    assert verdict.kind == kind, verdict
    assert not verdict
    assert str(verdict).startswith(f"{kind}: ")
    if "// <-" in source:
        assert isinstance(verdict.fault, lab.KernelFault)
        assert "// <-" in verdict.fault.text


@pytest.mark.parametrize("compiler", [nvcc.find()] if nvcc.find() else [])
def test_the_sources_are_cuda(compiler: str, tmp_path: Path) -> None:
    """What the simulator runs, nvcc compiles: answers and planted faults alike."""
    sources = [
        *(p.solution() for p in puzzles),
        *(source for *_, source in WRONG),
        *(fault.source for fault in FAULTS if fault.name != "too_much"),  # ptxas refuses it
    ]
    file = tmp_path / "all.cu"
    file.write_text("".join(sources), encoding="utf-8")
    done = subprocess.run(
        [compiler, "-std=c++17", "-arch=sm_80", "-cubin", "-o", tmp_path / "all.cubin", file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_there_are_twelve_and_each_has_a_wrong_answer() -> None:
    assert [p.title.split(".")[0] for p in puzzles] == [str(i) for i in range(1, 13)]
    assert {name for name, *_ in WRONG} == {p.name for p in puzzles}


def test_a_source_is_an_answer_too() -> None:
    assert puzzles[0].check(puzzles[0].solution())
    verdict = puzzles[0].check("__global__ void add_one(float *x)\n{\n    y[0] = 1;\n}")
    assert (verdict.kind, verdict.fault and verdict.fault.line) == ("compile error", 3)


def test_another_signature_is_named(solutions: Program) -> None:
    verdict = puzzles[0].check(solutions.kernels["saxpy"])
    assert verdict.kind == "signature"
    assert puzzles[0].signature in str(verdict)


def test_expected_values_have_no_nan_and_are_exact() -> None:
    """A nan equals nothing: leaving one is wrong; sums are exact in any order."""
    for p in puzzles:
        for case in p.cases():
            for expected in case.expected.values():
                assert np.isfinite(expected).all()
                assert np.array_equal(expected, np.rint(expected))
                assert np.abs(expected).max() < 2**24


def test_a_puzzle_shows_its_task() -> None:
    assert repr(puzzles[0]).startswith("1. Add one\n\ny[i] = x[i] + 1")
    assert puzzles[0].signature in repr(puzzles[0])
