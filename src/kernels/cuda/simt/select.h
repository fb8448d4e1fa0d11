#pragma once
// Which CUDA-core decode kernel serves a problem. Host code, without CUDA. What a planner and a launch must
// know of it is what they know of a decode kernel of the sm80 family, with whose schedule these run.
#include "fovea/attention.h"
#include "fovea/result.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::simt {

/// Query heads of a KV head below which FLASHINFER takes these kernels: each row is a multiply-add for each
/// element of K and V, where tensor cores take 16 rows at the price of one. On an H200 these are the faster
/// ones of single heads with D = 64, 256 or 512 and fp8 of D = 64 or 256, within 4 % with bf16 of D = 128,
/// and the slower ones of two heads and more.
inline constexpr int kTensorCoreGroup = 4;

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< multiples of 8
  /// Packed rows of a sequence: query heads of a KV head times query rows. Any number is served, 4 at a time;
  /// it changes no bit of a row.
  int rows = 1;
  MaskSpec mask;
  int shared_bytes = kAnySharedBytes;  ///< of a block on the device
};

/// KernelInfo::general is true: one kernel has all masks and scores that this family serves (causal, windows,
/// chunks, sink tokens, soft cap, ALiBi). Errors: head sizes beyond 512 or not multiples of 8; spans, packed
/// masks and trees.
Result<KernelInfo> select(const Problem& problem);

}  // namespace fovea::cuda::simt
