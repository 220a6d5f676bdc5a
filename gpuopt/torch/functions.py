"""torch's functions on gpuopt's operators, with torch's names, arguments and dtypes.

Each takes tensors of a CPU or of a GPU with any strides and returns new tensors there.
Order: elementwise, reductions, scans, index operators, filters, poolings, resizing.
`out=` is not taken: an operator that torch can trace returns what it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import gpuopt
from gpuopt.torch._direct import are_plain, call
from gpuopt.torch._elementwise import ROWS
from gpuopt.torch._library import category, no_gradient, operator

Ints = int | Sequence[int]
Number = bool | int | float | complex

__all__ = [
    *ROWS,
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "cast",
    "causal_conv1d",
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "causal_conv1d_varlen_states",
    "convolve",
    "cumprod",
    "cumsum",
    "dot",
    "index_add",
    "interpolate",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mean",
    "mean_matvec",
    "partition_reduce",
    "prod",
    "scan",
    "scatter_add",
    "sum",
    "upsample_nearest",
]

# ---- elementwise ----


def _binary(name: str, x: Tensor | Number, y: Tensor | Number) -> Tensor:
    if not isinstance(x, Tensor):
        if not isinstance(y, Tensor):
            raise TypeError(f"gpuopt.torch.{name}() takes a tensor, not two numbers")
        x = torch.full((), x, device=y.device)
    if isinstance(y, Tensor):
        return call(name, x, y)
    return call(f"{name}_number", x, y)


def _scaled(x: Tensor | Number, alpha: Number) -> Tensor | Number:
    if isinstance(x, Tensor):
        return x if alpha == 1 else _binary("multiply", x, alpha)
    return x * alpha


def add(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """torch.add: input + alpha * other, broadcast, in the common dtype."""
    return _binary("add", input, _scaled(other, alpha))


def subtract(input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1) -> Tensor:
    """torch.subtract: input - alpha * other, broadcast, in the common dtype."""
    return _binary("subtract", input, _scaled(other, alpha))


def multiply(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """torch.multiply: input * other, broadcast, in the common dtype."""
    return _binary("multiply", input, other)


def divide(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """torch.divide without rounding_mode; integers give torch's default dtype."""
    return _binary("divide", input, other)


def maximum(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """torch.maximum; nan wins.  Of equal elements each gets half of the gradient."""
    return _binary("maximum", input, other)


def minimum(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """torch.minimum; nan wins.  Of equal elements each gets half of the gradient."""
    return _binary("minimum", input, other)


def fma(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """x * y + z, rounded once; torch has none."""
    return call("fma", x, y, z)


def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """torch.where: input where condition is not zero, else other."""
    x, y = (
        value if isinstance(value, Tensor) else torch.full((), value, device=condition.device)
        for value in (input, other)
    )
    return call("where", condition, x, y)


def clip(
    input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Tensor:
    """torch.clip: input limited to the range from min to max."""
    if not (isinstance(min, Tensor) or isinstance(max, Tensor)):
        return call("clip_number", input, min, max)
    low, high = (
        value
        if value is None or isinstance(value, Tensor)
        else torch.full((), value, device=input.device)
        for value in (min, max)
    )
    return call("clip", input, low, high)


def negative(input: Tensor) -> Tensor:
    """torch.negative: -input."""
    return call("negative", input)


def abs(input: Tensor) -> Tensor:
    """torch.abs; of complex numbers the magnitude, in their real dtype."""
    return call("abs", input)


def exp(input: Tensor) -> Tensor:
    """torch.exp; integers give torch's default dtype."""
    return call("exp", input)


def log(input: Tensor) -> Tensor:
    """torch.log; integers give torch's default dtype."""
    return call("log", input)


def sqrt(input: Tensor) -> Tensor:
    """torch.sqrt; integers give torch's default dtype."""
    return call("sqrt", input)


def tanh(input: Tensor) -> Tensor:
    """torch.tanh; integers give torch's default dtype."""
    return call("tanh", input)


def sigmoid(input: Tensor) -> Tensor:
    """torch.sigmoid; integers give torch's default dtype."""
    return call("sigmoid", input)


def relu(input: Tensor) -> Tensor:
    """torch.relu: input where it is positive or nan, else 0."""
    return call("relu", input)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """torch.nn.functional.gelu in its exact form; ValueError for another one."""
    if approximate != "none":
        raise ValueError(f"gpuopt has gelu with approximate='none', not {approximate!r}")
    return call("gelu", input)


def silu(input: Tensor) -> Tensor:
    """torch.nn.functional.silu: input * sigmoid(input)."""
    return call("silu", input)


def cast(input: Tensor, dtype: torch.dtype) -> Tensor:
    """input.to(dtype), always a copy."""
    return call("cast", input, dtype)


# ---- reductions ----


def _reduce(op: str, x: Tensor, dim: Ints | None, keepdim: bool) -> Tensor:
    """Like torch, an empty list of axes means all of them."""
    axes = [dim] if isinstance(dim, int) else list(dim or ()) or None
    return call("reduce", x, op, axes, keepdim)


def _converted(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x if dtype is None else x.to(dtype)


def sum(
    input: Tensor,
    dim: Ints | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.sum; bool and integers give int64."""
    return _reduce("sum", _converted(input, dtype), dim, keepdim)


def prod(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.prod; bool and integers give int64.  Not differentiable."""
    return _reduce("prod", _converted(input, dtype), dim, keepdim)


def mean(
    input: Tensor,
    dim: Ints | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """torch.mean; TypeError for bool and integers without dtype=."""
    input = _converted(input, dtype)
    if category(input.dtype) < 2:
        raise TypeError(
            f"mean() takes floats or complex numbers, not {input.dtype}; use dtype="
        )
    return _reduce("mean", input, dim, keepdim)


def amax(input: Tensor, dim: Ints = (), keepdim: bool = False) -> Tensor:
    """torch.amax; nan wins.  Equal elements share the gradient."""
    return _reduce("max", input, dim, keepdim)


def amin(input: Tensor, dim: Ints = (), keepdim: bool = False) -> Tensor:
    """torch.amin; nan wins.  Equal elements share the gradient."""
    return _reduce("min", input, dim, keepdim)


def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """torch.argmax; of equal elements the first, and a nan before all numbers."""
    return _reduce("argmax", input, dim, keepdim)


def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """torch.argmin; of equal elements the first, and a nan before all numbers."""
    return _reduce("argmin", input, dim, keepdim)


def any(input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Tensor:
    """torch.any; always bool."""
    return _reduce("any", input, dim, keepdim)


def all(input: Tensor, dim: Ints | None = None, keepdim: bool = False) -> Tensor:
    """torch.all; always bool."""
    return _reduce("all", input, dim, keepdim)


def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """torch.dot of two vectors; complex numbers are not conjugated."""
    return call("dot", input, tensor)


def mean_matvec(input: Tensor, matrix: Tensor, layout: str = "LN") -> Tensor:
    """matrix @ input.mean(2).T for input of shape (N, L, M); layout "NL" transposes it."""
    return call("mean_matvec", input, matrix, layout)


def partition_reduce(input: Tensor, bits: Ints, *, square: bool = False) -> Tensor:
    """Sums of the elements of a vector whose indices agree in `bits`; gpuopt's own.

    With `square` of abs(input)**2: the probabilities of some qubits of a state.
    """
    places = [bits] if isinstance(bits, int) else list(bits)
    return call("partition_reduce", input, places, square)


# ---- scans ----


def scan(
    input: Tensor,
    op: str = "sum",
    dim: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """gpuopt.scan: op is "sum", "prod", "min" or "max"; differentiable for "sum"."""
    return call("scan", input, op, dim, exclusive, reverse)


def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """torch.cumsum; bool and integers give int64."""
    return scan(_converted(input, dtype), "sum", dim)


def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """torch.cumprod; bool and integers give int64.  Not differentiable."""
    return scan(_converted(input, dtype), "prod", dim)


# ---- index operators ----


def _repeatable(deterministic: bool | None) -> bool:
    return (
        torch.are_deterministic_algorithms_enabled() if deterministic is None else deterministic
    )


def index_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: Number = 1,
    mode: str = "raise",
    deterministic: bool | None = None,
) -> Tensor:
    """torch.index_add: input with alpha * source[i] added to its slice index[i].

    mode says what an index out of range means: an IndexError of the call ("raise", also
    under torch.compile; negative ones count from the end), modulo the length ("wrap"), or
    the nearest end ("clip").  On a GPU "raise" waits for the stream once, and is refused
    while it is captured into a CUDA graph.  deterministic is by default
    torch.are_deterministic_algorithms_enabled().
    """
    fixed = _repeatable(deterministic)
    return call("index_add", input, index, source, dim, alpha, mode, fixed)


def scatter_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    *,
    mode: str = "raise",
    deterministic: bool | None = None,
) -> Tensor:
    """torch.scatter_add: input[i, index[i, j], ...] += src[i, j, ...] for dim=1, in a copy.

    The added values are summed in float64 and rounded once, then added to input.  mode and
    deterministic are those of `index_add`.  gpuopt.scatter_add itself, which adds to zeros,
    is torch.ops.gpuopt.scatter_add(values, index, size, mode, deterministic).
    """
    if not input.dim() == index.dim() == src.dim():
        raise ValueError(
            f"input, index and src must have the same number of dimensions, not "
            f"{input.dim()}, {index.dim()} and {src.dim()}"
        )
    if input.dtype != src.dtype:
        raise TypeError(
            f"input and src must be of one dtype, not {input.dtype} and {src.dtype}"
        )
    if input.dim() == 0:
        input_1d, index, src = input.reshape(1), index.reshape(1), src.reshape(1)
        return scatter_add(input_1d, 0, index, src, mode=mode).reshape(())
    first = input.movedim(dim, 0)
    index, src = index.movedim(dim, 0), src.movedim(dim, 0)
    for axis, n in enumerate(index.shape):
        if n > src.shape[axis] or (axis and n > first.shape[axis]):
            raise ValueError(
                f"index of shape {tuple(index.shape)} does not fit in src of shape "
                f"{tuple(src.shape)} and input of shape {tuple(first.shape)}, dim in front"
            )
        src = src.narrow(axis, 0, n)
    place = index.long()
    place = place.clamp(0, first.shape[0] - 1) if mode == "clip" else place
    for axis in range(1, first.dim()):  # an index of dim out of range stays out of range
        across = [-1 if i == axis else 1 for i in range(first.dim())]
        at = torch.arange(index.shape[axis], device=index.device).reshape(across)
        place = place * first.shape[axis] + at
    sums = call("scatter_add", src, place, first.numel(), mode, _repeatable(deterministic))
    return input + sums.reshape(first.shape).movedim(0, dim).to(input.dtype)


# ---- filters ----


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    *,
    eps: float = 0.0,
    layout: str = "BCT",
    precision: str = "fp32",
    causality: str | None = None,
    segments: Tensor | None = None,
) -> Tensor:
    """Each channel of x (B, C, T) convolved with its filter, looking back in time only.

    weight has the shape (C, K) or, as of torch.nn.Conv1d with groups=C, (C, 1, K); the
    result is that of conv1d with padding K - 1, cut to T steps.  activation is None or
    "silu".  The other options are those of gpuopt.causal_conv1d.
    """
    w = weight.squeeze(1) if weight.dim() == 3 else weight
    options = (eps, activation, layout, precision, causality)
    return call("causal_conv1d", x, w, bias, *options, segments)


def _silu(activation: str | None) -> str | None:
    if activation not in (None, "silu", "swish"):
        raise ValueError(f"activation must be None, 'silu' or 'swish', not {activation!r}")
    return "silu" if activation else None


def _rows(x: Tensor, weight: Tensor, bias: Tensor | None, **options: Any) -> Tensor:
    """In the wider dtype; where channels of x are neighbours, those of the result are, too."""
    dtype = torch.promote_types(x.dtype, weight.dtype)
    wide, weight = x.to(dtype), weight.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if wide.dim() == 3 and wide.stride(1) == 1 and wide.stride(2) != 1:
        y = causal_conv1d(wide.transpose(1, 2), weight, bias, layout="BTC", **options)
        y = y.transpose(1, 2)
    else:
        y = causal_conv1d(wide, weight, bias, **options)
    return y.to(x.dtype)


def _sequences(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None, ids: Tensor
) -> Tensor:
    """causal_conv1d with sequences in a row, and results of 0 where a number is negative."""
    try:
        return _rows(x, weight, bias, activation=activation, segments=ids)
    except ValueError:  # raised before anything is computed
        padding = ids < 0
        if not bool(padding.any()):
            raise
    y = _rows(x, weight, bias, activation=activation, segments=ids.clamp(min=-1) + 1)
    return y.masked_fill(padding[:, None], 0)


def _behind_states(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None, states: Any
) -> Any:
    """causal_conv1d_fn where no gradient is recorded: gpuopt's own states, and no copy of x."""
    initial, returns, out = states
    weight = weight.squeeze(1) if weight.dim() == 3 else weight
    dtype = torch.promote_types(x.dtype, weight.dtype)
    rows, w, add, before = (
        None if a is None else a.to(dtype) for a in (x, weight, bias, initial)
    )
    by_time = x.stride(1) == 1 and x.stride(2) != 1
    turned: Any = (lambda a: None if a is None else a.transpose(1, 2)) if by_time else None
    y: Any = gpuopt.causal_conv1d(
        turned(rows) if by_time else rows,
        w,
        add,
        activation=activation,
        layout="BTC" if by_time else "BCT",
        initial_state=turned(before) if by_time else before,
        return_state=returns,
    )
    y, last = y if returns else (y, None)
    y, last = (turned(y), turned(last)) if by_time else (y, last)
    y = y.to(x.dtype)
    if last is None:
        return y
    return y, last.to(x.dtype) if out is None else out.copy_(last)


def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """causal_conv1d with the arguments of the package causal-conv1d.

    x has the shape (B, C, T), weight (C, K), seq_idx (B, T): the number of the sequence of
    each step, where a sequence begins wherever the number changes, and results are 0 where
    it is negative.  initial_states are the K - 1 steps before x, of the shape
    (B, C, K - 1); with return_final_states the last K - 1 steps are returned, too, in
    final_states_out if it is given.  Gradients of x, weight, bias and initial_states.  The
    sums are in the wider dtype of x and weight, at least float32.
    """
    activation = _silu(activation)
    if seq_idx is not None and (initial_states is not None or return_final_states):
        which = "initial_states" if initial_states is not None else "return_final_states"
        raise ValueError(f"seq_idx does not go with {which}: no state is before a sequence")
    if final_states_out is not None and not return_final_states:
        raise ValueError("final_states_out is given, but return_final_states is False")
    if seq_idx is not None:
        return _sequences(x, weight, bias, activation, seq_idx)
    kept, row = weight.shape[-1] - 1, x
    if initial_states is not None:
        wanted = (*x.shape[:2], kept)
        if tuple(initial_states.shape) != wanted:
            raise ValueError(
                f"initial_states has shape {tuple(initial_states.shape)}, but x and weight "
                f"call for {wanted}, that is (B, C, K - 1)"
            )
    states = initial_states, return_final_states, final_states_out
    has_states = (
        kept > 0 and x.dim() == 3 and (initial_states is not None or return_final_states)
    )
    if has_states and are_plain(x, weight, bias, initial_states, final_states_out):
        return _behind_states(x, weight, bias, activation, states)
    if initial_states is not None:
        row = torch.cat([initial_states.to(x.dtype), x], 2)
    y = _rows(row, weight, bias, activation=activation)[..., row.shape[2] - x.shape[2] :]
    if not return_final_states:
        return y
    last = torch.nn.functional.pad(row, (max(kept - row.shape[2], 0), 0))
    last = last[..., last.shape[2] - kept :]
    return y, last.clone() if final_states_out is None else final_states_out.copy_(last)


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """The next steps of sequences, with the arguments of the package causal-conv1d.

    x has the shape (B, C) or (B, C, L), conv_state (B, C, S) with S of at least K - 1, or
    (N, C, S) with the row of each sequence in conv_state_indices (B,); where an index is
    negative the result is 0.  conv_state is updated in place, with cache_seqlens (B,) as a
    ring: the next step goes to place cache_seqlens % S.  The result has the shape of x.  It
    has no gradient.  One launch if all dtypes are one and there is no cache_seqlens; else
    rows of conv_state are copied, and the sums are in the wider dtype.
    """
    activation = _silu(activation)
    tensors = (a for a in (x, conv_state, weight, bias) if a is not None)
    if torch.is_grad_enabled() and [a for a in tensors if a.requires_grad]:
        raise no_gradient("causal_conv1d_update")
    arrays, index = (conv_state, x, weight, bias), conv_state_indices
    dtypes = {a.dtype for a in arrays if a is not None}
    if cache_seqlens is not None or len(dtypes) > 1:
        return _update_copies(arrays, activation, cache_seqlens, index)
    if torch.compiler.is_compiling():
        y, state = operator("causal_conv1d_update")(*arrays, index, 0.0, activation)
        conv_state.copy_(state)
        return y
    try:
        y, _ = gpuopt.causal_conv1d_update(
            *arrays, state_index=index, activation=activation, out=(None, conv_state)
        )
    except IndexError:  # raised before anything is written
        if index is None or not bool((index < 0).any()):
            raise
        return _without_padding(arrays, activation, None, index)
    return y


def _without_padding(arrays: Any, activation: Any, places: Any, index: Tensor) -> Tensor:
    """causal_conv1d_update of the sequences whose index is not negative; 0 elsewhere."""
    state, x, weight, bias = arrays
    kept = (index >= 0).nonzero()[:, 0]
    places = None if places is None else places[kept]
    y = torch.zeros_like(x)
    y[kept] = causal_conv1d_update(
        x[kept], state, weight, bias, activation, places, index[kept]
    )
    return y


def _update_copies(arrays: Any, activation: Any, places: Any, index: Tensor | None) -> Tensor:
    """causal_conv1d_update of copied rows: a ring of steps, or dtypes that differ."""
    conv_state, x, weight, bias = arrays
    rows, steps, size = conv_state, x if x.dim() == 3 else x[..., None], conv_state.shape[-1]
    if index is not None:
        if bool((index < 0).any()):
            return _without_padding(arrays, activation, places, index)
        named = torch.zeros(conv_state.shape[0], dtype=torch.bool, device=index.device)
        if index.numel() and int(index.max()) >= named.numel():
            raise IndexError(
                f"index {int(index.max())} is out of bounds for axis 0 with size "
                f"{named.numel()}"
            )
        index = index.long()
        named[index] = True
        if int(named.sum()) != index.numel():
            raise ValueError("conv_state_indices must name each row once")
        rows = conv_state[index]
    wide, state = torch.promote_types(x.dtype, weight.dtype), rows
    if places is not None:
        kept = weight.shape[1] - 1
        if size < kept:
            raise ValueError(
                f"conv_state has {size} steps, but filters of {kept + 1} taps need {kept}"
            )
        state = rows.gather(2, _ring(rows, places, -kept, 0))
    bias = None if bias is None else bias.to(wide)
    y, after = operator("causal_conv1d_update")(
        state.to(wide), x.to(wide), weight.to(wide), bias, None, 0.0, activation
    )
    if places is not None:
        end = steps.shape[2]
        begin = max(end - size, 0)  # earlier steps are overwritten
        at = _ring(rows, places, begin, end)
        after = rows.scatter(2, at, steps[..., begin:].to(rows.dtype))
    if index is None:
        conv_state.copy_(after)
    else:
        conv_state[index] = after.to(conv_state.dtype)
    return y.to(x.dtype)


def _ring(rows: Tensor, places: Tensor, begin: int, end: int) -> Tensor:
    """Where steps begin to end are in rings of which step 0 is at `places`, for gather."""
    steps = torch.arange(begin, end, device=rows.device)
    at = (places.long()[:, None] + steps) % max(rows.shape[2], 1)
    return at[:, None].expand(-1, rows.shape[1], -1)


def causal_conv1d_varlen_states(x: Tensor, cu_seqlens: Tensor, state_len: int) -> Tensor:
    """The last steps of sequences in a row, as the package causal-conv1d returns them.

    x has the shape (T, C), cu_seqlens (B + 1,) the cumulative lengths from 0 to T; the
    result (B, C, state_len) has 0 before the first step of a sequence, and is a conv_state
    of causal_conv1d_update.
    """
    ends = cu_seqlens.long()[1:, None]
    at = ends + torch.arange(-state_len, 0, device=x.device)
    inside = at >= cu_seqlens.long()[:-1, None]
    steps = x[at.clamp(min=0)] if x.shape[0] else x.new_zeros(*at.shape, x.shape[1])
    return steps.masked_fill(~inside[..., None], 0).transpose(1, 2)


def convolve(input: Tensor, other: Tensor, mode: str = "full") -> Tensor:
    """torchaudio.functional.convolve: rows convolved with rows; leading axes broadcast.

    mode is "full", "same" or "valid", as in numpy.convolve.
    """
    return call("convolve", input, other, mode)


# ---- poolings ----


def _each(value: Ints, rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value)


def _max_pool(rank: int, x: Tensor, windows: Sequence[Any], ceil: bool, indices: bool) -> Any:
    """With indices if they are wanted, or needed for the gradient."""
    kernel, stride, padding, dilation = windows
    sizes = [_each(kernel, rank), _each(kernel, rank), _each(padding, rank)]
    if stride is not None and stride != []:
        sizes[1] = _each(stride, rank)
    recorded = torch.is_grad_enabled() and x.requires_grad
    suffix = "_with_indices" if indices or recorded else ""
    y = call(f"max_pool{rank}d{suffix}", x, *sizes, _each(dilation, rank), ceil)
    return y[0] if recorded and not indices else y


def _max_pooling(rank: int, axes: str) -> Callable[..., Any]:
    """torch.nn.functional.max_pool<rank>d."""

    def pool(
        input: Tensor,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        windows = (kernel_size, stride, padding, dilation)
        return _max_pool(rank, input, windows, ceil_mode, return_indices)

    pool.__name__ = pool.__qualname__ = f"max_pool{rank}d"
    pool.__doc__ = (
        f"torch.nn.functional.{pool.__name__} of (N, C, {axes}) or (C, {axes}).\n\n"
        "    With return_indices a pair, the indices second.\n    "
    )
    return pool


max_pool1d = _max_pooling(1, "L")
max_pool2d = _max_pooling(2, "H, W")
max_pool3d = _max_pooling(3, "D, H, W")


# ---- resizing ----


def _factors(scale: float | Sequence[float], rank: int) -> list[float]:
    one = isinstance(scale, (int, float))
    return [float(scale)] * rank if one else [float(s) for s in scale]  # type: ignore


def upsample_nearest(
    input: Tensor,
    size: Ints | None = None,
    scale: float | Sequence[float] | None = None,
    *,
    exact: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """gpuopt.upsample_nearest: the spatial axes of (N, C, ...), or (N, ..., C), enlarged.

    Exactly one of size and scale is given: a value for each spatial axis, or one for all.
    exact is torch's mode "nearest-exact".
    """
    if (size is None) == (scale is None):
        raise ValueError("exactly one of size and scale is needed")
    rank = input.dim() - 2
    sizes = None if size is None else _each(size, rank)
    scales = None if scale is None else _factors(scale, rank)
    if len(sizes or scales or ()) != rank:
        raise ValueError(f"{len(sizes or scales or ())} values for {rank} spatial axes")
    return call("upsample_nearest", input, sizes, scales, exact, layout)


def interpolate(
    input: Tensor,
    size: Ints | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """torch.nn.functional.interpolate in the modes "nearest" and "nearest-exact".

    ValueError for other modes, align_corners and antialias, which nearest ones do not have.
    """
    if mode not in ("nearest", "nearest-exact") or align_corners is not None or antialias:
        raise ValueError(
            "gpuopt interpolates with mode='nearest' or 'nearest-exact' and neither "
            f"align_corners nor antialias, not with mode={mode!r}"
        )
    if recompute_scale_factor and scale_factor is not None:
        factors = _factors(scale_factor, input.dim() - 2)
        pairs = zip(input.shape[2:], factors, strict=True)
        size, scale_factor = [torch.sym_int(n * s) for n, s in pairs], None
    return upsample_nearest(input, size, scale_factor, exact=mode == "nearest-exact")
