"""fovea.flashinfer over numpy on the CPU: every function and parameter of FlashInfer's against fp64 definitions, or refused."""

import math
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)
import api_table
from flashinfer_table import ABSENT, MLA_TABLE, TABLE
from reference import assert_close, attention, rotate, tables, visible

import fovea
import fovea.flashinfer as flashinfer

RNG = np.random.default_rng(11)
RECORDER = api_table.Recorder()
for _name in TABLE:
    _, _what, *_method = _name.split(".")
    if _method:
        RECORDER.methods(f"flashinfer.{_what}", getattr(flashinfer, _what), _method)
    else:
        setattr(flashinfer, _what, RECORDER.function(_name, getattr(flashinfer, _what)))

HEADS, KV_HEADS, DIM, PAGE = 6, 2, 16, 4


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def poisoned(shape, dtype="float32"):
    return np.full(shape, np.nan, dtype)


def base_2(lse):
    return lse / math.log(2.0)


def slopes(heads):
    """ALiBi's, as its paper has them."""
    def of_power(n):
        return [2 ** (-8 / n * (i + 1)) for i in range(n)]

    whole = 2 ** int(math.log2(heads))
    return np.array(of_power(whole) + of_power(2 * whole)[::2][: heads - whole])


def signed_alibi(heads, n_q, n_k):
    return slopes(heads)[:, None, None] * (np.arange(n_k)[None, None, :] - np.arange(n_q)[None, :, None])


def rope_table(n, dim, scale=1.0, theta=1e4, llama=None):
    f = theta ** (-np.arange(0, dim, 2) / dim)
    if llama:
        low, high, old = llama
        wave = 2 * math.pi / f
        blend = np.clip((old / wave - low) / (high - low), 0, 1)
        f = np.where(wave < old / high, f, np.where(wave > old / low, f / scale, (1 - blend) * f / scale + blend * f))
    else:
        f = f / scale
    angles = np.arange(n)[:, None] * f[None, :]
    return np.cos(angles), np.sin(angles)


def definition(q, k, v, causal=False, mask=None, window_left=-1, mode="NONE", rope=(1.0, 1e4), scale=None, cap=0.0, sink=None, v_scale=1.0):
    """One sequence: out and LSE of base 2."""
    n_q, n_k = len(q), len(k)
    seen = visible(n_q, n_k, causal and mask is None, (window_left, -1))
    if mask is not None:
        seen &= mask
    if mode == "ROPE_LLAMA":
        cos, sin = rope_table(max(n_k, n_q, 1), q.shape[-1], *rope)
        q = rotate(q, np.arange(n_q) + max(n_k - n_q, 0), cos, sin, False)
        k = rotate(k, np.arange(n_k), cos, sin, False)
    bias = signed_alibi(q.shape[1], n_q, n_k) if mode == "ALIBI" else None
    out, lse = attention(q, k, v, seen, scale, cap, sink=sink, sink_in_lse=True, bias=bias, v_scale=v_scale)
    return out, base_2(lse)


class Paged:
    """Sequences of these lengths in shuffled pages, with NaN in the slots that hold no key."""

    def __init__(self, lens, page=PAGE, dtype="float32", dim=DIM, v_dim=DIM, kv_heads=KV_HEADS):
        self.lens, self.page = list(lens), page
        counts = [-(-n // page) for n in lens]
        ids = RNG.permutation(sum(counts) + 2)[: sum(counts)]
        self.k = [normal(n, kv_heads, dim, dtype=dtype) for n in lens]
        self.v = [normal(n, kv_heads, v_dim, dtype=dtype) for n in lens]
        self.k_pages = poisoned((len(ids) + 2, page, kv_heads, dim), dtype)
        self.v_pages = poisoned((len(ids) + 2, page, kv_heads, v_dim), dtype)
        self.indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        self.indices = ids.astype(np.int32)
        self.last = np.int32([(n - 1) % page + 1 if n else 0 for n in lens])
        for b, n in enumerate(lens):
            for j in range(n):
                at = ids[self.indptr[b] + j // page]
                self.k_pages[at, j % page], self.v_pages[at, j % page] = self.k[b][j], self.v[b][j]

    def cache(self, layout="NHD", joined=False):
        pair = self.k_pages, self.v_pages
        if layout == "HND":
            pair = tuple(np.ascontiguousarray(x.swapaxes(1, 2)) for x in pair)
        return np.stack(pair, 1) if joined else pair


LENS = (9, 0, 16, 3, 1)
Q_LENS = (3, 1, 2, 3, 1)


def offsets(counts):
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


class Single(unittest.TestCase):
    def test_decode(self):
        for options in (
            {}, {"window_left": 3}, {"logits_soft_cap": 1.5}, {"sm_scale": 0.4}, {"pos_encoding_mode": "ALIBI"},
            {"pos_encoding_mode": "ROPE_LLAMA"}, {"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 4.0, "rope_theta": 500.0},
        ):
            for n in (1, 33):
                with self.subTest(n=n, **options):
                    q, k, v = normal(HEADS, DIM), normal(n, KV_HEADS, DIM), normal(n, KV_HEADS, DIM)
                    wanted, wanted_lse = definition(
                        q[None], k, v, True, None, options.get("window_left", -1), options.get("pos_encoding_mode", "NONE"),
                        (options.get("rope_scale", 1.0), options.get("rope_theta", 1e4)), options.get("sm_scale"),
                        options.get("logits_soft_cap", 0.0),
                    )
                    before = q.copy(), k.copy()
                    out, lse = flashinfer.single_decode_with_kv_cache(q, k, v, return_lse=True, **options)
                    assert_close(self, out, wanted[0])
                    assert_close(self, lse, wanted_lse[0])
                    turned = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v)]
                    again = flashinfer.single_decode_with_kv_cache(q, *turned, kv_layout="HND", use_tensor_cores=True, **options)
                    np.testing.assert_array_equal(again, out)
                    np.testing.assert_array_equal(q, before[0])
                    np.testing.assert_array_equal(k, before[1])

    def test_scales(self):
        q, k, v = normal(HEADS, DIM), normal(7, KV_HEADS, DIM), normal(7, KV_HEADS, DIM)
        wanted, _ = definition(q[None], k, v, scale=DIM**-0.5 * 0.5 * 3.0, v_scale=0.25)
        out = flashinfer.single_decode_with_kv_cache(q, k, v, q_scale=0.5, k_scale=3.0, v_scale=np.float32([0.25]))
        assert_close(self, out, wanted[0])
        q = normal(5, HEADS, DIM)
        wanted, _ = definition(q, k, v, scale=DIM**-0.5 * 3.0, v_scale=0.25)
        assert_close(self, flashinfer.single_prefill_with_kv_cache(q, k, v, k_scale=3.0, v_scale=0.25), wanted)

    def test_prefill(self):
        for n_q, n_k in ((5, 5), (1, 12), (4, 21), (7, 3), (2, 0)):
            for options in (
                {}, {"causal": True}, {"causal": True, "window_left": 2}, {"window_left": 2}, {"logits_soft_cap": 1.5, "causal": True},
                {"sm_scale": 0.4}, {"pos_encoding_mode": "ALIBI", "causal": True}, {"pos_encoding_mode": "ROPE_LLAMA"},
                {"pos_encoding_mode": "ALIBI"}, {"pos_encoding_mode": "ALIBI", "window_left": 3, "sm_scale": 0.3},
                {"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 4.0, "rope_theta": 500.0, "causal": True},
            ):
                if n_k < n_q and "pos_encoding_mode" in options:
                    continue  # positions below 0
                with self.subTest(n_q=n_q, n_k=n_k, **options):
                    q, k, v = normal(n_q, HEADS, DIM), normal(n_k, KV_HEADS, DIM), normal(n_k, KV_HEADS, 2 * DIM)
                    wanted, wanted_lse = definition(
                        q, k, v, options.get("causal", False), None, options.get("window_left", -1),
                        options.get("pos_encoding_mode", "NONE"), (options.get("rope_scale", 1.0), options.get("rope_theta", 1e4)),
                        options.get("sm_scale"), options.get("logits_soft_cap", 0.0),
                    )
                    out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, return_lse=True, **options)
                    assert_close(self, out, wanted)
                    assert_close(self, lse, wanted_lse)
                    turned = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v)]
                    again = flashinfer.single_prefill_with_kv_cache(
                        q, *turned, kv_layout="HND", use_fp16_qk_reduction=True, o_dtype="float32", **options
                    )
                    np.testing.assert_array_equal(again, out)

    def test_scales_of_heads(self):
        q, k, v = normal(5, HEADS, DIM), normal(11, KV_HEADS, DIM), normal(11, KV_HEADS, DIM)
        scales = [np.float32(2.0) ** RNG.uniform(-2, 2, n).astype(np.float32) for n in (HEADS, KV_HEADS, KV_HEADS)]
        for of_q, of_k, of_v in (scales, (scales[0], None, None), (None, 2.0, scales[2]), (0.5, scales[1], np.float32([3.0]))):
            wide = [np.ones(n) if x is None else np.broadcast_to(x, n) for n, x in zip((HEADS, KV_HEADS, KV_HEADS), (of_q, of_k, of_v))]
            wanted, wanted_lse = definition(*(x * w[None, :, None] for x, w in zip((q, k, v), wide)), causal=True)
            for dtype in (None, "float16"):
                out, lse = flashinfer.single_prefill_with_kv_cache(
                    q, k, v, of_q, of_k, of_v, dtype, causal=True, return_lse=True
                )
                self.assertEqual(out.dtype, dtype or "float32")
                assert_close(self, out, wanted, dtype or "float32")
                assert_close(self, lse, wanted_lse)
        with self.assertRaisesRegex(ValueError, r"scale_k has shape \(6,\); it must be a number or \[2\]"):
            flashinfer.single_prefill_with_kv_cache(q, k, v, scale_k=scales[0])
        with self.assertRaisesRegex(ValueError, "o_dtype is float16; results have the dtype of q"):
            flashinfer.single_prefill_with_kv_cache(q, k, v, o_dtype="float16")

    def test_masks(self):
        q, k, v = normal(5, HEADS, DIM), normal(11, KV_HEADS, DIM), normal(11, KV_HEADS, DIM)
        mask = RNG.random((5, 11)) < 0.5
        mask[3] = False
        for window in (-1, 4):
            wanted, wanted_lse = definition(q, k, v, mask=mask, window_left=window)
            for given in ({"custom_mask": mask}, {"packed_custom_mask": flashinfer.packbits(mask.reshape(-1), "little")}):
                with self.subTest(window=window, given=list(given)):
                    out, lse = flashinfer.single_prefill_with_kv_cache(
                        q, k, v, causal=True, window_left=window, return_lse=True, **given
                    )
                    assert_close(self, out, wanted)
                    assert_close(self, lse, wanted_lse)
        with self.assertRaisesRegex(ValueError, r"custom_mask has shape \(5, 10\)"):
            flashinfer.single_prefill_with_kv_cache(q, k, v, custom_mask=mask[:, :10])

    def test_long_context_rotation(self):
        """Angles of a million: fp32 has none of their fraction."""
        at = np.int32([1_000_003, 17])
        q = normal(2, HEADS, DIM)
        cos, sin = rope_table(1, DIM)
        f = 1e4 ** (-np.arange(0, DIM, 2) / DIM)
        cos, sin = np.cos(at[:, None] * f), np.sin(at[:, None] * f)
        out, _ = flashinfer.apply_rope_pos_ids(q, q[:, :1].copy(), at)
        assert_close(self, out, rotate(q, np.arange(2), cos, sin, False))


class Decode(unittest.TestCase):
    def check(self, rows=1, dtype="float32", layout="NHD", joined=False, sinks=None, scales=None, page=PAGE, lens=LENS, **options):
        paged = Paged(lens, page, dtype)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(np.empty(16, np.uint8), layout, use_tensor_cores=True)
        wrapper.plan(
            paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, page, q_data_type=dtype, q_len_per_req=rows, **options
        )
        q = normal(len(lens) * rows, HEADS, DIM, dtype=dtype)
        out, lse = poisoned(q.shape, dtype), poisoned(q.shape[:2])
        scales = scales or {}
        result = wrapper.run(q, paged.cache(layout, joined), return_lse=True, out=out, lse=lse, sinks=sinks, **scales)
        self.assertIs(result[0], out)
        self.assertIs(result[1], lse)
        for b, n in enumerate(lens):
            part = slice(b * rows, (b + 1) * rows)
            scale = options.get("sm_scale") or DIM**-0.5
            wanted, wanted_lse = definition(
                q[part], paged.k[b], paged.v[b], True, None, options.get("window_left", -1), options.get("pos_encoding_mode", "NONE"),
                (options.get("rope_scale") or 1.0, options.get("rope_theta") or 1e4),
                scale * scales.get("q_scale", 1.0) * scales.get("k_scale", 1.0), options.get("logits_soft_cap") or 0.0, sinks,
                scales.get("v_scale", 1.0),
            )
            assert_close(self, out[part], wanted, dtype)
            assert_close(self, lse[part], wanted_lse, dtype if options.get("pos_encoding_mode") == "ROPE_LLAMA" else "float32")
        again = wrapper.run_return_lse(q, paged.cache(layout, joined), sinks=sinks, **scales)
        np.testing.assert_array_equal(again[0], out)
        np.testing.assert_array_equal(again[1], lse)
        return wrapper, q, paged

    def test_layouts_and_types(self):
        for layout in ("NHD", "HND"):
            for joined in (False, True):
                for dtype in ("float32", "float16"):
                    with self.subTest(layout=layout, joined=joined, dtype=dtype):
                        self.check(layout=layout, joined=joined, dtype=dtype)

    def test_options(self):
        lens = (9, 16, 3, 1)  # with q_len_per_req 1, no sequence without keys: ALiBi's and RoPE's rows have positions
        for options in (
            {"window_left": 4}, {"logits_soft_cap": 2.0}, {"sm_scale": 0.3}, {"pos_encoding_mode": "ALIBI"},
            {"pos_encoding_mode": "ROPE_LLAMA"}, {"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 100.0},
            {"kv_data_type": "float32"},
        ):
            for page in (1, PAGE, 16):
                with self.subTest(page=page, **options):
                    self.check(page=page, lens=lens, **options)
        self.check(dtype="float16", pos_encoding_mode="ROPE_LLAMA", lens=lens)
        self.check(sinks=normal(HEADS))
        self.check(scales={"q_scale": 2.0, "k_scale": 0.75, "v_scale": 3.0})

    def test_rows_per_request(self):
        for options in ({}, {"pos_encoding_mode": "ALIBI"}, {"pos_encoding_mode": "ROPE_LLAMA"}, {"window_left": 2}):
            with self.subTest(**options):
                self.check(rows=3, lens=(9, 16, 3), **options)
        wrapper, q, paged = self.check(rows=2)
        with self.assertRaisesRegex(ValueError, "q_len_per_req is 1; the step was planned with 2"):
            wrapper.run(q, paged.cache(), q_len_per_req=1)

    def test_hints_change_no_bit(self):
        wrapper, q, paged = self.check()
        wanted = wrapper.run(q, paged.cache())
        given = paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE
        wrapper.plan(
            *given, data_type="float32", non_blocking=False, fixed_split_size=2, disable_split_kv=True, seq_lens=np.int32(LENS),
            block_tables=np.zeros((5, 4), np.int32), max_kv_len=16,
        )
        out = wrapper.run(q, paged.cache(), enable_pdl=True, window_left=-1, q_len_per_req=1)
        np.testing.assert_array_equal(out, wanted)
        self.assertFalse(wrapper.is_cuda_graph_enabled)
        self.assertTrue(wrapper.use_tensor_cores)
        with self.assertRaisesRegex(ValueError, "window_left is 3; the step was planned with -1"):
            wrapper.run(q, paged.cache(), window_left=3)
        cpu = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, backend="TORCH_NATIVE")
        cpu.plan(*given, q_data_type="float32")
        assert_close(self, cpu.run(q, paged.cache()), wanted)
        self.assertEqual(cpu._step.attention.backend(), "TORCH_NATIVE")
        fa3 = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, backend="fa3")
        fa3.plan(*given, q_data_type="float32")
        with self.assertRaisesRegex(ValueError, "FLASH_ATTN"):
            fa3.run(q, paged.cache())

    def test_sinks_come_and_go(self):
        """One plan; runs with sinks and without."""
        wrapper, q, paged = self.check()
        plain = wrapper.run(q, paged.cache())
        with_sinks = wrapper.run(q, paged.cache(), sinks=np.full(HEADS, 2.0, np.float32))
        self.assertGreater(np.abs(with_sinks - plain).max(), 0.01)
        np.testing.assert_array_equal(wrapper.run(q, paged.cache()), plain)


class Prefill(unittest.TestCase):
    def check(self, ragged=False, layout="NHD", dtype="float32", sinks=None, scales=None, masks=None, packed=False, lens=LENS, **options):
        v_dim = options.get("head_dim_vo") or DIM
        paged = Paged(lens, PAGE, dtype, v_dim=v_dim)
        cu_q = offsets(Q_LENS[: len(lens)])
        given = dict(options)
        if masks is not None:
            flat = np.concatenate([m.reshape(-1) for m in masks])
            given["custom_mask"] = flat
            if packed:
                sizes = offsets([m.size for m in masks])
                given["packed_custom_mask"] = flashinfer.segment_packbits(given.pop("custom_mask"), sizes, "little")[0]
        q = normal(cu_q[-1], HEADS, DIM, dtype=dtype)
        out, lse = poisoned((len(q), HEADS, v_dim), dtype), poisoned((len(q), HEADS))
        scales = scales or {}
        if ragged:
            wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, layout)
            wrapper.plan(cu_q, offsets(lens), HEADS, KV_HEADS, DIM, q_data_type=dtype, **given)
            k, v = np.concatenate(paged.k), np.concatenate(paged.v)
            keys = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in (k, v)] if layout == "HND" else [k, v]
            more = scales
        else:
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
            wrapper.plan(cu_q, paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE, q_data_type=dtype, **given)
            keys = [paged.cache(layout)]
            more = {"sinks": sinks, **scales}
        result = wrapper.run(q, *keys, return_lse=True, out=out, lse=lse, **more)
        self.assertIs(result[0], out)
        for b, n in enumerate(lens):
            part = slice(cu_q[b], cu_q[b + 1])
            wanted, wanted_lse = definition(
                q[part], paged.k[b], paged.v[b], options.get("causal", False), None if masks is None else masks[b],
                options.get("window_left", -1), options.get("pos_encoding_mode", "NONE"),
                (options.get("rope_scale") or 1.0, options.get("rope_theta") or 1e4),
                (options.get("sm_scale") or DIM**-0.5) * scales.get("q_scale", 1.0) * scales.get("k_scale", 1.0),
                options.get("logits_soft_cap") or 0.0, sinks, scales.get("v_scale", 1.0),
            )
            assert_close(self, out[part], wanted, dtype)
            assert_close(self, lse[part], wanted_lse, dtype if options.get("pos_encoding_mode") == "ROPE_LLAMA" else "float32")
        again = wrapper.run_return_lse(q, *keys, **more)
        np.testing.assert_array_equal(again[0], out)
        np.testing.assert_array_equal(again[1], lse)
        return wrapper, q, keys, cu_q, paged

    def test_layouts_and_types(self):
        for ragged in (False, True):
            for layout in ("NHD", "HND"):
                for dtype in ("float32", "float16"):
                    with self.subTest(ragged=ragged, layout=layout, dtype=dtype):
                        self.check(ragged, layout, dtype, causal=True, kv_data_type=dtype, o_data_type=dtype)

    def test_options(self):
        for ragged in (False, True):
            for options in (
                {}, {"causal": True, "window_left": 2}, {"window_left": 2}, {"logits_soft_cap": 2.0, "causal": True},
                {"sm_scale": 0.3}, {"head_dim_vo": 32}, {"max_sequence_kv": 16, "causal": True},
            ):
                with self.subTest(ragged=ragged, **options):
                    self.check(ragged, **options)
            for options in (
                {"pos_encoding_mode": "ALIBI", "causal": True}, {"pos_encoding_mode": "ROPE_LLAMA"},
                {"pos_encoding_mode": "ALIBI"}, {"pos_encoding_mode": "ALIBI", "window_left": 3, "sm_scale": 0.3},
                {"pos_encoding_mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 100.0, "causal": True},
            ):
                with self.subTest(ragged=ragged, **options):
                    self.check(ragged, lens=(9, 2, 16, 3), **options)
            self.check(ragged, scales={"q_scale": 2.0, "k_scale": 0.75, "v_scale": 3.0})
        self.check(sinks=normal(HEADS), causal=True)

    def test_masks(self):
        masks = [RNG.random((n_q, n_k)) < 0.5 for n_q, n_k in zip(Q_LENS, LENS)]
        masks[0][1] = False  # a row that sees nothing
        for ragged in (False, True):
            for packed in (False, True):
                for window in (-1, 3):
                    with self.subTest(ragged=ragged, packed=packed, window=window):
                        self.check(ragged, masks=masks, packed=packed, causal=True, window_left=window)
        short = [m[:, :-1] if m.shape[1] > 8 else m for m in masks]
        with self.assertRaisesRegex(ValueError, "the mask has .* elements; the rows and keys of the sequences need"):
            self.check(masks=short)

    def test_hints_change_no_bit(self):
        wrapper, q, keys, cu_q, paged = self.check(causal=True)
        wanted = wrapper.run(q, *keys)
        hints = {
            "use_fp16_qk_reduction": True, "non_blocking": False, "token_pos_in_items_len": 0, "fixed_split_size": 2,
            "disable_split_kv": True, "seq_lens": np.int32(LENS), "seq_lens_q": np.int32(Q_LENS), "max_token_per_sequence": 3,
        }
        wrapper.plan(
            cu_q, paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type="float32",
            block_tables=np.zeros((5, 4), np.int32), **hints,
        )
        np.testing.assert_array_equal(wrapper.run(q, *keys, enable_pdl=True, window_left=-1), wanted)
        ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, backend="CPU_ATTN")
        ragged.plan(cu_q, offsets(LENS), HEADS, KV_HEADS, DIM, causal=True, q_data_type="float32", **hints)
        k, v = np.concatenate(paged.k), np.concatenate(paged.v)
        np.testing.assert_array_equal(ragged.run(q, k, v, enable_pdl=True), wanted)
        named = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, backend="TORCH_NATIVE")
        named.plan(cu_q, paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type="float32")
        assert_close(self, named.run(q, *keys), wanted)

    def test_int64_indices(self):
        wrapper, q, keys, cu_q, paged = self.check(causal=True)
        wanted = wrapper.run(q, *keys)
        for mode in ("NONE", "ROPE_LLAMA"):
            results = []
            for dtype in (np.int32, np.int64):
                wrapper.plan(
                    *(x.astype(dtype) for x in (cu_q, paged.indptr, paged.indices, paged.last)), HEADS, KV_HEADS, DIM, PAGE, causal=True,
                    q_data_type=np.float32, pos_encoding_mode=mode,
                )
                results.append(wrapper.run(q, *keys))
            np.testing.assert_array_equal(*results)
            if mode == "NONE":
                np.testing.assert_array_equal(results[0], wanted)

    def test_both_forms_of_alibi(self):
        """Signed, the default, and FlashAttention's distance; with masks and windows, scales, and what is not served together."""
        masks = [RNG.random((n_q, n_k)) < 0.6 for n_q, n_k in zip(Q_LENS, LENS)]
        for ragged in (False, True):
            for window in (-1, 3):
                self.check(ragged, masks=masks, window_left=window, pos_encoding_mode="ALIBI", packed=window < 0)
            self.check(ragged, pos_encoding_mode="ALIBI", scales={"q_scale": 2.0, "k_scale": 0.75, "v_scale": 3.0})
        with self.assertRaisesRegex(ValueError, "ALIBI.*logits_soft_cap 2.0"):
            self.check(pos_encoding_mode="ALIBI", logits_soft_cap=2.0)
        with self.assertRaisesRegex(ValueError, "sinks is given with pos_encoding_mode"):
            self.check(pos_encoding_mode="ALIBI", sinks=normal(HEADS))
        q, k, v = normal(3, HEADS, DIM), normal(9, KV_HEADS, DIM), normal(9, KV_HEADS, DIM)
        for causal in (False, True):
            wanted, wanted_lse = attention(q, k, v, visible(3, 9, causal), slopes=slopes(HEADS))
            out, lse = flashinfer.single_prefill_with_kv_cache(
                q, k, v, causal=causal, pos_encoding_mode="ALIBI", alibi_form="distance", return_lse=True
            )
            assert_close(self, out, wanted)
            assert_close(self, lse, base_2(wanted_lse))
            other = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal, pos_encoding_mode="ALIBI")
            self.assertEqual(causal, np.abs(other - out).max() < 1e-5)
        with self.assertRaisesRegex(ValueError, "alibi_form is 'both'"):
            flashinfer.single_prefill_with_kv_cache(q, k, v, pos_encoding_mode="ALIBI", alibi_form="both")


class Batch(unittest.TestCase):
    def test_attention(self):
        for layout in ("NHD", "HND"):
            for options in ({}, {"causal": True}, {"causal": True, "logits_soft_cap": 2.0}, {"sm_scale": 0.3}):
                paged = Paged(LENS)
                cu_q = offsets(Q_LENS)
                batch = flashinfer.BatchAttention(layout, "cpu")
                batch.plan(
                    cu_q, paged.indptr, paged.indices, np.int32(LENS), HEADS, KV_HEADS, DIM, DIM, PAGE, q_data_type="float32",
                    kv_data_type="float32", **options,
                )
                q = normal(cu_q[-1], HEADS, DIM)
                out, lse = poisoned(q.shape), poisoned(q.shape[:2])
                result = batch.run(
                    q, paged.cache(layout, True), out, lse, 0.5, 2.0, logits_soft_cap=options.get("logits_soft_cap", 0.0)
                )
                self.assertIs(result[0], out)
                for b in range(len(LENS)):
                    part = slice(cu_q[b], cu_q[b + 1])
                    wanted, wanted_lse = definition(
                        q[part], paged.k[b], paged.v[b], options.get("causal", False), scale=0.5 * options.get("sm_scale", DIM**-0.5),
                        cap=options.get("logits_soft_cap", 0.0), v_scale=2.0,
                    )
                    assert_close(self, out[part], wanted)
                    assert_close(self, lse[part], wanted_lse)
        with self.assertRaisesRegex(ValueError, "logits_soft_cap is 7.0; the step was planned with 0.0"):
            batch.run(q, paged.cache(layout, True), logits_soft_cap=7.0)

    def test_sinks(self):
        paged, cu_q, sinks = Paged(LENS), offsets(Q_LENS), normal(HEADS)
        wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(
            None, q_data_type="float32", kv_data_type="float32", head_dim_qk=DIM, head_dim_vo=DIM, window_left=5
        )
        wrapper.plan(
            cu_q, paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE, causal=True, q_data_type="float32", sm_scale=0.3
        )
        q = normal(cu_q[-1], HEADS, DIM)
        out, lse = wrapper.run(q, paged.cache(), sinks, 0.3, return_lse=True)
        for b in range(len(LENS)):
            part = slice(cu_q[b], cu_q[b + 1])
            wanted, wanted_lse = definition(q[part], paged.k[b], paged.v[b], True, None, 5, scale=0.3, sink=sinks)
            assert_close(self, out[part], wanted)
            assert_close(self, lse[part], wanted_lse)
        with self.assertRaisesRegex(ValueError, "sm_scale is 0.5; the step was planned with 0.3"):
            wrapper.run(q, paged.cache(), sinks, 0.5)

    def test_cascade(self):
        """Two sequences in front, which three and two rows share, and keys of each row's own."""
        for layout in ("NHD", "HND"):
            for options in ({}, {"causal": True}, {"logits_soft_cap": 2.0, "sm_scale": 0.3}):
                paged = Paged((9, 6, 5, 1, 3, 0, 8))
                counts = np.diff(paged.indptr)
                rows = (2, 1, 2, 1, 1)  # of the five sequences of the last level
                groups = (5, 2)  # rows of the two sequences of the first
                wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, None, layout)
                wrapper.plan(
                    [offsets(groups), offsets(rows)], [offsets(counts[:2]), offsets(counts[2:])],
                    [paged.indices[: counts[:2].sum()], paged.indices[counts[:2].sum() :]], [paged.last[:2], paged.last[2:]], HEADS,
                    KV_HEADS, DIM, PAGE, q_data_type="float32", kv_data_type="float32", **options,
                )
                q = normal(7, HEADS, DIM)
                out = wrapper.run(q, paged.cache(layout))
                cu = offsets(rows)
                for b in range(5):
                    shared = 0 if cu[b] < 5 else 1
                    k, v = (np.concatenate((x[shared], x[2 + b])) for x in (paged.k, paged.v))
                    seen = visible(rows[b], len(k), options.get("causal", False))
                    seen[:, : paged.lens[shared]] = True
                    wanted, _ = attention(
                        q[cu[b] : cu[b + 1]], k, v, seen, options.get("sm_scale"), options.get("logits_soft_cap", 0.0)
                    )
                    assert_close(self, out[cu[b] : cu[b + 1]], wanted)

    def test_merge(self):
        q, k, v = normal(3, HEADS, DIM), normal(20, KV_HEADS, DIM), normal(20, KV_HEADS, DIM)
        parts = [flashinfer.single_prefill_with_kv_cache(q, k[a:b], v[a:b], return_lse=True) for a, b in ((0, 9), (9, 9), (9, 20))]
        wanted, wanted_lse = definition(q, k, v)
        out, lse = flashinfer.merge_state(*parts[0], *parts[2])
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse)
        out, lse = flashinfer.merge_states(np.stack([o for o, _ in parts], 1), np.stack([s for _, s in parts], 1))
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse)
        (out, lse), mask = [x.copy() for x in parts[0]], np.array([True, False, True])
        flashinfer.merge_state_in_place(out, lse, *parts[2], mask=mask)
        assert_close(self, out[mask], wanted[mask])
        assert_close(self, lse[mask], wanted_lse[mask])
        np.testing.assert_array_equal(out[1], parts[0][0][1])
        np.testing.assert_array_equal(lse[1], parts[0][1][1])
        flashinfer.merge_state_in_place(out, lse, *parts[1])
        assert_close(self, out[mask], wanted[mask])
        empty = flashinfer.merge_state(*parts[1], *parts[1])
        np.testing.assert_array_equal(empty[0], np.zeros_like(wanted))
        np.testing.assert_array_equal(empty[1], np.full_like(wanted_lse, -np.inf))


class Pages(unittest.TestCase):
    def test_batch_indices_and_positions(self):
        append, lens = np.int32([0, 1, 3, 3, 6]), np.int32([5, 2, 4, 9])
        for given in (None, True):
            arrays = [np.full(8, 77, np.int32) for _ in range(2)] if given else [None, None]
            batch, at = flashinfer.get_batch_indices_positions(append, lens, 8, *arrays)
            np.testing.assert_array_equal(batch, [0, 1, 1, 3, 3, 3, -1, -1])
            np.testing.assert_array_equal(at, [4, 0, 1, 6, 7, 8, 0, 0])
            if given:
                self.assertIs(batch, arrays[0])
                self.assertIs(at, arrays[1])
        indptr, last = np.int32([0, 2, 2, 5]), np.int32([3, 2, 1])
        np.testing.assert_array_equal(flashinfer.get_seq_lens(indptr, last, 4), [7, 0, 9])

    def test_append(self):
        for layout in ("NHD", "HND"):
            paged = Paged((6, 3))
            want_k, want_v = paged.k_pages.copy(), paged.v_pages.copy()
            grown, (k, v) = np.int32([8, 4]), (normal(3, KV_HEADS, DIM), normal(3, KV_HEADS, DIM))
            append = np.int32([0, 2, 3])
            batch, at = flashinfer.get_batch_indices_positions(append, grown, 5)
            k_more, v_more = (np.concatenate((x, normal(2, KV_HEADS, DIM))) for x in (k, v))  # rows of no sequence
            cache = paged.cache(layout)
            flashinfer.append_paged_kv_cache(k_more, v_more, batch, at, cache, paged.indices, paged.indptr, paged.last, layout)
            for t, (b, p) in enumerate(((0, 6), (0, 7), (1, 3))):
                page = paged.indices[paged.indptr[b] + p // PAGE]
                want_k[page, p % PAGE], want_v[page, p % PAGE] = k[t], v[t]
            for wanted, got in zip((want_k, want_v), cache):
                np.testing.assert_array_equal(got if layout == "NHD" else got.swapaxes(1, 2), wanted)

    def test_append_mla(self):
        ckv, kpe = poisoned((5, PAGE, 32)), poisoned((5, PAGE, 8))
        new_ckv, new_kpe = normal(3, 32), normal(3, 8)
        flashinfer.append_paged_mla_kv_cache(
            new_ckv, new_kpe, np.int32([0, 0, 1]), np.int32([3, 4, 0]), ckv, kpe, np.int32([4, 2, 0]), np.int32([0, 2, 3]), np.int32([1, 1])
        )
        for t, (page, slot) in enumerate(((4, 3), (2, 0), (0, 0))):
            np.testing.assert_array_equal(ckv[page, slot], new_ckv[t])
            np.testing.assert_array_equal(kpe[page, slot], new_kpe[t])
        self.assertEqual(int(np.isnan(ckv).sum()), (5 * PAGE - 3) * 32)

    def test_bits(self):
        for n in (1, 8, 13, 64):
            x = RNG.random(n) < 0.5
            for order in ("big", "little"):
                np.testing.assert_array_equal(flashinfer.packbits(x, order), np.packbits(x, bitorder=order))
        np.testing.assert_array_equal(flashinfer.packbits(np.int32([1, 0, 7])), np.packbits([1, 0, 1]))
        x, indptr = RNG.random(30) < 0.5, np.int32([0, 4, 4, 21, 30])
        for order in ("big", "little"):
            packed, starts = flashinfer.segment_packbits(x, indptr, order)
            wanted = [np.packbits(x[a:b], bitorder=order) for a, b in zip(indptr, indptr[1:])]
            np.testing.assert_array_equal(packed, np.concatenate(wanted))
            np.testing.assert_array_equal(starts, [0, 1, 1, 4, 6])
        with self.assertRaisesRegex(ValueError, "bitorder is 'middle'"):
            flashinfer.packbits(x, "middle")


class Rotation(unittest.TestCase):
    indptr, offsets = np.int32([0, 3, 3, 5]), np.int32([7, 100, 0])
    positions = np.int32([7, 8, 9, 0, 1])

    def check(self, name, options, table):
        q, k = normal(5, HEADS, DIM), normal(5, KV_HEADS, DIM)
        half = options.get("rotary_dim", DIM) // 2
        cos, sin = (x[:, :half] for x in table)
        interleave = options.get("interleave", False)
        wanted = [rotate(x, self.positions, cos, sin, interleave) for x in (q, k)]
        for suffix, where in (("", (self.indptr, self.offsets)), ("_pos_ids", (self.positions,))):
            before = q.copy(), k.copy()
            got = getattr(flashinfer, f"{name}{suffix}")(q, k, *where, **options)
            in_place = q.copy(), k.copy()
            self.assertIsNone(getattr(flashinfer, f"{name}{suffix}_inplace")(*in_place, *where, **options))
            for x, y, z, b, now in zip(wanted, got, in_place, before, (q, k)):
                assert_close(self, y, x)
                np.testing.assert_array_equal(z, y)
                np.testing.assert_array_equal(now, b)

    def test_rope(self):
        for options in ({}, {"interleave": True}, {"rotary_dim": 8}, {"rope_scale": 4.0}, {"rope_theta": 100.0, "interleave": True}):
            with self.subTest(**options):
                dim = options.get("rotary_dim", DIM)
                self.check("apply_rope", options, rope_table(16, dim, options.get("rope_scale", 1.0), options.get("rope_theta", 1e4)))

    def test_llama31(self):
        for options in (
            {}, {"interleave": True, "rotary_dim": 8}, {"rope_scale": 4.0, "rope_theta": 100.0},
            {"low_freq_factor": 2, "high_freq_factor": 8, "old_context_len": 64},
        ):
            with self.subTest(**options):
                dim = options.get("rotary_dim", DIM)
                llama = options.get("low_freq_factor", 1), options.get("high_freq_factor", 4), options.get("old_context_len", 8192)
                table = rope_table(16, dim, options.get("rope_scale", 8.0), options.get("rope_theta", 5e5), llama)
                self.check("apply_llama31_rope", options, table)
        with self.assertRaisesRegex(ValueError, "high_freq_factor is 1.0 and low_freq_factor 1.0"):
            flashinfer.apply_llama31_rope(normal(5, 2, 8), normal(5, 1, 8), self.indptr, self.offsets, high_freq_factor=1)
        with self.assertRaisesRegex(ValueError, "rotary_dim is 7"):
            flashinfer.apply_rope(normal(5, 2, 8), normal(5, 1, 8), self.indptr, self.offsets, rotary_dim=7)

    def test_cos_sin_cache(self):
        for half, neox in ((8, True), (4, False)):
            cos, sin = tables(16, half)
            q, k = normal(5, HEADS * DIM), normal(5, KV_HEADS * DIM)
            wanted = [rotate(x.reshape(5, -1, DIM), self.positions, cos, sin, not neox).reshape(x.shape) for x in (q, k)]
            both = np.concatenate((cos, sin), 1)
            got = flashinfer.apply_rope_with_cos_sin_cache(self.positions, q, k, DIM, both, neox)
            flashinfer.apply_rope_with_cos_sin_cache_inplace(self.positions, q, k, DIM, both, neox)
            for x, y, z in zip(wanted, got, (q, k)):
                assert_close(self, y, x)
                np.testing.assert_array_equal(z, y)


def call(name, parameter, value):
    """The function with one more argument and what it needs."""
    paged, cu_q, q = Paged(LENS), offsets(Q_LENS), normal(sum(Q_LENS), HEADS, DIM)
    _, what, *method = name.split(".")
    if what.startswith("single"):
        one = normal(3, HEADS, DIM) if "prefill" in what else normal(HEADS, DIM)
        return getattr(flashinfer, what)(one, normal(5, KV_HEADS, DIM), normal(5, KV_HEADS, DIM), **{parameter: value})
    kind = getattr(flashinfer, what)
    more = {step: {} for step in ("__init__", "plan", "run")}
    more[method[0]] = {parameter: value}
    first = (2, None) if what.startswith("Multi") else ("NHD",) if what == "BatchAttention" else (None,)
    wrapper = kind(*first, **more["__init__"])
    sizes = HEADS, KV_HEADS, DIM
    pages = paged.indptr, paged.indices, paged.last
    plan = {"q_data_type": "float32", **more["plan"]}
    if what.startswith("BatchDecode"):
        wrapper.plan(*pages, *sizes, PAGE, **plan)
        return wrapper.run(normal(5, HEADS, DIM), paged.cache(), **more["run"])
    if what == "BatchAttention":
        wrapper.plan(cu_q, paged.indptr, paged.indices, np.int32(LENS), *sizes, DIM, PAGE, kv_data_type="float32", **plan)
        return wrapper.run(q, paged.cache(), **more["run"])
    if "Ragged" in what:
        wrapper.plan(cu_q, offsets(LENS), *sizes, **plan)
        return wrapper.run(q, np.concatenate(paged.k), np.concatenate(paged.v), **more["run"])
    if what.startswith("Multi"):
        wrapper.plan([cu_q] * 2, *([x] * 2 for x in pages), *sizes, PAGE, **plan)
        return wrapper.run(q, paged.cache())
    wrapper.plan(cu_q, *pages, *sizes, PAGE, **plan)
    return wrapper.run(q, paged.cache(), **more["run"])


class Table(unittest.TestCase):
    def test_signatures(self):
        api_table.check_signatures(self, {"flashinfer": flashinfer}, TABLE)

    def test_refusals(self):
        api_table.check_refusals(self, TABLE, call)

    def test_absent_names(self):
        self.assertEqual(sorted(flashinfer.REFUSED), sorted(ABSENT))
        for name in ABSENT:
            with self.assertRaisesRegex(AttributeError, f"no {name}; instead: "):
                getattr(flashinfer, name)
        with self.assertRaisesRegex(AttributeError, "no attribute 'no_such'"):
            flashinfer.no_such

    def test_every_export_is_in_the_table(self):
        known = {name.split(".")[1] for name in (*TABLE, *MLA_TABLE)}
        own = {"BatchDecodeWithPagedKVCache", "BatchPrefillWithPagedKVCache", "BatchPrefillWithRaggedKVCache"}
        self.assertEqual(set(flashinfer.__all__) - own, known)

    def test_wrong_arguments(self):
        paged = Paged(LENS)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper()
        with self.assertRaisesRegex(ValueError, "nothing is planned"):
            wrapper.run(normal(5, HEADS, DIM), paged.cache())
        for mode in ("ROPE", None):
            with self.assertRaisesRegex(ValueError, "pos_encoding_mode is"):
                wrapper.plan(paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE, pos_encoding_mode=mode)
        with self.assertRaisesRegex(ValueError, "kv_layout is 'DHN'"):
            flashinfer.BatchAttention("DHN")
        wrapper.plan(paged.indptr, paged.indices, paged.last, HEADS, KV_HEADS, DIM, PAGE)
        with self.assertRaisesRegex(ValueError, "q is float32; the step was planned for q_data_type float16"):
            wrapper.run(normal(5, HEADS, DIM), paged.cache())
        with self.assertRaisesRegex(ValueError, r"k_scale is an array of shape \(2,\)"):
            wrapper.run(normal(5, HEADS, DIM), paged.cache(), k_scale=np.float32([1, 2]))
        with self.assertRaisesRegex(ValueError, r"paged_kv_indices_arr has 1 entries; there are 2 levels"):
            flashinfer.MultiLevelCascadeAttentionWrapper(2, None).plan(
                [paged.indptr] * 2, [paged.indptr] * 2, [paged.indices], [paged.last] * 2, HEADS, KV_HEADS, DIM, PAGE
            )


class ZAllServed(unittest.TestCase):
    """Sorted behind the others, whose calls it looks at."""

    def test_every_served_parameter_was_given(self):
        api_table.check_all_served(self, TABLE, RECORDER)


if __name__ == "__main__":
    unittest.main()
