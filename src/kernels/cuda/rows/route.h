#pragma once
// Choice of each row's experts from the router's logits, on a GPU.
#include <cstdint>

#include "device/cuda/cuda_stream.h"

namespace fovea::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsPerToken = 32;

/// As MoeRouter of ops/moe_router.h.
enum class Router : uint8_t {
  softmax_then_top,  ///< softmax over all experts, then the k largest
  top_then_softmax,  ///< the k largest logits, softmax over them
  sigmoid_top,       ///< the k largest logits, each through a sigmoid
  sigmoid_then_top,  ///< a sigmoid of each logit, then the k largest
};

struct RouteParams {
  Router router = Router::softmax_then_top;
  bool renormalize = true;  ///< {softmax,sigmoid}_then_top: the chosen weights are divided by their sum
  /// As RouteRule of ops/ops.h.
  const float* bias = nullptr;  ///< [num_experts] or null
  float scale = 1.0f;
  int groups = 1, top_groups = 1, group_best = 1;
  const float* logits = nullptr;  ///< [T, num_experts], not overwritten
  int64_t logits_stride = 0;
  int num_experts = 0;         ///< 1 to kMaxExperts
  int experts_per_token = 0;   ///< 1 to min(kMaxExpertsPerToken, num_experts)
  int32_t* experts = nullptr;  ///< [T, experts_per_token] contiguous, by descending logit
  float* weights = nullptr;    ///< likewise
  int64_t rows = 0;
};
/// NaN ranks above every number, the lower expert id first among equal logits. A softmax of logits that hold
/// NaN or +inf, or nothing but -inf, is NaN everywhere. Errors: sizes out of range, null pointers.
Status launch_route(const RouteParams& params, CudaStream& stream);

}  // namespace fovea::cuda
