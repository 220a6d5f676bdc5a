"""The command line: what each command prints, where, and its exit code."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios

import numpy as np
import pytest
from conftest import run_child

import gpuopt
from gpuopt import __main__ as cli
from gpuopt.benchmarks import __main__ as benchmarks
from gpuopt.benchmarks.workloads import reduce
from gpuopt.lab import ceilings, demo, run, screen, smoke, workloads


@pytest.fixture
def small(monkeypatch):
    """Workloads and ceilings that take no time."""
    monkeypatch.setattr(reduce, "SMALL", (("sum 2^13", "float32"),))
    monkeypatch.setattr(reduce, "DEMO", ("sum 2^13", "float32"))
    given = ceilings.Ceilings(read_gbs=10.0, copy_gbs=5.0, how="given")
    monkeypatch.setattr(ceilings, "cpu_ceilings", lambda: given)
    monkeypatch.setattr(demo, "SECONDS", 0.0)
    monkeypatch.setattr(smoke, "SIMULATED", 4)


def documents(capsys):
    """The one JSON document on stdout."""
    return json.loads(capsys.readouterr().out)


def test_info_ends_with_the_gpu(capsys):
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    reason = gpuopt.backends()["cuda"]
    assert lines[-1].startswith("The GPU is on: ") == (reason is None)
    if reason:
        assert lines[-1] == f"The GPU is off: {reason}."
    assert any(line.startswith("gpuopt ") for line in lines)
    assert any(line.startswith("cpu threads") for line in lines)
    assert any(line.startswith("backends sim") for line in lines)


def test_info_json(capsys):
    assert cli.main(["info", "--json"]) == 0
    found = documents(capsys)
    assert found["cpu"]["threads"] == gpuopt.get_num_threads()
    assert found["gpu"]["off_because"] == gpuopt.backends()["cuda"]


@pytest.mark.parametrize("arguments", [["variants"], ["variants", "reduce"]])
def test_variants_lists_the_ladder(arguments, capsys):
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    for row in gpuopt.variants("reduce"):
        assert row["name"] in text
    assert cli.main([*arguments, "--json"]) == 0
    rows = [row for row in documents(capsys) if row["op"] == "reduce"]
    assert len(rows) == len(gpuopt.variants("reduce"))


def test_bench(small, capsys):
    arguments = ["bench", "reduce", "--backend", "cpu", "--max-time", "0"]
    assert cli.main(arguments) == 0
    assert "percent_of_floor" in capsys.readouterr().out
    assert cli.main([*arguments, "--json", "--variants", "auto"]) == 0
    assert [row["variant"] for row in documents(capsys)["rows"]] == ["auto"]


def test_demo(small, capsys):
    assert cli.main(["demo"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert ", 0 wrong" in captured.out
    assert "right" not in captured.out
    assert "Next:" in captured.out
    rungs = [row["name"] for row in gpuopt.variants("reduce") if not row["shape"]]
    assert all(f"\n  {name} " in captured.out for name in rungs)
    assert cli.main(["demo", "--json"]) == 0
    found = documents(capsys)
    assert found["ok"] is True
    assert {row["variant"] for row in found["timed"]} >= {"numpy", "scalar"}
    assert {row["op"] for row in found["checked"]} == set(workloads.rooms())
    if gpuopt.backends()["sim"] is None:
        counted = {row["variant"]: row for row in found["counted"]}
        kernels = gpuopt.profile("reduce", np.zeros(8192, np.float32), variant="v1")
        assert counted["v1"]["conflict_ways"] > 3
        assert counted["v1"]["global_requests"] == sum(k.global_requests for k in kernels)


def test_demo_lists_every_result_if_asked(small, capsys, monkeypatch):
    monkeypatch.setattr(workloads, "rooms", lambda: ("dot", "reduce"))
    assert cli.main(["demo", "dot", "--verbose"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(run.device_name("cpu"))
    assert "\ndot: 4 CUDA kernels" in text
    assert "\nreduce on cpu: sum 2^13 float32\n" in text
    checked = int(re.search(r"(\d+) results checked", text)[1])
    assert text.count("  right  ") == checked


def test_demo_refuses_what_it_does_not_know(capsys):
    for arguments, words in (
        (["sort"], "argument ladder: invalid choice: 'sort' (choose from "),
        (["reduce", "scan"], "unrecognized arguments: scan"),
        (["--fast"], "unrecognized arguments: --fast"),
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["demo", *arguments])
        captured = capsys.readouterr()
        assert words in captured.err
        assert captured.out == ""


def test_demo_needs_little_and_no_compiler(tmp_path):
    """No compiler on PATH, no cache to write to, at most 1 GB; it checks something."""
    # Not getrusage: it includes the memory of the parent process, such as a pytest worker.
    code = "import re, sys; from gpuopt.__main__ import main; status = main(['demo']);"
    code += "most = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read());"
    code += "print(most[1], file=sys.stderr); sys.exit(status)"
    done = run_child("-c", code, env={"PATH": str(tmp_path), "CUDA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d{3} results checked against NumPy .*, 0 wrong\n", done.stdout)
    if gpuopt.backends()["cuda"] is not None:  # a CUDA context takes more
        assert int(done.stderr) < 1 << 20


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("columns", ["80", "24", "300", "x"])
def test_the_screen_fits_any_terminal(seen, encoding, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen.put(seen, stream)
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    width = {"24": screen.NARROWEST, "300": screen.WIDEST}.get(columns, 80)
    wide = [line for line in text.splitlines() if len(line) > width]
    assert wide == []
    assert "\x1b" not in text
    if columns != "24":
        assert (screen.BLOCK in text) == (encoding == "utf-8")
        assert ("####" in text) == (encoding != "utf-8")


def test_the_screen_has_no_more_than_the_encoding(seen):
    odd = dataclasses.replace(seen, cpu="Prozessor \N{LATIN SMALL LETTER O WITH DIAERESIS}")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    screen.put(odd, stream)
    stream.flush()
    assert stream.buffer.getvalue().startswith(b"Prozessor ?, ")


def test_the_screen_says_what_is_missing(seen):
    off = dataclasses.replace(seen, simulator_off="no such file", counted=[])
    assert "counts: none, no such file" in screen.screen(off)
    unknown = screen.screen(dataclasses.replace(seen, published=[]))  # no result files
    assert "  counts: " in unknown
    assert "  times: " not in unknown
    nothing = dataclasses.replace(off, published=[], timed=[], checked=[])
    assert "The simulator cannot run: no such file" in screen.screen(nothing)
    on = dataclasses.replace(seen, gpu="NVIDIA H200", gpu_off=None, published=[])
    on.timed = [{**row, "backend": "cuda"} for row in seen.published]
    text = screen.screen(on)
    assert "\nGPU: NVIDIA H200\n" in text
    assert "just now on this NVIDIA H200" in text
    assert " CPU, 10 GPU), 0 wrong" in text or "(10 GPU), 0 wrong" in text


@pytest.fixture
def seen(small):
    found = demo.demo(progress=False)
    found.gpu, found.gpu_off = None, "no NVIDIA driver on this machine"
    if not found.published:
        demo.recall(found)
    return found


def test_wrong_results_are_exit_code_1(small, capsys, monkeypatch):
    right = gpuopt.reduce
    monkeypatch.setattr(gpuopt, "reduce", lambda x, **o: right(x, **o) * 2 + 1)
    assert cli.main(["demo"]) == 1
    assert cli.main(["test", "reduce"]) == 1
    assert cli.main(["bench", "reduce", "--backend", "cpu", "--max-time", "0"]) == 1
    capsys.readouterr()


def test_test(small, capsys):
    assert cli.main(["test"]) == 0
    assert ", 0 wrong" in capsys.readouterr().out
    assert cli.main(["test", "reduce", "--json"]) == 0
    assert all(row["failed"] == 0 for row in documents(capsys))


def test_refusals_are_one_line(small, capsys):
    wrong = ["bench", "reduce", "--backend", "cpu", "--workloads", "nope"]
    assert cli.main(wrong) == 2
    assert "gpuopt bench: not a workload of reduce: 'nope'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "no_such_operator"])
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--dtype", "flaot32"], r"--dtype: invalid choice: 'flaot32' \(choose from .*float32"),
        (["--max-time", "nan"], "--max-time: invalid seconds value: 'nan'"),
        (["--max-time", "inf"], "--max-time: invalid seconds value: 'inf'"),
        (["--max-time=-1"], "--max-time: invalid seconds value: '-1'"),
        (["--max-time", "soon"], "--max-time: invalid seconds value: 'soon'"),
        (["--backend", "sim"], "--backend: invalid choice: 'sim'"),
    ],
)
def test_a_bad_value_of_an_option_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "reduce", *arguments])
    captured = capsys.readouterr()
    assert re.search(f"error: argument {words}", captured.err), captured.err
    assert captured.out == ""


def test_a_dtype_of_no_workload_is_refused(small, capsys):
    assert cli.main(["bench", "reduce", "--backend", "cpu", "--dtype", "uint8"]) == 2
    captured = capsys.readouterr()
    assert captured.err == (
        "gpuopt bench: no workload on cpu has dtype 'uint8'; there are: float32\n"
    )
    assert captured.out == ""


VARIABLES = {
    "GPUOPT_BACKEND": "GPUOPT_BACKEND must be one of 'cpu', 'cuda', 'sim' (got 'x')",
    "GPUOPT_CPU": "GPUOPT_CPU='x' is unknown; choose from 'baseline'",
}
if gpuopt.backends()["sim"] is None:
    VARIABLES["GPUOPT_SIM"] = "GPUOPT_SIM must be 'plain' or 'check', not 'x'"
if gpuopt.info()["cuda"]:
    VARIABLES["GPUOPT_BLOCKING"] = "GPUOPT_BLOCKING must be '0' or '1', not 'x'"


@pytest.mark.parametrize("name", VARIABLES)
def test_a_bad_environment_is_one_sentence(name):
    for arguments in (["info"], ["variants", "reduce", "--json"], ["test", "dot"], ["bench"]):
        done = run_child("-m", "gpuopt", *arguments, env={name: "x"})
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"gpuopt {arguments[0]}: {VARIABLES[name]}")
        assert done.stderr.count("\n") == 1


def test_a_bad_variable_is_named_in_a_call():
    for name in {"GPUOPT_BACKEND", "GPUOPT_CPU", "GPUOPT_BLOCKING"} & set(VARIABLES):
        done = run_child("-c", "import gpuopt; gpuopt.reduce([1.0])", env={name: "x"})
        assert f"ValueError: {VARIABLES[name]}" in done.stderr
        good = run_child("-c", "import gpuopt; gpuopt.reduce([1.0])", env={name: ""})
        assert (good.returncode, good.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_ends_it():
    """It ends like other tools: by the signal, without a message."""
    command = [sys.executable, "-u", "-m", "gpuopt", "variants"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_benchmarks_refuses_in_argparses_words(capsys):
    for arguments, words in (
        (["--dtype", "flaot32"], "no dtype 'flaot32'; there are"),
        (["--max-time", "nan"], "max_time must be a number of seconds, 0 or more, got nan"),
        (["--ops", "sort"], "no workloads for 'sort'; there are"),
    ):
        with pytest.raises(SystemExit, match="2"):
            benchmarks.main(["--backend", "cpu", *arguments])
        assert f"error: {words}" in capsys.readouterr().err


def test_benchmarks_writes_its_file(small, tmp_path, capsys):
    out = tmp_path / "deep" / "cpu.json"
    arguments = ["--ops", "reduce", "--backend", "cpu", "--quick", "--out", str(out)]
    assert benchmarks.main(arguments) == 0
    assert json.loads(out.read_text())["rows"][0]["n"] == 5
    capsys.readouterr()


def test_a_pipe_gets_the_table_alone():
    command = [sys.executable, "-m", "gpuopt", "variants", "reduce"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("variants of reduce")


def test_a_terminal_sees_progress():
    """On a terminal the progress goes to stderr; stdout has only the result."""
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (24, 80))  # tqdm draws nothing into no columns
    code = (
        "import sys; from gpuopt import __main__ as cli; from gpuopt.lab import ceilings; "
        "ceilings.CPU_BYTES = 1 << 26; sys.exit(cli.main())"  # their size is not tested here
    )
    command = [sys.executable, "-c", code, "bench", "reduce", "--json", "--backend", "cpu"]
    command += ["--workloads", "sum 2^13", "--variants", "auto", "--max-time", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner, check=False)
    os.close(inner)
    shown = os.read(outer, 4096)
    os.close(outer)
    assert done.returncode == 0
    assert b"bench" in shown
    assert json.loads(done.stdout)
