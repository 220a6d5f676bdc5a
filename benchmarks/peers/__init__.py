"""What a user would pick instead: one file per library.

Each file defines DEVICES, available(), version(), call() and host() as `Peer` says, and
CALLS, one function per operator.  A new file here is a new peer; nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol, cast

from gpuopt.lab.workloads import Problem


class Peer(Protocol):
    """The contract of a file in this folder."""

    #: Where its calls run: 'cpu', 'cuda' or both.
    DEVICES: tuple[str, ...]

    def available(self) -> str | None:
        """Return None if it can be called here, else why not."""

    def version(self) -> str:
        """Return its version."""

    def call(
        self, problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
    ) -> Callable[[], Any] | None:
        """Return the call that answers the problem; None if it has no such operator.

        `arrays` are the problem's arrays on `device`, shared, never written; `upload`
        makes a device array of a host array.
        """

    def host(self, result: Any) -> Any:
        """Return a result of its call as a NumPy array."""


def names() -> tuple[str, ...]:
    """Return every peer's name, installed or not."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def peer(name: str) -> Peer:
    """Return a peer by its name; ValueError if there is none."""
    if name not in names():
        raise ValueError(f"no peer {name!r}; there are: {', '.join(names())}")
    return cast(Peer, importlib.import_module(f"{__name__}.{name}"))
