"""`fovea serve` for the tests of this folder: starts it on a free port, waits until it is ready, and stops it.

What a test needs of HTTP is here on sockets of its own, so that a request can be malformed and an answer be read
to the byte; nothing but the standard library.
"""
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LONG = 120  # seconds until a wait fails; generous, as sanitizer builds on a busy machine are slow
SKIPPED = 77  # SKIP_RETURN_CODE in CMakeLists.txt


class Server:
    """A running `fovea serve`; `log` is its output so far."""

    def __init__(self, program, *flags, port=0, uds=None, model=None, env=None):
        where = ["--uds", uds] if uds else ["--port", str(port)]
        which = ["--model", model] if model else []
        self.started = time.monotonic()
        self.process = subprocess.Popen([program, "serve", *which, *where, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        self.log, self.uds, self.port, self.ready_seconds = "", uds, None, None
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._wait_ready()
        except BaseException:
            self.kill()
            raise

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.log += line.decode(errors="replace")
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _wait_ready(self, timeout=LONG):
        pattern = re.compile(r"^.*\bready\b.*?(?:http://[^\s:]+:(\d+)|unix:\S+)", re.I | re.M)
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := pattern.search(self.log)):
                if self.process.poll() is not None:
                    self._changed.release()
                    self._reader.join(5)
                    self._changed.acquire()
                    raise RuntimeError(f"fovea serve exited with {self.process.returncode}:\n{self.log}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"fovea serve is not ready after {timeout} s:\n{self.log}")
                self._changed.wait(0.05)
        self.ready_seconds = time.monotonic() - self.started
        self.port = int(found.group(1)) if found.group(1) else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self._reader.join(5)
        self.process.stdout.close()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait_log(self, text):
        """Waits until the server has printed it."""
        deadline = time.monotonic() + LONG
        with self._changed:
            while text not in self.log:
                assert time.monotonic() < deadline and self.process.poll() is None, f"no {text!r} in:\n{self.log}"
                self._changed.wait(0.05)

    def wait_exit(self, timeout=LONG):
        """The exit status; raises subprocess.TimeoutExpired."""
        code = self.process.wait(timeout)
        self._reader.join(5)
        return code

    def connect(self, timeout=LONG, receive_buffer=None, source=None):
        s = socket.socket(socket.AF_UNIX if self.uds else socket.AF_INET)
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(timeout)
        if source:
            s.bind((source, 0))
        s.connect(self.uds or ("127.0.0.1", self.port))
        return s

    def request(self, method, path, body=None, headers=(), timeout=LONG):
        """One whole request on a new connection; `body` is bytes, or a value that is sent as JSON."""
        with self.connect(timeout) as s:
            s.sendall(request_bytes(method, path, body, headers))
            return Reader(s).response(head_only=method == "HEAD")

    def get(self, path, **rest):
        return self.request("GET", path, **rest)

    def post(self, path, body, **rest):
        return self.request("POST", path, body, **rest)

    def complete(self, prompt, **fields):
        """The choices of a completion at temperature 0."""
        answer = self.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields}, timeout=fields.pop("timeout", LONG))
        assert answer.status == 200, answer
        return answer.json()["choices"]

    def metrics(self):
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        return Metrics(answer.body.decode())

    def resident_bytes(self):
        if os.environ.get("SERVE_TEST_SANITIZED"):  # a sanitizer keeps freed memory for a while, so the size means nothing
            return 0
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) << 10

    def most_resident_bytes(self, work):
        """The peak resident memory while work() ran."""
        if os.environ.get("SERVE_TEST_SANITIZED"):
            work()
            return 0
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")  # resets the peak
        work()
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)) << 10

    def wait_idle(self, timeout=LONG):
        """Seconds until nothing runs or waits and the KV cache is empty except for pages kept for reuse."""
        start = time.monotonic()
        while True:
            m = self.metrics()
            state = {name: m.value("vllm:" + name) for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")}
            if not any(state.values()):
                return time.monotonic() - start
            assert time.monotonic() - start < timeout, f"not idle after {timeout} s: {state}"
            time.sleep(0.05)


class Metrics:
    """Prometheus' text format: samples by name and labels."""

    def __init__(self, text):
        self.text, self.samples = text, []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                found = re.fullmatch(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
                assert found, f"not a sample: {line!r}"
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found.group(2) or ""))
                self.samples.append((found.group(1), labels, float(found.group(3))))

    def value(self, name, **labels):
        """The sum of the samples with that name and at least these labels."""
        found = [value for sample, have, value in self.samples if sample == name and labels.items() <= have.items()]
        assert found, f"/metrics has no {name} {labels}"
        return sum(found)


class Response:
    def __init__(self, status, headers, body, chunked, chunks=()):
        self.status, self.headers, self.body, self.chunked, self.chunks = status, headers, body, chunked, chunks

    def header(self, name):
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def json(self):
        def no_constant(name):
            raise AssertionError(f"{name} is no JSON")
        return json.loads(self.body.decode("utf-8"), parse_constant=no_constant)

    def events(self):
        """The parsed data lines of a stream; "[DONE]" stays a string."""
        lines = self.body.decode("utf-8").split("\n\n")
        assert lines[-1] == "", f"the last event is not ended: {lines[-1]!r}"
        data = [line.removeprefix("data: ") for line in lines[:-1] if not line.startswith(":")]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:500]!r}"


class Closed(Exception):
    """The server closed the connection before a whole answer; `got` is what was received."""

    def __init__(self, got):
        super().__init__(f"closed after {got[-300:]!r}")
        self.got = got


class Reader:
    """Answers from a socket, one after the other."""

    def __init__(self, s):
        self.socket, self.buffer = s, bytearray()

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed(bytes(self.buffer))
        self.buffer += data

    def _line(self):
        while b"\r\n" not in self.buffer:
            self._more()
        return self._take(self.buffer.index(b"\r\n") + 2)[:-2]

    def _exactly(self, size):
        while len(self.buffer) < size:
            self._more()
        return self._take(size)

    def _take(self, size):
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    def head(self):
        status = self._line()
        assert re.fullmatch(rb"HTTP/1\.[01] \d{3} .*", status), f"not a status line: {status!r}"
        headers = []
        while line := self._line():
            key, _, value = line.decode("latin-1").partition(":")
            headers.append((key, value.strip()))
        return int(status.split()[1]), headers

    def chunk(self):
        """The next chunk of a chunked body; b"" at its end."""
        size = int(self._line().split(b";")[0], 16)
        data = self._exactly(size)
        assert self._line() == b"", "a chunk is not ended by CRLF"
        return data

    def response(self, head_only=False):
        status, headers = self.head()
        if status == 100:
            return self.response(head_only)
        get = {key.lower(): value for key, value in headers}
        if head_only or status in (204, 304):
            return Response(status, headers, b"", False)
        if get.get("transfer-encoding", "").lower() == "chunked":
            assert "content-length" not in get, headers
            chunks = []
            while chunk := self.chunk():
                chunks.append(chunk)
            return Response(status, headers, b"".join(chunks), True, chunks)
        assert "content-length" in get, f"neither a length nor chunks: {headers}"
        return Response(status, headers, self._exactly(int(get["content-length"])), False)

    def at_end(self):
        """Whether the server closed the connection without sending anything more."""
        try:
            self._more()
            return False
        except Closed as closed:
            return closed.got == b""


def request_bytes(method, path, body=None, headers=()):
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = list(headers)
    names = {key.lower() for key, _ in headers}
    if "host" not in names:
        headers.insert(0, ("Host", "localhost"))
    if body is not None and "content-type" not in names:
        headers.append(("Content-Type", "application/json"))
    if body is not None and "content-length" not in names and "transfer-encoding" not in names:
        headers.append(("Content-Length", str(len(body))))
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in headers) + "\r\n"
    return head.encode("utf-8", "surrogateescape") + (body or b"")


def error_of(response, status=None, param=None):
    """The error of a refusal; checks its exact format."""
    if status is not None:
        assert response.status in (status if isinstance(status, tuple) else (status,)), f"wanted {status}, got {response!r}"
    assert response.status >= 400, response
    assert (response.header("content-type") or "").startswith("application/json"), response
    body = response.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str) and error["message"], error
    assert isinstance(error["type"], str) and error["type"].endswith("_error"), error
    assert all(error[key] is None or isinstance(error[key], str) for key in ("param", "code")), error
    assert not re.search(r"0x[0-9a-f]{6,}|\.cc\b|\.h:\d|nlohmann|boost|std::|json\.exception", error["message"]), error
    if param is not None:
        assert error["param"] == param, f"param should be {param}: {error}"
    return error


def eventually(condition, what):
    """Waits until condition() is true."""
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def skip(why):
    """Ends the test as skipped, with a line that states the reason."""
    print(f"SKIPPED: {why}", flush=True)
    raise SystemExit(SKIPPED)


def temporary_folder():
    """Short enough for a UNIX socket's path, which has 108 bytes at most."""
    return tempfile.TemporaryDirectory(prefix="fovea", dir="/tmp")
