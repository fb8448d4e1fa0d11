#pragma once
// Times of decode kernels compared with a plain read of the same bytes.
#include <numeric>
#include <random>

#include "device_runner.cuh"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda {

__global__ void fill_normal(uint32_t* data, size_t count, uint32_t seed, int kind) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    float x[4];
    for (float& v : x) {
      h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
      v = (static_cast<float>(h & 0xff) + static_cast<float>(h >> 8 & 0xff) +
           static_cast<float>(h >> 16 & 0xff) + static_cast<float>(h >> 24) - 510.0f) /
          148.0f;
    }
    if (kind == 0) {
      data[i] = pack<__nv_bfloat16>(x[0], x[1]);
    } else {
      uint32_t bytes = 0;
      for (int b = 0; b < 4; ++b) {
        const __half v = __float2half(x[b]);
        uint16_t bits;
        memcpy(&bits, &v, 2);
        // e5m2 is the high byte of fp16; for e4m3 and int8 these bits are also numbers of moderate size.
        bytes |= static_cast<uint32_t>(bits >> 8) << (8 * b);
      }
      data[i] = kind == 1 ? bytes & 0xbfbfbfbfu : bytes;
    }
  }
}

__global__ __launch_bounds__(512) void read_bytes(const uint4* __restrict__ data, size_t words,
                                                  uint32_t* sink) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  uint32_t sum = 0;
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (; i + 3 * stride < words; i += 4 * stride) {
    uint4 w[4];
#pragma unroll
    for (int u = 0; u < 4; ++u)
      w[u] = __ldcs(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < 4; ++u)
      sum |= w[u].x ^ w[u].y ^ w[u].z ^ w[u].w;
  }
  for (; i < words; i += stride)
    sum |= data[i].x ^ data[i].y;
  if (sum == 0x12345678u) *sink = sum;
}

/// Microseconds per call of a graph of `calls` calls: the median over its replays.
template <class F>
double graph_time(int calls, F&& call) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < calls; ++i)
    call(i, stream);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<double> times;
  CUDA_CHECK(cudaGraphLaunch(executable, stream));
  CUDA_CHECK(cudaGraphLaunch(executable, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  double total = 0;
  while (times.size() < 200 && (times.size() < 5 || total < 60e3)) {
    CUDA_CHECK(cudaEventRecord(begin, stream));
    CUDA_CHECK(cudaGraphLaunch(executable, stream));
    CUDA_CHECK(cudaEventRecord(end, stream));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(1e3 * ms / calls);
    total += 1e3 * ms;
  }
  cudaEventDestroy(begin), cudaEventDestroy(end), cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct Pool {
  DeviceArray<uint32_t> memory;
  explicit Pool(size_t bytes, int kind) : memory(bytes / 4) {
    fill_normal<<<4096, 256>>>(memory.data, memory.count, 17, kind);
    CUDA_CHECK(cudaDeviceSynchronize());
  }
};

enum class Pages : uint8_t { nhd, hnd, x_packed, shuffle };

/// The strides of dense pages in the layout, of K and V of the same head size.
inline void put_pages(KvParams& kv, Pages layout, int64_t dim, int64_t element) {
  if (layout == Pages::nhd) return;
  const int64_t page = kv.page_size.divisor, head = page * dim * element;
  kv.k_head_stride = kv.v_head_stride = head;
  kv.k_slot_stride = kv.v_slot_stride = dim * element;
  if (layout == Pages::hnd) return;
  kv.k_slot_stride = 16, kv.k_chunk_stride = page * 16;
  kv.v_slot_stride = element;
  kv.v_dim_stride = layout == Pages::shuffle ? 16 : page * element;
  kv.v_chunk_stride = layout == Pages::shuffle ? dim * 16 : 0;
}

struct DecodeShape {
  const char* name;
  std::vector<int> lengths;
};

inline std::vector<DecodeShape> decode_shapes() {
  std::vector<DecodeShape> s = {{"B1 ctx8192", {8192}},
                                {"B1 ctx131072", {131072}},
                                {"B16 ctx8192", std::vector<int>(16, 8192)},
                                {"B128 ctx2048", std::vector<int>(128, 2048)},
                                {"B128 ctx8192", std::vector<int>(128, 8192)},
                                {"B64 mixed", {}}};
  std::mt19937 random(5);
  for (int i = 0; i < 64; ++i)
    s.back().lengths.push_back(128 << (random() % 8));
  return s;
}

/// Runs one shape with one page size; prints microseconds, GB/s of K and V, and the ratio to the time of a
/// plain read. `rows`: query rows of a sequence, as where drafts are verified.
inline void bench_decode(const char* name, const Kernel& kernel, const DecodeShape& shape, int page,
                         Pool& pool, int element, int head_dim = 128, int kv_heads = 8, int group = 4,
                         bool read = true, int rows = 1, Pages layout = Pages::nhd) {
  int64_t tokens = 0, pages_of_set = 0;
  for (const int n : shape.lengths) {
    tokens += n;
    pages_of_set += (n + page - 1) / page;
  }
  const int64_t token_bytes = 2ll * kv_heads * head_dim * element;
  const int64_t bytes = tokens * token_bytes;
  const int64_t page_bytes = page * token_bytes / 2;
  const int64_t pool_pages = static_cast<int64_t>(pool.memory.count) * 4 / 2 / page_bytes;
  const int sets = static_cast<int>(std::max<int64_t>(
      1, std::min<int64_t>({16, (int64_t{268} << 20) / bytes + 1, pool_pages / pages_of_set})));
  const int calls = std::max(sets, bytes > (int64_t{1} << 30) ? 2 : 4);
  std::vector<int32_t> order(pool_pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));

  const int batch = static_cast<int>(shape.lengths.size());
  const int heads = kv_heads * group;
  DeviceArray<uint32_t> q(static_cast<size_t>(batch) * rows * heads * head_dim / 2);
  fill_normal<<<64, 256>>>(q.data, q.count, 5, 0);
  DeviceArray<uint16_t> out(static_cast<size_t>(batch) * rows * heads * head_dim);
  DeviceArray<int32_t> table(order);
  std::vector<AttentionParams> params;
  std::vector<DeviceSchedule> schedules;
  std::vector<int> items;
  schedules.reserve(sets);
  for (int set = 0; set < sets; ++set) {
    std::vector<Shape> shapes;
    int64_t next = set * pages_of_set;
    for (int b = 0; b < batch; ++b) {
      shapes.push_back({rows, shape.lengths[b], b * rows, next});
      next += (shape.lengths[b] + page - 1) / page;
    }
    const Schedule s = kernel.schedule(shapes, group, {});
    schedules.emplace_back(s, kv_heads, kernel.info.rows, kernel.info.v_head_dim);
    items.push_back(static_cast<int>(s.items.size()));
    AttentionParams a;
    a.q = q.data;
    a.out = out.data;
    a.q_rows.row_stride = a.out_rows.row_stride = static_cast<int64_t>(heads) * head_dim;
    a.q_rows.head_stride = a.out_rows.head_stride = head_dim;
    a.group = FastDivisor(group);
    a.kv_heads = FastDivisor(kv_heads);
    a.head_dim = a.v_head_dim = head_dim;
    a.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    a.kv.type = kernel.info.kv;
    a.kv.k = reinterpret_cast<const char*>(pool.memory.data);
    a.kv.v = a.kv.k + pool_pages * page_bytes;
    a.kv.k_page_stride = a.kv.v_page_stride = page_bytes;
    a.kv.k_slot_stride = a.kv.v_slot_stride = token_bytes / 2;
    a.kv.k_head_stride = a.kv.v_head_stride = head_dim * element;
    a.kv.page_size = FastDivisor(page);
    a.kv.pages = table.data;
    put_pages(a.kv, layout, head_dim, element);
    schedules.back().put(a);
    params.push_back(a);
  }
  const double us = graph_time(
      calls, [&](int i, cudaStream_t stream) { kernel.launch(params[i % sets], items[i % sets], stream); });
  static double read_us = 0;
  if (read) {
    const size_t words = bytes / 16;
    read_us = graph_time(calls, [&](int i, cudaStream_t stream) {
      read_bytes<<<sm_count() * 4, 512, 0, stream>>>(
          reinterpret_cast<const uint4*>(pool.memory.data) + (i % sets) * words, words, pool.memory.data);
    });
  }
  std::printf("%-26s %-13s p%-3d %9.1f us %6.0f GB/s  read %9.1f us  ratio %.3f\n", name, shape.name, page,
              us, bytes / us * 1e-3, read_us, us / read_us);
  std::fflush(stdout);
}

}  // namespace fovea::cuda
