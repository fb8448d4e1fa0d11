#include "backends/cuda/factory.h"

#include "backends/cuda/cuda_attention.h"

namespace fovea {
namespace {

cuda::FamilyOf family_of(const BackendInfo& info, std::optional<bool> tensor_cores) {
  if (info.name == "TRITON_ATTN") return cuda::always_portable;
  if (info.name != "FLASHINFER" || tensor_cores.value_or(false)) return cuda::always_sm80;
  return tensor_cores ? cuda::simt_where_it_can : cuda::sm80_or_simt;
}

}  // namespace

BackendRegistry::Factory cuda_factory(const BackendInfo& info, std::optional<bool> tensor_cores) {
  const cuda::FamilyOf family = family_of(info, tensor_cores);
  return [&info, family] { return cuda::make_cuda_attention(info, family); };
}

}  // namespace fovea
