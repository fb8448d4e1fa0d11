#!/usr/bin/env python3
"""Writes wgmma_shapes.cuh and wgmma_e4m3.cuh beside this file: Wgmma<T, N> for fp16 and bf16, and for e4m3, whose operand
lists no template can spell. With --check it only reports whether the files are up to date.
"""
import pathlib
import sys

COLUMNS = (8, 16, 32, 64, 80, 96, 128, 160, 176, 192, 256)
TYPES = (("__half", "f16"), ("__nv_bfloat16", "bf16"))
E4M3_COLUMNS = (64, 96, 128, 160, 192, 224)


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
    count, eight_bits = columns // 2, element == "e4m3"
    first_a = count
    a = [f"%{first_a + i}" for i in range(4)] if a_in_registers else [f"%{first_a}"]
    b = first_a + len(a)
    d = ", ".join(f"%{i}" for i in range(count))
    a_text = "{" + ", ".join(a) + "}" if a_in_registers else a[0]
    transposed = "" if eight_bits else f", %{b + 2}" if a_in_registers else f", %{b + 2}, %{b + 3}"
    text = [
        "{\\n.reg .pred p;\\nsetp.ne.b32 p, %" + str(b + 1) + ", 0;\\n",
        f"wgmma.mma_async.sync.aligned.m64n{columns}k{32 if eight_bits else 16}.f32.{element}.{element} ",
    ]
    registers = "{" + d + "}, "
    pieces = [registers[i:i + 90] for i in range(0, len(registers), 90)]
    text += pieces + [f"{a_text}, %{b}, p, 1, 1{transposed};\\n}}\\n"]
    body = "\n".join(f'        "{piece}"' for piece in text)
    outputs = wrap([f'"+f"(d[{i}])' for i in range(count)], "          ").lstrip()
    operands = '"l"(a), "l"(b), "r"(static_cast<int>(accumulate))'
    if a_in_registers:
        template, name, a_type = "bool kTransB", "rs", "const uint32_t (&a)[4]"
        inputs = operands.replace('"l"(a)', '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])') + ', "n"(kTransB ? 1 : 0)'
    else:
        template, name, a_type = "bool kTransA, bool kTransB", "ss", "uint64_t a"
        inputs = operands + ', "n"(kTransA ? 1 : 0), "n"(kTransB ? 1 : 0)'
    template = "" if eight_bits else f"  template <{template}>\n"
    if eight_bits:
        inputs = inputs[:inputs.index(', "n"')]
    head = f"{template}  static FOVEA_DEVICE void {name}(float (&d)[{count}], {a_type}, uint64_t b, bool accumulate) {{"
    return f"{head}\n    asm volatile(\n{body}\n        : {outputs}\n        : {inputs});\n  }}"


def header(comment, include, types, columns, declaration):
    out = ["#pragma once", *comment, "// clang-format off", f'#include "kernels/cuda/tiles/{include}"', "",
           "namespace fovea::cuda {", "", *declaration]
    for n in columns:
        for name, element in types:
            out += ["", "template <>", f"struct Wgmma<{name}, {n}> {{", function(element, n, False),
                    function(element, n, True), "};"]
    return "\n".join(out + ["", "}  // namespace fovea::cuda", ""])


FILES = {
    "wgmma_shapes.cuh": header(
        ("// Written by generate_wgmma.py: wgmma m64 n N k16, fp32 accumulators. ss: A and B by descriptors; rs: A in",
         "// registers. kTransA, kTransB: that operand is MN-major. Without `accumulate`, d is overwritten."),
        "wgmma.cuh", TYPES, COLUMNS, ("template <class T, int kColumns>", "struct Wgmma;")),
    "wgmma_e4m3.cuh": header(
        ("// Written by generate_wgmma.py: wgmma m64 n N k32 of e4m3, whose operands are K-major, as in",
         "// wgmma_shapes.cuh."),
        "wgmma_shapes.cuh", (("E4m3", "e4m3"),), E4M3_COLUMNS, ("struct E4m3;  ///< names the type",)),
}


def main():
    for name, text in FILES.items():
        path = pathlib.Path(__file__).with_name(name)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path.name} is not what {pathlib.Path(__file__).name} writes; run it")


main()
