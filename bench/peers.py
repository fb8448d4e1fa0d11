#!/usr/bin/env python3
"""Times Fovea's attention on a GPU beside what is installed there, contenders taking turns with rests between them.

Usage: peers.py [--only PART,...] [--rounds N] [--output FILE.json]

Parts: prefill, decode, planner. Needs torch with CUDA and the fovea package (PYTHONPATH=python with libfovea.so found, or
its wheel). Beside Fovea's backends: torch's flash and cuDNN SDPA, flex_attention, and FlashAttention and FlashInfer where
they can be imported; what can't run a case is listed with the reason.

Prefill is TFLOP/s of what a causal mask leaves. Decode is a read ratio: the time of one call over the time of a plain read
of the same K and V bytes, both in CUDA graphs of several calls on disjoint caches, so that nothing is found in L2. Times are
medians over all rounds. The card is power-limited: each turn rests, warms up and then measures for a short while, so
figures are of a rested card; compare within one run only."""

import argparse
import json
import math
import pathlib
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import fovea
    from peers_support import Contender, describe_machine, plain_read, take_turns
except ImportError as missing:
    sys.exit(f"peers.py: {missing}; it needs torch with triton, and fovea: its wheel, or PYTHONPATH=python and FOVEA_LIBRARY")

HEADS, KV_HEADS, D = 32, 8, 128
DTYPE = torch.bfloat16
ROTATE_BYTES = 268 << 20  # more than four times an H200's L2
OURS = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN")
TOLERANCE = {"auto": 6e-3, "fp8_e4m3": 6e-3}  # ||out - ref|| / ||ref|| in bf16, of the dequantised cache


def attention(backend, limits, **spec):
    return fovea.Attention(fovea.AttentionSpec(HEADS, KV_HEADS, D, **spec), fovea.Limits(*limits), backend=backend,
                           device="cuda")


def relative_error(out, reference):
    return ((out.double() - reference.double()).norm() / reference.double().norm()).item()


# Prefill


def prefill_reference(q, k, v, rows):
    """fp64 attention of head 0 of sequence 0 for the query rows `rows`."""
    scores = q[0, rows, 0].double() @ k[0, :, 0].double().T / math.sqrt(D)
    hidden = torch.arange(k.shape[1], device="cuda")[None] > rows[:, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1) @ v[0, :, 0].double()


def prefill_contenders(q, k, v):
    batch, length = q.shape[:2]
    tokens = batch * length
    offsets = torch.arange(0, tokens + 1, length, dtype=torch.int32, device="cuda")
    lens = torch.full((batch,), length, dtype=torch.int32, device="cuda")
    flat = [x.view(tokens, *x.shape[2:]) for x in (q, k, v)]
    for backend in OURS:
        def make(backend=backend):
            out = torch.full_like(flat[0], math.nan)
            a = attention(backend, (batch, tokens, tokens, length), page_size=1)
            a.plan(offsets, lens, kv_indptr=offsets, num_tokens=tokens, phase="prefill")
            return lambda: a.run(*flat, out=out).view_as(q)
        yield Contender(f"fovea {backend}", make)
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]

    def sdpa(kind):
        def call():
            with sdpa_kernel(kind):
                return F.scaled_dot_product_attention(*heads_first, is_causal=True, enable_gqa=True).transpose(1, 2)
        return lambda: call
    yield Contender("torch flash SDPA", sdpa(SDPBackend.FLASH_ATTENTION))
    yield Contender("torch cuDNN SDPA", sdpa(SDPBackend.CUDNN_ATTENTION))

    def flex():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cuda")
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(*heads_first, block_mask=mask, enable_gqa=True).transpose(1, 2)
    yield Contender("flex_attention", flex)

    def flash_attn():
        from flash_attn import flash_attn_func
        return lambda: flash_attn_func(q, k, v, causal=True)
    yield Contender("flash_attn", flash_attn)


def bench_prefill(rounds):
    rows = []
    for batch, length in ((4, 4096), (1, 16384)):
        torch.manual_seed(1)
        q = torch.randn(batch, length, HEADS, D, device="cuda", dtype=DTYPE)
        k, v = (torch.randn(batch, length, KV_HEADS, D, device="cuda", dtype=DTYPE) for _ in range(2))
        probe = torch.tensor([0, 1, length // 2, length - 1], device="cuda")
        want = prefill_reference(q, k, v, probe)
        flops = 4 * batch * HEADS * D * length * (length + 1) / 2

        def check(call, want=want, probe=probe):
            return relative_error(call()[0, probe, 0], want)
        times = take_turns(prefill_contenders(q, k, v), rounds, check, TOLERANCE["auto"])
        base = times["torch flash SDPA"].get("seconds")
        for name, result in times.items():
            row = {"case": f"causal B{batch} S{length} Hq{HEADS} Hkv{KV_HEADS} D{D} bf16", "contender": name, **result}
            if "seconds" in result:
                row["tflops"] = flops / result["seconds"] / 1e12
                row["over_torch_flash"] = base / result["seconds"] if base else None
            rows.append(row)
            show(row)
    return rows


# Decode


class Caches:
    """Disjoint paged caches for one step each, pages in random order; together at least ROTATE_BYTES."""

    def __init__(self, lens, page, kv_dtype):
        self.lens, self.page, self.kv_dtype = lens, page, kv_dtype
        element = 1 if kv_dtype != "auto" else 2
        self.bytes = sum(lens) * KV_HEADS * D * 2 * element
        self.count = max(1, -(-ROTATE_BYTES // self.bytes))
        pages_of = [-(-n // page) for n in lens]
        self.pages = sum(pages_of)
        generator = torch.Generator("cuda").manual_seed(2)
        pool = torch.randn(2, self.count * self.pages, page, KV_HEADS, D, device="cuda", dtype=DTYPE, generator=generator)
        self.pool = pool if kv_dtype == "auto" else pool.to(torch.float8_e4m3fn)
        order = torch.randperm(self.count * self.pages, device="cuda", generator=generator).int()
        self.tables = []
        for i in range(self.count):
            table = torch.zeros(len(lens), max(pages_of), dtype=torch.int32, device="cuda")
            first = i * self.pages
            for b, n in enumerate(pages_of):
                table[b, :n] = order[first:first + n]
                first += n
            self.tables.append(table)
        self.kv_lens = torch.tensor(lens, dtype=torch.int32, device="cuda")
        self.offsets = torch.arange(len(lens) + 1, dtype=torch.int32, device="cuda")
        self.q = torch.randn(len(lens), HEADS, D, device="cuda", dtype=DTYPE, generator=generator)

    def reference(self):
        """fp64, of the first cache's shortest and longest sequence, query head 0."""
        wanted = {}
        for b in {self.lens.index(min(self.lens)), self.lens.index(max(self.lens))}:
            pages = self.tables[0][b, :-(-self.lens[b] // self.page)].long()
            # Bytes, as not every torch picks rows of fp8.
            k, v = (x.view(torch.uint8)[pages].view(x.dtype)[:, :, 0].reshape(-1, D)[:self.lens[b]].double() for x in self.pool)
            wanted[b] = (self.q[b, 0].double() @ k.T / math.sqrt(D)).softmax(-1) @ v
        return wanted


def decode_contenders(caches):
    batch, lens = len(caches.lens), caches.lens
    limits = (batch, batch, sum(lens), max(lens))

    def ours(backend):
        def make():
            calls = []
            for table in caches.tables:
                a = attention(backend, limits, page_size=caches.page, kv_dtype=caches.kv_dtype)
                a.plan(caches.offsets, caches.kv_lens, page_table=table, num_tokens=batch, phase="decode")
                out = torch.full_like(caches.q, math.nan)
                calls.append(lambda a=a, out=out: a.run(caches.q, *caches.pool, out=out))
            return calls
        return make
    for backend in OURS:
        yield Contender(f"fovea {backend}", ours(backend), graph=True)

    def contiguous(kind):
        def make():
            if caches.kv_dtype != "auto" or min(lens) != max(lens):
                raise ValueError("takes neither fp8 caches nor mixed lengths")
            flat = caches.pool.view(2, caches.count, batch, lens[0], KV_HEADS, D).transpose(3, 4)
            q = caches.q[:, :, None]

            def call(i):
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(q, flat[0, i], flat[1, i], enable_gqa=True)
            return [lambda i=i: call(i) for i in range(caches.count)]
        return make
    # Keys in one piece, without pages: other sequences' than ours, so they are not checked against them.
    yield Contender("torch cuDNN SDPA, contiguous", contiguous(SDPBackend.CUDNN_ATTENTION), graph=True, checked=False)
    yield Contender("torch flash SDPA, contiguous", contiguous(SDPBackend.FLASH_ATTENTION), graph=True, checked=False)

    def flashinfer():
        import flashinfer as library
        calls = []
        indptr = torch.cat([torch.zeros(1), torch.tensor([-(-n // caches.page) for n in lens]).cumsum(0)]).int()
        last = torch.tensor([(n - 1) % caches.page + 1 for n in lens]).int()
        for table in caches.tables:
            pages = torch.cat([table[b, :-(-n // caches.page)] for b, n in enumerate(lens)])
            wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
                torch.empty(512 << 20, dtype=torch.uint8, device="cuda"), "NHD", use_tensor_cores=True)
            wrapper.plan(indptr, pages, last, HEADS, KV_HEADS, D, caches.page, q_data_type=DTYPE,
                         kv_data_type=caches.pool.dtype)
            calls.append(lambda w=wrapper: w.run(caches.q, (caches.pool[0], caches.pool[1])))
        return calls
    yield Contender("flashinfer", flashinfer, graph=True)
    yield Contender("plain read", lambda: plain_read(caches.pool, caches.count, caches.bytes), graph=True, checked=False)


def mixed_lengths(count=64):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(128, 16385, (count,), generator=generator).tolist()


DECODE_CASES = (
    [(f"B{b} ctx{n}", [n] * b, 16, "auto") for b, n in
     ((1, 8192), (1, 131072), (16, 2048), (16, 8192), (16, 16384), (64, 4096), (128, 2048), (128, 8192), (128, 16384))]
    + [("B64 mixed 128..16384", mixed_lengths(), 16, "auto")]
    + [(f"B{b} ctx{n}", [n] * b, 1, "auto") for b, n in ((16, 8192), (128, 2048), (128, 8192))]
    + [(f"B{b} ctx{n}", [n] * b, 16, "fp8_e4m3") for b, n in ((1, 8192), (16, 8192), (128, 2048), (128, 8192))])


def bench_decode(rounds):
    rows = []
    for name, lens, page, kv_dtype in DECODE_CASES:
        caches = Caches(lens, page, kv_dtype)
        want = caches.reference()

        def check(call, want=want):
            out = call()
            return max(relative_error(out[b, 0], x) for b, x in want.items())
        times = take_turns(decode_contenders(caches), rounds, check, TOLERANCE[kv_dtype])
        read = times["plain read"].get("seconds")
        if read is None:
            sys.exit(f"peers.py: no plain read, and so no read ratio: {times['plain read']['why_not']}")
        for contender, result in times.items():
            row = {"case": f"{name} page {page} {'bf16' if kv_dtype == 'auto' else kv_dtype}", "contender": contender, **result}
            if "seconds" in result:
                row["gb_per_s"] = caches.bytes / result["seconds"] / 1e9
                row["read_ratio"] = result["seconds"] / read
            rows.append(row)
            show(row)
        del caches
        torch.cuda.empty_cache()
    return rows


# Planner


def bench_planner(rounds):
    """plan() of a decode step in a graph of its own: what a step pays before its first layer."""
    rows = []
    for batch in (1, 16, 64, 256):
        lens = torch.randint(128, 16385, (batch,), generator=torch.Generator().manual_seed(4)).int()
        offsets = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        table = torch.zeros(batch, 1024, dtype=torch.int32, device="cuda")
        kv_lens = lens.cuda()

        def make(batch=batch, table=table, kv_lens=kv_lens, offsets=offsets):
            a = attention("FLASH_ATTN", (batch, batch, batch * 16384, 16384), page_size=16)
            return [lambda: a.plan(offsets, kv_lens, page_table=table, num_tokens=batch, phase="decode")] * 8
        times = take_turns([Contender("fovea FLASH_ATTN", make, graph=True, checked=False)], rounds, None, 0)
        for contender, result in times.items():
            rows.append({"case": f"plan of a decode step, B{batch}, lengths 128..16384", "contender": contender, **result})
            show(rows[-1])
    return rows


def show(row):
    if "seconds" not in row:
        print(f"{row['case']:46} {row['contender']:32} -- {row['why_not']}", flush=True)
        return
    extra = "".join(f"  {label} {row[key]:.3f}" for key, label in
                    (("tflops", "TFLOP/s"), ("over_torch_flash", "x torch flash"), ("gb_per_s", "GB/s"),
                     ("read_ratio", "read ratio")) if row.get(key))
    print(f"{row['case']:46} {row['contender']:32} {row['seconds'] * 1e6:9.2f} us{extra}", flush=True)


PARTS = {"prefill": bench_prefill, "decode": bench_decode, "planner": bench_planner}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only {args.only}: parts are {', '.join(PARTS)}")
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds}: at least 1")
    if not torch.cuda.is_available():
        parser.error("torch finds no CUDA device")
    if not fovea.has_cuda():
        parser.error("this libfovea.so is built without CUDA; build it with the preset cuda")
    record = describe_machine()
    print(json.dumps(record), flush=True)
    begin = time.time()
    record["results"] = {part: PARTS[part](args.rounds) for part in args.only.split(",")}
    record["minutes"] = round((time.time() - begin) / 60, 1)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
