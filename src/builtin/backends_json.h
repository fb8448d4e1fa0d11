#pragma once
#include <string>

#include "fovea/attention_backend.h"

namespace fovea {

/// All columns of all rows of `registry`, their documents' values, MLA prefill, priorities and what SGLang
/// and Mini-SGLang document, as one JSON object: constraints for programs that choose settings.
std::string backends_json(const BackendRegistry& registry);

}  // namespace fovea
