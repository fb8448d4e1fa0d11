#pragma once
// The two grouped matrix products of a layer's experts: parameters and launches. A "pair" is one row with one
// of its experts; pairs are sorted by expert, then by row, and `position` is a pair's place in that order.
#include <cuda_runtime_api.h>

#include "fovea/result_fwd.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/linear/epilogue.h"

namespace fovea::cuda {

/// Written by the grouping kernel; with few pairs (kDirectPairs) the kernels sort `experts` themselves and
/// the arrays are null.
struct Grouping {
  int32_t* begin = nullptr;  ///< [num_experts + 1] the first position of each expert
  int32_t* row = nullptr;    ///< [pairs] by position
  int32_t* pair = nullptr;   ///< [pairs] by position: row * experts_per_token + place among the row's experts
  int32_t* position = nullptr;  ///< [pairs] by pair; -1 where the expert's id is out of range
  int num_experts = 0;
  const int32_t* experts = nullptr;  ///< [pairs] ids by pair
  int pairs = 0, experts_per_token = 0;

  bool direct() const { return begin == nullptr; }
};
inline constexpr int kDirectPairs = 32;  // a lane for each

struct GroupedProduct {
  Grouping groups;
  const void* x = nullptr;  ///< [rows, inputs] if `gathers`, else [pairs, inputs] by position
  int64_t x_stride = 0;
  bool gathers = false;
  ExpertMatrices weights;
  int inputs = 0, outputs = 0;    ///< outputs of the product: gated: intermediate, of twice as many columns
  const float* scales = nullptr;  ///< [pairs] by pair: multiplies the sums; null = 1
  /// f32 [pairs, outputs, of gated ones twice as many] by pair: what adapters add to the sums; null = none.
  /// Not with direct groups, nor with quantised weights.
  const float* shares = nullptr;
  EpilogueParams gate;  ///< gated only: form, linear, cubic and limit
  void* out = nullptr;  ///< by position: gated [pairs, outputs] of the dtype, else f32 [pairs, outputs]
};

/// What the host knows of a launch's size.
struct GroupedSize {
  DType dtype = DType::bf16;
  int64_t pairs = 0;
  int64_t most_rows = 0;  ///< of one expert
  int multiprocessors = 0;
  bool has_wgmma = false;  ///< compute capability 9.0
};

/// What a product's kernels do with the sums; each has instances of its own.
enum class ProductForm : uint8_t {
  plain,
  sigmoid,
  limited,
  other,    ///< any gate, and the shares of adapters
  adapted,  ///< plain with the shares of adapters
};
constexpr bool is_gated(ProductForm form) {
  return form != ProductForm::plain && form != ProductForm::adapted;
}

inline ProductForm form_of(const GroupedProduct& product, bool gated) {
  if (!gated) return product.shares == nullptr ? ProductForm::plain : ProductForm::adapted;
  if (product.shares != nullptr) return ProductForm::other;
  if (product.gate.form == GateForm::sigmoid) return ProductForm::sigmoid;
  return product.gate.form == GateForm::limited ? ProductForm::limited : ProductForm::other;
}

/// Few rows for each expert: each warp streams a panel of 16 outputs for up to 8, 16 or 32 rows.
Status launch_grouped_small(const GroupedProduct& product, bool gated, const GroupedSize& size,
                            cudaStream_t stream);
/// Many rows for each expert: tiles of 128 rows x 128 outputs by mma.sync.
Status launch_grouped_large(const GroupedProduct& product, bool gated, const GroupedSize& size,
                            cudaStream_t stream);
/// Tiles of 128 rows x 256 outputs by wgmma; for compute capability 9.0 alone.
Status launch_grouped_wide(const GroupedProduct& product, bool gated, const GroupedSize& size,
                           cudaStream_t stream);
/// Quantised weights, bf16 activations: the two as above for few and many rows.
Status launch_grouped_small_codes(const GroupedProduct& product, bool gated, const GroupedSize& size,
                                  cudaStream_t stream);
Status launch_grouped_wide_codes(const GroupedProduct& product, bool gated, const GroupedSize& size,
                                 cudaStream_t stream);
/// fp32, for proofs: one ascending chain of fma for each output.
Status launch_grouped_float(const GroupedProduct& product, bool gated, const GroupedSize& size,
                            cudaStream_t stream);

}  // namespace fovea::cuda
