#pragma once
// The numbers that shape the CUDA-core decode kernels, and which are compiled.
#include <type_traits>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::simt {

/// Elements of K and V.
enum class Keys : uint8_t { f16, bf16, e4m3, e5m2, int8 };

/// Up to `Rows` packed query rows against many keys. The 16-byte chunks of a key lie in neighbouring lanes,
/// chunk c in lane c % 32; where a key has fewer than 32 of them, several keys share a load. A lane copies
/// its chunks through a ring in shared memory that no other lane reads, so that nothing in the loop waits for
/// anyone.
template <int HeadDim, Keys Keys_, int Rows>
struct DecodePolicy {
  static constexpr Keys kKeys = Keys_;
  static constexpr bool kEightBit = Keys_ != Keys::f16 && Keys_ != Keys::bf16;
  static constexpr int kD = HeadDim;  ///< of K and V
  static constexpr int kRows = Rows;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;

  static constexpr int kChunk = kEightBit ? 16 : 8;  ///< elements of 16 bytes
  static constexpr int kRowChunks = kD / kChunk;
  static constexpr int kLanes = std::min(32, kRowChunks);  ///< of a key
  static constexpr int kLaneChunks = kRowChunks / kLanes;  ///< of a key in a lane
  static constexpr int kLaneDims = kLaneChunks * kChunk;   ///< of D and Dv in a lane
  static constexpr int kGroups = 32 / kLanes;              ///< keys of a load
  /// Keys of a group of lanes in a step: 4 KiB of K and as many of V, and no more than there are lanes, so
  /// that sums over D can end with one key in each lane.
  static constexpr int kGroupKeys = std::min(8 / kLaneChunks, kLanes);
  static constexpr int kWarpKeys = kGroups * kGroupKeys;
  static constexpr int kSharers = 32 / kWarpKeys;  ///< neighbouring lanes that have the same score
  static constexpr int kTileKeys = kWarpKeys * kWarps;
  /// Keys of a split: 128 KiB of K and V. Constant, so that a sequence's sums have one order whatever else
  /// runs. 6 us of an SM that it shares with another block; writing and merging a part is 1 % of its bytes.
  static constexpr int kSplitKeys = 65536 / (kD * (kEightBit ? 1 : 2));
  static_assert(kSplitKeys % kTileKeys == 0);

  static constexpr int kTileBytes = kGroupKeys * kLaneChunks * 512;  ///< of K, and of V
  static constexpr int kScaleBytes = kEightBit ? 256 : 0;            ///< a lane's key's scales of K, of V
  static constexpr int kStageBytes = 2 * kTileBytes + kScaleBytes;
  /// Blocks of an SM. Three, with 168 registers a thread, where arithmetic needs the warps; else two, whose
  /// deeper rings lose less at the ends of units.
  static constexpr int kBlocksPerSm = (kEightBit ? kRows == 1 && kD < 512 : kRows == 2) ? 3 : 2;
  /// 192 KiB of an SM.
  static constexpr int kStages = 49152 / kBlocksPerSm / (2 * kTileBytes);
  /// The warps' rows of O, a few rows at a time.
  static constexpr int kMergeRows = std::min(kRows, 512 / kD);
  static constexpr int kMergeBytes = kWarps * kMergeRows * kD * 4;
  static constexpr int kStateBytes = kWarps * kRows * 8;
  /// The merge and the states, then the ring, with so many stages.
  static constexpr int kRingOffset = (kMergeBytes + kStateBytes + 127) / 128 * 128;
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int stages) {
    return kRingOffset + kWarps * stages * kStageBytes;
  }
  static_assert(blocks_within(kMaxSharedBytes, shared_bytes(kStages)) >= kBlocksPerSm);
  /// The most stages for a device whose blocks may have `limit` bytes, 1 at least.
  static constexpr int stages_within(int limit) {
    int stages = kStages;
    while (stages > 1 && shared_bytes(stages) > limit)
      --stages;
    return stages;
  }

  /// Whether the next unit's queries may wait in registers.
  static constexpr bool kQueryAhead = kRows * kLaneDims <= 32;
};

/// Calls f.template operator()<P>() for the policies of `Keys_` in order until one returns true: narrow heads
/// first, then few rows. More rows than there are here are more tiles, each of which reads the keys.
template <Keys Keys_, class F>
bool any_policy(F&& f) {
  constexpr bool kSixteen = Keys_ == Keys::f16 || Keys_ == Keys::bf16;
  const auto one = [&]<int D, int Rows, bool Exists = true>() {
    if constexpr (Exists)
      return f.template operator()<DecodePolicy<D, Keys_, Rows>>();
    else
      return false;
  };
  const auto rows_of = [&]<int D, bool Two, bool Four>() {
    return one.template operator()<D, 1>() || one.template operator()<D, 2, Two>() ||
           one.template operator()<D, 4, Four>();
  };
  return rows_of.template operator()<64, true, kSixteen>() ||
         rows_of.template operator()<128, true, kSixteen || Keys_ == Keys::e4m3>() ||
         rows_of.template operator()<256, true, false>() ||
         rows_of.template operator()<512, kSixteen, false>();
}

template <class P>
constexpr KernelInfo kernel_info(QueryType q, int limit = kAnySharedBytes) {
  KernelInfo info;
  info.kind = KernelKind::decode;
  info.q = q;
  info.kv = P::kKeys == Keys::e4m3   ? KvType::e4m3
            : P::kKeys == Keys::e5m2 ? KvType::e5m2
            : P::kKeys == Keys::int8 ? KvType::int8
                                     : KvType::same;
  info.head_dim = info.v_head_dim = P::kD;
  info.general = true;
  info.rows = P::kRows;
  info.tile_keys = P::kTileKeys;
  info.split_keys = P::kSplitKeys;
  info.threads = P::kThreads;
  info.stages = P::stages_within(limit);
  set_shared<P>(info, P::shared_bytes(info.stages), limit);
  return info;
}

/// The elements that `kv` is for queries of type `q`, of those that select() takes.
constexpr Keys keys_of(QueryType q, KvType kv) {
  if (kv == KvType::e4m3) return Keys::e4m3;
  if (kv == KvType::e5m2) return Keys::e5m2;
  if (kv == KvType::int8) return Keys::int8;
  return q == QueryType::f16 ? Keys::f16 : Keys::bf16;
}

}  // namespace fovea::cuda::simt
