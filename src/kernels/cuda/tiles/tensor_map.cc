#include "kernels/cuda/tiles/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea::cuda {
namespace {

constexpr size_t kMaxRank = 5;

struct Encoder {
  PFN_cuTensorMapEncodeTiled_v12000 call = nullptr;
};

Result<Encoder> encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  FOVEA_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                  cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    return unsupported(
        "the NVIDIA driver has no cuTensorMapEncodeTiled; it needs to be one for CUDA 12.0 or newer");
  return Encoder{reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)};
}

template <class T>
std::string list(std::initializer_list<T> numbers) {
  std::string text = "[";
  for (const T n : numbers)
    text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

}  // namespace

Status encode_tensor_map(const TensorBox& tensor, CUtensorMap& map) {
  const size_t rank = tensor.dims.size();
  const std::string what = "tensor map of dims " + list(tensor.dims) + ", strides " + list(tensor.strides) +
                           " bytes, box " + list(tensor.box);
  if (rank < 1 || rank > kMaxRank || tensor.strides.size() + 1 != rank || tensor.box.size() != rank)
    return invalid(what + ": 1 to 5 dimensions, one stride fewer and as many box sizes are allowed");
  static const Result<Encoder> encode = encoder();
  if (!encode) return encode.error();
  std::array<uint32_t, kMaxRank> element_strides;
  element_strides.fill(1);
  const CUresult result = encode.value().call(
      &map, tensor.type, static_cast<uint32_t>(rank), const_cast<void*>(tensor.base), tensor.dims.begin(),
      tensor.strides.begin(), tensor.box.begin(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    return invalid(
        what + ": refused by the driver (CUresult " + std::to_string(result) +
        "); sizes 1 or more, box sizes 1 to 256, strides and the address multiples of 16 bytes, and box rows "
        "within the swizzle span are allowed");
  return {};
}

}  // namespace fovea::cuda
