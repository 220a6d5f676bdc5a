"""Modules with torch's parameters and state dicts on gpuopt's operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpuopt.torch import functions

__all__ = ["CausalConv1d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "UpsampleNearest"]


class CausalConv1d(torch.nn.Module):
    """Each channel of (B, C, T) convolved with its own filter, looking back in time only.

    weight has the shape (C, 1, K) and bias (C,), initialised as in
    torch.nn.Conv1d(C, C, K, padding=K - 1, groups=C), whose state dict can be loaded; the
    result is that layer's, cut to its first T steps.  activation is None or "silu"; with
    layout="BTC" x is (B, T, C).
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        bias: bool = True,
        activation: str | None = None,
        layout: str = "BCT",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.kernel_size = channels, kernel_size
        self.activation, self.layout = activation, layout
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(channels, 1, kernel_size, **made))
        self.bias = torch.nn.Parameter(torch.empty(channels, **made)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(K), as in torch.nn.Conv1d."""
        bound = 1 / math.sqrt(self.kernel_size)
        torch.nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """x convolved; of its shape."""
        return functions.causal_conv1d(
            x, self.weight, self.bias, self.activation, layout=self.layout
        )

    def extra_repr(self) -> str:
        """The arguments that differ from the defaults."""
        text = f"{self.channels}, kernel_size={self.kernel_size}"
        text += "" if self.bias is not None else ", bias=False"
        text += f", activation={self.activation!r}" if self.activation else ""
        return text + (f", layout={self.layout!r}" if self.layout != "BCT" else "")


class MaxPool1d(torch.nn.MaxPool1d):
    """torch.nn.MaxPool1d on gpuopt.torch.max_pool1d."""

    def forward(self, input: Tensor) -> Any:
        """The maxima of (N, C, L) or (C, L); with return_indices a pair."""
        windows = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functions.max_pool1d(input, *windows, self.ceil_mode, self.return_indices)


class MaxPool2d(torch.nn.MaxPool2d):
    """torch.nn.MaxPool2d on gpuopt.torch.max_pool2d."""

    def forward(self, input: Tensor) -> Any:
        """The maxima of (N, C, H, W) or (C, H, W); with return_indices a pair."""
        windows = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functions.max_pool2d(input, *windows, self.ceil_mode, self.return_indices)


class MaxPool3d(torch.nn.MaxPool3d):
    """torch.nn.MaxPool3d on gpuopt.torch.max_pool3d."""

    def forward(self, input: Tensor) -> Any:
        """The maxima of (N, C, D, H, W) or (C, D, H, W); with return_indices a pair."""
        windows = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functions.max_pool3d(input, *windows, self.ceil_mode, self.return_indices)


class UpsampleNearest(torch.nn.Module):
    """torch.nn.Upsample in mode "nearest" or, with exact, "nearest-exact"."""

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        exact: bool = False,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor, self.exact = size, scale_factor, exact

    def forward(self, input: Tensor) -> Tensor:
        """The spatial axes of (N, C, ...) enlarged."""
        return functions.upsample_nearest(input, self.size, self.scale_factor, exact=self.exact)

    def extra_repr(self) -> str:
        """The arguments."""
        given = f"size={self.size}" if self.size is not None else ""
        given = given or f"scale_factor={self.scale_factor}"
        return given + (", exact=True" if self.exact else "")
