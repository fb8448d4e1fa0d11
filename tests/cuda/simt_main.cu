// Device program of the CUDA-core decode kernels: `cuda_simt check`, `cuda_simt small` for a sanitizer and
// `cuda_simt bench`.
#include "fovea/result.h"
#include "kernels/cuda/simt/launch.h"
#include "sm80_bench.cuh"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::KernelKind;

/// The kernel that simt::select selects.
static KernelInfo info_of(const Problem& p, int rows, int shared_bytes) {
  simt::Problem x;
  x.q = p.q == Element::f16 ? QueryType::f16 : QueryType::bf16;
  x.kv = p.kv == Element::e4m3   ? KvType::e4m3
         : p.kv == Element::e5m2 ? KvType::e5m2
         : p.kv == Element::int8 ? KvType::int8
                                 : KvType::same;
  x.head_dim = p.head_dim, x.v_head_dim = p.v_head_dim, x.rows = rows, x.mask = p.mask;
  x.shared_bytes = shared_bytes;
  const fovea::Result<KernelInfo> info = simt::select(x);
  if (!info.ok()) {
    std::printf("%s\n", info.error().message.c_str());
    std::exit(1);
  }
  return *info;
}

static Kernel simt_kernel(const Problem& p, int rows, int shared_bytes = kAnySharedBytes) {
  return {info_of(p, rows, shared_bytes), nullptr, simt::launch};
}

static Output run(const Problem& p, int rows, uint64_t shuffle = 1) {
  return run_case(make_case(p, shuffle), simt_kernel(p, rows));
}

static Problem base(Element q, Element kv, int d, int dv, int group) {
  Problem p;
  p.q = q, p.kv = kv, p.head_dim = d, p.v_head_dim = dv;
  p.group = group, p.kv_heads = group == 1 ? 3 : 2;
  if (element_bytes(kv) == 1) {
    p.scales_per_token = kv == Element::int8 || d == 64;
    p.k_scale = p.scales_per_token ? 1.0f : 0.5f;
    p.v_scale = p.scales_per_token ? 1.0f : 0.25f;
  }
  p.seqs = {{1, 100, 0}, {1, 1500, 1}, {1, 0, 2}, {1, 513, 3}, {0, 9, 4}, {1, 1, 5}};
  p.name = "D=" + std::to_string(d) + "/" + std::to_string(dv) + " G=" + std::to_string(group) + " kv " +
           std::to_string(static_cast<int>(kv)) + " q " + std::to_string(static_cast<int>(q));
  return p;
}

static std::vector<Problem> problems() {
  std::vector<Problem> all;
  const auto add = [&](Problem p, const char* name, auto&& change) {
    p.name += std::string(" ") + name;
    change(p);
    all.push_back(p);
  };
  for (const Element q : {Element::bf16, Element::f16})
    for (const Element kv : {q, Element::e4m3, Element::e5m2, Element::int8})
      for (const int d : {64, 128, 256, 512})
        for (const int group : {1, 2, 3})
          add(base(q, kv, d, d, group), "", [&](Problem& p) {
            p.page_size = d == 64 ? 1 : d == 128 ? 16 : d == 256 ? 3 : 544;
            p.heads_first = d == 256;
          });
  for (const int group : {4, 5, 8})
    add(base(Element::bf16, Element::bf16, 128, 128, group), "groups", [](Problem&) {});
  add(base(Element::bf16, Element::bf16, 8, 8, 1), "", [](Problem&) {});
  add(base(Element::bf16, Element::bf16, 120, 72, 2), "", [](Problem&) {});
  add(base(Element::bf16, Element::bf16, 192, 128, 1), "ragged", [](Problem& p) { p.ragged = true; });
  add(base(Element::f16, Element::f16, 72, 328, 3), "", [](Problem&) {});
  add(base(Element::f16, Element::f16, 504, 512, 1), "", [](Problem&) {});
  add(base(Element::bf16, Element::e4m3, 112, 96, 1), "", [](Problem&) {});
  add(base(Element::bf16, Element::e4m3, 120, 72, 1), "narrow", [](Problem&) {});
  add(base(Element::f16, Element::int8, 8, 200, 2), "narrow", [](Problem&) {});
  add(base(Element::bf16, Element::e5m2, 64, 56, 3), "narrow", [](Problem&) {});
  for (const int d : {64, 128})
    for (const int group : {1, 3}) {
      const Element kv = d == 64 && group == 3 ? Element::e4m3 : Element::bf16;
      Problem p = base(Element::bf16, kv, d, d, group);
      p.seqs = {{1, 300, 0}, {5, 700, 1}, {5, 5, 2}, {5, 2, 3}, {3, 0, 4}, {4, 1025, 5}};
      add(p, "several tokens", [](Problem&) {});
      add(p, "full", [](Problem& x) { x.mask.causal = false, x.sharp = 4; });
      add(p, "window 33", [](Problem& x) { x.mask.window_left = 33; });
      add(p, "window 5, 9",
          [](Problem& x) { x.mask.causal = false, x.mask.window_left = 5, x.mask.window_right = 9; });
      add(p, "window, sink tokens", [](Problem& x) { x.mask.window_left = 40, x.mask.sink_tokens = 4; });
      add(p, "window, chunk, sink tokens",
          [](Problem& x) { x.mask.window_left = 40, x.mask.sink_tokens = 410, x.mask.chunk = 200; });
      for (const int chunk : {10, 40})
        add(p, "window, chunk, hidden sink tokens", [=](Problem& x) {
          x.page_size = 4;
          x.mask.window_left = 99, x.mask.sink_tokens = 4, x.mask.chunk = chunk;
          x.seqs = {{1, 15, 0}, {1, 60, 1}, {5, 60, 2}, {1, 100, 3}, {5, 100, 4}, {1, 300, 5}};
        });
      add(p, "chunk 100", [](Problem& x) { x.mask.chunk = 100; });
      add(p, "softcap", [](Problem& x) { x.softcap = 5, x.sharp = 8; });
      add(p, "sinks", [](Problem& x) { x.sinks = true; });
      add(p, "sinks in lse", [](Problem& x) { x.sinks = x.lse_includes_sink = true; });
      add(p, "alibi", [](Problem& x) { x.alibi = true; });
      add(p, "alibi both ways, softcap",
          [](Problem& x) { x.alibi = true, x.mask.causal = false, x.softcap = 3; });
    }
  Problem p = base(Element::bf16, Element::bf16, 128, 128, 1);
  p.seqs.clear();
  for (const int n :
       {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 1025, 0, 9000, 20000})
    p.seqs.push_back({1, n, static_cast<int>(p.seqs.size())});
  add(p, "lengths", [](Problem&) {});
  return all;
}

/// Checks that a sequence has the same bits alone in the batch, with other pages and with other rows per
/// tile.
static void check_invariance(Element kv) {
  Problem p = base(Element::bf16, kv, 128, 128, 2);
  p.seqs = {{1, 300, 3}, {1, 5000, 1}, {2, 9500, 2}, {1, 17, 4}};
  p.name += " invariance";
  const HostCase c = make_case(p);
  const Output all = run(p, 2);
  for (const int rows : {1, 4}) {
    const Output other = run(p, rows);
    expect(other.out == all.out && other.lse == all.lse, "differs by the rows of a tile", p.name);
  }
  const size_t row = static_cast<size_t>(p.heads()) * p.v_head_dim;
  for (const int index : {1, 2}) {
    Problem alone = p;
    alone.seqs = {p.seqs[index]};
    for (const int page : {16, 1, 7, 544}) {
      alone.page_size = page;
      const Output o = run(alone, 2, page);
      expect(std::equal(o.out.begin(), o.out.end(), all.out.begin() + c.q_first[index] * row) &&
                 std::equal(o.lse.begin(), o.lse.end(), all.lse.begin() + c.q_first[index] * p.heads()),
             "differs alone or with the page size", p.name);
    }
  }
}

static void check_all(bool small) {
  for (Problem& p : problems()) {
    if (small) {
      if (p.seqs.size() > 10) continue;
      for (Sequence& s : p.seqs)
        s.n_k = std::min(s.n_k, 600);
    }
    const HostCase c = make_case(p);
    const Kernel kernel = simt_kernel(p, p.group);
    const Output all = run_case(c, kernel);
    close(c, reference(c), all);
    check_smaller(c, kernel, all, [&](int shared_bytes) { return simt_kernel(p, p.group, shared_bytes); });
  }
  if (small) return;
  check_invariance(Element::bf16);
  check_invariance(Element::e4m3);
}

static void bench_program() {
  Pool pool(size_t{10} << 30, 0);
  struct Case {
    Element q, kv;
    int d, kv_heads, group;
  };
  std::vector<DecodeShape> shapes = decode_shapes();
  shapes.erase(shapes.begin() + 1);
  shapes.insert(shapes.begin() + 1, {"B16 ctx2048", std::vector<int>(16, 2048)});
  shapes.insert(shapes.begin() + 2, {"B64 ctx4096", std::vector<int>(64, 4096)});
  for (const Case c : {Case{Element::bf16, Element::bf16, 128, 8, 1},
                       {Element::bf16, Element::bf16, 128, 32, 1},
                       {Element::bf16, Element::bf16, 128, 8, 2},
                       {Element::bf16, Element::bf16, 128, 8, 3},
                       {Element::bf16, Element::bf16, 64, 16, 1},
                       {Element::bf16, Element::bf16, 256, 8, 1},
                       {Element::bf16, Element::bf16, 256, 8, 3},
                       {Element::bf16, Element::bf16, 512, 8, 1},
                       {Element::bf16, Element::e4m3, 128, 32, 1},
                       {Element::bf16, Element::e4m3, 128, 16, 2},
                       {Element::bf16, Element::e4m3, 128, 16, 3},
                       {Element::bf16, Element::int8, 128, 32, 1},
                       {Element::bf16, Element::e4m3, 64, 32, 1},
                       {Element::bf16, Element::e4m3, 256, 16, 1}}) {
    for (const DecodeShape& shape : shapes) {
      const bool main_case = c.d == 128 && c.kv == c.q && c.group == 1;
      if (!main_case && shape.name != std::string("B16 ctx8192") && shape.name != std::string("B64 ctx4096"))
        continue;
      int64_t tokens = 0;
      for (const int n : shape.lengths)
        tokens += n;
      if (tokens * 2 * c.kv_heads * c.d * element_bytes(c.kv) > (int64_t{9} << 30)) continue;
      Problem p;
      p.q = c.q, p.kv = c.kv, p.head_dim = p.v_head_dim = c.d;
      char name[64];
      std::snprintf(name, sizeof name, "%s D%d Hkv%d G%d",
                    c.kv == Element::bf16   ? "bf16"
                    : c.kv == Element::int8 ? "int8"
                                            : "e4m3",
                    c.d, c.kv_heads, c.group);
      const Kernel simt = simt_kernel(p, c.group);
      bench_decode((std::string("simt ") + name).c_str(), simt, shape, 16, pool, element_bytes(c.kv), c.d,
                   c.kv_heads, c.group);
      if (main_case && c.kv == c.q)
        bench_decode((std::string("simt ") + name).c_str(), simt, shape, 1, pool, element_bytes(c.kv), c.d,
                     c.kv_heads, c.group, false);
      bench_decode((std::string("sm80 ") + name).c_str(),
                   library(KernelKind::decode, c.q, c.kv, c.d, c.d, false), shape, 16, pool,
                   element_bytes(c.kv), c.d, c.kv_heads, c.group, false);
    }
  }
}

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;  // skipped
  }
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "bench") {
    bench_program();
  } else {
    check_all(what == "small");
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  }
  return failures == 0 ? 0 : 1;
}
