#include "attention/alternatives.h"

#include <algorithm>

#include "attention/candidates.h"

namespace fovea {
namespace {

bool only_flags_missing(const std::vector<Finding>& findings) {
  return std::ranges::all_of(
      findings, [](const Finding& f) { return f.remedy == Remedy::flag && f.reason.fix.starts_with('-'); });
}

/// "--dtype bfloat16 --page-size 16", of fixes that say more after a colon.
std::string flags_of(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings)
    out.append(" ").append(f.reason.fix.substr(0, f.reason.fix.find(':')));
  return out;
}

void add(std::string& text, const std::string& more) {
  if (!more.empty()) text.append(text.empty() ? "" : "; ").append(more);
}

}  // namespace

Alternatives::Places Alternatives::look_around(const Scene& scene) const {
  Places p;
  for (const Version& version : automatic_order(scene)) {
    const std::vector<Finding> findings = weigh(version, scene, phase_).findings;
    if (findings.empty() && p.here == nullptr) p.here = version.row;
    if (only_kernels_missing(findings) && p.here_absent == nullptr) p.here_absent = version.row;
    if (!findings.empty() && only_flags_missing(findings) && p.here_nearly == nullptr) {
      p.here_nearly = version.row;
      p.nearly_with = flags_of(findings);
    }
  }
  return p;
}

const Alternatives::Places& Alternatives::places() {
  if (places_) return *places_;
  Places& p = places_.emplace(look_around(scene_));
  for (std::string_view name : device_names()) {
    const DeviceInfo device = *parse_device(name);
    if (device.kind == scene_.device.kind && device.compute_capability == scene_.device.compute_capability)
      continue;
    const Places there = look_around(scene_.on(device));
    if (there.here != nullptr && p.elsewhere.empty())
      p.elsewhere = there.here->label() + " serves it on " + std::string(name);
    if (there.here_absent != nullptr && p.elsewhere_absent.empty())
      p.elsewhere_absent =
          there.here_absent->label() + " takes it on " + std::string(name) + ", but is not in this build";
  }
  return p;
}

std::string Alternatives::flag(const BackendInfo& row, bool of_phase) const {
  std::string text = "--attention-backend ";
  if (!scene_.only_kind)
    text = "-ac.backend_per_kind." + std::string(to_string(scene_.kind)) + "=";
  else if (of_phase)
    text = "--" + std::string(to_string(phase_)) + "-attention-backend ";
  text += row.name;
  const auto rows = rows_named(scene_.registry.entries(), row.name);
  const BackendInfo* by_name = choose_version(rows, scene_).row;
  if (const BackendInfo* built = built_instead(*by_name, rows, scene_)) by_name = built;
  if (by_name != &row) text += " " + version_flag(row);
  return text;
}

std::string Alternatives::instead(const BackendInfo& refused, bool of_phase) {
  const Places& p = places();
  if (p.here != nullptr && p.here != &refused) return flag(*p.here, of_phase) + ": serves it here";
  if (p.here_nearly != nullptr && p.here_nearly != &refused)
    return flag(*p.here_nearly, of_phase) + p.nearly_with + ": serves it here";
  std::string text;
  const auto siblings = rows_named(scene_.registry.entries(), refused.mla_sibling);
  if (const bool mla = scene_.spec().use_mla; mla && !siblings.empty()) {
    const Version sibling = choose_version(siblings, scene_);
    if (only_kernels_missing(weigh(sibling, scene_, phase_).findings))
      add(text, flag(*sibling.row, of_phase) + ": its MLA form, which is not in this build");
  }
  if (text.empty() && p.here_absent != nullptr && p.here_absent != &refused)
    add(text, flag(*p.here_absent, of_phase) + ": takes it, but is not in this build");
  add(text, p.elsewhere);
  if (text.empty()) add(text, p.elsewhere_absent);
  return text.empty() ? "no backend that this program knows takes it" : text;
}

Reason Alternatives::with_fix(const BackendInfo& refused, Finding finding) {
  Reason reason = std::move(finding.reason);
  switch (finding.remedy) {
    case Remedy::flag: break;
    case Remedy::other_backend:
    case Remedy::other_phase_backend: {
      // What the refused one takes goes before what takes this model.
      const bool says_more = !reason.fix.starts_with("--");
      const std::string other = instead(refused, finding.remedy == Remedy::other_phase_backend);
      reason.fix = says_more ? reason.fix + "; " + other : other;
      break;
    }
    case Remedy::other_device: {
      for (const BackendInfo* row : rows_named(scene_.registry.entries(), refused.name))
        if (row != &refused && runs_on(row->capability, scene_.device) && !version_flag(*row).empty())
          add(reason.fix, version_flag(*row) + ": " + std::string(row->version) + " is for this device");
      if (const BackendInfo* here = places().here)
        add(reason.fix, flag(*here, false) + ": serves it here");
      else if (const BackendInfo* absent = places().here_absent)
        add(reason.fix, flag(*absent, false) + ": takes it here, but is not in this build");
      break;
    }
    case Remedy::kernels: {
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
