#include "flex/interval.h"

#include <gtest/gtest.h>

#include <cmath>

#include "flex/parse.h"
#include "flex/random_expression_test_support.h"

namespace fovea::flex {
namespace {

/// Buffers for the random expressions, over 192 positions.
struct Data {
  std::vector<int32_t> doc, grid;
  std::vector<float> bias;
  std::vector<uint8_t> flag;
  std::vector<BufferType> types = {{"doc", Type::integer, 1},
                                   {"grid", Type::integer, 2},
                                   {"bias", Type::real, 1},
                                   {"flag", Type::boolean, 1}};
  std::vector<Buffer> buffers;

  explicit Data(uint64_t seed) {
    std::mt19937_64 random(seed);
    int document = 0;
    for (int i = 0; i < 192; ++i) {
      document += random() % 40 == 0 ? 1 : 0;
      doc.push_back(document);
      bias.push_back(static_cast<float>(static_cast<int>(random() % 200)) * 0.37f - 30.0f);
      flag.push_back(i % 64 < 40 ? 1 : 0);
    }
    bias[100] = std::nanf("");
    bias[130] = INFINITY;
    for (int i = 0; i < 5 * 37; ++i)
      grid.push_back(static_cast<int32_t>(random() % 50) - 10);
    buffers = {{doc.data(), 1, 192, 192},
               {grid.data(), 5, 37, 37},
               {bias.data(), 1, 192, 192},
               {flag.data(), 1, 192, 192}};
  }
};

TEST(FlexInterval, ContainsEveryValueOfRandomExpressions) {
  int full = 0, empty = 0, partial = 0, tight = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    RandomExpression random(seed);
    const Data data(seed);
    const bool is_mask = seed % 2 == 0;
    const int depth = 1 + random.draw(4);
    const std::string text = is_mask ? random.condition(depth) : random.real(depth);
    const auto tree = parse(is_mask ? Role::mask : Role::score, text, data.types);
    ASSERT_TRUE(tree.ok()) << tree.error().message;
    const Analysis analysis(*tree, data.types, data.buffers);
    Analysis::Scratch scratch = analysis.scratch();
    const int q0 = random.draw(180), k0 = random.draw(180);
    const int q1 = q0 + random.draw(20), k1 = k0 + random.draw(20), h1 = random.draw(3);
    const Region region = {{0, 1},     {0, double(h1)}, {double(q0), double(q1)}, {double(k0), double(k1)},
                           {200, 200}, {200, 200}};
    const Interval bounds = analysis.bounds(region, scratch);
    double least = INFINITY, most = -INFINITY;
    bool nan = false;
    for (int b = 0; b < 2; ++b)
      for (int h = 0; h <= h1; ++h)
        for (int q = q0; q <= q1; ++q)
          for (int k = k0; k <= k1; ++k)
            for (const bool fp32 : {false, true}) {
              const Point point = {b, h, q, k, 200, 200, 0};
              const double x = fp32 ? evaluate<float>(*tree, data.types, data.buffers, point)
                                    : evaluate<double>(*tree, data.types, data.buffers, point);
              if (std::isnan(x)) {
                nan = true;
              } else {
                least = std::min(least, x);
                most = std::max(most, x);
              }
            }
    ASSERT_TRUE(bounds.nan || !nan) << text;
    if (least <= most) {
      ASSERT_LE(bounds.lo, least) << text;
      ASSERT_GE(bounds.hi, most) << text;
    }
    if (!is_mask) continue;
    switch (analysis.coverage(region, scratch)) {
      case Coverage::full:
        ASSERT_EQ(least, 1) << text;
        ++full;
        break;
      case Coverage::empty:
        ASSERT_EQ(most, 0) << text;
        ++empty;
        break;
      case Coverage::partial:
        ++partial;
        tight += least != most ? 1 : 0;
        break;
    }
  }
  // It decides something, and most of what it leaves undecided is mixed.
  EXPECT_GT(full, 50);
  EXPECT_GT(empty, 50);
  EXPECT_GT(tight, partial / 3) << full << " full, " << empty << " empty, " << partial << " partial";
}

/// Coverage of every 128 x 128 block of a mask over n positions: 'f', 'p', 'e', one row of blocks per line.
std::string blocks(const std::string& mask, int n, const std::vector<BufferType>& types = {},
                   const std::vector<Buffer>& buffers = {}) {
  const auto tree = parse(Role::mask, mask, types);
  if (!tree) return tree.error().message;
  const Analysis analysis(*tree, types, buffers);
  Analysis::Scratch scratch = analysis.scratch();
  std::string all;
  for (int q = 0; q < n; q += 128, all += "|")
    for (int k = 0; k < n; k += 128) {
      const Region region = {{0, 0},
                             {0, 0},
                             {double(q), double(q + 127)},
                             {double(k), double(k + 127)},
                             {double(n), double(n)},
                             {double(n), double(n)}};
      all += "epf"[static_cast<int>(analysis.coverage(region, scratch))];
    }
  return all;
}

TEST(FlexInterval, BlocksOfCommonMasksAreExact) {
  EXPECT_EQ(blocks("k <= q", 512), "peee|fpee|ffpe|fffp|");
  EXPECT_EQ(blocks("k <= q && q - k < 128", 512), "peee|ppee|eppe|eepp|");
  EXPECT_EQ(blocks("k <= q && q - k <= 256", 512), "peee|fpee|pfpe|epfp|");
  EXPECT_EQ(blocks("abs(q - k) <= 127", 384), "fpe|pfp|epf|");
  EXPECT_EQ(blocks("k <= q || k < 200", 384), "fpe|fpe|ffp|");
  EXPECT_EQ(blocks("q // 256 == k // 256", 512), "ffee|ffee|eeff|eeff|");
  EXPECT_EQ(blocks("k % 256 < 128", 512), "fefe|fefe|fefe|fefe|");
  std::vector<int32_t> doc(512);
  for (int i = 0; i < 512; ++i)
    doc[i] = i < 128 ? 0 : i < 300 ? 1 : 2;
  const std::vector<BufferType> types = {{"doc", Type::integer, 1}};
  const std::vector<Buffer> buffers = {{doc.data(), 1, 512, 512}};
  EXPECT_EQ(blocks("doc[q] == doc[k]", 512, types, buffers), "feee|efpe|eppp|eepf|");
  EXPECT_EQ(blocks("k <= q && doc[q] == doc[k]", 512, types, buffers), "peee|epee|eppe|eepp|");
}

TEST(FlexInterval, BufferBoundsAreThoseOfTheRange) {
  std::mt19937_64 random(3);
  std::vector<int32_t> values(12 * 300);
  for (int32_t& x : values)
    x = static_cast<int32_t>(random() % 1000);
  const Buffer buffer = {values.data(), 12, 290, 300};
  const BufferBounds bounds(buffer, Type::integer);
  for (int i = 0; i < 3000; ++i) {
    const int64_t row = static_cast<int64_t>(random() % 14) - 1, rows = static_cast<int64_t>(random() % 3);
    const int64_t first = static_cast<int64_t>(random() % 330) - 20,
                  last = first + static_cast<int64_t>(random() % 300);
    const Interval x = bounds.of(row, row + rows, first, last);
    double least = INFINITY, most = -INFINITY;
    for (int64_t r = row; r <= row + rows; ++r)
      for (int64_t c = first; c <= last; ++c) {
        least = std::min(least, read(buffer, Type::integer, r, c));
        most = std::max(most, read(buffer, Type::integer, r, c));
      }
    ASSERT_EQ(x.lo, least);
    ASSERT_EQ(x.hi, most);
  }
  EXPECT_LE(bounds.of(0, 11, 5, 6).lo, bounds.of(3, 3, 5, 6).lo) << "many rows: bounds of the whole buffer";
}

}  // namespace
}  // namespace fovea::flex
