"""Drawn calls of gpuopt.dask with two worker processes, of which some are killed in mid-run.

`make beyond` runs it, in the environment of `make test-torch`.  A call must give what the
operator in memory gives, within the bound of the contract, and the bits that it gives in one
thread of this process; so must calls in which a worker is killed while it computes a block.
What was found is written to tests/dask_workers.json.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import dask
import distributed
import lazy
import numpy as np

import gpuopt
import gpuopt.dask as gd

CASES, KILLED = 500, 20
COUNTS: Counter[str] = Counter()
HANG_SECONDS = 600  # a guard, not a measurement
RESULT = Path(__file__).with_suffix(".json")


def bits(y: Any) -> bytes:
    return bytes(np.asarray(y).tobytes())


def difference(seed: int, client: distributed.Client, folder: str | None) -> str | None:
    """None if the call gives the right result and the same bits here and with workers."""
    found: list[bytes] = []

    def here(y: Any) -> Any:
        got = y.compute(scheduler="synchronous")
        found.append(bits(got))
        return got

    def there(y: Any) -> Any:
        got = client.compute(y).result(timeout=HANG_SECONDS)
        found.append(bits(got))
        return got

    case = lazy.drawn(seed)
    marker = Path(folder or "") / str(seed)
    spread = lazy.drawn(seed, lazy.dying(marker)) if folder else case
    wrong = lazy.problem(case, here) or lazy.problem(spread, there)
    if not wrong and len(set(found)) > 1:
        wrong = "other bits with two processes"
    if not wrong and folder and not marker.exists():
        wrong = "no worker was killed"
    COUNTS["cases_that_raise_as_in_memory"] += case.expected.error is not None or not found
    COUNTS["cases_with_several_blocks"] += bool(found) and several(case)
    return f"{seed} {case}: {wrong}" if wrong else None


def several(case: lazy.Drawn) -> bool:
    """Whether an array that the call is given has more than one block."""
    layers = case.lazy().dask.layers
    return any(len(layer) > 2 for name, layer in layers.items() if name.startswith("array-"))


def killed_seeds() -> range:
    """Some elementwise operators, and every other one."""
    first = 300 * len(gd.__all__) + len(gd.__all__) - KILLED
    return range(first, first + KILLED)


def two_workers() -> distributed.LocalCluster:
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )


def main() -> int:
    os.environ["GPUOPT_CALIBRATION"] = "off"
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with two_workers() as cluster, distributed.Client(cluster) as client:
        drawn = [d for s in range(CASES) if (d := difference(s, client, None))]
    counts = dict(COUNTS)
    killed = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in killed_seeds():  # a cluster each: a worker killed while it starts is lost
            with two_workers() as cluster, distributed.Client(cluster) as client:
                killed += [d for d in [difference(seed, client, folder)] if d]
        deaths = len(list(Path(folder).iterdir()))
    found = {
        "gpuopt": gpuopt.__version__,
        "dask": dask.__version__,
        "processes": 2,
        "cases": CASES,
        "as_in_memory_with_the_same_bits": CASES - len(drawn),
        **counts,
        "killed_workers": deaths,
        "cases_with_a_killed_worker": KILLED,
        "of_these_as_in_memory_with_the_same_bits": KILLED - len(killed),
    }
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2), *drawn, *killed, sep="\n")
    return 1 if drawn or killed or deaths < KILLED else 0


if __name__ == "__main__":
    sys.exit(main())
