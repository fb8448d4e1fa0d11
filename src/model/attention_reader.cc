#include "model/attention_reader.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/printable.h"
#include "model/layer_plan.h"
#include "model/mla_fields.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr int kMaxLayers = 10'000, kMaxHeads = 1 << 16, kMaxDim = 1 << 16, kMaxLength = 1 << 30;
constexpr int64_t kMaxHeadDims = 1 << 22;

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

struct Heads {
  int layers = 1, heads = 1, kv_heads = 1, dim = 1, v_dim = 1;
};

int read_layer_count(Fields& f) {
  return f.small(present(f, {"num_hidden_layers", "num_layers", "n_layer", "n_layers"}), 1, kMaxLayers);
}

int read_kv_heads(Fields& f, int heads) {
  // Falcon's first architecture: one KV head regardless of num_kv_heads.
  const bool single = f.boolean("multi_query", false) && !f.boolean("new_decoder_architecture", false);
  if (single) return 1;
  const char* key = present(f, {"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads",
                                "kv_n_heads", "multi_query_group_num"});
  const int kv_heads = f.small(key, 1, kMaxHeads, heads);
  if (heads % kv_heads != 0)
    f.refuse(key, "it must divide the number of attention heads, " + std::to_string(heads));
  return f.ok() ? kv_heads : heads;
}

int read_head_dim(Fields& f, int heads) {
  const char* key = present(f, {"head_dim", "kv_channels", "d_kv", "attention_head_dim"});
  if (f.find(key)) return f.small(key, 1, kMaxDim);
  const char* hidden_key = present(f, {"hidden_size", "n_embd", "d_model", "n_embed", "dim"});
  const int hidden = f.small(hidden_key, 1, 1 << 22);
  if (hidden % heads != 0)
    f.refuse(hidden_key, "without head_dim it must be a multiple of the number of attention heads, " +
                             std::to_string(heads));
  return std::clamp(hidden / heads, 1, kMaxDim);
}

void check_width(Fields& f, const Heads& h) {
  if (int64_t{h.heads} * std::max(h.dim, h.v_dim) > kMaxHeadDims)
    f.refuse("head_dim", "the number of attention heads, " + std::to_string(h.heads) +
                             ", times a head's size may be at most " + std::to_string(kMaxHeadDims));
}

Heads read_heads(TextPart& part) {
  Fields& f = part.fields;
  Heads h;
  h.layers = read_layer_count(f);
  if (const auto& own = part.heads) {
    h.heads = own->num_heads;
    h.kv_heads = own->num_kv_heads;
    h.dim = own->head_dim;
  } else {
    h.heads = f.small(present(f, {"num_attention_heads", "n_head", "n_heads", "num_heads"}), 1, kMaxHeads);
    h.kv_heads = read_kv_heads(f, h.heads);
    h.dim = read_head_dim(f, h.heads);
  }
  h.v_dim = f.small("v_head_dim", 1, kMaxDim, h.dim);
  check_width(f, h);
  return h;
}

AttentionSpec spec_of(const Heads& h, DType dtype) {
  AttentionSpec spec;
  spec.num_heads = h.heads;
  spec.num_kv_heads = h.kv_heads;
  spec.head_dim = h.dim;
  spec.v_head_dim = h.v_dim;
  spec.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h.dim)));
  spec.dtype = dtype;
  return spec;
}

/// The linear attention of layers called `name` in a model of this type; none = not attention, or unknown.
LinearAttention linear_of(std::string_view type, std::string_view name) {
  if (one_of(name, {"gdn", "kda"})) return LinearAttention::gated_delta;
  if (one_of(name, {"lightning_attention", "lightning attention"})) return LinearAttention::lightning;
  if (!one_of(name, {"linear_attention", "linear attention", "linear"})) return LinearAttention::none;
  if (type.starts_with("minimax") || type.starts_with("bailing")) return LinearAttention::lightning;
  if (type.starts_with("qwen3_next") || type.starts_with("qwen3_5") || type == "kimi_linear")
    return LinearAttention::gated_delta;
  return LinearAttention::none;
}

/// The spec of a linear attention layer: its own heads (Qwen3-Next's linear_*, Kimi's linear_attn_config),
/// else those of the model.
AttentionSpec linear_spec(TextPart& part, const Heads& model, LinearAttention linear) {
  Fields& f = part.fields;
  Heads h = model;
  h.heads = f.small("linear_num_value_heads", 1, kMaxHeads, h.heads);
  h.dim = f.small("linear_key_head_dim", 1, kMaxDim, h.dim);
  h.v_dim = f.small("linear_value_head_dim", 1, kMaxDim, h.v_dim);
  if (const Json* own = f.find("linear_attn_config"); own && own->is_object()) {
    Fields nested = f.nested("linear_attn_config");
    h.heads = nested.small("num_heads", 1, kMaxHeads, h.heads);
    h.dim = h.v_dim = nested.small("head_dim", 1, kMaxDim, h.dim);
  }
  h.kv_heads = h.heads;
  check_width(f, h);
  AttentionSpec spec = spec_of(h, part.out.dtype);
  spec.linear = linear;
  return spec;
}

/// Adds layers without softmax attention; those with linear attention get a backend too.
void add_others(TextPart& part, const LayerPlan& plan, const Heads& heads) {
  AttentionShapes& out = part.out;
  for (const auto& [name, count] : plan.others) {
    const std::string them =
        std::to_string(count) + " of " + std::to_string(plan.layers.size()) + " layers are " + name;
    const LinearAttention linear = linear_of(part.type, name);
    if (linear != LinearAttention::none) {
      add_layers(out, linear_spec(part, heads, linear), count);
      out.notes.push_back(them + " (" + std::string(to_string(linear)) +
                          "), with a state in place of KV pages");
      continue;
    }
    out.other_layers += count;
    out.notes.push_back(them + ": they have no softmax attention, and no backend is chosen for them");
  }
}

/// The factor of q.k; Gemma 4 and 3n and GPT-Neo have norms or weights instead.
float read_scale(TextPart& part, float usual) {
  if (part.heads) return part.heads->scale;
  Fields& f = part.fields;
  if (f.find("query_pre_attn_scalar"))
    return static_cast<float>(1.0 / std::sqrt(f.number("query_pre_attn_scalar", 1e-6, 1e6)));
  if (f.find("attention_multiplier")) return static_cast<float>(f.number("attention_multiplier", 1e-6, 1e6));
  if (one_of(part.type, {"gemma4_text", "gemma3n_text", "gpt_neo", "t5", "mt5", "umt5"})) return 1.0f;
  return usual;
}

float read_cap(TextPart& part) {
  if (part.heads) return part.heads->softcap;
  Fields& f = part.fields;
  const char* key = present(f, {"attn_logit_softcapping", "attn_logit_softcap"});
  return f.find(key) ? static_cast<float>(f.number(key, 0, 1e4)) : 0.0f;
}

bool has_alibi(TextPart& part, int hidden_size) {
  if (one_of(part.type, {"bloom"})) return true;
  if (part.type == "baichuan") return hidden_size >= 5120;  // 13B; 7B rotates
  Fields& f = part.fields;
  return f.boolean("alibi", false) || f.is("position_embedding_type", "alibi");
}

bool is_encoder(const TextPart& part) {
  const std::string_view type = part.type;
  return type.find("bert") != type.npos || type.find("deberta") != type.npos ||
         one_of(type, {"electra", "mpnet", "esm", "ernie", "new", "gte", "xlm", "longformer", "layoutlm",
                       "layoutlmv3", "vit", "dinov2", "dinov3_vit"}) ||
         part.out.architecture.ends_with("ForMaskedLM");
}

/// use_bidirectional_attention: true (Gemma 3) or "all" (Gemma 4) for every token.
bool sees_both_ways(Fields& f) {
  constexpr const char* kKey = "use_bidirectional_attention";
  const Json* value = f.find(kKey);
  return (value && value->is_boolean() && value->get<bool>()) || f.is(kKey, "all");
}

/// "vision": tokens of one image.
bool spans_images(Fields& f) {
  return f.is("use_bidirectional_attention", "vision");
}

/// All rows of a sequence see each other, within the window if there is one.
void make_bidirectional(AttentionSpec& spec, AttentionType type) {
  spec.type = type;
  spec.mask.causal = false;
  spec.mask.spans = false;
}

AttentionSpec cross_of(AttentionSpec spec) {
  spec.mask = {};
  make_bidirectional(spec, AttentionType::encoder_decoder);
  return spec;
}

/// MiMo-V2: the sliding layers' own heads.
Heads read_sliding_heads(Fields& f, const Heads& full) {
  Heads h = full;
  h.heads = f.small("swa_num_attention_heads", 1, kMaxHeads, full.heads);
  h.kv_heads = f.small("swa_num_key_value_heads", 1, kMaxHeads, full.kv_heads);
  h.dim = f.small("swa_head_dim", 1, kMaxDim, full.dim);
  h.v_dim = f.small("swa_v_head_dim", 1, kMaxDim, full.v_dim);
  if (h.heads % h.kv_heads != 0)
    f.refuse("swa_num_key_value_heads",
             "it must divide the number of these layers' attention heads, " + std::to_string(h.heads));
  check_width(f, h);
  return h;
}

/// Gemma 4: the full layers' own heads.
Heads read_global_heads(Fields& f, const Heads& sliding) {
  Heads h = sliding;
  if (f.find("global_head_dim")) h.dim = h.v_dim = f.small("global_head_dim", 1, kMaxDim);
  if (f.boolean("attention_k_eq_v", false) && f.find("num_global_key_value_heads")) {
    h.kv_heads = f.small("num_global_key_value_heads", 1, kMaxHeads);
    if (h.heads % h.kv_heads != 0)
      f.refuse("num_global_key_value_heads",
               "it must divide the number of attention heads, " + std::to_string(h.heads));
  }
  check_width(f, h);
  return h;
}

int chunk_of(Fields& f) {
  return f.small("attention_chunk_size", 1, kMaxLength, 8192);
}

/// Gemma 3n and 4: the last layers read keys and values of earlier ones.
int read_shared_layers(Fields& f, int layers) {
  return std::clamp(f.small("num_kv_shared_layers", 0, kMaxLayers, 0), 0, layers);
}

/// Reads layers of one softmax attention each, with any mask.
void read_layers(TextPart& part) {
  Fields& f = part.fields;
  const Heads heads = read_heads(part);
  const int window = read_window(f);
  LayerPlan plan = read_layer_plan(f, part.type, heads.layers, window);
  if (one_of(part.type, {"gemma4_text"}) && plan.layers.back() == LayerSort::sliding)
    plan.layers.back() = LayerSort::full;
  const Heads sliding_heads = read_sliding_heads(f, heads), full_heads = read_global_heads(f, heads);
  const int local = f.small("local_attention", 0, kMaxLength, 0);  // ModernBERT's, both sides together
  const int shared = read_shared_layers(f, heads.layers);
  const bool mutual = sees_both_ways(f), encoder = mutual || is_encoder(part);
  const bool alibi = has_alibi(part, f.find("hidden_size") ? f.small("hidden_size", 1, 1 << 22) : 0);
  const float softcap = read_cap(part);
  const bool all_sinks = part.heads && part.heads->has_sink;
  const bool full_sink = f.boolean("add_full_attention_sink_bias", false);
  const bool sliding_sink = f.boolean("add_swa_attention_sink_bias", part.type == "mimo_v2_flash");
  if (!f.ok()) return;
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerSort sort = plan.layers[i];
    if (sort == LayerSort::other) continue;
    AttentionSpec spec = spec_of(sort == LayerSort::sliding ? sliding_heads : full_heads, part.out.dtype);
    spec.scale = read_scale(part, spec.scale);
    spec.softcap = softcap;
    spec.has_alibi = alibi;
    spec.mask.spans = part.spans || spans_images(f);
    spec.has_sink = all_sinks || (sort == LayerSort::sliding ? sliding_sink : full_sink);
    if (sort == LayerSort::sliding)
      spec.mask.window_left = local > 0 ? local / 2 : mutual ? window / 2 : window - 1;
    if (sort == LayerSort::sliding && spec.mask.window_left < 0) {
      f.refuse(present(f, {"sliding_window", "sliding_window_size", "window_size"}),
               "layer " + std::to_string(i) + " has a sliding window, which needs 1 or more");
      return;
    }
    if (sort == LayerSort::chunked) spec.mask.chunk = chunk_of(f);
    if (static_cast<int>(i) >= heads.layers - shared) spec.needs.insert(Feature::kv_sharing);
    if (encoder) {
      if (spec.mask.window_left >= 0) spec.mask.window_right = spec.mask.window_left;
      make_bidirectional(spec, AttentionType::encoder_only);
    }
    add_layers(part.out, sort == LayerSort::cross ? cross_of(spec) : spec);
  }
  add_others(part, plan, heads);
}

/// Multi-head latent attention, absorbed: every head reads one latent row of kv_lora_rank numbers and the
/// rotated part of its key; the latent row is the value too.
void read_mla(TextPart& part) {
  Fields& f = part.fields;
  Heads heads;
  heads.layers = read_layer_count(f);
  heads.heads = f.small(present(f, {"num_attention_heads", "n_heads"}), 1, kMaxHeads);
  const int rank = f.small("kv_lora_rank", 1, kMaxDim / 2);
  AttentionSpec spec;
  spec.use_mla = true;
  spec.mla_rope_head_dim = f.small("qk_rope_head_dim", 0, kMaxDim / 2, 64);
  spec.mla_nope_head_dim = f.small("qk_nope_head_dim", 1, kMaxDim / 2, 128);
  spec.mla_v_head_dim = f.small("v_head_dim", 1, kMaxDim, 128);
  spec.num_heads = heads.heads;
  spec.num_kv_heads = 1;
  heads.dim = spec.head_dim = rank + spec.mla_rope_head_dim;
  heads.v_dim = spec.v_head_dim = rank;
  check_width(f, heads);
  const double dims = spec.mla_nope_head_dim + spec.mla_rope_head_dim;
  spec.scale = static_cast<float>(read_mla_rope_scale(f) / std::sqrt(dims));
  spec.dtype = part.out.dtype;
  spec.use_sparse = f.find("index_topk") != nullptr;
  const int topk = spec.use_sparse ? f.small("index_topk", 1, kMaxLength) : 0;
  const LayerPlan plan = read_linear_plan(f, heads.layers);
  if (!f.ok()) return;
  const auto attends = [](LayerSort sort) { return sort == LayerSort::full; };
  add_layers(part.out, spec, static_cast<int>(std::ranges::count_if(plan.layers, attends)));
  Heads plain = heads;
  plain.dim = spec.mla_nope_head_dim;
  plain.v_dim = spec.mla_v_head_dim;
  add_others(part, plan, plain);
  if (topk > 0) note_indexer(part.out, topk);
}

/// DeepSeek V4: latent rows of head_dim numbers that are key and value, windowed or compressed and chosen by
/// an indexer, with sink logits.
void read_deepseek_v4(TextPart& part) {
  Fields& f = part.fields;
  Heads heads;
  heads.layers = f.small("num_hidden_layers", 1, kMaxLayers, 43);
  heads.heads = f.small("num_attention_heads", 1, kMaxHeads, 64);
  heads.dim = heads.v_dim = f.small("head_dim", 2, kMaxDim, 512);
  check_width(f, heads);
  AttentionSpec spec = spec_of(heads, part.out.dtype);
  spec.num_kv_heads = 1;
  spec.use_mla = spec.use_sparse = spec.has_sink = true;
  spec.mla_rope_head_dim = f.small("qk_rope_head_dim", 1, heads.dim - 1, std::min(64, heads.dim - 1));
  spec.mla_nope_head_dim = heads.dim - spec.mla_rope_head_dim;
  spec.mla_v_head_dim = heads.dim;
  if (!f.ok()) return;
  add_layers(part.out, spec, heads.layers);
  part.out.notes.push_back(
      "compressed and windowed layers count as one kind here; the documented backends for this model serve "
      "both");
}

/// BART, Whisper, Marian, ...: what transformers calls encoder_layers and decoder_layers.
void read_encoder_decoder(TextPart& part) {
  Fields& f = part.fields;
  const int width = f.small("d_model", 1, 1 << 22);
  const auto side = [&](const char* layers_key, const char* heads_key) {
    Heads h;
    h.layers = f.small(layers_key, 1, kMaxLayers);
    h.heads = h.kv_heads = f.small(heads_key, 1, kMaxHeads);
    if (width % h.heads != 0) f.refuse(heads_key, "it must divide d_model = " + std::to_string(width));
    h.dim = h.v_dim = std::clamp(width / h.heads, 1, kMaxDim);
    check_width(f, h);
    return h;
  };
  const Heads decoder = side("decoder_layers", "decoder_attention_heads");
  const Heads encoder = side("encoder_layers", "encoder_attention_heads");
  if (!f.ok()) return;
  const AttentionSpec spec = spec_of(decoder, part.out.dtype);
  AttentionSpec whole = spec_of(encoder, part.out.dtype);
  make_bidirectional(whole, AttentionType::encoder);
  add_layers(part.out, spec, decoder.layers);
  add_layers(part.out, cross_of(spec), decoder.layers);
  add_layers(part.out, whole, encoder.layers);
}

/// T5: scores aren't scaled and have a learned bias by distance.
void read_t5(TextPart& part) {
  Fields& f = part.fields;
  const Heads heads = read_heads(part);
  const int decoders = f.small("num_decoder_layers", 1, kMaxLayers, heads.layers);
  if (!f.ok()) return;
  AttentionSpec spec = spec_of(heads, part.out.dtype);
  spec.scale = 1.0f;
  AttentionSpec encoder = spec;
  make_bidirectional(encoder, AttentionType::encoder);
  add_layers(part.out, spec, decoders);
  add_layers(part.out, cross_of(spec), decoders);
  add_layers(part.out, encoder, heads.layers);
  part.out.notes.push_back(
      "self-attention adds a learned bias by distance to the scores, which no documented backend "
      "supports; it isn't among the reasons below");
}

/// MPT and DBRX keep some of the fields in a nested object.
void read_attn_config(TextPart& part) {
  Fields& f = part.fields;
  Heads heads;
  heads.layers = read_layer_count(f);
  heads.heads = f.small("n_heads", 1, kMaxHeads);
  heads.dim = heads.v_dim = read_head_dim(f, heads.heads);
  check_width(f, heads);
  heads.kv_heads = heads.heads;
  const Json* object = f.find("attn_config");
  if (object && !object->is_object()) f.refuse("attn_config", "an object is needed");
  if (!f.ok()) return;
  AttentionSpec spec = spec_of(heads, part.out.dtype);
  if (object) {
    Fields nested = f.nested("attn_config");
    spec.num_kv_heads = read_kv_heads(nested, heads.heads);
    spec.has_alibi = nested.boolean("alibi", false);
    if (nested.find("softmax_scale"))
      spec.scale = static_cast<float>(nested.number("softmax_scale", 1e-6, 1e6));
    if (nested.string("attn_type", "multihead_attention") == "multiquery_attention") spec.num_kv_heads = 1;
  }
  if (f.ok()) add_layers(part.out, spec, heads.layers);
}

void note_no_attention(TextPart& part) {
  part.out.other_layers = read_layer_count(part.fields);
  part.out.notes.push_back("no layer has softmax attention: there is nothing to choose a backend for");
}

/// Model types without a Family whose fields have the meaning that read_layers() assumes.
constexpr std::string_view kPlainTypes[] = {
    "ministral",
    "mistral3",
    "qwen2_moe",
    "qwen2_vl",
    "qwen2_vl_text",
    "qwen2_5_vl",
    "qwen2_5_vl_text",
    "qwen3_vl",
    "qwen3_vl_text",
    "qwen3_vl_moe_text",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "gemma",
    "gemma3n_text",
    "gemma4_text",
    "granitemoe",
    "granitemoehybrid",
    "olmo",
    "olmo3",
    "phi",
    "phimoe",
    "starcoder2",
    "gpt_bigcode",
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "opt",
    "falcon",
    "falcon_h1",
    "bloom",
    "cohere",
    "cohere2",
    "stablelm",
    "minimax",
    "minimax_text_01",
    "minimax_m1",
    "minimax_m2",
    "mimo_v2_flash",
    "jamba",
    "bamba",
    "nemotron",
    "nemotron_h",
    "zamba2",
    "lfm2",
    "chatglm",
    "glm",
    "glm4",
    "glm4_moe",
    "internlm2",
    "internlm3",
    "baichuan",
    "exaone",
    "exaone4",
    "smollm3",
    "seed_oss",
    "mllama_text_model",
    "albert",
    "electra",
    "mpnet",
    "modernbert",
    "deberta",
    "deberta-v2",
    "nomic_bert",
    "esm",
    "ernie",
};

}  // namespace

void note_indexer(AttentionShapes& out, int topk) {
  out.notes.push_back("an indexer chooses " + std::to_string(topk) +
                      " keys for each query; its own cache of keys isn't part of this choice");
}

void read_attention_fields(TextPart& part) {
  Fields& f = part.fields;
  const std::string_view type = part.type;
  if (type == "deepseek_v4") return read_deepseek_v4(part);
  if (f.find("kv_lora_rank") && f.boolean("use_mla", true)) return read_mla(part);
  if (one_of(type, {"t5", "mt5", "umt5", "longt5"})) return read_t5(part);
  if (f.find("decoder_layers") && f.find("encoder_layers")) return read_encoder_decoder(part);
  if (one_of(type, {"mpt", "dbrx"})) return read_attn_config(part);
  if (one_of(type, {"mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"})) return note_no_attention(part);
  if (!part.heads && std::ranges::find(kPlainTypes, type) == std::end(kPlainTypes))
    part.out.notes.push_back((type.empty() ? "the file names no model_type"
                                           : "model_type \"" + printable(type) + "\" isn't known") +
                             std::string(": its layers were read by the usual names of the fields"));
  if (type.starts_with("deberta"))
    part.out.notes.push_back("scores have further terms by relative position, which no backend supports");
  read_layers(part);
}

}  // namespace fovea
