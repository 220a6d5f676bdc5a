"""Other programs, for the scripts of this folder: finding them, running them with a limit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path


def find(name: str) -> str | None:
    """The path of a program of CUDA's toolkit: on PATH, else where toolkits are installed."""
    found = shutil.which(name)
    homes = [os.environ.get(v) for v in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(home) / "bin" for home in homes if home]
    folders += [Path("/usr/local/cuda/bin"), Path("/usr/local/cuda/compute-sanitizer")]
    folders += sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)
    for folder in folders:
        found = found or shutil.which(name, path=str(folder))
    return found


def session(leader: int) -> list[int]:
    """The processes of the session that this process began, wherever in it their groups are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = (
                path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            )
            if int(fields[3]) == leader:
                found.append(int(path.parent.name))
    return found


def command(words: list[str], seconds: float) -> tuple[int | None, str]:
    """Run a program: its exit status, None if it was ended at its limit, and its output."""
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
        status: int | None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            for member in session(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # held by the driver: left
                process.wait(10)
        out.seek(0)
        return status, out.read()
