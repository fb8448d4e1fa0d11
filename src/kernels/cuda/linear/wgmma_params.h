#pragma once
// Parameters of the wgmma kernels. They need CUDA's headers.
#include <cuda.h>

#include "kernels/cuda/linear/epilogue.h"
#include "kernels/cuda/linear/wgmma_plan.h"

namespace fovea::cuda {

struct WgmmaParams {
  CUtensorMap x;        ///< [k blocks, rows, 64], or with x_flat [1, rows, k]
  CUtensorMap weights;  ///< [k blocks, panels, 2 KiB]; a box has the larger number of units
  CUtensorMap fewer;    ///< the same with one unit less
  EpilogueParams epilogue;
  int k_blocks = 0;
  int units = 0;       ///< of the whole weight
  int part_units = 0;  ///< the most of a part
  int parts = 0, row_tiles = 0, raster = 1;
  int blocks = 1, stages = 2;
  int x_rows = 1;   ///< of a tile
  int x_bytes = 0;  ///< of a stage
  int stage_bytes = 0;
  int x_box_rows = 0, x_box_blocks = 1;  ///< of one copy
  ClusterShare share = ClusterShare::none;
  bool halves = false, even = true, x_flat = false;
  bool stream_weights = true;         ///< weights are read once: evicted first from L2
  bool constant_weight = false;       ///< LinearParams::constant_weight
  int early_stages = 0;               ///< with constant_weight: filled before the kernels in front have ended
  bool late_dependents = false;       ///< LinearParams::late_dependents
  int unit_bytes = 0;                 ///< of a k block of a unit of weights
  const float* scales = nullptr;      ///< LinearParams::scales
  bool gated = false;                 ///< quantised weights
  int x_stages = 0, code_stages = 0;  ///< of wgmma_widened, whose `stages` are those of widened weights
};

}  // namespace fovea::cuda
