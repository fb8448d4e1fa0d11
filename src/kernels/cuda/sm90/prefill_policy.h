#pragma once
// Compile-time constants of the prefill kernels of this family. Host code, without CUDA.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::sm90 {

inline constexpr int kMaxSharedBytes = 227 * 1024;  ///< of a CTA
inline constexpr int kPanelDims = 64;               ///< 16-bit elements of a 128-byte swizzled row

/// The unit of the tile scheduler: a work item under one KV head.
struct PrefillWorkTile {
  WorkItem item;
  int32_t head;   ///< KV head
  int32_t valid;  ///< 0: no work is left
  int32_t unused[2];
};

/// How keys and values reach shared memory: TMA boxes, or 16-byte cp.async copies row by row.
enum class LoadMode : uint8_t { tma, cp_async };

/// The kernels of one policy. Each is compiled separately, because every instruction between two wgmma groups
/// costs time.
struct PrefillVariant {
  LoadMode load_mode = LoadMode::tma;
  bool softcap = false;

  constexpr uint8_t index() const {
    return static_cast<uint8_t>(static_cast<uint8_t>(load_mode) + (softcap ? 2 : 0));
  }
};
/// By PrefillVariant::index(), which LaunchRecord::variant holds.
inline constexpr PrefillVariant kPrefillVariants[] = {
    {LoadMode::tma, false}, {LoadMode::cp_async, false}, {LoadMode::tma, true}, {LoadMode::cp_async, true}};

/// What the first producer warp needs to map an index to a work tile.
struct TileSchedulerState {
  int32_t num_items, section_heads;
};

/// The numbers that define a prefill kernel. The consumer warpgroups share K and V and have 64 packed rows
/// each. consumers, stages and query_stages change no bit of a row's result; tile_keys does.
struct PrefillShape {
  int head_dim, v_head_dim;
  int consumers;     ///< warpgroups, beside one producer warpgroup
  int tile_keys;     ///< keys of a tile
  int stages;        ///< of K and V each
  int query_stages;  ///< with 2, the first scores of a work tile are in flight while the one before ends
  /// Ping-pong scheduling: consumers alternate on the tensor cores, so that the softmax of one overlaps the
  /// products of another.
  bool ping_pong = false;
  /// Consumers hold Q in registers, D / 4 per thread: fewer reads of shared memory for each key tile, and the
  /// query buffer is free for the next work tile while this one is in flight.
  bool query_in_registers = false;
  /// O of a work tile is stored while the second scores of the next one are in flight. It keeps their
  /// registers.
  bool delayed_store = false;
  /// Each consumer goes on to the next work tile by itself: it leaves out the last key tiles if its own rows
  /// see none of their keys, and the queries of its rows are loaded as soon as it needs no others. The more
  /// tokens a work tile has (the fewer heads a group), the more that is worth under a causal mask.
  bool own_pace = false;
};

template <PrefillShape kShape, class Query>
struct PrefillPolicy {
  using Q = Query;
  static constexpr bool kTokenScales = false;  ///< K and V have a scale for each token and head
  static constexpr int kD = kShape.head_dim, kDv = kShape.v_head_dim;
  static_assert(kD % 16 == 0 && kDv % 32 == 0);
  static constexpr int kConsumers = kShape.consumers;
  static constexpr int kRows = 64 * kConsumers;
  static constexpr int kThreads = 128 * (kConsumers + 1);
  static constexpr int kTileKeys = kShape.tile_keys;
  static_assert(kTileKeys % 16 == 0);
  static constexpr int kStages = kShape.stages;
  static constexpr int kQueryStages = kShape.query_stages;
  static constexpr bool kPingPong = kShape.ping_pong;
  static constexpr bool kQueryInRegisters = kShape.query_in_registers;
  static constexpr bool kDelayedStore = kShape.delayed_store;
  static constexpr bool kOwnPace = kShape.own_pace;
  static_assert(!(kOwnPace && (kPingPong || kShape.head_dim == 128)),
                "consumers that alternate keep one pace");
  /// The most parts of a work tile's queries that have barriers of their own.
  static constexpr int kQueryParts = kOwnPace ? kConsumers : 1;
  /// Registers per thread after setmaxnreg; all warpgroups together have 512. Consumers need them for the
  /// accumulators of S and O, for P and for Q.
  static constexpr int kHeldRegisters =
      (kTileKeys + kDv) / 2 + kTileKeys / 4 + (kQueryInRegisters ? kD / 4 : 0);
  static constexpr bool kWide = kDv > 128;  ///< O alone takes half of the registers
  static constexpr bool kTight = kConsumers == 3 && kHeldRegisters > 120;
  static constexpr int kProducerRegisters = kConsumers == 3 ? (kTight ? 32 : 56) : 40;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? (kTight ? 160 : 152) : 232;
  /// Keys of a split where the keys of a row tile are split at all. Constant, so that the order in which a
  /// row is summed does not depend on the rest of the batch.
  static constexpr int kSplitKeys = 16384 / kTileKeys * kTileKeys;

  /// Tiles in shared memory: panels of 64 dims, [panel][row][128 bytes], swizzled.
  static constexpr int kKPanels = (kD + kPanelDims - 1) / kPanelDims;
  static constexpr int kVPanels = (kDv + kPanelDims - 1) / kPanelDims;
  static constexpr int kQPanelBytes = kRows * 128, kTilePanelBytes = kTileKeys * 128;
  static constexpr int kQBytes = kKPanels * kQPanelBytes;
  static constexpr int kKBytes = kKPanels * kTilePanelBytes, kVBytes = kVPanels * kTilePanelBytes;
  static constexpr int kKOffset = kQueryStages * kQBytes;
  static constexpr int kVOffset = kKOffset + kStages * kKBytes;
  /// A RowTarget for each row whose O is not stored yet.
  static constexpr int kRowsOffset = kVOffset + kStages * kVBytes;
  static constexpr int kWorkTileStages = 4;  ///< work tiles that are published ahead
  static constexpr int kWorkTilesOffset = kRowsOffset + kRows * 8;
  static constexpr int kSchedulerOffset =
      kWorkTilesOffset + kWorkTileStages * static_cast<int>(sizeof(PrefillWorkTile));
  static constexpr int kBarriersOffset = kSchedulerOffset + static_cast<int>(sizeof(TileSchedulerState));
  static constexpr int kBarriers = 2 * (kQueryStages * kQueryParts + 2 * kStages + kWorkTileStages) + 1;
  /// 1024 more, as the dynamic shared memory of a CTA is aligned to 16 bytes only.
  static constexpr int kSharedBytes = kBarriersOffset + kBarriers * 8 + 1024;
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

/// For keys and values with a scale for each token and head. The producer loads those of a tile with its
/// keys, always by TMA.
template <PrefillShape kShape, class Query>
struct PrefillTokenScalesPolicy : PrefillPolicy<kShape, Query> {
  using Base = PrefillPolicy<kShape, Query>;
  static constexpr bool kTokenScales = true;
  static constexpr int kScaleBytes = 2 * 4 * Base::kTileKeys;  ///< two arrays of floats, of K and of V
  /// A ring of scales, twice as long as that of K: where a consumer's leader has released the next tile's
  /// keys, all of its warps have read the scales of this one.
  static constexpr int kScaleStages = 2 * Base::kStages;
  static constexpr int kScalesOffset = (Base::kSharedBytes - 1024 + 127) / 128 * 128;
  static constexpr int kSharedBytes = kScalesOffset + kScaleStages * kScaleBytes + 1024;
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

}  // namespace fovea::cuda::sm90
