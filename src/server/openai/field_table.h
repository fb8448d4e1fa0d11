#pragma once
// The table of request fields that no parser reads: fields that are accepted without effect, and fields of
// other servers that are refused; and the errors for unknown fields. Batch files, all endpoints and the page
// docs/request_fields.md use it.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/json_value.h"

namespace fovea::openai {

/// Whether an unknown field is an error.
enum class UnknownFields : uint8_t { refused, ignored };

struct FieldRule {
  std::string_view name;
  std::string_view whose;  ///< the servers that define it: "OpenAI, vLLM"
  /// no_effect: answers do not depend on it. refused: it would change or extend the answer.
  enum class Kind : uint8_t { no_effect, refused } kind;
  std::string_view note;  ///< no_effect: why. refused: what to do instead.
  /// Values that turn a refused field off, separated by spaces. With these or null, false, "", [] or {} it is
  /// accepted.
  std::string_view off = {};
};

std::span<const FieldRule> field_rules();
/// Null = an unknown field.
const FieldRule* find_rule(std::string_view name);
/// Whether `value` turns the field off.
bool is_off(const FieldRule& rule, const text::Json& value);

/// The error message for a refused field. `shown`: its quoted name or its path; `value`: printable.
std::string refusal(const FieldRule& rule, const std::string& shown, const std::string& value);
/// The error message for an unknown field, which suggests the nearest name in `known`.
std::string unknown_field(const std::string& shown, std::string_view name,
                          std::span<const std::string_view> known);

/// Fields of a message, a content part, a tool call and its function that are passed to chat templates.
std::span<const std::string_view> message_fields();
std::span<const std::string_view> part_fields();
std::span<const std::string_view> call_fields();
std::span<const std::string_view> function_fields();

}  // namespace fovea::openai
