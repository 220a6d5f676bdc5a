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
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np

import gpuopt

CASES, KILLED = 500, 20
FIRST_KILLED = 10_000  # the seeds of the calls whose worker dies
RESULT = Path(__file__).with_suffix(".json")


def bits(y: Any) -> bytes:
    return bytes(np.asarray(y).tobytes())


def differences(seeds: range, folder: str | None = None) -> list[str]:
    """Of each call with an error, or with other bits than in this process, a sentence."""
    import lazy

    found = []
    for seed in seeds:
        case = lazy.drawn(seed)
        here: list[bytes] = []

        def alone(y: Any, here: list[bytes] = here) -> Any:
            got = y.compute(scheduler="synchronous")
            here.append(bits(got))
            return got

        marker = Path(folder or "") / str(seed)
        spread = lazy.drawn(seed, lazy.dying(marker)) if folder else case
        there: list[bytes] = []

        def workers(y: Any, there: list[bytes] = there) -> Any:
            got = y.compute()
            there.append(bits(got))
            return got

        wrong = lazy.problem(case, alone) or lazy.problem(spread, workers)
        if not wrong and here != there:
            wrong = "other bits with two processes"
        if not wrong and folder and case.expected.error is None and not marker.exists():
            wrong = "no worker was killed"
        if wrong:
            found.append(f"{seed} {case}: {wrong}")
    return found


def killed_seeds() -> range:
    """Calls that compute a block, whatever they draw."""
    return range(FIRST_KILLED, FIRST_KILLED + KILLED)


def main() -> int:
    os.environ["GPUOPT_CALIBRATION"] = "off"
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set({"distributed.logging.distributed": "critical"})
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        drawn = differences(range(CASES))
        killed = differences(killed_seeds(), folder)
        deaths = len(list(Path(folder).iterdir()))
    found = {
        "gpuopt": gpuopt.__version__,
        "dask": dask.__version__,
        "processes": 2,
        "cases": CASES,
        "cases_with_the_same_bits": CASES - len(drawn),
        "killed_workers": deaths,
        "cases_with_a_killed_worker": KILLED,
        "of_these_with_the_same_bits": KILLED - len(killed),
    }
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2), *drawn, *killed, sep="\n")
    return 1 if drawn or killed or deaths < KILLED else 0


if __name__ == "__main__":
    sys.exit(main())
