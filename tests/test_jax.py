"""JAX itself at every entry point: arrays, tracers, and other objects.

`make test-torch` runs it, in an environment of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gpuopt


def test_jax_arrays_are_taken_and_read_only() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    for view in (x, x.T, x[:, ::2], jnp.float32(3), x.astype("bfloat16")):
        got = gpuopt.negative(view)
        assert isinstance(got, jax.Array) and got.dtype == view.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(-view))
    np.testing.assert_array_equal(gpuopt.negative([x, x])[0], -np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        gpuopt.negative(x, out=x)


JAX_INPUTS = {
    "alone": gpuopt.negative,
    "second": lambda x: gpuopt.add(jnp.zeros(3), x),
    "asdevice": lambda x: gpuopt.asdevice(x, backend="sim"),
    "explain": lambda x: gpuopt.explain("negative", x),
    "out": lambda x: gpuopt.negative(jnp.zeros(3), out=x),
}


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap, jax.linearize])
@pytest.mark.parametrize("border", JAX_INPUTS)
def test_tracers(border: str, transform: Any) -> None:
    seen = []

    def function(x: Any) -> Any:
        with pytest.raises(TypeError, match=r"is a JAX tracer .*outside of jax\.jit"):
            JAX_INPUTS[border](x)
        seen.append(x)
        return (x * x).sum()

    if transform is jax.linearize:
        jax.linearize(function, jnp.ones(3))
    else:
        transform(function)(jnp.ones((3, 3)) if transform is jax.vmap else jnp.ones(3))
    assert seen


def deleted() -> Any:
    x = jnp.ones(3)
    x.delete()
    return x


def donated() -> Any:
    x = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x


@pytest.mark.parametrize(
    "make, sentence",
    [
        (deleted, "has been deleted or donated"),
        (donated, "has been deleted or donated"),
        (lambda: jax.random.key(0), r"PRNGKeyArray, which is no jax\.Array"),
        (lambda: jax.new_ref(jnp.ones(3)), r"Ref, which is no jax\.Array; use x\[\.\.\.\]"),
    ],
    ids=["deleted", "donated", "key", "reference"],
)
@pytest.mark.parametrize("border", ["alone", "asdevice", "explain"])
def test_what_is_no_array_of_jax(make: Any, sentence: str, border: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        JAX_INPUTS[border](make())
