#pragma once
#include <string_view>

#include "text/jinja_ast.h"

namespace fovea::text::jinja {

/// Parses a normalized source. Throws Failure, also for more than 100 nested statements or brackets and for
/// an expression tree deeper than 200.
Block parse_template(std::string_view source);

}  // namespace fovea::text::jinja
