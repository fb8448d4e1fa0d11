#pragma once
// The experts of a mixture-of-experts layer on a GPU. The device groups rows by expert, so that the host
// needs to know nothing about the routing; a launch allocates nothing and can be captured.
#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"
#include "kernels/cpu/activation.h"
#include "kernels/cuda/codes/code_layout.h"
#include "kernels/cuda/lora/expert_lora.h"

namespace fovea::cuda {

/// One linear layer of all experts of a layer: their matrices [n, k] lie in one allocation, `stride` bytes
/// apart (a multiple of 16; the first is 16-byte aligned). 16-bit: each is packed as WeightLayout::blocks16,
/// gate_up as gated_blocks16. f32: WeightLayout::rows, gate_up with the gates' outputs first. Codes, with
/// bf16 activations alone: each as code_layout.h.
struct ExpertMatrices {
  const void* data = nullptr;
  int64_t stride = 0;
  const float* bias = nullptr;  ///< f32 [num_experts, n], gates first in gate_up; null = none
  WeightCode code = WeightCode::none;
  /// e4m3: what multiplies the sums: f32 [num_experts, n], gates first in gate_up; with block_scales, which
  /// multiply the sum of each 128 inputs, [num_experts, panels, ceil(k / 128), 2]: of the panel's outputs 0
  /// to 7 and 8 to 15. Null = 1.
  const float* scales = nullptr;
  bool block_scales = false;
};

/// Bytes of one packed 16-bit matrix [n, k], the least stride: gated = n holds n / 2 gates and as many ups.
constexpr int64_t packed_expert_bytes(int64_t n, int64_t k, bool gated) {
  const int64_t panels = gated ? (n / 2 + 7) / 8 : (n + 15) / 16;
  return panels * ((k + 63) / 64) * 2048;
}

/// Sizes that fix the scratch memory.
struct ExpertShape {
  DType dtype = DType::bf16;             ///< of weights and activations
  int num_experts = 0;                   ///< 1 to kMaxExperts
  int experts_per_token = 0;             ///< 1 to min(kMaxExpertsPerToken, num_experts + identity_experts)
  int64_t hidden = 0, intermediate = 0;  ///< multiples of 8 if 16-bit
};

/// Chooses the matrix kernels for tests; all give the same bits.
enum class ExpertKernel : uint8_t {
  automatic,
  small,  ///< weights stream past up to 32 rows of an expert at a time
  large,  ///< tiles of 128 rows x 128 outputs by mma.sync
  wide,   ///< tiles of 128 rows x 256 outputs by wgmma (compute capability 9.0)
};

/// Adapters of the routed experts. Set is what does not depend on the routing: the slots, places and ranks,
/// slot (of each row), low and shares.
struct ExpertAdapters {
  ExpertLoraParams gate_up, down;
};
/// Rows whose shares are computed at a time: low and shares have room for their pairs.
inline constexpr int64_t kAdapterPassRows = 512;

struct ExpertsParams {
  ExpertShape shape;
  int64_t rows = 0;         ///< T
  const void* x = nullptr;  ///< [T, hidden] of shape.dtype; 16-bit: 16-byte aligned rows
  int64_t x_stride = 0;     ///< elements
  const int32_t* experts =
      nullptr;  ///< [T, experts_per_token] contiguous; an id out of range makes the row NaN
  const float* weights = nullptr;  ///< likewise
  ExpertMatrices gate_up;          ///< n = 2 * intermediate, k = hidden
  ExpertMatrices down;             ///< n = hidden, k = intermediate
  Activation f = Activation::silu;
  float limit = 0.0f;         ///< as in GatedParams
  bool scales_input = false;  ///< a weight multiplies its expert's input instead of its output
  /// Ids from num_experts on whose output is their input; out_dtype is then shape.dtype. Not with
  /// scales_input.
  int identity_experts = 0;
  const void* shared = nullptr;  ///< [T, hidden]: what the shared MLP computed; null = none. May be `out`
  DType shared_dtype = DType::f32;
  int64_t shared_stride = 0;
  void* out = nullptr;  ///< [T, hidden]; must not overlap x
  DType out_dtype = DType::bf16;
  int64_t out_stride = 0;
  void* scratch = nullptr;  ///< experts_scratch() bytes, 256-byte aligned
  int64_t scratch_bytes = 0;
  ExpertKernel kernel = ExpertKernel::automatic;
  const ExpertAdapters* adapters = nullptr;  ///< null = none; not with scales_input
};

/// Bytes of scratch for up to `max_rows` rows. It stops growing at some thousand rows: more are computed in
/// several passes.
int64_t experts_scratch(const ExpertShape& shape, int64_t max_rows);

/// out = shared + each row's experts of x times their weights, added in ascending expert id in fp32 and
/// rounded once; the activations between gate_up and down are rounded to shape.dtype. Each output of a matrix
/// is one chain of k16 steps over ascending k, as in the dense layers. With scales_input, the weight
/// multiplies the chain's fp32 result, before the bias. Errors, before the launch: sizes, strides or pointers
/// that don't go together, scratch that is too small.
Status launch_experts(const ExpertsParams& params, CudaStream& stream);

}  // namespace fovea::cuda
