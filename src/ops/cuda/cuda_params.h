#pragma once
// What the operations on a GPU share: parameters of kernels from tensors and weights.
#include <cstdint>

#include "base/check.h"
#include "kernels/cuda/linear/linear.h"
#include "ops/ops.h"

namespace fovea {

/// Bytes: parts of an operation's scratch begin at multiples of it. Its memory is aligned to
/// Device::kAlignment only, so an operation asks for as much more and begins at the next multiple.
inline constexpr int64_t kScratchPart = 256;

inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// The first multiple of kScratchPart in `scratch`.
inline std::byte* scratch_begin(const Tensor& scratch) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(scratch.data) % kScratchPart);
  return static_cast<std::byte*>(scratch.data) + (kScratchPart - begin) % kScratchPart;
}

inline DType dtype_of(const Tensor& t) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (element_of(dtype) == t.dtype) return dtype;
  FOVEA_CHECK(false);
}

inline cuda::WeightCode code_of(const LinearWeight& w) {
  switch (code_of(w.format.layout)) {
    case WeightCode::none: return cuda::WeightCode::none;
    case WeightCode::mxfp4: return cuda::WeightCode::mxfp4;
    case WeightCode::e4m3: return cuda::WeightCode::e4m3;
  }
  FOVEA_CHECK(false);
}

/// The address of row 0, column `column`, of a matrix.
inline std::byte* column_of(const Tensor& t, int64_t column) {
  return static_cast<std::byte*>(t.data) + column * static_cast<int64_t>(size_of(t.dtype));
}

}  // namespace fovea
