// The mask definitions against the tables in their source documents and against the masks of the kernels.
#include "conformance/textbook_mask.h"

#include <gtest/gtest.h>

#include <limits>

#include "conformance/batch.h"
#include "kernels/reference/visibility.h"

namespace fovea::conformance {
namespace {

using Rows = std::vector<std::string>;

Problem problem_of(const MaskSpec& mask, const Sequence& s) {
  Problem p;
  p.spec.mask = mask;
  p.seqs = {s};
  return p;
}

Rows draw(const Problem& p) {
  Rows rows;
  const Sequence& s = p.seqs[0];
  for (int i = 0; i < s.n_q; ++i) {
    rows.emplace_back();
    for (int j = 0; j < s.n_k; ++j)
      rows.back() += textbook_sees(p.spec.mask, p, s, i, j) ? '1' : '.';
  }
  return rows;
}

Rows draw(const MaskSpec& mask, int n_q, int n_k) {
  Sequence s;
  s.n_q = n_q;
  s.n_k = n_k;
  return draw(problem_of(mask, s));
}

TEST(TextbookMask, IsWhatTheTablesSay) {
  EXPECT_EQ(draw({}, 2, 5), (Rows{"1111.", "11111"}));
  EXPECT_EQ(draw({}, 5, 2), (Rows{"..", "..", "..", "1.", "11"}));
  // A model's sliding_window of 2 is (1, 0).
  EXPECT_EQ(draw({.window_left = 1}, 3, 5), (Rows{".11..", "..11.", "...11"}));
  EXPECT_EQ(draw({.causal = false, .window_left = 1, .window_right = 1}, 4, 4),
            (Rows{"11..", "111.", ".111", "..11"}));
  EXPECT_EQ(draw({.causal = false, .window_right = 0}, 2, 3), (Rows{"11.", "111"}));
  EXPECT_EQ(draw({.window_left = std::numeric_limits<int>::max()}, 3, 5), draw({}, 3, 5));
  EXPECT_EQ(draw({.window_left = 1, .sink_tokens = 2}, 4, 6), (Rows{"111...", "1111..", "11.11.", "11..11"}));
  EXPECT_EQ(draw({.chunk = 4}, 4, 6), (Rows{"111...", "1111..", "....1.", "....11"}));
  EXPECT_EQ(draw({.causal = false, .chunk = 4}, 3, 2), (Rows{"..", "11", "11"}));
}

TEST(TextbookMask, SpansPackedMasksAndTrees) {
  Sequence s;
  s.n_q = s.n_k = 6;
  s.spans = {{1, 3}};
  EXPECT_EQ(draw(problem_of({.window_left = 1, .spans = true}, s)),
            (Rows{"1.....", "1111..", ".111..", ".111..", "...11.", "....11"}));
  s = {};
  s.n_q = 2;
  s.n_k = 5;
  s.packed = {0b01110101, 0b00000011};  // rows 10101 and 11011, the lowest bit of a byte first
  EXPECT_EQ(draw(problem_of({.causal = false, .packed = true}, s)), (Rows{"1.1.1", "11.11"}));
  EXPECT_EQ(draw(problem_of({.causal = false, .window_left = 1, .packed = true}, s)),
            (Rows{"..1.1", "...11"}));
  s = {};
  s.n_q = 2;
  s.n_k = 4;
  Problem p = problem_of({.tree = true}, s);
  p.tree_size = 2;
  p.tree_bias = {0, 0, -std::numeric_limits<float>::infinity(), 0.5f};
  EXPECT_EQ(draw(p), (Rows{"111.", "11.1"}));
  EXPECT_EQ(textbook_bias(p.spec.mask, p, s, 1, 3), 0.5f);
  p.seqs[0].n_q = 3;  // more rows than the tree has nodes: a plain prefill
  EXPECT_EQ(draw(p), (Rows{"11..", "111.", "1111"}));
}

/// Two implementations of the same masks: where they differ, one is wrong, and every case that shows it
/// fails.
TEST(TextbookMask, AgreesWithTheKernels) {
  int64_t pairs = 0;
  for (const bool causal : {true, false})
    for (const int left : {-1, 0, 3, 100})
      for (const int right : {-1, 0, 2})
        for (const int chunk : {0, 1, 4})
          for (const int sinks : {0, 2})
            for (const auto& [n_q, n_k] : {std::pair{1, 12}, {5, 12}, {12, 12}, {7, 3}}) {
              Sequence s;
              s.n_q = n_q;
              s.n_k = n_k;
              s.spans = {{2, 5}, {9, 11}};
              s.packed.assign(32, 0xb6);
              for (const bool spans : {false, true})
                for (const bool packed : {false, true})
                  for (const bool tree : {false, true}) {
                    Problem p = problem_of({.causal = causal,
                                            .window_left = left,
                                            .window_right = right,
                                            .chunk = chunk,
                                            .sink_tokens = sinks,
                                            .spans = spans,
                                            .packed = packed,
                                            .tree = tree},
                                           s);
                    p.tree_size = 6;
                    p.tree_bias.assign(36, 0.0f);
                    for (size_t k = 0; k < 35; k += 5)
                      p.tree_bias[k + k / 7 % 2] = -std::numeric_limits<float>::infinity();
                    const MaskArrays arrays(p);
                    const SequenceMask mask = sequence_mask(p.spec.mask, arrays.meta(), 0);
                    for (int i = 0; i < n_q; ++i)
                      for (int j = 0; j < n_k; ++j, ++pairs)
                        ASSERT_EQ(textbook_sees(p.spec.mask, p, s, i, j),
                                  visible(p.spec.mask, mask, i, j) && !std::isinf(tree_bias(mask, i, j)))
                            << p.describe() << " row " << i << " key " << j;
                  }
            }
  EXPECT_GT(pairs, 100000);
}

}  // namespace
}  // namespace fovea::conformance
