"""Arrays of NumPy, CuPy and PyTorch behind one set of functions, for the drawn cases.

Order: NumPy's, CuPy's, torch's, choosing one.  Where the three libraries agree on a name
(`lib.xp.where`, `x.reshape`, `lib.xp.fft.rfft`), cases and references use it directly; here
is what they do not share: making random arrays, dtypes, and taking each other's arrays.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Arrays", "CupyArrays", "TorchArrays", "library_for"]

WIDE = {"f": "float64", "c": "complex128", "i": "int64", "u": "int64", "b": "bool"}


class Arrays:
    """NumPy arrays, drawn from a stream of their own, and what references need of them."""

    device = "cpu"
    name = "numpy"
    has_bfloat16 = False

    def __init__(self, seed: Sequence[int]) -> None:
        self.random: Any = np.random.default_rng(seed)

    @property
    def xp(self) -> Any:
        """The library's module."""
        return np

    # ---- making ----

    def normal(self, shape: Sequence[int], dtype: str) -> Any:
        """Return standard normal numbers; complex ones have variance 1 in all."""
        if dtype.startswith("complex"):
            parts = self.normal((*shape, 2), "float32") * 0.5**0.5
            return self.astype(parts[..., 0] + 1j * parts[..., 1], dtype)
        made = self.random.standard_normal(tuple(shape), self.xp.float32)
        return self.astype(made, dtype)

    def uniform(self, n: int) -> Any:
        """Return n numbers in [0, 1) as float64."""
        return self.random.random(n)

    def integers(self, low: int, high: int, shape: Sequence[int], dtype: str) -> Any:
        """Return integers in [low, high)."""
        return self.astype(self.random.integers(low, high, tuple(shape)), dtype)

    def permutation(self, n: int) -> Any:
        """Return 0 to n-1 in random order."""
        return self.random.permutation(n)

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:
        """Return zeros."""
        return self.xp.zeros(tuple(shape), dtype)

    def arange(self, n: int) -> Any:
        """Return 0 to n-1 as int64."""
        return self.xp.arange(n)

    # ---- converting ----

    def dtype(self, x: Any) -> str:
        """Return the name of an array's dtype."""
        return str(x.dtype)

    def kind(self, x: Any) -> str:
        """Return NumPy's letter for an array's dtype: b, i, u, f or c."""
        return str(x.dtype.kind)

    def astype(self, x: Any, dtype: str) -> Any:
        """Convert, without a copy if nothing changes."""
        return x.astype(dtype, copy=False)

    def wide(self, x: Any) -> Any:
        """Convert to float64, complex128 or int64, in which references are computed."""
        return self.astype(x, WIDE[self.kind(x)])

    def take(self, x: Any) -> Any:
        """Return any library's result as an array of this one."""
        if hasattr(x, "detach"):
            x = x.detach().cpu().numpy()
        return np.asarray(x)

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        """Return a view with the axes in another order."""
        return x.transpose(tuple(axes))

    def contiguous(self, x: Any) -> Any:
        """Return the elements in C order."""
        return self.xp.ascontiguousarray(x)

    def copy(self, x: Any) -> Any:
        """Return a copy with the same strides."""
        return x.copy(order="K")

    def trim(self) -> None:
        """Give the memory of arrays that are gone back to the device."""

    # ---- functions whose names differ ----

    def select(self, x: Any, index: Any, axis: int) -> Any:
        """Return the slices of an axis that an index names."""
        return self.xp.take(x, index, axis)

    def sort(self, x: Any) -> Any:
        """Return the elements in ascending order."""
        return self.xp.sort(x)

    def cummax(self, x: Any, axis: int) -> Any:
        """Return running maxima."""
        return np.maximum.accumulate(x, axis)

    def erf(self, x: Any) -> Any:
        """Return the error function in float64; SciPy's if it is there, NumPy has none."""
        if importlib.util.find_spec("scipy"):
            return importlib.import_module("scipy.special").erf(x)
        return np.vectorize(math.erf, otypes=[np.float64])(x)


class CupyArrays(Arrays):
    """CuPy's arrays on the current GPU."""

    device = "cuda"
    name = "cupy"

    def __init__(self, seed: Sequence[int]) -> None:
        word = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
        self.random = self.xp.random.default_rng(word)

    @property
    def xp(self) -> Any:
        return importlib.import_module("cupy")

    def normal(self, shape: Sequence[int], dtype: str) -> Any:
        if dtype.startswith("complex"):
            return super().normal(shape, dtype)
        made = self.random.standard_normal(tuple(shape), dtype=self.xp.float32)
        return self.astype(made, dtype)

    def permutation(self, n: int) -> Any:
        return self.xp.argsort(self.random.random(n))

    def take(self, x: Any) -> Any:
        if hasattr(x, "__dlpack__") and not isinstance(x, (np.ndarray, np.generic)):
            return self.xp.from_dlpack(x)
        return self.xp.asarray(x)

    def trim(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()

    def cummax(self, x: Any, axis: int) -> Any:
        return self.xp.asarray(np.maximum.accumulate(x.get(), axis))

    def erf(self, x: Any) -> Any:
        return importlib.import_module("cupyx.scipy.special").erf(x)


class TorchArrays(Arrays):
    """torch's tensors; those on a CPU are for tests of this class."""

    device = "cuda"
    name = "torch"
    has_bfloat16 = True

    def __init__(self, seed: Sequence[int], device: str = "cuda") -> None:
        self.device = device
        self.random = self.xp.Generator(device)
        self.random.manual_seed(int(np.random.SeedSequence(list(seed)).generate_state(1)[0]))

    @property
    def xp(self) -> Any:
        return importlib.import_module("torch")

    def normal(self, shape: Sequence[int], dtype: str) -> Any:
        drawn = dtype if dtype.startswith("complex") else "float32"
        made = self.xp.randn(*shape, generator=self.random, **self._where(drawn))
        return self.astype(made, dtype)

    def uniform(self, n: int) -> Any:
        return self.xp.rand(n, generator=self.random, **self._where("float64"))

    def integers(self, low: int, high: int, shape: Sequence[int], dtype: str) -> Any:
        where = self._where(dtype)
        return self.xp.randint(low, high, tuple(shape), generator=self.random, **where)

    def permutation(self, n: int) -> Any:
        return self.xp.randperm(n, generator=self.random, device=self.device)

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:
        return self.xp.zeros(tuple(shape), **self._where(dtype))

    def arange(self, n: int) -> Any:
        return self.xp.arange(n, device=self.device)

    def dtype(self, x: Any) -> str:
        return str(x.dtype).removeprefix("torch.")

    def kind(self, x: Any) -> str:
        name = self.dtype(x)
        return "f" if name == "bfloat16" else name[0]

    def astype(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self.xp, dtype))

    def take(self, x: Any) -> Any:
        if isinstance(x, self.xp.Tensor):
            return x.detach().to(self.device)
        if hasattr(x, "__dlpack__") and not isinstance(x, (np.ndarray, np.generic)):
            return self.xp.from_dlpack(x) if math.prod(x.shape) else self.xp.empty(x.shape)
        host = np.asarray(x)
        if host.dtype.kind == "u" and host.itemsize > 1:
            host = host.astype(np.int64)
        return self.xp.as_tensor(host, device=self.device)

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(*axes)

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def copy(self, x: Any) -> Any:
        return x.clone(memory_format=self.xp.preserve_format)

    def trim(self) -> None:
        if self.device == "cuda":
            self.xp.cuda.empty_cache()

    def select(self, x: Any, index: Any, axis: int) -> Any:
        return x.index_select(axis, index)

    def sort(self, x: Any) -> Any:
        return x.sort()[0]

    def cummax(self, x: Any, axis: int) -> Any:
        return self.xp.cummax(x, axis)[0]

    def erf(self, x: Any) -> Any:
        return self.xp.erf(x)

    def _where(self, dtype: str) -> dict[str, Any]:
        """Return the keywords that say dtype and device."""
        return {"dtype": getattr(self.xp, dtype), "device": self.device}


def library_for(device: str, seed: Sequence[int]) -> Arrays:
    """Return NumPy's arrays for a CPU; for a GPU torch's, else CuPy's.

    Raises
    ------
    RuntimeError
        There is neither torch nor CuPy with a working GPU.
    """
    if device == "cpu":
        return Arrays(seed)
    kinds: dict[str, type[Arrays]] = {"torch": TorchArrays, "cupy": CupyArrays}
    reasons = []
    for name, arrays in kinds.items():
        if not importlib.util.find_spec(name):
            reasons.append(f"{name} is not installed")
            continue
        try:
            return arrays(seed)
        except Exception as error:  # each library has its own classes for "no GPU"
            reasons.append(f"{name}: {' '.join(str(error).split())}")
    raise RuntimeError(f"no arrays on the GPU ({'; '.join(reasons)})")
