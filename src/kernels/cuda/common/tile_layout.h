#pragma once
// Layout of a tile's rows in shared memory.
#include "base/host_device.h"

namespace fovea::cuda {

/// Rows of a tile in shared memory: the pitch, and where 16-byte chunk c of row r lies, such that eight rows
/// of one chunk (what ldmatrix reads at a time) fall into eight different 16-byte groups of the 128 bytes of
/// banks. Rows of whole 128-byte lines have their chunks permuted by r % 8; others are padded to an odd
/// number of chunks.
template <int RowBytes>
struct TileLayout {
  static_assert(RowBytes % 16 == 0);
  static constexpr int kChunks = RowBytes / 16;
  static constexpr bool kSwizzled = RowBytes % 128 == 0;
  static constexpr int kPitch = kSwizzled ? RowBytes : (kChunks % 2 == 0 ? RowBytes + 16 : RowBytes);
  FOVEA_HOST_DEVICE static constexpr unsigned offset(unsigned row, unsigned chunk) {
    return row * kPitch + ((kSwizzled ? chunk ^ (row & 7) : chunk) << 4);
  }
  /// The address `chunks` further in the row of `address`, a chunk c of a tile at a multiple of 128, where
  /// c % 8 + chunks % 8 has no carry between bits: one XOR where the row's number would take a sum, a XOR and
  /// a shift. Constant chunks only.
  FOVEA_HOST_DEVICE static constexpr unsigned moved(unsigned address, unsigned chunks) {
    return kSwizzled ? (address ^ ((chunks & 7) << 4)) + (chunks & ~7u) * 16 : address + chunks * 16;
  }
};

}  // namespace fovea::cuda
