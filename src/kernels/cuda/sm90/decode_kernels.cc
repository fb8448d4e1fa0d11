#include <array>
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/sm90/decode_info.h"
#include "kernels/cuda/sm90/decode_policies.h"
#include "kernels/cuda/sm90/kernels.h"
#include "kernels/cuda/sm90/x_packed.h"

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

Status check_x_packed(const KernelInfo& kernel, int page_size) {
  const int x = 16 / kv_bytes(kernel.kv);
  if (page_size % x != 0)
    return unsupported("the sm90 kernels read x-packed pages of multiples of " + std::to_string(x) +
                       " keys; the page size is " + std::to_string(page_size));
  const auto same = [&]<class P>() { return is_decode<P>(kernel); };
  if (kernel.kind != KernelKind::decode || DecodePacked<__nv_bfloat16>::any(same) ||
      DecodePacked<__half>::any(same))
    return {};
  return unsupported(
      "the sm90 decode kernels read x-packed pages of 16-bit caches with head sizes 64 and 128");
}

}  // namespace fovea::cuda::sm90
