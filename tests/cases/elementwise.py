"""Cases of the elementwise functors: one function makes the entry of each.

Order: the functors, samples, expected results, error inputs, the table.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cases import (
    BFLOAT16,
    BIG,
    LAYOUTS_1D,
    LAYOUTS_ND,
    Entry,
    Error,
    Expected,
    Sample,
    Spec,
    dtype_of,
    kind_of,
    lay_out,
    readonly,
    smallest,
    unit,
    values,
)
from gpuopt import ref

# ---- the functors ----

UNARY = (
    *("negative", "abs", "exp", "log", "sqrt"),
    *("tanh", "sigmoid", "relu", "gelu", "silu"),
)
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
FUNCTORS = (*UNARY, *BINARY, "fma", "where", "clip", "cast")

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)

# Error bounds in units of u * |result|, u half the distance from 1 to the next number: one
# for functions that are correctly rounded; exp, log and tanh of the device's library or of
# arithmetic.h plus a rounding to the dtype; two or three more operations in sigmoid and silu.
ULPS = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "fma", "sqrt"), 1.001),
    **{"exp": 4, "log": 4, "tanh": 6, "sigmoid": 6, "silu": 8, "gelu": 16},
}


def arity(op: str) -> int:
    return 2 if op in BINARY else 3 if op in ("fma", "where", "clip") else 1


def takes(op: str, dtype: str) -> bool:
    """Whether the functor has a result for arrays of this dtype."""
    if dtype.startswith("complex"):
        return op in (
            "add",
            "subtract",
            "multiply",
            "divide",
            "negative",
            "abs",
            "where",
            "cast",
        )
    return not (dtype == "bool" and op in ("subtract", "negative", "fma"))


# ---- samples ----


@dataclass(frozen=True)
class Small(Spec):
    """Whole numbers in [0, 100], which every dtype but bool holds."""

    def _whole(self) -> np.ndarray[Any, Any]:
        x = np.abs(np.asarray(values("index 100", self.dtype, self.shape)).real)
        return x.astype(dtype_of(self.dtype))

    def values(self) -> np.ndarray[Any, Any]:
        source = self._whole()
        if self.layout == "stride0" and source.size:
            return np.broadcast_to(source[:1], self.shape)
        return source

    def build(self) -> np.ndarray[Any, Any]:
        return lay_out(self.layout, self._whole())


SIZES = (1, 257, 33, 1025, 0, 31, 1009, 255)
SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((33, 31), (33, 31), (33, 31)),
    ((5, 1, 7), (3, 1), (1, 1, 7)),
    ((67,), (3, 67), ()),
    ((13, 70), (13, 1), (70,)),
    ((2, 3, 4, 5), (4, 1), (3, 1, 5)),
    ((), (257,), (1,)),
)
NUMBERS = {"b": (1, True, 2.5), "i": (3, -1.5, 7), "u": (3, 1.5, 7), "f": (2, 0.5, -3)}


def operands(op: str, dtype: str, shapes: Any, layout: str, fill: str) -> tuple[Spec, ...]:
    """The arrays of a call whose operands are all of one dtype."""
    specs = [
        Spec(shape, dtype, layout if shape else "C", fill) for shape in shapes[: arity(op)]
    ]
    if op == "where":
        specs[0] = replace(specs[0], dtype="bool", fill="normal")
    return tuple(specs)


def mixed(op: str, dtype: str, other: str) -> tuple[Spec, ...]:
    """Operands of two dtypes; the condition of `where` has the other one, too."""
    if op == "where":
        return (Spec((129,), other, "C", "whole"), Spec((129,), dtype), Spec((129,), dtype))
    last = (Spec((129,), other, "C", "whole"),) * (arity(op) - 1)
    return (Spec((129,), dtype, "C", "whole"), *last)


def samples_of(op: str, dtype: str, extent: str) -> Iterator[Sample]:
    turn = zlib.crc32(f"{op} {dtype}".encode()) % 1009
    if op == "cast":
        yield from cast_samples(dtype, extent, turn)
        return
    kind = kind_of(dtype_of(dtype))
    fills = ("normal", "special") if kind == "f" else ("normal", "whole")
    if kind == "c":
        fills = ("normal",)
    small = extent == "small"
    if not takes(op, dtype):  # the others must be refused; this one must run
        yield Sample(operands(op, "float64", ((65,),) * 3, "C", "normal"))
    for n in SIZES[:4] if small else SIZES:
        layout = LAYOUTS_1D[turn % len(LAYOUTS_1D)]
        fill = fills[turn % len(fills)]
        yield Sample(operands(op, dtype, ((n,),) * 3, layout, fill))
        turn += 1
    first = turn % len(SHAPES)
    for k in range(2 if small else 3):
        layout = LAYOUTS_ND[turn % len(LAYOUTS_ND)]
        shapes = SHAPES[(first + k) % len(SHAPES)]
        yield Sample(operands(op, dtype, shapes, layout, fills[turn % len(fills)]))
        turn += 1
    if arity(op) > 1:
        other = DTYPES[turn % len(DTYPES)]
        yield Sample(mixed(op, dtype, other))
    if op in BINARY and kind != "c":  # a Python number
        y = NUMBERS[kind][turn % 3]
        yield Sample((Spec((65,), dtype, "C", "whole"),), (("y", y),))
    if op == "clip" and kind != "c":
        x = Spec((65,), dtype, "C", fills[0])
        low = Spec((65,), dtype, "C", "whole")
        yield Sample((x, low))
        yield Sample((x,), (("max", NUMBERS[kind][0]),))
        yield Sample((x,), (("min", NUMBERS[kind][0]), ("max", NUMBERS[kind][2])))
        yield Sample((x,))


def cast_samples(dtype: str, extent: str, turn: int) -> Iterator[Sample]:
    """To every dtype, in turn over sizes and layouts; floats to integers in range."""
    for k, target in enumerate(DTYPES):
        n = SIZES[(turn + k) % (4 if extent == "small" else len(SIZES))]
        layout = LAYOUTS_1D[(turn + k) % len(LAYOUTS_1D)]
        whole = kind_of(dtype_of(dtype)) in "fc" and kind_of(dtype_of(target)) in "iu"
        shape = (3, n) if k % 4 == 3 and layout != "unaligned" else (n,)
        x = Small(shape, dtype, layout) if whole else Spec(shape, dtype, layout)
        yield Sample((x,), (("dtype", target),))


def large_of(op: str, dtype: str) -> Iterator[Sample]:
    """Several chunks of the threads; float64 if the functor refuses the dtype."""
    dtype = dtype if takes(op, dtype) else "float64"
    options = (("dtype", "float32"),) if op == "cast" else ()
    n = BIG if (op, dtype) in (("add", "float32"), ("exp", "float16")) else 70001
    yield Sample(operands(op, dtype, ((n,),) * 3, "C", "normal"), options)


def floats_of(op: str) -> Iterator[Sample]:
    options = (("dtype", "float16"),) if op == "cast" else ()
    for dtype in ("float16", "float32", "float64"):
        for n in (257, 1025):
            yield Sample(operands(op, dtype, ((n,),) * 3, "offset", "normal"), options)
    for n in range(9, 40):
        yield Sample(operands(op, "float32", ((n,),) * 3, "C", "normal"), options)
    shapes = ((90, 1001), (1001,), (90, 1))
    yield Sample(operands(op, "float32", shapes, "C", "normal"), options)


# ---- expected results ----


def bound_of(
    op: str, dtype: np.dtype[Any], value: np.ndarray[Any, Any], arrays: list[Any]
) -> np.ndarray[Any, Any]:
    """The error bound of each element of a result; see ULPS.

    gelu   its normal tail turns a relative error e of x into x**2 e
    silu, gelu   multiply x by a factor that may be subnormal: |x| times its last bit
    complex   a product adds two rounded products, a quotient uses Smith's method, abs is the
              root of a sum of squares.  The bounds are relative to the magnitude of the exact
              result, or to |x| |y|, in both parts.
    """
    u, least = unit(dtype), smallest(dtype)
    size = np.abs(value)
    if value.dtype.kind == "c":
        if op == "multiply":
            size = np.abs(arrays[0].astype(value.dtype)) * np.abs(arrays[1])
        factor = {"multiply": 4.0, "divide": 16.0}.get(op, 1.001)
        part = np.asarray(factor * u * size + 4 * least)
        return np.asarray(part * (1 + 1j))
    if op == "abs":
        return np.asarray(4 * u * size + least)
    factor = ULPS[op]
    if op == "gelu":
        factor = factor + 2 * np.abs(arrays[0].astype(value.dtype)) ** 2
    if op == "fma":  # the reference rounds the product to 64 bits
        least = least + 2.0**-63 * np.abs(arrays[0].astype(value.dtype) * arrays[1])
    slack = (
        least * (1 + np.abs(arrays[0].astype(value.dtype))) if op in ("silu", "gelu") else least
    )
    return np.asarray(factor * u * size + slack)


EXACT = ("maximum", "minimum", "where", "negative", "relu", "clip", "cast")


def expect_values(op: str, arrays: list[Any], options: dict[str, Any]) -> Expected:
    """What gpuopt.<op> must return for these values."""
    call: Callable[..., Any] = getattr(ref, op)
    try:
        narrow = np.asarray(call(*arrays, **options))
    except (TypeError, ValueError) as error:
        return Expected(np.dtype(bool), np.zeros(()), None, type(error), str(error))
    dtype = narrow.dtype
    kind = kind_of(dtype)
    complex_abs = op == "abs" and np.asarray(arrays[0]).dtype.kind == "c"
    if kind not in "fc" or op in EXACT or (op == "abs" and not complex_abs):
        wide = narrow.astype(np.float32) if dtype == BFLOAT16 else narrow
        if kind == "c":
            return Expected(dtype, wide, np.zeros(wide.shape, wide.dtype))
        return Expected(dtype, wide)
    arrays = [*arrays, *options.values()]
    exact, _ = ref.elementwise_wide(op, *arrays)
    with np.errstate(all="ignore"):
        if kind == "f":  # beyond the largest number of the dtype, rounding gives inf
            over = np.isinf(narrow.astype(exact.dtype))
            exact = np.where(over, narrow.astype(exact.dtype), exact)
        bound = bound_of(op, dtype, exact, [np.asarray(a) for a in arrays])
    return Expected(dtype, exact, np.broadcast_to(bound, exact.shape))


@functools.lru_cache(maxsize=65536)
def _expect(op: str, sample: Sample) -> Expected:
    options = dict(sample.options)
    if "dtype" in options:
        options["dtype"] = dtype_of(options["dtype"])
    return expect_values(op, [spec.values() for spec in sample.arrays], options)


def expect_of(op: str, sample: Sample) -> Expected:
    """Only the layout stride0 changes the result, so the others share it."""
    plain = tuple(
        spec if spec.layout == "stride0" else replace(spec, layout="C")
        for spec in sample.arrays
    )
    return _expect(op, Sample(plain, sample.options))


# ---- error inputs ----


def arguments(op: str, x: Any) -> tuple[Any, ...]:
    """Positional arguments of a valid call, with x among them."""
    if op == "cast":
        return (x, "f4")
    return (x,) * arity(op)


def errors_of(op: str) -> list[Error]:
    def call(*args: Any, **options: Any) -> Callable[[], Any]:
        return lambda: (args, options)

    def m() -> np.ndarray[Any, Any]:
        return np.arange(1, 13, dtype=np.float32).reshape(3, 4)

    def out(x: Any, **options: Any) -> Callable[[], Any]:
        return lambda: (arguments(op, m()), {"out": x, **options})

    def shifted() -> Any:
        memory = np.ones(13, np.float32)
        return arguments(op, memory[1:]), {"out": memory[:-1]}

    found = [
        Error("object array", call(*arguments(op, np.array([None, 1]))), TypeError,
              r"dtype 'object'"),
        Error("a ragged list", call(*arguments(op, [[1, 2], [3]])), ValueError,
              r"inhomogeneous"),
        Error("no argument", call(), TypeError, r"missing.*(x|condition)"),
        Error("too many", lambda: ((*arguments(op, m()), None, 1), {}), TypeError,
              r"positional argument"),
        Error("out of the wrong shape", out(np.zeros((4, 3), np.float32)), ValueError,
              r"shape \(4, 3\).*\(3, 4\)"),
        Error("out of the wrong dtype", out(np.zeros((3, 4), np.float64)), TypeError,
              r"float64.*float32"),
        Error("out read-only", out(readonly((3, 4), np.float32)), ValueError, r"read-only"),
        Error("out overlaps", shifted, ValueError, r"overlap|shares? memory"),
        Error("no such variant", lambda: (arguments(op, m()), {"variant": "simdd"}),
              ValueError, r"simdd.*simd"),
    ]  # fmt: skip
    if not takes(op, "complex64"):
        z = np.zeros(3, np.complex64)
        found.append(Error("complex", call(*arguments(op, z)), TypeError,
                           rf"{op}\(\) does not support dtype 'complex64'"))  # fmt: skip
    if arity(op) > 1:
        rest = (m(),) * (arity(op) - 2)
        found.append(Error("shapes", call(m(), np.zeros(3, np.float32), *rest), ValueError,
                           r"operands could not be broadcast together with shapes "
                           r"\(3,4\) \(3,\)"))  # fmt: skip
    if op in BINARY and op != "divide":
        found.append(Error("Python integer", call(np.zeros(3, np.int8), 300), OverflowError,
                           r"^Python integer 300 out of bounds for int8$"))  # fmt: skip
    if op == "cast":
        found.append(Error("no such dtype", call(m(), "nope"), TypeError, r"nope"))
        found.append(Error("no dtype", call(m()), TypeError, r"missing.*dtype"))
    return found


def entry(op: str) -> Entry:
    """Everything the tests know of one functor."""

    def valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        smooth = op in ("exp", "tanh", "sigmoid", "gelu", "silu")  # exact at 0 alone
        x = np.zeros((2, 2), np.float32) if smooth else np.ones((2, 2), np.float32)
        args = arguments(op, x)
        return args, {}, np.asarray(getattr(ref, op)(*args))

    return Entry(
        samples=lambda dtype, extent: samples_of(op, dtype, extent),
        large=lambda dtype: large_of(op, dtype),
        expect=lambda sample: expect_of(op, sample),
        errors=lambda: errors_of(op),
        valid=valid,
        floats=lambda: floats_of(op),
    )


ENTRIES = {op: entry(op) for op in FUNCTORS}
