#include "kernels/cpu/index_scores-inl.h"

namespace fovea::index_scores {
const Kernels kAvx512Kernels = simd_avx512::kIndexScores;
}
