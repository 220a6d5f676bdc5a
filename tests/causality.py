"""The causal error bound of causal_conv1d: difficult rows, exact sums, and the bound.

For finite w and any x the error of the result at t is at most sqrt(T) eps |w| |x[..t]|,
besides the rounding to its dtype; the same for dx with time reversed; for dw[c] it is
sqrt(T) eps sum over b of |x[b, c]| |dy[b, c]|.  inf and nan are left out of the norms: they
affect the results that they are terms of, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

C0 = 1  # the constant of the bound
HEAD = 128  # results from the first input that is not 0 on: summed directly


def wide(dtype: Any) -> Any:
    """A type whose rounding errors are negligible beside the bound."""
    return np.longdouble if np.dtype(dtype) == np.float64 else np.float64


def rows(steps: int, seed: int = 0) -> dict[str, Array]:
    """Rows of inputs by name, in float64; all values fit in float32."""
    rng = np.random.default_rng((seed, steps))
    t = np.arange(steps)
    noise = [rng.standard_normal(steps) for _ in range(24)]
    half, middle = steps // 2, steps // 3
    ramp = np.linspace(-120, 120, steps)
    odd = (t > middle) & (t % 3 == 0)  # more than the transforms accept in a row
    return {
        "normal": noise[0],
        "uniform": rng.random(steps),
        "constant": np.full(steps, 0.7311),
        "cosine": np.cos(2.1 * t),
        "last 1e3": np.where(t == steps - 1, 1e3, noise[1]),
        "last 1e8": np.where(t == steps - 1, 1e8, noise[2]),
        "last 1e30": np.where(t == steps - 1, 1e30, noise[3]),
        "left zero": np.where(t < half, 0, noise[4]),
        "one zero more": np.where(t < half + 1, 0, noise[5]),
        "right zero": np.where(t > half, 0, noise[6]),
        "only the last": np.where(t == steps - 1, 1e30, 0),
        "zero": np.zeros(steps),
        "growth": noise[7] * 2.0**ramp,
        "decay": noise[8] * 2.0**-ramp,
        "a valley": noise[9] * 2.0 ** (np.abs(ramp) - 60),
        "a hill": noise[10] * 2.0 ** -np.abs(ramp),
        "zeros count": np.where(t == 0, 1e-20, np.where(t < half, 0, noise[11])),
        "any size": noise[12] * 2.0 ** rng.uniform(-100, 100, steps),
        "steps": noise[13] * np.where(t < middle, 1, np.where(t < 2 * middle, 1e6, 1e-6)),
        "tiny": noise[14] * 2.0**-120,
        "subnormal": noise[15] * 2.0**-144,
        "huge": noise[16] * 2.0**100,
        "last nan": np.where(t == steps - 1, np.nan, noise[17]),
        "an inf": np.where(t == middle, -np.inf, noise[18]),
        "nan and inf": np.where(t == half, np.nan, np.where(t == 2, np.inf, noise[19])),
        "wide and nan": np.where(t == half, np.nan, noise[20] * 2.0**ramp),
        "many nan": np.where(odd, np.nan, noise[21]),
        "first inf": np.where(t == 0, np.inf, noise[22]),
    }


def stack(names: list[str], channels: int, steps: int, dtype: Any, seed: int = 0) -> Array:
    """(len(names), channels, steps): row (b, c) has name b + c, so groups mix kinds of rows."""
    found = [rows(steps, seed + c) for c in range(channels)]
    with np.errstate(over="ignore", under="ignore"):
        batch = [
            [found[c][names[(b + c) % len(names)]] for c in range(channels)]
            for b in range(len(names))
        ]
        return np.array(batch).astype(dtype)


def filters(channels: int, taps: int, dtype: Any, seed: int = 0) -> Array:
    """Normal; falling to 2**-40 of the first lag; growing; uniform; of one lag."""
    rng = np.random.default_rng((seed, taps))
    fall = 2.0 ** np.linspace(-40, 0, taps)
    w = [
        (
            rng.standard_normal(taps),
            rng.standard_normal(taps) * fall,
            rng.standard_normal(taps) * fall[::-1],
            rng.random(taps),
            np.eye(1, taps, taps // 2)[0],
        )[c % 5]
        for c in range(channels)
    ]
    return (np.array(w) / np.sqrt(taps)).astype(dtype)


def norms(x: Array) -> Array:
    """The norm of the finite values along the last axis."""
    x = np.where(np.isfinite(x), x, 0).astype(np.longdouble)
    return np.sqrt((x * x).sum(-1))


def norms_so_far(x: Array) -> Array:
    x = np.where(np.isfinite(x), x, 0).astype(np.longdouble)
    return np.sqrt(np.cumsum(x * x, -1))


def convolution(x: Array, w: Array) -> Array:
    """out[b, c, t] = sum over lags s of w[c, -1 - s] x[b, c, t - s], within the arrays."""
    steps = x.shape[-1]
    out = np.zeros(x.shape, x.dtype)
    with np.errstate(invalid="ignore"):
        for b, c in np.ndindex(x.shape[:2]):
            out[b, c] = np.convolve(x[b, c], w[c, ::-1][:steps])[:steps]
    return out


def correlation(x: Array, g: Array, taps: int) -> Array:
    """dw[c, -1 - s] = sum over b, t of g[b, c, t] x[b, c, t - s]."""
    steps = x.shape[-1]
    dw = np.zeros((x.shape[1], taps), x.dtype)
    with np.errstate(invalid="ignore"):
        for s in range(min(steps, taps)):
            dw[:, taps - 1 - s] = (g[..., s:] * x[..., : steps - s]).sum((0, 2))
    return dw


def compare(got: Array, want: Array, bound: Array, what: str) -> None:
    """Within the bound and the rounding to got's dtype; inf and nan in the right places."""
    info = np.finfo(np.float32) if got.dtype.name == "bfloat16" else np.finfo(got.dtype)
    digits = 7 if got.dtype.name == "bfloat16" else info.nmant
    tiny = 2.0**-133 if got.dtype.name == "bfloat16" else float(info.smallest_subnormal)
    y = got.astype(want.dtype)
    number = np.isfinite(want)
    with np.errstate(invalid="ignore"):
        room = bound + np.abs(want) * 2.0 ** -(digits + 1) * (1 + 2.0**-digits) + 2 * tiny
        near = np.abs(y - want) <= room
        near |= number & (np.abs(want) + room >= 0.99 * float(info.max))  # overflows
    same = (y == want) | (np.isnan(y) & np.isnan(want))
    wrong = ~np.where(number, near, same)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}: {wrong.sum()} of {wrong.size} are off, the first at {at}: "
            f"{y[at]!r}, not {want[at]!r} with room for {room[at]!r}"
        )


def eps_of(dtype: Any) -> float:
    return 2.0**-52 if np.dtype(dtype) == np.float64 else 2.0**-23


def causal_bound(x: Array, w: Array, dtype: Any) -> Array:
    size = norms(w)[:, None] * norms_so_far(x)
    return C0 * np.sqrt(x.shape[-1]) * eps_of(dtype) * size


def flushed(terms: Array, dtype: Any) -> Array:
    """The error that so many subnormal products may have."""
    kind = np.float64 if np.dtype(dtype) == np.float64 else np.float32
    return terms * np.longdouble(np.finfo(kind).smallest_subnormal) / 2


def sums(x: Array, w: Array) -> Array:
    return convolution(x.astype(wide(x.dtype)), w.astype(wide(x.dtype)))


def check_causal_bound(x: Array, w: Array, y: Array, want: Array) -> None:
    """Every result is within the bound, and results before the first input are 0."""
    a, b = x.astype(wide(x.dtype)), w.astype(wide(x.dtype))
    terms = np.minimum(np.arange(x.shape[-1]) + 1, w.shape[-1])
    bound = causal_bound(a, b, x.dtype) + flushed(terms, x.dtype)
    compare(y, want, bound.astype(want.dtype), "out")
    before = np.cumsum(a != 0, -1) == 0
    assert (y[before] == 0).all(), "there is something before the first input"


def gradients(dy: Array, x: Array, w: Array) -> tuple[Array, Array, Array]:
    """dx in reversed time, dw, and the error bound of dw."""
    a, g, b = (each.astype(wide(x.dtype)) for each in (x, dy, w))
    size = (norms(a) * norms(g)).sum(0)[:, None]
    bound = C0 * np.sqrt(x.shape[-1]) * eps_of(x.dtype) * size
    bound = bound + flushed(np.asarray(a.shape[0] * a.shape[-1]), x.dtype)
    dw = correlation(a, g, w.shape[-1])
    return convolution(g[..., ::-1], b), dw, bound.astype(dw.dtype)


def check_gradients(
    dy: Array, x: Array, w: Array, dx: Array, dw: Array, want: tuple[Array, Array, Array]
) -> None:
    """dx is computed from reversed rows; the bound of dw is relative to its rows' norms."""
    check_causal_bound(dy[..., ::-1], w, dx[..., ::-1], want[0])
    compare(dw, want[1], want[2], "dw")


def check_special_values(
    run: Callable[[Array, Array], Array],
    steps: int,
    taps: int,
    places: Iterable[int],
    bad: float,
) -> None:
    """One inf or nan, in x or in w, reaches all results that depend on it and no other."""
    t = np.arange(steps)
    w = np.ones((3, taps), np.float32)
    for where in places:
        x = np.ones((3, 3, steps), np.float32)
        x[1, 1, where] = bad
        got = ~np.isfinite(run(x, w))
        np.testing.assert_array_equal(got[1, 1], (t >= where) & (t < where + taps))
        got[1, 1] = False
        assert not got.any()
    for lag in {0, taps - 1}:
        x, w = np.ones((2, 3, steps), np.float32), np.ones((3, taps), np.float32)
        w[2, taps - 1 - lag] = bad
        got = ~np.isfinite(run(x, w))
        np.testing.assert_array_equal(got[:, 2], [t >= lag] * 2)
        assert not got[:, :2].any()
