#include "kernels/cpu/hstu-inl.h"
#include "kernels/cpu/recurrence-inl.h"

namespace fovea::linear_attention_detail {
const LinearAttentionKernels kLinearAttentionGeneric = {simd_generic::kColumns, simd_generic::recurrence,
                                                        simd_generic::hstu};
}
