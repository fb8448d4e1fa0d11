// Device program of the sm80 kernels: `sm80_main check` and `sm80_main bench`.
#include "sm80_bench.cuh"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using namespace fovea::cuda::sm80;
using bf16 = __nv_bfloat16;
using f16 = __half;
template <int D, int Dv, int W, int S, int Split = 512, class T = bf16, KvType Kv = KvType::same, bool General = false,
          int Parts = 1>
using Dec = Decode<DecodePolicy<D, Dv, T, Kv, W, Parts, S, Split, General>>;
template <int W, int S, int Split = 512, class T = bf16>
using D128 = Dec<128, 128, W, S, Split, T>;
template <int D, int W, int Keys, int Slots, int Ahead, int Held, int Blocks, class T = bf16, int M = 2, bool Eight = false,
          bool General = false, int Parts = 1, int Dv = D>
using E = Extend<ExtendPolicy<D, Dv, T, Eight, M, W, Parts, Keys, Slots, Ahead, Held, Blocks, General>>;

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

static std::vector<Problem> with_dims(std::vector<Problem> all, int d, int dv) {
  for (Problem& p : all)
    p.head_dim = d, p.v_head_dim = dv;
  return all;
}

/// A few of a kind, for instances that differ in few lines.
static std::vector<Problem> few(std::vector<Problem> all) {
  std::vector<Problem> some;
  for (size_t i = 0; i < all.size(); i += 4)
    some.push_back(all[i]);
  return some;
}

static std::vector<Problem> eight_bit(std::vector<Problem> all, Element kv, bool scales) {
  for (Problem& p : all) {
    p.kv = kv;
    p.scales_per_token = scales;
    p.k_scale = scales ? 1.0f : 0.037f;
    p.v_scale = scales ? 1.0f : 0.021f;
    if (kv == Element::e4m3 && !scales) p.k_scale = 0.5f, p.v_scale = 0.25f;
    p.name += kv == Element::int8 ? " int8" : kv == Element::e4m3 ? " e4m3" : " e5m2";
    if (p.head_dim % 16 != 0) p.head_dim = p.v_head_dim = 112;
  }
  return all;
}

/// Every mask and every change of a score, on a few shapes.
static std::vector<Problem> general_problems(int n_q) {
  std::vector<Problem> all;
  Problem p;
  p.kv_heads = 2;
  p.group = 3;
  p.seqs = {{std::min(n_q, 1), 300, 0}, {n_q, 700, 1}, {n_q, n_q, 2}, {n_q, 2, 3}, {n_q, 0, 4}, {0, 5, 5}};
  auto add = [&](const char* name, auto&& change) {
    Problem x = p;
    x.name = std::string("general ") + name;
    change(x);
    all.push_back(x);
  };
  add("causal", [](Problem&) {});
  add("window 33, 0", [](Problem& x) { x.mask.window_left = 33; });
  add("window 5, 9", [](Problem& x) { x.mask.causal = false, x.mask.window_left = 5, x.mask.window_right = 9; });
  add("window and sink tokens", [](Problem& x) { x.mask.window_left = 40, x.mask.sink_tokens = 4; });
  add("chunk 100", [](Problem& x) { x.mask.chunk = 100; });
  add("softcap", [](Problem& x) { x.softcap = 5, x.sharp = 8; });
  add("sinks", [](Problem& x) { x.sinks = true; });
  add("sinks in lse", [](Problem& x) { x.sinks = x.lse_includes_sink = true; });
  add("alibi", [](Problem& x) { x.alibi = true; });
  add("alibi both ways", [](Problem& x) { x.alibi = true, x.mask.causal = false; });
  add("spans", [](Problem& x) { x.mask.spans = true; });
  add("spans and window", [](Problem& x) { x.mask.spans = true, x.mask.window_left = 20; });
  add("packed mask", [](Problem& x) { x.mask.packed = true, x.mask.causal = false; });
  add("tree", [n_q](Problem& x) { x.mask.tree = true, x.tree_size = n_q; });
  return all;
}

/// Long enough for splits of the extend kernel.
static std::vector<Problem> split_problems() {
  Problem p;
  p.name = "extend in splits";
  p.kv_heads = 1;
  p.group = 2;
  p.seqs = {{3, 40000, 0}, {2, 16385, 1}, {5, 16384, 2}};
  return {p};
}

static void check_program() {
  check_all<D128<4, 3>>(decode_problems(), "decode 4 warps", Element::bf16);
  check_all<D128<8, 3>>(decode_problems(), "decode 8 warps", Element::bf16);
  check_all<D128<4, 3, 256, f16>>(decode_problems(), "decode fp16", Element::f16);
  check_all<Dec<64, 64, 4, 6>>(with_dims(few(decode_problems()), 64, 64), "decode 64", Element::bf16);
  check_all<Dec<192, 128, 4, 2>>(with_dims(few(decode_problems()), 192, 128), "decode 192/128", Element::bf16);
  check_all<Dec<256, 256, 4, 3>>(with_dims(few(decode_problems()), 256, 256), "decode 256", Element::bf16);
  check_all<Dec<512, 512, 2, 4, 512, bf16, KvType::same, false, 2>>(with_dims(few(decode_problems()), 512, 512),
                                                                    "decode 512", Element::bf16);
  check_all<Dec<128, 128, 4, 3, 512, bf16, KvType::e4m3>>(eight_bit(decode_problems(), Element::e4m3, false),
                                                          "decode bf16", Element::bf16);
  check_all<Dec<128, 128, 4, 3, 512, bf16, KvType::e5m2>>(eight_bit(decode_problems(), Element::e5m2, false),
                                                          "decode bf16", Element::bf16);
  check_all<Dec<128, 128, 4, 3, 512, bf16, KvType::int8>>(eight_bit(decode_problems(), Element::int8, true),
                                                          "decode bf16", Element::bf16);
  check_all<Dec<128, 128, 4, 3, 512, f16, KvType::e4m3>>(eight_bit(decode_problems(), Element::e4m3, true),
                                                         "decode fp16", Element::f16);
  check_all<Dec<128, 128, 4, 3, 512, bf16, KvType::same, true>>(general_problems(5), "decode", Element::bf16);
  check_all<E<128, 8, 64, 10, 4, 0, 1>>(extend_problems(128), "extend 128", Element::bf16);
  check_all<E<128, 4, 64, 5, 3, 0, 2>>(extend_problems(128), "extend 128 x2", Element::bf16);
  check_all<E<128, 4, 64, 5, 3, 0, 2, bf16, 1>>(extend_problems(128), "extend 128 small", Element::bf16);
  check_all<E<128, 8, 32, 20, 8, 4, 1>>(extend_problems(128), "extend 128 k32", Element::bf16);
  check_all<E<64, 8, 64, 16, 6, 4, 1, f16>>(extend_problems(64), "extend 64 fp16", Element::f16);
  check_all<E<80, 8, 64, 12, 6, 0, 1>>(few(extend_problems(72)), "extend 80", Element::bf16);
  check_all<E<96, 8, 64, 12, 6, 0, 1>>(few(extend_problems(96)), "extend 96", Element::bf16);
  check_all<E<192, 8, 64, 5, 3, 0, 1, bf16, 2, false, false, 1, 128>>(with_dims(few(extend_problems(192)), 192, 128),
                                                                      "extend 192/128", Element::bf16);
  check_all<E<256, 8, 64, 4, 2, 0, 1, bf16, 1>>(few(extend_problems(256)), "extend 256", Element::bf16);
  check_all<E<512, 8, 32, 4, 2, 0, 1, bf16, 1, false, false, 2>>(few(extend_problems(512)), "extend 512", Element::bf16);
  using Eight = E<128, 8, 64, 8, 4, 0, 1, bf16, 2, true>;
  check_all<Eight>(eight_bit(few(extend_problems(128)), Element::e4m3, false), "extend", Element::bf16);
  check_all<Eight>(eight_bit(few(extend_problems(128)), Element::e5m2, false), "extend", Element::bf16);
  check_all<Eight>(eight_bit(extend_problems(128), Element::int8, true), "extend", Element::bf16);
  check_all<E<128, 4, 64, 5, 3, 0, 2, bf16, 1, false, true>>(general_problems(70), "extend", Element::bf16);
  check_all<E<128, 8, 64, 10, 4, 0, 1>>(split_problems(), "extend", Element::bf16);
  Problem p;
  p.name = "decode invariance";
  p.seqs = {{1, 300, 3}, {1, 5000, 1}, {1, 9500, 2}, {1, 17, 4}};
  check_invariance<D128<4, 3>>(p, 1, 0);
  check_invariance<D128<8, 3>>(p, 2, 0);
  p.name = "extend invariance";
  p.seqs = {{20, 300, 3}, {700, 1000, 1}, {33, 33, 2}};
  check_invariance<E<128, 8, 64, 10, 4, 0, 1>>(p, 1, 77);
  check_invariance<E<128, 4, 64, 5, 3, 0, 2>>(p, 1, 1);
  {
    const HostCase c = make_case(p);
    const Output large = run_case<E<128, 8, 64, 10, 4, 0, 1>>(c);
    expect(large.out == run_case<E<128, 4, 64, 5, 3, 0, 2>>(c).out, "differs between tiles of 256 and 128 rows", p.name);
    expect(large.out == run_case<E<128, 4, 64, 5, 3, 0, 2, bf16, 1>>(c).out, "differs between tiles of 256 and 64 rows",
           p.name);
  }
  std::printf("%s: %d failures\n", failures == 0 ? "PASS" : "FAIL", failures);
}

static void bench_program() {
  {
    Pool pool(size_t{9} << 30, 0);
    for (const DecodeShape& shape : decode_shapes()) {
      bench_decode<D128<4, 3>>("decode 4 warps x2", shape, 16, pool, 2);
      bench_decode<D128<8, 3>>("decode 8 warps", shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode<D128<4, 3, 256>>("decode 4 warps split 256", shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode<D128<4, 2>>("decode 4 warps, 2 stages", shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode<D128<4, 3>>("decode 4 warps x2", shape, 1, pool, 2, 128, 8, 4, false);
    }
    for (const DecodeShape& shape : decode_shapes()) {
      bench_decode<Dec<128, 128, 4, 3, 512, bf16, KvType::e4m3>>("decode e4m3 bf16", shape, 16, pool, 1);
      bench_decode<Dec<128, 128, 4, 3, 512, f16, KvType::e4m3>>("decode e4m3 fp16", shape, 16, pool, 1, 128, 8, 4, false);
      bench_decode<Dec<128, 128, 4, 3, 512, bf16, KvType::int8>>("decode int8 bf16", shape, 16, pool, 1, 128, 8, 4, false);
    }
  }
  Pool pool(size_t{1} << 30, 0);
  for (const int batch : {16, 4, 1}) {
    const int n = 16384 / batch;
    bench_extend<E<128, 8, 64, 10, 4, 0, 1>>("8 warps k64 10 slots ahead 4", batch, n, 0, pool, 128, true);
    bench_extend<E<128, 8, 64, 10, 6, 0, 1>>("8 warps k64 10 slots ahead 6", batch, n, 0, pool, 128, true);
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
  bench_extend<E<256, 8, 64, 4, 2, 0, 1, bf16, 1>>("D256 8 warps of 16 rows", 4, 4096, 0, pool, 256, true);
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
