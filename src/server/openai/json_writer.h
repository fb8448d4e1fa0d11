#pragma once
// JSON as text, appended piece by piece: a chunk for every token is written this way, so nothing is built in
// between.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/json_value.h"

namespace fovea::openai {

/// A string in quotes. Ill-formed UTF-8 becomes U+FFFD, control characters are escaped.
void append_string(std::string& out, std::string_view text);
void append_integer(std::string& out, int64_t value);
/// The shortest decimals that read back as the same float, always with a point or an exponent: "1.0". JSON
/// has no infinities and no NaN: they become null.
void append_float(std::string& out, float value);
/// [1,2,3]
void append_ids(std::string& out, std::span<const int32_t> ids);
/// A parsed value again, members in their order, large integers with all digits.
void append_json(std::string& out, const text::Json& value);

}  // namespace fovea::openai
