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

/// Accepts the long names and the common short ones (fp32, f32, half, fp16, f16, bf16), in any letter case.
std::optional<DType> parse_dtype(std::string_view name);

/// The names of --kv-cache-dtype (vLLM's), including those that no backend of this build stores, so that a
/// refusal can name them.
enum class KvCacheDType : uint8_t {
  auto_,  // the model's dtype
  float32,
  float16,
  bfloat16,
  fp8_e4m3,  // e4m3fn, one scale for K and one for V of a layer
  fp8_e5m2,  // likewise
  fp8_inc,
  fp8_ds_mla,  // records of sparse MLA: e4m3 latent with a scale for 128 elements, bf16 RoPE part (656 bytes)
  nvfp4_ds_mla,
  int8_per_token_head,  // symmetric int8, a scale for each (token, kv head) of K and of V
  fp8_per_token_head,
  int4_per_token_head,
  int2_per_token_head,
  nvfp4,
  nvfp4_4over6,
  turboquant_k8v4,
  turboquant_4bit_nc,
  turboquant_k3v4_nc,
  turboquant_3bit_nc,
  count_,
};

std::string_view to_string(KvCacheDType dtype);
/// Names in any letter case; "fp8" is an alias of fp8_e4m3.
std::optional<KvCacheDType> parse_kv_cache_dtype(std::string_view name);

/// `dtype`, with auto resolved for a model of dtype `model`.
constexpr KvCacheDType resolve(KvCacheDType dtype, DType model) {
  if (dtype != KvCacheDType::auto_) return dtype;
  switch (model) {
    case DType::f32: return KvCacheDType::float32;
    case DType::f16: return KvCacheDType::float16;
    case DType::bf16: return KvCacheDType::bfloat16;
  }
  return dtype;
}

/// Bytes of one stored element; 0 = a type that this library does not store, or auto. Elements of fp8_ds_mla
/// are bytes: its strides count them, and a record has more of them than dimensions (656 for 512 + 64).
constexpr size_t size_of(KvCacheDType dtype) {
  switch (dtype) {
    case KvCacheDType::float32: return 4;
    case KvCacheDType::float16:
    case KvCacheDType::bfloat16: return 2;
    case KvCacheDType::fp8_e4m3:
    case KvCacheDType::fp8_e5m2:
    case KvCacheDType::fp8_ds_mla:
    case KvCacheDType::int8_per_token_head: return 1;
    default: return 0;
  }
}

/// Stored as fp8: quantised with one scale per layer for K and one for V.
constexpr bool is_fp8(KvCacheDType dtype) {
  return dtype == KvCacheDType::fp8_e4m3 || dtype == KvCacheDType::fp8_e5m2;
}

/// Stored with an fp32 scale for each (token, kv head).
constexpr bool has_token_scales(KvCacheDType dtype) {
  return dtype == KvCacheDType::int8_per_token_head;
}

/// Memory layout of pages; x = 16 / bytes of an element.
enum class KvLayout : uint8_t {
  auto_,     // hnd
  nhd,       // K [pages, page size, Hkv, D], V [pages, page size, Hkv, Dv]
  hnd,       // K [pages, Hkv, page size, D], V [pages, Hkv, page size, Dv]
  x_packed,  // vLLM paged attention: K [pages, Hkv, D / x, page size, x], V [pages, Hkv, Dv, page size]
  shuffle,   // AITER: K as in x_packed, V [pages, Hkv, page size / x, Dv, x]
  count_,
};

std::string_view to_string(KvLayout layout);
/// "auto", "nhd", "hnd", "x_packed", "shuffle", in any letter case.
std::optional<KvLayout> parse_kv_layout(std::string_view name);

/// Consecutive dimensions of K that are contiguous in x_packed and shuffle; 0 for types that are not stored.
constexpr int x_of(KvCacheDType dtype) {
  return size_of(dtype) == 0 ? 0 : 16 / static_cast<int>(size_of(dtype));
}

}  // namespace fovea
