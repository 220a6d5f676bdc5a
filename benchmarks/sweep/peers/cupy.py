"""The peer CuPy, on a GPU: NumPy's functions by the same names, and convolutions by FFT."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from gpuopt.benchmarks.sweep.peers import numpy

DEVICES = ("cuda",)

Call = Callable[[], Any]


def library() -> Any:
    """Return the module cupy."""
    return importlib.import_module("cupy")


def available() -> str | None:
    """Return None if CuPy is installed and sees a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return "not installed"
    try:
        library().cuda.runtime.getDeviceCount()
    except Exception as error:  # a class of CuPy's own
        return str(error)
    return None


def version() -> str:
    """Return CuPy's version."""
    return str(library().__version__)


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
