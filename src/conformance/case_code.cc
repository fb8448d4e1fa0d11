// Rows of a case space as text, and rows with given levels.
#include "base/check.h"
#include "conformance/case_space.h"
#include "conformance/complete_row.h"

namespace fovea::conformance {
namespace {

constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

}  // namespace

std::vector<int> CaseSpace::counts() const {
  std::vector<int> counts;
  for (const auto& levels : levels_)
    counts.push_back(static_cast<int>(levels.size()));
  return counts;
}

std::string CaseSpace::code(const Levels& row) const {
  std::string text;
  for (const int level : row) {
    FOVEA_CHECK(level >= 0 && level < static_cast<int>(kDigits.size()));
    text += kDigits[static_cast<size_t>(level)];
  }
  return text;
}

std::optional<Levels> CaseSpace::parse_code(std::string_view code) const {
  if (code.size() != levels_.size()) return std::nullopt;
  Levels row;
  for (size_t k = 0; k < code.size(); ++k) {
    const size_t level = kDigits.find(code[k]);
    if (level >= levels_[k].size()) return std::nullopt;
    row.push_back(static_cast<int>(level));
  }
  if (!allowed(row)) return std::nullopt;
  return row;
}

std::optional<Levels> CaseSpace::complete(const Levels& partial, const Levels& prefer) const {
  return complete_row(counts(), [&](const Levels& row) { return allowed(row); }, partial, prefer);
}

std::vector<Levels> CaseSpace::cover(const Levels& fixed, int times) const {
  return cover_levels(counts(), [&](const Levels& row) { return allowed(row); }, fixed, times);
}

Levels CaseSpace::only(std::initializer_list<Knob> knobs, const Levels& row) const {
  Levels out(levels_.size(), kUnset);
  for (const Knob knob : knobs)
    out[static_cast<size_t>(knob)] = row[static_cast<size_t>(knob)];
  return out;
}

std::vector<Levels> CaseSpace::neighbours(const Levels& row, const Levels& fixed, Knob knob) const {
  const auto k = static_cast<size_t>(knob);
  std::vector<Levels> out;
  for (int level = 0; level < static_cast<int>(levels_[k].size()) && fixed[k] == kUnset; ++level) {
    Levels other = row;
    other[k] = level;
    if (level != row[k] && allowed(other)) out.push_back(std::move(other));
  }
  return out;
}

std::vector<Levels> CaseSpace::neighbours(const Levels& row, const Levels& fixed) const {
  std::vector<Levels> out;
  for (size_t k = 0; k < levels_.size(); ++k)
    for (Levels& other : neighbours(row, fixed, static_cast<Knob>(k)))
      out.push_back(std::move(other));
  return out;
}

std::optional<Levels> CaseSpace::fixed_to(Phase phase) const {
  Levels row(levels_.size(), kUnset);
  const auto& levels = levels_[static_cast<size_t>(Knob::phase)];
  for (size_t i = 0; i < levels.size(); ++i)
    if (levels[i].value == static_cast<int>(phase) && levels[i].name == to_string(phase)) {
      row[static_cast<size_t>(Knob::phase)] = static_cast<int>(i);
      return row;
    }
  return std::nullopt;
}

}  // namespace fovea::conformance
