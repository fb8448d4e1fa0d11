#pragma once
// A library's capability table as a row of the registry.
#include <deque>
#include <memory>
#include <string>

#include "fovea/attention_backend.h"
#include "fovea/backend_abi.h"

namespace fovea::plugin {

/// A row and the texts that it refers to.
struct Row {
  Row() = default;
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;
  std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }

  std::deque<std::string> texts;
  BackendInfo info;
};

/// Copies all of the table; BackendInfo::supports_combination is the caller's. Errors name the field: values
/// that this Fovea does not know, sets without members, names of other characters.
Result<std::unique_ptr<Row>> read_table(const fovea_backend_table* table);

/// Refuses a row whose name or aliases another row has, or whose prefill partner is not there.
Status check_names(const BackendInfo& info, const BackendRegistry& registry);

}  // namespace fovea::plugin
