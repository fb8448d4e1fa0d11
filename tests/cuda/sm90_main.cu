// Device program of the sm90 kernels: `check` (or one part of it: `bf16`, `fp16`, `eight_bit`, `invariance`,
// `drafts`, `layouts`), `small` for a sanitizer, `bench` (or one part of it: `prefill`, `latent_prefill`,
// `eight_bit_prefill`, `few_rows`, `decode`, `rows`, `bench_layouts`). Problems that sm90::select refuses are
// skipped and counted.
#include "base/float8.h"
#include "extend_bench.cuh"
#include "fovea/result.h"
#include "kernels/cuda/sm90/launch.h"
#include "kernels/cuda/sm90/x_packed.h"
#include "problems.h"
#include "sm80_check.cuh"

using namespace fovea::cuda;
using fovea::cuda::KernelKind;

static int refused = 0;

struct HeadSize {
  int d, dv;
};

static fovea::Result<KernelInfo> select(const Problem& p, KernelKind kind) {
  sm90::Problem x;
  x.q = p.q == Element::f16 ? QueryType::f16 : QueryType::bf16;
  x.kv = kv_type(p.q, p.kv);
  x.head_dim = p.head_dim, x.v_head_dim = p.v_head_dim;
  x.mask = p.mask;
  x.softcap = p.softcap > 0, x.alibi = p.alibi;
  return sm90::select(x, kind);
}

/// With the space of a widened cache: of any case, or of small windows for sequences of at most `longest`.
template <int kLongest>
static fovea::Status launch(const KernelInfo& kernel, const AttentionParams& p, int items,
                            CUstream_st* stream, LaunchRecord* record) {
  if (!sm90::is_widened(kernel, sm90::is_x_packed(p.kv)))
    return sm90::launch(kernel, p, items, stream, record);
  static DeviceArray<char> memory(size_t{3} << 30);
  fovea::AttentionLimits limits;
  limits.max_seqs = 64, limits.max_kv_len = kLongest, limits.max_kv_tokens = 2 * kLongest;
  sm90::WidenLayout layout = sm90::widen_layout(kernel, static_cast<int>(p.kv_heads.divisor), limits, items);
  if (kLongest < 10000) layout.windows = 4, layout.window_blocks = 5;  // as if there were no room for more
  if (layout.bytes > memory.count) std::printf("%zu bytes for widening\n", layout.bytes), std::exit(1);
  set_bytes(memory.data, 0xff, std::min(layout.bytes, size_t{1} << 28));
  const sm90::WidenSpace space{layout, memory.data};
  return sm90::launch(kernel, p, items, stream, record, &space);
}

static Kernel sm90_kernel(const Problem& p, KernelKind kind) {
  const auto info = select(p, kind);
  if (!info.ok()) {
    std::printf("%s: %s\n", p.name.c_str(), info.error().message.c_str());
    std::exit(1);
  }
  return {*info, nullptr, launch<140000>};
}

static void check_all(std::vector<Problem> problems, KernelKind kind, Element type) {
  size_t served = 0;
  for (Problem& p : problems) {
    if (p.q == p.kv) p.kv = type;
    p.q = type;
    if (!select(p, kind).ok()) continue;
    ++served;
    const HostCase c = make_case(p);
    close(c, reference(c), run_case(c, sm90_kernel(p, kind)));
  }
  refused += static_cast<int>(problems.size() - served);
  std::printf("%-28s D %d/%d: %zu of %zu served, %d failures so far\n", problems[0].name.c_str(),
              problems[0].head_dim, problems[0].v_head_dim, served, problems.size(), failures);
  std::fflush(stdout);
}

static constexpr HeadSize kHeadSizes[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

/// Scores that are small against their cap, scores that are not, and rows with both; caps of each kind that
/// sm90::PrefillSoftcap distinguishes; splits.
static std::vector<Problem> capped_problems() {
  std::vector<Problem> all;
  Problem p;
  p.kv_heads = 1;
  p.group = 2;
  p.seqs = {{70, 700, 0}, {3, 17000, 1}, {40, 3, 2}, {200, 200, 3}};
  for (const float cap : {12.0f, 30.0f, 50.0f, 110.0f})
    for (const float sharp : {1.0f, 6.0f, 40.0f}) {
      p.name = "soft cap " + std::to_string(cap) + ", sharp " + std::to_string(sharp);
      p.softcap = cap, p.sharp = sharp;
      p.sinks = p.lse_includes_sink = cap == 50.0f;
      p.mask.window_left = sharp == 6.0f ? 90 : -1;
      all.push_back(p);
    }
  return all;
}

static void check_prefill(Element type) {
  for (const HeadSize size : kHeadSizes) {
    const bool all = size.d == 128 && type == Element::bf16;
    const auto some = [&](std::vector<Problem> problems) {
      return with_dims(all ? problems : few(problems), size.d, size.dv);
    };
    for (const KernelKind kind : {KernelKind::extend, KernelKind::extend_small})
      check_all(some(extend_problems(size.d)), kind, type);
    check_all(with_dims(general_problems(70), size.d, size.dv), KernelKind::extend, type);
    check_all(some(general_problems(300)), KernelKind::extend, type);
  }
  for (const HeadSize size : {HeadSize{192, 128}, HeadSize{256, 256}})
    check_all(latent_problems(size.d, size.dv), KernelKind::extend, type);
  check_all(split_problems(), KernelKind::extend, type);
  check_all(capped_problems(), KernelKind::extend, type);
}

/// As bytes: an fp8 cache as a 16-bit cache with the same values.
static void check_widening(std::vector<Problem> problems, Element type) {
  for (Problem& p : problems) {
    p.q = type;
    if (p.skew != 0 || !select(p, KernelKind::extend).ok()) continue;
    const HostCase c = make_case(p);
    HostCase wide = c;
    wide.problem.kv = type;
    wide.v_pool = 2 * c.v_pool;
    wide.pool.resize(2 * c.pool.size());
    for (size_t i = 0; i < c.pool.size(); ++i) {
      const float x =
          p.kv == Element::e4m3 ? fovea::e4m3_to_float(c.pool[i]) : fovea::e5m2_to_float(c.pool[i]);
      const uint16_t bits = to16(type, x);
      std::memcpy(wide.pool.data() + 2 * i, &bits, 2);
    }
    const Output one = run_case(c, sm90_kernel(p, KernelKind::extend));
    const Output two = run_case(wide, sm90_kernel(wide.problem, KernelKind::extend));
    expect(one.out == two.out && std::memcmp(one.lse.data(), two.lse.data(), 4 * one.lse.size()) == 0,
           "differs from a 16-bit cache with the same values", p.name);
  }
  std::printf("%-28s D %d/%d as bytes: %d failures so far\n", problems[0].name.c_str(), problems[0].head_dim,
              problems[0].v_head_dim, failures);
  std::fflush(stdout);
}

/// Prefill over 8-bit caches: with scales of the cache, and for int8 of each token and head.
static void check_eight_bit_prefill(Element type) {
  for (const HeadSize size : kHeadSizes)
    for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8}) {
      if (kv == Element::int8 && size.d != 64 && size.d != 128) continue;
      const bool all = size.d == 128 && type == Element::bf16 && kv != Element::e5m2;
      const auto put = [&](std::vector<Problem> problems) {
        return eight_bit(with_dims(all ? problems : few(problems), size.d, size.dv), kv, kv == Element::int8);
      };
      for (const KernelKind kind : {KernelKind::extend, KernelKind::extend_small})
        check_all(put(extend_problems(size.d)), kind, type);
      check_all(put(general_problems(70)), KernelKind::extend, type);
      check_all(put(general_problems(300)), KernelKind::extend, type);
      if (kv != Element::int8) {
        check_widening(eight_bit(with_dims(few(extend_problems(size.d)), size.d, size.dv), kv, false), type);
        check_widening(eight_bit(with_dims(few(general_problems(300)), size.d, size.dv), kv, false), type);
      }
      if (type == Element::bf16 || kv == Element::int8)
        check_all(eight_bit(with_dims(large_value_problems(), size.d, size.dv), kv, kv == Element::int8),
                  KernelKind::extend, type);
      if (size.d != 128) continue;
      check_all(eight_bit(split_problems(), kv, kv == Element::int8), KernelKind::extend, type);
      if (kv == Element::e4m3) check_all(eight_bit(capped_problems(), kv, false), KernelKind::extend, type);
    }
}

/// Enough splits to combine partial results in every way.
static std::vector<Problem> long_problems() {
  Problem p;
  p.name = "decode of long sequences";
  p.seqs = {{1, 40000, 0}, {2, 16385, 1}, {1, 16384, 2}, {1, 17000, 3}};
  Problem longer = p;
  longer.name = "decode of a very long sequence";
  longer.kv_heads = 1, longer.group = 2;
  longer.seqs = {{1, 140000, 0}, {1, 9000, 1}};
  return {p, longer};
}

static void check_decode(Element type) {
  for (const HeadSize size : kHeadSizes) {
    const bool all = size.d == 128 && type == Element::bf16;
    const auto put = [&](const std::vector<Problem>& problems, bool every) {
      return with_dims(every ? problems : few(problems), size.d, size.dv);
    };
    check_all(put(decode_problems(), all), KernelKind::decode, type);
    check_all(put(general_problems(5), true), KernelKind::decode, type);
    check_all(put(long_problems(), true), KernelKind::decode, type);
    check_all(eight_bit(put(decode_problems(), all), Element::e4m3, false), KernelKind::decode, type);
    check_all(eight_bit(put(general_problems(5), all), Element::e4m3, false), KernelKind::decode, type);
    check_all(eight_bit(put(long_problems(), true), Element::e4m3, false), KernelKind::decode, type);
  }
}

/// x-packed pages: against the reference, and with the bits of strided pages.
static void check_layouts(std::vector<Problem> problems, KernelKind kind, Element type) {
  size_t served = 0;
  for (Problem& p : problems) {
    if (p.q == p.kv) p.kv = type;
    p.q = type;
    p.ragged = false;
    if (p.page_size % 16 != 0) p.page_size = p.page_size == 1 ? 16 : 48;
    const auto kernel = select(p, kind);
    if (!kernel.ok() || !sm90::check_x_packed(*kernel, p.page_size).ok()) continue;
    const Output strided = run_case(make_case(p), sm90_kernel(p, kind));
    for (const bool shuffle : {false, true}) {
      Problem packed = p;
      packed.x_packed = true, packed.shuffle = shuffle;
      packed.name += shuffle ? " shuffle" : " x-packed";
      const HostCase c = make_case(packed);
      const Output got = run_case(c, sm90_kernel(packed, kind));
      close(c, reference(c), got);
      expect(
          got.out == strided.out && std::memcmp(got.lse.data(), strided.lse.data(), 4 * got.lse.size()) == 0,
          "differs from strided pages", packed.name);
      ++served;
    }
  }
  std::printf("%-28s D %d/%d layouts: %zu of %zu served, %d failures so far\n", problems[0].name.c_str(),
              problems[0].head_dim, problems[0].v_head_dim, served, 2 * problems.size(), failures);
  std::fflush(stdout);
}

static void check_layouts() {
  for (const Element type : {Element::bf16, Element::f16})
    for (const HeadSize size : kHeadSizes) {
      const bool all = size.d == 128 && type == Element::bf16;
      const auto put = [&](const std::vector<Problem>& problems) {
        return with_dims(all ? problems : few(problems), size.d, size.dv);
      };
      check_layouts(put(decode_problems()), KernelKind::decode, type);
      check_layouts(with_dims(general_problems(5), size.d, size.dv), KernelKind::decode, type);
      check_layouts(put(extend_problems(size.d)), KernelKind::extend, type);
      check_layouts(put(general_problems(70)), KernelKind::extend, type);
      for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8}) {
        if (kv == Element::int8 && size.d != 64 && size.d != 128) continue;
        const auto eight = [&](const std::vector<Problem>& problems) {
          return eight_bit(with_dims(few(problems), size.d, size.dv), kv, kv == Element::int8);
        };
        check_layouts(eight(extend_problems(size.d)), KernelKind::extend, type);
        check_layouts(eight(general_problems(70)), KernelKind::extend, type);
      }
    }
  check_layouts(split_problems(), KernelKind::extend, Element::bf16);
  check_layouts(with_dims(few(decode_problems()), 128, 128), KernelKind::decode, Element::bf16);
}

static void bench_layouts() {
  constexpr Pages kPages[] = {Pages::nhd, Pages::hnd, Pages::x_packed, Pages::shuffle};
  constexpr const char* kNames[] = {"nhd", "hnd", "x_packed", "shuffle"};
  Pool pool(size_t{5} << 30, 0);
  Problem p;
  for (const auto& [name, batch, length] :
       {std::tuple{"B64 ctx4096", 64, 4096}, std::tuple{"B16 ctx8192", 16, 8192}})
    for (const int page : {16, 64})
      for (int i = 0; i < 4; ++i)
        bench_decode(kNames[i], sm90_kernel(p, KernelKind::decode),
                     DecodeShape{name, std::vector<int>(static_cast<size_t>(batch), length)}, page, pool, 2,
                     128, 8, 4, i == 0, 1, kPages[i]);
  for (const Element kv : {Element::bf16, Element::e4m3})
    for (int i = 0; i < 4; ++i) {
      const Pool eight(size_t{1} << 29, 1);
      p.kv = kv;
      ExtendShape shape = uniform(4, 4096, 16, 128, true);
      shape.layout = kPages[i];
      bench_extend(kNames[i], sm90_kernel(p, KernelKind::extend), shape, kv == Element::bf16 ? pool : eight);
    }
}

static void check_type(Element type) {
  check_prefill(type);
  check_eight_bit_prefill(type);
  check_decode(type);
}

static void check_invariances() {
  for (const HeadSize size : kHeadSizes) {
    Problem p;
    p.head_dim = size.d, p.v_head_dim = size.dv;
    p.name = "decode invariance, D " + std::to_string(size.d);
    p.seqs = {{1, 300, 3}, {1, 5000, 1}, {1, 9500, 2}, {1, 17, 4}};
    for (const Element kv : {Element::bf16, Element::e4m3}) {
      p.kv = kv;
      if (!select(p, KernelKind::decode).ok()) continue;
      for (const int index : {1, 2})
        check_invariance(p, sm90_kernel(p, KernelKind::decode), index, 0);
    }
    p.kv = Element::bf16;
    p.name = "extend invariance, D " + std::to_string(size.d);
    p.seqs = {{20, 300, 3}, {700, 1000, 1}, {33, 33, 2}};
    for (const KernelKind kind : {KernelKind::extend, KernelKind::extend_small})
      check_invariance(p, sm90_kernel(p, kind), 1, 77);
    const HostCase c = make_case(p);
    expect(run_case(c, sm90_kernel(p, KernelKind::extend)).out ==
               run_case(c, sm90_kernel(p, KernelKind::extend_small)).out,
           "differs between large and small tiles", p.name);
    p.mask.window_left = 100;
    check_invariance(p, sm90_kernel(p, KernelKind::extend), 1, 77);
    p.mask.window_left = -1;
    for (const Element kv : {Element::e4m3, Element::int8}) {
      p.kv = kv, p.scales_per_token = kv == Element::int8;
      if (!select(p, KernelKind::extend).ok()) continue;
      check_invariance(p, sm90_kernel(p, KernelKind::extend), 1, 77);
      Kernel windows = sm90_kernel(p, KernelKind::extend);
      const HostCase eight = make_case(p);
      const Output whole = run_case(eight, windows);
      windows.family = launch<1000>;
      const Output parts = run_case(eight, windows);
      expect(whole.out == parts.out && whole.lse == parts.lse, "differs in windows", p.name);
    }
  }
  std::printf("invariances: %d failures\n", failures);
}

/// Several rows of a sequence, as where drafts are verified: each has the same bits beside any number of
/// others.
/// `only`: a head size, 0 = all.
static void check_drafts(int only) {
  for (const HeadSize size : kHeadSizes)
    if (only == 0 || size.d == only)
      for (const int group : {4, 1, 7}) {
        Problem p;
        p.head_dim = size.d, p.v_head_dim = size.dv, p.group = group;
        p.name = "drafts, D " + std::to_string(size.d) + ", group " + std::to_string(group);
        p.seqs = {{1, 300, 3}, {16, 5000, 1}, {3, 17, 4}};
        for (const Element kv : {Element::bf16, Element::e4m3}) {
          p.kv = kv;
          if (!select(p, KernelKind::decode).ok()) continue;
          for (const int tail : {1, 2, 3, 5, 6, 7, 11, 15})
            check_invariance(p, sm90_kernel(p, KernelKind::decode), 1, tail);
          check_all({p}, KernelKind::decode, Element::bf16);
        }
      }
  std::printf("drafts: %d failures\n", failures);
}

static void bench_drafts() {
  Pool pool(size_t{5} << 30, 0);
  for (const Element kv : {Element::bf16, Element::e4m3})
    for (const auto& [name, batch] : {std::pair{"B32 ctx8192", 32}, std::pair{"B4 ctx8192", 4}})
      for (const int rows : {1, 2, 4, 5, 6, 7, 8, 12, 16}) {
        Problem p;
        p.kv = kv;
        const DecodeShape shape{name, std::vector<int>(static_cast<size_t>(batch), 8192)};
        bench_decode((std::to_string(rows) + (kv == Element::bf16 ? " rows bf16" : " rows e4m3")).c_str(),
                     sm90_kernel(p, KernelKind::decode), shape, 16, pool, element_bytes(kv), 128, 8, 4,
                     rows == 1, rows);
      }
}

/// A set that takes seconds under a sanitizer.
static void check_small() {
  Problem p;
  p.name = "small";
  for (const int page : {1, 16, 64})
    for (const bool window : {false, true}) {
      p.page_size = page;
      p.mask.window_left = window ? 50 : -1;
      p.seqs = {{70, 200, 0}, {1, 90, 1}, {0, 3, 2}, {130, 130, 3}};
      p.kv = Element::bf16;
      for (const KernelKind kind : {KernelKind::extend, KernelKind::extend_small})
        check_all({p}, kind, Element::bf16);
      for (const Element kv : {Element::e4m3, Element::e5m2, Element::int8})
        check_all(eight_bit({p}, kv, kv == Element::int8), KernelKind::extend, Element::bf16);
      p.seqs = {{1, 300, 0}, {1, 3000, 1}, {1, 0, 2}, {3, 40, 3}, {1, 1030, 4}};
      for (const Element kv : {Element::bf16, Element::e4m3}) {
        p.kv = kv;
        check_all({p}, KernelKind::decode, Element::bf16);
      }
    }
}

/// The sm90 kernel, if there is one, and the sm80 kernel on the same shape.
static void bench_both(const char* name, const ExtendShape& shape, const Pool& pool) {
  Problem p;
  p.head_dim = shape.d, p.v_head_dim = shape.dv, p.mask = shape.mask, p.softcap = shape.softcap;
  if (select(p, KernelKind::extend).ok())
    bench_extend((std::string("sm90 ") + name).c_str(), sm90_kernel(p, KernelKind::extend), shape, pool);
  bench_extend((std::string("sm80 ") + name).c_str(), kernel_of(p, KernelKind::extend), shape, pool);
}

static void bench_prefill() {
  const Pool pool(size_t{1} << 30, 0);
  for (const int d : {128, 64, 96, 256})
    for (const int batch : {16, 4, 1})
      for (const bool causal : {true, false})
        if (d == 128 || (causal && batch != 16))
          bench_both("prefill", uniform(batch, 16384 / batch, 0, d, causal), pool);
  ExtendShape shape = uniform(4, 4096, 0, 192, true);
  shape.dv = 128;
  bench_both("prefill", shape, pool);
  for (const int page : {16, 1})
    bench_both("paged", uniform(4, 4096, page, 128, true), pool);
  for (const int page : {0, 16}) {
    shape = uniform(1, 32768, page, 128, true);
    shape.seqs = {{2048, 32768}};
    bench_both("2K on 30K", shape, pool);
  }
  shape = uniform(1, 1, 0, 128, true);
  shape.seqs.clear();
  for (const int n : {8192, 4096, 2048, 1024, 512, 256, 128, 128})
    shape.seqs.push_back({n, n});
  bench_both("ragged lengths", shape, pool);
  shape = uniform(1, 16384, 0, 128, true);
  shape.mask.window_left = 1023;
  bench_both("window 1024", shape, pool);
  shape.sinks = true;
  bench_both("window 1024 and sinks", shape, pool);
  shape = uniform(4, 4096, 0, 128, true);
  shape.softcap = 30;
  bench_both("soft cap", shape, pool);
}

/// Latent attention without absorption: all heads have their own keys.
static void bench_latent() {
  const Pool pool(size_t{3} << 30, 0);
  const auto bench = [&](const char* name, ExtendShape shape, int dv, int count) {
    shape.dv = dv, shape.kv_heads = count, shape.group = 1;
    bench_both((std::to_string(count) + " heads, " + name).c_str(), shape, pool);
  };
  for (const int heads : {16, 128})
    for (const int batch : {4, 1})
      bench("prefill", uniform(batch, 16384 / batch, 0, 192, true), 128, heads);
  for (const int heads : {16, 128})
    bench("prefill", uniform(1, 4096, 0, 192, true), 128, heads);
  for (const int batch : {4, 1})
    bench("prefill", uniform(batch, 16384 / batch, 0, 256, true), 256, 64);
  ExtendShape chunk = uniform(4, 4096, 0, 192, false);
  for (Sequence& s : chunk.seqs)
    s.n_q = 2048;
  bench("2K on a chunk of 4K", chunk, 128, 16);
}

/// Own 16-bit kernel, own 8-bit kernels and those of sm80, on the same shapes.
static void bench_eight_bit() {
  const Pool sixteen(size_t{1} << 30, 0), eight(size_t{1} << 29, 1);  // values without a NaN
  ExtendShape on32k = uniform(1, 32768, 16, 128, true);
  on32k.seqs = {{2048, 32768}};
  ExtendShape few = on32k;
  few.seqs.assign(8, {64, 8192});
  ExtendShape capped = uniform(4, 4096, 16, 128, true);
  capped.softcap = 30;
  struct Row {
    const char* name;
    ExtendShape shape;
  };
  std::vector<Row> rows = {{"2K on 30K", on32k},
                           {"4K", uniform(4, 4096, 16, 128, true)},
                           {"16K", uniform(1, 16384, 16, 128, true)},
                           {"64 rows on 8K", few},
                           {"1K", uniform(16, 1024, 16, 128, true)},
                           {"page 1", uniform(4, 4096, 1, 128, true)},
                           {"soft cap", capped},
                           {"D 64", uniform(4, 4096, 16, 64, true)},
                           {"D 256", uniform(4, 4096, 16, 256, true)}};
  for (const Row& row : rows) {
    Problem p;
    p.head_dim = row.shape.d, p.v_head_dim = row.shape.dv, p.mask = row.shape.mask;
    p.softcap = row.shape.softcap;
    for (const Element kv : {Element::bf16, Element::e4m3, Element::int8}) {
      p.kv = kv;
      const Pool& pool = kv == Element::bf16 ? sixteen : eight;
      const std::string type = kv == Element::bf16 ? " bf16 " : kv == Element::e4m3 ? " e4m3 " : " int8 ";
      if (select(p, KernelKind::extend).ok())
        bench_extend(("sm90" + type + row.name).c_str(), sm90_kernel(p, KernelKind::extend), row.shape, pool);
      if (kv != Element::bf16 && row.name == std::string("4K"))
        bench_extend(("sm80" + type + row.name).c_str(), kernel_of(p, KernelKind::extend), row.shape, pool);
    }
  }
}

/// Little work, and groups that do not divide the tile.
static void bench_few_rows() {
  const Pool pool(size_t{1} << 30, 0);
  ExtendShape narrow = uniform(1, 4096, 0, 128, true);
  narrow.kv_heads = 2;
  bench_both("8/2 heads, one of 4K", narrow, pool);
  bench_both("16 of 1K", uniform(16, 1024, 0, 128, true), pool);
  bench_both("64 of 256", uniform(64, 256, 0, 128, true), pool);
  ExtendShape odd = uniform(4, 4096, 0, 128, true);
  odd.kv_heads = 4, odd.group = 7;
  bench_both("28/4 heads", odd, pool);
  ExtendShape mha = uniform(4, 4096, 0, 128, true);
  mha.kv_heads = 32, mha.group = 1;
  bench_both("32/32 heads", mha, pool);
}

static void bench_decodes() {
  Pool pool(size_t{9} << 30, 0);
  for (const DecodeShape& shape : decode_shapes())
    for (const Element kv : {Element::bf16, Element::e4m3})
      for (const int page : {16, 64, 1}) {
        int64_t keys = 0;
        for (const int n : shape.lengths)
          keys += n;
        Problem p;
        p.kv = kv;
        p.few_sequences = shape.lengths.size() == 1 && keys <= 16384;
        const int bytes = element_bytes(kv);
        const char* type = bytes == 1 ? "e4m3" : "bf16";
        if (select(p, KernelKind::decode).ok())
          bench_decode((std::string("sm90 ") + type).c_str(), sm90_kernel(p, KernelKind::decode), shape, page,
                       pool, bytes);
        bench_decode((std::string("sm80 ") + type).c_str(), kernel_of(p, KernelKind::decode), shape, page,
                     pool, bytes);
      }
}

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::printf("no CUDA device of compute capability 9.0\n");
    return 77;  // skipped
  }
  std::printf("%s, %d SMs\n", properties.name, properties.multiProcessorCount);
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "bf16" || what == "check") check_type(Element::bf16);
  if (what == "fp16" || what == "check") check_type(Element::f16);
  if (what == "eight_bit") check_eight_bit_prefill(Element::bf16), check_eight_bit_prefill(Element::f16);
  if (what == "invariance" || what == "check") check_invariances();
  if (what == "drafts" || what == "check") check_drafts(argc > 2 ? std::atoi(argv[2]) : 0);
  if (what == "layouts" || what == "check") check_layouts();
  if (what == "bench_layouts") bench_layouts();
  if (what == "small") check_small();
  if (what == "bench" || what == "prefill") bench_prefill();
  if (what == "bench" || what == "latent_prefill") bench_latent();
  if (what == "bench" || what == "eight_bit_prefill") bench_eight_bit();
  if (what == "bench" || what == "few_rows") bench_few_rows();
  if (what == "bench" || what == "decode") bench_decodes();
  if (what == "bench" || what == "rows") bench_drafts();
  std::printf("%s %s: %d failures, %d problems refused\n", failures == 0 ? "PASS" : "FAIL", what.c_str(),
              failures, refused);
  return failures == 0 ? 0 : 1;
}
