#!/usr/bin/env python3
"""The log of `fovea serve`: every line has a timestamp, as text or as JSON, and no line is printed twice.

Usage: log_test.py PROGRAM
"""
import collections
import datetime
import json
import re
import subprocess
import sys
import unittest

from server import LONG, Server

PROGRAM = sys.argv[1]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def ask(server):
    """Sends three requests, stops the server and returns all lines of its log."""
    assert server.get("/v1/models").status == 200
    assert server.get("/a%20b", headers=[("x-request-id", "mine-1")]).status == 404
    server.complete("1 + 1 =", max_tokens=2)
    server.signal()
    assert server.wait_exit() == 0, server.log
    return server.log.splitlines()


class Log(unittest.TestCase):
    def test_text(self):
        with Server(PROGRAM, "--log-level", "info") as server:
            lines = ask(server)
        for line in lines:
            self.assertRegex(line, rf"^{TIME} \[(info|warning)\] .")
        text = [line.split(" ", 2)[2] for line in lines]
        self.assertEqual([line for line, count in collections.Counter(text).items() if count > 1], [], "printed twice")
        for word in ("prefill: ", "decode: ", "KV cache: ", "ready: ", "stopping: "):
            self.assertEqual(len([line for line in text if line.startswith(word)]), 1, (word, text))
        requests = [line for line in text if line.startswith("request ")]
        self.assertEqual(len(requests), 3)
        self.assertRegex(requests[0], r"^request remote=127\.0\.0\.1\S* id=\S+ method=GET path=/v1/models status=200 ms=[0-9.e+-]+$")
        self.assertRegex(requests[1], r' id=mine-1 method=GET path="/a b" status=404 ')
        self.assertRegex(requests[2], r" method=POST path=/v1/completions status=200 ")

    def test_json(self):
        with Server(PROGRAM, "--log-level", "info", "--log-format", "json") as server:
            lines = [json.loads(line) for line in ask(server)]
        now = datetime.datetime.now(datetime.timezone.utc)
        for line in lines:
            self.assertEqual(list(line)[:3], ["time", "level", "message"])
            self.assertRegex(line["time"], f"^{TIME}$")
            age = now - datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00"))
            self.assertLess(abs(age.total_seconds()), 10 * LONG)
            self.assertIn(line["level"], ("info", "warning"))
        requests = [line for line in lines if line["message"] == "request"]
        self.assertEqual([line["status"] for line in requests], [200, 404, 200])
        for line in requests:
            self.assertEqual(list(line), ["time", "level", "message", "remote", "id", "method", "path", "status", "ms"])
            self.assertGreater(line["ms"], 0)
        self.assertEqual([line["path"] for line in requests[::2]], ["/v1/models", "/v1/completions"])
        self.assertEqual(len([line for line in lines if line["message"].startswith("ready: http://")]), 1)

    def test_requests_are_not_logged_by_default(self):
        with Server(PROGRAM) as server:
            lines = ask(server)
        self.assertTrue(any(" ready: " in line for line in lines), lines)
        self.assertFalse(any(" request " in line for line in lines), lines)

    def test_fields_that_are_ignored_are_a_line(self):
        body = {"messages": [{"role": "user", "content": "a"}]}
        for flags, count in ((), 2), (("--log-level", "info"), 3):
            with Server(PROGRAM, *flags) as server:
                for path, known, fields in ("/v1/messages", {"max_tokens": 1}, {"first": 1}), ("/v1/messages", {"max_tokens": 1}, {"first": 2}), ("/api/chat", {}, {"first": 1, "other": {}}):
                    answer = server.post(path, {**body, **known, **fields})
                    self.assertEqual((answer.status, answer.header("x-ignored-fields")), (200, ", ".join(fields)))
                server.signal()
                self.assertEqual(server.wait_exit(), 0, server.log)
                lines = [line for line in server.log.splitlines() if " unknown fields ignored: " in line]
            self.assertEqual([line.split("ignored: ")[1] for line in lines], [["first", "first, other"], ["first", "first", "first, other"]][count - 2])
            self.assertEqual([line.split("[")[1].split("]")[0] for line in lines], [["warning"] * 2, ["warning", "info", "warning"]][count - 2])

    def test_an_error_at_the_start_is_a_line_too(self):
        result = subprocess.run([PROGRAM, "serve", "--log-format", "json", "--model", "/none"], capture_output=True, text=True, timeout=LONG)
        self.assertEqual(result.returncode, 2)
        line = json.loads(result.stderr)
        self.assertEqual(line["level"], "error")
        self.assertIn("/none", line["message"])
        result = subprocess.run([PROGRAM, "serve", "--log-format", "xml"], capture_output=True, text=True, timeout=LONG)
        self.assertEqual(result.returncode, 2)
        self.assertTrue(re.search("--log-format.*xml.*text.*json|--log-format.*text.*json", result.stderr), result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
