#pragma once
// DeepSeek sparse attention's indexer on the device: what kernels/cpu/indexer.h defines. Index heads have
// kIndexDim elements, rows at most kMostIndexHeads of them. All pointers are to device memory.
#include "device/cuda/cuda_stream.h"
#include "fovea/attention_step.h"

namespace fovea::cuda {

inline constexpr int kIndexDim = 128, kMostIndexHeads = 64;

/// Queries and keys of a step's rows, not rotated; keys are normed.
struct IndexRows {
  int tokens = 0, heads = 0;
  DType dtype = DType::bf16;  ///< of q, key and weights
  void* q = nullptr;          ///< [tokens, heads, kIndexDim], the heads of a row contiguous
  int64_t q_row_stride = 0;
  const void* key = nullptr;  ///< [tokens, kIndexDim]
  int64_t key_row_stride = 0;
  const void* weights = nullptr;  ///< [tokens, heads]
  int64_t weights_row_stride = 0;
  float scale = 1;                             ///< of weights
  const float *cos = nullptr, *sin = nullptr;  ///< [tokens, pairs]
  int pairs = 0;                               ///< of the first 2 * pairs elements
  bool interleaved = false;                    ///< pairs (2 t, 2 t + 1), else (t, t + pairs)
  KvView keys;                                 ///< pages of index keys
  const int64_t* slots = nullptr;              ///< [tokens]; below 0 = not written
  int64_t num_slots = 0;                       ///< a slot from here on is not written
  /// With keys of fp8_e4m3: receives the queries' codes [tokens, heads, kIndexDim]. Otherwise null, and
  /// queries change in place.
  uint8_t* codes = nullptr;
  float* weights_out = nullptr;  ///< [tokens, heads]: times scale, and with codes the scale of each query
};

/// Rotates queries and keys, with codes also by a Hadamard matrix, rounds them, and writes keys to the cache;
/// bit for bit as the CPU. In one launch. Errors, before the launch: sizes or pointers that don't go
/// together.
Status launch_index_rows(const IndexRows& rows, CudaStream& stream);

/// Queries after launch_index_rows(), and the keys that they see.
struct IndexQueries {
  int heads = 0, topk = 0;
  DType dtype = DType::bf16;       ///< of q without codes
  const void* q = nullptr;         ///< [rows, heads, kIndexDim]: codes if keys are, of the first of `rows` on
  int64_t q_row_stride = 0;        ///< elements
  const float* weights = nullptr;  ///< [rows, heads]
  KvView keys;
  BatchMeta batch;          ///< of the whole step
  int first = 0, rows = 0;  ///< rows of the step
  int64_t max_keys = 0;     ///< no row sees more; further ones are ignored
  /// Compute capability 9.0 has a kernel of its own for codes, whose sums differ; this takes the others'.
  bool before_hopper = false;
};

/// scores [rows, stride]: of each row that sees more than topk keys, those of its keys. A score is one fixed
/// sum, whatever else is computed. Errors: too many heads; a type of keys that is neither that of the queries
/// nor fp8_e4m3; addresses that aren't aligned to 16 bytes.
Status launch_index_scores(const IndexQueries& queries, float* scores, int64_t stride, CudaStream& stream);

/// chosen [rows, topk] = choose_largest() of each row's scores: exact, ascending, of equal ones the lower
/// position.
Status launch_choose_largest(const IndexQueries& queries, const float* scores, int64_t stride,
                             int32_t* chosen, CudaStream& stream);

/// The rows of a pass over a step of `tokens` rows: their scores take at most kMostScoreBytes, or those of
/// one row.
inline constexpr int64_t kMostScoreBytes = int64_t{256} << 20;
constexpr int64_t index_pass_rows(int64_t tokens, int64_t stride) {
  const int64_t fit = kMostScoreBytes / (stride * 4);
  return fit < 1 ? 1 : fit < tokens ? fit : tokens;
}

}  // namespace fovea::cuda
