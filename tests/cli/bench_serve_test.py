#!/usr/bin/env python3
"""fovea bench serve against a server in this file: its requests, its output, its errors.

Usage: bench_serve_test.py PROGRAM
"""
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

PROGRAM = sys.argv[1]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):
        if self.server.key and self.headers.get("Authorization") != "Bearer " + self.server.key:
            return self.answer(401, '{"error": {"message": "no key"}}')
        self.answer(200, '{"data": [{"id": "org/stub"}, {"id": "other"}]}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            if not self.server.tokenizes:
                return self.answer(404, "no")
            return self.answer(200, json.dumps({"tokens": [100 + len(word) for word in body["prompt"].split()]}))
        with self.server.lock:
            self.server.requests.append((self.path, body))
            number = len(self.server.requests)
        if self.server.refuses and self.server.refuses(number, body):
            return self.answer(429, '{"error": {"message": "slow down"}}')
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chat = "messages" in body
        for i in range(body["max_tokens"]):
            time.sleep(self.server.pause)
            last = "length" if i + 1 == body["max_tokens"] else None
            self.event({"choices": [{"delta": {"content": "x"}, "finish_reason": last} if chat else {"text": "x", "finish_reason": last}]})
        self.event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": body["max_tokens"]}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, value):
        self.chunk(b": a comment\r\n\r\ndata: " + json.dumps(value).encode() + b"\r\n\r\n")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):  # ignores clients that were stopped
        pass


class BenchServe(unittest.TestCase):
    def setUp(self):
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.requests, self.server.lock = [], threading.Lock()
        self.server.key, self.server.tokenizes, self.server.refuses, self.server.pause = "", True, None, 0.001
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def run_bench(self, *flags, env=None):
        return subprocess.run([PROGRAM, "bench", "serve", "--port", str(self.server.server_address[1]), *flags],
                              capture_output=True, text=True, timeout=120, env={**os.environ, "OPENAI_API_KEY": "", **(env or {})})

    def refuse(self, parts, *flags):
        result = self.run_bench(*flags)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_the_block_the_file_and_the_plot(self):
        file, plot = os.path.join(self.folder.name, "r.json"), os.path.join(self.folder.name, "p.svg")
        result = self.run_bench("--num-prompts", "20", "--max-concurrency", "5", "--random-input-len", "30", "--random-output-len", "4",
                                "--ignore-eos", "--num-warmups", "2", "--goodput", "ttft:60000", "e2el:60000", "--request-rate", "200",
                                "--save-result", "--result-dir", self.folder.name, "--result-filename", "r.json", "--plot", plot)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Successful requests:                     20        \n", result.stdout)
        self.assertIn("Total input tokens:                      220       \n", result.stdout)
        self.assertIn("Total generated tokens:                  80        \n", result.stdout)
        for line in ("Request goodput", "P50 TTFT", "P90 TPOT", "P99 ITL", "Mean E2EL"):
            self.assertRegex(result.stdout, line + r" \(.*\): +\d+\.\d\d")
        with open(file) as stream:
            figures = json.load(stream)
        self.assertEqual((figures["completed"], figures["total_output_tokens"], figures["model_id"]), (20, 80, "org/stub"))
        self.assertGreaterEqual(figures["mean_e2el_ms"], figures["mean_ttft_ms"])
        xml.etree.ElementTree.parse(plot)
        self.assertEqual(len(self.server.requests), 23)  # 20, an initial one and two for warm-up
        path, body = self.server.requests[5]
        self.assertEqual(path, "/v1/completions")
        self.assertEqual(len(body["prompt"]), 30)
        self.assertTrue(set(body["prompt"]) <= set(range(100, 120)))
        self.assertEqual({key: body[key] for key in body if key != "prompt"},
                         {"model": "org/stub", "max_tokens": 4, "temperature": 0, "stream": True, "stream_options": {"include_usage": True},
                          "ignore_eos": True})

    def test_chats_are_text(self):
        result = self.run_bench("--backend", "openai-chat", "--num-prompts", "3", "--model", "m", "--dataset-name", "sharegpt",
                                "--sharegpt-output-len", "4", "--extra-body", '{"top_p": 0.5}', "--json")
        self.assertEqual(json.loads(result.stdout)["completed"], 3, result.stderr)
        path, body = self.server.requests[0]
        self.assertEqual((path, body["model"], body["top_p"]), ("/v1/chat/completions", "m", 0.5))
        self.assertRegex(body["messages"][0]["content"], r"^[a-z]+( [a-z]+)*$")

    def test_words_without_a_tokenizer_and_where_ids_are_refused(self):
        self.server.tokenizes = False
        result = self.run_bench("--num-prompts", "2", "--random-output-len", "2")
        self.assertIn("no /tokenize", result.stdout)
        self.assertTrue(all(isinstance(body["prompt"], str) for _, body in self.server.requests))
        self.server.tokenizes, self.server.refuses = True, lambda _, body: isinstance(body["prompt"], list)
        result = self.run_bench("--num-prompts", "2", "--random-output-len", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("refuses prompts of token ids", result.stdout)

    def test_failed_requests_are_counted_and_shown(self):
        self.server.refuses = lambda number, _: number % 2 == 0
        result = self.run_bench("--num-prompts", "10", "--random-output-len", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"Failed requests: +5 ")
        self.assertIn("5 x HTTP status 429: slow down\n", result.stderr)
        self.server.requests.clear()
        self.server.refuses = lambda number, _: number > 1
        result = self.run_bench("--num-prompts", "3", "--random-output-len", "2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("none of the 3 requests succeeded", result.stderr)

    def test_keys(self):
        self.server.key = "secret"
        self.refuse(["HTTP status 401: no key", "--api-key"])
        for flags, env in ((("--api-key", "secret"), {}), ((), {"OPENAI_API_KEY": "secret"})):
            result = self.run_bench("--num-prompts", "1", "--random-output-len", "1", *flags, env=env)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_ctrl_c_prints_what_there_is(self):
        self.server.pause = 0.01
        bench = subprocess.Popen([PROGRAM, "bench", "serve", "--port", str(self.server.server_address[1]), "--num-prompts", "1000",
                                  "--max-concurrency", "4", "--random-output-len", "5"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(self.server.requests) < 20:
            time.sleep(0.02)
        bench.send_signal(signal.SIGINT)
        out, error = bench.communicate(timeout=60)
        self.assertEqual(bench.returncode, 1, error)
        self.assertGreater(int(re.search(r"Successful requests: +(\d+)", out)[1]), 5)
        self.assertRegex(out, r"cut off by the interrupt: +\d+")
        self.assertIn("interrupted", error)

    def test_absent_servers_and_bad_flags(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        result = subprocess.run([PROGRAM, "bench", "serve", "--port", port], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"http://127.0.0.1:{port}: cannot connect: Connection refused; is the server running", result.stderr)
        self.refuse(["no address for no.such.host.invalid"], "--base-url", "http://no.such.host.invalid")
        self.refuse(["TLS"], "--base-url", "https://127.0.0.1")
        self.refuse(["--request-rate"], "--request-rate", "0")
        self.refuse(["--request-rate"], "--request-rate", "nan")
        self.refuse(["--goodput", "itl:5", "tpot:MS"], "--goodput", "itl:5")
        self.refuse(["--percentile-metrics", "ttfts"], "--percentile-metrics", "ttfts")
        self.refuse(["--metric-percentiles", "101"], "--metric-percentiles", "101")
        self.refuse(["--dataset-path", "sharegpt"], "--dataset-path", "x.json")
        self.refuse(["--dataset-path", "cannot be read"], "--dataset-name", "sharegpt", "--dataset-path", "x.json")
        self.refuse(["--save-result"], "--result-filename", "x.json")
        self.refuse(["does not exist"], "--plot", "/no/such/folder/p.svg")
        self.refuse(["--extra-body", "stream"], "--extra-body", '{"stream": false}')
        self.refuse(["--endpoint", "begins with /"], "--endpoint", "v1/completions")
        self.refuse(["--header"], "--header", "no equals sign")
        self.refuse(["cannot write"], "--plot", self.folder.name, "--num-prompts", "1", "--random-output-len", "1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
