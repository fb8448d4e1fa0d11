#!/usr/bin/env python3
"""Many concurrent streams of mixed lengths, some cancelled by their clients: nothing is lost, duplicated or leaked.

Each request is one of a few dozen that were asked one at a time before; its answer must be that one to the letter,
every event once and in order. At the end the KV cache must be free, the counts of /metrics those of the clients, and
memory that of the first third. Prints its figures; exit status 1 if anything is wrong.

Usage: soak.py PROGRAM [--seconds N] [--streams N] [--aborted SHARE]
"""
import argparse
import asyncio
import json
import random
import resource
import sys
import time

from server import Server, request_bytes

PROMPTS = ["Once upon a time", "2, 4, 6,", "One two three", "A fox met", "Tell me a story about a bird and its friend who lived at the sea. "]
CHATS = ["What is 275 + 148?", "Reverse the word lantern.", "Spell 318.", "Hello!", "Tell me a story."]
LENGTHS = [1, 2, 5, 12, 30, 60, 120, 250]


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "ages": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2, "maxItems": 9}},
          "required": ["name", "ages"], "additionalProperties": False}
TOOLS = [{"name": "trip", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": False}}]


def questions():
    """(path, body) of all requests: completions, chats and messages, greedy and seeded, one answer and two, long prompts, forms, tools."""
    out = []
    for i, length in enumerate(LENGTHS):
        for k in range(3):
            prompt = PROMPTS[(i + k) % len(PROMPTS)] * (1 + 5 * (k == 2))
            out.append(("/v1/completions", {"prompt": prompt, "max_tokens": length, "ignore_eos": True, "temperature": 0}))
            seeded = {"messages": [{"role": "user", "content": CHATS[(i + k) % len(CHATS)]}], "max_tokens": length, "temperature": 0.8, "seed": 100 * i + k, "n": 1 + k % 2}
            out.append(("/v1/chat/completions", seeded))
        chat = {"messages": seeded["messages"], "max_tokens": length, "temperature": 0.8, "seed": i}
        functions = [{"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}} for tool in TOOLS]
        out.append(("/v1/chat/completions", {**chat, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}))
        out.append(("/v1/chat/completions", {**chat, "tools": functions, "tool_choice": "required"}))
        out.append(("/v1/messages", {**chat, "system": "Be kind."}))
        out.append(("/v1/messages", {**chat, "tools": TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}))
    options = {"stream_options": {"include_usage": True}}
    return [(path, {**body, "stream": True, **(options if path != "/v1/messages" else {})}) for path, body in out]


class Broken(Exception):
    """A failed expectation."""


async def read_stream(reader):
    """The events of a chunked answer as they arrive; ends at [DONE] and the last chunk."""
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    if status != 200:
        raise Broken(f"status {status}")
    rest = b""
    while size := int(await reader.readline(), 16):
        rest += (await reader.readexactly(size + 2))[:-2]
        *events, rest = rest.split(b"\n\n")
        for event in events:
            if b"data: " in event:
                yield event[event.index(b"data: ") + 6 :]
    if rest:
        raise Broken(f"half an event at the end: {rest!r}")
    await reader.readline()


def chat_of(event):
    """An event of a message as one of a chat; b"[DONE]" at the end, None if it says nothing."""
    kind = event["type"]
    start = {"id": "", "choices": []}
    if kind == "message_stop":
        return b"[DONE]"
    if kind == "message_start":
        usage = event["message"]["usage"]
        return {**start, "prompt": usage["input_tokens"] + usage["cache_read_input_tokens"]}
    if kind == "content_block_start":
        return {**start, "choices": [{"index": 0, "delta": {"content": event["content_block"].get("name", "")}, "finish_reason": None}]}
    if kind == "content_block_delta":
        delta = event["delta"]
        return {**start, "choices": [{"index": 0, "delta": {"content": delta.get("text") or delta.get("partial_json") or ""}, "finish_reason": None}]}
    if kind == "message_delta":
        usage = event["usage"]
        counts = {"prompt_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"], "completion_tokens": usage["output_tokens"]}
        return {**start, "choices": [{"index": 0, "delta": {}, "finish_reason": event["delta"]["stop_reason"]}], "usage": counts}
    return None


def said(choice):
    """The text of a part of an answer, or the names and arguments of its calls."""
    if "text" in choice:
        return choice["text"]
    calls = [call["function"].get("name", "") + call["function"]["arguments"] for call in choice["delta"].get("tool_calls", [])]
    return (choice["delta"].get("content") or "") + "".join(calls)


async def ask(server, question, leave_after=None):
    """(answer, seconds to the first event, events); the answer is (texts by choice, finish reasons, usage), None if cancelled."""
    path, body = question
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        start = time.monotonic()
        writer.write(request_bytes("POST", path, body, [("Connection", "close")]))
        await writer.drain()
        texts, finishes, usage, done, first, count, ident = {}, {}, None, False, None, 0, set()
        async for data in read_stream(reader):
            count += 1
            first = first or time.monotonic() - start
            if leave_after is not None and count > leave_after:
                return None, first, count
            if done:
                raise Broken(f"after [DONE]: {data!r}")
            event = data if data == b"[DONE]" else json.loads(data)
            if path == "/v1/messages" and "error" not in event:
                event = chat_of(event)
            if event is None:
                continue
            if event == b"[DONE]":
                done = True
                continue
            if "error" in event:
                raise Broken(f"error event: {event}")
            ident.add(event["id"])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                i = choice["index"]
                if i in finishes:
                    raise Broken(f"choice {i} goes on after its end: {event}")
                texts[i] = texts.get(i, "") + said(choice)
                if choice["finish_reason"]:
                    finishes[i] = choice["finish_reason"]
        if not done or len(finishes) != body.get("n", 1) or usage is None or len(ident) != 1:
            raise Broken(f"not whole: done {done}, finishes {finishes}, usage {usage}, ids {ident}")
        tokens = usage["prompt_tokens"], usage["completion_tokens"]
        return (texts, finishes, tokens), first, count
    finally:
        writer.transport.abort()


async def soak(server, options):
    asked = questions()
    quiet = [(await ask(server, question))[0] for question in asked]
    before = server.metrics()
    draw = random.Random(1)
    figures = {"answered": 0, "left": 0, "events": 0, "tokens": 0, "completion": 0, "prompt": 0}
    firsts, problems, memory = [], [], []
    start = time.monotonic()
    end = start + options.seconds

    async def client():
        while time.monotonic() < end and not problems:
            which = draw.randrange(len(asked))
            leave = draw.randrange(3) if draw.random() < options.aborted else None
            try:
                answer, first, events = await asyncio.wait_for(ask(server, asked[which], leave), 120)
            except (Broken, OSError, ValueError, IndexError, asyncio.IncompleteReadError, asyncio.TimeoutError) as error:
                problems.append(f"question {which}: {type(error).__name__} {error}")
                return
            figures["events"] += events
            if first is not None:
                firsts.append(first)
            if answer is None:
                figures["left"] += 1
            elif answer != quiet[which]:
                problems.append(f"question {which} {asked[which]}: {answer} instead of {quiet[which]}")
            else:
                figures["answered"] += 1
                figures["prompt"] += answer[2][0]
                figures["completion"] += answer[2][1]

    async def watch():
        while time.monotonic() < end:
            memory.append(server.resident_bytes())
            await asyncio.sleep(max(0.2, options.seconds / 100))

    await asyncio.gather(watch(), *(client() for _ in range(options.streams)))
    seconds = time.monotonic() - start
    idle = server.wait_idle(10)
    after = server.metrics()
    memory.append(server.resident_bytes())
    grown = {name: after.value("vllm:" + name) - before.value("vllm:" + name) for name in ("request_success_total", "generation_tokens_total")}
    ended = sum(after.value("vllm:request_success_total", finished_reason=r) - before.value("vllm:request_success_total", finished_reason=r) for r in ("stop", "length"))
    if not figures["answered"] <= ended <= figures["answered"] + figures["left"]:
        problems.append(f"/metrics counts {ended:.0f} whole answers, the clients {figures['answered']} and {figures['left']} that they left")
    if grown["generation_tokens_total"] < figures["completion"]:
        problems.append(f"/metrics counts {grown['generation_tokens_total']:.0f} tokens, the clients {figures['completion']}")
    again = [(await ask(server, question))[0] for question in asked]
    if again != quiet:
        problems.append("the quiet run afterwards differs from the one before")
    third = memory[: max(1, len(memory) // 3)]
    growth = memory[-1] - max(third)
    if growth > options.growth << 20:
        problems.append(f"memory grew by {growth >> 20} MiB after the first third: {[m >> 20 for m in memory]}")
    firsts.sort()
    at = lambda share: firsts[min(len(firsts) - 1, int(share * len(firsts)))] * 1000 if firsts else float("nan")
    print(f"soak: {options.streams} streams for {seconds:.1f} s, {len(asked)} different requests")
    print(f"  answered whole and equal to the quiet run {figures['answered']}, left by their clients {figures['left']}, lost or different {len(problems)}")
    print(f"  {figures['completion'] / seconds:.0f} tokens/s of whole answers, {figures['events'] / seconds:.0f} events/s")
    print(f"  time to the first event p50 {at(0.5):.0f} ms, p99 {at(0.99):.0f} ms")
    print(f"  idle {idle:.2f} s after the last client; KV cache in use {after.value('vllm:kv_cache_usage_perc'):g}, running and waiting 0")
    print(f"  resident memory MiB: start {memory[0] >> 20}, most of the first third {max(third) >> 20}, most {max(memory) >> 20}, end {memory[-1] >> 20}")
    for problem in problems[:10]:
        print(f"  WRONG: {problem[:1000]}")
    return not problems and figures["answered"] > 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--aborted", type=float, default=0.1, help="share of the requests that their client leaves")
    parser.add_argument("--growth", type=int, default=16, help="MiB that memory may grow after the first third")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    with Server(options.program) as server:
        good = asyncio.run(soak(server, options))
        if server.process.poll() is not None:
            print(f"the server ended with {server.process.returncode}:\n{server.log}")
            good = False
        elif good:
            server.signal()
            good = server.wait_exit(40) == 0
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
