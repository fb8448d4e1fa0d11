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
import traceback
from pathlib import Path

import safetensors
import torch
import transformers
from transformers import AutoModelForCausalLM

import encoders
import mxfp4
from decoders import BOS, EOS, MODELS, TOKENIZER_SIZE

SEED = 20251120
GREEDY_TOKENS = 16
LOGIT_STD = 3.0  # like a trained model's; the gaps between logits are then far above fp32 noise
CONFIGS = {
    "llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "mistral": "MistralConfig",
    "gemma2": "Gemma2Config", "gemma3": "Gemma3TextConfig", "olmo2": "Olmo2Config", "granite": "GraniteConfig",
    "phi3": "Phi3Config", "llama4": "Llama4TextConfig", "mixtral": "MixtralConfig", "qwen3_moe": "Qwen3MoeConfig",
    "gpt_oss": "GptOssConfig", "deepseek_v2": "DeepseekV2Config", "deepseek_v3": "DeepseekV3Config",
    "deepseek_v32": "DeepseekV32Config", "glm4_moe_lite": "Glm4MoeLiteConfig", "glm_moe_dsa": "GlmMoeDsaConfig",
    "minicpm3": "MiniCPM3Config", "longcat_flash": "LongcatFlashConfig",
}
NORMS_FROM_ZERO = ("gemma2", "gemma3")  # their norms multiply by 1 + w


@torch.no_grad()
def perturb(model, generator, family):
    """Gives every parameter values that matter: a norm of ones or a bias of zeros would hide its absence."""
    config = model.config
    hidden, tied = config.hidden_size, config.tie_word_embeddings
    expert_size = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    # What the model multiplies its logits and its embeddings by is divided out, so that both keep their size.
    logit_std = LOGIT_STD * getattr(config, "logits_scaling", 1.0) / math.sqrt(hidden)
    if getattr(config, "dim_model_base", None):
        logit_std *= hidden / config.dim_model_base
    shift = -1.0 if family in NORMS_FROM_ZERO else 0.0
    biases = [(name, b) for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]
    for name, p in sorted(list(model.named_parameters()) + biases):
        noise = torch.randn(p.shape, generator=generator)
        last = name.split(".")[-1]
        if last.endswith("bias"):
            p.copy_(0.3 * noise)
        elif "q_norm" in name or "k_norm" in name:
            p.copy_(1.4 + shift + 0.3 * noise)  # scores of std 1.4^2: attention that is not nearly uniform
        elif family in NORMS_FROM_ZERO and ("post_attention" in name or "post_feedforward" in name):
            p.copy_(3.0 + shift + 0.5 * noise)  # what a block adds is to outweigh the scaled embedding
        elif "norm" in name:
            p.copy_(1.0 + shift + 0.3 * noise)
        elif last == "sinks":
            p.copy_(1.5 * noise)
        elif "lm_head" in name or ("embed_tokens" in name and tied):
            p.copy_(logit_std * noise)
        elif "embed_tokens" in name:
            p.copy_(noise)
        elif p.dim() == 3:  # [experts, in, out], or [experts, out, in] where transformers keeps them so
            fan_in = hidden if "gate_up" in name else expert_size
            p.copy_((2.0 if "down" in name else 1.2) / math.sqrt(fan_in) * noise)
        elif p.dim() == 2:
            # q and k as above; o and down so that the layers outweigh the embedding in the residual stream.
            gains = {"q_proj": 1.5, "k_proj": 1.5, "qkv_proj": 1.5, "o_proj": 2.0, "down_proj": 2.0, "router": 2.0,
                     "gate": 2.0, "classifier": 3.0}
            p.copy_(gains.get(name.split(".")[-2], 1.2) / math.sqrt(p.shape[1]) * noise)
        else:
            raise ValueError(f"no rule for {name} {tuple(p.shape)}")


def v4_rope(parameters, old):
    """rope_parameters as the rope_theta and rope_scaling of transformers 4."""
    parameters = dict(parameters)
    old["rope_theta"] = parameters.pop("rope_theta")
    parameters.pop("partial_rotary_factor", None)
    kind = parameters.pop("rope_type")
    if kind == "default":
        old["rope_scaling"] = None
    elif kind in ("linear", "longrope"):
        old["rope_scaling"] = {"type": kind, **parameters}  # the spelling before rope_type
    else:
        old["rope_scaling"] = {**parameters, "rope_type": kind}


def v4_config(config):
    """The v5 config.json respelled as v4 wrote it: rope_theta, rope_scaling, torch_dtype, defaults left out."""
    old = dict(config)
    parameters = old.pop("rope_parameters")
    if "full_attention" in parameters:  # Gemma 3: two bases
        old["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        old["sliding_window_pattern"] = old["layer_types"].index("full_attention") + 1
        v4_rope(parameters["full_attention"], old)
    else:
        v4_rope(parameters, old)
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.51.0"
    if old["model_type"] != "gpt_oss":
        old.pop("layer_types", None)
    if old["model_type"] in ("gemma2", "gemma3_text"):
        old.pop("tie_word_embeddings", None)
    # Absent means hidden_size / heads for most, but 64 for gpt-oss.
    if old.get("head_dim", 0) * old["num_attention_heads"] == old["hidden_size"] and old["model_type"] != "gpt_oss":
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
    config = getattr(transformers, CONFIGS[spec.family])(**spec.config)
    generator = torch.Generator().manual_seed(SEED + index)
    random_ids = random.Random(SEED + index)
    model = AutoModelForCausalLM.from_config(config)
    perturb(model, generator, spec.family)
    model.to(spec.dtype)
    if spec.mxfp4:
        mxfp4.round_experts(model)
    model.save_pretrained(out, max_shard_size=spec.max_shard_size)
    write_json(out / "config.v4.json", v4_config(json.loads((out / "config.json").read_text())))
    write_tokenizer(out)

    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    assert model.config._attn_implementation == "eager"
    assert all(p.dtype == torch.float32 for p in model.parameters())
    if spec.mxfp4:
        mxfp4.store_experts_as_blocks(out)
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
    failed = []
    jobs = [(spec.name, lambda out, spec=spec, index=index: make(spec, out, index)) for index, spec in enumerate(MODELS)]
    for name, job in jobs + encoders.jobs(write_tokenizer):
        out = root / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        try:
            job(out)
        except Exception:  # the others are still worth having; the exit code says that one is missing
            traceback.print_exc()
            shutil.rmtree(out)
            failed.append(name)
    files = {d.name: {f.name: f.stat().st_size for f in sorted(d.iterdir())} for d in sorted(root.iterdir()) if d.is_dir()}
    check_tokenizer(root / MODELS[0].name)
    write_json(root / "MANIFEST.json", dict(made_by="tools/goldens/make.py", seed=SEED, versions=versions,
                                            attention="eager, fp32, CPU", files=files))
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
