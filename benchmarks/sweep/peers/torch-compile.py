"""The peer torch.compile, only where it is named: compiling a case takes seconds.

It compiles the calls of the peer torch that need no gradient.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gpuopt.benchmarks.sweep.peers import torch

DEVICES = torch.DEVICES
ONLY_IF_NAMED = True

Call = Callable[[], Any]

available = torch.available
version = torch.version
ready = torch.ready
take = torch.take
host = torch.host

COMPILED = (
    "reduce",
    "scan",
    "partition_reduce",
    "mean_matvec",
    "dot",
    "elementwise",
    "upsample_nearest",
    "max_pool",
)


def compiled(operator: str) -> Callable[..., Call | Mapping[str, Call] | None]:
    """Return the function that compiles torch's call of an operator."""
    make = torch.CALLS[operator]

    def made(**given: Any) -> Call | None:
        # A case is a new function to torch, which after eight stops compiling.
        importlib.import_module("torch._dynamo").reset()
        call = make(**given)
        return torch.library().compile(call, dynamic=False) if callable(call) else None

    return made


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    operator: compiled(operator) for operator in COMPILED
}
