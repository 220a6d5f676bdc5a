"""Histogram equalisation of an image that stays where it is, on a GPU with CuPy.

    python examples/equalise.py

A pipeline of three operators: scatter_add counts the grey levels, scan makes the cumulative
distribution of them, and CuPy's indexing looks each pixel up in it.  gpuopt takes and returns
CuPy's arrays, so nothing is copied to the host.  Without CuPy or a GPU, NumPy's arrays go
through the same lines.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

import gpuopt

LEVELS = 256


def equalise(image: Any) -> Any:
    """A uint8 image with its grey levels spread evenly; an array of the same library."""
    levels = image.reshape(-1).astype("int64")
    counts = gpuopt.scatter_add(levels * 0 + 1, levels, LEVELS)
    below = gpuopt.scan(counts, exclusive=True)
    middle = below + counts // 2  # half of a level's own pixels lie below it
    table = (middle * (LEVELS - 1) // image.size).astype("uint8")
    return table[image]


def arrays() -> Any:
    """CuPy if it and a GPU are there, else NumPy."""
    if gpuopt.backends()["cuda"] is None and importlib.util.find_spec("cupy"):
        import cupy

        return cupy
    return np


def main() -> None:
    xp = arrays()
    dark = np.random.default_rng(0).gamma(2, 12, (480, 640)).clip(0, 255).astype("uint8")
    image = equalise(xp.asarray(dark))
    print(f"{type(image).__module__.partition('.')[0]}: mean {dark.mean():.1f}", end=" ")
    print(f"-> {float(image.mean()):.1f} of 255, spread {float(image.std()):.1f}")


if __name__ == "__main__":
    main()
