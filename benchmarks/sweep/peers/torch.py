"""The peer PyTorch, on a GPU or a CPU: what its users call, in full precision.

Order: how arrays are taken, sums and scans, elementwise, indices, upsampling and pooling,
convolutions.  Gradients are those of autograd, whose forward pass is not timed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuopt.benchmarks.sweep.causal_conv1d import fast_length
from gpuopt.benchmarks.workloads.partition_reduce import merged_runs

DEVICES = ("cpu", "cuda")

Call = Callable[[], Any]

DIRECT = 1024  # taps; conv1d takes time in proportion to them
ON_A_CPU = 1 << 31  # products of conv1d: beyond, a call takes seconds, and spectra do not
DIFFERENTIATED = 32  # taps; the same for its gradient


def library() -> Any:
    """Return the module torch."""
    return importlib.import_module("torch")


def available() -> str | None:
    """Return None if PyTorch is installed; without a GPU the run itself fails."""
    return None if importlib.util.find_spec("torch") else "not installed"


def version() -> str:
    """Return PyTorch's version."""
    return str(library().__version__)


def ready(device: str) -> None:
    """Ask for full precision and every core."""
    torch = library()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if deterministic := getattr(torch.utils, "deterministic", None):  # from torch 2.2 on
        deterministic.fill_uninitialized_memory = False
    if device == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))


def take(x: Any) -> Any:
    """Return the array as a tensor over the same memory."""
    torch = library()
    if isinstance(x, torch.Tensor):
        return x
    return torch.from_numpy(x) if isinstance(x, np.ndarray) else torch.from_dlpack(x)


def host(result: Any) -> Any:
    """Return the result."""
    return result


def fixed(call: Call, wanted: bool) -> Call:
    """Return a call in torch's deterministic mode, if that is wanted."""
    if not wanted:
        return call
    switch = library().use_deterministic_algorithms

    def run() -> Any:
        switch(True)
        try:
            return call()
        finally:
            switch(False)

    return run


# ---- sums and scans ----


def reduce(x: Any, op: str, axis: Any) -> Call:
    """Call torch.sum, torch.amax and so on."""
    function = getattr(library(), {"min": "amin", "max": "amax"}.get(op, op))
    return (lambda: function(x)) if axis is None else (lambda: function(x, dim=axis))


def scan(x: Any, op: str, axis: int, reverse: bool) -> Call:
    """Call cumsum or cummax; from the end, on flipped arrays."""
    torch = library()

    def call(x: Any) -> Any:
        return torch.cumsum(x, axis) if op == "sum" else torch.cummax(x, axis)[0]

    if reverse:
        return lambda: torch.flip(call(torch.flip(x, (axis,))), (axis,))
    return lambda: call(x)


def partition_reduce(x: Any, bits: Sequence[int], square: bool) -> Call:
    """Call sum on a view with an axis per run of bits, then permute."""
    shape, axes, order = merged_runs(x.numel().bit_length() - 1, tuple(bits))

    def call() -> Any:
        view = x.real.square() + x.imag.square() if square else x
        view = view.reshape(shape)
        return (view.sum(axes) if axes else view).permute(order).reshape(-1)

    return call


def mean_matvec(x: Any, matrix: Any) -> Call:
    """Multiply the matrix by the transposed means."""
    return lambda: matrix @ x.mean(-1).t()


def dot(x: Any, y: Any) -> Call:
    """Call torch.dot."""
    return lambda: library().dot(x, y)


# ---- elementwise ----


def elementwise(name: str, operands: tuple[Any, ...]) -> Call:
    """Call the function of that name; clamp for bounds that are numbers."""
    torch = library()
    x, *rest = operands
    if name == "cast":
        to = getattr(torch, rest[0].name)
        return lambda: x.to(to, copy=True)
    if name == "clip":
        return lambda: torch.clamp(x, *rest)
    if name in ("maximum", "minimum") and not isinstance(rest[0], torch.Tensor):
        bound = {"maximum": "min", "minimum": "max"}[name]
        return lambda: torch.clamp(x, **{bound: rest[0]})
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    return lambda: function(*operands)


# ---- indices ----


def index_add(x: Any, index: Any, source: Any, deterministic: bool, in_place: bool) -> Call:
    """Call index_add, in its deterministic mode if the case asks for that."""
    if in_place:
        y = x.clone()
        return fixed(lambda: y.index_add_(0, index, source), deterministic)
    return fixed(lambda: library().index_add(x, 0, index, source), deterministic)


def scatter_add(values: Any, index: Any, size: int, deterministic: bool) -> Mapping[str, Call]:
    """Call scatter_add_ on zeros, and bincount for floats: on a GPU it is not deterministic."""
    torch = library()

    def scatter() -> Any:
        zeros = torch.zeros(size, device=values.device, dtype=values.dtype)
        return zeros.scatter_add_(0, index, values)

    ways = {"": fixed(scatter, deterministic)}
    on_cpu = values.device.type == "cpu"
    if values.dtype.is_floating_point and (on_cpu or not deterministic):
        ways["bincount"] = lambda: torch.bincount(index, values, size)
    return ways


# ---- upsampling and pooling ----


def gradient(function: Callable[[Any], Any], x: Any, dy: Any) -> Call:
    """Return the call of autograd that computes the gradient of x."""
    torch = library()
    leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = function(leaf)
    return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)[0]


def upsample_nearest(x: Any, scale: float) -> Call:
    """Call torch.nn.functional.interpolate."""
    interpolate = library().nn.functional.interpolate
    return lambda: interpolate(x, scale_factor=scale, mode="nearest")


def upsample_nearest_backward(x: Any, dy: Any, scale: float) -> Call:
    """Differentiate interpolate."""
    interpolate = library().nn.functional.interpolate
    return gradient(lambda t: interpolate(t, scale_factor=scale, mode="nearest"), x, dy)


def max_pool(x: Any, window: tuple[int, ...]) -> Call:
    """Call max_pool1d, 2d or 3d."""
    function = getattr(library().nn.functional, f"max_pool{x.dim() - 2}d")
    return lambda: function(x, *window)


def max_pool_backward(x: Any, dy: Any, window: tuple[int, ...]) -> Call:
    """Differentiate max_pool1d, 2d or 3d."""
    function = getattr(library().nn.functional, f"max_pool{x.dim() - 2}d")
    return gradient(lambda t: function(t, *window), x, dy)


# ---- convolutions ----


def grouped(x: Any, w: Any, bias: Any = None) -> Any:
    """Call conv1d with a group per channel; what it computes past the end is cut off."""
    functional, taps = library().nn.functional, w.shape[1]
    y = functional.conv1d(x, w.unsqueeze(1), bias, padding=taps - 1, groups=w.shape[0])
    return y[..., : x.shape[2]]


def is_timed_by_conv1d(x: Any) -> bool:
    """Leave out float16 on a CPU: torch 2.11 took minutes for 16 taps, 64 steps on a Xeon."""
    return bool(x.is_cuda or x.dtype != library().float16)


def causal_conv1d(x: Any, w: Any, bias: Any) -> Mapping[str, Call]:
    """Multiply spectra in float32, and call conv1d for all but very long filters."""
    torch = library()
    silu, fft, steps = torch.nn.functional.silu, torch.fft, x.shape[2]
    n = fast_length(steps + min(w.shape[1], steps))
    filters = w.float()

    def spectra() -> Any:
        product = fft.rfft(x.float(), n) * fft.rfft(filters.flip(1)[:, :steps], n)
        y = fft.irfft(product, n)[..., :steps]
        y = y if bias is None else silu(y + bias[:, None].to(y.dtype))
        return y.to(x.dtype)

    def direct() -> Any:
        y = grouped(x, w, bias)
        return y if bias is None else silu(y)

    short = w.shape[1] <= DIRECT and (x.is_cuda or x.numel() * w.shape[1] <= ON_A_CPU)
    if short and is_timed_by_conv1d(x):
        return {"fft": spectra, "conv1d": direct}
    return {"fft": spectra}


def causal_conv1d_backward(dy: Any, x: Any, w: Any) -> Mapping[str, Call]:
    """Multiply spectra in float32, and differentiate conv1d for short filters."""
    torch = library()
    fft, steps, taps = torch.fft, x.shape[2], w.shape[1]
    lags = min(taps, steps)
    n = fast_length(steps + lags)
    filters = w.float()

    def spectra() -> Any:
        g = fft.rfft(dy.float(), n)
        dx = fft.irfft(g * fft.rfft(filters.flip(1)[:, :steps], n).conj(), n)[..., :steps]
        product = (g * fft.rfft(x.float(), n).conj()).sum(0)
        dw = torch.zeros_like(filters)
        dw[:, taps - lags :] = fft.irfft(product, n)[:, :lags].flip(1)
        return dx.to(x.dtype), dw.to(w.dtype)

    ways: dict[str, Call] = {"fft": spectra}
    if taps <= DIFFERENTIATED and is_timed_by_conv1d(x):
        leaves = (
            x.clone(memory_format=torch.preserve_format).requires_grad_(),
            w.clone().requires_grad_(),
        )
        y = grouped(*leaves)
        ways["conv1d"] = lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)
    return ways


def causal_conv1d_update(state: Any, x: Any, w: Any, bias: Any) -> Call:
    """Multiply the last steps by the filters, and move the state on."""
    torch = library()
    kept = state.clone()

    def call() -> Any:
        steps = torch.cat((kept, x.unsqueeze(-1)), -1)
        kept.copy_(steps[..., 1:])
        return torch.nn.functional.silu((steps * w).sum(-1) + bias), kept

    return call


def convolve(a: Any, v: Any, mode: str) -> Mapping[str, Call] | None:
    """Call conv1d with the filter reversed, for float32 and float64."""
    torch = library()
    taps = v.shape[0]
    if a.dtype not in (torch.float32, torch.float64) or taps > DIRECT or mode == "same":
        return None
    conv1d, padding = torch.nn.functional.conv1d, taps - 1 if mode == "full" else 0
    return {
        "conv1d": lambda: conv1d(a[None, None], v.flip(0)[None, None], padding=padding)[0, 0]
    }


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    "reduce": reduce,
    "scan": scan,
    "partition_reduce": partition_reduce,
    "mean_matvec": mean_matvec,
    "dot": dot,
    "elementwise": elementwise,
    "index_add": index_add,
    "scatter_add": scatter_add,
    "upsample_nearest": upsample_nearest,
    "upsample_nearest_backward": upsample_nearest_backward,
    "max_pool": max_pool,
    "max_pool_backward": max_pool_backward,
    "causal_conv1d": causal_conv1d,
    "causal_conv1d_backward": causal_conv1d_backward,
    "causal_conv1d_update": causal_conv1d_update,
    "convolve": convolve,
}
