#pragma once
// The numbers that shape the kernels of this family.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::sm80 {

/// Up to 16 packed query rows against many keys. A warp streams its own keys through its own ring, so that
/// nothing in the loop waits for another warp; the warps of a block merge at the end of a split.
template <int HeadDim, int ValueDim, class Query, KvType Kv_, int Warps, int ValueParts, int Stages,
          int SplitKeys, bool General_>
struct DecodePolicy {
  using Q = Query;
  /// Of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16 queries
  /// follow, each row brought into fp16's range by a power of two.
  using Compute = std::conditional_t<Kv_ == KvType::same, Query, __half>;
  static constexpr KvType kKv = Kv_;
  static constexpr bool kEightBit = Kv_ != KvType::same;
  static constexpr bool kGeneral = General_;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static_assert(kD % 32 == 0 && kDv % (32 * ValueParts) == 0);
  static constexpr int kRows = 16;  ///< of one mma
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kStages = Stages;
  /// Warps that share keys, each with its part of the columns of V and O, where one warp's registers can't
  /// hold them: a row tile of O is Dv / 2 registers a thread.
  static constexpr int kValueParts = ValueParts;
  static constexpr int kKeyGroups = Warps / ValueParts;
  static constexpr int kPartDv = ValueDim / ValueParts;
  /// Queries stay in registers (D / 4 a thread) while they and O leave room for the rest.
  static constexpr bool kQueryShared = kD / 4 + kPartDv / 2 > 160;
  /// Whether rows at equal distances are copied from one address: 1 % faster, where registers are left for
  /// it.
  static constexpr bool kEven = !kEightBit && (kQueryShared || kD / 4 + kPartDv / 2 <= 96);
  /// Whether the next unit's queries may wait in registers too.
  static constexpr bool kQueryAhead = !kQueryShared && kD / 2 + kPartDv / 2 <= 128;
  /// Keys that a warp takes at a time: 16 are the k of one mma of P V; of 8-bit keys twice as many, for as
  /// many bytes in flight.
  static constexpr int kWarpKeys = kEightBit ? 32 : 16;
  static constexpr int kTileKeys = kWarpKeys * kKeyGroups;
  /// Keys of a split. Constant, so that a sequence's sums have one order whatever else runs.
  static constexpr int kSplitKeys = SplitKeys;
  static_assert(kSplitKeys % kTileKeys == 0);

  using KTile = TileLayout<kD * kv_bytes(Kv_)>;
  using VTile = TileLayout<kPartDv * kv_bytes(Kv_)>;
  static constexpr int kKBytes = kWarpKeys * KTile::kPitch;
  static constexpr int kVBytes = kWarpKeys * VTile::kPitch;
  static constexpr int kScaleBytes = kEightBit ? kWarpKeys * 8 : 0;  ///< K's scales, then V's
  static constexpr int kStageBytes = kKBytes + kVBytes + kScaleBytes;
  using QTile = TileLayout<kD * 2>;
  static constexpr int kQueryBytes =
      kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;  ///< rows, then factors
  /// fp32 rows of the merge, a few at a time, padded by 8 floats so that the fragments' stores meet no bank
  /// twice.
  static constexpr int kMergePitch = kDv + 8;
  static constexpr int kMergeRows = kKeyGroups * kDv >= 512 ? 4 : 8;
  static constexpr int kMergeBytes = kKeyGroups * kMergeRows * kMergePitch * 4;
  static constexpr int kStateBytes = 2 * kKeyGroups * kRows * 8;  ///< two copies, used in turn
  /// Queries, merge and states, then the ring.
  static constexpr int kRingOffset = (kQueryBytes + kMergeBytes + kStateBytes + 127) / 128 * 128;
  static constexpr int kStaticBytes = 128;  ///< of UnitQueue
  /// Dynamic ones, with a ring of so many stages.
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int stages) {
    return kRingOffset + kWarps * stages * kStageBytes;
  }
  static_assert(shared_bytes(kStages) + kStaticBytes <= kMaxSharedBytes);
  /// The most stages for a device whose blocks may have `limit` bytes, 1 at least. Warps work apart, so that
  /// even with one the loads of some are under way while others work.
  static constexpr int stages_within(int limit) {
    int stages = kStages;
    while (stages > 1 && shared_bytes(stages) + kStaticBytes > limit)
      --stages;
    return stages;
  }
  /// Of sm_90: as many as its shared memory holds, at most 2.
  static constexpr int kBlocksPerSm =
      blocks_within(kMaxSharedBytes, shared_bytes(kStages) + kStaticBytes) >= 2 ? 2 : 1;
  /// Whether blocks come for units (UnitQueue) instead of taking every n-th: on an H200 1 to 2 % faster for
  /// 16-bit keys of D = 128 and 256, no faster for 8-bit ones, and 2 % slower where a unit is 256 KiB (D =
  /// 64) or two warps do all of it.
  static constexpr bool kShareOut = !kEightBit && Warps >= 4 && HeadDim + ValueDim > 128;
};

/// Up to 8 packed query rows against many keys. Keys and values go from memory into the registers that the
/// products take them from, without shared memory: with keys as the rows of S^T = K Q^T and dims as those of
/// O^T = V^T P^T, a lane's part of a fragment is 16 neighbouring bytes of a row of K or V, as the order of
/// the dims in a sum and of the columns of O is free. A warp has one tile of keys in flight while it works on
/// the one before; the other warps of the SM cover the rest of the latency.
template <int HeadDim, int ValueDim, class Query, KvType Kv_, int Warps, int WarpKeys, int SplitKeys,
          int Blocks, bool General_>
struct NarrowPolicy {
  using Q = Query;
  /// Of the products, as in DecodePolicy.
  using Compute = std::conditional_t<Kv_ == KvType::same, Query, __half>;
  static constexpr KvType kKv = Kv_;
  static constexpr bool kEightBit = Kv_ != KvType::same;
  static constexpr bool kGeneral = General_;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kRows = 8;  ///< the n of one mma
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  static constexpr int kBlocksPerSm = Blocks;
  static constexpr int kWarpKeys = WarpKeys;  ///< that a warp takes at a time
  static_assert(kWarpKeys == 16 || kWarpKeys == 32);
  static constexpr int kKeyTiles = kWarpKeys / 16;
  static constexpr int kTileKeys = kWarpKeys * kWarps;
  static constexpr int kSplitKeys = SplitKeys;  ///< constant, as in DecodePolicy
  static_assert(kSplitKeys % kTileKeys == 0);

  /// Of a key, lane (g, q) holds the 16-byte chunks q + 4 i of K.
  static constexpr int kKChunks = kD * kv_bytes(Kv_) / 64;
  static_assert(kD * kv_bytes(Kv_) % 64 == 0);
  /// Of a key, lane (g, q) holds the pieces g + 8 s of V.
  static constexpr int kVBytes = kDv * kv_bytes(Kv_) >= 128 ? 16 : 8;  ///< of a piece
  static constexpr int kVDims = kVBytes / kv_bytes(Kv_);               ///< of a piece
  static constexpr int kVSets = (kDv + 8 * kVDims - 1) / (8 * kVDims);
  static constexpr int kVTiles = kVSets * kVDims / 2;  ///< of 16 dims
  static_assert(kDv % kVDims == 0);

  /// fp32 rows of the merge of the warps, two buffers that units use in turn, and their states. The padding
  /// of the last row is where arrive_last() leaves its answer: with 16 bytes more, D = 128 would not fit
  /// sm_86.
  static constexpr int kMergePitch = kDv + 4;
  static constexpr int kMergeFloats = kWarps * kRows * kMergePitch;
  static constexpr int kStates = kWarps * kRows;
  static constexpr int kEpilogueBytes = 2 * (kMergeFloats * 4 + kStates * 8);
  static constexpr int kQueryChunks = kD / 32;  ///< of 16 bytes, of a lane
  static constexpr int kQueryBytes = kThreads * kQueryChunks * 16;
  static constexpr int kSharedBytes = 2 * kQueryBytes + kEpilogueBytes;
  static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= 233472);
};

/// Many query rows: each warp has its own rows, all warps of a block share the keys through one ring of
/// slots, K and V of a tile in slots of their own. Slots pass through mbarriers, so that warps may drift
/// apart and the softmax of one meet the products of another. Rows, warps and slots change no bit of a row's
/// result; the keys of a tile do.
template <int HeadDim, int ValueDim, class Query, bool EightBit, int RowTiles, int Warps, int ValueParts,
          int TileKeys, int Slots, int Ahead, int QueryRegisterSteps, int Blocks, bool General_>
struct ExtendPolicy {
  using Q = Query;
  static constexpr bool kEightBit = EightBit;  ///< keys and values; which type is said at run time
  static constexpr bool kGeneral = General_;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static_assert(kD % 16 == 0 && kDv % (16 * ValueParts) == 0);
  static constexpr int kRowTiles =
      RowTiles;  ///< of 16 rows, of a warp: each fragment of K and V serves them all
  static constexpr int kWarpRows = 16 * RowTiles;
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = 32 * Warps;
  /// Warps that share rows, each with its part of the columns of V and O, where one warp's registers can't
  /// hold them.
  static constexpr int kValueParts = ValueParts;
  static constexpr int kPartDv = ValueDim / ValueParts;
  static constexpr int kRowGroups = Warps / ValueParts;
  static constexpr int kRows = kWarpRows * kRowGroups;
  static constexpr int kTileKeys = TileKeys;
  static constexpr int kSlots = Slots;
  /// Slots asked for ahead of the one in use; the other kSlots - kAhead are how far warps may drift apart.
  static constexpr int kAhead = Ahead;
  /// See extend_mainloop.cuh.
  static constexpr bool kLockstep = Blocks > 1;
  static_assert(kAhead < kSlots && (!EightBit || (kAhead % 2 == 0 && kAhead + 2 <= kSlots)));
  /// Steps of 16 of D whose query fragments stay in registers; the others are read again for each tile.
  static constexpr int kQueryRegisterSteps = QueryRegisterSteps;
  static constexpr int kBlocksPerSm = Blocks;
  /// Keys of a split where a row tile's keys are split at all. Constant, as in DecodePolicy. Writing and
  /// merging the parts is 1 KiB of a row of D = 128 for 4 MFLOP, 1 % of an H200's time.
  static constexpr int kSplitKeys = 16384 / TileKeys * TileKeys;

  static constexpr int kLoadRows = kTileKeys / Warps;  ///< of a tile, by each warp
  /// Lanes that load a row, each 16 bytes of every 16 * kLoadLanes.
  static constexpr int kLoadLanes = kLoadRows >= 8 ? 4 : 32 / kLoadRows;
  static_assert(32 % kLoadLanes == 0);
  static_assert(kTileKeys % 16 == 0 && kTileKeys % Warps == 0 && kLoadRows <= 32);
  using QTile = TileLayout<HeadDim * 2>;
  using OTile = TileLayout<ValueDim * 2>;
  using KTile = TileLayout<HeadDim * 2>;  ///< as the products read them
  using VTile = TileLayout<ValueDim * 2>;
  static constexpr int kQueryBytes = kWarpRows * std::max(QTile::kPitch, OTile::kPitch);  ///< of a row group
  static constexpr int kScaleBytes = EightBit ? kTileKeys * 4 : 0;
  static constexpr int kSlotBytes = kTileKeys * std::max(KTile::kPitch, VTile::kPitch) + kScaleBytes;
  /// 8-bit rows land in a ring of each warp's own, kStaging slots ahead of where they are widened to.
  static constexpr int kStaging = EightBit ? 3 : 0;
  static constexpr int kStagingBytes = kLoadRows * (std::max(HeadDim, ValueDim) + 32);  ///< rows, then scales
  // Queries, staging, barriers and the item, then the slots.
  static constexpr int kStagingOffset = kRowGroups * kQueryBytes;
  static constexpr int kBarriersOffset = kStagingOffset + kWarps * kStaging * kStagingBytes;
  static constexpr int kItemOffset = kBarriersOffset + kSlots * 16;
  static constexpr int kSlotsOffset = (kItemOffset + static_cast<int>(sizeof(WorkItem)) + 127) / 128 * 128;
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int slots) { return kSlotsOffset + slots * kSlotBytes; }
  static_assert(kSlotBytes % 128 == 0);  // TileLayout::moved()
  static_assert(!EightBit || (kStagingOffset % 128 == 0 && kStagingBytes % 128 == 0));
  static_assert(shared_bytes(kSlots) <= kMaxSharedBytes);

  /// Whether the two slots of a tile pass as one: where there are slots enough.
  static constexpr bool kTogether = EightBit || (kSlots % 2 == 0 && kAhead % 2 == 0 && kSlots >= kAhead + 4);
  struct Ring {
    int slots, ahead;
  };
  /// The largest ring for a device whose blocks may have `limit` bytes; the policy's own where there is none.
  /// What is asked for at which point of the loop stays: `ahead` is odd where kAhead is.
  static constexpr Ring ring_within(int limit) {
    for (int slots = kSlots; !kLockstep && slots >= 2; slots -= kTogether ? 2 : 1) {
      int ahead = kAhead;
      while (ahead > (kTogether ? slots - 2 : slots - 1))
        ahead -= 2;
      if (ahead < (EightBit ? 0 : 1)) break;
      if (shared_bytes(slots) <= limit) return {slots, ahead};
    }
    return {kSlots, kAhead};
  }
};

}  // namespace fovea::cuda::sm80
