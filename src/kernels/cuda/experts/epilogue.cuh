#pragma once
// What becomes of a finished sum of a grouped product, in fp32; the gates as in the dense layers.
#include "fovea/result.h"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/linear/epilogue.cuh"

namespace fovea::cuda {

/// The factor of a position's sums.
FOVEA_DEVICE float sum_scale(const GroupedProduct& p, int position) {
  return p.scales == nullptr ? 1.0f : p.scales[p.groups.pair[position]];
}

/// The same with the pair known.
FOVEA_DEVICE float pair_scale(const GroupedProduct& p, int pair) {
  return p.scales == nullptr ? 1.0f : p.scales[pair];
}

/// Bias of output `output` of an expert; `part` 1 = the up of a gated pair.
FOVEA_DEVICE float bias_of(const GroupedProduct& p, bool gated, int expert, int part, int output) {
  if (p.weights.bias == nullptr || output >= p.outputs) return 0.0f;
  const int64_t n = gated ? 2 * p.outputs : p.outputs;
  return p.weights.bias[expert * n + part * p.outputs + output];
}

FOVEA_DEVICE float finished(const GroupedProduct& p, float sum, float scale, float bias) {
  if (p.scales != nullptr) sum = __fmul_rn(sum, scale);
  return p.weights.bias == nullptr ? sum : __fadd_rn(sum, bias);
}

/// A finished sum with what adapters add; `part` as in bias_of(). Rows without an adapter keep their bits,
/// also of -0.
template <ProductForm kForm>
FOVEA_DEVICE float adapted(const GroupedProduct& p, float sum, int position, int part, int output) {
  if constexpr (kForm == ProductForm::other || kForm == ProductForm::adapted) {
    if (p.shares == nullptr || output >= p.outputs) return sum;
    const int64_t n = is_gated(kForm) ? 2 * p.outputs : p.outputs;
    const float share = p.shares[p.groups.pair[position] * n + part * p.outputs + output];
    return share == 0.0f ? sum : __fadd_rn(sum, share);
  }
  return sum;
}

/// What multiplies the sums of an output of quantised weights; as bias_of().
FOVEA_DEVICE float code_scale_of(const GroupedProduct& p, bool gated, int expert, int part, int output) {
  if (p.weights.scales == nullptr || p.weights.block_scales || output >= p.outputs) return 1.0f;
  const int64_t n = gated ? 2 * p.outputs : p.outputs;
  return p.weights.scales[expert * n + part * p.outputs + output];
}

/// activation(gate) * up for a 16-bit result.
template <ProductForm kForm>
FOVEA_DEVICE float gated_sum(const GroupedProduct& p, float gate, float up) {
  if constexpr (kForm == ProductForm::sigmoid) return gated_value<GateForm::sigmoid, false>(p.gate, gate, up);
  if constexpr (kForm == ProductForm::limited) return gated_value<GateForm::limited, false>(p.gate, gate, up);
  return gated_value<false>(p.gate, gate, up);
}

/// f(T, form) with the types of a product's kernels.
template <class F>
Status with_product(const GroupedProduct& product, bool gated, DType dtype, F&& f) {
  const auto with_form = [&](auto type) -> Status {
    switch (form_of(product, gated)) {
      case ProductForm::plain: return f(type, std::integral_constant<ProductForm, ProductForm::plain>());
      case ProductForm::sigmoid: return f(type, std::integral_constant<ProductForm, ProductForm::sigmoid>());
      case ProductForm::limited: return f(type, std::integral_constant<ProductForm, ProductForm::limited>());
      case ProductForm::adapted: return f(type, std::integral_constant<ProductForm, ProductForm::adapted>());
      default: return f(type, std::integral_constant<ProductForm, ProductForm::other>());
    }
  };
  return dtype == DType::f16 ? with_form(__half{}) : with_form(__nv_bfloat16{});
}

}  // namespace fovea::cuda
