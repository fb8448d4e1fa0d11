// vLLM's refusals in vLLM's order and wording, then refusals of features that vLLM has no messages for.
#include "attention/validate.h"

#include <algorithm>
#include <string>

#include "attention/kv_view.h"
#include "attention/resolve_name.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

std::string str(int v) {
  return std::to_string(v);
}

template <class List, class Has>
std::string names_of(const List& all, Has has) {
  std::string out;
  for (auto item : all)
    if (has(item)) out.append(out.empty() ? "" : ", ").append(to_string(item));
  return out.empty() ? "none" : out;
}

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};

/// The nearest to `wanted`: the other 16-bit one before float32.
std::optional<DType> nearest_dtype(const Capability& c) {
  for (DType d : {DType::bf16, DType::f16, DType::f32})
    if (c.dtypes.has(d)) return d;
  return std::nullopt;
}

/// The nearest to `wanted`: the other fp8 one, then the model's dtype.
std::optional<KvCacheDType> nearest_kv_dtype(const Capability& c, const AttentionSpec& spec) {
  using enum KvCacheDType;
  if (is_fp8(spec.kv_dtype) || has_token_scales(spec.kv_dtype))
    for (KvCacheDType d : {fp8_e4m3, fp8_e5m2})
      if (c.kv_dtypes.has(d)) return d;
  for (KvCacheDType d : {auto_, resolve(auto_, spec.dtype)})
    if (c.kv_dtypes.has(d)) return d;
  for (unsigned i = 0; i < static_cast<unsigned>(count_); ++i)
    if (const auto d = static_cast<KvCacheDType>(i); c.kv_dtypes.has(d)) return d;
  return std::nullopt;
}

/// Head sizes of QK and V in one text; printed once where they are equal.
std::string in_both(const std::string& qk, const std::string& v) {
  return qk == v ? qk : qk + " (QK) and " + v + " (V)";
}

std::string capability_text(int cc) {
  return str(cc / 10) + "." + str(cc % 10);
}

constexpr std::string_view kNotSupported = " not supported", kUnsaid = ": not documented";
constexpr std::string_view kOtherBackend = "--attention-backend auto: picks one that can";

class Validation {
 public:
  Validation(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device, Phase phase,
             UseCase use_case)
      : backend_(backend),
        c_(backend.capability),
        spec_(spec),
        device_(device),
        phase_(phase),
        use_case_(use_case) {}

  std::vector<Finding> run() {
    check_linear();
    if (spec_.linear == LinearAttention::none) {
      check_as_vllm();
      check_beyond_vllm();
    } else if (backend_.linear == spec_.linear) {
      check_dtype();
      check_device();
      check_phase();
    }
    ++rank_;
    if (backend_.supports_combination != nullptr) add(backend_.supports_combination(spec_, device_));
    ++rank_;
    // check_kernels() is called only for what the columns allow on this device.
    if (backend_.check_kernels != nullptr && findings_.empty())
      add(backend_.check_kernels(backend_, spec_, device_, phase_));
    ++rank_;
    if (!backend_.absent.empty() && runs_on(c_, device_))
      add("not in this build: " + std::string(backend_.absent), std::string(kOtherBackend), Remedy::kernels);
    return std::move(findings_);
  }

 private:
  void add(std::string text, std::string fix, Remedy remedy = Remedy::flag) {
    findings_.push_back({rank_, remedy, {std::move(text), std::move(fix)}});
  }

  void add(std::optional<Reason> reason) {
    if (!reason) return;
    const bool by_flag = !reason->fix.empty();
    add(std::move(reason->text), by_flag ? std::move(reason->fix) : std::string(kOtherBackend),
        by_flag ? Remedy::flag : Remedy::other_backend);
  }

  /// One check: `fix` is the flag that removes the requirement; empty = only another backend helps.
  void need(bool wanted, Feature feature, std::string_view text, std::string_view fix = {}) {
    ++rank_;
    if (!wanted || c_.features.has(feature)) return;
    if (c_.unstated.has(feature)) return add_unsaid(text);
    const Remedy remedy = fix.empty() ? Remedy::other_backend : Remedy::flag;
    add(std::string(text), std::string(fix.empty() ? kOtherBackend : fix), remedy);
  }

  /// `refusal` is the message for a document that rules the feature out.
  void add_unsaid(std::string_view refusal) {
    if (backend_.absent.empty()) return;
    add(std::string(refusal.substr(0, refusal.find(kNotSupported))) + std::string(kUnsaid),
        std::string(kOtherBackend), Remedy::unsaid);
  }

  bool asked(Feature feature) const { return spec_.needs.has(feature); }

  void check_as_vllm() {
    check_sizes();
    need(spec_.mask.spans, Feature::spans, "partial multimodal token full attention not supported");
    need_kind(spec_.use_mla, Feature::mla, "MLA");
    need(spec_.has_sink, Feature::sink, "attention sinks not supported");
    need_kind(spec_.use_sparse, Feature::sparse, "sparse");
    need(asked(Feature::per_head_scales), Feature::per_head_scales, "per-head quant scales not supported");
    check_device();
    ++rank_;
    if (!c_.types.has(spec_.type))
      add("attention type " + std::string(to_string(spec_.type)) + " not supported",
          std::string(kOtherBackend), Remedy::other_backend);
    const bool right = spec_.mask.window_right >= 0 && !spec_.mask.causal;
    need(spec_.mask.window_left >= 0 || right, Feature::window, "sliding window not supported");
    const bool non_causal = spec_.type == AttentionType::decoder && !spec_.mask.causal && !spec_.mask.packed;
    need(non_causal, Feature::non_causal, "non-causal attention not supported");
    need(non_causal && spec_.use_mla && asked(Feature::dcp), Feature::non_causal_dcp,
         "non-causal MLA attention with DCP not supported", "--decode-context-parallel-size 1: no DCP");
    check_batch_invariance();
    need(asked(Feature::kv_connector), Feature::kv_connector, "KV connector not supported",
         "run without a KV connector (--kv-transfer-config)");
    need(asked(Feature::pcp), Feature::pcp, "PCP not supported", "--prefill-context-parallel-size 1: no PCP");
    need(asked(Feature::dcp), Feature::dcp, "DCP not supported", "--decode-context-parallel-size 1: no DCP");
    need(asked(Feature::adaptive_verification), Feature::adaptive_verification,
         "device-cpu query lens mismatch not supported, this is needed for adaptive verification",
         "run without adaptive verification");
  }

  void check_sizes() {
    const std::string name(backend_.name);
    ++rank_;
    if (!c_.head_dims.has(spec_.head_dim) || !c_.v_head_dims.has(spec_.v_head_dim))
      add("head_size not supported",
          "the model has " + in_both(str(spec_.head_dim), str(spec_.v_head_dim)) + "; " + name + " takes " +
              in_both(c_.head_dims.describe(), c_.v_head_dims.describe()),
          Remedy::other_backend);
    check_dtype();
    ++rank_;
    if (!takes_kv_dtype()) {
      const auto nearest = nearest_kv_dtype(c_, spec_);
      add("kv_cache_dtype not supported",
          nearest ? "--kv-cache-dtype " + std::string(to_string(*nearest)) + ": it takes " + kv_dtypes()
                  : std::string(kOtherBackend),
          nearest ? Remedy::flag : Remedy::other_backend);
    }
    ++rank_;
    if (spec_.page_size != 0 && !c_.page_sizes.has(spec_.page_size)) {
      const bool some = !c_.page_sizes.empty();
      add("block_size not supported",
          some ? "--page-size " + str(c_.page_sizes.nearest(spec_.page_size)) + ": it takes " +
                     c_.page_sizes.describe()
               : std::string(kOtherBackend),
          some ? Remedy::flag : Remedy::other_backend);
    }
  }

  void check_dtype() {
    ++rank_;
    if (c_.dtypes.has(spec_.dtype)) return;
    const auto nearest = nearest_dtype(c_);
    add("dtype not supported",
        nearest ? "--dtype " + std::string(to_string(*nearest)) + ": it takes " +
                      names_of(kDTypes, [&](DType d) { return c_.dtypes.has(d); })
                : std::string(kOtherBackend),
        nearest ? Remedy::flag : Remedy::other_backend);
  }

  /// A backend serves either layers with softmax or one sort of linear attention. The latter has a state in
  /// place of keys and values, so that columns for heads, pages and masks do not apply.
  void check_linear() {
    ++rank_;
    if (backend_.linear == spec_.linear) return;
    const std::string what = spec_.linear == LinearAttention::none
                                 ? std::string("softmax attention")
                                 : "linear attention (" + std::string(to_string(spec_.linear)) + ")";
    add(what + std::string(kNotSupported), std::string(kOtherBackend), Remedy::other_backend);
  }

  bool takes_kv_dtype() const {
    return c_.kv_dtypes.has(spec_.kv_dtype) ||
           (spec_.kv_dtype == KvCacheDType::auto_ && c_.kv_dtypes.has(resolve(spec_.kv_dtype, spec_.dtype)));
  }

  std::string kv_dtypes() const {
    std::vector<KvCacheDType> all;
    for (unsigned i = 0; i < static_cast<unsigned>(KvCacheDType::count_); ++i)
      all.push_back(static_cast<KvCacheDType>(i));
    return names_of(all, [&](KvCacheDType d) { return c_.kv_dtypes.has(d); });
  }

  /// A backend serves either MLA models or other models, as in vLLM; likewise for sparse attention. Not
  /// checked for MLA prefill backends, which serve nothing else.
  void need_kind(bool wanted, Feature feature, std::string_view kind) {
    ++rank_;
    if (use_case_ == UseCase::mla_prefill || wanted == c_.features.has(feature)) return;
    const std::string text = (wanted ? "" : "non-") + std::string(kind) + std::string(kNotSupported);
    if (!c_.unstated.has(feature))
      add(text, std::string(kOtherBackend), Remedy::other_backend);
    else if (wanted)
      add_unsaid(text);
  }

  void check_device() {
    ++rank_;
    if (!runs_on(c_, device_))
      add("compute capability not supported",
          "it needs " + describe_needed_device(c_) + ", this one is " + describe(device_),
          Remedy::other_device);
  }

  void check_batch_invariance() {
    ++rank_;
    if (!asked(Feature::batch_invariance) || c_.invariance.has(Invariance::batch)) return;
    if (c_.unstated.has(Feature::batch_invariance)) return add_unsaid("batch invariance not supported");
    add("batch invariance not supported",
        "batch_invariant=0 (-ac.batch_invariant, VLLM_BATCH_INVARIANT): results may depend on the batch");
  }

  void check_beyond_vllm() {
    ++rank_;
    if (const int ratio = spec_.num_heads / spec_.num_kv_heads;
        use_case_ == UseCase::paged && !c_.gqa_ratios.has(ratio))
      add("GQA ratio " + str(ratio) + " not supported",
          std::string(backend_.name) + " takes " + c_.gqa_ratios.describe() + " query heads per KV head",
          Remedy::other_backend);
    need(spec_.mask.chunk > 0, Feature::chunk, "chunked-local attention not supported");
    need(spec_.mask.sink_tokens > 0, Feature::sink_tokens, "StreamingLLM sink tokens not supported");
    need(spec_.softcap > 0, Feature::softcap, "logit soft cap not supported");
    need(spec_.has_alibi, Feature::alibi, "ALiBi not supported");
    need(spec_.mask.packed, Feature::packed_mask, "packed custom mask not supported");
    need(asked(Feature::verify), Feature::verify, "speculative verification not supported",
         "run without speculative decoding");
    need(spec_.mask.tree || asked(Feature::tree_mask), Feature::tree_mask, "tree mask not supported",
         spec_.mask.tree ? std::string_view{} : "--speculative-eagle-topk 1: a chain of drafts, no tree");
    check_layout();
    need(asked(Feature::kv_sharing), Feature::kv_sharing, "KV sharing between layers not supported");
    need(asked(Feature::chunked_prefix), Feature::chunked_prefix, "chunked prefix not supported",
         "--disable-chunked-prefix-cache: the whole prefix at once");
    need(asked(Feature::output_quant), Feature::output_quant, "quantised output not supported",
         "run with an output in the model's dtype");
    need(asked(Feature::lse), Feature::lse, "LSE output not supported");
    need(spec_.fp64_accumulate || asked(Feature::fp64_accumulate), Feature::fp64_accumulate,
         "fp64 accumulation not supported");
    check_phase();
    ++rank_;
    // Libraries disagree on whether the soft cap comes before or after the bias, and no model has both.
    if (spec_.has_alibi && spec_.softcap > 0)
      add("ALiBi with a logit soft cap not supported", "drop one of the two; no known model has both");
  }

  void check_phase() {
    ++rank_;
    if (c_.phases.has(phase_)) return;
    const std::string phase(to_string(phase_));
    add(phase + " not supported", "--" + phase + "-attention-backend auto: picks one that can",
        Remedy::other_phase_backend);
  }

  void check_layout() {
    need(spec_.kv_x_packed, Feature::kv_x_packed, "KV cache layout x_packed not supported",
         "--kv-layout hnd: the default");
    need(spec_.kv_shuffle, Feature::kv_shuffle, "KV cache layout shuffle not supported",
         "--kv-layout hnd: the default");
    ++rank_;
    const int x = x_of(resolve(spec_.kv_dtype, spec_.dtype));
    if (x == 0 || !(spec_.kv_x_packed || spec_.kv_shuffle)) return;
    const std::string layout = "KV cache layout " + std::string(to_string(layout_of(spec_)));
    if (spec_.head_dim % x != 0)
      add(layout + " needs a head_size that is a multiple of " + str(x),
          "--kv-layout hnd: the model's head size is " + str(spec_.head_dim));
    if (spec_.kv_shuffle && spec_.page_size % x != 0)
      add(layout + " needs a block_size that is a multiple of " + str(x),
          "--page-size " + str((spec_.page_size + x - 1) / x * x) + ": the nearest above");
  }

  const BackendInfo& backend_;
  const Capability& c_;
  const AttentionSpec& spec_;
  const DeviceInfo& device_;
  Phase phase_;
  UseCase use_case_;
  int rank_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::string describe_needed_device(const Capability& c) {
  std::string text = "a " + std::string(to_string(c.device)) + " device";
  if (c.min_compute_capability > 0)
    text += " of compute capability " + capability_text(c.min_compute_capability);
  if (c.max_compute_capability == c.min_compute_capability) return text;
  if (c.max_compute_capability > 0)
    text += " to " + capability_text(c.max_compute_capability);
  else if (c.min_compute_capability > 0)
    text += " or later";
  return text;
}

std::vector<Finding> find_reasons(const BackendInfo& backend, std::span<const AttentionSpec> specs,
                                  const DeviceInfo& device, Phase phase, UseCase use_case) {
  std::vector<Finding> all;
  for (const AttentionSpec& spec : specs)
    for (Finding& finding : Validation(backend, spec, device, phase, use_case).run())
      if (std::ranges::none_of(all, [&](auto& known) { return known.reason.text == finding.reason.text; }))
        all.push_back(std::move(finding));
  std::ranges::stable_sort(all, {}, &Finding::rank);
  return all;
}

bool only_kernels_missing(const std::vector<Finding>& findings) {
  return findings.size() == 1 && findings.front().remedy == Remedy::kernels;
}

bool kernels_missing_or_unsaid(const std::vector<Finding>& findings) {
  return std::ranges::count(findings, Remedy::kernels, &Finding::remedy) == 1 &&
         std::ranges::all_of(findings, [](const Finding& f) {
           return f.remedy == Remedy::kernels || f.remedy == Remedy::unsaid;
         });
}

const Finding* lasting(const std::vector<Finding>& findings) {
  const auto at = std::ranges::find_if(findings, [](const Finding& f) {
    return f.remedy != Remedy::flag && f.remedy != Remedy::kernels && f.remedy != Remedy::unsaid;
  });
  return at == findings.end() ? nullptr : &*at;
}

std::vector<std::string> unsaid(const std::vector<Finding>& findings) {
  std::vector<std::string> out;
  for (const Finding& f : findings)
    if (f.remedy == Remedy::unsaid) out.push_back(f.reason.text.substr(0, f.reason.text.find(kUnsaid)));
  return out;
}

std::vector<Reason> validate(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device,
                             Phase phase) {
  std::vector<Reason> reasons;
  for (Finding& finding : find_reasons(backend, std::span(&spec, 1), device, phase))
    reasons.push_back(std::move(finding.reason));
  return reasons;
}

}  // namespace fovea
