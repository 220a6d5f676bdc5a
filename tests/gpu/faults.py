"""The planted faults on a GPU: each under the four tools of compute-sanitizer, to compare
with the lab.

Every fault of tests/planted_faults.py becomes a program of its own, compiled by nvcc with
line tables, which run in parallel, each with a limit of seconds.  The result, rewritten as
it grows, is one JSON object: for each fault what nvcc says, how the program ends alone, and
for each tool the lines and the first sentence of its report.  Order: the program, the
report, one fault, all of them.
Usage: faults.py --out RESULT.json [NAME...]    needs nvcc, compute-sanitizer and a GPU
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from planted_faults import FAULTS, Fault
from programs import command, find

from gpuopt.lab import nvcc, run

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SANITIZER = find("compute-sanitizer")
HANGS = ("endless loop", "deadlock")  # started last: they use their whole limit
SECONDS = 110  # of everything; what has not begun by then is "not run"
LIMIT = {"compile": 60, "run": 15}

# ---- the program ----

TYPES = {"float32": "float", "int32": "int"}

HEAD = """
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

template <typename T> static T *device(size_t n, T step, bool written)
{
    T *host = (T *)malloc(n * sizeof(T)), *x = nullptr;
    for (size_t i = 0; i < n; i++) {
        host[i] = step * (T)i;
    }
    cudaMalloc(&x, n * sizeof(T));
    if (written) {
        cudaMemcpy(x, host, n * sizeof(T), cudaMemcpyHostToDevice);
    }
    free(host);
    return x;
}
"""


def argument(value: Any) -> str:
    """The C++ expression of an argument: 0, 1, 2, ... or zeros in an array, or a number."""
    if not isinstance(value, np.ndarray):
        return f"{int(value)}ull" if int(value) >= 2**31 else str(int(value))
    flat = np.asarray(value).ravel()
    step = int(flat.any())
    if not np.array_equal(flat, step * np.arange(flat.size)):
        raise ValueError("an array of a planted fault is 0, 1, 2, ... or zeros")
    written = "false" if getattr(value, "fresh", False) else "true"
    return f"device<{TYPES[flat.dtype.name]}>({flat.size}, {step}, {written})"


def dimensions(value: Any) -> str:
    numbers = value if isinstance(value, tuple) else (value,)
    return f"dim3({', '.join(map(str, numbers))})"


def program(fault: Fault) -> str:
    """The kernel, from line 1 on as in the document, and a main that launches it."""
    values = [argument(value) for value in fault.arguments()]
    lines = [f"    auto a{i} = {value};" for i, value in enumerate(values)]
    if fault.before:
        lines.append(f"    {fault.before}")
    names = ", ".join(f"a{i}" for i in range(len(values)))
    launch = f"{dimensions(fault.grid)}, {dimensions(fault.block)}, {fault.shared_bytes}"
    lines.append(f"    {fault.name}<<<{launch}>>>({names});")
    body = "\n".join(lines)
    return f"""{fault.source}{HEAD}
int main()
{{
    alarm({LIMIT["run"] + 5}); /* should its parents end before it */
{body}
    cudaError_t error = cudaGetLastError();
    if (!error) {{
        error = cudaDeviceSynchronize();
    }}
    printf("ends: %s\\n", cudaGetErrorName(error));
    return error != cudaSuccess;
}}
"""


# ---- the report ----

LINE = re.compile(r"\b(\w+)\.cu:(\d+)\b")
NOISE = re.compile(
    r"^(COMPUTE-SANITIZER|$|ERROR SUMMARY|RACECHECK SUMMARY|Saved host|Host Frame|Device Frame|"
    r"by thread|Address |and is |LEAK SUMMARY|No attached|Target application)"
)
# Of these the device's code is not the cause: what ran or could not be seen.
TROUBLE = re.compile(r"Internal Sanitizer|Device not supported|Unable to|Failed to")


def parse(text: str, fault: Fault) -> dict[str, Any]:
    """What one tool found: at the marked line, at another one, without a line, or nothing."""
    lines: list[int] = []
    sentences: list[str] = []
    for row in text.splitlines():
        if not row.startswith("========="):
            continue
        said = row.lstrip("=").strip()
        if said.startswith(("Saved host", "Host Frame", "Device Frame")):
            continue
        lines += [int(n) for stem, n in LINE.findall(said) if stem == fault.name]
        if not NOISE.match(said) and not said.startswith(("at ", "and ")):
            sentences.append(re.sub(r"0x[0-9a-f]{5,}", "0x...", said))
    errors = sum(int(n) for n in re.findall(r"ERROR SUMMARY: (\d+) error", text))
    errors += sum(int(n) for n in re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text))
    if any(TROUBLE.search(s) for s in sentences) and not lines:
        found = "not run"
    elif fault.line in lines:
        found = "line"
    elif lines:
        found = "another line"
    elif errors:
        found = "no line"
    else:
        found = "nothing"
    return {
        "found": found,
        "lines": sorted(set(lines)),
        "errors": errors,
        "sentence": sentences[0] if sentences else "",
    }


# ---- one fault ----


def options(tool: str, number: int, known: str) -> list[str]:
    """The options of a tool for the run of that number; `known` is what --help prints.

    Runs at the same time need ports of their own.  Releases from 2025.4 on look for
    uninitialised shared memory, too, if they are asked to.
    """
    wanted = {
        "--show-backtrace": "no",
        "--print-limit": "100",
        "--port": str(20000 + 16 * number),
        "--max-connections": "16",
    }
    if tool == "initcheck":
        wanted["--initcheck-address-space"] = "all"
    return [word for name, value in wanted.items() if name in known for word in (name, value)]


class Runs:
    """All faults: the deadline, the results so far, and the file that they are written to."""

    def __init__(self, faults: list[Fault], folder: Path, out: Path, arch: str) -> None:
        self.folder, self.out, self.arch = folder, out, arch
        self.end = time.monotonic() + SECONDS
        self.lock = threading.Lock()
        missing = {"found": "not run", "lines": [], "errors": 0, "sentence": ""}
        self.rows: dict[str, dict[str, Any]] = {
            fault.name: {
                "name": fault.name, "mistake": fault.mistake, "line": fault.line,
                "lab": fault.kind, "compile": "", "alone": "not run",
                "tools": {tool: dict(missing) for tool in TOOLS},
            }
            for fault in faults
        }  # fmt: skip
        self.about: dict[str, Any] = {}
        self.numbers = itertools.count()
        self.known = ""  # what compute-sanitizer's --help prints

    def left(self, what: str) -> float:
        return min(LIMIT[what], self.end - time.monotonic())

    def write(self) -> None:
        """Replace the file by what is known now."""
        with self.lock:
            text = json.dumps({**self.about, "faults": list(self.rows.values())}, indent=1)
            part = self.out.with_suffix(".part")
            part.write_text(text + "\n", encoding="utf-8")
            part.replace(self.out)

    def compile(self, fault: Fault) -> None:
        source, row = self.folder / f"{fault.name}.cu", self.rows[fault.name]
        source.write_text(program(fault), encoding="utf-8")
        compiler = nvcc.find()
        assert compiler
        words = [compiler, "-std=c++17", "-O2", "-lineinfo", "-w", f"-arch={self.arch}"]
        words += ["-o", str(source.with_suffix("")), str(source)]
        seconds = self.left("compile")
        status, said = command(words, seconds) if seconds > 0 else (None, "no time left")
        if status != 0:
            errors = [s for s in said.splitlines() if "error" in s.lower()]
            row["compile"] = (errors or [said.strip() or "time limit"])[0].replace(
                f"{self.folder}/", ""
            )

    def one(self, fault: Fault, tool: str) -> None:
        """Run one fault under one tool; tool "" is the program alone."""
        row = self.rows[fault.name]
        seconds = self.left("run")
        if row["compile"] or seconds <= 1:
            return
        words = [str(self.folder / fault.name)]
        if tool:
            chosen = options(tool, next(self.numbers), self.known)
            words = [SANITIZER or "", "--tool", tool, *chosen, *words]
        status, said = command(words, seconds)
        if tool:
            seen = parse(said, fault)
            if status is None and seen["found"] == "nothing":
                seen["found"] = "time limit"
            elif "COMPUTE-SANITIZER" not in said:
                seen["found"] = "not run"
                seen["sentence"] = said.strip()[:200]
            row["tools"][tool] = seen
        elif status is None:
            row["alone"] = "time limit"
        else:
            ends = re.search(r"ends: (\w+)", said)
            row["alone"] = ends[1] if ends else f"exit status {status}"
        self.write()


# ---- all of them ----


def version() -> str:
    status, said = command([SANITIZER or "", "--version"], 20)
    found = re.search(r"[Vv]ersion (\S+)", said)
    return found[1] if found and status == 0 else "unknown"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument("--arch", default="native", help="of nvcc, such as sm_90")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument(
        "--compile-only", action="store_true", help="on a machine without a GPU"
    )
    parser.add_argument("names", nargs="*", help="the faults; all without one")
    args = parser.parse_args()
    unknown = set(args.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no planted fault is called {', '.join(sorted(unknown))}")
    missing = ["nvcc"] * (not nvcc.find())
    missing += ["compute-sanitizer"] * (not SANITIZER and not args.compile_only)
    if missing:
        print(f"not found: {', '.join(missing)}", file=sys.stderr)
        return 3
    faults = [f for f in FAULTS if not args.names or f.name in args.names]
    faults.sort(key=lambda f: f.kind in HANGS)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        runs = Runs(faults, Path(folder), args.out, args.arch)
        if not args.compile_only:
            _, runs.known = command([SANITIZER or "", "--help"], 20)
            runs.about = {
                "device": run.device_name("cuda"), "driver": run.query_gpu("driver_version"),
                "nvcc": nvcc.version(), "compute-sanitizer": version(), "commit": run.commit(),
                "options": {"nvcc": "-O2 -lineinfo", "initcheck": "global memory"},
                "seconds_limit": LIMIT["run"],
            }  # fmt: skip
            if "--initcheck-address-space" in runs.known:
                runs.about["options"]["initcheck"] = "global and shared memory"
        runs.write()
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(runs.compile, faults))
            runs.write()
            if not args.compile_only:
                pairs = [(f, tool) for f in faults for tool in ("", *TOOLS)]
                list(pool.map(lambda pair: runs.one(*pair), pairs))
        runs.about["seconds"] = round(time.monotonic() - began, 1)
        runs.write()
    for row in runs.rows.values():
        tools = {tool: seen["found"] for tool, seen in row["tools"].items()}
        print(row["name"], row["compile"] or row["alone"], tools)
    return 0


if __name__ == "__main__":
    sys.exit(main())
