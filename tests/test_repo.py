"""The tree itself: which file may know which, complete rooms, fresh generated files.

Order: which part includes which, the files of bind, imports, rooms, every file, the words of
CONTRIBUTING, generated files, packaging.  These tests read the checkout that this file is
in, not the installed package.
"""

from __future__ import annotations

import ast
import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import ENTRIES
from conftest import ROOT, run_child

import gpuopt
from gpuopt import _core, ref

CSRC = ROOT / "csrc"
HOST = (".c", ".h", ".inc", ".def")
DEVICE = (".cu", ".cuh")


def tracked() -> list[Path]:
    """The files of the tree: git's list, or without git all but what builds leave."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode == 0:
        names = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    else:
        skip = re.compile(
            r"(^|/)(\.venv(-torch)?|build|dist|__pycache__|\.[a-z]+_cache|.*\.egg-info)/"
        )
        names = [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not skip.search(path.relative_to(ROOT).as_posix())
        ]
    return sorted(path for path in names if path.is_file())


FILES = tracked()


def below(folder: Path, *suffixes: str) -> list[Path]:
    return [f for f in FILES if folder in f.parents and f.suffix in suffixes]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ---- direction of knowledge ----


def includes(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if match:
            yield match[1] + match[2]


def part(path: Path) -> str:
    """'core', 'bind', ..., or for a room 'ops/<room>'."""
    pieces = path.resolve().relative_to(CSRC.resolve()).parts
    return "/".join(pieces[:2]) if pieces[0] == "ops" and len(pieces) > 2 else pieces[0]


# What each part may include besides itself.
MAY_INCLUDE = {
    "core": set(),
    "bind": {"core", "backend", "ops"},
    "backend": {"core", "ops"},
    "device": {"core"},
    "sim": {"core", "backend", "device", "ops"},
    "ops": {"core", "backend", "device"},
}


# Made in the build folder, by _build/documentation.py, for one file of bind.
GENERATED = {"docs.h": CSRC / "bind" / "module.c"}

# The simulator's border, and its stand-ins for CUDA's own headers: a kernel file reaches
# them through device/ alone, when a host compiler reads it.
SIM_BORDER = {
    "backend": ("sim/library.h",),
    "device": (
        "sim/cuda_sim.h",
        "sim/wgmma_sim.h",
        "sim/wgmma_tf32_sim.h",
        "sim/hopper_sim.h",
    ),
}


def allowed(source: str, target: str, text: str) -> bool:
    if source == target:
        return True
    if target == "sim":
        return text.endswith(SIM_BORDER.get(source, ()))
    if source == "ops":  # ops.def reads a room's own list of functions
        return text.endswith(".def")
    if target == "ops":  # ops.def is the list of names, not a room
        return text.endswith("ops.def") and "ops" in MAY_INCLUDE[source.split("/")[0]]
    return target in MAY_INCLUDE[source.split("/")[0]]


@pytest.mark.parametrize("path", below(CSRC, *HOST, *DEVICE, ".cpp"), ids=name_of)
def test_direction_of_knowledge(path: Path) -> None:
    source = part(path)
    for text in includes(path):
        if text == "<Python.h>" or "numpy/" in text:
            assert source == "bind", f"{name_of(path)} knows Python"
        if text[1:] in GENERATED:
            assert path == GENERATED[text[1:]]
        elif text.startswith('"'):
            target = (path.parent / text[1:]).resolve()
            assert target.is_file(), f"{name_of(path)} includes {text[1:]}, which is not there"
            assert CSRC.resolve() in target.parents, f"{name_of(path)} leaves csrc"
            assert allowed(source, part(target), text), f"{name_of(path)} includes {text[1:]}"
        if source in ("core", "bind") or (source == "ops" and path.suffix in HOST):
            assert "cuda" not in text, f"{name_of(path)} includes {text}"


def test_the_include_check_sees_a_wrong_include() -> None:
    assert allowed("ops/reduce", "core", '"../../core/gpo.h')
    assert not allowed("ops/reduce", "ops/scan", '"../scan/scan.h')
    assert not allowed("ops/reduce", "bind", '"../../bind/bind.h')
    assert not allowed("core", "backend", '"../backend/backend.h')
    assert not allowed("backend", "bind", '"../bind/bind.h')
    assert allowed("bind", "ops", '"../ops/ops.def')
    assert not allowed("bind", "ops/reduce", '"../ops/reduce/reduce.h')
    assert not allowed("core", "ops", '"../ops/ops.def')
    assert not allowed("ops/reduce", "sim", '"../../sim/cuda_sim.h')
    assert allowed("device", "sim", '"../sim/cuda_sim.h')


@pytest.mark.parametrize("path", below(CSRC, *HOST, *DEVICE, ".cpp"), ids=name_of)
def test_assembly_stays_in_its_headers(path: Path) -> None:
    """PTX in one header, tf32 and what few kernels need in others; host assembly elsewhere."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.S)
    text = text.replace('__asm__("" :', "")  # a barrier for the optimiser, no instruction
    if re.search(r"\basm\b|\b__asm__\b", text):
        names = ("ptx", "tf32", "wgmma", "hopper", "follow")
        headers = [f"csrc/device/{name}.cuh" for name in names]
        assert part(path) in ("sim", "backend") or name_of(path) in headers


# ---- the files of bind ----


def code(path: Path) -> str:
    """A C file without comments, strings and line continuations."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)
    return text.replace("\\\n", "\n")


def owned(text: str) -> set[str]:
    """The public functions and objects that a C file defines."""
    functions = re.findall(r"^(gpo_\w+)\(", text, re.M)  # a name begins its line
    objects = re.findall(
        r"^(?!extern|static|typedef)\w[\w *]*[ *](gpo_\w+)(?:\[\w*\])?(?:;| = )", text, re.M
    )
    return {*functions, *objects}


def uses(files: dict[str, str]) -> dict[str, set[str]]:
    """For each file those whose functions or objects it names."""
    owner = {name: file for file, text in files.items() for name in owned(text)}
    return {
        file: {owner[word] for word in re.findall(r"\bgpo_\w+", text) if word in owner} - {file}
        for file, text in files.items()
    }


def circles(graph: dict[str, set[str]]) -> set[str]:
    """The files that use themselves by way of others."""
    found = set()
    for start in graph:
        reached: set[str] = set()
        todo = [start]
        while todo:
            fresh = graph[todo.pop()] - reached
            reached |= fresh
            todo += fresh
        if start in reached:
            found.add(start)
    return found


def test_no_circle_among_the_files_of_bind() -> None:
    graph = uses({f.name: code(f) for f in below(CSRC / "bind", ".c")})
    assert "call.c" in graph["module.c"]
    assert "objects.c" in graph["errors.c"]
    assert circles(graph) == set()


def test_the_circle_check_sees_one() -> None:
    a = "int\ngpo_a(void)\n{\n    return gpo_b;\n}\n"
    b, c = "int gpo_b = 1;\n{gpo_c()}", "int\ngpo_c(void)\n{\n    gpo_a();\n}\n"
    assert circles(uses({"a": a, "b": b, "c": c})) == {"a", "b", "c"}
    assert circles(uses({"a": a, "b": b})) == set()


def test_the_story_of_a_call_is_short() -> None:
    assert len((CSRC / "bind" / "call.c").read_text(encoding="utf-8").splitlines()) < 300


def test_only_pick_tells_placements_apart() -> None:
    for path in below(CSRC / "bind", ".c"):
        named = set(re.findall(r"&gpo_place_\w+", code(path)))
        assert not named or path.name == "call.c", f"{path.name} names {named}"


def defines(path: Path, name: str) -> bool:
    """Whether a C or CUDA file defines the function, or the struct of a launcher."""
    text = code(path).replace("##name", "reduce")
    function = rf"^[ \t]*(?:\w[\w \t*<>]*[ *])?{name}\([^;{{}}]*\)\s*\{{"
    return bool(re.search(rf"{function}|^struct {name} \{{", text, re.M))


def test_the_life_of_a_call_names_what_is_there() -> None:
    text = (ROOT / "docs" / "call.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [\w ]+ \| \[[^]]+\]\(\.\./([^)]+)\) \| `(\w+)` \|", text, re.M)
    assert len(rows) == 24
    for file, name in rows:
        if file.endswith(".py"):
            assert getattr(gpuopt, name) is getattr(_core, name)
        else:
            assert defines(ROOT / file, name), f"{file} has no {name}"
    assert not defines(CSRC / "bind" / "call.c", "gpo_choose_variant")  # called there


def test_rungs_read_by_a_stranger_keep_their_ideas() -> None:
    text = (ROOT / "docs" / "rungs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (csrc/\S+) \| .+ \| `(\w+)` (v\d+): (.+) \|$", text, re.M)
    assert len(rows) == 10
    for file, op, name, idea in rows:
        assert (ROOT / file).name.removeprefix("backward_").startswith(f"{name}_")
        assert {v["idea"] for v in gpuopt.variants(op) if v["name"] == name} == {idea}


# ---- imports of the Python files ----


def module_of(path: Path) -> str:
    """The name a module is imported by: benchmarks/ is gpuopt.benchmarks, too."""
    pieces = path.relative_to(ROOT).with_suffix("").parts
    pieces = ("gpuopt", *pieces) if pieces[0] == "benchmarks" else pieces
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


def imported(module: str, text: str, known: set[str]) -> set[str]:
    """Those of the known modules that a module imports, inside of functions too.

    A name imported from a package counts as a module if it is one; what importlib looks up
    by name (the workloads, the peers) does not count.
    """
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} has a relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name in known else str(node.module) for name in full]
    return {name for name in names if name in known} - {module}


def test_no_circle_among_the_python_modules() -> None:
    files = [f for part in ("gpuopt", "benchmarks") for f in below(ROOT / part, ".py")]
    texts = {module_of(f): f.read_text(encoding="utf-8") for f in files}
    known = {*texts, "gpuopt._core"}
    graph = {module: imported(module, text, known) for module, text in texts.items()}
    graph["gpuopt._core"] = set()
    assert "gpuopt.lab.profile" in graph["gpuopt._introspect"]  # inside of a function
    assert "gpuopt.lab.timer" in graph["gpuopt.lab.ceilings"]
    assert circles(graph) == set()


def test_the_import_check_sees_a_circle() -> None:
    known = {"a", "p", "p.b", "p.c"}
    texts = {"a": "from p import b", "p.b": "import p.c, os", "p.c": "def f():\n    import a"}
    graph = {name: imported(name, text, known) for name, text in texts.items()}
    assert graph == {"a": {"p.b"}, "p.b": {"p.c"}, "p.c": {"a"}}
    assert circles(graph) == {"a", "p.b", "p.c"}


# ---- rooms ----

ROOMS = sorted(f.parent for f in FILES if f.parent.parent == CSRC / "ops" and f.name == "op.c")


def members(room: Path) -> list[str]:
    """The operators of a room."""
    return [op for op in _core.ops() if _core.describe(op)["room"] == room.name]


def test_ops_def_lists_the_rooms() -> None:
    assert sorted({_core.describe(op)["room"] for op in _core.ops()}) == [
        room.name for room in ROOMS
    ]
    assert len(_core.ops()) == len(set(_core.ops()))


@pytest.mark.parametrize("room", ROOMS, ids=lambda r: r.name)
def test_room_is_complete(room: Path) -> None:
    for file in ("op.c", "cpu.c", "cuda.cu", "NOTES.md"):
        assert (room / file).is_file(), f"{name_of(room)} lacks {file}"
    for op in members(room):
        assert callable(getattr(ref, op, None))
        assert op in ref.__all__
        assert op in ENTRIES
    assert (ROOT / "tests" / "ops" / f"test_{room.name}.py").is_file()
    workloads = [
        f
        for f in below(ROOT / "benchmarks", ".py", ".tsv", ".json", ".toml")
        if "results" not in f.parts and room.name in f.read_text(encoding="utf-8")
    ]
    assert workloads, f"no benchmark names {room.name}"


@pytest.mark.parametrize("room", ROOMS, ids=lambda r: r.name)
def test_a_room_documents_its_operators_in_texts(room: Path) -> None:
    """doc.txt for one operator, doc/ for several; each part of doc/shared.txt is used."""
    ops = members(room)
    if len(ops) == 1:
        assert (room / "doc.txt").is_file()
        assert not (room / "doc").exists()
        return
    texts = {f.stem: f.read_text(encoding="ascii") for f in (room / "doc").glob("*.txt")}
    shared = texts.pop("shared", "")
    assert sorted(texts) == sorted(ops)
    wanted = re.findall(r"^\{(\w+)\}$", "\n".join(texts.values()), re.M)
    named = re.findall(r"^\[(\w+)\]$", shared, re.M)
    assert sorted(named) == sorted(set(wanted))


def stubs(source: str) -> list[str]:
    """The string literals of at most 14 characters that a text of several is cut into."""
    token = r"/\*.*?\*/|'(?:\\.|[^'\\])+'|" + r'"((?:\\.|[^"\\\n])*)"'
    literals = [found for found in re.finditer(token, source, re.S) if found[1] is not None]
    return [
        piece[1]
        for a, b in itertools.pairwise(literals)
        if not source[a.end() : b.start()].strip(" \\\n")
        for piece in (a, b)
        if len(piece[1]) <= 14
    ]


def test_no_text_in_c_is_cut_into_stubs() -> None:
    """Long ones stand in doc.txt, which clang-format leaves alone."""
    for path in below(CSRC / "ops", ".c"):
        assert stubs(path.read_text(encoding="utf-8")) == [], name_of(path)
    assert stubs('f("a long text, broken off\\n"\n  "here", \'"\', "x", "y");') == ["here"]
    assert stubs('"short "  \\\n "and then the rest" /* "x" "y" */') == ["short "]


def rung_of(file: Path) -> int:
    """The number of a ladder's file: 3 of v3_add_on_load.cuh, 0 of backward_v0_input.cuh."""
    found = re.match(r"(?:[a-z]\w*_)?v(\d+)_", file.name)
    assert found, f"{name_of(file)} is not named as a rung"
    return int(found[1])


def ladders(room: Path) -> dict[str, str]:
    """Of each ladder of a room an operator, by what its files begin with: "", "backward_"."""
    found: dict[str, str] = {}
    for op in members(room):
        part = _core.describe(op)["ladder"].removeprefix(room.name).removeprefix("_")
        found.setdefault(f"{part}_" if part else "", op)
    return found


@pytest.mark.parametrize("room", ROOMS, ids=lambda r: r.name)
def test_every_rung_tells_its_story(room: Path) -> None:
    """A comment that opens with its name and says Was, Now, Cost and Left, in order."""
    for begin, op in ladders(room).items():
        ladder, whole = room / "ladder", room / f"{begin.rstrip('_')}.cuh"
        files = sorted(ladder.glob(f"{begin}v*.cu*"), key=rung_of)
        if not files and not whole.is_file():  # two ladders that share their files
            files = sorted(ladder.glob("v*.cu*"), key=rung_of)
        rungs = list(dict.fromkeys(f"v{rung_of(file)}" for file in files))
        if not files:  # a ladder in one file
            files = [whole if whole.is_file() else room / "cuda.cu"]
            table = files[0].read_text(encoding="utf-8")
            rungs = list(dict.fromkeys(re.findall(r'gpo_row<\w+>\(\s*"(v\d+)"', table)))
        assert rungs == [f"v{k}" for k in range(len(rungs))]
        assert rungs
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        for rung in rungs:
            comment = re.search(rf"^/\*\n \* {rung}  .*?\*/", text, re.M | re.S)
            assert comment, f"{op} {rung} has no comment that opens with its name"
            words = re.findall(r"^ \* (Was|Now|Cost|Left):", comment[0], re.M)
            first = rung == "v0"  # nothing was before the first rung
            assert words in (
                ["Was", "Now", "Cost", "Left"],
                ["Now", "Cost", "Left"] if first else [],
            ), f"{op} {rung}: {words}"
        rows = [r for r in _core.variants(op) if r["backend"] in ("cuda", "sim")]
        assert {r["name"] for r in rows if not r["shape"]} <= set(rungs)
        for row in rows:
            shown = gpuopt.source(op, row["name"])
            shape = rf"(?:{begin})?{row['name']}\.cuh?"
            opens = shape if row["shape"] else row["name"]
            assert re.match(rf"/\*\n \* {opens}  ", shown)
            assert "__global__" in shown or "template" in shown


@pytest.mark.parametrize("file", sorted((CSRC / "ops").glob("*/ladder/*")), ids=name_of)
def test_a_rung_of_its_own_file_is_a_page_with_a_kernel(file: Path) -> None:
    rung = rung_of(file)
    text = file.read_text(encoding="utf-8")
    assert file.suffix in (".cu", ".cuh")
    assert len(text.splitlines()) <= 200
    kernel = rf"__global__ void\s*(?:__launch_bounds__\([^;{{]*?\))?\s*\w*{file.stem}\("
    assert re.search(kernel, text), f"no kernel is named after v{rung} and its idea"


ABOUT_1000 = 1250


def test_room_files_are_short() -> None:
    for path in below(CSRC / "ops", *HOST, *DEVICE):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        assert lines <= ABOUT_1000, f"{name_of(path)} has {lines} lines"


# ---- every file ----


@pytest.mark.parametrize("path", below(CSRC, *HOST, *DEVICE, ".cpp"), ids=name_of)
def test_c_file_opens_by_saying_what_lives_there(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "/*", "the first line opens a comment"
    end = lines.index(" */") if " */" in lines else 0
    assert 2 <= end <= 30, "the first comment has one line or more, and ends"
    opens = f"v{rung_of(path)}" if path.parent.name == "ladder" else path.name
    assert re.match(rf" \* {re.escape(opens)}  \S", lines[1]), "it begins with the name"
    if path.suffix in (".h", ".cuh"):
        guard = re.compile(rf"#ifndef GPO_(\w+_)?{path.stem.upper()}_(H|CUH)$")
        assert any(guard.match(line) for line in lines) or path.name == "gpo.h"


PYTHON = [f for f in FILES if f.suffix == ".py"]


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_python_file_opens_with_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = text.removeprefix("#!/usr/bin/env python3\n")
    assert text.startswith('"""'), f"{name_of(path)} does not say what lives in it"


def test_no_path_of_a_build_machine() -> None:
    own = re.compile(r"(^|[^.\w/])/(work|farm)/")
    assert own.search("see /" + "work/x")
    for path in FILES:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            assert not own.search(line), f"{name_of(path)}:{number}"


def test_sources_are_ascii_and_tidy() -> None:
    for path in FILES:
        if path.suffix in (*HOST, *DEVICE, ".py", ".pyi", ".toml", ".cpp"):
            text = path.read_text(encoding="utf-8")
            assert "\t" not in text, f"{name_of(path)} has a tab"
            assert text.endswith("\n") or not text, f"{name_of(path)} has no last newline"
            assert "\r" not in text
            assert not re.search(r"[ ]+$", text, re.M), f"{name_of(path)} has trailing blanks"


def test_todo_carries_its_condition() -> None:
    for path in FILES:
        if path.suffix in (*HOST, *DEVICE, ".py", ".cpp") and path != Path(__file__):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if re.search(r"\bTODO\b", line):
                    assert re.search(r"TODO\(.+\)", line), f"{name_of(path)}:{number}"


# ---- the words of CONTRIBUTING ----


def glossary() -> list[tuple[str, str]]:
    """Word and place of each row."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Words\n")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:2] == "| "]
    assert rows[0] == ["word", "meaning", "defined in"]
    assert all(len(row) == 3 for row in rows), "a row has three columns"
    return [(word, place) for word, _, place in rows[1:]]


def test_the_words_are_one_page() -> None:
    words = [word for word, _ in glossary()]
    assert 25 <= len(words) == len(set(words)) <= 36


@pytest.mark.parametrize(("word", "place"), glossary())
def test_each_word_is_defined_where_its_row_says(word: str, place: str) -> None:
    """The place is a file or folder, or a file and a name that stands in it."""
    found = re.fullmatch(r"`([\w./]+)`(?: `(\w+)`)?", place)
    assert found, f"{word}: {place}"
    assert (ROOT / found[1]).exists(), f"{word}: there is no {found[1]}"
    if found[2]:
        text = (ROOT / found[1]).read_text(encoding="utf-8")
        assert re.search(rf"\b{found[2]}\b", text), f"{word}: {found[1]} has no {found[2]}"


# ---- generated files ----


def test_stubs_are_fresh() -> None:
    assert (ROOT / "gpuopt" / "_core.pyi").is_file()
    done = run_child("-m", "gpuopt._stubs", "--check", str(ROOT / "gpuopt" / "_core.pyi"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_describe_the_module() -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.fail("mypy is part of the test requirements")
    done = run_child("-m", "mypy.stubtest", "gpuopt._core")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["readme", "pictures"])
def test_tables_and_pictures_are_fresh(command: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{command}.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_is_short() -> None:
    words = (ROOT / "README.md").read_text(encoding="utf-8").split()
    assert len(words) <= 900, f"README has {len(words)} words; docs/guide.md has room"


# ---- packaging ----


def test_makefile_has_the_targets_the_texts_name() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.M))
    assert targets >= {
        *("help", "demo", "test", "test-gpu", "bench", "wheel", "lint", "format", "stubs"),
        *("readme", "sanitize", "clean"),
    }
    for text in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"`make ([a-z][\w-]*)", (ROOT / text).read_text(encoding="utf-8"))
        assert set(named) <= targets, f"{text} names {set(named) - targets}"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
    for target in targets:  # `make help` is printed from these
        if not target.startswith("_"):
            assert re.search(rf"^{target}:.*## \S", makefile, re.M), f"{target} has no ##"


def test_version_is_one() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    version = re.search(r'^VERSION = "([^"]+)"', setup, re.M)
    assert version
    assert gpuopt.__version__ == version[1] == _core.build_info()["version"]
    assert version[1] in changelog


def test_setup_lists_every_folder_of_the_package() -> None:
    """Folders of data alone as well: setuptools warns at length of one that is missing."""
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    listed = re.search(r"packages=\[(.*?)\]", setup, re.S)
    assert listed
    folders = {
        f.parent for part in ("gpuopt", "benchmarks") for f in FILES if ROOT / part in f.parents
    }
    names = {".".join(f.relative_to(ROOT).parts) for f in folders}
    whole = {name if name.startswith("gpuopt") else f"gpuopt.{name}" for name in names}
    assert set(re.findall(r'"([\w.]+)"', listed[1])) == whole


def test_numpy_is_the_only_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [re.match(r"[\w-]+", d)[0] for d in project["dependencies"]] == ["numpy"]  # type: ignore[index]


def test_every_source_is_in_the_sdist() -> None:
    """MANIFEST.in names every suffix under csrc, _build and tests."""
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    for path in below(CSRC, *HOST, *DEVICE, ".cpp", ".txt"):
        assert f"*{path.suffix}" in manifest or "graft csrc" in manifest, name_of(path)
    assert "_build" in manifest
