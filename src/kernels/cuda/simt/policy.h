#pragma once
// The compile-time parameters of the CUDA-core decode kernels, and the list of compiled ones.
#include <type_traits>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::simt {

/// Elements of K and V.
enum class Keys : uint8_t { f16, bf16, e4m3, e5m2, int8 };

struct DecodeShape {
  int head_dim = 0;  ///< of K and V
  Keys keys = Keys::bf16;
  int rows = 1;  ///< packed query rows of a work tile
};

/// Up to `rows` packed query rows against many keys. The 16-byte chunks of a key lie in consecutive lanes,
/// chunk c in lane c % 32; where a key has fewer than 32 of them, several keys share a load. A lane copies
/// its chunks through a ring in shared memory that no other lane reads, so that the loop has no barrier.
template <DecodeShape S>
struct DecodePolicy {
  static constexpr Keys kKeys = S.keys;
  static constexpr bool kEightBit = kKeys != Keys::f16 && kKeys != Keys::bf16;
  static constexpr int kD = S.head_dim;
  static constexpr int kRows = S.rows;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;

  static constexpr int kChunk = kEightBit ? 16 : 8;  ///< elements of 16 bytes
  static constexpr int kRowChunks = kD / kChunk;
  static constexpr int kLanes = std::min(32, kRowChunks);  ///< lanes that share a key
  static constexpr int kLaneChunks = kRowChunks / kLanes;  ///< chunks of a key in a lane
  static constexpr int kLaneDims = kLaneChunks * kChunk;   ///< dims of D and Dv in a lane
  static constexpr int kGroups = 32 / kLanes;              ///< keys of a load
  /// Keys of a group of lanes in a step: 4 KiB of K and 4 KiB of V of a warp, and no more than there are
  /// lanes, so that the reduce-scatter over D can end with one key in each lane.
  static constexpr int kGroupKeys = std::min(8 / kLaneChunks, kLanes);
  static constexpr int kWarpKeys = kGroups * kGroupKeys;
  static constexpr int kSharers = 32 / kWarpKeys;  ///< consecutive lanes that hold the same score
  static constexpr int kTileKeys = kWarpKeys * kWarps;
  /// Keys of a split: 128 KiB of K and V. Constant, so that the sums of a sequence have one order whatever
  /// else is in the batch. 6 us of an SM that it shares with another CTA; writing and combining a partial
  /// result is 1 % of its bytes.
  static constexpr int kSplitKeys = 65536 / (kD * (kEightBit ? 1 : 2));
  static_assert(kSplitKeys % kTileKeys == 0);

  static constexpr int kTileBytes = kGroupKeys * kLaneChunks * 512;  ///< of K, and of V
  static constexpr int kScaleBytes = kEightBit ? 256 : 0;  ///< a lane's key's scales of K, then of V
  static constexpr int kStageBytes = 2 * kTileBytes + kScaleBytes;
  /// CTAs per SM. Three, with 168 registers a thread, where the arithmetic needs the warps; otherwise two,
  /// whose deeper rings lose less at the ends of work tiles.
  static constexpr int kBlocksPerSm = (kEightBit ? kRows == 1 && kD < 512 : kRows == 2) ? 3 : 2;
  /// The rings of an SM take 192 KiB.
  static constexpr int kStages = 49152 / kBlocksPerSm / (2 * kTileBytes);
  /// Rows of O of the warps in shared memory, a few at a time.
  static constexpr int kCombineRows = std::min(kRows, 512 / kD);
  static constexpr int kCombineBytes = kWarps * kCombineRows * kD * 4;
  static constexpr int kStateBytes = kWarps * kRows * 8;
  /// Combine buffer and states, then the ring of `stages` stages.
  static constexpr int kRingOffset = (kCombineBytes + kStateBytes + 127) / 128 * 128;
  FOVEA_HOST_DEVICE static constexpr int shared_bytes(int stages) {
    return kRingOffset + kWarps * stages * kStageBytes;
  }
  static_assert(blocks_within(kMaxSharedBytes, shared_bytes(kStages)) >= kBlocksPerSm);
  /// The most stages for a device whose CTAs may have `limit` bytes, at least 1.
  static constexpr int stages_within(int limit) {
    int stages = kStages;
    while (stages > 1 && shared_bytes(stages) > limit)
      --stages;
    return stages;
  }

  /// Whether the queries of the next work tile are prefetched into registers.
  static constexpr bool kPrefetchQuery = kRows * kLaneDims <= 32;
};

/// Calls f.template operator()<P>() for the policies of `Keys_`, by head size and then by rows, until one
/// returns true. More rows than the largest policy has become several work items, each of which reads the
/// keys.
template <Keys Keys_, class F>
bool any_policy(F&& f) {
  constexpr bool kSixteen = Keys_ == Keys::f16 || Keys_ == Keys::bf16;
  const auto one = [&]<int D, int Rows, bool Exists = true>() {
    if constexpr (Exists)
      return f.template operator()<DecodePolicy<DecodeShape{.head_dim = D, .keys = Keys_, .rows = Rows}>>();
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

/// The elements of keys `kv` with queries of type `q`; only for types that select() accepts.
constexpr Keys keys_of(QueryType q, KvType kv) {
  if (kv == KvType::e4m3) return Keys::e4m3;
  if (kv == KvType::e5m2) return Keys::e5m2;
  if (kv == KvType::int8) return Keys::int8;
  return q == QueryType::f16 ? Keys::f16 : Keys::bf16;
}

}  // namespace fovea::cuda::simt
