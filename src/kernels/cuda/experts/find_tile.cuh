#pragma once
// The device's scheduler: which rows of which expert a work tile is.
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

struct ExpertTile {
  int expert = -1;  ///< -1: there are fewer tiles
  int first = 0;    ///< position of the tile's first row
  int rows = 0;     ///< at least 1
  int column = 0;   ///< index of the tile among the columns
};

/// Tile `index` of all experts' tiles of `tile_rows` rows and one of `columns` column tiles; rows are
/// innermost, so that the tiles that read the same weights are neighbours. By all lanes of a warp.
FOVEA_DEVICE ExpertTile find_tile(const Grouping& groups, int tile_rows, int columns, int index) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = lane_id();
  int before = 0;
  for (int base = 0; base < groups.num_experts; base += 32) {
    const int expert = base + lane;
    int first = 0, rows = 0;
    if (expert < groups.num_experts) {
      first = groups.begin[expert];
      rows = groups.begin[expert + 1] - first;
    }
    const int row_tiles = (rows + tile_rows - 1) / tile_rows, tiles = row_tiles * columns;
    int end = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAll, end, step);
      if (lane >= step) end += other;
    }
    const unsigned reached = __ballot_sync(kAll, before + end > index);
    if (reached != 0) {
      const int owner = __ffs(static_cast<int>(reached)) - 1;
      const int at = index - before - __shfl_sync(kAll, end - tiles, owner);
      const int owner_tiles = __shfl_sync(kAll, row_tiles, owner),
                owner_rows = __shfl_sync(kAll, rows, owner);
      const int row_tile = at % owner_tiles;
      ExpertTile tile;
      tile.expert = base + owner;
      tile.first = __shfl_sync(kAll, first, owner) + row_tile * tile_rows;
      tile.rows = min(tile_rows, owner_rows - row_tile * tile_rows);
      tile.column = at / owner_tiles;
      return tile;
    }
    before += __shfl_sync(kAll, end, 31);
  }
  return {};
}

}  // namespace fovea::cuda
