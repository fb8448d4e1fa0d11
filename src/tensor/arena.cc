#include "tensor/arena.h"

#include <algorithm>
#include <new>

namespace fovea {

Tensor Arena::take(ElementType dtype, std::initializer_list<int64_t> shape) {
  const size_t bytes = dense_bytes(dtype, shape), begin = used_;
  size_t end = 0;
  if (__builtin_add_overflow(begin, bytes, &end) || __builtin_add_overflow(end, Device::kAlignment - 1, &end))
    throw std::bad_alloc();
  used_ = end / Device::kAlignment * Device::kAlignment;
  peak_ = std::max(peak_, used_);
  if (dry_) return Tensor::dense(nullptr, *device_, dtype, shape);
  FOVEA_CHECK(used_ <= memory_.size());
  return memory_.tensor(dtype, shape, begin);
}

}  // namespace fovea
