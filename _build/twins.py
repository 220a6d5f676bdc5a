"""Compiles a kernel file once and writes two objects: instrumented, and without the calls.

The compiler writes assembly with calls of the hooks in csrc/sim/access.cpp, and a `.loc`
wherever the source line changes.  The profiling object keeps both, and of the debug information
only the line table, without the lines at which nothing is called: csrc/sim/lines.cpp looks up
calls.  The plain object is the same code without hooks and lines.  That takes half the time of
two compilations.
Usage: twins.py PLAIN.o PROFILE.o COMPILER FLAGS... -S SOURCE
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HOOK = rb"(?:__tsan_|__sanitizer_cov_trace_pc\b)[^\n]*"
CALL = re.compile(rb"^\t(?:callq?|bl)\t" + HOOK + rb"\n", re.MULTILINE)
LAST_CALL = re.compile(rb"^\t(?:jmpq?|b)\t" + HOOK + rb"$", re.MULTILINE)
LINES = re.compile(rb"^\t\.(?:loc|file)\t?[ \t]*\d[^\n]*\n", re.MULTILINE)
# .debug_info and similar, up to the next section; the assembler makes .debug_line itself.
DEBUG = re.compile(
    rb"^\t\.section\t\.debug_(?!line).*?(?=^\t\.(?:section|text|data|bss|ident|hidden)\b|\Z)",
    re.MULTILINE | re.DOTALL,
)

# What the assembler adds to lines where there is no .debug_info: names, ranges and frames of
# functions.
UNUSED = [
    f"--remove-section=.debug_{part}"
    for part in ("info", "abbrev", "aranges", "str", "ranges", "frame")
]


def plain(assembly: bytes) -> bytes:
    """The code without hooks and lines."""
    return LINES.sub(b"", LAST_CALL.sub(b"\tret", CALL.sub(b"", assembly)))


# A line of assembly that names a source line (its column is left out), that calls, that is
# where a section goes on.
LOC = re.compile(rb"\t\.loc[\t ]+\d+ \d+")
CALLS = re.compile(rb"\t(?:callq?|blr?)\t")
SECTION = re.compile(rb"\t\.(?:section|text|data|bss)\b")


def called_lines(assembly: bytes) -> bytes:
    """The assembly with only those `.loc` that name the source line of a call."""
    kept: list[bytes] = []
    here = b""
    at: dict[bytes, bytes] = {}  # by section, the `.loc` of what follows...
    noted: dict[bytes, bytes] = {}  # ... and the last one kept
    for line in assembly.splitlines(keepends=True):
        if found := LOC.match(line):
            at[here] = found[0] + b"\n"
            continue
        if SECTION.match(line):
            here = line
        elif CALLS.match(line) and here in at and at[here] != noted.get(here):
            kept.append(at[here])
            noted[here] = at[here]
        kept.append(line)
    return b"".join(kept)


def main(arguments: list[str]) -> int:
    outputs, command = arguments[:2], arguments[2:]
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "kernels.s")
        done = subprocess.run([*command, "-o", file])
        if done.returncode:
            return done.returncode
        assembly = DEBUG.sub(b"", Path(file).read_bytes())
        for text, output in zip(
            (plain(assembly), called_lines(assembly)), outputs, strict=True
        ):
            Path(file).write_bytes(text)
            here = f"-fdebug-prefix-map={os.getcwd()}=."  # the assembler notes it
            for step in (
                [command[0], "-c", here, file, "-o", output],
                ["objcopy", *UNUSED, output],
            ):
                done = subprocess.run(step)
                if done.returncode:
                    return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
