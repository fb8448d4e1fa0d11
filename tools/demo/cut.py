#!/usr/bin/env python3
"""Cuts a draft model out of the demo model: its first layers, with the same embedding, norm and tokens.

    python3 tools/demo/cut.py models/demo build/demo-draft [LAYERS]

Needs Python's standard library alone. LAYERS: 4 of 6 unless given. README.md has what its drafts are worth.
"""

import json
import shutil
import struct
import sys
from pathlib import Path


def cut(source, target, layers):
    data = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, kept = {}, b""
    for name, entry in sorted(json.loads(data[8:8 + size]).items()):
        if name == "__metadata__" or (name.startswith("model.layers.") and int(name.split(".")[2]) >= layers):
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        header[name] = dict(entry, data_offsets=[len(kept), len(kept) + end - begin])
        kept += data[begin:end]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + kept)
    config = json.loads((source / "config.json").read_text())
    config["num_hidden_layers"] = layers
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, target / name)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, layers = Path(sys.argv[1]), int(sys.argv[3]) if len(sys.argv) == 4 else 4
    most = json.loads((source / "config.json").read_text())["num_hidden_layers"]
    if not 1 <= layers <= most:
        sys.exit(f"LAYERS is {layers}; the model has 1 to {most}")
    cut(source, Path(sys.argv[2]), layers)


if __name__ == "__main__":
    main()
