"""Prefill: Fovea's backends compared with torch's SDPA, and one backend's rate on different shapes."""

import math
from dataclasses import dataclass, field
from typing import Tuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fovea
from peers_support import Contender, installed, relative_error

DTYPE = torch.bfloat16
MIXED = (8192, 4096, 2048, 1024, 512, 256, 128, 128)


@dataclass(frozen=True)
class Prefill:
    """One step. `lens`: (query rows, keys) of each sequence."""

    name: str
    lens: Tuple[Tuple[int, int], ...]
    d: int = 128
    dv: int = 128
    page: int = 0
    """0: keys in one ragged tensor."""
    heads: int = 32
    kv_heads: int = 8
    causal: bool = True
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    against: bool = field(default=False, compare=False)
    """Whether other libraries run it too."""

    @property
    def rows(self):
        return sum(n_q for n_q, _ in self.lens)

    @property
    def uniform(self):
        """Whether other libraries take the sequences as one batch: their causal masks end at other keys if n_q < n_k."""
        return len(set(self.lens)) == 1 and (not self.causal or self.lens[0][0] == self.lens[0][1])

    def keys_of_row(self, n_q, n_k, row):
        """[first, last) of the keys that a row sees."""
        position = row + n_k - n_q
        return max(0, position - self.window + 1) if self.window else 0, position + 1 if self.causal else n_k

    def flops(self):
        """2 (D + Dv) for each query head, row and visible key."""
        pairs = 0
        for n_q, n_k in self.lens:
            first, past = zip(*(self.keys_of_row(n_q, n_k, row) for row in range(n_q)))
            pairs += sum(past) - sum(first)
        return 2 * (self.d + self.dv) * self.heads * pairs


def uniform(length, d=128, dv=None, causal=True, **more):
    batch = 16384 // length
    dv = dv or d
    size = str(d) if d == dv else f"{d}/{dv}"
    name = f"{'causal' if causal else 'full'} B{batch} S{length} D{size}"
    return Prefill(name, ((length, length),) * batch, d, dv, causal=causal, **more)


def latent(length, d, dv, heads):
    """Latent attention without absorption: all heads have their own keys."""
    case = uniform(length, d, dv, heads=heads, kv_heads=heads)
    return Prefill(**{**case.__dict__, "name": f"{case.name} H{heads}", "against": True})


def named(name, case, **changes):
    return Prefill(**{**case.__dict__, "name": name, "against": False, **changes})


def groups():
    """Cases that are measured interleaved; results within a group are comparable."""
    base, long = uniform(4096, against=True), uniform(16384, against=True)
    chunk = Prefill("2K after 30K D128", ((2048, 32768),))
    window = named("window 1024 S16384 D128", long, window=1024)
    return [
        [uniform(1024, against=True)],
        [base, uniform(4096, 192, 128, against=True)] + [named(f"{base.name} page {p}", base, page=p) for p in (16, 64, 1)]
        + [named("ragged 8192..128 D128", base, lens=tuple((n, n) for n in MIXED)),
           named(f"{base.name} soft cap", base, softcap=30.0), named(f"{base.name} sinks", base, sinks=True)],
        [long, window, named("window 1024 and sinks S16384 D128", window, sinks=True)],
        [chunk] + [named(f"{chunk.name} page {p}", chunk, page=p) for p in (16, 1)],
        *([uniform(n, causal=False, against=True)] for n in (1024, 4096, 16384)),
        *([uniform(n, d, against=True)] for d in (64, 96, 256) for n in (4096, 16384)),
    ]


def latent_groups():
    chunk = Prefill("4 x 2K on a chunk of 4K D192/128 H16", ((2048, 4096),) * 4, 192, 128, heads=16, kv_heads=16, causal=False, against=True)
    return [
        [latent(n, 192, 128, 16) for n in (4096, 16384)] + [chunk],
        *([latent(n, 192, 128, 128)] for n in (4096, 16384)),
        *([latent(n, 256, 256, 64)] for n in (4096, 16384)),
    ]


class Step:
    """A case's tensors. Keys and values are ragged; the pages contain the same values in random order."""

    def __init__(self, case):
        self.case = case
        generator = torch.Generator("cuda").manual_seed(1)

        def normal(*shape):
            return torch.randn(*shape, device="cuda", dtype=DTYPE, generator=generator)
        keys = sum(n_k for _, n_k in case.lens)
        self.q = normal(case.rows, case.heads, case.d)
        self.k, self.v = normal(keys, case.kv_heads, case.d), normal(keys, case.kv_heads, case.dv)
        self.sinks = normal(case.heads).float() if case.sinks else None
        n_q, n_k = (torch.tensor(n, dtype=torch.int64) for n in zip(*case.lens))
        self.q_offsets, self.indptr = (torch.cat([torch.zeros(1), n.cumsum(0)]).int().cuda() for n in (n_q, n_k))
        self.kv_lens = n_k.int().cuda()
        if case.page:
            order = torch.randperm(keys // case.page, device="cuda", generator=generator)
            self.page_indptr = (self.indptr // case.page).int()
            self.page_indices = torch.argsort(order).int()
            self.pages = [x.view(-1, case.page, *x.shape[1:])[order].contiguous() for x in (self.k, self.v)]
        self.probe = [0, 1, case.lens[0][0] // 2, case.lens[0][0] - 1]
        self.want = self.reference()

    def reference(self):
        """fp64 of head 0 of sequence 0 for a few rows."""
        case, (n_q, n_k) = self.case, self.case.lens[0]
        out = []
        for row in self.probe:
            first, past = case.keys_of_row(n_q, n_k, row)
            scores = self.k[first:past, 0].double() @ self.q[row, 0].double() / math.sqrt(case.d)
            if case.softcap:
                scores = case.softcap * (scores / case.softcap).tanh()
            if case.sinks:
                scores = torch.cat([scores, self.sinks[:1].double()])
            weights = scores.softmax(-1)[:past - first]
            out.append(weights @ self.v[first:past, 0].double())
        return torch.stack(out)

    def error(self, call):
        return relative_error(call().view(self.case.rows, self.case.heads, self.case.dv)[self.probe, 0], self.want)

    def ours(self, backend):
        case = self.case

        def make():
            spec = fovea.AttentionSpec(case.heads, case.kv_heads, case.d, v_head_dim=case.dv, page_size=case.page or 1,
                                       causal=case.causal, window_left=case.window - 1, softcap=case.softcap, has_sink=case.sinks)
            keys = self.k.shape[0]
            limits = fovea.Limits(len(case.lens), case.rows, keys, max(n_k for _, n_k in case.lens))
            a = fovea.Attention(spec, limits, backend=backend, device="cuda")
            pages = {"kv_indptr": self.page_indptr, "kv_indices": self.page_indices} if case.page else {"kv_indptr": self.indptr}
            a.plan(self.q_offsets, self.kv_lens, num_tokens=case.rows, phase="prefill", **pages)
            out = torch.full((case.rows, case.heads, case.dv), math.nan, device="cuda", dtype=DTYPE)
            k, v = self.pages if case.page else (self.k, self.v)
            return lambda: a.run(self.q, k, v, out=out, sinks=self.sinks)
        return make

    def sdpa(self, kind):
        case, batch = self.case, len(self.case.lens)

        def make():
            q, k, v = (x.view(batch, -1, *x.shape[1:]).transpose(1, 2) for x in (self.q, self.k, self.v))

            def call():
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=True)
            return call
        return make

    def others(self):
        """(name, make, check) for the other libraries that support the case."""
        heads_first = lambda call: self.error(lambda: call().transpose(1, 2).contiguous())
        yield "torch cuDNN SDPA", self.sdpa(SDPBackend.CUDNN_ATTENTION), heads_first
        yield "torch flash SDPA", self.sdpa(SDPBackend.FLASH_ATTENTION), heads_first

        def flash_attn_interface():
            from flash_attn_interface import flash_attn_func
            q, k, v = (x.view(len(self.case.lens), -1, *x.shape[1:]) for x in (self.q, self.k, self.v))
            first = lambda out: out[0] if isinstance(out, tuple) else out
            return lambda: first(flash_attn_func(q, k, v, causal=self.case.causal))
        if installed("flash_attn_interface"):
            yield "flash_attn_interface", flash_attn_interface, self.error

        def flashinfer():
            import flashinfer as library
            wrapper = library.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(128 << 20, dtype=torch.uint8, device="cuda"))
            wrapper.plan(self.q_offsets, self.indptr, self.case.heads, self.case.kv_heads, self.case.d, self.case.dv,
                         causal=self.case.causal, q_data_type=DTYPE)
            return lambda: wrapper.run(self.q, self.k, self.v)
        if installed("flashinfer"):
            yield "flashinfer", flashinfer, self.error

    def contenders(self, backends):
        for backend in backends:
            yield Contender(f"fovea {backend}", self.ours(backend), self.error)
        if self.case.against and self.case.uniform:
            for name, make, check in self.others():
                yield Contender(name, make, check)


def bench_prefill(measure, backends, only=None, cases_of=groups):
    """Rows of all groups; `only` selects cases. `measure` is interleaved or sustained."""
    for group in cases_of():
        cases = [case for case in group if only is None or only(case)]
        if not cases:
            continue
        steps = [Step(case) for case in cases]
        contenders = []
        for step in steps:
            for contender in step.contenders(backends):
                contender.name = f"{step.case.name}\n{contender.name}"
                contenders.append(contender)
        flops = {case.name: case.flops() for case in cases}
        for name, result in measure(contenders).items():
            case, contender = name.split("\n")
            row = {"case": case, "contender": contender, **result}
            if "seconds" in result:
                row["tflops"] = flops[case] / result["seconds"] / 1e12
            yield row
        del steps, contenders
        torch.cuda.empty_cache()


def matmul(rows=8192):
    """The rate of cuBLAS for a product of square matrices."""
    a, b = (torch.randn(rows, rows, device="cuda", dtype=DTYPE) for _ in range(2))
    return Contender("cuBLAS", lambda: lambda: a @ b), 2 * rows**3


def ratios(rows, backends):
    """The compared figures of the cases: {name: number}."""
    rate = {(row["case"], row["contender"]): row["tflops"] for row in rows if "tflops" in row}
    base, long, chunk = "causal B4 S4096 D128", "causal B1 S16384 D128", "2K after 30K D128"
    pairs = [("D192/128 / D128", "causal B4 S4096 D192/128", base), ("page 16 / contiguous", f"{base} page 16", base),
             ("page 64 / contiguous", f"{base} page 64", base), ("page 1 / contiguous", f"{base} page 1", base),
             ("2K after 30K, page 16 / contiguous", f"{chunk} page 16", chunk),
             ("2K after 30K, page 1 / contiguous", f"{chunk} page 1", chunk),
             ("ragged / S4096", "ragged 8192..128 D128", base), ("window 1024 / dense", "window 1024 S16384 D128", long),
             ("sinks and window / window", "window 1024 and sinks S16384 D128", "window 1024 S16384 D128"),
             ("sinks / none", f"{base} sinks", base), ("soft cap / none", f"{base} soft cap", base)]
    out = {}
    for backend in (f"fovea {b}" for b in backends):
        for case in dict.fromkeys(row["case"] for row in rows):
            for peer in ("torch cuDNN SDPA", "torch flash SDPA"):
                if {(case, backend), (case, peer)} <= rate.keys():
                    out[f"{backend}: {case} / {peer}"] = rate[case, backend] / rate[case, peer]
        for name, over, under in pairs:
            if {(over, backend), (under, backend)} <= rate.keys():
                out[f"{backend}: {name}"] = rate[over, backend] / rate[under, backend]
    return out
