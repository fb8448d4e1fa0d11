#include "kernels/cuda/common/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "fovea/result.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda {
namespace {

struct Step {
  std::vector<int32_t> q_offsets = {0}, kv_lens;
  void add(int n_q, int n_k) {
    q_offsets.push_back(q_offsets.back() + n_q);
    kv_lens.push_back(n_k);
  }
};

/// Every item of a step, from the plan that the host makes.
std::vector<WorkItem> items_of(const Step& step, const PlanPolicy& policy, ScheduleLimits& limits) {
  AttentionLimits bounds;
  bounds.max_seqs = static_cast<int>(step.kv_lens.size());
  bounds.max_tokens = step.q_offsets.back();
  for (const int32_t n : step.kv_lens) {
    bounds.max_kv_tokens += n;
    bounds.max_kv_len = std::max(bounds.max_kv_len, n);
  }
  PlanInput input;
  input.q_offsets = step.q_offsets.data();
  input.kv_lens = step.kv_lens.data();
  input.num_seqs = bounds.max_seqs;
  const HostPlan plan = make_plan_on_host(policy, bounds, input);
  EXPECT_EQ(plan.error, PlanError::none);
  limits = schedule_limits(policy, bounds);
  std::vector<WorkItem> items;
  int32_t partials = 0;
  for (const PlanTile& tile : plan.tiles) {
    for (int k = 0; k < tile.num_splits; ++k)
      items.push_back(make_item(policy, input, {nullptr, 1000}, tile, k, partials));
    if (tile.num_splits > 1) partials += tile.num_splits;
  }
  EXPECT_LE(static_cast<int64_t>(items.size()), limits.max_items);
  EXPECT_LE(partials, limits.max_partials);
  return items;
}

class Sm80Schedule : public testing::TestWithParam<int> {};

// As the kernels do.
bool reads(const WorkItem& w, const MaskSpec& mask, int64_t j) {
  return j >= w.key_first && j < w.key_last &&
         (j >= w.key_low || (j >= w.sink_first && j < mask.sink_tokens));
}

// Each key that some row of a tile sees is in exactly one item of it, what none sees in none, and items begin
// at multiples of the kernel's keys.
TEST_P(Sm80Schedule, ReadsWhatRowsSeeOnce) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const int group = 1 + static_cast<int>(random() % 8);
  MaskSpec mask;
  mask.causal = random() % 4 != 0;
  if (random() % 2 != 0) mask.window_left = static_cast<int>(random() % 900);
  if (mask.window_left >= 0 && random() % 2 != 0) mask.sink_tokens = static_cast<int>(random() % 700);
  if (random() % 3 == 0) mask.chunk = 1 + static_cast<int>(random() % 600);
  Step step;
  for (int b = 0; b < 6; ++b) {
    const int n_k = static_cast<int>(random() % (b % 2 == 0 ? 3000 : 300));
    step.add(random() % 2 != 0 ? 1 : static_cast<int>(random() % 60), random() % 5 == 0 ? 0 : n_k);
  }
  const auto kernel = sm80::select({QueryType::bf16, KvType::same, 128, 128, false},
                                   random() % 2 != 0 ? KernelKind::decode : KernelKind::extend);
  ASSERT_TRUE(kernel.ok());
  const PlanPolicy policy = plan_policy(*kernel, 2, group, 16, mask);
  ScheduleLimits limits;
  const std::vector<WorkItem> items = items_of(step, policy, limits);
  for (size_t b = 0; b < step.kv_lens.size(); ++b) {
    SequenceMask seq;
    seq.n_q = step.q_offsets[b + 1] - step.q_offsets[b];
    seq.n_k = step.kv_lens[b];
    for (int64_t i = 0; i < seq.n_q; ++i)
      for (int64_t j = 0; j < seq.n_k; ++j) {
        if (!visible(mask, seq, i, j)) continue;
        int found = 0;
        for (const WorkItem& w : items) {
          if (w.seq != static_cast<int>(b) || i * group < w.row_first ||
              i * group >= w.row_first + kernel->rows)
            continue;
          EXPECT_EQ(w.key_first % kernel->tile_keys, 0);
          found += reads(w, mask, j);
        }
        ASSERT_EQ(found, 1) << "sequence " << b << ", row " << i << ", key " << j;
      }
    for (const WorkItem& w : items) {
      if (w.seq != static_cast<int>(b)) continue;
      const int64_t past = std::min<int64_t>(seq.n_q * group, w.row_first + kernel->rows);
      for (int64_t j = 0; j < seq.n_k; ++j) {
        if (!reads(w, mask, j)) continue;
        bool seen = false;
        for (int64_t r = w.row_first; r < past && !seen; ++r)
          seen = visible(mask, seq, r / group, j);
        ASSERT_TRUE(seen) << "sequence " << b << ", rows from " << w.row_first << ", key " << j;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Sm80Schedule, testing::Range(0, 200));

TEST(Sm80ScheduleItem, HasTheFirstOfItsPages) {
  const auto kernel = sm80::select({QueryType::bf16, KvType::same, 128, 128, false}, KernelKind::decode);
  const int split = kernel->split_keys;
  Step step;
  step.add(1, split + 88);
  step.add(1, 10);
  ScheduleLimits limits;
  const std::vector<WorkItem> items = items_of(step, plan_policy(*kernel, 1, 4, 16, {}), limits);
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].pages, 0);
  EXPECT_EQ(items[0].num_splits, 2);
  EXPECT_EQ(items[1].key_first, split);
  EXPECT_EQ(items[1].key_last, split + 88);
  EXPECT_EQ(items[2].pages, 1000);
  EXPECT_EQ(items[2].num_splits, 1);
}

TEST(Sm80ScheduleLimits, PartialsHaveTheRowsThatSplitSequencesHave) {
  const auto kernel = sm80::select({QueryType::bf16, KvType::same, 128, 128, false}, KernelKind::decode);
  const AttentionLimits limits{1024, 8192, int64_t{2} << 20, 131072};
  const ScheduleLimits one = schedule_limits(plan_policy(*kernel, 8, 4, 1, {}), limits);
  EXPECT_EQ(one.partial_rows, 4);
  EXPECT_EQ(one.max_partials, ((2 << 20) - 1024) / kernel->split_keys + 1024);
  // O and a state of 8 bytes
  EXPECT_LT(one.max_partials * 8 * one.partial_rows * (128 + 2) * 4, int64_t{150} << 20);
  const ScheduleLimits many = schedule_limits(plan_policy(*kernel, 8, 4, 16, {}), limits);
  EXPECT_EQ(many.partial_rows, 16);
  EXPECT_EQ(many.max_partials, 4 * one.max_partials);
  EXPECT_EQ(schedule_limits(plan_policy(*kernel, 8, 4, 0, {}), limits).max_partials, 0);
}

}  // namespace
}  // namespace fovea::cuda
