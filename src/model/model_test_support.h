#pragma once
// Test support for models: tiny models on disk, an independent plain fp64 forward of the dense decoders, and
// a runner that steps sequences through a Model with a paged cache.
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <numbers>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "attention/phased.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/cpu/linear.h"
#include "model/gemma.h"
#include "model/granite.h"
#include "model/kv_groups.h"
#include "model/llama4.h"
#include "model/model.h"
#include "model/rope.h"

namespace fovea::test {

/// A tiny config: GQA 2, a head size that is not hidden / heads, sizes that no vector width divides.
inline ModelConfig tiny_config(const std::string& architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab_size = 77;
  c.hidden_size = 40;
  c.intermediate_size = 51;
  c.num_layers = 3;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 24;
  c.max_position = 4096;
  c.norm_eps = 1e-5f;
  c.qk_norm = architecture == "Qwen3ForCausalLM" ? QkNorm::head : QkNorm::none;
  c.ropes.resize(1);
  c.layers.resize(3);
  return c;
}

struct TensorValues {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Weights = std::map<std::string, TensorValues>;

/// The norms before attention, after it, before the MLP and after it; empty where there is none.
inline std::array<std::string, 4> layer_norms(const ModelConfig& c) {
  switch (c.norm_placement) {
    case NormPlacement::post: return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
    case NormPlacement::sandwich:
      return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
              "post_feedforward_layernorm"};
    default: return {"input_layernorm", "", "post_attention_layernorm", ""};
  }
}

inline std::string mlp_name(const ModelConfig& c) {
  return c.architecture == "Llama4ForCausalLM" ? "feed_forward." : "mlp.";
}

/// Random weights for every tensor of `c`, exact in `dtype`. Norms are near 1; all others are scaled to keep
/// activations near 1.
inline Weights random_weights(const ModelConfig& c, DType dtype, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Weights weights;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float mean, float deviation) {
    int64_t count = 1;
    for (const int64_t dim : shape)
      count *= dim;
    TensorValues& t = weights[name];
    t.shape = std::move(shape);
    for (int64_t i = 0; i < count; ++i) {
      const float x = mean + deviation * normal(rng);
      t.values.push_back(dtype == DType::f32   ? x
                         : dtype == DType::f16 ? fp16_to_float(float_to_fp16(x))
                                               : bf16_to_float(float_to_bf16(x)));
    }
  };
  const auto linear = [&](const std::string& name, int64_t n, int64_t k, bool bias) {
    add(name + ".weight", {n, k}, 0, 1.3f / std::sqrt(static_cast<float>(k)));
    if (bias) add(name + ".bias", {n}, 0, 0.3f);
  };
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim, mlp = c.intermediate_size;
  const float one = c.norm == NormKind::rms_plus_one ? 0 : 1;  // weight of an identity norm
  const bool stacked = c.architecture == "Phi3ForCausalLM";
  add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, 0, 1);
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".", attn = layer + "self_attn.";
    for (const std::string& name : layer_norms(c))
      if (!name.empty()) add(layer + name + ".weight", {c.hidden_size}, one, 0.3f);
    if (stacked) {
      linear(attn + "qkv_proj", q + 2 * kv, c.hidden_size, c.qkv_bias);
    } else {
      linear(attn + "q_proj", q, c.hidden_size, c.qkv_bias);
      linear(attn + "k_proj", kv, c.hidden_size, c.qkv_bias);
      linear(attn + "v_proj", kv, c.hidden_size, c.qkv_bias);
    }
    linear(attn + "o_proj", c.hidden_size, q, c.o_bias);
    if (c.qk_norm == QkNorm::head || c.qk_norm == QkNorm::row) {
      const bool row = c.qk_norm == QkNorm::row;
      add(attn + "q_norm.weight", {row ? q : c.head_dim}, one + 0.2f, 0.3f);
      add(attn + "k_norm.weight", {row ? kv : c.head_dim}, one + 0.2f, 0.3f);
    }
    if (c.sinks) add(attn + "sinks", {c.num_heads}, 0, 1);
    const std::string block = layer + mlp_name(c);
    if (stacked) {
      linear(block + "gate_up_proj", 2 * mlp, c.hidden_size, c.mlp_bias);
    } else {
      linear(block + "gate_proj", mlp, c.hidden_size, c.mlp_bias);
      linear(block + "up_proj", mlp, c.hidden_size, c.mlp_bias);
    }
    linear(block + "down_proj", c.hidden_size, mlp, c.mlp_bias);
  }
  add("model.norm.weight", {c.hidden_size}, one, 0.3f);
  if (!c.tie_word_embeddings) linear("lm_head", c.vocab_size, c.hidden_size, false);
  return weights;
}

/// One safetensors file; `padding` moves the data off any alignment.
inline void write_weights(const TempDir& dir, const Weights& weights, DType dtype, int padding = 1) {
  SafetensorsWriter writer;
  for (const auto& [name, t] : weights)
    writer.add(name, t.shape, t.values, dtype);
  dir.write("model.safetensors", writer.bytes(padding));
}

/// The definition, in fp64, without a cache: logits [T, vocab] of one sequence. Dense layers only.
class ReferenceModel {
 public:
  ReferenceModel(const ModelConfig& c, const Weights& weights)
      : c_(c),
        granite_(family_settings<GraniteSettings>(c)),
        gemma_(family_settings<GemmaSettings>(c)),
        temperature_(family_settings<Llama4Settings>(c).temperature),
        w_(weights) {
    for (const RopeConfig& rope : c.ropes)
      frequencies_.push_back(rope_frequencies(rope, c.head_dim));
  }

  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    std::vector<Row> x;
    for (const int32_t id : ids) {
      const auto& table = w_.at("model.embed_tokens.weight").values;
      x.emplace_back(table.begin() + id * c_.hidden_size, table.begin() + (id + 1) * c_.hidden_size);
      for (double& v : x.back())
        v *= static_cast<double>(c_.embedding_scale);
    }
    for (int i = 0; i < c_.num_layers; ++i)
      layer(i, x);
    std::vector<double> out;
    for (const Row& row : x)
      for (double y : linear(c_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
                             norm("model.norm", row, 0, c_.hidden_size))) {
        y *= static_cast<double>(granite_.logit_scale);
        out.push_back(capped(y, static_cast<double>(gemma_.logit_softcap)));
      }
    return out;
  }

 private:
  using Row = std::vector<double>;

  static double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

  Row linear(const std::string& name, const Row& x) const {
    const TensorValues& t = w_.at(name + ".weight");
    const auto bias = w_.find(name + ".bias");
    Row y(static_cast<size_t>(t.shape[0]));
    for (size_t n = 0; n < y.size(); ++n) {
      y[n] = bias == w_.end() ? 0.0 : bias->second.values[n];
      for (size_t k = 0; k < x.size(); ++k)
        y[n] += static_cast<double>(t.values[n * x.size() + k]) * x[k];
    }
    return y;
  }
  static Row part(const Row& x, int64_t first, int64_t size) {
    return Row(x.begin() + first, x.begin() + first + size);
  }
  /// Applies the matrices `names` to x, stored separately or stacked as `together`.
  std::vector<Row> linears(const std::string& prefix, const char* together,
                           const std::vector<std::pair<const char*, int64_t>>& names, const Row& x) const {
    std::vector<Row> out;
    if (w_.count(prefix + together + ".weight")) {
      const Row all = linear(prefix + together, x);
      int64_t first = 0;
      for (const auto& [name, size] : names)
        out.push_back(part(all, std::exchange(first, first + size), size));
    } else {
      for (const auto& [name, size] : names)
        out.push_back(linear(prefix + name, x));
    }
    return out;
  }
  /// Norm of elements [first, first + size) of x; without a weight if the tensor does not exist.
  Row norm(const std::string& name, const Row& x, int first, int size) const {
    const auto weight = w_.find(name + ".weight");
    double squares = 0;
    for (const double v : part(x, first, size))
      squares += v * v;
    Row y;
    for (int i = 0; i < size; ++i) {
      double w = weight == w_.end() ? 1.0 : weight->second.values[static_cast<size_t>(i)];
      if (c_.norm == NormKind::rms_plus_one) w += 1;
      y.push_back(x[static_cast<size_t>(first + i)] /
                  std::sqrt(squares / size + static_cast<double>(c_.norm_eps)) * w);
    }
    return y;
  }
  Row normed(const std::string& prefix, const std::string& name, const Row& x) const {
    return name.empty() ? x : norm(prefix + name, x, 0, c_.hidden_size);
  }
  void rotate(int rope, size_t p, Row& y) const {
    const auto& f = frequencies_[static_cast<size_t>(rope)];
    const RopeConfig& r = c_.ropes[static_cast<size_t>(rope)];
    for (size_t t = 0; t < f.size(); ++t) {
      const size_t a = r.interleaved ? 2 * t : t, b = r.interleaved ? 2 * t + 1 : t + f.size();
      const double cos = std::cos(static_cast<double>(p) * f[t]) * r.attention_factor,
                   sin = std::sin(static_cast<double>(p) * f[t]) * r.attention_factor;
      const double low = y[a], high = y[b];
      y[a] = low * cos - high * sin;
      y[b] = high * cos + low * sin;
    }
  }
  /// Heads [count][D] of the row x = W h at position p: norms and rotation.
  std::vector<Row> heads(const std::string& norm_name, const Row& x, int count, int rope, size_t p) const {
    const Row whole = c_.qk_norm == QkNorm::row ? norm(norm_name, x, 0, count * c_.head_dim) : x;
    std::vector<Row> out;
    for (int h = 0; h < count; ++h) {
      Row y = part(whole, h * c_.head_dim, c_.head_dim);
      if (c_.qk_norm == QkNorm::head) y = norm(norm_name, y, 0, c_.head_dim);
      if (rope >= 0) rotate(rope, p, y);
      if (rope >= 0 && c_.qk_norm == QkNorm::l2_after_rope) y = norm("", y, 0, c_.head_dim);
      out.push_back(y);
    }
    return out;
  }
  bool sees(const LayerConfig& layer, size_t p, size_t j) const {
    if (layer.window > 0 && j + static_cast<size_t>(layer.window) <= p) return false;
    return layer.chunk == 0 || p / static_cast<size_t>(layer.chunk) == j / static_cast<size_t>(layer.chunk);
  }
  double activation(double z) const {
    switch (c_.activation) {
      case Activation::silu: return z / (1 + std::exp(-z));
      case Activation::gelu: return z / 2 * (1 + std::erf(z / std::sqrt(2.0)));
      case Activation::gelu_tanh:
        return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
      case Activation::relu: return std::max(z, 0.0);
    }
    return NAN;
  }
  void add(Row& x, const Row& y) const {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += static_cast<double>(granite_.residual_scale) * y[i];
  }

  void layer(int index, std::vector<Row>& x) const {
    const LayerConfig& lc = c_.layers[static_cast<size_t>(index)];
    const std::string name = "model.layers." + std::to_string(index) + ".", attn = name + "self_attn.";
    const auto norms = layer_norms(c_);
    const int64_t q_size = c_.num_heads * c_.head_dim, kv_size = c_.num_kv_heads * c_.head_dim;
    std::vector<std::vector<Row>> q, k, v;  // [T][heads][D]
    for (size_t p = 0; p < x.size(); ++p) {
      const auto qkv =
          linears(attn, "qkv_proj", {{"q_proj", q_size}, {"k_proj", kv_size}, {"v_proj", kv_size}},
                  normed(name, norms[0], x[p]));
      q.push_back(heads(attn + "q_norm", qkv[0], c_.num_heads, lc.rope, p));
      k.push_back(heads(attn + "k_norm", qkv[1], c_.num_kv_heads, lc.rope, p));
      for (v.emplace_back(); v.back().size() < k.back().size();)
        v.back().push_back(part(qkv[2], static_cast<int64_t>(v.back().size()) * c_.head_dim, c_.head_dim));
    }
    for (size_t p = 0; p < x.size(); ++p) {
      Row joined;
      for (int h = 0; h < c_.num_heads; ++h)
        for (const double o : attention(lc, attn, q[p][static_cast<size_t>(h)], k, v, h, p))
          joined.push_back(o);
      add(x[p], normed(name, norms[1], linear(attn + "o_proj", joined)));
      const std::string mlp = name + mlp_name(c_);
      const int64_t size = c_.intermediate_size;
      const auto gate_up = linears(mlp, "gate_up_proj", {{"gate_proj", size}, {"up_proj", size}},
                                   normed(name, norms[2], x[p]));
      Row product = gate_up[1];
      for (size_t i = 0; i < product.size(); ++i)
        product[i] *= activation(gate_up[0][i]);
      add(x[p], normed(name, norms[3], linear(mlp + "down_proj", product)));
    }
  }
  Row attention(const LayerConfig& layer, const std::string& name, const Row& query,
                const std::vector<std::vector<Row>>& k, const std::vector<std::vector<Row>>& v, int h,
                size_t p) const {
    const auto kv = static_cast<size_t>(h / (c_.num_heads / c_.num_kv_heads));
    double scale =
        c_.attention_scale != 0 ? c_.attention_scale : 1 / std::sqrt(static_cast<double>(c_.head_dim));
    if (layer.rope < 0)
      scale *=
          1 + temperature_.scale * std::log(1 + std::floor(static_cast<double>(p + 1) / temperature_.floor));
    Row out(query.size());
    double sum =
        c_.sinks ? std::exp(static_cast<double>(w_.at(name + "sinks").values[static_cast<size_t>(h)])) : 0.0;
    for (size_t j = 0; j <= p; ++j) {
      if (!sees(layer, p, j)) continue;
      double score = 0;
      for (size_t t = 0; t < query.size(); ++t)
        score += query[t] * k[j][kv][t];
      const double e = std::exp(capped(score * scale, static_cast<double>(c_.attention_softcap)));
      sum += e;
      for (size_t t = 0; t < out.size(); ++t)
        out[t] += e * v[j][kv][t];
    }
    for (double& o : out)
      o /= sum;
    return out;
  }

  const ModelConfig& c_;
  GraniteSettings granite_;
  GemmaSettings gemma_;
  QueryTemperature temperature_;
  const Weights& w_;
  std::vector<std::vector<double>> frequencies_;
};

/// One backend planned for one step, with a separate plan per attention.
class BackendStep final : public StepAttention {
 public:
  BackendStep(std::unique_ptr<AttentionBackend> (*make)(), const std::vector<AttentionSpec>& specs,
              const AttentionLimits& limits, const BatchMeta& meta, Stream& stream)
      : backend_(make()), workspaces_(specs.size()) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const auto bytes = backend_->workspace_bytes(specs[i], limits);
      FOVEA_CHECK(bytes.ok());
      workspaces_[i] = AlignedArray<std::byte>(*bytes);
      auto plan = backend_->plan(specs[i], limits, meta, workspaces_[i], stream);
      FOVEA_CHECK(plan.ok());
      plans_.push_back(*std::move(plan));
    }
  }
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    return backend_->forward_extend(*plans_[static_cast<size_t>(index)], args, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> backend_;
  std::vector<AlignedArray<std::byte>> workspaces_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

/// The same where latent attention prefills without absorption; the first sequences of the step, which have
/// one row, decode.
class ExpandedStep final : public StepAttention {
 public:
  ExpandedStep(std::unique_ptr<AttentionBackend> (*make)(), const std::vector<AttentionSpec>& specs,
               const AttentionLimits& limits, const BatchMeta& meta, Stream& stream)
      : workspaces_(specs.size()) {
    const auto count = static_cast<size_t>(meta.num_seqs());
    PhaseSplit split;
    while (split.num_decodes < meta.num_seqs() &&
           meta.q_offsets[static_cast<size_t>(split.num_decodes) + 1] == split.num_decodes + 1)
      split.decode_rows = ++split.num_decodes;
    for (size_t b = static_cast<size_t>(split.num_decodes); b <= count; ++b)
      offsets_.push_back(meta.q_offsets[b] - split.decode_rows);
    split.prefill_offsets = offsets_;
    static const BackendInfo decode = make()->info(), prefill = decode;
    BackendRegistry registry;
    registry.add(decode, make);
    registry.add_mla_prefill(prefill, make);
    KindSelection kind;
    kind.prefill.backend = &prefill;
    kind.decode.backend = &decode;
    for (size_t i = 0; i < specs.size(); ++i) {
      attention_.push_back(*PhasedAttention::create(kind, registry));
      workspaces_[i] = AlignedArray<std::byte>(*attention_[i].workspace_bytes(specs[i], limits));
      FOVEA_CHECK(attention_[i].plan(specs[i], limits, meta, split, workspaces_[i], stream).ok());
    }
  }
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    return attention_[static_cast<size_t>(index)].forward(args, stream);
  }
  PhasedAttention* expanded(int index) override {
    PhasedAttention& attention = attention_[static_cast<size_t>(index)];
    return attention.expanded() ? &attention : nullptr;
  }

 private:
  std::vector<int32_t> offsets_;
  std::vector<AlignedArray<std::byte>> workspaces_;
  std::vector<PhasedAttention> attention_;
};

/// Sequences in a paged KV cache; step() runs the next tokens of some of them through the model.
class Runner {
 public:
  static constexpr int kPagesEach = 64;

  struct Part {
    int sequence;
    std::vector<int32_t> ids;  ///< the sequence's next tokens
  };

  using MakeBackend = std::unique_ptr<AttentionBackend> (*)();

  /// `specs` empty: attention_specs() of the model.
  Runner(Model& model, int page_size, int threads, int sequences = 4, MakeBackend backend = make_torch_native,
         std::vector<AttentionSpec> specs = {})
      : model_(model),
        pool_(threads),
        stream_(pool_),
        page_size_(page_size),
        backend_(backend),
        specs_(specs.empty() ? attention_specs(model.config()) : std::move(specs)) {
    auto cache = KvCache::create(kv_groups(model.config(), KvCacheDType::float32, KvLayout::hnd, page_size),
                                 {static_cast<int64_t>(sequences) * kPagesEach});
    FOVEA_CHECK(cache.ok());
    cache_ = std::make_unique<KvCache>(*std::move(cache));
    lengths_.resize(static_cast<size_t>(sequences));
    model.reserve(256, 256);
  }

  /// Logits [rows, vocab] of every new token, or of each part's last only.
  std::vector<float> step(const std::vector<Part>& parts, bool last_only = false) {
    std::vector<int32_t> ids, positions, rows, q_offsets = {0}, kv_lens, pages;
    std::vector<int64_t> slots;
    for (const Part& part : parts) {
      int& length = lengths_[static_cast<size_t>(part.sequence)];
      for (const int32_t& id : part.ids) {
        ids.push_back(id);
        positions.push_back(length);
        slots.push_back(static_cast<int64_t>(page(part.sequence, length / page_size_)) * page_size_ +
                        length % page_size_);
        ++length;
        if (!last_only || &id == &part.ids.back()) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
      }
      q_offsets.push_back(static_cast<int32_t>(ids.size()));
      kv_lens.push_back(length);
      for (int p = 0; p < kPagesEach; ++p)
        pages.push_back(page(part.sequence, p));
    }
    BatchMeta meta;
    meta.q_offsets = q_offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = pages;
    meta.page_table_stride = kPagesEach;
    std::vector<AttentionSpec> specs = specs_;
    for (AttentionSpec& spec : specs)
      spec.page_size = page_size_;
    const AttentionLimits limits{16, 256, 4096, 1024};
    std::unique_ptr<StepAttention> attention;
    if (model_.config().mla.expanded_keys > 0)
      attention = std::make_unique<ExpandedStep>(backend_, specs, limits, meta, stream_);
    else
      attention = std::make_unique<BackendStep>(backend_, specs, limits, meta, stream_);
    std::vector<float> logits(rows.size() * static_cast<size_t>(model_.config().vocab_size), NAN);
    const ForwardInput input = {ids, positions, slots, rows, attention.get(), cache_.get(), &meta};
    FOVEA_CHECK(model_.forward(input, logits.data(), stream_).ok());
    return logits;
  }

 private:
  /// Pages of sequences are interleaved, in descending order, to expose page table errors.
  int32_t page(int sequence, int index) const {
    const int count = static_cast<int>(lengths_.size());
    return static_cast<int32_t>((kPagesEach - 1 - index) * count + sequence);
  }

  Model& model_;
  ThreadPool pool_;
  Stream stream_;
  int page_size_;
  MakeBackend backend_;
  std::vector<AttentionSpec> specs_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int> lengths_;
};

}  // namespace fovea::test
