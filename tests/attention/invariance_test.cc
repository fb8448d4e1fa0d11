// What a sequence's output bits must not depend on, for every level that a backend claims.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "conformance/invariance.h"
#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {
namespace {

/// A prompt of `n` tokens with causal masks, so that it can be computed in chunks.
Problem prompt(uint64_t seed, int n) {
  Random random(seed);
  Problem p;
  AttentionSpec& spec = p.spec;
  spec.num_kv_heads = random.pick(std::vector<int>{1, 2});
  spec.num_heads = spec.num_kv_heads * random.pick(std::vector<int>{1, 4, 5, 7});
  spec.head_dim = spec.v_head_dim = random.pick(std::vector<int>{64, 80, 128});
  spec.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  spec.dtype = random.pick(std::vector<DType>{DType::f32, DType::bf16, DType::f16});
  spec.page_size = 16;
  using enum KvCacheDType;
  spec.kv_dtype = std::array{auto_, fp8_e4m3, int8_per_token_head, fp8_e5m2}[seed % 4];
  switch (random.below(6)) {
    case 0: spec.mask.window_left = 100; break;
    case 1: spec.mask.window_left = 33, spec.mask.sink_tokens = 4; break;
    case 2: spec.mask.chunk = 48; break;
    case 3: spec.softcap = 5.0f; break;
    default: break;
  }
  if (random.chance(30)) {
    spec.has_sink = true;
    for (int h = 0; h < spec.num_heads; ++h)
      p.sinks.push_back(random.normal());
  }
  if (spec.softcap == 0 && random.chance(30)) {
    spec.has_alibi = true;
    for (int h = 0; h < spec.num_heads; ++h)
      p.slopes.push_back(std::exp2(-static_cast<float>(h + 1)));
  }
  p.seqs = {make_sequence(spec, n, n, random.bits(), {.qk_gain = random.chance(50) ? 4.0f : 1.0f})};
  return p;
}

class Invariant : public ::testing::Test {
 protected:
  /// Calls check(backend), on every instruction set, for each that claims `level` and serves `problem`'s
  /// spec.
  template <class Check>
  void each_backend(Invariance level, const Problem& problem, Check check) {
    for (const auto* entry : cpu_backends()) {
      if (!entry->info->capability.invariance.has(level)) continue;
      if (!validate(*entry->info, problem.spec, {}, Phase::prefill).empty()) continue;
      const auto backend = entry->create();
      each_isa(*entry->info, [&] {
        SCOPED_TRACE(std::string(entry->info->name) + " on " + std::string(to_string(current_isa())) + " " +
                     problem.describe());
        check(*backend);
      });
    }
  }
  ThreadPool one_{1};
  HostMachine machine_{one_};
};

TEST_F(Invariant, RunsAgain) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Problem problem = prompt(seed, 150);
    ThreadPool pool(2);
    each_backend(Invariance::run, problem, [&](AttentionBackend& backend) {
      const Output first = run(backend, problem, {}, pool);
      EXPECT_EQ(first.error, "");
      for (int again = 0; again < 3; ++again)
        EXPECT_TRUE(run(backend, problem, {}, pool) == first);
    });
  }
}

TEST_F(Invariant, AloneOrInCompany) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const bool decode : {false, true}) {
      Problem batch = prompt(seed, 130);
      Random random(seed);
      for (int more = 0; more < 4; ++more) {
        const int n_k = 1 + random.below(1200);
        const int n_q = std::min(n_k, random.pick(std::vector<int>{1, 2, 17, 40}));
        batch.seqs.push_back(make_sequence(batch.spec, n_q, n_k, random.bits()));
      }
      if (decode) {
        batch.phase = Phase::decode;
        for (Sequence& s : batch.seqs)
          s = make_sequence(batch.spec, 1, s.n_k, random.bits());
      }
      std::swap(batch.seqs[0], batch.seqs[2]);
      each_backend(Invariance::batch, batch, [&](AttentionBackend& backend) {
        const Output all = run(backend, batch, {}, one_);
        ASSERT_EQ(all.error, "");
        int64_t row = 0;
        for (int s = 0; s < static_cast<int>(batch.seqs.size()); ++s) {
          const int n_q = batch.seqs[s].n_q;
          EXPECT_TRUE(run(backend, alone(batch, s), {.shuffle = 5}, one_) ==
                      rows_of(all, batch.spec, row, row + n_q))
              << "sequence " << s;
          row += n_q;
        }
      });
    }
  }
}

TEST_F(Invariant, PageSizesAndLayouts) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Problem problem = prompt(seed, 170);
    problem.seqs.push_back(make_sequence(problem.spec, 3, 1100, seed));
    each_backend(Invariance::page_size, problem, [&](AttentionBackend& backend) {
      const Output first = run(backend, problem, {}, one_);
      ASSERT_EQ(first.error, "");
      for (const int page : {1, 3, 16, 64, 544}) {
        if (!backend.info().capability.page_sizes.has(page)) continue;
        Problem other = problem;
        other.spec.page_size = page;
        EXPECT_TRUE(run(backend, other, {.shuffle = 3}, one_) == first) << "page " << page;
        EXPECT_TRUE(run(backend, other, {.kv = KvLayout::nhd, .row_padding = 8}, one_) == first)
            << "nhd, page " << page;
        const FeatureSet& features = backend.info().capability.features;
        if (features.has(Feature::kv_x_packed)) {
          EXPECT_TRUE(run(backend, other, {.shuffle = 4, .kv = KvLayout::x_packed}, one_) == first)
              << "x_packed, page " << page;
        }
        if (features.has(Feature::kv_shuffle) &&
            page % x_of(resolve(other.spec.kv_dtype, other.spec.dtype)) == 0) {
          EXPECT_TRUE(run(backend, other, {.shuffle = 6, .kv = KvLayout::shuffle}, one_) == first)
              << "shuffle, page " << page;
        }
        EXPECT_TRUE(run(backend, other, {.shuffle = 5, .page_lists = true}, one_) == first)
            << "page lists, page " << page;
      }
    });
  }
}

TEST_F(Invariant, Chunking) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const Problem problem = prompt(seed, 190);
    each_backend(Invariance::chunking, problem, [&](AttentionBackend& backend) {
      const Output whole = run(backend, problem, {}, one_);
      ASSERT_EQ(whole.error, "");
      for (const int chunk : {1, 7, 64})
        EXPECT_TRUE(in_chunks(backend, problem, 0, chunk, {}, Phase::decode, machine_) == whole)
            << "chunks of " << chunk;
    });
  }
}

TEST_F(Invariant, LongContextInChunksThatCrossEveryTile) {
  Problem problem = prompt(4, 1);
  problem.seqs = {make_sequence(problem.spec, 40, 2100, 11)};
  each_backend(Invariance::chunking, problem, [&](AttentionBackend& backend) {
    const Output whole = run(backend, problem, {}, one_);
    ASSERT_EQ(whole.error, "");
    for (const int chunk : {1, 7, 33})
      EXPECT_TRUE(in_chunks(backend, problem, 0, chunk, {}, Phase::decode, machine_) == whole)
          << "chunks of " << chunk;
  });
}

TEST_F(Invariant, Threads) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Problem problem = prompt(seed, 150);
    problem.seqs.push_back(make_sequence(problem.spec, 1, 1500, seed));
    each_backend(Invariance::threads, problem, [&](AttentionBackend& backend) {
      const Output first = run(backend, problem, {}, one_);
      ASSERT_EQ(first.error, "");
      for (const int threads : {2, 3, 4}) {
        ThreadPool pool(threads);
        EXPECT_TRUE(run(backend, problem, {}, pool) == first) << threads << " threads";
        Problem decode = alone(problem, 1);
        decode.phase = Phase::decode;
        EXPECT_TRUE(run(backend, decode, {}, pool) == run(backend, decode, {}, one_))
            << "decode with " << threads << " threads";
      }
    });
  }
}

}  // namespace
}  // namespace fovea::conformance
