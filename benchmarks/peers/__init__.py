"""The libraries that gpuopt is compared with: one file each.

Each file defines DEVICES, available(), version(), call() and host() as described in `Peer`,
and CALLS, one function per operator.  A new file here is a new peer; nothing else changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol, cast

from gpuopt.lab.workloads import Problem


class Peer(Protocol):
    """The interface of a file in this folder."""

    #: Where its calls run: 'cpu', 'cuda' or both.
    DEVICES: tuple[str, ...]

    #: True if its calls are compiled first, which takes longer than to time them; False may
    #: be left out (`compiled`).
    COMPILED: bool

    def available(self) -> str | None:
        """Return None if it can be called here, else why not."""

    def version(self) -> str:
        """Return its version."""

    def call(
        self, problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
    ) -> Callable[[], Any] | None:
        """Return a call that computes the problem; None if it has no such operator.

        `arrays` are the problem's arrays on `device`, shared and never written; `upload`
        copies a host array to the device.
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


def compiled(name: str) -> bool:
    """Tell whether a peer's calls are compiled before they can be timed."""
    return getattr(peer(name), "COMPILED", False)
