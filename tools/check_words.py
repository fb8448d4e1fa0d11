#!/usr/bin/env python3
"""Prints each line of the code and the documentation that has a name or phrase of tools/retired_words.txt, phrases also
as parts of names (take_turns, TakesTurns); exits with 1 if there are any.

check_words.py [ROOT]
"""

import pathlib
import re
import subprocess
import sys

SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".c", ".py", ".md", ".sh", ".txt", ".cmake", ".mjs", ".js", ".html", ".css", ".conf", ".service"}
FOLDERS = ["src", "include", "tests", "examples", "bench", "python", "docs", "tools", "cmake", "packaging"]
# Text from other projects, input of tests, and the list itself.
EXCEPT = re.compile(r"node_modules|/vendor/|/__pycache__/|^tests/(text|models|load)/.*\.(txt|json)|^tools/(demo/|retired_words|check_words)")


def rules(root):
    for line in (root / "tools/retired_words.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, instead = line.partition("\t")
            yield re.compile(pattern), instead


def words_of_names(line):
    """The names of several words in a line, as words: "TEST(Overlap, ItsTurn)" has "its turn"."""
    names = re.findall(r"\w*(?:[a-z][A-Z]|_)\w*", line)
    return " | ".join(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name).lower() for name in names)


def sources(root):
    yield from root.glob("*.md")
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and not EXCEPT.search(path.relative_to(root).as_posix()):
                yield path


def candidates(paths, retired, phrases):
    """The files that may have one of them, found by grep, which is ten times as fast as Python."""
    if not paths:
        return []
    lines = "|".join(pattern.pattern for pattern, _ in retired)
    names = "|".join(re.sub(r"\\b", "", pattern.pattern).replace(" ", "_?") for pattern, _ in phrases)
    listed = set()
    for flags, expression in (("-lP", lines), ("-lPi", names)):
        command = ["grep", flags, "-e", expression, "--", *map(str, paths)]
        result = subprocess.run(command, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"})
        if result.returncode > 1:
            sys.exit(f"check_words.py: grep: {result.stderr.strip()}")
        listed.update(result.stdout.splitlines())
    return sorted(map(pathlib.Path, listed))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    retired, found = list(rules(root)), 0
    phrases = [(pattern, instead) for pattern, instead in retired if " " in pattern.pattern]
    paths = list(sources(root))
    for path in candidates(paths, retired, phrases):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            names = words_of_names(line)
            for pattern, instead in retired:
                match = pattern.search(line) or ((pattern, instead) in phrases and pattern.search(names))
                if match:
                    found += 1
                    print(f'{path.relative_to(root)}:{number}: "{match.group()}"; write: {instead}')
    print(f"{len(paths)} files, {len(retired)} retired names and phrases, {found} uses")
    return 1 if found else 0


sys.exit(main())
