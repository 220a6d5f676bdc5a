"""Libraries of compiled sources: arrays copied to the simulator, launches, counts, faults.

`Library(source, checked)` loads what host_compiler.py makes; `launch` runs one kernel on
NumPy arrays.  A fault is a KernelFault, which names the line of the source.
Order: the C structures, faults, the library.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gpuopt import OutOfMemoryError, SimulatorError
from gpuopt.lab import host_compiler
from gpuopt.lab.cuda_source import FILE, Source
from gpuopt.lab.profile import Counts

SCHEDULES = ("ascending", "descending", "shuffle", "preempt", "lockstep")
MESSAGE_BYTES = 512
NOT_A_FAULT = {5: MemoryError, 6: OutOfMemoryError}  # of gpo_status in csrc/core/gpo.h


# ---- the C structures of csrc/sim/library.h ----


class _Config(ctypes.Structure):
    _fields_ = [
        ("schedule", ctypes.c_int), ("seed", ctypes.c_uint32),
        ("first_block", ctypes.c_int64), ("fail_after", ctypes.c_int64),
        ("max_threads", ctypes.c_int64), ("resident", ctypes.c_int),
        ("checks", ctypes.c_bool), ("profile", ctypes.c_bool),
    ]  # fmt: skip


class _Record(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p), ("file", ctypes.c_char * 96), ("line", ctypes.c_int),
        *((name, ctypes.c_uint64) for name in ("launches", "blocks", "threads")),
        *((field.name, ctypes.c_uint64) for field in fields(Counts)),
    ]  # fmt: skip


class _Entry(ctypes.Structure):
    _fields_ = [
        ("record_bytes", ctypes.c_size_t), ("instrumented", ctypes.c_bool),
        ("backend", ctypes.c_void_p), ("table", ctypes.c_void_p),
        ("configure", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Config))),
        ("state", ctypes.c_void_p),
        ("reset", ctypes.CFUNCTYPE(None)),
        ("report", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(_Record), ctypes.c_size_t)),
        ("hold", ctypes.c_void_p), ("let_go", ctypes.c_void_p), ("copy", ctypes.c_void_p),
        ("trace", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]  # fmt: skip


# ---- faults ----

_KINDS = (
    ("race", r"^race in"),
    ("out of bounds", r"^out-of-bounds|outside of every shared|wrote \d+ bytes (before|after)"),
    ("misaligned", r"^misaligned"),
    ("uninitialised", r"^read of shared memory that|that nothing has written"),
    ("unwritten", r"was never written"),
    ("divergent barrier", r"^barrier divergence"),
    ("deadlock", r"^deadlock"),
    ("endless loop", r"^endless loop|^livelock"),
    ("stack overflow", r"^stack overflow"),
    ("assertion", r"^assertion failed|^__trap"),
    ("division by zero", r"^integer division by zero"),
    ("warp", r"^shuffle reads|^lane \d+ is not|^width \d+ is not"),
    ("invalid launch", r"invalid launch|threads per block|would take minutes"),
)  # fmt: skip


class KernelFault(SimulatorError):
    """What is wrong with a kernel, found by running it.

    kind : "race", "out of bounds", "uninitialised", "divergent barrier", "endless loop", ...
    line, text : the line of the source, 0 and "" if the fault has none
    kernel, block, thread : where it happened; block and thread are None if unknown
    sentence : the fault in words
    schedule : the order of the threads in which it was found
    """

    def __init__(
        self,
        sentence: str,
        kernel: str,
        block: tuple[int, ...] | None = None,
        thread: tuple[int, ...] | None = None,
        line: int = 0,
        text: str = "",
        schedule: str = "ascending",
    ) -> None:
        where = kernel
        if block is not None and thread is not None:
            where += f", block {block}, thread {thread}"
        if line:
            where += f", line {line}"
        shown = f"\n    {text.strip()}" if text.strip() else ""
        super().__init__(f"{where}: {sentence}{shown}")
        self.sentence, self.kernel, self.block, self.thread = sentence, kernel, block, thread
        self.line, self.text, self.schedule = line, text.strip(), schedule
        self.kind = next((k for k, p in _KINDS if re.search(p, sentence)), "other")


_MESSAGE = re.compile(
    r"^(?P<kernel>\w+)(?:, block \((?P<block>[\d, ]+)\), thread \((?P<thread>[\d, ]+)\))?"
    r"(?:, (?P<file>[\w./]+):(?P<line>\d+))?: (?P<sentence>.*)$",
    re.S,
)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(map(int, text.split(",")))


def _in_words(sentence: str, arrays: Sequence[tuple[str, int]]) -> str:
    """The simulator's sentence in the words of the source: its lines and arrays' names."""
    sentence = re.sub(rf"{re.escape(FILE)}:(\d+)", r"line \1", sentence).replace(
        "_gpo_shared", ""
    )

    def named(found: re.Match[str]) -> str:
        names = [name for name, nbytes in arrays if nbytes == int(found[1])]
        called = " or ".join(f"'{name}'" for name in names)
        return f"{called} ({found[1]} bytes)" if 1 <= len(names) <= 3 else found[0]

    sentence = re.sub(
        r"; give it a smaller input, or set .*", "; take a smaller grid", sentence
    )
    if sentence == "read of shared memory that this block has not written":
        sentence += " yet: no thread ever does, or a __syncthreads() is missing"
    return re.sub(r"a device allocation of (\d+) bytes", named, sentence)


def fault(
    message: str, kernel: str, source: Source, arrays: Sequence[tuple[str, int]], schedule: str
) -> KernelFault:
    """The simulator's message as an exception."""
    found = _MESSAGE.match(message)
    if not found:
        return KernelFault(message, kernel, schedule=schedule)
    own = found["file"] == FILE
    line = int(found["line"]) if own else 0
    sentence = _in_words(found["sentence"], arrays)
    return KernelFault(
        sentence, found["kernel"], _numbers(found["block"]), _numbers(found["thread"]),
        line, source.line(line), schedule,
    )  # fmt: skip


# ---- the library ----


@dataclass(frozen=True)
class Parameter:
    """The type of a kernel's parameter, as the compiler sees it."""

    kind: str  # as in csrc of kernel_sim.h
    pointer: bool
    constant: bool
    bytes: int
    lanes: int

    @property
    def dtype(self) -> str | None:
        """The name of the NumPy dtype; None where any goes (void) or none does."""
        names = {"b": "bool", "i": "int", "u": "uint", "f": "float", "g": "bfloat16"}
        name = names.get(self.kind)
        return f"{name}{8 * self.bytes}" if name in ("int", "uint", "float") else name


class Library:
    """One compiled source."""

    def __init__(self, source: Source, checked: bool) -> None:
        self.source = source
        self.path = host_compiler.library(source, checked)
        self._c = ctypes.CDLL(str(self.path))
        self._entry = _Entry.in_dll(self._c, "gpo_sim_entry")
        if self._entry.record_bytes != ctypes.sizeof(_Record):
            raise RuntimeError(f"{self.path} belongs to another build of gpuopt")
        self._lock = threading.Lock()
        self._c.gpo_lab_launch.argtypes = [
            ctypes.c_int, ctypes.c_uint * 3, ctypes.c_uint * 3, ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_void_p), ctypes.c_int64, ctypes.c_char_p,
        ]  # fmt: skip
        self._c.gpo_lab_alloc.argtypes = [
            ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p
        ]  # fmt: skip
        self._c.gpo_lab_free.argtypes = [ctypes.c_void_p]
        self._c.gpo_lab_free.restype = None
        self._c.gpo_lab_download.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
        ]  # fmt: skip

    def parameters(self, number: int) -> list[Parameter]:
        found = []
        for i in range(self._c.gpo_lab_parameters(number)):
            f = (ctypes.c_int * 5)()
            self._c.gpo_lab_parameter(number, i, f)
            found.append(Parameter(chr(f[0]), bool(f[1]), bool(f[2]), f[3], f[4]))
        return found

    def launch(
        self, number: int, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int,
        arguments: Sequence[Argument], max_steps: int, schedule: str = "ascending",
        checks: bool = True, profile: bool = False, recorder: Any = None,
    ) -> tuple[dict[int, np.ndarray], list[dict[str, Any]]]:  # fmt: skip
        """Runs a kernel on copies: the arrays it may write, by argument, and its counts."""
        name = self.source.kernels[number].name
        arrays = [(a.name, a.array.nbytes) for a in arguments if a.array is not None]
        config = _Config(SCHEDULES.index(schedule), 1, 0, -1, 0, 0, checks, profile)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)

        def check(status: int) -> None:
            text = message.value.decode(errors="replace")
            if status in NOT_A_FAULT:
                raise NOT_A_FAULT[status](text)
            if status:
                raise fault(text, name, self.source, arrays, schedule)

        with self._lock:
            self._entry.configure(ctypes.byref(config))
            self._entry.reset()
            memory = _Memory(self._c, check, message)
            try:
                pointers = [memory.pointer(a) for a in arguments]
                table = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
                with recorder(self._entry.trace) if recorder else nullcontext():
                    check(
                        self._c.gpo_lab_launch(
                            number,
                            (ctypes.c_uint * 3)(*grid),
                            (ctypes.c_uint * 3)(*block),
                            shared_bytes,
                            table,
                            max_steps,
                            message,
                        )
                    )
                written = memory.written(arguments, self._unwritten(name, schedule))
                return written, self._report() if profile else []
            finally:
                memory.release()
                self._entry.reset()

    def _unwritten(self, kernel: str, schedule: str) -> Any:
        def made(argument: Argument, byte: int) -> KernelFault:
            assert argument.array is not None
            element = byte // argument.array.itemsize
            return KernelFault(
                f"element {element} of '{argument.name}' was never written",
                kernel, schedule=schedule,
            )  # fmt: skip

        return made

    def _report(self) -> list[dict[str, Any]]:
        count = self._entry.report(None, 0)
        records = (_Record * max(count, 1))()
        self._entry.report(records, count)
        rows = [{n: getattr(r, n) for n, *_ in _Record._fields_} for r in records[:count]]
        for row in rows:
            row["kernel"], row["file"] = row["kernel"].decode(), row["file"].decode()
        return [row for row in rows if row["file"] in ("", FILE)]


@dataclass(frozen=True)
class Argument:
    """A converted argument: an array, or a scalar's bytes."""

    name: str
    array: np.ndarray | None
    scalar: bytes = b""
    writable: bool = False
    fresh: bool = False  # not copied to the device: reading it before writing is a fault


class _Memory:
    """The device memory of one launch."""

    def __init__(self, c: ctypes.CDLL, check: Any, message: Any) -> None:
        self._c, self._check, self._message = c, check, message
        self._allocations: dict[int, ctypes.c_void_p] = {}  # by address on the host
        self._kept: list[Any] = []

    def pointer(self, argument: Argument) -> int:
        """The address of the argument's value."""
        value: Any
        if argument.array is None:
            value = ctypes.create_string_buffer(argument.scalar, max(len(argument.scalar), 1))
        else:
            value = self._allocation(argument.array, argument.fresh)
        self._kept.append(value)
        return ctypes.addressof(value)

    def _allocation(self, array: np.ndarray, fresh: bool) -> ctypes.c_void_p:
        """The same array given twice is one allocation."""
        key = array.ctypes.data
        if key not in self._allocations:
            out = ctypes.c_void_p()
            source = None if fresh else array.ctypes.data
            self._check(
                self._c.gpo_lab_alloc(array.nbytes, source, ctypes.byref(out), self._message)
            )
            self._allocations[key] = out
        return self._allocations[key]

    def written(self, arguments: Sequence[Argument], unwritten: Any) -> dict[int, np.ndarray]:
        """The device's values of the arrays that the kernel may write."""
        found = {}
        for i, argument in enumerate(arguments):
            if argument.array is None or not argument.writable:
                continue
            out = np.empty_like(argument.array)
            at = self._allocations[argument.array.ctypes.data]
            status = self._c.gpo_lab_download(out.ctypes.data, at, out.nbytes, self._message)
            byte = re.search(rb"byte (\d+) of a result", self._message.value)
            if status and byte:
                raise unwritten(argument, int(byte[1]))
            self._check(status)
            found[i] = out
        return found

    def release(self) -> None:
        for memory in self._allocations.values():
            self._c.gpo_lab_free(memory)
