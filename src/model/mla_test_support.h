#pragma once
// Test support for latent attention: random weights of DeepSeek-like models, and their definition in fp64 in
// the un-absorbed form, with keys and values of every head.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "model/model_test_support.h"

namespace fovea::test {

/// Prefixes of a layer's tensors: LongCat's layers are halves of the checkpoint's.
struct LayerNames {
  std::string input_norm, post_norm, attention, mlp, experts, router;

  LayerNames(const ModelConfig& c, int layer) {
    const bool halves = c.moe.layout == MoeLayout::longcat;
    const std::string prefix = "model.layers." + std::to_string(halves ? layer / 2 : layer) + ".";
    const std::string half = halves ? "." + std::to_string(layer % 2) : "";
    input_norm = prefix + "input_layernorm" + half;
    post_norm = prefix + "post_attention_layernorm" + half;
    attention = prefix + "self_attn" + half + ".";
    mlp = prefix + (halves ? "mlps" + half : "mlp") + ".";
    experts = prefix + "mlp.";
    router = experts + (halves ? "router." : "gate.");
  }
};

/// Random weights for every tensor of `c`, exact in `dtype`, which keep activations near 1.
inline Weights random_mla_weights(const ModelConfig& c, DType dtype, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Weights weights;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, float mean, float deviation) {
    TensorValues& t = weights[name];
    t.shape = std::move(shape);
    const int64_t count = std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
    for (int64_t i = 0; i < count; ++i)
      t.values.push_back(round_to(mean + deviation * normal(rng), dtype));
  };
  const auto linear = [&](const std::string& name, int64_t n, int64_t k, bool bias = false) {
    add(name + ".weight", {n, k}, 0, 1.3f / std::sqrt(static_cast<float>(k)));
    if (bias) add(name + ".bias", {n}, 0, 0.3f);
  };
  const auto norm = [&](const std::string& name, int64_t size) { add(name + ".weight", {size}, 1, 0.3f); };
  const auto mlp = [&](const std::string& name, int64_t width) {
    linear(name + "gate_proj", width, c.hidden_size, c.mlp_bias);
    linear(name + "up_proj", width, c.hidden_size, c.mlp_bias);
    linear(name + "down_proj", c.hidden_size, width, c.mlp_bias);
  };
  const MlaConfig& m = c.mla;
  add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, 0, 1);
  for (int i = 0; i < c.num_layers; ++i) {
    const LayerNames names(c, i);
    const std::string& attn = names.attention;
    norm(names.input_norm, c.hidden_size);
    norm(names.post_norm, c.hidden_size);
    if (m.q_rank > 0) {
      linear(attn + "q_a_proj", m.q_rank, c.hidden_size, c.qkv_bias);
      norm(attn + "q_a_layernorm", m.q_rank);
      linear(attn + "q_b_proj", c.num_heads * m.qk_dim(), m.q_rank);
    } else {
      linear(attn + "q_proj", c.num_heads * m.qk_dim(), c.hidden_size);
    }
    linear(attn + "kv_a_proj_with_mqa", m.record(), c.hidden_size, c.qkv_bias);
    norm(attn + "kv_a_layernorm", m.kv_rank);
    linear(attn + "kv_b_proj", c.num_heads * (m.nope_dim + m.v_dim), m.kv_rank);
    linear(attn + "o_proj", c.hidden_size, c.num_heads * m.v_dim, c.o_bias);
    if (c.indexer.heads > 0) {  // in all layers, also those that share another's choice
      linear(attn + "indexer.wq_b", c.indexer.heads * c.indexer.dim, m.q_rank);
      linear(attn + "indexer.wk", c.indexer.dim, c.hidden_size);
      norm(attn + "indexer.k_norm", c.indexer.dim);
      add(attn + "indexer.k_norm.bias", {c.indexer.dim}, 0, 0.3f);
      linear(attn + "indexer.weights_proj", c.indexer.heads, c.hidden_size);
    }
    const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (!layer.moe) mlp(names.mlp, c.intermediate_size);
    if (!layer.moe && !layer.shortcut) continue;
    linear(layer.shortcut ? names.router + "classifier" : names.experts + "gate", c.moe.choices(),
           c.hidden_size);
    if (c.moe.choice_bias) add(names.router + "e_score_correction_bias", {c.moe.choices()}, -0.2f, 0.3f);
    for (int e = 0; e < c.moe.num_experts; ++e)
      mlp(names.experts + "experts." + std::to_string(e) + ".", c.moe.intermediate_size);
    if (c.moe.shared_intermediate_size > 0)
      mlp(names.experts + "shared_experts.", c.moe.shared_intermediate_size);
  }
  norm("model.norm", c.hidden_size);
  if (!c.tie_word_embeddings) linear("lm_head", c.vocab_size, c.hidden_size);
  return weights;
}

/// Logits [T, vocab] of one sequence, by the published definition.
class MlaReference {
 public:
  MlaReference(const ModelConfig& c, const Weights& weights)
      : c_(c),
        w_(weights),
        scales_(family_settings<GraniteSettings>(c)),
        frequencies_(rope_frequencies(c.ropes[0], c.head_dim)) {}

  std::vector<double> logits(const std::vector<int32_t>& ids) const {
    std::vector<Row> x;
    for (const int32_t id : ids) {
      const auto& table = w_.at("model.embed_tokens.weight").values;
      x.emplace_back(table.begin() + id * c_.hidden_size, table.begin() + (id + 1) * c_.hidden_size);
      for (double& v : x.back())
        v *= static_cast<double>(c_.embedding_scale);
    }
    Seen seen;
    std::vector<Row> shortcut;  // what the experts beside the last layer's MLP gave
    for (int i = 0; i < c_.num_layers; ++i) {
      const LayerNames name(c_, i);
      const LayerConfig& layer = c_.layers[static_cast<size_t>(i)];
      if (c_.sparse && c_.indexer.full[static_cast<size_t>(i)]) seen = chosen(name, x);
      attention(name, x, seen);
      const std::vector<Row> joins = std::move(shortcut);
      shortcut.clear();
      for (size_t p = 0; p < x.size(); ++p) {
        const Row in = norm(name.post_norm, x[p]);
        add(x[p], layer.moe ? experts(name, in) : mlp(name.mlp, in),
            static_cast<double>(scales_.residual_scale));
        if (layer.shortcut) shortcut.push_back(experts(name, in));
        if (!joins.empty()) add(x[p], joins[p], 1.0);
      }
    }
    std::vector<double> out;
    for (const Row& row : x)
      for (const double y :
           linear(c_.tie_word_embeddings ? "model.embed_tokens" : "lm_head", norm("model.norm", row)))
        out.push_back(y * static_cast<double>(scales_.logit_scale));
    return out;
  }

 private:
  using Row = std::vector<double>;
  using Seen = std::vector<std::vector<bool>>;  // [T][T]; empty = all keys up to the row's own

  static void add(Row& x, const Row& y, double scale) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] += scale * y[i];
  }
  static Row part(const Row& x, int64_t first, int64_t size) {
    return Row(x.begin() + first, x.begin() + first + size);
  }
  static double dot(const Row& a, const Row& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  }

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
  Row latent_norm(const std::string& name, Row x, float scale) const {
    x = norm(name, x, 1e-6);
    for (double& v : x)
      v *= static_cast<double>(scale);
    return x;
  }
  /// The latent of a row's queries, from the hidden state after its norm.
  Row query_latent(const LayerNames& layer, const Row& in) const {
    return latent_norm(layer.attention + "q_a_layernorm", linear(layer.attention + "q_a_proj", in),
                       c_.mla.q_scale);
  }
  Row norm(const std::string& name, const Row& x) const {
    return norm(name, x, static_cast<double>(c_.norm_eps));
  }
  Row norm(const std::string& name, const Row& x, double eps) const {
    const auto& weight = w_.at(name + ".weight").values;
    const double mean = dot(x, x) / static_cast<double>(x.size());
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] / std::sqrt(mean + eps) * static_cast<double>(weight[i]);
    return y;
  }
  void rotate(size_t p, Row& head, int64_t first) const { rotate(p, head, first, c_.ropes[0].interleaved); }
  void rotate(size_t p, Row& head, int64_t first, bool interleaved) const {
    const RopeConfig& r = c_.ropes[0];
    for (size_t t = 0; t < frequencies_.size(); ++t) {
      const size_t a = static_cast<size_t>(first) + (interleaved ? 2 * t : t),
                   b = interleaved ? a + 1 : a + frequencies_.size();
      const double angle = static_cast<double>(p) * frequencies_[t],
                   cos = std::cos(angle) * r.attention_factor, sin = std::sin(angle) * r.attention_factor;
      const double low = head[a], high = head[b];
      head[a] = low * cos - high * sin;
      head[b] = high * cos + low * sin;
    }
  }

  /// x / sd(x) times weight, plus bias, of the mean-free x.
  Row layer_norm(const std::string& name, Row x) const {
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
    for (double& v : x)
      v -= mean;
    const double scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + 1e-6);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = x[i] * scale * static_cast<double>(w_.at(name + ".weight").values[i]) +
             static_cast<double>(w_.at(name + ".bias").values[i]);
    return x;
  }

  /// The keys that a layer's indexer chooses for each row.
  Seen chosen(const LayerNames& layer, const std::vector<Row>& x) const {
    const IndexerConfig& indexer = c_.indexer;
    const std::string own = layer.attention + "indexer.";
    std::vector<Row> queries, keys, weights;
    for (size_t p = 0; p < x.size(); ++p) {
      const Row in = norm(layer.input_norm, x[p]);
      queries.push_back(linear(own + "wq_b", query_latent(layer, in)));
      for (int h = 0; h < indexer.heads; ++h)
        rotate(p, queries.back(), int64_t{h} * indexer.dim, indexer.interleaved);
      keys.push_back(layer_norm(own + "k_norm", linear(own + "wk", in)));
      rotate(p, keys.back(), 0, indexer.interleaved);
      weights.push_back(linear(own + "weights_proj", in));
    }
    Seen seen(x.size(), std::vector<bool>(x.size()));
    for (size_t p = 0; p < x.size(); ++p) {
      Row scores;
      for (size_t j = 0; j <= p; ++j) {
        scores.push_back(0);
        for (int h = 0; h < indexer.heads; ++h)
          scores.back() +=
              weights[p][static_cast<size_t>(h)] *
              std::max(0.0, dot(part(queries[p], int64_t{h} * indexer.dim, indexer.dim), keys[j]));
      }
      std::vector<size_t> order(scores.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, [&](size_t a, size_t b) { return scores[a] > scores[b]; });
      for (size_t i = 0; i < order.size() && i < static_cast<size_t>(c_.sparse_topk); ++i)
        seen[p][order[i]] = true;
    }
    return seen;
  }

  void attention(const LayerNames& layer, std::vector<Row>& x, const Seen& seen) const {
    const MlaConfig& m = c_.mla;
    const std::string& name = layer.attention;
    std::vector<std::vector<Row>> q, k, v;  // [T][heads]
    for (size_t p = 0; p < x.size(); ++p) {
      const Row in = norm(layer.input_norm, x[p]);
      const Row queries =
          m.q_rank > 0 ? linear(name + "q_b_proj", query_latent(layer, in)) : linear(name + "q_proj", in);
      const Row record = linear(name + "kv_a_proj_with_mqa", in);
      const Row up = linear(name + "kv_b_proj",
                            latent_norm(name + "kv_a_layernorm", part(record, 0, m.kv_rank), m.kv_scale));
      Row common = part(record, m.kv_rank, m.rope_dim);
      rotate(p, common, 0);
      q.emplace_back(), k.emplace_back(), v.emplace_back();
      for (int h = 0; h < c_.num_heads; ++h) {
        q.back().push_back(part(queries, h * m.qk_dim(), m.qk_dim()));
        rotate(p, q.back().back(), m.nope_dim);
        const int64_t first = static_cast<int64_t>(h) * (m.nope_dim + m.v_dim);
        k.back().push_back(part(up, first, m.nope_dim));
        k.back().back().insert(k.back().back().end(), common.begin(), common.end());
        v.back().push_back(part(up, first + m.nope_dim, m.v_dim));
      }
    }
    for (size_t p = 0; p < x.size(); ++p) {
      Row joined;
      for (size_t h = 0; h < q[p].size(); ++h) {
        Row out(static_cast<size_t>(m.v_dim));
        double sum = 0;
        for (size_t j = 0; j <= p; ++j) {
          if (!seen.empty() && !seen[p][j]) continue;
          const double e = std::exp(dot(q[p][h], k[j][h]) * c_.attention_scale);
          sum += e;
          add(out, v[j][h], e);
        }
        for (const double o : out)
          joined.push_back(o / sum);
      }
      add(x[p], linear(name + "o_proj", joined), static_cast<double>(scales_.residual_scale));
    }
  }

  Row mlp(const std::string& name, const Row& x) const {
    Row gate = linear(name + "gate_proj", x);
    const Row up = linear(name + "up_proj", x);
    for (size_t i = 0; i < gate.size(); ++i)
      gate[i] *= up[i] / (1 + std::exp(-gate[i]));
    return linear(name + "down_proj", gate);
  }

  Row experts(const LayerNames& layer, const Row& x) const {
    const MoeConfig& moe = c_.moe;
    const std::string& name = layer.experts;
    const bool sigmoid = moe.router == MoeRouter::sigmoid_then_top;
    Row scores = linear(moe.layout == MoeLayout::longcat ? layer.router + "classifier" : name + "gate", x);
    double all = 0;
    for (double& s : scores) {
      s = sigmoid ? 1 / (1 + std::exp(-s)) : std::exp(s);
      all += s;
    }
    if (!sigmoid)
      for (double& s : scores)
        s /= all;
    Row choice = scores;
    if (moe.choice_bias) {
      const auto& bias = w_.at(layer.router + "e_score_correction_bias").values;
      for (size_t e = 0; e < choice.size(); ++e)
        choice[e] += static_cast<double>(bias[e]);
    }
    const auto best_of = [](const Row& values) {
      std::vector<size_t> order(values.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
      return order;
    };
    const int size = static_cast<int>(choice.size()) / moe.groups;
    Row worth;
    for (int g = 0; g < moe.groups; ++g) {
      Row own = part(choice, g * size, size);
      std::ranges::sort(own, std::greater<>());
      worth.push_back(moe.group_best == 2 ? own[0] + own[1] : own[0]);
    }
    const auto groups = best_of(worth);
    for (size_t g = static_cast<size_t>(moe.top_groups); g < groups.size(); ++g)
      std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(groups[g]) * size, size, -INFINITY);
    auto chosen = best_of(choice);
    chosen.resize(static_cast<size_t>(moe.experts_per_token));
    double sum = 0;
    for (const size_t e : chosen)
      sum += scores[e];
    Row out(x.size());
    for (const size_t e : chosen) {
      const bool identity = e >= static_cast<size_t>(moe.num_experts);
      if (identity && moe.identity_experts == 0) continue;
      add(out, identity ? x : mlp(name + "experts." + std::to_string(e) + ".", x),
          scores[e] / (moe.renormalize ? sum : 1.0) * static_cast<double>(moe.routed_scale));
    }
    if (moe.shared_intermediate_size > 0) add(out, mlp(name + "shared_experts.", x), 1.0);
    return out;
  }

  const ModelConfig& c_;
  const Weights& w_;
  GraniteSettings scales_;
  std::vector<double> frequencies_;
};

}  // namespace fovea::test
