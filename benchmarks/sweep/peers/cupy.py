"""The peer CuPy, on a GPU: NumPy's functions by the same names, and convolutions by FFT."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from gpuopt.benchmarks.peers.cupy import available as available
from gpuopt.benchmarks.peers.cupy import library as library
from gpuopt.benchmarks.peers.cupy import version as version
from gpuopt.benchmarks.sweep.peers import numpy

DEVICES = ("cuda",)

Call = Callable[[], Any]


def ready(device: str) -> None:
    """Do nothing: CuPy needs no setting."""


def take(x: Any) -> Any:
    """Return the array through DLPack; CuPy refuses dtypes that it lacks."""
    return library().from_dlpack(x)


def host(result: Any) -> Any:
    """Return the result, on the GPU."""
    return result


def convolve(a: Any, v: Any, mode: str) -> Mapping[str, Call]:
    """Call convolve, and fftconvolve and oaconvolve for floats."""
    cupy = library()
    ways: dict[str, Call] = {"": lambda: cupy.convolve(a, v, mode)}
    if a.dtype.kind != "i":
        signal = importlib.import_module("cupyx.scipy.signal")
        ways["fft"] = lambda: signal.fftconvolve(a, v, mode)
        ways["oa"] = lambda: signal.oaconvolve(a, v, mode)
    return ways


def shared(name: str) -> Callable[..., Call | Mapping[str, Call] | None]:
    """Return NumPy's function, called with CuPy's module."""
    make = numpy.OPERATORS[name]
    return lambda **given: make(library(), **given)


CALLS: dict[str, Callable[..., Call | Mapping[str, Call] | None]] = {
    **{name: shared(name) for name in numpy.OPERATORS},
    "convolve": convolve,
}
