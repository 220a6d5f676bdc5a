"""The build: its steps, what it refuses and with which message, and the built libraries."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import gpuopt

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_build"))
import checks  # noqa: E402
import contents  # noqa: E402
import cuda_toolkit  # noqa: E402
import documentation  # noqa: E402
import glibc  # noqa: E402
import release  # noqa: E402
import simulator  # noqa: E402
import twins  # noqa: E402
from steps import Step, jobs, run_all  # noqa: E402

VARIABLES = ("CC", "CXX", "CUDA_HOME", "GPUOPT_CUDA", "GPUOPT_CUDA_ARCHS", "GPUOPT_LINEINFO",
             "GPUOPT_SIM_ROOMS", "GPUOPT_WERROR", "MAX_JOBS")  # fmt: skip


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def nvcc(folder: Path, release: str = "13.0") -> Path:
    """A compiler of that version, which supports three architectures."""
    says = f"echo 'Cuda compilation tools, release {release}, V{release}.1'"
    lists = "echo sm_80; echo sm_90; echo sm_120"
    script = f'case "$1" in --version) {says} ;; *) {lists} ;; esac'
    return program(folder / "bin" / "nvcc", script)


def refused(match: str) -> pytest.RaisesExc[SystemExit]:
    return pytest.raises(SystemExit, match=f"^gpuopt: .*{match}")


# ---- steps ----


def shell(output: Path, script: str, **options: object) -> Step:
    return Step(output, ["sh", "-c", script], **options)  # type: ignore[arg-type]


def test_a_step_waits_for_what_it_needs(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    run_all([
        shell(c, f"cat {a} {b} > {c}", after=[a, b], cost=9),
        shell(b, f"cat {a} > {b}", after=[a]),
        shell(a, f"echo x > {a}"),
    ])  # fmt: skip
    assert c.read_text() == "x\nx\n"


def test_the_costliest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    log = tmp_path / "log"
    run_all([
        shell(tmp_path / f"{cost}", f"echo {cost} >> {log}; : > {tmp_path}/{cost}", cost=cost)
        for cost in (2, 5, 1)
    ])  # fmt: skip
    assert log.read_text().split() == ["5", "2", "1"]


def test_a_step_runs_again_when_something_changed(tmp_path: Path) -> None:
    source, output, second, log = (tmp_path / name for name in ("in", "out", "two", "log"))
    source.write_text("1")
    script = f"cp {source} {output}; cp {source} {second}; echo ran >> {log}"

    def build(script: str = script) -> int:
        run_all([shell(output, script, after=[source], more=[second])])
        return len(log.read_text().split())

    assert [build(), build()] == [1, 1]
    later = output.stat().st_mtime + 10
    os.utime(source, (later, later))
    assert build() == 2
    for file in (output, second):
        os.utime(file, (later, later))
    assert build() == 2
    second.unlink()
    assert build() == 3
    assert build(script + " # another command") == 4


def test_a_failure_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "1")
    bad, good = tmp_path / "bad", tmp_path / "good"
    steps = [shell(bad, "exit 3", cost=1), shell(good, f": > {good}")]
    with refused("this command failed"):
        run_all(steps)
    assert not good.exists()
    assert not steps[0].is_fresh()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = "echo 'as: cannot write: No space left on device' >&2; exit 1"
    with refused("is full: a build takes 400 MB.*TMPDIR"):
        run_all([shell(tmp_path / "a", full)])

    def write_text(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", write_text)
    with refused("is full"):
        run_all([shell(tmp_path / "b", "exit 0")])


def test_a_killed_compiler_is_named(tmp_path: Path) -> None:
    with refused("killed, as if memory ran out: MAX_JOBS=1"):
        run_all([shell(tmp_path / "a", "kill -9 $$")])


def test_a_compiler_that_goes_missing_is_named(tmp_path: Path) -> None:
    with refused("the compiler .*nowhere cannot be run.*CC, CXX and CUDA_HOME"):
        run_all([Step(tmp_path / "a", [str(tmp_path / "nowhere")])])


# ---- what is refused before anything is compiled ----


@pytest.mark.parametrize(
    ("system", "words"),
    [("win32", "not on Windows: .*WSL 2"), ("darwin", "not on macOS: .*container")],
)
def test_other_systems(system: str, words: str) -> None:
    code = "import runpy, sys, setuptools.command.build_ext, numpy\n"
    code += "sys.path.insert(0, '_build'); import cuda_toolkit\n"
    code += f"sys.platform = {system!r}; runpy.run_path('setup.py')"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    with refused(words):
        raise SystemExit(done.stderr.strip())
    assert len(done.stderr.strip().splitlines()) == 1
    assert not checks.platform_refusal("linux")


@pytest.mark.parametrize("variable", ["CC", "CXX"])
@pytest.mark.parametrize("value", ["nowhere", "nowhere -m64", " "])
def test_no_compiler(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with refused(r"there is no C(\+\+)? compiler .*apt-get install gcc g\+\+"):
        checks.check_compilers()


def test_a_build_without_a_compiler_says_so(tmp_path: Path) -> None:
    """Through setup.py: one sentence, no traceback, nothing written."""
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "CC": "nowhere"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("gpuopt: there is no C compiler 'nowhere'")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("release", ["11.8", "12.9"])
def test_an_old_nvcc(release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc(tmp_path, release)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with refused(f"is CUDA {release}, and kernels need 13.0.*CUDA_HOME.*GPUOPT_CUDA=0"):
        cuda_toolkit.find()
    monkeypatch.setenv("GPUOPT_CUDA", "0")
    assert cuda_toolkit.find() is None


def test_an_nvcc_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin" / "nvcc", "exit 1")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with refused("is CUDA unknown"):
        cuda_toolkit.find()


def test_no_nvcc_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cuda_toolkit, "wheel_nvcc", lambda: None)
    assert cuda_toolkit.find() is None
    monkeypatch.setenv("GPUOPT_CUDA", "1")
    with refused("no nvcc on PATH or in CUDA_HOME: install"):
        cuda_toolkit.find()
    assert cuda_toolkit.wants_wheels()


@pytest.mark.parametrize("value", ["hopper", "sm_90", "70", "90a;80", "release 90a", "9"])
def test_wrong_architectures(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPT_CUDA_ARCHS", value)
    with refused(f"GPUOPT_CUDA_ARCHS must be 'release' or .*'80 90a', not '{value}'"):
        cuda_toolkit.archs(in_place=True)


def test_an_architecture_that_nvcc_does_not_know(tmp_path: Path) -> None:
    toolkit = cuda_toolkit.Toolkit(nvcc(tmp_path))
    toolkit.check_archs(["80", "90a"])
    with refused("nvcc 13.0 does not compile for 130; GPUOPT_CUDA_ARCHS can name 80 90 120"):
        toolkit.check_archs(["80", "130"])


def test_wrong_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUOPT_CUDA", "yes")
    with refused("GPUOPT_CUDA must be 0 or 1, not 'yes'"):
        cuda_toolkit.find()
    for jobs_wanted in ("many", "0", "-1", "2.5"):
        monkeypatch.setenv("MAX_JOBS", jobs_wanted)
        with refused(f"MAX_JOBS must be a number of compilers, not '{jobs_wanted}'"):
            jobs()


@pytest.mark.parametrize("name", ["GPUOPT_WERROR", "GPUOPT_SANITIZE", "GPUOPT_CUDA"])
def test_a_build_refuses_wrong_switches(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", str(tmp_path)],
        cwd=ROOT, env={**os.environ, name: "maybe"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip() == f"gpuopt: {name} must be 0 or 1, not 'maybe'"


def test_make_without_the_venv_module(tmp_path: Path) -> None:
    python = program(tmp_path / "python", "echo 'No module named venv' >&2; exit 1")
    folder = tmp_path / "venv"
    done = subprocess.run(
        ["make", f"VENV={folder}", f"PYTHON={python}", f"{folder}/made"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "apt-get install python3-venv" in done.stdout
    assert not folder.exists()


# ---- architectures ----


def test_architectures_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cuda_toolkit.archs(in_place=True) == ["90a"]
    assert cuda_toolkit.archs(in_place=False) == cuda_toolkit.RELEASE_ARCHS
    program(tmp_path / "nvidia-smi", "echo 12.0; echo 9.0; echo 8.6; echo 9.0")
    assert (
        cuda_toolkit.archs(in_place=True)
        == cuda_toolkit.archs(in_place=False)
        == ["86", "90a", "120"]
    )
    program(tmp_path / "nvidia-smi", "echo 'no driver'; exit 9")
    assert cuda_toolkit.archs(in_place=True) == ["90a"]
    monkeypatch.setenv("GPUOPT_CUDA_ARCHS", "120,80 90a 80")
    assert cuda_toolkit.archs(in_place=True) == ["80", "90a", "120"]
    monkeypatch.setenv("GPUOPT_CUDA_ARCHS", "release")
    assert cuda_toolkit.archs(in_place=True) == cuda_toolkit.RELEASE_ARCHS


def test_ptx_of_the_last_architecture() -> None:
    for room in ("elementwise", "reduce"):  # PTX for all from sm_80 on, and one for each
        source = ROOT / "csrc" / "ops" / room / "cuda.cu"
        flags = cuda_toolkit.gencode(cuda_toolkit.RELEASE_ARCHS, source)
        assert len(flags) == len(cuda_toolkit.RELEASE_ARCHS) + 1
        assert flags[-1].endswith(("code=compute_80", "code=compute_120"))


def test_only_files_that_name_cuda_depend_on_it() -> None:
    """A build without CUDA, then one with it, compiles the loops once: see is_named_in."""
    csrc = ROOT / "csrc"
    named = [f for f in csrc.rglob("*.[ch]") if cuda_toolkit.is_named_in(f)]
    headers = {f.name for f in named if f.suffix == ".h" and f.parent.name != "sim"}
    assert headers == {"gpo.h", "cuda.h"}
    for file in csrc.rglob("*.c"):
        text = file.read_text(encoding="utf-8")
        if re.search(r'"cuda\.h"|<cuda|GPO_CUDA_TABLE', text):
            assert file in named
    assert csrc / "bind" / "introspect.c" in named
    assert csrc / "ops" / "reduce" / "cpu.c" not in named


def test_line_tables_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ROOT / "csrc" / "ops" / "dot" / "cuda.cu"

    def command() -> list[str]:
        toolkit = cuda_toolkit.Toolkit(nvcc(tmp_path))
        return toolkit.step(source, tmp_path / "dot.o", ["90a"], []).command

    assert "-lineinfo" not in command()
    monkeypatch.setenv("GPUOPT_LINEINFO", "1")
    assert "-lineinfo" in command()


# ---- the simulator's two objects from one compilation ----


def texts(folder: Path, **files: str) -> list[Path]:
    """csrc/ops/room/doc/<name>.txt for each of `files`."""
    room = folder / "csrc" / "ops" / "room" / "doc"
    room.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (room / f"{name}.txt").write_text(text)
    return documentation.files(folder / "csrc")


def test_documentation_becomes_a_table(tmp_path: Path) -> None:
    shared = 'About this file.\n\n[both]\nof "both"\n\n[other]\nx\n'
    found = texts(tmp_path, one="One\n{both}\n\nleft {both}\n", two="\\n\n", shared=shared)
    assert [documentation.operator(f) for f in found] == ["one", "shared", "two"]
    assert documentation.whole(found[0]) == 'One\nof "both"\n\nleft {both}\n'
    source = "enum { GPO_OP_two, GPO_OP_one };\n" + documentation.header(found)
    source += '#include <stdio.h>\nint main(void) { printf("%s%s", docs[0], docs[1]); }\n'
    (tmp_path / "docs.c").write_text(source)
    compile = ["gcc", "-Werror", "docs.c", "-o", "docs"]
    subprocess.run(compile, cwd=tmp_path, check=True)
    shown = subprocess.run([tmp_path / "docs"], capture_output=True, text=True, check=True)
    assert shown.stdout == '\\n\nOne\nof "both"\n\nleft {both}\n'
    assert "#define GPO_DOCS 2\n" in source


def test_wrong_documentation_ends_the_build(tmp_path: Path) -> None:
    with refused("one.txt wants 'part', which shared.txt lacks"):
        documentation.header(texts(tmp_path, one="{part}\n"))
    room = tmp_path / "csrc" / "ops" / "one"
    room.mkdir()
    (room / "doc.txt").write_text("One\n")
    with refused("one.txt is the second text of one"):
        documentation.header(texts(tmp_path, one="One\n"))


def test_documentation_is_made_again_when_a_text_changed(tmp_path: Path) -> None:
    def build() -> str:
        step = documentation.step(tmp_path, tmp_path / "build")
        run_all([step])
        return step.output.read_text()

    texts(tmp_path, one="One\n")
    assert '"One\\n"' in build()
    assert documentation.step(tmp_path, tmp_path / "build").is_fresh()
    (changed,) = texts(tmp_path, one="Two\n")
    later = changed.stat().st_mtime + 10
    os.utime(changed, (later, later))
    assert '"Two\\n"' in build()
    texts(tmp_path, three="Three\n")
    assert "[GPO_OP_three]" in build()


def test_twins() -> None:
    """Calls and line tables are removed and all else is kept, on both architectures."""
    x86 = b"""\t.file\t"cuda.cu"
\t.file 1 "csrc/ops/dot/cuda.cu"
f:
\t.loc 1 6 3
\tmovl\t%eax, %edx
\tcall\t__tsan_read4@PLT
\tcall\tother@PLT
\tjmp\t__sanitizer_cov_trace_pc@PLT
"""
    assert twins.plain(x86).splitlines() == [
        b'\t.file\t"cuda.cu"', b"f:", b"\tmovl\t%eax, %edx", b"\tcall\tother@PLT", b"\tret",
    ]  # fmt: skip
    arm = b"\tbl\t__tsan_write8\n\tbl\tother\n\tb\t__tsan_read1\n\tb\t.L3\n"
    assert twins.plain(arm) == b"\tbl\tother\n\tret\n\tb\t.L3\n"
    debug = b"\t.section\t.debug_info,x\n\t.long 1\n\t.section\t.debug_line,x\nl:\n\t.ident\n"
    assert twins.DEBUG.sub(b"", debug) == b"\t.section\t.debug_line,x\nl:\n\t.ident\n"


def test_lines_without_calls_are_left_out() -> None:
    """A call has the last line named before it in its section."""
    assembly = b"""\t.text
\t.loc 1 5 3 view .LVU1
\tmovl\t%eax, %edx
\t.loc 1 6 3 is_stmt 0 view .LVU2
\tcall\t__tsan_read4@PLT
\tcall\tother@PLT
\t.loc 1 7 3
\tmovl\t%eax, %edx
\t.section\t.text.unlikely
\tcall\tabort@PLT
\t.loc 1 6 9
\tcall\tabort@PLT
\t.text
\tcall\tother@PLT
\tret
"""
    assert twins.called_lines(assembly).decode().splitlines() == [
        "\t.text", "\tmovl\t%eax, %edx", "\t.loc 1 6", "\tcall\t__tsan_read4@PLT",
        "\tcall\tother@PLT", "\tmovl\t%eax, %edx", "\t.section\t.text.unlikely",
        "\tcall\tabort@PLT", "\t.loc 1 6", "\tcall\tabort@PLT", "\t.text", "\t.loc 1 7",
        "\tcall\tother@PLT", "\tret",
    ]  # fmt: skip


def test_pip_and_make_compile_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They use other names for Python; a clean build would compile all kernels twice."""
    source = ROOT / "csrc" / "ops" / "dot" / "cuda.cu"
    commands = []
    for name in ("python", "python3"):
        (tmp_path / name).symlink_to(sys.executable)
        monkeypatch.setattr(sys, "executable", str(tmp_path / name))
        step = simulator.kernel_step(ROOT / "csrc", source, Path("build"), [])
        commands.append(step.command)
        monkeypatch.undo()
    assert commands[0] == commands[1]


# ---- a simulator of some rooms ----


def test_rooms_of_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    csrc = ROOT / "csrc"
    assert simulator.wanted_kernels(csrc) == cuda_toolkit.kernel_files(csrc)
    monkeypatch.setenv("GPUOPT_SIM_ROOMS", "reduce, dot")
    kept = simulator.wanted_kernels(csrc)
    assert {simulator.room_of(file) for file in kept} == {"reduce", "dot", "device"}
    assert csrc / "ops" / "reduce" / "shapes" / "columns.cu" in kept
    monkeypatch.setenv("GPUOPT_SIM_ROOMS", "reduce sort")
    with refused("GPUOPT_SIM_ROOMS names 'sort'; the rooms are causal_conv1d, .*, scan"):
        simulator.wanted_kernels(csrc)


@pytest.mark.parametrize(
    ("built", "what"),
    [
        ([], "reduce"),
        (["reduce_cuda.o", "reduce_columns.o"], "reduce"),
        (["reduce_cuda.o", "partition_reduce_cuda.o"], None),
    ],
)
def test_the_demo_never_takes_rooms_away(
    built: list[str], what: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Makefile", "_build", "pyproject.toml", "setup.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    folder = tmp_path / "build" / "temp.x" / "sim" / "plain"
    folder.mkdir(parents=True)
    for name in built:
        (folder / name).touch()

    def rooms() -> str | None:
        made = subprocess.run(
            ["make", "--dry-run", "demo", f"PYTHON={sys.executable}"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = re.search(r"GPUOPT_SIM_ROOMS=(\S+) make .*build", made.stdout)
        return found[1] if found else None

    assert rooms() == what
    monkeypatch.setenv("GPUOPT_SIM_ROOMS", "scan")
    assert rooms() is None  # make passes on what the environment says


@pytest.fixture(scope="module")
def demo_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package whose simulator is linked from the objects of reduce alone."""
    temp = next(ROOT.glob("build/temp*/sim"), None)
    if temp is None:
        pytest.skip("not built in place")
    folder = tmp_path_factory.mktemp("demo")
    package = folder / "gpuopt"
    package.mkdir()
    for file in (ROOT / "gpuopt").iterdir():
        if not file.name.startswith("_sim") and file.name != "__pycache__":
            link = shutil.copy if file.suffix == ".so" else os.symlink
            link(file, package / file.name)
    (folder / "csrc").symlink_to(ROOT / "csrc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUOPT_SIM_ROOMS", "reduce")
        kernels = simulator.wanted_kernels(ROOT / "csrc")
    targets = {build: package / name for build, name in simulator.LIBRARIES.items()}
    made = simulator.library_steps(ROOT, targets, temp, kernels)
    assert all(step.is_fresh() for step in made if step.output.suffix == ".o"), "make build"
    run_all(made)
    return folder


def ask(folder: Path, *arguments: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *arguments], env=env, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LACK = "this build's simulator lacks its kernels; `make build` adds them"


def test_a_room_that_is_not_compiled_says_so(demo_build: Path) -> None:
    code = """if True:
        import numpy as np, gpuopt
        from gpuopt.lab.report import counts_part
        x = np.arange(4, dtype=np.float32)
        assert gpuopt.reduce(x, variant="v3", backend="sim") == 6
        assert gpuopt.scan(x).tolist() == [0, 1, 3, 6]
        for call in (
            lambda: gpuopt.scan(x, backend="sim"),
            lambda: gpuopt.scan(x, variant="v1", backend="sim"),
            lambda: gpuopt.max_pool1d(gpuopt.asdevice(x[None], backend="sim"), 2),
            lambda: gpuopt.plan("scan", x, backend="sim"),
            lambda: gpuopt.profile("scan", x),
            lambda: gpuopt.scan(x, variant="v1"),
            lambda: gpuopt.source("scan", "v9"),
        ):
            try:
                print(call())
            except (gpuopt.SimulatorError, gpuopt.VariantError) as error:
                print(type(error).__name__, error)
        rows = gpuopt.variants("scan")
        available = {row["available"] for row in rows if row["backend"] != "cpu"}
        print(repr(rows).splitlines()[0], available)
        print(repr(gpuopt.variants("reduce")).splitlines()[0])
        print(gpuopt.info()["backends"]["sim"])
        print(counts_part(["dot", "reduce"], False).count("lacks its kernels"))
    """
    lines = ask(demo_build, "-c", code).splitlines()
    error = "SimulatorError {}() has no backend 'sim': " + LACK
    assert lines[:5] == [
        error.format(op) for op in ("scan", "scan", "max_pool1d", "scan", "scan")
    ]
    for line in lines[5:7]:
        assert re.match(
            r"VariantError scan\(\) has no variant 'v[19]'.*" + re.escape(LACK), line
        )
    assert lines[7].startswith(f"variants of scan ({LACK}) ")
    assert lines[7].endswith((" set()", " {False}", " {True}"))  # with CUDA: the GPU's rungs
    assert lines[8:] == ["variants of reduce", "ok, for reduce alone", "1"]


def test_the_commands_of_a_demo_build(demo_build: Path) -> None:
    checked = ask(demo_build, "-m", "gpuopt", "test", "dot")
    assert " 0 wrong\n" in checked
    assert "Not checked in the simulator until `make build` adds their kernels: dot" in checked
    code = """if True:
        from gpuopt.lab import demo, screen, workloads
        workloads.rooms, demo.SECONDS = lambda: ("dot", "reduce"), 0.0
        screen.put(demo.demo("reduce", progress=False))
        screen.put(demo.demo("dot", progress=False))
    """
    shown, other = ask(demo_build, "-c", code).split("\nNot compiled: 1 ladders ")[:2]
    assert "reduce: 10 CUDA kernels" in shown
    assert "just now in the simulator" in shown
    assert "`make build` adds them, about" in other
    assert f"counts: none, {LACK}" in " ".join(other.split())
    assert "gpuopt.profile(" not in other


# ---- what was built ----


def test_no_two_rooms_define_a_function() -> None:
    """The linker would take one of the two for both rooms, without a word."""
    rooms = sorted((path.parent.name for path in ROOT.glob("csrc/ops/*/op.c")), key=len)
    headers = [*ROOT.glob("csrc/[!o]*/*.h"), *ROOT.glob("csrc/[!o]*/*.cuh")]
    shared = set(re.findall(r"(\w+)\(", "".join(h.read_text("utf-8") for h in headers)))
    owners: dict[str, set[str]] = {}
    objects = sorted(ROOT.glob("build/temp*/cuda/*.o")) + sorted(
        ROOT.glob("build/temp*/sim/plain/*.o")
    )
    assert objects
    for path in objects:
        room = [name for name in rooms if path.name.startswith(name + "_")][-1:]
        defined = subprocess.run(
            ["nm", "--defined-only", "-C", path], capture_output=True, text=True, check=True
        ).stdout
        for symbol, name in re.findall(r"^\S+ [WV] ((?:\w+::)*(\w+)\(.*)", defined, re.M):
            if name not in shared and not name.startswith("__"):  # of CUDA
                owners.setdefault(symbol, set()).update(room)
    assert len(owners) > 20
    assert {symbol: found for symbol, found in owners.items() if len(found) > 1} == {}


PACKAGE = Path(gpuopt.__file__).parent
LIBRARIES = [Path(gpuopt._core.__file__), *map(PACKAGE.joinpath, simulator.LIBRARIES.values())]
MOST_OF_A_SIMULATOR = 20e6


def test_simulators_are_small() -> None:
    for library in LIBRARIES[1:]:
        assert library.stat().st_size < MOST_OF_A_SIMULATOR, library.name


def test_the_plain_simulator_has_no_hooks() -> None:
    """In the objects of one kernel file: the package's libraries have no names."""
    plain, profile = (
        subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        for build in simulator.BUILDS
        for path in list(ROOT.glob(f"build/temp*/sim/{build}/dot_cuda.o"))[:1]
    )
    assert "__tsan_read4" in profile
    assert "__tsan_" not in plain
    assert "__sanitizer_cov" not in plain


def test_each_architecture_is_small(figure) -> None:  # type: ignore[no-untyped-def]
    """The limit of the wheel's size; without a CUDA build there is nothing to check."""
    sizes = contents.architectures(LIBRARIES[0])
    asked = gpuopt._core.build_info()["cuda_archs"] or ""
    numbers = {name.rstrip("af") for name in asked.split()}
    assert numbers == {name[3:] for name in sizes if name.startswith("sm_")}
    for name, size in sizes.items():
        assert size < release.MOST_OF_AN_ARCHITECTURE, f"{name}: {size / 1e6:.1f} MB"
    figure("kernels", ", ".join(f"{n} {s / 1e6:.1f} MB" for n, s in sizes.items()) or "none")


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_no_path_of_the_builder(library: Path) -> None:
    image = library.read_bytes()
    assert str(ROOT).encode() not in image
    assert str(Path.home()).encode() + b"/" not in image


def test_nothing_lies_beside_the_libraries() -> None:
    assert not list(PACKAGE.glob("*.cmd")) + list(PACKAGE.glob("*.log"))


def test_contents_has_a_limit(tmp_path: Path) -> None:
    """A library with one container of two entries."""
    entries = b"".join(
        contents.ENTRY.pack(kind, 0, 64, size, 0, 0, 0, 0, arch).ljust(64 + size, b"\0")
        for kind, size, arch in ((contents.MACHINE_CODE, 3_000_000, 90), (contents.PTX, 64, 90))
    )
    data = contents.CONTAINER.pack(contents.MAGIC, 1, 16, len(entries)) + entries
    blob, source, library = tmp_path / "blob", tmp_path / "a.s", tmp_path / "a.so"
    blob.write_bytes(data)
    source.write_text(f'\t.section .nv_fatbin,"a"\n\t.incbin "{blob}"\n')
    compiler = shutil.which("gcc") or "cc"
    subprocess.run([compiler, "-shared", "-nostdlib", "-o", library, source], check=True)
    assert contents.architectures(library) == {"sm_90": 3_000_064, "compute_90": 128}
    assert contents.main([str(library), "4"]) == 0
    assert contents.main([str(library), "2"]) == 1


# ---- wheels ----


def compiled(folder: Path, code: str, *flags: str) -> Path:
    source, library = folder / "a.c", folder / "a.so"
    source.write_text(code)
    compiler = shutil.which("gcc") or "cc"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), *flags]
    subprocess.run(command, check=True)
    return library


def test_versions_of_glibc_are_lowered(tmp_path: Path) -> None:
    """exp is of 2.29 and dladdr of 2.34 here; the library still loads and computes."""
    code = """#define _GNU_SOURCE
    #include <dlfcn.h>
    #include <math.h>
    double f(double x) { return exp(x) + log(x); }
    int g(void *p) { Dl_info info; return dladdr(p, &info); }
    """
    path = compiled(tmp_path, code, "-lm", "-ldl")
    library = glibc.Library(path)
    assert {"exp", "log", "dladdr"} <= {name for _, name, _ in library.symbols()}
    assert library.lower() == []
    assert glibc.Library(path).newest() <= glibc.OLDEST
    loaded = ctypes.CDLL(str(path))
    loaded.f.restype, loaded.f.argtypes = ctypes.c_double, [ctypes.c_double]
    assert loaded.f(1.5) == math.exp(1.5) + math.log(1.5)
    assert loaded.g(ctypes.cast(loaded.g, ctypes.c_void_p)) == 1


def test_names_of_c23_become_the_older_ones(tmp_path: Path) -> None:
    """Headers of glibc 2.38 turn strtol into __isoc23_strtol, which older ones lack."""
    code = """#include <stdlib.h>
    long __isoc23_strtol(const char *text, char **end, int base);
    long f(const char *text) { return __isoc23_strtol(text, 0, 10) + atoi(text); }
    """
    path = compiled(tmp_path, code)
    assert glibc.Library(path).lower() == []
    names = {name for _, name, _ in glibc.Library(path).symbols()}
    assert "strtol" in names and "__isoc23_strtol" not in names
    assert ctypes.CDLL(str(path)).f(b"42") == 84


def test_a_new_function_of_glibc_stays(tmp_path: Path) -> None:
    """arc4random is new in 2.36: it keeps its version on a system that has it."""
    code = "unsigned arc4random(void);\nunsigned f(void) { return arc4random(); }\n"
    path = compiled(tmp_path, code)
    library = glibc.Library(path)
    newest = library.newest()
    kept = library.lower()
    assert glibc.Library(path).newest() == newest
    assert kept == ([f"GLIBC_{newest[0]}.{newest[1]}"] if newest > glibc.OLDEST else [])


def wheel_of(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "gpuopt-0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_a_wheel_is_checked(tmp_path: Path) -> None:
    library = compiled(tmp_path, "int f(void) { return 1; }\n").read_bytes()
    files = {name: library if name.endswith(".so") else b"" for name in release.WANTED}
    assert release.findings(wheel_of(tmp_path, files), ["/home/me/"]) == []
    stray = {"gpuopt/_sim.so.cmd": b"gcc", "gpuopt/a.py": b"# /home/me/gpuopt"}
    del files["gpuopt/py.typed"]
    assert release.findings(wheel_of(tmp_path, files | stray), ["/home/me/"]) == [
        "gpuopt/py.typed is missing",
        "gpuopt/_sim.so.cmd does not belong there",
        "gpuopt/a.py names /home/me/",
    ]


def test_a_large_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = compiled(tmp_path, "int f(void) { return 1; }\n").read_bytes()
    files = {name: library if name.endswith(".so") else b"" for name in release.WANTED}
    monkeypatch.setattr(release, "MOST", 1000)
    monkeypatch.setattr(contents, "architectures", lambda _: {"sm_90": 13_000_000})
    found = release.findings(wheel_of(tmp_path, files), [])
    assert found[0].endswith("above 0")
    assert "gpuopt/_core.abi3.so: sm_90 takes 13.0 MB" in found


# ---- a dtype in the middle of dtypes.def ----

TABLES = """
#include <cstdio>
#include "core/gpo.h"
extern "C" const gpo_table dot_cpu, dot_cuda;
int main()
{
    const gpo_table *tables[] = {&dot_cpu, &dot_cuda};
    for (const gpo_table *table : tables) {
        for (const gpo_variant *v = table->variants; v->name; v++) {
            std::printf("%s", v->name);
            for (int d = 0; d < GPO_NDTYPES; d++) {
                if (v->run[d]) {
                    std::printf(" %s", gpo_dtypes[d].name);
                }
            }
            std::puts("");
        }
    }
}
"""


def test_a_dtype_in_the_middle_shifts_no_table(tmp_path: Path) -> None:
    """With one more line in dtypes.def every variant supports the same dtypes as before."""
    csrc = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", csrc, ignore=shutil.ignore_patterns("bind"))
    dtypes = csrc / "core" / "dtypes.def"
    line = "GPO_DTYPE(F16, gpo_f16, \"float16\", 2, 'f')\n"
    text = dtypes.read_text(encoding="utf-8")
    assert line in text
    types = csrc / "core" / "gpo.h"
    types.write_text(
        types.read_text(encoding="utf-8").replace(
            "typedef uint8_t gpo_bool;",
            "typedef uint8_t gpo_bool; typedef struct { uint8_t bits; } gpo_f8;",
        ),
        encoding="utf-8",
    )
    dtypes.write_text(
        text.replace(line, "GPO_DTYPE(F8, gpo_f8, \"float8\", 1, 'f')\n" + line),
        encoding="utf-8",
    )
    (tmp_path / "tables.cpp").write_text(TABLES, encoding="utf-8")
    room = csrc / "ops" / "dot"
    commands = [
        ["gcc", *simulator.C_FLAGS[:1], "-O0", "-c", str(room / "cpu.c")],
        ["gcc", *simulator.C_FLAGS[:1], "-O0", "-c", str(csrc / "core" / "shape.c")],
        *(
            [
                "g++",
                *simulator.kernel_flags(csrc, k, []),
                "-O0",
                "-c",
                str(k),
                "-o",
                f"{k.stem}.o",
            ]
            for k in [room / "cuda.cu", *room.glob("shapes/*.cu")]
        ),
        ["g++", "-std=c++17", f"-I{csrc}", "-c", "tables.cpp"],
    ]
    for command in commands:
        subprocess.run(command, check=True, cwd=tmp_path)
    objects = [str(o) for o in sorted(tmp_path.glob("*.o"))]
    link = ["g++", *objects, "-o", "tables", "-static", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(link, check=True, cwd=tmp_path)
    done = subprocess.run(
        [str(tmp_path / "tables")], check=True, capture_output=True, text=True
    )
    rows = gpuopt._core.variants("dot")
    served = {
        row["name"]: sorted(row["dtypes"]) for row in rows if row["backend"] in ("cpu", "sim")
    }
    found = {name: sorted(d) for name, *d in map(str.split, done.stdout.splitlines())}
    assert found == served
