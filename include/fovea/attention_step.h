#pragma once
// The data of one attention step: its sequences (BatchMeta), its upper bounds (AttentionLimits), and one
// layer's tensors (AttentionArgs) with its paged keys and values (KvView).
#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/capability.h"
#include "fovea/dtype.h"

namespace fovea {

/// One inclusive range [first, last] of absolute positions that see each other (multimodal span).
struct Span {
  int32_t first = 0, last = 0;
};

/// One step: B sequences, with their query rows in one ragged tensor of Tq rows. In a mixed step, decode rows
/// come first. Arrays are in the memory of the stream's device and must stay valid until the plan made from
/// them is destroyed; on a GPU the host reads only their sizes and the scalar fields.
struct BatchMeta {
  /// Which forward_* will be called with the plan: kernels of the two phases divide a step into work tiles
  /// differently.
  Phase phase = Phase::prefill;
  /// Tq. On a CPU -1 = take it from q_offsets.
  int tokens = -1;

  std::span<const int32_t>
      q_offsets;                     ///< [B + 1], first 0, non-decreasing; sequence b owns rows [b], [b + 1)
  std::span<const int32_t> kv_lens;  ///< [B] keys of each sequence, its new tokens included; >= 0
  std::span<const int32_t>
      page_table;  ///< [B, page_table_stride]; entries past ceil(kv_len / page) are garbage
  int64_t page_table_stride = 0;
  /// Instead of page_table: the pages of sequence b are kv_indices[kv_indptr[b], kv_indptr[b + 1]), at least
  /// ceil(kv_len / page) of them. With page size 1 they are the slots of its tokens.
  /// Without kv_indices, on a GPU and with page size 1: rows [kv_indptr[b], ...) of one ragged tensor.
  std::span<const int32_t> kv_indptr;  ///< [B + 1], non-decreasing
  std::span<const int32_t> kv_indices;

  std::span<const Span> spans;              ///< all sequences' spans, sequence b's at [span_offsets[b], ...)
  std::span<const int32_t> span_offsets;    ///< [B + 1]
  std::span<const uint8_t> packed_mask;     ///< sequence b: bit i * n_k + j, from byte packed_offsets[b]
  std::span<const int64_t> packed_offsets;  ///< [B + 1] bytes
  std::span<const float> tree_bias;  ///< [tree_size, tree_size]: added for keys n_k - n_q + c, c < tree_size
  int tree_size = 0;

  /// All keys and values except this step's own (the last n_q of each sequence) are in every layer's cache
  /// before plan() is called, as in an engine that appends a layer's new rows just before its forward.
  /// Kernels may then read them while the work queued before the forward is still running.
  bool past_kv_ready = false;

  /// Pages in every layer's cache (rows, where keys are ragged); 0 = not given, and page ids are trusted.
  /// When given, plan() checks the ids of all pages that the step reads (four bytes per page). On a GPU a
  /// sequence with an invalid id is dropped like one with a wrong length (see plan()); a CPU refuses the
  /// step.
  int64_t num_pages = 0;

  int num_seqs() const { return static_cast<int>(kv_lens.size()); }
  /// Tq; reads q_offsets when `tokens` is not given.
  int num_tokens() const { return tokens >= 0 ? tokens : q_offsets.empty() ? 0 : q_offsets.back(); }
  /// The pages of sequence b in order; the sequence must have keys.
  const int32_t* pages(int b) const {
    return kv_indptr.empty() ? page_table.data() + b * page_table_stride
                             : kv_indices.data() + kv_indptr[static_cast<size_t>(b)];
  }
};

/// What kernels, and the splits of keys between them, are chosen for. A row's bits depend on the choice.
enum class TuneFor : uint8_t {
  limits,          ///< steps as large as the limits: other limits may select another kernel
  many_sequences,  ///< independent of the limits: a row has the same bits under all that admit its step
  few_sequences,   ///< likewise, with kernels that decode one or a few sequences faster than many
};

/// Upper bounds that hold for every step; workspace_bytes is a pure function of them.
struct AttentionLimits {
  int max_seqs = 0;
  int max_tokens = 0;         ///< query rows of one step
  int64_t max_kv_tokens = 0;  ///< sum of kv_lens of one step
  int max_kv_len = 0;         ///< longest sequence
  TuneFor tune_for = TuneFor::limits;
  /// Prefill may divide the keys of a sequence with few query rows between thread blocks, which sums them in
  /// another order than for many rows. Off: it never does (Invariance::prefill_chunks), and a chunk of few
  /// rows after many keys takes longer.
  bool split_prefill = true;
};

/// How the elements of a page are laid out; with x = x_of(dtype):
enum class KvForm : uint8_t {
  strided,   ///< D elements of K, and Dv of V, are contiguous
  x_packed,  ///< x elements of K are contiguous, and V has a stride between elements
};

/// One layer's paged keys and values; strides in elements. The element (page, kv head, slot, d) of K is
///   k[page * k_page_stride + head * k_head_stride + slot * k_slot_stride + d], or with x_packed
///   k[page * k_page_stride + head * k_head_stride + slot * k_slot_stride + d / x * k_chunk_stride + d % x]
/// and that of V
///   v[page * v_page_stride + head * v_head_stride + v_slot(slot) + d], or with x_packed d * v_dim_stride.
/// A stored element q represents q * k_scale * k_scales[page, head, slot] (no last factor if k_scales is
/// null). Ragged tensor: page_size 1, page ids are rows. MLA: v is k, with K's strides, scale and scales.
struct KvView {
  const void* k = nullptr;
  const void* v = nullptr;
  KvCacheDType dtype = KvCacheDType::float32;  ///< a stored type, not auto
  int page_size = 1;
  /// Pages in k and v, or rows of a ragged tensor; 0 = not given, which is slower for ragged rows.
  int64_t num_pages = 0;
  int64_t k_page_stride = 0, k_head_stride = 0, k_slot_stride = 0;
  int64_t v_page_stride = 0, v_head_stride = 0, v_slot_stride = 0;
  KvForm form = KvForm::strided;
  int64_t k_chunk_stride = 0, v_dim_stride = 0;  ///< x_packed only
  /// x_packed only: stride between runs of x slots of V (KvLayout::shuffle); 0 = slots have one stride.
  int64_t v_chunk_stride = 0;
  float k_scale = 1.0f, v_scale = 1.0f;
  const float* k_scales = nullptr;  ///< at page * scale_page_stride + head * scale_head_stride + slot * ...
  const float* v_scales = nullptr;
  int64_t scale_page_stride = 0, scale_head_stride = 0, scale_slot_stride = 0;

  /// Offset of a slot of V from the first element of its page and head, in elements.
  constexpr int64_t v_slot(int64_t slot) const {
    if (v_chunk_stride == 0) return slot * v_slot_stride;
    const int64_t x = x_of(dtype);
    return slot / x * v_chunk_stride + slot % x * v_slot_stride;
  }
};

/// One layer's tensors. Q [Tq, Hq, D] and O [Tq, Hq, Dv] in spec.dtype, the last dimension contiguous.
/// Strides in elements; head h of row t of Q begins at
///   t / q_block_rows * q_block_stride + t % q_block_rows * q_row_stride + h * q_head_stride
/// and O likewise. Blocks describe a padded batch: [B, H, S, D] transposed to [B, S, H, D] has blocks of S
/// rows.
struct AttentionArgs {
  static constexpr int64_t kDense =
      -1;  ///< a head stride of D, or of Dv for O: the heads of a row are contiguous

  const void* q = nullptr;
  int64_t q_row_stride = 0;
  int64_t q_head_stride = kDense;
  int q_block_rows = 0;  ///< 0 = all rows are one block
  int64_t q_block_stride = 0;
  void* out = nullptr;  ///< its elements must not overlap
  int64_t out_row_stride = 0;
  int64_t out_head_stride = kDense;
  int out_block_rows = 0;
  int64_t out_block_stride = 0;
  float* lse = nullptr;  ///< [Tq, Hq] natural log, no sink unless lse_includes_sink; null = not written
  KvView kv;
  const float* sinks = nullptr;         ///< [Hq]
  const float* alibi_slopes = nullptr;  ///< [Hq]
  /// Sparse attention: [Tq, sparse_topk] positions of the keys that each row sees in its sequence, none
  /// twice. The mask doesn't apply. Entries outside of the sequence's keys, such as -1, are none. A row's
  /// sums run in the order of its list.
  const int32_t* chosen = nullptr;
  int64_t chosen_row_stride = 0;

  /// Offset of a head of a row, in elements; `dim` is D for Q, Dv for O.
  int64_t q_offset(int64_t row, int64_t head, int dim) const {
    return row_offset(row, q_row_stride, q_block_rows, q_block_stride) +
           head * (q_head_stride == kDense ? dim : q_head_stride);
  }
  int64_t out_offset(int64_t row, int64_t head, int dim) const {
    return row_offset(row, out_row_stride, out_block_rows, out_block_stride) +
           head * (out_head_stride == kDense ? dim : out_head_stride);
  }

 private:
  static int64_t row_offset(int64_t row, int64_t stride, int block_rows, int64_t block_stride) {
    return block_rows == 0 ? row * stride : row / block_rows * block_stride + row % block_rows * stride;
  }
};

/// Caller-owned scratch in device memory, 64-byte aligned.
using Workspace = std::span<std::byte>;

}  // namespace fovea
