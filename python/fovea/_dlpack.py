"""DLPack's capsules by ctypes: read from any producer, made for fovea.Tensor."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int64, c_uint32, c_uint64, c_void_p, py_object
from typing import Any, Dict, Optional, Sequence, Tuple

from ._lib import CPU, MAX_DIMS, Arg, CTensor


class _Managed(Structure):
    pass


_Deleter = CFUNCTYPE(None, POINTER(_Managed))
_Managed._fields_ = [("tensor", CTensor), ("manager_ctx", c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(Structure):
    # DLPack 1.0: version, context, deleter, flags, tensor.
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", CTensor),
    ]


_api = ctypes.pythonapi
_is_valid = _api.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [py_object, c_char_p]
_pointer_of = _api.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c_void_p, [py_object, c_char_p]
# The destructor of a capsule is called while the capsule dies: it gets a bare address.
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _api))
_Destructor = ctypes.PYFUNCTYPE(None, c_void_p)
_new_capsule = _api.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, _Destructor]


def view(x: Any) -> Arg:
    """The contents of the capsule of `x`. The memory belongs to `x`, which the caller holds; the capsule is not consumed, so
    its own destructor ends it. A producer that makes a copy for its capsule is not supported by the protocol's
    default and would be a bug of its own."""
    capsule = x.__dlpack__()
    if _is_valid(capsule, b"dltensor"):
        t = ctypes.cast(_pointer_of(capsule, b"dltensor"), POINTER(_Managed)).contents.tensor
    elif _is_valid(capsule, b"dltensor_versioned"):
        versioned = ctypes.cast(_pointer_of(capsule, b"dltensor_versioned"), POINTER(_ManagedVersioned)).contents
        if versioned.major != 1:
            raise ValueError(f"__dlpack__() of {type(x).__name__} has version {versioned.major} of DLPack; only 1 is supported")
        t = versioned.tensor
    else:
        raise ValueError(f"__dlpack__() of {type(x).__name__} returned {capsule!r}, which is not a DLPack capsule")
    if not 0 <= t.ndim <= MAX_DIMS:
        raise ValueError(f"__dlpack__() of {type(x).__name__} has {t.ndim} dimensions; 0 to {MAX_DIMS} are allowed")
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides:
        strides = tuple(t.strides[i] for i in range(t.ndim))
    else:
        stride, reverse = 1, []
        for n in reversed(shape):
            reverse.append(stride)
            stride *= max(n, 1)
        strides = tuple(reversed(reverse))
    if t.dtype.lanes != 1:
        raise ValueError(f"an array has elements of {t.dtype.lanes} lanes; only 1 is allowed")
    return (t.data or 0) + t.byte_offset, shape, strides, (t.dtype.code, t.dtype.bits), (t.device.type, t.device.id)


# Exported capsules' structs, by address, until their consumers are done with them.
_exported: Dict[int, Tuple[Any, ...]] = {}


@_Deleter
def _delete(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _destroy(capsule: int) -> None:
    if _raw_is_valid(capsule, b"dltensor"):  # it was not consumed
        _exported.pop(_raw_pointer_of(capsule, b"dltensor"), None)


class Tensor:
    """Memory that Fovea allocated on the CPU for results whose framework it does not know: `framework.from_dlpack(t)`
    makes an array of it without a copy. Attributes: shape, strides (elements), dtype (a name)."""

    def __init__(self, shape: Sequence[int], dtype: str) -> None:
        from ._arrays import contiguous_strides, dtype_code, dtype_name

        self.shape: Tuple[int, ...] = tuple(shape)
        self.strides = contiguous_strides(self.shape)
        self.dtype = dtype_name(dtype)
        self._code = dtype_code(dtype)
        size = self._code[1] // 8
        for n in self.shape:
            size *= n
        self._memory = (ctypes.c_char * (size + 63))()
        self._data = (ctypes.addressof(self._memory) + 63) // 64 * 64

    def __repr__(self) -> str:
        return f"fovea.Tensor(shape={self.shape}, dtype={self.dtype!r})"

    def __dlpack_device__(self) -> Tuple[int, int]:
        return CPU, 0

    def __dlpack__(
        self, *, stream: Optional[int] = None, max_version: Any = None, dl_device: Any = None, copy: Optional[bool] = None
    ) -> Any:
        if stream is not None:
            raise ValueError(f"stream is {stream}; memory of the CPU has none: pass None")
        if dl_device is not None and tuple(dl_device) != (CPU, 0):
            raise BufferError(f"dl_device is {dl_device}; a fovea.Tensor lies on the CPU and is not copied")
        if copy:
            raise BufferError("copy=True is not supported; copy in your framework")
        n = len(self.shape)
        shape, strides = (c_int64 * max(n, 1))(*self.shape), (c_int64 * max(n, 1))(*self.strides)
        managed = _Managed()
        t = managed.tensor
        t.data, t.ndim, t.byte_offset = self._data, n, 0
        t.device.type, t.device.id = CPU, 0
        t.dtype.code, t.dtype.bits, t.dtype.lanes = self._code + (1,)
        t.shape, t.strides = ctypes.cast(shape, POINTER(c_int64)), ctypes.cast(strides, POINTER(c_int64))
        managed.deleter = _delete
        address = ctypes.addressof(managed)
        _exported[address] = (managed, shape, strides, self._memory)
        return _new_capsule(address, b"dltensor", _destroy)
