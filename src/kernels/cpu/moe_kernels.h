#pragma once
// The kernels of moe.cc for one instruction set (moe-inl.h): one row at a time.
#include <cstdint>

namespace fovea::moe_detail {

struct MoeKernels {
  /// y = scale * x.
  void (*scale)(const float* x, float scale, float* y, int64_t n);
  /// x += scale * y, fused.
  void (*add_scaled)(float* x, float scale, const float* y, int64_t n);
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, float* out, int64_t n);
};

extern const MoeKernels kMoeGeneric;
extern const MoeKernels kMoeAvx2;
extern const MoeKernels kMoeAvx512;

}  // namespace fovea::moe_detail
