"""The same source on a GPU: compiled by nvcc or NVRTC, launched on the default stream, timed.

Nothing is checked there: run a kernel in the simulator first.  Libraries are kept where
host_compiler.py keeps those of the simulator; what NVRTC makes is not kept.
Order: the translation unit, compiling, launching, nvcc or NVRTC.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import gpuopt
from gpuopt import CudaError
from gpuopt.lab import host_compiler, nvcc, nvrtc
from gpuopt.lab.cuda_source import FILE, CompileError, Source

_TAIL = """\
#line 1 "tail.cu"
static const void *const gpo_lab_kernels[] = {{{kernels}}};

extern "C" int
gpo_lab_launch(int kernel, const unsigned grid[3], const unsigned block[3],
               size_t shared_bytes, void **arguments)
{{
    const void *function = gpo_lab_kernels[kernel];
    if (shared_bytes > 32 << 10) {{
        (void)cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)shared_bytes);
    }}
    return cudaLaunchKernel(function, dim3(grid[0], grid[1], grid[2]),
                            dim3(block[0], block[1], block[2]), arguments, shared_bytes,
                            (cudaStream_t)0);
}}

extern "C" int
gpo_lab_wait(void)
{{
    return cudaDeviceSynchronize();
}}

extern "C" const char *
gpo_lab_sentence(int code)
{{
    return cudaGetErrorString((cudaError_t)code);
}}
"""


def unit(source: Source) -> str:
    """The translation unit for nvcc: the source as it is, and a function to launch it.

    The C library, which nvcc includes first, has functions of some names (`index`): a
    kernel is called `index_kernel` there.
    """
    renamed = "".join(f"#define {k.name} {k.name}_kernel\n" for k in source.kernels)
    names = ", ".join(f"(const void *){k.scope}{k.name}" for k in source.kernels)
    tail = _TAIL.format(kernels=names)
    return f'{renamed}#line 1 "{FILE}"\n{source.text}{tail}'


_ERROR = re.compile(rf"^{re.escape(FILE)}\((\d+)\): error:? (.*)$", re.M)


def compiled(source: Source, arch: str = "native") -> Path:
    """The library of a source for a GPU.

    Raises CompileError with the line of the source.
    """
    compiler = nvcc.find()
    if compiler is None:
        raise CompileError("nvcc not found: kernels for a GPU need CUDA's compiler")
    text = unit(source)
    named = f"{compiler}{nvcc.version()}{arch}{gpuopt.__version__}{text}"
    seen = hashlib.sha256(named.encode()).hexdigest()[:24]

    def make(output: Path) -> None:
        file = output.with_suffix(".cu")
        file.write_text(text, encoding="utf-8")
        flags = ["-std=c++17", "-O3", "-lineinfo", f"-arch={arch}", "-shared"]
        flags += ["-Xcompiler", "-fPIC"]
        done = host_compiler._run([compiler, *flags, "-o", str(output), str(file)])
        if done.returncode:
            found = _ERROR.search(done.stderr)
            if not found:
                first = done.stderr.strip().partition("\n")[0]
                raise CompileError(f"nvcc failed: {first}", output=done.stderr)
            raise source.error(found[2], int(found[1]), done.stderr)

    return host_compiler._make(host_compiler.cache() / f"cuda-{seen}.so", make)


class GpuLibrary:
    """One source, compiled by nvcc for the GPU of this machine."""

    def __init__(self, source: Source) -> None:
        self._c = ctypes.CDLL(str(compiled(source)))
        self._c.gpo_lab_launch.argtypes = [
            ctypes.c_int,
            ctypes.c_uint * 3,
            ctypes.c_uint * 3,
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_void_p),
        ]
        self._c.gpo_lab_sentence.restype = ctypes.c_char_p

    def launch(
        self,
        name: str,
        number: int,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int,
        values: Sequence[bytes],
    ) -> None:
        """Queue a kernel; each value is the bytes of an argument, an array's its address."""
        kept = [ctypes.create_string_buffer(v, max(len(v), 1)) for v in values]
        table = (ctypes.c_void_p * max(len(kept), 1))(*map(ctypes.addressof, kept))
        sizes = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
        self._check(name, self._c.gpo_lab_launch(number, *sizes, shared_bytes, table))

    def wait(self, name: str) -> None:
        """Wait until the kernel has ended, and raise what went wrong in it."""
        self._check(name, self._c.gpo_lab_wait())

    def _check(self, name: str, code: int) -> None:
        if code:
            raise CudaError(f"{name}: {self._c.gpo_lab_sentence(code).decode()}")


# ---- nvcc or NVRTC ----


def library(source: Source) -> GpuLibrary | nvrtc.Module:
    """Compile a source for the GPU of this machine: by nvcc if it is there, else by NVRTC.

    Raises CudaError where there is no GPU or neither of them.
    """
    reason = gpuopt.cuda_unavailable_reason()
    if reason is None and nvcc.unavailable() is None:
        return GpuLibrary(source)
    if reason is None and nvrtc.find():
        return nvrtc.Module(source)
    reason = reason or "nvcc not found, and NVRTC (pip install nvidia-cuda-nvrtc) not either"
    raise CudaError(f"a kernel on a GPU needs one, and nvcc or NVRTC: {reason}")
