#!/usr/bin/env python3
"""Shell completion in real shells: bash, and zsh and fish if they are installed.

Usage: completion_test.py PROGRAM
"""
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1])


def ask(*words):
    """(kind, {name: description}) of the possible completions."""
    kind, *lines = subprocess.run([PROGRAM, "completion", "--words", *words], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return kind, dict(line.split("\t", 1) for line in lines)


class Questions(unittest.TestCase):
    def names(self, *words):
        kind, names = ask(*words)
        self.assertEqual(kind, "names", words)
        return set(names)

    def test_commands(self):
        self.assertLessEqual({"serve", "generate", "chat", "bench", "completion"}, self.names(""))
        self.assertEqual(self.names("se"), {"serve"})
        self.assertEqual(self.names("bench", "m"), {"model", "machine"})
        self.assertEqual(self.names("--log-level", "info", "ser"), {"serve"})
        self.assertEqual(self.names("completion", ""), {"bash", "zsh", "fish"})

    def test_flags_are_all_of_the_help(self):
        for command in (["serve"], ["generate"], ["bench", "serve"], ["docs"]):
            text = subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True).stdout
            shown = {flag for line in text.splitlines() if line.startswith("  -") for flag in line.split()[0].split(",") if flag.startswith("--")}
            self.assertEqual(self.names(*command, "--"), shown)
        self.assertEqual(self.names("serve", "--max-conn"), {"--max-connections", "--max-connections-per-address"})
        self.assertIn("Maximum open connections", ask("serve", "--max-conn")[1]["--max-connections"])

    def test_values(self):
        self.assertEqual(self.names("serve", "--dtype", ""), {"auto", "float32", "bfloat16", "float16"})
        self.assertEqual(self.names("serve", "--dtype", "fl"), {"float32", "float16"})
        self.assertEqual(self.names("serve", "--dtype=fl"), {"--dtype=float32", "--dtype=float16"})
        self.assertEqual(self.names("serve", "--dtype", "=", "fl"), {"float32", "float16"})
        self.assertEqual(self.names("serve", "--dtype", "="), {"auto", "float32", "bfloat16", "float16"})
        self.assertLessEqual({"auto", "CPU_ATTN", "TORCH_NATIVE"}, self.names("chat", "--attn", ""))
        self.assertEqual(self.names("bench", "attention", "--phase", "p"), {"prefill"})
        for words in (["generate", "--input", "x"], ["serve", "--config="], ["--config", ""]):
            self.assertEqual(ask(*words)[0], "files", words)
        for words in (["serve", "--model", "x"], ["serve", ""], ["docs", "--out", ""]):
            self.assertEqual(ask(*words)[0], "folders", words)
        for words in (["serve", "--port", ""], ["serve", "--no-such", "--port", "1"], ["nothing", "--no-such"], ["serve", "--dtype", "x"]):
            self.assertEqual(ask(*words), ("none", {}), words)


class Shells(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.symlink(PROGRAM, os.path.join(self.folder, "fovea"))
        for name in ("my file.toml", "mine.toml"):
            open(os.path.join(self.folder, name), "w").close()
        os.mkdir(os.path.join(self.folder, "my-model"))
        # A program in the PATH is found by its name, without the demo model's folder.
        self.environment = {"PATH": self.folder + ":" + os.environ["PATH"], "HOME": self.folder, "TERM": "dumb", "LC_ALL": "C.UTF-8"}

    def script(self, shell):
        path = os.path.join(self.folder, "script." + shell)
        with open(path, "w") as file:
            file.write(subprocess.run([PROGRAM, "completion", shell], capture_output=True, text=True, check=True).stdout)
        return path

    def terminal(self, command, *typed):
        """The screen after typing: pairs (text, until), each waits until `until` is shown."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(self.folder)
            os.execvpe(command[0], command, self.environment)
        seen = ""
        try:
            for text, until in typed:
                start = len(seen)
                os.write(terminal, text.encode())
                deadline = time.monotonic() + 120
                while until not in seen[start:]:
                    self.assertLess(time.monotonic(), deadline, f"no {until!r} in {seen!r}")
                    if select.select([terminal], [], [], 1)[0]:
                        seen += os.read(terminal, 65536).decode(errors="replace")
        finally:
            os.close(terminal)
            os.kill(child, 9)
            os.waitpid(child, 0)
        return seen

    def test_bash(self):
        code = f"""
            source {self.script("bash")}
            try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fovea; printf '%s\\n' "${{COMPREPLY[@]}}" | sort | paste -sd '|'; }}
            try fovea se
            try fovea serve --dtype fl
            try fovea serve --dtype = fl
            try fovea serve --config my
            try fovea serve my
            try fovea serve --port ''
            complete -p fovea
        """
        result = subprocess.run(["bash", "--norc", "-c", code], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.stdout.splitlines(), ["serve", "float16|float32", "float16|float32", "my file.toml|my-model", "my-model", "",
                                                      "complete -F _fovea fovea"], result.stderr)

    def test_bash_at_a_terminal(self):
        shell = ["bash", "--norc", "--noprofile", "-i"]
        self.terminal(shell, (f"source {self.script('bash')}; echo R''EADY\n", "READY"), ("fovea serve --log-f\t", "--log-format"), ("js\t", "json"),
                      ("--config mi\t", "mine.toml"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_at_a_terminal(self):
        start = f"autoload -Uz compinit; compinit -u -D; source {self.script('zsh')}; echo R''EADY\n"
        self.terminal(["zsh", "-f", "-i"], (start, "READY"), ("fovea serve --log-f\t", "ormat"), ("js\t", "on"), ("--config=mi\t", "ne.toml"))

    @unittest.skipUnless(shutil.which("fish"), "fish is not installed")
    def test_fish(self):
        def complete(line):
            result = subprocess.run(["fish", "-N", "-c", f"source {self.script('fish')}; complete -C '{line}'"], cwd=self.folder,
                                    env=self.environment, capture_output=True, text=True, timeout=60)
            return {row.split("\t")[0] for row in result.stdout.splitlines()}
        self.assertEqual(complete("fovea se"), {"serve"})
        self.assertLessEqual({"serve", "chat"}, complete("fovea "))
        self.assertEqual(complete("fovea serve --dtype fl"), {"float32", "float16"})
        self.assertEqual(complete("fovea serve --dtype=fl"), {"--dtype=float32", "--dtype=float16"})
        self.assertIn("mine.toml", complete("fovea serve --config mi"))
        self.assertIn("--config=mine.toml", complete("fovea serve --config=mi"))
        self.assertEqual(complete("fovea serve --model my"), {"my-model/"})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
