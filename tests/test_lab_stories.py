"""The notebooks with outputs show what the code of this commit prints.

The simulator counts what the compiler leaves of the source: after a build with another
compiler than that of the outputs, numbers may differ and are not compared.
"""

import json
import re

import pytest
import stories

from gpuopt.lab import host_compiler

for module in ("nbclient", "nbformat", "ipykernel", "matplotlib"):
    pytest.importorskip(module)


def committed(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_there_are_stories():
    names = {path.stem for path in stories.STORIES}
    assert {"story_reduce", "story_scan", "story_causal_conv1d"} <= names


@pytest.mark.parametrize("path", stories.STORIES, ids=lambda path: path.stem)
def test_a_story_prints_what_it_shows(path):
    if host_compiler.unavailable() and "lab.kernel(" in path.read_text(encoding="utf-8"):
        pytest.skip("no C++ compiler")
    old = committed(path)
    assert any(
        "image/png" in output.get("data", {})
        for cell in old["cells"]
        for output in cell.get("outputs", ())
    )
    shown, found = stories.texts(old), stories.texts(stories.executed(path))
    if old["metadata"]["gpuopt"]["compiler"] != stories.compiler():
        shown, found = without_numbers(shown), without_numbers(found)
    assert found == shown, "python tests/stories.py rewrites them"


def without_numbers(cells):
    return [[re.sub(r"[\s-]*\d[\d,.]*%?", "#", text) for text in parts] for parts in cells]


def test_a_stale_output_is_noticed():
    old = committed(stories.STORIES[0])
    cell = next(c for c in old["cells"] if c.get("outputs"))
    before = stories.texts(old)
    cell["outputs"][0] = {"output_type": "stream", "name": "stdout", "text": ["other"]}
    assert stories.texts(old) != before
