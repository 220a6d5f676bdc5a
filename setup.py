"""Builds the extension module gpuopt._core, and the simulator beside it.

C is compiled by the C compiler (CC, else gcc), kernels by nvcc where there is one, and
everything is linked by the C compiler: the pieces meet at a plain C border.
Environment: GPUOPT_CUDA=0|1, GPUOPT_CUDA_ARCHS, GPUOPT_WERROR=1, MAX_JOBS, CC, CXX.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT / "_build"))
import cuda  # noqa: E402
import simulator  # noqa: E402
from steps import Step, run_all  # noqa: E402

VERSION = "0.1.0"
C_FLAGS = [
    "-std=c11", "-O3", "-fPIC", "-fvisibility=hidden",
    "-ffp-contract=off",  # the same bits on every instruction set
    "-fno-math-errno",  # a square root is one instruction
    "-fno-trapping-math",  # both sides of a choice may be computed: nobody reads the flags
    "-Wall", "-Wextra",
    "-Wno-missing-field-initializers",  # C sets the rest of a table's row to zero
    "-DPy_LIMITED_API=0x030B0000",
    "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION",
    "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION",
    f'-DGPO_VERSION="{VERSION}"',
]  # fmt: skip


def c_sources() -> list[Path]:
    folders = ["core", "bind", "backend", "ops/*"]
    return sorted(f for folder in folders for f in (ROOT / "csrc").glob(folder + "/*.c"))


class BuildExtension(build_ext):
    """One pool of compile steps for C, CUDA and the simulator, then two links."""

    def build_extension(self, ext: Extension) -> None:
        module = Path(self.get_ext_fullpath(ext.name)).resolve()
        temp = Path(self.build_temp).resolve()
        if self.editable_mode:
            # It hands out a passing folder; that of `build_ext --inplace` keeps the objects.
            tag = sys.implementation.cache_tag
            temp = ROOT / "build" / f"temp.{self.plat_name}-{tag}"
        toolkit = cuda.find()
        werror = os.environ.get("GPUOPT_WERROR") == "1"
        if toolkit:
            print(
                f"gpuopt: CUDA {toolkit.version} for {' '.join(cuda.archs())}, {toolkit.nvcc}"
            )
        else:
            print("gpuopt: no CUDA compiler: building the CPU backend and the simulator alone")

        # Threads have as little as 64 KiB of stack: large buffers go to gpo_cpu_work.
        strict_c = ["-Werror", "-Wframe-larger-than=16384"] if werror else []
        steps = self.c_steps(temp, toolkit, strict_c)
        if toolkit:
            strict = ["-Werror", "all-warnings"] if werror else []
            kernels = [
                *(ROOT / "csrc").glob("ops/*/*.cu"),
                *(ROOT / "csrc").glob("device/*.cu"),
            ]
            for source in sorted(kernels):
                output = temp / "cuda" / (source.parent.name + "_" + source.stem + ".o")
                steps.append(toolkit.step(source, output, strict))
        module.parent.mkdir(parents=True, exist_ok=True)
        link = self.link_step(module, [s.output for s in steps], toolkit)
        run_all([*steps, link, *simulator.steps(ROOT, module.parent, temp, werror)])

    def copy_extensions_to_source(self) -> None:
        """An in-place build puts the simulator beside the module, too."""
        super().copy_extensions_to_source()
        for library in (Path(self.build_lib) / "gpuopt").glob("_sim*.so"):
            shutil.copy2(library, ROOT / "gpuopt")

    def c_steps(
        self, temp: Path, toolkit: cuda.Toolkit | None, strict: list[str]
    ) -> list[Step]:
        compiler = os.environ.get("CC", "gcc").split()
        flags = [*C_FLAGS, *strict, *os.environ.get("CFLAGS", "").split()]
        flags += ["-I" + sysconfig.get_path("include"), "-I" + numpy.get_include()]
        if toolkit:
            flags += [
                "-DGPO_WITH_CUDA", "-isystem", str(toolkit.include),
                f'-DGPO_CUDA_VERSION="{toolkit.version}"',
                f'-DGPO_CUDA_ARCHS="{" ".join(cuda.archs())}"',
            ]  # fmt: skip
        steps = []
        for source in c_sources():
            name = "_".join(source.relative_to(ROOT / "csrc").with_suffix("").parts)
            output = temp / "c" / (name + ".o")
            command = [*compiler, "-c", str(source), "-o", str(output), *flags]
            steps.append(Step(output, [*command, "-MMD", "-MF", str(output) + ".d"]))
        return steps

    def link_step(
        self, module: Path, objects: list[Path], toolkit: cuda.Toolkit | None
    ) -> Step:
        command = [
            *os.environ.get("CC", "gcc").split(), "-shared", "-o", str(module),
            *map(str, objects), "-lm", "-ldl", "-lpthread",
            "-static-libgcc", "-Wl,--exclude-libs,ALL",
            *os.environ.get("LDFLAGS", "").split(),
        ]  # fmt: skip
        if toolkit:
            # nvcc's launch stubs guard their statics with two functions of libstdc++.
            command += [str(toolkit.runtime), "-lrt", "-l:libstdc++.a"]
        return Step(module, command, after=objects)


class BuildPython(build_py):
    """Adds the C and CUDA sources to the package: gpuopt.source() shows them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "gpuopt" / "csrc"
            shutil.copytree(ROOT / "csrc" / "ops", target / "ops", dirs_exist_ok=True)
            shutil.copytree(ROOT / "csrc" / "device", target / "device", dirs_exist_ok=True)


setup(
    version=VERSION,
    packages=[
        "gpuopt",
        "gpuopt.lab",
        "gpuopt.benchmarks",
        "gpuopt.benchmarks.peers",
        "gpuopt.benchmarks.workloads",
    ],
    package_data={
        "gpuopt": ["py.typed", "*.pyi"],
        "gpuopt.lab": ["*.cu"],
        "gpuopt.benchmarks": ["targets.tsv", "methods_published.tsv"],
        "gpuopt.benchmarks.peers": ["*.cu"],
    },
    ext_modules=[Extension("gpuopt._core", [], py_limited_api=True)],
    cmdclass={"build_ext": BuildExtension, "build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
