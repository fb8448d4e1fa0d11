#include "kernels/cpu/sample_weights-inl.h"

namespace fovea::sample_detail {
const WeightKernels kWeightsAvx2 = simd_avx2::kTable;
}
