"""Which devices the torch tests run on, and the definition of attention over torch tensors."""

import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: torch is not installed, so nothing of it is tested")
    sys.exit(77)

import numpy as np
from reference import attention, visible

import fovea

DEVICES = ["cpu"]
if torch.cuda.is_available() and fovea.has_cuda():
    DEVICES.append("cuda")


def has_float32(device):
    """Whether a backend of the device serves float32."""
    try:
        fovea.Attention(fovea.AttentionSpec(2, 2, 64, "float32"), fovea.Limits(1, 1, 16, 16), device=device)
    except ValueError as error:
        print(f"SKIPPED: float32 on {device}: {error}")
        return False
    return True


FLOAT32 = {device: has_float32(device) for device in DEVICES}


def skip_line():
    """Why there is no GPU to test on; empty when there is."""
    if "cuda" in DEVICES:
        return ""
    return "no GPU that torch can use" if not torch.cuda.is_available() else "libfovea was built without CUDA"


def need_cuda():
    reason = skip_line()
    if reason:
        print(f"SKIPPED: {reason}")
        sys.exit(77)


def normal(*shape, dtype=torch.float32, device="cpu", seed=None):
    if seed is not None:
        torch.manual_seed(seed)
    return torch.randn(shape, dtype=torch.float32).to(device=device, dtype=dtype)


def ints(values, device="cpu", dtype=torch.int32):
    return torch.tensor(values, dtype=dtype, device=device)


def array(x):
    return x.detach().to("cpu", torch.float64).numpy()


def expected(q, k, v, causal=False, window=(-1, -1), chunk=0, **options):
    """out and lse of one sequence, as numpy arrays."""
    seen = visible(q.shape[0], k.shape[0], causal, window, chunk)
    return attention(array(q), array(k), array(v), seen, **{n: array(x) if torch.is_tensor(x) else x for n, x in options.items()})


class TorchTest(unittest.TestCase):
    def close(self, actual, wanted, dtype=torch.float32, what=""):
        bound = {torch.float32: 3e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[dtype]
        actual = array(actual)
        wanted = array(wanted) if torch.is_tensor(wanted) else wanted
        self.assertEqual(actual.shape, wanted.shape, what)
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(actual[~finite], wanted[~finite], err_msg=what)
        np.testing.assert_allclose(actual[finite], wanted[finite], rtol=bound, atol=bound, err_msg=what)
