#include "kernels/cpu/sample_weights-inl.h"

namespace fovea::sample_detail {
const WeightKernels kWeightsGeneric = simd_generic::kTable;
}
