#pragma once
// The order in which automatic choice tries backends: vLLM's, by device and kind of attention.
#include <span>
#include <string_view>
#include <vector>

#include "fovea/attention_spec.h"

namespace fovea {

/// One of vLLM's lists, and when it is used; `names` are exact and tried in order.
struct PriorityList {
  std::string_view title;  ///< "Blackwell (SM 10.x)", for display
  bool mla = false;
  std::span<const std::string_view> names;
};

/// Every list, in the order of the documentation.
std::span<const PriorityList> priority_lists();

/// Exact names for `spec` on `device`, in the order in which they are tried; never empty.
std::vector<std::string_view> priorities(const DeviceInfo& device, const AttentionSpec& spec);

}  // namespace fovea
