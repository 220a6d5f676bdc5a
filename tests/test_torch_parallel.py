"""gpuopt.torch.parallel: causal convolutions whose steps are spread over 1, 2 and 4 processes.

`make test-torch` runs it, in an environment of its own.  The processes of a group are started
once and go through all its cases with gloo; the test of a case reads what they left.
Order: cases, what a rank does, the results, bad input, one process.
"""

from __future__ import annotations

import datetime
import functools
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import gpuopt.torch as gt
from gpuopt import ref
from gpuopt.torch import parallel

WORLDS = (2, 4)
DTYPES = ("float32", "float64", "float16", "bfloat16")


# ---- cases ----


class Case(NamedTuple):
    """One call; `steps` has a slice for each of four ranks, of which two take pairs."""

    steps: tuple[int, int, int, int]
    taps: int
    dtype: str = "float32"
    exchange: str = "auto"
    batch: int = 2
    channels: int = 3
    bias: bool = True
    options: tuple[tuple[str, Any], ...] = ()
    check: bool = True

    def slices(self, world: int) -> tuple[int, ...]:
        a, b, c, d = self.steps
        return {1: (sum(self.steps),), 2: (a + b, c + d), 4: self.steps}[world]

    def tensors(self) -> dict[str, torch.Tensor]:
        """dy, x, w and bias of the whole call, the same in every process."""
        random = torch.Generator().manual_seed(zlib.crc32(repr(self).encode()))
        rows = [self.batch, self.channels, sum(self.steps)]
        if dict(self.options).get("layout") == "BTC":
            rows = [rows[0], rows[2], rows[1]]
        shapes = {"dy": rows, "x": rows, "w": [self.channels, self.taps]}
        shapes["bias"] = [self.channels]
        made = {
            n: torch.randn(s, generator=random, dtype=torch.float64) for n, s in shapes.items()
        }
        return {n: a.to(getattr(torch, self.dtype)) for n, a in made.items()}

    @property
    def axis(self) -> int:
        return 1 if dict(self.options).get("layout") == "BTC" else 2


SILU, BTC, EPS = ("activation", "silu"), ("layout", "BTC"), ("eps", -0.25)
CASES = {
    **{f"4 taps {d}": Case((8, 8, 8, 8), 4, d, options=(SILU,)) for d in DTYPES},
    **{f"whole row {d}": Case((8, 8, 8, 8), 32, d, options=(SILU,)) for d in DTYPES},
    **{
        f"{exchange} {k} {len(options)}": Case(
            (7, 9, 7, 9), k, exchange=exchange, options=options, bias=bool(options)
        )
        for exchange in ("halo", "channels")
        for k in (1, 2, 8)
        for options in ((), (BTC,), (SILU, BTC, EPS))
    },
    "as many taps as steps and one": Case((5, 5, 5, 5), 6, options=(SILU,)),
    "a short last slice": Case((9, 9, 9, 1), 9, options=(SILU,)),
    "a short first slice": Case((1, 9, 9, 9), 9, options=(SILU,)),
    "slices of one step": Case((1, 1, 1, 1), 2, options=(SILU,)),
    "filters longer than all": Case((3, 4, 5, 6), 40, options=(SILU,)),
    "fewer channels than ranks": Case((8, 8, 8, 8), 30, channels=1),
    "many channels": Case((8, 8, 8, 8), 4, channels=40, options=(BTC, SILU)),
    "long": Case((500, 501, 502, 497), 4, options=(SILU,)),
    "long filters": Case((500, 501, 502, 497), 2000, options=(SILU,)),
    "long halo": Case((600, 600, 600, 200), 301, exchange="halo"),
    "unchecked": Case((8, 8, 8, 8), 5, options=(SILU,), check=False),
    "unchecked channels": Case((8, 8, 8, 8), 20, options=(SILU,), check=False),
}


# ---- what a rank does ----


def slice_of(case: Case, rank: int, world: int, a: torch.Tensor) -> torch.Tensor:
    lengths = case.slices(world)
    return a.narrow(case.axis, sum(lengths[:rank]), lengths[rank])


def run(case: Case, rank: int, world: int) -> dict[str, torch.Tensor]:
    """y, dx, dw and dbias of a rank."""
    whole = case.tensors()
    x, dy = (slice_of(case, rank, world, whole[n]).detach() for n in ("x", "dy"))
    x.requires_grad_()
    w = whole["w"].requires_grad_()
    bias = whole["bias"].requires_grad_() if case.bias else None
    options = dict(case.options)
    activation = options.pop("activation", None)
    how = {"exchange": case.exchange, "check": case.check, **options}
    y = parallel.causal_conv1d(x, w, bias, activation, **how)
    y.backward(dy)
    found = {"y": y.detach(), "dx": x.grad, "dw": w.grad}
    return {**found, "dbias": bias.grad} if bias is not None else found  # type: ignore[dict-item]


def bad_calls(rank: int, world: int) -> dict[str, Any]:
    """Calls with an error on some ranks, each to be raised on all of them."""
    last = rank == world - 1
    x, w = torch.ones(2, 3, 6), torch.ones(3, 4)
    conv = parallel.causal_conv1d
    grad = torch.ones(2, 3, 6, requires_grad=True)
    return {
        "batch": lambda: conv(torch.ones(1, 3, 6) if last else x, w),
        "channels": lambda: conv(torch.ones(2, 4, 6) if last else x, w),
        "both channels": lambda: conv(*((x[:, :2], w[:2]) if last else (x, w))),
        "dimensions": lambda: conv(x[0] if last else x, w),
        "no step": lambda: conv(x[:, :, :0] if last else x, w),
        "dtype": lambda: conv(*((x.double(), w.double()) if last else (x, w))),
        "one dtype": lambda: conv(x.double() if last else x, w),
        "not a tensor": lambda: conv([1.0] if last else x, w),
        "taps": lambda: conv(x, torch.ones(3, 5) if last else w),
        "bias": lambda: conv(x, w, torch.ones(3) if last else None),
        "eps": lambda: conv(x, w, eps=1.0 if last else 0.0),
        "activation": lambda: conv(x, w, None, "silu" if last else None),
        "exchange": lambda: conv(x, w, exchange="channels" if last else "halo"),
        "no exchange": lambda: conv(x, w, exchange="ring"),
        "gradient": lambda: conv(grad if last else x, w),
        "short": lambda: conv(x, torch.ones(3, 8), exchange="halo"),
        "integers": lambda: conv(x.int(), w.int()),
        "group": lambda: conv(x, w, group="all"),
        "long text": lambda: conv(x, w, exchange="x" * 2000),
    }


def twice(rank: int, world: int) -> None:
    x = torch.ones(1, 1, 4, requires_grad=True)
    y = parallel.causal_conv1d(x, torch.ones(1, 2))
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    dx.sum().backward()


def inside(rank: int, world: int) -> dict[str, torch.Tensor]:
    """A group of the last two ranks, in reverse order, and calls without a gradient."""
    group = dist.new_group([world - 2, world - 1])
    x = torch.arange(6.0).view(1, 1, 6) + 10 * rank
    w = torch.tensor([[1.0, 10.0, 100.0]])
    found = {}
    if rank >= world - 2:
        for exchange in ("halo", "channels"):
            found[exchange] = parallel.causal_conv1d(x, w, group=group, exchange=exchange)
    else:
        with pytest.raises(ValueError, match="this process is not a rank of the group"):
            parallel.causal_conv1d(x, w, group=group)
    with torch.autocast("cpu", torch.bfloat16):
        found["autocast"] = parallel.causal_conv1d(x, w)
    frozen = torch.ones(1, 2)
    x.requires_grad_()
    parallel.causal_conv1d(x, frozen, torch.ones(1)).sum().backward()
    found["dx alone"] = x.grad  # type: ignore[assignment]
    filters = torch.ones(1, 2, requires_grad=True)
    parallel.causal_conv1d(x.detach(), filters).sum().backward()
    found["dw alone"] = filters.grad  # type: ignore[assignment]
    return found


def work(rank: int, world: int, folder: str) -> None:
    """All cases of a rank, kept in a file."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=300),  # a rank that has failed, not a slow one
    )
    found: dict[str, Any] = {name: run(case, rank, world) for name, case in CASES.items()}
    for name, call in bad_calls(rank, world).items():
        try:
            call()
            found[f"bad {name}"] = "nothing raised"
        except (TypeError, ValueError) as error:
            found[f"bad {name}"] = f"{type(error).__name__}: {error}"
    try:
        twice(rank, world)
    except RuntimeError as error:
        found["twice"] = str(error)
    found["inside"] = inside(rank, world)
    torch.save(found, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the ranks of a world found."""

    @functools.cache
    def of(world: int) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp(f"world{world}")
        mp.spawn(work, args=(world, str(folder)), nprocs=world)
        return [torch.load(Path(folder) / str(rank)) for rank in range(world)]

    return of


# ---- the results ----


def numpy_of(a: torch.Tensor) -> np.ndarray[Any, Any]:
    return a.detach().to(torch.float64).numpy()


def limits(case: Case, world: int) -> dict[str, tuple[Any, Any]]:
    """The exact results and the bounds of gpuopt's own tests for the whole call.

    dw and dbias have one rounding more per rank where the dtype has 16 bits, and the
    additions of the ranks; silu's slope is at most 1.1.
    """
    import ml_dtypes
    from cases import unit
    from cases.causal_conv1d import expect_backward, expect_forward

    kind = np.dtype(ml_dtypes.bfloat16) if case.dtype == "bfloat16" else np.dtype(case.dtype)
    whole = {n: numpy_of(a).astype(kind) for n, a in case.tensors().items()}
    options = dict(case.options)
    rung = "spectra" if case.taps > 64 else ""  # which a CPU may choose for long filters
    arrays = [whole["x"], whole["w"]] + ([whole["bias"]] if case.bias else [])
    forward = expect_forward(arrays, options, rung)
    backward = expect_backward([whole["dy"], *arrays], options, rung)
    found = {"y": (forward.value, forward.tolerance)}  # type: ignore[union-attr]
    for name, part in zip(("dx", "dw", "dbias"), backward.parts, strict=False):
        found[name] = (part.value, part.tolerance)
    sizes = [np.abs(numpy_of(case.tensors()[n])) for n in ("dy", "x", "w", "bias")]
    layout = options.get("layout", "BCT")
    sums = ref.causal_conv1d_backward(*sizes, layout=layout)
    u = (
        unit(kind) + world * unit(np.dtype(np.float32))
        if kind.itemsize == 2
        else world * unit(kind)
    )
    for name, total in zip(("dw", "dbias"), sums[1:], strict=True):
        if name in found:
            found[name] = (found[name][0], found[name][1] + 1.2 * u * total)
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("world", WORLDS)
def test_the_slices_are_those_of_the_whole_call(ranks: Any, world: int, name: str) -> None:
    case, found = CASES[name], [rank[name] for rank in ranks(world)]
    for part, (value, limit) in limits(case, world).items():
        pieces = [rank[part] for rank in found]
        assert all(p.dtype == getattr(torch, case.dtype) for p in pieces)
        if part in ("y", "dx"):
            assert [p.shape[case.axis] for p in pieces] == list(case.slices(world))
            got = torch.cat(pieces, case.axis)
        else:
            assert all(torch.equal(p, pieces[0]) for p in pieces), f"{part} differs by rank"
            got = pieces[0]
        error = np.abs(numpy_of(got) - value.astype(np.float64))
        assert got.shape == value.shape
        assert (error <= limit.astype(np.float64)).all(), f"{part}: {error.max()}"


def test_the_bounds_notice_a_missing_step() -> None:
    """Slices computed alone, without what is before them, are not within the bound."""
    case = CASES["4 taps float32"]
    whole = case.tensors()
    parts = [
        gt.causal_conv1d(slice_of(case, r, 4, whole["x"]), whole["w"], whole["bias"], "silu")
        for r in range(4)
    ]
    value, limit = limits(case, 4)["y"]
    assert not (np.abs(numpy_of(torch.cat(parts, 2)) - value) <= limit).all()


# ---- bad input ----

SENTENCES = {
    "batch": "ValueError: rank 0 and rank {last} differ in the batch of x",
    "channels": "ValueError: rank {last}: w has 3 channels, x has 4",
    "both channels": "ValueError: rank 0 and rank {last} differ in the channels of x",
    "dimensions": "ValueError: rank {last}: x must have 3 dimensions and hold a step, "
    "not (3, 6)",
    "no step": "ValueError: rank {last}: x must have 3 dimensions and hold a step, "
    "not (2, 3, 0)",
    "dtype": "ValueError: rank 0 and rank {last} differ in the dtype of x",
    "one dtype": "TypeError: rank {last}: ",
    "not a tensor": "TypeError: rank {last}: x must be a torch.Tensor, not list",
    "taps": "ValueError: rank 0 and rank {last} differ in the taps of weight",
    "bias": "ValueError: rank 0 and rank {last} differ in whether there is a bias",
    "eps": "ValueError: rank 0 and rank {last} differ in eps",
    "activation": "ValueError: rank 0 and rank {last} differ in activation",
    "exchange": "ValueError: rank 0 and rank {last} differ in exchange",
    "no exchange": "ValueError: rank 0: exchange must be one of ",
    "gradient": "ValueError: rank 0 and rank {last} differ in whether a gradient is recorded",
    "short": "ValueError: exchange='halo' needs 7 steps on every rank but the last, for "
    "filters of 8 taps; rank 0 has 6.  exchange='channels' takes any slices",
    "integers": "TypeError: rank 0: ",
    "group": "TypeError: group must be a torch ProcessGroup, not str",
    "long text": "ValueError: rank 0: exchange must be one of ",
}


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize("world", WORLDS)
def test_an_error_on_one_rank_is_raised_on_all(ranks: Any, world: int, name: str) -> None:
    said = {rank[f"bad {name}"] for rank in ranks(world)}
    assert len(said) == 1
    assert said.pop().startswith(SENTENCES[name].format(last=world - 1))


@pytest.mark.parametrize("world", WORLDS)
def test_every_bad_call_has_its_sentence(ranks: Any, world: int) -> None:
    assert set(bad_calls(0, world)) == set(SENTENCES)


@pytest.mark.parametrize("world", WORLDS)
def test_a_second_derivative_is_refused(ranks: Any, world: int) -> None:
    assert all("once_differentiable" in rank["twice"] for rank in ranks(world))


@pytest.mark.parametrize("world", WORLDS)
def test_groups_autocast_and_single_gradients(ranks: Any, world: int) -> None:
    found = [rank["inside"] for rank in ranks(world)]
    steps = [torch.arange(6.0) + 10 * r for r in range(world)]
    w = torch.tensor([[1.0, 10.0, 100.0]])
    whole = gt.causal_conv1d(torch.cat(steps[-2:]).view(1, 1, -1), w)
    for exchange in ("halo", "channels"):
        pieces = [rank[exchange] for rank in found[-2:]]
        assert torch.equal(torch.cat(pieces, 2), whole)
    assert {rank["autocast"].dtype for rank in found} == {torch.bfloat16}
    dx = torch.cat([rank["dx alone"] for rank in found], 2)
    assert dx.flatten().tolist() == [2.0] * (6 * world - 1) + [1.0]
    total = float(torch.cat(steps).sum())
    dw = [total - float(steps[-1][-1]), total]
    assert all(rank["dw alone"].flatten().tolist() == dw for rank in found)


# ---- one process ----


def test_without_a_process_group() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        parallel.causal_conv1d(torch.ones(1, 1, 4), torch.ones(1, 2))


def test_one_rank_is_the_plain_call(tmp_path: Path) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    try:
        x, w = torch.randn(2, 3, 9), torch.randn(3, 1, 4)
        for exchange in ("auto", "halo", "channels"):
            y = parallel.causal_conv1d(x, w, activation="silu", exchange=exchange)
            assert torch.equal(y, gt.causal_conv1d(x, w, activation="silu"))
        with pytest.raises(ValueError, match=r"^rank 0: w has 3 channels, x has 4$"):
            parallel.causal_conv1d(torch.ones(1, 4, 5), w)
    finally:
        dist.destroy_process_group()
