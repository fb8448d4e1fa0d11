#pragma once
// Compile-time constants of the decode kernels. Host code, without CUDA.
#include <type_traits>

#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/common/tile_layout.h"

namespace fovea::cuda::sm90 {

/// The numbers that define a decode kernel: up to `rows` packed query rows against many keys. A producer
/// warpgroup copies tiles of keys and values into a ring. One or two consumer warpgroups compute on them;
/// each warp has its own keys of a tile (key_groups) and its own columns of V and O (value_parts).
struct DecodeShape {
  int head_dim, v_head_dim;
  KvType kv = KvType::same;
  int rows = 16;  ///< a multiple of 8: O of all rows is in registers
  int key_groups;
  int value_parts = 1;
  int tile_keys;
  int stages;             ///< of the ring; a stage has the keys and the values of a tile
  int chunk_keys;         ///< DecodePolicy::kChunkKeys
  bool x_packed = false;  ///< of KvForm::x_packed
};

template <DecodeShape kShape, class Query>
struct DecodePolicy {
  using Q = Query;
  /// Operand type of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16
  /// queries are converted too, each row scaled into the range of fp16 by a power of two.
  using Compute = std::conditional_t<kShape.kv == KvType::same, Query, __half>;
  static constexpr KvType kKv = kShape.kv;
  static constexpr bool kEightBit = kKv != KvType::same;
  static constexpr int kD = kShape.head_dim, kDv = kShape.v_head_dim;
  static constexpr int kKeyGroups = kShape.key_groups;
  static constexpr int kValueParts = kShape.value_parts;
  static constexpr int kRows = kShape.rows, kRowGroups = kRows / 8;
  static_assert(kRows % 8 == 0);
  static constexpr int kPartDv = kDv / kValueParts;
  static_assert(kD % 32 == 0 && kPartDv % 32 == 0);

  static constexpr int kConsumers = 32 * kKeyGroups * kValueParts;
  static constexpr int kConsumerWarps = kConsumers / 32;
  static constexpr int kProducers = 128;
  static constexpr int kThreads = kConsumers + kProducers;
  static_assert(kConsumers % 128 == 0);

  static constexpr int kTileKeys = kShape.tile_keys;
  static constexpr int kWarpKeys = kTileKeys / kKeyGroups;
  static_assert(kWarpKeys % 16 == 0);
  static constexpr int kCopyRows = kTileKeys / 4;  ///< rows of a tile that each producer warp copies
  static_assert(kCopyRows == 8 || kCopyRows == 16 || kCopyRows == 32);
  static constexpr int kStages = kShape.stages;
  /// Keys, 128 KiB of them, that a CTA prefetches to L2 while it waits for the kernels in front of it. One
  /// prefetch instruction fetches kPrefetchBytes.
  static constexpr int kPrefetchKeys = (128 << 10) / ((kD + kDv) * kv_bytes(kKv)), kPrefetchBytes = 256;
  /// Keys of a chunk, and chunks of a group, both at absolute multiples. A split is one chunk; the item of a
  /// row tile that is not split has all its chunks. A row is summed in this order: keys of a chunk, chunks of
  /// a group in order, groups in order.
  static constexpr int kChunkKeys = kShape.chunk_keys, kGroupChunks = 8;
  static_assert(kChunkKeys % kTileKeys == 0);

  using KTile = TileLayout<kD * kv_bytes(kKv)>;
  using VTile = TileLayout<kDv * kv_bytes(kKv)>;
  /// x-packed values lie in a tile transposed, as in memory: runs of kRunKeys keys, a chunk for each column.
  /// Two or four adjacent runs lie in different banks.
  static constexpr bool kPacked = kShape.x_packed;
  static constexpr int kRunKeys = 8, kRunBytes = kDv * 16 + 64;
  FOVEA_HOST_DEVICE static constexpr unsigned run_offset(unsigned run) {
    return run * kRunBytes + (run & 2) * 16;
  }
  static_assert(!kPacked || (!kEightBit && kWarpKeys == 2 * kRunKeys));
  static constexpr DecodeShape plain_shape() {
    DecodeShape shape = kShape;
    shape.x_packed = false;
    return shape;
  }
  using Plain = DecodePolicy<plain_shape(), Query>;  ///< of strided pages
  static constexpr int kKBytes = kTileKeys * KTile::kPitch;
  static constexpr int kVBytes = kPacked ? kTileKeys / kRunKeys * kRunBytes : kTileKeys * VTile::kPitch;
  static constexpr int kStageBytes = kKBytes + kVBytes;
  static_assert(kKBytes % 128 == 0 && kVBytes % 128 == 0);
  static constexpr int kRingBytes = kStages * kStageBytes;
  /// Queries in shared memory, where registers are scarce.
  static constexpr bool kQueryShared = (kD / 8 + kPartDv / 4) * kRowGroups > 96 || kD == 96;
  using QTile = TileLayout<kD * 2>;
  static constexpr int kQueryBytes = kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;
  /// At the end of a chunk the key groups exchange O in fp32, kPassRows rows at a time, in the memory of the
  /// chunk's last tile; where that has room for two buffers, passes alternate between them. Their softmax
  /// states are double-buffered too.
  static constexpr int kPassRows = 8, kPasses = kRows / kPassRows;
  static constexpr int kExchangeBytes = kKeyGroups * kPassRows * kDv * 4;
  static constexpr int kExchangeBuffers = kStageBytes >= 2 * kExchangeBytes ? 2 : 1;
  static_assert(kStageBytes >= kExchangeBytes);
  /// A cell is four columns of O in one row. A thread combines kPassCells of them in every kTurns-th pass.
  static constexpr int kCells = kPassRows * kDv / 4;  ///< of a pass
  static constexpr int kPassCells = (kCells + kConsumers - 1) / kConsumers;
  static constexpr int kTurns = kPassCells > 1 ? 1 : kConsumers / kCells;
  static constexpr int kThreadCells = (kPasses + kTurns - 1) / kTurns * kPassCells;
  static constexpr int kRowSumBytes = kThreadCells * kConsumers * 16;
  static constexpr int kStateBytes = 2 * (kKeyGroups + 2) * kRows * 8;
  static constexpr int kPartialListBytes = (kConsumers + 8) * 4;
  static constexpr int kBarrierBytes = kStages * 16, kFlagBytes = 16;
  static constexpr int kSharedBytes =
      kRingBytes + kQueryBytes + kStateBytes + kRowSumBytes + kPartialListBytes + kBarrierBytes + kFlagBytes;
  static_assert(kSharedBytes <= kMaxSharedBytes);
  /// setmaxnreg moves registers to the consumers where more than 256 threads leave too few for all: a launch
  /// gives 168 per thread. D = 64 and 128: with 216, ptxas spills.
  static constexpr bool kShiftRegisters = kThreads > 256;
  static constexpr int kConsumerRegisters = kD == 256 && !kEightBit ? 224
                                            : kD == 128             ? 208
                                            : kD == 64              ? 184
                                                                    : 216;
  static constexpr int kProducerRegisters = 3 * 168 - 2 * kConsumerRegisters;
  static_assert(!kShiftRegisters || kThreads == 384);
};

}  // namespace fovea::cuda::sm90
