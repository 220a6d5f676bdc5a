"""At exit: a warning of an index out of bounds that no call has told of (csrc/bind/known.c)."""

from __future__ import annotations

import atexit
import contextlib
import warnings

from gpuopt import _core


def report() -> None:
    """Wait for the GPUs, and warn if a call met an index that had changed unseen."""
    try:
        with contextlib.suppress(RuntimeError):  # a fork, a dead GPU: that has been told
            _core.check_late()
    except IndexError as error:
        warnings.warn(str(error), RuntimeWarning, stacklevel=1)


atexit.register(report)
