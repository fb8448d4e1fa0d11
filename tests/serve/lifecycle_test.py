#!/usr/bin/env python3
"""The life of a server from the ready line to the exit status: start, drain, abort, crash, restart, clients that disconnect.

Usage: lifecycle_test.py PROGRAM [unittest arguments]
"""
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from server import LONG, Closed, Reader, Server, error_of, eventually, free_port, request_bytes, temporary_folder

PROGRAM = sys.argv[1]
STORY = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True}


class Stream:
    """A streamed completion that is read on demand."""

    def __init__(self, server, max_tokens, **fields):
        self.socket = server.connect()
        self.socket.sendall(request_bytes("POST", "/v1/completions", {**STORY, "max_tokens": max_tokens, "stream": True, **fields}))
        self.reader = Reader(self.socket)
        self.status, self.headers = self.reader.head()
        assert self.status == 200, self.status
        self.text = self.reader.chunk().decode()

    def rest(self):
        """All events until the end; `whole`: whether the body was terminated properly."""
        try:
            while chunk := self.reader.chunk():
                self.text += chunk.decode()
            self.whole = True
        except Closed:
            self.whole = False
        self.socket.close()
        data = [event.removeprefix("data: ") for event in self.text.split("\n\n") if event.startswith("data: ")]
        return [item if item == "[DONE]" else json.loads(item) for item in data]


def half_a_request(server):
    """A connection with an incomplete request, which stays in flight as long as the test needs."""
    s = server.connect()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n")
    assert Reader(s).head()[0] == 100
    return s


def new_request_is_refused(server):
    """A 503 in the API's error format, or a refused connection."""
    try:
        answer = server.post("/v1/completions", {**STORY, "max_tokens": 1})
    except (ConnectionError, Closed):
        return True
    error_of(answer, 503)
    return True


class Start(unittest.TestCase):
    def test_ready_means_answering(self):
        with Server(PROGRAM) as server:
            self.assertEqual(server.get("/health").status, 200)
            self.assertTrue(server.complete("2, 4, 6,", max_tokens=4)[0]["text"])
            print(f"\nready after {server.ready_seconds * 1000:.0f} ms")
            for pattern in ("KV", "decode: [A-Z]+_ATTN", "weights"):  # memory use and the selected backends
                self.assertRegex(server.log, pattern)

    def test_only_this_machine_is_served_by_default(self):
        with Server(PROGRAM) as server:
            with open("/proc/net/tcp") as file:
                rows = [line.split() for line in file.readlines()[1:]]
            listening = [row[1] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == server.port]
            self.assertEqual(listening, [f"0100007F:{server.port:04X}"])

    def test_a_port_in_use(self):
        with Server(PROGRAM) as server:
            second = subprocess.run([PROGRAM, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=LONG)
            self.assertNotEqual(second.returncode, 0)
            self.assertIn(str(server.port), second.stderr)
            self.assertIn("in use", second.stderr.lower())
            self.assertEqual(server.get("/health").status, 200)

    def test_bad_flags(self):
        for flags in (["--port", "70000"], ["--port", "x"], ["--host", "256.1.1.1"], ["--uds", "/none/x.sock"], ["--uds", "/tmp/" + "x" * 200], ["--api-key", ""],
                      ["--max-queued-requests", "-1"], ["--model", "/none"], ["--shutdown-timeout", "-1"], ["--no-such-flag"]):
            with self.subTest(flags=flags):
                result = subprocess.run([PROGRAM, "serve", *flags], capture_output=True, text=True, timeout=LONG)
                self.assertIn(result.returncode, (1, 2), result.stderr)
                last = result.stderr.strip().splitlines()[-1]
                self.assertTrue(last.startswith("fovea: "), result.stderr)

    def test_a_socket_of_the_file_system(self):
        with temporary_folder() as folder:
            path = os.path.join(folder, "f.sock")
            with Server(PROGRAM, uds=path) as server:
                self.assertEqual(server.get("/health").status, 200)
                self.assertTrue(server.complete("2, 4, 6,", max_tokens=4)[0]["text"])
                taken = subprocess.run([PROGRAM, "serve", "--uds", path], capture_output=True, text=True, timeout=LONG)
                self.assertNotEqual(taken.returncode, 0)
                self.assertEqual(server.get("/health").status, 200)
            self.assertTrue(os.path.exists(path), "a kill leaves the file")
            with Server(PROGRAM, uds=path) as server:  # the next server replaces its socket
                self.assertEqual(server.get("/health").status, 200)
                server.signal()
                self.assertEqual(server.wait_exit(), 0)
            self.assertFalse(os.path.exists(path), "a clean stop removes it")
            with open(path, "w") as file:
                file.write("another program's file")
            other = subprocess.run([PROGRAM, "serve", "--uds", path], capture_output=True, text=True, timeout=LONG)
            self.assertNotEqual(other.returncode, 0)
            with open(path) as file:
                self.assertEqual(file.read(), "another program's file")

    def test_kill_and_start_again_on_the_same_port(self):
        port = free_port()
        tokens = None
        for _ in range(3):
            server = Server(PROGRAM, port=port)
            self.assertEqual(server.port, port)
            streams = [Stream(server, 900) for _ in range(4)]  # so that connections remain
            now = server.complete("2, 4, 6,", max_tokens=6, return_token_ids=True)[0]["token_ids"]
            self.assertEqual(now, tokens or now)
            tokens = now
            server.kill()
            for stream in streams:
                stream.rest()

    def test_every_end_leaves_the_port_free(self):
        """Connections that the server closed first stay in the kernel for a minute; the next server must start regardless."""
        port = free_port()
        for end in ("stop", "two signals", "kill", "stop"):
            with self.subTest(end=end), Server(PROGRAM, "--shutdown-timeout", "0" if end == "stop" else str(10 * LONG), "--body-timeout", str(10 * LONG),
                                                   port=port) as server:
                self.assertEqual(server.port, port)
                for _ in range(5):
                    self.assertEqual(server.get("/health", headers=[("Connection", "close")]).status, 200)
                held = [half_a_request(server)] + [Stream(server, 900, n=8, temperature=1).socket for _ in range(4)]
                if end == "kill":
                    server.kill()
                else:
                    server.signal(signal.SIGTERM)
                    if end == "two signals":
                        server.wait_log("stopping: ")
                        server.signal(signal.SIGTERM)
                    self.assertEqual(server.wait_exit(), 0 if end == "stop" else -signal.SIGTERM)
                lingering = held  # open on our side while the next one starts
        for s in lingering:
            s.close()

    def test_few_file_descriptors(self):
        """More clients than descriptors: requests in flight are completed, the others wait or are refused."""
        limited = f"ulimit -n 64; exec {PROGRAM} \"$@\""
        process = subprocess.Popen(["sh", "-c", limited, "sh", "serve", "--port", str(port := free_port())], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            def healthy():
                try:
                    with socket.create_connection(("127.0.0.1", port), LONG) as s:
                        s.sendall(request_bytes("GET", "/health"))
                        return Reader(s).response().status == 200
                except (OSError, Closed):
                    return False

            eventually(healthy, "a server that is ready")
            held = []
            for _ in range(100):
                s = socket.socket()
                s.settimeout(LONG)
                s.connect(("127.0.0.1", port))
                held.append(s)
            eventually(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= 63, "all descriptors in use")
            for s in held:
                s.close()
            eventually(healthy, "room for a client")
            self.assertIsNone(process.poll())
        finally:
            process.kill()
            process.communicate()


class Stop(unittest.TestCase):
    def test_a_stop_lets_answers_end(self):
        with Server(PROGRAM, "--shutdown-timeout", "60") as server:
            quiet = server.complete(STORY["prompt"], max_tokens=700, ignore_eos=True)[0]["text"]
            streams = [Stream(server, 700) for _ in range(8)]
            server.signal(signal.SIGTERM)
            server.wait_log("stopping: ")
            new_request_is_refused(server)
            for stream in streams:
                events = stream.rest()
                self.assertTrue(stream.whole)
                self.assertEqual(events[-1], "[DONE]")
                self.assertEqual("".join(event["choices"][0]["text"] for event in events[:-1]), quiet)
            self.assertEqual(server.wait_exit(), 0)

    def test_health_while_draining(self):
        with Server(PROGRAM, "--shutdown-timeout", "60") as server:
            with server.connect() as s:  # opened before: a load balancer's
                s.sendall(request_bytes("GET", "/health"))
                reader = Reader(s)
                self.assertEqual(reader.response().status, 200)
                streams = [Stream(server, 900, n=4, temperature=1) for _ in range(4)]
                server.signal(signal.SIGTERM)
                server.wait_log("stopping: ")
                try:
                    s.sendall(request_bytes("GET", "/health"))
                    self.assertEqual(reader.response().status, 503)
                except (Closed, ConnectionError):
                    pass
            server.signal(signal.SIGTERM)
            for stream in streams:
                stream.rest()
            server.wait_exit()

    def test_an_idle_server_stops_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with Server(PROGRAM, "--shutdown-timeout", str(10 * LONG)) as server:
                idle = server.connect()
                server.get("/health")
                server.signal(number)
                self.assertEqual(server.wait_exit(), 0)
                idle.close()

    def test_no_time_to_drain(self):
        with Server(PROGRAM, "--shutdown-timeout", "0") as server:
            streams = [Stream(server, 900, n=8, temperature=1) for _ in range(8)]
            server.signal(signal.SIGTERM)
            self.assertEqual(server.wait_exit(), 0)
            for stream in streams:
                events = stream.rest()
                errors = [event["error"] for event in events if event != "[DONE]" and "error" in event]
                self.assertEqual(len(errors), 1, "no error event")
                self.assertEqual(set(errors[0]), {"message", "type", "param", "code"})

    def test_the_time_to_drain_ends(self):
        with Server(PROGRAM, "--shutdown-timeout", "0.1") as server:
            streams = [Stream(server, 900, n=16, temperature=1) for _ in range(4)]  # all that run at a time
            with ThreadPoolExecutor(len(streams)) as readers:  # megabytes, more than socket buffers hold
                read = [readers.submit(stream.rest) for stream in streams]
                server.signal(signal.SIGTERM)
                self.assertEqual(server.wait_exit(), 0)
            for events in (one.result() for one in read):
                errors = [event["error"] for event in events if event != "[DONE]" and "error" in event]
                self.assertEqual(len(errors), 1, "no error event: nothing ended the answer")
                self.assertIn("shutting down", errors[0]["message"])

    def test_a_second_signal_exits(self):
        with Server(PROGRAM, "--shutdown-timeout", str(10 * LONG), "--body-timeout", str(10 * LONG)) as server:
            streams = [Stream(server, 900, n=16, temperature=1) for _ in range(4)]
            with half_a_request(server):
                server.signal(signal.SIGTERM)
                server.wait_log("stopping: ")
                self.assertIsNone(server.process.poll(), "did not drain")
                server.signal(signal.SIGTERM)
                self.assertEqual(server.wait_exit(), -signal.SIGTERM)
            for stream in streams:
                stream.rest()

    def test_a_closed_output_is_no_end(self):
        """The reader of the server's standard error may exit: only log lines are lost."""
        port = free_port()
        read, write = os.pipe()
        process = subprocess.Popen([PROGRAM, "--log-level", "debug", "serve", "--port", str(port)], stdout=write, stderr=write)
        os.close(write)
        try:
            deadline = time.monotonic() + LONG
            while not b"ready" in os.read(read, 65536):
                self.assertLess(time.monotonic(), deadline)
            os.close(read)
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", port), LONG) as s:
                    s.sendall(request_bytes("POST", "/v1/completions", {**STORY, "max_tokens": 2}))
                    self.assertEqual(Reader(s).response().status, 200)
            self.assertIsNone(process.poll())
        finally:
            process.kill()
            process.wait()


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # As many requests wait on a GPU, which runs 256 at once unless told otherwise.
        cls.server = Server(PROGRAM, "--max-running-requests", "64")
        cls.addClassCleanup(cls.server.kill)

    def test_hundreds_that_give_up(self):
        """When the clients of 200 long requests disconnect, most tokens are never computed."""
        for stream in (True, False):
            before = self.server.metrics().value("vllm:generation_tokens_total")
            body = request_bytes("POST", "/v1/completions", {**STORY, "max_tokens": 900, "stream": stream})
            sockets = [self.server.connect() for _ in range(200)]
            for s in sockets:
                s.sendall(body)
            eventually(lambda: self.server.metrics().value("vllm:num_requests_waiting") > 50, "a queue")
            for s in sockets:
                s.close()
            start = time.monotonic()
            self.assertTrue(self.server.complete("2, 4, 6,", max_tokens=4)[0]["text"])
            seconds = time.monotonic() - start
            idle = self.server.wait_idle()
            self.assertLess(self.server.metrics().value("vllm:generation_tokens_total") - before, 200 * 900 / 2)
            print(f"\nafter 200 {'streams' if stream else 'requests'} that gave up: a short answer in {seconds:.2f} s, idle after {idle:.2f} s")

    def test_one_that_leaves_is_gone_within_steps(self):
        ended = lambda reason: self.server.metrics().value("vllm:request_success_total", finished_reason=reason)
        before = ended("abort")
        stream = Stream(self.server, 900, n=32, temperature=1)
        stream.socket.close()
        self.server.wait_idle()
        self.assertEqual(ended("abort"), before + 1)
        produced = self.server.metrics().value("vllm:generation_tokens_total")
        time.sleep(0.3)
        self.assertEqual(self.server.metrics().value("vllm:generation_tokens_total"), produced)

    def test_a_long_prompt_does_not_stop_short_answers(self):
        """Chunked prefill: a running stream gets tokens while long prompts are computed."""
        stream = Stream(self.server, 800)
        meanwhile, end = 0, threading.Event()

        def flood():
            for k in range(12):
                self.server.complete(f"{k} " + "once upon a time " * 90, max_tokens=1)
            end.set()

        threading.Thread(target=flood).start()
        try:
            while stream.reader.chunk():
                meanwhile += not end.is_set()
        finally:
            self.assertTrue(end.wait(LONG))
        self.assertGreater(meanwhile, 12, "the stream stood still while prompts were computed")

    def test_counts_in_metrics_are_exact(self):
        """Ten requests of ten tokens: the counts of vLLM's own test."""
        with Server(PROGRAM) as server:
            ids = server.post("/tokenize", {"prompt": "Once upon a time"}).json()["tokens"]
            for _ in range(10):
                server.complete(ids, max_tokens=10, ignore_eos=True)
            m = server.metrics()
            for name, wanted in (("prompt_tokens_total", 10 * len(ids)), ("generation_tokens_total", 100), ("request_success_total", 10),
                                 ("time_to_first_token_seconds_count", 10), ("inter_token_latency_seconds_count", 90), ("e2e_request_latency_seconds_count", 10),
                                 ("request_prompt_tokens_sum", 10 * len(ids)), ("request_generation_tokens_sum", 100), ("request_params_n_sum", 10),
                                 ("request_params_max_tokens_sum", 100), ("num_requests_running", 0), ("num_requests_waiting", 0)):
                self.assertEqual(m.value("vllm:" + name), wanted, name)
            self.assertEqual(m.value("vllm:request_success_total", finished_reason="length"), 10)

    def test_scrapes_take_no_memory(self):
        """The machine is measured before the server is ready, not while it serves requests."""
        with Server(PROGRAM) as server:
            if "device: cuda" in server.log:
                self.skipTest("the rates of a GPU are not measured while an engine uses it")
            server.complete("2, 4, 6,", max_tokens=4)
            before = server.resident_bytes()

            def scrape():
                for _ in range(10):
                    self.assertGreater(server.metrics().value("fovea_machine_read_bytes_per_second"), 0)
                    time.sleep(0.02)

            self.assertLess(server.most_resident_bytes(scrape) - before, 16 << 20)

    def test_a_client_makes_no_series_of_metrics(self):
        for name in ("no-such-1", "no-such-2"):
            self.server.post("/v1/completions", {**STORY, "model": name})
            self.server.get(f"/{name}")
        self.assertNotIn("no-such", self.server.metrics().text)

    def test_a_model_that_is_being_loaded(self):
        """While the model loads, the server returns the page and the progress. Polled while dummy weights are generated."""
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096,
                  "num_hidden_layers": 2 if os.environ.get("SERVE_TEST_SANITIZED") else 12, "num_attention_heads": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
                  "torch_dtype": "bfloat16", "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}

        def ask(port, path):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG) as answer:
                    return answer.status, answer.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()
            except OSError:
                return 0, b""

        with temporary_folder() as folder:
            with open(os.path.join(folder, "config.json"), "w") as file:
                json.dump(config, file)
            for flags, page in (([], 200), (["--no-playground"], 503)):
                shares = []
                for _ in range(20):  # on a busy machine loading may finish between two polls
                    port = free_port()
                    process = subprocess.Popen([PROGRAM, "serve", "--model", folder, "--dummy-weights", "--threads", "1", "--num-pages", "64", "--port", str(port), *flags],
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    try:
                        while process.poll() is None:
                            before = ask(port, "/v1/models")
                            home, style = ask(port, "/")[0], ask(port, "/web/style.css")[0]
                            after = ask(port, "/v1/models")
                            if before[0] == 200:
                                break
                            if before[0] != 503 or after[0] != 503:
                                continue
                            self.assertEqual((home, style), (page, page))
                            told = json.loads(after[1])
                            self.assertEqual(told["error"]["code"], "loading")
                            self.assertGreater(told["loading"]["seconds"], 0)
                            shares.append(told["loading"]["weights"])
                    finally:
                        process.kill()
                        process.wait()
                    if any(0 < share < 1 for share in shares):
                        break
                    shares = []
                self.assertTrue(any(0 < share < 1 for share in shares), shares)
                self.assertEqual(shares, sorted(shares))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
