#pragma once
// Conversion of an element of the KV cache to fp32, on the CPU and on a GPU.
#include <cstdint>

#include "base/float16.h"
#include "base/float8.h"
#include "base/host_device.h"
#include "fovea/dtype.h"

namespace fovea {

/// Element `at`, without any scale. `dtype`: one of the cache's types.
FOVEA_HOST_DEVICE inline float stored_value(const void* data, int64_t at, KvCacheDType dtype) {
  switch (dtype) {
    case KvCacheDType::float32: return static_cast<const float*>(data)[at];
    case KvCacheDType::float16: return fp16_to_float(static_cast<const uint16_t*>(data)[at]);
    case KvCacheDType::bfloat16: return bf16_to_float(static_cast<const uint16_t*>(data)[at]);
    case KvCacheDType::fp8_e4m3: return e4m3_to_float(static_cast<const uint8_t*>(data)[at]);
    case KvCacheDType::fp8_e5m2: return e5m2_to_float(static_cast<const uint8_t*>(data)[at]);
    default: return static_cast<float>(static_cast<const int8_t*>(data)[at]);
  }
}

}  // namespace fovea
