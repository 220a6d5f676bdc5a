"""What gpuopt tells about itself: variants, the choice a call makes, source, set-up."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._table import Table


def variants(op: str) -> Table:
    """List the variants of an operator: one row per backend and variant.

    Operators that share a ladder have the same variants; its name does for theirs.
    Columns: name, backend, idea, source (the file of its code), dtypes, needs,
    determinism ("run-to-run" or "no"), causal, available, and the reason if it is not.
    causal is "exact" where later inputs change no bit of earlier results, "to rounding"
    where they can, within the bound that the operator states, and None for operators
    without an order of time.  CUDA rungs are listed under "cuda" and, since the simulator
    runs them too, under "sim".
    """
    rows = []
    room = _core.describe(op)["room"]
    for row in _core.variants(op):
        cpu = row["backend"] == "cpu"
        file = _loops_file(op, row["name"]) if cpu else _kernel_file(op)
        rows.append({**row, "source": f"csrc/ops/{room}/{file}"})
    words = ("determinism", "causal") if rows[0]["causal"] else ("determinism",)
    shown = ("backend", "name", "idea", *words, "available")
    return Table(rows, shown=shown, title=f"variants of {op}")


def explain(op: str, /, *args: Any, **kwargs: Any) -> Table:
    """Say what `gpuopt.<op>(*args, **kwargs)` would do, without doing it.

    One row: backend and variant, why that variant, the bytes any algorithm must read and
    write, its floating-point operations, and the outputs.
    """
    row = _core.plan(op, *args, **kwargs)
    return Table([row], title=f"{op}: {row['backend']} {row['variant']}", vertical=True)


def _source_root() -> Path:
    """The C sources: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "csrc"
    return inside if inside.is_dir() else package.parent / "csrc"


def _kernel_file(op: str) -> str:
    """cuda.cu; for the second ladder of a room, as op_<part>, <part>.cuh if it is there."""
    described = _core.describe(op)
    room = described["room"]
    part = described["ladder"].removeprefix(room).removeprefix("_")
    own = f"{part}.cuh"
    return own if part and (_source_root() / "ops" / room / own).is_file() else "cuda.cu"


def _loops_file(op: str, variant: str) -> str:
    """cpu_<variant>.inc where a CPU variant has loops of its own, else cpu.inc."""
    own = f"cpu_{variant}.inc"
    room = _source_root() / "ops" / _core.describe(op)["room"]
    return own if (room / own).is_file() else "cpu.inc"


def source(op: str, variant: str) -> str:
    """Return the source text of one variant, as it was compiled.

    A CUDA rung is the stretch of its file from the comment that names it to the next
    one, and the files that it includes.  CPU variants share the operator's cpu.inc; one
    with loops of its own has them in cpu_<variant>.inc.  Either is returned whole.
    """
    names = {row["name"] for row in _core.variants(op)}
    if variant not in names:
        listed = ", ".join(sorted(names))
        raise _core.VariantError(f"{op}() has no variant '{variant}' (variants: {listed})")
    room = _source_root() / "ops" / _core.describe(op)["room"]
    if not re.fullmatch(r"v\d+", variant):
        return (room / _loops_file(op, variant)).read_text(encoding="utf-8")
    file = _kernel_file(op)
    text = (room / file).read_text(encoding="utf-8")
    start = re.search(rf"^/\*\n \* {variant}  ", text, re.MULTILINE)
    if start is None:
        raise LookupError(f"csrc/ops/{room.name}/{file} has no comment that opens {variant}")
    end = re.compile(r"^/\*\n \* v\d+  |^/\* ---- ", re.MULTILINE).search(text, start.end())
    stretch = text[start.start() : end.start() if end else None].rstrip() + "\n"
    own = re.findall(r'^#include "(\w+\.cuh)"', stretch, re.MULTILINE)
    return "\n".join([stretch, *((room / name).read_text(encoding="utf-8") for name in own)])


def profile(op: str, /, *args: Any, variant: str | None = None, **kwargs: Any) -> Any:
    """Count what the CUDA rungs of a call ask of the hardware, in the simulator.

    Without `variant`, all rungs of the operator side by side; see gpuopt.lab.profile.
    """
    from gpuopt.lab.profile import profile as count

    return count(op, *args, variant=variant, **kwargs)


def _installed(name: str) -> str | None:
    try:
        return package_version(name)
    except PackageNotFoundError:
        return None


def info() -> dict[str, Any]:
    """Describe this installation: versions, build, CPU, GPU, optional packages."""
    build = _core.build_info()
    states = _core.backends()
    return {
        "gpuopt": build["version"],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "compiler": build["compiler"],
        "cuda": build["cuda"],
        "cuda_archs": build["cuda_archs"],
        "operators": list(_core.ops()),
        "default_backend": _core.default_backend(),
        "backends": {name: reason or "ok" for name, reason in states.items()},
        "cpu": {
            "processors": len(os.sched_getaffinity(0)),
            "threads": _core.get_num_threads(),
            "instructions": _core.cpu_isa(),
        },
        "packages": {
            name: _installed(name)
            for name in ("ml_dtypes", "cupy-cuda13x", "torch", "jax", "dask", "matplotlib")
        },
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("GPUOPT_")},
        "executable": sys.executable,
    }
