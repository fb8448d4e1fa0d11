#include "ops/ops.h"

#include "ops/heads.h"

namespace fovea {

Status Ops::head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                        Stream& stream) {
  for (size_t h = 0; h < weights.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    FOVEA_RETURN_IF_ERROR(linear(weights[h], head_of(x, head), head_of(y, head), stream));
  }
  return {};
}

}  // namespace fovea
