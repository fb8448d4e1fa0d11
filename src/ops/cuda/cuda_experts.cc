#include "ops/cuda/cuda_experts.h"

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/lora/expert_lora.h"
#include "ops/cuda/cuda_params.h"

namespace fovea {
namespace {

/// The matrices of all experts, which WeightPlacement puts at a constant distance.
cuda::ExpertMatrices matrices_of(std::span<const GatedMlpWeights> experts,
                                 LinearWeight GatedMlpWeights::* which) {
  cuda::ExpertMatrices out;
  const LinearWeight& first = experts.front().*which;
  out.data = first.data.data;
  out.bias = first.bias.as<const float>();
  out.code = code_of(first);
  out.scales = first.scales.as<const float>();
  out.block_scales = first.format.scaled && first.format.block_k != 0;
  if (experts.size() == 1) {
    out.stride = round_up(first.data.elements() * static_cast<int64_t>(size_of(first.data.dtype)), 16);
    return out;
  }
  const auto address = [&](const LinearWeight& w) { return static_cast<const std::byte*>(w.data.data); };
  out.stride = address(experts[1].*which) - address(first);
  const LinearWeight& last = experts.back().*which;
  const auto distance = static_cast<int64_t>(experts.size()) - 1;
  FOVEA_CHECK(out.stride > 0 && address(last) == address(first) + distance * out.stride);
  FOVEA_CHECK(!out.bias || last.bias.as<float>() == out.bias + distance * first.n);
  FOVEA_CHECK(!out.scales || last.scales.as<float>() == out.scales + distance * first.scales.elements());
  return out;
}

cuda::ExpertShape shape_of(const ExpertWeights& weights, int experts_per_token, DType dtype) {
  const GatedMlpWeights& first = weights.experts.front();
  return {dtype, static_cast<int>(weights.experts.size()), experts_per_token, first.down.n, first.down.k};
}

/// The places of a layer's experts that adapters can change; empty: none.
std::span<const std::array<LoraPlace, 2>> expert_places(const ExpertLora* lora) {
  if (lora == nullptr || lora->layout == nullptr || !lora->layout->has_experts(lora->layer)) return {};
  return lora->layout->experts[static_cast<size_t>(lora->layer)];
}

/// Offsets in the scratch of experts(): the kernel's part, then the activation and the output of the shared
/// MLP; for adapters each row's slot, x A^T and shares of the experts' pairs, x A^T and sums of the shared
/// MLP.
struct ExpertScratch {
  int64_t kernel = 0, act = 0, shared = 0, slots = 0, low = 0, shares = 0, shared_low = 0, sums = 0, end = 0;

  ExpertScratch(const Ops& ops, const ExpertWeights& weights, const cuda::ExpertShape& shape, int64_t rows) {
    kernel = end = cuda::experts_scratch(shape, rows);
    end = round_up(end, kScratchPart);
    const auto take = [&](int64_t& part, int64_t elements, int64_t bytes) {
      part = end;
      end += round_up(elements * bytes, kScratchPart);
    };
    constexpr int64_t kFloat = sizeof(float);
    const bool has_shared = !weights.shared.empty();
    if (has_shared) {
      take(act, rows * act_stride(weights), static_cast<int64_t>(size_of(shape.dtype)));
      take(shared, rows * shape.hidden, kFloat);
    }
    const auto places = expert_places(weights.lora);
    if (places.empty()) return;
    const int64_t rank = weights.lora->layout->max_rank;
    const int64_t pairs = std::min(rows, cuda::kAdapterPassRows) * shape.experts_per_token;
    take(slots, rows, sizeof(int32_t));
    take(low, pairs * 2 * rank, kFloat);
    take(shares, pairs * std::max(2 * shape.intermediate, shape.hidden), kFloat);
    if (!has_shared) return;
    take(shared_low, rows * ops.lora_parts(shape.hidden) * 2 * rank, kFloat);
    take(sums, std::min(rows, weights.lora->block_rows) * ops.lora_columns(weights.shared.gate_up), kFloat);
  }
  static int64_t act_stride(const ExpertWeights& weights) { return round_up(weights.shared.down.k, 8); }
};

/// The adapters' product of the experts at `places`, of which the first is expert 0; `site` 0 is gate_up, 1
/// is down.
cuda::ExpertLoraParams expert_lora_params(const LoraStep& step,
                                          std::span<const std::array<LoraPlace, 2>> places, size_t site) {
  const LoraLayout& layout = *step.layout;
  const LoraPlace& place = places.front()[site];
  cuda::ExpertLoraParams p;
  p.dtype = layout.dtype;
  p.slots = step.slots.data;
  p.slot_bytes = layout.slot_bytes();
  p.matrices = layout.table_bytes();
  p.a = place.a;
  p.b = place.b;
  p.line = place.line;
  if (places.size() > 1) {
    p.stride = places[1][site].a - place.a;
    p.line_stride = places[1][site].line - place.line;
  }
  p.k = place.k;
  p.a_stride = place.a_stride();
  p.n = place.n;
  p.modules = place.modules;
  p.second_output = place.first_output[1];
  p.max_rank = layout.max_rank;
  return p;
}

Status shared_mlp(Ops& ops, const ExpertWeights& weights, const Tensor& x, std::byte* act, std::byte* out,
                  Stream& stream) {
  const GatedMlpWeights& mlp = weights.shared;
  const Tensor between = Tensor::dense(act, ops.device(), element_of(ops.activations()),
                                       {x.size(0), ExpertScratch::act_stride(weights)})
                             .slice(1, 0, mlp.down.k);
  FOVEA_RETURN_IF_ERROR(ops.gated_linear(mlp.gate_up, weights.activation, x, {}, between, stream));
  return ops.linear(mlp.down, between,
                    Tensor::dense(out, ops.device(), ElementType::f32, {x.size(0), mlp.down.n}), stream);
}

/// The shared MLP in a step with adapters, whose slots are known.
Status adapted_shared_mlp(Ops& ops, const ExpertWeights& weights, const Tensor& x, const ExpertScratch& parts,
                          std::byte* memory, Stream& stream) {
  const GatedMlpWeights& mlp = weights.shared;
  const ExpertLora& lora = *weights.lora;
  const LoraTiles& tiles = lora.logit_rows ? lora.step->logit_rows : lora.step->rows;
  const auto places = expert_places(&lora).last(1);
  const int64_t rows = x.size(0);
  const Tensor between = Tensor::dense(memory + parts.act, ops.device(), element_of(ops.activations()),
                                       {rows, ExpertScratch::act_stride(weights)})
                             .slice(1, 0, mlp.down.k);
  const auto floats = [&](int64_t at, int64_t n, int64_t columns) {
    return Tensor::dense(memory + at, ops.device(), ElementType::f32, {n, columns});
  };
  const Tensor sums = floats(parts.sums, std::min(rows, lora.block_rows), ops.lora_columns(mlp.gate_up));
  const Tensor low =
      floats(parts.shared_low, rows, ops.lora_parts(mlp.gate_up.k) * 2 * lora.layout->max_rank);
  FOVEA_RETURN_IF_ERROR(ops.gated_linear_lora(mlp.gate_up, weights.activation,
                                              {*lora.step, places.front()[0], tiles, x, low}, sums, between,
                                              stream));
  const Tensor out = floats(parts.shared, rows, mlp.down.n);
  FOVEA_RETURN_IF_ERROR(ops.linear(mlp.down, between, out, stream));
  cuda::ExpertLoraParams p = expert_lora_params(*lora.step, places, 1);
  p.slot = reinterpret_cast<const int32_t*>(memory + parts.slots);
  p.rows = rows;
  p.x = between.data;
  p.x_stride = between.stride(0);
  p.low = low.as<float>();
  p.shares = out.as<float>();
  p.adds = true;
  return cuda::launch_expert_lora(p, stream.cuda());
}

}  // namespace

Status cuda_experts(Ops& ops, const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                    const Tensor& scratch, const Tensor& out, Stream& stream) {
  const int64_t rows = x.size(0);
  if (rows == 0) return {};
  cuda::ExpertsParams p;
  p.shape = shape_of(weights, static_cast<int>(routing.experts.size(1)), ops.activations());
  const ExpertScratch parts(ops, weights, p.shape, rows);
  std::byte* const memory = scratch_begin(scratch);
  p.rows = rows;
  p.x = x.data;
  p.x_stride = x.stride(0);
  p.experts = routing.experts.as<const int32_t>();
  p.weights = routing.weights.as<const float>();
  p.gate_up = matrices_of(weights.experts, &GatedMlpWeights::gate_up);
  p.down = matrices_of(weights.experts, &GatedMlpWeights::down);
  p.f = weights.activation.f;
  p.limit = weights.activation.limit;
  p.scales_input = weights.scales_input;
  p.identity_experts = weights.identity_experts;
  cuda::ExpertAdapters adapters;
  const auto places = expert_places(weights.lora);
  const LoraStep* const step = places.empty() ? nullptr : weights.lora->step;
  if (step != nullptr) {
    const LoraTiles& tiles = weights.lora->logit_rows ? step->logit_rows : step->rows;
    auto* const slots = reinterpret_cast<int32_t*>(memory + parts.slots);
    FOVEA_RETURN_IF_ERROR(cuda::launch_row_slots(tiles.order.as<const int32_t>(),
                                                 tiles.tiles.as<const int32_t>(), tiles.tiles.size(0), slots,
                                                 stream.cuda()));
    const auto routed = places.first(weights.experts.size());
    adapters = {expert_lora_params(*step, routed, 0), expert_lora_params(*step, routed, 1)};
    for (cuda::ExpertLoraParams* product : {&adapters.gate_up, &adapters.down}) {
      product->slot = slots;
      product->low = reinterpret_cast<float*>(memory + parts.low);
      product->shares = reinterpret_cast<float*>(memory + parts.shares);
    }
    p.adapters = &adapters;
  }
  if (!weights.shared.empty()) {
    FOVEA_RETURN_IF_ERROR(
        step != nullptr ? adapted_shared_mlp(ops, weights, x, parts, memory, stream)
                        : shared_mlp(ops, weights, x, memory + parts.act, memory + parts.shared, stream));
    p.shared = memory + parts.shared;
    p.shared_stride = p.shape.hidden;
  }
  p.out = out.data;
  p.out_dtype = dtype_of(out);
  p.out_stride = out.stride(0);
  p.scratch = memory;
  p.scratch_bytes = parts.kernel;
  return cuda::launch_experts(p, stream.cuda());
}

int64_t cuda_expert_scratch(const Ops& ops, const ExpertWeights& weights, int experts_per_token,
                            int64_t max_rows) {
  const ExpertScratch parts(ops, weights, shape_of(weights, experts_per_token, ops.activations()), max_rows);
  return parts.end + kScratchPart;
}

}  // namespace fovea
