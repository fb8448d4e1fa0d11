#include "model/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

// linear() reads the weights once for this many rows: splitting an expert's rows into such blocks costs no
// extra reads, and bounds the scratch when all rows go to one expert.
constexpr int64_t kBlockRows = 256;

int64_t blocks_of(int64_t rows, int64_t block) {
  return (rows + block - 1) / block;
}

/// The row's experts and their weights, by the router's rule; overwrites `logits`.
void route(const MoeConfig& config, float* logits, int32_t* ids, float* weights) {
  const int k = config.experts_per_token;
  if (config.router == MoeRouter::softmax_then_top) softmax(logits, config.num_experts);
  largest(logits, config.num_experts, k, ids);
  for (int j = 0; j < k; ++j)
    weights[j] = logits[ids[j]];
  switch (config.router) {
    case MoeRouter::softmax_then_top: {
      if (!config.renormalize) return;
      float sum = 0;
      for (int j = 0; j < k; ++j)
        sum += weights[j];
      for (int j = 0; j < k; ++j)
        weights[j] /= sum;
      return;
    }
    case MoeRouter::top_then_softmax: return softmax(weights, k);
    case MoeRouter::sigmoid_top:
      for (int j = 0; j < k; ++j)
        weights[j] = 1.0f / (1.0f + std::exp(-weights[j]));
      return;
  }
}

}  // namespace

MoeScratch::MoeScratch(const ModelConfig& config, int64_t max_rows)
    : max_rows_(max_rows), block_rows_(std::min(max_rows, kBlockRows)) {
  const MoeConfig& moe = config.moe;
  FOVEA_CHECK(max_rows > 0 && moe.num_experts > 0);
  const auto rows = static_cast<size_t>(max_rows), block = static_cast<size_t>(block_rows_);
  const auto experts = static_cast<size_t>(moe.num_experts);
  const size_t pairs = rows * static_cast<size_t>(moe.experts_per_token);
  const auto hidden = static_cast<size_t>(config.hidden_size);
  const auto intermediate =
      static_cast<size_t>(std::max(moe.intermediate_size, moe.shared_intermediate_size));
  logits_ = AlignedArray<float>(rows * experts);
  experts_ = AlignedArray<int32_t>(pairs);
  weights_ = AlignedArray<float>(pairs);
  starts_ = AlignedArray<int64_t>(experts + 2);
  rows_ = AlignedArray<int32_t>(pairs);
  scales_ = AlignedArray<float>(pairs);
  in_ = AlignedArray<float>(block * hidden);
  gate_up_ = AlignedArray<float>(block * 2 * intermediate);
  act_ = AlignedArray<float>(block * intermediate);
  out_ = AlignedArray<float>(block * hidden);
}

int64_t MoeScratch::bytes() const {
  const size_t words = logits_.size() + experts_.size() + weights_.size() + rows_.size() + scales_.size() +
                       in_.size() + gate_up_.size() + act_.size() + out_.size();
  return static_cast<int64_t>(words * sizeof(float) + starts_.size() * sizeof(int64_t));
}

/// Routes all rows and lists each expert's rows in ascending order.
void MoeBlock::assign(const float* x, int64_t rows, MoeScratch& s, ThreadPool& pool) const {
  const int64_t count = config.num_experts, k = config.experts_per_token;
  router.forward(x, router.weight.k(), rows, s.logits_.data(), count, pool);
  constexpr int64_t kCost =
      64;  // of a logit: an exp, and a few places in the list of the largest, in elements
  for_rows(rows, rows * count * kCost, pool, [&](int64_t r) {
    route(config, s.logits_.data() + r * count, s.experts_.data() + r * k, s.weights_.data() + r * k);
  });

  // Counting sort. starts[e + 1] is the write cursor of expert e, so it ends as the start of expert e + 1.
  int64_t* starts = s.starts_.data();
  std::fill_n(starts, count + 2, int64_t{0});
  for (int64_t i = 0; i < rows * k; ++i)
    ++starts[s.experts_[static_cast<size_t>(i)] + 2];
  for (int64_t e = 0; e < count; ++e)
    starts[e + 2] += starts[e + 1];
  for (int64_t i = 0; i < rows * k; ++i) {
    const auto from = static_cast<size_t>(i);
    const auto place = static_cast<size_t>(starts[s.experts_[from] + 1]++);
    s.rows_[place] = static_cast<int32_t>(i / k);
    s.scales_[place] = s.weights_[from];
  }
}

/// out = expert(in), both [rows, hidden]; at most block_rows of the scratch.
void MoeBlock::run(const Expert& expert, const float* in, int64_t rows, float* out, MoeScratch& s,
                   ThreadPool& pool) const {
  const int64_t hidden = expert.down.weight.n(), intermediate = expert.down.weight.k();
  const float* gate = s.gate_up_.data();
  expert.gate_up.forward(in, hidden, rows, s.gate_up_.data(), 2 * intermediate, pool);
  if (config.swiglu_limit > 0)
    clamped_swiglu(gate, gate + intermediate, 2 * intermediate, config.swiglu_limit, s.act_.data(),
                   intermediate, rows, intermediate, pool);
  else
    activate_mul(activation, gate, gate + intermediate, 2 * intermediate, s.act_.data(), intermediate, rows,
                 intermediate, pool);
  expert.down.forward(s.act_.data(), intermediate, rows, out, hidden, pool);
}

void MoeBlock::forward(const float* x, int64_t rows, float* out, MoeScratch& s, ThreadPool& pool) const {
  FOVEA_CHECK(rows <= s.max_rows_);
  const int64_t hidden = router.weight.k();
  assign(x, rows, s, pool);
  if (shared.down.weight.n() > 0) {
    const int64_t blocks = blocks_of(rows, s.block_rows_);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = rows * b / blocks, count = rows * (b + 1) / blocks - first;
      run(shared, x + first * hidden, count, out + first * hidden, s, pool);
    }
  } else {
    std::memset(out, 0, static_cast<size_t>(rows * hidden) * sizeof(float));
  }
  const bool scales_input = config.router == MoeRouter::sigmoid_top;
  for (size_t e = 0; e < experts.size(); ++e) {
    const int64_t begin = s.starts_[e], total = s.starts_[e + 1] - begin;
    const int64_t blocks = blocks_of(total, s.block_rows_);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = begin + total * b / blocks, count = begin + total * (b + 1) / blocks - first;
      const std::span<const int32_t> ids(s.rows_.data() + first, static_cast<size_t>(count));
      const float* scales = s.scales_.data() + first;
      gather_rows(x, hidden, ids, scales_input ? scales : nullptr, s.in_.data(), hidden, pool);
      run(experts[e], s.in_.data(), count, s.out_.data(), s, pool);
      scatter_add_rows(out, hidden, ids, scales_input ? nullptr : scales, s.out_.data(), hidden, pool);
    }
  }
}

int64_t MoeBlock::bytes_per_token() const {
  const int64_t one = experts.empty() ? 0 : experts.front().bytes();
  return router.bytes() + shared.bytes() + config.experts_per_token * one;
}

int64_t MoeBlock::bytes() const {
  int64_t bytes = router.bytes() + shared.bytes();
  for (const Expert& expert : experts)
    bytes += expert.bytes();
  return bytes;
}

namespace {

Expert read_gated(const std::string& prefix, std::string_view gate, std::string_view up,
                  std::string_view down, int64_t intermediate, int64_t hidden, WeightReader& reader) {
  Expert expert;
  expert.gate_up = reader.fused(prefix, {{gate, intermediate}, {up, intermediate}}, hidden, false);
  expert.down = reader.fused(prefix, {{down, hidden}}, intermediate, false);
  return expert;
}

/// Whether `block` stores its experts fused, one tensor for all.
bool fused_experts(const std::string& block, const WeightReader& reader) {
  return reader.has(block + "experts.gate_up_proj") || reader.has(block + "experts.down_proj");
}

/// The prefix of the layer's router and experts, such as "mlp.".
std::string block_name(MoeLayout layout, const std::string& layer_prefix, const WeightReader& reader) {
  if (layout == MoeLayout::llama4) return "feed_forward.";
  // transformers 5 names Mixtral's block mlp when it saves its fused form.
  if (layout == MoeLayout::mixtral && !fused_experts(layer_prefix + "mlp.", reader))
    return "block_sparse_moe.";
  return "mlp.";
}

void read_fused_experts(const std::string& prefix, const ModelConfig& c, WeightReader& reader,
                        std::vector<Expert>& experts) {
  const MoeConfig& moe = c.moe;
  WeightReader::ExpertTensor gate_up{prefix + "gate_up_proj", moe.num_experts, 2L * moe.intermediate_size,
                                     c.hidden_size};
  WeightReader::ExpertTensor down{prefix + "down_proj", moe.num_experts, c.hidden_size,
                                  moe.intermediate_size};
  gate_up.transposed = down.transposed = moe.layout == MoeLayout::gpt_oss || moe.layout == MoeLayout::llama4;
  gate_up.interleaved = moe.layout == MoeLayout::gpt_oss;
  // modules_to_not_convert may leave some experts unquantised; the tensor names show which.
  gate_up.mxfp4 = moe.mxfp4 && !reader.has(gate_up.name);
  down.mxfp4 = moe.mxfp4 && !reader.has(down.name);
  const bool bias = moe.layout == MoeLayout::gpt_oss;
  for (int e = 0; e < moe.num_experts && reader.status(); ++e) {
    Expert& expert = experts.emplace_back();
    expert.gate_up = reader.expert(gate_up, e, bias);
    expert.down = reader.expert(down, e, bias);
  }
}

}  // namespace

MoeBlock read_moe(const std::string& layer_prefix, const ModelConfig& c, WeightReader& reader) {
  const MoeConfig& moe = c.moe;
  const bool mixtral = moe.layout == MoeLayout::mixtral;
  const std::string prefix = layer_prefix + block_name(moe.layout, layer_prefix, reader);
  const std::string_view router = mixtral || moe.layout == MoeLayout::qwen3 ? "gate" : "router";
  MoeBlock block;
  block.config = moe;
  block.activation = c.activation;
  block.router = reader.fused(prefix, {{router, moe.num_experts}}, c.hidden_size,
                              /*bias=*/moe.layout == MoeLayout::gpt_oss);
  if (moe.shared_intermediate_size > 0)
    block.shared = read_gated(prefix + "shared_expert.", "gate_proj", "up_proj", "down_proj",
                              moe.shared_intermediate_size, c.hidden_size, reader);
  const std::string experts = prefix + "experts.";
  const bool single = (mixtral || moe.layout == MoeLayout::qwen3) && !fused_experts(prefix, reader);
  if (!single) {
    read_fused_experts(experts, c, reader, block.experts);
    return block;
  }
  for (int e = 0; e < moe.num_experts && reader.status(); ++e) {
    const std::string name = experts + std::to_string(e) + ".";
    block.experts.push_back(
        mixtral ? read_gated(name, "w1", "w3", "w2", moe.intermediate_size, c.hidden_size, reader)
                : read_gated(name, "gate_proj", "up_proj", "down_proj", moe.intermediate_size, c.hidden_size,
                             reader));
  }
  return block;
}

}  // namespace fovea
