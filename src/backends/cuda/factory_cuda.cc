#include "backends/cuda/factory.h"

#include "backends/cuda/cuda_attention.h"

namespace fovea {

BackendRegistry::Factory cuda_factory(const BackendInfo& info, std::optional<bool> tensor_cores) {
  const cuda::FamilyOf family = cuda::family_of(info, tensor_cores);
  return [&info, family] { return cuda::make_cuda_attention(info, family); };
}

}  // namespace fovea
