"""Information about gpuopt: variants, the choice for a call, source, installation."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpuopt import _core
from gpuopt._table import Table


def variants(op: str) -> Table:
    """List the variants of an operator: one row per backend and variant.

    Operators that share a ladder have the same variants; the ladder's name works, too.
    Columns: name, backend, idea, source (the file of its code), dtypes, needs,
    determinism ("run-to-run" or "no"), causal, shape, available, and the reason if it is
    not available.  shape is None for a rung, which takes every call; for a shape kernel it
    says which calls the kernel takes.  gpuopt.explain says which variant `auto` picks, and
    why.  causal is "exact" if later inputs change no bit of earlier results, "to rounding"
    if they can, within the operator's documented bound, and None for operators without a
    time axis.  CUDA rungs are listed under "cuda" and, since the simulator runs them too,
    under "sim".
    """
    rows = []
    room = _core.describe(op)["room"]
    for row in _core.variants(op):
        cpu = row["backend"] == "cpu"
        file = _loops_file(op, row["name"]) if cpu else _kernel_file(op, row["name"])
        rows.append({**row, "source": f"csrc/ops/{room}/{file}"})
    words: tuple[str, ...] = ("determinism",)
    words += ("causal",) if rows[0]["causal"] else ()
    words += ("shape",) if any(row["shape"] for row in rows) else ()
    shown = ("backend", "name", "idea", *words, "available")
    lack = f" ({LACKS})" if lacks_kernels(op) else ""
    return Table(rows, shown=shown, title=f"variants of {op}{lack}")


LACKS = (
    "this build's simulator lacks its kernels; `make build` adds them"  # as csrc/backend/sim.c
)


def lacks_kernels(op: str) -> bool:
    """Tell whether the simulator runs, but was built without an operator: GPUOPT_SIM_ROOMS."""
    if _core.backends()["sim"] is not None:
        return False
    return all(row["backend"] != "sim" for row in _core.variants(op))


def explain(op: str, /, *args: Any, **kwargs: Any) -> Table:
    """Show what `gpuopt.<op>(*args, **kwargs)` would do, without doing it.

    One row: backend and variant, the reason for that variant, the bytes any algorithm must
    read and write, the floating-point operations, and the outputs.  For NumPy arrays on a
    machine with a GPU also cpu_ms and gpu_ms, the estimates by which the backend is chosen
    where none is named: milliseconds on the CPU, and on the GPU with the copies over the bus.
    """
    row = _core.plan(op, *args, **kwargs)
    row = {key: value for key, value in row.items() if value is not None}
    return Table([row], title=f"{op}: {row['backend']} {row['variant']}", vertical=True)


def _source_root() -> Path:
    """The C sources: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "csrc"
    return inside if inside.is_dir() else package.parent / "csrc"


def _part(op: str) -> str:
    """The suffix in the name of a room's second ladder: "backward"; "" for the first."""
    described = _core.describe(op)
    return str(described["ladder"].removeprefix(described["room"]).removeprefix("_"))


def _own_files(op: str, variant: str) -> list[Path]:
    """The files of a rung (at most one per kernel) or of a shape kernel.

    Those of a second ladder begin with its name, unless both ladders share their files.
    Empty if the ladder is in one file.
    """
    room = _source_root() / "ops" / _core.describe(op)["room"]
    part = _part(op)
    alone = bool(part) and (room / f"{part}.cuh").is_file()
    for own in [f"{part}_{variant}"] * bool(part) + [variant] * (not alone):
        shapes = (room / f"shapes/{own}{suffix}" for suffix in (".cu", ".cuh"))
        found = sorted(room.glob(f"ladder/{own}_*.cu*"))
        found = found or [file for file in shapes if file.is_file()][:1]
        if found:
            return found
    return []


def _kernel_file(op: str, variant: str) -> str:
    """The file of a CUDA variant, relative to its room: a rung's or a shape kernel's own.

    Else the file of the whole ladder: cuda.cu, or <part>.cuh for a second ladder.
    """
    room = _source_root() / "ops" / _core.describe(op)["room"]
    for own in _own_files(op, variant):
        return own.relative_to(room).as_posix()
    part = _part(op)
    return f"{part}.cuh" if part and (room / f"{part}.cuh").is_file() else "cuda.cu"


def _loops_file(op: str, variant: str) -> str:
    """<variant>.inc if a CPU variant has loops of its own, else loops.inc."""
    own = f"{variant}.inc"
    room = _source_root() / "ops" / _core.describe(op)["room"]
    return own if variant != "scalar" and (room / own).is_file() else "loops.inc"


def _included(room: Path, name: str, kind: str) -> list[str]:
    """The text of a file of a room, then of those of `kind` that it includes, each once."""
    names, texts = [name], []
    for own in names:
        texts.append((room / own).read_text(encoding="utf-8"))
        found = re.findall(rf'^#include "(\w+\.{kind})"', texts[-1], re.MULTILINE)
        names += [other for other in dict.fromkeys(found) if other not in names]
    return texts


def source(op: str, variant: str) -> str:
    """Return the source text of one variant, as it was compiled.

    For a CUDA rung that is its file, or one file for each of its kernels, and for a shape
    kernel its file.  If a room keeps its ladder in one file, it is the part from the comment
    that names the rung up to the next rung, and the files it includes.  CPU variants share
    the operator's loops.inc; one with loops of its own has them in <variant>.inc.  Either is
    followed by the files it includes.
    """
    names = {row["name"] for row in _core.variants(op)}
    if variant not in names:
        listed = ", ".join(sorted(names))
        lack = f"; {LACKS}" if lacks_kernels(op) else ""
        raise _core.VariantError(
            f"{op}() has no variant '{variant}' (variants: {listed}){lack}"
        )
    room = _source_root() / "ops" / _core.describe(op)["room"]
    if variant in {row["name"] for row in _core.variants(op) if row["backend"] == "cpu"}:
        return "\n".join(_included(room, _loops_file(op, variant), "inc"))
    file = _kernel_file(op, variant)
    if own := _own_files(op, variant):
        return "\n".join(path.read_text(encoding="utf-8") for path in own)
    text = (room / file).read_text(encoding="utf-8")
    start = re.search(rf"^/\*\n \* {variant}  ", text, re.MULTILINE)
    if start is None:
        raise LookupError(f"csrc/ops/{room.name}/{file} has no comment that opens {variant}")
    end = re.compile(r"^/\*\n \* v\d+  |^/\* ---- ", re.MULTILINE).search(text, start.end())
    stretch = text[start.start() : end.start() if end else None].rstrip() + "\n"
    parts = re.findall(r'^#include "(\w+\.cuh)"', stretch, re.MULTILINE)
    return "\n".join([stretch, *((room / name).read_text(encoding="utf-8") for name in parts)])


def profile(op: str, /, *args: Any, variant: str | None = None, **kwargs: Any) -> Any:
    """Count the memory requests, barriers and divergence of CUDA rungs in the simulator.

    Without `variant`, all rungs of the operator side by side; see gpuopt.lab.profile.
    """
    from gpuopt.lab.profile import profile as count

    return count(op, *args, variant=variant, **kwargs)


def _installed(name: str) -> str | None:
    from importlib import metadata  # at the top it would be a third of gpuopt's import time

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def info() -> dict[str, Any]:
    """Describe this installation: versions, build, CPU, GPU, optional packages."""
    from gpuopt import _calibration  # hashlib and tempfile would slow the import

    build = _core.build_info()
    states = {name: reason or "ok" for name, reason in _core.backends().items()}
    simulated = [op for op in _core.ops() if not lacks_kernels(op)]
    if len(simulated) < len(_core.ops()):
        states["sim"] = f"ok, for {', '.join(simulated)} alone"
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
        "backends": states,
        "cpu": {
            "processors": len(os.sched_getaffinity(0)),
            "threads": _core.get_num_threads(),
            "instructions": _core.cpu_isa(),
        },
        "calibration": _calibration.state(),
        "packages": {
            name: _installed(name)
            for name in ("ml_dtypes", "cupy-cuda13x", "torch", "jax", "dask", "matplotlib")
        },
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("GPUOPT_")},
        "executable": sys.executable,
    }
