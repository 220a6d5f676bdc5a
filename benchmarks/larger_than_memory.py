"""`python -m benchmarks.larger_than_memory`: gpuopt.stream over large files and arrays.

A sparse file of --gb GB with a few planted values is summed, its largest element found, and it
is scanned, into a checksum, and with --write into a file; each result is checked.  --array-gb
does the same with NumPy arrays in memory: the sum and a product with a number, which with
--backend cuda go over the bus both ways, beside CuPy with blocks by hand if it is installed.
--blocks shows the rate by the length of a block, --growth the time by the length of a file,
beside a model of it.  Each row has the report of the call, its peak of memory, and whether the
result is right.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gpuopt
from gpuopt.lab.run import commit, device_name

MIB = 1 << 20
PLANTED = ((0.0, 3), (0.3, 40), (0.5, -7), (1.0, 100))  # place in the file, value

Row = dict[str, Any]
Check = Callable[[Any], bool]


def peak_bytes() -> int:
    """The most memory this process had resident since `reset_peak`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


class Checksum:
    """An out= that keeps the sum of what is written, modulo 2**64, instead of the elements."""

    def __init__(self, length: int) -> None:
        self.shape, self.dtype, self.total = (length,), np.dtype(np.int64), 0

    def __setitem__(self, key: Any, block: Any) -> None:
        self.total = (self.total + int(gpuopt.reduce(block, backend="cpu"))) % 2**64


def row(name: str, check: Check, *call: Any, **options: Any) -> Row:
    """One call of gpuopt.stream, its report, its peak of memory, and whether it is right."""
    reports: list[gpuopt.Report] = []
    reset_peak()
    result = gpuopt.stream(*call, report=reports.append, **options)
    peak = peak_bytes()
    (report,) = reports
    found = {
        "name": name,
        "op": report.op,
        "bytes": report.bytes["read"],
        "seconds": report.elapsed,
        "block_bytes": report.block_bytes,
        "bound": report.bound,
        "stage_seconds": report.seconds,
        "stage_bytes": report.bytes,
        "peak_bytes": peak,
        "right": bool(check(result)),
        "by_time": thinned(report.marks),
    }
    verdict = "right" if found["right"] else "WRONG"
    print(f"{name}: {verdict}, peak {peak / 1e6:.0f} MB\n{report}", flush=True)
    return found


def thinned(marks: tuple[tuple[float, int], ...]) -> list[list[float]]:
    """About 50 of the marks of a report: seconds, and GB read until then."""
    return [[round(s, 3), round(n / 1e9, 3)] for s, n in marks[:: max(len(marks) // 50, 1)]]


def written(head: Row, rows: list[Row]) -> str:
    """The results as JSON, with a line for each call."""
    calls = ",\n  ".join(json.dumps(row) for row in rows)
    return json.dumps(head)[:-1] + f',\n "calls": [\n  {calls}\n ]\n}}\n'


def plant(path: Path, length: int) -> list[tuple[int, int]]:
    """Make a sparse file of int64 and return the places and values that are not 0."""
    found = [(round(part * (length - 1)), value) for part, value in PLANTED]
    with open(path, "wb") as file:
        file.truncate(8 * length)
        for place, value in found:
            file.seek(8 * place)
            file.write(np.int64(value).tobytes())
    return found


def of_files(folder: Path, gb: float, write: bool, options: Row) -> Iterator[Row]:
    """Yield the rows of a file of int64."""
    path, length = folder / "x", int(gb * 1e9) // 8
    planted = plant(path, length)
    source, total = (path, np.int64), sum(value for _, value in planted)
    scanned = sum((length - place) * value for place, value in planted) % 2**64
    yield row("sum of a file", lambda y: y == total, "reduce", source, **options)
    yield row(
        *("argmax of a file", lambda y: y == length - 1, "reduce", source),
        **{"op": "argmax", **options},
    )
    out = Checksum(length)
    yield row(
        *("scan of a file into a checksum", lambda y: y.total == scanned, "scan", source),
        **{"out": out, **options},
    )
    if write:
        where = folder / "y"

        def right(_: Any) -> bool:
            found = gpuopt.stream("reduce", (where, np.int64), progress=False, backend="cpu")
            return int(found) % 2**64 == scanned

        yield row("scan of a file into a file", right, "scan", source, out=where, **options)
        where.unlink()
    path.unlink()


def of_blocks(folder: Path, options: Row) -> Iterator[Row]:
    """Yield the sum of a file in the page cache, by the length of a block."""
    path = folder / "x"
    np.ones(1 << 28, np.float32).tofile(path)
    for mib in (1, 2, 4, 8, 16, 32, 64):
        best: Row = {}
        for _ in range(5):
            found = row(
                *(f"blocks of {mib} MiB", lambda y: y == 2**28, "reduce", (path, "f4")),
                **{**options, "block": mib * MIB},
            )
            best = min(best or found, found, key=lambda r: float(r["seconds"]))
        yield best
    path.unlink()


def of_growth(folder: Path, top: int, options: Row) -> Iterator[Row]:
    """Yield the sum of sparse files of 2**20 to 2**top float32, and the model of its time.

    The model is t0 + bytes / rate, t0 from the smallest file and the rate from 2**30 elements.
    Files that fit into the page cache are read from there.
    """
    path = folder / "x"
    for power in sorted({*range(20, top + 1, 2), top}):
        with open(path, "wb") as file:
            file.truncate(4 << power)
        best: Row = {}
        for _ in range(4 if power <= 31 else 1):
            found = row(f"2^{power}", lambda y: y == 0, "reduce", (path, "f4"), **options)
            best = min(best or found, found, key=lambda r: float(r["seconds"]))
        path.unlink()
        yield best


def with_model(rows: list[Row]) -> list[Row]:
    """Add to each row of `of_growth` what the model says."""
    seconds = {int(r["bytes"]): float(r["seconds"]) for r in rows}
    if 4 << 30 not in seconds:
        return rows
    start = seconds[4 << 20]
    rate = ((4 << 30) - (4 << 20)) / (seconds[4 << 30] - start)
    for r in rows:
        r["model_seconds"] = start + (int(r["bytes"]) - (4 << 20)) / rate
        print(f"{r['name']}: {r['seconds']:.3g} s, by the model {r['model_seconds']:.3g} s")
    return rows


def of_arrays(gb: float, options: Row) -> Iterator[Row]:
    """Yield the rows of a NumPy array, and CuPy's with blocks by hand."""
    x = np.ones(int(gb * 1e9) // 4, np.float32)
    y = np.empty_like(x)
    y.fill(0)
    for _ in range(2):  # the first call makes the device ready
        total = row(
            *("sum of an array", lambda s: s == np.float32(x.size), "reduce", x), **options
        )
    yield total
    yield row(
        *("array times a number", lambda z: z[0] == z[-1] == 2, "multiply", x, 2.0),
        **{"out": y, **options},
    )
    if options["backend"] == "cuda":
        yield from of_bus()
        yield from by_hand(x, y)


def of_bus() -> Iterator[Row]:
    """Yield the rate of the bus from page-locked memory: to the GPU, and both ways at once."""
    try:
        import cupy
    except ImportError:
        return
    nbytes, turns = 1 << 28, 16
    hosts = [cupy.cuda.alloc_pinned_memory(nbytes) for _ in range(2)]
    arrays = [np.frombuffer(host, np.float32, nbytes // 4) for host in hosts]
    there = [cupy.zeros(nbytes // 4, np.float32) for _ in range(2)]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    for ways, name in ((1, "page-locked memory to the GPU"), (2, "both ways at once, each")):
        for repeats in (1, turns):  # the first makes the device ready
            begun = time.perf_counter()
            for _ in range(repeats):
                there[0].set(arrays[0], stream=streams[0])
                if ways == 2:
                    there[1].get(stream=streams[1], out=arrays[1], blocking=False)
            for stream in streams:
                stream.synchronize()
            seconds = time.perf_counter() - begun
        print(f"{name}: {turns * nbytes / seconds / 1e9:.3g} GB/s", flush=True)
        yield {"name": name, "library": "cupy", "bytes": turns * nbytes, "seconds": seconds}


def by_hand(x: Any, y: Any) -> Iterator[Row]:
    """Yield the same with CuPy, a block after the other."""
    try:
        import cupy
    except ImportError:
        return
    step = 8 * MIB  # elements
    for name in ("sum of an array", "array times a number"):
        begun, total = time.perf_counter(), 0.0
        for at in range(0, x.size, step):
            block = cupy.asarray(x[at : at + step])
            if name.startswith("sum"):
                total += float(block.sum())
            else:
                y[at : at + step] = (block * 2).get()
        seconds = time.perf_counter() - begun
        print(f"CuPy, {name}: {x.nbytes / seconds / 1e9:.3g} GB/s", flush=True)
        yield {"name": name, "library": "cupy", "bytes": x.nbytes, "seconds": seconds}


def all_but(gb: float) -> Any:
    """Memory of the GPU that leaves `gb` GB free, as on a smaller card."""
    import cupy

    free, _ = cupy.cuda.runtime.memGetInfo()
    return cupy.cuda.alloc(max(free - int(gb * 1e9), 0))


def rows_of(asked: argparse.Namespace) -> Iterator[Row]:
    options: Row = {"backend": asked.backend, "progress": False}
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        if asked.gb:
            yield from of_files(Path(name), asked.gb, asked.write, options)
        if asked.blocks:
            yield from of_blocks(Path(name), options)
        if asked.growth:
            yield from with_model(list(of_growth(Path(name), asked.growth, options)))
    if asked.array_gb:
        yield from of_arrays(asked.array_gb, options)


def about(asked: argparse.Namespace) -> Row:
    return {
        "device": device_name(asked.backend),
        "cpu": {"name": device_name("cpu"), "count": os.cpu_count()},
        "commit": commit(),
        "card_gb": asked.card_gb,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gb", type=float, default=0, help="length of the file")
    parser.add_argument("--write", action="store_true", help="scan into a file of that length")
    parser.add_argument("--array-gb", type=float, default=0, help="length of arrays in memory")
    parser.add_argument("--blocks", action="store_true", help="the rate by length of a block")
    parser.add_argument("--growth", type=int, default=0, help="sum 2**20 to 2**GROWTH elements")
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--card-gb", type=float, help="keep all but this much of the GPU's memory"
    )
    parser.add_argument("--folder", help="where files are made; default: a temporary folder")
    parser.add_argument("--out", help="a JSON file for the rows")
    asked = parser.parse_args(arguments)
    kept = all_but(asked.card_gb) if asked.card_gb else None
    results: list[Row] = []
    for found in rows_of(asked):
        results.append(found)
        if asked.out:
            Path(asked.out).write_text(written(about(asked), results), encoding="utf-8")
    del kept
    return 0 if all(r.get("right", True) for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
