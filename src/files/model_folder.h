#pragma once
// Checks on a model folder, or on the path given as one.
#include <string>

#include "fovea/result.h"

namespace fovea {

/// DIR/config.json; errors distinguish missing files from missing permission, and name GGUF files.
Result<std::string> find_config(const std::string& dir);
/// An error for a file in llama.cpp's format.
Status refuse_gguf(const std::string& file);

}  // namespace fovea
