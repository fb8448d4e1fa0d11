#pragma once
// The order in which automatic choice tries backends.
#include <string_view>
#include <vector>

#include "fovea/attention.h"

namespace fovea {

/// Names of backends, best first, for layers like `spec` on `device`.
std::vector<std::string_view> priorities(const DeviceInfo& device, const AttentionSpec& spec);

}  // namespace fovea
