"""Twenty-four mistakes that textbooks warn of, each in a kernel of its own.

`// <-` marks the line that is at fault.  tests/test_lab_kernel.py runs each and compares
kind and line with what the lab finds; docs/your_own_kernel.md has the table, which
`python tests/planted_faults.py --write` renews.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DOCUMENT = Path(__file__).parent.parent / "docs" / "your_own_kernel.md"
MARK = "// <-"


class Fault(NamedTuple):
    mistake: str
    kind: str
    source: str
    arguments: Callable[[], tuple[Any, ...]]
    grid: Any = 1
    block: Any = 32
    shared_bytes: int = 0

    @property
    def name(self) -> str:
        found = re.search(r"(\w+)\(", self.source.partition("__global__")[2])
        assert found
        return found[1]

    @property
    def line(self) -> int:
        """The marked line of the source, counted from 1."""
        return next(i for i, t in enumerate(self.source.splitlines(), 1) if MARK in t)


def f32(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def i32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def unwritten(n: int) -> np.ndarray:
    from gpuopt import lab

    return lab.empty(n)


FAULTS = [
    Fault("the last block has more threads than elements", "out of bounds", """\
__global__ void no_guard(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i]; // <-
}
""", lambda: (f32(100), f32(100), 100), grid=4),
    Fault("i <= n", "out of bounds", """\
__global__ void off_by_one(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        x[i] = 0.0f; // <-
    }
}
""", lambda: (f32(100), 100), grid=4),
    Fault("a stencil reads to the left of the first element", "out of bounds", """\
__global__ void left_edge(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] - x[i - 1]; // <-
    }
}
""", lambda: (f32(64), f32(64), 64), grid=2),
    Fault("rows and columns exchanged", "out of bounds", """\
__global__ void exchanged(const float *x, float *y, int rows, int cols)
{
    int col = threadIdx.x, row = threadIdx.y;
    y[col * cols + row] = x[row * cols + col]; // <-
}
""", lambda: (f32(4, 8), f32(4, 8), 4, 8), block=(8, 4)),
    Fault("a shared tile without room for its halo", "out of bounds", """\
__global__ void no_halo(const float *x, float *y)
{
    __shared__ float tile[32];
    int t = threadIdx.x;
    tile[t] = x[t];
    __syncthreads();
    y[t] = tile[t] + tile[t + 1]; // <-
}
""", lambda: (f32(32), f32(32))),
    Fault("a local array of three, indexed up to 3", "out of bounds", """\
__global__ void local_window(const float *x, float *y)
{
    float window[3];
    for (int k = 0; k <= 3; k++) {
        window[k] = x[threadIdx.x + k]; // <-
    }
    y[threadIdx.x] = window[threadIdx.x % 3];
}
""", lambda: (f32(64), f32(64))),
    Fault("fewer bytes of dynamic shared memory than elements", "out of bounds", """\
__global__ void bytes_not_elements(float *x)
{
    extern __shared__ float buffer[];
    buffer[threadIdx.x] = x[threadIdx.x]; // <-
    __syncthreads();
    x[threadIdx.x] = buffer[31 - threadIdx.x];
}
""", lambda: (f32(32),), shared_bytes=32),
    Fault("a launch without the dynamic shared memory", "invalid launch", """\
__global__ void no_bytes(float *x)
{
    extern __shared__ float buffer[]; // <-
    buffer[threadIdx.x] = x[threadIdx.x];
}
""", lambda: (f32(32),)),
    Fault("more static shared memory than a block may have", "invalid launch", """\
__global__ void too_much(float *x)
{
    __shared__ float tile[128][128]; // <-
    tile[threadIdx.x][0] = x[threadIdx.x];
}
""", lambda: (f32(32),)),
    Fault("float4 at an address that is not a multiple of 16", "misaligned", """\
__global__ void shifted_pack(const float *x, float *y)
{
    float4 v = *reinterpret_cast<const float4 *>(x + 4 * threadIdx.x + 1); // <-
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
""", lambda: (f32(200), f32(32))),
    Fault("no barrier between storing a tile and reading a neighbour's element", "race", """\
__global__ void no_barrier(const float *x, float *y)
{
    __shared__ float tile[64];
    int t = threadIdx.x;
    tile[t] = x[t];
    y[t] = tile[t / 2]; // <-
}
""", lambda: (f32(64), f32(64)), block=64),
    Fault("no barrier between the steps of a reduction", "race", """\
__global__ void no_barrier_in_loop(float *x)
{
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int k = 64; k > 0; k /= 2) {
        if (t < k) {
            s[t] += s[t + k]; // <-
        }
    }
    x[t] = s[0];
}
""", lambda: (f32(128),), block=128),
    Fault("a tile filled again while others still read it", "race", """\
__global__ void refilled(const float *x, float *y, int n)
{
    __shared__ float tile[64];
    float sum = 0.0f;
    for (int first = 0; first < n; first += 64) {
        tile[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads();
        sum += tile[63 - threadIdx.x]; // <-
    }
    y[threadIdx.x] = sum;
}
""", lambda: (f32(128), f32(64), 128), block=64),
    Fault("threads of one warp exchange values without __syncwarp", "race", """\
__global__ void warp_synchronous(float *x)
{
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = 0.0f;
    __syncthreads();
    s[t] = s[t] + s[t + 16]; // <-
    x[t] = s[t];
}
""", lambda: (f32(32),)),
    Fault("a histogram that adds without atomics", "race", """\
__global__ void plain_histogram(const int *bin, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        count[bin[i]] += 1; // <-
    }
}
""", lambda: (i32(64), i32(4), 64), grid=2),
    Fault("a stencil in place: other blocks read what this one writes", "race", """\
__global__ void in_place(float *x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float left = i > 0 ? x[i - 1] : 0.0f; // <-
    __syncthreads();
    x[i] = x[i] + left;
}
""", lambda: (f32(64), 64), grid=2),
    Fault("shared memory that only some threads have stored", "uninitialised", """\
__global__ void half_stored(const float *x, float *y, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < n) {
        s[t] = x[t];
    }
    __syncthreads();
    y[t] = s[t] + s[63 - t]; // <-
}
""", lambda: (f32(40), f32(64), 40), block=64),
    Fault("adding to an array that nobody has set to zero", "uninitialised", """\
__global__ void never_zeroed(const float *x, float *sum)
{
    atomicAdd(sum, x[threadIdx.x]); // <-
}
""", lambda: (f32(32), unwritten(1))),
    Fault("a barrier inside of a condition", "divergent barrier", """\
__global__ void conditional_barrier(float *x, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < n) {
        s[t] = x[t];
        __syncthreads(); // <-
        x[t] = s[n - 1 - t];
    }
}
""", lambda: (f32(64), 40), block=64),
    Fault("a return before a barrier", "divergent barrier", """\
__global__ void early_return(float *x, int n)
{
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t >= n) {
        return;
    }
    s[t] = x[t];
    __syncthreads(); // <-
    x[t] = s[n - 1 - t];
}
""", lambda: (f32(64), 40), block=64),
    Fault("a barrier in each branch", "divergent barrier", """\
__global__ void two_barriers(float *x)
{
    if (threadIdx.x < 16) {
        x[threadIdx.x] = 1.0f;
        __syncthreads();
    }
    else {
        x[threadIdx.x] = 2.0f;
        __syncthreads(); // <-
    }
}
""", lambda: (f32(32),)),
    Fault("a shuffle of the whole warp in a branch that half of it takes", "deadlock", """\
__global__ void half_shuffle(float *x)
{
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        v += __shfl_down_sync(0xffffffff, v, 8); // <-
    }
    __syncthreads();
    x[threadIdx.x] = v;
}
""", lambda: (f32(32),)),
    Fault("an unsigned counter that is always at least 0", "endless loop", """\
__global__ void never_negative(float *x, unsigned n)
{
    for (unsigned i = n - 1; i >= 0; i--) x[i % n] += 1.0f; // <-
}
""", lambda: (f32(8), 8), block=1),
    Fault("a block that waits for a later one", "endless loop", """\
__global__ void waits_for_next(int *flag)
{
    if (blockIdx.x == 0) {
        while (atomicAdd(flag, 0) == 0) { // <-
        }
    }
    else {
        atomicExch(flag, 1);
    }
}
""", lambda: (i32(1),), grid=2, block=1),
    Fault("a division by a number of warps that is 0", "division by zero", """\
__global__ void no_warps(int *x)
{
    x[threadIdx.x] = threadIdx.x % (blockDim.x / 64); // <-
}
""", lambda: (i32(32),)),
]  # fmt: skip


def table() -> str:
    """The rows of the document: mistake, line, fault."""
    rows = ["| mistake | line | found as |", "|---|---|---|"]
    for fault in FAULTS:
        text = fault.source.splitlines()[fault.line - 1].replace(MARK, "").strip()
        rows.append(f"| {fault.mistake} | `{text}` | {fault.kind} |")
    return "\n".join(rows) + "\n"


def renewed(document: str) -> str:
    """The document with the table as it is now, between its two comments."""
    begin, end = "<!-- planted faults -->\n", "<!-- end of planted faults -->"
    head, _, rest = document.partition(begin)
    return f"{head}{begin}{table()}{end}{rest.partition(end)[2]}"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
