#include "kernels/cuda/simt/select.h"

#include "base/check.h"
#include "fovea/result.h"
#include "kernels/cuda/simt/policy.h"

namespace fovea::cuda::simt {
namespace {

/// Takes the narrowest heads that are wide enough and, of their kernels, the one with the fewest rows that
/// suffice; if none does, the one with the most rows.
template <Keys Keys_>
void find(const Problem& p, KernelInfo& found) {
  any_policy<Keys_>([&]<class P>() {
    if (P::kD < p.head_dim || P::kD < p.v_head_dim) return false;
    if (found.rows != 0 && (found.rows >= p.rows || found.head_dim != P::kD)) return true;
    found = kernel_info<P>(p.q, p.shared_bytes);
    return false;
  });
}

}  // namespace

Result<KernelInfo> select(const Problem& p) {
  for (const int size : {p.head_dim, p.v_head_dim})
    if (size <= 0 || size % 8 != 0 || size > 512)
      return unsupported("head size is " + std::to_string(size) +
                         "; the CUDA-core decode kernel takes multiples of 8 up to 512");
  if (p.rows < 1) return invalid("a decode kernel for " + std::to_string(p.rows) + " rows; at least 1");
  const char* missing = p.mask.spans    ? "spans"
                        : p.mask.packed ? "packed masks"
                        : p.mask.tree   ? "tree masks"
                                        : nullptr;
  if (missing != nullptr)
    return unsupported(std::string("the CUDA-core decode kernel has no ") + missing +
                       "; the tensor-core kernel serves them");
  if (p.q == QueryType::f32 || p.kv == KvType::f32 || p.kv == KvType::f16 || p.kv == KvType::bf16)
    return unsupported(
        "the CUDA-core decode kernel takes 16-bit queries, and keys of their type, of fp8 or of int8");
  KernelInfo found;
  switch (keys_of(p.q, p.kv)) {
    case Keys::f16: find<Keys::f16>(p, found); break;
    case Keys::bf16: find<Keys::bf16>(p, found); break;
    case Keys::e4m3: find<Keys::e4m3>(p, found); break;
    case Keys::e5m2: find<Keys::e5m2>(p, found); break;
    case Keys::int8: find<Keys::int8>(p, found); break;
  }
  FOVEA_CHECK(found.rows > 0);
  return found;
}

}  // namespace fovea::cuda::simt
