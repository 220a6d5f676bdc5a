"""torch itself at every entry point, on the CPU and, if there is one, on a GPU.

`make test-torch` runs it, in an environment of its own.  The same table as in test_gate.py
for stand-ins: each kind of tensor that is more than its memory is refused with a message
that names the call to make, and that call gives the correct result.
Order: the entry points, torch's kinds, transforms, accepted tensors, gradients.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_ad

import gpuopt

pytestmark = [
    # Quantised, nested and masked tensors announce that they may change.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def host(x: Any) -> Any:
    return x.detach().resolve_conj().resolve_neg().cpu().numpy()


# ---- the entry points ----


@contextmanager
def no_table() -> Iterator[None]:
    """torch.Tensor without its table; gpuopt's cached facts of the type are evicted first."""
    table = torch.Tensor.__dlpack_c_exchange_api__
    forget()
    del torch.Tensor.__dlpack_c_exchange_api__
    try:
        yield
    finally:
        torch.Tensor.__dlpack_c_exchange_api__ = table
        forget()


def forget() -> None:
    """gpuopt caches a few types: passes it as many others."""
    for _ in range(16):
        gpuopt.reduce(np.ones(1).view(type("Other", (np.ndarray,), {})))


def plain_like(x: Any) -> torch.Tensor:
    """A plain tensor on x's device; its shape matters only if x is accepted."""
    on = "cuda" if str(getattr(x, "device", "cpu")).startswith("cuda") else "cpu"
    return torch.zeros((), device=on)


def by_protocol(x: Any) -> Any:
    with no_table():
        return gpuopt.negative(x)


def as_item(x: Any) -> Any:
    return gpuopt.negative([x, x])


INPUTS: dict[str, Callable[[Any], Any]] = {
    "alone": gpuopt.negative,
    "first": lambda x: gpuopt.add(x, plain_like(x)),
    "second": lambda x: gpuopt.add(plain_like(x), x),
    "explain": lambda x: gpuopt.explain("negative", x),
    "by protocol": by_protocol,
    "asdevice": lambda x: gpuopt.asdevice(x, backend="sim"),
    "copy_from": lambda x: gpuopt.asdevice(np.zeros(3), backend="sim").copy_from(x),
    "an item": as_item,
}


def as_out(x: Any) -> Any:
    return gpuopt.negative(torch.zeros(3, device=plain_like(x).device), out=x)


def out_by_protocol(x: Any) -> Any:
    with no_table():
        return as_out(x)


OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "out": as_out,
    "out of NumPy": lambda x: gpuopt.negative(np.zeros(3), out=x),
    "out by protocol": out_by_protocol,
}


def refused(border: Callable[[Any], Any], x: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence) as caught:
        border(x)
    assert "\n" not in str(caught.value)
    assert gpuopt.reduce(np.ones(3)) == 3


# ---- torch's kinds ----


class Dispatching(torch.Tensor):
    """Has a shape; its elements are elsewhere."""

    @staticmethod
    def __new__(cls, x: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    @classmethod
    def __torch_dispatch__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        raise RuntimeError("mine")


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        return super().__torch_function__(function, kinds, args, kwargs or {})


class Bare(torch.Tensor):
    """Overrides nothing."""


def complex_tensor(device: str) -> torch.Tensor:
    return torch.tensor([1 + 2j, 3 - 4j, 5j], device=device)


def ones(device: str, **keywords: Any) -> torch.Tensor:
    return torch.ones(3, device=device, **keywords)


def fake(device: str) -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return ones(device)


def masked(device: str) -> Any:
    from torch.masked import masked_tensor

    return masked_tensor(ones(device), torch.tensor([True, False, True], device=device))


def nested(device: str, layout: torch.layout) -> torch.Tensor:
    rows = [torch.ones(2, device=device), torch.ones(3, device=device)]
    return torch.nested.nested_tensor(rows, layout=layout)


def freed(device: str, offset: int) -> torch.Tensor:
    """A parameter as FSDP keeps it between uses."""
    x = torch.ones(3 + offset, device=device)[offset:]
    x.untyped_storage().resize_(0)
    return x


def quantised(device: str) -> torch.Tensor:
    return torch.quantize_per_tensor(ones(device), 0.1, 0, torch.qint8)


def sparse(layout: str, device: str) -> torch.Tensor:
    x = torch.eye(4, device=device)
    block = (2, 2) if layout in ("sparse_bsr", "sparse_bsc") else None
    return x.to_sparse(layout=getattr(torch, layout), blocksize=block)


SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "conj": (lambda d: complex_tensor(d).conj(), r"conjugate bit.*\.resolve_conj\(\)"),
    "neg": (lambda d: complex_tensor(d).conj().imag, r"negative bit.*\.resolve_neg\(\)"),
    "neg of integers": (
        lambda d: torch._neg_view(torch.ones(3, dtype=torch.int32, device=d)),
        r"\.resolve_neg\(\)",
    ),
    "grad": (lambda d: ones(d, requires_grad=True), r"requires grad.*\.detach\(\).*no_grad"),
    "parameter": (lambda d: torch.nn.Parameter(ones(d)), r"requires grad.*\.detach\(\)"),
    "result of a graph": (lambda d: ones(d, requires_grad=True) * 2, r"\.detach\(\)"),
    **{
        layout: (
            lambda d, layout=layout: sparse(layout, d),
            rf"torch\.{layout}.*\.to_dense\(\)",
        )
        for layout in SPARSE
    },
    "nested": (lambda d: nested(d, torch.strided), r"nested tensor.*\.to_padded_tensor"),
    "jagged": (lambda d: nested(d, torch.jagged), r"nested tensor.*\.to_padded_tensor"),
    "meta": (lambda d: ones("meta"), r"meta device.*torch\.empty_like"),
    "fake": (fake, r"FakeTensor, .*no elements; use gpuopt outside of FakeTensorMode"),
    "quantised": (quantised, r"is quantised.*\.dequantize\(\)"),
    "zero": (lambda d: torch._efficientzerotensor((3,), device=d), r"zero tensor.*\.clone\(\)"),
    "masked": (masked, r"MaskedTensor, whose mask would be lost; use \.to_tensor\(value\)"),
    "uninitialised": (
        lambda d: torch.nn.UninitializedParameter(device=d),
        r"no elements yet; use \.materialize",
    ),
    "dispatching": (lambda d: Dispatching(ones(d)), r"own __torch_function__ or __torch_disp"),
    "function": (
        lambda d: ones(d).as_subclass(Logged),
        r"use .*\.as_subclass\(torch\.Tensor\)",
    ),
    "freed": (lambda d: freed(d, 0), "has no memory that gpuopt can use"),
    "freed behind": (lambda d: freed(d, 2), "has no memory that gpuopt can use"),
}
CPU_KINDS = {
    "mkldnn": (lambda d: ones(d).to_mkldnn(), r"layout torch\._mkldnn.*\.to_dense\(\)")
}


@pytest.mark.parametrize("border", [*INPUTS, *OUTPUTS])
@pytest.mark.parametrize("kind", [*KINDS, *CPU_KINDS])
def test_a_kind_that_would_lose_something(kind: str, border: str, device: str) -> None:
    if kind in CPU_KINDS and device != "cpu":
        return
    make, sentence = {**KINDS, **CPU_KINDS}[kind]
    refused({**INPUTS, **OUTPUTS}[border], make(device), sentence)


def inside(x: torch.Tensor) -> torch.Tensor:
    """The arguments of a function that torch.func transforms."""
    sentence = r"inside of a torch\.func transform.*use gpuopt outside of it"
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        for border in (*INPUTS.values(), *OUTPUTS.values()):
            refused(border, x, sentence)
        inside.seen += 1  # type: ignore[attr-defined]
    return (x * x).sum()


Function = Callable[[torch.Tensor], torch.Tensor]
TRANSFORMS: dict[str, Callable[[Function, torch.Tensor], Any]] = {
    "vmap": lambda f, x: torch.vmap(f)(torch.stack([x, x])),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "vjp": lambda f, x: torch.func.vjp(f, x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(f))(torch.stack([x, x])),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_inside_of_a_transform(transform: str, device: str) -> None:
    inside.seen = 0  # type: ignore[attr-defined]
    TRANSFORMS[transform](inside, ones(device))
    assert inside.seen > 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("transform", [*TRANSFORMS, "fake"])
def test_plain_tensors_inside_of_a_transform(transform: str, device: str) -> None:
    """Their memory is real, but torch may create results without memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    x, out = ones(device), ones(device)
    results = []

    def function(wrapped: torch.Tensor) -> torch.Tensor:
        try:
            results.append(gpuopt.negative(x))
        except TypeError as error:
            assert re.search("gave a result without memory.*use gpuopt outside", str(error))
        gpuopt.negative(x, out=out)
        return (wrapped * wrapped).sum()

    if transform == "fake":
        with FakeTensorMode():
            function(ones(device))
    else:
        TRANSFORMS[transform](function, ones(device))
    np.testing.assert_array_equal(host(out), -np.ones(3))
    for result in results:
        np.testing.assert_array_equal(host(result), -np.ones(3))


def test_a_forward_mode_tangent(device: str) -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(ones(device), ones(device))
        for border in (gpuopt.reduce, as_out, INPUTS["asdevice"], as_item):
            refused(border, dual, r"forward-mode tangent.*\.detach\(\)")
        assert gpuopt.reduce(dual.detach()) == 3
        assert gpuopt.reduce(ones(device)) == 3
    assert gpuopt.reduce(dual) == 3  # the tangent ended with its level


@pytest.mark.parametrize(
    "kind, way",
    [
        ("conj", lambda x: x.resolve_conj()),
        ("neg", lambda x: x.resolve_neg()),
        ("grad", lambda x: x.detach()),
        ("sparse_coo", lambda x: x.to_dense()),
        ("sparse_bsr", lambda x: x.to_dense()),
        ("nested", lambda x: x.to_padded_tensor(0)),
        ("jagged", lambda x: x.to_padded_tensor(0)),
        ("quantised", lambda x: x.dequantize()),
        ("zero", lambda x: x.clone()),
        ("masked", lambda x: x.to_tensor(0)),
        ("function", lambda x: x.as_subclass(torch.Tensor)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_way_out_is_one(kind: str, way: Callable[[Any], Any], device: str) -> None:
    plain = way(KINDS[kind][0](device))
    got = gpuopt.negative(plain)
    assert type(got) is torch.Tensor and got.device == plain.device
    np.testing.assert_array_equal(host(got), -host(plain))
    assert gpuopt.negative(plain, out=plain) is plain
    np.testing.assert_array_equal(host(got), host(plain))


# ---- accepted tensors ----

TAKEN: dict[str, Callable[[str], Any]] = {
    "dense": lambda d: torch.arange(6.0, device=d),
    "steps": lambda d: torch.arange(12.0, device=d)[::2],
    "transposed": lambda d: torch.arange(6.0, device=d).reshape(2, 3).T,
    "expanded": lambda d: torch.arange(3.0, device=d).expand(2, 3),
    "empty": lambda d: torch.empty(0, device=d),
    "a scalar": lambda d: torch.tensor(3.0, device=d),
    "complex": complex_tensor,
    "imaginary part": lambda d: complex_tensor(d).imag,
    "bfloat16": lambda d: torch.arange(6.0, device=d).bfloat16(),
    "twice conj": lambda d: complex_tensor(d).conj().conj(),
    "subclass": lambda d: torch.arange(6.0, device=d).as_subclass(Bare),
    "buffer": lambda d: torch.nn.Buffer(torch.arange(6.0, device=d)),
    "parameter": lambda d: torch.nn.Parameter(torch.arange(6.0, device=d), requires_grad=False),
    "lazy clone": lambda d: torch._lazy_clone(torch.arange(6.0, device=d)),
}


def values_of(x: torch.Tensor) -> Any:
    x = x.detach().as_subclass(torch.Tensor)
    return host(x.float() if x.dtype == torch.bfloat16 else x)


@pytest.mark.parametrize("table", [True, False], ids=["C table", "protocol"])
@pytest.mark.parametrize("kind", TAKEN)
def test_plain_tensors_are_taken(kind: str, table: bool, device: str) -> None:
    x = TAKEN[kind](device)
    call: Any = gpuopt.negative if table else by_protocol
    got = call(x)
    assert type(got) is torch.Tensor and got.device == x.device and not got.requires_grad
    np.testing.assert_array_equal(values_of(got), -values_of(x))


def test_a_clone_on_write_is_written_alone(device: str) -> None:
    x = torch.arange(6.0, device=device)
    clone = torch._lazy_clone(x)
    gpuopt.negative(x, out=clone)
    np.testing.assert_array_equal(host(x), np.arange(6.0))
    np.testing.assert_array_equal(host(clone), -np.arange(6.0))


# ---- gradients ----


@pytest.mark.parametrize("table", [True, False], ids=["C table", "protocol"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_nothing_is_recorded_a_tensor_that_requires_grad_is_taken(
    mode: Any, table: bool, device: str
) -> None:
    x = torch.nn.Parameter(torch.arange(3.0, device=device))
    out = torch.nn.Parameter(torch.zeros(3, device=device))
    with mode():
        if table:
            got = gpuopt.negative(x)
            assert gpuopt.negative(x, out=out) is out
        else:
            got = by_protocol(x)
            with no_table():
                assert gpuopt.negative(x, out=out) is out
        assert type(got) is torch.Tensor and not got.requires_grad
        np.testing.assert_array_equal(host(got), -np.arange(3.0))
        np.testing.assert_array_equal(host(out), -np.arange(3.0))
        with torch.enable_grad():
            if mode is torch.no_grad:
                refused(gpuopt.negative, x, "requires grad")
    refused(gpuopt.negative, x, "requires grad")


def test_inference_tensors_are_taken(device: str) -> None:
    with torch.inference_mode():
        x = torch.ones(3, device=device)
        assert gpuopt.reduce(x) == 3
    assert gpuopt.reduce(x) == 3
    assert gpuopt.negative(torch.ones(3, device=device), out=x) is x


def test_a_gradient_that_needs_what_was_overwritten_is_refused_by_torch(device: str) -> None:
    w = torch.ones(3, device=device, requires_grad=True)
    x = torch.ones(3, device=device)
    y = (w * x).sum()
    gpuopt.add(x, 1, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
