#!/usr/bin/env python3
"""Tokens/s of answers with a JSON schema beside the same without, of random weights of Qwen3-0.6B's shape and a made-up vocabulary of
its size.

Usage: forms.py PROGRAM [--streams 8] [--tokens 96] [--runs 5] [FLAGS of fovea generate, after --]

Each run is one engine that answers `--streams` prompts at a time; runs with and without a schema alternate. Prints the
rates of each, and the CPU time that a token takes beyond the start, for machines where other programs run (use
--threads 1 there: threads that wait for each other take CPU time).
"""
import argparse
import json
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "tests/configs/qwen3-0.6b/config.json"
SCHEMA = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "minItems": 50,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 20},
                    "age": {"type": "integer", "minimum": 0, "maximum": 120},
                    "email": {"type": "string", "maxLength": 24},
                    "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
                    "active": {"type": "boolean"},
                },
                "required": ["name", "age", "email", "tags", "active"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["people"],
    "additionalProperties": False,
}
PARTS = "a er in on th str ing con tion e o u ly pre s t r m é а 中 の".split()
PUNCTUATION = ['{"', '":', '": "', '","', '", "', '"}', "}}", "}]", "]}", "},", '":{"', '":[', "null", "true", "false", "\n\n", "\n  ", "\\n", '\\"', "),", '">']


SHORT = 8  # tokens of the run that is subtracted


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def byte_letters():
    """The letters of byte-level BPE, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in plain else chr(256 + extra)
        extra += byte not in plain
    return letters


def make_tokenizer(size):
    letters = byte_letters()
    spell = lambda text: "".join(letters[byte] for byte in text.encode())
    draw = random.Random(1)
    vocab = {letters[byte]: byte for byte in range(256)}
    for text in PUNCTUATION:
        vocab.setdefault(spell(text), len(vocab))
    while len(vocab) < size:
        text = " " * draw.randrange(2) + (draw.choice('"\\{}[]:,.<>()\n\t') if draw.randrange(20) == 0 else "")
        text += "".join(draw.choice(PARTS) for _ in range(1 + draw.randrange(5))) + (str(draw.randrange(1000)) if draw.randrange(100) == 0 else "")
        vocab.setdefault(spell(text), len(vocab))
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": size, "content": "<|im_end|>", "special": True}],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--runs", type=int, default=5)
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    args = parser.parse_args(own)
    args.flags = sys.argv[len(own) + 2 :]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config = json.loads(CONFIG.read_text())
        size = 151_643
        config["eos_token_id"] = size
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer.json").write_text(json.dumps(make_tokenizer(size)))
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
        rows = [{"prompt": f"List number {i}:", "seed": i, "temperature": 1} for i in range(args.streams)]
        rates, costs = {}, {}
        for run in range(args.runs):
            for name, extra in (("without", {"ignore_eos": True}), ("with", {"json_schema": SCHEMA})):
                spent = []
                for tokens in (args.tokens, SHORT):
                    source = folder / f"{name}.jsonl"
                    source.write_text("\n".join(json.dumps({**row, **extra, "max_tokens": tokens}) for row in rows))
                    command = [args.program, "generate", "--model", str(folder), "--dummy-weights", "--input", str(source), "--stats", "--max-model-len", "512", *args.flags]
                    before = cpu_seconds()
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    spent.append(cpu_seconds() - before)
                    answers = [json.loads(line) for line in done.stdout.splitlines()]
                    assert all(answer["completion_tokens"] == tokens for answer in answers), [answer["finish_reason"] for answer in answers]
                    assert name == "without" or all(answer["text"].lstrip().startswith("{") for answer in answers)
                    if tokens == args.tokens:
                        rates.setdefault(name, []).append(float(re.search(r"decode tokens, ([\d.]+) tokens/s", done.stderr).group(1)))
                costs.setdefault(name, []).append((spent[0] - spent[1]) / (args.tokens - SHORT) / args.streams)
                print(f"run {run + 1}, {name} a schema: {rates[name][-1]:.1f} tokens/s, {costs[name][-1] * 1e3:.2f} ms of CPU time a token", flush=True)
        for what, of, pick in (("median tokens/s", rates, statistics.median), ("best tokens/s", rates, max), ("least CPU ms a token", costs, min)):
            plain, formed = (pick(of[kind]) * (1 if of is rates else 1e3) for kind in ("without", "with"))
            ratio = formed / plain if of is rates else plain / formed
            print(f"{what}: {formed:.2f} with a schema, {plain:.2f} without: {ratio:.3f}")


if __name__ == "__main__":
    main()
