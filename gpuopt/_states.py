"""States of blocks and how they combine: what of `gpuopt.chunks` runs on the host."""

from __future__ import annotations

import dataclasses
import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._core import DeviceArray

__all__ = [
    "State",
    "add",
    "array",
    "carried",
    "combine",
    "finish",
    "foreign",
    "host",
    "is_short",
    "like",
    "total",
    "widened",
]

SHORT = ("float16", "bfloat16")


@dataclass(frozen=True)
class State:
    """What is known of some blocks: small, immutable, picklable wherever it was computed."""

    op: str
    """The operator."""
    how: str
    """How values combine: an op of reduce."""
    dtype: np.dtype[Any]
    """The dtype of the result."""
    value: Any
    """Sum, product, extreme value ...: on the device of the block until it is combined."""
    low: Any = None
    """What the additions of floats rounded off `value`."""
    index: Any = None
    """Of argmin and argmax: where `value` is in the whole array."""
    count: int = 0
    """How many elements each value was made of."""
    first: Any = None
    """`initial=` in the dtype of the result."""
    bits: tuple[int, ...] = ()
    """Of partition_reduce."""
    axis: int = 0
    """Of index_add and scan."""

    def __getstate__(self) -> dict[str, Any]:
        return dict(vars(_settled(self)))


# ---- arrays of either side ----


def foreign(x: Any) -> bool:
    return isinstance(x, DeviceArray) or hasattr(x, "__cuda_array_interface__")


def array(x: Any) -> Any:
    """A NumPy array in native byte order, or the foreign array itself."""
    if foreign(x):
        if not isinstance(x.dtype, np.dtype):
            raise TypeError(
                f"blocks are NumPy, CuPy or gpuopt.DeviceArray arrays, not {type(x).__name__}"
            )
        return x
    if type(x) not in (np.ndarray, np.memmap, list, tuple):
        _core.plan("where", True, x, 0)  # refuses a mask, a unit, a gradient ...
    x = np.asarray(x)
    return x.astype(x.dtype.newbyteorder("="), copy=False)


def host(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, DeviceArray):
        x = x.numpy()
    elif hasattr(x, "__cuda_array_interface__"):
        x = x.get()
    return np.asarray(x)


def like(x: np.ndarray[Any, Any], other: Any) -> Any:
    """x in the library and on the device of `other`."""
    if isinstance(other, DeviceArray):
        return _core.asdevice(x, device=other.device, backend=other.backend)
    if foreign(other):
        return importlib.import_module(type(other).__module__.partition(".")[0]).asarray(x)
    return x


def is_short(dtype: np.dtype[Any]) -> bool:
    """Whether sums of the dtype leave a block in float32."""
    return dtype.name in SHORT


def carried(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that results of `dtype` are combined in."""
    if dtype.kind == "c":
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if dtype.name in (*SHORT, "float32", "float64") else dtype


def widened(x: Any, dtype: np.dtype[Any], options: dict[str, Any], out: Any = None) -> Any:
    """x converted to `dtype`, where it is; x itself if it has the dtype."""
    if x.dtype == dtype:
        return x
    where = {k: v for k, v in options.items() if k == "stream" or k == "backend"}
    y = _core.cast(x, dtype, out=out, **where)
    return y if foreign(y) else np.asarray(y)


# ---- combining states ----


def _settled(state: State) -> State:
    """The state with its value on the host, in the dtype that values are combined in."""
    if state.value is None or state.low is not None:
        return state
    value = host(state.value)
    if state.how in ("argmin", "argmax"):
        wide = np.float32 if value.dtype.name == "bfloat16" else value.dtype
        return dataclasses.replace(state, value=value.astype(wide, copy=False))
    if state.how == "mean" and value.dtype.kind in "iu":
        value = value.astype(np.float64)
    value = value.astype(carried(value.dtype), copy=False)
    low = np.zeros_like(value) if state.how in ("sum", "mean") else None
    return dataclasses.replace(state, value=value, low=low)


def add(a: Any, a_low: Any, b: Any, b_low: Any) -> tuple[Any, Any]:
    """The sum of two pairs, as a pair (D. Knuth's TwoSum); whole numbers wrap."""
    with np.errstate(all="ignore"):
        total = np.asarray(a + b)
        if total.dtype.kind not in "fc":
            return total, a_low
        part = total - a
        low = np.asarray((a - (total - part)) + (b - part) + (a_low + b_low))
        real, error = total[..., None].view(np.float64), low[..., None].view(np.float64)
        error[~np.isfinite(real)] = 0  # inf - inf
        whole = np.asarray(total + low)
        left = np.asarray(low - (whole - total))
        left[..., None].view(np.float64)[~np.isfinite(whole[..., None].view(np.float64))] = 0
    return whole, left


def _alike(a: State, b: State) -> None:
    """Refuse states that are not of one call."""
    if (a.op, a.how, a.bits, a.axis) != (b.op, b.how, b.bits, b.axis):
        raise ValueError(f"states of different calls: {a.op} {a.how}, {b.op} {b.how}")
    if a.dtype != b.dtype:
        raise TypeError(f"blocks give results of different dtypes, {a.dtype} and {b.dtype}")
    if a.value is None or b.value is None:
        return
    if a.how in ("argmin", "argmax", "min", "max") and a.value.dtype != b.value.dtype:
        raise TypeError(f"blocks have different dtypes, {a.value.dtype} and {b.value.dtype}")
    if np.shape(a.value) != np.shape(b.value):
        raise ValueError(
            f"states of shapes {np.shape(a.value)} and {np.shape(b.value)} do not combine: "
            f"blocks may differ in length along the axis that is cut, and in no other"
        )


def combine(a: State, b: State) -> State:
    """The state of two neighbours, a before b.

    Waits for both, brings them to the host and combines them there.  Raises if they are not
    states of one call: TypeError for blocks of different dtypes, ValueError for shapes.
    """
    a, b = _settled(a), _settled(b)
    _alike(a, b)
    count = a.count + b.count
    if a.value is None or b.value is None:
        return b if a.value is None else a
    if a.how in ("argmin", "argmax"):
        later = _later_wins(a, b)
        value, index = np.where(later, b.value, a.value), np.where(later, b.index, a.index)
        return dataclasses.replace(a, value=value, index=index, count=count)
    if a.how in ("sum", "mean"):
        value, low = add(a.value, a.low, b.value, b.low)
        return dataclasses.replace(a, value=value, low=low, count=count)
    function: Any = {
        "prod": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "any": np.logical_or,
        "all": np.logical_and,
    }[a.how]
    with np.errstate(all="ignore"):
        value = np.asarray(function(a.value, b.value))
    return dataclasses.replace(a, value=value, count=count)


def _later_wins(a: State, b: State) -> Any:
    """Where b has the extreme value: the first nan, else the first extreme."""
    beyond = b.value < a.value if a.how == "argmin" else b.value > a.value
    a_nan, b_nan = a.value != a.value, b.value != b.value
    level = (a.value == b.value) | (a_nan & b_nan)
    return np.where(level, b.index < a.index, beyond | b_nan)


def finish(state: State, x: Any = None) -> Any:
    """The operator's result, a NumPy array or scalar; for index_add added to `x`."""
    state = _settled(state)
    if state.op == "scan":
        return _rounded(state, state.value, state.low)
    if state.op == "index_add":
        return _finish_index_add(state, x)
    if state.op == "partition_reduce":
        _check_partition(state)
    if state.how in ("argmin", "argmax"):
        if state.value is None:
            _core.reduce(np.ones(0), state.how, backend="cpu")  # raises
        return state.index[()]
    if state.how in ("min", "max") and not state.count and state.first is None:
        _core.reduce(np.ones(0), state.how, backend="cpu")  # raises
    value, low = state.value, state.low
    with np.errstate(all="ignore"):
        if state.first is not None:
            wide = np.broadcast_to(state.first, np.shape(value))
            first = _settled(dataclasses.replace(state, value=wide, low=None))
            whole = combine(dataclasses.replace(state, value=value, low=low), first)
            value, low = whole.value, whole.low
        if state.how == "mean":
            parts = (value + low)[..., None].view(np.float64)
            value = (parts / (state.count or np.nan)).view(value.dtype)[..., 0]
            low = None
    return _rounded(state, value, low)


def _rounded(state: State, value: Any, low: Any) -> Any:
    with np.errstate(all="ignore"):
        if low is not None and value.dtype.kind in "fc":
            value = value + low
        result = np.asarray(value).astype(state.dtype)
    return result if state.op in ("partition_reduce", "scatter_add") else result[()]


def _check_partition(state: State) -> None:
    n = state.count.bit_length() - 1
    if state.count != 1 << max(n, 0):
        raise ValueError(f"x has {state.count} elements, which is not a power of two")
    for bit in state.bits:
        if bit >= n:
            raise ValueError(f"bit {bit} is out of range for 2^{n} elements")


def _finish_index_add(state: State, x: Any) -> Any:
    if x is None:
        raise TypeError("finish() of index_add needs x, the array that is added to")
    x = array(host(x))
    if x.dtype != state.dtype or x.shape != state.value.shape:
        raise ValueError(
            f"x must have shape {state.value.shape} and dtype {state.dtype}, "
            f"not {x.shape} and {x.dtype}"
        )
    first = x.astype(state.value.dtype)
    zeros = np.zeros_like(first)
    if state.how == "any":
        return first | state.value
    low = state.low if state.low is not None else zeros
    return _rounded(state, *add(first, zeros, state.value, low))


def total(state: State, first: Any = None) -> np.ndarray[Any, Any]:
    """What a block of a scan begins with: `first`, then the blocks of the state."""
    state = _settled(state)
    if first is not None:
        wide = np.broadcast_to(first, state.value.shape)
        state = combine(_settled(dataclasses.replace(state, value=wide, low=None)), state)
    with np.errstate(all="ignore"):
        exact = state.low is None or state.value.dtype.kind not in "fc"
        return np.asarray(state.value if exact else state.value + state.low)
