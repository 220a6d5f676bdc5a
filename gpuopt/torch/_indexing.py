"""index_add and scatter_add as operators of torch.

mode="raise" keeps its meaning under torch.compile, for which the operator is opaque: an
index out of range is an IndexError of the call.  While a stream is captured into a CUDA
graph it is refused, since the error could not be raised; "wrap" and "clip" never wait.
"""

from __future__ import annotations

from typing import Any

import torch

import gpuopt
from gpuopt.torch._library import (
    batched,
    composed,
    front,
    one_by_one,
    operator,
    register,
    total,
)
from gpuopt.torch._reductions import axes_of

INDEX_ADD = (
    "index_add(Tensor x, Tensor index, Tensor source, int dim, Scalar alpha, str mode, "
    "bool deterministic) -> Tensor"
)
SCATTER_ADD = (
    "scatter_add(Tensor values, Tensor index, SymInt size, str mode, bool deterministic) "
    "-> Tensor"
)


def places(index: torch.Tensor, length: Any, mode: str) -> torch.Tensor:
    """The positions from 0 to length - 1 that an index means; int64."""
    index = index.long()
    if mode == "wrap":
        return index.remainder(length)
    if mode == "clip":
        return index.clamp(0, length - 1)
    return torch.where(index < 0, index + length, index)


# ---- index_add ----


def _index_add(
    x: Any, index: Any, source: Any, dim: int, alpha: Any, mode: str, deterministic: bool
) -> Any:
    options: dict[str, Any] = {"alpha": alpha, "mode": mode, "deterministic": deterministic}
    return gpuopt.index_add(x, index, source, axis=dim, **options)


def _index_add_fake(
    x: Any, index: Any, source: Any, dim: int, alpha: Any, mode: str, deterministic: bool
) -> Any:
    axes_of(x.dim(), [dim])
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def source_back(g: Any, index: Any, dim: int, alpha: Any, mode: str) -> torch.Tensor:
    return alpha * g.index_select(dim, places(index, g.shape[dim], mode))


_index_add_each = one_by_one("index_add")


def _index_add_vmap(
    info: Any, in_dims: Any, x: Any, index: Any, source: Any, dim: int, *options: Any
) -> Any:
    if batched(in_dims[1]):
        return _index_add_each(info, in_dims, x, index, source, dim, *options)
    axis = axes_of(x.dim() - batched(in_dims[0]), [dim])[0] + 1
    x, source = (
        front(a, d, info.batch_size) for a, d in ((x, in_dims[0]), (source, in_dims[2]))
    )
    return operator("index_add")(x, index, source, axis, *options), 0


register(
    INDEX_ADD,
    _index_add,
    _index_add_fake,
    composed(INDEX_ADD, {"x": lambda g: g, "source": source_back}),
    _index_add_vmap,
)

# ---- scatter_add ----


def _scatter_add(values: Any, index: Any, size: int, mode: str, deterministic: bool) -> Any:
    y = gpuopt.scatter_add(values, index, size, mode=mode, deterministic=deterministic)
    return y.view(torch.int64) if y.dtype == torch.uint64 else y


def _scatter_add_fake(
    values: Any, index: Any, size: Any, mode: str, deterministic: bool
) -> Any:
    return torch.empty(size, dtype=total(values.dtype), device=values.device)


register(
    SCATTER_ADD,
    _scatter_add,
    _scatter_add_fake,
    composed(
        SCATTER_ADD,
        {"values": lambda g, index, size, mode: g[places(index, size, mode)]},
    ),
)
