"""causal_conv1d by few_taps: drawn calls, special values, the bits, the choice, refusals."""

from __future__ import annotations

from typing import Any

import causality
import numpy as np
import pytest
from cases import ENTRIES, dtype_of
from cases.causal_conv1d import sample

from gpuopt import VariantError, _core, causal_conv1d

Array = np.ndarray[Any, Any]

HOW: dict[str, Any] = {"backend": "sim", "variant": "few_taps"}
FLOATS = ("float16", "bfloat16", "float32")
SCHEDULES = ("ascending", "descending", "shuffle", "preempt")


@pytest.mark.parametrize("dtype", FLOATS)
def test_drawn_calls(dtype: str) -> None:
    """Rows of part of a warp, of one item and of several; all numbers of taps, SiLU or not."""
    rng = np.random.default_rng(len(dtype))
    old = _core._sim_configure(checks=True)
    try:
        for turn in range(49):
            steps = int(rng.choice((8, 16, 24, 40, 64, 72, 128, 256, 264, 520, 1040)))
            batches = int(rng.integers(1, 20)) if steps < 100 else int(rng.integers(1, 4))
            channels = int(rng.choice((1, 2, 3, 5, 9))) if steps < 300 else 2
            options = (("activation", "silu"),) if turn % 2 else (("eps", 0.5),)
            size = (batches, channels, steps, 2 + turn % 7)
            case = sample(False, size, dtype, ("C",), "normal", bool(turn % 3), options)
            arrays = [spec.build() for spec in case.arrays]
            _core._sim_configure(checks=True, schedule=SCHEDULES[turn % 4], seed=turn)
            got = causal_conv1d(*arrays, **dict(case.options), **HOW)
            problem = ENTRIES["causal_conv1d"].expected(case, "few_taps").compare(got)
            assert problem is None, (turn, case, problem)
    finally:
        _core._sim_configure(**old)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [(40, 300, 8), (90, 3, 40), (1, 3, 24000), (2, 5, 2048)])
def test_every_division_of_rows_has_the_bits_of_short_filters(
    size: tuple[int, int, int], dtype: str
) -> None:
    """Warps with several batches, with stretches and with whole long rows add in one order."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal(size).astype(dtype_of(dtype))
    for taps, silu in ((3, "silu"), (7, None), (8, "silu")):
        w = rng.standard_normal((size[1], taps)).astype(dtype_of(dtype))
        a, b = (
            causal_conv1d(x, w, activation=silu, backend="sim", variant=variant)
            for variant in ("few_taps", "short_filters")
        )
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize("steps", [16, 40, 264])
def test_special_values_reach_what_depends_on_them(steps: int, bad: float) -> None:
    """The first lanes of a row hold steps of another one, which no product may use."""
    places = (0, 1, 5, steps - 9, steps - 1)
    for taps in range(2, 9):
        causality.check_special_values(
            lambda x, w: causal_conv1d(x, w, **HOW), steps, taps, places, bad
        )


def test_the_choice() -> None:
    """Rows of whole packs and 2 to 8 taps: short ones, or 16-bit floats with many taps."""

    def chosen(x: Array, taps: int, **options: Any) -> str:
        w = np.ones((x.shape[1], taps), x.dtype)
        return str(_core.plan("causal_conv1d", x, w, backend="sim", **options)["variant"])

    x, longer = np.ones((192, 64, 128), np.float32), np.ones((64, 64, 400), np.float32)
    for taps in range(2, 9):
        assert chosen(x, taps) == "few_taps"
        assert chosen(x.astype(np.float16), taps, return_state=True) == "few_taps"
        others = "contiguous_rows" if taps <= 4 else "short_filters"
        assert chosen(longer, taps) == others
        halves = "few_taps" if taps > 4 else others
        assert chosen(longer.astype(np.float16), taps) == halves
    assert chosen(x[..., :127].copy(), 4) == "contiguous_rows"
    for other, taps in (
        (x[..., 1:125], 4),
        (x.astype(np.float64), 4),
        (x, 1),
        (x, 9),
    ):
        assert chosen(other, taps) == "short_filters"
    assert chosen(x, 4, segments=np.zeros((192, 128), np.int32)) == "short_filters"
    state = np.zeros((192, 64, 3), np.float32)
    assert chosen(x, 4, initial_state=state) == "short_filters"
    assert chosen(x[:1, :8].copy(), 4) == "few_outputs"


def test_calls_it_cannot_take_are_refused() -> None:
    x = np.ones((2, 3, 40), np.float32)
    for bad, taps, options in (
        (x, 1, {}),
        (x, 9, {}),
        (x[..., :39].copy(), 4, {}),
        (x[..., 1:37], 4, {}),
        (x, 4, {"layout": "BTC"}),
        (x, 4, {"segments": np.zeros((2, 40), np.int32)}),
        (x, 4, {"initial_state": np.zeros((2, 3, 3), np.float32)}),
    ):
        w = np.ones((bad.shape[2 if "layout" in options else 1], taps), np.float32)
        with pytest.raises(VariantError, match="2 to 8 lags"):
            causal_conv1d(bad, w, **options, **HOW)
