#!/usr/bin/env python3
"""Measures the engine on a GPU with random weights of real shapes, beside what the GPU can do, in one run.

Usage: engine.py PROGRAM [--output FILE.json] [--commit HASH] [--checkpoint-gb N]

Decode is given as the share of the read bandwidth that the step's weights and KV need; prefill as the share of the bf16
matrix rate that torch reaches with 8192 x 8192 x 8192 (the operations of linear layers and of causal attention); start
as the seconds from the command to the first token of a checkpoint of random weights that is in the page cache.
Decode rows also have the operations of a step and the share of it in which the GPU was idle, by CUPTI: its
folder belongs in LD_LIBRARY_PATH.
"""
import argparse
import datetime
import json
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLAMA = ROOT / "tests/configs/llama-3.1-8b"
FP8 = ROOT / "bench/configs/llama-3.1-8b-fp8"  # a scale for each output
FP8_BLOCKS = ROOT / "bench/configs/llama-3.1-8b-fp8-block"
QWEN_MOE = ROOT / "bench/configs/qwen3-30b-a3b"
GPT_OSS = ROOT / "tests/configs/gpt-oss-20b"
# name, config, batch, prompt tokens, new tokens, further options
ROWS = (
    ("decode B=1, ctx 1K", LLAMA, 1, 960, 128),
    ("decode B=16, ctx 1K", LLAMA, 16, 960, 128),
    ("decode B=64, ctx 1K", LLAMA, 64, 960, 128),
    ("decode B=256, ctx 1K", LLAMA, 256, 960, 128),
    ("prefill 8 x 2K", LLAMA, 8, 2048, 2),
    ("prefill 1 x 16K", LLAMA, 1, 16384, 2),
    ("fp8 decode B=1, ctx 1K", FP8, 1, 960, 128),
    ("fp8 decode B=64, ctx 1K", FP8, 64, 960, 128),
    ("fp8, fp8 KV decode B=64, ctx 1K", FP8, 64, 960, 128, "--kv-cache-dtype", "fp8"),
    ("fp8 prefill 8 x 2K", FP8, 8, 2048, 2),
    ("fp8 by block decode B=64, ctx 1K", FP8_BLOCKS, 64, 960, 128),
    ("fp8 KV decode B=64, ctx 1K", LLAMA, 64, 960, 128, "--kv-cache-dtype", "fp8"),
    ("qwen3-30b-a3b decode B=1, ctx 1K", QWEN_MOE, 1, 960, 128),
    ("qwen3-30b-a3b decode B=64, ctx 1K", QWEN_MOE, 64, 960, 128),
    ("gpt-oss mxfp4 decode B=1, ctx 1K", GPT_OSS, 1, 960, 128),
    ("gpt-oss mxfp4 decode B=64, ctx 1K", GPT_OSS, 64, 960, 128),
)


def matmul_rate():
    """FLOP/s of torch's bf16 product of 8192 x 8192 x 8192 on random data; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(10):
        a @ b
    end.record()
    torch.cuda.synchronize()
    rate = 10 * 2 * n**3 / (begin.elapsed_time(end) / 1e3)
    del a, b
    torch.cuda.empty_cache()
    return rate


def prefill_flops(config, batch, tokens):
    """Operations of a prefill: the linear layers of every token, the head of each last one, causal attention."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", hidden // heads)
    per_token = hidden * (heads + 2 * kv_heads) * dim + heads * dim * hidden + 3 * hidden * config["intermediate_size"]
    attention = 4 * heads * dim * tokens * (tokens + 1) // 2
    return batch * (layers * (2 * per_token * tokens + attention) + 2 * hidden * config["vocab_size"])


def bench_steps(program, config, batch, prompt, new, *more):
    """bench_model() with the operations of a decode step, those that take 1 % of it or more."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "steps.json"
        row = bench_model(program, config, batch, prompt, new, "--steps", str(file), *more)
        if "error" in row or not file.exists():
            return row
        step = json.loads(file.read_text())["decode"]
        row["gpu_idle_share"] = (step["before_us"] + step["between_us"]) / step["recorded_step_us"] if step["graph"] else None
        row["step"] = {key: step[key] for key in ("times_by", "recorded_step_us", "floor_us", "kv_tokens")}
        row["step"]["operations"] = [{key: op[key] for key in ("operation", "count", "us", "floor_us")}
                                     for op in step["operations"] if op["share_of_step"] >= 0.01]
        return row


def bench_model(program, config, batch, prompt, new, *more):
    command = [program, "bench", "model", "--device", "cuda", "--model", str(config), "--dummy-weights", "--batch", str(batch),
               "--prompt-tokens", str(prompt), "--new-tokens", str(new), "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def tensors_of(config):
    """Names and shapes of a Llama checkpoint."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim", hidden // heads)
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name, rows in (("q_proj", heads * dim), ("k_proj", kv_heads * dim), ("v_proj", kv_heads * dim)):
            yield f"{p}self_attn.{name}.weight", (rows, hidden)
        yield p + "self_attn.o_proj.weight", (hidden, heads * dim)
        yield p + "mlp.gate_proj.weight", (inner, hidden)
        yield p + "mlp.up_proj.weight", (inner, hidden)
        yield p + "mlp.down_proj.weight", (hidden, inner)
        yield p + "input_layernorm.weight", (hidden,)
        yield p + "post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def write_checkpoint(folder, config):
    """A safetensors file of small bf16 numbers: one random block, repeated."""
    header, offset = {}, 0
    for name, shape in tensors_of(config):
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    state, block = 1, bytearray()
    for _ in range(1 << 20):  # bf16 from 0.0078 to 0.031, either sign
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        block += struct.pack("<H", 0x3C00 | (state >> 15 & 0xFF) | (state >> 16 & 0x8000))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        left = offset
        while left > 0:
            file.write(block[:left])
            left -= min(left, len(block))
    (folder / "config.json").write_text(json.dumps(config))
    return offset


def start_time(program, config, layers):
    """Seconds to the first token, and of a second start, of a checkpoint with that many layers."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        config = dict(config, num_hidden_layers=layers)
        size = write_checkpoint(folder, config)
        request = folder / "requests.jsonl"
        request.write_text(json.dumps({"ids": list(range(1, 17))}) + "\n")
        seconds = []
        for attempt in range(2):
            start = time.monotonic()
            done = subprocess.run([program, "generate", "--device", "cuda", "--model", str(folder), "--input", str(request),
                                   "--max-tokens", "1", "--output", str(folder / f"answers{attempt}.jsonl")], capture_output=True, text=True,
                                  timeout=200, check=False)
            if done.returncode != 0:
                return {"error": done.stderr.strip().splitlines()[-1:] or done.returncode}
            seconds.append(round(time.monotonic() - start, 3))
        return {"bytes": size, "seconds": seconds}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--output")
    parser.add_argument("--commit", default="")
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    parser.add_argument("--start-layers", type=int, default=32, help="layers of the checkpoint whose start is timed; 0 = none")
    args = parser.parse_args()
    record = {"date": datetime.date.today().isoformat(), "commit": args.commit or output_of("git", "rev-parse", "HEAD"),
              "device": output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
              "command": "python3 bench/engine.py PROGRAM", "matmul_flops": matmul_rate(), "rows": []}
    print(record["device"], f"matmul {(record['matmul_flops'] or 0) / 1e12:.0f} TFLOP/s", flush=True)
    for name, folder, batch, prompt, new, *more in ROWS:
        if args.rows not in name:
            continue
        config = json.loads((folder / "config.json").read_text())
        bench = bench_steps if " decode " in f" {name}" else bench_model
        row = {**bench(args.program, folder, batch, prompt, new, *more), "name": name, "model": folder.name}
        if "prefill_tokens_per_s" in row and record["matmul_flops"] and "num_experts_per_tok" not in config:
            flops = prefill_flops(config, batch, prompt) / (batch * prompt) * row["prefill_tokens_per_s"]
            row["share_of_matmul"] = flops / record["matmul_flops"]
        record["rows"].append(row)
        print(json.dumps(row), flush=True)
    if args.start_layers > 0:
        record["start"] = start_time(args.program, json.loads((LLAMA / "config.json").read_text()), args.start_layers)
        print("start", record["start"], flush=True)
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
