"""Your own kernel in the simulator: `gpuopt.lab.kernel`.

Order: reading a source, the planted faults, results and arguments, counts, errors of the
compiler, the cache, the cell magic, the flags of the real build.
A machine without a C++ compiler cannot run these; the tests of a missing compiler can.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import planted_faults
import pytest
from planted_faults import FAULTS, Fault, f32

import gpuopt
from gpuopt import lab
from gpuopt.lab import host_compiler, nvcc, nvrtc, on_gpu
from gpuopt.lab.cuda_source import Source, functions, mask
from gpuopt.lab.own import Program
from gpuopt.lab.profile import profile

ROOT = Path(__file__).parent.parent
# clang++ writes fewer lines of blocks into its tables, and its errors are at other lines.
EXACT = "clang" not in host_compiler.compiler()[0]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A cache of the tests' own: the first source compiles the simulator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


# ---- reading a source ----


def test_masking_keeps_every_offset() -> None:
    text = "a /* { */ \"}\\\"{\" b // {\n#define X { \\\n }\nc '{' 1'000 }"
    masked = mask(text)
    assert len(masked) == len(text)
    assert [c for c in masked if c in "{}"] == ["}"]
    assert masked.count("\n") == text.count("\n")


def test_functions_in_namespaces_and_classes_are_found() -> None:
    code = (
        "int a[] = {1, 2};\nnamespace n { struct S { int f() { if (1) { } } }; }\nvoid g() {}"
    )
    found = functions(code)
    assert [f.scope for f in found] == ["n::S::", ""]
    assert code[found[0].open : found[0].close + 1] == "{ if (1) { } }"


def test_parameters_are_read_as_they_are_written() -> None:
    source = Source(
        'extern "C" __global__ void\n__launch_bounds__(256, 2) k(const float *__restrict__ x,\n'
        " float *y, // , float *z\n int n)\n{\n}\n__global__ void none(void) { }\n"
    )
    assert [k.name for k in source.kernels] == ["k", "none"]
    assert source.kernels[0].parameters == ("const float *__restrict__ x", "float *y", "int n")
    assert source.kernels[0].names == ("x", "y", "n")
    assert source.kernels[1].parameters == ()
    assert source.kernels[0].line == 1


def test_every_line_keeps_its_number() -> None:
    text = (
        "#include <cuda_runtime.h>\n__global__ void k(float *x)\n{\n    __shared__\n"
        "        float a[8],\n        b;\n    x[0] = 1; // line 7\n}\n"
    )
    unit = Source(text).rewritten.split('#line 1 "kernel.cu"\n')[1]
    assert unit.splitlines()[6] == "    x[0] = 1; // line 7"
    assert "a_gpo_shared [8]" in unit.replace("shared[", "shared [")


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("int f() { return 1; }", 0, "no __global__ function"),
        ('__global__ void k(int *x) {\n  asm("");\n}', 2, "inline PTX"),
        ("__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }", 2, "belongs to Python"),
        ("template <typename T>\n__global__ void k(T *x) {}", 2, "is a template"),
        ("__global__ void k() {\n __shared__ int a = 1;\n}", 2, "no initial value"),
        ("__global__ void k() {\n\n __shared__ int a[];\n}", 3, "has a size"),
        ("__global__ void k() {\n extern __shared__ int a[4];\n}", 2, "has no size"),
        ("#include <cooperative_groups.h>\n__global__ void k() {}", 1, "has no cooperative"),
        ("__global__ void k() {}\n__global__ void k(int *x) {}", 1, "two kernels 'k'"),
        (
            "__device__ int f() { return 1; }\n__device__ int n = 0;\n__global__ void k() {}",
            2,
            "a __device__ variable",
        ),
        ("__global__ void k()\n{\n    if (1) {\n}\n", 2, "this { is never closed"),
        ("__global__ void k()\n{\n}\n}\n", 4, "this } closes nothing"),
    ],
)
def test_what_a_source_may_not_have_is_named_with_its_line(
    text: str, line: int, sentence: str
) -> None:
    with pytest.raises(lab.CompileError, match=re.escape(sentence)) as caught:
        Source(text)
    assert caught.value.line == line


# ---- the planted faults: all in one source ----


@pytest.fixture(scope="module")
def planted() -> Program:
    return lab.kernel("".join(f.source for f in FAULTS))


def first_line(fault: Fault) -> int:
    """Lines of the joined source before the fault's own."""
    return sum(f.source.count("\n") for f in FAULTS[: FAULTS.index(fault)])


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.kind], ids=lambda f: f.name)
def test_a_planted_fault_is_found_at_its_line(planted: Program, fault: Fault) -> None:
    arguments = fault.arguments()
    before = [np.copy(a) for a in arguments]
    with pytest.raises(lab.KernelFault) as caught:
        planted.kernels[fault.name].launch(
            fault.grid, fault.block, *arguments, shared_bytes=fault.shared_bytes
        )
    found = caught.value
    assert found.kind == fault.kind, str(found)
    if EXACT or found.kind != "endless loop":
        assert found.line - first_line(fault) == fault.line, str(found)
        assert planted_faults.MARK in found.text
    assert found.text in str(found)
    assert found.kernel == fault.name
    assert isinstance(found, gpuopt.SimulatorError)
    for was, now in zip(before, arguments, strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("fault", [f for f in FAULTS if not f.kind], ids=lambda f: f.name)
def test_what_the_lab_does_not_find(planted: Program, fault: Fault) -> None:
    """Should it find one some day, the table has to say so."""
    planted.kernels[fault.name].launch(fault.grid, fault.block, *fault.arguments())


def test_there_are_twenty_faults_and_the_document_lists_them() -> None:
    assert len({f.name for f in FAULTS}) == len(FAULTS) >= 20
    text = planted_faults.DOCUMENT.read_text(encoding="utf-8")
    assert text == planted_faults.renewed(text), "python tests/planted_faults.py --write"


# ---- results and arguments ----

SOURCE = """\
#include <assert.h>
#include <cuda_fp16.h>
#include <math.h>
using real = double;
__device__ const int primes[] = {2, 3, 5};
__constant__ float weight[3] = {0.25f, 0.5f, 0.25f};
__shared__ float everywhere[64];
extern __shared__ float dynamic[];
namespace inner { template <typename T> __device__ T twice(T x) { return x + x; } }

__global__ void scale(const float *x, float *y, float a, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i];
}
__global__ void index(unsigned char *to, bool flag, short s, unsigned long long big, real r)
{
    if (flag && s == -3 && big == 1ull << 40 && r == 0.5) to[0] = inner::twice(3);
}
__global__ void reverse(float *x)
{
    everywhere[threadIdx.x] = x[threadIdx.x];
    dynamic[threadIdx.x] = weight[1];
    __syncthreads();
    x[threadIdx.x] = everywhere[63 - threadIdx.x] + dynamic[63 - threadIdx.x];
}
__global__ void packs(const float4 *x, float *y)
{
    float4 v = x[threadIdx.x];
    y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
__global__ void halves(__half *x, const int2 *p)
{
    x[threadIdx.x] = __float2half_rn((float)p[0].y);
}
__global__ void first_wins(int *x) { atomicCAS(x, 0, 1 + (int)threadIdx.x); }
__global__ void half_filled(float *x) { x[2 * threadIdx.x] = 1.0f; }
__device__ __noinline__ int deeper(int n) { return n == 0 ? 0 : 1 + deeper(n - 1); }
__global__ void recursive(int *x, int n) { x[0] = deeper(n); }
__global__ void zeros(int *x, int n) { memset(x, 0, n); }
__global__ void copies(int *x, int n)
{
    int own[4];
    memcpy(own, x, n);
    x[0] = own[3] + primes[2];
}
__global__ void asserts(const int *x)
{
    assert(x[threadIdx.x] < 3);
}
__global__ void spins(int *x, int n) { while (true) { n += 1; } }
__global__ void for_ever(int *x, int n) { for (;;) { } }
__global__ void never_ends(int *x, int n) { do { } while (n == n); }
__global__ void jumps(int *x, int n) { again: if (n) goto again; else x[0] = 1; }
__global__ void waits(int *x, int n) { while (true) __syncthreads(); }
__global__ void polls(int *x, int n) { while (x[0] == 0) { } }
__global__ void declares(int *x, int n)
{
    while (unsigned long left = x[0]) { x[0] = left - 1; }
    for (int k : {1, 2}) x[0] += k;
}
__global__ void counts_down(int *x, int n) { while (n-- > 0) x[0] = n; }
"""


@pytest.fixture(scope="module")
def good() -> Program:
    return lab.kernel(SOURCE)


def test_results_are_written_to_the_arrays(good: Program) -> None:
    x, y = f32(1000), np.zeros(1000, np.float32)
    good.scale[3, 64](x, y, 2, 1000)
    np.testing.assert_array_equal(y, 2 * x)
    good.scale[3, 64](x, x, np.float64(0.5), np.int64(1000))  # in place
    np.testing.assert_array_equal(x, f32(1000) / 2)


def test_every_kind_of_number_arrives(good: Program) -> None:
    to = np.zeros(1, np.uint8)
    good.index[1, 1](to, True, -3, 1 << 40, 0.5)
    assert to[0] == 6
    with pytest.raises(OverflowError, match="Python integer 40000 out of bounds for int16"):
        good.index[1, 1](to, True, 40000, 0, 0)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        good.index[1, 1](to, True, 1.5, 0, 0)
    with pytest.raises(OverflowError, match="out of bounds for uint64"):
        good.index[1, 1](to, True, 0, -1, 0)


def test_shared_arrays_outside_of_functions(good: Program) -> None:
    x = f32(64)
    good.reverse[1, 64, 256](x)
    np.testing.assert_array_equal(x, f32(64)[::-1] + 0.5)


def test_vector_types_and_halves(good: Program) -> None:
    y = lab.empty(8)
    good.packs[1, 8](f32(8, 4), y)
    np.testing.assert_array_equal(y, f32(8, 4).sum(1))
    x = np.zeros(4, np.float16)
    good.halves[1, 4](x, np.array([1, 7], np.int32))
    np.testing.assert_array_equal(x, np.full(4, 7, np.float16))
    with pytest.raises(ValueError, match="a multiple of 4 elements, not 7"):
        good.packs[1, 1](f32(7), y)


def test_arrays_of_the_simulator(good: Program) -> None:
    x = gpuopt.asdevice(f32(100), backend="sim")
    y = gpuopt.asdevice(np.zeros(100, np.float32), backend="sim")
    good.scale[1, 32](x, y, 3.0, 100)
    np.testing.assert_array_equal(y.numpy(), 3 * f32(100))


def test_what_an_argument_has_to_be(good: Program) -> None:
    x, y = f32(8), f32(8)
    with pytest.raises(TypeError, match=r"scale\(.*\) takes 4 arguments but 2 were given"):
        good.scale[1, 8](x, y)
    with pytest.raises(
        TypeError, match="argument 2, 'float \\*y', takes an array of float32, not"
    ):
        good.scale[1, 8](x, y.astype(np.float64), 1, 8)
    with pytest.raises(TypeError, match="takes an array, not list"):
        good.scale[1, 8]([1.0], y, 1, 8)
    with pytest.raises(ValueError, match="C-contiguous"):
        good.scale[1, 4](x[::2], y, 1, 4)
    y.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        good.scale[1, 8](x, y, 1, 8)
    good.scale[1, 8](y, x, 1, 8)  # const float *
    with pytest.raises(ValueError, match="'x' and 'y' overlap in memory"):
        good.scale[1, 4](x[1:5], x[2:6], 1, 4)
    with pytest.raises(ValueError, match="block must be at least 1"):
        good.scale[1, 0](x, f32(8), 1, 8)
    with pytest.raises(TypeError, match=r"needs a grid and a block: scale\[grid, block\]"):
        good.scale(x, x, 1, 8)
    with pytest.raises(TypeError, match="several kernels, name one: scale, index"):
        good[1, 8](x, x, 1, 8)
    with pytest.raises(AttributeError, match="no kernel 'scales'"):
        good.scales  # noqa: B018


def test_a_block_of_too_many_threads(good: Program) -> None:
    with pytest.raises(lab.KernelFault) as caught:
        good.scale[1, 2048](f32(8), f32(8), 1, 8)
    assert caught.value.kind == "invalid launch"


def test_the_result_is_that_of_the_first_schedule(good: Program) -> None:
    x = np.zeros(1, np.int32)
    good.first_wins.launch(1, 4, x, schedules=("ascending", "descending"))
    assert x[0] == 1
    x[0] = 0
    good.first_wins.launch(1, 4, x, schedules=("descending", "ascending"))
    assert x[0] == 4


def test_an_empty_array_has_to_be_filled(good: Program) -> None:
    with pytest.raises(lab.KernelFault, match="element 1 of 'x' was never written") as caught:
        good.half_filled[1, 4](lab.empty(8))
    assert caught.value.kind == "unwritten"
    x = lab.empty(8)
    good.scale[1, 8](f32(8), x, 1, 8)
    good.half_filled[1, 4](x)  # now it has values
    np.testing.assert_array_equal(x, [1, 1, 1, 3, 1, 5, 1, 7])


def test_the_limit_of_steps_is_the_threads_own(good: Program) -> None:
    x = np.zeros(1, np.int32)
    good.counts_down.launch(50, 1, x, 1000, max_steps=4000, check=False)
    with pytest.raises(lab.KernelFault, match="after 900 steps"):
        good.counts_down.launch(1, 1, x, 1000, max_steps=900)


def test_deep_recursion_does_not_end_the_process(good: Program) -> None:
    x = np.zeros(1, np.int32)
    good.recursive[1, 1](x, 100)
    assert x[0] == 100
    with pytest.raises(lab.KernelFault, match="stack overflow") as caught:
        good.recursive[1, 1](x, 1 << 20)
    assert "deeper" in caught.value.text


def test_functions_of_the_c_library_are_checked(good: Program) -> None:
    x = np.arange(4, dtype=np.int32)
    good.copies[1, 1](x, 16)
    assert x[0] == 3 + 5
    good.zeros[1, 1](x, 16)
    np.testing.assert_array_equal(x, 0)
    with pytest.raises(lab.KernelFault, match="0 bytes after the end of 'x'") as caught:
        good.zeros[1, 1](x, 1 << 30)
    assert "memset" in caught.value.text
    with pytest.raises(lab.KernelFault, match="race"):
        good.zeros[1, 2](x, 16)


def test_an_assertion_of_the_kernel(good: Program) -> None:
    good.asserts[1, 3](np.arange(3, dtype=np.int32))
    with pytest.raises(
        lab.KernelFault, match=r"assertion failed: x\[threadIdx.x\] < 3"
    ) as caught:
        good.asserts[1, 4](np.arange(4, dtype=np.int32))
    assert (caught.value.kind, caught.value.thread) == ("assertion", (3, 0, 0))
    assert caught.value.text == "assert(x[threadIdx.x] < 3);"


def test_a_grid_that_would_take_minutes(good: Program) -> None:
    with pytest.raises(lab.KernelFault, match=r"would take minutes.*; take a smaller grid"):
        good.scale[1 << 20, 1024](f32(8), f32(8), 1, 8)


@pytest.mark.parametrize("name", ["spins", "for_ever", "never_ends", "jumps", "waits", "polls"])
def test_a_loop_that_does_nothing_ends_too(good: Program, name: str) -> None:
    with pytest.raises(lab.KernelFault) as caught:
        good.kernels[name].launch(1, 40, np.zeros(1, np.int32), 1, max_steps=100_000)
    assert caught.value.kind == "endless loop"
    assert name in caught.value.text or not EXACT


def test_loops_that_the_source_declares_in(good: Program) -> None:
    x = np.array([5], np.int32)
    good.declares[1, 1](x, 0)
    assert x[0] == 3


# ---- counts ----

V0 = """\
__global__ void tree(const float *x, float *sums)
{
    __shared__ float s[256];
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) {
        if (t % (2 * k) == 0) {
            s[t] += s[t + k];
        }
        __syncthreads();
    }
    if (t == 0) {
        sums[blockIdx.x] = s[0];
    }
}
"""


def test_counts_are_those_of_the_rung_that_does_the_same() -> None:
    x = np.ones(1 << 14, np.float32)
    own = lab.kernel(V0).profile(64, 256, x, lab.empty(64))
    rung = profile("reduce", x, variant="v0")
    ours, theirs = own.kernels[0], rung.kernels[0]
    for name in ("blocks", "shared_requests", "shared_wavefronts", "barriers", "races"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [n.line for n in ours.lines if n.shared_requests] == [5, 9, 14]
    assert {n.file for n in ours.lines} == {"kernel.cu"}
    both = own + rung
    assert len(both) == 1 + len(rung)
    assert "own" in repr(both)
    assert "v0" in repr(both)


def test_counting_changes_no_array_and_refuses_a_wrong_kernel(planted: Program) -> None:
    x = f32(64)
    with pytest.raises(lab.KernelFault, match="race"):
        planted.no_barrier.profile(1, 64, x, f32(64))
    np.testing.assert_array_equal(x, f32(64))


# ---- errors of the compiler ----


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("__global__ void k(float *x)\n{\n    x[0] = y;\n}", 3, "'y'"),
        ("__global__ void k(short *x)\n{\n    atomicAdd(x, 1);\n}", 3, "no atomicAdd"),
        ("__global__ void k(float *x)\n{\n    float s;\n    s += x[0];\n    x[1] = s;\n}", 4,
         "uninitialized"),
        ("__device__ int f(int);\n__global__ void k(int *x)\n{\n    x[0] = f(1);\n}", 4,
         "is not defined"),
        ("#include <no_such.h>\n__global__ void k() {}", 1, "no_such.h"),
        ("__global__ void k(float *x)\n{\n    x[0] = 1\n}", 4, "expected ';'"),
        ("__global__ void k(int *x)\n{\n    int big[20000];\n    for (int i = 0; i < 99; i++)\n"
         "        big[i] = x[i];\n    x[0] = big[x[1]];\n}", 7, "frame size"),
    ],
)  # fmt: skip
def test_an_error_of_the_compiler_has_its_line(text: str, line: int, sentence: str) -> None:
    with pytest.raises(lab.CompileError, match=re.escape(sentence)) as caught:
        lab.kernel(text)
    if EXACT:
        assert abs(caught.value.line - line) <= (sentence == "expected ';'"), str(caught.value)
        assert caught.value.text == text.split("\n")[caught.value.line - 1]


def test_a_source_is_a_string() -> None:
    with pytest.raises(TypeError, match="source must be a str, not bytes"):
        lab.kernel(b"")  # type: ignore[arg-type]


def test_no_compiler_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(lab.CompileError, match="no C\\+\\+ compiler: 'g\\+\\+' is not on"):
        lab.kernel("__global__ void k() {}")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(lab.CompileError, match="'no-such-compiler' is not on the PATH"):
        lab.kernel("__global__ void k() {}")


# ---- on a GPU: tests/test_lab_kernel_gpu.py runs what needs one ----


@pytest.mark.parametrize("compiler", [nvcc.find()] if nvcc.find() else [])
def test_a_source_is_compiled_for_a_gpu(compiler: str) -> None:
    assert compiler
    path = on_gpu.compiled(Source(SOURCE), "sm_80")
    assert path.name.startswith("cuda-")
    with pytest.raises(lab.CompileError, match='"y" is undefined') as caught:
        on_gpu.compiled(Source("__global__ void k(float *x)\n{\n    *x = y;\n}"), "sm_80")
    assert (caught.value.line, caught.value.text) == (3, "    *x = y;")


def test_no_gpu_or_no_nvcc_is_a_sentence(
    good: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpuopt, "cuda_unavailable_reason", lambda: "no NVIDIA driver")
    with pytest.raises(
        gpuopt.CudaError, match="needs one, and nvcc or NVRTC: no NVIDIA driver"
    ):
        good.scale.time(1, 8, f32(8), f32(8), 1, 8)
    monkeypatch.setattr(gpuopt, "cuda_unavailable_reason", lambda: None)
    monkeypatch.setattr(nvcc, "find", lambda: None)
    monkeypatch.setattr(nvrtc, "find", lambda: None)
    with pytest.raises(gpuopt.CudaError, match="nvcc not found, and NVRTC"):
        good.scale.time(1, 8, f32(8), f32(8), 1, 8)


# ---- the cache ----


def test_a_source_is_compiled_once(good: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str]) -> None:
        raise AssertionError(command)

    monkeypatch.setattr(host_compiler, "_run", fail)
    again = lab.kernel(SOURCE)
    assert again._library(True).path == good._library(True).path
    with pytest.raises(AssertionError):
        lab.kernel(SOURCE + "\n__global__ void other() {}")


def test_a_cache_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("GPUOPT_CACHE_DIR", str(file))
    folder = host_compiler.cache()
    assert folder.is_dir()
    assert file not in folder.parents


# ---- the cell magic ----


@pytest.fixture
def shell() -> Any:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance(history_length=0)
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "gpuopt.lab")
    yield shell
    shell.run_line_magic("unload_ext", "gpuopt.lab")
    InteractiveShell.clear_instance()


def test_a_cell_of_cuda_defines_its_kernels(shell: Any, capsys: Any) -> None:
    cell = "%%cuda both\n__global__ void one(int *x) { *x = 1; }\n"
    assert shell.run_cell(cell + "__global__ void two(int *x) { *x = 2; }").success
    assert "<kernel two(int *x)>" in capsys.readouterr().out
    assert shell.run_cell("import numpy as np; x = np.zeros(1, np.int32); two[1, 1](x)").success
    assert shell.user_ns["x"][0] == 2
    assert shell.user_ns["both"].one is shell.user_ns["one"]


def test_a_wrong_cell_shows_its_line_alone(shell: Any) -> None:
    result = shell.run_cell("%%cuda\n__global__ void one(int *x)\n{\n    *x = y;\n}")
    assert type(result.error_in_exec).__name__ == "UsageError"
    assert re.fullmatch(r"line 3: .*'y'.*\n    \*x = y;", str(result.error_in_exec))
    result = shell.run_cell("%%cuda not a name\n__global__ void one(int *x) { }")
    assert "takes the name of a variable" in str(result.error_in_exec)


# ---- the flags of the real build ----


def test_flags_are_those_of_the_build() -> None:
    sys.path.insert(0, str(ROOT / "_build"))
    import simulator

    assert host_compiler.FLAGS == simulator.FLAGS
    assert host_compiler.LINES == simulator.LINES
    assert host_compiler.instrumentation(simulator.compiler()) == simulator.instrumentation()


def test_there_is_a_compiler() -> None:
    assert shutil.which(host_compiler.compiler()[0])
