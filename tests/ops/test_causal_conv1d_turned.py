"""causal_conv1d_backward of many (B, T, C) elements: transposed first, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import dtype_of

from gpuopt import causal_conv1d_backward


@pytest.mark.parametrize("silu", [None, "silu"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("variant", ["v5", "v7", "middle_filters"])
def test_turned_rows_have_the_bits_of_rows(variant: str, dtype: str, silu: str | None) -> None:
    """2^17 elements of few channels, or of many, whose tiles are larger; the same by rows."""
    rng = np.random.default_rng(2)
    batches, channels, steps = (3, 17, 2600) if silu else (2, 70, 950)
    dy, x = (
        rng.standard_normal((batches, channels, steps)).astype(dtype_of(dtype))
        for _ in range(2)
    )
    w = rng.standard_normal((channels, 18)).astype(x.dtype)
    bias = rng.standard_normal(channels).astype(x.dtype) if silu else None
    how: dict[str, Any] = {"backend": "sim", "variant": variant, "activation": silu}
    want = causal_conv1d_backward(dy, x, w, bias, **how)
    dy, x = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (dy, x))
    got = causal_conv1d_backward(dy, x, w, bias, layout="BTC", **how)
    assert got[0].swapaxes(1, 2).tobytes() == want[0].tobytes()
    for a, b in zip(got[1:], want[1:], strict=True):
        assert a.tobytes() == b.tobytes()
