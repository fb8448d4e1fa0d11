#!/usr/bin/env python3
"""Requests of hostile and broken clients, sent as raw bytes: each gets the right status in OpenAI's error format, and the
server answers the next ordinary request with the same tokens as before.

Usage: raw_socket_test.py PROGRAM [unittest arguments]
"""
import http.client
import json
import os
import re
import select
import socket
import struct
import sys
import time
import unittest

from server import LONG, ROOT, Closed, Reader, Server, error_of, eventually, request_bytes
from bad_fields import CASES

PROGRAM = sys.argv[1]
SANITIZED = bool(os.environ.get("SERVE_TEST_SANITIZED"))
PROBE = {"prompt": "Once upon a time", "max_tokens": 8, "return_token_ids": True}
COMPLETION = {"prompt": "One two", "max_tokens": 2, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
PROMPT = "Once upon a time there was a little bird that lived in a tree. "
JSON_BODY = json.dumps(COMPLETION).encode()
DEMO = os.path.join(ROOT, "models", "demo")
PATHS = {"completion": "/v1/completions", "chat": "/v1/chat/completions"}


class RawTest(unittest.TestCase):
    flags = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, *cls.flags)
        cls.addClassCleanup(cls.server.kill)
        cls.tokens = cls.probe()

    @classmethod
    def probe(cls):
        return [choice["token_ids"] for choice in cls.server.complete(**PROBE)]

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log)
        self.assertEqual(self.probe(), self.tokens, "another answer after the case")

    def send(self, data, timeout=LONG):
        """The answer to bytes as they are, and whether the connection was closed after it."""
        with self.server.connect(timeout) as s:
            try:
                s.sendall(data)
            except ConnectionError:
                pass  # closed while sending: the answer sent before is in the buffer
            reader = Reader(s)
            return reader.response(), reader

    def refused(self, data, status, closes=None, **rest):
        with self.server.connect() as s:
            try:
                s.sendall(data)
            except ConnectionError:
                pass
            reader = Reader(s)
            answer = reader.response()
            error = error_of(answer, status, **rest)
            if closes:
                s.settimeout(LONG)
                self.assertTrue(reader.at_end(), "the connection stayed open")
            return error

    def refused_or_closed(self, data, status):
        """Some malformed heads may be closed without an answer."""
        try:
            self.refused(data, status)
        except Closed as closed:
            self.assertEqual(closed.got, b"")


class Fields(RawTest):
    """JSON that is not a valid request."""

    def test_each_field_of_a_wrong_kind(self):
        for kind, field, values in CASES:
            for value in values:
                with self.subTest(kind=kind, field=field, value=str(value)[:60]):
                    base = COMPLETION if kind == "completion" else CHAT
                    body = {**base, **value} if field.startswith("+") else {**base, field: value}
                    name = field.lstrip("+")
                    error = error_of(self.server.post(PATHS[kind], body), 400)
                    self.assertIsNotNone(error["param"], error)
                    self.assertTrue(error["param"].startswith(name), f"param {error['param']!r} is not of {name}: {error}")
                    self.assertEqual(error["type"], "invalid_request_error")

    def test_a_missing_prompt(self):
        for path, field in (("/v1/completions", "prompt"), ("/v1/chat/completions", "messages"), ("/detokenize", "tokens")):
            for body in ({}, {field: None}):
                error_of(self.server.post(path, body), 400, field)

    def test_empty_prompts(self):  # CVE-2024-8768
        for prompt in ([], [[]], [[], []]):
            error_of(self.server.post("/v1/completions", {**COMPLETION, "prompt": prompt}), 400)
        for prompt in ("", [""], " ", "\n"):  # an empty text may become the begin token alone
            self.assertIn(self.server.post("/v1/completions", {**COMPLETION, "prompt": prompt}).status, (200, 400))
        error_of(self.server.post("/v1/completions", {**COMPLETION, "prompt": "", "add_special_tokens": False}), 400)

    def test_a_number_of_answers_beyond_all_bounds(self):  # CVE-2026-34756, CVE-2024-8939
        before = self.server.resident_bytes()
        start = time.monotonic()
        for n in (10**9, 2**31 - 1, 2**31, 2**63, 10**30, 129):
            for kind, path in PATHS.items():
                base = COMPLETION if kind == "completion" else CHAT
                error_of(self.server.post(path, {**base, "temperature": 1, "n": n}), 400, "n")
        error_of(self.server.post("/v1/completions", {**COMPLETION, "best_of": 10**9}), 400, "best_of")
        self.assertLess(time.monotonic() - start, LONG)
        self.assertLess(self.server.resident_bytes() - before, 32 << 20)

    def test_bodies_that_are_no_object(self):
        bodies = [b"", b" ", b"x", b"[]", b"42", b"null", b'"text"', b"true", b"{", b'{"prompt"', b"{} x", b"{}{}", b'{"prompt": "x",}',
                  b"{'prompt': 'x'}", b'{"prompt": "x" /* c */}', b"\xef\xbb\xbf{", b'{"prompt": "\x01"}', b'{"prompt": "\\x"}', b"\0", b"{\0}"]
        for path in (*PATHS.values(), "/tokenize", "/detokenize"):
            for body in bodies:
                with self.subTest(path=path, body=body):
                    error_of(self.server.post(path, body), 400)

    def test_bodies_of_other_apis(self):
        deep = '{"a":' * 98 + "1" + "}" * 98
        bodies = [b"", b"[]", b"null", b"{", b'{"messages": {}}', b'{"messages": [1], "input": [1], "prompt": 1}', b'{"messages": "x", "input": {}, "prompt": []}', b"[" * 100_000,
                  b'{"model": 1}', f'{{"max_tokens": 1, "messages": [{{"role": "x"}}], "input": {deep}, "prompt": {deep}}}'.encode(),
                  b'{"max_tokens": 1, "messages": [' + b'{"role":"user","content":[{"type":"text","text":"x"}]},' * 60_000 + b"1]}"]
        for path in ("/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/responses", "/api/chat", "/api/generate"):
            for body in bodies:
                with self.subTest(path=path, body=body[:80]):
                    answer = self.server.post(path, body)
                    if path.startswith("/api/") and answer.status == 200:  # nothing to answer: it only loads the model
                        self.assertEqual(answer.json()["done_reason"], "load")
                        continue
                    self.assertEqual(answer.status, 400, answer)
                    error = answer.json()["error"]
                    self.assertTrue(error if path.startswith("/api/") else error["message"])

    def test_numbers_that_json_has_not(self):
        for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0x10", "01", ".5", "5.", "+1", "1" * 400):
            for field in ("temperature", "max_tokens", "seed", "top_p"):
                with self.subTest(number=number[:20], field=field):
                    body = f'{{"prompt": "x", "{field}": {number}}}'.encode()
                    error_of(self.server.post("/v1/completions", body), 400)

    def test_text_that_is_no_unicode(self):
        for text in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"ab\x80"):
            with self.subTest(text=text):
                error_of(self.server.post("/v1/completions", b'{"max_tokens": 1, "prompt": "' + text + b'"}'), 400)
        for text in ("\\ud800", "\\udc00", "\\ud800x", "\\ud800\\ud800"):  # half a pair
            with self.subTest(text=text):
                error_of(self.server.post("/v1/completions", f'{{"max_tokens": 1, "prompt": "{text}"}}'.encode()), 400)
        answer = self.server.post("/v1/completions", {**COMPLETION, "prompt": "a\0b", "echo": True})
        self.assertEqual(answer.status, 200, answer)
        self.assertTrue(answer.json()["choices"][0]["text"].startswith("a\0b"), answer)

    def test_depth(self):
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            for depth in (200, 100_000, 1_000_000):
                for ended in (True, False):
                    inner = opening * depth + ("1" + closing * depth if ended else "")
                    with self.subTest(opening=opening, depth=depth, ended=ended):
                        error_of(self.server.post("/v1/completions", f'{{"prompt": "x", "x": {inner}}}'.encode()), 400)
                        error_of(self.server.post("/v1/chat/completions", inner.encode()), 400)
        shallow = {**COMPLETION, "metadata": [[[[[[{"a": [1]}]]]]]]}
        self.assertEqual(self.server.post("/v1/completions", shallow).status, 200)

    def test_keys_given_twice(self):
        for body in ('{"prompt": "a", "prompt": "b"}', '{"prompt": "a", "max_tokens": 1, "max_tokens": 2}', '{"prompt": "a", "n": 1, "\\u006e": 1}'):
            error_of(self.server.post("/v1/completions", body.encode()), 400)
        body = b'{"max_tokens": 1, "messages": [{"role": "user", "role": "system", "content": "x"}]}'
        error_of(self.server.post("/v1/chat/completions", body), 400)

    def test_arrays_of_millions(self):
        start = time.monotonic()
        part = 10 if SANITIZED else 1
        for path, body in (("/v1/completions", b'{"prompt": [' + b"0," * (5_000_000 // part) + b"0]}"),
                           ("/v1/completions", b'{"prompt": [' + b'"a",' * (2_000_000 // part) + b'"a"]}'),
                           ("/v1/completions", b'{"prompt": "' + b"a" * ((8 << 20) // part) + b'"}'),
                           ("/v1/chat/completions", b'{"messages": [' + b'{"role":"user","content":"x"},' * (100_000 // part) + b'{"role":"user","content":"x"}]}'),
                           ("/tokenize", b'{"prompt": "' + b"a" * ((30 << 20) // part) + b'"}')):
            answer = self.server.post(path, body)
            if path != "/tokenize" or answer.status != 200:  # which has no length that it could exceed
                error_of(answer, (400, 413))
        print(f"\nbodies of millions of entries: {time.monotonic() - start:.1f} s")

    def test_too_long_says_so_as_clients_read_it(self):
        for body in ({"prompt": "word " * 5000}, {"prompt": "x", "max_tokens": 10**6}, {"prompt": [5] * 2000}):
            error = error_of(self.server.post("/v1/completions", body), 400)
            self.assertRegex(error["message"], r"maximum context length is \d+")
            self.assertEqual(error["code"], "context_length_exceeded")

    def test_token_ids_that_are_none(self):
        for prompt in ([-1], [10**9], [2**32], [768], [[5], [-1]], [2**63], [-2**63 - 1]):
            error_of(self.server.post("/v1/completions", {**COMPLETION, "prompt": prompt}), 400)
            error_of(self.server.post("/detokenize", {"tokens": prompt}), 400)

    def test_unknown_fields_are_errors(self):
        for kind in ("completion", "chat"):
            base = COMPLETION if kind == "completion" else CHAT
            error = error_of(self.server.post(PATHS[kind], {**base, "temprature": 1}), 400, "temprature")
            self.assertIn('did you mean "temperature"?', error["message"])
            self.assertEqual(error["code"], "unknown_parameter")
            error = error_of(self.server.post(PATHS[kind], {**base, "suffix": "x"}), 400, "suffix")
            self.assertEqual(error["code"], "unsupported_parameter")
            answer = self.server.post(PATHS[kind], {**base, "grammar": "", "best_of": 1, "user": "u", "metadata": {"a": "b"}, "store": True})
            self.assertEqual(answer.status, 200, answer)
            self.assertIsNone(answer.header("x-ignored-fields"))
        for path, body in (("/tokenize", {"prompt": "x", "promt": "y"}), ("/detokenize", {"tokens": [5], "token": 5})):
            error_of(self.server.post(path, body), 400, "promt" if "prompt" in body else "token")

    def test_unknown_fields_are_ignored_when_asked(self):
        with Server(PROGRAM, "--ignore-unknown-fields") as server:
            for stream in (False, True):
                answer = server.post("/v1/completions", {**COMPLETION, "stream": stream, "temprature": 1, "a\r\nX-Evil: 1": {"b": [1]}})
                self.assertEqual(answer.status, 200)
                self.assertEqual(answer.header("x-ignored-fields"), "temprature, a??X-Evil:?1")
                self.assertIsNone(answer.header("x-evil"))
            self.assertEqual(server.post("/tokenize", {"prompt": "x", "y": 1}).header("x-ignored-fields"), "y")
            error_of(server.post("/v1/completions", {**COMPLETION, "suffix": "x"}), 400, "suffix")

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
                  "required": ["name", "age"], "additionalProperties": False}
        more = {"max_tokens": 80, "temperature": 1, "n": 2, "seed": 3}
        for field, value in (("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}),
                             ("structured_outputs", {"json": schema}), ("guided_json", schema), ("json_schema", json.dumps(schema))):
            answer = self.server.post(PATHS["chat"], {**CHAT, **more, field: value}).json()
            for choice in answer["choices"]:
                self.assertEqual(choice["finish_reason"], "stop")
                made = json.loads(choice["message"]["content"])
                self.assertEqual(sorted(made), ["age", "name"])
                self.assertTrue(len(made["name"]) <= 12 and 0 <= made["age"] <= 120, made)
        for field, value, pattern in (("structured_outputs", {"choice": ["yes", "no"]}, "yes|no"), ("regex", "[a-c]{2,4}[0-9]", "[a-c]{2,4}[0-9]"),
                                      ("grammar", 'root ::= "(" root ")" | "x"', r"\(*x\)*"), ("guided_grammar", 'start: "a" | "b"', "a|b")):
            for stream in (False, True):
                answer = self.server.post(PATHS["completion"], {**COMPLETION, **more, "n": 1, field: value, "stream": stream})
                text = ("".join(e["choices"][0]["text"] for e in answer.events()[:-1] if e["choices"]) if stream
                        else answer.json()["choices"][0]["text"])
                self.assertRegex(text, f"^({pattern})$")
        error = error_of(self.server.post(PATHS["chat"], {**CHAT, "guided_json": {"properties": {"a": {"uniqueItems": True}}}}), 400)
        self.assertIn("#/properties/a/uniqueItems", error["message"])

    def test_tools(self):
        parameters = {"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                      "$defs": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city", "days"], "additionalProperties": False}
        tools = [{"type": "function", "function": {"name": name, "parameters": parameters}} for name in ("weather", "trip")]
        body = {**CHAT, "max_tokens": 120, "temperature": 1, "tools": tools}
        with Server(PROGRAM, "--chat-template", f"{ROOT}/tests/text/templates/qwen3.jinja", "--reasoning-parser", "none") as server:
            for choice in ("required", {"type": "function", "function": {"name": "trip"}}):
                for seed in range(3):
                    more = {**body, "tool_choice": choice, "seed": seed, "parallel_tool_calls": False}
                    whole = server.post(PATHS["chat"], more).json()["choices"][0]
                    self.assertEqual(whole["finish_reason"], "tool_calls", whole)
                    self.assertIsNone(whole["message"]["content"])
                    [call] = whole["message"]["tool_calls"]
                    self.assertRegex(call["id"], "^call_[0-9a-f]{24}$")
                    self.assertIn(call["function"]["name"], ("weather", "trip") if choice == "required" else ("trip",))
                    arguments = json.loads(call["function"]["arguments"])
                    self.assertTrue(arguments["city"] in ("Oslo", "Rome") and 1 <= arguments["days"] <= 9)
                    parts = [e["choices"][0] for e in server.post(PATHS["chat"], {**more, "stream": True}).events()[:-1] if e["choices"]]
                    deltas = [c for part in parts for c in part["delta"].get("tool_calls", [])]
                    self.assertEqual(deltas[0]["function"]["name"], call["function"]["name"])
                    self.assertEqual("".join(d["function"]["arguments"] for d in deltas), call["function"]["arguments"])
                    self.assertEqual(parts[-1]["finish_reason"], "tool_calls")
            self.assertEqual(server.post(PATHS["chat"], {**body, "max_tokens": 5}).status, 200)  # auto: the template shows the form
            history = [*CHAT["messages"], {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {
                "name": "trip", "arguments": "{\"city\": \"Oslo\"}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "done"}]
            self.assertEqual(server.post(PATHS["chat"], {**body, "messages": history, "max_tokens": 5, "tool_choice": "none"}).status, 200)
            error_of(server.post(PATHS["chat"], {**body, "tool_choice": {"type": "function", "function": {"name": "x"}}}), 400, "tool_choice")

    def test_features_that_are_not_there(self):
        tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
        for kind, field, value in (("chat", "tools", [tool]), ("chat", "functions", [tool]), ("completion", "best_of", 2), ("completion", "suffix", "x")):
            base = COMPLETION if kind == "completion" else CHAT
            error_of(self.server.post(PATHS[kind], {**base, field: value}), 400, field)
        self.assertEqual(self.server.post(PATHS["chat"], {**CHAT, "response_format": {"type": "text"}}).status, 200)
        error_of(self.server.post("/v1/responses", {"input": "x", "previous_response_id": "x"}), 400, "previous_response_id")

    def test_templates_of_clients_are_not_run(self):  # CVE-2025-61620, CVE-2025-62426
        loop = "{% for a in range(1000000000) %}x{% endfor %}"
        for fields in ({"chat_template": loop}, {"chat_template_kwargs": {"chat_template": loop}}, {"chat_template_kwargs": {"tokenize": True}},
                       {"chat_template_kwargs": "x"}):
            start = time.monotonic()
            answer = self.server.post(PATHS["chat"], {**CHAT, **fields})
            self.assertIn(answer.status, (200, 400), answer)
            self.assertLess(time.monotonic() - start, LONG)

    def test_an_unknown_model(self):
        for path, base in ((PATHS["chat"], CHAT), (PATHS["completion"], COMPLETION)):
            error = error_of(self.server.post(path, {**base, "model": "no/such\u0007"}), 404, "model")
            self.assertEqual(error["code"], "model_not_found")
            self.assertNotIn("\u0007", error["message"])
        error_of(self.server.get("/v1/models/none"), 404)


class Http(RawTest):
    """Bytes that are not one valid request."""

    def post_head(self, *lines, path="/v1/completions"):
        return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode() + b"".join(line + b"\r\n" for line in lines) + b"\r\n"

    def test_smuggling(self):
        n = str(len(JSON_BODY)).encode()
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(JSON_BODY), JSON_BODY)
        for lines, body in (
                ((b"Content-Length: " + n, b"Transfer-Encoding: chunked"), chunked),
                ((b"Transfer-Encoding: chunked", b"Content-Length: 4"), chunked),
                ((b"Content-Length: " + n, b"Content-Length: 4"), JSON_BODY),
                ((b"Content-Length: " + n, b"Content-Length: " + n), JSON_BODY),
                ((b"Content-Length: " + n + b", " + n,), JSON_BODY),
                ((b"Content-Length: +" + n,), JSON_BODY),
                ((b"Content-Length: -1",), JSON_BODY),
                ((b"Content-Length: 0x10",), JSON_BODY),
                ((b"Content-Length: 1 0",), JSON_BODY),
                ((b"Content-Length: 99999999999999999999999",), JSON_BODY),
                ((b"Content-Length:",), JSON_BODY),
                ((b"Content-Length : " + n,), JSON_BODY),
                ((b"Content-Length\t: " + n,), JSON_BODY),
                ((b" Content-Length: " + n,), JSON_BODY),
                ((b"X: a\r\n folded: b", b"Content-Length: " + n), JSON_BODY),
                ((b"X: a\rY: b", b"Content-Length: " + n), JSON_BODY),
                ((b"X: a\0b", b"Content-Length: " + n), JSON_BODY),
                ((b": empty", b"Content-Length: " + n), JSON_BODY),
                ((b"X Y: a", b"Content-Length: " + n), JSON_BODY),
                ((b"no colon", b"Content-Length: " + n), JSON_BODY)):
            with self.subTest(lines=lines):
                self.refused(self.post_head(*lines) + body, (400, 413), closes=True)
        for coding in (b"gzip", b"chunked, gzip", b"identity", b"chunked, chunked", b"xchunked", b"\x0bchunked", b"chunked;q=1"):
            with self.subTest(coding=coding):
                self.refused(self.post_head(b"Transfer-Encoding: " + coding) + chunked, (400, 501), closes=True)
        self.refused(self.post_head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip") + chunked, (400, 501), closes=True)
        self.refused(self.post_head(b"Transfer-Encoding: chunked").replace(b"HTTP/1.1", b"HTTP/1.0") + chunked, (400, 501), closes=True)

    def test_nothing_hides_behind_a_refused_request(self):
        """Bytes after the malformed request must not be answered."""
        inner = request_bytes("GET", "/health")
        for head in (self.post_head(b"Content-Length: 4", b"Transfer-Encoding: chunked"), self.post_head(b"Content-Length: 4", b"Content-Length: 50")):
            with self.server.connect() as s:
                s.sendall(head + b"0\r\n\r\n" + inner)
                reader = Reader(s)
                error_of(reader.response(), 400)
                self.assertTrue(reader.at_end())

    def test_line_ends(self):
        self.refused_or_closed(b"GET /health HTTP/1.1\rHost: localhost\r\r", 400)
        self.refused_or_closed(b"GET /health HTTP/1.1\nHost: localhost\n\n", 400)
        self.refused_or_closed(b"GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400)

    def test_request_lines(self):
        for line, status in ((b"GET", 400), (b"GET /health", 400), (b"GET  /health HTTP/1.1", 400), (b"GET /health HTTP/1.1 x", 400), (b"/health", 400),
                             (b"GET /health HTP/1.1", 400), (b"GET /health HTTP/x.y", 400), (b"GET /he alth HTTP/1.1", 400), (b"G\x00T /health HTTP/1.1", 400),
                             (b"GET /\x7f\x01 HTTP/1.1", 400), (b"GET health HTTP/1.1", 400), (b"GET /%zz HTTP/1.1", 400), (b"GET /%4 HTTP/1.1", 400),
                             (b"GET /%00 HTTP/1.1", (400, 404)), (b"GET /health HTTP/3.0", (400, 505)), (b"GET /health HTTP/2.0", (400, 505)),
                             (b"PRI * HTTP/2.0", (400, 505)), (b"GET /" + b"a" * 9000 + b" HTTP/1.1", 414), (b"G" * 9000 + b" / HTTP/1.1", (400, 414, 431, 501))):
            with self.subTest(line=line[:40]):
                self.refused_or_closed(line + b"\r\nHost: localhost\r\n\r\n", status)
        self.refused_or_closed(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400)  # TLS
        self.refused_or_closed(bytes(range(256)) * 8, (400, 431))
        self.refused_or_closed(b"\r\n" * 20_000, (400, 431))
        self.refused(b"GET /health HTTP/1.1\r\n\r\n", 400)  # no Host
        self.refused(b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400)

    def test_paths(self):
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/v1", "/v1/", "/v1/chat", "/none?x=1", "/health/x",
                     "/metrics%00", "/\\..\\x"):
            with self.subTest(path=path):
                error_of(self.server.get(path), (400, 404))
        self.assertEqual(self.server.get("/%68ealth").status, 200)
        self.assertEqual(self.server.get("/health?a=b&c=%zz").status, 200)

    def test_wrong_methods(self):
        for method, path, allowed in (("GET", "/v1/chat/completions", "POST"), ("PUT", "/v1/completions", "POST"), ("DELETE", "/v1/models", "GET"),
                                      ("POST", "/metrics", "GET"), ("POST", "/health", "GET"), ("PATCH", "/tokenize", "POST"), ("BREW", "/health", "GET")):
            with self.subTest(method=method, path=path):
                answer = self.server.request(method, path, b"" if method != "GET" else None)
                error_of(answer, 405)
                self.assertIn(allowed, answer.header("allow"))
        for method in ("TRACE", "CONNECT"):
            self.refused_or_closed(f"{method} /health HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), (400, 405, 501))

    def test_head_and_options(self):
        for path in ("/health", "/v1/models", "/metrics"):
            with self.server.connect() as s:  # a body after HEAD would be read as the next answer
                s.sendall(request_bytes("HEAD", path) + request_bytes("GET", "/v1/models"))
                reader = Reader(s)
                self.assertEqual(reader.response(head_only=True).status, 200)
                self.assertEqual(reader.response().json()["object"], "list")
        answer = self.server.request("OPTIONS", "/v1/chat/completions", headers=[("Origin", "http://evil"), ("Access-Control-Request-Method", "POST")])
        self.assertIn(answer.status, (204, 405))
        for answer in (answer, self.server.get("/v1/models", headers=[("Origin", "http://evil")])):  # CORS is off by default
            self.assertFalse([key for key, _ in answer.headers if key.lower().startswith("access-control")], answer)

    def test_content_types(self):
        for given in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx", "garbage", ""):
            with self.subTest(given=given):
                error_of(self.server.post("/v1/completions", JSON_BODY, headers=[("Content-Type", given)]), 415)
        for given in ("application/json", "Application/JSON; charset=utf-8", "application/json;charset=UTF-8"):
            self.assertEqual(self.server.post("/v1/completions", JSON_BODY, headers=[("Content-Type", given)]).status, 200)

    def test_hosts(self):
        """DNS rebinding: another site resolves its own name to this machine's address."""
        for host in ("evil.com", "evil.com:8000", "localhost.evil.com", "127.0.0.1.evil.com", "127.1"):
            for path in ("/", "/health", "/v1/models", "/v1/chat/completions", "/no/such/path"):
                for method in ("GET", "POST", "OPTIONS"):
                    data = (f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nX-Forwarded-Host: localhost\r\nOrigin: http://localhost\r\n"
                            "Forwarded: host=localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").encode()
                    with self.subTest(host=host, path=path, method=method):
                        error = self.refused(data, 403)
                        self.assertEqual((error["type"], error["code"]), ("permission_error", "host_not_allowed"))
                        self.assertIn("--allowed-host", error["message"])
        for host in ("localhost", "LOCALHOST:80", "app.localhost", "127.0.0.1:1", "[::1]:8000", "192.168.1.7"):
            with self.subTest(host=host):
                answer, _ = self.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                self.assertEqual(answer.status, 200)
        self.assertIn("hosts: addresses, localhost; others get 403", self.server.log)

    def test_bodies_beyond_the_limit(self):
        for length in ((32 << 20) + 1, 1 << 40, 2**63 - 1):  # refused before any byte of the body
            self.refused(self.post_head(b"Content-Length: %d" % length), 413, closes=True)
            self.refused(self.post_head(b"Content-Length: %d" % length, b"Expect: 100-continue"), 413, closes=True)

    def test_a_client_that_sends_its_whole_body_first_reads_the_refusal(self):
        """Like Python's http.client, which reads the answer only after it has sent the whole body."""
        body = b"[" + b" " * (100 << 20)
        before = self.server.resident_bytes()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=LONG)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        self.assertEqual(answer.status, 413)
        self.assertIn("33554432", json.loads(answer.read())["error"]["message"])
        connection.close()
        self.assertLess(self.server.resident_bytes() - before, 32 << 20)

    def test_endless_chunks(self):
        before = self.server.resident_bytes()
        with self.server.connect() as s:
            s.sendall(self.post_head(b"Transfer-Encoding: chunked"))
            chunk, sent = b"100000\r\n" + bytes(1 << 20) + b"\r\n", 0
            try:
                while sent < 300:
                    s.sendall(chunk)
                    sent += 1
            except ConnectionError:
                pass
            self.assertLess(sent, 100, "the server read on and on")
            try:
                error_of(Reader(s).response(), 413)
            except Closed:
                pass  # bytes sent after the refusal caused a reset, which discarded the answer
        self.assertLess(self.server.resident_bytes() - before, 150 << 20)

    def test_a_chunk_without_its_end_is_refused_at_once(self):
        self.refused(self.post_head(b"Transfer-Encoding: chunked") + b"5\r\nhelloX", 400, closes=True)

    def test_headers_that_come_twice(self):
        """A proxy and the server could use different ones of two."""
        n = b"Content-Length: %d" % len(JSON_BODY)
        for lines in ((b"Content-Type: application/json",), (b"Authorization: Bearer a", b"Authorization: Bearer a"), (b"Authorization: Bearer a", b"authorization: Bearer b"),
                      (b"Host: y",), (b"Origin: http://a", b"Origin: http://b"), (b"Expect: 100-continue", b"Expect: 100-continue")):
            with self.subTest(lines=lines):
                error = self.refused(self.post_head(n, *lines) + JSON_BODY, 400, closes=True)
                self.assertIn("several", error["message"])

    def test_malformed_chunks(self):
        for body in (b"x\r\n", b"-1\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"fffffffffffffffff\r\n", b"ffffffffffffffff\r\n", b"8000000000000000\r\n", b"5\r\nhelloXX5\r\nhello\r\n0\r\n\r\n",
                     b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n\r\n\r\n", b"5;" + b"x" * 100_000 + b"\r\n", b" 5\r\nhello\r\n0\r\n\r\n"):
            with self.subTest(body=body[:30]):
                try:
                    error = self.refused(self.post_head(b"Transfer-Encoding: chunked") + body, (400, 413, 431))
                    self.assertTrue(error)
                except Closed as closed:
                    self.assertEqual(closed.got, b"")

    def test_a_body_in_chunks(self):
        for size in (1, 7, 1000):
            chunks = b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in (JSON_BODY[i:i + size] for i in range(0, len(JSON_BODY), size)))
            answer, _ = self.send(self.post_head(b"Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
            self.assertEqual(answer.status, 200, answer)

    def test_expect_100_continue(self):
        with self.server.connect() as s:
            s.sendall(self.post_head(b"Content-Length: %d" % len(JSON_BODY), b"Expect: 100-continue"))
            reader = Reader(s)
            self.assertEqual(reader.head()[0], 100)
            s.sendall(JSON_BODY)
            self.assertEqual(reader.response().status, 200)

    def test_header_floods(self):  # CVE-2025-48956
        before = self.server.resident_bytes()
        self.refused(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(200)) + b"\r\n", 431)
        self.refused(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431)
        for piece in (b"a" * (1 << 20), b"X: y\r\n" * 100_000):
            with self.server.connect() as s:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
                sent = 0
                try:
                    while sent < 1 << 30:
                        s.sendall(piece)
                        sent += len(piece)
                except ConnectionError:
                    pass
                self.assertLess(sent, 64 << 20, "the server read on and on")
                try:
                    error_of(Reader(s).response(), 431)
                except Closed:
                    pass
        self.assertLess(self.server.resident_bytes() - before, 32 << 20)

    def test_pipelining(self):
        with self.server.connect() as s:
            bodies = [{**COMPLETION, "max_tokens": n, "ignore_eos": True} for n in (9, 1, 5)]
            s.sendall(b"".join(request_bytes("POST", "/v1/completions", body) for body in bodies) + request_bytes("GET", "/health") + request_bytes("GET", "/none"))
            reader = Reader(s)
            self.assertEqual([reader.response().json()["usage"]["completion_tokens"] for _ in bodies], [9, 1, 5])
            self.assertEqual(reader.response().status, 200)
            error_of(reader.response(), 404)

    def test_a_flood_of_pipelined_requests(self):
        before = self.server.resident_bytes()
        with self.server.connect(timeout=2) as s:
            try:
                for _ in range(2000):
                    s.sendall(request_bytes("GET", "/v1/models") * 100)
            except (TimeoutError, ConnectionError):
                pass
        self.assertLess(self.server.resident_bytes() - before, 64 << 20)

    def test_half_open_connections(self):
        idle = [self.server.connect() for _ in range(200)]  # they never send anything
        for s in idle[:50]:
            s.sendall(b"POST /v1/completions HT")
        for s in idle[50:100]:
            s.sendall(self.post_head(b"Content-Length: 100") + b'{"prompt"')
        self.assertEqual(self.probe(), self.tokens)
        for s in idle[:150]:  # closed with a reset
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for s in idle:
            s.close()

    def test_a_client_that_sends_no_more(self):
        """shutdown() of the sending side after a whole request: answered, or treated as a disconnect; a partial request never
        is processed."""
        with self.server.connect() as s:
            s.sendall(request_bytes("GET", "/v1/models"))
            s.shutdown(socket.SHUT_WR)
            try:
                self.assertEqual(Reader(s).response().status, 200)
            except Closed as closed:
                self.assertEqual(closed.got, b"")
        with self.server.connect() as s:
            s.sendall(self.post_head(b"Content-Length: 100") + b'{"prompt"')
            s.shutdown(socket.SHUT_WR)
            try:
                error_of(Reader(s).response(), 400)
            except Closed as closed:
                self.assertEqual(closed.got, b"")

    def test_connections_that_reset_amid_a_stream(self):
        body = {**COMPLETION, "max_tokens": 900, "ignore_eos": True, "stream": True}
        for _ in range(30):
            s = self.server.connect()
            s.sendall(request_bytes("POST", "/v1/completions", body))
            s.recv(100)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        self.server.wait_idle()

    def test_keep_alive(self):
        with self.server.connect() as s:
            reader = Reader(s)
            for _ in range(20):
                s.sendall(request_bytes("POST", "/v1/completions", COMPLETION))
                self.assertEqual(reader.response().status, 200)
            for bad in (b"{", b'{"prompt": 5}'):  # a refusal by the API does not end the connection
                s.sendall(request_bytes("POST", "/v1/completions", bad))
                error_of(reader.response(), 400)
            s.sendall(request_bytes("GET", "/health", headers=[("Connection", "close")]))
            self.assertEqual(reader.response().status, 200)
            self.assertTrue(reader.at_end())
        with self.server.connect() as s:
            s.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            reader = Reader(s)
            self.assertEqual(reader.response().status, 200)
            self.assertTrue(reader.at_end())

    def test_request_ids(self):
        self.assertEqual(self.server.get("/v1/models", headers=[("X-Request-Id", "abc-1_2.3:4")]).header("x-request-id"), "abc-1_2.3:4")
        seen = set()
        for given in ("a b", "x" * 129, "", "\x1b[31m", "\u00e9", "<script>"):
            answer = self.server.get("/v1/models", headers=[("X-Request-Id", given)])
            if answer.status == 200:
                self.assertRegex(answer.header("x-request-id"), r"^[A-Za-z0-9_.:-]{1,128}$")
                self.assertNotEqual(answer.header("x-request-id"), given)
                seen.add(answer.header("x-request-id"))
            else:
                error_of(answer, 400)
        self.assertGreater(len(seen), 3)

    def test_the_form_of_a_stream(self):
        body = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        answer = self.server.post(PATHS["chat"], body)
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.chunked)
        self.assertEqual(answer.header("content-type").replace(" ", "").lower(), "text/event-stream;charset=utf-8")
        self.assertEqual(answer.header("cache-control"), "no-cache")
        self.assertEqual(answer.header("x-accel-buffering"), "no")
        events = answer.events()
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual(events[-2]["choices"], [])
        self.assertGreater(events[-2]["usage"]["completion_tokens"], 0)
        finishes = [event["choices"][0] for event in events[:-2] if event["choices"] and event["choices"][0]["finish_reason"]]
        self.assertEqual(len(finishes), 1)
        self.assertFalse(finishes[0]["delta"].get("content"))
        self.assertEqual(len({(event["id"], event["created"], event["model"], event["object"]) for event in events[:-1]}), 1)
        self.assertTrue(all(event["usage"] is None for event in events[:-2]))


class SlowClients(RawTest):
    """Short timeouts."""
    flags = ("--header-timeout", "1", "--body-timeout", "1", "--keep-alive-timeout", "1", "--write-timeout", "2")

    def ends(self, s):
        """Everything received until the server closed the connection."""
        s.settimeout(LONG)
        got = b""
        try:
            while data := s.recv(65536):
                got += data
        except ConnectionError:
            pass
        return got

    def check_408(self, got):
        if got:  # a silent close is fine too
            self.assertRegex(got, rb"^HTTP/1.1 408 ")
            body = json.loads(got.split(b"\r\n\r\n", 1)[1])
            self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})

    def test_a_head_byte_by_byte(self):
        with self.server.connect() as s:
            start = time.monotonic()
            answered = False
            for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 1000:
                s.sendall(bytes([byte]))
                answered = bool(select.select([s], [], [], 0.1)[0])
                if answered:
                    break
            self.assertTrue(answered, "read to the end")
            self.assertGreater(time.monotonic() - start, 0.9)
            s.shutdown(socket.SHUT_WR)  # otherwise the server waits for this client to read
            self.check_408(self.ends(s))

    def test_silence(self):
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
        parts = (b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", head + b"\r\n", head + b"\r\n" + b'{"prompt": ')
        silent = [self.server.connect() for _ in parts]
        for s, data in zip(silent, parts):
            s.sendall(data)
        for s, data in zip(silent, parts):
            with self.subTest(data=data), s:
                self.check_408(self.ends(s))

    def test_an_idle_connection_is_closed(self):
        with self.server.connect() as s:
            s.sendall(request_bytes("GET", "/health"))
            reader = Reader(s)
            self.assertEqual(reader.response().status, 200)
            s.settimeout(LONG)
            self.assertTrue(reader.at_end())

    def test_an_answer_in_flight_is_not_idle(self):
        for n in (16, 32, 64, 128):
            body = {**COMPLETION, "max_tokens": 900, "ignore_eos": True, "n": n, "temperature": 1, "seed": 1}
            start = time.monotonic()
            self.assertEqual(self.server.post("/v1/completions", body).status, 200)
            if time.monotonic() - start > 1.5:  # longer than any timeout of this server
                break

    def test_a_reader_that_never_reads(self):
        """A client requests megabytes of log probabilities and reads nothing: its connection is closed, its request is cancelled
        and its memory is freed; other clients do not wait."""
        before = self.server.resident_bytes()
        body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "n": 16, "temperature": 1, "logprobs": 20, "stream": True, "seed": 1}
        stuck = [self.server.connect(receive_buffer=4096) for _ in range(3)]
        for s in stuck:
            s.sendall(request_bytes("POST", "/v1/completions", body))
        self.assertEqual(self.probe(), self.tokens)
        self.server.wait_idle()
        self.assertLess(self.server.resident_bytes() - before, 64 << 20)
        metrics = self.server.metrics()
        self.assertEqual(metrics.value("fovea_http_responses_total", status="499"), 3)  # counted as disconnects
        self.assertNotIn('status="500"', metrics.text)
        for s in stuck:
            got = self.ends(s)
            self.assertNotIn(b"[DONE]", got)
            s.close()



class Connections(RawTest):
    """Few connection slots."""
    flags = ("--max-connections", "12", "--max-connections-per-address", "8")

    def counts(self):
        return self.server.get("/server_info").json()["connections"]

    def hold(self, count):
        """Connections with a running stream, from a separate address."""
        body = {**COMPLETION, "max_tokens": 900, "ignore_eos": True, "stream": True}
        held = []
        for _ in range(count):
            held.append(self.server.connect())
            held[-1].sendall(request_bytes("POST", "/v1/completions", body))
            self.assertEqual(Reader(held[-1]).head()[0], 200)
        return held

    def test_a_refused_connection_computes_nothing(self):
        body = {**COMPLETION, "max_tokens": 900, "ignore_eos": True, "n": 128, "temperature": 1, "seed": 1}
        request = request_bytes("POST", "/v1/completions", body)
        before = self.server.metrics()
        held = self.hold(8)
        for pipelined in (1, 3):
            with self.subTest(pipelined=pipelined), self.server.connect() as s:
                reader = Reader(s)
                s.sendall(request * pipelined)
                answer = reader.response()
                error_of(answer, 503)
                self.assertEqual((answer.header("connection"), answer.header("retry-after")), ("close", "1"))
                try:
                    s.sendall(request * pipelined)
                except ConnectionError:
                    pass
                self.assertTrue(reader.at_end())
        for s in held:
            s.close()
        ended = lambda metrics: metrics.value("vllm:request_params_n_count") - before.value("vllm:request_params_n_count")
        eventually(lambda: ended(self.server.metrics()) >= 8, "the end of those whose clients left")
        self.server.wait_idle()
        after = self.server.metrics()
        self.assertEqual(ended(after), 8, "a refused request reached the engine")
        self.assertLess(after.value("vllm:generation_tokens_total") - before.value("vllm:generation_tokens_total"), 8 * 900 + 1)
        self.assertEqual(after.value("fovea_http_connections_refused_total") - before.value("fovea_http_connections_refused_total"), 2)
        self.assertEqual(self.counts()["refused"], after.value("fovea_http_connections_refused_total"))
        self.server.wait_log("http: a connection is refused: the limit of 8 connections for this address is reached")

    def test_idle_floods_do_not_block_other_clients(self):
        before = self.counts()
        flood = []
        try:
            for i in range(200):
                flood.append(self.server.connect())
                if i % 10 == 0:
                    self.assertEqual(self.server.get("/health").status, 200)  # from the same address
                    with self.server.connect(source="127.0.0.2") as s:
                        s.sendall(request_bytes("GET", "/health"))
                        self.assertEqual(Reader(s).response().status, 200)
            counts = self.counts()
            self.assertGreater(counts["evicted"] - before["evicted"], 150)
            self.assertEqual(counts["refused"], before["refused"])
            self.assertLessEqual(counts["open"], 12)
        finally:
            for s in flood:
                s.close()

    def test_one_address_with_all_its_places_busy_leaves_others_theirs(self):
        held = self.hold(8)
        with self.server.connect(source="127.0.0.2") as s:
            s.sendall(request_bytes("GET", "/health"))
            self.assertEqual(Reader(s).response().status, 200)
        for s in held:
            s.close()


class Answers(RawTest):
    """The size limit of an answer."""
    flags = ("--max-answer-bytes", "1024")
    ASKED = [
        ("/v1/completions", {"prompt": [PROMPT] * 20, "max_tokens": 1, "prompt_logprobs": 20}),
        ("/v1/completions", {"prompt": [PROMPT] * 20, "max_tokens": 100, "ignore_eos": True, "logprobs": 20}),
        ("/v1/completions", {"prompt": PROMPT, "n": 20, "temperature": 1, "seed": 1, "max_tokens": 100, "ignore_eos": True, "return_token_ids": True}),
        ("/v1/completions", {"prompt": [PROMPT] * 20, "max_tokens": 1, "echo": True, "logprobs": 5}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}),
    ]

    def test_estimates_are_near_the_answers(self):
        with Server(PROGRAM) as other:
            for path, body in self.ASKED:
                with self.subTest(body=body):
                    size = len(other.post(path, body).body)
                    error = error_of(self.server.post(path, body), 400)
                    self.assertEqual(error["code"], "answer_too_large")
                    told = int(re.search(r"about (\d+) bytes .*; at most 1024 are allowed", error["message"]).group(1))
                    self.assertLess(size, 1.5 * told)
                    self.assertGreater(size, told / 4)

    def test_an_answer_without_a_requested_length(self):
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": True, "temperature": 0}
        error = error_of(self.server.post("/v1/chat/completions", body), 400, param="max_tokens")
        self.assertIn("no max_tokens", error["message"])
        self.server.wait_idle()
        stream = self.server.post("/v1/chat/completions", {**body, "stream": True})
        self.assertEqual(stream.events()[-1], "[DONE]")

    def test_hundreds_of_prompts_with_log_probabilities(self):
        """A body of 0.35 MB whose answer would have 413 MB."""
        with Server(PROGRAM) as other:
            body = {"prompt": ["word " * 150] * 512, "max_tokens": 1, "prompt_logprobs": 20}
            before = other.resident_bytes()
            error = error_of(other.post("/v1/completions", body), 400, param="prompt_logprobs")
            self.assertIn("at most 67108864 are allowed", error["message"])
            self.assertLess(other.resident_bytes() - before, 64 << 20)
            self.assertEqual(other.metrics().value("vllm:request_params_n_count"), 0)


class Paths(RawTest):
    """No answer contains a path of the server."""
    flags = ("--model", DEMO, "--served-model-name", "mine")

    @classmethod
    def probe(cls):
        return cls.server.get("/v1/models").status

    def test_paths(self):
        chat = {"messages": [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "1", "content": "b"}]}
        answers = [self.server.get(path) for path in ("/server_info", "/v1/models", "/metrics", "/version", "/server_state")]
        answers.append(self.server.post("/v1/chat/completions", chat))
        self.assertIn("chat_template.jinja, line", error_of(answers[-1], 400)["message"])
        self.assertEqual(answers[0].json()["model"]["given"], "mine")
        for answer in answers:
            self.assertNotIn(ROOT.encode(), answer.body)
            self.assertNotIn(b"models/demo", answer.body)


class Hosts(RawTest):
    """--allowed-host."""
    flags = ("--allowed-host", "llm.example.org", "--allowed-host", "box")

    def test_allowed_hosts(self):
        for host in ("llm.example.org", "LLM.example.org:8000", "box", "localhost"):
            answer, _ = self.send(f"GET /v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            self.assertEqual(answer.status, 200, host)
        self.refused(b"GET /v1/models HTTP/1.1\r\nHost: example.org\r\n\r\n", 403)
        self.assertIn("hosts: addresses, localhost, llm.example.org, box;", self.server.log)


class Keys(RawTest):
    """With API keys only /health, /ping and the page's files are open; the page asks for the key."""
    KEY = "sk-secret-1"
    flags = ("--api-key", KEY, "--api-key", "sk-other")

    @classmethod
    def probe(cls):
        answer = cls.server.post("/v1/completions", {**PROBE, "temperature": 0}, headers=[("Authorization", f"Bearer {cls.KEY}")])
        assert answer.status == 200, answer
        return [choice["token_ids"] for choice in answer.json()["choices"]]

    def test_any_host(self):
        head = f"GET /v1/models HTTP/1.1\r\nHost: llm.example.org\r\nAuthorization: Bearer {self.KEY}\r\n\r\n".encode()
        self.assertEqual(self.send(head)[0].status, 200)
        self.assertIn("hosts: any Host header is served", self.server.log)

    def test_without_or_with_a_wrong_key(self):
        wrong = ([], [("Authorization", "Bearer wrong")], [("Authorization", "Bearer ")], [("Authorization", f"Basic {self.KEY}")], [("Authorization", self.KEY)],
                 [("Authorization", f"Bearer {self.KEY}x")], [("Authorization", f"Bearer {self.KEY[:-1]}")], [("Authorization", "Bearer " + "x" * 8000)],
                 [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {self.KEY}")])
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/completions"), ("POST", "/v1/chat/completions"), ("POST", "/v1/embeddings"), ("POST", "/tokenize"),
                             ("POST", "/detokenize"), ("GET", "/metrics"), ("GET", "/version"), ("GET", "/server_info"), ("GET", "/none"), ("GET", "/v1/completions"),
                             ("GET", "/../health"), ("GET", "/health/"), ("GET", "//health"), ("GET", "/health%2f..%2fmetrics")):
            for headers in wrong:
                with self.subTest(method=method, path=path, headers=headers):
                    answer = self.server.request(method, path, JSON_BODY if method == "POST" else None, headers)
                    error = error_of(answer, (400, 401))
                    if answer.status == 401:
                        self.assertEqual(error["type"], "authentication_error")
                        self.assertEqual(error["code"], "invalid_api_key")
                        self.assertTrue(answer.header("www-authenticate").startswith("Bearer"))
                        self.assertNotIn("sk-", error["message"])
                    else:  # a duplicate header or an invalid path
                        self.assertTrue(len(headers) == 2 or "%2f" in path or ".." in path, answer)

    def test_what_is_open(self):
        for path in ("/health", "/ping", "/"):
            self.assertEqual(self.server.get(path).status, 200)

    def test_with_a_key(self):
        for key in (self.KEY, "sk-other"):
            for scheme in ("Bearer", "bearer"):
                self.assertEqual(self.server.get("/v1/models", headers=[("Authorization", f"{scheme} {key}")]).status, 200)
        error_of(self.server.get("/none", headers=[("Authorization", f"Bearer {self.KEY}")]), 404)

    def test_keys_are_not_printed(self):
        self.assertNotIn("sk-", self.server.log)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
