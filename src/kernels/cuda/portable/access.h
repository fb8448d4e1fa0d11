#pragma once
// How a launch may read and write, decided once on the host from types, pointers and strides.
#include "kernels/cuda/portable/select.h"

namespace fovea::cuda::portable {

/// How rows come into shared memory.
enum class Load : uint8_t {
  copy,    ///< 16 bytes at a time, past the registers: the type is that of the products
  wide,    ///< likewise a unit (P::kUnit elements) at a time, and converted when it has come
  scalar,  ///< element by element
};

struct Access {
  QueryType q = QueryType::bf16;  ///< of Q and O
  KvType kv = KvType::bf16;       ///< not `same`
  Load load_q = Load::scalar, load_k = Load::scalar, load_v = Load::scalar;
  bool x_packed = false;  ///< neighbours of a page are keys rather than elements
  bool wide_out = false;  ///< O is written four elements at a time
};

/// Of the kernel that `kernel` names.
Access access_of(const KernelInfo& kernel, const AttentionParams& params);

}  // namespace fovea::cuda::portable
