#!/usr/bin/env python3
"""Flags from FOVEA_* variables and from --config: their precedence and error messages.

Usage: configuration_test.py PROGRAM
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]


class Configuration(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "fovea.toml")

    def write(self, text):
        with open(self.path, "w") as file:
            file.write(text)
        return ["--config", self.path]

    def run_program(self, *args, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("FOVEA_", "VLLM_"))}
        return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120, env={**environment, **variables})

    def tokens(self, *args, **variables):
        """Tokens of an answer that --max-tokens alone ends."""
        result = self.run_program("generate", "--json", "--ignore-eos", *args, "Once", **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["completion_tokens"]

    def refuse(self, words, *args, **variables):
        result = self.run_program(*args, **variables)
        self.assertEqual(result.returncode, 2, result.stderr)
        last = result.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("fovea: "), result.stderr)
        for word in words:
            self.assertIn(word, last)
        return result

    def test_precedence(self):
        file = self.write("[generate]\nmax-tokens = 5\n")
        self.assertEqual(self.tokens(*file), 5)
        self.assertEqual(self.tokens(FOVEA_CONFIG=self.path), 5)
        self.assertEqual(self.tokens(*file, FOVEA_MAX_TOKENS="4"), 4)
        self.assertEqual(self.tokens(*file, FOVEA_MAX_NEW_TOKENS="4"), 4)
        for flag in (["--max-tokens", "3"], ["--max-new-tokens=3"], ["-n", "3"], ["-n3"]):
            self.assertEqual(self.tokens(*file, *flag, FOVEA_MAX_TOKENS="4"), 3)
        self.assertEqual(self.tokens("--max-tokens=2", FOVEA_MAX_TOKENS=""), 2)
        self.assertEqual(self.tokens(*file, FOVEA_MAX_TOKENS=""), 5)
        other = self.write("[chat]\nmax-tokens = 6\n[generate]\nmax_new_tokens = 7\n")
        self.assertEqual(self.tokens(*other), 7)

    def test_lists_flags_and_tables(self):
        bias = self.run_program("generate", "--json", "--temperature", "0", "-n", "6", "--logit-bias", '{"0": 100}', "Once").stdout
        file = self.write('[generate]\njson = true\ntemperature = 0\nmax-tokens = 6\nlogit-bias = { 0 = 100 }\n')
        self.assertEqual(self.run_program("generate", *file, "Once").stdout, bias)
        file = self.write('[generate]\nallowed-token-id = [300, 301]\nmax-tokens = 20\njson = true\nignore-eos = true\n')
        ids = json.loads(self.run_program("generate", *file, "Once").stdout)["token_ids"]
        self.assertEqual(set(ids), {300, 301})
        on = self.write("[generate]\njson = true\nmax-tokens = 1\n")
        self.assertTrue(self.run_program("generate", *on, "x").stdout.startswith("{"))
        self.assertFalse(self.run_program("generate", *on, "x", FOVEA_JSON="0").stdout.startswith("{"))
        self.assertFalse(self.run_program("generate", *self.write("[generate]\njson = false\nmax-tokens = 1\n"), "x").stdout.startswith("{"))
        self.assertTrue(self.run_program("generate", "x", FOVEA_JSON="true", FOVEA_MAX_TOKENS="1").stdout.startswith("{"))

    def test_flags_of_the_program(self):
        file = self.write('log-format = "json"\n[serve]\nmodel = "/none"\n')
        self.assertIn("/none", json.loads(self.run_program("serve", *file).stderr)["message"])
        self.assertTrue(self.run_program("--log-format", "text", "serve", *file).stderr.startswith("fovea: "))
        self.assertTrue(self.run_program("serve", *file, FOVEA_LOG_FORMAT="text").stderr.startswith("fovea: "))
        bad = self.run_program("serve", "--prot", "8", FOVEA_LOG_FORMAT="json")
        self.assertIn("--prot", json.loads(bad.stderr)["message"])

    def test_attention_says_where_a_setting_came_from(self):
        def setting(name, *args, **variables):
            result = self.run_program("explain", "--json", "--device", "cpu", *args, **variables)
            self.assertEqual(result.returncode, 0, result.stderr)
            row = next(row for row in json.loads(result.stdout)["resolved"] if row["key"] == name)
            return row["value"], row["from"]
        prefill = "full.prefill"
        self.assertEqual(setting(prefill, FOVEA_ATTENTION_BACKEND="TORCH_NATIVE"), ("TORCH_NATIVE", "given: env FOVEA_ATTENTION_BACKEND TORCH_NATIVE"))
        file = self.write('[explain]\nattention-backend = "TORCH_NATIVE"\nbatch-invariant = true\n')
        self.assertEqual(setting(prefill, *file), ("TORCH_NATIVE", f"given: {self.path}:2 TORCH_NATIVE"))
        self.assertEqual(setting(prefill, *file, "--attn", "CPU_ATTN"), ("CPU_ATTN", "given: --attn CPU_ATTN"))
        self.assertEqual(setting("batch_invariant", *file), ("1", f"{self.path}:3"))
        self.assertEqual(setting("batch_invariant", *file, VLLM_BATCH_INVARIANT="0"), ("0", "env VLLM_BATCH_INVARIANT"))

    def test_launch_lines_of_others(self):
        file = self.write("[explain]\ntensor-parallel-size = 2\n")
        shown = self.run_program("explain", *file)
        self.assertIn("--tensor-parallel-size 2", shown.stdout + shown.stderr)

    def test_bad_values_say_where_they_come_from(self):
        self.refuse(["--port", "70000", "set by FOVEA_PORT"], "serve", FOVEA_PORT="70000")
        self.refuse(["--port", "set by FOVEA_PORT", "Kubernetes"], "serve", FOVEA_PORT="tcp://10.0.0.1:8000")
        self.refuse(["--port", "70000", f"set at {self.path}:2"], "serve", *self.write("[serve]\nport = 70000\n"))
        self.refuse(["--kv-cache-dtype fp7", "set by FOVEA_KV_CACHE_DTYPE"], "serve", FOVEA_KV_CACHE_DTYPE="fp7")
        self.refuse(["/none", "--model is set by FOVEA_MODEL"], "serve", FOVEA_MODEL="/none")
        self.refuse(["FOVEA_NO_PLAYGROUND=maybe", "0, 1, true, false"], "serve", FOVEA_NO_PLAYGROUND="maybe")
        result = self.refuse(["API key"], "serve", *self.write('[serve]\napi-key = "two words of a secret"\n'))
        self.assertIn(f"--api-key is set at {self.path}:2", result.stderr)
        self.assertNotIn("two words", result.stderr)
        flag = self.refuse(["70000"], "serve", "--port", "70000", FOVEA_HOST="127.0.0.1")
        self.assertNotIn("set by", flag.stderr)

    def test_bad_files(self):
        def bad(text, *words):
            self.refuse([self.path, *words], "serve", *self.write(text))
        bad("[serve]\nprot = 1\n", ":2: ", "prot", "did you mean port?")
        bad("[servr]\nport = 1\n", ":1: ", "[servr]", "did you mean [serve]?")
        bad("port = 1\n", ":1: ", "port", "[serve]")
        bad("[docs]\nport = 1\n", ":2: ", "port", "[docs]")
        bad("[serve]\nport 1\n", ":2: ", "not valid TOML")
        bad("[serve]\nport = true\n", ":2: ", "port", "takes a value")
        bad("[serve]\nno-playground = 1\n", ":2: ", "no-playground", "true or false")
        bad("[serve]\nport = [1, 2]\n", ":2: ", "port", "one value")
        bad("[serve]\nmax-model-len = 64\nmax-seq-len-override = 65\n", ":3: ", "max-model-len", "once")
        bad("[serve]\nconfig = 'x'\n", ":2: ", "config")
        bad("[serve]\nhelp = true\n", ":2: ", "help")
        bad('[serve]\nhost = ""\n', ":2: ", "host is empty")
        bad('[serve]\nallowed-host = ["a", ""]\n', ":2: ", "allowed-host is empty")
        bad("serve = 1\n", ":1: ", "serve")
        for path in ("/none/fovea.toml", os.path.dirname(self.path), "/dev/zero"):
            self.refuse([path, "--config"], "serve", "--config", path)
        self.refuse(["--config", "FOVEA_CONFIG", "/none/x"], "serve", FOVEA_CONFIG="/none/x")

    def test_the_file_of_the_docs(self):
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "configuration.md")
        with open(page) as text:
            toml = re.search(r"^<!-- a file for --config -->\n```toml\n(.*?)^```", text.read(), re.M | re.S).group(1)
        # The model does not exist, so nothing is served; other errors would be reported first.
        result = self.run_program("serve", *self.write(toml), "--model", "/none")
        self.assertIn("/none", json.loads(result.stderr)["message"])

    def test_help_needs_no_file(self):
        file = self.write("[serve]\nprot = 1\n")
        self.assertEqual(self.run_program("serve", *file, "--help").returncode, 0)
        self.assertEqual(self.run_program("--version", FOVEA_CONFIG="/none").returncode, 0)

    def test_variables_that_are_no_flags(self):
        run = ("generate", "-n", "1", "x")
        for name, near in {"FOVEA_PROT": "", "FOVEA_MAX_CONECTIONS": "FOVEA_MAX_CONNECTIONS", "FOVEA_BATCH_INVARIAN": "FOVEA_BATCH_INVARIANT"}.items():
            result = self.run_program(*run, **{name: "1"})
            self.assertEqual(result.returncode, 0, result.stderr)
            warning = [line for line in result.stderr.splitlines() if name in line]
            self.assertEqual(len(warning), 1, result.stderr)
            self.assertIn(near, warning[0])
        silent = {"FOVEA_PORT": "1", "FOVEA_MAX_CONNECTIONS": "x", "FOVEA_BUILD_CUDA": "0", "FOVEA_LIBRARY": "/x.so", "FOVEA_NUM_THREADS": "1",
                  "FOVEA_CHECK_PAGES": "1", "FOVEA_API_KEY": "k"}
        result = self.run_program(*run, **silent)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("FOVEA_", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
