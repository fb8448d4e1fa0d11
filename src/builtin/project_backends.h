#pragma once
// The backends of the project, whatever this program was compiled with.
#include "fovea/attention_backend.h"

namespace fovea {

/// As builtin_backends() of a program with everything: what documents and tests of selection speak of. In a
/// program without CUDA its CUDA backends can't be created.
const BackendRegistry& project_backends();

}  // namespace fovea
