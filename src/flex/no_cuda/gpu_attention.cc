#include "flex/gpu_attention.h"

namespace fovea::flex {

Result<std::unique_ptr<GpuAttention>> GpuAttention::plan(const Program&, const std::vector<Buffer>&,
                                                         const AttentionSpec&, const BatchMeta&,
                                                         const AttentionArgs&, Stream&) {
  return unsupported("flex_attention on a GPU needs a build with CUDA; this one runs it on the CPU");
}

}  // namespace fovea::flex
