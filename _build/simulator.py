"""The compile steps of the simulator: two libraries, or the sanitized one.

`_sim.so` is plain and fast.  `_sim_profile.so` has its kernel files instrumented
(-fsanitize=thread without libtsan, -fsanitize-coverage=trace-pc): its own hooks check
and count every access.  GPUOPT_SANITIZE=1 compiles both with ASan and UBSan as well.
The tests compile their fixture kernels with the same flags, through `compile_kernels`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from steps import Step, run_all

FLAGS = [
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
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
KERNEL_FLAGS = {"plain": ["-O1"], "profile": ["-O1", "-g1", "-gdwarf-4", "-gz=none"]}


def compiler() -> list[str]:
    return os.environ.get("CXX", "g++").split()


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
    return os.environ.get("GPUOPT_SANITIZE") == "1"


def _step(command: list[str], source: Path, output: Path) -> Step:
    depfile = str(output) + ".d"
    return Step(
        output, [*command, "-c", str(source), "-o", str(output), "-MMD", "-MF", depfile]
    )


def kernel_step(csrc: Path, build: str, source: Path, output: Path, strict: list[str]) -> Step:
    """Compiles one kernel file for the build `plain` or `profile`."""
    command = [*compiler(), "-x", "c++", *FLAGS, *KERNEL_FLAGS[build], *strict]
    command.append("-I" + str(csrc))
    if build == "profile":
        command += instrumentation()
    elif sanitized():
        command += SANITIZE
    return _step(command, source, output)


def library_steps(
    root: Path,
    build: str,
    target: Path,
    temp: Path,
    kernels: list[Path],
    with_rooms: bool = True,
    werror: bool = False,
) -> list[Step]:
    """The steps that make one library of the given kernel files."""
    csrc = root / "csrc"
    strict = ["-Werror"] if werror else []
    sanitize = SANITIZE if sanitized() and build == "plain" else []
    steps = []
    for source in kernels:
        name = source.parent.name + "_" + source.stem
        steps.append(kernel_step(csrc, build, source, temp / build / (name + ".o"), strict))
    for source in sorted((csrc / "sim").glob("*.cpp")):
        if source.stem == "rooms" and not with_rooms:
            continue
        command = [*compiler(), *FLAGS, "-O2", *strict, *sanitize]
        if build == "profile":
            command.append("-DGPO_SIM_PROFILE")
        steps.append(_step(command, source, temp / build / ("sim_" + source.stem + ".o")))
    c_sources = [*sorted((csrc / "core").glob("*.c")), csrc / "backend" / "workspace.c"]
    if with_rooms:
        c_sources += sorted((csrc / "ops").glob("*/op.c"))
    cc = os.environ.get("CC", "gcc").split()
    for source in c_sources:
        name = source.parent.name + "_" + source.stem
        command = [*cc, *C_FLAGS, *strict, *sanitize]
        steps.append(_step(command, source, temp / build / (name + ".o")))
    objects = [s.output for s in steps]
    link = [
        *compiler(), "-shared", "-o", str(target), *map(str, objects), *sanitize,
        "-static-libgcc", "-ldl", "-lpthread", "-lm",
    ]  # fmt: skip
    if not sanitize:
        link.append("-Wl,-z,defs")  # a symbol nobody defines fails here, not at import
    return [*steps, Step(target, link, after=objects)]


def steps(root: Path, out: Path, temp: Path, werror: bool) -> list[Step]:
    """Both libraries, with the kernels of every room."""
    kernels = sorted((root / "csrc" / "ops").glob("*/cuda.cu"))
    kernels.append(root / "csrc" / "device" / "copy.cu")
    folder = temp / ("sim_sanitized" if sanitized() else "sim")
    return [
        *library_steps(root, "plain", out / "_sim.so", folder, kernels, werror=werror),
        *library_steps(
            root, "profile", out / "_sim_profile.so", folder, kernels, werror=werror
        ),
    ]


def compile_kernels(
    root: Path,
    sources: list[Path],
    out: Path,
    builds: Iterable[str] = tuple(KERNEL_FLAGS),
    flags: Iterable[str] = (),
) -> dict[tuple[str, str], Path]:
    """Makes the libraries of kernel files outside of the rooms, one per file and build."""
    targets = {}
    todo: dict[Path, Step] = {}
    for source in sources:
        for build in builds:
            target = out / f"{source.stem}_{build}.so"
            targets[source.stem, build] = target
            for step in library_steps(root, build, target, out, [source], with_rooms=False):
                if "-c" in step.command:
                    step.command += flags
                todo[step.output] = step
    run_all(list(todo.values()))
    return targets
