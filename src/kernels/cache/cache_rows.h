#pragma once
// Appending rows to the paged KV cache, with q/k norm, rotary embedding and quantisation; copying of pages
// and gathering of rows. The parameters are the same on the CPU and on a GPU (kernels/cuda/append): PODs by
// value, shapes in elements, pointers to the device's memory.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/host_device.h"
#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"

namespace fovea {

class ThreadPool;

/// The longest row (head size) that is accepted: a warp of a GPU holds one in shared memory.
inline constexpr int kMaxRowElements = 1024;

/// Callers' indices, 32-bit or 64-bit.
struct IndexArray {
  const void* data = nullptr;
  bool is_32_bit = false;

  IndexArray() = default;
  IndexArray(std::nullptr_t) {}
  IndexArray(const int32_t* indices) : data(indices), is_32_bit(true) {}
  IndexArray(const int64_t* indices) : data(indices) {}

  FOVEA_HOST_DEVICE int64_t operator[](int64_t i) const {
    return is_32_bit ? static_cast<const int32_t*>(data)[i] : static_cast<const int64_t*>(data)[i];
  }
};

/// Rows placed by their sequences: row i of sequence b (token q_offsets[b] + i of the step) has position
/// kv_lens[b] - n_q + i, and lies there in the sequence's pages.
struct SequenceRows {
  IndexArray q_offsets;   ///< [seqs + 1], from 0; null data = rows are placed by slots
  IndexArray kv_lens;     ///< [seqs], the new rows included
  IndexArray page_table;  ///< [seqs, columns], rows page_table_stride apart
  int seqs = 0;
  int64_t columns = 0, page_table_stride = 0;
};

/// Rotates pairs of the first `dim` elements of each head of Q and K, as in model/rope.h.
struct RopeParams {
  int dim = 0;                 ///< even; 0 = no rotation
  bool interleaved = false;    ///< pairs (2 t, 2 t + 1), else (t, t + dim / 2)
  const float* cos = nullptr;  ///< [rows, dim / 2]; every scaling (llama3, yarn, ...) is in them
  const float* sin = nullptr;
  /// [tokens] the table's row of each token; null = its position in its sequence when rows are
  /// placed by sequences, else row t for token t.
  IndexArray positions = {};
  int64_t rows = std::numeric_limits<int64_t>::max();  ///< a token with a row from here on is not written
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
  KvView kv;                 ///< where K and V go; its pointers are written through
  IndexArray slots;          ///< [tokens] page * page_size + offset; below 0 = padding, not written
  SequenceRows sequences;    ///< instead of slots
  int64_t num_slots = 0;     ///< of the cache; a slot from here on is not written
  int32_t* error = nullptr;  ///< on a GPU, or null; set to the largest token + 1 whose slot, page or position
                             ///< is out of range; else unchanged
};

/// Rejects inconsistent sizes, strides and pointers.
Status check_append(const AppendParams& params);

/// On the CPU. Errors, before anything is written: those of check_append(); a slot, page or position that is
/// out of range.
Status append_rows(const AppendParams& params, ThreadPool& pool);

/// Copies whole pages of one layer, K, V and scales: page from[i] to to[i], no page in both lists. The view's
/// pages are contiguous blocks (paged_view); `num_kv_heads` and head sizes give their length.
struct CopyPages {
  KvView kv;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  IndexArray from;  ///< [count]
  IndexArray to;
  int count = 0;
  int64_t num_pages = 0;  ///< ids out of range are not copied
};

/// Rows of the cache, dequantised (element * scale * token scale in fp32) and rounded to `dtype`.
struct GatherRows {
  KvView kv;
  int num_kv_heads = 0, head_dim = 0, v_head_dim = 0;
  IndexArray slots;  ///< [rows], as in AppendParams; out of range gives zeros
  int64_t num_slots = 0;
  int rows = 0;
  DType dtype = DType::bf16;
  void* k = nullptr;  ///< [rows, num_kv_heads, head_dim]
  void* v = nullptr;  ///< [rows, num_kv_heads, v_head_dim]
};

/// On the CPU.
void gather_rows(const GatherRows& params, ThreadPool& pool);

}  // namespace fovea
