#include "kernels/reference/visibility.h"

#include <gtest/gtest.h>
#include <utility>

#include <string>
#include <vector>

namespace fovea {
namespace {

using Rows = std::vector<std::string>;

Rows draw(const MaskSpec& mask, const SequenceMask& seq) {
  Rows rows;
  for (int64_t i = 0; i < seq.n_q; ++i) {
    rows.emplace_back();
    for (int64_t j = 0; j < seq.n_k; ++j)
      rows.back() += visible(mask, seq, i, j) ? '1' : '.';
  }
  return rows;
}

Rows draw(const MaskSpec& mask, int64_t n_q, int64_t n_k) {
  return draw(mask, {.n_q = n_q, .n_k = n_k});
}

constexpr MaskSpec kAll{.causal = false};

TEST(Visibility, CausalIsBottomRightAligned) {
  EXPECT_EQ(draw({}, 3, 5), (Rows{"111..", "1111.", "11111"}));
  EXPECT_EQ(draw({}, 2, 5), (Rows{"1111.", "11111"}));
  EXPECT_EQ(draw({}, 5, 2), (Rows{"..", "..", "..", "1.", "11"}));
  EXPECT_EQ(draw(kAll, 2, 3), (Rows{"111", "111"}));
}

TEST(Visibility, WindowBoundsAreInclusive) {
  // A model's sliding_window of 2 is (1, 0).
  EXPECT_EQ(draw({.window_left = 1}, 3, 5), (Rows{".11..", "..11.", "...11"}));
  EXPECT_EQ(draw({.window_left = 2}, 3, 5), (Rows{"111..", ".111.", "..111"}));
  EXPECT_EQ(draw({.window_left = 0}, 3, 3), (Rows{"1..", ".1.", "..1"}));
  EXPECT_EQ(draw({.causal = false, .window_left = 1, .window_right = 1}, 4, 4),
            (Rows{"11..", "111.", ".111", "..11"}));
  EXPECT_EQ(draw({.causal = false, .window_right = 0}, 2, 3), (Rows{"11.", "111"}));
  EXPECT_EQ(draw({.window_left = std::numeric_limits<int>::max()}, 3, 5), draw({}, 3, 5));
}

TEST(Visibility, SinkTokensStayInSightOfTheWindow) {
  EXPECT_EQ(draw({.window_left = 1, .sink_tokens = 2}, 4, 6), (Rows{"111...", "1111..", "11.11.", "11..11"}));
  // Not across a chunk, and not before their time.
  EXPECT_EQ(draw({.window_left = 0, .chunk = 3, .sink_tokens = 2}, 4, 4),
            (Rows{"1...", "11..", "111.", "...1"}));
}

TEST(Visibility, ChunksAreAbsolute) {
  EXPECT_EQ(draw({.chunk = 4}, 4, 6), (Rows{"111...", "1111..", "....1.", "....11"}));
  EXPECT_EQ(draw({.causal = false, .chunk = 4}, 2, 6), (Rows{"....11", "....11"}));
  // Rows before the first key have negative positions, in chunk -1.
  EXPECT_EQ(draw({.causal = false, .chunk = 4}, 3, 2), (Rows{"..", "11", "11"}));
}

TEST(Visibility, SpansComeAfterCausalAndWindow) {
  const std::vector<Span> spans = {{1, 3}};
  EXPECT_EQ(draw({.window_left = 1, .spans = true}, {.n_q = 6, .n_k = 6, .spans = spans}),
            (Rows{"1.....", "1111..", ".111..", ".111..", "...11.", "....11"}));
  const std::vector<Span> padding = {{0, 0}, {2, 3}, {0, 0}};
  EXPECT_EQ(draw({.spans = true}, {.n_q = 4, .n_k = 4, .spans = padding}),
            (Rows{"1...", "11..", "1111", "1111"}));
}

TEST(Visibility, PackedMaskReplacesCausalAndKeepsTheWindow) {
  // 2 x 5 bits, row-major, lowest bit first: rows 10101 and 11011.
  const uint8_t bits[] = {0b01110101, 0b00000011};
  const SequenceMask seq{.n_q = 2, .n_k = 5, .packed = bits};
  EXPECT_EQ(draw({.causal = false, .packed = true}, seq), (Rows{"1.1.1", "11.11"}));
  EXPECT_EQ(draw({.causal = false, .window_left = 1, .packed = true}, seq), (Rows{"..1.1", "...11"}));
}

TEST(Visibility, TreeBiasCoversTheNewTokensOnly) {
  const float inf = std::numeric_limits<float>::infinity();
  const float bias[] = {0, -inf, 0, 0};
  SequenceMask seq{.n_q = 2, .n_k = 4, .tree_bias = bias, .tree_size = 2};
  EXPECT_EQ(tree_bias(seq, 0, 1), 0);
  EXPECT_EQ(tree_bias(seq, 0, 2), 0);
  EXPECT_EQ(tree_bias(seq, 0, 3), -inf);
  EXPECT_EQ(tree_bias(seq, 1, 3), 0);
  // A sequence with more new tokens than the tree is a plain prefill.
  const int32_t q_offsets[] = {0, 3, 5}, kv_lens[] = {3, 4};
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.tree_bias = bias;
  meta.tree_size = 2;
  EXPECT_EQ(sequence_mask({.tree = true}, meta, 0).tree_bias, nullptr);
  EXPECT_EQ(sequence_mask({.tree = true}, meta, 1).tree_bias, bias);
}

/// Every visible key lies in a range; where only windows and chunks act, both ends of the body are tight.
TEST(Visibility, KeyRangesHoldEveryVisibleKeyAndLittleElse) {
  const std::vector<Span> spans = {{2, 5}, {9, 30}};
  const std::vector<uint8_t> packed(40, 0xff);
  int checked = 0;
  for (const bool causal : {true, false})
    for (const int left : {-1, 0, 3, 100})
      for (const int right : {-1, 0, 2})
        for (const int chunk : {0, 1, 4})
          for (const int sinks : {0, 2, 9})
            for (const bool with_spans : {false, true})
              for (const auto& [n_q, n_k] : {std::pair{1, 12}, {5, 12}, {12, 12}, {7, 3}, {3, 0}})
                for (int64_t first = 0; first < n_q; ++first)
                  for (int64_t last = first + 1; last <= n_q; ++last) {
                    const MaskSpec mask{.causal = causal,
                                        .window_left = left,
                                        .window_right = right,
                                        .chunk = chunk,
                                        .sink_tokens = sinks,
                                        .spans = with_spans};
                    SequenceMask seq{.n_q = n_q, .n_k = n_k};
                    if (with_spans) seq.spans = spans;
                    const KeyRanges r = key_ranges(mask, seq, first, last);
                    ASSERT_TRUE(r.sinks.empty() || (0 <= r.sinks.first && r.sinks.last <= r.body.first));
                    ASSERT_TRUE(r.body.empty() || (0 <= r.body.first && r.body.last <= n_k));
                    std::vector<bool> seen(n_k);
                    for (int64_t i = first; i < last; ++i)
                      for (int64_t j = 0; j < n_k; ++j)
                        if (visible(mask, seq, i, j)) seen[j] = true;
                    for (int64_t j = 0; j < n_k; ++j) {
                      const bool inside =
                          (r.sinks.first <= j && j < r.sinks.last) || (r.body.first <= j && j < r.body.last);
                      ASSERT_TRUE(!seen[j] || inside) << "key " << j;
                    }
                    if (!with_spans && !r.body.empty() && last == first + 1) {
                      ASSERT_TRUE(seen[r.body.first] && seen[r.body.last - 1]);
                      ++checked;
                    }
                  }
  EXPECT_GT(checked, 500);
}

TEST(Visibility, FloorDivRoundsDown) {
  EXPECT_EQ(floor_div(7, 4), 1);
  EXPECT_EQ(floor_div(-1, 4), -1);
  EXPECT_EQ(floor_div(-4, 4), -1);
  EXPECT_EQ(floor_div(-5, 4), -2);
}

}  // namespace
}  // namespace fovea
