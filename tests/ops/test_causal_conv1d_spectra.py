"""causal_conv1d by Fourier transforms on a CPU: few channels, few batches, long rows.

Order: the bound, rows that are no numbers, bits.  See test_causal_conv1d.py for the bound on
every variant, and causality.py for the rows.
"""

from __future__ import annotations

from typing import Any

import causality
import numpy as np
import pytest
from conftest import run_child

from gpuopt import _core, causal_conv1d, causal_conv1d_backward

Array = np.ndarray[Any, Any]
CPU: dict[str, Any] = {"backend": "cpu", "variant": "spectra"}


def normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


# (batches, channels, steps, taps): around the smallest transform of 512 steps, with one
# channel or one batch, blocks that units share, and parts of a filter's gradient.
SIZES = (
    (1, 1, 129, 129),
    (1, 1, 256, 256),
    (17, 1, 257, 257),
    (3, 1, 511, 33),
    (1, 2, 513, 40),
    (5, 3, 700, 700),
    (2, 1, 1881, 1881),
    (1, 1, 5000, 129),
    (2, 2, 4099, 500),
    (65, 1, 300, 64),
)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_few_channels_and_batches(size: tuple[int, int, int, int], dtype: str) -> None:
    batches, channels, steps, taps = size
    x, dy = normal(batches, channels, steps, dtype=dtype), normal(steps, dtype=dtype)
    dy = np.broadcast_to(dy, x.shape)
    w = causality.filters(channels, taps, dtype)
    causality.check_causal_bound(x, w, causal_conv1d(x, w, **CPU), causality.sums(x, w))
    dx, dw = causal_conv1d_backward(dy, x, w, **CPU)
    causality.check_gradients(dy, x, w, dx, dw, causality.gradients(dy, x, w))


@pytest.mark.parametrize("name", ["last 1e8", "left zero", "growth", "any size", "steps"])
def test_units_that_begin_within_a_wide_row(name: str) -> None:
    """One row of 30 blocks, which several units share: each measures what is before it."""
    x = causality.rows(5000)[name].astype(np.float32)[None, None]
    w = causality.filters(1, 100, np.float32)
    causality.check_causal_bound(x, w, causal_conv1d(x, w, **CPU), causality.sums(x, w))
    dx, dw = causal_conv1d_backward(x[..., ::-1], x, w, **CPU)
    want = causality.gradients(x[..., ::-1], x, w)
    causality.check_gradients(x[..., ::-1], x, w, dx, dw, want)


@pytest.mark.parametrize(("size", "at"), [((7, 1, 600, 300), 3), ((9, 2, 3000, 90), 8)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_leaves_its_row(size: Any, at: int, value: float) -> None:
    """The other batches of its channel keep their bits; dw has what `threads` has."""
    batches, channels, steps, taps = size
    x, w, dy = normal(batches, channels, steps), normal(channels, taps), normal(*size[:3])
    clean = causal_conv1d(x, w, **CPU), causal_conv1d_backward(dy, x, w, **CPU)[0]
    others = np.arange(batches) != at
    for t in (0, 127, steps // 2, steps - 1):
        odd = x.copy()
        odd[at, 0, t] = value
        y, (dx, dw) = causal_conv1d(odd, w, **CPU), causal_conv1d_backward(dy, odd, w, **CPU)
        assert y[others].tobytes() == clean[0][others].tobytes()
        assert dx.tobytes() == clean[1].tobytes()
        assert np.isfinite(y[at, 0, :t]).all()
        assert not np.isfinite(y[at, 0, t : t + taps]).any()
        assert np.isfinite(y[at, 0, t + taps :]).all()
        _, want = causal_conv1d_backward(dy, odd, w, backend="cpu", variant="threads")
        np.testing.assert_array_equal(np.isfinite(dw), np.isfinite(want))


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_filter_that_is_no_number(value: float) -> None:
    """Its channel is summed directly, in every range of a long row."""
    for steps, taps in ((700, 700), (5000, 100)):
        x, w = normal(3, 2, steps), normal(2, taps)
        clean = causal_conv1d(x, w, **CPU)
        w[1, taps - 60] = value  # the lag of 59 steps
        y = causal_conv1d(x, w, **CPU)
        want = causal_conv1d(x, w, backend="cpu", variant="threads")
        assert y[:, 0].tobytes() == clean[:, 0].tobytes()
        assert y[:, 1].tobytes() == want[:, 1].tobytes()
        assert np.isfinite(y[:, 1, :59]).all()


CODE = """
import hashlib, causality, gpuopt, numpy as np
from gpuopt import _core
for dtype in ("float32", "float64"):
    for size in ((5, 1, 3000, 300), (1, 1, 9000, 100), (1, 2, 700, 700), (20, 3, 513, 513)):
        b, c, t, k = size
        x = causality.stack(["normal", "steps", "left zero", "last 1e8"], c, t, dtype)
        x = np.ascontiguousarray(np.resize(x, (b, c, t)))
        w = causality.filters(c, k, dtype)
        how = dict(backend="cpu", variant="spectra")
        for threads in (1, 2, 3, 8):
            _core.set_num_threads(threads)
            y = gpuopt.causal_conv1d(x, w, activation="silu", **how)
            d = gpuopt.causal_conv1d_backward(y, x, w, **how)
            bits = hashlib.sha256(b"".join(a.tobytes() for a in (y, *d))).hexdigest()
            if threads == 1:
                print(bits)
                one = bits
            assert bits == one, (size, threads)
"""


@pytest.mark.parametrize("isa", ["baseline", "v3"])
def test_the_same_bits_on_every_instruction_set_and_number_of_threads(isa: str) -> None:
    here, there = run_child("-c", CODE), run_child("-c", CODE, env={"GPUOPT_CPU": isa})
    assert here.returncode == 0, here.stderr
    if "is beyond this machine" in there.stderr:
        pytest.skip("this machine has no such instructions")
    assert there.stdout == here.stdout, there.stderr


def test_few_channels_are_transformed_too() -> None:
    """By the sizes alone: filters of a row's length from about 300 steps on."""

    def chosen(batches: int, channels: int, steps: int, taps: int) -> str:
        x, w = np.ones((batches, channels, steps), np.float32), np.ones((channels, taps))
        return str(
            _core.plan("causal_conv1d", x, w.astype(np.float32), backend="cpu")["variant"]
        )

    assert chosen(1, 1, 4096, 4096) == "spectra"
    assert chosen(16, 3, 5274, 512) == "spectra"
    assert chosen(12, 3, 9662, 8192) == "spectra"
    assert chosen(12, 3, 128, 128) != "spectra"
    assert chosen(2, 32, 5000, 32) != "spectra"
