#include "fovea/dtype.h"

#include <iterator>
#include <utility>
#include <vector>

#include "base/dtype_names.h"
#include "base/edit_distance.h"
#include "base/same_name.h"

namespace fovea {
namespace {
constexpr std::string_view kKvNames[] = {"auto",
                                         "float32",
                                         "float16",
                                         "bfloat16",
                                         "fp8_e4m3",
                                         "fp8_e5m2",
                                         "fp8_inc",
                                         "fp8_ds_mla",
                                         "nvfp4_ds_mla",
                                         "int8_per_token_head",
                                         "fp8_per_token_head",
                                         "int4_per_token_head",
                                         "int2_per_token_head",
                                         "nvfp4",
                                         "nvfp4_4over6",
                                         "turboquant_k8v4",
                                         "turboquant_4bit_nc",
                                         "turboquant_k3v4_nc",
                                         "turboquant_3bit_nc"};
static_assert(std::size(kKvNames) == static_cast<size_t>(KvCacheDType::count_));
constexpr std::string_view kLayoutNames[] = {"auto", "nhd", "hnd", "x_packed", "shuffle"};
static_assert(std::size(kLayoutNames) == static_cast<size_t>(KvLayout::count_));
}  // namespace

std::optional<DType> parse_dtype(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"float32", DType::f32},   {"fp32", DType::f32}, {"f32", DType::f32}, {"float", DType::f32},
      {"float16", DType::f16},   {"fp16", DType::f16}, {"f16", DType::f16}, {"half", DType::f16},
      {"bfloat16", DType::bf16}, {"bf16", DType::bf16}};
  for (const auto& [text, dtype] : kNames)
    if (same_name(name, text)) return dtype;
  return std::nullopt;
}

std::string_view to_string(KvCacheDType dtype) {
  return kKvNames[static_cast<size_t>(dtype)];
}

std::optional<KvCacheDType> parse_kv_cache_dtype(std::string_view name) {
  if (same_name(name, "fp8")) return KvCacheDType::fp8_e4m3;
  for (size_t i = 0; i < std::size(kKvNames); ++i)
    if (same_name(name, kKvNames[i])) return static_cast<KvCacheDType>(i);
  return std::nullopt;
}

std::string stored_kv_cache_dtypes() {
  std::string names = "auto, fp8";
  for (size_t i = 0; i < std::size(kKvNames); ++i)
    if (size_of(static_cast<KvCacheDType>(i)) > 0) names.append(", ").append(kKvNames[i]);
  return names;
}

std::string unknown_kv_cache_dtype(std::string_view name) {
  std::vector<std::string_view> candidates(std::begin(kKvNames), std::end(kKvNames));
  candidates.push_back("fp8");
  std::string text = "unknown; allowed are " + stored_kv_cache_dtypes();
  if (const std::string_view near = nearest_name(name, candidates); !near.empty())
    text.append("; did you mean ").append(near).append("?");
  return text;
}

std::string_view to_string(KvLayout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

std::optional<KvLayout> parse_kv_layout(std::string_view name) {
  for (size_t i = 0; i < std::size(kLayoutNames); ++i)
    if (same_name(name, kLayoutNames[i])) return static_cast<KvLayout>(i);
  return std::nullopt;
}

}  // namespace fovea
