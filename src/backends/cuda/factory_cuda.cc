#include "backends/cuda/factory.h"

#include "backends/cuda/cuda_attention.h"

namespace fovea {
namespace {

cuda::FamilyOf family_of(const BackendInfo& info) {
  if (info.name == "TRITON_ATTN") return cuda::always_portable;
  return info.name == "FLASHINFER" ? cuda::sm80_or_simt : cuda::always_sm80;
}

}  // namespace

BackendRegistry::Factory cuda_factory(const BackendInfo& info) {
  return [&info] { return cuda::make_cuda_attention(info, family_of(info)); };
}

}  // namespace fovea
