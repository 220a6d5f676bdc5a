"""gpuopt's operators in the middle of a torch model.

>>> import torch, gpuopt.torch
>>> x = torch.tensor([[1.0, 4.0, 3.0, 2.0]], requires_grad=True)
>>> gpuopt.torch.max_pool1d(x, 2).sum().backward()
>>> x.grad
tensor([[0., 1., 1., 0.]])

Every operator is registered as torch.ops.gpuopt.<name>, with shapes for tracing, a
gradient where there is one, and a rule for torch.vmap; torch.compile(fullgraph=True) does
not break at them.  The functions here have torch's names and arguments.

Gradients.  Differentiable, twice: all elementwise operators, sum, mean, amax, amin, cumsum,
scan("sum"), dot, index_add, scatter_add, mean_matvec, partition_reduce, convolve.  Once:
causal_conv1d, max_pool1d, max_pool2d, max_pool3d, upsample_nearest, interpolate; a second
derivative is a RuntimeError.  causal_conv1d_update, prod, cumprod and scan("prod" | "min" |
"max") have no gradient: an input that requires grad is a TypeError.

autocast.  causal_conv1d, convolve, dot and mean_matvec run in autocast's dtype, like torch's
convolutions and products; all others run in the dtypes of their inputs.

gpuopt.torch.parallel, a module of its own, has causal_conv1d over the ranks of
torch.distributed.

Nothing here is compiled or linked against torch.  docs/torch.md has the table of operators.
"""

from gpuopt.torch import _elementwise, _indexing, _reductions, _windows  # noqa: F401
from gpuopt.torch._library import OPERATORS, Operator
from gpuopt.torch.functions import *  # noqa: F403
from gpuopt.torch.functions import __all__ as _functions
from gpuopt.torch.modules import *  # noqa: F403
from gpuopt.torch.modules import __all__ as _modules

__all__ = ["OPERATORS", "Operator", *_functions, *_modules]
