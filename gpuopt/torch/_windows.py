"""causal_conv1d, convolve, the poolings and upsample_nearest as operators of torch.

Order: causal_conv1d, convolve, poolings, upsample_nearest.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

import gpuopt
from gpuopt.torch._library import (
    Gradient,
    Shape,
    common_dtype,
    composed,
    front,
    merged,
    one_by_one,
    operator,
    refused_twice,
    register,
    split,
)

# ---- causal_conv1d ----

OPTIONS = "float eps, str? activation, str layout, str precision, str? causality"
CAUSAL = (
    f"causal_conv1d(Tensor x, Tensor w, Tensor? bias, {OPTIONS}, Tensor? segments=None) "
    "-> Tensor"
)
CAUSAL_BACKWARD = (
    "causal_conv1d_backward(Tensor dy, Tensor x, Tensor w, Tensor? bias, "
    f"{OPTIONS}, Tensor? segments=None) -> (Tensor, Tensor, Tensor)"
)
CAUSAL_UPDATE = (
    "causal_conv1d_update(Tensor state, Tensor x, Tensor w, Tensor? bias=None, "
    "Tensor? state_index=None, float eps=0.0, str? activation=None) -> (Tensor, Tensor)"
)
NAMES = ("eps", "activation", "layout", "precision", "causality", "segments")


def named(options: tuple[Any, ...]) -> dict[str, Any]:
    """The options by name; segments may be left out."""
    return dict(zip(NAMES, options, strict=False))


def _causal(x: Any, w: Any, bias: Any, *options: Any) -> Any:
    return gpuopt.causal_conv1d(x, w, bias, **named(options))


def _causal_fake(x: Any, w: Any, bias: Any, *options: Any) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _causal_backward(dy: Any, x: Any, w: Any, bias: Any, *options: Any) -> Any:
    """dx, dw and dbias, which has no elements if there is no bias."""
    grads = gpuopt.causal_conv1d_backward(dy, x, w, bias, **named(options))
    return grads if bias is not None else (*grads, x.new_empty(0))


def _causal_backward_fake(dy: Any, x: Any, w: Any, bias: Any, *options: Any) -> Any:
    shapes = (x.shape, w.shape, (0,) if bias is None else bias.shape)
    return tuple(torch.empty(shape, dtype=x.dtype, device=x.device) for shape in shapes)


def _causal_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, bias, *options = inputs
    segments = options[len(NAMES) - 1] if len(options) == len(NAMES) else None
    ctx.options = options[: len(NAMES) - 1]
    ctx.unused = [None] * len(options)
    ctx.save_for_backward(x, w, bias, segments)


def _causal_gradient(ctx: Any, dy: torch.Tensor) -> Any:
    x, w, bias, segments = ctx.saved_tensors
    options = (*ctx.options, segments)
    dx, dw, dbias = operator("causal_conv1d_backward")(dy, x, w, bias, *options)
    return (dx, dw, None if bias is None else dbias, *ctx.unused)


def in_channels(x: torch.Tensor, dim: Any, size: int, axis: int) -> torch.Tensor:
    """x with the batch axis made a part of the axis of the channels."""
    return front(x, dim, size).movedim(0, axis).flatten(axis, axis + 1)


def _causal_vmap(info: Any, in_dims: Any, x: Any, w: Any, bias: Any, *options: Any) -> Any:
    """More rows if the filters are the same for all, else more channels."""
    size, axis = info.batch_size, 2 if options[2] == "BTC" else 1
    if named(options).get("segments") is not None:  # of rows: one call per element
        return one_by_one("causal_conv1d")(info, in_dims, x, w, bias, *options)
    if in_dims[1] is None and in_dims[2] is None:
        y = operator("causal_conv1d")(merged(x, in_dims[0], size), w, bias, *options)
        return split(y, size), 0
    x = in_channels(x, in_dims[0], size, axis)
    w = in_channels(w, in_dims[1], size, 0)
    bias = None if bias is None else in_channels(bias, in_dims[2], size, 0)
    y = operator("causal_conv1d")(x, w, bias, *options)
    return y.unflatten(axis, (size, y.shape[axis] // size)), axis


def _causal_backward_vmap(
    info: Any, in_dims: Any, dy: Any, x: Any, w: Any, bias: Any, *options: Any
) -> Any:
    size, axis = info.batch_size, 2 if options[2] == "BTC" else 1
    if named(options).get("segments") is not None:
        return one_by_one("causal_conv1d_backward")(info, in_dims, dy, x, w, bias, *options)
    dy, x = (in_channels(a, d, size, axis) for a, d in ((dy, in_dims[0]), (x, in_dims[1])))
    w = in_channels(w, in_dims[2], size, 0)
    add = None if bias is None else in_channels(bias, in_dims[3], size, 0)
    dx, dw, dbias = operator("causal_conv1d_backward")(dy, x, w, add, *options)
    dx = dx.unflatten(axis, (size, dx.shape[axis] // size))
    dbias = dbias.expand(size, 0) if bias is None else split(dbias, size)
    return (dx, split(dw, size), dbias), (axis, 0, 0)


def _causal_update(
    state: Any, x: Any, w: Any, bias: Any = None, index: Any = None, *options: Any
) -> Any:
    given = dict(zip(("eps", "activation"), options, strict=False))
    return gpuopt.causal_conv1d_update(state, x, w, bias, state_index=index, **given)


def _causal_update_fake(state: Any, x: Any, *others: Any) -> Any:
    return tuple(torch.empty(a.shape, dtype=a.dtype, device=a.device) for a in (x, state))


register(
    CAUSAL,
    _causal,
    _causal_fake,
    Gradient(_causal_setup, _causal_gradient, "yes, once"),
    _causal_vmap,
    autocast=True,
)
register(
    CAUSAL_BACKWARD,
    _causal_backward,
    _causal_backward_fake,
    refused_twice("causal_conv1d_backward"),
    _causal_backward_vmap,
)
register(CAUSAL_UPDATE, _causal_update, _causal_update_fake)

# ---- convolve ----

CONVOLVE = "convolve(Tensor a, Tensor v, str mode) -> Tensor"


def window(n: Any, m: Any, mode: str) -> tuple[Any, Any]:
    """Of the n + m - 1 sums those that are kept: the first, and how many."""
    short, long = (m, n) if m <= n else (n, m)
    if mode == "full":
        return 0, n + m - 1
    return ((short - 1) // 2, long) if mode == "same" else (short - 1, long - short + 1)


def _convolve(a: torch.Tensor, v: torch.Tensor, mode: str) -> Any:
    dtype = common_dtype([a, v])
    return gpuopt.convolve(a.to(dtype), v.to(dtype), mode=mode)


def _convolve_fake(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    lead = torch.broadcast_shapes(a.shape[:-1], v.shape[:-1])
    kept = window(a.shape[-1], v.shape[-1], mode)[1]
    return torch.empty((*lead, kept), dtype=common_dtype([a, v]), device=a.device)


def convolved_back(g: torch.Tensor, other: torch.Tensor, n: Any, mode: str) -> torch.Tensor:
    """The gradient of an operand with n columns: g correlated with the other operand."""
    m = other.shape[-1]
    first, kept = window(n, m, mode)
    g = torch.nn.functional.pad(g, (first, n + m - 1 - first - kept))
    return operator("convolve")(g, other.conj().resolve_conj().flip(-1), "valid")


def _convolve_vmap(info: Any, in_dims: Any, a: Any, v: Any, mode: str) -> Any:
    """The leading axes broadcast, so that the batch axes are the first of them."""
    moved = []
    ranks = [x.dim() - (dim is not None) for x, dim in ((a, in_dims[0]), (v, in_dims[1]))]
    for x, dim, rank in ((a, in_dims[0], ranks[0]), (v, in_dims[1], ranks[1])):
        if dim is not None:
            x = x.movedim(dim, 0)
            x = x.reshape(x.shape[0], *[1] * (max(ranks) - rank), *x.shape[1:])
        moved.append(x)
    return operator("convolve")(*moved, mode), 0


register(
    CONVOLVE,
    _convolve,
    _convolve_fake,
    composed(
        CONVOLVE,
        {
            "a": lambda g, v, shape, mode: convolved_back(g, v, shape[-1], mode),
            "v": lambda g, a, shape, mode: convolved_back(g, a, shape[-1], mode),
        },
    ),
    _convolve_vmap,
    autocast=True,
)

# ---- poolings ----

WINDOWS = "int[] kernel_size, int[] stride, int[] padding, int[] dilation"


def pooled(n: Any, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> Any:
    """The number of windows along an axis of n elements."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= n + padding else count


def pool_name(rank: int, suffix: str = "") -> str:
    return f"max_pool{rank}d{suffix}"


def _pool(rank: int, indices: bool, x: Any, *options: Any) -> Any:
    kernel, stride, padding, dilation, ceil = options
    return getattr(gpuopt, pool_name(rank))(
        x, kernel, stride, padding, dilation, ceil_mode=ceil, return_indices=indices
    )


def _pool_fake(rank: int, indices: bool, x: Any, *options: Any) -> Any:
    if x.dim() not in (rank + 1, rank + 2):
        raise ValueError(f"{pool_name(rank)}() takes {rank + 1} or {rank + 2} dimensions")
    *windows, ceil = options
    sizes = zip(x.shape[-rank:], *windows, strict=True)
    shape = [*x.shape[:-rank], *(pooled(n, k, s, p, d, ceil) for n, k, s, p, d in sizes)]
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    return (y, torch.empty(shape, dtype=torch.int64, device=x.device)) if indices else y


def _pool_backward(rank: int, dy: Any, indices: Any, input_shape: Any, *windows: Any) -> Any:
    backward = getattr(gpuopt, pool_name(rank, "_backward"))
    return backward(dy, indices, tuple(input_shape), *windows)


def _pool_backward_fake(
    rank: int, dy: Any, indices: Any, input_shape: Any, *windows: Any
) -> Any:
    return torch.empty(input_shape, dtype=dy.dtype, device=dy.device)


def _pool_setup(rank: int, indices: bool, ctx: Any, inputs: Any, output: Any) -> None:
    """Keeps the indices; without them x, whose indices are then found in the gradient."""
    x, *ctx.options = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(output[1] if indices else x)
    if indices:
        ctx.mark_non_differentiable(output[1])


def _pool_gradient(rank: int, indices: bool, ctx: Any, dy: torch.Tensor, *_: Any) -> Any:
    (at,) = ctx.saved_tensors
    if not indices:
        at = operator(pool_name(rank, "_with_indices"))(at.detach(), *ctx.options)[1]
    backward = operator(pool_name(rank, "_backward"))
    return (backward(dy, at, ctx.shape, *ctx.options[:-1]), *[None] * len(ctx.options))


def rows_of(name: str, arrays: int, rank: int, info: Any, in_dims: Any, *args: Any) -> Any:
    """The batch axis joins the rows, or becomes them; `arrays` tensors have it."""
    size = info.batch_size
    given = [front(a, d, size) for a, d in zip(args[:arrays], in_dims, strict=False)]
    whole = given[0].dim() == rank + 3
    given = [a.flatten(0, 1) for a in given] if whole else given
    options = list(args[arrays:])
    if name.endswith("_backward"):  # the first option is input_shape
        shape = options[0]
        options[0] = [size * shape[0], *shape[1:]] if whole else [size, *shape]
    y = operator(name)(*given, *options)
    zeros: Any = 0 if isinstance(y, torch.Tensor) else (0,) * len(y)
    return (split(y, size) if whole else y), zeros


def define_pooling(rank: int) -> None:
    """torch.ops.gpuopt.max_pool<rank>d, ..._with_indices and ..._backward."""
    for suffix, indices, results in (
        ("", False, "Tensor"),
        ("_with_indices", True, "(Tensor, Tensor)"),
    ):
        name = pool_name(rank, suffix)
        bind = functools.partial
        register(
            f"{name}(Tensor x, {WINDOWS}, bool ceil_mode) -> {results}",
            bind(_pool, rank, indices),
            bind(_pool_fake, rank, indices),
            Gradient(
                bind(_pool_setup, rank, indices),
                bind(_pool_gradient, rank, indices),
                "yes, once",
            ),
            bind(rows_of, name, 1, rank),
        )
    name = pool_name(rank, "_backward")
    register(
        f"{name}(Tensor dy, Tensor indices, SymInt[] input_shape, {WINDOWS}) -> Tensor",
        functools.partial(_pool_backward, rank),
        functools.partial(_pool_backward_fake, rank),
        refused_twice(name),
        functools.partial(rows_of, name, 2, rank),
    )


for _rank in (1, 2, 3):
    define_pooling(_rank)

# ---- upsample_nearest ----

SCALES = "SymInt[]? size, float[]? scale, bool exact, str layout"
UPSAMPLE = f"upsample_nearest(Tensor x, {SCALES}) -> Tensor"
UPSAMPLE_BACKWARD = (
    f"upsample_nearest_backward(Tensor dy, SymInt[] input_shape, {SCALES}) -> Tensor"
)


def enlarged(shape: Shape, size: Any, scale: Any, layout: str) -> list[Any]:
    """The shape of the result."""
    spatial = slice(2, None) if layout == "NCHW" else slice(1, -1)
    result = list(shape)
    if size is None:
        size = [torch.sym_int(n * s) for n, s in zip(shape[spatial], scale, strict=True)]
    result[spatial] = size
    return result


def _upsample(x: Any, size: Any, scale: Any, exact: bool, layout: str) -> Any:
    return gpuopt.upsample_nearest(x, size, scale, exact=exact, layout=layout)


def _upsample_fake(x: Any, size: Any, scale: Any, exact: bool, layout: str) -> Any:
    shape = enlarged(x.shape, size, scale, layout)
    return torch.empty(shape, dtype=x.dtype, device=x.device)


def _upsample_backward(dy: Any, input_shape: Any, size: Any, scale: Any, *options: Any) -> Any:
    exact, layout = options
    return gpuopt.upsample_nearest_backward(
        dy, tuple(input_shape), size, scale, exact=exact, layout=layout
    )


def _upsample_backward_fake(dy: Any, input_shape: Any, *options: Any) -> torch.Tensor:
    return torch.empty(input_shape, dtype=dy.dtype, device=dy.device)


def _upsample_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, *ctx.options = inputs
    ctx.shape = x.shape


def _upsample_gradient(ctx: Any, dy: torch.Tensor) -> Any:
    dx = operator("upsample_nearest_backward")(dy, ctx.shape, *ctx.options)
    return (dx, *[None] * len(ctx.options))


def _upsample_vmap(info: Any, in_dims: Any, x: Any, *options: Any) -> Any:
    y = operator("upsample_nearest")(merged(x, in_dims[0], info.batch_size), *options)
    return split(y, info.batch_size), 0


def _upsample_backward_vmap(info: Any, in_dims: Any, dy: Any, shape: Any, *options: Any) -> Any:
    size = info.batch_size
    dy, whole = merged(dy, in_dims[0], size), [size * shape[0], *shape[1:]]
    return split(operator("upsample_nearest_backward")(dy, whole, *options), size), 0


register(
    UPSAMPLE,
    _upsample,
    _upsample_fake,
    Gradient(_upsample_setup, _upsample_gradient, "yes, once"),
    _upsample_vmap,
)
register(
    UPSAMPLE_BACKWARD,
    _upsample_backward,
    _upsample_backward_fake,
    refused_twice("upsample_nearest_backward"),
    _upsample_backward_vmap,
)
