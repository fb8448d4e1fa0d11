#pragma once
// How a linear layer is divided over the multiprocessors of a Hopper GPU: tiles, ring of stages, clusters. A
// function of shapes alone; no choice changes a bit of the result.
#include <cstdint>
#include <optional>

#include "kernels/cuda/linear/linear.h"

namespace fovea::cuda {

/// What the two CTAs of a cluster load for each other.
enum class ClusterShare : uint8_t { none, x, weights };

struct WgmmaPlan {
  int groups = 1;       ///< consumer warpgroups; a tile has up to 64 rows for each
  int columns = 16;     ///< width of the instruction and the most outputs of a tile
  bool halves = false;  ///< a unit of outputs is 8 (half a panel), else 16
  bool codes = false;   ///< of e4m3 weights; `columns` is then the instruction's number of rows of x
  int units = 1;        ///< the most units of a part
  int parts = 1;        ///< divisions of the outputs
  bool even = true;     ///< parts have units or units - 1 units, else all but the last have `units`
  int row_tiles = 1;
  int x_rows = 1;  ///< rows of x of a tile, at most 64 * groups; loading rows past x as zeros would be slow
  int blocks = 1;  ///< k blocks of a stage
  int stages = 2;
  int x_stages = 0, code_stages = 0;  ///< codes that are widened on the way: rings of their own
  ClusterShare share = ClusterShare::none;
  int raster = 1;  ///< row tiles that are swept together over the outputs
  int ctas = 1;
  int shared_bytes = 0;

  int cluster() const { return share == ClusterShare::none ? 1 : 2; }
  int unit_bytes() const { return halves || codes ? kBlockBytes / 2 : kBlockBytes; }  ///< of a k block
  int x_bytes() const { return (blocks * x_rows * 128 + 1023) & ~1023; }              ///< of a stage
  int stage_bytes() const { return x_bytes() + blocks * units * unit_bytes(); }
};

inline constexpr int kWgmmaMaxStages = 16;
inline constexpr int kWgmmaColumns[] = {8, 16, 32, 64, 128, 256};

/// k blocks of a stage, whose products are one batch: long enough to hide what a batch costs beside them.
constexpr int wgmma_blocks(int columns, int groups) {
  if (groups == 2) return columns <= 64 ? 2 : 1;
  return columns <= 16 ? 8 : columns <= 64 ? 4 : columns == 128 ? 2 : 1;
}

/// The same of quantised weights, for each number of rows of x of the instruction. Even: a pair of blocks
/// shares a scale.
constexpr int codes_blocks(int rows) {
  return rows <= 32 ? 4 : 2;
}

/// Codes that are widened on the way to wgmma: the most rows of x, those up to which stages are long, the
/// most units of a part, warpgroups that widen.
inline constexpr int kWidenedRows = 64, kWidenedFewRows = 16, kWidenedUnits = 4, kWidenGroups = 2;

/// Departures from the usual choices, for measurements and tests.
struct WgmmaOptions {
  std::optional<ClusterShare> share;  ///< where the shape allows it
  std::optional<bool> halves;
  std::optional<int> groups;  ///< where more than 64 rows are streamed
  std::optional<int> units;   ///< the most of a part
  bool whole_groups = false;  ///< x_rows is a multiple of 16, and rows past x are loaded as zeros
  int raster = 16;            ///< of tiles of 128 x 256
};

/// For `rows` of a weight with n outputs (gated: gates and ups) and k inputs on `multiprocessors`;
/// `kernel`: automatic, stream or tile.
WgmmaPlan plan_wgmma(int64_t rows, int64_t n, int64_t k, bool gated, int multiprocessors, LinearKernel kernel,
                     const WgmmaOptions& options = {});

/// For e4m3 weights. `block_scales`: those of 128 inputs.
WgmmaPlan plan_codes(int64_t rows, int64_t n, bool gated, bool block_scales, int multiprocessors,
                     LinearKernel kernel);

/// For e4m3 weights that are widened on the way to wgmma, up to 64 rows.
WgmmaPlan plan_widened(int64_t rows, int64_t n, bool gated, int multiprocessors);

}  // namespace fovea::cuda
