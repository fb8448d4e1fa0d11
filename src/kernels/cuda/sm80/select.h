#pragma once
// Selects the kernel of this family for a problem and returns what the planner needs to know about it. Host
// code, without CUDA.
#include <string>

#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm80 {

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< multiples of 8; of 16 with 8-bit keys
  /// Whether anything other than the causal limit and the end of the sequence decides what a row sees or
  /// changes a score: a window, chunk, soft cap, ALiBi, span, packed or tree mask. Learned sinks do not
  /// count.
  bool general = false;
  /// Decode of few sequences at a time: selects, where there is one, a kernel that spreads each sequence over
  /// more CTAs and is slower for many. Its sums have another order, so this must not depend on the contents
  /// of the batch.
  bool few_sequences = false;
  /// Shared memory of a CTA of the device; by default more than any has.
  int shared_bytes = kAnySharedBytes;
};

/// Takes the largest ring that fits Problem::shared_bytes and, where no ring fits, a kernel with fewer query
/// rows per CTA; neither changes a bit, because tiles and splits are the same. Where nothing fits, returns
/// the kernel that needs least: the caller checks KernelInfo::shared_bytes. Errors: a type that only the
/// portable kernels take; a head size beyond 512 (256 with 8-bit keys), or not a multiple of 8 (16).
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm80
