"""Tags the built wheel for many Linux systems (manylinux), and checks its contents.

auditwheel determines the oldest glibc that the wheel runs with, abi3audit checks the module
against Python's stable ABI.  This file checks for missing and unwanted files, for paths of
the build machine, and the size of the wheel and of each architecture.
Usage: release.py DIST
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import contents
import glibc

MOST = 100e6  # bytes: the limit of PyPI for a file
MOST_OF_AN_ARCHITECTURE = 12e6
LONGER_CODE = {"sm_100": 1.2}  # times as much; ptxas 13.0 emits a fifth more than for 9.0
PLATFORM = "manylinux_{}_{}".format(*glibc.OLDEST)
LIBRARIES = ("_core.abi3.so", "_sim.so", "_sim_profile.so")
WANTED = (
    *(f"gpuopt/{library}" for library in LIBRARIES),
    "gpuopt/__init__.py", "gpuopt/_core.pyi", "gpuopt/py.typed",
    "gpuopt/csrc/ops/reduce/cuda.cu", "gpuopt/csrc/device/launch.cuh",
    "gpuopt/csrc/sim/access.cpp", "gpuopt/csrc/core/gpo.h", "gpuopt/csrc/backend/backend.h",
    "gpuopt/lab/kernel_sim.cpp", "gpuopt/lab/kernel_sim.h", "gpuopt/lab/puzzle_solutions.cu",
    "gpuopt/examples/reduce_ladder.ipynb",
    "gpuopt/examples/language_model.py",
)  # fmt: skip
UNWANTED = (".cmd", ".log", ".o", ".d", ".pyc", ".new", ".so.cmd")


def findings(wheel: Path, builder: list[str]) -> list[str]:
    """What is wrong with a wheel, in sentences; it must contain no path of `builder`."""
    found = []
    if wheel.stat().st_size > MOST:
        found.append(f"{wheel.stat().st_size / 1e6:.1f} MB, above {MOST / 1e6:.0f}")
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        found += [f"{name} is missing" for name in WANTED if name not in names]
        found += [f"{name} does not belong there" for name in names if name.endswith(UNWANTED)]
        found += [
            f"{name} names {path}"
            for name in names
            for path in builder
            if path.encode() in archive.read(name)
        ]
        for name in names:
            if not name.endswith(".so"):
                continue
            library = Path(archive.extract(name, folder))
            newest = glibc.Library(library).newest()
            if newest > glibc.OLDEST:
                found.append(f"{name} needs glibc {'.'.join(map(str, newest))}")
            found += [
                f"{name}: {architecture} takes {size / 1e6:.1f} MB"
                for architecture, size in contents.architectures(library).items()
                if size > MOST_OF_AN_ARCHITECTURE * LONGER_CODE.get(architecture, 1.0)
            ]
    return found


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    tool = [sys.executable, "-m"]
    for wheel in folder.glob("*-linux_*.whl"):
        tag = f"{PLATFORM}_{wheel.stem.rpartition('-linux_')[2]}"
        command = [*tool, "auditwheel", "repair", "--plat", tag, "-w", str(folder), str(wheel)]
        subprocess.run(command, check=True)
        wheel.unlink()
    status = 0
    for wheel in folder.glob("*.whl"):
        builder = [str(Path.home()) + "/", str(Path(__file__).resolve().parent.parent)]
        found = findings(wheel, [*builder, tempfile.gettempdir() + "/"])
        done = subprocess.run([*tool, "abi3audit", "--strict", "--report", str(wheel)],
                              capture_output=True, text=True)  # fmt: skip
        if done.returncode:
            found.append(f"abi3audit: {done.stdout}{done.stderr}")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        for sentence in found:
            print(f"{wheel.name}: {sentence}", file=sys.stderr)
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
