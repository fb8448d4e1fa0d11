#!/usr/bin/env python3
"""Prints each line of the code and the documentation that has a name or phrase of tools/retired_words.txt; exits
with 1 if there are any.

check_words.py [ROOT]
"""

import pathlib
import re
import sys

SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".c", ".py", ".md", ".sh", ".txt", ".cmake", ".mjs", ".js"}
FOLDERS = ["src", "include", "tests", "examples", "bench", "python", "docs", "tools", "cmake", "packaging"]
# Other people's text, what tests feed to the program, and the list itself.
EXCEPT = re.compile(r"node_modules|/vendor/|/__pycache__/|^tests/(text|models|load)/.*\.(txt|json)|^tools/(demo/|retired_words|check_words)")


def rules(root):
    for line in (root / "tools/retired_words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, instead = line.partition("\t")
            yield re.compile(pattern), instead


def sources(root):
    yield from root.glob("*.md")
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and not EXCEPT.search(path.relative_to(root).as_posix()):
                yield path


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    retired, found, read = list(rules(root)), 0, 0
    any_of = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in retired))
    for path in sources(root):
        text = path.read_text(errors="replace")
        read += 1
        if not any_of.search(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, instead in retired:
                if match := pattern.search(line):
                    found += 1
                    print(f'{path.relative_to(root)}:{number}: "{match.group()}"; write: {instead}')
    print(f"{read} files, {len(retired)} retired names and phrases, {found} uses")
    return 1 if found else 0


sys.exit(main())
