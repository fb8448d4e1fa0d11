#include "attention/work.h"

#include <gtest/gtest.h>

#include <vector>

namespace fovea {
namespace {

/// Rows and keys of sequences as a BatchMeta.
class Work : public ::testing::Test {
 protected:
  Work() {
    spec_.num_heads = 4;
    spec_.num_kv_heads = 2;
    spec_.head_dim = 8;
    spec_.v_head_dim = 16;
    spec_.kv_dtype = KvCacheDType::bfloat16;
  }
  AttentionWork of(std::vector<int32_t> rows, std::vector<int32_t> keys) const {
    std::vector<int32_t> offsets = {0};
    for (int32_t n : rows)
      offsets.push_back(offsets.back() + n);
    BatchMeta meta;
    meta.q_offsets = offsets;
    meta.kv_lens = keys;
    return attention_work(spec_, meta);
  }
  /// Expects the work of `read` keys and values, `rows` rows and `pairs` visible (row, key) pairs.
  void expect(const AttentionWork& work, int64_t read, int64_t rows, int64_t pairs) const {
    EXPECT_EQ(work.bytes, static_cast<double>(read * (8 + 16) * 2 * 2 + rows * (8 + 16) * 4 * 4));
    EXPECT_EQ(work.flops, static_cast<double>(2 * pairs * (8 + 16) * 4));
  }
  AttentionSpec spec_;
};

TEST_F(Work, CausalRowsSeeWhatIsBeforeThem) {
  expect(of({1}, {100}), 100, 1, 100);
  expect(of({4}, {10}), 10, 4, 7 + 8 + 9 + 10);
  expect(of({1, 4}, {100, 10}), 110, 5, 134);
}

TEST_F(Work, NothingIsDoneForSequencesWithoutRows) {
  expect(of({}, {}), 0, 0, 0);
  expect(of({0, 1}, {50, 3}), 3, 1, 3);
}

TEST_F(Work, AWindowLimitsWhatIsRead) {
  spec_.mask.window_left = 3;  // 4 keys, the row's own included
  expect(of({1}, {100}), 4, 1, 4);
  expect(of({3}, {100}), 6, 3, 12);
  expect(of({3}, {3}), 3, 3, 1 + 2 + 3);
}

TEST_F(Work, SinksStayVisibleOutsideTheWindow) {
  spec_.mask.window_left = 3;
  spec_.mask.sink_tokens = 2;
  expect(of({1}, {100}), 6, 1, 6);
  expect(of({1}, {5}), 5, 1, 5);  // keys 1 to 4, and 0
  expect(of({5}, {5}), 5, 5, 1 + 2 + 3 + 4 + 5);
}

TEST_F(Work, ChunksBeginAtMultiples) {
  spec_.mask.chunk = 8;
  expect(of({1}, {10}), 2, 1, 2);  // position 9 sees 8 and 9
  expect(of({3}, {10}), 10, 3, 8 + 1 + 2);
}

TEST_F(Work, WithoutCausalityAllKeysAreSeen) {
  spec_.mask.causal = false;
  expect(of({3}, {7}), 7, 3, 21);
  expect(of({9}, {7}), 7, 9, 63);  // cross attention: more rows than keys
  spec_.mask.window_left = spec_.mask.window_right = 1;
  expect(of({4}, {4}), 4, 4, 2 + 3 + 3 + 2);
}

}  // namespace
}  // namespace fovea
