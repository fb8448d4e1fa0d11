#pragma once
// The order in which automatic choice tries backends: vLLM's, by device and kind of attention.
#include <span>
#include <string_view>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

/// A list of vLLM's, and when it is used; `names` are exact and the first is tried first.
struct PriorityList {
  std::string_view title;  ///< "Blackwell (SM 10.x)", for people
  bool mla = false;
  std::span<const std::string_view> names;
};

/// Every list, in the order of the documents.
std::span<const PriorityList> priority_lists();

/// Exact names for `spec` on `device`, the first is tried first; never empty.
std::vector<std::string_view> priorities(const DeviceInfo& device, const AttentionSpec& spec);

}  // namespace fovea
