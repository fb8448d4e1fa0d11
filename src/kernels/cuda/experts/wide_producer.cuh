#pragma once
// The producer of the wide kernels: a warpgroup that gathers rows of x by cp.async and loads panels of
// weights by bulk copies into a ring of stages of 64 inputs; and the tiles, which it tells the consumers.
#include "kernels/cuda/experts/find_tile.cuh"
#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda {

/// Tiles of 128 rows x kPanelsOf panels, whose blocks have kPanelBytesOf bytes. A stage: the rows of x,
/// [128][128 bytes] with the 128-byte swizzle, then the panels' blocks.
template <int kPanelsOf, int kPanelBytesOf, int kStagesOf>
struct WideShape {
  static constexpr int kRows = 128, kPanels = kPanelsOf, kPanelBytes = kPanelBytesOf;
  static constexpr int kRowBytes = kRows * 128;
  static constexpr int kStageBytes = (kRowBytes + kPanels * kPanelBytes + 1023) / 1024 * 1024;
  static constexpr int kStages = kStagesOf;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // aligned to 1024
  static constexpr int kConsumers = 2;                               // warpgroups
  static constexpr int kThreads = 128 * (kConsumers + 1);
  // A stage's rows of x are reported when the copies of this many later stages have been issued.
  static constexpr int kLag = 2;
  static constexpr int kCopies = kRows * 8 / 128;  // of 16 bytes of x, of each thread and stage
  // Tiles that the producer can be ahead: no more than stages.
  static constexpr int kTileSlots = 8;
  static_assert(kStages <= kTileSlots && kPanels <= 16);
};

/// What the roles share.
template <class S>
struct WideMemory {
  uint64_t full[S::kStages], empty[S::kStages];
  int4 tiles[S::kTileSlots];
};

template <class S>
struct WideRing {
  uint32_t full, empty;  ///< mbarriers
  uint32_t stages;
  int4* tiles;  ///< [kTileSlots] expert, first, rows, column of tile n of the CTA, valid from its first stage
                ///< on

  FOVEA_DEVICE uint32_t stage(uint32_t slot) const { return stages + slot * S::kStageBytes; }

  /// By all threads of the CTA.
  static FOVEA_DEVICE WideRing make(WideMemory<S>& memory, const void* dynamic) {
    const WideRing ring{shared_address(memory.full), shared_address(memory.empty),
                        (shared_address(dynamic) + 1023) & ~1023u, memory.tiles};
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::kStages; ++i) {
        mbarrier_init(ring.full + 8 * i, 1 + 4);  // the panels, and each producer warp's rows
        mbarrier_init(ring.empty + 8 * i, 4 * S::kConsumers);
      }
      mbarrier_init_fence();
    }
    __syncthreads();
    return ring;
  }
};

/// `panels`: of an expert; `columns`: tiles of S::kPanels of them.
template <class S>
FOVEA_DEVICE void wide_produce(const GroupedProduct& p, int panels, int columns, const WideRing<S>& ring) {
  const int thread = static_cast<int>(threadIdx.x) % 128, lane = lane_id(), chunk = thread % 8;
  const bool first_warp = thread < 32;
  const int blocks = static_cast<int>(packed_blocks(p.inputs));
  RingPosition<S::kStages> at, landed;  // landed: the oldest stage whose rows have not been reported
  int in_flight = 0;
  const auto report = [&] {
    fence_proxy_async();  // wgmma reads what this thread's copies wrote
    __syncwarp();
    if (lane == 0) mbarrier_arrive(ring.full + 8 * landed.slot);
    landed.next();
    --in_flight;
  };
  int tiles = 0;
  for (int index = static_cast<int>(blockIdx.x);; index += static_cast<int>(gridDim.x)) {
    const ExpertTile tile = find_tile(p.groups, S::kRows, columns, index);
    if (tile.expert < 0) break;
    uint32_t rows[S::kCopies];  // 16-byte units from x
#pragma unroll
    for (int i = 0; i < S::kCopies; ++i) {
      const int position = tile.first + min(16 * i + thread / 8, tile.rows - 1);
      const int64_t source = p.gathers ? p.groups.row[position] : position;
      rows[i] = static_cast<uint32_t>(source * (p.x_stride / 8) + chunk);
    }
    const int first_panel = tile.column * S::kPanels, count = min(S::kPanels, panels - first_panel);
    const std::byte* weights =
        static_cast<const std::byte*>(p.weights.data) + tile.expert * p.weights.stride +
        static_cast<int64_t>(first_panel + lane % S::kPanels) * blocks * S::kPanelBytes;
    for (int block = 0; block < blocks; ++block) {
      const uint32_t stage = ring.stage(at.slot), full = ring.full + 8 * at.slot;
      mbarrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
      if (block == 0 && thread == 0)
        ring.tiles[tiles % S::kTileSlots] = {tile.expert, tile.first, tile.rows, tile.column};
      if (first_warp) {
        if (lane == 0) mbarrier_arrive_expect_tx(full, static_cast<uint32_t>(count * S::kPanelBytes));
        __syncwarp();
        if (lane < count)
          bulk_load(stage + S::kRowBytes + lane * S::kPanelBytes,
                    weights + static_cast<int64_t>(block) * S::kPanelBytes, S::kPanelBytes, full);
      }
      const std::byte* x = static_cast<const std::byte*>(p.x) + static_cast<int64_t>(block) * 128;
      const bool inside = block * kBlockInputs + chunk * 8 < p.inputs;
#pragma unroll
      for (int i = 0; i < S::kCopies; ++i) {
        const int row = 16 * i + thread / 8;
        cp_async_16(stage + row * 128 + ((chunk ^ (row % 8)) * 16), x + static_cast<int64_t>(rows[i]) * 16,
                    inside && row < tile.rows);
      }
      cp_async_commit();
      at.next();
      if (++in_flight > S::kLag) {
        cp_async_wait<S::kLag>();
        report();
      }
    }
    ++tiles;
  }
  // A last stage without data brings the tile that ends the consumers.
  mbarrier_wait(ring.empty + 8 * at.slot, at.phase ^ 1);
  if (thread == 0) {
    ring.tiles[tiles % S::kTileSlots] = {-1, 0, 0, 0};
    mbarrier_arrive(ring.full + 8 * at.slot);
  }
  ++in_flight;
  cp_async_wait<0>();
  while (in_flight > 0)
    report();
}

}  // namespace fovea::cuda
