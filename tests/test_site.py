"""The documentation site: its sources are whole, and its checks find what is wrong.

Order: links, the folder of sources, the reference, facts, the check of the pages.  `make docs`
builds the site, which needs Sphinx; these tests do not.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import ROOT

import gpuopt
from gpuopt import chunks, lab

SITE = ROOT / "docs" / "site"
sys.path.insert(0, str(SITE))
make, check, reference, tree = map(
    importlib.import_module, ("make", "check", "reference", "tree")
)
sys.path.remove(str(SITE))


# ---- links ----


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("docs/a.md", "[x](guide.md#calls)", "[x](guide.md#calls)"),
        ("docs/guide.md", "[x](../README.md)", "[x](../index.md)"),
        ("README.md", "[x](docs/guide.md)", "[x](docs/guide.md)"),
        ("docs/a.md", "[`x`](../csrc/bind/call.c)", "[`x`](../csrc/bind/call.c.md)"),
        ("README.md", "[x](csrc/ops/reduce/ladder)", "[x](csrc/ops/reduce/ladder/index.md)"),
        ("docs/a.md", "![x](ladder.svg) [y](#here)", "![x](ladder.svg) [y](#here)"),
        ("docs/a.md", "[x](https://example.org/a.c)", "[x](https://example.org/a.c)"),
        ("docs/a.md", "`k[grid](call.c)`", "`k[grid](call.c)`"),
        ("docs/a.md", "`k[a,\nb](call.c)` c", "`k[a,\nb](call.c)` c"),
        ("docs/a.md", "```python\nk[0](call.c)\n```\n", "```python\nk[0](call.c)\n```\n"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, text: str, expected: str) -> None:
    assert tree.rewritten(ROOT, page, text)[0] == expected


# ---- the folder of sources ----


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Sphinx reads, but for numpydoc's part of the docstrings."""
    target = tmp_path_factory.mktemp("sources")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "sections", lambda text: text.split("\n"))
        make.collect(target)
    return target


def markdown(path: Path) -> Iterator[str]:
    """The Markdown of a document or notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield text
    else:
        cells = json.loads(text)["cells"]
        yield from (c["source"] for c in cells if c["cell_type"] == "markdown")


def test_every_relative_link_of_the_sources_leads_to_one_of_them(sources: Path) -> None:
    seen = 0
    for path in (*sources.rglob("*.md"), *sources.rglob("*.ipynb")):
        for text in markdown(path):
            for link in tree.links(text):
                if not tree.is_elsewhere(link) and link[0] != "#":
                    target = path.parent / link.partition("#")[0]
                    assert target.is_file(), f"{path.relative_to(sources)} links to {link}"
                    seen += 1
    assert seen > 100
    for path in sources.rglob("*.rst"):
        for page in re.findall(r":doc:`[^`]*<(/[^>]+)>`", path.read_text(encoding="utf-8")):
            assert (sources / f"{page[1:]}.md").is_file(), f"{path.name} links to {page}"


def test_the_navigation_has_every_document_and_notebook(sources: Path) -> None:
    listed = {file for _, _, kept in tree.PARTS.values() for file in kept}
    here = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md")}
    here |= {p.relative_to(ROOT).as_posix() for p in ROOT.glob("examples/*.ipynb")}
    assert here <= listed, f"docs/site/tree.py does not list {sorted(here - listed)}"
    for file in listed:
        assert (sources / file).is_file()
    front = (sources / "index.md").read_text(encoding="utf-8")
    assert front.startswith((ROOT / "README.md").read_text(encoding="utf-8").split("\n")[0])
    for key in tree.PARTS:
        assert f"\n{key}\n" in front


def test_notebooks_keep_their_outputs(sources: Path) -> None:
    for path in ROOT.glob("examples/*.ipynb"):
        own = json.loads(path.read_text(encoding="utf-8"))["cells"]
        shown = json.loads((sources / "examples" / path.name).read_text("utf-8"))["cells"]
        assert [c.get("outputs") for c in own] == [c.get("outputs") for c in shown]


def test_a_second_run_writes_what_has_changed_and_removes_the_rest(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, old = sources / "docs" / "guide.md", sources / "gone.md"
    before = page.stat().st_mtime_ns
    old.write_text("# gone\n", encoding="utf-8")
    monkeypatch.setattr(reference, "sections", lambda text: text.split("\n"))
    make.collect(sources)
    assert page.stat().st_mtime_ns == before
    assert not old.exists()


# ---- the reference ----


def described(sources: Path) -> set[str]:
    """The full names of all that the reference describes."""
    found = set()
    for path in (sources / "reference").glob("*.rst"):
        module = ""
        for line in path.read_text(encoding="utf-8").splitlines():
            if at := re.match(r"\.\. py:currentmodule:: (\S+)", line):
                module = at[1]
            elif name := re.match(r"\.\. py:\w+:: (\w+)", line):
                found.add(f"{module}.{name[1]}")
    return found


def test_every_public_name_is_in_the_reference(sources: Path) -> None:
    found = described(sources)
    public = {f"gpuopt.{name}" for name in gpuopt.__all__ if name != "chunks"}
    public |= {f"gpuopt.chunks.{n}" for n in chunks.__all__ if callable(getattr(chunks, n))}
    public |= {f"gpuopt.lab.{name}" for name in lab.__all__}
    for name in lab._MODULES:
        module: Any = getattr(lab, name)
        names = [n for n in getattr(module, "__all__", ()) if callable(getattr(module, n))]
        public |= {f"gpuopt.lab.{name}.{own}" for own in names if own != "Clock"}
    assert public - found == set()
    for name in ("torch.sum", "torch.CausalConv1d", "torch.parallel.causal_conv1d", "torch.add",
                 "dask.scan", "dask.convolve"):  # fmt: skip
        assert f"gpuopt.{name}" in found


@pytest.mark.parametrize("op", gpuopt.ops())
def test_an_operator_is_described_with_its_examples_and_variants(
    sources: Path, op: str
) -> None:
    told = gpuopt.describe(op)
    text = (sources / "reference" / f"{told['room']}.rst").read_text(encoding="utf-8")
    assert f".. py:function:: {op}{told['signature']}\n" in text
    examples = getattr(gpuopt, op).__doc__.partition("\nExamples\n--------\n")[2]
    for line in examples.splitlines():
        assert line.strip() in text
    assert f"Variants of {told['ladder']}\n" in text
    for row in gpuopt.variants(op):
        assert reference.inline(row["idea"]) in text
    index = (sources / "reference" / "index.rst").read_text(encoding="utf-8")
    assert f":py:func:`~gpuopt.{op}`" in index


def test_docstrings_become_paragraphs_tables_and_code() -> None:
    table = "| a | b |\n| --- | --- |\n| c_ | d |"
    text = f"Takes `x` and *args.\n\n{table}\n\n>>> f(2*x)\n4\n\n    y = 1"
    lines = reference.prose(text.split("\n"))
    assert lines[0] == r"Takes ``x`` and \*args."
    assert "   * - a" in lines and r"   * - c\_" in lines
    assert ">>> f(2*x)" in lines
    assert lines[lines.index("::") + 2] == "    y = 1"
    assert (
        reference.prose(["low, high : of `x`", "    in ms"])[0]
        == "| low, high : of ``x`` in ms"
    )


def test_definitions_are_found_where_they_are() -> None:
    assert reference.definition("gpuopt", "stream").name == "stream"
    assert reference.definition("gpuopt.lab", "KernelFault").name == "KernelFault"
    with pytest.raises(LookupError, match="does not define nothing"):
        reference.definition("gpuopt.lab", "nothing")


# ---- facts ----


def test_each_operator_states_accuracy_and_determinism() -> None:
    text = reference.accuracy()
    for op in gpuopt.ops():
        for word in ("Accuracy", "Determinism"):
            words = reference.stated(op, word)
            assert 15 < len(words) < 2000
            assert reference.inline(words) in text
            assert "Examples" not in words and ">>>" not in words
            assert " ".join(getattr(gpuopt, op).__doc__.split()).count(words) >= 1
    free = [r["name"] for r in gpuopt.variants("dot") if r["determinism"] == "no"]
    assert free
    assert f"from run to run: {', '.join(sorted(set(free)))}." in text


def test_the_roofline_shows_committed_numbers() -> None:
    text, picture = reference.roofline()
    ElementTree.fromstring(picture)
    shown = [line for line in text.splitlines() if "[file](../benchmarks/results/" in line]
    assert len(shown) >= 12
    for line in shown:
        file = re.search(r"\(\.\./(benchmarks/results/[^)]+)\)", line)
        assert file and (ROOT / file[1]).is_file()


# ---- the check of the pages ----

WHOLE = '<html><head></head><body><h1 id="a">x</h1><a href="#a">y</a>%s</body></html>'


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", ""),
        ('<a href="https://example.org">z</a><img src="data:,">', ""),
        ('<a href="other.html#b">z</a>', ""),
        ('<p id="a"></p>', "the id 'a' is not unique"),
        ('<img src="none.png">', "img leads to none.png, which is not there"),
        ('<a href="none.html">z</a>', "a leads to none.html, which is not there"),
        ('<a href="#none">z</a>', "leads to #none, whose id is not there"),
        ('<a href="other.html#c">z</a>', "leads to other.html#c, whose id is not there"),
        ('<script src="https://example.org/x.js"></script>', "loads https://example.org/x.js"),
        ('<aside class="system-message">z</aside>', "1 messages of Sphinx"),
    ],
)
def test_the_check_finds_what_is_wrong(tmp_path: Path, more: str, problem: str) -> None:
    (tmp_path / "page.html").write_text(WHOLE % more, encoding="utf-8")
    (tmp_path / "other.html").write_text('<p id="b">z</p>', encoding="utf-8")
    expected = [f"page.html: {problem}"] if problem else []
    assert check.problems(tmp_path) == expected


def test_a_site_without_pages_is_a_problem(tmp_path: Path) -> None:
    assert check.problems(tmp_path) == [f"{tmp_path} has no pages"]


def test_the_command_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert make.main([]) == 2
    assert "docs/site/make.py FOLDER" in capsys.readouterr().err
