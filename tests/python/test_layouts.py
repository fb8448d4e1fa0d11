"""Layouts of caches over numpy on the CPU: AITER's, vLLM's x-packed, SGLang's token pool, and fp8 caches with scales of heads, pages
and rows. Each against a definition in fp64, and bit for bit against plain pages."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)
from reference import assert_close, attention, e4m3, visible

import fovea

RNG = np.random.default_rng(3)
HEADS, KV_HEADS, DIM, V_DIM = 4, 2, 32, 48
LENS, Q_LENS = (37, 0, 64, 5), (3, 1, 8, 1)
BACKENDS = "CPU_ATTN", "TORCH_NATIVE"


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


class Cache:
    """Keys of sequences of LENS in shuffled pages [pages, page, Hkv, D], of `dtype` or, as uint8, of e4m3."""

    def __init__(self, page, dtype):
        self.page, self.dtype = page, dtype
        self.fp8 = dtype == "fp8_e4m3"
        counts = [-(-n // page) for n in LENS]
        ids = RNG.permutation(sum(counts) + 2)
        self.table = np.full((len(LENS), max(counts) + 1), -9, np.int32)
        total = len(ids)
        self.k, self.v = (self.values((total, page, KV_HEADS, d)) for d in (DIM, V_DIM))
        self.indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        self.indices = ids[: sum(counts)].astype(np.int32)
        used = np.zeros((total, page), bool)
        for b, n in enumerate(LENS):
            self.table[b, : counts[b]] = self.indices[self.indptr[b] : self.indptr[b + 1]]
            for j in range(n):
                used[self.table[b, j // page], j % page] = True
        nan = 0x7F if self.fp8 else np.nan  # where no key is
        self.k[~used], self.v[~used] = nan, nan

    def values(self, shape):
        if not self.fp8:
            return normal(*shape, dtype=self.dtype)
        codes = RNG.integers(0, 256, shape).astype(np.uint8)
        return np.where((codes & 127) >= 0x70, codes ^ 0x40, codes).astype(np.uint8)  # none above 32, and no NaN

    def of(self, b, scales=None):
        """k, v [n, Hkv, D] of sequence b in fp64; scales [pages, page, Hkv] of K and of V."""
        out = []
        for i, x in enumerate((self.k, self.v)):
            x = e4m3(x) if self.fp8 else x.astype(np.float64)
            if scales is not None:
                x = x * scales[i][..., None]
            pages = self.table[b, : -(-LENS[b] // self.page)]
            out.append(x[pages].reshape(-1, KV_HEADS, x.shape[-1])[: LENS[b]])
        return out


def x_of(array):
    return 16 // array.itemsize


def packed_k(k):
    """[pages, page, H, D] as [pages, H, D / x, page, x]."""
    pages, page, heads, dim = k.shape
    x = x_of(k)
    return np.ascontiguousarray(k.reshape(pages, page, heads, dim // x, x).transpose(0, 2, 3, 1, 4))


def packed_v(v):
    """As [pages, H, Dv, page]."""
    return np.ascontiguousarray(v.transpose(0, 2, 3, 1))


def shuffled_v(v):
    """AITER's [pages, H, page / x, Dv, x]."""
    pages, page, heads, dim = v.shape
    x = x_of(v)
    return np.ascontiguousarray(v.reshape(pages, page // x, x, heads, dim).transpose(0, 3, 1, 4, 2))


FORMS = {
    "NHD": ({}, lambda k: k, lambda v: v),
    "HND": ({}, lambda k: np.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2), lambda v: np.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2)),
    "x_packed": ({"kv_x_packed": True}, packed_k, packed_v),
    "shuffle": ({"kv_shuffle": True}, packed_k, shuffled_v),
}
TYPES = {"float32": "float32", "float16": "float16", "fp8_e4m3": "float32"}  # of the cache, and of q


def offsets(counts):
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def attend(cache, q, k, v, backend, form, scales=None, **plan):
    spec = fovea.AttentionSpec(
        HEADS, KV_HEADS, DIM, q.dtype.name, V_DIM, kv_dtype="fp8_e4m3" if cache.fp8 else "auto", page_size=cache.page,
        per_head_scales=scales is not None, **form,
    )
    object_ = fovea.Attention(spec, fovea.Limits(8, 32, 1024, 256), backend=backend)
    object_.plan(offsets(Q_LENS), np.int32(LENS), **(plan or {"page_table": cache.table}))
    out, lse = np.full((len(q), HEADS, V_DIM), np.nan, q.dtype), np.full((len(q), HEADS), np.nan, np.float32)
    extra = {} if scales is None else {"k_scales": scales[0], "v_scales": scales[1]}
    object_.run(q, k, v, out=out, lse=lse, **extra)
    return out, lse


class Checked(unittest.TestCase):
    def check(self, cache, q, out, lse, scales=None):
        cu = offsets(Q_LENS)
        dtype = q.dtype.name
        for b, n in enumerate(LENS):
            rows = slice(cu[b], cu[b + 1])
            wanted, wanted_lse = attention(q[rows], *cache.of(b, scales), visible(Q_LENS[b], n, True))
            size = max(np.abs(wanted).max(), 1.0) if wanted.size else 1.0
            assert_close(self, out[rows] / size, wanted / size, dtype)
            assert_close(self, lse[rows], wanted_lse, "float16")  # scores of fp8 are large


class Layouts(Checked):
    def test_each_form_has_the_bits_of_plain_pages(self):
        for page in (16, 32):
            for dtype, q_type in TYPES.items():
                cache, q = Cache(page, dtype), normal(sum(Q_LENS), HEADS, DIM, dtype=q_type)
                for backend in BACKENDS:
                    wanted = None
                    for name, (form, of_k, of_v) in FORMS.items():
                        for plan in ({}, {"kv_indptr": cache.indptr, "kv_indices": cache.indices}):
                            with self.subTest(page=page, dtype=dtype, backend=backend, form=name, lists=bool(plan)):
                                out, lse = attend(cache, q, of_k(cache.k), of_v(cache.v), backend, form, **plan)
                                if wanted is None:
                                    self.check(cache, q, out, lse)
                                    wanted = out, lse
                                np.testing.assert_array_equal(out, wanted[0])
                                np.testing.assert_array_equal(lse, wanted[1])

    def test_parts_of_larger_arrays(self):
        """Pages, heads and chunks of a packed cache may lie apart: one allocation for K and V of all layers."""
        cache, q = Cache(16, "float16"), normal(sum(Q_LENS), HEADS, DIM, dtype="float16")
        wanted, _ = attend(cache, q, cache.k, cache.v, "CPU_ATTN", {})
        for name in ("x_packed", "shuffle"):
            form, of_k, of_v = FORMS[name]
            parts = []
            for x in (of_k(cache.k), of_v(cache.v)):
                wide = np.full((x.shape[0], 2, x.shape[1] + 1) + x.shape[2:], np.nan, x.dtype)
                wide[:, 1, 1:] = x
                parts.append(wide[:, 1, 1:])
            out, _ = attend(cache, q, *parts, "CPU_ATTN", form)
            np.testing.assert_array_equal(out, wanted)

    def test_append_gather_and_copy(self):
        """Rows that are appended to a packed cache lie where a packed copy of the plain one has them."""
        for dtype in ("float32", "float16"):
            for name in ("x_packed", "shuffle"):
                _, of_k, of_v = FORMS[name]
                with self.subTest(dtype=dtype, form=name):
                    plain = [np.full((5, 16, KV_HEADS, d), np.nan, dtype) for d in (DIM, V_DIM)]
                    packed = [of_k(plain[0]), of_v(plain[1])]
                    k, v = normal(6, KV_HEADS, DIM, dtype=dtype), normal(6, KV_HEADS, V_DIM, dtype=dtype)
                    slots = np.int32([3, 79, -1, 17, 16, 40])
                    for caches in (plain, packed):
                        fovea.append_kv(k, v, *caches, slots=slots)
                    np.testing.assert_array_equal(packed[0], of_k(plain[0]))
                    np.testing.assert_array_equal(packed[1], of_v(plain[1]))
                    there = slots[slots >= 0]
                    got = np.empty((5, KV_HEADS, DIM), dtype), np.empty((5, KV_HEADS, V_DIM), dtype)
                    fovea.gather(*packed, there, k=got[0], v=got[1])
                    np.testing.assert_array_equal(got[0], k[slots >= 0])
                    np.testing.assert_array_equal(got[1], v[slots >= 0])
                    for caches in (plain, packed):
                        fovea.copy_pages(*caches, np.int32([0]), np.int32([3]))
                    np.testing.assert_array_equal(packed[1], of_v(plain[1]))

    def test_refusals(self):
        cache, q = Cache(16, "float16"), normal(sum(Q_LENS), HEADS, DIM, dtype="float16")
        k, v = packed_k(cache.k), shuffled_v(cache.v)
        with self.assertRaisesRegex(ValueError, r"k has shape .*x-packed .* x = 8"):
            attend(cache, q, cache.k, v, "CPU_ATTN", {"kv_shuffle": True})
        with self.assertRaisesRegex(ValueError, r"v has shape .*shuffled .* x = 8"):
            attend(cache, q, k, packed_v(cache.v), "CPU_ATTN", {"kv_shuffle": True})
        with self.assertRaisesRegex(ValueError, r"k has shape .* \[pages, page size, Hkv, D\]"):
            attend(cache, q, k, v, "CPU_ATTN", {})
        with self.assertRaisesRegex(ValueError, "multiple of 8"):
            fovea.Attention(
                fovea.AttentionSpec(4, 2, 32, "float16", page_size=12, kv_shuffle=True), fovea.Limits(1, 1, 1, 1), backend="CPU_ATTN"
            )
        with self.assertRaisesRegex(ValueError, "kv_x_packed and kv_shuffle"):
            fovea.Attention(fovea.AttentionSpec(4, 2, 32, kv_x_packed=True, kv_shuffle=True), fovea.Limits(1, 1, 1, 1))


class TokenPool(unittest.TestCase):
    """SGLang's: k [slots, Hkv, D], and the slots of each sequence's tokens as int32, in a list or a row of a table of requests."""

    def test_slots(self):
        slots = RNG.permutation(200)[: sum(LENS)].astype(np.int32)
        indptr = offsets(LENS)
        k, v = np.full((200, KV_HEADS, DIM), np.nan, np.float32), np.full((200, KV_HEADS, V_DIM), np.nan, np.float32)
        k[slots], v[slots] = normal(len(slots), KV_HEADS, DIM), normal(len(slots), KV_HEADS, V_DIM)
        requests = np.full((6, 70), -1, np.int32)  # req_to_token, whose rows 4, 0, 3 and 5 are the batch's
        pool_indices = np.int32([4, 0, 3, 5])
        for b, n in enumerate(LENS):
            requests[pool_indices[b], :n] = slots[indptr[b] : indptr[b + 1]]
        q, cu = normal(sum(Q_LENS), HEADS, DIM), offsets(Q_LENS)
        wanted = [
            attention(q[cu[b] : cu[b + 1]], k[part], v[part], visible(Q_LENS[b], n, True))[0]
            for b, n in enumerate(LENS) for part in (slots[indptr[b] : indptr[b + 1]],)
        ]
        for backend in BACKENDS:
            bits = None
            for dtype in (np.int32, np.int64):
                for arrays in (
                    {"kv_indptr": indptr.astype(dtype), "kv_indices": slots.astype(dtype)},
                    {"page_table": requests[pool_indices].astype(dtype)},
                ):
                    for pool in ((k, v), (k[:, None], v[:, None])):
                        spec = fovea.AttentionSpec(HEADS, KV_HEADS, DIM, "float32", V_DIM, page_size=1)
                        object_ = fovea.Attention(spec, fovea.Limits(8, 32, 1024, 256), backend=backend)
                        object_.plan(cu, np.int32(LENS), num_pages=200, **arrays)
                        out = object_.run(q, *pool)
                        for b in range(len(LENS)):
                            assert_close(self, out[cu[b] : cu[b + 1]], wanted[b])
                        bits = out if bits is None else bits
                        np.testing.assert_array_equal(out, bits)
        same = fovea.flash_attn_varlen_func(
            q, k[:, None], v[:, None], cu, None, 8, 64, causal=True, block_table=requests[pool_indices], seqused_k=np.int32(LENS)
        )
        for b in range(len(LENS)):
            assert_close(self, same[cu[b] : cu[b + 1]], wanted[b])
        wrapper = fovea.flashinfer.BatchPrefillWithPagedKVCacheWrapper()
        wrapper.plan(
            cu, indptr, slots, np.ones(4, np.int32), HEADS, KV_HEADS, DIM, 1, head_dim_vo=V_DIM, causal=True, q_data_type="float32"
        )
        np.testing.assert_array_equal(wrapper.run(q, (k[:, None], v[:, None])), same)
        with self.assertRaisesRegex(ValueError, "is 200; the cache has pages 0 to 199"):
            object_.plan(cu, np.int32(LENS), num_pages=200, kv_indptr=indptr, kv_indices=np.where(slots == slots[5], 200, slots))


class Scales(Checked):
    """fp8 caches with fp32 scales: of heads [Hkv], and of pages, slots and heads [pages, page, Hkv], with strides of 0 where a scale
    holds for more: of a page of 128 keys, of a sequence's pages."""

    def scales(self, *shape):
        return (2.0 ** RNG.uniform(-3, 3, shape)).astype(np.float32)

    def forms(self, cache):
        pages, page = cache.k.shape[:2]

        def expanded(x, shape):
            return np.broadcast_to(x, shape)

        whole = (pages, page, KV_HEADS)
        by_sequence = np.full((2, pages, 1, KV_HEADS), np.nan, np.float32)
        for b in range(len(LENS)):
            by_sequence[:, cache.table[b][cache.table[b] >= 0]] = self.scales(2, 1, 1, KV_HEADS)
        yield "heads", [self.scales(KV_HEADS) for _ in "kv"]
        yield "pages", [expanded(self.scales(pages, 1, 1), whole) for _ in "kv"]
        yield "pages and heads", [expanded(self.scales(pages, 1, KV_HEADS), whole) for _ in "kv"]
        yield "sequences and heads", [expanded(x, whole) for x in by_sequence]
        yield "slots and heads", [self.scales(*whole) for _ in "kv"]

    def test_granularities(self):
        for page in (16, 128):
            cache, q = Cache(page, "fp8_e4m3"), normal(sum(Q_LENS), HEADS, DIM)
            whole = cache.k.shape[:3]
            for name, scales in self.forms(cache):
                full = [np.broadcast_to(s, whole).astype(np.float64) for s in scales]
                for backend in BACKENDS:
                    for form_name, (form, of_k, of_v) in FORMS.items():
                        with self.subTest(page=page, scales=name, backend=backend, form=form_name):
                            out, lse = attend(cache, q, of_k(cache.k), of_v(cache.v), backend, form, scales)
                            self.check(cache, q, out, lse, full)

    def test_half_queries_and_rows(self):
        """float16 queries, and a ragged tensor with scales of its rows: blocks of 128 keys of each sequence, repeated."""
        cache = Cache(16, "fp8_e4m3")
        q = normal(sum(Q_LENS), HEADS, DIM, dtype="float16")
        scales = [self.scales(KV_HEADS) for _ in "kv"]
        out, lse = attend(cache, q, cache.k, cache.v, "CPU_ATTN", {}, scales)
        self.check(cache, q, out, lse, [np.broadcast_to(s, cache.k.shape[:3]).astype(np.float64) for s in scales])
        lens, cu_k = (300, 129), offsets((300, 129))
        k, v = cache.values((429, KV_HEADS, DIM)), cache.values((429, KV_HEADS, V_DIM))
        blocks = self.scales(2, 2, 3, KV_HEADS)  # of K and V, sequence, block of 128 keys, head
        rows = [np.concatenate([blocks[i, b].repeat(128, 0)[:n] for b, n in enumerate(lens)]) for i in range(2)]
        q, spec = normal(7, HEADS, DIM), fovea.AttentionSpec(
            HEADS, KV_HEADS, DIM, "float32", V_DIM, kv_dtype="fp8_e4m3", page_size=1, per_head_scales=True
        )
        for backend in BACKENDS:
            object_ = fovea.Attention(spec, fovea.Limits(2, 8, 512, 512), backend=backend)
            object_.plan(np.int32([0, 3, 7]), np.int32(lens), kv_indptr=cu_k)
            out = object_.run(q, k, v, k_scales=rows[0], v_scales=rows[1])
            for b, n in enumerate(lens):
                part, keys = slice(3 * b, 3 + 4 * b), slice(cu_k[b], cu_k[b + 1])
                wanted, _ = attention(
                    q[part], e4m3(k[keys]) * rows[0][keys][..., None], e4m3(v[keys]) * rows[1][keys][..., None],
                    visible(3 + b, n, True),
                )
                size = np.abs(wanted).max()
                assert_close(self, out[part] / size, wanted / size)

    def test_what_is_not_seen_is_not_read(self):
        """Scales of slots without keys, and of other sequences, may be NaN."""
        cache, q = Cache(16, "fp8_e4m3"), normal(sum(Q_LENS), HEADS, DIM)
        scales = [self.scales(*cache.k.shape[:3]) for _ in "kv"]
        wanted, _ = attend(cache, q, cache.k, cache.v, "CPU_ATTN", {}, scales)
        for s, x in zip(scales, (cache.k, cache.v)):
            s[(x == 0x7F).all(-1)] = np.nan
        out, _ = attend(cache, q, cache.k, cache.v, "CPU_ATTN", {}, scales)
        np.testing.assert_array_equal(out, wanted)

    def test_refusals_of_scales(self):
        cache, q = Cache(16, "fp8_e4m3"), normal(sum(Q_LENS), HEADS, DIM)
        good = self.scales(KV_HEADS)
        for scales, words in (
            ((good, None), "v_scales"), ((good[:1], good), r"k_scales has shape \(1\)|k_scales"),
            ((self.scales(3, 16, KV_HEADS),) * 2, "pages"), ((self.scales(*cache.k.shape[:3]), good), "v_scales|dimensions"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                attend(cache, q, cache.k, cache.v, "CPU_ATTN", {}, scales)
        strided = self.scales(*cache.k.shape[:2], 2 * KV_HEADS)[..., ::2]
        with self.assertRaisesRegex(ValueError, "k_scales has strides .* and v_scales"):
            attend(cache, q, cache.k, cache.v, "CPU_ATTN", {}, (strided, self.scales(*cache.k.shape[:3])))


if __name__ == "__main__":
    unittest.main()
