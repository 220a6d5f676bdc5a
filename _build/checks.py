"""What can be said before anything is compiled: where gpuopt builds, and with what."""

from __future__ import annotations

import os
import shlex
import shutil


def platform_refusal(system: str) -> str:
    """Why gpuopt cannot be built on `sys.platform`, in a sentence; "" if it can."""
    if system == "linux":
        return ""
    name = {"win32": "Windows", "darwin": "macOS"}.get(system, system)
    advice = {
        "win32": "install it inside of WSL 2, where the GPU works too",
        "darwin": "use a Linux container; its CPU backend and simulator need no GPU",
    }.get(system, "use a Linux machine")
    return f"gpuopt: builds and runs on Linux, not on {name}: {advice}"


def check_compilers() -> None:
    """Ends the build with a sentence if CC or CXX names no program."""
    for variable, default, language in (("CC", "gcc", "C"), ("CXX", "g++", "C++")):
        command = shlex.split(os.environ.get(variable, default))
        if not command or not shutil.which(command[0]):
            raise SystemExit(
                f"gpuopt: there is no {language} compiler '{' '.join(command)}': "
                f"install gcc and g++ (Debian: apt-get install gcc g++; Fedora: dnf install "
                f"gcc gcc-c++), or set {variable} to another one"
            )
