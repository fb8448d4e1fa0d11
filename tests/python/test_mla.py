"""Latent attention through the FlashMLA- and FlashInfer-shaped functions, over numpy on the CPU, against the fp64 definition."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)

import api_table
import fovea
from flashinfer_table import MLA_TABLE
from fovea import flashinfer

RNG = np.random.default_rng(5)
RANK, DIM, PAGE, HEADS = 512, 576, 4, 5
SCALE = 192**-0.5


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


def attend(q, records, seen):
    """q [H, D] over the keys `seen` of records [n, D], in fp64: (out [H, RANK], lse [H])."""
    keys = records[seen].astype(np.float64)
    if not len(keys):
        return np.zeros((len(q), RANK)), np.full(len(q), -np.inf)
    s = q.astype(np.float64) @ keys.T * SCALE
    m = s.max(axis=1, keepdims=True)
    p = np.exp(s - m)
    return p @ keys[:, :RANK] / p.sum(axis=1, keepdims=True), (m + np.log(p.sum(axis=1, keepdims=True)))[:, 0]


def paged(lens):
    """Caches with NaN in all slots that hold no key: (cache, table, records of each sequence)."""
    pages = [-(-n // PAGE) for n in lens]
    order = RNG.permutation(sum(pages) + 2)
    cache = np.full((len(order), PAGE, 1, DIM), np.nan, dtype="float32")
    table = np.full((len(lens), max(pages) + 1), 2**31 - 1, dtype="int32")
    records, at = [], 0
    for b, n in enumerate(lens):
        records.append(normal(n, DIM))
        for i in range(pages[b]):
            table[b, i] = order[at]
            part = records[b][i * PAGE : (i + 1) * PAGE]
            cache[order[at], : len(part), 0] = part
            at += 1
    return cache, table, records


def ds_mla(records):
    """Bytes of fp8_ds_mla records with codes and scales of the test's own, and what they mean; records [n, DIM]."""
    codes = RNG.integers(0, 0x7F, (len(records), RANK)).astype("uint8")
    codes |= (RNG.integers(0, 2, codes.shape) << 7).astype("uint8")
    value = np.array([(-1) ** (c >> 7) * ((c & 7) * 2.0**-9 if (c & 0x78) == 0 else (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10)) for c in range(256)])
    scales = (0.01 * RNG.random((len(records), 4))).astype("float32") / 16
    rope = (normal(len(records), DIM - RANK).view("uint32") & 0xFFFF0000).view("float32")
    out = np.concatenate([codes, scales.view("uint8"), (rope.view("uint32") >> 16).astype("uint16").view("uint8").reshape(len(records), -1)], axis=1)
    meant = value[codes] * np.repeat(scales, 128, axis=1).astype(np.float64)
    return out, np.concatenate([meant.astype("float32"), rope], axis=1)


class Signatures(unittest.TestCase):
    def test_parameters_are_flashinfers(self):
        api_table.check_signatures(self, {"flashinfer": flashinfer}, MLA_TABLE)

    def test_refused_parameters(self):
        def call(name, parameter, value):
            wrapper = flashinfer.BatchMLAPagedAttentionWrapper(**({parameter: value} if name.endswith("__init__") else {}))
            qo, one = np.int32([0, 1]), np.int32([1])
            plan = (qo, qo, np.int32([0]), one, HEADS, RANK, DIM - RANK, PAGE, False, SCALE, "float32", "float32")
            wrapper.plan(*plan, **({parameter: value} if name.endswith("plan") else {}))
            cache = normal(1, PAGE, DIM)
            wrapper.run(normal(1, HEADS, RANK), normal(1, HEADS, DIM - RANK), cache, None, **({parameter: value} if name.endswith("run") else {}))

        api_table.check_refusals(self, MLA_TABLE, call)


class FlashMla(unittest.TestCase):
    def close(self, got, wanted, tolerance=2e-5):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)

    def test_decode(self):
        lens = [1, 9, 30]
        for rows, causal in ((1, False), (1, True), (3, True), (3, False)):
            cache, table, records = paged([n + rows for n in lens])
            q = normal(3, rows, HEADS, DIM)
            seqlens = np.int32([n + rows for n in lens])
            metadata, splits = fovea.get_mla_metadata(seqlens, rows * HEADS, 1)
            out, lse = fovea.flash_mla_with_kvcache(
                q, cache, table, seqlens, RANK, metadata, splits, softmax_scale=SCALE, causal=causal
            )
            self.assertEqual((out.shape, lse.shape), ((3, rows, HEADS, RANK), (3, HEADS, rows)))
            for b in range(3):
                for i in range(rows):
                    seen = np.arange(lens[b] + (i + 1 if causal else rows))
                    want_out, want_lse = attend(q[b, i], records[b], seen)
                    self.close(out[b, i], want_out)
                    self.close(lse[b, :, i], want_lse)

    def test_indices_are_slots(self):
        cache, table, records = paged([11, 14])
        q = normal(2, 2, HEADS, DIM)
        indices = np.full((2, 2, 7), -1, dtype="int32")
        seen = {}
        for b in range(2):
            for i in range(2):
                seen[b, i] = RNG.permutation(len(records[b]))[: 3 + 2 * i]
                slots = [table[b, j // PAGE] * PAGE + j % PAGE for j in seen[b, i]]
                indices[b, i, 1 : 1 + len(slots)] = slots
        seen[1, 1], indices[1, 1] = np.int64([]), -1
        out, lse = fovea.flash_mla_with_kvcache(q, cache, None, None, RANK, softmax_scale=SCALE, indices=indices)
        for (b, i), keys in seen.items():
            want_out, want_lse = attend(q[b, i], records[b], keys)
            self.close(out[b, i], want_out)
            np.testing.assert_allclose(lse[b, :, i], want_lse, rtol=2e-5)

    def test_records_of_bytes(self):
        stored, meant = ds_mla(normal(13, DIM))
        cache = np.full((5, PAGE, 1, 656), 0x7F, dtype="uint8")
        order = [3, 0, 4, 2]
        for j in range(13):
            cache[order[j // PAGE], j % PAGE, 0] = stored[j]
        q = normal(1, 1, HEADS, DIM)
        indices = np.int32([[[order[j // PAGE] * PAGE + j % PAGE for j in (2, 5, 12)] + [-1]]])
        out, _ = fovea.flash_mla_with_kvcache(q, cache, None, None, RANK, softmax_scale=SCALE, is_fp8_kvcache=True, indices=indices)
        self.close(out[0, 0], attend(q[0, 0], meant, [2, 5, 12])[0])

    def test_sparse_prefill(self):
        records, q = normal(40, DIM), normal(6, HEADS, DIM)
        indices = np.stack([RNG.permutation(40)[:9] for _ in range(6)]).astype("int32")
        indices[2, 4:] = -1
        for lengths in (None, np.int32([9, 1, 9, 5, 0, 3])):
            out, _, lse = fovea.flash_mla_sparse_fwd(q, records[:, None], indices[:, None], SCALE, topk_length=lengths)
            for i in range(6):
                keys = [k for k in indices[i, : 9 if lengths is None else lengths[i]] if k >= 0]
                want_out, want_lse = attend(q[i], records, keys)
                self.close(out[i], want_out)
                np.testing.assert_allclose(lse[i], want_lse, rtol=2e-5)

    def test_flashinfer_wrapper(self):
        lens, rows = [5, 17, 8], [2, 1, 4]
        cache, table, records = paged(lens)
        pages = [-(-n // PAGE) for n in lens]
        indptr = np.int32(np.concatenate([[0], np.cumsum(pages)]))
        indices = np.concatenate([table[b, : pages[b]] for b in range(3)])
        qo = np.int32(np.concatenate([[0], np.cumsum(rows)]))
        q = normal(sum(rows), HEADS, DIM)
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(backend="CPU_MLA")
        wrapper.plan(qo, indptr, indices, np.int32(lens), HEADS, RANK, DIM - RANK, PAGE, True, SCALE, "float32", "float32")
        cache = cache[:, :, 0]
        parts = q[..., :RANK], q[..., RANK:], cache[..., :RANK], cache[..., RANK:]
        out, lse = wrapper.run(*parts, return_lse=True, return_lse_base_on_e=True)
        given = np.empty_like(out), np.empty_like(lse)
        wrapper.run(*parts, *given, return_lse=True)
        np.testing.assert_array_equal(given[0], out)
        self.close(given[1], lse / np.log(2))
        whole = wrapper.run(q[..., :RANK], q[..., RANK:], cache, None)
        np.testing.assert_array_equal(out, whole)
        for b in range(3):
            for i in range(rows[b]):
                want_out, want_lse = attend(q[qo[b] + i], records[b], np.arange(lens[b] - rows[b] + i + 1))
                self.close(out[qo[b] + i], want_out)
                self.close(lse[qo[b] + i], want_lse)

    def test_refusals(self):
        cache, table, _ = paged([9])
        q, lens = normal(1, 1, HEADS, DIM), np.int32([9])

        def refused(part, *args, **more):
            with self.assertRaisesRegex(ValueError, part):
                fovea.flash_mla_with_kvcache(*args, **{"softmax_scale": SCALE, **more})

        refused("records of 575 elements", q, cache[..., :575], table, lens)
        refused("2 KV heads", q, np.repeat(cache, 2, axis=2), table, lens)
        refused("head_dim_v is 600", q, cache, table, lens, 600)
        refused("with is_fp8_kvcache they are 656 bytes", q, cache, table, lens, is_fp8_kvcache=True)
        stored = np.zeros((2, PAGE, 1, 656), dtype="uint8")
        refused("kv_cache_dtype not supported", q, stored, np.int32([[0]]), np.int32([3]), is_fp8_kvcache=True)
        refused("must be given without indices", q, cache, None, lens)
        slots = np.int32([[[0, cache.shape[0] * PAGE]]])
        refused(r"chosen\[0\]\[1\] is \d+; sequence 0 has keys 0 to", q, cache, None, None, indices=slots)
        refused(r"chosen\[0\]\[0\] is -2", q, cache, None, None, indices=np.int32([[[-2, 0]]]))
        refused("causal is True with indices", q, cache, None, None, indices=slots, causal=True)
        refused("indices has shape", q, cache, None, None, indices=np.int32([[[0]], [[0]]]))
        with self.assertRaisesRegex(ValueError, "num_heads_k is 2"):
            fovea.get_mla_metadata(None, 16, 2)
        with self.assertRaisesRegex(ValueError, "sparse_topk"):
            fovea.Attention(fovea.AttentionSpec(HEADS, 1, 64, "float32", sparse_topk=4), fovea.Limits(1, 1, 16, 16))
        with self.assertRaisesRegex(ValueError, "scale is 0 with mla"):
            fovea.Attention(fovea.AttentionSpec(HEADS, 1, DIM, "float32", RANK, mla=True), fovea.Limits(1, 1, 16, 16))


if __name__ == "__main__":
    unittest.main()
