#pragma once
// Which Hopper kernel serves a problem, or why none does. Host code, without CUDA. The planner and the launch
// use the same KernelInfo as for the sm80 family, because both families share a schedule.
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::sm90 {

struct Problem {
  QueryType q = QueryType::bf16;
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;
  MaskSpec mask;
  bool softcap = false, alibi = false;
  bool per_head_scales = false;  ///< an fp8 cache has scales per head, not one for K and one for V
  bool negative_scale = false;   ///< the largest q.k does not give the largest score
};

/// The kernel does not depend on the sequences, the page size or the layout. Errors, one line: which part of
/// the problem the kernels of this kind do not support, and what they do support.
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::sm90
