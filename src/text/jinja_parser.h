#pragma once
#include <string_view>

#include "text/jinja_ast.h"

namespace fovea::text::jinja {

/// Parses a normalized source. Throws Failure; nesting deeper than 100 statements or brackets, or an
/// expression tree deeper than 200, is one.
Block parse_template(std::string_view source);

}  // namespace fovea::text::jinja
