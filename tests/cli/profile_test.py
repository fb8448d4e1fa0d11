#!/usr/bin/env python3
"""--profile on the CPU: the trace of generate, serve and bench model. Tune files without a GPU.

Usage: profile_test.py PROGRAM
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

PROGRAM = sys.argv[1]


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120)


class Profile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "trace.json")
        self.addCleanup(self.folder.cleanup)

    def trace(self):
        with open(self.path, encoding="utf-8") as file:
            trace = json.load(file)
        open_ranges, last = {}, {}
        for event in trace["traceEvents"]:
            if event["ph"] != "X":
                continue
            track, begin = (event["pid"], event["tid"]), event["ts"]
            end = begin + event["dur"]
            self.assertGreaterEqual(begin, last.get(track, begin))
            last[track] = begin
            inside = open_ranges.setdefault(track, [])
            while inside and inside[-1] <= begin + 1e-6:
                inside.pop()
            if inside:
                self.assertLessEqual(end, inside[-1] + 1e-6, event)
            inside.append(end)
        return trace

    def names(self, trace, kind="X"):
        return {event["name"] for event in trace["traceEvents"] if event["ph"] == kind}

    def test_generate(self):
        plain = run("generate", "--device", "cpu", "--temperature", "0", "--max-tokens", "8", "1 + 2 =")
        result = run("generate", "--device", "cpu", "--temperature", "0", "--max-tokens", "8", "--profile", self.path, "1 + 2 =")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, plain.stdout)
        self.assertIn(f"profile: {self.path} has ", result.stderr)
        trace = self.trace()
        self.assertEqual(trace["otherData"]["device_times"], "none")
        self.assertEqual(trace["otherData"]["command"], "generate")
        wanted = {"schedule", "prepare", "submit", "wait", "sample", "deliver", "emit", "detokenise", "qkv", "o", "gate_up", "down", "logits", "attention"}
        self.assertLessEqual(wanted, self.names(trace))
        self.assertLessEqual({"running", "waiting", "KV pages used"}, self.names(trace, "C"))
        threads = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
        self.assertIn("engine", threads)

    def test_bench(self):
        # With 256 tokens decoding takes longer than the prefill, on a busy machine too.
        result = run("bench", "model", "--device", "cpu", "--prompt-tokens", "16", "--new-tokens", "256", "--profile", self.path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLessEqual({"schedule", "qkv"}, self.names(self.trace()))

    def test_serve(self):
        with subprocess.Popen([PROGRAM, "serve", "--device", "cpu", "--port", "0", "--profile", self.path], stderr=subprocess.PIPE, text=True) as server:
            address = None
            for line in server.stderr:
                if "ready: " in line:
                    address = line.split("ready: ")[1].split()[0]
                    break
            body = json.dumps({"model": "demo", "prompt": "1 + 2 =", "max_tokens": 4}).encode()
            request = urllib.request.Request(f"{address}/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.assertEqual(answer.status, 200)
            time.sleep(0.1)
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
            self.assertEqual(server.wait(timeout=60), 0, rest)
        self.assertIn("profile: ", rest)
        self.assertLessEqual({"HTTP request", "HTTP answer", "schedule"}, self.names(self.trace()))

    def test_a_file_that_cannot_be_written(self):
        result = run("generate", "--device", "cpu", "--profile", "/nonexistent/trace.json", "x")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("/nonexistent/trace.json", result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1)

    def test_steps_are_of_a_gpu(self):
        result = run("bench", "model", "--device", "cpu", "--steps", self.path)
        self.assertEqual(result.returncode, 2)
        self.assertIn("GPU", result.stderr)


class Tune(unittest.TestCase):
    def test_measures_only_a_gpu(self):
        result = run("tune", "--device", "cpu")
        self.assertEqual(result.returncode, 2)
        self.assertIn("GPU", result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1)

    def test_explain_says_why_a_file_is_ignored(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tune.json")
            for text in ("", "{", "[1, 2]", '{"fovea_tune": 2}', "\x00" * 100):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                result = run("explain", "--device", "sm90", "--tune-file", path)
                self.assertIn(result.returncode, (0, 2), result.stderr)  # 2 without CUDA: no backend for the device
                lines = [line for line in result.stdout.splitlines() if line.startswith("tune file: ")]
                self.assertEqual(len(lines), 1, result.stdout)
                self.assertIn("is ignored: ", lines[0])
                explained = json.loads(run("explain", "--device", "sm90", "--tune-file", path, "--json").stdout)
                self.assertEqual(explained["tuning"]["file"], path)
                self.assertNotEqual(explained["tuning"]["ignored"], "")
                self.assertEqual(explained["tuning"]["choices"], [])
            for flags in (["--device", "cpu", "--tune-file", path], ["--device", "sm90", "--tune-file", "none"]):
                self.assertNotIn("tune file", run("explain", *flags).stdout)

    def test_a_file_changes_nothing_on_a_cpu(self):
        result = run("generate", "--device", "cpu", "--tune-file", "/nonexistent/tune.json", "--temperature", "0", "-n", "2", "1 + 2 =")
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("tune", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
