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


class Views(TorchTest):
    """Arrays are read and written where they lie: the same bits as of dense ones."""

    def dense(self, q, k, v, **options):
        return fovea.flash_attn_func(*(x.clone(memory_format=torch.contiguous_format) for x in (q, k, v)), **options)

    def same(self, q, k, v, **options):
        wanted = self.dense(q, k, v, causal=True, **options)
        out = fovea.flash_attn_func(q, k, v, causal=True, **options)
        self.assertTrue(torch.equal(out, wanted), f"{(out != wanted).sum()} of {out.numel()} differ")
        self.close(out[:1], sdpa(q[:1], k[:1], v[:1], True), q.dtype)

    def test_expanded_keys(self):
        for dtype in (torch.bfloat16, torch.float16):
            for n_q, n_k in ((200, 200), (1, 200), (7, 1000), (300, 1500)):
                q, k, v = (normal(2, n, h, 128, dtype=dtype, device="cuda") for n, h in ((n_q, 8), (n_k, 2), (n_k, 2)))
                shape = k.shape
                for what, views in (
                    ("heads", (k[:, :, :1].expand(shape), v[:, :, :1].expand(shape))),
                    ("heads of k", (k[:, :, :1].expand(shape), v)),
                    ("sequences", (k[:1].expand(shape), v[:1].expand(shape))),
                    ("sequences of v", (k, v[:1].expand(shape))),
                    ("keys", (k[:, :1].expand(shape), v[:, :1].expand(shape))),
                    ("all", (k[:1, :1, :1].expand(shape), v[:1, :1, :1].expand(shape))),
                ):
                    with self.subTest(dtype=dtype, n_q=n_q, n_k=n_k, what=what):
                        self.same(q, *views)

    def test_transposed(self):
        for heads, kv_heads, dim in ((8, 2, 128), (6, 6, 64), (16, 1, 96), (4, 4, 256)):
            for n_q, n_k in ((1, 300), (5, 300), (130, 130), (384, 700)):
                with self.subTest(heads=heads, dim=dim, n_q=n_q, n_k=n_k):
                    q, k, v = (
                        normal(3, h, n, dim, dtype=torch.bfloat16, device="cuda").transpose(1, 2)
                        for h, n in ((heads, n_q), (kv_heads, n_k), (kv_heads, n_k))
                    )
                    self.same(q, k, v)
                    wanted = self.dense(q, k, v)
                    for out in (torch.empty_like(q), torch.empty(n_q, 3, heads, dim, dtype=q.dtype, device="cuda").transpose(0, 1)):
                        out.fill_(float("nan"))
                        fovea.flash_attn_func(q, k, v, out=out)
                        self.assertTrue(torch.equal(out, wanted))

    def test_slices_and_expanded_queries(self):
        wide = normal(2, 40, 12, 128, dtype=torch.bfloat16, device="cuda")
        k = normal(2, 50, 4, 128, dtype=torch.bfloat16, device="cuda")
        for q in (wide[:, 3:33], wide[:, :, ::3], wide[:1].expand(2, 40, 12, 128), wide[:, :1].expand(2, 40, 12, 128),
                  wide[:, :, :1].expand(2, 40, 4, 128)):
            with self.subTest(strides=q.stride()):
                self.same(q, k, k)
        out = torch.full((2, 50, 12, 256), float("nan"), dtype=torch.bfloat16, device="cuda")
        q = wide[:, :30]
        fovea.flash_attn_func(q, k, k, out=out[:, 5:35, :, 128:])
        self.assertTrue(torch.equal(out[:, 5:35, :, 128:], self.dense(q, k, k)))
        out[:, 5:35, :, 128:] = float("nan")
        self.assertTrue(out.isnan().all(), "written outside of out")

    def test_what_is_written_must_not_overlap(self):
        q, k = (normal(2, 4, 2, 64, dtype=torch.bfloat16, device="cuda") for _ in "qk")
        with self.assertRaisesRegex(ValueError, "out has strides .*overlap"):
            fovea.flash_attn_func(q, k, k, out=torch.empty_like(q[:, :, :1]).expand(q.shape))
        cache, lens = torch.zeros(1, 16, 2, 64, dtype=torch.bfloat16, device="cuda"), ints([3, 5], "cuda")
        for bad in (cache.expand(2, 16, 2, 64), cache[:, :, :1].repeat(2, 1, 1, 1).expand(2, 16, 2, 64)):
            with self.assertRaisesRegex(ValueError, "k_cache has strides .*overlap"):
                fovea.flash_attn_with_kvcache(q, bad, bad, k, k, cache_seqlens=lens)
        with self.assertRaisesRegex(ValueError, "multiple of 8|aligned"):
            fovea.flash_attn_func(normal(2, 4, 2, 68, dtype=torch.bfloat16, device="cuda")[..., :64], k, k)

    def test_index_arrays(self):
        q, pages = normal(3, 2, 4, 64, dtype=torch.bfloat16, device="cuda"), normal(9, 16, 2, 64, dtype=torch.bfloat16, device="cuda")
        table, lens = ints([[3, 1, 4], [8, 5, 0], [2, 6, 7]], "cuda"), ints([40, 18, 48], "cuda")
        wanted = fovea.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=lens, page_table=table, causal=True)
        attention = fovea.Attention(fovea.AttentionSpec(4, 2, 64, page_size=16), fovea.Limits(4, 8, 256, 64, "many"), device="cuda")
        for dtype in (torch.int32, torch.int64):
            wide, column = torch.full((3, 6), -5, dtype=dtype, device="cuda"), torch.full((3, 4), -7, dtype=dtype, device="cuda")
            wide[:, ::2], column[:, 1] = table, lens
            offsets = torch.full((7,), 99, dtype=dtype, device="cuda")
            offsets[::2] = ints([0, 2, 4, 6])
            for strided in (wide[:, ::2], table.to(dtype).T.contiguous().T):
                out = fovea.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=column[:, 1], page_table=strided, causal=True)
                self.assertTrue(torch.equal(out, wanted))
                attention.plan(offsets[::2], column[:, 1], page_table=strided, num_tokens=6, num_pages=9)
                self.assertTrue(torch.equal(attention.run(q, pages, pages), wanted))
                turned = q.transpose(1, 2).contiguous().transpose(1, 2)
                self.assertTrue(torch.equal(attention.run(turned, pages, pages), wanted))
                attention.check()


class Bits(TorchTest):
    """A row's bits do not depend on the batch, the table's width or the page size."""

    def test_decode_and_extend(self):
        generator = torch.Generator().manual_seed(3)
        lens = torch.randint(1, 3000, (64,), generator=generator)
        lens[:4] = torch.tensor([1000, 2999, 1, 1025])
        for heads, kv_heads, dim, dtype in ((32, 8, 128, torch.bfloat16), (8, 8, 64, torch.float16), (16, 2, 128, torch.bfloat16)):
            k, v = (normal(64, 3008, kv_heads, dim, dtype=dtype, device="cuda") for _ in "kv")
            for n_q in (1, 4, 40):
                q = normal(64, n_q, heads, dim, dtype=dtype, device="cuda")
                for tune_for in ("many", "few"):
                    wanted = {}

                    def check(out, what):
                        for b in range(out.shape[0]):
                            same = torch.equal(wanted.setdefault(b, out[b]), out[b])
                            self.assertTrue(same, f"sequence {b}, {heads} heads, {n_q} rows, {tune_for}, {what}")

                    for batch in (1, 2, 3, 16, 17, 31, 64):
                        device_lens = lens[:batch].int().cuda()
                        check(
                            fovea.flash_attn_with_kvcache(
                                q[:batch], k[:batch], v[:batch], cache_seqlens=device_lens, causal=True, tune_for=tune_for
                            ),
                            f"B = {batch}",
                        )
                        for page in (16, 64, 1) if batch in (1, 5, 17) else (32,):
                            need = -(-3008 // page)
                            ids = torch.randperm(batch * need, generator=generator).view(batch, need)
                            pages = []
                            for x in (k, v):
                                rows = torch.full((batch, need * page, kv_heads, dim), float("nan"), dtype=dtype, device="cuda")
                                rows[:, :3008] = x[:batch]
                                cache = torch.empty(batch * need, page, kv_heads, dim, dtype=dtype, device="cuda")
                                cache[ids.view(-1).cuda()] = rows.view(batch * need, page, kv_heads, dim)
                                pages.append(cache)
                            for width in (need, need + 3, 5 * need):
                                table = torch.full((batch, width), 2**30, dtype=torch.int32, device="cuda")
                                table[:, :need] = ids.int().cuda()
                                check(
                                    fovea.flash_attn_with_kvcache(
                                        q[:batch], *pages, cache_seqlens=device_lens, page_table=table, causal=True,
                                        tune_for=tune_for,
                                    ),
                                    f"B = {batch}, pages of {page}, a table of {width}",
                                )

    def test_padded_and_ragged(self):
        q, k, v = (normal(64, n, h, 128, dtype=torch.bfloat16, device="cuda") for n, h in ((20, 8), (1000, 8), (1000, 8)))
        for n_q in (1, 20):
            wanted = {}
            for batch in (1, 16, 17, 64):
                cu_q, cu_k = (torch.arange(0, batch * n + 1, n, dtype=torch.int32, device="cuda") for n in (n_q, 1000))
                flat = [x[:batch].reshape(-1, *x.shape[2:]) for x in (q[:, :n_q], k, v)]
                for out in (
                    fovea.flash_attn_func(q[:batch, :n_q], k[:batch], v[:batch], causal=True),
                    fovea.flash_attn_varlen_func(*flat, cu_q, cu_k, n_q, 1000, causal=True).view(batch, n_q, 8, 128),
                    fovea.flash_attn_varlen_func(*flat, cu_q, cu_k, n_q, 4000, causal=True).view(batch, n_q, 8, 128),
                ):
                    for b in range(batch):
                        self.assertTrue(torch.equal(wanted.setdefault(b, out[b]), out[b]), f"B = {batch}, {n_q} rows")


class Faults(TorchTest):
    """What only the GPU sees costs the sequences at fault and no other."""

    def setUp(self):
        self.q = normal(4, 3, 8, 128, dtype=torch.bfloat16, device="cuda")
        self.pages = normal(64, 16, 2, 128, dtype=torch.bfloat16, device="cuda")
        self.table = torch.randperm(64, device="cuda")[:48].view(4, 12).int()
        self.lens = ints([5, 150, 192, 31], "cuda")

    def call(self, lens, table, **options):
        return fovea.flash_attn_with_kvcache(
            self.q, self.pages, self.pages, cache_seqlens=lens, page_table=table, causal=True, return_softmax_lse=True, **options
        )

    def lost(self, got, wanted, which):
        for now, was in zip(got, wanted):
            for b in range(4):
                self.assertTrue(now[b].isnan().all() if b == which else torch.equal(now[b], was[b]), f"sequence {b}")

    def test_lengths_beyond_the_table(self):
        wanted = self.call(self.lens, self.table)
        for bad in (193, 2**31 - 1, -1):
            lens = self.lens.clone()
            lens[1] = bad
            self.lost(self.call(lens, self.table, check_pages=False), wanted, 1)
            with self.assertRaisesRegex(ValueError, "kv_len is not in 0 to 192"):
                self.call(lens, self.table, check_pages=True)

    def test_page_ids(self):
        attention = fovea.Attention(fovea.AttentionSpec(8, 2, 128), fovea.Limits(4, 16, 1024, 256, "many"), device="cuda")
        offsets = ints([0, 3, 6, 9, 12], "cuda")
        wanted = self.call(self.lens, self.table)
        for bad in (64, -1, 2**30):
            table = self.table.clone()
            table[2, 11] = bad
            attention.plan(offsets, self.lens, page_table=table, num_tokens=12, num_pages=64)
            out, lse = attention.run(self.q, self.pages, self.pages, return_lse=True)
            self.lost((out, lse.view(4, 3, 8).transpose(1, 2)), wanted, 2)
            for check in (attention.check, lambda: self.call(self.lens, table, check_pages=True)):
                with self.assertRaisesRegex(ValueError, f"sequence 2, entry 11 is {bad}; the cache has pages 0 to 63"):
                    check()
            table[2, 11] = 0
            attention.plan(offsets, self.lens, page_table=table, num_tokens=12, num_pages=64)
            attention.check()

    def test_a_value_that_is_not_finite_stays_in_its_sequence_and_head(self):
        """Also where a recycled page lies left of a window's edge, in the tile of keys that are seen."""
        wanted, _ = self.call(self.lens, self.table, window_size=(40, 0))
        for key, seen in ((150, True), (192 - 3 - 40 - 1, False)):
            for bad in (float("nan"), float("inf")):
                page, slot = int(self.table[2, key // 16]), key % 16
                old = self.pages[page, slot, 1].clone()
                self.pages[page, slot, 1] = bad
                out, _ = self.call(self.lens, self.table, window_size=(40, 0))
                self.pages[page, slot, 1] = old
                changed = (out != wanted).any(-1)
                self.assertEqual(bool(changed[2, :, 4:].any()), seen, f"key {key}")
                changed[2, :, 4:] = False
                self.assertFalse(changed.any(), f"key {key} reaches another sequence or head")


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
