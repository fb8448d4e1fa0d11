#include <array>

#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/sm90/prefill_info.h"
#include "kernels/cuda/sm90/prefill_policies.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr size_t kCount = size_t{2} * 2 * (5 + 5 + 2);  // types, `general`, head sizes of 16 bits, fp8, int8

template <class T>
constexpr void add(std::array<KernelInfo, kCount>& kernels, size_t& at) {
  const auto add_both = [&]<class P>() {
    for (const KvType kv : {KvType::same, KvType::e4m3})
      for (const bool general : {false, true})
        if (!P::kTokenScales)
          kernels[at++] = prefill_info<P>(general, kv);
        else if (kv == KvType::same)
          kernels[at++] = prefill_info<P>(general);
    return false;
  };
  PrefillAll<T>::any(add_both);
  PrefillScaledAll<T>::any(add_both);
}

constexpr std::array<KernelInfo, kCount> all() {
  std::array<KernelInfo, kCount> kernels;
  size_t at = 0;
  add<__nv_bfloat16>(kernels, at);
  add<__half>(kernels, at);
  return kernels;
}

}  // namespace

std::span<const KernelInfo> prefill_kernels() {
  static constexpr std::array<KernelInfo, kCount> kernels = all();
  return kernels;
}

}  // namespace fovea::cuda::sm90
