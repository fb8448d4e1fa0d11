#include "backends/cuda/kernel_names.h"

#include <string>

#include "kernels/cuda/sm90/prefill_policy.h"

namespace fovea::cuda {
namespace {

std::string name_of(sm80::QueryType q) {
  switch (q) {
    case sm80::QueryType::f16: return "fp16";
    case sm80::QueryType::bf16: return "bf16";
    case sm80::QueryType::f32: return "fp32";
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

std::string kind_of(const KernelChoice& choice) {
  const sm80::KernelInfo& k = choice.kernel;
  switch (k.kind) {
    // Those of sm80 that merge themselves are for few sequences.
    case sm80::KernelKind::decode: return choice.family == Family::sm80 && k.merges ? "decode few" : "decode";
    case sm80::KernelKind::extend: return "prefill";
    case sm80::KernelKind::extend_small: return "prefill small";
  }
  return "?";
}

std::string variant_of(const KernelChoice& choice, uint8_t variant) {
  if (choice.family != Family::sm90 || choice.kernel.kind == sm80::KernelKind::decode) return "";
  const auto way = static_cast<sm90::PrefillWay>(variant);
  return std::string(sm90::by_boxes(way) ? " tma" : " cp.async") + (sm90::is_capped(way) ? " softcap" : "");
}

}  // namespace

std::vector<KernelName> names_of(const KernelChoice& choice, const LaunchRecord& record) {
  if (!record.attention) return {};
  const sm80::KernelInfo& k = choice.kernel;
  const std::string family(to_string(choice.family));
  std::string instance = kind_of(choice) + " " + name_of(k.q);
  // sm80's prefill of 8-bit keys is one kernel for all of them, and portable ones are compiled for one type
  // of products, whatever is loaded.
  const bool extend8 =
      choice.family == Family::sm80 && k.kind != sm80::KernelKind::decode && k.kv != KvType::same;
  instance += extend8 ? " kv=8-bit" : name_of(k.kv);
  instance += " D=" + std::to_string(k.head_dim);
  if (k.v_head_dim != k.head_dim) instance += "/" + std::to_string(k.v_head_dim);
  // The other families have one kernel for all masks.
  if (choice.family == Family::sm80 && k.general) instance += " masks";
  instance += variant_of(choice, record.variant);
  std::vector<KernelName> names = {{family, instance, k.split_keys, choice.max_split_tokens}};
  if (record.merge) names.push_back({family, "merge " + name_of(k.q), k.split_keys, choice.max_split_tokens});
  return names;
}

}  // namespace fovea::cuda
