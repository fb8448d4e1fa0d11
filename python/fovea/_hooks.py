"""What torch_ops puts in place once torch is there: whether torch.compile traces, and the custom ops to call then."""

from typing import Any


def compiling() -> bool:
    return False


ops: Any = None  # torch.ops.fovea
