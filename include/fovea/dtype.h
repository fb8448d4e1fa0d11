#pragma once
// Element types of tensors and of the KV cache.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fovea {

enum class DType : uint8_t { f32, f16, bf16 };

/// Bytes of one element.
constexpr size_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
}

/// "float32", "float16" or "bfloat16": the names that config.json and the flags use.
constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
  }
  return "?";
}

/// Accepts the long names and the common short ones (fp32, f32, half, fp16, f16, bf16).
std::optional<DType> parse_dtype(std::string_view name);

/// The names of --kv-cache-dtype (vLLM's). Those that no backend of this build stores are still values here,
/// so that a refusal can name them.
enum class KvCacheDType : uint8_t {
  auto_,  // the model's dtype
  float32,
  float16,
  bfloat16,
  fp8_e4m3,
  fp8_e5m2,
  fp8_ds_mla,
  nvfp4_ds_mla,
  int8_per_token_head,
  fp8_per_token_head,
  int4_per_token_head,
  int2_per_token_head,
  nvfp4,
  turboquant_k8v4,
  turboquant_4bit_nc,
  turboquant_k3v4_nc,
  turboquant_3bit_nc,
  count_,
};

std::string_view to_string(KvCacheDType dtype);
/// Exact names; "fp8" is an alias of fp8_e4m3.
std::optional<KvCacheDType> parse_kv_cache_dtype(std::string_view name);

}  // namespace fovea
