"""The functions over torch tensors, on the CPU and on a GPU where there is one, against the fp64 definition."""

import unittest

from torch_support import DEVICES, FLOAT32, TorchTest, array, expected, ints, normal, skip_line, torch
from reference import rotate, tables

import fovea


def dtypes(device):
    return [torch.float32] * FLOAT32[device] + [torch.bfloat16] + [torch.float16] * (device == "cuda")


class Functions(TorchTest):
    def each(self):
        for device in DEVICES:
            for dtype in dtypes(device):
                with self.subTest(device=device, dtype=dtype):
                    yield device, dtype

    def test_flash_attn_func(self):
        for device, dtype in self.each():
            for n_q, n_k in ((1, 70), (33, 33), (9, 100), (70, 20)):
                q, k, v = (normal(2, n, h, 64, dtype=dtype, device=device) for n, h in ((n_q, 4), (n_k, 2), (n_k, 2)))
                for options in (
                    {"causal": True}, {}, {"causal": True, "window": (16, -1)}, {"causal": True, "softcap": 5.0},
                    {"causal": True, "slopes": torch.tensor([0.5, 0.25, 0.1, 0.01], device=device)},
                    {"causal": True, "sink": normal(4, device=device), "sink_in_lse": True},
                ):
                    names = {"window": "window_size", "slopes": "alibi_slopes", "sink": "learnable_sink"}
                    given = {names.get(n, n): x for n, x in options.items() if n != "sink_in_lse"}
                    out, lse = fovea.flash_attn_func(q, k, v, return_softmax_lse=True, **given)
                    self.assertEqual((out.dtype, out.device, lse.dtype), (q.dtype, q.device, torch.float32))
                    for b in range(2):
                        wanted, wanted_lse = expected(q[b], k[b], v[b], **options)
                        self.close(out[b], wanted, dtype, f"{n_q} {n_k} {options}")
                        self.close(lse[b].T, wanted_lse, torch.float16 if device == "cuda" else torch.float32)

    def test_empty(self):
        for device, dtype in self.each():
            q, k = normal(2, 3, 4, 64, dtype=dtype, device=device), normal(2, 0, 2, 64, dtype=dtype, device=device)
            out, lse = fovea.flash_attn_func(q, k, k, return_softmax_lse=True)
            self.assertTrue(torch.equal(out, torch.zeros_like(q)))
            self.assertTrue(bool((lse == -float("inf")).all()))
            self.assertEqual(fovea.flash_attn_func(q[:0], k[:0], k[:0]).shape, (0, 3, 4, 64))

    def test_strides_of_models(self):
        """k and v of [B, H, S, D] caches, q of a projection, and slices of longer ones: no copies."""
        for device, dtype in self.each():
            q = normal(2, 5, 4 * 64, dtype=dtype, device=device).view(2, 5, 4, 64)
            k, v = (normal(2, 2, 40, 64, dtype=dtype, device=device)[:, :, 3:30].transpose(1, 2) for _ in range(2))
            out = fovea.flash_attn_func(q, k, v, causal=True)
            same = fovea.flash_attn_func(q, k.contiguous(), v.contiguous(), causal=True)
            self.assertTrue(torch.equal(out, same))
            for b in range(2):
                self.close(out[b], expected(q[b], k[b], v[b], causal=True)[0], dtype)

    def test_varlen(self):
        lens_q, lens_k = (3, 0, 17, 1), (30, 4, 17, 90)
        for device, dtype in self.each():
            for index in (torch.int32, torch.int64):
                cu_q, cu_k = (torch.tensor([0, *n]).cumsum(0).to(device, index) for n in (lens_q, lens_k))
                q, k, v = (normal(n, h, 64, dtype=dtype, device=device) for n, h in ((21, 4), (141, 2), (141, 2)))
                out, lse = fovea.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 17, 90, causal=True, return_softmax_lse=True)
                self.assertEqual(lse.shape, (4, 21))
                for b in range(4):
                    rows, keys = slice(int(cu_q[b]), int(cu_q[b + 1])), slice(int(cu_k[b]), int(cu_k[b + 1]))
                    self.close(out[rows], expected(q[rows], k[keys], v[keys], causal=True)[0], dtype)

    def test_latent_heads(self):
        """Latent attention without absorption: K of 192 and V of 128 (or both of 256), in one array. The new rows under the
        causal mask and two chunks of the context without one, some of them empty, merged."""
        new, chunks = (65, 0, 1, 131), ((90, 7, 0, 40), (0, 0, 3, 100))
        cu_q = torch.tensor([0, *new]).cumsum(0).int()
        for device, dtype in self.each():
            for heads, dim, v_dim in ((3, 192, 128), (2, 256, 256)):
                q = normal(sum(new), heads, dim, dtype=dtype, device=device)
                outs, lses, keys, values = [], [], [[] for _ in new], [[] for _ in new]
                for lens in (*chunks, new):
                    cu_k = torch.tensor([0, *lens]).cumsum(0).int()
                    both = normal(sum(lens) + 1, heads, dim + v_dim, dtype=dtype, device=device)
                    both[-1] = float("nan")
                    k, v = both[..., :dim], both[..., dim:]
                    out = torch.full((sum(new), heads, v_dim), float("nan"), dtype=dtype, device=device)
                    _, lse = fovea.flash_attn_varlen_func(
                        q, k, v, cu_q.to(device), cu_k.to(device), max(new), max(lens), causal=lens is new, return_softmax_lse=True, out=out
                    )
                    outs.append(out)
                    lses.append(lse.T)
                    for b, n in enumerate(lens):
                        keys[b].append(k[cu_k[b] : cu_k[b] + n])
                        values[b].append(v[cu_k[b] : cu_k[b] + n])
                        if n == 0:
                            rows = slice(int(cu_q[b]), int(cu_q[b + 1]))
                            self.assertTrue(bool((out[rows] == 0).all() and (lse[:, rows] == -float("inf")).all()))
                out, lse = fovea.merge_states(torch.stack(outs), torch.stack(lses).contiguous())
                for b in range(len(new)):
                    rows = slice(int(cu_q[b]), int(cu_q[b + 1]))
                    wanted, wanted_lse = expected(q[rows], torch.cat(keys[b]), torch.cat(values[b]), causal=True)
                    self.close(out[rows], wanted, dtype, f"D {dim}/{v_dim}")
                    self.close(lse[rows], wanted_lse, torch.float16 if device == "cuda" else torch.float32)

    def test_with_kvcache(self):
        lens = (5, 0, 40)
        cos, sin = tables(128, 16)
        for device, dtype in self.each():
            for index in (torch.int32, torch.int64):
                for paged in (True, False):
                    for n in (1, 3):
                        pages, page = 16, 16
                        k_cache, v_cache = (
                            torch.full((pages, page, 2, 64), float("nan"), dtype=dtype, device=device) for _ in "kv"
                        )
                        table = torch.randperm(pages)[:12].view(3, 4)
                        if not paged:
                            k_cache, v_cache = k_cache.view(4, 64, 2, 64), v_cache.view(4, 64, 2, 64)
                        q, k, v = (normal(3, n, h, 64, dtype=dtype, device=device) for h in (4, 2, 2))
                        old = [[normal(n_k, 2, 64, dtype=dtype, device=device) for _ in "kv"] for n_k in lens]
                        where = {"cache_batch_idx": ints([3, 0, 1], device, index)}
                        if paged:
                            where = {"page_table": table.to(device, index)}
                        for b, n_k in enumerate(lens):
                            for j in range(n_k):
                                at = (int(table[b, j // page]), j % page) if paged else ((3, 0, 1)[b], j)
                                k_cache[at], v_cache[at] = old[b][0][j], old[b][1][j]
                        out = fovea.flash_attn_with_kvcache(
                            q, k_cache, v_cache, k, v, torch.tensor(cos, device=device), torch.tensor(sin, device=device),
                            ints(lens, device, index), causal=True, rotary_interleaved=False, **where,
                        )
                        for b, n_k in enumerate(lens):
                            at = range(n_k, n_k + n)
                            turn = lambda x: torch.tensor(rotate(array(x), list(at), cos, sin, False)).to(dtype)  # noqa: E731
                            keys = torch.cat((old[b][0].cpu(), turn(k[b])))
                            values = torch.cat((old[b][1], v[b]))
                            self.close(out[b], expected(turn(q[b]), keys, values, causal=True)[0], dtype)

    def test_left_padding_and_masks(self):
        from fovea.integrations.masks import left_padded_attention, masked_attention

        for device, dtype in self.each():
            q, k, v = (normal(3, h, n, 32, dtype=dtype, device=device).transpose(1, 2) for n, h in ((7, 4), (19, 2), (19, 2)))
            q = q.contiguous()
            pads = torch.tensor([0, 5, 15])
            seen = (torch.arange(19)[None] >= pads[:, None]).to(device)
            out = left_padded_attention(q, k, v, seen)
            mask = torch.rand(3, 1, 7, 19, generator=torch.Generator().manual_seed(1)).to(device) < 0.5
            mask[1, 0, 3] = False
            masked = masked_attention(q, k, v, mask)
            again = masked_attention(q, k, v, mask)
            self.assertTrue(torch.equal(masked, again))
            for b in range(3):
                pad = int(pads[b])
                self.close(out[b], expected(q[b], k[b, pad:], v[b, pad:], causal=True)[0], dtype)
                from reference import attention

                wanted, _ = attention(array(q[b]), array(k[b]), array(v[b]), mask[b, 0].cpu().numpy())
                self.close(masked[b], wanted, dtype)
            with self.assertRaisesRegex(ValueError, "the mask has dtype"):
                masked_attention(q, k, v, mask.float())
            with self.assertRaisesRegex(ValueError, "the mask has shape"):
                masked_attention(q, k, v, mask.expand(3, 4, 7, 19))

    def test_merge_append_rope(self):
        for device, dtype in self.each():
            q, k, v = (normal(5, h, 64, dtype=dtype, device=device) for h in (4, 2, 2))
            cos, sin = (torch.tensor(x, device=device) for x in tables(32, 32))
            q_out, _ = fovea.apply_rope(q, k, cos, sin, ints([0, 9, 3, 3, 1], device))
            self.close(q_out, rotate(array(q), [0, 9, 3, 3, 1], cos.cpu().numpy(), sin.cpu().numpy(), False), dtype)
            cache = torch.zeros(2, 3, 16, 2, 64, dtype=dtype, device=device)
            fovea.append_kv(k, v, cache[0], cache[1], slots=ints([4, 5, -1, 40, 0], device, torch.int64))
            self.assertTrue(torch.equal(cache[0].view(48, 2, 64)[40], k[3]))
            k_back, v_back = fovea.gather(cache[0], cache[1], ints([40, 4], device))
            self.assertTrue(torch.equal(k_back, k[[3, 0]]) and torch.equal(v_back, v[[3, 0]]))
            cu = ints([0, 5], device)
            part = [
                fovea.flash_attn_varlen_func(q, k[a:b], v[a:b], cu, ints([0, b - a], device), 5, 5, return_softmax_lse=True)
                for a, b in ((0, 2), (2, 5))
            ]
            out, _ = fovea.merge_state(part[0][0], part[0][1].T.contiguous(), part[1][0], part[1][1].T.contiguous())
            self.close(out, expected(q, k, v)[0], dtype)

    def test_decode_wrapper(self):
        for device, dtype in self.each():
            wrapper = fovea.BatchDecodeWithPagedKVCache()
            indptr, indices, last = ints([0, 3, 3, 4], device), ints([5, 0, 2, 1], device), ints([4, 0, 16], device)
            cache = normal(6, 2, 16, 2, 64, dtype=dtype, device=device)
            wrapper.plan(indptr, indices, last, 8, 2, 64, 16, q_data_type=dtype)
            for _ in range(2):
                q = normal(3, 8, 64, dtype=dtype, device=device)
                out, lse = wrapper.run(q, cache, return_lse=True)
                for b, (ids, n) in enumerate((([5, 0, 2], 36), ([], 0), ([1], 16))):
                    k, v = (cache[ids, i].reshape(-1, 2, 64)[:n] for i in (0, 1))
                    wanted, _ = expected(q[b : b + 1], k, v)
                    self.close(out[b : b + 1], wanted, dtype)
            wrapper.attention.check()

    def test_requires_grad(self):
        for device in DEVICES:
            q, k = (normal(1, 2, 2, 64, dtype=torch.bfloat16, device=device) for _ in "qk")
            k.requires_grad_()
            with self.assertRaisesRegex(ValueError, r"requires_grad; .*torch\.no_grad"):
                fovea.flash_attn_func(q, k, k)
            with torch.no_grad():
                out = fovea.flash_attn_func(q, k, k)
            with torch.inference_mode():
                again = fovea.flash_attn_func(q, k, k)
            self.assertTrue(torch.equal(out, again))
            sink = torch.nn.Parameter(normal(2, device=device))
            with self.assertRaisesRegex(ValueError, "requires_grad"):
                fovea.flash_attn_func(q, k.detach(), k.detach(), learnable_sink=sink)

    def test_rotation_of_ragged_queries_with_int64_offsets(self):
        for device, dtype in self.each():
            cos, sin = (torch.tensor(x, device=device) for x in tables(32, 16))
            q, k = normal(5, 4, 64, dtype=dtype, device=device), normal(2, 3, 2, 64, dtype=dtype, device=device)
            outs = []
            for index in (torch.int32, torch.int64):
                caches = [torch.zeros(2, 16, 2, 64, dtype=dtype, device=device) for _ in "kv"]
                outs.append(
                    fovea.flash_attn_with_kvcache(
                        q, *caches, k, k, cos, sin, ints([4, 0], device, index), causal=True,
                        cu_seqlens_q=ints([0, 2, 5], device, index), max_seqlen_q=3,
                    )
                )
            self.assertTrue(torch.equal(*outs))

    def test_wrong_dtype(self):
        for device in DEVICES:
            q = normal(1, 2, 2, 64, device=device)
            with self.assertRaisesRegex(ValueError, "dtype"):
                fovea.flash_attn_func(q.to(torch.complex64), q, q)
            with self.assertRaisesRegex(ValueError, "dtype"):
                fovea.flash_attn_func(q.double(), q.double(), q.double())


if __name__ == "__main__":
    if skip_line():
        print(f"SKIPPED on a GPU: {skip_line()}")
    unittest.main()
