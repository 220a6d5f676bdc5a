"""reduce, scan, dot, partition_reduce and mean_matvec as operators of torch.

The dtypes are torch's: sums of bool and integers are int64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import gpuopt
from gpuopt.torch._library import (
    Shape,
    as_total,
    batched,
    category,
    common_dtype,
    composed,
    floating,
    merged,
    one_by_one,
    operator,
    register,
    total,
)

# ---- reduce ----

REDUCE = "reduce(Tensor x, str op, int[]? dim, bool keepdim) -> Tensor"
DTYPES = {
    "sum": total,
    "prod": total,
    "mean": lambda dtype: dtype if category(dtype) > 1 else torch.float64,
    "argmin": lambda dtype: torch.int64,
    "argmax": lambda dtype: torch.int64,
    "any": lambda dtype: torch.bool,
    "all": lambda dtype: torch.bool,
}


def axes_of(rank: int, dim: Sequence[int] | None) -> list[int]:
    """The combined axes, from 0; IndexError for one that is not there, or twice."""
    if dim is None:
        return list(range(rank))
    for d in dim:
        if not -rank <= d < rank:
            raise IndexError(f"axis {d} is out of bounds for {rank} dimensions")
    axes = [d % rank for d in dim]
    if len(set(axes)) < len(axes):
        raise ValueError(f"an axis is repeated in {list(dim)}")
    return axes


def _reduce(x: torch.Tensor, op: str, dim: Sequence[int] | None, keepdim: bool) -> Any:
    axis: Any = None if dim is None else tuple(dim)
    if op in ("argmin", "argmax") and dim is not None:
        axis = dim[0]
    result = gpuopt.reduce(x, op=op, axis=axis, keepdims=keepdim)
    return as_total(result) if op in ("sum", "prod") else result


def _reduce_fake(x: torch.Tensor, op: str, dim: Sequence[int] | None, keepdim: bool) -> Any:
    axes = axes_of(x.dim(), dim)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    dtype = DTYPES[op](x.dtype) if op in DTYPES else x.dtype
    return torch.empty(shape, dtype=dtype, device=x.device)


def kept(y: torch.Tensor, shape: Shape, dim: Sequence[int] | None, keepdim: bool) -> Any:
    """A result, or the gradient of one, with the combined axes as axes of length 1."""
    axes = axes_of(len(shape), dim)
    return y if keepdim else y.reshape([1 if i in axes else n for i, n in enumerate(shape)])


def spread(g: torch.Tensor, shape: Shape, dim: Any, keepdim: bool) -> torch.Tensor:
    return kept(g, shape, dim, keepdim).expand(shape)


def averaged(g: torch.Tensor, shape: Shape, dim: Any, keepdim: bool) -> torch.Tensor:
    count = 1
    for axis in axes_of(len(shape), dim):
        count = count * shape[axis]
    return spread(g, shape, dim, keepdim) / count


def shared(g: Any, x: Any, out: Any, dim: Any, keepdim: bool) -> torch.Tensor:
    """The gradient of an extreme value: equal elements share it, as in torch.amax."""
    equal = x == kept(out, x.shape, dim, keepdim)
    counts = equal.sum(axes_of(x.dim(), dim), keepdim=True) if x.dim() else 1
    return torch.where(equal, kept(g, x.shape, dim, keepdim) / counts, 0)


def _reduce_vmap(info: Any, in_dims: Any, x: Any, op: str, dim: Any, keepdim: bool) -> Any:
    x = x.movedim(in_dims[0], 0)
    rank = x.dim() - 1
    if dim is not None or rank == 0:
        axes = [d + 1 for d in axes_of(rank, dim)]
        if not axes and op in ("argmin", "argmax"):
            x, axes = x.unsqueeze(1), [1]
        return operator("reduce")(x, op, axes, keepdim), 0
    y = operator("reduce")(x.flatten(1), op, [1], False)
    return (y.reshape(-1, *[1] * rank) if keepdim else y), 0


register(
    REDUCE,
    _reduce,
    _reduce_fake,
    composed(
        REDUCE,
        {
            "sum": {"x": spread},
            "mean": {"x": averaged},
            "min": {"x": shared},
            "max": {"x": shared},
        },
        by="op",
    ),
    _reduce_vmap,
)

# ---- scan ----

SCAN = "scan(Tensor x, str op, int dim, bool exclusive, bool reverse) -> Tensor"


def _scan(x: torch.Tensor, op: str, dim: int, exclusive: bool, reverse: bool) -> Any:
    result = gpuopt.scan(x, op=op, axis=dim, exclusive=exclusive, reverse=reverse)
    return as_total(result) if op in ("sum", "prod") else result


def _scan_fake(x: torch.Tensor, op: str, dim: int, exclusive: bool, reverse: bool) -> Any:
    axes_of(x.dim(), [dim])
    dtype = total(x.dtype) if op in ("sum", "prod") else x.dtype
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def scanned_back(g: Any, dim: int, exclusive: bool, reverse: bool) -> torch.Tensor:
    return operator("scan")(g, "sum", dim, exclusive, not reverse)


def _scan_vmap(
    info: Any, in_dims: Any, x: Any, op: str, dim: int, exclusive: bool, reverse: bool
) -> Any:
    axis = axes_of(x.dim() - 1, [dim])[0] + 1
    return operator("scan")(x.movedim(in_dims[0], 0), op, axis, exclusive, reverse), 0


register(
    SCAN,
    _scan,
    _scan_fake,
    composed(SCAN, {"sum": {"x": scanned_back}}, by="op"),
    _scan_vmap,
)

# ---- dot, mean_matvec ----

DOT = "dot(Tensor x, Tensor y) -> Tensor"


def _dot(x: torch.Tensor, y: torch.Tensor) -> Any:
    dtype = torch.promote_types(x.dtype, y.dtype)
    return gpuopt.dot(x.to(dtype), y.to(dtype))


def _dot_fake(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    dtype = torch.promote_types(x.dtype, y.dtype)
    return torch.empty((), dtype=dtype, device=x.device)


register(
    DOT,
    _dot,
    _dot_fake,
    composed(DOT, {"x": lambda g, y: g * y.conj(), "y": lambda g, x: g * x.conj()}),
    autocast=True,
)

MEAN_MATVEC = "mean_matvec(Tensor x, Tensor matrix, str layout) -> Tensor"


def _mean_matvec(x: torch.Tensor, matrix: torch.Tensor, layout: str) -> Any:
    dtype = floating(common_dtype([x, matrix]))
    return gpuopt.mean_matvec(x.to(dtype), matrix.to(dtype), layout=layout)


def _mean_matvec_fake(x: torch.Tensor, matrix: torch.Tensor, layout: str) -> torch.Tensor:
    if x.dim() != 3 or matrix.dim() != 2:
        raise ValueError("mean_matvec() takes x of 3 dimensions and matrix of 2")
    shape = [matrix.shape[0], x.shape[0]]
    dtype = floating(common_dtype([x, matrix]))
    return torch.empty(shape if layout == "LN" else shape[::-1], dtype=dtype, device=x.device)


def _rows(g: torch.Tensor, layout: str) -> torch.Tensor:
    return g.T if layout == "LN" else g


def means_back(g: torch.Tensor, matrix: Any, shape: Shape, layout: str) -> torch.Tensor:
    share = _rows(g, layout) @ matrix.to(g.dtype) / shape[2]
    return share.unsqueeze(2).expand(shape)


def matrix_back(g: torch.Tensor, x: torch.Tensor, layout: str) -> torch.Tensor:
    return _rows(g, layout).T @ x.to(g.dtype).mean(2)


_matvec_each = one_by_one("mean_matvec")


def _mean_matvec_vmap(info: Any, in_dims: Any, x: Any, matrix: Any, layout: str) -> Any:
    if batched(in_dims[1]):
        return _matvec_each(info, in_dims, x, matrix, layout)
    y = operator("mean_matvec")(merged(x, in_dims[0], info.batch_size), matrix, layout)
    axis = 1 if layout == "LN" else 0
    return y.unflatten(axis, (info.batch_size, -1)), axis


register(
    MEAN_MATVEC,
    _mean_matvec,
    _mean_matvec_fake,
    composed(MEAN_MATVEC, {"x": means_back, "matrix": matrix_back}),
    _mean_matvec_vmap,
    autocast=True,
)

# ---- partition_reduce ----

PARTITION = "partition_reduce(Tensor x, int[] bits, bool square) -> Tensor"


def _partition(x: torch.Tensor, bits: Sequence[int], square: bool) -> Any:
    return gpuopt.partition_reduce(x, tuple(bits), square=square)


def _partition_fake(x: torch.Tensor, bits: Sequence[int], square: bool) -> torch.Tensor:
    dtype = total(x.dtype)
    dtype = dtype.to_real() if square and dtype.is_complex else dtype
    return torch.empty(1 << len(bits), dtype=dtype, device=x.device)


def partition_back(g: Any, x: torch.Tensor, bits: Sequence[int], square: bool) -> torch.Tensor:
    """Element i gets the gradient of the sum it is a part of."""
    i = torch.arange(x.shape[0], device=x.device)
    place = torch.zeros_like(i)
    for b, bit in enumerate(bits):
        place = place | (((i >> bit) & 1) << b)
    return 2 * x * g[place] if square else g[place]


register(PARTITION, _partition, _partition_fake, composed(PARTITION, {"x": partition_back}))
