"""Compiling a source of `gpuopt.lab.kernel` for the simulator, with the compiler at hand.

The simulator itself is compiled from gpuopt's own sources at the first use, in a few
seconds, and each source with it becomes a library.  Both are kept in a folder of the user
(GPUOPT_CACHE_DIR, else gpuopt in XDG_CACHE_HOME or ~/.cache), named by a hash of source,
compiler and gpuopt; the folder may be deleted at any time.
Order: where things are, flags, the simulator, a source, the compiler's errors.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpuopt
from gpuopt import _introspect
from gpuopt.lab.cuda_source import FILE, CompileError, Source

# ---- where things are ----

HERE = Path(__file__).parent


def csrc() -> Path:
    """The sources of the kernels and of the simulator."""
    return _introspect._source_root()


def compiler() -> list[str]:
    """The C++ compiler: CXX, else g++, else clang++."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return [name]
    return ["g++"]


def unavailable() -> str | None:
    """Why sources cannot be compiled here; None if they can."""
    command = compiler()
    if shutil.which(command[0]) is None:
        return (
            f"no C++ compiler: '{command[0]}' is not on the PATH. Install g++ or clang++ "
            "(Debian, Ubuntu: apt install g++; conda: gxx), or name one in CXX"
        )
    return None


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{shlex.join(command)} --version failed: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gpuopt-lab-")


def cache() -> Path:
    """The folder of compiled libraries, made if it is not there.

    Where it cannot be written, a temporary one of this process.
    """
    named = os.environ.get("GPUOPT_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    folder = (Path(named) if named else Path(base) / "gpuopt") / "lab"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    except OSError:
        pass
    return Path(_temporary().name)


# ---- flags: those of _build/simulator.py, which tests/test_lab_kernel.py compares ----

FLAGS = [
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fno-threadsafe-statics", "-ffp-contract=off", "-fno-strict-aliasing", "-fwrapv",
    "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-psabi",
    "-Wno-unused-local-typedefs",
]  # fmt: skip
LINES = ["-g1", "-gdwarf-4", "-gz=none", "-fno-var-tracking"]
# Mistakes that the compiler sees; a thread of the simulator has a stack of 64 KB.
ERRORS = [
    "-Werror=uninitialized", "-Werror=array-bounds", "-Werror=return-type",
]  # fmt: skip
# Mistakes that only running shows; not for counts, as they are code of their own.
CHECKS = ["-fsanitize=bounds,integer-divide-by-zero", "-fno-sanitize-recover=all",
          "-DGPO_LAB_CHECKED"]  # fmt: skip


def instrumentation(command: list[str]) -> list[str]:
    """The flags that make a compiler call the hooks of csrc/sim/access.cpp."""
    flags = ["-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-DGPO_SIM_PROFILE"]
    if "clang" in command[0]:
        options = ["instrument-read-before-write=1", "distinguish-volatile=1",
                   "instrument-func-entry-exit=0"]  # fmt: skip
        return flags + [f for o in options for f in ("-mllvm", f"-tsan-{o}")]
    params = ["distinguish-volatile=1", "instrument-func-entry-exit=0"]
    return flags + [f for p in params for f in ("--param", f"tsan-{p}")]


def _folders() -> list[str]:
    return [f"-I{csrc()}", f"-I{HERE}"]


# ---- the simulator ----


def _simulator_sources() -> list[Path]:
    own = [f for f in sorted((csrc() / "sim").glob("*.cpp")) if f.stem != "rooms"]
    return [*own, HERE / "kernel_sim.cpp", csrc() / "core" / "status.c"]


@functools.cache
def _base() -> str:
    """A hash of everything but the source: compiler, flags, gpuopt's own files."""
    seen = hashlib.sha256(repr((gpuopt.__version__, platform.machine())).encode())
    seen.update(_version(tuple(compiler())).encode())
    seen.update(repr((FLAGS, LINES, ERRORS, CHECKS)).encode())
    files = [f for part in ("sim", "core", "device") for f in (csrc() / part).glob("*.*")]
    for file in sorted([*files, HERE / "kernel_sim.h", HERE / "kernel_sim.cpp"]):
        seen.update(file.name.encode() + file.read_bytes())
    return seen.hexdigest()[:16]


def _make(target: Path, make: Callable[[Path], None]) -> Path:
    """A file or folder of the cache, which appears there complete or not at all."""
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as folder:
        made = Path(folder) / target.name
        make(made)
        try:
            made.replace(target)
        except OSError:  # another process was faster: a folder is not replaced
            if not target.exists():
                raise
    return target


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, errors="replace"
    )


def _compile_simulator(folder: Path) -> None:
    folder.mkdir()

    def one(file: Path) -> None:
        flags = [*FLAGS, "-O2", "-DGPO_SIM_PROFILE", *_folders(), "-x", "c++"]
        if file.suffix == ".c":
            flags = ["-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-x", "c"]
        output = folder / f"{file.stem}.o"
        done = _run([*compiler(), *flags, "-c", str(file), "-o", str(output)])
        if done.returncode:
            raise CompileError(
                f"the simulator does not compile with {shlex.join(compiler())}",
                output=done.stderr,
            )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, _simulator_sources()))


def simulator() -> Path:
    """The folder of the simulator's object files."""
    return _make(cache() / f"simulator-{_base()}", _compile_simulator)


# ---- a source ----


def _source_command(source: Path, output: Path, checked: bool) -> list[str]:
    clang = "clang" in compiler()[0]
    frame = "-Wframe-larger-than=32768 -Werror=frame-larger-than" + ("" if clang else "=32768")
    flags = [*FLAGS, *ERRORS, *frame.split(), "-O1", *LINES, *instrumentation(compiler())]
    flags += CHECKS if checked else []
    if checked and clang:  # or it leaves out blocks, such as that of an endless loop
        flags.append("-fsanitize-coverage=trace-pc,no-prune")
    caret = "caret-diagnostics" if clang else "diagnostics-show-caret"
    flags += ["-fdiagnostics-color=never", f"-fno-{caret}"]
    return [*compiler(), "-x", "c++", *flags, *_folders(), "-c", str(source), "-o", str(output)]


def library(source: Source, checked: bool) -> Path:
    """The library of a source: with checks, or as the rooms' kernels are compiled."""
    reason = unavailable()
    if reason:
        raise CompileError(reason)
    text = source.rewritten
    seen = hashlib.sha256(f"{_base()}{checked}{text}".encode()).hexdigest()[:24]

    def make(output: Path) -> None:
        file, compiled = output.with_suffix(".cpp"), output.with_suffix(".o")
        file.write_text(text, encoding="utf-8")
        done = _run(_source_command(file, compiled, checked))
        if done.returncode:
            raise compile_error(source, done.stderr)
        objects = sorted(map(str, simulator().glob("*.o")))
        link = ["-shared", "-o", str(output), str(compiled), *objects]
        link += ["-Wl,--wrap=__sanitizer_cov_trace_pc", "-Wl,-z,defs", "-static-libgcc"]
        done = _run([*compiler(), *link, "-ldl", "-lpthread", "-lm"])
        if done.returncode:
            raise link_error(source, done.stderr)

    return _make(cache() / f"kernel-{seen}.so", make)


# ---- the compiler's errors ----

_ERROR = re.compile(r"^([^:\n]+):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.M)
_CALLED = re.compile(rf"^{re.escape(FILE)}:(\d+):(?:\d+:)?\s+(?:required from|note:)", re.M)


def _plain(sentence: str) -> str:
    """The compiler's sentence without what the rewriting added."""
    sentence = re.sub(r"\s*\[-W[^]]*\]$", "", sentence)
    sentence = sentence.replace("gpo_user::", "").replace("_gpo_shared", "")
    return sentence.replace("gpo_lab_syncthreads", "__syncthreads")


def compile_error(source: Source, output: str) -> CompileError:
    """The first error of the compiler, at the line of the source that it belongs to."""
    found = _ERROR.search(output)
    if not found:
        first = output.strip().partition("\n")[0]
        return CompileError(f"the compiler failed: {first}", output=output)
    if found[1] == FILE:
        return source.error(_plain(found[3]), int(found[2]), output)
    called = _CALLED.findall(output[: found.start()]) or _CALLED.findall(output)
    line = int(called[-1]) if called else 0
    return source.error(_plain(found[3]), line, output)


def link_error(source: Source, output: str) -> CompileError:
    """A function that is declared and not defined, or one that no library here has."""
    found = re.search(rf"{re.escape(FILE)}:(\d+): undefined reference to [`'](.+?)'", output)
    if not found:
        return CompileError("the compiler could not link the source", output=output)
    return source.error(f"'{_plain(found[2])}' is not defined", int(found[1]), output)
