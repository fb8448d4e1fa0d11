"""The functions over cupy arrays, and objects of no known framework on a GPU, against the fp64 definition."""

import sys
import unittest

try:
    import cupy
    import numpy as np
except ImportError:
    print("SKIPPED: cupy is not installed")
    sys.exit(77)
from reference import assert_close, attention, visible

import fovea

try:
    there = cupy.cuda.runtime.getDeviceCount() > 0 and fovea.has_cuda()
except cupy.cuda.runtime.CUDARuntimeError:
    there = False
if not there:
    print("SKIPPED: no GPU that cupy can use, or libfovea was built without CUDA")
    sys.exit(77)


def normal(*shape):
    return cupy.random.standard_normal(shape).astype("float16")


class Foreign:
    def __init__(self, x):
        self.x, self.shape = x, x.shape

    def __dlpack__(self, **_):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Cupy(unittest.TestCase):
    def check(self, out, q, k, v, what=""):
        wanted, _ = attention(q.get(), k.get(), v.get(), visible(len(q), len(k), True))
        assert_close(self, out.get(), wanted, "float16", what)

    def test_functions(self):
        q, k, v = normal(2, 5, 4, 64), normal(2, 40, 2, 64), normal(2, 40, 2, 64)
        out, lse = fovea.flash_attn_func(q, k, v, causal=True, return_softmax_lse=True)
        self.assertIsInstance(out, cupy.ndarray)
        self.assertEqual((out.dtype, lse.dtype, lse.shape), (np.float16, np.float32, (2, 4, 5)))
        for b in range(2):
            self.check(out[b], q[b], k[b], v[b])
        for dtype in ("int32", "int64"):
            cu_q, cu_k = cupy.asarray([0, 2, 5], dtype), cupy.asarray([0, 30, 40], dtype)
            ragged = fovea.flash_attn_varlen_func(q[0], k[0], v[0], cu_q, cu_k, 5, 40, causal=True)
            self.check(ragged[2:], q[0, 2:], k[0, 30:], v[0, 30:])
            lens = cupy.asarray([7, 33], dtype)
            caches = k.copy(), v.copy()
            new = normal(2, 1, 2, 64), normal(2, 1, 2, 64)
            out = fovea.flash_attn_with_kvcache(q[:, :1], *caches, *new, cache_seqlens=lens, causal=True)
            for b, n in enumerate((7, 33)):
                self.check(out[b], q[b, :1], cupy.concatenate((k[b, :n], new[0][b])), cupy.concatenate((v[b, :n], new[1][b])))

    def test_streams(self):
        q, k = normal(1, 64, 4, 64), normal(1, 64, 4, 64)
        wanted = fovea.flash_attn_func(q, k, k, causal=True)
        cupy.cuda.get_current_stream().synchronize()  # q and k may still be on their way, and the next stream waits for none
        with cupy.cuda.Stream(non_blocking=True) as stream:
            out = fovea.flash_attn_func(q, k, k, causal=True)
            stream.synchronize()
        self.assertTrue(bool((out == wanted).all()))

    def test_any_dlpack_array(self):
        spec = fovea.AttentionSpec(4, 2, 64, "float16", page_size=1)
        attention_ = fovea.Attention(spec, fovea.Limits(1, 8, 64, 64), device="cuda")
        q, k = normal(5, 4, 64), normal(40, 2, 64)
        cu_q, cu_k, lens = (cupy.asarray(x, "int32") for x in ([0, 5], [0, 40], [40]))
        cupy.cuda.get_current_stream().synchronize()
        attention_.plan(Foreign(cu_q), Foreign(lens), kv_indptr=Foreign(cu_k), num_tokens=5)
        with self.assertRaisesRegex(ValueError, "q is a Foreign on cuda:0.*out="):
            attention_.run(Foreign(q), Foreign(k), Foreign(k))
        out = cupy.full((5, 4, 64), cupy.nan, "float16")
        attention_.run(Foreign(q), Foreign(k), Foreign(k), out=out)
        self.check(out, q, k, k)


if __name__ == "__main__":
    unittest.main()
