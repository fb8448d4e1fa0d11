#pragma once
// Times of the MLA kernels beside their two floors: a plain read of the records, and their products at the
// rate of bare wgmma.
#include <cuda.h>

#include "sm80_bench.cuh"

namespace fovea::cuda {

struct MlaShape {
  int heads, batch, keys, n_q;
};

struct MlaTime {
  MlaShape shape;
  std::string kernel;
  int page, split_keys;
  double us, read_us, tflops;
};

inline constexpr double kProductRate = 800;  ///< TFLOP/s

inline MlaTime bench_mla(const char* name, const Kernel& kernel, const MlaShape& shape, int page,
                         Pool& pool) {
  constexpr int kRecord = 576, kValue = 512;
  const int64_t pages_of_seq = (shape.keys + page - 1) / page, page_bytes = int64_t{page} * kRecord * 2;
  const int64_t bytes = int64_t{shape.batch} * shape.keys * kRecord * 2;
  const int64_t pool_pages = static_cast<int64_t>(pool.memory.count) * 4 / page_bytes;
  const int64_t pages_of_set = pages_of_seq * shape.batch;
  const int sets = static_cast<int>(std::max<int64_t>(
      1, std::min<int64_t>({8, (int64_t{268} << 20) / bytes + 1, pool_pages / pages_of_set})));
  const int calls = std::max(sets, 4);
  std::vector<int32_t> order(pool_pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  const size_t rows = static_cast<size_t>(shape.batch) * shape.n_q * shape.heads;
  DeviceArray<uint32_t> q(rows * kRecord / 2);
  fill_normal<<<256, 256>>>(q.data, q.count, 5, 0);
  DeviceArray<uint16_t> out(rows * kValue);
  DeviceArray<int32_t> table(order);
  std::vector<AttentionParams> params;
  std::vector<DeviceSchedule> schedules;
  std::vector<int> items;
  schedules.reserve(sets);
  for (int set = 0; set < sets; ++set) {
    std::vector<Shape> shapes;
    for (int b = 0; b < shape.batch; ++b)
      shapes.push_back({shape.n_q, shape.keys, b * shape.n_q, set * pages_of_set + b * pages_of_seq});
    const Schedule s = kernel.schedule(shapes, shape.heads, {});
    schedules.emplace_back(s, 1, kernel.info.rows, kValue);
    items.push_back(static_cast<int>(s.items.size()));
    AttentionParams a;
    a.q = q.data, a.out = out.data;
    a.q_rows.row_stride = int64_t{shape.heads} * kRecord, a.q_rows.head_stride = kRecord;
    a.out_rows.row_stride = int64_t{shape.heads} * kValue, a.out_rows.head_stride = kValue;
    a.group = FastDivisor(shape.heads), a.kv_heads = FastDivisor(1);
    a.head_dim = kRecord, a.v_head_dim = kValue;
    a.scale = 1.0f / std::sqrt(192.0f);
    a.kv.k = a.kv.v = reinterpret_cast<const char*>(pool.memory.data);
    a.kv.k_page_stride = a.kv.v_page_stride = page_bytes;
    a.kv.k_slot_stride = a.kv.v_slot_stride = kRecord * 2;
    a.kv.page_size = FastDivisor(page);
    a.kv.pages = table.data;
    schedules.back().put(a);
    params.push_back(a);
  }
  MlaTime t{shape, name, page, kernel.info.split_keys, 0, 0, 0};
  t.us = graph_time(
      calls, [&](int i, cudaStream_t stream) { kernel.launch(params[i % sets], items[i % sets], stream); });
  const size_t words = bytes / 16;
  t.read_us = graph_time(calls, [&](int i, cudaStream_t stream) {
    read_bytes<<<sm_count() * 4, 512, 0, stream>>>(
        reinterpret_cast<const uint4*>(pool.memory.data) + (i % sets) * words, words, pool.memory.data);
  });
  const double flops = 2.0 * static_cast<double>(rows) * (kRecord + kValue) * shape.keys;
  t.tflops = flops / t.us * 1e-6;
  std::printf(
      "%-8s H%-3d B%-3d %6d keys, n_q %d, page %-2d split %-4d %9.1f us  read %8.1f us, ratio %.3f  %6.1f "
      "TFLOP/s, "
      "of %.0f: %.3f\n",
      name, shape.heads, shape.batch, shape.keys, shape.n_q, page, t.split_keys, t.us, t.read_us,
      t.us / t.read_us, t.tflops, kProductRate, t.tflops / kProductRate);
  std::fflush(stdout);
  return t;
}

/// Writes the times as JSON. `commit` names the sources.
inline void write_json(const char* path, const std::vector<MlaTime>& times, const char* commit) {
  cudaDeviceProp device;
  CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
  std::FILE* f = std::fopen(path, "w");
  if (f == nullptr) {
    std::printf("%s: cannot be written\n", path);
    std::exit(1);
  }
  char driver[64] = "unknown";
  if (std::FILE* version = std::fopen("/sys/module/nvidia/version", "r"); version != nullptr) {
    if (std::fscanf(version, "%63s", driver) != 1) std::snprintf(driver, sizeof driver, "unknown");
    std::fclose(version);
  }
  std::fprintf(f,
               "{\n  \"device\": \"%s\",\n  \"driver\": \"%s\",\n  \"commit\": \"%s\",\n  \"command\": "
               "\"cuda_mla bench FILE "
               "COMMIT\",\n  \"product_tflops\": %.0f,\n  \"cases\": [",
               device.name, driver, commit, kProductRate);
  for (size_t i = 0; i < times.size(); ++i) {
    const MlaTime& t = times[i];
    std::fprintf(
        f,
        "%s\n    {\"kernel\": \"%s\", \"heads\": %d, \"batch\": %d, \"keys\": %d, \"n_q\": %d, \"page\": %d, "
        "\"split_keys\": %d, \"us\": %.2f, \"read_us\": %.2f, \"read_ratio\": %.3f, \"tflops\": %.1f, "
        "\"of_products\": %.3f}",
        i == 0 ? "" : ",", t.kernel.c_str(), t.shape.heads, t.shape.batch, t.shape.keys, t.shape.n_q, t.page,
        t.split_keys, t.us, t.read_us, t.us / t.read_us, t.tflops, t.tflops / kProductRate);
  }
  std::fprintf(f, "\n  ]\n}\n");
  std::fclose(f);
}

}  // namespace fovea::cuda
