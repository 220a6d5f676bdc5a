"""Arrays that are more than their memory: taken without loss, or refused with a message.

A table by entry point and kind of array, for NumPy and stand-ins for torch and JAX;
test_torch.py, test_jax.py and test_guests.py test the libraries themselves.
Order: the entry points, NumPy's kinds, objects that NumPy reads, lists, torch's bits,
memory that is missing.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import foreign
import numpy as np
import pytest
from cases import ENTRIES

import gpuopt

Border = Callable[[Any], Any]

# ---- the entry points ----


def zeros(x: Any) -> Any:
    return np.zeros(np.asarray(x).shape, "float32")


def on_sim(x: Any) -> gpuopt.DeviceArray:
    return gpuopt.asdevice(x, backend="sim")


def copied(x: Any) -> Any:
    """DeviceArray.copy_from; what it takes must have the array's shape and dtype."""
    target = on_sim(zeros(x))
    target.copy_from(x)
    return target.numpy()


def planned(x: Any) -> Any:
    gpuopt.explain("negative", x)
    return gpuopt.negative(gpuopt.negative(x))


BORDERS: dict[str, Border] = {
    "alone": lambda x: gpuopt.add(x, np.float32(0)),
    "first": lambda x: gpuopt.add(x, zeros(x)),
    "second": lambda x: gpuopt.add(zeros(x), x),
    "sim": lambda x: gpuopt.add(x, np.float32(0), backend="sim"),
    "explain": planned,
    "asdevice": lambda x: on_sim(x).numpy(),
    "copy_from": copied,
    "an item": lambda x: gpuopt.add([x, x], np.float32(0))[0],
    "an item of an item": lambda x: gpuopt.add([[x], [x]], np.float32(0))[0, 0],
}


def works() -> bool:
    """The call after a refused one."""
    return bool(gpuopt.reduce(np.arange(5.0)) == 10)


def refused(kind: Any, border: Border, x: Any, sentence: str) -> None:
    """TypeError that names the problem and the call to make, without leaks or damage."""
    references = sys.getrefcount(x)
    with pytest.raises(TypeError, match=sentence):
        border(x)
    assert works(), kind
    gc.collect()
    assert sys.getrefcount(x) == references


@pytest.fixture(params=BORDERS)
def border(request: pytest.FixtureRequest) -> Border:
    return BORDERS[request.param]


# ---- NumPy's kinds ----

VALUES = np.arange(12, dtype="float32").reshape(3, 4)


class Plain(np.ndarray):
    """A subclass that overrides nothing."""


class Unit(np.ndarray):
    """Has a unit, implemented as in NumPy's guide to subclasses."""

    unit = "m"

    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", "m")


class ByUfunc(np.ndarray):
    def __array_ufunc__(self, *arguments: Any, **keywords: Any) -> Any:
        return NotImplemented


class ByFunction(np.ndarray):
    def __array_function__(self, *arguments: Any, **keywords: Any) -> Any:
        return NotImplemented


class ByWrap(np.ndarray):
    def __array_wrap__(self, *arguments: Any, **keywords: Any) -> Any:
        return NotImplemented


class NoUfuncs(np.ndarray):
    __array_ufunc__ = None


class Beneath(Unit):
    """Inherits the unit that would be lost."""


class OnDisk(np.memmap):
    """A subclass of memmap that overrides nothing."""


class Magnitude(Unit):
    magnitude = 0


class Quantity(Unit):
    def to_value(self) -> None: ...


def memmap(cls: type[np.memmap[Any, Any]], tmp_path: Any) -> Any:
    x: Any = cls(tmp_path / "x", "float32", "w+", shape=VALUES.shape)
    x[:] = VALUES
    return x


def readonly(x: Any) -> Any:
    x.flags.writeable = False
    return x


def unaligned() -> Any:
    x = np.ndarray(VALUES.shape, "float32", bytearray(VALUES.nbytes + 1), offset=1)
    x[:] = VALUES
    return x


TAKEN: dict[str, Callable[[Any], Any]] = {
    "exact": lambda tmp: VALUES.copy(),
    "plain subclass": lambda tmp: VALUES.copy().view(Plain),
    "memmap": lambda tmp: memmap(np.memmap, tmp),
    "subclass of memmap": lambda tmp: memmap(OnDisk, tmp),
    "recarray": lambda tmp: VALUES.copy().view(np.recarray),
    "byte-swapped": lambda tmp: VALUES.astype(VALUES.dtype.newbyteorder()),
    "read-only": lambda tmp: readonly(VALUES.copy()),
    "unaligned": lambda tmp: unaligned(),
    "steps": lambda tmp: np.repeat(VALUES, 2, 1)[:, ::2],
}

MEANING = r"a meaning of its own that would be lost; use np\.asarray\(\)"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (
        lambda: np.ma.array(VALUES, mask=VALUES > 5),
        r"numpy\.ma\.MaskedArray, whose mask would be lost; use \.filled\(value\)",
    ),
    "masked nowhere": (lambda: np.ma.array(VALUES), r"use \.filled\(value\)"),
    "the masked constant": (lambda: np.ma.masked, r"MaskedConstant.* use \.filled\(value\)"),
    "matrix": (lambda: VALUES.copy().view(np.matrix), rf"numpy\.matrix, .*{MEANING}"),
    "unit": (lambda: VALUES.copy().view(Unit), rf"\.Unit, .*{MEANING}"),
    "magnitude": (
        lambda: VALUES.copy().view(Magnitude),
        r"whose unit would be lost; use \.magnitude",
    ),
    "value": (lambda: VALUES.copy().view(Quantity), r"whose unit would be lost; use \.value"),
    "inherited": (lambda: VALUES.copy().view(Beneath), MEANING),
    "ufunc": (lambda: VALUES.copy().view(ByUfunc), MEANING),
    "function": (lambda: VALUES.copy().view(ByFunction), MEANING),
    "wrap": (lambda: VALUES.copy().view(ByWrap), MEANING),
    "no ufuncs": (lambda: VALUES.copy().view(NoUfuncs), MEANING),
    "structured": (
        lambda: np.zeros(3, [("a", "f4"), ("b", "i4")]),
        r"x has dtype '\[\('a', .*, which gpuopt does not support",
    ),
    "object": (
        lambda: np.array([1, None]),
        r"x has dtype 'object', .*; make it numbers first, .*\.to_numpy\(dtype, na_value=",
    ),
    "dates": (lambda: np.zeros(3, "datetime64[s]"), "dtype 'datetime64"),
    "text": (lambda: np.array(["a", "b"]), "dtype '<U1'"),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_kinds_that_lose_nothing_are_taken(kind: str, border: Border, tmp_path: Any) -> None:
    x = TAKEN[kind](tmp_path)
    got = border(x)
    np.testing.assert_array_equal(np.asarray(got), VALUES)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(np.asarray(x), VALUES)


@pytest.mark.parametrize("kind", REFUSED)
def test_kinds_that_would_lose_something_are_refused(kind: str, border: Border) -> None:
    make, sentence = REFUSED[kind]
    refused(kind, border, make(), sentence.removeprefix("x has "))


@pytest.mark.parametrize("kind", [k for k in TAKEN if k != "read-only"])
def test_out_of_kinds_that_lose_nothing(kind: str, tmp_path: Any) -> None:
    out = TAKEN[kind](tmp_path)
    assert gpuopt.add(VALUES, np.float32(1), out=out) is out
    np.testing.assert_array_equal(np.asarray(out), VALUES + 1)


@pytest.mark.parametrize("kind", REFUSED)
def test_out_of_kinds_that_would_lose_something(kind: str) -> None:
    make, sentence = REFUSED[kind]
    out = make()
    before = np.asarray(out).tobytes()
    sentence = sentence.split("; make it")[0].replace("x has", "out has")
    refused(kind, lambda out: gpuopt.add(np.ones(3), 1, out=out), out, sentence)
    assert np.asarray(out).tobytes() == before


def test_out_that_is_read_only() -> None:
    with pytest.raises(ValueError, match="output array is read-only"):
        gpuopt.add(VALUES, VALUES, out=readonly(VALUES.copy()))


def test_a_refusal_names_the_argument() -> None:
    masked = np.ma.array([1.0, 2.0])
    for call, name in (
        (lambda: gpuopt.reduce(masked), "x"),
        (lambda: gpuopt.fma(1.0, 2.0, masked), "z"),
        (lambda: gpuopt.index_add(np.zeros(3), masked, np.ones(2)), "index"),
        (lambda: gpuopt.add(1.0, 2.0, out=masked), "out"),
        (lambda: gpuopt.reduce([masked]), "an item of x"),
    ):
        with pytest.raises(TypeError, match=f"^{name} is of type numpy.ma.MaskedArray"):
            call()


@pytest.mark.parametrize("op", gpuopt.ops())
def test_every_operator_asks_of_every_array(op: str) -> None:
    """Masked arrays as each argument in turn, and as out=: masked values are never read."""
    call = getattr(gpuopt, op)
    args, kwargs, want = ENTRIES[op].valid()
    arrays = [a["name"] for a in gpuopt.describe(op)["args"] if a["kind"] == "array"]
    given = [k for k, name in enumerate(arrays) if k < len(args) and args[k] is not None]
    assert given
    for k in given:
        values = [np.ma.array(a) if i == k else a for i, a in enumerate(args)]
        with pytest.raises(TypeError, match=f"^{arrays[k]} is of type numpy.ma.MaskedArray"):
            call(*values, **kwargs)
        with pytest.raises(TypeError, match=f"^{arrays[k]} is of type numpy.ma.MaskedArray"):
            gpuopt.plan(op, *values, **kwargs)
    outs = tuple(np.ma.array(w) for w in (want if isinstance(want, tuple) else (want,)))
    with pytest.raises(TypeError, match=r"^out is of type numpy\.ma\.MaskedArray"):
        call(*args, **kwargs, out=outs)
    call(*args, **kwargs)


# ---- objects that NumPy reads ----


class Answers:
    """np.asarray returns its contents."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.array


class Means(Answers):
    def __array_ufunc__(self, *arguments: Any, **keywords: Any) -> Any:
        return NotImplemented


class Functions(Answers):
    def __array_function__(self, *arguments: Any, **keywords: Any) -> Any:
        return NotImplemented


class Described:
    def __init__(self, mask: Any) -> None:
        self.__array_interface__ = {**VALUES.__array_interface__, "mask": mask}


class DescribedByType:
    __array_interface__: Any = property(lambda self: {**VALUES.__array_interface__, "mask": 1})


OBJECTS_TAKEN: dict[str, Callable[[], Any]] = {
    "__array__": lambda: Answers(VALUES),
    "memoryview": lambda: memoryview(VALUES),
    "list": VALUES.tolist,
    "pandas": lambda: type("Series", (Means,), {"__module__": "pandas.core"})(VALUES),
    "xarray": lambda: type("DataArray", (Functions,), {"__module__": "xarray"})(VALUES),
}


@pytest.mark.parametrize("kind", OBJECTS_TAKEN)
def test_objects_go_in_as_asarray_gives_them(kind: str) -> None:
    got = gpuopt.add(OBJECTS_TAKEN[kind](), np.float32(0))
    np.testing.assert_array_equal(got, VALUES)


@pytest.mark.parametrize(
    "x, sentence",
    [
        (Means(VALUES), rf"\.Means, .*{MEANING}"),
        (Functions(VALUES), MEANING),
        (type("Pandas", (Means,), {"__module__": "pandasy"})(VALUES), MEANING),
        (Answers(np.ma.array(VALUES)), "whose mask would be lost"),
        (Answers(VALUES.copy().view(np.matrix)), MEANING),
        (DescribedByType(), "has a mask, which gpuopt does not support"),
        (type("Key", (), {"__module__": "jax.core"})(), "no jax.Array"),
    ],
    ids=["ufunc", "function", "not pandas", "masked inside", "matrix", "mask", "key"],
)
def test_objects_that_would_lose_something(x: Any, sentence: str, border: Border) -> None:
    refused(type(x), border, x, sentence)


class Shared:
    """Memory of the host that is told by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_an_object_that_knows_dlpack_alone() -> None:
    x = np.arange(6.0).reshape(2, 3)
    got = gpuopt.add(Shared(x.T), [[1], [2], [3]])
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, x.T + [[1], [2], [3]])
    with pytest.raises(TypeError, match=r"output must be an array, not .*Shared"):
        gpuopt.add(x, 1, out=Shared(x))


# ---- lists ----


def test_a_list_in_itself_is_refused() -> None:
    """NumPy would follow two such items for ever."""
    x: list[Any] = []
    x += [x, x]
    with pytest.raises(ValueError, match="maximum number of dimension"):
        gpuopt.reduce(x)
    del x[:]
    deep: Any = 1.0
    for _ in range(64):
        deep = [deep]
    assert gpuopt.reduce(deep) == 1
    with pytest.raises(ValueError, match="maximum number of dimension"):
        gpuopt.reduce([deep])


def test_a_list_that_a_question_empties() -> None:
    """The type of an item may run code when its attributes are read."""

    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            x.clear()
            return super().__getattribute__(name)

    class Item(metaclass=Meta):
        pass

    x: list[Any] = [Item(), 1.0, 2.0]
    assert gpuopt.reduce([x, x]) == 0
    assert works()


def test_types_that_were_asked_are_let_go() -> None:
    """A few types are cached; their number does not grow."""
    kinds = []
    for _ in range(50):
        cls = type("Local", (np.ndarray,), {})
        assert gpuopt.reduce(np.ones(3).view(cls)) == 3
        kinds.append(weakref.ref(cls))
        del cls
    gc.collect()
    assert sum(ref() is not None for ref in kinds) <= 10


# ---- torch's bits ----

LIBRARY = {"C table": foreign.Exchanged, "protocol": foreign.Protocol}

BITS: dict[str, tuple[dict[str, Any], str]] = {
    "conj": ({"conj": True}, r"has the conjugate bit set.*use \.resolve_conj\(\)"),
    "neg": ({"neg": True}, r"has the negative bit set.*use \.resolve_neg\(\)"),
    "grad": ({"requires_grad": True}, r"requires grad.*use \.detach\(\), .*no_grad\(\)"),
    "nested": ({"is_nested": True}, r"nested tensor.*use \.to_padded_tensor"),
    "quantised": ({"is_quantized": True}, r"is quantised.*use \.dequantize\(\)"),
    "meta": ({"is_meta": True}, r"on the meta device.*torch\.empty_like"),
    "zero": ({"_is_zerotensor": lambda self: True}, r"zero tensor.*use \.clone\(\)"),
    "sparse": ({"layout": "torch.sparse_coo"}, r"layout torch\.sparse_coo.*\.to_dense\(\)"),
    "unknown": ({}, "x has no memory that gpuopt can use|has no memory"),
}
BY_BIT = ("conj", "neg", "grad")


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("torch")
    module.is_grad_enabled = lambda: True  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def complex_array() -> Any:
    return np.arange(4).astype("complex64")


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("library", LIBRARY)
def test_a_tensor_with_a_bit(kind: str, library: str, torch: types.ModuleType) -> None:
    """As one of two inputs, as out=, in a list and as argument of asdevice."""
    attributes, sentence = BITS[kind]
    base = LIBRARY[library]
    cls = foreign.tensor(base, **attributes)
    if kind not in BY_BIT:
        if base is foreign.Protocol:

            def fails(self: Any, **keywords: Any) -> Any:
                raise RuntimeError("internal error\nat some file.cpp")

            cls.__dlpack__ = fails  # type: ignore[attr-defined]
        else:
            cls.no_view = True  # type: ignore[attr-defined]
    plain = foreign.tensor(base)
    x, out = cls(complex_array()), cls(complex_array())
    refused(kind, gpuopt.reduce, x, sentence)
    refused(kind, lambda x: gpuopt.add(x, plain(complex_array())), x, sentence)
    refused(kind, lambda x: gpuopt.add(plain(complex_array()), x), x, sentence)
    refused(kind, on_sim, x, sentence)
    refused(kind, lambda x: gpuopt.add(plain(complex_array()), 1, out=x), out, sentence)
    if kind in BY_BIT:
        refused(kind, lambda x: gpuopt.reduce([x]), x, "an item of x " + sentence)
    np.testing.assert_array_equal(out.array, complex_array())


def test_real_tensors_have_no_conjugate_bit_to_ask_of() -> None:
    cls = foreign.tensor(foreign.Exchanged, conj=True)
    assert gpuopt.reduce(cls(np.ones(3))).array == 3


@pytest.mark.parametrize("library", LIBRARY)
def test_a_tensor_that_requires_grad_is_taken_where_nothing_is_recorded(
    library: str, torch: types.ModuleType
) -> None:
    base = LIBRARY[library]
    cls = foreign.tensor(base, requires_grad=True)
    detached = foreign.tensor(base)
    cls.detach = lambda self: detached(self.array)  # type: ignore[attr-defined]
    torch.from_dlpack = foreign.tensor(foreign.Protocol).from_dlpack  # type: ignore[attr-defined]
    torch.is_grad_enabled = lambda: False  # type: ignore[attr-defined]
    assert gpuopt.reduce(cls(np.ones(3))).array == 3
    out = cls(np.ones(3))
    assert gpuopt.add(detached(np.ones(3)), 1, out=out) is out
    np.testing.assert_array_equal(out.array, np.full(3, 2.0))


def test_torch_hears_of_what_was_written(torch: types.ModuleType) -> None:
    """Otherwise a gradient that needs the old elements would be silently wrong."""
    heard: list[Any] = []
    torch._C = types.SimpleNamespace(  # type: ignore[attr-defined]
        _increment_version=lambda tensors: heard.extend(tensors)
    )
    cls = foreign.tensor(foreign.Exchanged)
    x, out = cls(np.ones(3)), cls(np.ones(3))
    gpuopt.add(x, 1)
    assert heard == []
    gpuopt.add(x, 1, out=out)
    assert heard == [out]


def test_subclasses_of_tensors(torch: types.ModuleType) -> None:
    """One that overrides nothing is taken; one with a protocol of its own is refused."""
    base = foreign.tensor(foreign.Exchanged)
    own = {"__torch_function__": classmethod(lambda cls, *arguments: None)}
    assert gpuopt.reduce(type("Parameter", (base,), {})(np.ones(3))).array == 3
    for attributes, sentence in (
        ({}, r"own __torch_function__ .* would be lost; use .*\.as_subclass"),
        ({"fake_mode": 1}, "a shape and no elements; .* outside of FakeTensorMode"),
        ({"to_local": 1}, r"spread over devices; use \.to_local\(\)"),
        ({"get_mask": 1}, r"mask would be lost; use \.to_tensor\(value\)"),
        ({"materialize": 1}, r"no elements yet; use \.materialize"),
        ({"is_nested": True}, "nested tensor"),
    ):
        cls = type("Mine", (base,), {**own, **attributes})
        refused(attributes, gpuopt.reduce, cls(np.ones(3)), sentence)
        refused(attributes, on_sim, cls(np.ones(3)), sentence)
    dispatch = type("Dispatch", (base,), {"__torch_dispatch__": lambda *arguments: None})
    refused("dispatch", gpuopt.reduce, dispatch(np.ones(3)), "own __torch_function__ or")


# ---- memory that is missing ----


@pytest.mark.parametrize("address", [0, 8, 4088])
def test_elements_without_an_address(address: int) -> None:
    """A wrapper of elements elsewhere, or a view whose storage was freed."""
    for base in (foreign.Exchanged, foreign.tensor(foreign.Exchanged)):
        cls = type("Tensor", (base,), {"no_address": address + 1, "__module__": "torch"})
        refused(address, gpuopt.reduce, cls(np.ones(3)), "x has no memory that gpuopt can use")
        assert gpuopt.reduce(cls(np.ones(0))).array == 0


def test_results_without_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign.Exchanged, "hollow", True)
    x = foreign.Exchanged(np.ones(3))
    with pytest.raises(TypeError, match=r"gave a result without memory.*FakeTensorMode"):
        gpuopt.negative(x)
    out = foreign.Exchanged(np.ones(3))
    assert gpuopt.negative(x, out=out) is out
    np.testing.assert_array_equal(out.array, -np.ones(3))


def test_a_deleted_array_of_jax() -> None:
    def gone(self: Any, *arguments: Any, **keywords: Any) -> Any:
        raise TypeError("object of type 'NoneType' has no len()")

    cls = foreign.of_library("jaxlib")
    cls.__dlpack_device__ = gone  # type: ignore[method-assign]
    cls.is_deleted = lambda self: True  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="x has been deleted or donated") as caught:
        gpuopt.reduce(cls(np.ones(3)))
    assert isinstance(caught.value.__cause__, TypeError)


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    yield
    assert foreign.live == {}
