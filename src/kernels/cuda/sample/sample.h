#pragma once
// Sampling on the device: edits of the logits, the draw, log probabilities; one launch for all rows of a
// step.
//
// Tokens and log probabilities have the bits of the CPU's Sampler and token_logprobs() (both use
// base/sample_math.h), whatever else is in the launch. All parameters are in device memory, the grid depends
// on the number of rows and the vocabulary only, nothing is allocated and the host reads nothing: a launch
// can be captured. The logits are not changed.
#include <cstdint>

#include "fovea/result_fwd.h"
#include "kernels/cuda/sample/edit_block.h"

namespace fovea {
class CudaStream;
}

namespace fovea::cuda {

inline constexpr int kMaxTop =
    20;  ///< most probable tokens in a SampleResult; for more, copy the logits' row
inline constexpr int kMaxSampleVocab = 1 << 20;

/// SampleRow::token of rows whose token is not given.
inline constexpr int32_t kDrawToken = -1;  ///< a token is drawn
inline constexpr int32_t kCheckOnly = -2;  ///< the row is only checked for NaN, +inf and only -inf

/// One row of a launch (POD, 64 bytes, in device memory).
struct SampleRow {
  int32_t logits_row = -1;     ///< row of the logits; negative = skipped (padding of a graph's bucket)
  int32_t slot = -1;           ///< tokens[slot] = the token drawn; negative = not written
  int32_t token = kDrawToken;  ///< or a given token in [0, width), of which only log probabilities are wanted
  int32_t top = -1;  ///< -1: no log probabilities; 0: the token's own; n <= kMaxTop: and the n most probable
  float temperature = 1, top_p = 1, min_p = 0;  ///< as DrawRule
  int32_t top_k = 0;
  uint64_t seed = 0;      ///< the uniform number is philox_uniform(seed, position)
  uint64_t position = 0;  ///< tokens before the drawn one: prompt and answer
  /// Device address of the request's edit block (edit_block.h), 0 = no edits. A block is in at most one row
  /// of a launch, because the sampler appends the drawn token to it.
  uint64_t edits = 0;
  int32_t mask_row = -1;  ///< row of SampleArgs::masks, negative = all tokens
  int32_t unused = 0;
};
static_assert(sizeof(SampleRow) == 64);

enum class SampleStatus : int32_t {
  ok = 0,
  bad_logits = 1,    ///< the row has a NaN or +inf, or only -inf
  nothing_left = 2,  ///< the request's own edits and masks leave no token
  skipped = 3,
};

/// What a row gave (POD, 192 bytes).
struct SampleResult {
  int32_t token;        ///< drawn or given; Ops::kNoToken (-1) unless status is ok
  SampleStatus status;  ///< the fields below are set if it is ok and SampleRow::top is not negative
  float logprob;        ///< of the token, from the logits as the model gave them, over all `width`
  int32_t rank;         ///< from 1; lower ids first on a tie
  int32_t num_top;      ///< min(top, width)
  int32_t draft;        ///< set by launch_follow() alone: what the token is compared with; -1 = nothing
  int32_t unused[2];
  int32_t top_ids[kMaxTop];  ///< best first
  float top_logprobs[kMaxTop];
};
static_assert(sizeof(SampleResult) == 192);

struct SampleArgs {
  const float* logits = nullptr;  ///< [.., width], rows `row_stride` floats apart
  int64_t row_stride = 0;
  int32_t width = 0;                ///< log probabilities are normalised over all of a row
  int32_t vocab = 0;                ///< tokens are drawn from the first `vocab` <= width logits
  const SampleRow* rows = nullptr;  ///< [num_rows]
  int32_t num_rows = 0;
  const uint32_t* masks =
      nullptr;                ///< [.., ceil(vocab / 32)]: bit i % 32 of word i / 32 = token i is allowed
  int64_t mask_stride = 0;    ///< words between rows of `masks`
  int32_t* tokens = nullptr;  ///< [slots]
  int32_t failed_token = -1;  ///< written to tokens[slot] where no token could be drawn
  SampleResult* results = nullptr;  ///< [num_rows], or null
  void* scratch = nullptr;          ///< sample_scratch_bytes(num_rows or more) bytes, aligned to 16
};

/// Bytes of scratch for up to `max_rows` rows on the stream's device: 0 for few rows on Hopper, else a copy
/// of the rows. Where it is 0 or not given on Hopper, each row is computed in a cluster's shared memory;
/// scratch makes launches of many rows faster. Elsewhere, rows with edits or masks need it.
int64_t sample_scratch_bytes(int32_t max_rows, int32_t width, const CudaStream& stream);

/// Queues the launch. Errors: vocabulary or width out of range.
Status launch_sample(const SampleArgs& args, CudaStream& stream);

/// The draw alone, parameters in separate arrays, as Ops::sample() has them: tokens[slot[r]] = the token
/// drawn from the first `vocab` logits of row r, or -1 where these are not valid; all arrays [rows].
struct DrawArgs {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  int32_t vocab = 0, rows = 0;
  const int32_t* slot = nullptr;
  const float *temperature = nullptr, *top_p = nullptr, *min_p = nullptr;
  const int32_t* top_k = nullptr;
  const int64_t *seed = nullptr, *position = nullptr;
  int32_t* tokens = nullptr;
  void* scratch = nullptr;  ///< not used: only edits need a copy of the rows
};
Status launch_draw(const DrawArgs& args, CudaStream& stream);

}  // namespace fovea::cuda
