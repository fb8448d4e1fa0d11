#pragma once
// Tensor maps: what a box of a tensor is, for the tensor memory accelerator (sm_90). The encoder is looked up
// in the driver at run time.
#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "fovea/result.h"

namespace fovea::cuda {

/// A tensor in global memory and the box that one copy moves; dimensions innermost first, at most 5.
struct TensorBox {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;  ///< UINT8 for fp8
  const void* base = nullptr;                                   ///< 16-byte aligned
  std::initializer_list<uint64_t> dims;                         ///< elements, each at least 1
  std::initializer_list<uint64_t> strides;  ///< bytes, of dimensions 1 on; multiples of 16, below 2^40
  std::initializer_list<uint32_t> box;      ///< elements, each 1 to 256
  CUtensorMapSwizzle swizzle =
      CU_TENSOR_MAP_SWIZZLE_128B;  ///< the box's rows are at most as long as its span
};

/// Fills `map`. Errors: a box that the driver refuses (with all of its numbers), a driver without the
/// encoder.
Status encode_tensor_map(const TensorBox& tensor, CUtensorMap& map);

}  // namespace fovea::cuda
