"""Break the CUDA kernels in a hundred small ways and count how many are detected.

Each mutant changes one place in reduce's kernels, their headers or the device headers they
use: a dropped barrier or fence, `<` for `<=`, a stride off by one, 32-bit for 64-bit, a
dropped tail.  It is compiled for the simulator, with the rungs that contain the place, and
compared with NumPy under several schedules with all checks enabled.  A wrong result, a fault,
a crash or a hang kills it.  Needs no GPU.

    python tests/mutants.py             100 mutants, writes tests/mutants.json
    python tests/mutants.py --count 8   the first 8 of the same list, writes nothing

The file records the survivors.  A mutant that cannot change what a kernel does (such as a
dropped barrier before the end of a kernel) is listed in EQUIVALENT with its reason and not
counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "tests" / "mutants.json"
COUNT = 100
WANTED = 0.9
SECONDS = 180  # a mutant that runs longer hangs: the right kernels need a few seconds

# (file, text of the line, operator): why no test can distinguish the mutant.
EQUIVALENT: dict[tuple[str, str, str], str] = {
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
        "return vec <= 4 ? 4 : vec == 8 ? 3 : 1;",
        "< to <=",
    ): "how many blocks a processor is to hold changes the speed alone",
}


# ---- mutants ----


@dataclass(frozen=True)
class Mutant:
    """One changed line."""

    file: str  # relative to csrc
    line: int
    operator: str
    before: str
    after: str
    rungs: tuple[str, ...]  # to compile and run
    large: bool  # its fault needs more than 2^32 elements


def _barriers(line: str) -> Iterator[str]:
    for word in ("__syncthreads();", "__syncwarp();", "__threadfence();"):
        if word in line:
            yield line.replace(word, ";")


def _comparisons(line: str) -> Iterator[str]:
    for match in re.finditer(r" (<|<=|>|>=) ", line):
        other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match[1]]
        yield line[: match.start(1)] + other + line[match.end(1) :]


def _strides(line: str) -> Iterator[str]:
    for match in re.finditer(r"\+= ([^;)]+)(?=[;)])", line):
        if line.lstrip().startswith("for "):
            yield line[: match.end()] + " + 1" + line[match.end() :]
    for pattern, other in ((r"/= 2\b", "/= 4"), (r">>= 1\b", ">>= 2"), (r"\*= 2\b", "*= 4")):
        for match in re.finditer(pattern, line):
            yield line[: match.start()] + other + line[match.end() :]
    for match in re.finditer(r"\* (BLOCK|ITEMS|FINISH|gridDim\.[xy]|blockDim\.x|2)\b", line):
        yield line[: match.start()] + f"* ({match[1]} - 1)" + line[match.end() :]
    for match in re.finditer(r"\[([^\]\[]+ \+ d)\]", line):
        yield line[: match.end(1)] + " + 1" + line[match.end(1) :]


def _narrowings(line: str) -> Iterator[str]:
    for match in re.finditer(r"\bint64_t (?=(i|k|begin|end|first|offset)\b)", line):
        yield line[: match.start()] + "int32_t " + line[match.end() :]
    for match in re.finditer(r"static_cast<int64_t>\(blockIdx\.x\)", line):
        yield line[: match.start()] + "static_cast<int32_t>(blockIdx.x)" + line[match.end() :]


def _tails(line: str) -> Iterator[str]:
    """ceil_div(a, b) without the rounding up."""
    for match in re.finditer(r"\bceil_div\(", line):
        depth, comma = 1, 0
        for end in range(match.end(), len(line)):
            depth += {"(": 1, ")": -1}.get(line[end], 0)
            if line[end] == "," and depth == 1 and not comma:
                comma = end
            if depth == 0:
                first, second = line[match.end() : comma], line[comma + 1 : end]
                yield f"{line[: match.start()]}(({first}) / ({second})){line[end + 1 :]}"
                break
    for match in re.finditer(r" % (?=\w+ (?:==|!=) 0)", line):
        yield line[: match.start()] + " % 2 * " + line[match.end() :]


OPERATORS: dict[str, Callable[[str], Iterator[str]]] = {
    "drop a barrier": _barriers,
    "< to <=": _comparisons,
    "stride off by one": _strides,
    "64-bit to 32-bit": _narrowings,
    "drop the tail": _tails,
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


def _code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line of device code.

    Host code chooses grids and variants: most changes there affect only the speed.
    """
    comment = False
    function: str | None = None  # the indentation of the device function around
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.search(r"__(global|device)__", line):
            function = line[: len(line) - len(line.lstrip())]
        opens, closes = line.find("/*"), line.find("*/")
        if comment or (opens >= 0 and line[:opens].strip() == ""):
            comment = closes < opens or closes < 0 if not comment else closes < 0
            continue
        code = line.strip()
        if not code or code.startswith(("#", "template", "static_assert", "//")):
            continue
        # v9 and the shape kernels size their grids by the GPU
        covers_all = "ceil_div(" in code and _variant(path) in (None, *LARGE_RUNGS)
        if function is not None or covers_all:
            yield number, line
        if function is not None and line == function + "}":
            function = None


def all_mutants() -> list[Mutant]:
    """Every mutant of every file, in order."""
    mutants = []
    csrc = ROOT / "csrc"
    headers = [csrc / "device" / name for name in HEADERS]
    for path in [*sorted(csrc.glob("ops/reduce/**/*.cu*")), *headers]:
        name = str(path.relative_to(csrc))
        variant = _variant(path)
        if path.name == "cuda.cu":
            continue  # the table
        for number, line in _code_lines(path):
            for operator, mutate in OPERATORS.items():
                for after in mutate(line):
                    rungs = (variant,) if variant else SHARED_RUNGS
                    large = operator == "64-bit to 32-bit"
                    if large and rungs[0] not in LARGE_RUNGS:
                        continue
                    mutants.append(
                        Mutant(name, number, operator, line.strip(), after, rungs, large)
                    )
    return mutants


def drawn(count: int) -> list[Mutant]:
    """`count` of the mutants, spread over operators, the same ones every time."""
    by_operator: dict[str, list[Mutant]] = {operator: [] for operator in OPERATORS}
    for mutant in all_mutants():
        by_operator[mutant.operator].append(mutant)
    generator = random.Random(14)
    for mutants in by_operator.values():
        generator.shuffle(mutants)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_operator.values()):
        for mutants in by_operator.values():
            if mutants and len(chosen) < count:
                chosen.append(mutants.pop())
    return chosen


# ---- building one ----


class Workshop:
    """Compiles mutants; their common files are compiled once."""

    def __init__(self, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "_build"))
        import simulator
        import steps

        self.simulator, self.steps, self.folder = simulator, steps, folder
        base = simulator.library_steps(
            ROOT, {"profile": folder / "base.so"}, folder / "base", [], with_rooms=True
        )
        steps.run_all(base)
        self.objects = base[-1].after
        self.link = base[-1].command

    def build(self, number: int, mutant: Mutant | None, rungs: tuple[str, ...]) -> Path:
        """A package folder whose simulator has the mutant's kernels; None: the right ones."""
        place = self.folder / str(number)
        shutil.copytree(ROOT / "csrc", place / "csrc", ignore=shutil.ignore_patterns("bind"))
        if mutant:
            path = place / "csrc" / mutant.file
            lines = path.read_text(encoding="utf-8").splitlines()
            lines[mutant.line - 1] = mutant.after
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._reduce_tables(place / "csrc", rungs)
        room = place / "csrc" / "ops" / "reduce"
        apart = [*room.glob("ladder/*.cu"), *room.glob("shapes/*.cu")]
        objects = []
        for source in [room / "cuda.cu", *(s for s in apart if _variant(s) in rungs)]:
            step = self.simulator.kernel_step(place / "csrc", source, place, [])
            for output in step.outputs:
                output.parent.mkdir(exist_ok=True)
            # an overrun of a thread's own array traps, as in `make sanitize`
            command = [*step.command, "-w", "-fsanitize=bounds",
                       "-fsanitize-undefined-trap-on-error"]  # fmt: skip
            subprocess.run(command, check=True, capture_output=True, text=True)
            objects.append(str(step.output))
        return self._package(place, objects)

    def _reduce_tables(self, csrc: Path, rungs: tuple[str, ...]) -> None:
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

    def _package(self, place: Path, objects: list[str]) -> Path:
        import gpuopt

        package = place / "gpuopt"
        package.mkdir()
        for file in Path(gpuopt.__file__).parent.iterdir():
            if not file.name.startswith("_sim"):
                (package / file.name).symlink_to(file.resolve())
        target = str(package / "_sim_profile.so")
        command = [target if c == str(self.folder / "base.so") else c for c in self.link]
        at = command.index(str(self.objects[-1])) + 1
        command[at:at] = objects
        subprocess.run(command, check=True, capture_output=True, text=True)
        (package / "_sim.so").symlink_to("_sim_profile.so")
        return place


# ---- the oracle, which runs in a process of its own ----

SETTINGS = [
    {"schedule": "ascending", "checks": True},
    {"schedule": "descending", "checks": True},
    {"schedule": "shuffle", "seed": 3, "checks": True},
    {"schedule": "preempt", "seed": 5, "checks": True},
]


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


def oracle(rungs: list[str], large: bool) -> None:
    _check_small(rungs)
    if large and rungs[0] in LARGE_RUNGS:
        _check_large(rungs)


# ---- the run ----


def judged(workshop: Workshop, number: int, mutant: Mutant | None, rungs: tuple[str, ...],
           large: bool) -> str:  # fmt: skip
    """Empty if the kernels pass, else how the mutant was detected."""
    try:
        place = workshop.build(number, mutant, rungs)
    except subprocess.CalledProcessError as error:
        if mutant is None:
            sys.stderr.write(error.stderr)
        return "does not compile"
    command = [sys.executable, str(Path(__file__).resolve()), "--oracle", ",".join(rungs)]
    if large:
        command.append("--large")
    try:
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(place)}, capture_output=True,
            text=True, timeout=SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if done.returncode == 0:
        return ""
    if done.returncode < 0:
        return f"crashes (signal {-done.returncode})"
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "fails"


def counted_of(mutants: list[Mutant], verdicts: list[str]) -> list[tuple[Mutant, str]]:
    """Drops mutants that do not compile or change nothing."""
    return [
        (m, verdict)
        for m, verdict in zip(mutants, verdicts, strict=True)
        if verdict != "does not compile"
        and (verdict or (m.file, m.before, m.operator) not in EQUIVALENT)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--oracle", help=argparse.SUPPRESS)
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.oracle:
        oracle(options.oracle.split(","), options.large)
        return 0

    mutants = drawn(options.count)
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        right = judged(workshop, -1, None, (*SHARED_RUNGS, "v3"), False)
        if right:
            print(f"the kernels as they are do not pass: {right}")
            return 2

        def judge(number: int) -> str:
            mutant = mutants[number]
            verdict = judged(workshop, number, mutant, mutant.rungs, mutant.large)
            state = verdict if verdict else "SURVIVED"
            print(f"{number + 1:3} {mutant.file}:{mutant.line} {mutant.operator}: {state}",
                  flush=True)  # fmt: skip
            return verdict

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = list(pool.map(judge, range(len(mutants))))
    counted = counted_of(mutants, verdicts)
    killed = sum(1 for _, verdict in counted if verdict)
    rate = killed / len(counted) if counted else 0.0
    print(f"killed {killed} of {len(counted)} mutants: {rate:.0%}")
    if options.count == COUNT:
        survivors = [
            {"file": m.file, "line": m.line, "operator": m.operator, "before": m.before,
             "after": m.after.strip()}
            for m, verdict in counted if not verdict
        ]  # fmt: skip
        operators = {
            operator: {
                "mutants": sum(m.operator == operator for m, _ in counted),
                "killed": sum(m.operator == operator and v != "" for m, v in counted),
            }
            for operator in OPERATORS
        }
        result = {"mutants": len(counted), "killed": killed, "rate": round(rate, 3),
                  "operators": operators, "survivors": survivors}  # fmt: skip
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if rate >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
