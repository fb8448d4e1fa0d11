#pragma once
// Rows of a case space that have given levels.
#include <optional>

#include "conformance/pairwise.h"

namespace fovea::conformance {

/// An allowed row with the levels of `partial`; what is kUnset there takes `prefer`'s level where that may
/// be, else the first that may. nullopt: a bounded search found none.
std::optional<Levels> complete_row(std::span<const int> num_levels, const Allowed& allowed,
                                   const Levels& partial, const Levels& prefer);

/// Rows in which each level of each factor occurs `times` times, as far as an allowed row with the levels of
/// `fixed` has it. About as many rows as the factor with most levels needs.
std::vector<Levels> cover_levels(std::span<const int> num_levels, const Allowed& allowed, const Levels& fixed,
                                 int times);

}  // namespace fovea::conformance
