"""gpuopt.torch: every operator as torch itself sees it, and beside torch's own.

`make test-torch` runs it, in an environment of its own.
Order: samples, torch's checks of every operator, gradients, torch.compile, torch.vmap,
drawn cases against torch's functions, autocast, refusals, modules, the document.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounterWithBackend

import gpuopt
import gpuopt.torch as gt

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
OPS = list(gt.OPERATORS)
TWICE = [op for op in OPS if gt.OPERATORS[op].differentiable not in ("no", "yes, once")]
ONCE = [op for op in OPS if gt.OPERATORS[op].differentiable == "yes, once"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- samples ----


class Draw:
    """Random tensors and choices with a fixed seed."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.random = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.device = device

    def whole(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Integers from low to high - 1."""
        return torch.randint(low, high, shape, generator=self.random).to(self.device)

    def one(self, low: int, high: int) -> int:
        """An integer from low to high."""
        return int(self.whole(low, high + 1))

    def pick(self, *values: Any) -> Any:
        return values[self.one(0, len(values) - 1)]

    def sizes(self, rank: int, low: int = 1, high: int = 6) -> list[int]:
        return [self.one(low, high) for _ in range(rank)]

    def floats(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return torch.randn(shape, generator=self.random, dtype=torch.float64).to(
            self.device, dtype
        )

    def positive(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return self.floats(*shape, dtype=dtype).abs() + 0.25

    def view(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Of this shape, with drawn strides."""
        kind = self.one(0, 2) if shape else 0
        if kind == 1:
            return self.floats(*shape[::-1], dtype=dtype).permute(*reversed(range(len(shape))))
        if kind == 2:
            return self.floats(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
        return self.floats(*shape, dtype=dtype)


def pooling(rank: int) -> Callable[[Draw], tuple[Any, ...]]:
    def sample(d: Draw) -> tuple[Any, ...]:
        sizes = [8, 6, 5][:rank]
        return (d.floats(2, 3, *sizes), [3] * rank, [2] * rank, [1] * rank, [1] * rank, True)

    return sample


def pooling_back(rank: int) -> Callable[[Draw], tuple[Any, ...]]:
    def sample(d: Draw) -> tuple[Any, ...]:
        x, *windows, ceil = pooling(rank)(d)
        y, at = getattr(torch.ops.gpuopt, f"max_pool{rank}d_with_indices")(x, *windows, ceil)
        return (d.floats(*y.shape), at, list(x.shape), *windows)

    return sample


CAUSAL = (0.5, "silu", "BCT", "fp32", None)

# The arguments of each operator, and whether a gradient can be checked with them.
SAMPLES: dict[str, Callable[[Draw], tuple[Any, ...]]] = {
    "fma": lambda d: (d.floats(3, 1), d.floats(4), d.floats(3, 4)),
    "where": lambda d: (d.floats(3, 4) > 0, d.floats(4), d.floats(3, 1)),
    "log": lambda d: (d.positive(3, 4),),
    "sqrt": lambda d: (d.positive(3, 4),),
    "clip": lambda d: (d.floats(3, 4), d.floats(4) - 1, d.floats(3, 1) + 1),
    "clip_number": lambda d: (d.floats(3, 4), -0.5, 0.75),
    "cast": lambda d: (d.floats(3, 4), torch.float64),
    "divide": lambda d: (d.floats(3, 1), d.positive(4)),
    **{name: lambda d: (d.floats(3, 1), d.floats(4)) for name in ("add", "subtract")},
    **{name: lambda d: (d.floats(3, 1), d.floats(4)) for name in ("maximum", "minimum")},
    "multiply": lambda d: (d.floats(3, 1), d.floats(4)),
    **{
        name: lambda d: (d.floats(3, 4),)
        for name in ("negative", "abs", "exp", "tanh", "sigmoid", "relu", "gelu", "silu")
    },
    **{
        f"{name}_number": lambda d: (d.floats(3, 4), 1.5)
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
    "reduce": lambda d: (d.floats(3, 4, 2), "mean", [0, -1], False),
    "scan": lambda d: (d.floats(3, 5), "sum", 1, True, False),
    "dot": lambda d: (d.floats(7), d.floats(7)),
    "mean_matvec": lambda d: (d.floats(2, 4, 3), d.floats(5, 4), "LN"),
    "partition_reduce": lambda d: (d.floats(16), [2, 0], True),
    "index_add": lambda d: (
        d.floats(4, 3),
        d.whole(-4, 4, 5),
        d.floats(5, 3),
        0,
        2.0,
        "raise",
        False,
    ),
    "scatter_add": lambda d: (d.floats(3, 4), d.whole(-5, 5, 3, 4), 5, "raise", False),
    "convolve": lambda d: (d.floats(2, 1, 6), d.floats(3, 4), "same"),
    "causal_conv1d": lambda d: (d.floats(2, 3, 6), d.floats(3, 4), d.floats(3), *CAUSAL),
    "causal_conv1d_backward": lambda d: (
        d.floats(2, 3, 6),
        d.floats(2, 3, 6),
        d.floats(3, 4),
        d.floats(3),
        *CAUSAL,
    ),
    "upsample_nearest": lambda d: (d.floats(2, 3, 4, 5), [7, 9], None, False, "NCHW"),
    "upsample_nearest_backward": lambda d: (
        d.floats(2, 3, 8, 10),
        [2, 3, 4, 5],
        None,
        [2.0, 2.0],
        False,
        "NCHW",
    ),
    **{f"max_pool{rank}d{more}": pooling(rank) for rank in (1, 2, 3) for more in ("", "_with_indices")},
    **{f"max_pool{rank}d_backward": pooling_back(rank) for rank in (1, 2, 3)},
}  # fmt: skip

# More arguments of operators whose options change what is computed.
MORE: dict[str, list[Callable[[Draw], tuple[Any, ...]]]] = {
    "reduce": [
        lambda d: (d.floats(3, 4, 2), "sum", None, False),
        lambda d: (d.floats(3, 4, 2), "sum", [1], True),
        lambda d: (d.floats(3, 4, 2), "max", [1], False),
        lambda d: (d.floats(3, 4, 2), "min", None, True),
        lambda d: (d.floats(3), "mean", [], False),
        lambda d: (d.floats(), "sum", None, False),
    ],
    "scan": [
        lambda d: (d.floats(3, 5), "sum", 0, False, True),
        lambda d: (d.floats(4), "sum", -1, False, False),
    ],
    "mean_matvec": [lambda d: (d.floats(2, 4, 3), d.floats(5, 4), "NL")],
    "partition_reduce": [lambda d: (d.floats(8), [1], False)],
    "index_add": [
        lambda d: (d.floats(3, 4), d.whole(-9, 9, 6), d.floats(3, 6), 1, 1.0, "wrap", True),
        lambda d: (d.floats(3, 4), d.whole(-9, 9, 6), d.floats(3, 6), -1, 3.0, "clip", True),
    ],
    "scatter_add": [
        lambda d: (d.floats(6), d.whole(-9, 9, 6), 4, "wrap", False),
        lambda d: (d.floats(6), d.whole(-9, 9, 6), 4, "clip", False),
    ],
    "convolve": [
        lambda d: (d.floats(6), d.floats(2, 3), "valid"),
        lambda d: (d.floats(2), d.floats(3, 5), "full"),
        lambda d: (d.floats(3), d.floats(3, 6), "same"),
    ],
    "causal_conv1d": [
        lambda d: (d.floats(2, 6, 3), d.floats(3, 8), None, 0.0, None, "BTC", "fp32", None),
    ],
    "upsample_nearest": [
        lambda d: (d.floats(2, 3, 4), None, [2.5], True, "NCHW"),
        lambda d: (d.floats(2, 4, 3, 2, 3), [3, 6, 5], None, False, "NHWC"),
    ],
    "max_pool2d": [
        lambda d: (d.floats(3, 8, 6), [2, 3], [1, 2], [0, 1], [2, 1], False),
    ],
}
CASES = {op: [SAMPLES[op], *MORE.get(op, ())] for op in OPS}
EACH = [(op, i) for op in OPS for i in range(len(CASES[op]))]


def sample(op: str, i: int = 0, device: str = "cpu", seed: str = "") -> tuple[Any, ...]:
    return CASES[op][i](Draw(f"{op}{i}{seed}", device))


def call(op: str) -> Any:
    return getattr(torch.ops.gpuopt, op).default


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def recorded(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments; floating tensors require grad."""
    return tuple(x.detach().clone().requires_grad_() if is_float(x) else x for x in args)


def many(y: Any) -> list[torch.Tensor]:
    return [y] if isinstance(y, torch.Tensor) else list(y)


def test_every_operator_is_here() -> None:
    assert set(gpuopt.ops()) <= set(OPS) == set(SAMPLES)
    assert len(set(OPS) - set(gpuopt.ops())) == 10  # 7 with numbers, 3 with indices


# ---- torch's checks ----


@pytest.mark.parametrize(("op", "i"), EACH)
def test_opcheck(op: str, i: int, device: str) -> None:
    """Schema, autograd registration, shapes and dtypes for tracing, dynamic shapes."""
    args = sample(op, i, device)
    torch.library.opcheck(call(op), args)
    if op in (*TWICE, *ONCE):
        torch.library.opcheck(call(op), recorded(args))


# ---- gradients ----


@pytest.mark.parametrize(("op", "i"), [(op, i) for op, i in EACH if op in (*TWICE, *ONCE)])
def test_gradcheck(op: str, i: int, device: str) -> None:
    args = recorded(sample(op, i, device))
    numeric = torch.autograd.gradcheck

    def first(*given: Any) -> Any:
        return many(call(op)(*given))[0]

    assert numeric(first, args, fast_mode=False, nondet_tol=1e-12)
    if op in TWICE:
        assert torch.autograd.gradgradcheck(first, args, nondet_tol=1e-12)


@pytest.mark.parametrize("op", ONCE)
def test_a_second_derivative_is_refused(op: str, device: str) -> None:
    args = recorded(sample(op, 0, device))
    (dx,) = torch.autograd.grad(
        many(call(op)(*args))[0].square().sum(), args[:1], create_graph=True
    )
    with pytest.raises(RuntimeError, match="is a gradient and has none itself"):
        dx.sum().backward()


REFUSED = {
    "prod": lambda x: gt.prod(x),
    "cumprod": lambda x: gt.cumprod(x, 0),
    "scan min": lambda x: gt.scan(x, "min"),
    "scan max": lambda x: gt.scan(x, "max"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_gradient_is_said(name: str, device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    with pytest.raises(TypeError, match=r"has no gradient, .*pass x\.detach\(\)") as caught:
        REFUSED[name](x)
    assert "\n" not in str(caught.value)
    REFUSED[name](x.detach())
    with torch.no_grad():
        REFUSED[name](x)


def test_what_is_not_differentiated_takes_anything(device: str) -> None:
    x = torch.randn(4, 3, device=device, requires_grad=True)
    for y in (gt.argmax(x, 1), gt.argmin(x), gt.any(x), gt.all(x, 0), gt.cast(x, torch.int32)):
        assert not y.requires_grad
    y, at = gt.max_pool1d(x, 2, return_indices=True)
    assert y.requires_grad and not at.requires_grad


def test_only_wanted_gradients() -> None:
    x, y = torch.randn(3, requires_grad=True), torch.randn(3)
    gt.multiply(x, y).sum().backward()
    assert torch.equal(x.grad, y) and y.grad is None  # type: ignore[arg-type]


# ---- torch.compile ----


@pytest.fixture
def fresh() -> Any:
    torch._dynamo.reset()
    torch._inductor.config.compile_threads = 1
    yield
    torch._dynamo.reset()


def close(got: Any, want: Any) -> None:
    for a, b in zip(many(got), many(want), strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", OPS)
def test_compile(op: str, device: str, fresh: None) -> None:
    """With the inductor, in one graph, between two of torch's operators."""
    args = sample(op, 0, device)
    grads = op in (*TWICE, *ONCE)

    def function(*given: Any) -> Any:
        y = many(call(op)(*(x * 2 if is_float(x) else x for x in given)))
        return (y[0] + 1, *y[1:])

    compiled = torch.compile(function, fullgraph=True, backend="inductor")
    mine, other = (recorded(args), recorded(args)) if grads else (args, args)
    got, want = compiled(*mine), function(*other)
    close(got, want)
    if grads:
        for y in (got, want):
            y[0].square().sum().backward()
        for a, b in zip(mine, other, strict=True):
            if is_float(a):
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


# Functions of a tensor of shape (n, n + 1, 2 n).
DYNAMIC: dict[str, Callable[[torch.Tensor], Any]] = {
    "elementwise": lambda x: gt.add(gt.multiply(x, x[0]), 2.5, alpha=3),
    "sum": lambda x: gt.sum(x, (0, 2), keepdim=True),
    "mean": lambda x: gt.mean(x, 1),
    "cumsum": lambda x: gt.cumsum(x, 1),
    "max_pool2d": lambda x: gt.max_pool2d(x, 2, padding=1),
    "max_pool1d, ceil": lambda x: gt.max_pool1d(x, 2, ceil_mode=True),
    "interpolate": lambda x: gt.interpolate(x, scale_factor=2.5),
    "interpolate, size": lambda x: gt.interpolate(x, size=x.shape[0]),
    "index_add": lambda x: gt.index_add(
        x, 1, torch.arange(x.shape[0], device=x.device), x[:, 1:], mode="wrap"
    ),
    "scatter_add": lambda x: gt.scatter_add(x, 2, (x > 0).long(), x),
    "causal_conv1d": lambda x: gt.causal_conv1d(x, x[0, :, :4]),
    "convolve": lambda x: gt.convolve(x, x[0, :, :3], "same"),
    "mean_matvec": lambda x: gt.mean_matvec(x, x[0].T),
    "where": lambda x: gt.where(x > 0, x, 0.0),
    "clip": lambda x: gt.clip(x, -1, 0.5),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_dynamic_shapes(name: str, device: str, fresh: None) -> None:
    """One graph for all sizes, forward and backward."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(DYNAMIC[name], fullgraph=True, dynamic=True, backend=counter)
    for n in (8, 6, 10):
        x = Draw(name, device).floats(n, n + 1, 2 * n).requires_grad_()
        z = x.detach().clone().requires_grad_()
        got, want = compiled(x), DYNAMIC[name](z)
        close(got, want)
        got.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(x.grad, z.grad, rtol=1e-10, atol=1e-10)
    assert counter.frame_count <= (2 if "ceil" in name else 1)  # its shape has two cases


@pytest.mark.parametrize("function", ["index_add", "scatter_add"])
def test_an_index_out_of_range_in_a_compiled_call(function: str, fresh: None) -> None:
    """mode="raise" keeps its meaning; "clip" and "wrap" are taken."""

    def compute(x: torch.Tensor, index: torch.Tensor, mode: str) -> Any:
        return getattr(gt, function)(x, 0, index, x, mode=mode)

    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager")
    x, index = torch.randn(3), torch.tensor([0, 7, -1])
    with pytest.raises(IndexError, match="index 7 at position 1 is out of bounds"):
        compiled(x, index, "raise")
    for mode in ("wrap", "clip"):
        close(compiled(x, index, mode), compute(x, index, mode))


# ---- torch.vmap ----

SIZE = 3


@pytest.mark.parametrize("alone", [False, True], ids=["all", "the first"])
@pytest.mark.parametrize(("op", "i"), EACH)
def test_vmap(op: str, i: int, alone: bool, device: str) -> None:
    """What a loop gives, with batch axes at drawn places."""
    d = Draw(op, device)
    rows = [list(sample(op, i, device, seed=str(k))) for k in range(SIZE)]
    args, dims = list(rows[0]), []
    for k, x in enumerate(args):
        wanted = isinstance(x, torch.Tensor) and (k == 0 or not alone)
        dims.append(d.one(0, x.dim()) if wanted else None)
        if wanted:
            args[k] = torch.stack([row[k] for row in rows], dims[k])
        for row in rows:
            row[k] = row[k] if wanted else rows[0][k]
    places = [k for k, x in enumerate(args) if isinstance(x, torch.Tensor)]

    def of_tensors(*tensors: torch.Tensor) -> Any:
        given = list(args)
        for k, x in zip(places, tensors, strict=True):
            given[k] = x
        return call(op)(*given)

    got = torch.vmap(of_tensors, tuple(dims[k] for k in places))(*(args[k] for k in places))
    want = [many(call(op)(*row)) for row in rows]
    for a, b in zip(many(got), zip(*want, strict=True), strict=True):
        torch.testing.assert_close(a, torch.stack(b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", [*TWICE, *ONCE])
def test_batches_of_gradients(op: str, device: str) -> None:
    """Rows of a Jacobian at once: the rules of the gradients."""
    args = recorded(sample(op, 0, device))
    wanted = [x for x in args if is_float(x)]
    y = many(call(op)(*args))[0]
    rows = Draw("rows", device).floats(SIZE, *y.shape)

    def grads(g: torch.Tensor, batched: bool) -> Any:
        return torch.autograd.grad(y, wanted, g, is_grads_batched=batched, retain_graph=True)

    want = zip(*(grads(row, False) for row in rows), strict=True)
    for a, b in zip(grads(rows, True), want, strict=True):
        torch.testing.assert_close(a, torch.stack(b), rtol=1e-12, atol=1e-12)
