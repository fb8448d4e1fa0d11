// vLLM's refusals in vLLM's order and words, then those of features that vLLM has no words for.
#include <algorithm>
#include <cmath>
#include <string>

#include "fovea/attention.h"

namespace fovea {
namespace {

std::string str(int v) {
  return std::to_string(v);
}

void append(std::string& list, std::string_view name) {
  if (!list.empty()) list += '|';
  list += name;
}

std::string list_dtypes(const Capability& c) {
  std::string out;
  for (DType d : {DType::f32, DType::f16, DType::bf16})
    if (c.dtypes.has(d)) append(out, to_string(d));
  return out;
}

std::string list_kv_dtypes(const Capability& c) {
  std::string out;
  for (unsigned i = 0; i < static_cast<unsigned>(KvCacheDType::count_); ++i)
    if (const auto d = static_cast<KvCacheDType>(i); c.kv_dtypes.has(d)) append(out, to_string(d));
  return out;
}

std::string capability_text(int cc) {
  return str(cc / 10) + "." + str(cc % 10);
}

constexpr std::string_view kOtherBackend = "--attention-backend auto: picks one that can";

class Validation {
 public:
  Validation(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device, Phase phase)
      : backend_(backend), c_(backend.capability), spec_(spec), device_(device), phase_(phase) {}

  std::vector<Reason> run() {
    if (!backend_.absent.empty()) {
      check_device();
      add("not in this build: " + std::string(backend_.absent), std::string(kOtherBackend));
      return std::move(reasons_);
    }
    check_sizes();
    need(spec_.mask.spans, Feature::spans, "partial multimodal token full attention not supported");
    need_kind(spec_.use_mla, Feature::mla, "MLA");
    need(spec_.has_sink, Feature::sink, "attention sinks not supported");
    need_kind(spec_.use_sparse, Feature::sparse, "sparse");
    check_device();
    if (!c_.types.has(spec_.type))
      add("attention type " + std::string(to_string(spec_.type)) + " not supported",
          std::string(kOtherBackend));
    const bool right = spec_.mask.window_right >= 0 && !spec_.mask.causal;
    need(spec_.mask.window_left >= 0 || right, Feature::window, "sliding window not supported");
    need(spec_.type == AttentionType::decoder && !spec_.mask.causal && !spec_.mask.packed,
         Feature::non_causal, "non-causal attention not supported");
    check_beyond_vllm();
    if (backend_.supports_combination != nullptr)
      if (auto reason = backend_.supports_combination(spec_, device_)) reasons_.push_back(*std::move(reason));
    return std::move(reasons_);
  }

 private:
  void add(std::string text, std::string fix) { reasons_.push_back({std::move(text), std::move(fix)}); }

  void need(bool wanted, Feature feature, std::string_view text) {
    if (wanted && !c_.features.has(feature)) add(std::string(text), std::string(kOtherBackend));
  }

  void check_sizes() {
    if (!c_.head_dims.has(spec_.head_dim) || !c_.v_head_dims.has(spec_.v_head_dim))
      add("head_size not supported", "the model has " + str(spec_.head_dim) + " (QK) and " +
                                         str(spec_.v_head_dim) + " (V); " + std::string(backend_.name) +
                                         " takes " + c_.head_dims.describe() + " and " +
                                         c_.v_head_dims.describe() + "; " + std::string(kOtherBackend));
    if (!c_.dtypes.has(spec_.dtype)) add("dtype not supported", "--dtype " + list_dtypes(c_));
    const bool model_dtype = spec_.kv_dtype == KvCacheDType::auto_;
    if (!c_.kv_dtypes.has(spec_.kv_dtype) &&
        !(model_dtype && c_.kv_dtypes.has(resolve(spec_.kv_dtype, spec_.dtype))))
      add("kv_cache_dtype not supported", "--kv-cache-dtype " + list_kv_dtypes(c_));
    if (spec_.page_size != 0 && !c_.page_sizes.has(spec_.page_size))
      add("block_size not supported", "--page-size " + str(c_.page_sizes.nearest(spec_.page_size)) +
                                          ": it takes " + c_.page_sizes.describe());
  }

  /// A backend is for MLA models or for the others, as in vLLM; so with sparse ones.
  void need_kind(bool wanted, Feature feature, std::string_view kind) {
    if (wanted == c_.features.has(feature)) return;
    add((wanted ? "" : "non-") + std::string(kind) + " not supported", std::string(kOtherBackend));
  }

  void check_device() {
    const int cc = device_.compute_capability;
    const bool in_range = cc >= c_.min_compute_capability &&
                          (c_.max_compute_capability == 0 || cc <= c_.max_compute_capability);
    if (device_.kind == c_.device && in_range) return;
    std::string needs = "it needs a " + std::string(to_string(c_.device)) + " device";
    if (c_.min_compute_capability > 0)
      needs += " of compute capability " + capability_text(c_.min_compute_capability);
    if (c_.max_compute_capability > 0)
      needs += " to " + capability_text(c_.max_compute_capability);
    else if (c_.min_compute_capability > 0)
      needs += " or later";
    needs.append(", this one is ").append(to_string(device_.kind));
    if (cc > 0) needs.append(" ").append(capability_text(cc));
    add("compute capability not supported", needs);
  }

  void check_beyond_vllm() {
    need(spec_.mask.chunk > 0, Feature::chunk, "chunked-local attention not supported");
    need(spec_.mask.sink_tokens > 0, Feature::sink_tokens, "StreamingLLM sink tokens not supported");
    need(spec_.softcap > 0, Feature::softcap, "logit soft cap not supported");
    need(spec_.has_alibi, Feature::alibi, "ALiBi not supported");
    need(spec_.mask.packed, Feature::packed_mask, "packed custom mask not supported");
    need(spec_.mask.tree, Feature::tree_mask, "tree mask not supported");
    need(spec_.kv_x_packed, Feature::kv_x_packed, "x-packed KV cache layout not supported");
    if (const int x = x_of(resolve(spec_.kv_dtype, spec_.dtype));
        spec_.kv_x_packed && x > 0 && spec_.head_dim % x != 0)
      add("x-packed KV cache layout needs a head_size that is a multiple of " + str(x),
          "--kv-layout hnd: the model's head size is " + str(spec_.head_dim));
    need(spec_.fp64_accumulate, Feature::fp64_accumulate, "fp64 accumulation not supported");
    if (!c_.phases.has(phase_)) {
      const std::string phase(to_string(phase_));
      add(phase + " not supported", "--" + phase + "-attention-backend auto: picks one that can");
    }
    // Libraries disagree on whether the cap comes before or after the bias, and no model has both.
    if (spec_.has_alibi && spec_.softcap > 0)
      add("ALiBi with a logit soft cap not supported", "drop one of the two; no known model has both");
  }

  const BackendInfo& backend_;
  const Capability& c_;
  const AttentionSpec& spec_;
  const DeviceInfo& device_;
  Phase phase_;
  std::vector<Reason> reasons_;
};

}  // namespace

std::vector<Reason> validate(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device,
                             Phase phase) {
  return Validation(backend, spec, device, phase).run();
}

}  // namespace fovea
