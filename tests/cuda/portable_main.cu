// Device program of the portable kernels: `cuda_portable check` (or its parts `bf16`, `fp16`, `fp32`,
// `mixed`, `invariance`) and `cuda_portable bench`.
#include "kernels/cuda/portable/launch.h"

#include "extend_bench.cuh"
#include "fovea/result.h"
#include "problems.h"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::KernelKind;

static Kernel portable_kernel(const Problem& p, KernelKind kind) {
  portable::Problem q;
  q.q = p.q == Element::f32 ? QueryType::f32 : p.q == Element::f16 ? QueryType::f16 : QueryType::bf16;
  q.kv = kv_type(p.q, p.kv);
  q.head_dim = p.head_dim, q.v_head_dim = p.v_head_dim;
  const auto info = portable::select(q, kind);
  if (!info.ok()) {
    std::printf("%s\n", info.error().message.c_str());
    std::exit(1);
  }
  Kernel kernel{*info};
  kernel.family = portable::launch;
  return kernel;
}

/// Types, sizes and layout that a list of problems is run with.
struct Variant {
  Element q = Element::bf16, kv = Element::bf16;
  int d = 128, dv = 128, skew = 0;
  bool x_packed = false, scales = false, shuffle = false;

  Problem of(Problem p) const {
    p.q = q, p.kv = kv;
    p.head_dim = d, p.v_head_dim = dv, p.skew = skew;
    p.x_packed = x_packed;
    p.shuffle = shuffle && !p.ragged && p.page_size % (16 / element_bytes(kv)) == 0;
    if (x_packed) p.heads_first = false;
    if (scales) p.scales_per_token = true;
    if (!scales && element_bytes(kv) == 1) p.k_scale = 0.5f, p.v_scale = 0.25f;
    if (!scales && kv == Element::int8) p.k_scale = 0.037f, p.v_scale = 0.021f;
    return p;
  }
};

static void check_all(const std::vector<Problem>& problems, KernelKind kind, const Variant& v) {
  const int before = failures;
  for (const Problem& problem : problems) {
    const Problem p = v.of(problem);
    const HostCase c = make_case(p);
    close(c, reference(c), run_case(c, portable_kernel(p, kind)));
  }
  static const char* const kNames[] = {"f16", "bf16", "e4m3", "e5m2", "int8", "f32"};
  std::printf("%-24s and %2zu like it, %s on %s, D %d/%d skew %d%s: %d failures\n", problems[0].name.c_str(),
              problems.size() - 1, kNames[static_cast<int>(v.q)], kNames[static_cast<int>(v.kv)], v.d, v.dv,
              v.skew,
              v.shuffle    ? " shuffled"
              : v.x_packed ? " x-packed"
                           : "",
              failures - before);
  std::fflush(stdout);
}

static void check_both(const Variant& v, bool all) {
  const auto some = [&](std::vector<Problem> problems) { return all ? problems : few(problems); };
  check_all(some(decode_problems()), KernelKind::decode, v);
  check_all(some(extend_problems(v.d)), KernelKind::extend, v);
  check_all(some(general_problems(5)), KernelKind::decode, v);
  check_all(some(general_problems(70)), KernelKind::extend, v);
}

/// Sizes of one query type, with keys of the same type and of 8 bits.
static void check_type(Element type) {
  check_both({type, type}, type == Element::bf16);
  for (const int d : {1, 24, 64, 80, 200, 256, 511, 512})
    check_both({type, type, d, d, d % 8 == 0 ? 0 : 1}, false);
  check_both({type, type, 192, 128}, false);
  check_both({type, type, 40, 300, 1}, false);
  check_both({type, type, 128, 128, 0, true}, false);
  check_both({type, type, 100, 60, 0, true}, false);
  check_both({type, type, 128, 128, 0, true, false, true}, false);
  check_both({type, type, 96, 60, 0, true, false, true}, false);
  for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8}) {
    const bool scales = kv == Element::int8;
    check_both({type, kv, 128, 128, 0, false, scales}, false);
    check_both({type, kv, 72, 50, 3, false, !scales}, false);
    check_both({type, kv, 256, 256, 0, true, scales}, false);
    check_both({type, kv, 64, 64, 0, true, scales, true}, false);
  }
}

static void check_mixed() {
  const Element types[] = {Element::f16, Element::bf16, Element::f32};
  for (const Element q : types)
    for (const Element kv : types)
      if (q != kv) {
        check_both({q, kv}, false);
        check_both({q, kv, 90, 33, 1}, false);
        check_both({q, kv, 64, 64, 0, true}, false);
      }
}

/// Checks batch invariance, and that the last row by decode equals the same row of an extend that does not
/// split.
static void check_invariances() {
  for (const Element type : {Element::bf16, Element::f16, Element::f32})
    for (const int d : {64, 128, 256, 512}) {
      Problem p;
      p.q = p.kv = type;
      p.head_dim = p.v_head_dim = d;
      p.name = "decode invariance, D " + std::to_string(d);
      p.seqs = {{1, 300, 3}, {1, 5000, 1}, {1, 17, 4}};
      check_invariance(p, portable_kernel(p, KernelKind::decode), 1, 0);
      p.name = "extend invariance, D " + std::to_string(d);
      p.seqs = {{20, 300, 3}, {300, 500, 1}, {33, 33, 2}};
      check_invariance(p, portable_kernel(p, KernelKind::extend), 1, 77);
      // The last row by decode. In fp32 decode splits its keys, and extend combines each split as it ends.
      p.seqs = {{90, type == Element::f32 ? 2700 : 500, 1}};
      Kernel whole = portable_kernel(p, KernelKind::extend);
      whole.split_keys = 1 << 20;
      const HostCase c = make_case(p);
      const Output extended = run_case(c, whole);
      p.seqs[0].n_q = 1;
      const Output decoded = run_case(make_case(p), portable_kernel(p, KernelKind::decode));
      expect(std::equal(decoded.out.begin(), decoded.out.end(), extended.out.end() - decoded.out.size()) &&
                 std::equal(decoded.lse.begin(), decoded.lse.end(), extended.lse.end() - decoded.lse.size()),
             "differs between decode and extend", p.name);
    }
  std::printf("invariances: %d failures\n", failures);
}

/// As the planner schedules long prefills.
static Kernel unsplit(const Problem& p) {
  Kernel kernel = portable_kernel(p, KernelKind::extend);
  kernel.split_keys = 1 << 20;
  return kernel;
}

static void bench_program() {
  {
    Pool pool(size_t{1} << 30, 0);
    for (const int batch : {4, 1})
      for (const int d : {128, 64, 256, 512}) {
        if (batch == 1 && d != 128) continue;
        Problem p;
        p.head_dim = p.v_head_dim = d;
        const int n = 16384 / batch;
        bench_extend("portable", unsplit(p), batch, n, 0, pool, d, true);
        bench_extend("sm80", kernel_of(p, KernelKind::extend), batch, n, 0, pool, d, true);
      }
    Problem p;
    bench_extend("portable", unsplit(p), 4, 4096, 16, pool, 128, true);
    p.kv = Element::e4m3;
    bench_extend("portable e4m3", unsplit(p), 4, 4096, 0, pool, 128, true);
    p.kv = Element::f32;
    bench_extend("portable fp32", unsplit(p), 1, 4096, 0, pool, 128, true);
  }
  Pool pool(size_t{3} << 30, 0);
  for (const DecodeShape& shape : decode_shapes()) {
    if (shape.lengths.size() == 128 && shape.lengths[0] > 2048) continue;
    Problem p;
    const Kernel kernel = portable_kernel(p, KernelKind::decode);
    bench_decode("portable bf16", kernel, shape, 16, pool, 2);
    bench_decode("portable bf16", kernel, shape, 1, pool, 2, 128, 8, 4, false);
    bench_decode("sm80 bf16", kernel_of(p, KernelKind::decode), shape, 16, pool, 2, 128, 8, 4, false);
    p.kv = Element::e4m3;
    bench_decode("portable e4m3", portable_kernel(p, KernelKind::decode), shape, 16, pool, 1);
  }
}

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;  // skipped
  }
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "bf16" || what == "check") check_type(Element::bf16);
  if (what == "fp16" || what == "check") check_type(Element::f16);
  if (what == "fp32" || what == "check") check_type(Element::f32);
  if (what == "mixed" || what == "check") check_mixed();
  if (what == "invariance" || what == "check") check_invariances();
  if (what == "bench")
    bench_program();
  else
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  return failures == 0 ? 0 : 1;
}
