"""Information about the loaded library."""

import ctypes
import json
import os
from typing import Any, Union

from ._lib import check, lib


def backends() -> Any:
    """Every backend that the library knows or that was loaded, and what it can do, as `fovea backends --json` prints it."""
    text = ctypes.c_char_p()
    check(lib.fovea_backends_json(ctypes.byref(text)))
    return json.loads(text.value or b"null")


def load_backend(path: Union[str, "os.PathLike[str]"]) -> None:
    """Loads a shared library with an attention backend (docs/adding-a-backend.md): `backend=` takes its name from now on, and the
    automatic choice tries it after the library's own. It stays loaded until the process ends. ValueError: there is no
    such file, it is no backend of this version, or a backend of its name is loaded already."""
    check(lib.fovea_load_backend(os.fsencode(path)))


def has_cuda() -> bool:
    """Whether the library was built with its CUDA code."""
    return bool(lib.fovea_cuda_built())
