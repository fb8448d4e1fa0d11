#pragma once
// Character classes as the methods of Python's str define them.
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::text::jinja {

/// White_Space and the four information separators.
bool is_python_space(uint32_t code_point);

/// `name`: isalnum, isalpha, isascii, isdecimal, isdigit, isidentifier, islower, isnumeric, isprintable,
/// isspace, istitle or isupper.
bool in_class(std::string_view text, std::string_view name);

/// str.swapcase of valid UTF-8.
std::string swap_case(std::string_view text);

}  // namespace fovea::text::jinja
