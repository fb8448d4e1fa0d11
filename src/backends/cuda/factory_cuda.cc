#include "backends/cuda/factory.h"

#include "backends/cuda/cuda_attention.h"

namespace fovea {
namespace {

cuda::Family always_sm80(const AttentionSpec&, Phase) {
  return cuda::Family::sm80;
}

}  // namespace

BackendRegistry::Factory cuda_factory(const BackendInfo& info) {
  return [&info] { return cuda::make_cuda_attention(info, always_sm80); };
}

}  // namespace fovea
