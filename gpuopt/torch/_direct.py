"""Calls that skip torch's dispatcher: those that it would pass on unchanged.

The dispatcher goes through Python twice for an operator with a gradient, which takes longer
than a small call itself.  It has nothing to do if no gradient is recorded, no mode is active
(autocast, torch.vmap, tracing, FakeTensorMode, a torch function or dispatch mode) and each
tensor is plain: no subclass, not sparse, without a pending conjugation.  Modes and kinds of
tensors are bits of torch's key sets, which are compared with those of a plain tensor and of a
thread that has no mode.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

from gpuopt.torch._library import KERNELS, Kernel, operator


def modes() -> tuple[int, int]:
    """The keys that this thread's modes add to every call, and those that they remove."""
    return (
        torch._C._dispatch_tls_local_include_set().raw_repr(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(),
    )


def modes_of_a_new_thread() -> tuple[int, int]:
    """Modes belong to a thread, so a new one has none, wherever this module is imported."""
    found: list[tuple[int, int]] = []
    thread = threading.Thread(target=lambda: found.append(modes()))
    thread.start()
    thread.join()
    return found[0]


NO_MODE = modes_of_a_new_thread()


@functools.cache
def plain_keys(device: str) -> int:
    """The keys of a plain tensor there."""
    return torch._C._dispatch_keys(torch.empty(0, device=device)).raw_repr()


def is_plain(x: Any) -> bool:
    """Whether x is a plain tensor for which no gradient is recorded."""
    if not isinstance(x, torch.Tensor) or (x.requires_grad and torch.is_grad_enabled()):
        return False
    device = "cuda" if x.is_cuda else "cpu"
    return torch._C._dispatch_keys(x).raw_repr() == plain_keys(device)


def goes_straight(kernel: Kernel, args: tuple[Any, ...]) -> bool:
    """Whether the dispatcher would pass these arguments on to the kernel unchanged."""
    if modes() != NO_MODE or torch._C._len_torch_function_stack():
        return False
    for i in kernel.tensors:  # a generator would double the time
        if not is_plain(args[i]):
            return False
    optional = [args[i] for i in kernel.optional if args[i] is not None]
    return not optional or all(map(is_plain, optional))


def are_plain(*tensors: Any) -> bool:
    """Whether torch has nothing to do in a call on these: for gpuopt's own functions."""
    if torch.compiler.is_compiling() or modes() != NO_MODE:
        return False
    given = [x for x in tensors if x is not None]
    return not torch._C._len_torch_function_stack() and all(map(is_plain, given))


def call(name: str, *args: Any) -> Any:
    """torch.ops.gpuopt.<name>(*args), all of them given."""
    if not torch.compiler.is_compiling():
        kernel = KERNELS[name]
        if goes_straight(kernel, args):
            return kernel.run(*args)
    return operator(name)(*args)
