"""What the loaded library has."""

import ctypes
import json
from typing import Any

from ._lib import check, lib


def backends() -> Any:
    """Every backend that the library knows and what it can do, as `fovea backends --json` prints it."""
    text = ctypes.c_char_p()
    check(lib.fovea_backends_json(ctypes.byref(text)))
    return json.loads(text.value or b"null")


def has_cuda() -> bool:
    """Whether the library was built with its CUDA code."""
    return bool(lib.fovea_cuda_built())
