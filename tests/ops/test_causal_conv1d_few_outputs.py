"""causal_conv1d by few_outputs: drawn calls, special values, the choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import ENTRIES, LAYOUTS_ND
from cases.causal_conv1d import sample

from gpuopt import VariantError, _core, causal_conv1d

HOW: dict[str, Any] = {"backend": "sim", "variant": "few_outputs"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_drawn_calls(dtype: str) -> None:
    """Layouts, channels and steps around a warp, every number of taps, SiLU or not."""
    rng = np.random.default_rng(len(dtype))
    old = _core._sim_configure(checks=True)
    try:
        for turn in range(60):
            steps = int(rng.choice((1, 2, 5, 31, 32, 33, 70, 130)))
            channels = int(rng.choice((1, 3, 4, 5, 31, 33, 65)))
            options: tuple[tuple[str, Any], ...] = (("layout", ("BCT", "BTC")[turn % 2]),)
            options += (("activation", "silu"),) if turn % 3 else (("eps", 0.5),)
            size = (int(rng.integers(1, 4)), channels, steps, 1 + turn % 8)
            layouts = tuple(LAYOUTS_ND[(turn * step) % 10] for step in (1, 3, 7))
            case = sample(
                False,
                size,
                dtype,
                layouts if turn % 4 else ("C",),
                "normal",
                turn % 5 > 1,
                options,
            )
            arrays = [spec.build() for spec in case.arrays]
            got = causal_conv1d(*arrays, **dict(case.options), **HOW)
            problem = ENTRIES["causal_conv1d"].expected(case, "few_outputs").compare(got)
            assert problem is None, (turn, case, problem)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_special_values_reach_what_depends_on_them(bad: float) -> None:
    """Lags that an output does not have are loaded from lag 0, and not added."""
    steps = 40
    for taps in (1, 2, 3, 4, 5, 8):
        w, x = np.ones((2, taps), np.float32), np.ones((1, 2, steps), np.float32)
        for where in (0, 3, steps - 1):
            x[:] = 1
            x[0, 1, where] = bad
            got = ~np.isfinite(causal_conv1d(x, w, **HOW)[0])
            t = np.arange(steps)
            np.testing.assert_array_equal(got[1], (t >= where) & (t < where + taps))
            assert not got[0].any()
        x[:] = 1
        w[1, 0] = bad  # the oldest lag
        got = ~np.isfinite(causal_conv1d(x, w, **HOW)[0])
        np.testing.assert_array_equal(got[1], np.arange(steps) >= taps - 1)


def test_the_choice() -> None:
    """Small calls of few taps; more taps, outputs, segments and states go elsewhere."""
    x, w = np.ones((2, 60, 400), np.float32), np.ones((60, 4), np.float32)

    def chosen(*arrays: Any, **options: Any) -> str:
        return _core.plan("causal_conv1d", *arrays, backend="sim", **options)["variant"]

    assert chosen(x, w) == "few_outputs"
    assert chosen(x.swapaxes(1, 2).copy(), w, layout="BTC") == "few_outputs"
    for dtype in ("float16", "float32"):
        assert chosen(np.ones((4, 64, 1021), dtype), w[:1].repeat(64, 0).astype(dtype)) == (
            "few_outputs"
        )
    large = np.ones((8, 60, 4000), np.float32)
    segments = np.zeros((2, 400), np.int32)
    for arrays, options in (
        ((large, w), {}),
        ((x, np.ones((60, 9), np.float32)), {}),
        ((x.astype(np.float64), w.astype(np.float64)), {}),
        ((x, w), {"segments": segments}),
        ((x, w), {"initial_state": np.zeros((2, 60, 3), np.float32)}),
    ):
        assert chosen(*arrays, **options) != "few_outputs"
    with pytest.raises(VariantError, match="at most 8 lags"):
        causal_conv1d(x, np.ones((60, 9), np.float32), **HOW)
