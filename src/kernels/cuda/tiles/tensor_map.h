#pragma once
// Tensor maps for the tensor memory accelerator (sm_90): a tensor and the TMA box that a copy moves. The
// encoder is looked up in the driver at run time.
#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "fovea/result_fwd.h"

namespace fovea::cuda {

/// A tensor in global memory and the TMA box that one copy moves; dimensions innermost first, at most 5.
struct TensorBox {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;  ///< UINT8 for fp8
  const void* base = nullptr;                                   ///< 16-byte aligned
  std::initializer_list<uint64_t> dims;                         ///< elements, each at least 1
  std::initializer_list<uint64_t> strides;  ///< bytes, of dimensions 1 on; multiples of 16, below 2^40
  std::initializer_list<uint32_t> box;      ///< elements, each 1 to 256
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;  ///< its span is at least a row of the box
};

/// Fills `map`. Errors: a box that the driver rejects (with all of its numbers), a driver without the
/// encoder.
Status encode_tensor_map(const TensorBox& tensor, CUtensorMap& map);

}  // namespace fovea::cuda
