// Greedy: a row starts with an uncovered pair, and each further factor takes the level with the most
// uncovered pairs; the best of several such rows is kept.
#include "conformance/pairwise.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "conformance/random.h"

namespace fovea::conformance {
namespace {

constexpr int kCandidates = 8;     // candidate rows; the best is kept
constexpr int kMaxVisits = 20000;  // in a search for one row

class Generator {
 public:
  Generator(std::span<const int> num_levels, const Allowed& allowed, uint64_t seed, const Levels& fixed,
            const Hints& hints)
      : num_levels_(num_levels), allowed_(allowed), random_(seed), fixed_(fixed), hints_(hints) {
    fixed_.resize(num_levels.size(), kUnset);
    for (const int n : num_levels) {
      first_.push_back(total_);
      total_ += n;
    }
    covered_.assign(static_cast<size_t>(total_) * total_, false);
  }

  std::vector<Levels> run(std::vector<Levels>* unmet) {
    std::vector<Levels> rows;
    const int factors = static_cast<int>(num_levels_.size());
    if (factors == 0) return rows;
    if (factors == 1) return single_factor();
    for (int a = 0; a < factors; ++a)
      for (int b = a + 1; b < factors; ++b)
        for (int x = 0; x < num_levels_[a]; ++x)
          for (int y = 0; y < num_levels_[b]; ++y)
            if (excluded(a, x) || excluded(b, y)) covered(a, x, b, y) = true;
    for (int a = 0; a < factors; ++a)
      for (int b = a + 1; b < factors; ++b)
        for (int x = 0; x < num_levels_[a]; ++x)
          for (int y = 0; y < num_levels_[b]; ++y) {
            if (covered(a, x, b, y)) continue;
            Levels start = fixed_;
            start[a] = x;
            start[b] = y;
            Levels row;
            if (const Levels hinted = with_hint(start, rows.size()); hinted != start) row = best_row(hinted);
            if (row.empty()) row = best_row(start);
            if (row.empty()) {
              covered(a, x, b, y) = true;
              start.assign(start.size(), kUnset);
              start[a] = x;
              start[b] = y;
              if (unmet != nullptr) unmet->push_back(start);
              continue;
            }
            cover(row);
            rows.push_back(row);
          }
    return rows;
  }

 private:
  std::vector<Levels> single_factor() {
    std::vector<Levels> rows;
    for (int x = 0; x < num_levels_[0]; ++x)
      if (!excluded(0, x) && allowed_({x})) rows.push_back({x});
    return rows;
  }

  /// `start` with its unset levels taken from the hint of row `r`.
  Levels with_hint(Levels start, size_t r) const {
    if (hints_.empty()) return start;
    const Levels& hint = hints_[r % hints_.size()];
    for (size_t f = 0; f < std::min(start.size(), hint.size()); ++f)
      if (start[f] == kUnset) start[f] = hint[f];
    return start;
  }

  bool excluded(int factor, int level) const { return fixed_[factor] != kUnset && fixed_[factor] != level; }

  std::vector<bool>::reference covered(int a, int x, int b, int y) {
    if (a > b) {
      std::swap(a, b);
      std::swap(x, y);
    }
    return covered_[static_cast<size_t>(first_[a] + x) * total_ + first_[b] + y];
  }

  /// Uncovered pairs of `level` with the levels of `row`.
  int gain(const Levels& row, int factor, int level) {
    int pairs = 0;
    for (int other = 0; other < static_cast<int>(row.size()); ++other)
      if (other != factor && row[other] != kUnset) pairs += !covered(factor, level, other, row[other]);
    return pairs;
  }

  void cover(const Levels& row) {
    for (int a = 0; a < static_cast<int>(row.size()); ++a)
      for (int b = a + 1; b < static_cast<int>(row.size()); ++b)
        covered(a, row[a], b, row[b]) = true;
  }

  int new_pairs(const Levels& row) {
    int pairs = 0;
    for (int a = 0; a < static_cast<int>(row.size()); ++a)
      pairs += gain(row, a, row[a]);
    return pairs / 2;
  }

  /// Empty when none was found.
  Levels best_row(const Levels& start) {
    Levels best;
    int most = -1;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      Levels row = start;
      std::vector<int> open;
      for (int f = 0; f < static_cast<int>(row.size()); ++f)
        if (row[f] == kUnset) open.push_back(f);
      for (size_t i = open.size(); i > 1; --i)
        std::swap(open[i - 1], open[random_.below(static_cast<int>(i))]);
      int visits = kMaxVisits / kCandidates;
      if (!allowed_(row) || !complete(row, open, 0, visits)) continue;
      if (const int pairs = new_pairs(row); pairs > most) {
        most = pairs;
        best = row;
      }
    }
    return best;
  }

  /// Depth first, levels with the most uncovered pairs first.
  bool complete(Levels& row, const std::vector<int>& open, size_t at, int& visits) {
    if (at == open.size()) return true;
    const int factor = open[at];
    std::vector<std::pair<int, int>> order;  // -gain, level; equal gains in random order
    for (int level = 0; level < num_levels_[factor]; ++level)
      order.emplace_back(-gain(row, factor, level), level);
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random_.below(static_cast<int>(i))]);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [unused, level] : order) {
      if (--visits < 0) return false;
      row[factor] = level;
      if (allowed_(row) && complete(row, open, at + 1, visits)) return true;
    }
    row[factor] = kUnset;
    return false;
  }

  std::span<const int> num_levels_;
  const Allowed& allowed_;
  Random random_;
  Levels fixed_;
  const Hints& hints_;
  std::vector<int> first_;  // per factor: the number of levels of all factors before it
  int total_ = 0;
  std::vector<bool> covered_;
};

}  // namespace

std::vector<Levels> pairwise_rows(std::span<const int> num_levels, const Allowed& allowed, uint64_t seed,
                                  const Levels& fixed, std::vector<Levels>* unmet, const Hints& hints) {
  for (const int n : num_levels)
    FOVEA_CHECK(n > 0);
  return Generator(num_levels, allowed, seed, fixed, hints).run(unmet);
}

}  // namespace fovea::conformance
