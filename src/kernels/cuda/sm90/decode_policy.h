#pragma once
// The numbers of the decode kernels.
#include "kernels/cuda/sm80/policy.h"

namespace fovea::cuda::sm90 {

using sm80::TileLayout;

/// Up to kRows packed query rows against many keys. Four warps copy tiles of keys and values into a ring.
/// Of the two warpgroups that work on tiles, each warp has its own keys of a tile (kKeyGroups), its own 16 rows
/// (kRowTiles) and its own columns of V and O (kValueParts); kSets groups of warps take tiles in turn. One
/// more warpgroup adds up what they have of a chunk of keys.
template <int HeadDim, int ValueDim, class Query, KvType Kv_, int Sets, int RowTiles, int KeyGroups,
          int ValueParts, int TileKeys, int Stages, int ChunkKeys>
struct DecodePolicy {
  using Q = Query;
  /// Of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16 queries
  /// follow, each row brought into fp16's range by a power of two.
  using Compute = std::conditional_t<Kv_ == KvType::same, Query, __half>;
  static constexpr KvType kKv = Kv_;
  static constexpr bool kEightBit = Kv_ != KvType::same;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kSets = Sets, kRowTiles = RowTiles, kKeyGroups = KeyGroups, kValueParts = ValueParts;
  static constexpr int kRows = 16 * RowTiles;
  static constexpr int kPartDv = ValueDim / ValueParts;
  static_assert(kD % 32 == 0 && kPartDv % 32 == 0);

  static constexpr int kSetWarps = RowTiles * KeyGroups * ValueParts;
  static constexpr int kConsumers = 32 * Sets * kSetWarps;
  static constexpr int kSummers = 128;    ///< threads that add up chunks
  static constexpr int kProducers = 128;  ///< threads that copy
  static constexpr int kThreads = kConsumers + kSummers + kProducers;
  static_assert(kConsumers == 256);
  /// Registers of each; 128 a thread are given at the launch.
  static constexpr int kConsumerRegisters = 152, kSummerRegisters = 112, kProducerRegisters = 96;

  static constexpr int kTileKeys = TileKeys;
  static constexpr int kWarpKeys = TileKeys / KeyGroups;
  static_assert(kWarpKeys % 16 == 0);
  static constexpr int kCopyRows = TileKeys / 4;  ///< of a tile, by each warp
  static_assert(kCopyRows == 8 || kCopyRows == 16 || kCopyRows == 32);
  static constexpr int kStages = Stages;
  /// Keys of a chunk and chunks of a group, both at absolute multiples: a row's sums are those of its chunks,
  /// added in order to sums of groups, added in order.
  static constexpr int kChunkKeys = ChunkKeys, kGroupChunks = 8;
  static_assert(kChunkKeys % (kTileKeys * Sets) == 0);

  using KTile = TileLayout<kD * kv_bytes(Kv_)>;
  using VTile = TileLayout<kDv * kv_bytes(Kv_)>;
  static constexpr int kKBytes = kTileKeys * KTile::kPitch, kVBytes = kTileKeys * VTile::kPitch;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static_assert(kKBytes % 128 == 0 && kVBytes % 128 == 0);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr bool kQueryShared = kD / 4 + kPartDv / 2 > 112;
  using QTile = TileLayout<kD * 2>;
  static constexpr int kQueryBytes = kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;
  /// fp32 rows of what the key groups have, a few at a time, padded by 8 floats so that the fragments' stores
  /// meet no bank twice; and their states.
  static constexpr int kSums = Sets * KeyGroups;  ///< of a row
  static constexpr int kPassRows = 4, kPasses = kRows / kPassRows;
  static constexpr int kMergePitch = kDv + 8;
  static constexpr int kMergeBytes = kSums * kPassRows * kMergePitch * 4;
  static constexpr int kStateBytes = kSums * kRows * 8;
  static constexpr int kListBytes = (kSummers + 8) * 4;  ///< of parts
  /// Groups of four columns of O that a summing thread has, of kPassRows rows.
  static constexpr int kPassCells = (kPassRows * kDv / 4 + kSummers - 1) / kSummers;
  /// Whether these threads keep their sums of a group in shared memory, as those of a row are: more would not
  /// fit their registers.
  static constexpr bool kGroupShared = kPasses * kPassCells > 4;
  static constexpr int kCellBytes = (kGroupShared ? 2 : 1) * kPasses * kPassCells * kSummers * 24;
  static constexpr int kBarrierBytes = kStages * 16;
  static constexpr int kSharedBytes =
      kRingBytes + kQueryBytes + kMergeBytes + kStateBytes + kCellBytes + kListBytes + kBarrierBytes;
  static_assert(kSharedBytes <= sm80::kMaxSharedBytes);
};

}  // namespace fovea::cuda::sm90
