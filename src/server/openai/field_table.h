#pragma once
// Fields of requests that no reader asks for: what a client may send without an effect, what other servers
// have and this one has not, and what to say of all others. Rows of files, every endpoint and the page
// docs/request_fields.md read it.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/json_value.h"

namespace fovea::openai {

/// Whether a field that no server has is an error.
enum class UnknownFields : uint8_t { refused, ignored };

struct FieldRule {
  std::string_view name;
  std::string_view whose;  ///< who has it: "OpenAI, vLLM"
  /// no_effect: no answer depends on it. refused: an answer would, or has more in it.
  enum class Kind : uint8_t { no_effect, refused } kind;
  std::string_view note;  ///< no_effect: why. refused: what to do instead.
  /// A refused field is accepted with a value that asks for nothing: null, false, "", [], {} and these,
  /// separated by spaces.
  std::string_view off = {};
};

std::span<const FieldRule> field_rules();
/// Null = no server that we know has it.
const FieldRule* find_rule(std::string_view name);
/// Whether `value` asks for nothing.
bool is_off(const FieldRule& rule, const text::Json& value);

/// Why a field is refused. `shown` and `value`: its name in quotes or a path, and what it holds, fit to be
/// printed.
std::string refusal(const FieldRule& rule, const std::string& shown, const std::string& value);
/// What to say of a field that nobody knows: the nearest of `known`, and the ways out.
std::string unknown_field(const std::string& shown, std::string_view name,
                          std::span<const std::string_view> known);

/// Fields of a message, a part of its content, a tool call and its function. Templates get them.
std::span<const std::string_view> message_fields();
std::span<const std::string_view> part_fields();
std::span<const std::string_view> call_fields();
std::span<const std::string_view> function_fields();

}  // namespace fovea::openai
