#pragma once
// For model tests: tiny models on disk, an independent plain fp64 forward, and a runner that steps sequences
// through a Model with a paged cache and TORCH_NATIVE.
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "backends/torch_native/torch_native.h"
#include "base/check.h"
#include "kernels/cpu/linear.h"
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

/// Random weights for every tensor that `c` implies, exact in `dtype`. Norms are near 1, all else has the
/// scale that keeps activations near 1.
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
  const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
  add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, 0, 1);
  for (int i = 0; i < c.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {c.hidden_size}, 1, 0.3f);
    add(layer + "post_attention_layernorm.weight", {c.hidden_size}, 1, 0.3f);
    linear(layer + "self_attn.q_proj", q, c.hidden_size, c.qkv_bias);
    linear(layer + "self_attn.k_proj", kv, c.hidden_size, c.qkv_bias);
    linear(layer + "self_attn.v_proj", kv, c.hidden_size, c.qkv_bias);
    linear(layer + "self_attn.o_proj", c.hidden_size, q, c.o_bias);
    if (c.qk_norm == QkNorm::head) {
      add(layer + "self_attn.q_norm.weight", {c.head_dim}, 1.2f, 0.3f);
      add(layer + "self_attn.k_norm.weight", {c.head_dim}, 1.2f, 0.3f);
    }
    linear(layer + "mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(layer + "mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(layer + "mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
  }
  add("model.norm.weight", {c.hidden_size}, 1, 0.3f);
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

/// The definition, in fp64, without a cache: logits [T, vocab] of one sequence.
class ReferenceModel {
 public:
  ReferenceModel(const ModelConfig& c, const Weights& weights) : c_(c), w_(weights) {}

  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    std::vector<Row> x;
    for (const int32_t id : ids) {
      const auto& table = w_.at("model.embed_tokens.weight").values;
      x.emplace_back(table.begin() + id * c_.hidden_size, table.begin() + (id + 1) * c_.hidden_size);
    }
    for (int i = 0; i < c_.num_layers; ++i)
      layer("model.layers." + std::to_string(i) + ".", x);
    std::vector<double> out;
    for (const Row& row : x)
      for (const double y : linear(c_.tie_word_embeddings ? "model.embed_tokens" : "lm_head",
                                   norm("model.norm.weight", row, 0, c_.hidden_size)))
        out.push_back(y);
    return out;
  }

 private:
  using Row = std::vector<double>;

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
  Row norm(const std::string& name, const Row& x, int first, int size) const {
    const auto& weight = w_.at(name).values;
    double squares = 0;
    for (int i = 0; i < size; ++i)
      squares += x[static_cast<size_t>(first + i)] * x[static_cast<size_t>(first + i)];
    Row y;
    for (int i = 0; i < size; ++i)
      y.push_back(x[static_cast<size_t>(first + i)] /
                  std::sqrt(squares / size + static_cast<double>(c_.norm_eps)) *
                  weight[static_cast<size_t>(i)]);
    return y;
  }
  /// Norm (Qwen3) and rotation of head `h` of x at position p.
  Row head(const std::string& norm_name, const Row& x, int h, size_t p) const {
    const auto d = static_cast<size_t>(c_.head_dim);
    Row y(x.begin() + h * c_.head_dim, x.begin() + (h + 1) * c_.head_dim);
    if (c_.qk_norm == QkNorm::head) y = norm(norm_name, x, h * c_.head_dim, c_.head_dim);
    const auto f = rope_frequencies(c_.ropes[0], c_.head_dim);
    Row out(d);
    for (size_t t = 0; t < d / 2; ++t) {
      const double cos = std::cos(static_cast<double>(p) * f[t]),
                   sin = std::sin(static_cast<double>(p) * f[t]);
      out[t] = y[t] * cos - y[t + d / 2] * sin;
      out[t + d / 2] = y[t + d / 2] * cos + y[t] * sin;
    }
    return out;
  }
  void layer(const std::string& name, std::vector<Row>& x) const {
    std::vector<Row> q, k, v;
    for (const Row& row : x) {
      const Row h = norm(name + "input_layernorm.weight", row, 0, c_.hidden_size);
      q.push_back(linear(name + "self_attn.q_proj", h));
      k.push_back(linear(name + "self_attn.k_proj", h));
      v.push_back(linear(name + "self_attn.v_proj", h));
    }
    for (size_t p = 0; p < x.size(); ++p) {
      Row heads;
      for (int h = 0; h < c_.num_heads; ++h) {
        const int kv = h / (c_.num_heads / c_.num_kv_heads);
        const Row query = head(name + "self_attn.q_norm.weight", q[p], h, p);
        Row out(static_cast<size_t>(c_.head_dim));
        double sum = 0;
        for (size_t j = 0; j <= p; ++j) {
          const Row key = head(name + "self_attn.k_norm.weight", k[j], kv, j);
          double score = 0;
          for (size_t t = 0; t < key.size(); ++t)
            score += query[t] * key[t];
          const double e = std::exp(score / std::sqrt(static_cast<double>(c_.head_dim)));
          sum += e;
          for (size_t t = 0; t < out.size(); ++t)
            out[t] += e * v[j][static_cast<size_t>(kv * c_.head_dim) + t];
        }
        for (const double o : out)
          heads.push_back(o / sum);
      }
      const Row attention = linear(name + "self_attn.o_proj", heads);
      for (size_t i = 0; i < x[p].size(); ++i)
        x[p][i] += attention[i];
      const Row h = norm(name + "post_attention_layernorm.weight", x[p], 0, c_.hidden_size);
      Row gate = linear(name + "mlp.gate_proj", h);
      const Row up = linear(name + "mlp.up_proj", h);
      for (size_t i = 0; i < gate.size(); ++i)
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      const Row mlp = linear(name + "mlp.down_proj", gate);
      for (size_t i = 0; i < x[p].size(); ++i)
        x[p][i] += mlp[i];
    }
  }

  const ModelConfig& c_;
  const Weights& w_;
};

/// TORCH_NATIVE planned for one step.
class NativeStep final : public StepAttention {
 public:
  NativeStep(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta, Stream& stream)
      : backend_(make_torch_native()) {
    const auto bytes = backend_->workspace_bytes(spec, limits);
    FOVEA_CHECK(bytes.ok());
    workspace_ = AlignedArray<std::byte>(*bytes);
    auto plan = backend_->plan(spec, limits, meta, workspace_, stream);
    FOVEA_CHECK(plan.ok());
    plan_ = *std::move(plan);
  }
  void forward(int, const AttentionArgs& args, Stream& stream) override {
    backend_->forward_extend(*plan_, args, stream);
  }

 private:
  std::unique_ptr<AttentionBackend> backend_;
  AlignedArray<std::byte> workspace_;
  std::unique_ptr<Plan> plan_;
};

/// Sequences in a paged cache; step() runs some tokens of some of them through the model.
class Runner {
 public:
  static constexpr int kPagesEach = 64;

  struct Part {
    int sequence;
    std::vector<int32_t> ids;  ///< the sequence's next tokens
  };

  Runner(Model& model, int page_size, int threads, int sequences = 4)
      : model_(model), pool_(threads), stream_(pool_), page_size_(page_size) {
    const ModelConfig& c = model.config();
    auto cache = KvCache::create({c.num_layers, c.num_kv_heads, c.head_dim, c.head_dim, page_size,
                                  static_cast<int64_t>(sequences) * kPagesEach, DType::f32});
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
    AttentionSpec spec = attention_specs(model_.config()).front();
    spec.page_size = page_size_;
    NativeStep attention(spec, {16, 256, 4096, 1024}, meta, stream_);
    std::vector<float> logits(rows.size() * static_cast<size_t>(model_.config().vocab_size), NAN);
    model_.forward({ids, positions, slots, rows, &attention, cache_.get()}, logits.data(), stream_);
    return logits;
  }

 private:
  /// Sequences' pages are interleaved and run backwards, so that a mistaken page table shows.
  int32_t page(int sequence, int index) const {
    const int count = static_cast<int>(lengths_.size());
    return static_cast<int32_t>((kPagesEach - 1 - index) * count + sequence);
  }

  Model& model_;
  ThreadPool pool_;
  Stream stream_;
  int page_size_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int> lengths_;
};

}  // namespace fovea::test
