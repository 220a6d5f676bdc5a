"""Registers, shared memory and spills of every CUDA kernel, as reported by ptxas.

The golden file has the figures for sm_90a with nvcc 13.0; `python tests/test_resources.py`
rewrites it from the last build.  Without such a build there is nothing to compare, and the
test is not collected.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from gpuopt import _core

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_build"))
from cuda_toolkit import kernel_files, object_name  # noqa: E402

GOLDEN = Path(__file__).with_name("resources_90a.json")

KERNEL = re.compile(r"Compiling entry function '(?P<name>\w+)' for '(?P<arch>\w+)'")
SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
USED = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(?P<shared>\d+) bytes smem")


def report() -> dict[str, list[int]]:
    """Kernel to [registers, static shared bytes, spilled bytes] of the last build."""
    found: dict[str, list[int]] = {}
    logs = {f"{object_name(source)}.log" for source in kernel_files(ROOT / "csrc")}
    for log in sorted(ROOT.glob("build/temp*/cuda/*.o.log")):
        if log.name not in logs:
            continue  # of a file that is gone
        name = ""
        for line in log.read_text(encoding="utf-8").splitlines():
            if match := KERNEL.search(line):
                name = match["name"] if match["arch"] in ("sm_90", "sm_90a") else ""
                spilled = 0
            elif not name:
                continue
            elif match := SPILLS.search(line):
                spilled = int(match["stores"]) + int(match["loads"])
            elif match := USED.search(line):
                shared = SHARED.search(line)
                bytes_shared = int(shared["shared"]) if shared else 0
                found[name] = [int(match["registers"]), bytes_shared, spilled]
    return found


def built() -> bool:
    info = _core.build_info()
    return info["cuda"] == "13.0" and info["cuda_archs"] == "90a" and bool(report())


if built():

    def test_only_bounded_kernels_spill() -> None:
        """Kernels that spill, as explained in their NOTES.md: a few bytes for more threads."""
        bounds = {"reduce_v9_": 336, "reduce_columns_": 160, "scan_v4_parked": 208,
                  "causal_conv1d_backward_v7_spectra_lags": 32,
                  "causal_conv1d_backward_v7_spectra_gradients": 8,
                  "causal_conv1d_backward_short_filters_channels_lastIf": 576,
                  "causal_conv1d_backward_short_filters_channels_last": 124,
                  "causal_conv1d_backward_short_filtersIf": 160,
                  "causal_conv1d_backward_few_taps_channels_lastI": 304,
                  "causal_conv1d_backward_few_tapsI": 32,
                  "causal_conv1d_short_filters_chunks": 8,
                  "scan_v3_": 16, "scan_v5_ahead": 144, "max_pool3d_v7_": 168,
                  "max_pool3d_backward_overlapping_windows_kernelIdLb1E": 8,
                  "elementwise_v2_peeledI8computedI14functor_divide7complexId": 32,
                  "scan_walked_columns": 8,
                  "scatter_add_buckets_splitILb1E": 92, "scatter_add_ascending_runs": 8,
                  "mean_matvec_v5_": 48, "mean_matvec_few_tiles_productIdLi128ELi64E": 12,
                  "mean_matvec_tensor_tiles_productIfLi128ELi128E": 40,
                  "reduce_flat_columns_": 72, "index_add_v4_gather": 48,
                  "convolve_large_transforms_": 184,
                  "causal_conv1d_large_transforms_": 32,
                  "causal_conv1d_backward_large_transforms_": 76,
                  "convolve_v3_spectral_blocks": 8}  # fmt: skip
        for name, (_, _, spilled) in report().items():
            most = [bound for kernel, bound in bounds.items() if kernel in name]
            assert spilled <= max(most, default=0), (name, spilled)

    def test_no_host_code_runs_into_a_device_function() -> None:
        """nvcc compiles such calls in templates; on the host the function would exit."""
        for kernels in sorted(ROOT.glob("build/temp*/cuda/*.o")):
            symbols = subprocess.run(
                ["nm", "--undefined-only", kernels], capture_output=True, text=True, check=True
            ).stdout.split()
            assert "exit" not in symbols, f"{kernels.stem} calls device code on the host"

    def test_resources_are_as_recorded() -> None:
        golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
        now = report()
        assert now.keys() == golden.keys()
        changed = {n: (golden[n], used) for n, used in now.items() if used != golden[n]}
        assert not changed, "rewrite the golden file if this is what you meant"


def test_the_report_is_read() -> None:
    """A line of each kind, as ptxas writes them."""
    line = "ptxas info    : Compiling entry function '_Z1kv' for 'sm_90a'"
    assert KERNEL.search(line)["name"] == "_Z1kv"  # type: ignore[index]
    used = "ptxas info    : Used 42 registers, used 1 barriers, 1024 bytes smem, 8 bytes cmem"
    assert USED.search(used)["registers"] == "42"  # type: ignore[index]
    assert SHARED.search(used)["shared"] == "1024"  # type: ignore[index]


if __name__ == "__main__":
    rows = [f"  {json.dumps(n)}: {json.dumps(used)}" for n, used in sorted(report().items())]
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    sys.exit(0 if rows else 1)
