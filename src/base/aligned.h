#pragma once
// 64-byte aligned arrays (one cache line, one AVX-512 vector) of trivial elements, not initialised. Arrays of
// 4 MiB and more use huge pages where available.
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace fovea {

namespace detail {
/// Freed by std::free; throws std::bad_alloc.
void* allocate_aligned(size_t count, size_t size);
}  // namespace detail

template <class T>
class AlignedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  AlignedArray() = default;
  explicit AlignedArray(size_t count)
      : data_(static_cast<T*>(detail::allocate_aligned(count, sizeof(T)))), size_(count) {}
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  operator std::span<T>() { return {data(), size_}; }
  operator std::span<const T>() const { return {data(), size_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace fovea
