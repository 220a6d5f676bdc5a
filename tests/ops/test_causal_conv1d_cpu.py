"""causal_conv1d's filters of few lags on a CPU: layouts, edges of tiles, the same bits.

Order: results, bits.  See test_contract.py for sizes, layouts and dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import dtype_of
from conftest import run_child

from gpuopt import causal_conv1d, causal_conv1d_backward, ref

Array = np.ndarray[Any, Any]
FLOATS = ("float16", "bfloat16", "float32", "float64")
CPU: dict[str, Any] = {"backend": "cpu", "variant": "threads"}


def whole(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    """Small whole numbers: their sums are exact in float32 and in any order."""
    return np.random.default_rng((seed, *shape)).integers(-3, 4, shape).astype(dtype_of(dtype))


def turned(a: Array) -> Array:
    return np.ascontiguousarray(a.swapaxes(1, 2))


# Around a tile of 16 steps, ranges of 256 and 1024, vectors of 16 and blocks of channels.
SIZES = (
    (2, 16, 15, 4),
    (1, 17, 16, 3),
    (2, 33, 17, 2),
    (1, 31, 257, 16),
    (3, 16, 1, 4),
    (1, 300, 40, 5),
    (1, 770, 33, 4),
    (1, 1030, 18, 31),
    (1, 20, 530, 32),
    (2, 3, 1025, 4),
    (1, 2, 2049, 13),
    (5, 1, 31, 32),
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_both_layouts_are_exact_on_whole_numbers(size: Any, dtype: str) -> None:
    b, c, t, k = size
    x, dy = (whole((b, c, t), dtype, seed) for seed in (1, 2))
    w, bias = whole((c, k), dtype, 3), whole((c,), dtype, 4)
    want = ref.causal_conv1d(x, w, bias)
    np.testing.assert_array_equal(causal_conv1d(x, w, bias, **CPU), want)
    by_time = {**CPU, "layout": "BTC"}
    got = causal_conv1d(turned(x), w, bias, **by_time)
    np.testing.assert_array_equal(got.swapaxes(1, 2), want)
    wants = ref.causal_conv1d_backward(dy, x, w, bias)
    straight = causal_conv1d_backward(dy, x, w, bias, **CPU)
    for rows in (turned(dy), dy.swapaxes(1, 2)):
        dx, *rest = causal_conv1d_backward(rows, turned(x), w, bias, **by_time)
        for gots in (straight, (dx.swapaxes(1, 2), *rest)):
            for got, want in zip(gots, wants, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_out_of_any_strides(layout: str) -> None:
    x, w = whole((2, 20, 24), "float32", 5), whole((20, 4), "float32", 6)
    w = w if layout == "BCT" else whole((24, 4), "float32", 6)
    want = ref.causal_conv1d(x, w, layout=layout)
    wants = ref.causal_conv1d_backward(x, x, w, layout=layout)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        memory = np.zeros([x.shape[k] for k in order], np.float32)
        out = memory.transpose(np.argsort(order))[:, ::-1]
        np.testing.assert_array_equal(causal_conv1d(x, w, layout=layout, out=out, **CPU), want)
        outs = (out, np.zeros(w.shape[::-1], np.float32).T)
        causal_conv1d_backward(x, x, w, layout=layout, out=outs, **CPU)
        for got, right in zip(outs, wants, strict=True):
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["BCT", "BTC"])
def test_an_infinity_reaches_what_depends_on_it(dtype: str, layout: str) -> None:
    """Terms before the row, and taps that are infinite there, are skipped."""
    x, w = whole((1, 18, 40), dtype, 7), whole((18, 4), dtype, 8)
    w[:, 0] = np.inf  # of the oldest of four steps
    x[0, :, 9] = np.nan
    given = turned(x) if layout == "BTC" else x
    y = causal_conv1d(given, w, layout=layout, **CPU)
    y = y.swapaxes(1, 2) if layout == "BTC" else y
    y, want = (a.astype(np.float32) for a in (y, ref.causal_conv1d(x, w)))
    assert np.isfinite(y[..., :3]).all()
    assert np.isnan(y[..., 9:13]).all()
    np.testing.assert_array_equal(y, want)


# ---- bits ----

CODE = """
import hashlib, gpuopt, numpy as np
from gpuopt import _core
for dtype in ("float32", "float16", "float64"):
    for size in ((2, 40, 700, 4), (1, 3, 3000, 7), (2, 600, 50, 17)):
        b, c, t, k = size
        draw = np.random.default_rng(size)
        x, w = (draw.standard_normal(s).astype(dtype) for s in ((b, c, t), (c, k)))
        bias = draw.standard_normal(c).astype(dtype)
        for layout in ("BCT", "BTC"):
            given = x if layout == "BCT" else np.ascontiguousarray(x.swapaxes(1, 2))
            how = dict(layout=layout, activation="silu", backend="cpu", variant="threads")
            for threads in (1, 2, 3, 8):
                _core.set_num_threads(threads)
                y = gpuopt.causal_conv1d(given, w, bias, **how)
                d = gpuopt.causal_conv1d_backward(y, given, w, bias, **how)
                bits = hashlib.sha256(b"".join(a.tobytes() for a in (y, *d))).hexdigest()
                if threads == 1:
                    print(bits)
                    one = bits
                assert bits == one, (size, layout, threads)
"""


@pytest.mark.parametrize("isa", ["baseline", "v3"])
def test_the_same_bits_on_every_instruction_set_and_number_of_threads(isa: str) -> None:
    here, there = run_child("-c", CODE), run_child("-c", CODE, env={"GPUOPT_CPU": isa})
    assert here.returncode == 0, here.stderr
    if "is beyond this machine" in there.stderr:
        pytest.skip("this machine has no such instructions")
    assert there.stdout == here.stdout, there.stderr
