"""Shared by all tests: child processes, figures, and the summary at the end of a run.

A test reports a figure in the summary with the `figure` fixture; the numbers of contract
cases are added up.  The summary lists a backend that this machine lacks as not run: its
cases are not generated, so they count neither as passed nor as skipped.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# A thread of OpenBLAS waits busily, from the import of NumPy on: a third of the start of a
# child, and half of a core beside another worker.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # No bytecode beside the sources, but hundreds of children compile the same modules.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(ROOT / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

import gpuopt  # noqa: E402
from gpuopt.lab import nvcc  # noqa: E402

# Where a call on host arrays runs must not depend on measured times.
os.environ["GPUOPT_CALIBRATION"] = "off"

Figure = Callable[[str, str], None]
Count = Callable[[int], None]
Child = Callable[..., subprocess.CompletedProcess[str]]

# Tests that need a GPU or other libraries (`make test-torch`) are collected only if those
# are available; otherwise the summary lists them as not run.
NEEDS = {
    "test_known_indices.py": ("torch",),
    "test_torch.py": ("torch",),
    "test_torch_ops.py": ("torch",),
    "test_torch_direct.py": ("torch",),
    "test_torch_rival.py": ("torch",),
    "test_torch_examples.py": ("torch",),
    "test_torch_parallel.py": ("torch",),
    "test_dask.py": ("dask", "distributed"),
    "test_jax.py": ("jax",),
    "test_guests.py": ("torch", "jax", "pandas", "xarray", "pint", "astropy"),
}
MISSING = {
    file: [name for name in names if importlib.util.find_spec(name) is None]
    for file, names in NEEDS.items()
}
collect_ignore = [file for file, names in MISSING.items() if names]
collect_ignore += [] if gpuopt.backends()["cuda"] is None else ["test_device_gpu.py"]
if gpuopt.backends()["cuda"] is not None or nvcc.unavailable():
    collect_ignore += ["test_lab_kernel_gpu.py"]
GPUS = gpuopt.device_count() if gpuopt.backends()["cuda"] is None else 0
collect_ignore += [] if GPUS > 1 else ["test_two_gpus.py"]

# A hang guard, not a measurement: far above what any child needs on a busy machine.
HANG_SECONDS = 1800


def run_child(
    *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs this Python with `arguments`, importing the same gpuopt as this process."""
    package = Path(gpuopt.__file__).resolve().parent.parent
    path = [str(package), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p), **(env or {})},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


@pytest.fixture
def child() -> Child:
    """Runs code in a child; fails unless it exits with 0 and prints nothing to stderr."""

    def run(
        code: str, *, arguments: tuple[str, ...] = (), **options: Any
    ) -> subprocess.CompletedProcess[str]:
        done = run_child("-W", "error", "-c", code, *arguments, **options)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Prints `name: value` in the summary."""
    properties = request.node.user_properties
    return lambda name, value: properties.append(("figure", f"{name}: {value}"))


@pytest.fixture
def count(request: pytest.FixtureRequest) -> Count:
    """Adds to the number of contract cases in the summary."""
    properties = request.node.user_properties
    return lambda cases: properties.append(("cases", cases))


@pytest.fixture(autouse=True)
def _settings_restored() -> Iterator[None]:
    """Restores the backend and the thread count, which are global to the process."""
    yield
    gpuopt.use(None)
    gpuopt.set_num_threads(0)


# Patterns in the code of a test of threads, forks or clocks.
CONCURRENT = re.compile(
    r"Thread\(|Barrier|fork|FORK|GIL\b|multiprocessing|Clock\(|clock\b|\btime\.|signal\.|"
    r"Stream\(|Event\("
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "concurrent: of threads, forks or clocks; `make busy`")


@functools.cache  # one function may have a thousand cases, and is read token by token
def is_concurrent(function: Callable[..., Any]) -> bool:
    return CONCURRENT.search(inspect.getsource(function)) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests of threads, forks and clocks by their code; `make busy` repeats them.

    Drops the skipped test that pytest generates from an empty list of parameters.
    """
    for item in items:
        if is_concurrent(getattr(item, "function", item.__class__)):
            item.add_marker(pytest.mark.concurrent)
    empty = [
        item
        for item in items
        if any(
            "empty parameter set" in mark.kwargs.get("reason", "")
            for mark in item.iter_markers("skip")
        )
    ]
    if empty:
        config.hook.pytest_deselected(items=empty)
        items[:] = [item for item in items if item not in empty]


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """Keeps the cases, and results that earlier modules cached, out of the garbage collector.

    Millions of objects: a collection, of which tests of leaks run thousands, takes a second.
    """
    gc.collect()
    gc.freeze()


def not_run() -> list[str]:
    """One line per backend, and per variant of a usable backend, that cannot run here."""
    reasons = gpuopt.backends()
    lines = [f"{name}: not run ({why})" for name, why in reasons.items() if why]
    for op in gpuopt.ops():
        for row in gpuopt._core.variants(op):
            if reasons[row["backend"]] is None and not row["available"]:
                name = f"{op} {row['backend']} {row['name']}"
                lines.append(f"{name}: not run ({row['reason']})")
    if GPUS < 2:
        lines.append("test_two_gpus.py: not run (needs two GPUs)")
    for file, names in MISSING.items():
        if names:
            lines.append(f"{file}: not run (no {', '.join(names)}; make test-torch has them)")
    return lines


def pytest_terminal_summary(terminalreporter: Any) -> None:
    reports = [
        report
        for group in ("passed", "failed")
        for report in terminalreporter.getreports(group)
        if getattr(report, "when", "") == "call"
    ]
    properties = [item for report in reports for item in report.user_properties]
    cases = sum(value for name, value in properties if name == "cases")
    terminalreporter.section("gpuopt")
    if cases:
        terminalreporter.line(f"contract: {cases:,} cases")
    for name, value in properties:
        if name == "figure":
            terminalreporter.line(value)
    for line in not_run():
        terminalreporter.line(line)


@pytest.fixture
def pyplot() -> Iterator[Any]:
    """matplotlib.pyplot without a screen; what a test draws is closed after it."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """Calls run on the CPU."""
    before = gpuopt.default_backend()
    gpuopt.use("cpu")
    yield
    gpuopt.use(before)
