"""`python -m benchmarks.fixed_cost`: what a small call costs, between events and from Python.

Order: the rows, the two clocks, the tables.  1,000 and 100,000 float32 elements on a GPU, where
the call itself takes the time: our function on torch's tensors and on device arrays of gpuopt,
beside torch and CuPy.  Between events counts the GPU's time with cold caches; from Python is
the time of the call and of waiting for its result, with warm ones.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gpuopt
from gpuopt._table import Table
from gpuopt.benchmarks import beside
from gpuopt.benchmarks.sweep import index_add, scatter_add
from gpuopt.lab import sweep
from gpuopt.lab.arrays import Arrays
from gpuopt.lab.drawing import Case, Dice
from gpuopt.lab.turns import Turns, medians, rotated

LABELS = ("call", "elements")
ELEMENTS = (1_000, 100_000)
DEVICE_ARRAY = "gpuopt DeviceArray"
ROUNDS = 41


# ---- the rows ----


def items(dice: Dice) -> Iterator[beside.Item]:
    """Yield every row; on a CPU those of 1,000 elements."""
    for n in ELEMENTS[:1] if dice.small else ELEMENTS:
        for call, make in CALLS.items():
            yield beside.Item({"call": call, "elements": n}, functools.partial(make, dice, n))


def adding(dice: Dice, n: int, **options: Any) -> Case:
    """Return n random additions into n elements."""
    lib = dice.lib
    x, source = lib.zeros((n,), "float32"), dice.array((n,), "float32")
    index = dice.index(n, n, "uniform")
    return Case(
        name=f"{n}",
        dtype="float32",
        function="index_add",
        args=(x, index, source),
        options=options,
        peer="index_add",
        given={
            "x": x,
            "index": index,
            "source": source,
            "deterministic": options.get("deterministic", False),
            "in_place": False,
        },
        reference=lambda: index_add.sums(lib, index, source, n, 1),
        nbytes=source.nbytes + index.nbytes + 2 * x.nbytes,
    )


def scattering(dice: Dice, n: int) -> Case:
    """Return n values summed at n / 10 random places."""
    lib, size = dice.lib, n // 10
    index, values = dice.index(n, size, "uniform"), dice.array((n,), "float32")
    return Case(
        name=f"{n}",
        dtype="float32",
        function="scatter_add",
        args=(values, index, size),
        options={},
        peer="scatter_add",
        given={"values": values, "index": index, "size": size, "deterministic": False},
        reference=lambda: scatter_add.sums(lib, values, index, size),
        nbytes=values.nbytes + index.nbytes + 4 * size,
    )


def summing(dice: Dice, n: int) -> Case:
    """Return the sum of n elements."""
    lib, x = dice.lib, dice.array((n,), "float32")
    return Case(
        name=f"{n}",
        dtype="float32",
        function="reduce",
        args=(x,),
        options={},
        peer="reduce",
        given={"x": x, "op": "sum", "axis": None},
        reference=lambda: lib.wide(x).sum(),
        nbytes=x.nbytes,
        scale=float(abs(lib.wide(x)).sum()),
    )


def plus(dice: Dice, n: int) -> Case:
    """Return the sum of two arrays."""
    lib, x, y = dice.lib, *(dice.array((n,), "float32") for _ in range(2))
    return Case(
        name=f"{n}",
        dtype="float32",
        function="add",
        args=(x, y),
        options={},
        peer="elementwise",
        given={"name": "add", "operands": (x, y)},
        reference=lambda: lib.wide(x) + lib.wide(y),
        nbytes=3 * x.nbytes,
    )


CALLS: dict[str, Callable[[Dice, int], Case]] = {
    "index_add": adding,
    "index_add mode='clip'": functools.partial(adding, mode="clip"),
    "index_add deterministic": functools.partial(adding, deterministic=True),
    "scatter_add": scattering,
    "reduce": summing,
    "add": plus,
}


# ---- the two clocks ----


class TwoClocks(Turns):
    """Turns, and after them the same calls from Python: call and wait, in turns."""

    from_python: Mapping[str, float] = {}

    def run(self, calls: Mapping[str, Callable[[], Any]], nbytes: int) -> dict[str, float]:
        """Return the medians of Turns; `from_python` has the others, in milliseconds."""
        found = super().run(calls, nbytes)
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for done in range(ROUNDS):
            for name in rotated(list(calls), done):
                self.clock.wait()
                start = time.perf_counter_ns()
                calls[name]()
                self.clock.wait()
                samples[name].append((time.perf_counter_ns() - start) * 1e-6)
        self.from_python = medians(samples)
        return found


def rivals(names: Sequence[str]) -> sweep.Rivals:
    """Return the peers' calls, and on a GPU ours on device arrays beside them."""
    libraries = sweep.libraries(names)

    def of_case(case: Case, lib: Arrays, row: beside.Row) -> dict[str, Any]:
        found = dict(libraries(case, lib, row))
        if lib.device == "cuda":
            args = (moved(lib, value) for value in case.args)
            call = functools.partial(getattr(gpuopt, case.function), *args, **case.options)
            found[DEVICE_ARRAY] = call, lambda result: result
        return found

    return of_case


def moved(lib: Arrays, value: Any) -> Any:
    """Return an array of the GPU as one of gpuopt's own."""
    if not hasattr(value, "__dlpack__"):
        return value
    host = value.get() if lib.name == "cupy" else value.cpu().numpy()
    return gpuopt.asdevice(host, backend="cuda")


def measure(case: Case, lib: Arrays, rivals_: sweep.Rivals, clock: TwoClocks) -> beside.Row:
    """Check and time a case with both clocks; its best peers are other libraries'."""
    clock.from_python = {}
    row = beside.checked(case, lib, rivals_, clock)
    row["from_python"] = dict(clock.from_python)
    row["device_array_ms"] = row["peers"].pop(DEVICE_ARRAY, None)
    if row.get("ms") is not None and row["peers"]:
        row.update(sweep.compared(row["ms"], row["peers"]))
    return row


BENCH = beside.Benchmark(
    "fixed_cost", LABELS, items, ("torch", "cupy"), rivals, measure, TwoClocks
)


# ---- the tables ----

HEADING = """\
## Fixed costs
Microseconds of small calls on arrays of a GPU, as `python -m benchmarks.fixed_cost` times them:
ours on torch's tensors and on `gpuopt.DeviceArray`, torch's and CuPy's own. Between events is
the GPU's time, caches cold; from Python is the time of the call and of waiting for its result,
caches warm. `index_add` checks an index and waits for that: a tensor of torch once, until it
changes, a DeviceArray in every call. torch and CuPy do not raise."""


def section() -> str:
    """Return the tables; nothing before a whole run is committed."""
    return beside.section(HEADING, beside.kept(BENCH.name), parts)


def parts(run: beside.Run) -> Iterator[str]:
    """Yield a table for each clock."""
    yield "Between events, us:"
    yield Table(line(row, between_events(row)) for row in run["rows"]).markdown()
    yield "From Python, us:"
    yield Table(line(row, row["from_python"]) for row in run["rows"]).markdown()


def between_events(row: beside.Row) -> dict[str, float]:
    """Return the times of a row by the names that the other clock has."""
    own = {"gpuopt": row.get("ms"), DEVICE_ARRAY: row["device_array_ms"]}
    return {name: took for name, took in (own | row["peers"]).items() if took is not None}


def line(row: beside.Row, times: Mapping[str, float]) -> dict[str, Any]:
    """Return a row of a table: a column for each library, its fastest way."""

    def us(library: str) -> float | None:
        best = beside.best_of({"peers": times}, library)
        return None if best is None else 1e3 * best

    return {
        "call": row["call"],
        "elements": f"{row['elements']:,}",
        "ours": us("gpuopt"),
        "ours, DeviceArray": us(DEVICE_ARRAY),
        "torch": us("torch"),
        "CuPy": us("cupy"),
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure every row."""
    return beside.main(BENCH, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
