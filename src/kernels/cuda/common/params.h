#pragma once
// What the kernels of this family are given: PODs by value, every pointer in device memory.
#include <cstdint>

#include "base/host_device.h"

namespace fovea::cuda {

/// Division of 0 <= n < 2^31 by a constant of run time: n / d = (n * multiplier) >> 32 >> shift.
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

/// Where the rows of Q or O lie, in elements. Row r is in block r / block; each block begins block_gap
/// elements further on than the rows before it would have it. (Blocks are sequences of a padded batch whose
/// rows have a stride of their own.)
struct RowLayout {
  int64_t row_stride = 0, block_gap = 0;
  int head_stride = 0;
  FastDivisor block;  ///< rows of a block; not looked at with a gap of 0

#ifdef __CUDACC__
  /// Where a head of a row begins.
  __device__ int64_t offset(int row, int head) const {
    int64_t at = row * row_stride + static_cast<int64_t>(head) * head_stride;
    if (block_gap != 0) at += block.quotient(row) * block_gap;
    return at;
  }
#endif
};

/// Elements of the KV cache: the query's type (of 16 bits, where it is not said), 8 bits that become it in
/// registers, or a type of their own, which only the portable kernels read.
enum class KvType : uint8_t { same, e4m3, e5m2, int8, f16, bf16, f32 };
FOVEA_HOST_DEVICE constexpr int kv_bytes(KvType type) {
  if (type == KvType::f32) return 4;
  return type == KvType::e4m3 || type == KvType::e5m2 || type == KvType::int8 ? 1 : 2;
}

/// Where keys and values lie; strides in bytes. Key j of a sequence whose pages begin at index b of `pages`
/// is
///   k + pages[b + j / page_size] * k_page_stride + j % page_size * k_slot_stride + head * k_head_stride
/// and D elements from there on (but for x-packed pages). With pages == nullptr (ragged) the page id is b + j
/// and page_size is 1.
struct KvParams {
  KvType type = KvType::same;
  const char* k = nullptr;
  const char* v = nullptr;
  int64_t k_page_stride = 0, k_slot_stride = 0, k_head_stride = 0;
  int64_t v_page_stride = 0, v_slot_stride = 0, v_head_stride = 0;
  /// Not 0: KvForm::x_packed, which only the portable kernels read. Runs of 16 bytes of a key lie at
  /// k_chunk_stride, elements of a value at v_dim_stride from each other.
  int64_t k_chunk_stride = 0, v_dim_stride = 0;
  int64_t v_chunk_stride = 0;  ///< then, between runs of 16 bytes' slots of V; 0 = slots have one stride
  FastDivisor page_size;
  const int32_t* pages = nullptr;
  int64_t rows = 0;                 ///< with pages == nullptr: of k and v; 0 = not known
  float v_scale = 1.0f;             ///< K's is part of AttentionParams::scale
  const float* k_scales = nullptr;  ///< [page, slot, head] by the strides below, in elements; or null
  const float* v_scales = nullptr;
  /// A power of two that launch() sets with v_scales: probabilities are multiplied by a value's scale and by
  /// this before they are rounded to fp16, and O is divided by it. It brings the largest element of the type
  /// to about 1, so that their product is of the size of the values themselves, not of a scale that fp16 has
  /// no room for.
  float v_gain = 1.0f;
  int64_t scale_page_stride = 0, scale_slot_stride = 0, scale_head_stride = 0;
};

/// WorkItem::n_k of a sequence whose keys cannot be read: a length or a page id that is wrong. The item has
/// no keys.
inline constexpr int32_t kLostKeys = -1;

/// A tile of packed query rows of one sequence and the keys that it meets there. Packed row r of a sequence
/// is query row r / G under query head kv_head * G + r % G.
struct WorkItem {
  int32_t seq;            ///< index of the sequence, for the arrays of MaskParams
  int32_t row_first;      ///< first packed row of the tile; it ends with the policy's rows or the sequence
  int32_t key_first;      ///< absolute; a multiple of the policy's keys of a tile
  int32_t key_last;       ///< past the last key, at most n_k
  int64_t pages;          ///< where the sequence's pages begin in KvParams::pages; ragged: its first row
  int32_t q_first;        ///< row of Q and O that is query row 0 of the sequence
  int32_t n_q, n_k;       ///< the sequence's query rows and keys; n_k kLostKeys: its rows are to be NaN
  int32_t key_low;        ///< keys below are seen by no row and never read, but for sink tokens
  int32_t split;          ///< of num_splits: which part of the row tile's keys this is
  int32_t num_splits;     ///< 1 = the item writes O itself
  int32_t partial_first;  ///< of the row tile's parts
  /// Of MaskParams::sink_tokens those from here on are seen below key_low; a chunk hides the others, or all
  /// (INT32_MAX).
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

/// Of a row over some keys: the largest score in log2 units, and the sum of 2^(score - maximum).
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
  /// Parts of rows whose keys are split: O unnormalised [part, Hkv, partial_rows, partial_columns] and its
  /// state [part, Hkv, partial_rows]. Null when no item of the step can have more than one split.
  float* partial_out = nullptr;
  PartialState* partial_state = nullptr;
  /// Rows of a part: ScheduleLimits' or, with 0, KernelInfo's; launch() sets the columns, KernelInfo's
  /// v_head_dim.
  int partial_rows = 0, partial_columns = 0;
  /// [part, Hkv] counters of the parts that have been written, 0 before and after every launch. With them
  /// the kernel merges parts itself where it can; null: a second kernel does.
  uint32_t* arrivals = nullptr;
  /// How many units blocks have come for, 0 before and after every launch (of sm80's decode kernels the merge
  /// kernel sees to it, so launch() leaves it out where none follows); null: every block takes its share.
  int32_t* queue = nullptr;
  /// Of the rings in shared memory: stages of a decode kernel or slots of a prefill one, and how many slots
  /// that asks for ahead. Fewer where a device has less shared memory than the kernel is sized for; they
  /// change no bit. launch() sets them, KernelInfo's.
  int stages = 0, ahead = 0;
  /// sm90 decode: items, num_items and kv.pages were written before the kernel in front of this launch began
  /// its own work (its wait for those in front of it), so that they may be read while it still runs.
  bool planned = false;
  /// With `planned`: so were all keys but the last n_q of each sequence.
  bool past_kv_ready = false;
};

}  // namespace fovea::cuda
