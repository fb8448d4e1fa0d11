#pragma once
// The kernels of sample_weights.cc for one instruction set (sample_weights-inl.h).
#include <cstdint>

#include "kernels/cpu/sample_weights.h"

namespace fovea::sample_detail {

struct WeightKernels {
  uint64_t (*sum)(const float* x, int64_t n, const WeightRule& rule);
  void (*each)(const float* x, int64_t n, const WeightRule& rule, uint64_t* weights);
  int64_t (*count_from)(const float* x, int64_t n, float least);
};

extern const WeightKernels kWeightsGeneric;
extern const WeightKernels kWeightsAvx2;
extern const WeightKernels kWeightsAvx512;

}  // namespace fovea::sample_detail
