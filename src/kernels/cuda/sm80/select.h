#pragma once
// Which kernel of this family serves a problem, and what a planner must know of it. Host code, without CUDA.
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/sm80/params.h"

namespace fovea::cuda::sm80 {

enum class QueryType : uint8_t { f16, bf16, f32 };  ///< f32: of the portable kernels
enum class KernelKind : uint8_t { decode, extend, extend_small };

/// More than a block of any device may have: what is chosen is then what the kernels are sized for, Hopper's.
inline constexpr int kAnySharedBytes = 1 << 30;

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
  /// Of a block on the device; by default more than any has.
  int shared_bytes = kAnySharedBytes;
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
  int threads = 0;
  int shared_bytes = 0;       ///< of a block, dynamic and static ones
  int blocks_per_sm = 0;      ///< that a launch counts on
  int stages = 0, ahead = 0;  ///< AttentionParams'; 0 of kernels whose rings have one size

  bool operator==(const KernelInfo&) const = default;
};

/// The largest rings that Problem::shared_bytes has room for, and where it has none for a kernel at all one
/// of fewer query rows a block; neither changes a bit, tiles and splits are the same. Where nothing fits,
/// what needs least: whether it fits is for the caller to see. Errors: a type that only the portable kernels
/// have; a head size beyond 512 (256 with 8-bit keys), or not a multiple of 8 (16).
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm80
