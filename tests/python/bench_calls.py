"""What a call costs on the host: microseconds of run() and of the functions, on the smallest work, and of what they are made of.

    PYTHONPATH=python FOVEA_LIBRARY=... python3 tests/python/bench_calls.py [cpu | cuda]"""

import sys
import time

import fovea


def microseconds(call, n=2000):
    for _ in range(50):
        call()
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(n):
            call()
        best = min(best, time.perf_counter() - start)
    return best / n * 1e6


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None:
        import numpy as np

        def make(*shape):
            return np.zeros(shape, "float32")

        def ints(*values):
            return np.int32(values)

        dtype, sync = "float32", lambda: None
    else:
        dtype = "float32" if device == "cpu" else "bfloat16"

        def make(*shape):
            return torch.zeros(shape, dtype=getattr(torch, dtype), device=device)

        def ints(*values):
            return torch.tensor(values, dtype=torch.int32, device=device)

        def sync():
            if device != "cpu":
                torch.cuda.synchronize()

    spec = fovea.AttentionSpec(2, 1, 64, dtype, page_size=16)
    attention = fovea.Attention(spec, fovea.Limits(16, 16, 256, 16), device=device)
    q, pages, out = make(1, 2, 64), make(1, 16, 1, 64), make(1, 2, 64)
    step = {"q_offsets": ints(0, 1), "kv_lens": ints(1), "page_table": ints(0).reshape(1, 1), "num_tokens": 1, "phase": "decode"}
    print(f"torch {torch.__version__}" if torch is not None else "numpy", device, "microseconds a call")
    workspace = None
    if device != "cpu":
        workspace = torch.empty(attention.workspace_bytes, dtype=torch.uint8, device=device)
    rows = [("plan", lambda: attention.plan(workspace=workspace, **step))]
    attention.plan(workspace=workspace, **step)
    rows += [
        ("run, out given", lambda: attention.run(q, pages, pages, out=out)),
        ("run", lambda: attention.run(q, pages, pages)),
        ("run, lse", lambda: attention.run(q, pages, pages, return_lse=True)),
    ]
    dense = make(1, 1, 2, 64), make(1, 16, 1, 64)
    lens, table = ints(1), ints(0).reshape(1, 1)
    rows += [
        ("flash_attn_func", lambda: fovea.flash_attn_func(dense[0], dense[1], dense[1], causal=True)),
        (
            "flash_attn_with_kvcache, pages",
            lambda: fovea.flash_attn_with_kvcache(dense[0], pages, pages, cache_seqlens=lens, page_table=table, causal=True),
        ),
    ]
    if torch is not None and device != "cpu":
        rows += [
            ("(of it) torch.empty", lambda: torch.empty((1, 2, 64), dtype=torch.bfloat16, device=q.device)),
            ("(of it) whether captured", torch.cuda.is_current_stream_capturing),
        ]
    for name, call in rows:
        print(f"{name:32} {microseconds(call):7.2f}")
        sync()


if __name__ == "__main__":
    main()
