"""Experiments: timing, ceilings, rooflines, comparisons with what else is installed.

In a notebook, start with `gpuopt.lab.bench.compare("reduce")`; with pictures of what a rung
does, `gpuopt.lab.plot_banks("reduce", x, variant="v1")`; or with a kernel of your own:
`gpuopt.lab.kernel(source)`, after `%load_ext gpuopt.lab` the cell magic `%%cuda`.
`import gpuopt` imports nothing from here, and only this package imports torch, cupy or
matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuopt.lab.growth import scaling
    from gpuopt.lab.own import CompileError, KernelFault, Program, empty
    from gpuopt.lab.pictures import plot_banks, plot_blocks, plot_lanes, plot_sectors
    from gpuopt.lab.plots import roofline
    from gpuopt.lab.rungs import diff, explain

__all__ = [
    "CompileError",
    "KernelFault",
    "diff",
    "empty",
    "explain",
    "kernel",
    "plot_banks",
    "plot_blocks",
    "plot_lanes",
    "plot_sectors",
    "roofline",
    "scaling",
]

# The module of each name, imported when it is first used.
_PLACES = {
    "own": ("CompileError", "KernelFault", "empty"),
    "growth": ("scaling",),
    "pictures": ("plot_banks", "plot_blocks", "plot_lanes", "plot_sectors"),
    "plots": ("roofline",),
    "rungs": ("diff", "explain"),
}

# Modules that `gpuopt.lab.NAME` imports; for people, so not those that others are made of.
_MODULES = ("bench", "profile", "puzzles", "report", "sweep", "timer", "trace")


def kernel(source: str) -> Program:
    """Compile the `__global__` functions of CUDA C++ for the simulator.

    Returns an object that runs them: `k = kernel(source)`, then `k[grid, block](x, y, n)`
    on NumPy arrays, `k.profile(grid, block, x, y, n)` for counts by line.  With several
    kernels in the source, `k.name[grid, block](...)`.

    Raises CompileError with the line of the source; KernelFault when a launch is wrong.
    docs/your_own_kernel.md says more.
    """
    from gpuopt.lab.own import Program

    return Program(source)


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"gpuopt.lab.{place}"), name)
    if name in _MODULES:
        return importlib.import_module(f"gpuopt.lab.{name}")
    raise AttributeError(f"module 'gpuopt.lab' has no attribute '{name}'")


def __dir__() -> list[str]:
    own = (name for name in globals() if name.startswith("__"))
    return sorted({*own, *__all__, *_MODULES, "load_ipython_extension"})


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpuopt.lab` adds the cell magic %%cuda."""
    from gpuopt.lab.magic import register

    register(shell)
