"""Mutants of reduce: its ladder, its shape kernels and the headers they share.

Order: equivalent mutants, the room, what a mutant is tried on.  See mutants.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from mutation import (
    ROOT,
    SETTINGS,
    Equivalent,
    Mutant,
    Operator,
    Room,
    barriers,
    code_lines,
    comparisons,
    narrowings,
    strides,
    tails,
)

EQUIVALENT: Equivalent = {
    (
        "ops/reduce/rows.cuh",
        "const int64_t begin = static_cast<int64_t>(blockIdx.x) * FINISH;",
        "64-bit to 32-bit",
    ): "a part stands for 256 elements or more: 2^31 of them are no array",
    (
        "ops/reduce/rows.cuh",
        "const int64_t end = begin + FINISH < chunks ? begin + FINISH : chunks;",
        "64-bit to 32-bit",
    ): "a part stands for 256 elements or more: 2^31 of them are no array",
    (
        "ops/reduce/rows.cuh",
        "for (int64_t i = begin + threadIdx.x; i < end; i += BLOCK) {",
        "64-bit to 32-bit",
    ): "a part stands for 256 elements or more: 2^31 of them are no array",
    (
        "ops/reduce/rows.cuh",
        "const int64_t end = begin + FINISH < chunks ? begin + FINISH : chunks;",
        "< to <=",
    ): "of two equal bounds either may be taken",
    (
        "ops/reduce/rows.cuh",
        "if (axes.ndim <= 1) {",
        "< to <=",
    ): "the general path gives the same for one axis",
    (
        "ops/reduce/views.cuh",
        "for (int d = axes.ndim - 1; d > 0; d--) {",
        "< to <=",
    ): "what is left of the number is less than the first axis is long",
    (
        "ops/reduce/reductions.cuh",
        "const bool tie = !beats(a.key, b.key) && b.index < a.index;",
        "< to <=",
    ): "two of the same index are the same element",
    (
        "ops/reduce/shapes/columns.cu",
        "constexpr int ITEMS = VEC > 1 ? TILE_ITEMS : 2 * TILE_ITEMS;",
        "< to <=",
    ): "how many loads are on their way changes the speed alone",
    (
        "ops/reduce/shapes/columns.cu",
        "return VEC > 8 ? 1 : (VEC == 8 ? 3 : 4) - WIDE;",
        "< to <=",
    ): "how many blocks a processor is to hold changes the speed alone",
}

# One or two elements per thread: only the last blocks of a grid over 2^32 elements run.
# The other rungs read the whole array, which is fast enough only on a GPU.
LARGE_RUNGS = ("v0", "v1", "v2", "v3", "v4", "v5")
# Variants that together use everything in the headers.
SHARED_RUNGS = ("v2", "v8", "v9", "short_rows", "columns")
# The mutated headers of device/, without those that only nvcc reads.
HEADERS = ("block.cuh", "vec.cuh", "warp.cuh")


def _variant(path: Path) -> str | None:
    """The variant that a file in ladder/ or shapes/ defines."""
    if path.parent.name == "ladder":
        return path.name.partition("_")[0]
    return path.stem if path.parent.name == "shapes" else None


class Reduce(Room):
    name = "reduce"
    count = 100
    equivalent = EQUIVALENT
    operators: ClassVar[dict[str, Operator]] = {
        "drop a barrier": barriers,
        "< to <=": comparisons,
        "stride off by one": strides,
        "64-bit to 32-bit": narrowings,
        "drop the tail": tails,
    }

    def all_mutants(self) -> list[Mutant]:
        mutants = []
        csrc = ROOT / "csrc"
        headers = [csrc / "device" / name for name in HEADERS]
        for path in [*sorted(csrc.glob("ops/reduce/**/*.cu*")), *headers]:
            name = str(path.relative_to(csrc))
            variant = _variant(path)
            if path.stem in ("cuda", "choice"):
                continue  # the table, and what picks a row of it
            covers = variant in (None, *LARGE_RUNGS)  # the others size their grids by the GPU

            def covers_all(line: str, covers: bool = covers) -> bool:
                return covers and "ceil_div(" in line

            for number, line in code_lines(path, covers_all):
                for operator, mutate in self.operators.items():
                    for after in mutate(line):
                        rungs = (variant,) if variant else SHARED_RUNGS
                        large = operator == "64-bit to 32-bit"
                        if large and rungs[0] not in LARGE_RUNGS:
                            continue
                        mutants.append(
                            Mutant(name, number, operator, line.strip(), after, rungs, large)
                        )
        return mutants

    def shrink(self, csrc: Path, rungs: tuple[str, ...]) -> None:
        """Only two dtypes and the requested variants: a tenth of the compile time."""
        types = csrc / "device" / "types.cuh"
        text = types.read_text(encoding="utf-8")
        text = re.sub(
            r"using every_type =\s[^;]*;", "using every_type = gpo_types<int8_t, float>;", text
        )
        text = re.sub(
            r"#define GPO_EVERY_TYPE\(Macro\)(.*\\\n)+.*\n",
            "#define GPO_EVERY_TYPE(Macro) Macro(int8_t) Macro(float)\n", text,
        )  # fmt: skip
        types.write_text(text, encoding="utf-8")
        kernels = csrc / "ops" / "reduce" / "cuda.cu"
        text = kernels.read_text(encoding="utf-8")

        def row(match: re.Match[str]) -> str:
            return match[0] if match[1] in rungs else f'gpo_row<gpo_types<>>("{match[1]}"'

        text = re.sub(r'gpo_row<every_type>\("(\w+)"', row, text)
        kernels.write_text(text, encoding="utf-8")

    def sources(self, place: Path, rungs: tuple[str, ...]) -> list[Path]:
        room = place / self.folder
        apart = [*room.glob("ladder/*.cu"), *room.glob("shapes/*.cu")]
        return [
            room / "cuda.cu",
            room / "choice.cu",
            *(s for s in apart if _variant(s) in rungs),
        ]

    def oracle(self, rungs: list[str], large: bool) -> None:
        _check_small(rungs)
        if large and rungs[0] in LARGE_RUNGS:
            _check_large(rungs)


# ---- what a mutant is tried on ----


def _cases(rung: str) -> Iterator[tuple[str, object, dict[str, object]]]:
    """Operation, array and options; values are small whole numbers, so sums are exact."""
    import numpy as np

    generator = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return generator.integers(1, 9, shape).astype(np.float32)

    for n in (1, 31, 33, 256, 257, 513, 1025, 4099):
        yield "sum", numbers(n), {}
    x = numbers(1030)
    x[1029] = 100  # an extreme value in the tail
    yield "max", x, {}
    yield "argmax", x[::-1].copy(), {}
    yield "argmin", numbers(700), {}
    yield "sum", numbers(20011), {}
    yield "sum", numbers(4100)[1:], {}  # not on a 16-byte boundary
    yield "sum", numbers(6000)[::2], {}
    yield "sum", numbers(5, 700), {"axis": 1}
    yield "sum", numbers(40, 37), {"axis": 1}
    yield "sum", numbers(64, 32), {"axis": 1}
    yield "sum", numbers(300, 36), {"axis": 0}
    yield "sum", numbers(70, 133), {"axis": 0}
    yield "max", numbers(33, 7), {"axis": 0}
    yield "sum", numbers(9, 50, 6), {"axis": 1}
    yield "sum", numbers(9, 50, 6), {"axis": (0, 2)}
    yield "sum", numbers(5, 3, 1100), {"axis": (0, 2)}  # rows of contiguous runs
    yield "sum", numbers(3, 40_000), {"axis": 1}  # rows of several blocks
    yield "sum", numbers(3000, 128), {"axis": 0}  # more blocks than threads down a column
    yield "sum", numbers(80_000)[::2], {}
    yield "argmax", generator.integers(-3, 4, 700).astype(np.int8), {}  # ties
    yield "sum", numbers(3, 0), {"axis": 1}
    yield "sum", generator.integers(-100, 100, 3001).astype(np.int8), {}
    yield "mean", numbers(5, 64), {"axis": 1}
    yield "any", np.zeros(777, np.float32), {}
    yield "max", generator.integers(-100, 100, 5003).astype(np.int8), {}


def _check_small(rungs: list[str]) -> None:
    import numpy as np

    import gpuopt
    from gpuopt import _core

    for rung in rungs:
        for number, settings in enumerate(SETTINGS):
            _core._sim_configure(**settings)
            for op, x, options in _cases(rung):
                if number > 0 and x.size > 5000:  # type: ignore[attr-defined]
                    continue
                got = gpuopt.reduce(x, op, variant=rung, backend="sim", **options)
                wanted = getattr(np, op)(x, **options)
                if not np.array_equal(got, wanted):
                    raise SystemExit(f"{rung} {op} {x.shape} {options} {settings}")  # type: ignore[attr-defined]
    _core._sim_configure(schedule="ascending", checks=False)
    for rung in rungs:  # more parts than one block finishes
        x = np.ones(256 * 4096 + 300 if rung < "v3" else 512 * 4096 + 300, np.float32)
        x[-1] = 3
        if gpuopt.reduce(x, variant=rung, backend="sim") != x.size + 2:
            raise SystemExit(f"{rung} sum of {x.size}")
        if rung < "v3":  # and more than one row
            rows = np.stack([x, x])
            got = gpuopt.reduce(rows, axis=1, variant=rung, backend="sim")
            if got.tolist() != [x.size + 2] * 2:
                raise SystemExit(f"{rung} sum of {rows.shape}")


def _check_large(rungs: list[str]) -> None:
    """The last blocks of a grid over 2^32 elements, in memory with only their pages."""
    import numpy as np

    import gpuopt
    from gpuopt import _core

    rung = rungs[0]
    per_block = 256 if rung in ("v0", "v1", "v2") else 512
    x = np.zeros(2**32 + 300, np.int8)
    x[-200:] = 1
    plane = np.zeros((65537, 65537), np.int8)[:, :65536]  # two axes, none to merge
    plane[-1, -200:] = 1
    for array in (x, plane):
        first = array.size // per_block - 1
        _core._sim_configure(first_block=first, checks=True)
        got = int(gpuopt.reduce(array, variant=rung, backend="sim"))
        # a part that no block wrote is -1
        if got != 200 - first:
            raise SystemExit(f"{rung} sum of {array.shape}: {got}, not {200 - first}")
        got = int(gpuopt.reduce(array, "argmax", variant=rung, backend="sim"))
        if got != array.size - 200:
            raise SystemExit(f"{rung} argmax of {array.shape}: {got}")
