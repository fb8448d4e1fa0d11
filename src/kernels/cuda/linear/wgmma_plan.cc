#include "kernels/cuda/linear/wgmma_plan.h"

#include <algorithm>

namespace fovea::cuda {
namespace {

// 227 KiB less alignment, barriers, and room for CTAs of small kernels: those that follow are resident early.
constexpr int kSharedBudget = 232448 - 1024 - 512 - 4096;
constexpr int kMaxUnits = 16, kMaxHalves = 8;  // of a part
constexpr int kFewRowsUnits = 8;  // of up to 64 rows: two narrow parts are read faster than a wide one
constexpr int kTileColumns = 256;
// Of codes that are widened on the way: widened weights and x that are ahead, at least.
constexpr int kWidenedBytes = 96 << 10, kWidenedXBytes = 64 << 10;

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int instruction_columns(int outputs) {
  for (const int columns : kWgmmaColumns)
    if (columns >= outputs) return columns;
  return kTileColumns;
}

/// Bytes past the ring that an instruction may read: rows of x and outputs that a stage doesn't have. Their
/// values are not used.
int overrun(const WgmmaPlan& p) {
  const int x = (64 * p.groups - p.x_rows) * 128 - p.blocks * p.units * p.unit_bytes();
  const int least = p.even ? std::max(p.units - 1, 1) : p.units;
  const int weights = p.halves ? (p.columns / 8 - least) * p.unit_bytes() * p.blocks
                               : (std::max(p.columns / 16, 1) - least) * p.unit_bytes();
  return std::max({x, weights, 0});
}

void choose_stages(WgmmaPlan& p) {
  p.blocks = wgmma_blocks(p.columns, p.groups);
  const int pad = overrun(p);
  p.stages = std::min(kWgmmaMaxStages, (kSharedBudget - pad) / p.stage_bytes());
  p.shared_bytes = p.stages * p.stage_bytes() + pad + 1024;
}

void choose_rows(WgmmaPlan& p, int64_t rows, const WgmmaOptions& options) {
  const int most = 64 * p.groups;
  p.row_tiles = static_cast<int>(divide_up(rows, most));
  p.x_rows = static_cast<int>(divide_up(rows, p.row_tiles));
  if (options.whole_groups) p.x_rows = p.row_tiles > 1 ? most : (p.x_rows + 15) / 16 * 16;
}

/// Clocks of a tile's k block: matrix instructions, or its bytes through the multiprocessor's L2 port.
int64_t block_clocks(const WgmmaPlan& p) {
  constexpr int kPortBytes = 48;
  const int instruction = std::max(p.columns / 2, 16 + p.columns / 4);
  const int bytes = p.x_rows * 128 + p.units * p.unit_bytes();
  return std::max(4 * p.groups * instruction, bytes / kPortBytes);
}

/// `groups`: consumer warpgroups.
WgmmaPlan stream_plan(int64_t rows, int64_t n, int64_t k, bool gated, int multiprocessors, int groups,
                      const WgmmaOptions& options) {
  WgmmaPlan p;
  p.groups = groups;
  choose_rows(p, rows, options);
  const int64_t panels = packed_panels(n, gated);
  // Half panels where they leave less work to the busiest multiprocessor.
  const int64_t full_load = 2 * divide_up(panels * p.row_tiles, multiprocessors);
  const int64_t half_load = divide_up(2 * panels * p.row_tiles, multiprocessors);
  p.halves = !gated && options.halves.value_or(half_load < full_load && half_load <= kMaxHalves);
  const int most = p.halves ? kMaxHalves : options.units.value_or(rows <= 64 ? kFewRowsUnits : kMaxUnits);
  const int64_t units = p.halves ? 2 * panels : panels;
  const int64_t rounds = divide_up(units * p.row_tiles, int64_t{multiprocessors} * most);
  const int64_t slots = std::max<int64_t>(rounds * multiprocessors / p.row_tiles, 1);
  p.parts = static_cast<int>(std::min(units, std::max(slots, divide_up(units, most))));
  // That two CTAs load x for each other did not pay: they wait for each other.
  const bool can_share = p.x_rows % 2 == 0 && k % kBlockInputs == 0 && p.parts >= 2;
  if (can_share && options.share == ClusterShare::x) {
    p.share = ClusterShare::x;
    if (p.parts % 2 != 0) p.parts += divide_up(units, p.parts - 1) <= most ? -1 : 1;
  }
  p.units = static_cast<int>(divide_up(units, p.parts));
  p.columns = instruction_columns(p.units * (p.halves ? 8 : 16));
  p.raster = p.row_tiles;
  choose_stages(p);
  const int64_t tiles = int64_t{p.parts} * p.row_tiles;
  p.ctas = static_cast<int>(std::min(tiles, int64_t{multiprocessors / p.cluster()} * p.cluster()));
  return p;
}

WgmmaPlan tile_plan(int64_t rows, int64_t n, bool gated, int multiprocessors, const WgmmaOptions& options) {
  WgmmaPlan p;
  p.groups = 2;
  p.columns = kTileColumns;
  p.units = kTileColumns / kPanelRows;
  p.parts = static_cast<int>(divide_up(packed_panels(n, gated), p.units));
  p.even = false;
  choose_rows(p, rows, options);
  const ClusterShare usual = p.row_tiles >= 16 ? ClusterShare::weights : ClusterShare::none;
  if (p.row_tiles >= 2 && options.share.value_or(usual) == ClusterShare::weights)
    p.share = ClusterShare::weights;
  p.raster = std::min(p.row_tiles, options.raster);
  choose_stages(p);
  const int64_t tiles = int64_t{p.parts} * divide_up(p.row_tiles, p.cluster()) * p.cluster();
  p.ctas = static_cast<int>(std::min(tiles, int64_t{multiprocessors / p.cluster()} * p.cluster()));
  return p;
}

/// As choose_stages(); the instruction may read rows of x past those of the stage.
void choose_code_stages(WgmmaPlan& p) {
  p.blocks = codes_blocks(p.columns);
  const int pad =
      std::max(((p.blocks - 1) * p.x_rows + p.columns) * 128 - p.x_bytes() - p.blocks * p.unit_bytes(), 0);
  p.stages = std::min(kWgmmaMaxStages, (kSharedBudget - pad) / p.stage_bytes());
  p.shared_bytes = p.stages * p.stage_bytes() + pad + 1024;
}

int64_t clocks(const WgmmaPlan& p) {
  const int pairs = p.share == ClusterShare::weights ? 2 : 1;
  return divide_up(int64_t{p.parts} * divide_up(p.row_tiles, pairs) * pairs, p.ctas) * block_clocks(p);
}

}  // namespace

WgmmaPlan plan_codes(int64_t rows, int64_t n, bool gated, bool block_scales, int multiprocessors,
                     LinearKernel kernel) {
  constexpr int kGroupUnits = 4, kTileRows = 128;
  WgmmaPlan p;
  p.codes = true;
  p.groups = 2;
  p.row_tiles = static_cast<int>(divide_up(rows, kTileRows));
  p.x_rows = static_cast<int>(divide_up(rows, p.row_tiles));
  p.columns = 8;
  while (p.columns < p.x_rows)
    p.columns *= 2;
  const int64_t panels = packed_panels(n, gated);
  const bool wide = !block_scales && p.columns == kTileRows;
  const int most = wide ? 4 * kGroupUnits : 2 * kGroupUnits;
  // Clocks of a k block: products of 128 rows, and what a block costs where a warpgroup has only one of them.
  constexpr int64_t kTileClocks = 1100, kPartClocks = 800;
  const int64_t part_rounds = divide_up(panels * p.row_tiles, int64_t{multiprocessors} * 2 * kGroupUnits);
  const bool many = wide && divide_up(divide_up(panels, most) * p.row_tiles, multiprocessors) * kTileClocks <
                                part_rounds * kPartClocks;
  if (kernel == LinearKernel::tile || (kernel == LinearKernel::automatic && many)) {
    p.even = false;
    p.units = most;
    p.parts = static_cast<int>(divide_up(panels, most));
    p.raster = std::min(p.row_tiles, 16);
  } else {
    const int units = 2 * kGroupUnits;
    const int64_t rounds = divide_up(panels * p.row_tiles, int64_t{multiprocessors} * units);
    const int64_t slots = std::max<int64_t>(rounds * multiprocessors / p.row_tiles, 1);
    p.parts = static_cast<int>(std::min(panels, std::max(slots, divide_up(panels, units))));
    p.units = static_cast<int>(divide_up(panels, p.parts));
    p.raster = p.row_tiles;
  }
  choose_code_stages(p);
  p.ctas = static_cast<int>(std::min<int64_t>(int64_t{p.parts} * p.row_tiles, multiprocessors));
  return p;
}

WgmmaPlan plan_widened(int64_t rows, int64_t n, bool gated, int multiprocessors) {
  WgmmaPlan p;
  p.codes = true;
  p.x_rows = static_cast<int>(rows);
  const int64_t panels = packed_panels(n, gated);
  const int64_t rounds = divide_up(panels, int64_t{multiprocessors} * kWidenedUnits);
  p.parts = static_cast<int>(std::min(panels, rounds * multiprocessors));
  p.units = static_cast<int>(divide_up(panels, p.parts));
  p.columns = std::max(instruction_columns(p.units * kPanelRows), 32);
  // The consumer holds two stages: those of many rows are short, so that enough of x is in flight.
  p.blocks = rows <= kWidenedFewRows ? 4 : 2;
  const int weight_bytes = p.blocks * p.units * kBlockBytes;
  p.stages = std::clamp(kWidenedBytes / weight_bytes, 3, 6);
  // A slot of codes is always the same warpgroup's, so that none asks for the phase after next: copies may
  // complete in any order, and phases two apart have one parity.
  const int code_bytes = weight_bytes / 2, left = kSharedBudget - p.stages * weight_bytes;
  p.x_stages = std::clamp(std::min(kWidenedXBytes, left - 2 * kWidenGroups * code_bytes) / p.x_bytes(), 3, 8);
  const int used = p.stages * weight_bytes + p.x_stages * p.x_bytes();
  p.code_stages =
      std::min(kWgmmaMaxStages, (kSharedBudget - used) / code_bytes) / kWidenGroups * kWidenGroups;
  p.shared_bytes = used + p.code_stages * code_bytes + 1024;
  p.ctas = std::min(p.parts, multiprocessors);
  return p;
}

WgmmaPlan plan_wgmma(int64_t rows, int64_t n, int64_t k, bool gated, int multiprocessors, LinearKernel kernel,
                     const WgmmaOptions& options) {
  WgmmaPlan best = tile_plan(rows, n, gated, multiprocessors, options);
  if (kernel == LinearKernel::tile) return best;
  const auto stream = [&](int groups) {
    return stream_plan(rows, n, k, gated, multiprocessors, groups, options);
  };
  if (rows <= 64) return stream(1);
  if (kernel == LinearKernel::stream) return stream(options.groups.value_or(2));
  for (const int groups : {2, 1}) {
    if (options.groups.value_or(groups) != groups) continue;
    const WgmmaPlan p = stream(groups);
    // Where it makes no difference, even parts and small tiles for few rows, rasters for many.
    const int64_t time = clocks(p), least = clocks(best);
    if (time < least || (time == least && rows <= 512)) best = p;
  }
  return best;
}

}  // namespace fovea::cuda
