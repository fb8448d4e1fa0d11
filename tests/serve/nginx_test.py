#!/usr/bin/env python3
"""examples/nginx/fovea.conf in front of the server: TLS with a certificate made for the test, streams that arrive
while they are made, errors that stay the API's, clients whose leaving the server sees.

Usage: nginx_test.py PROGRAM CONFIG [unittest arguments]
"""
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import unittest

from server import Server, free_port, skip, temporary_folder

PROGRAM, CONFIG = sys.argv[1:3]
KEY = "sk-behind-a-proxy"


def adapt(text, port, upstream, folder):
    """The example with its ADAPT lines replaced; each must occur once."""
    for old, new in (("server 127.0.0.1:8000;", f"server {upstream};"), ("listen 443 ssl http2;", f"listen 127.0.0.1:{port} ssl http2;"),
                     ("server_name llm.example.org;", "server_name localhost;"),
                     ("ssl_certificate /etc/ssl/fovea/fullchain.pem;", f"ssl_certificate {folder}/cert.pem;"),
                     ("ssl_certificate_key /etc/ssl/private/fovea/key.pem;", f"ssl_certificate_key {folder}/key.pem;")):
        assert text.count(old) == 1, f"{CONFIG} has {text.count(old)} times {old}"
        text = text.replace(old, new)
    return text


class Nginx:
    def __init__(self, folder, upstream):
        self.folder, self.port = folder, free_port()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"], check=True, capture_output=True)
        with open(CONFIG) as file:
            site = adapt(file.read(), self.port, upstream, folder)
        paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(f"{folder}/nginx.conf", "w") as file:
            file.write(f"daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{ worker_connections 512; }}\n"
                       f"http {{\n    access_log off;\n{paths}{site}}}\n")
        arguments = ["nginx", "-p", folder, "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
        check = subprocess.run([*arguments, "-t"], capture_output=True, text=True)
        assert check.returncode == 0, check.stderr
        assert "[warn]" not in re.sub(r'.*"user" directive.*', "", check.stderr), check.stderr
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("nginx does not listen")

    def stop(self):
        self.process.terminate()
        self.process.wait(10)


class NginxTest(unittest.TestCase):
    uds = False

    @classmethod
    def setUpClass(cls):
        folder = temporary_folder()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)  # nginx's worker may be another user
        uds = os.path.join(folder.name, "f.sock") if cls.uds else None
        cls.server = Server(PROGRAM, "--api-key", KEY, uds=uds)
        cls.addClassCleanup(cls.server.kill)
        if uds:
            os.chmod(uds, 0o666)
        cls.nginx = Nginx(folder.name, f"unix:{uds}" if uds else f"127.0.0.1:{cls.server.port}")
        cls.addClassCleanup(cls.nginx.stop)
        cls.tls = ssl.create_default_context(cafile=f"{folder.name}/cert.pem")

    def request(self, method, path, body=None, key=KEY, headers=None):
        connection = http.client.HTTPSConnection("localhost", self.nginx.port, context=self.tls, timeout=60)
        self.addCleanup(connection.close)
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        answer.connection = connection
        return answer

    def test_answers(self):
        answer = self.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 275 + 148?"}], "temperature": 0})
        self.assertEqual(answer.status, 200)
        self.assertIn("423", json.load(answer)["choices"][0]["message"]["content"])
        self.assertRegex(answer.headers["x-request-id"], r"^[0-9a-f]{32}$")

    def test_errors_stay_what_they_are(self):
        for body, key, status in (({"prompt": "x"}, None, 401), ({"prompt": "x"}, "wrong", 401), ({"prompt": 5}, KEY, 400), ({"prompt": "x", "model": "none"}, KEY, 404)):
            answer = self.request("POST", "/v1/completions", body, key)
            self.assertEqual(answer.status, status)
            self.assertEqual(set(json.load(answer)["error"]), {"message", "type", "param", "code"})

    def stream_in_pieces(self):
        """(bytes, pieces) of a stream as received."""
        body = {"prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}
        answer = self.request("POST", "/v1/completions", body)
        pieces, text = 0, b""
        while piece := answer.read1(65536):
            pieces += 1
            text += piece
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
        self.assertEqual(answer.headers["content-type"].split(";")[0], "text/event-stream")
        return len(text), pieces

    def test_a_stream_arrives_while_it_is_made(self):
        # A buffering proxy forwards pages of 4 or 8 KiB, each with a dozen events or more. On a busy machine several
        # events may arrive together by chance, but not repeatedly.
        for _ in range(5):
            size, pieces = self.stream_in_pieces()
            if pieces > 3 * size / 4096:
                return
        self.fail(f"{size} bytes came in {pieces} pieces")

    def test_a_client_that_leaves_is_seen(self):
        body = {"prompt": "Once upon a time", "max_tokens": 900, "temperature": 1, "n": 16, "ignore_eos": True, "stream": True}
        answer = self.request("POST", "/v1/completions", body)
        answer.read1(100)
        answer.connection.sock.shutdown(socket.SHUT_RDWR)
        answer.close()
        answer.connection.close()
        deadline = time.monotonic() + 10
        while True:
            metrics = self.request("GET", "/metrics").read().decode()
            values = re.findall(r"^vllm:(?:num_requests_\w+|kv_cache_usage_perc)(?:\{.*\})? (\S+)", metrics, re.M)
            if len(values) >= 3 and not any(map(float, values)):
                break
            self.assertLess(time.monotonic(), deadline, values)
            time.sleep(0.05)

    def test_large_bodies(self):
        answer = self.request("POST", "/v1/completions", {"prompt": "a" * (5 << 20)})
        self.assertEqual(answer.status, 400)  # from the server: too long for the model
        self.assertEqual(json.load(answer)["error"]["code"], "context_length_exceeded")
        try:
            self.assertEqual(self.request("POST", "/v1/completions", {"prompt": "a" * (33 << 20)}).status, 413)  # nginx's own
        except (ConnectionError, ssl.SSLError):
            pass  # nginx closes the connection while the body is being sent

    def test_curl_speaks_http_2(self):
        if not shutil.which("curl"):
            self.skipTest("curl is not installed")
        result = subprocess.run(["curl", "-sS", "--http2", "--cacert", f"{self.nginx.folder}/cert.pem", "--resolve", f"localhost:{self.nginx.port}:127.0.0.1", "-w",
                                 "%{http_version} %{http_code}", "-H", f"Authorization: Bearer {KEY}", f"https://localhost:{self.nginx.port}/v1/models"],
                                capture_output=True, text=True, timeout=30)
        self.assertTrue(result.stdout.endswith("2 200"), (result.stdout, result.stderr))


class NginxOverASocket(NginxTest):
    uds = True


if __name__ == "__main__":
    for tool in ("nginx", "openssl"):
        if not shutil.which(tool) and not os.path.exists(f"/usr/sbin/{tool}"):
            skip(f"{tool} is not installed")
    os.environ["PATH"] += ":/usr/sbin"
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
