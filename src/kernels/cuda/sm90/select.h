#pragma once
// Which Hopper kernel serves a problem, or why none does. Host code, without CUDA. What a planner and a
// launch must know of a kernel is what they know of those of the sm80 family, with whose schedule these run.
#include "fovea/attention.h"
#include "fovea/result.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm90 {

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;
  MaskSpec mask;
  bool softcap = false, alibi = false;
  bool per_head_scales = false;  ///< of an fp8 cache, instead of one for K and one for V
  bool negative_scale = false;   ///< the largest product is not the largest score
};

/// The same kernel whatever the sequences, the page size and the layout are. Errors, one line: what of the
/// problem the kernels of this kind lack, and what they take.
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm90
