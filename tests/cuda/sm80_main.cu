// Device program of the sm80 kernels: `sm80_main check` and `sm80_main bench`.
#include "sm80_bench.cuh"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using namespace fovea::cuda::sm80;
using bf16 = __nv_bfloat16;
using f16 = __half;
template <int W, int S, class T = bf16, int M = 1>
using D128 = Decode<DecodePolicy<128, 128, T, T, M, W, S, false>>;
template <int D, int W, int Keys, int Slots, int Ahead, int Held, int Blocks, class T = bf16, int M = 2>
using E = Extend<ExtendPolicy<D, D, T, T, M, W, Keys, Slots, Ahead, Held, Blocks, false>>;

static std::vector<Problem> decode_problems() {
  std::vector<Problem> all;
  Problem p;
  p.name = "decode lengths";
  for (const int n : {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000, 1024, 1025, 0, 8191, 9000})
    p.seqs.push_back({1, n, static_cast<int>(p.seqs.size())});
  all.push_back(p);
  for (const int g : {1, 2, 3, 5, 7, 8, 12, 16}) {
    Problem x = p;
    x.name = "decode G=" + std::to_string(g);
    x.group = g;
    x.kv_heads = g == 1 ? 5 : 2;
    x.seqs = {{1, 100, 0}, {1, 1500, 1}, {1, 0, 2}, {1, 513, 3}};
    all.push_back(x);
  }
  for (const int page : {1, 3, 16, 64, 544}) {
    Problem x = p;
    x.name = "decode page " + std::to_string(page);
    x.page_size = page;
    x.heads_first = page == 64;
    x.sharp = 4;
    x.seqs = {{1, 777, 0}, {1, 1, 1}, {1, 2000, 2}};
    all.push_back(x);
  }
  Problem x = p;
  x.name = "decode of several tokens";
  x.seqs = {{4, 700, 0}, {3, 2, 1}, {0, 9, 2}, {4, 4, 3}, {2, 1500, 4}};
  all.push_back(x);
  x.name = "decode ragged, D 120";
  x.ragged = true;
  x.head_dim = x.v_head_dim = 120;
  all.push_back(x);
  return all;
}

static std::vector<Problem> extend_problems(int head_dim) {
  std::vector<Problem> all;
  Problem p;
  p.head_dim = p.v_head_dim = head_dim;
  p.name = "extend mixed";
  p.seqs = {{1, 1, 0}, {7, 7, 1}, {64, 64, 2}, {65, 130, 3}, {0, 40, 4}, {3, 0, 5}, {5, 2, 6}, {129, 400, 7}, {17, 513, 8}};
  for (const int g : {1, 3, 4, 8, 16}) {
    Problem x = p;
    x.group = g;
    x.name = "extend G=" + std::to_string(g);
    all.push_back(x);
  }
  for (const int page : {1, 3, 544}) {
    Problem x = p;
    x.page_size = page;
    x.heads_first = page == 3;
    x.name = "extend page " + std::to_string(page);
    all.push_back(x);
  }
  Problem x = p;
  x.ragged = true;
  x.sharp = 4;
  x.name = "extend ragged, sharp";
  all.push_back(x);
  x.mask.causal = false;
  x.name = "extend ragged, not causal";
  all.push_back(x);
  x.sinks = true;
  x.lse_includes_sink = true;
  x.name = "extend ragged, sinks";
  all.push_back(x);
  return all;
}

template <class Kernel>
static void check_all(std::vector<Problem> problems, const char* kernel, Element type) {
  for (Problem& p : problems) {
    p.q = p.kv = type;
    p.name = std::string(kernel) + " " + p.name;
    check<Kernel>(p);
  }
  std::printf("%s: %zu problems, %d failures so far\n", kernel, problems.size(), failures);
  std::fflush(stdout);
}

static void check_program() {
  check_all<D128<4, 3>>(decode_problems(), "decode 4 warps", Element::bf16);
  check_all<D128<8, 3>>(decode_problems(), "decode 8 warps", Element::bf16);
  check_all<D128<4, 3, f16>>(decode_problems(), "decode fp16", Element::f16);
  check_all<E<128, 8, 64, 10, 4, 0, 1>>(extend_problems(128), "extend 128", Element::bf16);
  check_all<E<128, 4, 64, 5, 3, 0, 2>>(extend_problems(128), "extend 128 x2", Element::bf16);
  check_all<E<128, 8, 32, 20, 8, 4, 1>>(extend_problems(128), "extend 128 k32", Element::bf16);
  check_all<E<64, 8, 64, 16, 6, 4, 1, f16>>(extend_problems(64), "extend 64 fp16", Element::f16);
  Problem p;
  p.name = "decode invariance";
  p.seqs = {{1, 300, 3}, {1, 5000, 1}, {1, 9500, 2}, {1, 17, 4}};
  check_invariance<D128<4, 3>>(p, 1, 0);
  check_invariance<D128<8, 3>>(p, 2, 0);
  p.name = "extend invariance";
  p.seqs = {{20, 300, 3}, {700, 1000, 1}, {33, 33, 2}};
  check_invariance<E<128, 8, 64, 10, 4, 0, 1>>(p, 1, 77);
  check_invariance<E<128, 4, 64, 5, 3, 0, 2>>(p, 1, 1);
  std::printf("%s: %d failures\n", failures == 0 ? "PASS" : "FAIL", failures);
}

static void bench_program() {
  {
    Pool pool(size_t{9} << 30, 0);
    for (const DecodeShape& shape : decode_shapes()) {
      bench_decode<D128<4, 3>>("decode 4 warps x2", shape, 16, pool, 2);
      bench_decode<D128<8, 3>>("decode 8 warps", shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode<D128<4, 2>>("decode 4 warps, 2 stages", shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode<D128<4, 3>>("decode 4 warps x2", shape, 1, pool, 2, 128, 8, 4, false);
      bench_decode<D128<8, 3>>("decode 8 warps", shape, 1, pool, 2, 128, 8, 4, false);
    }
  }
  Pool pool(size_t{1} << 30, 0);
  for (const int batch : {16, 4, 1}) {
    const int n = 16384 / batch;
    bench_extend<E<128, 8, 64, 10, 4, 0, 1>>("8 warps k64 10 slots ahead 4", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 64, 10, 6, 0, 1>>("8 warps k64 10 slots ahead 6", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 64, 10, 4, 1, 1>>("8 warps k64 q held 1", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 32, 20, 8, 0, 1>>("8 warps k32 q held 0", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 32, 20, 8, 4, 1>>("8 warps k32 q held 4", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 32, 20, 8, 8, 1>>("8 warps k32 q held 8", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 4, 64, 5, 3, 0, 2>>("4 warps x2 k64 5 slots ahead 3", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 4, 64, 5, 2, 0, 2>>("4 warps x2 k64 5 slots ahead 2", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 4, 32, 10, 6, 4, 2>>("4 warps x2 k32 q held 4", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 64, 10, 4, 0, 1>>("8 warps k64 10 slots ahead 4", batch, n, 16, pool, 128, true);
    bench_extend<E<64, 8, 64, 16, 6, 4, 1>>("D64 8 warps k64 q held 4", batch, n, 0, pool, 64, true);
    bench_extend<E<64, 4, 64, 8, 4, 4, 2>>("D64 4 warps x2 q held 4", batch, n, 0, pool, 64, true);
    bench_extend<E<64, 4, 64, 8, 4, 0, 2>>("D64 4 warps x2 q held 0", batch, n, 0, pool, 64, true);
    bench_extend<E<64, 8, 64, 12, 5, 0, 2, bf16, 1>>("D64 8 warps of 16 rows x2", batch, n, 0, pool, 64, true);
  }
  bench_extend<E<128, 8, 64, 10, 4, 0, 1>>("8 warps k64 10 slots ahead 4", 1, 16384, 0, pool, 128, false);
}

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d SMs\n", properties.name, properties.multiProcessorCount);
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check") check_program();
  if (what == "bench") bench_program();
  return failures == 0 ? 0 : 1;
}
