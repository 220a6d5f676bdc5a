"""The example programs that need no torch, on NumPy's arrays and, with CuPy, on a GPU's."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Child

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
equalise = importlib.import_module("equalise")
sys.path.remove(str(EXAMPLES))


def spread(image: np.ndarray) -> np.ndarray:
    """Equalisation as NumPy writes it."""
    counts = np.bincount(image.ravel(), minlength=256)
    middle = np.cumsum(counts) - counts + counts // 2
    return (middle * 255 // image.size).astype(np.uint8)[image]


def libraries() -> list[Any]:
    return list({module.__name__: module for module in (np, equalise.arrays())}.values())


@pytest.mark.parametrize("xp", libraries(), ids=lambda xp: xp.__name__)
@pytest.mark.parametrize("shape", [(1, 1), (7, 9), (64, 63)])
def test_equalise(xp: Any, shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).gamma(2, 12, shape).clip(0, 255).astype(np.uint8)
    got = equalise.equalise(xp.asarray(image))
    assert isinstance(got, xp.ndarray)
    host = got if xp is np else got.get()
    assert host.dtype == np.uint8
    np.testing.assert_array_equal(host, spread(image))


def test_the_program_runs(child: Child) -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    printed = child(code, arguments=(str(EXAMPLES / "equalise.py"),)).stdout
    assert printed.startswith(f"{equalise.arrays().__name__}: mean 23.5 -> 127.0 of 255")
