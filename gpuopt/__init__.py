"""GPU-optimised operators on NumPy arrays and on arrays already on the GPU.

>>> import gpuopt
>>> gpuopt.reduce([1.0, 2.0, 3.0])
np.float64(6.0)

Each operator carries its whole ladder of optimisation steps: `gpuopt.variants("reduce")`
lists them, `variant=` runs one by name, `gpuopt.explain("reduce", x)` says which one a
call takes and why, `gpuopt.source("reduce", "v3")` shows its code.

Accepted inputs: NumPy arrays; lists, pandas and xarray objects, converted with np.asarray;
DeviceArrays; arrays of torch, CuPy, JAX and of any producer of DLPack or the CUDA array
interface, used in place.  An array that is more than its memory is refused with TypeError,
as an input and as out=, and the message names the call to make:

    numpy.ma                            .filled(value)
    numpy.matrix, other subclasses      np.asarray(x)
    units of astropy and pint           .value, .magnitude
    torch: conjugate, negative bit      .resolve_conj(), .resolve_neg()
    torch: requires grad                .detach(); taken under torch.no_grad()
    torch: sparse, nested, quantised    .to_dense(), .to_padded_tensor(0), .dequantize()
    inside torch.func, jax.jit, ...     call gpuopt outside of it

Subclasses of ndarray are taken if they override none of __array_ufunc__, __array_function__,
__array_finalize__ and __array_wrap__; numpy.memmap and numpy.recarray are taken too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpuopt import _core
from gpuopt._core import *  # noqa: F403
from gpuopt._core import (
    ContextDeadError,
    CudaError,
    DeviceArray,
    Event,
    OutOfMemoryError,
    PerformanceWarning,
    SimulatorError,
    Stream,
    UsedBackend,
    VariantError,
    asdevice,
    backends,
    cpu_isa,
    cuda_unavailable_reason,
    default_backend,
    describe,
    device_count,
    empty_cache,
    empty_pinned,
    get_num_threads,
    last_call,
    measure_calls,
    memory_info,
    ops,
    plan,
    set_num_threads,
    synchronize,
    use,
)
from gpuopt._introspect import explain, info, profile, source, variants

if TYPE_CHECKING:
    from gpuopt import chunks
    from gpuopt._report import Report
    from gpuopt._stream import stream

__version__ = str(_core.build_info()["version"])

__all__ = [
    "ContextDeadError",
    "CudaError",
    "DeviceArray",
    "Event",
    "OutOfMemoryError",
    "PerformanceWarning",
    "Report",
    "SimulatorError",
    "Stream",
    "UsedBackend",
    "VariantError",
    "asdevice",
    "backends",
    "chunks",
    "cpu_isa",
    "cuda_unavailable_reason",
    "default_backend",
    "describe",
    "device_count",
    "empty_cache",
    "empty_pinned",
    "explain",
    "get_num_threads",
    "info",
    "last_call",
    "measure_calls",
    "memory_info",
    "ops",
    "plan",
    "profile",
    "set_num_threads",
    "source",
    "stream",
    "synchronize",
    "use",
    "variants",
    *ops(),
]


# Loaded when they are first used: threads and files are not needed by a call in memory.
_LATER = {"Report": "gpuopt._report", "chunks": "gpuopt.chunks", "stream": "gpuopt._stream"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'gpuopt' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    globals()[name] = module if name == "chunks" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)
