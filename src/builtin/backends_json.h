#pragma once
#include <string>

#include "fovea/attention_backend.h"

namespace fovea {

/// One JSON object with all columns of all rows of `registry`, their documented values, MLA prefill,
/// priorities and the tables of SGLang and Mini-SGLang: constraints for programs that choose settings.
std::string backends_json(const BackendRegistry& registry);

}  // namespace fovea
