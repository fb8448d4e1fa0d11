#include "engine/model_runner.h"

#include <gtest/gtest.h>

#include "engine/check_device.h"

namespace fovea {
namespace {

AttentionSpec of_type(AttentionType type) {
  AttentionSpec spec;
  spec.type = type;
  return spec;
}

TEST(ModelRunnerResolve, QueriesHaveTheActivationTypeOfTheDevice) {
  for (const DType activations : {DType::f32, DType::bf16, DType::f16}) {
    const AttentionSpec spec = ModelRunner::resolve(of_type(AttentionType::decoder), activations,
                                                    KvCacheDType::fp8_e4m3, KvLayout::hnd, 16);
    EXPECT_EQ(spec.dtype, activations);
    EXPECT_EQ(spec.kv_dtype, KvCacheDType::fp8_e4m3);
    EXPECT_EQ(spec.page_size, 16);
  }
}

TEST(ModelRunnerResolve, AnEncodersOwnKeysAreTheStepsRows) {
  const std::pair<DType, KvCacheDType> types[] = {{DType::f32, KvCacheDType::float32},
                                                  {DType::bf16, KvCacheDType::bfloat16}};
  for (const auto& [activations, kv] : types) {
    const AttentionSpec spec = ModelRunner::resolve(of_type(AttentionType::encoder), activations,
                                                    KvCacheDType::fp8_e4m3, KvLayout::hnd, 16);
    EXPECT_EQ(spec.dtype, activations);
    EXPECT_EQ(spec.kv_dtype, kv);
    EXPECT_EQ(spec.page_size, 1);
  }
}

TEST(ActivationDType, IsFloat32OnACpuAndTheWeightsTypeElsewhere) {
  EXPECT_EQ(activation_dtype({}, DType::bf16), DType::f32);
  EXPECT_EQ(activation_dtype(*parse_device("sm90"), DType::bf16), DType::bf16);
  EXPECT_EQ(activation_dtype(*parse_device("sm90"), DType::f16), DType::f16);
}

TEST(CheckDevice, NamesTheDeviceAndWhatToGive) {
  EXPECT_TRUE(check_device({}).ok());
  EXPECT_TRUE(check_device(*parse_device("sm90")).ok());
  const Status status = check_device(*parse_device("npu"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "the device is ascend; models run on the CPU and on NVIDIA GPUs: give --device cpu or cuda");
}

}  // namespace
}  // namespace fovea
