#include "attention/mla_prefill.h"

#include <algorithm>

#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

bool is_called(const BackendInfo& row, std::string_view name) {
  const std::string wanted = squash(name);
  return squash(row.name) == wanted ||
         std::ranges::any_of(row.aliases, [&](auto alias) { return squash(alias) == wanted; });
}

/// One of vLLM's switches that selected the MLA prefill before mla_prefill_backend existed.
struct Switch {
  std::string_view key;
  std::optional<bool> AttentionConfig::* value;
  bool enables;  ///< the value that turns its backend on
  std::string_view backend;
};
constexpr Switch kSwitches[] = {
    {"use_trtllm_ragged_deepseek_prefill", &AttentionConfig::use_trtllm_ragged_deepseek_prefill, true,
     "TRTLLM_RAGGED"},
    {"disable_flashinfer_prefill", &AttentionConfig::disable_flashinfer_prefill, false, "FLASHINFER"},
    {"use_cudnn_prefill", &AttentionConfig::use_cudnn_prefill, true, "CUDNN"},
};

/// vLLM uses the first two only on request. On CPUs absorbed attention gives prefill and decode the same
/// bits, which expanded keys don't.
bool off_by_default(const BackendInfo& row) {
  return is_called(row, "FLASHINFER") || is_called(row, "CUDNN") || is_called(row, "CPU_ATTN");
}

struct Preference {
  std::string name;                  ///< empty = automatic
  std::string from;                  ///< with the value: "-ac.use_cudnn_prefill 1"
  std::vector<std::string> off, by;  ///< disabled backends, and the switches that disable them
};

std::string shown(const AttentionConfig& config, const Switch& s) {
  return setting(config, s.key) + "=" + (*(config.*s.value) ? "1" : "0");
}

Result<Preference> read_preference(const AttentionConfig& config) {
  Preference preference;
  if (!is_auto(config.mla_prefill_backend))
    preference = {config.mla_prefill_backend,
                  setting(config, "mla_prefill_backend") + " " + config.mla_prefill_backend,
                  {},
                  {}};
  for (const Switch& s : kSwitches) {
    if (!(config.*s.value)) continue;
    const bool on = *(config.*s.value) == s.enables;
    const bool same = squash(preference.name) == squash(s.backend);
    if (!preference.name.empty() && on != same && (on || same))
      return invalid(shown(config, s) + " contradicts " + preference.from +
                     "; give mla_prefill_backend alone");
    if (!on) {
      preference.off.emplace_back(s.backend);
      preference.by.push_back(shown(config, s));
    } else if (preference.name.empty()) {
      if (const auto at = std::ranges::find(preference.off, s.backend); at != preference.off.end())
        return invalid(shown(config, s) + " contradicts " +
                       preference.by[static_cast<size_t>(at - preference.off.begin())]);
      preference.name = s.backend;
      preference.from = shown(config, s);
    }
  }
  return preference;
}

/// All names without duplicates, in the order of the registry.
std::vector<std::string_view> names_of(const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries)
    if (std::ranges::find(names, entry.info->name) == names.end()) names.push_back(entry.info->name);
  return names;
}

Error unknown_prefill(const Preference& preference, const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (std::string_view name : names_of(entries))
    names.emplace_back(name);
  return invalid("Unknown MLA prefill backend: '" + preference.name + "' (" + preference.from +
                 "). Valid options are: auto, " + join(names, ", ") + ".");
}

std::vector<Evaluated> evaluate_all(const Preference& preference, const SelectionContext& context) {
  std::vector<AttentionSpec> specs;
  for (const AttentionSpec& spec : context.specs)
    specs.push_back(mla_prefill_spec(spec));
  std::vector<Evaluated> all;
  const auto& entries = context.registry.mla_prefill();
  for (std::string_view name : names_of(entries)) {
    const Version version = choose_version(rows_named(entries, name), context);
    const BackendInfo& row = *version.row;
    if (!preference.name.empty() && !is_called(row, preference.name)) continue;
    Evaluated one{&row, find_reasons(row, specs, context.device, Phase::prefill, UseCase::mla_prefill)};
    if (version.reason) one.findings.insert(one.findings.begin(), {0, Remedy::flag, *version.reason});
    const auto off = std::ranges::find_if(preference.off, [&](auto& o) { return is_called(row, o); });
    const std::string ask = "-ac.mla_prefill_backend=" + std::string(name);
    if (off != preference.off.end())
      one.findings.insert(
          one.findings.begin(),
          {0,
           Remedy::flag,
           {"switched off by " + preference.by[static_cast<size_t>(off - preference.off.begin())], ask}});
    else if (preference.name.empty() && off_by_default(row))
      one.findings.insert(one.findings.begin(), {0, Remedy::flag, {"off unless requested", ask}});
    all.push_back(std::move(one));
  }
  return all;
}

/// The flag for the best MLA prefill, ignoring a named one; empty = none supports these layers on this
/// device.
std::string other_prefill(const Preference& preference, const SelectionContext& context) {
  const BackendInfo *serves = nullptr, *if_built = nullptr;
  for (const Evaluated& one : evaluate_all({{}, {}, preference.off, preference.by}, context)) {
    if (one.findings.empty() && serves == nullptr) serves = one.row;
    if (only_kernels_missing(one.findings) && if_built == nullptr) if_built = one.row;
  }
  const BackendInfo* row = serves != nullptr ? serves : if_built;
  if (row == nullptr) return {};
  return "-ac.mla_prefill_backend=" + std::string(row->name) +
         (serves != nullptr ? ": serves it here" : ": supports it on this device, but is not in this build");
}

/// The reason with its fix; `other` where only another backend helps.
Reason with_fix(Finding finding, const std::string& other, bool other_serves) {
  Reason reason = std::move(finding.reason);
  if (finding.remedy == Remedy::flag) return reason;
  if (finding.remedy == Remedy::kernels || finding.remedy == Remedy::unsaid)
    reason.fix = other_serves ? other : "no MLA prefill backend of this build serves it here";
  else if (reason.fix.starts_with("--"))
    reason.fix = other.empty() ? "no known MLA prefill backend supports it on this device" : other;
  else if (!other.empty())
    reason.fix += "; " + other;
  return reason;
}

std::string list_refused(const std::vector<Candidate>& candidates) {
  std::string out;
  for (const Candidate& c : candidates)
    out += (out.empty() ? "" : ", ") + c.backend->label() + ": " + quoted_list(c.reasons);
  return out;
}

Result<PhaseSelection> choose_mla_prefill(const Preference& preference, const SelectionContext& context) {
  std::vector<Evaluated> evaluated = evaluate_all(preference, context);
  if (evaluated.empty()) return unknown_prefill(preference, context.registry.mla_prefill());
  PhaseSelection selection;
  for (const Evaluated& one : evaluated) {
    if (one.findings.empty() && selection.backend == nullptr) selection.backend = one.row;
  }
  if (selection.backend == nullptr) set_if_built(evaluated, selection);
  const std::string other = other_prefill(preference, context);
  const bool other_serves = other.ends_with(": serves it here");
  for (Evaluated& one : evaluated) {
    Candidate candidate{one.row, {}};
    const Finding* stays = lasting(one.findings);
    const std::string for_all = stays == nullptr ? std::string() : with_fix(*stays, other, other_serves).fix;
    for (const Finding& finding : one.findings) {
      candidate.reasons.push_back(with_fix(finding, other, other_serves));
      if (stays != nullptr && finding.remedy == Remedy::flag) candidate.reasons.back().fix = for_all;
    }
    selection.candidates.push_back(std::move(candidate));
  }
  selection.why =
      "MLA prefill, " + (preference.name.empty() ? std::string("automatic") : "given: " + preference.from);
  if (selection.backend != nullptr) return selection;
  if (!preference.name.empty())
    selection.error = not_valid("Selected MLA prefill backend", selection.candidates.front(), context);
  else
    selection.error = unsupported("No valid MLA prefill backend found for " + describe(context.device) +
                                  ". Reasons: {" + list_refused(selection.candidates) + "}.");
  return selection;
}

/// The row of `decode`'s prefill partner, preferably one for this device; null = `decode` prefills itself or
/// has no partner in the registry.
const BackendInfo* partner_of(const BackendInfo& decode, const SelectionContext& context) {
  if (decode.capability.phases.has(Phase::prefill)) return nullptr;
  auto rows = rows_named(context.registry.entries(), decode.prefill_partner);
  std::erase_if(rows, [](auto* row) { return !row->capability.phases.has(Phase::prefill); });
  if (rows.empty()) return nullptr;
  const auto here = [&](auto* row) { return runs_on(row->capability, context.device); };
  const auto at = std::ranges::find_if(rows, here);
  return at == rows.end() ? rows.front() : *at;
}

/// The backend that decodes, would decode if it were built, or was requested for decode.
const BackendInfo* decoder_of(const PhaseSelection& decode, const BackendRequest& request) {
  if (decode.backend != nullptr) return decode.backend;
  if (decode.if_built != nullptr) return decode.if_built;
  return request.name.empty() ? nullptr : decode.candidates.front().backend;
}

/// Whether prefill is left to the decode backend: none is named for it, or the decoder is named for both
/// phases.
Result<bool> is_for_both(const BackendRequest& request, const BackendInfo* decoder,
                         const SelectionContext& context) {
  if (request.name.empty()) return true;
  if (request.of_phase) return false;
  FOVEA_TRY(named, resolve_name(request.name, context));
  return named.version.row == decoder;
}

/// Whether some MLA prefill backend runs on this kind of device without being asked for; else MLA backends
/// prefill themselves.
bool has_mla_prefill(const SelectionContext& context) {
  return std::ranges::any_of(context.registry.mla_prefill(), [&](const Entry& entry) {
    return entry.info->capability.device == context.device.kind && !off_by_default(*entry.info);
  });
}

}  // namespace

AttentionSpec mla_prefill_spec(const AttentionSpec& spec) {
  AttentionSpec s = spec;
  if (spec.mla_nope_head_dim > 0) {
    s.head_dim = spec.mla_nope_head_dim + spec.mla_rope_head_dim;
    s.v_head_dim = spec.mla_v_head_dim;
  }
  s.num_kv_heads = s.num_heads;
  s.kv_dtype = KvCacheDType::auto_;
  s.kv_x_packed = s.kv_shuffle = false;
  s.page_size = 0;
  // Features of the cache or of decoding do not apply to it.
  s.needs = s.needs.without({Feature::dcp, Feature::non_causal_dcp, Feature::kv_connector,
                             Feature::kv_sharing, Feature::native_page, Feature::per_head_scales,
                             Feature::verify, Feature::tree_mask, Feature::adaptive_verification});
  return s;
}

AttentionSpec unabsorbed_spec(const AttentionSpec& spec) {
  AttentionSpec s = mla_prefill_spec(spec);
  s.use_mla = s.use_sparse = false;
  s.page_size = 1;
  s.needs = s.needs.without({Feature::chunked_prefix});  // chunks are merged outside of the backend
  return s;
}

std::vector<std::string> deprecated_switches(const AttentionConfig& config) {
  std::vector<std::string> warnings;
  for (const Switch& s : kSwitches)
    if (config.*s.value)
      warnings.push_back(setting(config, s.key) +
                         " is deprecated: name the backend with -ac.mla_prefill_backend (" +
                         std::string(s.backend) + ", ...)");
  return warnings;
}

std::vector<std::string_view> mla_prefill_keys(const AttentionConfig& config) {
  std::vector<std::string_view> keys;
  if (!is_auto(config.mla_prefill_backend)) keys.push_back("mla_prefill_backend");
  for (const Switch& s : kSwitches)
    if (config.*s.value) keys.push_back(s.key);
  return keys;
}

Status check_mla_prefill(const AttentionConfig& config, const BackendRegistry& registry) {
  FOVEA_TRY(preference, read_preference(config));
  const auto& entries = registry.mla_prefill();
  const auto has_name = [&](const Entry& entry) { return is_called(*entry.info, preference.name); };
  if (!preference.name.empty() && !entries.empty() && std::ranges::none_of(entries, has_name))
    return unknown_prefill(preference, entries);
  return {};
}

bool is_mla_prefill(const BackendInfo& row, const BackendRegistry& registry) {
  return std::ranges::find(registry.mla_prefill(), &row, &Entry::info) != registry.mla_prefill().end();
}

Result<PhaseSelection> choose_prefill(const BackendRequest& request, const SelectionContext& context,
                                      const PhaseSelection& decode) {
  const bool mla = context.kind == LayerKind::mla;
  const BackendInfo* decoder = decoder_of(decode, request);
  FOVEA_TRY(preference, read_preference(context.config));
  FOVEA_TRY(both, is_for_both(request, decoder, context));
  if (!both) {
    if (mla && !preference.name.empty())
      return invalid(request.from + " '" + request.name + "' contradicts " + preference.from +
                     ": both name the prefill of MLA layers; give only one of them");
    return choose(request, context, Phase::prefill);
  }
  if (mla && !preference.name.empty()) return choose_mla_prefill(preference, context);
  if (const BackendInfo* partner = decoder == nullptr ? nullptr : partner_of(*decoder, context)) {
    PhaseSelection pair = choose_only({partner}, context, Phase::prefill,
                                      "prefills for " + decoder->label() + ", which only decodes");
    // Layers without MLA can use another backend if none was named.
    if (mla || !request.name.empty() || pair.backend != nullptr) return pair;
  }
  if (mla && has_mla_prefill(context)) return choose_mla_prefill(preference, context);
  return choose(request, context, Phase::prefill);
}

}  // namespace fovea
