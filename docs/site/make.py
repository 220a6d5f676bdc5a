"""`python docs/site/make.py FOLDER`: the documentation site, without a warning.

It collects the sources (tree.py, reference.py) in FOLDER-sources, runs Sphinx over them with
warnings as errors, and checks the pages (check.py).  `make docs` sets up what it needs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath

import check
import reference
import tree


def link_from_reference(linked: set[str]) -> reference.Callable[[str], str]:
    """Return a function that makes links to source files, and notes them in `linked`."""

    def link(file: str) -> str:
        if PurePosixPath(file).suffix not in tree.LANGUAGES:
            return "{}"
        linked.add(file)
        return f":doc:`{{}} </{tree.name_of(tree.staged(tree.ROOT, file))}>`"

    return link


def collect(target: Path) -> None:
    """Write the sources of the site into a folder."""
    linked: set[str] = set()
    pages = reference.pages(link_from_reference(linked))
    measured, pages["docs/roofline.svg"] = reference.roofline()
    tree.Tree(tree.ROOT, target).add_all(
        pages,
        {"README.md": tree.front(), "docs/roofline.md": measured},
        sorted(linked),
    )


def main(arguments: list[str]) -> int:
    """Build the site; return the exit code."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    site = Path(arguments[0]).resolve()
    sources = site.with_name(f"{site.name}-sources")
    collect(sources)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2"]
    command += ["-c", str(Path(__file__).parent)]
    command += ["-d", str(site.with_name(f"{site.name}-read"))]
    done = subprocess.run([*command, str(sources), str(site)], check=False)
    if done.returncode:
        return done.returncode
    found = check.problems(site)
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{site}: {len(list(site.rglob('*.html')))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
