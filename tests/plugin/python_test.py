"""fovea.load_backend(): a backend outside of the library is listed, chosen by name and right; others are refused.
    python_test.py FOLDER_OF_LIBRARIES"""

import sys
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)

import fovea

FOLDER = Path(sys.argv[1])


class LoadBackend(unittest.TestCase):
    def test_refuses_what_is_no_backend(self) -> None:
        for path, reason in (
            ("/no/such.so", "there is no such file"),
            (FOLDER / "no_library.so", "it can't be loaded"),
            (FOLDER / "backend_version_2.so", "it exports fovea_backend_v2; this Fovea loads fovea_backend_v1"),
            (FOLDER / "backend_other_name.so", "'TORCH_NATIVE' is a name of TORCH_NATIVE already"),
        ):
            with self.assertRaises(ValueError) as raised:
                fovea.load_backend(path)
            self.assertIn(reason, str(raised.exception))

    def test_loads_and_runs(self) -> None:
        def names() -> list[str]:
            return [row["name"] for row in fovea.backends()["backends"]]

        self.assertNotIn("EXAMPLE_ATTN", names())
        fovea.load_backend(FOLDER / "example_attn.so")
        self.assertEqual(names()[-1], "EXAMPLE_ATTN")
        with self.assertRaisesRegex(ValueError, "'EXAMPLE_ATTN' is a name of EXAMPLE_ATTN already"):
            fovea.load_backend(FOLDER / "example_attn.so")

        random = np.random.default_rng(1)
        q = random.standard_normal((5, 4, 32), dtype=np.float32)
        k, v = (random.standard_normal((3, 16, 2, 32), dtype=np.float32) for _ in "kv")
        outs = {}
        for name in ("EXAMPLE_ATTN", "TORCH_NATIVE"):
            spec = fovea.AttentionSpec(num_heads=4, num_kv_heads=2, head_dim=32, dtype="float32", window_left=9)
            limits = fovea.Limits(max_seqs=2, max_tokens=5, max_kv_tokens=48, max_kv_len=32)
            attention = fovea.Attention(spec, limits, backend=name)
            self.assertEqual((attention.backend("prefill"), attention.backend("decode")), (name, name))
            attention.plan(
                np.array([0, 2, 5], np.int32), np.array([20, 16], np.int32),
                page_table=np.array([[2, 0], [1, 77]], np.int32),
            )
            outs[name] = np.full_like(q, np.nan)
            attention.run(q, k, v, out=outs[name])
        np.testing.assert_allclose(outs["EXAMPLE_ATTN"], outs["TORCH_NATIVE"], atol=1e-6)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
