#pragma once
// What a model's folder, or what was given for one, turns out to be.
#include <string>

#include "fovea/result.h"

namespace fovea {

/// DIR/config.json; errors say whether it is missing or may not be looked at, and name GGUF files.
Result<std::string> find_config(const std::string& dir);
/// An error for a file in llama.cpp's format.
Status refuse_gguf(const std::string& file);

}  // namespace fovea
