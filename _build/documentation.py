"""Makes docs.h, the table of what help() shows of each operator, from the rooms' texts.

A room of one operator has doc.txt, a room of several doc/<operator>.txt.  There a line
{name} stands for the part of doc/shared.txt under the line [name].  bind/module.c includes
docs.h; it looks a text up by the operator's place in ops.def.
Usage: documentation.py DOCS.H TEXT...
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from steps import Step

SHARED = "shared.txt"


def files(csrc: Path) -> list[Path]:
    """Every text of every room, the shared ones included."""
    return sorted([*csrc.glob("ops/*/doc.txt"), *csrc.glob("ops/*/doc/*.txt")])


def parts(text: str) -> dict[str, str]:
    """The parts of a shared text by their names."""
    pieces = re.split(r"^\[(\w+)\]\n", text, flags=re.MULTILINE)
    return {
        name: part.strip("\n") for name, part in zip(pieces[1::2], pieces[2::2], strict=True)
    }


def whole(file: Path) -> str:
    """A text as help() shows it."""
    shared = file.with_name(SHARED)
    known = parts(shared.read_text(encoding="ascii")) if shared.exists() else {}

    def part(found: re.Match[str]) -> str:
        if found[1] not in known:
            raise SystemExit(f"gpuopt: {file} wants '{found[1]}', which {SHARED} lacks")
        return known[found[1]]

    text = file.read_text(encoding="ascii")
    return re.sub(r"^\{(\w+)\}$", part, text, flags=re.MULTILINE)


def operator(file: Path) -> str:
    return file.parent.name if file.name == "doc.txt" else file.stem


def literal(text: str) -> str:
    """C string literals, one for each line."""
    lines = text.replace("\\", r"\\").replace('"', r"\"").splitlines()
    return "\n".join(f'        "{line}\\n"' for line in lines)


def header(texts: Iterable[Path]) -> str:
    """The header; GPO_OP_<operator> is its place in csrc/ops/ops.def."""
    found: dict[str, str] = {}
    for file in texts:
        if file.name == SHARED:
            continue
        if operator(file) in found:
            raise SystemExit(f"gpuopt: {file} is the second text of {operator(file)}")
        found[operator(file)] = literal(whole(file))
    rows = "".join(f"    [GPO_OP_{name}] =\n{text},\n" for name, text in found.items())
    return (
        "/* docs.h  Made by _build/documentation.py; do not edit. */\n"
        f"#define GPO_DOCS {len(found)}\n\n"
        f"static const char *const docs[] = {{\n{rows}}};\n"
    )


def write(output: Path, texts: Iterable[Path]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(header(texts), encoding="ascii")


def step(root: Path, temp: Path) -> Step:
    """The step that makes docs.h again when a text has changed."""
    output = temp / "generated" / "docs.h"
    texts = files(root / "csrc")
    python = os.path.realpath(sys.executable)  # pip and make have other names for it
    script = Path(__file__).resolve()
    return Step(
        output,
        [python, str(script), str(output), *map(str, texts)],
        after=[script, *texts],
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]), map(Path, sys.argv[2:]))
