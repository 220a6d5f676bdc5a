"""What the mutants of every room share: their operators, and how one is built and judged.

A `Room` says which lines are changed, which files are compiled for a mutant, and how the
kernels are tried.  mutants.py draws the mutants and runs them; mutants_<room>.py has a room.
Order: operators, lines, rooms, building, judging.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 180  # a mutant that runs longer hangs: the right kernels need a few seconds

# Each schedule may show another fault; all checks are on.
SETTINGS = [
    {"schedule": "ascending", "checks": True},
    {"schedule": "descending", "checks": True},
    {"schedule": "shuffle", "seed": 3, "checks": True},
    {"schedule": "preempt", "seed": 5, "checks": True},
]


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

    @property
    def around(self) -> str:
        """The line with those before and after it."""
        lines = (ROOT / "csrc" / self.file).read_text(encoding="utf-8").splitlines()
        return " ".join(line.strip() for line in lines[self.line - 2 : self.line + 1])


# (file, text, operator): why no test can distinguish the mutant.  The text is that of the
# line or, where a file has several such lines, with the lines before and after it.
Equivalent = dict[tuple[str, str, str], str]
Operator = Callable[[str], Iterator[str]]


# ---- operators: from a line to its mutants ----


def barriers(line: str) -> Iterator[str]:
    for word in ("__syncthreads();", "__syncwarp();", "__threadfence();", "meet();"):
        if word in line:
            yield line.replace(word, ";")


def comparisons(line: str) -> Iterator[str]:
    for match in re.finditer(r" (<|<=|>|>=) ", line):
        other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[match[1]]
        yield line[: match.start(1)] + other + line[match.end(1) :]


def strides(line: str) -> Iterator[str]:
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


def narrowings(line: str) -> Iterator[str]:
    for match in re.finditer(r"\bint64_t (?=(i|k|begin|end|first|offset)\b)", line):
        yield line[: match.start()] + "int32_t " + line[match.end() :]
    for match in re.finditer(r"static_cast<int64_t>\(blockIdx\.x\)", line):
        yield line[: match.start()] + "static_cast<int32_t>(blockIdx.x)" + line[match.end() :]


def tails(line: str) -> Iterator[str]:
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


# ---- lines ----


def code_lines(
    path: Path, covers_all: Callable[[str], bool] = lambda line: False
) -> Iterator[tuple[int, str]]:
    """Number and text of each line of device code.

    Host code chooses grids and variants: most changes there affect only the speed; a room
    names those lines of it (`covers_all`) that do more.
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
        if function is not None or covers_all(line):
            yield number, line
        if function is not None and line == function + "}":
            function = None


# ---- rooms ----


class Room(ABC):
    """The mutants of one room of csrc/ops."""

    name: str
    count: int  # drawn for the record
    operators: ClassVar[dict[str, Operator]]
    equivalent: Equivalent

    @property
    def folder(self) -> Path:
        """Relative to the root."""
        return Path("csrc") / "ops" / self.name

    @abstractmethod
    def all_mutants(self) -> list[Mutant]:
        """Every mutant of every file, in order."""

    @abstractmethod
    def shrink(self, csrc: Path, rungs: tuple[str, ...]) -> None:
        """Leaves out of the sources what the rungs do not need, for the compile time."""

    @abstractmethod
    def sources(self, place: Path, rungs: tuple[str, ...]) -> list[Path]:
        """The kernel files of the rungs."""

    @abstractmethod
    def oracle(self, rungs: list[str], large: bool) -> None:
        """Runs the rungs, in a process of its own: SystemExit or a fault kills the mutant."""

    def group(self, mutant: Mutant) -> str:
        """Mutants are drawn from every group in turn."""
        return mutant.operator

    def drawn(self, count: int) -> list[Mutant]:
        """`count` of the mutants, spread over the groups, the same ones every time."""
        by_group: dict[str, list[Mutant]] = {operator: [] for operator in self.operators}
        for mutant in self.all_mutants():
            by_group.setdefault(self.group(mutant), []).append(mutant)
        generator = random.Random(14)
        for mutants in by_group.values():
            generator.shuffle(mutants)
        chosen: list[Mutant] = []
        while len(chosen) < count and any(by_group.values()):
            for mutants in by_group.values():
                if mutants and len(chosen) < count:
                    chosen.append(mutants.pop())
        return chosen

    def counted(self, mutants: list[Mutant], verdicts: list[str]) -> list[tuple[Mutant, str]]:
        """Drops mutants that do not compile or change nothing."""
        return [
            (m, verdict)
            for m, verdict in zip(mutants, verdicts, strict=True)
            if verdict != "does not compile" and (verdict or not self.reason(m))
        ]

    def reason(self, mutant: Mutant) -> str:
        """Why a mutant changes nothing; empty if it may."""
        texts = (mutant.before, mutant.around)
        found = (self.equivalent.get((mutant.file, t, mutant.operator)) for t in texts)
        return next((reason for reason in found if reason), "")


# ---- building one ----


class Workshop:
    """Compiles mutants of a room; what a mutant does not change is compiled once."""

    def __init__(self, room: Room, folder: Path) -> None:
        sys.path.insert(0, str(ROOT / "_build"))
        import simulator
        import steps

        self.room, self.simulator, self.folder = room, simulator, folder
        base = simulator.library_steps(
            ROOT, {"profile": folder / "base.so"}, folder / "base", [], with_rooms=True
        )
        steps.run_all(base)
        self.objects = base[-1].after
        self.link = base[-1].command
        # kernel files that the right kernels of these rungs were compiled from: object, inputs
        self.right: dict[tuple[str, ...], dict[str, tuple[Path, set[str]]]] = {}

    def sources(self, place: Path, rungs: tuple[str, ...], mutant: Mutant | None) -> None:
        """A copy of csrc for the rungs, with the mutant's line."""
        shutil.copytree(ROOT / "csrc", place / "csrc", ignore=shutil.ignore_patterns("bind"))
        if mutant:
            path = place / "csrc" / mutant.file
            lines = path.read_text(encoding="utf-8").splitlines()
            lines[mutant.line - 1] = mutant.after
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.room.shrink(place / "csrc", rungs)

    def compiled(self, place: Path, source: Path) -> tuple[Path, set[str]]:
        """The object of a kernel file, and the files of csrc that it read."""
        step = self.simulator.kernel_step(place / "csrc", source, place, [])
        for output in step.outputs:
            output.parent.mkdir(exist_ok=True)
        # an overrun of a thread's own array traps, as in `make sanitize`
        command = [*step.command, "-w", "-fsanitize=bounds",
                   "-fsanitize-undefined-trap-on-error"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, text=True)
        inputs = {os.path.relpath(p.resolve(), place / "csrc") for p in step.inputs()}
        return step.output, inputs

    def prepare(self, rungs: tuple[str, ...]) -> None:
        """Compiles the right kernels of the rungs."""
        place = self.folder / f"right_{len(self.right)}"
        self.sources(place, rungs, None)
        self.right[rungs] = {
            source.name: self.compiled(place, source)
            for source in self.room.sources(place, rungs)
        }

    def build(self, number: int, mutant: Mutant | None, rungs: tuple[str, ...]) -> Path:
        """A package folder whose simulator has the mutant's kernels; None: the right ones."""
        place = self.folder / str(number)
        self.sources(place, rungs, mutant)
        right, objects = self.right[rungs], []
        for source in self.room.sources(place, rungs):
            there, inputs = right[source.name]
            if mutant and mutant.file in inputs:
                there, _ = self.compiled(place, source)
            objects.append(str(there))
        return self._package(place, objects)

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


# ---- judging one ----


def judged(workshop: Workshop, number: int, mutant: Mutant | None, rungs: tuple[str, ...],
           large: bool) -> str:  # fmt: skip
    """Empty if the kernels pass, else how the mutant was detected."""
    try:
        place = workshop.build(number, mutant, rungs)
    except subprocess.CalledProcessError as error:
        if mutant is None:
            sys.stderr.write(error.stderr)
        return "does not compile"
    runner = Path(__file__).resolve().with_name("mutants.py")
    command = [sys.executable, str(runner), "--room", workshop.room.name]
    command += ["--oracle", ",".join(rungs), *(["--large"] if large else [])]
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
