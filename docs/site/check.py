"""What is wrong with the pages of a site, found by reading their HTML.

Each page: ids are unique; links and pictures lead to files and ids that are there; nothing
is loaded from elsewhere; no message of Sphinx stands in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}
LINKED = LOADED | {("a", "href"), ("object", "data"), ("source", "src")}


class Page(HTMLParser):
    """The ids and links of a page, and whether a message of Sphinx is in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[tuple[str, str, str]] = []
        self.messages = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        if "id" in known:
            self.ids.append(known["id"])
        self.messages += "system-message" in known.get("class", "").split()
        for name, value in known.items():
            if (tag, name) in LINKED:
                self.links.append((tag, name, value))


def problems(site: Path) -> list[str]:
    """Return one sentence for each problem of a site."""
    files = [p for p in sorted(site.rglob("*.html")) if site / "_static" not in p.parents]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    found = [f"{path.relative_to(site)}: {what}" for path in pages for what in of(path, pages)]
    return found if pages else [f"{site} has no pages"]


def of(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """Yield what is wrong with one page."""
    page = pages[path]
    for double in sorted({name for name in page.ids if page.ids.count(name) > 1}):
        yield f"the id {double!r} is not unique"
    if page.messages:
        yield f"{page.messages} messages of Sphinx"
    for tag, name, link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if (tag, name) in LOADED and parts.scheme != "data":
                yield f"loads {link}"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not target.is_file():
            yield f"{tag} leads to {link}, which is not there"
        elif target in pages and unquote(parts.fragment) not in ("", *pages[target].ids):
            yield f"leads to {link}, whose id is not there"
