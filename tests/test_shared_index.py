"""Index arrays that change while a call reads them: no write outside of the arrays.

Order: the children's code, an index in the memory of the result, an index that another
thread writes.  A call runs without the GIL on the caller's array, so an index may change
between its check and its use.  An out-of-bounds write may crash the process, so each case
runs in a child process.
"""

from __future__ import annotations

import json

import pytest
from conftest import Child

from gpuopt import _core

# Shared by the calls: one function for each operator that takes indices.
CALLS = """
import json, mmap, os, sys, threading
import numpy as np
import gpuopt

FAR = 1 << 40  # elements: no process has that much behind an array

def index_add(index, variant, out=None, inner=()):
    x = np.full((1000, *inner), FAR, np.int64)
    source = np.ones((index.size, *inner), np.int64)
    return gpuopt.index_add(x, index, source, out=out, backend="cpu", variant=variant)

def scatter_add(index, variant, out=None):
    values = np.ones(index.size, np.int64)
    return gpuopt.scatter_add(values, index, index.size, out=out, backend="cpu",
                              variant=variant)

def pool(op, axes, index, variant, out=None):
    ones = (1,) * (axes - 1)
    dy = np.full((1, *ones, index.size), 1e300)  # as an integer past all memory
    out = None if out is None else out.reshape(dy.shape)
    return getattr(gpuopt, op)(dy, index.reshape(dy.shape), dy.shape, out=out,
                               backend="cpu", variant=variant)

def max_pool1d_backward(index, variant, out=None):
    return pool("max_pool1d_backward", 2, index, variant, out)

def max_pool2d_backward(index, variant, out=None):
    return pool("max_pool2d_backward", 3, index, variant, out)

def max_pool3d_backward(index, variant, out=None):
    return pool("max_pool3d_backward", 4, index, variant, out)
"""

INDEXED = (
    "index_add",
    "scatter_add",
    "max_pool1d_backward",
    "max_pool2d_backward",
    "max_pool3d_backward",
)


def cases() -> list[tuple[str, str]]:
    return [
        (op, row["name"])
        for op in INDEXED
        for row in _core.variants(op)
        if row["backend"] == "cpu" and row["available"]
    ]


def test_every_operator_that_takes_indices_is_here() -> None:
    """By the names of its arguments."""
    found = {
        op
        for op in _core.ops()
        for arg in _core.describe(op)["args"]
        if arg["name"] in ("index", "indices")
    }
    assert found == set(INDEXED)


# ---- an index in the memory of the result ----


ALIAS = """
# One piece of memory at two addresses, which no look at addresses can see.  Writing the
# result writes the index, to numbers that are far outside: no clock, no second thread.
file = os.memfd_create("index")
op, variant = sys.argv[1:]
outcomes = []
os.truncate(file, 8 * 1001)
for n in (2, 5, 64, 999, 1000):
    index = np.frombuffer(mmap.mmap(file, 8 * 1001), np.int64)[:n]
    kind = np.float64 if "pool" in op else np.int64
    result = np.frombuffer(mmap.mmap(file, 8 * 1001), kind)[1:]  # the first is index[1]
    result = result if op == "index_add" else result[:n]
    # the last three are read after the first block of indices has been used
    for value in (0, n - 1, -1, n // 2, n * 2 // 3, n * 7 // 8):
        index[:] = value
        try:
            globals()[op](index, variant, out=result)
            outcomes.append("done")
        except IndexError:
            outcomes.append("refused")
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize(("op", "variant"), cases())
def test_an_index_in_the_memory_of_the_result(op: str, variant: str, child: Child) -> None:
    done = child(CALLS + ALIAS, arguments=(op, variant))
    outcomes = json.loads(done.stdout)
    assert len(outcomes) == 30
    if op != "scatter_add":  # which writes its result after it has read all indices
        assert outcomes.count("refused") >= 5


# ---- an index that another thread writes ----


THREAD = """
op, variant = sys.argv[1:]
index = np.zeros(100_000, np.int64)
done = threading.Event()

def write():
    while not done.is_set():
        index[-5000:] = FAR
        index[-5000:] = 0

thread = threading.Thread(target=write)
thread.start()
outcomes = {"done": 0, "refused": 0}
try:
    for turn in range(60):
        more = {"inner": (8,)} if op == "index_add" and turn % 2 else {}
        try:
            globals()[op](index, variant, **more)
            outcomes["done"] += 1
        except IndexError:
            outcomes["refused"] += 1
finally:
    done.set()
    thread.join()
index[:] = 0
globals()[op](index, variant)
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize(("op", "variant"), cases())
def test_an_index_that_another_thread_writes(op: str, variant: str, child: Child) -> None:
    done = child(CALLS + THREAD, arguments=(op, variant))
    assert sum(json.loads(done.stdout).values()) == 60
