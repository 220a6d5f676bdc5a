"""Experiments: timing, ceilings, rooflines, comparisons with what else is installed.

In a notebook, start with `gpuopt.lab.bench.compare("reduce")`, or with a kernel of your own:
`gpuopt.lab.kernel(source)`, after `%load_ext gpuopt.lab` the cell magic `%%cuda`.
`import gpuopt` imports nothing from here, and only this package imports torch, cupy or
matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuopt.lab.own import CompileError, KernelFault, Program, empty

__all__ = ["CompileError", "KernelFault", "empty", "kernel"]


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
    if name in __all__:
        from gpuopt.lab import own

        return getattr(own, name)
    raise AttributeError(f"module 'gpuopt.lab' has no attribute '{name}'")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpuopt.lab` adds the cell magic %%cuda."""
    from gpuopt.lab.magic import register

    register(shell)
