"""Cases of reduce: every operation, axis form, size and layout; result dtypes; errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases import (
    BFLOAT16,
    BIG,
    LAYOUTS_1D,
    LAYOUTS_ND,
    SIZES,
    Entry,
    Error,
    Expected,
    Sample,
    Spec,
    dtype_of,
    fewer_rows,
    kind_of,
    readonly,
    smallest,
    unit,
)
from cases.scan import initial_of
from gpuopt import ref

INITIAL_OPS = ("sum", "prod", "min", "max")
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


# Rows and columns of which a load of 16 bytes holds several, or parts; more of complex
# numbers, which have few operations.
_REDUCE_NARROW: tuple[tuple[tuple[int, ...], int], ...] = (
    ((70, 3), 0),
    ((45, 19), 0),
    ((33, 5), 0),
    ((130, 2), 0),
    ((64, 12), 0),
    ((300, 7), 0),
    ((9, 31), 0),
    ((70, 3), 1),
    ((45, 19), 1),
    ((33, 5), 1),
    ((130, 2), 1),
    ((9, 31), 1),
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
        return "signs"  # a power of a factor exceeds the range
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
                    if turn % 4 == 0 and op in INITIAL_OPS:
                        options.append(("initial", initial_of(op, dtype)))
                    yield Sample((Spec(shape, dtype, layout, fill),), tuple(options))
        # Short rows across memory, whose results lie in another order than their elements.
        for shape, axis in (((35, 1, 67), 1), ((9, 3, 40), 1), ((5, 20, 2, 3), 3)):
            spec = Spec(shape, dtype, "F", _reduce_fill(op, dtype, "F", len(shape)))
            yield Sample((spec,), (("op", op), ("axis", axis)))
        for shape, axis in _REDUCE_NARROW if dtype.startswith("comp") else _REDUCE_NARROW[:2]:
            spec = Spec(shape, dtype, "C", _reduce_fill(op, dtype, "C", len(shape)))
            yield Sample((spec,), (("op", op), ("axis", axis)))
        for shape in ((2, 35), (3, 130), (2, 3, 601)):  # every second element of a row
            spec = Spec(shape, dtype, "step2", _reduce_fill(op, dtype, "step2", len(shape)))
            yield Sample((spec,), (("op", op), ("axis", len(shape) - 1)))
    # Results in another dtype than the default: elements are converted first, then combined.
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
    """The error bound of a result: x and out in the wide type, `n` elements each.

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
    initial = options.get("initial")
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        elements = x.astype(dtype).astype(acc)
        exact = np.asarray(ref.reduce(elements, op, **axes, initial=initial))
        n = x.size // exact.size if exact.size else 0
        if initial is not None:  # one element more of each result
            n += 1
            axes["initial"] = abs(initial)
        if op == "sum" and _sum_is_exact(elements, dtype, **axes):
            once = narrow.astype(acc)  # rounded to the dtype of the result, and only there
            return Expected(dtype, once, np.zeros(once.shape, acc))
        bound = reduce_bound(op, n, elements, exact, dtype=dtype, **axes)
    return Expected(dtype, exact, bound)


def _sum_is_exact(x: np.ndarray[Any, Any], dtype: np.dtype[Any], **axes: Any) -> bool:
    """True if every partial sum in any order is a whole number below 2**24."""
    if axes.get("initial", 0) % 1:
        return False
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
            yield Sample((Spec((21, 5, 39), dtype, "F", fill),), (("op", op), ("axis", 1)))
            yield Sample((Spec((3, 1301), dtype, "step2", fill),), (("op", op), ("axis", 1)))
            yield Sample((Spec((901, 3), dtype, "C", fill),), (("op", op), ("axis", 0)))


def _overlap(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"axis": 0, "out": x[0]}


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
        Error("initial with mean", lambda: ((m(), "mean"), {"initial": 1}), TypeError,
              r"takes initial= for op='sum', 'prod', 'min' and 'max', not 'mean'"),
        Error("initial with argmax", lambda: ((m(), "argmax"), {"initial": 1}), TypeError,
              r"takes initial= for .*, not 'argmax'"),
        Error("initial below the dtype", lambda: ((np.ones(2, "u1"), "max"), {"initial": -1}),
              ValueError, r"^Python integer -1 out of bounds for uint8$"),
        Error("initial above the dtype", lambda: ((np.ones(2, "i1"), "min"), {"initial": 128}),
              ValueError, r"^Python integer 128 out of bounds for int8$"),
        Error("initial past int64", lambda: ((np.ones(2, "i8"),), {"initial": 2**63}),
              ValueError, r"^Python integer of 19 or more digits out of bounds for int64$"),
        Error("initial past uint64", lambda: ((np.ones(2, "u8"),), {"initial": 2**64}),
              ValueError, r"^Python integer of 19 or more digits out of bounds for uint64$"),
        Error("initial a float", lambda: ((np.ones(2, "i4"),), {"initial": 0.5}), TypeError,
              r"^Cannot cast initial from dtype\('float64'\) to dtype\('int64'\)"),
        Error("initial complex", lambda: ((m(),), {"initial": 1j}), TypeError,
              r"argument 'initial' must be a real number, not 'complex'|complex"),
        Error("initial a huge int", lambda: ((m(),), {"initial": 10**400}), ValueError,
              r"^initial is an int too large for a float$"),
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
              lambda: ((m(),), {"axis": 0, "out": readonly(4, np.float32)}), ValueError,
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
        Error("too many", lambda: ((m(), "sum", None, False, None, None, None, 1), {}),
              TypeError, r"positional argument"),
    ]  # fmt: skip


def reduce_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    return (x,), {"axis": 1}, np.array([6, 22, 38], np.float32)


ENTRIES = {
    "reduce": Entry(
        samples=reduce_samples,
        large=reduce_large,
        expect=reduce_expect_sample,
        errors=reduce_errors,
        valid=reduce_valid,
        floats=reduce_floats,
        fewer=fewer_rows,
    ),
}
