#pragma once
// Selects the kernel of this family for a problem and returns what the planner needs to know about it. Host
// code, without CUDA.
#include "fovea/result_fwd.h"
#include "kernels/cuda/common/kernel_info.h"

namespace fovea::cuda::portable {

struct Problem {
  QueryType q = QueryType::bf16;  ///< of Q and O
  KvType kv = KvType::same;
  int head_dim = 0, v_head_dim = 0;  ///< 1 to 512
};

/// The type of keys and values, with `same` resolved.
KvType stored_type(QueryType q, KvType kv);
/// Whether the products are computed in fp32 on the CUDA cores: for fp32 queries, and for keys and values of
/// another 16- or 32-bit type, whose range may exceed that of the query's type.
bool computes_in_float(QueryType q, KvType kv);

/// `general` of the result is true: every kernel implements every mask. extend_small selects extend. Errors:
/// a head size out of range.
Result<KernelInfo> select(const Problem& problem, KernelKind kind);

}  // namespace fovea::cuda::portable
