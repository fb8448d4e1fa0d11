#!/usr/bin/env python3
"""Makes the golden fixtures of tests/goldens: tiny random models and what transformers computes with them.

    python3 tools/goldens/make.py OUT_DIR

Each model of MODELS becomes OUT_DIR/NAME with config.json (as transformers writes it), config.v4.json (the same
config in transformers v4's spelling), the weights, a byte-level tokenizer and golden.json. The logits come from
eager attention in fp32 on a CPU, of the weights as they were stored (16-bit checkpoints are upcast).
"""

import json
import math
import random
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

SEED = 20251120
BOS, EOS = 256, 257
TOKENIZER_SIZE = 258  # the 256 bytes, <s> and </s>
LENGTHS = [1, 15, 16, 17, 31, 33, 100, 200]  # one token; a page of 16 +-1, two +-1; many chunks of 16
LONG = LENGTHS + [700]  # also more than one chunk of 512
GREEDY_TOKENS = 16
LARGE_EPS = 1e-3  # changes logits by more than the test's 1e-3; the usual 1e-5 and 1e-6 do not
LOGIT_STD = 3.0  # like a trained model's; the gaps between logits are then far above fp32 noise


@dataclass
class Spec:
    """One fixture; `config` goes to the transformers config class as it is."""

    name: str
    family: str  # "llama" or "qwen3"
    dtype: torch.dtype
    config: dict
    lengths: list = field(default_factory=lambda: LENGTHS)
    max_shard_size: str = "1GB"


def shape(hidden, inter, layers, heads, kv_heads, head_dim, vocab=TOKENIZER_SIZE, **more):
    return dict(
        hidden_size=hidden, intermediate_size=inter, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, max_position_embeddings=1024,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=None, **more)


def rope(theta, kind="default", **more):
    return dict(rope_theta=theta, rope_type=kind, **more)


def llama3_rope(factor, original):
    return rope(500000.0, "llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=original)


F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
MODELS = [
    Spec("llama2_mha_d16_fp32", "llama", F32,
         shape(32, 72, 2, 2, 2, 16, rms_norm_eps=1e-5, rope_parameters=rope(10000.0))),
    Spec("llama3_gqa4_d16_bf16", "llama", BF16,
         shape(64, 96, 2, 4, 1, 16, rms_norm_eps=1e-5, rope_parameters=llama3_rope(8.0, 64)), lengths=LONG),
    Spec("llama32_gqa4_d64_fp16", "llama", F16,
         shape(32, 64, 2, 4, 1, 64, rms_norm_eps=1e-5, rope_parameters=llama3_rope(32.0, 128),
               tie_word_embeddings=True)),
    Spec("llama_linear_gqa3_d24_fp16", "llama", F16,
         shape(48, 80, 3, 3, 1, 24, rms_norm_eps=1e-6, rope_parameters=rope(10000.0, "linear", factor=4.0),
               tie_word_embeddings=True)),
    Spec("llama_bias_gqa2_d16_fp32", "llama", F32,
         shape(32, 64, 2, 4, 2, 16, rms_norm_eps=LARGE_EPS, rope_parameters=rope(10000.0), attention_bias=True,
               mlp_bias=True, tie_word_embeddings=True)),
    Spec("llama_padded_gqa5_d16_bf16_sharded", "llama", BF16,
         shape(40, 56, 3, 5, 1, 16, vocab=320, rms_norm_eps=1e-5, rope_parameters=rope(500000.0)),
         max_shard_size="40KB"),
    Spec("qwen3_gqa2_d32_bf16", "qwen3", BF16,
         shape(48, 64, 3, 4, 2, 32, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), tie_word_embeddings=True),
         lengths=LONG),
    Spec("qwen3_gqa3_d64_bf16", "qwen3", BF16,
         shape(32, 48, 2, 3, 1, 64, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0))),
    Spec("qwen3_gqa5_d80_bf16", "qwen3", BF16,
         shape(32, 40, 2, 5, 1, 80, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0), tie_word_embeddings=True)),
    Spec("qwen3_gqa7_d128_bf16", "qwen3", BF16,
         shape(24, 40, 2, 7, 1, 128, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0),
               tie_word_embeddings=True)),
    Spec("qwen3_bias_gqa4_d16_fp32_sharded", "qwen3", F32,
         shape(32, 56, 2, 4, 1, 16, rms_norm_eps=LARGE_EPS, rope_parameters=rope(1000000.0), attention_bias=True),
         max_shard_size="50KB"),
    Spec("qwen3_padded_gqa7_d16_fp16", "qwen3", F16,
         shape(32, 56, 3, 14, 2, 16, vocab=288, rms_norm_eps=1e-6, rope_parameters=rope(1000000.0),
               tie_word_embeddings=True)),
]


@torch.no_grad()
def perturb(model, generator):
    """Gives every parameter values that matter: a norm of ones or a bias of zeros would hide its absence."""
    hidden = model.config.hidden_size
    tied = model.config.tie_word_embeddings
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("bias"):
            p.copy_(0.3 * noise)
        elif "q_norm" in name or "k_norm" in name:
            p.copy_(1.4 + 0.3 * noise)  # scores of std 1.4^2: attention that is not nearly uniform
        elif "norm" in name:
            p.copy_(1.0 + 0.3 * noise)
        elif "lm_head" in name or ("embed_tokens" in name and tied):
            p.copy_(LOGIT_STD / math.sqrt(hidden) * noise)
        elif "embed_tokens" in name:
            p.copy_(noise)
        else:
            # q and k as above; o and down so that the layers outweigh the embedding in the residual stream.
            gain = {"q_proj": 1.5, "k_proj": 1.5, "o_proj": 2.0, "down_proj": 2.0}.get(name.split(".")[-2], 1.2)
            p.copy_(gain / math.sqrt(p.shape[1]) * noise)


def v4_config(config):
    """The v5 config.json respelled as v4 wrote it: rope_theta, rope_scaling, torch_dtype, defaults left out."""
    old = dict(config)
    parameters = dict(old.pop("rope_parameters"))
    old["rope_theta"] = parameters.pop("rope_theta")
    kind = parameters.pop("rope_type")
    if kind == "default":
        old["rope_scaling"] = None
    elif kind == "linear":
        old["rope_scaling"] = {"type": "linear", **parameters}  # the spelling before rope_type
    else:
        old["rope_scaling"] = {**parameters, "rope_type": kind}
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.51.0"
    old.pop("layer_types", None)
    if old["head_dim"] * old["num_attention_heads"] == old["hidden_size"]:
        old.pop("head_dim")
    if old["num_key_value_heads"] == old["num_attention_heads"] and old["model_type"] == "llama":
        old.pop("num_key_value_heads")
    for key in ("attention_bias", "mlp_bias"):
        if old.get(key) is False:
            old.pop(key)
    return old


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def byte_alphabet():
    """GPT-2's printable stand-ins for the 256 bytes, in byte order."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = iter(range(0x100, 0x200))
    return [chr(b) if b in plain else chr(next(shifted)) for b in range(256)]


def write_tokenizer(out):
    """A byte-level BPE without merges: one token a byte, <s> and </s>."""
    special = [dict(id=i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False,
                    special=True) for i, text in ((BOS, "<s>"), (EOS, "</s>"))]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    vocab = {c: i for i, c in enumerate(byte_alphabet())}
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                 fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=[])
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None,
                     pre_tokenizer=byte_level, post_processor=None, decoder=byte_level, model=model)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n", encoding="utf-8")
    write_json(out / "tokenizer_config.json",
               dict(bos_token="<s>", eos_token="</s>", tokenizer_class="PreTrainedTokenizerFast"))


@torch.no_grad()
def logits_of(model, ids):
    """[len(ids), vocab] fp32, without a KV cache."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def golden_of(model, ids):
    """One prompt's record. Logits and log-probabilities are over the whole vocabulary; greedy tokens over the
    tokenizer's ids, because the rows that pad the vocabulary stand for no text."""
    rows = logits_of(model, ids)
    last = rows[-1]
    logprobs = torch.log_softmax(rows, dim=-1)
    record = dict(ids=ids, last_logits=[round(x, 6) for x in last.tolist()],
                  logprobs=[round(logprobs[i, t].item(), 6) for i, t in enumerate(ids[1:])], greedy=[], gaps=[])
    sequence = list(ids)
    for _ in range(GREEDY_TOKENS):
        top = torch.topk(logits_of(model, sequence)[-1, :TOKENIZER_SIZE], 2)
        record["greedy"].append(top.indices[0].item())
        record["gaps"].append(round((top.values[0] - top.values[1]).item(), 6))
        sequence.append(record["greedy"][-1])
    return record


def make(spec, out, index):
    config_class = {"llama": LlamaConfig, "qwen3": Qwen3Config}[spec.family]
    generator = torch.Generator().manual_seed(SEED + index)
    random_ids = random.Random(SEED + index)
    model = AutoModelForCausalLM.from_config(config_class(**spec.config))
    perturb(model, generator)
    model.to(spec.dtype).save_pretrained(out, max_shard_size=spec.max_shard_size)
    write_json(out / "config.v4.json", v4_config(json.loads((out / "config.json").read_text())))
    write_tokenizer(out)

    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    assert model.config._attn_implementation == "eager"
    assert all(p.dtype == torch.float32 for p in model.parameters())
    prompts = [golden_of(model, [random_ids.randrange(TOKENIZER_SIZE) for _ in range(n)]) for n in spec.lengths]
    head = dict(name=spec.name, family=spec.family, checkpoint_dtype=str(spec.dtype).removeprefix("torch."),
                tokenizer_size=TOKENIZER_SIZE, vocab_size=model.config.vocab_size)
    lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in prompts)
    (out / "golden.json").write_text(json.dumps(head)[:-1] + ', "prompts": [\n' + lines + "\n]}\n")

    logits = torch.tensor([p["last_logits"] for p in prompts])
    gaps = torch.tensor([p["gaps"] for p in prompts])
    distinct = len({t for p in prompts for t in p["greedy"]})
    size = sum(f.stat().st_size for f in out.iterdir())
    print(f"{spec.name:36} logit std {logits.std():.2f}  gaps under 2e-3: {(gaps <= 2e-3).sum()} of {gaps.numel()}"
          f"  distinct greedy tokens {distinct}  {size} bytes", flush=True)
    return {f.name: f.stat().st_size for f in sorted(out.iterdir())}


def check_tokenizer(directory):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == TOKENIZER_SIZE
    assert tokenizer.encode("aé\n</s>", add_special_tokens=False).ids == [97, 0xC3, 0xA9, 10, EOS]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(4)
    torch.use_deterministic_algorithms(True)
    root = Path(sys.argv[1])
    versions = dict(transformers=transformers.__version__, torch=torch.__version__,
                    safetensors=safetensors.__version__, python=sys.version.split()[0])
    print(versions, flush=True)
    files = {}
    for index, spec in enumerate(MODELS):
        out = root / spec.name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        files[spec.name] = make(spec, out, index)
    check_tokenizer(root / MODELS[0].name)
    write_json(root / "MANIFEST.json", dict(made_by="tools/goldens/make.py", seed=SEED, versions=versions,
                                            attention="eager, fp32, CPU", files=files))


if __name__ == "__main__":
    main()
