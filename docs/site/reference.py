"""The reference: a page for each ladder's operators and each module, as reStructuredText.

Operators come from the registry, their texts from the C module; Python's functions are read
from their sources, so that torch and Dask need not be there.
Order: docstrings, definitions, items, pages of operators, pages of modules, facts, all pages.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpuopt
from gpuopt import _core

ROOT = Path(__file__).resolve().parents[2]

# ---- docstrings ----

SECTIONED = re.compile(r"^(Parameters|Returns|Raises|Notes|Examples|Attributes)\n-+$", re.M)


def inline(text: str) -> str:
    """Return text whose code is literal and that has no other markup."""
    pieces = re.split(r"``?([^`]+)``?", text)
    return "".join(
        f"``{piece}``" if i % 2 else re.sub(r"([\\*|]|_(?=\W|$))", r"\\\1", piece)
        for i, piece in enumerate(pieces)
    )


def prose(lines: Sequence[str]) -> list[str]:
    """Return paragraphs without sections: examples and tables stay as they are."""
    parts = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    found: list[str] = []
    for part in parts:
        rows = part.split("\n")
        if rows[0].startswith(">>>") or not part.strip():
            found += [*rows, ""]
        elif rows[0].startswith("|"):
            head, _, *rest = ([inline(c) for c in row.strip("| ").split(" | ")] for row in rows)
            found += listing(head, rest)
        elif rows[0].startswith(" "):
            found += [
                "::",
                "",
                *(f"    {row}" for row in textwrap.dedent(part).split("\n")),
                "",
            ]
        elif re.match(r"[\w*, ]+ : ", rows[0]):  # names and what they mean
            joined = re.sub(r"\n +", " ", part).split("\n")
            found += [*(f"| {inline(row)}" for row in joined), ""]
        else:
            found += [*inline(part).split("\n"), ""]
    return found


def sections(text: str) -> list[str]:
    """Return a docstring with numpydoc's sections as reStructuredText."""
    numpydoc = importlib.import_module("numpydoc.docscrape_sphinx")
    doc = numpydoc.SphinxDocString(text, config={"show_class_members": False})
    for name in ("Summary", "Extended Summary", "Notes"):
        doc[name] = prose(doc[name]) if doc[name] else doc[name]
    for name in ("Parameters", "Returns", "Yields", "Raises", "Attributes", "Warns"):
        doc[name] = [
            type(row)(row.name, inline(row.type), prose(row.desc)) for row in doc[name]
        ]
    return str(doc).split("\n")


def body(text: str) -> list[str]:
    """Return a docstring as reStructuredText."""
    text = inspect.cleandoc(text)
    return sections(text) if SECTIONED.search(text) else prose(text.split("\n"))


# ---- definitions ----


class Item(NamedTuple):
    """What a page describes: one name with its signature and text."""

    kind: str  # function, class, method or property
    name: str
    signature: str
    text: str
    members: tuple[Item, ...] = ()


@functools.cache
def parsed(module: str) -> ast.Module:
    """Return the syntax tree of a module of the package."""
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Yield statements, those under `if` (such as TYPE_CHECKING) too."""
    for node in body:
        if isinstance(node, ast.If):
            yield from statements(node.body)
        else:
            yield node


def definition(module: str, name: str) -> ast.stmt:
    """Return where a module's name is defined, there or where it is imported from."""
    for node in statements(parsed(module).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("gpuopt"):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return definition(str(node.module), alias.name)
    raise LookupError(f"{module} does not define {name}")


def public(module: str) -> list[str]:
    """Return the public functions and classes of a module: those that `__all__` names.

    Of a module without one, and of one whose list begins with another (`*ROWS`), also all
    functions and classes of its own without an underscore.
    """
    body = parsed(module).body
    names = [n.name for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    found = [name for name in names if name[0] != "_"]
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            assert isinstance(node.value, ast.List)
            listed = [str(e.value) for e in node.value.elts if isinstance(e, ast.Constant)]
            whole = len(listed) == len(node.value.elts)
            found = listed if whole else [*found, *listed]
    return sorted({name for name in found if is_defined(module, name)}, key=str.lower)


def is_defined(module: str, name: str) -> bool:
    """Tell whether a name is that of a function or class; constants are not shown."""
    try:
        definition(module, name)
    except LookupError:
        return False
    return True


def read(node: ast.stmt, name: str, kind: str = "function") -> Item:
    """Return a definition as an item; of a class with its public methods."""
    text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
    if isinstance(node, ast.FunctionDef):
        args = node.args
        if kind == "method":
            kept = args.posonlyargs or args.args
            del kept[:1]
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        if "property" in marks or any(mark.endswith("cached_property") for mark in marks):
            return Item("property", name, "", text or "")
        back = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return Item(kind, name, f"({ast.unparse(args)}){back}", text or "")
    assert isinstance(node, ast.ClassDef)
    members = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    made = next((read(n, "", "method").signature for n in members if n.name == "__init__"), "")
    shown = [n for n in members if n.name[0] != "_" and ast.get_docstring(n)]
    return Item(
        "class", name, made.replace(" -> None", ""), text or "",
        tuple(read(n, n.name, "method") for n in shown),
    )  # fmt: skip


def compiled(name: str) -> Item:
    """Return a name of the C module as an item."""
    thing = getattr(_core, name)
    if not isinstance(thing, type):
        return Item("function", f"gpuopt.{name}", thing.__text_signature__, thing.__doc__)
    members = []
    for key, value in vars(thing).items():
        if key[0] != "_" and getattr(value, "__doc__", None):
            method = callable(value) or isinstance(value, classmethod | staticmethod)
            own = getattr(value, "__text_signature__", None) or "()" if method else ""
            own = re.sub(r"^\(\$?self(, /)?(, )?", "(", own)
            members.append(Item("method" if method else "property", key, own, value.__doc__))
    made = thing.__text_signature__ or ""
    kind = "exception" if issubclass(thing, BaseException) else "class"
    kept = () if kind == "exception" else tuple(members)
    return Item(kind, f"gpuopt.{name}", made, thing.__doc__ or "", kept)


def item(name: str) -> Item:
    """Return a public name of gpuopt itself as an item."""
    if hasattr(_core, name):
        return compiled(name)
    return read(definition("gpuopt", name), f"gpuopt.{name}")


# ---- items ----


def lines_of(item: Item) -> list[str]:
    """Return an item as a directive of Sphinx's Python domain."""
    inner = body(item.text)
    for member in item.members:
        inner += lines_of(member)
    module, _, name = item.name.rpartition(".")
    head = [f".. py:currentmodule:: {module}", ""] if module else []
    head.append(f".. py:{item.kind}:: {name}{item.signature}")
    return [*head, "", *(f"   {line}".rstrip() for line in inner), ""]


def title(text: str, mark: str = "=") -> list[str]:
    """Return a heading."""
    return [text, mark * len(text), ""]


def page(heading: str, *parts: Sequence[str]) -> str:
    """Return the text of a page."""
    lines = title(heading)
    for part in parts:
        lines += [*part, ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def listing(
    head: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto"
) -> list[str]:
    """Return a table."""
    lines = [".. list-table::", "   :header-rows: 1", f"   :widths: {widths}", ""]
    for row in (head, *rows):
        lines += [f"   {' ' if i else '*'} - {cell}" for i, cell in enumerate(row)]
    return [*lines, ""]


# ---- pages of operators ----


def rooms() -> dict[str, list[str]]:
    """Return the operators of each room, in the order of the registry."""
    found: dict[str, list[str]] = {}
    for op in gpuopt.ops():
        found.setdefault(gpuopt.describe(op)["room"], []).append(op)
    return found


def ladders(ops: Sequence[str]) -> dict[str, str]:
    """Return each ladder of some operators with one of its operators."""
    found: dict[str, str] = {}
    for op in ops:
        found.setdefault(gpuopt.describe(op)["ladder"], op)
    return found


def variants(op: str, link: Callable[[str], str]) -> list[str]:
    """Return the table of an operator's variants; those of the simulator are CUDA's."""
    rows = [row for row in gpuopt.variants(op) if row["backend"] != "cuda"]
    return listing(
        ("backend", "variant", "idea", "bits", "needs"),
        (
            (
                {"sim": "cuda"}.get(row["backend"], row["backend"]),
                link(row["source"]).format(row["name"]),
                inline(row["idea"] + (f" ({row['shape']})" if row["shape"] else "")),
                "may differ" if row["determinism"] == "no" else "the same each run",
                row["needs"],
            )
            for row in rows
        ),
        "8 14 50 18 10",
    )


def operators(room: str, ops: Sequence[str], link: Callable[[str], str]) -> str:
    """Return the page of a room."""
    parts = [line for op in ops for line in lines_of(compiled(op))]
    tables: list[str] = []
    for ladder, op in ladders(ops).items():
        tables += [*title(f"Variants of {ladder}", "-"), *variants(op, link)]
    return page(room, parts, tables)


# ---- pages of modules ----

#: The names of gpuopt that are not operators, by page.
CORE = {
    "calls": (
        "Calls and choices",
        ("explain", "plan", "variants", "source", "profile", "last_call", "measure_calls",
         "describe", "ops", "info"),
    ),
    "device": (
        "Devices and backends",
        ("use", "UsedBackend", "backends", "default_backend", "cuda_unavailable_reason",
         "device_count", "DeviceArray", "asdevice", "empty_pinned", "Stream", "Event",
         "synchronize", "memory_info", "empty_cache", "cpu_isa", "get_num_threads",
         "set_num_threads"),
    ),
    "errors": (
        "Errors and warnings",
        ("VariantError", "OutOfMemoryError", "CudaError", "ContextDeadError",
         "SimulatorError", "PerformanceWarning"),
    ),
    "stream": ("gpuopt.stream", ("stream", "Report")),
}  # fmt: skip

#: Modules of their own pages: the shown name, and where its names are.
MODULES = {
    "chunks": (("gpuopt.chunks", "gpuopt.chunks"),),
    "dask": (("gpuopt.dask", "gpuopt.dask"),),
    "torch": (
        ("gpuopt.torch", "gpuopt.torch.functions"),
        ("gpuopt.torch", "gpuopt.torch.modules"),
        ("gpuopt.torch.parallel", "gpuopt.torch.parallel"),
    ),
    "lab": (
        ("gpuopt.lab", "gpuopt.lab"),
        *((f"gpuopt.lab.{name}",) * 2
          for name in ("bench", "profile", "puzzles", "report", "sweep", "timer", "trace")),
    ),
}  # fmt: skip


def module_page(name: str) -> str:
    """Return the page of a module; its docstring comes first."""
    parts: list[list[str]] = []
    before: list[str] = []
    for shown, module in MODULES[name]:
        if shown not in before:
            parts.append(title(shown, "-") if before else [])
            parts.append(prose((ast.get_docstring(parsed(shown)) or "").split("\n")))
            before.append(shown)
        for own in public(module):
            parts.append(lines_of(read(definition(module, own), f"{shown}.{own}")))
    if name == "dask":
        parts.append(elementwise_of_dask())
    return page(f"gpuopt.{name}", *parts)


def elementwise_of_dask() -> list[str]:
    """Return what stands for the functions that gpuopt.dask makes of a table."""
    ops = rooms()["elementwise"]
    names = ", ".join(f":py:func:`gpuopt.{op}`" for op in ops)
    words = (
        "On Dask arrays, arrays in memory and numbers, which broadcast; chunks are made alike: "
    )
    return [*title("Elementwise", "-"), f"{words}{names}.", ""]


def command_line() -> str:
    """Return the page of `python -m gpuopt`, as it describes itself."""
    parts = []
    for words in ([], *([c] for c in ("demo", "info", "variants", "bench", "test", "report"))):
        done = subprocess.run(
            [sys.executable, "-m", "gpuopt", *words, "--help"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "COLUMNS": "88"}, cwd=ROOT,
        )  # fmt: skip
        usage = [f"   {line}".rstrip() for line in done.stdout.strip().split("\n")]
        head = " ".join(["python -m gpuopt", *words])
        parts.append([*(title(head, "-") if words else []), ".. code-block:: text", "", *usage])
    return page("Command line", *parts)


# ---- facts ----


def stated(op: str, word: str) -> str:
    """Return what an operator's text says of its accuracy or determinism."""
    text = re.split(r"\nExamples\n-+\n", getattr(gpuopt, op).__doc__)[0]
    found = re.search(rf"(?:^|\s){word}: (.+?)(?=\n\n|\s\w+ity: |\s\w+ism: |\Z)", text, re.S)
    assert found, f"help(gpuopt.{op}) says nothing of {word}"
    return " ".join(found[1].split())


def facts(room: str, ops: Sequence[str]) -> list[str]:
    """Return what the operators of a room promise, where they say the same once."""
    lines = title(room, "-")
    for word in ("Accuracy", "Determinism"):
        by_words: dict[str, list[str]] = {}
        for op in ops:
            by_words.setdefault(stated(op, word), []).append(op)
        for words, kept in by_words.items():
            names = "" if len(kept) == len(ops) else f" ({', '.join(kept)})"
            lines += [f"**{word}**{names}: {inline(words)}", ""]
    free = {
        row["name"]
        for op in ladders(ops).values()
        for row in gpuopt.variants(op)
        if row["determinism"] == "no"
    }
    if free:
        lines += [
            f"Variants whose bits may differ from run to run: {', '.join(sorted(free))}.",
            "",
        ]
    return lines


def accuracy() -> str:
    """Return the page of what every operator promises."""
    words = (
        "What each operator's text promises, and what its variants declare; tests hold both. "
        'A variant is deterministic "run to run" if the same call gives the same bits on the '
        "same device, for any number of threads. Different variants may differ within the "
        "bound; ``variant=`` picks one for good."
    )
    every = [
        row for op in gpuopt.ops() for row in gpuopt.variants(op) if row["backend"] != "cuda"
    ]
    kept = {(r["source"], r["name"], r["backend"]): r["determinism"] for r in every}
    firm = sum(value != "no" for value in kept.values())
    count = f"{firm} of {len(kept)} variants are deterministic run to run."
    parts = [facts(room, ops) for room, ops in rooms().items()]
    return page("Accuracy and determinism", [words, "", count, ""], *parts)


def roofline() -> tuple[str, str]:
    """Return what stands behind docs/roofline.md on the site, and its picture as SVG.

    Both are made of the committed results.
    """
    report = importlib.import_module("gpuopt.lab.report")
    published = importlib.import_module("gpuopt.lab.published")
    runs = [run for run in published.load() if run["backend"] == "cuda"]
    device = runs[0]["device"]
    first: dict[str, Any] = {}
    for where, row in published.choices(runs):
        work = published.FIRST.get(row["op"], (row["workload"], row["dtype"]))
        if where["device"] == device and work == (row["workload"], row["dtype"]):
            first.setdefault(row["op"], {**row, "file": where["file"]})
    drawn = report.roofline(device, runs[0]["ceilings"], list(first.values()))
    lines = ["", f"## Measured on an {device.removeprefix('NVIDIA ')}", ""]
    lines += ["![Gop/s over the operations per byte](roofline.svg)", ""]
    lines += ["| operator | workload | ms | least ms | % | data |", "| --- " * 6 + "|"]
    for op, row in first.items():
        least = row["floor_ms"]
        cells = (op, f"{row['workload']} {row['dtype']}", f"{row['ms']:.4g}",
                 f"{least:.4g}", f"{100 * least / row['ms']:.0f}",
                 f"[file](../{row['file']})")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n", drawn


# ---- all pages ----


def pages(link: Callable[[str], str]) -> dict[str, str]:
    """Return the text of each page by its file.

    link : makes the markup of a link to a source file, with {} for the text
    """
    found = {
        f"reference/{room}.rst": operators(room, ops, link) for room, ops in rooms().items()
    }
    for name, (heading, names) in CORE.items():
        parts = [lines_of(item(own)) for own in names]
        found[f"reference/{name}.rst"] = page(heading, *parts)
    found |= {f"reference/{name}.rst": module_page(name) for name in MODULES}
    found["reference/command_line.rst"] = command_line()
    rows = (
        (f":py:func:`~gpuopt.{op}`", inline(getattr(gpuopt, op).__doc__.partition("\n")[0]))
        for op in gpuopt.ops()
    )
    trees = []
    for caption, names in (
        ("Operators", rooms()),
        ("gpuopt", (*CORE, "chunks")),
        ("With other libraries", ("torch", "dask")),
        ("Experiments", ("lab", "command_line")),
    ):
        trees += [".. toctree::", "   :maxdepth: 1", f"   :caption: {caption}", ""]
        trees += [*(f"   {name}" for name in names), ""]
    listed = listing(("operator", "what it does"), rows, "30 70")
    found["reference/index.rst"] = page("Reference", trees, title("All operators", "-"), listed)
    found["reference/accuracy.rst"] = accuracy()
    return found
