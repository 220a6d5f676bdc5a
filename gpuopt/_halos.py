"""How far blocks of operators on windows overlap, and where they may be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["HALOS", "aligned", "halo"]


def _along(value: Any, axis: int, default: Any = None) -> int:
    """An option of windows along one spatial axis."""
    value = default if value is None else value
    return int(value[axis]) if np.ndim(value) else int(value)


def _halo_conv(options: dict[str, Any], after: bool) -> tuple[int, int]:
    taps = options.get("kernel_size")
    if taps is None:
        raise TypeError("the halo of causal_conv1d needs kernel_size, the taps of a filter")
    if options.get("segments") is not None:
        raise ValueError("segments are not for blocks along time: cut between the segments")
    if int(taps) < 1:
        raise ValueError(f"kernel_size must be positive, not {taps}")
    return int(taps) - 1, int(taps) - 1 if after else 0


def _pool(options: dict[str, Any]) -> tuple[int, int, int, int]:
    """Size, stride, padding and dilation of the windows along an axis."""
    if options.get("kernel_size") is None:
        raise TypeError("the halo of a pooling needs kernel_size")
    axis = options.get("axis", 0)
    size = _along(options["kernel_size"], axis)
    stride = _along(options.get("stride"), axis, size)
    padding, dilation = (
        _along(options.get(name), axis, preset)
        for name, preset in (("padding", 0), ("dilation", 1))
    )
    if min(size, stride, dilation) < 1 or padding < 0:
        raise ValueError(
            "kernel_size, stride and dilation are positive, padding is not negative"
        )
    return size, stride, padding, dilation


def _halo_pool(options: dict[str, Any]) -> tuple[int, int]:
    size, stride, padding, dilation = _pool(options)
    return padding, max(dilation * (size - 1) + 1 - stride - padding, 0)


def _halo_upsample(options: dict[str, Any]) -> tuple[int, int]:
    """None: but each block must map its elements as the whole array would."""
    if options.get("size") is not None or options.get("scale") is None:
        raise ValueError("size= is that of the whole array; blocks take scale=")
    axis, scale = options.get("axis", 0), options["scale"]
    scale = scale[axis] if np.ndim(scale) else scale
    length = options.get("length")
    if scale != int(scale) or scale < 1:
        raise ValueError(f"a scale of {scale} maps blocks unlike the whole; use a whole number")
    if length is None:
        raise TypeError("upsample_nearest needs length, that of the whole axis")
    shift = np.float32(0.5 if options.get("exact") else 0)
    step, s = np.float32(1 / scale), int(scale)
    for begin in range(0, length * s, 1 << 22):
        i = np.arange(begin, min(begin + (1 << 22), length * s))
        found = ((i.astype(np.float32) + shift) * step).astype(np.int64)
        if not np.array_equal(found, i // s):
            raise ValueError(
                f"a scale of {scale} and {length} elements: float32 rounds some places of the "
                f"whole to a neighbour, and those of its blocks not"
            )
    return 0, 0


HALOS: dict[str, Callable[[dict[str, Any]], tuple[int, int]]] = {
    "causal_conv1d": lambda options: _halo_conv(options, False),
    "causal_conv1d_backward": lambda options: _halo_conv(options, True),
    "max_pool1d": _halo_pool,
    "max_pool2d": _halo_pool,
    "max_pool3d": _halo_pool,
    "upsample_nearest": _halo_upsample,
}
HALO_OPTIONS = {
    "causal": ("kernel_size", "segments"),
    "max": ("kernel_size", "stride", "padding", "dilation", "axis"),
    "upsample": ("scale", "size", "exact", "axis", "length"),
}


def _halo_options(operator: str, options: dict[str, Any]) -> None:
    if operator not in HALOS:
        known = ", ".join(f"'{name}'" for name in HALOS)
        raise ValueError(f"blocks of '{operator}' do not overlap; those that do: {known}")
    if operator.startswith("max") and options.get("ceil_mode"):
        raise ValueError("ceil_mode is not for blocks: pad the whole array instead")
    known_options = HALO_OPTIONS[operator.split("_", maxsplit=1)[0]]
    for name in options:
        if name not in (*known_options, "ceil_mode"):
            raise TypeError(f"'{name}' is not an option of the halo of {operator}")


def halo(operator: str, /, **options: Any) -> tuple[int, int]:
    """How many elements before and after a block its results depend on.

    Parameters
    ----------
    operator : str
        'causal_conv1d' and its 'causal_conv1d_backward', with kernel_size=K along time: K - 1
        before, and after for the gradient.  'max_pool1d', 'max_pool2d', 'max_pool3d', with
        kernel_size, stride, padding and dilation as the operator takes them, and `axis`, the
        number of the spatial axis: blocks begin at multiples of `aligned`, and the padding is
        what comes before them.  'upsample_nearest', with a whole `scale` and `length`, that
        of the whole axis.
    **options
        Those named.

    Returns
    -------
    before, after : int
    """
    _halo_options(operator, options)
    return HALOS[operator](options)


def aligned(operator: str, /, **options: Any) -> int:
    """The number that every edge between two blocks must be a multiple of.

    Parameters and errors as `halo`.  A pooling's stride; 1 for other operators.
    """
    _halo_options(operator, options)
    HALOS[operator](options)
    return _pool(options)[1] if operator.startswith("max") else 1
