#pragma once
// Measured choices of how linear layers are divided, in the place of plan_wgmma()'s own. They change no bit.
#include <cstdint>
#include <vector>

#include "kernels/cuda/linear/wgmma_plan.h"

namespace fovea::cuda {

/// For min_rows to max_rows rows of a 16-bit weight with n outputs and k inputs.
struct LinearChoice {
  int64_t n = 0, k = 0;
  bool gated = false;
  int64_t min_rows = 1, max_rows = 1;
  LinearKernel kernel = LinearKernel::automatic;  ///< automatic, stream or tile
  WgmmaOptions options;
};

/// Replaces all choices of the process. Call it before engines are made: launches read the choices.
void set_linear_choices(std::vector<LinearChoice> choices);

/// Null = none.
const LinearChoice* find_linear_choice(int64_t n, int64_t k, bool gated, int64_t rows);

/// plan_wgmma() of `kernel`, or with it automatic, of the choice for this shape.
WgmmaPlan chosen_wgmma_plan(int64_t rows, int64_t n, int64_t k, bool gated, int multiprocessors,
                            LinearKernel kernel);

}  // namespace fovea::cuda
