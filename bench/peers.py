#!/usr/bin/env python3
"""Compares Fovea's attention on a GPU with the installed libraries; measurements are interleaved, with cool-down.

Usage: peers.py [--only PART,...] [--backends NAME,...] [--rounds N] [--output FILE.json]

Parts: prefill, latent (MLA's prefill without absorption), decode, planner, sustained. Needs torch with CUDA and the fovea package (PYTHONPATH=python with libfovea.so
found, or its wheel). Beside Fovea's backends (fa3 and fa2 unless others are named): torch's flash and cuDNN SDPA, and
flash_attn_interface and FlashInfer where they can be imported; what can't run a case is listed with the reason. Every
result is compared with fp64 before it is timed.

Prefill is TFLOP/s of what the mask leaves. Decode is a read ratio: the time of one call over the time of a plain read
of the same K and V bytes, both in CUDA graphs of several calls on disjoint caches, so that nothing is found in L2. Times are
medians over all rounds. The card is power-limited: each turn rests, warms up and then measures for a short while, so
figures are of a rested card (`sustained` has those of a busy one); compare within one run only. plot.py draws a record."""

import argparse
import functools
import json
import pathlib
import sys
import time
import warnings

try:
    import torch

    import fovea
    from peers_decode import bench_decode, bench_planner
    from peers_prefill import bench_prefill, latent_groups, matmul, ratios
    from peers_support import describe_machine, installed, sustained, interleaved
except ImportError as missing:
    sys.exit(f"peers.py: {missing}; it needs torch with triton, and fovea: its wheel, or PYTHONPATH=python and FOVEA_LIBRARY")

warnings.filterwarnings("ignore", message=".*")  # SDPA warns for each of its backends that was not selected

SUSTAINED = {"causal B4 S4096 D128", "causal B1 S16384 D128", "full B4 S4096 D128", "full B1 S16384 D128"}
SUSTAINED_DECODE = {"B16 ctx8192 page 16 bf16", "B128 ctx8192 page 16 bf16"}


def show(row):
    if "seconds" not in row:
        print(f"{row['case']:42} {row['contender']:30} -- {row['why_not']}", flush=True)
        return
    extra = "".join(f"  {label} {row[key]:.3f}" for key, label in
                    (("tflops", "TFLOP/s"), ("gb_per_s", "GB/s"), ("read_ratio", "read ratio")) if row.get(key))
    print(f"{row['case']:42} {row['contender']:30} {row['seconds'] * 1e6:9.2f} us{extra}", flush=True)


def cublas(measure):
    contender, flops = matmul()
    result = measure([contender])["cuBLAS"]
    return {"case": "matmul bf16 8192", "contender": "cuBLAS", **result, "tflops": flops / result["seconds"] / 1e12}


def prefill(measure, backends):
    yield cublas(measure)
    yield from bench_prefill(measure, backends)


def latent(measure, backends):
    yield cublas(measure)
    yield from bench_prefill(measure, backends, cases_of=latent_groups)


def all_sustained(_, backends):
    yield cublas(sustained)
    yield from bench_prefill(sustained, backends, lambda case: case.name in SUSTAINED)
    yield from bench_decode(sustained, backends, lambda name: name in SUSTAINED_DECODE)


PARTS = {"prefill": prefill, "latent": latent, "decode": bench_decode, "planner": bench_planner, "sustained": all_sustained}


def prefills(results):
    return results.get("prefill", []) + results.get("latent", [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--backends", default="fa3,fa2")
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
    record["not_installed"] = [package for package in ("flash_attn_interface", "flashinfer") if not installed(package)]
    print(json.dumps(record), flush=True)
    begin = time.time()
    backends = args.backends.split(",")
    measure = functools.partial(interleaved, rounds=args.rounds)
    record["results"] = {}
    for part in args.only.split(","):
        rows = record["results"][part] = []
        for row in PARTS[part](measure, backends):
            rows.append(row)
            show(row)
        if args.output:  # the results so far
            record["ratios"] = ratios(prefills(record["results"]), backends)
            record["minutes"] = round((time.time() - begin) / 60, 1)
            pathlib.Path(args.output).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, ratio in ratios(prefills(record["results"]), backends).items():
        print(f"{name:78} {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
