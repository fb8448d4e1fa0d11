#pragma once
// Which kernel of this family serves a problem, and what a planner must know of it. Host code, without CUDA.
#include "fovea/result.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::portable {

struct Problem {
  QueryType q = QueryType::bf16;  ///< of Q and O
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< 1 to 512
};

/// The type of keys and values, `same` resolved.
KvType stored_type(QueryType q, KvType kv);
/// Whether the products are taken in fp32 on the CUDA cores: fp32 queries, or keys and values of another type
/// of 16 or 32 bits, which might not fit the query's.
bool computes_in_float(QueryType q, KvType kv);

/// `general` of the result is true: every kernel knows every mask. extend_small gives extend. Errors: a head
/// size out of range.
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::portable
