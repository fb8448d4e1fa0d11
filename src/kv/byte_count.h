#pragma once
// Byte counts that record whether they overflowed 64 bits.
#include <cstdint>
#include <limits>

namespace fovea {

class ByteCount {
 public:
  explicit ByteCount(int64_t value) : value_(value) {}
  ByteCount operator*(int64_t by) const {
    ByteCount r(0);
    r.overflow_ = __builtin_mul_overflow(value_, by, &r.value_) || overflow_;
    return r;
  }
  ByteCount operator+(ByteCount other) const {
    ByteCount r(0);
    r.overflow_ = __builtin_add_overflow(value_, other.value_, &r.value_) || overflow_ || other.overflow_;
    return r;
  }
  /// Rounded up to a multiple of `alignment`.
  ByteCount aligned(int64_t alignment) const {
    ByteCount r = *this + ByteCount(alignment - 1);
    r.value_ = r.value_ / alignment * alignment;
    return r;
  }
  bool overflow() const { return overflow_; }
  /// INT64_MAX after an overflow.
  int64_t value() const { return overflow_ ? std::numeric_limits<int64_t>::max() : value_; }

 private:
  int64_t value_;
  bool overflow_ = false;
};

}  // namespace fovea
