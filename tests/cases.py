"""The test registry: one entry per operator, read by every registry-driven test.

Order: dtypes, fills (values), layouts (memory), samples, expectations, error inputs, one
section per operator, the table.  An operator needs a function that yields samples, one
that says what a sample's result must be and how far it may err, and error inputs.  How a
case is run belongs to test_contract.py, what an operator means to gpuopt/ref.py.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from gpuopt import ref

# ---- dtypes ----

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def dtype_of(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def kind_of(dtype: np.dtype[Any]) -> str:
    """NumPy's kind letter; ml_dtypes registers bfloat16 as 'V'."""
    return "f" if dtype == BFLOAT16 else dtype.kind


def unit(dtype: np.dtype[Any]) -> float:
    """Unit roundoff: half the distance from 1 to the next number."""
    return {
        "bfloat16": 2.0**-8,
        "float16": 2.0**-11,
        "float32": 2.0**-24,
        "complex64": 2.0**-24,
        "float64": 2.0**-53,
        "complex128": 2.0**-53,
    }[dtype.name]


def smallest(dtype: np.dtype[Any]) -> float:
    """The smallest positive number, below which a relative bound means nothing."""
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return float(ml_dtypes.finfo(dtype_of(real)).smallest_subnormal)


# ---- fills: which values ----

SIZES = (0, 1, 31, 32, 33, 255, 256, 257, 1009, 1023, 1024, 1025, 2**20 + 3)
BIG = 2**20 + 3


def _seed(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


@functools.lru_cache(maxsize=4096)
def values(fill: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A C-contiguous read-only array; the same arguments give the same values.

    normal   full-range integers, normally distributed floats
    whole    small whole numbers: a float sum of 2**20 of them is exact in any order
    factors  up to 12 pairs of factors between 0.5 and 2, else -1 and 1: no product of a
             part of them leaves the range of float16's accumulator; odd integers
    signs    -1 and 1 (and their products with i), or 1 and one 3 if unsigned
    rare     all elements false but one
    common   all elements true but one
    special  normal with nan and both infinities among them
    """
    rng = np.random.default_rng(_seed(fill, dtype, shape))
    target = dtype_of(dtype)
    kind = kind_of(target)
    n = math.prod(shape)
    x: Any
    if fill in ("rare", "common"):
        x = np.full(n, fill == "common", np.int8)
        if n:
            x[rng.integers(n)] = fill == "rare"
    elif kind == "b":
        x = rng.random(n) < 0.5
    elif kind in "iu":
        info = np.iinfo(target)
        if fill == "signs":
            x = rng.choice([1, 1 if kind == "u" else -1], n)
            x[:1] *= 3 if kind == "u" else 1
        elif fill == "whole":
            x = rng.integers(0 if kind == "u" else -8, 9, n)
        else:
            x = rng.integers(info.min, info.max, n, dtype=target, endpoint=True)
            if fill == "factors":
                x |= target.type(1)
    elif fill == "whole":
        x = rng.integers(-8, 9, n)
    elif fill in ("factors", "signs"):
        x = rng.choice([-1.0, 1.0], n)
        pairs = min(12, n // 2) if fill == "factors" else 0
        at = rng.permutation(n)[: 2 * pairs]
        factor = rng.uniform(0.5, 2.0, pairs)
        x[at] *= np.concatenate([factor, 1 / factor])
    else:
        x = rng.standard_normal(n)
        if kind == "c":
            x = x + 1j * rng.standard_normal(n)
        if fill == "special" and n:
            at = rng.integers(0, n, 3)
            x[at] = rng.choice([np.nan, np.inf, -np.inf], 3)
    if kind == "c" and fill == "whole":
        x = x + 1j * rng.integers(-8, 9, n)
    if kind == "c" and fill in ("factors", "signs"):
        x = x * rng.choice([1, 1j], n)
    array = np.asarray(x).astype(target).reshape(shape)
    array.flags.writeable = False
    return array


# ---- layouts: where the values lie ----

LAYOUTS_1D = (
    "C",
    "step2",
    "negative",
    "stride0",
    "offset",
    "unaligned",
    "readonly",
    "swapped",
)
LAYOUTS_ND = (
    "C",
    "F",
    "step2",
    "negative",
    "transposed",
    "stride0",
    "offset",
    "unaligned",
    "readonly",
    "swapped",
)


def lay_out(layout: str, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array equal to `source` (stride0: to its first slice) in another memory layout."""
    shape, dtype = source.shape, source.dtype
    if layout == "C":
        return source.copy()
    if layout == "readonly":
        x = source.copy()
        x.flags.writeable = False
        return x
    if layout == "F":
        return np.asfortranarray(source)
    if layout == "transposed":
        order = (*range(1, source.ndim), 0)
        return np.transpose(source, order).copy().transpose(np.argsort(order))
    if layout == "swapped":
        if dtype == BFLOAT16:  # has no other byte order
            return source.copy()
        return source.astype(dtype.newbyteorder())
    if layout == "stride0":
        return np.broadcast_to(source[:1].copy(), shape) if source.size else source.copy()
    if layout == "offset":
        x = np.empty(source.size + 1, dtype)[1:].reshape(shape)
    elif layout == "unaligned":
        raw = np.empty(source.nbytes + 1, np.uint8)
        x = raw[1:].view(dtype).reshape(shape)
    elif layout == "step2":
        x = np.empty(tuple(2 * s for s in shape), dtype)[(slice(None, None, 2),) * len(shape)]
    elif layout == "negative":
        x = np.empty(shape, dtype)[(slice(None, None, -1),) * len(shape)]
    else:
        raise ValueError(f"no layout {layout!r}")
    x[...] = source
    return x


# ---- samples ----


@dataclass(frozen=True)
class Spec:
    """One input array."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "C"
    fill: str = "normal"

    def values(self) -> np.ndarray[Any, Any]:
        """What the array holds, C-contiguous and native."""
        source = values(self.fill, self.dtype, self.shape)
        if self.layout == "stride0" and source.size:
            return np.broadcast_to(source[:1], self.shape)
        return source

    def build(self) -> np.ndarray[Any, Any]:
        return lay_out(self.layout, values(self.fill, self.dtype, self.shape))


@dataclass(frozen=True)
class Sample:
    """One call: input arrays and options, hashable so that its result is kept."""

    arrays: tuple[Spec, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def elements(self) -> int:
        return sum(math.prod(a.shape) for a in self.arrays)

    def __str__(self) -> str:
        parts = [f"{a.dtype}{list(a.shape)} {a.layout} {a.fill}" for a in self.arrays]
        return ", ".join(parts + [f"{k}={v!r}" for k, v in self.options])


# ---- expectations ----


@dataclass(frozen=True)
class Expected:
    """A result, in a wider type than the operator's, and how far off it may be."""

    dtype: np.dtype[Any]
    value: np.ndarray[Any, Any]
    tolerance: np.ndarray[Any, Any] | None = None  # None: equal
    error: type[BaseException] | None = None
    message: str = ""

    def compare(self, got: Any) -> str | None:
        """None if `got` is right, else what is wrong with it.  Fails on a stray nan."""
        if not isinstance(got, np.ndarray if self.value.ndim else np.generic):
            return f"a {type(got).__name__} for a result of {self.value.ndim} dimensions"
        if got.dtype != self.dtype or not got.dtype.isnative:
            return f"dtype {got.dtype}, not {self.dtype}"
        if got.shape != self.value.shape:
            return f"shape {got.shape}, not {self.value.shape}"
        a = np.asarray(got)
        if self.tolerance is None and kind_of(self.dtype) in "biu":
            bad = a != self.value
        elif kind_of(self.dtype) == "c":
            assert self.tolerance is not None
            bad = _off(a.real, self.value.real, self.tolerance.real)
            bad = bad | _off(a.imag, self.value.imag, self.tolerance.imag)
        else:
            tolerance = 0 if self.tolerance is None else self.tolerance
            bad = _off(a.astype(self.value.dtype), self.value, tolerance)
        if not bad.any():
            return None
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        limit = "" if self.tolerance is None else f" +- {self.tolerance[at]}"
        return (
            f"{int(bad.sum())} of {bad.size} wrong, first at {at}: "
            f"{a[at]!r}, not {self.value[at]!r}{limit}"
        )


def _off(got: Any, want: Any, tolerance: Any) -> Any:
    """Where `got` is not within `tolerance` of `want`; nan must meet nan."""
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(got - want) <= tolerance
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return ~(close & np.isfinite(want) | same)


# ---- error inputs ----


@dataclass(frozen=True)
class Error:
    """A call that must raise; `make` builds fresh arguments, so a test may compare them."""

    name: str
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    raises: type[BaseException] | tuple[type[BaseException], ...]
    match: str


@dataclass(frozen=True)
class Entry:
    samples: Callable[[str, str], Iterator[Sample]]
    """(dtype, extent) to samples; extent 'full', or 'small' for the simulator"""
    large: Callable[[str], Iterator[Sample]]
    """samples above 4,097 elements: one for the simulator"""
    expect: Callable[[Sample], Expected]
    errors: Callable[[], list[Error]]
    valid: Callable[[], tuple[tuple[Any, ...], dict[str, Any], Any]]
    """a call that must be right after every error, and its result"""
    floats: Callable[[], Iterator[Sample]] = field(default=lambda: iter(()))
    """samples whose bits depend on the order of operations: for determinism"""


# ==== reduce ====

REDUCE_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax", "any", "all")

_REDUCE_FILLS = {
    "sum": ("normal", "whole"),
    "prod": ("factors",),
    "min": ("normal", "special"),
    "max": ("normal", "special"),
    "mean": ("normal", "whole"),
    "argmin": ("whole", "special"),
    "argmax": ("whole", "special"),
    "any": ("rare", "normal"),
    "all": ("common", "normal"),
}

# Rows and columns around block, warp and vector edges; every axis form on each.
_REDUCE_SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 5),
    (33, 31),
    (1, 1025),
    (1025, 1),
    (257, 13),
    (4, 0, 3),
    (7, 11, 13),
    (2, 3, 4, 5),
)


def _reduce_axes(ndim: int, op: str) -> Iterator[int | tuple[int, ...] | None]:
    yield None
    yield from range(ndim)
    yield -1
    if op not in ("argmin", "argmax"):
        yield (0, -1) if ndim > 1 else (0,)
        yield tuple(range(ndim))[::-1]
        if ndim > 2:
            yield (1, 2)
        if op in ("sum", "prod", "mean"):
            yield ()


def _reduce_fill(op: str, dtype: str, layout: str, turn: int) -> str:
    if op == "prod" and layout == "stride0" and kind_of(dtype_of(dtype)) in "fc":
        return "signs"  # a power of a factor leaves the range
    fills = _REDUCE_FILLS[op]
    return fills[turn % len(fills)]


def _reduce_rows(shape: tuple[int, ...], axis: int | tuple[int, ...] | None) -> int:
    """How many results a reduction has."""
    return int(np.add.reduce(np.broadcast_to(np.int8(0), shape), axis=axis).size)


def reduce_takes(op: str, dtype: str) -> bool:
    return not (dtype.startswith("complex") and op not in ("sum", "prod", "mean"))


def reduce_samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    for op in REDUCE_OPS:
        if not reduce_takes(op, dtype):
            continue
        for n in SIZES:
            if n == BIG:
                continue
            layouts: tuple[str, ...] = LAYOUTS_1D
            if extent == "small":
                layouts = (LAYOUTS_1D[turn % len(LAYOUTS_1D)],)
            for layout in layouts:
                fill = _reduce_fill(op, dtype, layout, turn)
                turn += 1
                yield Sample((Spec((n,), dtype, layout, fill),), (("op", op),))
        for shape in _REDUCE_SHAPES:
            for axis in _reduce_axes(len(shape), op):
                # A third of the layouts each time, and one in three for the simulator.
                third, turn = turn % 3, turn + 1
                layouts = LAYOUTS_ND[third::3]
                if extent == "small":
                    # The simulator takes about 0.1 ms a row: many rows for 'sum' alone.
                    many = op != "sum" and _reduce_rows(shape, axis) > 64
                    layouts = layouts[:1] if third and not many else ()
                for layout in layouts:
                    turn += 1
                    fill = _reduce_fill(op, dtype, layout, turn)
                    options: list[tuple[str, Any]] = [("op", op), ("axis", axis)]
                    if turn % 5 == 0:
                        options.append(("keepdims", True))
                    yield Sample((Spec(shape, dtype, layout, fill),), tuple(options))
    # The result in another dtype than the default one: converted first, then combined.
    for op in ("sum", "prod", "mean"):
        fill = "signs" if op == "prod" else "whole"
        for other in _reduce_dtypes(op, dtype):
            for shape in ((1025,), (33, 31)):
                options = [("op", op), ("dtype", other), ("axis", -1)]
                yield Sample((Spec(shape, dtype, "C", fill),), tuple(options))
                if extent == "small":
                    break


def _reduce_dtypes(op: str, dtype: str) -> tuple[str, ...]:
    if dtype.startswith("complex"):
        return ("complex64", "complex128")
    if op == "mean":
        return ("float16", "bfloat16", "float32", "float64", "complex128")
    if dtype.startswith(("float", "bfloat")) and op == "prod":
        return ("float32", "float64", "complex64")
    return (
        ("bool", "int8", "uint8", "int32", "int64", "uint64")
        if not dtype.startswith(("float", "bfloat"))
        else ("int16", "int32", "int64")
    ) + ("float16", "bfloat16", "float32", "float64", "complex64")


def reduce_large(dtype: str) -> Iterator[Sample]:
    for op in REDUCE_OPS:
        if reduce_takes(op, dtype):
            fill = _REDUCE_FILLS[op][-1 if op in ("sum", "mean") else 0]
            for layout in ("C", "offset") if op == "sum" else ("C",):
                yield Sample((Spec((BIG,), dtype, layout, fill),), (("op", op),))
    for shape, axis in (((1031, 1021), 0), ((1031, 1021), 1), ((3, 70001, 5), 1)):
        options = (("op", "sum"), ("axis", axis))
        yield Sample((Spec(shape, dtype, "C", "whole"),), options)


def reduce_bound(
    op: str, n: int, x: np.ndarray[Any, Any], out: np.ndarray[Any, Any], **axes: Any
) -> np.ndarray[Any, Any]:
    """How far a result may be off: x and out in the wide type, `n` elements each.

    sum   (ceil(log2 n) + 12) u sum|x|, u of the accumulator (float32 for 16 bits)
    mean  the sum's divided by n, and a division and a multiplication to round
    prod  each of n - 1 products rounds once; a complex one counts as three
    Then the result is rounded to its own dtype, whose u and smallest number are added.
    """
    dtype = axes.pop("dtype")
    acc = 2.0**-53 if dtype.name in ("float64", "complex128") else 2.0**-24
    size = np.abs(out)
    if op == "prod":
        bound = np.asarray(size * (n + 2) * acc * (3 if dtype.kind == "c" else 1) * 1.01)
        if dtype.kind == "c":
            bound = bound * (1 + 1j)
    else:
        log = max(0, n - 1).bit_length()
        if dtype.kind == "c":
            total = np.add.reduce(np.abs(x.real), **axes) + 1j * np.add.reduce(
                np.abs(x.imag), **axes
            )
        else:
            total = np.add.reduce(np.abs(x), **axes)
        bound = np.asarray(total * ((log + 12) * acc))
        if op == "mean":
            bound = bound / max(n, 1)
            bound = bound + 2 * acc * (size * (1 + 1j) if dtype.kind == "c" else size)
    rounding = unit(dtype) * size + smallest(dtype)
    return bound + rounding * (1 + 1j if dtype.kind == "c" else 1)


def reduce_expect(x: np.ndarray[Any, Any], **options: Any) -> Expected:
    """What gpuopt.reduce must return for logical values `x`."""
    op = options.get("op", "sum")
    try:
        narrow = np.asarray(ref.reduce(x, **options))
    except (ValueError, TypeError) as error:
        return Expected(np.dtype(bool), np.zeros(()), None, type(error), str(error))
    dtype = narrow.dtype
    if kind_of(dtype) not in "fc" or op in ("min", "max"):
        wide = narrow.astype(np.float32) if dtype == BFLOAT16 else narrow
        return Expected(dtype, wide)
    axes = {k: v for k, v in options.items() if k in ("axis", "keepdims")}
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        elements = x.astype(dtype).astype(acc)
        exact = np.asarray(ref.reduce(elements, op, **axes))
        n = x.size // exact.size if exact.size else 0
        if op == "sum" and _sum_is_exact(elements, dtype, **axes):
            once = narrow.astype(acc)  # rounded to the dtype of the result, and only there
            return Expected(dtype, once, np.zeros(once.shape, acc))
        bound = reduce_bound(op, n, elements, exact, dtype=dtype, **axes)
    return Expected(dtype, exact, bound)


def _sum_is_exact(x: np.ndarray[Any, Any], dtype: np.dtype[Any], **axes: Any) -> bool:
    """True if every partial sum in any order is a whole number below 2**24."""
    for part in (x.real, x.imag) if dtype.kind == "c" else (x,):
        total = np.add.reduce(np.abs(part), **axes)
        if not (np.all(part == np.rint(part)) and np.all(total < 2**24)):
            return False
    return True


@functools.lru_cache(maxsize=65536)
def _reduce_expect_values(spec: Spec, options: tuple[tuple[str, Any], ...]) -> Expected:
    keywords = dict(options)
    if "dtype" in keywords:
        keywords["dtype"] = dtype_of(keywords["dtype"])
    return reduce_expect(spec.values(), **keywords)


def reduce_expect_sample(sample: Sample) -> Expected:
    spec = sample.arrays[0]
    layout = "stride0" if spec.layout == "stride0" else "C"
    plain = Spec(spec.shape, spec.dtype, layout, spec.fill)
    return _reduce_expect_values(plain, sample.options)


def reduce_floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for op in ("sum", "prod", "mean"):
            fill = "factors" if op == "prod" else "normal"
            for n in (33, 1025, 100003):
                yield Sample((Spec((n,), dtype, "C", fill),), (("op", op),))
            for shape in ((61, 59), (301, 299)):
                for axis in (0, 1):
                    options = (("op", op), ("axis", axis))
                    yield Sample((Spec(shape, dtype, "C", fill),), options)


def _overlap(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"axis": 0, "out": x[0]}


def _readonly(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    out = np.zeros(shape, dtype)
    out.flags.writeable = False
    return out


def reduce_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def m() -> np.ndarray[Any, Any]:
        return np.arange(12, dtype=np.float32).reshape(3, 4)

    axis_error = np.exceptions.AxisError
    return [
        Error("axis too large", lambda: ((m(),), {"axis": 2}), axis_error,
              r"^axis 2 is out of bounds for array of dimension 2$"),
        Error("axis too small", lambda: ((m(),), {"axis": -3}), axis_error,
              r"^axis -3 is out of bounds for array of dimension 2$"),
        Error("axis in a tuple", lambda: ((m(),), {"axis": (0, 5)}), axis_error,
              r"^axis 5 is out of bounds for array of dimension 2$"),
        Error("axis of a scalar", f(np.float32(1), axis=0), axis_error,
              r"^axis 0 is out of bounds for array of dimension 0$"),
        Error("axis twice", lambda: ((m(),), {"axis": (0, -2)}), ValueError,
              r"^duplicate value in 'axis'$"),
        Error("axis a float", lambda: ((m(),), {"axis": 1.5}), TypeError,
              r"'float' object cannot be interpreted as an integer"),
        Error("axis a string", lambda: ((m(),), {"axis": "0"}), TypeError,
              r"'str' object cannot be interpreted as an integer"),
        Error("axis past int64", lambda: ((m(),), {"axis": 2**70}),
              (OverflowError, ValueError), r"int"),
        Error("no such op", lambda: ((m(), "summ"), {}), ValueError, r"one of 'sum', .*'summ'"),
        Error("op not a string", lambda: ((m(), 3), {}), TypeError, r"op"),
        Error("object array", f(np.array([None, 1])), TypeError,
              r"dtype 'object'"),
        Error("string array", f(np.array(["a", "b"])), TypeError,
              r"dtype '<U1'"),
        Error("structured array", f(np.zeros(2, "i4,f4")), TypeError, r"dtype .*'f0'"),
        Error("longdouble array", f(np.zeros(2, np.longdouble)), TypeError,
              f"dtype '{np.dtype(np.longdouble)}'"),
        Error("datetime array", f(np.zeros(2, "M8[s]")), TypeError,
              r"dtype 'datetime64\[s\]'"),
        Error("None", f(None), TypeError, r"dtype 'object'"),
        Error("an object", f(object()), TypeError, r"dtype 'object'"),
        Error("a ragged list", f([[1, 2], [3]]), ValueError, r"inhomogeneous"),
        Error("max of nothing", f(np.empty((0, 3), np.float32), "max", 0), ValueError,
              r"^zero-size array to reduction operation maximum which has no identity$"),
        Error("min of nothing", f([], "min"), ValueError,
              r"^zero-size array to reduction operation minimum which has no identity$"),
        Error("argmax of nothing", f([], "argmax"), ValueError,
              r"^attempt to get argmax of an empty sequence$"),
        Error("argmin of nothing", f(np.empty((2, 0)), "argmin", 1), ValueError,
              r"^attempt to get argmin of an empty sequence$"),
        Error("argmax over two axes", lambda: ((m(), "argmax", (0, 1)), {}), TypeError,
              r"takes one axis or None"),
        Error("complex max", f(np.zeros(3, np.complex64), "max"), TypeError,
              r"does not support dtype 'complex64'"),
        Error("complex any", f(np.zeros(3, np.complex128), "any"), TypeError,
              r"does not support dtype 'complex128'"),
        Error("dtype with max", lambda: ((m(), "max"), {"dtype": "f8"}), TypeError,
              r"dtype= .*'max'"),
        Error("mean in integers", lambda: ((m(), "mean"), {"dtype": np.int32}), TypeError,
              r"floating dtype, not 'int32'"),
        Error("dtype unknown", lambda: ((m(),), {"dtype": "nope"}), TypeError,
              r"data type 'nope' not understood"),
        Error("dtype unsupported", lambda: ((m(),), {"dtype": object}), TypeError,
              r"object"),
        Error("out of the wrong shape",
              lambda: ((m(),), {"axis": 0, "out": np.zeros(3, np.float32)}), ValueError,
              r"shape \(3,\).*\(4,\)|\(4,\).*\(3,\)"),
        Error("out of the wrong rank",
              lambda: ((m(),), {"axis": 0, "out": np.zeros((1, 4), np.float32)}),
              ValueError, r"\(1, 4\)"),
        Error("out of the wrong dtype",
              lambda: ((m(), "argmax", 0), {"out": np.zeros(4, np.float32)}), TypeError,
              r"float32.*int64|int64.*float32"),
        Error("out and dtype differ",
              lambda: ((m(),), {"axis": 0, "dtype": "f8", "out": np.zeros(4, "f4")}),
              TypeError, r"float32.*float64|float64.*float32"),
        Error("out read-only",
              lambda: ((m(),), {"axis": 0, "out": _readonly(4, np.float32)}), ValueError,
              r"read-only"),
        Error("out overlaps x", lambda: _overlap(m()), ValueError,
              r"overlap|shares? memory"),
        Error("out not an array", lambda: ((m(),), {"out": [0.0]}), TypeError, r"out"),
        Error("no such variant", lambda: ((m(),), {"variant": "simdd"}), ValueError,
              r"simdd.*simd"),
        Error("variant not a string", lambda: ((m(),), {"variant": 3}), TypeError,
              r"variant"),
        Error("no such backend", lambda: ((m(),), {"backend": "gpu"}), ValueError,
              r"one of 'cpu', 'cuda', 'sim'.*'gpu'"),
        Error("backend not a string", lambda: ((m(),), {"backend": 1}), TypeError,
              r"backend"),
        Error("stream not a stream", lambda: ((m(),), {"stream": "0"}),
              (TypeError, ValueError), r"stream"),
        Error("result too large", f(np.broadcast_to(np.zeros((0, 1), "i1"), (0, 2**62)),
              axis=0), (ValueError, MemoryError), r"too big|allocate"),
        Error("no argument", f(), TypeError, r"missing.*'x'"),
        Error("unknown keyword", lambda: ((m(),), {"axes": 0}), TypeError, r"axes"),
        Error("x twice", lambda: ((m(),), {"x": m()}), TypeError, r"'x'"),
        Error("too many", lambda: ((m(), "sum", None, False, None, None, 1), {}),
              TypeError, r"positional argument"),
    ]  # fmt: skip


def reduce_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return (x,), {"axis": 1}, np.array([6, 22, 38], np.float32)


# ==== the table ====

ENTRIES: dict[str, Entry] = {
    "reduce": Entry(
        samples=reduce_samples,
        large=reduce_large,
        expect=reduce_expect_sample,
        errors=reduce_errors,
        valid=reduce_valid,
        floats=reduce_floats,
    ),
}
