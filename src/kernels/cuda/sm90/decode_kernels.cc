#include <array>

#include "kernels/cuda/sm90/decode_info.h"
#include "kernels/cuda/sm90/decode_policies.h"
#include "kernels/cuda/sm90/kernels.h"

namespace fovea::cuda::sm90 {
namespace {

template <class T>
constexpr size_t count() {
  size_t n = 0;
  any_decode<T>([&]<class P>() {
    n += 2;
    return false;
  });
  return n;
}
constexpr size_t kCount = count<__nv_bfloat16>() + count<__half>();

constexpr std::array<KernelInfo, kCount> all() {
  std::array<KernelInfo, kCount> kernels;
  size_t at = 0;
  const auto add = [&]<class P>() {
    kernels[at++] = decode_info<P>(false);
    kernels[at++] = decode_info<P>(true);
    return false;
  };
  any_decode<__nv_bfloat16>(add);
  any_decode<__half>(add);
  return kernels;
}

}  // namespace

std::span<const KernelInfo> decode_kernels() {
  static constexpr std::array<KernelInfo, kCount> kernels = all();
  return kernels;
}

}  // namespace fovea::cuda::sm90
