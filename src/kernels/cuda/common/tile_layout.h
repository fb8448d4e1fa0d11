#pragma once
// Layout of a tile's rows in shared memory.
#include "base/host_device.h"

namespace fovea::cuda {

/// Pitch of a tile's rows in shared memory and offset of 16-byte chunk c of row r, such that one chunk of
/// eight rows (which ldmatrix reads at a time) falls into eight different 16-byte groups of the 128 bytes of
/// banks. Rows of whole 128-byte lines are swizzled: their chunks are permuted by r % 8. Others are padded to
/// an odd number of chunks.
template <int RowBytes>
struct TileLayout {
  static_assert(RowBytes % 16 == 0);
  static constexpr int kChunks = RowBytes / 16;
  static constexpr bool kSwizzled = RowBytes % 128 == 0;
  static constexpr int kPitch = kSwizzled ? RowBytes : (kChunks % 2 == 0 ? RowBytes + 16 : RowBytes);
  FOVEA_HOST_DEVICE static constexpr unsigned offset(unsigned row, unsigned chunk) {
    return row * kPitch + ((kSwizzled ? chunk ^ (row & 7) : chunk) << 4);
  }
  /// The address `chunks` after `address` in the same row; `address` is that of a chunk c, the tile lies at a
  /// multiple of 128, and c % 8 + chunks % 8 has no carry between bits. One XOR, where offset() takes a sum,
  /// a XOR and a shift. For constant `chunks` only.
  FOVEA_HOST_DEVICE static constexpr unsigned moved(unsigned address, unsigned chunks) {
    return kSwizzled ? (address ^ ((chunks & 7) << 4)) + (chunks & ~7u) * 16 : address + chunks * 16;
  }
};

}  // namespace fovea::cuda
