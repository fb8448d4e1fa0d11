#!/usr/bin/env python3
"""Runs many requests through `fovea generate` with a KV cache that is too small for them, and records its memory use.

usage: offline_run.py [--program build/release/bin/fovea] [--requests 10000] [--output FILE.json] [-- FLAGS...]

Rows of mixed lengths, some with beginnings that others have, are written to the program as it reads them; FLAGS
go to `fovea generate`. Reported: resident memory each time another tenth of the rows has been taken (the program
takes a row when it has room for it), the growth from the first tenth to the last, tokens a second, and the
program's own --stats.
"""
import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time


def rows(count, longest, vocab):
    """Prompt ids and answer lengths: half of the prompts share a prefix with one of eight others."""
    rng = random.Random(1)
    shared = [[rng.randrange(10, vocab) for _ in range(longest // 2)] for _ in range(8)]
    for index in range(count):
        begin = shared[rng.randrange(8)][: rng.randrange(longest // 2)] if rng.random() < 0.5 else []
        own = [rng.randrange(10, vocab) for _ in range(rng.randrange(1, longest // 4))]
        yield {
            "id": index,
            "prompt_ids": begin + own,
            "max_tokens": rng.randrange(1, longest * 3 // 4 if index % 2 else longest // 8),
            "ignore_eos": True,
            "temperature": 1.0 if index % 3 else 0.0,
            "seed": index,
        }


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/fovea")
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--longest", type=int, default=160, help="tokens of the longest request, about")
    parser.add_argument("--vocab", type=int, default=700, help="prompts are of ids below this")
    parser.add_argument("--output", help="JSON with the figures")
    parser.add_argument("flags", nargs="*", default=[])
    args = parser.parse_args()
    flags = args.flags or ["--page-size", "4", "--num-pages", "80", "--max-seq-len-override", "256",
                           "--max-running-requests", "32"]

    with tempfile.TemporaryDirectory() as folder:
        answers = os.path.join(folder, "answers.jsonl")
        log = os.path.join(folder, "log")
        command = [args.program, "generate", "--input", "/dev/stdin", "--output", answers, "--stats", *flags]
        begin = time.monotonic()
        samples = []
        with open(log, "w", encoding="utf-8") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, text=True)
            marks = {args.requests * tenth // 10 for tenth in range(1, 11)}
            try:
                for index, row in enumerate(rows(args.requests, args.longest, args.vocab), 1):
                    process.stdin.write(json.dumps(row) + "\n")
                    if index in marks:
                        process.stdin.flush()
                        samples.append({"rows": index, "seconds": round(time.monotonic() - begin, 1),
                                        "resident_mib": round(resident_mib(process.pid), 2)})
                        print(json.dumps(samples[-1]), flush=True)
                process.stdin.close()
            except BrokenPipeError:
                pass
            peak = peak_until_end(process)
        seconds = time.monotonic() - begin
        with open(log, encoding="utf-8") as file:
            stats = [line.strip() for line in file if line.startswith(("steps:", "pages:", "time to", "stall"))]
        if process.returncode != 0:
            with open(log, encoding="utf-8") as file:
                sys.exit(file.read())
        with open(answers, encoding="utf-8") as file:
            results = [json.loads(line) for line in file]
    assert [result["id"] for result in results] == list(range(args.requests)), "a row is missing"
    tokens = sum(result["completion_tokens"] for result in results)
    growth = samples[-1]["resident_mib"] - samples[0]["resident_mib"]
    figures = {
        "command": " ".join(command[1:2] + flags),
        "requests": args.requests,
        "completion_tokens": tokens,
        "prompt_tokens": sum(result["prompt_tokens"] for result in results),
        "seconds": round(seconds, 1),
        "completion_tokens_per_s": round(tokens / seconds, 1),
        "samples": samples,
        "peak_resident_mib": round(max(peak, *(sample["resident_mib"] for sample in samples)), 2),
        "growth_mib_first_to_last_tenth": round(growth, 2),
        "stats": stats,
        "machine": platform.processor() or platform.machine(),
        "threads": os.cpu_count(),
    }
    print(json.dumps(figures, indent=1))
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
            file.write("\n")


def peak_until_end(process):
    """MiB: the maximum of samples taken until the process has ended."""
    peak = [0.0]

    def watch():
        while process.poll() is None:
            try:
                peak[0] = max(peak[0], resident_mib(process.pid))
            except OSError:
                return
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    watcher.join()
    return peak[0]


if __name__ == "__main__":
    main()
