"""The simulator's profiler: what a CUDA rung does, counted exactly on any machine.

`profile("reduce", x, variant="v1")` runs the rung in the simulator and returns its
shared-memory requests and wavefronts, global-memory requests and sectors, atomics,
divergence, barriers and races, per kernel and per source line; without `variant`, for all
rungs of the operator side by side.  The counts follow from the source alone: they are the
same on every machine and in every run.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

from gpuopt import _core


@dataclass
class Counts:
    """Counts of one source line, one kernel or one variant."""

    shared_requests: int = 0
    shared_wavefronts: int = 0
    shared_ideal: int = 0
    global_requests: int = 0
    global_sectors: int = 0
    global_ideal: int = 0
    atomic_requests: int = 0
    atomic_serialised: int = 0
    code_blocks: int = 0
    code_divergent: int = 0
    code_lanes: int = 0
    code_lanes_full: int = 0
    barriers: int = 0
    races: int = 0

    def add(self, other: Counts) -> None:
        for field in fields(Counts):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)

    @property
    def conflict_ways(self) -> float:
        """Wavefronts as a multiple of those without bank conflicts; 1 means no conflicts."""
        return self.shared_wavefronts / self.shared_ideal if self.shared_ideal else 1.0

    @property
    def efficiency(self) -> float:
        """The share of the transferred sectors that ideal coalescing would need."""
        return self.global_ideal / self.global_sectors if self.global_sectors else 1.0

    @property
    def divergence(self) -> float:
        """The share of the executed code blocks that only some lanes of a warp ran."""
        return self.code_divergent / self.code_blocks if self.code_blocks else 0.0

    @property
    def active_lanes(self) -> float:
        """The mean share of a warp's lanes that are active in a code block."""
        return self.code_lanes / self.code_lanes_full if self.code_lanes_full else 1.0


@dataclass
class Line(Counts):
    """One source line of one kernel."""

    file: str = ""
    line: int = 0

    @property
    def matters(self) -> bool:
        """Whether the line accesses memory, diverges, or has a barrier or a race."""
        counted = (self.shared_requests, self.global_requests, self.atomic_requests,
                   self.code_divergent, self.barriers, self.races)  # fmt: skip
        return any(counted)


@dataclass
class Kernel(Counts):
    """One kernel of one variant, all its launches together."""

    variant: str = ""
    kernel: str = ""
    launches: int = 0
    blocks: int = 0
    threads: int = 0
    lines: tuple[Line, ...] = ()


_HEAD = ("variant", "kernel", "blocks", "shared req/wave", "ways", "global req/sect", "eff",
         "atomics req/ser", "divergent", "lanes", "barriers", "races")  # fmt: skip


def _cells(counts: Counts) -> tuple[str, ...]:
    return (
        f"{counts.shared_requests} / {counts.shared_wavefronts}",
        f"{counts.conflict_ways:.2f}",
        f"{counts.global_requests} / {counts.global_sectors}",
        f"{counts.efficiency:.0%}",
        f"{counts.atomic_requests} / {counts.atomic_serialised}",
        f"{counts.divergence:.1%}",
        f"{counts.active_lanes:.1%}",
        str(counts.barriers),
        str(counts.races),
    )


class Profile:
    """Counts of one or several variants: `kernels`, and each kernel's `lines`."""

    def __init__(self, op: str, kernels: Sequence[Kernel]) -> None:
        self.op = op
        self.kernels = tuple(kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __add__(self, other: Profile) -> Profile:
        """Both side by side."""
        op = self.op if self.op == other.op else f"{self.op} and {other.op}"
        return Profile(op, (*self.kernels, *other.kernels))

    def __getitem__(self, variant: str) -> tuple[Kernel, ...]:
        """The kernels of one variant, in the order of their first launch."""
        found = tuple(k for k in self.kernels if k.variant == variant)
        if not found:
            raise KeyError(variant)
        return found

    def _rows(self) -> list[tuple[str, ...]]:
        return [(k.variant, k.kernel, str(k.blocks), *_cells(k)) for k in self.kernels]

    def _line_rows(self, kernel: Kernel) -> list[tuple[str, ...]]:
        """The lines that access memory, wait at a barrier, or diverge."""
        return [(f"{n.file}:{n.line}", "", "", *_cells(n)) for n in kernel.lines if n.matters]

    @property
    def _single(self) -> bool:
        return len({k.variant for k in self.kernels}) == 1

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [_HEAD]
        for kernel, row in zip(self.kernels, self._rows(), strict=True):
            rows.append(row)
            if self._single:
                rows += [("  " + name, *rest) for name, *rest in self._line_rows(kernel)]
        widths = [max(len(row[c]) for row in rows) for c in range(len(_HEAD))]
        if self._single:  # the location of a line extends into the kernel's columns
            widths[0] = max(len(row[0]) for row in rows if not row[0].startswith("  "))
        text = []
        for row in rows:
            if row[0].startswith("  "):
                place = row[0].ljust(sum(widths[:3]) + 4)
                cells = [c.rjust(w) for c, w in zip(row[3:], widths[3:], strict=True)]
                text.append("  ".join([place, *cells]))
            else:
                name = [row[0].ljust(widths[0]), row[1].ljust(widths[1])]
                cells = [c.rjust(w) for c, w in zip(row[2:], widths[2:], strict=True)]
                text.append("  ".join([*name, *cells]))
        return "\n".join(line.rstrip() for line in text)

    def _repr_html_(self) -> str:
        def tr(cells: Sequence[str], tag: str = "td") -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = [tr(_HEAD, "th")]
        for kernel, row in zip(self.kernels, self._rows(), strict=True):
            body.append(tr(row))
            if self._single:
                body += [tr(line) for line in self._line_rows(kernel)]
        return f"<table>{''.join(body)}</table>"

    def to_dict(self) -> dict[str, Any]:
        return {"op": self.op, "kernels": [asdict(kernel) for kernel in self.kernels]}

    def to_json(self, indent: int | None = None) -> str:
        return json.dumps(self.to_dict(), indent=indent)


@contextmanager
def _counting(settings: dict[str, Any]) -> Iterator[None]:
    """Enables the simulator's counters; restores its settings at the end."""
    old = _core._sim_configure(
        schedule="ascending", checks=False, profile=True, first_block=0, fail_after=-1
    )
    try:
        _core._sim_configure(**settings)
        yield
    finally:
        _core._sim_configure(**old)


def _counts(record: dict[str, Any]) -> dict[str, int]:
    return {field.name: record[field.name] for field in fields(Counts)}


def _kernels(variant: str, records: list[dict[str, Any]]) -> list[Kernel]:
    """The library's records, one per instruction, summed by line and by kernel."""
    kernels: dict[str, Kernel] = {}
    lines: dict[str, dict[tuple[str, int], Line]] = {}
    for record in records:
        name = record["kernel"]
        if name not in kernels:
            kernels[name] = Kernel(
                variant=variant, kernel=name, launches=record["launches"],
                blocks=record["blocks"], threads=record["threads"],
            )  # fmt: skip
            lines[name] = {}
        counts = _counts(record)
        kernels[name].add(Counts(**counts))
        if not record["file"]:
            continue  # code generated by the compiler, without a source line
        place = (record["file"], record["line"])
        line = lines[name].setdefault(place, Line(file=place[0], line=place[1]))
        line.add(Counts(**counts))
    for name, kernel in kernels.items():
        kernel.lines = tuple(lines[name][place] for place in sorted(lines[name]))
    return list(kernels.values())


def profile(
    op: str, /, *args: Any, variant: str | None = None, settings: Any = None, **kwargs: Any
) -> Profile:
    """Run `gpuopt.<op>(*args, **kwargs)` in the simulator and count what it does.

    variant : the CUDA rung to profile; None means every rung that accepts the arguments.
    settings : more settings of `_sim_configure`, such as {"schedule": "shuffle"}.

    Raises gpuopt.SimulatorError if this build has no simulator, or one without the
    operator's kernels, or if a kernel accesses memory out of bounds; races are counted, not
    raised.
    """
    if op not in _core.ops():
        raise ValueError(f"gpuopt has no operator '{op}'; operators: {', '.join(_core.ops())}")
    if variant is None:
        names = [
            row["name"]
            for row in _core.variants(op)
            if row["backend"] == "sim" and not row["shape"]
        ] or ["v0"]  # the call says why there are none
    else:
        names = [variant]
    kernels: list[Kernel] = []
    with _counting(settings or {}):
        for name in names:
            _core._sim_reset()
            try:
                getattr(_core, op)(*args, variant=name, backend="sim", **kwargs)
            except (TypeError, NotImplementedError):
                if variant is not None:
                    raise
                continue  # this rung does not take these arguments
            kernels += _kernels(name, _core._sim_report())
        _core._sim_reset()
    return Profile(op, kernels)
