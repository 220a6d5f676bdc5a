"""The peer causal-conv1d, the package of that name, on a GPU: filters of 2 to 4 taps."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from gpuopt.benchmarks.sweep.peers import torch

DEVICES = ("cuda",)

Call = Callable[[], Any]

TAPS = (2, 3, 4)

take = torch.take
host = torch.host
ready = torch.ready


def available() -> str | None:
    """Return None if the package is installed."""
    return None if importlib.util.find_spec("causal_conv1d") else "not installed"


def version() -> str:
    """Return the package's version."""
    return str(importlib.import_module("causal_conv1d").__version__)


def causal_conv1d(x: Any, w: Any, bias: Any) -> Call | None:
    """Call causal_conv1d_fn."""
    if w.shape[1] not in TAPS:
        return None
    function = importlib.import_module("causal_conv1d").causal_conv1d_fn
    activation = None if bias is None else "silu"
    return lambda: function(x, w, bias, activation=activation)


def causal_conv1d_backward(dy: Any, x: Any, w: Any) -> Call | None:
    """Differentiate causal_conv1d_fn."""
    if w.shape[1] not in TAPS:
        return None
    library = torch.library()
    function = importlib.import_module("causal_conv1d").causal_conv1d_fn
    leaves = (
        x.clone(memory_format=library.preserve_format).requires_grad_(),
        w.clone().requires_grad_(),
    )
    y = function(*leaves)
    return lambda: library.autograd.grad(y, leaves, dy, retain_graph=True)


def causal_conv1d_update(state: Any, x: Any, w: Any, bias: Any) -> Call | None:
    """Call causal_conv1d_update on a state of its own."""
    if w.shape[1] not in TAPS:
        return None
    function = importlib.import_module("causal_conv1d").causal_conv1d_update
    kept = state.clone()
    return lambda: (function(x, kept, w, bias, activation="silu"), kept)


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
    "causal_conv1d_update": causal_conv1d_update,
}
