#!/usr/bin/env python3
"""Draws a record of peers.py as an SVG: a bar for each contender of a case, and the lower bound as a line.

Usage: plot.py RECORD.json OUT.svg

Prefill in TFLOP/s, compared with a cuBLAS matrix product of the same run; decode in GB/s of K and V, compared with a plain
read of the same bytes. The drawing names the record's machine and commit."""

import argparse
import json
import pathlib
import sys
from xml.sax.saxutils import escape

COLOURS = {"fovea fa3": "#1f6fb4", "fovea fa3, past_kv_ready": "#0b3d66", "fovea fa2": "#9cc3e6", "torch cuDNN SDPA": "#6aa84f",
           "torch flash SDPA": "#b6d7a8", "flash_attn_interface": "#e69138", "flashinfer": "#8e7cc3",
           "torch cuDNN SDPA, contiguous": "#6aa84f", "torch flash SDPA, contiguous": "#b6d7a8"}
OTHER = "#999999"
LABELS, BARS, FIGURES = 290, 560, 60  # widths
BAR, GAP, HEAD = 11, 8, 26  # heights


def cases_of(rows, key):
    """{case: {contender: number}} in the order of the record."""
    out = {}
    for row in rows:
        if key in row:
            out.setdefault(row["case"], {})[row["contender"]] = row[key]
    return out


class Drawing:
    def __init__(self):
        self.parts, self.y, self.seen = [], 20, {}

    def text(self, x, y, text, anchor="start", size=11, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
                          f'{escape(text)}</text>')

    def bar(self, x, y, width, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>')

    def floor(self, x, y, height):
        self.parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{y + height:.1f}" stroke="#cc0000" '
                          f'stroke-width="1.5"/>')

    def panel(self, title, cases, floor_of):
        """`floor_of(case)`: the number at the red line, or None."""
        floors = {case: floor_of(case) for case in cases}
        top = max([n for contenders in cases.values() for n in contenders.values()] + [n for n in floors.values() if n])
        self.text(10, self.y, title, size=13, weight="bold")
        self.y += 12
        for case, contenders in cases.items():
            height = BAR * len(contenders)
            self.text(LABELS - 8, self.y + height / 2 + 4, case, "end")
            for i, (contender, number) in enumerate(contenders.items()):
                colour = COLOURS.get(contender, OTHER)
                self.seen[contender] = colour
                y = self.y + i * BAR
                self.bar(LABELS, y, BARS * number / top, colour)
                self.text(LABELS + BARS * number / top + 4, y + BAR - 2, f"{number:.0f}", size=9)
            if floors[case]:
                self.floor(LABELS + BARS * floors[case] / top, self.y - 2, height + 3)
            self.y += height + GAP
        self.y += HEAD

    def legend(self):
        x = 10
        for contender, colour in [*self.seen.items(), ("floor", "#cc0000")]:
            self.bar(x, self.y - BAR + 2, 12, colour)
            self.text(x + 16, self.y, contender)
            x += 30 + 6.2 * len(contender)
        self.y += 16

    def svg(self):
        width, height = LABELS + BARS + FIGURES, self.y
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
                f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(self.parts)
                + "\n</svg>\n")


def draw(record):
    drawing = Drawing()
    machine = f"{record['device']}, driver {record['driver']}, {record['date']}, commit {record['commit'][:12]}"
    results = record["results"]
    for part, state in (("prefill", "rested"), ("sustained", "sustained")):
        cases = cases_of(results.get(part, []), "tflops")
        peak = cases.pop("matmul bf16 8192", {}).get("cuBLAS")
        if cases:
            drawing.panel(f"Prefill, {state}, 32 query and 8 KV heads: TFLOP/s of what the mask leaves (red: cuBLAS)", cases,
                          lambda _, peak=peak: peak)
    for part, state in (("decode", "rested"), ("sustained", "sustained")):
        cases = cases_of(results.get(part, []), "gb_per_s")
        reads = {case: contenders.pop("plain read", None) for case, contenders in cases.items()}
        if cases:
            drawing.panel(f"Decode, {state}, 32 query and 8 KV heads, D = 128: GB/s of K and V (red: a plain read)", cases,
                          reads.get)
    if not drawing.parts:
        sys.exit("plot.py: the record has neither prefill nor decode")
    drawing.legend()
    drawing.text(10, drawing.y + 4, machine, size=10)
    drawing.y += 16
    return drawing.svg()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record")
    parser.add_argument("output")
    args = parser.parse_args()
    record = json.loads(pathlib.Path(args.record).read_text(encoding="utf-8"))
    pathlib.Path(args.output).write_text(draw(record), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
