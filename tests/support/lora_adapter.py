"""Writes LoRA adapters in PEFT's format for the model tests/goldens/llama3_gqa4_d16_bf16."""
import json
import os
import random
import struct

HIDDEN, HEADS, MLP, LAYERS = 64, 64, 96, 2


def write_adapter(folder, seed, rank=4, config=None, shape=None):
    """An adapter of q_proj and down_proj that changes the answers."""
    os.makedirs(folder)
    random.seed(seed)
    header, data = {}, b""
    for layer in range(LAYERS):
        for module, n, k in (("self_attn.q_proj", HEADS, HIDDEN), ("mlp.down_proj", HIDDEN, MLP)):
            for name, rows, columns, size in (("A", rank, k, 1.0), ("B", n, rank, 0.05)):
                rows, columns = shape or (rows, columns)
                values = struct.pack(f"<{rows * columns}f", *(random.gauss(0, size) for _ in range(rows * columns)))
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{name}.weight"] = {
                    "dtype": "F32", "shape": [rows, columns], "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump({"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": ["q_proj", "down_proj"], **(config or {})}, file)
    return folder
