#pragma once
// Tensors from outside, looked at before anything runs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "fovea/c_api.h"
#include "fovea/dtype.h"
#include "fovea/result.h"
#include "kernels/cache/cache_rows.h"

namespace fovea::c_api {

enum class Element : uint8_t { f32, f16, bf16, e4m3, e5m2, u8, i8, i32, i64, other };
std::string_view to_string(Element element);
size_t size_of(Element element);
Element element_of(fovea_dtype dtype);
inline Element element_of(DType dtype) {
  return dtype == DType::f32 ? Element::f32 : dtype == DType::f16 ? Element::f16 : Element::bf16;
}
/// Only of f32, f16 and bf16.
inline DType dtype_of(Element element) {
  return element == Element::f32 ? DType::f32 : element == Element::f16 ? DType::f16 : DType::bf16;
}

/// "cpu" or "cuda:0".
std::string to_string(fovea_device device);

/// A dimension that a tensor must have.
struct Dim {
  static constexpr int64_t kAny = -1;
  std::string_view name;  ///< "Hq"; empty when its size says all
  int64_t size = kAny;
};

enum class Packing : uint8_t {
  contiguous,
  rows,     ///< all but the first dimension is dense
  last,     ///< the last dimension is dense
  strided,  ///< as it likes
};

/// What an argument must be.
struct Wanted {
  std::string_view name;
  std::initializer_list<Element> elements;
  std::initializer_list<Dim> dims;
  Packing packing = Packing::contiguous;
  size_t alignment = 0;  ///< of the first element, bytes; 0 = that of an element
};

inline constexpr int kMaxDims = 5;

/// A tensor that is what was wanted. Strides in elements; of a dimension with one entry that of a dense one.
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
  /// Of an index tensor.
  IndexArray indices() const {
    return element == Element::i32 ? IndexArray(as<int32_t>()) : IndexArray(as<int64_t>());
  }
};

/// The elements of index tensors.
inline constexpr std::initializer_list<Element> kIndex = {Element::i32, Element::i64};
/// Those of activations.
inline constexpr std::initializer_list<Element> kFloat = {Element::f32, Element::f16, Element::bf16};

/// Looks at the arguments of one call, all of which lie on one device.
class Arguments {
 public:
  explicit Arguments(fovea_device device) : device_(device) {}

  const fovea_device& device() const { return device_; }
  bool on_cpu() const { return device_.type != FOVEA_CUDA; }

  /// Every refusal names the argument, what it is, and what it must be.
  Result<Tensor> take(const fovea_tensor* tensor, const Wanted& wanted) const;
  /// take() with the number of dimensions of the tensor left open: `describe` names them in messages.
  Result<Tensor> take_any(const fovea_tensor* tensor, std::string_view name,
                          std::initializer_list<Element> elements, int least_dims, int most_dims,
                          std::string_view describe, Packing packing) const;

 private:
  Result<Tensor> read(const fovea_tensor* tensor, std::string_view name,
                      std::initializer_list<Element> elements) const;
  fovea_device device_;
};

/// Refuses a tensor that is written to and whose elements are not known to lie apart: an expanded view, whose
/// stride is 0, or one whose rows reach into each other.
Status check_written(const Tensor& t, std::string_view name);

/// "[4, 8, 64]"
std::string shape_text(const int64_t* shape, int ndim);

}  // namespace fovea::c_api
