#pragma once
// DeepSeek sparse attention's indexer: which keys each row of a step sees.
//
// A row's score of key s is sum over heads h of w_h max(0, q_h . k_s), times the key's scale; the row sees
// the `topk` keys of the largest scores among those up to its own. Index keys are stored as floats, or as
// e4m3 with a scale for each, a power of two: then queries and keys are first rotated by a Hadamard matrix
// (orthogonal, so that scores stay the same), which spreads large elements over all.
#include <cstdint>
#include <span>

#include "fovea/attention_step.h"

namespace fovea {

class ThreadPool;

/// x = H x / sqrt(n) in place, H being the Hadamard matrix in natural order; n a power of two.
void hadamard(float* x, int n);

/// Rounds x to e4m3 of one scale, DeepSeek's: 2^ceil(log2(max(|x|, 1e-4) / 448)). Returns the scale; x
/// receives the numbers that the codes mean, not multiplied by it. NaN stays NaN.
float round_to_index_codes(float* x, int n);

/// Positions of the k largest of n scores, ascending; of equal ones the lower position, and NaN before all
/// numbers. With n < k all, and -1 in the other entries.
void choose_largest(const float* scores, int64_t n, int64_t k, int32_t* out);

/// Index queries of a step's rows, and the index keys of its sequences.
struct IndexStep {
  const float* q = nullptr;        ///< [T, heads, dim], rows q_stride apart
  const float* weights = nullptr;  ///< [T, heads], rows weight_stride apart
  int64_t q_stride = 0, weight_stride = 0;
  int heads = 0, dim = 0, topk = 0;
  KvView keys;                ///< pages of index keys: K only; k_scales for fp8_e4m3
  BatchMeta batch;            ///< in host memory, with a page table; row i of n_q sees n_k - n_q + i + 1 keys
  int32_t* chosen = nullptr;  ///< [T, topk] receives choose_largest() of each row's scores
};

/// A row's choice depends only on its own query and keys. Allocates at most 64 MiB, or the scores of one row
/// block if these are more.
void choose_keys(const IndexStep& step, ThreadPool& pool);

}  // namespace fovea
