#pragma once
// MXFP4 (OCP Microscaling): blocks of 32 four-bit e2m1 values with one power-of-two scale, used for gpt-oss's
// experts. Value = {0, .5, 1, 1.5, 2, 3, 4, 6, and their negatives} * 2^(scale - 127).
#include <cstddef>
#include <cstdint>
#include <optional>

namespace fovea {

inline constexpr int64_t kMxfp4BlockValues = 32;
inline constexpr int64_t kMxfp4BlockBytes = 16;
/// The smallest scale with a value that is not finite.
inline constexpr std::byte kMxfp4FirstOverflow{253};

/// One value as bf16 bits. Exact: e2m1 has at most two significant bits where bf16 has eight, and the
/// smallest, 0.5 * 2^-127, is a multiple of bf16's smallest subnormal 2^-133. Infinity from 2^128 on (scales
/// 253 and 254 only); NaN for scale 255.
constexpr uint16_t mxfp4_to_bf16(unsigned value, unsigned scale) {
  if (scale == 255) return 0x7fc0;
  const unsigned sign = (value & 8u) << 12, magnitude = value & 7u;
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  // magnitude = (1 + half / 2) * 2^exponent
  const int exponent = magnitude == 1 ? -1 : static_cast<int>(magnitude >> 1) - 1;
  const unsigned significand = magnitude == 1 || (magnitude & 1u) == 0 ? 0x80 : 0xc0;  // of 8 bits
  const int biased = exponent + static_cast<int>(scale);  // bf16's bias is 127 too
  if (biased >= 255) return static_cast<uint16_t>(sign | 0x7f80u);
  if (biased <= 0) return static_cast<uint16_t>(sign | significand >> (1 - biased));  // subnormal
  return static_cast<uint16_t>(sign | static_cast<unsigned>(biased) << 7 | (significand & 0x7fu));
}

/// Decodes `count` blocks to out [count * 32] bf16: byte i of a block holds value 2i in its low nibble and
/// 2i + 1 in its high one; scales [count]. Returns the first block that holds a NaN or infinity.
std::optional<int64_t> decode_mxfp4(const std::byte* blocks, const std::byte* scales, int64_t count,
                                    uint16_t* out);

}  // namespace fovea
