"""The package over numpy on the CPU: every function against the fp64 definition, and what is refused."""

import gc
import sys
import unittest
import unittest.mock
import weakref

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)
from reference import assert_close, attention, rotate, tables, visible

import fovea

RNG = np.random.default_rng(7)


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def poisoned(shape, dtype="float32"):
    return np.full(shape, np.nan, dtype)


def lse_of(outs):
    """[n, H] of sequences as [B, H, n]."""
    return np.stack([x.T for x in outs])


class FlashAttnFunc(unittest.TestCase):
    def check(self, q, k, v, dtype="float32", sink=None, **options):
        seen = visible(
            q.shape[1], k.shape[1], options.get("causal", False), options.get("window_size", (-1, -1)),
            options.get("attention_chunk", 0),
        )
        wanted = [
            attention(
                q[b], k[b], v[b], seen, options.get("softmax_scale"), options.get("softcap", 0.0), options.get("alibi_slopes"),
                sink, sink_in_lse=True,
            )
            for b in range(q.shape[0])
        ]
        out = poisoned(q.shape[:3] + v.shape[3:], dtype)
        if sink is not None:
            options["learnable_sink"] = sink
        result, lse = fovea.flash_attn_func(q, k, v, out=out, return_softmax_lse=True, **options)
        self.assertIs(result, out)
        assert_close(self, out, np.stack([o for o, _ in wanted]), dtype)
        assert_close(self, lse, lse_of([x for _, x in wanted]))
        again = fovea.flash_attn_func(q, k, v, **options)
        np.testing.assert_array_equal(again, out)

    def test_masks(self):
        for n_q, n_k in ((5, 5), (1, 37), (7, 40), (40, 7), (33, 129)):
            q, k, v = normal(2, n_q, 6, 32), normal(2, n_k, 2, 32), normal(2, n_k, 2, 32)
            for options in (
                {}, {"causal": True}, {"window_size": (3, 2)}, {"window_size": (4, -1), "causal": True}, {"window_size": (-1, 3)},
                {"window_size": (5, 0)}, {"causal": True, "attention_chunk": 8},
            ):
                with self.subTest(n_q=n_q, n_k=n_k, **options):
                    self.check(q, k, v, **options)

    def test_scores(self):
        q, k, v = normal(2, 9, 4, 16), normal(2, 21, 2, 16), normal(2, 21, 2, 16)
        for options in (
            {"softmax_scale": 0.3}, {"softcap": 2.0, "causal": True}, {"alibi_slopes": np.float32([0.5, 0.25, 0.1, 0.02])},
            {"sink": np.float32([1.0, -2.0, 0.0, 3.0]), "causal": True},
        ):
            with self.subTest(**options):
                self.check(q, k, v, **options)

    def test_float16_and_value_head_size(self):
        q, k, v = (normal(2, n, h, d, dtype="float16") for n, h, d in ((5, 4, 64), (19, 2, 64), (19, 2, 32)))
        self.check(q, k, v, dtype="float16", causal=True)

    def test_strided(self):
        k, v = normal(2, 4, 21, 32).transpose(0, 2, 1, 3), normal(2, 4, 21, 64).transpose(0, 2, 1, 3)[..., :32]
        with self.assertRaisesRegex(ValueError, "q has strides.*last dimension"):
            fovea.flash_attn_func(normal(2, 9, 4, 64)[..., ::2], k, v)
        for q in (
            normal(2, 9, 4, 3, 32)[:, :, :, 1], normal(2, 4, 9, 32).transpose(0, 2, 1, 3), normal(2, 12, 4, 32)[:, :9],
            normal(9, 2, 4, 32).transpose(1, 0, 2, 3), np.broadcast_to(normal(1, 9, 4, 32), (2, 9, 4, 32)),
            np.broadcast_to(normal(2, 9, 1, 32), (2, 9, 4, 32)), np.broadcast_to(normal(2, 1, 4, 32), (2, 9, 4, 32)),
        ):
            with self.subTest(shape=q.shape, strides=q.strides):
                self.check(q, k, v, causal=True)
        q = normal(2, 9, 3, 4, 32)[:, :, 1]
        self.check(q, k, v, causal=True)
        apart = normal(2, 30, 4, 32)
        self.check(q, apart[:, :21], apart[:, 5:26], causal=True)
        self.check(q, k[:1].repeat(2, 0), np.broadcast_to(v[:1], v.shape), causal=True)
        for axis in range(3):  # one sequence, key or head seen as many
            one = [slice(None)] * 3
            one[axis] = slice(1)
            self.check(q, *(np.broadcast_to(x[tuple(one)], x.shape) for x in (k, v)), causal=True)

    def test_strided_out(self):
        q, k = normal(2, 9, 4, 32), normal(2, 9, 4, 32)
        wanted = fovea.flash_attn_func(q, k, k, causal=True)
        for shape, axes in (((2, 4, 9, 32), (0, 2, 1, 3)), ((9, 2, 4, 32), (1, 0, 2, 3)), ((4, 9, 2, 32), (2, 1, 0, 3))):
            out = poisoned(shape).transpose(axes)
            fovea.flash_attn_func(q, k, k, causal=True, out=out)
            np.testing.assert_array_equal(out, wanted)
        wide = poisoned((2, 11, 4, 64))
        fovea.flash_attn_func(q, k, k, causal=True, out=wide[:, 1:10, :, 32:])
        np.testing.assert_array_equal(wide[:, 1:10, :, 32:], wanted)
        wide[:, 1:10, :, 32:] = np.nan
        self.assertTrue(np.isnan(wide).all(), "written outside of out")
        with self.assertRaisesRegex(ValueError, "read-only|overlap"):
            fovea.flash_attn_func(q, k, k, out=np.broadcast_to(normal(2, 9, 1, 32), q.shape))
        shared = np.lib.stride_tricks.as_strided(poisoned((2, 9, 1, 32)), q.shape, (9 * 128, 128, 0, 4))
        with self.assertRaisesRegex(ValueError, "out has strides .*overlap"):
            fovea.flash_attn_func(q, k, k, out=shared)

    def test_empty(self):
        q, k = normal(2, 3, 4, 16), normal(2, 0, 2, 16)
        out, lse = fovea.flash_attn_func(q, k, k, return_softmax_lse=True)
        np.testing.assert_array_equal(out, np.zeros_like(q))
        np.testing.assert_array_equal(lse, np.full((2, 4, 3), -np.inf))
        self.assertEqual(fovea.flash_attn_func(q[:0], k[:0], k[:0]).shape, (0, 3, 4, 16))
        self.assertEqual(fovea.flash_attn_func(q[:, :0], k, k).shape, (2, 0, 4, 16))

    def test_calls_alike_share_a_plan(self):
        """Layers of a model plan once; what else uses the same object comes between them, and more shapes than are kept."""
        shapes = [(2, n_q, n_k) for n_q, n_k in ((3, 9), (4, 7), (1, 8), (3, 10), (2, 2), (3, 9))]
        cu, ragged = np.int32([0, 2, 5]), (normal(5, 4, 16), normal(5, 2, 16), normal(5, 2, 16))
        plans = []
        plan = fovea.Attention._plan_step

        def counted(self, *args):
            plans.append(self)
            return plan(self, *args)

        with unittest.mock.patch.object(fovea.Attention, "_plan_step", counted):
            for batch, n_q, n_k in shapes:
                q = normal(batch, n_q, 4, 16)
                for layer in range(4):
                    k, v = normal(batch, n_k, 2, 16), normal(batch, n_k, 2, 16)
                    if layer == 3:
                        fovea.flash_attn_varlen_func(*ragged, cu, cu, 3, 3, causal=True)
                    plans.clear()
                    out, lse = fovea.flash_attn_func(q, k, v, causal=True, return_softmax_lse=True)
                    self.assertLessEqual(len(plans), layer in (0, 3))
                    for b in range(batch):
                        wanted, wanted_lse = attention(q[b], k[b], v[b], visible(n_q, n_k, True))
                        assert_close(self, out[b], wanted)
                        assert_close(self, lse[b], wanted_lse.T)
        kept = fovea._serve.prepared_calls.kept
        self.assertLessEqual(len(kept), fovea._serve._MAX_PREPARED)
        gone = weakref.ref(next(iter(kept.values())))
        gc.disable()
        kept.clear()
        gc.enable()
        self.assertIsNone(gone(), "what is no longer kept holds its workspace")

    def test_long_cache_of_one_object(self):
        """Lengths that round up to the same limits use one object, and its steps do not leak into each other."""
        for n in (17, 31, 18, 5):
            q, k = normal(1, n, 2, 16), normal(1, n, 2, 16)
            self.check(q, k, k, causal=True)

    def test_packed(self):
        qkv = normal(2, 11, 3, 4, 16)
        wanted = fovea.flash_attn_func(*(np.ascontiguousarray(qkv[:, :, i]) for i in range(3)), causal=True)
        np.testing.assert_array_equal(fovea.flash_attn_qkvpacked_func(qkv, causal=True), wanted)
        q, kv = normal(2, 5, 4, 16), normal(2, 11, 2, 2, 16)
        wanted = fovea.flash_attn_func(q, kv[:, :, 0].copy(), kv[:, :, 1].copy(), causal=True)
        np.testing.assert_array_equal(fovea.flash_attn_kvpacked_func(q, kv, causal=True), wanted)
        with self.assertRaisesRegex(ValueError, r"qkv has shape \(2, 11, 2, 2, 16\)"):
            fovea.flash_attn_qkvpacked_func(kv)


class Varlen(unittest.TestCase):
    lens_q, lens_k = (3, 0, 7, 1, 4), (9, 4, 7, 33, 0)

    def data(self, dtype=np.int32):
        cu_q, cu_k = (np.concatenate(([0], np.cumsum(n))).astype(dtype) for n in (self.lens_q, self.lens_k))
        return normal(15, 4, 16), normal(53, 2, 16), normal(53, 2, 16), cu_q, cu_k

    def wanted(self, q, k, v, cu_q, cu_k, used=None, **options):
        outs, lses = [], []
        for b, (n_q, n_k) in enumerate(zip(self.lens_q, self.lens_k)):
            n_k = n_k if used is None else int(used[b])
            keys = slice(cu_k[b], cu_k[b] + n_k)
            out, lse = attention(q[cu_q[b] : cu_q[b + 1]], k[keys], v[keys], visible(n_q, n_k, **options))
            outs.append(out)
            lses.append(lse)
        return np.concatenate(outs), np.concatenate(lses).T

    def test_ragged(self):
        for dtype in (np.int32, np.int64):
            q, k, v, cu_q, cu_k = self.data(dtype)
            for options in ({}, {"causal": True}, {"causal": True, "window": (4, -1)}):
                with self.subTest(dtype=dtype, **options):
                    wanted, wanted_lse = self.wanted(q, k, v, cu_q, cu_k, **options)
                    out = poisoned((15, 4, 16))
                    _, lse = fovea.flash_attn_varlen_func(
                        q, k, v, cu_q, cu_k, 7, 33, causal=options.get("causal", False),
                        window_size=options.get("window", (-1, -1)), return_softmax_lse=True, out=out,
                    )
                    assert_close(self, out, wanted)
                    assert_close(self, lse, wanted_lse)

    def test_seqused(self):
        q, k, v, cu_q, cu_k = self.data()
        used = np.int32([5, 0, 7, 20, 0])
        wanted, _ = self.wanted(q, k, v, cu_q, cu_k, used, causal=True)
        k[5:9] = np.nan  # not used
        assert_close(self, fovea.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 33, causal=True, seqused_k=used), wanted)

    def test_paged(self):
        q, k, v, cu_q, cu_k = self.data()
        wanted, wanted_lse = self.wanted(q, k, v, cu_q, cu_k, causal=True)
        for page in (1, 3, 16):
            for dtype in (np.int32, np.int64):
                with self.subTest(page=page, dtype=dtype):
                    k_pages, v_pages, table = paged(k, v, cu_k, page, dtype)
                    used = np.asarray(self.lens_k, dtype)
                    out, lse = fovea.flash_attn_varlen_func(
                        q, k_pages, v_pages, cu_q.astype(dtype), None, 7, 33, causal=True, block_table=table, seqused_k=used,
                        return_softmax_lse=True,
                    )
                    assert_close(self, out, wanted)
                    assert_close(self, lse, wanted_lse)
                    again = fovea.flash_attn_varlen_func(q, k_pages, v_pages, cu_q, cu_k, 7, 33, causal=True, block_table=table)
                    np.testing.assert_array_equal(again, out)

    def test_packed(self):
        qkv, cu = normal(15, 3, 2, 16), np.int32([0, 3, 10, 15])
        parts = [np.ascontiguousarray(qkv[:, i]) for i in range(3)]
        wanted = fovea.flash_attn_varlen_func(*parts, cu, cu, 7, 7, causal=True)
        np.testing.assert_array_equal(fovea.flash_attn_varlen_qkvpacked_func(qkv, cu, 7, causal=True), wanted)
        kv = np.ascontiguousarray(qkv[:, 1:])
        np.testing.assert_array_equal(fovea.flash_attn_varlen_kvpacked_func(parts[0], kv, cu, cu, 7, 7, causal=True), wanted)


def paged(k, v, cu, page, dtype=np.int32):
    """Ragged keys in shuffled pages with NaN in what is not used, and garbage in unused entries of the table."""
    counts = [-(-int(n) // page) for n in np.diff(cu)]
    total, width = sum(counts) + 3, max(counts) + 1
    ids = RNG.permutation(total)
    k_pages, v_pages = poisoned((total, page) + k.shape[1:], k.dtype), poisoned((total, page) + v.shape[1:], v.dtype)
    table, next_id = np.full((len(counts), width), -7, dtype), 0
    for b, count in enumerate(counts):
        for i in range(count):
            at = ids[next_id]
            next_id += 1
            table[b, i] = at
            rows = slice(cu[b] + i * page, min(cu[b] + (i + 1) * page, cu[b + 1]))
            n = rows.stop - rows.start
            k_pages[at, :n], v_pages[at, :n] = k[rows], v[rows]
    return k_pages, v_pages, table


class WithKvCache(unittest.TestCase):
    """Caches with NaN where nothing may be read."""

    def setUp(self):
        self.lens = np.int32([5, 0, 17])
        self.room = 24

    def caches(self, rows=3):
        return poisoned((rows, self.room, 2, 16)), poisoned((rows, self.room, 2, 16))

    def fill(self, k_cache, v_cache, where):
        old = []
        for b, n in enumerate(self.lens):
            k, v = normal(n, 2, 16), normal(n, 2, 16)
            k_cache[where[b], :n], v_cache[where[b], :n] = k, v
            old.append((k, v))
        return old

    def check(self, call, n_q, old, k=None, v=None, causal=True, rope=None, window=(-1, -1)):
        """call(q, k, v) runs; what it wrote and returned is compared."""
        q = normal(3, n_q, 4, 16)
        out, lse = call(q)
        for b, n in enumerate(self.lens):
            q_b, (k_b, v_b) = q[b], old[b]
            if k is not None:
                k_new = k[b]
                if rope is not None:
                    cos, sin, interleaved = rope
                    k_new = rotate(k_new, n + np.arange(k.shape[1]), cos, sin, interleaved)
                    local = causal or window != (-1, -1)
                    q_b = rotate(q_b, n + (np.arange(n_q) if local else np.zeros(n_q, int)), cos, sin, interleaved)
                k_b, v_b = np.concatenate((k_b, k_new)), np.concatenate((v_b, v[b]))
            wanted, wanted_lse = attention(q_b, k_b, v_b, visible(n_q, len(k_b), causal, window))
            assert_close(self, out[b], wanted)
            assert_close(self, lse[b], wanted_lse.T)

    def test_reads(self):
        k_cache, v_cache = self.caches()
        old = self.fill(k_cache, v_cache, range(3))
        for n_q in (1, 4):
            for dtype in (np.int32, np.int64):
                self.check(
                    lambda q: fovea.flash_attn_with_kvcache(
                        q, k_cache, v_cache, cache_seqlens=self.lens.astype(dtype), causal=True, return_softmax_lse=True
                    ),
                    n_q, old,
                )
            self.check(
                lambda q: fovea.flash_attn_with_kvcache(
                    q, k_cache, v_cache, cache_seqlens=self.lens, window_size=(3, 1), return_softmax_lse=True
                ),
                n_q, old, causal=False, window=(3, 1),
            )

    def test_number_and_none_as_lengths(self):
        k_cache, v_cache, q = normal(2, 24, 2, 16), normal(2, 24, 2, 16), normal(2, 1, 4, 16)
        whole = fovea.flash_attn_func(q, k_cache, v_cache)
        np.testing.assert_array_equal(fovea.flash_attn_with_kvcache(q, k_cache, v_cache), whole)
        part = fovea.flash_attn_func(q, k_cache[:, :9].copy(), v_cache[:, :9].copy())
        np.testing.assert_array_equal(fovea.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=9), part)

    def test_append_with_and_without_rotation(self):
        cos, sin = tables(64, 6)
        for n_q, n_new in ((1, 1), (4, 4), (2, 5)):
            for causal in (True, False):
                for interleaved in (None, True, False):
                    with self.subTest(n_q=n_q, n_new=n_new, causal=causal, interleaved=interleaved):
                        k_cache, v_cache = self.caches()
                        old = self.fill(k_cache, v_cache, range(3))
                        k, v = normal(3, n_new, 2, 16), normal(3, n_new, 2, 16)
                        rope = {} if interleaved is None else {
                            "rotary_cos": cos, "rotary_sin": sin, "rotary_interleaved": interleaved
                        }
                        before = None

                        def call(q):
                            nonlocal before
                            before = q.copy()
                            result = fovea.flash_attn_with_kvcache(
                                q, k_cache, v_cache, k, v, cache_seqlens=self.lens, causal=causal, return_softmax_lse=True, **rope
                            )
                            np.testing.assert_array_equal(q, before)
                            return result

                        self.check(
                            call, n_q, old, k, v, causal, None if interleaved is None else (cos, sin, interleaved)
                        )
                        for b, n in enumerate(self.lens):
                            np.testing.assert_array_equal(v_cache[b, n : n + n_new], v[b])
                            self.assertTrue(np.isnan(k_cache[b, n + n_new :]).all())

    def test_cache_batch_idx(self):
        for dtype in (np.int32, np.int64):
            k_cache, v_cache = self.caches(5)
            where = np.asarray([4, 0, 2], dtype)
            old = self.fill(k_cache, v_cache, where)
            k, v = normal(3, 2, 2, 16), normal(3, 2, 2, 16)
            self.check(
                lambda q: fovea.flash_attn_with_kvcache(
                    q, k_cache, v_cache, k, v, cache_seqlens=self.lens, cache_batch_idx=where, causal=True, return_softmax_lse=True
                ),
                2, old, k, v,
            )
            # A column of a table: its entries lie apart.
            apart = np.full((3, 3), 1, dtype)
            apart[:, 1] = where
            self.check(
                lambda q: fovea.flash_attn_with_kvcache(
                    q, k_cache, v_cache, k, v, cache_seqlens=self.lens, cache_batch_idx=apart[:, 1], causal=True,
                    return_softmax_lse=True,
                ),
                2, old, k, v,
            )

    def test_rotation_of_q_with_chunks(self):
        """As with a window, each row at its own position."""
        k_cache, v_cache = self.caches()
        old = self.fill(k_cache, v_cache, range(3))
        k, v, cos, sin = normal(3, 4, 2, 16), normal(3, 4, 2, 16), *tables(64, 8)
        self.check(
            lambda q: fovea.flash_attn_with_kvcache(
                q, k_cache, v_cache, k, v, cos, sin, self.lens, attention_chunk=64, return_softmax_lse=True
            ),
            4, old, k, v, causal=False, rope=(cos, sin, True), window=(64, 64),
        )

    def test_page_table(self):
        cu = np.concatenate(([0], np.cumsum(self.lens)))
        cos, sin = tables(64, 8)
        for name in ("page_table", "block_table"):
            flat_k, flat_v = normal(cu[-1], 2, 16), normal(cu[-1], 2, 16)
            room = self.lens + 4
            grown = np.concatenate(([0], np.cumsum(room)))
            k_all, v_all = poisoned((grown[-1], 2, 16)), poisoned((grown[-1], 2, 16))
            old = []
            for b, n in enumerate(self.lens):
                k_all[grown[b] : grown[b] + n], v_all[grown[b] : grown[b] + n] = flat_k[cu[b] : cu[b + 1]], flat_v[cu[b] : cu[b + 1]]
                old.append((flat_k[cu[b] : cu[b + 1]], flat_v[cu[b] : cu[b + 1]]))
            k_pages, v_pages, table = paged(k_all, v_all, grown, 4)
            k, v = normal(3, 4, 2, 16), normal(3, 4, 2, 16)
            self.check(
                lambda q: fovea.flash_attn_with_kvcache(
                    q, k_pages, v_pages, k, v, cos, sin, self.lens, causal=True, rotary_interleaved=False,
                    return_softmax_lse=True, **{name: table},
                ),
                4, old, k, v, rope=(cos, sin, False),
            )

    def test_ragged_queries(self):
        k_cache, v_cache = self.caches()
        old = self.fill(k_cache, v_cache, range(3))
        counts, cu = (2, 0, 3), np.int32([0, 2, 2, 5])
        q, k, v = normal(5, 4, 16), normal(5, 2, 16), normal(5, 2, 16)
        cos, sin = tables(64, 8)
        for causal in (True, False):
            caches = k_cache.copy(), v_cache.copy()
            out, lse = fovea.flash_attn_with_kvcache(
                q, *caches, k, v, cos, sin, self.lens, causal=causal, return_softmax_lse=True, cu_seqlens_q=cu,
                cu_seqlens_k_new=cu, max_seqlen_q=3,
            )
            self.assertEqual(lse.shape, (4, 5))
            for b, n in enumerate(self.lens):
                rows, at = slice(cu[b], cu[b + 1]), n + np.arange(counts[b])
                k_b = np.concatenate((old[b][0], rotate(k[rows], at, cos, sin, True)))
                v_b = np.concatenate((old[b][1], v[rows]))
                q_b = rotate(q[rows], at if causal else at * 0 + n, cos, sin, True)
                wanted, _ = attention(q_b, k_b, v_b, visible(counts[b], len(k_b), causal))
                assert_close(self, out[rows], wanted)


class Promises(unittest.TestCase):
    """What holds for every batch, page table and page size."""

    def test_bits_do_not_depend_on_the_call(self):
        lens = RNG.integers(1, 1000, 64)
        lens[:3] = 1, 1000, 513
        k, v = normal(64, 1008, 8, 32), normal(64, 1008, 8, 32)
        for n_q in (1, 3, 40):
            q = normal(64, n_q, 16, 32)
            wanted = {}
            for batch in (1, 2, 16, 17, 64):
                out = fovea.flash_attn_with_kvcache(
                    q[:batch], k[:batch], v[:batch], cache_seqlens=lens[:batch].astype(np.int32), causal=True
                )
                for b in range(batch):
                    np.testing.assert_array_equal(out[b], wanted.setdefault(b, out[b]), err_msg=f"B = {batch}, {n_q} rows")
            for page, width in ((16, 63), (16, 200), (48, 21), (1, 1008)):
                batch = 5
                need = -(-1008 // page)
                ids = RNG.permutation(batch * need).astype(np.int32).reshape(batch, need)
                pages = [poisoned((batch * need, page, 8, 32)) for _ in "kv"]
                for cache, x in zip(pages, (k, v)):
                    for b in range(batch):
                        rows = poisoned((need * page, 8, 32))
                        rows[:1008] = x[b]
                        cache[ids[b]] = rows.reshape(need, page, 8, 32)
                table = np.full((batch, width), -1, np.int32)
                table[:, : min(need, width)] = ids[:, :width]
                for dtype in (np.int32, np.int64):
                    out = fovea.flash_attn_with_kvcache(
                        q[:batch], *pages, cache_seqlens=lens[:batch].astype(dtype), page_table=table.astype(dtype), causal=True
                    )
                    for b in range(batch):
                        np.testing.assert_array_equal(out[b], wanted[b], err_msg=f"pages of {page}, a table of {width}")

    def test_strided_tables_and_lengths(self):
        q, pages = normal(3, 2, 4, 16), normal(9, 8, 2, 16)
        table, lens = np.int32([[3, 1, 4], [8, 5, 0], [2, 6, 7]]), np.int32([20, 9, 24])
        wanted = fovea.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=lens, page_table=table, causal=True)
        for dtype in (np.int32, np.int64):
            wide = np.full((3, 6), -5, dtype)
            wide[:, ::2] = table
            column = np.full((3, 4), -7, dtype)
            column[:, 1] = lens
            for strided in (wide[:, ::2], np.asfortranarray(table.astype(dtype))):
                out = fovea.flash_attn_with_kvcache(
                    q, pages, pages, cache_seqlens=column[:, 1], page_table=strided, causal=True
                )
                np.testing.assert_array_equal(out, wanted)
        attention_ = fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32", page_size=8), fovea.Limits(4, 8, 128, 32, "many"))
        offsets = np.int64([0, 9, 2, 9, 4, 9, 6])[::2]
        attention_.plan(offsets, column[:, 1], page_table=wide[:, ::2], num_pages=9)
        np.testing.assert_array_equal(attention_.run(q, pages, pages), wanted)
        turned = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(attention_.run(turned, pages, pages), wanted)
        same = fovea.flash_attn_with_kvcache(
            q, pages, pages, cache_seqlens=20, page_table=np.broadcast_to(table[:1], (3, 3)), causal=True
        )
        np.testing.assert_array_equal(same[0], wanted[0])

    def test_page_ids_are_looked_at(self):
        q, pages = normal(2, 1, 4, 16), normal(4, 8, 2, 16)
        for bad in (-1, 4, 2**30):
            table = np.int32([[0, 1], [2, bad]])
            with self.assertRaisesRegex(ValueError, rf"page_table\[1, 1\] is {bad}; k has 4 pages"):
                fovea.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=np.int32([16, 9]), page_table=table)
            attention_ = fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32", page_size=8), fovea.Limits(2, 2, 32, 16))
            with self.assertRaisesRegex(ValueError, rf"page 1 of sequence 1 is {bad}; the cache has pages 0 to 3"):
                attention_.plan(np.int32([0, 1, 2]), np.int32([16, 9]), page_table=table, num_pages=4)
            attention_.plan(np.int32([0, 1, 2]), np.int32([16, 8]), page_table=table, num_pages=4)

    def test_values_that_are_not_finite_stay_where_they_are_seen(self):
        """On a CPU a NaN in V, or K, reaches the rows that see it and no other."""
        q, k, v = normal(2, 70, 4, 16), normal(2, 70, 2, 16), normal(2, 70, 2, 16)
        for window in ((-1, -1), (9, 0)):
            wanted = fovea.flash_attn_func(q, k, v, causal=True, window_size=window)
            for bad in (np.nan, np.inf, -np.inf):
                for spoiled in (k, v):
                    old = spoiled[1, 33, 1].copy()
                    spoiled[1, 33, 1] = bad
                    out = fovea.flash_attn_func(q, k, v, causal=True, window_size=window)
                    spoiled[1, 33, 1] = old
                    rows = np.zeros(wanted.shape[:3], bool)
                    rows[1, 33 : 70 if window[0] < 0 else 43, 2:] = True
                    self.assertFalse(np.isfinite(out[rows]).all(-1).any() if spoiled is v else False)
                    np.testing.assert_array_equal(out[~rows], wanted[~rows])


class Refusals(unittest.TestCase):
    def test_by_name(self):
        q, k, cache = normal(2, 3, 4, 16), normal(2, 3, 2, 16), normal(2, 8, 2, 16)
        cu = np.int32([0, 3, 6])
        func, with_cache = fovea.flash_attn_func, fovea.flash_attn_with_kvcache
        shared = np.lib.stride_tricks.as_strided(cache, cache.shape, (0,) + cache.strides[1:])
        table = [
            (lambda: func(q, k, k, dropout_p=0.1), "dropout_p is 0.1"),
            (lambda: func(q, k, k, return_attn_probs=True), "return_attn_probs is True.*return_softmax_lse"),
            (lambda: func(q, k, k, num_splits=-4), "num_splits is -4.*a hint"),
            (lambda: func(q, k, k, q_descale=q), "q_descale is given.*softmax_scale"),
            (lambda: func(q, k, k, sm_margin=2), "sm_margin is 2"),
            (lambda: func(q, k, k, tune_for="limits"), 'tune_for is .limits.; allowed are "many" and "few"'),
            (lambda: with_cache(q, cache, shared, k, k, cache_seqlens=1), "v_cache has strides .*overlap"),
            (lambda: func(q, k, k, window_size=3 * (1,)), "window_size is"),
            (lambda: func(q, k, k, alibi_slopes=normal(3, 4)), r"alibi_slopes has shape \(3, 4\); the batch has 2 sequences"),
            (lambda: func(q, k, k, learnable_sink=normal(3)), r"learnable_sink has shape \(3,\); allowed is \[4\]"),
            (lambda: func(q, k, k, learnable_sink=normal(4), s_aux=normal(4)), "learnable_sink and s_aux"),
            (lambda: func(q, k[:1], k[:1]), "batch of 2 and k of 1"),
            (lambda: func(q, k, k[:, :2]), "k has shape .* and v"),
            (lambda: func(q[0], k, k), r"q has shape \(3, 4, 16\)"),
            (lambda: func(q.astype(np.float64), k, k), "q has dtype float64"),
            (lambda: func(q, k.astype(np.int32), k.astype(np.int32)), "k and v have dtype int32"),
            (lambda: func(q, k, k.astype(np.float16)), "k has dtype float32 and v float16"),
            (lambda: func(q, k[..., :8], k), "head size of 16 and k of 8"),
            (lambda: func(normal(2, 3, 3, 16), k, k), "num_heads|heads"),
            (lambda: func(q, k, k, out=normal(2, 3, 4, 8)), "out has shape"),
            (lambda: func(q, k, k, softcap=-1.0), "softcap"),
            (lambda: func(q.tolist(), k, k), "an array is a list"),
            (lambda: func(q, k, k, k_descale=normal(3)), r"k_descale has shape \(3,\); allowed are a number, \[2\]"),
            (lambda: fovea.flash_attn_varlen_func(q[0], k[0], k[0], cu, None, 3, 3), "cu_seqlens_k is None"),
            (lambda: fovea.flash_attn_varlen_func(q[0], k[0], k[0], cu, cu, 3, 3, seqused_q=cu), r"seqused_q has shape \(3,\); it must be \[2\]"),
            (lambda: with_cache(q, cache, cache, cache_leftpad=cu), r"cache_leftpad has shape \(3,\); it must be \[2\]"),
            (lambda: with_cache(q, cache, cache, rotary_seqlens=cu), r"rotary_seqlens has shape \(3,\); it must be \[2\]"),
            (lambda: with_cache(q, cache, cache, scheduler_metadata=cu), "scheduler_metadata is given.*plans by itself"),
            (lambda: with_cache(q, cache, cache, block_table=cu, page_table=cu), "block_table and page_table"),
            (lambda: with_cache(q, cache, cache, k, k), "cache_seqlens is None"),
            (lambda: with_cache(q, cache, cache, k, None, cache_seqlens=1), "one of k and v is None"),
            (lambda: with_cache(q, cache, cache, rotary_cos=q, rotary_sin=q), "rotary_cos is given without new k"),
            (lambda: with_cache(q, cache[:1], cache[:1]), "batch of 2 and k_cache of 1"),
            (lambda: with_cache(q, cache, cache, page_table=np.zeros((2, 1), np.int32)), "cache_seqlens is None; with a page"),
            (lambda: with_cache(q, cache, cache, page_table=np.zeros((3, 1), np.int32), cache_seqlens=1), "table has 3 rows"),
            (lambda: fovea.merge_states(q[0], q[0, :, :, 0]), r"\[parts, T, Hq, Dv\]"),
        ]
        for i, (call, words) in enumerate(table):
            with self.subTest(i=i, words=words), self.assertRaisesRegex(ValueError, words):
                call()

    def test_values_that_would_pass_for_others(self):
        """What ctypes would cut, what stands for a default in the C ABI, and what the host sees to be too large."""
        q, k, cache = normal(2, 3, 4, 16), normal(2, 3, 2, 16), normal(2, 8, 2, 16)
        cu, many = np.int32([0, 3, 6]), 2**32
        with_cache = fovea.flash_attn_with_kvcache
        rows, keys = q.reshape(6, 4, 16), k.reshape(6, 2, 16)

        def spec(**changed):
            return fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32", **changed), fovea.Limits(1, 1, 16, 16))

        def limits(*bounds):
            return fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32"), fovea.Limits(*bounds))

        planned = fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32", page_size=1), fovea.Limits(1, 8, 16, 16))
        planned.plan(np.int32([0, 3]), np.int32([3]), kv_indptr=np.int32([0, 3]))
        table = [
            (lambda: spec(window_left=many + 3), "window_left is 4294967299; it must fit 32 bits"),
            (lambda: spec(page_size=many + 16), "page_size is 4294967312"),
            (lambda: spec(v_head_dim=many + 16), "v_head_dim is 4294967312"),
            (lambda: spec(scale=0.0), "scale is 0.0"),
            (lambda: spec(scale=float("nan")), "scale"),
            (lambda: spec(scale=1e300), "scale"),
            (lambda: spec(softcap=float("nan")), "softcap"),
            (lambda: limits(many + 1, 1, 16, 16), "max_seqs is 4294967297"),
            (lambda: limits(1, many + 1, 16, 16), "max_tokens is 4294967297"),
            (lambda: limits(1, 1, 2**64 + 16, 16), "max_kv_tokens is"),
            (lambda: limits(1, 1, 16, many + 16), "max_kv_len is 4294967312"),
            (lambda: limits(-1, 1, 16, 16), "max_seqs is -1"),
            (lambda: fovea.Attention(fovea.AttentionSpec(4, 2, 16), fovea.Limits(1, 1, 1, 1), device=(1 + many, 0)), "device"),
            (lambda: planned.plan(np.int32([0, 3]), np.int32([3]), kv_indptr=np.int32([0, 3]), num_tokens=many + 3), "num_tokens"),
            (lambda: planned.run(q[0], k[0], k[0], k_scale=0.0), "k_scale is 0"),
            (lambda: planned.run(q[0], k[0], k[0], v_scale=float("nan")), "v_scale"),
            (lambda: fovea.flash_attn_func(q, k, k, softmax_scale=0.0), "scale is 0.0"),
            (lambda: fovea.flash_attn_func(q, k, k, v_descale=0), "v_scale is 0"),
            (lambda: fovea.gather(cache, cache, np.int32([0]), k_scale=0.0), "k_scale is 0"),
            (lambda: with_cache(q, cache, cache, cache_seqlens=9), "cache_seqlens is 9 .* 0 to 8"),
            (lambda: with_cache(q, cache, cache, cache_seqlens=-1), "cache_seqlens is -1"),
            (lambda: with_cache(q, cache, cache, k, k, cache_seqlens=6), "cache_seqlens is 6 and k has 3 new rows"),
            (lambda: with_cache(q, cache, cache, page_table=np.int32([[0], [1]]), cache_seqlens=9), "cache_seqlens is 9"),
            (lambda: fovea.flash_attn_varlen_func(rows, keys, keys, cu, cu, 2, 3), "max_seqlen_q is 2 and cu_seqlens_q has 2"),
            (lambda: fovea.flash_attn_varlen_func(rows, keys, keys, cu[:1], cu[:1], 3, 3), "cu_seqlens_q has 0 sequences"),
            (lambda: with_cache(rows, cache, cache, cache_seqlens=3, cu_seqlens_q=cu, max_seqlen_q=1), "max_seqlen_q is 1"),
            (lambda: fovea.flash_attn_func(q, None, k), "k is None"),
            (lambda: with_cache(q, cache, None), "v_cache is None"),
            (lambda: fovea.flash_attn_varlen_func(rows, keys, keys, None, cu, 3, 3), "cu_seqlens_q is None"),
            (lambda: fovea.gather(cache, cache, np.int32(0)), "an array is|slots"),
            (lambda: fovea.flash_attn_func(q, k, k, learnable_sink=[1, 2, 3, 4]), "an array is a list"),
            (lambda: fovea.flash_attn_func(q, k, k, k_descale=fovea.Tensor((2,), "float32")), "k_descale is a Tensor.* of numpy"),
            (lambda: spec(kv_dtype=None), "kv_dtype is None"),
            (lambda: fovea.gather(cache[0, 0], cache, np.int32([0])), "k_cache has shape"),
        ]
        for i, (call, words) in enumerate(table):
            with self.subTest(i=i, words=words), self.assertRaisesRegex(ValueError, words):
                call()

    def test_arrays_that_are_not_what_they_seem(self):
        q, k = normal(2, 3, 4, 16), normal(2, 3, 2, 16)
        swapped = q.astype(">f4")
        with self.assertRaisesRegex(ValueError, "byte order"):
            fovea.flash_attn_func(swapped, k, k)
        out = np.zeros_like(q)
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "out is a read-only array"):
            fovea.flash_attn_func(q, k, k, out=out)
        cache = np.zeros((2, 8, 2, 16), "float32")
        cache.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "k_cache is a read-only array"):
            fovea.flash_attn_with_kvcache(q, cache, cache, k, k, cache_seqlens=1)
        with self.assertRaisesRegex(ValueError, "k_cache is a read-only array"):
            fovea.append_kv(k[0], k[0], cache, cache, slots=np.int32([0, 1, 2]))
        self.assertFalse(cache.any() or out.any())
        fovea.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=1)  # only read

    def test_capsules_that_lie(self):
        import ctypes

        from fovea import _dlpack

        class Liar:
            def __init__(self, **fields):
                self.tensor = fovea.Tensor((2, 3), "float32")
                self.fields = fields

            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **_):
                if "capsule" in self.fields:
                    return self.fields["capsule"]
                capsule = self.tensor.__dlpack__()
                t = ctypes.cast(_dlpack._pointer_of(capsule, b"dltensor"), ctypes.POINTER(_dlpack._Managed)).contents.tensor
                for name, value in self.fields.items():
                    setattr(t, name, value)
                return capsule

        for fields, words in (
            ({"ndim": 1 << 20}, "1048576 dimensions"), ({"ndim": -1}, "-1 dimensions"), ({"shape": None}, "NULL"),
            ({"capsule": 3}, "not a DLPack capsule"), ({"capsule": None}, "not a DLPack capsule"), ({"data": None}, "null"),
        ):
            with self.subTest(**fields), self.assertRaisesRegex(ValueError, words):
                fovea.merge_states(normal(1, 2, 3, 4), Liar(**fields))

    def test_by_the_library(self):
        q, k, cache = normal(2, 1, 4, 16), normal(2, 1, 2, 16), normal(6, 4, 2, 16)
        with self.assertRaisesRegex(ValueError, "page"):
            fovea.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=3, page_table=np.int32([[0], [6]]))
        with self.assertRaisesRegex(ValueError, "(?i)backend"):
            fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32"), fovea.Limits(1, 1, 1, 1), backend="no such")
        with self.assertRaisesRegex(ValueError, "device is"):
            fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32"), fovea.Limits(1, 1, 1, 1), device="tpu")
        with self.assertRaisesRegex(ValueError, "num_heads"):
            fovea.Attention(fovea.AttentionSpec(4, 3, 16, "float32"), fovea.Limits(1, 1, 1, 1))
        with self.assertRaises(ValueError):
            fovea.Attention(fovea.AttentionSpec(4, 2, 16, "float32"), fovea.Limits(1, 1, 1, 1), device="cuda:99")

    def test_indices_that_are_no_integers(self):
        q, k = normal(3, 4, 16), normal(3, 2, 16)
        cu = np.float32([0, 3])
        with self.assertRaisesRegex(ValueError, "int32|int64"):
            fovea.flash_attn_varlen_func(q, k, k, cu, cu, 3, 3)


class PlanAndRun(unittest.TestCase):
    def test_layers_of_a_step(self):
        spec = fovea.AttentionSpec(4, 2, 16, "float32", page_size=4, has_sink=True)
        attention_ = fovea.Attention(spec, fovea.Limits(4, 16, 256, 64))
        self.assertIn(attention_.backend("decode"), attention_.explain())
        with self.assertRaisesRegex(ValueError, "plan"):
            attention_.check()
        lens, counts = np.int32([9, 30, 1]), (1, 4, 1)
        cu_q, cu_k = np.int32([0, 1, 5, 6]), np.int32([0, 9, 39, 40])
        k, v = normal(40, 2, 16), normal(40, 2, 16)
        k_pages, v_pages, table = paged(k, v, cu_k, 4)
        attention_.plan(cu_q, lens, page_table=table)
        attention_.check()
        for _ in range(2):  # layers
            q, sink = normal(6, 4, 16), normal(4)
            out, lse = attention_.run(q, k_pages, v_pages, sinks=sink, return_lse=True)
            for b in range(3):
                rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
                wanted, wanted_lse = attention(q[rows], k[keys], v[keys], visible(counts[b], lens[b], True), sink=sink)
                assert_close(self, out[rows], wanted)
                assert_close(self, lse[rows], wanted_lse)
        with self.assertRaisesRegex(ValueError, "sinks"):
            attention_.run(q, k_pages, v_pages)
        with self.assertRaisesRegex(ValueError, "q has shape"):
            attention_.run(q[0], k_pages, v_pages, sinks=sink)

    def test_beyond_the_limits(self):
        attention_ = fovea.Attention(fovea.AttentionSpec(2, 2, 16, "float32", page_size=1), fovea.Limits(1, 2, 8, 8))
        with self.assertRaisesRegex(ValueError, "8|limit|max"):
            attention_.plan(np.int32([0, 1]), np.int32([9]), kv_indptr=np.int32([0, 9]))
        with self.assertRaisesRegex(ValueError, "max_tokens|limit"):
            attention_.plan(np.int32([0, 3]), np.int32([3]), kv_indptr=np.int32([0, 3]))

    def test_packed_mask(self):
        spec = fovea.AttentionSpec(2, 1, 16, "float32", page_size=1, causal=False, packed_mask=True)
        attention_ = fovea.Attention(spec, fovea.Limits(2, 8, 64, 32))
        counts, lens = (3, 2), (5, 9)
        masks = [RNG.random((a, b)) < 0.6 for a, b in zip(counts, lens)]
        bits = [np.packbits(m.reshape(-1), bitorder="little") for m in masks]
        q, k, v = normal(5, 2, 16), normal(14, 1, 16), normal(14, 1, 16)
        attention_.plan(
            np.int32([0, 3, 5]), np.int32(lens), kv_indptr=np.int32([0, 5, 14]), packed_mask=np.concatenate(bits),
            packed_offsets=np.int64([0, len(bits[0]), len(bits[0]) + len(bits[1])]),
        )
        out = attention_.run(q, k, v)
        assert_close(self, out[:3], attention(q[:3], k[:5], v[:5], masks[0])[0])
        assert_close(self, out[3:], attention(q[3:], k[5:], v[5:], masks[1])[0])

    def test_any_dlpack_array(self):
        """Arrays of no known framework in; fovea.Tensor out, which numpy takes without a copy."""

        class Foreign:
            def __init__(self, x):
                self.x = x
                self.shape = x.shape

            def __dlpack__(self, **_):
                return self.x.__dlpack__()

            def __dlpack_device__(self):
                return (1, 0)

            def __getitem__(self, i):
                return self.x[i]

        attention_ = fovea.Attention(fovea.AttentionSpec(2, 1, 16, "float32", page_size=1), fovea.Limits(2, 8, 64, 32))
        q, k = normal(4, 2, 16), normal(6, 1, 16)
        attention_.plan(Foreign(np.int64([0, 4])), Foreign(np.int64([6])), kv_indptr=Foreign(np.int64([0, 6])))
        out, lse = attention_.run(Foreign(q), Foreign(k), Foreign(k), return_lse=True)
        self.assertIsInstance(out, fovea.Tensor)
        self.assertEqual((out.shape, out.dtype, lse.shape), ((4, 2, 16), "float32", (4, 2)))
        wanted, wanted_lse = attention(q, k, k, visible(4, 6, True))
        taken = np.from_dlpack(out)
        assert_close(self, taken, wanted)
        assert_close(self, np.from_dlpack(lse), wanted_lse)
        del out  # numpy's array keeps the memory alive; unused capsules are freed
        assert_close(self, taken, wanted)
        fovea.Tensor((2, 3), "float16").__dlpack__()
        with self.assertRaisesRegex(ValueError, "fovea.Attention"):
            fovea.flash_attn_func(Foreign(q[None]), Foreign(k[None]), Foreign(k[None]))


class Wrappers(unittest.TestCase):
    def setUp(self):
        self.lens = np.int32([9, 0, 16, 3])
        self.cu = np.concatenate(([0], np.cumsum(self.lens))).astype(np.int32)
        self.k, self.v = normal(28, 2, 16), normal(28, 2, 16)
        self.k_pages, self.v_pages, table = paged(self.k, self.v, self.cu, 4)
        counts = -(-self.lens // 4)
        self.indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        self.indices = np.concatenate([table[b, :n] for b, n in enumerate(counts)]).astype(np.int32)
        self.last = ((self.lens - 1) % 4 + 1).astype(np.int32)

    def wanted(self, q, cu_q, causal, b):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(self.cu[b], self.cu[b + 1])
        n_q = cu_q[b + 1] - cu_q[b]
        return attention(q[rows], self.k[keys], self.v[keys], visible(n_q, self.lens[b], causal))

    def test_decode(self):
        for layout in ("NHD", "HND"):
            for dtype in (np.int32, np.int64):
                wrapper = fovea.BatchDecodeWithPagedKVCache(layout)
                with self.assertRaisesRegex(ValueError, "plan"):
                    wrapper.run(normal(4, 4, 16), (self.k_pages, self.v_pages))
                wrapper.plan(
                    self.indptr.astype(dtype), self.indices.astype(dtype), self.last.astype(dtype), 4, 2, 16, 4,
                    q_data_type="float32",
                )
                pages = (self.k_pages, self.v_pages)
                if layout == "HND":
                    pages = np.stack([np.ascontiguousarray(x.swapaxes(1, 2)) for x in pages], 1)
                q = normal(4, 4, 16)
                out, lse = wrapper.run(q, pages, return_lse=True)
                for b in range(4):
                    wanted, wanted_lse = self.wanted(q, np.arange(5), True, b)
                    assert_close(self, out[b : b + 1], wanted)
                    assert_close(self, lse[b : b + 1], wanted_lse)

    def test_prefill(self):
        cu_q = np.int32([0, 3, 4, 6, 9])
        for tokens in (None, 9):
            wrapper = fovea.BatchPrefillWithPagedKVCache()
            wrapper.plan(
                cu_q, self.indptr, self.indices, self.last, 4, 2, 16, 4, causal=True, q_data_type=np.float32, num_tokens=tokens
            )
            q = normal(9, 4, 16)
            out = wrapper.run(q, (self.k_pages, self.v_pages))
            for b in range(4):
                assert_close(self, out[cu_q[b] : cu_q[b + 1]], self.wanted(q, cu_q, True, b)[0])
            with self.assertRaisesRegex(ValueError, "q has 8 rows; the planned step has 9"):
                wrapper.run(q[:8], (self.k_pages, self.v_pages))

    def test_ragged(self):
        cu_q = np.int32([0, 3, 4, 6, 9])
        for causal in (True, False):
            wrapper = fovea.BatchPrefillWithRaggedKVCache()
            wrapper.plan(cu_q, self.cu, 4, 2, 16, causal=causal, q_data_type="float32")
            q = normal(9, 4, 16)
            out, lse = wrapper.run(q, self.k, self.v, return_lse=True)
            for b in range(4):
                wanted, wanted_lse = self.wanted(q, cu_q, causal, b)
                assert_close(self, out[cu_q[b] : cu_q[b + 1]], wanted)
                assert_close(self, lse[cu_q[b] : cu_q[b + 1]], wanted_lse)

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "kv_layout"):
            fovea.BatchDecodeWithPagedKVCache("DHN")
        with self.assertRaisesRegex(ValueError, "pos_encoding_mode"):
            fovea.BatchDecodeWithPagedKVCache().plan(
                self.indptr, self.indices, self.last, 4, 2, 16, 4, pos_encoding_mode="ROPE_LLAMA"
            )


class CacheFunctions(unittest.TestCase):
    def test_append_and_gather(self):
        for layout in ("NHD", "HND"):
            shape = (5, 4, 2, 16) if layout == "NHD" else (5, 2, 4, 16)
            pages = poisoned(shape), poisoned(shape)
            k, v = normal(6, 2, 16), normal(6, 2, 16)
            indptr, indices = np.int32([0, 2, 3]), np.int32([4, 1, 0])
            fovea.append_paged_kv_cache(
                k, v, np.int32([0, 0, 0, 0, 1, 1]), np.int32([2, 3, 4, 5, 0, 1]), pages, indices, indptr, kv_layout=layout
            )
            nhd = [x if layout == "NHD" else x.swapaxes(1, 2) for x in pages]
            slots = np.int64([18, 19, 4, 5, 0, 1])
            np.testing.assert_array_equal(nhd[0].reshape(20, 2, 16)[slots], k)
            self.assertEqual(int(np.isnan(nhd[0]).sum()), 14 * 2 * 16)
            k_back, v_back = fovea.gather(*nhd, slots)
            np.testing.assert_array_equal(k_back, k)
            np.testing.assert_array_equal(v_back, v)

    def test_gather_of_rows(self):
        k, v = normal(5, 2, 16), normal(5, 2, 8)
        k_back, v_back = fovea.gather(k, v, np.int32([4, -1, 0]))
        np.testing.assert_array_equal(k_back[[0, 2]], k[[4, 0]])
        np.testing.assert_array_equal(v_back[[0, 2]], v[[4, 0]])
        self.assertFalse(k_back[1].any() or v_back[1].any())

    def test_slots_below_zero_are_not_written(self):
        k_pages, v_pages = poisoned((2, 4, 2, 16)), poisoned((2, 4, 2, 16))
        k, v = normal(2, 2, 16), normal(2, 2, 16)
        fovea.append_kv(k, v, k_pages, v_pages, slots=np.int32([-1, 6]))
        self.assertEqual(int(np.isnan(k_pages).sum()), 7 * 2 * 16)
        np.testing.assert_array_equal(k_pages[1, 2], k[1])

    def test_rope(self):
        q, k = normal(5, 4, 16), normal(5, 2, 16)
        positions = np.int64([3, 0, 11, 2, 2])
        for half in (8, 4):
            cos, sin = tables(16, half)
            for interleaved in (False, True):
                q_out, k_out = fovea.apply_rope(q, k, cos, sin, positions, interleaved=interleaved)
                assert_close(self, q_out, rotate(q, positions, cos, sin, interleaved))
                assert_close(self, k_out, rotate(k, positions, cos, sin, interleaved))
                both = np.concatenate((cos, sin), 1)
                q_flat, k_flat = fovea.apply_rope_with_cos_sin_cache(
                    positions, q.reshape(5, 64), k.reshape(5, 32), 16, both, is_neox=not interleaved
                )
                np.testing.assert_array_equal(q_flat.reshape(q.shape), q_out)
                np.testing.assert_array_equal(k_flat.reshape(k.shape), k_out)

    def test_copy_pages(self):
        k, v = normal(6, 4, 2, 16), normal(6, 4, 2, 16)
        old_k, old_v = k.copy(), v.copy()
        fovea.copy_pages(k, v, np.int32([0, 5]), np.int32([3, 1]))
        for a, b in ((0, 3), (5, 1)):
            np.testing.assert_array_equal(k[b], old_k[a])
            np.testing.assert_array_equal(v[b], old_v[a])
        np.testing.assert_array_equal(k[[0, 2, 4, 5]], old_k[[0, 2, 4, 5]])

    def test_merge(self):
        q, k, v = normal(3, 4, 16), normal(20, 2, 16), normal(20, 2, 16)
        cu = np.int32([0, 3])

        def part(rows):
            out, lse = fovea.flash_attn_varlen_func(
                q, k[rows].copy(), v[rows].copy(), cu, np.int32([0, rows.stop - rows.start]), 3, 20, return_softmax_lse=True
            )
            return out, np.ascontiguousarray(lse.T)

        wanted, wanted_lse = attention(q, k, v, np.ones((3, 20), bool))
        (o_a, l_a), (o_b, l_b), (o_c, l_c) = part(slice(0, 9)), part(slice(9, 9)), part(slice(9, 20))
        out, lse = fovea.merge_state(o_a, l_a, o_c, l_c)
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse)
        out, lse = fovea.merge_states(np.stack((o_a, o_b, o_c)), np.stack((l_a, l_b, l_c)))
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse)
        out, lse = fovea.merge_state(o_b, l_b, o_b, l_b)
        np.testing.assert_array_equal(out, np.zeros_like(out))
        np.testing.assert_array_equal(lse, np.full_like(lse, -np.inf))


class Information(unittest.TestCase):
    def test_backends(self):
        names = str(fovea.backends())
        for name in ("CPU_ATTN", "TORCH_NATIVE", "FLASH_ATTN"):
            self.assertIn(name, names)
        self.assertIsInstance(fovea.has_cuda(), bool)
        self.assertRegex(fovea.__version__, r"^\d+\.\d+\.\d+$")

    def test_names_are_there(self):
        for name in fovea.__all__:
            self.assertTrue(getattr(fovea, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
