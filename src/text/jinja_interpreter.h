#pragma once
#include <string>

#include "text/jinja_runtime.h"

namespace fovea::text::jinja {

/// Runs a parsed template with the given variables. Throws Failure.
std::string render(const Block& program, const Dict& variables, const Limits& limits = {});

}  // namespace fovea::text::jinja
