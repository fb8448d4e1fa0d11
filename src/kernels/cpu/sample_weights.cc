#include "kernels/cpu/sample_weights.h"

#include "base/cpu_features.h"
#include "kernels/cpu/sample_weights_kernels.h"

namespace fovea {
namespace {

const sample_detail::WeightKernels& weight_kernels() {
  switch (current_isa()) {
    case Isa::avx512: return sample_detail::kWeightsAvx512;
    case Isa::avx2: return sample_detail::kWeightsAvx2;
    case Isa::generic: break;
  }
  return sample_detail::kWeightsGeneric;
}

}  // namespace

uint64_t sum_weights(const float* x, int64_t n, const WeightRule& rule) {
  return weight_kernels().sum(x, n, rule);
}

void fixed_weights(const float* x, int64_t n, const WeightRule& rule, uint64_t* weights) {
  weight_kernels().each(x, n, rule, weights);
}

int64_t count_from(const float* x, int64_t n, float least) {
  return weight_kernels().count_from(x, n, least);
}

}  // namespace fovea
