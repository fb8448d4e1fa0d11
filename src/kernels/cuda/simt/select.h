#pragma once
// Selects the CUDA-core decode kernel for a problem. Host code, without CUDA. The planner and the launch
// treat it like a decode kernel of the sm80 family, whose schedule it uses.
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::simt {

/// FLASHINFER uses these kernels for fewer query heads per KV head than this: each row costs a multiply-add
/// for each element of K and V, where tensor cores compute 16 rows at the cost of one. On an H200 these
/// kernels are faster for one query head per KV head with D = 64, 256 or 512 and with fp8 of D = 64 or 256,
/// within 4 % with bf16 of D = 128, and slower for two and more.
inline constexpr int kTensorCoreGroup = 4;

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< multiples of 8
  /// Packed rows of a sequence: query heads per KV head times query rows. Any number is served, at most 4 per
  /// work item; it changes no bit of a row.
  int rows = 1;
  MaskSpec mask;
  int shared_bytes = kAnySharedBytes;  ///< of a CTA of the device
};

/// KernelInfo::general is true: one kernel implements all masks and scores of this family (causal, windows,
/// chunks, sink tokens, soft cap, ALiBi). Errors: head sizes beyond 512 or not multiples of 8; spans, packed
/// masks and trees.
Result<KernelInfo> select(const Problem& problem);

}  // namespace fovea::cuda::simt
