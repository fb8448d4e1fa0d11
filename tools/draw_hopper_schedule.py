#!/usr/bin/env python3
"""Draws the schedule of the sm90 prefill kernel as an SVG timeline, by simulating its barriers.

python3 tools/draw_hopper_schedule.py > docs/images/hopper-schedule.svg

The order of the operations and what each waits for are those of src/kernels/cuda/sm90 (prefill_producer.cuh,
prefill_consumer.cuh) with two consumer warpgroups, two stages and ping-pong scheduling, as at head size 256.
The durations below are schematic.
"""

import sys

# Durations, in units of time.
LOAD, SCORES, VALUES, SOFTMAX, EPILOGUE = 2.5, 4.0, 4.0, 7.0, 3.0
STAGES = 2
CONSUMERS = 2
# Key tiles of the two work tiles that are drawn; the second one is cut off.
FIRST, SECOND = 3, 2

COLOURS = {
    "load": "#c9d6e8",
    "query": "#9db4d3",
    "scores": "#f2b872",
    "values": "#e58a5f",
    "softmax": "#a5cf9b",
    "epilogue": "#c9b3dc",
}
INK, FAINT, LINE = "#1b1f24", "#57606a", "#d0d7de"
SCALE, LEFT, TOP = 9.6, 180, 62
LANE, GAP = 26, 22


def name(kind, k):
    """The label of key tile k, with a prime in the second work tile."""
    return f"{kind}{k}" if k < FIRST else f"{kind}{k - FIRST}\u2032"


def simulate():
    """Boxes (row, lane, kind, label, begin, end)."""
    steps = FIRST + SECOND
    boxes = []
    scores_end = [[None] * steps for _ in range(CONSUMERS)]  # frees K, and Q after the last of a work tile
    values_free = [[None] * steps for _ in range(CONSUMERS)]  # frees V
    ready = [0.0] * CONSUMERS  # when a consumer can issue its next step
    k_full, v_full, q_full = [None] * steps, [None] * steps, {}
    producer = 0.0
    tensor_cores = 0.0

    def load(kind, label, after):
        nonlocal producer
        begin = max([producer, *after])
        producer = begin + LOAD
        boxes.append((0, 0, kind, label, begin, producer))
        return producer

    def free(table, k):
        return [] if k < 0 else [table[w][k] for w in range(CONSUMERS)]

    def load_tile(k):
        k_full[k] = load("load", name("K", k), free(scores_end, k - STAGES))
        if k in (0, FIRST):  # one query buffer
            q_full[k] = load("query", "Q" if k == 0 else "Q\u2032", free(scores_end, k - 1))
        v_full[k] = load("load", name("V", k), free(values_free, k - STAGES))

    def multiply(w, kind, label, after, duration):
        nonlocal tensor_cores
        begin = max(after, tensor_cores)
        tensor_cores = begin + duration
        boxes.append((1 + w, 0, kind, label, begin, tensor_cores))
        return tensor_cores

    issued = 0.0  # when the other consumer has issued its scores
    for k in range(steps):
        load_tile(k)
        for w in range(CONSUMERS):
            after = [ready[w], issued, k_full[k], q_full[FIRST if k >= FIRST else 0]]
            issued = max(after)
            scores_end[w][k] = multiply(w, "scores", name("S", k), issued, SCORES)
            end = scores_end[w][k] + SOFTMAX
            boxes.append((1 + w, 1, "softmax", name("softmax ", k), end - SOFTMAX, end))
            if k > 0:
                of_values = multiply(w, "values", name("PV", k - 1), max(issued, v_full[k - 1]), VALUES)
                end = max(end, of_values)
                values_free[w][k - 1] = end
            if k == FIRST:
                boxes.append((1 + w, 1, "epilogue", "O", end, end + EPILOGUE))
                end += EPILOGUE
            ready[w] = end
    return boxes


def text(x, y, words, size=12, anchor="middle", colour=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
            f'font-weight="{weight}">{words}</text>')


def draw(boxes):
    rows = [("producer warp", 1), *((f"consumer warpgroup {w}", 2) for w in range(CONSUMERS))]  # title, lanes
    tops, y = [], TOP
    for _, lanes in rows:
        tops.append(y)
        y += LANE * lanes + GAP
    bottom = y - GAP
    right = LEFT + (max(box[5] for box in boxes) + 2) * SCALE
    width, height = round(right + 18), round(bottom + 88)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">',
           "<title>Schedule of the sm90 prefill kernel</title>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           text(14, 24, "Prefill on sm90: two consumer warpgroups, two stages, ping-pong", 15, "start", INK, "bold")]
    for (title, lanes), top in zip(rows, tops):
        out.append(text(14, top + LANE * lanes / 2 + 4, title, 12, "start", INK, "bold"))
        for i in range(lanes):
            out.append(f'<rect x="{LEFT}" y="{top + i * LANE}" width="{right - LEFT:.1f}" height="{LANE}" '
                       f'fill="#f6f8fa" stroke="{LINE}" stroke-width="0.5"/>')
    seam = min(b[4] for b in boxes if b[3] == name("S", FIRST))
    out.append(f'<line x1="{LEFT + seam * SCALE:.1f}" y1="{TOP - 12}" x2="{LEFT + seam * SCALE:.1f}" '
               f'y2="{bottom + 6}" stroke="{FAINT}" stroke-dasharray="4 3"/>')
    out.append(text(LEFT + seam * SCALE - 6, TOP - 14, "work tile", 12, "end", FAINT))
    out.append(text(LEFT + seam * SCALE + 6, TOP - 14, "next work tile (\u2032)", 12, "start", FAINT))
    for row, lane, kind, label, begin, end in boxes:
        x, y = LEFT + begin * SCALE, tops[row] + lane * LANE
        size = 11 if row == 0 else 12
        out.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{(end - begin) * SCALE:.1f}" height="{LANE - 4}" rx="3" '
                   f'fill="{COLOURS[kind]}" stroke="{INK}" stroke-width="0.6"/>')
        out.append(text(x + (end - begin) * SCALE / 2, y + 17, label, size))
    y = bottom + 26
    out.append(f'<line x1="{LEFT}" y1="{bottom + 10}" x2="{right - 40:.1f}" y2="{bottom + 10}" stroke="{FAINT}"/>')
    out.append(f'<path d="M {right - 40:.1f} {bottom + 6} l 8 4 l -8 4 z" fill="{FAINT}"/>')
    out.append(text(right, bottom + 14, "time", 12, "end", FAINT))
    legend = [("load", "K or V tile by TMA"), ("query", "Q by TMA"), ("scores", "S = QK\u1d40 (wgmma)"),
              ("softmax", "online softmax"), ("values", "O += PV (wgmma)"), ("epilogue", "epilogue: O to memory")]
    x = 14
    y = bottom + 34
    for kind, words in legend:
        out.append(f'<rect x="{x}" y="{y}" width="16" height="14" rx="3" fill="{COLOURS[kind]}" stroke="{INK}" '
                   f'stroke-width="0.6"/>')
        out.append(text(x + 22, y + 12, words, 12, "start"))
        x += 40 + round(len(words) * 7)
    out.append(text(14, y + 38, "Upper lane of a consumer: tensor cores; lower lane: CUDA cores. Durations are "
                    "schematic.", 12, "start", FAINT))
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    sys.stdout.write(draw(simulate()))
