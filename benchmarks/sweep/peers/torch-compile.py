"""The peer torch.compile, only where it is named: compiling a case takes seconds.

It compiles the calls of the peer torch that need no gradient, and of causal_conv1d, which no
compiler makes faster as it stands, a sum of shifted products.
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

SHIFTS = 8  # taps at most

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


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function; without the reset torch stops compiling after eight of a kind."""
    importlib.import_module("torch._dynamo").reset()
    made: Callable[..., Any] = torch.library().compile(function, dynamic=False)
    return made


def compiled(operator: str) -> Callable[..., Call | Mapping[str, Call] | None]:
    """Return the function that compiles torch's call of an operator."""
    make = torch.CALLS[operator]

    def made(**given: Any) -> Call | None:
        call = make(**given)
        return fresh(call) if callable(call) else None

    return made


def shifted(x: Any, w: Any, bias: Any = None) -> Any:
    """Return causal_conv1d as a sum of products with x shifted by 0, 1, ... steps."""
    functional, taps = torch.library().nn.functional, w.shape[1]
    padded = functional.pad(x, (taps - 1, 0))
    y = sum(padded[..., k : k + x.shape[2]] * w[:, k : k + 1] for k in range(taps))
    return y if bias is None else functional.silu(y + bias[:, None])


def causal_conv1d(x: Any, w: Any, bias: Any) -> Call | None:
    """Compile a sum of few shifted products."""
    if w.shape[1] > SHIFTS:
        return None
    call = fresh(shifted)
    return lambda: call(x, w, bias)


def causal_conv1d_backward(dy: Any, x: Any, w: Any) -> Call | None:
    """Compile the gradients of such a sum."""
    if w.shape[1] > SHIFTS:
        return None
    library = torch.library()
    leaves = (
        x.clone(memory_format=library.preserve_format).requires_grad_(),
        w.clone().requires_grad_(),
    )
    y = fresh(shifted)(*leaves)
    return lambda: library.autograd.grad(y, leaves, dy, retain_graph=True)


def causal_conv1d_update(state: Any, x: Any, w: Any, bias: Any) -> Call:
    """Compile the call of the peer torch."""
    call: Call = fresh(torch.causal_conv1d_update(state, x, w, bias))
    return call


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    **{operator: compiled(operator) for operator in COMPILED},
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
    "causal_conv1d_update": causal_conv1d_update,
}
