#!/usr/bin/env python3
"""--help of every command: flags in named groups, line widths, and the common flags.

Usage: help_test.py PROGRAM
"""
import re
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]


def help_of(*command):
    return subprocess.run([PROGRAM, *command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def groups(text):
    """{name of the group: its lines}; the lines above the first group have the name "" """
    found, name = {"": []}, ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"([A-Z][\w ,-]+):", line):
            name = heading.group(1)
            assert name not in found, f"{name} twice"
            found[name] = []
        elif line:
            found[name].append(line)
    return found


def flags(lines):
    return [line for line in lines if re.match(r"  -", line)]


def commands(*parent):
    for line in groups(help_of(*parent))["Commands"]:
        if named := re.match(r"  (\w+) ", line):
            yield (*parent, named.group(1))


ALL = [*commands(), *commands("bench")]


class Help(unittest.TestCase):
    def test_all_commands_are_seen(self):
        self.assertGreaterEqual(set(ALL), {("serve",), ("generate",), ("chat",), ("bench", "serve"), ("bench", "model"), ("docs",)})

    def test_groups(self):
        for command in ALL:
            with self.subTest(command=command):
                found = groups(help_of(*command))
                self.assertNotIn("Options", found, "flags without a group")
                own = [name for name in found if name not in ("", "Positionals", "Every command", "Commands")]
                count = sum(len(flags(found[name])) for name in own)
                for name in own:
                    self.assertLessEqual(len(flags(found[name])), 12, f"{name} is long for a group")
                if count > 12:
                    self.assertGreaterEqual(len(own), 2)
        serve = groups(help_of("serve"))
        where = {flag: name for name, lines in serve.items() for line in lines for flag in re.findall(r"^  (--[a-z-]+)", line)}
        for flag, name in {"--port": "Network", "--api-key": "Access", "--max-body-bytes": "HTTP limits", "--max-queued-requests": "Queue and shutdown",
                           "--model": "Model", "--page-size": "KV cache", "--attention-backend": "Attention"}.items():
            self.assertEqual(where[flag], name, flag)

    def test_what_every_command_shares(self):
        for command in [(), ("bench",), *ALL]:
            with self.subTest(command=command):
                shared = "\n".join(groups(help_of(*command))["Every command"])
                for flag in ("--help", "--log-level", "--log-format"):
                    self.assertIn(flag, shared)

    def test_lines_fit(self):
        for command in [(), ("bench",), *ALL]:
            for line in help_of(*command).splitlines():
                self.assertEqual(line, line.rstrip())
                if len(line) > 100:
                    self.assertNotRegex(line.strip(), r"\S  \S", f"{command}: a text that could be wrapped")

    def test_values(self):
        text = help_of("serve")
        self.assertRegex(text, r"--port INT +.*\[0 to 65535; default 8000\]")
        self.assertRegex(text, r"--dtype auto\|float32\|bfloat16\|float16")
        self.assertRegex(help_of("generate"), r"--input FILE")
        self.assertRegex(help_of("bench", "attention"), r"--phase prefill\|decode\|both")
        self.assertNotIn("INT:INT", text)
        self.assertNotIn("{", help_of("bench", "attention"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
