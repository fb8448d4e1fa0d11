#include "backends/flex_attention/mask_program.h"

#include <gtest/gtest.h>

#include "flex/evaluate.h"
#include "kernels/reference/visibility.h"

namespace fovea {
namespace {

TEST(MaskProgram, Texts) {
  EXPECT_EQ(mask_expression({}), "k <= (q + klen - qlen)");
  EXPECT_EQ(mask_expression({.causal = false}), "");
  EXPECT_EQ(mask_expression({.window_left = 7, .sink_tokens = 2}),
            "k <= (q + klen - qlen) && ((q + klen - qlen) - k <= 7 || k < 2)");
  AttentionSpec spec;
  EXPECT_EQ(score_expression(spec), "");
  spec.softcap = 50;
  EXPECT_EQ(score_expression(spec), "5e+01 * tanh(s / 5e+01)");
}

/// Every mask of MaskSpec that the row claims, against its single definition.
TEST(MaskProgram, SeesWhatTheDefinitionSees) {
  const Span spans[] = {{3, 9}, {8, 12}, {20, 21}, {0, 5}};
  const int32_t span_offsets[] = {0, 3, 4}, q_offsets[] = {0, 14, 20}, kv_lens[] = {22, 3};
  BatchMeta meta;
  meta.q_offsets = q_offsets;
  meta.kv_lens = kv_lens;
  meta.spans = spans;
  meta.span_offsets = span_offsets;
  int64_t seen = 0;
  for (int variant = 0; variant < 256; ++variant) {
    MaskSpec mask;
    mask.causal = (variant & 1) != 0;
    mask.window_left = (variant & 2) != 0 ? variant >> 5 : -1;
    mask.window_right = (variant & 4) != 0 ? 3 : -1;
    mask.chunk = (variant & 8) != 0 ? 5 : 0;
    mask.spans = (variant & 16) != 0;
    mask.sink_tokens = (variant & 32) != 0 ? 2 : 0;
    AttentionSpec spec;
    spec.mask = mask;
    const auto program = attention_program(spec);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const SpanRanges ranges = span_ranges(meta);
    std::vector<flex::Buffer> buffers;
    if (mask.spans)
      for (const auto* x : {&ranges.first_row, &ranges.first, &ranges.last})
        buffers.push_back({x->data(), 1, static_cast<int32_t>(x->size()), static_cast<int64_t>(x->size())});
    for (int b = 0; b < 2; ++b) {
      const SequenceMask sequence = sequence_mask(mask, meta, b);
      for (int32_t q = 0; q < sequence.n_q; ++q)
        for (int32_t k = 0; k < sequence.n_k; ++k) {
          const flex::Point point = {b, 0, q, k, static_cast<int32_t>(sequence.n_q), kv_lens[b], 0};
          const bool got =
              !program->mask || flex::evaluate<double>(*program->mask, program->buffers, buffers, point) != 0;
          ASSERT_EQ(got, visible(mask, sequence, q, k))
              << mask_expression(mask) << " b " << b << " q " << q << " k " << k;
          seen += got ? 1 : 0;
        }
    }
  }
  EXPECT_GT(seen, 1000);
}

}  // namespace
}  // namespace fovea
