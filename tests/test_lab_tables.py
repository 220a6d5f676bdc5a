"""The lab beside compute-sanitizer and Nsight Compute: the scripts that make the tables.

Order: programs of the planted faults, reports of compute-sanitizer, the document's table,
reports of ncu, counts of both.
The reports are samples in the documented format; a GPU is not needed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import planted_faults
import pytest
from planted_faults import FAULTS, Fault

from gpuopt.lab import nvcc

GPU = Path(__file__).parent / "gpu"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", GPU / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(GPU)
        spec.loader.exec_module(module)
    return module


faults = script("faults")
programs = script("programs")


def fault(name: str) -> Fault:
    return next(f for f in FAULTS if f.name == name)


# ---- programs of the planted faults ----


@pytest.mark.parametrize("planted", FAULTS, ids=lambda f: f.name)
def test_a_program_has_the_kernel_at_its_own_lines(planted: Fault) -> None:
    text = faults.program(planted)
    assert text.splitlines()[planted.line - 1] == planted.source.splitlines()[planted.line - 1]
    assert f"{planted.name}<<<dim3(" in text


def test_arguments_become_expressions() -> None:
    assert faults.argument(planted_faults.f32(8)) == "device<float>(8, 1, true)"
    assert faults.argument(planted_faults.i32(4)) == "device<int>(4, 0, true)"
    assert faults.argument(planted_faults.unwritten(2)) == "device<float>(2, 0, false)"
    assert faults.argument(100) == "100"
    assert faults.argument(2**40) == f"{2**40}ull"
    with pytest.raises(ValueError, match="0, 1, 2"):
        faults.argument(planted_faults.f32(8) + 1)


@pytest.mark.parametrize("compiler", [nvcc.find()] if nvcc.find() else [])
@pytest.mark.parametrize("name", ["freed", "never_zeroed"])
def test_a_program_compiles(compiler: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.cu"
    file.write_text(faults.program(fault(name)), encoding="utf-8")
    words = [compiler, "-std=c++17", "-lineinfo", "-arch=sm_90", "-cubin", file]
    done = subprocess.run(
        [*words, "-o", tmp_path / "out.cubin"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# ---- reports of compute-sanitizer ----

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at no_guard(const float *, float *, int)+0xc0 in /tmp/x/no_guard.cu:{line}
=========     by thread (4,0,0) in block (3,0,0)
=========     Access at 0x7f2a4a000190 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2a4a000000 of size 400 bytes
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
ends: cudaErrorLaunchFailure
========= ERROR SUMMARY: 29 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at no_barrier(...)+0xa0 in no_barrier.cu:5
=========     and Read access at no_barrier(...)+0xd0 in no_barrier.cu:6 [64 hazards]
=========
ends: cudaSuccess
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
LAUNCH = """\
========= COMPUTE-SANITIZER
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument"
=========     Saved host backtrace up to driver entry point at error
=========     Host Frame: main in /tmp/x/no_bytes.cu:31 [0x9f2b]
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = """\
========= COMPUTE-SANITIZER
ends: cudaSuccess
========= ERROR SUMMARY: 0 errors
"""
UNABLE = """\
========= COMPUTE-SANITIZER
========= Error: Unable to find the device's debugger interface
========= ERROR SUMMARY: 1 error
"""


@pytest.mark.parametrize(
    ("text", "name", "found", "lines", "sentence"),
    [
        (MEMCHECK.format(line=4), "no_guard", "line", [4], "Invalid __global__ write of size"),
        (MEMCHECK.format(line=3), "no_guard", "another line", [3], "Invalid __global__ write"),
        (RACECHECK, "no_barrier", "line", [5, 6], "Error: Race reported between Write access"),
        (LAUNCH, "no_bytes", "no line", [], "Program hit cudaErrorInvalidValue"),
        (CLEAN, "no_guard", "nothing", [], ""),
        (UNABLE, "no_guard", "not run", [], "Error: Unable to find"),
    ],
)
def test_a_report_is_read(
    text: str, name: str, found: str, lines: list[int], sentence: str
) -> None:
    seen = faults.parse(text, fault(name))
    assert (seen["found"], seen["lines"]) == (found, lines)
    assert seen["sentence"].startswith(sentence)
    assert bool(seen["sentence"]) == bool(sentence)


def test_only_options_that_the_tool_has_are_given() -> None:
    assert faults.options("memcheck", 0, "") == []
    known = "--port arg (=49152)\n--initcheck-address-space arg\n"
    assert faults.options("memcheck", 3, known) == ["--port", "20048"]
    expected = ["--port", "20064", "--initcheck-address-space", "all"]
    assert faults.options("initcheck", 4, known) == expected


TOOL = """\
#!/bin/sh
for program; do :; done
echo "========= COMPUTE-SANITIZER"
[ $2 = memcheck ] && echo "=========     at k(float *)+0x10 in $program.cu:4"
[ $2 = synccheck ] && sleep 600
echo "========= ERROR SUMMARY: $([ $2 = initcheck ] && echo 0 || echo 1) errors"
"""


def test_the_runs_of_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for compute-sanitizer: what each run leaves in the file."""
    program = "#!/bin/sh\necho ends: cudaSuccess\n"
    for name, text in {"sanitizer": TOOL, "no_guard": program}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(faults, "SANITIZER", str(tmp_path / "sanitizer"))
    out = tmp_path / "out.json"
    runs = faults.Runs([fault("no_guard"), fault("no_halo")], tmp_path, out, "sm_90")
    for tool in ("", "memcheck", "initcheck", "racecheck"):
        runs.one(fault("no_guard"), tool)
    monkeypatch.setitem(faults.LIMIT, "run", 1.5)
    runs.one(fault("no_guard"), "synccheck")
    runs.end = 0.0
    runs.one(fault("no_halo"), "memcheck")
    row, other = json.loads(out.read_text())["faults"]
    assert row["alone"] == "cudaSuccess"
    assert {tool: seen["found"] for tool, seen in row["tools"].items()} == {
        "memcheck": "line",
        "initcheck": "nothing",
        "racecheck": "no line",
        "synccheck": "time limit",
    }
    assert other["alone"] == other["tools"]["memcheck"]["found"] == "not run"


def test_a_program_is_ended_at_its_limit() -> None:
    status, said = faults.command([sys.executable, "-c", "print('begins', flush=True)"], 60)
    assert (status, said) == (0, "begins\n")
    assert faults.command(["sleep", "600"], 0.5) == (None, "")


def test_what_a_program_started_is_of_its_session() -> None:
    """Whatever its group is, as that of a debugged program may be another."""
    child = "import os; os.setpgid(0, 0); print(os.getpid(), flush=True); input()"
    words = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, child]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdin
        assert process.stdout
        started = int(process.stdout.readline())
        assert set(programs.session(process.pid)) == {process.pid, started}
        process.stdin.write(b"\n")
        process.stdin.close()
    assert programs.session(process.pid) == []


# ---- the document's table ----


def result(**found: str) -> dict[str, Any]:
    tools = {tool: {"found": found.get(tool, "nothing")} for tool in faults.TOOLS}
    rows = [{"name": "no_guard", "compile": "", "alone": "cudaSuccess", "tools": tools}]
    return {"device": "a GPU", "commit": "0123456789", "faults": rows}


def test_the_cell_of_a_fault() -> None:
    cell = planted_faults.on_gpu
    assert cell(fault("no_guard"), None) == "not yet run"
    assert cell(fault("no_halo"), result()) == "not yet run"
    assert cell(fault("no_guard"), result()) == "nothing"
    seen = result(memcheck="line", initcheck="line", racecheck="no line", synccheck="not run")
    expected = "memcheck, initcheck: line; racecheck: no line; synccheck: not run"
    assert cell(fault("no_guard"), seen) == expected
    seen["faults"][0]["compile"] = "error"
    assert cell(fault("no_guard"), seen) == "nvcc refuses it"


def test_the_sentence_below_the_table() -> None:
    assert planted_faults.summary(None).endswith("has not yet run.")
    text = planted_faults.summary(result(memcheck="line", racecheck="no line"))
    assert "name that of 1, and of 0 more" in text
    assert "Without a tool 1 of the programs end" in text
    assert "name that of 0, and of 1 more" in planted_faults.summary(
        result(racecheck="no line")
    )


# ---- reports of ncu ----

counts = script("counts")

LD, ST = counts.METRICS["global_requests"]
RAW = f"""\
==PROF== Connected to process 4711 (/usr/bin/python3)
==PROF== Profiling "reduce_v0_interleaved": 0%....50%....100% - 2 passes
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","{LD}","{ST}"
"","","","","","","","","","","","request","request"
"0","4711","python3","host","void reduce_v0_interleaved<Sum<float>>(const float *, long)","1",\
"7","(256, 1, 1)","(64, 1, 1)","0","9.0","1,512","64"
"1","4711","python3","host","scan_clear(int *)","1","7","(32, 1, 1)","(2, 3, 1)","0","9.0",\
"n/a","1"
"""
LONG = f"""\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4711","python3","host","scan_add(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0",\
"Command line profiler metrics","{LD}","request","8"
"0","4711","python3","host","scan_add(float *)","1","7","(256, 1, 1)","(64, 1, 1)","0","9.0",\
"Command line profiler metrics","{ST}","request","2"
"""


def test_a_raw_page_is_read() -> None:
    assert [(name, blocks) for name, blocks, _ in counts.read_launches(RAW)] == [
        ("reduce_v0_interleaved", 64),
        ("scan_clear", 6),
    ]
    found = counts.counted(RAW, {"global_requests": [LD, ST]})
    assert found["reduce_v0_interleaved"] == {"blocks": 64, "global_requests": 1576}
    assert found["scan_clear"]["global_requests"] is None


def test_a_long_page_is_read() -> None:
    found = counts.counted(LONG, {"global_requests": [LD, ST]})
    assert found == {"scan_add": {"blocks": 64, "global_requests": 10}}
    assert counts.counted("==ERROR== no kernels", {"global_requests": [LD]}) == {}


def test_two_launches_of_a_kernel_are_added() -> None:
    rows = LONG + LONG.partition("\n")[2].replace('"0","4711"', '"1","4711"')
    found = counts.counted(rows, {"global_requests": [LD, ST]})
    assert found == {"scan_add": {"blocks": 128, "global_requests": 20}}


def test_only_metrics_that_ncu_lists_are_asked_for() -> None:
    assert counts.asked("") == counts.METRICS
    listed = "\n".join(
        f"{name.removesuffix('.sum')}   Counter   request   some words"
        for name in counts.MORE["atomic_requests"]
    )
    assert list(counts.asked(listed)) == [*counts.METRICS, "atomic_requests"]


def test_a_program_that_may_not_read_the_counters(tmp_path: Path) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(
        "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - The user has no permission'\n"
    )
    ncu.chmod(0o755)
    with pytest.raises(counts.Refused):
        counts.measured(str(ncu), counts.CALLS[0], counts.METRICS, 60)


# ---- counts of both ----

OURS = {
    "scan_v0_x": {"variant": "v0", "blocks": 4, **dict.fromkeys(counts.COUNTS, 10)},
    "scan_v1_x": {"variant": "v1", "blocks": 4, **dict.fromkeys(counts.COUNTS, 0)},
    "scan_v2_x": {"variant": "v2", "blocks": 4, **dict.fromkeys(counts.COUNTS, 1)},
}
THEIRS = {
    "scan_v0_x": {"blocks": 4, **dict.fromkeys(counts.METRICS, 10)} | {"global_sectors": 12},
    "scan_v1_x": {"blocks": 8, **dict.fromkeys(counts.METRICS, 0)},
}


def test_counts_are_compared_where_the_launches_are_the_same() -> None:
    call = next(c for c in counts.CALLS if c.op == "scan")
    same, grid, none = counts.compared(call, OURS, THEIRS)
    assert same["ratio"]["global_sectors"] == 1.2
    assert same["ratio"]["atomic_requests"] is None
    assert (grid["note"], grid["ratio"]) == ("another grid: 8 blocks", {})
    assert (none["note"], none["gpu"]) == ("ncu has no launch of it", None)
    about = {"device": "a GPU", "ncu": "1", "commit": "0123456789"}
    text = counts.table({**about, "kernels": [same, grid, none]})
    assert "| `scan_v0_x` | 16,384 | 10 | 10 | **10 / 12** | 10 / ? |" in text
    assert "Of 3 counts of 1 kernels of 1 operators 2 are equal" in text
    assert "Not compared: `scan_v1_x` (another grid: 8 blocks), `scan_v2_x`" in text


def test_thirty_kernels_of_eight_operators_are_compared() -> None:
    found = {call.op: counts.simulated(call) for call in counts.CALLS}
    assert len(found) >= 8
    assert all(found.values())
    assert sum(map(len, found.values())) >= 30
    for op, rows in found.items():
        variants = {row["variant"] for row in rows.values()}
        call = next(c for c in counts.CALLS if c.op == op)
        assert variants == set(call.variants), op


def test_the_document_has_the_committed_counts() -> None:
    text = counts.DOCUMENT.read_text(encoding="utf-8")
    assert text == counts.renewed(text), "python tests/gpu/counts.py --write"
