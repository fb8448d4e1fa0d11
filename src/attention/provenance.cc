#include "attention/provenance.h"

#include <algorithm>

#include "attention/mla_prefill.h"
#include "attention/resolve_name.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

constexpr int kTensorCoreRatio = 4;  // query heads per KV head; below, decode leaves tensor cores mostly idle

struct Used {
  const BackendInfo* row;
  Phase phase;
  const SelectionContext* context;
  const PhaseSelection* selection;
};

class Provenance {
 public:
  Provenance(std::span<const SelectionContext> contexts, const PageSize& page, Selection& s)
      : contexts_(contexts), config_(contexts.front().config), page_(page), s_(s) {
    for (size_t i = 0; i < contexts.size(); ++i)
      for (Phase phase : phases(contexts[i].kind)) {
        const PhaseSelection& selection = s.kinds[i].of(phase);
        used_.push_back({meant(selection), phase, &contexts[i], &selection});
      }
  }

  void run() {
    for (const Used& u : used_)
      add(std::string(to_string(u.context->kind)) + "." + std::string(to_string(u.phase)),
          chosen(*u.selection), u.selection->why);
    if (page_.size > 0) add("page_size", std::to_string(page_.size), page_.why);
    add_dtypes();
    add_versions();
    add_mla_prefill();
    add_tensor_cores();
    add_kernels();
    add_flag("batch_invariant", config_.batch_invariant, true);
    add_flag("use_non_causal", config_.use_non_causal, false);
    add_rule();
    if (any_row([](auto& row) { return row.name == "ROCM_ATTN"; }))
      add_flag("use_prefill_decode_attention", config_.use_prefill_decode_attention, true);
    add_warnings();
  }

 private:
  static std::vector<Phase> phases(LayerKind kind) {
    if (kind == LayerKind::encoder) return {Phase::prefill};
    return {Phase::prefill, Phase::decode};
  }

  static std::string chosen(const PhaseSelection& phase) {
    if (phase.backend != nullptr) return phase.backend->label();
    return phase.if_built == nullptr ? "none" : "none (" + phase.if_built->label() + " is not in this build)";
  }

  void add(std::string key, std::string value, std::string from) {
    ResolvedValue resolved{std::move(key), std::move(value), std::move(from)};
    const auto same = [&](const ResolvedValue& r) {
      return r.key == resolved.key && r.value == resolved.value && r.from == resolved.from;
    };
    if (std::ranges::none_of(s_.resolved, same)) s_.resolved.push_back(std::move(resolved));
  }

  std::string from(std::string_view key, bool given, std::string_view otherwise) const {
    return given ? config_.source(key) : std::string(otherwise);
  }

  void add_flag(std::string_view key, const std::optional<bool>& value, bool also_unset) {
    if (value || also_unset)
      add(std::string(key), value.value_or(false) ? "1" : "0", from(key, value.has_value(), "default"));
  }

  /// Which phase may compute which positions; nothing when a phase has no backend.
  void add_rule() {
    const auto pages = [](const KindSelection& k) { return k.kind != LayerKind::encoder; };
    if (std::ranges::none_of(s_.kinds, pages)) return;
    std::string why, chunks;
    for (const KindSelection& k : s_.kinds) {
      if (k.prefill.backend == nullptr || k.decode.backend == nullptr) return;
      if (!pages(k)) continue;
      const std::string prefill = k.prefill.backend->label(), decode = k.decode.backend->label();
      const auto& levels = k.prefill.backend->capability.invariance;
      const bool chunking = levels.has(Invariance::prefill_chunks) || levels.has(Invariance::chunking);
      if (!same_bits_across_phases(k) && why.empty())
        why =
            std::string(to_string(k.kind)) + (k.prefill.backend == k.decode.backend
                                                  ? " layers: " + prefill + " does not claim chunking"
                                                  : " layers: prefill is " + prefill + ", decode " + decode);
      if (!chunking && chunks.empty())
        chunks = "; the chunks of a prompt may change its bits, since " + prefill +
                 " does not claim prefill_chunks";
    }
    if (why.empty())
      add("provenance", "any phase", "prefill and decode give every position the same bits");
    else
      add("provenance", "prompts from prefill, answers from decode", why + chunks);
  }

  void add_dtypes() {
    const bool dtype_given = config_.sources.contains("dtype");
    const bool kv_given = config_.sources.contains("kv_cache_dtype");
    for (const SelectionContext& context : contexts_)
      for (const AttentionSpec& spec : context.specs) {
        add("dtype", std::string(to_string(spec.dtype)), from("dtype", dtype_given, "config.json"));
        if (!has_kv_pages(context.kind)) continue;
        std::string kv(to_string(spec.kv_dtype));
        if (spec.kv_dtype == KvCacheDType::auto_)
          kv.append(" (").append(to_string(resolve(spec.kv_dtype, spec.dtype))).append(")");
        add("kv_cache_dtype", kv, from("kv_cache_dtype", kv_given, "default"));
      }
  }

  /// The row's version; for MLA prefill by FlashAttention, which has one row for all versions, the one in
  /// use.
  std::optional<int> flash_version_of(const Used& u) const {
    if (u.row->version.empty() && u.row->name == "FLASH_ATTN" && is_mla_prefill(*u.row, u.context->registry))
      return config_.flash_attn_version.value_or(default_flash_version(*u.context));
    return flash_version(*u.row);
  }

  void add_versions() {
    for (const Used& u : used_) {
      if (u.row == nullptr) continue;
      if (const auto flash = flash_version_of(u)) {
        const auto rows =
            rows_named(is_mla_prefill(*u.row, u.context->registry) ? u.context->registry.mla_prefill()
                                                                   : u.context->registry.entries(),
                       u.row->name);
        const BackendInfo& usual = *choose_version(rows, *u.context).row;
        const bool by_rule = !u.selection->version_named && &usual == u.row;
        const bool instead = !u.selection->version_named && built_instead(usual, rows, *u.context) == u.row;
        add("flash_attn_version", std::to_string(*flash),
            from("flash_attn_version", config_.flash_attn_version.has_value(),
                 by_rule   ? "default: 3 on compute capability 9.x (2 with ALiBi), 2 elsewhere"
                 : instead ? usual.label() + " is not in this build"
                           : u.selection->why));
      }
      if (u.row->name == "FLASHINFER" && !version_flag(*u.row).empty())
        add("use_trtllm_attention", version_flag(*u.row).ends_with("1") ? "1" : "0",
            from("use_trtllm_attention", config_.use_trtllm_attention.has_value(), trtllm_rule(u)));
    }
  }

  /// Why this version of FlashInfer was chosen without a flag.
  std::string trtllm_rule(const Used& u) const {
    const auto rows = rows_named(u.context->registry.entries(), u.row->name);
    const BackendInfo& usual = *choose_version(rows, *u.context).row;
    return &usual != u.row && built_instead(usual, rows, *u.context) == u.row
               ? usual.label() + " is not in this build"
               : "default: 1 on compute capability 10.x, 0 elsewhere";
  }

  void add_mla_prefill() {
    for (const Used& u : used_)
      if (u.row != nullptr && is_mla_prefill(*u.row, u.context->registry))
        add("mla_prefill_backend", u.row->label(), u.selection->why);
  }

  void add_tensor_cores() {
    for (const Used& u : used_) {
      if (u.row == nullptr || u.row->name != "FLASHINFER" || u.phase != Phase::decode) continue;
      for (const AttentionSpec& spec : u.context->specs) {
        const int ratio = spec.num_heads / spec.num_kv_heads;
        const auto& given = config_.flashinfer_use_tensor_cores;
        add("flashinfer_use_tensor_cores", given.value_or(ratio >= kTensorCoreRatio) ? "1" : "0",
            from("flashinfer_use_tensor_cores", given.has_value(),
                 "default: " + std::to_string(ratio) + " query heads per KV head, tensor cores from " +
                     std::to_string(kTensorCoreRatio) + " on"));
      }
    }
  }

  /// Adds the kernel family of rows with kernels of two families.
  void add_kernels() {
    for (const Used& u : used_) {
      if (u.row == nullptr || u.row->kernel_family == nullptr || !u.row->absent.empty()) continue;
      for (const AttentionSpec& spec : u.context->specs)
        if (auto family = u.row->kernel_family(*u.row, spec, u.phase))
          add(std::string(to_string(u.context->kind)) + "." + std::string(to_string(u.phase)) + ".kernels",
              std::string(family->name), std::move(family->why));
    }
  }

  template <class F>
  bool any_row(F wanted) const {
    return std::ranges::any_of(used_, [&](const Used& u) { return u.row != nullptr && wanted(*u.row); });
  }

  template <class F>
  bool any(F wanted) const {
    return std::ranges::any_of(used_, [&](const Used& u) { return wanted(*u.row, u); });
  }

  void idle(std::string_view key, bool given, bool used, std::string_view why) {
    if (given && !used) s_.warnings.push_back(setting(config_, key) + " has no effect: " + std::string(why));
  }

  void add_warnings() {
    for (std::string& warning : deprecated_switches(config_))
      s_.warnings.push_back(std::move(warning));
    const auto has = [&](auto wanted) { return std::ranges::any_of(contexts_, wanted); };
    const bool mla_model = has([](const SelectionContext& s) { return s.kind == LayerKind::mla; });
    for (const std::string_view key : mla_prefill_keys(config_))
      idle(key, true, mla_model, "this model has no MLA layers");
    const bool page_is_used = has([](const SelectionContext& s) { return has_kv_pages(s.kind); });
    idle("page_size", config_.page_size.has_value(), page_is_used, "encoder layers have no KV cache");
    idle("allow_page_override", config_.allow_page_override, config_.page_size.has_value(),
         "no page size is given");
    const auto decodes = [](const AttentionSpec& s) {
      return s.type == AttentionType::decoder && s.linear == LinearAttention::none;
    };
    idle("use_non_causal", config_.use_non_causal.value_or(false),
         has([&](const SelectionContext& s) { return std::ranges::any_of(s.specs, decodes); }),
         "this model has no decoder layers");
    // It is unknown what a refused phase would have used.
    if (std::ranges::any_of(used_, [](const Used& u) { return u.row == nullptr; })) return;
    idle("flash_attn_version", config_.flash_attn_version.has_value(),
         any([&](auto&, auto& u) { return flash_version_of(u).has_value(); }), "no phase uses FLASH_ATTN");
    const auto flashinfer = [](auto& row, auto&) { return row.name == "FLASHINFER"; };
    idle("use_trtllm_attention", config_.use_trtllm_attention.has_value(), any(flashinfer),
         "no phase uses FLASHINFER");
    idle("flashinfer_use_tensor_cores", config_.flashinfer_use_tensor_cores.has_value(),
         any([](auto& row, auto& u) { return row.name == "FLASHINFER" && u.phase == Phase::decode; }),
         "no decode uses FLASHINFER");
    idle("use_prefill_decode_attention", config_.use_prefill_decode_attention.has_value(),
         any([](auto& row, auto&) { return row.name == "ROCM_ATTN" && row.absent.empty(); }),
         any_row([](auto& row) { return row.name == "ROCM_ATTN"; }) ? "ROCM_ATTN is not in this build"
                                                                    : "no phase uses ROCM_ATTN");
    const auto mla = [](auto& row, const Used& u) { return is_mla_prefill(row, u.context->registry); };
    if (mla_model)
      for (const std::string_view key : mla_prefill_keys(config_))
        idle(key, true, any(mla), "no layers have an MLA prefill of their own");
  }

  std::span<const SelectionContext> contexts_;
  const AttentionConfig& config_;
  const PageSize& page_;
  Selection& s_;
  std::vector<Used> used_;
};

}  // namespace

const BackendInfo* meant(const PhaseSelection& phase) {
  if (phase.backend != nullptr) return phase.backend;
  if (phase.if_built != nullptr) return phase.if_built;
  return phase.candidates.size() == 1 ? phase.candidates.front().backend : nullptr;
}

void add_provenance(std::span<const SelectionContext> contexts, const PageSize& page, Selection& selection) {
  Provenance(contexts, page, selection).run();
}

}  // namespace fovea
