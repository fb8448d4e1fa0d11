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

/// The order of up to 32 pairs, found by a warp: the same as the grouping kernel's.
struct DirectOrder {
  int pair = 0;     ///< lane = position: the pair there
  int expert = -1;  ///< lane = position: its expert; -1 from the number of valid pairs on
  int first = 0;    ///< lane = position: the first position of the expert

  /// `places` [32] in shared memory ends as the pair of each position.
  FOVEA_DEVICE DirectOrder(const Grouping& groups, int* places) {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = lane_id();
    int id = lane < groups.pairs ? groups.experts[lane] : -1;
    if (id >= groups.num_experts) id = -1;
    const unsigned key = id < 0 ? kAll : static_cast<unsigned>(id);
    int position = 0;
    for (int other = 0; other < groups.pairs; ++other) {
      const unsigned theirs = __shfl_sync(kAll, key, other);
      position += theirs < key || (theirs == key && other < lane);
    }
    if (lane < groups.pairs) places[position] = lane;
    __syncwarp();
    if (lane < groups.pairs) pair = places[lane];
    expert = __shfl_sync(kAll, id, pair);
    if (lane >= groups.pairs) expert = -1;
    const int before = __shfl_up_sync(kAll, expert, 1);
    const unsigned starts = __ballot_sync(kAll, lane == 0 || before != expert);
    first = 31 - __clz(static_cast<int>(starts & (kAll >> (31 - lane))));
  }

  /// As find_tile(), but with columns innermost.
  FOVEA_DEVICE ExpertTile tile(int tile_rows, int columns, int index) const {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = lane_id(), wanted = index / columns;
    const bool starts = expert >= 0 && (lane - first) % tile_rows == 0;
    const unsigned tiles = __ballot_sync(kAll, starts);
    const int rank = __popc(tiles & ((1u << lane) - 1));
    const unsigned found = __ballot_sync(kAll, starts && rank == wanted);
    if (found == 0) return {};
    const int at = __ffs(static_cast<int>(found)) - 1;
    ExpertTile out;
    out.expert = __shfl_sync(kAll, expert, at);
    out.first = at;
    out.rows = min(tile_rows, __popc(__ballot_sync(kAll, lane >= at && expert == out.expert)));
    out.column = index % columns;
    return out;
  }
};

}  // namespace fovea::cuda
