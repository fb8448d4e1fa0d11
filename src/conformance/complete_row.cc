#include "conformance/complete_row.h"

#include <algorithm>

namespace fovea::conformance {
namespace {

constexpr int kMaxVisits = 2000;

/// Depth-first search, factor by factor.
bool complete(std::span<const int> num_levels, const Allowed& allowed, const Levels& prefer, Levels& row,
              size_t at, int& visits) {
  while (at < row.size() && row[at] != kUnset)
    ++at;
  if (at == row.size()) return allowed(row);
  for (int i = -1; i < num_levels[at]; ++i) {
    const int level = i < 0 ? prefer[at] : i;
    if (level == kUnset || (i >= 0 && level == prefer[at])) continue;
    if (--visits < 0) break;
    row[at] = level;
    if (allowed(row) && complete(num_levels, allowed, prefer, row, at + 1, visits)) return true;
  }
  row[at] = kUnset;
  return false;
}

}  // namespace

std::optional<Levels> complete_row(std::span<const int> num_levels, const Allowed& allowed,
                                   const Levels& partial, const Levels& prefer) {
  Levels row = partial;
  row.resize(num_levels.size(), kUnset);
  int visits = kMaxVisits;
  if (!allowed(row) || !complete(num_levels, allowed, prefer, row, 0, visits)) return std::nullopt;
  return row;
}

std::vector<Levels> cover_levels(std::span<const int> num_levels, const Allowed& allowed, const Levels& fixed,
                                 int times) {
  std::vector<std::vector<int>> seen;
  for (const int n : num_levels)
    seen.emplace_back(n, 0);
  std::vector<Levels> rows;
  for (size_t factor = 0; factor < num_levels.size(); ++factor)
    for (int level = 0; level < num_levels[factor]; ++level)
      while (seen[factor][level] < times) {
        Levels partial = fixed, prefer;
        partial.resize(num_levels.size(), kUnset);
        if (partial[factor] != kUnset && partial[factor] != level) break;
        partial[factor] = level;
        for (const std::vector<int>& counts : seen)
          prefer.push_back(static_cast<int>(std::ranges::min_element(counts) - counts.begin()));
        const auto row = complete_row(num_levels, allowed, partial, prefer);
        if (!row) break;
        for (size_t f = 0; f < row->size(); ++f)
          ++seen[f][(*row)[f]];
        rows.push_back(*row);
      }
  return rows;
}

}  // namespace fovea::conformance
