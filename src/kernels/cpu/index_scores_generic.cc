#include "kernels/cpu/index_scores-inl.h"

namespace fovea::index_scores {
const Kernels kGenericKernels = simd_generic::kIndexScores;
}
