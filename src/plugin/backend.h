#pragma once
// An AttentionBackend implemented by a loaded library.
#include <memory>

#include "plugin/library.h"

namespace fovea::plugin {

/// `library` must live as long as the process. If its create() fails, calls of the backend return that error.
std::unique_ptr<AttentionBackend> make_backend(const Library& library);

}  // namespace fovea::plugin
