#include "engine/graph_buckets.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

namespace fovea {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int> buckets(const GraphConfig& config, int max_seqs) {
  const auto made = graph_buckets(config, max_seqs);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : std::vector<int>();
}

std::string refusal(const GraphConfig& config, int max_seqs) {
  const auto made = graph_buckets(config, max_seqs);
  return made.ok() ? "" : made.error().message;
}

TEST(GraphBuckets, WithDraftsForTheirRowsToo) {
  const auto made = graph_buckets({}, 6, 5);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->size(), 16u + 3u);
  EXPECT_EQ(made->front(), 1);
  EXPECT_THAT(std::vector(made->end() - 4, made->end()), ElementsAre(16, 24, 32, 36));
  EXPECT_TRUE(graph_buckets({true, {}, {36}}, 6, 5).ok());
  EXPECT_THAT(graph_buckets({true, {}, {37}}, 6, 5).error().message, HasSubstr("1 to 36 rows"));
}

TEST(GraphBuckets, ByDefaultUpTo256InStepsOf8) {
  const std::vector<int> all = buckets({}, 300);
  EXPECT_EQ(all.size(), 3u + 32u);
  EXPECT_THAT(std::vector(all.begin(), all.begin() + 7), ElementsAre(1, 2, 4, 8, 16, 24, 32));
  EXPECT_EQ(all.back(), 256);
}

TEST(GraphBuckets, EndWithTheLargestStep) {
  EXPECT_THAT(buckets({}, 1), ElementsAre(1));
  EXPECT_THAT(buckets({}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(buckets({}, 20), ElementsAre(1, 2, 4, 8, 16, 20));
  EXPECT_THAT(buckets({true, 12, {}}, 100), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(buckets({true, 512, {}}, 4), ElementsAre(1, 2, 4));
}

TEST(GraphBuckets, AListIsSortedAndLimited) {
  EXPECT_THAT(buckets({true, {}, {8, 2, 8, 5}}, 8), ElementsAre(2, 5, 8));
  EXPECT_THAT(buckets({true, 6, {8, 2, 5}}, 8), ElementsAre(2, 5));
  EXPECT_THAT(buckets({false, {}, {8, 2}}, 8), IsEmpty());
}

TEST(GraphBuckets, RefuseWhatNoStepHas) {
  EXPECT_THAT(refusal({true, {}, {4, 512}}, 256), HasSubstr("--cuda-graph-bs 512: a step decodes 1 to 256"));
  EXPECT_THAT(refusal({false, {}, {0}}, 256), HasSubstr("--cuda-graph-bs 0"));
  EXPECT_THAT(refusal({true, 0, {}}, 256), HasSubstr("--cuda-graph-max-bs 0"));
}

TEST(GraphBuckets, AStepTakesTheSmallestThatHoldsIt) {
  const std::vector<int> some = {1, 4, 9};
  EXPECT_EQ(bucket_for(some, 1), 1);
  EXPECT_EQ(bucket_for(some, 2), 4);
  EXPECT_EQ(bucket_for(some, 9), 9);
  EXPECT_EQ(bucket_for(some, 10), 0);
  EXPECT_EQ(bucket_for({}, 1), 0);
}

}  // namespace
}  // namespace fovea
