#pragma once
// Validation of callers' tensors before anything runs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "fovea/c_api.h"
#include "fovea/dtype.h"
#include "fovea/result_fwd.h"
#include "kernels/cache/cache_rows.h"

namespace fovea::c_api {

enum class Element : uint8_t { f32, f16, bf16, e4m3, e5m2, u8, i8, i32, i64, other };
std::string_view to_string(Element element);
size_t size_of(Element element);
Element element_of(fovea_dtype dtype);
inline Element element_of(DType dtype) {
  return dtype == DType::f32 ? Element::f32 : dtype == DType::f16 ? Element::f16 : Element::bf16;
}
/// Only for f32, f16 and bf16.
inline DType dtype_of(Element element) {
  return element == Element::f32 ? DType::f32 : element == Element::f16 ? DType::f16 : DType::bf16;
}

/// "cpu" or "cuda:0".
std::string to_string(fovea_device device);

/// A required dimension of a tensor.
struct Dim {
  static constexpr int64_t kAny = -1;
  std::string_view name;  ///< "Hq"; may be empty if the size suffices
  int64_t size = kAny;
};

enum class Packing : uint8_t {
  contiguous,
  rows,     ///< all but the first dimension is dense
  last,     ///< the last dimension is dense
  strided,  ///< any strides
};

/// Requirements on an argument.
struct Wanted {
  std::string_view name;
  std::initializer_list<Element> elements;
  std::initializer_list<Dim> dims;
  Packing packing = Packing::contiguous;
  size_t alignment = 0;  ///< of the first element in bytes; 0 = the element's size
};

inline constexpr int kMaxDims = 5;

/// A validated tensor. Strides in elements; a dimension of size 1 has the stride of a dense tensor.
struct Tensor {
  std::byte* data = nullptr;
  Element element = Element::other;
  int ndim = 0;
  std::array<int64_t, kMaxDims> shape = {}, stride = {};

  int64_t size(int dim) const { return shape[static_cast<size_t>(dim)]; }
  int64_t step(int dim) const { return stride[static_cast<size_t>(dim)]; }
  int64_t count() const;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
  /// Only for index tensors.
  IndexArray indices() const {
    return element == Element::i32 ? IndexArray(as<int32_t>()) : IndexArray(as<int64_t>());
  }
};

/// Element types of index tensors.
inline constexpr std::initializer_list<Element> kIndex = {Element::i32, Element::i64};
/// Element types of activations.
inline constexpr std::initializer_list<Element> kFloat = {Element::f32, Element::f16, Element::bf16};

/// Validates the arguments of one call, all of which must be on one device.
class Arguments {
 public:
  explicit Arguments(fovea_device device) : device_(device) {}

  const fovea_device& device() const { return device_; }
  bool on_cpu() const { return device_.type != FOVEA_CUDA; }

  /// Every error names the argument, its value and the requirement.
  Result<Tensor> take(const fovea_tensor* tensor, const Wanted& wanted) const;
  /// take() for a range of numbers of dimensions; `describe` names the dimensions in messages.
  Result<Tensor> take_any(const fovea_tensor* tensor, std::string_view name,
                          std::initializer_list<Element> elements, int least_dims, int most_dims,
                          std::string_view describe, Packing packing) const;

 private:
  Result<Tensor> read(const fovea_tensor* tensor, std::string_view name,
                      std::initializer_list<Element> elements) const;
  fovea_device device_;
};

/// Refuses an output tensor whose elements may overlap: an expanded view (stride 0) or overlapping rows.
Status check_written(const Tensor& t, std::string_view name);

/// "[4, 8, 64]"
std::string shape_text(const int64_t* shape, int ndim);

}  // namespace fovea::c_api
