#pragma once
// How 16-bit weights lie in a GPU's memory for the linear and expert kernels. Plain functions for host and
// device.
//
// A weight [n, k] is cut into panels of 16 outputs and blocks of 64 inputs. A block is 2 KiB: 16 rows of 128
// bytes, whose 16-byte chunks are swizzled as TMA and wgmma do (chunk ^= row % 8), so that a block copied to
// shared memory is a wgmma operand and ldmatrix reads it without bank conflicts. The blocks of a panel are
// contiguous in ascending order of k, the panels follow in ascending order. Padding is zero.
//
// The outputs of a gated pair (gate [n / 2], then up [n / 2]) are interleaved by 8: panel p holds gates 8 p
// to 8 p + 7 in its rows 0 to 7 and ups 8 p to 8 p + 7 in its rows 8 to 15.
#include <cstdint>

#include "base/host_device.h"

namespace fovea::cuda {

inline constexpr int kPanelRows = 16, kBlockInputs = 64, kBlockBytes = kPanelRows * kBlockInputs * 2;

enum class PackedPart : uint8_t {
  plain,  ///< rows of an ordinary weight [n, k]
  gate,   ///< the first half of a gated pair's outputs
  up,     ///< the second half
};

/// Panels of a weight with n outputs; `gated`: n counts gates and ups.
FOVEA_HOST_DEVICE constexpr int64_t packed_panels(int64_t n, bool gated = false) {
  return gated ? (n / 2 + 7) / 8 : (n + kPanelRows - 1) / kPanelRows;
}

/// Blocks of a panel.
FOVEA_HOST_DEVICE constexpr int64_t packed_blocks(int64_t k) {
  return (k + kBlockInputs - 1) / kBlockInputs;
}

/// Bytes of a packed weight.
FOVEA_HOST_DEVICE constexpr int64_t packed_bytes(int64_t n, int64_t k, bool gated = false) {
  return packed_panels(n, gated) * packed_blocks(k) * kBlockBytes;
}

/// The row in packed order (16 * panel + row of the panel) of row `row` of a part.
FOVEA_HOST_DEVICE constexpr int64_t packed_row(PackedPart part, int64_t row) {
  if (part == PackedPart::plain) return row;
  return row / 8 * kPanelRows + row % 8 + (part == PackedPart::up ? 8 : 0);
}

/// Byte offset of input `column` of a packed row, of a weight with k inputs.
FOVEA_HOST_DEVICE constexpr int64_t packed_offset(int64_t packed_row, int64_t column, int64_t k) {
  const int64_t block = packed_row / kPanelRows * packed_blocks(k) + column / kBlockInputs;
  const int64_t chunk = (column % kBlockInputs / 8) ^ (packed_row % 8);
  return block * kBlockBytes + packed_row % kPanelRows * 128 + chunk * 16 + column % 8 * 2;
}

}  // namespace fovea::cuda
