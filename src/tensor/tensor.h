#pragma once
// A view of a strided array in a device's memory. It owns no memory (Buffer does) and reads none: only the
// device's own operations dereference `data`.
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "fovea/dtype.h"

namespace fovea {

class Device;

/// Types of a tensor's elements: those of activations and weights (DType), f64, and integers.
enum class ElementType : uint8_t { f32, f16, bf16, f64, i8, u8, i32, i64 };

constexpr size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::i8:
    case ElementType::u8: return 1;
    case ElementType::f16:
    case ElementType::bf16: return 2;
    case ElementType::f32:
    case ElementType::i32: return 4;
    case ElementType::f64:
    case ElementType::i64: return 8;
  }
  return 0;
}

/// "float32", "int64", ...
std::string_view to_string(ElementType type);

constexpr ElementType element_of(DType dtype) {
  return dtype == DType::f32 ? ElementType::f32 : dtype == DType::f16 ? ElementType::f16 : ElementType::bf16;
}

/// Whether elements of `type` may be accessed as T; 16-bit floats as uint16_t, anything as std::byte.
template <class T>
constexpr bool holds(ElementType type) {
  if constexpr (std::is_same_v<T, float>) return type == ElementType::f32;
  if constexpr (std::is_same_v<T, double>) return type == ElementType::f64;
  if constexpr (std::is_same_v<T, uint16_t>) return type == ElementType::f16 || type == ElementType::bf16;
  if constexpr (std::is_same_v<T, int8_t>) return type == ElementType::i8;
  if constexpr (std::is_same_v<T, uint8_t>) return type == ElementType::u8;
  if constexpr (std::is_same_v<T, int32_t>) return type == ElementType::i32;
  if constexpr (std::is_same_v<T, int64_t>) return type == ElementType::i64;
  return std::is_same_v<T, std::byte>;
}

/// Strides are in elements. A default-constructed tensor is empty, such as an absent bias. A tensor with a
/// shape and null data comes from an arena's dry run (arena.h) or has no elements.
struct Tensor {
  static constexpr int kMaxRank = 4;
  using Sizes = std::array<int64_t, kMaxRank>;

  void* data = nullptr;
  const Device* device = nullptr;
  ElementType dtype = ElementType::f32;
  int rank = 0;
  Sizes shape = {}, strides = {};

  /// Row-major, without gaps. `shape` has 1 to kMaxRank sizes, each at least 0.
  static Tensor dense(void* data, const Device& device, ElementType dtype,
                      std::initializer_list<int64_t> shape);

  bool empty() const { return rank == 0; }
  explicit operator bool() const { return !empty(); }
  int64_t size(int dim) const { return shape[checked(dim)]; }
  int64_t stride(int dim) const { return strides[checked(dim)]; }
  /// 0 when empty.
  int64_t elements() const;
  bool contiguous() const;
  bool has_shape(std::initializer_list<int64_t> sizes) const;

  /// A view of [first, first + count) in dimension `dim`.
  Tensor slice(int dim, int64_t first, int64_t count) const;
  /// The first `count` rows.
  Tensor first_rows(int64_t count) const { return slice(0, 0, count); }

  /// The address of the first element. Checks the type, not whether the host may access the memory.
  template <class T>
  T* as() const {
    FOVEA_CHECK(holds<std::remove_const_t<T>>(dtype));
    return static_cast<T*>(data);
  }

  /// "float32 [3, 64] on cpu", for messages.
  std::string describe() const;

 private:
  size_t checked(int dim) const {
    FOVEA_DCHECK(dim >= 0 && dim < rank);
    return static_cast<size_t>(dim);
  }
};

}  // namespace fovea
