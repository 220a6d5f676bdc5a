"""Hypothesis: arrays of any shape, stride and dtype, and arguments of any kind.

GPUOPT_FUZZ sets the number of examples of each test (default 2,000, the same ones every
time; `make fuzz` runs 1,000,000).  See sanitize.sh for memory errors.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, assert_same, dtype_of, kind_of
from cases.reduce import REDUCE_OPS, reduce_expect, reduce_takes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuopt
from gpuopt import _core

EXAMPLES = int(os.environ.get("GPUOPT_FUZZ", "2000"))

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="GPUOPT_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

CPU = [row["name"] for row in _core.variants("reduce") if row["backend"] == "cpu"]
DTYPES = sorted({d for row in _core.variants("reduce") for d in row["dtypes"]})


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """A view with any strides, order of axes and broadcast axes, at any offset."""
    dtype = dtype_of(draw(st.sampled_from(DTYPES)))
    shape = draw(st.lists(st.integers(0, 9), max_size=4))
    if draw(st.booleans()) and shape:
        shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(0, 1100))
    while np.prod(shape, dtype=np.int64) > 20_000:
        shape.pop()
    steps = [draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2, 0])) for _ in shape]
    room = [n * max(1, abs(s)) if s else min(n, 1) for n, s in zip(shape, steps, strict=True)]
    order = draw(st.permutations(range(len(shape))))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    total = int(np.prod(room, dtype=np.int64))
    offset = draw(st.integers(0, 3))
    if kind_of(dtype) in "biu":
        flat = rng.integers(0, 256, (total + offset) * dtype.itemsize, dtype=np.uint8)
        flat = (flat & 1 if dtype.kind == "b" else flat).view(dtype)
    else:
        # Small whole numbers: sums are exact, products stay near 1, nan now and then.
        flat = rng.choice([-1.0, 1.0, 1.0, 2.0, 0.5], total + offset).astype(dtype)
        if draw(st.integers(0, 4)) == 0 and flat.size:
            flat[rng.integers(flat.size)] = rng.choice([np.nan, np.inf, 0.0])
    memory = flat[offset:].reshape([room[i] for i in order])
    x = memory.transpose(np.argsort(order)) if order else memory.reshape(())
    slices = tuple(slice(None, None, s) if s else slice(None) for s in steps)
    x = x[slices]
    if any(s == 0 for s in steps):
        x = np.broadcast_to(x, shape)
    if kind_of(dtype) in "iufc" and dtype.name != "bfloat16" and draw(st.integers(0, 9)) == 0:
        x = x.astype(dtype.newbyteorder())
    return x


def axes_of(ndim: int) -> st.SearchStrategy[Any]:
    if ndim == 0:
        return st.sampled_from([None, (), 0])
    one = st.integers(-ndim, ndim - 1)
    some = st.lists(one, max_size=ndim, unique_by=lambda a: a % ndim).map(tuple)
    return st.one_of(st.none(), one, some, st.integers(-ndim - 1, ndim))


def skip_order_dependent(x: np.ndarray[Any, Any], op: str) -> bool:
    """Products whose parts may overflow, or turn inf into nan, in some orders only."""
    if op != "prod" or kind_of(x.dtype) not in "fc":
        return False
    return x.size > 12 or (x.dtype.kind == "c" and not np.isfinite(x).all())


@fuzz
@given(st.data())
def test_reduce_of_any_view(data: st.DataObject) -> None:
    x = data.draw(views())
    op = data.draw(st.sampled_from(REDUCE_OPS))
    if not reduce_takes(op, x.dtype.name) or skip_order_dependent(x, op):
        return
    options: dict[str, Any] = {"op": op, "axis": data.draw(axes_of(x.ndim))}
    if data.draw(st.booleans()):
        options["keepdims"] = data.draw(st.booleans())
    if op in ("argmin", "argmax") and isinstance(options["axis"], tuple):
        options["axis"] = options["axis"][0] if options["axis"] else None
    before = x.tobytes()
    expected = reduce_expect(np.ascontiguousarray(x).reshape(x.shape), **options)
    where = {"backend": "cpu", "variant": data.draw(st.sampled_from(CPU))}
    gpuopt.set_num_threads(data.draw(st.integers(1, 4)))
    if expected.error is not None:
        with pytest.raises(expected.error):
            gpuopt.reduce(x, **options, **where)
    else:
        got = gpuopt.reduce(x, **options, **where)
        assert expected.compare(got) is None
        if data.draw(st.booleans()):
            base = np.zeros((*expected.value.shape, 2), expected.dtype)
            out = base[..., 1]
            assert gpuopt.reduce(x, **options, **where, out=out) is out
            again = out[()]
            assert expected.compare(again.copy() if again.ndim else again) is None
            assert not base[..., 0].astype(bool).any(), "wrote beside out"
    assert x.tobytes() == before


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.sampled_from(
        [
            *("sum", "max", "argmax", "float32", "f8", "cpu", "cuda", "auto", "simd", "v3"),
            *(np.float32, np.dtype("i4,f4"), np.dtype("M8[s]"), object, object(), Ellipsis),
            *(np.float32(2), np.ones(3), np.ones((2, 2), "i2"), np.array("a"), np.array(None)),
            *(range(3), slice(1), {1: 2}, {1, 2}, [[1, 2], [3, 4]], [[1], [2, 3]], [], [[]]),
            memoryview(b"abcd"),
        ]
    ),
    st.lists(st.integers(-3, 3), max_size=3),
    st.lists(st.integers(-3, 3), max_size=3).map(tuple),
)

# What a wrong call may raise; anything else is a bug.  NumPy warns when a cast to dtype=
# overflows or drops an imaginary part; here warnings are errors.
HONEST = (
    *(TypeError, ValueError, OverflowError, IndexError, NotImplementedError, MemoryError),
    RuntimeWarning,
)


def names_of(op: str) -> list[str]:
    own = [argument["name"] for argument in _core.describe(op)["args"]]
    return [*own, "out", "variant", "backend", "stream", "", "axes"]


NAMES = {op: names_of(op) for op in _core.ops()}
VALID = {op: ENTRIES[op].valid() for op in _core.ops()}


def check_any_arguments(op: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    for call in (getattr(gpuopt, op), lambda *a, **k: _core.plan(op, *a, **k)):
        try:
            call(*args, **kwargs)
        except HONEST as error:
            assert str(error)
        except (gpuopt.CudaError, gpuopt.SimulatorError):
            assert kwargs.get("backend") in ("cuda", "sim")
    valid, options, want = VALID[op]
    assert_same(getattr(gpuopt, op)(*valid, **options), want)


@fuzz
@given(
    st.lists(ANYTHING, max_size=8),
    st.lists(st.tuples(st.integers(0, 999), ANYTHING), max_size=4),
)
def test_any_arguments(args: list[Any], named: list[tuple[int, Any]]) -> None:
    """Each example is used for every operator: generating one costs more than all the calls."""
    for op in _core.ops():
        names = NAMES[op]
        try:
            check_any_arguments(op, args, {names[k % len(names)]: x for k, x in named})
        except Exception as error:
            error.add_note(f"by {op}")
            raise
