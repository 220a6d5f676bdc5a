"""Cases of scan: every operation, axis, direction, size and layout; errors."""

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
    fewer_rows,
    kind_of,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

SCAN_OPS = ("sum", "prod", "min", "max")

_FILLS = {
    "sum": ("normal", "whole"),
    "prod": ("factors",),
    "min": ("normal", "special"),
    "max": ("normal", "special"),
}

# (exclusive, reverse)
_FORMS = ((False, False), (True, False), (False, True), (True, True))

# Rows and columns around warp, pack and tile edges; strips of columns of every width.
_SHAPES: tuple[tuple[int, ...], ...] = (
    (3, 5),
    (33, 31),
    (2, 1025),
    (131, 3),
    (37, 64),
    (4, 0, 3),
    (7, 11, 13),
    (2, 3, 4, 5),
)


def initial_of(op: str, dtype: str) -> Any:
    """A value that changes results: 3 elements' worth, or one amid the elements."""
    whole = dtype.startswith(("int", "uint", "bool"))
    if op in ("sum", "prod"):
        return 3 if whole else -2.75 if op == "sum" else -0.5
    return op == "max" if dtype == "bool" else 1 if whole else 0.25


def scan_takes(op: str, dtype: str) -> bool:
    return not (dtype.startswith("complex") and op not in ("sum", "prod"))


def _fill(op: str, dtype: str, layout: str, turn: int) -> str:
    if op == "prod" and layout == "stride0" and not dtype.startswith(("int", "uint", "bool")):
        return "signs"  # a power of a factor exceeds the range
    fills = _FILLS[op]
    return fills[turn % len(fills)]


def _sample(
    shape: tuple[int, ...], dtype: str, layout: str, op: str, axis: int, turn: int
) -> Sample:
    options: list[tuple[str, Any]] = [("op", op), ("axis", axis)]
    exclusive, reverse = _FORMS[turn % len(_FORMS)]
    if exclusive:
        options.append(("exclusive", True))
    if reverse:
        options.append(("reverse", True))
    if turn // 4 % 2:
        options.append(("initial", initial_of(op, dtype)))
    return Sample((Spec(shape, dtype, layout, _fill(op, dtype, layout, turn // 4)),),
                  tuple(options))  # fmt: skip


def scan_samples(dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    for op in SCAN_OPS:
        if not scan_takes(op, dtype):
            continue
        for n in SIZES:
            if n == BIG:
                continue
            layouts: tuple[str, ...] = LAYOUTS_1D[turn % 2 :: 2]
            if extent == "small":
                layouts = (LAYOUTS_1D[turn % len(LAYOUTS_1D)],)
            for layout in layouts:
                turn += 1
                yield _sample((n,), dtype, layout, op, -1, turn)
            turn += 1
        for shape in _SHAPES:
            for axis in range(len(shape)):
                third, turn = turn % 3, turn + 1
                layouts = LAYOUTS_ND[third::3]
                if extent == "small":
                    layouts = layouts[:1] if third != 1 else ()
                for layout in layouts:
                    turn += 1
                    yield _sample(shape, dtype, layout, op, axis - len(shape) * (turn & 1),
                                  turn)  # fmt: skip
    # Down columns, often enough for the kernels of these alone.
    for turn, op in enumerate(SCAN_OPS):
        if scan_takes(op, dtype):
            for shape in ((4, 6), (34, 30), (9, 130)):
                yield _sample(shape, dtype, "C", op, 0, turn)
    # Along an axis of one element, often enough for the kernel of this alone.
    for op in SCAN_OPS:
        if scan_takes(op, dtype):
            for turn in range(12):
                shape, axis = (((1, 19), 0), ((2, 1, 9), 1), ((5, 1), 1))[turn % 3]
                yield _sample(shape, dtype, "C", op, axis, turn)
    # Every form of every operation at least once.
    for op in SCAN_OPS:
        if scan_takes(op, dtype):
            for form in range(len(_FORMS)):
                yield _sample((5, 67), dtype, "C", op, form & 1, form)
                if dtype.startswith("complex"):  # which has fewer operations
                    for shape in ((9, 40), (17, 3)):
                        yield _sample(shape, dtype, "C", op, 0, form)
                        yield _sample(shape, dtype, "C", op, 1, form)


def scan_large(dtype: str) -> Iterator[Sample]:
    # The first is the simulator's: two tiles of every rung.
    yield _sample((4099,), dtype, "C", "sum", 0, 0)
    for turn, op in enumerate(SCAN_OPS):
        if scan_takes(op, dtype):
            yield _sample((BIG,), dtype, "offset" if op == "sum" else "C", op, 0, turn)
    for turn, (shape, axis) in enumerate(
        (((1031, 1021), 0), ((1031, 1021), 1), ((3, 70001, 5), 1), ((20011, 30), 0))
    ):
        yield _sample(shape, dtype, "C", "sum", axis, 7 * turn + 4)


# ---- expected results ----


def _shifted(x: np.ndarray[Any, Any], op: str, **options: Any) -> np.ndarray[Any, Any]:
    return np.asarray(ref.scan(x, op, **options))


def scan_bound(
    op: str, x: np.ndarray[Any, Any], out: np.ndarray[Any, Any], dtype: Any, **options: Any
) -> np.ndarray[Any, Any]:
    """The error bound of a result: x and out in the wide type.

    sum   (ceil(log2 k) + c) u sum|x| over the k elements, u of the accumulator (float32
          for 16 bits); c = 32, or 48 in float64, and k 2**-10 for a chain of sums on a GPU
    prod  each of k products rounds once; a complex one counts as three
    Then the result is rounded to its own dtype, whose u and smallest number are added.
    """
    axis = options["axis"]
    double = dtype.name in ("float64", "complex128")
    acc = 2.0**-53 if double else 2.0**-24
    size = np.abs(out)
    length = x.shape[axis]
    k: Any = np.arange(1, length + 1).reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
    k = np.flip(k, 0) if options.get("reverse") else k
    both = 1 + 1j if dtype.kind == "c" else 1
    if op == "prod":
        bound = np.asarray(size * (k + 2) * acc * (3 if dtype.kind == "c" else 1) * 1.01)
        bound = bound * both
    else:
        sizes = dict(options)
        if "initial" in options:
            sizes["initial"] = abs(options["initial"])
        total = _shifted(np.abs(x.real), op, **sizes)
        if dtype.kind == "c":
            total = total + 1j * _shifted(np.abs(x.imag), op, **sizes)
        steps = np.ceil(np.log2(np.maximum(k, 1))) + (48 + k * 2.0**-10 if double else 32)
        bound = np.asarray(total * (steps * acc))
    return bound + (unit(dtype) * size + smallest(dtype)) * both


def scan_expect(x: np.ndarray[Any, Any], **options: Any) -> Expected:
    """What gpuopt.scan must return for logical values `x`."""
    op = options.get("op", "sum")
    rest = {key: v for key, v in options.items() if key != "op"}
    try:
        narrow = np.asarray(ref.scan(x, op, **rest))
    except (ValueError, TypeError) as error:
        return Expected(np.dtype(bool), np.zeros(()), None, type(error), str(error))
    dtype = narrow.dtype
    if kind_of(dtype) not in "fc" or op in ("min", "max"):
        return Expected(dtype, narrow.astype(np.float32) if dtype == BFLOAT16 else narrow)
    acc = ref.wide(dtype)
    with np.errstate(all="ignore"):
        elements = x.astype(acc)
        rest.setdefault("axis", -1)
        exact = np.asarray(ref.scan(elements, op, **rest))
        if op == "sum" and _sum_is_exact(elements, dtype, rest):
            once = narrow.astype(acc)  # rounded to the dtype of the result, and only there
            return Expected(dtype, once, np.zeros(once.shape, acc))
        bound = scan_bound(op, elements, exact, dtype, **rest)
    return Expected(dtype, exact, bound)


def _sum_is_exact(x: np.ndarray[Any, Any], dtype: Any, options: dict[str, Any]) -> bool:
    """True if every partial sum in any order is a whole number below 2**24."""
    initial = abs(options.get("initial", 0))
    if initial % 1:
        return False
    for part in (x.real, x.imag) if dtype.kind == "c" else (x,):
        total = initial + np.add.reduce(np.abs(part), axis=options["axis"])
        if not (np.all(part == np.rint(part)) and np.all(total < 2**24)):
            return False
    return True


@functools.lru_cache(maxsize=65536)
def _expect_values(spec: Spec, options: tuple[tuple[str, Any], ...]) -> Expected:
    return scan_expect(spec.values(), **dict(options))


def scan_expect_sample(sample: Sample) -> Expected:
    spec = sample.arrays[0]
    layout = "stride0" if spec.layout == "stride0" else "C"
    plain = Spec(spec.shape, spec.dtype, layout, spec.fill)
    return _expect_values(plain, sample.options)


def scan_floats() -> Iterator[Sample]:
    for dtype in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        for op in ("sum", "prod"):
            fill = "factors" if op == "prod" else "normal"
            for n in (33, 1025, 4097, 100003):
                yield Sample((Spec((n,), dtype, "C", fill),), (("op", op),))
            for shape in ((1, 37), (61, 59), (301, 299), (3001, 20)):
                for axis in (0, 1):
                    options = (("op", op), ("axis", axis))
                    yield Sample((Spec(shape, dtype, "C", fill),), options)


# ---- errors ----


def scan_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def m() -> np.ndarray[Any, Any]:
        return np.arange(12, dtype=np.float32).reshape(3, 4)

    def overlap(x: Any, out: Callable[[Any], Any]) -> Any:
        return (x,), {"out": out(x)}

    axis_error = np.exceptions.AxisError
    return [
        Error("axis too large", lambda: ((m(),), {"axis": 2}), axis_error,
              r"^axis 2 is out of bounds for array of dimension 2$"),
        Error("axis too small", lambda: ((m(),), {"axis": -3}), axis_error,
              r"^axis -3 is out of bounds for array of dimension 2$"),
        Error("a scalar", f(np.float32(1)), axis_error,
              r"^axis -1 is out of bounds for array of dimension 0$"),
        Error("axis a float", lambda: ((m(),), {"axis": 1.5}), TypeError,
              r"'float' object cannot be interpreted as an integer"),
        Error("axis a tuple", lambda: ((m(),), {"axis": (0, 1)}), TypeError, r"integer"),
        Error("axis past int64", lambda: ((m(),), {"axis": 2**70}),
              (OverflowError, ValueError), r"int"),
        Error("no such op", lambda: ((m(), "mean"), {}), ValueError, r"one of 'sum', .*'mean'"),
        Error("op not a string", lambda: ((m(), 3), {}), TypeError, r"op"),
        Error("object array", f(np.array([None, 1])), TypeError, r"dtype 'object'"),
        Error("string array", f(np.array(["a", "b"])), TypeError, r"dtype '<U1'"),
        Error("longdouble array", f(np.zeros(2, np.longdouble)), TypeError,
              f"dtype '{np.dtype(np.longdouble)}'"),
        Error("datetime array", f(np.zeros(2, "M8[s]")), TypeError,
              r"dtype 'datetime64\[s\]'"),
        Error("None", f(None), TypeError, r"dtype 'object'"),
        Error("a ragged list", f([[1, 2], [3]]), ValueError, r"inhomogeneous"),
        Error("complex max", f(np.zeros(3, np.complex64), "max"), TypeError,
              r"does not support dtype 'complex64'"),
        Error("complex min", f(np.zeros(3, np.complex128), "min"), TypeError,
              r"does not support dtype 'complex128'"),
        Error("out of the wrong shape",
              lambda: ((m(),), {"out": np.zeros((4, 3), np.float32)}), ValueError,
              r"\(4, 3\).*\(3, 4\)|\(3, 4\).*\(4, 3\)"),
        Error("out of the wrong rank",
              lambda: ((m(),), {"out": np.zeros(12, np.float32)}), ValueError, r"\(12,\)"),
        Error("out of the wrong dtype",
              lambda: ((m(),), {"out": np.zeros((3, 4), np.float64)}), TypeError,
              r"float32.*float64|float64.*float32"),
        Error("out of the elements' dtype",
              lambda: ((np.ones(3, np.int32),), {"out": np.zeros(3, np.int32)}), TypeError,
              r"int32.*int64|int64.*int32"),
        Error("out read-only",
              lambda: ((m(),), {"out": readonly((3, 4), np.float32)}), ValueError,
              r"read-only"),
        Error("out is x", lambda: overlap(m(), lambda x: x), ValueError,
              r"overlap|shares? memory"),
        Error("out overlaps x", lambda: overlap(m(), lambda x: x[::-1]), ValueError,
              r"overlap|shares? memory"),
        Error("out not an array", lambda: ((m(),), {"out": [0.0]}), TypeError, r"out"),
        Error("no such variant", lambda: ((m(),), {"variant": "simdd"}), ValueError,
              r"simdd.*simd"),
        Error("no such backend", lambda: ((m(),), {"backend": "gpu"}), ValueError,
              r"one of 'cpu', 'cuda', 'sim'.*'gpu'"),
        Error("no argument", f(), TypeError, r"missing.*'x'"),
        Error("unknown keyword", lambda: ((m(),), {"dtype": "f8"}), TypeError, r"dtype"),
        Error("x twice", lambda: ((m(),), {"x": m()}), TypeError, r"'x'"),
        Error("initial below the dtype", lambda: ((np.ones(2, "u1"), "max"), {"initial": -1}),
              ValueError, r"^Python integer -1 out of bounds for uint8$"),
        Error("initial above the dtype", lambda: ((np.ones(2, "i4"),), {"initial": 2**63}),
              ValueError, r"^Python integer of 19 or more digits out of bounds for int64$"),
        Error("initial a float", lambda: ((np.ones(2, "i4"),), {"initial": 0.5}), TypeError,
              r"^Cannot cast initial from dtype\('float64'\) to dtype\('int64'\)"),
        Error("initial not a number", lambda: ((m(),), {"initial": "1"}), TypeError,
              r"'initial' must be a real number, not 'str'"),
        Error("initial a huge int", lambda: ((m(),), {"initial": -(10**400)}), ValueError,
              r"^initial is an int too large for a float$"),
        Error("too many", lambda: ((m(), "sum", 0, False, False, None, None, 1), {}),
              TypeError, r"positional argument"),
    ]  # fmt: skip


def scan_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    want = np.array([[0, 0, 1, 3], [0, 4, 9, 15]], np.float32)
    return (x,), {"axis": 1, "exclusive": True}, want


ENTRIES = {
    "scan": Entry(
        samples=scan_samples,
        large=scan_large,
        expect=scan_expect_sample,
        errors=scan_errors,
        valid=scan_valid,
        floats=scan_floats,
        fewer=fewer_rows,
    ),
}
