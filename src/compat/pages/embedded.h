#pragma once
// Files of the source tree that are embedded in the program, so that an installed one writes the same pages.
#include <string_view>

namespace fovea::docs {

/// The text of a file that src/CMakeLists.txt embeds, by its name without folders.
std::string_view embedded_text(std::string_view name);

}  // namespace fovea::docs
