#pragma once
// Covering arrays: few rows in which every two levels of two factors meet.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fovea::conformance {

/// The level of each factor, in [0, number of its levels); kUnset in a row that is not complete.
using Levels = std::vector<int>;
inline constexpr int kUnset = -1;

/// Whether `row` may be a row. Of an incomplete one: false only where no completion may be.
using Allowed = std::function<bool(const Levels& row)>;

/// Levels that rows have in turn, where a row with the pair that it is made for may have them: row r those of
/// hints[r % size] (kUnset, or no entry at all = any). They give some levels more weight than the others.
using Hints = std::vector<Levels>;

/// Rows such that for every two factors each pair of levels that some allowed row has is in one of them.
/// Only rows with the levels of `fixed` count (kUnset, or no entry at all = free). The same for the same
/// arguments on every platform. Pairs for which no row is found within a bounded search are left out, and
/// appended to `unmet` where that is given, as rows of just these two levels.
std::vector<Levels> pairwise_rows(std::span<const int> num_levels, const Allowed& allowed, uint64_t seed,
                                  const Levels& fixed = {}, std::vector<Levels>* unmet = nullptr,
                                  const Hints& hints = {});

}  // namespace fovea::conformance
