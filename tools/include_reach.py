#!/usr/bin/env python3
"""Prints how many compiled sources of src/ and tests/ include each header, directly or not: those that an edit of it recompiles.

include_reach.py [HEADER...]: these headers, such as include/fovea/result.h; by default the 30 with the widest reach.
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def included_files(path, root):
    """The files of the repository that `path` includes."""
    found = set()
    for name in INCLUDE.findall(path.read_text()):
        for folder in (path.parent, root / "src", root / "include", root / "tests", root):
            if (folder / name).is_file():
                found.add((folder / name).resolve())
                break
    return found


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    sources = [p for top in ("src", "tests") for p in (root / top).rglob("*") if p.suffix in (".cc", ".cu") and "node_modules" not in p.parts]
    includes, reach = {}, collections.Counter()
    for source in sources:
        seen, open_files = set(), [source]
        while open_files:
            path = open_files.pop()
            if path not in includes:
                includes[path] = included_files(path, root)
            open_files += includes[path] - seen
            seen |= includes[path]
        reach.update(seen)
    named = [(root / name).resolve() for name in sys.argv[1:]]
    for path in named or [path for path, _ in reach.most_common(30)]:
        print(f"{reach[path]:4} of {len(sources)} {path.relative_to(root)}")


if __name__ == "__main__":
    main()
