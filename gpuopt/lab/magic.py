"""The cell magic `%%cuda`: a cell of CUDA C++ becomes kernels of the notebook.

`%load_ext gpuopt.lab` registers it.
"""

from __future__ import annotations

import keyword
from typing import Any

from gpuopt.lab.own import CompileError, Program


def register(shell: Any) -> None:
    """Add %%cuda to a running IPython."""
    shell.register_magic_function(_Cuda(shell), "cell", "cuda")


class _Cuda:
    """Compile the cell; its kernels get their names in the notebook.

    %%cuda        each kernel by its name: add_one[grid, block](x, n)
    %%cuda name   the program too, under this name: name.add_one[grid, block](x, n)
    """

    __name__ = "cuda"

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, line: str, cell: str) -> None:
        from IPython.core.error import UsageError

        name = line.strip()
        if name and (not name.isidentifier() or keyword.iskeyword(name)):
            raise UsageError(f"%%cuda takes the name of a variable, not '{name}'")
        try:
            program = Program(cell)
        except CompileError as error:  # without the traceback of this function
            raise UsageError(str(error)) from None
        self._shell.push(dict(program.kernels))
        if name:
            self._shell.push({name: program})
        print("\n".join(map(repr, program)))
