#include "kernels/cuda/linear/linear_choice.h"

#include <gtest/gtest.h>

namespace fovea::cuda {
namespace {

constexpr int kMultiprocessors = 132;

LinearChoice choice(int64_t n, bool gated, int64_t least, int64_t most, int units) {
  LinearChoice out;
  out.n = n;
  out.k = 4096;
  out.gated = gated;
  out.min_rows = least;
  out.max_rows = most;
  out.kernel = LinearKernel::stream;
  out.options.units = units;
  return out;
}

class LinearChoices : public ::testing::Test {
 protected:
  ~LinearChoices() override { set_linear_choices({}); }
};

TEST_F(LinearChoices, AreFoundByShapeAndRows) {
  EXPECT_EQ(find_linear_choice(6144, 4096, false, 1), nullptr);
  set_linear_choices({choice(6144, false, 9, 16, 3), choice(6144, false, 1, 1, 1),
                      choice(6144, false, 2, 8, 2), choice(4096, false, 1, 64, 5),
                      choice(6144, true, 1, 8, 4)});
  const auto units = [](int64_t n, bool gated, int64_t rows) {
    const LinearChoice* found = find_linear_choice(n, 4096, gated, rows);
    return found == nullptr ? 0 : *found->options.units;
  };
  EXPECT_EQ(units(6144, false, 1), 1);
  EXPECT_EQ(units(6144, false, 2), 2);
  EXPECT_EQ(units(6144, false, 8), 2);
  EXPECT_EQ(units(6144, false, 9), 3);
  EXPECT_EQ(units(6144, false, 16), 3);
  EXPECT_EQ(units(6144, false, 17), 0);
  EXPECT_EQ(units(6144, true, 5), 4);
  EXPECT_EQ(units(4096, false, 64), 5);
  EXPECT_EQ(units(4096, true, 64), 0);
  EXPECT_EQ(find_linear_choice(6144, 4095, false, 1), nullptr);
}

TEST_F(LinearChoices, DecideOnlyAutomaticPlans) {
  const auto plan = [](LinearKernel kernel) {
    return chosen_wgmma_plan(8, 6144, 4096, false, kMultiprocessors, kernel);
  };
  const WgmmaPlan usual = plan(LinearKernel::automatic);
  set_linear_choices({choice(6144, false, 1, 8, 2)});
  EXPECT_LE(plan(LinearKernel::automatic).units, 2);
  EXPECT_NE(plan(LinearKernel::automatic).parts, usual.parts);
  EXPECT_EQ(plan(LinearKernel::tile).columns, 256);
  EXPECT_EQ(plan(LinearKernel::stream).parts, usual.parts);
}

}  // namespace
}  // namespace fovea::cuda
