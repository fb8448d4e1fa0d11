#pragma once
// Four neighbouring elements of a row as fp32: one access where the row is aligned to four elements, else one
// for each element inside the row.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "fovea/dtype.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

FOVEA_DEVICE float widened(float x) {
  return x;
}
FOVEA_DEVICE float widened(__half x) {
  return __half2float(x);
}
FOVEA_DEVICE float widened(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <class T>
FOVEA_DEVICE T rounded(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

struct Four {
  float x[4] = {};
};

template <class T>
struct alignas(4 * sizeof(T)) PackedFour {
  T x[4];
};

/// Elements i to i + 3 of `row`, 0 from `count` on. kAligned: i + 3 < count or i >= count.
template <bool kAligned, class T>
FOVEA_DEVICE Four load_four(const T* row, int i, int count) {
  Four v;
  if (kAligned) {
    if (i >= count) return v;
    const auto packed = *reinterpret_cast<const PackedFour<T>*>(row + i);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      v.x[j] = widened(packed.x[j]);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j < count) v.x[j] = widened(row[i + j]);
  }
  return v;
}

template <bool kAligned, class T>
FOVEA_DEVICE void store_four(T* row, int i, int count, const Four& v) {
  if (kAligned) {
    if (i >= count) return;
    PackedFour<T> packed;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      packed.x[j] = rounded<T>(v.x[j]);
    *reinterpret_cast<PackedFour<T>*>(row + i) = packed;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j < count) row[i + j] = rounded<T>(v.x[j]);
  }
}

/// Whether rows of `dim` elements, `stride` apart, can be accessed four elements at a time.
inline bool by_four(const void* data, DType dtype, int64_t stride, int64_t dim) {
  return dim % 4 == 0 && stride % 4 == 0 && reinterpret_cast<uintptr_t>(data) % (4 * size_of(dtype)) == 0;
}

template <class T>
struct TypeTag {
  using type = T;
};

/// f() of the TypeTag of a dtype.
template <class F>
auto with_type(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(TypeTag<float>{});
  return dtype == DType::f16 ? f(TypeTag<__half>{}) : f(TypeTag<__nv_bfloat16>{});
}

}  // namespace fovea::cuda
