"""How an operator of gpuopt becomes an operator of torch: torch.ops.gpuopt.<name>.

Order: the table, dtypes, gradients, batches of torch.vmap, registration.  The operators
themselves are in the files beside this one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

Rule = Callable[..., Any]
Shape = Sequence[Any]  # of ints, or of symbols while torch traces


class Operator(NamedTuple):
    """One operator of torch.ops.gpuopt."""

    name: str
    differentiable: str  # "yes", "yes, once", "no", or for which values of an option
    batches: str  # what torch.vmap does: "one call" or "one call per element"
    autocast: bool  # whether floating inputs are cast to autocast's dtype


class Kernel(NamedTuple):
    """What an operator runs on plain tensors, and which arguments those are."""

    run: Rule
    tensors: tuple[int, ...]
    optional: tuple[int, ...]


OPERATORS: dict[str, Operator] = {}
KERNELS: dict[str, Kernel] = {}
LIBRARY = torch.library.Library("gpuopt", "DEF")


# ---- dtypes ----


def category(dtype: torch.dtype) -> int:
    """torch's order of kinds: bool, integers, floats, complex numbers."""
    if dtype.is_complex or dtype.is_floating_point:
        return 2 + dtype.is_complex
    return int(dtype != torch.bool)


def common_dtype(tensors: Sequence[torch.Tensor], ranks: Sequence[int] = ()) -> torch.dtype:
    """torch.result_type of any number of tensors.

    A tensor without dimensions counts only if its kind is a higher one.  `ranks` replaces
    the numbers of dimensions.
    """
    found: dict[bool, torch.dtype] = {}
    for x, rank in zip(tensors, ranks or [x.dim() for x in tensors], strict=True):
        flat = rank == 0
        found[flat] = torch.promote_types(found[flat], x.dtype) if flat in found else x.dtype
    if len(found) == 1:
        return next(iter(found.values()))
    if category(found[True]) > category(found[False]):
        if category(found[False]) == 2:
            return found[False].to_complex()
        return torch.promote_types(found[False], found[True])
    return found[False]


def floating(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself if it is floating or complex, else torch's default dtype."""
    return dtype if category(dtype) > 1 else torch.get_default_dtype()


def total(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum: int64 for bool and integers, as in torch."""
    return dtype if category(dtype) > 1 else torch.int64


def as_total(x: torch.Tensor) -> torch.Tensor:
    """gpuopt's sums of unsigned integers are uint64; int64 has the same bits."""
    return x.view(torch.int64) if x.dtype == torch.uint64 else x


# ---- gradients ----


class Gradient(NamedTuple):
    """setup(ctx, inputs, output) keeps what backward(ctx, *grads) needs."""

    setup: Rule
    backward: Rule
    differentiable: str


def no_gradient(name: str, which: str = "") -> TypeError:
    return TypeError(
        f"gpuopt.torch: {name}{which} has no gradient, and an input requires grad; pass "
        "x.detach(), or call it under torch.no_grad()"
    )


def refused(name: str) -> Gradient:
    """Of an operator without a gradient: a tensor that requires grad is a TypeError."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        raise no_gradient(name)

    return Gradient(setup, lambda ctx, *grads: None, "no")


def refused_twice(name: str) -> Gradient:
    """Of an operator that is a gradient itself."""

    def backward(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f"gpuopt.torch: {name} is a gradient and has none itself; second derivatives "
            "need torch's own operator"
        )

    return Gradient(lambda ctx, inputs, output: None, backward, "no")


def declared(schema: str) -> list[list[str]]:
    """An operator's arguments, each as its type and its name."""
    inside = schema.partition("(")[2].partition(") ->")[0]
    return [argument.split() for argument in inside.split(", ")]


def arguments(schema: str) -> list[str]:
    """The names of an operator's arguments."""
    return [argument[-1] for argument in declared(schema)]


def places(schema: str, kind: str) -> tuple[int, ...]:
    """Where an operator's arguments of a type are."""
    return tuple(i for i, argument in enumerate(declared(schema)) if argument[0] == kind)


Formulas = dict[str, Rule]


def composed(
    schema: str, formulas: dict[str, Any], by: str = "", twice: bool = True
) -> Gradient:
    """The gradient of an operator with one result, made of a formula for each input.

    A formula takes g, the gradient of the result, and by name what else it needs: arguments
    of the operator, `out` (its result), or `shape` (that of the formula's own input); no
    other tensors are kept.  Its result is added up over broadcast axes.  With `by` the
    table has such formulas for each value of that argument; values it lacks are refused.
    """
    name, names = schema.partition("(")[0], arguments(schema)

    def chosen(options: dict[str, Any]) -> Formulas:
        if by and options[by] not in formulas:
            raise no_gradient(name, f" with {by}={options[by]!r}")
        return formulas[options[by]] if by else formulas

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        given = dict(zip(names, inputs, strict=True))
        tensors = {k: v for k, v in given.items() if isinstance(v, torch.Tensor)}
        ctx.options = {k: v for k, v in given.items() if k not in tensors}
        ctx.inputs = {k: (v.shape, v.dtype) for k, v in tensors.items()}
        wanted = [k for k, want in zip(names, ctx.needs_input_grad, strict=False) if want]
        if not (category(output.dtype) > 1):
            return  # of an argmax, any or cast to integers, which nothing is differentiated by
        table = chosen(ctx.options)
        used = {p for k in wanted if k in table for p in signature(table[k])}
        ctx.kept = [k for k in (*tensors, "out") if k in used]
        ctx.save_for_backward(*({**given, "out": output}[k] for k in ctx.kept))

    def backward(ctx: Any, g: torch.Tensor) -> Any:
        known = {**ctx.options, **dict(zip(ctx.kept, ctx.saved_tensors, strict=True))}
        table = chosen(ctx.options)
        grads: list[Any] = []
        for k, want in zip(names, ctx.needs_input_grad, strict=True):
            if not want or k not in table:
                grads.append(None)
                continue
            shape, dtype = ctx.inputs[k]
            values = {**known, "g": g, "shape": shape}
            grads.append(
                like(table[k](**{p: values[p] for p in signature(table[k])}), shape, dtype)
            )
        return tuple(grads)

    which = f"{by} " + ", ".join(formulas) if by else "yes"
    return Gradient(setup, backward, which if twice else f"{which}, once")


@functools.cache
def signature(formula: Rule) -> tuple[str, ...]:
    """The names of a function's parameters."""
    return tuple(inspect.signature(formula).parameters)


def like(grad: torch.Tensor, shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """A gradient, added up over the axes along which its input was broadcast."""
    if not dtype.is_complex and grad.is_complex():
        grad = grad.real
    return grad.sum_to_size(shape).to(dtype)


# ---- batches of torch.vmap ----


def batched(dim: Any) -> bool:
    """Whether torch.vmap's entry for an argument is the place of a batch axis."""
    return isinstance(dim, int)


def front(x: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """x with the batch axis in front; expanded if it has none."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def merged(x: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """x with the batch axis made a part of axis 0."""
    return front(x, dim, size).flatten(0, 1)


def split(y: Any, size: int) -> Any:
    """Undoes `merged`, for one tensor or several."""
    if isinstance(y, torch.Tensor):
        return y.unflatten(0, (size, y.shape[0] // size))
    return tuple(split(part, size) for part in y)


def one_by_one(name: str) -> Rule:
    """The rule of an operator without a batch axis: one call per element, stacked."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        rows = [
            operator(name)(
                *(
                    a.select(dim, i) if batched(dim) else a
                    for a, dim in zip(args, in_dims, strict=True)
                )
            )
            for i in range(info.batch_size)
        ]
        if isinstance(rows[0], torch.Tensor):
            return torch.stack(rows), 0
        results = tuple(map(torch.stack, zip(*rows, strict=True)))
        return results, (0,) * len(results)

    return rule


# ---- registration ----


def operator(name: str) -> Any:
    """torch.ops.gpuopt.<name>."""
    return getattr(torch.ops.gpuopt, name).default


def cast_first(name: str, device: str) -> Rule:
    """Under torch.autocast: casts floating tensors to its dtype, but not float64."""

    def ready(x: Any, dtype: torch.dtype) -> Any:
        wanted = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(dtype) if wanted and x.dtype != torch.float64 else x

    def kernel(*args: Any) -> Any:
        dtype = torch.get_autocast_dtype(device)
        with torch.autocast(device, enabled=False):
            return operator(name)(*(ready(x, dtype) for x in args))

    return kernel


def register(
    schema: str,
    kernel: Rule,
    fake: Rule,
    gradient: Gradient | None = None,
    vmap: Rule | None = None,
    autocast: bool = False,
) -> None:
    """Defines torch.ops.gpuopt.<name>; the schema is that of torch.library.

    kernel runs on tensors of a CPU and of a GPU, fake gives empty tensors of the same shape
    and dtype.  Without `gradient` inputs that require grad are refused; without `vmap`
    torch.vmap makes one call per element.  Results are contiguous whatever the strides of
    the inputs are, which need no copy.
    """
    name = schema.partition("(")[0]
    gradient = gradient or refused(name)
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    LIBRARY.define(schema, tags=tags)
    KERNELS[name] = Kernel(kernel, places(schema, "Tensor"), places(schema, "Tensor?"))
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, kernel, key)
        if autocast:
            LIBRARY.impl(name, cast_first(name, key.lower()), f"Autocast{key}")
    full = f"gpuopt::{name}"
    torch.library.register_fake(full, fake, lib=LIBRARY)
    torch.library.register_autograd(
        full, gradient.backward, setup_context=gradient.setup, lib=LIBRARY
    )
    torch.library.register_vmap(full, vmap or one_by_one(name), lib=LIBRARY)
    calls = "one call" if vmap else "one call per element"
    OPERATORS[name] = Operator(name, gradient.differentiable, calls, autocast)
