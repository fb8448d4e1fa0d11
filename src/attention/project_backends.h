#pragma once
// The backends of the project, whatever this program was compiled with.
#include "fovea/attention_backend.h"

namespace fovea {

/// As builtin_backends() of a program with everything: what documents and tests of selection speak of. In a
/// program without CUDA its CUDA backends can't be created.
const BackendRegistry& project_backends();

/// `row` is the project's, and absent only because this program was built without CUDA.
bool needs_other_build(const BackendInfo& row);

}  // namespace fovea
