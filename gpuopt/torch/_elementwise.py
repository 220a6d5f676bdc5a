"""The elementwise operators: one row each, with their dtypes and gradients.

A row has the operands, the rule for the dtype of the result, and for each operand the
gradient as a formula of g, the gradient of the result.  Operands are converted to their
common dtype by torch's rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

import gpuopt
from gpuopt.torch._library import (
    Formulas,
    Rule,
    batched,
    category,
    common_dtype,
    composed,
    floating,
    operator,
    register,
)


class Row(NamedTuple):
    operands: str
    computed: Rule  # the dtype the operands are converted to, from their common one
    gradients: Formulas


def same(dtype: torch.dtype) -> torch.dtype:
    return dtype


def real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def chosen_of(g: torch.Tensor, mine: torch.Tensor, other: Any) -> torch.Tensor:
    """The gradient of the larger of two; equal ones share it, as in torch."""
    return torch.where(mine == other, g / 2, g).masked_fill(mine < other, 0)


def within(g: torch.Tensor, x: torch.Tensor, min: Any, max: Any) -> torch.Tensor:
    """The gradient of x where it lies between the bounds."""
    keep = torch.ones_like(x, dtype=torch.bool)
    keep = keep if min is None else keep & (x >= min)
    keep = keep if max is None else keep & (x <= max)
    return torch.where(keep, g, 0)


def at_min(g: torch.Tensor, x: torch.Tensor, min: Any, max: Any) -> torch.Tensor:
    """The gradient of the lower bound of clip."""
    keep = x < min if max is None else (x < min) & (min < max)
    return torch.where(keep, g, 0)


def at_max(g: torch.Tensor, x: torch.Tensor, min: Any, max: Any) -> torch.Tensor:
    """The gradient of the upper bound of clip."""
    keep = x > max if min is None else (x > max) | (max < min)
    return torch.where(keep, g, 0)


def silu_back(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient of silu; torch's own has no derivative."""
    share = torch.sigmoid(x)
    return g * share * (1 + x * (1 - share))


def conj(x: Any) -> Any:
    return x.conjugate() if isinstance(x, complex) else x.conj() if torch.is_tensor(x) else x


ROWS = {
    "add": Row("x y", same, {"x": lambda g: g, "y": lambda g: g}),
    "subtract": Row("x y", same, {"x": lambda g: g, "y": lambda g: -g}),
    "multiply": Row(
        "x y", same, {"x": lambda g, y: g * conj(y), "y": lambda g, x: g * conj(x)}
    ),
    "divide": Row(
        "x y",
        floating,
        {"x": lambda g, y: g / conj(y), "y": lambda g, out, y: -g * conj(out / y)},
    ),
    "maximum": Row(
        "x y",
        same,
        {"x": lambda g, x, y: chosen_of(g, x, y), "y": lambda g, x, y: chosen_of(g, y, x)},
    ),
    "minimum": Row(
        "x y",
        same,
        {"x": lambda g, x, y: chosen_of(g, -x, -y), "y": lambda g, x, y: chosen_of(g, -y, -x)},
    ),
    "fma": Row(
        "x y z",
        same,
        {"x": lambda g, y: g * y, "y": lambda g, x: g * x, "z": lambda g: g},
    ),
    "where": Row(
        "condition x y",
        same,
        {
            "x": lambda g, condition: torch.where(condition != 0, g, 0),
            "y": lambda g, condition: torch.where(condition != 0, 0, g),
        },
    ),
    "negative": Row("x", same, {"x": lambda g: -g}),
    "abs": Row("x", same, {"x": lambda g, x: g * torch.sgn(x)}),
    "exp": Row("x", floating, {"x": lambda g, out: g * out}),
    "log": Row("x", floating, {"x": lambda g, x: g / x}),
    "sqrt": Row("x", floating, {"x": lambda g, out: g / (2 * out)}),
    "tanh": Row("x", floating, {"x": lambda g, out: g * (1 - out * out)}),
    "sigmoid": Row("x", floating, {"x": lambda g, out: g * out * (1 - out)}),
    "relu": Row("x", same, {"x": lambda g, x: torch.where(x <= 0, 0, g)}),
    "gelu": Row("x", floating, {"x": lambda g, x: torch.ops.aten.gelu_backward(g, x)}),
    "silu": Row("x", floating, {"x": silu_back}),
    "clip": Row("x min max", same, {"x": within, "min": at_min, "max": at_max}),
}

# With a Python number as the second operand, which takes the dtype of x as in torch.
WITH_NUMBER = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


def values_of(name: str, operands: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that the dtype of the result comes from: not where's condition."""
    chosen = operands[1:] if name == "where" else operands
    return [x for x in chosen if x is not None]


def agree(operands: Sequence[Any], first: int) -> bool:
    """Whether all are in one place and, from the first on, of one dtype."""
    dtype, on_gpu = operands[first].dtype, operands[first].is_cuda
    for i, x in enumerate(operands):
        if x is None or x.is_cuda is not on_gpu or (i >= first and x.dtype is not dtype):
            return False
    return True


def kernel_of(name: str) -> Rule:
    function, computed = getattr(gpuopt, name), ROWS[name].computed
    first = 1 if name == "where" else 0  # its condition is not converted

    def kernel(*operands: Any) -> torch.Tensor:
        own = operands[first].dtype
        if computed(own) is own and agree(operands, first):
            return function(*operands)
        dtype = computed(common_dtype(values_of(name, operands)))
        on_gpu = any(x is not None and x.is_cuda for x in operands)

        def ready(x: Any, convert: bool) -> Any:
            if x is None:
                return None
            x = x.to(dtype) if convert else x
            return x.item() if on_gpu and x.dim() == 0 and not x.is_cuda else x

        return function(*(ready(x, i >= first) for i, x in enumerate(operands)))

    return kernel


def fake_of(name: str) -> Rule:
    computed = ROWS[name].computed

    def fake(*operands: torch.Tensor | None) -> torch.Tensor:
        given = [x for x in operands if x is not None]
        dtype = computed(common_dtype(values_of(name, operands)))
        dtype = real(dtype) if name == "abs" else dtype
        shape = torch.broadcast_shapes(*(x.shape for x in given))
        device = next((x.device for x in given if x.device.type != "cpu"), given[0].device)
        return torch.empty(shape, dtype=dtype, device=device)

    return fake


def vmap_of(name: str) -> Rule:
    def rule(info: Any, in_dims: Any, *operands: Any) -> Any:
        """The batch axes in front, the other axes aligned, so that all broadcast."""
        ranks = {
            i: x.dim() - batched(dim)
            for i, (x, dim) in enumerate(zip(operands, in_dims, strict=True))
            if x is not None
        }
        values = [i for i in ranks if name != "where" or i > 0]
        dtype = common_dtype([operands[i] for i in values], [ranks[i] for i in values])
        moved: list[Any] = list(operands)
        for i, rank in ranks.items():
            x = operands[i].to(dtype) if i in values else operands[i]
            if batched(in_dims[i]):
                x = x.movedim(in_dims[i], 0)
                x = x.reshape(x.shape[0], *[1] * (max(ranks.values()) - rank), *x.shape[1:])
            moved[i] = x
        return operator(name)(*moved), 0

    return rule


def define(name: str, row: Row) -> None:
    """torch.ops.gpuopt.<name>(Tensor, ...)."""
    optional = "?" if name == "clip" else ""
    first, *others = row.operands.split()
    rest = "".join(f", Tensor{optional} {operand}" for operand in others)
    schema = f"{name}(Tensor {first}{rest}) -> Tensor"
    register(
        schema,
        kernel_of(name),
        fake_of(name),
        composed(schema, row.gradients),
        vmap_of(name),
    )


def define_with_numbers(name: str, numbers: Sequence[str]) -> None:
    """torch.ops.gpuopt.<name>_number(Tensor x, Scalar? ...)."""
    row = ROWS[name]
    arguments = "".join(f", Scalar{'?' * (name == 'clip')} {number}" for number in numbers)
    schema = f"{name}_number(Tensor x{arguments}) -> Tensor"

    def computed(x: torch.Tensor, *given: Any) -> torch.dtype:
        dtype = x.dtype
        for number in given:
            if number is not None:
                dtype = with_number(dtype, number)
        return row.computed(dtype)

    def kernel(x: torch.Tensor, *given: Any) -> torch.Tensor:
        return getattr(gpuopt, name)(x.to(computed(x, *given)), *given)

    def fake(x: torch.Tensor, *given: Any) -> torch.Tensor:
        return torch.empty(x.shape, dtype=computed(x, *given), device=x.device)

    def vmap(info: Any, in_dims: Any, x: torch.Tensor, *given: Any) -> Any:
        return operator(f"{name}_number")(x, *given), in_dims[0]

    register(schema, kernel, fake, composed(schema, {"x": row.gradients["x"]}), vmap)


def with_number(dtype: torch.dtype, number: Any) -> torch.dtype:
    """torch.result_type of a tensor's dtype and a Python number."""
    kind = 3 if isinstance(number, complex) else 2 if isinstance(number, float) else 1
    kind = 0 if isinstance(number, bool) else kind
    if kind <= category(dtype):
        return dtype
    if kind == 3:
        return (dtype if category(dtype) == 2 else torch.get_default_dtype()).to_complex()
    return torch.get_default_dtype() if kind == 2 else torch.int64


def define_cast() -> None:
    """torch.ops.gpuopt.cast(Tensor x, ScalarType dtype); to bfloat16 torch's own copy."""
    schema = "cast(Tensor x, ScalarType dtype) -> Tensor"

    def kernel(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.bfloat16:  # NumPy has no name for it; torch rounds the same
            return x.to(dtype, copy=True)
        return gpuopt.cast(x, str(dtype).removeprefix("torch."))

    def fake(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(x.shape, dtype=dtype, device=x.device)

    def vmap(info: Any, in_dims: Any, x: torch.Tensor, dtype: torch.dtype) -> Any:
        return operator("cast")(x, dtype), in_dims[0]

    register(schema, kernel, fake, composed(schema, {"x": lambda g: g}), vmap)


for _name, _row in ROWS.items():
    define(_name, _row)
for _name in WITH_NUMBER:
    define_with_numbers(_name, ("y",))
define_with_numbers("clip", ("min", "max"))
define_cast()
