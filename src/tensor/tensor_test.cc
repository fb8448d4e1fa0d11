#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/thread_pool.h"
#include "fovea/result.h"
#include "tensor/device.h"

namespace fovea {
namespace {

class TensorTest : public testing::Test {
 protected:
  TensorTest() : values_(24) {
    std::iota(values_.begin(), values_.end(), 0.0f);
    t_ = Tensor::dense(values_.data(), cpu_device(), ElementType::f32, {2, 3, 4});
  }
  /// Where the view's first element lies in values_.
  int64_t first(const Tensor& t) const { return t.as<float>() - values_.data(); }

  std::vector<float> values_;
  Tensor t_;
};

TEST_F(TensorTest, IsRowMajor) {
  EXPECT_EQ(t_.rank, 3);
  EXPECT_EQ(t_.stride(0), 12);
  EXPECT_EQ(t_.stride(1), 4);
  EXPECT_EQ(t_.stride(2), 1);
  EXPECT_EQ(t_.elements(), 24);
  EXPECT_TRUE(t_.contiguous());
  EXPECT_TRUE(t_.has_shape({2, 3, 4}));
  EXPECT_FALSE(t_.has_shape({2, 3}));
  EXPECT_FALSE(t_.has_shape({2, 3, 5}));
  EXPECT_EQ(t_.describe(), "float32 [2, 3, 4] on cpu");
}

TEST_F(TensorTest, SlicesAreViews) {
  const Tensor rows = t_.slice(0, 1, 1);
  EXPECT_EQ(first(rows), 12);
  EXPECT_TRUE(rows.has_shape({1, 3, 4}));
  EXPECT_TRUE(rows.contiguous());  // a dimension of size 1 has any stride
  const Tensor columns = t_.slice(2, 1, 2);
  EXPECT_EQ(first(columns), 1);
  EXPECT_TRUE(columns.has_shape({2, 3, 2}));
  EXPECT_EQ(columns.stride(1), 4);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_EQ(first(columns.slice(0, 1, 1).slice(1, 2, 1)), 12 + 8 + 1);
  EXPECT_EQ(t_.slice(0, 2, 0).elements(), 0);
  EXPECT_EQ(t_.first_rows(1).size(0), 1);
}

TEST_F(TensorTest, HasNoDataInADryRun) {
  Tensor dry = t_;
  dry.data = nullptr;
  EXPECT_FALSE(dry.empty());
  EXPECT_EQ(dry.slice(0, 1, 1).as<float>(), nullptr);
}

TEST_F(TensorTest, EmptyMeansAbsent) {
  const Tensor none;
  EXPECT_TRUE(none.empty());
  EXPECT_FALSE(none);
  EXPECT_EQ(none.elements(), 0);
  EXPECT_EQ(none.describe(), "no tensor");
  EXPECT_TRUE(t_.slice(0, 0, 0));  // no rows, but a tensor
}

TEST_F(TensorTest, WrongUsesAreInternalErrors) {
  EXPECT_DEATH(t_.slice(0, 1, 2), "internal error");
  EXPECT_DEATH(t_.slice(3, 0, 0), "internal error");
  EXPECT_DEATH(t_.slice(0, -1, 1), "internal error");
  EXPECT_DEATH(t_.as<int32_t>(), "internal error");
  EXPECT_DEATH(Tensor::dense(nullptr, cpu_device(), ElementType::f32, {1, 2, 3, 4, 5}), "internal error");
}

TEST(ElementTypes, AreWhatTheyHold) {
  EXPECT_TRUE(holds<float>(ElementType::f32));
  EXPECT_TRUE(holds<uint16_t>(ElementType::bf16));
  EXPECT_TRUE(holds<std::byte>(ElementType::i64));
  EXPECT_FALSE(holds<float>(ElementType::i32));
  EXPECT_FALSE(holds<int32_t>(ElementType::i64));
  EXPECT_EQ(element_type<const int64_t>(), ElementType::i64);
  EXPECT_EQ(element_type<float>(), ElementType::f32);
  EXPECT_EQ(element_type<std::byte>(), ElementType::u8);
  EXPECT_EQ(element_of(DType::bf16), ElementType::bf16);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    EXPECT_EQ(size_of(element_of(dtype)), size_of(dtype));
    EXPECT_EQ(to_string(element_of(dtype)), to_string(dtype));
  }
}

TEST(HostTensor, ViewsAnArray) {
  const std::vector<int32_t> ids = {3, 1, 4};
  const Tensor t = host_tensor(std::span(ids));
  EXPECT_EQ(t.as<int32_t>(), ids.data());
  EXPECT_TRUE(t.has_shape({3}));
  EXPECT_EQ(t.device, &cpu_device());
  std::vector<float> values(6);
  EXPECT_TRUE(host_tensor(values.data(), 2, 3).has_shape({2, 3}));
}

TEST(Copy, MovesTheElements) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<int64_t> from = {1, 2, 3, 4};
  std::vector<int64_t> to(4);
  ASSERT_TRUE(copy(host_tensor(std::span(from)), host_tensor(std::span(to)), stream).ok());
  EXPECT_EQ(to, from);
  EXPECT_DEATH((void)copy(host_tensor(std::span(from)).first_rows(3), host_tensor(std::span(to)), stream),
               "internal error");
}

}  // namespace
}  // namespace fovea
