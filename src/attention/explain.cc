// Prints a selection: a line for each phase, or the full report.
#include <algorithm>
#include <string>

#include "fovea/attention.h"

namespace fovea {
namespace {

bool same(const PhaseSelection& a, const PhaseSelection& b) {
  return a.backend == b.backend && a.if_built == b.if_built && a.why == b.why;
}

std::string chosen(const PhaseSelection& s) {
  if (s.backend != nullptr) return s.backend->label();
  if (s.if_built == nullptr) return "none";
  std::string out = "none, " + s.if_built->label() + " if it were built";
  for (size_t i = 0; i < s.unstated.size(); ++i)
    out += (i == 0 ? ", although its documentation does not state: " : ", ") + s.unstated[i];
  return out;
}

std::string line(std::string_view what, const PhaseSelection& s) {
  return std::string(what) + ": " + chosen(s) + " (" + s.why + ")\n";
}

bool has_phase(const KindSelection& kind, Phase phase) {
  return phase == Phase::prefill || kind.kind != LayerKind::encoder;
}

std::string candidates(const PhaseSelection& s) {
  std::string out;
  for (size_t i = 0; i < s.candidates.size(); ++i) {
    const Candidate& c = s.candidates[i];
    out += "  " + std::to_string(i + 1) + ". " + c.backend->label() + (c.reasons.empty() ? ": serves" : "") +
           "\n";
    for (const Reason& r : c.reasons)
      out += "     - " + r.text + "\n       fix: " + r.fix + "\n";
  }
  return out;
}

}  // namespace

std::string explain(const Selection& selection) {
  const KindSelection& first = selection.kinds.front();
  std::string out;
  for (Phase phase : {Phase::prefill, Phase::decode}) {
    const bool alike = std::ranges::all_of(selection.kinds, [&](const KindSelection& k) {
      return !has_phase(k, phase) || same(k.of(phase), first.of(phase));
    });
    for (const KindSelection& kind : selection.kinds) {
      if (!has_phase(kind, phase)) continue;
      const std::string name(to_string(phase));
      out += line(alike ? name : std::string(to_string(kind.kind)) + "." + name, kind.of(phase));
      if (alike) break;
    }
  }
  if (!out.empty()) out.pop_back();
  return out;
}

std::string explain_in_full(const Selection& selection) {
  std::string out;
  for (const KindSelection& kind : selection.kinds)
    for (Phase phase : {Phase::prefill, Phase::decode}) {
      if (!has_phase(kind, phase)) continue;
      const PhaseSelection& s = kind.of(phase);
      out += (out.empty() ? "" : "\n") +
             line(std::string(to_string(kind.kind)) + "." + std::string(to_string(phase)), s);
      out += candidates(s);
      if (s.backend == nullptr) out += "  error: " + s.error.message + "\n";
    }
  out += "\nvalues\n";
  for (const ResolvedValue& value : selection.resolved)
    out += "  " + value.key + " = " + value.value + " (" + value.from + ")\n";
  if (selection.page_size == 0) out += "  no page size: " + selection.page_size_why + "\n";
  if (!selection.warnings.empty()) out += "\nwarnings\n";
  for (const std::string& warning : selection.warnings)
    out += "  " + warning + "\n";
  return out;
}

}  // namespace fovea
