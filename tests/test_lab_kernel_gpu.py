"""Your own kernel on a GPU: results, errors, times.  Collected if there is a GPU and nvcc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_faults import f32

import gpuopt
from gpuopt import lab
from gpuopt.lab import puzzles as puzzles_module
from gpuopt.lab.own import Program
from gpuopt.lab.puzzles import puzzles


@pytest.fixture(scope="module")
def solutions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        file = Path(puzzles_module.__file__).with_name("puzzle_solutions.cu")
        yield lab.kernel(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("p", puzzles, ids=lambda p: p.name)
def test_an_answer_is_right_on_a_gpu(p: Any, solutions: Program) -> None:
    kernel = solutions.kernels[p.name]
    for case in p.cases():
        values = [
            gpuopt.asdevice(np.asarray(a), backend="cuda") if isinstance(a, np.ndarray) else a
            for a in case.fresh()
        ]
        kernel.launch(case.grid, case.block, *values, shared_bytes=case.shared_bytes)
        for i, expected in case.expected.items():
            np.testing.assert_array_equal(values[i].numpy(), expected)


def test_what_an_array_on_a_gpu_has_to_be(solutions: Program) -> None:
    x = gpuopt.asdevice(f32(8), backend="cuda")
    with pytest.raises(ValueError, match="on the host, another argument on 'cuda'"):
        solutions.add_one[1, 8](x, f32(8), 8)
    with pytest.raises(TypeError, match="takes an array of float32, not of float64"):
        solutions.add_one[1, 8](x, gpuopt.asdevice(np.zeros(8), backend="cuda"), 8)
    with pytest.raises(ValueError, match="C-contiguous"):
        solutions.add_one[1, 4](x[::2], x, 4)
    with pytest.raises(TypeError, match="takes 3 arguments but 1 was given"):
        solutions.add_one[1, 4](x)


def test_a_launch_that_the_gpu_refuses(solutions: Program) -> None:
    x = gpuopt.asdevice(f32(8), backend="cuda")
    with pytest.raises(gpuopt.CudaError, match="add_one: invalid"):
        solutions.add_one[1, 2048](x, x, 8)
    solutions.add_one[1, 8](x, x, 8)  # the next one goes
    np.testing.assert_array_equal(x.numpy(), f32(8) + 1)


def test_a_time(solutions: Program) -> None:
    n = 1 << 20
    x = f32(n)
    timing = solutions.add_one.time(n // 256, 256, x, np.zeros(n, np.float32), n)
    assert timing.min > 0
    assert timing.n > 0
    np.testing.assert_array_equal(x, f32(n))
