#pragma once
// Appends JSON text directly, without intermediate objects, as a chunk is written for every token.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/json_value.h"

namespace fovea::openai {

/// Appends a string in quotes. Ill-formed UTF-8 becomes U+FFFD, control characters are escaped.
void append_string(std::string& out, std::string_view text);
void append_integer(std::string& out, int64_t value);
/// The shortest decimals that round-trip, always with a point or an exponent: "1.0". Infinities and NaN,
/// which JSON does not have, become null.
void append_float(std::string& out, float value);
/// [1,2,3]
void append_ids(std::string& out, std::span<const int32_t> ids);
/// Serialises a parsed value, with its order of members and all digits of large integers.
void append_json(std::string& out, const text::Json& value);
std::string to_text(const text::Json& value);

}  // namespace fovea::openai
