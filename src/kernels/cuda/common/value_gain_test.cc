#include "kernels/cuda/common/value_gain.h"

#include <gtest/gtest.h>

namespace fovea::cuda {
namespace {

TEST(ValueGain, OnlyForScalesPerToken) {
  const float scale = 1.0f;
  KvParams kv;
  EXPECT_EQ(value_gain(kv, KvType::e5m2), 1.0f) << "no scales";
  kv.v_scales = &scale;
  kv.scale_head_stride = 1;
  EXPECT_EQ(value_gain(kv, KvType::e5m2), 1.0f) << "scales per head";
  kv.scale_slot_stride = 8;
  // The next power of two above the largest element: 448, 57344, 127.
  EXPECT_EQ(value_gain(kv, KvType::e4m3), 512.0f);
  EXPECT_EQ(value_gain(kv, KvType::e5m2), 65536.0f);
  EXPECT_EQ(value_gain(kv, KvType::int8), 128.0f);
  kv.scale_slot_stride = 0;
  kv.scale_page_stride = 8;  // pages of one token
  EXPECT_EQ(value_gain(kv, KvType::int8), 128.0f);
}

}  // namespace
}  // namespace fovea::cuda
