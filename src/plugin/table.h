#pragma once
// Converts a library's capability table to a row of the registry.
#include <deque>
#include <memory>
#include <string>

#include "fovea/attention_backend.h"
#include "fovea/backend_abi.h"

namespace fovea::plugin {

/// A row and the strings that it references.
struct Row {
  Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }

  std::deque<std::string> texts;
  BackendInfo info;
};

/// Copies the whole table; the caller sets BackendInfo::supports_combination. Errors name the field: values
/// unknown to this Fovea, empty sets, names with invalid characters.
Result<std::unique_ptr<Row>> read_table(const fovea_backend_table* table);

/// Refuses a row whose name or aliases are taken, or whose prefill partner is missing.
Status check_names(const BackendInfo& info, const BackendRegistry& registry);

}  // namespace fovea::plugin
