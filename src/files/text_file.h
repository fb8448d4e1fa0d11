#pragma once
#include <cstddef>
#include <string>

#include "fovea/result_fwd.h"

namespace fovea {

/// The text of a small file (config.json and the like). Errors as MappedFile::open's; larger than `limit`
/// bytes is an error too.
Result<std::string> read_text_file(const std::string& path, size_t limit);

}  // namespace fovea
