"""Runs the right kernels of the sm_90a fixtures on a GPU: what the simulator makes of
mbarriers, bulk copies, tensor maps, wgmma and clusters is what the hardware does.

    python tests/gpu/hopper.py        needs nvcc and a GPU with compute capability 9.0

The functions of test_hopper.py compare with NumPy; here their library is one that nvcc made.
How wgmma cuts its sums is not compared: the hardware keeps a few bits more.  Prints a line per
test; exit 1 if one failed.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import test_hopper as hopper  # noqa: E402


class GpuLibrary:
    """One fixture file, compiled by nvcc; has what the tests use of a simulator library."""

    entry = SimpleNamespace(instrumented=False)

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))

    def run(
        self, name: str, x: np.ndarray, out: np.ndarray, n: int = 0, **settings: Any
    ) -> tuple[int, np.ndarray, str]:
        message = ctypes.create_string_buffer(512)
        status = getattr(self.library, name)(
            ctypes.c_void_p(x.ctypes.data), ctypes.c_longlong(x.nbytes),
            ctypes.c_void_p(out.ctypes.data), ctypes.c_longlong(out.nbytes),
            ctypes.c_longlong(n), message,
        )  # fmt: skip
        return status, out, message.value.decode()


def compiled(out: Path) -> dict[str, GpuLibrary]:
    csrc, status = ROOT / "csrc", out / "status.o"
    subprocess.run(
        ["gcc", "-c", "-fPIC", f"-I{csrc}", csrc / "core" / "status.c", "-o", status],
        check=True,
    )
    libraries = {}
    for file in hopper.FILES:
        target = out / f"{file}.so"
        subprocess.run(
            ["nvcc", "-std=c++17", "-arch=sm_90a", f"-I{csrc}", "-Xcompiler", "-fPIC",
             "-shared", "-cudart", "static", hopper.FIXTURES / f"{file}.cu", status, "-o",
             target], check=True,
        )  # fmt: skip
        libraries[file] = GpuLibrary(target)
    return libraries


def calls() -> Iterator[tuple[Callable[..., None], tuple[Any, ...]]]:
    """Each test with its arguments, besides the libraries."""
    for half in ("f16", "bf16"):
        yield hopper.test_products_in_shared_memory, (half,)
        for n in (32, 48, 64):
            yield hopper.test_products_with_a_in_registers, (n, half)
    yield hopper.test_bulk_copies, ()
    yield hopper.test_copies_of_16_bytes, ()
    yield hopper.test_a_pipeline_of_two_buffers, ()
    yield hopper.test_an_mbarrier_of_96_arrivals_that_is_polled, ()
    for rows in (1, 7):
        yield hopper.test_sums_of_bulk_copies, (rows,)
    for name in hopper.BOXES:
        yield hopper.test_boxes_of_tensor_maps, (name,)
    for blocks in (4, 12):
        yield hopper.test_blocks_of_a_cluster_exchange_words, (blocks,)


def main() -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        libraries = compiled(Path(folder))
        for test, arguments in calls():
            said = "passed"
            try:
                test(libraries.__getitem__, *arguments)
            except Exception:
                said = f"FAILED\n{traceback.format_exc()}"
                failed += 1
            print(test.__name__, *arguments, said)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
