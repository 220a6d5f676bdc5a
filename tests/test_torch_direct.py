"""Which calls of gpuopt.torch skip torch's dispatcher, and that nothing else changes.

`make test-torch` runs it, in an environment of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Child
from test_torch_ops import DEVICES, PEERS, Draw, many
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from gpuopt.torch import _direct
from gpuopt.torch._library import KERNELS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


def in_transform(transform: Callable[..., Any]) -> Callable[[torch.Tensor], bool]:
    def run(x: torch.Tensor) -> bool:
        seen = []

        def function(y: torch.Tensor) -> torch.Tensor:
            seen.append(straight(y))
            return y.sum()

        transform(function)(x)
        return seen[0]

    return run


def straight(x: torch.Tensor) -> bool:
    return _direct.goes_straight(KERNELS["exp"], (x,))


def under(*modes: Callable[[], Any]) -> Callable[[torch.Tensor], bool]:
    def run(x: torch.Tensor) -> bool:
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode())
            return straight(x)

    return run


class Logged(TorchDispatchMode):
    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return f(*args, **(kwargs or {}))


class Watched(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return f(*args, **(kwargs or {}))


def with_grad(x: torch.Tensor) -> torch.Tensor:
    return x.clone().requires_grad_()


# Whether a call is passed on unchanged; x is a plain complex tensor.
PASSED_ON: dict[str, tuple[Callable[[torch.Tensor], bool], bool]] = {
    "plain": (straight, True),
    "real": (lambda x: straight(x.real.clone()), True),
    "view": (lambda x: straight(x[::2]), True),
    "a parameter under no_grad": (lambda x: under(torch.no_grad)(with_grad(x)), True),
    "requires grad": (lambda x: straight(with_grad(x)), False),
    "conjugated": (lambda x: straight(x.conj()), False),
    "negated": (lambda x: straight(x.conj().imag), False),
    "sparse": (lambda x: straight(x.to_sparse()), False),
    "meta": (lambda x: straight(x.to("meta")), False),
    "subclass with a torch function": (
        lambda x: straight(torch.masked.as_masked_tensor(x.real, x.real > 0)), False
    ),
    "inference tensor": (under(torch.inference_mode), False),
    "autocast": (under(lambda: torch.autocast("cpu")), False),
    "a dispatch mode": (under(Logged), False),
    "a function mode": (under(Watched), False),
    "fake tensors": (under(FakeTensorMode), False),
    "vmap": (in_transform(torch.vmap), False),
    "func.grad": (lambda x: in_transform(torch.func.grad)(x.real), False),
    "a number": (lambda x: _direct.goes_straight(KERNELS["exp"], (1.0,)), False),
    "None": (lambda x: _direct.goes_straight(KERNELS["exp"], (None,)), False),
    "no bias, no segments": (
        lambda x: _direct.goes_straight(
            KERNELS["causal_conv1d"], (x, x, None, 0.0, None, "BCT", "fp32", None, None)
        ),
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", PASSED_ON)
@pytest.mark.parametrize("device", DEVICES)
def test_what_skips_the_dispatcher(kind: str, device: str) -> None:
    """Only what the dispatcher would pass on unchanged."""
    passes, want = PASSED_ON[kind]
    assert passes(torch.randn(4, dtype=torch.complex128).to(device)) is want


def test_a_module_imported_in_a_mode_knows_no_mode(child: Child) -> None:
    code = """
import torch
with torch.autocast("cpu"), torch.inference_mode():
    import gpuopt.torch as gt
    from gpuopt.torch import _direct
    assert _direct.modes() != _direct.NO_MODE
assert _direct.modes() == _direct.NO_MODE
"""
    child(f"import warnings; warnings.simplefilter('ignore')\n{code}")


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("device", DEVICES)
def test_both_ways_have_the_same_bits(name: str, device: str) -> None:
    """A function's call that skips the dispatcher, and the same call in an idle mode."""
    function, _, draw = PEERS[name]
    d = Draw(f"ways {name}", device)
    # The second call of index_add knows the index, and other kernels may add by it.
    torch.use_deterministic_algorithms(name == "index_add")
    try:
        for _ in range(20):
            case = draw(d)
            direct = many(function(*case.tensors, **case.options))
            with Logged():
                passed = many(function(*case.tensors, **case.options))
            for a, b in zip(direct, passed, strict=True):
                assert a.dtype == b.dtype
                torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)
