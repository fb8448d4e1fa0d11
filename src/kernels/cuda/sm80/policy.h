#pragma once
// The compile-time parameters of the kernels of this family.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::sm80 {

struct DecodeShape {
  int head_dim = 0;
  int v_head_dim = 0;  ///< 0 = head_dim
  KvType kv = KvType::same;
  int warps = 4;
  /// Warps that share keys, each with its part of the columns of V and O, where the registers of one warp
  /// cannot hold them: O of a row tile is Dv / 2 registers a thread.
  int value_parts = 1;
  int stages = 0;  ///< of the ring of each warp, on Hopper; see DecodePolicy::stages_within
  bool general = false;
};

/// Keys of a split of the decode kernel. Splits of 512 KiB of keys and values of D = 128: 30 us of one of an
/// H200's 264 CTAs under load, against 1 to 2 us that the end of a split costs. A single sequence wants
/// smaller ones: see NarrowShape.
constexpr int decode_split_keys(const DecodeShape& s) {
  const int dims = s.head_dim + (s.v_head_dim > 0 ? s.v_head_dim : s.head_dim), bytes = kv_bytes(s.kv);
  return dims * bytes > 512 ? 512 : bytes == 1 && dims <= 256 ? 2048 : 1024;
}

/// Decode: up to 16 packed query rows against many keys. Each warp streams its own keys through its own ring,
/// so that no warp waits for another inside the loop; the warps of a CTA combine their results at the end of
/// a split.
template <class Query, DecodeShape S>
struct DecodePolicy {
  using Q = Query;
  /// Type of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16 queries
  /// are converted to fp16 too, each row brought into its range by a power of two.
  using Compute = std::conditional_t<S.kv == KvType::same, Query, __half>;
  static constexpr KvType kKv = S.kv;
  static constexpr bool kEightBit = kKv != KvType::same;
  static constexpr bool kGeneral = S.general;
  static constexpr int kD = S.head_dim, kDv = S.v_head_dim > 0 ? S.v_head_dim : S.head_dim;
  static constexpr int kRows = 16;  ///< M of one mma
  static constexpr int kWarps = S.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = S.stages;
  static constexpr int kValueParts = S.value_parts;
  static_assert(kD % 32 == 0 && kDv % (32 * kValueParts) == 0);
  static constexpr int kKeyGroups = kWarps / kValueParts;
  static constexpr int kPartDv = kDv / kValueParts;
  /// Queries stay in registers (D / 4 a thread) while they and O leave room for the rest.
  static constexpr bool kQueryShared = kD / 4 + kPartDv / 2 > 160;
  /// Whether rows at a uniform stride are copied with one base address: 1 % faster, where there are registers
  /// for it.
  static constexpr bool kUniformStride = !kEightBit && (kQueryShared || kD / 4 + kPartDv / 2 <= 96);
  /// Whether the queries of the next work tile are prefetched into registers.
  static constexpr bool kPrefetchQuery = !kQueryShared && kD / 2 + kPartDv / 2 <= 128;
  /// Keys of a warp in a step: 16 are K of one mma of P V; with 8-bit keys 32, for as many bytes in flight.
  static constexpr int kWarpKeys = kEightBit ? 32 : 16;
  static constexpr int kTileKeys = kWarpKeys * kKeyGroups;
  /// Keys of a split. Constant, so that the sums of a sequence have one order whatever else is in the batch.
  static constexpr int kSplitKeys = decode_split_keys(S);
  static_assert(kSplitKeys % kTileKeys == 0);

  using KTile = TileLayout<kD * kv_bytes(kKv)>;
  using VTile = TileLayout<kPartDv * kv_bytes(kKv)>;
  static constexpr int kKBytes = kWarpKeys * KTile::kPitch;
  static constexpr int kVBytes = kWarpKeys * VTile::kPitch;
  static constexpr int kScaleBytes = kEightBit ? kWarpKeys * 8 : 0;  ///< scales of K, then of V
  static constexpr int kStageBytes = kKBytes + kVBytes + kScaleBytes;
  using QTile = TileLayout<kD * 2>;
  static constexpr int kQueryBytes =
      kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;  ///< rows, then factors
  /// fp32 rows of the combine, a few at a time, padded by 8 floats so that the stores of the fragments have
  /// no bank conflicts.
  static constexpr int kCombinePitch = kDv + 8;
  static constexpr int kCombineRows = kKeyGroups * kDv >= 512 ? 4 : 8;
  static constexpr int kCombineBytes = kKeyGroups * kCombineRows * kCombinePitch * 4;
  static constexpr int kStateBytes = 2 * kKeyGroups * kRows * 8;  ///< double-buffered
  /// Queries, combine buffer and states, then the ring.
  static constexpr int kRingOffset = (kQueryBytes + kCombineBytes + kStateBytes + 127) / 128 * 128;
  static constexpr int kStaticBytes = 128;  ///< static shared memory: the slots of WorkQueue
  /// Dynamic shared memory with rings of `stages` stages.
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int stages) {
    return kRingOffset + kWarps * stages * kStageBytes;
  }
  static_assert(shared_bytes(kStages) + kStaticBytes <= kMaxSharedBytes);
  /// The most stages for a device whose CTAs may have `limit` bytes, at least 1. Warps are independent, so
  /// that even with one stage the loads of some are in flight while others compute.
  static constexpr int stages_within(int limit) {
    int stages = kStages;
    while (stages > 1 && shared_bytes(stages) + kStaticBytes > limit)
      --stages;
    return stages;
  }
  /// CTAs per SM of sm_90: as many as its shared memory holds, at most 2.
  static constexpr int kBlocksPerSm =
      blocks_within(kMaxSharedBytes, shared_bytes(kStages) + kStaticBytes) >= 2 ? 2 : 1;
  /// Whether CTAs fetch work tiles dynamically (WorkQueue) instead of by stride: on an H200 1 to 2 % faster
  /// for 16-bit keys of D = 128 and 256, no faster for 8-bit ones, and 2 % slower where a work tile is 256
  /// KiB (D = 64) or a CTA has two warps.
  static constexpr bool kDynamicScheduler = !kEightBit && kWarps >= 4 && kD + kDv > 128;
};

/// The defaults suit few sequences: half the split of DecodePolicy and twice the warps. 8192 keys of 8 heads
/// are 128 splits for the 132 SMs of an H200, one CTA each.
struct NarrowShape {
  int head_dim = 0;
  int v_head_dim = 0;  ///< 0 = head_dim
  KvType kv = KvType::same;
  int warps = 8;
  int warp_keys = 32;  ///< keys of a warp in a step
  int split_keys = 512;
  int blocks_per_sm = 1;
  bool general = false;
};

/// Decode for few sequences: up to 8 packed query rows against many keys, with swapped operands. K and V go
/// from global memory straight into the registers of the mma fragments, without shared memory. With S^T = K
/// Q^T (keys on M) and O^T = V^T P^T (dims on M), a lane's part of a fragment is 16 contiguous bytes of a row
/// of K or V, because the order of the dims in a sum and of the columns of O is free. A warp has one tile of
/// keys in flight while it computes the one before; the other warps of the SM hide the rest of the latency.
template <class Query, NarrowShape S>
struct NarrowPolicy {
  using Q = Query;
  /// Type of the products, as in DecodePolicy.
  using Compute = std::conditional_t<S.kv == KvType::same, Query, __half>;
  static constexpr KvType kKv = S.kv;
  static constexpr bool kEightBit = kKv != KvType::same;
  static constexpr bool kGeneral = S.general;
  static constexpr int kD = S.head_dim, kDv = S.v_head_dim > 0 ? S.v_head_dim : S.head_dim;
  static constexpr int kRows = 8;  ///< N of one mma
  static constexpr int kWarps = S.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = S.blocks_per_sm;
  static constexpr int kWarpKeys = S.warp_keys;
  static_assert(kWarpKeys == 16 || kWarpKeys == 32);
  static constexpr int kKeyTiles = kWarpKeys / 16;
  static constexpr int kTileKeys = kWarpKeys * kWarps;
  static constexpr int kSplitKeys = S.split_keys;  ///< constant, as in DecodePolicy
  static_assert(kSplitKeys % kTileKeys == 0);

  /// Lane (g, q) holds the 16-byte chunks q + 4 i of a key's row of K.
  static constexpr int kKChunks = kD * kv_bytes(kKv) / 64;
  static_assert(kD * kv_bytes(kKv) % 64 == 0);
  /// Lane (g, q) holds the pieces g + 8 s of a key's row of V.
  static constexpr int kVBytes = kDv * kv_bytes(kKv) >= 128 ? 16 : 8;  ///< of a piece
  static constexpr int kVDims = kVBytes / kv_bytes(kKv);               ///< of a piece
  static constexpr int kVSets = (kDv + 8 * kVDims - 1) / (8 * kVDims);
  static constexpr int kVTiles = kVSets * kVDims / 2;  ///< of 16 dims
  static_assert(kDv % kVDims == 0);

  /// fp32 rows of the combine of the warps and their states, double-buffered over work tiles. The padding of
  /// the last row holds the result of arrive_last(): with 16 bytes more, D = 128 would not fit sm_86.
  static constexpr int kCombinePitch = kDv + 4;
  static constexpr int kCombineFloats = kWarps * kRows * kCombinePitch;
  static constexpr int kStates = kWarps * kRows;
  static constexpr int kEpilogueBytes = 2 * (kCombineFloats * 4 + kStates * 8);
  static constexpr int kQueryChunks = kD / 32;  ///< 16-byte chunks of a lane
  static constexpr int kQueryBytes = kThreads * kQueryChunks * 16;
  static constexpr int kSharedBytes = 2 * kQueryBytes + kEpilogueBytes;
  static_assert(kBlocksPerSm * (kSharedBytes + 1024) <= 233472);
};

struct ExtendShape {
  int head_dim = 0;
  int v_head_dim = 0;      ///< 0 = head_dim
  bool eight_bit = false;  ///< keys and values have 8 bits; which type is a run-time parameter
  int row_tiles = 1;       ///< tiles of 16 rows of a warp: each fragment of K and V serves all of them
  int warps = 4;
  /// Warps that share rows, each with its part of the columns of V and O, where the registers of one warp
  /// cannot hold them.
  int value_parts = 1;
  int tile_keys = 64;
  int slots = 0;  ///< stages of the ring: K and V of a tile have a slot each
  /// Slots prefetched beyond the one in use; the other slots - ahead are how far warps may drift apart.
  int ahead = 0;
  /// Steps of 16 of D whose query fragments stay in registers; the others are read again for each tile.
  int query_register_steps = 0;
  int blocks_per_sm = 1;
  bool general = false;
};

/// Extend: many query rows. Each warp has its own rows, and all warps of a CTA share the keys through one
/// ring of slots. Slots are handed over with mbarriers, so that warps may drift apart and the softmax of one
/// overlaps the products of another. Rows, warps and slots change no bit of a row's result; the keys of a
/// tile do.
template <class Query, ExtendShape S>
struct ExtendPolicy {
  using Q = Query;
  static constexpr bool kEightBit = S.eight_bit;
  static constexpr bool kGeneral = S.general;
  static constexpr int kD = S.head_dim, kDv = S.v_head_dim > 0 ? S.v_head_dim : S.head_dim;
  static constexpr int kRowTiles = S.row_tiles;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kWarps = S.warps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kValueParts = S.value_parts;
  static_assert(kD % 16 == 0 && kDv % (16 * kValueParts) == 0);
  static constexpr int kPartDv = kDv / kValueParts;
  static constexpr int kRowGroups = kWarps / kValueParts;
  static constexpr int kRows = kWarpRows * kRowGroups;
  static constexpr int kTileKeys = S.tile_keys;
  static constexpr int kSlots = S.slots;
  static constexpr int kAhead = S.ahead;
  static constexpr int kQueryRegisterSteps = S.query_register_steps;
  static constexpr int kBlocksPerSm = S.blocks_per_sm;
  /// Whether the warps of a CTA meet at a barrier for each tile (ExtendDoubleBuffer) instead of using
  /// ExtendRing.
  static constexpr bool kLockstep = kBlocksPerSm > 1;
  static_assert(kAhead < kSlots && (!kEightBit || (kAhead % 2 == 0 && kAhead + 2 <= kSlots)));
  /// Keys of a split where the keys of a row tile are split at all. Constant, as in DecodePolicy. Writing and
  /// combining the partial results is 1 KiB of a row of D = 128 for 4 MFLOP, 1 % of an H200's time.
  static constexpr int kSplitKeys = 16384 / kTileKeys * kTileKeys;

  static constexpr int kLoadRows = kTileKeys / kWarps;  ///< rows of a tile that each warp loads
  /// Lanes that load a row, each 16 bytes of every 16 * kLoadLanes.
  static constexpr int kLoadLanes = kLoadRows >= 8 ? 4 : 32 / kLoadRows;
  static_assert(32 % kLoadLanes == 0);
  static_assert(kTileKeys % 16 == 0 && kTileKeys % kWarps == 0 && kLoadRows <= 32);
  using QTile = TileLayout<kD * 2>;
  using OTile = TileLayout<kDv * 2>;
  using KTile = TileLayout<kD * 2>;  ///< as the products read them
  using VTile = TileLayout<kDv * 2>;
  static constexpr int kQueryBytes = kWarpRows * std::max(QTile::kPitch, OTile::kPitch);  ///< of a row group
  static constexpr int kScaleBytes = kEightBit ? kTileKeys * 4 : 0;
  static constexpr int kSlotBytes = kTileKeys * std::max(KTile::kPitch, VTile::kPitch) + kScaleBytes;
  /// 8-bit rows are copied to a staging ring of each warp, kStaging slots ahead of where they are widened to.
  static constexpr int kStaging = kEightBit ? 3 : 0;
  static constexpr int kStagingBytes = kLoadRows * (std::max(kD, kDv) + 32);  ///< rows, then scales
  // Queries, staging, barriers and the item, then the slots.
  static constexpr int kStagingOffset = kRowGroups * kQueryBytes;
  static constexpr int kBarriersOffset = kStagingOffset + kWarps * kStaging * kStagingBytes;
  static constexpr int kItemOffset = kBarriersOffset + kSlots * 16;
  static constexpr int kSlotsOffset = (kItemOffset + static_cast<int>(sizeof(WorkItem)) + 127) / 128 * 128;
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int slots) { return kSlotsOffset + slots * kSlotBytes; }
  static_assert(kSlotBytes % 128 == 0);  // TileLayout::moved()
  static_assert(!kEightBit || (kStagingOffset % 128 == 0 && kStagingBytes % 128 == 0));
  static_assert(shared_bytes(kSlots) <= kMaxSharedBytes);

  /// Whether the K and V slots of a tile are handed over together: where there are enough slots.
  static constexpr bool kPairedSlots =
      kEightBit || (kSlots % 2 == 0 && kAhead % 2 == 0 && kSlots >= kAhead + 4);
  struct Ring {
    int slots, ahead;
  };
  /// The largest ring for a device whose CTAs may have `limit` bytes; the policy's own where none fits. Each
  /// point of the loop goes on prefetching the same kind of slot (K or V): `ahead` is odd where kAhead is.
  static constexpr Ring ring_within(int limit) {
    for (int slots = kSlots; !kLockstep && slots >= 2; slots -= kPairedSlots ? 2 : 1) {
      int ahead = kAhead;
      while (ahead > (kPairedSlots ? slots - 2 : slots - 1))
        ahead -= 2;
      if (ahead < (kEightBit ? 0 : 1)) break;
      if (shared_bytes(slots) <= limit) return {slots, ahead};
    }
    return {kSlots, kAhead};
  }
};

}  // namespace fovea::cuda::sm80
