// Device program of the sm80 kernels: `check` (or its parts `bf16`, `fp16`, `invariance`), `small` for a
// sanitizer, `schedule`, `bench` and `profile`.
#include "extend_bench.cuh"
#include "problems.h"
#include "schedule_bench.cuh"
#include "schedule_check.cuh"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::KernelKind;

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

static std::vector<Problem> of_few_sequences(std::vector<Problem> all) {
  for (Problem& p : all) {
    p.few_sequences = true;
    p.name += ", few sequences";
  }
  return all;
}

/// Enough splits of a decode kernel that partial results are combined in groups.
static std::vector<Problem> long_problems() {
  Problem p;
  p.name = "decode of long sequences";
  p.seqs = {{1, 40000, 0}, {2, 16385, 1}, {1, 16384, 2}, {1, 17000, 3}};
  return {p};
}

/// The checks of one query type, so that two processes can share the work of the reference.
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
      check_all(of_few_sequences(eight_bit(few(decode_problems()), kv, kv == Element::int8)),
                KernelKind::decode, type);
    check_all(with_dims(few(extend_problems(192)), 192, 128), KernelKind::extend, type);
    check_all(latent_problems(192, 128), KernelKind::extend, type);
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
        check_all(eight_bit(with_dims(large_value_problems(), d, d), kv, true), KernelKind::extend, type);
      }
  }
}

static void check_schedules() {
  for (const int sequences : {1, 5, 511, 512, 513, 1500}) {
    fovea::MaskSpec mask;
    check_schedule(KernelKind::decode, sequences, mask);
    check_schedule(KernelKind::decode, sequences, mask, 9, 1, 16);
    mask.window_left = 700;
    mask.sink_tokens = 4;
    check_schedule(KernelKind::extend, sequences, mask, sequences < 600 ? 3000 : 40);
  }
}

static void check_invariances() {
  check_schedules();
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

/// A short check that a sanitizer completes in seconds.
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
  if (what == "schedule") check_schedules();
  if (what == "bench" || what == "schedule") bench_schedules();
  if (what == "bench") bench_program();
  if (what == "profile") {
    Pool pool(size_t{1} << 30, 0);
    bench_extend("extend", bf16_kernel(KernelKind::extend, Element::bf16, 128), 1, 8192, 0, pool, 128, true);
  } else if (what != "bench") {
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  }
  return failures == 0 ? 0 : 1;
}
