#!/usr/bin/env python3
"""Slow readers, requests for 128 answers, floods of idle connections and of refused ones at once, and one client that behaves.

The one that behaves asks short questions on connections of their own; each answer must be that of the quiet server
before, to the letter. What refused connections send must never be computed. Prints its latency, quiet and under all of
it, and what the others got; exit status 1 if anything is wrong. Latencies are told, not judged.

Usage: abuse.py PROGRAM [--seconds N]
"""
import argparse
import asyncio
import json
import socket
import sys
import time

from server import LONG, Server, eventually, request_bytes

PLACES, PLACES_OF_ADDRESS = 96, 24
FLAGS = ["--max-connections", str(PLACES), "--max-connections-per-address", str(PLACES_OF_ADDRESS), "--write-timeout", "3", "--threads", "1"]
GOOD, IDLE, REFUSED, SLOW, MANY = (f"127.0.0.{i}" for i in (1, 2, 3, 4, 5))
QUESTION = {"messages": [{"role": "user", "content": "What is 275 + 148?"}], "temperature": 0, "max_tokens": 12}
HEAVY = {"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": True, "n": 128, "temperature": 1, "seed": 1}
NEVER_READ = {**HEAVY, "n": 16, "logprobs": 20, "stream": True}


class Broken(Exception):
    """A failed expectation."""


async def connect(server, source, receive_buffer=None):
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.bind((source, 0))
    s.setblocking(False)
    await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", server.port))
    return await asyncio.open_connection(sock=s, limit=1 << 16)


async def whole(reader):
    """(status, body) of an answer with Content-Length."""
    status = int((await reader.readline()).split()[1])
    length = 0
    while line := (await reader.readline()).strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return status, await reader.readexactly(length)


class Abuse:
    def __init__(self, server, seconds):
        self.server, self.seconds, self.end = server, seconds, 0
        self.counts = {name: 0 for name in ("idle opened", "refused", "refused closed early", "slow readers dropped", "slow requests", "128 answers asked", "answered")}
        self.problems, self.latencies = [], []

    def going(self):
        return time.monotonic() < self.end and not self.problems

    async def ask(self):
        start = time.monotonic()
        reader, writer = await connect(self.server, GOOD)
        try:
            writer.write(request_bytes("POST", "/v1/chat/completions", QUESTION, [("Connection", "close")]))
            status, body = await asyncio.wait_for(whole(reader), LONG)
            return time.monotonic() - start, status, json.loads(body)["choices"][0]["message"]["content"] if status == 200 else body
        finally:
            writer.transport.abort()

    async def behave(self, expected):
        while self.going():
            seconds, status, answer = await self.ask()
            if (status, answer) != (200, expected):
                raise Broken(f"the client that behaves got {status} {answer!r}")
            self.latencies.append(seconds)
            self.counts["answered"] += 1

    async def idle_flood(self):
        held = []
        try:
            while self.going():
                try:
                    held.append((await connect(self.server, IDLE))[1])
                except OSError:
                    pass
                self.counts["idle opened"] += 1
                if len(held) > 300:
                    held.pop(0).transport.abort()
                await asyncio.sleep(0.004)
        finally:
            for writer in held:
                writer.transport.abort()

    async def fill(self):
        """Occupies a connection slot: a body that never ends."""
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
        while self.going():
            try:
                _, writer = await connect(self.server, REFUSED)
                writer.write(head)
                while self.going() and not writer.transport.is_closing():
                    writer.write(b" ")
                    await asyncio.sleep(0.5)
                writer.transport.abort()
            except OSError:
                await asyncio.sleep(0.05)

    async def refused_flood(self):
        """Pipelined requests that would keep the engine busy for long, on connections beyond the limit."""
        while self.going():
            try:
                reader, writer = await connect(self.server, REFUSED)
            except OSError:
                continue
            try:
                writer.write(request_bytes("POST", "/v1/completions", HEAVY) * 3)
                status, _ = await asyncio.wait_for(whole(reader), LONG)
                if status != 503:
                    raise Broken(f"a connection beyond the limit got {status}")
                writer.write(request_bytes("POST", "/v1/completions", HEAVY))
                if rest := await reader.read():
                    raise Broken(f"after its refusal a connection got {rest[:100]!r}")
                self.counts["refused"] += 1
            except (OSError, IndexError, asyncio.IncompleteReadError):
                self.counts["refused closed early"] += 1
            finally:
                writer.transport.abort()
            await asyncio.sleep(0.01)

    async def slow_reader(self):
        while self.going():
            _, writer = await connect(self.server, SLOW, 4096)
            writer.write(request_bytes("POST", "/v1/completions", NEVER_READ))
            self.counts["slow requests"] += 1
            writer.transport.pause_reading()
            while self.going() and await asyncio.to_thread(self.server_holds, writer.get_extra_info("sockname")[1]):
                await asyncio.sleep(0.2)
            self.counts["slow readers dropped"] += self.going()
            writer.transport.abort()

    async def ask_for_many(self):
        while self.going():
            reader, writer = await connect(self.server, MANY)
            self.counts["128 answers asked"] += 1
            writer.write(request_bytes("POST", "/v1/completions", HEAVY))
            answer = asyncio.create_task(whole(reader))
            while self.going() and not answer.done():
                await asyncio.sleep(0.1)
            if answer.done() and answer.result()[0] != 200:
                raise Broken(f"a request for 128 answers got {answer.result()}")
            answer.cancel()
            writer.transport.abort()

    def server_holds(self, port):
        """Whether the server's end of the connection from `port` is established, according to the kernel."""
        with open("/proc/net/tcp", encoding="ascii") as table:
            return any(line.split()[2] == f"0400007F:{port:04X}" and line.split()[3] == "01" for line in table)

    async def run(self):
        quiet = [await self.ask() for _ in range(30)]
        if {each[1] for each in quiet} != {200} or len({each[2] for each in quiet}) != 1:
            raise Broken(f"the quiet server: {quiet[0]}")
        before = self.server.metrics()
        self.end = time.monotonic() + self.seconds

        async def watched(task):
            try:
                await task
            except Exception as error:  # any error ends the other tasks too
                self.problems.append(f"{type(error).__name__} {error}")

        fillers = [asyncio.create_task(watched(self.fill())) for _ in range(PLACES_OF_ADDRESS)]
        await asyncio.sleep(0.5)  # all slots are occupied now; further connections are beyond the limit
        tasks = [self.behave(quiet[0][2]), self.idle_flood(), self.ask_for_many(), self.slow_reader(), self.slow_reader(), self.slow_reader(), *(self.refused_flood() for _ in range(8))]
        await asyncio.gather(*fillers, *map(watched, tasks))
        return [each[0] for each in quiet], before


def milliseconds(seconds):
    seconds = sorted(seconds)
    at = lambda share: seconds[min(len(seconds) - 1, int(share * len(seconds)))] * 1000
    return f"p50 {at(0.5):.1f} ms, p99 {at(0.99):.1f} ms, longest {seconds[-1] * 1000:.1f} ms"


def check(server, abuse, before):
    """Compares the server's counters with the clients'."""
    eventually(lambda: server.metrics().value("fovea_http_connections") <= 2, "the end of all connections but ours")
    server.wait_idle()
    after = server.metrics()
    grown = lambda name, **labels: after.value(name, **labels) - (before.value(name, **labels) if f"{name}{{" in before.text else 0)
    counts, problems = abuse.counts, abuse.problems
    computed = grown("vllm:request_params_n_count")
    most = counts["answered"] + counts["slow requests"] + counts["128 answers asked"]
    if not counts["answered"] <= computed <= most + 1:
        problems.append(f"{computed:.0f} requests were computed; admitted connections sent {most}")
    told = counts["refused"]
    if grown("fovea_http_connections_refused_total") < told:
        problems.append(f"/metrics has fewer refused connections than the {told} that were told so")
    if server.get("/server_info").json()["connections"]["refused"] != after.value("fovea_http_connections_refused_total"):
        problems.append("/server_info and /metrics differ in refused connections")
    if 'http_responses_total{model_name="demo",status="500"}' in after.text:
        problems.append("a client got a 500")
    for name in ("answered", "refused"):
        if not counts[name]:
            problems.append(f"no connection was {name}: the test did not exercise it")
    if not grown("fovea_http_connections_evicted_total"):
        problems.append("no idle connection yielded: nothing was tried")
    return after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with Server(options.program, *FLAGS) as server:
        start = server.resident_bytes()
        abuse = Abuse(server, options.seconds)
        quiet, before = asyncio.run(abuse.run())
        after = check(server, abuse, before)
        print(f"abuse: {options.seconds:g} s, {PLACES} places, {PLACES_OF_ADDRESS} of an address")
        print(f"  the client that behaves, quiet: {milliseconds(quiet)}")
        if abuse.latencies:
            print(f"  under all of it, {len(abuse.latencies)} answers, each the same: {milliseconds(abuse.latencies)}")
        print("  the others: " + ", ".join(f"{name} {count}" for name, count in abuse.counts.items()))
        print(f"  the server: refused {after.value('fovea_http_connections_refused_total'):.0f}, evicted {after.value('fovea_http_connections_evicted_total'):.0f}, "
              f"preempted {after.value('vllm:num_preemptions_total'):.0f}, resident MiB {start >> 20} at the start, {server.resident_bytes() >> 20} at the end")
        for problem in abuse.problems[:10]:
            print(f"  WRONG: {problem[:1000]}")
        good = not abuse.problems and server.process.poll() is None
        if good:
            server.signal()
            good = server.wait_exit(40) == 0
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
