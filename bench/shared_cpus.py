#!/usr/bin/env python3
"""Measures the engine's speed by its number of threads while other processes keep CPUs busy.

For none, one and two busy loops: tokens a second of one sequence (`fovea bench model`) and requests a second of short
answers to a few clients (`fovea bench serve`), with one thread, with one for each CPU, and with whatever the engine
chooses itself. Measurements are interleaved and repeated; medians are printed with their share of the best.

Usage: shared_cpus.py PROGRAM [--model DIR] [--rounds N] [--nice N] [--out FILE]
"""
import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

BUSY = "while True: pass"


class Busy:
    """Starts `count` processes that each keep a CPU busy."""

    def __init__(self, count):
        self.processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def decode_rate(program, model, threads):
    command = [program, "bench", "model", "--model", model, "--json", "--prompt-tokens", "64", "--new-tokens", "900"]
    out = subprocess.run(command + threads, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["decode_tokens_per_s"]


def request_rate(program, model, threads):
    """16 clients, 8 tokens a request."""
    port = free_port()
    server = subprocess.Popen([program, "serve", "--model", model, "--port", str(port)] + threads,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        out = f"/tmp/shared_cpus.{os.getpid()}.json"
        subprocess.run([program, "bench", "serve", "--port", str(port), "--num-prompts", "2000", "--max-concurrency", "16",
                        "--random-input-len", "16", "--random-output-len", "8", "--ignore-eos", "--num-warmups", "64",
                        "--save-result", "--result-filename", out],
                       check=True, capture_output=True)
        with open(out, encoding="utf-8") as file:
            rate = json.load(file)["request_throughput"]
        os.remove(out)
        return rate
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--model", default=os.path.join(os.path.dirname(__file__), "../models/demo"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nice", type=int, default=0, help="of all processes of this run: below 0 it hides from others")
    parser.add_argument("--out")
    args = parser.parse_args()
    os.nice(args.nice)
    cpus = len(os.sched_getaffinity(0))
    ways = {"1 thread": ["--threads", "1"], f"{cpus} threads": ["--threads", str(cpus)], "default": []}
    measures = {"tokens/s": decode_rate, "requests/s": request_rate}
    figures = []
    for busy in (0, 1, 2):
        for name, measure in measures.items():
            seen = {way: [] for way in ways}
            for _ in range(args.rounds):
                for way, flags in ways.items():
                    with Busy(busy):
                        seen[way].append(measure(args.program, args.model, flags))
            medians = {way: statistics.median(values) for way, values in seen.items()}
            best = max(medians.values())
            figures.append({"busy": busy, "measure": name, "median": medians, "all": seen})
            print(f"{busy} busy, {name:10}: " + ", ".join(f"{way} {v:.0f} ({v / best:.2f})" for way, v in medians.items()),
                  flush=True)
    if args.out:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                    if line.startswith("model name")), platform.machine())
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump({"cpu": cpu, "cpus": cpus, "commit": commit, "nice": args.nice, "rounds": args.rounds,
                       "figures": figures}, file, indent=1)
            file.write("\n")


main()
