#include "backends/cuda/kernel_names.h"

#include <algorithm>
#include <set>
#include <string>

#include "attention/batch_check.h"
#include "backends/cuda/device_kernel.h"

#include "fovea/attention.h"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/sm90/x_packed.h"

namespace fovea::cuda {
namespace {

std::string name_of(QueryType q) {
  switch (q) {
    case QueryType::f16: return "fp16";
    case QueryType::bf16: return "bf16";
    case QueryType::f32: return "fp32";
  }
  return "?";
}

std::string name_of(KvType kv) {
  switch (kv) {
    case KvType::same: return "";
    case KvType::e4m3: return " kv=e4m3";
    case KvType::e5m2: return " kv=e5m2";
    case KvType::int8: return " kv=int8";
    case KvType::f16: return " kv=fp16";
    case KvType::bf16: return " kv=bf16";
    case KvType::f32: return " kv=fp32";
  }
  return "?";
}

std::string cache_of(const KernelChoice& choice) {
  const bool lists = choice.family == Family::mla_sparse_sm80 || choice.family == Family::mla_sparse_sm90;
  const bool records = lists && choice.kernel.kv == KvType::e4m3;
  return records ? " kv=fp8_ds_mla" : name_of(choice.kernel.kv);
}

std::string kind_of(const KernelChoice& choice) {
  const KernelInfo& k = choice.kernel;
  switch (k.kind) {
    // sm80 kernels that combine their own partial results are for few sequences.
    case KernelKind::decode:
      return choice.family == Family::sm80 && k.fused_combine ? "decode few" : "decode";
    case KernelKind::extend: return "prefill";
    case KernelKind::extend_small: return "prefill small";
  }
  return "?";
}

std::string variant_of(const KernelChoice& choice, uint8_t variant) {
  if (choice.family != Family::sm90) return "";
  if (choice.kernel.kind == KernelKind::decode)
    return variant == sm90::kPackedDecodeVariant ? " x-packed" : "";
  const sm90::PrefillVariant v = sm90::kPrefillVariants[variant];
  // 8-bit caches have one load mode, as they are widened first.
  const char* const load = choice.kernel.kv != KvType::same          ? ""
                           : v.load_mode == sm90::LoadMode::cp_async ? " cp.async"
                                                                     : " tma";
  return std::string(load) + (v.softcap ? " softcap" : "");
}

}  // namespace

std::vector<KernelName> names_of(const KernelChoice& choice, const LaunchRecord& record) {
  if (!record.attention) return {};
  const KernelInfo& k = choice.kernel;
  const std::string family(to_string(choice.family));
  std::string instance = kind_of(choice) + " " + name_of(k.q);
  // One prefill kernel of sm80 serves all 8-bit key types, and one of sm90 both types of fp8; portable
  // kernels are compiled for one product type, independent of the stored type.
  const bool extend8 = k.kind != KernelKind::decode && k.kv != KvType::same;
  if (extend8 && choice.family == Family::sm80)
    instance += " kv=8-bit";
  else if (extend8 && choice.family == Family::sm90 && k.kv == KvType::e4m3)
    instance += " kv=fp8";
  else
    instance += cache_of(choice);
  instance += " D=" + std::to_string(k.head_dim);
  if (k.v_head_dim != k.head_dim) instance += "/" + std::to_string(k.v_head_dim);
  // The other families have one kernel for all masks.
  if (choice.family == Family::sm80 && k.general) instance += " masks";
  instance += variant_of(choice, record.variant);
  std::vector<KernelName> names = {{family, instance, k.split_keys, choice.max_split_tokens}};
  if (record.combine)
    names.push_back({family, "merge " + name_of(k.q), k.split_keys, choice.max_split_tokens});
  return names;
}

namespace {

struct HeadSizes {
  int qk, v;
};
/// Head sizes that kernels are compiled for, and one that uses a wider kernel.
constexpr HeadSizes kHeadSizes[] = {{8, 8},     {64, 64},   {72, 72},   {80, 80},   {88, 88},   {96, 96},
                                    {128, 128}, {192, 128}, {192, 192}, {136, 136}, {144, 144}, {256, 256},
                                    {264, 264}, {512, 512}, {576, 512}, {288, 256}};
constexpr AttentionLimits kFew = {1, 64, 4096, 4096}, kMany = {256, 8192, 1 << 20, 1 << 15};

/// Layers that use different kernels, all within the row's claims.
std::vector<AttentionSpec> layers_of(const BackendInfo& info) {
  std::vector<AttentionSpec> out;
  const bool mla = info.capability.features.has(Feature::mla);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (int kv = 0; kv < static_cast<int>(KvCacheDType::count_); ++kv)
      for (const HeadSizes sizes : kHeadSizes)
        for (const int group : {1, 2, 3, 4, 8})
          for (const bool window : {false, true})
            for (const bool softcap : {false, true}) {
              AttentionSpec spec;
              spec.use_mla = mla;
              spec.use_sparse = info.capability.features.has(Feature::sparse);
              spec.sparse_topk = spec.use_sparse ? 2048 : 0;
              spec.num_kv_heads = mla ? 1 : 2;
              spec.num_heads = spec.num_kv_heads * group;
              spec.head_dim = sizes.qk;
              spec.v_head_dim = sizes.v;
              spec.scale = 0.1f;
              spec.dtype = dtype;
              spec.kv_dtype = static_cast<KvCacheDType>(kv);
              if (window) spec.mask.window_left = 16;
              if (softcap) spec.softcap = 20.0f;
              if (check_supported(info, spec).ok()) out.push_back(spec);
            }
  return out;
}

}  // namespace

std::vector<KernelName> reachable_kernels(const BackendInfo& info, FamilyOf families,
                                          const DeviceInfo& device) {
  std::set<KernelName> names;
  for (const AttentionSpec& spec : layers_of(info))
    for (const AttentionLimits& limits : {kFew, kMany})
      for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
        const auto choice = kernel_on_device(info, families, spec, use, limits, device);
        if (!choice.ok() ||
            std::ranges::find(info.families, to_string(choice->family)) == info.families.end())
          continue;
        // The sm90 prefill kernels of 16-bit caches are compiled for two load modes; all with and without a
        // soft cap.
        const bool variants = choice->family == Family::sm90 && choice->kernel.kind != KernelKind::decode;
        const bool widened = choice->kernel.kv != KvType::same;
        if (choice->family == Family::sm90 && !variants && sm90::check_x_packed(choice->kernel, 16).ok())
          for (const KernelName& name : names_of(*choice, {true, false, sm90::kPackedDecodeVariant}))
            names.insert({name.family, name.instance});
        for (const sm90::PrefillVariant& v : sm90::kPrefillVariants) {
          const bool compiled = !widened || v.load_mode == sm90::LoadMode::tma;
          if (variants ? !compiled || v.softcap != (spec.softcap > 0.0f) : v.index() != 0) continue;
          for (const KernelName& name : names_of(*choice, {true, false, v.index()}))
            names.insert({name.family, name.instance});
        }
      }
  return {names.begin(), names.end()};
}

}  // namespace fovea::cuda
