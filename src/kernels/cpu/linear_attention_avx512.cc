#include "kernels/cpu/hstu-inl.h"
#include "kernels/cpu/recurrence-inl.h"

namespace fovea::linear_attention_detail {
const LinearAttentionKernels kLinearAttentionAvx512 = {simd_avx512::kColumns, simd_avx512::recurrence,
                                                       simd_avx512::hstu};
}
