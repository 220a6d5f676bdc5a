"""Checks before anything is compiled: the operating system and the compilers."""

from __future__ import annotations

import os
import shlex
import shutil


def platform_refusal(system: str) -> str:
    """One sentence on why gpuopt cannot be built on `system`; "" if it can."""
    if system == "linux":
        return ""
    name = {"win32": "Windows", "darwin": "macOS"}.get(system, system)
    advice = {
        "win32": "install it inside of WSL 2, where the GPU works too",
        "darwin": "use a Linux container; its CPU backend and simulator need no GPU",
    }.get(system, "use a Linux machine")
    return f"gpuopt: builds and runs on Linux, not on {name}: {advice}"


def check_compilers() -> None:
    """Ends the build with one sentence if CC or CXX is not a program."""
    for variable, default, language in (("CC", "gcc", "C"), ("CXX", "g++", "C++")):
        command = shlex.split(os.environ.get(variable, default))
        if not command or not shutil.which(command[0]):
            raise SystemExit(
                f"gpuopt: there is no {language} compiler '{' '.join(command)}': "
                f"install gcc and g++ (Debian: apt-get install gcc g++; Fedora: dnf install "
                f"gcc gcc-c++), or set {variable} to another one"
            )
