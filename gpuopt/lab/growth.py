"""How the time of a call grows with its size: `scaling("reduce", [2**10, 2**15, 2**20])`.

Order: the table and its plot, the measurement.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import gpuopt
from gpuopt import _core
from gpuopt._table import Table
from gpuopt.lab import plots, run
from gpuopt.lab.timer import Clock, CpuClock, EventClock, device_clock, measure_together

__all__ = ["Scaling", "scaling"]

COLUMNS = ("shape", "bytes", "variant", "chosen", "ms", "95 %", "n", "gbs")


# ---- the table ----


class Scaling(Table):
    """A row per input and variant; a time is shown only if it is known to 5 %."""

    def __init__(self, op: str, rows: Iterable[Mapping[str, Any]], device: str) -> None:
        super().__init__(rows, COLUMNS, title=f"{op} on {device}")

    def _laid_out(self) -> tuple[list[str], list[list[str]], list[bool]]:
        rows = [run.shown(row) for row in self]
        head, lines, right = Table(rows, self.columns)._laid_out()
        return head, lines, [r or name == "ms" for name, r in zip(head, right, strict=True)]

    def plot(self, ax: Any = None) -> Any:
        """Draw time over bytes, with the 95 % intervals; what is unsettled is hollow."""
        ax = plots.new_axes(ax)
        for i, variant in enumerate(dict.fromkeys(row["variant"] for row in self)):
            shade = plots.SHADES[i % len(plots.SHADES)]
            mark = plots.MARKS[i % len(plots.MARKS)]
            rows = [row for row in self if row["variant"] == variant and row["ms"]]
            known = [row for row in rows if plots.row_is_settled(row)]
            ax.plot([r["bytes"] for r in known], [r["ms"] for r in known], f"-{mark}",
                    color=shade, label=variant)  # fmt: skip
            for row in rows:
                if row["low"] is not None:
                    ax.plot([row["bytes"]] * 2, [row["low"], row["high"]], color=shade)
                if row not in known:
                    ax.plot([row["bytes"]], [row["ms"]], mark, color=shade,
                            markerfacecolor="none")  # fmt: skip
        ax.set(xscale="log", yscale="log", ylabel="ms", title=self.title,
               xlabel="bytes that must move; hollow: unsettled")  # fmt: skip
        ax.legend(fontsize="small")
        return ax


# ---- the measurement ----


def clock_of(backend: str) -> Any:
    """Return a clock for a backend: on a GPU torch's or CuPy's, else gpuopt's own."""
    if backend != "cuda":
        return CpuClock()
    try:
        return device_clock()
    except RuntimeError:
        return EventClock()


def _arguments(given: Any) -> tuple[Any, ...]:
    """The arguments that an item of `inputs` stands for."""
    if isinstance(given, int | np.integer):
        return (np.random.default_rng(0).standard_normal(int(given), np.float32),)
    return given if isinstance(given, tuple) else (given,)


def _calls(
    op: str, args: Sequence[Any], variants: Sequence[str], options: Mapping[str, Any]
) -> dict[str, Callable[[], Any]]:
    function = getattr(gpuopt, op)
    return {
        name: functools.partial(
            function, *args, **options, **({} if name == "auto" else {"variant": name})
        )
        for name in variants
    }


def scaling(
    op: str,
    inputs: Iterable[Any],
    *,
    variants: Sequence[str] = ("auto",),
    backend: str | None = None,
    cold: bool = True,
    max_time: float = 1.0,
    repeats: int | None = None,
    clock: Clock | None = None,
    **options: Any,
) -> Scaling:
    """Time an operator over inputs of growing size, its variants in turns.

    Parameters
    ----------
    op : str
        An operator of `gpuopt.ops()`.
    inputs : iterable
        The arguments of each call: a tuple, or one array; a number n stands for n float32.
    variants : sequence of str
        Which to time; 'auto' is gpuopt's choice.
    backend : {'cpu', 'cuda'}, optional
        The default is gpuopt's own default; on a GPU the arrays are there before.
    cold : bool
        Flush the last-level cache (L2 on a GPU) before every repetition.
    max_time : float
        Seconds per input; where times stay unsettled, more.
    repeats : int, optional
        Repeat exactly this many times instead.
    clock : Clock, optional
        An existing clock to use; the default creates one.
    **options
        Passed to the operator, such as axis=1.

    Returns
    -------
    Scaling
        A table with `.plot()`.
    """
    if op not in _core.ops():
        raise ValueError(f"gpuopt has no operator '{op}'; operators: {', '.join(_core.ops())}")
    variants = [variants] if isinstance(variants, str) else list(variants)
    backend = backend or _core.default_backend()
    if backend == "sim":
        raise ValueError("the simulator is not timed; use backend 'cpu' or 'cuda'")
    if reason := _core.backends().get(backend, "there is no such backend"):
        raise RuntimeError(f"backend {backend!r} cannot run: {reason}")
    device = "cuda" if backend == "cuda" else "cpu"
    if clock is None:
        clock = clock_of(backend)
    upload = getattr(clock, "upload", lambda x: x)
    rows = []
    for given in inputs:
        args = [upload(x) if isinstance(x, np.ndarray) else x for x in _arguments(given)]
        plan = _core.plan(op, *args, **options, backend=backend)
        calls = _calls(op, args, variants, {**options, "backend": backend})
        times = measure_together(
            calls, device=device, clock=clock, cold=cold, max_time=max_time,
            min_time=min(0.1, max_time), repeats=repeats,
        )  # fmt: skip
        nbytes = plan["read_bytes"] + plan["written_bytes"]
        for name, timing in times.items():
            row = {"shape": getattr(args[0], "shape", ()), "bytes": nbytes, "variant": name}
            row["chosen"] = plan["variant"] if name == "auto" else None
            row |= run.fields(timing)
            row["gbs"] = run.rounded(nbytes / 1e6 / timing.median)
            rows.append(row)
    return Scaling(op, rows, run.device_name(backend))
