"""gpuopt.torch: every operator as torch itself sees it, and beside torch's own.

`make test-torch` runs it, in an environment of its own.
Order: samples, torch's checks of every operator, gradients, torch.compile, torch.vmap,
drawn cases against torch's functions, autocast, refusals, modules, the document.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from test_docs import problems, wrong_examples
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


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two libraries' threads wait for each other where there are few processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    "causal_conv1d_update": lambda d: (d.floats(2, 3, 4), d.floats(2, 3), d.floats(3, 4)),
    "upsample_nearest": lambda d: (d.floats(2, 3, 4, 5), [7, 9], None, False, "NCHW"),
    "upsample_nearest_backward": lambda d: (
        d.floats(2, 3, 8, 10),
        [2, 3, 4, 5],
        None,
        [2.0, 2.0],
        False,
        "NCHW",
    ),
    **{f"max_pool{rank}d": pooling(rank) for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices": pooling(rank) for rank in (1, 2, 3)},
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
    """The first graph serves all sizes, forward and backward."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(DYNAMIC[name], fullgraph=True, dynamic=True, backend=counter)
    frames = []
    for n in (8, 6, 10):
        x = Draw(name, device).floats(n, n + 1, 2 * n).requires_grad_()
        z = x.detach().clone().requires_grad_()
        got, want = compiled(x), DYNAMIC[name](z)
        close(got, want)
        got.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(x.grad, z.grad, rtol=1e-10, atol=1e-10)
        frames.append(counter.frame_count)
    assert frames[0] == frames[-1]


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


# ---- drawn cases against torch's functions ----

CALLS = 300


class Case(NamedTuple):
    """Tensors and options for both functions; the error allowed, in u times `scale`.

    u is half a unit in the last place of 1.  `scale` is "result" (its absolute value),
    "terms" (the result of the absolute values of the tensors), or "same" (no error).
    """

    tensors: tuple[torch.Tensor, ...]
    options: dict[str, Any]
    bound: float = 0
    scale: str = "same"


def floating(d: Draw) -> torch.dtype:
    return d.pick(torch.float32, torch.float64)


def binary(d: Draw) -> Case:
    shape, dtype = d.sizes(d.one(0, 3)), floating(d)
    short = [d.pick(n, 1) for n in shape][d.one(0, len(shape)) :]
    x, y = d.view(*shape, dtype=dtype), d.view(*short, dtype=d.pick(dtype, torch.float32))
    x, y = x + 0.5 * x.sign(), y + 0.5 * y.sign()  # no quotient is large
    return Case((x, y) if d.one(0, 1) else (y, x), {})


def unary(bound: float, positive: bool = False) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        x = d.view(*d.sizes(d.one(0, 3), 0 if d.one(0, 9) == 0 else 1), dtype=floating(d))
        return Case((x.abs() + 0.25 if positive else x,), {}, bound, "result")

    return draw


def gelu_case(d: Draw) -> Case:
    case = unary(0)(d)
    far = float(case.tensors[0].abs().max()) if case.tensors[0].numel() else 0
    return case._replace(bound=16 + 2 * far**2, scale="terms")


def some_dims(d: Draw, rank: int) -> dict[str, Any]:
    dims = [i - rank * d.one(0, 1) for i in range(rank) if d.one(0, 1)]
    return {"dim": dims or None, "keepdim": bool(d.one(0, 1))} if rank else {}


def sums(d: Draw) -> Case:
    shape = d.sizes(d.one(0, 4))
    options = some_dims(d, len(shape))
    bound = math.log2(max(math.prod(shape), 1)) + 14
    return Case((d.view(*shape, dtype=floating(d)),), options, bound, "terms")


def extremes(d: Draw) -> Case:
    shape = d.sizes(d.one(1, 4))
    options = some_dims(d, len(shape))
    options["dim"] = options["dim"] or ()
    return Case((d.view(*shape, dtype=floating(d)).round(decimals=d.one(0, 3)),), options)


def places(d: Draw) -> Case:
    """argmax, argmin: one axis or none, and no equal elements."""
    shape = d.sizes(d.one(1, 3))
    options = {"dim": d.pick(None, d.one(-len(shape), len(shape) - 1))}
    return Case((d.view(*shape, dtype=floating(d)),), options)


def truths(d: Draw) -> Case:
    shape = d.sizes(d.one(1, 3))
    return Case((d.whole(0, 2, *shape),), some_dims(d, len(shape)))


def products(d: Draw) -> Case:
    shape = d.sizes(d.one(1, 3))
    options = {"dim": d.one(-len(shape), len(shape) - 1), "keepdim": bool(d.one(0, 1))}
    return Case((d.view(*shape, dtype=floating(d)),), options, 8, "result")


def scans(d: Draw) -> Case:
    shape = d.sizes(d.one(1, 3), 1, 40)
    options = {"dim": d.one(-len(shape), len(shape) - 1)}
    return Case((d.view(*shape, dtype=floating(d)),), options, 54, "terms")


def running_products(d: Draw) -> Case:
    shape = d.sizes(d.one(1, 3), 1, 20)
    x = d.floats(*shape, dtype=floating(d)).sign() * 1.125
    return Case((x,), {"dim": d.one(0, len(shape) - 1)}, 40, "result")


def vectors(d: Draw) -> Case:
    n, dtype = d.one(1, 200), floating(d)
    return Case((d.view(n, dtype=dtype), d.view(n, dtype=dtype)), {}, 23, "terms")


def index_adds(d: Draw) -> Case:
    shape, dtype = d.sizes(d.one(1, 3)), floating(d)
    dim, k = d.one(0, len(shape) - 1), d.one(0, 12)
    rows = [k if i == dim else n for i, n in enumerate(shape)]
    index = d.whole(0, shape[dim], k)
    tensors = (d.view(*shape, dtype=dtype), index, d.floats(*rows, dtype=dtype))
    return Case(tensors, {"dim": dim, "alpha": d.pick(1, 2, 0.5)}, 18, "terms")


def scatters(d: Draw) -> Case:
    shape, dtype = d.sizes(d.one(1, 3)), floating(d)
    dim = d.one(0, len(shape) - 1)
    given = [d.one(1, 9) if i == dim else d.one(1, n) for i, n in enumerate(shape)]
    index = d.whole(0, shape[dim], *given)
    source = d.view(*given, dtype=dtype)
    return Case((d.view(*shape, dtype=dtype), index, source), {"dim": dim}, 12, "terms")


def windows(rank: int) -> Callable[[Draw], Case]:
    def draw(d: Draw) -> Case:
        each: dict[str, Any] = {"kernel_size": d.sizes(rank, 1, 3)}
        each["stride"] = d.pick(None, d.sizes(rank, 1, 3))
        each["padding"] = [d.one(0, k // 2) for k in each["kernel_size"]]
        each["dilation"] = d.pick(1, 2)
        shape = [*d.sizes(d.one(1, 2), 1, 3), *d.sizes(rank, 5, 8)]
        x = d.view(*shape, dtype=floating(d)).round(decimals=d.one(0, 2))
        return Case((x,), {**each, "ceil_mode": bool(d.one(0, 1))})

    return draw


def resizings(d: Draw) -> Case:
    rank = d.one(1, 3)
    x = d.view(2, d.one(1, 3), *d.sizes(rank, 1, 5), dtype=floating(d))
    options: dict[str, Any] = {"mode": d.pick("nearest", "nearest-exact")}
    if d.one(0, 1):
        options["size"] = d.sizes(rank, 1, 12)
    else:
        options["scale_factor"] = [d.pick(1.5, 2.0, 2.5, 3.0) for _ in range(rank)]
    return Case((x,), options)


def causal(d: Draw) -> Case:
    channels, k, dtype = d.one(1, 4), d.one(1, 9), floating(d)
    x = d.view(d.one(1, 3), channels, d.one(1, 20), dtype=dtype)
    bias = d.view(channels, dtype=dtype)
    return Case((x, d.view(channels, k, dtype=dtype), bias), {}, 24, "terms")


def filters(d: Draw) -> Case:
    dtype = floating(d)
    a, v = d.view(d.one(1, 3), d.one(1, 20), dtype=dtype), d.view(d.one(1, 9), dtype=dtype)
    return Case((a, v), {"mode": d.pick("full", "same", "valid")}, 40, "terms")


def matvecs(d: Draw) -> Case:
    dtype, (n, rows, m, out) = floating(d), d.sizes(4, 1, 8)
    x, matrix = d.view(n, rows, m, dtype=dtype), d.view(out, rows, dtype=dtype)
    return Case((x, matrix), {}, 48, "terms")


def bits_of(d: Draw) -> Case:
    n = d.one(1, 6)
    bits = [b for b in range(n) if d.one(0, 1)]
    return Case((d.view(1 << n, dtype=floating(d)),), {"bits": bits}, 18, "terms")


def by_conv1d(x: Any, w: Any, bias: Any) -> torch.Tensor:
    padded = F.pad(x, (w.shape[1] - 1, 0))
    return F.conv1d(padded, w[:, None], bias, groups=w.shape[0])


def by_conv_full(a: Any, v: Any, mode: str) -> torch.Tensor:
    """torchaudio.functional.convolve, for rows and one filter."""
    n, m = a.shape[-1], v.shape[-1]
    full = F.conv1d(F.pad(a[:, None], (m - 1, m - 1)), v.flip(0)[None, None])[:, 0]
    short, long = min(n, m), max(n, m)
    first, kept = {
        "full": (0, n + m - 1),
        "same": ((short - 1) // 2, long),
        "valid": (short - 1, long - short + 1),
    }[mode]
    return full[:, first : first + kept]


def by_bits(x: torch.Tensor, bits: list[int]) -> torch.Tensor:
    n = x.shape[0].bit_length() - 1
    y = x.reshape([2] * n) if n else x
    left = [n - 1 - b for b in range(n) if b not in bits]
    y = y.sum(left) if left else y
    return y.reshape(-1)


def by_index_add(x: Any, index: Any, source: Any, dim: int, alpha: Any) -> torch.Tensor:
    return torch.index_add(x, dim, index, source, alpha=alpha)


def ours_index_add(x: Any, index: Any, source: Any, dim: int, alpha: Any) -> torch.Tensor:
    return gt.index_add(x, dim, index, source, alpha=alpha)


# gpuopt's function, torch's, and how a case is drawn.
PEERS: dict[str, tuple[Any, Any, Callable[[Draw], Case]]] = {
    **{
        name: (getattr(gt, name), getattr(torch, name), binary)
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
    **{
        name: (getattr(gt, name), getattr(torch, name), unary(bound))
        for name, bound in (
            ("negative", 0), ("abs", 0), ("relu", 0), ("exp", 4), ("tanh", 8), ("sigmoid", 8),
        )
    },
    "log": (gt.log, torch.log, unary(8, positive=True)),
    "sqrt": (gt.sqrt, torch.sqrt, unary(2, positive=True)),
    "silu": (gt.silu, F.silu, unary(8)),
    "gelu": (gt.gelu, F.gelu, gelu_case),
    "where": (
        lambda x, y: gt.where(x > 0, x, y),
        lambda x, y: torch.where(x > 0, x, y),
        binary,
    ),
    "clip": (
        lambda x: gt.clip(x, -0.5, 0.75), lambda x: torch.clip(x, -0.5, 0.75), unary(0),
    ),
    "sum": (gt.sum, torch.sum, sums),
    "mean": (gt.mean, torch.mean, sums),
    "amax": (gt.amax, torch.amax, extremes),
    "amin": (gt.amin, torch.amin, extremes),
    "argmax": (gt.argmax, torch.argmax, places),
    "argmin": (gt.argmin, torch.argmin, places),
    "any": (gt.any, torch.any, truths),
    "all": (gt.all, torch.all, truths),
    "prod": (gt.prod, torch.prod, products),
    "cumsum": (gt.cumsum, torch.cumsum, scans),
    "cumprod": (gt.cumprod, torch.cumprod, running_products),
    "dot": (gt.dot, torch.dot, vectors),
    "index_add": (ours_index_add, by_index_add, index_adds),
    "scatter_add": (
        lambda x, index, y, dim: gt.scatter_add(x, dim, index, y),
        lambda x, index, y, dim: torch.scatter_add(x, dim, index, y),
        scatters,
    ),
    "max_pool1d": (gt.max_pool1d, F.max_pool1d, windows(1)),
    "max_pool2d": (gt.max_pool2d, F.max_pool2d, windows(2)),
    "max_pool3d": (gt.max_pool3d, F.max_pool3d, windows(3)),
    "interpolate": (gt.interpolate, F.interpolate, resizings),
    "causal_conv1d": (gt.causal_conv1d, by_conv1d, causal),
    "convolve": (gt.convolve, by_conv_full, filters),
    "mean_matvec": (gt.mean_matvec, lambda x, m: m @ x.mean(2).T, matvecs),
    "partition_reduce": (gt.partition_reduce, by_bits, bits_of),
}  # fmt: skip

NOT_DIFFERENTIATED = ("argmax", "argmin", "any", "all", "prod", "cumprod")


def within(got: torch.Tensor, want: torch.Tensor, bound: float, scale: torch.Tensor) -> None:
    """|got - want| <= bound u scale, and equal where both are nan or infinite.

    `want` is computed in float64: its own error counts where `got` is float64, too.
    """
    u = 2.0**-24 if got.dtype == torch.float32 else 2.0**-52
    assert got.shape == want.shape
    wide = got.double()
    fine = (wide - want.double()).abs() <= bound * u * scale.double() + 1e-300
    assert bool((fine | (wide == want.double())).all()), (got, want)


def grads_of(y: torch.Tensor, g: torch.Tensor, tensors: Any) -> list[torch.Tensor]:
    wanted = [x for x in tensors if is_float(x)]
    return list(torch.autograd.grad(y, wanted, g))


def wide_ones(tensors: Any, absolute: bool = False) -> list[torch.Tensor]:
    """The tensors in float64, or their absolute values, for torch's own function."""
    found = [x.detach().double() if is_float(x) else x for x in tensors]
    found = [x.abs() if absolute and is_float(x) else x for x in found]
    return [x.requires_grad_() if is_float(x) else x for x in found]


@pytest.mark.parametrize("name", PEERS)
def test_as_torch(name: str, device: str) -> None:
    """Forward within the bound of help(gpuopt.<op>); gradients within docs/torch.md's."""
    ours, theirs, draw = PEERS[name]
    d = Draw(name, device)
    for _ in range(CALLS):
        case = draw(d)
        tensors = [x.requires_grad_() if is_float(x) else x for x in case.tensors]
        if name in NOT_DIFFERENTIATED:
            tensors = [x.detach() for x in tensors]
        got = ours(*tensors, **case.options)
        exact = theirs(*(x.detach() for x in case.tensors), **case.options)
        assert got.dtype == exact.dtype and got.shape == exact.shape
        if case.scale == "same":
            assert torch.equal(got, exact)
        wide = wide_ones(case.tensors)
        want = theirs(*wide, **case.options)
        terms = theirs(*(wide_ones(case.tensors, absolute=True)), **case.options)
        if case.scale != "same":
            within(got, want, case.bound, (terms if case.scale == "terms" else want).abs())
        if name in NOT_DIFFERENTIATED or not got.numel():
            continue
        g = d.floats(*got.shape, dtype=got.dtype)
        both = zip(grads_of(got, g, tensors), grads_of(want, g.double(), wide), strict=True)
        least = 1 + float(g.abs().sum())  # see docs/torch.md
        most = max((float(x.abs().max()) for x in wide if is_float(x) and x.numel()), default=0)
        for a, b in both:
            within(a, b, 64, (1 + most) ** 2 * torch.full_like(b, least))


def test_common_dtypes_are_torch_s() -> None:
    kinds = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16]
    kinds += [torch.float32, torch.float64, torch.complex64]
    for a in kinds:
        for b in kinds:
            for x, y in ((torch.ones(2, dtype=a), torch.ones(2, dtype=b)),
                         (torch.ones(2, dtype=a), torch.ones((), dtype=b))):  # fmt: skip
                assert gt._library.common_dtype([x, y]) == torch.result_type(x, y)
        for number in (True, 2, 2.5, 2j):
            x = torch.ones(2, dtype=a)
            assert gt._elementwise.with_number(a, number) == torch.result_type(x, number)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.bool])
def test_whole_numbers_have_torch_s_dtypes(dtype: torch.dtype, device: str) -> None:
    x = Draw("whole", device).whole(0, 5, 4, 3).to(dtype)
    for ours, theirs in (
        (gt.sum(x), torch.sum(x)),
        (gt.sum(x, 1, keepdim=True), torch.sum(x, 1, keepdim=True)),
        (gt.prod(x, 0), torch.prod(x, 0)),
        (gt.cumsum(x, 0), torch.cumsum(x, 0)),
        (gt.amax(x, 1), torch.amax(x, 1)),
        (gt.add(x, 2), torch.add(x, 2)),
        (gt.multiply(x, 2.5), torch.multiply(x, 2.5)),
        (gt.divide(x, x + 1), torch.divide(x, x + 1)),
        (gt.clip(x, 1, 3), torch.clip(x, 1, 3)),
        (gt.where(x > 1, x, 7), torch.where(x > 1, x, 7)),
        (gt.sum(x, dtype=torch.float32), torch.sum(x, dtype=torch.float32)),
    ):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    torch.testing.assert_close(gt.exp(x), torch.exp(x))


def test_indices_of_poolings_are_torch_s(device: str) -> None:
    d = Draw("indices", device)
    for rank in (1, 2, 3):
        x = d.whole(0, 5, 2, 3, *[7] * rank).float()
        got = getattr(gt, f"max_pool{rank}d")(x, 3, 2, 1, return_indices=True)
        want = getattr(F, f"max_pool{rank}d")(x, 3, 2, 1, return_indices=True)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_views_are_not_copied(device: str) -> None:
    """Channels-last tensors and other views go in with the strides they have."""
    x = torch.randn(2, 8, 16, 16, device=device).to(memory_format=torch.channels_last)
    assert torch.equal(gt.max_pool2d(x, 2), F.max_pool2d(x, 2))
    if device == "cpu":
        gpuopt.measure_calls(True)
        try:
            gt.sum(x[:, :, ::2].transpose(1, 3), 1)
            packed = (gpuopt.last_call() or {})["packed"]
        finally:
            gpuopt.measure_calls(False)
        assert not packed


# ---- autocast ----


def test_autocast(device: str) -> None:
    """Filters and products take autocast's dtype, as in torch; all others their inputs'."""
    kind = torch.device(device).type
    x, w = torch.randn(2, 3, 8, device=device), torch.randn(3, 4, device=device)
    w.requires_grad_()
    lower = [op for op in OPS if gt.OPERATORS[op].autocast]
    assert lower == ["dot", "mean_matvec", "causal_conv1d", "convolve"]
    with torch.autocast(kind, dtype=torch.bfloat16):
        y = gt.causal_conv1d(x.bfloat16(), w)
        assert y.dtype == gt.causal_conv1d(x, w).dtype == torch.bfloat16
        assert gt.dot(x[0, 0], x[0, 1]).dtype == torch.bfloat16
        assert gt.convolve(x, x[0, 0, :2]).dtype == torch.bfloat16
        assert gt.mean_matvec(x, torch.ones(2, 3, device=device)).dtype == torch.bfloat16
        assert gt.sum(x).dtype == gt.exp(x).dtype == torch.float32
        assert gt.convolve(x.double(), x.double()).dtype == torch.float64
    y.float().sum().backward()
    assert w.grad is not None and w.grad.dtype == torch.float32


# ---- refusals ----


def ones(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(*shape, **options)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an axis": (lambda: gt.sum(ones(3), 1), IndexError, "axis 1 is out of bounds"),
    "an axis twice": (lambda: gt.sum(ones(3, 3), (0, -2)), ValueError, "duplicate|repeated"),
    "integers": (lambda: gt.mean(ones(3).long()), TypeError, "mean.* takes floats"),
    "no tensor": (lambda: gt.add(1, 2), TypeError, "takes a tensor, not two numbers"),
    "an index": (
        lambda: gt.index_add(ones(3), 0, torch.tensor([5]), ones(1)),
        IndexError,
        "index 5 at position 0 is out of bounds",
    ),
    "a mode": (
        lambda: gt.index_add(ones(3), 0, torch.tensor([0]), ones(1), mode="round"),
        ValueError,
        "'mode' must be",
    ),
    "an index to scatter": (
        lambda: gt.scatter_add(ones(2, 3), 0, torch.tensor([[2]]), ones(1, 1)),
        IndexError,
        "out of bounds",
    ),
    "ranks": (
        lambda: gt.scatter_add(ones(2, 3), 0, torch.tensor([0]), ones(1)),
        ValueError,
        "same number of dimensions",
    ),
    "a source": (
        lambda: gt.scatter_add(ones(3), 0, torch.tensor([0, 1]), ones(1)),
        ValueError,
        "does not fit in src",
    ),
    "a dtype": (
        lambda: gt.causal_conv1d(ones(1, 2, 3), ones(2, 2).double()),
        TypeError,
        "dtype",
    ),
    "channels": (lambda: gt.causal_conv1d(ones(1, 2, 3), ones(3, 2)), ValueError, "channels"),
    "a linear mode": (
        lambda: gt.interpolate(ones(1, 1, 3), 5, mode="linear"),
        ValueError,
        "mode='linear'",
    ),
    "no size": (lambda: gt.upsample_nearest(ones(1, 1, 3)), ValueError, "exactly one of size"),
    "tanh of gelu": (
        lambda: gt.gelu(ones(3), approximate="tanh"),
        ValueError,
        "approximate='none'",
    ),
    "a padding": (lambda: gt.max_pool1d(ones(1, 1, 5), 2, padding=2), ValueError, "half"),
    "a rank": (lambda: gt.max_pool2d(ones(3, 3), 2), ValueError, "dimension"),
    "complex": (lambda: gt.exp(ones(3).to(torch.complex64)), TypeError, "complex"),
    "bools": (lambda: gt.subtract(ones(3).bool(), ones(3).bool()), TypeError, "bool"),
    "shapes": (lambda: gt.add(ones(3), ones(4)), ValueError, "broadcast"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    function, kind, sentence = BAD[name]
    with pytest.raises(kind, match=sentence) as caught:
        function()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_mixed_devices_are_refused() -> None:
    with pytest.raises(TypeError, match="devices"):
        gt.add(ones(3), ones(3, device="cuda"))


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
def test_a_captured_graph() -> None:
    """mode="raise" is refused with a sentence; gpuopt's and torch's operators interleave."""
    x, index = torch.randn(64, device="cuda"), torch.arange(64, device="cuda").flip(0)

    def step(mode: str) -> torch.Tensor:
        return gt.index_add(gt.multiply(x, 2) + 1, 0, index, gt.cumsum(x, 0), mode=mode) * 3

    want = step("clip")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step("clip")
    x.mul_(2)
    graph.replay()
    torch.testing.assert_close(got, step("clip"))
    assert not torch.equal(got, want)
    with pytest.raises(Exception, match="captur"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        step("raise")


# ---- modules ----


def test_causal_conv1d_takes_the_state_of_conv1d(device: str) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Conv1d(5, 5, 4, groups=5, padding=3, device=device, dtype=torch.float64)
    torch.manual_seed(0)
    ours = gt.CausalConv1d(5, 4, device=device, dtype=torch.float64)
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)  # the same initial values, too
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 5, 9, device=device, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x)[..., :9])
    other = gt.CausalConv1d(5, 4, bias=False, activation="silu", layout="BTC", device=device)
    assert repr(other) == (
        "CausalConv1d(5, kernel_size=4, bias=False, activation='silu', layout='BTC')"
    )
    assert list(other.state_dict()) == ["weight"]


def by_hand(x: Any, weight: Any, bias: Any, states: Any, activation: Any) -> Any:
    """causal_conv1d_fn of torch's own operators: the result and the last K - 1 steps."""
    kept = weight.shape[1] - 1
    before = x.new_zeros(*x.shape[:2], kept) if states is None else states
    row = torch.cat([before, x], 2)
    y = torch.nn.functional.conv1d(row, weight[:, None], bias, groups=x.shape[1])
    return torch.nn.functional.silu(y) if activation else y, row[..., row.shape[2] - kept :]


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("steps", [1, 2, 40])
@pytest.mark.parametrize("last", [False, True])
def test_causal_conv1d_fn_with_states(
    steps: int, activation: str | None, last: bool, device: str
) -> None:
    """Values and gradients, channels first and last in memory."""
    d = Draw(f"fn{steps}", device)
    x, weight, bias, states = d.floats(2, 20, steps), d.floats(20, 4), d.floats(20), None
    if last:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    for states in (None, d.floats(2, 20, 3)):
        args = recorded((x, weight, bias)) + (recorded((states,)) if states is not None else ())
        given = (*args[:3], None, args[3] if states is not None else None)
        y, final = gt.causal_conv1d_fn(*given, return_final_states=True, activation=activation)
        want = by_hand(*args[:3], given[4], activation)
        torch.testing.assert_close(y, want[0])
        torch.testing.assert_close(final, want[1], rtol=0, atol=0)
        g, h = torch.rand_like(y), torch.rand_like(final)
        grads = torch.autograd.grad((y, final), args, (g, h), allow_unused=True)
        wants = torch.autograd.grad(want, args, (g, h), allow_unused=True)
        for a, b in zip(grads, wants, strict=True):
            torch.testing.assert_close(a, b)
        out = torch.empty_like(final)
        _, same = gt.causal_conv1d_fn(
            *(a.detach() if a is not None else None for a in given), True, out, activation
        )
        assert same is out
        torch.testing.assert_close(out, final.detach(), rtol=0, atol=0)


def test_causal_conv1d_fn_with_sequences_in_a_row(device: str) -> None:
    """No product crosses a border, in the gradients neither."""
    d = Draw("seq_idx", device)
    args = recorded((d.floats(2, 17, 12), d.floats(17, 4), d.floats(17)))
    ids = torch.tensor([[0] * 5 + [1] * 7, [0] * 1 + [3] * 2 + [4] * 9], dtype=torch.int32)
    ids = ids.to(device)
    y = gt.causal_conv1d_fn(*args, seq_idx=ids, activation="silu")
    x, weight, bias = args
    rows = []
    for b, cuts in enumerate(((5, 7), (1, 2, 9))):
        parts = x[b : b + 1].split(cuts, 2)
        rows.append(torch.cat([by_hand(p, weight, bias, None, "silu")[0] for p in parts], 2))
    want, g = torch.cat(rows), torch.rand_like(y)
    torch.testing.assert_close(y, want)
    for a, b in zip(
        torch.autograd.grad(y, args, g), torch.autograd.grad(want, args, g), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_causal_conv1d_update_is_in_place(device: str) -> None:
    """Of all states, of those that indices name, of one step and of several."""
    d = Draw("update", device)
    weight, bias, pool = d.floats(20, 4), d.floats(20), d.floats(6, 20, 5)
    index = torch.tensor([4, 0, 5], dtype=torch.int32, device=device)
    for shape, at in (
        ((6, 20), None),
        ((6, 20, 3), None),
        ((3, 20), index),
        ((3, 20, 7), index),
    ):
        x, state = d.floats(*shape), pool.clone()
        rows = pool if at is None else pool[at.long()]
        steps = x if x.dim() == 3 else x[..., None]
        want, last = by_hand(steps, weight, bias, rows[..., 2:], "silu")
        after = torch.cat([rows, steps], 2)[..., -5:]
        y = gt.causal_conv1d_update(x, state, weight, bias, "silu", conv_state_indices=at)
        torch.testing.assert_close(y, want.reshape(x.shape))
        expected = pool.clone()
        expected[slice(None) if at is None else at.long()] = after
        assert torch.equal(state, expected)
        assert torch.equal(state[..., -3:] if at is None else state[at.long()][..., -3:], last)


def test_causal_conv1d_update_compiles(device: str, fresh: None) -> None:
    d = Draw("compiled", device)
    x, state, weight = d.floats(2, 20), d.floats(2, 20, 3), d.floats(20, 4)
    other = state.clone()
    run = torch.compile(gt.causal_conv1d_update, fullgraph=True, backend="aot_eager")
    want = gt.causal_conv1d_update(x, state, weight)
    assert torch.equal(run(x, other, weight), want)
    assert torch.equal(other, state)


def test_what_causal_conv1d_s_functions_refuse() -> None:
    x, weight, states = ones(1, 2, 3), ones(2, 4), ones(1, 2, 3)
    ids = torch.zeros(1, 3, dtype=torch.int32)
    fn, update = gt.causal_conv1d_fn, gt.causal_conv1d_update
    with pytest.raises(ValueError, match="activation must be None, 'silu' or 'swish'"):
        fn(x, weight, activation="relu")
    with pytest.raises(ValueError, match="seq_idx does not go with initial_states"):
        fn(x, weight, None, ids, states)
    with pytest.raises(ValueError, match="seq_idx does not go with return_final_states"):
        fn(x, weight, None, ids, return_final_states=True)
    with pytest.raises(ValueError, match="return_final_states is False"):
        fn(x, weight, final_states_out=states)
    with pytest.raises(ValueError, match=r"\(1, 2, 2\), but .* call for \(1, 2, 3\)"):
        fn(x, weight, initial_states=states[..., 1:])
    with pytest.raises(TypeError, match="causal_conv1d_update has no gradient"):
        update(x.requires_grad_(), states, weight)
    with torch.no_grad():
        update(x, states, weight)
    with pytest.raises(IndexError, match="index 1 is out of bounds for axis 0 with size 1"):
        update(x.detach(), states, weight, conv_state_indices=torch.tensor([1]))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_poolings_are_torch_s(rank: int, device: str) -> None:
    name = f"MaxPool{rank}d"
    ours, theirs = getattr(gt, name)(3, 2, 1), getattr(torch.nn, name)(3, 2, 1)
    x = torch.randn(2, 3, *[9] * rank, device=device)
    assert isinstance(ours, type(theirs)) and repr(ours) == repr(theirs)
    assert torch.equal(ours(x), theirs(x))


def test_upsample_nearest_is_torch_s(device: str) -> None:
    x = torch.randn(2, 3, 4, 5, device=device)
    for exact, mode in ((False, "nearest"), (True, "nearest-exact")):
        theirs = torch.nn.Upsample(scale_factor=2.5, mode=mode)
        assert torch.equal(gt.UpsampleNearest(scale_factor=2.5, exact=exact)(x), theirs(x))
    assert repr(gt.UpsampleNearest(7)) == "UpsampleNearest(size=7)"


def test_a_model_learns(device: str, fresh: None) -> None:
    """The same losses with torch's layers, with ours, and with ours compiled."""

    def losses(ours: bool, compiled: bool) -> list[float]:
        torch.manual_seed(0)
        kinds: tuple[Any, Any] = (gt.MaxPool1d, gt.UpsampleNearest)
        pool, up = kinds if ours else (torch.nn.MaxPool1d, torch.nn.Upsample)
        net = torch.nn.Sequential(pool(2), torch.nn.Conv1d(3, 4, 3), up(scale_factor=2))
        net = net.to(device)
        run = torch.compile(net, fullgraph=True, backend="aot_eager") if compiled else net
        x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1)).to(device)
        optimiser, found = torch.optim.SGD(net.parameters(), 0.1), []
        for _ in range(5):
            loss = run(x).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            found.append(float(loss))
        return found

    want = losses(False, False)
    assert want[-1] < want[0]
    for compiled in (False, True):
        assert losses(True, compiled) == pytest.approx(want, rel=1e-5)


# ---- the document ----


def test_the_table_of_the_document() -> None:
    """docs/torch.md has a row for every operator, with what the code says of it."""
    text = (Path(__file__).parents[1] / "docs" / "torch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \| .* \| (.*) \| (.*) \|$", text, re.MULTILINE)
    found = {}
    for names, differentiable, batches in rows:
        for name in re.findall(r"`(\w+)`", names):
            found[name] = (differentiable, batches)
    assert set(found) == set(OPS)
    for name, operator in gt.OPERATORS.items():
        assert found[name] == (operator.differentiable, operator.batches), name


def test_the_document_shows_what_the_code_prints() -> None:
    text = (Path(__file__).parents[1] / "docs" / "torch.md").read_text(encoding="utf-8")
    assert text.count("<!-- example: needs torch -->") == text.count("```python") >= 2
    found = list(problems(text))
    assert found == [], "\n".join(found)


def test_the_example_of_the_package_is_right() -> None:
    assert ">>>" in (gt.__doc__ or "")
    wrong = wrong_examples("gpuopt.torch", gt.__doc__ or "")
    assert not wrong, wrong
