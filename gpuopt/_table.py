"""The table every listing of gpuopt comes in: a list of dict rows that prints itself.

Order: the class, then how a cell is written.  Not here: what the rows say.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["Table"]

WIDEST_CELL = 60  # characters; a longer cell is cut in text, never in HTML or JSON


class Table(list[dict[str, Any]]):
    """Rows of equal meaning, shown as an aligned table in a terminal and in Jupyter.

    Parameters
    ----------
    rows : iterable of mappings
        One dict per row.
    columns : sequence of str, optional
        The columns shown, in order; the default is every key, in order of appearance.
        Keys that are not shown stay in the rows and in the JSON.
    title : str, optional
        One line above the table.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]] = (),
        columns: Sequence[str] | None = None,
        title: str = "",
    ) -> None:
        super().__init__(dict(row) for row in rows)
        self.title = title
        self._columns = None if columns is None else tuple(columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns shown, in order."""
        if self._columns is not None:
            return self._columns
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
        names = self.columns
        if not names:
            return self.title or "(no rows)"
        cells = [[cut(cell(row.get(name))) for name in names] for row in self]
        right = [is_numeric(self.column(name)) for name in names]
        widths = [
            max(len(name), *(len(line[i]) for line in cells), 0)
            for i, name in enumerate(names)
        ]

        def line(values: Sequence[str]) -> str:
            return "  ".join(
                value.rjust(width) if to_right else value.ljust(width)
                for value, width, to_right in zip(values, widths, right, strict=True)
            ).rstrip()

        head = [self.title] if self.title else []
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([*head, line(names), rule, *map(line, cells)])

    def _repr_html_(self) -> str:
        names = self.columns
        right = [is_numeric(self.column(name)) for name in names]
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align:{"right" if to_right else "left"}">'
                f"{html.escape(cell(row.get(name)))}</td>"
                for name, to_right in zip(names, right, strict=True)
            )
            + "</tr>"
            for row in self
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, without the title."""
        names = self.columns
        right = [is_numeric(self.column(name)) for name in names]
        rule = ["---:" if to_right else "---" for to_right in right]
        lines = [names, rule]
        lines += [[cell(row.get(name)).replace("|", "\\|") for name in names] for row in self]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    """Return how a value reads in a table: None is empty, floats have four digits."""
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
