#include "kernels/cpu/hstu-inl.h"
#include "kernels/cpu/recurrence-inl.h"

namespace fovea::linear_attention_detail {
const LinearAttentionKernels kLinearAttentionAvx2 = {simd_avx2::kColumns, simd_avx2::recurrence,
                                                     simd_avx2::hstu};
}
