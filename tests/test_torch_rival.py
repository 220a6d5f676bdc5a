"""gpuopt.torch in the place of the package causal-conv1d, by the cases of its tests.

The cases and tolerances are those of tests/test_causal_conv1d.py in Dao-AILab/causal-conv1d
1.6.1, at sizes for a CPU: tensors are cut out of larger ones, weights are float32 whatever x
is.  Results are compared with torch's operators in float64.  Order: the function, rows of
sequences, the update, states of sequences, the same bits again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import gpuopt.torch as gt

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LENGTHS = (1, 2, 8, 16, 32, 64, 128, 129, 130, 151, 256, 372, 512, 784, 1024, 1134, 2048, 4096)
NEAR: dict[torch.dtype, Any] = {
    torch.float32: {"rtol": 3e-4, "atol": 1e-3},
    torch.float16: {"rtol": 3e-3, "atol": 5e-3},
    torch.bfloat16: {"rtol": 1e-2, "atol": 5e-2},
}
OF_WEIGHTS = {"rtol": 1e-3, "atol": 1e-3}

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_width = pytest.mark.parametrize("width", [2, 3, 4])
with_silu = pytest.mark.parametrize("activation", [None, "silu"])


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two libraries' threads wait for each other where there are few processors."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def close(got: Any, want: Any, **near: float) -> None:
    torch.testing.assert_close(got.detach().double(), want.detach().double(), **near)


def drawn(channels: int, steps: int, dtype: Any, last: bool, device: str) -> Any:
    """x of two rows, cut out of more channels; with `last` channels are neighbours."""
    more = channels + 40
    if last:
        wide = torch.randn(2, steps, more, device=device).to(dtype)
        return wide[:, :, 24 : 24 + channels].transpose(1, 2)
    return torch.randn(2, more, steps, device=device).to(dtype)[:, 24 : 24 + channels]


def exact(row: Any, weight: Any, bias: Any, activation: Any, steps: int) -> Any:
    """The last `steps` results of a row with zeros before it, in float64."""
    row, weight = row.double(), weight.double()
    bias = None if bias is None else bias.double()
    row = F.pad(row, (weight.shape[1] - 1, 0))
    y = F.conv1d(row, weight[:, None], bias, groups=row.shape[1])
    y = y[..., y.shape[2] - steps :]
    return y if activation is None else F.silu(y)


def leaves(*tensors: Any) -> list[Any]:
    """Copies with gradients, of the same strides."""
    return [None if a is None else a.detach().clone().requires_grad_() for a in tensors]


def wide_leaves(*tensors: Any) -> list[Any]:
    return [None if a is None else a.detach().double().requires_grad_() for a in tensors]


# ---- causal_conv1d_fn ----


@each_dtype
@each_width
@with_silu
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_the_function(
    last: bool, has_bias: bool, activation: Any, width: int, dtype: Any, device: str
) -> None:
    """Every length of theirs; states before and after for a third of them each, and both.

    Theirs has states for neighbouring channels alone, and not for others.
    """
    for turn, steps in enumerate(LENGTHS):
        has_initial, returns = turn % 2 == 1, turn % 3 == 2
        channels = 64 if steps < 100 else 12
        x = drawn(channels, steps, dtype, last, device)
        weight = torch.randn(channels, width, device=device)
        bias = torch.randn(channels, device=device) if has_bias else None
        initial = (
            torch.randn(2, width - 1, channels, device=device).to(dtype).transpose(1, 2)
            if has_initial
            else None
        )
        args = leaves(x, weight, bias, initial)
        args[0] = x.detach().requires_grad_()  # as it was cut out
        y = gt.causal_conv1d_fn(
            *args[:3],
            initial_states=args[3],
            return_final_states=returns,
            activation=activation,
        )
        wide = wide_leaves(x, weight, bias, initial)
        row = wide[0] if initial is None else torch.cat([wide[3], wide[0]], 2)
        want = exact(row, wide[1], wide[2], activation, steps)
        if returns:
            y, final = y
            padded = F.pad(row, (width - 1, 0))
            want_final = padded[..., padded.shape[2] - (width - 1) :]
            assert torch.equal(final.double(), want_final)
            y += torch.sigmoid(final).sum(-1, keepdim=True) / 8  # its gradient adds up all of g
            want = want + torch.sigmoid(want_final).sum(-1, keepdim=True) / 8
        assert y.dtype == dtype
        close(y, want, **NEAR[dtype])
        g = torch.randn_like(y)
        y.backward(g)
        want.backward(g.double())
        for i, (a, b) in enumerate(zip(args, wide, strict=True)):
            if a is not None:
                size = float(b.grad.abs().max())
                near = dict(OF_WEIGHTS) if i in (1, 2) else dict(NEAR[dtype])
                near["atol"] *= max(size, 1) if i in (1, 2) else 1
                assert a.grad.dtype == a.dtype
                close(a.grad, b.grad, **near)


def test_states_without_gradients(device: str) -> None:
    """The results, and final states where they are wanted."""
    for steps, given, last, dtype in itertools.product(
        (1, 5, 300), (False, True), (False, True), DTYPES
    ):
        x = drawn(16, steps, dtype, last, device)
        weight, bias = torch.randn(16, 4, device=device), torch.randn(16, device=device)
        initial = torch.randn(2, 16, 3, device=device).to(dtype) if given else None
        before = x.new_zeros(2, 16, 3) if initial is None else initial
        row = torch.cat([before, x], 2)
        want = exact(row, weight, bias, "swish", steps)
        out = torch.empty(2, 3, 16, dtype=dtype, device=device).transpose(1, 2)
        for into in (None, out):
            for w, add in ((weight, bias), (weight.to(dtype), bias.to(dtype))):
                y, final = gt.causal_conv1d_fn(
                    x, w, add, None, initial, True, final_states_out=into, activation="swish"
                )
                assert into is None or final is out
                assert torch.equal(final, row[..., -3:])
                assert y.dtype == dtype
                near = NEAR[dtype] if w.dtype == torch.float32 else {"rtol": 0.02, "atol": 0.06}
                close(y, want, **near)
        y = gt.causal_conv1d_fn(x, weight, bias, initial_states=initial, activation="silu")
        close(y, want, **NEAR[dtype])


# ---- rows of sequences ----


@each_dtype
@each_width
@with_silu
@pytest.mark.parametrize("last", [False, True])
def test_rows_of_sequences(
    last: bool, activation: Any, width: int, dtype: Any, device: str
) -> None:
    """seq_idx: forward and backward as of each sequence alone, padding (below 0) is 0."""
    for lengths, padded in (((5, 1, 30, 2, 90), False), ((64, 64, 7), True)):
        steps = sum(lengths)
        x = drawn(16, steps, dtype, last, device)
        weight, bias = torch.randn(16, width, device=device), torch.randn(16, device=device)
        ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
        ids = torch.where(ids == len(lengths) - 1, -1, ids) if padded else ids
        ids = ids.to(torch.int32).expand(2, -1).contiguous().to(device)
        args, wide = leaves(x, weight, bias), wide_leaves(x, weight, bias)
        y = gt.causal_conv1d_fn(*args, seq_idx=ids, activation=activation)
        parts = [
            exact(part, *wide[1:], activation, part.shape[2])
            for part in wide[0].split(lengths, 2)
        ]
        parts[-1] = parts[-1] * 0 if padded else parts[-1]
        want = torch.cat(parts, 2)
        close(y, want, **NEAR[dtype])
        g = torch.randn_like(y)
        y.backward(g)
        want.backward(g.double())
        close(args[0].grad, wide[0].grad, **NEAR[dtype])
        for a, b in zip(args[1:], wide[1:], strict=True):
            size = max(float(b.grad.abs().max()), 1)
            close(a.grad, b.grad, rtol=1e-3, atol=1e-3 * size)


def test_numbers_of_sequences_that_are_refused(device: str) -> None:
    x, weight = torch.ones(1, 8, 4, device=device), torch.ones(8, 3, device=device)
    ids = torch.zeros(1, 4, dtype=torch.int32, device=device)
    states = torch.ones(1, 8, 2, device=device)
    with pytest.raises(ValueError, match="seq_idx does not go with initial_states"):
        gt.causal_conv1d_fn(x, weight, seq_idx=ids, initial_states=states)
    with pytest.raises(ValueError, match=r"segments has shape \(1, 3\)"):
        gt.causal_conv1d_fn(x, weight, seq_idx=ids[:, :3])


# ---- causal_conv1d_update ----


def by_hand(x: Any, state: Any, weight: Any, bias: Any, activation: Any, places: Any) -> Any:
    """The results and the new state, a sequence and a step at a time, in float64."""
    steps = x.double() if x.dim() == 3 else x.double()[..., None]
    after, kept, size = state.clone(), weight.shape[1] - 1, state.shape[-1]
    results = torch.empty_like(steps)
    for b in range(x.shape[0]):
        for t in range(steps.shape[2]):
            end = size if places is None else int(places[b]) + t
            before = [after[b, :, (end - kept + k) % size] for k in range(kept)]
            terms = torch.stack([*(a.double() for a in before), steps[b, :, t]], 1)
            results[b, :, t] = (terms * weight.double()).sum(1)
            if places is None:
                after[b] = torch.cat([after[b, :, 1:], steps[b, :, t, None].to(x.dtype)], 1)
            else:
                after[b, :, end % size] = steps[b, :, t].to(x.dtype)
    results = results if bias is None else results + bias.double()[:, None]
    results = results if activation is None else F.silu(results)
    return results.reshape(x.shape), after


@each_dtype
@each_width
@with_silu
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("indices", ["none", "gather", "padding"])
def test_the_update(
    indices: str,
    ring: bool,
    has_bias: bool,
    activation: Any,
    width: int,
    dtype: Any,
    device: str,
) -> None:
    """1, 4 and 5 steps; states longer than needed, as rings, in pools, and none at all."""
    for steps, more in ((0, 0), (1, 3), (4, 0), (5, 2), (5, 9)):
        batches, channels, size = 6, 20, width - 1 + more
        x = torch.randn(batches, max(steps, 1), channels, device=device).to(dtype)
        x = x[:, 0] if steps == 0 else x.transpose(1, 2)
        rows = batches if indices == "none" else 5 * batches
        pool = torch.randn(rows, size, channels, device=device).to(dtype).transpose(1, 2)
        weight = torch.randn(channels, width, device=device)
        bias = torch.randn(channels, device=device) if has_bias else None
        places = torch.randint(0, 1024, (batches,), dtype=torch.int32) if ring else None
        index = None if indices == "none" else torch.randperm(rows)[:batches].int()
        named = torch.arange(batches) if index is None else index.long().clone()
        valid = torch.ones(batches, dtype=torch.bool)
        if indices == "padding":
            valid[torch.randperm(batches)[: batches // 2]] = False
            index = torch.where(valid, index, -1)
        for dtypes in ((weight, bias), (weight.to(dtype), bias)):
            w = dtypes[0]
            more_bias = None if bias is None else bias.to(w.dtype)
            state = pool.clone()
            want, after = by_hand(
                x[valid.to(device)],
                pool[named[valid].to(device)],
                w,
                more_bias,
                activation,
                None if places is None else places[valid],
            )
            y = gt.causal_conv1d_update(
                x,
                state,
                w,
                more_bias,
                activation,
                cache_seqlens=None if places is None else places.to(device),
                conv_state_indices=None if index is None else index.to(device),
            )
            assert y.dtype == dtype
            assert y.shape == x.shape
            close(y[valid.to(device)], want, **NEAR[dtype])
            assert torch.all(y[~valid.to(device)] == 0)
            expected = pool.clone()
            expected[named[valid].to(device)] = after
            assert torch.equal(state, expected)


def test_indices_that_are_refused(device: str) -> None:
    """By both paths of the update; nothing is written."""
    x, pool = torch.ones(2, 8, device=device), torch.ones(4, 8, 3, device=device)
    weight, places = torch.ones(8, 4, device=device), torch.zeros(2, dtype=torch.int32)
    for given in (None, places.to(device)):
        for index, error, message in (
            ([0, 4], IndexError, "index 4 is out of bounds for axis 0 with size 4"),
            ([2, 2], ValueError, "must name each row once"),
        ):
            at = torch.tensor(index, dtype=torch.int32, device=device)
            with pytest.raises(error, match=message):
                gt.causal_conv1d_update(
                    x, pool, weight, cache_seqlens=given, conv_state_indices=at
                )
    with pytest.raises(ValueError, match="state has 2 steps, but filters of 4 taps need 3"):
        gt.causal_conv1d_update(x, pool[:2, :, 1:], weight, cache_seqlens=places.to(device))
    assert bool((pool == 1).all())


# ---- states of sequences in a row ----


@each_dtype
def test_states_of_sequences_in_a_row(dtype: Any, device: str) -> None:
    """Bit for bit, with sequences shorter than the state, empty ones, and no step at all."""
    for lengths in (torch.randint(1, 32, (100,)), torch.tensor([3, 0, 40]), torch.tensor([0])):
        x = torch.randn(int(lengths.sum()), 48, device=device).to(dtype)
        borders = F.pad(lengths.cumsum(0), (1, 0))
        for size in (1, 3, 20):
            states = gt.causal_conv1d_varlen_states(x, borders.to(device), size)
            assert states.shape == (len(lengths), 48, size)
            for i, (begin, end) in enumerate(itertools.pairwise(borders.tolist())):
                kept = x[max(begin, end - size) : end].T
                assert torch.equal(states[i], F.pad(kept, (size - kept.shape[1], 0)))


def test_states_continue_their_sequences(device: str) -> None:
    """A prompt of several sequences in one row, then a step of each."""
    lengths = [2, 9, 17]
    x, step = torch.randn(sum(lengths), 24, device=device), torch.randn(3, 24, device=device)
    weight = torch.randn(24, 4, device=device)
    borders = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(device)
    states = gt.causal_conv1d_varlen_states(x, borders, 3)
    y = gt.causal_conv1d_update(step, states, weight)
    for i, part in enumerate(x.split(lengths)):
        row = torch.cat([part, step[i, None]]).T[None]
        close(y[i], exact(row, weight, None, None, 1)[0, :, 0], rtol=1e-5, atol=1e-5)


# ---- the same bits again ----


@pytest.mark.parametrize("last", [False, True])
def test_the_same_bits_again(last: bool, device: str) -> None:
    """Theirs allows dweight and dbias to differ, unless told to be deterministic."""
    x = drawn(4 * 16 + 4, 512, torch.bfloat16, last, device)
    weight, bias = torch.randn(68, 4, device=device), torch.randn(68, device=device)
    ids = (torch.arange(512) // 100).int().expand(2, -1).contiguous().to(device)
    for options in ({}, {"seq_idx": ids}):
        first: Any = None
        for _ in range(50 if device == "cuda" else 5):
            args = leaves(x, weight, bias)
            y = gt.causal_conv1d_fn(*args, activation="silu", **options)
            grads = torch.autograd.grad(y, args, torch.ones_like(y))
            first = first or (y, *grads)
            assert all(torch.equal(a, b) for a, b in zip((y, *grads), first, strict=True))
