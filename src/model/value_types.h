#pragma once
// Values of a checkpoint's 16-bit and 32-bit types.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "fovea/dtype.h"

namespace fovea {

/// Element `index` of an array of any alignment.
inline float value_at(const std::byte* data, int64_t index, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

/// The smallest magnitude that rounds to infinity: half an ulp above the largest finite number.
inline float overflow_limit(DType dtype) {
  return dtype == DType::f16 ? 65520.0f : dtype == DType::bf16 ? 0x1.ffp127f : INFINITY;
}

}  // namespace fovea
