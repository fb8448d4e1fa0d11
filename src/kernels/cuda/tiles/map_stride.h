#pragma once
// What a tensor map can express. Host code, without CUDA.
#include <cstdint>

namespace fovea::cuda {

/// Whether a dimension of more than one element may have this stride: cuTensorMapEncodeTiled takes multiples
/// of 16 bytes below 2^40, except 0.
constexpr bool is_map_stride(int64_t bytes) {
  return bytes > 0 && bytes % 16 == 0 && bytes < int64_t{1} << 40;
}

/// The stride of a dimension of `size` elements. For a single element it is never used: any valid one.
constexpr uint64_t map_stride(int64_t bytes, uint64_t size) {
  return size > 1 ? static_cast<uint64_t>(bytes) : 16;
}

}  // namespace fovea::cuda
