"""libfovea.so by ctypes: the structs of fovea/c_api.h field for field, and its errors as exceptions."""

import ctypes
import operator
import os
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Optional, Tuple

ABI_VERSION = 3

# DLPack's device types and type codes.
CPU, CUDA, CUDA_HOST = 1, 2, 3
INT, UINT, FLOAT, BFLOAT, BOOL, FLOAT8_E4M3FN, FLOAT8_E5M2 = 0, 1, 2, 4, 6, 10, 12

PREFILL, DECODE = 0, 1
CHECK_PAGES = 1


def int32(value: Any, name: str) -> int:
    """ctypes would drop the upper bits of what is larger."""
    value = operator.index(value)
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{name} is {value}; it must fit 32 bits")
    return value


def check_scales(k_scale: Any, v_scale: Any) -> None:
    """The library, whose structs are zeroed, takes 0 for 1."""
    if k_scale == 0 or v_scale == 0:
        raise ValueError(f"{'k_scale' if k_scale == 0 else 'v_scale'} is 0; it must be a positive number")


class CDevice(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class CDType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class CTensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", CDevice),
        ("ndim", c_int32),
        ("dtype", CDType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


TensorPtr = POINTER(CTensor)


def _tensors(*names: str) -> list:
    return [(name, TensorPtr) for name in names]


class CSpec(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("v_head_dim", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("dtype", CDType),
        ("kv_dtype", c_char_p),
        ("page_size", c_int32),
        ("causal", c_int32),
        ("window_left", c_int32),
        ("window_right", c_int32),
        ("chunk", c_int32),
        ("sink_tokens", c_int32),
        ("spans", c_int32),
        ("packed_mask", c_int32),
        ("tree", c_int32),
        ("has_sink", c_int32),
        ("lse_includes_sink", c_int32),
        ("has_alibi", c_int32),
        ("kv_x_packed", c_int32),
        ("encoder", c_int32),
        ("per_head_scales", c_int32),
        ("kv_shuffle", c_int32),
        ("mla", c_int32),
        ("sparse_topk", c_int32),
    ]


class CLimits(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("max_seqs", c_int32),
        ("max_tokens", c_int32),
        ("max_kv_tokens", c_int64),
        ("max_kv_len", c_int32),
        ("unused", c_int32),
        ("tune_for", c_int32),
    ]


class CStep(Structure):
    _fields_ = [("size", c_uint32), ("phase", c_int32), ("num_tokens", c_int32)] + _tensors(
        "q_offsets", "kv_lens", "page_table", "kv_indptr", "kv_indices", "spans", "span_offsets", "packed_mask",
        "packed_offsets", "tree_bias",
    ) + [("past_kv_ready", c_int32), ("unused", c_int32), ("num_pages", c_int64)]


class CLayer(Structure):
    _fields_ = (
        [("size", c_uint32)]
        + _tensors("q", "k", "v", "out", "lse", "sinks", "alibi_slopes")
        + [("k_scale", c_float), ("v_scale", c_float)]
        + _tensors("k_scales", "v_scales", "chosen")
    )


class CAppend(Structure):
    _fields_ = (
        [("size", c_uint32)]
        + _tensors("q", "q_out", "k", "v", "k_cache", "v_cache")
        + [("kv_dtype", c_char_p), ("k_scale", c_float), ("v_scale", c_float)]
        + _tensors("k_scales", "v_scales", "slots", "q_offsets", "kv_lens", "page_table", "q_norm", "k_norm")
        + [("norm_eps", c_float)]
        + _tensors("cos", "sin", "positions")
        + [("interleaved", c_int32)]
    )


class CLinear(Structure):
    _fields_ = (
        [("size", c_uint32), ("form", c_int32), ("max_len", c_int32), ("scale", c_float)]
        + _tensors(
            "q", "k", "v", "out", "offsets", "initial_state", "final_state", "initial_slots", "final_slots", "log_decay", "g", "beta",
        )
        + [("normalize_qk", c_int32)]
    )


class CHstu(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("max_seq_len", c_int32),
        ("alpha", c_float),
        ("contextual", c_int32),
        ("max_attn_len", c_int32),
        ("min_full", c_int32),
    ] + _tensors(
        "q", "k", "v", "out", "offsets", "q_offsets", "num_targets", "position_bias", "time_bias", "time_bounds", "times",
    )


class CFlexBuffer(Structure):
    _fields_ = [("name", c_char_p), ("tensor", TensorPtr)]


class CFlex(Structure):
    _fields_ = (
        [("size", c_uint32), ("num_buffers", c_int32), ("buffers", POINTER(CFlexBuffer)), ("mask", c_char_p), ("score", c_char_p)]
        + [("scale", c_float)]
        + _tensors("q", "k", "v", "out", "lse", "q_offsets", "kv_offsets", "kv_lens", "page_table")
        + [("blocks", POINTER(c_int64))]
    )


# What a function returns and takes; "status" is turned into an exception by status().
_FUNCTIONS = {
    "fovea_last_error": (c_char_p, []),
    "fovea_abi_version": (c_uint32, []),
    "fovea_version": (c_char_p, []),
    "fovea_cuda_built": (ctypes.c_int, []),
    "fovea_load_backend": (ctypes.c_int, [c_char_p]),
    "fovea_backends_json": (ctypes.c_int, [POINTER(c_char_p)]),
    "fovea_attention_spec_init": (None, [POINTER(CSpec)]),
    "fovea_attention_create": (
        ctypes.c_int,
        [POINTER(CSpec), POINTER(CLimits), c_char_p, CDevice, c_uint32, POINTER(c_size_t), POINTER(c_void_p)],
    ),
    "fovea_attention_destroy": (None, [c_void_p]),
    "fovea_attention_backend": (c_char_p, [c_void_p, c_int32]),
    "fovea_attention_explain": (c_char_p, [c_void_p]),
    "fovea_attention_plan": (ctypes.c_int, [c_void_p, POINTER(CStep), TensorPtr, c_void_p]),
    "fovea_attention_check": (ctypes.c_int, [c_void_p, c_int64, c_void_p]),
    "fovea_attention_prepare_capture": (ctypes.c_int, [c_void_p, POINTER(CStep), TensorPtr, c_void_p]),
    "fovea_attention_update_capture": (ctypes.c_int, [c_void_p, POINTER(CStep), c_void_p]),
    "fovea_attention_run": (ctypes.c_int, [c_void_p, POINTER(CLayer), c_void_p]),
    "fovea_append": (ctypes.c_int, [POINTER(CAppend), c_void_p]),
    "fovea_copy_pages": (ctypes.c_int, [TensorPtr] * 4 + [c_void_p]),
    "fovea_gather": (ctypes.c_int, [TensorPtr, TensorPtr, c_float, c_float] + [TensorPtr] * 3 + [c_void_p]),
    "fovea_merge_states": (ctypes.c_int, [TensorPtr] * 4 + [c_void_p]),
    "fovea_merge_state": (ctypes.c_int, [TensorPtr] * 6 + [c_void_p]),
    "fovea_lightning_attention": (ctypes.c_int, [POINTER(CLinear), c_void_p]),
    "fovea_gated_delta_rule": (ctypes.c_int, [POINTER(CLinear), c_void_p]),
    "fovea_hstu_attention": (ctypes.c_int, [POINTER(CHstu), c_void_p]),
    "fovea_flex_attention": (ctypes.c_int, [POINTER(CFlex), c_void_p]),
    "fovea_hstu_time_bounds": (ctypes.c_int, [c_int32, POINTER(c_int64)]),
}


def _library_path() -> str:
    named = os.environ.get("FOVEA_LIBRARY")
    if named:
        return named
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libfovea.so")


def _load() -> ctypes.CDLL:
    path = _library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"fovea: {path} can't be loaded ({error}); install the wheel, or set FOVEA_LIBRARY to a built libfovea.so"
        ) from None
    library.fovea_abi_version.restype = c_uint32
    version = library.fovea_abi_version()
    if version != ABI_VERSION:
        raise ImportError(
            f"fovea: {path} has ABI version {version}; this package is for {ABI_VERSION}: take both from one release"
        )
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib: Any = _load()

_EXCEPTIONS = {1: ValueError, 2: ValueError, 3: ValueError, 4: MemoryError, 5: OSError}


def error_of(status: int, text: str) -> Exception:
    """What `status`, which is not FOVEA_OK, means: ValueError for what was asked wrongly or is not supported,
    MemoryError, OSError, and RuntimeError for the rest."""
    return _EXCEPTIONS.get(status, RuntimeError)(text)


def fail(status: int) -> None:
    """Raises error_of(), with the library's text."""
    raise error_of(status, lib.fovea_last_error().decode("utf-8", "replace"))


def check(status: int) -> None:
    if status:
        fail(status)


# (address, shape, strides in elements, (type code, bits), (device type, device id)): an array as the library sees it.
Arg = Tuple[int, Tuple[int, ...], Tuple[int, ...], Tuple[int, int], Tuple[int, int]]

MAX_DIMS = 6


class Slot:
    """A fovea_tensor that is filled again and again; what did not change since the last time costs nothing."""

    __slots__ = ("c", "ptr", "_shape", "_strides", "_what")

    def __init__(self) -> None:
        self._shape = (c_int64 * MAX_DIMS)()
        self._strides = (c_int64 * MAX_DIMS)()
        self.c = CTensor()
        self.c.shape = ctypes.cast(self._shape, POINTER(c_int64))
        self.c.strides = ctypes.cast(self._strides, POINTER(c_int64))
        self.c.dtype.lanes = 1
        self.ptr = ctypes.pointer(self.c)
        self._what: Any = None

    def put(self, arg: Arg) -> None:
        c = self.c
        c.data = arg[0]
        what = arg[1:]
        if what == self._what:
            return
        shape, strides, dtype, device = what
        if len(shape) > MAX_DIMS:
            raise ValueError(f"an array has {len(shape)} dimensions; at most {MAX_DIMS} are allowed")
        self._what = None  # until all of it is in place
        for i, (n, stride) in enumerate(zip(shape, strides)):
            self._shape[i] = n
            self._strides[i] = stride
        c.ndim = len(shape)
        c.dtype.code, c.dtype.bits = dtype
        c.device.type, c.device.id = device
        self._what = what


class Fields:
    """A struct whose tensor fields are Slots."""

    __slots__ = ("c", "ref", "_slots", "_there")

    def __init__(self, struct: Any) -> None:
        self.c = struct()
        self.c.size = ctypes.sizeof(struct)
        self.ref = ctypes.byref(self.c)
        self._slots: dict = {}
        self._there: set = set()

    def put(self, name: str, arg: Arg) -> Slot:
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = Slot()
        slot.put(arg)
        if name not in self._there:
            setattr(self.c, name, slot.ptr)
            self._there.add(name)
        return slot

    def drop(self, name: str) -> None:
        if name in self._there:
            setattr(self.c, name, None)
            self._there.remove(name)

    def put_all(self, args: dict) -> None:
        """The fields of `args` that are not None, and no others."""
        there, given = self._there, 0
        for name, arg in args.items():
            if arg is not None:
                self.put(name, arg)
                given += 1
        if given != len(there):
            for name in [name for name in there if args.get(name) is None]:
                self.drop(name)


def tensor(arg: Optional[Arg]) -> Any:
    """A pointer for one call."""
    if arg is None:
        return None
    slot = Slot()
    slot.put(arg)
    return slot.ptr
