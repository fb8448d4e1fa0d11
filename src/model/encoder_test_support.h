#pragma once
// Test support for encoders and encoder-decoder models: tiny models, independent plain fp64 forwards, and
// runners that plan a backend over ragged rows and over self and cross pages.
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu_attn/cpu_attn.h"
#include "base/thread_pool.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/model_test_support.h"

namespace fovea::test {

using Rows = std::vector<std::vector<double>>;

/// The fp64 definition of layers, addressed by tensor names.
class PlainLayers {
 public:
  explicit PlainLayers(const Weights& weights) : w_(weights) {}

  std::vector<double> table(const std::string& name, int64_t row) const {
    const TensorValues& t = w_.at(name);
    const auto begin = t.values.begin() + row * t.shape[1];
    return {begin, begin + t.shape[1]};
  }
  /// With NAME.bias if it exists.
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

/// Makes random tensors by name and shape; norms near 1, small biases, matrices of unit gain.
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

/// All attention specs of a model, planned on one backend.
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
  Status forward(int index, const AttentionArgs& args, Stream& stream) override {
    Planned& planned = planned_.at(static_cast<size_t>(index));
    return planned.backend->forward_extend(*planned.plan, args, stream);
  }

 private:
  struct Planned {
    std::unique_ptr<AttentionBackend> backend;
    AlignedArray<std::byte> workspace;
    std::unique_ptr<Plan> plan;
  };
  std::vector<Planned> planned_;
};

/// Ragged rows as one-row pages.
struct RaggedRows {
  explicit RaggedRows(const std::vector<int>& lengths) {
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
  RaggedRows(const RaggedRows&) = delete;
  std::vector<int32_t> offsets = {0}, kv_lens, pages;
  BatchMeta meta;
};

/// A request: the encoder input and the decoder's tokens.
struct Request {
  std::vector<int32_t> text;
  std::vector<float> features;  ///< [frames, mel]
  std::vector<int32_t> tokens;
  int encoder_rows(const ModelConfig& c) const {
    return static_cast<int>(
        features.empty() ? text.size() : features.size() / static_cast<size_t>(c.encoder->mel_bins) / 2);
  }
};

/// Requests with self and cross pages in one cache: encode() once, then steps of any chunks.
class EncoderDecoderRunner {
 public:
  static constexpr int kPagesEach = 32;  // self pages; as many again for cross pages

  EncoderDecoderRunner(Model& model, const std::vector<Request>& requests, bool cpu_attn, int page_size,
                       int threads)
      : model_(model),
        requests_(requests),
        cpu_attn_(cpu_attn),
        page_size_(page_size),
        pool_(threads),
        stream_(pool_),
        done_(requests.size()) {
    auto cache = KvCache::create(kv_groups(model.config(), KvCacheDType::float32, KvLayout::hnd, page_size),
                                 {static_cast<int64_t>(requests.size()) * 2 * kPagesEach});
    FOVEA_CHECK(cache.ok());
    cache_ = std::make_unique<KvCache>(*std::move(cache));
    poison();
  }

  void encode() {
    std::vector<int> lengths;
    std::vector<int32_t> ids;
    std::vector<float> features;
    std::vector<int64_t> slots;
    for (size_t b = 0; b < requests_.size(); ++b) {
      const Request& r = requests_[b];
      lengths.push_back(r.encoder_rows(model_.config()));
      ids.insert(ids.end(), r.text.begin(), r.text.end());
      features.insert(features.end(), r.features.begin(), r.features.end());
      for (int i = 0; i < r.encoder_rows(model_.config()); ++i)
        slots.push_back(slot(b, i, /*cross=*/true));
    }
    const RaggedRows batch(lengths);
    PlannedAttention attention(
        model_.config(), cpu_attn_, page_size_,
        [&](AttentionType type) { return type == AttentionType::encoder ? &batch.meta : nullptr; }, stream_);
    EncodeInput input;
    input.token_ids = ids;
    input.features = features;
    input.offsets = batch.offsets;
    input.attention = &attention;
    input.cross_slots = slots;
    input.kv = cache_.get();
    FOVEA_CHECK(model_.encode(input, stream_).ok());
  }

  /// Computes the next counts[b] tokens of each request; returns logits [rows, vocab].
  std::vector<float> step(const std::vector<int>& counts, bool last_only = false) {
    std::vector<int32_t> ids, positions, rows, q_offsets = {0}, kv_lens, cross_lens, pages, cross_pages;
    std::vector<int64_t> slots;
    for (size_t b = 0; b < counts.size(); ++b) {
      for (int i = 0; i < counts[b]; ++i, ++done_[b]) {
        ids.push_back(requests_[b].tokens[static_cast<size_t>(done_[b])]);
        positions.push_back(done_[b]);
        slots.push_back(slot(b, done_[b], false));
        if (!last_only || i + 1 == counts[b]) rows.push_back(static_cast<int32_t>(ids.size()) - 1);
      }
      q_offsets.push_back(static_cast<int32_t>(ids.size()));
      kv_lens.push_back(done_[b]);
      cross_lens.push_back(requests_[b].encoder_rows(model_.config()));
      for (int p = 0; p < kPagesEach; ++p) {
        pages.push_back(page(b, p, false));
        cross_pages.push_back(page(b, p, true));
      }
    }
    BatchMeta own, cross;
    own.q_offsets = cross.q_offsets = q_offsets;
    own.kv_lens = kv_lens;
    own.page_table = pages;
    cross.kv_lens = cross_lens;
    cross.page_table = cross_pages;
    own.page_table_stride = cross.page_table_stride = kPagesEach;
    PlannedAttention attention(
        model_.config(), cpu_attn_, page_size_,
        [&](AttentionType type) -> const BatchMeta* {
          return type == AttentionType::decoder           ? &own
                 : type == AttentionType::encoder_decoder ? &cross
                                                          : nullptr;
        },
        stream_);
    std::vector<float> logits(rows.size() * static_cast<size_t>(model_.config().vocab_size), NAN);
    const ForwardInput input = {ids, positions, slots, rows, &attention, cache_.get()};
    FOVEA_CHECK(model_.forward(input, logits.data(), stream_).ok());
    return logits;
  }

 private:
  /// Fills buffers with NaN to expose rows that are never written.
  void poison() {
    const int64_t hidden = model_.config().hidden_size;
    const std::vector<float> nan(static_cast<size_t>(hidden), NAN);
    for (int64_t s = 0; s < cache_->num_pages(0) * page_size_; ++s)
      for (int layer = 0; layer < model_.config().num_layers; ++layer)
        cache_->append(layer, std::span(&s, 1), nan.data(), hidden, nan.data(), hidden, stream_);
  }
  /// Self and cross pages of all requests are interleaved, in descending order.
  int32_t page(size_t request, int index, bool cross) const {
    return static_cast<int32_t>(static_cast<size_t>(2 * (kPagesEach - 1 - index) + cross) * requests_.size() +
                                request);
  }
  int64_t slot(size_t request, int row, bool cross) const {
    return int64_t{page(request, row / page_size_, cross)} * page_size_ + row % page_size_;
  }

  Model& model_;
  const std::vector<Request>& requests_;
  bool cpu_attn_;
  int page_size_;
  ThreadPool pool_;
  Stream stream_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int> done_;
};

}  // namespace fovea::test
