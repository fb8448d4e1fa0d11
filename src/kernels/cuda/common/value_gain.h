#pragma once
// KvParams::v_gain for a cache.
#include "kernels/cuda/common/params.h"

namespace fovea::cuda {

/// With a scale per token, a token's largest value has the type's largest element (448, 57344, 127), so the
/// scale is that value divided by it. The gain is the next power of two, so that scale * gain is at most
/// 8/7 of the token's largest value. With a scale per head this does not hold: an e5m2 cache may contain
/// unscaled values with a scale of 1, and 1 * 2^16 is beyond fp16. A gain is not needed there: a head's scale
/// is no smaller than the head's largest value over the type's largest element.
inline float value_gain(const KvParams& kv, KvType type) {
  if (kv.v_scales == nullptr || (kv.scale_slot_stride == 0 && kv.scale_page_stride == 0)) return 1.0f;
  if (type == KvType::e4m3) return 0x1p9f;
  if (type == KvType::e5m2) return 0x1p16f;
  return type == KvType::int8 ? 0x1p7f : 1.0f;
}

}  // namespace fovea::cuda
