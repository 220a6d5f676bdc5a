"""The notebooks that are committed with their outputs, examples/story_*.ipynb.

`python tests/stories.py` runs them and rewrites the outputs; test_lab_stories.py runs them
and compares the text.  Order: where they are, running, what is kept of an output.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import gpuopt

ROOT = Path(__file__).resolve().parents[1]
STORIES = sorted((ROOT / "examples").glob("story_*.ipynb"))
SECONDS = 300  # for a cell; a story takes some seconds


def executed(path: Path) -> dict[str, Any]:
    """The notebook after a run in a kernel that imports the gpuopt of this process."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    package = str(Path(gpuopt.__file__).resolve().parents[1])
    inline = "module://matplotlib_inline.backend_inline"
    environment = {**os.environ, "PYTHONPATH": package, "MPLBACKEND": inline}
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", record_timing=False
    )
    client.execute(env=environment)
    found: dict[str, Any] = json.loads(nbformat.writes(notebook))
    return cleaned(found)


def compiler() -> str:
    """What compiled the simulator, on which its counts may depend."""
    return str(gpuopt.info()["compiler"])


def cleaned(notebook: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run; streams in one piece."""
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "gpuopt": {"compiler": compiler()},
    }
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        joined: list[dict[str, Any]] = []
        for output in cell.get("outputs", []):
            if joined and "name" in output and output["name"] == joined[-1].get("name"):
                joined[-1]["text"] = [*joined[-1]["text"], *output["text"]]
            else:
                joined.append(output)
        if "outputs" in cell:
            cell["outputs"] = joined
    return notebook


def texts(notebook: dict[str, Any]) -> list[list[str]]:
    """The text of each output, by code cell."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parts = []
            for output in cell["outputs"]:
                text = output.get("text") or output.get("data", {}).get("text/plain", "")
                parts.append("".join(text))
            found.append(parts)
    return found


def main() -> int:
    """Run every story and write its outputs."""
    for path in STORIES:
        text = json.dumps(executed(path), indent=1, sort_keys=True, ensure_ascii=True)
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text) >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
