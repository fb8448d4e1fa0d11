#pragma once
// Rows that are absent because of how this program was compiled.
#include <string_view>

#include "fovea/backend_info.h"

namespace fovea {

inline constexpr std::string_view kBuiltWithoutCuda =
    "this program was built without CUDA; build it with FOVEA_BUILD_CUDA=1 ./run.sh";

/// Whether a build with CUDA has `row`.
bool needs_other_build(const BackendInfo& row);

}  // namespace fovea
