"""The simulator's trace: every request of a block's warps, lane by lane, in order.

`trace("reduce", x, variant="v1")` runs a rung in the simulator and keeps the requests;
`gpuopt.lab.kernel(source).trace(grid, block, ...)` does the same with a kernel of your own.
pictures.py draws them.
Order: the C structures of csrc/sim/library.h, one request, a trace, making one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt.lab import profile

__all__ = ["Recorder", "Request", "Trace", "trace"]

LANES = 32
BANKS = 32
BANK_BYTES = 4
SECTOR_BYTES = 32
KINDS = ("shared", "global", "shared atomic", "global atomic", "code")
MOST_REQUESTS = 1 << 17  # 60 MB, of which only what is written takes memory
MOST_BLOCKS = 1 << 17

# ---- the C structures ----

_REQUEST = np.dtype(
    [
        ("kernel", "S64"), ("file", "S96"), ("line", "i4"), ("launch", "i4"), ("block", "i8"),
        ("warp", "i4"), ("interval", "u4"), ("after", "i4"), ("exists", "u4"), ("mask", "u4"),
        ("kind", "u1"), ("bytes", "u1"), ("write", "u1"), ("unused", "u1"),
        ("address", "u8", LANES),
    ],
    align=True,
)  # fmt: skip

_BLOCK = np.dtype(
    [
        ("kernel", "S64"), ("launch", "i4"), ("grid", "u4", 3), ("threads", "u4", 3),
        ("block", "u8"), ("shared_bytes", "u8"), ("pieces", "u8"),
    ],
    align=True,
)  # fmt: skip


class _Trace(ctypes.Structure):
    _fields_ = [
        ("first_block", ctypes.c_int64), ("end_block", ctypes.c_int64),
        ("requests", ctypes.c_void_p), ("request_capacity", ctypes.c_size_t),
        ("nrequests", ctypes.c_size_t), ("blocks", ctypes.c_void_p),
        ("block_capacity", ctypes.c_size_t), ("nblocks", ctypes.c_size_t),
    ]  # fmt: skip


# ---- one request ----


@dataclass(frozen=True, eq=False)
class Request:
    """What the lanes of a warp did together: one access, or one piece of code.

    kind : "shared", "global", "shared atomic", "global atomic" or "code"
    lanes : the lanes that took part; address : their addresses, in bytes
    bytes : what each lane accessed; write : whether it was written
    block, warp, interval : where, and how many barriers of the block came before
    file, line : the source; "" and 0 if unknown
    """

    kernel: str
    launch: int
    block: int
    warp: int
    interval: int
    file: str
    line: int
    kind: str
    write: bool
    bytes: int
    lanes: tuple[int, ...]
    exists: int
    address: tuple[int, ...]

    @property
    def where(self) -> str:
        """File and line, without folders."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.line else "unknown line"

    def passes(self) -> list[tuple[int, int, int]]:
        """The (lane, bank, pass) of every word of a request to shared memory.

        Lanes that access the same word share it.  Accesses of 8 bytes are served by half
        warps, of 16 bytes by quarter warps, one after the other.
        """
        group = 8 if self.bytes >= 16 else 16 if self.bytes == 8 else LANES
        found, before = [], 0
        for first in range(0, LANES, group):
            words: list[list[int]] = [[] for _ in range(BANKS)]
            for lane, address in zip(self.lanes, self.address, strict=True):
                if not first <= lane < first + group:
                    continue
                for k in range(max(self.bytes // BANK_BYTES, 1)):
                    word = address // BANK_BYTES + k
                    bank = words[word % BANKS]
                    if word not in bank:
                        bank.append(word)
                    found.append((lane, word % BANKS, before + bank.index(word)))
            before += max(map(len, words))
        return found

    @property
    def wavefronts(self) -> int:
        """The passes over shared memory; the fewest possible is `ideal`."""
        return 1 + max((p for _, _, p in self.passes()), default=-1)

    def sectors(self) -> list[int]:
        """The numbers of the sectors of 32 bytes that a request to global memory moves."""
        ends = ((a, a + max(self.bytes, 1) - 1) for a in self.address)
        return sorted({end // SECTOR_BYTES for pair in ends for end in pair})

    @property
    def ideal(self) -> int:
        """The fewest wavefronts, or the fewest sectors, for so many bytes."""
        if self.kind.startswith("shared"):
            group = 8 if self.bytes >= 16 else 16 if self.bytes == 8 else LANES
            return len({lane // group for lane in self.lanes})
        return -(-len(set(self.address)) * self.bytes // SECTOR_BYTES)

    @property
    def excess(self) -> float:
        """Wavefronts or sectors as a multiple of the ideal."""
        moved = self.wavefronts if self.kind.startswith("shared") else len(self.sectors())
        return moved / self.ideal


# ---- a trace ----


class Trace:
    """The requests of some blocks, and how much code every block executed.

    kernels : the names of the kernels, in the order of their first launch
    blocks : a structured array, one element per block of every launch
    complete : False if there were more requests or blocks than a trace holds
    """

    def __init__(self, title: str, requests: Any, blocks: Any, complete: bool) -> None:
        self.title, self.complete = title, complete
        self._requests, self.blocks = requests, blocks
        self.kernels = tuple(dict.fromkeys(name.decode() for name in blocks["kernel"]))

    def __repr__(self) -> str:
        whole = "" if self.complete else ", cut off"
        return (
            f"<trace of {self.title}: {len(self._requests)} requests, "
            f"{len(self.blocks)} blocks, kernels {', '.join(self.kernels)}{whole}>"
        )

    def __len__(self) -> int:
        return len(self._requests)

    def _one(self, row: Any) -> Request:
        lanes = tuple(k for k in range(LANES) if int(row["mask"]) >> k & 1)
        return Request(
            row["kernel"].decode(), int(row["launch"]), int(row["block"]), int(row["warp"]),
            int(row["interval"]), row["file"].decode(), int(row["line"]),
            KINDS[row["kind"]], bool(row["write"]), int(row["bytes"]), lanes,
            int(row["exists"]), tuple(int(row["address"][k]) for k in lanes),
        )  # fmt: skip

    def __iter__(self) -> Iterator[Request]:
        return map(self._one, self._requests)

    def kernel(self, name: str | None = None) -> str:
        """The kernel of that name, or the first one."""
        if not self.kernels:
            raise ValueError(f"the trace of {self.title} has no launch")
        if name is None:
            return self.kernels[0]
        if name not in self.kernels:
            known = ", ".join(self.kernels)
            raise ValueError(f"the trace has no kernel '{name}'; it has {known}")
        return name

    def find(
        self,
        kind: str,
        *,
        kernel: str | None = None,
        line: int | None = None,
        warp: int | None = None,
        write: bool | None = None,
    ) -> list[Request]:
        """The requests of one kind, "shared" or "global", that fit; atomics are apart."""
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
        rows = self._requests
        keep = rows["kind"] == KINDS.index(kind)
        if kernel is not None:
            keep &= rows["kernel"] == self.kernel(kernel).encode()
        for name, wanted in (("line", line), ("warp", warp), ("write", write)):
            if wanted is not None:
                keep &= rows[name] == wanted
        return [self._one(row) for row in rows[keep]]

    def worst(self, kind: str, **which: Any) -> Request:
        """The first of the requests of a kind that are farthest from the ideal.

        `which` is that of `find`.
        """
        found = self.find(kind, **which)
        if not found:
            options = "".join(f", {k}={v!r}" for k, v in which.items() if v is not None)
            raise ValueError(f"{self.title} has no request to {kind} memory{options}")
        return max(found, key=lambda request: request.excess)

    def lanes_over_time(self, kernel: str | None = None, warp: int = 0) -> list[Request]:
        """The pieces of code of one warp of the first traced block, in an order of all lanes.

        A piece that some lanes skip stands where the lanes that run it are.
        """
        rows = self._requests[self._requests["kernel"] == self.kernel(kernel).encode()]
        if not len(rows):
            raise ValueError(
                f"the trace has no request of {self.kernel(kernel)}: its grid ends before the "
                "blocks that were traced"
            )
        rows = rows[(rows["launch"] == rows["launch"][0]) & (rows["block"] == rows["block"][0])]
        warps = sorted({int(w) for w in rows["warp"]})
        if warp not in warps:
            raise ValueError(f"warp {warp} is not one of the block's: 0 to {warps[-1]}")
        rows = rows[rows["warp"] == warp]
        found = []
        for interval in dict.fromkeys(int(i) for i in rows["interval"]):
            part = rows[rows["interval"] == interval]
            code = KINDS.index("code")
            found += [self._one(part[i]) for i in _in_order(part) if part["kind"][i] == code]
        return found


def _in_order(rows: Any) -> list[int]:
    """The requests of an interval, each behind the one that its first lane made before."""
    behind: list[list[int]] = [[] for _ in range(len(rows) + 1)]
    for i, after in enumerate(rows["after"]):
        behind[int(after) + 1].append(i)
    order, todo = [], behind[0][:]
    while todo:  # the last inserted comes first, as in a list
        i = todo.pop()
        order.append(i)
        todo += behind[i + 1]
    return order


# ---- making one ----


class Recorder:
    """Memory for a trace of the launches of one library."""

    def __init__(self, block: int, blocks: int) -> None:
        if block < 0 or blocks < 1:
            raise ValueError(f"block must be at least 0, blocks at least 1: {block}, {blocks}")
        self._requests = np.zeros(MOST_REQUESTS, _REQUEST)
        self._blocks = np.zeros(MOST_BLOCKS, _BLOCK)
        self._c = _Trace(
            block, block + blocks, self._requests.ctypes.data, MOST_REQUESTS, 0,
            self._blocks.ctypes.data, MOST_BLOCKS, 0,
        )  # fmt: skip

    @contextmanager
    def __call__(self, set_trace: Callable[[Any], None]) -> Iterator[None]:
        """Record what the library launches meanwhile."""
        set_trace(ctypes.byref(self._c))
        try:
            yield
        finally:
            set_trace(None)

    def trace(self, title: str) -> Trace:
        """What has been recorded."""
        requests, blocks = self._c.nrequests, self._c.nblocks
        complete = requests <= MOST_REQUESTS and blocks <= MOST_BLOCKS
        return Trace(
            title, self._requests[:requests].copy(), self._blocks[:blocks].copy(), complete
        )


def _set_trace() -> Callable[[Any], None]:
    """The function `trace` of the rooms' simulator."""
    from gpuopt.lab.simulated import _Entry

    _core._sim_reset()  # loads it, or raises SimulatorError with the reason
    path = Path(_core.__file__).with_name("_sim_profile.so")
    entry = _Entry.in_dll(ctypes.CDLL(str(path)), "gpo_sim_entry")
    return entry.trace


def trace(
    op: str, /, *args: Any, variant: str, block: int = 0, blocks: int = 1, **kwargs: Any
) -> Trace:
    """Run `gpuopt.<op>(*args, variant=variant, **kwargs)` in the simulator and trace it.

    block, blocks : the first block whose requests are kept, and how many; of all blocks
        the trace has what they executed together.

    Raises gpuopt.SimulatorError if this build has no simulator.
    """
    if op not in _core.ops():
        raise ValueError(f"gpuopt has no operator '{op}'; operators: {', '.join(_core.ops())}")
    recorder = Recorder(block, blocks)
    with profile._counting({}):
        with recorder(_set_trace()):
            getattr(_core, op)(*args, variant=variant, backend="sim", **kwargs)
        _core._sim_reset()
    return recorder.trace(f"{op} {variant}")
