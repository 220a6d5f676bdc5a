"""A simulator library made of fixture kernels, driven through ctypes.

`compiled(...)` builds libraries of tests/fixtures/*.cu with the flags of the real build, once
for all workers of pytest-xdist; `Library.run` calls one fixture and returns status, output
and message.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "_build"))
import simulator  # noqa: E402

SCHEDULES = ("ascending", "descending", "shuffle", "preempt", "lockstep")
OK, EMEMORY, EDEVMEMORY, ECUDA, ESIM = 0, 5, 6, 9, 11
COUNTS = (
    "launches", "blocks", "threads", "shared_requests", "shared_wavefronts", "shared_ideal",
    "global_requests", "global_sectors", "global_ideal", "atomic_requests",
    "atomic_serialised", "code_blocks", "code_divergent", "code_lanes", "code_lanes_full",
    "barriers", "races",
)  # fmt: skip


class Config(ctypes.Structure):
    """gpo_sim_config of csrc/sim/library.h."""

    _fields_ = [
        ("schedule", ctypes.c_int), ("seed", ctypes.c_uint32),
        ("first_block", ctypes.c_int64), ("fail_after", ctypes.c_int64),
        ("max_threads", ctypes.c_int64), ("resident", ctypes.c_int),
        ("checks", ctypes.c_bool), ("profile", ctypes.c_bool),
    ]  # fmt: skip


class State(ctypes.Structure):
    """gpo_sim_state."""

    _fields_ = [
        ("fail_after", ctypes.c_int64), ("allocations", ctypes.c_int64),
        ("bytes", ctypes.c_int64), ("launches", ctypes.c_int64),
    ]  # fmt: skip


class Record(ctypes.Structure):
    """gpo_sim_record."""

    _fields_ = [
        ("kernel", ctypes.c_char_p), ("file", ctypes.c_char * 96), ("line", ctypes.c_int),
        *((name, ctypes.c_uint64) for name in COUNTS),
    ]  # fmt: skip


class Entry(ctypes.Structure):
    """gpo_sim_library."""

    _fields_ = [
        ("record_bytes", ctypes.c_size_t), ("instrumented", ctypes.c_bool),
        ("backend", ctypes.c_void_p), ("table", ctypes.c_void_p),
        ("configure", ctypes.CFUNCTYPE(None, ctypes.POINTER(Config))),
        ("state", ctypes.CFUNCTYPE(None, ctypes.POINTER(State))),
        ("reset", ctypes.CFUNCTYPE(None)),
        ("report", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.POINTER(Record), ctypes.c_size_t)),
    ]  # fmt: skip


class Library:
    """One build of one fixture file."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.entry = Entry.in_dll(self.library, "gpo_sim_entry")
        assert self.entry.record_bytes == ctypes.sizeof(Record)

    def configure(self, schedule: str = "ascending", **settings: Any) -> None:
        config = Config(SCHEDULES.index(schedule), 1, 0, -1, 0, 0, False, False)
        for name, value in settings.items():
            setattr(config, name, value)
        self.entry.configure(ctypes.byref(config))

    def run(
        self, name: str, x: np.ndarray | None, out: np.ndarray, n: int = 0, **settings: Any
    ) -> tuple[int, np.ndarray, str]:
        self.configure(**settings)
        message = ctypes.create_string_buffer(512)
        address = None if x is None else ctypes.c_void_p(x.ctypes.data)
        status = getattr(self.library, name)(
            address, ctypes.c_longlong(0 if x is None else x.nbytes),
            ctypes.c_void_p(out.ctypes.data), ctypes.c_longlong(out.nbytes),
            ctypes.c_longlong(n), message,
        )  # fmt: skip
        return status, out, message.value.decode()

    def state(self) -> State:
        state = State()
        self.entry.state(ctypes.byref(state))
        return state

    def report(self) -> list[dict[str, Any]]:
        count = self.entry.report(None, 0)
        records = (Record * max(count, 1))()
        self.entry.report(records, count)
        return [
            {name: getattr(r, name) for name, _ in Record._fields_} for r in records[:count]
        ]

    def totals(self) -> dict[str, int]:
        """The report summed over instructions."""
        report = self.report()
        return {name: sum(r[name] for r in report) for name in COUNTS[3:]}


def shared_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder for this run of pytest, the same one in all its workers."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def compiled(
    out: Path,
    files: Iterable[str] = (),
    builds: Iterable[str] = ("plain", "profile"),
    flags: Iterable[str] = (),
) -> dict[tuple[str, str], Library]:
    """The libraries of fixture files (none: all), by (file, build).

    In a shared folder the first worker compiles, and the others find all up to date.
    """
    sources = sorted((ROOT / "tests" / "fixtures").glob("*.cu"))
    chosen = [s for s in sources if not files or s.stem in files]
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        paths = simulator.compile_kernels(ROOT, chosen, out, builds, flags)
    return {key: Library(path) for key, path in paths.items()}
