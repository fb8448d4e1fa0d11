"""Arrays of torch, numpy, cupy and whatever else speaks DLPack, as the library sees them: without copies.

Each framework is an object with the few things that the functions of this package need: describe an array, allocate
one, name the current CUDA stream, make small constants. torch and cupy are looked at only when the caller has
imported them."""

import sys
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _dlpack
from ._lib import BFLOAT, BOOL, CPU, CUDA, CUDA_HOST, FLOAT, FLOAT8_E4M3FN, FLOAT8_E5M2, INT, UINT, Arg, int32

Device = Tuple[int, int]
DType = Tuple[int, int]

DTYPES: Dict[str, DType] = {
    "float32": (FLOAT, 32),
    "float16": (FLOAT, 16),
    "bfloat16": (BFLOAT, 16),
    "float64": (FLOAT, 64),
    "float8_e4m3fn": (FLOAT8_E4M3FN, 8),
    "float8_e5m2": (FLOAT8_E5M2, 8),
    "int8": (INT, 8),
    "int16": (INT, 16),
    "int32": (INT, 32),
    "int64": (INT, 64),
    "uint8": (UINT, 8),
    "bool": (BOOL, 8),
}
DTYPE_NAMES = {code: name for name, code in DTYPES.items()}
_DTYPE_ALIASES = {"half": "float16", "float": "float32"}


def dtype_name(dtype: Any) -> str:
    """"bfloat16" of "bfloat16", torch.bfloat16, numpy.dtype("float16"), numpy.float16."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    name = name.rsplit(".", 1)[-1]
    name = _DTYPE_ALIASES.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"dtype is {dtype}; allowed are {', '.join(DTYPES)}")
    return name


def dtype_code(dtype: Any) -> DType:
    return DTYPES[dtype_name(dtype)]


def parse_device(device: Any) -> Device:
    """(DLPack's device type, id) of "cpu", "cuda", "cuda:1", a torch.device, or such a pair."""
    if isinstance(device, tuple) and len(device) == 2:
        return int32(device[0], "the device's type"), int32(device[1], "the device's number")
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and not number:
        return CPU, 0
    if kind == "cuda" and (not number or number.isdigit()):
        if number:
            return CUDA, int32(int(number), "the number of the device")
        torch = sys.modules.get("torch")
        return CUDA, torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0
    raise ValueError(f'device is {device!r}; allowed are "cpu", "cuda", "cuda:N"')


def device_name(device: Device) -> str:
    return "cpu" if device[0] == CPU else f"cuda:{device[1]}" if device[0] == CUDA else f"DLPack device {device}"


def contiguous_strides(shape: Sequence[int]) -> Tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * max(shape[i + 1], 1)
    return tuple(strides)


class Framework:
    """What the package asks of the library that an array comes from."""

    name = ""
    has_arithmetic = True  # makes and computes small index arrays on the array's device

    def describe(self, x: Any) -> Arg:
        raise NotImplementedError

    def address(self, x: Any) -> int:
        return self.describe(x)[0]

    def describe_written(self, x: Any, name: str) -> Arg:
        """describe() of what the library will write to."""
        return self.describe(x)

    def stream(self, device: Device) -> Optional[int]:
        """The current CUDA stream; None is the default one."""
        return None

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        """Uninitialised and contiguous, on the device of `like`."""
        raise NotImplementedError

    def capturing(self) -> bool:
        return False

    def refuse_grad(self, *arrays: Any) -> None:
        pass

    def arange(self, start: int, stop: int, step: int, like: Any) -> Any:
        """int32."""
        raise NotImplementedError

    def full(self, shape: Sequence[int], value: Any, dtype: str, like: Any) -> Any:
        raise NotImplementedError

    def cast(self, x: Any, dtype: str) -> Any:
        """`x` itself where it has the dtype."""
        raise NotImplementedError

    def narrow(self, x: Any) -> Any:
        """As int32 where it is int64 and on a GPU."""
        return x

    def is_contiguous(self, x: Any) -> bool:
        raise NotImplementedError

    def contiguous(self, x: Any) -> Any:
        raise NotImplementedError

    def searchsorted(self, sorted_: Any, values: Any) -> Any:
        """For each value the number of entries <= it."""
        raise NotImplementedError

    def clip_below(self, x: Any, least: int) -> Any:
        raise NotImplementedError

    xp: Any = None
    """The module with concatenate, stack, where, cos and sin (the axis by position)."""

    def array(self, values: Sequence[float], dtype: str, like: Any) -> Any:
        """Of numbers that the host has, on the device of `like`."""
        raise NotImplementedError


class _Numpy(Framework):
    """numpy, and cupy by the same names."""

    def __init__(self, module: Any) -> None:
        self.module = self.xp = module
        self.name = module.__name__
        self._itemsize: Dict[Any, Tuple[DType, int]] = {}

    def _dtype(self, dtype: Any) -> Tuple[DType, int]:
        known = self._itemsize.get(dtype)
        if known is None:
            if not dtype.isnative:  # whose name is that of the native one
                raise ValueError(f"an array has dtype {dtype.str}, of the other byte order; convert it by astype()")
            known = self._itemsize[dtype] = (dtype_code(dtype.name), dtype.itemsize)
        return known

    def describe(self, x: Any) -> Arg:
        dtype, itemsize = self._dtype(x.dtype)
        strides = x.strides
        if itemsize != 1:
            for s in strides:
                if s % itemsize:
                    raise ValueError(f"an array has strides of {strides} bytes; they must be multiples of its element's {itemsize}")
            strides = tuple([s // itemsize for s in strides])
        return x.ctypes.data, x.shape, strides, dtype, (CPU, 0)

    def describe_written(self, x: Any, name: str) -> Arg:
        if not x.flags.writeable:
            raise ValueError(f"{name} is a read-only array, but it is written to: pass a writable array or a copy")
        return self.describe(x)

    def _resolve(self, dtype: str) -> Any:
        try:
            return self.module.dtype(dtype)
        except TypeError:  # of ml_dtypes, which registers by import
            import ml_dtypes

            return self.module.dtype(getattr(ml_dtypes, dtype))

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return self.module.empty(shape, self._resolve(dtype))

    def arange(self, start: int, stop: int, step: int, like: Any) -> Any:
        return self.module.arange(start, stop, step, dtype="int32")

    def full(self, shape: Sequence[int], value: Any, dtype: str, like: Any) -> Any:
        return self.module.full(tuple(shape), value, dtype=self._resolve(dtype))

    def cast(self, x: Any, dtype: str) -> Any:
        return x.astype(self._resolve(dtype), copy=False)

    def is_contiguous(self, x: Any) -> bool:
        return x.flags.c_contiguous

    def contiguous(self, x: Any) -> Any:
        return self.module.ascontiguousarray(x)

    def searchsorted(self, sorted_: Any, values: Any) -> Any:
        return self.module.searchsorted(sorted_, values, side="right")

    def clip_below(self, x: Any, least: int) -> Any:
        return self.module.maximum(x, least)

    def array(self, values: Sequence[float], dtype: str, like: Any) -> Any:
        return self.module.asarray(values, dtype=dtype)


class _Cupy(_Numpy):
    def describe_written(self, x: Any, name: str) -> Arg:
        return self.describe(x)

    def describe(self, x: Any) -> Arg:
        dtype, itemsize = self._dtype(x.dtype)
        return x.data.ptr, x.shape, tuple([s // itemsize for s in x.strides]), dtype, (CUDA, x.device.id)

    def stream(self, device: Device) -> Optional[int]:
        return self.module.cuda.get_current_stream(device[1]).ptr or None

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        with like.device:
            return super().empty(shape, dtype, like)

    def arange(self, start: int, stop: int, step: int, like: Any) -> Any:
        with like.device:
            return super().arange(start, stop, step, like)

    def full(self, shape: Sequence[int], value: Any, dtype: str, like: Any) -> Any:
        with like.device:
            return super().full(shape, value, dtype, like)

    def array(self, values: Sequence[float], dtype: str, like: Any) -> Any:
        with like.device:
            return super().array(values, dtype, like)

    def narrow(self, x: Any) -> Any:
        return self.cast(x, "int32") if x.dtype == "int64" else x

    def capturing(self) -> bool:
        return bool(self.module.cuda.get_current_stream().is_capturing())


class _Torch(Framework):
    name = "torch"

    def __init__(self, torch: Any) -> None:
        self.torch = self.xp = torch
        self._codes = {getattr(torch, name): code for name, code in DTYPES.items() if hasattr(torch, name)}
        self._of_name = {name: getattr(torch, name) for name in DTYPES if hasattr(torch, name)}
        self._devices: Dict[Any, Device] = {}
        # The raw handle without a Stream object around it, where this torch has it: it is asked for in every call.
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._raw_stream = raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)
        self._has_cuda = False

    def _device(self, device: Any) -> Device:
        if device.type == "cpu":
            kind = (CPU, 0)
        elif device.type == "cuda":
            kind = (CUDA, device.index or 0)
            self._has_cuda = True
        else:
            raise ValueError(f"a tensor lies on {device}; allowed are cpu and cuda")
        self._devices[device] = kind
        return kind

    def describe(self, x: Any) -> Arg:
        device = x.device
        dtype = self._codes.get(x.dtype)
        if dtype is None:
            raise ValueError(f"a tensor has dtype {x.dtype}; allowed are {', '.join(DTYPES)}")
        return x.data_ptr(), x.shape, x.stride(), dtype, self._devices.get(device) or self._device(device)

    def address(self, x: Any) -> int:
        return x.data_ptr()

    def stream(self, device: Device) -> Optional[int]:
        return self._raw_stream(device[1]) or None

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        return self.torch.empty(shape, dtype=self._of_name[dtype], device=like.device)

    def capturing(self) -> bool:
        return self._has_cuda and self.torch.cuda.is_current_stream_capturing()

    def refuse_grad(self, *arrays: Any) -> None:
        if not self.torch.is_grad_enabled():
            return
        for x in arrays:
            if getattr(x, "requires_grad", False):
                raise ValueError(
                    f"a tensor of shape {tuple(x.shape)} has requires_grad; Fovea is for inference and has no backward: "
                    "call it under torch.no_grad() or torch.inference_mode()"
                )

    def arange(self, start: int, stop: int, step: int, like: Any) -> Any:
        return self.torch.arange(start, stop, step, dtype=self.torch.int32, device=like.device)

    def full(self, shape: Sequence[int], value: Any, dtype: str, like: Any) -> Any:
        return self.torch.full(tuple(shape), value, dtype=getattr(self.torch, dtype), device=like.device)

    def cast(self, x: Any, dtype: str) -> Any:
        return x.to(getattr(self.torch, dtype))

    def narrow(self, x: Any) -> Any:
        return x.to(self.torch.int32) if x.dtype is self.torch.int64 and x.device.type != "cpu" else x

    def is_contiguous(self, x: Any) -> bool:
        return x.is_contiguous()

    def contiguous(self, x: Any) -> Any:
        return x.contiguous()

    def searchsorted(self, sorted_: Any, values: Any) -> Any:
        return self.torch.searchsorted(sorted_, values, right=True)

    def clip_below(self, x: Any, least: int) -> Any:
        return x.clamp(min=least)

    def array(self, values: Sequence[float], dtype: str, like: Any) -> Any:
        return self.torch.tensor(values, dtype=self._of_name[dtype], device=like.device)


class _DLPack(Framework):
    """Any other object that exports DLPack. Results are fovea.Tensor, on the CPU only."""

    name = "DLPack"
    has_arithmetic = False

    def describe(self, x: Any) -> Arg:
        return _dlpack.view(x)

    def empty(self, shape: Sequence[int], dtype: str, like: Any) -> Any:
        device = tuple(like.__dlpack_device__())
        if device[0] not in (CPU, CUDA_HOST):
            raise ValueError(
                f"q is a {type(like).__name__} on {device_name(device)}: results are allocated by torch, cupy or numpy, "
                "and by fovea.Tensor on the CPU; pass out= (and lse=)"
            )
        return _dlpack.Tensor(shape, dtype)


_DLPACK = _DLPack()
_of_type: Dict[type, Framework] = {_dlpack.Tensor: _DLPACK}


def framework_of(x: Any) -> Framework:
    found = _of_type.get(type(x))
    return found if found is not None else _find(x)


def _find(x: Any) -> Framework:
    kind = type(x)
    found: Optional[Framework] = None
    for module, base, make in (("torch", "Tensor", _Torch), ("numpy", "ndarray", _Numpy), ("cupy", "ndarray", _Cupy)):
        imported = sys.modules.get(module)
        if imported is not None and isinstance(x, getattr(imported, base)):
            root = getattr(imported, base)
            found = _of_type.get(root)
            if found is None:
                found = _of_type[root] = make(imported)
                if module == "torch":
                    from . import torch_ops

                    torch_ops.register()
            break
    if found is None and hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        found = _DLPACK
    if found is None:
        raise ValueError(f"an array is a {kind.__name__}; allowed are arrays of torch, numpy, cupy, and objects with __dlpack__")
    _of_type[kind] = found
    return found


def describe(x: Any) -> Optional[Arg]:
    """None of None."""
    if x is None:
        return None
    found = _of_type.get(type(x))
    return (found if found is not None else _find(x)).describe(x)


def describe_written(x: Any, name: str) -> Optional[Arg]:
    """describe() of an array that the library will write to."""
    return None if x is None else framework_of(x).describe_written(x, name)
