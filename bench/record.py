#!/usr/bin/env python3
"""Runs fovea's benchmarks one after another and writes their output, with the machine and the commit, to a file.

Usage: record.py PROGRAM OUTPUT.json [--threads N]
"""
import argparse
import datetime
import json
import os
import platform
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

BENCHMARKS = {
    "machine": ["bench", "machine"],
    "attention": ["bench", "attention"],
    "attention_fp16": ["bench", "attention", "--kv-cache-dtype", "float16"],
    "attention_fp32": ["bench", "attention", "--kv-cache-dtype", "float32"],
    "attention_fp8_e4m3": ["bench", "attention", "--kv-cache-dtype", "fp8_e4m3"],
    "attention_fp8_e5m2": ["bench", "attention", "--kv-cache-dtype", "fp8_e5m2"],
    "attention_int8": ["bench", "attention", "--kv-cache-dtype", "int8_per_token_head"],
    "attention_page_1": ["bench", "attention", "--page-size", "1"],
    "linear_bf16": ["bench", "linear"],
    "linear_fp16": ["bench", "linear", "--dtype", "float16"],
    "linear_fp32": ["bench", "linear", "--dtype", "float32"],
    "model_demo": ["bench", "model"],
    "model_0.6b": ["bench", "model", "--dummy-weights", "--model", os.path.join(ROOT, "bench/configs/qwen3-0.6b"),
                   "--max-seq-len-override", "4096", "--prompt-tokens", "512", "--new-tokens", "32"],
    "model_0.6b_batch_8": ["bench", "model", "--dummy-weights", "--model", os.path.join(ROOT, "bench/configs/qwen3-0.6b"),
                           "--max-seq-len-override", "4096", "--prompt-tokens", "128", "--new-tokens", "32", "--batch", "8"],
}


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("output")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    threads = ["--threads", str(args.threads)] if args.threads else []
    record = {
        "date": datetime.date.today().isoformat(),
        "commit": output_of("git", "-C", ROOT, "describe", "--always", "--dirty"),
        "device": cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "program": output_of(args.program, "--version"),
        "results": {},
    }
    for name, command in BENCHMARKS.items():
        rows = output_of(args.program, *command, *threads, "--json").replace(ROOT + os.sep, "").splitlines()
        record["results"][name] = {"command": "fovea " + " ".join(os.path.relpath(part, ROOT) if part.startswith(ROOT) else part
                                                                 for part in command),
                                   "rows": [json.loads(row) for row in rows]}
        print(name, *rows, sep="\n  ")
    with open(args.output, "w") as file:
        json.dump(record, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
