#pragma once
// KV cache groups: layers that share one kind, shape and page size of cache, and what they cost in bytes.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// What a layer caches for the tokens of a sequence.
enum class KvKind : uint8_t {
  full,    ///< K and V of every token
  window,  ///< K and V of the last `window` tokens
  latent,  ///< MLA: one record per token, shared by all heads
  cross,   ///< K and V of an encoder's output, in layers that have no other attention
  state,   ///< linear attention, state space: a fixed number of bytes per sequence
};

/// "full", "window", ...
std::string_view to_string(KvKind kind);

/// Layers with one kind and shape of cache. Byte counts that overflow 64 bits are INT64_MAX.
struct KvGroup {
  KvKind kind = KvKind::full;
  std::vector<int> layers;  ///< the model's layers, ascending
  int64_t state_bytes = 0;  ///< state only: of one sequence in one layer; the fields below are unused
  int window = 0;           ///< window only: keys that a query sees, its own included
  int num_kv_heads = 0;     ///< latent: 1
  int head_dim = 0;         ///< of K; latent: elements of a record (DeepSeek-V3: 512 latent, 64 RoPE)
  int v_head_dim = 0;       ///< of V; latent: the first elements of the record, which are also V (512)
  int page_size = 16;       ///< tokens
  KvCacheDType dtype = KvCacheDType::float32;  ///< one that can be stored (size_of > 0)
  KvLayout layout = KvLayout::hnd;             ///< auto = hnd; latent: records are contiguous, nhd or hnd
  /// [layers.size()], fp8 dtypes only; empty = all 1. Latent: K only.
  std::vector<float> k_scales, v_scales;
  /// Latent: the layers whose pages also hold index keys of sparse attention, one a token, of `index_dim`
  /// elements of `index_dtype`: a float, or fp8_e4m3 with an fp32 scale for each key. Ascending.
  std::vector<int> index_layers;
  int index_dim = 0;
  KvCacheDType index_dtype = KvCacheDType::float32;

  /// Whether the group's memory is pages of tokens; a state's is one block per sequence.
  bool paged() const { return kind != KvKind::state; }

  /// Bytes of one token in one layer; 0 for a state. With s = size_of(dtype), and scale = 4 (one fp32
  /// per token and head) if has_token_scales(dtype), else 0:
  ///   full, window, cross: num_kv_heads * (head_dim * s + v_head_dim * s + 2 * scale)
  ///   latent:              head_dim * s + scale; fp8_ds_mla: ds_mla_bytes() (656 for 512 + 64)
  int64_t layer_bytes_per_token() const;
  /// Bytes of one token's index key in one of index_layers: index_dim * size, and 4 of a scale (132 for 128
  /// elements of fp8_e4m3).
  int64_t index_bytes_per_token() const;
  /// Bytes of one token, and of one page, in all layers of the group.
  int64_t bytes_per_token() const;
  int64_t bytes_per_page() const;
  /// Bytes of one sequence of any length in all layers; 0 for a paged group.
  int64_t bytes_per_sequence() const;
};

/// Sums over `groups`: bytes of one token in each group, and of one page of each.
int64_t bytes_per_token(std::span<const KvGroup> groups);
int64_t bytes_per_page(std::span<const KvGroup> groups);

/// Checks that each layer from 0 to the last is in exactly one group and that its fields fit its kind: sizes
/// at least 1, a dtype that can be stored, a layout that supports the sizes, scales that are one positive
/// number per layer. Errors name the group, what was given and what is allowed.
Status check_groups(std::span<const KvGroup> groups);

}  // namespace fovea
