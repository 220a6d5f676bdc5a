"""A causal convolution whose steps are spread over the ranks of torch.distributed.

>>> import torch, gpuopt.torch.parallel as parallel
>>> y = parallel.causal_conv1d(x, weight)  # doctest: +SKIP

Rank r of a group holds the r-th slice of the time axis, and all ranks the same filters.

| exchange | moves, per row and rank | for filters |
| --- | --- | --- |
| 'halo' | K - 1 steps to the next rank; for gradients to the one before | K - 1 <= slice |
| 'channels' | the slice, to whole rows of some channels and back | of any length |

Order: what the ranks tell each other, the halo, the channels, the public function.  Needs
nothing of a backend but all_gather, all_reduce, send, recv and all_to_all_single, so that
gloo and NCCL serve alike.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import gpuopt

__all__ = ["causal_conv1d"]

EXCHANGES = ("auto", "halo", "channels")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
TEXT_BYTES = 512


class Call(NamedTuple):
    """What all ranks agree on before anything of x is sent."""

    group: Any
    rank: int
    lengths: tuple[int, ...]  # steps of each rank
    taps: int
    axis: int  # of time in x
    options: dict[str, Any]
    wanted: tuple[bool, bool]  # gradients of x, and of w or bias, on any rank

    @property
    def kept(self) -> int:
        return self.taps - 1

    @property
    def last(self) -> bool:
        return self.rank == len(self.lengths) - 1

    @property
    def after(self) -> int:
        """How many steps of the next rank depend on this rank's."""
        return 0 if self.last else min(self.kept, self.lengths[self.rank + 1])

    def peer(self, rank: int) -> int:
        return dist.get_global_rank(self.group, rank)


# ---- what the ranks tell each other ----


def _member(group: Any) -> tuple[Any, int, int]:
    """The group, this process's rank in it, and its size."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "torch.distributed has no process group; call "
            "torch.distributed.init_process_group() first"
        )
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        member = group != dist.GroupMember.NON_GROUP_MEMBER
        if member:
            raise TypeError(f"group must be a torch ProcessGroup, not {type(group).__name__}")
        raise ValueError("this process is not a rank of the group")
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not a rank of the group")
    return group, rank, dist.get_world_size(group)


def _backends(group: Any) -> dict[str, str]:
    """The backend for each type of device, such as {'cpu': 'gloo', 'cuda': 'nccl'}."""
    pairs = (part.split(":") for part in dist.get_backend_config(group).split(","))
    found = {device: name for device, name in pairs}
    return {d: name for d, name in found.items() if d == "cpu" or name != "gloo"}


def _problem(x: Any, w: Any, bias: Any, options: dict[str, Any], group: Any) -> str:
    """What is wrong with this rank's arguments, behind the name of an exception, or ''."""
    tensors = {"x": x, "weight": w, "bias": bias}
    for name, a in tensors.items():
        if not isinstance(a, Tensor) and not (name == "bias" and a is None):
            return f"TypeError: {name} must be a torch.Tensor, not {type(a).__name__}"
    able = _backends(group)
    if x.device.type not in able:
        known = " and ".join(able) or "no"
        return f"ValueError: x is on {x.device.type}, but the group moves {known} tensors"
    for name, a in tensors.items():
        if a is not None and a.device != x.device:
            return f"ValueError: {name} is on {a.device}, but x is on {x.device}"
    if x.dim() != 3 or 0 in x.shape:
        return f"ValueError: x must have 3 dimensions and hold a step, not {tuple(x.shape)}"
    try:
        gpuopt.plan("causal_conv1d", x, w, bias, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = "TypeError" if isinstance(error, TypeError) else "ValueError"
        return f"{kind}: {error}"
    return ""


def _gathered(row: Tensor, group: Any, ranks: int) -> list[Tensor]:
    rows = [torch.empty_like(row) for _ in range(ranks)]
    dist.all_gather(rows, row, group=group)
    return [r.cpu() for r in rows]


ALIKE = (
    "the dtype of x",
    "the batch of x",
    "the channels of x",
    "the taps of weight",
    "whether there is a bias",
    "the device of x",
    "layout",
    "activation",
    "precision",
    "causality",
    "eps",
    "exchange",
    "whether a gradient is recorded",
)


def _number(text: str | None) -> int:
    """An option as an integer: the bytes of its name."""
    return int.from_bytes((text or "").encode()[:7], "little")


def _facts(
    x: Any, w: Any, bias: Any, record: bool, options: dict[str, Any], exchange: str
) -> list[int]:
    """What must be the same on all ranks, as `ALIKE` names it; then the slice and gradients."""
    time = 1 if options["layout"] == "BTC" else 2
    wants = [record and a is not None and a.requires_grad for a in (x, w, bias)]
    return [
        DTYPES.index(x.dtype),
        x.shape[0],
        x.shape[3 - time],
        w.shape[1],
        bias is not None,
        _number(x.device.type),
        *(_number(options[name]) for name in ("layout", "activation", "precision")),
        _number(options["causality"]),
        struct.unpack("<q", struct.pack("<d", options["eps"]))[0],
        _number(exchange),
        any(wants),
        x.shape[time],
        wants[0],
        wants[1] or wants[2],
    ]


def _raised(problem: str) -> Exception:
    kind, _, words = problem.partition(": ")
    return (TypeError if kind == "TypeError" else ValueError)(words)


def _compared(facts: list[int], problem: str, member: Any) -> list[list[int]]:
    """The facts of all ranks, or the same exception on all of them.

    Two small messages if a rank has an error of its own, else one: no rank goes on alone,
    so that none waits for a rank that has raised.
    """
    group, _, ranks = member
    on = "cpu" if "cpu" in _backends(group) else "cuda"
    mine = torch.tensor([bool(problem), *facts], dtype=torch.int64, device=on)
    rows = [r.tolist() for r in _gathered(mine, group, ranks)]
    if any(row[0] for row in rows):
        text = problem.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        sent = torch.tensor(list(text), dtype=torch.uint8, device=on)
        texts = [bytes(r.tolist()).rstrip(b"\0") for r in _gathered(sent, group, ranks)]
        first = next(r for r, t in enumerate(texts) if t)
        raise _raised(
            texts[first].decode(errors="replace").replace(": ", f": rank {first}: ", 1)
        )
    found = [row[1:] for row in rows]
    for i, name in enumerate(ALIKE):
        for r in range(ranks):
            if found[r][i] != found[0][i]:
                raise ValueError(f"rank 0 and rank {r} differ in {name}")
    return found


def _chosen(exchange: str, lengths: tuple[int, ...], taps: int) -> str:
    short = [r for r, n in enumerate(lengths[:-1]) if n < taps - 1]
    if exchange == "halo" and short:
        raise ValueError(
            f"exchange='halo' needs {taps - 1} steps on every rank but the last, for filters "
            f"of {taps} taps; rank {short[0]} has {lengths[short[0]]}.  exchange='channels' "
            "takes any slices"
        )
    return ("channels" if short else "halo") if exchange == "auto" else exchange


def _agree(
    tensors: tuple[Any, Any, Any],
    options: dict[str, Any],
    exchange: str,
    member: Any,
    check: bool,
    record: bool,
) -> tuple[Call, str]:
    """The call and its exchange; without `check` every rank has the facts of this one."""
    group, rank, ranks = member
    problem = _problem(*tensors, options, group)
    if not problem and exchange not in EXCHANGES:
        problem = f"ValueError: exchange must be one of {EXCHANGES}, not {exchange!r}"
    facts = [0] * (len(ALIKE) + 3) if problem else _facts(*tensors, record, options, exchange)
    if check:
        found = _compared(facts, problem, member)
    elif problem:
        raise _raised(problem)
    else:
        found = [facts] * ranks
    lengths = tuple(row[len(ALIKE)] for row in found)
    taps = found[0][ALIKE.index("the taps of weight")]
    x_wanted, sums_wanted = (any(row[len(ALIKE) + i] for row in found) for i in (1, 2))
    axis = 1 if options["layout"] == "BTC" else 2
    call = Call(group, rank, lengths, taps, axis, options, (x_wanted, sums_wanted))
    return call, _chosen(exchange, lengths, taps)


# ---- the halo ----


def _swap(call: Call, to: int, sent: Tensor | None, from_: int, space: Tensor | None) -> Any:
    """Sends to one neighbour and receives from the other; None means no neighbour."""
    jobs = []
    if sent is not None:
        jobs.append(dist.P2POp(dist.isend, sent, call.peer(to), call.group))
    if space is not None:
        jobs.append(dist.P2POp(dist.irecv, space, call.peer(from_), call.group))
    for work in dist.batch_isend_irecv(jobs) if jobs else ():
        work.wait()
    return space


def _space(x: Tensor, axis: int, steps: int, arrays: int = 0) -> Tensor:
    shape = list(x.shape)
    shape[axis] = steps
    return x.new_empty((arrays, *shape) if arrays else shape)


def _before(call: Call, x: Tensor) -> Tensor | None:
    """The last K - 1 steps of the rank before; None on the first rank."""
    if not call.kept:
        return None
    steps = call.lengths[call.rank]
    sent = None
    if not call.last:
        sent = x.narrow(call.axis, steps - call.kept, call.kept).contiguous()
    space = _space(x, call.axis, call.kept) if call.rank else None
    return _swap(call, call.rank + 1, sent, call.rank - 1, space)


def _after(call: Call, x: Tensor, dy: Tensor) -> Tensor | None:
    """x and dy of the first steps of the rank after; None on the last rank."""
    if not call.kept:
        return None
    sent = None
    if call.rank:
        steps = min(call.kept, call.lengths[call.rank])
        sent = torch.stack([a.narrow(call.axis, 0, steps) for a in (x, dy)])
    space = None if call.last else _space(x, call.axis, call.after, 2)
    return _swap(call, call.rank - 1, sent, call.rank + 1, space)


def _gradients(call: Call, dy: Tensor, x: Tensor, w: Tensor, bias: Tensor | None) -> Any:
    grads = gpuopt.causal_conv1d_backward(dy, x, w, bias, **call.options)
    return grads if bias is not None else (*grads, None)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over ranks are added."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _first(call: Call, dy: Tensor, x: Tensor, before: Tensor, steps: int) -> tuple[Any, Any]:
    """dy and x of the first steps, behind the last K - 1 of the rank before, where dy is 0."""
    rise = torch.cat([torch.zeros_like(before), dy.narrow(call.axis, 0, steps)], call.axis)
    return rise, torch.cat([before, x.narrow(call.axis, 0, steps)], call.axis)


def _with_before(
    call: Call, sums: list[Any], dy: Tensor, x: Tensor, before: Tensor, given: tuple[Any, Any]
) -> list[Any]:
    """dw and dbias with what the first K - 1 steps owe to the rank before.

    The slice alone gives other terms at these steps: those are taken off again.
    """
    wide = _wide(x.dtype)
    steps = min(call.kept, x.shape[call.axis])
    alone = (dy.narrow(call.axis, 0, steps), x.narrow(call.axis, 0, steps))
    filters = [a if a is None else a.to(wide) for a in given]
    whole, part = (
        _gradients(call, rise.to(wide), row.to(wide), *filters)[1:]
        for rise, row in (_first(call, dy, x, before, steps), alone)
    )
    return [
        a if a is None else a.to(wide) + (more - less)
        for a, more, less in zip(sums, whole, part, strict=True)
    ]


def _end(call: Call, x: Tensor, before: Tensor | None, after: Tensor) -> Tensor:
    """The last 2 (K - 1) steps up to the end of the slice, and those of the rank after."""
    row, steps = x, 2 * call.kept
    if before is not None and x.shape[call.axis] < steps:
        row = torch.cat([before, x], call.axis)
    steps = min(steps, row.shape[call.axis])
    return torch.cat(
        [row.narrow(call.axis, row.shape[call.axis] - steps, steps), after], call.axis
    )


def _halo_backward(
    call: Call, dy: Tensor, x: Tensor, before: Tensor | None, w: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """dx of the slice, and this rank's part of dw and dbias.

    The slice alone gives all but the first and last K - 1 steps of dx, which depend on the
    neighbours: they are computed anew from all their terms, so that each element of dx is
    one sum, rounded once, as in one call.
    """
    axis, kept, steps = call.axis, call.kept, x.shape[call.axis]
    dx, *sums = _gradients(call, dy, x, w, bias)
    if before is not None and call.wanted[1]:
        sums = _with_before(call, sums, dy, x, before, (w, bias))
    if not call.wanted[0]:
        return dx, sums[0], sums[1]
    if before is not None:
        rise, row = _first(call, dy, x, before, min(2 * kept, steps))
        head, _, _ = _gradients(call, rise, row, w, bias)
        here = min(kept, steps)
        dx.narrow(axis, 0, here).copy_(head.narrow(axis, kept, here))
    after = _after(call, x, dy)
    if after is not None:
        nothing = None if before is None else torch.zeros_like(before)
        rise, row = _end(call, dy, nothing, after[1]), _end(call, x, before, after[0])
        tail, _, _ = _gradients(call, rise, row, w, bias)
        tail = tail.narrow(axis, row.shape[axis] - kept - call.after, kept)
        dx.narrow(axis, steps - kept, kept).copy_(tail)
    return dx, sums[0], sums[1]


# ---- the channels ----


def _shares(channels: int, ranks: int) -> list[int]:
    """How many channels each rank takes, in order."""
    return [channels * (r + 1) // ranks - channels * r // ranks for r in range(ranks)]


def _to_channels(call: Call, x: Tensor) -> Tensor:
    """Whole rows of this rank's channels: (time, batch, channels)."""
    ranks, batch = len(call.lengths), x.shape[0]
    shares = _shares(x.shape[3 - call.axis], ranks)
    mine, here = shares[call.rank], x.shape[call.axis]
    parts = x.movedim(call.axis, 0).split(shares, 2)
    sent = torch.cat([p.reshape(-1) for p in parts])
    took = x.new_empty(sum(call.lengths) * batch * mine)
    dist.all_to_all_single(
        took,
        sent,
        [n * batch * mine for n in call.lengths],
        [here * batch * share for share in shares],
        group=call.group,
    )
    return took.view(sum(call.lengths), batch, mine)


def _to_steps(call: Call, rows: Tensor, like: Tensor) -> Tensor:
    """Undoes `_to_channels`: of the shape of `like`."""
    ranks, batch = len(call.lengths), like.shape[0]
    shares = _shares(like.shape[3 - call.axis], ranks)
    mine, here = shares[call.rank], like.shape[call.axis]
    took = like.new_empty(here * batch * sum(shares))
    sizes = [here * batch * share for share in shares]
    dist.all_to_all_single(
        took,
        rows.contiguous().view(-1),
        sizes,
        [n * batch * mine for n in call.lengths],
        group=call.group,
    )
    pieces = [
        piece.view(here, batch, share)
        for piece, share in zip(took.split(sizes), shares, strict=True)
    ]
    return torch.cat(pieces, 2).movedim(0, call.axis).contiguous()


def _mine(call: Call, w: Tensor | None) -> Any:
    """The filters, or the biases, of this rank's channels."""
    if w is None:
        return None
    shares = _shares(w.shape[0], len(call.lengths))
    return w.narrow(0, sum(shares[: call.rank]), shares[call.rank])


def _rows(rows: Tensor) -> Tensor:
    """(time, batch, channels) as the (batch, channels, time) that the operator takes."""
    return rows.permute(1, 2, 0)


def _in_channels(call: Call, x: Tensor, w: Tensor, bias: Any) -> tuple[Tensor, Tensor]:
    rows = _to_channels(call, x)
    y = rows
    if rows.numel():
        options = {**call.options, "layout": "BCT"}
        y = gpuopt.causal_conv1d(_rows(rows), _mine(call, w), _mine(call, bias), **options)
        y = y.permute(2, 0, 1)
    return rows, _to_steps(call, y, x)


def _channels_backward(
    call: Call, dy: Tensor, rows: Tensor, w: Tensor, bias: Any
) -> tuple[Tensor, Tensor, Any]:
    """dx of the slice, and dw and dbias with the rows of this rank's channels, else 0."""
    rise = _to_channels(call, dy)
    dw, dbias = torch.zeros_like(w), None if bias is None else torch.zeros_like(bias)
    back = rise
    if rows.numel():
        given = (_mine(call, w), _mine(call, bias))
        local = call._replace(options={**call.options, "layout": "BCT"})
        dx, *sums = _gradients(local, _rows(rise), _rows(rows), *given)
        for whole, part in zip((dw, dbias), sums, strict=True):
            if whole is not None:
                _mine(call, whole).copy_(part)
        back = dx.permute(2, 0, 1)
    return (_to_steps(call, back, dy) if call.wanted[0] else dy), dw, dbias


# ---- the public function ----


def _summed(call: Call, w: Tensor, dw: Tensor, dbias: Tensor | None) -> tuple[Any, Any]:
    """The sums over the ranks, in float32 at least, in one message."""
    parts = [dw.reshape(-1)] + ([] if dbias is None else [dbias])
    total = torch.cat([p.to(_wide(w.dtype)) for p in parts])
    dist.all_reduce(total, group=call.group)
    whole = total.to(w.dtype)
    return whole[: dw.numel()].view(dw.shape), None if dbias is None else whole[dw.numel() :]


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Any, call: Call) -> Tensor:
        before = _before(call, x)
        ctx.call = call
        ctx.save_for_backward(x, before, w, bias)
        y: Tensor = gpuopt.causal_conv1d(x, w, bias, initial_state=before, **call.options)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, before, w, bias = ctx.saved_tensors
        dx, dw, dbias = _halo_backward(ctx.call, dy, x, before, w, bias)
        if ctx.call.wanted[1]:
            dw, dbias = _summed(ctx.call, w, dw, dbias)
        return dx, dw, dbias, None


class _Channels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Any, call: Call) -> Tensor:
        rows, y = _in_channels(call, x, w, bias)
        ctx.call = call
        ctx.save_for_backward(rows, w, bias)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        rows, w, bias = ctx.saved_tensors
        dx, dw, dbias = _channels_backward(ctx.call, dy, rows, w, bias)
        if ctx.call.wanted[1]:
            dw, dbias = _summed(ctx.call, w, dw, dbias)
        return dx, dw, dbias, None


def _cast(device: str, *tensors: Any) -> Any:
    """Under torch.autocast in its dtype, as gpuopt.torch.causal_conv1d."""
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        a.to(dtype)
        if isinstance(a, Tensor) and a.is_floating_point() and a.dtype != torch.float64
        else a
        for a in tensors
    )


@functools.partial(torch.compiler.disable, recursive=True)
def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    *,
    group: Any = None,
    exchange: str = "auto",
    check: bool = True,
    eps: float = 0.0,
    layout: str = "BCT",
    precision: str = "fp32",
    causality: str | None = None,
) -> Tensor:
    """gpuopt.torch.causal_conv1d of the slices of all ranks, put together in their order.

    Every rank of the group calls it, and gets its slice of the result.

    Parameters
    ----------
    x : Tensor, shape (B, C, T_r)
        This rank's steps, or (B, T_r, C) with layout='BTC'; slices may differ in length.
    weight : Tensor, shape (C, K) or (C, 1, K)
        The same on every rank, which is not checked, as is `bias`.
    group : ProcessGroup, optional
        The ranks, in the order of their slices; by default all of them.
    exchange : {'auto', 'halo', 'channels'}, optional
        'halo' sends K - 1 steps to the next rank; every rank but the last must hold that
        many.  'channels' sends all steps, so that each rank has whole rows of some channels,
        and the results back.  'auto' is 'halo' where it is possible.
    check : bool, optional
        Whether the ranks compare their arguments first, in one small all_gather: an error on
        one rank is then raised on all of them, and none is left waiting.  With False every
        rank must have the same shapes, and gradients of the same tensors.
    bias, activation, eps, layout, precision, causality
        As gpuopt.torch.causal_conv1d.

    Returns
    -------
    Tensor
        Of the shape and dtype of x.

    Raises
    ------
    ValueError, TypeError
        On every rank, the same: an argument of some rank is wrong, arguments differ between
        ranks, or exchange='halo' has slices that are too short.

    Notes
    -----
    Gradients: those of the sum of all ranks' losses.  dx is this rank's slice; dw and dbias
    are already summed over the ranks, and the same on all of them, so that they must not be
    summed over this group again.  backward() has to be called on every rank; a second
    derivative is a RuntimeError.

    Accuracy: y and dx have the bound of gpuopt.causal_conv1d and its backward for the whole
    row.  dw and dbias of 16-bit dtypes are rounded once more on each rank, and summed in
    float32.  An infinity or nan reaches the elements of y that depend on it and no others;
    in dw one beside the edge of a slice can become a nan.

    Determinism: the same bits run to run for the same slices, as far as the backend's
    all_reduce has them.
    """
    member = _member(group)
    if isinstance(weight, Tensor) and weight.dim() == 3:
        weight = weight.squeeze(1)
    if isinstance(x, Tensor):
        x, weight, bias = _cast(x.device.type, x, weight, bias)
    options = {
        "eps": eps,
        "activation": activation,
        "layout": layout,
        "precision": precision,
        "causality": causality,
    }
    tensors, record = (x, weight, bias), torch.is_grad_enabled()
    with torch.no_grad():
        call, exchange = _agree(tensors, options, exchange, member, check, record)
    function = _Halo if exchange == "halo" else _Channels
    y: Tensor = function.apply(x, weight, bias, call)
    return y
