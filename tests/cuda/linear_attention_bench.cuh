#pragma once
// Times of the linear attention kernels, each beside its floor, as JSON.
#include <algorithm>

#include "device/gpu.h"
#include "linear_attention_device.cuh"

namespace fovea::cuda {

__global__ inline void fill_random(void* to, int64_t count, bool half, float scale, float shift,
                                   uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint64_t x = (static_cast<uint64_t>(i) + seed) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    float sum = -2.0f;
    for (int part = 0; part < 4; ++part)
      sum += static_cast<float>((x >> (16 * part)) & 0xffff) * (1.0f / 65536.0f);
    const float value = shift + scale * 1.7320508f * sum;
    if (half)
      static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16_rn(value);
    else
      static_cast<float*>(to)[i] = value;
  }
}

/// Random device memory: bf16 near N(0, scale^2), or floats about `shift`.
struct Filled {
  void* data = nullptr;
  Filled(int64_t count, bool half, float scale, float shift = 0, uint64_t seed = 1) {
    CUDA_CHECK(cudaMalloc(&data, static_cast<size_t>(count) * (half ? 2 : 4)));
    fill_random<<<2048, 256>>>(data, count, half, scale, shift, seed);
    CUDA_CHECK(cudaGetLastError());
  }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;
  ~Filled() { cudaFree(data); }
  const float* floats() const { return static_cast<const float*>(data); }
};

/// Median seconds of one call.
inline double seconds_of(CudaStream& stream, const std::function<Status()>& call, const char* name) {
  cudaEvent_t start = nullptr, end = nullptr;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < 13; ++i) {
    CUDA_CHECK(cudaEventRecord(start, stream.handle()));
    const Status done = call();
    if (!done.ok()) {
      std::printf("%s: %s\n", name, done.error().message.c_str());
      std::exit(1);
    }
    CUDA_CHECK(cudaEventRecord(end, stream.handle()));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, end));
    if (i >= 3) times.push_back(ms * 1e-3);
  }
  CUDA_CHECK(cudaGetLastError());
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

class LinearBench {
 public:
  LinearBench(CudaStream& stream, const char* file, std::string only)
      : stream_(stream), file_(file), only_(std::move(only)) {
    constexpr size_t kBytes = size_t{1} << 30;
    const Filled from(kBytes / 4, false, 1), to(kBytes / 4, false, 1);
    copy_ = 2.0 * kBytes /
            seconds_of(
                stream,
                [&]() -> Status {
                  cudaMemcpyAsync(to.data, from.data, kBytes, cudaMemcpyDeviceToDevice, stream_.handle());
                  return {};
                },
                "copy");
    const auto rate = measure_gpu_matmul_rate(stream.device(), 8192, 20);
    matmul_ = rate ? *rate : 0;
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, stream.device()));
    std::printf("%s: copy %.0f GB/s, bf16 matmul %.0f TFLOP/s\n", properties.name, copy_ * 1e-9,
                matmul_ * 1e-12);
    text_ = std::string(" \"device\": \"") + properties.name +
            "\",\n \"copy_bytes_per_s\": " + std::to_string(copy_) +
            ",\n \"matmul_flops\": " + std::to_string(matmul_) + ",\n \"rows\": [";
  }
  ~LinearBench() {
    if (file_ == nullptr) return;
    if (std::FILE* f = std::fopen(file_, "w")) {
      std::fprintf(f, "{\n%s\n ]\n}\n", text_.c_str());
      std::fclose(f);
    }
  }

  /// One call's seconds against the bytes that it must move and the operations that it is counted with.
  void add(const std::string& name, double seconds, double bytes, double operations) {
    const double bandwidth = bytes / seconds / copy_, rate = matmul_ > 0 ? operations / seconds / matmul_ : 0;
    std::printf("%-44s %9.1f us, %6.1f%% of the bandwidth, %5.1f%% of the matmul rate (%.0f TFLOP/s)\n",
                name.c_str(), seconds * 1e6, 100 * bandwidth, 100 * rate, operations / seconds * 1e-12);
    text_ += std::string(first_ ? "" : ",") + "\n  {\"name\": \"" + name +
             "\", \"seconds\": " + std::to_string(seconds * 1e6) +
             "e-6, \"bytes\": " + std::to_string(bytes) + ", \"operations\": " + std::to_string(operations) +
             ", \"share_of_copy_bandwidth\": " + std::to_string(bandwidth) +
             ", \"share_of_matmul_rate\": " + std::to_string(rate) + "}";
    first_ = false;
  }

  bool wanted(const std::string& name) const { return name.find(only_) != std::string::npos; }

  void recurrence(const std::string& name, int seqs, int len, int heads, int k_heads, LinearForm form,
                  bool lightning) {
    if (!wanted(name)) return;
    constexpr int kDim = 128;
    const int64_t tokens = int64_t{seqs} * len, wide = int64_t{heads} * kDim,
                  narrow = int64_t{k_heads} * kDim;
    const Filled q(tokens * narrow, true, 1, 0, 1), k(tokens * narrow, true, lightning ? 0.3f : 1, 0, 2),
        v(tokens * wide, true, 1, 0, 3), g(tokens * heads, false, 0.02f, -0.1f, 4),
        beta(tokens * heads, false, 0.15f, 0.5f, 5),
        states(int64_t{seqs} * heads * kDim * kDim, false, 0.1f, 0, 6);
    Filled out(tokens * wide, true, 0);
    std::vector<int32_t> ends(static_cast<size_t>(seqs) + 1);
    for (int b = 0; b <= seqs; ++b)
      ends[static_cast<size_t>(b)] = b * len;
    const Both<int32_t> offsets(ends);
    GatedDeltaRule c;
    c.heads = heads;
    c.k_heads = k_heads;
    c.dk = c.dv = kDim;
    c.q = {q.data, narrow, kDim};
    c.k = {k.data, narrow, kDim};
    c.v = {v.data, wide, kDim};
    c.out = {out.data, wide, kDim};
    c.sequences = {seqs, static_cast<int>(tokens), len, offsets.device};
    c.g = g.floats();
    c.beta = beta.floats();
    c.g_stride = c.beta_stride = heads;
    c.normalize_qk = true;
    c.states = {states.floats(), static_cast<float*>(states.data), nullptr, nullptr, seqs};
    c.form = form;
    LightningAttention l;
    l.heads = heads;
    l.dk = l.dv = kDim;
    l.q = c.q;
    l.k = c.k;
    l.v = c.v;
    l.out = c.out;
    l.sequences = c.sequences;
    l.states = c.states;
    l.form = form;
    l.log_decay = g.floats();
    const double t = seconds_of(
        stream_, [&] { return lightning ? launch_lightning(l, stream_) : launch_gated_delta(c, stream_); },
        name.c_str());
    const double d = kDim, units = static_cast<double>(tokens) * heads;
    const double bytes = 2.0 * static_cast<double>(tokens * (2 * narrow + 2 * wide)) +
                         8.0 * seqs * heads * d * d + (lightning ? 0.0 : 8.0 * units);
    add(name, t, bytes, units * (lightning ? 4 * d * d + 2 * 64 * d : 6 * d * d + 4 * 64 * d));
  }

  void hstu(const std::string& name, int seqs, int len, int heads, int dim, bool biases) {
    if (!wanted(name)) return;
    const int64_t tokens = int64_t{seqs} * len, wide = int64_t{heads} * dim;
    const Filled q(tokens * wide, true, 1, 0, 1), k(tokens * wide, true, 1, 0, 2),
        v(tokens * wide, true, 1, 0, 3), out(tokens * wide, true, 0), position(2 * len - 1, false, 1),
        time(129, false, 1);
    std::vector<int32_t> ends(static_cast<size_t>(seqs) + 1);
    for (int b = 0; b <= seqs; ++b)
      ends[static_cast<size_t>(b)] = b * len;
    std::vector<int64_t> all_times(static_cast<size_t>(tokens)), all_bounds(128);
    for (size_t i = 0; i < all_times.size(); ++i)
      all_times[i] = 1700000000 + static_cast<int64_t>(i * 977);
    hstu_time_bounds(128, all_bounds.data());
    const Both<int32_t> offsets(ends);
    const Both<int64_t> times(all_times), bounds(all_bounds);
    HstuAttention c;
    c.heads = heads;
    c.dk = c.dv = dim;
    c.q = {q.data, wide, dim};
    c.k = {k.data, wide, dim};
    c.v = {v.data, wide, dim};
    c.out = {out.data, wide, dim};
    c.sequences = {seqs, static_cast<int>(tokens), len, offsets.device};
    c.max_seq_len = len;
    if (biases) {
      c.position_bias = position.floats();
      c.time_bias = time.floats();
      c.time_bounds = bounds.device;
      c.time_buckets = 128;
      c.times = times.device;
    }
    const double t = seconds_of(stream_, [&] { return launch_hstu(c, stream_); }, name.c_str());
    const double pairs = 0.5 * seqs * heads * static_cast<double>(len) * (len + 1.0);
    add(name, t, 8.0 * static_cast<double>(tokens * wide), 4.0 * dim * pairs);
  }

 private:
  CudaStream& stream_;
  const char* file_;
  std::string only_;
  double copy_ = 0, matmul_ = 0;
  std::string text_;
  bool first_ = true;
};

inline void bench_linear_attention(CudaStream& stream, const char* file, const char* only) {
  LinearBench bench(stream, file, only);
  for (const bool lightning : {false, true}) {
    const std::string rule = lightning ? "lightning" : "gated delta";
    const int heads = 32, k_heads = lightning ? 32 : 16;
    for (const int batch : {1, 16, 64, 256})
      bench.recurrence(rule + " decode, " + std::to_string(batch) + " sequences", batch, 1, heads, k_heads,
                       LinearForm::recurrent, lightning);
    bench.recurrence(rule + " prefill, 16 x 4096", 16, 4096, heads, heads, LinearForm::chunked, lightning);
    if (!lightning)
      bench.recurrence(rule + " prefill, 16 x 4096, 16 heads of k", 16, 4096, heads, k_heads,
                       LinearForm::chunked, false);
    bench.recurrence(rule + " prefill, 1 x 16384", 1, 16384, heads, k_heads, LinearForm::chunked, lightning);
    bench.recurrence(rule + " recurrent, 64 x 16", 64, 16, heads, k_heads, LinearForm::recurrent, lightning);
  }
  for (const int dim : {64, 128}) {
    bench.hstu("HSTU, 32 x 2048, 4 heads of " + std::to_string(dim), 32, 2048, 4, dim, false);
    bench.hstu("HSTU, 4 x 8192, 4 heads of " + std::to_string(dim), 4, 8192, 4, dim, false);
  }
  bench.hstu("HSTU with biases, 32 x 2048, 4 heads of 128", 32, 2048, 4, 128, true);
}

}  // namespace fovea::cuda
