#!/usr/bin/env python3
"""The examples of README.md and docs about the server, run as printed except for the port. Also checks that the metrics and
flags that the pages name exist.

A fence of sh or js below a comment <!-- example, prints "TEXT" --> is an example; "example of an encoder" and "example
with a key" select its server. Every fence of those pages that contains curl or openai must be an example.

Usage: docs_examples_test.py PROGRAM ROOT
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from server import Server, skip

PROGRAM, ROOT = (os.path.abspath(path) for path in sys.argv[1:3])
PAGES = ("README.md", "docs/serving.md", "docs/other-apis.md")
ADDRESS = "localhost:8000"
SERVERS = {"": (), "of an encoder": ("--model", f"{ROOT}/tests/goldens/bert_d8_fp32", "--served-model-name", "bert"), "with a key": ("--api-key", "sk-example")}
FENCE = re.compile(r'(?:<!-- example( of an encoder| with a key)?, prints "(.*?)" -->\n)?^```(sh|js)\n(.*?)^```$', re.M | re.S)


def examples(page):
    """(line, kind of server, expected output, language, code) of each example."""
    text = read(page)
    for found in FENCE.finditer(text):
        kind, prints, language, code = found.groups()
        line = text.count("\n", 0, found.start()) + 1
        if "curl" not in code and "openai" not in code:
            continue
        assert prints, f"{page}:{line}: no comment says what the example prints"
        yield line, (kind or "").strip(), prints, language, code


class Examples(unittest.TestCase):
    def test_examples(self):
        wanted = [(page, *example) for page in PAGES for example in examples(page)]
        languages = {(page, language) for page, _, _, _, language, _ in wanted}
        self.assertLessEqual({("README.md", "sh"), ("README.md", "js"), ("docs/serving.md", "sh"), ("docs/serving.md", "js")}, languages)
        for kind, flags in SERVERS.items():
            with Server(PROGRAM, *flags) as server:
                for page, line, _, prints, language, code in (e for e in wanted if e[2] == kind):
                    with self.subTest(page=page, line=line):
                        self.assertIn(ADDRESS, code)
                        code = code.replace(ADDRESS, f"127.0.0.1:{server.port}")
                        command = ["bash", "-euo", "pipefail", "-c", code] if language == "sh" else ["node", "--input-type=module", "-e", code]
                        result = subprocess.run(command, cwd=os.path.dirname(os.path.abspath(__file__)), capture_output=True, text=True, timeout=60)
                        self.assertEqual(result.returncode, 0, result.stderr)
                        self.assertIn(prints, result.stdout)
                        print(f"{page}:{line}: {result.stdout.strip()[:200]}")


def read(page):
    with open(os.path.join(ROOT, page)) as file:
        return file.read()


def flags_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]", text))


class FirstScreen(unittest.TestCase):
    """README's commands before its first heading, verbatim; only builds and downloads are replaced."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        bare = re.search(r'exec "\$program" (generate .*)', read("run.sh")).group(1)
        self.write("run.sh", f'[ $# -gt 0 ] || exec {shlex.quote(PROGRAM)} {bare}\nexec {shlex.quote(PROGRAM)} "$@"')
        self.write("bin/apt-get", "exit 0")
        self.write("bin/git", f'[ "$1" = clone ] && cp -r {shlex.quote(ROOT)}/tests/goldens/qwen3_gqa2_d32_bf16 "$(basename "$2")"')

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(f"#!/bin/bash\n{text}\n")
        os.chmod(path, 0o755)

    def test_commands(self):
        screen = read("README.md").split("\n## ")[0]
        commands = [line for fence in re.findall(r"^```sh\n(.*?)^```$", screen, re.M | re.S) for line in fence.splitlines()]
        self.assertEqual(sum(line.startswith("./run.sh serve") for line in commands), 2)
        self.assertTrue(all(os.path.exists(os.path.join(ROOT, image)) for image in re.findall(r"!\[.*?\]\((.*?)\)", screen)))
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FOVEA_PORT": "0"}
        for line in commands:
            with self.subTest(line=line):
                where = {"cwd": self.folder, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                with subprocess.Popen(["bash", "-euc", "exec " + line], **where) as process:
                    if "serve" in line:
                        seen = next((text for text in process.stdout if " ready: " in text), "")
                        process.terminate()
                        self.assertRegex(seen, "http://127.0.0.1:[0-9]+ serves (demo|Qwen3-0.6B) ")
                        process.stdout.read()
                    else:
                        out = process.stdout.read()
                        self.assertEqual(process.wait(), 0, out)
                        if line.split()[0] == "./run.sh":
                            self.assertIn("423", out)


class Names(unittest.TestCase):
    def flags(self, *command):
        return flags_of(subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True).stdout)

    def test_metrics(self):
        named = set(re.findall(r"`((?:vllm:|fovea_)\w+)`", read("docs/metrics.md")))
        drafts = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1})
        with Server(PROGRAM, "--speculative-config", drafts) as server:
            for _ in range(100):  # until the machine's rates have been measured
                server.complete("2, 4, 6, 2, 4, 6, 2, 4, 6,", max_tokens=16, ignore_eos=True)  # repeats, so there are drafts
                there = set(re.findall(r"^# TYPE (\S+)", server.metrics().text, re.M))
                if there == named:
                    return
                time.sleep(0.1)
        self.assertEqual(there, named)

    def test_promtool_lints(self):
        """promtool's only complaints are about vLLM's metric names, which dashboards need."""
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        with Server(PROGRAM) as server:
            server.complete("x", max_tokens=2)
            text = server.metrics().text
        found = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        complaints = (found.stdout + found.stderr).strip().splitlines()
        self.assertTrue(complaints, "promtool must complain about the colons in vLLM's names: does it work?")
        ours = [line for line in complaints if not re.fullmatch(r"vllm:\w+ metric names should not contain ':'|vllm:iteration_tokens_total non-counter .*", line)]
        self.assertEqual(ours, [])

    def test_flags(self):
        serve, bench = self.flags("serve"), self.flags("bench", "serve")
        shared = self.flags()
        self.assertEqual(flags_of(read("docs/serving.md")) - serve - {"--seconds"}, set())
        self.assertEqual(flags_of(read("docs/bench-serve.md")) - shared, bench - shared)
        self.assertEqual(shared - flags_of(read("docs/configuration.md")) - {"--help", "--version"}, set())


if __name__ == "__main__":
    if not shutil.which("curl") or not shutil.which("node"):
        skip("curl or node is not installed")
    if not os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_modules", "openai")):
        skip("openai is not installed; run npm ci in tests/serve")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
