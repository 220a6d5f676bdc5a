"""Compile steps: one command each, run in parallel, skipped while up to date.

setup.py uses them for C, CUDA and the simulator.  A step is up to date if its command is that
of the last run (whether warnings are errors does not count) and no file it read, as listed
in the compiler's dependency file, is newer than its outputs.  Each step records the CPU time
it took; `python _build/times.py` shows it.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

NO_SPACE = os.strerror(errno.ENOSPC)
# What only turns warnings into errors: the output is the same without it.
STRICT = ["-Werror", "-Wframe-larger-than=20480"]
STRICT_CUDA = ["-Werror", "all-warnings"]


@dataclass(eq=False)
class Step:
    """One command that writes `output` (and `more`); it needs the files of `after` first."""

    output: Path
    command: list[str]
    after: list[Path] = field(default_factory=list)
    more: list[Path] = field(default_factory=list)
    cost: float = 0  # the costliest of those that may run goes first

    @property
    def outputs(self) -> list[Path]:
        return [self.output, *self.more]

    @property
    def depfile(self) -> Path:
        return self.output.with_name(self.output.name + ".d")

    @property
    def stamp(self) -> Path:
        """The recipe of the last run, and the seconds of CPU time it took."""
        return self.output.with_name(self.output.name + ".cmd")

    @property
    def recipe(self) -> str:
        """The command without what does not change its output."""
        checks = {*STRICT, *STRICT_CUDA}
        return shlex.join(word for word in self.command if word not in checks)

    @property
    def log(self) -> Path:
        """The compiler's messages; for kernels, the registers and bytes each one uses."""
        return self.output.with_name(self.output.name + ".log")

    def inputs(self) -> list[Path]:
        """The files the last run read, from the compiler's dependency file."""
        if not self.depfile.exists():
            return list(self.after)
        text = self.depfile.read_text().replace("\\\n", " ")
        return [Path(name) for name in text.partition(":")[2].split()] + list(self.after)

    def is_fresh(self) -> bool:
        if not self.stamp.exists() or not all(o.exists() for o in self.outputs):
            return False
        if "-MF" in self.command and not self.depfile.exists():
            return False  # its inputs are unknown
        if self.stamp.read_text().rpartition("\n")[0] != self.recipe:
            return False
        made = min(o.stat().st_mtime for o in self.outputs)
        return all(i.exists() and i.stat().st_mtime <= made for i in self.inputs())

    def run(self) -> None:
        if self.is_fresh():
            return
        try:
            for output in self.outputs:
                output.parent.mkdir(parents=True, exist_ok=True)
            self.stamp.unlink(missing_ok=True)
            status, said, seconds = measured(self.command)
            self.log.write_text(said)
            if status == 0:
                self.stamp.write_text(f"{self.recipe}\n{seconds:.2f}")
        except OSError as error:
            raise SystemExit(explained(error, self)) from None
        resources = ("ptxas info", "    ")  # what -Xptxas -v says goes to the log alone
        for line in said.splitlines(keepends=True):
            if status or not line.startswith(resources):
                sys.stderr.write(line)
        if status and NO_SPACE in said:
            raise SystemExit(explained(OSError(errno.ENOSPC, NO_SPACE), self))
        if status == -signal.SIGKILL or "Killed" in said:
            raise SystemExit(
                f"gpuopt: the compiler of {self.output.name} was killed, as if memory ran out: "
                "MAX_JOBS=1 runs one at a time, in 2 GB"
            )
        if status:
            raise SystemExit(f"gpuopt: this command failed:\n  {shlex.join(self.command)}")


def explained(error: OSError, step: Step) -> str:
    """One sentence on why a step cannot run, and what to do."""
    if error.errno == errno.ENOSPC:
        return (
            f"gpuopt: the disk of {step.output.parent} or of {tempfile.gettempdir()} is full: "
            "a build takes 400 MB; free some, or set TMPDIR to a folder with room"
        )
    if error.errno in (errno.ENOENT, errno.EACCES) and error.filename == step.command[0]:
        return (
            f"gpuopt: the compiler {step.command[0]} cannot be run ({error.strerror}): "
            "CC, CXX and CUDA_HOME choose another one"
        )
    return f"gpuopt: {error}"


def measured(command: list[str]) -> tuple[int, str, float]:
    """Runs a command; returns its exit status, its stderr and its CPU seconds."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    return process.returncode, text, usage.ru_utime + usage.ru_stime


def weight(source: Path) -> int:
    """Bytes of a file and of its room's files that it includes: a rough cost."""
    room = source.parent.parent if source.parent.name in ("ladder", "shapes") else source.parent
    files, total = [source.resolve()], 0
    for file in files:
        text = file.read_text(encoding="utf-8")
        total += len(text)
        for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
            other = (file.parent / name).resolve()
            if room.resolve() in other.parents and other.exists() and other not in files:
                files.append(other)
    return total


def flag(name: str, default: bool = False) -> bool:
    """A variable of the environment that is 0 or 1."""
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise SystemExit(f"gpuopt: {name} must be 0 or 1, not '{value}'")
    return value == "1" if value else default


def jobs() -> int:
    """How many steps run at once: MAX_JOBS, else the CPUs of this process."""
    wanted = os.environ.get("MAX_JOBS", "")
    if not wanted:
        return len(os.sched_getaffinity(0))
    if not wanted.isdecimal() or int(wanted) == 0:
        raise SystemExit(f"gpuopt: MAX_JOBS must be a number of compilers, not '{wanted}'")
    return int(wanted)


def run_all(steps: Sequence[Step]) -> None:
    """Runs every step after those whose outputs it needs, the most expensive first."""
    waiting = sorted(steps, key=lambda step: -step.cost)
    missing = {output for step in steps for output in step.outputs}
    running: set[Future[Step]] = set()

    failed = threading.Event()

    def run(step: Step) -> Step:
        try:
            if not failed.is_set():
                step.run()
        except BaseException:
            failed.set()
            raise
        return step

    with ThreadPoolExecutor(jobs()) as pool:
        try:
            while waiting or running:
                ready = [s for s in waiting if missing.isdisjoint(s.after)]
                waiting = [s for s in waiting if s not in ready]
                running |= {pool.submit(run, step) for step in ready}
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    missing.difference_update(future.result().outputs)
        finally:  # an interrupted build waits for what is running, and starts nothing more
            failed.set()
