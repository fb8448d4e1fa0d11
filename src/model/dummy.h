#pragma once
// Random weights for --dummy-weights: a function of (seed, tensor name, index) only.
#include <cstdint>
#include <string_view>

#include "fovea/dtype.h"

namespace fovea {

class ThreadPool;

class DummyWeights {
 public:
  static constexpr float kStd = 0.02f;  ///< transformers' initialisation of linear layers

  DummyWeights(uint64_t seed, DType dtype);
  DType dtype() const { return dtype_; }

  /// Writes elements [first, first + count) of tensor `name` in dtype(); `first` is a multiple of 4. Normally
  /// distributed with mean 0 and standard deviation kStd, quantised to 4096 equally likely values.
  void fill(std::string_view name, int64_t first, int64_t count, void* out, ThreadPool& pool) const;
  /// The same on the calling thread.
  void fill(std::string_view name, int64_t first, int64_t count, void* out) const;
  /// The same for elements [0, count) as fp32 around `mean`.
  void fill_vector(std::string_view name, float mean, int64_t count, float* out) const;

 private:
  void draw_range(uint64_t key, int64_t first, int64_t begin, int64_t end, void* out) const;

  static constexpr int kSteps = 4096;  // 8 or 16 KiB per table: fits in the L1 cache

  uint64_t seed_;
  DType dtype_;
  float table_[kSteps];
  uint16_t half_[kSteps];  // the same in dtype_, when that is 16-bit
};

}  // namespace fovea
