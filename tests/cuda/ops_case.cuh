#pragma once
// Shared by the device programs of the row operations and the experts: matrices on the device whose gaps and
// outputs are poisoned, comparisons, and times.
#include <cuda_runtime.h>
#include <utility>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/float16.h"
#include "cuda_check.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea::cuda {

inline int failures = 0;

inline void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  if (failures <= 40) std::printf("FAILED %s\n", what.c_str());
}

inline void launched(const Status& status, int line) {
  if (!status.ok()) {
    std::printf("line %d: %s\n", line, status.error().message.c_str());
    std::exit(1);
  }
}
#define LAUNCH(expression) ::fovea::cuda::launched((expression), __LINE__)

inline CudaStream& stream() {
  static CudaStream s = CudaStream::borrow(nullptr, 0);
  return s;
}

/// A counter-based normal generator.
inline float gaussian(uint64_t stream, uint64_t index) {
  uint64_t x = stream * 0x9e3779b97f4a7c15ull + index * 0xbf58476d1ce4e5b9ull + 1;
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9ull, x ^= x >> 27, x *= 0x94d049bb133111ebull, x ^= x >> 31;
    sum += static_cast<float>(x >> 40) * 0x1p-24f - 0.5f;
  }
  return sum * 1.7320508f;
}

/// Device memory that has been used, by size: allocating takes longer than most cases.
inline std::unordered_map<size_t, std::vector<void*>>& spare_memory() {
  static std::unordered_map<size_t, std::vector<void*>> spare;
  return spare;
}

/// Device memory of n elements, poisoned with 0xff.
template <class T>
struct Device {
  T* data = nullptr;
  size_t count = 0;

  explicit Device(size_t n) : count(n) {
    std::vector<void*>& spare = spare_memory()[bytes()];
    if (spare.empty()) {
      CUDA_CHECK(cudaMalloc(&data, bytes()));
    } else {
      data = static_cast<T*>(spare.back());
      spare.pop_back();
    }
    poison();
  }
  explicit Device(const std::vector<T>& host) : Device(host.size()) {
    if (count > 0) copy_to_device(data, host.data(), count * sizeof(T));
  }
  Device(Device&& o) noexcept : data(o.data), count(o.count) { o.data = nullptr; }
  Device& operator=(Device&& o) noexcept {
    std::swap(data, o.data), std::swap(count, o.count);
    return *this;
  }
  ~Device() {
    if (data == nullptr) return;
    if (bytes() < (size_t{64} << 20))
      spare_memory()[bytes()].push_back(data);
    else
      cudaFree(data);
  }
  size_t bytes() const { return std::max<size_t>(count, 1) * sizeof(T); }

  void poison() { set_bytes(data, 0xff, bytes()); }
  std::vector<T> host() const {
    std::vector<T> h(count);
    if (count > 0) CUDA_CHECK(cudaMemcpy(h.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return h;
  }
};

inline float from_bits(DType dtype, const std::byte* at) {
  if (dtype == DType::f32) {
    float x;
    std::memcpy(&x, at, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

inline void to_bits(DType dtype, float x, std::byte* at) {
  if (dtype == DType::f32) {
    std::memcpy(at, &x, 4);
    return;
  }
  const uint16_t bits = dtype == DType::f16 ? float_to_fp16(x) : float_to_bf16(x);
  std::memcpy(at, &bits, 2);
}

inline float rounded_to(DType dtype, float x) {
  std::byte bits[4];
  to_bits(dtype, x, bits);
  return from_bits(dtype, bits);
}

inline constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
inline constexpr float kNan = NAN;

inline std::string name_of(DType type) {
  return std::string(to_string(type));
}

/// Rows of `dim` elements, `stride` apart; what lies between is poisoned.
struct Matrix {
  DType dtype;
  int64_t rows, dim, stride;
  Device<std::byte> memory;

  Matrix(DType type, int64_t r, int64_t d, int64_t gap = 0)
      : dtype(type),
        rows(r),
        dim(d),
        stride(d + gap),
        memory(static_cast<size_t>(r * (d + gap)) * size_of(type)) {}

  /// f(row, column), rounded.
  template <class F>
  static Matrix make(DType type, int64_t r, int64_t d, int64_t gap, F&& f) {
    Matrix m(type, r, d, gap);
    std::vector<std::byte> bytes(m.memory.count, std::byte{0xff});
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < d; ++j)
        to_bits(type, f(i, j), bytes.data() + static_cast<size_t>(i * m.stride + j) * size_of(type));
    copy_to_device(m.memory.data, bytes.data(), bytes.size());
    return m;
  }
  static Matrix random(DType type, int64_t r, int64_t d, int64_t gap, uint64_t seed, float scale = 1.0f) {
    return make(type, r, d, gap, [&](int64_t i, int64_t j) {
      return scale * gaussian(seed, static_cast<uint64_t>(i * d + j));
    });
  }

  std::byte* row(int64_t r) const { return memory.data + static_cast<size_t>(r * stride) * size_of(dtype); }
  void* data() const { return memory.data; }

  /// [rows, dim]; reports writes to the gaps.
  std::vector<float> values(const std::string& name) const {
    const std::vector<std::byte> bytes = memory.host();
    std::vector<float> out(static_cast<size_t>(rows * dim));
    bool clean = true;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < stride; ++j) {
        const std::byte* at = bytes.data() + static_cast<size_t>(i * stride + j) * size_of(dtype);
        if (j < dim)
          out[static_cast<size_t>(i * dim + j)] = from_bits(dtype, at);
        else
          for (size_t b = 0; b < size_of(dtype); ++b)
            clean = clean && at[b] == std::byte{0xff};
      }
    expect(clean, name + ": wrote between rows");
    return out;
  }
  std::vector<std::byte> row_bytes(int64_t r) const {
    std::vector<std::byte> out(static_cast<size_t>(dim) * size_of(dtype));
    CUDA_CHECK(cudaMemcpy(out.data(), row(r), out.size(), cudaMemcpyDeviceToHost));
    return out;
  }
};

/// Whether results rounded to `dtype` are close to fp64 values; NaN must meet NaN. `slack` is the error
/// allowed on top of rounding, relative to the row's largest value.
inline bool close(const std::vector<float>& got, const std::vector<double>& want, DType dtype, int64_t dim,
                  double slack) {
  if (got.size() != want.size()) return false;
  const double unit = dtype == DType::f32 ? 0x1p-24 : dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  for (size_t row = 0; row * static_cast<size_t>(dim) < got.size(); ++row) {
    double most = 0;
    for (size_t i = row * static_cast<size_t>(dim); i < (row + 1) * static_cast<size_t>(dim); ++i)
      if (std::isfinite(want[i])) most = std::max(most, std::fabs(want[i]));
    for (size_t i = row * static_cast<size_t>(dim); i < (row + 1) * static_cast<size_t>(dim); ++i) {
      if (std::isnan(want[i]) != std::isnan(got[i])) return false;
      if (std::isnan(want[i]) || want[i] == static_cast<double>(got[i])) continue;
      if (!(std::fabs(got[i] - want[i]) <= unit * std::fabs(want[i]) + slack * most + 1e-7)) return false;
    }
  }
  return true;
}

/// Microseconds of one f(), of many captured in a graph; the median of several replays.
template <class F>
float microseconds(F&& f, int in_graph = 20) {
  cudaStream_t handle;
  CUDA_CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  CudaStream captured = CudaStream::borrow(handle, 0);
  f(captured);
  CUDA_CHECK(cudaStreamSynchronize(handle));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < in_graph; ++i)
    f(captured);
  CUDA_CHECK(cudaStreamEndCapture(handle, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 7; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, handle));
    CUDA_CHECK(cudaGraphLaunch(exec, handle));
    CUDA_CHECK(cudaEventRecord(end, handle));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1000.0f / static_cast<float>(in_graph));
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(handle);
  return times[times.size() / 2];
}

/// Prints how far the checks are.
inline void progress(const char* what) {
  static const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %.1f s, %d failures\n", what, seconds.count(), failures);
}

/// False with a message without a GPU: the program then exits with 77.
inline bool have_gpu() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return true;
  cudaGetLastError();
  std::printf("no GPU\n");
  return false;
}

}  // namespace fovea::cuda
