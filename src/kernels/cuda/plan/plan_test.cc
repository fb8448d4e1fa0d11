#include "kernels/cuda/plan/plan.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <tuple>

#include "kernels/cuda/plan/plan_test_support.h"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {
namespace {

using ::testing::HasSubstr;

PlanPolicy policy_of(int ctas, bool folds, const MaskSpec& mask = {}) {
  PlanPolicy policy;
  policy.num_kv_heads = 2;
  policy.group = 3;
  policy.tile_rows = 16;
  policy.block_keys = 64;
  policy.split_keys = 256;
  policy.max_split_tokens = 6;
  policy.ctas = ctas;
  policy.folds = folds;
  policy.mask = mask;
  return policy;
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
void expect_tiles_cover(const HostPlan& plan, const PlanStep& step) {
  std::map<std::pair<int, int>, int> seen;  // (seq, packed row)
  const std::vector<int32_t> offsets = step.q_offsets();
  for (int i = 0; i < plan.view.header->tiles; ++i) {
    const PlanTile& tile = plan.view.tiles[i];
    ASSERT_GT(tile.rows, 0);
    EXPECT_EQ(tile.q_row, offsets[tile.seq]);
    const SequenceMask mask{step.n_q[tile.seq], step.n_k[tile.seq]};
    EXPECT_EQ(tile.n_q, mask.n_q);
    EXPECT_EQ(tile.n_k, mask.n_k);
    for (int r = tile.row; r < tile.row + tile.rows; ++r) {
      ++seen[{tile.seq, r}];
      for (int64_t j = 0; j < mask.n_k; ++j) {
        if (!visible(plan.policy.mask, mask, r / plan.policy.group, j)) continue;
        const int64_t block = j / plan.policy.block_keys;
        EXPECT_TRUE(block < tile.sink_block_end || (block >= tile.block && block < tile.block_end))
            << "key " << j << " of row " << r;
      }
    }
  }
  size_t rows = 0;
  for (size_t b = 0; b < step.n_q.size(); ++b)
    rows += static_cast<size_t>(step.n_q[b]) * static_cast<size_t>(plan.policy.group);
  EXPECT_EQ(seen.size(), rows);
  for (const auto& [row, times] : seen)
    EXPECT_EQ(times, 1) << row.first << ", " << row.second;
}

/// A tile's chunks are its blocks, in order, each inside one absolute chunk, none empty unless the tile is.
void expect_chunks_partition(const HostPlan& plan) {
  const int each = plan.policy.split_keys / plan.policy.block_keys;
  for (int i = 0; i < plan.view.header->tiles; ++i) {
    const PlanTile& tile = plan.view.tiles[i];
    std::vector<int> blocks, expected;
    for (int k = 0; k < tile.chunks; ++k) {
      const ChunkBlocks chunk = chunk_blocks(plan.policy, tile, k);
      std::set<int> absolute;
      const auto add = [&](int begin, int end) {
        for (int block = begin; block < end; ++block) {
          blocks.push_back(block);
          absolute.insert(block / each);
        }
      };
      add(chunk.sink_block, chunk.sink_block_end);
      add(chunk.block, chunk.block_end);
      EXPECT_TRUE(absolute.size() == 1 || tile.split == 0 || tile.chunks == 1) << k;
    }
    for (int block = 0; block < tile.sink_block_end; ++block)
      expected.push_back(block);
    for (int block = tile.block; block < tile.block_end; ++block)
      expected.push_back(block);
    EXPECT_EQ(blocks, expected);
    EXPECT_EQ(tile.split, tile.n_q <= plan.policy.max_split_tokens);
  }
}

/// CTAs have every (tile, head, chunk) once; what writes records has its own, and is merged.
void expect_work_is_shared_out(const HostPlan& plan) {
  std::set<std::tuple<int, int, int>> work, expected;
  std::set<std::pair<int, int>> recorded;
  std::set<int64_t> records;
  for (int cta = 0; cta < plan.policy.ctas; ++cta) {
    PlanWalk walk(plan.policy, plan.view, cta);
    for (PlanItem item; walk.next(item);) {
      const PlanTile& tile = plan.view.tiles[item.tile];
      ASSERT_LT(item.chunk, item.chunk_end);
      for (int k = item.chunk; k < item.chunk_end; ++k) {
        EXPECT_TRUE(work.insert({item.tile, item.head, k}).second);
        if (!writes_records(plan.policy, tile, item)) continue;
        recorded.insert({item.tile, item.head});
        for (int row = 0; row < tile.rows; ++row)
          EXPECT_TRUE(records.insert(record_of(tile, item.head, k, row)).second);
      }
    }
  }
  for (int i = 0; i < plan.view.header->tiles; ++i)
    for (int head = 0; head < plan.policy.num_kv_heads; ++head)
      for (int k = 0; k < plan.view.tiles[i].chunks; ++k)
        expected.insert({i, head, k});
  EXPECT_EQ(work, expected);
  if (!records.empty()) {
    EXPECT_GE(*records.begin(), 0);
    EXPECT_LT(*records.rbegin(), plan.view.header->records);
  }
  EXPECT_LE(plan.view.header->records, plan.layout.max_records);
  std::set<std::pair<int, int>> merged;
  int units = 0;
  for (int i = 0; i < plan.view.header->merges; ++i) {
    const PlanMerge& merge = plan.view.merges[i];
    EXPECT_EQ(merge.first_unit, units);
    units += merge.heads * plan.view.tiles[merge.tile].rows;
    for (int head = merge.head; head < merge.head + merge.heads; ++head)
      EXPECT_TRUE(merged.insert({merge.tile, head}).second);
  }
  EXPECT_EQ(plan.view.header->merge_units, units);
  EXPECT_LE(plan.view.header->merges, plan.layout.max_merges);
  EXPECT_EQ(merged, recorded);
}

void expect_plan_holds(const HostPlan& plan, const PlanStep& step) {
  ASSERT_EQ(plan.view.header->error, PlanError::none);
  expect_tiles_cover(plan, step);
  expect_chunks_partition(plan);
  expect_work_is_shared_out(plan);
}

TEST(Plan, HoldsForRandomSteps) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const PlanStep step = random_step(random, 1 + static_cast<int>(random() % 9), 20, 1500);
    for (const MaskSpec& mask : masks())
      for (const int ctas : {1, 7, 132})
        expect_plan_holds(HostPlan(policy_of(ctas, round % 2 == 0, mask), step.limits(), step), step);
  }
}

TEST(Plan, HoldsForSpans) {
  const PlanStep step{{4, 40}, {300, 700}};
  const std::vector<Span> spans = {{290, 298}, {100, 299}, {650, 699}};
  const std::vector<int32_t> span_offsets = {0, 1, 3}, offsets = step.q_offsets();
  PlanPolicy policy = policy_of(5, false);
  policy.mask.spans = true;
  policy.mask.window_left = 10;
  HostPlan plan(policy_of(5, false), step.limits(), step);
  PlanInput input{offsets.data(), step.n_k.data(), spans.data(), span_offsets.data(), 2};
  make_plan_on_host(policy, plan.layout, input, plan.view);
  ASSERT_EQ(plan.view.header->error, PlanError::none);
  for (int i = 0; i < plan.view.header->tiles; ++i) {
    const PlanTile& tile = plan.view.tiles[i];
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
  PlanPolicy policy = policy_of(5, false);
  policy.mask.window_left = 10;
  const HostPlan without(policy, step.limits(), step);
  policy.mask.spans = true;
  PlanInput input{offsets.data(), step.n_k.data(), nullptr, none.data(), 2};
  ASSERT_TRUE(check_plan_input(policy, step.limits(), input).ok());
  HostPlan with(policy_of(5, false), step.limits(), step);
  make_plan_on_host(policy, with.layout, input, with.view);
  ASSERT_EQ(with.view.header->error, PlanError::none);
  ASSERT_EQ(with.view.header->tiles, without.view.header->tiles);
  for (int i = 0; i < with.view.header->tiles; ++i)
    EXPECT_EQ(std::memcmp(&with.view.tiles[i], &without.view.tiles[i], sizeof(PlanTile)), 0) << i;
  input.span_offsets = nullptr;
  EXPECT_FALSE(check_plan_input(policy, step.limits(), input).ok());
}

TEST(Plan, EmptySequencesAndEmptySteps) {
  for (const PlanStep& step :
       {PlanStep{{}, {}}, PlanStep{{0, 0}, {5, 0}}, PlanStep{{0, 1, 0, 2}, {0, 0, 9, 0}}}) {
    const HostPlan plan(policy_of(4, true), step.limits(), step);
    expect_plan_holds(plan, step);
    int items = 0;
    for (int cta = 0; cta < 4; ++cta) {
      PlanWalk walk(plan.policy, plan.view, cta);
      for (PlanItem item; walk.next(item); ++items)
        EXPECT_TRUE(item.whole);  // rows without keys still get their output
    }
    EXPECT_EQ(items, 2 * plan.view.header->tiles);
  }
}

// The cut of one sequence is the same alone, in company, with other limits and for other machines.
TEST(Plan, ASequencesChunksAreItsOwn) {
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
      const HostPlan a(policy_of(3, false, mask), alone.limits(), alone),
          b(policy_of(97, true, mask), limits, company);
      const int first = b.view.header->tiles - a.view.header->tiles;
      ASSERT_GE(first, 0);
      for (int i = 0; i < a.view.header->tiles; ++i) {
        const PlanTile &x = a.view.tiles[i], &y = b.view.tiles[first + i];
        EXPECT_EQ(
            std::tie(x.row, x.rows, x.sink_block_end, x.block, x.block_end, x.chunks, x.sink_chunks, x.split),
            std::tie(y.row, y.rows, y.sink_block_end, y.block, y.block_end, y.chunks, y.sink_chunks,
                     y.split));
      }
    }
  }
}

TEST(Plan, SharesDecodeOutEvenly) {
  std::mt19937 random(3);
  for (const int seqs : {1, 16, 64, 256}) {
    PlanStep step;
    for (int b = 0; b < seqs; ++b) {
      step.n_q.push_back(1);
      step.n_k.push_back(128 + static_cast<int32_t>(random() % 16000));
    }
    const PlanPolicy policy = policy_of(132, true);
    const HostPlan plan(policy, step.limits(), step);
    int64_t most = 0;
    for (int cta = 0; cta < policy.ctas; ++cta) {
      int64_t cost = 0;
      PlanWalk walk(policy, plan.view, cta);
      for (PlanItem item; walk.next(item);) {
        cost += policy.pair_cost;
        for (int k = item.chunk; k < item.chunk_end; ++k) {
          const ChunkBlocks blocks = chunk_blocks(policy, plan.view.tiles[item.tile], k);
          cost += blocks.block_end - blocks.block;
        }
      }
      most = std::max(most, cost);
    }
    // At most half a chunk more at either end, and a pair's start.
    EXPECT_LE(most, plan.view.header->cost / policy.ctas + policy.split_keys / policy.block_keys +
                        2 * policy.pair_cost)
        << seqs;
  }
}

TEST(Plan, RecordsReachButNeverPassTheirBound) {
  // Sequences of the most rows that are split, each as long as allowed, one key past a border: every term is
  // tight.
  const PlanStep step{{6, 6, 6}, {1025, 1025, 1025}};
  const HostPlan plan(policy_of(9, false), step.limits(), step);
  EXPECT_EQ(plan.layout.max_records, plan.view.header->records);
  EXPECT_EQ(plan.view.header->records, 3 * 6 * 6 * 5);
  const PlanStep shorter{{6, 6, 6}, {256, 256, 256}};
  EXPECT_EQ(HostPlan(policy_of(9, false), shorter.limits(), shorter).layout.max_records, 0);
}

// By search over how many sequences have how many chunks.
TEST(Plan, ChunkBoundsAreWhatSomeStepHas) {
  PlanPolicy policy = policy_of(1, false);
  const int64_t c = policy.split_keys;
  for (const int seqs : {1, 3, 8})
    for (const int64_t keys : {int64_t{0}, c, c + 1, 2 * c + 1, 2 * c + 2, 5 * c + 3, 40 * c}) {
      AttentionLimits limits{seqs, 50, keys, 6 * static_cast<int>(c)};
      int64_t most = 0;
      for (int split = 0; split <= seqs; ++split) {
        // All but one key of what is left go to whole chunks; each sequence has at most 6 chunks.
        const int64_t left = keys - split * (c + 1);
        if (split == 0 || left < 0) continue;
        most = std::max<int64_t>(most, 2 * split + std::min<int64_t>(left / c, 4 * split));
      }
      const ChunkBounds bounds = chunk_bounds(policy, limits);
      EXPECT_EQ(bounds.of_sequence, 6);
      EXPECT_EQ(bounds.of_step, most) << seqs << " sequences, " << keys << " keys";
    }
}

TEST(Plan, WindowsBoundChunks) {
  std::mt19937 random(6);
  for (int round = 0; round < 40; ++round) {
    MaskSpec mask;
    mask.window_left = static_cast<int>(random() % 900);
    if (round % 3 == 0) mask.sink_tokens = static_cast<int>(random() % 600);
    if (round % 4 == 0) mask.chunk = 1 + static_cast<int>(random() % 700);
    if (round % 5 == 0) mask.causal = false, mask.window_right = static_cast<int>(random() % 400);
    const PlanPolicy policy = policy_of(7, false, mask);
    const PlanStep step = random_step(random, 6, 6, 9000);
    const HostPlan plan(policy, step.limits(), step);
    const ChunkBounds bounds = chunk_bounds(policy, step.limits());
    int64_t chunks = 0;
    for (int i = 0; i < plan.view.header->tiles; ++i) {
      const PlanTile& tile = plan.view.tiles[i];
      if (tile.chunks == 1) continue;
      EXPECT_LE(tile.chunks, bounds.of_sequence);
      if (tile.row == 0) chunks += tile.chunks;
    }
    EXPECT_LE(chunks, bounds.of_step);
    EXPECT_LE(plan.view.header->records, plan.layout.max_records);
  }
}

TEST(Plan, SplitTokensKeepPartialResultsSmall) {
  PlanPolicy policy;
  policy.num_kv_heads = 8;
  policy.group = 4;
  policy.split_keys = 512;
  const auto tokens = [&](int seqs, int rows, int64_t keys, int longest) {
    return split_tokens_for(policy, {seqs, rows, keys, longest}, 128);
  };
  EXPECT_EQ(tokens(1024, 8192, int64_t{2} << 20, 131072), 1);
  EXPECT_EQ(tokens(256, 8192, int64_t{1} << 20, 131072), 2);
  EXPECT_EQ(tokens(64, 8192, int64_t{512} << 10, 131072), 4);
  EXPECT_EQ(tokens(1, 8192, 131072, 131072), 16);
  EXPECT_EQ(tokens(64, 64, 64 * 512, 512), 16);  // none is ever split
  policy.max_split_tokens = tokens(1024, 8192, int64_t{2} << 20, 131072);
  const auto layout = plan_layout(policy, {1024, 8192, int64_t{2} << 20, 131072}, 128);
  ASSERT_TRUE(layout.ok());
  EXPECT_LT(layout->bytes, 150u << 20);
}

TEST(Plan, ArraysBeyondTheLimitsGiveAnEmptyPlanAndSayWhy) {
  const PlanStep fits{{3, 2}, {700, 900}};
  const AttentionLimits limits = fits.limits();
  const auto error_of = [&](const std::vector<int32_t>& offsets, const std::vector<int32_t>& lens) {
    HostPlan plan(policy_of(4, false), limits, fits);
    make_plan_on_host(plan.policy, plan.layout, {offsets.data(), lens.data(), nullptr, nullptr, 2},
                      plan.view);
    EXPECT_EQ(plan.view.header->tiles == 0, plan.view.header->error != PlanError::none);
    for (int cta = 0; cta < 4 && plan.view.header->error != PlanError::none; ++cta) {
      PlanWalk walk(plan.policy, plan.view, cta);
      PlanItem item;
      EXPECT_FALSE(walk.next(item));
    }
    return plan.view.header->error;
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

TEST(Plan, HugeLimitsAreSizedOrRefused) {
  PlanPolicy policy = policy_of(132, true);
  policy.mask.causal = true;
  const auto layout = [&](int seqs, int tokens, int64_t kv_tokens, int len) {
    return plan_layout(policy, {seqs, tokens, kv_tokens, len}, 128);
  };
  const auto fits = layout(256, 256, int64_t{1} << 24, 1 << 20);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  EXPECT_EQ(fits->max_records, 6 * 6 * ((1 << 16) + 255));  // heads x rows of a sequence x chunks of all keys
  EXPECT_EQ(fits->bytes % 256, 0u);
  EXPECT_GE(fits->bytes, static_cast<size_t>(fits->max_records) * 129 * 4);
  for (const auto& refused : {layout(1, INT32_MAX, 5, 5), layout(1, 1 << 29, 5, 5),
                              layout(1, 1, 5, INT32_MAX), layout(-1, 1, 5, 5), layout(1, 1, -5, 5)})
    EXPECT_FALSE(refused.ok());
  policy.max_split_tokens = INT32_MAX;
  policy.split_keys = policy.block_keys = 1;
  EXPECT_THAT(layout(1 << 20, 300 << 20, INT64_MAX, (1 << 30)).error().message,
              HasSubstr("1048576 sequences"));
  policy.split_keys = 100, policy.block_keys = 64;
  EXPECT_THAT(layout(1, 1, 1, 1).error().message, HasSubstr("split_keys 100"));
}

TEST(Plan, SplitKeysKeepPartialResultsSmall) {
  EXPECT_EQ(split_keys_for(1, 128, 512), 256);   // MHA, bf16, D = 128
  EXPECT_EQ(split_keys_for(4, 128, 512), 512);   // 403 keys
  EXPECT_EQ(split_keys_for(8, 128, 512), 1024);  // 807
  EXPECT_EQ(split_keys_for(8, 128, 256), 2048);  // fp8
  EXPECT_EQ(split_keys_for(128, 256, 512), 4096);
}

}  // namespace
}  // namespace fovea::cuda
