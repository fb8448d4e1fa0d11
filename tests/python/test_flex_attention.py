"""flex_attention over numpy on the CPU against the definition in fp64."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)

import fovea

RNG = np.random.default_rng(5)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def definition(q, k, v, mask=None, score=None, scale=None):
    """[B, H, S, D] in fp64; mask and score as functions of arrays: mask(b, h, q, k), score(s, b, h, q, k)."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * (scale or q.shape[-1] ** -0.5)
    b, h, i, j = np.ix_(*(np.arange(n) for n in s.shape))
    if score is not None:
        s = score(s, b, h, i, j)
    if mask is not None:
        s = np.where(mask(b, h, i, j), s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isinf(top), 0, top))
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        out = np.where(total > 0, np.einsum("bhqk,bhkd->bhqd", p, v) / total, 0)
        return out, (np.log(total) + top)[..., 0]


class FlexAttention(unittest.TestCase):
    def check(self, q, k, v, mask="", score="", buffers=None, mask_is=None, score_is=None, **options):
        want, want_lse = definition(q, k, v, mask_is, score_is, options.get("scale"))
        out, lse = fovea.flex_attention(q, k, v, mask, score, buffers, return_lse=True, **options)
        tolerance = 2e-5 if q.dtype == np.float32 else 3e-3
        np.testing.assert_allclose(out.astype("float64"), want, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(lse, want_lse, atol=3e-5, rtol=3e-5)

    def test_documents_and_bias(self):
        q, k, v = normal(2, 4, 150, 32), normal(2, 2, 150, 32), normal(2, 2, 150, 24)
        bias = normal(4)
        for ids in (np.repeat(np.arange(3), 50), np.repeat(np.arange(3), 50).astype("int32")):
            self.check(
                q, k, v, "k <= q && doc[q] == doc[k]", "s + bias[h] * (k - q)", {"doc": ids, "bias": bias},
                lambda b, h, i, j: (j <= i) & (ids[i] == ids[j]), lambda s, b, h, i, j: s + bias.astype("float64")[h] * (j - i),
            )

    def test_bools_two_dimensions_and_half(self):
        q, k, v = (normal(2, h, n, 64, dtype="float16") for h, n in ((2, 9), (2, 77), (2, 77)))
        keep = RNG.random((2, 77)) < 0.6
        self.check(q, k, v, "keep[b, k]", "", {"keep": keep}, lambda b, h, i, j: keep[b, j], scale=0.3)
        wide = RNG.random((2, 154)) < 0.5
        self.check(q, k, v, "keep[b][k]", "", {"keep": wide[:, :77]}, lambda b, h, i, j: wide[b, j])

    def test_layouts(self):
        q, k, v = normal(1, 2, 33, 16), normal(1, 1, 40, 16), normal(1, 1, 40, 16)
        want, lse = fovea.flex_attention(q, k, v, "k <= q", return_lse=True)
        other = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
        got, other_lse, blocks = fovea.flex_attention(*other, "k <= q", layout="bshd", return_lse=True, return_blocks=True)
        np.testing.assert_array_equal(got.swapaxes(1, 2), want)
        np.testing.assert_array_equal(other_lse.swapaxes(1, 2), lse)
        self.assertEqual(blocks, (0, 2, 0))
        out = np.full((1, 2, 33, 16), np.nan, "float32")
        self.assertIs(fovea.flex_attention(q, k, v, "k <= q", out=out), out)
        np.testing.assert_array_equal(out, want)

    def test_ragged_and_pages(self):
        q_offsets, kv_offsets = np.int32([0, 3, 3, 40]), np.int64([0, 20, 25, 90])
        q, k, v = normal(40, 4, 16), normal(90, 2, 16), normal(90, 2, 8)
        mask = "k <= q + klen - qlen"
        out, lse = fovea.flex_attention(q, k, v, mask, q_offsets=q_offsets, kv_offsets=kv_offsets, return_lse=True)
        pages, table = np.full((30, 7, 2, 16), np.nan, "float32"), np.zeros((3, 10), "int32")
        values = np.full((30, 7, 2, 8), np.nan, "float32")
        free = iter(RNG.permutation(30))
        for b in range(3):
            i, j = slice(*q_offsets[b : b + 2]), slice(*kv_offsets[b : b + 2])
            want, want_lse = definition(
                *(x[s].swapaxes(0, 1)[None] for x, s in ((q, i), (k, j), (v, j))),
                lambda _b, h, i, j, n=j.stop - j.start - (i.stop - i.start): j <= i + n,
            )
            np.testing.assert_allclose(out[i], want[0].swapaxes(0, 1), atol=2e-5)
            np.testing.assert_allclose(lse[i], want_lse[0].T, atol=2e-5)
            for n in range(j.stop - j.start):
                if n % 7 == 0:
                    table[b, n // 7] = next(free)
                pages[table[b, n // 7], n % 7], values[table[b, n // 7], n % 7] = k[j.start + n], v[j.start + n]
        paged = fovea.flex_attention(
            q, pages, values, mask, q_offsets=q_offsets, kv_lens=np.diff(kv_offsets), page_table=table,
        )
        np.testing.assert_array_equal(paged, out)

    def test_refusals(self):
        q = normal(1, 2, 5, 16)
        for message, call in (
            ("mask, column 8: comparisons don't chain", lambda: fovea.flex_attention(q, q, q, "0 <= k < q")),
            ("mask, column 1: unknown name 'doc'", lambda: fovea.flex_attention(q, q, q, "doc[q] == 1")),
            ("score, column 4: expected an operand.*found the end", lambda: fovea.flex_attention(q, q, q, score="s +")),
            ("buffer 'd' has dtype.*it must be int32, float32, uint8 or int64", lambda: fovea.flex_attention(q, q, q, buffers={"d": np.zeros(3)})),
            ("buffer 'd' has shape \\[0\\]", lambda: fovea.flex_attention(q, q, q, buffers={"d": np.zeros(0, "int32")})),
            ("buffer 'd'.*\\[n\\] or \\[n, m\\]", lambda: fovea.flex_attention(q, q, q, buffers={"d": np.zeros((1, 1, 1), "int32")})),
            ("buffer 'd'.*4294967296; it must fit 32 bits", lambda: fovea.flex_attention(q, q, q, buffers={"d": np.int64([2**32])})),
            ("buffer 'q' has a name that the language uses", lambda: fovea.flex_attention(q, q, q, buffers={"q": np.zeros(3, "int32")})),
            ("k has shape", lambda: fovea.flex_attention(q, normal(2, 2, 5, 16), q)),
            ("layout is 'x'", lambda: fovea.flex_attention(q, q, q, layout="x")),
            ("kv_lens is given without q_offsets|must have 4", lambda: fovea.flex_attention(q, q, q, kv_lens=np.int32([5]))),
            ("give kv_offsets", lambda: fovea.flex_attention(q[0], q[0], q[0], q_offsets=np.int32([0, 2]))),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                call()


if __name__ == "__main__":
    unittest.main()
