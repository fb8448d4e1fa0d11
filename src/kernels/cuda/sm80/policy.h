#pragma once
// The numbers that shape the kernels of this family.
#include <algorithm>

namespace fovea::cuda::sm80 {

/// Rows of a tile in shared memory: the pitch, and where 16-byte chunk c of row r lies, such that eight rows of one
/// chunk (what ldmatrix reads at a time) fall into eight different 16-byte groups of the 128 bytes of banks. Rows of
/// whole 128-byte lines have their chunks permuted by r % 8; others are padded to an odd number of chunks.
template <int RowBytes>
struct TileLayout {
  static_assert(RowBytes % 16 == 0);
  static constexpr int kChunks = RowBytes / 16;
  static constexpr bool kSwizzled = RowBytes % 128 == 0;
  static constexpr int kPitch = kSwizzled ? RowBytes : (kChunks % 2 == 0 ? RowBytes + 16 : RowBytes);
  static constexpr unsigned offset(unsigned row, unsigned chunk) {
    return row * kPitch + ((kSwizzled ? chunk ^ (row & 7) : chunk) << 4);
  }
};

/// Few query rows against many keys. A warp streams its own keys through its own ring, so that nothing in the loop
/// waits for another warp; the warps of a block merge at the end of a split.
template <int HeadDim, int ValueDim, class Query, class KeyValue, int RowTiles, int Warps, int Stages, bool General_>
struct DecodePolicy {
  using Q = Query;
  using Kv = KeyValue;
  static constexpr bool kGeneral = General_;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kRowTiles = RowTiles;  ///< of 16 rows
  static constexpr int kRows = 16 * RowTiles;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kStages = Stages;
  /// Keys that a warp takes at a time: the k of one mma of P V.
  static constexpr int kWarpKeys = 16;
  static constexpr int kTileKeys = kWarpKeys * Warps;
  /// Keys of a split. Constant, so that a sequence's sums have one order whatever else runs. 512 keys of D = 128 are
  /// 256 KiB, 8 us of an H200's SM, against 2 us to start and merge; and 8192 keys of 8 heads give 128 splits for 132
  /// SMs.
  static constexpr int kSplitKeys = 512;
  /// Children of a node of the merge tree: the 16 parts of 8192 keys are merged by one block in one round trip.
  static constexpr int kFanIn = 16;

  using KTile = TileLayout<HeadDim * static_cast<int>(sizeof(KeyValue))>;
  using VTile = TileLayout<ValueDim * static_cast<int>(sizeof(KeyValue))>;
  static constexpr int kKBytes = kWarpKeys * KTile::kPitch;
  static constexpr int kVBytes = kWarpKeys * VTile::kPitch;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static constexpr int kRingBytes = kWarps * kStages * kStageBytes;
  /// fp32 rows of the merge, 8 at a time, padded by 8 floats so that the fragments' stores meet no bank twice.
  static constexpr int kMergePitch = ValueDim + 8;
  static constexpr int kMergeBytes = kWarps * 8 * kMergePitch * 4;
  static constexpr int kStateBytes = 2 * kWarps * kRows * 8;  ///< two copies, used in turn
  static constexpr int kSharedBytes = kRingBytes + kMergeBytes + kStateBytes + 16;
  /// Blocks of an SM: as many as its shared memory holds (228 KiB, 1 KiB of each block reserved), at most 2.
  static constexpr int kBlocksPerSm = 2 * (kSharedBytes + 1024) <= 233472 ? 2 : 1;
};

/// Many query rows: each warp has its own rows, all warps of a block share the keys through one ring of slots, K and V
/// of a tile in slots of their own. Slots pass through mbarriers, so that warps may drift apart and the softmax of one
/// meet the products of another.
template <int HeadDim, int ValueDim, class Query, class KeyValue, int RowTiles, int Warps, int TileKeys, int Slots,
          int Ahead, int QueryRegisterSteps, int Blocks, bool General_>
struct ExtendPolicy {
  using Q = Query;
  using Kv = KeyValue;
  static constexpr bool kGeneral = General_;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kRowTiles = RowTiles;  ///< of 16 rows, of a warp: each fragment of K and V serves them all
  static constexpr int kWarpRows = 16 * RowTiles;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kRows = kWarpRows * Warps;
  static constexpr int kTileKeys = TileKeys;
  static constexpr int kSlots = Slots;
  /// Slots asked for ahead of the one in use; the other kSlots - kAhead are how far warps may drift apart.
  static constexpr int kAhead = Ahead;
  static_assert(kAhead < kSlots);
  /// Steps of 16 of D whose query fragments stay in registers; the others are read again for each tile.
  static constexpr int kQueryRegisterSteps = QueryRegisterSteps;
  static constexpr int kBlocksPerSm = Blocks;

  static constexpr int kLoadRows = kTileKeys / Warps;  ///< of a tile, by each warp
  static_assert(kTileKeys % (16) == 0 && kTileKeys % Warps == 0 && kLoadRows <= 32);
  using QTile = TileLayout<HeadDim * 2>;
  using OTile = TileLayout<ValueDim * 2>;
  using KTile = TileLayout<HeadDim * static_cast<int>(sizeof(KeyValue))>;
  using VTile = TileLayout<ValueDim * static_cast<int>(sizeof(KeyValue))>;
  static constexpr int kQueryBytes = kWarpRows * std::max(QTile::kPitch, OTile::kPitch);  ///< of a warp
  static constexpr int kSlotBytes = kTileKeys * std::max(KTile::kPitch, VTile::kPitch);
  static constexpr int kSharedBytes = kWarps * kQueryBytes + kSlots * kSlotBytes + kSlots * 16;
};

}  // namespace fovea::cuda::sm80
