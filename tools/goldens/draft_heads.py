#!/usr/bin/env python3
"""Makes tests/draft_heads: tiny random draft heads for models of tests/goldens, and the drafts that they make.

    python3 tools/goldens/draft_heads.py tests/goldens tests/draft_heads

Needs Python's standard library alone; all arithmetic is in fp64 lists, from the published formulas. Each folder
holds config.json and model.safetensors of a head as its trainers write them (mtp: the tensors that the model's own
checkpoint has after its last layer, and keys for its config.json), and drafts.json: for texts of the model (a prompt of its golden.json
and the greedy answer) the drafts after each length, and the gap between the best two logits of each. The model's own
forward pass is checked against golden.json.

The head mtp is compared in bfloat16 too, where a router may choose another expert, so that no bound of the gap tells
which drafts rounding can change. `logits` are those of the first draft, of the first LOGITS ids, and `noise` the most
by which they differ in the passes below. `sure` counts the first drafts of a chain that stay the same in NOISES forward passes
of model and head whose linear layers and norms have relative errors of up to 2^-9 each, as rounding to bfloat16 has.
"""

import json
import math
import random
import struct
import sys
from operator import mul
from pathlib import Path

SEED = 20261127
DRAFTS = 4
NOISES = 12
LOGITS = 24  # ids whose logits are compared
PROMPTS = (1, 2, 5)  # of golden.json: 15, 16 and 33 tokens


# --- safetensors -----------------------------------------------------------------------------------------------------
def bf16(x):
    """x rounded to bfloat16, ties to even."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        values = [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(begin, end, 2)]
        shape = entry["shape"]
        out[name] = values if len(shape) == 1 else [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
    return out


def write_safetensors(path, tensors):
    """`tensors`: name -> (type, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in sorted(tensors.items()):
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[len(data), len(data) + len(content)])
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def stored(values):
    flat = [v for row in values for v in row] if isinstance(values[0], list) else values
    shape = [len(values)] + ([len(values[0])] if isinstance(values[0], list) else [])
    return "BF16", shape, b"".join(struct.pack("<f", v)[2:] for v in flat)


# --- layers ----------------------------------------------------------------------------------------------------------
class Noise:
    """Relative errors of linear() and rms_norm()."""
    random = None  # none

    @classmethod
    def on(cls, x):
        return x if cls.random is None else [v * (1 + 2**-9 * cls.random.uniform(-1, 1)) for v in x]


def dot(a, b):
    return math.fsum(map(mul, a, b))


def linear(weight, x):
    return Noise.on([dot(row, x) for row in weight])


def rms_norm(weight, x, eps):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + eps)
    return Noise.on([w * v * scale for w, v in zip(weight, x)])


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def silu(x):
    return x / (1 + math.exp(-x))


def mlp(w, prefix, x):
    gate, up = linear(w[prefix + "gate_proj.weight"], x), linear(w[prefix + "up_proj.weight"], x)
    return linear(w[prefix + "down_proj.weight"], [silu(g) * u for g, u in zip(gate, up)])


def moe(w, prefix, x, config):
    """Sigmoid scores; chosen by score + bias, weighted by score (one group)."""
    scores = [1 / (1 + math.exp(-s)) for s in linear(w[prefix + "gate.weight"], x)]
    choice = add(scores, w[prefix + "gate.e_score_correction_bias"])
    best = sorted(range(len(choice)), key=lambda e: -choice[e])[:config["num_experts_per_tok"]]
    total = sum(scores[e] for e in best)
    out = mlp(w, prefix + "shared_experts.", x)
    for e in best:
        factor = config["routed_scaling_factor"] * scores[e] / total
        out = add(out, [factor * v for v in mlp(w, f"{prefix}experts.{e}.", x)])
    return out


def frequencies(dim, rope):
    out = []
    for i in range(dim // 2):
        f = rope["rope_theta"] ** (-2 * i / dim)
        if rope.get("rope_type") == "llama3":
            length, original = 2 * math.pi / f, rope["original_max_position_embeddings"]
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            smooth = min(1, max(0, (original / length - low) / (high - low)))
            f = (1 - smooth) * f / rope["factor"] + smooth * f
        out.append(f)
    return out


def rotate(x, position, freqs, interleaved=False):
    half, out = len(x) // 2, list(x)
    for i, f in enumerate(freqs):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        c, s = math.cos(position * f), math.sin(position * f)
        out[a], out[b] = x[a] * c - x[b] * s, x[b] * c + x[a] * s
    return out


def softmax_sum(query, keys, values, scale):
    scores = [scale * dot(query, k) for k in keys]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = math.fsum(weights)
    return [dot(weights, column) / total for column in zip(*values)]


def split(x, count):
    size = len(x) // count
    return [x[i * size:(i + 1) * size] for i in range(count)]


def attention(w, prefix, x, position, cache, config):
    """Grouped-query attention of one more row; `cache` is the list of (k heads, v heads) of the rows before."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    freqs = frequencies(config["head_dim"], config["rope"])
    q = [rotate(h, position, freqs) for h in split(linear(w[prefix + "q_proj.weight"], x), heads)]
    k = [rotate(h, position, freqs) for h in split(linear(w[prefix + "k_proj.weight"], x), kv_heads)]
    v = split(linear(w[prefix + "v_proj.weight"], x), kv_heads)
    cache.append((k, v))
    out = []
    for h in range(heads):
        g = h * kv_heads // heads
        out += softmax_sum(q[h], [row[0][g] for row in cache], [row[1][g] for row in cache],
                           1 / math.sqrt(config["head_dim"]))
    return linear(w[prefix + "o_proj.weight"], out)


def latent_attention(w, prefix, x, position, cache, config):
    """Multi-head latent attention, with keys and values of each head written out."""
    heads, nope, rope = config["num_attention_heads"], config["qk_nope_head_dim"], config["qk_rope_head_dim"]
    rank = config["kv_lora_rank"]
    freqs = frequencies(rope, config["rope"])
    low = rms_norm(w[prefix + "q_a_layernorm.weight"], linear(w[prefix + "q_a_proj.weight"], x), 1e-6)
    q = [h[:nope] + rotate(h[nope:], position, freqs, True)
         for h in split(linear(w[prefix + "q_b_proj.weight"], low), heads)]
    record = linear(w[prefix + "kv_a_proj_with_mqa.weight"], x)
    latent = rms_norm(w[prefix + "kv_a_layernorm.weight"], record[:rank], 1e-6)
    common = rotate(record[rank:], position, freqs, True)
    parts = split(linear(w[prefix + "kv_b_proj.weight"], latent), heads)
    cache.append(([p[:nope] + common for p in parts], [p[nope:] for p in parts]))
    out = []
    for h in range(heads):
        out += softmax_sum(q[h], [row[0][h] for row in cache], [row[1][h] for row in cache],
                           1 / math.sqrt(nope + rope))
    return linear(w[prefix + "o_proj.weight"], out)


def layer(w, prefix, x, position, cache, config):
    """A decoder layer of a model (pre-norm)."""
    eps = config["rms_norm_eps"]
    attend = latent_attention if "kv_lora_rank" in config else attention
    normed = rms_norm(w[prefix + "input_layernorm.weight"], x, eps)
    x = add(x, attend(w, prefix + "self_attn.", normed, position, cache, config))
    normed = rms_norm(w[prefix + "post_attention_layernorm.weight"], x, eps)
    sparse = prefix + "mlp.gate.weight" in w
    return add(x, moe(w, prefix + "mlp.", normed, config) if sparse else mlp(w, prefix + "mlp.", normed))


class Target:
    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.config["rope"] = self.config["rope_parameters"]
        self.w = read_safetensors(folder / "model.safetensors")
        self.layers = self.config["num_hidden_layers"]
        self.prompts = json.loads((folder / "golden.json").read_text())["prompts"]

    def states(self, tokens):
        """For each row: the inputs of all layers, the output of the last, and that after the final norm."""
        caches = [[] for _ in range(self.layers)]
        rows = []
        for position, token in enumerate(tokens):
            row = [self.w["model.embed_tokens.weight"][token]]
            for i in range(self.layers):
                row.append(layer(self.w, f"model.layers.{i}.", row[-1], position, caches[i], self.config))
            row.append(rms_norm(self.w["model.norm.weight"], row[-1], self.config["rms_norm_eps"]))
            rows.append(row)
        return rows

    def check(self, prompt, states):
        """transformers' logits of the prompt's last token."""
        logits = linear(self.w["lm_head.weight"], states[len(prompt["ids"]) - 1][-1])
        error = max(abs(a - b) for a, b in zip(logits, prompt["last_logits"]))
        assert error < 1e-4, error


# --- heads -----------------------------------------------------------------------------------------------------------
class Eagle3:
    """midlayer of EAGLE-3: attention over [embedding, state], the state as the residual stream."""

    def __init__(self, target, w, config, prefix, ids, d2t, before_residual=False, before_fc=False, normed_out=False):
        self.target, self.w, self.config, self.prefix, self.ids, self.d2t = target, w, config, prefix, ids, d2t
        self.before_residual, self.before_fc, self.normed_out = before_residual, before_fc, normed_out
        self.embedding = w.get("embed_tokens.weight", target.w["model.embed_tokens.weight"])

    def state(self, row):
        fused = [v for i in self.ids for v in row[i]]
        if self.before_fc:
            fused = rms_norm(self.w["input_norm.weight"], fused, self.config["rms_norm_eps"])
        return linear(self.w["fc.weight"], fused)

    def step(self, token, state, position, cache):
        """Logits, and the state that continues."""
        eps, w, p = self.config["rms_norm_eps"], self.w, self.prefix
        e = rms_norm(w[p + "input_layernorm.weight"], self.embedding[token], eps)
        h = rms_norm(w[p + "hidden_norm.weight"], state, eps)
        x = add(h if self.before_residual else state, attention(w, p + "self_attn.", e + h, position, cache, self.config))
        x = add(x, mlp(w, p + "mlp.", rms_norm(w[p + "post_attention_layernorm.weight"], x, eps)))
        normed = rms_norm(w["norm.weight"], x, eps)
        return linear(w["lm_head.weight"], normed), normed if self.normed_out else x

    def token(self, best):
        return best + self.d2t[best] if self.d2t else best


class Eagle1:
    """EAGLE: a layer without its first norm on fc of [embedding, state]; the model's head without its norm."""

    def __init__(self, target, w, config):
        self.target, self.w, self.config = target, w, config

    def state(self, row):
        return row[-1]

    def step(self, token, state, position, cache):
        w = self.w
        x = add(linear(w["fc.weight"], self.target.w["model.embed_tokens.weight"][token] + state), w["fc.bias"])
        x = add(x, attention(w, "layers.0.self_attn.", x, position, cache, self.config))
        normed = rms_norm(w["layers.0.post_attention_layernorm.weight"], x, self.config["rms_norm_eps"])
        x = add(x, mlp(w, "layers.0.mlp.", normed))
        return linear(self.target.w["lm_head.weight"], x), x

    def token(self, best):
        return best


class Mtp:
    """DeepSeek's: a whole layer on eh_proj of [norm of embedding, norm of state]; shared_head.norm."""

    def __init__(self, target, w):
        self.target, self.w, self.config = target, w, target.config
        self.prefix = f"model.layers.{target.layers}."

    def state(self, row):
        return row[-1]

    def step(self, token, state, position, cache):
        w, p, eps = self.w, self.prefix, self.config["rms_norm_eps"]
        both = (rms_norm(w[p + "enorm.weight"], self.target.w["model.embed_tokens.weight"][token], eps) +
                rms_norm(w[p + "hnorm.weight"], state, eps))
        x = layer(w, p, linear(w[p + "eh_proj.weight"], both), position, cache, self.config)
        return linear(self.target.w["lm_head.weight"], rms_norm(w[p + "shared_head.norm.weight"], x, eps)), x

    def token(self, best):
        return best


def drafts_of(head, tokens, states, first):
    """The drafts after each length from `first` on: rows with the model's states, then with the head's own."""
    cache, out = [], []
    for row in range(len(tokens) - 1):
        logits, state = head.step(tokens[row + 1], head.state(states[row]), row, cache)
        length = row + 2
        if length < first:
            continue
        drafts, gaps, chain, first_logits = [], [], list(cache), [round(x, 4) for x in logits[:LOGITS]]
        for i in range(DRAFTS):
            order = sorted(range(len(logits)), key=lambda t: -logits[t])
            gaps.append(round(logits[order[0]] - logits[order[1]], 6))
            drafts.append(head.token(order[0]))
            if i + 1 < DRAFTS:
                logits, state = head.step(drafts[-1], state, row + 1 + i, chain)
        out.append(dict(length=length, drafts=drafts, gaps=gaps, logits=first_logits))
    return out


def count_sure(head, texts, found):
    """Adds `sure` and `noise` to the drafts of each text."""
    for drafts in found:
        for at in drafts:
            at["sure"], at["noise"] = DRAFTS, 0
    for seed in range(NOISES):
        Noise.random = random.Random(seed)
        for (prompt, tokens, _), drafts in zip(texts, found):
            noisy = drafts_of(head, tokens, head.target.states(tokens), len(prompt["ids"]) + 1)
            for at, other in zip(drafts, noisy):
                off = max(abs(x - y) for x, y in zip(at["logits"], other["logits"]))
                at["noise"] = max(at["noise"], round(off, 4))
                while at["drafts"][:at["sure"]] != other["drafts"][:at["sure"]]:
                    at["sure"] -= 1
    Noise.random = None


class Weights:
    """Random tensors in bfloat16; norms near 1, so that a forgotten one shows."""

    def __init__(self, seed):
        self.random, self.w = random.Random(seed), {}

    def matrix(self, name, rows, columns, gain=1.2):
        self.w[name] = [[bf16(gain / math.sqrt(columns) * self.random.gauss(0, 1)) for _ in range(columns)]
                        for _ in range(rows)]

    def norm(self, name, size):
        self.w[name] = [bf16(1 + 0.3 * self.random.gauss(0, 1)) for _ in range(size)]

    def bias(self, name, size):
        self.w[name] = [bf16(0.3 * self.random.gauss(0, 1)) for _ in range(size)]

    def mlp(self, prefix, hidden, size):
        self.matrix(prefix + "gate_proj.weight", size, hidden)
        self.matrix(prefix + "up_proj.weight", size, hidden)
        self.matrix(prefix + "down_proj.weight", hidden, size, 2.0)

    def attention(self, prefix, inputs, config):
        size = config["num_attention_heads"] * config["head_dim"]
        kv = config["num_key_value_heads"] * config["head_dim"]
        for name, rows, gain in (("q", size, 1.5), ("k", kv, 1.5), ("v", kv, 1.2)):
            self.matrix(f"{prefix}{name}_proj.weight", rows, inputs, gain)
        self.matrix(prefix + "o_proj.weight", config["hidden_size"], size, 2.0)


def layer_config(hidden, vocab, **more):
    return dict(dict(model_type="llama", hidden_size=hidden, vocab_size=vocab, intermediate_size=72, head_dim=16,
                     num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, hidden_act="silu",
                     rms_norm_eps=1e-5, max_position_embeddings=1024, rope_theta=10000.0, attention_bias=False,
                     tie_word_embeddings=False), **more)


def eagle3_weights(seed, prefix, config, states, draft_vocab):
    hidden, weights = config["hidden_size"], Weights(seed)
    weights.matrix("fc.weight", hidden, states)
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        weights.norm(f"{prefix}{name}.weight", hidden)
    weights.attention(prefix + "self_attn.", 2 * hidden, config)
    weights.mlp(prefix + "mlp.", hidden, config["intermediate_size"])
    weights.norm("norm.weight", hidden)
    weights.matrix("lm_head.weight", draft_vocab, hidden, 3.0)
    return weights


def with_rope(config):
    return dict(config, rope=dict(rope_theta=config["rope_theta"]))


def eagle3(target, out):
    """The original form, with a smaller vocabulary and the model's embedding."""
    vocab, count, ids = target.config["vocab_size"], 190, [0, 1, 2]
    config = layer_config(target.config["hidden_size"], vocab, draft_vocab_size=count, torch_dtype="bfloat16",
                          architectures=["LlamaForCausalLMEagle3"], eagle_aux_hidden_state_layer_ids=ids)
    weights = eagle3_weights(SEED, "midlayer.", config, 3 * target.config["hidden_size"], count)
    chosen = sorted(weights.random.sample(range(vocab), count))
    d2t = [t - i for i, t in enumerate(chosen)]
    tensors = {name: stored(values) for name, values in weights.w.items()}
    tensors["d2t"] = ("I64", [count], struct.pack(f"<{count}q", *d2t))
    tensors["t2d"] = ("BOOL", [vocab], bytes(int(t in chosen) for t in range(vocab)))
    write(out, config, tensors)
    return Eagle3(target, weights.w, with_rope(config), "midlayer.", ids, d2t)


def speculators(target, out):
    """The form of `speculators`: another width, its own embedding, all switches."""
    hidden, vocab, ids = 48, target.config["vocab_size"], [1, 2]
    config = layer_config(hidden, vocab, num_attention_heads=3, num_key_value_heads=1, rope_theta=50000.0)
    states = len(ids) * target.config["hidden_size"]
    weights = eagle3_weights(SEED + 1, "layers.0.", config, states, vocab)
    weights.norm("input_norm.weight", states)
    weights.matrix("embed_tokens.weight", vocab, hidden, math.sqrt(hidden))
    method = dict(proposal_type="greedy", speculative_tokens=3, verifier_accept_k=1, accept_tolerance=0.0)
    whole = dict(architectures=["Eagle3Speculator"], speculators_model_type="eagle3", draft_vocab_size=vocab,
                 dtype="bfloat16", target_hidden_size=target.config["hidden_size"], norm_before_residual=True,
                 norm_before_fc=True, fc_norm=False, norm_output=True, eagle_aux_hidden_state_layer_ids=ids,
                 transformer_layer_config=config,
                 speculators_config=dict(algorithm="eagle3", default_proposal_method="greedy",
                                         proposal_methods=[method]))
    write(out, whole, {name: stored(values) for name, values in weights.w.items()})
    return Eagle3(target, weights.w, with_rope(config), "layers.0.", ids, None, True, True, True)


def eagle1(target, out):
    hidden = target.config["hidden_size"]
    config = layer_config(hidden, target.config["vocab_size"], architectures=["LlamaForCausalLM"], bias=True,
                          torch_dtype="bfloat16")
    weights = Weights(SEED + 2)
    weights.matrix("fc.weight", hidden, 2 * hidden, 1.0)
    weights.bias("fc.bias", hidden)
    weights.attention("layers.0.self_attn.", hidden, config)
    weights.norm("layers.0.post_attention_layernorm.weight", hidden)
    weights.mlp("layers.0.mlp.", hidden, config["intermediate_size"])
    write(out, config, {name: stored(values) for name, values in weights.w.items()})
    return Eagle1(target, weights.w, with_rope(config))


def mtp(target, out):
    c, prefix, weights = target.config, f"model.layers.{target.layers}.", Weights(SEED + 3)
    hidden, heads, expert = c["hidden_size"], c["num_attention_heads"], c["moe_intermediate_size"]
    for name in ("enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"):
        weights.norm(f"{prefix}{name}.weight", hidden)
    weights.matrix(prefix + "eh_proj.weight", hidden, 2 * hidden)
    attend = prefix + "self_attn."
    weights.matrix(attend + "q_a_proj.weight", c["q_lora_rank"], hidden)
    weights.norm(attend + "q_a_layernorm.weight", c["q_lora_rank"])
    size = heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"])
    weights.matrix(attend + "q_b_proj.weight", size, c["q_lora_rank"], 1.5)
    weights.matrix(attend + "kv_a_proj_with_mqa.weight", c["kv_lora_rank"] + c["qk_rope_head_dim"], hidden)
    weights.norm(attend + "kv_a_layernorm.weight", c["kv_lora_rank"])
    weights.matrix(attend + "kv_b_proj.weight", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
    weights.matrix(attend + "o_proj.weight", hidden, heads * c["v_head_dim"], 2.0)
    weights.matrix(prefix + "mlp.gate.weight", c["n_routed_experts"], hidden, 2.0)
    weights.bias(prefix + "mlp.gate.e_score_correction_bias", c["n_routed_experts"])
    weights.mlp(prefix + "mlp.shared_experts.", hidden, expert * c["n_shared_experts"])
    for e in range(c["n_routed_experts"]):
        weights.mlp(f"{prefix}mlp.experts.{e}.", hidden, expert)
    write(out, dict(num_nextn_predict_layers=1), {name: stored(values) for name, values in weights.w.items()})
    return Mtp(target, weights.w)


def write(out, config, tensors):
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_safetensors(out / "model.safetensors", tensors)


HEADS = (("eagle3_bf16", eagle3, "llama3_gqa4_d16_bf16"), ("eagle3_speculators_bf16", speculators, "llama3_gqa4_d16_bf16"),
         ("eagle1_bf16", eagle1, "llama3_gqa4_d16_bf16"), ("mtp_bf16", mtp, "glm4moelite_mla4_bf16"))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    goldens, root = Path(sys.argv[1]), Path(sys.argv[2])
    known = {}
    for name, make, model in HEADS:
        if model not in known:
            target = Target(goldens / model)
            texts = []
            for index in PROMPTS:
                prompt = target.prompts[index]
                tokens = prompt["ids"] + prompt["greedy"]
                states = target.states(tokens)
                target.check(prompt, states)
                texts.append((prompt, tokens, states))
            known[model] = target, texts
        target, texts = known[model]
        head = make(target, root / name)
        lines = []
        all_drafts = [drafts_of(head, tokens, states, len(prompt["ids"]) + 1) for prompt, tokens, states in texts]
        if make is mtp:
            count_sure(head, texts, all_drafts)
        else:
            for at in (at for found in all_drafts for at in found):
                del at["logits"]
        for (prompt, _, _), found in zip(texts, all_drafts):
            text = ",\n  ".join(json.dumps(d, separators=(",", ":")) for d in found)
            ids, answer = (json.dumps(prompt[key], separators=(",", ":")) for key in ("ids", "greedy"))
            lines.append(f'{{"ids":{ids},"answer":{answer},"at":[\n  {text}]}}')
        (root / name / "drafts.json").write_text(f'{{"model":"{model}","texts":[\n' + ",\n".join(lines) + "\n]}\n")
        print(name, "done", flush=True)


if __name__ == "__main__":
    main()
