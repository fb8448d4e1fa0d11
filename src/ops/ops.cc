#include "ops/ops.h"

namespace fovea {
namespace {

/// Head `head` of [rows, heads, dim], as [rows, dim].
Tensor head_of(const Tensor& t, int64_t head) {
  Tensor out = t.slice(1, head, 1);
  out.rank = 2;
  out.shape = {t.size(0), t.size(2)};
  out.strides = {t.stride(0), t.stride(2)};
  return out;
}

}  // namespace

Status Ops::head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                        Stream& stream) {
  for (size_t h = 0; h < weights.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    FOVEA_RETURN_IF_ERROR(linear(weights[h], head_of(x, head), head_of(y, head), stream));
  }
  return {};
}

}  // namespace fovea
