#pragma once
// The 8-bit floating-point formats of OCP: e4m3fn (no infinity, NaN 0x7f and 0xff, largest 448) and e5m2 (the
// high byte of an fp16, largest finite 57344). Conversion from float rounds to nearest even and saturates:
// values too large, infinity included, become the largest finite number; NaN stays NaN. Plain C++; kernels
// use intrinsics.
#include <bit>
#include <cstdint>

#include "base/float16.h"

namespace fovea {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE5m2Max = 57344.0f;

FOVEA_HOST_DEVICE inline float e4m3_to_float(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {  // zero or subnormal: a multiple of 2^-9
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude + (120u << 3)) << 20));  // exponent bias 7 to 127
}

FOVEA_HOST_DEVICE inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (std::bit_cast<float>(magnitude) >= kE4m3Max) return static_cast<uint8_t>(sign | 0x7eu);
  if (std::bit_cast<float>(magnitude) < 0x1p-6f) {
    // Subnormal. One ulp of 2^14 is 2^-9: the sum rounds to a multiple of it, and its low bits hold the
    // multiple.
    const float sum = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0x1p14f)));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

FOVEA_HOST_DEVICE inline float e5m2_to_float(uint8_t bits) {
  return fp16_to_float(static_cast<uint16_t>(bits << 8));
}

FOVEA_HOST_DEVICE inline uint8_t float_to_e5m2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 24 & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (std::bit_cast<float>(magnitude) >= kE5m2Max) return static_cast<uint8_t>(sign | 0x7bu);
  if (std::bit_cast<float>(magnitude) < 0x1p-14f) {  // likewise: one ulp of 2^7 is 2^-16
    const float sum = std::bit_cast<float>(magnitude) + 0x1p7f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0x1p7f)));
  }
  const uint32_t rounded = magnitude + 0xfffffu + (magnitude >> 21 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 21) - (112u << 2)));
}

struct e4m3 {
  uint8_t bits = 0;
};

struct e5m2 {
  uint8_t bits = 0;
};

}  // namespace fovea
