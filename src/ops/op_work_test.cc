#include "ops/op_work.h"

#include <gtest/gtest.h>

#include "ops/cpu_ops.h"

namespace fovea {
namespace {

/// Shapes only: nothing reads the memory.
Tensor shape(ElementType type, std::initializer_list<int64_t> sizes) {
  static float memory[1];
  return Tensor::dense(memory, cpu_device(), type, sizes);
}

LinearWeight weight(int64_t n, int64_t k) {
  LinearWeight w;
  w.n = n;
  w.k = k;
  w.format.stored = ElementType::bf16;
  w.data = shape(ElementType::bf16, {n, k});
  return w;
}

TEST(OpWork, LinearLayersReadTheirWeightsOnce) {
  const auto work =
      linear_work(weight(30, 20), shape(ElementType::bf16, {4, 20}), shape(ElementType::f32, {4, 30}));
  EXPECT_EQ(work.bytes, 30 * 20 * 2 + 4 * 20 * 2 + 4 * 30 * 4);
  EXPECT_EQ(work.flops, 2 * 4 * 30 * 20);
}

TEST(OpWork, RowsCountEachTimeTheyAreNamed) {
  const Tensor x = shape(ElementType::f32, {3, 8}), y = shape(ElementType::bf16, {3, 8});
  EXPECT_EQ(rows_work({&x, &x, &y}).bytes, 2 * 96 + 48);
  EXPECT_EQ(rows_work({&x}).flops, 0);
}

TEST(OpWork, AnEmbeddingReadsARowForEachId) {
  EXPECT_EQ(embed_work(weight(1000, 16), shape(ElementType::f32, {5, 16})).bytes, 5 * 16 * 2 + 5 * 16 * 4);
}

TEST(OpWork, AppendWritesKeysAndValuesAndQueriesThatChange) {
  AttentionInput in;
  in.qkv = shape(ElementType::bf16, {2, (4 + 2 * 2) * 8});
  in.heads = 4;
  in.kv_heads = 2;
  in.head_dim = 8;
  in.kv.dtype = KvCacheDType::fp8_e4m3;
  const double read = 2 * 64 * 2, written = 2 * 2 * 2 * 8 * 1;
  EXPECT_EQ(append_work(in).bytes, read + written);
  in.rope.cos = shape(ElementType::f32, {2, 4});
  EXPECT_EQ(append_work(in).bytes, read + written + 2 * 4 * 8 * 2);
}

TEST(OpWork, ExpertsAreThoseThatRowsMayTouch) {
  const std::vector<GatedMlpWeights> experts(8, {weight(2 * 6, 10), weight(10, 6)});
  ExpertWeights weights;
  weights.experts = experts;
  const double one = (12 * 10 + 10 * 6) * 2;
  const auto work = [&](int64_t rows) {
    const Tensor x = shape(ElementType::bf16, {rows, 10});
    return experts_work(weights, x, 2, x);
  };
  EXPECT_NEAR(work(1).bytes, 2 * one + 2 * 10 * 2, 1e-9);
  EXPECT_NEAR(work(1000).bytes, 8 * one + 2 * 1000 * 10 * 2, 1e-6);
  EXPECT_GT(work(4).bytes, work(2).bytes);
  EXPECT_EQ(work(3).flops, 2 * 3 * 2 * (12 * 10 + 10 * 6));
  weights.shared = {weight(4, 10), weight(10, 2)};
  EXPECT_NEAR(work(1).bytes, 2 * one + 2 * 10 * 2 + (4 * 10 + 10 * 2) * 2, 1e-9);
}

}  // namespace
}  // namespace fovea
