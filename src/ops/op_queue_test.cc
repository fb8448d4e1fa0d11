#include "ops/op_queue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/ops.h"
#include "ops/cpu_ops.h"

namespace fovea {
namespace {

using Floats = std::vector<float>;

Floats random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& v : values)
    v = normal(random);
  return values;
}

class OpQueueTest : public testing::Test {
 protected:
  OpQueueTest() : pool_(1), stream_(pool_), queue_(cpu_ops(), stream_) {}
  static Tensor matrix(Floats& values, int64_t rows) {
    return host_tensor(values.data(), rows, static_cast<int64_t>(values.size()) / rows);
  }
  PackedMatrix packed(const Floats& values, int64_t n, int64_t k, DType storage = DType::bf16) {
    PackedMatrix weight(n, k, storage);
    weight.pack_rows(0, n, values.data(), DType::f32, pool_);
    return weight;
  }

  ThreadPool pool_;
  Stream stream_;
  OpQueue queue_;
};

TEST_F(OpQueueTest, LinearIsTheKernelOnAnyView) {
  const Floats w = random_floats(40 * 24, 1), bias = random_floats(40, 2);
  const PackedMatrix weight = packed(w, 40, 24);
  Floats x = random_floats(5 * 30, 3), y(5 * 50, 7.0f), expected = y;
  const LinearWeight view = packed_weight(weight, bias);
  ASSERT_TRUE(check(view).ok());
  queue_.linear(view, matrix(x, 5).slice(1, 3, 24), matrix(y, 5).slice(1, 10, 40));
  linear(weight, x.data() + 3, 30, 5, expected.data() + 10, 50, bias.data(), pool_);
  EXPECT_TRUE(queue_.status().ok());
  EXPECT_EQ(y, expected);
}

TEST_F(OpQueueTest, AddNormIsAddThenNorm) {
  const Floats w = random_floats(24, 1);
  Floats x = random_floats(5 * 24, 2), y = random_floats(5 * 24, 3), out(x.size());
  Floats x2 = x, out2(x.size());
  const NormWeight norm{host_tensor(std::span(w)), {}, 1e-5f};
  queue_.add_norm(matrix(x, 5), matrix(y, 5), 0.3f, norm, matrix(out, 5));
  queue_.add(matrix(x2, 5), matrix(y, 5), 0.3f);
  queue_.norm(norm, matrix(x2, 5), matrix(out2, 5));
  EXPECT_EQ(x, x2);
  EXPECT_EQ(out, out2);
  Floats expected(x.size());
  rms_norm(x.data(), 24, w.data(), 1e-5f, expected.data(), 24, 5, 24, pool_);
  EXPECT_EQ(out, expected);
}

TEST_F(OpQueueTest, RowsAreGathered) {
  Floats x = random_floats(6 * 4, 1), y(2 * 4);
  const std::vector<int32_t> ids = {1, 5};
  queue_.gather_rows(matrix(x, 6), host_tensor(std::span(ids)), matrix(y, 2));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(y[i], x[4 + i]);
    EXPECT_EQ(y[4 + i], x[20 + i]);
  }
}

TEST_F(OpQueueTest, EmbeddingsAreScaledRows) {
  const Floats table = random_floats(9 * 4, 1);
  const PackedMatrix weight = packed(table, 9, 4, DType::f32);
  const std::vector<int32_t> ids = {8, 0, 8};
  Floats y(3 * 4);
  queue_.embed(packed_weight(weight), host_tensor(std::span(ids)), 2.0f, matrix(y, 3));
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(y[r * 4 + i], 2.0f * table[static_cast<size_t>(ids[r]) * 4 + i]);
}

TEST_F(OpQueueTest, ADryRunChecksShapesAndRunsNothing) {
  OpQueue dry = OpQueue::dry_run(cpu_ops());
  EXPECT_TRUE(dry.dry());
  Tensor x = Tensor::dense(nullptr, cpu_device(), ElementType::f32, {3, 4}), other = x.slice(1, 0, 3);
  dry.add(x, x, 1.0f);
  dry.call([](Stream&) -> Status { return invalid("must not run"); });
  EXPECT_TRUE(dry.status().ok());
  EXPECT_DEATH(dry.add(x, other, 1.0f), "internal error");
}

TEST_F(OpQueueTest, WrongTensorsAreInternalErrors) {
  const Floats w = random_floats(40 * 24, 1);
  const PackedMatrix weight = packed(w, 40, 24);
  const LinearWeight view = packed_weight(weight);
  Floats x(3 * 24), y(3 * 40);
  EXPECT_DEATH(queue_.linear(view, matrix(x, 3), matrix(y, 4)), "internal error");
  EXPECT_DEATH(queue_.linear(view, matrix(x, 4), matrix(y, 3)), "internal error");
  Tensor elsewhere = matrix(x, 3);
  elsewhere.device = nullptr;
  EXPECT_DEATH(queue_.linear(view, elsewhere, matrix(y, 3)), "internal error");
  Tensor typed = matrix(x, 3);
  typed.dtype = ElementType::i32;
  EXPECT_DEATH(queue_.linear(view, typed, matrix(y, 3)), "internal error");
}

TEST_F(OpQueueTest, TheFirstErrorStopsTheStep) {
  int calls = 0;
  queue_.call([&](Stream&) -> Status { return ++calls, Status(); });
  queue_.call([&](Stream&) -> Status { return invalid("the first"); });
  queue_.call([&](Stream&) -> Status { return ++calls, invalid("the second"); });
  Floats x(4, 1.0f);
  queue_.add(matrix(x, 1), matrix(x, 1), 1.0f);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(x[0], 1.0f);
  ASSERT_FALSE(queue_.status().ok());
  EXPECT_EQ(queue_.status().error().message, "the first");
}

TEST(CpuOps, SaysWhichFormatsItReads) {
  const Ops& ops = cpu_ops();
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16})
    EXPECT_TRUE(ops.supports({type, WeightLayout::panels}).empty());
  EXPECT_EQ(ops.supports({ElementType::bf16, WeightLayout::rows}),
            std::vector<std::string>{"weights in rows not supported; panels are"});
  EXPECT_EQ(ops.supports({ElementType::i8, WeightLayout::rows, true, false, 1, 32}).size(), 3u);
}

TEST(CpuOps, PlacedWeightsAreACopy) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Floats w = random_floats(33 * 5, 1), bias = random_floats(33, 2);
  PackedMatrix weight(33, 5, DType::f16);
  weight.pack_rows(0, 33, w.data(), DType::f32, pool);
  auto placed = cpu_ops().place(packed_weight(weight, bias), WeightUse::plain, stream);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  ASSERT_TRUE(check(placed->weight).ok());
  EXPECT_NE(placed->weight.data.data, weight.data());
  Floats expected(5), got(5);
  for (int64_t row = 0; row < 33; ++row) {
    weight.unpack_row(row, expected.data());
    packed_view(placed->weight).unpack_row(row, got.data());
    EXPECT_EQ(got, expected);
    EXPECT_EQ(placed->weight.bias.as<float>()[row], bias[static_cast<size_t>(row)]);
  }
}

}  // namespace
}  // namespace fovea
