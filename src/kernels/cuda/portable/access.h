#pragma once
// How a launch reads and writes memory: decided on the host from types, pointers and strides.
#include "kernels/cuda/portable/select.h"

namespace fovea::cuda::portable {

/// How rows are brought to shared memory.
enum class Load : uint8_t {
  copy,    ///< 16-byte copies that bypass registers: the type is that of the products
  wide,    ///< likewise by P::kChunk elements, which are converted in place once they have arrived
  scalar,  ///< element by element
};

struct Access {
  QueryType q = QueryType::bf16;  ///< of Q and O
  KvType kv = KvType::bf16;       ///< not `same`
  Load load_q = Load::scalar, load_k = Load::scalar, load_v = Load::scalar;
  bool x_packed = false;  ///< consecutive elements of a page belong to different keys
  bool wide_out = false;  ///< O is written four elements at a time
};

/// The access modes of the kernel that `kernel` names.
Access access_of(const KernelInfo& kernel, const AttentionParams& params);

}  // namespace fovea::cuda::portable
