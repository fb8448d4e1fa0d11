#pragma once
// Rows of a case space that have given levels.
#include <optional>

#include "conformance/pairwise.h"

namespace fovea::conformance {

/// An allowed row with the levels of `partial`; unset factors take `prefer`'s level where allowed, else the
/// first allowed one. nullopt: a bounded search found none.
std::optional<Levels> complete_row(std::span<const int> num_levels, const Allowed& allowed,
                                   const Levels& partial, const Levels& prefer);

/// Rows in which each level of each factor occurs `times` times, if an allowed row with the levels of `fixed`
/// has it. About as many rows as the factor with the most levels needs.
std::vector<Levels> cover_levels(std::span<const int> num_levels, const Allowed& allowed, const Levels& fixed,
                                 int times);

}  // namespace fovea::conformance
