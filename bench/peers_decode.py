"""Decode: the time of a call relative to a plain read of the same bytes of K and V, both in CUDA graphs."""

import math
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fovea
from peers_support import Contender, installed, plain_read, relative_error

HEADS, KV_HEADS, D = 32, 8, 128
DTYPE = torch.bfloat16
ROTATE_BYTES = 268 << 20  # more than four times an H200's L2


def attention(backend, limits, **spec):
    return fovea.Attention(fovea.AttentionSpec(HEADS, KV_HEADS, D, **spec), fovea.Limits(*limits), backend=backend,
                           device="cuda")


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
        self.want = self.reference()

    def reference(self):
        """fp64, of the first cache's shortest and longest sequence, query head 0."""
        wanted = {}
        for b in {self.lens.index(min(self.lens)), self.lens.index(max(self.lens))}:
            pages = self.tables[0][b, :-(-self.lens[b] // self.page)].long()
            # Bytes, as not every torch picks rows of fp8.
            k, v = (x.view(torch.uint8)[pages].view(x.dtype)[:, :, 0].reshape(-1, D)[:self.lens[b]].double() for x in self.pool)
            wanted[b] = (self.q[b, 0].double() @ k.T / math.sqrt(D)).softmax(-1) @ v
        return wanted

    def error(self, call):
        out = call()
        return max(relative_error(out[b, 0], x) for b, x in self.want.items())


def decode_contenders(caches, backends):
    batch, lens = len(caches.lens), caches.lens
    limits = (batch, batch, sum(lens), max(lens))

    def ours(backend, settled):
        def make():
            calls = []
            for table in caches.tables:
                a = attention(backend, limits, page_size=caches.page, kv_dtype=caches.kv_dtype)
                a.plan(caches.offsets, caches.kv_lens, page_table=table, num_tokens=batch, phase="decode",
                       past_kv_ready=settled)
                out = torch.full_like(caches.q, math.nan)
                calls.append(lambda a=a, out=out: a.run(caches.q, *caches.pool, out=out))
            return calls
        return make
    for backend in backends:
        yield Contender(f"fovea {backend}", ours(backend, False), caches.error, graph=True)
        if backend == "fa3":  # only its kernels use past_kv_ready
            yield Contender("fovea fa3, past_kv_ready", ours(backend, True), caches.error, graph=True)

    def contiguous(kind):
        def make():
            flat = caches.pool.view(2, caches.count, batch, lens[0], KV_HEADS, D).transpose(3, 4)
            q = caches.q[:, :, None]

            def call(i):
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(q, flat[0, i], flat[1, i], enable_gqa=True)
            return [lambda i=i: call(i) for i in range(caches.count)]
        return make
    # Contiguous keys without pages, with other values than Fovea's, so its results are not compared. It supports neither fp8
    # caches nor mixed lengths.
    if caches.kv_dtype == "auto" and min(lens) == max(lens):
        yield Contender("torch cuDNN SDPA, contiguous", contiguous(SDPBackend.CUDNN_ATTENTION), graph=True)
        yield Contender("torch flash SDPA, contiguous", contiguous(SDPBackend.FLASH_ATTENTION), graph=True)

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
    if installed("flashinfer"):
        yield Contender("flashinfer", flashinfer, caches.error, graph=True)
    yield Contender("plain read", lambda: plain_read(caches.pool, caches.count, caches.bytes), graph=True)


def mixed_lengths(count=64):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(128, 16385, (count,), generator=generator).tolist()


def cases():
    """(name, lengths, page size, kv dtype)."""
    def case(batch, length, page, kv_dtype="auto"):
        kind = "bf16" if kv_dtype == "auto" else kv_dtype
        return f"B{batch} ctx{length} page {page} {kind}", [length] * batch, page, kv_dtype
    mixed = mixed_lengths()
    return ([case(b, n, 16) for b, n in ((16, 2048), (16, 8192), (64, 4096), (128, 2048), (128, 8192), (1, 8192), (1, 131072))]
            + [case(b, n, page) for page in (64, 1) for b, n in ((16, 2048), (16, 8192), (128, 8192))] + [case(1, 131072, 1)]
            + [("B64 mixed 128..16384 page 16 bf16", mixed, 16, "auto")]
            + [case(b, n, 16, "fp8_e4m3") for b, n in ((16, 2048), (16, 8192), (128, 8192), (1, 8192), (1, 131072))]
            + [case(b, n, 1, "fp8_e4m3") for b, n in ((16, 2048), (128, 8192))])


def bench_decode(measure, backends, only=None):
    for name, lens, page, kv_dtype in cases():
        if only is not None and not only(name):
            continue
        caches = Caches(lens, page, kv_dtype)
        times = measure(decode_contenders(caches, backends))
        read = times["plain read"].get("seconds")
        if read is None:
            sys.exit(f"peers.py: no plain read, and so no read ratio: {times['plain read']['why_not']}")
        for contender, result in times.items():
            row = {"case": name, "contender": contender, **result}
            if "seconds" in result:
                row["gb_per_s"] = caches.bytes / result["seconds"] / 1e9
                row["read_ratio"] = result["seconds"] / read
            yield row
        del caches
        torch.cuda.empty_cache()


def bench_planner(measure, backends):
    """plan() of a decode step in a separate graph: the time before the first layer of a step."""
    for batch in (1, 16, 64, 256):
        lens = torch.randint(128, 16385, (batch,), generator=torch.Generator().manual_seed(4)).int()
        offsets = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        table = torch.zeros(batch, 1024, dtype=torch.int32, device="cuda")
        kv_lens = lens.cuda()

        def make(backend, batch=batch, table=table, kv_lens=kv_lens, offsets=offsets):
            a = attention(backend, (batch, batch, batch * 16384, 16384), page_size=16)
            return [lambda: a.plan(offsets, kv_lens, page_table=table, num_tokens=batch, phase="decode")] * 8
        contenders = [Contender(f"fovea {b}", lambda b=b: make(b), graph=True) for b in backends]
        for contender, result in measure(contenders).items():
            yield {"case": f"plan of a decode step, B{batch}, lengths 128..16384", "contender": contender, **result}
