"""Runs a few odd-sized cases of every CUDA rung and dtype, for a sanitizer.

`compute-sanitizer --tool memcheck python tests/one_case_each.py [OP...]` prints the number
of calls and exits with 1 if a result is wrong.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cases
from test_contract import run_case, taken

from gpuopt import _core


def chosen(op: str, dtype: str) -> list[cases.Sample]:
    """The longest sample and two of more dimensions, at most 4,097 elements each.

    For operators that share a ladder only the longest: their kernels differ in a functor.
    """
    samples = [s for s in cases.ENTRIES[op].samples(dtype, "small") if 1 < s.elements <= 4097]
    deep = [s for s in samples if len(s.arrays[0].shape) > 1]
    longest = max(samples, key=lambda s: s.elements)
    if _core.describe(op)["ladder"] != op:
        return [longest]
    return [longest, *itertools.islice((s for s in deep if s != longest), 2)]


def main() -> int:
    calls, wrong = 0, []
    for op in sys.argv[1:] or _core.ops():
        for row in _core.variants(op):
            if row["backend"] != "cuda" or not row["available"]:
                continue
            for dtype in row["dtypes"]:
                for sample in taken(op, chosen(op, dtype), "cuda", row["name"]):
                    calls += 1
                    problem = run_case(op, sample, "cuda", row["name"])
                    if problem:
                        wrong.append(problem)
    for problem in wrong[:20]:
        print(problem)
    print(f"{calls} calls, {len(wrong)} wrong")
    return 1 if wrong or calls == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
