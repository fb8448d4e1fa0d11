#!/usr/bin/env python3
"""`fovea pull` against a local server that speaks the hub's API.

Usage: pull_test.py PROGRAM ROOT
"""
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

PROGRAM, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """Models: name -> {path: bytes}. Files in `large` are redirected to another path, as those of LFS are."""
    protocol_version = "HTTP/1.1"
    models = {}
    large = ("model.safetensors",)
    private = ()
    cut = {}  # path -> bytes after which the connection is closed, once for each entry of the list
    broken = ()  # paths whose content is not what the list says
    no_ranges = False
    log = []

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(url.path)
        self.log.append((path, self.headers.get("Authorization"), self.headers.get("Range")))
        if path.startswith("/cdn/"):
            return self.send_file(*path[len("/cdn/"):].split("//"))
        parts = path.split("/")
        model = "/".join(parts[3:5] if path.startswith("/api/models/") else parts[1:3])
        if model in self.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, b'{"error":"Invalid username or password."}')
        if model not in self.models:
            return self.answer(401 if model.startswith("hidden/") else 404, b'{"error":"Repository not found"}')
        if path.startswith("/api/models/"):
            if "/".join(parts[6:]) not in ("main", "v1/x", COMMIT):
                return self.answer(404, b'{"error":"Invalid rev id"}')
            return self.answer(200, json.dumps({"id": model, "sha": COMMIT, "siblings": [self.entry(name, data) for name, data in self.models[model].items()]}).encode())
        at_commit = parts[3:5] == ["resolve", COMMIT]
        name = "/".join(parts[5:])
        if not at_commit or name not in self.models[model]:
            return self.answer(404)
        if name in self.large:
            return self.answer(302, b"", [("Location", f"/cdn/{model}//{name}"), ("X-Repo-Commit", COMMIT)])
        return self.send_file(model, name)

    def entry(self, name, data):
        entry = {"rfilename": name, "size": len(data), "blobId": git_digest(data)}
        if name in self.large:
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 133}
            entry["size"] = len(data)
        return entry

    def send_file(self, model, name):
        data = self.models[model][name]
        if name in self.broken:
            data = bytes(len(data))
        start = int(self.headers["Range"].split("=")[1].rstrip("-")) if self.headers.get("Range") and not self.no_ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if self.cut.get(name):
            rest = rest[: self.cut[name].pop(0)]
            self.close_connection = True
        try:
            self.wfile.write(rest)
        except (BrokenPipeError, ConnectionResetError):  # a client that ends on another file's error
            self.close_connection = True


def content(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


class Pull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        demo = os.path.join(ROOT, "models", "demo")
        files = {name: content(demo, name) for name in os.listdir(demo) if os.path.isfile(os.path.join(demo, name))}
        extra = {"README.md": b"# Demo", "pytorch_model.bin": b"pickle", "original/params.json": b"{}", "1_Pooling/a b.json": b"{}", "empty.txt": b""}
        Hub.models = {"org/demo": {**files, **extra}, "org/private": {"config.json": b"{}"}, "org/odd": {"weights.gguf": b"GGUF"}, "org/evil": {"../../evil.json": b"{}"}}
        Hub.private = ("org/private",)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def setUp(self):
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)
        Hub.cut, Hub.broken, Hub.no_ranges, Hub.log = {}, (), False, []

    def run_fovea(self, *arguments, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "FOVEA_", "http", "HTTP"))}
        env |= {"HF_HOME": self.home, "HF_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}/", **environment}
        return subprocess.run([PROGRAM, *arguments], env=env, capture_output=True, text=True, timeout=120)

    def pull(self, *arguments, **environment):
        result = self.run_fovea("pull", *arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def refused(self, text, *arguments, **environment):
        result = self.run_fovea("pull", *arguments, **environment)
        self.assertEqual(result.returncode, 2, result)
        self.assertIn(text, result.stderr)
        self.assertEqual(result.stderr.strip().splitlines()[-1].count("fovea: "), 1)
        return result

    def repository(self):
        return os.path.join(self.home, "hub", "models--org--demo")

    def downloads(self):
        return [path for path, _, _ in Hub.log if not path.startswith("/api/")]

    def test_a_model_comes_into_the_cache_and_is_found(self):
        folder = self.pull("org/demo")
        self.assertEqual(folder, os.path.join(self.repository(), "snapshots", COMMIT))
        names = sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, files in os.walk(folder) for name in files)
        self.assertEqual(names, sorted([*(n for n in Hub.models["org/demo"] if n.endswith((".json", ".jinja", ".safetensors", ".txt")) and not n.startswith("original/"))]))
        for name in names:
            path = os.path.join(folder, name)
            data = content(path)
            self.assertEqual(data, Hub.models["org/demo"][name])
            digest = hashlib.sha256(data).hexdigest() if name in Hub.large else git_digest(data)
            self.assertTrue(os.path.islink(path))
            self.assertEqual(os.path.realpath(path), os.path.realpath(os.path.join(self.repository(), "blobs", digest)))
            self.assertFalse(os.path.isabs(os.readlink(path)))
        self.assertEqual(content(self.repository(), "refs", "main"), COMMIT.encode())
        self.assertEqual([name for name in os.listdir(os.path.join(self.repository(), "blobs")) if "incomplete" in name], [])
        answer = self.run_fovea("generate", "--model", "org/demo", "--chat", "--temperature", "0", "What is 275 + 148?")
        self.assertIn("423", answer.stdout, answer.stderr)
        Hub.log = []
        self.assertEqual(self.pull("org/demo"), folder)
        self.assertEqual(self.downloads(), [], "what is there was downloaded again")
        self.assertEqual(self.pull("org/demo", "--revision", "v1/x"), folder)
        self.assertEqual(content(self.repository(), "refs", "v1", "x"), COMMIT.encode())
        everything = self.run_fovea("pull", "org/demo", "--all")
        self.assertEqual(everything.returncode, 0, everything.stderr)
        self.assertIn(f"{len(Hub.models['org/demo'])} of {len(Hub.models['org/demo'])}  ", everything.stderr)
        self.assertTrue(os.path.exists(os.path.join(folder, "pytorch_model.bin")))

    def test_a_lost_connection_is_continued(self):
        Hub.cut = {"model.safetensors": [70_000, 50_000], "tokenizer.json": [10]}
        folder = self.pull("org/demo")
        self.assertEqual(content(folder, "model.safetensors"), Hub.models["org/demo"]["model.safetensors"])
        ranges = [range_ for path, _, range_ in Hub.log if path.startswith("/cdn/")]
        self.assertEqual(ranges, [None, "bytes=70000-", "bytes=120000-"])

    def test_an_interrupted_download_is_continued_by_the_next(self):
        data = Hub.models["org/demo"]["model.safetensors"]
        blobs = os.path.join(self.repository(), "blobs")
        os.makedirs(blobs)
        with open(os.path.join(blobs, hashlib.sha256(data).hexdigest() + ".incomplete"), "wb") as file:
            file.write(data[:1000])
        self.pull("org/demo")
        self.assertEqual([range_ for path, _, range_ in Hub.log if path.startswith("/cdn/")], ["bytes=1000-"])

    def test_a_server_without_ranges_sends_a_file_again(self):
        Hub.no_ranges, Hub.cut = True, {"model.safetensors": [70_000]}
        folder = self.pull("org/demo")
        self.assertEqual(content(folder, "model.safetensors"), Hub.models["org/demo"]["model.safetensors"])

    def test_a_terminal_shows_a_bar(self):
        master, slave = os.openpty()
        env = {**os.environ, "HF_HOME": self.home, "HF_ENDPOINT": f"http://127.0.0.1:{self.server.server_port}/"}
        with subprocess.Popen([PROGRAM, "pull", "org/demo"], env=env, stdout=subprocess.DEVNULL, stderr=slave) as process:
            os.close(slave)
            shown = b""
            while True:
                try:
                    part = os.read(master, 65536)
                except OSError:  # the other side is closed
                    part = b""
                if not part:
                    break
                shown += part
        os.close(master)
        self.assertEqual(process.returncode, 0, shown)
        bars = re.findall(rb"\r\[(#*)(\.*)\] (\d+)%  [\d.]+ [KM]?i?B of [\d.]+ MiB", shown)
        self.assertTrue(bars, shown)
        for done, left, percent in bars:
            self.assertEqual(len(done) + len(left), 30)
            self.assertLessEqual(abs(len(done) / 30 * 100 - int(percent)), 4)
        self.assertEqual([int(percent) for _, _, percent in bars], sorted(int(percent) for _, _, percent in bars))
        self.assertTrue(shown.split(b"\r")[-1].startswith(b"\x1b[K") or shown.endswith(b"\n"), "the bar is left behind")
        self.assertNotIn(b"\r[", self.run_fovea("pull", "org/demo").stderr.encode())

    def test_wrong_content_is_refused(self):
        for name in ("config.json", "model.safetensors"):
            Hub.broken = (name,)
            self.refused(f"{name}: the download's digest is", "org/demo")
            self.assertFalse(os.path.exists(os.path.join(self.repository(), "snapshots", COMMIT, name)))
        self.assertFalse(os.path.exists(os.path.join(self.repository(), "refs")))
        Hub.broken = ()
        self.pull("org/demo")

    def test_tokens(self):
        self.refused("set HF_TOKEN", "org/private")
        wrong = self.refused("the token of HF_TOKEN may not read it", "org/private", HF_TOKEN="hf_wrong")
        self.assertNotIn("hf_wrong", wrong.stderr)
        self.pull("org/private", HF_TOKEN=TOKEN)
        self.refused("HF_TOKEN has a character", "org/private", HF_TOKEN="a\nheader: x")

    def test_errors(self):
        self.refused("no such model", "org/none")
        self.refused("has no revision v9", "org/demo", "--revision", "v9")
        self.refused("has no config.json", "org/odd")
        self.refused("which is no path below a folder", "org/evil", "--all")
        self.refused("give ORG/NAME", "../x")
        self.refused("must be a branch", "org/demo", "--revision", "../main")
        self.refused("HF_ENDPOINT is ftp://x", "org/demo", HF_ENDPOINT="ftp://x")
        self.refused("curl", "org/demo", HF_ENDPOINT="http://127.0.0.1:1")
        self.refused("curl is not installed", "org/demo", PATH="/nonexistent")
        self.assertEqual(os.listdir(self.home), [])


if __name__ == "__main__":
    if shutil.which("curl") is None:
        print("SKIPPED: curl is not installed")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
