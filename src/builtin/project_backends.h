#pragma once
// All backends of the project, independent of how this program was compiled.
#include "fovea/attention_backend.h"

namespace fovea {

/// builtin_backends() of a program with all backends, for the documentation and tests of selection. In a
/// program without CUDA its CUDA backends can't be created.
const BackendRegistry& project_backends();

}  // namespace fovea
