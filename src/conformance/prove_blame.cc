// Attributes a failure to cells: those of the smallest case that still fails.
#include <algorithm>

#include "conformance/prover.h"

namespace fovea::conformance {
namespace {

constexpr int kMaxShrunk = 12;  // failures whose cause is searched

}  // namespace

/// The failure of `row` on `isa`, and what that case proves.
std::string Prover::failure_of(const Row& row, const std::string& isa, std::vector<bool>* proves) {
  const Prepared p = prepared(row, workers_[0].pools);
  if (proves != nullptr) *proves = proves_of(p);
  std::string failure;
  each_isa(info_, [&] {
    if (failure.empty() && to_string(current_isa()) == isa)
      failure = attempt(*workers_[0].backend, p, workers_[0].pools).failure;
  });
  return failure;
}

/// Sets as many levels to plain as possible while the case still fails; many knobs at once first, as most are
/// irrelevant.
Row Prover::shrink(Row row, const std::string& isa) {
  const Levels plain = space_.plain();
  for (size_t width = row.levels.size() / 2; width > 0;) {
    bool changed = false;
    for (size_t first = 0; first < row.levels.size(); first += width) {
      Row plainer = row;
      for (size_t k = first; k < std::min(first + width, row.levels.size()); ++k)
        plainer.levels[k] = plain[k];
      if (plainer.levels == row.levels || !space_.allowed(plainer.levels) || failure_of(plainer, isa).empty())
        continue;
      row = plainer;
      changed = true;
    }
    if (width > 1 || !changed) width /= 2;
  }
  return row;
}

void Prover::blame(const Row& row, const Outcome& outcome) {
  // Skip a failure that an earlier one explains.
  for (const std::vector<size_t>& cause : causes_)
    if (std::all_of(cause.begin(), cause.end(), [&](size_t i) { return outcome.proves[i]; })) return;
  CaseFailure failure{row.number,
                      row.fixed,
                      row.composed ? space_.code(row.levels) : "",
                      {},
                      place(),
                      outcome.attempt.failure,
                      space_.describe(row.levels)};
  if (options_.machine == nullptr) failure.isa = outcome.isa;
  std::vector<bool> guilty = outcome.proves;
  if (searched_ < kMaxShrunk && !options_.replay) {
    const Row small = shrink(row, outcome.isa);
    std::vector<bool> proves;
    failure.what = failure_of(small, outcome.isa, &proves);
    failure.what += "in " + space_.make(small.levels, small.number).problem.describe();
    failure.levels = space_.describe(small.levels);
    guilty = guilty_of(small, proves);
    // A case without any visible key fails without proving anything.
    if (std::find(guilty.begin(), guilty.end(), true) == guilty.end()) guilty = outcome.proves;
  }
  std::vector<size_t> cause;
  for (size_t i = 0; i < cells_.size(); ++i)
    if (guilty[i]) {
      cause.push_back(i);
      failure.cells.push_back(cells_[i].id());
      if (blame_[i].empty()) blame_[i] = "case " + std::to_string(row.number) + ": " + failure.what;
    }
  // A failure without cells explains no other.
  if (!cause.empty()) causes_.push_back(cause);
  ++searched_;
  if (options_.failed) options_.failed(failure);
  report_.failures.push_back(std::move(failure));
}

/// The cells of the smallest failing case that the plain case does not have; all of them if none is left.
std::vector<bool> Prover::guilty_of(const Row& small, const std::vector<bool>& proves) {
  const Levels plain = space_.plain();
  if (!space_.allowed(plain) || small.levels == plain) return proves;
  Row row = small;
  row.levels = plain;
  std::vector<bool> innocent = proves_of(prepared(row, workers_[0].pools));
  // If only one knob can be made plain, cells that the remaining case still proves are not to blame.
  std::vector<Row> plainer;
  for (size_t k = 0; k < plain.size(); ++k) {
    row.levels = small.levels;
    row.levels[k] = plain[k];
    if (row.levels != small.levels && space_.allowed(row.levels)) plainer.push_back(row);
  }
  if (plainer.size() == 1) {
    const std::vector<bool> also = proves_of(prepared(plainer[0], workers_[0].pools));
    for (size_t i = 0; i < also.size(); ++i)
      innocent[i] = innocent[i] || also[i];
  }
  std::vector<bool> guilty = proves;
  for (size_t i = 0; i < guilty.size(); ++i)
    guilty[i] = proves[i] && !innocent[i];
  return std::find(guilty.begin(), guilty.end(), true) == guilty.end() ? proves : guilty;
}

}  // namespace fovea::conformance
