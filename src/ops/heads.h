#pragma once
#include "tensor/tensor.h"

namespace fovea {

/// Head `head` of t [rows, heads, dim], as [rows, dim].
inline Tensor head_of(const Tensor& t, int64_t head) {
  Tensor out = t.slice(1, head, 1);
  out.rank = 2;
  out.shape = {t.size(0), t.size(2)};
  out.strides = {t.stride(0), t.stride(2)};
  return out;
}

}  // namespace fovea
