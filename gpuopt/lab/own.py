"""Your own kernel: CUDA C++ from a string, run, checked and counted in the simulator.

`Program(source)` compiles the kernels of a source; `gpuopt.lab.kernel` is its short name.
Order: arrays that nothing has written, arguments, one kernel, a program.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpuopt import DeviceArray, asdevice
from gpuopt.lab import nvrtc, on_gpu, profile, timer, trace
from gpuopt.lab.cuda_source import CompileError, Source
from gpuopt.lab.simulated import Argument, KernelFault, Library, Parameter

__all__ = ["CompileError", "Kernel", "KernelFault", "Program", "empty"]

# Every launch runs in these orders of the threads: what holds in one may fail in another.
SCHEDULES = ("ascending", "shuffle", "descending")
MAX_STEPS = 1 << 26  # of one thread: some seconds


# ---- arrays that nothing has written ----


class _Empty(np.ndarray):
    """An array that has no values as long as it is fresh; its views and copies are not."""

    fresh = False


def empty(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """Make an array for a kernel to fill.

    Like the memory that cudaMalloc gives it has no values: a kernel that reads an element
    before it has written it, or leaves one unwritten, raises KernelFault.  After the first
    launch that fills it, it is an array like any other.
    """
    array = np.full(shape, 0, dtype).view(_Empty)
    array.fresh = True
    return array


# ---- arguments ----


def _dimensions(value: Any, what: str) -> tuple[int, int, int]:
    values = value if isinstance(value, tuple | list) else (value,)
    if not 1 <= len(values) <= 3:
        raise ValueError(f"{what} has 1 to 3 dimensions, not {len(values)}")
    numbers = [operator.index(v) for v in values]
    if any(not 1 <= n < 2**31 for n in numbers):
        raise ValueError(f"{what} must be at least 1 in every dimension, not {tuple(numbers)}")
    x, y, z = [*numbers, 1, 1][:3]
    return x, y, z


_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}


def _scalar(value: Any, p: Parameter, what: str) -> bytes:
    """The bytes of a number of the parameter's type."""
    if p.kind in "iu":
        if isinstance(value, float | np.floating):
            raise TypeError(
                f"{what}: '{type(value).__name__}' object cannot be interpreted as an integer"
            )
        number = operator.index(value)
        low, high = (
            (0, 2 ** (8 * p.bytes))
            if p.kind == "u"
            else (-(2 ** (8 * p.bytes - 1)), 2 ** (8 * p.bytes - 1))
        )
        if not low <= number < high:
            raise OverflowError(f"{what}: Python integer {number} out of bounds for {p.dtype}")
        code = _INTEGERS[p.bytes]
        return struct.pack(f"={code.upper() if p.kind == 'u' else code}", number)
    if p.kind == "b":
        return struct.pack("=?", bool(value))
    if p.kind == "f":
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError(f"{what} takes a number, not an array")
        return struct.pack(f"={_FLOATS[p.bytes]}", float(value))
    if p.kind == "g":  # bfloat16: rounded to nearest even
        bits = int(np.float32(value).view(np.uint32))
        return struct.pack("=H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    raise TypeError(f"{what} has a type that Python cannot pass: use numbers and pointers")


def _array(value: Any, p: Parameter, what: str) -> np.ndarray:
    if isinstance(value, DeviceArray):
        if value.backend != "sim":
            raise ValueError(
                f"{what} is on '{value.backend}', the kernel runs in the simulator"
            )
        value = value.numpy()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{what} takes an array, not {type(value).__name__}")
    if p.kind == "x":
        raise TypeError(f"{what} points to a type that has no dtype")
    if p.dtype is not None and value.dtype.name != p.dtype:
        raise TypeError(
            f"{what} takes an array of {p.dtype}, not of {value.dtype.name}: "
            f"use .astype('{p.dtype}')"
        )
    if not value.flags.c_contiguous:
        raise ValueError(f"{what} takes a C-contiguous array: use np.ascontiguousarray")
    if not p.constant and not value.flags.writeable:
        raise ValueError(f"{what}: assignment destination is read-only")
    if p.lanes > 1 and value.size % p.lanes:
        raise ValueError(f"{what} takes a multiple of {p.lanes} elements, not {value.size}")
    return value


def _on_gpu(value: Any, p: Parameter, what: str) -> bytes:
    """The address of an array on the GPU."""
    if not isinstance(value, DeviceArray) or value.backend != "cuda":
        where = f"on '{value.backend}'" if isinstance(value, DeviceArray) else "on the host"
        raise ValueError(f"{what} is {where}, another argument on 'cuda': use gpuopt.asdevice")
    if p.dtype is not None and np.dtype(value.dtype).name != p.dtype:
        raise TypeError(
            f"{what} takes an array of {p.dtype}, not of {np.dtype(value.dtype).name}"
        )
    described = value.__cuda_array_interface__
    if described["strides"] is not None:
        raise ValueError(f"{what} takes a C-contiguous array")
    return struct.pack("=Q", described["data"][0])


def _refuse_overlap(arguments: Sequence[Argument]) -> None:
    """Arrays may be the same, not overlap otherwise: on the device they would be apart."""
    arrays = [a for a in arguments if a.array is not None and a.array.nbytes]
    for i, a in enumerate(arrays):
        for b in arrays[i + 1 :]:
            assert a.array is not None
            assert b.array is not None
            same = (a.array.ctypes.data, a.array.nbytes) == (
                b.array.ctypes.data,
                b.array.nbytes,
            )
            if not same and np.may_share_memory(a.array, b.array):
                raise ValueError(f"'{a.name}' and '{b.name}' overlap in memory")


# ---- one kernel ----


class _Bound:
    """`kernel[grid, block]`, to be called."""

    def __init__(self, kernel: Kernel, grid: Any, block: Any, shared_bytes: int) -> None:
        self._launch = (kernel, grid, block, shared_bytes)

    def __call__(self, *arguments: Any) -> None:
        kernel, grid, block, shared_bytes = self._launch
        kernel.launch(grid, block, *arguments, shared_bytes=shared_bytes)


class Kernel:
    """One `__global__` function.

    `kernel[grid, block](x, y, n)` runs it in the simulator on NumPy arrays, which it
    changes, or on DeviceArrays; on DeviceArrays of a GPU it runs there, unchecked.  Grid
    and block are numbers or tuples of up to three.
    A third value, `kernel[grid, block, bytes]`, is the dynamic shared memory.
    """

    def __init__(self, program: Program, number: int) -> None:
        self._program, self._number = program, number
        self._written = program.source.kernels[number]
        self.name = self._written.name
        self.__name__ = self.name
        self._parameters = program._library(checked=True).parameters(number)

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(self._written.parameters)})>"

    def __getitem__(self, launch: Any) -> _Bound:
        if not isinstance(launch, tuple) or len(launch) not in (2, 3):
            raise TypeError(f"write {self.name}[grid, block](...)")
        grid, block, shared_bytes = (*launch, 0)[:3]
        return _Bound(self, grid, block, operator.index(shared_bytes))

    def __call__(self, *arguments: Any) -> None:
        raise TypeError(f"a kernel needs a grid and a block: {self.name}[grid, block](...)")

    def _count(self, values: Sequence[Any]) -> None:
        wanted = len(self._parameters)
        if len(values) != wanted:
            listed = ", ".join(self._written.parameters)
            raise TypeError(
                f"{self.name}({listed}) takes {wanted} argument{'s' * (wanted != 1)} but "
                f"{len(values)} {'was' if len(values) == 1 else 'were'} given"
            )

    def _what(self, i: int) -> str:
        return f"{self.name}: argument {i + 1}, '{self._written.parameters[i]}',"

    def _arguments(self, values: Sequence[Any]) -> list[Argument]:
        self._count(values)
        arguments = []
        for i, (value, p) in enumerate(zip(values, self._parameters, strict=True)):
            name = self._written.names[i] or f"argument {i + 1}"
            what = self._what(i)
            if p.pointer:
                array = _array(value, p, what)
                fresh = isinstance(value, _Empty) and value.fresh
                arguments.append(Argument(name, array, b"", not p.constant, fresh))
            else:
                arguments.append(Argument(name, None, _scalar(value, p, what)))
        _refuse_overlap(arguments)
        return arguments

    def launch(
        self,
        grid: Any,
        block: Any,
        *arguments: Any,
        shared_bytes: int = 0,
        check: bool = True,
        schedules: Sequence[str] = SCHEDULES,
        max_steps: int = MAX_STEPS,
    ) -> None:
        """Run the kernel and write its results to the arrays.

        shared_bytes : dynamic shared memory of a block, for an `extern __shared__` array.
        check : whether every access is checked, and the kernel run in all of `schedules`.
        schedules : orders of the threads; the results are those of the first.
        max_steps : a thread that executes more pieces of code is in an endless loop.

        Raises KernelFault, and then leaves the arrays as they were.
        """
        grid, block = _dimensions(grid, "grid"), _dimensions(block, "block")
        shared_bytes = operator.index(shared_bytes)
        if any(isinstance(a, DeviceArray) and a.backend == "cuda" for a in arguments):
            values = self._values(arguments)
            gpu = self._program._gpu_library()
            gpu.launch(self.name, self._number, grid, block, shared_bytes, values)
            gpu.wait(self.name)
            return
        converted = self._arguments(arguments)
        library = self._program._library(checked=True)
        results = None
        for schedule in schedules if check else schedules[:1]:
            written, _ = library.launch(
                self._number, grid, block, shared_bytes, converted, max_steps,
                schedule, checks=check,
            )  # fmt: skip
            results = written if results is None else results
        if results is None:
            raise ValueError("schedules is empty")
        self._give_back(arguments, results)

    def _values(self, arguments: Sequence[Any]) -> list[bytes]:
        """The arguments of a launch on a GPU."""
        self._count(arguments)
        return [
            (_on_gpu if p.pointer else _scalar)(value, p, self._what(i))
            for i, (value, p) in enumerate(zip(arguments, self._parameters, strict=True))
        ]

    def time(
        self, grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0, cold: bool = True
    ) -> timer.Timing:
        """Time the kernel on the GPU, with a cold L2 if `cold`, as gpuopt's own are timed.

        NumPy arrays are copied there first and stay as they are.  The kernel runs many times
        on the same memory: one that adds to an array goes on adding.
        """
        grid, block = _dimensions(grid, "grid"), _dimensions(block, "block")
        gpu = self._program._gpu_library()
        placed = [asdevice(a) if isinstance(a, np.ndarray) else a for a in arguments]
        values = self._values(placed)
        launch = (self.name, self._number, grid, block, operator.index(shared_bytes), values)
        gpu.launch(*launch)
        gpu.wait(self.name)
        clock = timer.EventClock()
        return timer.measure(lambda: gpu.launch(*launch), device="cuda", cold=cold, clock=clock)

    def _give_back(self, arguments: Sequence[Any], results: dict[int, np.ndarray]) -> None:
        for i, result in results.items():
            target = arguments[i]
            if isinstance(target, DeviceArray):
                target.copy_from(result)
            else:
                target[...] = result
                if isinstance(target, _Empty):
                    target.fresh = False

    def profile(
        self, grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0,
        max_steps: int = MAX_STEPS,
    ) -> profile.Profile:  # fmt: skip
        """Count what the kernel does, by line, as `gpuopt.lab.profile.profile` does.

        The arrays stay as they are.  `own.profile(...) + profile("reduce", x)` shows both.
        Raises KernelFault if the kernel is wrong.
        """
        grid, block = _dimensions(grid, "grid"), _dimensions(block, "block")
        converted = self._arguments(arguments)
        launch = (self._number, grid, block, operator.index(shared_bytes), converted, max_steps)
        self._program._library(checked=True).launch(*launch)
        counted = self._program._library(checked=False)
        _, records = counted.launch(*launch, checks=False, profile=True)
        return profile.Profile(self.name, profile._kernels("own", records))

    def trace(
        self, grid: Any, block: Any, *arguments: Any, shared_bytes: int = 0,
        max_steps: int = MAX_STEPS, first_block: int = 0, blocks: int = 1,
    ) -> trace.Trace:  # fmt: skip
        """Keep every request of some blocks, for `gpuopt.lab.plot_banks` and its like.

        first_block, blocks : the first block whose requests are kept, and how many.
        The arrays stay as they are.  Raises KernelFault if the kernel is wrong.
        """
        grid, block = _dimensions(grid, "grid"), _dimensions(block, "block")
        converted = self._arguments(arguments)
        launch = (self._number, grid, block, operator.index(shared_bytes), converted, max_steps)
        self._program._library(checked=True).launch(*launch)
        recorder = trace.Recorder(first_block, blocks)
        library = self._program._library(checked=False)
        library.launch(*launch, checks=False, profile=True, recorder=recorder)
        return recorder.trace(self.name)


# ---- a program ----


class Program:
    """The kernels of one source, by name: `program.scale[grid, block](x, n)`.

    A program of one kernel can be used as that kernel.
    """

    def __init__(self, source: str) -> None:
        if not isinstance(source, str):
            raise TypeError(f"source must be a str, not {type(source).__name__}")
        self.source = Source(source)
        self._libraries: dict[bool, Library] = {}
        self._gpu: on_gpu.GpuLibrary | nvrtc.Module | None = None
        self.kernels = {
            k.name: Kernel(self, i) for i, k in enumerate(self.source.kernels)
        }  # fmt: skip

    def _library(self, checked: bool) -> Library:
        if checked not in self._libraries:
            self._libraries[checked] = Library(self.source, checked)
        return self._libraries[checked]

    def _gpu_library(self) -> on_gpu.GpuLibrary | nvrtc.Module:
        if self._gpu is None:
            self._gpu = on_gpu.library(self.source)
        return self._gpu

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.kernels.values()))

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels.values())

    def __getattr__(self, name: str) -> Kernel:
        kernels: dict[str, Kernel] = self.__dict__.get("kernels", {})
        if name not in kernels:
            raise AttributeError(
                f"the source has no kernel '{name}'; it has {', '.join(kernels)}"
            )
        return kernels[name]

    @property
    def _only(self) -> Kernel:
        if len(self.kernels) > 1:
            raise TypeError(
                f"the source has several kernels, name one: {', '.join(self.kernels)}"
            )
        return next(iter(self.kernels.values()))

    def __getitem__(self, launch: Any) -> _Bound:
        return self._only[launch]

    def launch(self, grid: Any, block: Any, *arguments: Any, **options: Any) -> None:
        """Run the only kernel; see Kernel.launch."""
        self._only.launch(grid, block, *arguments, **options)

    def profile(
        self, grid: Any, block: Any, *arguments: Any, **options: Any
    ) -> profile.Profile:
        """Count what the only kernel does; see Kernel.profile."""
        return self._only.profile(grid, block, *arguments, **options)

    def trace(self, grid: Any, block: Any, *arguments: Any, **options: Any) -> trace.Trace:
        """As Kernel.trace, for a program of one kernel."""
        return self._only.trace(grid, block, *arguments, **options)

    def time(self, grid: Any, block: Any, *arguments: Any, **options: Any) -> timer.Timing:
        """Time the only kernel on the GPU; see Kernel.time."""
        return self._only.time(grid, block, *arguments, **options)
