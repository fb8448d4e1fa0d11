#include "kernels/cpu/sample_weights-inl.h"

namespace fovea::sample_detail {
const WeightKernels kWeightsAvx512 = simd_avx512::kTable;
}
