"""The command line: what each command prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest
from conftest import run_child

import gpuopt
from gpuopt import __main__ as cli
from gpuopt.benchmarks import __main__ as benchmarks
from gpuopt.benchmarks.workloads import reduce
from gpuopt.lab import ceilings, demo, smoke


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
    assert lines[-1] == ("GPU: ok" if reason is None else f"GPU: off ({reason})")
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
    assert cli.main(["demo", "--json"]) == 0
    found = documents(capsys)
    assert found["ok"] is True
    assert {row["variant"] for row in found["timed"]} >= {"numpy", "scalar"}
    if gpuopt.backends()["sim"] is None:
        assert found["simulated"]


def test_wrong_results_are_exit_code_1(small, capsys, monkeypatch):
    right = gpuopt.reduce
    monkeypatch.setattr(gpuopt, "reduce", lambda x, **o: right(x, **o) * 2 + 1)
    assert cli.main(["demo"]) == 1
    assert cli.main(["test", "reduce"]) == 1
    assert cli.main(["bench", "--backend", "cpu", "--max-time", "0"]) == 1
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
    """As other tools: by the signal, without a word."""
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
    """On a terminal the progress goes to stderr; stdout stays the result."""
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (24, 80))  # tqdm draws nothing into no columns
    command = [sys.executable, "-m", "gpuopt", "bench", "reduce", "--json", "--backend", "cpu"]
    command += ["--workloads", "sum 2^13", "--variants", "auto", "--max-time", "0"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=inner, check=False)
    os.close(inner)
    shown = os.read(outer, 4096)
    os.close(outer)
    assert done.returncode == 0
    assert b"bench" in shown
    assert json.loads(done.stdout)
