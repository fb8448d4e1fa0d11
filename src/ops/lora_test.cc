// apply_lora() against its definition in fp64, and the bits of rows in any company; rows by slot.
#include "ops/lora.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ops/lora_slots.h"

namespace fovea {
namespace {

constexpr int64_t kInputs = 77, kOutputs = 150;

struct Data {
  LoraWeights weights;
  std::vector<float> a, b1, b2;  // of two modules: ranks 5 and 40
  std::vector<float> x, y;
  static constexpr int64_t kRows = 300, kXStride = 80, kYStride = 155;

  explicit Data(ThreadPool& pool) {
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      for (float& v : values)
        v = normal(rng);
    };
    fill(a, 45 * kInputs);
    fill(b1, 60 * 5);
    fill(b2, 33 * 40);
    fill(x, kRows * kXStride);
    fill(y, kRows * kYStride);
    weights.a = PackedMatrix(45, kInputs, DType::f32);
    weights.a.pack_rows(0, 45, a.data(), DType::f32, pool);
    const auto module = [&](const std::vector<float>& b, int64_t n, int64_t r, int64_t output, int64_t rank,
                            float scale) {
      LoraWeights::Module& m = weights.modules.emplace_back();
      m.b = PackedMatrix(n, r, DType::f32);
      m.b.pack_rows(0, n, b.data(), DType::f32, pool);
      m.first_output = output, m.first_rank = rank, m.scale = scale;
    };
    module(b1, 60, 5, 10, 0, 0.5f);
    module(b2, 33, 40, 117, 5, 3.0f);
  }

  double want(int64_t row, int64_t n) const {
    double sum = static_cast<double>(y[static_cast<size_t>(row * kYStride + n)]);
    const auto add = [&](const std::vector<float>& b, int64_t outputs, int64_t r, int64_t output,
                         int64_t rank, double scale) {
      if (n < output || n >= output + outputs) return;
      for (int64_t j = 0; j < r; ++j) {
        double low = 0;
        for (int64_t k = 0; k < kInputs; ++k)
          low += static_cast<double>(a[static_cast<size_t>((rank + j) * kInputs + k)]) *
                 static_cast<double>(x[static_cast<size_t>(row * kXStride + k)]);
        sum += scale * low * static_cast<double>(b[static_cast<size_t>((n - output) * r + j)]);
      }
    };
    add(b1, 60, 5, 10, 0, 0.5);
    add(b2, 33, 40, 117, 5, 3.0);
    return sum;
  }

  std::vector<float> apply(const std::vector<int32_t>& rows, ThreadPool& pool) const {
    std::vector<float> out = y;
    std::vector<float> scratch(static_cast<size_t>(lora_scratch(45, kInputs, 60)), NAN);
    apply_lora(weights, rows, x.data(), kXStride, out.data(), kYStride, scratch.data(), pool);
    return out;
  }
};

TEST(ApplyLora, IsTheDefinition) {
  ThreadPool pool(2);
  const Data data(pool);
  const std::vector<int32_t> rows = {0, 1, 2, 5, 290};
  const std::vector<float> got = data.apply(rows, pool);
  for (int64_t row = 0, at = 0; row < Data::kRows; ++row) {
    const bool chosen = at < 5 && rows[static_cast<size_t>(at)] == row;
    if (chosen) ++at;
    for (int64_t n = 0; n < Data::kYStride; ++n) {
      const auto i = static_cast<size_t>(row * Data::kYStride + n);
      if (chosen && n < kOutputs)
        ASSERT_NEAR(static_cast<double>(got[i]), data.want(row, n), 1e-3) << row << ", " << n;
      else
        ASSERT_EQ(got[i], data.y[i]) << row << ", " << n;
    }
  }
}

TEST(ApplyLora, BitsOfARowDependOnItAlone) {
  ThreadPool pool(1), three(3);
  const Data data(pool);
  std::vector<float> alone = data.y;
  for (int32_t row = 0; row < Data::kRows; ++row)
    std::memcpy(alone.data() + row * Data::kYStride, data.apply({row}, pool).data() + row * Data::kYStride,
                Data::kYStride * sizeof(float));
  std::mt19937 rng(3);
  for (const int percent : {100, 97, 80, 30, 3})
    for (ThreadPool* threads : {&pool, &three}) {
      std::vector<int32_t> rows;
      for (int32_t row = 0; row < Data::kRows; ++row)
        if (static_cast<int>(rng() % 100) < percent) rows.push_back(row);
      const std::vector<float> got = data.apply(rows, *threads);
      for (const int32_t row : rows)
        ASSERT_EQ(std::memcmp(got.data() + row * Data::kYStride, alone.data() + row * Data::kYStride,
                              Data::kYStride * sizeof(float)),
                  0)
            << row << " of " << rows.size();
    }
}

TEST(LoraTileList, SortsEachBlockOfRowsBySlot) {
  std::mt19937 rng(7);
  for (const int rows : {1, 5, 16, 17, 64, 300})
    for (const int slots : {1, 3, 400})
      for (const int64_t block : {int64_t{7}, int64_t{64}, int64_t{1024}}) {
        std::vector<int32_t> slot_of;
        for (int row = 0; row < rows; ++row)
          slot_of.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(slots + 1)) - 1);
        LoraTileList list;
        list.build(slot_of, block);
        ASSERT_EQ(list.of_block.size(), static_cast<size_t>((rows + block - 1) / block) + 1);
        ASSERT_EQ(static_cast<size_t>(list.of_block.back()), list.tiles.size());
        std::vector<int> seen(slot_of.size());
        for (size_t b = 0; b + 1 < list.of_block.size(); ++b)
          for (int t = list.of_block[b]; t < list.of_block[b + 1]; ++t) {
            const LoraTile& tile = list.tiles[static_cast<size_t>(t)];
            ASSERT_TRUE(tile.rows > 0 && tile.rows <= kLoraTileRows);
            for (int i = 0; i < tile.rows; ++i) {
              const int32_t row = list.order[static_cast<size_t>(tile.first + i)];
              ++seen[static_cast<size_t>(row)];
              ASSERT_EQ(slot_of[static_cast<size_t>(row)], tile.slot);
              ASSERT_EQ(row / block, static_cast<int64_t>(b));
              ASSERT_TRUE(i == 0 || list.order[static_cast<size_t>(tile.first + i) - 1] < row);
            }
          }
        ASSERT_TRUE(std::ranges::all_of(seen, [](int count) { return count == 1; }));

        const int most = LoraTileList::most(rows, slots);
        ASSERT_LE(most, rows);
        list.build(slot_of, block, most);
        ASSERT_EQ(list.tiles.size(), static_cast<size_t>(most));
        ASSERT_EQ(list.of_block, (std::vector<int32_t>{0, most}));
        int sum = 0;
        for (const LoraTile& tile : list.tiles)
          sum += tile.rows;
        ASSERT_EQ(sum, rows);
      }
}

}  // namespace
}  // namespace fovea
