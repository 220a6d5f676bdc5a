"""Your own kernel on a GPU without nvcc: compiled by NVRTC, launched by the driver.

Order: compiling (where NVRTC is found; lines and sentences are nvcc's), the driver (a library
that notes its calls), which compiler is taken, launches on a GPU (where there is one).
"""

from __future__ import annotations

import ctypes
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_faults import FAULTS
from test_lab_kernel import SOURCE

import gpuopt
from gpuopt import lab
from gpuopt.lab import nvcc, nvrtc, on_gpu
from gpuopt.lab import puzzles as puzzles_module
from gpuopt.lab.cuda_source import CompileError, Source
from gpuopt.lab.own import Program
from gpuopt.lab.puzzles import puzzles

SOLUTIONS = Path(puzzles_module.__file__).with_name("puzzle_solutions.cu").read_text("utf-8")
ON_GPU = gpuopt.backends()["cuda"] is None
FOUND = [nvrtc.find()] if nvrtc.find() else []
# ptxas refuses one of the planted faults
COMPILED = [fault.source for fault in FAULTS if fault.name != "too_much"]
each_nvrtc = pytest.mark.parametrize("path", FOUND, ids=str)

# ---- compiling ----


@each_nvrtc
@pytest.mark.parametrize("text", [SOURCE, SOLUTIONS, *COMPILED])
def test_what_nvcc_compiles_is_compiled(path: Path, text: str) -> None:
    source = Source(text)
    code, names = nvrtc.compiled(source, 90)
    assert code[:4] == b"\x7fELF"
    assert len(names) == len(source.kernels)
    for kernel, name in zip(source.kernels, names, strict=True):
        assert kernel.name.encode() in name
        assert name in code


@each_nvrtc
def test_a_gpu_newer_than_nvrtc_gets_ptx(path: Path) -> None:
    code, names = nvrtc.compiled(Source("__global__ void k(float *x)\n{\n    *x = 1;\n}"), 99)
    assert b".target sm_90" in code
    assert names == [b"_Z1kPf"]
    with pytest.raises(CompileError, match="this NVRTC does not compile for sm_10"):
        nvrtc.compiled(Source("__global__ void k(float *x)\n{\n    *x = 1;\n}"), 10)


WRONG = {
    "undeclared": "__global__ void k(float *x)\n{\n    *x = y;\n}",
    "semicolon": "__global__ void k(float *x)\n{\n    x[0] = 1\n    x[1] = 2;\n}",
    "type": "__global__ void k(float *x)\n{\n    int *p = x;\n    *p = 1;\n}",
    "argument": "__device__ int f(int a);\n\n__global__ void k(int *x)\n{\n    *x = f();\n}",
    "macro": "#define ONE 1\n\n// a comment\n__global__ void k(int *x)\n{ *x = ONE + two; }",
    "const": "__global__ void k(const int *x)\n{\n\n    x[0] = 1;\n}",
    "twice": "__global__ void k(int *x)\n{\n    int a = 1;\n    int a = 2;\n    *x = a;\n}",
    "constexpr": '__global__ void k(int *x)\n{\n    static_assert(sizeof(*x) == 8, "no");\n}',
}


@each_nvrtc
@pytest.mark.parametrize("name", WRONG)
def test_errors_name_the_line(
    path: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CompileError) as ours:
        nvrtc.compiled(Source(WRONG[name]), 90)
    assert ours.value.line > 1
    assert ours.value.text == WRONG[name].split("\n")[ours.value.line - 1]
    if nvcc.find():
        monkeypatch.setenv("GPUOPT_CACHE_DIR", str(tmp_path))
        with pytest.raises(CompileError) as theirs:
            on_gpu.compiled(Source(WRONG[name]), "sm_90")
        assert ours.value.line == theirs.value.line
        assert ours.value.sentence == theirs.value.sentence


@each_nvrtc
def test_a_header_that_is_not_there_is_an_error_of_its_line(path: Path) -> None:
    text = "#include <cstdint>\n#include <nothing.h>\n__global__ void k(int *x) { *x = 1; }"
    with pytest.raises(CompileError, match=r"open source file \"nothing\.h\"") as e:
        nvrtc.compiled(Source(text), 90)
    assert e.value.line == 2


VALUES = {
    "sizeof(int8_t) + sizeof(int16_t) + sizeof(int32_t) + sizeof(int64_t)": "15",
    "uint8_t(-1)": "255",
    "uint16_t(-1)": "65535",
    "uint32_t(-1)": "4294967295u",
    "uint64_t(-1)": "18446744073709551615ull",
    "INT_MAX": "2147483647",
    "INT_MIN": "-2147483648ll",
    "UINT_MAX": "4294967295u",
    "LLONG_MAX": "9223372036854775807ll",
    "FLT_MAX": "0x1.fffffep127f",
    "FLT_EPSILON": "0x1p-23f",
    "DBL_MAX": "0x1.fffffffffffffp1023",
    "DBL_EPSILON": "0x1p-52",
    "M_PI": "0x1.921fb54442d18p1",
}


@each_nvrtc
def test_the_prelude_declares_what_the_headers_do(path: Path, tmp_path: Path) -> None:
    """The same assertions compile with nvcc and the host's headers."""
    names = ("cfloat", "climits", "cmath", "cstdint", "float.h", "stdint.h", "cuda_runtime.h")
    lines = [f"#include <{name}>" for name in names]
    lines += [f'static_assert({have} == {want}, "");' for have, want in VALUES.items()]
    lines += ["__global__ void k(float *x) { x[0] = INFINITY; x[1] = NAN; }"]
    text = "\n".join(lines)
    assert nvrtc.compiled(Source(text), 90)[1] == [b"_Z1kPf"]
    if nvcc.find():
        file = tmp_path / "same.cu"
        file.write_text(text, encoding="utf-8")
        nvcc.compile_library(file, "sm_90")


def test_without_nvrtc_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_folders", lambda: iter([Path("/no/such/folder")]))
    assert nvrtc.find() is None
    with pytest.raises(CompileError, match="neither nvcc nor NVRTC found"):
        nvrtc.compiled(Source("__global__ void k() {}"), 90)


def test_nvrtc_of_a_python_package_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    library.with_name("libnvrtc-builtins.so.13.0").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert library in [p for f in nvrtc._folders() for p in f.glob("libnvrtc.so*")]
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "nvidia" / "cu13"))
    assert nvrtc.find() == library


# ---- the driver ----

DRIVER = """
#include <stdio.h>
#include <string.h>

static int depth;
char notes[4096];
int refuse;

#define NOTE(...) snprintf(notes + strlen(notes), sizeof notes - strlen(notes), __VA_ARGS__)

int cuInit(unsigned flags) { return flags; }
int cuDevicePrimaryCtxRetain(void **c, int device) { *c = (void *)0x1234567890; return device; }
int cuDeviceGetAttribute(int *v, int kind, int device)
{
    *v = kind == 75 ? 9 : 1;
    return device;
}
int cuCtxPushCurrent_v2(void *c) { depth += c == (void *)0x1234567890; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = 0; depth--; return 0; }
int cuModuleLoadData(void **m, const char *code)
{
    NOTE("load %s at %d;", code, depth);
    *m = (void *)0x2234567890;
    return 0;
}
int cuModuleGetFunction(void **f, void *m, const char *name)
{
    NOTE("get %s;", name);
    *f = (void *)((unsigned long long)m + strlen(name));
    return 0;
}
int cuFuncSetAttribute(void *f, int kind, int value)
{
    NOTE("set %llx %d %d;", (unsigned long long)f, kind, value);
    return 0;
}
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **arguments, void **extra)
{
    NOTE("launch %llx %u %u %u %u %u %u %u %p %p at %d: %llx %g;", (unsigned long long)f,
         gx, gy, gz, bx, by, bz, shared, stream, (void *)extra, depth,
         *(unsigned long long *)arguments[0], *(float *)arguments[1]);
    return refuse;
}
int cuCtxSynchronize(void) { NOTE("wait at %d;", depth); return refuse; }
int cuGetErrorString(int code, const char **text)
{
    *text = code == 1 ? "invalid argument" : 0;
    return code != 1;
}
int how_deep(void) { return depth; }
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("driver") / "driver.c"
    file.write_text(DRIVER, encoding="utf-8")
    command = ["cc", "-shared", "-fPIC", "-w", "-o", str(file.with_suffix(".so")), str(file)]
    subprocess.run(command, check=True)
    return file.with_suffix(".so")


def test_a_launch_reaches_the_driver(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compiled(source: Source, capability: int) -> tuple[bytes, list[bytes]]:
        asked.append(capability)
        return b"code", [b"first", b"second_"]

    monkeypatch.setattr(nvrtc, "compiled", compiled)
    module = nvrtc.Module(Source("__global__ void k() {}"), str(driver))
    library = ctypes.CDLL(str(driver))
    notes = ctypes.c_char.in_dll(library, "notes")
    refuse = ctypes.c_int.in_dll(library, "refuse")

    def noted() -> str:
        text = ctypes.string_at(ctypes.addressof(notes)).decode()
        ctypes.memset(ctypes.addressof(notes), 0, 1)
        return text

    assert asked == [91]
    assert noted() == "load code at 1;get first;get second_;"
    values = [struct.pack("=Q", 0xFEDCBA9876543210), struct.pack("=f", 2.5)]
    module.launch("k", 1, (70000, 2, 3), (4, 5, 6), 7, values)
    launch = "launch 2234567897 70000 2 3 4 5 6 {} (nil) (nil) at 1: fedcba9876543210 2.5;"
    assert noted() == launch.format(7)
    module.launch("k", 1, (70000, 2, 3), (4, 5, 6), 65536, values)
    assert noted() == f"set 2234567897 8 65536;{launch.format(65536)}"
    module.wait("k")
    assert noted() == "wait at 1;"
    refuse.value = 1
    with pytest.raises(gpuopt.CudaError, match="k: invalid argument"):
        module.launch("k", 0, (1, 1, 1), (1, 1, 1), 0, values)
    refuse.value = 77
    with pytest.raises(gpuopt.CudaError, match="k: unknown error"):
        module.wait("k")
    assert library.how_deep() == 0  # each context that was pushed is popped


# ---- which compiler is taken ----


def test_nvcc_is_taken_before_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpuopt, "cuda_unavailable_reason", lambda: None)
    monkeypatch.setattr(on_gpu, "GpuLibrary", lambda source: "nvcc's")
    monkeypatch.setattr(nvrtc, "Module", lambda source: "NVRTC's")
    source: Any = None
    monkeypatch.setattr(nvrtc, "find", lambda: Path("libnvrtc.so"))
    monkeypatch.setattr(nvcc, "find", lambda: "nvcc")
    assert on_gpu.library(source) == "nvcc's"
    monkeypatch.setattr(nvcc, "find", lambda: None)
    assert on_gpu.library(source) == "NVRTC's"
    monkeypatch.setattr(nvrtc, "find", lambda: None)
    with pytest.raises(gpuopt.CudaError, match="nvcc not found, and NVRTC"):
        on_gpu.library(source)


# ---- launches on a GPU ----


@pytest.fixture
def by_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "find", lambda: None)


@pytest.fixture(scope="module")
def solutions() -> Program:
    return lab.kernel(SOLUTIONS)


@pytest.mark.parametrize("p", puzzles if ON_GPU and FOUND else [], ids=lambda p: p.name)
def test_an_answer_is_right_on_a_gpu(p: Any, solutions: Program, by_nvrtc: None) -> None:
    kernel = solutions.kernels[p.name]
    for case in p.cases():
        values = [
            gpuopt.asdevice(np.asarray(a), backend="cuda") if isinstance(a, np.ndarray) else a
            for a in case.fresh()
        ]
        kernel.launch(case.grid, case.block, *values, shared_bytes=case.shared_bytes)
        for i, expected in case.expected.items():
            np.testing.assert_array_equal(values[i].numpy(), expected)
    assert isinstance(solutions._gpu, nvrtc.Module)


@pytest.mark.parametrize("path", FOUND if ON_GPU else [])
def test_a_launch_that_the_gpu_refuses(path: Path, by_nvrtc: None) -> None:
    program = lab.kernel("__global__ void one(float *x)\n{\n    x[threadIdx.x] = 1;\n}")
    x = gpuopt.asdevice(np.zeros(8, np.float32), backend="cuda")
    with pytest.raises(gpuopt.CudaError, match="one: invalid"):
        program[1, 2048](x)
    program[1, 8](x)  # the next one goes
    np.testing.assert_array_equal(x.numpy(), np.ones(8, np.float32))
    assert program.time(1, 8, np.zeros(8, np.float32)).min > 0
