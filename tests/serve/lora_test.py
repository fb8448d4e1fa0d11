#!/usr/bin/env python3
"""LoRA adapters over HTTP and in rows: listed, chosen, loaded, unloaded; answers are those alone; bad ones are refused by name.

Usage: lora_test.py PROGRAM
"""
import json
import os
import subprocess
import sys
import tempfile
import threading
import unittest

from server import ROOT, Server

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from lora_adapter import write_adapter  # noqa: E402

PROGRAM = sys.argv[1]
MODEL = os.path.join(ROOT, "tests/goldens/llama3_gqa4_d16_bf16")
ENCODER = os.path.join(ROOT, "tests/goldens/bert_d8_fp32")
class Lora(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.a, cls.b = (write_adapter(os.path.join(cls.folder.name, name), seed) for seed, name in enumerate("ab"))
        cls.server = Server(PROGRAM, "--lora-modules", f"a={cls.a}", json.dumps({"name": "b", "path": cls.b}), "--served-model-name", "base",
                            "--allow-lora-updating", "--threads", "2", model=MODEL)
        cls.addClassCleanup(cls.server.kill)

    def ask(self, model, prompt="What is it", **fields):
        answer = self.server.post("/v1/completions", {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 12, "logprobs": 2,
                                                      "ignore_eos": True, **fields})
        self.assertEqual(answer.status, 200, answer.body)
        answer = answer.json()
        self.assertEqual(answer["model"], model)
        return answer["choices"][0]["text"], answer["choices"][0]["logprobs"]

    def refused(self, status, path, body, *texts):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, status, answer.body)
        message = answer.json()["error"]["message"]
        self.assertNotIn("\n", message)
        for text in texts:
            self.assertIn(text, message)

    def test_listed(self):
        models = {model["id"]: model for model in self.server.get("/v1/models").json()["data"]}
        self.assertEqual(models["base"]["parent"], None)
        self.assertEqual(models["a"]["parent"], "base")
        self.assertEqual(self.server.get("/v1/models/b").json()["parent"], "base")
        self.assertEqual(self.server.get("/v1/models/none").status, 404)

    def test_chosen_and_as_alone(self):
        want = {model: self.ask(model) for model in ("base", "a", "b")}
        self.assertNotEqual(want["base"][1], want["a"][1])
        self.assertNotEqual(want["a"][1], want["b"][1])
        got = [None] * 12
        threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, self.ask(("base", "a", "b")[i % 3]))) for i in range(len(got))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, answer in enumerate(got):
            self.assertEqual(answer, want[("base", "a", "b")[i % 3]])
        self.refused(404, "/v1/completions", {"model": "none", "prompt": "x"}, "`none` does not exist")

    def test_loaded_and_unloaded(self):
        load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
        want = self.ask("a")
        answer = self.server.post(load, {"lora_name": "c", "lora_path": self.a})
        self.assertEqual((answer.status, answer.body), (200, b"Success: LoRA adapter 'c' added successfully."))
        self.assertEqual(self.ask("c"), want)
        self.refused(400, load, {"lora_name": "c", "lora_path": self.b}, '"c" is loaded already')
        self.assertEqual(self.server.post(unload, {"lora_name": "c"}).status, 200)
        self.refused(404, "/v1/completions", {"model": "c", "prompt": "x"}, "`c` does not exist")
        self.refused(404, unload, {"lora_name": "c"}, "not loaded")
        self.refused(400, load, {"lora_name": "base", "lora_path": self.a}, "the model's own name")
        self.refused(400, load, {"lora_path": self.a}, "lora_name is missing")
        self.refused(404, load, {"lora_name": "d", "lora_path": os.path.join(self.folder.name, "none")}, "no such directory")
        # The same name with other files is another adapter.
        self.assertEqual(self.server.post(load, {"lora_name": "c", "lora_path": self.b}).status, 200)
        self.assertEqual(self.ask("c"), self.ask("b"))
        self.assertEqual(self.server.post(unload, {"lora_name": "c"}).status, 200)

    def test_bad_adapters(self):
        cases = {
            "dora": ({"use_dora": True}, None, 4, ["use_dora is true"]),
            "saved": ({"modules_to_save": ["lm_head"]}, None, 4, ["modules_to_save"]),
            "bias": ({"bias": "all"}, None, 4, ["bias is"]),
            "field": ({"from_the_future": 3}, None, 4, ["from_the_future"]),
            "targets": ({"target_modules": ["q_proj"]}, None, 4, ["target_modules", "down_proj"]),
            "ranks": ({"r": 5}, None, 4, ["has shape [4, 96]", "[5, 96]"]),
            "shape": ({}, (4, 3), 4, ["has shape [4, 3]"]),
            "large": ({}, None, 65, ["--max-lora-rank 65"]),
        }
        for name, (config, shape, rank, texts) in cases.items():
            path = write_adapter(os.path.join(self.folder.name, name), 1, rank, config, shape)
            with self.subTest(name):
                self.refused(400, "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, *texts)
        cut = write_adapter(os.path.join(self.folder.name, "cut"), 1)
        os.truncate(os.path.join(cut, "adapter_model.safetensors"), 1000)
        self.refused(400, "/v1/load_lora_adapter", {"lora_name": "cut", "lora_path": cut}, "adapter_model.safetensors")

    def run_program(self, *arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120)

    def test_not_allowed_unless_asked_for(self):
        with Server(PROGRAM, "--lora-modules", f"a={self.a}", model=MODEL) as server:
            for path, body in (("load", {"lora_name": "c", "lora_path": self.a}), ("unload", {"lora_name": "a"})):
                answer = server.post(f"/v1/{path}_lora_adapter", body)
                self.assertEqual((answer.status, answer.json()["error"]["code"]), (403, "lora_updating_disabled"))

    def test_refused_at_the_start(self):
        for arguments, text in (
            (["--model", MODEL, "--lora-modules", "a=/none"], "no such directory"),
            (["--model", MODEL, "--lora-modules", "=x"], "give NAME=PATH"),
            (["--model", MODEL, "--served-model-name", "a", "--lora-modules", f"a={self.a}"], "as the model is"),
            (["--model", MODEL, "--max-lora-rank", "3", "--lora-modules", f"a={self.a}"], "--max-lora-rank 4"),
            (["--model", ENCODER, "--lora-modules", f"a={self.a}"], "is an encoder, which can't have LoRA adapters"),
        ):
            with self.subTest(text):
                run = self.run_program("serve", "--port", "0", *arguments)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(text, run.stderr)

    def test_rows(self):
        rows = [{"prompt": "What is it", "lora": lora, "logprobs": 2} if lora else {"prompt": "What is it", "logprobs": 2} for lora in ("a", None, "b", "a")]
        path = os.path.join(self.folder.name, "rows.jsonl")
        flags = ["generate", "--model", MODEL, "--lora-modules", f"a={self.a}", f"b={self.b}", "--input", path, "--temperature", "0", "--max-tokens", "12", "--ignore-eos"]

        def run(rows, *more):
            with open(path, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            return self.run_program(*flags, *more)

        done = run(rows)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = [json.loads(line)["text"] for line in done.stdout.splitlines()]
        self.assertEqual(texts, [self.ask(model)[0] for model in ("a", "base", "b", "a")])
        default = run([{"prompt": "What is it"}], "--lora", "b")
        self.assertEqual(json.loads(default.stdout)["text"], texts[2])
        unknown = run([{"prompt": "x", "lora": "none"}])
        self.assertNotEqual(unknown.returncode, 0)
        self.assertIn('"none" is not loaded', unknown.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
