"""The table that all listings of gpuopt return: a list of dict rows that prints itself.

Order: the class, then the formatting of a cell.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Table"]

WIDEST_CELL = 60  # characters; a longer cell is cut in text, never in HTML or JSON


class Table(list[dict[str, Any]]):
    """Rows with the same columns, shown as an aligned table in a terminal and in Jupyter.

    Parameters
    ----------
    rows : iterable of mappings
        One dict per row.
    shown : sequence of str, optional
        The columns shown, in order; the default is every key, in order of appearance.
        Keys that are not shown stay in the rows and in the JSON.
    title : str, optional
        One line above the table.
    vertical : bool, optional
        Show a row as one line per column: for few rows of many columns.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]] = (),
        shown: Sequence[str] | None = None,
        title: str = "",
        vertical: bool = False,
    ) -> None:
        super().__init__(dict(row) for row in rows)
        self.title = title
        self._shown = None if shown is None else tuple(shown)
        self._vertical = vertical

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns shown, in order."""
        if self._shown is not None:
            return self._shown
        return tuple(dict.fromkeys(key for row in self for key in row))

    def column(self, name: str) -> list[Any]:
        """Return one value per row; None where a row does not have it.

        Raises
        ------
        KeyError
            No row has a column of that name.
        """
        if name not in self.columns and not any(name in row for row in self):
            raise KeyError(f"no column {name!r}; there are {', '.join(self.columns)}")
        return [row.get(name) for row in self]

    def to_json(self, indent: int | None = 1) -> str:
        """Return the rows, all keys, as a JSON array of objects."""
        return json.dumps(list(self), indent=indent, default=str)

    def __repr__(self) -> str:
        head, lines, right = self._laid_out()
        if not lines and not any(head):
            return self.title or "(no rows)"
        if not self._vertical:
            lines = [[cut(text) for text in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]

        def aligned(line: Sequence[str]) -> str:
            return "  ".join(
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(line, widths, right, strict=True)
            ).rstrip()

        top = [self.title] if self.title else []
        if any(head):
            top += [aligned(head), "  ".join("-" * width for width in widths)]
        return "\n".join([*top, *map(aligned, lines)])

    def _repr_html_(self) -> str:
        head, lines, right = self._laid_out()

        def row(line: Sequence[str], tag: str) -> str:
            cells = (
                f'<{tag} style="text-align:{"right" if to_right else "left"}">'
                f"{html.escape(text)}</{tag}>"
                for text, to_right in zip(line, right, strict=True)
            )
            return f"<tr>{''.join(cells)}</tr>"

        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        top = f"<thead>{row(head, 'th')}</thead>" if any(head) else ""
        body = "".join(row(line, "td") for line in lines)
        return f"<table>{caption}{top}<tbody>{body}</tbody></table>"

    def _laid_out(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """Return the head, the lines of cells, and which columns align right."""
        names = self.columns
        if self._vertical:
            return ["", ""], [[n, cell(row.get(n))] for row in self for n in names], [False] * 2
        lines = [[cell(row.get(name)) for name in names] for row in self]
        return list(names), lines, [is_numeric(row.get(name) for row in self) for name in names]

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, without the title."""
        head, lines, right = self._laid_out()
        rule = ["---:" if to_right else "---" for to_right in right]
        escaped = [[text.replace("|", "\\|") for text in line] for line in lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *escaped])


def cell(value: Any) -> str:
    """Return a value as text for a table: None is empty, floats have four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    return " ".join(str(value).split())


def cut(text: str) -> str:
    """Shorten a cell to WIDEST_CELL characters."""
    return text if len(text) <= WIDEST_CELL else text[: WIDEST_CELL - 3] + "..."


def is_numeric(values: Iterable[Any]) -> bool:
    """Tell whether a column holds numbers and nothing else, so that it aligns right."""
    kept = [value for value in values if value is not None]
    return bool(kept) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in kept
    )
