"""Operators over arrays that come in blocks: a state of each block, combined in their order.

>>> from gpuopt import chunks
>>> a = chunks.partial("reduce", [1.0, 2.0], op="mean")
>>> b = chunks.partial("reduce", [6.0], op="mean", offset=2)
>>> chunks.finish(chunks.combine(a, b))
np.float64(3.0)

A block is what comes of the array along one axis; an engine (gpuopt.stream, Dask, a loop of
your own) reads and moves the blocks.  `partial` computes the state of one, on the block's
device; `combine` joins the states of two neighbours on the host and is associative up to the
rounding stated below; `finish` makes the operator's result, with its dtype and errors.

| op | blocks | along |
| --- | --- | --- |
| reduce | x | any combined axis; for axis=None complete rows, in C order |
| dot | x, y | their axis |
| partition_reduce | x | its axis; blocks of any length |
| scatter_add | values, index | any axis |
| index_add | index, source | the axis of the index; `x` is an argument of `finish` |
| scan | x | the scanned axis; the state is the total, and `scan` continues after it |

Operators whose results depend on neighbours have `halo` and `aligned` instead.

Accuracy: sums are carried in two float64 (or complex128) numbers, so that combining k states
adds at most k * 2**-104 times the sum of the absolute values, plus one rounding to the dtype of
the result.  A sum over a block of float32 or float64 has the operator's bound for the length of
that block; sums of float16 and bfloat16 leave a block as float32, products as float64, and the
values of scatter_add and index_add are converted to float64 first.  The bound of the whole is
that of the longest block, which is below that of one call.

Determinism: the bits depend on the blocks and the variants alone, not on who computed them, as
long as states are combined in one fixed order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._halos import HALOS, aligned, halo
from gpuopt._partials import OPS, Offset, beginning, check
from gpuopt._states import State, array, combine, finish, is_short, like, total, widened

__all__ = ["OPS", "State", "aligned", "combine", "finish", "halo", "partial", "scan"]


def partial(operator: str, /, *blocks: Any, offset: Offset = 0, **options: Any) -> State:
    """The state of one block.

    Parameters
    ----------
    operator : {'reduce', 'dot', 'partition_reduce', 'scatter_add', 'index_add', 'scan'}
        The operator.
    *blocks : array_like, CuPy array or DeviceArray
        The block of each array, as the table of this module lists them.
    offset : int or tuple of ints
        Where the block begins in the whole array, along the axis that is cut: needed for
        argmin and argmax, for partition_reduce, and for the positions that errors name.  For
        argmin and argmax with axis=None it counts elements in C order; where blocks are cut
        along several axes it is a tuple, and `shape=` is the shape of the whole array.
    **options
        The operator's own, with the same names, among them variant=, backend= and stream=;
        for index_add also `size` and `dtype`, the length of the axis of x and its dtype.

    Returns
    -------
    State
    """
    if operator not in OPS:
        raise ValueError(_stateless(operator))
    return OPS[operator](blocks, offset, options)


def _stateless(op: str) -> str:
    known = ", ".join(f"'{name}'" for name in OPS)
    if op in HALOS:
        return f"{op} has no state: its blocks overlap by chunks.halo; with a state are {known}"
    return f"there is no state of '{op}'; operators with one: {known}"


# ---- a scan that continues ----


def scan(x: Any, before: State | None = None, out: Any = None, **options: Any) -> Any:
    """One block of a scan, after the blocks whose state is `before`.

    Parameters
    ----------
    x : array_like, CuPy array or DeviceArray
        The block.
    before : State, optional
        What `partial("scan", ...)` and `combine` made of the blocks that come earlier in the
        scan: those on the left, or with reverse=True those on the right.
    out : array, optional
        As of gpuopt.scan: written and returned.
    **options
        As gpuopt.scan.  `initial` is given with every block, and counts once.

    Returns
    -------
    array
        This block's part of the result.  To the bound of the scan of the block itself are
        added two roundings of each result and one of what came before, which does not grow
        with the number of blocks.
    """
    check("scan", options, ("op", "axis", "exclusive", "reverse", "initial"))
    x = array(x)
    options = dict(options)
    how, initial = options.pop("op", "sum"), options.pop("initial", None)
    head = beginning(x.dtype, how, initial)
    if before is None:
        given = {} if initial is None else {"initial": initial}
        return _core.scan(x, how, out=out, **given, **options)
    axis = int(np.lib.array_utils.normalize_axis_index(options.get("axis", -1), x.ndim))
    if (before.op, before.how, before.dtype, before.axis) != ("scan", how, head.dtype, axis):
        raise ValueError(
            f"the state before is not of this scan but of {before.op} {before.how}"
        )
    work = head.dtype
    if is_short(work) and how in ("sum", "prod"):
        work = np.dtype(np.float32)
        x = widened(x, work, options)
    carry = total(before, None if initial is None else head).astype(work)
    into = out if work == head.dtype else None
    if carry.size == 1 and work.kind != "c" and work.name != "bfloat16":
        y = _core.scan(x, how, initial=carry.item(), out=into, **options)
    else:
        y = _core.scan(x, how, out=into, **options)
        function = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum"}[how]
        where = {k: v for k, v in options.items() if k in ("backend", "stream")}
        y = getattr(_core, function)(y, like(carry, y), out=into, **where)
    return widened(y, head.dtype, options, out)
