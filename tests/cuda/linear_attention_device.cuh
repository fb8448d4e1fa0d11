#pragma once
// Tensors in device memory and their copies on the host, for the program of linear attention.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "cuda_check.h"
#include "fovea/linear_attention.h"
#include "fovea/result.h"
#include "kernels/cuda/linear_attention/launch.h"
#include "kernels/reference/linear_attention.h"

namespace fovea::cuda {

inline int g_failures = 0, g_checks = 0;
inline void expect(bool right, const std::string& what) {
  ++g_checks;
  if (right) return;
  ++g_failures;
  std::printf("FAILED: %s\n", what.c_str());
}

/// An array on the host and the device.
template <class T>
struct Both {
  std::vector<T> host;
  T* device = nullptr;

  explicit Both(std::vector<T> values) : host(std::move(values)) {
    CUDA_CHECK(cudaMalloc(&device, std::max<size_t>(host.size(), 1) * sizeof(T)));
    upload();
  }
  Both(const Both&) = delete;
  Both& operator=(const Both&) = delete;
  ~Both() { cudaFree(device); }
  void upload() const { copy_to_device(device, host.data(), host.size() * sizeof(T)); }
  std::vector<T> download() const {
    std::vector<T> values(host.size());
    CUDA_CHECK(cudaMemcpy(values.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  void poison() const { set_bytes(device, 0xff, host.size() * sizeof(T)); }
};

/// [rows, heads, dim] with gaps between heads and rows, which are NaN.
struct Rows {
  DType dtype;
  int64_t rows, heads, dim, head, token;
  Both<unsigned char> bytes;

  Rows(DType type, int64_t n, int64_t h, int64_t d, uint32_t seed, float scale)
      : dtype(type),
        rows(n),
        heads(h),
        dim(d),
        head((d + 15) / 8 * 8),
        token(h * head + 8),
        bytes(std::vector<unsigned char>(static_cast<size_t>(n * token) * size_of(type), 0xff)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t x = 0; x < heads; ++x)
        for (int64_t i = 0; i < dim; ++i) {
          const float value = normal(random);
          const uint16_t half = dtype == DType::f16 ? float_to_fp16(value) : float_to_bf16(value);
          std::memcpy(at(bytes.host, t, x, i), dtype == DType::f32 ? static_cast<const void*>(&value) : &half,
                      size_of(dtype));
        }
    bytes.upload();
  }
  unsigned char* at(std::vector<unsigned char>& from, int64_t t, int64_t h, int64_t d) const {
    return from.data() + static_cast<size_t>(t * token + h * head + d) * size_of(dtype);
  }
  HeadRows on_device(int64_t first = 0) const {
    return {bytes.device + static_cast<size_t>(first * token) * size_of(dtype), token, head};
  }
  HeadRows on_host() const { return {bytes.host.data(), token, head}; }
  WrittenHeadRows written(int64_t first = 0) const {
    return {bytes.device + static_cast<size_t>(first * token) * size_of(dtype), token, head};
  }
  std::vector<double> values(const std::string& what) const {
    std::vector<unsigned char> now = bytes.download();
    std::vector<double> out;
    bool kept = true;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t d = 0; d < dim; ++d) {
          float x = 0;
          uint16_t half = 0;
          std::memcpy(&half, at(now, t, h, d), 2);
          std::memcpy(&x, at(now, t, h, d), dtype == DType::f32 ? 4 : 2);
          out.push_back(double{dtype == DType::f32   ? x
                               : dtype == DType::f16 ? fp16_to_float(half)
                                                     : bf16_to_float(half)});
        }
        for (size_t i = 0; i < static_cast<size_t>(head - dim) * size_of(dtype); ++i)
          kept = kept && at(now, t, h, dim)[i] == 0xff;
      }
    expect(kept, what + ": elements between the rows were written");
    return out;
  }
};

/// ||got - expected|| / ||expected||, infinite when one is not a number; and the largest of single rows of
/// `width` elements, relative to the root mean square of all.
struct Difference {
  double all = 0, row = 0;
};
inline Difference difference(const std::vector<double>& got, const std::vector<double>& expected,
                             size_t width) {
  double error = 0, norm = 0, worst = 0;
  for (size_t r = 0; r < expected.size(); r += width) {
    double of_row = 0;
    for (size_t i = r; i < std::min(r + width, expected.size()); ++i) {
      const double d = got[i] - expected[i];
      of_row += std::isnan(d) ? std::numeric_limits<double>::infinity() : d * d;
      norm += expected[i] * expected[i];
    }
    error += of_row;
    worst = std::max(worst, of_row);
  }
  if (error == 0) return {};
  const double count = static_cast<double>(expected.size()) / static_cast<double>(width);
  return {std::sqrt(error / norm), std::sqrt(worst * count / norm)};
}

inline std::vector<double> widened(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

}  // namespace fovea::cuda
