"""pandas, xarray, pint and astropy themselves: converted with np.asarray, or refused.

`make test-torch` runs it, in an environment of its own that also has torch and JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import astropy.units
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pint
import pytest
import torch
import xarray
from astropy.utils.masked import Masked

import gpuopt


def refused(border: Callable[[Any], Any], x: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        border(x)
    assert gpuopt.reduce(np.ones(3)) == 3


def test_libraries_do_not_mix() -> None:
    with pytest.raises(TypeError, match=r"different libraries: 'torch\.Tensor' and 'jaxlib"):
        gpuopt.add(torch.ones(3), jnp.ones(3))


def test_units() -> None:
    meters = pint.UnitRegistry().meter
    for x, way in (
        (np.ones(3) * meters, r"\.magnitude"),
        (1.0 * meters, r"\.magnitude"),
        (np.ones(3) * astropy.units.m, r"\.value"),
        (1.0 * astropy.units.m, r"\.value"),
    ):
        for border in (
            gpuopt.negative,
            lambda x: gpuopt.add(np.ones(3), x),
            lambda x: gpuopt.asdevice(x, backend="sim"),
            lambda x: gpuopt.negative([x, x]),
        ):
            refused(border, x, rf"whose unit would be lost; use {way}")
    out = np.ones(3) * astropy.units.m
    refused(lambda x: gpuopt.negative(np.ones(3), out=x), out, r"^out .*use \.value")


def test_masked_values_of_astropy() -> None:
    refused(gpuopt.negative, Masked([1.0, 2.0], mask=[True, False]), r"use \.filled\(value\)")


def test_pandas_goes_in_as_asarray_gives_it() -> None:
    for x in (
        pd.Series([1.0, 2.0, np.nan]),
        pd.Series([1, 2, 3], dtype="Int64"),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1, 2, 1], dtype="category"),
        pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}),
        pd.Index([1, 2, 3]),
        pd.array([1, 2]),
    ):
        want = np.asarray(x)
        if want.dtype == object:  # missing values in an older pandas
            refused(gpuopt.negative, x, r"dtype 'object'.*\.to_numpy\(dtype, na_value")
        else:
            got = gpuopt.negative(x)
            assert type(got) is np.ndarray and got.dtype == want.dtype
            np.testing.assert_array_equal(got, -want)
    missing = pd.Series([True, None], dtype="boolean")
    refused(gpuopt.reduce, missing, r"dtype 'object'.*\.to_numpy\(dtype, na_value")
    refused(gpuopt.reduce, pd.DataFrame({"a": [1.0], "b": ["x"]}), "dtype 'object'")
    with pytest.raises(TypeError, match="output must be an array"):
        gpuopt.negative(np.ones(2), out=pd.Series([1.0, 2.0]))


def test_xarray_goes_in_as_asarray_gives_it() -> None:
    x = xarray.DataArray(np.arange(6.0).reshape(2, 3), dims=("a", "b"))
    for view in (x, x.T, x[:, ::2], x.variable):
        got = gpuopt.negative(view)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, -np.asarray(view))
