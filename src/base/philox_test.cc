#include "base/philox.h"

#include <gtest/gtest.h>

#include <set>

namespace fovea {
namespace {

// Known answers computed from the definition in the paper (section 3.3 and the constants of its table) in
// Python; the authors' Random123 library lists the same values for philox4x32, 10 rounds.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, UniformsFillTheUnitInterval) {
  double sum = 0;
  int low = 0;
  constexpr int kDraws = 20000;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double u = philox_uniform(7, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    low += u < 0.25;
  }
  // Five standard deviations: sqrt(1/12/n) = 0.0020 and sqrt(n/4*3/4) = 61.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.0021);
  EXPECT_NEAR(low, kDraws / 4, 5 * 62);
}

TEST(PhiloxTest, SeedsAndPositionsBothMatterInAllTheirBits) {
  std::set<double> draws;
  std::set<uint64_t> seeds;
  for (int bit = 0; bit < 64; ++bit) {
    draws.insert(philox_uniform(uint64_t{1} << bit, 5));
    draws.insert(philox_uniform(0, uint64_t{1} << bit));
    seeds.insert(derive_seed(uint64_t{1} << bit, 5));
    seeds.insert(derive_seed(0, uint64_t{1} << bit));
  }
  EXPECT_EQ(draws.size(), 128u);
  EXPECT_EQ(seeds.size(), 128u);
}

TEST(PhiloxTest, AnswersHaveSeedsOfTheirOwnAndTheFirstKeepsTheRequests) {
  std::set<uint64_t> seeds;
  for (uint64_t seed : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
    EXPECT_EQ(choice_seed(seed, 0), seed);
    for (int index = 0; index < 128; ++index)
      seeds.insert(choice_seed(seed, index));
  }
  EXPECT_EQ(seeds.size(), 3u * 128u);
}

}  // namespace
}  // namespace fovea
