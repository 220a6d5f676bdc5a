"""The compile steps of the simulator: two libraries, or one with sanitizers.

`_sim.so` is plain and fast.  The kernel files of `_sim_profile.so` are instrumented
(-fsanitize=thread without libtsan, -fsanitize-coverage=trace-pc): the library's own hooks
check and count every access.  A kernel file is compiled once, instrumented; the plain
library has the same code without the calls (twins.py).  GPUOPT_SANITIZE=1 compiles only the
plain library, with ASan and UBSan.
GPUOPT_SIM_ROOMS="reduce scan" compiles the kernels of these rooms alone; the operators of the
others say so when they are asked to run in the simulator.
The tests compile their fixture kernels with the same flags, through `compile_kernels`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from cuda_toolkit import kernel_files, object_name
from steps import Step, flag, run_all, weight

BUILDS = ("plain", "profile")
LIBRARIES = {"plain": "_sim.so", "profile": "_sim_profile.so"}
FLAGS = [
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-threadsafe-statics",
    "-ffp-contract=off",  # the same bits as the other backends
    "-fno-strict-aliasing",  # kernels read arrays through wider types, as nvcc allows
    "-fwrapv",
    "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-psabi",
    "-Wno-unused-local-typedefs",
]  # fmt: skip
C_FLAGS = [
    "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off",
    "-DGPO_SIM_LIBRARY",  # a room's op.c names CPU variants, which stay in the module
]  # fmt: skip
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"]
# Names of functions, 1.5 MB, are for debuggers; lines.cpp reads .debug_line, all that is left
# of the debug information.
STRIP = ["objcopy", "--strip-unneeded", "--keep-section=.debug_line"]
# Large files whose loads are narrower than 16 bytes, or counted by no lesson.
SMALL = (
    "elementwise/v0_one_each", "elementwise/v2_peeled", "causal_conv1d/v6_toeplitz",
    "causal_conv1d/v7_spectra", "causal_conv1d/v7_spectra_gradients",
    "causal_conv1d/v7_spectra_lags", "causal_conv1d/update", "convolve/large_block",
    "convolve/transforms_in_double", "convolve/cuda", "dot/cuda", "index_add/cuda",
    "upsample_nearest/cuda",
)  # fmt: skip
LINES = ["-g1", "-gdwarf-4", "-gz=none", "-fno-var-tracking"]


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "g++"))


def instrumentation() -> list[str]:
    """The flags that make a compiler call the hooks of access.cpp."""
    flags = ["-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-DGPO_SIM_PROFILE"]
    if "clang" in compiler()[0]:
        options = ["instrument-read-before-write=1", "distinguish-volatile=1",
                   "instrument-func-entry-exit=0"]  # fmt: skip
        return flags + [f for o in options for f in ("-mllvm", f"-tsan-{o}")]
    params = ["distinguish-volatile=1", "instrument-func-entry-exit=0"]
    return flags + [f for p in params for f in ("--param", f"tsan-{p}")]


def sanitized() -> bool:
    return flag("GPUOPT_SANITIZE")


def room_of(source: Path) -> str:
    """The folder of a kernel file in csrc/ops, or "device"."""
    return next(p.name for p in source.parents if p.name not in ("ladder", "shapes"))


def wanted_kernels(csrc: Path) -> list[Path]:
    """The kernel files of the rooms in GPUOPT_SIM_ROOMS, else of all."""
    files = kernel_files(csrc)
    wanted = set(os.environ.get("GPUOPT_SIM_ROOMS", "").replace(",", " ").split())
    rooms = {room_of(file) for file in files} - {"device"}
    if unknown := sorted(wanted - rooms):
        raise SystemExit(
            f"gpuopt: GPUOPT_SIM_ROOMS names '{unknown[0]}'; "
            f"the rooms are {', '.join(sorted(rooms))}"
        )
    return [file for file in files if not wanted or room_of(file) in {*wanted, "device"}]


def _step(command: list[str], source: Path, output: Path) -> Step:
    depfile = str(output) + ".d"
    return Step(
        output, [*command, "-c", str(source), "-o", str(output), "-MMD", "-MF", depfile]
    )


def names_from_root(csrc: Path) -> str:
    """Messages and line tables name files relative to the root of the sources."""
    return f"-ffile-prefix-map={csrc.parent}/="


def kernel_flags(csrc: Path, source: Path, strict: list[str]) -> list[str]:
    """Rungs, whose accesses lessons count, keep loads of 16 bytes; shape kernels are small,
    and so are the files of SMALL."""
    small = ["-Os", "-fno-tree-loop-im"]  # values kept outside loops take room, too
    name = f"{room_of(source)}/{source.stem}"
    is_small = source.parent.name == "shapes" or name in SMALL
    level = small if is_small else ["-O1"]
    return ["-x", "c++", *FLAGS, *level, *strict, "-I" + str(csrc), names_from_root(csrc)]


def kernel_step(csrc: Path, source: Path, temp: Path, strict: list[str]) -> Step:
    """Compiles one kernel file for both libraries."""
    name = object_name(source)
    plain, profile = (temp / build / name for build in BUILDS)
    python = os.path.realpath(sys.executable)  # pip and make use other names for it
    command = [
        python, str(Path(__file__).with_name("twins.py")), str(plain), str(profile),
        *compiler(), *kernel_flags(csrc, source, strict), *LINES, *instrumentation(),
        "-S", str(source), "-MMD", "-MF", str(profile) + ".d",
    ]  # fmt: skip
    return Step(profile, command, more=[plain], cost=weight(source))


def sanitized_step(csrc: Path, source: Path, temp: Path, strict: list[str]) -> Step:
    command = [*compiler(), *kernel_flags(csrc, source, strict), *SANITIZE]
    return _step(command, source, temp / object_name(source))


def library_steps(
    root: Path,
    targets: dict[str, Path],
    temp: Path,
    kernels: list[Path],
    with_rooms: bool = True,
    werror: bool = False,
) -> list[Step]:
    """The steps that make one library of the given kernel files for each build in `targets`."""
    csrc = root / "csrc"
    strict = ["-Werror"] if werror else []
    steps = [kernel_step(csrc, source, temp, strict) for source in kernels]
    c_sources = [*sorted((csrc / "core").glob("*.c")), csrc / "backend" / "workspace.c"]
    if with_rooms:
        c_sources += sorted((csrc / "ops").glob("*/op.c"))
    cc = [*shlex.split(os.environ.get("CC", "gcc")), *C_FLAGS, *strict]
    cc.append(names_from_root(csrc))
    for build, target in targets.items():
        sanitize = SANITIZE if sanitized() and build == "plain" else []
        objects = [o for s in steps for o in s.outputs if o.parent.name == build]
        own = []
        if sanitize:
            own = [sanitized_step(csrc, k, temp / "sanitized", strict) for k in kernels]
            objects = []
        for source in sorted((csrc / "sim").glob("*.cpp")):
            if source.stem == "rooms" and not with_rooms:
                continue
            command = [*compiler(), *FLAGS, "-O2", *strict, *sanitize, names_from_root(csrc)]
            if build == "profile":
                command.append("-DGPO_SIM_PROFILE")
            own.append(_step(command, source, temp / build / f"sim_{source.stem}.o"))
        common = temp / ("sanitized" if sanitize else "common")
        for source in c_sources:
            output = common / f"{source.parent.name}_{source.stem}.o"
            own.append(_step([*cc, *sanitize], source, output))
        objects += [s.output for s in own]
        link = [
            *compiler(), "-shared", "-o", str(target), *map(str, objects), *sanitize,
            "-static-libgcc", "-static-libstdc++", "-ldl", "-lpthread", "-lm",
            "-Wl,--gc-sections",  # templates that are declared, but not called
        ]  # fmt: skip
        if not sanitize:
            link.append("-Wl,-z,defs")  # an undefined symbol fails here, not at import
        steps += [*own, Step(target, link, after=objects)]
    return list({step.output: step for step in steps}.values())


def steps(root: Path, out: Path, temp: Path, link_flags: list[str], werror: bool) -> list[Step]:
    """Both libraries, with the kernels of the wanted rooms, without the names of functions."""
    kernels = wanted_kernels(root / "csrc")
    targets = {build: temp / "sim" / name for build, name in LIBRARIES.items()}
    steps = library_steps(root, targets, temp / "sim", kernels, werror=werror)
    for step in steps:
        if step.output in targets.values():
            step.command += link_flags
    for linked in targets.values():
        named = [*STRIP, str(linked), str(out / linked.name)]
        steps.append(Step(out / linked.name, named, after=[linked]))
    return steps


def compile_kernels(
    root: Path,
    sources: list[Path],
    out: Path,
    builds: Iterable[str] = BUILDS,
    flags: Iterable[str] = (),
) -> dict[tuple[str, str], Path]:
    """Builds the libraries of kernel files outside the rooms, one per file and build."""
    made: dict[tuple[str, str], Path] = {}
    todo: dict[Path, Step] = {}
    for source in sources:
        targets = {build: out / f"{source.stem}_{build}.so" for build in builds}
        made |= {(source.stem, build): target for build, target in targets.items()}
        for step in library_steps(root, targets, out, [source], with_rooms=False):
            if step.output.suffix != ".so":
                step.command += flags
            todo[step.output] = step
    run_all(list(todo.values()))
    return made
