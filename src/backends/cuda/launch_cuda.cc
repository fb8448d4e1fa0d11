#include "backends/cuda/launch.h"

#include "kernels/cuda/sm80/launch.h"

namespace fovea::cuda {
namespace {

Status launch_of(const sm80::KernelInfo& kernel, const AttentionParams& params, int max_items,
                 CUstream_st* stream) {
  return sm80::launch(kernel, params, max_items, stream);
}

}  // namespace

Status launch(const KernelChoice& kernel, const AttentionParams& params, int max_items, CUstream_st* stream) {
  return std::visit([&](const auto& info) { return launch_of(info, params, max_items, stream); },
                    kernel.kernel);
}

}  // namespace fovea::cuda
