"""Where nvcc is, which architectures it compiles for, and its compile steps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from steps import Step

# The pinned compiler of a build without a toolkit; backend.py asks pip for them.
WHEELS = [
    "nvidia-cuda-nvcc==13.0.*",
    "nvidia-cuda-crt==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-cccl==13.0.*",
]
RELEASE_ARCHS = ["75", "80", "86", "89", "90a", "100", "120"]
DEVELOPER_ARCHS = ["80", "90a"]


def toolkit_nvcc() -> Path | None:
    """nvcc of an installed toolkit: CUDA_HOME first, then PATH."""
    home = os.environ.get("CUDA_HOME")
    if home and (Path(home) / "bin" / "nvcc").exists():
        return Path(home) / "bin" / "nvcc"
    found = shutil.which("nvcc")
    return Path(found) if found else None


def wheel_nvcc() -> Path | None:
    """nvcc of the compiler wheels, where pip has put them for this build."""
    for key in ("purelib", "platlib"):
        nvcc = Path(sysconfig.get_path(key)) / "nvidia" / "cu13" / "bin" / "nvcc"
        if nvcc.exists():
            return nvcc
    return None


def has_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or bool(shutil.which("nvidia-smi"))


def wants_wheels() -> bool:
    """Whether a build should fetch the compiler: no nvcc, but a driver or an order."""
    if os.environ.get("GPUOPT_CUDA") == "0" or toolkit_nvcc():
        return False
    return has_driver() or os.environ.get("GPUOPT_CUDA") == "1"


def archs() -> list[str]:
    """GPUOPT_CUDA_ARCHS ("80 90a", "release"), else the GPU at hand, else 80 and 90a."""
    wanted = os.environ.get("GPUOPT_CUDA_ARCHS", "").replace(",", " ").split()
    if wanted == ["release"]:
        return RELEASE_ARCHS
    if wanted:
        return wanted
    smi = shutil.which("nvidia-smi")
    if smi:
        query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True)
        found = sorted(set(re.findall(r"(\d+)\.(\d)", answer.stdout)))
        if answer.returncode == 0 and found:
            return ["90a" if a + b == "90" else a + b for a, b in found]
    return DEVELOPER_ARCHS


# Instructions of sm_90 alone, and its atomics of bfloat16, which older PTX emulates.
OF_SM_90 = re.compile(r"\bGPO_HOPPER\b|__CUDA_ARCH__ >= 9|\batomic_add\(")


def asks_for_sm_90(source: Path) -> bool:
    """Whether a kernel file, or a header it includes, has better code from sm_90 on."""
    text = source.read_text(encoding="utf-8")
    included = re.findall(r'^#include "(.+\.cuh)"', text, re.MULTILINE)
    return bool(OF_SM_90.search(text)) or any(
        asks_for_sm_90(source.parent / name) for name in included
    )


def gencode(names: list[str], source: Path) -> list[str]:
    """Machine code for each architecture, and PTX of the last one without an `a`.

    Where a file asks for nothing newer, PTX for sm_80 serves all from there on and is made
    once: a quarter less to compile for two architectures.
    """
    own = asks_for_sm_90(source)

    def ptx(name: str) -> str:
        return name if own or int(name.rstrip("a")) < 80 else "80"

    flags = [
        f"-gencode=arch=compute_{ptx(a)},code=sm_{a if own else a.rstrip('a')}" for a in names
    ]
    plain = [ptx(a) for a in names if not a.endswith("a")]
    if plain:
        flags.append(f"-gencode=arch=compute_{plain[-1]},code=compute_{plain[-1]}")
    return flags


@dataclass
class Toolkit:
    """The CUDA compiler a build uses."""

    nvcc: Path

    @cached_property
    def home(self) -> Path:
        return self.nvcc.resolve().parent.parent

    @cached_property
    def version(self) -> str:
        text = subprocess.run([str(self.nvcc), "--version"], capture_output=True, text=True)
        match = re.search(r"release (\d+\.\d+)", text.stdout)
        return match.group(1) if match else "unknown"

    @property
    def include(self) -> Path:
        return self.home / "include"

    @property
    def runtime(self) -> Path:
        """libcudart_static.a, wherever this layout keeps it."""
        for part in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            library = self.home / part / "libcudart_static.a"
            if library.exists():
                return library
        raise SystemExit(f"gpuopt: no libcudart_static.a under {self.home}")

    def step(self, source: Path, output: Path, warnings: list[str]) -> Step:
        names = archs()
        command = [
            str(self.nvcc), "-c", str(source), "-o", str(output),
            "-std=c++17", "-O1",  # of the host code, which launches; kernels are always -O3
            "-lineinfo", "-DGPO_WITH_CUDA", "-Xptxas", "-v",
            "-Xcompiler", "-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti",
            *gencode(names, source), "--threads", str(len(names)),
            "-MMD", "-MF", str(output) + ".d", *warnings,
        ]  # fmt: skip
        return Step(output, command)


def find() -> Toolkit | None:
    """The compiler to use, or None for a build of the CPU backend and the simulator."""
    if os.environ.get("GPUOPT_CUDA") == "0":
        return None
    nvcc = toolkit_nvcc() or wheel_nvcc()
    if not nvcc and os.environ.get("GPUOPT_CUDA") == "1":
        raise SystemExit("gpuopt: GPUOPT_CUDA=1, but there is no nvcc on PATH or in CUDA_HOME")
    return Toolkit(nvcc) if nvcc else None
