#pragma once
// The backends that this program knows by name and has no kernels for.
#include <vector>

#include "fovea/attention.h"

namespace fovea {

const std::vector<BackendInfo>& absent_backends();

}  // namespace fovea
