#pragma once
// Times of the linear layers: few rows against a plain read of the weights, many rows in TFLOP/s.
#include <functional>

#include "fovea/result.h"
#include "linear_check.cuh"

namespace fovea::cuda {

__global__ void __launch_bounds__(512) plain_read(const uint4* from, int64_t count, uint4* sink) {
  uint4 sum{};
  constexpr int kAhead = 8;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + (kAhead - 1) * step < count; i += kAhead * step) {
    uint4 v[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      v[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      sum.x ^= v[j].x, sum.y ^= v[j].y, sum.z ^= v[j].z, sum.w ^= v[j].w;
  }
  for (; i < count; i += step) {
    const uint4 v = __ldcs(from + i);
    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
  }
  if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678u) *sink = sum;
}

/// Median microseconds of one launch, from graphs of `launches` launches.
inline double microseconds(CudaStream& stream, int launches, int repeats,
                           const std::function<Status(int, CudaStream&)>& launch) {
  auto graph = CudaGraph::capture(stream, [&](CudaStream& s) -> Status {
    for (int i = 0; i < launches; ++i)
      FOVEA_RETURN_IF_ERROR(launch(i, s));
    return {};
  });
  if (!graph.ok()) {
    std::printf("capture: %s\n", graph.error().message.c_str());
    std::exit(1);
  }
  auto begin = CudaEvent::create(0, CudaEvent::Timing::on), end = CudaEvent::create(0, CudaEvent::Timing::on);
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    expect_ok(begin->record(stream), "event");
    expect_ok(graph->replay(stream), "replay");
    expect_ok(end->record(stream), "event");
    expect_ok(end->synchronize(), "event");
    if (i >= 2) times.push_back(*end->milliseconds_since(*begin) * 1000.0 / launches);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct BenchShape {
  const char* name;
  int64_t n, k;
  LinearEpilogue epilogue;
  bool f32;
};
inline constexpr BenchShape kBenchShapes[] = {
    {"qkv", 6144, 4096, LinearEpilogue::store, false},
    {"o", 4096, 4096, LinearEpilogue::store, false},
    {"gate_up", 28672, 4096, LinearEpilogue::gated, false},
    {"down", 4096, 14336, LinearEpilogue::store, false},
    {"lm_head", 128256, 4096, LinearEpilogue::logits, true},
};
/// Smaller weights, of Qwen3-0.6B and gpt-oss-20b.
inline constexpr BenchShape kSmallShapes[] = {
    {"0.6B qkv", 4096, 1024, LinearEpilogue::store, false},
    {"0.6B o", 1024, 2048, LinearEpilogue::store, false},
    {"0.6B down", 1024, 3072, LinearEpilogue::store, false},
    {"20b o", 2880, 4096, LinearEpilogue::store, false},
    {"20b qkv", 5120, 2880, LinearEpilogue::store, false},
    {"one block", 4096, 64, LinearEpilogue::store, false},
    {"8 blocks", 4096, 512, LinearEpilogue::store, false},
};

struct BenchMemory {
  DeviceBytes weights, x, y;
  BenchMemory(size_t weight_bytes, size_t x_bytes, size_t y_bytes)
      : weights(weight_bytes), x(x_bytes), y(y_bytes) {
    fill<__nv_bfloat16>(weights.data, 1 << 16, static_cast<int64_t>(weight_bytes >> 17), 1 << 16, 1, nullptr,
                        nullptr, 0.02f);
    fill<__nv_bfloat16>(x.data, 1 << 12, static_cast<int64_t>(x_bytes >> 13), 1 << 12, 2, nullptr, nullptr,
                        1.0f);
    CUDA_CHECK(cudaDeviceSynchronize());
  }
};

inline LinearParams bench_params(const BenchShape& s, const BenchMemory& m, int64_t rows, int copy) {
  LinearParams p;
  p.n = s.n, p.k = s.k;
  p.weight = m.weights.data + copy * packed_bytes(s.n, s.k);
  p.constant_weight = true;
  p.x = m.x.data, p.x_stride = s.k;
  p.rows = rows;
  p.y = m.y.data, p.y_stride = s.epilogue == LinearEpilogue::gated ? s.n / 2 : s.n;
  p.y_dtype = s.f32 ? DType::f32 : DType::bf16;
  p.epilogue = s.epilogue;
  return p;
}

struct Variant {
  const char* name;
  WgmmaOptions options;
};

template <size_t kShapes>
void bench_few(const BenchShape (&shapes)[kShapes], const std::vector<Variant>& variants,
               const std::vector<int>& row_counts, int multiprocessors) {
  const BenchMemory m(size_t{2200} << 20, size_t{4} << 20, size_t{64} << 20);
  auto stream = CudaStream::create(0);
  std::printf("microseconds a launch (percent of a plain read's speed)\n");
  for (const BenchShape& s : shapes) {
    const int64_t bytes = packed_bytes(s.n, s.k);
    const int copies =
        static_cast<int>(std::max<int64_t>(2, std::min<int64_t>(64, (int64_t{600} << 20) / bytes)));
    const double read = microseconds(*stream, copies, 15, [&](int i, CudaStream& c) -> Status {
      plain_read<<<multiprocessors * 4, 512, 0, c.handle()>>>(
          reinterpret_cast<const uint4*>(m.weights.data + i * bytes), bytes / 16,
          reinterpret_cast<uint4*>(m.y.data));
      return {};
    });
    std::printf("%-10s %6.1f MB  read %7.2f us %5.0f GB/s\n", s.name, bytes * 1e-6, read,
                bytes * 1e-3 / read);
    for (const Variant& v : variants) {
      std::printf("  %-22s", v.name);
      for (const int rows : row_counts) {
        const WgmmaPlan plan = plan_wgmma(rows, s.n, s.k, s.epilogue == LinearEpilogue::gated,
                                          multiprocessors, LinearKernel::automatic, v.options);
        if (!launch_wgmma_linear(bench_params(s, m, rows, 0), plan, stream->handle()).ok()) {
          std::printf("  M=%-3d refused", rows);
          continue;
        }
        const double t = microseconds(*stream, copies, 15, [&](int i, CudaStream& c) {
          return launch_wgmma_linear(bench_params(s, m, rows, i), plan, c.handle());
        });
        std::printf("  M=%-3d %7.2f (%3.0f%%)", rows, t, 100 * read / t);
      }
      std::printf("\n");
    }
    std::fflush(stdout);
  }
}

inline void bench_many(const std::vector<Variant>& variants, const std::vector<int>& row_counts,
                       int multiprocessors) {
  const BenchMemory m(size_t{1100} << 20, size_t{480} << 20, size_t{960} << 20);
  auto stream = CudaStream::create(0);
  for (const BenchShape& s : kBenchShapes) {
    if (s.epilogue == LinearEpilogue::logits) continue;
    for (const Variant& v : variants) {
      std::printf("%-8s %-20s", s.name, v.name);
      for (const int rows : row_counts) {
        const double flops = 2.0 * static_cast<double>(s.n) * static_cast<double>(s.k) * rows;
        const int launches = static_cast<int>(std::clamp(2e13 / flops, 2.0, 200.0));
        const WgmmaPlan plan = plan_wgmma(rows, s.n, s.k, s.epilogue == LinearEpilogue::gated,
                                          multiprocessors, LinearKernel::automatic, v.options);
        const double t = microseconds(*stream, launches, 7, [&](int, CudaStream& c) {
          return launch_wgmma_linear(bench_params(s, m, rows, 0), plan, c.handle());
        });
        std::printf("  M=%-5d %8.1f us %4.0f TFLOP/s", rows, t, flops * 1e-6 / t);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace fovea::cuda
