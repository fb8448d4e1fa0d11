#include "ops/linear_weight.h"

#include <gtest/gtest.h>

#include <array>

#include "fovea/result.h"
#include "tensor/device.h"

namespace fovea {
namespace {

/// int8 [6, 64] with a scale and a zero point for 1 x 32 weights, and a bias.
class LinearWeightTest : public testing::Test {
 protected:
  LinearWeightTest() {
    w_.n = 6;
    w_.k = 64;
    w_.format = {ElementType::i8, WeightLayout::rows, true, true, 1, 32};
    w_.data = dense(ElementType::i8, {6, 64});
    w_.scales = dense(ElementType::f32, {6, 2});
    w_.zeros = dense(ElementType::i8, {6, 2});
    w_.bias = dense(ElementType::f32, {6});
  }
  Tensor dense(ElementType type, std::initializer_list<int64_t> shape) {
    return Tensor::dense(memory_.data(), cpu_device(), type, shape);
  }
  std::string refusal() const {
    const Status status = check(w_);
    return status ? "" : status.error().message;
  }

  std::array<std::byte, 1024> memory_{};
  LinearWeight w_;
};

TEST_F(LinearWeightTest, AFormatSaysWhichTensorsBelongToIt) {
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(w_.blocks_n(), 6);
  EXPECT_EQ(w_.blocks_k(), 2);
  EXPECT_EQ(w_.bytes(), 6 * 64 + 6 * 2 * 4 + 6 * 2 + 6 * 4);
  EXPECT_EQ(to_string(w_.format), "int8 in rows with a scale and a zero point for 1 x 32 weights");
  w_.format.block_n = w_.format.block_k = 0;
  EXPECT_EQ(w_.blocks_n(), 1);
  EXPECT_EQ(to_string(w_.format), "int8 in rows with a scale and a zero point for all x all weights");
  EXPECT_EQ(to_string(WeightFormat{ElementType::bf16, WeightLayout::panels}), "bfloat16 in panels");
}

TEST_F(LinearWeightTest, CodesForCuda) {
  EXPECT_EQ(stored_elements(WeightLayout::e4m3_16, 17, 65), 2 * 2 * 1024);
  EXPECT_EQ(stored_elements(WeightLayout::gated_mxfp4_16, 20, 64), 2 * 544);
  EXPECT_EQ(code_row_bytes(WeightCode::mxfp4, 64), 34);
  w_ = {};
  w_.n = 10;
  w_.k = 64;
  w_.format = {ElementType::u8, WeightLayout::e4m3_16, true, false, 1, 0};
  w_.data = dense(ElementType::u8, {1024});
  w_.scales = dense(ElementType::f32, {10, 1});
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(to_string(w_.format), "uint8 of e4m3 with a scale for 1 x all weights");
  w_.format.block_n = w_.format.block_k = 128;
  EXPECT_EQ(
      refusal(),
      "the scales of a linear layer are float32 [10, 1] on cpu; its format needs float32 [1, 1, 2], for "
      "blocks of 128 inputs");
  w_.scales = dense(ElementType::f32, {1, 1, 2});
  EXPECT_EQ(refusal(), "");
  w_.format.scaled = false;
  EXPECT_NE(refusal().find("e4m3 with scales"), std::string::npos);
}

TEST_F(LinearWeightTest, WhatDoesNotFitIsNamed) {
  const LinearWeight good = w_;
  w_.scales = dense(ElementType::f32, {6, 3});
  EXPECT_EQ(refusal(),
            "the scales of a linear layer are float32 [6, 3] on cpu; its format needs float32 [6, 2]");
  w_ = good;
  w_.zeros = {};
  EXPECT_EQ(refusal(), "the zero points of a linear layer are no tensor; its format needs int8 [6, 2]");
  w_ = good;
  w_.data = dense(ElementType::u8, {6, 64});
  EXPECT_EQ(refusal(),
            "the weights of a linear layer are uint8 [6, 64] on cpu; its format needs int8 [6, 64]");
  w_ = good;
  w_.bias = dense(ElementType::f32, {5});
  EXPECT_EQ(refusal(), "the biases of a linear layer are float32 [5] on cpu; its format needs float32 [6]");
  w_ = good;
  w_.format.scaled = w_.format.zero_points = false;
  EXPECT_EQ(refusal(), "the scales of a linear layer are float32 [6, 2] on cpu; its format needs none");
  w_ = good;
  w_.format.scaled = false;
  EXPECT_NE(refusal().find("zero points without scales"), std::string::npos);
}

TEST_F(LinearWeightTest, PanelsArePadded) {
  LinearWeight panels;
  panels.n = 6;
  panels.k = 5;
  panels.format = {ElementType::f16, WeightLayout::panels};
  panels.data = dense(ElementType::f16, {32 * 5});
  EXPECT_TRUE(check(panels).ok());
  panels.data = dense(ElementType::f16, {6 * 5});
  EXPECT_FALSE(check(panels).ok());
}

TEST_F(LinearWeightTest, BlocksArePadded) {
  EXPECT_EQ(stored_elements(WeightLayout::rows, 17, 65), 17 * 65);
  EXPECT_EQ(stored_elements(WeightLayout::panels, 33, 5), 64 * 5);
  EXPECT_EQ(stored_elements(WeightLayout::blocks16, 17, 65), 32 * 128);
  EXPECT_EQ(stored_elements(WeightLayout::gated_blocks16, 2 * 17, 64), 3 * 16 * 64);
  LinearWeight w;
  w.n = 34;
  w.k = 64;
  w.format = {ElementType::bf16, WeightLayout::gated_blocks16};
  w.data = dense(ElementType::bf16, {3 * 16 * 64});
  EXPECT_TRUE(check(w).ok());
  EXPECT_EQ(to_string(w.format), "bfloat16 in gated blocks of 16 x 64");
  w.n = 33;
  EXPECT_FALSE(check(w).ok());
  w.n = 34;
  w.format.stored = ElementType::f32;
  w.data = dense(ElementType::f32, {3 * 16 * 64});
  EXPECT_FALSE(check(w).ok());
}

}  // namespace
}  // namespace fovea
