#include "attention/candidates.h"

#include <algorithm>

#include "attention/alternatives.h"
#include "attention/other_build.h"
#include "attention/priorities.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

std::vector<std::string> built_names(const BackendRegistry& registry) {
  std::vector<std::string> names;
  for (const Entry& entry : registry.entries())
    if (entry.info->absent.empty()) names.push_back(entry.info->label());
  return names;
}

/// The parts of all fixes in order, without duplicates.
std::vector<std::string> distinct_fixes(const std::vector<Reason>& reasons) {
  constexpr std::string_view kBetween = "; ";
  std::vector<std::string> fixes;
  for (const Reason& r : reasons)
    for (std::string_view rest = r.fix; !rest.empty();) {
      const size_t end = std::min(rest.find(kBetween), rest.size());
      if (const std::string part(rest.substr(0, end)); std::ranges::find(fixes, part) == fixes.end())
        fixes.push_back(part);
      rest.remove_prefix(std::min(end + kBetween.size(), rest.size()));
    }
  return fixes;
}

/// Text that names the layer kind, where a model has several kinds.
std::string for_kind(const SelectionContext& context) {
  return context.only_kind ? "" : " Layers: " + std::string(to_string(context.kind)) + ".";
}

std::string python(bool value) {
  return value ? "True" : "False";
}

/// The selector config of one attention, with the fields and order of vLLM's message.
std::string selector_config(const AttentionSpec& spec) {
  const auto asked = [&](Feature f) { return python(spec.needs.has(f)); };
  const bool non_causal = spec.type == AttentionType::decoder && !spec.mask.causal && !spec.mask.packed;
  return "AttentionSelectorConfig(head_size=" + std::to_string(spec.head_dim) +
         ", dtype=" + std::string(to_string(spec.dtype)) +
         ", kv_cache_dtype=" + std::string(to_string(spec.kv_dtype)) +
         ", block_size=" + (spec.page_size > 0 ? std::to_string(spec.page_size) : "None") +
         ", use_mla=" + python(spec.use_mla) + ", has_sink=" + python(spec.has_sink) +
         ", use_sparse=" + python(spec.use_sparse) + ", use_mm_prefix=" + python(spec.mask.spans) +
         ", use_per_head_quant_scales=" + asked(Feature::per_head_scales) +
         ", attn_type=" + std::string(to_string(spec.type)) +
         ", has_sliding_window=" + python(spec.mask.window_left >= 0) +
         ", use_non_causal=" + python(non_causal) +
         ", use_batch_invariant=" + asked(Feature::batch_invariance) +
         ", use_kv_connector=" + asked(Feature::kv_connector) + ", use_pcp=" + asked(Feature::pcp) +
         ", use_adaptive_verification=" + asked(Feature::adaptive_verification) +
         ", use_dcp=" + asked(Feature::dcp) + ")";
}

/// The selector configs of all attentions of the context, without duplicates.
std::string selector_configs(const SelectionContext& context) {
  std::vector<std::string> distinct;
  for (const AttentionSpec& spec : context.specs)
    if (std::string config = selector_config(spec); std::ranges::find(distinct, config) == distinct.end())
      distinct.push_back(std::move(config));
  return join(distinct, " and ");
}

/// The changes that the backend nearest to serving needs: built backends for this device first, then the one
/// with the fewest reasons.
std::string nearest_fix(const std::vector<Candidate>& refused, const DeviceInfo& device) {
  const auto distance = [&](const Candidate& c) {
    const bool far = !c.backend->absent.empty() || !runs_on(c.backend->capability, device);
    return c.reasons.size() + (far ? 1000 : 0);
  };
  const auto nearest = std::ranges::min_element(refused, {}, distance);
  if (nearest == refused.end()) return {};
  return " Fix for " + nearest->backend->label() + ": " + join(distinct_fixes(nearest->reasons), "; ") + ".";
}

Error none_valid(const SelectionContext& context, const std::vector<Candidate>& refused) {
  std::vector<std::string> each;
  for (const Candidate& r : refused)
    each.push_back(r.backend->label() + ": " + quoted_list(r.reasons));
  return unsupported("No valid attention backend found for " + describe(context.device) + " with " +
                     selector_configs(context) + ". Reasons: {" + join(each, ", ") + "}." +
                     for_kind(context) + nearest_fix(refused, context.device));
}

/// Selects the first without findings, or else the first that lacks only its kernels; lists every candidate
/// with its fixes.
PhaseSelection first_that_serves(std::vector<Evaluated> evaluated, const SelectionContext& context,
                                 Phase phase) {
  PhaseSelection selection;
  Alternatives alternatives(context, phase);
  for (const Evaluated& one : evaluated)
    if (one.findings.empty() && selection.backend == nullptr) selection.backend = one.row;
  if (selection.backend == nullptr) set_if_built(evaluated, selection);
  for (Evaluated& one : evaluated)
    selection.candidates.push_back({one.row, alternatives.with_fixes(*one.row, std::move(one.findings))});
  return selection;
}

PhaseSelection choose_automatically(const BackendRequest& request, const SelectionContext& context,
                                    Phase phase) {
  std::vector<Evaluated> evaluated;
  for (const Version& version : automatic_order(context))
    evaluated.push_back(evaluate(version, context, phase));
  PhaseSelection selection = first_that_serves(std::move(evaluated), context, phase);
  std::vector<std::string> valid;
  for (const Candidate& candidate : selection.candidates)
    if (candidate.reasons.empty()) valid.push_back(candidate.backend->label());
  const std::string on = "this model on " + describe(context.device);
  if (valid.empty()) {
    selection.why = "automatic: none serves " + on;
    selection.error = none_valid(context, selection.candidates);
  } else {
    selection.why = valid.size() == 1 ? "automatic: the only one that serves " + on
                                      : "automatic: first of " + join(valid, ", ") + " that serves " + on;
  }
  if (!request.from.empty()) selection.why += ", as set by " + request.from;
  return selection;
}

}  // namespace

std::string quoted_list(const std::vector<Reason>& reasons) {
  std::string out = "[";
  for (const Reason& r : reasons) {
    if (out.size() > 1) out += ", ";
    out.append("'").append(r.text).append("'");
  }
  return out + "]";
}

Error not_valid(std::string_view title, const Candidate& candidate, const SelectionContext& context) {
  const BackendInfo& info = *candidate.backend;
  std::string message = std::string(title) + " " + std::string(info.name) +
                        " is not valid for this configuration. Reason: " + quoted_list(candidate.reasons) +
                        "." + for_kind(context) + " Fix: " + join(distinct_fixes(candidate.reasons), "; ") +
                        ".";
  if (!info.absent.empty()) message += " This build has: " + join(built_names(context.registry), ", ") + ".";
  return unsupported(message);
}

void set_if_built(const std::vector<Evaluated>& evaluated, PhaseSelection& selection) {
  const auto first = [&](auto wanted) {
    return std::ranges::find_if(
        evaluated, [&](const Evaluated& w) { return kernels_missing_or_unsaid(w.findings) && wanted(w); });
  };
  auto at =
      first([](const Evaluated& w) { return needs_other_build(*w.row) && only_kernels_missing(w.findings); });
  if (at == evaluated.end()) at = first([](const Evaluated&) { return true; });
  if (at == evaluated.end()) return;
  selection.if_built = at->row;
  selection.unstated = unsaid(at->findings);
}

Evaluated evaluate(const Version& version, const SelectionContext& context, Phase phase) {
  Evaluated evaluated{version.row, find_reasons(*version.row, context.specs, context.device, phase)};
  if (version.reason) evaluated.findings.push_back({0, Remedy::flag, *version.reason});
  return evaluated;
}

std::vector<Version> automatic_order(const SelectionContext& context) {
  std::vector<Version> order;
  const auto known = [&](const BackendInfo* row) {
    return std::ranges::find(order, row, &Version::row) != order.end();
  };
  const auto& entries = context.registry.entries();
  for (std::string_view name : priorities(context.device, context.spec()))
    if (const auto rows = rows_named(entries, name); !rows.empty()) {
      const Version version = choose_version(rows, context);
      if (!known(version.row)) order.push_back(version);
      if (const BackendInfo* built = built_instead(*version.row, rows, context); built && !known(built))
        order.push_back({built});
    }
  for (const Entry& entry : entries)
    if (entry.info->absent.empty() && !known(entry.info) && version_is_free(*entry.info, context.config))
      order.push_back({entry.info});
  return order;
}

PhaseSelection choose_only(const Version& version, const SelectionContext& context, Phase phase,
                           std::string why) {
  std::vector<Evaluated> one;
  one.push_back(evaluate(version, context, phase));
  PhaseSelection selection = first_that_serves(std::move(one), context, phase);
  selection.why = std::move(why);
  if (selection.backend == nullptr)
    selection.error = not_valid("Selected backend", selection.candidates.front(), context);
  return selection;
}

Result<PhaseSelection> choose(const BackendRequest& request, const SelectionContext& context, Phase phase) {
  if (request.name.empty()) return choose_automatically(request, context, phase);
  FOVEA_TRY(named, resolve_name(request.name, context));
  std::string why = "given: " + request.from + " " + request.name;
  if (!named.meaning.empty()) why += ", " + named.meaning;
  if (!request.note.empty()) why += "; " + request.note;
  PhaseSelection selection = choose_only(named.version, context, phase, std::move(why));
  selection.version_named = named.version_named;
  return selection;
}

}  // namespace fovea
