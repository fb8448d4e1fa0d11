#include "kernels/cuda/sm80/select.h"

#include "fovea/result.h"
#include "kernels/cuda/sm80/kernel_info.h"

namespace fovea::cuda::sm80 {
namespace {

/// Sets `found` to the first of a list that is wide enough and fits, and returns true. If none fits, `found`
/// becomes the one that is wide enough and needs least shared memory, unless `found` needs less already.
template <class List, class Info>
bool first_of(const Problem& p, KernelInfo& found, Info&& info) {
  return List::any([&]<class P>() {
    if (P::kD < p.head_dim || P::kDv < p.v_head_dim || P::kGeneral != p.general) return false;
    const KernelInfo candidate = info.template operator()<P>();
    const bool fits = candidate.shared_bytes <= p.shared_bytes;
    if (fits || found.rows == 0 || candidate.shared_bytes < found.shared_bytes) found = candidate;
    return fits;
  });
}

template <class T>
bool select_narrow(const Problem& p, KernelInfo& found) {
  const auto info = [&]<class P>() { return narrow_info<P>(p.shared_bytes); };
  switch (p.kv) {
    case KvType::same:
      return first_of<Narrow16<T, false>>(p, found, info) || first_of<Narrow16<T, true>>(p, found, info);
    case KvType::e4m3: return first_of<Narrow8<T, KvType::e4m3>>(p, found, info);
    case KvType::e5m2: return first_of<Narrow8<T, KvType::e5m2>>(p, found, info);
    case KvType::int8: return first_of<Narrow8<T, KvType::int8>>(p, found, info);
    default: break;  // refused before
  }
  return false;
}

template <class T, bool General>
bool select_wide(const Problem& p, KernelInfo& found) {
  const auto info = [&]<class P>() { return decode_info<P>(p.shared_bytes); };
  switch (p.kv) {
    case KvType::same: return first_of<Decode16<T, General>>(p, found, info);
    case KvType::e4m3: return first_of<Decode8<T, KvType::e4m3, General>>(p, found, info);
    case KvType::e5m2: return first_of<Decode8<T, KvType::e5m2, General>>(p, found, info);
    case KvType::int8: return first_of<Decode8<T, KvType::int8, General>>(p, found, info);
    default: break;  // refused before
  }
  return false;
}

template <class T>
bool select_decode(const Problem& p, KernelInfo& found) {
  if (p.few_sequences && select_narrow<T>(p, found)) return true;
  return p.general ? select_wide<T, true>(p, found) : select_wide<T, false>(p, found);
}

/// Large tiles with the rings that they are sized for; else small tiles; else large tiles with smaller rings;
/// and last those for CTAs that have no room for the queries of large tiles.
template <class T>
bool select_plain_extend(const Problem& p, KernelKind kind, KernelInfo& found) {
  const auto large = [&]<class P>() { return extend_info<P>(KernelKind::extend, p.shared_bytes); };
  const auto whole = []<class P>() { return extend_info<P>(KernelKind::extend); };
  const auto small = [&]<class P>() { return extend_info<P>(KernelKind::extend_small, p.shared_bytes); };
  if (kind == KernelKind::extend && first_of<ExtendLarge<T>>(p, found, whole)) return true;
  // Only where the large tiles have the same head size and keys: otherwise the sums would have another order.
  Problem anywhere = p;
  anywhere.shared_bytes = kAnySharedBytes;
  KernelInfo other, narrow;
  if (first_of<ExtendLarge<T>>(anywhere, other, whole) && first_of<ExtendSmall<T>>(p, narrow, small) &&
      other.tile_keys == narrow.tile_keys && other.head_dim == narrow.head_dim) {
    found = narrow;
    return true;
  }
  return first_of<ExtendLarge<T>>(p, found, large) || first_of<ExtendCompact<T>>(p, found, small);
}

template <class T>
bool select_extend(const Problem& p, KernelKind kind, KernelInfo& found) {
  const auto large = [&]<class P>() { return extend_info<P>(KernelKind::extend, p.shared_bytes); };
  const auto small = [&]<class P>() { return extend_info<P>(KernelKind::extend_small, p.shared_bytes); };
  if (p.kv != KvType::same)
    return first_of<ExtendEightBit<T>>(p, found, large) ||
           first_of<ExtendCompactEightBit<T>>(p, found, small);
  if (p.general)
    return first_of<ExtendGeneral<T>>(p, found, large) || first_of<ExtendCompactGeneral<T>>(p, found, small);
  return select_plain_extend<T>(p, kind, found);
}

}  // namespace

Result<KernelInfo> select(const Problem& p, KernelKind kind) {
  if (p.q == QueryType::f32)
    return unsupported("queries are fp32; the sm80 kernels take fp16 and bf16; use the portable kernels");
  if (p.kv == KvType::f16 || p.kv == KvType::bf16 || p.kv == KvType::f32)
    return unsupported(
        "keys and values have a type of their own; the sm80 kernels take the query's or 8 bits; use the "
        "portable kernels");
  const int step = p.kv == KvType::same ? 8 : 16;
  for (const int size : {p.head_dim, p.v_head_dim})
    if (size <= 0 || size % step != 0)
      return unsupported("head size is " + std::to_string(size) + "; the sm80 kernels take multiples of " +
                         std::to_string(step) + (step == 16 ? " with 8-bit keys" : ""));
  KernelInfo found;
  const bool half = p.q == QueryType::f16;
  if (kind == KernelKind::decode)
    half ? select_decode<__half>(p, found) : select_decode<__nv_bfloat16>(p, found);
  else
    half ? select_extend<__half>(p, kind, found) : select_extend<__nv_bfloat16>(p, kind, found);
  if (found.rows == 0)
    return unsupported("head sizes are " + std::to_string(p.head_dim) + " and " +
                       std::to_string(p.v_head_dim) + "; the sm80 kernels take up to " +
                       (p.kv == KvType::same ? "512" : "256 with 8-bit keys"));
  return found;
}

}  // namespace fovea::cuda::sm80
