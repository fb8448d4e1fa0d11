#!/usr/bin/env python3
"""Prints the cycles among the modules of src/ (its folders) and among single headers; exits with 1 if there are any.

check_includes.py [SOURCE_FOLDER]

A module depends on another if one of its files, tests excepted, includes one of the other's headers.
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def components(graph):
    """Tarjan's strongly connected components of more than one node."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def main():
    source = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1] / "src")
    sys.setrecursionlimit(10000)
    files = [p for p in source.rglob("*") if p.suffix in (".h", ".cc", ".cu", ".cuh")]
    headers, modules, edges = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(list)
    for path in files:
        name = path.relative_to(source).as_posix()
        if re.search(r"_(test|fuzz|bench)\.\w+$", name):
            continue
        for included in INCLUDE.findall(path.read_text()):
            if not (source / included).is_file():
                continue
            headers[name].add(included)
            here, there = name.split("/")[0], included.split("/")[0]
            if here != there:
                modules[here].add(there)
                edges[here, there].append(f"{name} includes {included}")
    cycles = 0
    for what, graph in (("headers", headers), ("modules", modules)):
        for component in components(graph):
            cycles += 1
            print(f"cycle of {what}: {', '.join(component)}")
            if what == "modules":
                for (here, there), lines in sorted(edges.items()):
                    if here in component and there in component:
                        print(f"  {here} -> {there}: {len(lines)}, such as {lines[0]}")
    print(f"{len(headers)} files, {len(modules)} modules, {cycles} cycles")
    return 1 if cycles else 0


if __name__ == "__main__":
    sys.exit(main())
