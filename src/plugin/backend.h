#pragma once
// An AttentionBackend whose work a library does.
#include <memory>

#include "plugin/library.h"

namespace fovea::plugin {

/// `library` lives as long as the process. An instance that can't be created is one whose calls say why.
std::unique_ptr<AttentionBackend> make_backend(const Library& library);

}  // namespace fovea::plugin
