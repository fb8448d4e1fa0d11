#include "attention/alternatives.h"

#include <algorithm>

#include "attention/candidates.h"
#include "base/same_name.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

bool only_flags_missing(const std::vector<Finding>& findings) {
  return std::ranges::all_of(
      findings, [](const Finding& f) { return f.remedy == Remedy::flag && f.reason.fix.starts_with('-'); });
}

/// " --dtype bfloat16 --page-size 16": the flags of the fixes, without the explanations after the colons.
std::string flags_of(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings)
    out.append(" ").append(f.reason.fix.substr(0, f.reason.fix.find(':')));
  return out;
}

void add(std::string& text, const std::string& more) {
  if (!more.empty()) text.append(text.empty() ? "" : "; ").append(more);
}

/// "supports it", or "may support it (...)" where its documentation does not mention some requirements.
std::string takes(const std::vector<std::string>& unsaid) {
  return unsaid.empty() ? "supports it" : "may support it (not documented: " + join(unsaid, ", ") + ")";
}

}  // namespace

Alternatives::Places Alternatives::look_around(const SelectionContext& context) const {
  Places p;
  std::vector<Evaluated> evaluated;
  for (const Version& version : automatic_order(context)) {
    evaluated.push_back(evaluate(version, context, phase_));
    const std::vector<Finding>& findings = evaluated.back().findings;
    if (findings.empty() && p.here == nullptr) p.here = version.row;
    if (!findings.empty() && only_flags_missing(findings) && p.here_nearly == nullptr) {
      p.here_nearly = version.row;
      p.nearly_with = flags_of(findings);
    }
  }
  PhaseSelection absent;
  set_if_built(evaluated, absent);
  p.here_absent = absent.if_built;
  p.here_unsaid = std::move(absent.unstated);
  return p;
}

const Alternatives::Places& Alternatives::places() {
  if (places_) return *places_;
  Places& p = places_.emplace(look_around(context_));
  bool stated = false;
  for (std::string_view name : device_names()) {
    const DeviceInfo device = *parse_device(name);
    if (device.kind == context_.device.kind &&
        device.compute_capability == context_.device.compute_capability)
      continue;
    const Places there = look_around(context_.on(device));
    if (there.here != nullptr && p.elsewhere.empty())
      p.elsewhere = there.here->label() + " serves it on " + std::string(name);
    // A backend with all requirements documented goes before one whose documentation does not mention some.
    if (there.here_absent == nullptr || stated || (!p.elsewhere_absent.empty() && !there.here_unsaid.empty()))
      continue;
    stated = there.here_unsaid.empty();
    p.elsewhere_absent = there.here_absent->label() + " " + takes(there.here_unsaid) + " on " +
                         std::string(name) + ", but is not in this build";
  }
  return p;
}

bool Alternatives::names_a_version() const {
  if (context_.requests == nullptr) return false;
  const auto pins = [&](const std::string& name) {
    return std::ranges::any_of(context_.registry.entries(), [&](const BackendRegistry::Entry& entry) {
      return flash_version(*entry.info) && same_name(entry.info->version, name);
    });
  };
  return std::ranges::any_of(context_.requests->names(), pins);
}

bool Alternatives::serves(const BackendInfo& row, Phase phase) const {
  const auto findings = evaluate({&row}, context_, phase).findings;
  return findings.empty() || kernels_missing_or_unsaid(findings) || only_flags_missing(findings);
}

std::string Alternatives::flag(const BackendInfo& row, bool of_phase) const {
  std::string name(row.name), version;
  const auto rows = rows_named(context_.registry.entries(), row.name);
  const BackendInfo* by_name = choose_version(rows, context_).row;
  if (const BackendInfo* built = built_instead(*by_name, rows, context_)) by_name = built;
  if (by_name != &row) {
    const auto pins = [&](std::string_view alias) { return same_name(alias, row.version); };
    const auto alias = std::ranges::find_if(row.aliases, pins);
    if (alias != row.aliases.end() && !context_.config.flash_attn_version && !context_.spec().use_mla)
      name = *alias;
    else
      version = " " + version_flag(row);
  }
  if (context_.requests == nullptr) return "--attention-backend " + name + version;
  const Phase other = phase_ == Phase::prefill ? Phase::decode : Phase::prefill;
  const bool both = !of_phase && context_.requests->together(context_.kind, phase_) &&
                    (context_.kind == LayerKind::encoder || serves(row, other));
  return context_.requests->change(context_.kind, phase_, both, name) + version;
}

std::string Alternatives::instead(const BackendInfo& refused, bool of_phase) {
  const Places& p = places();
  if (p.here != nullptr && p.here != &refused) return flag(*p.here, of_phase) + ": serves it here";
  if (p.here_nearly != nullptr && p.here_nearly != &refused)
    return flag(*p.here_nearly, of_phase) + p.nearly_with + ": serves it here";
  std::string text;
  const auto siblings = rows_named(context_.registry.entries(), refused.mla_sibling);
  if (const bool mla = context_.spec().use_mla; mla && !siblings.empty()) {
    const Version sibling = choose_version(siblings, context_);
    if (kernels_missing_or_unsaid(evaluate(sibling, context_, phase_).findings))
      add(text, flag(*sibling.row, of_phase) + ": its MLA form, which is not in this build");
  }
  if (text.empty() && p.here_absent != nullptr && p.here_absent != &refused)
    add(text, flag(*p.here_absent, of_phase) + ": " + takes(p.here_unsaid) + ", but is not in this build");
  add(text, p.elsewhere);
  if (text.empty()) add(text, p.elsewhere_absent);
  return text.empty() ? "no known backend supports it" : text;
}

std::vector<Reason> Alternatives::with_fixes(const BackendInfo& refused, std::vector<Finding> findings) {
  // Settings don't help while a finding remains that no setting removes: its fix is the fix of all.
  const Finding* stays = lasting(findings);
  const std::string for_all = stays == nullptr ? std::string() : with_fix(refused, *stays).fix;
  std::vector<Reason> reasons;
  for (Finding& finding : findings) {
    const bool by_setting = finding.remedy == Remedy::flag || finding.remedy == Remedy::kernels ||
                            finding.remedy == Remedy::unsaid;
    if (stays != nullptr && by_setting)
      reasons.push_back({std::move(finding.reason.text), for_all});
    else
      reasons.push_back(with_fix(refused, finding));
  }
  return reasons;
}

Reason Alternatives::with_fix(const BackendInfo& refused, Finding finding) {
  Reason reason = std::move(finding.reason);
  switch (finding.remedy) {
    case Remedy::flag: break;
    case Remedy::other_backend:
    case Remedy::other_phase_backend: {
      // What the refused backend supports goes before the backend that serves this model.
      const bool says_more = !reason.fix.starts_with("--");
      const std::string other = instead(refused, finding.remedy == Remedy::other_phase_backend);
      reason.fix = says_more ? reason.fix + "; " + other : other;
      break;
    }
    case Remedy::other_device: {
      for (const BackendInfo* row : rows_named(context_.registry.entries(), refused.name)) {
        if (row == &refused || version_flag(*row).empty()) continue;
        if (row == (places().here != nullptr ? places().here : places().here_absent))
          continue;  // named below
        // A name for another phase pins the version that this setting would have to change.
        if (context_.config.flash_attn_version && !version_is_free(*row, context_.config) &&
            names_a_version())
          continue;
        const auto findings = evaluate({row}, context_, phase_).findings;
        const std::string version = ": " + std::string(row->version) + " is for this device";
        if (findings.empty()) add(reason.fix, flag(*row, false) + version);
        if (only_kernels_missing(findings))
          add(reason.fix, flag(*row, false) + version + ", but is not in this build");
      }
      const Places& p = places();
      if (p.here != nullptr)
        add(reason.fix, flag(*p.here, false) + ": serves it here");
      else if (p.here_absent != nullptr)
        add(reason.fix,
            flag(*p.here_absent, false) + ": " + takes(p.here_unsaid) + " here, but is not in this build");
      break;
    }
    case Remedy::kernels:
    case Remedy::unsaid: {
      const Places& p = places();
      if (p.here != nullptr)
        reason.fix = flag(*p.here, false) + ": serves it here";
      else
        reason.fix = p.elsewhere.empty() ? "no backend of this build serves it, on any device" : p.elsewhere;
      break;
    }
  }
  return reason;
}

}  // namespace fovea
