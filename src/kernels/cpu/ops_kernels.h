#pragma once
// The kernels of ops.cc for one instruction set (ops-inl.h): one row, or part of one, at a time.
#include <cstdint>

#include "kernels/cpu/activation.h"

namespace fovea::ops_detail {

struct OpsKernels {
  float (*sum_of_squares)(const float* x, int64_t n);
  void (*scale_by)(const float* x, float scale, const float* weight, float* y, int64_t n);
  float (*sum)(const float* x, int64_t n);
  /// Sum of (x - mean)^2.
  float (*sum_of_squares_about)(const float* x, float mean, int64_t n);
  /// y = (x - mean) * scale * weight + bias.
  void (*normalise)(const float* x, float mean, float scale, const float* weight, const float* bias, float* y,
                    int64_t n);
  /// x += scale * y.
  void (*add_scaled)(float* x, const float* y, float scale, int64_t n);
  void (*scale)(float* x, float scale, int64_t n);
  void (*softcap)(float* x, float cap, int64_t n);
  /// By Activation.
  void (*activate[kActivations])(const float* x, float* y, int64_t n);
  void (*activate_mul[kActivations])(const float* gate, const float* up, float* out, int64_t n);
  /// (a, b) = (a cos - b sin, b cos + a sin).
  void (*rotate)(float* a, float* b, const float* cos, const float* sin, int64_t n);
  /// The same with a = x[2t], b = x[2t + 1], t in [0, n).
  void (*rotate_interleaved)(float* x, const float* cos, const float* sin, int64_t n);
  /// The largest of x, NaN passed over; -inf when there is none.
  float (*max)(const float* x, int64_t n);
  /// Sum of e^(x - shift); NaN or +inf when one of x is (NaN wins).
  float (*sum_exp)(const float* x, float shift, int64_t n);
};

extern const OpsKernels kOpsGeneric;
extern const OpsKernels kOpsAvx2;
extern const OpsKernels kOpsAvx512;

}  // namespace fovea::ops_detail
