"""GPU-optimised operators on NumPy arrays and on arrays already on the GPU.

>>> import gpuopt
>>> gpuopt.reduce([1.0, 2.0, 3.0])
np.float64(6.0)

Each operator carries its whole ladder of optimisation steps: `gpuopt.variants("reduce")`
lists them, `variant=` runs one by name, `gpuopt.explain("reduce", x)` says which one a
call takes and why, `gpuopt.source("reduce", "v3")` shows its code.
"""

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

__version__ = str(_core.build_info()["version"])

__all__ = [
    "ContextDeadError",
    "CudaError",
    "DeviceArray",
    "Event",
    "OutOfMemoryError",
    "PerformanceWarning",
    "SimulatorError",
    "Stream",
    "VariantError",
    "asdevice",
    "backends",
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
    "synchronize",
    "use",
    "variants",
    *ops(),
]


def __dir__() -> list[str]:
    return sorted(__all__)
