"""The sources of the site in one folder: documents, notebooks, and the files they link to.

The folder is laid out as the repository, so that a link between two documents is the same in
both.  A link to a source file becomes one to a page that shows it, a link to a folder one to
a list of its files; data files come along.  The README is the first page.
Order: which documents, links, pages of what is no document, the folder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# ---- which documents ----

#: The navigation: of each part its title, one sentence, and its documents in order.
PARTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "tutorial": (
        "Tutorial",
        "Notebooks to read from top to bottom, with their outputs. They begin without any "
        "knowledge of CUDA, and a laptop is enough to run them.",
        (
            "examples/your_first_kernel.ipynb",
            "examples/story_reduce.ipynb",
            "examples/story_scan.ipynb",
            "examples/story_causal_conv1d.ipynb",
            "examples/story_training.ipynb",
            "examples/reduce_ladder.ipynb",
            "examples/moving_average.ipynb",
            "examples/weighted_histogram.ipynb",
            "examples/qubit_probabilities.ipynb",
            "examples/train_causal_conv.ipynb",
        ),
    ),
    "howto": (
        "How-to",
        "What to call for a task at hand.",
        (
            "docs/guide.md",
            "docs/torch.md",
            "docs/jax.md",
            "docs/cupy.md",
            "docs/larger_than_memory.md",
            "docs/dask.md",
            "docs/your_own_kernel.md",
            "docs/why_is_it_fast.md",
            "docs/packaging.md",
            "CONTRIBUTING.md",
        ),
    ),
    "reference/index": (
        "Reference",
        "Every public function, made of the tables and texts that the package itself reads.",
        (),  # reference.py knows them
    ),
    "explanation": (
        "Explanation",
        "Why things are as they are.",
        (
            "reference/accuracy.rst",
            "docs/roofline.md",
            "csrc/sim/README.md",
            "docs/call.md",
            "docs/rungs.md",
            "benchmarks/RESULTS.md",
            *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("csrc/ops/*/NOTES.md")),
        ),
    ),
}

#: How a source file is highlighted; a file of another kind is data.
LANGUAGES = {
    ".c": "c",
    ".h": "c",
    ".inc": "c",
    ".def": "c",
    ".cu": "cuda",
    ".cuh": "cuda",
    ".cpp": "c++",
    ".py": "python",
    ".sh": "sh",
}
DOCUMENTS = (".md", ".rst", ".ipynb")


def name_of(file: str) -> str:
    """Return the name of the page of a document, which has no suffix."""
    return "index" if file == "README.md" else str(PurePosixPath(file).with_suffix(""))


# ---- links ----

# Fenced code, code in a line, or the target of a link; the first two are left alone.
LINK = re.compile(
    r"^(`{3,}).*?^\1$|`(?:[^`\n]|\n(?!\s*\n))+`|(?<=\]\()([^)\s]+)(?=\))", re.M | re.S
)


def is_elsewhere(link: str) -> bool:
    """Tell whether a link leaves the repository."""
    return re.match(r"[a-z]+:", link) is not None


def links(text: str) -> Iterator[str]:
    """Yield the targets of the links and pictures of a Markdown text."""
    for found in LINK.finditer(text):
        if found[2]:
            yield found[2]


def landed(page: str, link: str) -> tuple[str, str]:
    """Return the file that a link of a page leads to, '' for the page itself, and '#...'."""
    path, mark, heading = link.partition("#")
    if not path:
        return "", mark + heading
    folder = PurePosixPath(page).parent
    return os.path.normpath(folder / path), mark + heading


def staged(root: Path, file: str) -> str:
    """Return the file of the site that shows a file or folder of the repository."""
    if file == "README.md":
        return "index.md"
    if (root / file).is_dir():
        return f"{file}/index.md"
    if PurePosixPath(file).suffix in LANGUAGES:
        return f"{file}.md"
    return file


def rewritten(root: Path, page: str, text: str) -> tuple[str, list[str]]:
    """Return a Markdown text with links for the site, and the files they lead to."""
    files: list[str] = []
    home = PurePosixPath(staged(root, page)).parent

    def link(found: re.Match[str]) -> str:
        if not found[2] or is_elsewhere(found[2]):
            return found[0]
        file, heading = landed(page, found[2])
        if not file:
            return found[0]
        files.append(file)
        return os.path.relpath(staged(root, file), home) + heading

    return LINK.sub(link, text), files


# ---- pages of what is no document ----

QUIET = "---\norphan: true\nnosearch: true\n---\n"


def source_page(root: Path, file: str) -> str:
    """Return a page that shows a source file."""
    text = (root / file).read_text(encoding="utf-8").rstrip("\n")
    fence = "`" * 6
    language = LANGUAGES[PurePosixPath(file).suffix]
    return f"{QUIET}# {escaped(file)}\n\n{fence}{language}\n{text}\n{fence}\n"


def escaped(name: str) -> str:
    """Return a file's name for a heading or the text of a link."""
    return re.sub(r"([_*\[\]])", r"\\\1", name)


def folder_page(root: Path, folder: str) -> tuple[str, list[str]]:
    """Return a page that lists the files of a folder, and those files."""
    shown = (*LANGUAGES, *DOCUMENTS)
    inside = sorted(p for p in (root / folder).iterdir() if p.suffix in shown)
    files = [path.relative_to(root).as_posix() for path in inside if path.name[0] != "."]
    lines = [f"{QUIET}# {escaped(folder)}\n"]
    for file in files:
        target = os.path.relpath(staged(root, file), folder)
        lines.append(f"- [{escaped(PurePosixPath(file).name)}]({target})")
    return "\n".join(lines) + "\n", files


def part_page(key: str, kept: tuple[str, ...]) -> str:
    """Return the page of a part of the navigation."""
    title, sentence, _ = PARTS[key]
    notes = [file for file in kept if file.endswith("/NOTES.md")]
    first = [file for file in kept if file not in notes]
    trees = contents(first) + (
        contents(notes, "What the rungs of a room taught") if notes else ""
    )
    return f"# {title}\n\n{sentence}\n{trees}"


def contents(files: Sequence[str], caption: str = "") -> str:
    """Return a table of contents in Markdown."""
    names = "\n".join(f"/{name_of(file)}" for file in files)
    options = ":maxdepth: 1" + (f"\n:caption: {caption}" if caption else "")
    return f"\n```{{toctree}}\n{options}\n\n{names}\n```\n"


# ---- the folder ----


class Tree:
    """The folder of the site's sources, written where they have changed.

    Parameters
    ----------
    root : Path
        The repository.
    target : Path
        The folder; what a former run left there and this one does not write is removed.
    """

    def __init__(self, root: Path, target: Path) -> None:
        self.root, self.target = root, target
        self.written: set[str] = set()

    def write(self, file: str, text: str) -> None:
        """Write one file; one with the same text keeps its time."""
        path = self.target / file
        self.written.add(file)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy(self, file: str) -> None:
        """Copy a picture or a data file."""
        self.written.add(file)
        (self.target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.root / file, self.target / file)

    def add(self, file: str, more: str = "") -> list[str]:
        """Write what shows a file or folder; return the files that it links to.

        more : text behind that of a document
        """
        if (self.root / file).is_dir():
            text, files = folder_page(self.root, file)
        elif file.endswith(".ipynb"):
            text, files = self.notebook(file)
        elif file.endswith(".md"):
            text = (self.root / file).read_text(encoding="utf-8") + more
            text, files = rewritten(self.root, file, text)
            if not any(file in kept for _, _, kept in PARTS.values()) and file != "README.md":
                text = QUIET + text
        elif PurePosixPath(file).suffix in LANGUAGES:
            text, files = source_page(self.root, file), []
        else:
            self.copy(file)
            return []
        self.write(staged(self.root, file), text)
        return files

    def notebook(self, file: str) -> tuple[str, list[str]]:
        """Return a notebook with links for the site, and the files they lead to."""
        found: dict[str, Any] = json.loads((self.root / file).read_text(encoding="utf-8"))
        files: list[str] = []
        for cell in found["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                source, linked = rewritten(self.root, file, source)
                files += linked
            cell["source"] = source
        return json.dumps(found, indent=1), files

    def add_all(
        self, extra: dict[str, str], behind: dict[str, str], linked: Sequence[str]
    ) -> None:
        """Write every document with what it links to, and the files `extra`.

        behind : by document, text that the site alone shows behind it
        linked : files that the pages `extra` link to
        """
        for file, text in extra.items():
            self.write(file, text)
        todo = ["README.md", *linked, *(file for _, _, kept in PARTS.values() for file in kept)]
        done = set(extra)
        for key, (_, _, kept) in PARTS.items():
            if kept:
                self.write(f"{key}.md", part_page(key, kept))
        while todo:
            file = todo.pop()
            if file not in done:
                done.add(file)
                todo += self.add(file, behind.get(file, ""))
        self.remove_the_rest()

    def remove_the_rest(self) -> None:
        """Remove the files of a former run."""
        for path in self.target.rglob("*"):
            if path.is_file() and path.relative_to(self.target).as_posix() not in self.written:
                path.unlink()


def front() -> str:
    """Return what stands behind the README on the first page: the navigation."""
    names = "\n".join(PARTS)
    return f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"
