#pragma once
// Sets of characters by the names that regular expressions give them.
#include <optional>
#include <string_view>

#include "grammar/code_points.h"

namespace fovea::grammar {

/// A general category of Unicode by its short or long name ("Lu", "L", "Letter", "Uppercase_Letter"), "Any"
/// or "ASCII"; "gc=Lu" and "General_Category=Lu" too.
std::optional<CodePoints> characters_of_property(std::string_view name);

}  // namespace fovea::grammar
