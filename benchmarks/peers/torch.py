"""The peer PyTorch, on a GPU or a CPU, on the run's arrays."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from gpuopt.benchmarks.workloads.elementwise import BINARY, UNARY
from gpuopt.benchmarks.workloads.partition_reduce import merged_runs
from gpuopt.lab.workloads import Problem

DEVICES = ("cpu", "cuda")


def library() -> Any:
    """Return the module torch."""
    return importlib.import_module("torch")


def available() -> str | None:
    """Return None if PyTorch is installed; without a GPU the run itself fails."""
    return None if importlib.util.find_spec("torch") else "not installed"


def version() -> str:
    """Return PyTorch's version."""
    return str(library().__version__)


def reduce(x: Any, op: str = "sum", axis: Any = None) -> Callable[[], Any]:
    """Call torch.sum, torch.argmax and so on."""
    function = getattr(library(), {"min": "amin", "max": "amax"}.get(op, op))
    if axis is None:
        return lambda: function(x)
    return lambda: function(x, dim=axis)


def scan(x: Any, op: str = "sum", axis: int = -1) -> Callable[[], Any]:
    """Call torch.cumsum and so on; cummin and cummax give indices as well."""
    name = {"sum": "cumsum", "prod": "cumprod", "min": "cummin", "max": "cummax"}[op]
    function = getattr(library(), name)
    if op in ("min", "max"):
        return lambda: function(x, dim=axis).values
    return lambda: function(x, dim=axis)


def scatter_add(values: Any, index: Any, size: int, mode: str) -> Callable[[], Any]:
    """Call index_add_ on a fresh tensor of zeros."""
    torch = library()
    dtype = values.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype, values = torch.int64, values.to(torch.int64)
    return lambda: torch.zeros(size, dtype=dtype, device=values.device).index_add_(
        0, index, values
    )


def dot(x: Any, y: Any) -> Callable[[], Any]:
    """Call torch.dot."""
    function = library().dot
    return lambda: function(x, y)


def partition_reduce(
    x: Any, bits: tuple[int, ...], op: str = "sum", square: bool = False
) -> Callable[[], Any]:
    """Call torch.sum on a view with an axis per run of bits, then permute."""
    shape, axes, order = merged_runs(x.numel().bit_length() - 1, bits)

    def call() -> Any:
        view = x
        if square:
            view = x.real**2 + x.imag**2 if x.is_complex() else x * x
        view = view.reshape(shape)
        view = view.sum(dim=axes) if axes else view.clone()
        return view.permute(order).reshape(-1)

    return call


def index_add(
    x: Any, index: Any, source: Any, deterministic: bool = False
) -> Callable[[], Any]:
    """Call torch.index_add, with deterministic algorithms if requested."""
    torch = library()

    def run() -> Any:
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(deterministic)
        try:
            return torch.index_add(x, 0, index, source)
        finally:
            torch.use_deterministic_algorithms(before)

    return run


def mean_matvec(x: Any, matrix: Any) -> Callable[[], Any]:
    """Multiply the matrix by the transposed means."""
    return lambda: matrix @ x.mean(2).T


def elementwise(name: str) -> Callable[..., Any]:
    """Call torch.<name>, if there is one; a buffer of two rows is misaligned."""

    def make(*operands: Any) -> Callable[[], Any] | None:
        function = getattr(library(), name, None)
        arrays = [a.reshape(-1)[1:] if a.ndim == 2 else a for a in operands]
        return (lambda: function(*arrays)) if function else None

    return make


def upsample_nearest(x: Any, scale: float) -> Callable[[], Any]:
    """Call torch.nn.functional.interpolate."""
    interpolate = library().nn.functional.interpolate
    return lambda: interpolate(x, scale_factor=scale, mode="nearest")


def upsample_nearest_backward(
    dy: Any, input_shape: tuple[int, ...], scale: float
) -> Callable[[], Any]:
    """Call the operator that computes the gradient of interpolate, for two spatial axes."""
    backward = library().ops.aten.upsample_nearest2d_backward
    size, shape = list(dy.shape[2:]), list(input_shape)
    return lambda: backward(dy, size, shape, scale, scale)


def convolve(a: Any, v: Any, mode: str) -> Callable[[], Any] | None:
    """Call conv1d in full precision; for long filters multiply Fourier transforms."""
    torch = library()
    if not a.dtype.is_floating_point or mode != "full":
        return None
    n, m = int(a.shape[0]), int(v.shape[0])
    if m > 256:
        length = 1 << (n + m - 2).bit_length()

        def transform() -> Any:
            product = torch.fft.rfft(a, length) * torch.fft.rfft(v, length)
            return torch.fft.irfft(product, length)[: n + m - 1]

        return transform

    def direct() -> Any:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            return torch.nn.functional.conv1d(
                a.reshape(1, 1, -1), v.flip(0).reshape(1, 1, -1), padding=m - 1
            ).reshape(-1)

    return direct


def causal_conv1d(x: Any, w: Any, precision: str = "fp32") -> Callable[[], Any]:
    """Call conv1d with a group for each channel on the padded rows."""
    functional = importlib.import_module("torch.nn.functional")
    filters, taps = w.unsqueeze(1), w.shape[1]
    return lambda: functional.conv1d(
        functional.pad(x, (taps - 1, 0)), filters, groups=w.shape[0]
    )


def causal_conv1d_backward(
    dy: Any, x: Any, w: Any, precision: str = "fp32"
) -> Callable[[], Any]:
    """Differentiate conv1d; the forward pass is not timed."""
    torch = library()
    inputs = tuple(a.detach().clone().requires_grad_() for a in (x, w))
    result = causal_conv1d(*inputs)()
    return lambda: torch.autograd.grad(result, inputs, dy, retain_graph=True)


def max_pool3d(x: Any, kernel_size: int, stride: int) -> Callable[[], Any]:
    """Call torch.nn.functional.max_pool3d."""
    function = library().nn.functional.max_pool3d
    return lambda: function(x, kernel_size, stride)


def max_pool3d_backward(
    dy: Any, indices: Any, input_shape: Any, kernel_size: int, stride: int
) -> Callable[[], Any]:
    """Call the operator that autograd calls; it uses only the shape of x."""
    torch = library()
    x = torch.empty(input_shape, dtype=dy.dtype, device=dy.device)
    function = torch.ops.aten.max_pool3d_with_indices_backward
    kernel, step = [kernel_size] * 3, [stride] * 3
    return lambda: function(dy, x, kernel, step, [0] * 3, [1] * 3, False, indices)


CALLS: dict[str, Callable[..., Any]] = {
    "max_pool3d": max_pool3d,
    "max_pool3d_backward": max_pool3d_backward,
    "mean_matvec": mean_matvec,
    **{name: elementwise(name) for name in (*BINARY, *UNARY)},
    "reduce": reduce,
    "scan": scan,
    "dot": dot,
    "partition_reduce": partition_reduce,
    "scatter_add": scatter_add,
    "index_add": index_add,
    "upsample_nearest": upsample_nearest,
    "upsample_nearest_backward": upsample_nearest_backward,
    "convolve": convolve,
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
}


def call(
    problem: Problem, device: str, arrays: tuple[Any, ...], upload: Callable[..., Any]
) -> Callable[[], Any] | None:
    """Return the call that computes the problem."""
    make = CALLS.get(problem.function or problem.op)
    if make is None:
        return None
    if device == "cpu":
        if problem.dtype == "bfloat16":  # torch takes no bfloat16 from NumPy
            return None
        tensors = map(library().from_numpy, arrays)
    else:
        tensors = map(library().from_dlpack, arrays)
    return make(*tensors, **problem.options)


def host(result: Any) -> Any:
    """Return the result as a NumPy array, or a tuple of them; bfloat16 widens to float32."""
    if isinstance(result, tuple):
        return tuple(map(host, result))
    if result.dtype == library().bfloat16:
        result = result.float()
    return result.cpu().numpy()
