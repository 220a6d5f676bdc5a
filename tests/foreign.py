"""Stand-ins for torch, JAX and other array libraries, in NumPy's memory.

Order: DLPack's C structures, a type with the C exchange table, a type with the Python
protocol alone, the bits of torch's tensors.  Nothing here is a test.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

# ---- DLPack's C structures (dlpack.h) ----


class Version(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    pass


DELETER = ctypes.PYFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [
    ("version", Version),
    ("context", ctypes.c_void_p),
    ("deleter", DELETER),
    ("flags", ctypes.c_uint64),
    ("tensor", Tensor),
]

SET_ERROR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
ALLOCATE = ctypes.PYFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Tensor),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
    SET_ERROR,
)
TO_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
VIEW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
FROM_OBJECT = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange(ctypes.Structure):
    pass


Exchange._fields_ = [
    ("version", Version),
    ("previous", ctypes.POINTER(Exchange)),
    ("allocate", ALLOCATE),
    ("from_object", FROM_OBJECT),
    ("to_object", TO_OBJECT),
    ("view_object", VIEW),
    ("current_stream", STREAM),
]

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex"}

live: dict[int, Any] = {}  # live tensors, by address


def _fill(tensor: Tensor, array: np.ndarray[Any, Any]) -> Any:
    """Describes `array`; the returned objects must live as long as the description."""
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    tensor.data = array.ctypes.data
    tensor.device_type, tensor.device_id = 1, 0
    tensor.ndim = array.ndim
    tensor.code, tensor.bits, tensor.lanes = CODES[array.dtype.kind], array.itemsize * 8, 1
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64))
    tensor.byte_offset = 0
    return shape, strides


def _own(array: np.ndarray[Any, Any]) -> int:
    versioned = Versioned()
    versioned.version = Version(1, 3)
    versioned.deleter = _delete
    parts = _fill(versioned.tensor, array)
    address = ctypes.addressof(versioned)
    live[address] = (versioned, array, parts)
    return address


def _give(out: Any, item: Any) -> int:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(item))
    out[0] = id(item)
    return 0


@DELETER
def _delete(tensor: Any) -> None:
    del live[ctypes.addressof(tensor.contents)]


@ALLOCATE
def _allocate(prototype: Any, out: Any, context: Any, set_error: Any) -> int:
    p = prototype.contents
    shape = tuple(p.shape[d] for d in range(p.ndim))
    if Exchanged.refuse:  # ctypes cannot leave an exception set, as C code would
        return -1
    name = "bool" if p.code == 6 else f"{KINDS[p.code]}{p.bits}"
    out[0] = _own(np.empty(shape, name))
    if Exchanged.hollow:
        Versioned.from_address(out[0]).tensor.data = None
    return 0


@TO_OBJECT
def _to_object(address: Any, out: Any) -> int:
    _, array, _ = live.pop(address)
    return _give(out, Exchanged(array))


@VIEW
def _view(item: Any, out: Any) -> int:
    if item.no_view:
        return -1
    item.parts = _fill(out.contents, item.array)
    if item.no_address:
        out.contents.data = item.no_address - 1
    return 0


@FROM_OBJECT
def _from_object(item: Any, out: Any) -> int:
    if item.no_view:
        return -1
    out[0] = _own(item.array)
    return 0


@STREAM
def _stream(device_type: int, device: int, out: Any) -> int:
    out[0] = 0
    return 0


def table(major: int = 1, view: bool = True) -> Exchange:
    found = Exchange()
    found.version = Version(major, 3)
    found.allocate, found.to_object, found.from_object = _allocate, _to_object, _from_object
    found.current_stream = _stream
    if view:
        found.view_object = _view
    return found


def capsule(exchange: Exchange) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(exchange), b"dlpack_exchange_api", None)


# ---- a type with the C exchange table ----

TABLE = table()
TABLE_WITHOUT_VIEW = table(view=False)
NEWER = table(major=2)
NEWER.previous = ctypes.pointer(TABLE)


class Exchanged:
    """Like torch.Tensor."""

    refuse = False
    hollow = False  # its results have no memory, as in torch's FakeTensorMode
    no_view = False  # its memory is not accessible
    no_address = 0  # one more than the address it reports, or 0
    __dlpack_c_exchange_api__ = capsule(TABLE)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


class ExchangedByCopy(Exchanged):
    """Without the optional function that views an object."""

    __dlpack_c_exchange_api__ = capsule(TABLE_WITHOUT_VIEW)


class ExchangedNewer(Exchanged):
    """With a table of version 2 that links to one of version 1."""

    __dlpack_c_exchange_api__ = capsule(NEWER)


# ---- types with the Python protocol alone ----


class Protocol:
    """A CPU array that speaks DLPack through NumPy."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.asked: list[dict[str, Any]] = []

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        self.asked.append(keywords)
        return self.array.__dlpack__(**keywords)

    @classmethod
    def from_dlpack(cls, source: Any) -> Any:
        return cls(np.from_dlpack(source))


class OldProtocol(Protocol):
    """Without max_version, as in older libraries: returns a capsule of version 0."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__()


def of_library(name: str, base: type[Protocol] = Protocol) -> type[Protocol]:
    """The type as if a module called `name` defined it."""
    return type("Array", (base,), {"__module__": name})


# ---- the bits of torch's tensors ----


class Bits:
    """The attributes of a tensor besides its memory, named as in torch."""

    conj = neg = requires_grad = False

    @classmethod
    def __torch_function__(cls, *arguments: Any) -> Any:
        raise NotImplementedError

    def is_conj(self) -> bool:
        return self.conj

    def is_neg(self) -> bool:
        return self.neg


def tensor(base: type, **attributes: Any) -> type:
    """torch.Tensor with the C table (Exchanged) or before it (Protocol)."""
    return type("Tensor", (Bits, base), {"__module__": "torch", **attributes})
