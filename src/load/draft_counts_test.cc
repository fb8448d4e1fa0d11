#include "load/draft_counts.h"

#include <gtest/gtest.h>

namespace fovea::load {
namespace {

TEST(DraftCounts, AreReadFromPrometheusText) {
  EXPECT_FALSE(parse_draft_counts(""));
  EXPECT_FALSE(parse_draft_counts("vllm:num_requests_running 3\nvllm:spec_decode_num_drafts_total 0\n"));
  const auto counts = parse_draft_counts(
      "# HELP vllm:spec_decode_num_drafts_total Steps.\n"
      "# TYPE vllm:spec_decode_num_drafts_total counter\n"
      "vllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"a b\"} 10.0\n"
      "vllm:spec_decode_num_drafts_total{engine=\"1\",model_name=\"a b\"} 2\n"
      "vllm:spec_decode_num_draft_tokens_total 36\n"
      "vllm:spec_decode_num_accepted_tokens_total 12\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 4\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{engine=\"0\",position=\"0\"} 8\n"
      "vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"99999999\"} 8\n"
      "vllm:spec_decode_num_accepted_tokens_created 1.7e9");
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->drafts, 12);
  EXPECT_EQ(counts->draft_tokens, 36);
  EXPECT_EQ(counts->accepted_tokens, 12);
  EXPECT_EQ(counts->accepted_by_position, (std::vector<int64_t>{8, 4}));
  EXPECT_EQ(counts->mean_acceptance_length(), 2);
}

TEST(DraftCounts, TheDifferenceIsWhatARunAdded) {
  const SpeculativeCounts before{3, 9, 4, {3, 1}}, after{5, 15, 8, {5, 2, 1}};
  const SpeculativeCounts run = difference(after, before);
  EXPECT_EQ(run.drafts, 2);
  EXPECT_EQ(run.draft_tokens, 6);
  EXPECT_EQ(run.accepted_tokens, 4);
  EXPECT_EQ(run.accepted_by_position, (std::vector<int64_t>{2, 1, 1}));
}

}  // namespace
}  // namespace fovea::load
