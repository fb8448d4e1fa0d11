#pragma once
// What the wgmma kernels of linear layers share: the order of tiles, the ring of stages and its copies.
#include "kernels/cuda/linear/cluster.cuh"
#include "kernels/cuda/linear/wgmma_params.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda {

/// One tile of outputs.
struct WgmmaTile {
  int row;    ///< first row of x
  int unit;   ///< first unit of outputs
  int units;  ///< how many
};

/// Enumerates the tiles of a CTA; the CTAs of a cluster take neighbouring tiles in step.
struct WgmmaTiles {
  const WgmmaParams& p;
  int rank;  ///< in the cluster
  int cluster;

  FOVEA_DEVICE int count() const {
    const int rows = p.share == ClusterShare::weights ? (p.row_tiles + 1) / 2 : p.row_tiles;
    return rows * (p.share == ClusterShare::x ? p.parts / 2 : p.parts);
  }
  FOVEA_DEVICE int first() const { return static_cast<int>(blockIdx.x) / cluster; }
  FOVEA_DEVICE int step() const { return static_cast<int>(gridDim.x) / cluster; }

  FOVEA_DEVICE WgmmaTile at(int index) const {
    const bool by_rows = p.share == ClusterShare::weights, by_parts = p.share == ClusterShare::x;
    const int rows = by_rows ? (p.row_tiles + 1) / 2 : p.row_tiles;
    const int parts = by_parts ? p.parts / 2 : p.parts;
    const int raster = by_rows ? (p.raster + 1) / 2 : p.raster;
    const int sweep = index / (raster * parts), first_row = sweep * raster;
    const int in_sweep = index - sweep * raster * parts;
    const int height = min(raster, rows - first_row);
    int part = in_sweep / height, row = first_row + in_sweep - part * height;
    if (by_rows) row = 2 * row + rank;
    if (by_parts) part = 2 * part + rank;
    WgmmaTile tile;
    tile.row = row * p.x_rows;
    if (p.even) {
      tile.unit = static_cast<int>(int64_t{part} * p.units / p.parts);
      tile.units = static_cast<int>(int64_t{part + 1} * p.units / p.parts) - tile.unit;
    } else {
      tile.unit = part * p.part_units;
      tile.units = p.part_units;
    }
    return tile;
  }
};

/// A position in a ring whose number of stages is known at run time.
struct WgmmaRing {
  int stages;
  uint32_t slot = 0, phase = 0;
  FOVEA_DEVICE void next() {
    if (++slot == static_cast<uint32_t>(stages)) {
      slot = 0;
      phase ^= 1;
    }
  }
};

struct WgmmaBarriers {
  uint64_t full[kWgmmaMaxStages], empty[kWgmmaMaxStages];
};

/// The copies of one stage's x; one thread.
FOVEA_DEVICE void wgmma_load_x(const WgmmaParams& p, const WgmmaTile& tile, int rank, int block,
                               uint32_t stage, uint32_t full) {
  const CacheHint x_hint = p.stream_weights ? CacheHint::evict_last : CacheHint::normal;
  if (p.x_flat) {
    for (int i = 0; i < p.blocks; ++i)
      tma_load_3d(stage + i * p.x_rows * 128, &p.x, full, (block + i) * kBlockInputs, tile.row, 0, x_hint);
  } else if (p.share == ClusterShare::x) {  // each CTA loads half of the blocks or of the rows for both
    const bool by_rows = p.x_box_rows < p.x_rows;
    const int row = by_rows ? rank * p.x_box_rows : 0, at = by_rows ? 0 : rank * p.x_box_blocks;
    tma_load_3d_both(stage + (at * p.x_rows + row) * 128, &p.x, full, 0, tile.row + row, block + at, x_hint);
  } else {
    tma_load_3d(stage, &p.x, full, 0, tile.row, block, x_hint);
  }
}

/// The copies of one stage's weights, in front of those of its x; one thread.
FOVEA_DEVICE void wgmma_load_weights(const WgmmaParams& p, const WgmmaTile& tile, int rank, int block,
                                     uint32_t stage, uint32_t full) {
  const CacheHint weight_hint = p.stream_weights ? CacheHint::evict_first : CacheHint::normal;
  const int unit_bytes = p.unit_bytes;
  const uint32_t to = stage + p.x_bytes;
  mbarrier_arrive_expect_tx(full,
                            static_cast<uint32_t>(p.blocks * (p.x_rows * 128 + tile.units * unit_bytes)));
  if (p.halves) {
    for (int i = 0; i < tile.units; ++i) {
      const int unit = tile.unit + i;
      tma_load_3d(to + i * p.blocks * unit_bytes, &p.weights, full, unit % 2 * 128, unit / 2, block,
                  weight_hint);
    }
  } else if (p.share == ClusterShare::weights) {
    const int half = tile.units / 2 * rank;
    tma_load_3d_both(to + half * unit_bytes, &p.weights, full, 0, tile.unit + half, block, weight_hint);
  } else {
    tma_load_3d(to, tile.units == p.part_units ? &p.weights : &p.fewer, full, 0, tile.unit, block,
                weight_hint);
  }
}

/// The producer; one thread. Waits for the kernels in front before it loads x.
FOVEA_DEVICE void wgmma_produce(const WgmmaParams& p, const WgmmaTiles& tiles, int rank, uint32_t ring,
                                uint32_t full, uint32_t empty) {
  const int count = tiles.count();
  WgmmaRing at{p.stages};
  // Until the kernels in front have ended, weights of the first tile fill the ring.
  int ahead = 0;  // blocks
  const WgmmaTile first = tiles.at(tiles.first());
  if (p.constant_weight && tiles.first() < count) {
    for (int slot = 0; slot < p.early_stages && ahead < p.k_blocks; ++slot, ahead += p.blocks)
      wgmma_load_weights(p, first, rank, ahead, ring + slot * p.stage_bytes, full + 8 * slot);
  }
  tma_prefetch(&p.x);
  grid_dependency_wait();
  for (int t = tiles.first(); t < count; t += tiles.step()) {
    const WgmmaTile tile = tiles.at(t);
    for (int block = 0; block < p.k_blocks; block += p.blocks) {
      const uint32_t stage = ring + at.slot * p.stage_bytes, stage_full = full + 8 * at.slot;
      mbarrier_wait(empty + 8 * at.slot, at.phase ^ 1);
      if (block >= ahead) wgmma_load_weights(p, tile, rank, block, stage, stage_full);
      wgmma_load_x(p, tile, rank, block, stage, stage_full);
      at.next();
    }
    ahead = 0;
  }
}

}  // namespace fovea::cuda
