#pragma once
// The known name nearest to a mistyped one, for "did you mean".
#include <string_view>
#include <vector>

namespace fovea {

/// Case-insensitive Levenshtein distance.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest distance; empty if that distance exceeds a third of the name's length plus
/// one, where a suggestion would not help.
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);

}  // namespace fovea
