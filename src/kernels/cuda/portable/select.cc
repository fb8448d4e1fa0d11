#include "kernels/cuda/portable/select.h"

#include <string>

#include "fovea/result.h"
#include "kernels/cuda/portable/kernel_info.h"

namespace fovea::cuda::portable {
namespace {

template <class List>
void find(const Problem& p, KernelKind kind, KernelInfo& info) {
  List::any([&]<class P>() {
    if (P::kD < p.head_dim || P::kD < p.v_head_dim) return false;
    info = info_of<P>(kind, p.q, stored_type(p.q, p.kv));
    return true;
  });
}

template <class T>
void find16(const Problem& p, KernelKind kind, KernelInfo& info) {
  if (kind == KernelKind::decode)
    find<Decode<T>>(p, kind, info);
  else
    find<Extend<T>>(p, kind, info);
}

}  // namespace

KvType stored_type(QueryType q, KvType kv) {
  if (kv != KvType::same) return kv;
  return q == QueryType::f16 ? KvType::f16 : q == QueryType::bf16 ? KvType::bf16 : KvType::f32;
}

bool computes_in_float(QueryType q, KvType kv) {
  if (q == QueryType::f32) return true;
  return kv_bytes(kv) != 1 && stored_type(q, kv) != stored_type(q, KvType::same);
}

Result<KernelInfo> select(const Problem& p, KernelKind kind) {
  for (const int size : {p.head_dim, p.v_head_dim})
    if (size <= 0 || size > 512)
      return unsupported("head size is " + std::to_string(size) + "; the portable kernels take 1 to 512");
  if (kind == KernelKind::extend_small) kind = KernelKind::extend;
  KernelInfo info;
  if (!computes_in_float(p.q, p.kv)) {
    if (p.q == QueryType::f16)
      find16<__half>(p, kind, info);
    else
      find16<__nv_bfloat16>(p, kind, info);
  } else if (kind == KernelKind::decode) {
    find<DecodeFloat>(p, kind, info);
  } else {
    find<ExtendFloat>(p, kind, info);
  }
  return info;
}

}  // namespace fovea::cuda::portable
