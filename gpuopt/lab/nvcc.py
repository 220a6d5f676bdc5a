"""Small CUDA programs compiled when they are needed and called through ctypes.

They measure the read ceiling and run the peer CUB.  A library is built once per process, in
a folder that is removed when the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["address", "build", "check", "find", "unavailable", "version"]


def find() -> str | None:
    """Return the path of nvcc: on PATH, else in CUDA_HOME or CUDA_PATH."""
    found = shutil.which("nvcc")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if found is None and variable in os.environ:
            found = shutil.which("nvcc", path=str(Path(os.environ[variable]) / "bin"))
    return found


def unavailable() -> str | None:
    """Return why CUDA files cannot be compiled here; None if they can."""
    return None if find() else "nvcc not found"


@functools.cache
def version() -> str:
    """Return nvcc's release, such as '13.0'."""
    nvcc = find()
    if nvcc is None:
        return ""
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True)
    return text.stdout.partition("release ")[2].partition(",")[0]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Return this process's folder, which is removed at exit."""
    return tempfile.TemporaryDirectory(prefix="gpuopt-lab-")


@functools.cache
def build(source: Path, arch: str = "native") -> ctypes.CDLL:
    """Compile a .cu file to a shared library for this machine's GPU and load it.

    Raises
    ------
    RuntimeError
        nvcc is missing or fails; the message contains its output.
    """
    return ctypes.CDLL(str(compile_library(source, arch)))


def compile_library(source: Path, arch: str = "native") -> Path:
    """Compile a .cu file to a shared library and return its path."""
    nvcc = find()
    if nvcc is None:
        raise RuntimeError("nvcc not found")
    library = Path(_folder().name) / f"{source.stem}.so"
    command = [nvcc, "-std=c++17", "-O3", f"-arch={arch}", "-shared"]
    command += ["-Xcompiler", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return library


def address(x: Any) -> int:
    """Return the device address of a torch tensor or a CUDA-array-interface object."""
    if hasattr(x, "data_ptr"):
        return int(x.data_ptr())
    return int(x.__cuda_array_interface__["data"][0])


def check(code: int) -> None:
    """Raise RuntimeError if a CUDA call returned an error."""
    if code:
        raise RuntimeError(f"CUDA error {code}")
