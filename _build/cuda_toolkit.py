"""Finds nvcc, chooses the architectures and makes the compile steps of the kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from steps import Step, flag, jobs, weight

ROOT = Path(__file__).resolve().parent.parent

# The pinned compiler wheels of a build without a toolkit; backend.py requests them from pip.
WHEELS = [
    "nvidia-cuda-nvcc==13.0.*",
    "nvidia-cuda-crt==13.0.*",
    "nvidia-nvvm==13.0.*",
    "nvidia-cuda-runtime==13.0.*",
    "nvidia-cuda-cccl==13.0.*",
]
# GPUs of compute capability 8.9 run the code for 8.6; a wheel with their own is above 100 MB.
RELEASE_ARCHS = ["75", "80", "86", "90a", "100", "120"]
OLDEST = (13, 0)
# For a build in place without a GPU: each architecture takes half of the build time.
DEVELOPER_ARCHS = ["90a"]


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
    """Whether to download the compiler: no nvcc, but a driver or GPUOPT_CUDA=1."""
    if not flag("GPUOPT_CUDA", default=True) or toolkit_nvcc():
        return False
    return has_driver() or flag("GPUOPT_CUDA")


def wanted_archs() -> list[str]:
    """GPUOPT_CUDA_ARCHS: "80 90a" or "80,90a" or "release"; empty if it says nothing."""
    text = os.environ.get("GPUOPT_CUDA_ARCHS", "")
    names = text.replace(",", " ").split()
    if names == ["release"]:
        return RELEASE_ARCHS
    for name in names:
        if not re.fullmatch(r"\d{2,3}[af]?", name) or int(name.rstrip("af")) < 75:
            raise SystemExit(
                f"gpuopt: GPUOPT_CUDA_ARCHS must be 'release' or numbers of architectures "
                f"from 75 on, such as '80 90a', not '{text}'"
            )
    return sorted(set(names), key=lambda name: (int(name.rstrip("af")), name))


def archs_at_hand() -> list[str]:
    """The architectures of the GPUs of this machine."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return []
    query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True)
    found = set(re.findall(r"(\d+)\.(\d)", answer.stdout))
    pairs = sorted((int(major), minor) for major, minor in found)
    names = ["90a" if major == 9 else f"{major}{minor}" for major, minor in pairs]
    return names if answer.returncode == 0 else []


def archs(in_place: bool) -> list[str]:
    """Those requested, else this machine's GPUs, else one in place and all in a wheel."""
    return wanted_archs() or archs_at_hand() or (DEVELOPER_ARCHS if in_place else RELEASE_ARCHS)


def kernel_files(csrc: Path) -> list[Path]:
    """Every file that nvcc compiles: each room's .cu files and those of device/."""
    folders = ("ops/*/*.cu", "ops/*/ladder/*.cu", "ops/*/shapes/*.cu", "device/*.cu")
    return sorted(file for folder in folders for file in csrc.glob(folder))


def is_named_in(source: Path) -> bool:
    """Whether a C file is another one in a build with CUDA, or for other architectures."""
    text = source.read_text(encoding="utf-8")
    return bool(re.search(r"\bGPO_(?:WITH_CUDA|CUDA_\w+|TABLES)\b", text))


def object_name(source: Path) -> str:
    """reduce_cuda.o, reduce_short_rows.o, device_copy.o."""
    room = source.parent
    if room.name in ("ladder", "shapes"):
        room = room.parent
    return f"{room.name}_{source.stem}.o"


# Instructions that only sm_90 has, and its bfloat16 atomics, which older PTX emulates.
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

    A file that needs nothing newer is compiled once to PTX for sm_80, for all architectures
    from there on: a quarter less to compile for two architectures.
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
        try:
            query = [str(self.nvcc), "--version"]
            text = subprocess.run(query, capture_output=True, text=True).stdout
        except OSError:
            text = ""
        match = re.search(r"release (\d+\.\d+)", text)
        return match.group(1) if match else "unknown"

    def check(self) -> None:
        """Ends the build with one sentence if this compiler is too old or does not run."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        if not found or (int(found[1]), int(found[2])) < OLDEST:
            raise SystemExit(
                f"gpuopt: {self.nvcc} is CUDA {self.version}, and kernels need 13.0 or later: "
                "set CUDA_HOME to a newer toolkit, or GPUOPT_CUDA=0 to build without CUDA"
            )

    def check_archs(self, names: list[str]) -> None:
        """Ends the build with one sentence if this compiler does not know an architecture."""
        query = [str(self.nvcc), "--list-gpu-code"]
        answer = subprocess.run(query, capture_output=True, text=True)
        known = sorted(set(re.findall(r"sm_(\d+)", answer.stdout)), key=int)
        unknown = [name for name in names if known and name.rstrip("af") not in known]
        if unknown:
            raise SystemExit(
                f"gpuopt: nvcc {self.version} does not compile for {' '.join(unknown)}; "
                f"GPUOPT_CUDA_ARCHS can name {' '.join(known)}"
            )

    @property
    def include(self) -> Path:
        return self.home / "include"

    @property
    def runtime(self) -> Path:
        """libcudart_static.a, in any of the layouts of a toolkit."""
        for part in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
            library = self.home / part / "libcudart_static.a"
            if library.exists():
                return library
        raise SystemExit(
            f"gpuopt: no libcudart_static.a under {self.home}: install the whole toolkit "
            "(Debian: cuda-cudart-dev-13-0), or set GPUOPT_CUDA=0 to build without CUDA"
        )

    def step(self, source: Path, output: Path, names: list[str], warnings: list[str]) -> Step:
        host = ["-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti"]
        host.append("-fno-asynchronous-unwind-tables")  # 0.8 MB that only debuggers read
        host.append(f"-ffile-prefix-map={ROOT}/=")
        command = [
            str(self.nvcc), "-c", str(source), "-o", str(output),
            "-std=c++17", "-O1",  # of the host code, which launches; kernels are always -O3
            "-DGPO_WITH_CUDA", "-Xptxas", "-v", "-Xcompiler", ",".join(host),
            "--compress-mode=size",  # a fifth of the bytes; the driver unpacks at first use
            *gencode(names, source), "--threads", str(min(len(names), jobs())),
            "-MMD", "-MF", str(output) + ".d", *warnings,
        ]  # fmt: skip
        if flag("GPUOPT_LINEINFO"):  # for profilers; doubles the size
            command.append("-lineinfo")
        return Step(output, command, cost=3.0 * weight(source) * len(names))


def find() -> Toolkit | None:
    """The compiler to use, or None for a build of the CPU backend and the simulator."""
    wanted = flag("GPUOPT_CUDA", default=True)
    if not wanted:
        return None
    nvcc = toolkit_nvcc() or wheel_nvcc()
    if not nvcc and os.environ.get("GPUOPT_CUDA"):
        raise SystemExit(
            "gpuopt: GPUOPT_CUDA=1, but there is no nvcc on PATH or in CUDA_HOME: "
            "install the CUDA toolkit 13, or `pip install .`, which fetches the compiler"
        )
    if not nvcc:
        return None
    toolkit = Toolkit(nvcc)
    toolkit.check()
    return toolkit
