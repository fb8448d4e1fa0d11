#pragma once
// What ops.cc asks of an instruction set's kernels (ops-inl.h): one row, or part of one, at a time.
#include <cstdint>

namespace fovea::ops_detail {

struct OpsKernels {
  float (*sum_of_squares)(const float* x, int64_t n);
  void (*scale_by)(const float* x, float scale, const float* weight, float* y, int64_t n);
  void (*add)(float* x, const float* y, int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t n);
  /// (a, b) = (a cos - b sin, b cos + a sin).
  void (*rotate)(float* a, float* b, const float* cos, const float* sin, int64_t n);
  /// The largest of x, NaN passed over; -inf when there is none.
  float (*max)(const float* x, int64_t n);
  /// Sum of e^(x - shift); NaN or +inf when one of x is (NaN wins).
  float (*sum_exp)(const float* x, float shift, int64_t n);
};

extern const OpsKernels kOpsGeneric;
extern const OpsKernels kOpsAvx2;
extern const OpsKernels kOpsAvx512;

}  // namespace fovea::ops_detail
