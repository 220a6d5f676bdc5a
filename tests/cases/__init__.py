"""The test registry: one entry per operator, for all tests that run over the registry.

Order: dtypes, fills (values), layouts (memory), samples, expectations, error inputs, the
table.  The entries of a room are in cases/<room>.py: for each operator a function that
yields samples, one that returns a sample's expected result and error bound, and error
inputs.  See test_contract.py for how a case is run, gpuopt/ref.py for the meaning of an
operator.
"""

from __future__ import annotations

import functools
import importlib
import math
import pkgutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

from gpuopt import _core

# ---- dtypes ----

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def dtype_of(name: str) -> np.dtype[Any]:
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def kind_of(dtype: np.dtype[Any]) -> str:
    """NumPy's kind letter; ml_dtypes registers bfloat16 as 'V'."""
    return "f" if dtype == BFLOAT16 else dtype.kind


def unit(dtype: np.dtype[Any]) -> float:
    """Unit roundoff: half the distance from 1 to the next number."""
    return {
        "bfloat16": 2.0**-8,
        "float16": 2.0**-11,
        "float32": 2.0**-24,
        "complex64": 2.0**-24,
        "float64": 2.0**-53,
        "complex128": 2.0**-53,
    }[dtype.name]


def smallest(dtype: np.dtype[Any]) -> float:
    """The smallest positive number: below it a relative bound is meaningless."""
    real = {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)
    return float(ml_dtypes.finfo(dtype_of(real)).smallest_subnormal)


def determinism(op: str, backend: str, variant: str) -> str:
    """The determinism of a variant: "run-to-run" or "no"."""
    for row in _core.variants(op):
        if (row["backend"], row["name"]) == (backend, variant):
            return str(row["determinism"])
    raise LookupError(variant)


def flushes(backend: str, determinism: str, dtype: str) -> bool:
    """Whether a variant may flush subnormal float32 numbers to 0.

    In PTX, atom.add.f32 on global memory flushes them; the determinism of rungs that use it
    is "no".
    """
    return backend == "cuda" and determinism == "no" and dtype == "float32"


# ---- fills: the values ----

SIZES = (0, 1, 31, 32, 33, 255, 256, 257, 1009, 1023, 1024, 1025, 2**20 + 3)
BIG = 2**20 + 3


def _seed(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


@functools.lru_cache(maxsize=4096)
def values(fill: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A C-contiguous read-only array; the same arguments give the same values.

    normal   full-range integers, normally distributed floats
    whole    small whole numbers: a float sum of 2**20 of them is exact in any order
    factors  up to 12 pairs of factors between 0.5 and 2, else -1 and 1: no product of
             some of them exceeds the range of float16's accumulator; odd integers
    signs    -1 and 1 (and their products with i), or 1 and one 3 if unsigned
    rare     all elements false but one
    common   all elements true but one
    special  normal with nan and both infinities among them
    index k  whole numbers in [-k, k), or in [0, k) if unsigned: positions on an axis
    """
    rng = np.random.default_rng(_seed(fill, dtype, shape))
    target = dtype_of(dtype)
    kind = kind_of(target)
    n = math.prod(shape)
    x: Any
    if fill.startswith("index "):
        reach = int(fill.split()[1])
        x = rng.integers(0 if kind == "u" else -reach, max(reach, 1), n)
    elif fill in ("rare", "common"):
        x = np.full(n, fill == "common", np.int8)
        if n:
            x[rng.integers(n)] = fill == "rare"
    elif kind == "b":
        x = rng.random(n) < 0.5
    elif kind in "iu":
        info = np.iinfo(target)
        if fill == "signs":
            x = rng.choice([1, 1 if kind == "u" else -1], n)
            x[:1] *= 3 if kind == "u" else 1
        elif fill == "whole":
            x = rng.integers(0 if kind == "u" else -8, 9, n)
        else:
            x = rng.integers(info.min, info.max, n, dtype=target, endpoint=True)
            if fill == "factors":
                x |= target.type(1)
    elif fill == "whole":
        x = rng.integers(-8, 9, n)
    elif fill in ("factors", "signs"):
        x = rng.choice([-1.0, 1.0], n)
        pairs = min(12, n // 2) if fill == "factors" else 0
        at = rng.permutation(n)[: 2 * pairs]
        factor = rng.uniform(0.5, 2.0, pairs)
        x[at] *= np.concatenate([factor, 1 / factor])
    else:
        x = rng.standard_normal(n)
        if kind == "c":
            x = x + 1j * rng.standard_normal(n)
        if fill == "special" and n:
            at = rng.integers(0, n, 3)
            x[at] = rng.choice([np.nan, np.inf, -np.inf], 3)
    if kind == "c" and fill == "whole":
        x = x + 1j * rng.integers(-8, 9, n)
    if kind == "c" and fill in ("factors", "signs"):
        x = x * rng.choice([1, 1j], n)
    array = np.asarray(x).astype(target).reshape(shape)
    array.flags.writeable = False
    return array


# ---- layouts: the arrangement in memory ----

LAYOUTS_1D = (
    "C",
    "step2",
    "negative",
    "stride0",
    "offset",
    "unaligned",
    "readonly",
    "swapped",
)
LAYOUTS_ND = (
    "C",
    "F",
    "step2",
    "negative",
    "transposed",
    "stride0",
    "offset",
    "unaligned",
    "readonly",
    "swapped",
)


def lay_out(layout: str, source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array equal to `source` (stride0: to its first slice) in another memory layout."""
    shape, dtype = source.shape, source.dtype
    if layout == "C":
        return source.copy()
    if layout == "readonly":
        x = source.copy()
        x.flags.writeable = False
        return x
    if layout == "F":
        return np.asfortranarray(source)
    if layout == "transposed":
        order = (*range(1, source.ndim), 0)
        return np.transpose(source, order).copy().transpose(np.argsort(order))
    if layout == "channels_last":  # of (N, C, ...)
        order = (0, *range(2, source.ndim), 1)
        return np.transpose(source, order).copy().transpose(np.argsort(order))
    if layout == "swapped":
        if dtype == BFLOAT16:  # has no other byte order
            return source.copy()
        return source.astype(dtype.newbyteorder())
    if layout == "stride0":
        return np.broadcast_to(source[:1].copy(), shape) if source.size else source.copy()
    if layout == "offset":
        x = np.empty(source.size + 1, dtype)[1:].reshape(shape)
    elif layout == "unaligned":
        raw = np.empty(source.nbytes + 1, np.uint8)
        x = raw[1:].view(dtype).reshape(shape)
    elif layout == "step2":
        x = np.empty(tuple(2 * s for s in shape), dtype)[(slice(None, None, 2),) * len(shape)]
    elif layout == "negative":
        x = np.empty(shape, dtype)[(slice(None, None, -1),) * len(shape)]
    else:
        raise ValueError(f"no layout {layout!r}")
    x[...] = source
    return x


# ---- samples ----


@dataclass(frozen=True)
class Spec:
    """One input array."""

    shape: tuple[int, ...]
    dtype: str
    layout: str = "C"
    fill: str = "normal"

    def values(self) -> np.ndarray[Any, Any]:
        """The values of the array, C-contiguous and in native byte order."""
        source = values(self.fill, self.dtype, self.shape)
        if self.layout == "stride0" and source.size:
            return np.broadcast_to(source[:1], self.shape)
        return source

    def build(self) -> np.ndarray[Any, Any]:
        return lay_out(self.layout, values(self.fill, self.dtype, self.shape))


@dataclass(frozen=True)
class Sample:
    """One call: input arrays and options; hashable, so that its result is cached."""

    arrays: tuple[Spec, ...]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def elements(self) -> int:
        return sum(math.prod(a.shape) for a in self.arrays)

    def __str__(self) -> str:
        parts = [f"{a.dtype}{list(a.shape)} {a.layout} {a.fill}" for a in self.arrays]
        return ", ".join(parts + [f"{k}={v!r}" for k, v in self.options])


# ---- expectations ----


@dataclass(frozen=True)
class Expected:
    """A result, in a wider type than the operator's, and its error bound."""

    dtype: np.dtype[Any]
    value: np.ndarray[Any, Any]
    tolerance: np.ndarray[Any, Any] | None = None  # None: equal
    error: type[BaseException] | None = None
    message: str = ""

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], str]]:
        """What a plan must say of the result."""
        return [(self.value.shape, self.dtype.name)]

    def compare(self, got: Any) -> str | None:
        """None if `got` is correct, else what is wrong.  An unexpected nan is wrong."""
        if not isinstance(got, np.ndarray if self.value.ndim else np.generic):
            return f"a {type(got).__name__} for a result of {self.value.ndim} dimensions"
        if got.dtype != self.dtype or not got.dtype.isnative:
            return f"dtype {got.dtype}, not {self.dtype}"
        if got.shape != self.value.shape:
            return f"shape {got.shape}, not {self.value.shape}"
        a = np.asarray(got)
        if self.tolerance is None and kind_of(self.dtype) in "biu":
            bad = a != self.value
        elif kind_of(self.dtype) == "c":
            assert self.tolerance is not None
            bad = _off(a.real, self.value.real, self.tolerance.real)
            bad = bad | _off(a.imag, self.value.imag, self.tolerance.imag)
        else:
            tolerance = 0 if self.tolerance is None else self.tolerance
            bad = _off(a.astype(self.value.dtype), self.value, tolerance)
        if not bad.any():
            return None
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        limit = "" if self.tolerance is None else f" +- {self.tolerance[at]}"
        return (
            f"{int(bad.sum())} of {bad.size} wrong, first at {at}: "
            f"{a[at]!r}, not {self.value[at]!r}{limit}"
        )


@dataclass(frozen=True)
class Several:
    """The results of an operator with more than one output."""

    parts: tuple[Expected, ...]
    error: None = None
    message: str = ""

    @property
    def outputs(self) -> list[tuple[tuple[int, ...], str]]:
        return [output for part in self.parts for output in part.outputs]

    def compare(self, got: Any) -> str | None:
        if not isinstance(got, tuple) or len(got) != len(self.parts):
            return f"not {len(self.parts)} results: {got!r}"
        for i, (part, item) in enumerate(zip(self.parts, got, strict=True)):
            problem = part.compare(item)
            if problem:
                return f"output {i}: {problem}"
        return None


def each(result: Any) -> tuple[Any, ...]:
    """The arrays of a result: one, or those of a tuple."""
    return result if isinstance(result, tuple) else (result,)


def like(result: Any, make: Callable[[Any], Any]) -> Any:
    """Applies `make` to each array of a result and keeps the form of the result."""
    return tuple(make(a) for a in result) if isinstance(result, tuple) else make(result)


def assert_same(got: Any, want: Any, within: float = 0) -> None:
    """Equal dtypes and values, or values `within` of the largest; one array or tuples."""
    assert isinstance(got, tuple) == isinstance(want, tuple)
    for a, b in zip(each(got), each(want), strict=True):
        assert a.dtype == b.dtype
        if within:
            np.testing.assert_allclose(a, b, rtol=0, atol=within * np.abs(b).max(initial=0))
        else:
            np.testing.assert_array_equal(a, b)


def _off(got: Any, want: Any, tolerance: Any) -> Any:
    """Where `got` is not within `tolerance` of `want`; nan must match nan."""
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(got - want) <= tolerance
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return ~(close & np.isfinite(want) | same)


# ---- error inputs ----


@dataclass(frozen=True)
class Error:
    """A call that must raise; `make` builds new arguments, so a test may compare them."""

    name: str
    make: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    raises: type[BaseException] | tuple[type[BaseException], ...]
    match: str


def readonly(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Read-only zeros: an `out=` that must be refused."""
    out = np.zeros(shape, dtype)
    out.flags.writeable = False
    return out


MOST_ROWS = 12


def fewer_rows(sample: Sample) -> Sample:
    """At most MOST_ROWS rows of the same length: the rungs give each row blocks of its own.

    The number of rows is then the height of the grid, and nothing else of a launch.
    """
    spec, axis = sample.arrays[0], dict(sample.options).get("axis")
    if axis is None:
        return sample
    ndim = len(spec.shape)
    along = {a % ndim for a in ((axis,) if isinstance(axis, int) else axis)}
    across = [i for i in range(ndim) if i not in along]
    if math.prod(spec.shape[i] for i in across) <= MOST_ROWS:
        return sample
    most = {1: (11,), 2: (3, 4), 3: (3, 2, 2)}.get(len(across), (2,) * len(across))
    lengths = list(spec.shape)
    for i, limit in zip(across, most, strict=True):
        lengths[i] = min(lengths[i], limit)
    return replace(sample, arrays=(replace(spec, shape=tuple(lengths)),))


@dataclass(frozen=True)
class Entry:
    samples: Callable[[str, str], Iterator[Sample]]
    """(dtype, extent) to samples; extent 'full', or 'small' for the simulator"""
    large: Callable[[str], Iterator[Sample]]
    """samples above 4,097 elements: one for the simulator"""
    expect: Callable[[Sample], Expected | Several]
    errors: Callable[[], list[Error]]
    valid: Callable[[], tuple[tuple[Any, ...], dict[str, Any], Any]]
    """a call that must work after every error, and its result"""
    heavy: Callable[[], tuple[Any, ...]] | None = None
    """its arrays at 256 kB or more; None: those of `valid`, repeated along axis 0"""
    floats: Callable[[], Iterator[Sample]] = field(default=lambda: iter(()))
    """samples whose bits depend on the order of operations: for determinism"""
    fewer: Callable[[Sample], Sample] = field(default=lambda sample: sample)
    """a sample with fewer blocks of the same kind, for the rungs in the simulator"""
    like_rungs: tuple[str, ...] = ()
    """shape kernels that give each row blocks of its own, as the rungs do"""
    bounds: dict[str, Callable[[Sample], Expected | Several]] = field(default_factory=dict)
    """`expect` of the variants whose error has a bound of its own"""

    def expected(self, sample: Sample, variant: str) -> Expected | Several:
        """What a variant must return."""
        return self.bounds.get(variant, self.expect)(sample)


# ---- the table: what every cases/<room>.py calls ENTRIES ----

ENTRIES: dict[str, Entry] = {}
for _module in pkgutil.iter_modules(__path__):
    ENTRIES.update(importlib.import_module(f"{__name__}.{_module.name}").ENTRIES)
