#pragma once
// The backends that objects choose from: the library's, and those that the process has loaded.
#include <string>

#include "fovea/attention_backend.h"

namespace fovea::c_api {

/// A copy, so that another thread may load more.
BackendRegistry loaded_backends();
Status load_backend(const std::string& file);
/// backends_json() of all; lives as long as the process.
const std::string& backends_text();

}  // namespace fovea::c_api
