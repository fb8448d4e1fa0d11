#include "audio/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "fovea/result.h"

namespace fovea {
namespace {

std::vector<float> tone(double hz, int rate, int64_t samples) {
  std::vector<float> out(static_cast<size_t>(samples));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate));
  return out;
}

std::vector<float> all(const Resampler& resampler, const std::vector<float>& input) {
  return resampler.run(input, 0, 0, resampler.outputs(static_cast<int64_t>(input.size())));
}

TEST(Resampler, KeepsTonesOfTheBandAndRemovesOthers) {
  for (const int from : {8000, 11025, 22050, 24000, 44100, 48000, 96000}) {
    const auto resampler = Resampler::create(from, 16000);
    ASSERT_TRUE(resampler.ok()) << resampler.error().message;
    const double edge = std::min(from, 16000) / 2.0;
    for (const double hz : {100.0, 1000.0, 0.85 * edge}) {
      const auto got = all(*resampler, tone(hz, from, from / 2));
      ASSERT_EQ(got.size(), 8000u) << from;
      const auto want = tone(hz, 16000, 8000);
      for (size_t i = 1000; i < 7000; ++i)
        ASSERT_NEAR(got[i], want[i], 2e-4) << from << " Hz, a tone of " << hz << ", sample " << i;
    }
    if (from <= 16000) continue;
    const auto got = all(*resampler, tone(1.05 * edge, from, from / 2));
    for (size_t i = 1000; i < 7000; ++i)
      ASSERT_NEAR(got[i], 0, 2e-4) << from;
  }
}

TEST(Resampler, EqualRatesCopy) {
  const auto input = tone(440, 16000, 1000);
  EXPECT_EQ(all(*Resampler::create(16000, 16000), input), input);
}

TEST(Resampler, PartsAreThoseOfTheWhole) {
  const auto resampler = *Resampler::create(44100, 16000);
  const auto input = tone(700, 44100, 30'000);
  const auto whole = all(resampler, input);
  ASSERT_EQ(whole.size(), 10'885u);
  for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{4321}, int64_t{10'800}}) {
    const int64_t count = std::min<int64_t>(500, static_cast<int64_t>(whole.size()) - first);
    auto [from, to] = resampler.inputs(first, count);
    from = std::max<int64_t>(from, 0);
    to = std::min<int64_t>(to, static_cast<int64_t>(input.size()));
    const auto part =
        resampler.run(std::span(input).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)),
                      from, first, count);
    const auto begin = whole.begin() + first;
    EXPECT_EQ(part, std::vector<float>(begin, begin + count)) << first;
  }
}

TEST(Resampler, OddRatiosAreRefused) {
  const auto refused = Resampler::create(44101, 16000);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("44101 Hz can't be converted to 16000 Hz"), std::string::npos);
}

}  // namespace
}  // namespace fovea
