"""Sources for a GPU compiled without nvcc: by NVRTC, a library, and launched by the driver.

NVRTC comes with the CUDA toolkit, with the package nvidia-cuda-nvrtc, and with torch.  It
reads no headers of the host; a prelude has what kernels use of them.
Order: finding the library, what it reads, compiling, the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuopt import CudaError
from gpuopt.lab.cuda_source import FILE, CompileError, Source

# ---- finding the library ----


def _folders() -> Iterator[Path]:
    """Where the library may be: the toolkit, Python packages, the environment."""
    named = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    for home in (*named, "/usr/local/cuda"):
        yield from (Path(home) / "lib64", Path(home) / "lib")
    spec = importlib.util.find_spec("nvidia")
    for place in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(place).glob("*/lib"), reverse=True)
    yield Path(sys.prefix) / "lib"


def find() -> Path | None:
    """The path of NVRTC; None if there is none."""
    found = (p for folder in _folders() for p in sorted(folder.glob("libnvrtc.so*")))
    return next(found, None)


@functools.cache
def _library(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


# ---- what it reads ----

_INTEGERS = "".join(
    f"typedef {sign} {kind} {mark}int{bits}_t;\n"
    for sign, mark in (("signed", ""), ("unsigned", "u"))
    for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long long", 64))
)
_PRELUDE = f"""{_INTEGERS}
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define M_PI 3.14159265358979323846
#define INT_MAX 2147483647
#define INT_MIN (-INT_MAX - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define FLT_MAX 3.402823466e+38f
#define FLT_EPSILON 1.192092896e-7f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_EPSILON 2.2204460492503131e-16"""
_NAMES = ["assert", "float", "limits", "math", "stddef", "stdint", "stdio", "stdlib", "string"]
#: Headers whose declarations stand in the prelude or are built into NVRTC.
HEADERS = ["cuda_runtime.h", *(f"{n}.h" for n in _NAMES), *(f"c{n}" for n in _NAMES)]

# ---- compiling ----

_ERROR = re.compile(rf"^{re.escape(FILE)}\((\d+)\): (?:catastrophic )?error:? (.*)$", re.M)


def _text(library: Any, program: Any, what: str) -> bytes:
    """The log, the machine code or the PTX of a program."""
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    getattr(library, f"nvrtcGet{what}")(program, text)
    return text.raw[: size.value]


def _target(library: Any, capability: int) -> tuple[str, str]:
    """The architecture to compile for, and what to take: PTX for GPUs newer than NVRTC."""
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    known = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(known)
    if capability in known:
        return f"sm_{capability}", "CUBIN"
    older = [number for number in known if number < capability]
    if not older:
        raise CompileError(f"this NVRTC does not compile for sm_{capability}")
    return f"compute_{max(older)}", "PTX"


def _refuse(library: Any, code: int) -> None:
    if code:
        raise CompileError(f"NVRTC failed: {library.nvrtcGetErrorString(code).decode()}")


def compiled(source: Source, capability: int) -> tuple[bytes, list[bytes]]:
    """The code of a source for a compute capability (90), and its kernels' names in it.

    Raises CompileError with the line of the source.
    """
    path = find()
    if path is None:
        raise CompileError("neither nvcc nor NVRTC found: kernels for a GPU need one")
    library, program = _library(path), ctypes.c_void_p()
    text = f'{_PRELUDE}\n#line 1 "{FILE}"\n{source.text}\n'
    strings = ctypes.c_char_p * len(HEADERS)
    _refuse(library, library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), FILE.encode(), len(HEADERS),
        strings(*[b""] * len(HEADERS)), strings(*map(str.encode, HEADERS)),
    ))  # fmt: skip
    try:
        arch, kind = _target(library, capability)
        include = path.parent.parent / "include"
        options = [f"--gpu-architecture={arch}", "--std=c++17", "-lineinfo", f"-I{include}"]
        kernels = [f"{k.scope}{k.name}".encode() for k in source.kernels]
        for kernel in kernels:
            _refuse(library, library.nvrtcAddNameExpression(program, kernel))
        given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
        if code := library.nvrtcCompileProgram(program, len(options), given):
            log = _text(library, program, "ProgramLog").rstrip(b"\0").decode()
            if found := _ERROR.search(log):
                raise source.error(found[2], int(found[1]), log)
            _refuse(library, code)
        names = [ctypes.c_char_p() for _ in kernels]
        for kernel, name in zip(kernels, names, strict=True):
            _refuse(library, library.nvrtcGetLoweredName(program, kernel, ctypes.byref(name)))
        return _text(library, program, kind), [bytes(name.value or b"") for name in names]
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


# ---- the driver ----

_MAJOR, _MINOR, _MAX_DYNAMIC_SHARED = 75, 76, 8  # CUdevice_attribute, CUfunction_attribute


class Module:
    """One source, compiled by NVRTC for device 0; as on_gpu.GpuLibrary."""

    def __init__(self, source: Source, driver: str = "libcuda.so.1") -> None:
        self._c = ctypes.CDLL(driver)
        self._home = ctypes.c_void_p()  # the context of the CUDA runtime and its arrays
        self._call("", "cuInit", 0)
        self._call("", "cuDevicePrimaryCtxRetain", ctypes.byref(self._home), 0)
        major, minor, module = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self._call("", "cuDeviceGetAttribute", ctypes.byref(major), _MAJOR, 0)
        self._call("", "cuDeviceGetAttribute", ctypes.byref(minor), _MINOR, 0)
        code, names = compiled(source, 10 * major.value + minor.value)
        self._functions = [ctypes.c_void_p() for _ in names]
        with self._current():
            self._call("", "cuModuleLoadData", ctypes.byref(module), code)
            for own, name in zip(self._functions, names, strict=True):
                self._call("", "cuModuleGetFunction", ctypes.byref(own), module, name)

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """Make the context this thread's for a while."""
        self._call("", "cuCtxPushCurrent_v2", self._home)
        try:
            yield
        finally:
            self._call("", "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def launch(
        self, name: str, number: int, grid: Sequence[int], block: Sequence[int],
        shared_bytes: int, values: Sequence[bytes],
    ) -> None:  # fmt: skip
        """Queue a kernel; each value is the bytes of an argument, an array's its address."""
        kept = [ctypes.create_string_buffer(v, max(len(v), 1)) for v in values]
        table = (ctypes.c_void_p * max(len(kept), 1))(*map(ctypes.addressof, kept))
        sizes = [ctypes.c_uint(size) for size in (*grid, *block, shared_bytes)]
        own = self._functions[number]
        with self._current():
            if shared_bytes > 32 << 10:  # where it is too much, the launch says so
                self._c.cuFuncSetAttribute(own, _MAX_DYNAMIC_SHARED, shared_bytes)
            self._call(name, "cuLaunchKernel", own, *sizes, None, table, None)

    def wait(self, name: str) -> None:
        """Wait until the kernel has ended, and raise what went wrong in it."""
        with self._current():
            self._call(name, "cuCtxSynchronize")

    def _call(self, name: str, function: str, *arguments: Any) -> None:
        if code := getattr(self._c, function)(*arguments):
            sentence = ctypes.c_char_p()
            self._c.cuGetErrorString(code, ctypes.byref(sentence))
            known = (sentence.value or b"unknown error").decode()
            raise CudaError(f"{name or function}: {known}")
