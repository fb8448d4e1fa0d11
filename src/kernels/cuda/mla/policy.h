#pragma once
// Constants of the kernels for absorbed MLA. A key is a record of a latent cache: 512 latent elements, which
// are also its value, then 64 that carry the position (rope). All query heads share the one KV head.
#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::mla {

inline constexpr int kD = 576;       ///< elements of a record and of a query row
inline constexpr int kDv = 512;      ///< elements of a value and of an output row
inline constexpr int kRowTile = 64;  ///< packed rows of the larger tiles, by which row tiles are counted

/// Tensor cores through mma.sync, for sm_80 and later. A group of four warps has 16 packed rows; a CTA has
/// one group or two, which share the keys in shared memory. Each warp multiplies its quarter of the 576 dims
/// for the scores, sums the four quarters in order, and has a quarter of the columns of V.
template <class Query, KvType Kv>
struct Sm80Policy {
  using Q = Query;
  static constexpr KvType kKv = Kv;
  static constexpr bool kEightBit = Kv != KvType::same;
  static constexpr int kGroupRows = 16, kGroupWarps = 4, kMostGroups = 2;
  static constexpr int kTileKeys = 32;
  static constexpr int kPitch = kD * 2 + 16;  ///< bytes between keys: ldmatrix without bank conflicts
  static constexpr int kTileBytes = kTileKeys * kPitch;
  /// Two tiles of 16-bit keys; or two of 8-bit keys as they are stored, and one that they are widened to,
  /// which is exact.
  static constexpr int kRawBytes = kEightBit ? 2 * kTileKeys * kD : 0;
  static constexpr int kTiles = kEightBit ? 1 : 2;
  static constexpr int kScoreBytes = kGroupWarps * kGroupRows * kTileKeys * 4;  ///< of a group
  static constexpr int threads(int groups) { return groups * kGroupWarps * 32; }
  static constexpr int shared_bytes(int groups) {
    return kRawBytes + kTiles * kTileBytes + groups * kScoreBytes;
  }
};

/// Hopper: wgmma, TMA. A producer warpgroup; a warpgroup that computes the scores of 64 packed rows and the
/// left half of their O; one for the right half of O.
struct Sm90Policy {
  static constexpr int kRows = kRowTile, kTileKeys = 64, kStages = 2, kThreads = 384;
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  /// Panels of 64 dims, 128 bytes a row: of Q, and of a tile of keys.
  static constexpr int kPanels = kD / 64, kPanelBytes = 64 * 128;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kKeysOffset = kTileBytes;  ///< after Q
  static constexpr int kProbabilitiesOffset = kKeysOffset + kStages * kTileBytes;
  static constexpr int kFactorsOffset = kProbabilitiesOffset + kPanelBytes;
  static constexpr int kTargetsOffset = kFactorsOffset + kRows * 4;
  static constexpr int kBarriersOffset = kTargetsOffset + kRows * 8;
  static constexpr int kBarrierBytes = (2 + 4 * kStages) * 8;
  /// 1024 more, to align the tiles.
  static constexpr int kSharedBytes = kBarriersOffset + kBarrierBytes + 1024;
};

}  // namespace fovea::cuda::mla
