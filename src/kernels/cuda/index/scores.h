#pragma once
// The kernels of launch_index_scores(). Host code.
#include "fovea/result_fwd.h"
#include "kernels/cuda/index/sequences.cuh"

namespace fovea::cuda {

inline constexpr int kMostRowBlock = 8;

struct ScoreParams {
  IndexQueries in;
  IndexSequences seqs;
  FastDivisor page_size;
  float* scores;
  int64_t stride;
  int row_block;       ///< rows of a CTA: 1, 2, 4 or 8, which share keys
  int blocks, shares;  ///< blocks of rows, and CTAs of each, which take tiles in turn
};

/// e4m3 by wgmma, compute capability 9.0: for codes.
Status launch_scores_sm90(const ScoreParams& params, CudaStream& stream);

}  // namespace fovea::cuda
