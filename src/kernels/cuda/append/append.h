#pragma once
// New rows into the paged KV cache, with what a model does to them before: q/k norm, rotary embedding,
// quantisation; and pages and rows moved about. Shapes in elements; all pointers to device memory.
#include "device/cuda/cuda_stream.h"
#include "fovea/attention_backend.h"

namespace fovea::cuda {

/// The longest row (head size) that the kernels take: a warp holds one in shared memory.
inline constexpr int kMaxRowElements = 1024;

/// Rotates pairs of the first `dim` elements of each head of Q and K, as model/rope.h has it.
struct RopeParams {
  int dim = 0;                 ///< even; 0 = no rotation
  bool interleaved = false;    ///< pairs (2 t, 2 t + 1), else (t, t + dim / 2)
  const float* cos = nullptr;  ///< [rows, dim / 2]; every scaling (llama3, yarn, ...) is in them
  const float* sin = nullptr;
  const int32_t* positions = nullptr;  ///< [tokens] the table's row of each token; null = row t for token t
};

/// RMS norm of each head: x / sqrt(mean(x^2) + eps) * weight.
struct HeadNorm {
  const float* weight = nullptr;  ///< [head_dim]; null = none
  float eps = 0.0f;
};

struct AppendParams {
  int tokens = 0;
  int num_heads = 0, num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  DType dtype = DType::bf16;  ///< of q, k, v and q_out
  const void* q = nullptr;    ///< [tokens, num_heads, head_dim]; null = only K and V
  const void* k = nullptr;    ///< [tokens, num_kv_heads, head_dim]; null with `v` = only Q
  const void* v = nullptr;    ///< [tokens, num_kv_heads, v_head_dim]
  int64_t q_row_stride = 0, k_row_stride = 0, v_row_stride = 0;
  void* q_out = nullptr;  ///< normed and rotated, rows q_out_row_stride apart; may be q
  int64_t q_out_row_stride = 0;
  HeadNorm q_norm, k_norm;
  RopeParams rope;
  KvView kv;  ///< where K and V go; its pointers are written through
  const void* slots =
      nullptr;  ///< [tokens] page * page_size + offset, int64 or int32; below 0 = padding, not written
  bool slots_are_32_bit = false;
  int64_t num_slots = 0;     ///< of the cache; a slot beyond is not written
  int32_t* error = nullptr;  ///< or null; set to the largest token + 1 whose slot is beyond, else left alone
};

/// Rounds as KvCache::append does, bit for bit; norm and rotation in fp32. Errors, before the launch: sizes,
/// strides or pointers that don't go together.
Status launch_append(const AppendParams& params, CudaStream& stream);

/// cos and sin [count, pairs] of positions[count] x frequencies[pairs] (radians a position, fp64), times
/// `factor`, in fp64 rounded once: rope_rows() of model/rope.h.
Status launch_rope_rows(const double* frequencies, int pairs, double factor, const int32_t* positions,
                        int count, float* cos, float* sin, CudaStream& stream);

/// Copies whole pages of one layer, K, V and scales: page from[i] to to[i], no page in both lists. The view's
/// pages are contiguous blocks (paged_view); `num_kv_heads` and head sizes give their length.
struct CopyPages {
  KvView kv;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  const int32_t* from = nullptr;  ///< [count]
  const int32_t* to = nullptr;
  int count = 0;
  int64_t num_pages = 0;  ///< ids beyond are not copied
};
Status launch_copy_pages(const CopyPages& params, CudaStream& stream);

/// Rows of the cache, dequantised (element * scale * token scale in fp32) and rounded to `dtype`.
struct GatherRows {
  KvView kv;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  const void* slots = nullptr;  ///< [rows], as in AppendParams; below 0 or beyond gives zeros
  bool slots_are_32_bit = false;
  int64_t num_slots = 0;
  int rows = 0;
  DType dtype = DType::bf16;
  void* k = nullptr;  ///< [rows, num_kv_heads, head_dim]
  void* v = nullptr;  ///< [rows, num_kv_heads, v_head_dim]
};
Status launch_gather_rows(const GatherRows& params, CudaStream& stream);

}  // namespace fovea::cuda
