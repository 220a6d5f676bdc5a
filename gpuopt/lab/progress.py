"""A progress bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["track"]

T = TypeVar("T")


def track(items: Iterable[T], total: int, what: str, show: bool | None = None) -> Iterator[T]:
    """Yield the items and show progress on stderr.

    Parameters
    ----------
    items : iterable
        The items.
    total : int
        Their number.
    what : str
        One word in front of the bar.
    show : bool, optional
        The default shows the bar if stderr is a terminal.  tqdm draws it if installed.
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        yield from items
        return
    if importlib.util.find_spec("tqdm"):
        tqdm = importlib.import_module("tqdm.auto").tqdm
        yield from tqdm(items, total=total, desc=what, leave=False)
        return
    for done, item in enumerate(items, 1):
        sys.stderr.write(f"\r{what} {done}/{total} ")
        sys.stderr.flush()
        yield item
    sys.stderr.write("\r" + " " * (len(what) + 2 * len(str(total)) + 3) + "\r")
    sys.stderr.flush()
