#pragma once
// Which kernel of this family serves a problem, and what a planner must know of it. Host code, without CUDA.
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/sm80/params.h"

namespace fovea::cuda::sm80 {

enum class QueryType : uint8_t { f16, bf16, f32 };  ///< f32: of the portable kernels
enum class KernelKind : uint8_t { decode, extend, extend_small };

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< multiples of 8; of 16 with 8-bit keys
  /// Whether anything but the causal limit and the sequence's end decides what a row sees, or changes a
  /// score: a window, chunk, soft cap, ALiBi, span, packed or tree mask. Learned sinks don't.
  bool general = false;
  /// Decode in few sequences at a time: where there is one, a kernel that spreads each over more of the
  /// device and is slower for many. Its sums have another order, so this must not depend on who is in the
  /// batch.
  bool few_sequences = false;
};

/// A compiled kernel.
struct KernelInfo {
  KernelKind kind = KernelKind::decode;
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;  ///< extend kernels of 8-bit keys serve all of them and say e4m3
  int head_dim = 0, v_head_dim = 0;
  bool general = false;
  int rows = 0;         ///< packed rows of a WorkItem
  int tile_keys = 0;    ///< key_first's divisor
  int split_keys = 0;   ///< keys of a split, at absolute multiples
  bool merges = false;  ///< parts itself, given AttentionParams::arrivals
  int threads = 0, shared_bytes = 0, blocks_per_sm = 0;

  bool operator==(const KernelInfo&) const = default;
};

/// Errors: a type that only the portable kernels have; a head size beyond 512 (256 with 8-bit keys), or not a
/// multiple of 8 (16).
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm80
