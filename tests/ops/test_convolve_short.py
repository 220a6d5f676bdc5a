"""convolve's short_filters: filters of at most 512 taps, four sums per thread.

Order: lengths around fours, eights and blocks, special values, the simulator's counts, what it
refuses.  See test_contract.py for rows, layouts and dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuopt
from gpuopt import _core, convolve
from gpuopt.lab.profile import profile

NAME = "short_filters"
MODES: tuple[Any, ...] = ("full", "same", "valid")
HOW: dict[str, Any] = {"backend": "sim", "variant": NAME}

pytestmark = pytest.mark.skipif(_core.backends()["sim"] is not None, reason="no simulator")


@pytest.mark.parametrize("schedule", ["ascending", "descending", "shuffle", "preempt"])
def test_whole_numbers_around_every_border(schedule: str) -> None:
    rng = np.random.default_rng(5)
    old = _core._sim_configure(checks=True, schedule=schedule)
    try:
        for n in (1, 3, 4, 5, 511, 512, 513, 1030):
            for m in (k for k in (1, 3, 4, 7, 8, 9, 64, 65, 200, 512) if k <= n):
                a, v = rng.integers(-9, 10, n), rng.integers(-9, 10, m)
                for mode, dtype in zip(MODES, ("float32", "int16", "complex64"), strict=True):
                    x, y = a.astype(dtype), v.astype(dtype)
                    want = np.convolve(x, y, mode)
                    np.testing.assert_array_equal(convolve(x, y, mode, **HOW), want)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_special_values_reach_their_own_sums(dtype: str) -> None:
    """What is beyond the ends is no zero: as in v0, which leaves those terms out."""
    a, v = np.ones(700, dtype), np.ones(37, dtype)
    a[[0, 350, 699]] = np.inf, np.nan, -np.inf
    v[[0, -1]] = np.inf, 0
    for mode in MODES:
        with np.errstate(all="ignore"):
            want = convolve(a, v, mode, backend="sim", variant="v0")
            np.testing.assert_array_equal(convolve(a, v, mode, **HOW), want)


def test_the_signal_is_read_once_and_sums_are_written_once() -> None:
    """But for the sector that two warps share where a load begins between sectors."""
    a, v = np.ones(1 << 14, np.float32), np.ones(8, np.float32)
    (kernel,) = profile("convolve", a, v, "same", variant=NAME)[NAME]
    least = 2 * a.nbytes // 32
    assert least <= kernel.global_sectors <= 1.2 * least


def test_longer_filters_are_refused() -> None:
    a = np.ones(600, np.float32)
    with pytest.raises(gpuopt.VariantError, match="takes filters of at most 512 taps"):
        convolve(a, a[:513], **HOW)
