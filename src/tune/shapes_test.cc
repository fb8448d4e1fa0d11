#include <gtest/gtest.h>

#include "tune/tune.h"

namespace fovea::tune {
namespace {

constexpr int kMultiprocessors = 132;

ModelConfig llama() {
  ModelConfig c;
  c.hidden_size = 4096;
  c.intermediate_size = 14336;
  c.num_heads = 32;
  c.num_kv_heads = 8;
  c.head_dim = 128;
  c.vocab_size = 128256;
  c.layers.resize(32);
  return c;
}

TEST(LinearShapes, AreTheModelsLayers) {
  const auto shapes = linear_shapes(llama());
  ASSERT_EQ(shapes.size(), 5u);
  EXPECT_EQ(shapes[0].names, std::vector<std::string>{"logits"});
  EXPECT_TRUE(shapes[0].logits);
  EXPECT_EQ(shapes[1].names, std::vector<std::string>{"gate_up"});
  EXPECT_EQ(shapes[1].n, 28672);
  EXPECT_TRUE(shapes[1].gated);
  EXPECT_EQ(shapes[2].n, 4096);  // down
  EXPECT_EQ(shapes[2].k, 14336);
  EXPECT_EQ(shapes[3].n, 6144);  // qkv
  EXPECT_EQ(shapes[4].n, 4096);  // o
}

TEST(LinearShapes, EqualOnesAreMeasuredOnceAndExpertsNot) {
  ModelConfig c = llama();
  c.intermediate_size = 4096;
  c.num_kv_heads = 0;
  for (LayerConfig& layer : c.layers)
    layer.moe = true;
  c.layers.front().moe = false;
  const auto shapes = linear_shapes(c);
  for (const LinearShape& shape : shapes)
    if (shape.n == 4096 && !shape.gated) {
      EXPECT_EQ(shape.names, (std::vector<std::string>{"qkv", "o", "down"}));
    }
  c.layers.front().moe = true;
  for (const LinearShape& shape : linear_shapes(c))
    EXPECT_FALSE(shape.gated);
}

TEST(MeasuredRows, AscendToTheMost) {
  EXPECT_EQ(measured_rows(1), std::vector<int64_t>{1});
  EXPECT_EQ(measured_rows(20), (std::vector<int64_t>{1, 8, 16}));
  EXPECT_EQ(measured_rows(1 << 20).back(), 8192);
}

TEST(Alternatives, DifferFromTheUsualPlanAndFitTheDevice) {
  for (const LinearShape& shape : linear_shapes(llama()))
    for (const int64_t rows : measured_rows(8192)) {
      const auto all = alternatives(shape, rows, kMultiprocessors);
      EXPECT_FALSE(all.empty()) << shape.n << " " << rows;
      EXPECT_LE(all.size(), 48u);
      const cuda::WgmmaPlan usual =
          plan_wgmma(rows, shape.n, shape.k, shape.gated, kMultiprocessors, cuda::LinearKernel::automatic);
      for (const cuda::LinearChoice& choice : all) {
        EXPECT_EQ(choice.max_rows, rows);
        EXPECT_NE(choice.kernel, cuda::LinearKernel::automatic);
        const cuda::WgmmaPlan plan =
            plan_wgmma(rows, shape.n, shape.k, shape.gated, kMultiprocessors, choice.kernel, choice.options);
        EXPECT_GE(plan.stages, 2);
        EXPECT_LE(plan.shared_bytes + 512, 232448);
        EXPECT_LE(plan.units * (plan.halves ? 8 : 16), plan.columns);
        EXPECT_FALSE(plan.parts == usual.parts && plan.units == usual.units && plan.groups == usual.groups &&
                     plan.halves == usual.halves && plan.share == usual.share &&
                     plan.raster == usual.raster && plan.even == usual.even);
      }
    }
}

}  // namespace
}  // namespace fovea::tune
