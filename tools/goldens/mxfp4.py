"""MXFP4 expert weights of gpt-oss: 32 elements of 4 bits (e2m1) share a power of two. Layout: for a matrix
[experts, out, in], blocks uint8 [experts, out, in / 32, 16] hold two elements a byte, the even one in the low bits;
scales uint8 [experts, out, in / 32] are exponents with bias 127. The plain form is [experts, in, out]."""

import json

import torch
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 32


def encode(plain):
    """[experts, in, out] -> blocks, scales. The largest element of a block becomes 4 to 6 times the scale."""
    rows = plain.float().transpose(1, 2).contiguous()
    groups = rows.reshape(*rows.shape[:2], -1, BLOCK)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1).clamp_min(2.0**-120))) - 2
    scaled = groups / torch.exp2(exponent)[..., None]
    code = (scaled.abs()[..., None] - E2M1).abs().argmin(-1).to(torch.uint8) | ((scaled < 0).to(torch.uint8) << 3)
    return code[..., 0::2] | (code[..., 1::2] << 4), (exponent + 127).to(torch.uint8)


def decode(blocks, scales):
    """blocks, scales -> [experts, in, out] fp32."""
    code = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2).long()
    value = E2M1[code & 7] * torch.where(code >= 8, -1.0, 1.0)
    rows = value * torch.exp2(scales.float() - 127)[..., None]
    return rows.flatten(-2).transpose(1, 2).contiguous()


def is_expert_matrix(name):
    return name.endswith(("experts.gate_up_proj", "experts.down_proj"))


@torch.no_grad()
def round_experts(model):
    """Moves every expert weight to a value that MXFP4 holds; those are exact in bfloat16."""
    for name, p in model.named_parameters():
        if is_expert_matrix(name):
            rounded = decode(*encode(p)).to(p.dtype)
            assert torch.equal(rounded.float(), decode(*encode(p)))
            p.copy_(rounded)


def store_experts_as_blocks(directory):
    """Replaces the plain expert matrices of a checkpoint by blocks and scales, and declares this in config.json."""
    path = directory / "model.safetensors"
    tensors = {}
    for name, value in load_file(path).items():
        if is_expert_matrix(name):
            blocks, scales = encode(value)
            assert torch.equal(decode(blocks, scales), value.float())
            tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        else:
            tensors[name] = value
    save_file(tensors, path, metadata={"format": "pt"})
    for name in ("config.json", "config.v4.json"):
        config = json.loads((directory / name).read_text())
        config["quantization_config"] = dict(
            quant_method="mxfp4",
            modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
        (directory / name).write_text(json.dumps(config, indent=2) + "\n")
