#pragma once
// Devices and their memory, which holds tensors. Operations on tensors are in ops/ops.h.
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "device/stream.h"
#include "fovea/capability.h"
#include "fovea/result.h"
#include "tensor/tensor.h"

namespace fovea {

/// Devices are compared by address: a device must outlive all tensors and buffers on it.
class Device {
 public:
  /// Alignment of every allocation and of every tensor in an Arena, in bytes: one cache line, one AVX-512
  /// vector, four of a GPU's widest (16-byte) accesses.
  static constexpr size_t kAlignment = 64;
  static constexpr std::chrono::seconds kPatience{60};

  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  virtual std::string_view name() const = 0;  ///< "cpu", "cuda:0"

  /// Uninitialised memory of `bytes` > 0, aligned to kAlignment. Throws std::bad_alloc.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* data, size_t bytes) = 0;

  /// Host memory, aligned to kAlignment, that this device copies from and to at its full speed. Throws
  /// std::bad_alloc.
  virtual void* allocate_host(size_t bytes);
  virtual void release_host(void* data, size_t bytes);

  /// Copies between the host and this device, in stream order. The host memory must stay valid, and a source
  /// unchanged, until the copy is done: see synchronize().
  virtual Status copy_from_host(void* to, const void* from, size_t bytes, Stream& stream) const = 0;
  virtual Status copy_to_host(void* to, const void* from, size_t bytes, Stream& stream) const = 0;
  /// Blocks until all work queued on the stream is done. Errors: those of the work; work that takes longer
  /// than kPatience.
  virtual Status synchronize(Stream& stream) const = 0;
  /// An error once work has taken longer than that: the device stands still.
  virtual Status health() const { return {}; }
};

/// Host memory.
Device& cpu_device();

/// Copies `from` to `to`: contiguous tensors of one type and shape, at least one of them on the CPU.
Status copy(const Tensor& from, const Tensor& to, Stream& stream);

/// The ElementType of a host array of T; u8 for std::byte and other 1-byte types that have none.
template <class T>
constexpr ElementType element_type() {
  using Element = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Element, float>)
    return ElementType::f32;
  else if constexpr (std::is_same_v<Element, double>)
    return ElementType::f64;
  else if constexpr (std::is_same_v<Element, int8_t>)
    return ElementType::i8;
  else if constexpr (std::is_same_v<Element, int32_t>)
    return ElementType::i32;
  else if constexpr (std::is_same_v<Element, int64_t>)
    return ElementType::i64;
  else
    static_assert(sizeof(Element) == 1);
  return ElementType::u8;
}

/// A host array as a tensor [n] or [rows, width]. The elements may be const: Tensor does not record it.
template <class T>
Tensor host_tensor(std::span<T> values) {
  using Element = std::remove_const_t<T>;
  return Tensor::dense(const_cast<Element*>(values.data()), cpu_device(), element_type<T>(),
                       {static_cast<int64_t>(values.size())});
}
template <class T>
Tensor host_tensor(T* values, int64_t rows, int64_t width) {
  using Element = std::remove_const_t<T>;
  return Tensor::dense(const_cast<Element*>(values), cpu_device(), element_type<T>(), {rows, width});
}

}  // namespace fovea
