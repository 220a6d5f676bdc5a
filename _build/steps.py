"""Compile steps: one command each, run in parallel, skipped while up to date.

Shared by setup.py for C, CUDA and the simulator.  A step is up to date when its
command is the one of the last run and no file it read (the compiler's own dependency
file says which) is newer than what it wrote.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Step:
    """One command that writes `output`; `after` names outputs it needs first."""

    output: Path
    command: list[str]
    after: list[Path] = field(default_factory=list)

    @property
    def depfile(self) -> Path:
        return self.output.with_name(self.output.name + ".d")

    @property
    def stamp(self) -> Path:
        return self.output.with_name(self.output.name + ".cmd")

    @property
    def log(self) -> Path:
        """What the compiler said; for kernels, the registers and bytes each one takes."""
        return self.output.with_name(self.output.name + ".log")

    def inputs(self) -> list[Path]:
        """The files the last run read, from the compiler's dependency file."""
        if not self.depfile.exists():
            return list(self.after)
        text = self.depfile.read_text().replace("\\\n", " ")
        return [Path(name) for name in text.partition(":")[2].split()] + list(self.after)

    def is_fresh(self) -> bool:
        if not self.output.exists() or not self.stamp.exists():
            return False
        if "-MF" in self.command and not self.depfile.exists():
            return False  # nobody knows what it was made of
        if self.stamp.read_text() != shlex.join(self.command):
            return False
        made = self.output.stat().st_mtime
        return all(i.exists() and i.stat().st_mtime <= made for i in self.inputs())

    def run(self) -> None:
        if self.is_fresh():
            return
        self.output.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(self.command, capture_output=True, text=True)
        self.log.write_text(done.stderr)
        resources = ("ptxas info", "    ")  # what -Xptxas -v says goes to the log alone
        for line in done.stderr.splitlines(keepends=True):
            if done.returncode or not line.startswith(resources):
                sys.stderr.write(line)
        if done.returncode != 0:
            raise SystemExit(f"gpuopt: this command failed:\n  {shlex.join(self.command)}")
        self.stamp.write_text(shlex.join(self.command))


def jobs() -> int:
    """How many steps run at once: MAX_JOBS, else the processors of this process."""
    wanted = os.environ.get("MAX_JOBS")
    return int(wanted) if wanted else len(os.sched_getaffinity(0))


def run_all(steps: Sequence[Step]) -> None:
    """Runs every step, those that need others' outputs after them."""
    waiting = list(steps)
    outputs = {step.output for step in steps}
    done: set[Path] = set()
    with ThreadPoolExecutor(jobs()) as pool:
        while waiting:
            ready = [s for s in waiting if all(a in done or a not in outputs for a in s.after)]
            list(pool.map(Step.run, ready))
            done |= {s.output for s in ready}
            waiting = [s for s in waiting if s.output not in done]
