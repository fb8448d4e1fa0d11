#!/usr/bin/env python3
"""Prints include cycles between the modules of src/ and between headers; exits with 1 if there are any.

check_includes.py [SOURCE_FOLDER]

A module is what a fovea_module() of the CMakeLists.txt files compiles, or else a folder of src/. It depends on another if
one of its files, tests excepted, includes one of the other's headers.
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
MODULE = re.compile(r"^\s*fovea_module\((\w+)([^)]*)\)", re.M)


def module_folders(source):
    """Module by folder. A folder that only a variable names belongs to the module of the folder around it."""
    folders = {}
    for lists in sorted(source.rglob("CMakeLists.txt")):
        for name, arguments in MODULE.findall(lists.read_text()):
            listed = re.search(r"\bFOLDERS((?:\s+[^\sA-Z]\S*)+)", arguments)
            for folder in listed[1].split() if listed else [name]:
                folders[folder] = name
    return folders


def module_of(name, folders):
    """The module of the nearest folder around the file that has one."""
    for folder in pathlib.PurePosixPath(name).parents:
        if folder.as_posix() in folders:
            return folders[folder.as_posix()]
    return name.split("/")[0]


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
    folders = module_folders(source)
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
            here, there = module_of(name, folders), module_of(included, folders)
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
