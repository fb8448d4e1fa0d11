#pragma once
// Which kernel of this family serves a problem, and what a planner must know of it. Host code, without CUDA.
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm80 {

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

/// The largest rings that Problem::shared_bytes has room for, and where it has none for a kernel at all one
/// of fewer query rows a block; neither changes a bit, tiles and splits are the same. Where nothing fits,
/// what needs least: whether it fits is for the caller to see. Errors: a type that only the portable kernels
/// have; a head size beyond 512 (256 with 8-bit keys), or not a multiple of 8 (16).
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm80
