"""Workloads of partition_reduce: '2^25 bits 0..4', '2^25 bits 1,4,7', '2^25 every second bit'.

Order: the lists, names, the problems, inputs, the check of a result.  The workloads with 32,
1024 and 32768 outputs (bits 0..4, 0..9 and 0..14) are those of the source document's table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuopt.lab.workloads import Array, Problem, dtype_of

READS_ONLY = True

SMALL = (
    ("2^16 bits 0..4", "float64"),
    ("2^20 bits 0..9", "float64"),
    ("2^25 bits 0..4", "float64"),
    ("2^25 bits 0..9", "float64"),
    ("2^25 bits 0..14", "float64"),
    ("2^25 bits 20..24", "float64"),
    ("2^25 bits 10..24", "float64"),
    ("2^25 bits 5..24", "float64"),
    ("2^25 bits 1,4,7,9,13,17,18,21,22,24", "float64"),
    ("2^25 every second bit", "float64"),
    ("2^24 bits 3,7,20 squares", "complex64"),
)

DEMO = ("2^23 bits 0..9", "float64")

TINY = (("2^12 bits 0..4", "float32"), ("2^12 bits 5..9", "float64"))

SMOKE_SIZES = (0, 1, 4, 7, 10, 13, 15)
MANY_SUMS = 15  # log2 of the elements from which all bits but one are kept
WHOLE = "iu"  # NumPy's kinds of dtypes whose results are exact


def bits_of(text: str, n: int) -> tuple[int, ...]:
    """Read '0..4', '1,4,7' or 'every second bit'."""
    if text == "every second bit":
        return tuple(range(0, n, 2))
    found = re.fullmatch(r"bits (\d+)\.\.(\d+)", text)
    if found:
        return tuple(range(int(found[1]), int(found[2]) + 1))
    if re.fullmatch(r"bits \d+(,\d+)*", text):
        return tuple(int(bit) for bit in text.removeprefix("bits ").split(","))
    raise ValueError(f"not a set of bits: {text!r}")


def problem(name: str, dtype: str, rng: np.random.Generator) -> Problem:
    """Build a workload by its name."""
    found = re.fullmatch(r"2\^(\d+) (.*?)( squares)?", name)
    if not found:
        raise ValueError(f"not a workload of partition_reduce: {name!r}")
    n = int(found[1])
    options: dict[str, Any] = {"bits": bits_of(found[2], n)}
    if found[3]:
        options["square"] = True
    x = random(1 << n, dtype, rng)
    return Problem("partition_reduce", name, dtype, (x,), options, judge(x, **options))


def smoke(rng: np.random.Generator) -> Iterator[Problem]:
    """Yield small problems over dtypes, sizes and bits."""
    from gpuopt import ref

    for dtype in ("int32", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        for n in SMOKE_SIZES:
            for turn in range(3):
                kept = n - 1 if n >= MANY_SUMS else int(rng.integers(0, n + 1))
                bits = tuple(int(bit) for bit in rng.permutation(n)[:kept])
                options: dict[str, Any] = {"bits": bits, "square": turn == 2}
                x = random(1 << n, dtype, rng)
                label = f"2^{n} bits {bits} square={turn == 2}"
                check = judge(x, **options, want=ref.partition_reduce(x, **options))
                yield Problem("partition_reduce", label, dtype, (x,), options, check)


def random(size: int, dtype: str, rng: np.random.Generator) -> Array:
    """Return data whose sums neither cancel nor overflow; float16 is centred on 0."""
    kind = dtype_of(dtype)
    if kind.kind in WHOLE:
        return rng.integers(-100, 100, size, dtype=kind, endpoint=True)
    if kind.kind == "c":
        return (rng.random(size) + 1j * rng.random(size)).astype(kind)
    if kind == np.float64:
        return rng.random(size)
    x = rng.random(size, np.float32)
    return x if kind == np.float32 else (x - np.float32(0.5)).astype(kind)


def judge(
    x: Array, bits: tuple[int, ...], square: bool = False, want: Array | None = None
) -> Any:
    """Return the check of a result: a function that returns what is wrong, '' if nothing.

    The error of a sum of m elements is at most m roundings of the sum of their magnitudes, the
    bound of a sum in any order; 16-bit floats are added in float32.
    """
    wide = {"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype)
    if x.dtype.kind in WHOLE:
        wide = np.int64
    terms = x
    if square:
        terms = np.abs(x.astype(wide)) ** 2 if x.dtype.kind == "c" else x.astype(wide) ** 2
    if want is None:
        want = view_sum(terms.astype(wide, copy=False), bits)
    size = want.astype(wide) if square else view_sum(np.abs(terms), bits)
    small = x.dtype.name in ("float64", "complex128")
    terms_each = x.size >> len(bits)

    def check(result: Any) -> str:
        got = np.asarray(result)
        if got.shape != want.shape:
            return f"shape {got.shape}, expected {want.shape}"
        if x.dtype.kind in WHOLE:
            wrong = int(np.count_nonzero(got != want))
            return f"{wrong} of {got.size} values wrong" if wrong else ""
        own = float(np.finfo(got.dtype).eps) / 2
        bound = ((terms_each + 4) * (2.0**-53 if small else 2.0**-24)) * size
        error = np.abs(got.astype(wide) - want.astype(wide))
        with np.errstate(invalid="ignore"):  # a nan is wrong
            wrong = int(np.count_nonzero(~(error <= bound + 2 * own * np.abs(want))))
        if not wrong:
            return ""
        return f"{wrong} of {got.size} values off by up to {np.max(error):.3g}"

    return check


def merged_runs(n: int, bits: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """Return shape, axes to sum and order of the remaining axes, for a view of 2^n elements.

    Neighbouring bits that are summed together, or kept in order, share an axis.  The peers
    compute ``x.reshape(shape).sum(axes).transpose(order)``.
    """
    to = {bit: place for place, bit in enumerate(bits)}
    runs: list[list[int]] = []  # from the highest bit, which is the first axis
    for bit in range(n - 1, -1, -1):
        above = runs[-1][-1] if runs else None
        if above is not None and (
            (above in to) == (bit in to) and (bit not in to or to[above] == to[bit] + 1)
        ):
            runs[-1].append(bit)
        else:
            runs.append([bit])
    shape = [1 << len(run) for run in runs]
    axes = [axis for axis, run in enumerate(runs) if run[0] not in to]
    kept = [run for run in runs if run[0] in to]
    order = sorted(range(len(kept)), key=lambda k: -to[kept[k][0]])
    return shape, axes, order


def view_sum(x: Array, bits: tuple[int, ...]) -> Array:
    """Return the partition sums of x, one merged axis at a time."""
    shape, axes, order = merged_runs(x.size.bit_length() - 1, bits)
    view = x.reshape(shape)
    for gone, axis in enumerate(axes):  # the first is the cheapest in NumPy
        view = view.sum(axis=axis - gone)
    return np.ascontiguousarray(np.transpose(view, order)).reshape(1 << len(bits))
