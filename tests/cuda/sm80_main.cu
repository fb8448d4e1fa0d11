// Device program of the sm80 kernels: `check` (or `bf16`, `fp16`, `invariance` of it), `small` for a sanitizer,
// `bench` and `profile`.
#include "schedule_check.cuh"
#include "sm80_bench.cuh"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::sm80::KernelKind;

static std::vector<Problem> decode_problems() {
  std::vector<Problem> all;
  Problem p;
  p.name = "decode lengths";
  for (const int n :
       {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000, 1024, 1025, 0, 8191, 9000})
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
  p.seqs = {{1, 1, 0}, {7, 7, 1}, {64, 64, 2},   {65, 130, 3}, {0, 40, 4},
            {3, 0, 5}, {5, 2, 6}, {129, 400, 7}, {17, 513, 8}};
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

static void check_all(std::vector<Problem> problems, KernelKind kind, Element type) {
  for (Problem& p : problems) {
    if (p.q == p.kv) p.kv = type;
    p.q = type;
    check(p, kind);
  }
  std::printf("%-28s and %2zu others like it: %d failures so far\n", problems[0].name.c_str(),
              problems.size() - 1, failures);
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

static std::vector<Problem> of_few_sequences(std::vector<Problem> all) {
  for (Problem& p : all) {
    p.few_sequences = true;
    p.name += ", few sequences";
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
  add("window 5, 9",
      [](Problem& x) { x.mask.causal = false, x.mask.window_left = 5, x.mask.window_right = 9; });
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

/// Enough splits of a decode kernel for a merge in groups.
static std::vector<Problem> long_problems() {
  Problem p;
  p.name = "decode of long sequences";
  p.seqs = {{1, 40000, 0}, {2, 16385, 1}, {1, 16384, 2}, {1, 17000, 3}};
  return {p};
}

/// One query type's, so that two processes may share the work of the reference.
static void check_type(Element type) {
  {
    const bool all = type == Element::bf16;
    auto some = [&](std::vector<Problem> problems) { return all ? problems : few(problems); };
    check_all(some(decode_problems()), KernelKind::decode, type);
    check_all(some(extend_problems(128)), KernelKind::extend, type);
    check_all(some(extend_problems(128)), KernelKind::extend_small, type);
    for (const int d : {64, 80, 96, 256, 512}) {
      check_all(with_dims(few(decode_problems()), d, d), KernelKind::decode, type);
      check_all(few(extend_problems(d)), KernelKind::extend, type);
      if (d < 128) check_all(few(extend_problems(d)), KernelKind::extend_small, type);
    }
    check_all(with_dims(few(decode_problems()), 192, 128), KernelKind::decode, type);
    check_all(of_few_sequences(some(decode_problems())), KernelKind::decode, type);
    check_all(of_few_sequences(few(long_problems())), KernelKind::decode, type);
    check_all(of_few_sequences(with_dims(few(decode_problems()), 64, 64)), KernelKind::decode, type);
    for (const int d : {64, 128})
      check_all(of_few_sequences(with_dims(few(general_problems(5)), d, d)), KernelKind::decode, type);
    for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8})
      check_all(of_few_sequences(eight_bit(few(decode_problems()), kv, kv == Element::int8)), KernelKind::decode,
                type);
    check_all(with_dims(few(extend_problems(192)), 192, 128), KernelKind::extend, type);
    check_all(few(extend_problems(72)), KernelKind::extend, type);
    for (const int d : {64, 128, 256, 512}) {
      const bool fewer = d != 128 || !all;
      const auto decode = with_dims(general_problems(5), d, d),
                 extend = with_dims(general_problems(70), d, d);
      check_all(fewer ? few(decode) : decode, KernelKind::decode, type);
      check_all(fewer ? few(extend) : extend, KernelKind::extend, type);
    }
    for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8})
      for (const int d : {64, 128, 256}) {
        const bool scales = kv == Element::int8 || d == 64;
        const auto decode = eight_bit(
            with_dims(d == 128 ? some(decode_problems()) : few(decode_problems()), d, d), kv, scales);
        check_all(decode, KernelKind::decode, type);
        check_all(eight_bit(few(extend_problems(d)), kv, scales), KernelKind::extend, type);
        check_all(eight_bit(with_dims(few(general_problems(5)), d, d), kv, scales), KernelKind::decode, type);
        check_all(eight_bit(with_dims(few(general_problems(70)), d, d), kv, scales), KernelKind::extend,
                  type);
      }
  }
}

static void check_invariances() {
  for (const int sequences : {1, 5, 511, 512, 513, 1500}) {
    fovea::MaskSpec mask;
    check_schedule(KernelKind::decode, sequences, mask);
    mask.window_left = 700;
    mask.sink_tokens = 4;
    check_schedule(KernelKind::extend, sequences, mask);
  }
  check_all(split_problems(), KernelKind::extend, Element::bf16);
  Problem p;
  p.name = "decode invariance";
  p.seqs = {{1, 300, 3}, {1, 5000, 1}, {1, 9500, 2}, {1, 17, 4}};
  check_invariance(p, KernelKind::decode, 1, 0);
  check_invariance(p, KernelKind::decode, 2, 0);
  p.kv = Element::e4m3;
  check_invariance(p, KernelKind::decode, 2, 0);
  p.few_sequences = true;
  check_invariance(p, KernelKind::decode, 2, 0);
  p.kv = Element::bf16;
  p.seqs[1].n_k = 20000;
  check_invariance(p, KernelKind::decode, 1, 0);
  p.few_sequences = false;
  p.name = "extend invariance";
  p.seqs = {{20, 300, 3}, {700, 1000, 1}, {33, 33, 2}};
  check_invariance(p, KernelKind::extend, 1, 77);
  check_invariance(p, KernelKind::extend_small, 1, 1);
  const HostCase c = make_case(p);
  expect(run_case(c, kernel_of(p, KernelKind::extend)).out ==
             run_case(c, kernel_of(p, KernelKind::extend_small)).out,
         "differs between large and small tiles", p.name);
}

/// What a sanitizer runs in seconds.
static void check_small() {
  Problem p;
  p.name = "small";
  p.seqs = {{1, 300, 0}, {1, 3000, 1}, {1, 0, 2}, {3, 40, 3}, {1, 1030, 4}};
  for (const Element kv : {Element::bf16, Element::e4m3})
    for (const int page : {1, 16})
      for (const bool few_sequences : {false, true}) {
        p.kv = kv, p.page_size = page, p.few_sequences = few_sequences;
        check(p, KernelKind::decode);
      }
  p.kv = Element::bf16;
  p.seqs = {{70, 200, 0}, {1, 90, 1}, {0, 3, 2}};
  check(p, KernelKind::extend);
  check(p, KernelKind::extend_small);
}

static Kernel bf16_kernel(KernelKind kind, Element kv, int d, bool few_sequences = false) {
  return library(kind, Element::bf16, kv, d, d, false, few_sequences);
}

static void bench_program() {
  {
    Pool pool(size_t{9} << 30, 0);
    for (const DecodeShape& shape : decode_shapes()) {
      const Kernel kernel = bf16_kernel(KernelKind::decode, Element::bf16, 128);
      bench_decode("decode bf16", kernel, shape, 16, pool, 2);
      bench_decode("decode bf16", kernel, shape, 64, pool, 2, 128, 8, 4, false);
      bench_decode("decode bf16", kernel, shape, 1, pool, 2, 128, 8, 4, false);
      if (shape.lengths.size() > 1) continue;
      const Kernel few_sequences = bf16_kernel(KernelKind::decode, Element::bf16, 128, true);
      bench_decode("decode bf16, few", few_sequences, shape, 16, pool, 2, 128, 8, 4, false);
      bench_decode("decode bf16, few", few_sequences, shape, 1, pool, 2, 128, 8, 4, false);
    }
    for (const DecodeShape& shape : decode_shapes()) {
      bench_decode("decode e4m3", bf16_kernel(KernelKind::decode, Element::e4m3, 128), shape, 16, pool, 1);
      bench_decode("decode e4m3, fp16 queries",
                   library(KernelKind::decode, Element::f16, Element::e4m3, 128, 128, false), shape, 16, pool,
                   1, 128, 8, 4, false);
      bench_decode("decode int8", bf16_kernel(KernelKind::decode, Element::int8, 128), shape, 16, pool, 1,
                   128, 8, 4, false);
      if (shape.lengths.size() == 1)
        bench_decode("decode e4m3, few", bf16_kernel(KernelKind::decode, Element::e4m3, 128, true), shape, 16,
                     pool, 1, 128, 8, 4, false);
    }
    const DecodeShape shape = decode_shapes()[2];
    bench_decode("decode bf16 D64", bf16_kernel(KernelKind::decode, Element::bf16, 64), shape, 16, pool, 2,
                 64);
    bench_decode("decode bf16 D256", bf16_kernel(KernelKind::decode, Element::bf16, 256), shape, 16, pool, 2,
                 256);
    bench_decode("decode bf16 D512 4 heads", bf16_kernel(KernelKind::decode, Element::bf16, 512), shape, 16,
                 pool, 2, 512, 4);
  }
  Pool pool(size_t{1} << 30, 0);
  for (const int batch : {16, 4, 1}) {
    const int n = 16384 / batch;
    for (const int d : {128, 64}) {
      bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, d), batch, n, 0, pool, d, true);
      bench_extend("extend small", bf16_kernel(KernelKind::extend_small, Element::bf16, d), batch, n, 0, pool,
                   d, true);
    }
    bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, 128), batch, n, 16, pool, 128,
                 true);
  }
  for (const int d : {80, 96, 256, 512})
    bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, d), 4, 4096, 0, pool, d, true);
  bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, 128), 1, 16384, 0, pool, 128, false);
}

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;  // skipped
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, %d SMs\n", properties.name, properties.multiProcessorCount);
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "bf16" || what == "check") check_type(Element::bf16);
  if (what == "fp16" || what == "check") check_type(Element::f16);
  if (what == "invariance" || what == "check") check_invariances();
  if (what == "small") check_small();
  if (what == "bench") bench_program();
  if (what == "profile") {
    Pool pool(size_t{1} << 30, 0);
    bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, 128), 1, 8192, 0, pool, 128, true);
  } else if (what != "bench") {
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  }
  return failures == 0 ? 0 : 1;
}
