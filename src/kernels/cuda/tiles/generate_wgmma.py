#!/usr/bin/env python3
"""Writes wgmma_shapes.cuh beside this file: Wgmma<T, N> for fp16 and bf16, whose operand lists no template can spell.
With --check it only reports whether the file is up to date.
"""
import pathlib
import sys

COLUMNS = (8, 16, 32, 64, 80, 96, 128, 160, 176, 192, 256)
TYPES = (("__half", "f16"), ("__nv_bfloat16", "bf16"))


def wrap(items, indent):
    """Comma-separated items in lines of at most 110 characters."""
    lines, line = [], indent
    for i, item in enumerate(items):
        piece = item + ("," if i + 1 < len(items) else "")
        if len(line) + len(piece) + 1 > 110:
            lines.append(line.rstrip())
            line = indent
        line += piece + " "
    return "\n".join(lines + [line.rstrip()])


def function(element, columns, a_in_registers):
    count = columns // 2
    first_a = count
    a = [f"%{first_a + i}" for i in range(4)] if a_in_registers else [f"%{first_a}"]
    b = first_a + len(a)
    d = ", ".join(f"%{i}" for i in range(count))
    a_text = "{" + ", ".join(a) + "}" if a_in_registers else a[0]
    transposed = f"%{b + 2}" if a_in_registers else f"%{b + 2}, %{b + 3}"
    text = [
        "{\\n.reg .pred p;\\nsetp.ne.b32 p, %" + str(b + 1) + ", 0;\\n",
        f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{element}.{element} ",
    ]
    registers = "{" + d + "}, "
    pieces = [registers[i:i + 90] for i in range(0, len(registers), 90)]
    text += pieces + [f"{a_text}, %{b}, p, 1, 1, {transposed};\\n}}\\n"]
    body = "\n".join(f'        "{piece}"' for piece in text)
    outputs = wrap([f'"+f"(d[{i}])' for i in range(count)], "          ").lstrip()
    if a_in_registers:
        head = f"  template <bool kTransB>\n  static FOVEA_DEVICE void rs(float (&d)[{count}], const uint32_t (&a)[4], uint64_t b, bool accumulate) {{"
        inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransB ? 1 : 0)'
    else:
        head = f"  template <bool kTransA, bool kTransB>\n  static FOVEA_DEVICE void ss(float (&d)[{count}], uint64_t a, uint64_t b, bool accumulate) {{"
        inputs = '"l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransA ? 1 : 0), "n"(kTransB ? 1 : 0)'
    return f"{head}\n    asm volatile(\n{body}\n        : {outputs}\n        : {inputs});\n  }}"


def main():
    out = [
        "#pragma once",
        "// Written by generate_wgmma.py: wgmma m64 n N k16, fp32 accumulators. ss: A and B by descriptors; rs: A in",
        "// registers. kTransA, kTransB: that operand is MN-major. Without `accumulate`, d is overwritten.",
        "// clang-format off",
        '#include "kernels/cuda/tiles/wgmma.cuh"',
        "",
        "namespace fovea::cuda {",
        "",
        "template <class T, int kColumns>",
        "struct Wgmma;",
    ]
    for columns in COLUMNS:
        for name, element in TYPES:
            out += ["", "template <>", f"struct Wgmma<{name}, {columns}> {{", function(element, columns, False),
                    function(element, columns, True), "};"]
    out += ["", "}  // namespace fovea::cuda", ""]
    path = pathlib.Path(__file__).with_name("wgmma_shapes.cuh")
    text = "\n".join(out)
    if "--check" not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path.name} is not what {pathlib.Path(__file__).name} writes; run it")


main()
