"""The state of one block, operator by operator; `gpuopt.chunks` says what is combined how."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._states import (
    State,
    add,
    array,
    carried,
    combine,
    foreign,
    host,
    is_short,
    like,
    widened,
)

__all__ = ["OPS", "Offset", "beginning", "check"]

Offset = int | tuple[int, ...]
PIECE = 1 << 20  # elements
WHERE = ("variant", "backend", "stream")


def check(op: str, options: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in options:
        if name == "out":
            raise TypeError("a block has no out=: a state is not the result")
        if name not in (*known, *WHERE):
            raise TypeError(f"'{name}' is not an option of {op} over blocks")


def _blocks(op: str, blocks: tuple[Any, ...], names: str) -> list[Any]:
    wanted = names.split(", ")
    if len(blocks) != len(wanted):
        noun = "block" if len(wanted) == 1 else "blocks"
        raise TypeError(f"{op} takes {len(wanted)} {noun} ({names}), not {len(blocks)}")
    return [array(block) for block in blocks]


def _extreme(dtype: np.dtype[Any], how: str) -> Any:
    """The identity of 'min' or 'max', as an int or float."""
    if dtype.kind == "b":
        return how == "min"
    if dtype.kind in "iu":
        return int(getattr(np.iinfo(dtype), "max" if how == "min" else "min"))
    return np.inf if how == "min" else -np.inf


def _inner(how: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which a block's sum or product with the result `dtype` is computed."""
    if how == "prod" and (dtype.kind in "fc" or is_short(dtype)):
        return carried(dtype)
    return np.dtype(np.float32) if is_short(dtype) else dtype


def _reduced(x: Any, how: str, dtype: np.dtype[Any], options: dict[str, Any]) -> Any:
    """The sum or product of a block, in `dtype` or wider."""
    acc = _inner(how, dtype)
    if acc != dtype:
        x = widened(widened(x, dtype, options), acc, options)
    if how == "mean" and x.dtype.kind in "biu" and x.dtype.itemsize < 8 and acc == np.float64:
        return _core.reduce(x, "sum", **options)  # exact, and without a converted copy
    return _core.reduce(x, "prod" if how == "prod" else "sum", dtype=acc, **options)


def partial_reduce(blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]) -> State:
    check("reduce", options, ("op", "axis", "keepdims", "dtype", "initial", "shape"))
    (x,) = _blocks("reduce", blocks, "x")
    options = dict(options)
    how, dtype = options.pop("op", "sum"), options.pop("dtype", None)
    initial, shape = options.pop("initial", None), options.pop("shape", None)
    axis = options.get("axis")
    if isinstance(axis, tuple | list) and not len(axis):
        raise ValueError("axis=() combines nothing, so that it needs no blocks")
    axes = (
        range(x.ndim) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, x.ndim)
    )
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    if how in ("argmin", "argmax") and dtype is None and initial is None:
        return _partial_arg(x, how, count, offset, shape, options)
    probe = _probe(x.dtype, how, dtype, initial)
    first = None if initial is None else probe
    if how in ("sum", "prod", "mean"):
        if _in_pieces(x, _inner(how, probe.dtype), options):
            flat = x.reshape(-1)
            more = {**options, "op": how, "dtype": probe.dtype, "initial": initial}
            pieces = (flat[at : at + PIECE] for at in range(0, flat.size, PIECE))
            return functools.reduce(combine, (partial_reduce((p,), 0, more) for p in pieces))
        value = _reduced(x, how, probe.dtype, options)
    elif how in ("min", "max") and count == 0:
        value = _core.reduce(x, how, initial=_extreme(x.dtype, how), **options)
    else:
        value = _core.reduce(x, how, **options)
    return State("reduce", how, probe.dtype, value, count=count, first=first)


def _in_pieces(x: Any, inner: np.dtype[Any], options: dict[str, Any]) -> bool:
    """Whether to convert and combine a block on the host piece by piece, in the cache."""
    whole = options.get("axis") is None and not options.get("keepdims")
    plain = whole and not foreign(x) and x.flags.c_contiguous and x.size > PIECE
    return plain and x.dtype != inner and inner.kind in "fc"


def _probe(x: np.dtype[Any], how: str, dtype: Any, initial: Any) -> Any:
    """The result for no element: its dtype, `initial` converted to it, or the error."""
    options = {name: o for name, o in (("dtype", dtype), ("initial", initial)) if o is not None}
    elements = np.ones(1 if how in ("min", "max") and initial is None else 0, x)
    return np.asarray(_core.reduce(elements, how, backend="cpu", **options))


def _partial_arg(
    x: Any, how: str, count: int, offset: Offset, shape: Any, options: dict[str, Any]
) -> State:
    """argmin, argmax: the extreme value, and its place in the whole array."""
    axis = options.get("axis")
    whole = np.dtype(np.int64)
    if count == 0:
        return State("reduce", how, whole, None)
    index = host(_core.reduce(x, how, **options))
    if foreign(x):
        value = _core.reduce(x, how[3:], **options)  # a pass of its own, but for any array
    elif axis is None:
        value = x[np.unravel_index(index, x.shape)]
    else:
        at = index if options.get("keepdims") else np.expand_dims(index, axis)
        value = np.take_along_axis(x, at, axis).reshape(index.shape)
    if isinstance(offset, tuple):
        if axis is None and (shape is None or not len(shape) == len(offset) == x.ndim):
            raise ValueError("an offset for each axis needs shape=, that of the whole array")
        if axis is None:
            place = np.unravel_index(index, x.shape)
            places = tuple(p + o for p, o in zip(place, offset, strict=True))
            index = np.asarray(np.ravel_multi_index(places, tuple(shape)))
        else:
            index = index + offset[axis]
    else:
        index = index + offset
    return State("reduce", how, whole, value, index=index.astype(np.int64), count=count)


def _partial_dot(blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]) -> State:
    check("dot", options, ())
    x, y = _blocks("dot", blocks, "x, y")
    dtype = _core.dot(np.ones(0, x.dtype), np.ones(0, y.dtype), backend="cpu").dtype
    if is_short(dtype) and x.ndim == y.ndim == 1:
        x, y = (widened(a, np.dtype(np.float32), options) for a in (x, y))
    value = _core.dot(x, y, **options)
    return State("dot", "any" if dtype.kind == "b" else "sum", dtype, value, count=x.size)


def _pieces(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Begin and length of the longest pieces of 2**k elements that begin at multiples of it."""
    at, end = offset, offset + size
    while at < end:
        length = 1 << ((end - at).bit_length() - 1)
        length = min(length, at & -at) if at else length
        yield at, length
        at += length


def _partial_partition(
    blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]
) -> State:
    check("partition_reduce", options, ("bits", "op", "square"))
    (x,) = _blocks("partition_reduce", blocks, "x")
    options = dict(options)
    bits = options.pop("bits", None)
    if bits is None:
        raise TypeError("partition_reduce() missing required argument 'bits'")
    bits = tuple(int(b) for b in bits) if np.ndim(bits) else (int(bits),)
    if len(set(bits)) < len(bits) or min(bits, default=0) < 0:
        raise ValueError(f"bits must be distinct and not negative, not {bits}")
    if x.ndim != 1 or not isinstance(offset, int | np.integer):
        raise ValueError("partition_reduce() takes blocks of 1 dimension, and an int as offset")
    square = bool(options.get("square", False))
    nothing = np.zeros(1, x.dtype)
    dtype = _core.partition_reduce(nothing, (), square=square, backend="cpu").dtype
    if is_short(x.dtype):
        x = widened(x, np.dtype(np.float32), options)
    total = low = np.zeros(1 << len(bits), carried(dtype))
    for at, length in _pieces(int(offset), x.size):
        part = x[at - offset : at - offset + length]
        inside = [b for b in bits if 1 << b < length]
        sums = host(_core.partition_reduce(part, tuple(inside), **options))
        slots = sum((at >> b & 1) << place for place, b in enumerate(bits))
        slots = slots + _places(inside, bits)  # `at` has none of the bits inside
        here = np.zeros_like(total)
        here[slots] = sums
        total, low = add(total, low, here, np.zeros_like(low))
    return State("partition_reduce", "sum", dtype, total, low, count=x.size, bits=bits)


def _places(inside: list[int], bits: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Where element r of a sum over the bits `inside` stands in that over all bits."""
    r = np.arange(1 << len(inside), dtype=np.int64)
    slots = np.zeros_like(r)
    for place, bit in enumerate(inside):
        slots |= (r >> place & 1) << bits.index(bit)
    return slots


def _shifted(error: IndexError, offset: Offset) -> IndexError:
    """The error with the position in the whole index."""
    moved = offset if isinstance(offset, int | np.integer) else 0
    text = re.sub(
        r"at position (\d+)", lambda at: f"at position {int(at[1]) + int(moved)}", str(error)
    )
    return IndexError(text)


def _partial_scatter(blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]) -> State:
    check("scatter_add", options, ("size", "mode", "deterministic"))
    values, index = _blocks("scatter_add", blocks, "values, index")
    options = dict(options)
    size = options.pop("size", None)
    if size is None:
        raise TypeError("scatter_add() missing required argument 'size'")
    none = np.zeros(0, values.dtype), np.zeros(0, np.int64)
    dtype = _core.scatter_add(*none, 0, backend="cpu").dtype
    if dtype.kind in "fc" or dtype.name == "bfloat16":
        values = widened(values, carried(dtype), options)
    try:
        total = _core.scatter_add(values, index, size, **options)
    except IndexError as error:
        raise _shifted(error, offset) from None
    return State("scatter_add", "sum", dtype, total, count=values.size)


def _partial_index_add(
    blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]
) -> State:
    names = ("size", "dtype", "axis", "alpha", "mode", "deterministic")
    check("index_add", options, names)
    index, source = _blocks("index_add", blocks, "index, source")
    options = dict(options)
    size, dtype = options.pop("size", None), np.dtype(options.pop("dtype", source.dtype))
    if size is None:
        raise TypeError("index_add() missing required argument 'size', the length of x's axis")
    axis = int(np.lib.array_utils.normalize_axis_index(options.pop("axis", 0), source.ndim))
    alpha = options.get("alpha", 1)
    _core.index_add(  # refuses what the call on whole arrays would
        np.zeros(1, dtype), [], np.zeros(0, source.dtype), alpha=alpha, backend="cpu"
    )
    shape = (*source.shape[:axis], size, *source.shape[axis + 1 :])
    source = widened(widened(source, dtype, options), carried(dtype), options)
    zeros = like(np.zeros(shape, carried(dtype)), source)
    try:
        total = _core.index_add(zeros, index, source, axis, **options)
    except IndexError as error:
        raise _shifted(error, offset) from None
    how = "any" if dtype.kind == "b" else "sum"
    return State("index_add", how, dtype, total, count=index.size, axis=axis)


def _partial_scan(blocks: tuple[Any, ...], offset: Offset, options: dict[str, Any]) -> State:
    check("scan", options, ("op", "axis", "exclusive", "reverse", "initial"))
    (x,) = _blocks("scan", blocks, "x")
    how, where = options.get("op", "sum"), {k: v for k, v in options.items() if k in WHERE}
    axis = int(np.lib.array_utils.normalize_axis_index(options.get("axis", -1), x.ndim))
    first = beginning(x.dtype, how, options.get("initial"))
    whole = {"axis": axis, "keepdims": True, **where}
    if how in ("sum", "prod"):
        value = _reduced(x, how, first.dtype, whole)
    else:
        value = _core.reduce(x, how, initial=_extreme(x.dtype, how), **whole)
    initial = None if options.get("initial") is None else first
    return State("scan", how, first.dtype, value, count=x.shape[axis], first=initial, axis=axis)


def beginning(dtype: np.dtype[Any], how: str, initial: Any) -> np.ndarray[Any, Any]:
    """What a scan of `dtype` begins with, in the dtype of its results."""
    options = {} if initial is None else {"initial": initial}
    one = np.zeros(1, dtype)
    return np.asarray(_core.scan(one, how, exclusive=True, backend="cpu", **options))[0, ...]


Partial = Callable[[tuple[Any, ...], Offset, dict[str, Any]], State]
OPS: dict[str, Partial] = {
    "reduce": partial_reduce,
    "dot": _partial_dot,
    "partition_reduce": _partial_partition,
    "scatter_add": _partial_scatter,
    "index_add": _partial_index_add,
    "scan": _partial_scan,
}
"""The operators with a state, and how the state of a block is computed."""
