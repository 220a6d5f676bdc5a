"""The PEP 517 build backend: setuptools, which also asks for a CUDA compiler.

Where an NVIDIA driver is present (or GPUOPT_CUDA=1) and nvcc is not, the pinned
compiler wheels become build requirements, so that `pip install` needs no toolkit.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from setuptools import build_meta

sys.path.insert(0, str(Path(__file__).parent))
import cuda_toolkit

build_wheel = build_meta.build_wheel
build_sdist = build_meta.build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Without setuptools' warning that the working directory may hide the package."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Editable installation")
        return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)


def _compiler() -> list[str]:
    return cuda_toolkit.WHEELS if cuda_toolkit.wants_wheels() else []


def get_requires_for_build_wheel(config_settings=None):
    return build_meta.get_requires_for_build_wheel(config_settings) + _compiler()


def get_requires_for_build_editable(config_settings=None):
    return build_meta.get_requires_for_build_editable(config_settings) + _compiler()
