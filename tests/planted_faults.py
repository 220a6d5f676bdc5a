"""Mistakes that textbooks warn of, each in a kernel of its own.

`// <-` marks the line that is at fault.  tests/test_lab_kernel.py runs each and compares
kind and line with what the lab finds; tests/gpu/faults.py runs each on a GPU under
compute-sanitizer.  docs/your_own_kernel.md has the table of both, which
`python tests/planted_faults.py --write` renews.  Order: arrays, the faults, the table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "your_own_kernel.md"
RESULTS = ROOT / "benchmarks" / "results" / "h200-faults.json"  # of tests/gpu/faults.py
MARK = "// <-"
MISSED = ""  # the kind of a fault that the lab does not find


class Fault(NamedTuple):
    mistake: str
    kind: str
    source: str
    arguments: Callable[[], tuple[Any, ...]]
    grid: Any = 1
    block: Any = 32
    shared_bytes: int = 0
    before: str = ""  # for a GPU: C++ between the arguments a0, a1, ... and the launch

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


HOST = f32(32)  # memory of the host, for as long as the module is there


def address_after_launch() -> int:
    """An address that was the device's during a launch: the lab frees its copies after it.

    64 MB, which malloc gives back at once and does not give to the next launch.
    """
    from gpuopt import lab

    kernel = lab.kernel(
        "__global__ void where(const float *x, unsigned long long *address)\n"
        "{\n    address[0] = reinterpret_cast<unsigned long long>(x);\n}\n"
    )
    address = np.zeros(1, np.uint64)
    kernel[1, 1](f32(1 << 24), address)
    return int(address[0])


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
    __syncthreads();
    x[threadIdx.x] = buffer[31 - threadIdx.x];
}
""", lambda: (f32(32),)),
    Fault("more static shared memory than a block may have", "invalid launch", """\
__global__ void too_much(float *x)
{
    __shared__ float tile[128][128]; // <-
    tile[threadIdx.x][0] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[31 - threadIdx.x][0];
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
    Fault("the loop over the grid runs up to n", "out of bounds", """\
__global__ void grid_loop(float *x, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i <= n; i += gridDim.x * blockDim.x) {
        x[i] *= 2.0f; // <-
    }
}
""", lambda: (f32(100), 100), grid=2),
    Fault("an element stored behind the end of a shared array", "out of bounds", """\
__global__ void shifted_store(const float *x, float *y)
{
    __shared__ float tile[32];
    int t = threadIdx.x;
    tile[t + 1] = x[t]; // <-
    __syncthreads();
    y[t] = t > 0 ? tile[t] : 0.0f;
}
""", lambda: (f32(32), f32(32))),
    Fault("an index of 16 bits for more elements", "out of bounds", """\
__global__ void sixteen_bits(const float *x, float *y, int n)
{
    short i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i]; // <-
    }
}
""", lambda: (f32(33024), f32(33024), 33024), grid=129, block=256),
    Fault("1 taken from an unsigned 0", "out of bounds", """\
__global__ void unsigned_left(const float *x, float *y)
{
    unsigned i = threadIdx.x;
    y[i] = x[i - 1]; // <-
}
""", lambda: (f32(32), f32(32))),
    Fault("a pointer to the host's memory", "out of bounds", """\
__global__ void host_pointer(unsigned long long address, float *y)
{
    const float *x = reinterpret_cast<const float *>(address);
    y[threadIdx.x] = x[threadIdx.x]; // <-
}
""", lambda: (HOST.ctypes.data, f32(32)),
    before="a0 = (unsigned long long)malloc(32 * sizeof(float));"),
    Fault("a pointer to memory that has been freed", "out of bounds", """\
__global__ void freed(unsigned long long address, float *y)
{
    const float *x = reinterpret_cast<const float *>(address);
    y[threadIdx.x] = x[threadIdx.x]; // <-
}
""", lambda: (address_after_launch(), f32(32)),
    before="float *x; cudaMalloc(&x, 128); cudaFree(x); a0 = (unsigned long long)x;"),
    Fault("the address of another thread's local variable", "out of bounds", """\
__global__ void anothers_local(int *x)
{
    __shared__ int *where;
    int own = threadIdx.x;
    if (threadIdx.x == 0) {
        where = &own;
    }
    __syncthreads();
    x[threadIdx.x] = *where; // <-
    __syncthreads();
}
""", lambda: (i32(32),)),
    Fault("two buffers that take turns, without the barrier of each turn", "uninitialised", """\
__global__ void two_buffers(const float *x, float *y, int n)
{
    __shared__ float tile[2][64];
    int t = threadIdx.x;
    float sum = 0.0f;
    tile[0][t] = x[t];
    __syncthreads();
    for (int k = 1; k < n; k++) {
        tile[k % 2][t] = x[64 * k + t];
        sum += tile[(k - 1) % 2][63 - t]; // <-
    }
    y[t] = sum;
}
""", lambda: (f32(256), f32(64), 4), block=64),
    Fault("another block's result, read without a barrier of the grid", "race", """\
__global__ void no_grid_barrier(const float *x, float *sums, float *total)
{
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = x[blockIdx.x];
    }
    __syncthreads();
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        total[0] = sums[0] + sums[1]; // <-
    }
}
""", lambda: (f32(4), f32(4), f32(1)), grid=2),
    Fault("a flag that is set without a fence before it", "race", """\
__global__ void no_fence(float *data, int *flag, float *y)
{
    if (blockIdx.x == 0) {
        data[0] = 7.0f;
        atomicExch(flag, 1);
    }
    else {
        while (atomicAdd(flag, 0) == 0) {
        }
        y[0] = data[0]; // <-
    }
}
""", lambda: (f32(1), i32(1), f32(1)), grid=2, block=1),
    Fault("all threads store their own value in one element", "race", """\
__global__ void last_one_wins(int *x)
{
    x[0] = threadIdx.x; // <-
}
""", lambda: (i32(1),)),
    Fault("a lane that is not in the mask of its shuffle", "warp", """\
__global__ void half_mask(float *x)
{
    float v = x[threadIdx.x];
    x[threadIdx.x] = v + __shfl_xor_sync(0x0000ffff, v, 8); // <-
}
""", lambda: (f32(32),)),
    Fault("a shuffle that reads a lane which takes no part", "warp", """\
__global__ void absent_lane(float *x)
{
    if (threadIdx.x < 16) {
        float v = x[threadIdx.x];
        x[threadIdx.x] = v + __shfl_down_sync(0x0000ffff, v, 16); // <-
    }
}
""", lambda: (f32(32),)),
    Fault("a shift by a negative number of bits", MISSED, """\
__global__ void negative_shift(int *x)
{
    x[threadIdx.x] = 1 << ((int)threadIdx.x - 1); // <-
}
""", lambda: (i32(32),)),
    Fault("a local array of which one element is never set", MISSED, """\
__global__ void local_unset(float *y)
{
    float sum[4];
    for (int k = 1; k < 4; k++) {
        sum[k] = 1.0f;
    }
    y[threadIdx.x] = sum[threadIdx.x % 4]; // <-
}
""", lambda: (f32(32),)),
]  # fmt: skip


def on_gpu(fault: Fault, results: dict[str, Any] | None) -> str:
    """What compute-sanitizer found, in a few words: the tools by what they say of the line."""
    row = next((r for r in (results or {}).get("faults", []) if r["name"] == fault.name), None)
    if row is None:
        return "not yet run"
    if row["compile"]:
        return "nvcc refuses it"
    found: dict[str, list[str]] = {}
    for tool, seen in row["tools"].items():
        found.setdefault(seen["found"], []).append(tool)
    words = [
        f"{', '.join(found[what])}: {what}"
        for what in ("line", "another line", "no line", "time limit", "not run")
        if what in found
    ]
    return "; ".join(words) or "nothing"


def measured() -> dict[str, Any] | None:
    """The committed result of tests/gpu/faults.py; None if there is none."""
    if not RESULTS.exists():
        return None
    return dict(json.loads(RESULTS.read_text(encoding="utf-8")))


def table(results: dict[str, Any] | None) -> str:
    """The rows of the document: mistake, line, what the lab and compute-sanitizer find."""
    rows = ["| mistake | line | the lab | compute-sanitizer |", "|---|---|---|---|"]
    for fault in FAULTS:
        text = fault.source.splitlines()[fault.line - 1].replace(MARK, "").strip()
        lab = fault.kind or "nothing"
        rows.append(f"| {fault.mistake} | `{text}` | {lab} | {on_gpu(fault, results)} |")
    return "\n".join([*rows, "", summary(results)]) + "\n"


def summary(results: dict[str, Any] | None) -> str:
    """How many each finds at the marked line, and where that was run."""
    named = sum(bool(fault.kind) for fault in FAULTS)
    text = f"Of these {len(FAULTS)} the lab names the line of {named}"
    if results is None:
        return f"{text}; compute-sanitizer has not yet run."
    rows = {row["name"]: row for row in results["faults"]}
    lines = others = 0
    for fault in FAULTS:
        found = {
            seen["found"] for seen in rows.get(fault.name, {"tools": {}})["tools"].values()
        }
        lines += "line" in found
        others += "line" not in found and bool(found & {"another line", "no line"})
    where = f"on the {results['device']}, commit `{results['commit']}`"
    silent = sum(row["alone"] == "cudaSuccess" for row in results["faults"])
    return (
        f"{text}; the four tools of compute-sanitizer together name that of {lines}, and of "
        f"{others} more they find something, {where} "
        f"([data](../benchmarks/results/{RESULTS.name})). Without a tool {silent} of the "
        "programs end there as if nothing were wrong."
    )


def renewed(document: str) -> str:
    """The document with the table as it is now, between its two comments."""
    begin, end = "<!-- planted faults -->\n", "<!-- end of planted faults -->"
    head, _, rest = document.partition(begin)
    return f"{head}{begin}{table(measured())}{end}{rest.partition(end)[2]}"


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
