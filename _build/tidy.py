"""Runs clang-tidy over the C files with the flags they are compiled with."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import documentation
import numpy
from steps import jobs

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ROOT / "build" / "generated"
FLAGS = [
    "-std=c11",
    "-DPy_LIMITED_API=0x030B0000",
    "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION",
    "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION",
    '-DGPO_VERSION="0"',
    "-isystem" + sysconfig.get_path("include"),
    "-isystem" + numpy.get_include(),
    "-I" + str(GENERATED),
]


def tidy(program: str, source: Path) -> tuple[int, str]:
    command = [program, "--quiet", str(source), "--", *FLAGS]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return 1, f"{program} is missing; on Debian: apt-get install clang-tidy"
    return done.returncode, done.stdout


def sources() -> list[Path]:
    """The C files, the longest first; what they include of generated ones is made before."""
    documentation.write(GENERATED / "docs.h", documentation.files(ROOT / "csrc"))
    parts = ("core", "bind", "backend", "ops/*")
    found = [f for part in parts for f in (ROOT / "csrc").glob(part + "/*.c")]
    return sorted(found, key=lambda f: (-f.stat().st_size, f))


def main() -> int:
    program = sys.argv[1]
    with ThreadPoolExecutor(jobs()) as pool:
        results = list(pool.map(lambda source: tidy(program, source), sources()))
    for code, text in results:
        if code:
            print(text)
    return max(code for code, _ in results)


if __name__ == "__main__":
    sys.exit(main())
