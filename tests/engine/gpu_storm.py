#!/usr/bin/env python3
"""Answers of an engine on a GPU, as bytes: alone and among others, under every setting that must not change them.

For the widths of several models, cut to a few layers and with random weights, each of some hundred requests is first
answered alone, one after the other, by one program. The same requests are then given at once, with chunks of 16 to 8192
tokens, pages of 1, 16 and 64, few pages (preemption), with and without prefix cache, graphs and overlap, and again all that
have ended (full prefix hits). Token ids and log probabilities must be the same text.

Usage: gpu_storm.py PROGRAM [--requests N] [--models NAME,...] [--layers N]
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIGS = {"llama-3.1-8b": "tests/configs", "qwen3-30b-a3b": "bench/configs", "gpt-oss-20b": "tests/configs"}
FLAGS = ["--device", "cuda", "--dummy-weights", "--json", "--max-model-len", "2048"]
# Names and flags; "twice": the requests follow themselves, so that prompts are found in the prefix cache.
VARIANTS = (
    ("at once", []),
    ("twice", []),
    ("chunks of 16", ["--max-num-batched-tokens", "16"]),
    ("chunks of 100", ["--max-num-batched-tokens", "100"]),
    ("chunks of 1024", ["--max-num-batched-tokens", "1024"]),
    ("pages of 1", ["--page-size", "1"]),
    ("pages of 64", ["--page-size", "64"]),
    ("few pages", ["--num-pages", "160"]),
    ("no prefix cache", ["--disable-radix-cache"]),
    ("no graphs", ["--disable-cuda-graph"]),
    ("no overlap", ["--disable-overlap-schedule"]),
    ("neither, few pages", ["--disable-cuda-graph", "--disable-overlap-schedule", "--num-pages", "160"]),
)


def requests(count, vocab):
    """Prompts of 1 to 700 tokens, some sharing their beginning, greedy and sampled, with log probabilities."""
    draw = random.Random(7)
    shared = [draw.randrange(vocab) for _ in range(300)]
    out = []
    for i in range(count):
        length = draw.choice((1, 5, 17, 64, 130, 300, 700))
        ids = (shared if i % 3 == 0 else []) + [draw.randrange(vocab) for _ in range(length)]
        row = {"ids": ids, "max_tokens": draw.choice((1, 3, 9, 24, 40, 200)), "ignore_eos": True, "logprobs": 2, "seed": i}
        row["temperature"] = 0 if i % 2 else 0.9
        if i % 5 == 0:
            row.update(top_p=0.9, top_k=40)
        if i % 7 == 0:
            row.update(repetition_penalty=1.2, presence_penalty=0.5)
        out.append(row)
    return out


def result(line):
    """What must not change."""
    row = json.loads(line)
    return json.dumps({key: row[key] for key in ("token_ids", "logprobs", "finish_reason")})


def alone(program, model, rows):
    """Each request is sent when the one before is answered."""
    with subprocess.Popen([program, "generate", *FLAGS, "--model", model, "--input", "-"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        out = []
        for row in rows:
            process.stdin.write(json.dumps(row) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(process.stderr.read())
            out.append(result(line))
        process.stdin.close()
        process.wait(60)
    return out


def at_once(program, model, rows, flags, folder):
    path = folder / "requests.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = subprocess.run([program, "generate", *FLAGS, *flags, "--model", model, "--input", str(path), "--stats"],
                          capture_output=True, text=True, timeout=200, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    preemptions = [line.strip() for line in done.stderr.splitlines() if "preempt" in line]
    return [result(line) for line in done.stdout.splitlines()], preemptions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--models", default=",".join(CONFIGS))
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()
    wrong = 0
    for name in args.models.split(","):
        with tempfile.TemporaryDirectory() as where:
            folder = pathlib.Path(where)
            config = json.loads((ROOT / CONFIGS[name] / name / "config.json").read_text())
            config["num_hidden_layers"] = args.layers
            if "layer_types" in config:
                config["layer_types"] = config["layer_types"][:args.layers]
            (folder / "config.json").write_text(json.dumps(config))
            rows = requests(args.requests, config["vocab_size"])
            start = time.monotonic()
            want = alone(args.program, where, rows)
            print(f"{name}: {len(want)} answers alone, {len(set(want))} distinct, {time.monotonic() - start:.0f} s", flush=True)
            for variant, flags in VARIANTS:
                twice = variant == "twice"
                try:
                    got, preemptions = at_once(args.program, where, rows * (2 if twice else 1), flags, folder)
                except RuntimeError as error:
                    print(f"  {variant}: FAILED {error}", flush=True)
                    wrong += 1
                    continue
                expected = want * (2 if twice else 1)
                differ = [i for i, (a, b) in enumerate(zip(expected, got)) if a != b]
                wrong += len(differ) + abs(len(got) - len(expected))
                print(f"  {variant}: {len(got)} answers, {len(differ)} differ {differ[:8] or ''} {' '.join(preemptions)}", flush=True)
    print("FAILED" if wrong else "PASSED")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
