"""The output shown in the documents is what the code prints.

Order: the blocks of a document, the tests of the blocks, the examples of docstrings, what
the text of an operator contains.

The ```python blocks of a document run in order, in one namespace, on the CPU backend.  A
```text block is the output of the python block above it, compared exactly, and a block that
prints has one.  A comment on the line above a block marks what depends on the machine:
`<!-- example: needs a GPU -->` runs the code, on the GPU, only if there is one;
`<!-- example: needs torch -->` only where torch is installed, which `make test-torch` has,
and so `needs dask` and `needs jax`; `needs CuPy` only where CuPy and a GPU are;
`<!-- example: output varies -->` leaves the output that follows uncompared.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpuopt

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for found in (
        ROOT.glob("*.md"),
        *((ROOT / d).rglob("*.md") for d in ("csrc", "benchmarks", "docs")),
    )
    for path in found
)
FENCE = re.compile(
    r"^(?:<!-- example: ([^\n]+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
NEEDS = {
    None: lambda: True,
    "needs a GPU": lambda: gpuopt.backends()["cuda"] is None,
    "needs torch": lambda: importlib.util.find_spec("torch") is not None,
    "needs dask": lambda: importlib.util.find_spec("dask") is not None,
    "needs jax": lambda: importlib.util.find_spec("jax") is not None,
    "needs CuPy": lambda: (
        gpuopt.backends()["cuda"] is None and importlib.util.find_spec("cupy") is not None
    ),
}
MARKS = {"python": tuple(NEEDS), "text": (None, "output varies")}


class Block(NamedTuple):
    line: int
    mark: str | None
    language: str
    text: str


def blocks(document: str) -> Iterator[Block]:
    for found in FENCE.finditer(document):
        yield Block(document.count("\n", 0, found.start()) + 1, *found.groups())


def run(block: Block, names: dict[str, Any]) -> str | None:
    """What the code prints; None if it cannot run here."""
    if block.mark not in NEEDS or not NEEDS[block.mark]():
        return None
    gpuopt.use("cuda" if block.mark == "needs a GPU" else "cpu")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * block.line + block.text, "document", "exec"), names)
    return printed.getvalue()


def problems(document: str) -> Iterator[str]:
    """One sentence for each block that differs from what the code prints."""
    names: dict[str, Any] = {}
    printed: str | None = ""
    for block in blocks(document):
        if block.mark not in MARKS.get(block.language, (None,)):
            yield f"line {block.line}: the mark '{block.mark}' means nothing here"
        if printed and block.language != "text":
            yield f"line {block.line}: what the code before prints is not shown: {printed}"
        if block.language == "python":
            printed = run(block, names)
        elif block.language == "text":
            if printed == "":
                yield f"line {block.line}: the output of no code"
            elif block.mark is None and printed not in (None, block.text):
                yield f"line {block.line}: shows\n{block.text}the code prints\n{printed}"
            printed = ""
        elif not block.language:
            yield f"line {block.line}: a block of no language"
    if printed:
        yield f"what the last block prints is not shown: {printed}"


def anchor(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_links_to_what_is_there(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        path, _, heading = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), f"{name} links to {link}"
        if heading:
            found = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in map(anchor, found), f"{name} links to {link}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_shows_what_the_code_prints(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    if gpuopt.backends()["sim"] is not None and 'backend="sim"' in text:
        pytest.skip("this build has no simulator")
    found = list(problems(text))
    assert found == [], "\n".join(found)


def test_wrong_output_is_noticed() -> None:
    code = "```python\nprint(1 + 1)\n```\n"
    assert list(problems(code + "```text\n2\n```\n")) == []
    assert list(problems(code + "<!-- example: output varies -->\n```text\n3\n```\n")) == []
    for wrong in (
        code + "```text\n3\n```\n",
        code,
        "```text\n2\n```\n",
        "```\n2\n```\n",
        "<!-- example: on sundays -->\n" + code + "```text\n2\n```\n",
    ):
        assert len(list(problems(wrong))) == 1, wrong


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstring of every public name, including those of the C module."""
    modules = [gpuopt, gpuopt._core]
    for found in pkgutil.walk_packages(gpuopt.__path__, "gpuopt."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of a library that is not installed
                modules.append(importlib.import_module(found.name))
    for module in modules:
        yield module.__name__, module.__doc__ or ""
        for name, thing in vars(module).items():
            ours = str(getattr(thing, "__module__", "")).startswith("gpuopt")
            if ours and not name.startswith("_"):
                yield f"{module.__name__}.{name}", getattr(thing, "__doc__", None) or ""


def wrong_examples(name: str, text: str) -> str:
    """What doctest says of a text's examples; they know gpuopt and np."""
    gpuopt.use("cpu")
    wrong = io.StringIO()
    names = {"gpuopt": gpuopt, "np": np}
    examples = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    doctest.DocTestRunner().run(examples, out=wrong.write)
    return wrong.getvalue()


def test_examples_in_docstrings_are_right() -> None:
    texts = {text: name for name, text in docstrings() if ">>>" in text}
    assert texts, "the package's own text has an example"
    wrong = "".join(wrong_examples(name, text) for text, name in texts.items())
    assert not wrong, wrong


# ---- operators ----

SECTIONS = ["Parameters", "Returns", "Raises", "See Also", "Notes", "Examples"]


@pytest.mark.parametrize("op", gpuopt.ops())
def test_an_operator_says_what_it_does(op: str) -> None:
    text = getattr(gpuopt, op).__doc__
    summary = text.partition("\n\n")[0]
    assert "\n" not in summary
    assert len(summary) <= 80
    assert max(map(len, text.splitlines())) <= 84, "help() indents it by 4"
    found = re.findall(r"^(.+)\n-+$", text, re.MULTILINE)
    assert found == [name for name in SECTIONS if name in found]
    assert {*SECTIONS} - {*found} <= {"See Also"}
    for words in ("float16", "float32", "ValueError\n    ", "TypeError\n    ", "Determinism: "):
        assert words in text
    assert not re.search(r"^[{\[]\w+[}\]]$", text, re.MULTILINE), "a part of shared.txt"


@pytest.mark.parametrize("op", gpuopt.ops())
def test_an_operator_has_examples_that_are_right(op: str) -> None:
    examples = getattr(gpuopt, op).__doc__.partition("\nExamples\n--------\n")[2]
    assert 1 <= examples.count(">>> ") <= 3
    assert f"gpuopt.{op}(" in examples
    assert examples.startswith(">>> ")
    wrong = wrong_examples(op, examples)
    assert not wrong, wrong


def test_wrong_examples_are_noticed() -> None:
    assert "Failed example" in wrong_examples("add", ">>> gpuopt.add(1, 2)\n4\n")
