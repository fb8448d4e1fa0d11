#pragma once
// The numbers that shape the prefill kernels of this family. Host code, without CUDA.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::sm90 {

inline constexpr int kMaxSharedBytes = 227 * 1024;  ///< of a block
inline constexpr int kPanelDims = 64;               ///< 16-bit elements of a 128-byte swizzled row

/// What a block works on next: an item under one KV head.
struct PrefillUnit {
  WorkItem item;
  int32_t head;   ///< of keys and values
  int32_t valid;  ///< 0: nothing is left
  int32_t unused[2];
};

/// Compiled apart, as what is between two products counts: keys by boxes or row by row (PrefillLoads), and
/// whether scores are capped.
enum class PrefillWay : uint8_t { boxes, rows, capped_boxes, capped_rows };
constexpr bool by_boxes(PrefillWay way) {
  return way == PrefillWay::boxes || way == PrefillWay::capped_boxes;
}
constexpr bool is_capped(PrefillWay way) {
  return way == PrefillWay::capped_boxes || way == PrefillWay::capped_rows;
}

/// What the producer's first warp knows of all units.
struct PrefillCounts {
  int32_t num_items, section_heads;
};

/// One producer warpgroup and `Consumers` consumer warpgroups of 64 packed rows each, which share K and V.
/// Rows, consumers, stages and query buffers change no bit of a row's result; the keys of a tile do.
template <int HeadDim, int ValueDim, class Query, int Consumers, int TileKeys, int Stages, int QueryBuffers,
          bool PingPong, bool QueryHeld, bool LateEnd>
struct PrefillPolicy {
  using Q = Query;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static_assert(kD % 16 == 0 && kDv % 32 == 0);
  static constexpr int kConsumers = Consumers;
  static constexpr int kRows = 64 * Consumers;
  static constexpr int kThreads = 128 * (Consumers + 1);
  static constexpr int kTileKeys = TileKeys;
  static_assert(kTileKeys % 16 == 0);
  static constexpr int kStages = Stages;  ///< of keys and values each
  /// With two the scores of a unit's first keys are under way while the unit before ends.
  static constexpr int kQueryBuffers = QueryBuffers;
  /// Whether consumers take turns at the tensor cores, so that the softmax of one meets the products of
  /// another.
  static constexpr bool kPingPong = PingPong;
  /// Whether consumers hold their queries in registers, D / 4 of a thread: less to read from shared memory
  /// for each tile, and room there for the next unit's while this one is under way.
  static constexpr bool kQueryHeld = QueryHeld;
  /// Whether O of a unit is written while the next one's second scores are under way, which keeps their
  /// registers.
  static constexpr bool kLateEnd = LateEnd;
  /// Registers of a thread: setmaxnreg; all warpgroups together have 512. Accumulators, probabilities and
  /// queries say what consumers need.
  static constexpr int kHeldRegisters =
      (TileKeys + ValueDim) / 2 + TileKeys / 4 + (QueryHeld ? HeadDim / 4 : 0);
  static constexpr bool kWide = ValueDim > 128;  ///< O alone is half of the registers
  static constexpr bool kTight = Consumers == 3 && kHeldRegisters > 120;
  static constexpr int kProducerRegisters = Consumers == 3 ? (kTight ? 32 : 56) : 40;
  static constexpr int kConsumerRegisters = Consumers == 3 ? (kTight ? 160 : 152) : 232;
  /// Keys of a split where a row tile's keys are split at all: constant, so that a sequence's sums have one
  /// order whatever else runs.
  static constexpr int kSplitKeys = 16384 / TileKeys * TileKeys;

  /// Tiles in shared memory: panels of 64 dims, [panel][row][128 bytes], swizzled.
  static constexpr int kKPanels = (kD + kPanelDims - 1) / kPanelDims;
  static constexpr int kVPanels = (kDv + kPanelDims - 1) / kPanelDims;
  static constexpr int kQPanelBytes = kRows * 128, kTilePanelBytes = kTileKeys * 128;
  static constexpr int kQBytes = kKPanels * kQPanelBytes;
  static constexpr int kKBytes = kKPanels * kTilePanelBytes, kVBytes = kVPanels * kTilePanelBytes;
  static constexpr int kKOffset = kQueryBuffers * kQBytes;
  static constexpr int kVOffset = kKOffset + kStages * kKBytes;
  /// What it takes to write O of rows whose unit ends.
  static constexpr int kRowsOffset = kVOffset + kStages * kVBytes;
  static constexpr int kUnits = 4;  ///< known ahead
  static constexpr int kUnitsOffset = kRowsOffset + kRows * 8;
  static constexpr int kCountsOffset = kUnitsOffset + kUnits * static_cast<int>(sizeof(PrefillUnit));
  static constexpr int kBarriersOffset = kCountsOffset + static_cast<int>(sizeof(PrefillCounts));
  static constexpr int kBarriers = 2 * (kQueryBuffers + 2 * kStages + kUnits) + 1;
  /// The block's shared memory begins at a multiple of 16 only.
  static constexpr int kSharedBytes = kBarriersOffset + kBarriers * 8 + 1024;
  static_assert(kSharedBytes <= kMaxSharedBytes);
};

}  // namespace fovea::cuda::sm90
