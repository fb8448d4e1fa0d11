// Device program of the MLA kernels: `check` (or one part of it: `bf16`, `fp16`, `e4m3`, `invariance`),
// `small` for a sanitizer, `bench [FILE COMMIT]`, `sweep`: bench with other splits.
#include <atomic>
#include <thread>

#include "kernels/cuda/mla/launch.h"
#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/mla/select.h"
#include "mla_bench.cuh"
#include "problems.h"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::KernelKind;

static bool hopper = false;  ///< whether the device has wgmma

static Kernel mla_kernel(mla::Hardware hardware, Element q, Element kv, int heads, KernelKind kind,
                         int64_t row_tiles, int record = mla::kD, int mean_keys = 0) {
  mla::Problem p;
  p.q = q == Element::f16 ? QueryType::f16 : QueryType::bf16;
  p.kv = kv_type(q, kv);
  p.head_dim = record, p.v_head_dim = record / 9 * 8, p.group = heads;
  p.row_tiles = row_tiles, p.mean_keys = mean_keys;
  const auto info = mla::select(p, hardware, kind);
  if (!info.ok()) {
    std::printf("%s\n", info.error().message.c_str());
    std::exit(1);
  }
  return {*info, nullptr, hardware == mla::Hardware::sm90 ? mla::launch_sm90 : mla::launch_sm80};
}

struct Case {
  Problem problem;
  KernelKind kind = KernelKind::decode;
  int64_t row_tiles = 0;
};

static Problem latent(std::string name, int heads, std::vector<Sequence> seqs) {
  Problem p;
  p.name = std::move(name);
  p.latent = true;
  p.head_dim = 576, p.v_head_dim = 512, p.kv_heads = 1, p.group = heads;
  p.page_size = 64;
  p.seqs = std::move(seqs);
  return p;
}

static std::vector<Case> cases() {
  std::vector<Case> all;
  std::vector<Sequence> lengths;
  for (const int n :
       {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 0, 127, 128, 129, 500, 1023, 1024, 1025, 2100})
    lengths.push_back({1, n, static_cast<int>(lengths.size())});
  for (const int64_t tiles : {0, 1, 16, 1000})
    all.push_back(
        {latent("lengths, row tiles " + std::to_string(tiles), 4, lengths), KernelKind::decode, tiles});
  for (const int heads : {1, 2, 8, 16, 17, 20, 32, 40, 64, 96, 128})
    all.push_back({latent("heads " + std::to_string(heads), heads,
                          {{1, 100, 0}, {1, 600, 1}, {1, 0, 2}, {1, 65, 3}, {2, 130, 4}}),
                   KernelKind::decode, heads % 3 == 0 ? 1 : 0});
  for (const int page : {1, 2, 3, 16, 48, 64, 128, 544}) {
    Problem p =
        latent("page " + std::to_string(page), 16, {{1, 777, 0}, {1, 1, 1}, {1, 1200, 2}, {3, 70, 3}});
    p.page_size = page, p.sharp = 4;
    all.push_back({p, KernelKind::decode, page == 3 ? 1 : 0});
  }
  all.push_back(
      {latent("several tokens", 16,
              {{4, 700, 0}, {3, 2, 1}, {0, 9, 2}, {16, 16, 3}, {2, 1500, 4}, {8, 64, 5}, {16, 130, 6}})});
  all.push_back({latent("several tokens, 40 heads", 40, {{4, 300, 0}, {3, 2, 1}, {0, 9, 2}, {5, 129, 3}}),
                 KernelKind::decode, 1});
  Problem p = latent("sharp", 16, {{1, 900, 0}, {2, 300, 1}});
  p.sharp = 30;
  all.push_back({p});
  p = latent("not causal", 8, {{3, 300, 0}, {5, 2, 1}, {1, 65, 2}});
  p.mask.causal = false;
  all.push_back({p});
  for (const int heads : {3, 40}) {
    p = latent("MiniCPM3's records, heads " + std::to_string(heads), heads,
               {{1, 100, 0}, {1, 1600, 1}, {1, 0, 2}, {2, 65, 3}, {3, 31, 4}});
    p.head_dim = mla::kSmallD, p.v_head_dim = mla::kSmallDv, p.page_size = heads, p.skew = 16;
    for (const int64_t tiles : {0, 1})
      all.push_back({p, heads == 3 && tiles == 0 ? KernelKind::extend : KernelKind::decode, tiles});
  }
  all.push_back(
      {latent("many splits", 20, {{1, 1700, 0}, {2, 4200, 1}, {1, 129, 2}}), KernelKind::decode, 1});
  all.push_back({latent("long", 4, {{1, 40000, 0}, {2, 16385, 1}, {1, 8192, 2}})});
  all.push_back({latent("long, few", 2, {{1, 9000, 0}, {1, 4097, 1}}), KernelKind::decode, 1});
  all.push_back(
      {latent("extend", 16,
              {{1, 1, 0}, {7, 7, 1}, {64, 64, 2}, {65, 130, 3}, {0, 40, 4}, {5, 2, 6}, {33, 513, 8}}),
       KernelKind::extend});
  all.push_back({latent("extend, 128 heads", 128, {{9, 70, 0}, {3, 3, 1}}), KernelKind::extend});
  all.push_back({latent("extend, 3 heads", 3, {{129, 400, 0}, {17, 513, 1}}), KernelKind::extend});
  return all;
}

static void set_types(Problem& p, Element q, Element kv) {
  p.q = q, p.kv = kv;
  if (kv == Element::e4m3) p.k_scale = 0.75f;
}

static std::vector<mla::Hardware> hardware_for(Element q, Element kv) {
  std::vector<mla::Hardware> out = {mla::Hardware::sm80};
  if (q == kv && hopper) out.push_back(mla::Hardware::sm90);
  return out;
}

static const char* name_of(mla::Hardware hardware) {
  return hardware == mla::Hardware::sm90 ? "sm90" : "sm80";
}

static void check_cases(std::vector<Case> all, Element q, Element kv, const char* name) {
  std::vector<HostCase> host(all.size());
  std::vector<Expected> expected(all.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < all.size();) {
        set_types(all[i].problem, q, kv);
        host[i] = make_case(all[i].problem);
        expected[i] = reference(host[i]);
      }
    });
  for (std::thread& t : threads)
    t.join();
  for (const mla::Hardware hardware : hardware_for(q, kv)) {
    for (size_t i = 0; i < all.size(); ++i) {
      const Problem& p = host[i].problem;
      if (p.head_dim != mla::kD && hardware == mla::Hardware::sm90) continue;
      host[i].problem.name = std::string(name_of(hardware)) + " " + name + ": " + all[i].problem.name;
      close(
          host[i], expected[i],
          run_case(host[i], mla_kernel(hardware, q, kv, p.group, all[i].kind, all[i].row_tiles, p.head_dim)));
    }
    std::printf("%s %s: %zu problems, %d failures so far\n", name_of(hardware), name, all.size(), failures);
    std::fflush(stdout);
  }
}

static void check_invariances(Element q, Element kv) {
  for (const mla::Hardware hardware : hardware_for(q, kv)) {
    for (const int heads : {16, 128}) {
      Problem p = latent(std::string(name_of(hardware)) + " invariance, heads " + std::to_string(heads),
                         heads, {{1, 300, 3}, {2, 5000, 1}, {1, 2500, 2}, {1, 17, 4}});
      set_types(p, q, kv);
      for (const int64_t tiles : {0, 1})
        for (const int index : {1, 2})
          check_invariance(p, mla_kernel(hardware, q, kv, heads, KernelKind::decode, tiles), index, 0);
      p.seqs = {{20, 300, 3}, {130, 600, 1}, {33, 33, 2}};
      check_invariance(p, mla_kernel(hardware, q, kv, heads, KernelKind::extend, 0), 1, 77);
    }
    std::printf("%s invariances: %d failures so far\n", name_of(hardware), failures);
    std::fflush(stdout);
  }
}

static void check_small() {
  std::vector<Case> all = {
      {latent("small", 16, {{1, 70, 0}, {1, 0, 1}, {3, 40, 2}, {1, 300, 3}}), KernelKind::decode, 1}};
  for (const Element kv : {Element::bf16, Element::e4m3})
    check_cases(all, Element::bf16, kv, "small");
}

/// A shape with the kernel that is selected for as many row tiles as it has, or with other splits.
static MlaTime bench_case(mla::Hardware hardware, const MlaShape& shape, Pool& pool, int page = 64,
                          int split = 0) {
  const int64_t tiles = int64_t{shape.batch} * ((shape.heads + mla::kRowTile - 1) / mla::kRowTile);
  Kernel kernel = mla_kernel(hardware, Element::bf16, Element::bf16, shape.heads, KernelKind::decode, tiles,
                             mla::kD, shape.keys);
  if (split > 0) kernel.info.split_keys = kernel.split_keys = split;
  return bench_mla(name_of(hardware), kernel, shape, page, pool);
}

static std::vector<MlaTime> bench_all() {
  Pool pool(size_t{5} << 30, 0);
  std::vector<MlaTime> times;
  for (const MlaShape& shape :
       {MlaShape{128, 128, 8192, 1}, MlaShape{128, 128, 8192, 2}, MlaShape{128, 128, 4096, 1},
        MlaShape{128, 32, 4096, 1}, MlaShape{128, 1, 4096, 1}, MlaShape{128, 1, 8192, 1},
        MlaShape{64, 128, 4096, 1}, MlaShape{16, 128, 4096, 1}, MlaShape{16, 128, 4096, 2},
        MlaShape{16, 32, 4096, 1}, MlaShape{16, 1, 8192, 1}}) {
    if (hopper) times.push_back(bench_case(mla::Hardware::sm90, shape, pool));
    if (shape.heads <= 16 || shape.batch == 1) times.push_back(bench_case(mla::Hardware::sm80, shape, pool));
  }
  times.push_back(bench_case(mla::Hardware::sm80, {16, 128, 4096, 1}, pool, 1));
  if (hopper) times.push_back(bench_case(mla::Hardware::sm90, {128, 128, 4096, 1}, pool, 16));
  return times;
}

/// The keys of a split that suit each shape.
static void sweep() {
  Pool pool(size_t{5} << 30, 0);
  const struct {
    MlaShape shape;
    std::vector<int> splits;
  } all[] = {{{128, 128, 8192, 1}, {1024, 2048, 4096}}, {{128, 128, 4096, 1}, {1024, 2048, 4096}},
             {{128, 32, 4096, 1}, {512, 1024, 2048}},   {{128, 8, 4096, 1}, {256, 512, 1024}},
             {{128, 1, 4096, 1}, {64, 128, 256}},       {{128, 1, 8192, 1}, {64, 128, 256}},
             {{64, 128, 4096, 1}, {1024, 2048, 4096}},  {{16, 128, 4096, 1}, {512, 1024, 2048, 4096}},
             {{16, 32, 4096, 1}, {256, 512, 1024}},     {{16, 1, 8192, 1}, {64, 128, 256}}};
  for (const auto& [shape, splits] : all)
    for (const int split : splits) {
      if (hopper) bench_case(mla::Hardware::sm90, shape, pool, 64, split);
      if (shape.heads <= 16) bench_case(mla::Hardware::sm80, shape, pool, 64, split);
    }
}

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;  // skipped
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  hopper = properties.major == 9;
  std::printf("%s, %d SMs\n", properties.name, properties.multiProcessorCount);
  const std::string what = argc > 1 ? argv[1] : "check";
  const auto runs = [&](const char* part) { return what == "check" || what == part; };
  if (runs("bf16")) check_cases(cases(), Element::bf16, Element::bf16, "bf16");
  if (runs("fp16")) check_cases(cases(), Element::f16, Element::f16, "fp16");
  if (runs("e4m3")) check_cases(cases(), Element::bf16, Element::e4m3, "bf16 on e4m3");
  if (runs("e4m3")) check_cases(cases(), Element::f16, Element::e4m3, "fp16 on e4m3");
  if (runs("invariance")) check_invariances(Element::bf16, Element::bf16);
  if (runs("invariance")) check_invariances(Element::f16, Element::e4m3);
  if (what == "small") check_small();
  if (what == "bench") {
    const std::vector<MlaTime> times = bench_all();
    if (argc > 3) write_json(argv[2], times, argv[3]);
    return 0;
  }
  if (what == "sweep") {
    sweep();
    return 0;
  }
  std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  return failures == 0 ? 0 : 1;
}
