"""The calls of other libraries that drawn cases are timed beside: one file per library.

Each file defines DEVICES, available(), version(), ready(), take() and host() as described in
`Peer`, and CALLS: per operator one function, which takes the arguments a case gives by name and
returns the call that is timed, several of them by name, or None.  A library that is not
installed is no peer, and neither is a call whose result is wrong.  A file that says
ONLY_IF_NAMED takes part in a run that names it.  A new file here is a new peer; nothing else
changes.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

Call = Callable[[], Any]


class Peer(Protocol):
    """The interface of a file in this folder."""

    #: Where its calls run: 'cpu', 'cuda' or both.
    DEVICES: tuple[str, ...]
    #: By operator: arguments -> a call, calls by what follows the peer's name, or None.
    CALLS: Mapping[str, Callable[..., Call | Mapping[str, Call] | None]]

    def available(self) -> str | None:
        """Return None if it can be called here, else why not."""

    def version(self) -> str:
        """Return its version."""

    def ready(self, device: str) -> None:
        """Set it up for a run: full precision, every core."""

    def take(self, x: Any) -> Any:
        """Return an array as one of its own, in the same memory if it can."""

    def host(self, result: Any) -> Any:
        """Return a result of its call as an array that NumPy, torch or CuPy takes."""


def names() -> tuple[str, ...]:
    """Return every peer's name, installed or not."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def peer(name: str) -> Peer:
    """Return a peer by its name; ValueError if there is none."""
    if name not in names():
        raise ValueError(f"no peer {name!r}; there are: {', '.join(names())}")
    return cast(Peer, importlib.import_module(f"{__name__}.{name}"))


def installed(device: str) -> tuple[str, ...]:
    """Return the peers that can run on a device here and need not be named."""
    found = ((name, peer(name)) for name in names())
    return tuple(
        name
        for name, p in found
        if device in p.DEVICES
        and p.available() is None
        and not getattr(p, "ONLY_IF_NAMED", False)
    )


def named(device: str, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the peers of those names.

    Raises
    ------
    ValueError
        There is none of a name, or it runs on another device.
    RuntimeError
        It cannot be called here.
    """
    for name in wanted:
        found = peer(name)
        if device not in found.DEVICES:
            raise ValueError(f"peer {name!r} does not run on device {device!r}")
        if reason := found.available():
            raise RuntimeError(f"peer {name!r} cannot be called: {reason}")
    return tuple(dict.fromkeys(wanted))


def calls(name: str, operator: str, given: Mapping[str, Any]) -> dict[str, Call]:
    """Return a peer's calls for a case by their full names, 'torch' or 'torch-fft'."""
    found = peer(name)
    make = found.CALLS.get(operator)
    made = make(**{k: taken(found, v) for k, v in given.items()}) if make else None
    if made is None:
        return {}
    if callable(made):
        return {name: made}
    return {f"{name}-{way}" if way else name: call for way, call in made.items()}


def taken(found: Peer, value: Any) -> Any:
    """Return an argument with its arrays as the peer's own."""
    if isinstance(value, tuple):
        return tuple(taken(found, item) for item in value)
    return found.take(value) if hasattr(value, "__dlpack__") else value
