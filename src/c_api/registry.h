#pragma once
// The backends available to objects: the built-in ones and those that the process has loaded.
#include <string>

#include "fovea/attention_backend.h"

namespace fovea::c_api {

/// Returns a copy, so that another thread may load more.
BackendRegistry loaded_backends();
Status load_backend(const std::string& file);
/// backends_json() of all; valid until the process ends.
const std::string& backends_text();

}  // namespace fovea::c_api
