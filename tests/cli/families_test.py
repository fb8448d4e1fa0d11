#!/usr/bin/env python3
"""fovea generate and embed on every model of tests/goldens: each loads from its files and answers.

golden_test and encoder_golden_test check the answers themselves.

Usage: families_test.py PROGRAM GOLDENS
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, GOLDENS = sys.argv[1:3]
TOKENS = 6


def models():
    """(folder, config.json) of every fixture."""
    for name in sorted(os.listdir(GOLDENS)):
        path = os.path.join(GOLDENS, name)
        if os.path.exists(os.path.join(path, "config.json")):
            with open(os.path.join(path, "config.json")) as file:
                yield path, json.load(file)


def kind_of(config):
    if config["model_type"] == "whisper":
        return "audio"
    if config.get("is_encoder_decoder"):
        return "encoder-decoder"
    return "encoder" if config["architectures"][0].endswith("Model") else "decoder"


MODELS = [(path, config, kind_of(config)) for path, config in models()]


class Families(unittest.TestCase):
    def run_program(self, *args):
        result = subprocess.run([PROGRAM, *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr.decode(errors="replace"))
        return result.stdout

    def check_answer(self, *args):
        flags = [*args, "--ignore-eos", "--temperature", "0", "--max-tokens", str(TOKENS)]
        row = json.loads(self.run_program("generate", "--json", *flags))
        self.assertEqual(len(row["token_ids"]), TOKENS)
        self.assertEqual(row["completion_tokens"], TOKENS)
        self.assertEqual(row["finish_reason"], "length")
        self.assertGreater(row["prompt_tokens"], 0)
        self.assertGreater(len(row["text"]), 0)
        # The streamed text is the same.
        self.assertEqual(self.run_program("generate", *flags), row["text"].encode() + b"\n")
        scored = self.run_program("generate", "--json", "--logprobs", "1", *flags)
        self.assertEqual([entry["token_id"] for entry in json.loads(scored)["logprobs"]["content"]], row["token_ids"])

    def test_every_kind_is_here(self):
        kinds = [kind for _, _, kind in MODELS]
        for kind, least in {"decoder": 28, "encoder-decoder": 2, "audio": 2, "encoder": 4}.items():
            self.assertGreaterEqual(kinds.count(kind), least, kind)

    def test_models_that_continue_or_rewrite_a_text(self):
        for path, _, kind in MODELS:
            if kind in ("decoder", "encoder-decoder"):
                with self.subTest(os.path.basename(path)):
                    self.check_answer("--model", path, "one text")

    def test_a_text_with_zero_bytes_is_printed_whole(self):
        path = os.path.join(GOLDENS, "phi3_short_gqa2_d24_bf16")  # token n is the byte n
        flags = ["--model", path, "--allowed-token-id", "0", "--ignore-eos", "--max-tokens", "3", "--temperature", "1", "x"]
        self.assertEqual(self.run_program("generate", *flags), bytes(3) + b"\n")
        self.assertEqual(self.run_program("generate", "--n", "2", *flags), b"[0] \0\0\0\n[1] \0\0\0\n")

    def test_models_that_hear(self):
        sound = os.path.join(GOLDENS, "log_mel", "audio.wav")  # 1.2 s at 16 kHz
        for path, config, kind in MODELS:
            if kind != "audio":
                continue
            with self.subTest(os.path.basename(path)), tempfile.TemporaryDirectory() as folder:
                model = os.path.join(folder, "model")
                shutil.copytree(path, model)
                frames, seconds = 2 * config["max_source_positions"], 2
                with open(os.path.join(model, "preprocessor_config.json"), "w") as file:
                    json.dump({"feature_size": config["num_mel_bins"], "chunk_length": seconds, "n_fft": 400,
                               "hop_length": seconds * 16000 // frames, "sampling_rate": 16000}, file)
                self.check_answer("--model", model, "--audio", sound)

    def test_models_that_embed(self):
        for path, config, kind in MODELS:
            if kind != "encoder":
                continue
            with self.subTest(os.path.basename(path)):
                rows = [json.loads(line) for line in self.run_program("embed", "--model", path, "one text", "another").splitlines()]
                self.assertEqual([row["index"] for row in rows], [0, 1])
                for row in rows:
                    self.assertEqual(len(row["embedding"]), config["hidden_size"])
                    self.assertTrue(all(isinstance(x, float) for x in row["embedding"]), "null = not a number")
                    self.assertGreater(row["tokens"], 0)
                self.assertNotEqual(rows[0]["embedding"], rows[1]["embedding"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
