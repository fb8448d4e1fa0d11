#pragma once
// Swizzled layout of a shared-memory tile: the same 16-byte chunk of 8 rows lies in 8 different bank groups.
// TMA and wgmma apply the same function to the bits of the address, so ldmatrix can read tiles of either.
#include <cstdint>

#include "base/host_device.h"

namespace fovea::cuda {

/// Byte offset -> swizzled byte offset in a tile whose rows are kSpan bytes apart and whose base is aligned
/// to 8 * kSpan: chunk index ^= row (128), row / 2 (64) or row / 4 (32); 16 = none.
template <int kSpan>
FOVEA_HOST_DEVICE constexpr uint32_t swizzle(uint32_t offset) {
  static_assert(kSpan == 16 || kSpan == 32 || kSpan == 64 || kSpan == 128);
  return offset ^ (((offset >> 7) & (kSpan / 16 - 1)) << 4);
}

/// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of kRowBytes a row (a power of two from 16
/// on). Rows longer than 128 bytes have their low three chunk bits swizzled by the row.
template <int kRowBytes>
FOVEA_HOST_DEVICE constexpr uint32_t swizzled_chunk(int row, int chunk) {
  static_assert(kRowBytes >= 16 && (kRowBytes & (kRowBytes - 1)) == 0);
  if constexpr (kRowBytes <= 128) {
    return swizzle<kRowBytes>(static_cast<uint32_t>(row * kRowBytes + chunk * 16));
  } else {
    return static_cast<uint32_t>(row * kRowBytes + (chunk ^ (row & 7)) * 16);
  }
}

}  // namespace fovea::cuda
