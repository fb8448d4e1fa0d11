#pragma once
// Tensors with memory, for tests of the C ABI from C++.
#include <algorithm>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <memory>
#include <vector>

#include "fovea/c_api.h"

namespace fovea {

inline constexpr fovea_dtype kF32 = {FOVEA_FLOAT, 32, 1}, kF16 = {FOVEA_FLOAT, 16, 1},
                             kBf16 = {FOVEA_BFLOAT, 16, 1}, kI32 = {FOVEA_INT, 32, 1},
                             kI64 = {FOVEA_INT, 64, 1}, kU8 = {FOVEA_UINT, 8, 1}, kI8 = {FOVEA_INT, 8, 1},
                             kE4m3 = {FOVEA_FLOAT8_E4M3FN, 8, 1};

/// A dense tensor on the CPU whose shape and strides may be changed. Its memory has exactly the size of its
/// original shape, so that a sanitizer detects accesses beyond it.
class HostTensor {
 public:
  HostTensor(fovea_dtype dtype, std::vector<int64_t> dims) : shape(std::move(dims)) {
    int64_t count = 1;
    strides.resize(shape.size());
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = count;
      count *= shape[i];
    }
    bytes_ = static_cast<size_t>(count) * dtype.bits / 8;
    memory_ = std::make_unique<unsigned char[]>(bytes_);
    t.data = memory_.get();
    t.device = {FOVEA_CPU, 0};
    t.dtype = dtype;
  }
  template <class T>
  HostTensor(fovea_dtype dtype, std::vector<int64_t> dims, std::initializer_list<T> values)
      : HostTensor(dtype, std::move(dims)) {
    std::copy(values.begin(), values.end(), as<T>());
  }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(memory_.get());
  }
  size_t bytes() const { return bytes_; }
  const fovea_tensor* get() {
    t.ndim = static_cast<int32_t>(shape.size());
    t.shape = shape.data();
    t.strides = strides.empty() ? nullptr : strides.data();
    return &t;
  }

  fovea_tensor t = {};
  std::vector<int64_t> shape, strides;

 private:
  std::unique_ptr<unsigned char[]> memory_;
  size_t bytes_ = 0;
};

inline HostTensor ints(std::initializer_list<int32_t> values) {
  return HostTensor(kI32, {static_cast<int64_t>(values.size())}, values);
}
inline HostTensor longs(std::initializer_list<int64_t> values) {
  return HostTensor(kI64, {static_cast<int64_t>(values.size())}, values);
}

}  // namespace fovea
