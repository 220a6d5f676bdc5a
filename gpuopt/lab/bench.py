"""For notebooks: compare() times an operator's variants beside its peers.

See timer.py for the timing, run.py for the benchmark run that compare() starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuopt.lab import run
from gpuopt.lab.timer import Timing, measure, measure_together

__all__ = ["Timing", "compare", "measure", "measure_together"]


def compare(
    op: str,
    workloads: Sequence[str] | None = None,
    *,
    dtype: str | None = None,
    backend: str | None = None,
    variants: str | Sequence[str] = "all",
    against: Sequence[str] | None = None,
    max_time: float = 1.0,
    progress: bool | None = None,
) -> run.Result:
    """Time an operator's variants beside the installed peers, checked and interleaved.

    Parameters
    ----------
    op : str
        An operator of `gpuopt.ops()`.
    workloads : sequence of str, optional
        Names such as 'sum 2^20'; the default is the operator's list for the backend.
    dtype : str, optional
        Only that dtype.  A workload named here need not be in the operator's list;
        its dtype is then this one, or 'float32'.
    backend : {'cpu', 'cuda'}, optional
        The default is gpuopt's own default.
    variants : 'all', 'auto' or a sequence of names
        Which rungs to time.
    against : sequence of str, optional
        Peers by name; the default is every installed one.
    max_time : float
        Seconds per workload; where times stay unsettled, more.
    progress : bool, optional
        Show progress; the default does so on a terminal.

    Returns
    -------
    Result
        A table of rows with `.plot()`, `.roofline()` and `.to_json()`.  A time whose
        median is not known to 5 % (95 % interval) is shown as "unsettled".
    """
    return run.run(
        [op],
        backend=backend,
        names=workloads,
        dtype=dtype,
        variants=variants,
        against=against,
        max_time=max_time,
        progress=progress,
    )
