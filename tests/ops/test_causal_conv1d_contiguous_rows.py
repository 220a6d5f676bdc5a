"""causal_conv1d by contiguous_rows: drawn calls, special values, refusals."""

from __future__ import annotations

from typing import Any

import causality
import numpy as np
import pytest
from cases import ENTRIES
from cases.causal_conv1d import sample

from gpuopt import VariantError, _core, causal_conv1d

HOW: dict[str, Any] = {"backend": "sim", "variant": "contiguous_rows"}
FLOATS = ("float16", "bfloat16", "float32")
SCHEDULES = ("ascending", "descending", "shuffle", "preempt")


@pytest.mark.parametrize("dtype", FLOATS)
def test_drawn_calls(dtype: str) -> None:
    """Rows of part of a pack more than a pack, of a warp and of several blocks."""
    rng = np.random.default_rng(len(dtype))
    least = 4 if dtype == "float32" else 8
    old = _core._sim_configure(checks=True)
    try:
        for turn in range(42):
            steps = int(rng.choice((8, 9, 10, 11, 13, 31, 33, 127, 333, 1030)))
            steps = least if turn % 7 == 0 else steps
            batches = int(rng.integers(1, 12)) if steps < 100 else int(rng.integers(1, 4))
            channels = int(rng.choice((1, 2, 3, 5, 9))) if steps < 300 else 2
            options = (("activation", "silu"),) if turn % 2 else (("eps", 0.5),)
            size = (batches, channels, steps, 2 + turn % 3)
            case = sample(False, size, dtype, ("C",), "normal", bool(turn % 3), options)
            arrays = [spec.build() for spec in case.arrays]
            _core._sim_configure(checks=True, schedule=SCHEDULES[turn % 4], seed=turn)
            got = causal_conv1d(*arrays, **dict(case.options), **HOW)
            problem = ENTRIES["causal_conv1d"].expected(case, "contiguous_rows").compare(got)
            assert problem is None, (turn, case, problem)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("steps", [4, 5, 7, 130])
def test_special_values_reach_what_depends_on_them(steps: int, bad: float) -> None:
    """A pack holds steps and taps of two rows, of which no product may use the other's."""
    places = {0, 1, steps // 2, steps - 2, steps - 1}
    for taps in (2, 3, 4):
        causality.check_special_values(
            lambda x, w: causal_conv1d(x, w, **HOW), steps, taps, places, bad
        )


def test_refusals() -> None:
    x = np.ones((2, 3, 40), np.float32)
    for rows, taps in (
        (x, 5),
        (x[:, :, ::2], 4),
        (x[:, ::2], 4),
        (x[:, :, :3], 3),
    ):
        w = np.ones((rows.shape[1], taps), rows.dtype)
        with pytest.raises(VariantError, match="contiguous_rows"):
            causal_conv1d(rows, w, **HOW)
