#pragma once
// Parameters of the CPU attention kernels: plain structs, shapes in the comments, strides in elements.
#include <cstdint>

#include "fovea/dtype.h"
#include "kernels/cpu/attn_policy.h"

namespace fovea::attn {

/// The keys that one query row sees: [sink_first, sink_last) and [first, last), ascending and disjoint.
struct RowKeys {
  int32_t sink_first = 0, sink_last = 0;
  int32_t first = 0, last = 0;
};

/// One sequence of a step.
struct Sequence {
  int32_t n_q = 0, n_k = 0;
  int64_t first_row = 0;             // in Q, O and Params::row_keys
  const int32_t* pages = nullptr;    // [ceil(n_k / page_size)]
  const uint8_t* packed = nullptr;   // bit i * n_k + j; null = every key of RowKeys is seen
  const float* tree_bias = nullptr;  // [tree_size, tree_size], added for keys n_k - n_q + c; null = none
  int32_t tree_size = 0;
  int32_t n_listed = 0;  // sparse: keys of the sequence, of which its one row lists n_k
};

/// A work item: packed rows [row, row + rows) of one KV group: packed row r is query row r / group of the
/// sequence and head kv_head * group + r % group. Keys: tiles [sink_tile, sink_tile_end) and [tile,
/// tile_end), ascending.
struct Item {
  int32_t seq = 0, kv_head = 0;
  int32_t row = 0, rows = 0;  // rows <= kBlockRows
  int32_t sink_tile = 0, sink_tile_end = 0;
  int32_t tile = 0, tile_end = 0;
  int64_t partial = -1;  // first record of the item's first split; -1 = the item has all splits
  int32_t first_split = 0, splits = 0;  // with partial >= 0: splits [first_split, first_split + splits)
};

/// Combines records [partial, partial + splits x rows) of the rows and writes O and LSE.
struct CombineItem {
  int32_t seq = 0, kv_head = 0;
  int32_t row = 0, rows = 0;
  int64_t partial = 0;
  int32_t splits = 0;
};

/// Pages of one layer: element (page, head, slot, d) of K at k[page * k_page + head * k_head + slot * k_slot
/// + d]; with x_packed at [... + d / x * k_chunk + d % x] for K and [... + d * v_dim] for V, whose slots lie
/// at slot / x * v_chunk + slot % x * v_slot where v_chunk is not 0.
struct Pages {
  const void* k = nullptr;
  const void* v = nullptr;
  KvCacheDType dtype = KvCacheDType::float32;
  int32_t page_size = 1;
  int64_t k_page = 0, k_head = 0, k_slot = 0;
  int64_t v_page = 0, v_head = 0, v_slot = 0;
  bool x_packed = false;
  int64_t k_chunk = 0, v_dim = 0, v_chunk = 0;
  const float* k_scales = nullptr;  // of each (page, head, slot), or null for both
  const float* v_scales = nullptr;
  int64_t scale_page = 0, scale_head = 0, scale_slot = 0;
};

/// Offsets of the arrays in a scratch slot, in floats; all are multiples of kPadFloats (one cache line).
struct ScratchLayout {
  int64_t dp = 0, dvp = 0;  // head sizes padded to kPadFloats and kPadPanel
  int64_t q = 0;            // [kBlockRows, dp]
  int64_t scores = 0;       // [kBlockRows, kTileKeys]
  int64_t state[2] = {};    // m [kBlockRows], l [kBlockRows], O [kBlockRows, dvp]
  int64_t lanes = 0;        // [kBlockRows, kPadFloats] lane sums of l
  int64_t alpha = 0;        // [kBlockRows]
  int64_t k = 0;            // [kTileKeys, dp] widened keys
  int64_t v = 0;            // [dvp / panel, kTileKeys, panel] widened values
  int64_t zeros = 0;        // [max(dp, dvp)] read in place of keys that no row sees
  int64_t size = 0;
};

/// Strides of the rows and heads of Q or O in elements, as in AttentionArgs.
struct Rows {
  int64_t row = 0, head = 0;
  int64_t block_rows = 0, block = 0;  // 0 = all rows are one block
};

struct Params {
  ScratchLayout layout;
  int32_t num_heads = 0, num_kv_heads = 0, group = 1;  // group = num_heads / num_kv_heads
  int32_t d = 0, dv = 0;                               // multiples of 8
  bool latent = false;                                 // MLA: V is the first dv elements of each key
  float scale = 1.0f;    // of q . k as loaded: the spec's scale x the layer's K scale x the load factor
  float v_scale = 1.0f;  // of V as loaded
  float softcap = 0.0f;
  DType dtype = DType::f32;  // Q and O
  const void* q = nullptr;   // [Tq, num_heads, d]
  Rows q_rows;
  void* out = nullptr;  // [Tq, num_heads, dv]
  Rows out_rows;
  float* lse = nullptr;  // [Tq, num_heads] or null
  bool lse_includes_sink = false;
  const float* sinks = nullptr;         // [num_heads] or null
  const float* alibi_slopes = nullptr;  // [num_heads] or null
  // Sparse: key j of a row is the one at position chosen[row * chosen_row + j]; none outside the sequence.
  // Each row is a Sequence of its own. Null = all keys.
  const int32_t* chosen = nullptr;
  int64_t chosen_row = 0;
  Pages kv;
  const Sequence* seqs = nullptr;
  const RowKeys* row_keys = nullptr;  // [Tq]
  float* partials = nullptr;          // records of layout.dvp + kPadFloats floats
};

/// The kernels of one instruction set.
struct Kernels {
  void (*run_item)(const Params&, const Item&, float* scratch);
  void (*run_combine)(const Params&, const CombineItem&, float* scratch);
};

extern const Kernels kGenericKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

/// The kernels for current_isa().
const Kernels& current_kernels();

/// `latent`: no values, which are part of the keys.
ScratchLayout scratch_layout(int d, int dv, bool latent = false);

/// Floats of one partial result: m, l, padding, O [dvp].
int64_t record_floats(const ScratchLayout& layout);

}  // namespace fovea::attn
