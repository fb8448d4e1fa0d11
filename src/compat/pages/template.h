#pragma once
// The pages' prose with placeholders for tables: "{{table:sglang}}".
#include <map>
#include <string>
#include <string_view>

#include "fovea/result_fwd.h"

namespace fovea::docs {

/// The text for each placeholder, by its name between the braces.
using Values = std::map<std::string, std::string, std::less<>>;

/// `text` with every placeholder filled. A placeholder without a value, a value without a placeholder and
/// braces that don't close are errors that name `file` and the line.
Result<std::string> fill_template(std::string_view file, std::string_view text, const Values& values);

}  // namespace fovea::docs
