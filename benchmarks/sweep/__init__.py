"""The cases of the sweep: one file per room, which draws one random call of its operators.

`python -m gpuopt bench --sweep` draws, checks and times them (gpuopt/lab/sweep.py); peers/ has
the calls of the libraries beside ours.  `python -m benchmarks.sweep` measures with three seeds
made of the commit and keeps the results.  A new file here is a new family of cases.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

from gpuopt.lab.drawing import Case, Dice


class Family(Protocol):
    """What benchmarks/sweep/<room>.py defines."""

    def draw(self, dice: Dice) -> Case | None:
        """Draw one case; None where the dice fell on a call that does not exist."""


def families() -> tuple[str, ...]:
    """Return the rooms that have cases, by name."""
    found = (module for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return tuple(sorted(module.name for module in found if module.name != "__main__"))


def family(room: str) -> Family:
    """Return the cases of a room; ValueError if there are none."""
    if room not in families():
        raise ValueError(f"no cases of {room!r}; there are: {', '.join(families())}")
    return cast(Family, importlib.import_module(f"{__name__}.{room}"))
