#include "kernels/cuda/plan/plan.h"

#include <gmock/gmock.h>
#include <utility>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/result.h"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

struct PlanStep {
  std::vector<int32_t> n_q, n_k;

  std::vector<int32_t> q_offsets() const {
    std::vector<int32_t> out = {0};
    for (const int32_t n : n_q)
      out.push_back(out.back() + n);
    return out;
  }
  /// The least limits that hold the step.
  AttentionLimits limits() const {
    AttentionLimits out;
    out.max_seqs = static_cast<int>(n_q.size());
    for (size_t b = 0; b < n_q.size(); ++b) {
      out.max_tokens += n_q[b];
      out.max_kv_tokens += n_q[b] > 0 ? n_k[b] : 0;
      if (n_q[b] > 0) out.max_kv_len = std::max(out.max_kv_len, n_k[b]);
    }
    return out;
  }
};

/// Lengths around every border: none, one, a block, a split, and long ones.
PlanStep random_step(std::mt19937& random, int seqs, int most_rows, int most_keys) {
  PlanStep step;
  const auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<unsigned>(n)); };
  const int32_t borders[] = {0, 1, 63, 64, 65, 255, 256, 257, 511, 512, 513, most_keys};
  for (int b = 0; b < seqs; ++b) {
    const int kind = below(4);
    step.n_q.push_back(kind == 0 ? 0 : kind == 1 ? 1 : 1 + below(most_rows));
    step.n_k.push_back(below(2) == 0 ? std::min(borders[below(std::size(borders))], most_keys)
                                     : below(most_keys + 1));
  }
  return step;
}

HostPlan make_plan(const PlanPolicy& policy, const AttentionLimits& limits, const PlanStep& step) {
  EXPECT_TRUE(check_plan_limits(policy, limits).ok());
  const std::vector<int32_t> offsets = step.q_offsets();
  PlanInput input;
  input.q_offsets = offsets.data();
  input.kv_lens = step.n_k.data();
  input.num_seqs = static_cast<int>(step.n_k.size());
  return make_plan_on_host(policy, limits, input);
}

PlanPolicy policy_of(const MaskSpec& mask = {}) {
  PlanPolicy policy;
  policy.num_kv_heads = 2;
  policy.group = 3;
  policy.tile_rows = 16;
  policy.block_keys = 64;
  policy.split_keys = 256;
  policy.max_split_tokens = 6;
  policy.mask = mask;
  return policy;
}

TEST(Plan, SequencesOfAFewRowsAreSplitWhereThereIsRoom) {
  PlanPolicy policy = policy_of();
  policy.max_split_tokens = 1;
  policy.draft_tokens = 6;
  const std::vector<int32_t> offsets = {0, 6, 7, 14}, lens = {600, 1000, 900};
  const PlanInput input{offsets.data(), lens.data(), nullptr, nullptr, 3};
  const AttentionLimits limits{3, 14, 2500, 1000};
  // 2 tiles of 18 rows in 3 splits, with rows for 16 and 2; and 1 tile in 4. A partial result has 3 rows.
  const PartialRoom enough{2 * 6 * 3 + 4, 3}, less{enough.most - 1, 3};
  const auto splits = [&](const PartialRoom& room) {
    std::vector<int> all;
    for (const PlanTile& tile : make_plan_on_host(policy, limits, input, room).tiles)
      all.push_back(tile.num_splits);
    return all;
  };
  EXPECT_EQ(splits(enough), (std::vector{3, 3, 4, 1, 1}));
  EXPECT_EQ(splits(less), (std::vector{1, 1, 4, 1, 1}));
  EXPECT_EQ(enough.of_tile(16), 6);
  EXPECT_EQ(enough.of_tile(2), 1);
}

std::vector<MaskSpec> masks() {
  std::vector<MaskSpec> out(6);
  out[1].causal = false;
  out[2].window_left = 100;
  out[3].window_left = 300, out[3].sink_tokens = 70;
  out[4].window_left = 20, out[4].sink_tokens = 600;
  out[5].chunk = 200;
  return out;
}

/// Every packed row of every sequence lies in one tile, and all keys that a tile's rows see in its blocks.
void expect_tiles_cover(const PlanPolicy& policy, const HostPlan& plan, const PlanStep& step) {
  std::map<std::pair<int, int>, int> seen;  // (seq, packed row)
  const std::vector<int32_t> offsets = step.q_offsets();
  for (const PlanTile& tile : plan.tiles) {
    ASSERT_GT(tile.rows, 0);
    EXPECT_EQ(tile.q_row, offsets[tile.seq]);
    const SequenceMask mask{step.n_q[tile.seq], step.n_k[tile.seq]};
    EXPECT_EQ(tile.n_q, mask.n_q);
    EXPECT_EQ(tile.n_k, mask.n_k);
    for (int r = tile.row; r < tile.row + tile.rows; ++r) {
      ++seen[{tile.seq, r}];
      for (int64_t j = 0; j < mask.n_k; ++j) {
        if (!visible(policy.mask, mask, r / policy.group, j)) continue;
        const int64_t block = j / policy.block_keys;
        EXPECT_TRUE(block < tile.sink_block_end || (block >= tile.block && block < tile.block_end))
            << "key " << j << " of row " << r;
      }
    }
  }
  size_t rows = 0;
  for (size_t b = 0; b < step.n_q.size(); ++b)
    rows += static_cast<size_t>(step.n_q[b]) * static_cast<size_t>(policy.group);
  EXPECT_EQ(seen.size(), rows);
  for (const auto& [row, times] : seen)
    EXPECT_EQ(times, 1) << row.first << ", " << row.second;
}

/// A tile's splits are its blocks, in order, each inside one absolute split, none empty unless the tile is.
void expect_splits_partition(const PlanPolicy& policy, const HostPlan& plan) {
  const int each = policy.split_keys / policy.block_keys;
  for (const PlanTile& tile : plan.tiles) {
    std::vector<int> blocks, expected;
    for (int k = 0; k < tile.num_splits; ++k) {
      const SplitBlocks split = split_blocks(policy, tile, k);
      std::set<int> absolute;
      const auto add = [&](int begin, int end) {
        for (int block = begin; block < end; ++block) {
          blocks.push_back(block);
          absolute.insert(block / each);
        }
      };
      add(split.sink_block, split.sink_block_end);
      add(split.block, split.block_end);
      EXPECT_TRUE(absolute.size() == 1 || tile.is_split == 0 || tile.num_splits == 1) << k;
    }
    for (int block = 0; block < tile.sink_block_end; ++block)
      expected.push_back(block);
    for (int block = tile.block; block < tile.block_end; ++block)
      expected.push_back(block);
    EXPECT_EQ(blocks, expected);
    EXPECT_EQ(tile.is_split, tile.n_q <= policy.max_split_tokens);
  }
}

void expect_plan_holds(const PlanPolicy& policy, const PlanStep& step) {
  const HostPlan plan = make_plan(policy, step.limits(), step);
  ASSERT_EQ(plan.error, PlanError::none);
  EXPECT_LE(static_cast<int64_t>(plan.tiles.size()), max_tiles(policy, step.limits()));
  expect_tiles_cover(policy, plan, step);
  expect_splits_partition(policy, plan);
}

TEST(Plan, HoldsForRandomSteps) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const PlanStep step = random_step(random, 1 + static_cast<int>(random() % 9), 20, 1500);
    for (const MaskSpec& mask : masks())
      expect_plan_holds(policy_of(mask), step);
  }
}

TEST(Plan, HoldsForSpans) {
  const PlanStep step{{4, 40}, {300, 700}};
  const std::vector<Span> spans = {{290, 298}, {100, 299}, {650, 699}};
  const std::vector<int32_t> span_offsets = {0, 1, 3}, offsets = step.q_offsets();
  PlanPolicy policy = policy_of();
  policy.mask.spans = true;
  policy.mask.window_left = 10;
  const PlanInput input{offsets.data(), step.n_k.data(), spans.data(), span_offsets.data(), 2};
  const HostPlan plan = make_plan_on_host(policy, step.limits(), input);
  ASSERT_EQ(plan.error, PlanError::none);
  for (const PlanTile& tile : plan.tiles) {
    SequenceMask mask{tile.n_q, tile.n_k};
    mask.spans =
        std::span(spans).subspan(static_cast<size_t>(span_offsets[tile.seq]),
                                 static_cast<size_t>(span_offsets[tile.seq + 1] - span_offsets[tile.seq]));
    for (int r = tile.row; r < tile.row + tile.rows; ++r)
      for (int64_t j = 0; j < tile.n_k; ++j)
        if (visible(policy.mask, mask, r / policy.group, j)) {
          EXPECT_TRUE(j / 64 >= tile.block && j / 64 < tile.block_end) << tile.seq << ": " << r << ", " << j;
        }
  }
}

TEST(Plan, StepsOfNoSpansNeedNoArrayOfThem) {
  const PlanStep step{{4, 40}, {300, 700}};
  const std::vector<int32_t> none = {0, 0, 0}, offsets = step.q_offsets();
  PlanPolicy policy = policy_of();
  policy.mask.window_left = 10;
  const HostPlan without = make_plan(policy, step.limits(), step);
  policy.mask.spans = true;
  PlanInput input{offsets.data(), step.n_k.data(), nullptr, none.data(), 2};
  ASSERT_TRUE(check_plan_input(policy, step.limits(), input).ok());
  const HostPlan with = make_plan_on_host(policy, step.limits(), input);
  ASSERT_EQ(with.error, PlanError::none);
  EXPECT_TRUE(with.tiles == without.tiles);
  input.span_offsets = nullptr;
  EXPECT_FALSE(check_plan_input(policy, step.limits(), input).ok());
}

TEST(Plan, EmptySequencesAndEmptySteps) {
  for (const PlanStep& step :
       {PlanStep{{}, {}}, PlanStep{{0, 0}, {5, 0}}, PlanStep{{0, 1, 0, 2}, {0, 0, 9, 0}}}) {
    expect_plan_holds(policy_of(), step);
    for (const PlanTile& tile : make_plan(policy_of(), step.limits(), step).tiles)
      EXPECT_EQ(tile.num_splits, 1);  // rows without keys still get their output
  }
}

// The cut of one sequence is the same alone, with others and with other limits.
TEST(Plan, ASequencesSplitsAreItsOwn) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    PlanStep alone = random_step(random, 1, 12, 3000);
    alone.n_q[0] = std::max(alone.n_q[0], 1);
    PlanStep company = random_step(random, 6, 30, 3000);
    company.n_q.push_back(alone.n_q[0]);
    company.n_k.push_back(alone.n_k[0]);
    AttentionLimits limits = company.limits();
    limits.max_kv_tokens *= 2;
    for (const MaskSpec& mask : masks()) {
      const HostPlan a = make_plan(policy_of(mask), alone.limits(), alone),
                     b = make_plan(policy_of(mask), limits, company);
      ASSERT_GE(b.tiles.size(), a.tiles.size());
      const size_t first = b.tiles.size() - a.tiles.size();
      for (size_t i = 0; i < a.tiles.size(); ++i) {
        PlanTile in_company = b.tiles[first + i];
        in_company.seq = a.tiles[i].seq;
        in_company.q_row = a.tiles[i].q_row;
        EXPECT_TRUE(in_company == a.tiles[i]) << i;
      }
    }
  }
}

TEST(Plan, SplitsReachTheirBound) {
  // Sequences as long as allowed, one key past a border: every term is tight.
  const PlanStep step{{5, 5, 5}, {1025, 1025, 1025}};
  const SplitBounds bounds = split_bounds(policy_of(), step.limits());
  int64_t splits = 0;
  for (const PlanTile& tile : make_plan(policy_of(), step.limits(), step).tiles) {
    EXPECT_EQ(tile.num_splits, bounds.per_tile);
    splits += tile.num_splits;
  }
  EXPECT_EQ(splits, 3 * 5);
  EXPECT_EQ(bounds.per_step, splits);
  const PlanStep shorter{{5, 5, 5}, {256, 256, 256}};
  EXPECT_EQ(split_bounds(policy_of(), shorter.limits()).per_step, 0);
}

// By search over how many sequences have how many splits.
TEST(Plan, SplitBoundsAreTightForSomeStep) {
  const PlanPolicy policy = policy_of();
  const int64_t c = policy.split_keys;
  for (const int seqs : {1, 3, 8})
    for (const int64_t keys : {int64_t{0}, c, c + 1, 2 * c + 1, 2 * c + 2, 5 * c + 3, 40 * c}) {
      AttentionLimits limits{seqs, 50, keys, 6 * static_cast<int>(c)};
      int64_t most = 0;
      for (int split = 0; split <= seqs; ++split) {
        // All but one key of what is left go to whole splits; each sequence has at most 6 splits.
        const int64_t left = keys - split * (c + 1);
        if (split == 0 || left < 0) continue;
        most = std::max<int64_t>(most, 2 * split + std::min<int64_t>(left / c, 4 * split));
      }
      const SplitBounds bounds = split_bounds(policy, limits);
      EXPECT_EQ(bounds.per_tile, 6);
      EXPECT_EQ(bounds.per_step, most) << seqs << " sequences, " << keys << " keys";
    }
}

TEST(Plan, WindowsBoundSplits) {
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    MaskSpec mask;
    mask.window_left = static_cast<int>(random() % 900);
    if (round % 3 == 0) mask.sink_tokens = static_cast<int>(random() % 600);
    if (round % 4 == 0) mask.chunk = 1 + static_cast<int>(random() % 700);
    if (round % 5 == 0) mask.causal = false, mask.window_right = static_cast<int>(random() % 400);
    const PlanPolicy policy = policy_of(mask);
    const PlanStep step = random_step(random, 6, 6, 9000);
    const SplitBounds bounds = split_bounds(policy, step.limits());
    int64_t splits = 0;
    for (const PlanTile& tile : make_plan(policy, step.limits(), step).tiles) {
      if (tile.num_splits == 1) continue;
      EXPECT_LE(tile.num_splits, bounds.per_tile);
      if (tile.row == 0) splits += tile.num_splits;
    }
    EXPECT_LE(splits, bounds.per_step);
  }
}

TEST(Plan, ArraysBeyondTheLimitsGiveAnEmptyPlanAndAnError) {
  const PlanStep fits{{3, 2}, {700, 900}};
  const AttentionLimits limits = fits.limits();
  const auto error_of = [&](const std::vector<int32_t>& offsets, const std::vector<int32_t>& lens) {
    const HostPlan plan =
        make_plan_on_host(policy_of(), limits, {offsets.data(), lens.data(), nullptr, nullptr, 2});
    EXPECT_EQ(plan.tiles.empty(), plan.error != PlanError::none);
    return plan.error;
  };
  EXPECT_EQ(error_of({0, 3, 5}, {700, 900}), PlanError::none);
  EXPECT_EQ(error_of({1, 3, 5}, {700, 900}), PlanError::q_offsets);
  EXPECT_EQ(error_of({0, 3, 2}, {700, 900}), PlanError::q_offsets);
  EXPECT_EQ(error_of({0, -3, 5}, {700, 900}), PlanError::q_offsets);
  EXPECT_EQ(error_of({0, 3, 6}, {700, 900}), PlanError::too_many_rows);
  EXPECT_EQ(error_of({0, 3, INT32_MAX}, {700, 900}), PlanError::too_many_rows);
  EXPECT_EQ(error_of({0, 3, 5}, {-1, 900}), PlanError::kv_len);
  EXPECT_EQ(error_of({0, 3, 5}, {700, 901}), PlanError::kv_len);
  EXPECT_EQ(error_of({0, 3, 5}, {700, INT32_MAX}), PlanError::kv_len);
  EXPECT_EQ(error_of({0, 3, 5}, {900, 900}), PlanError::kv_tokens);
  EXPECT_EQ(error_of({0, 0, 5}, {-77, 900}), PlanError::none);  // padding
  EXPECT_THAT(plan_error(PlanError::kv_len, limits).message, HasSubstr("900"));
}

TEST(Plan, HugeLimitsAreRefused) {
  PlanPolicy policy = policy_of();
  const auto check = [&](int seqs, int tokens, int64_t kv_tokens, int len) {
    return check_plan_limits(policy, {seqs, tokens, kv_tokens, len});
  };
  EXPECT_TRUE(check(256, 256, int64_t{1} << 24, 1 << 20).ok());
  for (const auto& refused : {check(1, INT32_MAX, 5, 5), check(1, 1 << 29, 5, 5), check(1, 1, 5, INT32_MAX),
                              check(-1, 1, 5, 5), check(1, 1, -5, 5)})
    EXPECT_FALSE(refused.ok());
  EXPECT_THAT(check(7, 1 << 29, 5, 5).error().message, HasSubstr("7 sequences"));
  policy.max_split_tokens = INT32_MAX;
  policy.split_keys = policy.block_keys = 1;
  EXPECT_TRUE(check(1 << 20, 300 << 20, INT64_MAX, 1 << 30).ok());
  policy.split_keys = 100, policy.block_keys = 64;
  EXPECT_THAT(check(1, 1, 1, 1).error().message, HasSubstr("split_keys 100"));
}

}  // namespace
}  // namespace fovea::cuda
