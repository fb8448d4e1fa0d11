#pragma once
// The numbers of the decode kernels.
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::sm90 {

/// Up to kRows packed query rows against many keys. A warpgroup copies tiles of keys and values into a ring;
/// of the one or two that work on them, each warp has its own keys of a tile (kKeyGroups), its own 16 rows
/// (kRowTiles) and its own columns of V and O (kValueParts).
template <int HeadDim, int ValueDim, class Query, KvType Kv_, int RowTiles, int KeyGroups, int ValueParts,
          int TileKeys, int Stages, int ChunkKeys>
struct DecodePolicy {
  using Q = Query;
  /// Of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16 queries
  /// follow, each row brought into fp16's range by a power of two.
  using Compute = std::conditional_t<Kv_ == KvType::same, Query, __half>;
  static constexpr KvType kKv = Kv_;
  static constexpr bool kEightBit = Kv_ != KvType::same;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kRowTiles = RowTiles, kKeyGroups = KeyGroups, kValueParts = ValueParts;
  static constexpr int kRows = 16 * RowTiles;
  static constexpr int kPartDv = ValueDim / ValueParts;
  static_assert(kD % 32 == 0 && kPartDv % 32 == 0);

  static constexpr int kConsumers = 32 * RowTiles * KeyGroups * ValueParts;
  static constexpr int kConsumerWarps = kConsumers / 32;
  static constexpr int kProducers = 128;
  static constexpr int kThreads = kConsumers + kProducers;
  static_assert(kConsumers % 128 == 0);

  static constexpr int kTileKeys = TileKeys;
  static constexpr int kWarpKeys = TileKeys / KeyGroups;
  static_assert(kWarpKeys % 16 == 0);
  static constexpr int kCopyRows = TileKeys / 4;  ///< of a tile, by each warp
  static_assert(kCopyRows == 8 || kCopyRows == 16 || kCopyRows == 32);
  static constexpr int kStages = Stages;
  /// Keys that a block asks for while the kernels in front of it end: 128 KiB. A request brings kHintBytes.
  static constexpr int kHintKeys = (128 << 10) / ((kD + kDv) * kv_bytes(Kv_)), kHintBytes = 256;
  /// Keys of a chunk and chunks of a group, both at absolute multiples: a row's sums are those of its chunks,
  /// added in order to sums of groups, added in order.
  static constexpr int kChunkKeys = ChunkKeys, kGroupChunks = 8;
  static_assert(kChunkKeys % kTileKeys == 0);

  using KTile = TileLayout<kD * kv_bytes(Kv_)>;
  using VTile = TileLayout<kDv * kv_bytes(Kv_)>;
  static constexpr int kKBytes = kTileKeys * KTile::kPitch, kVBytes = kTileKeys * VTile::kPitch;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static_assert(kKBytes % 128 == 0 && kVBytes % 128 == 0);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr bool kQueryShared = kD / 4 + kPartDv / 2 > 96;
  using QTile = TileLayout<kD * 2>;
  static constexpr int kQueryBytes = kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;
  /// fp32 rows of what the key groups have, a few at a time, padded by 8 floats so that the fragments' stores
  /// meet no bank twice; and their states, two copies, used in turn.
  static constexpr int kPassRows = kConsumers * 4 >= 4 * kDv ? 4 : 2, kPasses = kRows / kPassRows;
  static constexpr int kMergePitch = kDv + 8;
  static constexpr int kMergeBytes = kKeyGroups * kPassRows * kMergePitch * 4;
  static constexpr int kStateBytes = 2 * (kKeyGroups + 2) * kRows * 8;
  static constexpr int kListBytes = (kConsumers + 8) * 4;  ///< of parts
  static constexpr int kBarrierBytes = kStages * 16, kFlagBytes = 16;
  static constexpr int kSharedBytes =
      kRingBytes + kQueryBytes + kMergeBytes + kStateBytes + kListBytes + kBarrierBytes + kFlagBytes;
  static_assert(kSharedBytes <= kMaxSharedBytes);
  /// Groups of four columns of O that a thread adds up, of kPassRows rows.
  static constexpr int kPassCells = (kPassRows * kDv / 4 + kConsumers - 1) / kConsumers;
  /// Registers of each, where more threads than 256 leave too few for all: 168 a thread are given at the
  /// launch.
  static constexpr bool kShiftRegisters = kThreads > 256;
  static constexpr int kConsumerRegisters = kQueryShared && !kEightBit ? 224 : 216;
  static constexpr int kProducerRegisters = 3 * 168 - 2 * kConsumerRegisters;
  static_assert(!kShiftRegisters || kThreads == 384);
};

}  // namespace fovea::cuda::sm90
