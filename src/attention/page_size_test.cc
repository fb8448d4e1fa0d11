#include "attention/page_size.h"

#include "attention/select_test_support.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PageSizes : public CpuSelectTest {};

TEST_F(PageSizes, TheBackendsPreferenceElseTheSmallestThatAllTake) {
  auto s = choose({});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->page_size, 32);
  EXPECT_EQ(s->page_size_why, "preferred by FAST_ATTN");
  s = choose({.backend = "fast,decoder"});
  EXPECT_EQ(s->page_size, 64) << "FAST_ATTN prefers 32, which DECODER can't";
  EXPECT_EQ(s->page_size_why, "preferred by DECODER");
  fast->capability.preferred_page_size = decoder->capability.preferred_page_size = 5;
  s = choose({.backend = "fast,decoder"});
  EXPECT_EQ(s->page_size, 64);
  EXPECT_EQ(s->page_size_why, "the smallest that FAST_ATTN, DECODER take");
}

TEST_F(PageSizes, NoCommonOne) {
  BackendInfo odd = backend_named("ODD", plain_capability());
  odd.capability.page_sizes = {3};
  odd.capability.preferred_page_size = 3;
  registry.add(odd);
  const Selection s = considered({.backend = "odd,fast"});
  EXPECT_EQ(s.page_size, 0);
  EXPECT_FALSE(s.complete());
  EXPECT_EQ(refusal({.backend = "odd,fast"}),
            "No page size suits all of ODD, FAST_ATTN; choose others with --attention-backend");
  EXPECT_THAT(refusal({.backend = "odd,fast", .page_size = 3, .allow_page_override = true}),
              HasSubstr("No page size suits all"));
}

TEST_F(PageSizes, AGivenOneIsAConstraintNeverChanged) {
  auto s = choose({.page_size = 16, .sources = {{"page_size", "--block-size"}}});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->kinds[0].prefill.backend, plain);
  EXPECT_EQ(s->page_size, 16);
  EXPECT_EQ(s->page_size_why, "given: --block-size");
  EXPECT_THAT(refusal({.backend = "fa", .page_size = 16}),
              HasSubstr("--page-size 32: it takes multiples of 32"));
  EXPECT_THAT(refusal({.page_size = 0}), HasSubstr("page_size 0 must be 1 or more"));
}

TEST_F(PageSizes, ReportsTheCost) {
  EXPECT_THAT(
      considered({.page_size = 16}).warnings,
      ElementsAre("--block-size 16 precluded higher-priority backend(s) FAST_ATTN. Using PLAIN instead, "
                  "which may result in reduced performance."));
  EXPECT_THAT(considered({.page_size = 32}).warnings, IsEmpty());
  EXPECT_THAT(considered({.backend = "plain", .page_size = 16}).warnings, IsEmpty());
  EXPECT_THAT(considered({.page_size = 16}, {window_spec()}).warnings, IsEmpty())
      << "FAST_ATTN could not have served anyway";
}

TEST_F(PageSizes, AnOverrideTakesTheNearestAndIsReported) {
  const auto with = [&](int page) {
    return considered(
        {.backend = "fast",
         .page_size = page,
         .allow_page_override = true,
         .sources = {{"page_size", "--page-size"}, {"allow_page_override", "--allow-page-override"}}});
  };
  Selection s = with(48);
  EXPECT_EQ(s.page_size, 32) << "the smaller of two that are as near";
  EXPECT_EQ(s.page_size_why, "nearest to --page-size 48, as --allow-page-override permits");
  EXPECT_THAT(s.warnings, ElementsAre("--page-size 48 is changed to 32, the nearest that FAST_ATTN takes, as "
                                      "--allow-page-override permits"));
  EXPECT_EQ(with(49).page_size, 64);
  EXPECT_EQ(with(1).page_size, 32);
  EXPECT_EQ(with(100000).page_size, 1024);
  s = with(64);
  EXPECT_EQ(s.page_size, 64);
  EXPECT_THAT(s.warnings, IsEmpty());
}

TEST_F(PageSizes, AModelsOwn) {
  AttentionSpec spec = llama_spec();
  spec.page_size = 48;
  const auto s = choose({}, {spec});
  EXPECT_EQ(s->page_size, 48);
  EXPECT_EQ(s->page_size_why, "required by the model");
}

TEST_F(PageSizes, EncoderLayersReadNoCache) {
  EXPECT_EQ(choose({.page_size = 16}, {encoder_spec(), llama_spec()})->page_size, 16);
  plain->capability.page_sizes = {1};
  plain->capability.preferred_page_size = 1;
  EXPECT_EQ(choose({}, {encoder_spec(), llama_spec()})->page_size, 32) << "of FAST_ATTN, which decodes";
  EXPECT_EQ(choose({}, {encoder_spec()})->page_size, 1);
}

}  // namespace
}  // namespace fovea
