"""Workloads of elementwise: '<functor> <size> [misaligned]'.

Order: the lists, a problem, a misaligned one, inputs, the check of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab.workloads import Array, Problem, dtype_of, parse_shape, picked

READS_ONLY = False

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
UNARY = (
    *("negative", "abs", "exp", "log", "sqrt"),
    *("tanh", "sigmoid", "relu", "gelu", "silu"),
)

SMALL = (
    ("multiply 2^16", "float32"),
    ("multiply 2^24", "float32"),
    ("multiply 2^24", "float16"),
    ("multiply 2^24-1 misaligned", "float16"),
    ("exp 2^24", "float32"),
    *((f"{op} 2^20", "float32") for op in (*BINARY, *UNARY[:6])),
    *((f"{op} 2^20", "float64") for op in ("exp", "log", "tanh")),
    *((f"{op} 2^20", "float16") for op in ("exp", "log", "tanh")),
)

DEMO = ("multiply 2^24", "float32")

TINY = (("multiply 1025", "float32"), ("multiply 1025", "float16"), ("exp 1025", "float32"))

SMOKE_SIZES = (0, 1, 33, 257, 1025)

# The largest error of a correct result, in units of eps times the result; the rounding to
# the dtype is one half.
ULPS = {"gelu": 64}
OTHER_ULPS = 8


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    parts = name.split()
    shifted = parts[2:] == ["misaligned"]
    if len(parts) != 2 + shifted or parts[0] not in (*BINARY, *UNARY):
        raise ValueError(f"not a workload of elementwise: {name!r}")
    op, shape = parts[0], parse_shape(parts[1])
    if shifted:
        if shape[0] % 2 == 0:
            raise ValueError(f"a misaligned array has an odd length: {name!r}")
        shape = (2, (shape[0] + 1) // 2)
    args = tuple(random(shape, dtype, rng) for _ in range(2 if op in BINARY else 1))
    seen = tuple(after_the_first(x) for x in args) if shifted else args
    kind = Misaligned if shifted else Problem
    return kind("elementwise", name, dtype, args, {}, judge(op, seen), op)


class Misaligned(Problem):
    """Arrays that begin one element after an aligned address.

    An upload makes aligned copies, so the arguments are whole buffers, recognised by their
    two rows, and the call is made on views of them.
    """

    @property
    def call(self) -> Callable[..., Any]:
        """The function of gpuopt, on the views."""
        function = getattr(gpuopt, self.function)
        views: dict[int, Any] = {}

        def call(*buffers: Any, **options: Any) -> Any:
            for x in buffers:
                if id(x) not in views:
                    views[id(x)] = (x, after_the_first(x))  # keeps x, so its id stays unique
            return function(*(views[id(x)][1] for x in buffers), **options)

        return call


def after_the_first(x: Any) -> Any:
    """Return all elements of a buffer of two rows except the first, as a view."""
    return x.reshape(-1)[1:]


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over functors, dtypes and sizes."""
    for dtype in ("int32", "float16", "float32", "float64"):
        for op in (*BINARY, *UNARY):
            for n in SMOKE_SIZES:
                args = tuple(random((n,), dtype, rng) for _ in range(2 if op in BINARY else 1))
                yield Problem("elementwise", f"{op} {n}", dtype, args, {}, judge(op, args), op)


# ---- inputs, and the check of a result ----


def random(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    """Return numbers from 1/2 to 2, or from 1 to 99: no result is out of range."""
    kind = dtype_of(dtype)
    if kind.kind in "iu":
        return rng.integers(1, 99, shape, dtype=kind, endpoint=True)
    if kind == np.float64:
        return rng.random(shape) * 1.5 + 0.5
    x = rng.random(shape, np.float32)
    x *= np.float32(1.5)
    x += np.float32(0.5)
    return x.astype(kind)


def judge(op: str, args: tuple[Array, ...]) -> Callable[[Any], str]:
    """Return the check of a result: a function that returns what is wrong, '' if nothing."""

    def check(result: Any) -> str:
        from gpuopt import ref

        got = np.asarray(result)
        want = np.asarray(getattr(ref, op)(*map(picked, args)))
        if got.shape != args[0].shape or got.dtype != want.dtype:
            return f"{got.dtype} {got.shape}, expected {want.dtype} {args[0].shape}"
        got = picked(got)
        if want.dtype.kind in "biu":
            wrong = int(np.count_nonzero(got != want))
        elif op == "multiply":
            wrong = int(np.count_nonzero(~(got == want)))
        else:
            error = np.abs(got.astype(np.float64) - want.astype(np.float64))
            bound = ULPS.get(op, OTHER_ULPS) * float(np.finfo(want.dtype).eps)
            wrong = int(np.count_nonzero(~(error <= bound * np.abs(want).astype(np.float64))))
        return f"{wrong} of {got.size} values wrong" if wrong else ""

    return check
