#include "ops/cpu_experts.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/moe.h"
#include "kernels/cpu/ops.h"
#include "ops/cpu_ops.h"

namespace fovea {
namespace {

// linear() reads the weights once for this many rows: splitting an expert's rows into such blocks costs no
// extra reads, and bounds the scratch when all rows go to one expert.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kPart = 64;  // bytes: parts of the scratch start on a cache line

int64_t blocks_of(int64_t rows, int64_t block) {
  return (rows + block - 1) / block;
}

int64_t hidden_of(const ExpertWeights& w) {
  return w.shared.empty() ? w.experts.front().down.n : w.shared.down.n;
}

/// Outputs of the widest gate.
int64_t intermediate_of(const ExpertWeights& w) {
  int64_t widest = w.shared.empty() ? 0 : w.shared.down.k;
  if (!w.experts.empty()) widest = std::max(widest, w.experts.front().down.k);
  return widest;
}

/// The scratch's parts, for `rows` rows with `chosen` experts each.
struct Scratch {
  int64_t block_rows = 0;
  int64_t* starts = nullptr;  // [experts + 2] start of each expert's rows in the two arrays below
  int32_t* rows = nullptr;    // [rows * chosen] by expert, ascending
  float* scales = nullptr;    // [rows * chosen] their weights
  float* in = nullptr;        // [block_rows, hidden]
  float* wide = nullptr;      // [block_rows, 2 * intermediate]
  float* act = nullptr;       // [block_rows, intermediate]
  float* out = nullptr;       // [block_rows, hidden]
  int64_t bytes = 0;

  /// With a null `base`, only computes the sizes.
  Scratch(const ExpertWeights& w, int64_t chosen, int64_t max_rows, std::byte* base)
      : block_rows(std::min(max_rows, kBlockRows)) {
    const int64_t hidden = hidden_of(w), intermediate = intermediate_of(w), pairs = max_rows * chosen;
    const auto take = [&]<class T>(T*& part, int64_t count) {
      if (base) part = reinterpret_cast<T*>(base + bytes);
      bytes += (count * static_cast<int64_t>(sizeof(T)) + kPart - 1) / kPart * kPart;
    };
    take(starts, static_cast<int64_t>(w.experts.size()) + w.identity_experts + 2);
    take(rows, pairs);
    take(scales, pairs);
    take(in, block_rows * hidden);
    take(wide, block_rows * 2 * intermediate);
    take(act, block_rows * intermediate);
    take(out, block_rows * hidden);
  }
};

/// Lists each expert's rows in ascending order, by a counting sort.
void group_rows(const Routing& routing, int64_t experts, const Scratch& s) {
  const auto* ids = routing.experts.as<int32_t>();
  const auto* weights = routing.weights.as<float>();
  const int64_t chosen = routing.experts.size(1), pairs = routing.experts.size(0) * chosen;
  // starts[e + 1] is the write cursor of expert e, so it ends as the start of expert e + 1.
  std::fill_n(s.starts, experts + 2, int64_t{0});
  for (int64_t i = 0; i < pairs; ++i)
    ++s.starts[ids[i] + 2];
  for (int64_t e = 0; e < experts; ++e)
    s.starts[e + 2] += s.starts[e + 1];
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t place = s.starts[ids[i] + 1]++;
    s.rows[place] = static_cast<int32_t>(i / chosen);
    s.scales[place] = weights[i];
  }
}

/// The adapters of the rows of a step.
class Adapters {
 public:
  Adapters(const ExpertLora* lora, int64_t rows) : lora_(lora) {
    if (lora_ == nullptr) return;
    group_of_.assign(static_cast<size_t>(rows), -1);
    for (size_t g = 0; g < lora_->batch->size(); ++g)
      for (const int32_t row : rows_of((*lora_->batch)[g]))
        group_of_[static_cast<size_t>(row)] = static_cast<int32_t>(g);
  }

  /// out += the shares of an expert's rows `ids`, which lie next to each other in `in` and `out`; with empty
  /// ids they are `first` and those after it.
  void add(size_t expert, bool down, std::span<const int32_t> ids, int64_t first, int64_t rows,
           const float* in, int64_t in_stride, float* out, int64_t out_stride, ThreadPool& pool) {
    if (lora_ == nullptr) return;
    const auto layer = static_cast<size_t>(lora_->layer);
    for (size_t g = 0; g < lora_->batch->size(); ++g) {
      const auto& experts = (*lora_->batch)[g].adapter->experts;
      if (experts.empty() || experts[layer].empty()) continue;
      const LoraWeights& weights = experts[layer][expert][down ? 1 : 0];
      if (weights.empty()) continue;
      places_.clear();
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = ids.empty() ? first + i : ids[static_cast<size_t>(i)];
        if (group_of_[static_cast<size_t>(row)] == static_cast<int32_t>(g))
          places_.push_back(static_cast<int32_t>(i));
      }
      apply_lora(weights, places_, in, in_stride, out, out_stride, lora_->scratch, pool);
    }
  }

 private:
  const std::vector<int32_t>& rows_of(const LoraGroup& group) const {
    return lora_->logit_rows ? group.logit_rows : group.rows;
  }

  const ExpertLora* lora_;
  std::vector<int32_t> group_of_, places_;
};

/// Rows of an expert's block, as Adapters::add() has them.
struct Rows {
  size_t expert = 0;
  std::span<const int32_t> ids;
  int64_t first = 0, count = 0;
};

/// out = mlp(in), both [rows, hidden], at most block_rows.
void run(const GatedMlpWeights& mlp, const GatedActivation& activation, const Rows& rows, const float* in,
         float* out, Adapters& adapters, const Scratch& s, ThreadPool& pool) {
  const int64_t hidden = mlp.down.n, intermediate = mlp.down.k, wide = 2 * intermediate;
  linear(packed_view(mlp.gate_up), in, hidden, rows.count, s.wide, wide, mlp.gate_up.bias.as<float>(), pool);
  adapters.add(rows.expert, false, rows.ids, rows.first, rows.count, in, hidden, s.wide, wide, pool);
  gated_activate_on_cpu(activation, s.wide, wide, rows.count, intermediate, s.act, intermediate, pool);
  linear(packed_view(mlp.down), s.act, intermediate, rows.count, out, hidden, mlp.down.bias.as<float>(),
         pool);
  adapters.add(rows.expert, true, rows.ids, rows.first, rows.count, s.act, intermediate, out, hidden, pool);
}

}  // namespace

void gated_linear_on_cpu(const LinearWeight& gate_up, const GatedActivation& activation, const float* x,
                         int64_t x_stride, int64_t rows, float* wide, int64_t wide_stride, float* out,
                         int64_t out_stride, ThreadPool& pool) {
  const int64_t width = gate_up.n / 2;
  linear(packed_view(gate_up), x, x_stride, rows, wide, wide_stride, gate_up.bias.as<float>(), pool);
  gated_activate_on_cpu(activation, wide, wide_stride, rows, width, out, out_stride, pool);
}

void gated_activate_on_cpu(const GatedActivation& activation, const float* wide, int64_t wide_stride,
                           int64_t rows, int64_t width, float* out, int64_t out_stride, ThreadPool& pool) {
  if (activation.limit > 0)
    clamped_swiglu(wide, wide + width, wide_stride, activation.limit, out, out_stride, rows, width, pool);
  else
    activate_mul(activation.f, wide, wide + width, wide_stride, out, out_stride, rows, width, pool);
}

int64_t cpu_expert_scratch(const ExpertWeights& weights, int experts_per_token, int64_t max_rows) {
  return Scratch(weights, experts_per_token, max_rows, nullptr).bytes;
}

void run_experts_on_cpu(const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                        const Tensor& scratch, const Tensor& out, ThreadPool& pool) {
  const int64_t rows = x.size(0), hidden = x.size(1), experts = static_cast<int64_t>(weights.experts.size());
  if (rows == 0) return;
  const Scratch s(weights, routing.experts.size(1), rows, scratch.as<std::byte>());
  const auto* in = x.as<float>();
  auto* sum = out.as<float>();
  group_rows(routing, experts + weights.identity_experts, s);
  Adapters adapters(weights.lora, rows);
  if (!weights.shared.empty()) {
    const int64_t blocks = blocks_of(rows, s.block_rows);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = rows * b / blocks, count = rows * (b + 1) / blocks - first;
      run(weights.shared, weights.activation, {static_cast<size_t>(experts), {}, first, count},
          in + first * hidden, sum + first * hidden, adapters, s, pool);
    }
  } else {
    std::memset(sum, 0, static_cast<size_t>(rows * hidden) * sizeof(float));
  }
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t begin = s.starts[e], total = s.starts[e + 1] - begin;
    const int64_t blocks = blocks_of(total, s.block_rows);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = begin + total * b / blocks, count = begin + total * (b + 1) / blocks - first;
      const std::span<const int32_t> ids(s.rows + first, static_cast<size_t>(count));
      const float* scales = s.scales + first;
      gather_rows(in, hidden, ids, weights.scales_input ? scales : nullptr, s.in, hidden, pool);
      const auto expert = static_cast<size_t>(e);
      run(weights.experts[expert], weights.activation, {expert, ids, 0, count}, s.in, s.out, adapters, s,
          pool);
      scatter_add_rows(sum, hidden, ids, weights.scales_input ? nullptr : scales, s.out, hidden, pool);
    }
  }
  for (int64_t e = experts; e < experts + weights.identity_experts; ++e)
    for (int64_t first = s.starts[e]; first < s.starts[e + 1]; first += s.block_rows) {
      const int64_t count = std::min(s.block_rows, s.starts[e + 1] - first);
      const std::span<const int32_t> ids(s.rows + first, static_cast<size_t>(count));
      gather_rows(in, hidden, ids, nullptr, s.in, hidden, pool);
      scatter_add_rows(sum, hidden, ids, s.scales + first, s.in, hidden, pool);
    }
}

}  // namespace fovea
