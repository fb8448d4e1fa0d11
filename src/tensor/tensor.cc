#include "tensor/tensor.h"

#include <algorithm>

#include "tensor/device.h"

namespace fovea {

std::string_view to_string(ElementType type) {
  switch (type) {
    case ElementType::f32: return "float32";
    case ElementType::f16: return "float16";
    case ElementType::bf16: return "bfloat16";
    case ElementType::f64: return "float64";
    case ElementType::i8: return "int8";
    case ElementType::u8: return "uint8";
    case ElementType::i32: return "int32";
    case ElementType::i64: return "int64";
  }
  return "?";
}

Tensor Tensor::dense(void* data, const Device& device, ElementType dtype,
                     std::initializer_list<int64_t> shape) {
  FOVEA_CHECK(shape.size() >= 1 && shape.size() <= kMaxRank);
  Tensor t;
  t.data = data;
  t.device = &device;
  t.dtype = dtype;
  t.rank = static_cast<int>(shape.size());
  std::ranges::copy(shape, t.shape.begin());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    FOVEA_CHECK(t.shape[dim] >= 0);
    t.strides[dim] = stride;
    stride *= t.shape[dim];
  }
  return t;
}

int64_t Tensor::elements() const {
  int64_t count = rank > 0;
  for (int dim = 0; dim < rank; ++dim)
    count *= size(dim);
  return count;
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int dim = rank; dim-- > 0; expected *= size(dim))
    if (size(dim) != 1 && stride(dim) != expected) return false;
  return true;
}

bool Tensor::has_shape(std::initializer_list<int64_t> sizes) const {
  return std::ranges::equal(std::span(shape).first(static_cast<size_t>(rank)), sizes);
}

Tensor Tensor::slice(int dim, int64_t first, int64_t count) const {
  FOVEA_CHECK(dim >= 0 && dim < rank && first >= 0 && count >= 0 && first <= size(dim) - count);
  Tensor t = *this;
  t.shape[checked(dim)] = count;
  if (data)
    t.data = static_cast<std::byte*>(data) + first * stride(dim) * static_cast<int64_t>(size_of(dtype));
  return t;
}

std::string Tensor::describe() const {
  if (empty()) return "no tensor";
  std::string text(to_string(dtype));
  for (int dim = 0; dim < rank; ++dim)
    text += (dim == 0 ? " [" : ", ") + std::to_string(size(dim));
  return text + "] on " + std::string(device ? device->name() : "no device");
}

}  // namespace fovea
