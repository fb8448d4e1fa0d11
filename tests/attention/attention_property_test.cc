// Every CPU backend, on what it claims, against TORCH_NATIVE in fp64: random problems, and sweeps of the
// sequence lengths, head counts, head sizes and page sizes at which kernels tend to fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "conformance/run.h"
#include "fovea/attention.h"
#include "fovea/attention_backend.h"
#include "tests/support/sanitized.h"

namespace fovea::conformance {
namespace {

/// FOVEA_TEST_SEED=n runs only that seed.
std::pair<uint64_t, uint64_t> seeds(uint64_t count) {
  if (const char* given = std::getenv("FOVEA_TEST_SEED")) {
    const uint64_t seed = std::strtoull(given, nullptr, 10);
    return {seed, seed + 1};
  }
  return {0, count};
}

constexpr uint64_t kSeeds = 400;
#ifdef FOVEA_SANITIZED
constexpr uint64_t kRunSeeds = kSeeds / 12, kIsaSeeds = 12;
#else
constexpr uint64_t kRunSeeds = kSeeds / 2, kIsaSeeds = 60;
#endif

AttentionSpec plain_spec(int heads, int kv_heads, int head_dim) {
  AttentionSpec spec;
  spec.num_heads = heads;
  spec.num_kv_heads = kv_heads;
  spec.head_dim = spec.v_head_dim = head_dim;
  spec.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  spec.page_size = 16;
  return spec;
}

/// Whether the backend claims the layout of pages.
bool reads(const BackendInfo& info, KvLayout layout) {
  const FeatureSet& features = info.capability.features;
  if (layout == KvLayout::x_packed) return features.has(Feature::kv_x_packed);
  return layout != KvLayout::shuffle || features.has(Feature::kv_shuffle);
}

/// The backends of layers without MLA.
std::vector<const BackendRegistry::Entry*> usual_backends() {
  auto entries = cpu_backends();
  std::erase_if(entries, [](const auto* e) { return e->info->capability.features.has(Feature::mla); });
  return entries;
}

/// random_layout(), in a layout of pages that the backend reads.
Layout layout_for(const BackendInfo& info, uint64_t seed, const AttentionSpec& spec) {
  Layout layout = random_layout(seed, spec);
  if (!reads(info, layout.kv)) layout.kv = KvLayout::hnd;
  return layout;
}

/// Runs `problem` on every backend that serves it.
void expect_conforming(const Problem& problem, uint64_t seed) {
  ThreadPool pool(1);
  for (const auto* entry : cpu_backends()) {
    if (!validate(*entry->info, problem.spec, {}, problem.phase).empty()) continue;
    const auto backend = entry->create();
    EXPECT_EQ(conform(*backend, problem, layout_for(*entry->info, seed, problem.spec), pool), "");
  }
}

TEST(AttentionProperty, RandomProblemsMatchTheReference) {
  ThreadPool one(1), three(3);
  for (const auto* entry : cpu_backends()) {
    const auto backend = entry->create();
    const auto [first, last] = seeds(kRunSeeds);
    for (uint64_t seed = first; seed < last; ++seed) {
      const Problem problem = random_problem(seed, entry->info->capability);
      const std::string failure = conform(*backend, problem, layout_for(*entry->info, seed, problem.spec),
                                          seed % 4 == 0 ? three : one);
      EXPECT_EQ(failure, "") << "FOVEA_TEST_SEED=" << seed;
    }
  }
}

TEST(AttentionProperty, OnEveryInstructionSet) {
  ThreadPool pool(1);
  for (const auto* entry : cpu_backends()) {
    const auto backend = entry->create();
    each_isa(*entry->info, [&] {
      const auto [first, last] = seeds(kIsaSeeds);
      for (uint64_t seed = first; seed < last; ++seed) {
        const Problem problem = random_problem(seed, entry->info->capability);
        EXPECT_EQ(conform(*backend, problem, layout_for(*entry->info, seed, problem.spec), pool), "")
            << "FOVEA_TEST_SEED=" << seed << " on " << to_string(current_isa());
      }
    });
  }
}

/// The random problems must contain every feature that they are meant to test.
TEST(AttentionProperty, RandomProblemsReachEveryFeature) {
  std::map<std::string, int> seen;
  const Capability& c = builtin_backends().find("TORCH_NATIVE")->info->capability;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Problem p = random_problem(seed, c);
    const MaskSpec& m = p.spec.mask;
    const std::pair<const char*, bool> facts[] = {
        {"window", m.window_left >= 0},
        {"right window", m.window_right > 0},
        {"sink tokens", m.sink_tokens > 0},
        {"chunk", m.chunk > 0},
        {"spans", m.spans},
        {"packed", m.packed},
        {"tree", m.tree},
        {"non-causal decoder", !m.causal && !m.packed && p.spec.type == AttentionType::decoder},
        {"encoder", p.spec.type == AttentionType::encoder},
        {"encoder_only", p.spec.type == AttentionType::encoder_only},
        {"encoder_decoder", p.spec.type == AttentionType::encoder_decoder},
        {"softcap", p.spec.softcap > 0},
        {"sink", p.spec.has_sink},
        {"sink in lse", p.spec.lse_includes_sink},
        {"alibi", p.spec.has_alibi},
        {"slopes", p.spec.has_alibi && p.slopes != canonical_slopes(p.spec.num_heads)},
        {"scale", std::abs(p.spec.scale * std::sqrt(static_cast<float>(p.spec.head_dim)) - 1.0f) > 0.1f},
        {"negative scale", p.spec.scale < 0},
        {"more than 8 KV heads", p.spec.num_kv_heads > 8},
        {"decode", p.phase == Phase::decode},
        {"prefill", p.phase == Phase::prefill},
        {"f32", p.spec.dtype == DType::f32},
        {"f16", p.spec.dtype == DType::f16},
        {"bf16", p.spec.dtype == DType::bf16},
        {"mixed dtypes", kv_dtype_of(p.spec) != resolve(KvCacheDType::auto_, p.spec.dtype)},
        {"e4m3", p.spec.kv_dtype == KvCacheDType::fp8_e4m3},
        {"e5m2", p.spec.kv_dtype == KvCacheDType::fp8_e5m2},
        {"int8", p.spec.kv_dtype == KvCacheDType::int8_per_token_head},
        {"x_packed", random_layout(seed, p.spec).kv == KvLayout::x_packed},
        {"nhd", random_layout(seed, p.spec).kv == KvLayout::nhd},
        {"page lists", random_layout(seed, p.spec).page_lists},
        {"D != Dv", p.spec.head_dim != p.spec.v_head_dim},
        {"page 3", p.spec.page_size == 3},
        {"page 544", p.spec.page_size == 544},
        {"more rows than keys",
         std::any_of(p.seqs.begin(), p.seqs.end(), [](const Sequence& s) { return s.n_q > s.n_k; })},
        {"no rows", std::any_of(p.seqs.begin(), p.seqs.end(), [](const Sequence& s) { return s.n_q == 0; })},
        {"no keys", std::any_of(p.seqs.begin(), p.seqs.end(), [](const Sequence& s) { return s.n_k == 0; })},
        {"over 1000 keys",
         std::any_of(p.seqs.begin(), p.seqs.end(), [](const Sequence& s) { return s.n_k > 1000; })},
        {"no sequences", p.seqs.empty()},
    };
    for (const auto& [name, holds] : facts)
      seen[name] += holds;
  }
  for (const auto& [name, count] : seen)
    EXPECT_GE(count, 4) << name;
}

TEST(AttentionProperty, LengthSweep) {
  const AttentionSpec spec = plain_spec(2, 1, 64);
  uint64_t seed = 1;
  for (const int n_k : test::cases({0,   1,   2,   31,  32,  33,  63, 64, 65, 127,  128,  129,
                                    255, 256, 257, 511, 512, 513, 15, 16, 17, 1023, 1024, 1025},
                                   6)) {
    Problem p;
    p.spec = spec;
    for (const int n_q : {0, 1, 2, 3, 7, 16, 17, 64, 127, 129})
      if (n_q <= n_k || n_q <= 3) p.seqs.push_back(make_sequence(spec, n_q, n_k, ++seed));
    expect_conforming(p, seed);
  }
  Problem p;
  p.spec = spec;
  for (const int n_q : {1, 2, 7})
    p.seqs.push_back(make_sequence(spec, n_q, 8191, ++seed, {.qk_gain = 2}));
  expect_conforming(p, seed);
  p.phase = Phase::decode;
  p.seqs = {make_sequence(spec, 1, 8191, 3, {.qk_gain = 2}), make_sequence(spec, 1, 4097, 4)};
  expect_conforming(p, seed);
}

TEST(AttentionProperty, MoreRowsThanKeys) {
  for (const int n_k : {0, 1, 2, 17})
    for (const int n_q : {2, 17, 40}) {
      Problem p;
      p.spec = plain_spec(2, 1, 32);
      p.seqs = {make_sequence(p.spec, n_q, n_k, 5), make_sequence(p.spec, 3, 20, 6)};
      expect_conforming(p, 7);
      p.spec.mask.causal = false;
      p.spec.mask.window_left = 4;
      p.spec.mask.window_right = 3;
      expect_conforming(p, 7);
    }
}

TEST(AttentionProperty, HeadCounts) {
  for (const auto& [heads, kv_heads] :
       {std::pair{1, 1}, {8, 8}, {8, 1}, {40, 8}, {28, 4}, {5, 1}, {12, 1}, {24, 8}, {128, 1}}) {
    Problem p;
    p.spec = plain_spec(heads, kv_heads, 64);
    p.spec.dtype = DType::bf16;
    for (const int n_q : {1, 9})
      p.seqs.push_back(make_sequence(p.spec, n_q, 150, static_cast<uint64_t>(heads), {.coded_v = true}));
    expect_conforming(p, 8);
    for (Sequence& s : p.seqs)
      s = make_sequence(p.spec, 1, 70, static_cast<uint64_t>(heads) + 1);
    p.phase = Phase::decode;
    expect_conforming(p, 9);
  }
}

TEST(AttentionProperty, HeadSizes) {
  struct Dims {
    int qk, v;
  };
  std::vector<Dims> dims = {{192, 128}, {128, 192}, {576, 512}, {64, 256}};
  for (int d = 16; d <= 512; d += d < 272 ? 8 : 48)
    dims.push_back({d, d});
  for (const Dims& d : dims) {
    Problem p;
    p.spec = plain_spec(2, 1, d.qk);
    p.spec.v_head_dim = d.v;
    p.seqs = {make_sequence(p.spec, 7, 50, 3), make_sequence(p.spec, 1, 37, 4)};
    expect_conforming(p, 10);
    p.spec.dtype = DType::f16;
    p.seqs = {make_sequence(p.spec, 1, 50, 3), make_sequence(p.spec, 1, 37, 4)};
    p.phase = Phase::decode;
    expect_conforming(p, 11);
  }
}

// Combinations of head sizes, groups, masks, caps and sinks of published models; windows and chunks are
// shorter, so that the lengths below cross them (W - 1, W, W + 1, 2 W keys).
TEST(AttentionProperty, ShapesOfModels) {
  struct Shape {
    const char* model;
    int heads, kv_heads, head_dim, window, chunk;
    float softcap;
    bool sink;
  };
  constexpr int kReach = 48;
  const Shape shapes[] = {
      {"gemma-2-9b, sliding", 4, 2, 256, kReach, 0, 50.0f, false},
      {"gemma-2-9b, full", 4, 2, 256, 0, 0, 50.0f, false},
      {"gemma-3-1b, sliding", 4, 1, 256, kReach, 0, 0, false},
      {"gpt-oss-20b, sliding", 8, 1, 64, kReach, 0, 0, true},
      {"gpt-oss-20b, full", 8, 1, 64, 0, 0, 0, true},
      {"llama-4-scout, chunked", 5, 1, 128, 0, kReach, 0, false},
      {"phi-3-mini, sliding", 2, 2, 96, kReach, 0, 0, false},
      {"mistral-7b-v0.1", 4, 1, 128, kReach, 0, 0, false},
      {"all at once", 6, 2, 72, kReach - 7, kReach, 3.0f, true},
  };
  uint64_t seed = 20;
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.model);
    Problem p;
    p.spec = plain_spec(shape.heads, shape.kv_heads, shape.head_dim);
    p.spec.mask.window_left = shape.window > 0 ? shape.window - 1 : -1;
    p.spec.mask.chunk = shape.chunk;
    p.spec.softcap = shape.softcap;
    p.spec.has_sink = shape.sink;
    for (int h = 0; shape.sink && h < shape.heads; ++h)
      p.sinks.push_back(0.5f * static_cast<float>(h) - 1.0f);
    for (const int n_k : {kReach - 1, kReach, kReach + 1, 2 * kReach})
      p.seqs.push_back(make_sequence(p.spec, n_k, n_k, ++seed));
    p.seqs.push_back(make_sequence(p.spec, 5, 3 * kReach + 2, ++seed));
    expect_conforming(p, ++seed);
    p.phase = Phase::decode;
    p.seqs.clear();
    for (const int n_k : {kReach - 1, kReach, kReach + 1, 2 * kReach, 5 * kReach})
      p.seqs.push_back(make_sequence(p.spec, 1, n_k, ++seed));
    expect_conforming(p, ++seed);
  }
}

TEST(AttentionProperty, PageSizes) {
  for (const int page : {1, 2, 3, 5, 16, 31, 64, 100, 544, 1024}) {
    Problem p;
    p.spec = plain_spec(4, 2, 80);
    p.spec.page_size = page;
    p.spec.mask.window_left = 70;
    p.spec.mask.sink_tokens = 3;
    for (const int n_k : {page - 1, page, page + 1, 700})
      p.seqs.push_back(make_sequence(p.spec, std::min(n_k, 20), n_k, 12, {.coded_v = true}));
    expect_conforming(p, 13);
  }
}

constexpr KvCacheDType kStored[] = {KvCacheDType::float32,  KvCacheDType::float16,
                                    KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3,
                                    KvCacheDType::fp8_e5m2, KvCacheDType::int8_per_token_head};

TEST(AttentionProperty, CacheDtypesLayoutsAndPageSizes) {
  ThreadPool pool(1);
  for (const KvCacheDType kv : kStored) {
    Problem p;
    p.spec = plain_spec(6, 2, 80);
    p.spec.v_head_dim = 72;
    p.spec.kv_dtype = kv;
    p.spec.mask.window_left = 130;
    // Widened in registers, widened in scratch, and a decode whose rows end within a tile.
    p.seqs = {make_sequence(p.spec, 2, 150, 1, {.qk_gain = 3}), make_sequence(p.spec, 20, 90, 2),
              make_sequence(p.spec, 1, 200, 3, {.coded_v = true})};
    const Output want = reference(p, pool), textbook = naive(p);
    for (const auto* entry : cpu_backends()) {
      if (!validate(*entry->info, p.spec, {}, p.phase).empty()) continue;
      const auto backend = entry->create();
      each_isa(*entry->info, [&] {
        for (const int page : {1, 3, 16, 544})
          for (const KvLayout layout : {KvLayout::hnd, KvLayout::nhd, KvLayout::x_packed, KvLayout::shuffle})
            for (const bool lists : {false, true}) {
              if ((layout == KvLayout::shuffle && page % 16 != 0) || !reads(*entry->info, layout)) continue;
              p.spec.page_size = page;
              const Output got = run(*backend, p, {.shuffle = 3, .kv = layout, .page_lists = lists}, pool);
              EXPECT_EQ(judge(p, got, want, textbook), "")
                  << p.describe() << ' ' << to_string(layout) << (lists ? " lists" : " table") << " on "
                  << to_string(current_isa());
            }
      });
    }
  }
}

TEST(AttentionProperty, EqualScoresAverageAndOneHotCopies) {
  ThreadPool pool(1);
  for (const auto* entry : usual_backends()) {
    const auto backend = entry->create();
    Problem p;
    p.spec = plain_spec(2, 1, 32);
    p.spec.mask.causal = false;
    p.seqs = {make_sequence(p.spec, 3, 96, 1, {.qk_gain = 0})};
    Sequence& s = p.seqs[0];
    for (int j = 0; j < s.n_k; ++j)
      for (int d = 0; d < 32; ++d)
        s.v[j * 32 + d] = static_cast<float>(j % 3);  // the average is exactly 1
    Output out = run(*backend, p, {}, pool);
    for (float o : out.o)
      EXPECT_NEAR(o, 1.0f, 1e-6f) << entry->info->name;
    for (float lse : out.lse)
      EXPECT_NEAR(lse, std::log(96.0f), 2e-6f);
    // One key's score far above the others: the output is exactly its value.
    std::fill(s.q.begin(), s.q.end(), 30.0f);
    std::fill_n(s.k.begin() + 41 * 32, 32, 30.0f);
    s.v = make_sequence(p.spec, 3, 96, 2).v;
    out = run(*backend, p, {}, pool);
    for (size_t i = 0; i < out.o.size(); ++i)
      EXPECT_EQ(out.o[i], s.v[41 * 32 + i % 32]) << entry->info->name;
  }
}

/// Settings that must change no bit.
TEST(AttentionProperty, NeutralSettingsAreNeutral) {
  ThreadPool pool(1);
  const std::pair<const char*, std::function<void(Problem&)>> neutral[] = {
      {"wide window", [](Problem& p) { p.spec.mask.window_left = 100000; }},
      {"right window of a causal mask", [](Problem& p) { p.spec.mask.window_right = 0; }},
      {"chunk beyond the end", [](Problem& p) { p.spec.mask.chunk = 4096; }},
      {"sink tokens without a window", [](Problem& p) { p.spec.mask.sink_tokens = 5; }},
      {"sink of -inf",
       [](Problem& p) {
         p.spec.has_sink = true;
         p.sinks.assign(p.spec.num_heads, -std::numeric_limits<float>::infinity());
       }},
      {"slopes of 0",
       [](Problem& p) {
         p.spec.has_alibi = true;
         p.slopes.assign(p.spec.num_heads, 0.0f);
       }},
      {"no spans", [](Problem& p) { p.spec.mask.spans = true; }},
      {"a tree of zeros",
       [](Problem& p) {
         p.spec.mask.tree = true;
         p.tree_size = 64;
         p.tree_bias.assign(64 * 64, 0.0f);
       }},
      {"causal as a packed mask",
       [](Problem& p) {
         p.spec.mask.causal = false;
         p.spec.mask.packed = true;
         for (Sequence& s : p.seqs) {
           s.packed.assign((int64_t{s.n_q} * s.n_k + 7) / 8, 0);
           for (int64_t i = 0; i < s.n_q; ++i)
             for (int64_t j = 0; j <= i + s.n_k - s.n_q; ++j)
               s.packed[(i * s.n_k + j) / 8] |= static_cast<uint8_t>(1u << ((i * s.n_k + j) % 8));
         }
       }},
  };
  for (const auto* entry : usual_backends()) {
    const auto backend = entry->create();
    Problem base;
    base.spec = plain_spec(6, 2, 64);
    base.seqs = {make_sequence(base.spec, 33, 300, 1), make_sequence(base.spec, 1, 70, 2)};
    if (!validate(*entry->info, base.spec, {}, base.phase).empty()) continue;
    const Output want = run(*backend, base, {}, pool);
    ASSERT_EQ(want.error, "");
    for (const auto& [name, change] : neutral) {
      Problem p = base;
      change(p);
      if (!validate(*entry->info, p.spec, {}, p.phase).empty()) continue;
      EXPECT_TRUE(run(*backend, p, {}, pool) == want) << entry->info->name << ": " << name;
    }
  }
}

}  // namespace
}  // namespace fovea::conformance
