"""Builds the extension module gpuopt._core, and the simulator beside it.

C is compiled by the C compiler (CC, else gcc), kernels by nvcc if it is found, and everything
is linked by the C compiler: kernel files export plain C functions.
Environment: GPUOPT_CUDA=0|1, GPUOPT_CUDA_ARCHS, GPUOPT_LINEINFO=1, GPUOPT_SIM_ROOMS,
GPUOPT_WERROR=1, MAX_JOBS, CC, CXX, CFLAGS, LDFLAGS; CONTRIBUTING.md says what each does.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
sys.path.insert(0, str(ROOT / "_build"))
import checks  # noqa: E402
import cuda_toolkit  # noqa: E402
import documentation  # noqa: E402
import glibc  # noqa: E402
import simulator  # noqa: E402
from steps import STRICT, STRICT_CUDA, Step, flag, run_all, weight  # noqa: E402

if refusal := checks.platform_refusal(sys.platform):
    raise SystemExit(refusal)
try:
    import numpy
except ImportError:
    raise SystemExit(
        "gpuopt: numpy is missing: `pip install .` and `make build` bring what a build needs"
    ) from None

VERSION = "0.1.0"
C_FLAGS = [
    "-std=c11", "-O3", "-fPIC", "-fvisibility=hidden",
    "-ffp-contract=off",  # the same bits on every instruction set
    "-fno-math-errno",  # a square root is one instruction
    "-fno-trapping-math",  # both sides of a branch may be computed: nothing reads the flags
    "-Wall", "-Wextra",
    "-Wno-missing-field-initializers",  # C sets the remaining fields of a row to zero
    "-DPy_LIMITED_API=0x030B0000",
    "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION",
    "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION",
    f'-DGPO_VERSION="{VERSION}"',
]  # fmt: skip

# In a wheel: older versions of glibc have threads and dlopen in separate libraries.
RELEASE_LINK = ["-Wl,--no-as-needed"]
RELEASE_LINK += [f"-l:lib{name}" for name in ("pthread.so.0", "dl.so.2", "rt.so.1")]


def c_sources() -> list[Path]:
    folders = ["core", "bind", "backend", "ops/*"]
    return sorted(f for folder in folders for f in (ROOT / "csrc").glob(folder + "/*.c"))


def put(file: Path, target: Path) -> None:
    """Copies a library if it has changed; a process that has loaded the old one keeps it."""
    same = target.exists() and target.stat().st_mtime_ns == file.stat().st_mtime_ns
    if not same or target.stat().st_size != file.stat().st_size:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(target.name + ".new")
        shutil.copy2(file, fresh)
        fresh.replace(target)


class BuildExtension(build_ext):
    """One pool of compile steps for C, CUDA and the simulator, then two links."""

    def run(self) -> None:
        # setuptools clears `inplace` for the build itself.
        self.in_place = bool(self.inplace or self.editable_mode)
        super().run()

    def build_extension(self, ext: Extension) -> None:
        module = Path(self.get_ext_fullpath(ext.name)).resolve()
        temp = Path(self.build_temp).resolve()
        if self.editable_mode:
            # setuptools passes a temporary folder; that of `build_ext --inplace` is kept.
            tag = sys.implementation.cache_tag
            temp = ROOT / "build" / f"temp.{self.plat_name}-{tag}"
        checks.check_compilers()
        toolkit = cuda_toolkit.find()
        archs = cuda_toolkit.archs(self.in_place) if toolkit else []
        werror = flag("GPUOPT_WERROR")
        if toolkit:
            toolkit.check_archs(archs)
            print(f"gpuopt: CUDA {toolkit.version} for {' '.join(archs)}, {toolkit.nvcc}")
        else:
            print("gpuopt: no CUDA compiler: building the CPU backend and the simulator alone")

        # A thread's stack may be only 64 KiB, of which a gpo_call takes 16: large buffers
        # come from gpo_cpu_work.
        strict_c = STRICT if werror else []
        steps = self.c_steps(temp, toolkit, archs, strict_c)
        if toolkit:
            strict = STRICT_CUDA if werror else []
            for source in cuda_toolkit.kernel_files(ROOT / "csrc"):
                output = temp / "cuda" / cuda_toolkit.object_name(source)
                steps.append(toolkit.step(source, output, archs, strict))
        # The package gets only the libraries, not the files that the steps write beside them.
        linked = temp / "linked"
        portable = not self.in_place and platform.libc_ver()[0] == "glibc"
        flags = RELEASE_LINK if portable else []
        objects = [s.output for s in steps if s.output.suffix == ".o"]
        link = self.link_step(linked / module.name, objects, toolkit)
        link.command += flags
        if not flag("GPUOPT_LINEINFO"):  # names of local functions, 3.5 MB, for debuggers
            link.command.append("-Wl,--strip-all")
        simulators = simulator.steps(ROOT, linked, temp, flags, werror)
        run_all([*steps, link, *simulators])
        for library in (module.name, *simulator.LIBRARIES.values()):
            put(linked / library, module.parent / library)
            if portable:
                glibc.Library(module.parent / library).lower()

    def copy_extensions_to_source(self) -> None:
        """An in-place build copies the simulator beside the module, too."""
        super().copy_extensions_to_source()
        for library in simulator.LIBRARIES.values():
            put(Path(self.build_lib) / "gpuopt" / library, ROOT / "gpuopt" / library)

    def c_steps(
        self,
        temp: Path,
        toolkit: cuda_toolkit.Toolkit | None,
        archs: list[str],
        strict: list[str],
    ) -> list[Step]:
        compiler = shlex.split(os.environ.get("CC", "gcc"))
        flags = [*C_FLAGS, *strict, *shlex.split(os.environ.get("CFLAGS", ""))]
        flags.append(f"-ffile-prefix-map={ROOT}/=")  # no paths of the build machine
        flags += ["-I" + sysconfig.get_path("include"), "-I" + numpy.get_include()]
        with_cuda = []
        if toolkit:
            with_cuda = [
                "-DGPO_WITH_CUDA", "-isystem", str(toolkit.include),
                f'-DGPO_CUDA_VERSION="{toolkit.version}"',
                f'-DGPO_CUDA_ARCHS="{" ".join(archs)}"',
            ]  # fmt: skip
        docs = documentation.step(ROOT, temp)
        steps = [docs]
        for source in c_sources():
            name = "_".join(source.relative_to(ROOT / "csrc").with_suffix("").parts)
            output = temp / "c" / (name + ".o")
            command = [*compiler, "-c", str(source), "-o", str(output), *flags]
            if cuda_toolkit.is_named_in(source):  # loops are the same with and without CUDA
                command += with_cuda
            command += ["-MMD", "-MF", str(output) + ".d"]
            # A byte of loops for three instruction sets takes four times as long as a kernel's
            # for the simulator, and the longest file decides where there are many cores.
            step = Step(output, command, cost=4.0 * weight(source))
            if source == ROOT / "csrc" / "bind" / "module.c":  # it includes docs.h
                step.command.append("-I" + str(docs.output.parent))
                step.after.append(docs.output)
            steps.append(step)
        return steps

    def link_step(
        self, module: Path, objects: list[Path], toolkit: cuda_toolkit.Toolkit | None
    ) -> Step:
        command = [
            *shlex.split(os.environ.get("CC", "gcc")), "-shared", "-o", str(module),
            *map(str, objects), "-lm", "-ldl", "-lpthread",
            "-static-libgcc", "-Wl,--exclude-libs,ALL",
            *shlex.split(os.environ.get("LDFLAGS", "")),
        ]  # fmt: skip
        if toolkit:
            command += [str(toolkit.runtime), "-lrt"]
        return Step(module, command, after=objects)


class BuildPython(build_py):
    """Adds the C and CUDA sources that gpuopt.source() shows, the simulator's, the examples.

    gpuopt.lab.kernel compiles the simulator together with a user's kernel.
    """

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "gpuopt" / "csrc"
            for part in ("ops", "device", "core", "sim"):
                shutil.copytree(ROOT / "csrc" / part, target / part, dirs_exist_ok=True)
            (target / "backend").mkdir(exist_ok=True)
            shutil.copy(ROOT / "csrc" / "backend" / "backend.h", target / "backend")
            examples = Path(self.build_lib) / "gpuopt" / "examples"
            examples.mkdir(exist_ok=True)
            for example in (ROOT / "examples").glob("[!.]*.*"):
                shutil.copy(example, examples)


setup(
    version=VERSION,
    packages=[
        "gpuopt",
        "gpuopt.lab",
        "gpuopt.torch",
        "gpuopt.benchmarks",
        "gpuopt.benchmarks.peers",
        "gpuopt.benchmarks.results",
        "gpuopt.benchmarks.sweep",
        "gpuopt.benchmarks.sweep.peers",
        "gpuopt.benchmarks.workloads",
    ],
    package_data={
        "gpuopt": ["py.typed", "*.pyi"],
        "gpuopt.lab": ["*.cu", "*.cpp", "*.h"],
        "gpuopt.benchmarks": ["targets.tsv", "methods_published.tsv"],
        "gpuopt.benchmarks.peers": ["*.cu"],
        "gpuopt.benchmarks.results": ["h200-*.json"],
    },
    ext_modules=[Extension("gpuopt._core", [], py_limited_api=True)],
    cmdclass={"build_ext": BuildExtension, "build_py": BuildPython},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
