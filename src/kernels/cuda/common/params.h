#pragma once
// Parameters of the attention kernels: PODs by value, every pointer in device memory.
#include <cstdint>

#include "base/host_device.h"

namespace fovea::cuda {

/// Division of 0 <= n < 2^31 by a divisor known at launch: n / d = (((n * multiplier) >> 32) + n) >> shift.
struct FastDivisor {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  FastDivisor() = default;
  /// 1 <= d < 2^31. With s = ceil(log2 d) and m = ceil(2^(32 + s) / d) - 2^32 the quotient is
  /// (((n * m) >> 32) + n) >> s, exact for every n < 2^31 (the sum then fits 32 bits).
  explicit FastDivisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d)
      ++shift;
    multiplier = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }
#ifdef __CUDACC__
  __device__ int quotient(int n) const {
    return static_cast<int>((__umulhi(static_cast<uint32_t>(n), multiplier) + static_cast<uint32_t>(n)) >>
                            shift);
  }
#endif
};

/// Layout of the rows of Q or O, in elements. Row r is in block r / block, and block n lies n * block_gap
/// elements further on than its rows' stride alone gives. (Blocks are the sequences of a padded batch with a
/// batch stride.)
struct RowLayout {
  int64_t row_stride = 0, block_gap = 0;
  int head_stride = 0;
  FastDivisor block;  ///< rows of a block; not used when block_gap is 0

#ifdef __CUDACC__
  /// Offset of a head of a row.
  __device__ int64_t offset(int row, int head) const {
    int64_t at = row * row_stride + static_cast<int64_t>(head) * head_stride;
    if (block_gap != 0) at += block.quotient(row) * block_gap;
    return at;
  }
#endif
};

/// Element type of the KV cache: the query's type (`same`: 16 bits unless another type is named), an 8-bit
/// type that is converted to it in registers, or another type, which only the portable kernels read.
enum class KvType : uint8_t { same, e4m3, e5m2, int8, f16, bf16, f32 };
FOVEA_HOST_DEVICE constexpr int kv_bytes(KvType type) {
  if (type == KvType::f32) return 4;
  return type == KvType::e4m3 || type == KvType::e5m2 || type == KvType::int8 ? 1 : 2;
}

/// Layout of keys and values; strides in bytes. Key j of a sequence whose pages begin at index b of `pages`
/// is the D contiguous elements (except in x-packed pages) from
///   k + pages[b + j / page_size] * k_page_stride + j % page_size * k_slot_stride + head * k_head_stride
/// on. With pages == nullptr (ragged) the page id is b + j and page_size is 1.
struct KvParams {
  KvType type = KvType::same;
  const char* k = nullptr;
  const char* v = nullptr;
  int64_t k_page_stride = 0, k_slot_stride = 0, k_head_stride = 0;
  int64_t v_page_stride = 0, v_slot_stride = 0, v_head_stride = 0;
  /// Not 0: the pages are KvForm::x_packed, read by portable and sm90 kernels. k_chunk_stride is the distance
  /// between 16-byte chunks of a key, v_dim_stride that between elements of a value.
  int64_t k_chunk_stride = 0, v_dim_stride = 0;
  int64_t v_chunk_stride = 0;  ///< x_packed: between 16-byte chunks of V's slots; 0 = slots have one stride
  FastDivisor page_size;
  const int32_t* pages = nullptr;
  int64_t rows = 0;                 ///< with pages == nullptr: rows of k and v; 0 = unknown
  float v_scale = 1.0f;             ///< the scale of K is part of AttentionParams::scale
  const float* k_scales = nullptr;  ///< [page, slot, head] by the strides below, in elements; or null
  const float* v_scales = nullptr;
  /// A power of two, set by launch() when there are v_scales: probabilities are multiplied by a value's scale
  /// and by v_gain before they are rounded to fp16, and O is divided by v_gain. scale * v_gain is then about
  /// as large as the values; the scale alone may be too small for fp16.
  float v_gain = 1.0f;
  int64_t scale_page_stride = 0, scale_slot_stride = 0, scale_head_stride = 0;
};

/// WorkItem::n_k of a sequence whose keys cannot be read because its length or a page id is invalid. The item
/// has no keys.
inline constexpr int32_t kLostKeys = -1;

/// A work tile, for every KV head: packed query rows of one sequence, and one split of the keys that they
/// read. Packed row r of a sequence is query row r / G under query head kv_head * G + r % G.
struct WorkItem {
  int32_t seq;         ///< index of the sequence, for the arrays of MaskParams
  int32_t row_first;   ///< first packed row of the tile; its end is that of the policy's rows or the sequence
  int32_t key_first;   ///< absolute; a multiple of the policy's keys per tile
  int32_t key_last;    ///< past the last key, at most n_k
  int64_t pages;       ///< where the sequence's pages begin in KvParams::pages; ragged: its first row
  int32_t q_first;     ///< row of Q and O that is query row 0 of the sequence
  int32_t n_q, n_k;    ///< the sequence's query rows and keys; n_k kLostKeys: the kernel sets its rows to NaN
  int32_t key_low;     ///< keys below are seen by no row and not read, except sink tokens
  int32_t split;       ///< index of this split of the row tile's keys, below num_splits
  int32_t num_splits;  ///< 1 = the item writes O directly
  int32_t partial_first;  ///< index of the row tile's first partial result
  /// Below key_low, sink tokens [sink_first, MaskParams::sink_tokens) are seen. Chunked attention hides those
  /// before, or all of them (INT32_MAX).
  int32_t sink_first;
  int32_t unused[2];
};
static_assert(sizeof(WorkItem) == 64);

struct MaskParams {
  bool causal = true;
  int window_left = -1, window_right = -1;  ///< -1 = unbounded
  int chunk = 0, sink_tokens = 0;           ///< 0 = off
  float softcap = 0.0f;                     ///< 0 = off
  const int32_t* spans = nullptr;  ///< pairs first, last, inclusive, sequence b's at [span_offsets[b], ...)
  const int32_t* span_offsets = nullptr;
  const uint8_t* packed = nullptr;
  const int64_t* packed_offsets = nullptr;
  const float* tree_bias = nullptr;  ///< [tree_size, tree_size]
  int tree_size = 0;
  const float* alibi_slopes = nullptr;  ///< [Hq]
};

/// Softmax state of a row over some keys: the largest score in log2 units, and the sum of 2^(score -
/// maximum).
struct alignas(8) PartialState {
  float maximum, sum;
};

struct AttentionParams {
  const void* q = nullptr;  ///< [Tq, Hq, D]
  void* out = nullptr;      ///< [Tq, Hq, Dv]
  float* lse = nullptr;     ///< [Tq, Hq] natural log, or null
  RowLayout q_rows, out_rows;
  int num_kv_heads = 0;
  FastDivisor group;             ///< G = Hq / Hkv
  FastDivisor kv_heads;          ///< Hkv, for flattened (item, head) indices
  int head_dim = 0;              ///< D, at most the policy's
  int v_head_dim = 0;            ///< Dv, at most the policy's
  float scale = 0.0f;            ///< of q.k, K's scale included; > 0
  const float* sinks = nullptr;  ///< [Hq] or null
  bool lse_includes_sink = false;
  KvParams kv;
  MaskParams mask;

  const WorkItem* items = nullptr;
  const int32_t* num_items = nullptr;  ///< on the device
  /// Partial results of rows whose keys are split: unnormalised O [partial, Hkv, partial_rows,
  /// partial_columns] and its state [partial, Hkv, partial_rows]. Null when no item of the step can have more
  /// than one split.
  float* partial_out = nullptr;
  PartialState* partial_state = nullptr;
  /// Rows of a partial result: ScheduleLimits::partial_rows, or 0 for KernelInfo::rows. launch() sets
  /// partial_columns to KernelInfo::v_head_dim.
  int partial_rows = 0, partial_columns = 0;
  /// [partial, Hkv] counters of the partial results that have been written, 0 before and after every launch.
  /// With them a kernel with KernelInfo::fused_combine combines them itself; null: the combine kernel does.
  uint32_t* arrivals = nullptr;
  /// Dynamic work counter: the number of work tiles that CTAs have fetched, 0 before and after every launch.
  /// The combine kernel resets it after decode kernels, so launch() passes null where none follows; prefill
  /// kernels of sm90 reset it themselves. Null: static scheduling, by stride.
  int32_t* queue = nullptr;
  /// Pipeline depth in shared memory: stages of a decode kernel, or slots of a prefill kernel and how many of
  /// them are loaded ahead. Smaller where a device has less shared memory than the kernel is sized for; they
  /// change no bit. launch() sets them from KernelInfo.
  int stages = 0, ahead = 0;
  /// sm90 decode: items, num_items and kv.pages were written before the preceding kernel passed its grid
  /// dependency wait, so they may be read while that kernel still runs.
  bool planned = false;
  /// With `planned`: so were all keys except the last n_q of each sequence.
  bool past_kv_ready = false;
};

}  // namespace fovea::cuda
