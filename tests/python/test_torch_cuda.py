"""The package on a GPU: sizes of models against torch in fp64, CUDA graphs, streams, torch.compile, refusals."""

import unittest

from torch_support import FLOAT32, TorchTest, expected, ints, need_cuda, normal, torch

need_cuda()
import torch.nn.functional as functional  # noqa: E402

import fovea  # noqa: E402


def sdpa(q, k, v, causal, dtype=torch.float64):
    """[B, S, H, D] by torch in fp64; bottom-right aligned."""
    n_q, n_k = q.shape[1], k.shape[1]
    mask = torch.ones(n_q, n_k, dtype=torch.bool, device=q.device)
    if causal:
        mask = mask.tril(n_k - n_q)
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


class Sizes(TorchTest):
    def test_against_torch(self):
        for dtype in [torch.float32] * FLOAT32["cuda"] + [torch.float16, torch.bfloat16]:
            for n_q, n_k, dim in ((1024, 1024, 128), (1, 3000, 128), (200, 1000, 64), (77, 77, 80), (5, 300, 256)):
                with self.subTest(dtype=dtype, n_q=n_q, n_k=n_k, dim=dim):
                    q, k, v = (normal(2, n, h, dim, dtype=dtype, device="cuda") for n, h in ((n_q, 8), (n_k, 2), (n_k, 2)))
                    out = fovea.flash_attn_func(q, k, v, causal=True)
                    self.close(out, sdpa(q, k, v, True), dtype)

    def test_fp8_cache(self):
        for dtype, stored in ((torch.bfloat16, torch.float8_e4m3fn), (torch.float16, torch.float8_e5m2)):
            q = normal(3, 1, 8, 128, dtype=dtype, device="cuda")
            k, v = (normal(20, 16, 2, 128, device="cuda").to(stored) for _ in "kv")
            table, lens = torch.randperm(20, device="cuda")[:18].view(3, 6).int(), ints([90, 17, 64], "cuda")
            for scales in ((0.5, 2.0), (torch.tensor([0.5, 0.25], device="cuda"), torch.tensor([2.0, 1.5], device="cuda"))):
                out = fovea.flash_attn_with_kvcache(
                    q, k, v, cache_seqlens=lens, page_table=table, k_descale=scales[0], v_descale=scales[1], causal=True
                )
                expanded = [x if isinstance(x, float) else x.expand(3, 2) for x in scales]
                same = fovea.flash_attn_with_kvcache(
                    q, k, v, cache_seqlens=lens, page_table=table, k_descale=expanded[0], v_descale=expanded[1], causal=True
                )
                self.assertTrue(torch.equal(out, same), f"{dtype} {scales}: {(out != same).sum()} differ, {out.isnan().sum()} NaN")
                wide = [torch.as_tensor(x, device="cuda").view(-1, 1) for x in scales]
                for b in range(3):
                    n = int(lens[b])
                    k_b, v_b = (x[table[b]].reshape(-1, 2, 128)[:n].float() * s for x, s in zip((k, v), wide))
                    self.close(out[b], expected(q[b], k_b, v_b, causal=True)[0], dtype)


class Graphs(TorchTest):
    def step(self, q, caches, k, v, lens, table):
        return fovea.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=lens, page_table=table, causal=True)

    def test_functions_follow_changed_lengths(self):
        q, k, v = (normal(4, 1, h, 128, dtype=torch.bfloat16, device="cuda") for h in (8, 2, 2))
        caches = [normal(64, 16, 2, 128, dtype=torch.bfloat16, device="cuda") for _ in "kv"]
        table, lens = torch.randperm(64, device="cuda")[:48].view(4, 12).int(), ints([5, 150, 0, 31], "cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step(q, [x.clone() for x in caches], k, v, lens, table)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.step(q, caches, k, v, lens, table)
        for new in ([5, 150, 0, 31], [190, 1, 77, 16], [0, 0, 0, 0]):
            lens.copy_(ints(new))
            q.copy_(normal(4, 1, 8, 128))
            k.copy_(normal(4, 1, 2, 128))
            eager_caches = [x.clone() for x in caches]
            eager = self.step(q, eager_caches, k, v, lens, table)
            graph.replay()
            self.assertTrue(torch.equal(out, eager), str(new))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(caches, eager_caches)))

    def test_padded_and_ragged(self):
        q, k, v = (normal(2, n, h, 64, dtype=torch.float16, device="cuda") for n, h in ((33, 4), (70, 2), (70, 2)))
        cu_q, cu_k = ints([0, 13, 33], "cuda"), ints([0, 40, 70], "cuda", torch.int64)

        def both():
            return (
                fovea.flash_attn_func(q, k, v, causal=True),
                fovea.flash_attn_varlen_func(q[0], k[0], v[0], cu_q, cu_k, 33, 70, causal=True),
            )

        eager = both()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = both()
        for _ in range(2):
            graph.replay()
            for a, b in zip(captured, eager):
                self.assertTrue(torch.equal(a, b))
            eager = both()
        cu_q.copy_(ints([0, 1, 33]))
        cu_k.copy_(ints([0, 2, 69]))
        graph.replay()
        self.assertTrue(torch.equal(captured[1], both()[1]))

    def test_without_warm_up_is_refused(self):
        q = normal(1, 3, 3, 72, dtype=torch.bfloat16, device="cuda")
        graph, sink = torch.cuda.CUDAGraph(), normal(3, device="cuda")
        with self.assertRaisesRegex(ValueError, "being captured.*warm-up"):
            with torch.cuda.graph(graph):
                fovea.flash_attn_func(q, q, q, learnable_sink=sink)

    def test_prepared_capture(self):
        spec = fovea.AttentionSpec(8, 2, 128, torch.bfloat16, page_size=16)
        attention = fovea.Attention(spec, fovea.Limits(8, 8, 4096, 512), device="cuda")
        offsets, lens = torch.arange(9, dtype=torch.int32, device="cuda"), ints([7, 100, 512, 1, 33, 64, 5, 2], "cuda")
        table = torch.randperm(256, device="cuda").view(8, 32).int()
        k, v = (normal(256, 16, 2, 128, dtype=torch.bfloat16, device="cuda") for _ in "kv")
        q, out = normal(8, 8, 128, dtype=torch.bfloat16, device="cuda"), torch.empty(8, 8, 128, dtype=torch.bfloat16, device="cuda")
        attention.prepare_capture(offsets, lens, page_table=table, num_tokens=8)
        attention.run(q, k, v, out=out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            attention.run(q, k, v, out=out)
        eager = fovea.Attention(spec, fovea.Limits(8, 8, 4096, 512), device="cuda")
        for seqs, new in ((8, [1, 2, 3, 400, 5, 6, 70, 8]), (3, [512, 9, 64])):
            lens[:seqs] = ints(new, "cuda")
            q.copy_(normal(8, 8, 128))
            view = {"q_offsets": offsets[: seqs + 1], "kv_lens": lens[:seqs], "page_table": table[:seqs], "num_tokens": seqs}
            attention.update_capture(**view)
            graph.replay()
            eager.plan(phase="decode", **view)
            self.assertTrue(torch.equal(out[:seqs], eager.run(q[:seqs], k, v)))


class Streams(TorchTest):
    def test_the_current_stream_is_used(self):
        q, k = normal(1, 64, 4, 64, dtype=torch.bfloat16, device="cuda"), normal(1, 64, 4, 64, dtype=torch.bfloat16, device="cuda")
        wanted = fovea.flash_attn_func(q * 2, k, k, causal=True)
        torch.cuda.synchronize()
        for _ in range(5):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)  # on another stream the call would read q before it is doubled
                twice = q.clone()
                twice *= 2
                out = fovea.flash_attn_func(twice, k, k, causal=True)
            stream.synchronize()
            self.assertTrue(torch.equal(out, wanted))

    def test_calls_alike_on_two_streams_and_around_a_capture(self):
        """They share plans of their own stream only, and none of a graph's."""
        q, k = normal(2, 5, 4, 64, dtype=torch.bfloat16, device="cuda"), normal(2, 40, 2, 64, dtype=torch.bfloat16, device="cuda")
        wanted = fovea.flash_attn_func(q, k, k, causal=True)
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(2)]
        for _ in range(3):
            outs = []
            for stream in streams:
                with torch.cuda.stream(stream):
                    outs += [fovea.flash_attn_func(q, k, k, causal=True) for _ in range(2)]
            torch.cuda.synchronize()
            self.assertTrue(all(torch.equal(out, wanted) for out in outs))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = fovea.flash_attn_func(q, k, k, causal=True)
        for _ in range(2):
            captured.zero_()
            graph.replay()
            again = fovea.flash_attn_func(q, k, k, causal=True)
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(captured, wanted) and torch.equal(again, wanted))

    def test_nothing_is_waited_for(self):
        q, pages = normal(2, 1, 4, 64, dtype=torch.bfloat16, device="cuda"), normal(8, 16, 2, 64, dtype=torch.bfloat16, device="cuda")
        lens, table = ints([5, 30], "cuda", torch.int64), ints([[0, 1], [4, 3]], "cuda", torch.int64)
        new = normal(2, 1, 2, 64, dtype=torch.bfloat16, device="cuda")

        def call():
            return fovea.flash_attn_with_kvcache(q, pages, pages.clone(), new, new, cache_seqlens=lens, page_table=table, causal=True)

        call()
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.cuda._sleep(400_000_000)
            busy = torch.cuda.Event()
            busy.record()
            call()
            self.assertFalse(busy.query(), "the call came back only after the GPU was done")
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()


class Compile(TorchTest):
    def test_fullgraph(self):
        q, k, v = (normal(2, n, h, 64, dtype=torch.bfloat16, device="cuda") for n, h in ((5, 4), (40, 2), (40, 2)))

        @torch.compile(fullgraph=True)
        def padded(q, k, v):
            out, lse = fovea.flash_attn_func(q * 2, k, v, causal=True, return_softmax_lse=True)
            return out + 1, lse

        out, lse = padded(q, k, v)
        wanted, wanted_lse = fovea.flash_attn_func(q * 2, k, v, causal=True, return_softmax_lse=True)
        self.assertTrue(torch.equal(out, wanted + 1) and torch.equal(lse, wanted_lse))

        @torch.compile(fullgraph=True)
        def ragged(q, k, v, cu_q, cu_k):
            return fovea.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 5, 40, causal=True) * 2

        cu_q, cu_k = ints([0, 2, 5], "cuda"), ints([0, 10, 40], "cuda")
        wanted = fovea.flash_attn_varlen_func(q[0], k[0], v[0], cu_q, cu_k, 5, 40, causal=True) * 2
        self.assertTrue(torch.equal(ragged(q[0], k[0], v[0], cu_q, cu_k), wanted))

    def test_the_cache_is_written(self):
        q, k, v = (normal(2, 1, h, 64, dtype=torch.bfloat16, device="cuda") for h in (4, 2, 2))
        caches = [normal(2, 32, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in "kv"]
        lens = ints([3, 20], "cuda")

        @torch.compile(fullgraph=True)
        def step(q, k_cache, v_cache, k, v, lens):
            out = fovea.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lens, causal=True)
            return out * 2, k_cache.sum()

        eager = [x.clone() for x in caches]
        wanted = fovea.flash_attn_with_kvcache(q, *eager, k, v, cache_seqlens=lens, causal=True) * 2
        out, total = step(q, *caches, k, v, lens)
        self.assertTrue(torch.equal(out, wanted))
        self.assertTrue(torch.equal(caches[0], eager[0]) and torch.equal(caches[1], eager[1]))
        self.close(total, caches[0].sum(), torch.bfloat16)

    def test_ops_are_well_formed(self):
        q, k, v = (normal(2, n, h, 64, dtype=torch.bfloat16, device="cuda") for n, h in ((5, 4), (40, 2), (40, 2)))
        checks = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
        torch.library.opcheck(torch.ops.fovea.flash_attn.default, (q, k, v), {"causal": True}, test_utils=checks)
        torch.library.opcheck(
            torch.ops.fovea.flash_attn_with_kvcache.default, (q, k, v),
            {"k": k[:, :5].contiguous(), "v": v[:, :5].contiguous(), "cache_seqlens": ints([3, 20], "cuda"), "causal": True},
            test_utils=checks,
        )

        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return fovea.flash_attn_func(q, k, v, causal=True)

        exported = torch.export.export(Model(), (q, k, v))
        self.assertTrue(torch.equal(exported.module()(q, k, v), fovea.flash_attn_func(q, k, v, causal=True)))


class Refusals(TorchTest):
    def test_wrong_device(self):
        q, k = normal(1, 2, 2, 64, dtype=torch.bfloat16, device="cuda"), normal(1, 2, 2, 64, dtype=torch.bfloat16)
        with self.assertRaisesRegex(ValueError, "k lies on cpu and q on cuda:0"):
            fovea.flash_attn_func(q, k, k)
        cu = ints([0, 2])
        with self.assertRaisesRegex(ValueError, "cu_seqlens_q lies on cpu"):
            fovea.flash_attn_varlen_func(q[0], q[0], q[0], cu, cu, 2, 2)
        attention = fovea.Attention(fovea.AttentionSpec(2, 2, 64), fovea.Limits(1, 4, 64, 64), device="cuda")
        with self.assertRaisesRegex(ValueError, "num_tokens is not given"):
            attention.plan(cu.cuda(), ints([2], "cuda"), page_table=ints([[0]], "cuda"))
        with self.assertRaisesRegex(ValueError, "cpu"):
            attention.plan(cu, ints([2]), page_table=ints([[0]]), num_tokens=2)

    def test_lengths_beyond_the_limits(self):
        attention = fovea.Attention(fovea.AttentionSpec(2, 2, 64), fovea.Limits(1, 4, 64, 64), device="cuda")
        attention.plan(ints([0, 1], "cuda"), ints([65], "cuda"), page_table=ints([[0] * 5], "cuda"), num_tokens=1)
        with self.assertRaisesRegex(ValueError, "65|limit|max"):
            attention.check()
        attention.plan(ints([0, 1], "cuda"), ints([20], "cuda"), page_table=ints([[0, 9]], "cuda"), num_tokens=1)
        attention.check()
        with self.assertRaisesRegex(ValueError, "9"):
            attention.check(num_pages=4)

    def test_small_workspace(self):
        attention = fovea.Attention(fovea.AttentionSpec(2, 2, 64), fovea.Limits(1, 4, 64, 64), device="cuda")
        small = torch.empty(16, dtype=torch.uint8, device="cuda")
        with self.assertRaisesRegex(ValueError, "workspace has 16 bytes"):
            attention.plan(
                ints([0, 1], "cuda"), ints([2], "cuda"), page_table=ints([[0]], "cuda"), num_tokens=1, workspace=small
            )


if __name__ == "__main__":
    unittest.main()
