#include "kernels/cpu/index_scores-inl.h"

namespace fovea::index_scores {
const Kernels kAvx2Kernels = simd_avx2::kIndexScores;
}
