#pragma once
// What KvParams::v_gain is for a cache.
#include "kernels/cuda/common/params.h"

namespace fovea::cuda {

/// With a scale for each token an element is its share of the token's largest value, and the gain is the
/// power of two above the type's largest element (448, 57344, 127). Scales of whole heads say nothing of
/// that: an e5m2 cache may hold plain values with a scale of 1, whose products with 2^16 would be beyond
/// fp16. They need none either: a head's scale is no smaller than its largest value over the type's largest
/// element.
inline float value_gain(const KvParams& kv, KvType type) {
  if (kv.v_scales == nullptr || (kv.scale_slot_stride == 0 && kv.scale_page_stride == 0)) return 1.0f;
  if (type == KvType::e4m3) return 0x1p9f;
  if (type == KvType::e5m2) return 0x1p16f;
  return type == KvType::int8 ? 0x1p7f : 1.0f;
}

}  // namespace fovea::cuda
