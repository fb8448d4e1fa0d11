#pragma once
// Covering arrays: few rows in which every pair of levels of two factors occurs.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fovea::conformance {

/// The level of each factor, in [0, number of its levels); kUnset in a row that is not complete.
using Levels = std::vector<int>;
inline constexpr int kUnset = -1;

/// Whether `row` is allowed. For an incomplete row: false only if no completion is allowed.
using Allowed = std::function<bool(const Levels& row)>;

/// Preferred levels: row r takes those of hints[r % size] (kUnset, or no entry at all = any) where its pair
/// allows them. This gives some levels more weight than others.
using Hints = std::vector<Levels>;

/// Rows such that for every two factors each pair of levels that some allowed row has is in one of them.
/// All rows have the levels of `fixed` (kUnset, or no entry at all = free). Deterministic on every platform.
/// Pairs for which a bounded search finds no row are omitted, and appended to `unmet` if given, as rows with
/// only these two levels.
std::vector<Levels> pairwise_rows(std::span<const int> num_levels, const Allowed& allowed, uint64_t seed,
                                  const Levels& fixed = {}, std::vector<Levels>* unmet = nullptr,
                                  const Hints& hints = {});

}  // namespace fovea::conformance
