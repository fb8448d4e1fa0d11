#pragma once
// For tests of encoders and encoder-decoder models: tiny models, independent plain fp64 forwards, and runners
// that plan a backend over ragged rows and over own and cross pages.
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu_attn/cpu_attn.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/model_test_support.h"

namespace fovea::test {

using Rows = std::vector<std::vector<double>>;

/// The definition, in fp64: layers by their tensors' names.
class PlainLayers {
 public:
  explicit PlainLayers(const Weights& weights) : w_(weights) {}

  std::vector<double> table(const std::string& name, int64_t row) const {
    const TensorValues& t = w_.at(name);
    const auto begin = t.values.begin() + row * t.shape[1];
    return {begin, begin + t.shape[1]};
  }
  /// With NAME.bias where there is one.
  std::vector<double> linear(const std::string& name, const std::vector<double>& x) const {
    const TensorValues& t = w_.at(name + ".weight");
    const auto bias = w_.find(name + ".bias");
    std::vector<double> y(static_cast<size_t>(t.shape[0]));
    for (size_t n = 0; n < y.size(); ++n) {
      y[n] = bias == w_.end() ? 0.0 : static_cast<double>(bias->second.values[n]);
      for (size_t k = 0; k < x.size(); ++k)
        y[n] += static_cast<double>(t.values[n * x.size() + k]) * x[k];
    }
    return y;
  }
  std::vector<double> norm(const std::string& name, const std::vector<double>& x, double eps) const {
    double mean = 0, variance = 0;
    for (const double v : x)
      mean += v / static_cast<double>(x.size());
    for (const double v : x)
      variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
    std::vector<double> y;
    for (size_t i = 0; i < x.size(); ++i)
      y.push_back((x[i] - mean) / std::sqrt(variance + eps) *
                      static_cast<double>(w_.at(name + ".weight").values[i]) +
                  static_cast<double>(w_.at(name + ".bias").values[i]));
    return y;
  }
  /// Queries q_name(x) over keys and values of `source`; causal: row i sees rows up to i.
  Rows attention(const std::array<std::string, 4>& names, const Rows& x, const Rows& source, int heads,
                 bool causal) const {
    Rows k, v, out;
    for (const auto& row : source) {
      k.push_back(linear(names[1], row));
      v.push_back(linear(names[2], row));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const std::vector<double> q = linear(names[0], x[i]);
      const size_t dim = q.size() / static_cast<size_t>(heads);
      std::vector<double> merged(q.size());
      for (size_t first = 0; first < q.size(); first += dim) {
        double sum = 0;
        for (size_t j = 0; j < (causal ? i + 1 : source.size()); ++j) {
          double score = 0;
          for (size_t d = first; d < first + dim; ++d)
            score += q[d] * k[j][d];
          const double e = std::exp(score / std::sqrt(static_cast<double>(dim)));
          sum += e;
          for (size_t d = first; d < first + dim; ++d)
            merged[d] += e * v[j][d];
        }
        for (size_t d = first; d < first + dim; ++d)
          merged[d] /= sum;
      }
      out.push_back(linear(names[3], merged));
    }
    return out;
  }
  static double gelu(double z) { return 0.5 * z * (1 + std::erf(z / std::sqrt(2.0))); }
  Rows mlp(const std::string& in, const std::string& out, const Rows& x) const {
    Rows y;
    for (const auto& row : x) {
      std::vector<double> inner = linear(in, row);
      for (double& z : inner)
        z = gelu(z);
      y.push_back(linear(out, inner));
    }
    return y;
  }
  /// x = norm(x + f(x)), or x + f(norm(x)).
  void block(Rows& x, const std::string& norm_name, bool pre, double eps,
             const std::function<Rows(const Rows&)>& f) const {
    Rows in = x;
    if (pre)
      for (auto& row : in)
        row = norm(norm_name, row, eps);
    const Rows added = f(in);
    for (size_t i = 0; i < x.size(); ++i) {
      for (size_t d = 0; d < x[i].size(); ++d)
        x[i][d] += added[i][d];
      if (!pre) x[i] = norm(norm_name, x[i], eps);
    }
  }

 private:
  const Weights& w_;
};

/// Random tensors by name and shape; norms near 1, biases small, matrices of unit gain.
class TensorMaker {
 public:
  explicit TensorMaker(uint32_t seed) : random_(seed) {}
  Weights weights;

  void add(const std::string& name, std::vector<int64_t> shape, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    TensorValues& t = weights[name];
    t.shape = std::move(shape);
    int64_t count = 1;
    for (const int64_t n : t.shape)
      count *= n;
    for (int64_t i = 0; i < count; ++i)
      t.values.push_back(normal(random_));
  }
  void linear(const std::string& name, int64_t n, int64_t k, bool bias = true) {
    add(name + ".weight", {n, k}, 0, 1.3f / std::sqrt(static_cast<float>(k)));
    if (bias) add(name + ".bias", {n}, 0, 0.3f);
  }
  void norm(const std::string& name, int64_t n) {
    add(name + ".weight", {n}, 1, 0.3f);
    add(name + ".bias", {n}, 0, 0.3f);
  }

 private:
  std::mt19937 random_;
};

/// Every attention of a model, planned on one backend.
class PlannedAttention final : public StepAttention {
 public:
  using MetaOf = std::function<const BatchMeta*(AttentionType)>;  ///< null = not part of this step

  PlannedAttention(const ModelConfig& config, bool cpu_attn, int page_size, const MetaOf& meta_of,
                   Stream& stream) {
    for (AttentionSpec spec : attention_specs(config)) {
      Planned& planned = planned_.emplace_back();
      const BatchMeta* meta = meta_of(spec.type);
      if (!meta) continue;
      const bool ragged = spec.type == AttentionType::encoder || spec.type == AttentionType::encoder_only;
      spec.page_size = ragged ? 1 : page_size;
      planned.backend = cpu_attn ? make_cpu_attn() : make_torch_native();
      const AttentionLimits limits = {16, 512, 4096, 1024};
      const auto bytes = planned.backend->workspace_bytes(spec, limits);
      FOVEA_CHECK(bytes.ok());
      planned.workspace = AlignedArray<std::byte>(*bytes);
      auto plan = planned.backend->plan(spec, limits, *meta, planned.workspace, stream);
      FOVEA_CHECK(plan.ok());
      planned.plan = *std::move(plan);
    }
  }
  void forward(int index, const AttentionArgs& args, Stream& stream) override {
    Planned& planned = planned_.at(static_cast<size_t>(index));
    planned.backend->forward_extend(*planned.plan, args, stream);
  }

 private:
  struct Planned {
    std::unique_ptr<AttentionBackend> backend;
    AlignedArray<std::byte> workspace;
    std::unique_ptr<Plan> plan;
  };
  std::vector<Planned> planned_;
};

/// Ragged rows as pages of one row each.
struct RaggedBatch {
  explicit RaggedBatch(const std::vector<int>& lengths) {
    int longest = 0;
    for (const int n : lengths) {
      offsets.push_back(offsets.back() + n);
      kv_lens.push_back(n);
      longest = std::max(longest, n);
    }
    for (size_t b = 0; b < lengths.size(); ++b)
      for (int i = 0; i < longest; ++i)
        pages.push_back(i < lengths[b] ? offsets[b] + i : 1 << 30);
    meta.q_offsets = offsets;
    meta.kv_lens = kv_lens;
    meta.page_table = pages;
    meta.page_table_stride = longest;
  }
  RaggedBatch(const RaggedBatch&) = delete;
  std::vector<int32_t> offsets = {0}, kv_lens, pages;
  BatchMeta meta;
};

}  // namespace fovea::test
