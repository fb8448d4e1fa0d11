#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "fovea/result.h"
#include "kernels/cache/cache_rows.h"

namespace fovea {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kHeads = 4, kKvHeads = 2, kDim = 8, kVDim = 6, kPage = 4, kPages = 5;
constexpr float kPoison = -77.0f;

std::vector<float> random_rows(int n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x)
    v = normal(random);
  return x;
}

/// An fp32 cache [pages, page, kv heads, dim], every slot poisoned.
class AppendRows : public ::testing::Test {
 protected:
  AppendRows() {
    p.num_heads = kHeads, p.num_kv_heads = kKvHeads, p.head_dim = kDim, p.v_head_dim = kVDim;
    p.dtype = DType::f32;
    p.kv.dtype = KvCacheDType::float32;
    p.kv.page_size = kPage;
    p.kv.k = cache_k.data(), p.kv.v = cache_v.data();
    p.kv.k_head_stride = kDim, p.kv.k_slot_stride = kKvHeads * kDim;
    p.kv.k_page_stride = kPage * p.kv.k_slot_stride;
    p.kv.v_head_stride = kVDim, p.kv.v_slot_stride = kKvHeads * kVDim;
    p.kv.v_page_stride = kPage * p.kv.v_slot_stride;
    p.num_slots = kPages * kPage;
    p.q_row_stride = p.q_out_row_stride = kHeads * kDim;
    p.k_row_stride = kKvHeads * kDim, p.v_row_stride = kKvHeads * kVDim;
    set_tokens(7);
  }
  void set_tokens(int tokens) {
    p.tokens = tokens;
    q = random_rows(tokens * kHeads * kDim, 1);
    k = random_rows(tokens * kKvHeads * kDim, 2);
    v = random_rows(tokens * kKvHeads * kVDim, 3);
    q_out.assign(q.size(), kPoison);
    p.q = q.data(), p.k = k.data(), p.v = v.data(), p.q_out = q_out.data();
  }
  std::string run() {
    const Status status = append_rows(p, pool);
    return status ? "" : status.error().message;
  }
  std::vector<float> k_at(int slot) const { return row(cache_k, slot, kKvHeads * kDim); }
  std::vector<float> v_at(int slot) const { return row(cache_v, slot, kKvHeads * kVDim); }
  static std::vector<float> row(const std::vector<float>& x, int i, int n) {
    return {x.begin() + i * n, x.begin() + (i + 1) * n};
  }

  ThreadPool pool{2};
  AppendParams p;
  std::vector<float> cache_k = std::vector<float>(kPages * kPage * kKvHeads * kDim, kPoison);
  std::vector<float> cache_v = std::vector<float>(kPages * kPage * kKvHeads * kVDim, kPoison);
  std::vector<float> q, k, v, q_out;
};

TEST_F(AppendRows, GoesToItsSlots) {
  const std::vector<int32_t> slots = {3, 19, -1, 0, 8, 5, -7};
  p.slots = slots.data();
  ASSERT_EQ(run(), "");
  for (int slot = 0; slot < kPages * kPage; ++slot) {
    const auto at = std::find(slots.begin(), slots.end(), slot);
    if (at == slots.end()) {
      EXPECT_THAT(k_at(slot), Each(kPoison)) << slot;
      EXPECT_THAT(v_at(slot), Each(kPoison)) << slot;
    } else {
      EXPECT_EQ(k_at(slot), row(k, static_cast<int>(at - slots.begin()), kKvHeads * kDim)) << slot;
      EXPECT_EQ(v_at(slot), row(v, static_cast<int>(at - slots.begin()), kKvHeads * kVDim)) << slot;
    }
  }
  EXPECT_EQ(q_out, q);
}

/// The slots of the test above, by sequences: 3 new rows of 6 tokens, none, 1 of 1, 2 of 5; a row past the
/// last sequence belongs to none.
TEST_F(AppendRows, GoesBySequences) {
  const std::vector<int64_t> q_offsets = {0, 3, 3, 4, 6}, kv_lens = {6, 2, 1, 5};
  const std::vector<int32_t> table = {4, 2, 99, 1, -1, 99, 0, 99, 99, 3, 1, 99};
  p.sequences = {q_offsets.data(), kv_lens.data(), table.data(), 4, 2, 3};
  // Rotation by the sequence's positions: cos and sin of row r are r and -r.
  std::vector<float> cos(6 * 2), sin(6 * 2);
  for (int r = 0; r < 6; ++r)
    for (int t = 0; t < 2; ++t)
      cos[static_cast<size_t>(2 * r + t)] = static_cast<float>(r),
                                      sin[static_cast<size_t>(2 * r + t)] = static_cast<float>(-r);
  p.rope = {4, false, cos.data(), sin.data(), {}, 6};
  ASSERT_EQ(run(), "");
  const int slots[] = {4 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 0, 3 * 4 + 3, 1 * 4 + 0},
            positions[] = {3, 4, 5, 0, 3, 4};
  for (int t = 0; t < 6; ++t) {
    const auto rotated = [&](std::vector<float> x, int heads) {
      const auto r = static_cast<float>(positions[t]);
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < 2; ++i) {
          float& a = x[static_cast<size_t>(h * kDim + i)];
          float& b = x[static_cast<size_t>(h * kDim + i + 2)];
          const float a0 = a, b0 = b;
          a = a0 * r + b0 * r;
          b = b0 * r - a0 * r;
        }
      return x;
    };
    EXPECT_EQ(k_at(slots[t]), rotated(row(k, t, kKvHeads * kDim), kKvHeads)) << t;
    EXPECT_EQ(v_at(slots[t]), row(v, t, kKvHeads * kVDim)) << t;
    EXPECT_EQ(row(q_out, t, kHeads * kDim), rotated(row(q, t, kHeads * kDim), kHeads)) << t;
  }
  EXPECT_THAT(row(q_out, 6, kHeads * kDim), Each(kPoison));
  EXPECT_EQ(std::count(cache_k.begin(), cache_k.end(), kPoison), (kPages * kPage - 6) * kKvHeads * kDim);
}

TEST_F(AppendRows, RotatesAndNormsSixteenBitRows) {
  set_tokens(1);
  p.dtype = DType::bf16;
  p.k = p.v = nullptr;
  std::vector<uint16_t> in(kHeads * kDim, float_to_bf16(3.0f)), out(kHeads * kDim, 0xffff);
  p.q = in.data(), p.q_out = out.data();
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6, 7, 8};
  p.q_norm = {weight.data(), 0.0f};
  const std::vector<float> cos = {9, 9, 0, 1}, sin = {9, 9, 1, 0};
  const std::vector<int64_t> positions = {1};
  p.rope = {4, true, cos.data(), sin.data(), positions.data(), 2};
  ASSERT_EQ(run(), "");
  // Normed: the weights. The first pair is rotated by 90 degrees, the second by 0.
  for (int h = 0; h < kHeads; ++h) {
    std::vector<float> got;
    for (int d = 0; d < kDim; ++d)
      got.push_back(bf16_to_float(out[static_cast<size_t>(h * kDim + d)]));
    EXPECT_THAT(got, ElementsAre(-2, 1, 3, 4, 5, 6, 7, 8));
  }
}

TEST_F(AppendRows, RefusesWhatIsBeyondBeforeItWrites) {
  const std::vector<int64_t> beyond = {3, 19, -1, 0, 8, 5, 20};
  p.slots = beyond.data();
  EXPECT_EQ(run(), "append: slots[6] is 20; the cache has 20");
  const std::vector<int32_t> slots(7, -1), positions = {0, 1, 0, 1, 0, 2, 0};
  const std::vector<float> tables(2 * 4);
  p.slots = slots.data();
  p.rope = {8, false, tables.data(), tables.data(), positions.data(), 2};
  EXPECT_EQ(run(), "append: the position of token 5 is 2; cos and sin have 2 rows");
  p.rope = {};
  p.slots = {};
  const std::vector<int32_t> q_offsets = {0, 7}, table = {0, 5};
  std::vector<int32_t> kv_lens = {7};
  p.sequences = {q_offsets.data(), kv_lens.data(), table.data(), 1, 2, 2};
  EXPECT_EQ(run(), "append: page_table[0, 1] is 5; the cache has 5 pages");
  kv_lens = {6};
  EXPECT_THAT(run(), HasSubstr("kv_lens[0] is 6; it must be from 7, its new tokens, to 8"));
  kv_lens = {9};
  EXPECT_THAT(run(), HasSubstr("kv_lens[0] is 9"));
  p.slots = slots.data();
  EXPECT_THAT(run(), HasSubstr("rows are placed by slots, or by q_offsets"));
  EXPECT_THAT(cache_k, Each(kPoison));
  EXPECT_THAT(q_out, Each(kPoison));
}

TEST_F(AppendRows, GathersWhatWasAppended) {
  const std::vector<int64_t> slots = {3, 19, 1, 0, 8, 5, 7}, wanted = {19, -1, 5};
  p.slots = slots.data();
  ASSERT_EQ(run(), "");
  std::vector<float> k_out(3 * kKvHeads * kDim, kPoison), v_out(3 * kKvHeads * kVDim, kPoison);
  GatherRows g;
  g.kv = p.kv;
  g.kv.k_scale = 2.0f;
  g.num_kv_heads = kKvHeads, g.head_dim = kDim, g.v_head_dim = kVDim;
  g.slots = wanted.data(), g.num_slots = p.num_slots, g.rows = 3;
  g.dtype = DType::f32;
  g.k = k_out.data(), g.v = v_out.data();
  gather_rows(g, pool);
  std::vector<float> twice = row(k, 1, kKvHeads * kDim);
  for (float& x : twice)
    x *= 2;
  EXPECT_EQ(row(k_out, 0, kKvHeads * kDim), twice);
  EXPECT_THAT(row(k_out, 1, kKvHeads * kDim), Each(0.0f));
  EXPECT_EQ(row(v_out, 2, kKvHeads * kVDim), row(v, 5, kKvHeads * kVDim));
  EXPECT_THAT(row(v_out, 1, kKvHeads * kVDim), Each(0.0f));
}

}  // namespace
}  // namespace fovea
