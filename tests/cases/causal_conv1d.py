"""Cases of causal_conv1d, its gradient and its update: sizes, layouts, options, errors.

Order: sizes, samples, bounds, expectations, error inputs, the update, the table.  Segments
are in ops/test_causal_conv1d_states.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cases import (
    LAYOUTS_ND,
    Entry,
    Error,
    Expected,
    Sample,
    Several,
    Spec,
    readonly,
    smallest,
    unit,
)
from gpuopt import ref

Size = tuple[int, int, int, int]
Bits = tuple[tuple[str, Any], ...]

# (B, C, T, K): around a tap, 4 and 8 steps of a thread, 16 of a tile, 8 batches of a
# group, filters shorter than, as long as and longer than the row; enough rows for several
# groups of them.
SMALL: tuple[Size, ...] = (
    (1, 1, 1, 1),
    (2, 3, 5, 3),
    (1, 2, 8, 8),
    (3, 1, 7, 12),
    (1, 3, 31, 4),
    (9, 1, 13, 13),
    (1, 1, 33, 33),
    (2, 1, 32, 9),
    (1, 2, 17, 16),
    (1, 1, 70, 40),
    (8, 1, 16, 20),
    (1, 1, 129, 17),
    (2, 2, 11, 1),
    (33, 1, 3, 2),
    (0, 2, 3, 2),
    (2, 0, 3, 2),
    (1, 1, 255, 2),
    (1, 1, 40, 300),
    (4, 2, 9, 8),
    (1, 1, 66, 65),
    (40, 1, 12, 10),
    (1, 1, 1027, 4),
    (2, 2, 80, 20),
    (1, 3, 90, 33),
)

# Whole packs of 16 bytes, for persistent_tensor_cores: more items than SMs in the simulator.
PACKED: tuple[Size, ...] = ((1, 9, 8, 20), (17, 3, 24, 17), (2, 5, 72, 70))

FULL: tuple[Size, ...] = (
    (3, 2, 257, 257),
    (5, 3, 64, 64),
    (2, 2, 255, 33),
    (1, 2, 1023, 4),
    (1, 1, 513, 513),
    (31, 2, 33, 7),
    (4, 1, 300, 1000),
    (2, 3, 130, 128),
    (6, 2, 100, 31),
)

LARGE: tuple[Size, ...] = (
    (9, 1, 600, 600),
    (5, 2, 769, 500),
    (2, 1, 1500, 1500),
    (1, 2, 20_011, 3),
    (2, 40, 513, 8),
    (35, 2, 300, 300),
)

# Around the edges of v6's blocks of 64 steps, its groups and chunks of them, and of v7's
# transforms; B and C of 1; 8 and 16 batches (those of an item) and one more.
EDGES: tuple[Size, ...] = tuple(
    (batches, channels, steps, taps)
    for k, steps in enumerate(
        n + d for n in (64, 128, 192, 256, 512, 768, 1024, 1536, 4096) for d in (-1, 0, 1)
    )
    for batches, channels in (((1, 1), (8, 1), (9, 2), (16, 1), (17, 1))[k % 5],)
    for taps in (steps, (63, 64, 65, 129)[k % 4])
)

# For few_taps: whole packs of 16 bytes along time or, backward, of channels.
FEW_TAPS: tuple[Size, ...] = (
    (2, 1, 8, 2),
    (1, 2, 16, 3),
    (3, 1, 24, 4),
    (1, 4, 8, 5),
    (2, 1, 8, 7),
    (2, 8, 40, 6),
    (1, 16, 24, 8),
    (5, 4, 16, 2),
    (3, 8, 8, 3),
    (1, 8, 56, 4),
    (2, 16, 16, 5),
)

# For contiguous_rows: 2 to 4 taps, rows that begin anywhere in a pack, and of several warps.
CONTIGUOUS: tuple[Size, ...] = (
    (3, 2, 8, 4),
    (1, 3, 9, 2),
    (4, 1, 13, 3),
    (2, 5, 31, 4),
    (1, 1, 129, 4),
    (2, 2, 260, 3),
    (1, 2, 333, 4),
    (5, 3, 10, 2),
)

FILLS = ("normal", "whole")
TRANSFORMS = ("v7", "large_transforms", "spectra")
TENSORS = ("v6", "persistent_tensor_cores")
BY_ROW = (*TENSORS, *TRANSFORMS)  # variants whose error is bounded by the row
FLOATS = ("float16", "bfloat16", "float32", "float64")

# Options, with whether a bias is among the inputs.
TURNS: tuple[tuple[bool, Bits], ...] = (
    (False, ()),
    (True, (("eps", 0.5),)),
    (False, (("layout", "BTC"),)),
    (True, (("activation", "silu"),)),
    (False, (("eps", -0.25), ("activation", "silu"), ("layout", "BTC"))),
    (False, (("precision", "fast"),)),
    (True, (("layout", "BTC"), ("precision", "half"))),
)


def sample(
    backward: bool,
    size: Size,
    dtype: str,
    layouts: tuple[str, ...] = ("C",),
    fill: str = "normal",
    bias: bool = False,
    options: Bits = (),
) -> Sample:
    """One call; the layouts cycle over dy, x, w and bias."""
    b, c, t, k = size
    rows = (b, t, c) if ("layout", "BTC") in options else (b, c, t)
    shapes: list[tuple[int, ...]] = [rows, (c, k)]
    if backward:
        shapes.insert(0, rows)
    if bias:
        shapes.append((c,))
    specs = []
    for i, shape in enumerate(shapes):
        layout = layouts[i % len(layouts)]
        if len(shape) == 1 and layout in ("F", "transposed"):
            layout = "step2"
        specs.append(Spec(shape, dtype, layout, fill))
    return Sample(tuple(specs), options)


# Behind a state: shorter than it, around a tile, many channels, a filter of several tiles.
STATES: tuple[Size, ...] = (
    (2, 3, 1, 4),
    (1, 2, 2, 9),
    (2, 1, 17, 1),
    (1, 3, 33, 2),
    (1, 20, 18, 4),
    (9, 1, 40, 40),
)


def state_samples(dtype: str, small: bool) -> Iterator[Sample]:
    """For ops/test_causal_conv1d_states.py: the last array is the initial_state."""
    for turn, size in enumerate(STATES if small else (*STATES, (2, 17, 300, 33))):
        b, c, _, k = size
        for by_time in (False, True):
            layouts = tuple(LAYOUTS_ND[(turn * step + by_time) % 10] for step in (1, 3, 7))
            options: Bits = (("return_state", True),)
            options += (("layout", "BTC"),) if by_time else (("eps", 0.5),)
            options += (("activation", "silu"),) if turn % 2 else ()
            plain = sample(False, size, dtype, layouts, FILLS[turn % 2], True, options)
            shape = (b, k - 1, c) if by_time else (b, c, k - 1)
            state = Spec(shape, dtype, LAYOUTS_ND[turn % 10], FILLS[turn % 2])
            yield Sample((*plain.arrays, state), options)


def samples(backward: bool, dtype: str, extent: str) -> Iterator[Sample]:
    turn = 0
    small = extent == "small"
    for size in SMALL if small else SMALL + FULL:
        for _ in range(3 if small else 7):
            # Layouts of the arrays and options cycle with different periods.
            layouts = tuple(LAYOUTS_ND[(turn * step + turn // 7) % 10] for step in (1, 3, 7))
            bias, options = TURNS[turn % len(TURNS)]
            yield sample(backward, size, dtype, layouts, FILLS[turn % 2], bias, options)
            turn += 1
    for turn, (b, c, t, k) in enumerate(FEW_TAPS):
        for options in ((), (("activation", "silu"),)):
            yield sample(backward, (b, c, t, k), dtype, bias=turn % 2 == 0, options=options)
            by_time = (*options, ("layout", "BTC"))
            if backward:
                yield sample(True, (b, 4 * c, t, k), dtype, bias=turn % 2 == 0, options=by_time)
    for turn, size in enumerate(CONTIGUOUS):
        for options in ((), (("activation", "silu"),), (("eps", 0.5),)):
            yield sample(
                backward, size, dtype, fill=FILLS[turn % 2], bias=turn % 3 > 0, options=options
            )
    for size in PACKED if dtype in FLOATS[:2] else ():
        for bias in (False, True):
            yield sample(backward, size, dtype, fill=FILLS[bias], bias=bias)
    for size in ((2, 3, 9, 4), (1, 2, 40, 40)):
        yield sample(backward, size, dtype, fill="special")
        yield sample(backward, size, dtype, fill="special", bias=True)


def fewer_channels(s: Sample) -> Sample:
    """A gradient of at most some 8 rows: the rungs give each channel blocks of its own."""
    by_time = ("layout", "BTC") in s.options
    b, *rest = s.arrays[0].shape
    t, c = rest if by_time else rest[::-1]
    most = max(1, 8 // max(b, 1))
    if c <= most:
        return s
    rows = (b, t, most) if by_time else (b, most, t)
    shapes = (rows, rows, (most, s.arrays[2].shape[1]), (most,))
    cut = (replace(spec, shape=shape) for spec, shape in zip(s.arrays, shapes, strict=False))
    return replace(s, arrays=tuple(cut))


def large(backward: bool, dtype: str) -> Iterator[Sample]:
    dtype = dtype if dtype in FLOATS else "float32"  # the binding's tests ask for int32
    for turn, size in enumerate(LARGE):
        bias, options = TURNS[turn]
        layouts = (("C",), ("C", "offset"), ("transposed", "C"))[turn % 3]
        yield sample(backward, size, dtype, layouts, "normal", bias, options)


# ---- bounds ----


def roundings(terms: Any, other: int) -> Any:
    """Roundings of a sum of `terms`: in a block of 256, of the blocks' sums, and `other`."""
    terms = np.asarray(terms)
    return np.minimum(terms, 256) + terms / 64 + other


def largest(rows: Any) -> Any:
    """The largest size of a finite value of each row."""
    return np.where(np.isfinite(rows), np.abs(rows), 0).max(-1, initial=0)[..., None]


def norm(rows: Any) -> Any:
    """The 2-norm of the finite values of each row."""
    return np.sqrt((np.where(np.isfinite(rows), rows, 0) ** 2).sum(-1))[..., None]


class Wide:
    """The arrays of a call in the wide type, and sums of the magnitudes of terms."""

    def __init__(
        self, arrays: list[Any], options: dict[str, Any], backward: bool, rung: str
    ) -> None:
        self.rung = rung
        self.precision = options.get("precision", "fp32")
        self.dtype = arrays[-1].dtype
        self.acc = ref.wide(self.dtype)
        self.inner = np.dtype(np.float64 if self.dtype == np.float64 else np.float32)
        self.u = unit(self.inner)
        self.by_time = options.get("layout") == "BTC"
        self.silu = options.get("activation") is not None
        self.eps = options.get("eps", 0.0)
        dy = arrays[0] if backward else None
        x, w, *more = arrays[1:] if backward else arrays
        self.dy = None if dy is None else self.rows(dy)
        self.x, self.w = self.rows(x), w.astype(self.acc)
        self.bias = more[0].astype(self.acc) if more else None
        self.kept = 0 if len(more) < 2 else more[1].shape[1 if self.by_time else 2]
        if self.kept:  # the rows, with the state before them
            self.x = np.concatenate([self.rows(more[1]), self.x], 2)
        self.terms = np.minimum(np.arange(self.x.shape[2]) + 1, self.w.shape[1])
        self.tiny = smallest(self.inner) * (int(self.terms.max(initial=0)) + 2)

    def rows(self, a: Any) -> Any:
        a = a.astype(self.acc)
        return a.swapaxes(1, 2) if self.by_time else a

    def narrow(self, error: Any, value: Any) -> Any:
        """The error after rounding to the dtype of the result."""
        out = unit(self.dtype) if self.dtype != self.inner else 0
        return error + out * (np.abs(value) + error) + smallest(self.dtype)

    def more(self, a: Any, b: Any, terms: Any, size: Any) -> Any:
        """The error of sums of products of the rows a and b, besides `roundings`.

        v6: tensor cores truncate, in chains of 128 terms or, with 'fast', one chain; float32
        in two parts of 11 bits has a relative error of 2**-22, plus 2**-40 of the row's
        largest value, in one part ('half') 2**-11 and 2**-29.
        TRANSFORMS: a Fourier transform spreads the error evenly over a row.
        """
        if self.rung in TENSORS:
            count = np.asarray(terms)
            floor = count * largest(a) * largest(b)
            if self.dtype.itemsize == 2:
                return (roundings(count, 32)) * self.u * size
            if self.precision == "half":
                return 2.0**-9 * size + 2.0**-27 * floor
            chain = 8 * count if self.precision == "fast" else roundings(count, 32)
            return (chain + 32) * self.u * size + 2.0**-38 * floor
        if self.rung in TRANSFORMS:
            levels = np.log2(2 * max(self.x.shape[2], 2)) + 2
            return 4 * levels * self.u * norm(a) * norm(b)
        return 0

    def before(self) -> tuple[Any, Any]:
        """The value before the activation, and its error bound."""
        value = ref.causal_conv1d(self.x, self.w, self.bias, eps=self.eps)
        bias = None if self.bias is None else np.abs(self.bias)
        size = ref.causal_conv1d(np.abs(self.x), np.abs(self.w), bias, eps=abs(self.eps))
        error = roundings(self.terms, 8) * self.u * size + self.tiny
        return value, error + self.more(self.x, self.w, self.terms, size)

    def gradient(self) -> tuple[Any, Any]:
        """g, and its error bound: silu'' is at most 1/2, rounding is to the dtype."""
        if not self.silu:
            return self.dy, np.zeros_like(self.dy)
        v, error = self.before()
        share = 1 / (1 + np.exp(-v))
        g = self.dy * (share * (1 + v * (1 - share)))
        # The arithmetic of silu' itself: exp of v loses |v| u, and so on.
        inner = (error / 2 + (10 + 2 * np.abs(v) * share) * self.u) * np.abs(self.dy)
        return g, self.narrow(inner, g)


def lag_sums(g: Any, x: Any, taps: int) -> Any:
    dw = np.zeros((x.shape[1], taps), x.dtype)
    for s in range(min(taps, x.shape[2])):
        dw[:, taps - 1 - s] = (g[:, :, s:] * x[:, :, : x.shape[2] - s]).sum((0, 2))
    return dw


def expected(dtype: np.dtype[Any], value: Any, limit: Any, acc: np.dtype[Any]) -> Expected:
    return Expected(dtype, np.ascontiguousarray(value), np.ascontiguousarray(limit, acc))


# ---- expectations ----


def expect_forward(arrays: list[Any], options: dict[str, Any], rung: str) -> Expected | Several:
    """Within the documented bound; silu's slope is at most 1.1, its arithmetic 8 u more."""
    with np.errstate(all="ignore"):
        w = Wide(arrays, options, False, rung)
        value, error = w.before()
        if w.silu:
            value = value / (1 + np.exp(-value))
            error = 1.1 * error + (8 + np.abs(w.before()[0])) * w.u * np.abs(value) + w.tiny
        limit = w.narrow(error, value)
    value, limit = value[:, :, w.kept :], limit[:, :, w.kept :]
    result = expected(w.dtype, w.rows(value), w.rows(limit), w.acc)
    if not options.get("return_state"):
        return result
    last = w.x[:, :, w.x.shape[2] - w.w.shape[1] + 1 :]
    return Several((result, Expected(w.dtype, np.ascontiguousarray(w.rows(last)))))


def expect_backward(arrays: list[Any], options: dict[str, Any], rung: str) -> Several:
    """dx as forward of g; dw and dbias sums over batch and time, each with g's own error."""
    with np.errstate(all="ignore"):
        w = Wide(arrays, options, True, rung)
        g, off = w.gradient()
        turn = slice(None, None, -1)
        taps, batches = w.w.shape[1], w.x.shape[0]
        steps = w.x.shape[2]

        def back(a: Any, filters: Any) -> Any:
            return ref.causal_conv1d(a[:, :, turn], filters)[:, :, turn]

        dx = back(g, w.w)
        size = back(np.abs(g) + off, np.abs(w.w))
        error = roundings(w.terms[turn], 8) * w.u * size + back(off, np.abs(w.w)) + w.tiny
        error = error + w.more(g, w.w, w.terms[turn], size)
        parts = [expected(w.dtype, w.rows(dx), w.rows(w.narrow(error, dx)), w.acc)]

        dw = lag_sums(g, w.x, taps)
        size = lag_sums(np.abs(g) + off, np.abs(w.x), taps)
        terms = batches * np.maximum(steps - np.arange(taps)[turn], 0)
        error = roundings(terms, 40 + batches) * w.u * size + lag_sums(off, np.abs(w.x), taps)
        error = error + smallest(w.inner) * (batches * steps + 2)
        if w.rung in TENSORS:
            shape = (g.shape[1], batches * steps)
            rows = [a.swapaxes(0, 1).reshape(shape) for a in (g, w.x)]
            error = error + w.more(*rows, terms, size)
        else:
            error = error + np.sum(w.more(g, w.x, terms, size), 0)
        parts.append(expected(w.dtype, dw, w.narrow(error, dw), w.acc))

        if w.bias is not None:
            total, size = g.sum((0, 2)), (np.abs(g) + off).sum((0, 2))
            error = roundings(batches * steps, 40) * w.u * size + off.sum((0, 2))
            parts.append(expected(w.dtype, total, w.narrow(error, total), w.acc))
    return Several(tuple(parts))


@functools.lru_cache(maxsize=65536)
def _expect(
    backward: bool, rung: str, specs: tuple[Spec, ...], options: Bits
) -> Expected | Several:
    arrays = [spec.values() for spec in specs]
    judge = expect_backward if backward else expect_forward
    return judge(arrays, dict(options), rung)


def expect(backward: bool, rung: str, s: Sample) -> Expected | Several:
    specs = tuple(
        Spec(a.shape, a.dtype, "stride0" if a.layout == "stride0" else "C", a.fill)
        for a in s.arrays
    )
    exact = set() if rung in TENSORS else {"precision"}  # which the other rungs do not heed
    return _expect(backward, rung, specs, tuple(o for o in s.options if o[0] not in exact))


def floats(backward: bool) -> Iterator[Sample]:
    for dtype in FLOATS:
        for size in ((2, 2, 37, 37), (9, 1, 20, 7), (3, 1, 136, 60), (40, 1, 12, 10)):
            yield sample(backward, size, dtype)
        yield sample(backward, (2, 1, 33, 40), dtype, bias=True, options=TURNS[3][1])
        yield sample(backward, (5, 1, 600, 600), dtype)
        yield sample(backward, (3, 2, 1100, 4), dtype, bias=True)
        yield sample(backward, (3, 5, 130, 4), dtype, bias=True)
        if backward:
            yield sample(True, (4, 8, 40, 8), dtype, options=(("layout", "BTC"),))
    yield sample(backward, (40, 8, 160, 40), "float32")


# ---- error inputs ----


def _x(b: int = 2, c: int = 3, t: int = 5) -> np.ndarray[Any, Any]:
    return np.arange(b * c * t, dtype=np.float32).reshape(b, c, t)


def _w(c: int = 3, k: int = 4) -> np.ndarray[Any, Any]:
    return np.ones((c, k), np.float32)


def common_errors(before: tuple[Any, ...], name: str) -> list[Error]:
    """Errors of both operators; `before` are the arguments in front of x."""

    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: ((*before, *args), kwargs)

    half, double = _x().astype(np.float16), _w().astype(np.float64)
    return [
        Error("w of one dimension", f(_x(), _w()[0]), ValueError,
              r"^w must have 2 dimensions \(C, K\), but it has 1$"),
        Error("w of three dimensions", f(_x(), _x()), ValueError,
              r"^w must have 2 dimensions \(C, K\), but it has 3$"),
        Error("too few channels in w", f(_x(c=4), _w(3)) if not before else f(_x(), _w(2)),
              ValueError, r"^w has [23] channels, x has [34]$"),
        Error("bias of two dimensions", f(_x(), _w(), _w()), ValueError,
              r"^bias must have 1 dimension \(C,\), but it has 2$"),
        Error("too many channels in bias", f(_x(), _w(), np.ones(4, np.float32)), ValueError,
              r"^bias has 4 channels, x has 3$"),
        Error("a filter of length 0", f(_x(), _w(3, 0)), ValueError,
              r"^w has a filter of length 0$"),
        Error("w of another dtype", f(_x(), double), TypeError,
              r"^w has dtype 'float64', x has 'float32': one dtype is wanted$"),
        Error("bias of another dtype", f(_x(), _w(), np.ones(3, np.float16)), TypeError,
              r"^bias has dtype 'float16', x has 'float32': one dtype is wanted$"),
        Error("x of another dtype than w", f(half, _w()), TypeError,
              r"has dtype '.*', x has 'float16'"),
        Error("object w", f(_x(), np.empty((3, 4), object)), TypeError, r"dtype 'object'"),
        Error("no such activation", f(_x(), _w(), activation="relu"), ValueError,
              r"'silu'.*'relu'"),
        Error("no such layout", f(_x(), _w(), layout="TBC"), ValueError,
              r"one of 'BCT', 'BTC'.*'TBC'"),
        Error("no such precision", f(_x(), _w(), precision="tf32"), ValueError,
              r"one of 'fp32', 'fast', 'half'.*'tf32'"),
        Error("eps not a number", f(_x(), _w(), eps="small"), TypeError, r"real number"),
        Error("no such variant", f(_x(), _w(), variant="v99"), ValueError, r"v99"),
        Error("no w", f(_x()), TypeError, r"missing.*'w'"),
        Error("unknown keyword", f(_x(), _w(), axis=2), TypeError, r"axis"),
    ]  # fmt: skip


def segment_errors(before: tuple[Any, ...]) -> list[Error]:
    """Errors of both operators, found before anything runs or by a CPU."""

    def f(segments: Any, b: int = 1, **kwargs: Any) -> Callable[[], Any]:
        arrays = [_x(b)] * len(before) + [_x(b), _w()]
        return lambda: (arrays, {"segments": segments, **kwargs})

    whole = np.array([0, 2, 5], np.int32)
    return [
        Error("segments of floats", f(np.array([0.0, 5.0])), TypeError,
              r"^segments must have dtype 'int32' or 'int64', not 'float64'$"),
        Error("segments of no dimension", f(np.int32(5)), ValueError,
              r"^segments must have 1 dimension, .*, or 2, \(B, T\), but it has 0$"),
        Error("lengths of two batches", f(whole, 2), ValueError, r"one batch, but x has 2$"),
        Error("no lengths", f(whole[:1]), ValueError, r"at least 2 .*, but it has 1$"),
        Error("numbers of other steps", f(np.zeros((1, 4), np.int64)), ValueError,
              r"^segments has shape \(1, 4\), but x calls for \(1, 5\), that is \(B, T\)$"),
    ]  # fmt: skip


def state_errors() -> list[Error]:
    def f(state: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: ((_x(), _w()), {"initial_state": state, **kwargs})

    state = np.zeros((2, 3, 3), np.float32)
    one = np.zeros((2, 5), np.int32)
    return [
        *segment_errors(()),
        Error("a state of two dimensions", f(state[0]), ValueError,
              r"^initial_state must have 3 dimensions \(B, C, K - 1\), but it has 2$"),
        Error("a state of K steps", f(np.zeros((2, 3, 4), np.float32)), ValueError,
              r"^initial_state has shape \(2, 3, 4\), .*\(2, 3, 3\), that is \(B, C, K - 1\)$"),
        Error("a state of another dtype", f(state.astype("f8")), TypeError,
              r"^initial_state has dtype 'float64', x has 'float32': one dtype is wanted$"),
        Error("a state and segments", f(state, segments=one), ValueError,
              r"^segments do not go with initial_state"),
        Error("segments and the last state", f(None, segments=one, return_state=True),
              ValueError, r"^segments do not go with return_state"),
        Error("one out for two results", f(state, return_state=True, out=_x()), TypeError,
              r"out must be a tuple of 2"),
    ]  # fmt: skip


def forward_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = _x()
        return (memory, _w()), {"out": memory}

    whole = np.ones((2, 3, 5), np.int32), np.ones((3, 4), np.int32)
    return [
        *common_errors((), "causal_conv1d"),
        Error("x of two dimensions", f(_x()[0], _w()), ValueError,
              r"^x must have 3 dimensions \(B, C, T\), but it has 2$"),
        Error("x of two dimensions by time", f(_x()[0], _w(), layout="BTC"), ValueError,
              r"^x must have 3 dimensions \(B, T, C\), but it has 2$"),
        Error("no steps", f(_x(t=0), _w()), ValueError, r"^x has no time steps: T is 0$"),
        Error("the channels of the other layout", f(_x(), _w(), layout="BTC"), ValueError,
              r"^w has 3 channels, x has 5$"),
        Error("integers", f(*whole), TypeError, r"'int32'"),
        Error("complex", f(_x().astype("c8"), _w().astype("c8")), TypeError, r"'complex64'"),
        *state_errors(),
        Error("out of the wrong shape", f(_x(), _w(), out=np.zeros((2, 5, 3), np.float32)),
              ValueError, r"\(2, 5, 3\)"),
        Error("out of the wrong dtype", f(_x(), _w(), out=np.zeros((2, 3, 5))), TypeError,
              r"float64"),
        Error("out read-only", f(_x(), _w(), out=readonly((2, 3, 5), np.float32)), ValueError,
              r"read-only"),
        Error("out is x", overlap, ValueError, r"overlap|shares? memory"),
        Error("out not an array", f(_x(), _w(), out=[0.0]), TypeError, r"out"),
        Error("result too large",
              f(np.broadcast_to(np.float32(0), (2**48, 3, 5)), _w()),
              (ValueError, MemoryError), r"too big|allocate"),
    ]  # fmt: skip


def backward_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = _x()
        return (_x(), memory, _w()), {"out": (memory, np.empty((3, 4), np.float32))}

    two = np.empty((2, 3, 5), np.float32), np.empty((3, 4), np.float32)
    return [
        *common_errors((_x(),), "causal_conv1d_backward"),
        *segment_errors((_x(),)),
        Error("dy of two dimensions", f(_x()[0], _x(), _w()), ValueError,
              r"^dy must have 3 dimensions \(B, C, T\), but it has 2$"),
        Error("dy of another shape", f(_x(t=4), _x(), _w()), ValueError,
              r"^dy has shape \(2, 3, 4\), x has \(2, 3, 5\)$"),
        Error("dy of another dtype", f(_x().astype("f8"), _x(), _w()), TypeError,
              r"^dy has dtype 'float64', x has 'float32': one dtype is wanted$"),
        Error("no steps", f(_x(t=0), _x(t=0), _w()), ValueError,
              r"^x has no time steps: T is 0$"),
        Error("out an array", f(_x(), _x(), _w(), out=two[0]), TypeError, r"out"),
        Error("out of three", f(_x(), _x(), _w(), out=(*two, two[0])),
              (TypeError, ValueError), r"out"),
        Error("out of the wrong shape", f(_x(), _x(), _w(), out=two[::-1]), ValueError,
              r"\(3, 4\)"),
        Error("out is x", overlap, ValueError, r"overlap|shares? memory"),
    ]  # fmt: skip


# ---- the update ----

# (N = B, C, L, K, S): one step and a few, more steps than the state has, states that are
# longer than needed, vectors of channels and a few more.
UPDATES: tuple[tuple[int, int, int, int, int], ...] = (
    (1, 1, 1, 1, 0),
    (2, 3, 1, 4, 3),
    (3, 17, 1, 4, 3),
    (2, 16, 5, 3, 7),
    (1, 33, 4, 2, 1),
    (2, 2, 9, 5, 4),
    (1, 20, 3, 40, 39),
    (0, 2, 1, 4, 3),
    (2, 0, 1, 4, 3),
    (1, 300, 2, 4, 6),
    (4, 7, 1, 16, 15),
)


def update_samples(dtype: str, extent: str) -> Iterator[Sample]:
    for turn, (n, c, steps, taps, kept) in enumerate(3 * UPDATES):
        again = turn // len(UPDATES)
        for one in (False, True)[: 1 + (steps == 1)]:
            shapes: list[tuple[int, ...]] = [(n, c, kept), (n, c) if one else (n, c, steps)]
            shapes += [(c, taps), (c,)][: 1 + (turn + again) % 2]
            specs = []
            for i, shape in enumerate(shapes):
                layout = LAYOUTS_ND[(turn * (1, 3, 7, 9)[i] + one + 3 * again) % 10]
                if len(shape) == 1 and layout in ("F", "transposed"):
                    layout = "step2"
                specs.append(Spec(shape, dtype, layout, FILLS[turn % 2]))
            yield Sample(
                tuple(specs), (("eps", 0.5), ("activation", "silu"))[turn % 3 : turn % 3 + 1]
            )
    for size in ((2, 3, 4), (1, 20, 4)):
        state, x, w = size[:2] + (3,), size[:2] + (2,), size[1:]
        yield Sample(tuple(Spec(shape, dtype, "C", "special") for shape in (state, x, w)))


def large_updates(dtype: str) -> Iterator[Sample]:
    dtype = dtype if dtype in FLOATS else "float32"
    for shapes in (((40, 600, 3), (40, 600), (600, 4)), ((3, 700, 5), (3, 700, 30), (700, 3))):
        yield Sample(tuple(Spec(shape, dtype) for shape in shapes))


@functools.lru_cache(maxsize=4096)
def _expect_update(specs: tuple[Spec, ...], options: Bits) -> Several:
    """The last results of causal_conv1d on the state and x, and the last steps of both."""
    state, x, *rest = (spec.values() for spec in specs)
    steps = x if x.ndim == 3 else x[:, :, None]
    row = np.concatenate([state, steps], 2)
    result = expect_forward([row, *rest], dict(options), "")
    assert isinstance(result, Expected)
    assert result.tolerance is not None
    past = row.shape[2] - steps.shape[2]
    y, limit = (a[:, :, past:].reshape(x.shape) for a in (result.value, result.tolerance))
    last = row[:, :, steps.shape[2] :].astype(ref.wide(x.dtype))
    return Several(
        (
            Expected(result.dtype, np.ascontiguousarray(y), np.ascontiguousarray(limit)),
            Expected(result.dtype, np.ascontiguousarray(last)),
        )
    )


def expect_update(s: Sample) -> Several:
    specs = tuple(
        Spec(a.shape, a.dtype, "stride0" if a.layout == "stride0" else "C", a.fill)
        for a in s.arrays
    )
    return _expect_update(specs, s.options)


def update_floats() -> Iterator[Sample]:
    for dtype in FLOATS:
        for n, c, steps, taps, kept in UPDATES:
            if n * c:
                shapes = ((n, c, kept), (n, c, steps), (c, taps))
                yield Sample(tuple(Spec(shape, dtype) for shape in shapes))
    yield Sample(
        tuple(Spec(shape, "float32") for shape in ((30, 400, 3), (30, 400, 2), (400, 4)))
    )


def update_errors() -> list[Error]:
    def f(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return lambda: (args, kwargs)

    def overlap() -> tuple[tuple[Any, ...], dict[str, Any]]:
        memory = np.zeros((2, 3, 5), np.float32)
        return (memory[:, :, :3], _x(t=1), _w()), {"out": (None, memory[:, :, 1:4])}

    state, x, w = np.zeros((2, 3, 3), np.float32), _x(t=1), _w()

    def rows(index: Any) -> Callable[[], Any]:
        return f(state, x, w, state_index=index)

    return [
        Error("no x", f(state), TypeError, r"missing.*'x'"),
        Error("a state of two dimensions", f(state[0], x, w), ValueError,
              r"^state must have the shape \(N, C, S\), but it has 2 dimensions$"),
        Error("x of one dimension", f(state, x[0, :, 0], w), ValueError,
              r"^x must have the shape \(B, C\) or \(B, C, L\), but it has 1 dimension$"),
        Error("w of three dimensions", f(state, x, x), ValueError,
              r"^w must have the shape \(C, K\), but it has 3 dimensions$"),
        Error("a state of another dtype", f(state.astype("f2"), x, w), TypeError,
              r"^state has dtype 'float16', x has 'float32': one dtype is wanted$"),
        Error("a short state", f(state[..., :2], x, w), ValueError,
              r"^state has 2 steps, but filters of 4 taps need 3$"),
        Error("a state of other channels", f(state[:, :2], x, w), ValueError,
              r"^state has 2 channels, x has 3$"),
        Error("bias of other channels", f(state, x, w, np.ones(4, np.float32)), ValueError,
              r"^bias has 4 channels, x has 3$"),
        Error("a state of other rows", f(state[:1], x, w), ValueError,
              r"^state has 1 rows, x has 2: state_index says which row of state each"),
        Error("no steps", f(state, x[..., :0], w), ValueError,
              r"^x has no time steps: L is 0$"),
        Error("a filter of length 0", f(state, x, w[:, :0]), ValueError,
              r"^w has a filter of length 0$"),
        Error("an index of floats", rows(np.zeros(2)), TypeError,
              r"^state_index must have dtype 'int32' or 'int64', not 'float64'$"),
        Error("an index of other rows", rows(np.zeros(3, np.int32)), ValueError,
              r"^state_index has 3 elements, x has 2 rows$"),
        Error("integers", f(*(a.astype("i4") for a in (state, x, w))), TypeError, r"'int32'"),
        Error("one out", f(state, x, w, out=x), TypeError, r"out must be a tuple of 2"),
        Error("out overlaps the state", overlap, ValueError, r"overlap|shares? memory"),
        Error("no such activation", f(state, x, w, activation="relu"), ValueError,
              r"'silu'.*'relu'"),
    ]  # fmt: skip


def update_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    state = np.array([[[1, 2]], [[0, 1]]], np.float32)
    x, w = np.array([[3], [2]], np.float32), np.array([[100, 10, 1]], np.float32)
    y = np.array([[123], [12]], np.float32)
    return (state, x, w), {}, (y, np.array([[[2, 3]], [[1, 2]]], np.float32))


def update_heavy() -> tuple[Any, ...]:
    shapes = (64, 1024, 3), (64, 1024), (1024, 4)
    return tuple(np.ones(shape, np.float32) for shape in shapes)


# ---- the table ----


def forward_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.array([[[1, 2, 3, 4]], [[0, 1, 0, -1]]], np.float32)
    w = np.array([[100, 10, 1]], np.float32)
    want = np.array([[[1.5, 12.5, 123.5, 234.5]], [[0.5, 1.5, 10.5, 99.5]]], np.float32)
    return (x, w), {"eps": 0.5}, want


def backward_valid() -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    x = np.array([[[1, 2, 3]], [[0, 1, 0]]], np.float32)
    w = np.array([[10, 1]], np.float32)
    dy = np.array([[[1, 0, 2]], [[0, 0, 1]]], np.float32)
    dx = np.array([[[1, 20, 2]], [[0, 10, 1]]], np.float32)
    return (dy, x, w), {}, (dx, np.array([[5, 7]], np.float32))


def forward_heavy() -> tuple[Any, ...]:
    return np.ones((1, 1024, 64), np.float32), np.ones((1024, 64), np.float32)


def backward_heavy() -> tuple[Any, ...]:
    x, w = forward_heavy()
    return x, x, w


ENTRIES = {
    "causal_conv1d": Entry(
        samples=functools.partial(samples, False),
        large=functools.partial(large, False),
        expect=functools.partial(expect, False, ""),
        bounds={rung: functools.partial(expect, False, rung) for rung in BY_ROW},
        errors=forward_errors,
        valid=forward_valid,
        heavy=forward_heavy,
        floats=functools.partial(floats, False),
    ),
    "causal_conv1d_backward": Entry(
        samples=functools.partial(samples, True),
        large=functools.partial(large, True),
        fewer=fewer_channels,
        like_rungs=("persistent_tensor_cores", "one_cluster"),
        expect=functools.partial(expect, True, ""),
        bounds={rung: functools.partial(expect, True, rung) for rung in BY_ROW},
        errors=backward_errors,
        valid=backward_valid,
        heavy=backward_heavy,
        floats=functools.partial(floats, True),
    ),
    "causal_conv1d_update": Entry(
        samples=update_samples,
        large=large_updates,
        expect=expect_update,
        errors=update_errors,
        valid=update_valid,
        heavy=update_heavy,
        floats=update_floats,
    ),
}
